//! What the protocol IC3 can make of the pieces that a workload declares, in an application
//! programmer's words.

use contend_analysis::{AnalysisOptions, Plan};
use contend_model::pieces::TypeSet;

/// The most types, and the most ranks, that a sentence names.
const TOLD: usize = 6;

/// Returns what the analysis says of these types. `split` and `updates` say whether timestamp
/// splitting and commit-time updates apply. Declarations that are not valid say nothing here: they
/// are refused where they are used.
pub(super) fn sentences(types: &TypeSet, split: bool, updates: bool) -> Vec<String> {
    let options = AnalysisOptions { split, updates, ..AnalysisOptions::default() };
    let Ok(plan) = Plan::new(types, options) else { return Vec::new() };
    let ranks_of = |of: usize| plan.types[of].groups.iter().filter_map(|group| group.rank).collect::<Vec<_>>();
    let names = |of: &[String]| match of.len() {
        0..=TOLD => of.join(", "),
        many => format!("{} and {} more", of[..TOLD].join(", "), many - TOLD),
    };
    let of_several = |of: &usize| types.types[*of].pieces.len() > 1;
    let divided: Vec<String> = (0..types.types.len())
        .filter(|of| ranks_of(*of).len() > 1)
        .map(|of| format!("{} in {} steps", types.types[of].name, ranks_of(of).len()))
        .collect();
    let whole: Vec<String> = (0..types.types.len())
        .filter(of_several)
        .filter(|of| ranks_of(*of).len() == 1)
        .map(|of| types.types[of].name.clone())
        .collect();
    let mut lines = Vec::new();
    if !divided.is_empty() {
        let divided = names(&divided);
        lines.push(format!(
            "The protocol ic3 runs {divided}: other transactions see the rows of a step before the whole transaction \
             commits, so they wait less for hot rows."
        ));
    }
    if !whole.is_empty() {
        lines.push(format!(
            "The protocol ic3 can't divide {} into steps, because two of them could wait for each other's steps \
             in a circle. It gains nothing there.",
            names(&whole)
        ));
    }
    if divided.is_empty() && whole.is_empty() {
        lines.push("The protocol ic3 gains nothing: no transaction has several steps for which others wait.".into());
    }
    let shared = plan.vertices.iter().filter_map(|vertex| {
        let mut of: Vec<String> = vertex.groups.iter().map(|(of, _)| types.types[*of].name.clone()).collect();
        of.dedup();
        vertex.rank.filter(|_| of.len() > 1)?;
        Some(names(&of))
    });
    let mut shared: Vec<String> = shared.collect();
    shared.sort_unstable();
    shared.dedup();
    if !shared.is_empty() && !divided.is_empty() {
        let shared = shared.iter().map(|of| format!("({of})")).collect::<Vec<_>>();
        lines.push(format!("Under ic3 these types wait for each other at steps that they share: {}.", names(&shared)));
    }
    lines
}
