//! The check of the rows after a run; see "Contents of a row" in [`super`].

use contend_model::{Inspect, counted, is_or_are};

use super::{AHEAD, Client, LOADED, WORKER_SHIFT, Ycsb};
use crate::workload::{Checked, Violation};

impl Ycsb {
    /// Checks all rows, and that the index lists no other.
    pub(super) fn check_rows<S: Inspect>(&self, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
        if let Some(client) = clients.iter().find(|client| client.wrong > 0) {
            return Err(Violation(format!(
                "committed transactions of worker {} made {} wrong observations: they missed keys that were there, or found absent keys, keys out of order, or other rows than before",
                client.worker, client.wrong
            )));
        }
        let (mut row, mut expected) = (Vec::new(), Vec::new());
        let mut tracked = 0;
        let mut ahead = Vec::with_capacity(AHEAD);
        for record in 0..self.options.records {
            let key = self.key(record);
            if record % AHEAD as u64 == 0 {
                ahead.clear();
                ahead.extend((record..self.options.records).take(AHEAD).map(|record| self.key(record)));
                store.announce(&self.table, &ahead);
            }
            if store.peek(&self.table, key, &mut row).is_none() {
                return Err(Violation(format!("key {key} was loaded, and is gone")));
            }
            for field in 0..self.options.fields {
                let (tag, writes) = self.check_field(record, field, &row, clients, &mut expected)?;
                tracked += u64::from(self.check_tracked(record, field, tag, writes, clients)?);
            }
        }
        for client in clients {
            for nth in 0..client.inserted {
                let record = self.inserted_record(client, nth);
                if store.peek(&self.table, self.key(record), &mut row).is_none() {
                    let (key, worker) = (self.key(record), client.worker);
                    return Err(Violation(format!(
                        "worker {worker} has committed an insert of key {key}, and it is gone"
                    )));
                }
                let mut loaded = false;
                for field in 0..self.options.fields {
                    loaded |= self.check_field(record, field, &row, clients, &mut expected)?.0 == LOADED;
                }
                if loaded {
                    return Err(Violation(format!("the inserted row of key {} holds no value", self.key(record))));
                }
            }
            // The next transaction of the client would insert these, or a cancelled one has tried
            // to.
            for nth in client.inserted..client.inserted + self.options.ops as u64 {
                let next = self.key(self.inserted_record(client, nth));
                if store.peek(&self.table, next, &mut row).is_some() {
                    return Err(Violation(format!("key {next} is there, and its insert has never committed")));
                }
            }
        }
        let inserted: u64 = clients.iter().map(|client| client.inserted).sum();
        let (mut rows, expected) = (0, self.options.records + inserted);
        let ordered = store.peek_all(&self.table, |_, _| rows += 1);
        if ordered && rows != expected && !clients.is_empty() {
            return Err(Violation(format!("the index lists rows: {rows}; loaded or inserted were {expected}")));
        }
        let listed = if ordered { ", and the index lists no others" } else { "" };
        let all_writes = if self.shape.counted { ", which count every write" } else { "" };
        let what = if self.options.fields == 1 { "tracked row" } else { "tracked field" };
        Ok(Checked(format!(
            "values of committed writers are in {}, the last ones in {}{all_writes}, {} {} there{listed}",
            counted(self.options.records, "row"),
            counted(tracked, what),
            counted(inserted, "inserted row"),
            is_or_are(inserted)
        )))
    }

    /// Checks one field of a record's row. Returns its tag, and its number of writes.
    fn check_field(
        &self,
        record: u64,
        field: usize,
        row: &[u64],
        clients: &[&Client],
        expected: &mut Vec<u64>,
    ) -> Result<(u64, u64), Violation> {
        let key = self.key(record);
        if !self.shape.is_whole(row, field, key, expected) {
            return Err(Violation(format!("the row of key {key} is torn: its words are not of one write")));
        }
        let tag = row[self.shape.span(field).words().start];
        if tag != LOADED && !clients.is_empty() {
            let (worker, sequence) = (tag >> WORKER_SHIFT, tag & ((1 << WORKER_SHIFT) - 1));
            let writer = clients.iter().find(|client| client.worker + 1 == worker);
            if !writer.is_some_and(|client| (1..=client.committed).contains(&sequence)) {
                let writer = describe(tag);
                return Err(Violation(format!("the row of key {key} was written by {writer}, which never committed")));
            }
        }
        Ok((tag, self.shape.writes(row, field)))
    }

    /// Checks a field against what the clients remember. Returns whether they track it.
    fn check_tracked(
        &self,
        record: u64,
        field: usize,
        tag: u64,
        writes: u64,
        clients: &[&Client],
    ) -> Result<bool, Violation> {
        let Some(position) = self.tracked(record, field).filter(|_| !clients.is_empty()) else { return Ok(false) };
        let key = self.key(record);
        let memories = clients.iter().map(|client| client.tracked[position]);
        let is_last = if tag == LOADED {
            memories.clone().all(|(last, _)| last == LOADED)
        } else {
            memories.clone().any(|(last, _)| last == tag)
        };
        if !is_last {
            let lasts: Vec<String> = memories.map(|(last, _)| describe(last)).collect();
            return Err(Violation(format!(
                "key {key} holds the value of {}, but the last committed writes of the workers are: {}",
                describe(tag),
                lasts.join("; ")
            )));
        }
        let committed: u64 = memories.map(|(_, writes)| writes).sum();
        if self.shape.counted && writes != committed {
            return Err(Violation(format!(
                "key {key} has seen {writes} read-modify-writes, but {committed} have committed: updates got lost"
            )));
        }
        Ok(true)
    }
}

fn describe(tag: u64) -> String {
    let sequence = tag & ((1 << WORKER_SHIFT) - 1);
    match (tag >> WORKER_SHIFT).checked_sub(1) {
        Some(worker) => format!("transaction {sequence} of worker {worker}"),
        None if tag == LOADED => "no transaction (loaded)".into(),
        // No transaction has such a tag: the row was overwritten with something else.
        None => format!("transaction {sequence} of no worker"),
    }
}
