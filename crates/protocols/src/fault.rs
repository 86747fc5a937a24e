//! Deliberate faults, with which the proof is tested.
//!
//! A protocol is generic over `F`, the faults that it has. Each protocol declares the faults that
//! its algorithm can have, in a trait at the end of its file, by [`faults!`](crate::faults). Its
//! family's trait, if the family's code has faults too, is a supertrait. All faults are off in
//! [`Sound`] and cost nothing there: a fault is an associated constant, and the branch on it is
//! decided when the protocol is compiled.
//!
//! [`Only`] turns on one fault, named by [`id`], in whichever trait it stands. A fault that wraps a
//! whole operation needs no line in any protocol: [`Faulty`] forwards to the protocol and has the
//! faults of [`OperationFaults`].

mod faulty;

use contend_machine::{Machine, Ordering};

pub use faulty::{Faulty, OPERATION_FAULTS, OperationFaults};

/// A fault's name and meaning, as `docs/mutants.md` shows it.
pub type Meaning = (&'static str, &'static str);

/// The only fault that is on, or the only two, by their [`id`]s; 0 is the id of none.
#[derive(Debug)]
pub struct Only<const FAULT: u64, const SECOND: u64 = 0>;

/// No fault: the protocol as published.
pub type Sound = Only<0>;

/// Returns the number of the fault `name`, for [`Only`]: its FNV-1a hash.
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
/// Each fault is an associated constant that is off; [`Only`] implements the trait, and has the
/// fault on whose [`id`] it is given.
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
            $($(#[doc = $doc])+ const $name: bool = false;)*
        }

        impl<const FAULT: u64, const SECOND: u64> $faults for $crate::fault::Only<FAULT, SECOND> {
            $(const $name: bool = {
                let own = $crate::fault::id(stringify!($name));
                FAULT == own || SECOND == own
            };)*
        }

        /// The faults of the trait: name and meaning.
        $list_visible const $list: &[$crate::fault::Meaning] = &[$((stringify!($name), concat!($($doc,)+)),)*];
    };
}

/// The fence between a transaction's stores that others must see and its loads of what others
/// store. If two transactions cross in this way, at least one of them sees the other.
#[inline(always)]
pub(crate) fn dekker_fence<M: Machine, F: FenceFaults>() {
    if !F::FORGET_FENCES {
        // SeqCst: pairs with itself; the callers say what comes before it and what after.
        M::fence(Ordering::SeqCst);
    }
}

faults! {
    /// The faults of [`dekker_fence`], which every family's trait has.
    pub trait FenceFaults {
        /// The fences are missing by which, of two transactions, at least one sees what the other
        /// does. Only a model checker of weak memory finds that.
        FORGET_FENCES,
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
            ONE,
        }
        const OF_FAMILY;
    }

    faults! {
        /// A protocol's.
        trait Member: Family {
            /// Two,
            /// and more.
            TWO,
        }
        const OF_MEMBER;
    }

    fn on<F: Member>() -> (bool, bool) {
        (F::ONE, F::TWO)
    }

    #[test]
    fn one_fault_is_on_wherever_it_is_declared() {
        assert_eq!(on::<Sound>(), (false, false));
        assert_eq!(on::<Only<{ id("ONE") }>>(), (true, false));
        assert_eq!(on::<Only<{ id("TWO") }>>(), (false, true));
        assert_eq!((OF_FAMILY, OF_MEMBER), (&[("ONE", " One.")][..], &[("TWO", " Two, and more.")][..]));
    }
}
