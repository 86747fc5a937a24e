//! The programs of the litmus shapes. [`Shape`](super::Shape) says what each shape is for.

use super::Step::{
    self, AddBoth, AddLeft, Batch, Cancel, Delete, DeleteOther, Insert, InsertFresh, InsertOther, Later, Modify,
    ModifyRight, RaiseLeft, Read, ReadLeft, ReadRight, Scan, ScanOther, Write,
};
use super::{ABSENT, LEAF};

/// The programs of a shape; each is the operations of one transaction.
type Programs = &'static [&'static [Step]];

pub(super) const COUNTER: Programs = &[&[Modify(0)]];
pub(super) const LOST_UPDATE: Programs = &[&[Read(0), Write(0)], &[Read(0), Modify(0)]];
pub(super) const WRITE_SKEW: Programs = &[&[Read(0), Read(1), Write(0)], &[Batch(0, 1), Modify(1)]];
pub(super) const READ_ONLY: Programs = &[&[Read(0), Read(1), Write(0)], &[Modify(1)], &[Read(0), Read(1)]];
pub(super) const LONG_FORK: Programs = &[&[Write(0)], &[Write(1)], &[Read(0), Read(1)], &[Read(1), Read(0)]];
pub(super) const ABSENT_KEYS: Programs = &[&[Read(ABSENT), Insert(ABSENT + 1)], &[Read(ABSENT + 1), Insert(ABSENT)]];
pub(super) const SCANS: Programs =
    &[&[Scan(0, 20), Scan(0, 20)], &[Scan(10, 20), Insert(11)], &[Scan(10, 20), Insert(12), Delete(11)]];
pub(super) const REINSERT: Programs =
    &[&[Delete(0), Insert(0)], &[Delete(0)], &[Insert(0), Modify(0)], &[Read(0), Scan(0, 5)]];
pub(super) const INDEX: Programs = &[
    &[Modify(0), DeleteOther(0), InsertOther(5)],
    &[Modify(0), DeleteOther(5), InsertOther(0)],
    &[ScanOther(0, 9), Read(0)],
];
pub(super) const ABORT: Programs =
    &[&[Insert(ABSENT), Modify(0), Cancel], &[Read(ABSENT), Read(0)], &[Insert(ABSENT), Delete(ABSENT)]];
pub(super) const GROUPS: Programs = &[
    &[ReadLeft(0), ReadRight(1), ModifyRight(0)],
    &[ReadRight(0), AddLeft(0), ModifyRight(1)],
    &[AddBoth(0), AddLeft(0)],
];
pub(super) const UPDATES: Programs = &[
    &[ReadRight(1), AddLeft(0)],
    &[AddLeft(0), ModifyRight(1)],
    &[ReadLeft(0), ModifyRight(1)],
    &[AddLeft(0)],
    &[ReadRight(1), RaiseLeft(0)],
];
pub(super) const LATE_UPDATES: Programs =
    &[&[Read(ABSENT), AddLeft(0)], &[Read(0), Insert(ABSENT)], &[Delete(ABSENT), Modify(0)]];
pub(super) const OVERWRITES: Programs =
    &[&[Write(0), Write(1)], &[Read(0), Read(1)], &[Write(0)], &[Read(1), Write(0), Write(1)], &[AddBoth(0)]];
pub(super) const SNAPSHOT: Programs =
    &[&[Write(0)], &[Read(0), Read(1)], &[Read(0), Modify(1)], &[Read(1), Read(0)], &[Write(0), Write(1)]];
pub(super) const SNAPSHOT_ROWS: Programs =
    &[&[Delete(0), Modify(1)], &[Read(0), Read(1)], &[Insert(0), Modify(1)], &[Scan(0, 5)]];
/// The even keys below `2 * LEAF` have rows, all in one leaf. The split makes `LEAF` the first key
/// of the right leaf.
pub(super) const SPLIT: Programs = &[
    &[Read(LEAF + 9), Insert(1)],
    &[Read(1), Insert(LEAF + 9)],
    &[Scan(LEAF - 4, LEAF + 10), Insert(3)],
    &[Read(3), Insert(LEAF - 3), Read(LEAF + 11)],
    &[Read(LEAF + 9), Insert(1), Modify(0)],
    &[Read(0), Insert(LEAF + 9)],
];
/// The even keys up to `END + 2` have rows, the last two in a leaf of their own.
pub(super) const MERGE: Programs = &[
    &[Delete(END), Delete(END + 2)],
    &[Read(END + 1), Insert(END + 3)],
    &[Read(END + 3), Insert(END + 1)],
    &[Scan(END - 3, END + 4), Modify(0)],
    &[Delete(END + 1), Delete(END + 3)],
];
const END: u64 = 2 * LEAF;
pub(super) const REBIRTH: Programs = &[
    &[Delete(0), Insert(2)],
    &[Read(2), Insert(0)],
    &[Modify(0), Delete(2)],
    &[Read(0), Batch(1, 2)],
    &[Write(2), Modify(1), Delete(0)],
    &[Insert(0), Write(1)],
];
pub(super) const MOVES: Programs = &[
    &[Delete(0), Insert(8)],
    &[Delete(8), Insert(9)],
    &[Delete(9), Insert(0)],
    &[Read(0), Read(8), Read(9)],
    &[Batch(9, 0), Modify(8)],
];
pub(super) const REBIRTH_INDEX: Programs = &[
    &[Delete(0), DeleteOther(0)],
    &[ScanOther(0, 9), Read(0)],
    &[Insert(0), InsertOther(0)],
    &[Modify(0), DeleteOther(0), InsertOther(5)],
    &[ScanOther(0, 9), Modify(0)],
    &[Delete(0), DeleteOther(5)],
];
pub(super) const LATER: Programs = &[
    &[Read(0), Later, Modify(0), Read(1)],
    &[Modify(1), Later, Modify(0)],
    &[Read(1), Later, Write(1), Read(0)],
    &[Write(0), Read(1)],
    &[Batch(0, 1), Modify(0)],
    &[Modify(0), Later, AddLeft(0), AddBoth(1)],
    &[Later, Batch(1, 0)],
];
/// The first fresh keys of three workers are `ABSENT` and the two behind it.
pub(super) const LATER_INSERTS: Programs = &[
    &[Read(ABSENT + 1), Later, InsertFresh],
    &[Read(ABSENT), Later, InsertFresh, Modify(0)],
    &[Scan(ABSENT, ABSENT + 20), Later, Modify(0)],
    &[Read(0), Delete(ABSENT), Delete(ABSENT + 1)],
    &[Modify(1), Later, Read(ABSENT + 1)],
    &[Read(1), Later, Modify(ABSENT), Read(0)],
    // Their first accesses are later, and name rows that are born or die until then.
    &[Later, Read(ABSENT + 1)],
    &[Later, Modify(ABSENT)],
];
