//! The pieces of scripts: what a protocol such as IC3 may let take effect by itself.
//!
//! Each statement outside of loops and branches is a piece, and each outermost loop or branch with
//! a statement inside is one. A `rollback` belongs to the statement before it, whose result it
//! usually depends on.

use std::collections::BTreeMap;
use std::ops::Range;

use contend_model::Groups;
use contend_model::pieces::{Mode, Piece, TypeBuilder};

use super::interpret::{Handle, with_table};
use super::known::registers_of;
use super::program::{Change, Code, FOUND, Register, ScriptPiece, Step};
use super::schema::Table;

/// Finds the pieces of a script.
pub(super) fn find(code: &mut Code, tables: &[Table]) {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let (mut at, mut sleeps) = (0, false);
    while at < code.steps.len() {
        let end = end_of(&code.steps, at);
        let accesses = code.steps[at..end].iter().any(|step| step.access().is_some());
        let cancels = code.steps[at..end].iter().any(|step| matches!(step, Step::Cancel));
        sleeps |= code.steps[at..end].iter().any(|step| matches!(step, Step::Sleep { .. }));
        if !accesses && !cancels && !sleeps && ranges.is_empty() {
            code.drawn_first = end;
        }
        match ranges.last_mut() {
            Some(last) if cancels && !accesses => last.end = end,
            _ if accesses || cancels => ranges.push(at..end),
            _ => {}
        }
        at = end;
    }
    let pieces = ranges.into_iter().enumerate().map(|(number, steps)| piece_of(code, tables, number, steps));
    code.pieces = pieces.collect();
}

/// Returns the end of the loop or branch that begins at a step, or else the next step.
fn end_of(steps: &[Step], start: usize) -> usize {
    let (mut at, mut end) = (start, start + 1);
    while at < end {
        if let Some(to) = steps[at].target() {
            end = end.max(to as usize);
        }
        at += 1;
    }
    end
}

fn piece_of(code: &Code, tables: &[Table], number: usize, steps: Range<usize>) -> ScriptPiece {
    let own = &code.steps[steps.clone()];
    let first = own.iter().find_map(Step::access).map(|access| &code.accesses[access as usize]);
    // The number makes the name unique within the transaction.
    let name = match first {
        Some(access) => format!("{}-{}", tables[access.table as usize].name, number + 1),
        None => format!("rollback-{}", number + 1),
    };
    let mut changed: Vec<(Register, u16)> = own.iter().flat_map(|step| registers_of(step, &code.accesses).0).collect();
    changed.push((FOUND, 1));
    changed.sort_unstable();
    changed.dedup();
    ScriptPiece {
        piece: Piece::new(number as u16, super::interned(&name)),
        cancels: own.iter().any(|step| matches!(step, Step::Cancel | Step::Insert { or_nothing: false, .. })),
        has_distinct: own.iter().any(|step| matches!(step, Step::Distinct { .. })),
        steps,
        changed,
    }
}

/// Declares a type of transactions that has this script.
pub(super) fn declare(of: TypeBuilder<'_>, code: &Code, handles: &[Handle]) {
    code.pieces.iter().fold(of, |of, piece| {
        of.piece(piece.piece, |declared| {
            let accesses = accesses_of(code, piece.steps.clone()).into_iter();
            let declared = accesses.fold(declared, |declared, ((table, mode), groups)| {
                with_table!(handles[table as usize], table => declared.access(mode, &table, groups))
            });
            if piece.cancels { declared.cancels() } else { declared }
        })
    });
}

/// Returns what steps access: the groups of each table, by mode.
fn accesses_of(code: &Code, steps: Range<usize>) -> BTreeMap<(u16, Mode), Groups> {
    let mut all: BTreeMap<(u16, Mode), Groups> = BTreeMap::new();
    let mut add = |table, mode, groups: Groups| {
        let of = all.entry((table, mode)).or_insert(Groups::NONE);
        *of = of.union(groups);
    };
    for step in &code.steps[steps] {
        let Some(access) = step.access().map(|access| &code.accesses[access as usize]) else { continue };
        let mode = match step {
            Step::Insert { .. } => Mode::Insert,
            Step::Delete { .. } => Mode::Delete,
            Step::Update { .. } if access.changes.iter().all(|(change, ..)| *change != Change::Set) => Mode::Update,
            Step::SelectAndUpdate { .. } if access.written.is_some() => {
                // A select of some columns, and an update of others.
                add(access.table, Mode::Read, access.groups);
                let adds = access.stores.is_empty();
                if adds && access.changes.iter().all(|(change, ..)| *change != Change::Set) {
                    Mode::Update
                } else {
                    Mode::Write
                }
            }
            Step::Modify { .. } | Step::SelectAndUpdate { .. } | Step::Update { .. } | Step::Write { .. } => {
                Mode::Write
            }
            _ => Mode::Read,
        };
        add(access.table, mode, if mode == Mode::Read { access.groups } else { access.changed() });
        if let Some(index) = access.by_index {
            add(index, Mode::Read, Groups::ALL);
        }
        // The columns of a row's index entries are read before the row is deleted.
        if mode == Mode::Delete && !access.loads.is_empty() {
            add(access.table, Mode::Read, Groups::ALL);
        }
        for change in &access.indexes {
            change.old.iter().for_each(|_| add(change.table, Mode::Delete, Groups::ALL));
            change.new.iter().for_each(|_| add(change.table, Mode::Insert, Groups::ALL));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::ops::{ControlFlow, RangeInclusive};

    use contend_model::pieces::{DeclaredPiece, Piece};
    use contend_model::{Abort, Direction, Groups, Key, PieceEnd, Projection, RawTxn, RowUpdate, Table, Txn};
    use contend_protocols::optimistic::silo::Silo;

    use super::super::interpret::{Handle, Tables, with_table};
    use super::super::tests::{SHOP, options, with_script};
    use super::super::{FileWorkload, Input};
    use crate::run_for_tests::{World, world};
    use crate::workload::{Workload, declared_types};

    fn world_of(text: &str) -> World<FileWorkload> {
        world::<Silo, _>(&options("one.toml", text))
    }

    /// A transaction each of whose pieces runs twice, if `repeats` says so.
    struct TwiceEachPiece<'t, T> {
        tx: &'t mut T,
        repeats: bool,
        ended: Vec<usize>,
    }

    impl<T: Txn> RawTxn for TwiceEachPiece<'_, T> {
        fn read_row<K: Key>(
            &mut self,
            of: &Table<K>,
            key: K,
            columns: Projection<'_>,
        ) -> Result<Option<&[u64]>, Abort> {
            self.tx.read_row(of, key, columns)
        }

        fn modify_row<K: Key>(&mut self, of: &Table<K>, key: K, groups: Groups) -> Result<Option<&mut [u64]>, Abort> {
            self.tx.modify_row(of, key, groups)
        }

        fn update_row<K: Key>(&mut self, of: &Table<K>, key: K, update: RowUpdate<'_>) -> Result<bool, Abort> {
            self.tx.update_row(of, key, update)
        }

        fn write_row<K: Key>(&mut self, of: &Table<K>, key: K, groups: Groups) -> Result<Option<&mut [u64]>, Abort> {
            self.tx.write_row(of, key, groups)
        }

        fn insert_row<K: Key>(&mut self, of: &Table<K>, key: K) -> Result<Option<&mut [u64]>, Abort> {
            self.tx.insert_row(of, key)
        }

        fn delete_row<K: Key>(&mut self, of: &Table<K>, key: K) -> Result<bool, Abort> {
            self.tx.delete_row(of, key)
        }

        fn scan_rows<K: Key>(
            &mut self,
            of: &Table<K>,
            range: RangeInclusive<K>,
            limit: usize,
            direction: Direction,
            columns: Projection<'_>,
            visit: impl FnMut(K, &[u64]) -> ControlFlow<()>,
        ) -> Result<usize, Abort> {
            self.tx.scan_rows(of, range, limit, direction, columns, visit)
        }

        fn end_piece(&mut self, piece: Piece, failed: Option<Abort>) -> Result<PieceEnd, Abort> {
            let is_first = self.repeats && !self.ended.contains(&piece.number());
            self.ended.push(piece.number());
            match failed {
                Some(abort) => Err(abort),
                None => Ok(if is_first { PieceEnd::Again } else { PieceEnd::Done }),
            }
        }
    }

    /// Each statement is a piece, and so is an outermost loop. A rollback belongs to what stands
    /// before it.
    #[test]
    fn scripts_have_pieces() {
        let script = "\\set k random(0, 9)\nselect a from t where id = :k \\gset\n\\if :found = 0\nrollback;\n\\endif\n\
                      \\set n 0\n\\repeat 3\nupdate t set b = b + 1 where id = :n;\nselect y from u where a = :n limit 1;\n\
                      \\set n :n + 1\n\\endrepeat\n\\set n :n * 2\ninsert into u values (1, unique(), :n);\n\
                      delete from u where x = 1 and y = :k;\nupdate t set b = :a where id = :n;";
        let world = world_of(&with_script(script));
        let types = declared_types(&world.1, world.0.declared_tables()).expect("valid").expect("some");
        let shown = |of: &DeclaredPiece| {
            let accesses = of.accesses.iter().map(|of| format!("{} {}", of.mode.verb(), types.tables[of.table].name));
            format!("{}{}: {}", of.name, if of.cancels { "!" } else { "" }, accesses.collect::<Vec<_>>().join(", "))
        };
        assert_eq!(
            types.types[0].pieces.iter().map(shown).collect::<Vec<_>>(),
            [
                "t-1!: reads t",
                "t-2: updates t, reads u, reads by_a",
                "u-3!: inserts into u, inserts into by_a",
                "u-4: reads u, deletes from u, deletes from by_a",
                "t-5: writes t",
            ]
        );
        // A type of which no transaction runs takes part in no order.
        let idle = SHOP.replace("weight = 60", "weight = 0");
        let world = world_of(&idle);
        let types = declared_types(&world.1, world.0.declared_tables()).expect("valid").expect("some");
        assert!(types.types[0].pieces.is_empty() && !types.types[1].pieces.is_empty());
    }

    /// A piece that runs again begins with the variables, the draws and the numbers that it began
    /// with.
    #[test]
    fn pieces_that_run_again_do_the_same() {
        let script = "\\set n 1\n\\repeat 4\n\\set n :n * 2 + distinct(5)\n\\set r random(1, 1000000)\n\\set q unique()\n\
                      select a from t where id = 3 \\gset\n\\endrepeat\nupdate t set b = :n + :r + :q where id = 0;";
        let text = with_script(script);
        let [once, again] = [false, true].map(|repeats| {
            let world = world_of(&text);
            let mut client = world.1.client(0, 1, 1);
            let mut input = Input::default();
            world.1.next(&mut (), &mut client, &mut input);
            let mut worker = world.0.worker().expect("a slot");
            let done = worker.run(|tx| {
                let mut tx = TwiceEachPiece { tx, repeats, ended: Vec::new() };
                let FileWorkload { program, handles, .. } = &world.1;
                let tables = Tables { shapes: &program.tables, handles };
                client.memory.run(&mut tx, &program.kinds[0].code, &tables, &input, true)
            });
            done.expect("no conflict");
            let mut row = Vec::new();
            with_table!(world.1.handles[0], of => {
                world.0.peek(&of, Key::from_words([0; 4]), &mut row).expect("a row");
            });
            row[1]
        });
        assert_eq!(once, again);
    }
}
