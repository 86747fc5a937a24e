//! A map from addresses to positions in a list.
//!
//! A map belongs to one worker, so it needs no synchronisation. Every access of a transaction asks
//! it whether the record was accessed before. The usual answer is no.

use rustc_hash::FxHashMap;

/// The number of entries up to which a map is searched linearly. A larger one is searched by
/// hashing.
const LINEAR_MAX: usize = 16;

/// A map from the addresses of records or cells to positions in a list of the owner's. A 64-bit
/// Bloom filter with one bit for each address answers most lookups of a missing address without a
/// look at the list.
#[derive(Debug)]
pub struct AddressMap {
    /// Has the bit of every address in the list, so a bit that is not set proves that the address
    /// is missing. Any of `n` addresses sets a given bit with a probability of 1/64. So of the
    /// lookups of a missing address about 1 in 10 is in vain with 7 addresses, and 1 in 5 with 14.
    filter: u64,
    /// The address at each position.
    addresses: Vec<u64>,
    /// All addresses with their positions, once there are more than [`LINEAR_MAX`]; empty before.
    hashed: FxHashMap<u64, u32>,
}

impl Default for AddressMap {
    fn default() -> Self {
        AddressMap { filter: 0, addresses: Vec::with_capacity(LINEAR_MAX), hashed: FxHashMap::default() }
    }
}

impl AddressMap {
    #[inline(always)]
    fn bit(address: u64) -> u64 {
        // The top 6 bits of a multiplicative hash (Knuth, TAOCP volume 3, section 6.4).
        1 << (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
    }

    /// Returns the newest position of the address, if the map has the address.
    #[inline(always)]
    pub fn find(&self, address: u64) -> Option<usize> {
        if self.filter & Self::bit(address) == 0 { None } else { self.search(address) }
    }

    #[inline(never)]
    fn search(&self, address: u64) -> Option<usize> {
        if self.addresses.len() <= LINEAR_MAX {
            self.addresses.iter().rposition(|&other| other == address)
        } else {
            self.hashed.get(&address).map(|&position| position as usize)
        }
    }

    /// Appends an address, and returns its position.
    #[inline(always)]
    pub fn push(&mut self, address: u64) -> usize {
        let position = self.addresses.len();
        self.filter |= Self::bit(address);
        self.addresses.push(address);
        if position >= LINEAR_MAX {
            self.push_hashed(position);
        }
        position
    }

    #[cold]
    fn push_hashed(&mut self, position: usize) {
        // The first address too many brings all before it along. From then on `search` asks the
        // hash map only, so it must have them all.
        let first = if position == LINEAR_MAX { 0 } else { position };
        for position in first..=position {
            self.hashed.insert(self.addresses[position], position as u32);
        }
    }

    /// Forgets all addresses but the first `count`.
    #[cold]
    pub(crate) fn truncate(&mut self, count: usize) {
        self.addresses.truncate(count);
        self.filter = self.addresses.iter().fold(0, |filter, &address| filter | Self::bit(address));
        self.hashed.clear();
        if count > LINEAR_MAX {
            let positions = self.addresses.iter().zip(0..);
            self.hashed.extend(positions.map(|(&address, position)| (address, position)));
        }
    }

    /// Forgets all addresses, and keeps the memory.
    #[inline(always)]
    pub fn clear(&mut self) {
        if self.addresses.len() > LINEAR_MAX {
            // A shorter list has not used it: small transactions don't touch its memory.
            self.hashed.clear();
        }
        self.filter = 0;
        self.addresses.clear();
    }
}
