//! Deliberate faults, with which the proof is tested.
//!
//! A protocol is generic over `F`, the faults that it has. Each protocol declares the faults that
//! its algorithm can have, in a trait at the end of its file, by [`faults!`](crate::faults). Its
//! family's trait, if the family's code has faults too, is a supertrait. All faults are off in
//! [`Sound`] and cost nothing there: a fault is a function that returns `false`, and the branch on
//! it is decided when the protocol is compiled.
//!
//! [`Only`] turns on one fault, named by [`id`], in whichever trait it stands. [`Chosen`] does so
//! when the protocol runs. A fault that wraps a whole operation needs no line in any protocol:
//! [`Faulty`] forwards to the protocol and has the faults of [`OperationFaults`].

mod faulty;

use std::cell::Cell;

use contend_machine::{Machine, Ordering};

pub use faulty::{Faulty, OPERATION_FAULTS, OperationFaults};

/// A fault's name and meaning, as `docs/mutants.md` shows it.
pub type Meaning = (&'static str, &'static str);

/// The only fault that is on, or the only two, by their [`id`]s; 0 is the id of none.
#[derive(Debug)]
pub struct Only<const FAULT: u64, const SECOND: u64 = 0>;

/// No fault: the protocol as published.
pub type Sound = Only<0>;

/// The fault that the thread has chosen. A list of many faults of a protocol compiles the protocol
/// once for all, where [`Only`] would compile it for each.
#[derive(Debug)]
pub struct Chosen;

thread_local! {
    /// The id of the fault that is on in this thread.
    static CHOSEN: Cell<u64> = const { Cell::new(0) };
}

impl Chosen {
    /// Runs `body` with the fault of this [`id`] on in this thread, and no other. Threads that
    /// `body` starts have to turn it on themselves ([`Chosen::id`]).
    pub fn during<T>(fault: u64, body: impl FnOnce() -> T) -> T {
        struct Before(u64);
        impl Drop for Before {
            fn drop(&mut self) {
                CHOSEN.set(self.0);
            }
        }
        let _before = Before(CHOSEN.replace(fault));
        body()
    }

    /// Returns the [`id`] of the fault that is on in this thread; 0 if there is none.
    #[inline]
    pub fn id() -> u64 {
        CHOSEN.get()
    }
}

/// Returns the number of the fault `name`, for [`Only`] and [`Chosen`]: its FNV-1a hash.
pub const fn id(name: &str) -> u64 {
    let (bytes, mut hash, mut next) = (name.as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
    while next < bytes.len() {
        hash = (hash ^ bytes[next] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        next += 1;
    }
    hash
}

/// Declares a trait of faults, and the constant that lists them.
///
/// Each fault is a function that returns whether the fault is on: `false`. [`Only`] and [`Chosen`]
/// implement the trait, and have the fault on whose [`id`] they are given.
#[macro_export]
macro_rules! faults {
    (
        $(#[doc = $trait_doc:literal])+
        $visible:vis trait $faults:ident $(: $family:ident)? {
            $($(#[doc = $doc:literal])+ $name:ident,)*
        }
        $list_visible:vis const $list:ident;
    ) => {
        $(#[doc = $trait_doc])+
        $visible trait $faults: $($family +)? Send + Sync + 'static {
            $(
                $(#[doc = $doc])+
                #[inline(always)]
                fn $name() -> bool {
                    false
                }
            )*
        }

        impl<const FAULT: u64, const SECOND: u64> $faults for $crate::fault::Only<FAULT, SECOND> {
            $(
                #[inline(always)]
                fn $name() -> bool {
                    let own = const { $crate::fault::id(stringify!($name)) };
                    FAULT == own || SECOND == own
                }
            )*
        }

        impl $faults for $crate::fault::Chosen {
            $(
                fn $name() -> bool {
                    $crate::fault::Chosen::id() == const { $crate::fault::id(stringify!($name)) }
                }
            )*
        }

        /// The faults of the trait: name and meaning.
        $list_visible const $list: &[$crate::fault::Meaning] = &[$((stringify!($name), concat!($($doc,)+)),)*];
    };
}

/// The fence between a transaction's stores that others must see and its loads of what others
/// store. If two transactions cross in this way, at least one of them sees the other.
#[inline(always)]
pub(crate) fn dekker_fence<M: Machine, F: FenceFaults>() {
    if !F::forget_fences() {
        // SeqCst: pairs with itself; the callers say what comes before it and what after.
        M::fence(Ordering::SeqCst);
    }
}

faults! {
    /// The faults of [`dekker_fence`], which every family's trait has.
    pub trait FenceFaults {
        /// The fences are missing by which, of two transactions, at least one sees what the other
        /// does. Only a model checker of weak memory finds that.
        forget_fences,
    }
    pub const FENCE_FAULTS;
}

#[cfg(test)]
mod tests {
    use super::*;

    faults! {
        /// A family's.
        trait Family {
            /// One.
            one,
        }
        const OF_FAMILY;
    }

    faults! {
        /// A protocol's.
        trait Member: Family {
            /// Two,
            /// and more.
            two,
        }
        const OF_MEMBER;
    }

    fn on<F: Member>() -> (bool, bool) {
        (F::one(), F::two())
    }

    #[test]
    fn one_fault_is_on_wherever_it_is_declared() {
        assert_eq!(on::<Sound>(), (false, false));
        assert_eq!(on::<Only<{ id("one") }>>(), (true, false));
        assert_eq!(on::<Only<{ id("two") }>>(), (false, true));
        assert_eq!(on::<Chosen>(), (false, false));
        Chosen::during(id("one"), || {
            assert_eq!(on::<Chosen>(), (true, false));
            Chosen::during(id("two"), || assert_eq!(on::<Chosen>(), (false, true)));
            let _ = std::panic::catch_unwind(|| Chosen::during(id("two"), || panic!("a test that fails")));
            assert_eq!(on::<Chosen>(), (true, false));
        });
        assert_eq!(on::<Chosen>(), (false, false));
        assert_eq!((OF_FAMILY, OF_MEMBER), (&[("one", " One.")][..], &[("two", " Two, and more.")][..]));
    }
}
