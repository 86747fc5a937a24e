//! Steps that touch no row, prepared to run.
//!
//! Each becomes the call of a function that is compiled for its operator or distribution. What a
//! step is has been decided before, so nothing is decided for each step again.

use contend_model::random::below;

use super::draws::{Distribution, scattered};
use super::interpret::{Draws, Memory, PackedKey};
use super::program::{Access, Code, Operator, Register, Step};

/// The answer of a step that is no computation: it touches a row, waits or cancels.
const STOP: usize = usize::MAX;

/// Runs a step. Gets the number of the step behind it, and returns that of the next one.
type Run = fn(&mut Memory, &Code, &Op, usize) -> usize;

/// A step that is prepared to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    run: Run,
    to: Register,
    a: Register,
    b: Register,
    /// What a draw with a branch compares.
    compared: (Register, Register),
    /// The number of a draw, of a table or of an access, of words or of bytes.
    number: u16,
    /// The step to which it may go.
    target: u32,
    /// The numbers that are drawn: the smallest one, and how many there are.
    among: (i64, u64),
}

/// Returns the function that is compiled for an operator.
macro_rules! for_operator {
    ($operator:expr, $function:ident) => {
        for_operator!($operator, $function, Add Subtract Multiply Divide Modulo Equal Unequal Less AtMost And Or Xor
            Least Greatest ShiftLeft ShiftRight Absolute Permute)
    };
    ($operator:expr, $function:ident, $($name:ident)*) => {
        match $operator {
            $(Operator::$name => $function::<{ Operator::$name as u8 }> as Run,)*
        }
    };
}

/// The operators by their numbers.
const OPERATORS: [Operator; 18] = [
    Operator::Add,
    Operator::Subtract,
    Operator::Multiply,
    Operator::Divide,
    Operator::Modulo,
    Operator::Equal,
    Operator::Unequal,
    Operator::Less,
    Operator::AtMost,
    Operator::And,
    Operator::Or,
    Operator::Xor,
    Operator::Least,
    Operator::Greatest,
    Operator::ShiftLeft,
    Operator::ShiftRight,
    Operator::Absolute,
    Operator::Permute,
];

const _: () = {
    let mut number = 0;
    while number < OPERATORS.len() {
        assert!(OPERATORS[number] as usize == number, "in the order of the type");
        number += 1;
    }
};

impl Op {
    /// Returns what stops.
    pub(super) fn stop() -> Op {
        Op { run: stop, to: 0, a: 0, b: 0, compared: (0, 0), number: 0, target: 0, among: (0, 0) }
    }

    /// Prepares a step of a script with these draws.
    pub(super) fn new(step: &Step, draws: &[Distribution]) -> Op {
        let mut op = Op::stop();
        op.run = match *step {
            Step::Compute { operator, to, a, b } => {
                (op.to, op.a, op.b) = (to, a, b);
                for_operator!(operator, compute)
            }
            Step::Copy { to, from, words } => {
                (op.to, op.a, op.number) = (to, from, words);
                if words == 1 { copy } else { copy_words }
            }
            Step::Draw { to, draw, a, b } => {
                (op.to, op.a, op.b, op.number) = (to, a, b, draw);
                match draws[draw as usize] {
                    Distribution::Among { low, numbers } => {
                        op.among = (low, numbers.get());
                        draw_among
                    }
                    Distribution::Zipf { .. } => draw_zipf,
                    _ => draw_number,
                }
            }
            Step::DrawText { to, length, bytes, any } => {
                (op.to, op.a, op.number) = (to, length, bytes);
                if any { draw_text::<true> } else { draw_text::<false> }
            }
            Step::SameText { to, a, b } => {
                (op.to, op.a, op.b) = (to, a, b);
                same_text
            }
            Step::Unique { to } => {
                op.to = to;
                unique
            }
            Step::Distinct { to, a } => {
                (op.to, op.a) = (to, a);
                distinct
            }
            Step::Latest { to, rank, table } => {
                (op.to, op.a, op.number) = (to, rank, table);
                latest
            }
            Step::Unless { condition, to, by_rows } => {
                (op.a, op.target) = (condition, to);
                if by_rows { unless_by_rows } else { unless }
            }
            Step::UnlessIs { operator, a, b, to, by_rows } => {
                (op.a, op.b, op.target) = (a, b, to);
                if by_rows { for_operator!(operator, unless_is_by_rows) } else { for_operator!(operator, unless_is) }
            }
            Step::Jump { to, by_rows } => {
                op.target = to;
                if by_rows { jump_by_rows } else { jump }
            }
            Step::Repeat { count, left, end } => {
                (op.a, op.to, op.target) = (count, left, end);
                repeat
            }
            Step::Again { left, start } => {
                (op.to, op.target) = (left, start);
                again
            }
            _ => stop,
        };
        op
    }

    /// Prepares the steps of a script with these draws.
    pub(super) fn of_steps(steps: &[Step], draws: &[Distribution]) -> Vec<Op> {
        let mut ops: Vec<Op> = steps.iter().map(|step| Op::new(step, draws)).collect();
        for (at, step) in steps.iter().enumerate().skip(1) {
            let is_drawn = matches!(&steps[at - 1], Step::Draw { draw, .. }
                if matches!(draws[*draw as usize], Distribution::Among { .. }));
            if let Step::UnlessIs { operator, a, b, to, by_rows: false } = *step
                && is_drawn
            {
                // The draw decides at once. The branch stays, for those that jump to it.
                let draw = &mut ops[at - 1];
                (draw.run, draw.compared, draw.target) = (for_operator!(operator, draw_and_unless_is), (a, b), to);
            }
        }
        ops
    }

    /// Prepares the steps of a batch, whose keys are of one word: its accesses note their keys.
    pub(super) fn of_batch(steps: &[Step], draws: &[Distribution], accesses: &[Access]) -> Vec<Op> {
        let mut ops = Op::of_steps(steps, draws);
        for (at, step) in steps.iter().enumerate() {
            let Some(number) = step.access() else { continue };
            let access = &accesses[number as usize];
            let op = &mut ops[at];
            op.number = number;
            if let [part] = access.parts[..] {
                (op.a, op.b, op.among) = (part.register, part.shift.into(), (0, part.most));
            }
            op.target = match steps.get(at + 1) {
                Some(&Step::Jump { to, by_rows: false }) => to,
                _ => at as u32 + 1,
            };
            op.run = match (access.parts.len() == 1, access.reads) {
                (true, true) => note_key::<true, true>,
                (true, false) => note_key::<true, false>,
                (false, true) => note_key::<false, true>,
                (false, false) => note_key::<false, false>,
            };
        }
        ops
    }
}

impl Memory {
    /// Runs the steps from `at` on that touch no row, up to `end`. Returns the step before which it
    /// stops: one that touches a row, waits or cancels, or `end`.
    #[inline(always)]
    pub(super) fn advance(&mut self, code: &Code, at: usize, end: usize) -> usize {
        self.advance_by(code, &code.ops[..end], at)
    }

    /// Runs prepared steps from `at` on, up to one that stops. Returns its number, or that of the
    /// first step behind them.
    #[inline(never)]
    pub(super) fn advance_by(&mut self, code: &Code, ops: &[Op], mut at: usize) -> usize {
        while let Some(op) = ops.get(at) {
            let next = (op.run)(self, code, op, at + 1);
            if next == STOP {
                return at;
            }
            at = next;
        }
        at
    }

    /// Whether branches that rows decide all run: no row is known yet.
    fn foresees(&self) -> bool {
        matches!(self.draws, Draws::Noted(_))
    }
}

fn stop(_: &mut Memory, _: &Code, _: &Op, _: usize) -> usize {
    STOP
}

fn compute<const OPERATOR: u8>(memory: &mut Memory, _: &Code, op: &Op, next: usize) -> usize {
    let frame = &mut memory.frame;
    frame[op.to] = OPERATORS[OPERATOR as usize].apply(frame[op.a], frame[op.b]);
    next
}

fn copy(memory: &mut Memory, _: &Code, op: &Op, next: usize) -> usize {
    memory.frame[op.to] = memory.frame[op.a];
    next
}

fn copy_words(memory: &mut Memory, _: &Code, op: &Op, next: usize) -> usize {
    memory.frame.copy(op.a, op.to, op.number);
    next
}

#[inline(always)]
fn draw_among(memory: &mut Memory, code: &Code, op: &Op, next: usize) -> usize {
    let (low, numbers) = op.among;
    let Draws::Made(random) = &mut memory.draws else { return draw_number(memory, code, op, next) };
    memory.frame[op.to] = low.wrapping_add(below(random.draw(), numbers) as i64);
    next
}

/// Draws a number, and goes on as the branch behind it.
fn draw_and_unless_is<const OPERATOR: u8>(memory: &mut Memory, code: &Code, op: &Op, next: usize) -> usize {
    draw_among(memory, code, op, next);
    let (a, b) = op.compared;
    let frame = &memory.frame;
    if OPERATORS[OPERATOR as usize].apply(frame[a], frame[b]) == 0 { op.target as usize } else { next + 1 }
}

/// Notes the key of an access, of one part or of several, and what a write stores.
fn note_key<const ONE_PART: bool, const READS: bool>(memory: &mut Memory, code: &Code, op: &Op, _: usize) -> usize {
    let key = if ONE_PART {
        let value = memory.frame[op.a] as u64;
        (value <= op.among.1).then(|| value << op.b)
    } else {
        u64::packed(&code.accesses[op.number as usize], &memory.frame)
    };
    if memory.batched.push(key, !READS) {
        if !READS {
            memory.put_down(op.number.into(), &code.accesses[op.number as usize].stored);
        }
    } else {
        memory.unfit += 1;
    }
    op.target as usize
}

fn draw_zipf(memory: &mut Memory, code: &Code, op: &Op, next: usize) -> usize {
    match (&mut memory.draws, &code.draws[op.number as usize]) {
        (Draws::Made(random), Distribution::Zipf { zipf, step }) => {
            memory.frame[op.to] = scattered(zipf.draw(random.draw()), zipf.records(), *step);
            next
        }
        _ => draw_number(memory, code, op, next),
    }
}

fn draw_number(memory: &mut Memory, code: &Code, op: &Op, next: usize) -> usize {
    let Memory { draws, noted, frame, .. } = memory;
    frame[op.to] = draws.number(noted, &code.draws[op.number as usize], (frame[op.a], frame[op.b]));
    next
}

fn draw_text<const ANY: bool>(memory: &mut Memory, _: &Code, op: &Op, next: usize) -> usize {
    let Memory { draws, noted, frame, .. } = memory;
    draws.text(noted, frame, (op.to, op.a), (op.number, ANY));
    next
}

fn same_text(memory: &mut Memory, _: &Code, op: &Op, next: usize) -> usize {
    let frame = &mut memory.frame;
    let (first, second) = (frame[op.a], frame[op.b]);
    let words = (first.max(0) as usize).div_ceil(8);
    let same = first == second && frame.words(op.a + 1, words) == frame.words(op.b + 1, words);
    frame[op.to] = i64::from(same);
    next
}

fn unique(memory: &mut Memory, _: &Code, op: &Op, next: usize) -> usize {
    memory.frame[op.to] = (memory.first_unique + memory.uniques) * memory.workers + memory.worker;
    memory.uniques += 1;
    next
}

fn distinct(memory: &mut Memory, _: &Code, op: &Op, next: usize) -> usize {
    memory.frame[op.to] = i64::from(memory.passed.insert(memory.frame[op.a]));
    next
}

fn latest(memory: &mut Memory, _: &Code, op: &Op, next: usize) -> usize {
    memory.frame[op.to] = memory.recent[op.number as usize].key(memory.frame[op.a] as u64);
    next
}

fn unless(memory: &mut Memory, _: &Code, op: &Op, next: usize) -> usize {
    if memory.frame[op.a] == 0 { op.target as usize } else { next }
}

fn unless_by_rows(memory: &mut Memory, code: &Code, op: &Op, next: usize) -> usize {
    if memory.foresees() { next } else { unless(memory, code, op, next) }
}

fn unless_is<const OPERATOR: u8>(memory: &mut Memory, _: &Code, op: &Op, next: usize) -> usize {
    let frame = &memory.frame;
    if OPERATORS[OPERATOR as usize].apply(frame[op.a], frame[op.b]) == 0 { op.target as usize } else { next }
}

fn unless_is_by_rows<const OPERATOR: u8>(memory: &mut Memory, code: &Code, op: &Op, next: usize) -> usize {
    if memory.foresees() { next } else { unless_is::<OPERATOR>(memory, code, op, next) }
}

fn jump(_: &mut Memory, _: &Code, op: &Op, _: usize) -> usize {
    op.target as usize
}

fn jump_by_rows(memory: &mut Memory, _: &Code, op: &Op, next: usize) -> usize {
    if memory.foresees() { next } else { op.target as usize }
}

fn repeat(memory: &mut Memory, _: &Code, op: &Op, next: usize) -> usize {
    if memory.rounds_of(op.a, op.to) == 0 { op.target as usize } else { next }
}

fn again(memory: &mut Memory, _: &Code, op: &Op, next: usize) -> usize {
    memory.frame[op.to] -= 1;
    if memory.frame[op.to] > 0 { op.target as usize } else { next }
}
