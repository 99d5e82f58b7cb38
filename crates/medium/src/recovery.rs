//! Finds a drive on a medium again, after an end that was in order or not: which checkpoint counts,
//! how far the journal goes, and whether what is missing was never finished or is damaged.
//!
//! Whatever was not flushed may be missing after a power loss, also with something behind it that
//! is there. What was flushed must be there: every frame, every checkpoint header and the marks say
//! how far that was when they were written. A journal that ends before that is damaged, and so is a
//! checkpoint with frames behind it that cannot be read. Of a damaged drive nothing is written.

use ebof_backend::{Class, Error as DeviceError};
use ebof_drive::frame::{
    Checkpoint, FRAME_BYTES, FrameHead, Header, Joiner, Piece, Record, Series, decode_frame, frame_head,
};
use ebof_drive::layout::Layout;
use ebof_drive::mark::{Flushed, Mark};

use crate::damage::{Content, Damage, Part, Proof};
use crate::disk::Disk;
use crate::found::{Found, Lost};
use crate::journal::{FRAMES, Journal};
use crate::{OpenError, Options};

/// Frames that are read together.
const AT_ONCE: u64 = 256;

/// What a medium says of itself, checkpoints' bodies aside.
struct Seen {
    layout: Layout,
    headers: [Option<Header>; 2],
    /// Frames that are where they say they belong, of whatever generation.
    heads: [Vec<Option<FrameHead>>; 2],
    marks: Vec<Mark>,
}

/// What was read of a journal.
#[derive(Default)]
struct Replayed {
    records: Vec<(u64, Record)>,
    /// Frames of groups that are whole, and the incarnation of the last one.
    next: u64,
    incarnation: u64,
    /// Where it goes no further.
    end: u64,
    /// That is a frame of a later version.
    unknown: bool,
}

pub(crate) fn existing(disk: &mut Disk, layout: Layout, options: &Options) -> Result<Found, OpenError> {
    let name = disk.base().describe();
    let device = |source| OpenError::Device { device: name.clone(), source };
    let refused = |damage| OpenError::Lost { device: name.clone(), damage };
    check_size(disk, &layout, options)?;
    let seen = Seen::read(disk, layout, [FRAMES; 2]).map_err(device)?;
    let generation = seen.generation();
    let start = seen.checkpoint(disk, generation).map_err(device)?;
    let (mut start, mut mended) = (start.map(|(header, checkpoint)| (header.incarnation, checkpoint)), None);
    let mut before = Replayed::default();
    let nothing = || OpenError::Damaged { device: name.clone(), what: "no checkpoint can be read".to_owned() };
    if start.is_none() {
        let damage = seen.damaged_checkpoint(generation).ok_or_else(nothing)?;
        let older = match generation.checked_sub(1) {
            Some(older) => seen.checkpoint(disk, older).map_err(device)?,
            None => None,
        };
        let Some((header, checkpoint)) = older else { return Err(refused(damage)) };
        before = seen.replay(disk, header.generation, header.incarnation).map_err(device)?;
        if !seen.bridges(generation, &mut before) {
            return Err(refused(damage));
        }
        start = Some((before.incarnation, Checkpoint { clean: false, ..checkpoint }));
        mended = Some(damage);
    }
    let (incarnation, Checkpoint { state, records, clean }) = start.ok_or_else(nothing)?;
    let replayed = seen.replay(disk, generation, incarnation).map_err(device)?;
    let lost = match seen.damage(disk, generation, &replayed).map_err(device)? {
        None => None,
        Some(damage @ Damage::Unknown { .. }) => return Err(refused(damage)),
        Some(damage) if !options.read_only_if_damaged => return Err(refused(damage)),
        Some(damage) => Some(seen.behind(disk, generation, &replayed, damage).map_err(device)?),
    };
    let journal = seen.journal(generation, &replayed, mended.is_some());
    let was_clean = clean && journal.frames() == 0 && lost.is_none();
    let carried = records.into_iter().chain(before.records.into_iter().map(|(_, record)| record));
    let all = carried.map(|record| (None, record));
    let all = all.chain(replayed.records.into_iter().map(|(at, record)| (Some(at), record)));
    let (mut changes, mut records) = (Vec::new(), Vec::new());
    for (at, record) in all {
        match record {
            Record::Change(change) => changes.push(change),
            record => records.push((at, record)),
        }
    }
    Ok(Found { layout, journal, state, records, changes, was_clean, created: false, mended, lost })
}

/// Whether checkpoint and journal of a drive that is open are on the medium as they were written,
/// as far as a later incarnation needs them.
pub(crate) fn check(disk: &mut Disk, layout: Layout, journal: &Journal) -> Result<(), OpenError> {
    let name = disk.base().describe();
    let device = |source| OpenError::Device { device: name.clone(), source };
    let refused = |damage| OpenError::Lost { device: name.clone(), damage };
    let (generation, mut frames) = (journal.generation(), [0; 2]);
    frames[usize::from(generation & 1 == 1)] = journal.frames();
    let seen = Seen::read(disk, layout, frames).map_err(device)?;
    let checkpoint = seen.checkpoint(disk, generation).map_err(device)?;
    let damage = seen.damaged_checkpoint(generation);
    let Some((header, _)) = checkpoint else { return damage.map_or(Ok(()), |damage| Err(refused(damage))) };
    let replayed = seen.replay(disk, generation, header.incarnation).map_err(device)?;
    if let Some(damage) = seen.damage(disk, generation, &replayed).map_err(device)? {
        return Err(refused(damage));
    }
    if replayed.next == journal.frames() {
        return Ok(());
    }
    Err(OpenError::Damaged { device: name, what: "its journal ends before it should".to_owned() })
}

fn check_size(disk: &Disk, layout: &Layout, options: &Options) -> Result<(), OpenError> {
    let (device, geometry) = (disk.base().describe(), disk.base().geometry());
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

/// What the medium gives of `len` bytes: `None` where it says that it cannot.
fn read(disk: &mut Disk, at: u64, len: usize) -> Result<Option<Vec<u8>>, DeviceError> {
    match disk.read(at, len) {
        Ok(bytes) => Ok(Some(bytes.as_slice()[..len].to_vec())),
        Err(error) if error.class() == Class::MediumRead => Ok(None),
        Err(error) => Err(error),
    }
}

/// Gives frames of a journal to `take`, with their numbers; `None` for those that cannot be read.
fn each_frame(
    disk: &mut Disk,
    begin: u64,
    range: std::ops::Range<u64>,
    mut take: impl FnMut(u64, Option<&[u8]>) -> bool,
) -> Result<(), DeviceError> {
    let mut at = range.start;
    while at < range.end {
        let count = AT_ONCE.min(range.end - at);
        let len = usize::try_from(count).unwrap_or_default() * FRAME_BYTES;
        let bytes = read(disk, begin + at * FRAME_BYTES as u64, len)?;
        for number in at..at + count {
            let from = usize::try_from(number - at).unwrap_or_default() * FRAME_BYTES;
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

impl Seen {
    /// Looks at so many frames of each journal.
    fn read(disk: &mut Disk, layout: Layout, frames: [u64; 2]) -> Result<Self, DeviceError> {
        let mut seen = Self { layout, headers: [None; 2], heads: [Vec::new(), Vec::new()], marks: Vec::new() };
        for (which, (header, heads)) in (0..).zip(seen.headers.iter_mut().zip(&mut seen.heads)) {
            let bytes = read(disk, layout.checkpoint(which), FRAME_BYTES)?.unwrap_or_default();
            let room = layout.checkpoint_bytes() - FRAME_BYTES as u64;
            let fits = |header: &Header| header.generation & 1 == which && header.body_bytes <= room;
            *header = Checkpoint::header(layout.id, &bytes).filter(fits);
            let count = frames[usize::from(which == 1)];
            each_frame(disk, layout.journal(which), 0..count, |number, frame| {
                let head = frame.and_then(|frame| frame_head(layout.id, frame));
                heads.push(head.filter(|head| head.sequence == number && head.generation & 1 == which));
                true
            })?;
            let mark = read(disk, layout.mark(which), FRAME_BYTES)?.unwrap_or_default();
            seen.marks.extend(Mark::decode(layout.id, &mark));
        }
        Ok(seen)
    }

    /// The generation of the last checkpoint that was complete: there are no frames and no marks of
    /// one that was not.
    fn generation(&self) -> u64 {
        let headers = self.headers.iter().flatten().map(|header| header.generation);
        let frames = self.heads.iter().flatten().flatten().map(|head| head.generation);
        headers.chain(frames).chain(self.marks.iter().map(|mark| mark.generation)).max().unwrap_or_default()
    }

    fn header(&self, generation: u64) -> Option<Header> {
        self.headers[usize::from(generation & 1 == 1)].filter(|header| header.generation == generation)
    }

    fn heads(&self, generation: u64) -> &[Option<FrameHead>] {
        &self.heads[usize::from(generation & 1 == 1)]
    }

    fn head(&self, generation: u64, frame: u64) -> Option<FrameHead> {
        let head = usize::try_from(frame).ok().and_then(|at| *self.heads(generation).get(at)?);
        head.filter(|head| head.generation == generation)
    }

    /// The checkpoint of a generation, if it is whole.
    fn checkpoint(&self, disk: &mut Disk, generation: u64) -> Result<Option<(Header, Checkpoint)>, DeviceError> {
        let Some(header) = self.header(generation) else { return Ok(None) };
        let Ok(len) = usize::try_from(header.body_bytes.next_multiple_of(FRAME_BYTES as u64)) else { return Ok(None) };
        let body = read(disk, self.layout.checkpoint(generation) + FRAME_BYTES as u64, len)?;
        Ok(body.and_then(|body| Some((header, Checkpoint::decode(&header, &body)?))))
    }

    /// What is wrong with the last checkpoint that was complete, if there was one.
    fn damaged_checkpoint(&self, generation: u64) -> Option<Damage> {
        let at = self.layout.checkpoint(generation);
        let part = if self.header(generation).is_some() { Part::Body } else { Part::Header };
        (generation > 0).then_some(Damage::Checkpoint { generation, at, part })
    }

    /// What is said to be flushed of a journal.
    fn flushed(&self, generation: u64) -> Flushed {
        let frames = self.heads(generation).iter().flatten().filter(|head| head.generation == generation);
        let marks = self.marks.iter().filter(|mark| mark.generation == generation).map(|mark| mark.flushed);
        let header = self.header(generation).map(|header| Flushed { previous: header.previous, ..Flushed::default() });
        frames.map(|head| head.flushed).chain(marks).chain(header).fold(Flushed::default(), Flushed::and)
    }

    /// Reads a journal up to the last group of frames that is whole, behind a checkpoint of
    /// incarnation `incarnation`.
    fn replay(&self, disk: &mut Disk, generation: u64, incarnation: u64) -> Result<Replayed, DeviceError> {
        let mut replayed = Replayed { incarnation, ..Replayed::default() };
        let (mut last_incarnation, mut group, mut joiner) =
            (incarnation, Vec::<(u64, Piece)>::new(), Joiner::default());
        // Frames of the group that are still to come, once it has begun.
        let mut left: Option<u32> = None;
        let heads = self.heads(generation).len() as u64;
        each_frame(disk, self.layout.journal(generation), 0..heads, |at, bytes| {
            replayed.end = at;
            let Some(head) = self.head(generation, at) else { return false };
            let follows =
                left.is_none_or(|left| head.left.checked_add(1) == Some(left) && head.incarnation == last_incarnation);
            if !follows || head.incarnation < last_incarnation {
                return false;
            }
            let series = Series { id: self.layout.id, generation };
            let Some(frame) = bytes.and_then(|bytes| decode_frame(series, at, bytes)) else {
                replayed.unknown = true;
                return false;
            };
            last_incarnation = head.incarnation;
            group.extend(frame.pieces.into_iter().map(|piece| (at, piece)));
            left = Some(frame.left).filter(|left| *left > 0);
            if left.is_none() {
                let records = group.drain(..).filter_map(|(at, piece)| Some((at, joiner.push(piece)?)));
                replayed.records.extend(records);
                (replayed.next, replayed.end, replayed.incarnation) = (at + 1, at + 1, last_incarnation);
            }
            true
        })?;
        Ok(replayed)
    }

    /// Whether the journal before the checkpoint of `generation` leads to it from the checkpoint
    /// before that. `before` is what there is of that journal, and is cut to what belongs to it.
    fn bridges(&self, generation: u64, before: &mut Replayed) -> bool {
        let flushed = self.flushed(generation);
        let Some(frames) = flushed.previous.map(u64::from) else {
            // Of an earlier version: what it had begun to write when it was cut off is not told
            // from what was complete.
            let has_more = self.heads(generation).iter().flatten().any(|head| head.generation == generation);
            return !has_more && flushed == Flushed::default();
        };
        before.records.retain(|(at, _)| *at < frames);
        before.next >= frames
    }

    /// What is wrong with the journal, if it ends before it should.
    fn damage(&self, disk: &mut Disk, generation: u64, replayed: &Replayed) -> Result<Option<Damage>, DeviceError> {
        let (frame, flushed) = (replayed.end, u64::from(self.flushed(generation).frames));
        let at = self.layout.journal(generation) + frame * FRAME_BYTES as u64;
        if replayed.unknown {
            return Ok(Some(Damage::Unknown { frame, at }));
        }
        if flushed <= replayed.next {
            return Ok(None);
        }
        let says = |head: &FrameHead| head.generation == generation && u64::from(head.flushed.frames) > replayed.next;
        let frames = self.heads(generation).iter().flatten();
        let proof = frames.copied().find(says).map(|head| Proof::Frame(head.sequence));
        let proof = proof.unwrap_or(Proof::Mark(flushed));
        let content = match read(disk, at, FRAME_BYTES)? {
            None => Content::Unreadable,
            Some(bytes) if bytes.iter().all(|byte| *byte == 0) => Content::Zeros,
            Some(bytes) if frame_head(self.layout.id, &bytes).is_some() => Content::Stale,
            Some(bytes) if bytes.starts_with(b"EBOFJRN1") => Content::Checksum,
            Some(_) => Content::Foreign,
        };
        Ok(Some(Damage::Frame { frame, at, content, proof }))
    }

    /// What is left behind a damaged frame.
    fn behind(
        &self,
        disk: &mut Disk,
        generation: u64,
        replayed: &Replayed,
        damage: Damage,
    ) -> Result<Lost, DeviceError> {
        let flushed = u64::from(self.flushed(generation).frames);
        let is_later =
            |at: u64| self.head(generation, at).is_some_and(|head| u64::from(head.flushed.frames) > replayed.next);
        let next = (replayed.next..FRAMES).find(|&at| is_later(at)).unwrap_or(flushed);
        let last = (replayed.next..FRAMES).rfind(|&at| is_later(at)).map_or(flushed, |last| flushed.max(last + 1));
        // One group: a single frame, or all that the first frame says belong together; and nothing
        // else is missing behind it.
        let missing = next - replayed.next;
        let is_group = self.head(generation, replayed.next).is_some_and(|head| u64::from(head.left) + 1 == missing);
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

    /// The journal as it goes on.
    fn journal(&self, generation: u64, replayed: &Replayed, skips: bool) -> Journal {
        let flushed = self.flushed(generation);
        Journal::found(self.layout, generation, replayed.incarnation, replayed.next, flushed, skips)
    }
}
