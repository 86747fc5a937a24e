//! A disk in memory that fails as disks do: by a plan, and at random from a seed.
//!
//! It keeps what would be there after a crash apart from what is read before it. A write that was not synchronised is there after a crash sector by
//! sector, or not, in any order with others; so is a name. Sectors are of 512 bytes or of 4 KiB.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::disk::{Disk, DiskFile};

/// How a disk is to fail. Operations are writes, synchronisations, and changes of names, counted from 0.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Drives all chance.
    pub seed: u64,
    /// Bytes that are written or not as one.
    pub sector: usize,
    /// The operation from which on nothing happens any more, and everything fails: the machine has crashed.
    pub crash_at: Option<u64>,
    /// The first write from this operation on fails, with a part of it written.
    pub write_fails_at: Option<u64>,
    /// The first synchronisation from this operation on, of a file or of names, fails; what it should have kept may be lost.
    pub sync_fails_at: Option<u64>,
    /// The most bytes of all files together.
    pub capacity: u64,
}

impl Default for Plan {
    /// A disk that never fails.
    fn default() -> Self {
        Plan { seed: 0, sector: 512, crash_at: None, write_fails_at: None, sync_fails_at: None, capacity: u64::MAX }
    }
}

/// A disk that becomes full by a plan at random has room for so many bytes, and some kilobytes.
pub const ROOM: u64 = 1 << 16;

impl Plan {
    /// A plan in which something goes wrong, mostly: within the first operations, or once there are some kilobytes more.
    pub fn random(seed: u64) -> Self {
        let mut state = State { random: seed, ..State::default() };
        let mut chance = |below: u64| state.chance() % below;
        let mut plan = Plan { seed: chance(u64::MAX), ..Plan::default() };
        plan.sector = [512, 4096][chance(2) as usize];
        let at = Some(chance(80));
        match chance(6) {
            0..3 => plan.crash_at = at,
            3 => plan.write_fails_at = at,
            4 => plan.sync_fails_at = at,
            _ => plan.capacity = ROOM + chance(6000),
        }
        plan
    }
}

/// A file: what is read, what is sure to stay, and where the two may differ.
#[derive(Clone, Debug, Default)]
struct Contents {
    now: Vec<u8>,
    stays: Vec<u8>,
    differ: Vec<Range<usize>>,
}

impl Contents {
    fn of(bytes: Vec<u8>) -> Self {
        Contents { stays: bytes.clone(), now: bytes, differ: Vec::new() }
    }

    /// Cuts it off.
    fn truncate(&mut self, length: usize) {
        self.now.truncate(length);
        self.differ.iter_mut().for_each(|place| place.end = place.end.min(length));
        self.differ.retain(|place| !place.is_empty());
    }

    /// All that was written stays.
    fn keep(&mut self) {
        self.stays.resize(self.now.len(), 0);
        for place in self.differ.drain(..) {
            self.stays[place.clone()].copy_from_slice(&self.now[place]);
        }
    }
}

#[derive(Debug, Default)]
struct State {
    plan: Plan,
    random: u64,
    operations: u64,
    files: Vec<Contents>,
    /// Name to file: as it is, and as is sure to stay.
    names: BTreeMap<String, usize>,
    names_stay: BTreeMap<String, usize>,
}

/// The disk; clones are the same one.
#[derive(Clone, Debug)]
pub struct FaultyDisk(Arc<Mutex<State>>);

impl State {
    /// SplitMix64 (Steele, Lea, Flood, 2014).
    fn chance(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.random;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// The number of the next operation.
    fn operate(&mut self) -> io::Result<u64> {
        let number = self.operations;
        if self.plan.crash_at.is_some_and(|at| number >= at) {
            return Err(io::Error::other("the machine has crashed"));
        }
        self.operations += 1;
        Ok(number)
    }

    /// Of what was written to a file, some sectors stay.
    fn tear(&mut self, file: usize) {
        let mut contents = std::mem::take(&mut self.files[file]);
        if contents.stays.len() != contents.now.len() && !self.chance().is_multiple_of(4) {
            contents.stays.resize(contents.now.len(), 0);
        }
        let (sector, length) = (self.plan.sector, contents.stays.len().min(contents.now.len()));
        let sectors = |place: &Range<usize>| place.start / sector..place.end.div_ceil(sector);
        let written: BTreeSet<usize> = contents.differ.iter().flat_map(sectors).collect();
        for start in written.into_iter().map(|number| number * sector).filter(|&start| start < length) {
            let end = (start + sector).min(length);
            if self.chance().is_multiple_of(2) {
                contents.stays[start..end].copy_from_slice(&contents.now[start..end]);
            }
        }
        self.files[file] = contents;
    }

    fn bytes(&self) -> u64 {
        self.names.values().map(|&file| self.files[file].now.len() as u64).sum()
    }
}

impl FaultyDisk {
    /// An empty disk.
    pub fn new(plan: Plan) -> Self {
        let (names, names_stay) = Default::default();
        let random = plan.seed;
        FaultyDisk(Arc::new(Mutex::new(State { plan, random, operations: 0, files: Vec::new(), names, names_stay })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Fails by another plan from now on, of which operations count from now.
    pub fn fail(&self, plan: Plan) {
        let mut state = self.state();
        (state.random, state.operations, state.plan) = (plan.seed, 0, plan);
    }

    /// How many operations there were.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// What the disk may hold after a crash now, with a plan for what comes then.
    pub fn after_crash(&self, plan: Plan) -> Self {
        let state = &mut *self.state();
        let mut names = state.names_stay.clone();
        let changed: Vec<_> = state.names.keys().chain(state.names_stay.keys()).cloned().collect();
        for name in changed {
            if state.names.get(&name) != state.names_stay.get(&name) && state.chance().is_multiple_of(2) {
                match state.names.get(&name) {
                    Some(&file) => _ = names.insert(name, file),
                    None => _ = names.remove(&name),
                }
            }
        }
        let mut files = Vec::new();
        for file in names.values_mut() {
            let before = state.files[*file].clone();
            state.tear(*file);
            let stays = std::mem::replace(&mut state.files[*file], before).stays;
            files.push(Contents::of(stays));
            *file = files.len() - 1;
        }
        let random = plan.seed;
        let names_stay = names.clone();
        FaultyDisk(Arc::new(Mutex::new(State { plan, random, operations: 0, files, names, names_stay })))
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.state().bytes()
    }

    /// The bytes of a file.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(name).map(|&file| state.files[file].now.clone())
    }

    /// Replaces a file's bytes, for good.
    pub fn damage(&self, name: &str, bytes: Vec<u8>) {
        let state = &mut *self.state();
        if let Some(&file) = state.names.get(name) {
            state.files[file] = Contents::of(bytes);
        }
    }
}

impl Disk for FaultyDisk {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.operate()?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if bytes > 0 && state.bytes() + bytes > state.plan.capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        // What is there of a file that was not synchronised is any of its sectors; of its length, all or nothing.
        state.files.push(Contents { now: vec![0; length], ..Contents::default() });
        let file = state.files.len() - 1;
        state.names.insert(name.to_owned(), file);
        Ok(Box::new(FaultyFile { disk: self.clone(), file }))
    }

    fn open(&self, name: &str, _: bool) -> io::Result<Box<dyn DiskFile>> {
        let file = *self.state().names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(FaultyFile { disk: self.clone(), file }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.operate()?;
        state.names.remove(name).map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }

    /// After a crash the new name is that of either file, whatever the old name is, which may be there or not.
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.operate()?;
        let file = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        let number = state.operate()?;
        if state.plan.sync_fails_at.take_if(|at| number >= *at).is_some() {
            return Err(io::Error::other("names could not be synchronised"));
        }
        state.names_stay = state.names.clone();
        Ok(())
    }

    fn place(&self, name: &str) -> String {
        name.to_owned()
    }
}

#[derive(Debug)]
struct FaultyFile {
    disk: FaultyDisk,
    file: usize,
}

impl DiskFile for FaultyFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        let number = state.operate()?;
        let fails = state.plan.write_fails_at.take_if(|at| number >= *at).is_some();
        let length = if fails { state.chance() as usize % (bytes.len() + 1) } else { bytes.len() };
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start + length;
        let grown = end.saturating_sub(state.files[self.file].now.len()) as u64;
        if grown > 0 && state.bytes() + grown > state.plan.capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let contents = &mut state.files[self.file];
        contents.now.resize(contents.now.len().max(end), 0);
        contents.now[start..end].copy_from_slice(&bytes[..length]);
        contents.differ.push(start..end);
        if fails { Err(io::Error::other("a write has failed")) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        let number = state.operate()?;
        if state.plan.sync_fails_at.take_if(|at| number >= *at).is_some() {
            // What could not be written is dropped, and nobody will hear of it again.
            state.tear(self.file);
            state.files[self.file].differ.clear();
            return Err(io::Error::other("a file could not be synchronised"));
        }
        state.files[self.file].keep();
        Ok(())
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.operate()?;
        state.files[self.file].truncate(usize::try_from(bytes).map_err(io::Error::other)?);
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[self.file].now.len() as u64)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let state = self.disk.state();
        let contents = &state.files[self.file].now;
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let from = contents.get(start..start + bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(from);
        Ok(())
    }
}
