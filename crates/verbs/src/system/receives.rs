//! Receive slots: those of one queue pair, or those that several share. It knows which slots are
//! the adapter's, and lends the others only.

use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

use super::device::Device;
use super::memory::MessageSlots;
use super::{check, ffi, last_error};
use crate::{Error, SharedReceives};

/// Where the messages of a queue pair arrive.
pub(super) enum Receives {
    Own(Own),
    Shared(Borrowed),
}

/// MessageSlots of one queue pair.
pub(super) struct Own {
    slots: MessageSlots,
    chain: Chain,
    /// Whether a slot is the adapter's, or will be with the next flush.
    posted: Box<[bool]>,
}

/// What a queue pair has of the slots that it shares.
pub(super) struct Borrowed {
    queue: Arc<SharedQueue>,
    /// The slots that are to be posted.
    queued: Vec<u32>,
    /// The slots that it has received messages in and not posted again.
    mine: Box<[bool]>,
}

/// Work requests for slots that are to be posted.
struct Chain {
    requests: Box<[ffi::RecvWr]>,
    entries: Box<[ffi::Sge]>,
    queued: Vec<u32>,
}

// SAFETY: its pointers are into its own boxes.
// JUSTIFICATION: the library takes a list that is chained by pointers.
unsafe impl Send for Chain {}

/// Marks the work of receives among completions, whose other bits are the slot.
pub(super) const RECEIVE: u64 = 1 << 63;

impl Receives {
    pub(super) fn own(device: &Arc<Device>, count: u32, bytes: u32) -> Result<Receives, Error> {
        let max = device.attributes().queue_entries;
        if count > max {
            return Err(Error::Limit { what: "receive slots", wanted: count.into(), max: max.into() });
        }
        let slots = MessageSlots::new(device, count, bytes)?;
        let chain = Chain::new(&slots);
        let posted = vec![false; count as usize].into();
        Ok(Receives::Own(Own { slots, chain, posted }))
    }

    pub(super) fn shared(queue: Arc<SharedQueue>) -> Receives {
        let mine = vec![false; queue.slots.count() as usize].into();
        Receives::Shared(Borrowed { queue, queued: Vec::new(), mine })
    }

    pub(super) fn shared_queue(&self) -> Option<NonNull<ffi::Srq>> {
        match self {
            Receives::Own(_) => None,
            Receives::Shared(lent) => Some(lent.queue.pointer),
        }
    }

    /// How many can be under way.
    pub(super) fn count(&self) -> u32 {
        match self {
            Receives::Own(own) => own.slots.count(),
            Receives::Shared(lent) => lent.queue.slots.count(),
        }
    }

    /// The bytes of a slot that the caller has.
    #[inline]
    pub(super) fn slice(&self, slot: u32) -> &[u8] {
        let (slots, is_callers) = match self {
            Receives::Own(own) => (&own.slots, !own.posted[slot as usize]),
            Receives::Shared(lent) => (&lent.queue.slots, lent.mine[slot as usize]),
        };
        assert!(is_callers, "receive slot {slot} is the adapter's");
        // SAFETY: the adapter does not have the slot, and it is posted again only through an
        // exclusive borrow of this. A shared slot is this queue pair's alone.
        // JUSTIFICATION: other slots are accessed by the adapter meanwhile.
        unsafe { slots.slice(slot) }
    }

    /// A message has arrived, or the slot has come back without one. `false`: the slot was not the
    /// adapter's.
    #[inline]
    pub(super) fn take(&mut self, slot: u32) -> bool {
        match self {
            Receives::Own(own) => own.posted.get_mut(slot as usize).is_some_and(std::mem::take),
            Receives::Shared(lent) => match lent.mine.get_mut(slot as usize) {
                Some(mine) if !*mine => {
                    *mine = true;
                    true
                }
                _ => false,
            },
        }
    }

    /// Queues a slot of the caller's.
    #[inline]
    pub(super) fn post(&mut self, slot: u32) {
        let (is_callers, queued) = match self {
            Receives::Own(own) => (!std::mem::replace(&mut own.posted[slot as usize], true), &mut own.chain.queued),
            Receives::Shared(lent) => (std::mem::take(&mut lent.mine[slot as usize]), &mut lent.queued),
        };
        assert!(is_callers, "receive slot {slot} is the adapter's");
        queued.push(slot);
    }

    pub(super) fn queued(&self) -> usize {
        match self {
            Receives::Own(own) => own.chain.queued.len(),
            Receives::Shared(lent) => lent.queued.len(),
        }
    }

    /// Gives all queued slots to the adapter.
    ///
    /// # Errors
    /// Some were not taken: they are in `refused`, and the caller's.
    pub(super) fn flush(&mut self, queue_pair: NonNull<ffi::Qp>, refused: &mut Vec<u32>) -> Result<(), Error> {
        let from = refused.len();
        let result = match self {
            Receives::Own(own) => own.post_all(queue_pair, refused),
            Receives::Shared(lent) => lent.queue.post(&mut lent.queued, refused),
        };
        self.taken_back(&refused[from..]);
        result
    }

    /// Takes all queued slots back: they are in `refused`, and the caller's.
    pub(super) fn refuse(&mut self, refused: &mut Vec<u32>) {
        let from = refused.len();
        match self {
            Receives::Own(own) => refused.append(&mut own.chain.queued),
            // Others can use them.
            Receives::Shared(lent) => {
                let _ = lent.queue.post(&mut lent.queued, refused);
            }
        }
        self.taken_back(&refused[from..]);
    }

    /// These slots are the caller's again.
    fn taken_back(&mut self, refused: &[u32]) {
        for slot in refused {
            match self {
                Receives::Own(own) => own.posted[*slot as usize] = false,
                Receives::Shared(lent) => lent.mine[*slot as usize] = true,
            }
        }
    }

    /// The queue pair is destroyed, or will never take a message: what it has of shared slots goes
    /// back to the others.
    pub(super) fn give_back(&mut self) {
        let Receives::Shared(lent) = self else { return };
        for slot in 0..lent.queue.slots.count() {
            if std::mem::take(&mut lent.mine[slot as usize]) {
                lent.queued.push(slot);
            }
        }
        // A slot that is refused is lost: the shared queue is broken then.
        let _ = lent.queue.post(&mut lent.queued, &mut Vec::new());
    }
}

impl Own {
    /// Gives all queued slots to the adapter.
    fn post_all(&mut self, queue_pair: NonNull<ffi::Qp>, refused: &mut Vec<u32>) -> Result<(), Error> {
        let Some(first) = self.chain.link() else { return Ok(()) };
        let mut bad: *mut ffi::RecvWr = ptr::null_mut();
        // SAFETY: the queue pair is alive; the requests are a list that ends, whose slots are the
        // adapter's from now on.
        // JUSTIFICATION: the header of the library does the same.
        let returned = unsafe {
            let context = queue_pair.as_ref().context.as_ref();
            context
                .and_then(|context| context.ops.post_recv)
                .map_or(libc::ENOSYS, |post| post(queue_pair.as_ptr(), first, &raw mut bad))
        };
        self.chain.finish(check("ibv_post_recv", returned), bad, refused)
    }
}

impl Chain {
    fn new(slots: &MessageSlots) -> Chain {
        let request = |slot| ffi::RecvWr {
            wr_id: RECEIVE | u64::from(slot),
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge: 1,
        };
        Chain {
            requests: (0..slots.count()).map(request).collect(),
            entries: (0..slots.count()).map(|slot| slots.entry(slot, slots.bytes())).collect(),
            queued: Vec::with_capacity(slots.count() as usize),
        }
    }

    /// The first of the queued slots' requests, followed by the others, each with its scatter
    /// entry.
    fn link(&mut self) -> Option<*mut ffi::RecvWr> {
        let requests = self.requests.as_mut_ptr();
        let entries = self.entries.as_mut_ptr();
        let count = self.requests.len();
        let mut next = ptr::null_mut();
        for slot in self.queued.iter().rev().map(|slot| *slot as usize) {
            assert!(slot < count, "only slots are queued");
            let request = requests.wrapping_add(slot);
            // SAFETY: `slot` is an index of both boxes.
            // JUSTIFICATION: the pointers in the list are derived from one for the whole box.
            unsafe {
                (*request).next = next;
                (*request).sg_list = entries.add(slot);
            }
            next = request;
        }
        (!next.is_null()).then_some(next)
    }

    /// The queue is empty again; what was not taken, from `bad` on, is refused.
    fn finish(
        &mut self,
        result: Result<(), Error>,
        bad: *mut ffi::RecvWr,
        refused: &mut Vec<u32>,
    ) -> Result<(), Error> {
        if result.is_err() {
            let base: *const ffi::RecvWr = self.requests.as_ptr();
            let is_bad = |slot: &u32| ptr::eq(base.wrapping_add(*slot as usize), bad);
            // Without a hint none of them counts as taken: the queue pair is destroyed before its
            // memory is used for anything else.
            let from = self.queued.iter().position(is_bad).unwrap_or(0);
            refused.extend_from_slice(&self.queued[from..]);
        }
        self.queued.clear();
        result
    }
}

/// A shared receive queue of one device.
pub(super) struct SharedQueue {
    device: Arc<Device>,
    pointer: NonNull<ffi::Srq>,
    slots: MessageSlots,
    /// Of whoever posts; the library locks the queue as well.
    chain: Mutex<Chain>,
}

// SAFETY: the library's objects belong to no thread.
// JUSTIFICATION: a handle of a library is a pointer.
unsafe impl Send for SharedQueue {}
// SAFETY: posting locks the queue in the library; each slot is accessed by one queue pair only, the
// one that has received a message in it.
// JUSTIFICATION: as above.
unsafe impl Sync for SharedQueue {}

impl SharedQueue {
    /// The queue of a device for shared slots, made if there is none.
    pub(super) fn for_slots(device: &Arc<Device>, shared: &SharedReceives) -> Result<Arc<SharedQueue>, Error> {
        let mut queues = device.shared_queues();
        queues.retain(|(_, queue)| queue.strong_count() > 0);
        let found = queues.iter().find(|(id, _)| *id == shared.id()).and_then(|(_, queue)| queue.upgrade());
        if let Some(queue) = found {
            return Ok(queue);
        }
        let queue = Arc::new(SharedQueue::new(device, shared.count(), shared.bytes())?);
        queues.push((shared.id(), Arc::downgrade(&queue)));
        Ok(queue)
    }

    /// One with `count` slots, all posted.
    fn new(device: &Arc<Device>, count: u32, bytes: u32) -> Result<SharedQueue, Error> {
        let max = device.attributes().shared_receive_entries;
        if count > max {
            return Err(Error::Limit { what: "shared receive slots", wanted: count.into(), max: max.into() });
        }
        let slots = MessageSlots::new(device, count, bytes)?;
        let attr = ffi::SrqAttr { max_wr: count, max_sge: 1, srq_limit: 0 };
        let mut attributes = ffi::SrqInitAttr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the domain is alive, and stays so longer than the queue.
        // JUSTIFICATION: the library is in C.
        let pointer = unsafe { (device.functions().ibv_create_srq)(device.domain().as_ptr(), &raw mut attributes) };
        let pointer = NonNull::new(pointer).ok_or_else(|| last_error("ibv_create_srq"))?;
        let chain = Mutex::new(Chain::new(&slots));
        let queue = SharedQueue { device: Arc::clone(device), pointer, slots, chain };
        queue.post(&mut (0..count).collect::<Vec<u32>>(), &mut Vec::new())?;
        Ok(queue)
    }

    /// Gives slots to the adapter: `queued` is empty then.
    fn post(&self, queued: &mut Vec<u32>, refused: &mut Vec<u32>) -> Result<(), Error> {
        let mut chain = self.chain.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut chain.queued, queued);
        let result = self.post_all(&mut chain, refused);
        std::mem::swap(&mut chain.queued, queued);
        result
    }

    fn post_all(&self, chain: &mut Chain, refused: &mut Vec<u32>) -> Result<(), Error> {
        let Some(first) = chain.link() else { return Ok(()) };
        let mut bad: *mut ffi::RecvWr = ptr::null_mut();
        // SAFETY: the queue is alive; the requests are a list that ends, whose slots are the
        // adapter's from now on.
        // JUSTIFICATION: the header of the library does the same.
        let returned = unsafe {
            let context = self.pointer.as_ref().context.as_ref();
            context
                .and_then(|context| context.ops.post_srq_recv)
                .map_or(libc::ENOSYS, |post| post(self.pointer.as_ptr(), first, &raw mut bad))
        };
        chain.finish(check("ibv_post_srq_recv", returned), bad, refused)
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold it, so that there are none. If it fails, its slots must not be
        // used for anything else: but then a queue pair is left, and its memory was kept as well.
        // JUSTIFICATION: the library is in C.
        unsafe { (self.device.functions().ibv_destroy_srq)(self.pointer.as_ptr()) };
    }
}
