//! Queues in the host's memory: commands are copied out of a ring, completions into another one,
//! and data are where the host says.
//!
//! Owns what was copied out and is not taken. The rings are the function's, which its queues share.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ebof_backend::{Buffer, Device, Segments};
use ebof_fabrics::RingTask;
use ebof_fabrics::queue::REGISTER_WRITE;
use ebof_nvme::{Cid, Cqe, DataPointer, QueueId, Sqe, Status};
use ebof_region::Way;

use super::event::AWAITED;
use super::transport::{BLOCKS, IN_MEMORY, Lender, Notifier, Polled, Rings, Transport};
use super::{End, Event, Fetch, Flushed, Mapping, Received, Stopped};
use crate::direct::{DirectFunction, SharedFunction, lock};
use crate::ports::peer::Peer;
use crate::shared::buffer::Pool;
use crate::shared::reactor_context::ReactorContext;

/// Commands that are copied out at a time.
const BATCH: usize = 32;

/// One queue's rings.
pub(crate) struct Ring {
    function: SharedFunction,
    polls: Arc<AtomicBool>,
    has_invalid_doorbell: Arc<AtomicBool>,
    queue: QueueId,
    /// Copied out and not taken yet.
    commands: VecDeque<Sqe>,
    /// Where the data of the commands are that are under way.
    pointers: HashMap<Cid, DataPointer, Spread>,
    /// Data that are in their buffers, and not reported yet.
    fetched: VecDeque<(u32, Buffer, bool)>,
    /// Completions were queued since the last flush.
    has_completions: bool,
    has_ended: bool,
}

/// Spreads command identifiers in a table. One that a host fills with its worst ones costs a look
/// at 256 entries, because there are few identifiers.
type Spread = BuildHasherDefault<SpreadIdentifiers>;

#[derive(Default)]
struct SpreadIdentifiers(u64);

impl Hasher for SpreadIdentifiers {
    #[inline]
    fn write_u16(&mut self, identifier: u16) {
        // The table takes its place from the low bits, and a tag from the high ones.
        let product = u64::from(identifier).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

impl Ring {
    /// The rings of a queue, which exist.
    pub(crate) fn new(function: SharedFunction, queue: QueueId) -> Self {
        let (polls, has_invalid_doorbell) = {
            let function = lock(&function);
            (function.polls(), function.has_invalid_doorbell())
        };
        Self {
            function,
            polls,
            has_invalid_doorbell,
            queue,
            commands: VecDeque::new(),
            pointers: HashMap::default(),
            fetched: VecDeque::new(),
            has_completions: false,
            has_ended: false,
        }
    }

    /// The command is refused before anybody else sees it: FFFFh names a write of a register.
    fn refuse(&mut self, sqe: &Sqe) {
        let cqe = Cqe::new(sqe.cid(), Status::INVALID_FIELD.dnr());
        lock(&self.function).complete(self.queue, &cqe);
        self.has_completions = true;
    }

    fn complete(&mut self, cqe: &Cqe, send: impl FnOnce(&mut DirectFunction, &DataPointer) -> Result<(), Status>) {
        let cid = cqe.cid();
        let mut function = self.function.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if cid == REGISTER_WRITE && self.queue.is_admin() {
            function.register_written = Some(cqe.status());
            return;
        }
        let pointer = self.pointers.remove(&cid).unwrap_or(DataPointer::NONE);
        match send(&mut function, &pointer) {
            Ok(()) => function.complete(self.queue, cqe),
            // What was to go there is not where the host wanted it.
            Err(status) => function.complete(self.queue, &Cqe::new(cid, status)),
        }
        self.has_completions = true;
    }
}

impl Transport for Ring {
    fn notifier(&self) -> Notifier<'_> {
        Notifier::Bell
    }

    fn is_initialized(&self) -> bool {
        true
    }

    fn receive(&mut self, _limit: usize, _scratch: &mut [u8]) -> Result<Option<Received>, End> {
        if self.has_ended {
            return Err(End::PeerClosed);
        }
        let count = lock(&self.function).receive(self.queue, &mut self.commands, BATCH);
        let total = count * size_of::<Sqe>();
        // A whole batch means that there may be more.
        let room = if count == BATCH { total } else { usize::MAX };
        Ok((count > 0).then_some(Received { total, in_scratch: 0, room }))
    }

    fn is_at_command(&self, _input: &[u8]) -> bool {
        self.fetched.is_empty() && !self.commands.is_empty()
    }

    fn poll(&mut self, _input: &mut &[u8], draining: bool) -> Result<Option<Event>, End> {
        if let Some((slot, buffer, is_intact)) = self.fetched.pop_front() {
            return Ok(Some(Event::Fetched { slot, buffer, is_intact }));
        }
        let Some(sqe) = self.commands.pop_front() else { return Ok(None) };
        if draining {
            return Ok(Some(Event::Progress { answered: false }));
        }
        if self.queue.is_admin() && sqe.cid() == REGISTER_WRITE {
            self.refuse(&sqe);
            return Ok(Some(Event::Progress { answered: true }));
        }
        // A host that uses an identifier twice confuses its own data only.
        self.pointers.insert(sqe.cid(), sqe.data_pointer());
        Ok(Some(Event::Command { sqe, in_capsule: 0 }))
    }

    fn unparsed(&self) -> usize {
        self.commands.len() + self.fetched.len()
    }

    fn fetch(&mut self, mut fetch: Fetch) -> Result<(), Buffer> {
        let length = fetch.length as usize;
        let into = &mut fetch.buffer.as_mut_slice()[fetch.offset..fetch.offset + length];
        let is_intact = lock(&self.function).fetch(&fetch.pointer, into).is_ok();
        self.fetched.push_back((fetch.slot, fetch.buffer, is_intact));
        Ok(())
    }

    fn stop_fetching(&mut self, _cid: Cid, slot: u32) -> Stopped {
        let at = self.fetched.iter().position(|(of, ..)| *of == slot).expect(AWAITED);
        let (_, buffer, _) = self.fetched.remove(at).expect("its place was found");
        Stopped::Ended(buffer)
    }

    // What is in line there makes that of the other transports a call, too.
    #[inline(never)]
    fn has_completion_room(&self) -> bool {
        lock(&self.function).has_room(self.queue)
    }

    fn respond(&mut self, cqe: &Cqe) {
        self.complete(cqe, |_, _| Ok(()));
    }

    fn send_bytes(&mut self, _cid: Cid, data: &[u8], cqe: &Cqe) {
        self.complete(cqe, |function, pointer| function.send(pointer, data));
    }

    fn send_buffer(&mut self, _cid: Cid, buffer: Buffer, length: u32, cqe: &Cqe, pool: &mut Pool) {
        self.complete(cqe, |function, pointer| function.send(pointer, &buffer.as_slice()[..length as usize]));
        pool.put(buffer);
    }

    fn unsent_bytes(&self) -> usize {
        usize::from(self.has_completions)
    }

    fn flush(&mut self, _turn: &mut ReactorContext<'_>) -> Result<Flushed, End> {
        if std::mem::take(&mut self.has_completions) {
            lock(&self.function).flush_of(self.queue);
        }
        Ok(Flushed::All)
    }

    fn drop_input(&mut self, give: &mut dyn FnMut(Buffer)) {
        self.commands.clear();
        self.pointers.clear();
        self.fetched.drain(..).for_each(|(_, buffer, _)| give(buffer));
    }

    fn start_closing(&mut self, _end: &End, _pool: &mut Pool) -> bool {
        self.has_ended = true;
        false
    }

    fn close(&mut self, _peer: &Peer, _turn: &mut ReactorContext<'_>) {
        self.has_ended = true;
    }

    fn peer_is_gone(&mut self) -> bool {
        self.has_ended
    }

    fn shrink(&mut self, _pool: &mut Pool) {
        self.commands.shrink_to_fit();
        self.pointers.shrink_to_fit();
    }
}

impl Rings for Ring {
    fn function(&self) -> &SharedFunction {
        &self.function
    }

    #[inline]
    fn has_pending_event(&self) -> bool {
        self.has_invalid_doorbell.load(Ordering::Relaxed)
    }

    fn map(&self, pointer: &DataPointer, length: u32, way: Way) -> Mapping {
        let mut function = lock(&self.function);
        match function.memory_of(pointer, length, way) {
            // What a device did not find in it would look like a failure of the device.
            Ok(_) if function.memory.may_be_lost() => Mapping::None,
            Ok(pieces) => Mapping::Mapped(Segments::from(pieces)),
            Err(status) => Mapping::Refused(status),
        }
    }

    fn check(&self, pointer: &DataPointer, length: u32, way: Way) -> Result<(), Status> {
        lock(&self.function).memory_of(pointer, length, way).map(|_| ())
    }

    fn change(&self, task: &RingTask) -> Result<(), Status> {
        lock(&self.function).change_rings(task)
    }
}

impl Polled for Ring {
    #[inline]
    fn is_polled(&self) -> bool {
        self.polls.load(Ordering::Relaxed) && !self.has_ended
    }

    fn arm(&mut self) -> Result<bool, End> {
        let mut function = lock(&self.function);
        // While commands wait for room none are received.
        Ok(if self.commands.is_empty() { function.arm(self.queue) } else { function.arm_completions_of(self.queue) })
    }
}

impl Lender for Ring {
    fn lend(&mut self, _cid: Cid, device: &Arc<dyn Device>, range: (u64, u32), cqe: &Cqe) {
        self.complete(cqe, |function, pointer| {
            let pieces = function.memory_of(pointer, range.1, Way::ToHost)?;
            let resident = device.resident().expect(IN_MEMORY);
            let mut at = range.0;
            for piece in pieces {
                let mut done = 0;
                while done < piece.length() {
                    let lent = resident.lend(at, piece.length() - done, true).expect(BLOCKS);
                    let bytes = lent.as_ref();
                    piece.write(done, bytes);
                    done += bytes.len();
                    at += bytes.len() as u64;
                }
            }
            Ok(())
        });
    }
}
