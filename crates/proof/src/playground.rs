//! A few transactions, taken step by step in an order that a person chooses.
//!
//! A script is run from the beginning each time, on the explorer's machine. There the same script
//! always does the same, so a longer script only adds to what a shorter one did. A transaction that
//! waits does not go on until another one lets it; its outcome then changes from `waits` to what it
//! has become.
//!
//! No protocol says for which transaction it waits. That is found by more scripts: in each the
//! other transactions are given up but one. If the step still waits, it waits for that one.
//!
//! ```text
//! script ── Conductor, a strategy ──> the core whose step it is, until it is done or only waits
//!                                  └> each core that waits, until no one gets further
//! ```

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use contend_derive::Row;
use contend_engine::{Abort, AbortReason, Engine, EngineConfig, Erased, IndexKind, Transaction, Txn};
use contend_judge::{Verification, recorded, verify_history};
use contend_machine::Machine;
use contend_model::{Load, TableSpec, Tables, TypedTable, counted};
use contend_runner::{ProtocolPlan, RunConfig, RunError};
use contend_sim::Simulated;
use contend_sim::explorer::{Choice, Explorer, Strategy};
use serde::{Deserialize, Serialize};

use crate::explore::factory_of;
use crate::retried::ErasedWorker;

/// The most transactions of a script.
pub const TRANSACTIONS_MAX: usize = 16;
/// The most keys.
pub const KEYS_MAX: usize = 64;
/// The most steps.
pub const STEPS_MAX: usize = 1000;
/// Accesses after which an execution is cut off: transactions wait for each other for ever.
const ACCESSES_MAX: u64 = 1_000_000;
/// Pauses after which a core only waits. A wait looks again after 32 pauses at most.
const PAUSES: u32 = 100;

/// Transactions on a table of integers, step by step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// The protocol, which may have options of its own.
    pub protocol: String,
    /// The keys, each with its value at the beginning.
    pub keys: Vec<(String, i64)>,
    /// The steps in their order.
    pub steps: Vec<ScriptStep>,
}

/// A step of a transaction. The first step of each is `begin`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptStep {
    /// The number of the transaction, from 1, in the order in which they begin.
    pub transaction: usize,
    /// What it does.
    pub action: Action,
}

/// What a step does. A key is told by its place in [`Script::keys`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Begins the transaction.
    Begin,
    /// Reads a value.
    Read(usize),
    /// Replaces a value without reading it.
    Write(usize, i64),
    /// Commits the transaction.
    Commit,
    /// Gives the transaction up.
    Rollback,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The transaction waits for another in this step.
    Waits,
    /// The step is done; a read has this value.
    Done(Option<i64>),
    /// The protocol has aborted the transaction, for this reason.
    Aborted(&'static str),
}

/// What a script has done.
#[derive(Clone, Debug, Serialize)]
pub struct Played {
    /// The outcome of each step.
    pub outcomes: Vec<Outcome>,
    /// The transactions for which each step waits, any one of which suffices to hold it up. None if
    /// the step does not wait, if only several together hold it up, or if it waits for none.
    pub waits_for: Vec<Vec<usize>>,
    /// The isolation level that the protocol promises.
    pub isolation: String,
    /// The judgement on the transactions that have committed, by that level. T1 is the transaction
    /// that began first.
    pub verification: Verification,
}

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Integer {
    value: i64,
}

type Integers = TypedTable<Integer, u64>;

/// What the cores and their conductor share.
struct Stage {
    actions: Vec<(usize, Action)>,
    /// The number of steps that may be taken.
    released: Cell<usize>,
    /// Whether all steps were taken, so that transactions that have not ended are given up.
    is_over: Cell<bool>,
    outcomes: RefCell<Vec<Outcome>>,
    numbers: RefCell<Vec<u64>>,
    tables: Vec<Integers>,
    seats: Vec<RefCell<ErasedWorker>>,
}

impl Stage {
    /// Waits until a step may be taken. Returns whether it is to be.
    fn awaits(&self, step: usize) -> bool {
        while self.released.get() <= step && !self.is_over.get() {
            Simulated::pause();
        }
        !self.is_over.get()
    }

    /// Notes the outcome of a step, unless the script was over before.
    fn note(&self, step: usize, outcome: Outcome) {
        if !self.is_over.get() {
            self.outcomes.borrow_mut()[step] = outcome;
        }
    }

    /// Whether a core has a step to take that is not done.
    fn is_busy(&self, core: usize) -> bool {
        let outcomes = self.outcomes.borrow();
        let released = self.actions.iter().zip(outcomes.iter()).take(self.released.get());
        released.into_iter().any(|((of, _), outcome)| *of == core && *outcome == Outcome::Waits)
    }

    /// Runs the transaction of a core.
    fn run(&self, core: usize) {
        let worker = &mut *self.seats[core].borrow_mut();
        self.transact(core, worker);
        worker.go_offline();
    }

    fn transact(&self, core: usize, worker: &mut ErasedWorker) {
        let mut steps = self.actions.iter().enumerate().filter(|(_, (of, _))| *of == core);
        let Some((begin, _)) = steps.next() else { return };
        if !self.awaits(begin) {
            return;
        }
        let mut tx = worker.begin();
        self.numbers.borrow_mut()[core] = tx.number();
        self.note(begin, tx.doomed().map_or(Outcome::Done(None), |reason| Outcome::Aborted(reason.name())));
        for (step, (_, action)) in steps {
            if !self.awaits(step) {
                return;
            }
            let done = match action {
                Action::Commit => return self.note(step, told(tx.commit().map(|()| None))),
                Action::Rollback => {
                    tx.abort(AbortReason::User);
                    return self.note(step, Outcome::Done(None));
                }
                Action::Begin => Ok(None),
                Action::Read(key) => self.read(&mut tx, *key),
                Action::Write(key, value) => tx.write(&self.tables[*key], 0, Integer { value: *value }).map(|_| None),
            };
            let Ok(value) = done else {
                // Others go on once it has ended.
                drop(tx);
                return self.note(step, told(done));
            };
            self.note(step, Outcome::Done(value));
        }
        // A transaction without further steps stays as it is until the script is over.
        self.awaits(usize::MAX);
    }

    fn read(&self, tx: &mut Transaction<'_, Erased<Simulated>, Simulated>, key: usize) -> Result<Option<i64>, Abort> {
        tx.read(&self.tables[key], 0, Integer::VALUE)
    }
}

fn told(done: Result<Option<i64>, Abort>) -> Outcome {
    match done {
        Ok(value) => Outcome::Done(value),
        Err(abort) => Outcome::Aborted(abort.reason.name()),
    }
}

/// Lets the core go on whose step it is, and then those that wait, as long as one gets further.
struct Conductor {
    stage: Rc<Stage>,
    /// The cores that are still to be tried before the next step, the present one last.
    turns: Vec<usize>,
    /// Pauses of the present core in its turn.
    pauses: u32,
    /// The number of busy cores when the round of those that wait began.
    busy_before: usize,
}

impl Conductor {
    /// Whether the present core has used up its turn.
    fn has_had_its_turn(&self, choice: &Choice<'_>) -> bool {
        let Some(core) = self.turns.last() else { return true };
        self.pauses >= PAUSES || !choice.runnable.contains(core) || !self.stage.is_busy(*core)
    }

    /// Makes another round of those that wait if the last round, or the step before it, has changed
    /// something. Else releases the next step.
    fn go_on(&mut self, choice: &Choice<'_>) {
        let busy: Vec<usize> = choice.runnable.iter().copied().filter(|core| self.stage.is_busy(*core)).collect();
        if busy.len() != self.busy_before {
            self.busy_before = busy.len();
            self.turns = busy;
            return;
        }
        match self.stage.actions.get(self.stage.released.get()) {
            Some((core, _)) => {
                self.stage.released.set(self.stage.released.get() + 1);
                self.turns = vec![*core];
                // Those that wait are tried once after each step.
                self.busy_before = usize::MAX;
            }
            None => self.stage.is_over.set(true),
        }
    }
}

impl Strategy for Conductor {
    fn begin(&mut self, _: usize) {}

    fn choose(&mut self, choice: &Choice<'_>) -> usize {
        self.pauses += u32::from(choice.waits);
        while !self.stage.is_over.get() && self.has_had_its_turn(choice) {
            self.pauses = 0;
            self.turns.pop();
            if self.turns.is_empty() {
                self.go_on(choice);
            }
        }
        match self.turns.last() {
            Some(core) if !self.stage.is_over.get() => *core,
            // All others end, and so the order does not matter.
            _ => {
                let running = choice.running.filter(|core| !choice.waits && choice.runnable.contains(core));
                let after = |core: usize| choice.runnable.iter().copied().find(|other| *other > core);
                running.or_else(|| choice.running.and_then(after)).unwrap_or(choice.runnable[0])
            }
        }
    }
}

/// Plays a script.
///
/// # Errors
/// The protocol is unknown or has a wrong option, or the script is too long or takes a step that is
/// impossible.
pub fn play(script: &Script) -> Result<Played, RunError> {
    // The workload has no part in it: a plan needs one.
    let workload = "litmus-random".into();
    let run = RunConfig { workload, protocols: vec![script.protocol.clone()], threads: 1, ..RunConfig::default() };
    let plan = run.resolve()?;
    let [protocol] = &plan.protocols[..] else {
        return Err(RunError::BadInput(format!("a playground has one protocol, not '{}'", script.protocol)));
    };
    let transactions = checked(script)?;
    // The explorer's machine keeps its memory for each host thread.
    std::thread::scope(|scope| {
        let played = scope.spawn(|| {
            let mut played = play_here(script, protocol, transactions)?;
            let waits_for = played.outcomes.iter().enumerate().map(|(step, outcome)| match outcome {
                Outcome::Waits => holders(script, protocol, &played.outcomes, step),
                _ => Ok(Vec::new()),
            });
            played.waits_for = waits_for.collect::<Result<_, _>>()?;
            Ok(played)
        });
        played.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns the transactions for which a step waits.
fn holders(
    script: &Script,
    protocol: &ProtocolPlan,
    outcomes: &[Outcome],
    step: usize,
) -> Result<Vec<usize>, RunError> {
    let waiting = script.steps[step].transaction;
    let running = running(script, outcomes);
    let waits_beside = |kept: Option<usize>| {
        let given_up = running.iter().filter(|(transaction, _)| *transaction != waiting && Some(*transaction) != kept);
        let mut steps = script.steps.clone();
        for (transaction, waits) in given_up {
            let rollback = ScriptStep { transaction: *transaction, action: Action::Rollback };
            // A transaction that waits takes no further step, so it gives up where it would wait.
            // One that waits to begin has to begin first.
            match waits {
                Some(at) if steps[*at].action != Action::Begin => steps[*at] = rollback,
                _ => steps.push(rollback),
            }
        }
        let script = Script { steps, ..script.clone() };
        let transactions = script.steps.iter().map(|step| step.transaction).max().unwrap_or(0);
        Ok::<_, RunError>(play_here(&script, protocol, transactions)?.outcomes[step] == Outcome::Waits)
    };
    let mut holders = Vec::new();
    // A step that waits although nobody else is there waits for no transaction.
    if !waits_beside(None)? {
        for (transaction, _) in running.iter().filter(|(transaction, _)| *transaction != waiting) {
            if waits_beside(Some(*transaction))? {
                holders.push(*transaction);
            }
        }
    }
    Ok(holders)
}

/// Returns the transactions that have not ended, each with the step in which it waits.
fn running(script: &Script, outcomes: &[Outcome]) -> Vec<(usize, Option<usize>)> {
    let mut running: Vec<(usize, Option<usize>)> = Vec::new();
    for (at, (step, outcome)) in script.steps.iter().zip(outcomes).enumerate() {
        let ends = matches!(step.action, Action::Commit | Action::Rollback) || matches!(outcome, Outcome::Aborted(_));
        match outcome {
            Outcome::Waits => {
                running.retain(|(transaction, _)| *transaction != step.transaction);
                running.push((step.transaction, Some(at)));
            }
            _ if ends => running.retain(|(transaction, _)| *transaction != step.transaction),
            _ if step.action == Action::Begin => running.push((step.transaction, None)),
            _ => {}
        }
    }
    running.sort_unstable();
    running
}

/// Checks the steps, and returns the number of transactions.
fn checked(script: &Script) -> Result<usize, RunError> {
    let refuse = |why: String| Err(RunError::BadInput(why));
    let (keys, steps) = (script.keys.len(), script.steps.len());
    if !(1..=KEYS_MAX).contains(&keys) || steps > STEPS_MAX {
        return refuse(format!(
            "{} and {}; valid: 1 to {KEYS_MAX} keys, at most {STEPS_MAX} steps",
            counted(keys, "key"),
            counted(steps, "step")
        ));
    }
    let mut begun = 0;
    for ScriptStep { transaction, action } in &script.steps {
        let key = match action {
            Action::Read(key) | Action::Write(key, _) => *key,
            Action::Begin | Action::Commit | Action::Rollback => 0,
        };
        let is_next = *transaction == begun + 1;
        begun += usize::from(is_next && *action == Action::Begin);
        let is_known = (1..=begun).contains(transaction) && (*action != Action::Begin || is_next);
        if !is_known || key >= keys {
            return refuse(format!("transaction {transaction} can't take the step {action:?} here"));
        }
    }
    if begun > TRANSACTIONS_MAX {
        return refuse(format!("{begun} transactions; valid: at most {TRANSACTIONS_MAX}"));
    }
    Ok(begun)
}

fn play_here(script: &Script, protocol: &ProtocolPlan, transactions: usize) -> Result<Played, RunError> {
    let no_memory = |error: &dyn std::fmt::Display| RunError::OutOfMemory(error.to_string());
    let mut explorer = Explorer::new(transactions.max(1), ACCESSES_MAX).map_err(|error| no_memory(&error))?;
    let engine = engine_of(protocol);
    let stage = Rc::new(stage_of(script, &engine, transactions)?);
    let bodies = (0..transactions).map(|core| {
        let stage = Rc::clone(&stage);
        Box::new(move || stage.run(core)) as Box<dyn FnOnce()>
    });
    let bodies: Vec<_> = bodies.collect();
    if !bodies.is_empty() {
        let mut conductor = Conductor { stage: Rc::clone(&stage), turns: Vec::new(), pauses: 0, busy_before: 0 };
        explorer.execute_beside(bodies, None, &mut conductor, false);
    }
    let outcomes = stage.outcomes.borrow().clone();
    let has_committed = |core: usize| {
        let committed = |((of, action), outcome): (&(usize, Action), &Outcome)| {
            *of == core && *action == Action::Commit && *outcome == Outcome::Done(None)
        };
        stage.actions.iter().zip(&outcomes).any(committed)
    };
    let mut committed = Vec::new();
    for core in (0..transactions).filter(|core| has_committed(*core)) {
        committed.extend(stage.seats[core].borrow_mut().take_history());
    }
    let mut verification = verify_history(&recorded(&engine, committed), protocol.info.isolation);
    rename(&mut verification, &stage.numbers.borrow(), &script.keys);
    let waits_for = vec![Vec::new(); outcomes.len()];
    Ok(Played { outcomes, waits_for, isolation: protocol.info.isolation.name().into(), verification })
}

/// Gives transactions the numbers in which they began, and keys their names: for the engine each
/// key is a table with one row.
fn rename(verification: &mut Verification, numbers: &[u64], keys: &[(String, i64)]) {
    let place = |number: u64| numbers.iter().position(|other| *other == number).map(|at| at as u64 + 1);
    let key = |text: &str| {
        let name = text.strip_suffix("/0")?;
        keys.iter().any(|(key, _)| key == name).then(|| name.to_owned())
    };
    for edge in &mut verification.cycle {
        (edge.from, edge.to) = (place(edge.from).unwrap_or(edge.from), place(edge.to).unwrap_or(edge.to));
        edge.key = key(&edge.key).unwrap_or_else(|| edge.key.clone());
        edge.reason = renamed(&edge.reason, &place, &key);
    }
    verification.explanation = verification.explanation.as_ref().map(|text| renamed(text, &place, &key));
}

/// Renames the words of a text. A word that becomes shorter in a column of a table is filled up.
fn renamed(text: &str, place: &dyn Fn(u64) -> Option<u64>, key: &dyn Fn(&str) -> Option<String>) -> String {
    let word = |word: &str| {
        let bare = &word[..word.find([';', ',', ']', ':']).unwrap_or(word.len())];
        let (letter, digits) = bare.strip_prefix('T').map_or(("", bare), |digits| ("T", digits));
        let number = digits.parse().ok().and_then(place).map(|number| format!("{letter}{number}"));
        number.or_else(|| key(bare)).map(|renamed| format!("{renamed}{}", &word[bare.len()..]))
    };
    let mut all = String::new();
    let mut words = text.split_inclusive([' ', '\n']).peekable();
    while let Some(part) = words.next() {
        let bare = part.trim_end_matches([' ', '\n']);
        let Some(renamed) = word(bare) else {
            all += part;
            continue;
        };
        let is_in_column = part.ends_with(' ') && words.peek().is_some_and(|next| next.trim().is_empty());
        let width = if is_in_column { bare.chars().count() } else { 0 };
        all += &format!("{renamed:width$}{}", &part[bare.len()..]);
    }
    all
}

fn engine_of(protocol: &ProtocolPlan) -> Arc<Engine<Erased<Simulated>, Simulated>> {
    let config = EngineConfig {
        // One worker more, for the loader. The number of a transaction follows from this number,
        // and is larger than any other number in a judgement.
        workers_max: TRANSACTIONS_MAX + 1,
        // Epochs don't pass: what happens follows from the steps alone.
        epoch_ms: u64::MAX,
        history: true,
        options: protocol.engine.clone(),
        ..EngineConfig::default()
    };
    Engine::new(factory_of(protocol)(), config)
}

/// Makes a table for each key, which then has the key's name in the judgement.
fn stage_of(
    script: &Script,
    engine: &Arc<Engine<Erased<Simulated>, Simulated>>,
    transactions: usize,
) -> Result<Stage, RunError> {
    let table = |(name, _): &(String, i64)| engine.create_typed(&TableSpec::of::<Integer>(name, IndexKind::Hash, 1));
    let tables: Vec<Integers> = script.keys.iter().map(table).collect();
    let mut loader = engine.loader().expect("room for it");
    for (table, (_, value)) in tables.iter().zip(&script.keys) {
        loader
            .insert_typed(table, 0, Integer { value: *value })
            .map_err(|error| RunError::OutOfMemory(format!("loading: {error}")))?;
    }
    drop(loader);
    let seats = (0..transactions).map(|_| RefCell::new(engine.worker().expect("room for it"))).collect();
    Ok(Stage {
        actions: script.steps.iter().map(|step| (step.transaction - 1, step.action)).collect(),
        released: Cell::new(0),
        is_over: Cell::new(false),
        outcomes: RefCell::new(vec![Outcome::Waits; script.steps.len()]),
        numbers: RefCell::new(vec![0; transactions]),
        tables,
        seats,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::{Begin, Commit, Read, Rollback, Write};

    fn played(protocol: &str, steps: &[(usize, Action)]) -> Result<Played, RunError> {
        let steps = steps.iter().map(|(transaction, action)| ScriptStep { transaction: *transaction, action: *action });
        let keys = [("x", 100), ("y", 100)].map(|(name, value)| (name.to_owned(), value)).to_vec();
        play(&Script { protocol: protocol.into(), keys, steps: steps.collect() })
    }

    const WRITE_SKEW: [(usize, Action); 8] = [
        (1, Begin),
        (2, Begin),
        (1, Read(0)),
        (2, Read(1)),
        (1, Write(1, 0)),
        (2, Write(0, 0)),
        (1, Commit),
        (2, Commit),
    ];

    #[test]
    fn snapshot_isolation_lets_write_skew_through_and_silo_does_not() {
        let skewed = played("si", &WRITE_SKEW).expect("valid");
        assert_eq!(skewed.outcomes[2], Outcome::Done(Some(100)));
        assert_eq!(skewed.outcomes[7], Outcome::Done(None));
        assert!(skewed.verification.passed, "its promise allows it");
        assert_eq!(skewed.verification.anomaly.as_deref(), Some("G2-item"));
        let edges: Vec<_> = skewed.verification.cycle.iter().map(|edge| (edge.from, edge.to, &*edge.key)).collect();
        assert_eq!(edges, [(1, 2, "x"), (2, 1, "y")]);
        let told = skewed.verification.explanation.expect("it has one");
        assert!(
            told.contains("T1 --[rw x]--> T2 --[rw y]--> T1") && told.contains("  T1           read       x    0 "),
            "{told}"
        );
        let prevented = played("silo", &WRITE_SKEW).expect("valid");
        assert!(matches!(prevented.outcomes[7], Outcome::Aborted(_)), "{prevented:?}");
        assert_eq!(prevented.verification.anomaly, None);
    }

    #[test]
    fn who_waits_goes_on_when_the_other_has_ended() {
        let steps = [(1, Begin), (2, Begin), (2, Write(0, 7)), (1, Write(0, 8)), (2, Commit), (1, Commit)];
        let waiting = played("2pl-waitdie", &steps[..4]).expect("valid");
        assert_eq!(waiting.outcomes[3], Outcome::Waits, "the older one waits");
        assert_eq!(waiting.waits_for, [vec![], vec![], vec![], vec![2]]);
        let done = played("2pl-waitdie", &steps).expect("valid");
        assert_eq!(done.outcomes, [Outcome::Done(None); 6]);
        assert!(done.waits_for.iter().all(Vec::is_empty));
        assert_eq!(done.verification.transactions, 2);
    }

    #[test]
    fn a_step_waits_for_each_transaction_that_alone_would_hold_it_up() {
        // T2 and T3 have read x, T4 has read y.
        let begun = [(1, Begin), (2, Begin), (3, Begin), (4, Begin), (2, Read(0)), (3, Read(0)), (4, Read(1))];
        let steps = [&begun[..], &[(1, Write(0, 7))]].concat();
        let two = played("2pl-waitdie", &steps).expect("valid");
        assert_eq!((two.outcomes[7], &two.waits_for[7]), (Outcome::Waits, &vec![2, 3]), "and not for T4");
        let one = played("2pl-waitdie", &[&steps[..], &[(2, Commit)]].concat()).expect("valid");
        assert_eq!((one.outcomes[7], &one.waits_for[7]), (Outcome::Waits, &vec![3]));
        // T1 waits for T2, which waits for T3: not for T3 itself.
        let chain = [
            (1, Begin),
            (2, Begin),
            (3, Begin),
            (3, Write(1, 5)),
            (2, Write(0, 5)),
            (2, Write(1, 6)),
            (1, Write(0, 6)),
        ];
        let chain = played("2pl-waitdie", &chain).expect("valid");
        assert_eq!(&chain.waits_for[5..], [vec![3], vec![2]]);
        // Transactions wait to begin.
        let queue = played("hstore", &[(1, Begin), (2, Begin), (3, Begin)]).expect("valid");
        assert_eq!(queue.waits_for, [vec![], vec![1], vec![1, 2]]);
    }

    #[test]
    fn what_was_rolled_back_is_not_seen() {
        let steps = [(1, Begin), (1, Write(0, 7)), (1, Rollback), (2, Begin), (2, Read(0)), (2, Commit)];
        let played = played("silo", &steps).expect("valid");
        assert_eq!(played.outcomes[4], Outcome::Done(Some(100)));
        assert_eq!(played.verification.transactions, 1);
    }

    #[test]
    fn impossible_scripts_are_refused() {
        let refusal = |protocol, steps: &[(usize, Action)]| played(protocol, steps).expect_err("refused").to_string();
        assert!(refusal("sillo", &[]).contains("silo"));
        assert!(refusal("silo,si", &[]).contains("silo,si"));
        assert!(refusal("silo", &[(1, Read(0))]).contains("transaction 1"));
        assert!(refusal("silo", &[(1, Begin), (1, Begin)]).contains("Begin"));
        assert!(refusal("silo", &[(1, Begin), (1, Read(2))]).contains("Read(2)"));
        assert!(played("silo", &[]).expect("valid").outcomes.is_empty());
    }
}
