//! What a check of the tables says, if nothing is wrong.

use super::{Client, FileWorkload, Program};
use crate::workload::Checked;

/// The share of missed rows from which a check says so.
const MISSED_MAX: f64 = 0.1;
/// The most invariants that are named.
const NAMED_MAX: usize = 6;

impl FileWorkload {
    /// Counts rows of a table that loading has left out.
    pub(super) fn leave_out(&self, table: usize, rows: u64) {
        if rows > 0 {
            self.left_out.lock().unwrap_or_else(|poisoned| poisoned.into_inner())[table] += rows;
        }
    }

    /// Says that all invariants hold, and warns of what makes a run differ from what its writer
    /// meant: keys that are not there, and rows that were not loaded.
    pub(super) fn checked(&self, clients: &[&Client]) -> Checked {
        let mut text = held(&self.program);
        let warnings = [self.missed(clients), self.rows_left_out()].into_iter().flatten().collect::<Vec<_>>();
        if !warnings.is_empty() {
            text += &format!("{}{}", Checked::WARNING, warnings.join("; "));
        }
        Checked(text)
    }

    fn missed(&self, clients: &[&Client]) -> Option<String> {
        let named: u64 = clients.iter().map(|client| client.named).sum();
        let missed: u64 = clients.iter().map(|client| client.missed).sum();
        let share = missed as f64 / named.max(1) as f64;
        (share > MISSED_MAX).then(|| format!("{:.0} % of the keys that statements named were not there", share * 100.0))
    }

    fn rows_left_out(&self) -> Option<String> {
        let Program { tables, rows, .. } = &self.program;
        let left_out = self.left_out.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let of_tables = tables.iter().zip(rows).zip(left_out.iter()).filter(|(_, left_out)| **left_out > 0);
        let of_tables: Vec<String> = of_tables
            .map(|((table, rows), left_out)| {
                format!("{} of {} of {}", rows - left_out, contend_model::counted(*rows, "row"), table.name)
            })
            .collect();
        (!of_tables.is_empty()).then(|| {
            format!(
                "loaded were {}: [fill] gives the others a key that exists already, or that does not fit",
                of_tables.join(", ")
            )
        })
    }
}

/// Names the invariants, all of which hold.
fn held(program: &Program) -> String {
    let Program { name, invariants, .. } = program;
    let names: Vec<String> = invariants.iter().take(NAMED_MAX).map(|of| format!("'{}'", of.name)).collect();
    match invariants.len() {
        0 => format!("{name} has no invariant"),
        1 => format!("{} holds", names[0]),
        all if all > NAMED_MAX => {
            format!("{all} invariants of {name} hold: {} and {} more", names.join(", "), all - NAMED_MAX)
        }
        all => format!("{all} invariants of {name} hold: {}", names.join(", ")),
    }
}
