//! Groups of columns that may pay: they keep the readers of some columns apart from the writers of
//! others, once each group has a version of its own (`ts=on`).

use std::collections::BTreeMap;

use super::program::{Code, Source as Place, Step};
use super::schema::{ColumnAt, GROUPS_MAX, Table};
use super::{CompiledFor, Program, WorkloadFile};

/// The most ways of grouping that are proposed.
const PROPOSED_MAX: usize = 16;

/// The groups of the columns of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSplit {
    /// The table.
    pub table: String,
    /// The columns outside the primary key, each in one group.
    pub groups: Vec<Vec<String>>,
}

impl ColumnSplit {
    /// Describes the groups, as in `item [stock, sold] | [price, name]`.
    pub fn in_words(&self) -> String {
        let groups = self.groups.iter().map(|group| format!("[{}]", group.join(", ")));
        format!("{} {}", self.table, groups.collect::<Vec<_>>().join(" | "))
    }

    /// Returns the line of a workload file's `[groups]` that asks for it.
    pub fn line(&self) -> String {
        let group = |group: &Vec<String>| {
            let names: Vec<String> = group.iter().map(|name| format!("\"{name}\"")).collect();
            format!("[{}]", names.join(", "))
        };
        format!("{} = [{}]", self.table, self.groups.iter().map(group).collect::<Vec<_>>().join(", "))
    }
}

/// What an access does with the columns of a table: a bit for each column.
#[derive(Clone, Copy, Debug, Default)]
struct Columns {
    read: u64,
    written: u64,
}

impl WorkloadFile {
    /// Returns the ways to group columns that may pay, with the tables that each is about: columns
    /// that the same types of transactions write are a group, and those that none writes are one. A
    /// way is proposed if an access uses columns outside of a group that others write. The ways
    /// that the file has already are left out, and so are tables with more than 64 columns.
    pub fn splits(self: &std::sync::Arc<Self>) -> Vec<Vec<ColumnSplit>> {
        let Some(program) =
            self.options().and_then(|options| Program::compiled_for(CompiledFor::Readers, &options)).ok()
        else {
            return Vec::new();
        };
        let mut ways: Vec<Vec<ColumnSplit>> = Vec::new();
        let (mut finest, mut is_several) = (Vec::new(), false);
        for (number, table) in program.tables.iter().enumerate().filter(|(_, table)| table.index_of.is_none()) {
            let of_table = ways_of(&program, number, table);
            is_several |= !finest.is_empty() && !of_table.is_empty();
            finest.extend(of_table.first().cloned());
            ways.extend(of_table.into_iter().map(|split| vec![split]));
        }
        if is_several {
            ways.insert(0, finest);
        }
        ways.truncate(PROPOSED_MAX);
        ways
    }

    /// Returns the text of the file with these groups in the place of those that it has of the same
    /// tables.
    pub fn with_splits(&self, splits: &[ColumnSplit]) -> String {
        let mut file: toml::Table = self.text.parse().expect("the file was read");
        let groups = file.entry("groups").or_insert_with(|| toml::Table::new().into());
        if let toml::Value::Table(groups) = groups {
            groups.extend(splits.iter().map(|split| (split.table.clone(), split.groups.clone().into())));
        }
        toml::to_string(&file).expect("a file that was read")
    }
}

/// Returns the ways to group the columns of a table, the finest first.
fn ways_of(program: &Program, number: usize, table: &Table) -> Vec<ColumnSplit> {
    if table.columns.len() > u64::BITS as usize {
        return Vec::new();
    }
    let accesses: Vec<Vec<Columns>> = program.kinds.iter().map(|kind| columns_of(&kind.code, number, table)).collect();
    let of_row: Vec<usize> =
        (0..table.columns.len()).filter(|column| matches!(table.columns[*column].at, ColumnAt::Row { .. })).collect();
    // The types that write a column, as bits. There are 64 types at most.
    let writers = |column: usize| {
        let writes = |all: &Vec<Columns>| all.iter().any(|access| access.written >> column & 1 == 1);
        accesses.iter().enumerate().fold(0u64, |mask, (kind, all)| mask | u64::from(writes(all)) << kind)
    };
    let any_or_none = |column: usize| u64::from(writers(column) != 0);
    let classes: [&dyn Fn(usize) -> u64; 2] = [&writers, &any_or_none];
    let mut ways: Vec<ColumnSplit> = Vec::new();
    for class_of in classes {
        // Those that are written come first.
        let mut by_class: BTreeMap<std::cmp::Reverse<u64>, Vec<usize>> = BTreeMap::new();
        of_row
            .iter()
            .for_each(|column| by_class.entry(std::cmp::Reverse(class_of(*column))).or_default().push(*column));
        let pays = by_class.iter().filter(|(class, _)| class.0 != 0).any(|(_, columns)| {
            let own = columns.iter().fold(0u64, |mask, column| mask | 1 << column);
            let avoids =
                |access: &Columns| (access.read | access.written) != 0 && (access.read | access.written) & own == 0;
            accesses.iter().flatten().any(avoids)
        });
        let name = |column: &usize| table.columns[*column].name.clone();
        let groups: Vec<Vec<String>> = by_class.values().map(|columns| columns.iter().map(name).collect()).collect();
        let split = ColumnSplit { table: table.name.clone(), groups };
        let is_new = !ways.contains(&split) && !is_present(table, &split);
        if pays && (2..=GROUPS_MAX).contains(&split.groups.len()) && is_new {
            ways.push(split);
        }
    }
    ways
}

/// Whether the table has these groups already, in any order.
fn is_present(table: &Table, split: &ColumnSplit) -> bool {
    let mut present = vec![Vec::new(); table.groups.len()];
    for column in &table.columns {
        if let ColumnAt::Row { group, .. } = column.at {
            present[group as usize].push(column.name.clone());
        }
    }
    present.len() == split.groups.len() && present.iter().all(|group| split.groups.contains(group))
}

/// Returns what each access of a script does with the columns of a table. Inserts and deletes touch
/// all columns, whatever the groups are.
fn columns_of(code: &Code, table: usize, of: &Table) -> Vec<Columns> {
    let bit = |word: u16| {
        let begins = |at: ColumnAt| matches!(at, ColumnAt::Row { word: first, .. } if first == usize::from(word));
        of.columns.iter().position(|column| begins(column.at)).map_or(0, |column| 1u64 << column)
    };
    let mut all = Vec::new();
    for step in &code.steps {
        let Some(access) = step.access().map(|access| &code.accesses[access as usize]) else { continue };
        if usize::from(access.table) != table || matches!(step, Step::Insert { .. } | Step::Delete { .. }) {
            continue;
        }
        let mut columns = Columns::default();
        for load in &access.loads {
            if let Place::Row(word) = load.from {
                columns.read |= bit(word);
            }
        }
        access.stores.iter().for_each(|store| columns.written |= bit(store.word));
        access.changes.iter().for_each(|(_, word, _)| columns.written |= bit(*word));
        all.push(columns);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splits(text: &str) -> Vec<Vec<ColumnSplit>> {
        WorkloadFile::read("one.toml", text).expect("valid").splits()
    }

    const SHOP: &str = r#"
name = "shop"
schema = '''
create table item (id int primary key, price int, name varchar(9), stock int, sold int, seen int);
create table other (id int primary key, a int);
'''
rows.item = 10
rows.other = 10
[[transaction]]
name = "buy"
script = "update item set stock = stock - 1, sold = sold + 1 where id = 1; update other set a = a + 1 where id = 2;"
[[transaction]]
name = "look"
script = "select price, name from item where id = 2; select a from other where id = 2;"
"#;

    #[test]
    fn columns_that_some_write_and_others_read_are_apart() {
        let all = splits(SHOP);
        let words: Vec<String> = all.iter().flatten().map(ColumnSplit::in_words).collect();
        assert_eq!(words, ["item [stock, sold] | [price, name, seen]"], "the other table has a column only");
        assert_eq!(all[0][0].line(), r#"item = [["stock", "sold"], ["price", "name", "seen"]]"#);
    }

    #[test]
    fn each_set_of_writers_is_a_group_of_its_own() {
        let third = "[[transaction]]\nname = \"see\"\nscript = \"update item set seen = seen + 1 where id = 1;\"\n";
        let words: Vec<String> =
            splits(&format!("{SHOP}{third}")).iter().flatten().map(ColumnSplit::in_words).collect();
        assert_eq!(
            words,
            ["item [seen] | [stock, sold] | [price, name]", "item [stock, sold, seen] | [price, name]"],
            "the finest comes first"
        );
    }

    #[test]
    fn what_pays_nothing_or_is_there_is_not_proposed() {
        let reads_all = SHOP.replace("select price, name", "select price, stock");
        assert!(splits(&reads_all).is_empty(), "the reader needs what is written");
        let grouped = format!("groups.item = [[\"price\", \"name\", \"seen\"]]\n{SHOP}");
        assert!(splits(&grouped).is_empty(), "it is there");
        let other = format!("groups.item = [[\"price\", \"stock\"]]\n{SHOP}");
        let file = WorkloadFile::read("one.toml", &other).expect("valid");
        let proposed = file.splits();
        assert_eq!(proposed.len(), 1);
        let changed = file.with_splits(&proposed[0]);
        let again = WorkloadFile::read("one.toml", &changed).expect("a valid file");
        assert!(again.splits().is_empty() && !changed.contains("\"price\", \"stock\""), "{changed}");
    }

    #[test]
    fn two_tables_are_also_split_together() {
        let both = SHOP.replace(
            "create table other (id int primary key, a int)",
            "create table other (id int primary key, a int, b int)",
        );
        let both = both.replace("select a from other", "select b from other");
        let all = splits(&both);
        assert_eq!(all.len(), 3, "{all:?}");
        assert_eq!(all[0].len(), 2, "both at once come first");
    }
}
