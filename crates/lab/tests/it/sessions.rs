//! Tests of the runner that compile all protocols. They stand here so that the runner's own tests
//! are built fast.

use std::sync::Arc;

use contend_dispatch::session;
use contend_engine::Protocol;
use contend_log::{Directory, Log, LogConfig};
use contend_runner::plan::PlannedWorkloadVisitor;
use contend_runner::session::RunPurpose;
use contend_runner::{RunConfig, Stop};
use contend_sim::Simulated;
use contend_workloads::{Workload, WorkloadInfo, all_workloads};

/// The rows that a run begins with are durable before it begins.
#[test]
fn rows_that_are_loaded_are_durable() {
    for mode in ["epoch", "clr", "clr-group", "elr", "elr-group"] {
        let folder = tempfile::tempdir().expect("a folder");
        // No wait in this test lasts as long as this epoch.
        let settings = [("log.mode", mode), ("log.epoch_ms", "10000"), ("ycsb.records", "1000")];
        let run = RunConfig {
            protocols: vec!["silo".into()],
            settings: settings.map(|(name, value)| (name.into(), value.into())).into(),
            dir: Some(folder.path().join("log")),
            threads: 2,
            ..RunConfig::default()
        };
        let plan = run.resolve().expect("valid input");
        let session = session(&plan, &plan.protocols[0], RunPurpose::Measure);
        let mut session = session.expect("a folder that is empty");
        session.load(&Stop::default(), &|_| ()).expect("there is room");
        // The copy has the files as a crash would leave them: they are still open.
        let left = folder.path().join("left");
        std::fs::create_dir(&left).expect("a new folder");
        for file in std::fs::read_dir(folder.path().join("log")).expect("a folder") {
            let file = file.expect("a file");
            std::fs::copy(file.path(), left.join(file.file_name())).expect("there is room");
        }
        let disk = Directory::open(&left).expect("nobody else has it");
        let (_, recovered) = Log::open(Arc::new(disk), LogConfig::default()).expect("it is whole");
        let rows: usize = recovered.tables.iter().map(|table| table.rows().count()).sum();
        assert_eq!(rows, 1000, "log={mode}");
    }
}

#[test]
fn plans_are_visited_on_every_machine() {
    struct Name;
    impl PlannedWorkloadVisitor for Name {
        type Output = &'static str;
        fn visit<W: Workload>(self, info: WorkloadInfo, _: &W::Options) -> &'static str {
            info.name
        }
    }
    for (info, _) in all_workloads() {
        let plan = RunConfig { workload: info.name.into(), ..RunConfig::default() }.resolve().expect("valid");
        assert_eq!(plan.workload.visit(Name), info.name);
        for protocol in &plan.protocols {
            assert_eq!(protocol.erased_on_host().info().name, protocol.info.name);
            assert_eq!(protocol.erased::<Simulated>().info().name, protocol.info.name);
        }
    }
}
