//! Binding worker threads to cores.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Why a thread could not be pinned.
#[derive(Debug)]
pub struct PinError(rustix::io::Errno);

impl std::fmt::Display for PinError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "this thread could not be pinned to its core: {}", self.0)
    }
}

impl std::error::Error for PinError {}

/// The cores that this process may use, by their number. Never empty.
pub fn available_cores() -> Vec<usize> {
    let cores = match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect(),
        Err(_) => Vec::new(),
    };
    if cores.is_empty() { vec![0] } else { cores }
}

/// Pins the calling thread to `core`, a number out of [`available_cores`].
///
/// # Errors
/// The kernel refused.
pub fn pin_to_core(core: usize) -> Result<(), PinError> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(PinError)
}
