//! A log of any bytes, for a fuzzer.

use std::sync::Arc;

use crate::disk::Disk;
use crate::error::LogError;
use crate::faulty::{FaultyDisk, Plan};
use crate::format::{self, BLOCK_HEADER, End};
use crate::inspect;
use crate::log::{Log, LogConfig};
use crate::manifest::{Manifest, ManifestContents, Segment, TableSchemas, Tail};
use crate::schema::Schema;

/// Returns the tables of the log.
fn schemas() -> Vec<Schema> {
    let schema = |name: &str, key_words, groups: &[(usize, usize)]| Schema {
        name: name.to_owned(),
        key_words,
        row_words: groups.last().map_or(0, |group| group.1),
        groups: groups.to_vec(),
        ordered: true,
        columns: String::new(),
    };
    vec![schema("a", 1, &[(0, 1)]), schema("b", 4, &[(0, 2), (2, 5), (5, 6)]), schema("c", 2, &[(0, 0)])]
}

/// Makes a log and reads it in all ways. The first two bytes choose the kind of its file; the
/// others are the body of a block, whose checksum is right, and what stands behind the block.
///
/// # Errors
/// The log can't be read, or can't be continued.
///
/// # Panics
/// Two ways to read it disagree.
pub fn read(bytes: &[u8]) -> Result<(), LogError> {
    let Some((&[shape, split], rest)) = bytes.split_first_chunk() else { return Ok(()) };
    let (body, behind) = rest.split_at(rest.len() * usize::from(split) / 256);
    let (number, salt, epoch) = (0, 77, 1 + u64::from(shape >> 4));
    let mut block = vec![0; BLOCK_HEADER];
    block.extend_from_slice(body);
    format::seal(&mut block, epoch, salt, 1, u64::from(shape >> 2 & 1));
    let mut file = format::file_header(salt, TableSchemas::of(schemas()).count()).to_vec();
    let tail = [Tail::Nothing, Tail::Epochs, Tail::Flushed, Tail::InOrder][usize::from(shape & 3)];
    let header = file.len() as u64;
    file.extend(block);
    let known = if tail == Tail::Epochs { header } else { file.len() as u64 };
    if tail == Tail::Epochs {
        file.extend(End { files: 1 + u32::from(shape >> 3 & 1), epoch, log_flush: 1 }.bytes(salt));
    }
    file.extend_from_slice(behind);
    let segment = Segment {
        number,
        salt,
        bytes: known,
        capacity: file.len() as u64,
        last_epoch: u64::MAX,
        end_lsn: 0,
        blocks: Some((epoch, epoch)),
        tail,
        last_lsn: 9,
    };
    let disk = FaultyDisk::new(Plan::default());
    let mut manifest = Manifest::create(&disk)?;
    let io = |what| LogError::io(what, disk.place(&segment.name()));
    let mut written = disk.create(&segment.name(), file.len() as u64).map_err(io("create"))?;
    written.write_at(0, &file).map_err(io("write"))?;
    written.sync().map_err(io("synchronise"))?;
    schemas().iter().try_for_each(|schema| manifest.add_table(schema))?;
    let contents = ManifestContents { segments: vec![segment.clone()], epoch: 5, ..manifest.contents.clone() };
    manifest.write(&disk, contents)?;
    let found = inspect::inspect(&disk)?;
    inspect::writes(&disk, &found, number, |_, shown| {
        assert!(!shown.to_string().is_empty());
        std::ops::ControlFlow::Continue(())
    })?;
    let recovered = match inspect::recover(&disk, 1, &|_| ()) {
        // Only a check looks at the order, and no engine has made this log.
        Err(LogError::Disorder { .. }) => None,
        recovered => Some(recovered?),
    };
    let rows = |tables: &[crate::RecoveredTable]| tables.iter().map(|table| table.rows().count()).sum::<usize>();
    let config = LogConfig { workers: 1, threads: 1, segment_bytes: 1 << 12, ..LogConfig::default() };
    let (log, again) = Log::open(Arc::new(disk.clone()), config.clone())?;
    if let Some(recovered) = recovered {
        assert_eq!(rows(&again.tables), rows(&recovered.tables));
    }
    log.checkpoint_by_hand()?;
    drop(log);
    let (_, after) = Log::open(Arc::new(disk), config)?;
    assert_eq!(rows(&after.tables), rows(&again.tables));
    Ok(())
}

#[cfg(test)]
mod tests {
    use contend_engine::Groups;
    use contend_engine::commit_sink::{Addition, WriteCounter};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::format::Change;

    /// A body with some changed bytes is read, or refused with one of two errors.
    #[test]
    fn any_log_can_be_read() {
        let (schemas, random) = (schemas(), &mut SmallRng::seed_from_u64(3));
        let (mut opened, mut refused) = (0, 0);
        for _ in 0..3000 {
            let shape: u8 = random.random();
            let mut bytes = vec![shape, random.random_range(100..=255)];
            for _ in 0..random.random_range(0..6) {
                let lsn = match shape & 4 {
                    0 => 0,
                    _ if random.random_bool(0.1) => u64::MAX >> random.random_range(0..3),
                    _ => random.random_range(1..9),
                };
                let table = random.random_range(0..schemas.len());
                let key = vec![random.random_range(0..3); schemas[table].key_words];
                let row = vec![7; schemas[table].row_words];
                let additions = [Addition { word: 0, by: 5 }];
                let change = match random.random_range(0..10) {
                    0..3 => Change::Insert(&row),
                    3..6 => Change::Put(Groups::ALL, &row),
                    6..8 if !row.is_empty() => Change::Add(&additions),
                    _ => Change::Delete,
                };
                let epoch = 1 + u64::from(shape >> 4);
                let counter = WriteCounter(format::first_counter(epoch).0 + random.random_range(0..5));
                let write = format::Write { table: table as u32, key: &key, counter, change };
                format::put_transaction(lsn, epoch, std::iter::once((write, &schemas[table])), &mut bytes);
            }
            for _ in 0..random.random_range(0..3) {
                let place = random.random_range(2..=bytes.len());
                if place < bytes.len() && random.random_bool(0.5) {
                    bytes[place] ^= 1 << random.random_range(0..8);
                } else {
                    bytes.insert(place, random.random());
                }
            }
            match read(&bytes) {
                Ok(()) => opened += 1,
                Err(LogError::Damaged { .. } | LogError::Incomplete { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(opened > 300 && refused > 300, "{opened} opened, {refused} refused");
    }
}
