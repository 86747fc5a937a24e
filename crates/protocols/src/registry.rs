//! The list of protocols.

use contend_engine::{Info, OptionSpec, Options, Protocol};
use contend_machine::Machine;

/// What is to be done with a protocol that was chosen by name; see [`with_protocol`].
pub trait ProtocolVisitor<M: Machine> {
    /// What comes of it.
    type Output;
    /// Does it, for this protocol.
    fn visit<P: Protocol<M>>(self) -> Self::Output;
}

macro_rules! protocols {
    ($($protocol:ty,)*) => {
        /// Every protocol, with the options that it takes.
        pub fn all_protocols<M: Machine>() -> Vec<(Info, Vec<OptionSpec>)> {
            vec![$((
                <$protocol as Protocol<M>>::INFO,
                <<$protocol as Protocol<M>>::Options as Options>::specs(),
            ),)*]
        }

        /// The protocols under which a transaction can read a snapshot, and with which options ([`Protocol::SNAPSHOTS`]).
        pub fn protocols_with_snapshots<M: Machine>() -> Vec<(&'static str, &'static str)> {
            let all = [$((<$protocol as Protocol<M>>::INFO.name, <$protocol as Protocol<M>>::SNAPSHOTS),)*];
            all.into_iter().filter_map(|(name, with)| Some((name, with?))).collect()
        }

        /// Calls the visitor with the protocol of this name; `None` if there is none. The choice is made once a run: what the visitor
        /// does is compiled for each protocol.
        pub fn with_protocol<M: Machine, V: ProtocolVisitor<M>>(name: &str, visitor: V) -> Option<V::Output> {
            $(if <$protocol as Protocol<M>>::INFO.name == name {
                return Some(visitor.visit::<$protocol>());
            })*
            None
        }
    };
}

protocols! {
    crate::none::NoControl,
    crate::silo::Silo,
    crate::occ::Occ<M>,
    crate::tictoc::TicToc,
    crate::mocc::Mocc,
    crate::timestamp_ordering::TimestampOrdering<M>,
    crate::mvto::Mvto<M>,
    crate::cicada::Cicada<M>,
    crate::mvcc::Mvcc<M>,
    crate::snapshot_isolation::SnapshotIsolation<M>,
    crate::ermia::Ermia<M>,
    crate::hekaton::Hekaton<M>,
    crate::no_wait::NoWait,
    crate::wait_die::WaitDie<M>,
    crate::wound_wait::WoundWait<M>,
    crate::bamboo::Bamboo<M>,
    crate::deadlock_detection::DeadlockDetection<M>,
    crate::ordered::Ordered,
    crate::hstore::HStore<M>,
}
