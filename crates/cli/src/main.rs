//! The binary `contend`.

use std::process::ExitCode;

use contend_cli::{EndsWhenExhausted, Rewindable};
use mimalloc::MiMalloc;

/// The explorer takes memory back to how it was before an execution, so it has to know each
/// allocation.
#[global_allocator]
static ALLOCATOR: EndsWhenExhausted<Rewindable<MiMalloc>> = EndsWhenExhausted(Rewindable(MiMalloc));

fn main() -> ExitCode {
    contend_cli::main()
}
