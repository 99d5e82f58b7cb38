//! What goes to the host: responses, and the buffers of the data before them.

use ebof_backend::Buffer;
use ebof_nvme::{Cid, Cqe, Status};
use ebof_rdma::Segments;
use ebof_rdma::capsule::{RESPONSE_BYTES, encode_response};
use ebof_rdma::controller::{Posting, SendEntry};
use ebof_verbs::Error;

use super::super::End;
use super::held::{Kept, Origin, Outgoing};
use super::{CONNECTED, FLUSH_AT, Rdma, Sending, of};
use crate::ports::rdma_connection::Registered;
use crate::shared::buffer::Pool;

/// Replies are small, but for large logs: no more is kept for the next one.
const SPARE_BYTES_MAX: usize = 16 << 10;

/// Why the count of bytes holds.
pub(super) const GIVEN: &str = "a queue pair gives back what it was given, once";

impl Rdma {
    /// How much may be posted: nothing where the adapter has given up.
    #[inline]
    fn room(&self) -> usize {
        self.pair.as_ref().filter(|_| self.loss.is_none()).map_or(0, |registered| registered.pair.room())
    }

    #[inline]
    pub(super) fn push_response(&mut self, cqe: &Cqe, segments: Option<Segments>) {
        self.unsent_bytes += RESPONSE_BYTES as usize;
        let cqe = self.queue.complete(cqe);
        let room = self.room();
        if let Some(posting) = self.core.respond_now(segments, 0, room) {
            return self.post_send(&cqe, posting.invalidate, Sending::default());
        }
        self.core.respond(&cqe, segments);
    }

    /// Queues the first `length` bytes of a buffer of the pool, and the completion.
    #[inline]
    pub(super) fn push_data(&mut self, cid: Cid, buffer: Buffer, length: u32, cqe: &Cqe, pool: &mut Pool) {
        let pointer = self.take_segments(cid);
        // A host may give no place for what it reads.
        let (Some(segments), 1..) = (pointer, length) else {
            pool.put(buffer);
            return self.push_response(cqe, pointer);
        };
        let room = self.room();
        let Some(Posting { write, invalidate }) = self.core.respond_now(Some(segments), length, room) else {
            return self.push_to_queue(segments, buffer, length, cqe, pool);
        };
        let (written, remote) = write.expect("neither the data nor their segments are empty");
        let bytes = buffer.capacity();
        match self.connected().post_write_of(buffer, written, of(remote)) {
            Ok(()) => {
                self.given_bytes += bytes;
                self.unsent_bytes += (RESPONSE_BYTES + length) as usize;
                let cqe = self.queue.complete(cqe);
                self.post_send(&cqe, invalidate, Sending { length, held: None });
            }
            Err((buffer, error)) => {
                pool.put(buffer);
                self.log_refusal(&error);
                let cqe = self.queue.complete(&Cqe::new(cid, Status::DATA_TRANSFER_ERROR));
                self.unsent_bytes += RESPONSE_BYTES as usize;
                self.post_send(&cqe, invalidate, Sending::default());
            }
        }
    }

    /// As [`push_data`](Self::push_data), where something is queued before it.
    #[cold]
    fn push_to_queue(&mut self, segments: Segments, buffer: Buffer, length: u32, cqe: &Cqe, pool: &mut Pool) {
        if let Err(buffer) = self.hold_and_push(segments, buffer, length, cqe, Origin::Pool) {
            pool.put(buffer);
        }
    }

    /// Queues the first `length` bytes of `buffer` and the completion. Gives the buffer back if the
    /// device does not take it: the command fails then.
    pub(super) fn hold_and_push(
        &mut self,
        segments: Segments,
        buffer: Buffer,
        length: u32,
        cqe: &Cqe,
        origin: Origin,
    ) -> Result<(), Buffer> {
        let buffer_bytes = u32::try_from(buffer.capacity()).expect("buffers are far below 4 GiB");
        match self.connected().hold(buffer) {
            Ok(held) => {
                self.push_held(segments, Outgoing { held, buffer_bytes, length, origin }, cqe);
                Ok(())
            }
            Err((buffer, error)) => {
                self.log_refusal(&error);
                self.push_response(&Cqe::new(cqe.cid(), Status::DATA_TRANSFER_ERROR), Some(segments));
                Err(buffer)
            }
        }
    }

    /// Queues the data of a held buffer and the completion.
    #[inline]
    fn push_held(&mut self, segments: Segments, outgoing: Outgoing, cqe: &Cqe) {
        let Outgoing { held, length, .. } = outgoing;
        self.unsent_bytes += (RESPONSE_BYTES + length) as usize;
        let cqe = self.queue.complete(cqe);
        let room = self.room();
        if let Some(Posting { write, invalidate }) = self.core.respond_now(Some(segments), length, room) {
            if let Some((length, remote)) = write {
                self.connected().post_write(held, 0, length, of(remote), None);
            }
            return self.post_send(&cqe, invalidate, Sending { length, held: Some(outgoing) });
        }
        let tag = self.outgoing.insert(outgoing);
        self.core.respond_with_data(tag, segments, length, &cqe);
    }

    /// The memory of a kept buffer for `length` bytes, which [`Rdma::push_kept`] sends.
    #[inline]
    pub(super) fn memory_of_kept(&mut self, length: u32) -> Option<&mut [u8]> {
        let Registered { pair, .. } = self.pair.as_mut()?;
        let held = self.kept.next(length)?;
        pair.memory(held)?.get_mut(..length as usize)
    }

    #[inline]
    pub(super) fn push_kept(&mut self, cid: Cid, length: u32, cqe: &Cqe) {
        let pointer = self.take_segments(cid);
        // A host may give no place for what it reads.
        let Some(segments) = pointer else { return self.push_response(cqe, None) };
        let held = self.kept.take().expect("its memory was given out before");
        self.push_held(segments, Outgoing { held, buffer_bytes: Kept::BYTES, length, origin: Origin::Kept }, cqe);
    }

    /// Once for each connection that the device does not register a buffer: nearly everything fails
    /// then.
    #[cold]
    pub(super) fn log_refusal(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.is_refusal_logged, true) {
            tracing::error!(
                "a buffer cannot be registered with the RDMA device: {error}; commands with data fail; see `ulimit -l`"
            );
        }
    }

    /// Posts what the core says, as far as there is room, and begins everything that is posted.
    pub(super) fn post(&mut self) -> Result<(), End> {
        if let Some(end) = self.not_begun.take() {
            return Err(end);
        }
        while let Some(Registered { pair, .. }) = &mut self.pair {
            // Receives that are shared are posted again whatever becomes of the connection.
            let work = if self.loss.is_some() { None } else { self.core.poll_work(pair.room()) };
            let Some(work) = work else {
                self.core.on_flushed();
                return Ok(pair.flush()?);
            };
            match work {
                SendEntry::Read { tag, offset, length, remote } => {
                    let fetching = self.fetching.get(tag as usize).and_then(Option::as_ref);
                    let fetching = fetching.expect("the core reads for those only that were given to it");
                    pair.post_read(fetching.held, fetching.offset + offset, length, of(remote), tag.into());
                }
                SendEntry::Write { tag, offset, length, remote } => {
                    pair.post_write(self.outgoing.held(tag), offset, length, of(remote), None);
                }
                SendEntry::Send { cqe, invalidate, tag } => {
                    let held = tag.map(|tag| self.outgoing.remove(tag));
                    let length = held.map_or(0, |held| held.length);
                    self.post_send(&cqe, invalidate, Sending { length, held });
                }
            }
        }
        Err(End::PeerClosed)
    }

    /// Posts a response, behind whose data their buffer is free.
    #[inline]
    fn post_send(&mut self, cqe: &Cqe, invalidate: Option<u32>, sending: Sending) {
        let sends_with_invalidate = self.sends_with_invalidate;
        let pair = self.connected();
        let slot = pair.take_send_slot().expect("the core knows how many there are");
        pair.send_slot(slot)[..RESPONSE_BYTES as usize].copy_from_slice(&encode_response(cqe));
        // The host may ask for what the device cannot do: it finds its key valid then, and
        // invalidates it itself, as Linux does.
        let invalidate = if sends_with_invalidate { invalidate } else { None };
        pair.post_send(slot, RESPONSE_BYTES, invalidate);
        self.sending[slot as usize] = sending;
        // Not before the receive of the command that executes is posted again.
        if self.current.is_none()
            && let Err(end) = self.flush_if(FLUSH_AT)
        {
            self.not_begun.get_or_insert(end);
        }
    }

    /// A response was sent, and the data before it are written.
    #[inline]
    pub(super) fn on_sent(&mut self, slot: u32) {
        self.done += 1;
        self.has_progress = true;
        self.core.on_sent();
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
    pub(super) fn give_returned(&mut self, pool: &mut Pool) {
        let Registered { pair, .. } = self.pair.as_mut().expect(CONNECTED);
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
            self.give_released(pool);
        }
    }

    fn give_released(&mut self, pool: &mut Pool) {
        let Registered { pair, .. } = self.pair.as_mut().expect(CONNECTED);
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

    /// Gives the pool what is kept.
    pub(super) fn give_kept(&mut self, pool: &mut Pool) {
        // Of a connection that is gone nothing is left.
        let Some(Registered { pair, .. }) = &mut self.pair else { return };
        while let Some(held) = self.kept.remove() {
            pool.put_kept(pair.release(held).expect("it is free once its data are written"));
        }
    }
}
