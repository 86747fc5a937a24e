//! A disk in memory that fails as disks may ([`crate::disk`]): by a plan, and at random from a
//! seed.
//!
//! It keeps two contents of each file: the one that is read now, and the one that is sure to stay
//! after a crash. A crash draws, for each sector that was written and not synchronised, whether it
//! stays; and so for each name. Sectors have 512 bytes or 4 KiB.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use contend_model::random::SplitMix64;

use crate::disk::{Disk, DiskFile};

/// How a disk fails. Operations are writes, synchronisations, and changes of names, counted from 0.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of all random choices.
    pub seed: u64,
    /// Bytes of a sector, which is written as a whole or not at all.
    pub sector: usize,
    /// The machine crashes at this operation: it fails, and so do all later ones.
    pub crash_at: Option<u64>,
    /// The first write at this operation or later fails after a part of it.
    pub write_fails_at: Option<u64>,
    /// The first synchronisation at this operation or later, of a file or of names, fails. What it
    /// should have kept may be lost.
    pub sync_fails_at: Option<u64>,
    /// The room for all files together, in bytes.
    pub capacity: u64,
}

impl Default for Plan {
    /// A disk that never fails.
    fn default() -> Self {
        Plan { seed: 0, sector: 512, crash_at: None, write_fails_at: None, sync_fails_at: None, capacity: u64::MAX }
    }
}

/// A disk that becomes full by a random plan has room for this many bytes and some kilobytes: a
/// manifest and a little more.
pub const ROOM: u64 = 1 << 16;

impl Plan {
    /// Returns a random plan. It fails within the first operations, or once there are some
    /// kilobytes more; now and then not at all.
    pub fn random(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut chance = |below: u64| random.draw() % below;
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

/// A file: its content now, the content that is sure to stay, and where the two may differ.
#[derive(Clone, Debug, Default)]
struct FileContents {
    now: Vec<u8>,
    stays: Vec<u8>,
    differ: Vec<Range<usize>>,
    /// Whether a synchronisation has failed. Then `now` may be in the system's cache alone, and the
    /// system may drop it and read the disk again.
    has_failed: bool,
}

impl FileContents {
    fn of(bytes: Vec<u8>) -> Self {
        FileContents { stays: bytes.clone(), now: bytes, ..FileContents::default() }
    }

    /// Cuts the file off.
    fn truncate(&mut self, length: usize) {
        self.now.truncate(length);
        self.differ.iter_mut().for_each(|place| place.end = place.end.min(length));
        self.differ.retain(|place| !place.is_empty());
    }

    /// Forgets what is in the cache alone, and no later synchronisation would write.
    fn evict(&mut self) {
        let dirty: Vec<_> = self.differ.iter().map(|place| self.now[place.clone()].to_vec()).collect();
        let length = self.now.len();
        self.now.clone_from(&self.stays);
        self.now.resize(length, 0);
        for (place, bytes) in self.differ.iter().zip(dirty) {
            self.now[place.clone()].copy_from_slice(&bytes);
        }
        self.has_failed = false;
    }

    /// Makes all stay that was written.
    fn keep(&mut self) {
        self.stays.resize(self.now.len(), 0);
        for place in self.differ.drain(..) {
            self.stays[place.clone()].copy_from_slice(&self.now[place]);
        }
    }
}

#[derive(Debug)]
struct State {
    plan: Plan,
    random: SplitMix64,
    operations: u64,
    files: Vec<FileContents>,
    /// The file of each name now.
    names: BTreeMap<String, usize>,
    /// The file of each name that is sure to stay.
    names_stay: BTreeMap<String, usize>,
}

/// The disk. Clones share it.
#[derive(Clone, Debug)]
pub struct FaultyDisk(Arc<Mutex<State>>);

impl State {
    /// Counts an operation. Returns its number, or an error if the machine has crashed.
    fn operate(&mut self) -> io::Result<u64> {
        let number = self.operations;
        if self.plan.crash_at.is_some_and(|at| number >= at) {
            return Err(io::Error::other("the machine has crashed"));
        }
        self.operations += 1;
        Ok(number)
    }

    /// Draws which of the written sectors of a file stay.
    fn tear(&mut self, file: usize) {
        let mut contents = std::mem::take(&mut self.files[file]);
        if contents.stays.len() != contents.now.len() && !self.random.draw().is_multiple_of(4) {
            contents.stays.resize(contents.now.len(), 0);
        }
        let (sector, length) = (self.plan.sector, contents.stays.len().min(contents.now.len()));
        let sectors = |place: &Range<usize>| place.start / sector..place.end.div_ceil(sector);
        let written: BTreeSet<usize> = contents.differ.iter().flat_map(sectors).collect();
        for start in written.into_iter().map(|number| number * sector).filter(|&start| start < length) {
            let end = (start + sector).min(length);
            if self.random.draw().is_multiple_of(2) {
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
    /// Creates an empty disk.
    pub fn new(plan: Plan) -> Self {
        let (names, names_stay) = Default::default();
        let random = SplitMix64::new(plan.seed);
        FaultyDisk(Arc::new(Mutex::new(State { plan, random, operations: 0, files: Vec::new(), names, names_stay })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Fails by another plan from now on. Its operations are counted from now.
    pub fn fail(&self, plan: Plan) {
        let mut state = self.state();
        (state.random, state.operations, state.plan) = (SplitMix64::new(plan.seed), 0, plan);
    }

    /// Returns the number of operations so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Returns a disk with what this one may hold after a crash now, which fails by `plan` from
    /// then on.
    pub fn after_crash(&self, plan: Plan) -> Self {
        let state = &mut *self.state();
        let mut names = state.names_stay.clone();
        let changed: Vec<_> = state.names.keys().chain(state.names_stay.keys()).cloned().collect();
        for name in changed {
            if state.names.get(&name) != state.names_stay.get(&name) && state.random.draw().is_multiple_of(2) {
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
            files.push(FileContents::of(stays));
            *file = files.len() - 1;
        }
        let random = SplitMix64::new(plan.seed);
        let names_stay = names.clone();
        FaultyDisk(Arc::new(Mutex::new(State { plan, random, operations: 0, files, names, names_stay })))
    }

    /// Returns the bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.state().bytes()
    }

    /// Returns the bytes of a file.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(name).map(|&file| state.files[file].now.clone())
    }

    /// Replaces the bytes of a file. They stay.
    pub fn damage(&self, name: &str, bytes: Vec<u8>) {
        let state = &mut *self.state();
        if let Some(&file) = state.names.get(name) {
            state.files[file] = FileContents::of(bytes);
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
        // After a crash a file that was not synchronised has any of its sectors, and its whole
        // length or none.
        state.files.push(FileContents { now: vec![0; length], ..FileContents::default() });
        let file = state.files.len() - 1;
        state.names.insert(name.to_owned(), file);
        Ok(Box::new(FaultyFile { disk: self.clone(), file }))
    }

    fn open(&self, name: &str, _: bool) -> io::Result<Box<dyn DiskFile>> {
        let state = &mut *self.state();
        let file = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        if state.files[file].has_failed && state.random.draw().is_multiple_of(2) {
            state.files[file].evict();
        }
        Ok(Box::new(FaultyFile { disk: self.clone(), file }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.operate()?;
        state.names.remove(name).map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }

    /// After a crash the new name is that of either file. The old name may be there or not,
    /// independently of that.
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
        let length = if fails { state.random.draw() as usize % (bytes.len() + 1) } else { bytes.len() };
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
            // Sectors that could not be written are dropped, and no later synchronisation reports
            // them.
            state.tear(self.file);
            state.files[self.file].differ.clear();
            state.files[self.file].has_failed = true;
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
