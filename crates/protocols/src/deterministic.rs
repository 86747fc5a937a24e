//! Deterministic protocols: the order of transactions is fixed before they conflict.
//!
//! **Idea.** A sequencer puts transactions into batches, and gives each one its place. What happens
//! in a batch depends on the batches before it and on nothing else: not on the number of threads,
//! their speed, or the order in which they reach a row. So the same input leads to the same final
//! state, however often it runs and wherever. Replicas then need to agree on the input only.
//!
//! | protocol | declared beforehand | waits | aborts |
//! | --- | --- | --- | --- |
//! | [`aria`] | nothing | all, for the end of the batch's phase | a transaction that conflicts with an earlier one in both directions |
//! | [`calvin`] | the rows or partitions | a transaction, for earlier ones that conflict with it | none because of another |
//!
//! **The sequencer** is [`rounds`]. Each worker brings one transaction to each batch. A batch of
//! hundreds of transactions needs as many workers, and several of them share a thread
//! (`threads.interleave`). In a batch the places are the workers' numbers; under Aria a transaction
//! that has aborted more often comes first. So the input is what each worker's client draws, and
//! the threads that run the workers do not matter.
//!
//! **What is promised, and when.** With `rounds.patience_us=0` every member is waited for. Then the
//! batches are a function of the input if all workers were made before the first transaction, and
//! none goes offline before its last one. Workers go offline for protection
//! (`engine.protect_after`), for a number in flight that is measured (`threads.interleave=auto`),
//! in an application after each transaction, and for a log that holds rows. By default a worker
//! that begins no transaction for some time is left out until it does, so that one idle worker does
//! not stop all others. As long as no worker is idle for that long, the result is the same.
//!
//! **Latency.** A transaction ends when its batch lets it. So its latency is a property of the
//! batch: it has at least the time of the batch's slowest transaction under Aria.
//!
//! **Records.** No row is locked while it is read or written: the batches keep transactions apart.
//! [`crate::alone`] has the code that H-Store uses as well.

pub mod aria;
pub mod calvin;
pub mod rounds;
