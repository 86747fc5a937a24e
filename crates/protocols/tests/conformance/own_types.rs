//! One protocol of each family as it is measured: as a type of its own, compiled with the engine,
//! and not behind a pointer.
//!
//! All other tests here run every protocol behind a pointer, so that tests and engine are compiled
//! once, and not once for each protocol.

use contend_machine::Native;

use crate::basics::{AbortsLeaveNoTrace, VisitorsStopScans};
use crate::concurrent::{KeepsItsPromise, Oversubscribed};
use crate::own_reads::{ManyKeys, OwnReads};
use crate::support::for_own_type;

macro_rules! on_its_own_type {
    ($($name:ident: $protocol:ty,)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn a_transaction_sees_its_own_writes() {
                for_own_type::<$protocol, Native>(&OwnReads);
                for_own_type::<$protocol, Native>(&ManyKeys);
            }

            #[test]
            fn aborts_leave_no_trace_and_visitors_stop_scans() {
                for_own_type::<$protocol, Native>(&AbortsLeaveNoTrace);
                for_own_type::<$protocol, Native>(&VisitorsStopScans);
            }

            #[test]
            fn concurrent_histories_keep_the_promise() {
                for_own_type::<$protocol, Native>(&KeepsItsPromise);
                for_own_type::<$protocol, Native>(&Oversubscribed);
            }
        }
    )*};
}

on_its_own_type! {
    silo: contend_protocols::optimistic::silo::Silo,
    tictoc: contend_protocols::optimistic::tictoc::TicToc,
    two_phase_no_wait: contend_protocols::locking::no_wait::NoWait,
    cicada: contend_protocols::multiversion::cicada::Cicada<Native>,
}
