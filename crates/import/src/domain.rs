//! Domains: the sets of keys that columns share, and their sizes.
//!
//! Columns of keys and indexes have a domain each. Columns share one if one refers to the other, or
//! if a transaction always uses one value for both. A domain's size is the range of its whole
//! numbers, unless most of the range is unused. Then it is the most likely number of keys.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use contend_model::counted;

use crate::schema::Schema;
use crate::spectrum::Spectrum;
use crate::trace::{INTERNED, NULL, UNKNOWN};
use crate::translate::ColumnAt;

/// The most rows of a table with a key of several columns.
const ROWS_MAX: u64 = 10_000_000;
/// The rows of such a table, if its keys allow more.
const SPARSE_ROWS: u64 = 1_000_000;
/// The size of a domain that the trace says nothing of.
const UNKNOWN_KEYS: u64 = 10_000;
/// How many times larger the range of numbers may be than the keys that were seen.
const SPARSE: f64 = 64.0;
/// The values of a key behind the first columns, for a column that is only inserted.
const UNREAD_KEYS: u64 = 10;

/// A set of keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Domain {
    /// The parameter of the file that has the size.
    pub(crate) name: String,
    pub(crate) keys: u64,
    /// How the size was found.
    pub(crate) how: String,
    /// How many keys there are for each number of the range.
    pub(crate) density: f64,
    /// The numbers that stand for constants, in the order in which they were seen.
    constants: HashMap<i64, u64>,
    members: Vec<ColumnAt>,
    values: Vec<i64>,
    /// The smallest and the largest number, if all keys are numbers.
    ends: Option<(i64, i64)>,
}

impl Domain {
    /// Returns the number that stands for a constant.
    pub(crate) fn constant(&mut self, value: i64) -> u64 {
        let next = self.constants.len() as u64;
        let number = *self.constants.entry(value).or_insert(next);
        number % self.keys.max(1)
    }

    /// Returns where a number lies between the ends: from 0 to 1.
    pub(crate) fn place(&self, value: i64) -> Option<f64> {
        let (least, most) = self.ends.filter(|(least, most)| least < most)?;
        Some((value as f64 - least as f64) / (most as f64 - least as f64))
    }

    fn size(&mut self) {
        let known: Vec<i64> = self.values.iter().copied().filter(|&value| value != NULL && value != UNKNOWN).collect();
        self.density = 1.0;
        let (Some(&least), Some(&most)) = (known.iter().min(), known.iter().max()) else {
            let is_unknown = self.values.contains(&UNKNOWN);
            self.keys = if is_unknown { UNKNOWN_KEYS } else { 0 };
            self.how = if is_unknown { "unknown: the trace has no keys".into() } else { "no key is read".into() };
            return;
        };
        let spectrum = Spectrum::of(known.iter().copied());
        self.ends = (most < INTERNED).then_some((least, most));
        let range = most.wrapping_sub(least) as u64;
        let range = range.saturating_add(1);
        if most < INTERNED && range as f64 <= SPARSE * spectrum.least_keys() {
            self.keys = range;
            self.how = format!("the range of what was seen, {}", counted(spectrum.keys as u64, "number"));
        } else {
            let likely = spectrum.likely_keys();
            let is_zipf = spectrum.distance_from_zipf(likely, spectrum.theta(likely)) <= spectrum.tolerance();
            self.keys = if is_zipf { likely } else { spectrum.least_keys().round() as u64 };
            let what = if is_zipf { "the most likely" } else { "a lower bound of the" };
            self.how = format!("{what} number of keys; {} were seen", spectrum.keys);
            if most < INTERNED {
                self.density = self.keys as f64 / range as f64;
            }
        }
    }
}

/// The domains of all columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Domains {
    parent: HashMap<ColumnAt, ColumnAt>,
    number: HashMap<ColumnAt, usize>,
    all: Vec<Domain>,
    /// The parameter and the rows of tables that do not have a row for each key.
    pub(crate) sparse: BTreeMap<usize, (String, u64)>,
}

impl Domains {
    /// Returns the domains that the schema tells: those of columns that refer to others.
    pub(crate) fn of(schema: &Schema) -> Domains {
        let mut domains = Domains::default();
        for (table, of) in schema.tables.iter().enumerate() {
            for (column, other, referred) in &of.references {
                let Some(other) = schema.table(other) else { continue };
                let referred = match referred {
                    Some(name) => schema.tables[other].column(name),
                    None => schema.tables[other].key.first().copied(),
                };
                if let Some(referred) = referred {
                    domains.join(ColumnAt { table, column: *column }, ColumnAt { table: other, column: referred });
                }
            }
        }
        domains
    }

    fn root(&self, mut at: ColumnAt) -> ColumnAt {
        while let Some(&parent) = self.parent.get(&at) {
            at = parent;
        }
        at
    }

    /// Makes two columns share a domain.
    pub(crate) fn join(&mut self, a: ColumnAt, b: ColumnAt) {
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            self.parent.insert(a.max(b), a.min(b));
        }
    }

    /// Adds values of a column. Call it after the last [`Domains::join`].
    pub(crate) fn see(&mut self, at: ColumnAt, values: &[i64]) {
        let root = self.root(at);
        let next = self.all.len();
        let number = *self.number.entry(root).or_insert(next);
        if number == next {
            self.all.push(Domain::default());
        }
        let domain = &mut self.all[number];
        if !domain.members.contains(&at) {
            domain.members.push(at);
        }
        domain.values.extend_from_slice(values);
    }

    /// Returns the domain of a column that was seen.
    pub(crate) fn at(&mut self, at: ColumnAt) -> &mut Domain {
        if !self.number.contains_key(&self.root(at)) {
            self.see(at, &[]);
        }
        let number = self.number[&self.root(at)];
        &mut self.all[number]
    }

    /// Returns all domains with keys.
    pub(crate) fn named(&self) -> impl Iterator<Item = &Domain> {
        self.all.iter().filter(|domain| domain.keys > 0)
    }

    /// Computes all sizes. `used` are the tables of the file, `read` those whose rows are read or
    /// changed, and `rows` the sizes that the user gives.
    pub(crate) fn size(
        &mut self,
        schema: &Schema,
        used: &BTreeSet<usize>,
        read: &BTreeSet<usize>,
        rows: &BTreeMap<usize, u64>,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        for domain in &mut self.all {
            domain.size();
            domain.values = Vec::new();
        }
        for &table in used {
            let of = &schema.tables[table];
            let is_read = read.contains(&table);
            for &column in &of.key {
                let domain = self.at(ColumnAt { table, column });
                if domain.keys == 0 && is_read {
                    domain.keys = if of.key.len() > 1 { UNREAD_KEYS } else { UNKNOWN_KEYS };
                    domain.how = "assumed, since no key is read; --rows sets the rows".into();
                }
            }
            let product = of
                .key
                .iter()
                .fold(1u64, |product, &column| product.saturating_mul(self.at(ColumnAt { table, column }).keys.max(1)));
            match (rows.get(&table), &of.key[..]) {
                (Some(&count), &[column]) => {
                    let domain = self.at(ColumnAt { table, column });
                    domain.keys = count;
                    domain.how = "given by --rows".into();
                }
                (Some(&count), [_, _, ..]) if is_read && count < product => {
                    self.sparse.insert(table, (String::new(), count));
                }
                (None, [_, _, ..]) if is_read && product > ROWS_MAX => {
                    notes.push(format!(
                        "The keys of {} allow {product} rows, and {SPARSE_ROWS} are loaded: reads of a row may miss.",
                        of.name
                    ));
                    self.sparse.insert(table, (String::new(), SPARSE_ROWS));
                }
                _ => {}
            }
        }
        self.name(schema);
        notes
    }

    /// Gives each domain the name of a table, if it is the whole key of one, or of a column.
    fn name(&mut self, schema: &Schema) {
        let mut taken =
            BTreeSet::from(["theta".to_owned(), "row".into(), "found".into(), "scale".into(), "client_id".into()]);
        for domain in &mut self.all {
            domain.members.sort_unstable();
            let is_key = |at: &&ColumnAt| schema.tables[at.table].key == [at.column];
            let at = domain
                .members
                .iter()
                .find(is_key)
                .or(domain.members.first())
                .copied()
                .unwrap_or(ColumnAt { table: 0, column: 0 });
            let of = &schema.tables[at.table];
            let name = if of.key == [at.column] {
                of.name.clone()
            } else {
                format!("{}_{}", of.name, of.columns[at.column].name)
            };
            domain.name = free(&plain(&name, 32), &taken);
            taken.insert(domain.name.clone());
        }
        for (&table, (name, _)) in &mut self.sparse {
            *name = free(&plain(&schema.tables[table].name, 32), &taken);
            taken.insert(name.clone());
        }
    }
}

/// Returns a name of small letters, digits and `_`, cut to a length.
pub(crate) fn plain(name: &str, most: usize) -> String {
    let letters = name.to_lowercase();
    let letters = letters.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' });
    let plain: String = letters.take(most).collect();
    if plain.starts_with(|first: char| first.is_ascii_lowercase()) { plain } else { format!("x{plain}") }
}

/// Returns the name with a number behind it, if it is taken.
pub(crate) fn free(name: &str, taken: &BTreeSet<String>) -> String {
    if !taken.contains(name) {
        return name.to_owned();
    }
    (2..).map(|number| format!("{name}_{number}")).find(|name| !taken.contains(name)).expect("numbers do not end")
}
