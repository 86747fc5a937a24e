//! The checks of declarations.

use std::collections::{HashMap, HashSet};

use contend_model::pieces::{Access, DeclaredTable, Mode, TransactionType, TypeSet};
use contend_model::{GROUPS_MAX, Groups};

/// A mistake in a declaration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationError {
    /// Two tables, types, or pieces of a type have one name.
    #[error("{what} '{name}' is declared twice")]
    Twice {
        /// The kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A table has no group, or too many.
    #[error("table '{table}' has {groups} groups; valid: 1 to {GROUPS_MAX}")]
    GroupCount {
        /// The table.
        table: String,
        /// The number of its groups.
        groups: usize,
    },
    /// An access names a table that is not there.
    #[error("{of}: {} table {table}, and there is none of this number", mode.verb())]
    NoSuchTable {
        /// The type and the piece.
        of: String,
        /// The mode of the access.
        mode: Mode,
        /// The table's number.
        table: usize,
    },
    /// An access names a group that its table has not.
    #[error("{of}: {} group {group} of '{table}', which has none of this number", mode.verb())]
    NoSuchGroup {
        /// The type and the piece.
        of: String,
        /// The mode of the access.
        mode: Mode,
        /// The table.
        table: String,
        /// The group.
        group: usize,
    },
    /// A type without changes changes something.
    #[error("{of}: {} '{table}', and its type is declared read-only", mode.verb())]
    ReadOnlyChanges {
        /// The type and the piece.
        of: String,
        /// The mode of the access.
        mode: Mode,
        /// The table.
        table: String,
    },
    /// A settled read is of a group that others change.
    #[error(
        "{of}: reads settled rows of '{table}', group {group}, and {by}: {} it; valid: groups that only inserts write",
        mode.verb()
    )]
    NotSettled {
        /// The type and the piece that reads.
        of: String,
        /// The table.
        table: String,
        /// The group.
        group: usize,
        /// The type and the piece that changes the group.
        by: String,
        /// How it does so.
        mode: Mode,
    },
}

/// Checks the declarations.
///
/// # Errors
/// The first mistake, with the type and the piece.
pub fn check(types: &TypeSet) -> Result<(), DeclarationError> {
    distinct("table", types.tables.iter().map(|table| &table.name))?;
    distinct("type", types.types.iter().map(|of| &of.name))?;
    for DeclaredTable { name, groups, .. } in &types.tables {
        if !(1..=GROUPS_MAX).contains(groups) {
            return Err(DeclarationError::GroupCount { table: name.clone(), groups: *groups });
        }
    }
    (0..types.types.len()).try_for_each(|of| check_type(types, of))?;
    check_settled(types)
}

/// Checks a type by itself.
pub(crate) fn check_type(types: &TypeSet, of: usize) -> Result<(), DeclarationError> {
    let declared = &types.types[of];
    distinct("piece", declared.pieces.iter().map(|piece| &piece.name))?;
    for (position, piece) in declared.pieces.iter().enumerate() {
        let named = || types.name_of(of, position);
        piece.accesses.iter().try_for_each(|access| check_access(types, declared, access, &named))?;
    }
    Ok(())
}

fn check_access(
    types: &TypeSet,
    of: &TransactionType,
    access: &Access,
    named: &dyn Fn() -> String,
) -> Result<(), DeclarationError> {
    let Access { table, groups, mode } = *access;
    let Some(table) = types.tables.get(table) else {
        return Err(DeclarationError::NoSuchTable { of: named(), mode, table });
    };
    let beyond = groups.without(Groups::first(table.groups)).into_iter().next();
    // All groups, however many a row has, are what a program declares for a whole row.
    if let Some(group) = beyond.filter(|_| groups != Groups::ALL) {
        return Err(DeclarationError::NoSuchGroup { of: named(), mode, table: table.name.clone(), group });
    }
    if of.read_only && mode.changes() {
        return Err(DeclarationError::ReadOnlyChanges { of: named(), mode, table: table.name.clone() });
    }
    Ok(())
}

/// Checks that only inserts write the groups of settled reads.
pub(crate) fn check_settled(types: &TypeSet) -> Result<(), DeclarationError> {
    // The first piece that changes each group by more than an insert.
    let mut changers: HashMap<(usize, usize), ((usize, usize), Mode)> = HashMap::new();
    for (by, access) in types.accesses().filter(|(_, access)| access.mode.changes() && access.mode != Mode::Insert) {
        for group in types.groups_of(access).into_iter() {
            changers.entry((access.table, group)).or_insert((by, access.mode));
        }
    }
    for (of, access) in types.accesses().filter(|(_, access)| access.mode == Mode::Settled) {
        for group in types.groups_of(access).into_iter() {
            if let Some(&(by, mode)) = changers.get(&(access.table, group)) {
                return Err(DeclarationError::NotSettled {
                    of: types.name_of(of.0, of.1),
                    table: types.tables[access.table].name.clone(),
                    group,
                    by: types.name_of(by.0, by.1),
                    mode,
                });
            }
        }
    }
    Ok(())
}

fn distinct<'a>(what: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), DeclarationError> {
    let mut seen = HashSet::new();
    match { names }.find(|name| !seen.insert(*name)) {
        Some(name) => Err(DeclarationError::Twice { what, name: name.clone() }),
        None => Ok(()),
    }
}
