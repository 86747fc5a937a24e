//! Transactions of any application, declared in a TOML file.
//!
//! ```toml
//! name = "shop"
//!
//! [table.items]               # optional: the groups of columns that conflict by themselves
//! groups = [["name", "price"], ["stock"]]
//!
//! [[transaction]]
//! name = "checkout"
//! steps = [
//!   "read users.name",        # MODE TABLE, or MODE TABLE.COLUMN, COLUMN
//!   { loop = ["read items.price", "add items.stock"] },
//!   { either = [["insert coupons"], ["modify coupons.used"]] },
//!   { piece = ["insert orders", "insert order_lines"], name = "order" },
//!   { call = "notify" },
//!   "cancel",                 # the application may roll back here
//! ]
//!
//! [[procedure]]
//! name = "notify"
//! steps = ["insert messages"]
//! ```
//!
//! Each step is a piece by itself, but for those in a loop or in a piece of the author's. All
//! branches count. A table that is not declared has one group.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};
use toml::{Spanned, Value};

use crate::chop::Chopping;
use crate::conflicts::Cancel;
use contend_model::counted;
use contend_model::pieces::{Access, DeclaredPiece, DeclaredTable, Mode, TransactionType, TypeSet};
use contend_model::{GROUPS_MAX, Groups};

use crate::check::{check_settled, check_type};
use crate::merge::Plan;
use crate::text::short_names;

/// The words of steps, each with its mode.
const MODES: [(&str, Mode); 8] = [
    ("read", Mode::Read),
    ("scan", Mode::Read),
    ("settled", Mode::Settled),
    ("write", Mode::Write),
    ("modify", Mode::Write),
    ("add", Mode::Update),
    ("insert", Mode::Insert),
    ("delete", Mode::Delete),
];

/// The most steps of all transactions, with those of procedures where they are called.
const STEPS_MAX: usize = 100_000;
/// The deepest nesting of steps.
const DEPTH_MAX: usize = 64;

/// The transactions of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Application {
    /// Its name.
    pub name: String,
    /// Its tables and transactions.
    pub types: TypeSet,
    /// What an author should know, in sentences.
    pub notes: Vec<String>,
}

/// A mistake in a file: the line and the column from 1, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FileError(String);

/// What the paper's study of web applications counts (IC3, table 2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Study {
    /// The application.
    pub name: String,
    /// Its transactions.
    pub transactions: usize,
    /// Those that access more than one table.
    pub on_several_tables: usize,
    /// Those in a cycle of which the pieces can't be ordered: they had to be merged.
    pub deadlock_prone: usize,
    /// Those with two or more steps that conflict, after merging: they can run in parallel with
    /// others that they conflict with.
    pub gain: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    table: BTreeMap<String, TableEntry>,
    #[serde(default)]
    procedure: Vec<Procedure>,
    #[serde(default)]
    transaction: Vec<Transaction>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableEntry {
    groups: Spanned<Vec<Vec<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Procedure {
    name: Spanned<String>,
    steps: Vec<Spanned<Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transaction {
    name: Spanned<String>,
    #[serde(default)]
    read_only: bool,
    steps: Vec<Spanned<Value>>,
}

/// A mistake, and its place in the text.
type At = (Range<usize>, String);

impl Application {
    /// Reads a file.
    ///
    /// # Errors
    /// The first mistake: the text is no TOML of this form, a step or a name is unknown, a call
    /// leads back to itself, or a declaration is not valid.
    pub fn from_toml(text: &str) -> Result<Application, FileError> {
        let file: File = toml::from_str(text).map_err(|error| FileError(error.to_string().trim_end().into()))?;
        let read = Reader::new(&file).and_then(|reader| reader.read());
        read.map_err(|(place, message)| {
            let before = &text[..place.start.min(text.len())];
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().map_or(0, |begin| begin.chars().count()) + 1;
            FileError(format!("line {line}, column {column}: {message}"))
        })
    }

    /// Returns what the study counts.
    pub fn study(&self, plan: &Plan) -> Study {
        let of_type = |of: &TransactionType| {
            let mut tables: Vec<usize> =
                of.pieces.iter().flat_map(|piece| &piece.accesses).map(|access| access.table).collect();
            tables.sort_unstable();
            tables.dedup();
            tables.len()
        };
        let is_merged = |group: &crate::merge::Group| {
            group.first < group.last && group.vertex.is_some_and(|vertex| plan.vertices[vertex].is_merged)
        };
        let tracked = |of: &crate::merge::TypePlan| of.groups.iter().filter(|group| group.rank.is_some()).count();
        Study {
            name: self.name.clone(),
            transactions: self.types.in_use().count(),
            on_several_tables: self.types.types.iter().filter(|of| of_type(of) > 1).count(),
            deadlock_prone: plan.types.iter().filter(|of| of.groups.iter().any(is_merged)).count(),
            gain: plan.types.iter().filter(|of| tracked(of) > 1).count(),
        }
    }

    /// Returns the notes, with those that follow from a plan: a cancel after something was shown.
    pub fn notes_on(&self, plan: &Plan, chopping: &Chopping) -> Vec<String> {
        let mut notes = self.notes.clone();
        let mut told = None;
        for Cancel { of, piece, shown } in plan.cancels(&self.types, chopping) {
            // The first of a type's late cancels is enough.
            let Some(group) = shown.filter(|_| told != Some(of)) else { continue };
            told = Some(of);
            let declared = &self.types.types[of];
            let shown = short_names(&self.types, of, &plan.types[of].groups[group]);
            notes.push(format!(
                "{} may cancel in {}, after {shown} was shown to others: those that saw it abort too",
                declared.name, declared.pieces[piece].name
            ));
        }
        notes
    }
}

impl Study {
    /// Returns the counts in one line.
    pub fn describe(&self) -> String {
        let Study { name, transactions, on_several_tables, deadlock_prone, gain } = self;
        format!(
            "{name}: {}, {on_several_tables} on more than one table, {deadlock_prone} in a deadlock-prone SC-cycle, {gain} gain by IC3",
            counted(*transactions, "transaction")
        )
    }
}

/// Turns the entries of a file into types.
struct Reader<'a> {
    file: &'a File,
    procedures: BTreeMap<&'a str, &'a Procedure>,
    types: TypeSet,
    /// The position of each table.
    tables: BTreeMap<String, usize>,
    /// The group of each column of the declared tables.
    columns: BTreeMap<(usize, String), usize>,
    /// Steps that were read.
    steps: usize,
}

impl<'a> Reader<'a> {
    fn new(file: &'a File) -> Result<Reader<'a>, At> {
        let mut reader = Reader {
            file,
            procedures: BTreeMap::new(),
            types: TypeSet::default(),
            tables: BTreeMap::new(),
            columns: BTreeMap::new(),
            steps: 0,
        };
        for procedure in &file.procedure {
            let name = procedure.name.get_ref();
            if reader.procedures.insert(name, procedure).is_some() {
                return Err((procedure.name.span(), format!("there are two procedures '{name}'")));
            }
        }
        for (name, TableEntry { groups }) in &file.table {
            let count = groups.get_ref().len();
            if !(1..=GROUPS_MAX).contains(&count) {
                let message = format!("table '{name}' has {count} groups; valid: 1 to {}", GROUPS_MAX);
                return Err((groups.span(), message));
            }
            if groups.get_ref().iter().any(Vec::is_empty) {
                return Err((groups.span(), format!("table '{name}' has a group without a column")));
            }
            let table = reader.table_of(name, count);
            reader.types.tables[table].columns.clone_from(groups.get_ref());
            for (group, column) in groups
                .get_ref()
                .iter()
                .enumerate()
                .flat_map(|(group, all)| all.iter().map(move |column| (group, column)))
            {
                if reader.columns.insert((table, column.clone()), group).is_some() {
                    return Err((groups.span(), format!("column '{column}' of table '{name}' is in two groups")));
                }
            }
        }
        Ok(reader)
    }

    /// Returns the position of a table, which is added if it is new.
    fn table_of(&mut self, name: &str, groups: usize) -> usize {
        if let Some(table) = self.tables.get(name) {
            return *table;
        }
        self.types.tables.push(DeclaredTable::new(name, groups));
        self.tables.insert(name.into(), self.types.tables.len() - 1);
        self.types.tables.len() - 1
    }

    fn read(mut self) -> Result<Application, At> {
        if self.file.transaction.is_empty() {
            return Err((0..0, "there is no [[transaction]]".into()));
        }
        let mut names = HashSet::new();
        for Transaction { name, read_only, steps } in &self.file.transaction {
            let mut pieces = Vec::new();
            for step in steps {
                self.step(step.get_ref(), &mut Vec::new(), &mut pieces, 0).map_err(|message| (step.span(), message))?;
            }
            if pieces.is_empty() {
                return Err((name.span(), format!("transaction '{}' has no step", name.get_ref())));
            }
            name_pieces(&mut pieces, &self.types);
            let (place, name) = (name.span(), name.get_ref().clone());
            if !names.insert(name.clone()) {
                return Err((place, format!("there are two transactions '{name}'")));
            }
            self.types.types.push(TransactionType { name, read_only: *read_only, pieces });
            let last = self.types.types.len() - 1;
            check_type(&self.types, last).map_err(|error| (place, error.to_string()))?;
        }
        check_settled(&self.types).map_err(|error| (0..0, error.to_string()))?;
        self.check_names()?;
        let changed = self.types.accesses().filter(|(_, access)| access.mode.changes());
        let written: HashSet<usize> = changed.map(|(_, access)| access.table).collect();
        let unwritten = (0..self.types.tables.len()).filter(|table| !written.contains(table));
        let note = |table: usize| format!("no transaction writes table '{}'", self.types.tables[table].name);
        let notes = unwritten.map(note).collect();
        Ok(Application { name: self.file.name.clone(), types: self.types, notes })
    }

    /// Refuses names that a terminal would take as commands.
    fn check_names(&self) -> Result<(), At> {
        let TypeSet { tables, types } = &self.types;
        let of_types = types.iter().flat_map(|of| of.pieces.iter().map(|piece| &piece.name).chain([&of.name]));
        let mut names = of_types.chain(tables.iter().map(|table| &table.name)).chain([&self.file.name]);
        match names.find(|name| name.contains(char::is_control)) {
            Some(name) => Err((0..0, format!("the name {name:?} has control characters"))),
            None => Ok(()),
        }
    }

    /// Adds the pieces of a step. `calls` are the procedures that led here.
    fn step(
        &mut self,
        step: &Value,
        calls: &mut Vec<String>,
        pieces: &mut Vec<DeclaredPiece>,
        depth: usize,
    ) -> Result<(), String> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(format!("there are more than {STEPS_MAX} steps, with those of procedures at each call"));
        }
        if depth > DEPTH_MAX {
            return Err(format!("steps are nested more than {DEPTH_MAX} deep"));
        }
        let forms = "valid: \"MODE TABLE.COLUMN\", \"cancel\", { loop = [..] }, { either = [[..], [..]] }, { piece = [..], name = \"..\" }, { call = \"..\" }";
        let entry = match step {
            Value::String(word) if word.trim() == "cancel" => {
                pieces.push(DeclaredPiece::new("cancel").cancels());
                return Ok(());
            }
            Value::String(words) => {
                let accesses = self.access(words)?;
                pieces.push(DeclaredPiece { name: String::new(), accesses, cancels: false });
                return Ok(());
            }
            Value::Table(entry) => entry,
            other => return Err(format!("a value of type {} is no step; {forms}", other.type_str())),
        };
        let keys: Vec<&str> = entry.keys().map(String::as_str).collect();
        match keys[..] {
            ["loop"] => {
                let steps = list(&entry["loop"], "loop")?;
                let piece = self.one_piece(steps, calls, depth)?;
                pieces.push(piece);
            }
            ["name", "piece"] | ["piece"] | ["piece", "name"] => {
                let mut piece = self.one_piece(list(&entry["piece"], "piece")?, calls, depth)?;
                if let Some(name) = entry.get("name") {
                    piece.name = name.as_str().ok_or("name is no text")?.into();
                }
                pieces.push(piece);
            }
            ["either"] => {
                for branch in list(&entry["either"], "either")? {
                    for step in list(branch, "a branch of either")? {
                        self.step(step, calls, pieces, depth + 1)?;
                    }
                }
            }
            ["call"] => {
                let name = entry["call"].as_str().ok_or("call is no text; valid: the name of a procedure")?;
                self.call(name, calls, pieces, depth)?;
            }
            _ => return Err(format!("{{ {} }} is no step; {forms}", keys.join(", "))),
        }
        Ok(())
    }

    /// Adds the pieces of a procedure where it is called.
    fn call(
        &mut self,
        name: &str,
        calls: &mut Vec<String>,
        pieces: &mut Vec<DeclaredPiece>,
        depth: usize,
    ) -> Result<(), String> {
        if calls.iter().any(|call| call == name) {
            return Err(format!("procedure '{name}' calls itself: {} -> {name}", calls.join(" -> ")));
        }
        let Some(procedure) = self.procedures.get(name).copied() else {
            let valid: Vec<&str> = self.procedures.keys().copied().collect();
            let valid = if valid.is_empty() { "there is none".into() } else { format!("valid: {}", valid.join(", ")) };
            return Err(format!("unknown procedure '{name}'; {valid}"));
        };
        calls.push(name.into());
        for step in &procedure.steps {
            self.step(step.get_ref(), calls, pieces, depth + 1)?;
        }
        calls.pop();
        Ok(())
    }

    /// Returns one piece of all these steps.
    fn one_piece(&mut self, steps: &[Value], calls: &mut Vec<String>, depth: usize) -> Result<DeclaredPiece, String> {
        let mut parts = Vec::new();
        for step in steps {
            self.step(step, calls, &mut parts, depth + 1)?;
        }
        let cancels = parts.iter().any(|part| part.cancels);
        let accesses: Vec<Access> = parts.into_iter().flat_map(|part| part.accesses).collect();
        if accesses.is_empty() && !cancels {
            return Err("a piece has no step".into());
        }
        Ok(DeclaredPiece { name: String::new(), accesses, cancels })
    }

    /// Parses `MODE TABLE` or `MODE TABLE.COLUMN, COLUMN`.
    fn access(&mut self, words: &str) -> Result<Vec<Access>, String> {
        let (word, place) = words.trim().split_once(char::is_whitespace).unwrap_or((words.trim(), ""));
        let modes = || MODES.map(|(word, _)| word).join(", ");
        let Some((_, mode)) = MODES.into_iter().find(|(name, _)| *name == word) else {
            return Err(format!("'{words}' begins with no mode; valid: {}, or \"cancel\"", modes()));
        };
        let (name, columns) = match place.trim().split_once('.') {
            Some((name, columns)) => (name.trim(), Some(columns)),
            None => (place.trim(), None),
        };
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(format!("'{words}' names no table; valid: {word} TABLE, or {word} TABLE.COLUMN, COLUMN"));
        }
        if columns.is_some_and(|columns| columns.split(',').any(|column| column.trim().is_empty())) {
            return Err(format!("'{words}' names no column behind the point; valid: {word} TABLE.COLUMN, COLUMN"));
        }
        let table = self.table_of(name, 1);
        let groups = match columns {
            Some(columns) if self.file.table.contains_key(name) => {
                let group = |column: &str| {
                    let group = self.columns.get(&(table, column.to_owned()));
                    group.copied().ok_or_else(|| self.no_column(table, column))
                };
                columns.split(',').map(str::trim).map(group).collect::<Result<Groups, _>>()?
            }
            _ => Groups::first(self.types.tables[table].groups),
        };
        Ok(vec![Access { table, groups, mode }])
    }

    fn no_column(&self, table: usize, column: &str) -> String {
        let own = self.columns.keys().filter(|(of, _)| *of == table).map(|(_, name)| name.as_str());
        let valid: Vec<&str> = own.collect();
        let name = &self.types.tables[table].name;
        format!("table '{name}' has no column '{column}'; valid: {}", valid.join(", "))
    }
}

fn list<'v>(value: &'v Value, what: &str) -> Result<&'v [Value], String> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| format!("{what} is no list of steps"))
}

/// Names the pieces that the author has not named by their first table. A name that is there gets
/// a number.
fn name_pieces(pieces: &mut [DeclaredPiece], types: &TypeSet) {
    let mut used: HashSet<String> = HashSet::new();
    for piece in pieces.iter_mut() {
        if piece.accesses.is_empty() {
            // A cancel, which has no name of its own.
            piece.name.clear();
        } else if !piece.name.is_empty() {
            used.insert(piece.name.clone());
        }
    }
    // The next number of each name, so that many pieces of one table take linear time.
    let mut next: HashMap<String, u32> = HashMap::new();
    for piece in pieces.iter_mut().filter(|piece| piece.name.is_empty()) {
        let base = piece.accesses.first().map_or("cancel", |access| &types.tables[access.table].name);
        let number = next.entry(base.to_owned()).or_insert(0);
        loop {
            *number += 1;
            let name = if *number == 1 { base.to_owned() } else { format!("{base}{number}") };
            if used.insert(name.clone()) {
                piece.name = name;
                break;
            }
        }
    }
}
