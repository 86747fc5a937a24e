//! The machine and the build that a run used.

use std::collections::BTreeMap;

use contend_machine::{HugePages, Machine, Native, available_cores};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::experiment::{Point, PointWork};
use crate::result::Environment;
use contend_dispatch::Dispatch;
use contend_runner::RunPlan;
use contend_runner::machine::ChipConfig;
use contend_runner::memory;

/// Returns the environment. Huge pages are counted at this moment, so call it while the tables are
/// loaded.
pub(crate) fn here(plan: &RunPlan) -> Environment {
    of_build(&plan.config.machine, plan.chip.as_ref(), Dispatch::of(plan).name())
}

/// Returns the environment of transactions on this machine, which call their protocol like this.
fn of_build(machine: &str, chip: Option<&ChipConfig>, dispatch: &str) -> Environment {
    let huge_pages = HugePages::of_this_process();
    Environment {
        version: env!("CARGO_PKG_VERSION").into(),
        commit: option_env!("CONTEND_COMMIT").map(Into::into),
        machine: machine.into(),
        dispatch: dispatch.into(),
        architecture: std::env::consts::ARCH.into(),
        cpu_model: processor(),
        cores: available_cores().len(),
        memory_bytes: memory::total_bytes().unwrap_or(0),
        kernel: kernel(),
        clock_hz: chip.map_or_else(Native::cycles_per_second, |chip| chip.preset.core.hertz),
        huge_pages_advised_bytes: huge_pages.advised_bytes,
        huge_pages_granted_bytes: huge_pages.granted_bytes,
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

const UNKNOWN: &str = "unknown";

/// Returns the name that the processor reports.
pub(crate) fn processor() -> String {
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_string())
    };
    field("model name").or_else(|| field("CPU part")).unwrap_or_else(|| UNKNOWN.into())
}

/// Returns the kernel's release.
pub(crate) fn kernel() -> String {
    read("/proc/sys/kernel/osrelease").unwrap_or_else(|| UNKNOWN.into())
}

/// Where a point comes from: the build, the machine, and the command that measured it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// The machine and the build.
    pub environment: Environment,
    /// Whether the build's sources were those of the commit. `None` if the build did not look: only
    /// builds for measuring do.
    pub is_tree_clean: Option<bool>,
    /// The compiler.
    pub rustc: String,
    /// The host's name, unless it was to be left out.
    pub host: Option<String>,
    /// The command with its arguments, unless it was to be left out.
    pub command: Option<Vec<String>>,
    /// Every option of the workload and of the protocol, with its value.
    pub options: BTreeMap<String, String>,
    /// The start of the measurement, in seconds since 1970.
    pub started_unix_seconds: u64,
    /// The length of the measurement on the host, in seconds.
    pub elapsed_seconds: f64,
    /// The number of the attempt, from 1: earlier ones failed.
    pub attempt: u32,
}

/// What files say about the command that wrote them.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The command with its arguments.
    pub command: Vec<String>,
    /// Whether the host's name is left out, and the command, whose paths may name a person.
    pub is_anonymous: bool,
}

/// Returns where a point comes from that is measured now. Its times are not known yet.
pub(crate) fn provenance(point: &Point, origin: &Origin) -> Provenance {
    let (environment, options) = match &point.work {
        PointWork::Workload(plan) => {
            let of_protocols = plan.protocols.iter().flat_map(|protocol| protocol.values.clone());
            (here(plan), plan.workload.values.clone().into_iter().chain(of_protocols).collect())
        }
        PointWork::Microbench(plan) => {
            let environment = of_build(&plan.config().machine, plan.chip(), "");
            (environment, plan.config().settings.clone())
        }
    };
    let named = !origin.is_anonymous;
    Provenance {
        environment,
        is_tree_clean: option_env!("CONTEND_TREE_CLEAN").map(|clean| clean == "true"),
        rustc: env!("CONTEND_RUSTC").into(),
        host: named.then(|| read("/proc/sys/kernel/hostname")).flatten(),
        command: named.then(|| origin.command.clone()),
        options,
        started_unix_seconds: 0,
        elapsed_seconds: 0.0,
        attempt: 1,
    }
}
