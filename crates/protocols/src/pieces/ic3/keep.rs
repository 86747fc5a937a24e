//! The option that says when transactions keep what snapshots show, and the plans that it chooses.

use contend_engine::{EngineOptions, OptionValue};
use contend_machine::Machine;
use contend_model::pieces::TypeSet;

use super::{Ic3, Ic3Faults};
use crate::pieces::plan::Plan;

/// When transactions keep what they replace for readers of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepSnapshots {
    /// Never: types that only read need an order like all others.
    Off,
    /// While the types in force have more steps with snapshots for those that only read.
    Needed,
    /// Always.
    On,
}

impl OptionValue for KeepSnapshots {
    type Range = ();

    fn parse(text: &str, (): &()) -> Option<Self> {
        match text {
            "off" => Some(KeepSnapshots::Off),
            "needed" => Some(KeepSnapshots::Needed),
            "on" => Some(KeepSnapshots::On),
            _ => None,
        }
    }

    fn describe((): &()) -> String {
        "off, needed, on".into()
    }

    fn show(&self) -> String {
        match self {
            KeepSnapshots::Off => "off".into(),
            KeepSnapshots::Needed => "needed".into(),
            KeepSnapshots::On => "on".into(),
        }
    }
}

impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Makes the plan of these types.
    pub(super) fn plan(&self, types: &TypeSet, options: &EngineOptions) -> Result<Plan, String> {
        let plan = |snapshots| Plan::new(types, options, self.options.append, snapshots, !F::show_sums());
        match self.options.snapshots {
            KeepSnapshots::Off => plan(false),
            KeepSnapshots::On => plan(true),
            KeepSnapshots::Needed => {
                let with = plan(true)?;
                // Where it needs too many ranks there is no other plan.
                match plan(false) {
                    Ok(without) if !with.has_more_steps(&without) => Ok(without),
                    _ => Ok(with),
                }
            }
        }
    }
}
