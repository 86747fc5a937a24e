//! One measuring run at a time, and none in a process that was forked from one.

use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

/// The run that is under way.
static RUN: Mutex<()> = Mutex::new(());
/// The process that has loaded the module.
static PROCESS: OnceLock<u32> = OnceLock::new();

/// The right to run, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

/// Notes that this process has loaded the module.
pub(crate) fn remember_this_process() {
    PROCESS.get_or_init(std::process::id);
}

impl Turn {
    /// Takes the turn.
    ///
    /// # Errors
    /// A run is under way, or this process was forked. The message says which.
    pub(crate) fn take() -> Result<Turn, &'static str> {
        if *PROCESS.get_or_init(std::process::id) != std::process::id() {
            return Err("this process was forked after contend had been imported, and the threads of a run do not \
                        live on in it; valid: the start method \"spawn\" of multiprocessing, or another program");
        }
        match RUN.try_lock() {
            Ok(guard) => Ok(Turn(guard)),
            // What it guards is no data, so a panic can't have left it half changed.
            Err(TryLockError::Poisoned(poisoned)) => Ok(Turn(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => Err("a run is under way in this process, and two at once would measure \
                                                  each other; valid: after its end"),
        }
    }
}
