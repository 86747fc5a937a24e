//! The registry: the list of protocols, and their choice by name.

use std::any::Any;

use contend_engine::{Erased, NamedProtocol, OptionSpec, Options, ProtocolInfo};
use contend_machine::{Machine, Native};

/// An action on a protocol that was chosen by name: see [`with_protocol`].
pub trait ProtocolVisitor<M: Machine> {
    /// The result of the action.
    type Output;
    /// Acts on the protocol `P`.
    fn visit<P: NamedProtocol<M>>(self) -> Self::Output;
}

/// Former names of protocols, each with the name that it has today.
pub const PROTOCOL_ALIASES: [(&str, &str); 2] = [("mvcc", "msto"), ("to", "timestamp-ordering")];

/// Returns the present name of a protocol; `written` may be a former one.
pub fn protocol_name(written: &str) -> &str {
    PROTOCOL_ALIASES.iter().find(|(alias, _)| *alias == written).map_or(written, |(_, name)| name)
}

macro_rules! protocols {
    ($($protocol:ty,)*) => {
        /// Returns every protocol, with the options that it takes.
        pub fn all_protocols<M: Machine>() -> Vec<(ProtocolInfo, Vec<OptionSpec>)> {
            vec![$((
                <$protocol as NamedProtocol<M>>::INFO,
                <<$protocol as NamedProtocol<M>>::Options as Options>::specs(),
            ),)*]
        }

        /// Returns the protocols under which a transaction can read a snapshot, each with the
        /// options for that ([`NamedProtocol::SNAPSHOTS`]).
        pub fn protocols_with_snapshots<M: Machine>() -> Vec<(&'static str, &'static str)> {
            let all = [$((<$protocol as NamedProtocol<M>>::INFO.name, <$protocol as NamedProtocol<M>>::SNAPSHOTS),)*];
            all.into_iter().filter_map(|(name, with)| Some((name, with?))).collect()
        }

        /// Returns the deterministic protocols, each with the setting that makes it one
        /// ([`NamedProtocol::DETERMINISTIC`]).
        pub fn deterministic_protocols<M: Machine>() -> Vec<(&'static str, &'static str)> {
            let all =
                [$((<$protocol as NamedProtocol<M>>::INFO.name, <$protocol as NamedProtocol<M>>::DETERMINISTIC),)*];
            all.into_iter().filter_map(|(name, with)| Some((name, with?))).collect()
        }

        /// Calls `visitor` with the protocol of this name, or former name, and returns its result;
        /// `None` if no protocol has the name. The choice is made once in a run. The visitor's code
        /// is compiled for each protocol.
        pub fn with_protocol<M: Machine, V: ProtocolVisitor<M>>(name: &str, visitor: V) -> Option<V::Output> {
            let name = protocol_name(name);
            $(if <$protocol as NamedProtocol<M>>::INFO.name == name {
                return Some(visitor.visit::<$protocol>());
            })*
            None
        }
    };
}

protocols! {
    crate::none::NoControl,
    crate::optimistic::silo::Silo,
    crate::optimistic::occ::Occ<M>,
    crate::optimistic::tictoc::TicToc,
    crate::optimistic::mocc::Mocc,
    crate::optimistic::nested_occ::NestedOcc,
    crate::timestamp_ordering::TimestampOrdering<M>,
    crate::multiversion::mvto::Mvto<M>,
    crate::multiversion::cicada::Cicada<M>,
    crate::multiversion::msto::Msto<M>,
    crate::multiversion::snapshot_isolation::SnapshotIsolation<M>,
    crate::multiversion::ermia::Ermia<M>,
    crate::multiversion::hekaton::Hekaton<M>,
    crate::locking::no_wait::NoWait,
    crate::locking::wait_die::WaitDie<M>,
    crate::locking::wound_wait::WoundWait<M>,
    crate::locking::bamboo::Bamboo<M>,
    crate::locking::deadlock_detection::DeadlockDetection<M>,
    crate::locking::ordered::Ordered,
    crate::hstore::HStore<M>,
    crate::pieces::ic3::Ic3<M>,
    crate::datm::Datm<M>,
    crate::pieces::chopping::Chopping<M>,
    crate::deterministic::aria::Aria<M>,
    crate::deterministic::calvin::Calvin<M>,
    crate::lazy::Lazy<M>,
}

/// Returns the protocol of this name behind a pointer; `None` if no protocol has the name, or the
/// options are of another. Its code is compiled for each protocol.
pub fn behind_pointer<M: Machine>(name: &str, options: &dyn Any) -> Option<Erased<M>> {
    struct Erase<'a>(&'a dyn Any);
    impl<M: Machine> ProtocolVisitor<M> for Erase<'_> {
        type Output = Option<Erased<M>>;
        fn visit<P: NamedProtocol<M>>(self) -> Self::Output {
            Some(Erased::new(P::new(self.0.downcast_ref::<P::Options>()?.clone())))
        }
    }
    with_protocol::<M, _>(name, Erase(options))?
}

/// Returns the same on the host, compiled once: here.
///
/// In a development build, where the compiler shares generic code among crates, all programs of
/// tests have the protocols from here, also if they don't call this.
pub fn on_host(name: &str, options: &dyn Any) -> Option<Erased<Native>> {
    behind_pointer(name, options)
}
