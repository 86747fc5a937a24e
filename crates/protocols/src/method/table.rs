//! The table of optimisation methods and protocols: which goes with which, and why not (CCBench's
//! table 1, in our version).
//!
//! A protocol takes a method if it has one of the method's options. For every other pair there is a
//! reason here; a test demands one for every registered protocol.

/// An optimisation method.
#[derive(Debug)]
pub struct MethodInfo {
    /// The method's name.
    pub name: &'static str,
    /// One line that says what the method does.
    pub meaning: &'static str,
    /// The options that choose the method. A protocol that has one of them takes the method. All
    /// protocols take it if the option belongs to the engine, or to the loop around transactions.
    /// Empty: the method is a part of some protocols.
    pub options: &'static [&'static str],
    /// The reasons of the protocols that don't take it, by name, or `*` for all others.
    otherwise: &'static [(&'static [&'static str], Otherwise)],
}

/// The reason why a protocol doesn't take a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// The protocol has the method anyway.
    BuiltIn(&'static str),
    /// The method doesn't apply.
    No(&'static str),
}

use Otherwise::{BuiltIn, No};

const LOCKING: &[&str] =
    &["2pl-nowait", "2pl-waitdie", "2pl-woundwait", "2pl-dldetect", "2pl-ordered", "bamboo", "hstore"];

/// All methods.
pub const METHODS: &[MethodInfo] = &[
    MethodInfo {
        name: "wait policy",
        meaning: "what a transaction does about a lock that another holds: wait, wait for a moment, or abort",
        options: &[
            "silo.wait",
            "nested-occ.wait",
            "tictoc.wait",
            "cicada.pending",
            "dldetect.timeout_us",
            "waitdie.overtake",
            "datm.timeout_ns",
        ],
        otherwise: &[
            (&["2pl-nowait"], No("it never waits: that is the protocol")),
            (
                &["2pl-woundwait", "bamboo", "hstore", "timestamp-ordering", "mvto", "msto"],
                No("the timestamps decide which transaction waits"),
            ),
            (
                &["si", "ermia", "hekaton"],
                No("a reader waits for commits only, and the second transaction to write a row aborts"),
            ),
            (&["2pl-ordered"], No("it waits for locks in their order: that is the protocol")),
            (&["ic3"], No("the ranks of the pieces say which transaction waits for which")),
            (&["chopping"], No("the inner protocol has its default")),
            (&["aria"], No("a conflict is decided without a wait; all wait for the phases of the batch")),
            (&["calvin", "lazy"], No("it waits for the earlier transactions that conflict: that is the protocol")),
            (&["occ", "mocc"], No("locks are taken in one order, so waiting is safe and an abort gains nothing")),
            (&["*"], No("nothing is locked")),
        ],
    },
    MethodInfo {
        name: "backoff",
        meaning: "a wait between an abort and the next try",
        options: &["retry.backoff", "retry.min_us", "retry.max_us"],
        otherwise: &[],
    },
    MethodInfo {
        name: "read-phase extension",
        meaning: "a wait between the last read and the commit",
        options: &["read_phase.extension", "read_phase.ns"],
        otherwise: &[
            (LOCKING, No("the transaction would hold its locks during the wait")),
            (&["ic3"], No("a piece is validated when it ends, and transactions that come after it would wait")),
            (&["datm"], No("the transactions that come after it would wait, and its order is fixed by its accesses")),
            (&["chopping"], No("a part commits when it ends, and the inner protocol has its default")),
            (&["aria"], No("a batch lasts as long as its slowest transaction, and nothing that was read changes")),
            (&["calvin", "lazy"], No("later transactions would wait for it")),
            (
                &["timestamp-ordering", "mvto", "cicada", "msto"],
                No("the transaction's timestamp is fixed at its begin, so a longer transaction is more often too late"),
            ),
            (
                &["si", "ermia", "hekaton"],
                No("the snapshot is fixed at the begin, so it is older at the end of a longer transaction"),
            ),
            (&["*"], No("nothing is validated")),
        ],
    },
    MethodInfo {
        name: "timestamp source",
        meaning: "where timestamps come from: a counter under a mutex, atomic additions, batches, a clock, hardware; and which transactions add to the counter",
        options: &["timestamp.source", "timestamp.batch", "snapshot.counter"],
        otherwise: &[
            (
                &["silo", "mocc", "nested-occ"],
                No("ordering is decentralized: a TID is computed from the versions that were read, and the epoch"),
            ),
            (
                &["tictoc"],
                No("ordering is decentralized: a timestamp is computed from the versions that were read and written"),
            ),
            (&["cicada"], No("each worker has a clock of its own: that is the protocol")),
            (&["chopping"], No("the inner protocol has its default source")),
            (&["hekaton"], No("begins and commits are ordered by one counter")),
            (&["aria", "calvin"], No("the order is that of the batch: no timestamp is drawn")),
            (&["lazy"], No("the order is that of the turns")),
            (&["*"], No("there are no timestamps")),
        ],
    },
    MethodInfo {
        name: "decentralized ordering",
        meaning: "commits take no number from a shared counter",
        options: &[],
        otherwise: &[
            (&["silo", "mocc", "nested-occ", "tictoc", "cicada"], BuiltIn("part of the protocol")),
            (&["si", "ermia", "hekaton"], No("one counter says which commits a snapshot contains")),
            (&["2pl-nowait", "2pl-dldetect", "2pl-ordered"], BuiltIn("locks make the order")),
            (&["msto"], No("one counter gives the timestamps")),
            (&["ic3", "datm"], BuiltIn("the lists of accessors make the order")),
            (&["chopping"], BuiltIn("over Silo, the default")),
            (&["aria", "calvin"], BuiltIn("a transaction's place in its batch comes from its worker's number")),
            (&["lazy"], No("the turn goes by a number from one counter")),
            (&["occ"], No("the protocol needs two timestamps in the order of real time")),
            (
                &["timestamp-ordering", "mvto", "2pl-waitdie", "2pl-woundwait", "bamboo", "hstore"],
                BuiltIn("with timestamp.source=clock"),
            ),
            (&["*"], No("there is no order")),
        ],
    },
    MethodInfo {
        name: "invisible reads",
        meaning: "a read writes nothing that other transactions see",
        options: &["mocc.hot"],
        otherwise: &[
            (&["silo", "nested-occ"], BuiltIn("part of the protocol")),
            (&["occ"], BuiltIn("until the commit, which locks the records that were read")),
            (&["tictoc"], No("a commit extends the interval in which the versions that it read are valid")),
            (&["timestamp-ordering", "mvto"], No("a read leaves its timestamp")),
            (&["cicada", "msto", "ermia"], No("a commit leaves its timestamp at the versions that it read")),
            (&["si", "hekaton"], BuiltIn("no transaction asks which others have read a version")),
            (&["hstore"], BuiltIn("no other transaction is in the partition")),
            (LOCKING, No("a read lock is a write to shared memory")),
            (&["ic3", "datm"], No("a read stands in the list of its cell until its transaction ends")),
            (&["chopping"], BuiltIn("over Silo, the default")),
            (&["aria"], No("a transaction that writes reserves what it has read")),
            (&["calvin"], No("rows that are only read are locked before the begin")),
            (&["lazy"], No("a later part counts its reads in the rows")),
            (&["*"], BuiltIn("a read leaves no trace")),
        ],
    },
    MethodInfo {
        name: "early abort",
        meaning: "a transaction that can't commit any more ends before its commit",
        options: &["tictoc.preemptive", "cicada.early_abort"],
        otherwise: &[
            (&["silo", "mocc"], No("a conflict with a read is found at validation, not before")),
            (&["nested-occ"], BuiltIn("a piece is validated when it ends, and only the piece runs again")),
            (&["occ"], BuiltIn("a read of a version from after the begin aborts at once")),
            (&["timestamp-ordering", "mvto", "msto"], BuiltIn("a transaction that comes too late aborts at once")),
            (&["si", "hekaton"], BuiltIn("the second transaction to write a row aborts at once")),
            (
                &["ermia"],
                BuiltIn(
                    "the second transaction to write a row aborts at once, and so does one that must come before and after another",
                ),
            ),
            (LOCKING, BuiltIn("a conflict is found at the access")),
            (&["ic3"], BuiltIn("a conflict is found when the piece ends, and only the piece runs again")),
            (
                &["datm"],
                BuiltIn("a doomed transaction aborts at its next access, as does one that closes a cycle in a list"),
            ),
            (&["chopping"], BuiltIn("a conflict is found when the part ends, and only the part runs again")),
            (&["aria"], No("conflicts are known when all of the batch have executed")),
            (&["*"], No("nothing aborts")),
        ],
    },
    MethodInfo {
        name: "version history",
        meaning: "a transaction that has read the version before the newest may commit in its interval",
        options: &["tictoc.history"],
        otherwise: &[
            (&["mvto", "cicada", "msto", "si", "ermia", "hekaton"], BuiltIn("old versions are kept")),
            (&["*"], No("only TicToc's versions have validity intervals")),
        ],
    },
    MethodInfo {
        name: "collection",
        meaning: "when an old version is reused: once every transaction that began before its replacement has ended (rapid), two epochs later (epoch), or even while such a transaction runs, if it cannot need the version (aggressive)",
        options: &["versions.collect", "versions.interval_us", "versions.max"],
        otherwise: &[
            (&["silo", "ic3"], No("snapshots are those of epochs, and so are the versions kept for them")),
            (&["*"], No("there are no old versions")),
        ],
    },
    MethodInfo {
        name: "version overwriting",
        meaning: "a version that no running transaction could need is overwritten in place",
        options: &["versions.overwrite"],
        otherwise: &[
            (
                &["silo", "ic3"],
                No("snapshots are those of epochs: the running transactions do not tell which versions they need"),
            ),
            (&["*"], BuiltIn("there are no old versions")),
        ],
    },
    MethodInfo {
        name: "non-visible write rule",
        meaning: "a late write is left out if a later write has replaced the row and no transaction read the state in between (NWR; with one version, Thomas's rule)",
        options: &["versions.nwr"],
        otherwise: &[
            (
                &["silo", "occ", "tictoc", "mocc", "nested-occ"],
                No("a commit comes after the last write of each record that it writes"),
            ),
            (
                &["si", "ermia", "hekaton"],
                No("a commit comes after all others, and the second transaction to write a row aborts"),
            ),
            (
                &["mvto"],
                No("reads of old versions leave no trace, so it can't tell which transactions have missed the write"),
            ),
            (
                &["timestamp-ordering"],
                No("replaced versions are gone, so it can't prove that no transaction has read one"),
            ),
            (LOCKING, No("locks make the order, so no write comes too late")),
            (&["ic3"], No("a write takes its place in the order when its piece ends, so none comes too late")),
            (&["datm"], No("a write takes its place in the order when it is shown, so none comes too late")),
            (&["chopping"], No("a part commits after the last write of each record that it writes")),
            (&["aria"], No("of the writes of a batch to one row only the first takes effect")),
            (&["calvin", "lazy"], No("the sequence makes the order, so no write comes too late")),
            (&["*"], No("there is no order")),
        ],
    },
    MethodInfo {
        name: "commit-time updates",
        meaning: "an update whose result the transaction does not read is applied at commit, to the row as it is then",
        options: &["engine.commit_time_updates"],
        otherwise: &[],
    },
    MethodInfo {
        name: "timestamp splitting",
        meaning: "each group of columns has metadata of its own",
        options: &["engine.timestamp_splitting"],
        otherwise: &[],
    },
    MethodInfo {
        name: "lock backoff",
        meaning: "a transaction that waits for the lock of a record looks at it more and more seldom",
        options: &["engine.lock_backoff"],
        otherwise: &[],
    },
    MethodInfo {
        name: "record alignment",
        meaning: "records share cache lines, or have cache lines of their own",
        options: &["engine.alignment"],
        otherwise: &[],
    },
    MethodInfo {
        name: "protection",
        meaning: "after a number of conflicts in a row a transaction runs alone: others begin once it has committed",
        options: &["engine.protect_after"],
        otherwise: &[],
    },
];

impl MethodInfo {
    /// Returns the reason of a protocol that takes none of the options; `None` if there is none in
    /// the table.
    pub fn otherwise(&self, protocol: &str) -> Option<Otherwise> {
        let of =
            |(protocols, _): &&(&[&str], Otherwise)| protocols.iter().any(|name| *name == protocol || *name == "*");
        self.otherwise.iter().find(of).map(|(_, otherwise)| *otherwise)
    }
}

/// Returns a sentence that says why a protocol doesn't take this option, if the option belongs to a
/// method.
pub fn why_not(protocol: &str, option: &str) -> Option<String> {
    let method = METHODS.iter().find(|method| method.options.contains(&option))?;
    Some(match method.otherwise(protocol)? {
        Otherwise::No(why) => format!("{} does not go with {protocol}: {why}", method.name),
        Otherwise::BuiltIn(why) => format!("{} is in {protocol} anyway: {why}", method.name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::all_protocols;
    use contend_engine::Options;
    use contend_machine::Native;

    #[test]
    fn every_option_of_a_method_is_there_and_every_protocol_takes_it_or_has_a_reason() {
        let protocols = all_protocols::<Native>();
        let common: Vec<&str> = crate::method::RetryOptions::specs()
            .iter()
            .chain(&contend_engine::EngineOptions::specs())
            .map(|spec| spec.name)
            .collect();
        for method in METHODS {
            for option in method.options {
                let is_known = common.contains(option)
                    || protocols.iter().any(|(_, specs)| specs.iter().any(|spec| spec.name == *option));
                assert!(is_known, "{option} is nobody's option");
            }
            for (info, specs) in &protocols {
                let takes = method
                    .options
                    .iter()
                    .any(|option| common.contains(option) || specs.iter().any(|spec| spec.name == *option));
                assert!(takes || method.otherwise(info.name).is_some(), "{}: {}?", info.name, method.name);
            }
        }
        assert_eq!(
            why_not("2pl-nowait", "silo.wait").as_deref(),
            Some("wait policy does not go with 2pl-nowait: it never waits: that is the protocol")
        );
        assert_eq!(why_not("silo", "ycsb.theta"), None);
    }
}
