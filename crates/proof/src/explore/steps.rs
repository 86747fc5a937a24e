//! The steps of an execution in words.

use std::collections::BTreeMap;

use contend_engine::history::Part;
use contend_engine::{Engine, KeyWords, Protocol};
use contend_machine::Machine;
use contend_sim::Simulated;
use contend_sim::explorer::{Step, StepKind};

use super::ShownStep;

/// Where a record is, and its name in words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecordPlace {
    /// The address of its first word.
    address: usize,
    words: usize,
    name: String,
}

/// Returns where the records of these keys are, without those that have none.
pub(super) fn places<P: Protocol<Simulated>>(
    engine: &Engine<P, Simulated>,
    keys: &[(Part, KeyWords)],
) -> Vec<RecordPlace> {
    let names: BTreeMap<Part, String> = engine.parts().into_iter().collect();
    let mut places: Vec<_> = keys
        .iter()
        .filter_map(|(part, key)| {
            let (address, words) = engine.place(*part, key)?;
            let table = names[part].split('/').next().unwrap_or_default();
            let name = format!("{table}[{}]", engine.key_name(part.table, key));
            Some(RecordPlace { address, words, name })
        })
        .collect();
    places.sort();
    places.dedup();
    places
}

/// Returns the steps in words. Successive steps of a core with the same words become one.
pub(super) fn show_steps(trace: &[Step], places: &[RecordPlace]) -> Vec<ShownStep> {
    let mut shown: Vec<(ShownStep, u64)> = Vec::new();
    for (number, step) in (1..).zip(trace) {
        let text = show_step(step, places);
        match shown.last_mut() {
            Some((last, times)) if last.core == step.core && last.text == text => *times += 1,
            _ => shown.push((ShownStep { number, core: step.core, text }, 1)),
        }
    }
    shown
        .into_iter()
        .map(|(step, times)| match times {
            1 => step,
            _ => ShownStep { text: format!("{} ({times} x)", step.text), ..step },
        })
        .collect()
}

fn show_step(step: &Step, places: &[RecordPlace]) -> String {
    let kind = match step.kind {
        StepKind::Load => "load",
        StepKind::Store => "store",
        StepKind::Update => "atomic",
        StepKind::Pause => return format!("{}: wait", step.name),
    };
    let word = size_of::<<Simulated as Machine>::U64>();
    let is_in = |place: &&RecordPlace| (place.address..place.address + place.words * word).contains(&step.address);
    match places.iter().find(is_in) {
        Some(RecordPlace { address, name, .. }) => {
            let position = (step.address - address) / word;
            let part = if position == 0 { "metadata".into() } else { format!("word {position}") };
            format!("{}: {kind} {name} {part}", step.name)
        }
        None => format!("{}: {kind}", step.name),
    }
}
