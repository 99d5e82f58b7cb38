//! The order in which the parts of a [`Store`] do things: what is in the journal before what, when
//! a checkpoint has to be written, and what is flushed first. The parts do not know each other,
//! save what they are given here.

use std::ops::Range;
use std::sync::Arc;

use ebof_backend::Error as DeviceError;
use ebof_drive::frame::{Checkpoint, FRAME_BYTES, Record};
use ebof_drive::layout::JOURNAL_BYTES;

use crate::journal::Point;
use crate::retry::RetryFaults;
use crate::zeroing::ZeroRequest;
use crate::{Error, Notice, Store, Thin};

/// Bytes that are written to see whether writing works.
const TRY_BYTES: u64 = 1 << 20;

impl Store {
    /// Puts records into the journal, all of them or none; durably if asked for. After an error
    /// nothing of it has happened.
    pub(crate) fn append(&mut self, records: &[Record], durable: bool) -> Result<(), Error> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let outcome = self.try_append(records, durable);
        self.note(records, &outcome);
        outcome
    }

    fn try_append(&mut self, records: &[Record], durable: bool) -> Result<(), Error> {
        self.tags.release(&mut self.journal);
        let mut frames = self.journal.encode(records);
        if !self.is_sure() || !self.journal.has_room(frames.len()) {
            self.try_make_sure(frames.len())?;
            frames = self.journal.encode(records);
        }
        if !self.journal.has_room(frames.len()) {
            let bytes_max = usize::try_from(JOURNAL_BYTES).unwrap_or(usize::MAX);
            return Err(Error::TooLarge { bytes: frames.len(), bytes_max });
        }
        self.journal.write(&mut self.disk, &self.shared.journal, (records, &frames), durable)?;
        let tags = records.iter().map(|record| if let Record::Tags { tags, .. } = record { tags.len() } else { 0 });
        let tags: usize = tags.sum();
        self.tags.are_journaled(tags);
        if tags == 0 {
            // Nothing else belongs to these records: what tags are about is still to be written.
            self.publish(std::iter::empty());
            if durable && records.iter().any(is_management) {
                self.mark();
            }
        }
        Ok(())
    }

    /// Whether the end of the journal on the medium is where it is believed to be.
    pub(crate) fn is_sure(&self) -> bool {
        self.journal.is_sure()
    }

    /// Sees to it that it is.
    pub(crate) fn make_sure(&mut self) -> Result<(), Error> {
        let outcome = self.try_make_sure(0);
        self.note(&[], &outcome);
        outcome
    }

    /// The same, with room for so many tags in so many records behind it.
    pub(crate) fn make_sure_of_room(&mut self, tags: usize, records: usize) -> Result<(), Error> {
        let outcome = if self.tags.may_journal(tags) { Ok(()) } else { self.checkpoint(false) };
        // Records are not cut: of two frames, one is half full at least.
        let frames = (tags * 16 + (records + tags / 250) * 24) / (FRAME_BYTES / 2 - 64) + 2;
        let outcome = outcome.and_then(|()| self.try_make_sure(frames * FRAME_BYTES));
        self.note(&[], &outcome);
        outcome
    }

    /// The same, with room for `bytes` of frames behind it.
    fn try_make_sure(&mut self, bytes: usize) -> Result<(), Error> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        if !self.journal.has_room(bytes) {
            self.checkpoint(false)?;
        }
        if !self.is_sure() {
            let marker = Record::HighWater(self.extents.high_water());
            self.journal.begin(&mut self.disk, &self.shared.journal, &marker)?;
        }
        self.journal.clear_suspect(&self.shared.journal);
        Ok(())
    }

    /// Tells whether the journal can be written, when that has changed.
    fn note(&mut self, records: &[Record], outcome: &Result<(), Error>) {
        if let Some(notice) = self.journal.note(&self.shared.journal, records, outcome) {
            self.shared.notify(notice);
        }
    }

    /// Looks at what the backing device has failed at since the last time.
    pub(crate) fn look(&mut self) {
        let elsewhere = std::mem::take(&mut *self.shared.failures());
        let was_troubled = self.disk.faults.is_any();
        for fault in self.disk.faults.look(elsewhere, self.shared.clock.now()) {
            self.shared.notify(Notice::Fails(fault));
        }
        if !was_troubled && self.disk.faults.is_any() {
            self.start(Box::new(RetryFaults));
        }
    }

    /// Whether the backing device fails, as far as it is known: then it has been told.
    pub(crate) fn has_faults(&self) -> bool {
        self.disk.faults.is_any() || self.journal.is_failing()
    }

    /// Writes to an extent that nobody has, and gives its storage back; `None` if there is none
    /// that may be used.
    pub(crate) fn write_somewhere(&mut self) -> Option<bool> {
        let clean = self.extents.take();
        let extent = clean.or_else(|| self.extents.any_dirty())?;
        let layout = self.shared.layout;
        let (at, len) = (layout.extent(extent), layout.extent_bytes.min(TRY_BYTES));
        let zeros = vec![0; usize::try_from(len).unwrap_or_default()];
        let written = self.disk.write(at, &zeros).and_then(|()| self.flush());
        // Nothing but zeros was written, whatever became of it; and it is free all the time for
        // those on this thread.
        if clean.is_some() {
            self.extents.put_back(extent, true);
        }
        // A hole again, so that the next try tells as much as this one.
        let emptied = self.disk.zero(std::iter::once((at, len)), true);
        Some(written.is_ok() && emptied.is_ok())
    }

    /// The same as [`checkpoint`](Self::checkpoint), and told if it fails.
    pub(crate) fn checkpoint_now(&mut self) -> Result<(), Error> {
        let outcome = self.checkpoint(false);
        self.note(&[], &outcome);
        outcome
    }

    /// Writes everything down at once, and begins a new journal.
    pub(crate) fn checkpoint(&mut self, clean: bool) -> Result<(), Error> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        // What a page of tags says is believed from here on: it is on the medium before the
        // checkpoint is.
        let tags = self.tags.bring(&mut self.disk, &mut self.journal)?;
        let mut records = vec![Record::HighWater(self.extents.high_water())];
        for thin in self.shared.thins() {
            let (volume, quota, block_format) = (thin.volume, thin.quota, thin.block_format);
            records.push(Record::Create { volume, blocks: thin.blocks_of_it(), quota, block_format });
            records.extend(thin.map.runs().map(|(first, extents)| Record::Map { volume, first, extents }));
            let bad = |range: Range<u64>| Record::Bad {
                volume,
                start: range.start,
                blocks: range.end - range.start,
                bad: true,
            };
            records.extend(thin.bad_blocks().iter().map(bad));
        }
        let carried = tags.iter().map(|record| match record {
            Record::Tags { tags, .. } | Record::OnlyTags { tags, .. } => tags.len(),
            _ => 0,
        });
        let carried = carried.sum();
        records.extend(tags);
        let (state, changes) = self.owner.now();
        records.extend(changes);
        self.journal.checkpoint(&mut self.disk, &Checkpoint { state, records, clean })?;
        self.tags.are_in_checkpoint(carried);
        self.publish(std::iter::empty());
        Ok(())
    }

    /// Sees to it that `count` extents can be taken that read as zeros: as many as there are. If
    /// whoever needs them `may_wait`, what has to be zeroed first is so in the background, and is
    /// there later.
    pub(crate) fn prepare(&mut self, count: u32, may_wait: bool) -> Result<(), Error> {
        while !self.extents.are_ready(count) {
            if let Some(high_water) = self.extents.next_high_water(count) {
                self.append(&[Record::HighWater(high_water)], true)?;
                self.extents.raise(high_water);
            } else if may_wait && self.start_zeroing()? || !self.zero_some()? {
                // What was just given back may still be read or written by requests that began
                // before: nobody waits for that here.
                break;
            }
        }
        Ok(())
    }

    /// Whether there is something to do when there is nothing else, see
    /// [`maintain`](Self::maintain).
    pub(crate) fn needs_maintenance(&self) -> bool {
        let untidy = self.extents.wants_zeroing() || !self.is_sure() || self.tags.has_unrecovered() || self.owes_keys();
        (untidy || self.tags.has_reverted()) && !self.is_read_only()
    }

    /// Does a part of what can be done when there is nothing else.
    pub(crate) fn maintain(&mut self) -> Result<(), Error> {
        self.make_sure()?;
        if self.owes_keys() {
            self.forget_keys()?;
        }
        self.tags.recover_some(&mut self.disk, &mut self.journal);
        self.journal_reverted()?;
        if self.extents.is_held() { Ok(()) } else { self.start_zeroing().map(|_some| ()) }
    }

    /// Has the journal say which tags blocks have that do not have the newest in it.
    fn journal_reverted(&mut self) -> Result<(), Error> {
        while self.tags.has_reverted() {
            let (blocks, _) = self.tags.reverted();
            // A checkpoint says it, too.
            self.make_sure_of_room(blocks.len(), blocks.len())?;
            if !self.tags.has_reverted() {
                break;
            }
            let (blocks, records) = self.tags.reverted();
            self.append(&records, false)?;
            self.tags.journaled_reverted(blocks);
        }
        Ok(())
    }

    /// Has some of the free extents that may hold old bytes zeroed in the background; `false` if
    /// there are none, and none are being zeroed.
    pub(crate) fn start_zeroing(&mut self) -> Result<bool, Error> {
        if self.extents.check_zeroing()? {
            return Ok(true);
        }
        if !self.extents.has_zeroing_thread() {
            return self.zero_some();
        }
        let Some(zero_request) = self.extents.dirty() else { return Ok(false) };
        // A record that failed may be in the journal all the same, and give one of them to
        // somebody.
        if !self.is_sure() {
            self.make_sure()?;
        }
        self.extents.start_zeroing(zero_request);
        Ok(true)
    }

    /// Zeroes some of the free extents that may hold old bytes; `false` if there are none.
    fn zero_some(&mut self) -> Result<bool, Error> {
        let Some(ZeroRequest { extents, ranges }) = self.extents.dirty() else { return Ok(false) };
        // A record that failed may be in the journal all the same, and give one of them to
        // somebody.
        if !self.is_sure() {
            self.make_sure()?;
        }
        self.disk.zero(ranges.into_iter(), true)?;
        // Before one of them can be in the journal, it must not come back with its old bytes after
        // a power loss; and that it was taken from where it was must not be forgotten.
        self.flush()?;
        self.extents.cleaned(extents);
        Ok(true)
    }

    /// Takes extents from a namespace; they are free when nobody can reach them any more.
    pub(crate) fn release(&mut self, thin: &Thin, range: Range<u32>) {
        let taken = self.extents.release(thin, range);
        if thin.is_tagged {
            self.tags.forget(thin, &taken);
        }
    }

    /// Brings everything to the medium.
    pub(crate) fn flush(&mut self) -> Result<(), DeviceError> {
        self.tags.release(&mut self.journal);
        self.journal.flush(&mut self.disk, &self.shared.journal)
    }

    /// A flush that began at this point is over.
    pub(crate) fn flushed(&mut self, point: Point) {
        self.journal.flushed_to(point, &self.shared.journal);
        self.mark();
    }

    /// Lets others see where the journal is now that it has said something of these namespaces,
    /// perhaps.
    pub(crate) fn publish<'a>(&mut self, thins: impl Iterator<Item = &'a Arc<Thin>>) {
        self.tags.release(&mut self.journal);
        let position = self.journal.publish(&self.shared.journal);
        thins.for_each(|thin| thin.touch(position));
    }

    /// Whether more is flushed than the medium says.
    pub(crate) fn is_unmarked(&self) -> bool {
        !self.is_read_only() && !self.journal.is_marked()
    }

    /// Has the medium say what is flushed, where nothing else will.
    pub(crate) fn mark(&mut self) {
        if !self.is_read_only() {
            self.journal.mark(&mut self.disk, &self.shared.journal);
        }
    }
}

/// Whether a record is of what somebody was told to be done, once and for all: the medium says at
/// once that it was flushed.
fn is_management(record: &Record) -> bool {
    match record {
        Record::Create { .. } | Record::Remove(_) | Record::Clear(_) | Record::Bad { .. } | Record::Change(_) => true,
        Record::Map { .. } | Record::Unmap { .. } | Record::Tags { .. } | Record::OnlyTags { .. } => false,
        Record::HighWater(_) => false,
    }
}
