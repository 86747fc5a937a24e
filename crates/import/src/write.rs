//! The text of the workload file.

use contend_model::counted;
use std::collections::{BTreeMap, BTreeSet};

use crate::domain::{free, plain};
use crate::fit::{Fit, Fits, How};
use crate::trace::Trace;
use crate::translate::{ColumnAt, Role, Statement, Verb, filled};
use crate::types::TransactionType;

/// The most variables of a script that are there for people only.
const VARIABLES: usize = 40;
/// The rows of a table in a proof.
const VERIFIED_KEYS: u64 = 100;
/// The values of a column in a proof, in a key of several.
const VERIFIED_VALUES: u64 = 20;

/// How far the keys behind two values of the first column are apart: a prime.
const SHIFT: u64 = 7919;

/// A script, and what it is called.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) weight: u64,
    pub(crate) is_read_only: bool,
    pub(crate) text: String,
    pub(crate) comment: String,
}

/// What stands around the scripts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    /// The name of the workload.
    pub(crate) name: String,
    pub(crate) summary: String,
    /// The lines above the file.
    pub(crate) header: Vec<String>,
    /// The skew that is unknown, if there is one.
    pub(crate) theta: Option<f64>,
}

/// Returns the scripts of all types.
pub(crate) fn scripts_of(trace: &Trace, types: &[TransactionType], fits: &Fits) -> Vec<Script> {
    let mut taken = BTreeSet::new();
    let mut scripts = Vec::new();
    for (number, of) in types.iter().enumerate() {
        let known: Vec<&Statement> =
            of.statements.iter().filter_map(|statement| trace.templates[statement.template].statement()).collect();
        let changes = |statement: &&&Statement| !matches!(statement.verb, Verb::Read | Verb::Scan);
        let Some(first) = known.iter().find(changes).or(known.first()) else { continue };
        let verb = match first.verb {
            Verb::Read => "read",
            Verb::Scan => "scan",
            Verb::Update => "update",
            Verb::Insert => "insert",
            Verb::Delete => "delete",
        };
        let name = format!("{verb}_{}", plain(&trace.schema.tables[first.table].name, 24));
        let name = free(&name, &taken);
        taken.insert(name.clone());
        let writer = ScriptWriter::new(trace, of, &fits.of[number], &fits.rounds[number], fits);
        scripts.push(Script {
            name: name.replace('_', "-"),
            weight: of.count,
            is_read_only: known
                .iter()
                .all(|of| matches!(of.verb, Verb::Read | Verb::Scan) && !of.text.contains(" for update")),
            text: writer.text(),
            comment: counted(of.count, "transaction"),
        });
    }
    scripts
}

/// Writes the script of a type.
struct ScriptWriter<'a> {
    trace: &'a Trace,
    of: &'a TransactionType,
    fits: &'a [Vec<Fit>],
    rounds: &'a [Fit],
    /// The variable of each parameter that has one.
    variables: BTreeMap<(usize, usize), String>,
    taken: BTreeSet<String>,
}

impl<'a> ScriptWriter<'a> {
    fn new(
        trace: &'a Trace,
        of: &'a TransactionType,
        fits: &'a [Vec<Fit>],
        rounds: &'a [Fit],
        all: &Fits,
    ) -> ScriptWriter<'a> {
        let mut taken: BTreeSet<String> = all.domains.named().map(|domain| domain.name.clone()).collect();
        taken.extend(all.domains.sparse.values().map(|(name, _)| name.clone()));
        taken.extend(["theta", "found", "client_id", "scale", "row"].map(str::to_owned));
        let mut writer = ScriptWriter { trace, of, fits, rounds, variables: BTreeMap::new(), taken };
        // Parameters whose value is needed twice have a variable, and others as long as there is
        // room.
        let mut needed = BTreeSet::new();
        for (at, fits) in fits.iter().enumerate() {
            let text = &writer.statement(at).text;
            for (parameter, fit) in fits.iter().enumerate() {
                let uses = text.matches(&crate::translate::marker(parameter)).count();
                match &fit.how {
                    How::Equal(other, of) => _ = needed.insert((*other, *of)),
                    How::Above(low, _) => _ = needed.insert((at, *low)),
                    How::Counter if uses > 0 => _ = needed.insert((at, parameter)),
                    How::Steps(..) if uses > 0 => _ = needed.insert((at, parameter)),
                    How::Draw(_) if uses > 1 => _ = needed.insert((at, parameter)),
                    _ => {}
                }
            }
        }
        let mut room = VARIABLES.saturating_sub(needed.len());
        for (at, fits) in fits.iter().enumerate() {
            for (parameter, fit) in fits.iter().enumerate() {
                let is_drawn = matches!(fit.how, How::Draw(_));
                if needed.contains(&(at, parameter)) && !matches!(fit.how, How::Equal(..) | How::Plain(_)) {
                    writer.name(at, parameter);
                } else if is_drawn
                    && room > 0
                    && writer.statement(at).text.contains(&crate::translate::marker(parameter))
                {
                    room -= 1;
                    writer.name(at, parameter);
                }
            }
        }
        writer
    }

    fn statement(&self, at: usize) -> &'a Statement {
        self.trace.templates[self.of.statements[at].template]
            .statement()
            .expect("a type has statements of the language")
    }

    /// Returns the name of the column that a parameter belongs to.
    fn column(&self, at: usize, parameter: usize) -> String {
        match self.statement(at).roles[parameter] {
            Role::Key(of) | Role::Low(of) | Role::High(of, _) | Role::Stored(of) | Role::Number(of) => {
                self.trace.schema.tables[of.table].columns[of.column].name.clone()
            }
            Role::Text(_) | Role::Count | Role::Unused => "n".into(),
        }
    }

    fn name(&mut self, at: usize, parameter: usize) {
        let name = free(&plain(&self.column(at, parameter), 20), &self.taken);
        self.taken.insert(name.clone());
        self.variables.insert((at, parameter), name);
    }

    /// Returns a parameter's value as it is written in a statement.
    fn value(&self, at: usize, parameter: usize) -> String {
        if let Some(name) = self.variables.get(&(at, parameter)) {
            return format!(":{name}");
        }
        match &self.fits[at][parameter].how {
            How::Plain(text) | How::Draw(text) => text.clone(),
            How::Equal(other, of) => self.value(*other, *of),
            How::Above(low, width) => format!("{} + {width}", self.value(at, *low)),
            How::Steps(..) | How::Counter => "0".into(),
        }
    }

    /// Adds the lines that draw the parameters of a statement.
    fn draws(&self, at: usize, indent: &str, text: &mut String) {
        let known = self.statement(at);
        for (parameter, fit) in self.fits[at].iter().enumerate() {
            if !known.text.contains(&crate::translate::marker(parameter)) {
                continue;
            }
            let variable = self.variables.get(&(at, parameter));
            if !fit.comment.is_empty() {
                let name = variable.cloned().unwrap_or_else(|| self.column(at, parameter));
                *text += &format!("{indent}-- {}: {}\n", name.replace(['\n', '\''], " "), fit.comment);
            }
            let Some(name) = variable else { continue };
            match &fit.how {
                How::Draw(expression) => *text += &format!("{indent}\\set {name} {expression}\n"),
                How::Counter => *text += &format!("{indent}\\set {name} :{name} + 1\n"),
                How::Above(low, width) => {
                    *text += &format!("{indent}\\set {name} {} + {width}\n", self.value(at, *low));
                }
                How::Steps(first, second) => {
                    *text += &format!("{indent}\\set {name} {first}\n");
                    *text += &format!("{indent}\\set {name} {}\n", second.replace('\u{3}', &format!(":{name}")));
                }
                How::Plain(_) | How::Equal(..) => {}
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for at in 0..self.of.statements.len() {
            let group = self.of.statements[at].group;
            let indent = if group.is_some() { "  " } else { "" };
            if let Some(group) = group.filter(|&group| self.of.groups[group].first == at) {
                let rounds = &self.rounds[group];
                for (_, name) in self.variables.iter().filter(|((at, parameter), _)| {
                    self.of.statements[*at].group == Some(group) && self.fits[*at][*parameter].how == How::Counter
                }) {
                    text += &format!("\\set {name} 0\n");
                }
                if !rounds.comment.is_empty() {
                    text += &format!("-- rounds: {}\n", rounds.comment);
                }
                match &rounds.how {
                    How::Draw(expression) => {
                        text += &format!("\\set rounds_{group} {expression}\n\\repeat :rounds_{group}\n");
                    }
                    How::Plain(count) => text += &format!("\\repeat {count}\n"),
                    _ => text += "\\repeat 1\n",
                }
            }
            let known = self.statement(at);
            if !known.left_out.is_empty() {
                text += &format!("{indent}-- left out: {}\n", known.left_out.join("; "));
            }
            self.draws(at, indent, &mut text);
            for line in filled(&known.text, |parameter| self.value(at, parameter)).lines() {
                text += &format!("{indent}{line}\n");
            }
            if group.is_some_and(|group| self.of.groups[group].end == at + 1) {
                text += "\\endrepeat\n";
            }
        }
        if self.of.is_cancelled {
            text += "rollback;\n";
        }
        text
    }
}

/// Returns a text in quotes, as TOML has it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted.push(' '),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// How the tables of a file are loaded.
#[derive(Debug, Default)]
struct Loading {
    /// The lines of `[rows]`, and those of `[fill]`.
    rows: String,
    fill: String,
    /// The parameters of keys with several columns.
    shared: BTreeSet<String>,
}

/// Returns how tables are loaded. `indexes` are those of the file, by table.
fn loading_of(trace: &Trace, fits: &mut Fits, indexes: &BTreeSet<(usize, usize)>) -> Loading {
    let schema = &trace.schema;
    let mut loading = Loading::default();
    for table in fits.used.clone() {
        let of = &schema.tables[table];
        let names: Vec<String> =
            of.key.iter().map(|&column| fits.domains.at(ColumnAt { table, column }).name.clone()).collect();
        let is_loaded = fits.read.contains(&table) && !names.is_empty();
        let product = |names: &[String]| names.iter().map(|name| format!(":{name}")).collect::<Vec<_>>().join(" * ");
        let sparse = fits.domains.sparse.get(&table).map(|(name, _)| format!(":{name}"));
        let rows = sparse.clone().unwrap_or_else(|| product(&names));
        let rows = if is_loaded { quoted(&rows) } else { "0".into() };
        loading.rows += &format!("{} = {rows}\n", quoted(&of.name));
        let own = indexes.iter().filter(|(other, _)| *other == table);
        let indexed: BTreeSet<usize> = own.flat_map(|&(_, index)| of.indexes[index].clone()).collect();
        for (column, described) in of.columns.iter().enumerate().filter(|_| is_loaded) {
            let expression = match of.key.iter().position(|key| *key == column) {
                Some(_) if names.len() == 1 => continue,
                // The first columns vary first. The next one is shifted for each of their values.
                Some(0) if sparse.is_some() => format!("mod(:row, :{})", names[0]),
                Some(part) if sparse.is_some() => {
                    let before = product(&names[..part]);
                    format!("mod(:row / ({before}) + mod(:row, {before}) * {SHIFT}, :{})", names[part])
                }
                Some(part) if part + 1 == names.len() => format!("mod(:row, :{})", names[part]),
                Some(part) => format!("mod(:row / ({}), :{})", product(&names[part + 1..]), names[part]),
                None if indexed.contains(&column) && fits.domains.at(ColumnAt { table, column }).keys > 0 => {
                    format!("random(0, :{} - 1)", fits.domains.at(ColumnAt { table, column }).name)
                }
                None => continue,
            };
            let name = format!("{}.{}", of.name, described.name);
            loading.fill += &format!("{} = {}\n", quoted(&name), quoted(&expression));
        }
        if names.len() > 1 {
            loading.shared.extend(names);
        }
    }
    loading
}

/// Returns the schema of the file, below notes on types that were replaced.
fn schema_of(trace: &Trace, fits: &Fits, indexes: &BTreeSet<(usize, usize)>) -> String {
    let mut schema = trace.schema.clone();
    for at in &fits.fresh {
        let column = &mut schema.tables[at.table].columns[at.column];
        if column.written == "smallint" || column.written == "boolean" {
            // New numbers are larger.
            let before = column.written.clone();
            column.replaced.get_or_insert(before);
            column.written = "bigint".into();
        }
    }
    let mut text = String::new();
    for &table in &fits.used {
        for column in &schema.tables[table].columns {
            if let Some(replaced) = &column.replaced {
                let name = format!("{}.{}", schema.tables[table].name, column.name);
                text += &format!("# {} was {}\n", quoted(&name), quoted(replaced));
            }
        }
    }
    let tables = schema.text(|table| fits.used.contains(&table), |table, index| indexes.contains(&(table, index)));
    text + &format!("schema = '''\n{tables}'''\n")
}

/// Returns the text of the file.
pub(crate) fn file_of(trace: &Trace, fits: &mut Fits, frame: &Frame, scripts: &[Script]) -> String {
    let mut text = String::new();
    for line in &frame.header {
        let line: String = line.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        text += format!("# {line}").trim_end();
        text.push('\n');
    }
    text += &format!("version = 1\nname = {}\nsummary = {}\n", quoted(&frame.name), quoted(&frame.summary));
    let known = trace.templates.iter().filter_map(|template| template.statement());
    let indexes = known.filter_map(|known| known.index.map(|index| (known.table, index))).collect();
    text += &schema_of(trace, fits, &indexes);
    let loading = loading_of(trace, fits, &indexes);
    text += &format!("\n[rows]\n{}\n[parameters]\n", loading.rows);
    for domain in fits.domains.named() {
        text += &format!("# {}\n{} = {}\n", domain.how, domain.name, domain.keys);
    }
    for (name, rows) in fits.domains.sparse.values() {
        text += &format!("# rows of a larger grid of keys\n{name} = {rows}\n");
    }
    if let Some(theta) = frame.theta {
        text += "# The skew of the keys is unknown. Set it: 0 is uniform, and below 1.\n";
        text += &format!("theta = {theta:?}\n");
    }
    if !loading.fill.is_empty() {
        text += &format!("\n[fill]\n{}", loading.fill);
    }
    for script in scripts {
        let Script { name, weight, is_read_only, text: lines, comment } = script;
        text += &format!("\n# {comment}\n[[transaction]]\nname = {}\nweight = {weight}\n", quoted(name));
        text += if *is_read_only { "read_only = true\n" } else { "" };
        text += &format!("script = '''\n{lines}'''\n");
    }
    if fits.domains.named().next().is_some() {
        text += "\n[verify]\n";
        for domain in fits.domains.named() {
            let most = if loading.shared.contains(&domain.name) { VERIFIED_VALUES } else { VERIFIED_KEYS };
            text += &format!("{} = {}\n", domain.name, domain.keys.min(most));
        }
        for (name, rows) in fits.domains.sparse.values() {
            text += &format!("{name} = {}\n", rows.min(&(VERIFIED_VALUES * VERIFIED_VALUES)));
        }
    }
    text
}
