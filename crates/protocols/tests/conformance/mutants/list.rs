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
        found ignore_locks_in_validation, "litmus-write-skew"
            => silo_that_ignores_locks_in_validation_is_caught by_storms;
        found skip_validation_of_written, "litmus-lost-update"
            => silo_that_skips_the_validation_of_what_it_writes_is_caught by_schedules "P4: lost read-modify-write";
        found forget_read_only, "litmus-write-skew"
            => silo_that_validates_only_what_it_writes_is_caught by_schedules "G2-item: write skew";
        found forget_gaps, "litmus-absent"
            => silo_that_forgets_gaps_is_caught by_schedules "G2: misses and inserts";
        found forget_gaps, "litmus-scans"
            => silo_that_forgets_gaps_of_scans_is_caught by_schedules "G2: empty ranges";
        found show_placeholders, "litmus-abort"
            => silo_that_shows_placeholders_is_caught by_schedules "G1a: aborted insert";
        found write_wrong_cell, "litmus-groups", SPLIT
            => silo_that_writes_the_wrong_cell_is_caught by_schedules "groups: lost update";
        found merge_before_lock, "litmus-groups", SPLIT
            => silo_that_merges_before_it_locks_is_caught by_storms;
        found forget_older_tids, "litmus-random"
            => silo_that_uses_tids_twice_is_caught by_storms;
        found epoch_before_locks, "litmus-snapshot", SNAPSHOTS;
        found snapshot_of_running_epoch, "litmus-snapshot", SNAPSHOTS;
        equivalent snapshot_of_last_epoch, "litmus-snapshot", SNAPSHOTS;
        found forget_snapshots_of_tombstones, "litmus-snapshot-rows", SNAPSHOTS;
        found reuse_copies_early, "litmus-snapshot", SNAPSHOTS;
        found unlink_locked, "litmus-rebirth";
    }
    Occ<Machine, Broken>, faults occ::FAULTS, optimistic::FAULTS {
        found stamp_before_locks, "litmus-lost-update";
        found skip_validation_of_written, "litmus-lost-update";
        found lock_only_written, "litmus-write-skew";
        found unlink_locked, "litmus-rebirth";
        found forget_gaps, "litmus-absent";
    }
    TicToc<Broken>, faults tictoc::FAULTS, optimistic::FAULTS {
        found forget_extension, "litmus-write-skew";
        found overwrite_read_intervals, "litmus-write-skew";
        found ignore_locks_in_validation, "litmus-write-skew";
        found forget_times_of_leaves, "litmus-random";
        equivalent forget_times_of_splits, "litmus-split";
        found forget_readers_of_tombstones, "litmus-rebirth";
        found unlink_locked, "litmus-rebirth";
    }
    Mocc<Broken>, faults mocc::FAULTS, optimistic::FAULTS {
        found trust_locks, "litmus-write-skew";
        found unlink_locked, "litmus-rebirth";
        found ignore_locks_in_validation, "litmus-write-skew";
        found forget_gaps, "litmus-absent";
        stands_still wait_out_of_order, "litmus-write-skew";
    }
    NestedOcc<Broken>, faults nested_occ::FAULTS, optimistic::FAULTS {
        found validate_last_piece, "litmus-pieces-pair";
        found forget_filled_gaps, "litmus-pieces-plan", FILLED_GAP;
        found ignore_locks_in_validation, "litmus-write-skew";
        found unlink_locked, "litmus-rebirth";
        found forget_gaps, "litmus-absent";
    }
    TimestampOrdering<Machine, Broken>, faults timestamp_ordering::FAULTS {
        found forget_age_of_tombstones, "litmus-rebirth";
        equivalent unlink_early, "litmus-rebirth";
        found forget_readers_of_tombstones, "litmus-rebirth";
        found forget_reads, "litmus-write-skew";
        found ignore_prewrites, "litmus-lost-update";
        found overtake_reads, "litmus-write-skew";
        found forget_gaps, "litmus-absent";
    }
    Mvto<Machine, Broken>, faults mvto::FAULTS, multiversion::FAULTS {
        found look_before_rts, "litmus-write-skew";
        found forget_age_of_tombstones, "litmus-rebirth";
        equivalent unlink_early, "litmus-rebirth";
        found forget_readers_of_tombstones, "litmus-rebirth";
        found forget_reads, "litmus-write-skew";
        found ignore_prewrites, "litmus-lost-update";
        found overtake_reads, "litmus-write-skew";
        found forget_gaps, "litmus-absent";
    }
    Cicada<Machine, Broken>, faults multiversion::VALIDATION_FAULTS, multiversion::FAULTS {
        found forget_age_of_tombstones, "litmus-rebirth";
        equivalent unlink_early, "litmus-rebirth";
        found forget_readers_of_tombstones, "litmus-rebirth";
        // The consistency check that CCBench found missing.
        found trust_committed, "litmus-lost-update";
        found forget_reads, "litmus-write-skew";
        found overtake_reads, "litmus-write-skew";
        found ignore_prewrites, "litmus-write-skew";
        found forget_gaps, "litmus-absent";
        found trust_older, "litmus-overwrites", NWR;
        found omit_any, "litmus-overwrites", NWR;
    }
    Msto<Machine, Broken>, faults msto::FAULTS, multiversion::VALIDATION_FAULTS, multiversion::FAULTS {
        found forget_age_of_tombstones, "litmus-rebirth";
        equivalent unlink_early, "litmus-rebirth";
        found forget_readers_of_tombstones, "litmus-rebirth";
        found forget_reads, "litmus-updates", SPLIT;
        found overtake_reads, "litmus-updates", SPLIT;
        found trust_older, "litmus-updates", SPLIT;
        found reorder_any, "litmus-updates", SPLIT;
        found trust_committed, "litmus-lost-update";
        found forget_gaps, "litmus-absent";
        found omit_any, "litmus-overwrites", NWR;
    }
    SnapshotIsolation<Machine, Broken>, faults snapshot_isolation::FAULTS, multiversion::SNAPSHOT_FAULTS, multiversion::FAULTS {
        found look_too_late, "litmus-random";
        found forget_age_of_tombstones, "litmus-rebirth";
        equivalent unlink_early, "litmus-rebirth";
        found forget_first_updater, "litmus-lost-update";
        found ignore_prewrites, "litmus-random";
    }
    Ermia<Machine, Broken>, faults ermia::FAULTS, multiversion::SNAPSHOT_FAULTS, multiversion::FAULTS {
        found look_too_late, "litmus-random";
        found forget_age_of_tombstones, "litmus-rebirth-index";
        equivalent unlink_early, "litmus-rebirth";
        found forget_readers_of_tombstones, "litmus-rebirth";
        found forget_reads, "litmus-write-skew";
        found overtake_reads, "litmus-write-skew";
        found forget_successors, "litmus-write-skew";
        found forget_creators, "litmus-read-only";
        found forget_gaps, "litmus-absent";
        found ignore_prewrites, "litmus-random";
    }
    Hekaton<Machine, Broken>, faults hekaton::FAULTS, multiversion::SNAPSHOT_FAULTS, multiversion::FAULTS {
        found look_too_late, "litmus-random";
        found forget_age_of_tombstones, "litmus-rebirth";
        equivalent unlink_early, "litmus-rebirth";
        found forget_read_only, "litmus-write-skew";
        found ignore_prewrites, "litmus-write-skew";
        found forget_gaps, "litmus-absent";
    }
    NoWait<Broken>, faults locking::FAULTS {
        found release_shared_early, "litmus-write-skew"
            => locking_that_releases_shared_locks_early_is_caught by_schedules "G2-item: write skew";
        found ignore_readers, "litmus-write-skew"
            => locking_that_ignores_readers_is_caught by_schedules "G-single: read skew";
        found forget_gaps, "litmus-absent"
            => locking_that_forgets_gaps_is_caught by_schedules "G2: empty ranges";
        found write_wrong_cell, "litmus-groups", SPLIT
            => locking_that_locks_the_wrong_cell_is_caught by_schedules "groups: lost update";
        found merge_before_lock, "litmus-groups", SPLIT
            => locking_that_merges_before_it_locks_is_caught by_storms;
        found keep_aborted_inserts, "litmus-abort"
            => locking_that_keeps_aborted_inserts_is_caught by_schedules "G1a: aborted insert";
        found validate_before_locks, "litmus-late-updates", SPLIT;
        found unlink_locked, "litmus-rebirth";
    }
    WaitDie<Machine, Broken>, faults queue::FAULTS, locking::FAULTS {
        found release_shared_early, "litmus-write-skew"
            => wait_die_that_releases_shared_locks_early_is_caught by_schedules "G2-item: write skew";
        found ignore_readers, "litmus-write-skew"
            => wait_die_that_ignores_readers_is_caught by_schedules "G-single: read skew";
        found forget_gaps, "litmus-absent";
        stands_still wait_anyway, "litmus-write-skew"
            => wait_die_in_which_all_wait_for_all_is_caught by_schedules "G2-item: write skew";
    }
    WoundWait<Machine, Broken>, faults wound::FAULTS, queue::FAULTS, locking::FAULTS {
        found release_shared_early, "litmus-write-skew"
            => wound_wait_that_releases_shared_locks_early_is_caught by_schedules "G2-item: write skew";
        found ignore_readers, "litmus-write-skew"
            => wound_wait_that_ignores_readers_is_caught by_schedules "G-single: read skew";
        found forget_gaps, "litmus-absent";
        stands_still ignore_wounds, "litmus-write-skew"
            => wound_wait_that_ignores_wounds_is_caught by_schedules "G2-item: write skew";
    }
    Bamboo<Machine, Broken>, faults bamboo::FAULTS, wound::FAULTS, locking::FAULTS {
        found forget_predecessors, "litmus-lost-update";
        found forget_dependents, "litmus-random";
        found forget_gaps, "litmus-absent";
        found ignore_readers, "litmus-write-skew";
    }
    DeadlockDetection<Machine, Broken>, faults queue::FAULTS, locking::FAULTS {
        found release_shared_early, "litmus-write-skew"
            => deadlock_detection_that_releases_shared_locks_early_is_caught by_schedules "G2-item: write skew";
        found ignore_readers, "litmus-write-skew"
            => deadlock_detection_that_ignores_readers_is_caught by_schedules "G-single: read skew";
        found forget_gaps, "litmus-absent";
        stands_still wait_anyway, "litmus-write-skew", PATIENT
            => deadlock_detection_in_which_all_wait_for_all_is_caught by_schedules "G2-item: write skew";
    }
    Ordered<Broken>, faults ordered::FAULTS, locking::FAULTS {
        found release_shared_early, "litmus-long-fork";
        found ignore_readers, "litmus-write-skew";
        found forget_gaps, "litmus-absent";
        stands_still lock_as_declared, "litmus-random";
    }
    Ic3<Machine, Broken>, faults ic3::FAULTS, accessors::FAULTS {
        stands_still forget_piece_wait, "litmus-pieces-pair";
        found forget_predecessors, "litmus-pieces-cancel";
        found last_accessor_only, "litmus-pieces-readers";
        found ignore_readers, "litmus-pieces-readers";
        found forget_reads, "litmus-pieces-readers";
        found forget_gap_readers, "litmus-pieces-phantom";
        found trust_placeholders, "litmus-pieces-revive";
        found ignore_validating, "litmus-pieces-phantom";
        found forget_passers, "litmus-pieces-passed";
        found pass_blindly, "litmus-pieces-passed";
        found spare_passers, "litmus-pieces-passed";
        found unlink_read, "litmus-rebirth-index", KEPT;
        stands_still skip_merge, "litmus-pieces-cross";
        found forget_second_instance, "litmus-pieces-pair";
        found copy_uncommitted, "litmus-pieces-snapshot", KEPT;
        found show_uncommitted, "litmus-pieces-snapshot", KEPT;
        found forget_earlier_epochs, "litmus-pieces-snapshot", KEPT;
        found snapshot_of_running_epoch, "litmus-pieces-snapshot", KEPT;
        found forget_dependents, "pieces", CANCELS;
        found restore_void, "pieces", CANCELS;
        found doom_after_end, "pieces", CANCELS;
        stands_still announce_before_locking, "pieces", PIECES;
        found skip_piece_validation, "litmus-lost-update";
        found forget_gaps, "litmus-absent";
        found coarse_cells, "litmus-pieces-groups";
        found sum_that_is_read, "litmus-pieces-sums", READ_SUMS;
        found show_inserts_late, "litmus-pieces-phantom", SPLIT;
        found trust_settled, "litmus-pieces-settled", SPLIT;
        found trust_chains, "litmus-pieces-snapshot", KEPT;
        found show_sums, "litmus-pieces-beside", KEPT_SPLIT;
        found whole_reads_uncommitted, "litmus-pieces-readers";
        found whole_looks_first, "litmus-pieces-readers";
        found whole_forgets_accessors, "litmus-pieces-readers";
        found whole_forgets_gap_readers, "litmus-pieces-phantom";
    }
    Datm<Machine, Broken>, faults datm::FAULTS, accessors::FAULTS {
        found forget_predecessors, "litmus-lost-update";
        found forget_dependents, "litmus-pieces-cancel";
        found last_accessor_only, "litmus-pieces-readers";
        found ignore_readers, "litmus-write-skew"
            => datm_that_ignores_readers_is_caught by_schedules "G2-item: write skew";
        found restore_void, "pieces", CANCELS;
        found doom_after_end, "pieces", CANCELS;
        found unlink_read, "litmus-moves", SOON;
        found trust_own_reads, "litmus-random";
        found keep_intermediate_reads, "litmus-random";
        found validate_before_waiting, "litmus-absent";
        found forget_gaps, "litmus-absent";
    }
    Chopping<Machine, Broken>, faults chopping::FAULTS {
        found leave_sc_cycle, "litmus-pieces-pair";
        found leave_sc_cycle, "litmus-pieces-cross";
        found leave_sc_cycle, "litmus-pieces-pair", OVER_WAIT_DIE;
        found leave_sc_cycle, "litmus-pieces-pair", OVER_WOUND_WAIT;
        found leave_sc_cycle, "litmus-pieces-pair", OVER_ORDERED;
        found forget_gaps, "litmus-absent";
    }
    HStore<Machine, Broken>, faults hstore::FAULTS, queue::FAULTS, locking::FAULTS {
        found lock_only_first_partition, "litmus-write-skew";
        found release_before_install, "litmus-lost-update";
        stands_still wait_anyway, "litmus-random";
    }
    Aria<Machine, Broken>, faults aria::FAULTS {
        found ignore_waw, "litmus-random"
            => aria_in_which_two_write_one_row_is_caught by_schedules "P4: lost read-modify-write";
        found ignore_raw, "litmus-write-skew"
            => aria_that_ignores_earlier_writes_is_caught by_schedules "G2-item: write skew";
        found forget_reads, "litmus-write-skew"
            => aria_that_forgets_its_reads_is_caught by_schedules "G2-item: write skew";
        found forget_gap_reservations, "litmus-absent"
            => aria_that_forgets_gaps_is_caught by_schedules "G2: misses and inserts";
        found reserve_late, "litmus-lost-update"
            => aria_that_reserves_late_is_caught by_storms;
        found begin_early, "litmus-lost-update"
            => aria_that_begins_early_is_caught by_storms;
        found unlink_reserved, "litmus-rebirth";
        not_repeatable first_come, "litmus-lost-update", PATIENT_ROUNDS;
        found forget_gaps, "litmus-absent";
    }
    Calvin<Machine, Broken>, faults calvin::FAULTS {
        found ask_for_one, "litmus-write-skew";
        found share_writes, "litmus-lost-update";
        found pass_readers, "litmus-random";
        found ask_late, "litmus-lost-update";
        found end_early, "litmus-lost-update"
            => calvin_that_ends_early_is_caught by_storms;
        found ignore_kinds, "litmus-reinsert";
        not_repeatable grant_by_arrival, "litmus-reinsert", PATIENT_ROUNDS;
    }
    Lazy<Machine, Broken>, faults lazy::FAULTS {
        found pass_before_requests, "litmus-later";
        found pass_before_install, "litmus-later";
        found ignore_writers, "litmus-later";
        found ignore_readers, "litmus-later";
        found share_writes, "litmus-later";
        found grant_out_of_order, "litmus-later";
        stands_still capture_after_own, "litmus-later";
        found forget_inserts, "litmus-later-inserts";
        found keep_no_turn, "litmus-later-inserts";
        found miss_before_turn, "litmus-births";
        found end_early, "litmus-later";
    }
}
