//! What goes to the host: responses, and the buffers of the data before them.

use ebof_backend::Buffer;
use ebof_nvme::{Cid, Cqe, Status};
use ebof_rdma::Segments;
use ebof_rdma::capsule::{RESPONSE_BYTES, encode_response};
use ebof_rdma::controller::Posting;
use ebof_verbs::QueuePair;

use super::super::message_queue::MessageQueue;
use super::endpoint::{Endpoint, place_in_host};
use super::held::{HeldBuffers, Kept, Origin, Outgoing};
use crate::shared::buffer::Pool;

/// Replies are small, but for large logs: no more is kept for the next one.
const SPARE_BYTES_MAX: usize = 16 << 10;

/// Why the count of bytes holds.
const GIVEN: &str = "a queue pair gives back what it was given, once";

/// The responses of a connection.
pub(super) struct Responses {
    pub(super) queue: MessageQueue,
    sends_with_invalidate: bool,
    /// Buffers of the responses that are queued.
    outgoing: HeldBuffers,
    /// The responses that are posted, by send slot.
    sending: Vec<Sending>,
    /// Held buffers whose data are written.
    returned: Vec<Outgoing>,
    /// Bytes in buffers that were given to the queue pair with their data.
    given_bytes: usize,
    /// Those that stay.
    kept: Kept,
    /// A buffer for data that do not come from a device, kept for the next ones.
    spare: Option<Buffer>,
    unsent_bytes: usize,
}

/// A response that was posted.
#[derive(Clone, Copy, Debug, Default)]
struct Sending {
    /// Bytes of the data before it.
    length: u32,
    /// Their buffer, if it is held.
    held: Option<Outgoing>,
}

impl Responses {
    /// For a queue of `entries`, with so many messages that may be under way.
    pub(super) fn new(entries: usize, sends: u32, sends_with_invalidate: bool) -> Self {
        Self {
            queue: MessageQueue::new(),
            sends_with_invalidate,
            outgoing: HeldBuffers::new(entries + sends as usize),
            sending: vec![Sending::default(); sends as usize],
            returned: Vec::with_capacity(entries),
            given_bytes: 0,
            kept: Kept::new(entries),
            spare: None,
            unsent_bytes: 0,
        }
    }

    /// What is not sent yet.
    #[inline]
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Sends a completion. `segments`: where the command could have put data.
    #[inline]
    pub(super) fn push(&mut self, endpoint: &mut Endpoint, cqe: &Cqe, segments: Option<Segments>) {
        self.unsent_bytes += RESPONSE_BYTES as usize;
        let cqe = self.queue.complete(cqe);
        let room = endpoint.room();
        if let Some(posting) = endpoint.core.respond_now(segments, 0, room) {
            return self.post(endpoint, &cqe, posting.invalidate, Sending::default());
        }
        endpoint.core.respond(&cqe, segments);
    }

    /// Sends the first `length` bytes of a buffer of the pool, and the completion. A host may give
    /// no place for what it reads.
    #[inline]
    pub(super) fn push_data(
        &mut self,
        endpoint: &mut Endpoint,
        pointer: Option<Segments>,
        buffer: Buffer,
        length: u32,
        cqe: &Cqe,
        pool: &mut Pool,
    ) {
        let (Some(segments), 1..) = (pointer, length) else {
            pool.put(buffer);
            return self.push(endpoint, cqe, pointer);
        };
        let room = endpoint.room();
        let Some(Posting { write, invalidate }) = endpoint.core.respond_now(Some(segments), length, room) else {
            return self.push_to_queue(endpoint, segments, buffer, length, cqe, pool);
        };
        let (written, remote) = write.expect("neither the data nor their segments are empty");
        let bytes = buffer.capacity();
        match endpoint.write_of(buffer, written, remote) {
            Ok(()) => {
                self.given_bytes += bytes;
                self.unsent_bytes += (RESPONSE_BYTES + length) as usize;
                let cqe = self.queue.complete(cqe);
                self.post(endpoint, &cqe, invalidate, Sending { length, held: None });
            }
            Err(buffer) => {
                pool.put(buffer);
                let cqe = self.queue.complete(&failed(cqe.cid()));
                self.unsent_bytes += RESPONSE_BYTES as usize;
                self.post(endpoint, &cqe, invalidate, Sending::default());
            }
        }
    }

    /// As [`push_data`](Self::push_data), where something is queued before it.
    #[cold]
    fn push_to_queue(
        &mut self,
        endpoint: &mut Endpoint,
        segments: Segments,
        buffer: Buffer,
        length: u32,
        cqe: &Cqe,
        pool: &mut Pool,
    ) {
        if let Err(buffer) = self.hold_and_push(endpoint, segments, buffer, length, cqe, Origin::Pool) {
            pool.put(buffer);
        }
    }

    /// Sends a copy of data, and the completion.
    pub(super) fn push_copy(&mut self, endpoint: &mut Endpoint, pointer: Option<Segments>, data: &[u8], cqe: &Cqe) {
        let length = u32::try_from(data.len()).expect("as much as the command asked for");
        let Some(segments) = pointer.filter(|_| length > 0) else {
            return self.push(endpoint, cqe, pointer);
        };
        let spare = self.spare.take().filter(|buffer| buffer.capacity() >= data.len());
        let mut buffer = spare.unwrap_or_else(|| Buffer::zeroed(data.len()));
        buffer.as_mut_slice()[..data.len()].copy_from_slice(data);
        // Where the device does not take it, the command has failed.
        let _ = self.hold_and_push(endpoint, segments, buffer, length, cqe, Origin::Own);
    }

    /// Sends the first bytes of a buffer, and the completion. Gives the buffer back if the device
    /// does not take it: the command fails then.
    fn hold_and_push(
        &mut self,
        endpoint: &mut Endpoint,
        segments: Segments,
        buffer: Buffer,
        length: u32,
        cqe: &Cqe,
        origin: Origin,
    ) -> Result<(), Buffer> {
        let buffer_bytes = u32::try_from(buffer.capacity()).expect("buffers are far below 4 GiB");
        match endpoint.hold(buffer) {
            Ok(held) => {
                self.push_held(endpoint, segments, Outgoing { held, buffer_bytes, length, origin }, cqe);
                Ok(())
            }
            Err(buffer) => {
                self.push(endpoint, &failed(cqe.cid()), Some(segments));
                Err(buffer)
            }
        }
    }

    /// Sends the data of a held buffer, and the completion.
    #[inline]
    fn push_held(&mut self, endpoint: &mut Endpoint, segments: Segments, outgoing: Outgoing, cqe: &Cqe) {
        let Outgoing { held, length, .. } = outgoing;
        self.unsent_bytes += (RESPONSE_BYTES + length) as usize;
        let cqe = self.queue.complete(cqe);
        let room = endpoint.room();
        if let Some(Posting { write, invalidate }) = endpoint.core.respond_now(Some(segments), length, room) {
            if let Some((length, remote)) = write {
                endpoint.connected().post_write(held, 0, length, place_in_host(remote), None);
            }
            return self.post(endpoint, &cqe, invalidate, Sending { length, held: Some(outgoing) });
        }
        let tag = self.outgoing.insert(outgoing);
        endpoint.core.respond_with_data(tag, segments, length, &cqe);
    }

    /// The memory of a kept buffer for `length` bytes, which [`push_kept`](Self::push_kept) sends.
    #[inline]
    pub(super) fn memory_of_kept<'e>(&mut self, endpoint: &'e mut Endpoint, length: u32) -> Option<&'e mut [u8]> {
        let pair = endpoint.pair()?;
        let held = self.kept.next(length)?;
        pair.memory(held)?.get_mut(..length as usize)
    }

    #[inline]
    pub(super) fn push_kept(&mut self, endpoint: &mut Endpoint, pointer: Option<Segments>, length: u32, cqe: &Cqe) {
        // A host may give no place for what it reads.
        let Some(segments) = pointer else { return self.push(endpoint, cqe, None) };
        let held = self.kept.take().expect("its memory was given out before");
        let outgoing = Outgoing { held, buffer_bytes: Kept::BYTES, length, origin: Origin::Kept };
        self.push_held(endpoint, segments, outgoing, cqe);
    }

    /// Posts data of a response that was queued.
    pub(super) fn post_write(&self, pair: &mut QueuePair, tag: u32, offset: u32, length: u32, to: ebof_rdma::Remote) {
        pair.post_write(self.outgoing.held(tag), offset, length, place_in_host(to), None);
    }

    /// Posts a response that was queued, behind its data.
    pub(super) fn post_queued(
        &mut self,
        endpoint: &mut Endpoint,
        cqe: &Cqe,
        invalidate: Option<u32>,
        tag: Option<u32>,
    ) {
        let held = tag.map(|tag| self.outgoing.remove(tag));
        let length = held.map_or(0, |held| held.length);
        self.post(endpoint, cqe, invalidate, Sending { length, held });
    }

    /// Posts a response, behind whose data their buffer is free.
    #[inline]
    fn post(&mut self, endpoint: &mut Endpoint, cqe: &Cqe, invalidate: Option<u32>, sending: Sending) {
        let pair = endpoint.connected();
        let slot = pair.take_send_slot().expect("the core knows how many there are");
        pair.send_slot(slot)[..RESPONSE_BYTES as usize].copy_from_slice(&encode_response(cqe));
        // The host may ask for what the device cannot do: it finds its key valid then, and
        // invalidates it itself, as Linux does.
        let invalidate = if self.sends_with_invalidate { invalidate } else { None };
        pair.post_send(slot, RESPONSE_BYTES, invalidate);
        self.sending[slot as usize] = sending;
    }

    /// A response was sent, and the data before it are written.
    #[inline]
    pub(super) fn on_sent(&mut self, slot: u32) {
        let sending = &mut self.sending[slot as usize];
        let sent = (RESPONSE_BYTES + sending.length) as usize;
        self.unsent_bytes = self.unsent_bytes.checked_sub(sent).expect("it was counted when it was queued");
        match sending.held.take() {
            None => {}
            Some(Outgoing { held, origin: Origin::Kept, .. }) => self.kept.put(held),
            Some(outgoing) => self.returned.push(outgoing),
        }
    }

    /// Gives the buffers back whose data are written.
    #[inline]
    pub(super) fn give_returned(&mut self, pair: &mut QueuePair, pool: &mut Pool) {
        while let Some(buffer) = pair.take_written() {
            let bytes = buffer.capacity();
            self.given_bytes = self.given_bytes.checked_sub(bytes).expect(GIVEN);
            if bytes != Kept::BYTES as usize || !self.kept.wants() || !pool.keep(bytes) {
                pool.put(buffer);
                continue;
            }
            match pair.hold(buffer) {
                Ok(held) => self.kept.add(held),
                Err((buffer, _error)) => pool.put_kept(buffer),
            }
        }
        if !self.returned.is_empty() {
            self.give_released(pair, pool);
        }
    }

    fn give_released(&mut self, pair: &mut QueuePair, pool: &mut Pool) {
        while let Some(outgoing) = self.returned.pop() {
            match (pair.release(outgoing.held), outgoing.origin) {
                (Some(buffer), Origin::Pool) => pool.put(buffer),
                (Some(buffer), Origin::Kept) => pool.put_kept(buffer),
                (Some(buffer), Origin::Own) if buffer.capacity() <= SPARE_BYTES_MAX => self.spare = Some(buffer),
                (Some(_), Origin::Own) => {}
                // Writes are over with the response behind them. If not, the end waits for it.
                (None, _) => _ = self.outgoing.insert(outgoing),
            }
        }
    }

    /// Gives the pool what is kept for the next data.
    pub(super) fn give_kept(&mut self, pair: &mut QueuePair, pool: &mut Pool) {
        while let Some(held) = self.kept.remove() {
            pool.put_kept(pair.release(held).expect("it is free once its data are written"));
        }
    }

    /// Forgets the buffer for data that do not come from a device.
    pub(super) fn forget_spare(&mut self) {
        self.spare = None;
    }

    /// Nothing is sent any more.
    pub(super) fn stop(&mut self) {
        self.unsent_bytes = 0;
    }

    /// Gives the pool what the adapter is done with. Returns whether that is everything.
    pub(super) fn take_back(&mut self, pair: &mut QueuePair, pool: &mut Pool) -> bool {
        // Those of which it is not done yet are left in `returned`.
        self.returned.extend(self.outgoing.drain());
        self.returned.extend(self.sending.iter_mut().filter_map(|sending| sending.held.take()));
        self.returned.retain(|outgoing| {
            let Some(buffer) = pair.release(outgoing.held) else { return true };
            match outgoing.origin {
                Origin::Pool => pool.put(buffer),
                Origin::Kept => pool.put_kept(buffer),
                Origin::Own => {}
            }
            false
        });
        while let Some(buffer) = pair.take_written() {
            self.given_bytes = self.given_bytes.checked_sub(buffer.capacity()).expect(GIVEN);
            pool.put(buffer);
        }
        self.give_kept(pair, pool);
        self.returned.is_empty() && self.given_bytes == 0
    }

    /// What is still held goes with the queue pair.
    pub(super) fn abandon(&mut self, pool: &mut Pool) {
        pool.forget(std::mem::take(&mut self.given_bytes));
        for outgoing in self.returned.drain(..) {
            match outgoing.origin {
                Origin::Pool => pool.forget(outgoing.buffer_bytes as usize),
                Origin::Kept => pool.forget_kept(outgoing.buffer_bytes as usize),
                Origin::Own => {}
            }
        }
    }
}

/// Its data do not get to the host.
fn failed(cid: Cid) -> Cqe {
    Cqe::new(cid, Status::DATA_TRANSFER_ERROR)
}
