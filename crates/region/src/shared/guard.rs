//! Mappings of files that may become shorter, and what happens to a thread that accesses a page of
//! one that is gone: the system sends it SIGBUS, which by default ends the process.
//!
//! Owns the table of these mappings and the handler of that signal, which is the process' own from
//! the first such mapping on. The handler puts a page of zeros where one is missing and notes that
//! the mapping is lost; the access continues, and whoever made it checks afterwards. Any other
//! SIGBUS is passed on to the handler that was there before. Maps no files.
//!
//! It rests on three rules.
//!
//! - A thread that accesses a mapping holds it, so neither its addresses nor its place in the table
//!   change meanwhile.
//! - The place is given up before the addresses are.
//! - The handler does what a handler may (signal-safety(7)): it loads and stores atomic values, and
//!   calls the system. It takes no lock and no memory.

use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering, compiler_fence, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A mapping's place in the table, until it is dropped.
#[derive(Debug)]
pub(super) struct Guard(&'static Place);

impl Guard {
    /// Guards `bytes` from `first` on, which are mapped with `protection` in pages of `page_bytes`.
    ///
    /// # Errors
    /// The system gives no handler.
    pub(super) fn new(first: usize, bytes: usize, page_bytes: usize, protection: libc::c_int) -> io::Result<Self> {
        install()?;
        let mut free = lock(&FREE);
        if free.is_empty() {
            free.extend(add_block());
        }
        let place = free.pop().expect("a block has places");
        place.is_lost.store(false, Ordering::Relaxed);
        place.set(Range { first, bytes, page_bytes, protection });
        Ok(Self(place))
    }

    /// Whether something of the mapping was gone when it was accessed. To be asked after an access:
    /// what was read is of no use then.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        // The handler runs within the access, on the thread that made it.
        compiler_fence(Ordering::SeqCst);
        // Another thread may have met the missing page: who has read its zeros sees that here.
        fence(Ordering::Acquire);
        self.0.is_lost.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.set(Range { first: 0, bytes: 0, page_bytes: 0, protection: 0 });
        lock(&FREE).push(self.0);
    }
}

/// What is mapped at a place.
#[derive(Clone, Copy)]
struct Range {
    first: usize,
    bytes: usize,
    page_bytes: usize,
    protection: libc::c_int,
}

/// What is replaced at once, if a page of the file is not larger. An access that meets many missing
/// pages, one after the other, makes few mappings of them.
const PART_BYTES: usize = 2 << 20;

impl Range {
    /// The part of it with `address` that is replaced.
    fn part(&self, address: usize) -> std::ops::Range<usize> {
        let bytes = self.page_bytes.max(PART_BYTES);
        let begin = address - (address - self.first) % bytes;
        begin..(begin + bytes).min(self.first + self.bytes)
    }
}

/// A [`Range`] that a handler may read at any time, and whether it is lost.
#[derive(Debug)]
struct Place {
    /// Odd while the range changes.
    version: AtomicUsize,
    first: AtomicUsize,
    bytes: AtomicUsize,
    page_bytes: AtomicUsize,
    protection: AtomicI32,
    is_lost: AtomicBool,
}

impl Place {
    const fn new() -> Self {
        Self {
            version: AtomicUsize::new(0),
            first: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            page_bytes: AtomicUsize::new(0),
            protection: AtomicI32::new(0),
            is_lost: AtomicBool::new(false),
        }
    }

    /// Only whoever has taken the place does so.
    fn set(&self, range: Range) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.first.store(range.first, Ordering::Relaxed);
        self.bytes.store(range.bytes, Ordering::Relaxed);
        self.page_bytes.store(range.page_bytes, Ordering::Relaxed);
        self.protection.store(range.protection, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// The range, unless it changes: then it is not the one that the thread accesses.
    fn get(&self) -> Option<Range> {
        let version = self.version.load(Ordering::Acquire);
        let range = Range {
            first: self.first.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            page_bytes: self.page_bytes.load(Ordering::Relaxed),
            protection: self.protection.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        (version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version).then_some(range)
    }

    /// Puts zeros in place of what is around `address`. Whether that was possible.
    fn replace(&self, range: Range, address: usize) -> bool {
        // Before anybody can see zeros.
        self.is_lost.store(true, Ordering::Relaxed);
        fence(Ordering::Release);
        let part = range.part(address);
        // All of it takes no further mapping, of which a process may have so many.
        put_zeros(part.start, part.len(), range.protection) || put_zeros(range.first, range.bytes, range.protection)
    }
}

/// Maps zeros over a part of a guarded range.
fn put_zeros(first: usize, bytes: usize, protection: libc::c_int) -> bool {
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let first = ptr::with_exposed_provenance_mut(first);
    // SAFETY: the range is of a mapping that the thread which was interrupted holds, whose bytes
    // change at any time anyway.
    // JUSTIFICATION: there is no safe interface.
    let mapped = unsafe { libc::mmap(first, bytes, protection, flags, -1, 0) };
    mapped != libc::MAP_FAILED
}

const BLOCK_PLACES: usize = 64;

/// Places are never given back, since a handler may read any of them.
struct Block {
    places: [Place; BLOCK_PLACES],
    next: OnceLock<Box<Block>>,
}

static BLOCKS: OnceLock<Box<Block>> = OnceLock::new();
/// Those that are nobody's.
static FREE: Mutex<Vec<&'static Place>> = Mutex::new(Vec::new());

fn lock(free: &'static Mutex<Vec<&'static Place>>) -> MutexGuard<'static, Vec<&'static Place>> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

fn blocks() -> impl Iterator<Item = &'static Block> {
    std::iter::successors(BLOCKS.get(), |block| block.next.get()).map(Box::as_ref)
}

/// More places. The caller has the lock of the free ones.
fn add_block() -> &'static [Place] {
    let end = blocks().last().map_or(&BLOCKS, |block| &block.next);
    let places = [const { Place::new() }; BLOCK_PLACES];
    &end.get_or_init(|| Box::new(Block { places, next: OnceLock::new() })).places
}

/// What handled the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Has the process handle the signal, once.
fn install() -> io::Result<()> {
    static DONE: Mutex<bool> = Mutex::new(false);
    let mut is_done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_done {
        return Ok(());
    }
    // Known before a signal can come to ours.
    let before = action_of(libc::SIGBUS)?;
    BEFORE.get_or_init(|| before);
    let mut ours = no_action();
    ours.sa_sigaction = handle as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler takes what SA_SIGINFO gives, and keeps to signal-safety(7).
    // JUSTIFICATION: an access to memory that is gone is reported by a signal only.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *is_done = true;
    Ok(())
}

fn no_action() -> libc::sigaction {
    // SAFETY: all of it may be zero: no handler, no flags, no signals.
    // JUSTIFICATION: it is the system's structure, and has fields that are not named.
    unsafe { mem::zeroed() }
}

/// What is done about a signal now. A handler may ask.
fn action_of(signal: libc::c_int) -> io::Result<libc::sigaction> {
    let mut action = no_action();
    // SAFETY: it is only asked, and the structure is there.
    // JUSTIFICATION: there is no safe interface.
    match unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) } {
        0 => Ok(action),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system gives a structure that lives as long as the handler runs; for these codes
    // it has an address, and the bytes are there for all.
    // JUSTIFICATION: the interface of handlers.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // By an access, not by whoever sends a signal.
    let is_access = code == libc::BUS_ADRERR || code == libc::BUS_MCEERR_AR;
    // SAFETY: the thread's own, which lives as long as the thread.
    // JUSTIFICATION: what was interrupted may be about to read it.
    let (errno, before) = unsafe { (libc::__errno_location(), *libc::__errno_location()) };
    let is_replaced = is_access && find(address).is_some_and(|(place, range)| place.replace(range, address));
    if !is_replaced {
        pass_on(signal, is_access, info, context);
    }
    // SAFETY: as above.
    // JUSTIFICATION: as above.
    unsafe { *errno = before };
}

fn find(address: usize) -> Option<(&'static Place, Range)> {
    let places = blocks().flat_map(|block| &block.places);
    places
        .filter_map(|place| Some((place, place.get()?)))
        .find(|(_, range)| address.checked_sub(range.first).is_some_and(|offset| offset < range.bytes))
}

/// Does what would have been done without this file.
fn pass_on(signal: libc::c_int, is_access: bool, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type Plain = extern "C" fn(libc::c_int);
    type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    let (action, flags) = BEFORE.get().map_or((libc::SIG_DFL, 0), |before| (before.sa_sigaction, before.sa_flags));
    match action {
        // A signal of an access cannot be ignored.
        libc::SIG_IGN if !is_access => return,
        libc::SIG_DFL | libc::SIG_IGN => return end(signal),
        action if flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with this flag it is a function of these three.
            // JUSTIFICATION: the system represents handlers as numbers.
            let action = unsafe { mem::transmute::<usize, WithInfo>(action) };
            action(signal, info, context);
        }
        action => {
            // SAFETY: without the flag it is a function of the signal.
            // JUSTIFICATION: as above.
            let action = unsafe { mem::transmute::<usize, Plain>(action) };
            action(signal);
        }
    }
    // The handler of Rust's library asks for the default and returns, since an access comes again.
    // What was sent does not: without this, the process would go on without a handler.
    if !is_access && action_of(signal).is_ok_and(|now| now.sa_sigaction == libc::SIG_DFL) {
        end(signal);
    }
}

/// Ends the process by the default of the signal, as soon as the handler returns.
fn end(signal: libc::c_int) {
    // SAFETY: the default needs no handler; what is raised comes when this one is over.
    // JUSTIFICATION: there is no safe interface.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

#[cfg(test)]
mod tests;
