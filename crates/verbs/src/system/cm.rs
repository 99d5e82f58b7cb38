//! The connection manager's identifiers (`rdma_cm_id`) and event channels. Every event is copied
//! and acknowledged at once, so that nothing waits for an acknowledgement; identifiers are
//! destroyed before their channel. It draws no conclusions from events.

use std::ffi::{c_int, c_void};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::address::{self, RawAddress};
use super::ffi;
use super::load::Functions;
use super::{check, last_error};
use crate::{Error, Handshake};

/// An event channel: the identifiers that refer to it have their events there.
pub(super) struct Channel {
    functions: &'static Functions,
    pointer: NonNull<ffi::EventChannel>,
}

// SAFETY: the library's objects belong to no thread.
// JUSTIFICATION: a handle of a library is a pointer.
unsafe impl Send for Channel {}
// SAFETY: the methods read the descriptor, which does not change, and get events, which the library
// does under the kernel's lock.
// JUSTIFICATION: as above.
unsafe impl Sync for Channel {}

/// What has happened to an identifier.
pub(super) struct CmEvent {
    /// Which one; to be compared only.
    pub(super) id: IdName,
    /// For a request: its identifier, on the channel of the listener.
    pub(super) request: Option<Id>,
    /// `CM_..`
    pub(super) kind: c_int,
    /// 0, a negative error number, or the reason of a reject.
    pub(super) status: c_int,
    /// Of the peer; with some adapters followed by zeros.
    pub(super) private_data: Vec<u8>,
    /// As the kernel turns it: from the point of view of this end.
    pub(super) responder_resources: u8,
    /// Likewise.
    pub(super) initiator_depth: u8,
}

/// Tells identifiers apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct IdName(*const ffi::CmId);

impl Channel {
    /// An empty one, which never blocks.
    pub(super) fn new(functions: &'static Functions) -> Result<Arc<Channel>, Error> {
        // SAFETY: it takes nothing; the result is checked.
        // JUSTIFICATION: the library is in C.
        let pointer = unsafe { (functions.rdma_create_event_channel)() };
        let Some(pointer) = NonNull::new(pointer) else {
            // Without the module the device file, or its entry in sysfs, is missing.
            return Err(Error::ConnectionManager(io::Error::last_os_error()));
        };
        let channel = Channel { functions, pointer };
        set_nonblocking(channel.descriptor())?;
        Ok(Arc::new(channel))
    }

    /// Readable when there is an event.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is alive and has an open descriptor as long as it is.
        // JUSTIFICATION: as in `new`.
        unsafe { BorrowedFd::borrow_raw(self.pointer.as_ref().fd) }
    }

    /// The next event, acknowledged.
    pub(super) fn next(self: &Arc<Channel>) -> Result<Option<CmEvent>, Error> {
        let mut event: *mut ffi::CmEvent = ptr::null_mut();
        loop {
            // SAFETY: the channel is alive, and the event is written when 0 is returned.
            // JUSTIFICATION: the library is in C.
            if unsafe { (self.functions.rdma_get_cm_event)(self.pointer.as_ptr(), &raw mut event) } == 0 {
                break;
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(None),
                io::ErrorKind::Interrupted => {}
                _ => return Err(Error::Call { call: "rdma_get_cm_event", source: error }),
            }
        }
        // SAFETY: the library has returned an event, which stays until it is acknowledged. Which
        // member of the union it has depends on the kind of the connection, which is reliable.
        // JUSTIFICATION: as above.
        let copy = unsafe { self.copy(&*event) };
        // SAFETY: the event is acknowledged once, and not used any more.
        // JUSTIFICATION: as above.
        unsafe { (self.functions.rdma_ack_cm_event)(event) };
        Ok(Some(copy))
    }

    /// # Safety
    /// `event` is one that the library has returned and that is not acknowledged.
    // SAFETY: as above.
    // JUSTIFICATION: it follows the event's pointers.
    unsafe fn copy(self: &Arc<Channel>, event: &ffi::CmEvent) -> CmEvent {
        let data = &event.conn;
        let private_data = if data.private_data.is_null() {
            Vec::new()
        } else {
            // SAFETY: the pointer is to as many bytes of the event.
            // JUSTIFICATION: the library is in C.
            unsafe { std::slice::from_raw_parts(data.private_data.cast(), data.private_data_len.into()) }.to_vec()
        };
        let request = match NonNull::new(event.id) {
            Some(id) if event.event == ffi::CM_CONNECT_REQUEST => {
                Some(Id { functions: self.functions, pointer: id, channel: Arc::clone(self) })
            }
            _ => None,
        };
        CmEvent {
            id: IdName(event.id),
            request,
            kind: event.event,
            status: event.status,
            private_data,
            responder_resources: data.responder_resources,
            initiator_depth: data.initiator_depth,
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: identifiers hold their channel, so that there are none of this one.
        // JUSTIFICATION: the library is in C.
        unsafe { (self.functions.rdma_destroy_event_channel)(self.pointer.as_ptr()) };
    }
}

/// An identifier: a listener, or one end of a connection. Dropping it ends what it stands for.
pub(super) struct Id {
    functions: &'static Functions,
    pointer: NonNull<ffi::CmId>,
    channel: Arc<Channel>,
}

// SAFETY: the library's objects belong to no thread.
// JUSTIFICATION: a handle of a library is a pointer.
unsafe impl Send for Id {}
// SAFETY: the methods with a shared reference read what the library writes only within calls of
// those that need an exclusive one, or while an event of this identifier is got, which its owner
// does.
// JUSTIFICATION: as above.
unsafe impl Sync for Id {}

impl Id {
    /// One that is not bound yet.
    pub(super) fn new(functions: &'static Functions, channel: Arc<Channel>) -> Result<Id, Error> {
        let mut id: *mut ffi::CmId = ptr::null_mut();
        // SAFETY: the channel is alive and stays so as long as the identifier.
        // JUSTIFICATION: the library is in C.
        let returned =
            unsafe { (functions.rdma_create_id)(channel.pointer.as_ptr(), &raw mut id, ptr::null_mut(), ffi::PS_TCP) };
        check("rdma_create_id", returned)?;
        match NonNull::new(id) {
            Some(pointer) => Ok(Id { functions, pointer, channel }),
            None => Err(last_error("rdma_create_id")),
        }
    }

    pub(super) fn functions(&self) -> &'static Functions {
        self.functions
    }

    pub(super) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    pub(super) fn name(&self) -> IdName {
        IdName(self.pointer.as_ptr())
    }

    fn raw(&self) -> &ffi::CmId {
        // SAFETY: it is alive as long as this; the comment at `Sync` says who writes it.
        // JUSTIFICATION: the library is in C.
        unsafe { self.pointer.as_ref() }
    }

    /// The device that it is bound to.
    pub(super) fn context(&self) -> Option<NonNull<ffi::Context>> {
        NonNull::new(self.raw().verbs)
    }

    /// The port of that device.
    pub(super) fn port(&self) -> u8 {
        self.raw().port_num
    }

    pub(super) fn local(&self) -> SocketAddr {
        address::decode(&self.raw().route.addr.src_storage)
    }

    pub(super) fn remote(&self) -> SocketAddr {
        address::decode(&self.raw().route.addr.dst_storage)
    }

    /// Sets an option; one that the library or the kernel does not know is an error.
    pub(super) fn set_option<T>(&mut self, option: c_int, mut value: T) -> Result<(), Error> {
        let value: *mut T = &raw mut value;
        // SAFETY: the value is as long as it says, and is copied.
        // JUSTIFICATION: the library is in C.
        let returned = unsafe {
            (self.functions.rdma_set_option)(
                self.pointer.as_ptr(),
                ffi::OPTION_ID,
                option,
                value.cast::<c_void>(),
                size_of::<T>(),
            )
        };
        check("rdma_set_option", returned)
    }

    pub(super) fn bind(&mut self, address: SocketAddr) -> Result<(), Error> {
        let mut raw = RawAddress::new(address);
        // SAFETY: the address is read during the call.
        // JUSTIFICATION: the library is in C.
        let returned = unsafe { (self.functions.rdma_bind_addr)(self.pointer.as_ptr(), raw.as_mut_ptr()) };
        check("rdma_bind_addr", returned)
    }

    pub(super) fn listen(&mut self, backlog: u32) -> Result<(), Error> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: the identifier is alive.
        // JUSTIFICATION: the library is in C.
        check("rdma_listen", unsafe { (self.functions.rdma_listen)(self.pointer.as_ptr(), backlog) })
    }

    /// `CM_ADDR_RESOLVED` or `CM_ADDR_ERROR` follows.
    pub(super) fn resolve_address(
        &mut self,
        from: Option<SocketAddr>,
        to: SocketAddr,
        timeout_ms: c_int,
    ) -> Result<(), Error> {
        let mut from = from.map(RawAddress::new);
        let from = from.as_mut().map_or(ptr::null_mut(), RawAddress::as_mut_ptr);
        let mut to = RawAddress::new(to);
        // SAFETY: the addresses are read during the call; the first one may be null.
        // JUSTIFICATION: the library is in C.
        let returned =
            unsafe { (self.functions.rdma_resolve_addr)(self.pointer.as_ptr(), from, to.as_mut_ptr(), timeout_ms) };
        check("rdma_resolve_addr", returned)
    }

    /// `CM_ROUTE_RESOLVED` or `CM_ROUTE_ERROR` follows. The address must be resolved.
    pub(super) fn resolve_route(&mut self, timeout_ms: c_int) -> Result<(), Error> {
        if self.context().is_none() {
            return Err(Error::State("not bound to a device"));
        }
        // SAFETY: the identifier is alive and has a device, which the library relies on.
        // JUSTIFICATION: the library is in C.
        check("rdma_resolve_route", unsafe { (self.functions.rdma_resolve_route)(self.pointer.as_ptr(), timeout_ms) })
    }

    /// Moves it, with the events that are waiting, to a channel of its own.
    pub(super) fn migrate(&mut self) -> Result<(), Error> {
        let channel = Channel::new(self.functions)?;
        // SAFETY: both channels are alive. It waits for events that are not acknowledged: there are
        // none for longer than `Channel::next` runs on another thread.
        // JUSTIFICATION: the library is in C.
        let returned = unsafe { (self.functions.rdma_migrate_id)(self.pointer.as_ptr(), channel.pointer.as_ptr()) };
        check("rdma_migrate_id", returned)?;
        self.channel = channel;
        Ok(())
    }

    /// Makes a queue pair of the identifier's device. It has to be destroyed before the identifier,
    /// with `forget_queue_pair` afterwards.
    ///
    /// # Safety
    /// The members of `attributes` are alive, belong to the identifier's device, and stay so as
    /// long as the queue pair.
    // SAFETY: as above.
    // JUSTIFICATION: they are pointers.
    pub(super) unsafe fn create_queue_pair(
        &mut self,
        domain: NonNull<ffi::Pd>,
        attributes: &mut ffi::QpInitAttr,
    ) -> Result<NonNull<ffi::Qp>, Error> {
        // SAFETY: as the caller promises.
        // JUSTIFICATION: the library is in C.
        let returned = unsafe { (self.functions.rdma_create_qp)(self.pointer.as_ptr(), domain.as_ptr(), attributes) };
        check("rdma_create_qp", returned)?;
        NonNull::new(self.raw().qp).ok_or_else(|| last_error("rdma_create_qp"))
    }

    /// The queue pair is destroyed: the identifier must not use it any more.
    pub(super) fn forget_queue_pair(&mut self) {
        // SAFETY: the identifier is alive and borrowed exclusively; the member is public.
        // JUSTIFICATION: `rdma_destroy_qp` does not tell whether the queue pair is gone.
        unsafe { (*self.pointer.as_ptr()).qp = ptr::null_mut() };
    }

    /// `CM_ESTABLISHED`, `CM_REJECTED`, `CM_UNREACHABLE` or `CM_CONNECT_ERROR` follows.
    pub(super) fn connect(&mut self, handshake: &Handshake<'_>) -> Result<(), Error> {
        let mut parameters = parameters(handshake);
        // SAFETY: the private data are copied during the call.
        // JUSTIFICATION: the library is in C.
        check("rdma_connect", unsafe { (self.functions.rdma_connect)(self.pointer.as_ptr(), &raw mut parameters) })
    }

    /// `CM_ESTABLISHED`, `CM_UNREACHABLE` or `CM_CONNECT_ERROR` follows.
    pub(super) fn accept(&mut self, handshake: &Handshake<'_>) -> Result<(), Error> {
        let mut parameters = parameters(handshake);
        // SAFETY: the private data are copied during the call.
        // JUSTIFICATION: the library is in C.
        check("rdma_accept", unsafe { (self.functions.rdma_accept)(self.pointer.as_ptr(), &raw mut parameters) })
    }

    /// Refuses a request. `private_data` are at most 255 bytes.
    pub(super) fn reject(&mut self, private_data: &[u8]) -> Result<(), Error> {
        let length = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
        // SAFETY: the private data are copied during the call.
        // JUSTIFICATION: the library is in C.
        let returned =
            unsafe { (self.functions.rdma_reject)(self.pointer.as_ptr(), private_data.as_ptr().cast(), length) };
        check("rdma_reject", returned)
    }

    pub(super) fn disconnect(&mut self) -> Result<(), Error> {
        // SAFETY: the identifier is alive.
        // JUSTIFICATION: the library is in C.
        check("rdma_disconnect", unsafe { (self.functions.rdma_disconnect)(self.pointer.as_ptr()) })
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: the identifier is alive, and so is its channel, which is dropped after this. Its
        // queue pair, if it had one, was destroyed. It waits for events that are not acknowledged,
        // as `migrate` does.
        // JUSTIFICATION: the library is in C.
        unsafe { (self.functions.rdma_destroy_id)(self.pointer.as_ptr()) };
    }
}

/// Private data and limits, as `rdma_connect` and `rdma_accept` take them. The pointer is to
/// `handshake.private_data`.
fn parameters(handshake: &Handshake<'_>) -> ffi::ConnParam {
    ffi::ConnParam {
        private_data: handshake.private_data.as_ptr().cast(),
        // The caller has compared it with the limits.
        private_data_len: u8::try_from(handshake.private_data.len()).unwrap_or(u8::MAX),
        responder_resources: handshake.responder_resources,
        initiator_depth: handshake.initiator_depth,
        flow_control: 1,
        retry_count: handshake.retry_count.min(7),
        rnr_retry_count: handshake.rnr_retry_count.min(7),
        srq: 0,
        qp_num: 0,
    }
}

/// For descriptors of the libraries, which block otherwise.
pub(super) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> Result<(), Error> {
    rustix::fs::fcntl_getfl(descriptor)
        .and_then(|flags| rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK))
        .map_err(|error| Error::Call { call: "fcntl", source: error.into() })
}
