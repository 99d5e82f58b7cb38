//! Writes the journal and the checkpoints: what is appended where, what of it is durable, and what
//! other threads see of that. They are read again in `journal/recovery.rs`, and what is found there
//! is in `journal/found.rs`. What a checkpoint contains is decided in `store/order.rs`, and what a
//! record does when it is read again in `store/replay.rs`.

pub(crate) mod found;
pub(crate) mod recovery;
pub(crate) mod sync_policy;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ebof_backend::Error as DeviceError;
use ebof_drive::frame::{Checkpoint, FRAME_BYTES, Flushed, Record, Series, encode_frames};
use ebof_drive::layout::{JOURNAL_BYTES, Layout};
use ebof_drive::mark::Mark;

use crate::disk::Disk;
use crate::journal::sync_policy::{Sync, SyncPolicy};
use crate::{Error, Notice};

/// Frames of a journal.
pub(crate) const FRAMES: u64 = JOURNAL_BYTES / FRAME_BYTES as u64;

/// The journal of an open drive: where the next record goes, and which of the frames before it are
/// durable.
#[derive(Debug)]
pub(crate) struct Journal {
    layout: Layout,
    generation: u64,
    /// Number of the next frame.
    next: u64,
    /// Grows with every opening of the drive and with every failed write: frames that are left over
    /// behind the end of the journal are of an earlier incarnation than those before them.
    incarnation: u64,
    /// Whether a frame of this incarnation is on the medium.
    begun: bool,
    /// Where a header of a checkpoint may be on the medium although writing it failed.
    failed_header: Option<u64>,
    /// So many frames, from the first on, are durable.
    durable: u64,
    /// The data that belong to the tags in so many frames, from the first on, are durable.
    data_durable: u64,
    /// Frames of the journal of the generation before.
    previous: Option<u16>,
    /// The first frame with tags that may not be those of their blocks: a flush makes no data
    /// durable that belong to this frame or later ones.
    unresolved: Option<u64>,
    /// The first frame of the last group.
    last_group: u64,
    /// The mark that was written last.
    last_mark: Option<Mark>,
    /// How many marks were written: they go to two places in turn.
    marks_written: u64,
    /// The only whole checkpoint is where the one of the next generation would go: that generation
    /// is skipped.
    skips_generation: bool,
    sync_policy: SyncPolicy,
    /// The last write failed.
    failing: bool,
}

/// What other threads see of the journal.
pub(crate) struct View {
    /// The journal has records that are not durable: a power loss may undo mappings.
    unflushed: AtomicBool,
    /// A failed record that unmaps something may be on the medium all the same: no write to a
    /// mapped extent may complete before that is settled.
    suspect: AtomicBool,
    /// The end of the journal ([`Point::pack`]).
    position: AtomicU64,
    /// How much of it the last mark says is flushed.
    marked: AtomicU64,
}

impl Default for View {
    fn default() -> Self {
        // It is not known what was flushed before the drive was opened.
        let unflushed = AtomicBool::new(true);
        Self { unflushed, suspect: AtomicBool::new(false), position: AtomicU64::new(0), marked: AtomicU64::new(0) }
    }
}

impl View {
    /// Whether the journal has records that are not durable.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.unflushed.load(Ordering::Acquire)
    }

    /// Whether a failed record that unmaps something may be on the medium.
    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Acquire)
    }

    /// The end of the journal ([`Point::pack`]).
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// Whether the last mark says that everything up to `position` is flushed.
    pub(crate) fn is_marked(&self, position: u64) -> bool {
        position <= self.marked.load(Ordering::Acquire)
    }
}

/// A position in the journal: what a flush that begins now makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    generation: u64,
    frames: u64,
    /// Frames whose tags had their data written.
    data: u64,
}

impl Point {
    /// As one word, to be shared without a lock. Later points are larger.
    pub(crate) fn pack(self) -> u64 {
        self.generation << 32 | self.frames << 16 | self.data
    }

    pub(crate) fn unpack(word: u64) -> Self {
        Self { generation: word >> 32, frames: word >> 16 & 0xffff, data: word & 0xffff }
    }
}

const _: () = assert!(FRAMES < 0xffff);

impl Journal {
    pub(crate) fn new(layout: Layout, generation: u64, incarnation: u64) -> Self {
        Self {
            layout,
            generation,
            next: 0,
            incarnation,
            begun: false,
            failed_header: None,
            durable: 0,
            data_durable: 0,
            previous: None,
            unresolved: None,
            last_group: 0,
            last_mark: None,
            marks_written: 0,
            skips_generation: false,
            sync_policy: SyncPolicy::default(),
            failing: false,
        }
    }

    /// The journal that was found, with `next` frames, the last of which is of `incarnation`. With
    /// `skips_generation` the next checkpoint skips one, to spare the only whole checkpoint.
    pub(crate) fn found(
        layout: Layout,
        generation: u64,
        incarnation: u64,
        next: u64,
        flushed: Flushed,
        skips_generation: bool,
    ) -> Self {
        Self {
            next,
            durable: u64::from(flushed.frames).min(next),
            data_durable: u64::from(flushed.data).min(next),
            previous: flushed.previous,
            skips_generation,
            ..Self::new(layout, generation, incarnation + 1)
        }
    }

    /// Later frames are of another incarnation.
    pub(crate) fn end_incarnation(&mut self) {
        self.incarnation += 1;
        self.begun = false;
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// How many frames it has.
    pub(crate) fn frames(&self) -> u64 {
        self.next
    }

    /// Whether a checkpoint has to be written first, to replace a damaged one.
    pub(crate) fn needs_checkpoint(&self) -> bool {
        self.skips_generation
    }

    /// Whether the data that belong to the tags in a frame are durable.
    pub(crate) fn is_data_durable(&self, frame: u64) -> bool {
        frame < self.data_durable
    }

    /// The tags in this frame may not be those of their blocks.
    pub(crate) fn add_unresolved(&mut self, frame: u64) {
        self.unresolved = Some(self.unresolved.map_or(frame, |first| first.min(frame)));
    }

    /// The same for the tags that were appended last.
    pub(crate) fn add_unresolved_last(&mut self) {
        self.add_unresolved(self.last_group);
    }

    /// All tags in the journal are those of their blocks, or their pages say otherwise.
    pub(crate) fn clear_unresolved(&mut self) {
        self.unresolved = None;
    }

    /// Whether a flush leaves it open which tags in the journal are those of their blocks, from
    /// some frame on: of all blocks that have tags there, not only of those that are unresolved.
    pub(crate) fn has_unresolved(&self) -> bool {
        self.unresolved.is_some()
    }

    fn series(&self) -> Series {
        Series { id: self.layout.id, generation: self.generation }
    }

    /// What a flush that begins now makes durable.
    fn point(&self) -> Point {
        let data = self.unresolved.map_or(self.next, |first| first.min(self.next));
        Point { generation: self.generation & 0xffff_ffff, frames: self.next, data }
    }

    /// Makes everything that was written so far durable.
    pub(crate) fn flush(&mut self, disk: &mut Disk, view: &View) -> Result<(), DeviceError> {
        let point = self.point();
        disk.flush()?;
        self.raise(point);
        view.unflushed.store(false, Ordering::Release);
        Ok(())
    }

    /// Takes note of a flush on another thread that began at this point.
    pub(crate) fn flushed_to(&mut self, point: Point, view: &View) {
        self.raise(point);
        if self.durable == self.next {
            view.unflushed.store(false, Ordering::Release);
        }
    }

    /// Lets other threads see the end of the journal. Returns that position.
    pub(crate) fn publish(&self, view: &View) -> u64 {
        let position = self.point().pack();
        view.position.store(position, Ordering::Release);
        position
    }

    /// A flush that began at this point has succeeded.
    fn raise(&mut self, point: Point) {
        // A point in the journal of an earlier generation says nothing about this one.
        if point.generation == self.generation & 0xffff_ffff {
            self.durable = self.durable.max(point.frames);
            self.data_durable = self.data_durable.max(point.data);
        }
        assert!(
            self.durable <= self.next && self.data_durable <= self.next,
            "a point is never behind the end of the journal that it was taken of"
        );
    }

    /// What is known to be flushed.
    fn flushed(&self) -> Flushed {
        let count = |frames: u64| u16::try_from(frames).expect("a journal has at most `FRAMES`");
        Flushed { frames: count(self.durable), data: count(self.data_durable), previous: self.previous }
    }

    fn mark_now(&self) -> Mark {
        Mark { generation: self.generation, flushed: self.flushed() }
    }

    /// Whether the last mark says all that is flushed.
    pub(crate) fn is_marked(&self) -> bool {
        self.last_mark == Some(self.mark_now())
    }

    /// Writes a mark of what is flushed, if the last one says less. For the last frames of a
    /// journal nothing else says it; recovery needs it to tell damage from a write that was never
    /// finished.
    pub(crate) fn mark(&mut self, disk: &mut Disk, view: &View) {
        if self.is_marked() {
            return;
        }
        match self.write_mark(disk) {
            Ok(point) => view.marked.store(point.pack(), Ordering::Release),
            // Later frames say it as well, and it is tried again.
            Err(error) => tracing::debug!("what is flushed cannot be marked: {error}"),
        }
    }

    fn write_mark(&mut self, disk: &mut Disk) -> Result<Point, DeviceError> {
        let mark = self.mark_now();
        // Two places in turn: a power loss tears at most one of them.
        disk.write(self.layout.mark(self.marks_written), &mark.encode(self.layout.id))?;
        self.last_mark = Some(mark);
        self.marks_written += 1;
        Ok(Point { generation: self.generation & 0xffff_ffff, frames: self.durable, data: self.data_durable })
    }

    /// Whether `bytes` of frames fit without a checkpoint.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.next + u64::from(!self.begun) + (bytes / FRAME_BYTES) as u64 <= FRAMES
    }

    /// The frames for these records.
    pub(crate) fn encode(&self, records: &[Record]) -> Vec<u8> {
        encode_frames(self.series(), self.incarnation, self.next, self.flushed(), records)
    }

    /// Whether the journal on the medium ends after frame `next`: nothing of a failed write can be
    /// taken for its continuation.
    pub(crate) fn is_settled(&self) -> bool {
        self.begun && self.failed_header.is_none()
    }

    /// Settles the journal with `marker`, a record that changes nothing: frames behind it that are
    /// left over of failed writes, or of an earlier incarnation, do not count from then on.
    pub(crate) fn begin(&mut self, disk: &mut Disk, view: &View, marker: &Record) -> Result<(), DeviceError> {
        self.erase_failed_header(disk)?;
        if !self.begun {
            let frames = self.encode(std::slice::from_ref(marker));
            self.append(disk, &frames, Sync::All)?;
            self.begun = true;
        }
        view.unflushed.store(false, Ordering::Release);
        Ok(())
    }

    /// The journal is settled: no failed record counts.
    pub(crate) fn clear_suspect(&self, view: &View) {
        view.suspect.store(false, Ordering::Release);
    }

    /// Writes records, and the frames that [`encode`](Self::encode) made of them. There must be
    /// room. With `durable` they are durable when it returns.
    pub(crate) fn write(
        &mut self,
        disk: &mut Disk,
        view: &View,
        (records, frames): (&[Record], &[u8]),
        durable: bool,
    ) -> Result<(), DeviceError> {
        // Tags and marks are durable before data are written. That takes only their own frames, if
        // all frames before them are durable: not a flush of all data each time.
        let is_tag = |record: &Record| {
            use Record::{Flux, OnlyTags, Settled, Tags};
            matches!(record, Tags { .. } | OnlyTags { .. } | Flux { .. } | Settled(_))
        };
        let is_tags = durable && records.iter().all(is_tag);
        let is_alone = is_tags && !view.has_unflushed();
        let sync = match durable {
            true if is_alone => self.sync_policy.choose(),
            true => Sync::All,
            false => Sync::Nothing,
        };
        assert!(
            self.is_settled(),
            "callers settle it first: else what is left of failed writes would count behind this"
        );
        let begin = disk.clock.now();
        self.append(disk, frames, sync)?;
        if is_alone {
            self.sync_policy.record(sync, disk.clock.now() - begin);
        }
        view.unflushed.store(!durable, Ordering::Release);
        Ok(())
    }

    /// Takes note of whether records, or a checkpoint, could be written. Returns a notice when that
    /// has changed.
    pub(crate) fn record_outcome(
        &mut self,
        view: &View,
        records: &[Record],
        outcome: &Result<(), Error>,
    ) -> Option<Notice> {
        let unmaps = |record: &Record| {
            matches!(record, Record::Remove(_) | Record::Clear(_) | Record::Unmap { .. } | Record::Bad { .. })
        };
        if outcome.is_err() && records.iter().any(unmaps) {
            view.suspect.store(true, Ordering::Release);
        }
        match outcome {
            Err(Error::Device(error)) if !self.failing => {
                tracing::error!("the journal of the drive cannot be written: {error}");
                self.failing = true;
                Some(Notice::JournalFailed(error.class()))
            }
            Ok(()) if std::mem::take(&mut self.failing) => Some(Notice::JournalRecovered),
            _ => None,
        }
    }

    /// Whether the last write failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing
    }

    /// Overwrites the header of a checkpoint whose write failed.
    fn erase_failed_header(&mut self, disk: &mut Disk) -> Result<(), DeviceError> {
        if let Some(at) = self.failed_header {
            disk.write(at, &[0; FRAME_BYTES])?;
            disk.flush()?;
            self.failed_header = None;
        }
        Ok(())
    }

    /// Writes frames. After an error the journal ends where it did, and [`begin`](Journal::begin)
    /// has to be called.
    fn append(&mut self, disk: &mut Disk, frames: &[u8], sync: Sync) -> Result<(), DeviceError> {
        let count = (frames.len() / FRAME_BYTES) as u64;
        assert!(self.next + count <= FRAMES, "callers ask `has_room` first: what is behind the journal is not its own");
        let before = self.point();
        let at = self.layout.journal(self.generation) + self.next * FRAME_BYTES as u64;
        let written = disk.write_with(at, frames, sync == Sync::Frames);
        let written = written.and_then(|()| if sync == Sync::All { disk.flush() } else { Ok(()) });
        match written {
            Ok(()) => {
                self.last_group = self.next;
                self.next += count;
                match sync {
                    // The data that belong to their tags are not written yet.
                    Sync::All => self.raise(Point { frames: self.next, ..before }),
                    Sync::Frames if self.durable == before.frames => self.durable = self.next,
                    Sync::Frames | Sync::Nothing => {}
                }
            }
            Err(_) => self.end_incarnation(),
        }
        written
    }

    /// Writes a checkpoint, and starts the journal of the next generation. The old ones count until
    /// the checkpoint is complete.
    pub(crate) fn checkpoint(&mut self, disk: &mut Disk, checkpoint: &Checkpoint) -> Result<(), Error> {
        let generation = self.generation + 1 + u64::from(self.skips_generation);
        let previous = u16::try_from(self.next).ok().filter(|_| !self.skips_generation);
        let (header, body) = checkpoint.encode(Series { generation, ..self.series() }, self.incarnation, previous);
        let bytes_max = usize::try_from(self.layout.checkpoint_bytes()).unwrap_or(usize::MAX) - FRAME_BYTES;
        if body.len() > bytes_max {
            return Err(Error::NoRoom { bytes: body.len(), bytes_max });
        }
        // Before the body is overwritten: a header without its body would be taken for damage.
        self.erase_failed_header(disk)?;
        let at = self.layout.checkpoint(generation);
        disk.write(at + FRAME_BYTES as u64, &body)?;
        disk.flush()?;
        // From here on recovery may find the new checkpoint: nothing is appended to the old journal
        // before it is known which one counts.
        self.failed_header = Some(at);
        disk.write(at, &header)?;
        disk.flush()?;
        *self = Self {
            begun: true,
            previous,
            last_mark: self.last_mark,
            marks_written: self.marks_written,
            sync_policy: std::mem::take(&mut self.sync_policy),
            failing: self.failing,
            ..Self::new(self.layout, generation, self.incarnation)
        };
        Ok(())
    }

    /// The bytes of journals and checkpoints that count: two ranges of the medium, in order.
    pub(crate) fn live_ranges(&self, disk: &mut Disk) -> Result<[Range<u64>; 2], DeviceError> {
        let layout = self.layout;
        let generation = self.generation;
        let journal = layout.journal(generation);
        let slot = layout.checkpoint(generation);
        let header = disk.read(slot, FRAME_BYTES)?;
        let header = Checkpoint::header(layout.id, header.as_slice()).filter(|header| header.generation == generation);
        // If the header cannot be read, all of it counts.
        let bytes = header.map_or(layout.checkpoint_bytes(), |header| {
            FRAME_BYTES as u64 + header.body_bytes.next_multiple_of(FRAME_BYTES as u64)
        });
        let frames = (self.next * FRAME_BYTES as u64).min(JOURNAL_BYTES);
        Ok([journal..journal + frames, slot..slot + bytes.min(layout.checkpoint_bytes())])
    }
}
