//! What hosts may see: for each block everything that it may hold, by what was acknowledged, what
//! is under way and what the power took.
//!
//! Every write has a serial number, and every sector says whose it is, which block and which write
//! it is of. A read that ends well must give one of the values that are possible; where it reports
//! which of several it is, the others are not possible any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use ebof_drive::BlockFormat;

/// A moment of the model: it counts what begins and ends.
pub type Tick = u64;

/// The number of something that a host does to blocks.
pub type Op = u64;

/// The smallest part of a block that a power loss leaves as a whole.
pub const SECTOR_BYTES: usize = 512;

/// The bits of a sector's words that say which block it is of.
pub const LBA_BITS: u64 = 0xffff << 32;

/// The serial number of what an operation writes.
#[must_use]
pub fn serial(op: Op) -> u32 {
    u32::try_from(op & 0xffff_ffff).expect("32 bits")
}

/// Where a block of a story lies in a namespace of `count` blocks: some at both sides of the
/// borders of its extents, and some inside.
#[must_use]
pub fn story_lba(block: u64, per_extent: u64, count: u64) -> u64 {
    let (group, within) = (block / 6, block % 6);
    (group * per_extent + within).saturating_sub(3).min(count - 1)
}

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockValue {
    /// Zeros: never written, zeroed or deallocated.
    Zeros,
    /// It cannot be read (Write Uncorrectable).
    Bad,
    /// What the write with this serial number brought.
    Write(u32),
}

impl fmt::Debug for BlockValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeros => f.write_str("zeros"),
            Self::Bad => f.write_str("bad"),
            Self::Write(serial) => write!(f, "#{serial}"),
        }
    }
}

/// Something that a block may hold.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    value: BlockValue,
    op: Op,
    begun: Tick,
    /// `None` while it is under way.
    ended: Option<Tick>,
    /// It has ended well, so that what ended before it began is overwritten.
    ok: bool,
    /// A power loss does not undo it.
    durable: bool,
    /// Reads that begin from then on do not see it.
    hidden: Option<Tick>,
}

impl Candidate {
    const FIRST: Self =
        Self { value: BlockValue::Zeros, op: 0, begun: 0, ended: Some(0), ok: true, durable: true, hidden: None };

    /// Whether `self` is what is there after `other`.
    fn replaces(&self, other: &Self) -> bool {
        self.ok && self.op != other.op && other.ended.is_some_and(|ended| ended <= self.begun)
    }

    fn is_seen_by(&self, read: Tick) -> bool {
        self.hidden.is_none_or(|hidden| hidden > read)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Block {
    candidates: Vec<Candidate>,
    /// A power loss may have mixed the sectors of several of them, and nobody has read it since.
    torn: bool,
    /// Since when it is known to be whole: reads that began before may have found it torn.
    whole: Tick,
    /// What a read has found in the sectors of such a block, until something else is written.
    mixture: Vec<BlockValue>,
}

/// What a block with a checksum may be that a power loss has torn: it is taken as it is if it was
/// written without a record of its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InFlux {
    /// Blocks are never written that way.
    Never,
    /// A mixture of sectors.
    Mixed,
    /// The same, encrypted: bytes that nobody has written.
    Garbled,
}

impl InFlux {
    /// Of blocks with this format on a disk that tears them between such sectors.
    #[must_use]
    pub fn for_format(block_format: BlockFormat, sector_bytes: u32) -> Self {
        match block_format.may_be_in_flux() {
            false => Self::Never,
            true if block_format.encrypted && block_format.data_bytes() > sector_bytes.into() => Self::Garbled,
            true => Self::Mixed,
        }
    }
}

/// The blocks of one namespace.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// Whose they are: in every sector.
    pub owner: u16,
    /// Bytes of a block, with its metadata.
    pub block_bytes: usize,
    /// A block that was torn is an error to whoever reads it, never a mixture; `None` where that is
    /// not known.
    pub is_checked: Option<bool>,
    /// What a block with a checksum may be all the same, where it was in flux.
    pub in_flux: InFlux,
    /// Only those that were ever written.
    pub(crate) blocks: BTreeMap<u64, Block>,
    pub(crate) reads: BTreeMap<Op, Tick>,
}

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(pub String);

impl Blocks {
    /// Blocks that read as zeros.
    #[must_use]
    pub fn new(owner: u16, block_bytes: usize, is_checked: bool) -> Self {
        let (blocks, reads) = (BTreeMap::new(), BTreeMap::new());
        Self { owner, block_bytes, is_checked: Some(is_checked), in_flux: InFlux::Never, blocks, reads }
    }

    /// The bytes of a block.
    pub fn fill(&self, lba: u64, serial: u32, into: &mut [u8]) {
        let word = self.word(lba, serial).to_le_bytes();
        into.chunks_mut(8).for_each(|part| part.copy_from_slice(&word[..part.len()]));
    }

    /// The bytes of these blocks as one write brings them.
    #[must_use]
    pub fn bytes(&self, range: &Range<u64>, serial: u32) -> Vec<u8> {
        let blocks = usize::try_from(range.end - range.start).expect("few");
        let mut bytes = vec![0; blocks * self.block_bytes];
        for (lba, into) in range.clone().zip(bytes.chunks_mut(self.block_bytes)) {
            self.fill(lba, serial, into);
        }
        bytes
    }

    /// Blocks of these that are found in a part of a disk. Tags, which are kept elsewhere, have
    /// words of blocks as well, but not one beside the other.
    #[must_use]
    pub fn blocks_in(&self, bytes: &[u8]) -> BTreeSet<u64> {
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let words: Vec<u64> = words.collect();
        let words = words.chunks(2).filter(|pair| pair.first() == pair.last()).map(|pair| pair[0]);
        let own = words.filter(|word| word >> 48 == u64::from(self.owner)).map(|word| word >> 32 & 0xffff);
        own.filter(|lba| self.blocks.contains_key(lba)).collect()
    }

    /// From now on these blocks may not be readable, until they are written.
    pub fn lose(&mut self, op: Op, range: Range<u64>, now: Tick) {
        let lost = Candidate {
            value: BlockValue::Bad,
            op,
            begun: now,
            ended: Some(now),
            ok: false,
            durable: true,
            hidden: None,
        };
        for lba in range {
            let first = || Block { candidates: vec![Candidate::FIRST], torn: false, whole: 0, mixture: Vec::new() };
            self.blocks.entry(lba).or_insert_with(first).candidates.push(lost);
        }
    }

    /// The serial number of the write that brought a block's bytes; `None` for zeros.
    #[must_use]
    pub fn serial_of(&self, bytes: &[u8]) -> Option<u32> {
        self.serial_in(u64::from_le_bytes(*bytes.first_chunk()?))
    }

    /// Which write of these blocks a word of the disk is from.
    pub fn serial_in(&self, word: u64) -> Option<u32> {
        let serial = u32::try_from(word & 0xffff_ffff).ok();
        serial.filter(|_| word >> 48 == u64::from(self.owner))
    }

    /// What a write has in each of its sectors, less [`LBA_BITS`].
    #[must_use]
    pub fn mark(&self, serial: u32) -> u64 {
        self.word(0, serial)
    }

    fn word(&self, lba: u64, serial: u32) -> u64 {
        u64::from(self.owner) << 48 | (lba & 0xffff) << 32 | u64::from(serial)
    }

    /// A change of these blocks begins; again, where the process has ended since, and whoever wants
    /// the change repeats it.
    pub fn begin(&mut self, op: Op, range: Range<u64>, value: BlockValue, now: Tick) {
        let candidate = Candidate { value, op, begun: now, ended: None, ok: false, durable: false, hidden: None };
        for lba in range {
            match self.blocks.get_mut(&lba) {
                Some(block) => {
                    block.candidates.push(candidate);
                    block.mixture.clear();
                }
                None => {
                    let candidates = vec![Candidate::FIRST, candidate];
                    self.blocks.insert(lba, Block { candidates, torn: false, whole: 0, mixture: Vec::new() });
                }
            }
        }
    }

    /// It has ended well.
    pub fn end(&mut self, op: Op, range: Range<u64>, durable: bool, now: Tick) {
        let oldest = self.oldest_read(now);
        for block in self.blocks.range_mut(range.clone()).map(|(_, block)| block) {
            // The last one, if it was repeated.
            let Some(own) = block.candidates.iter_mut().rfind(|candidate| candidate.op == op) else { continue };
            own.ended = Some(now);
            own.ok = true;
            own.durable = durable;
            let own = *own;
            for candidate in &mut block.candidates {
                if own.replaces(candidate) {
                    candidate.hidden.get_or_insert(now);
                }
            }
            block.prune(oldest);
        }
        self.forget_zeros(range);
    }

    /// Blocks of which nothing is known but zeros need not be kept.
    fn forget_zeros(&mut self, range: Range<u64>) {
        let is_zero = |one: &Candidate| one.value == BlockValue::Zeros && one.ended.is_some();
        // A read that is under way may have found a block torn.
        let is_known = |block: &Block| !block.torn && block.whole == 0;
        let zeros = self.blocks.range(range);
        let zeros = zeros.filter(|(_, block)| is_known(block) && block.candidates.iter().all(is_zero));
        let zeros: Vec<u64> = zeros.map(|(&lba, _)| lba).collect();
        zeros.iter().for_each(|lba| drop(self.blocks.remove(lba)));
    }

    /// It has failed, or nobody knows how it has ended; but it is over: it may have been done in
    /// part.
    pub fn end_unknown(&mut self, op: Op, range: Range<u64>, now: Tick) {
        for block in self.blocks.range_mut(range).map(|(_, block)| block) {
            let own = block.candidates.iter_mut().filter(|candidate| candidate.op == op);
            own.for_each(|own| _ = own.ended.get_or_insert(now));
        }
    }

    /// It was refused: nothing of it was done.
    pub fn refuse(&mut self, op: Op, range: Range<u64>) {
        for block in self.blocks.range_mut(range).map(|(_, block)| block) {
            block.candidates.retain(|candidate| candidate.op != op);
        }
    }

    /// A flush that began then has ended well.
    pub fn flushed(&mut self, begun: Tick, now: Tick) {
        let oldest = self.oldest_read(now);
        for block in self.blocks.values_mut() {
            for candidate in &mut block.candidates {
                if candidate.ok && candidate.ended.is_some_and(|ended| ended <= begun) {
                    candidate.durable = true;
                }
            }
            block.prune(oldest);
        }
    }

    /// A read begins.
    pub fn begin_read(&mut self, op: Op, now: Tick) {
        self.reads.insert(op, now);
    }

    /// A read has not brought anything.
    pub fn end_read(&mut self, op: Op) {
        self.reads.remove(&op);
    }

    /// Whether a read that began then may fail for what hosts or a power loss did to these blocks.
    #[must_use]
    pub fn may_fail(&self, range: Range<u64>, begun: Tick) -> bool {
        self.blocks.range(range).any(|(_, block)| {
            block.candidates.iter().any(|candidate| candidate.value == BlockValue::Bad)
                || self.is_checked != Some(false) && (block.torn || begun < block.whole)
        })
    }

    /// The values that a block may hold now, as far as anybody can know.
    #[must_use]
    pub fn possible(&self, lba: u64, now: Tick) -> Vec<BlockValue> {
        let Some(block) = self.blocks.get(&lba) else { return vec![BlockValue::Zeros] };
        let seen = block.candidates.iter().filter(|candidate| candidate.is_seen_by(now));
        seen.map(|candidate| candidate.value).collect()
    }

    /// The bytes of a block with this value; zeros where it cannot be read.
    pub fn fill_value(&self, lba: u64, value: BlockValue, into: &mut [u8]) {
        match value {
            BlockValue::Write(serial) => self.fill(lba, serial, into),
            BlockValue::Zeros | BlockValue::Bad => into.fill(0),
        }
    }

    /// Ends a read that found something else than these bytes, or something that it could not read.
    ///
    /// # Errors
    /// No block of these can have held anything else since it began.
    pub fn differed(&mut self, op: Op, range: Range<u64>, bytes: &[u8], now: Tick) -> Result<(), Wrong> {
        let begun = self.reads.remove(&op).unwrap_or(now);
        let mut own = vec![0; self.block_bytes];
        for (lba, bytes) in range.clone().zip(bytes.chunks(self.block_bytes)) {
            if self.blocks.get(&lba).is_some_and(|block| block.torn || begun < block.whole) {
                return Ok(());
            }
            for value in self.possible(lba, begun) {
                self.fill_value(lba, value, &mut own);
                if value == BlockValue::Bad || own != bytes {
                    return Ok(());
                }
            }
        }
        Err(Wrong(format!("blocks {range:?} of namespace {} hold what they were compared with", self.owner)))
    }

    /// Ends a read that found nothing wrong with these blocks.
    ///
    /// # Errors
    /// One of them cannot have been readable.
    pub fn verified(&mut self, op: Op, range: Range<u64>, now: Tick) -> Result<(), Wrong> {
        let begun = self.reads.remove(&op).unwrap_or(now);
        let is_bad = |lba: &u64| self.possible(*lba, begun).iter().all(|value| *value == BlockValue::Bad);
        match range.into_iter().find(is_bad) {
            Some(lba) => Err(Wrong(format!("block {lba} of namespace {} cannot be read", self.owner))),
            None => Ok(()),
        }
    }

    /// A read has brought these bytes.
    ///
    /// # Errors
    /// Something that no block of these can hold now.
    pub fn read(&mut self, op: Op, range: Range<u64>, bytes: &[u8], now: Tick) -> Result<(), Wrong> {
        let begun = self.reads.remove(&op).unwrap_or(now);
        for (lba, bytes) in range.clone().zip(bytes.chunks(self.block_bytes)) {
            self.read_block(lba, begun, bytes, now).map_err(|wrong| {
                let owner = self.owner;
                Wrong(format!("block {lba} of {range:?} of namespace {owner}: {wrong}"))
            })?;
        }
        Ok(())
    }

    fn read_block(&mut self, lba: u64, begun: Tick, bytes: &[u8], now: Tick) -> Result<(), String> {
        let sectors = bytes.chunks(SECTOR_BYTES).map(|sector| self.sector(lba, sector));
        let is_torn = |block: &Block| block.torn || begun < block.whole;
        let sectors = match sectors.collect::<Result<Vec<_>, _>>() {
            Err(_) if self.in_flux == InFlux::Garbled && self.blocks.get(&lba).is_some_and(is_torn) => return Ok(()),
            sectors => sectors?,
        };
        let mut found = sectors.clone();
        found.dedup();
        let Some(block) = self.blocks.get_mut(&lba) else {
            return if found == [BlockValue::Zeros] { Ok(()) } else { Err(format!("{found:?}, never written")) };
        };
        let seen = |candidate: &&Candidate| candidate.is_seen_by(begun);
        let possible: Vec<BlockValue> = block.candidates.iter().filter(seen).map(|candidate| candidate.value).collect();
        if found.iter().any(|value| !possible.contains(value)) {
            let all = &block.candidates;
            return Err(format!(
                "{found:?} is none of {possible:?}; all that is known (the read began at {begun}): {all:?}"
            ));
        }
        match found[..] {
            [value] => {
                for candidate in &mut block.candidates {
                    let is_over = candidate.ended.is_some_and(|ended| ended <= begun);
                    if candidate.value != value && is_over {
                        candidate.hidden.get_or_insert(now);
                    }
                }
                block.found_whole(now);
                if block.mixture.is_empty() { Ok(()) } else { Err(format!("it was {:?}", block.mixture)) }
            }
            _ if is_torn(block) && (self.is_checked != Some(true) || self.in_flux != InFlux::Never) => {
                // It stays as it is.
                if !block.mixture.is_empty() && block.mixture != sectors {
                    return Err(format!("{sectors:?}, and it was {:?}", block.mixture));
                }
                // A write may have come while this was read.
                if block.candidates.iter().all(|candidate| candidate.ended.is_some_and(|ended| ended <= begun)) {
                    block.mixture = sectors;
                }
                Ok(())
            }
            _ => Err(format!("a mixture of {found:?}")),
        }
    }

    /// What a sector is of.
    fn sector(&self, lba: u64, bytes: &[u8]) -> Result<BlockValue, String> {
        let word = |part: &[u8]| u64::from_le_bytes(part.try_into().unwrap_or_default());
        let first = word(&bytes[..8]);
        if bytes.chunks(8).any(|part| word(part) != first) {
            return Err(format!("a sector of several things, {first:016x} first"));
        }
        if first == 0 {
            return Ok(BlockValue::Zeros);
        }
        let [serial, place] = [first & 0xffff_ffff, first >> 32 & 0xffff];
        let owner = first >> 48;
        if owner != u64::from(self.owner) {
            return Err(format!("bytes of namespace {owner}, block {place}, write #{serial}: not its own"));
        }
        if place != lba & 0xffff {
            return Err(format!("bytes of block {place}, write #{serial}"));
        }
        u32::try_from(serial).map(BlockValue::Write).map_err(|error| error.to_string())
    }

    /// The process is gone: what was under way has been done, or not.
    pub fn killed(&mut self, now: Tick) {
        self.reads.clear();
        for candidate in self.blocks.values_mut().flat_map(|block| &mut block.candidates) {
            candidate.ended.get_or_insert(now);
        }
    }

    /// The power has gone: what was not durable may be undone, and what was under way done in part.
    pub fn lost_power(&mut self, now: Tick) {
        self.killed(now);
        for block in self.blocks.values_mut() {
            block.prune(now);
            let all = block.candidates.clone();
            block.candidates.retain(|one| !all.iter().any(|other| other.durable && other.replaces(one)));
            // Which of them it is now is not known; whichever it is, it is on the medium.
            for candidate in &mut block.candidates {
                *candidate = Candidate {
                    begun: now.saturating_sub(1),
                    ended: Some(now),
                    ok: true,
                    durable: true,
                    hidden: None,
                    ..*candidate
                };
            }
            block.torn = block.candidates.len() > 1;
            block.mixture.clear();
        }
    }

    /// Everything was taken out of it: it reads as zeros, durably, or may do so.
    pub fn cleared(&mut self, sure: bool, now: Tick) {
        if sure {
            self.blocks.clear();
            return;
        }
        for block in self.blocks.values_mut() {
            block.candidates.push(Candidate { begun: now, ended: Some(now), ok: false, ..Candidate::FIRST });
            block.mixture.clear();
        }
    }

    /// Blocks that were ever written.
    pub fn written(&self) -> impl Iterator<Item = u64> {
        self.blocks.keys().copied()
    }

    fn oldest_read(&self, now: Tick) -> Tick {
        self.reads.values().copied().min().unwrap_or(now)
    }
}

impl Block {
    /// Forgets what nobody can see any more, whatever happens; `oldest` is when the oldest read
    /// under way began.
    fn prune(&mut self, oldest: Tick) {
        if self.candidates.len() < 2 {
            return;
        }
        let all = self.candidates.clone();
        self.candidates.retain(|one| {
            let is_hidden = one.hidden.is_some_and(|hidden| hidden <= oldest);
            !(is_hidden && all.iter().any(|other| other.durable && other.replaces(one)))
        });
        if self.candidates.len() == 1 {
            self.found_whole(oldest);
        }
    }

    fn found_whole(&mut self, now: Tick) {
        if std::mem::take(&mut self.torn) {
            self.whole = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(blocks: &Blocks, lba: u64, serial: u32) -> Vec<u8> {
        let mut bytes = vec![0; blocks.block_bytes];
        if serial > 0 {
            blocks.fill(lba, serial, &mut bytes);
        }
        bytes
    }

    fn read(blocks: &mut Blocks, serial: u32, now: Tick) -> Result<(), Wrong> {
        let bytes = bytes(blocks, 3, serial);
        blocks.begin_read(1000, now);
        blocks.read(1000, 3..4, &bytes, now)
    }

    fn write(blocks: &mut Blocks, serial: u32, fua: bool, now: Tick) {
        blocks.begin(u64::from(serial), 3..4, BlockValue::Write(serial), now);
        blocks.end(u64::from(serial), 3..4, fua, now + 1);
    }

    #[test]
    fn a_read_gives_what_was_acknowledged_last_or_something_under_way() {
        let mut blocks = Blocks::new(1, 4096, false);
        assert!(read(&mut blocks, 0, 1).is_ok() && read(&mut blocks, 1, 1).is_err());
        write(&mut blocks, 1, false, 2);
        blocks.begin(2, 3..4, BlockValue::Write(2), 4);
        assert!(read(&mut blocks, 0, 5).is_err() && read(&mut blocks, 1, 5).is_ok());
        assert!(read(&mut blocks, 2, 6).is_ok() && read(&mut blocks, 1, 7).is_err(), "it was seen already");
        // A read that began before may still give what was there then.
        blocks.begin_read(50, 8);
        blocks.end(2, 3..4, false, 9);
        write(&mut blocks, 3, false, 10);
        let old = bytes(&blocks, 3, 2);
        assert!(blocks.read(50, 3..4, &old, 12).is_ok() && read(&mut blocks, 2, 13).is_err());
        assert!(read(&mut blocks, 3, 14).is_ok());
    }

    #[test]
    fn a_power_loss_undoes_what_was_not_flushed_and_nothing_else() {
        let mut blocks = Blocks::new(1, 4096, false);
        write(&mut blocks, 1, false, 2);
        blocks.flushed(4, 5);
        write(&mut blocks, 2, false, 6);
        write(&mut blocks, 3, false, 8);
        let mut after = blocks.clone();
        after.lost_power(20);
        for (serial, possible) in [(0, false), (1, true), (2, true), (3, true)] {
            assert_eq!(read(&mut after.clone(), serial, 30).is_ok(), possible, "{serial}");
        }
        // Sectors of several of them.
        let mut mixed = bytes(&after, 3, 1);
        mixed[512..1024].copy_from_slice(&bytes(&after, 3, 3)[512..1024]);
        after.begin_read(40, 40);
        assert!(after.read(40, 3..4, &mixed, 41).is_ok());
        // It stays as it was found, until something else is written.
        after.begin_read(42, 42);
        let mut written = after.clone();
        write(&mut written, 5, false, 43);
        assert!(written.read(42, 3..4, &mixed, 45).is_ok() && read(&mut written, 5, 46).is_ok(), "it came meanwhile");
        let mut whole = after.clone();
        write(&mut whole, 5, true, 43);
        assert!(read(&mut whole, 5, 45).is_ok() && whole.read(42, 3..4, &mixed, 46).is_ok(), "it was torn then");
        assert!(after.clone().read(42, 3..4, &mixed, 43).is_ok() && read(&mut after, 3, 44).is_err());
        // What is durable is there.
        write(&mut blocks, 4, true, 50);
        blocks.lost_power(60);
        assert!(read(&mut blocks.clone(), 3, 70).is_err() && read(&mut blocks, 4, 70).is_ok());
    }

    #[test]
    fn a_torn_block_may_be_a_mixture_only_where_it_was_in_flux() {
        let mut blocks = Blocks::new(1, 4096, true);
        write(&mut blocks, 1, true, 2);
        write(&mut blocks, 2, false, 4);
        let mut mixed = bytes(&blocks, 3, 1);
        mixed[512..1024].copy_from_slice(&bytes(&blocks, 3, 2)[512..1024]);
        let read = |in_flux: InFlux, flushed: bool, bytes: &[u8]| {
            let mut blocks = Blocks { in_flux, ..blocks.clone() };
            if flushed {
                blocks.flushed(6, 7);
            }
            blocks.lost_power(8);
            blocks.begin_read(1000, 10);
            blocks.read(1000, 3..4, bytes, 11).is_ok()
        };
        assert!(!read(InFlux::Never, false, &mixed) && read(InFlux::Mixed, false, &mixed));
        assert!(!read(InFlux::Mixed, true, &mixed) && !read(InFlux::Mixed, false, &[7; 4096]));
        assert!(!read(InFlux::Garbled, true, &[7; 4096]) && read(InFlux::Garbled, false, &[7; 4096]));
    }

    #[test]
    fn a_write_that_failed_may_be_there_and_a_refused_one_is_not() {
        let mut blocks = Blocks::new(1, 4096, false);
        write(&mut blocks, 1, true, 2);
        blocks.begin(2, 3..4, BlockValue::Write(2), 4);
        blocks.begin(3, 3..4, BlockValue::Write(3), 4);
        blocks.end_unknown(2, 3..4, 5);
        blocks.refuse(3, 3..4);
        let mut other = blocks.clone();
        assert!(read(&mut blocks, 2, 6).is_ok() && read(&mut blocks, 1, 7).is_err());
        assert!(read(&mut other, 1, 6).is_ok() && read(&mut other, 2, 7).is_err() && read(&mut other, 3, 8).is_err());
    }

    #[test]
    fn after_a_power_loss_a_block_stays_what_a_read_has_found() {
        let mut blocks = Blocks::new(1, 4096, true);
        write(&mut blocks, 1, true, 2);
        write(&mut blocks, 2, false, 4);
        blocks.lost_power(6);
        assert!(blocks.may_fail(3..4, 8), "it may be torn");
        assert!(read(&mut blocks, 1, 10).is_ok() && read(&mut blocks, 2, 12).is_err());
        assert!(blocks.may_fail(3..4, 8) && !blocks.may_fail(3..4, 12), "it was whole when it was read");
    }

    #[test]
    fn a_comparison_fails_only_where_something_else_may_be_there() {
        let mut blocks = Blocks::new(1, 4096, false);
        write(&mut blocks, 1, false, 2);
        let own = bytes(&blocks, 3, 1);
        let differs = |blocks: &mut Blocks, begun: Tick| {
            blocks.begin_read(1000, begun);
            blocks.differed(1000, 3..4, &own, begun + 1).is_ok()
        };
        assert_eq!(blocks.possible(3, 4), [BlockValue::Write(1)]);
        assert!(!differs(&mut blocks, 4));
        blocks.begin(2, 3..4, BlockValue::Write(2), 6);
        assert!(differs(&mut blocks, 8), "a write is under way");
        assert!(blocks.verified(1, 3..4, 10).is_ok());
        blocks.begin(3, 3..4, BlockValue::Bad, 12);
        blocks.end(3, 3..4, true, 14);
        assert!(differs(&mut blocks, 16) && blocks.verified(1, 3..4, 18).is_ok(), "the write is still under way");
        blocks.end(2, 3..4, false, 20);
        blocks.begin(4, 3..4, BlockValue::Bad, 22);
        blocks.end(4, 3..4, true, 24);
        assert!(blocks.verified(1, 3..4, 26).is_err());
    }

    #[test]
    fn bytes_of_others_are_told() {
        let mut blocks = Blocks::new(2, 512, false);
        let others = bytes(&Blocks::new(1, 512, false), 3, 9);
        let wrong = blocks.read(1, 3..4, &others, 1).unwrap_err();
        assert!(wrong.0.contains("bytes of namespace 1"), "{}", wrong.0);
    }
}
