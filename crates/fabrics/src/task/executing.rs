//! The outstanding commands of a queue, and the tickets of those under way: the owner of a ticket
//! has to complete the command.
//!
//! Tickets are made here only, for commands that are outstanding. What a command means, and what
//! its completion says, is the queue's matter.

use alloc::boxed::Box;

use ebof_nvme::opcode::{FABRICS, fabrics};
use ebof_nvme::{Cid, Nsid, Sqe};

/// The commands of one queue that are taken and not completed.
#[derive(Debug)]
pub(crate) struct Outstanding {
    cids: CidSet,
    count: usize,
    max: usize,
    /// Tickets given out.
    executing: usize,
}

impl Outstanding {
    /// None, and room for `max`.
    pub(crate) fn new(max: usize) -> Self {
        Self { cids: CidSet::default(), count: 0, max, executing: 0 }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// How many there may be.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count >= self.max
    }

    pub(crate) fn contains(&self, cid: Cid) -> bool {
        self.cids.contains(cid)
    }

    /// Tickets given out and not taken back.
    pub(crate) fn executing(&self) -> usize {
        self.executing
    }

    /// The command `cid` is outstanding from now on; `false` if there is no room, or a command of
    /// that identifier.
    #[inline]
    pub(crate) fn add(&mut self, cid: Cid) -> bool {
        let is_new = !self.is_full() && self.cids.insert(cid);
        self.count += usize::from(is_new);
        is_new
    }

    /// The same whether there is room or not.
    pub(crate) fn add_beyond(&mut self, cid: Cid) -> bool {
        let is_new = self.cids.insert(cid);
        self.count += usize::from(is_new);
        is_new
    }

    /// The command is completed, or will not be.
    ///
    /// # Panics
    /// It is not outstanding: each command ends once, by its ticket, of which there is one, or as a
    /// request that waits for an event, which then waits no more.
    #[inline]
    pub(crate) fn remove(&mut self, cid: Cid) {
        assert!(self.cids.remove(cid), "a command ends that is not outstanding");
        self.count -= 1;
    }

    /// The ticket of the outstanding command `sqe`, which moves `length` bytes of data.
    #[inline]
    pub(crate) fn ticket(&self, sqe: &Sqe, length: u32) -> Executing {
        debug_assert!(self.cids.contains(sqe.cid()), "a command that is not outstanding");
        Executing::new(sqe, length)
    }

    /// A ticket leaves the queue.
    #[inline]
    pub(crate) fn give_out(&mut self) {
        self.executing += 1;
    }

    /// A ticket comes back.
    #[inline]
    pub(crate) fn take_back(&mut self, executing: &Executing) {
        debug_assert!(self.cids.contains(executing.cid), "a ticket of another queue");
        // Tickets can be neither copied nor made up, so that each comes back once at most.
        self.executing = self.executing.checked_sub(1).expect("a ticket that comes back was given out");
    }
}

/// A command under way. Its owner has to call exactly one of `Queue::complete`,
/// `Queue::complete_with`, `Queue::fail` and `Queue::abandon`; it can be neither copied nor made
/// up.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a command that is not completed hangs the host"]
pub struct Executing {
    cid: Cid,
    opcode: u8,
    fctype: u8,
    nsid: Nsid,
    length: u32,
    /// Dwords 10 to 15.
    dwords: [u32; 6],
}

impl Executing {
    #[inline]
    fn new(sqe: &Sqe, length: u32) -> Self {
        Self {
            cid: sqe.cid(),
            opcode: sqe.opcode,
            fctype: sqe.fctype().unwrap_or(0),
            nsid: sqe.nsid(),
            length,
            dwords: [&sqe.cdw10, &sqe.cdw11, &sqe.cdw12, &sqe.cdw13, &sqe.cdw14, &sqe.cdw15].map(|dword| dword.get()),
        }
    }

    /// The same command, now that more is known of it.
    #[inline]
    pub(crate) fn with_length(self, length: u32) -> Self {
        Self { length, ..self }
    }

    /// The command without identifier and data pointer.
    pub(crate) fn sqe(&self) -> Sqe {
        let dwords = (10..).zip(self.dwords);
        dwords.fold(Sqe::new(self.opcode).with_nsid(self.nsid), |sqe, (at, dword)| sqe.with_cdw(at, dword))
    }

    pub(crate) fn cdw10(&self) -> u32 {
        self.dwords[0]
    }

    pub(crate) fn cdw11(&self) -> u32 {
        self.dwords[1]
    }

    /// FCTYPE of a Fabrics command, else 0.
    pub(crate) fn fctype(&self) -> u8 {
        self.fctype
    }

    /// Whether it is a Connect for an Admin Queue, which becomes that of a new controller.
    #[must_use]
    pub fn begins_controller(&self) -> bool {
        self.opcode == FABRICS && self.fctype == fabrics::CONNECT && self.cdw10() >> 16 == 0
    }

    /// The command identifier.
    #[must_use]
    pub fn cid(&self) -> Cid {
        self.cid
    }

    /// The opcode.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.opcode
    }

    /// The namespace that the command names.
    #[must_use]
    pub fn nsid(&self) -> Nsid {
        self.nsid
    }

    /// Data bytes to or from the host, as the command's data pointer says; for I/O commands that
    /// name blocks, the bytes of those without metadata.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// The first block that the command names; of commands that name none, whatever stands there.
    #[must_use]
    #[inline]
    pub fn starting_lba(&self) -> u64 {
        u64::from(self.dwords[0]) | u64::from(self.dwords[1]) << 32
    }
}

/// The outstanding command identifiers: a bit for each of 65536, 8 KiB, from the first command on.
#[derive(Debug, Default)]
struct CidSet {
    words: Option<Box<[u64; 1024]>>,
}

impl CidSet {
    /// Adds `cid`; `false` if it was there already.
    #[inline]
    fn insert(&mut self, cid: Cid) -> bool {
        let words = self.words.get_or_insert_with(|| Box::new([0; 1024]));
        let word = &mut words[usize::from(cid.0 >> 6)];
        let bit = 1 << (cid.0 & 63);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Removes `cid`; `false` if it was not there.
    #[inline]
    fn remove(&mut self, cid: Cid) -> bool {
        let Some(words) = &mut self.words else { return false };
        let word = &mut words[usize::from(cid.0 >> 6)];
        let bit = 1 << (cid.0 & 63);
        let was_there = *word & bit != 0;
        *word &= !bit;
        was_there
    }

    fn contains(&self, cid: Cid) -> bool {
        self.words.as_ref().is_some_and(|words| words[usize::from(cid.0 >> 6)] & 1 << (cid.0 & 63) != 0)
    }
}
