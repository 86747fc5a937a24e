//! A workload leaves the same rows whether its pieces are declared or not.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use contend_engine::{
    AbortReason, Engine, EngineConfig, EngineOptions, Erased, IndexKind, Key, KeyWords, NamedProtocol, Options, Table,
    TableSpec, Tables,
};
use contend_machine::Native;
use contend_protocols::pieces::ic3::Ic3;
use contend_workloads::{Workload, WorkloadInfo, WorkloadVisitor, declared_types, with_workload};

type Database = Engine<Erased<Native>, Native>;
/// The rows of a table, by their keys.
type Rows = BTreeMap<KeyWords, Vec<u64>>;
type Dump = Box<dyn Fn(&Database) -> Rows>;

/// A store that remembers how to read the tables that were created in it.
struct Remembering<'a> {
    engine: &'a Arc<Database>,
    dumps: RefCell<Vec<(String, Dump)>>,
}

impl Tables for Remembering<'_> {
    fn create_table<K: Key>(&self, spec: &TableSpec) -> Table<K> {
        let table: Table<K> = self.engine.create_table(spec);
        let dump = move |engine: &Database| {
            let mut rows = Rows::new();
            let is_ordered = engine.peek_all(&table, |key: K, row| {
                rows.insert(key.to_words(), row.to_vec());
            });
            assert!(is_ordered, "all tables have an ordered index");
            rows
        };
        self.dumps.borrow_mut().push((spec.name.clone(), Box::new(dump)));
        table
    }
}

/// Runs a workload on one thread under IC3, and returns its rows by tables, and the number of
/// transactions that canceled.
fn rows_of<W: Workload>(preset: &[(&str, &str)], is_declared: bool) -> (Vec<(String, Rows)>, u64) {
    let mut options = W::Options::default();
    preset.iter().for_each(|(name, value)| options.set(name, value).unwrap_or_else(|error| panic!("{error}")));
    let options = W::for_verification(&options);
    let split = EngineOptions { timestamp_splitting: true, commit_time_updates: true, ..EngineOptions::default() };
    let protocol = Erased::new(<Ic3<Native> as NamedProtocol<Native>>::new(Default::default()));
    // No epoch passes, so that readers of snapshots see the same in each run: what was loaded.
    let engine = Engine::new(protocol, EngineConfig { options: split, epoch_ms: u64::MAX, ..EngineConfig::default() });
    let store = Remembering { engine: &engine, dumps: RefCell::default() };
    let workload = W::create(&options, IndexKind::Ordered, &store);
    let mut loader = engine.loader().expect("a free slot");
    workload.load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(())).expect("memory");
    drop(loader);
    if is_declared {
        let types = declared_types(&workload, engine.declared_tables()).expect("valid declarations");
        engine.declare(types.expect("the workload declares its types")).expect("valid declarations");
    }
    let mut worker = engine.worker().expect("a free slot");
    let (mut client, mut input, mut cancels) = (workload.client(0, 1, 3), W::Input::default(), 0);
    for _ in 0..1500 {
        workload.next(&mut (), &mut client, &mut input);
        let kind = workload.kind(&input);
        let outcome = worker.run_declared(
            |declaration| {
                declaration.kind(kind);
                workload.declare(&input, declaration);
            },
            |tx| workload.execute(tx, &mut client, &input),
        );
        match outcome {
            Ok(()) => workload.committed(&mut client, &input),
            Err(abort) => {
                assert_eq!(abort.reason, AbortReason::User, "{:?}", worker.take_undeclared());
                cancels += 1;
            }
        }
    }
    workload.check(&engine, &[&client]).unwrap_or_else(|violation| panic!("{violation}"));
    let dumps = store.dumps.into_inner();
    (dumps.into_iter().map(|(name, dump)| (name, dump(&engine))).collect(), cancels)
}

struct Agrees;

impl WorkloadVisitor for Agrees {
    type Output = ();

    fn visit<W: Workload>(self, info: WorkloadInfo, _: W::Options) {
        let (declared, declared_cancels) = rows_of::<W>(info.preset, true);
        let (undeclared, cancels) = rows_of::<W>(info.preset, false);
        assert_eq!(declared_cancels, cancels, "{}", info.name);
        for ((name, declared), (_, undeclared)) in declared.iter().zip(&undeclared) {
            assert!(!declared.is_empty() || undeclared.is_empty());
            let differs = declared.iter().find(|(key, row)| undeclared.get(*key) != Some(*row));
            assert_eq!(differs, None, "{}: a row of {name} differs", info.name);
            assert_eq!(declared.len(), undeclared.len(), "{}: {name}", info.name);
        }
    }
}

#[test]
fn declared_and_undeclared_pieces_leave_the_same_rows() {
    for workload in ["tpcc", "smallbank", "tatp", "rubis", "wikipedia", "tpce", "ycsb-a", "ycsb-f", "bank", "pieces"] {
        with_workload(workload, Agrees).expect("a registered name");
    }
}
