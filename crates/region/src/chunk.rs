//! Chunks: pieces of 128 KiB that memory drives consist of, and the buffers that are exchanged with
//! them, from one arena of the process or from one of somebody's own.
//!
//! They have small pages at first, because the first write to a huge page waits until all of it is
//! there. A thread that exists only while there is something to do has huge pages put under them
//! when none have been taken for a moment. It does not decide what is in them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::arena::{Arena, ArenaFile, ChunkPlace, Pages};

/// Bytes of a chunk. A compromise: a first write has to zero a whole one, and a large transfer
/// takes a lock for each. It is a size of transfer that hosts like, and of the buffers that targets
/// receive it in: such a write costs no copy.
pub const CHUNK_BYTES: usize = 128 << 10;

/// So long nothing was taken before huge pages are put under what was: whoever fills a drive is not
/// disturbed...
const QUIET: Duration = Duration::from_millis(20);
/// ...for longer than this.
const PATIENCE: Duration = Duration::from_secs(2);
/// A pause after each huge page, as a multiple of the time that it took: threads that use memory
/// for the first time wait while one is made.
const PAUSE: u32 = 1;
/// What the system says of huge pages.
const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

static PROCESS: ChunkSource = ChunkSource::new(Arena::small_at_first(CHUNK_BYTES));

/// A source of chunks.
#[derive(Clone)]
pub struct Chunks(SourceOwner);

#[derive(Clone)]
enum SourceOwner {
    Process,
    Own(Arc<ChunkSource>),
}

struct ChunkSource {
    arena: Arena,
    /// How many were taken, modulo 2^32: for who waits until that stops.
    taken: AtomicU32,
    /// The thread runs.
    runs: AtomicBool,
    /// The system refused, once: it is not asked again.
    refused: AtomicBool,
}

impl Chunks {
    /// That of the process, in private memory.
    #[must_use]
    pub const fn of_process() -> Self {
        Self(SourceOwner::Process)
    }

    /// One of its own, in files of memory: what consists of its chunks can be handed to another
    /// process ([`into_files`](Self::into_files)). First writes and chunks that are freed cost more
    /// there.
    #[must_use]
    pub fn in_files() -> Self {
        Self(SourceOwner::Own(Arc::new(ChunkSource::new(Arena::small_in_files(CHUNK_BYTES)))))
    }

    /// A zeroed chunk of [`CHUNK_BYTES`], under which a huge page is put as soon as that disturbs
    /// nobody. Aborts the process when memory is exhausted.
    #[must_use]
    pub fn take(&self) -> Pages {
        let source = self.source();
        let (pages, is_full) = source.arena.take();
        source.taken.fetch_add(1, Ordering::Relaxed);
        if is_full && !source.refused.load(Ordering::Relaxed) {
            self.start();
        }
        pages
    }

    /// Whether `pages` are a chunk in a file of this source.
    #[must_use]
    pub fn keeps(&self, pages: &Pages) -> bool {
        self.source().arena.keeps(pages)
    }

    /// Gives a chunk up without freeing it, as [`Arena::give_up`].
    ///
    /// # Errors
    /// It is in no file of this source, and is given back.
    pub fn give_up(&self, pages: Pages) -> Result<ChunkPlace, Pages> {
        self.source().arena.give_up(pages)
    }

    /// The files that the chunks are in, as [`Arena::into_files`].
    ///
    /// # Errors
    /// Somebody else has the source or a chunk, and nothing has changed; or it is that of the
    /// process.
    pub fn into_files(self) -> Result<Vec<ArenaFile>, Self> {
        let SourceOwner::Own(source) = self.0 else { return Err(self) };
        let source = Arc::try_unwrap(source).map_err(|source| Self(SourceOwner::Own(source)))?;
        let ChunkSource { arena, taken, runs, refused } = source;
        arena
            .into_files()
            .map_err(|arena| Self(SourceOwner::Own(Arc::new(ChunkSource { arena, taken, runs, refused }))))
    }

    fn source(&self) -> &ChunkSource {
        match &self.0 {
            SourceOwner::Process => &PROCESS,
            SourceOwner::Own(source) => source,
        }
    }

    /// Starts the thread if it does not run.
    fn start(&self) {
        if self.source().runs.swap(true, Ordering::AcqRel) {
            return;
        }
        // Without it chunks keep small pages.
        let chunks = self.clone();
        let thread = thread::Builder::new().name("ebof-pages".to_owned()).stack_size(64 << 10);
        if thread.spawn(move || chunks.source().run()).is_err() {
            self.source().runs.store(false, Ordering::Release);
        }
    }
}

impl fmt::Debug for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Chunks").field(&self.source().arena).finish()
    }
}

impl ChunkSource {
    const fn new(arena: Arena) -> Self {
        let (runs, refused) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { arena, taken: AtomicU32::new(0), runs, refused }
    }

    fn run(&self) {
        // Others have their turn first. Refused: it takes turns with them.
        let _same = rustix::process::nice(19);
        if is_forbidden() {
            self.refused.store(true, Ordering::Relaxed);
        }
        while !self.refused.load(Ordering::Relaxed) {
            self.await_quiet();
            let began = Instant::now();
            match self.arena.collapse() {
                Some(Ok(())) => thread::sleep(began.elapsed() * PAUSE),
                // None is left, or the memory is in use by a device: later ones may succeed.
                Some(Err(rustix::io::Errno::NOMEM | rustix::io::Errno::AGAIN | rustix::io::Errno::BUSY)) => {
                    thread::sleep(QUIET);
                }
                Some(Err(_)) => self.refused.store(true, Ordering::Relaxed),
                None => {
                    self.runs.store(false, Ordering::Release);
                    // Something may have come since.
                    if !self.arena.has_full_parts() || self.runs.swap(true, Ordering::AcqRel) {
                        return;
                    }
                }
            }
        }
        self.runs.store(false, Ordering::Release);
    }

    fn await_quiet(&self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let before = self.taken.load(Ordering::Relaxed);
            thread::sleep(QUIET);
            if self.taken.load(Ordering::Relaxed) == before || Instant::now() >= until {
                return;
            }
        }
    }
}

/// Whether the administrator has turned huge pages off. The system would put them there all the
/// same when it is asked so.
fn is_forbidden() -> bool {
    std::fs::read_to_string(ENABLED).is_ok_and(|text| text.contains("[never]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_keep_their_bytes_while_huge_pages_are_put_under_them() {
        for source in [Chunks::of_process(), Chunks::in_files()] {
            let mut chunks: Vec<Pages> = (0..64).map(|_| source.take()).collect();
            for (byte, chunk) in (1..).zip(&mut chunks) {
                assert!(chunk.as_bytes().len() == CHUNK_BYTES && chunk.as_bytes().iter().all(|byte| *byte == 0));
                chunk.as_mut_bytes().fill(byte);
            }
            // The thread ends when it has done what there was to do.
            let until = Instant::now() + Duration::from_secs(60);
            let ChunkSource { arena, runs, refused, .. } = source.source();
            while runs.load(Ordering::Acquire) && Instant::now() < until {
                for (byte, chunk) in (1..).zip(&mut chunks) {
                    assert!(chunk.as_bytes() == [byte; CHUNK_BYTES]);
                    chunk.as_mut_bytes()[0] = byte;
                }
                thread::yield_now();
            }
            assert!(!runs.load(Ordering::Acquire) && (refused.load(Ordering::Relaxed) || !arena.has_full_parts()));
            assert!((1..).zip(&chunks).all(|(byte, chunk)| chunk.as_bytes() == [byte; CHUNK_BYTES]));
        }
    }

    #[test]
    fn files_leave_the_process_only_when_nobody_has_a_chunk() {
        let chunks = Chunks::in_files();
        let (kept, other) = (chunks.take(), chunks.clone());
        let chunks = chunks.into_files().expect_err("another has the source");
        drop(other);
        let chunks = chunks.into_files().expect_err("a chunk has an owner");
        let place = chunks.give_up(kept).unwrap();
        let files = chunks.into_files().unwrap();
        assert!(files.len() == 1 && place.file == files[0].number && place.piece == 0);
        assert!(Chunks::of_process().into_files().is_err(), "private memory cannot leave");
    }
}
