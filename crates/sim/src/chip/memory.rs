//! What an access costs: the line's way through caches, directory, last level and memory. The
//! module above says it in words.

use contend_machine::{Machine, Native};

use super::Chip;
use super::cache::LineState;
use super::directory::Holders;
use super::network::Network;
use super::preset::LINE_BYTES;
use crate::access::Access;

/// A request for a line at its home.
#[derive(Clone, Copy)]
struct Request {
    /// The private caches that ask.
    unit: usize,
    line: u32,
    writes: bool,
    home: usize,
    /// Cycles between `unit` and `home`.
    way: u64,
    /// When the home begins to serve the request.
    begin: u64,
}

/// How a home answers a request.
struct Answer {
    /// When the line is at the core.
    at: u64,
    /// Whether a core that only reads has the line exclusively.
    exclusive: bool,
    /// Whether the request met no other core: none held the line, and none made it wait.
    alone: bool,
}

impl Chip {
    #[inline]
    pub(super) fn record(&mut self, line: u32) {
        let what = u64::from(line) ^ (self.running as u64) << 48;
        self.trace = (self.trace.rotate_left(5) ^ what ^ self.clock << 16).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Makes the access: now, and the clock goes on to its end.
    #[inline]
    pub(super) fn perform(&mut self, line: u32, access: Access) {
        self.statistics.accesses += 1;
        let unit = self.unit;
        let writes = access != Access::Read;
        let state = self.l1.find(unit, line);
        match state {
            Some(state) if !writes || state.owns() => {
                if writes && state != LineState::Modified {
                    self.l1.change(unit, line, LineState::Modified);
                }
                self.clock += u64::from(self.preset.l1.cycles);
                if cfg!(debug_assertions) {
                    self.check_hit(unit, line, state);
                }
                if !self.cores[self.running].prefetched.is_empty() {
                    self.await_prefetch(line);
                }
            }
            _ => {
                let (arrival, alone) = self.fetch(unit, line, writes, state);
                let cycles = arrival - self.clock;
                // Of a miss that waits for no other core, an out-of-order core hides a part.
                let stalled = if alone { (cycles as f64 * self.preset.core.stall) as u64 } else { cycles };
                self.clock += stalled;
            }
        }
        if access == Access::Update {
            self.clock += u64::from(self.preset.core.atomic_cycles);
        }
        self.record(line);
    }

    #[cold]
    fn await_prefetch(&mut self, line: u32) {
        let core = &mut self.cores[self.running];
        if let Some(position) = core.prefetched.iter().position(|(prefetched, _)| *prefetched == line) {
            let (_, arrival) = core.prefetched.swap_remove(position);
            self.clock = self.clock.max(arrival);
        }
    }

    /// Gets a line that the first level does not hold in a sufficient state; when it arrives, and
    /// whether no other core was involved.
    pub(super) fn fetch(&mut self, unit: usize, line: u32, writes: bool, in_l1: Option<LineState>) -> (u64, bool) {
        let new = if writes { LineState::Modified } else { LineState::Shared };
        let mut clock = self.clock + u64::from(self.preset.l1.cycles);
        let mut in_l2 = None;
        if let (Some(l2), Some(preset)) = (&mut self.l2, &self.preset.l2) {
            clock += u64::from(preset.cycles);
            in_l2 = l2.find(unit, line);
            if let Some(state) = in_l2.filter(|state| !writes || state.owns()) {
                let state = if writes { LineState::Modified } else { state };
                self.fill_l1(unit, line, state, in_l1);
                if cfg!(debug_assertions) {
                    self.check(line);
                }
                return (clock, true);
            }
        }
        self.statistics.misses += 1;
        let Answer { at, exclusive, alone } = self.ask_home(unit, line, writes, clock);
        let state = if !writes && exclusive { LineState::Exclusive } else { new };
        if let Some(l2) = &mut self.l2 {
            if in_l2.is_some() {
                l2.change(unit, line, state);
            } else if let Some((evicted, state)) = l2.insert(unit, line, state) {
                let upper = self.l1.drop_line(unit, evicted);
                self.evict(unit, evicted, upper.map_or(state, |upper| upper.max(state)));
            }
        }
        self.fill_l1(unit, line, state, in_l1);
        if cfg!(debug_assertions) {
            self.check(line);
        }
        (at, alone)
    }

    fn fill_l1(&mut self, unit: usize, line: u32, state: LineState, in_l1: Option<LineState>) {
        if in_l1.is_some() {
            self.l1.change(unit, line, state);
            return;
        }
        let Some((evicted, state)) = self.l1.insert(unit, line, state) else { return };
        match &mut self.l2 {
            // The second level has it still.
            Some(l2) if state == LineState::Modified => l2.change(unit, evicted, LineState::Modified),
            Some(_) => {}
            None => self.evict(unit, evicted, state),
        }
    }

    /// A line leaves a core's private caches, and its home is told.
    fn evict(&mut self, unit: usize, line: u32, state: LineState) {
        if state.owns() {
            self.directory.clear(line);
            self.keep_in_last_level(line);
        } else {
            self.directory.remove_sharer(line, unit as u16);
        }
    }

    #[inline]
    pub(super) fn home(&self, line: u32) -> usize {
        let mixed = line.wrapping_mul(0x9e37_79b1);
        ((u64::from(mixed) * self.slices.len() as u64) >> 32) as usize
    }

    /// Some cycles more or less on a request's way. Without, two cores that are in each other's way
    /// can be so for ever, in the same step each time (A. Alameldeen, D. Wood: "Variability in
    /// architectural simulations of multi-threaded workloads", HPCA 2003).
    fn perturbation(&mut self) -> u64 {
        const MAX: u64 = 4;
        self.random.draw() % (MAX + 1)
    }

    /// Has the line's home serve a request that `unit` sends at `clock`.
    fn ask_home(&mut self, unit: usize, line: u32, writes: bool, clock: u64) -> Answer {
        let home = self.home(line);
        let entry = *self.directory.entry(line);
        let holders = entry.holders();
        let owner = match holders {
            Holders::Owner(owner) if usize::from(owner) != unit => Some(usize::from(owner)),
            _ => None,
        };
        // Every socket's last level keeps a copy of a line that is only read.
        let is_near = !writes && owner.is_none() && entry.is_cached();
        let way = if is_near { self.network.near_cycles(unit, home) } else { self.network.cycles(unit, home) };
        let arrival = clock + way + self.perturbation();
        let begin = arrival.max(entry.free_at());
        self.statistics.queued_cycles += begin - arrival;
        let request = Request { unit, line, writes, home, way, begin };
        if let Some(owner) = owner {
            return self.take_from_owner(request, owner);
        }
        let coherence = &self.preset.coherence;
        let (transfer, blocking, handoff) =
            (u64::from(coherence.line_cycles), coherence.blocking, coherence.handoff_cycles[0]);
        let exclusive = holders == Holders::Nobody && coherence.exclusive_reads;
        let ready = self.fetch_to_home(request);
        let dropped = if writes && holders == Holders::Sharers { self.drop_sharers(request) } else { None };
        let tag = u64::from(self.preset.llc.tag_cycles);
        let answered = ready.max(dropped.unwrap_or(begin + tag));
        // While a blocking home fetches the line from memory, or has it dropped, it serves no other
        // request for it.
        let busy = if blocking || !entry.is_cached() { answered } else { begin + tag };
        let busy = if !blocking && writes { busy.max(begin + u64::from(handoff)) } else { busy };
        self.directory.entry_mut(line).set_free_at(busy);
        if writes || exclusive {
            self.directory.set_owner(line, unit as u16);
        } else {
            self.directory.add_sharer(line, unit as u16);
        }
        Answer { at: answered + way + transfer, exclusive, alone: dropped.is_none() && begin == arrival }
    }

    /// Has the owner give the line up, if the request writes, or share it.
    fn take_from_owner(&mut self, request: Request, owner: usize) -> Answer {
        let Request { unit, line, writes, home, way, begin } = request;
        let (llc, coherence) = (&self.preset.llc, &self.preset.coherence);
        let (tag, data, transfer) =
            (u64::from(llc.tag_cycles), u64::from(llc.data_cycles), u64::from(coherence.line_cycles));
        let is_remote = self.network.is_remote(unit, owner);
        self.statistics.from_owner += 1;
        self.statistics.remote += u64::from(is_remote);
        // To the owner, whose cache is looked up.
        let at_owner = begin
            + tag
            + self.network.cycles(home, owner)
            + u64::from(self.preset.l1.cycles)
            + self.preset.l2.as_ref().map_or(0, |l2| u64::from(l2.cycles));
        let (at, free_at) = if coherence.blocking {
            let returned = at_owner + self.network.cycles(owner, home) + transfer + data;
            (returned + way + transfer, returned)
        } else {
            let handoff = coherence.handoff_cycles[usize::from(is_remote)];
            (at_owner + self.network.cycles(owner, unit) + transfer, begin + u64::from(handoff))
        };
        if writes {
            self.invalidate(owner, line);
            self.directory.set_owner(line, unit as u16);
        } else {
            self.l1.change(owner, line, LineState::Shared);
            if let Some(l2) = &mut self.l2 {
                l2.change(owner, line, LineState::Shared);
            }
            self.directory.add_sharer(line, unit as u16);
            self.keep_in_last_level(line);
        }
        self.directory.entry_mut(line).set_free_at(free_at);
        Answer { at, exclusive: false, alone: false }
    }

    /// Fetches a line that no core owns, from the last level or from memory; returns when the home
    /// has it.
    fn fetch_to_home(&mut self, Request { line, home, begin, .. }: Request) -> u64 {
        let llc = &self.preset.llc;
        let (tag, data) = (u64::from(llc.tag_cycles), u64::from(llc.data_cycles));
        if self.directory.entry(line).is_cached() {
            self.statistics.from_last_level += 1;
            self.directory.entry_mut(line).set_used();
            return begin + tag.max(data);
        }
        self.statistics.from_memory += 1;
        let number = line as usize % self.controllers.len();
        // A controller of a socket is near the slices of that socket; one of a mesh is somewhere in
        // it.
        let (way, number) = match &self.network {
            Network::Mesh { .. } => {
                let tile = number * self.slices.len() / self.controllers.len();
                (self.network.cycles(home, tile), number)
            }
            Network::Sockets { .. } => (0, home / self.preset.memory.tiles_per_controller),
        };
        let start = (begin + tag + way).max(self.controllers[number]);
        self.controllers[number] = start + self.controller_cycles;
        self.keep_in_last_level(line);
        start + u64::from(self.preset.memory.cycles) + way + u64::from(self.preset.coherence.line_cycles)
    }

    /// Has all sharers but the core that asks drop the line, at once; returns when they have, or
    /// `None` if there is no other.
    fn drop_sharers(&mut self, Request { unit, line, home, begin, .. }: Request) -> Option<u64> {
        let mut sharers = Vec::new();
        self.directory.for_each_sharer(line, |sharer| sharers.push(sharer));
        let mut farthest = None;
        for sharer in sharers.into_iter().map(usize::from).filter(|sharer| *sharer != unit) {
            farthest = farthest.max(Some(self.network.cycles(home, sharer)));
            self.invalidate(sharer, line);
        }
        let (tag, l1) = (u64::from(self.preset.llc.tag_cycles), u64::from(self.preset.l1.cycles));
        farthest.map(|farthest| begin + tag + 2 * farthest + l1)
    }

    fn invalidate(&mut self, unit: usize, line: u32) {
        let in_l1 = self.l1.drop_line(unit, line);
        let in_l2 = self.l2.as_mut().and_then(|l2| l2.drop_line(unit, line));
        if in_l1.or(in_l2).is_some() {
            self.statistics.invalidations += 1;
        }
    }

    /// The last level has the line from now on; another may have to go.
    pub(super) fn keep_in_last_level(&mut self, line: u32) {
        let entry = self.directory.entry_mut(line);
        if entry.is_cached() {
            entry.set_used();
            return;
        }
        entry.set_cached(true);
        let home = self.home(line);
        let capacity = self.preset.llc.slice_bytes / LINE_BYTES;
        let slice = &mut self.slices[home];
        if slice.lines.len() < capacity {
            slice.lines.push(line);
            return;
        }
        // The hand comes round once at most: on its second way it finds what it has passed unused.
        let victim = loop {
            let slice = &mut self.slices[home];
            let position = slice.hand;
            slice.hand = (position + 1) % capacity;
            let candidate = slice.lines[position];
            if !self.directory.entry_mut(candidate).take_used() {
                self.slices[home].lines[position] = line;
                break candidate;
            }
        };
        self.directory.entry_mut(victim).set_cached(false);
        // The hand will be here again: the host fetches meanwhile what it will look at.
        let slice = &self.slices[home];
        Native::prefetch(self.directory.address(slice.lines[slice.hand]));
        if self.preset.llc.inclusive {
            match self.directory.entry(victim).holders() {
                Holders::Nobody => {}
                Holders::Owner(owner) => self.invalidate(usize::from(owner), victim),
                Holders::Sharers => {
                    let mut sharers = Vec::new();
                    self.directory.for_each_sharer(victim, |sharer| sharers.push(sharer));
                    sharers.into_iter().for_each(|sharer| self.invalidate(usize::from(sharer), victim));
                }
            }
            self.directory.clear(victim);
        }
    }

    /// Checks that the home of a line takes a core that has found it in its first level for a
    /// holder. A hit changes no other cache, and nothing of what the home knows.
    pub(super) fn check_hit(&self, unit: usize, line: u32, state: LineState) {
        let is_right = match self.directory.entry(line).holders() {
            Holders::Owner(owner) => usize::from(owner) == unit && state.owns(),
            Holders::Sharers => state == LineState::Shared,
            Holders::Nobody => false,
        };
        assert!(is_right, "line {line}: {unit} has {state:?}, and its home does not know");
    }

    /// Checks that a line, which a core has fetched, has one owner or many sharers, never both, and
    /// that its home knows every holder.
    pub(super) fn check(&self, line: u32) {
        let holders = self.directory.entry(line).holders();
        let mut sharers = Vec::new();
        if holders == Holders::Sharers {
            self.directory.for_each_sharer(line, |sharer| sharers.push(usize::from(sharer)));
        }
        let state = |unit: usize| {
            let upper = self.l1.state(unit, line);
            let lower = self.l2.as_ref().and_then(|l2| l2.state(unit, line));
            assert!(self.l2.is_none() || upper.is_none() || lower.is_some(), "the second level has what the first has");
            upper.max(lower)
        };
        // The holders, and some others: different ones from access to access.
        const OTHERS: usize = 2;
        let units = self.slices.len();
        let others = (0..OTHERS.min(units)).map(|other| (self.statistics.accesses as usize + other * 61) % units);
        let owner = if let Holders::Owner(owner) = holders { Some(usize::from(owner)) } else { None };
        for unit in others.chain(owner).chain(sharers.iter().copied()) {
            match (state(unit), holders) {
                (None, _) => {}
                (Some(state), Holders::Owner(owner)) => {
                    assert!(
                        usize::from(owner) == unit && state.owns(),
                        "line {line}: {unit} has {state:?}, {owner} owns it"
                    );
                }
                (Some(state), Holders::Sharers) => {
                    assert!(
                        state == LineState::Shared && sharers.contains(&unit),
                        "line {line}: {unit} has {state:?}, shared by {sharers:?}"
                    );
                }
                (Some(state), Holders::Nobody) => panic!("line {line}: {unit} has {state:?}, and nobody holds it"),
            }
        }
    }
}
