//! The partitions of a file's tables.

use super::schema::Table;
use super::source::{Parameters, Source};
use super::{Kind, amount};

/// The tables that are partitioned, and the number of partitions.
#[derive(Clone, Debug)]
pub(super) struct Partitions {
    pub(super) count: usize,
    pub(super) of: Vec<bool>,
}

/// Returns the partitions of a file.
///
/// # Errors
/// There are too few or too many, no table has them, or a transaction's are not known before it
/// begins.
pub(super) fn partitions_of(
    source: &Source,
    tables: &[Table],
    kinds: &[Kind],
    parameters: &Parameters,
) -> Result<Option<Partitions>, String> {
    let Some(partition) = &source.partition else { return Ok(None) };
    let count = amount(&partition.count, "[partition] count", parameters)?;
    if !(1..=65_536).contains(&count) {
        return Err(format!("[partition]: count is {count}; valid: 1 to 65536"));
    }
    let is_by = |table: &Table| table.columns[table.key[0]].name == partition.by;
    let of: Vec<bool> = tables.iter().map(|table| table.index_of.is_none() && is_by(table)).collect();
    if !of.contains(&true) {
        let firsts: Vec<&str> = tables.iter().map(|table| table.columns[table.key[0]].name.as_str()).collect();
        let by = &partition.by;
        return Err(format!("[partition]: no primary key begins with '{by}'; valid: {}", firsts.join(", ")));
    }
    for kind in kinds {
        for access in &kind.code.accesses {
            let table = &tables[access.table as usize];
            let is_known =
                if of[access.table as usize] { access.known_first && kind.code.foreseeable } else { access.reads };
            if !is_known {
                let (name, line) = (kind.name, access.line);
                return Err(format!(
                    "transaction '{name}', line {line}: the partition of {} is not known before the transaction begins \
                     (a draw, or {}, depends on a row; or {} is not partitioned and is changed); valid: no [partition]",
                    table.name, partition.by, table.name
                ));
            }
        }
    }
    Ok(Some(Partitions { count: count as usize, of }))
}
