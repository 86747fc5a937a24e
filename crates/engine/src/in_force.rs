//! A value that all workers use and that seldom changes, such as the declared types.
//!
//! Each worker keeps a copy, and compares one number before it uses it. So a value that does not
//! change costs a worker no store and no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

/// The value that is in force now, if there is any.
#[derive(Debug)]
pub struct InForce<T> {
    /// Held during a change.
    changing: Mutex<()>,
    now: RwLock<Option<Arc<T>>>,
    /// The number of changes so far.
    changes: AtomicU64,
}

/// A worker's copy of a value.
#[derive(Debug)]
pub struct Known<T> {
    /// The value, if there was any when the copy was made.
    pub value: Option<Arc<T>>,
    seen: u64,
}

impl<T> Default for InForce<T> {
    fn default() -> Self {
        InForce { changing: Mutex::new(()), now: RwLock::new(None), changes: AtomicU64::new(0) }
    }
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Known { value: None, seen: 0 }
    }
}

impl<T> InForce<T> {
    /// Puts a value in force.
    pub fn replace(&self, value: Arc<T>) {
        let replaced: Result<(), std::convert::Infallible> = self.replace_by(|| Ok(value));
        replaced.unwrap_or_else(|never| match never {});
    }

    /// Puts the value in force that `make` returns, or leaves all as it is if `make` fails.
    /// [`InForce::refresh`] waits while `make` runs, and so do other changes. So a worker may see
    /// what `make` does together with its old copy, but not believe that the copy [is
    /// current](InForce::is_current).
    ///
    /// # Errors
    /// The error of `make`.
    pub fn replace_by<E>(&self, make: impl FnOnce() -> Result<Arc<T>, E>) -> Result<(), E> {
        let _changing = self.changing.lock();
        // Release: pairs with the Acquire in `is_current`. The value itself is behind the locks. It
        // comes before `make`, so a worker that has seen anything of that sees the number as well.
        self.changes.fetch_add(1, Ordering::Release);
        let value = make()?;
        *self.now.write() = Some(value);
        Ok(())
    }

    /// Returns the value in force, without waiting for a change that is under way.
    pub fn get(&self) -> Option<Arc<T>> {
        self.now.read().clone()
    }

    /// Whether no change has begun since this copy was made.
    #[inline(always)]
    pub fn is_current(&self, known: &Known<T>) -> bool {
        // Acquire: pairs with the Release in `replace_by`.
        self.changes.load(Ordering::Acquire) == known.seen
    }

    /// Brings a copy up to date.
    #[inline(always)]
    pub fn refresh(&self, known: &mut Known<T>) {
        if !self.is_current(known) {
            self.copy(known);
        }
    }

    #[cold]
    fn copy(&self, known: &mut Known<T>) {
        let _unchanging = self.changing.lock();
        // Relaxed: the number changes under the lock only.
        known.seen = self.changes.load(Ordering::Relaxed);
        known.value = self.get();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_current_until_a_change_begins() {
        let (all, mut known) = (InForce::default(), Known::default());
        assert!(all.is_current(&known) && known.value.is_none() && all.get().is_none());
        all.replace(Arc::new(1));
        assert!(!all.is_current(&known));
        all.refresh(&mut known);
        assert_eq!((all.is_current(&known), known.value.as_deref()), (true, Some(&1)));
        let failed = all.replace_by(|| {
            assert!(!all.is_current(&known), "the change has begun");
            Err("no")
        });
        assert_eq!(failed, Err("no"));
        all.refresh(&mut known);
        assert_eq!((all.is_current(&known), known.value.as_deref(), all.get().as_deref()), (true, Some(&1), Some(&1)));
    }
}
