//! The measured points of a sweep's folder: a file for each, named by the hash of what decides it.
//!
//! A file is written under another name and then renamed. So a reader sees it whole or not at all,
//! and any number of sweeps may write to one folder at once, on any number of machines. A sweep
//! claims a point before it measures it, so that no other one measures it meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use contend_runner::RunError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::key::{Fingerprint, PointKey, is_hash};
use super::{Curves, Experiment, Measurement, Point, SEEDS_MAX};
use crate::environment::Provenance;
use crate::schema::{self, Version};
use crate::whole_file::{read_bounded, replace};

/// The version of the schema of a point's file.
pub const POINT_SCHEMA: Version = Version { major: 1, minor: 0 };
/// The folder of the points below that of a sweep.
const POINTS: &str = "points";
/// The file of all points of an experiment, in folders of a former version.
const FORMER: &str = "points.jsonl";
/// A point has some kilobytes, and a workload file at most some hundred more.
pub(super) const POINT_BYTES_MAX: u64 = 16 << 20;

/// A measured point, as its file holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PointFile {
    /// [`POINT_SCHEMA`].
    pub schema_version: Version,
    /// What decides the measurement; the file is named by its hash.
    pub decided_by: PointKey,
    /// The figures, or the reason why there are none.
    pub outcome: PointOutcome,
    /// A hash over every access of the simulation, in hexadecimal, on a simulated chip. Two
    /// measurements with one hash were the same.
    pub trace_hash: Option<String>,
    /// The build, the machine and the command that measured it.
    pub provenance: Provenance,
}

/// The outcome of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PointOutcome {
    /// The figures.
    Measured(Box<Measurement>),
    /// The reason why the point has no figures.
    Failed(String),
}

impl PointFile {
    /// Returns the reason of a failure.
    pub fn failure(&self) -> Option<&str> {
        match &self.outcome {
            PointOutcome::Measured(_) => None,
            PointOutcome::Failed(reason) => Some(reason),
        }
    }

    /// Reads the text of a file that has this name. Returns notes beside it.
    fn read(hash: &str, text: &str) -> Result<(PointFile, Option<String>), Unreadable> {
        let damaged = |error: serde_json::Error| Unreadable::Damaged(error.to_string());
        let value: serde_json::Value = serde_json::from_str(text).map_err(damaged)?;
        if schema::has_control_characters(text) {
            return Err(Unreadable::Refused("a text in it has control characters".into()));
        }
        let note = schema::check("a point", &value, POINT_SCHEMA).map_err(Unreadable::Refused)?;
        let point: PointFile = serde_json::from_value(value).map_err(damaged)?;
        if point.decided_by.hash() != hash {
            return Err(Unreadable::Damaged("its contents are those of another point".into()));
        }
        Ok((point, note))
    }

    /// Returns the measurement at the place of this point in its experiment.
    fn at(&self, point: &Point) -> Option<Measurement> {
        let PointOutcome::Measured(figures) = &self.outcome else { return None };
        let mut measurement = Measurement {
            series: point.series.clone(),
            x: point.x.clone(),
            machine: self.decided_by.machine.clone(),
            ..(**figures).clone()
        };
        let Measurement { throughput, throughput_of_one, .. } = &mut measurement;
        for rate in [&mut throughput.median, &mut throughput.min, &mut throughput.max, throughput_of_one] {
            *rate *= point.factor;
        }
        Some(measurement)
    }
}

/// Why a file can't be used.
enum Unreadable {
    /// It is cut off, or is no point. It is measured again.
    Damaged(String),
    /// Another version wrote it, or it is no file of this program: it must stay.
    Refused(String),
}

/// Whose measurements of points count that depend on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machines {
    /// Those of this machine.
    Here,
    /// Those of the one machine that there is. Two machines are an error.
    One,
    /// Those of all machines.
    Mixed,
}

/// The right to measure a point. It is a lock of a file, so it ends with its process, however that
/// ends.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    file: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // While the lock holds. A file that stays claims nothing.
        let _ = std::fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

/// The points of a sweep's folder.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    files: BTreeMap<String, PointFile>,
    /// The hashes of all files that differ by their seed and machine only, by family.
    families: BTreeMap<String, BTreeSet<String>>,
    notes: Vec<String>,
}

impl Store {
    /// Returns whether a sweep has measured points below `out`.
    pub fn is_below(out: &Path) -> bool {
        out.join(POINTS).is_dir()
    }

    /// Returns the folder without its points.
    pub(super) fn empty(out: &Path) -> Store {
        Store { folder: out.join(POINTS), files: BTreeMap::new(), families: BTreeMap::new(), notes: Vec::new() }
    }

    /// Reads the points below `out`. A folder that does not exist has none.
    ///
    /// # Errors
    /// A file can't be read, was written by a newer version, or is in the format of a former one.
    pub fn open(out: &Path) -> Result<Store, RunError> {
        refuse_former(out)?;
        let mut store = Store::empty(out);
        for path in files_in(&store.folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(hash) = name.strip_suffix(".json").filter(|hash| is_hash(hash)) else { continue };
            let text = read_bounded(&path, POINT_BYTES_MAX, "a point");
            let text = text.map_err(|error| RunError::Io(format!("can't read {}: {error}", path.display())))?;
            match PointFile::read(hash, &String::from_utf8_lossy(&text)) {
                Ok((point, note)) => {
                    // Many files of one newer version need one note only.
                    if let Some(note) = note.filter(|note| !store.notes.contains(note)) {
                        store.notes.push(note);
                    }
                    store.insert(hash.to_owned(), point);
                }
                Err(Unreadable::Damaged(why)) => store.notes.push(format!(
                    "{} can't be read as a point ({why}); the point counts as missing, and is measured again",
                    path.display()
                )),
                Err(Unreadable::Refused(why)) => {
                    return Err(RunError::BadInput(format!("{}: {why}", path.display())));
                }
            }
        }
        Ok(store)
    }

    fn insert(&mut self, hash: String, point: PointFile) {
        self.families.entry(point.decided_by.family()).or_default().insert(hash.clone());
        self.files.insert(hash, point);
    }

    /// Returns what a user should know about the files: which can't be read, and which are newer.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the path of a point's file.
    pub fn path_of(&self, hash: &str) -> PathBuf {
        self.folder.join(format!("{hash}.json"))
    }

    /// Returns all files by hash.
    pub fn files(&self) -> &BTreeMap<String, PointFile> {
        &self.files
    }

    /// Keeps a point in its file.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn keep(&mut self, point: PointFile) -> Result<(), RunError> {
        let hash = point.decided_by.hash();
        write(&self.path_of(&hash), &point)?;
        self.insert(hash, point);
        Ok(())
    }

    /// Reads a point's file again, which another sweep may have written since.
    pub(super) fn refresh(&mut self, hash: &str) {
        let text = read_bounded(&self.path_of(hash), POINT_BYTES_MAX, "a point");
        // A file that can't be used has its note since the folder was opened.
        if let Ok(text) = text
            && let Ok((point, _)) = PointFile::read(hash, &String::from_utf8_lossy(&text))
        {
            self.insert(hash.to_owned(), point);
        }
    }

    /// Claims a point, so that no other sweep measures it. Returns `None` if another one has
    /// claimed it.
    ///
    /// # Errors
    /// The file of the claim can't be made.
    pub(super) fn claim(&self, hash: &str) -> Result<Option<Claim>, RunError> {
        let path = self.folder.join(format!("{hash}.claim"));
        let failed = |error: std::io::Error| RunError::Io(format!("can't write {}: {error}", path.display()));
        std::fs::create_dir_all(&self.folder).map_err(failed)?;
        loop {
            let file = File::options().create(true).append(true).open(&path).map_err(failed)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Ok(None),
                // A file system without locks: two sweeps may then measure one point, and the later
                // file replaces the earlier one.
                Err(TryLockError::Error(_)) => return Ok(Some(Claim { path, file })),
                Ok(()) => {}
            }
            // The sweep before may have removed the file between the two calls.
            let of_file = file.metadata().map_err(failed)?;
            if std::fs::metadata(&path).is_ok_and(|there| (there.dev(), there.ino()) == (of_file.dev(), of_file.ino()))
            {
                return Ok(Some(Claim { path, file }));
            }
        }
    }

    /// Returns the file of a point that was measured on one of these machines: if there are
    /// several, one with figures.
    pub fn of_point(&self, key: &PointKey, machines: Machines) -> Option<&PointFile> {
        if machines == Machines::Here || key.machine.is_none() {
            return self.files.get(&key.hash());
        }
        let same_seed = |file: &&PointFile| file.decided_by.seed() == key.seed();
        self.family(key).filter(same_seed).min_by_key(|file| file.failure().is_some())
    }

    fn family(&self, key: &PointKey) -> impl Iterator<Item = &PointFile> {
        let hashes = self.families.get(&key.family()).into_iter().flatten();
        hashes.filter_map(|hash| self.files.get(hash))
    }

    /// Returns the machines on which the points of an experiment were measured that depend on the
    /// machine.
    ///
    /// # Errors
    /// As [`Experiment::points`].
    pub fn machines_of(&self, experiment: &Experiment) -> Result<BTreeSet<Fingerprint>, RunError> {
        let points = experiment.points()?;
        let keys = points.iter().map(PointKey::of).filter(|key| key.machine.is_some());
        Ok(keys
            .flat_map(|key| self.family(&key).filter_map(|file| file.decided_by.machine.clone()).collect::<Vec<_>>())
            .collect())
    }

    /// Returns the measurements of an experiment, in the order in which it names the points.
    ///
    /// # Errors
    /// Points were measured on several machines, and only one may be there.
    pub fn curves(&self, experiment: &Experiment, machines: Machines) -> Result<Curves, RunError> {
        if machines == Machines::One {
            let found = self.machines_of(experiment)?;
            if found.len() > 1 {
                let found: Vec<String> = found.iter().map(Fingerprint::to_string).collect();
                return Err(RunError::BadInput(format!(
                    "the points of experiment {} were measured on {} machines ({}); figures of two machines are not \
                     drawn as one curve, unless --mixed allows it",
                    experiment.id,
                    found.len(),
                    found.join("; ")
                )));
            }
        }
        let has_axis_of_seeds = experiment.has_axis_of_seeds();
        let mut curves = Curves::new();
        for point in &experiment.points()? {
            let key = PointKey::of(point);
            let seeds = if has_axis_of_seeds || key.machine.is_some() { 1 } else { SEEDS_MAX as u64 };
            let counts = |file: &&PointFile| {
                let of_machine = machines != Machines::Here || file.decided_by.machine == key.machine;
                of_machine && file.decided_by.seed().wrapping_sub(key.seed()) < seeds
            };
            let mut of_point: Vec<Measurement> =
                self.family(&key).filter(counts).filter_map(|file| file.at(point)).collect();
            of_point.sort_by_key(|measurement| measurement.seed.map(|seed| seed.wrapping_sub(key.seed())));
            if let Some(measurement) = Measurement::merged(of_point) {
                curves.entry(point.series.clone()).or_default().push(measurement);
            }
        }
        Ok(curves)
    }
}

/// Writes a point to its file.
pub(super) fn write(path: &Path, point: &PointFile) -> Result<(), RunError> {
    let failed = |error: std::io::Error| RunError::Io(format!("can't write {}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let text = serde_json::to_string_pretty(point).expect("plain data") + "\n";
    replace(path, |file| file.write_all(text.as_bytes())).map_err(failed)
}

/// Returns what is in a folder, sorted. A folder that does not exist is empty.
pub(super) fn files_in(folder: &Path) -> Result<Vec<PathBuf>, RunError> {
    let failed = |error: std::io::Error| RunError::Io(format!("can't read {}: {error}", folder.display()));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Refuses a folder of a former version, which kept all points of an experiment in one file.
fn refuse_former(out: &Path) -> Result<(), RunError> {
    let former = files_in(out)?.into_iter().map(|folder| folder.join(FORMER)).find(|file| file.is_file());
    match former {
        None => Ok(()),
        Some(file) => Err(RunError::BadInput(format!(
            "{} is of a former version, whose points can't be used; choose another folder by --out, or remove the file",
            file.display()
        ))),
    }
}
