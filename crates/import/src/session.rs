//! Sessions of a log: which statements are one transaction.
//!
//! A transaction lasts from `begin` to `commit` or `rollback`. Outside of them, statements with the
//! same virtual transaction id are one transaction, and so are those of one message. A statement
//! without such an id is a transaction of its own. Statements after a savepoint to which the
//! session returns are left out.

use std::collections::HashMap;

use crate::calls::{Literal, calls_of};
use crate::trace::{Step, Trace};
use crate::translate::Meaning;

/// The most sessions that are open at a time.
const SESSIONS_MAX: usize = 1 << 20;

/// A statement as a log has it.
#[derive(Clone, Debug)]
pub(crate) struct Logged<'a> {
    pub(crate) line: u64,
    /// When it began and ended, in seconds.
    pub(crate) begin: Option<f64>,
    pub(crate) end: Option<f64>,
    pub(crate) session: &'a str,
    /// The virtual transaction id; empty if the log has none.
    pub(crate) transaction: &'a str,
    pub(crate) sql: &'a str,
    pub(crate) parameters: &'a [Literal],
}

/// An open session.
#[derive(Debug, Default)]
struct Session {
    steps: Vec<Step>,
    /// Whether `begin` has come, and no end.
    is_explicit: bool,
    /// Whether a border of a transaction was seen.
    saw_border: bool,
    transaction: String,
    has_failed: bool,
    /// Savepoints, with the number of statements before each.
    savepoints: Vec<(String, usize)>,
    begin: Option<f64>,
    last_end: Option<f64>,
}

/// The open sessions of a log.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: HashMap<String, Session>,
}

/// Whether an id names a transaction: after the end of one its last number is 0.
fn is_id(transaction: &str) -> bool {
    transaction.rsplit('/').next().is_some_and(|last| !last.is_empty() && last != "0")
}

impl Sessions {
    fn session(&mut self, trace: &mut Trace, name: &str) -> &mut Session {
        if !self.open.contains_key(name) {
            trace.counts.sessions += 1;
            if self.open.len() >= SESSIONS_MAX {
                self.finish(trace);
            }
        }
        self.open.entry(name.to_owned()).or_default()
    }

    /// Takes a statement.
    pub(crate) fn statement(&mut self, trace: &mut Trace, logged: &Logged<'_>) {
        let session = self.session(trace, logged.session);
        session.follow(trace, logged.transaction);
        match calls_of(logged.sql, logged.parameters) {
            Ok(statements) => {
                for calls in statements {
                    for (number, call) in calls.into_iter().enumerate() {
                        let template = trace.template(&call.template, call.values.len(), logged.line);
                        let values = trace.values(template, &call.values);
                        let step = Step { template, values, is_logged: number == 0 };
                        session.take(trace, step, logged);
                    }
                }
            }
            Err(why) => {
                // A text that can't be divided into words may be cut by the log.
                let template = trace.unreadable(&why, logged.line);
                session.take(trace, Step { template, values: Vec::new(), is_logged: true }, logged);
            }
        }
        if !session.is_explicit && !is_id(&session.transaction) {
            session.commit(trace, false);
        }
        session.last_end = logged.end.or(session.last_end);
    }

    /// Takes an error of a session.
    pub(crate) fn failed(&mut self, trace: &mut Trace, name: &str, transaction: &str) {
        let session = self.session(trace, name);
        session.follow(trace, transaction);
        if session.is_explicit {
            session.has_failed = true;
        } else {
            session.clear();
            trace.counts.failed += 1;
        }
    }

    /// Takes the end of a session.
    pub(crate) fn ended(&mut self, trace: &mut Trace, name: &str) {
        if let Some(session) = self.open.remove(name) {
            session.finish(trace);
        }
    }

    /// Takes the end of the log.
    pub(crate) fn finish(&mut self, trace: &mut Trace) {
        let mut open: Vec<(String, Session)> = self.open.drain().collect();
        open.sort_by(|a, b| a.0.cmp(&b.0));
        open.into_iter().for_each(|(_, session)| session.finish(trace));
    }
}

impl Session {
    fn clear(&mut self) {
        self.steps.clear();
        self.savepoints.clear();
        self.is_explicit = false;
        self.has_failed = false;
    }

    /// Notes the transaction id of an entry. Another id than before ends a transaction.
    fn follow(&mut self, trace: &mut Trace, transaction: &str) {
        if is_id(transaction) && self.transaction != transaction {
            if is_id(&self.transaction) && self.is_explicit {
                // Its end is not in the log.
                trace.counts.without_end += 1;
                self.clear();
            } else {
                self.commit(trace, false);
            }
            self.transaction = transaction.to_owned();
        } else if !is_id(transaction) && !self.is_explicit {
            self.commit(trace, false);
            self.transaction.clear();
        }
    }

    fn take(&mut self, trace: &mut Trace, step: Step, logged: &Logged<'_>) {
        match trace.templates[step.template].meaning.clone() {
            Meaning::Begin => {
                if !self.is_explicit {
                    self.commit(trace, false);
                    self.is_explicit = true;
                    self.saw_border = true;
                    self.start(trace, logged);
                }
            }
            Meaning::Commit | Meaning::Rollback if !self.is_explicit => {
                // What came before belongs to it, and its beginning is not in the log.
                if !self.saw_border && !self.steps.is_empty() {
                    trace.counts.without_begin += 1;
                    self.clear();
                }
                self.saw_border = true;
            }
            Meaning::Commit if self.has_failed => self.fail(trace),
            Meaning::Rollback if self.has_failed => self.fail(trace),
            Meaning::Commit => self.commit(trace, false),
            Meaning::Rollback => self.commit(trace, true),
            Meaning::Savepoint(name) => self.savepoints.push((name, self.steps.len())),
            Meaning::Release => {}
            Meaning::RollbackTo(name) => {
                if let Some(at) = self.savepoints.iter().rposition(|(other, _)| *other == name) {
                    let kept = self.savepoints[at].1.min(self.steps.len());
                    trace.counts.undone += self.steps[kept..].iter().filter(|step| step.is_logged).count() as u64;
                    self.steps.truncate(kept);
                    self.savepoints.truncate(at + 1);
                    self.has_failed = false;
                }
            }
            Meaning::Ignored => trace.counts.ignored += 1,
            Meaning::Statement(_) | Meaning::Refused(_) => {
                if !self.is_explicit && self.steps.is_empty() {
                    self.start(trace, logged);
                }
                self.steps.push(step);
            }
        }
    }

    fn start(&mut self, trace: &mut Trace, logged: &Logged<'_>) {
        self.begin = logged.begin;
        trace.began(self.begin, self.last_end);
    }

    fn fail(&mut self, trace: &mut Trace) {
        trace.counts.failed += 1;
        self.clear();
    }

    fn commit(&mut self, trace: &mut Trace, is_cancelled: bool) {
        let steps = std::mem::take(&mut self.steps);
        if !steps.is_empty() {
            trace.add(steps, is_cancelled, 1);
        }
        self.clear();
    }

    fn finish(mut self, trace: &mut Trace) {
        if self.is_explicit {
            trace.counts.without_end += 1;
        } else {
            self.commit(trace, false);
        }
    }
}
