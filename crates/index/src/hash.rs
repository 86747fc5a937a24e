//! (in progress)
use crate::{Insert, Key, Lookup};
use contend_machine::Machine;
/// Points.
#[derive(Debug)]
pub struct HashIndex<M: Machine, K: Key>(std::marker::PhantomData<(M, K)>);
#[allow(missing_docs, unused_variables, clippy::new_without_default)]
impl<M: Machine, K: Key> HashIndex<M, K> {
    pub fn new(expected: usize) -> Self {
        unreachable!()
    }
    pub fn get(&self, key: K) -> Lookup<M> {
        unreachable!()
    }
    pub fn get_many(&self, keys: &[K], found: impl FnMut(usize, Lookup<M>)) {
        unreachable!()
    }
    pub fn insert(&self, key: K, value: u64) -> Insert<M> {
        unreachable!()
    }
    pub fn remove(&self, key: K, expect: u64) -> bool {
        unreachable!()
    }
    pub fn bytes(&self) -> usize {
        unreachable!()
    }
}
