//! Which optimisation method goes with which protocol, and why not (CCBench's table 1, in our
//! version).
//!
//! Whether a protocol takes a method follows from its options; for the others there is a reason
//! here, which a test demands for every registered protocol.

/// An optimisation method.
#[derive(Debug)]
pub struct MethodInfo {
    /// Its name.
    pub name: &'static str,
    /// One line of meaning.
    pub meaning: &'static str,
    /// The options by which it is chosen. A protocol that has one of them takes the method; those
    /// of all protocols do if the engine or the loop around transactions has it. None: it is part
    /// of a protocol, or not.
    pub options: &'static [&'static str],
    /// For protocols that do not take it, by name, or `*` for all others.
    otherwise: &'static [(&'static [&'static str], Otherwise)],
}

/// How a protocol that does not take a method stands to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// It is part of the protocol.
    BuiltIn(&'static str),
    /// It does not apply.
    No(&'static str),
}

use Otherwise::{BuiltIn, No};

const LOCKING: &[&str] =
    &["2pl-nowait", "2pl-waitdie", "2pl-woundwait", "2pl-dldetect", "2pl-ordered", "bamboo", "hstore"];

/// The methods.
pub const METHODS: &[MethodInfo] = &[
    MethodInfo {
        name: "wait policy",
        meaning: "what becomes of a lock that another holds: wait, a moment, or not at all",
        options: &["silo.wait", "tictoc.wait", "cicada.pending", "dldetect.timeout_us", "waitdie.overtake"],
        otherwise: &[
            (&["2pl-nowait"], No("it never waits: that is the protocol")),
            (
                &["2pl-woundwait", "bamboo", "hstore", "timestamp-ordering", "mvto", "msto"],
                No("who waits follows from the timestamps"),
            ),
            (&["si", "ermia", "hekaton"], No("a reader waits for commits only, and the second to write a row aborts")),
            (&["2pl-ordered"], No("it waits for what is in order: that is the protocol")),
            (&["occ", "mocc"], No("locks are taken in one order, so that waiting is safe and an abort gains nothing")),
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
            (LOCKING, No("locks would be held meanwhile")),
            (
                &["timestamp-ordering", "mvto", "cicada", "msto"],
                No("the transaction's timestamp is fixed at its beginning: the longer it takes, the later it comes"),
            ),
            (
                &["si", "ermia", "hekaton"],
                No("what it sees is fixed at its beginning: the longer it takes, the older it is"),
            ),
            (&["*"], No("nothing is validated")),
        ],
    },
    MethodInfo {
        name: "timestamp source",
        meaning: "a counter under a mutex or added to atomically, in batches, a clock, hardware; and who adds to it",
        options: &["timestamp.source", "timestamp.batch", "snapshot.counter"],
        otherwise: &[
            (&["silo", "mocc"], No("ordering is decentral: TIDs are computed from what was read, and the epoch")),
            (&["tictoc"], No("ordering is decentral: times are computed from what was read and written")),
            (&["cicada"], No("each worker has a clock of its own: that is the protocol")),
            (&["hekaton"], No("begins and commits are ordered by one counter")),
            (&["*"], No("there are no timestamps")),
        ],
    },
    MethodInfo {
        name: "decentral ordering",
        meaning: "commits take no number from a shared counter",
        options: &[],
        otherwise: &[
            (&["silo", "mocc", "tictoc", "cicada"], BuiltIn("part of the protocol")),
            (&["si", "ermia", "hekaton"], No("one counter says which commits a snapshot has")),
            (&["2pl-nowait", "2pl-dldetect", "2pl-ordered"], BuiltIn("the order is that of the locks")),
            (&["msto"], No("one counter gives the timestamps")),
            (&["occ"], No("two timestamps in the order of real time are the protocol")),
            (
                &["timestamp-ordering", "mvto", "2pl-waitdie", "2pl-woundwait", "bamboo", "hstore"],
                BuiltIn("with timestamp.source=clock"),
            ),
            (&["*"], No("there is no order")),
        ],
    },
    MethodInfo {
        name: "invisible reads",
        meaning: "a read writes nothing that others see",
        options: &["mocc.hot"],
        otherwise: &[
            (&["silo"], BuiltIn("part of the protocol")),
            (&["occ"], BuiltIn("until the commit, which locks what was read")),
            (&["tictoc"], No("a commit moves on for how long what it read is valid")),
            (&["timestamp-ordering", "mvto"], No("a read leaves its timestamp")),
            (&["cicada", "msto", "ermia"], No("a commit leaves its timestamp at what it read")),
            (&["si", "hekaton"], BuiltIn("nobody asks who has read what")),
            (&["hstore"], BuiltIn("nobody else is in the partition")),
            (LOCKING, No("a read lock is a write to shared memory")),
            (&["*"], BuiltIn("nothing is kept of a read")),
        ],
    },
    MethodInfo {
        name: "early abort",
        meaning: "a transaction that can't commit any more ends before its commit",
        options: &["tictoc.preemptive", "cicada.early_abort"],
        otherwise: &[
            (&["silo", "mocc"], No("what was read is looked at again at commit only: until then nothing is known")),
            (&["occ"], BuiltIn("a read of what was written after the beginning aborts at once")),
            (&["timestamp-ordering", "mvto", "msto"], BuiltIn("who comes too late aborts at once")),
            (&["si", "hekaton"], BuiltIn("the second to write a row aborts at once")),
            (
                &["ermia"],
                BuiltIn("the second to write a row aborts at once, and so does who must come before and after another"),
            ),
            (LOCKING, BuiltIn("a conflict is found at the access")),
            (&["*"], No("nothing aborts")),
        ],
    },
    MethodInfo {
        name: "version history",
        meaning: "who has read the version before may commit in its time",
        options: &["tictoc.history"],
        otherwise: &[
            (&["mvto", "cicada", "msto", "si", "ermia", "hekaton"], BuiltIn("old versions are kept")),
            (&["*"], No("only in TicToc do versions have intervals of time")),
        ],
    },
    MethodInfo {
        name: "collection",
        meaning: "when an old version is reused: as soon as no transaction runs that began before it was replaced, or two epochs later; or also while one runs that cannot need it",
        options: &["versions.collect", "versions.interval_us", "versions.max"],
        otherwise: &[
            (&["silo"], No("snapshots are of epochs, and so is what is kept for them")),
            (&["*"], No("there are no old versions")),
        ],
    },
    MethodInfo {
        name: "version overwriting",
        meaning: "a version that no transaction that runs could need is overwritten where it stands",
        options: &["versions.overwrite"],
        otherwise: &[
            (&["silo"], No("snapshots are of epochs: what they need is not known from the transactions that run")),
            (&["*"], BuiltIn("there are no old versions")),
        ],
    },
    MethodInfo {
        name: "non-visible write rule",
        meaning: "a write is left out that comes too late, where a later one has replaced the row unseen (NWR; in one version, Thomas's rule)",
        options: &["versions.nwr"],
        otherwise: &[
            (&["silo", "occ", "tictoc", "mocc"], No("a commit takes its place after the last write of what it writes")),
            (&["si", "ermia", "hekaton"], No("a commit comes after all others, and the second to write a row aborts")),
            (&["mvto"], No("of reads of old versions it keeps no trace: who has missed the write would not be known")),
            (&["timestamp-ordering"], No("what was replaced is gone: that nobody has seen it could not be proved")),
            (LOCKING, No("locks are the order: no write comes too late")),
            (&["*"], No("there is no order")),
        ],
    },
    MethodInfo {
        name: "commit-time updates",
        meaning: "an update that is not read is applied at commit to what is there",
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
        name: "record alignment",
        meaning: "records share cache lines, or have lines of their own",
        options: &["engine.alignment"],
        otherwise: &[],
    },
    MethodInfo {
        name: "protection",
        meaning: "after so many conflicts in a row a transaction runs alone: others begin when it has committed",
        options: &["engine.protect_after"],
        otherwise: &[],
    },
];

impl MethodInfo {
    /// How a protocol that takes none of the options stands to the method; `None` if nobody has
    /// said.
    pub fn otherwise(&self, protocol: &str) -> Option<Otherwise> {
        let of =
            |(protocols, _): &&(&[&str], Otherwise)| protocols.iter().any(|name| *name == protocol || *name == "*");
        self.otherwise.iter().find(of).map(|(_, otherwise)| *otherwise)
    }
}

/// Why a protocol does not take this option, if it is of a method: a sentence.
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
