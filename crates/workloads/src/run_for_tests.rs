//! Small runs for the unit tests of the workloads.

use std::ops::ControlFlow;
use std::sync::Arc;

use contend_engine::{AbortReason, Engine, EngineConfig, EngineOptions, Erased, IndexKind, NamedProtocol, Transaction};
use contend_machine::Native;
use contend_model::pieces::{self, CheckedTypes, PieceChecker};

use crate::workload::{Checked, Violation, Workload, declared_types};

/// An engine with a loaded workload. Its protocol is behind a pointer, so that workloads are
/// compiled once.
pub(crate) type World<W> = (Arc<Engine<Erased<Native>, Native>>, W);

/// A transaction of such an engine.
pub(crate) type Tx<'t> = Transaction<'t, Erased<Native>, Native>;

/// Creates an engine with commit-time updates and timestamp splitting, and loads the workload.
pub(crate) fn world<P: NamedProtocol<Native>, W: Workload>(options: &W::Options) -> World<W> {
    let engine_options =
        EngineOptions { commit_time_updates: true, timestamp_splitting: true, ..EngineOptions::default() };
    world_with::<P, W>(options, engine_options, 1)
}

/// Creates an engine and loads the workload in `parts` parts, one after the other.
pub(crate) fn world_with<P: NamedProtocol<Native>, W: Workload>(
    options: &W::Options,
    engine_options: EngineOptions,
    parts: usize,
) -> World<W> {
    let config = EngineConfig { options: engine_options, ..EngineConfig::default() };
    let engine = Engine::new(Erased::new(P::new(P::Options::default())), config);
    let workload = W::create(options, IndexKind::Hash, &engine);
    let mut units = 0;
    for part in 0..parts {
        let mut loader = engine.loader().expect("a slot");
        let mut done = |more| {
            units += more;
            ControlFlow::Continue(())
        };
        workload.load(&mut loader, part, parts, &mut done).expect("memory");
    }
    assert_eq!(units, workload.load_units());
    (engine, workload)
}

/// Runs `commits` transactions on each of `threads` threads and returns the clients. Each
/// transaction is checked against the declaration of its type.
pub(crate) fn clients<W: Workload>((engine, workload): &World<W>, threads: usize, commits: u64) -> Vec<W::Client> {
    let types = declared_types(workload, engine.declared_tables()).expect("valid declarations");
    let types = types.map(CheckedTypes::new);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| {
                let types = types.clone();
                scope.spawn(move || {
                    let mut checker = PieceChecker::default();
                    checker.declare(types);
                    let mut worker = engine.worker().expect("a slot");
                    let mut client = workload.client(number, threads, 7);
                    let mut input = W::Input::default();
                    for round in 0..commits {
                        workload.next(&mut (), &mut client, &mut input);
                        loop {
                            // The yield makes transactions overlap also where threads share a core.
                            let outcome = worker.run(|tx| {
                                let mut tx = pieces::Checked::new(tx, &mut checker, workload.kind(&input));
                                workload.execute(&mut tx, &mut client, &input)?;
                                if round % 16 == 0 {
                                    std::thread::yield_now();
                                }
                                Ok(())
                            });
                            assert_eq!(checker.take_violation(), None);
                            match outcome {
                                Ok(()) => {
                                    workload.committed(&mut client, &input);
                                    break;
                                }
                                Err(abort) if abort.reason == AbortReason::User => break,
                                Err(abort) => assert!(abort.reason.is_conflict(), "{abort}"),
                            }
                            std::thread::yield_now();
                        }
                    }
                    worker.go_offline();
                    client
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Runs one transaction of each of two clients, both before either commits.
pub(crate) fn run_two_at_once<W: Workload>(
    (engine, workload): &World<W>,
    clients: &mut [W::Client; 2],
    inputs: &[W::Input; 2],
) {
    let mut workers = [engine.worker().expect("a slot"), engine.worker().expect("a slot")];
    let [first, second] = &mut workers;
    let mut running = [first.begin(), second.begin()];
    let are_whole =
        [0, 1].map(|number| workload.execute(&mut running[number], &mut clients[number], &inputs[number]).is_ok());
    for ((tx, is_whole), (client, input)) in running.into_iter().zip(are_whole).zip(clients.iter_mut().zip(inputs)) {
        if is_whole && tx.commit().is_ok() {
            workload.committed(client, input);
        }
    }
}

/// Runs the workload's own check.
pub(crate) fn check<W: Workload>((engine, workload): &World<W>, clients: &[W::Client]) -> Result<Checked, Violation> {
    workload.check(engine, &clients.iter().collect::<Vec<_>>())
}

/// Loads the workload, runs it, and checks the tables.
pub(crate) fn run<P: NamedProtocol<Native>, W: Workload>(
    options: &W::Options,
    threads: usize,
    commits: u64,
) -> Result<Checked, Violation> {
    let world = world::<P, W>(options);
    let clients = clients(&world, threads, commits);
    check(&world, &clients)
}
