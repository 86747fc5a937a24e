//! The list of workloads and presets, and how one is chosen by its name.

use contend_model::{OptionSpec, Options};

use crate::workload::{Workload, WorkloadInfo};

/// An operation on a workload that is chosen by name; see [`with_workload`].
pub trait WorkloadVisitor {
    /// The result of the operation.
    type Output;
    /// Runs the operation on workload `W`, which was chosen as `info`.
    fn visit<W: Workload>(self, info: WorkloadInfo) -> Self::Output;
}

macro_rules! workloads {
    ($($workload:ty: $infos:expr;)*) => {
        /// Returns every workload and preset, with the options that it takes.
        pub fn all_workloads() -> Vec<(WorkloadInfo, Vec<OptionSpec>)> {
            let mut all = Vec::new();
            $(for info in $infos {
                all.push((*info, <<$workload as Workload>::Options as Options>::specs()));
            })*
            all
        }

        /// Calls the visitor with the workload of this name. Returns `None` if there is none.
        pub fn with_workload<V: WorkloadVisitor>(name: &str, visitor: V) -> Option<V::Output> {
            $(if let Some(info) = $infos.iter().find(|info| info.name == name) {
                return Some(visitor.visit::<$workload>(*info));
            })*
            None
        }
    };
}

workloads! {
    crate::ycsb::Ycsb: crate::ycsb::INFOS;
    crate::bank::Bank: crate::bank::INFOS;
    crate::tpcc::Tpcc: crate::tpcc::INFOS;
    crate::smallbank::SmallBank: crate::smallbank::INFOS;
    crate::tatp::Tatp: crate::tatp::INFOS;
    crate::rubis::Rubis: crate::rubis::INFOS;
    crate::wikipedia::Wikipedia: crate::wikipedia::INFOS;
    crate::tpce::Tpce: crate::tpce::INFOS;
    crate::litmus::Litmus: crate::litmus::INFOS;
    crate::chains::Chains: crate::chains::INFOS;
    crate::pieces::Pieces: crate::pieces::INFOS;
}
