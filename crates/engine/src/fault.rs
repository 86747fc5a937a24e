//! Deliberate bugs of the engine: the tests of the proof must find each of them. Only cold paths
//! look at them.

/// Declares an enumeration of deliberate bugs. The doc comment of each is its meaning.
#[doc(hidden)]
#[macro_export]
macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// A deliberate bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($(#[doc = $doc])+ $name,)*
        }

        impl Fault {
            /// All deliberate bugs, in the order of their declaration.
            pub const ALL: &[Fault] = &[$(Fault::$name,)*];

            /// Returns one sentence about the bug, for docs/mutants.md: its doc lines, joined.
            pub fn meaning(self) -> &'static str {
                match self {
                    // Each doc line begins with the space that separates it from the line before.
                    $(Fault::$name => concat!($($doc),+).trim_ascii(),)*
                }
            }
        }
    };
}

faults! {
    /// A tombstone leaves its index before the epoch of its write counter is over: the next record
    /// of the key may get smaller write counters.
    UnlinkYoung,
    /// The memory of a record is reused as soon as the record has left its index, not two epochs
    /// later.
    ReuseEarly,
    /// Placeholders whose inserts have aborted are left in their index.
    ForgetAborted,
    /// An insert that has split a leaf which the transaction has observed carries over what it
    /// observed to the left half alone.
    ForgetSplits,
    /// A piece that runs again finds the writes of its first run in the write set.
    KeepRetriedWrites,
    /// Workers begin transactions though the gate is closed: nobody is protected.
    PassClosedGate,
    /// A worker that has closed the gate never opens it.
    KeepGateClosed,
}
