//! Deliberate bugs of the engine, for tests of the proof. All are looked at on cold paths only.

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A tombstone leaves its index before the epoch of its stamp is over: the next record of the key may get smaller stamps.
    UnlinkYoung,
    /// The memory of a record is reused as soon as the record has left its index, not two epochs later.
    ReuseEarly,
    /// Placeholders whose inserts have aborted are left in their index.
    ForgetAborted,
    /// An insert that has split a leaf which the transaction has observed carries over what it observed to the left half alone.
    ForgetSplits,
}

impl Fault {
    /// All of them, with what they are.
    pub const ALL: &[(Fault, &str)] = &[
        (Fault::UnlinkYoung, "A tombstone leaves its index before the epoch of its stamp is over."),
        (Fault::ReuseEarly, "The memory of a record is reused as soon as the record has left its index."),
        (Fault::ForgetAborted, "Placeholders whose inserts have aborted are left in their index."),
        (
            Fault::ForgetSplits,
            "Of a leaf that the transaction has observed, and its insert has split, the right half is forgotten.",
        ),
    ];
}
