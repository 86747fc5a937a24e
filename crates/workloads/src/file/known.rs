//! What of a script follows from draws alone: keys, branches and rounds that are known before the
//! transaction begins, since no row decides them.

use std::collections::BTreeSet;

use super::program::{Access, Code, FOUND, Load, Register, Step};

/// A part of a script whose steps may or may not run, or run an unknown number of times.
struct Block {
    first: usize,
    end: usize,
    /// The register that decides; `None` if rows do.
    by: Option<Register>,
}

/// Marks the accesses whose keys are known, and the jumps that depend on rows. Finds out whether
/// all draws can be made before the transaction begins.
pub(super) fn find(code: &mut Code) {
    let steps = std::mem::take(&mut code.steps);
    let blocks = blocks_of(&steps);
    let mut by_rows = vec![false; code.image.len()];
    by_rows[FOUND as usize] = true;
    let inside = |by_rows: &[bool]| -> Vec<bool> {
        let mut inside = vec![false; steps.len()];
        for block in &blocks {
            if block.by.is_none_or(|register| by_rows[register as usize]) {
                inside[block.first..block.end].fill(true);
            }
        }
        inside
    };
    loop {
        let uncertain = inside(&by_rows);
        let before = by_rows.clone();
        for (number, step) in steps.iter().enumerate() {
            let (targets, sources) = registers_of(step, &code.accesses);
            let depends = uncertain[number]
                || sources.is_none_or(|sources| sources.iter().any(|&source| by_rows[source as usize]));
            if depends {
                targets.iter().for_each(|&(first, words)| by_rows[first as usize..][..words as usize].fill(true));
            }
        }
        if by_rows == before {
            break;
        }
    }
    let uncertain = inside(&by_rows);
    let draws = |step: &Step| matches!(step, Step::Draw { .. } | Step::DrawText { .. } | Step::Unique { .. });
    code.foreseeable = !steps.iter().enumerate().any(|(number, step)| {
        let unknown_rounds = matches!(*step, Step::Repeat { count, .. } if by_rows[count as usize]);
        unknown_rounds
            || uncertain[number] && draws(step)
            || matches!(*step, Step::Draw { a, b, .. } if by_rows[a as usize] || by_rows[b as usize])
            || matches!(*step, Step::DrawText { length, .. } if by_rows[length as usize])
    });
    code.replayable = code.foreseeable
        && steps.iter().all(is_replayable)
        && steps.iter().all(|step| !reads_of(step, &code.accesses).iter().any(|&read| by_rows[read as usize]));
    let changes = changed_by(&steps, code);
    for access in &mut code.accesses {
        let varies = |register: &Register| changes[*register as usize];
        let varying: BTreeSet<Register> = access.registers().into_iter().filter(varies).collect();
        access.varying = varying.into_iter().collect();
        let known = |register: &Register| !by_rows[*register as usize];
        access.known = access.key.iter().all(known);
        access.known_first = access.first.as_ref().is_some_and(known);
    }
    code.steps = steps;
    let conditions = by_rows;
    // The jump at the end of a branch belongs to the condition before it.
    let mut ends: Vec<usize> = Vec::new();
    for step in &mut code.steps {
        if let Step::Unless { condition, to, by_rows } = step {
            *by_rows = conditions[*condition as usize];
            if *by_rows {
                ends.push(*to as usize);
            }
        }
    }
    for end in ends {
        if let Some(Step::Jump { by_rows, .. }) = end.checked_sub(1).map(|last| &mut code.steps[last]) {
            *by_rows = true;
        }
    }
}

fn blocks_of(steps: &[Step]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let first = number + 1;
        match *step {
            Step::Unless { condition, to, .. } => {
                blocks.push(Block { first, end: to as usize, by: Some(condition) });
                // The other branch.
                if let Some(Step::Jump { to: end, .. }) = (to as usize).checked_sub(1).and_then(|last| steps.get(last))
                    && *end > to
                {
                    blocks.push(Block { first: to as usize, end: *end as usize, by: Some(condition) });
                }
            }
            Step::Modify { end, .. } | Step::Each { end, .. } => {
                blocks.push(Block { first, end: end as usize, by: None })
            }
            _ => {}
        }
    }
    blocks
}

/// Returns for each register whether a step changes it.
fn changed_by(steps: &[Step], code: &Code) -> Vec<bool> {
    let mut changes = vec![false; code.image.len()];
    for (first, words) in steps.iter().flat_map(|step| registers_of(step, &code.accesses).0) {
        changes[first as usize..][..words as usize].fill(true);
    }
    changes
}

/// Whether a step that depends on no row can be put down before the transaction begins. A text is
/// drawn only while it runs, and the numbers of `unique` are counted then.
fn is_replayable(step: &Step) -> bool {
    matches!(
        step,
        Step::Read { .. }
            | Step::Update { .. }
            | Step::Write { .. }
            | Step::Compute { .. }
            | Step::Copy { .. }
            | Step::Draw { .. }
            | Step::SameText { .. }
            | Step::Latest { .. }
            | Step::Unless { .. }
            | Step::Jump { .. }
            | Step::Repeat { .. }
            | Step::Again { .. }
    )
}

/// Returns the registers that a step reads.
pub(super) fn reads_of(step: &Step, accesses: &[Access]) -> Vec<Register> {
    match *step {
        Step::Distinct { a, .. } => vec![a],
        Step::Sleep { amount, .. } => vec![amount],
        Step::Again { left, .. } => vec![left],
        _ => match step.access() {
            Some(access) => accesses[access as usize].registers(),
            None => registers_of(step, accesses).1.unwrap_or_default(),
        },
    }
}

type Targets = Vec<(Register, u16)>;

/// Returns the registers that a step changes, with their numbers of words, and those that it reads;
/// `None` if it reads a row.
pub(super) fn registers_of(step: &Step, accesses: &[Access]) -> (Targets, Option<Vec<Register>>) {
    let loads = |access: u16| {
        let loaded = |load: &Load| (load.to, load.words);
        let mut targets: Targets = accesses[access as usize].loads.iter().map(loaded).collect();
        targets.push((FOUND, 1));
        (targets, None)
    };
    match *step {
        Step::Copy { to, from, words } => (vec![(to, words)], Some((from..from + words).collect())),
        Step::Compute { to, a, b, .. } | Step::SameText { to, a, b } => (vec![(to, 1)], Some(vec![a, b])),
        Step::Unless { condition, .. } => (Vec::new(), Some(vec![condition])),
        Step::UnlessIs { a, b, .. } => (Vec::new(), Some(vec![a, b])),
        Step::Draw { to, a, b, .. } => (vec![(to, 1)], Some(vec![a, b])),
        Step::DrawText { to, length, bytes, .. } => (vec![(to, 1 + bytes.div_ceil(8))], Some(vec![length])),
        Step::Unique { to } => (vec![(to, 1)], Some(Vec::new())),
        Step::Distinct { to, .. } => (vec![(to, 1)], None),
        Step::Latest { to, rank, .. } => (vec![(to, 1)], Some(vec![rank])),
        Step::Repeat { count, left, .. } => (vec![(left, 1)], Some(vec![count])),
        _ => step.access().map_or((Vec::new(), Some(Vec::new())), loads),
    }
}
