//! Deliberate bugs. The crash tests must find each of them.

contend_engine::faults! {
    /// The epoch that the oldest worker is in counts as ended; only the one before it has.
    SettleRunning,
    /// Early release: the durable LSN is computed from the slots of workers, and only then the
    /// counter is loaded.
    SlotsBeforeCounter,
    /// A checkpoint leaves out deletions of its last epoch, although files that stay may have older
    /// writes of these keys.
    ForgetLastTombstones,
    /// Commits are acknowledged before they are written.
    AcknowledgeBeforeFlush,
    /// Files are not synchronised.
    SkipSync,
    /// The directory is not synchronised after a file is created.
    SkipNames,
    /// A flush leaves out the buffer of one worker: transactions that depend on its commits may
    /// become durable without them.
    FlushOutOfOrder,
    /// A flush makes one epoch more durable than it may: transactions can still commit in it.
    EndEpochEarly,
    /// The end of a flush says that the flush has written to one file, however many it has.
    EndAlone,
    /// A flush ends in its files although the manifest does not name one of them.
    EndUnnamed,
    /// Recovery does not notice that a flush is missing before a later one.
    IgnoreMissing,
    /// Recovery counts a flush if one of its files has its end.
    CountParts,
    /// Recovery keeps the write of a row that is read last, not the one with the largest write
    /// counter.
    ReplayInFileOrder,
    /// Recovery sets no limit for an old file: commits that were not durable at a crash count after
    /// the next flush.
    ForgetLimit,
    /// Recovery ignores deletions.
    ForgetDeletions,
    /// Recovery ignores additions.
    ForgetAdditions,
    /// A checkpoint leaves out additions to a write that is in another file.
    ForgetSums,
    /// After a synchronisation has failed, it is tried again, and a success is believed.
    RetrySync,
    /// A checkpoint replaces files that hold commits which are not durable yet, and leaves these
    /// out.
    CheckpointTooMuch,
    /// A checkpoint leaves out all deletions.
    ForgetTombstones,
    /// Early release: a commit is acknowledged when its own worker has flushed it.
    AcknowledgeOwn,
    /// Early release: a transaction without writes is not logged although it has an LSN, which is
    /// then missing.
    SkipEmpty,
    /// Early release: recovery keeps flushed commits although a smaller LSN is missing.
    IgnoreGaps,
    /// Early release: commits that recovery discarded because a smaller LSN was missing count at
    /// the next recovery.
    ForgetGap,
    /// Opening a log synchronises the tails of its files as they are in the system's cache: a
    /// failed synchronisation may have left there what the disk has not.
    TrustCache,
    /// Opening a log does not synchronise the tails of its files: the process may have ended before
    /// it did so, and the machine may crash later.
    SkipTails,
    /// Conservative release: transactions see writes that are not durable.
    IgnoreHolds,
    /// Conservative release: a tombstone leaves its index though its deletion is not durable.
    UnlinkHeld,
}
