//! A queue pair of an adapter, with its connection.
//!
//! Its one descriptor is a [`Waits`].

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_region::{Buffer, Region};

use super::cm::{CmEvent, Id};
use super::completions::{self, Completions};
use super::device::{Device, Watched};
use super::memory::{self, RegistrationAccess};
use super::nudge::Nudge;
use super::receives::{RECEIVE, Receives, SharedQueue};
use super::sends::Sends;
use super::waits::{Sources, Waits};
use super::{check, ffi};
use crate::{
    ACCEPT_PRIVATE_DATA_MAX, Attributes, Bell, Error, Event, Handshake, HeldMemory, REQUEST_PRIVATE_DATA_MAX, Remote,
    Window, WindowAccess, WorkCompletion, WorkRequest, WorkStatus,
};

/// One end of a connection. What the adapter accesses is in `parts`, and outlives `pointer`.
pub(crate) struct QueuePair {
    pointer: NonNull<ffi::Qp>,
    /// `None` only while it is dropped.
    parts: Option<Parts>,
}

/// Everything but the queue pair itself. Fields are dropped in this order.
struct Parts {
    id: Id,
    completions: Completions,
    receives: Receives,
    sends: Sends,
    /// Receive slots that the adapter did not take, and that are not reported yet.
    refused_receives: Vec<u32>,
    watched: Arc<Watched>,
    /// The fault was reported.
    fault_reported: bool,
    /// Its connection is of a request, whose limits these are; `None`: it is a host's.
    offered: Option<Depths>,
    /// As agreed upon.
    depths: Depths,
    /// `disconnect` was called: what is posted from now on comes back. Some adapters keep it.
    ended: bool,
    /// `connect` or `accept` was called.
    begun: bool,
    /// With soft-iWARP, since the connection is established and as long as there is reason to.
    nudge: Option<Nudge>,
    waits: Waits,
    device: Arc<Device>,
}

/// RDMA READs at a time, from the point of view of this end.
#[derive(Clone, Copy, Default)]
pub(super) struct Depths {
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
}

// SAFETY: the library's objects belong to no thread.
// JUSTIFICATION: a handle of a library is a pointer.
unsafe impl Send for QueuePair {}

/// Largest message that is copied into its work request, which is as large as the largest of them:
/// a command without data, and a completion.
const INLINE_BYTES: u32 = 64;

/// How long to wait for a queue pair in error to complete the last slot that it shares. Adapters do
/// so in microseconds, soft-RoCE in a few milliseconds at worst; soft-iWARP does not tell.
const LAST_RECEIVE_TIMEOUT: Duration = Duration::from_millis(20);

/// How long a peer waits whose message found no shared receive: 0.64 ms (InfiniBand Architecture
/// Specification, encoding for RNR NAK timer field).
const RNR_DELAY: u8 = 12;

impl QueuePair {
    /// A queue pair for an identifier that is bound to `device`, with its receives posted. The
    /// identifier comes back if there is none.
    pub(super) fn open(
        mut id: Id,
        device: &Arc<Device>,
        offered: Option<Depths>,
        attributes: &Attributes,
    ) -> Result<QueuePair, (Id, Error)> {
        match Self::build(&mut id, device, attributes) {
            Ok((pointer, made)) => {
                let Made { completions, receives, sends, waits } = made;
                let shared = receives.shared_queue();
                let watched = device.watch(pointer, completions.pointer(), shared);
                let parts = Parts {
                    id,
                    completions,
                    receives,
                    sends,
                    refused_receives: Vec::new(),
                    watched,
                    fault_reported: false,
                    offered,
                    depths: Depths::default(),
                    ended: false,
                    begun: false,
                    nudge: None,
                    waits,
                    device: Arc::clone(device),
                };
                Ok(QueuePair { pointer, parts: Some(parts) })
            }
            Err(error) => Err((id, error)),
        }
    }

    fn build(id: &mut Id, device: &Arc<Device>, attributes: &Attributes) -> Result<(NonNull<ffi::Qp>, Made), Error> {
        let receives = match &attributes.shared_receives {
            None => Receives::own(device, attributes.receives, attributes.receive_bytes)?,
            Some(shared) => Receives::shared(SharedQueue::for_slots(device, shared)?),
        };
        let sends = Sends::new(device, attributes)?;
        let send_entries = u32::try_from(sends.capacity()).unwrap_or(u32::MAX);
        let entries = receives.count().saturating_add(send_entries);
        let completions = Completions::new(device, entries, attributes.polled)?;
        let waits = Waits::new(id, &completions, device)?;
        let mut made = Made { completions, receives, sends, waits };
        let pointer = made.create(id, device, send_entries)?;
        if let Err(error) = made.post_all(pointer) {
            if !destroy(id, pointer) {
                std::mem::forget(made);
            }
            return Err(error);
        }
        Ok((pointer, made))
    }

    fn parts(&self) -> &Parts {
        self.parts.as_ref().expect("it is there until it is dropped")
    }

    fn parts_mut(&mut self) -> &mut Parts {
        self.parts.as_mut().expect("it is there until it is dropped")
    }

    pub(crate) fn connect(&mut self, handshake: &Handshake<'_>) -> Result<(), Error> {
        let parts = self.parts_mut();
        if parts.offered.is_some() {
            return Err(Error::State("a target's, which does not connect"));
        }
        parts.begin(handshake, REQUEST_PRIVATE_DATA_MAX, Depths { responder_resources: 255, initiator_depth: 255 })
    }

    pub(crate) fn accept(&mut self, handshake: &Handshake<'_>) -> Result<(), Error> {
        let pointer = self.pointer;
        let parts = self.parts_mut();
        let Some(offered) = parts.offered else { return Err(Error::State("a host's, which does not accept")) };
        parts.begin(handshake, ACCEPT_PRIVATE_DATA_MAX, offered)?;
        if parts.receives.shared_queue().is_some() && !parts.device.is_iwarp() {
            // Without it peers wait for longer.
            let _ = shorten_rnr_delay(&parts.device, pointer);
        }
        Ok(())
    }

    pub(crate) fn disconnect(&mut self) {
        let pointer = self.pointer;
        let parts = self.parts_mut();
        // It fails if there is no connection (any more); what is posted has to come back then, too.
        if parts.id.disconnect().is_err() {
            let _ = fail(&parts.device, pointer);
        }
        parts.ended = true;
        parts.sends.stop();
    }

    #[expect(clippy::unnecessary_wraps, reason = "simulated ones have none")]
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.parts().waits.descriptor())
    }

    /// The descriptor becomes readable.
    pub(crate) fn set_bell(&self, _bell: Bell) {}

    /// The descriptor becomes readable.
    #[expect(clippy::unused_self, reason = "simulated ones know")]
    pub(crate) fn is_ready(&self) -> bool {
        false
    }

    pub(crate) fn poll_event(&mut self) -> Result<Option<Event>, Error> {
        let pointer = self.pointer;
        self.parts_mut().poll_event(pointer)
    }

    #[inline]
    pub(crate) fn poll(&mut self) -> Result<Option<WorkCompletion>, Error> {
        let parts = self.parts_mut();
        while let Some(completion) = parts.completions.next()? {
            if let Some(completion) = parts.complete(&completion)? {
                return Ok(Some(completion));
            }
        }
        Ok(parts.refused())
    }

    #[inline]
    pub(crate) fn arm(&mut self) -> Result<(), Error> {
        self.parts_mut().completions.arm()
    }

    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let pointer = self.pointer;
        let parts = self.parts_mut();
        let received = if parts.ended {
            parts.receives.refuse(&mut parts.refused_receives);
            Ok(())
        } else if parts.receives.queued() > 0 {
            parts.receives.flush(pointer, &mut parts.refused_receives)
        } else {
            Ok(())
        };
        received.and(parts.sends.flush(pointer))
    }

    pub(crate) fn unflushed(&self) -> usize {
        let parts = self.parts();
        parts.receives.queued() + parts.sends.queued()
    }

    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.parts().sends.room()
    }

    #[inline]
    pub(crate) fn received(&self, slot: u32) -> &[u8] {
        self.parts().receives.slice(slot)
    }

    #[inline]
    pub(crate) fn post_receive(&mut self, slot: u32) {
        self.parts_mut().receives.post(slot);
    }

    #[inline]
    pub(crate) fn take_send_slot(&mut self) -> Option<u32> {
        self.parts_mut().sends.take_slot()
    }

    #[inline]
    pub(crate) fn send_slot(&mut self, slot: u32) -> &mut [u8] {
        self.parts_mut().sends.slot(slot)
    }

    #[inline]
    pub(crate) fn post_send(&mut self, slot: u32, length: u32, invalidate: Option<u32>) {
        self.parts_mut().sends.post_message(slot, length, invalidate);
    }

    #[inline]
    pub(crate) fn hold(&mut self, buffer: Buffer) -> Result<HeldMemory, (Buffer, Error)> {
        match memory::keys(&self.parts().device, buffer.region(), RegistrationAccess::Local) {
            Ok(keys) => Ok(self.parts_mut().sends.hold(buffer, keys.local)),
            Err(error) => Err((buffer, error)),
        }
    }

    #[inline]
    pub(crate) fn memory(&mut self, held: HeldMemory) -> Option<&mut [u8]> {
        self.parts_mut().sends.memory(held)
    }

    #[inline]
    pub(crate) fn release(&mut self, held: HeldMemory) -> Option<Buffer> {
        self.parts_mut().sends.release(held)
    }

    #[inline]
    pub(crate) fn post_read(&mut self, held: HeldMemory, offset: u32, length: u32, from: Remote, id: u64) {
        self.parts_mut().sends.post_read(held, offset, length, from, id);
    }

    #[inline]
    pub(crate) fn post_write(&mut self, held: HeldMemory, offset: u32, length: u32, to: Remote, id: Option<u64>) {
        self.parts_mut().sends.post_write(held, offset, length, to, id);
    }

    #[inline]
    pub(crate) fn post_write_of(&mut self, buffer: Buffer, length: u32, to: Remote) -> Result<(), (Buffer, Error)> {
        match memory::keys(&self.parts().device, buffer.region(), RegistrationAccess::Local) {
            Ok(keys) => self.parts_mut().sends.post_write_of(buffer, length, keys.local, to),
            Err(error) => return Err((buffer, error)),
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn take_written(&mut self) -> Option<Buffer> {
        self.parts_mut().sends.take_written()
    }

    #[inline]
    pub(crate) fn post_bind(
        &mut self,
        region: &Arc<Region>,
        offset: usize,
        length: u32,
        access: WindowAccess,
    ) -> Result<Option<Window>, Error> {
        let parts = self.parts_mut();
        let registration = memory::for_windows(&parts.device, region)?;
        Ok(parts.sends.post_bind((region, registration), offset, length, access))
    }

    #[inline]
    pub(crate) fn post_invalidate(&mut self, window: Window, id: u64) {
        self.parts_mut().sends.post_invalidate(window, id);
    }

    #[inline]
    pub(crate) fn is_bound(&self, window: Window) -> bool {
        self.parts().sends.is_bound(window)
    }

    pub(crate) fn remote_key(&mut self, region: &Arc<Region>) -> Result<u32, Error> {
        memory::keys(&self.parts().device, region, RegistrationAccess::Remote).map(|keys| keys.remote)
    }
}

impl Parts {
    /// Sends the request, or accepts one. `offered` is what the peer has said.
    fn begin(&mut self, handshake: &Handshake<'_>, private_data_max: usize, offered: Depths) -> Result<(), Error> {
        if self.begun {
            return Err(Error::State("connected already, or about to be"));
        }
        let length = handshake.private_data.len();
        if length > private_data_max {
            return Err(Error::PrivateData { length, max: private_data_max });
        }
        // librdmacm refuses what the device cannot do.
        let device = self.device.attributes();
        self.depths = Depths {
            responder_resources: handshake.responder_resources.min(device.responder_resources),
            initiator_depth: handshake.initiator_depth.min(device.initiator_depth).min(offered.initiator_depth),
        };
        let handshake = Handshake {
            responder_resources: self.depths.responder_resources,
            initiator_depth: self.depths.initiator_depth,
            ..*handshake
        };
        let begun = if self.offered.is_some() { self.id.accept(&handshake) } else { self.id.connect(&handshake) };
        self.begun = begun.is_ok();
        begun.map_err(|error| match error {
            Error::Call { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused => {
                Error::Refused(self.id.remote())
            }
            error => error,
        })
    }

    fn poll_event(&mut self, pointer: NonNull<ffi::Qp>) -> Result<Option<Event>, Error> {
        loop {
            let ready = self.waits.ready()?;
            if ready == Sources::default() && self.watched.fault().is_none() {
                return Ok(None);
            }
            let event = if ready.connection { self.id.channel().next()? } else { None };
            if let Some(event) = event.and_then(|event| self.translate(event)) {
                return Ok(Some(event));
            }
            if ready.device {
                self.device.take_events()?;
            }
            if ready.timer {
                self.nudge(pointer);
            }
            if let Some(fault) = self.watched.fault().filter(|_| !self.fault_reported) {
                self.fault_reported = true;
                return Ok(Some(Event::Fatal(fault)));
            }
            if !ready.connection && !ready.device {
                return Ok(None);
            }
        }
    }

    /// Has soft-iWARP look for what it may have overlooked.
    fn nudge(&mut self, pointer: NonNull<ffi::Qp>) {
        self.nudge = self.nudge.take().filter(|_| !self.ended).and_then(|nudge| nudge.post(&mut self.sends));
        if self.nudge.is_some() {
            // Where the connection is ending: work that was refused comes back, and the end is
            // told.
            let _ = self.sends.flush(pointer);
        }
    }

    /// What an event of the connection manager means to the owner; `None`: nothing.
    fn translate(&mut self, event: CmEvent) -> Option<Event> {
        Some(match event.kind {
            ffi::CM_ESTABLISHED => {
                if self.offered.is_none() {
                    let Depths { responder_resources, initiator_depth } = &mut self.depths;
                    *responder_resources = event.responder_resources.min(*responder_resources);
                    *initiator_depth = event.initiator_depth.min(*initiator_depth);
                }
                let is_host = self.offered.is_none();
                if self.device.is_soft_iwarp() && (is_host || self.depths.initiator_depth > 0) {
                    self.nudge = Nudge::start(&self.waits, is_host);
                }
                Event::Established {
                    private_data: if self.offered.is_none() { event.private_data } else { Vec::new() },
                    responder_resources: self.depths.responder_resources,
                    initiator_depth: self.depths.initiator_depth,
                }
            }
            ffi::CM_REJECTED => Event::Rejected { reason: event.status, private_data: event.private_data },
            ffi::CM_UNREACHABLE | ffi::CM_CONNECT_ERROR => Event::Unreachable(event.status),
            ffi::CM_DISCONNECTED => {
                self.nudge = None;
                Event::Disconnected
            }
            ffi::CM_DEVICE_REMOVAL => {
                self.device.set_removed();
                Event::DeviceRemoved
            }
            ffi::CM_ADDR_CHANGE => Event::AddressChanged,
            _ => return None,
        })
    }

    #[inline]
    fn complete(&mut self, completion: &ffi::Wc) -> Result<Option<WorkCompletion>, Error> {
        if completion.wr_id & RECEIVE == 0 {
            return self.sends.complete(completion);
        }
        let slot = u32::try_from(completion.wr_id & !RECEIVE).unwrap_or(u32::MAX);
        if !self.receives.take(slot) {
            return Err(Error::State("in error: a completion is of nothing that was posted"));
        }
        if self.nudge.is_some() {
            self.nudge = None;
        }
        Ok(Some(if completion.status == ffi::WC_SUCCESS {
            let invalidated = (completion.wc_flags & ffi::WC_WITH_INV != 0).then_some(completion.invalidated_rkey);
            if let Some(key) = invalidated {
                self.sends.invalidated(key);
            }
            WorkCompletion::Received { slot, length: completion.byte_len, invalidated }
        } else {
            WorkCompletion::Failed { what: WorkRequest::Receive(slot), status: completions::status(completion.status) }
        }))
    }

    /// Takes the shared slots that the queue pair still has: with messages that nobody has polled,
    /// or with the beginning of one. Their end is awaited for a moment: a slot whose completion is
    /// not seen would be lost to the others.
    fn take_shared_slots(&mut self, pointer: NonNull<ffi::Qp>) {
        let _ = fail(&self.device, pointer);
        let end = Instant::now() + LAST_RECEIVE_TIMEOUT;
        loop {
            let has_last = self.watched.has_last_receive() || Instant::now() > end;
            while let Ok(Some(completion)) = self.completions.next() {
                let _ = self.complete(&completion);
            }
            if has_last || self.device.take_events().is_err() {
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// What the adapter did not take, when everything that it took was polled.
    #[inline]
    fn refused(&mut self) -> Option<WorkCompletion> {
        if let Some(slot) = self.refused_receives.pop() {
            return Some(WorkCompletion::Failed { what: WorkRequest::Receive(slot), status: WorkStatus::Flushed });
        }
        self.sends.poll_refused()
    }
}

/// What is made before the queue pair.
struct Made {
    completions: Completions,
    receives: Receives,
    sends: Sends,
    waits: Waits,
}

impl Made {
    fn create(&mut self, id: &mut Id, device: &Arc<Device>, send_entries: u32) -> Result<NonNull<ffi::Qp>, Error> {
        let completions = self.completions.pointer().as_ptr();
        let shared = self.receives.shared_queue();
        let receives = if shared.is_some() { 0 } else { self.receives.count() };
        let mut attempt = |inline| {
            let mut attributes = ffi::QpInitAttr {
                qp_context: ptr::null_mut(),
                send_cq: completions,
                recv_cq: completions,
                srq: shared.map_or(ptr::null_mut(), NonNull::as_ptr),
                cap: ffi::QpCap {
                    max_send_wr: send_entries,
                    max_recv_wr: receives,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: inline,
                },
                qp_type: ffi::QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: the queues are of the identifier's device, as is the domain, and are
            // destroyed after the queue pair.
            // JUSTIFICATION: the library is in C.
            let pointer = unsafe { id.create_queue_pair(device.domain(), &mut attributes) }?;
            Ok((pointer, attributes.cap.max_inline_data))
        };
        // Not every adapter copies messages into work requests.
        let made = attempt(INLINE_BYTES).or_else(|_: Error| attempt(0));
        let (pointer, inline_max) = made.map_err(|error| match error {
            _ if device.is_removed() => Error::DeviceRemoved,
            Error::Call { source, .. } => Error::QueuePair { sends: send_entries, receives, source },
            error => error,
        })?;
        self.sends.set_inline_max(inline_max.min(INLINE_BYTES));
        Ok(pointer)
    }

    /// Posts the receives; those that are shared are posted already.
    fn post_all(&mut self, pointer: NonNull<ffi::Qp>) -> Result<(), Error> {
        if self.receives.shared_queue().is_none() {
            (0..self.receives.count()).for_each(|slot| self.receives.post(slot));
            self.receives.flush(pointer, &mut Vec::new())?;
        }
        Ok(())
    }
}

/// Puts a queue pair into the error state, in which everything that is posted comes back.
fn fail(device: &Device, pointer: NonNull<ffi::Qp>) -> Result<(), Error> {
    // SAFETY: a structure of numbers.
    // JUSTIFICATION: it has many members, of which one is used.
    let mut attributes: ffi::QpAttr = unsafe { std::mem::zeroed() };
    attributes.qp_state = ffi::QPS_ERR;
    // SAFETY: the queue pair is alive.
    // JUSTIFICATION: the library is in C.
    let returned = unsafe { (device.functions().ibv_modify_qp)(pointer.as_ptr(), &raw mut attributes, ffi::QP_STATE) };
    check("ibv_modify_qp", returned)
}

/// Has a peer whose message finds no receive try again soon. The connection manager sets the
/// longest delay that there is, 655 ms, which is of no matter as long as each peer has its own
/// receives.
fn shorten_rnr_delay(device: &Device, pointer: NonNull<ffi::Qp>) -> Result<(), Error> {
    // SAFETY: a structure of numbers.
    // JUSTIFICATION: it has many members, of which two are used.
    let mut attributes: ffi::QpAttr = unsafe { std::mem::zeroed() };
    attributes.qp_state = ffi::QPS_RTS;
    attributes.min_rnr_timer = RNR_DELAY;
    let mask = ffi::QP_STATE | ffi::QP_MIN_RNR_TIMER;
    // SAFETY: the queue pair is alive.
    // JUSTIFICATION: the library is in C.
    let returned = unsafe { (device.functions().ibv_modify_qp)(pointer.as_ptr(), &raw mut attributes, mask) };
    check("ibv_modify_qp", returned)
}

/// Destroys a queue pair. `false`: the adapter may go on accessing the memory, which must not
/// become anybody else's.
#[must_use]
fn destroy(id: &mut Id, pointer: NonNull<ffi::Qp>) -> bool {
    // SAFETY: the queue pair is alive, and the identifier forgets it.
    // JUSTIFICATION: the library is in C.
    let returned = unsafe { (id.functions().ibv_destroy_qp)(pointer.as_ptr()) };
    id.forget_queue_pair();
    returned == 0
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let Some(mut parts) = self.parts.take() else { return };
        if parts.receives.shared_queue().is_some() {
            parts.take_shared_slots(self.pointer);
        }
        parts.device.forget(&parts.watched);
        if !parts.sends.windows().is_empty() {
            // Soft-RoCE does not destroy a queue pair that windows are bound for. In error, it
            // binds none any more.
            let _ = fail(&parts.device, self.pointer);
            parts.sends.windows().clear();
        }
        let device = Arc::clone(&parts.device);
        if destroy(&mut parts.id, self.pointer) {
            parts.receives.give_back();
            drop(parts);
        } else {
            std::mem::forget(parts);
        }
        device.close_if_removed();
    }
}

impl std::fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = self.parts();
        f.debug_struct("QueuePair")
            .field("device", &parts.device)
            .field("local", &parts.id.local())
            .field("remote", &parts.id.remote())
            .finish_non_exhaustive()
    }
}
