//! The hash index's latch under a model checker: a lookup beside a change sees the key or does not, and its version tells.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p contend-index --test loom`
#![cfg(loom)]

use contend_index::{HashIndex, Insert};
use contend_machine::Loom;
use loom::sync::Arc;
use loom::thread;

fn explore(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.max_branches = 100_000;
    model.check(check);
}

#[test]
fn a_lookup_beside_an_insert_is_consistent() {
    explore(|| {
        let index = Arc::new(HashIndex::<Loom, u64>::new(1));
        let other = Arc::clone(&index);
        let inserting = thread::spawn(move || assert!(matches!(other.insert(7, 70), Insert::Inserted(_))));
        let first = index.get(7);
        let second = index.get(7);
        for lookup in [&first, &second] {
            assert!(matches!(lookup.value, None | Some(70)), "{lookup:?}");
        }
        if first.value != second.value {
            assert_eq!((first.value, second.value), (None, Some(70)), "it came, and did not go");
            assert_ne!(first.version, second.version, "the change shows in the version");
        }
        inserting.join().expect("no panic");
        assert_eq!(index.get(7).value, Some(70));
    });
}

#[test]
fn one_of_two_inserts_of_a_key_wins() {
    explore(|| {
        let index = Arc::new(HashIndex::<Loom, u64>::new(1));
        let other = Arc::clone(&index);
        let theirs = thread::spawn(move || matches!(other.insert(7, 70), Insert::Inserted(_)));
        let mine = matches!(index.insert(7, 71), Insert::Inserted(_));
        let theirs = theirs.join().expect("no panic");
        assert!(mine != theirs, "mine: {mine}, theirs: {theirs}");
        assert_eq!(index.get(7).value, Some(if mine { 71 } else { 70 }));
    });
}
