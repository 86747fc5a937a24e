//! The points of several folders in one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use contend_runner::RunError;

use super::store::{PointFile, Store};
use crate::whole_file::{read_bounded, replace};

/// Copies the points of these folders to `out`, which is one of them or a further one, and reads
/// them there. A point that failed in one folder and has figures in another has figures. A point
/// that depends on the machine, and that several folders have, is that of the first.
///
/// # Errors
/// A simulated point made other accesses in one folder than in another; then nothing was copied. A
/// file can't be copied.
pub fn merge(stores: &[Store], out: &Path) -> Result<Store, RunError> {
    let mut chosen: BTreeMap<&str, (&Store, &PointFile)> = BTreeMap::new();
    for store in stores {
        for (hash, file) in store.files() {
            match chosen.get(hash.as_str()) {
                None => drop(chosen.insert(hash, (store, file))),
                Some((other, first)) => {
                    if first.decided_by.machine.is_none()
                        && let (Some(one), Some(another)) = (&first.trace_hash, &file.trace_hash)
                        && one != another
                    {
                        return Err(differing(hash, (other, first), (store, file)));
                    }
                    if first.failure().is_some() && file.failure().is_none() {
                        chosen.insert(hash, (store, file));
                    }
                }
            }
        }
    }
    let target = Store::empty(out);
    for (hash, (store, _)) in chosen {
        copy(&store.path_of(hash), &target.path_of(hash))?;
    }
    Store::open(out)
}

/// Copies a file, unless it would be copied to itself. The bytes are the same, so what a newer
/// version wrote is not lost.
fn copy(from: &Path, to: &Path) -> Result<(), RunError> {
    let at = |path: &Path, error: std::io::Error| {
        RunError::Io(format!("can't copy {} to {}: {error}", from.display(), path.display()))
    };
    let is_there = |path: &Path| -> Option<PathBuf> { path.canonicalize().ok() };
    if is_there(to).is_some_and(|to| Some(to) == is_there(from)) {
        return Ok(());
    }
    let bytes = read_bounded(from, super::store::POINT_BYTES_MAX, "a point").map_err(|error| at(to, error))?;
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).map_err(|error| at(to, error))?;
    }
    replace(to, |file| file.write_all(&bytes)).map_err(|error| at(to, error))
}

/// Returns the error of a point that two builds simulated differently.
fn differing(hash: &str, (a, first): (&Store, &PointFile), (b, second): (&Store, &PointFile)) -> RunError {
    let build = |file: &PointFile| {
        let environment = &file.provenance.environment;
        format!("version {}, commit {}", environment.version, environment.commit.as_deref().unwrap_or("unknown"))
    };
    RunError::BadInput(format!(
        "{} ({}) and {} ({}) are measurements of one simulated point with other accesses: their trace hashes differ, so \
         two versions of the simulator made them; valid: folders of one build",
        a.path_of(hash).display(),
        build(first),
        b.path_of(hash).display(),
        build(second)
    ))
}
