//! The instructions of a read, a write and a commit, counted one by one.
//!
//! `cargo bench -p contend-protocols --bench instructions` prints a table. A child process runs one
//! transaction while its parent steps it (`ptrace`) and counts. So the counts are exact, and need
//! no hardware counters. They belong to one compiler and one kind of processor.
//!
//! Parent and child run on one core: a step takes a fourth of the time there.
//!
//! - *read*, *write*: what one more operation adds to a transaction of five. The rows have 8 bytes,
//!   and nothing is in the write set twice.
//! - *batched read*: the same, where one call reads all rows.
//! - *commit*: a transaction of five reads without them: its beginning, its end, and what it does
//!   once.
//!
//! A protocol with pieces is also counted with declared transactions (`declared`): of one piece,
//! which reads and writes the table.
//!
//! `-- --check FILE` compares the counts with those of a file and fails if one has grown by more
//! than 2 %, or by more than 15 % if the file is of another compiler; `-- --write FILE` writes the
//! file. The status is 77 where nothing can be compared: no process may be stepped, or the
//! processor is of another kind.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::sync::Arc;

use contend_engine::{
    Abort, Engine, EngineConfig, Groups, IndexKind, NamedProtocol, Projection, RawTxn, Table, TableSpec, Transaction,
    Txn, Worker,
};
use contend_machine::Native;
use contend_model::pieces::{Mode, Piece, Types};
use contend_protocols::locking::no_wait::NoWait;
use contend_protocols::multiversion::cicada::Cicada;
use contend_protocols::multiversion::ermia::Ermia;
use contend_protocols::multiversion::hekaton::Hekaton;
use contend_protocols::multiversion::msto::Msto;
use contend_protocols::multiversion::mvto::Mvto;
use contend_protocols::multiversion::snapshot_isolation::SnapshotIsolation;
use contend_protocols::none::NoControl;
use contend_protocols::optimistic::silo::Silo;
use contend_protocols::pieces::ic3::Ic3;
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::sys::personality::{self, Persona};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

const RECORDS: u64 = 100_000;
/// The operations of a short transaction; a long one has twice as many.
const OPERATIONS: usize = 5;
/// The transactions that run before one is counted.
const BEFORE: usize = 200;
/// The sets of keys that are counted; the least count is taken. The addresses of their records
/// differ, and some sets need a step more to find that an address is new (`AddressMap`).
const KEY_SETS: u64 = 4;
/// The protocols whose counts are compared. Those of locks depend a little on addresses.
const COMPARED: [&str; 3] = ["none", "silo", "ic3 declared"];
/// The protocols whose reads are compared. The other counts depend on the time at which old
/// versions are collected.
const READS_COMPARED: [&str; 6] = ["mvto", "cicada", "msto", "si", "ermia", "hekaton"];
/// The growth that the check allows, by the same compiler and by another one.
const GROWTH: f64 = 1.02;
const GROWTH_BY_COMPILER: f64 = 1.15;

/// Returns the number of instructions of the second call of `body` in a child process.
fn count(body: &mut dyn FnMut()) -> nix::Result<u64> {
    // SAFETY: this process has one thread. The child only runs `body` and exits.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let traced = ptrace::traceme().and_then(|()| raise(Signal::SIGSTOP));
            if traced.is_ok() {
                body();
                // The counted instructions are those between these two signals.
                let _ = raise(Signal::SIGUSR1);
                body();
                let _ = raise(Signal::SIGUSR2);
            }
            // SAFETY: no destructor runs and no lock is held: the engine belongs to the parent.
            unsafe { nix::libc::_exit(0) }
        }
    };
    let mut counted = 0;
    let mut counts = false;
    loop {
        match waitpid(child, None)? {
            WaitStatus::Stopped(_, Signal::SIGUSR1) => counts = true,
            WaitStatus::Stopped(_, Signal::SIGUSR2) => {
                ptrace::kill(child)?;
                waitpid(child, None)?;
                return Ok(counted);
            }
            WaitStatus::Stopped(_, Signal::SIGTRAP | Signal::SIGSTOP) => counted += u64::from(counts),
            other => panic!("the counted transaction has ended its process: {other:?}"),
        }
        if counts { ptrace::step(child, None)? } else { ptrace::cont(child, None)? }
    }
}

/// What a transaction does.
#[derive(Clone, Copy)]
enum Kind {
    Reads,
    BatchedReads,
    Writes,
}

/// The only piece of a declared transaction.
const ONLY: Piece = Piece::new(0, "only");

struct Bench<P: NamedProtocol<Native>> {
    table: Table<u64>,
    is_declared: bool,
    worker: Worker<P, Native>,
}

/// Returns a key of a set that is not dense: a bijection.
fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<P: NamedProtocol<Native>> Bench<P> {
    fn new(index: IndexKind, is_declared: bool) -> Self {
        let engine = Engine::new(P::new(Default::default()), EngineConfig::default());
        let table = engine.create_table::<u64>(&TableSpec::of_bytes("rows", index, 8, RECORDS as usize));
        let mut loader = engine.loader().expect("the first worker");
        for key in 0..RECORDS {
            loader.insert(&table, spread(key), |row| row[0] = 1).expect("memory");
        }
        drop(loader);
        if is_declared {
            let mut types = Types::new(engine.declared_tables());
            types.add("all").piece(ONLY, |piece| {
                piece.access(Mode::Read, &table, Groups::ALL).access(Mode::Write, &table, Groups::ALL)
            });
            engine.declare(types.finish().expect("valid declarations")).expect("valid declarations");
        }
        Bench { table, is_declared, worker: Arc::clone(&engine).worker().expect("a worker") }
    }

    /// The body of a transaction. Returns what it has read.
    #[inline(always)]
    fn operate(
        tx: &mut Transaction<'_, P, Native>,
        table: &Table<u64>,
        kind: Kind,
        keys: &[u64],
    ) -> Result<u64, Abort> {
        let mut sum = 0u64;
        match kind {
            Kind::Reads => {
                for key in keys {
                    let row = tx.read_row(table, *key, Projection::WHOLE)?;
                    sum = sum.wrapping_add(row.expect("every key is loaded")[0]);
                }
            }
            Kind::BatchedReads => tx.read_rows(table, keys, Projection::WHOLE, |_, row| {
                sum = sum.wrapping_add(row.expect("every key is loaded")[0]);
            })?,
            Kind::Writes => {
                for key in keys {
                    tx.write_row(table, *key, Groups::ALL)?.expect("every key is loaded")[0] = *key;
                }
            }
        }
        Ok(sum)
    }

    #[inline(never)]
    fn transaction(&mut self, kind: Kind, keys: &[u64]) {
        let table = &self.table;
        while self.worker.run(|tx| Self::operate(tx, table, kind, keys)).map(black_box).is_err() {}
    }

    #[inline(never)]
    fn declared_transaction(&mut self, kind: Kind, keys: &[u64]) {
        let (table, worker) = (&self.table, &mut self.worker);
        let mut run = || {
            worker.run_declared(
                |declaration| declaration.kind(0),
                |tx| tx.piece(ONLY, |tx| Self::operate(tx, table, kind, keys)),
            )
        };
        while run().map(black_box).is_err() {}
    }

    /// Returns the instructions of a transaction of this number of operations.
    fn of(&mut self, kind: Kind, operations: usize) -> nix::Result<u64> {
        let mut least = u64::MAX;
        for set in 0..KEY_SETS {
            let keys: Vec<u64> = (1..=operations as u64).map(|key| spread(key * (997 + 101 * set))).collect();
            let mut transaction = || match self.is_declared {
                true => self.declared_transaction(kind, &keys),
                false => self.transaction(kind, &keys),
            };
            (0..BEFORE).for_each(|_| transaction());
            least = least.min(count(&mut transaction)?);
        }
        Ok(least)
    }
}

/// The counts of one protocol over one index, each with its name.
fn counts<P: NamedProtocol<Native>>(
    index: IndexKind,
    is_declared: bool,
    around: u64,
) -> nix::Result<[(&'static str, f64); 4]> {
    let mut bench = Bench::<P>::new(index, is_declared);
    let mut both = |kind| Ok([bench.of(kind, OPERATIONS)?, bench.of(kind, 2 * OPERATIONS)?]);
    let [[reads, more_reads], [batched, more_batched], [writes, more_writes]] =
        [both(Kind::Reads)?, both(Kind::BatchedReads)?, both(Kind::Writes)?];
    let more = |fewer: u64, more: u64| more.saturating_sub(fewer) as f64 / OPERATIONS as f64;
    let read = more(reads, more_reads);
    let commit = (reads - around) as f64 - OPERATIONS as f64 * read;
    Ok([
        ("read", read),
        ("batched read", more(batched, more_batched)),
        ("write", more(writes, more_writes)),
        ("commit", commit),
    ])
}

type Counts = BTreeMap<String, f64>;
/// [`counts`] of a protocol.
type CountOf = fn(IndexKind, bool, u64) -> nix::Result<[(&'static str, f64); 4]>;

fn all_counts(is_wanted: impl Fn(&str) -> bool) -> nix::Result<Counts> {
    let around = count(&mut || ())?;
    let mut all = Counts::new();
    for (index, name) in [(IndexKind::Hash, "hash"), (IndexKind::Ordered, "ordered")] {
        let of: [(&str, CountOf, bool); 11] = [
            ("none", counts::<NoControl>, false),
            ("silo", counts::<Silo>, false),
            ("2pl-nowait", counts::<NoWait>, false),
            ("mvto", counts::<Mvto<Native>>, false),
            ("cicada", counts::<Cicada<Native>>, false),
            ("msto", counts::<Msto<Native>>, false),
            ("si", counts::<SnapshotIsolation<Native>>, false),
            ("ermia", counts::<Ermia<Native>>, false),
            ("hekaton", counts::<Hekaton<Native>>, false),
            ("ic3", counts::<Ic3<Native>>, false),
            ("ic3 declared", counts::<Ic3<Native>>, true),
        ];
        for (protocol, counts, is_declared) in of.into_iter().filter(|(protocol, ..)| is_wanted(protocol)) {
            let counts = counts(index, is_declared, around)?;
            all.extend(counts.map(|(what, count)| (format!("{protocol},{name},{what}"), count)));
        }
    }
    Ok(all)
}

/// Returns whether the count of this name is compared.
fn is_compared(what: &str) -> bool {
    let protocol = what.split(',').next().unwrap_or_default();
    COMPARED.contains(&protocol) || READS_COMPARED.contains(&protocol) && what.ends_with("read")
}

/// Returns the compiler and the kind of processor.
fn compiled_for() -> String {
    let version = std::process::Command::new("rustc").arg("-V").output();
    let version =
        version.map_or_else(|_| "unknown".into(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
    format!("# {}; {}", version.trim(), std::env::consts::ARCH)
}

fn to_text(counts: &Counts) -> String {
    let mut text = format!("{}\nprotocol,index,of,instructions\n", compiled_for());
    for (what, count) in counts {
        let _ = writeln!(text, "{what},{count:.1}");
    }
    text
}

/// Returns what has grown, in sentences.
fn grown(counts: &Counts, file: &str, growth: f64) -> Vec<String> {
    let mut findings = Vec::new();
    for line in file.lines().skip(2) {
        let earlier = line.rsplit_once(',').and_then(|(what, count)| Some((what, count.parse::<f64>().ok()?)));
        let Some((what, earlier)) = earlier else {
            findings.push(format!("not a count: {line}"));
            continue;
        };
        match counts.get(what) {
            None => findings.push(format!("nothing was counted for {what}")),
            Some(now) if *now > earlier * growth + 0.5 => findings.push(format!("{what}: {earlier} -> {now:.1}")),
            Some(_) => {}
        }
    }
    let known = file.lines().count().saturating_sub(2);
    if known != counts.len() {
        findings.push(format!("the file has {known} counts, and {} were counted", counts.len()));
    }
    findings
}

/// Keeps this process, and so its children, on the core where it is.
fn stay_on_one_core() -> nix::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(sched_getcpu()?)?;
    sched_setaffinity(Pid::from_raw(0), &cores)
}

/// Starts this program again with addresses that are the same in each run: a set of addresses needs
/// steps more or less from one run to the next otherwise. Does nothing where that can't be had.
fn fix_addresses() -> nix::Result<()> {
    let now = personality::get()?;
    if !now.contains(Persona::ADDR_NO_RANDOMIZE) {
        personality::set(now | Persona::ADDR_NO_RANDOMIZE)?;
        if personality::get()?.contains(Persona::ADDR_NO_RANDOMIZE) {
            let own = std::env::current_exe().map_err(|_| nix::errno::Errno::ENOENT)?;
            let failed = std::process::Command::new(own).args(std::env::args_os().skip(1)).exec();
            eprintln!("note: addresses differ from run to run: {failed}");
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    if let Err(error) = fix_addresses() {
        eprintln!("note: addresses differ from run to run: {error}");
    }
    if let Err(error) = stay_on_one_core() {
        eprintln!("note: the count takes longer, on several cores: {error}");
    }
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let compares = arguments.iter().any(|argument| ["--check", "--write"].contains(&argument.as_str()));
    let compared = |protocol: &str| COMPARED.contains(&protocol) || READS_COMPARED.contains(&protocol);
    let counts = match all_counts(|protocol| !compares || compared(protocol)) {
        Ok(mut counts) => {
            counts.retain(|what, _| !compares || is_compared(what));
            counts
        }
        Err(error) => {
            eprintln!("nothing counted: a process can't be stepped here (ptrace): {error}");
            return ExitCode::from(77);
        }
    };
    let text = to_text(&counts);
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--write", path] => match std::fs::write(path, &text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {path}: {error}");
                ExitCode::from(2)
            }
        },
        ["--check", path] => match std::fs::read_to_string(path) {
            Ok(file) => {
                print!("{text}");
                let (header, own) = (file.lines().next().unwrap_or_default(), compiled_for());
                if header.starts_with('#') && !header.ends_with(std::env::consts::ARCH) {
                    eprintln!("nothing compared: {path} is of another kind of processor ({header})");
                    return ExitCode::from(77);
                }
                if header != own {
                    eprintln!("note: {path} is of another compiler ({header}) than this one ({own})");
                }
                let findings = grown(&counts, &file, if header == own { GROWTH } else { GROWTH_BY_COMPILER });
                findings.iter().for_each(|finding| eprintln!("more instructions than in {path}: {finding}"));
                if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
            }
            Err(error) => {
                eprintln!("error: {path}: {error}");
                ExitCode::from(2)
            }
        },
        _ => {
            print!("{text}");
            ExitCode::SUCCESS
        }
    }
}
