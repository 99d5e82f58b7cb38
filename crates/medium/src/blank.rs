//! Checks that a backing device holds nothing before a drive is made on it: no file system, no
//! partition table, no remains of another drive, no other data.

use std::ops::Range;

use ebof_backend::{Buffer, Error as DeviceError, Operation, Segments};
use ebof_drive::layout::{Layout, SUPERBLOCK_BYTES, Superblock};

use crate::disk::Disk;
use crate::{OpenError, Options};

/// Bytes that are read at a time.
const PART_BYTES: u64 = 1 << 20;
/// Bytes at the beginning that are read in full, if they are zeros.
const ZEROS_MAX: u64 = 4 << 30;
/// Bytes at the end that are read in full: partition tables, RAIDs and pools have labels there.
const TAIL_BYTES: u64 = 64 << 20;
/// Samples that are read between those two.
const SAMPLES: u64 = 512;

static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
const _: () = assert!(ZEROS.len() as u64 == PART_BYTES);

/// Whether these bytes are all zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROS.len()).all(|chunk| chunk == &ZEROS[..chunk.len()])
}

/// Refuses a device on which making a drive would destroy something.
pub(crate) fn check(disk: &mut Disk, options: &Options) -> Result<(), OpenError> {
    let name = disk.base().describe();
    let device = |source| OpenError::Device { device: name.clone(), source };
    if options.zeroed {
        return Ok(());
    }
    // Even with `overwrite`: that setting may have been left over, and a drive without superblocks
    // can be repaired.
    if let Some(what) = remains(disk).map_err(device)? {
        let what = format!(
            "its superblocks are gone, but {what} is there. Nothing was written to it. Copy it before anything else is tried; to \
             make a new one and lose what this one had, overwrite its first 34 MiB with zeros"
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

/// What remains of a drive without superblocks, if anything.
///
/// # Errors
/// It cannot be read.
pub(crate) fn remains(disk: &mut Disk) -> Result<Option<&'static str>, DeviceError> {
    // These offsets are the same for all drives.
    let layout = Layout::new(1 << 20, [0; 16]).expect("1 MiB is the smallest drive");
    let capacity_bytes = disk.base().geometry().capacity_bytes;
    let structures = [
        (layout.keys(0), b"EBOFKEY", "a table of keys"),
        (layout.keys(1), b"EBOFKEY", "a table of keys"),
        (layout.journal(0), b"EBOFJRN", "a journal"),
        (layout.journal(1), b"EBOFJRN", "a journal"),
        (layout.checkpoint(0), b"EBOFCHK", "a checkpoint"),
    ];
    for (at, magic, what) in structures {
        if at + SUPERBLOCK_BYTES as u64 <= capacity_bytes
            && disk.read(at, SUPERBLOCK_BYTES)?.as_slice().starts_with(magic)
        {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

/// The offset of a byte that is not zero. Holes in files are skipped; of more than 4 GiB of other
/// zeros only samples and the end are read.
fn first_data(disk: &mut Disk) -> Result<Option<u64>, DeviceError> {
    let capacity_bytes = disk.base().geometry().capacity_bytes;
    let tail = capacity_bytes.saturating_sub(TAIL_BYTES);
    let stride = (tail / SAMPLES).next_multiple_of(PART_BYTES);
    let mut at = 0;
    let mut zeros = 0;
    while let Some(next) = disk.base().next_data(at).filter(|&next| next < capacity_bytes) {
        at = next - next % PART_BYTES;
        let bytes = PART_BYTES.min(capacity_bytes - at);
        let len = usize::try_from(bytes).expect("at most 1 MiB");
        let held = disk.run_one(Operation::Read { offset: at, len, data: Buffer::zeroed(len).into() });
        held.result?;
        let held = held.data.and_then(Segments::into_buffer).expect("a read returns its buffer");
        if !is_zero(&held.as_slice()[..len]) {
            let within = held.as_slice()[..len].iter().position(|byte| *byte != 0);
            return Ok(Some(at + within.expect("it is not zero, see above") as u64));
        }
        zeros += bytes;
        at += bytes;
        if zeros > ZEROS_MAX && at < tail {
            at = at.next_multiple_of(stride).min(tail - tail % PART_BYTES).max(at);
        }
    }
    Ok(None)
}

/// Whether the device holds a drive, whole or damaged.
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

/// Overwrites a range of whole frames with zeros, where it is not zeros already.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ebof_backend::{Device, Geometry, Io, Memory, Request, Submitted};

    use super::*;

    /// A device of zeros, but for one byte.
    #[derive(Debug)]
    struct Zeros {
        geometry: Geometry,
        data_at: u64,
    }

    impl Device for Zeros {
        fn geometry(&self) -> Geometry {
            self.geometry
        }

        fn submit(&self, _: &mut Io, mut request: Request) -> Submitted {
            let checked = self.geometry.check(&request.operation);
            if let Operation::Read { offset, len, data } = &mut request.operation
                && (*offset..*offset + *len as u64).contains(&self.data_at)
            {
                data.write(usize::try_from(self.data_at - *offset).unwrap(), &[1]);
            }
            Submitted::Done(request.complete(checked))
        }

        fn describe(&self) -> String {
            "zeros".to_owned()
        }
    }

    /// What is found on a device of this size with data at this byte.
    fn found(capacity_bytes: u64, data_at: u64) -> Option<u64> {
        let geometry = Geometry { capacity_bytes, ..Memory::new(512, 512, false).geometry() };
        let options = Options::default();
        let mut disk = Disk::new(Arc::new(Zeros { geometry, data_at }), &options.io, &options.clock).unwrap();
        first_data(&mut disk).unwrap()
    }

    #[test]
    fn any_byte_of_a_device_is_found() {
        const CAPACITY: u64 = (5 << 20) + 512;
        for at in [0, PART_BYTES - 1, PART_BYTES, 2 * PART_BYTES + 777, 5 * PART_BYTES, CAPACITY - 1] {
            assert_eq!(found(CAPACITY, at), Some(at));
        }
        assert_eq!(found(CAPACITY, u64::MAX), None);
    }
}
