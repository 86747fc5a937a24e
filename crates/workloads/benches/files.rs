//! Workload files beside the built-in workloads that they describe.
//!
//! `cargo bench -p contend-workloads --bench files` runs them in turns on one thread under Silo.
//! For each it prints the median time of a transaction, and the median ratio of its throughput to
//! that of the built-in workload, with the least and the largest ratio. `-- smallbank file` runs
//! one.
//!
//! Both also run through a pointer to the protocol. The laboratory calls files so, and all built-in
//! workloads but YCSB. docs/speed.md has figures.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use contend_engine::{Engine, EngineConfig, Erased, IndexKind, NamedProtocol, Options, Protocol, Worker};
use contend_machine::Native;
use contend_protocols::optimistic::silo::Silo;
use contend_workloads::Workload;
use contend_workloads::bank::Bank;
use contend_workloads::file::{FileWorkload, WorkloadFile};
use contend_workloads::smallbank::SmallBank;
use contend_workloads::tpcc::Tpcc;
use contend_workloads::ycsb::Ycsb;

/// The rounds of a pair.
const ROUNDS: usize = 15;
/// The time of one side in a round, in seconds.
const SECONDS: f64 = 0.2;

/// Runs a workload for some time and returns its transactions per second.
trait Side {
    fn run(&mut self, seconds: f64) -> f64;
}

struct Loaded<P: Protocol<Native>, W: Workload> {
    workload: W,
    worker: Worker<P, Native>,
    client: W::Client,
    input: W::Input,
}

impl<P: Protocol<Native>, W: Workload> Side for Loaded<P, W> {
    fn run(&mut self, seconds: f64) -> f64 {
        let Loaded { workload, worker, client, input } = self;
        let (begin, mut commits) = (Instant::now(), 0u64);
        while begin.elapsed().as_secs_f64() < seconds {
            for _ in 0..500 {
                workload.next(&mut (), client, input);
                if worker.run(|tx| workload.execute(tx, client, input)).is_ok() {
                    workload.committed(client, input);
                    commits += 1;
                }
            }
        }
        commits as f64 / begin.elapsed().as_secs_f64()
    }
}

fn loaded<P: Protocol<Native> + 'static, W: Workload + 'static>(protocol: P, options: &W::Options) -> Box<dyn Side> {
    let engine: Arc<Engine<P, Native>> = Engine::new(protocol, EngineConfig::default());
    let workload = W::create(options, IndexKind::Hash, &engine);
    let mut loader = engine.loader().expect("a slot");
    workload.load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(())).expect("memory");
    drop(loader);
    let worker = engine.worker().expect("a slot");
    Box::new(Loaded { client: workload.client(0, 1, 1), input: W::Input::default(), worker, workload })
}

fn built_in<W: Workload + 'static>(settings: &[(&str, &str)]) -> W::Options {
    let mut options = W::Options::default();
    settings.iter().for_each(|(name, value)| options.set(name, value).expect("a valid option"));
    options
}

fn of_file(name: &str, settings: &[(&str, &str)]) -> contend_workloads::file::FileOptions {
    let path = format!("{}/../../workloads/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("a file of the repository");
    let mut options = WorkloadFile::read(&path, &text).expect("a valid file").options().expect("valid parameters");
    settings.iter().for_each(|(name, value)| options.set(name, value).expect("a valid parameter"));
    options
}

/// A side of a comparison by its name, before it is loaded.
type Unloaded<'a> = (&'a str, &'a dyn Fn() -> Box<dyn Side>);

fn compare(name: &str, sides: Vec<Unloaded<'_>>) {
    let only: Vec<String> = std::env::args().skip(1).filter(|of| !of.starts_with("--")).collect();
    if only.first().is_some_and(|of| of != name) {
        return;
    }
    let sides = sides.into_iter().filter(|(side, _)| only.get(1).is_none_or(|of| of == side));
    let mut sides: Vec<(&str, Box<dyn Side>)> = sides.map(|(side, load)| (side, load())).collect();
    sides.iter_mut().for_each(|(_, side)| {
        side.run(SECONDS);
    });
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); sides.len()];
    for _ in 0..ROUNDS {
        for ((_, side), rounds) in sides.iter_mut().zip(&mut rounds) {
            rounds.push(side.run(SECONDS));
        }
    }
    let first = rounds[0].clone();
    for ((side, _), rounds) in sides.iter().zip(rounds) {
        let mut ratios: Vec<f64> = rounds.iter().zip(&first).map(|(of, first)| of / first).collect();
        ratios.sort_by(f64::total_cmp);
        let mut rates = rounds.clone();
        rates.sort_by(f64::total_cmp);
        println!(
            "{name:<10} {side:<18} {:>8.0} ns  {:.3} ({:.3} to {:.3})",
            1e9 / rates[ROUNDS / 2],
            ratios[ROUNDS / 2],
            ratios[0],
            ratios[ROUNDS - 1]
        );
    }
}

/// Compares a built-in workload with a file under the settings that both have, and those that only
/// the built-in one needs to do the same.
fn compare_with<W: Workload + 'static>(name: &str, file: &str, settings: &[(&str, &str)], more: &[(&str, &str)]) {
    let options = built_in::<W>(&[settings, more].concat());
    let file = of_file(file, settings);
    let silo = || <Silo as NamedProtocol<Native>>::new(Default::default());
    compare(
        name,
        vec![
            ("built in", &|| loaded::<Silo, W>(silo(), &options)),
            ("built in, pointer", &|| loaded::<_, W>(Erased::new(silo()), &options)),
            ("file", &|| loaded::<Silo, FileWorkload>(silo(), &file)),
            ("file, pointer", &|| loaded::<_, FileWorkload>(Erased::new(silo()), &file)),
        ],
    );
}

fn main() {
    let (skew, few_customers, few_records) =
        ([("ycsb.theta", "0.99")], [("smallbank.customers", "1000")], [("ycsb.records", "1000")]);
    // The file refuses what both accounts do not cover, which takes one more read of each payment.
    let refuses = [("smallbank.overdraft", "off")];
    compare_with::<Bank>("bank", "bank", &[], &[]);
    compare_with::<SmallBank>("smallbank", "smallbank", &[], &refuses);
    compare_with::<SmallBank>("smallbank-1k", "smallbank", &few_customers, &refuses);
    compare_with::<Ycsb>("ycsb-a", "ycsb-a", &[], &skew);
    compare_with::<Ycsb>("ycsb-a-1k", "ycsb-a", &few_records, &skew);
    compare_with::<Tpcc>("tpcc", "tpcc", &[], &[]);
}
