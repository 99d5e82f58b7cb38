//! Recovery of a drive: which checkpoint counts, how far the journal goes, and whether what is
//! missing was never finished or is damaged.
//!
//! After a power loss anything that was not flushed may be missing, even if later writes are there.
//! What was flushed must be there: each frame, each checkpoint header and the marks say how much
//! was flushed when they were written. A journal that ends before that is damaged, and so is a
//! checkpoint that cannot be read although frames were written after it. Nothing is written to a
//! damaged drive.

use ebof_backend::{Class, Error as DeviceError};
use ebof_drive::frame::{
    ChangeAssembler, Checkpoint, FRAME_BYTES, Flushed, FrameHeader, Header, Piece, Record, Series, decode_frame,
    frame_header,
};
use ebof_drive::layout::Layout;
use ebof_drive::mark::Mark;

use crate::disk::Disk;
use crate::error::damage::{Content, Damage, Part, Proof};
use crate::journal::found::{Found, Lost};
use crate::journal::{FRAMES, Journal};
use crate::{OpenError, Options};

/// No drive reaches higher generations and incarnations: they grow by 1 with each checkpoint,
/// opening or failed write.
const COUNT_MAX: u64 = 1 << 62;
/// Frames that are read at a time.
const AT_ONCE: u64 = 256;

/// What a scan of the journals, the headers of checkpoints and the marks has found.
struct Scan {
    layout: Layout,
    headers: [Option<Header>; 2],
    /// Headers of the frames that are where they belong, of any generation.
    frames: [Vec<Option<FrameHeader>>; 2],
    marks: Vec<Mark>,
}

/// The part of a journal that counts.
#[derive(Default)]
struct Replayed {
    /// With the frames that they are in.
    records: Vec<(u64, Record)>,
    /// How many frames are in whole groups.
    next: u64,
    /// The incarnation of the last of them.
    incarnation: u64,
    /// The first frame that does not continue the journal.
    end: u64,
    /// That frame is whole, but of a later version.
    unknown: bool,
}

/// Recovers the drive that the superblock says is there.
///
/// # Errors
/// It is damaged, or not what `options` ask for.
pub(crate) fn existing(disk: &mut Disk, layout: Layout, options: &Options) -> Result<Found, OpenError> {
    let name = disk.base().describe();
    let device = |source| OpenError::Device { device: name.clone(), source };
    let refused = |damage| OpenError::Lost { device: name.clone(), damage };
    check_size(disk, &layout, options)?;
    let scan = Scan::read(disk, layout, [FRAMES; 2]).map_err(device)?;
    let generation = scan.generation();
    let start = scan.checkpoint(disk, generation).map_err(device)?;
    let mut start = start.map(|(header, checkpoint)| (header.incarnation, checkpoint));
    let mut mended = None;
    let mut before = Replayed::default();
    let nothing = || OpenError::Damaged { device: name.clone(), what: "no checkpoint can be read".to_owned() };
    if start.is_none() {
        let damage = scan.damaged_checkpoint(generation).ok_or_else(nothing)?;
        let older = match generation.checked_sub(1) {
            Some(older) => scan.checkpoint(disk, older).map_err(device)?,
            None => None,
        };
        let Some((header, checkpoint)) = older else { return Err(refused(damage)) };
        before = scan.replay(disk, header.generation, header.incarnation).map_err(device)?;
        if !scan.leads_to(generation, &mut before) {
            return Err(refused(damage));
        }
        start = Some((before.incarnation, Checkpoint { clean: false, ..checkpoint }));
        mended = Some(damage);
    }
    let (incarnation, Checkpoint { state, records, clean }) = start.ok_or_else(nothing)?;
    let replayed = scan.replay(disk, generation, incarnation).map_err(device)?;
    if generation > COUNT_MAX || replayed.incarnation > COUNT_MAX {
        let what = format!("no drive has generation {generation} and incarnation {}", replayed.incarnation);
        return Err(OpenError::Damaged { device: name.clone(), what });
    }
    let lost = match scan.damage(disk, generation, &replayed).map_err(device)? {
        None => None,
        Some(damage @ Damage::Unknown { .. }) => return Err(refused(damage)),
        Some(damage) if !options.read_only_if_damaged => return Err(refused(damage)),
        Some(damage) => Some(scan.behind_damage(disk, generation, &replayed, damage).map_err(device)?),
    };
    let journal = scan.journal(generation, &replayed, mended.is_some());
    let was_clean = clean && journal.frames() == 0 && lost.is_none();
    let carried = records.into_iter().chain(before.records.into_iter().map(|(_, record)| record));
    let all = carried.map(|record| (None, record));
    let all = all.chain(replayed.records.into_iter().map(|(at, record)| (Some(at), record)));
    let mut changes = Vec::new();
    let mut records = Vec::new();
    for (at, record) in all {
        match record {
            Record::Change(change) => changes.push(change),
            record => records.push((at, record)),
        }
    }
    Ok(Found { layout, journal, state, records, changes, was_clean, created: false, mended, lost })
}

/// Checks that recovery would find the checkpoint and the journal of an open drive as they were
/// written.
///
/// # Errors
/// What is damaged.
pub(crate) fn check(disk: &mut Disk, layout: Layout, journal: &Journal) -> Result<(), OpenError> {
    let name = disk.base().describe();
    let device = |source| OpenError::Device { device: name.clone(), source };
    let refused = |damage| OpenError::Lost { device: name.clone(), damage };
    let generation = journal.generation();
    let mut frames = [0; 2];
    frames[usize::from(generation & 1 == 1)] = journal.frames();
    let scan = Scan::read(disk, layout, frames).map_err(device)?;
    let checkpoint = scan.checkpoint(disk, generation).map_err(device)?;
    let damage = scan.damaged_checkpoint(generation);
    let Some((header, _)) = checkpoint else { return damage.map_or(Ok(()), |damage| Err(refused(damage))) };
    let replayed = scan.replay(disk, generation, header.incarnation).map_err(device)?;
    if let Some(damage) = scan.damage(disk, generation, &replayed).map_err(device)? {
        return Err(refused(damage));
    }
    if replayed.next == journal.frames() {
        return Ok(());
    }
    Err(OpenError::Damaged { device: name, what: "its journal ends before it should".to_owned() })
}

fn check_size(disk: &Disk, layout: &Layout, options: &Options) -> Result<(), OpenError> {
    let device = disk.base().describe();
    let geometry = disk.base().geometry();
    if layout.medium_bytes() > geometry.capacity_bytes {
        let what = format!("it ends at {} bytes, and has to have {}", geometry.capacity_bytes, layout.medium_bytes());
        return Err(OpenError::Damaged { device, what });
    }
    if let Some(asked_bytes) = options.create.filter(|&asked| asked != 0) {
        let wanted = Layout::new(asked_bytes, layout.id).map(|wanted| wanted.capacity_bytes);
        if wanted != Ok(layout.capacity_bytes) {
            return Err(OpenError::SizeDiffers { device, actual_bytes: layout.capacity_bytes, asked_bytes });
        }
    }
    Ok(())
}

/// Reads `len` bytes; `None` if they cannot be read.
fn read(disk: &mut Disk, at: u64, len: usize) -> Result<Option<Vec<u8>>, DeviceError> {
    match disk.read(at, len) {
        Ok(bytes) => Ok(Some(bytes.as_slice()[..len].to_vec())),
        Err(error) if error.class() == Class::MediumRead => Ok(None),
        Err(error) => Err(error),
    }
}

/// Calls `take` with the number and bytes of each frame of a journal, until it returns `false`;
/// `None` for frames that cannot be read.
fn each_frame(
    disk: &mut Disk,
    begin: u64,
    range: std::ops::Range<u64>,
    mut take: impl FnMut(u64, Option<&[u8]>) -> bool,
) -> Result<(), DeviceError> {
    let mut at = range.start;
    while at < range.end {
        let count = AT_ONCE.min(range.end - at);
        let len = usize::try_from(count).expect("at most `AT_ONCE`") * FRAME_BYTES;
        let bytes = read(disk, begin + at * FRAME_BYTES as u64, len)?;
        for number in at..at + count {
            let from = usize::try_from(number - at).expect("below `AT_ONCE`") * FRAME_BYTES;
            let one;
            let frame = match &bytes {
                Some(bytes) => bytes.get(from..from + FRAME_BYTES),
                None => {
                    one = read(disk, begin + number * FRAME_BYTES as u64, FRAME_BYTES)?;
                    one.as_deref()
                }
            };
            if !take(number, frame) {
                return Ok(());
            }
        }
        at += count;
    }
    Ok(())
}

impl Scan {
    /// Reads the first `counts` frames of each journal.
    fn read(disk: &mut Disk, layout: Layout, counts: [u64; 2]) -> Result<Self, DeviceError> {
        let mut scan = Self { layout, headers: [None; 2], frames: [Vec::new(), Vec::new()], marks: Vec::new() };
        for (which, (header, frames)) in (0..).zip(scan.headers.iter_mut().zip(&mut scan.frames)) {
            let bytes = read(disk, layout.checkpoint(which), FRAME_BYTES)?.unwrap_or_default();
            let room = layout.checkpoint_bytes() - FRAME_BYTES as u64;
            let fits = |header: &Header| header.generation & 1 == which && header.body_bytes <= room;
            *header = Checkpoint::header(layout.id, &bytes).filter(fits);
            let count = counts[usize::from(which == 1)];
            each_frame(disk, layout.journal(which), 0..count, |number, frame| {
                let header = frame.and_then(|frame| frame_header(layout.id, frame));
                frames.push(header.filter(|header| header.sequence == number && header.generation & 1 == which));
                true
            })?;
            let mark = read(disk, layout.mark(which), FRAME_BYTES)?.unwrap_or_default();
            scan.marks.extend(Mark::decode(layout.id, &mark));
        }
        Ok(scan)
    }

    /// The generation of the last checkpoint that was completed: frames and marks of a generation
    /// are written only after that.
    fn generation(&self) -> u64 {
        let headers = self.headers.iter().flatten().map(|header| header.generation);
        let frames = self.frames.iter().flatten().flatten().map(|frame| frame.generation);
        headers.chain(frames).chain(self.marks.iter().map(|mark| mark.generation)).max().unwrap_or_default()
    }

    fn header(&self, generation: u64) -> Option<Header> {
        self.headers[usize::from(generation & 1 == 1)].filter(|header| header.generation == generation)
    }

    /// Headers of the frames where the journal of a generation is.
    fn frames(&self, generation: u64) -> &[Option<FrameHeader>] {
        &self.frames[usize::from(generation & 1 == 1)]
    }

    fn frame(&self, generation: u64, number: u64) -> Option<FrameHeader> {
        let header = usize::try_from(number).ok().and_then(|at| *self.frames(generation).get(at)?);
        header.filter(|header| header.generation == generation)
    }

    /// The checkpoint of a generation, if it is whole.
    fn checkpoint(&self, disk: &mut Disk, generation: u64) -> Result<Option<(Header, Checkpoint)>, DeviceError> {
        let Some(header) = self.header(generation) else { return Ok(None) };
        let Ok(len) = usize::try_from(header.body_bytes.next_multiple_of(FRAME_BYTES as u64)) else { return Ok(None) };
        let body = read(disk, self.layout.checkpoint(generation) + FRAME_BYTES as u64, len)?;
        Ok(body.and_then(|body| Some((header, Checkpoint::decode(&header, &body)?))))
    }

    /// The damage of the last checkpoint that was completed, if there was one.
    fn damaged_checkpoint(&self, generation: u64) -> Option<Damage> {
        let at = self.layout.checkpoint(generation);
        let part = if self.header(generation).is_some() { Part::Body } else { Part::Header };
        (generation > 0).then_some(Damage::Checkpoint { generation, at, part })
    }

    /// How much of a journal was flushed, by all that says so.
    fn flushed(&self, generation: u64) -> Flushed {
        let frames = self.frames(generation).iter().flatten().filter(|frame| frame.generation == generation);
        let marks = self.marks.iter().filter(|mark| mark.generation == generation).map(|mark| mark.flushed);
        let header = self.header(generation).map(|header| Flushed { previous: header.previous, ..Flushed::default() });
        frames.map(|frame| frame.flushed).chain(marks).chain(header).fold(Flushed::default(), Flushed::max)
    }

    /// Reads a journal up to its last whole group of frames. `incarnation` is that of the
    /// checkpoint before it.
    fn replay(&self, disk: &mut Disk, generation: u64, incarnation: u64) -> Result<Replayed, DeviceError> {
        let mut replayed = Replayed { incarnation, ..Replayed::default() };
        let mut last_incarnation = incarnation;
        let mut group: Vec<(u64, Piece)> = Vec::new();
        let mut assembler = ChangeAssembler::default();
        // Frames of the group that are still to come, once it has begun.
        let mut left: Option<u32> = None;
        let count = self.frames(generation).len() as u64;
        each_frame(disk, self.layout.journal(generation), 0..count, |at, bytes| {
            replayed.end = at;
            let Some(header) = self.frame(generation, at) else { return false };
            let follows = left
                .is_none_or(|left| header.left.checked_add(1) == Some(left) && header.incarnation == last_incarnation);
            if !follows || header.incarnation < last_incarnation {
                return false;
            }
            let series = Series { id: self.layout.id, generation };
            let Some(frame) = bytes.and_then(|bytes| decode_frame(series, at, bytes)) else {
                replayed.unknown = true;
                return false;
            };
            last_incarnation = header.incarnation;
            group.extend(frame.pieces.into_iter().map(|piece| (at, piece)));
            left = Some(frame.left).filter(|left| *left > 0);
            if left.is_none() {
                let records = group.drain(..).filter_map(|(at, piece)| Some((at, assembler.push(piece)?)));
                replayed.records.extend(records);
                replayed.next = at + 1;
                replayed.end = at + 1;
                replayed.incarnation = last_incarnation;
            }
            true
        })?;
        Ok(replayed)
    }

    /// Whether the checkpoint and the journal of the generation before come to the same as the
    /// checkpoint of `generation`. `before` is that journal, and is cut to the frames that count.
    fn leads_to(&self, generation: u64, before: &mut Replayed) -> bool {
        let flushed = self.flushed(generation);
        let Some(frames) = flushed.previous.map(u64::from) else {
            // Written by an earlier version: only if there is nothing of the new generation, its
            // checkpoint was not completed.
            let has_more = self.frames(generation).iter().flatten().any(|frame| frame.generation == generation);
            return !has_more && flushed == Flushed::default();
        };
        before.records.retain(|(at, _)| *at < frames);
        before.next >= frames
    }

    /// The damage of the journal, if it ends before what was flushed.
    fn damage(&self, disk: &mut Disk, generation: u64, replayed: &Replayed) -> Result<Option<Damage>, DeviceError> {
        let frame = replayed.end;
        let flushed = u64::from(self.flushed(generation).frames);
        let at = self.layout.journal(generation) + frame * FRAME_BYTES as u64;
        if replayed.unknown {
            return Ok(Some(Damage::Unknown { frame, at }));
        }
        if flushed <= replayed.next {
            return Ok(None);
        }
        let proves =
            |header: &FrameHeader| header.generation == generation && u64::from(header.flushed.frames) > replayed.next;
        let frames = self.frames(generation).iter().flatten();
        let proof = frames.copied().find(proves).map(|header| Proof::Frame(header.sequence));
        let proof = proof.unwrap_or(Proof::Mark(flushed));
        let content = match read(disk, at, FRAME_BYTES)? {
            None => Content::Unreadable,
            Some(bytes) if bytes.iter().all(|byte| *byte == 0) => Content::Zeros,
            Some(bytes) if frame_header(self.layout.id, &bytes).is_some() => Content::Stale,
            Some(bytes) if bytes.starts_with(b"EBOFJRN1") => Content::Checksum,
            Some(_) => Content::Foreign,
        };
        Ok(Some(Damage::Frame { frame, at, content, proof }))
    }

    /// What is left of the journal behind a damaged frame.
    fn behind_damage(
        &self,
        disk: &mut Disk,
        generation: u64,
        replayed: &Replayed,
        damage: Damage,
    ) -> Result<Lost, DeviceError> {
        let flushed = u64::from(self.flushed(generation).frames);
        let is_later =
            |at: u64| self.frame(generation, at).is_some_and(|frame| u64::from(frame.flushed.frames) > replayed.next);
        let next = (replayed.next..FRAMES).find(|&at| is_later(at)).unwrap_or(flushed);
        let last = (replayed.next..FRAMES).rfind(|&at| is_later(at)).map_or(flushed, |last| flushed.max(last + 1));
        // Only one group is lost if a single frame is missing, or as many as the first of them says
        // belong together, and none behind those.
        let missing = next - replayed.next;
        let is_group = self.frame(generation, replayed.next).is_some_and(|frame| u64::from(frame.left) + 1 == missing);
        let is_whole = (next..last).all(is_later);
        let mut later = Vec::new();
        let series = Series { id: self.layout.id, generation };
        each_frame(disk, self.layout.journal(generation), replayed.next..FRAMES, |at, bytes| {
            let frame = bytes.and_then(|bytes| decode_frame(series, at, bytes));
            let whole = |piece| if let Piece::Whole(record) = piece { Some(record) } else { None };
            later.extend(frame.into_iter().flat_map(|frame| frame.pieces).filter_map(whole));
            true
        })?;
        Ok(Lost { damage, later, several: !(missing == 1 || is_group) || !is_whole })
    }

    /// The journal, to be continued.
    fn journal(&self, generation: u64, replayed: &Replayed, skips_generation: bool) -> Journal {
        let flushed = self.flushed(generation);
        Journal::found(self.layout, generation, replayed.incarnation, replayed.next, flushed, skips_generation)
    }
}
