//! The journal and the checkpoints on the medium: what is appended where, and what is found there at the start.

use std::time::Duration;

use ebof_backend::Error as DeviceError;
use ebof_drive::frame::{Checkpoint, FRAME_BYTES, Header, Joiner, Record, Series, decode_frame, encode_frames};
use ebof_drive::layout::{JOURNAL_BYTES, Layout, SUPERBLOCK_BYTES, Superblock};

use crate::disk::Disk;
use crate::{Error, OpenError, Options};

/// Frames of a journal.
const FRAMES: u64 = JOURNAL_BYTES / FRAME_BYTES as u64;

/// Where the next record goes.
#[derive(Debug)]
pub(crate) struct Journal {
    layout: Layout,
    generation: u64,
    /// Number of the next frame, and its place.
    next: u64,
    /// Grows with every opening of the drive and with every failed write: frames that were left over behind the end of the
    /// journal are of an earlier life than those before them.
    life: u64,
    /// Whether the medium knows of this life.
    begun: bool,
    /// Where the header of a checkpoint may be on the medium that does not count.
    doubt: Option<u64>,
}

/// What is durable when frames were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Nothing.
    Nothing,
    /// These frames: enough where all before them are.
    Frames,
    /// Everything.
    All,
}

/// How long it takes, one way or the other, until frames are durable: devices differ widely, and so does what there is to be
/// flushed beside them.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Of frames alone, and of everything: averages.
    took: [Option<Duration>; 2],
    /// Turns before the slower way is tried again.
    patience: u32,
}

impl Pace {
    /// The quicker way; now and then the other one, the less often the slower it is.
    pub(crate) fn choose(&mut self) -> Sync {
        let [Some(frames), Some(all)] = self.took else {
            return if self.took[0].is_none() { Sync::Frames } else { Sync::All };
        };
        let (quicker, slower) = if frames <= all { (Sync::Frames, Sync::All) } else { (Sync::All, Sync::Frames) };
        if let Some(left) = self.patience.checked_sub(1) {
            self.patience = left;
            return quicker;
        }
        let ratio = frames.max(all).as_micros() / frames.min(all).as_micros().max(1);
        self.patience = u32::try_from(ratio).unwrap_or(u32::MAX).clamp(1, 1000) * 64;
        slower
    }

    pub(crate) fn took(&mut self, sync: Sync, time: Duration) {
        let which = match sync {
            Sync::Nothing => return,
            Sync::Frames => 0,
            Sync::All => 1,
        };
        let average = self.took[which].map_or(time, |average| (average * 7 + time) / 8);
        self.took[which] = Some(average);
        // The slower way was quick this time: that is looked into.
        if self.took[1 - which].is_some_and(|other| average > other && time < other) {
            self.patience = 0;
        }
    }
}

/// What was found on a medium.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) layout: Layout,
    pub(crate) journal: Journal,
    /// The owner's state at the last checkpoint.
    pub(crate) state: Vec<u8>,
    /// Records that lead from an empty medium to what it holds; without changes.
    pub(crate) records: Vec<Record>,
    /// Changes that the state does not contain.
    pub(crate) changes: Vec<Vec<u8>>,
    pub(crate) was_clean: bool,
    pub(crate) created: bool,
}

impl Journal {
    fn new(layout: Layout, generation: u64, life: u64) -> Self {
        Self { layout, generation, next: 0, life, begun: false, doubt: None }
    }

    fn series(&self) -> Series {
        Series { id: self.layout.id, generation: self.generation }
    }

    /// Its generation, and the number of the next frame.
    pub(crate) fn position(&self) -> (u64, u64) {
        (self.generation, self.next)
    }

    /// Whether frames for so many bytes fit without a checkpoint.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.next + u64::from(!self.begun) + (bytes / FRAME_BYTES) as u64 <= FRAMES
    }

    /// What records become in the journal.
    pub(crate) fn encode(&self, records: &[Record]) -> Vec<u8> {
        encode_frames(self.series(), self.life, self.next, records)
    }

    /// Whether the end of the journal on the medium is where it is believed to be.
    pub(crate) fn is_sure(&self) -> bool {
        self.begun && self.doubt.is_none()
    }

    /// Sees to it that the journal on the medium ends where it is believed to end, with a record that changes nothing: what
    /// may be there of writes that failed, or of a life before a power loss, does not count from then on.
    pub(crate) fn begin(&mut self, disk: &mut Disk, marker: &Record) -> Result<(), DeviceError> {
        if let Some(at) = self.doubt {
            disk.write(at, &[0; FRAME_BYTES])?;
            disk.flush()?;
            self.doubt = None;
        }
        if !self.begun {
            let frames = self.encode(std::slice::from_ref(marker));
            self.append(disk, &frames, Sync::All)?;
            self.begun = true;
        }
        Ok(())
    }

    /// Writes frames. After an error the journal ends where it did, and has to [`begin`](Journal::begin) anew.
    pub(crate) fn append(&mut self, disk: &mut Disk, frames: &[u8], sync: Sync) -> Result<(), DeviceError> {
        let at = self.layout.journal(self.generation) + self.next * FRAME_BYTES as u64;
        let written = disk.write_with(at, frames, sync == Sync::Frames);
        let written = written.and_then(|()| if sync == Sync::All { disk.flush() } else { Ok(()) });
        match written {
            Ok(()) => self.next += (frames.len() / FRAME_BYTES) as u64,
            Err(_) => (self.life, self.begun) = (self.life + 1, false),
        }
        written
    }

    /// Writes a checkpoint, and starts a new journal behind it. What was there before holds until that is complete.
    pub(crate) fn checkpoint(&mut self, disk: &mut Disk, checkpoint: &Checkpoint) -> Result<(), Error> {
        let generation = self.generation + 1;
        let (header, body) = checkpoint.encode(Series { generation, ..self.series() }, self.life);
        let bytes_max = usize::try_from(self.layout.checkpoint_bytes()).unwrap_or(usize::MAX) - FRAME_BYTES;
        if body.len() > bytes_max {
            return Err(Error::TooLarge { bytes: body.len(), bytes_max });
        }
        let at = self.layout.checkpoint(generation);
        disk.write(at + FRAME_BYTES as u64, &body)?;
        disk.flush()?;
        // From here on it may be what the next life finds: nothing is added to the old journal before that is settled.
        self.doubt = Some(at);
        disk.write(at, &header)?;
        disk.flush()?;
        (self.generation, self.next, self.begun, self.doubt) = (generation, 0, true, None);
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
    // Room for all that the drive has to remember is had at once, so that a full file system cannot take it away later; and
    // nothing is left there of an earlier drive.
    let begin = layout.journal(0);
    disk.zero(std::iter::once((begin, layout.data() - begin)), false).map_err(device)?;
    // A first checkpoint before the superblock: a drive that is found is a whole one.
    let mut journal = Journal::new(layout, 0, 0);
    let records = vec![Record::Water(if options.zeroed { 0 } else { layout.extents() })];
    let checkpoint = Checkpoint { state: Vec::new(), records, clean: true };
    journal.checkpoint(disk, &checkpoint).map_err(|error| match error {
        Error::Device(source) => device(source),
        other => OpenError::Damaged { device: name.clone(), what: other.to_string() },
    })?;
    (journal.life, journal.begun) = (1, false);
    let superblock = layout.encode();
    disk.write(0, &superblock).and_then(|()| disk.write(SUPERBLOCK_BYTES as u64, &superblock)).map_err(device)?;
    disk.flush().map_err(device)?;
    let Checkpoint { state, records, .. } = checkpoint;
    Ok(Found { layout, journal, state, records, changes: Vec::new(), was_clean: true, created: true })
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
            found = Some((*header, checkpoint));
            break;
        }
    }
    let (header, Checkpoint { state, records, clean }) = found.ok_or_else(|| damaged("no checkpoint can be read"))?;
    let mut journal = Journal::new(layout, header.generation, header.life);
    let found = replay(disk, &mut journal).map_err(device)?;
    let was_clean = clean && journal.next == 0;
    journal.life += 1;
    let (changes, records): (Vec<Record>, Vec<Record>) =
        records.into_iter().chain(found).partition(|record| matches!(record, Record::Change(_)));
    let bytes = |record| if let Record::Change(change) = record { Some(change) } else { None };
    let changes = changes.into_iter().filter_map(bytes).collect();
    Ok(Found { layout, journal, state, records, changes, was_clean, created: false })
}

/// Reads the journal up to the last group of frames that is whole.
fn replay(disk: &mut Disk, journal: &mut Journal) -> Result<Vec<Record>, DeviceError> {
    const AT_ONCE: u64 = 256;
    let (mut records, mut group, mut joiner) = (Vec::new(), Vec::new(), Joiner::default());
    // Frames of the group that are still to come, once it has begun.
    let mut left: Option<u32> = None;
    let mut at = 0;
    'journal: while at < FRAMES {
        let count = AT_ONCE.min(FRAMES - at);
        let len = usize::try_from(count).unwrap_or_default() * FRAME_BYTES;
        let bytes = disk.read(journal.layout.journal(journal.generation) + at * FRAME_BYTES as u64, len)?;
        for bytes in bytes.as_slice()[..len].chunks_exact(FRAME_BYTES) {
            let Some(frame) = decode_frame(journal.series(), at, bytes) else { break 'journal };
            let follows = left.is_none_or(|left| frame.left.checked_add(1) == Some(left) && frame.life == journal.life);
            if !follows || frame.life < journal.life {
                break 'journal;
            }
            at += 1;
            journal.life = frame.life;
            group.extend(frame.pieces);
            left = Some(frame.left).filter(|left| *left > 0);
            if left.is_none() {
                records.extend(group.drain(..).filter_map(|piece| joiner.push(piece)));
                journal.next = at;
            }
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quicker_way_is_taken_and_the_other_one_is_not_forgotten() {
        let mut pace = Pace::default();
        let mut turns = |frames: u64, all: u64| {
            let mut count = [0, 0];
            for _ in 0..1000 {
                let sync = pace.choose();
                count[usize::from(sync == Sync::All)] += 1;
                pace.took(sync, Duration::from_micros(if sync == Sync::All { all } else { frames }));
            }
            count
        };
        let [frames, all] = turns(100, 1000);
        assert!((1..20).contains(&all) && frames > 980, "{frames} {all}");
        // What was slow has become quick.
        turns(100, 10);
        let [frames, all] = turns(100, 10);
        assert!((1..20).contains(&frames) && all > 980, "{frames} {all}");
    }
}
