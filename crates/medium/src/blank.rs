//! Whether a backing device holds anything, before a drive is made on it: a file system, a
//! partition table, the remains of another drive, or any other bytes.

use std::ops::Range;

use ebof_backend::{Buffer, Error as DeviceError, Operation, Segments};
use ebof_drive::layout::{Layout, SUPERBLOCK_BYTES, Superblock};

use crate::disk::Disk;
use crate::{OpenError, Options};

/// Bytes that are read at a time.
const PART_BYTES: u64 = 1 << 20;
/// Zeros of which every byte is looked at, from the beginning on.
const ZEROS_MAX: u64 = 4 << 30;
/// Bytes at the end of which every one is looked at: labels of partition tables, RAIDs and pools
/// are there.
const TAIL_BYTES: u64 = 64 << 20;
/// Places between those two that are looked at where there is more.
const SAMPLES: u64 = 512;

static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
const _: () = assert!(ZEROS.len() as u64 == PART_BYTES);

/// Whether these bytes are all zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROS.len()).all(|chunk| chunk == &ZEROS[..chunk.len()])
}

/// Whether a drive can be made on the device without anything being lost.
pub(crate) fn check(disk: &mut Disk, options: &Options) -> Result<(), OpenError> {
    let name = disk.base().describe();
    let device = |source| OpenError::Device { device: name.clone(), source };
    if options.zeroed {
        return Ok(());
    }
    // Whatever was said about other data: a setting that has been left over does not destroy what
    // may be repaired.
    if let Some(what) = remains(disk).map_err(device)? {
        let what = format!(
            "its superblocks are gone, but {what} is there; to make a new one, overwrite its first 34 MiB with zeros"
        );
        return Err(OpenError::Damaged { device: name, what });
    }
    if options.overwrite {
        return Ok(());
    }
    match first_data(disk).map_err(device)? {
        Some(at) => Err(OpenError::HoldsData { device: name, at }),
        None => Ok(()),
    }
}

/// What is left of a drive without superblocks.
///
/// # Errors
/// It cannot be read.
pub(crate) fn remains(disk: &mut Disk) -> Result<Option<&'static str>, DeviceError> {
    // Where these lie is the same for all drives.
    let Ok(layout) = Layout::new(1 << 20, [0; 16]) else { return Ok(None) };
    let capacity_bytes = disk.base().geometry().capacity_bytes;
    let places = [
        (layout.keys(0), b"EBOFKEY", "a table of keys"),
        (layout.keys(1), b"EBOFKEY", "a table of keys"),
        (layout.journal(0), b"EBOFJRN", "a journal"),
        (layout.journal(1), b"EBOFJRN", "a journal"),
        (layout.checkpoint(0), b"EBOFCHK", "a checkpoint"),
    ];
    for (at, magic, what) in places {
        if at + SUPERBLOCK_BYTES as u64 <= capacity_bytes
            && disk.read(at, SUPERBLOCK_BYTES)?.as_slice().starts_with(magic)
        {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

/// Where the device has a byte that is not zero. Of more than 4 GiB of zeros not all are looked at,
/// but for holes in files.
fn first_data(disk: &mut Disk) -> Result<Option<u64>, DeviceError> {
    let capacity_bytes = disk.base().geometry().capacity_bytes;
    let tail = capacity_bytes.saturating_sub(TAIL_BYTES);
    let stride = (tail / SAMPLES).next_multiple_of(PART_BYTES);
    let (mut at, mut zeros) = (0, 0);
    while let Some(next) = disk.base().next_data(at).filter(|&next| next < capacity_bytes) {
        at = next - next % PART_BYTES;
        let bytes = PART_BYTES.min(capacity_bytes - at);
        let len = usize::try_from(bytes).expect("at most 1 MiB");
        let held = disk.one(Operation::Read { offset: at, len, data: Buffer::zeroed(len).into() });
        held.result?;
        let held = held.data.and_then(Segments::into_buffer).unwrap_or_else(|| Buffer::zeroed(len));
        if !is_zero(&held.as_slice()[..len]) {
            let within = held.as_slice()[..len].iter().position(|byte| *byte != 0);
            return Ok(Some(at + within.unwrap_or_default() as u64));
        }
        zeros += bytes;
        at += bytes;
        if zeros > ZEROS_MAX && at < tail {
            at = at.next_multiple_of(stride).min(tail - tail % PART_BYTES).max(at);
        }
    }
    Ok(None)
}

/// Whether the device holds a drive, whole or damaged: then it is not to be used for anything else.
///
/// # Errors
/// It cannot be read.
pub(crate) fn has_drive(disk: &mut Disk) -> Result<bool, DeviceError> {
    if disk.base().geometry().capacity_bytes < 2 * SUPERBLOCK_BYTES as u64 {
        return Ok(false);
    }
    let both = disk.read(0, 2 * SUPERBLOCK_BYTES)?;
    let (first, second) = both.as_slice()[..2 * SUPERBLOCK_BYTES].split_at(SUPERBLOCK_BYTES);
    let is_one = |block| matches!(Layout::decode(block), Superblock::Drive(_) | Superblock::Unreadable);
    Ok(is_one(first) || is_one(second))
}

/// Overwrites with zeros what is not zero in a range of whole frames.
pub(crate) fn overwrite(disk: &mut Disk, range: Range<u64>) -> Result<(), DeviceError> {
    let mut at = range.start;
    while at < range.end {
        let bytes = PART_BYTES.min(range.end - at);
        let len = usize::try_from(bytes).expect("at most 1 MiB");
        let held = disk.read(at, len)?;
        if !is_zero(&held.as_slice()[..len]) {
            disk.write(at, &vec![0; len])?;
        }
        at += bytes;
    }
    Ok(())
}
