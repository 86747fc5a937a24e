//! Private caches: sets of lines, the most recently used first.

/// What a private cache may do with a line it holds (MESI; not held is not there).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum LineState {
    /// Read it; others may hold it, too.
    Shared = 1,
    /// Read it, and write it without asking.
    Exclusive = 2,
    /// It was written: the only copy there is.
    Modified = 3,
}

impl LineState {
    fn of(entry: u32) -> Option<LineState> {
        match entry & 3 {
            0 => None,
            1 => Some(LineState::Shared),
            2 => Some(LineState::Exclusive),
            _ => Some(LineState::Modified),
        }
    }

    /// Whether the line may be written.
    pub(crate) fn owns(self) -> bool {
        self >= LineState::Exclusive
    }
}

/// The caches of one level, one a unit. An entry is a line's number and, in the two low bits, its
/// state; 0 is no line.
pub(crate) struct Caches {
    sets: usize,
    ways: usize,
    entries: Vec<u32>,
}

impl Caches {
    /// `sets` is a power of two.
    pub(crate) fn new(units: usize, sets: usize, ways: usize) -> Self {
        assert!(sets.is_power_of_two(), "{sets} sets");
        Caches { sets, ways, entries: vec![0; units * sets * ways] }
    }

    #[inline]
    fn first(&self, unit: usize, line: u32) -> usize {
        (unit * self.sets + (line as usize & (self.sets - 1))) * self.ways
    }

    #[inline]
    fn set(&mut self, unit: usize, line: u32) -> &mut [u32] {
        let first = self.first(unit, line);
        &mut self.entries[first..first + self.ways]
    }

    /// The line that would go, if this line came, if one would.
    #[inline]
    pub(crate) fn victim(&self, unit: usize, line: u32) -> Option<u32> {
        let last = self.entries[self.first(unit, line) + self.ways - 1];
        (last != 0).then_some(last >> 2)
    }

    /// Uses a line: its state, if the cache holds it.
    #[inline]
    pub(crate) fn find(&mut self, unit: usize, line: u32) -> Option<LineState> {
        let set = self.set(unit, line);
        let position = set.iter().position(|entry| entry >> 2 == line && entry & 3 != 0)?;
        if position > 0 {
            set[..=position].rotate_right(1);
        }
        LineState::of(set[0])
    }

    /// The state of a line, without using it.
    pub(crate) fn state(&self, unit: usize, line: u32) -> Option<LineState> {
        let first = self.first(unit, line);
        self.entries[first..first + self.ways]
            .iter()
            .find(|entry| *entry >> 2 == line)
            .and_then(|entry| LineState::of(*entry))
    }

    /// Gives a line that is held another state.
    pub(crate) fn change(&mut self, unit: usize, line: u32, state: LineState) {
        if let Some(entry) = self.set(unit, line).iter_mut().find(|entry| **entry >> 2 == line && **entry & 3 != 0) {
            *entry = line << 2 | state as u32;
        }
    }

    /// Drops a line; its state, if it was held.
    pub(crate) fn drop_line(&mut self, unit: usize, line: u32) -> Option<LineState> {
        let set = self.set(unit, line);
        let position = set.iter().position(|entry| entry >> 2 == line && entry & 3 != 0)?;
        let state = LineState::of(set[position]);
        set[position] = 0;
        set[position..].rotate_left(1);
        state
    }

    /// Adds a line that is not held; what had to go for it.
    #[inline]
    pub(crate) fn insert(&mut self, unit: usize, line: u32, state: LineState) -> Option<(u32, LineState)> {
        let set = self.set(unit, line);
        let last = set.len() - 1;
        let evicted = set[last];
        set[last] = line << 2 | state as u32;
        set.rotate_right(1);
        LineState::of(evicted).map(|state| (evicted >> 2, state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_line_of_a_set_goes() {
        let mut caches = Caches::new(2, 2, 2);
        assert_eq!(caches.insert(1, 2, LineState::Shared), None);
        assert_eq!(caches.insert(1, 4, LineState::Modified), None);
        assert_eq!(caches.insert(1, 3, LineState::Shared), None, "another set");
        assert_eq!(caches.find(1, 2), Some(LineState::Shared));
        assert_eq!(caches.find(0, 2), None, "another unit");
        assert_eq!(caches.insert(1, 6, LineState::Exclusive), Some((4, LineState::Modified)));
        assert_eq!(caches.drop_line(1, 6), Some(LineState::Exclusive));
        assert_eq!(caches.insert(1, 8, LineState::Shared), None, "there is room");
        caches.change(1, 8, LineState::Modified);
        assert_eq!(caches.state(1, 8), Some(LineState::Modified));
    }
}
