//! Explorations and crashes: protocols that are right stay right, and each deliberate bug is found.

mod crash;
mod explorer;
mod mutants;

#[global_allocator]
static ALLOCATOR: contend_proof::Rewindable<std::alloc::System> = contend_proof::Rewindable(std::alloc::System);
