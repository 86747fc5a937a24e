//! Deliberate bugs of the engine, for tests of the proof. All are looked at on cold paths only.

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A tombstone leaves its index before the epoch of its stamp is over: the next record of the key may get smaller stamps.
    UnlinkYoung,
    /// Workers begin transactions though the gate is closed: nobody is protected.
    PassClosedGate,
    /// A worker that has closed the gate never opens it.
    KeepGateClosed,
}
