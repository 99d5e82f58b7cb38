//! The journal and the checkpoints on the medium: what is appended where, and how a drive is made. How one is found again is in
//! `recovery.rs`.

use std::time::Duration;

use ebof_backend::Error as DeviceError;
use ebof_drive::frame::{Checkpoint, FRAME_BYTES, Record, Series, encode_frames};
use ebof_drive::layout::{JOURNAL_BYTES, Layout, SUPERBLOCK_BYTES, Superblock};
use ebof_drive::mark::{Flushed, Mark};

use crate::damage::Damage;
use crate::disk::Disk;
use crate::recovery::existing;
use crate::{Error, OpenError, Options, blank, purge};

/// Frames of a journal.
pub(crate) const FRAMES: u64 = JOURNAL_BYTES / FRAME_BYTES as u64;

/// Where the next record goes.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) layout: Layout,
    pub(crate) generation: u64,
    /// Number of the next frame, and its place.
    pub(crate) next: u64,
    /// Grows with every opening of the drive and with every failed write: frames that were left over behind the end of the
    /// journal are of an earlier life than those before them.
    pub(crate) life: u64,
    /// Whether the medium knows of this life.
    pub(crate) begun: bool,
    /// Where the header of a checkpoint may be on the medium that does not count.
    doubt: Option<u64>,
    /// Frames that are on the medium for good, and frames whose tags' data are, both from the first on.
    pub(crate) durable: u64,
    pub(crate) settled: u64,
    /// Frames of the journal of the generation before.
    pub(crate) previous: Option<u16>,
    /// The first frame with tags of which it is not known whether they are those of their blocks: what is flushed from there on
    /// proves nothing about data.
    pub(crate) hold: Option<u64>,
    /// Where the last group of frames begins.
    pub(crate) group: u64,
    /// The mark that was written last, and how many were.
    marked: (Option<Mark>, u64),
    /// The place of the next checkpoint has the only one that is whole: a generation is left out.
    pub(crate) skips: bool,
}

/// How far a journal had come at some moment, with all that belongs to its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    generation: u64,
    frames: u64,
    /// Frames of whose tags the data were written.
    data: u64,
}

impl Point {
    /// In one word, so that it can be shared without a lock; a later point is larger.
    pub(crate) fn pack(self) -> u64 {
        self.generation << 32 | self.frames << 16 | self.data
    }

    pub(crate) fn unpack(word: u64) -> Self {
        Self { generation: word >> 32, frames: word >> 16 & 0xffff, data: word & 0xffff }
    }
}

const _: () = assert!(FRAMES < 0xffff);

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
    /// Records that lead from an empty medium to what it holds, without changes, and in which frame they are; the checkpoint's are
    /// in none.
    pub(crate) records: Vec<(Option<u64>, Record)>,
    /// Changes that the state does not contain.
    pub(crate) changes: Vec<Vec<u8>>,
    pub(crate) was_clean: bool,
    pub(crate) created: bool,
    /// What is damaged and could be made good: a new checkpoint is needed.
    pub(crate) mended: Option<Damage>,
    /// What is damaged and lost. Nothing is written then.
    pub(crate) lost: Option<Lost>,
}

/// What is left of a journal with a hole in it.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) damage: Damage,
    /// Records behind the damage, whatever they come to without those that are lost.
    pub(crate) later: Vec<Record>,
    /// More than one group of records may be lost: an extent may have been taken from a namespace and given to another one.
    pub(crate) several: bool,
}

impl Journal {
    pub(crate) fn new(layout: Layout, generation: u64, life: u64) -> Self {
        Self {
            layout,
            generation,
            next: 0,
            life,
            begun: false,
            doubt: None,
            durable: 0,
            settled: 0,
            previous: None,
            hold: None,
            group: 0,
            marked: (None, 0),
            skips: false,
        }
    }

    pub(crate) fn series(&self) -> Series {
        Series { id: self.layout.id, generation: self.generation }
    }

    /// Everything so far, if what belongs to it was written: what a flush that begins now makes durable.
    pub(crate) fn point(&self) -> Point {
        let data = self.hold.map_or(self.next, |hold| hold.min(self.next));
        Point { generation: self.generation & 0xffff_ffff, frames: self.next, data }
    }

    /// A flush that began at this point has succeeded.
    pub(crate) fn raise(&mut self, point: Point) {
        // A checkpoint has made a point of the journal before it worthless.
        if point.generation == self.generation & 0xffff_ffff {
            self.durable = self.durable.max(point.frames);
            self.settled = self.settled.max(point.data);
        }
    }

    /// What is known to be flushed.
    pub(crate) fn flushed(&self) -> Flushed {
        let count = |frames: u64| u16::try_from(frames).unwrap_or(u16::MAX);
        Flushed { frames: count(self.durable), data: count(self.settled), previous: self.previous }
    }

    fn mark_now(&self) -> Mark {
        Mark { generation: self.generation, flushed: self.flushed() }
    }

    /// Whether the medium has a mark that says what is flushed.
    pub(crate) fn is_marked(&self) -> bool {
        self.marked.0 == Some(self.mark_now())
    }

    /// Has the medium say what is flushed, as soon as that is flushed itself: of what comes last in a journal nothing else does.
    /// Gives what it says.
    pub(crate) fn mark(&mut self, disk: &mut Disk) -> Result<Point, DeviceError> {
        let mark = self.mark_now();
        if self.marked.0 != Some(mark) {
            // In turn: where the power goes in the middle of one, there is the other.
            disk.write(self.layout.mark(self.marked.1), &mark.encode(self.layout.id))?;
            self.marked = (Some(mark), self.marked.1 + 1);
        }
        Ok(Point { generation: self.generation & 0xffff_ffff, frames: self.durable, data: self.settled })
    }

    /// Whether frames for so many bytes fit without a checkpoint.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.next + u64::from(!self.begun) + (bytes / FRAME_BYTES) as u64 <= FRAMES
    }

    /// What records become in the journal.
    pub(crate) fn encode(&self, records: &[Record]) -> Vec<u8> {
        encode_frames(self.series(), self.life, self.next, self.flushed(), records)
    }

    /// Whether the end of the journal on the medium is where it is believed to be.
    pub(crate) fn is_sure(&self) -> bool {
        self.begun && self.doubt.is_none()
    }

    /// Sees to it that the journal on the medium ends where it is believed to end, with a record that changes nothing: what
    /// may be there of writes that failed, or of a life before a power loss, does not count from then on.
    pub(crate) fn begin(&mut self, disk: &mut Disk, marker: &Record) -> Result<(), DeviceError> {
        self.withdraw(disk)?;
        if !self.begun {
            let frames = self.encode(std::slice::from_ref(marker));
            self.append(disk, &frames, Sync::All)?;
            self.begun = true;
        }
        Ok(())
    }

    /// Takes back the header of a checkpoint that failed at its end.
    fn withdraw(&mut self, disk: &mut Disk) -> Result<(), DeviceError> {
        if let Some(at) = self.doubt {
            disk.write(at, &[0; FRAME_BYTES])?;
            disk.flush()?;
            self.doubt = None;
        }
        Ok(())
    }

    /// Writes frames. After an error the journal ends where it did, and has to [`begin`](Journal::begin) anew.
    pub(crate) fn append(&mut self, disk: &mut Disk, frames: &[u8], sync: Sync) -> Result<(), DeviceError> {
        let before = self.point();
        let at = self.layout.journal(self.generation) + self.next * FRAME_BYTES as u64;
        let written = disk.write_with(at, frames, sync == Sync::Frames);
        let written = written.and_then(|()| if sync == Sync::All { disk.flush() } else { Ok(()) });
        match written {
            Ok(()) => {
                self.group = self.next;
                self.next += (frames.len() / FRAME_BYTES) as u64;
                match sync {
                    // The data that belong to these frames are still to come.
                    Sync::All => self.raise(Point { frames: self.next, ..before }),
                    Sync::Frames if self.durable == before.frames => self.durable = self.next,
                    Sync::Frames | Sync::Nothing => {}
                }
            }
            Err(_) => (self.life, self.begun) = (self.life + 1, false),
        }
        written
    }

    /// Writes a checkpoint, and starts a new journal behind it. What was there before holds until that is complete.
    pub(crate) fn checkpoint(&mut self, disk: &mut Disk, checkpoint: &Checkpoint) -> Result<(), Error> {
        let generation = self.generation + 1 + u64::from(self.skips);
        let previous = u16::try_from(self.next).ok().filter(|_| !self.skips);
        let (header, body) = checkpoint.encode(Series { generation, ..self.series() }, self.life, previous);
        let bytes_max = usize::try_from(self.layout.checkpoint_bytes()).unwrap_or(usize::MAX) - FRAME_BYTES;
        if body.len() > bytes_max {
            return Err(Error::NoRoom { bytes: body.len(), bytes_max });
        }
        // A header that is there must be that of the body behind it: another one is damage.
        self.withdraw(disk)?;
        let at = self.layout.checkpoint(generation);
        disk.write(at + FRAME_BYTES as u64, &body)?;
        disk.flush()?;
        // From here on it may be what the next life finds: nothing is added to the old journal before that is settled.
        self.doubt = Some(at);
        disk.write(at, &header)?;
        disk.flush()?;
        let (layout, life, marked) = (self.layout, self.life, self.marked);
        *self = Self { begun: true, previous, marked, ..Self::new(layout, generation, life) };
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
        (Superblock::Drive(layout), Superblock::Drive(same)) if layout == same => existing(disk, layout, options),
        // One drive was being made over another one.
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

/// One of the two superblocks is damaged: it is written again, unless somebody may have put something else there.
fn mend_superblock(disk: &mut Disk, at: u64, what: &Superblock, found: &Found) {
    let device = disk.base().describe();
    let is_ours = !matches!(what, Superblock::Foreign) && found.lost.is_none();
    tracing::error!(device, at, ?what, rewritten = is_ours, "one of the two superblocks of the drive is damaged");
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
        let (capacity_bytes, needed_bytes) = (layout.capacity_bytes, layout.medium_bytes());
        let source = ebof_drive::layout::LayoutError::TooSmall { capacity_bytes, needed_bytes, medium_bytes };
        return Err(OpenError::Layout { device: name, source });
    }
    blank::check(disk, options)?;
    let made = make_with(disk, layout, options);
    if made.is_err() {
        // What made it fail is the message to give: neither half a drive nor its room is left, as far as that is possible.
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
        // Keys, journals and checkpoints of an earlier drive, which would be as good as before with its superblock.
        purge::overwrite(disk, 2 * SUPERBLOCK_BYTES as u64..layout.data()).map_err(device)?;
    }
    // Room for all that the drive has to remember is had at once, so that a full file system cannot take it away later.
    let begin = layout.keys(0);
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
    let records = records.into_iter().map(|record| (None, record)).collect();
    let (changes, mended, lost) = (Vec::new(), None, None);
    Ok(Found { layout, journal, state, records, changes, was_clean: true, created: true, mended, lost })
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
