//! Where the aborts of a run came from: the conflict map in a result file, in the terminal and as
//! tables of the page.

use std::collections::BTreeMap;

use contend_engine::NamedConflicts;
use contend_runner::session::{Session, Tally};
use contend_runner::units::show_percent;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compare::by_reason;
use crate::result::{ProtocolResult, ResultFile};
use crate::tables::{Sheet, measured};

/// The keys of a table that a result keeps.
const KEYS_MAX: usize = 20;
/// The places that the terminal shows.
const PLACES_SHOWN: usize = 3;
/// The letters of a place's columns that are shown.
const LETTERS: usize = 32;
/// The name of a place that is not known.
const NO_PLACE: &str = "no place";

/// Where aborts came from. Shares are parts of all aborts by conflicts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConflictMapResult {
    /// The aborts by place and type of transaction, the most frequent first. They sum up to all
    /// aborts by conflicts.
    pub places: Vec<PlaceResult>,
    /// The keys with the most aborts, for each table with aborts.
    pub keys: Vec<KeysResult>,
}

/// The aborts of a type of transaction at one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlaceResult {
    /// The table. `None` for aborts whose place is not known.
    pub table: Option<String>,
    /// The columns of the group, or its number. `None` if the table's groups of columns have no
    /// versions of their own, or if it is not known which group it was.
    pub columns: Option<String>,
    /// The type of transaction.
    pub kind: String,
    /// Tries that a conflict aborted.
    pub aborts: u64,
    /// The same by reason.
    pub aborts_by_reason: BTreeMap<String, u64>,
    /// The part of all aborts by conflicts.
    pub share: f64,
}

/// The keys of a table with the most aborts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeysResult {
    /// The table.
    pub table: String,
    /// Aborts at rows whose keys are not known, and at gaps between rows.
    pub unknown: u64,
    /// The keys, the hottest first, up to 20.
    pub hottest: Vec<HotKeyResult>,
}

/// A key with many aborts. Keys are counted by a sketch, so the count has bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotKeyResult {
    /// The key.
    pub key: String,
    /// Tries that a conflict at this key aborted, at the most.
    pub aborts: u64,
    /// The most by which this count may be too large.
    pub error: u64,
    /// The count as a part of all aborts by conflicts.
    pub share: f64,
}

impl PlaceResult {
    /// Returns the place in a few letters: `item[stock, sold]`.
    pub fn name(&self) -> String {
        let Some(table) = &self.table else { return NO_PLACE.into() };
        let columns = self.columns.as_ref().map(|columns| crate::report::shortened(columns, LETTERS));
        columns.map_or_else(|| table.clone(), |columns| format!("{table}[{columns}]"))
    }
}

impl ConflictMapResult {
    /// Returns the map of a session's windows, whose transactions have ended.
    pub(crate) fn of(session: &dyn Session, total: &Tally) -> Option<Self> {
        let conflicts = total.conflicts.total();
        if conflicts == 0 {
            return None;
        }
        let NamedConflicts { places, keys } = session.name_conflicts(&total.conflicts);
        let share = |count: u64| count as f64 / conflicts as f64;
        let places = places.into_iter().map(|place| {
            let aborts = place.aborts.conflicts();
            PlaceResult {
                table: place.table,
                columns: place.group,
                kind: session.kinds().get(place.kind).map_or_else(|| place.kind.to_string(), |kind| kind.to_string()),
                aborts,
                aborts_by_reason: by_reason(&place.aborts),
                share: share(aborts),
            }
        });
        let keys = keys.into_iter().map(|table| KeysResult {
            table: table.table,
            unknown: table.unknown,
            hottest: table
                .keys
                .into_iter()
                .take(KEYS_MAX)
                .map(|key| HotKeyResult { key: key.key, aborts: key.count, error: key.error, share: share(key.count) })
                .collect(),
        });
        Some(ConflictMapResult { places: places.collect(), keys: keys.collect() })
    }

    /// Returns the places with their shares, of all types together, the most frequent first. Each
    /// has its most frequent type.
    pub fn by_place(&self) -> Vec<(String, f64, &str)> {
        let mut places: Vec<(String, f64, &str)> = Vec::new();
        // The places are in the order of their shares, so the first type is the most frequent one.
        for place in &self.places {
            let name = place.name();
            match places.iter_mut().find(|known| known.0 == name) {
                Some(known) => known.1 += place.share,
                None => places.push((name, place.share, &place.kind)),
            }
        }
        places.sort_by(|a, b| b.1.total_cmp(&a.1));
        places
    }

    /// Returns the keys of all tables, the hottest first, each with its table.
    fn by_key(&self) -> Vec<(&str, &HotKeyResult)> {
        let mut keys: Vec<(&str, &HotKeyResult)> = Vec::new();
        for table in &self.keys {
            keys.extend(table.hottest.iter().map(|key| (table.table.as_str(), key)));
        }
        keys.sort_by_key(|(_, key)| std::cmp::Reverse(key.aborts));
        keys
    }

    /// Returns the hottest places and keys in two lines, for a terminal.
    pub fn lines(&self) -> Vec<String> {
        let kinds = self.places.iter().map(|place| &place.kind).collect::<std::collections::BTreeSet<_>>().len();
        let place = |(name, share, kind): &(String, f64, &str)| match kinds {
            1 => format!("{name} {}", show_percent(*share)),
            _ => format!("{name} {} ({kind})", show_percent(*share)),
        };
        let places: Vec<String> = self.by_place().iter().take(PLACES_SHOWN).map(place).collect();
        let mut lines = vec![format!("aborts by place: {}", places.join(", "))];
        let tables = self.keys.iter().filter(|keys| !keys.hottest.is_empty()).count();
        let key = |(table, key): &(&str, &HotKeyResult)| {
            let name = if tables > 1 { format!("{table} {}", key.key) } else { key.key.clone() };
            format!("{name} {}", key.share_in_words())
        };
        let keys: Vec<String> = self.by_key().iter().take(PLACES_SHOWN).map(key).collect();
        if !keys.is_empty() {
            lines.push(format!("hottest keys: {}", keys.join(", ")));
        }
        lines
    }
}

impl HotKeyResult {
    /// Returns the share, with both bounds if they differ.
    pub fn share_in_words(&self) -> String {
        let least = self.share * (self.aborts - self.error.min(self.aborts)) as f64 / self.aborts.max(1) as f64;
        let bounds = [least, self.share].map(show_percent);
        if bounds[0] == bounds[1] { bounds[1].clone() } else { format!("{} to {}", bounds[0], bounds[1]) }
    }
}

/// Returns the entries that have a map.
pub(crate) fn mapped(result: &ResultFile) -> impl Iterator<Item = (&ProtocolResult, &ConflictMapResult)> {
    measured(result).filter_map(|(entry, measured)| Some((entry, measured.conflict_map.as_ref()?)))
}

/// Returns the table of an entry's aborts: places by types of transactions.
pub(crate) fn places(map: &ConflictMapResult) -> Sheet {
    let mut kinds: Vec<&str> = Vec::new();
    for place in map.places.iter().filter(|place| place.aborts > 0) {
        if !kinds.contains(&place.kind.as_str()) {
            kinds.push(&place.kind);
        }
    }
    let columns = ["table", "columns", "reasons"].into_iter().chain(kinds.iter().copied()).chain(["all"]);
    let mut sheet = Sheet { columns: columns.map(String::from).collect(), names: 3, rows: Vec::new() };
    let mut done: Vec<(&Option<String>, &Option<String>)> = Vec::new();
    for place in &map.places {
        let at = (&place.table, &place.columns);
        if done.contains(&at) {
            continue;
        }
        done.push(at);
        let here = || map.places.iter().filter(|other| (&other.table, &other.columns) == at);
        let reasons: std::collections::BTreeSet<&str> =
            here().flat_map(|other| other.aborts_by_reason.keys().map(String::as_str)).collect();
        let of_kind = |kind: &&str| here().filter(|other| other.kind == *kind).map(|other| other.share).sum::<f64>();
        let shares = kinds.iter().map(of_kind).chain([here().map(|other| other.share).sum()]);
        let names = [
            place.table.clone().unwrap_or_else(|| NO_PLACE.into()),
            place.columns.clone().unwrap_or_else(|| "–".into()),
            reasons.into_iter().collect::<Vec<_>>().join(", "),
        ];
        sheet.rows.push(names.into_iter().chain(shares.map(show_percent)).collect());
    }
    sheet
}

/// Returns the table of an entry's hottest keys.
pub(crate) fn keys(map: &ConflictMapResult) -> Sheet {
    let columns = ["table", "key", "aborts at most", "too many by at most", "share"].map(String::from);
    let mut sheet = Sheet { columns: columns.into(), names: 2, rows: Vec::new() };
    for KeysResult { table, unknown, hottest } in &map.keys {
        for key in hottest {
            let figures = [key.aborts.to_string(), key.error.to_string(), key.share_in_words()];
            sheet.rows.push([table.clone(), key.key.clone()].into_iter().chain(figures).collect());
        }
        if *unknown > 0 {
            let row = [table.as_str(), "not known", &unknown.to_string(), "0", "–"];
            sheet.rows.push(row.map(String::from).into());
        }
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> ConflictMapResult {
        let place = |table: Option<&str>, columns: Option<&str>, kind: &str, aborts: u64| PlaceResult {
            table: table.map(String::from),
            columns: columns.map(String::from),
            kind: kind.into(),
            aborts,
            aborts_by_reason: [("write_locked".to_string(), aborts)].into(),
            share: aborts as f64 / 100.0,
        };
        let key =
            |key: &str, aborts, error| HotKeyResult { key: key.into(), aborts, error, share: aborts as f64 / 100.0 };
        let hottest = vec![key("17", 40, 0), key("4", 20, 10)];
        ConflictMapResult {
            places: vec![
                place(Some("item"), Some("stock, sold"), "buy", 60),
                place(Some("item"), Some("price"), "buy", 20),
                place(Some("item"), Some("stock, sold"), "look", 15),
                place(None, None, "buy", 5),
            ],
            keys: vec![KeysResult { table: "item".into(), unknown: 3, hottest }],
        }
    }

    #[test]
    fn the_terminal_has_the_hottest_places_and_keys() {
        let lines = map().lines();
        assert_eq!(
            lines[0],
            "aborts by place: item[stock, sold] 75.0 % (buy), item[price] 20.0 % (buy), no place 5.0 % (buy)"
        );
        assert_eq!(lines[1], "hottest keys: 17 40.0 %, 4 10.0 % to 20.0 %");
    }

    #[test]
    fn tables_have_each_place_once_and_all_keys() {
        let places = places(&map());
        assert_eq!(places.columns, ["table", "columns", "reasons", "buy", "look", "all"]);
        assert_eq!(places.rows.len(), 3);
        assert_eq!(places.rows[0], ["item", "stock, sold", "write_locked", "60.0 %", "15.0 %", "75.0 %"]);
        let keys = keys(&map());
        assert_eq!(keys.rows.last().map(|row| row[..3].join(" ")), Some("item not known 3".into()));
    }
}
