//! The hook by which a chip or an explorer gets this host thread's accesses, and the runs during
//! which it is set.

use std::cell::Cell;

use crate::access::{Handle, set_free};
use crate::chip::Chip;
use crate::explorer::{Execution, Explorer, Strategy};

/// Which backend gets this thread's accesses.
#[derive(Clone, Copy)]
pub(crate) enum AccessHook {
    /// Accesses cost nothing, and switch to no other core.
    None,
    Chip(Handle<Chip>),
    Explorer(Handle<Explorer>),
}

thread_local! {
    static HOOK: Cell<AccessHook> = const { Cell::new(AccessHook::None) };
}

/// Returns the hook that is set.
#[inline(always)]
pub(crate) fn hook() -> AccessHook {
    HOOK.with(Cell::get)
}

/// Runs `body` with the hook set.
fn hooked<R>(hook: AccessHook, body: impl FnOnce() -> R) -> R {
    /// Takes the hook away also when `body` panics.
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            HOOK.with(|current| current.set(AccessHook::None));
            set_free(0);
        }
    }
    HOOK.with(|current| current.set(hook));
    let _reset = Reset;
    body()
}

impl Chip {
    /// Runs until all cores' clocks are past `time`, in cycles. Returns whether a body is left that
    /// has not ended.
    pub fn run_until(&mut self, time: u64) -> bool {
        // SAFETY: the chip is used by handles only until the hook is taken away, with this call; it
        // stays in its place as long.
        let chip = unsafe { Handle::new(&raw mut *self) };
        hooked(AccessHook::Chip(chip), || Chip::run_hooked(chip, time));
        self.has_bodies()
    }
}

impl Explorer {
    /// Runs the bodies to their ends, or until they have made too many steps.
    ///
    /// # Panics
    /// There are more bodies than cores; or a body panics.
    pub fn execute(
        &mut self,
        bodies: Vec<Box<dyn FnOnce()>>,
        strategy: &mut (dyn Strategy + 'static),
        traced: bool,
    ) -> Execution {
        self.execute_beside(bodies, None, strategy, traced)
    }

    /// As [`Explorer::execute`], with one more body in the background, on the core after the
    /// others. It works bit by bit, and waits ([`contend_machine::Machine::pause`]) after each bit;
    /// a strategy lets it go on at some steps of the others. It must find out that the others have
    /// ended, and end then.
    ///
    /// # Panics
    /// As [`Explorer::execute`].
    pub fn execute_beside(
        &mut self,
        bodies: Vec<Box<dyn FnOnce()>>,
        background: Option<Box<dyn FnOnce()>>,
        strategy: &mut (dyn Strategy + 'static),
        traced: bool,
    ) -> Execution {
        self.begin(bodies, background, strategy, traced);
        // SAFETY: the explorer is used by handles only until the hook is taken away, below; it
        // stays in its place as long.
        let explorer = unsafe { Handle::new(&raw mut *self) };
        hooked(AccessHook::Explorer(explorer), || Explorer::run_hooked(explorer));
        self.finish(strategy)
    }
}
