//! The list of workloads and presets, and how one is chosen by its name.

use std::sync::Arc;

use contend_model::{OptionSpec, Options};

use crate::file::{FileWorkload, WorkloadFile};
use crate::workload::{Workload, WorkloadInfo};

/// An operation on a workload that is chosen by name; see [`with_workload`].
pub trait WorkloadVisitor {
    /// The result of the operation.
    type Output;
    /// Runs the operation on workload `W`, which was chosen as `info`. `defaults` are its options
    /// before those of the preset are set.
    fn visit<W: Workload>(self, info: WorkloadInfo, defaults: W::Options) -> Self::Output;
}

/// A workload as a user chose it.
#[derive(Clone, Debug)]
pub enum ChosenWorkload {
    /// One that is in the list.
    Registered(WorkloadInfo),
    /// One that the user wrote.
    File(Arc<WorkloadFile>),
}

impl ChosenWorkload {
    /// Returns the workload or preset of this name, or `None` if the list has none.
    pub fn registered(name: &str) -> Option<ChosenWorkload> {
        all_workloads()
            .into_iter()
            .find(|(info, _)| info.name == name)
            .map(|(info, _)| ChosenWorkload::Registered(info))
    }

    /// Returns the workload's name and description.
    pub fn info(&self) -> WorkloadInfo {
        match self {
            ChosenWorkload::Registered(info) => *info,
            ChosenWorkload::File(file) => file.info(),
        }
    }

    /// Returns the options that the workload takes.
    pub fn specs(&self) -> Vec<OptionSpec> {
        match self {
            ChosenWorkload::Registered(info) => {
                let of_name = all_workloads().into_iter().find(|(other, _)| other.name == info.name);
                of_name.map(|(_, specs)| specs).unwrap_or_default()
            }
            ChosenWorkload::File(file) => file.specs(),
        }
    }

    /// Calls the visitor with the workload.
    pub fn visit<V: WorkloadVisitor>(&self, visitor: V) -> V::Output {
        match self {
            ChosenWorkload::Registered(info) => with_workload(info.name, visitor).expect("a workload of the list"),
            ChosenWorkload::File(file) => {
                let defaults = file.options().expect("a file that was found valid");
                visitor.visit::<FileWorkload>(file.info(), defaults)
            }
        }
    }
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
                return Some(visitor.visit::<$workload>(*info, Default::default()));
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
