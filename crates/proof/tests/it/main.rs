//! Explorations and crash tests: correct protocols pass, and each deliberate bug is found.

mod crash;
mod determinism;
mod explorer;
mod mutants;
mod shop;

#[global_allocator]
static ALLOCATOR: contend_proof::Rewindable<std::alloc::System> = contend_proof::Rewindable(std::alloc::System);
