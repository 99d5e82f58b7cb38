//! A PCI function: what its queues and its client's socket share.
//!
//! All of it is used by one thread; a lock that nobody else takes makes it a shared thing.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebof_fabrics::{Handle, RingTask};
use ebof_nvme::property::{Cap, Csts, Version};
use ebof_nvme::{Cqe, DataPointer, QueueId, Sqe, Status};
use ebof_region::{MapError, SharedMapping, SharedPiece, Way};
use ebof_vfio::message::SetInterrupts;
use ebof_vfio::pci::{BAR_BYTES, Identity};
use ebof_vfio::pointer::{Piece, walk};
use ebof_vfio::registers::{AdminQueues, QUEUES_MAX, doorbell_offset};
use ebof_vfio::rings::{CompletionRing, RingError, Shadow, SubmissionRing};
use ebof_vfio::{Errno, Memory, PciFunction};

use super::footing::{Footing, Touch};
use super::interrupts::Signals;
use super::memory::HostMemory;

/// A function that several queues use.
pub(crate) type SharedFunction = Arc<Mutex<DirectFunction>>;

/// Takes the lock of a function.
#[inline]
pub(crate) fn lock(function: &SharedFunction) -> MutexGuard<'_, DirectFunction> {
    function.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Vendor and device of the function.
const IDENTITY: Identity = Identity { vendor: 0xeb0f, device: 0x0001, revision: 1 };

/// Memory pages have so many bytes: CC.MPS can be nothing else.
const PAGE_BYTES: u32 = 4096;

/// The function.
#[derive(Debug)]
pub(crate) struct DirectFunction {
    pub(crate) pci: PciFunction,
    pub(crate) memory: HostMemory,
    footing: Footing,
    pub(crate) signals: Signals,
    /// The host's queues. It rings doorbells of queues that it has deleted, deletes a Completion
    /// Queue while the connection of the Submission Queue is about to end, and resets the
    /// controller at any time: what is to be done with a queue that is not there is not done.
    submission: BTreeMap<u16, Submission>,
    completion: BTreeMap<u16, Completion>,
    /// The page of doorbells that the client has mapped: nothing tells when they are rung.
    doorbells: Option<(OwnedFd, Arc<SharedMapping>)>,
    /// The pages of the shadow doorbells and of their event indexes.
    shadow: Option<(u64, u64)>,
    /// Whether queues have to be looked at: their doorbells are memory.
    polls: Arc<AtomicBool>,
    /// Nothing is written to the host's memory any more: the controller is being reset, or the
    /// client is gone.
    pub(crate) is_quiet: bool,
    /// Its memory is left alone for a while: it kept the thread waiting.
    pub(crate) is_resting: bool,
    /// The controller has failed (CSTS.CFS): its queues are not memory, or it may not be enabled.
    pub(crate) is_fatal: bool,
    /// The write of a register has come to its end, with this status.
    pub(crate) register_written: Option<Status>,
    /// A doorbell of a queue had a value that it cannot have.
    has_invalid_doorbell: Arc<AtomicBool>,
    pieces: Vec<Piece>,
}

/// A Submission Queue, served by a connection.
#[derive(Debug)]
struct Submission {
    ring: SubmissionRing,
    /// The value of its mapped doorbell that was seen last.
    seen: u32,
    handle: Option<Handle>,
}

/// A Completion Queue.
#[derive(Debug)]
struct Completion {
    ring: CompletionRing,
    seen: u32,
    /// Completions that have no free entry yet, with queue and head at their time.
    pending: VecDeque<(Cqe, QueueId, u16)>,
}

/// Which connections have to look at their queues after a doorbell was rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The one of this queue.
    One(Handle),
    /// Those whose completions go to this queue.
    All(QueueId),
}

impl DirectFunction {
    /// After power-on, for a controller with so many I/O queues.
    pub(crate) fn new(cap: Cap, version: Version, io_queues: u16) -> Self {
        let queues = io_queues.saturating_add(1).min(QUEUES_MAX);
        let vectors = queues.min(ebof_fabrics::memory::VECTORS_MAX);
        Self {
            pci: PciFunction::new(IDENTITY, cap, version, vectors, queues),
            memory: HostMemory::new(),
            footing: Footing::new(),
            signals: Signals::default(),
            submission: BTreeMap::new(),
            completion: BTreeMap::new(),
            doorbells: None,
            shadow: None,
            polls: Arc::default(),
            is_quiet: false,
            is_resting: false,
            is_fatal: false,
            register_written: None,
            has_invalid_doorbell: Arc::default(),
            pieces: Vec::new(),
        }
    }

    /// Whether queues have to be looked at, without the lock.
    pub(crate) fn polls(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.polls)
    }

    /// Whether a doorbell had a value that it cannot have, and the host is to be told, without the
    /// lock.
    pub(crate) fn has_invalid_doorbell(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_invalid_doorbell)
    }

    /// Whether that has happened since this was last asked.
    pub(crate) fn take_invalid_doorbell(&self) -> bool {
        self.has_invalid_doorbell.swap(false, Ordering::Relaxed)
    }

    /// `DEVICE_SET_IRQS`. Descriptors that are not used are left.
    ///
    /// # Errors
    /// As with [`Signals::set`].
    pub(crate) fn set_interrupts(
        &mut self,
        set: &SetInterrupts<'_>,
        descriptors: &mut VecDeque<OwnedFd>,
    ) -> Result<(), Errno> {
        self.signals.set(&mut self.pci.vectors, set, descriptors)
    }

    /// Offers the page of doorbells for mapping.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub(crate) fn map_doorbells(&mut self) -> Result<(), MapError> {
        self.doorbells = Some(SharedMapping::create("ebof doorbells", BAR_BYTES)?);
        self.polls.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The file of the page of doorbells, for the client; it begins where the region does.
    pub(crate) fn doorbells(&self) -> Option<OwnedFd> {
        self.doorbells.as_ref().and_then(|(file, _)| file.try_clone().ok())
    }

    /// Whether doorbells are rung that nothing tells of.
    pub(crate) fn has_mapped_doorbells(&self) -> bool {
        self.doorbells.is_some()
    }

    /// The value of a mapped doorbell.
    #[inline]
    fn mapped(&self, queue: QueueId, is_completion: bool) -> Option<u32> {
        let (_, page) = self.doorbells.as_ref()?;
        page.load(usize::try_from(doorbell_offset(queue, is_completion)).ok()?)
    }

    /// Writes a mapped doorbell, as the host did by a message, or for a new queue.
    fn put_mapped(&self, queue: QueueId, is_completion: bool, value: u32) {
        if let Some((_, page)) = &self.doorbells
            && let Ok(at) = usize::try_from(doorbell_offset(queue, is_completion))
        {
            // Queues that there are have doorbells in the page.
            let _ = page.store(at, value);
        }
    }

    /// Looks at the mapped doorbells of a queue, and of the one that its completions go to.
    fn look_at_mapped(&mut self, queue: QueueId) {
        if self.doorbells.is_none() {
            return;
        }
        let tail = self.mapped(queue, false);
        let Some(submission) = self.submission.get_mut(&queue.0) else { return };
        let to = submission.ring.completion_queue();
        if let Some(tail) = tail.filter(|tail| *tail != submission.seen) {
            submission.seen = tail;
            let rung = match u16::try_from(tail) {
                Ok(tail) => submission.ring.ring(tail, &self.memory),
                Err(_) => Err(RingError::Value { value: tail, entries: submission.ring.entries() }),
            };
            self.note(rung);
        }
        let head = self.mapped(to, true);
        let Some(completion) = self.completion.get_mut(&to.0) else { return };
        if let Some(head) = head.filter(|head| *head != completion.seen) {
            completion.seen = head;
            let rung = match u16::try_from(head) {
                Ok(head) => completion.ring.ring(head, &self.memory),
                Err(_) => Err(RingError::Value { value: head, entries: completion.ring.entries() }),
            };
            if self.note(rung).is_some() {
                self.flush(to);
            }
        }
    }

    /// Forgets all queues: the controller was reset.
    pub(crate) fn forget_queues(&mut self) {
        self.submission.clear();
        self.completion.clear();
        self.shadow = None;
        self.polls.store(self.doorbells.is_some(), Ordering::Relaxed);
        self.register_written = None;
        self.has_invalid_doorbell.store(false, Ordering::Relaxed);
        self.is_quiet = false;
        self.is_fatal = false;
        // What failed was the last controller's.
        let _ = self.memory.take_failed();
    }

    /// CSTS, as the controller's Admin Queue has it; `None` if there is none.
    pub(crate) fn set_status(&mut self, csts: Option<Csts>) {
        let fatal = if self.is_fatal { Csts::FATAL } else { 0 };
        // Where there is nothing to shut down, SHST follows SHN at once.
        let csts = csts.unwrap_or_else(|| match self.pci.registers.configuration().shutdown() {
            0 => Csts(0),
            _ => Csts(Csts::SHUTDOWN_COMPLETE),
        });
        self.pci.registers.set_status(Csts(csts.0 | fatal));
    }

    /// Creates the Admin Queues.
    pub(crate) fn open_admin(&mut self, admin: &AdminQueues) {
        let completion = CompletionRing::new(admin.completion, admin.completion_entries, Some(0));
        let submission = SubmissionRing::new(admin.submission, admin.submission_entries, QueueId(0));
        self.completion.insert(0, Completion { ring: completion, pending: VecDeque::new(), seen: 0 });
        self.submission.insert(0, Submission { ring: submission, handle: None, seen: 0 });
        self.pci.registers.open_completion(QueueId(0), admin.completion_entries);
        self.pci.registers.open_submission(QueueId(0), admin.submission_entries);
        self.put_mapped(QueueId(0), false, 0);
        self.put_mapped(QueueId(0), true, 0);
    }

    /// Which connection serves a queue.
    pub(crate) fn set_handle(&mut self, queue: QueueId, handle: Handle) {
        if let Some(submission) = self.submission.get_mut(&queue.0) {
            submission.handle = Some(handle);
        }
    }

    /// Changes the I/O queues. A new Submission Queue has no connection yet.
    ///
    /// # Errors
    /// The status of the command.
    pub(crate) fn change_rings(&mut self, task: &RingTask) -> Result<(), Status> {
        match *task {
            RingTask::CreateCompletionQueue { id, entries, base, vector } => {
                // Where there is no doorbell there is no shadow of it, either.
                opened(self.pci.registers.open_completion(id, entries.into()))?;
                let mut ring = CompletionRing::new(base, entries.into(), vector);
                if ring.set_shadow(self.shadow_of(id, true), &self.memory).is_err() {
                    self.pci.registers.close_completion(id);
                    return Err(Status::INTERNAL_ERROR);
                }
                self.put_mapped(id, true, 0);
                self.completion.insert(id.0, Completion { ring, pending: VecDeque::new(), seen: 0 });
                Ok(())
            }
            RingTask::DeleteCompletionQueue { id } => {
                self.completion.remove(&id.0);
                self.pci.registers.close_completion(id);
                Ok(())
            }
            RingTask::CreateSubmissionQueue { id, entries, base, completion } => {
                opened(self.pci.registers.open_submission(id, entries.into()))?;
                let mut ring = SubmissionRing::new(base, entries.into(), completion);
                if ring.set_shadow(self.shadow_of(id, false), &self.memory).is_err() {
                    self.pci.registers.close_submission(id);
                    return Err(Status::INTERNAL_ERROR);
                }
                self.put_mapped(id, false, 0);
                self.submission.insert(id.0, Submission { ring, handle: None, seen: 0 });
                Ok(())
            }
            RingTask::ShadowDoorbells { doorbells, event_indexes } => self.use_shadow(doorbells, event_indexes),
        }
    }

    /// The I/O Submission Queue got no connection.
    pub(crate) fn withdraw_submission(&mut self, queue: QueueId) {
        self.submission.remove(&queue.0);
        self.pci.registers.close_submission(queue);
    }

    /// The I/O Submission Queue is gone.
    pub(crate) fn close_submission(&mut self, queue: QueueId, handle: Handle) {
        let is_its = self.submission.get(&queue.0).is_some_and(|submission| submission.handle == Some(handle));
        if is_its {
            self.submission.remove(&queue.0);
            self.pci.registers.close_submission(queue);
        }
    }

    fn shadow_of(&self, queue: QueueId, is_completion: bool) -> Option<Shadow> {
        self.shadow.map(|(doorbells, events)| Shadow::for_queue(doorbells, events, queue, is_completion))
    }

    /// Doorbell Buffer Config: for the queues that there are, and those that come. The Admin Queue
    /// has its registers only, as with Linux and QEMU.
    fn use_shadow(&mut self, doorbells: u64, events: u64) -> Result<(), Status> {
        // Both pages have to be memory.
        let mut probe = [0; 4];
        for page in [doorbells, events] {
            let last = page.checked_add(u64::from(PAGE_BYTES) - 4).ok_or(Status::DATA_TRANSFER_ERROR.dnr())?;
            for at in [page, last] {
                self.memory.read(at, &mut probe).map_err(|_| Status::DATA_TRANSFER_ERROR.dnr())?;
                self.memory.write(at, &probe).map_err(|_| Status::DATA_TRANSFER_ERROR.dnr())?;
            }
        }
        self.shadow = Some((doorbells, events));
        let memory = &self.memory;
        let failed = |_| Status::DATA_TRANSFER_ERROR.dnr();
        for (&id, submission) in self.submission.iter_mut().filter(|(id, _)| **id != 0) {
            let shadow = Shadow::for_queue(doorbells, events, QueueId(id), false);
            submission.ring.set_shadow(Some(shadow), memory).map_err(failed)?;
        }
        for (&id, completion) in self.completion.iter_mut().filter(|(id, _)| **id != 0) {
            let shadow = Shadow::for_queue(doorbells, events, QueueId(id), true);
            completion.ring.set_shadow(Some(shadow), memory).map_err(failed)?;
        }
        self.polls.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the host's memory may be accessed: neither is the function out of order or left
    /// alone for a while, nor has the host taken it off the bus.
    #[inline]
    fn may_access(&self) -> bool {
        !self.is_quiet && !self.is_fatal && !self.is_resting && self.pci.config.is_bus_master()
    }

    /// The function is a bus master again: writes what was completed meanwhile.
    pub(crate) fn flush_all(&mut self) {
        let ids: Vec<u16> = self.completion.keys().copied().collect();
        ids.into_iter().for_each(|id| self.flush(QueueId(id)));
    }

    /// A Submission Queue's doorbell was rung.
    pub(crate) fn on_tail(&mut self, queue: QueueId, tail: u16) -> Option<Look> {
        self.put_mapped(queue, false, tail.into());
        let may_access = self.may_access();
        let submission = self.submission.get_mut(&queue.0)?;
        submission.seen = tail.into();
        if submission.ring.has_shadow() && !may_access {
            return None;
        }
        let rung = submission.ring.ring(tail, &self.memory);
        let handle = submission.handle;
        self.note(rung)?;
        handle.map(Look::One)
    }

    /// A Completion Queue's doorbell was rung: what waited for room is written.
    pub(crate) fn on_head(&mut self, queue: QueueId, head: u16) -> Option<Look> {
        self.put_mapped(queue, true, head.into());
        let may_access = self.may_access();
        let completion = self.completion.get_mut(&queue.0)?;
        completion.seen = head.into();
        if completion.ring.has_shadow() && !may_access {
            return None;
        }
        let waited = !completion.pending.is_empty();
        let rung = completion.ring.ring(head, &self.memory);
        self.note(rung)?;
        self.flush(queue);
        waited.then_some(Look::All(queue))
    }

    /// The connections whose completions go to a queue.
    pub(crate) fn handles_of(&self, completion: QueueId) -> Vec<Handle> {
        let to_it = self.submission.values().filter(|submission| submission.ring.completion_queue() == completion);
        to_it.filter_map(|submission| submission.handle).collect()
    }

    /// Takes note of what is wrong with a queue.
    fn note<T>(&mut self, result: Result<T, RingError>) -> Option<T> {
        match result {
            Ok(value) => return Some(value),
            Err(RingError::Fault(_)) => self.is_fatal = true,
            Err(RingError::Value { .. }) => self.has_invalid_doorbell.store(true, Ordering::Relaxed),
        }
        None
    }

    /// Copies up to `max` commands out of a queue. Returns how many; more may be there.
    pub(crate) fn receive(&mut self, queue: QueueId, into: &mut VecDeque<Sqe>, max: usize) -> usize {
        if !self.may_access() {
            return 0;
        }
        self.look_at_mapped(queue);
        self.flush_waiting(queue);
        let Some(submission) = self.submission.get_mut(&queue.0) else { return 0 };
        let looked = submission.ring.poll(&self.memory);
        if self.note(looked).is_none() {
            return 0;
        }
        let Some(submission) = self.submission.get_mut(&queue.0) else { return 0 };
        let mut count = 0;
        while count < max {
            match submission.ring.next(&self.memory) {
                Ok(Some(sqe)) => into.push_back(sqe),
                Ok(None) => break,
                Err(_) => {
                    self.is_fatal = true;
                    break;
                }
            }
            count += 1;
        }
        count
    }

    /// Has the host ring a queue's doorbell register for the next command. `false`: there is one.
    pub(crate) fn arm(&mut self, queue: QueueId) -> bool {
        if !self.may_access() {
            return true;
        }
        self.look_at_mapped(queue);
        let Some(submission) = self.submission.get_mut(&queue.0) else { return true };
        let armed = submission.ring.arm(&self.memory);
        let to = submission.ring.completion_queue();
        // What is wrong with it is dealt with first.
        let is_silent = self.note(armed).unwrap_or(false);
        is_silent & self.arm_completions(to)
    }

    /// The same for a queue whose commands wait, and no more are taken: only room for completions
    /// matters.
    pub(crate) fn arm_completions_of(&mut self, queue: QueueId) -> bool {
        if !self.may_access() {
            return true;
        }
        self.look_at_mapped(queue);
        let to = self.submission.get(&queue.0).map(|submission| submission.ring.completion_queue());
        to.is_none_or(|to| self.arm_completions(to))
    }

    /// Where completions wait for the host to take others.
    fn arm_completions(&mut self, queue: QueueId) -> bool {
        let Some(completion) = self.completion.get_mut(&queue.0) else { return true };
        if completion.pending.is_empty() {
            return true;
        }
        let armed = completion.ring.arm(&self.memory);
        if self.note(armed) == Some(true) {
            return true;
        }
        self.flush(queue);
        false
    }

    /// Whether the Completion Queue of a queue takes the completion of another command soon.
    pub(crate) fn has_room(&mut self, queue: QueueId) -> bool {
        let Some(submission) = self.submission.get(&queue.0) else { return true };
        let to = submission.ring.completion_queue();
        let has_room = |function: &Self| {
            let completion = function.completion.get(&to.0);
            completion.is_none_or(|completion| completion.pending.len() < completion.ring.entries() as usize)
        };
        if has_room(self) {
            return true;
        }
        // The host may have taken some, which a doorbell in memory does not tell.
        self.look_at_mapped(queue);
        self.flush(to);
        has_room(self)
    }

    /// Writes completions that had no room until now.
    fn flush_waiting(&mut self, queue: QueueId) {
        let Some(submission) = self.submission.get(&queue.0) else { return };
        let to = submission.ring.completion_queue();
        if self.completion.get(&to.0).is_some_and(|completion| !completion.pending.is_empty()) {
            self.flush(to);
        }
    }

    /// Queues the completion of a command of `queue`.
    pub(crate) fn complete(&mut self, queue: QueueId, cqe: &Cqe) {
        if self.is_quiet {
            return;
        }
        if self.memory.take_failed() {
            // What was to be transferred is lost.
            self.is_fatal = true;
        }
        let Some(submission) = self.submission.get(&queue.0) else { return };
        let head = submission.ring.head();
        if let Some(completion) = self.completion.get_mut(&submission.ring.completion_queue().0) {
            completion.pending.push_back((*cqe, queue, head));
        }
    }

    /// Writes the completions that were queued for commands of `queue`, as many as have room.
    pub(crate) fn flush_of(&mut self, queue: QueueId) {
        if let Some(to) = self.submission.get(&queue.0).map(|submission| submission.ring.completion_queue()) {
            self.flush(to);
        }
    }

    fn flush(&mut self, queue: QueueId) {
        let may_access = self.may_access();
        let Some(completion) = self.completion.get_mut(&queue.0) else { return };
        if !may_access {
            if self.is_quiet || self.is_fatal {
                completion.pending.clear();
            }
            return;
        }
        let mut written = false;
        let mut result = Ok(());
        while let Some((cqe, of, head)) = completion.pending.front() {
            match completion.ring.push(cqe, *of, *head, &self.memory) {
                Ok(true) => {
                    completion.pending.pop_front();
                    written = true;
                }
                Ok(false) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let vector = completion.ring.vector().filter(|_| written);
        self.note(result);
        if let Some(vector) = vector
            && self.pci.vectors.raise(vector)
        {
            self.signals.signal(vector);
        }
    }

    /// The memory of a transfer.
    ///
    /// # Errors
    /// The status of the command.
    pub(crate) fn memory_of(
        &mut self,
        pointer: &DataPointer,
        length: u32,
        way: Way,
    ) -> Result<Vec<SharedPiece>, Status> {
        self.walk(pointer, length, way)?;
        self.memory.pieces(&self.pieces, way).map_err(|_| Status::DATA_TRANSFER_ERROR.dnr())
    }

    fn walk(&mut self, pointer: &DataPointer, length: u32, way: Way) -> Result<(), Status> {
        self.pieces.clear();
        walk(pointer, length, PAGE_BYTES, &self.memory, &mut self.pieces)?;
        if self.footing.take(length.into()) == Touch::Present && !self.memory.are_present(&self.pieces, way) {
            // There may be room again later.
            return Err(Status::DATA_TRANSFER_ERROR);
        }
        Ok(())
    }

    /// Copies data out of the host's memory.
    ///
    /// # Errors
    /// The status of the command.
    pub(crate) fn fetch(&mut self, pointer: &DataPointer, into: &mut [u8]) -> Result<(), Status> {
        self.walk(pointer, u32::try_from(into.len()).unwrap_or(u32::MAX), Way::FromHost)?;
        let mut rest = into;
        for piece in &self.pieces {
            let (now, later) = rest.split_at_mut(piece.length as usize);
            self.memory.read(piece.address, now).map_err(|_| Status::DATA_TRANSFER_ERROR.dnr())?;
            rest = later;
        }
        Ok(())
    }

    /// Copies data into the host's memory.
    ///
    /// # Errors
    /// The status of the command.
    pub(crate) fn send(&mut self, pointer: &DataPointer, data: &[u8]) -> Result<(), Status> {
        if self.is_quiet {
            return Ok(());
        }
        self.walk(pointer, u32::try_from(data.len()).unwrap_or(u32::MAX), Way::ToHost)?;
        let mut rest = data;
        for piece in &self.pieces {
            let (now, later) = rest.split_at(piece.length as usize);
            self.memory.write(piece.address, now).map_err(|_| Status::DATA_TRANSFER_ERROR.dnr())?;
            rest = later;
        }
        Ok(())
    }
}

fn opened(is_open: bool) -> Result<(), Status> {
    // What the controller announces are as many as there are doorbells.
    if is_open { Ok(()) } else { Err(Status::INTERNAL_ERROR) }
}

#[cfg(test)]
mod tests;
