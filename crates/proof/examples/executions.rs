//! The number of executions per second that the explorer makes on one core, for each litmus test
//! under some protocols. Histories are checked.
//!
//! `cargo run --release -p contend-proof --example executions -- [EXECUTIONS [PROTOCOL ...]]`

use contend_proof::explore::{ExploreConfig, explore};
use contend_runner::{RunConfig, Stop};
use contend_workloads::litmus;

#[global_allocator]
static ALLOCATOR: contend_proof::Rewindable<std::alloc::System> = contend_proof::Rewindable(std::alloc::System);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let executions = arguments.next().map_or(20_000, |count| count.parse().expect("a number of executions"));
    let mut protocols: Vec<String> = arguments.collect();
    if protocols.is_empty() {
        protocols = ["silo", "2pl-nowait", "msto"].map(String::from).into();
    }
    println!("| test | protocol | steps | executions/s |\n| --- | --- | --- | --- |");
    for info in litmus::INFOS {
        let run = RunConfig { workload: info.name.into(), protocols: protocols.clone(), ..RunConfig::default() };
        let config = ExploreConfig { executions, ..ExploreConfig::default() };
        for explored in explore(&run.resolve().expect("valid"), &config, &Stop::default()).expect("names of protocols")
        {
            let steps = explored.steps as f64 / explored.executions as f64;
            let rate = explored.executions as f64 / explored.seconds;
            println!("| `{}` | `{}` | {steps:.0} | {rate:.0} |", explored.workload, explored.protocol);
        }
    }
}
