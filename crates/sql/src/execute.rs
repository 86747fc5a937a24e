//! One try of a transaction: begin, its statements, commit or rollback.

use contend_workloads::file::view::{Action, Call, Ended, Executor, Statement, Value, View};
use contend_workloads::file::{Client, Input};

use crate::connection::{Failure, Rows, Session};
use crate::system::Product;
use crate::text::{Purpose, Text, text_of};

/// Returns the texts of all statements of a file, by their numbers.
pub(crate) fn texts(product: Product, view: &View, purpose: Purpose) -> Vec<Text> {
    let text = |of: &Statement| text_of(product, &view.relations()[of.relation], of, purpose);
    view.statements().map(text).collect()
}

/// Runs statements as they are, without a look at versions.
pub(crate) struct Plain<'a> {
    pub(crate) session: &'a mut dyn Session,
    pub(crate) texts: &'a [Text],
}

impl Executor for Plain<'_> {
    type Error = Failure;

    fn execute(&mut self, call: &Call<'_>, rows: &mut Vec<Vec<Value>>) -> Result<u64, Failure> {
        let text = &self.texts[call.statement.number];
        let (found, changed) = match self.session.execute(&text.sql, &text.values(call, 0)) {
            // The transaction cancels itself.
            Err(Failure::Duplicate) if matches!(call.statement.action, Action::Insert { .. }) => return Ok(0),
            executed => executed?,
        };
        Ok(match call.statement.action {
            Action::Update(_) | Action::Insert { .. } | Action::Delete => changed,
            Action::Read { .. } | Action::Scan(_) => {
                let count = found.len() as u64;
                *rows = found;
                count
            }
            Action::Aggregate(_) => one_row(found, rows)?,
        })
    }

    fn idle(&mut self, microseconds: u64) {
        std::thread::sleep(std::time::Duration::from_micros(microseconds));
    }
}

/// Takes the row of aggregates, whose last column is the number of rows behind them.
fn one_row(found: Rows, rows: &mut Rows) -> Result<u64, Failure> {
    let mut row = found.into_iter().next().unwrap_or_default();
    match row.pop() {
        Some(Value::Number(count)) => {
            rows.push(row);
            Ok(count as u64)
        }
        _ => Err(Failure::Fatal("a select of aggregates has returned no count".into())),
    }
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    Committed,
    /// The transaction has cancelled itself, and is rolled back.
    Cancelled,
    /// The connection was lost at the commit, for this reason.
    Unknown(String),
}

/// Runs a transaction once. `session` returns the executor's session, for the borders of the
/// transaction.
///
/// # Errors
/// The try failed, and is rolled back.
pub(crate) fn attempt<E: Executor<Error = Failure>>(
    view: &View,
    client: &mut Client,
    input: &Input,
    executor: &mut E,
    session: impl Fn(&mut E) -> &mut dyn Session,
) -> Result<Tried, Failure> {
    session(executor).batch("begin")?;
    let ended = view.run(client, input, executor).and_then(|ended| match ended {
        Ended::Done => match session(executor).batch("commit") {
            Err(Failure::Lost(words)) => Ok(Tried::Unknown(words)),
            committed => committed.map(|()| Tried::Committed),
        },
        Ended::Cancelled => session(executor).batch("rollback").map(|()| Tried::Cancelled),
    });
    if ended.is_err() {
        // A server that has rolled back already may complain, and one that is gone can't answer.
        let _ = session(executor).batch("rollback");
    }
    ended
}
