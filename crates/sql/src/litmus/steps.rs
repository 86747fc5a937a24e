//! Transactions on sessions of their own that take their steps in a given order.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use contend_workloads::file::Input;
use contend_workloads::file::view::{Call, Ended, Executor, Value, View};

use super::Litmus;
use crate::connection::{Failure, Session};
use crate::record::{Fault, Recorded, Recorder, RecordingTexts};
use crate::run::Made;
use crate::system::Level;

/// How long a step may take before the server is asked whether it waits, and between questions.
const ASKED_EVERY: Duration = Duration::from_millis(5);
/// After this time a step is taken to wait, if the server can't say.
const UNTOLD: Duration = Duration::from_secs(1);
/// The longest time of a step: a server that says neither yes nor no is stuck.
const STUCK: Duration = Duration::from_secs(120);

/// What a transaction tells the scheduler when it has taken a step.
enum Told {
    /// It goes on.
    Step,
    /// It has ended.
    End(End),
}

/// How a transaction ended.
enum End {
    Committed(Recorded),
    RolledBack,
    /// The database has aborted it, for this reason.
    Aborted(String),
    /// The database has failed, in its own words.
    Failed(String),
}

/// What the transactions of a test have done.
pub(super) struct Stepped {
    pub(super) committed: Vec<Recorded>,
    pub(super) waits: bool,
    pub(super) aborts: BTreeSet<String>,
}

/// Runs the transactions of a test in its order of steps.
///
/// # Errors
/// The database fails, in its own words.
pub(super) fn run(
    made: &Made,
    level: Level,
    view: &View,
    texts: &RecordingTexts,
    test: &Litmus,
    fault: Fault,
) -> Result<Stepped, String> {
    let product = made.server.product;
    let mut sessions = Vec::new();
    for client in 0..test.transactions.len() {
        let mut session = made.place.open_at(client, false, product, level)?;
        // A step is to see what the steps before it have committed, on whatever node.
        made.place.wait_for_others(&mut *session, product, true)?;
        let number = session.number().map_err(Failure::words)?;
        sessions.push((session, made.place.open(client, false)?, number));
    }
    std::thread::scope(|scope| {
        let mut schedule = Schedule { all: Vec::new(), waits: false };
        for (place, (session, monitor, number)) in sessions.into_iter().enumerate() {
            let (go, may_go) = channel();
            let (tell, told) = channel();
            schedule.all.push(Scheduled { monitor, number, go, told, state: State::Ready });
            let transaction = Transaction { view, texts, name: test.transactions[place], place, fault };
            scope.spawn(move || transaction.run(session, &may_go, &tell));
        }
        let outcome = schedule.run(test.order);
        // The transactions that are left end when nobody lets them go on.
        drop(schedule);
        outcome
    })
}

/// A transaction on a thread of its own.
struct Transaction<'a> {
    view: &'a View,
    texts: &'a RecordingTexts,
    name: &'static str,
    place: usize,
    fault: Fault,
}

impl Transaction<'_> {
    /// Runs the transaction: a step for each message.
    fn run(&self, mut session: Box<dyn Session>, may_go: &Receiver<()>, tell: &Sender<Told>) {
        let end = self.steps(&mut *session, may_go, tell).unwrap_or_else(|failure| {
            let _ = session.batch("rollback");
            match failure {
                Failure::Retry(reason) => End::Aborted(reason),
                Failure::Duplicate => End::RolledBack,
                Failure::Lost(words) | Failure::Fatal(words) => End::Failed(words),
            }
        });
        // A scheduler that is gone has failed, and wants no more news.
        let _ = tell.send(Told::End(end));
    }

    fn steps(&self, session: &mut dyn Session, may_go: &Receiver<()>, tell: &Sender<Told>) -> Result<End, Failure> {
        let mut client = self.view.client(self.place, 3, 1);
        let mut input = Input::default();
        let kind = self.view.kinds().iter().position(|kind| *kind == self.name).expect("a transaction of the file");
        self.view.next_of(&mut client, &mut input, kind);
        let writer = self.place as u64 + 1;
        session.batch("begin")?;
        let recorder = Recorder {
            session,
            texts: self.texts,
            relations: self.view.relations(),
            writer,
            operations: Vec::new(),
            mark: 0,
            fault: self.fault,
        };
        let mut stepped = StepByStep { recorder, may_go, tell };
        let ended = self.view.run(&mut client, &input, &mut stepped)?;
        wait_for(may_go)?;
        let mut recorder = stepped.recorder;
        match ended {
            Ended::Cancelled => recorder.session.batch("rollback").map(|()| End::RolledBack),
            Ended::Done => {
                recorder.session.batch("commit")?;
                recorder.committed()?;
                let committed = Recorded { number: writer, worker: self.place as u64, operations: recorder.operations };
                Ok(End::Committed(committed))
            }
        }
    }
}

/// Waits for the next step.
fn wait_for(may_go: &Receiver<()>) -> Result<(), Failure> {
    may_go.recv().map_err(|_| Failure::Fatal("the test has ended".into()))
}

/// An executor that waits before each statement.
struct StepByStep<'a, 'b> {
    recorder: Recorder<'a>,
    may_go: &'b Receiver<()>,
    tell: &'b Sender<Told>,
}

impl Executor for StepByStep<'_, '_> {
    type Error = Failure;

    fn execute(&mut self, call: &Call<'_>, rows: &mut Vec<Vec<Value>>) -> Result<u64, Failure> {
        wait_for(self.may_go)?;
        let count = self.recorder.execute(call, rows)?;
        let _ = self.tell.send(Told::Step);
        Ok(count)
    }

    fn idle(&mut self, microseconds: u64) {
        self.recorder.idle(microseconds);
    }
}

/// Where a transaction is.
enum State {
    /// It may take a step.
    Ready,
    /// It has begun a step.
    Busy,
    /// It has begun a step that waits for another transaction.
    Waiting,
    Ended(End),
}

struct Scheduled {
    /// A second session on the same host, which is asked whether the first one waits.
    monitor: Box<dyn Session>,
    /// The number of its session.
    number: u64,
    go: Sender<()>,
    told: Receiver<Told>,
    state: State,
}

struct Schedule {
    all: Vec<Scheduled>,
    waits: bool,
}

impl Schedule {
    fn run(&mut self, order: &[usize]) -> Result<Stepped, String> {
        for transaction in order {
            self.step(transaction - 1)?;
        }
        // Steps that were left out while their transaction waited.
        while self.all.iter().any(|one| !matches!(one.state, State::Ended(_))) {
            for transaction in 0..self.all.len() {
                self.step(transaction)?;
            }
        }
        let mut stepped = Stepped { committed: Vec::new(), waits: self.waits, aborts: BTreeSet::new() };
        for one in self.all.drain(..) {
            match one.state {
                State::Ended(End::Committed(committed)) => stepped.committed.push(committed),
                State::Ended(End::Aborted(reason)) => _ = stepped.aborts.insert(reason),
                State::Ended(End::Failed(words)) => return Err(words),
                _ => {}
            }
        }
        Ok(stepped)
    }

    /// Lets a transaction take a step, if it is ready. Then all that wait are looked at: the step
    /// may have let them go on.
    fn step(&mut self, transaction: usize) -> Result<(), String> {
        let one = &mut self.all[transaction];
        if matches!(one.state, State::Ready) {
            // A transaction that has ended in the meantime tells so.
            let _ = one.go.send(());
            one.state = State::Busy;
            self.settle(transaction)?;
        }
        for other in 0..self.all.len() {
            if matches!(self.all[other].state, State::Waiting) {
                self.settle(other)?;
            }
        }
        Ok(())
    }

    /// Waits until a transaction has taken its step, or waits for another one.
    fn settle(&mut self, transaction: usize) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            let one = &mut self.all[transaction];
            match one.told.recv_timeout(ASKED_EVERY) {
                Ok(Told::Step) => one.state = State::Ready,
                Ok(Told::End(end)) => one.state = State::Ended(end),
                Err(RecvTimeoutError::Disconnected) => return Err("a session has ended without a word".into()),
                Err(RecvTimeoutError::Timeout) => {
                    let waits = one.monitor.waits(one.number).map_err(Failure::words)?;
                    let waits = waits.unwrap_or(begin.elapsed() >= UNTOLD);
                    if waits {
                        self.all[transaction].state = State::Waiting;
                        self.waits = true;
                        return Ok(());
                    }
                    if begin.elapsed() >= STUCK {
                        return Err("a step takes longer than two minutes, and waits for no lock".into());
                    }
                    continue;
                }
            }
            return Ok(());
        }
    }
}
