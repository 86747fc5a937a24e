//! Loops whose rounds access rows together.
//!
//! A script accesses one row after the other. In a loop such accesses could overlap: a New-Order
//! reads up to fifteen items, and no item tells which one comes next. So such a loop is
//! *distributed*, as compilers for vector machines do (R. Allen, K. Kennedy: "Optimizing
//! Compilers for Modern Architectures", 2001). All rounds run up to the first access, then all of
//! them make it in one call. Then all rounds run up to the next access, and so on. What lies
//! between two accesses is a *stage*.
//!
//! That is right where nobody can tell. No round may need what the round before computes in the
//! same stage's access or in a later stage. If an access changes a group of columns, no other one
//! touches it. And draws must come in the same order, so all of them are in one stage. A loop for
//! which this is not sure runs round by round.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use contend_model::{FewWords, Groups};

use super::known::{reads_of, registers_of};
use super::program::{Access, Code, FOUND, Register, Step};

/// A distributed loop.
#[derive(Clone, Debug)]
pub(super) struct Distributed {
    /// The step that begins the loop.
    pub(super) start: usize,
    /// The step behind the loop.
    pub(super) end: usize,
    /// The last steps of a round, if they only prepare the next round: each round but the first
    /// begins with them, and they run once more at the end.
    pub(super) tail: Range<usize>,
    pub(super) stages: Vec<Stage>,
    /// The registers that a round keeps for its later stages, in the order of the stages that set
    /// them.
    pub(super) kept: Vec<Kept>,
    /// The words that a round keeps.
    pub(super) words: usize,
}

/// A stage of a distributed loop: the steps up to an access, and the access.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    /// The access, or the end of the last round's steps.
    pub(super) end: usize,
    /// The access at the end; the last stage has none.
    pub(super) access: Option<Step>,
    /// How many of [`Distributed::kept`] are set when the stage begins.
    pub(super) before: usize,
    /// How many of them are set before its access.
    pub(super) by_steps: usize,
    /// How many of them are set behind its access.
    pub(super) by_access: usize,
}

/// Registers that a round keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) first: Register,
    pub(super) count: u16,
    /// Where they begin in what the round keeps.
    pub(super) at: u32,
}

/// The number of a phase, in the order in which phases run: 2 n for the steps of stage n, and
/// 2 n + 1 for its access.
type Phase = usize;

/// What the phases of a loop do with registers.
#[derive(Default)]
struct Uses {
    set_in: BTreeMap<Register, BTreeSet<Phase>>,
    read_in: BTreeMap<Register, BTreeSet<Phase>>,
}

impl Uses {
    fn set(&mut self, registers: &[(Register, u16)], phase: Phase) {
        let each = registers.iter().flat_map(|&(first, words)| first..first + words);
        each.for_each(|register| _ = self.set_in.entry(register).or_default().insert(phase));
    }

    fn read(&mut self, registers: impl IntoIterator<Item = Register>, phase: Phase) {
        registers.into_iter().for_each(|register| _ = self.read_in.entry(register).or_default().insert(phase));
    }

    /// Returns the registers that rounds keep, each with the phase that sets it; `None` if a round
    /// needs what a later phase of an earlier round sets.
    fn kept(&self) -> Option<Vec<(Phase, Register)>> {
        let none = BTreeSet::new();
        let mut kept = Vec::new();
        for (&register, set_in) in self.set_in.iter().filter(|(register, _)| **register != FOUND) {
            let read_in = self.read_in.get(&register).unwrap_or(&none);
            if set_in.union(read_in).count() == 1 {
                continue;
            }
            let (Some(&set), 1) = (set_in.first(), set_in.len()) else { return None };
            if read_in.first().is_some_and(|&first| first < set) {
                return None;
            }
            if read_in.last().is_some_and(|&last| last > set) {
                kept.push((set, register));
            }
        }
        kept.sort_unstable();
        Some(kept)
    }
}

/// Finds the loops that can be distributed.
pub(super) fn find(code: &Code) -> Vec<Distributed> {
    let loops = code.steps.iter().enumerate().filter_map(|(start, step)| match *step {
        Step::Repeat { end, .. } | Step::Each { end, .. } => Some((start, end as usize)),
        _ => None,
    });
    loops.filter_map(|(start, end)| distributed(code, start, end)).collect()
}

/// Returns the loop between two steps as a distributed one, if it can be that.
fn distributed(code: &Code, start: usize, end: usize) -> Option<Distributed> {
    let last = end - 1;
    let accesses = accesses_of(code, start + 1..last)?;
    let order_is_free = accesses.iter().enumerate().all(|(number, first)| {
        accesses[number + 1..].iter().all(|second| commute(code, &code.steps[*first], &code.steps[*second]))
    });
    if accesses.is_empty() || !order_is_free {
        return None;
    }
    let tail = tail_of(code, start + 1..last);
    let mut uses = Uses::default();
    if let Step::Each { access, .. } = code.steps[start] {
        uses.set(&loaded(&code.accesses[access as usize]), 0);
    }
    let (mut draws, mut distinct) = (BTreeSet::new(), BTreeSet::new());
    for (number, step) in code.steps.iter().enumerate().take(last).skip(start + 1) {
        let phase = if tail.contains(&number) { 0 } else { phase_of(code, &accesses, number) };
        match step {
            Step::Draw { .. } | Step::DrawText { .. } | Step::Unique { .. } => _ = draws.insert(phase),
            Step::Distinct { .. } => _ = distinct.insert(phase),
            _ => {}
        }
        let Some(of) = step.access().map(|access| &code.accesses[access as usize]) else {
            uses.set(&registers_of(step, &code.accesses).0, phase);
            uses.read(reads_of(step, &code.accesses), phase);
            continue;
        };
        uses.set(&loaded(of), phase + 1);
        uses.read(of.key.iter().copied(), phase);
        // What an update adds is fixed before the call. What is stored is taken within it.
        let is_fixed = matches!(step, Step::Update { .. });
        uses.read(reads_of(step, &code.accesses), if is_fixed { phase } else { phase + 1 });
    }
    let asks = |step: &Step| reads_of(step, &code.accesses).contains(&FOUND);
    let found_is_known = !code.steps[start + 1..last].iter().any(asks)
        || !skips_access(code, &accesses, start + 1..last)
            && uses.read_in[&FOUND].iter().all(|phase| *phase > 0 && phase % 2 == 0);
    if draws.len() > 1 || distinct.len() > 1 || !found_is_known {
        return None;
    }
    Some(laid_out(code, (start, end), tail, &accesses, &uses.kept()?))
}

/// Returns the last steps of a loop that need nothing which the round has read: `\\set n :n + 1`.
fn tail_of(code: &Code, body: Range<usize>) -> Range<usize> {
    let mut by_rows: BTreeSet<Register> = [FOUND].into();
    let registers = |step: &Step| registers_of(step, &code.accesses);
    // What depends on a row, and what depends on that.
    loop {
        let before = by_rows.len();
        for step in &code.steps[body.clone()] {
            let (targets, sources) = registers(step);
            if sources.is_none_or(|sources| sources.iter().any(|source| by_rows.contains(source))) {
                by_rows.extend(targets.iter().flat_map(|&(first, words)| first..first + words));
            }
        }
        if by_rows.len() == before {
            break;
        }
    }
    let mut start = body.end;
    while start > body.start {
        let step = &code.steps[start - 1];
        let (targets, sources) = registers(step);
        let is_simple = matches!(step, Step::Compute { .. } | Step::Copy { .. });
        let needs_row =
            sources.iter().flatten().chain(targets.iter().map(|(first, _)| first)).any(|of| by_rows.contains(of));
        // A branch may leave the step out.
        let is_skipped = code.steps[body.start..start - 1].iter().any(|of| of.target() == Some(start as u32));
        if !is_simple || needs_row || is_skipped {
            break;
        }
        start -= 1;
    }
    start..body.end
}

/// Returns the steps of a loop that access rows; `None` if there is a step that must not run
/// together with those of other rounds.
fn accesses_of(code: &Code, body: Range<usize>) -> Option<Vec<usize>> {
    let mut accesses = Vec::new();
    for number in body.clone() {
        let step = &code.steps[number];
        // To its end, or to a step within it.
        if step.target().is_some_and(|to| !(body.start..=body.end).contains(&(to as usize))) {
            return None;
        }
        match step {
            Step::Scan { .. } | Step::Each { .. } | Step::Next { .. } | Step::Delete { .. } | Step::Sleep { .. } => {
                return None;
            }
            Step::Repeat { end, .. } if code.steps[number..*end as usize].iter().any(|of| of.access().is_some()) => {
                return None;
            }
            _ => {}
        }
        if let Some(of) = step.access().map(|access| &code.accesses[access as usize]) {
            let is_long = matches!(step, Step::Update { .. }) && of.changes.len() > FewWords::MOST;
            if !of.indexes.is_empty() || is_long {
                return None;
            }
            accesses.push(number);
        }
    }
    Some(accesses)
}

/// Whether two accesses of a loop may change their order: no column that one changes is touched by
/// the other.
fn commute(code: &Code, first: &Step, second: &Step) -> bool {
    let of = |step: &Step| step.access().map(|access| &code.accesses[access as usize]);
    let (Some(a), Some(b)) = (of(first), of(second)) else { return true };
    let changed = |step: &Step, of: &Access| match step {
        Step::Read { .. } => Groups::NONE,
        Step::Insert { .. } => Groups::ALL,
        _ => of.changed(),
    };
    let touched = |step: &Step, of: &Access| changed(step, of).union(of.groups);
    let (by_first, by_second) = (changed(first, a), changed(second, b));
    a.table != b.table || !by_first.meets(touched(second, b)) && !by_second.meets(touched(first, a))
}

/// Returns the phase of a step.
fn phase_of(code: &Code, accesses: &[usize], number: usize) -> Phase {
    let before = accesses.iter().filter(|access| **access < number).count();
    let inside = accesses[..before].last().is_some_and(|access| match code.steps[*access] {
        Step::Modify { end, .. } | Step::SelectAndUpdate { end, .. } => number < end as usize,
        _ => false,
    });
    2 * before - usize::from(inside)
}

/// Whether a step of the loop may go past an access.
fn skips_access(code: &Code, accesses: &[usize], body: Range<usize>) -> bool {
    body.into_iter().any(|number| {
        let target = code.steps[number].target().filter(|_| code.steps[number].access().is_none());
        target.is_some_and(|to| accesses.iter().any(|access| (number + 1..to as usize).contains(access)))
    })
}

fn loaded(access: &Access) -> Vec<(Register, u16)> {
    access.loads.iter().map(|load| (load.to, load.words)).collect()
}

/// Divides a loop into its stages.
fn laid_out(
    code: &Code,
    (start, end): (usize, usize),
    tail: Range<usize>,
    accesses: &[usize],
    registers: &[(Phase, Register)],
) -> Distributed {
    let mut kept: Vec<(Phase, Kept)> = Vec::new();
    for (at, &(phase, register)) in registers.iter().enumerate() {
        match kept.last_mut() {
            Some((of, last)) if *of == phase && last.first + last.count == register => last.count += 1,
            _ => kept.push((phase, Kept { first: register, count: 1, at: at as u32 })),
        }
    }
    let set_before = |phase: Phase| kept.iter().filter(|(of, _)| *of < phase).count();
    let stage = |number: usize| Stage {
        end: accesses.get(number).copied().unwrap_or(tail.start),
        access: accesses.get(number).map(|access| code.steps[*access]),
        before: set_before(2 * number),
        by_steps: set_before(2 * number + 1),
        by_access: set_before(2 * number + 2),
    };
    let stages = (0..=accesses.len()).map(stage).collect();
    let kept = kept.into_iter().map(|(_, kept)| kept).collect();
    Distributed { start, end, tail, stages, words: registers.len(), kept }
}
