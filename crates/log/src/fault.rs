//! Deliberate bugs, for tests of the proof: each must be found by the crash tests.

contend_engine::faults! {
    /// An epoch counts as ended while workers are in it: the one that they were seen in last, and not the one before.
    SettleRunning,
    /// With early release it is looked what workers have not flushed before it is looked which LSN is next.
    SlotsBeforeCounter,
    /// A checkpoint leaves out deletions of the last epoch of which files that stay may have older writes.
    ForgetLastTombstones,
    /// What was committed is acknowledged before it is written.
    AcknowledgeBeforeFlush,
    /// Files are not synchronised.
    SkipSync,
    /// The names of new files are not.
    SkipNames,
    /// The buffer of one worker is left for the next flush: what depends on what it has may be durable without it.
    FlushOutOfOrder,
    /// An epoch counts as ended in which transactions still commit.
    EndEpochEarly,
    /// Of the writes of a row the one that is read last counts.
    ReplayInFileOrder,
    /// What was written and not durable at a crash is so after the next flush.
    ForgetLimit,
    /// Deletions are not replayed.
    ForgetDeletions,
    /// What was added is not replayed.
    ForgetAdditions,
    /// A checkpoint has nothing of rows of which what was added to is elsewhere.
    ForgetSums,
    /// After a synchronisation has failed the next one is believed.
    RetrySync,
    /// A checkpoint replaces files that hold what is not durable yet, and leaves that out.
    CheckpointTooMuch,
    /// A checkpoint has no deletions.
    ForgetTombstones,
    /// With early release a commit is acknowledged when its own worker has flushed it.
    AcknowledgeOwn,
    /// With early release what was flushed is replayed, though a smaller LSN is missing.
    IgnoreGaps,
    /// With early release what was discarded, as a smaller LSN was missing, is replayed at the next recovery.
    ForgetGap,
    /// What workers have flushed by themselves is not synchronised when a log is opened: the process may have ended before that, and the machine may crash later.
    SkipTails,
    /// With conservative release others see what is not durable.
    IgnoreHolds,
}
