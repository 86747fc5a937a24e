//! Once they are warm, TPC-C, TPC-E and the scripts of files allocate nothing for a transaction,
//! apart from the blocks for inserted rows and their keys.
//!
//! A binary of its own: a process has one global allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;

use contend_engine::{AbortReason, Engine, EngineConfig, EngineOptions, Erased, IndexKind, NamedProtocol, Options};
use contend_machine::Native;
use contend_protocols::{ProtocolVisitor, all_protocols, with_protocol};
use contend_workloads::Workload;
use contend_workloads::file::{FileWorkload, WorkloadFile};
use contend_workloads::tpcc::{Tpcc, TpccOptions};
use contend_workloads::tpce::{Tpce, TpceOptions};

struct Counting;

/// Blocks of records and of index nodes are of this size or larger.
const BLOCK: usize = 16 << 10;

thread_local! {
    /// The numbers of this thread's small allocations and of its blocks. Nothing is counted while
    /// the first is negative.
    static ALLOCATIONS: Cell<(i64, i64)> = const { Cell::new((i64::MIN, 0)) };
}

fn count(size: usize) {
    // A thread that is ending has no counter any more, and nothing to count.
    let _ = ALLOCATIONS.try_with(|allocations| {
        let (small, blocks) = allocations.get();
        if small >= 0 {
            allocations.set(if size < BLOCK { (small + 1, blocks) } else { (small, blocks + 1) });
        }
    });
}

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) };
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs a workload of these options. The last number is that of the tables that grow.
struct AllocatesNothing<W: Workload>(EngineOptions, W::Options, i64);

impl<W: Workload> ProtocolVisitor<Native> for AllocatesNothing<W> {
    type Output = ();

    fn visit<P: NamedProtocol<Native>>(self) {
        // With `Erased` the workload is compiled once, not once for each protocol.
        self.allocates_nothing(P::INFO.name, Erased::new(P::new(P::Options::default())));
    }
}

impl<W: Workload> AllocatesNothing<W> {
    fn allocates_nothing(&self, name: &str, protocol: Erased<Native>) {
        let AllocatesNothing(options, workload_options, growing) = self;
        let config = EngineConfig { options: options.clone(), epoch_ms: 0, ..EngineConfig::default() };
        let engine = Engine::new(protocol, config);
        let workload = W::create(workload_options, IndexKind::Hash, &engine);
        let mut loader = engine.loader().expect("a slot");
        workload.load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(())).expect("memory");
        drop(loader);
        let mut worker = engine.worker().expect("a slot");
        let (mut client, mut input) = (workload.client(0, 1, 3), W::Input::default());
        let mut run = |transactions: u64| {
            for _ in 0..transactions {
                workload.next(&mut (), &mut client, &mut input);
                match worker.run(|tx| workload.execute(tx, &mut client, &input)) {
                    Ok(()) => workload.committed(&mut client, &input),
                    Err(abort) => assert_eq!(abort.reason, AbortReason::User, "one thread has no conflicts"),
                }
            }
        };
        run(5_000);
        ALLOCATIONS.set((0, 0));
        run(5_000);
        let (small, blocks) = ALLOCATIONS.replace((i64::MIN, 0));
        // Lists of blocks, and of records to reuse, still double now and then: two for each table.
        assert!(small <= 2 * growing, "{name} {options:?}: {small} small allocations in 5000 transactions");
        // Old versions are collected by the clock. If the thread loses its core for a while, some
        // more blocks are needed.
        assert!(blocks <= 12 + 2 * growing, "{name} {options:?}: {blocks} blocks");
    }
}

fn allocates_nothing<W: Workload>(workload_options: &W::Options, growing: i64) {
    let mut all = EngineOptions::default();
    all.set("engine.commit_time_updates", "on").expect("an option");
    all.set("engine.timestamp_splitting", "on").expect("an option");
    for (info, _) in all_protocols::<Native>() {
        for options in [EngineOptions::default(), all.clone()] {
            let visitor = AllocatesNothing::<W>(options, workload_options.clone(), growing);
            with_protocol::<Native, _>(info.name, visitor).expect("a registered name");
        }
    }
}

#[test]
fn transactions_allocate_blocks_for_rows_and_nothing_else() {
    allocates_nothing::<Tpcc>(&TpccOptions { items: 1000, customers: 100, ..TpccOptions::default() }, 9);
}

/// Neither does the market that a client of TPC-E plays.
#[test]
fn the_market_allocates_nothing_either() {
    allocates_nothing::<Tpce>(&TpceOptions { customers: 50, securities: 20, ..TpceOptions::default() }, 10);
}

/// Neither do scripts, whatever is drawn, listed, repeated or kept for a piece that runs again.
#[test]
fn scripts_allocate_nothing_either() {
    /// Name, parameters and the tables that grow.
    type File = (&'static str, &'static [(&'static str, &'static str)], i64);
    let files: [File; 4] = [
        ("shop", &[("shop.items", "1000"), ("shop.customers", "1000")], 2),
        ("tpcc", &[("tpcc.warehouses", "1"), ("tpcc.items", "1000"), ("tpcc.customers", "100")], 9),
        ("smallbank", &[("smallbank.customers", "1000")], 0),
        ("ycsb-a", &[("ycsb.records", "1000")], 0),
    ];
    for (name, settings, growing) in files {
        let path = format!("{}/../../workloads/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect("a file of the repository");
        let mut options = WorkloadFile::read(&path, &text).expect("a valid file").options().expect("valid parameters");
        settings.iter().for_each(|(name, value)| options.set(name, value).expect("a parameter"));
        allocates_nothing::<FileWorkload>(&options, growing);
    }
}
