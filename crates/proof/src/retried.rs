//! A transaction of a simulated core, tried until it ends.

use contend_engine::{AbortReason, Declaration, Erased, Worker};
use contend_machine::Machine;
use contend_sim::Simulated;
use contend_workloads::Workload;

pub(crate) type ErasedWorker = Worker<Erased<Simulated>, Simulated>;

/// The most tries of a transaction; after them its core gives it up.
const TRIES_MAX: u32 = 64;

/// Runs a transaction until it commits, cancels itself, or is given up. Calls `begin` with the
/// number of each try, from 1. Returns the transaction's number in the history if it has committed.
///
/// # Errors
/// The reason of an abort that does not go away.
pub(crate) fn run_retried<W: Workload>(
    worker: &mut ErasedWorker,
    workload: &W,
    client: &mut W::Client,
    input: &W::Input,
    mut begin: impl FnMut(u32),
) -> Result<Option<u64>, AbortReason> {
    for number in 1..=TRIES_MAX {
        begin(number);
        let mut txn = 0;
        let declare = |declaration: &mut Declaration<Simulated>| {
            declaration.kind(workload.kind(input));
            workload.declare(input, declaration);
        };
        let outcome = worker.run_declared(declare, |tx| {
            txn = tx.number();
            workload.execute(tx, client, input)
        });
        match outcome {
            Ok(()) => {
                workload.committed(client, input);
                return Ok(Some(txn));
            }
            Err(abort) if abort.reason == AbortReason::User => return Ok(None),
            Err(abort) if !abort.reason.is_conflict() => return Err(abort.reason),
            Err(_) => {
                Simulated::step("try again");
                Simulated::pause();
            }
        }
    }
    Ok(None)
}
