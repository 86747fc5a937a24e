//! The machine and the build that a run used.

use contend_machine::{HugePages, Machine, Native, available_cores};

use crate::result::Environment;
use contend_runner::RunPlan;
use contend_runner::memory;
use contend_runner::session::Dispatch;

/// Returns the environment. Huge pages are counted at this moment, so call it while the tables are
/// loaded.
pub(crate) fn here(plan: &RunPlan) -> Environment {
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_string())
    };
    let huge_pages = HugePages::of_this_process();
    Environment {
        version: env!("CARGO_PKG_VERSION").into(),
        commit: option_env!("CONTEND_COMMIT").map(Into::into),
        machine: plan.config.machine.clone(),
        dispatch: Dispatch::of(plan).name().into(),
        architecture: std::env::consts::ARCH.into(),
        cpu_model: field("model name").or_else(|| field("CPU part")).unwrap_or_else(|| "unknown".into()),
        cores: available_cores().len(),
        memory_bytes: memory::total_bytes().unwrap_or(0),
        kernel: read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()),
        clock_hz: plan.chip.as_ref().map_or_else(Native::cycles_per_second, |chip| chip.preset.core.hertz),
        huge_pages_advised_bytes: huge_pages.advised_bytes,
        huge_pages_granted_bytes: huge_pages.granted_bytes,
    }
}
