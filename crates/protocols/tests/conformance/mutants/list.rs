// The list of mutants: the deliberate faults of each protocol, and what finds each.
//
// Two tests include this file, each with a macro `mutants!` of its own. The explorer's writes
// `docs/mutants.md`: it needs, for each fault, how the fault shows, a workload, and the settings if
// there are any. A fault is `found`, `equivalent` if it does no harm, `stands_still`, or
// `not_repeatable`. The conformance suite's makes a test of each line that goes on with `=>`: the
// test's name, and the schedules, or the storms, that find the fault. Storms judge histories only:
// a fault that only lets transactions wait for each other is for schedules, which notice waits
// without end, or `stands_still`.
//
// After `faults` stand the lists of the traits that declare a protocol's faults; faults of whole
// operations are in every protocol.

mutants! {
    Silo<Broken>, faults silo::FAULTS, optimistic::FAULTS {
        found IGNORE_LOCKS_IN_VALIDATION, "litmus-write-skew"
            => silo_that_ignores_locks_in_validation_is_caught by_storms;
        found SKIP_VALIDATION_OF_WRITTEN, "litmus-lost-update"
            => silo_that_skips_the_validation_of_what_it_writes_is_caught by_schedules "P4: lost read-modify-write";
        found FORGET_READ_ONLY, "litmus-write-skew"
            => silo_that_validates_only_what_it_writes_is_caught by_schedules "G2-item: write skew";
        found FORGET_GAPS, "litmus-absent"
            => silo_that_forgets_gaps_is_caught by_schedules "G2: misses and inserts";
        found FORGET_GAPS, "litmus-scans"
            => silo_that_forgets_gaps_of_scans_is_caught by_schedules "G2: empty ranges";
        found SHOW_PLACEHOLDERS, "litmus-abort"
            => silo_that_shows_placeholders_is_caught by_schedules "G1a: aborted insert";
        found WRITE_WRONG_CELL, "litmus-groups", SPLIT
            => silo_that_writes_the_wrong_cell_is_caught by_schedules "groups: lost update";
        found MERGE_BEFORE_LOCK, "litmus-groups", SPLIT
            => silo_that_merges_before_it_locks_is_caught by_storms;
        found FORGET_OLDER_TIDS, "litmus-random"
            => silo_that_uses_tids_twice_is_caught by_storms;
        found EPOCH_BEFORE_LOCKS, "litmus-snapshot", SNAPSHOTS;
        found SNAPSHOT_OF_RUNNING_EPOCH, "litmus-snapshot", SNAPSHOTS;
        equivalent SNAPSHOT_OF_LAST_EPOCH, "litmus-snapshot", SNAPSHOTS;
        found FORGET_SNAPSHOTS_OF_TOMBSTONES, "litmus-snapshot-rows", SNAPSHOTS;
        found REUSE_COPIES_EARLY, "litmus-snapshot", SNAPSHOTS;
        found UNLINK_LOCKED, "litmus-rebirth";
    }
    Occ<Machine, Broken>, faults occ::FAULTS, optimistic::FAULTS {
        found STAMP_BEFORE_LOCKS, "litmus-lost-update";
        found SKIP_VALIDATION_OF_WRITTEN, "litmus-lost-update";
        found LOCK_ONLY_WRITTEN, "litmus-write-skew";
        found UNLINK_LOCKED, "litmus-rebirth";
        found FORGET_GAPS, "litmus-absent";
    }
    TicToc<Broken>, faults tictoc::FAULTS, optimistic::FAULTS {
        found FORGET_EXTENSION, "litmus-write-skew";
        found OVERWRITE_READ_INTERVALS, "litmus-write-skew";
        found IGNORE_LOCKS_IN_VALIDATION, "litmus-write-skew";
        found FORGET_TIMES_OF_LEAVES, "litmus-random";
        equivalent FORGET_TIMES_OF_SPLITS, "litmus-split";
        found FORGET_READERS_OF_TOMBSTONES, "litmus-rebirth";
        found UNLINK_LOCKED, "litmus-rebirth";
    }
    Mocc<Broken>, faults mocc::FAULTS, optimistic::FAULTS {
        found TRUST_LOCKS, "litmus-write-skew";
        found UNLINK_LOCKED, "litmus-rebirth";
        found IGNORE_LOCKS_IN_VALIDATION, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
        stands_still WAIT_OUT_OF_ORDER, "litmus-write-skew";
    }
    NestedOcc<Broken>, faults nested_occ::FAULTS, optimistic::FAULTS {
        found VALIDATE_LAST_PIECE, "litmus-pieces-pair";
        found FORGET_FILLED_GAPS, "litmus-pieces-plan", FILLED_GAP;
        found IGNORE_LOCKS_IN_VALIDATION, "litmus-write-skew";
        found UNLINK_LOCKED, "litmus-rebirth";
        found FORGET_GAPS, "litmus-absent";
    }
    TimestampOrdering<Machine, Broken>, faults timestamp_ordering::FAULTS {
        found FORGET_AGE_OF_TOMBSTONES, "litmus-rebirth";
        equivalent UNLINK_EARLY, "litmus-rebirth";
        found FORGET_READERS_OF_TOMBSTONES, "litmus-rebirth";
        found FORGET_READS, "litmus-write-skew";
        found IGNORE_PREWRITES, "litmus-lost-update";
        found OVERTAKE_READS, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
    }
    Mvto<Machine, Broken>, faults mvto::FAULTS, multiversion::FAULTS {
        found LOOK_BEFORE_RTS, "litmus-write-skew";
        found FORGET_AGE_OF_TOMBSTONES, "litmus-rebirth";
        equivalent UNLINK_EARLY, "litmus-rebirth";
        found FORGET_READERS_OF_TOMBSTONES, "litmus-rebirth";
        found FORGET_READS, "litmus-write-skew";
        found IGNORE_PREWRITES, "litmus-lost-update";
        found OVERTAKE_READS, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
    }
    Cicada<Machine, Broken>, faults multiversion::VALIDATION_FAULTS, multiversion::FAULTS {
        found FORGET_AGE_OF_TOMBSTONES, "litmus-rebirth";
        equivalent UNLINK_EARLY, "litmus-rebirth";
        found FORGET_READERS_OF_TOMBSTONES, "litmus-rebirth";
        // The consistency check that CCBench found missing.
        found TRUST_COMMITTED, "litmus-lost-update";
        found FORGET_READS, "litmus-write-skew";
        found OVERTAKE_READS, "litmus-write-skew";
        found IGNORE_PREWRITES, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
        found TRUST_OLDER, "litmus-overwrites", NWR;
        found OMIT_ANY, "litmus-overwrites", NWR;
    }
    Msto<Machine, Broken>, faults msto::FAULTS, multiversion::VALIDATION_FAULTS, multiversion::FAULTS {
        found FORGET_AGE_OF_TOMBSTONES, "litmus-rebirth";
        equivalent UNLINK_EARLY, "litmus-rebirth";
        found FORGET_READERS_OF_TOMBSTONES, "litmus-rebirth";
        found FORGET_READS, "litmus-updates", SPLIT;
        found OVERTAKE_READS, "litmus-updates", SPLIT;
        found TRUST_OLDER, "litmus-updates", SPLIT;
        found REORDER_ANY, "litmus-updates", SPLIT;
        found TRUST_COMMITTED, "litmus-lost-update";
        found FORGET_GAPS, "litmus-absent";
        found OMIT_ANY, "litmus-overwrites", NWR;
    }
    SnapshotIsolation<Machine, Broken>, faults snapshot_isolation::FAULTS, multiversion::SNAPSHOT_FAULTS, multiversion::FAULTS {
        found LOOK_TOO_LATE, "litmus-random";
        found FORGET_AGE_OF_TOMBSTONES, "litmus-rebirth";
        equivalent UNLINK_EARLY, "litmus-rebirth";
        found FORGET_FIRST_UPDATER, "litmus-lost-update";
        found IGNORE_PREWRITES, "litmus-random";
    }
    Ermia<Machine, Broken>, faults ermia::FAULTS, multiversion::SNAPSHOT_FAULTS, multiversion::FAULTS {
        found LOOK_TOO_LATE, "litmus-random";
        found FORGET_AGE_OF_TOMBSTONES, "litmus-rebirth-index";
        equivalent UNLINK_EARLY, "litmus-rebirth";
        found FORGET_READERS_OF_TOMBSTONES, "litmus-rebirth";
        found FORGET_READS, "litmus-write-skew";
        found OVERTAKE_READS, "litmus-write-skew";
        found FORGET_SUCCESSORS, "litmus-write-skew";
        found FORGET_CREATORS, "litmus-read-only";
        found FORGET_GAPS, "litmus-absent";
        found IGNORE_PREWRITES, "litmus-random";
    }
    Hekaton<Machine, Broken>, faults hekaton::FAULTS, multiversion::SNAPSHOT_FAULTS, multiversion::FAULTS {
        found LOOK_TOO_LATE, "litmus-random";
        found FORGET_AGE_OF_TOMBSTONES, "litmus-rebirth";
        equivalent UNLINK_EARLY, "litmus-rebirth";
        found FORGET_READ_ONLY, "litmus-write-skew";
        found IGNORE_PREWRITES, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
    }
    NoWait<Broken>, faults locking::FAULTS {
        found RELEASE_SHARED_EARLY, "litmus-write-skew"
            => locking_that_releases_shared_locks_early_is_caught by_schedules "G2-item: write skew";
        found IGNORE_READERS, "litmus-write-skew"
            => locking_that_ignores_readers_is_caught by_schedules "G-single: read skew";
        found FORGET_GAPS, "litmus-absent"
            => locking_that_forgets_gaps_is_caught by_schedules "G2: empty ranges";
        found WRITE_WRONG_CELL, "litmus-groups", SPLIT
            => locking_that_locks_the_wrong_cell_is_caught by_schedules "groups: lost update";
        found MERGE_BEFORE_LOCK, "litmus-groups", SPLIT
            => locking_that_merges_before_it_locks_is_caught by_storms;
        found KEEP_ABORTED_INSERTS, "litmus-abort"
            => locking_that_keeps_aborted_inserts_is_caught by_schedules "G1a: aborted insert";
        found VALIDATE_BEFORE_LOCKS, "litmus-late-updates", SPLIT;
        found UNLINK_LOCKED, "litmus-rebirth";
    }
    WaitDie<Machine, Broken>, faults queue::FAULTS, locking::FAULTS {
        found RELEASE_SHARED_EARLY, "litmus-write-skew"
            => wait_die_that_releases_shared_locks_early_is_caught by_schedules "G2-item: write skew";
        found IGNORE_READERS, "litmus-write-skew"
            => wait_die_that_ignores_readers_is_caught by_schedules "G-single: read skew";
        found FORGET_GAPS, "litmus-absent";
        stands_still WAIT_ANYWAY, "litmus-write-skew"
            => wait_die_in_which_all_wait_for_all_is_caught by_schedules "G2-item: write skew";
    }
    WoundWait<Machine, Broken>, faults wound::FAULTS, queue::FAULTS, locking::FAULTS {
        found RELEASE_SHARED_EARLY, "litmus-write-skew"
            => wound_wait_that_releases_shared_locks_early_is_caught by_schedules "G2-item: write skew";
        found IGNORE_READERS, "litmus-write-skew"
            => wound_wait_that_ignores_readers_is_caught by_schedules "G-single: read skew";
        found FORGET_GAPS, "litmus-absent";
        stands_still IGNORE_WOUNDS, "litmus-write-skew"
            => wound_wait_that_ignores_wounds_is_caught by_schedules "G2-item: write skew";
    }
    Bamboo<Machine, Broken>, faults bamboo::FAULTS, wound::FAULTS, locking::FAULTS {
        found FORGET_PREDECESSORS, "litmus-lost-update";
        found FORGET_DEPENDENTS, "litmus-random";
        found FORGET_GAPS, "litmus-absent";
        found IGNORE_READERS, "litmus-write-skew";
    }
    DeadlockDetection<Machine, Broken>, faults queue::FAULTS, locking::FAULTS {
        found RELEASE_SHARED_EARLY, "litmus-write-skew"
            => deadlock_detection_that_releases_shared_locks_early_is_caught by_schedules "G2-item: write skew";
        found IGNORE_READERS, "litmus-write-skew"
            => deadlock_detection_that_ignores_readers_is_caught by_schedules "G-single: read skew";
        found FORGET_GAPS, "litmus-absent";
        stands_still WAIT_ANYWAY, "litmus-write-skew", PATIENT
            => deadlock_detection_in_which_all_wait_for_all_is_caught by_schedules "G2-item: write skew";
    }
    Ordered<Broken>, faults ordered::FAULTS, locking::FAULTS {
        found RELEASE_SHARED_EARLY, "litmus-long-fork";
        found IGNORE_READERS, "litmus-write-skew";
        found FORGET_GAPS, "litmus-absent";
        stands_still LOCK_AS_DECLARED, "litmus-random";
    }
    Ic3<Machine, Broken>, faults ic3::FAULTS, accessors::FAULTS {
        stands_still FORGET_PIECE_WAIT, "litmus-pieces-pair";
        found FORGET_PREDECESSORS, "litmus-pieces-cancel";
        found LAST_ACCESSOR_ONLY, "litmus-pieces-readers";
        found IGNORE_READERS, "litmus-pieces-readers";
        found FORGET_READS, "litmus-pieces-readers";
        found FORGET_GAP_READERS, "litmus-pieces-phantom";
        found TRUST_PLACEHOLDERS, "litmus-pieces-revive";
        found IGNORE_VALIDATING, "litmus-pieces-phantom";
        found FORGET_PASSERS, "litmus-pieces-passed";
        found PASS_BLINDLY, "litmus-pieces-passed";
        found SPARE_PASSERS, "litmus-pieces-passed";
        found UNLINK_READ, "litmus-rebirth-index";
        stands_still SKIP_MERGE, "litmus-pieces-cross";
        found FORGET_SECOND_INSTANCE, "litmus-pieces-pair";
        found COPY_UNCOMMITTED, "litmus-pieces-snapshot";
        found SHOW_UNCOMMITTED, "litmus-pieces-snapshot";
        found FORGET_EARLIER_EPOCHS, "litmus-pieces-snapshot";
        found SNAPSHOT_OF_RUNNING_EPOCH, "litmus-pieces-snapshot";
        found FORGET_DEPENDENTS, "pieces", CANCELS;
        found RESTORE_VOID, "pieces", CANCELS;
        found DOOM_AFTER_END, "pieces", CANCELS;
        stands_still ANNOUNCE_BEFORE_LOCKING, "pieces", PIECES;
        found SKIP_PIECE_VALIDATION, "litmus-lost-update";
        found FORGET_GAPS, "litmus-absent";
        found COARSE_CELLS, "litmus-pieces-groups";
        found SUM_THAT_IS_READ, "litmus-pieces-sums", READ_SUMS;
        found SHOW_INSERTS_LATE, "litmus-pieces-phantom", SPLIT;
        found TRUST_SETTLED, "litmus-pieces-settled", SPLIT;
        found TRUST_CHAINS, "litmus-pieces-snapshot";
        found SHOW_SUMS, "litmus-pieces-beside", SPLIT;
        found WHOLE_READS_UNCOMMITTED, "litmus-pieces-readers";
        found WHOLE_LOOKS_FIRST, "litmus-pieces-readers";
        found WHOLE_FORGETS_ACCESSORS, "litmus-pieces-readers";
        found WHOLE_FORGETS_GAP_READERS, "litmus-pieces-phantom";
    }
    Datm<Machine, Broken>, faults datm::FAULTS, accessors::FAULTS {
        found FORGET_PREDECESSORS, "litmus-lost-update";
        found FORGET_DEPENDENTS, "litmus-pieces-cancel";
        found LAST_ACCESSOR_ONLY, "litmus-pieces-readers";
        found IGNORE_READERS, "litmus-write-skew"
            => datm_that_ignores_readers_is_caught by_schedules "G2-item: write skew";
        found RESTORE_VOID, "pieces", CANCELS;
        found DOOM_AFTER_END, "pieces", CANCELS;
        found UNLINK_READ, "litmus-moves", SOON;
        found TRUST_OWN_READS, "litmus-random";
        found KEEP_INTERMEDIATE_READS, "litmus-random";
        found VALIDATE_BEFORE_WAITING, "litmus-absent";
        found FORGET_GAPS, "litmus-absent";
    }
    Chopping<Machine, Broken>, faults chopping::FAULTS {
        found LEAVE_SC_CYCLE, "litmus-pieces-pair";
        found LEAVE_SC_CYCLE, "litmus-pieces-cross";
        found LEAVE_SC_CYCLE, "litmus-pieces-pair", OVER_WAIT_DIE;
        found LEAVE_SC_CYCLE, "litmus-pieces-pair", OVER_WOUND_WAIT;
        found FORGET_GAPS, "litmus-absent";
    }
    HStore<Machine, Broken>, faults hstore::FAULTS, queue::FAULTS, locking::FAULTS {
        found LOCK_ONLY_FIRST_PARTITION, "litmus-write-skew";
        found RELEASE_BEFORE_INSTALL, "litmus-lost-update";
        stands_still WAIT_ANYWAY, "litmus-random";
    }
    Aria<Machine, Broken>, faults aria::FAULTS {
        found IGNORE_WAW, "litmus-random"
            => aria_in_which_two_write_one_row_is_caught by_schedules "P4: lost read-modify-write";
        found IGNORE_RAW, "litmus-write-skew"
            => aria_that_ignores_earlier_writes_is_caught by_schedules "G2-item: write skew";
        found FORGET_READS, "litmus-write-skew"
            => aria_that_forgets_its_reads_is_caught by_schedules "G2-item: write skew";
        found FORGET_GAP_RESERVATIONS, "litmus-absent"
            => aria_that_forgets_gaps_is_caught by_schedules "G2: misses and inserts";
        found RESERVE_LATE, "litmus-lost-update"
            => aria_that_reserves_late_is_caught by_storms;
        found BEGIN_EARLY, "litmus-lost-update"
            => aria_that_begins_early_is_caught by_storms;
        found UNLINK_RESERVED, "litmus-rebirth";
        not_repeatable FIRST_COME, "litmus-lost-update", PATIENT_ROUNDS;
        found FORGET_GAPS, "litmus-absent";
    }
    Calvin<Machine, Broken>, faults calvin::FAULTS {
        found ASK_FOR_ONE, "litmus-write-skew";
        found SHARE_WRITES, "litmus-lost-update";
        found PASS_READERS, "litmus-random";
        found ASK_LATE, "litmus-lost-update";
        found END_EARLY, "litmus-lost-update"
            => calvin_that_ends_early_is_caught by_storms;
        found IGNORE_KINDS, "litmus-reinsert";
        not_repeatable GRANT_BY_ARRIVAL, "litmus-reinsert", PATIENT_ROUNDS;
    }
    Lazy<Machine, Broken>, faults lazy::FAULTS {
        found PASS_BEFORE_REQUESTS, "litmus-later";
        found PASS_BEFORE_INSTALL, "litmus-later";
        found IGNORE_WRITERS, "litmus-later";
        found IGNORE_READERS, "litmus-later";
        found SHARE_WRITES, "litmus-later";
        found GRANT_OUT_OF_ORDER, "litmus-later";
        stands_still CAPTURE_AFTER_OWN, "litmus-later";
        found FORGET_INSERTS, "litmus-later-inserts";
        found KEEP_NO_TURN, "litmus-later-inserts";
        found MISS_BEFORE_TURN, "litmus-births";
        found END_EARLY, "litmus-later";
    }
}
