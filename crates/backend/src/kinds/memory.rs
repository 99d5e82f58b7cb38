//! A device in memory, sparse: chunks appear when they are first written and go when they are
//! deallocated.
//!
//! Every chunk has a lock of its own, so that threads meet only where their requests do. A transfer
//! inside one chunk is atomic towards others; one that spans chunks is not, as on a disk that spans
//! blocks.

use std::fmt;
use std::ops::Range;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use crate::{
    Action, Buffer, Completion, Device, Error, Geometry, Io, Lent, Operation, Request, Resident, Segments, Submitted,
    format_size,
};
use ebof_region::{CHUNK_BYTES, ChunkPlace, Chunks, Pages};

/// [`CHUNK_BYTES`], as a position on the device.
const CHUNK_SPAN: u64 = 128 << 10;
/// Chunks per group. Groups appear with their first chunk, so that an empty device of a terabyte
/// costs 192 KiB of table rather than 200 MB of locks.
const GROUP_CHUNKS: usize = 1024;

/// `None` reads as zeros.
type Chunk = RwLock<Option<Pages>>;
type Group = OnceLock<Box<[Chunk]>>;

/// A sparse device in memory.
pub struct Memory {
    geometry: Geometry,
    chunks: Chunks,
    groups: Box<[Group]>,
}

impl Memory {
    /// The largest device in memory: 16 TiB, whose table of groups takes 3 MiB.
    pub const CAPACITY_BYTES_MAX: u64 = 16 << 40;

    /// An empty device of `capacity_bytes` (at most
    /// [`CAPACITY_BYTES_MAX`](Memory::CAPACITY_BYTES_MAX)), to be offered in blocks of
    /// `logical_block_bytes`.
    #[must_use]
    pub fn new(capacity_bytes: u64, logical_block_bytes: u32, read_only: bool) -> Memory {
        Self::of_chunks(Chunks::of_process(), capacity_bytes, logical_block_bytes, read_only)
    }

    /// The same that consists of `chunks`: of [files](Chunks::in_files), if it is to be handed to
    /// another process one day ([`into_places`](Self::into_places)).
    #[must_use]
    pub fn of_chunks(chunks: Chunks, capacity_bytes: u64, logical_block_bytes: u32, read_only: bool) -> Memory {
        let geometry = Geometry {
            capacity_bytes,
            block_bytes: 1,
            logical_block_bytes,
            read_only,
            deallocates: true,
            deallocate_granularity_bytes: 128 << 10,
            writes_zeroes: true,
            volatile_cache: false,
        };
        let (last_group, _) = locate(capacity_bytes.saturating_sub(1) / CHUNK_SPAN);
        Memory { geometry, chunks, groups: (0..=last_group).map(|_| OnceLock::new()).collect() }
    }

    /// Bytes of memory in use for data. Takes the lock of every chunk: for tests and diagnostics.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let chunks = self.groups.iter().filter_map(OnceLock::get).flatten();
        chunks.filter(|chunk| read_lock(chunk).is_some()).map(|_| CHUNK_SPAN).sum()
    }

    /// Ends the device, and gives where each chunk is that was ever written, by its number on the
    /// device, ascending: in the [files](Chunks::into_files) of the source that it consists of, for
    /// who hands them to another process. All other chunks read as zeros. What came in from
    /// elsewhere by exchange is copied; all else stays where it is.
    ///
    /// # Errors
    /// The source has no files, or none left; nothing has changed.
    pub fn into_places(mut self) -> Result<Vec<(u64, ChunkPlace)>, Memory> {
        if !self.gather() {
            return Err(self);
        }
        let mut places = Vec::new();
        for (group, chunks) in (0..).zip(self.groups) {
            for (index, chunk) in (0..).zip(chunks.into_inner().into_iter().flatten()) {
                if let Some(pages) = chunk.into_inner().unwrap_or_else(PoisonError::into_inner) {
                    let place = self.chunks.give_up(pages).expect("all were gathered, and nobody else has them");
                    places.push((group * GROUP_CHUNKS as u64 + index, place));
                }
            }
        }
        Ok(places)
    }

    /// Copies chunks from elsewhere to the files of its source. `false` if it has none.
    fn gather(&mut self) -> bool {
        for chunk in self.groups.iter_mut().filter_map(OnceLock::get_mut).flatten() {
            if let Some(pages) = chunk.get_mut().unwrap_or_else(PoisonError::into_inner)
                && !self.chunks.keeps(pages)
            {
                let mut own = self.chunks.take();
                if !self.chunks.keeps(&own) {
                    return false;
                }
                own.as_mut_bytes().copy_from_slice(pages.as_bytes());
                *pages = own;
            }
        }
        true
    }

    fn run(&self, mut request: Request) -> Completion {
        let result = self.geometry.check(&request.operation).map(|()| self.apply(&mut request.operation));
        request.complete(result)
    }

    fn apply(&self, operation: &mut Operation) {
        match operation {
            Operation::Read { offset, len, data } => match data.as_mut_buffer() {
                Some(buffer) => self.read(*offset, &mut buffer.as_mut_slice()[..*len]),
                None => self.read_segments(*offset, *len, data),
            },
            Operation::Write { offset, len, data, .. } => match data.as_mut_buffer() {
                Some(buffer) => {
                    if !self.exchange(*offset, *len, buffer) {
                        self.write(*offset, &buffer.as_slice()[..*len]);
                    }
                }
                None => self.write_segments(*offset, *len, data),
            },
            Operation::WriteZeroes { offset, len, .. } => self.clear(*offset, *len),
            Operation::Deallocate { ranges } => {
                for range in ranges {
                    self.clear(range.start, range.end.saturating_sub(range.start));
                }
            }
            Operation::Flush => {}
        }
    }

    fn read(&self, offset: u64, mut into: &mut [u8]) {
        let mut position = offset;
        while !into.is_empty() {
            let within = span(position, into.len());
            let (piece, rest) = into.split_at_mut(within.len());
            match self.chunk(position).map(read_lock).as_deref() {
                Some(Some(pages)) => piece.copy_from_slice(&pages.as_bytes()[within.clone()]),
                Some(None) | None => piece.fill(0),
            }
            position += length(&within);
            into = rest;
        }
    }

    fn write(&self, offset: u64, mut from: &[u8]) {
        let mut position = offset;
        while !from.is_empty() {
            let within = span(position, from.len());
            let (piece, rest) = from.split_at(within.len());
            let mut chunk = write_lock(self.chunk_to_write(position));
            let pages = chunk.get_or_insert_with(|| self.chunks.take());
            pages.as_mut_bytes()[within.clone()].copy_from_slice(piece);
            position += length(&within);
            from = rest;
        }
    }

    /// The same for several segments; what they have of a chunk is read at the same time.
    fn read_segments(&self, offset: u64, len: usize, data: &mut Segments) {
        let mut done = 0;
        while done < len {
            let position = offset + done as u64;
            let within = span(position, len - done);
            let chunk = self.chunk(position).map(read_lock);
            let bytes = chunk.as_deref().and_then(Option::as_ref).map(|pages| &pages.as_bytes()[within.clone()]);
            match bytes {
                Some(bytes) => data.write(done, bytes),
                None => data.clear(done..done + within.len()),
            }
            done += within.len();
        }
    }

    /// The same for several segments; what they have of a chunk is written at the same time.
    fn write_segments(&self, offset: u64, len: usize, data: &Segments) {
        let mut done = 0;
        while done < len {
            let position = offset + done as u64;
            let within = span(position, len - done);
            let mut chunk = write_lock(self.chunk_to_write(position));
            let pages = chunk.get_or_insert_with(|| self.chunks.take());
            data.read(done, &mut pages.as_mut_bytes()[within.clone()]);
            done += within.len();
        }
    }

    /// A write of exactly one chunk that exists: the buffer becomes the chunk, and the chunk the
    /// buffer. `false` where that cannot be done.
    fn exchange(&self, offset: u64, len: usize, buffer: &mut Buffer) -> bool {
        if len != CHUNK_BYTES || buffer.capacity() != CHUNK_BYTES || !offset.is_multiple_of(CHUNK_SPAN) {
            return false;
        }
        match write_lock(self.chunk_to_write(offset)).as_mut() {
            Some(pages) => buffer.exchange(pages),
            None => false,
        }
    }

    /// Frees whole chunks, and zeroes the rest.
    fn clear(&self, offset: u64, len: u64) {
        let end = offset + len;
        let mut position = offset;
        while position < end {
            let (group, _) = locate(position / CHUNK_SPAN);
            if self.groups[group].get().is_none() {
                // Nothing was ever written to this group.
                let group_span = CHUNK_SPAN * 1024;
                position = (position / group_span + 1) * group_span;
                continue;
            }
            let within = span(position, usize::try_from(end - position).unwrap_or(usize::MAX));
            if let Some(chunk) = self.chunk(position) {
                let mut chunk = write_lock(chunk);
                if within.len() == CHUNK_BYTES {
                    *chunk = None;
                } else if let Some(pages) = chunk.as_mut() {
                    pages.as_mut_bytes()[within.clone()].fill(0);
                }
            }
            position += length(&within);
        }
    }

    fn chunk(&self, position: u64) -> Option<&Chunk> {
        let (group, index) = locate(position / CHUNK_SPAN);
        self.groups[group].get().map(|chunks| &chunks[index])
    }

    fn chunk_to_write(&self, position: u64) -> &Chunk {
        let (group, index) = locate(position / CHUNK_SPAN);
        let chunks = self.groups[group].get_or_init(|| (0..GROUP_CHUNKS).map(|_| RwLock::new(None)).collect());
        &chunks[index]
    }
}

/// Group of chunk number `chunk`, and its index in the group.
fn locate(chunk: u64) -> (usize, usize) {
    let chunk = usize::try_from(chunk).expect("a device in memory has no more chunks than memory has bytes");
    (chunk / GROUP_CHUNKS, chunk % GROUP_CHUNKS)
}

/// The part of the chunk around `position` that a transfer of `len` bytes covers.
fn span(position: u64, len: usize) -> Range<usize> {
    let start = usize::try_from(position % CHUNK_SPAN).expect("less than a chunk");
    start..start.saturating_add(len).min(CHUNK_BYTES)
}

fn length(within: &Range<usize>) -> u64 {
    u64::try_from(within.len()).expect("at most a chunk")
}

// A lock is poisoned when a thread panicked while it held it. The bytes are then as valid as after
// any torn write.
fn read_lock(chunk: &Chunk) -> RwLockReadGuard<'_, Option<Pages>> {
    chunk.read().unwrap_or_else(PoisonError::into_inner)
}

fn write_lock(chunk: &Chunk) -> RwLockWriteGuard<'_, Option<Pages>> {
    chunk.write().unwrap_or_else(PoisonError::into_inner)
}

impl Device for Memory {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, _io: &mut Io, request: Request) -> Submitted {
        Submitted::Done(self.run(request))
    }

    fn resident(&self) -> Option<&dyn Resident> {
        Some(self)
    }

    fn describe(&self) -> String {
        format!("memory, {}", format_size(self.geometry.capacity_bytes))
    }
}

impl Resident for Memory {
    fn lend(&self, offset: u64, len: usize, may_block: bool) -> Option<Lent<'_>> {
        let within = span(offset, len);
        let Some(chunk) = self.chunk(offset) else { return Some(Lent::zeros(within.len())) };
        let guard = match chunk.try_read() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if may_block => read_lock(chunk),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Lent::chunk(guard, within))
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.geometry.check_transfer(Action::Write, offset, u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        self.write(offset, bytes);
        Ok(())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ebof_region::{MappingAccess, SharedMapping};

    use super::*;
    use crate::Buffer;

    fn write(memory: &Memory, offset: u64, len: usize, byte: u8) {
        let mut buffer = Buffer::zeroed(len);
        buffer.as_mut_slice().fill(byte);
        let operation = Operation::Write { offset, len, data: buffer.into(), fua: false };
        memory.run(Request::new(0, operation)).result.unwrap();
    }

    fn read(memory: &Memory, offset: u64, len: usize) -> Vec<u8> {
        let mut buffer = Buffer::zeroed(len);
        buffer.as_mut_slice().fill(0xEE);
        let completion = memory.run(Request::new(0, Operation::Read { offset, len, data: buffer.into() }));
        assert!(completion.result.is_ok());
        completion.data.unwrap().into_buffer().unwrap().as_slice()[..len].to_vec()
    }

    fn deallocate(memory: &Memory, ranges: Vec<Range<u64>>) {
        memory.run(Request::new(0, Operation::Deallocate { ranges })).result.unwrap();
    }

    #[test]
    fn memory_is_allocated_by_writes_and_freed_by_deallocation() {
        let memory = Memory::new(Memory::CAPACITY_BYTES_MAX, 512, false);
        assert_eq!(read(&memory, 1 << 40, 4096), vec![0; 4096]);
        assert_eq!(memory.allocated_bytes(), 0);
        write(&memory, (1 << 40) - 512, 1024, 7);
        write(&memory, Memory::CAPACITY_BYTES_MAX - 512, 512, 8);
        assert_eq!(memory.allocated_bytes(), 3 * CHUNK_SPAN);
        // All but the last written block: the ranges reach from group to group across all that is
        // empty.
        deallocate(&memory, vec![0..1 << 40, 1 << 40..Memory::CAPACITY_BYTES_MAX - 512]);
        assert_eq!(memory.allocated_bytes(), CHUNK_SPAN);
        assert_eq!(read(&memory, (1 << 40) - 512, 1024), vec![0; 1024]);
        assert_eq!(read(&memory, Memory::CAPACITY_BYTES_MAX - 512, 512), vec![8; 512]);
    }

    #[test]
    fn a_write_of_one_chunk_is_not_copied_and_changes_nothing_else() {
        let memory = Memory::new(1 << 20, 512, false);
        write(&memory, 0, 3 * CHUNK_BYTES, 1);
        let mut buffer = Buffer::zeroed(CHUNK_BYTES);
        buffer.as_mut_slice().fill(2);
        let bytes = buffer.as_slice().as_ptr();
        let operation = Operation::Write { offset: CHUNK_SPAN, len: CHUNK_BYTES, data: buffer.into(), fua: false };
        let back = memory.run(Request::new(0, operation)).data.unwrap().into_buffer().unwrap();
        assert_ne!(back.as_slice().as_ptr(), bytes);
        assert_eq!(memory.lend(CHUNK_SPAN, 1, true).unwrap().as_ref().as_ptr(), bytes);
        let all = read(&memory, 0, 3 * CHUNK_BYTES);
        let expected = |at: usize| if at / CHUNK_BYTES == 1 { 2 } else { 1 };
        assert!(all.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    }

    #[test]
    fn a_device_in_files_is_found_again_by_who_has_them_and_its_table() {
        let chunks = Chunks::in_files();
        let memory = Memory::of_chunks(chunks.clone(), 64 << 30, 512, false);
        write(&memory, 0, 2 * CHUNK_BYTES, 1);
        write(&memory, 2 * CHUNK_SPAN, 4096, 2);
        write(&memory, (60 << 30) - 512, 1024, 3);
        write(&memory, 40 << 30, CHUNK_BYTES, 9);
        deallocate(&memory, std::iter::once(40 << 30..(40 << 30) + CHUNK_SPAN).collect());
        // A receive buffer of the same source becomes a chunk, and one from elsewhere is copied.
        let mut buffer = Buffer::chunk_of(&chunks);
        buffer.as_mut_slice().fill(4);
        let bytes = buffer.as_slice().as_ptr();
        let operation = Operation::Write { offset: 0, len: CHUNK_BYTES, data: buffer.into(), fua: false };
        drop(memory.run(Request::new(0, operation)).data);
        assert_eq!(memory.lend(0, 1, true).unwrap().as_ref().as_ptr(), bytes);
        write(&memory, CHUNK_SPAN, CHUNK_BYTES, 5);
        let last = (60 << 30) / CHUNK_SPAN;
        let places = memory.into_places().unwrap();
        assert_eq!(places.iter().map(|(chunk, _)| *chunk).collect::<Vec<_>>(), [0, 1, 2, last - 1, last]);
        let files = chunks.into_files().unwrap();
        let read = |chunk: usize, at: usize| {
            let (_, place) = places[chunk];
            let file = files.iter().find(|file| file.number == place.file).unwrap();
            // As another process does, which has the descriptor.
            let access = MappingAccess::ALL;
            let mapping = SharedMapping::map(&file.file, 0, file.bytes as u64, access).unwrap();
            let mut bytes = [0xEE; 512];
            mapping.read(place.piece as usize * CHUNK_BYTES + at, &mut bytes).unwrap();
            bytes
        };
        assert_eq!((read(0, 0), read(0, CHUNK_BYTES - 512)), ([4; 512], [4; 512]));
        assert_eq!((read(1, 0), read(1, CHUNK_BYTES - 512)), ([5; 512], [5; 512]));
        assert_eq!((read(2, 4096 - 512), read(2, 4096)), ([2; 512], [0; 512]));
        assert_eq!((read(3, CHUNK_BYTES - 512), read(3, 0)), ([3; 512], [0; 512]));
        assert_eq!((read(4, 0), read(4, 512)), ([3; 512], [0; 512]));
    }

    #[test]
    fn a_device_that_is_not_in_files_goes_on() {
        let memory = Memory::new(1 << 20, 512, false);
        write(&memory, 0, 512, 1);
        let memory = memory.into_places().unwrap_err();
        assert_eq!(read(&memory, 0, 512), [1; 512]);
    }

    #[test]
    fn lent_bytes_are_those_stored_and_block_writers() {
        let memory = Memory::new(1 << 20, 512, false);
        memory.store(CHUNK_SPAN - 512, &[7; 1024]).unwrap();
        let first = memory.lend(CHUNK_SPAN - 1024, 4096, true).unwrap();
        assert_eq!((first.as_ref()[..512].to_vec(), first.as_ref()[512..].to_vec()), (vec![0; 512], vec![7; 512]));
        assert_eq!(memory.lend(CHUNK_SPAN * 5, 1 << 20, false).unwrap().as_ref(), vec![0; CHUNK_BYTES]);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| memory.store(CHUNK_SPAN - 512, &[8; 512]));
            // As soon as the writer waits, those who hold a loan are refused another one, and must
            // not wait for it.
            while memory.lend(CHUNK_SPAN - 1024, 512, false).is_some() {
                std::thread::yield_now();
            }
            assert_eq!(first.as_ref()[512], 7);
            drop(first);
            writer.join().unwrap().unwrap();
        });
        assert_eq!(memory.lend(CHUNK_SPAN - 512, 1, true).unwrap().as_ref(), [8]);
        assert!(memory.store(1 << 20, &[1]).is_err());
        assert!(Memory::new(1 << 20, 512, true).store(0, &[1]).is_err());
    }

    #[test]
    fn a_write_within_a_chunk_is_atomic() {
        let memory = Memory::new(1 << 20, 512, false);
        std::thread::scope(|scope| {
            for byte in [1, 2] {
                let memory = &memory;
                scope.spawn(move || (0..500).for_each(|_| write(memory, 8192, 4096, byte)));
            }
            for _ in 0..500 {
                let bytes = read(&memory, 8192, 4096);
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn");
            }
        });
    }
}
