//! The journal and the checkpoints on the medium: what is appended where, what of it is durable,
//! and what other threads see of that. How they are found again is in `recovery.rs`; what a
//! checkpoint has in it, in `store.rs`.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ebof_backend::Error as DeviceError;
use ebof_drive::frame::{Checkpoint, FRAME_BYTES, Record, Series, encode_frames};
use ebof_drive::layout::{JOURNAL_BYTES, Layout};
use ebof_drive::mark::{Flushed, Mark};

use crate::disk::Disk;
use crate::sync_policy::{Sync, SyncPolicy};
use crate::{Error, Notice};

/// Frames of a journal.
pub(crate) const FRAMES: u64 = JOURNAL_BYTES / FRAME_BYTES as u64;

/// The journal of a drive that is open: where the next record goes, and what of those before it is
/// durable.
#[derive(Debug)]
pub(crate) struct Journal {
    layout: Layout,
    generation: u64,
    /// Number of the next frame, and its place.
    next: u64,
    /// Grows with every opening of the drive and with every failed write: frames that were left
    /// over behind the end of the journal are of an earlier incarnation than those before them.
    incarnation: u64,
    /// Whether the medium knows of this incarnation.
    begun: bool,
    /// Where the header of a checkpoint may be on the medium that does not count.
    uncertain: Option<u64>,
    /// Frames that are on the medium for good, and frames whose tags' data are, both from the first
    /// on.
    durable: u64,
    data_durable: u64,
    /// Frames of the journal of the generation before.
    previous: Option<u16>,
    /// The first frame with tags of which it is not known whether they are those of their blocks:
    /// what is flushed from there on proves nothing about data.
    hold: Option<u64>,
    /// Where the last group of frames begins.
    group: u64,
    /// The mark that was written last, and how many were.
    marked: (Option<Mark>, u64),
    /// The place of the next checkpoint has the only one that is whole: a generation is left out.
    skips: bool,
    sync_policy: SyncPolicy,
    /// It cannot be written, as far as is known.
    failing: bool,
}

/// What other threads see of the journal.
pub(crate) struct View {
    /// The journal has records that are not flushed: what a namespace was given may be lost with
    /// the power.
    unflushed: AtomicBool,
    /// The medium may have a record in its journal that takes something from a namespace, and that
    /// has failed: what is written there must not be acknowledged before that is settled.
    suspect: AtomicBool,
    /// Where the journal is, with all that belongs to it ([`Point::pack`]), and how much of that
    /// the medium says is flushed.
    position: AtomicU64,
    marked: AtomicU64,
}

impl Default for View {
    fn default() -> Self {
        // Of what was there before nothing is known to be flushed.
        let unflushed = AtomicBool::new(true);
        Self { unflushed, suspect: AtomicBool::new(false), position: AtomicU64::new(0), marked: AtomicU64::new(0) }
    }
}

impl View {
    /// Whether the journal has records that are not flushed.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.unflushed.load(Ordering::Acquire)
    }

    /// Whether a record that failed may be on the medium all the same, and take something from a
    /// namespace.
    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Acquire)
    }

    /// Where the journal is.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// Whether the medium says that everything up to a position is flushed.
    pub(crate) fn is_marked(&self, position: u64) -> bool {
        position <= self.marked.load(Ordering::Acquire)
    }
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

impl Journal {
    pub(crate) fn new(layout: Layout, generation: u64, incarnation: u64) -> Self {
        Self {
            layout,
            generation,
            next: 0,
            incarnation,
            begun: false,
            uncertain: None,
            durable: 0,
            data_durable: 0,
            previous: None,
            hold: None,
            group: 0,
            marked: (None, 0),
            skips: false,
            sync_policy: SyncPolicy::default(),
            failing: false,
        }
    }

    /// The journal that was found with `next` frames, of which so much is flushed; `incarnation` is
    /// that of the last one. If `skips`, the next checkpoint leaves a generation out, because the
    /// only one that is whole is in its place.
    pub(crate) fn found(
        layout: Layout,
        generation: u64,
        incarnation: u64,
        next: u64,
        flushed: Flushed,
        skips: bool,
    ) -> Self {
        Self {
            next,
            durable: u64::from(flushed.frames).min(next),
            data_durable: u64::from(flushed.data).min(next),
            previous: flushed.previous,
            skips,
            ..Self::new(layout, generation, incarnation + 1)
        }
    }

    /// What is written from here on is of another incarnation.
    pub(crate) fn end_incarnation(&mut self) {
        (self.incarnation, self.begun) = (self.incarnation + 1, false);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Frames that it has.
    pub(crate) fn frames(&self) -> u64 {
        self.next
    }

    /// Whether a checkpoint is needed before anything else, in the place of one that is damaged.
    pub(crate) fn needs_checkpoint(&self) -> bool {
        self.skips
    }

    /// Whether the data that belong to the tags in a frame are known to be flushed.
    pub(crate) fn is_data_durable(&self, frame: u64) -> bool {
        frame < self.data_durable
    }

    /// It is not known of the tags in this frame whether they are those of their blocks.
    pub(crate) fn hold(&mut self, frame: u64) {
        self.hold = Some(self.hold.map_or(frame, |hold| hold.min(frame)));
    }

    /// The same for the tags that were written last.
    pub(crate) fn hold_last(&mut self) {
        self.hold(self.group);
    }

    /// Of all tags it is known.
    pub(crate) fn release(&mut self) {
        self.hold = None;
    }

    fn series(&self) -> Series {
        Series { id: self.layout.id, generation: self.generation }
    }

    /// Everything so far, if what belongs to it was written: what a flush that begins now makes
    /// durable.
    fn point(&self) -> Point {
        let data = self.hold.map_or(self.next, |hold| hold.min(self.next));
        Point { generation: self.generation & 0xffff_ffff, frames: self.next, data }
    }

    /// Brings everything to the medium.
    pub(crate) fn flush(&mut self, disk: &mut Disk, view: &View) -> Result<(), DeviceError> {
        let point = self.point();
        disk.flush()?;
        self.raise(point);
        view.unflushed.store(false, Ordering::Release);
        Ok(())
    }

    /// A flush on another thread, that began at this point, is over.
    pub(crate) fn flushed_to(&mut self, point: Point, view: &View) {
        self.raise(point);
        if self.durable == self.next {
            view.unflushed.store(false, Ordering::Release);
        }
    }

    /// Lets others see where the journal is now; gives that position, for those of whom it may have
    /// said something.
    pub(crate) fn publish(&self, view: &View) -> u64 {
        let position = self.point().pack();
        view.position.store(position, Ordering::Release);
        position
    }

    /// A flush that began at this point has succeeded.
    fn raise(&mut self, point: Point) {
        // A checkpoint has made a point of the journal before it worthless.
        if point.generation == self.generation & 0xffff_ffff {
            self.durable = self.durable.max(point.frames);
            self.data_durable = self.data_durable.max(point.data);
        }
    }

    /// What is known to be flushed.
    fn flushed(&self) -> Flushed {
        let count = |frames: u64| u16::try_from(frames).unwrap_or(u16::MAX);
        Flushed { frames: count(self.durable), data: count(self.data_durable), previous: self.previous }
    }

    fn mark_now(&self) -> Mark {
        Mark { generation: self.generation, flushed: self.flushed() }
    }

    /// Whether the medium has a mark that says what is flushed.
    pub(crate) fn is_marked(&self) -> bool {
        self.marked.0 == Some(self.mark_now())
    }

    /// Has the medium say what is flushed, as soon as that is flushed itself: of what comes last in
    /// a journal nothing else does. A later incarnation tells from it what is damaged from what was
    /// never finished.
    pub(crate) fn mark(&mut self, disk: &mut Disk, view: &View) {
        if self.is_marked() {
            return;
        }
        match self.write_mark(disk) {
            Ok(point) => view.marked.store(point.pack(), Ordering::Release),
            // Frames say it as well, and it is tried again.
            Err(error) => tracing::debug!("what is flushed cannot be marked: {error}"),
        }
    }

    fn write_mark(&mut self, disk: &mut Disk) -> Result<Point, DeviceError> {
        let mark = self.mark_now();
        // In turn: where the power goes in the middle of one, there is the other.
        disk.write(self.layout.mark(self.marked.1), &mark.encode(self.layout.id))?;
        self.marked = (Some(mark), self.marked.1 + 1);
        Ok(Point { generation: self.generation & 0xffff_ffff, frames: self.durable, data: self.data_durable })
    }

    /// Whether frames for so many bytes fit without a checkpoint.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.next + u64::from(!self.begun) + (bytes / FRAME_BYTES) as u64 <= FRAMES
    }

    /// What records become in the journal.
    pub(crate) fn encode(&self, records: &[Record]) -> Vec<u8> {
        encode_frames(self.series(), self.incarnation, self.next, self.flushed(), records)
    }

    /// Whether the end of the journal on the medium is where it is believed to be.
    pub(crate) fn is_sure(&self) -> bool {
        self.begun && self.uncertain.is_none()
    }

    /// Sees to it that the journal on the medium ends where it is believed to end, with a record
    /// that changes nothing: what may be there of writes that failed, or of an incarnation before a
    /// power loss, does not count from then on.
    pub(crate) fn begin(&mut self, disk: &mut Disk, view: &View, marker: &Record) -> Result<(), DeviceError> {
        self.withdraw(disk)?;
        if !self.begun {
            let frames = self.encode(std::slice::from_ref(marker));
            self.append(disk, &frames, Sync::All)?;
            self.begun = true;
        }
        view.unflushed.store(false, Ordering::Release);
        Ok(())
    }

    /// What failed is settled: the journal on the medium ends where it is believed to end.
    pub(crate) fn clear_suspect(&self, view: &View) {
        view.suspect.store(false, Ordering::Release);
    }

    /// Writes these records, for which there is room, as [`encode`](Self::encode) made them;
    /// durably if asked for.
    pub(crate) fn write(
        &mut self,
        disk: &mut Disk,
        view: &View,
        (records, frames): (&[Record], &[u8]),
        durable: bool,
    ) -> Result<(), DeviceError> {
        // Tags come before all data that are written: what these were before them need not be
        // brought to the medium each time.
        let is_tags = durable && records.iter().all(|record| matches!(record, Record::Tags { .. }));
        let is_alone = is_tags && !view.has_unflushed();
        let sync = match durable {
            true if is_alone => self.sync_policy.choose(),
            true => Sync::All,
            false => Sync::Nothing,
        };
        let begin = disk.clock.now();
        self.append(disk, frames, sync)?;
        if is_alone {
            self.sync_policy.took(sync, disk.clock.now() - begin);
        }
        view.unflushed.store(!durable, Ordering::Release);
        Ok(())
    }

    /// Takes note of what has become of records, or of an attempt to make room for some: gives what
    /// is to be told.
    pub(crate) fn note(&mut self, view: &View, records: &[Record], outcome: &Result<(), Error>) -> Option<Notice> {
        let takes = |record: &Record| {
            matches!(record, Record::Remove(_) | Record::Clear(_) | Record::Unmap { .. } | Record::Bad { .. })
        };
        if outcome.is_err() && records.iter().any(takes) {
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

    /// Whether it cannot be written, as far as is known.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing
    }

    /// Takes back the header of a checkpoint that failed at its end.
    fn withdraw(&mut self, disk: &mut Disk) -> Result<(), DeviceError> {
        if let Some(at) = self.uncertain {
            disk.write(at, &[0; FRAME_BYTES])?;
            disk.flush()?;
            self.uncertain = None;
        }
        Ok(())
    }

    /// Writes frames. After an error the journal ends where it did, and has to
    /// [`begin`](Journal::begin) anew.
    fn append(&mut self, disk: &mut Disk, frames: &[u8], sync: Sync) -> Result<(), DeviceError> {
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
            Err(_) => self.end_incarnation(),
        }
        written
    }

    /// Writes a checkpoint, and starts a new journal behind it. What was there before holds until
    /// that is complete.
    pub(crate) fn checkpoint(&mut self, disk: &mut Disk, checkpoint: &Checkpoint) -> Result<(), Error> {
        let generation = self.generation + 1 + u64::from(self.skips);
        let previous = u16::try_from(self.next).ok().filter(|_| !self.skips);
        let (header, body) = checkpoint.encode(Series { generation, ..self.series() }, self.incarnation, previous);
        let bytes_max = usize::try_from(self.layout.checkpoint_bytes()).unwrap_or(usize::MAX) - FRAME_BYTES;
        if body.len() > bytes_max {
            return Err(Error::NoRoom { bytes: body.len(), bytes_max });
        }
        // A header that is there must be that of the body behind it: another one is damage.
        self.withdraw(disk)?;
        let at = self.layout.checkpoint(generation);
        disk.write(at + FRAME_BYTES as u64, &body)?;
        disk.flush()?;
        // From here on it may be what the next incarnation finds: nothing is added to the old
        // journal before that is settled.
        self.uncertain = Some(at);
        disk.write(at, &header)?;
        disk.flush()?;
        let (layout, incarnation, marked) = (self.layout, self.incarnation, self.marked);
        let (sync_policy, failing) = (std::mem::take(&mut self.sync_policy), self.failing);
        *self =
            Self { begun: true, previous, marked, sync_policy, failing, ..Self::new(layout, generation, incarnation) };
        Ok(())
    }

    /// What the next incarnation needs of journals and checkpoints, as bytes of the medium: in
    /// order, and apart.
    pub(crate) fn needed(&self, disk: &mut Disk) -> Result<[Range<u64>; 2], DeviceError> {
        let (layout, generation) = (self.layout, self.generation);
        let journal = layout.journal(generation);
        let slot = layout.checkpoint(generation);
        let header = disk.read(slot, FRAME_BYTES)?;
        let header = Checkpoint::header(layout.id, header.as_slice()).filter(|header| header.generation == generation);
        // Without a header that can be read nothing of it is touched.
        let bytes = header.map_or(layout.checkpoint_bytes(), |header| {
            FRAME_BYTES as u64 + header.body_bytes.next_multiple_of(FRAME_BYTES as u64)
        });
        let frames = (self.next * FRAME_BYTES as u64).min(JOURNAL_BYTES);
        Ok([journal..journal + frames, slot..slot + bytes.min(layout.checkpoint_bytes())])
    }
}
