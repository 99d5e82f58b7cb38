//! Chunks: pieces of 128 KiB that memory drives consist of, and the buffers that are exchanged with
//! them, from one arena of the process.
//!
//! They have small pages at first, because the first write to a huge page waits until all of it is
//! there. A thread that exists only while there is something to do has huge pages put under them
//! when none have been taken for a moment. It does not decide what is in them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::arena::{Arena, Pages};

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

static CHUNKS: Arena = Arena::small_at_first(CHUNK_BYTES);
/// How many were taken, modulo 2^32: for who waits until that stops.
static TAKEN: AtomicU32 = AtomicU32::new(0);
/// The thread runs.
static RUNS: AtomicBool = AtomicBool::new(false);
/// The system refused, once: it is not asked again.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// A zeroed chunk. Aborts the process when memory is exhausted.
#[must_use]
pub(crate) fn take() -> Pages {
    let (pages, is_full) = CHUNKS.take();
    TAKEN.fetch_add(1, Ordering::Relaxed);
    if is_full && !REFUSED.load(Ordering::Relaxed) {
        start();
    }
    pages
}

/// Starts the thread if it does not run.
fn start() {
    if RUNS.swap(true, Ordering::AcqRel) {
        return;
    }
    // Without it chunks keep small pages.
    if thread::Builder::new().name("ebof-pages".to_owned()).stack_size(64 << 10).spawn(run).is_err() {
        RUNS.store(false, Ordering::Release);
    }
}

fn run() {
    // Others have their turn first. Refused: it takes turns with them.
    let _same = rustix::process::nice(19);
    if is_forbidden() {
        REFUSED.store(true, Ordering::Relaxed);
    }
    while !REFUSED.load(Ordering::Relaxed) {
        await_quiet();
        let began = Instant::now();
        match CHUNKS.collapse() {
            Some(Ok(())) => thread::sleep(began.elapsed() * PAUSE),
            // None is left, or the memory is in use by a device: later ones may succeed.
            Some(Err(rustix::io::Errno::NOMEM | rustix::io::Errno::AGAIN | rustix::io::Errno::BUSY)) => {
                thread::sleep(QUIET);
            }
            Some(Err(_)) => REFUSED.store(true, Ordering::Relaxed),
            None => {
                RUNS.store(false, Ordering::Release);
                // Something may have come since.
                if !CHUNKS.has_full_parts() || RUNS.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        }
    }
    RUNS.store(false, Ordering::Release);
}

fn await_quiet() {
    let until = Instant::now() + PATIENCE;
    loop {
        let before = TAKEN.load(Ordering::Relaxed);
        thread::sleep(QUIET);
        if TAKEN.load(Ordering::Relaxed) == before || Instant::now() >= until {
            return;
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
        let mut chunks: Vec<Pages> = (0..64).map(|_| take()).collect();
        for (byte, chunk) in (1..).zip(&mut chunks) {
            assert!(chunk.as_bytes().len() == CHUNK_BYTES && chunk.as_bytes().iter().all(|byte| *byte == 0));
            chunk.as_mut_bytes().fill(byte);
        }
        // The thread ends when it has done what there was to do.
        let until = Instant::now() + Duration::from_secs(60);
        while RUNS.load(Ordering::Acquire) && Instant::now() < until {
            for (byte, chunk) in (1..).zip(&mut chunks) {
                assert!(chunk.as_bytes() == [byte; CHUNK_BYTES]);
                chunk.as_mut_bytes()[0] = byte;
            }
            thread::yield_now();
        }
        assert!(!RUNS.load(Ordering::Acquire) && (REFUSED.load(Ordering::Relaxed) || !CHUNKS.has_full_parts()));
        assert!((1..).zip(&chunks).all(|(byte, chunk)| chunk.as_bytes() == [byte; CHUNK_BYTES]));
    }
}
