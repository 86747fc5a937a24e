//! The directory: for each line its holders, whether the last level has it, and until when its home
//! is busy with it.

use std::ptr::NonNull;

use crate::arena::{self, Extent, Reservation};

/// The most private caches.
pub(crate) const UNITS_MAX: usize = 1 << NUMBER_BITS;
const MAP_WORDS: usize = UNITS_MAX / 64;
/// Lines of words outside of the machine's memory have the first numbers, in the order in which
/// they are first touched.
const OUTSIDE: usize = 1 << 16;
const LINE_SHIFT: u32 = 6;

/// The private caches that hold a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holders {
    Nobody,
    /// One, exclusively.
    Owner(u16),
    /// Some, to read.
    Sharers,
}

/// One line's entry, in 16 bytes. `holders`: two bits of what, then an owner's number; or five
/// sharers' numbers and how many they are; or the number of a map of sharers.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Entry {
    free_at_and_flags: u64,
    holders: u64,
}

const CACHED: u64 = 1 << 63;
const USED: u64 = 1 << 62;
const WHAT_SHIFT: u32 = 62;
const OWNER: u64 = 1;
const LIST: u64 = 2;
const MAP: u64 = 3;
const LIST_MAX: u64 = 5;
const COUNT_SHIFT: u32 = 56;
const NUMBER_BITS: u32 = 10;

impl Entry {
    /// When the line's home can serve it again.
    pub(crate) fn free_at(&self) -> u64 {
        self.free_at_and_flags & !(CACHED | USED)
    }

    pub(crate) fn set_free_at(&mut self, time: u64) {
        self.free_at_and_flags = self.free_at_and_flags & (CACHED | USED) | time;
    }

    /// Whether the last level has the line.
    pub(crate) fn is_cached(&self) -> bool {
        self.free_at_and_flags & CACHED != 0
    }

    pub(crate) fn set_cached(&mut self, cached: bool) {
        self.free_at_and_flags = self.free_at_and_flags & !CACHED | if cached { CACHED } else { 0 };
    }

    /// Whether the last level was asked for the line since this was last taken.
    pub(crate) fn take_used(&mut self) -> bool {
        let used = self.free_at_and_flags & USED != 0;
        self.free_at_and_flags &= !USED;
        used
    }

    pub(crate) fn set_used(&mut self) {
        self.free_at_and_flags |= USED;
    }

    pub(crate) fn holders(&self) -> Holders {
        match self.holders >> WHAT_SHIFT {
            0 => Holders::Nobody,
            OWNER => Holders::Owner(self.holders as u16),
            _ => Holders::Sharers,
        }
    }

    fn list(&self) -> impl Iterator<Item = u16> + use<> {
        let (numbers, count) = (self.holders, self.holders >> COUNT_SHIFT & 7);
        (0..count).map(move |i| (numbers >> (i as u32 * NUMBER_BITS)) as u16 & ((1 << NUMBER_BITS) - 1))
    }
}

/// All entries of a chip.
pub(crate) struct Directory {
    entries: Reservation,
    /// The memory that the entries are of.
    memory: Extent,
    outside: std::collections::HashMap<usize, u32>,
    maps: Vec<[u64; MAP_WORDS]>,
    free_maps: Vec<u32>,
}

impl Directory {
    /// For the memory that this thread's machine uses now, and grows by. `None` if the host has too
    /// little.
    pub(crate) fn new() -> Option<Self> {
        let memory = arena::extent()?;
        let lines = OUTSIDE + (memory.capacity >> LINE_SHIFT);
        let entries = Reservation::new(lines * size_of::<Entry>(), lines * size_of::<Entry>())?;
        Some(Directory {
            entries,
            memory,
            outside: std::collections::HashMap::new(),
            maps: Vec::new(),
            free_maps: Vec::new(),
        })
    }

    /// The lines that were in use when the directory was made.
    pub(crate) fn lines(&self) -> std::ops::Range<u32> {
        OUTSIDE as u32..(OUTSIDE + (self.memory.used >> LINE_SHIFT)) as u32
    }

    /// The number of the line of an address.
    #[inline]
    pub(crate) fn line(&mut self, address: usize) -> u32 {
        let offset = address.wrapping_sub(self.memory.start);
        if offset < self.memory.capacity {
            return (OUTSIDE + (offset >> LINE_SHIFT)) as u32;
        }
        self.outside_line(address)
    }

    /// A word outside is a line of its own: which words share one there is the host's business.
    #[cold]
    fn outside_line(&mut self, address: usize) -> u32 {
        let next = self.outside.len() as u32;
        let line = *self.outside.entry(address).or_insert(next);
        assert!((line as usize) < OUTSIDE, "more than {OUTSIDE} shared words outside of the machine's memory");
        line
    }

    fn pointer(&self, line: u32) -> NonNull<Entry> {
        // SAFETY: there is an entry for each line of the memory's capacity and outside.
        unsafe { self.entries.start().cast::<Entry>().add(line as usize) }
    }

    /// Where the host keeps an entry.
    #[inline]
    pub(crate) fn address(&self, line: u32) -> *const Entry {
        self.pointer(line).as_ptr()
    }

    #[inline]
    pub(crate) fn entry(&self, line: u32) -> &Entry {
        // SAFETY: as in `pointer`; zeros are an entry; borrowed together with the directory.
        unsafe { self.pointer(line).as_ref() }
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, line: u32) -> &mut Entry {
        // SAFETY: as in `entry`.
        unsafe { self.pointer(line).as_mut() }
    }

    /// Nobody holds the line any more.
    pub(crate) fn clear(&mut self, line: u32) {
        let entry = *self.entry(line);
        if entry.holders >> WHAT_SHIFT == MAP {
            self.free_maps.push(entry.holders as u32);
        }
        self.entry_mut(line).holders = 0;
    }

    /// One holds the line, exclusively.
    pub(crate) fn set_owner(&mut self, line: u32, owner: u16) {
        self.clear(line);
        self.entry_mut(line).holders = OWNER << WHAT_SHIFT | u64::from(owner);
    }

    /// One more holds the line to read. An owner becomes a sharer.
    pub(crate) fn add_sharer(&mut self, line: u32, unit: u16) {
        let entry = *self.entry(line);
        let list = |count: u64, numbers: u64| LIST << WHAT_SHIFT | count << COUNT_SHIFT | numbers;
        self.entry_mut(line).holders = match entry.holders >> WHAT_SHIFT {
            0 => list(1, u64::from(unit)),
            OWNER if entry.holders as u16 == unit => list(1, u64::from(unit)),
            OWNER => list(2, u64::from(entry.holders as u16) | u64::from(unit) << NUMBER_BITS),
            LIST if entry.list().any(|sharer| sharer == unit) => return,
            LIST => {
                let count = entry.holders >> COUNT_SHIFT & 7;
                if count < LIST_MAX {
                    let numbers = entry.holders & ((1 << COUNT_SHIFT) - 1);
                    list(count + 1, numbers | u64::from(unit) << (count as u32 * NUMBER_BITS))
                } else {
                    let map = self.free_maps.pop().unwrap_or_else(|| {
                        self.maps.push([0; MAP_WORDS]);
                        self.maps.len() as u32 - 1
                    });
                    let words = &mut self.maps[map as usize];
                    words.fill(0);
                    for sharer in entry.list().chain([unit]) {
                        words[usize::from(sharer) / 64] |= 1 << (sharer % 64);
                    }
                    MAP << WHAT_SHIFT | u64::from(map)
                }
            }
            _ => {
                self.maps[entry.holders as u32 as usize][usize::from(unit) / 64] |= 1 << (unit % 64);
                return;
            }
        };
    }

    /// One that holds the line to read holds it no more.
    pub(crate) fn remove_sharer(&mut self, line: u32, unit: u16) {
        let entry = *self.entry(line);
        match entry.holders >> WHAT_SHIFT {
            LIST => {
                let others = entry.list().filter(|sharer| *sharer != unit);
                let (mut numbers, mut count) = (0, 0);
                for other in others {
                    numbers |= u64::from(other) << (count as u32 * NUMBER_BITS);
                    count += 1;
                }
                let list = LIST << WHAT_SHIFT | count << COUNT_SHIFT | numbers;
                self.entry_mut(line).holders = if count == 0 { 0 } else { list };
            }
            MAP => {
                let words = &mut self.maps[entry.holders as u32 as usize];
                words[usize::from(unit) / 64] &= !(1 << (unit % 64));
                if words.iter().all(|word| *word == 0) {
                    self.clear(line);
                }
            }
            _ => {}
        }
    }

    /// Calls `visit` with each that holds the line to read.
    pub(crate) fn for_each_sharer(&self, line: u32, mut visit: impl FnMut(u16)) {
        let entry = self.entry(line);
        match entry.holders >> WHAT_SHIFT {
            LIST => entry.list().for_each(visit),
            MAP => {
                for (number, word) in self.maps[entry.holders as u32 as usize].iter().enumerate() {
                    let mut left = *word;
                    while left != 0 {
                        visit(number as u16 * 64 + left.trailing_zeros() as u16);
                        left &= left - 1;
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharers(directory: &Directory, line: u32) -> Vec<u16> {
        let mut all = Vec::new();
        directory.for_each_sharer(line, |unit| all.push(unit));
        all
    }

    #[test]
    fn sharers_are_kept_however_many() {
        let mut directory = Directory::new().expect("address space");
        directory.set_owner(7, 1023);
        assert_eq!(directory.entry(7).holders(), Holders::Owner(1023));
        let mut expected = vec![1023];
        for unit in (0..1024).step_by(37) {
            directory.add_sharer(7, unit);
            directory.add_sharer(7, unit);
            expected.push(unit);
            let mut found = sharers(&directory, 7);
            found.sort_unstable();
            let mut sorted = expected.clone();
            sorted.sort_unstable();
            assert_eq!(found, sorted);
        }
        for sharer in expected {
            assert!(sharers(&directory, 7).contains(&sharer));
            directory.remove_sharer(7, sharer);
            assert!(!sharers(&directory, 7).contains(&sharer));
        }
        assert_eq!(directory.entry(7).holders(), Holders::Nobody);
        directory.add_sharer(8, 3);
        directory.add_sharer(8, 4);
        directory.remove_sharer(8, 3);
        assert_eq!(sharers(&directory, 8), [4]);
        directory.clear(8);
        assert_eq!(directory.entry(8).holders(), Holders::Nobody);
    }

    #[test]
    fn flags_and_time_do_not_mix() {
        let mut directory = Directory::new().expect("address space");
        let entry = directory.entry_mut(1);
        entry.set_free_at(123_456_789);
        entry.set_cached(true);
        entry.set_used();
        assert!(entry.is_cached() && entry.take_used() && !entry.take_used());
        assert_eq!(entry.free_at(), 123_456_789);
        entry.set_free_at(5);
        assert!(entry.is_cached() && entry.free_at() == 5);
    }
}
