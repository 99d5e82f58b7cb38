//! The journal and the checkpoints on the medium: what is appended where, and what is found there at the start.

use ebof_backend::Error as DeviceError;
use ebof_drive::frame::{Checkpoint, FRAME_BYTES, Header, Piece, Record, Series, decode_frame, encode_frames};
use ebof_drive::layout::{JOURNAL_BYTES, Layout, SUPERBLOCK_BYTES, Superblock};

use crate::disk::Disk;
use crate::{OpenError, Options};

/// Frames of a journal.
const FRAMES: u64 = JOURNAL_BYTES / FRAME_BYTES as u64;

/// Where the next record goes.
#[derive(Debug)]
pub(crate) struct Journal {
    layout: Layout,
    generation: u64,
    /// Number of the next frame, and its place.
    next: u64,
}

/// What was found on a medium.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) layout: Layout,
    pub(crate) journal: Journal,
    pub(crate) checkpoint: Checkpoint,
    /// Records behind the checkpoint, changes aside.
    pub(crate) records: Vec<Record>,
    /// Changes behind the checkpoint.
    pub(crate) changes: Vec<Vec<u8>>,
    pub(crate) created: bool,
}

impl Journal {
    fn series(&self) -> Series {
        Series { id: self.layout.id, generation: self.generation }
    }

    /// Whether frames for so many bytes fit without a checkpoint.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.next + (bytes / FRAME_BYTES) as u64 <= FRAMES
    }

    /// What records become in the journal.
    pub(crate) fn encode(&self, records: &[Record]) -> Vec<u8> {
        encode_frames(self.series(), self.next, records)
    }

    /// Writes frames. After an error the journal goes on from where it was: what was written in part is written over.
    pub(crate) fn append(&mut self, disk: &mut Disk, frames: &[u8]) -> Result<(), DeviceError> {
        disk.write(self.layout.journal(self.generation) + self.next * FRAME_BYTES as u64, frames)?;
        self.next += (frames.len() / FRAME_BYTES) as u64;
        Ok(())
    }

    /// Writes a checkpoint, and starts a new journal behind it. What was there before holds until that is complete.
    pub(crate) fn checkpoint(&mut self, disk: &mut Disk, checkpoint: &Checkpoint) -> Result<(), DeviceError> {
        let generation = self.generation + 1;
        let (header, body) = checkpoint.encode(Series { generation, ..self.series() });
        let at = self.layout.checkpoint(generation);
        disk.write(at + FRAME_BYTES as u64, &body)?;
        disk.flush()?;
        disk.write(at, &header)?;
        disk.flush()?;
        (self.generation, self.next) = (generation, 0);
        Ok(())
    }
}

/// Finds the drive on a medium, or makes it.
pub(crate) fn open(disk: &mut Disk, options: &Options) -> Result<Found, OpenError> {
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
        (Superblock::Drive(layout), _) | (_, Superblock::Drive(layout)) => existing(disk, layout, options),
        (Superblock::Foreign, _) => Err(OpenError::Foreign { device: name }),
        (Superblock::Nothing, Superblock::Nothing) => make(disk, options),
        _ => Err(OpenError::Damaged { device: name, what: "neither superblock can be read".to_owned() }),
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
        let (capacity_bytes, needed_bytes) = (layout.capacity_bytes, layout.medium_bytes());
        let source = ebof_drive::layout::LayoutError::TooSmall { capacity_bytes, needed_bytes, medium_bytes };
        return Err(OpenError::Layout { device: name, source });
    }
    let device = |source| OpenError::Device { device: name.clone(), source };
    // A first checkpoint before the superblock: a drive that is found is a whole one.
    let mut journal = Journal { layout, generation: 0, next: 0 };
    let water = if options.zeroed { 0 } else { layout.extents() };
    let checkpoint = Checkpoint { state: Vec::new(), records: vec![Record::Water(water)], clean: true };
    journal.checkpoint(disk, &checkpoint).map_err(device)?;
    let superblock = layout.encode();
    disk.write(0, &superblock).and_then(|()| disk.write(SUPERBLOCK_BYTES as u64, &superblock)).map_err(device)?;
    disk.flush().map_err(device)?;
    Ok(Found { layout, journal, checkpoint, records: Vec::new(), changes: Vec::new(), created: true })
}

fn existing(disk: &mut Disk, layout: Layout, options: &Options) -> Result<Found, OpenError> {
    let name = disk.base().describe();
    let device = |source| OpenError::Device { device: name.clone(), source };
    let damaged = |what: &str| OpenError::Damaged { device: name.clone(), what: what.to_owned() };
    let geometry = disk.base().geometry();
    if layout.medium_bytes() > geometry.capacity_bytes {
        let what = format!("it ends at {} bytes, and has to have {}", geometry.capacity_bytes, layout.medium_bytes());
        return Err(damaged(&what));
    }
    if let Some(asked) = options.create.filter(|&asked| asked != 0) {
        let wanted = Layout::new(asked, layout.id).map(|wanted| wanted.capacity_bytes);
        if wanted != Ok(layout.capacity_bytes) {
            let actual_bytes = layout.capacity_bytes;
            return Err(OpenError::SizeDiffers { device: name, actual_bytes, asked_bytes: asked });
        }
    }
    let mut headers: Vec<Header> = Vec::new();
    for which in 0..2 {
        let bytes = disk.read(layout.checkpoint(which), FRAME_BYTES).map_err(device)?;
        let header = Checkpoint::header(layout.id, bytes.as_slice());
        let room = layout.checkpoint_bytes() - FRAME_BYTES as u64;
        headers.extend(header.filter(|header| header.generation & 1 == which && header.body_bytes <= room));
    }
    headers.sort_by_key(|header| header.generation);
    let mut read = |header: &Header| -> Result<Option<Checkpoint>, OpenError> {
        let len = header.body_bytes.next_multiple_of(FRAME_BYTES as u64);
        let len = usize::try_from(len).map_err(|_| damaged("a checkpoint is longer than memory"))?;
        let body = disk.read(layout.checkpoint(header.generation) + FRAME_BYTES as u64, len).map_err(device)?;
        Ok(Checkpoint::decode(header, body.as_slice()))
    };
    // The newest one that is whole: a header is written behind its body, so normally that is the newest.
    let mut found = None;
    for header in headers.iter().rev() {
        if let Some(checkpoint) = read(header)? {
            found = Some((header.generation, checkpoint));
            break;
        }
    }
    let (generation, checkpoint) = found.ok_or_else(|| damaged("no checkpoint can be read"))?;
    let mut journal = Journal { layout, generation, next: 0 };
    let (records, changes) = replay(disk, &mut journal).map_err(device)?;
    Ok(Found { layout, journal, checkpoint, records, changes, created: false })
}

/// Reads the journal up to the first frame that is not the expected one.
fn replay(disk: &mut Disk, journal: &mut Journal) -> Result<(Vec<Record>, Vec<Vec<u8>>), DeviceError> {
    const AT_ONCE: u64 = 256;
    let (mut records, mut changes) = (Vec::new(), Vec::new());
    let mut partial: Vec<u8> = Vec::new();
    'journal: while journal.next < FRAMES {
        let count = AT_ONCE.min(FRAMES - journal.next);
        let at = journal.layout.journal(journal.generation) + journal.next * FRAME_BYTES as u64;
        let len = usize::try_from(count).unwrap_or_default() * FRAME_BYTES;
        let bytes = disk.read(at, len)?;
        for frame in bytes.as_slice()[..len].chunks_exact(FRAME_BYTES) {
            let Some(pieces) = decode_frame(journal.series(), journal.next, frame) else { break 'journal };
            for piece in pieces {
                match piece {
                    Piece::Whole(record) => records.push(record),
                    Piece::Part { total, at, bytes } => {
                        // A change whose end was never written is not there.
                        if at == 0 {
                            partial.clear();
                        }
                        if partial.len() == at {
                            partial.extend(bytes);
                        }
                        if partial.len() == total {
                            changes.push(std::mem::take(&mut partial));
                        }
                    }
                }
            }
            journal.next += 1;
        }
    }
    Ok((records, changes))
}
