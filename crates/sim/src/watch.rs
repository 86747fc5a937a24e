//! Who watches this host thread's accesses.

use std::cell::Cell;

use crate::chip::Chip;
use crate::explorer::Explorer;

/// What is done to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// An atomic read-modify-write.
    Update,
}

/// Who watches.
#[derive(Clone, Copy)]
pub(crate) enum Watcher {
    Nobody,
    Chip(*mut Chip),
    Explorer(*mut Explorer),
}

thread_local! {
    static WATCHER: Cell<Watcher> = const { Cell::new(Watcher::Nobody) };
}

#[inline(always)]
pub(crate) fn watcher() -> Watcher {
    WATCHER.with(Cell::get)
}

/// Has the accesses of `body` watched.
pub(crate) fn watched<R>(watcher: Watcher, body: impl FnOnce() -> R) -> R {
    /// Ends the watch also when `body` panics.
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            WATCHER.with(|current| current.set(Watcher::Nobody));
        }
    }
    WATCHER.with(|current| current.set(watcher));
    let _reset = Reset;
    body()
}
