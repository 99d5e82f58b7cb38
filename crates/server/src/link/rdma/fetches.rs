//! Data that come from the host: the buffers that the adapter reads them into, and those that have
//! come.

use std::collections::VecDeque;

use ebof_backend::Buffer;
use ebof_rdma::Segments;
use ebof_rdma::controller::Cancelled;
use ebof_verbs::{HeldMemory, QueuePair};

use super::super::{Fetch, Stopped};
use super::endpoint::{Endpoint, place_in_host};
use crate::shared::buffer::Pool;

/// Those of a connection.
pub(super) struct Fetches {
    /// Buffers that the adapter reads data into, by slot of the command.
    fetching: Vec<Option<Fetching>>,
    /// Data that are in their buffers, and not reported yet.
    fetched: VecDeque<Fetched>,
}

/// A buffer that data of a command are read into.
#[derive(Debug)]
struct Fetching {
    held: HeldMemory,
    /// Where in the buffer they go.
    offset: u32,
    length: u32,
    buffer_bytes: usize,
    /// The host has as much as the command needs.
    is_enough: bool,
}

/// The fields of [`Event::Fetched`](super::super::Event::Fetched).
pub(super) struct Fetched {
    pub(super) slot: u32,
    pub(super) buffer: Buffer,
    pub(super) is_intact: bool,
}

impl Fetches {
    pub(super) fn new(entries: usize) -> Self {
        Self { fetching: Vec::with_capacity(entries), fetched: VecDeque::with_capacity(entries) }
    }

    /// Those that are not reported yet.
    #[inline]
    pub(super) fn unreported(&self) -> usize {
        self.fetched.len()
    }

    /// The next one to report.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Fetched> {
        self.fetched.pop_front()
    }

    /// Nobody takes them any more.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Buffer> + '_ {
        self.fetched.drain(..).map(|fetched| fetched.buffer)
    }

    /// Copies data from a capsule. `None`: they are not there.
    pub(super) fn copy(&mut self, mut fetch: Fetch, source: Option<&[u8]>) {
        let is_intact = fetch.fill(source);
        let Fetch { slot, buffer, .. } = fetch;
        self.fetched.push_back(Fetched { slot, buffer, is_intact });
    }

    /// Has data read. Gives the buffer back if the device does not take it.
    pub(super) fn read(&mut self, fetch: Fetch, endpoint: &mut Endpoint) -> Result<(), Buffer> {
        let Fetch { slot, buffer, offset, length, .. } = fetch;
        let Some(segments) = Segments::from_pointer(&fetch.pointer).filter(|_| length > 0) else {
            self.fetched.push_back(Fetched { slot, buffer, is_intact: length == 0 });
            return Ok(());
        };
        let buffer_bytes = buffer.capacity();
        let held = endpoint.hold(buffer)?;
        let is_enough = segments.length() >= length;
        let offset = u32::try_from(offset).expect("buffers are far below 4 GiB");
        if self.fetching.len() <= slot as usize {
            self.fetching.resize_with(slot as usize + 1, || None);
        }
        let before = self.fetching[slot as usize].replace(Fetching { held, offset, length, buffer_bytes, is_enough });
        assert!(before.is_none(), "the buffer of a command that is over is taken before its slot is used again");
        let has_reads = endpoint.core.read(slot, segments, length);
        debug_assert!(has_reads, "neither the command nor its segments are empty");
        Ok(())
    }

    /// Posts a read that the core says.
    #[inline]
    pub(super) fn post(&self, pair: &mut QueuePair, tag: u32, offset: u32, length: u32, remote: ebof_rdma::Remote) {
        let fetching = self.fetching.get(tag as usize).and_then(Option::as_ref);
        let fetching = fetching.expect("the core reads for those only that were given to it");
        pair.post_read(fetching.held, fetching.offset + offset, length, place_in_host(remote), tag.into());
    }

    /// A read is over. Returns the bytes of the command whose last one it was.
    #[inline]
    pub(super) fn on_read(&mut self, tag: u32, endpoint: &mut Endpoint) -> u32 {
        // The command may have more of them.
        let Some(fetched) = endpoint.core.on_read_done(tag) else { return 0 };
        let (fetching, buffer) = self.take(tag, endpoint);
        let is_intact = fetched.is_complete && fetching.is_enough;
        self.fetched.push_back(Fetched { slot: tag, buffer, is_intact });
        fetching.length
    }

    /// A command does not want its data any more.
    pub(super) fn stop(&mut self, slot: u32, endpoint: &mut Endpoint) -> Stopped {
        if let Some(at) = self.fetched.iter().position(|fetched| fetched.slot == slot) {
            return Stopped::Ended(self.fetched.remove(at).expect("its place was found").buffer);
        }
        match endpoint.core.cancel(slot) {
            Cancelled::UnderWay => Stopped::Arriving,
            Cancelled::Ended => Stopped::Ended(self.take(slot, endpoint).1),
        }
    }

    /// The buffer of a command whose reads are over.
    fn take(&mut self, slot: u32, endpoint: &mut Endpoint) -> (Fetching, Buffer) {
        let fetching = self.fetching.get_mut(slot as usize).and_then(Option::take);
        let fetching = fetching.expect("the core knows those only that were given to it, until they are over");
        let buffer = endpoint.connected().release(fetching.held).expect("all reads into it are over");
        (fetching, buffer)
    }

    /// Gives the pool what the adapter is done with. Returns whether that is everything.
    pub(super) fn take_back(&mut self, pair: &mut QueuePair, pool: &mut Pool) -> bool {
        for fetching in &mut self.fetching {
            if let Some(buffer) = fetching.as_ref().and_then(|fetching| pair.release(fetching.held)) {
                pool.put(buffer);
                *fetching = None;
            }
        }
        self.fetching.iter().all(Option::is_none)
    }

    /// What is still held goes with the queue pair.
    pub(super) fn abandon(&mut self, pool: &mut Pool) {
        pool.forget(self.fetching.drain(..).flatten().map(|fetching| fetching.buffer_bytes).sum());
    }
}
