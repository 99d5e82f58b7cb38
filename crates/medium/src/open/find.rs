//! Finds the drive on a backing device, or makes one: superblocks, and what comes before the first
//! checkpoint. How checkpoint and journal are read is in `journal/recovery.rs`.

use ebof_drive::frame::{Checkpoint, Record};
use ebof_drive::layout::{Layout, SUPERBLOCK_BYTES, Superblock};

use crate::disk::Disk;
use crate::journal::Journal;
use crate::journal::found::Found;
use crate::journal::recovery::existing;
use crate::{Error, OpenError, Options, blank};

/// Finds the drive on a medium, or makes it.
pub(crate) fn find(disk: &mut Disk, options: &Options) -> Result<Found, OpenError> {
    let name = disk.base().describe();
    let device = |source| OpenError::Device { device: name.clone(), source };
    let geometry = disk.base().geometry();
    if geometry.read_only {
        return Err(OpenError::ReadOnly { device: name });
    }
    if geometry.capacity_bytes < 2 * SUPERBLOCK_BYTES as u64 {
        let source = Layout::largest(geometry.capacity_bytes, options.id).map(|_| ());
        return match source {
            Err(source) => Err(OpenError::Layout { device: name, source }),
            Ok(()) => Err(OpenError::NoDrive { device: name }),
        };
    }
    let both = disk.read(0, 2 * SUPERBLOCK_BYTES).map_err(device)?;
    let (first, second) = both.as_slice()[..2 * SUPERBLOCK_BYTES].split_at(SUPERBLOCK_BYTES);
    match (Layout::decode(first), Layout::decode(second)) {
        (Superblock::Drive(layout), Superblock::Drive(same)) if layout == same => existing(disk, layout, options),
        // Making a drive over another one was interrupted.
        (Superblock::Drive(layout), Superblock::Drive(other)) => {
            existing(disk, layout, options).or_else(|error| existing(disk, other, options).map_err(|_same| error))
        }
        (Superblock::Drive(layout), other) => {
            let found = existing(disk, layout, options)?;
            mend_superblock(disk, SUPERBLOCK_BYTES as u64, &other, &found);
            Ok(found)
        }
        (other, Superblock::Drive(layout)) => {
            let found = existing(disk, layout, options)?;
            mend_superblock(disk, 0, &other, &found);
            Ok(found)
        }
        (Superblock::Unreadable, _) | (_, Superblock::Unreadable) => {
            Err(OpenError::Damaged { device: name, what: "neither superblock can be read".to_owned() })
        }
        _ => make(disk, options),
    }
}

/// Writes a damaged superblock again, unless it may be something else that was put there.
fn mend_superblock(disk: &mut Disk, at: u64, what: &Superblock, found: &Found) {
    let device = disk.base().describe();
    let is_ours = !matches!(what, Superblock::Foreign) && found.lost.is_none();
    let what = match what {
        Superblock::Drive(_) => "another one",
        Superblock::Unreadable => "unreadable",
        Superblock::Nothing => "zeros",
        Superblock::Foreign => "other data",
    };
    tracing::error!(device, at, what, rewritten = is_ours, "one of the two superblocks of the drive is damaged");
    if is_ours && let Err(error) = disk.write(at, &found.layout.encode()).and_then(|()| disk.flush()) {
        tracing::error!(device, at, "the superblock cannot be written: {error}");
    }
}

fn make(disk: &mut Disk, options: &Options) -> Result<Found, OpenError> {
    let name = disk.base().describe();
    let capacity = options.create.ok_or_else(|| OpenError::NoDrive { device: name.clone() })?;
    let medium_bytes = disk.base().geometry().capacity_bytes;
    let layout = match capacity {
        0 => Layout::largest(medium_bytes, options.id),
        _ => Layout::new(capacity, options.id),
    };
    let layout = layout.map_err(|source| OpenError::Layout { device: name.clone(), source })?;
    if layout.medium_bytes() > medium_bytes {
        let capacity_bytes = layout.capacity_bytes;
        let needed_bytes = layout.medium_bytes();
        let source = ebof_drive::layout::LayoutError::TooSmall { capacity_bytes, needed_bytes, medium_bytes };
        return Err(OpenError::Layout { device: name, source });
    }
    blank::check(disk, options)?;
    let made = make_with(disk, layout, options);
    if made.is_err() {
        // Leaves neither half a drive nor its storage, if possible. The first error is the one to
        // report.
        let empty = vec![0; 2 * SUPERBLOCK_BYTES];
        let _reported = disk.write(0, &empty);
        let begin = layout.keys(0);
        let _reported = disk.zero(std::iter::once((begin, layout.data() - begin)), true);
    }
    made
}

fn make_with(disk: &mut Disk, layout: Layout, options: &Options) -> Result<Found, OpenError> {
    let name = disk.base().describe();
    let device = |source| OpenError::Device { device: name.clone(), source };
    if !options.zeroed {
        // Keys, journals and checkpoints of an earlier drive could be read again with its
        // superblock.
        blank::overwrite(disk, 2 * SUPERBLOCK_BYTES as u64..layout.data()).map_err(device)?;
    }
    // Allocates the storage of journals and checkpoints now, so that a full file system cannot make
    // them fail later.
    let begin = layout.keys(0);
    disk.zero(std::iter::once((begin, layout.data() - begin)), false).map_err(device)?;
    // A first checkpoint before the superblocks: a drive that is found is complete.
    let mut journal = Journal::new(layout, 0, 0);
    let records = vec![Record::HighWater(if options.zeroed { 0 } else { layout.extents() })];
    let checkpoint = Checkpoint { state: Vec::new(), records, clean: true };
    journal.checkpoint(disk, &checkpoint).map_err(|error| match error {
        Error::Device(source) => device(source),
        other => OpenError::Damaged { device: name.clone(), what: other.to_string() },
    })?;
    journal.end_incarnation();
    let superblock = layout.encode();
    disk.write(0, &superblock).and_then(|()| disk.write(SUPERBLOCK_BYTES as u64, &superblock)).map_err(device)?;
    disk.flush().map_err(device)?;
    let Checkpoint { state, records, .. } = checkpoint;
    let records = records.into_iter().map(|record| (None, record)).collect();
    Ok(Found {
        layout,
        journal,
        state,
        records,
        changes: Vec::new(),
        was_clean: true,
        created: true,
        mended: None,
        lost: None,
    })
}
