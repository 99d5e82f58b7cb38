//! An open device, as the connection manager has opened it: its protection domain, which all queue
//! pairs and registrations of this process share, and its asynchronous events, which it passes on
//! to the queue pairs that they are about.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::event::{EventfdFlags, eventfd};

use super::cm::{self, Channel, Id};
use super::load::Functions;
use super::receives::SharedQueue;
use super::{check, ffi, inventory, last_error};
use crate::{DeviceAttributes, Error};

/// A device in use. The last queue pair and the last registration of it close it.
pub(super) struct Device {
    functions: &'static Functions,
    context: NonNull<ffi::Context>,
    domain: NonNull<ffi::Pd>,
    /// Of soft-iWARP; otherwise null.
    spacer: AtomicPtr<ffi::Cq>,
    attributes: DeviceAttributes,
    iwarp: bool,
    is_soft_iwarp: bool,
    /// Of registrations for this end, for peers through windows, and for peers.
    pub(super) local_owner: u64,
    pub(super) windows_owner: u64,
    pub(super) remote_owner: u64,
    /// Written when a fault was recorded for a queue pair, never read: a queue pair waits for the
    /// edge.
    alarm: OwnedFd,
    /// Whom asynchronous events may be about.
    watched: Mutex<Vec<Arc<Watched>>>,
    /// By the numbers of the shared slots.
    shared_queues: Mutex<Vec<(u64, Weak<SharedQueue>)>>,
    /// For the next completion queue.
    vector: AtomicU32,
    /// It is gone, or going: new connections do not use it.
    removed: AtomicBool,
    /// Its files are closed.
    closed: AtomicBool,
    /// Bound to an address of the device: librdmacm closes a removed device when nothing is bound
    /// to it any more, whatever else there is. Dropped last.
    open: Id,
}

// SAFETY: the library's objects belong to no thread, and its functions lock what they share. What
// is read through the pointers does not change.
// JUSTIFICATION: handles of a library are pointers.
unsafe impl Send for Device {}
// SAFETY: as above.
// JUSTIFICATION: as above.
unsafe impl Sync for Device {}

/// A queue pair, as asynchronous events name it.
pub(super) struct Watched {
    queue_pair: usize,
    completion_queue: usize,
    shared_receives: usize,
    /// In error, it has taken its last shared slot.
    has_last_receive: AtomicBool,
    /// The number of the event after which it is of no use, plus one; 0: none.
    fault: AtomicI32,
}

impl Watched {
    /// Whether it takes no shared slots any more, and completes those that it has.
    pub(super) fn has_last_receive(&self) -> bool {
        self.has_last_receive.load(Ordering::Acquire)
    }

    /// The first fault that was recorded.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let event = self.fault.load(Ordering::Acquire).checked_sub(1).filter(|event| *event >= 0)?;
        Some(match event {
            ffi::EVENT_CQ_ERR => "its completion queue has overflowed",
            ffi::EVENT_QP_REQ_ERR => "the other end has sent an invalid request",
            ffi::EVENT_QP_ACCESS_ERR => "the other end has accessed memory that it may not access",
            ffi::EVENT_DEVICE_FATAL => "the device has failed",
            ffi::EVENT_SRQ_ERR => "its shared receive queue has failed",
            _ => "the device has stopped it",
        })
    }
}

/// A number for registrations (`Registration::owner`) that no other device has. Those of simulated
/// networks begin far above.
fn next_owner() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The devices in use.
static DEVICES: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());

impl Device {
    /// The device that an identifier is bound to.
    pub(super) fn for_id(id: &Id) -> Result<Arc<Device>, Error> {
        let context = id.context().ok_or(Error::NoDevice(id.local().ip()))?;
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|device| device.strong_count() > 0);
        let usable = |device: &Arc<Device>| device.context == context && !device.removed.load(Ordering::Relaxed);
        if let Some(device) = devices.iter().filter_map(Weak::upgrade).find(usable) {
            return Ok(device);
        }
        let device = Arc::new(Device::open(id.functions(), context, id.local())?);
        devices.push(Arc::downgrade(&device));
        Ok(device)
    }

    /// `context` is that of the device with the address `local`, opened by the connection manager.
    fn open(functions: &'static Functions, context: NonNull<ffi::Context>, local: SocketAddr) -> Result<Device, Error> {
        let mut open = Id::new(functions, Channel::new(functions)?)?;
        open.bind(with_port(local, 0))?;
        if open.context() != Some(context) {
            return Err(Error::NoDevice(local.ip()));
        }
        let attributes = inventory::attributes(functions, context)?;
        let alarm = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::Call { call: "eventfd", source: error.into() })?;
        // SAFETY: the device is open, and stays so with the identifier.
        // JUSTIFICATION: the library is in C.
        let async_fd = unsafe { BorrowedFd::borrow_raw(context.as_ref().async_fd) };
        cm::set_nonblocking(async_fd)?;
        // SAFETY: the device is open.
        // JUSTIFICATION: the library is in C.
        let domain = unsafe { (functions.ibv_alloc_pd)(context.as_ptr()) };
        let domain = NonNull::new(domain).ok_or_else(|| last_error("ibv_alloc_pd"))?;
        let is_soft_iwarp = inventory::is_soft_iwarp(functions, context);
        Ok(Device {
            functions,
            context,
            domain,
            spacer: AtomicPtr::new(if is_soft_iwarp { spacer(functions, context) } else { ptr::null_mut() }),
            iwarp: inventory::is_iwarp(context),
            is_soft_iwarp,
            attributes,
            local_owner: next_owner(),
            windows_owner: next_owner(),
            remote_owner: next_owner(),
            alarm,
            watched: Mutex::default(),
            shared_queues: Mutex::default(),
            vector: AtomicU32::new(0),
            removed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            open,
        })
    }

    pub(super) fn functions(&self) -> &'static Functions {
        self.functions
    }

    pub(super) fn context(&self) -> NonNull<ffi::Context> {
        self.context
    }

    pub(super) fn domain(&self) -> NonNull<ffi::Pd> {
        self.domain
    }

    /// `protocol` is that of its first port.
    pub(super) fn attributes(&self) -> &DeviceAttributes {
        &self.attributes
    }

    /// Whether the target of an RDMA READ is accessed like that of a peer's RDMA WRITE.
    pub(super) fn is_iwarp(&self) -> bool {
        self.iwarp
    }

    pub(super) fn is_soft_iwarp(&self) -> bool {
        self.is_soft_iwarp
    }

    /// The completion vector for another queue pair: they take turns.
    pub(super) fn next_vector(&self) -> i32 {
        // SAFETY: the device is open.
        // JUSTIFICATION: the library is in C.
        let vectors = unsafe { self.context.as_ref().num_comp_vectors };
        let turn = self.vector.fetch_add(1, Ordering::Relaxed);
        u32::try_from(vectors).ok().and_then(|vectors| turn.checked_rem(vectors)).map_or(0, u32::cast_signed)
    }

    /// The shared receive queues of the device.
    pub(super) fn shared_queues(&self) -> MutexGuard<'_, Vec<(u64, Weak<SharedQueue>)>> {
        self.shared_queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is being removed, the connection manager says.
    pub(super) fn set_removed(&self) {
        self.removed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    /// Readable when there are asynchronous events, of any queue pair.
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the device is open, and its descriptor with it.
        // JUSTIFICATION: the library is in C.
        unsafe { BorrowedFd::borrow_raw(self.context.as_ref().async_fd) }
    }

    /// Becomes readable again, for those who wait for the edge, when a fault was recorded.
    pub(super) fn alarm(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }

    /// From now on faults of a queue pair, or of what it uses, are recorded.
    pub(super) fn watch(
        &self,
        queue_pair: NonNull<ffi::Qp>,
        completion_queue: NonNull<ffi::Cq>,
        shared_receives: Option<NonNull<ffi::Srq>>,
    ) -> Arc<Watched> {
        let watched = Arc::new(Watched {
            queue_pair: queue_pair.as_ptr() as usize,
            completion_queue: completion_queue.as_ptr() as usize,
            shared_receives: shared_receives.map_or(0, |pointer| pointer.as_ptr() as usize),
            has_last_receive: AtomicBool::new(false),
            fault: AtomicI32::new(0),
        });
        self.watched().push(Arc::clone(&watched));
        watched
    }

    /// Undoes `watch`.
    pub(super) fn forget(&self, watched: &Arc<Watched>) {
        self.watched().retain(|other| !Arc::ptr_eq(other, watched));
    }

    fn watched(&self) -> MutexGuard<'_, Vec<Arc<Watched>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all asynchronous events that are waiting, whomever they are about.
    pub(super) fn take_events(&self) -> Result<(), Error> {
        let mut faults = false;
        loop {
            let mut event = ffi::AsyncEvent { element: ptr::null_mut(), event_type: 0 };
            // SAFETY: the device is open; the event is written when 0 is returned.
            // JUSTIFICATION: the library is in C.
            if unsafe { (self.functions.ibv_get_async_event)(self.context.as_ptr(), &raw mut event) } != 0 {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(Error::Call { call: "ibv_get_async_event", source: error }),
                }
            }
            let (element, kind) = (event.element as usize, event.event_type);
            // SAFETY: an event that was got and not acknowledged; until then its element is not
            // destroyed. Nothing refers to the element afterwards, but for comparisons.
            // JUSTIFICATION: the library is in C.
            unsafe { (self.functions.ibv_ack_async_event)(&raw mut event) };
            faults |= self.record(element, kind);
        }
        if faults {
            // Fails only when it is as full as it can be.
            let _ = rustix::io::write(&self.alarm, &1_u64.to_ne_bytes());
        }
        Ok(())
    }

    /// Whether an event is a fault of somebody.
    fn record(&self, element: usize, event: i32) -> bool {
        let concerned = |watched: &Watched| match event {
            ffi::EVENT_QP_FATAL | ffi::EVENT_QP_REQ_ERR | ffi::EVENT_QP_ACCESS_ERR => watched.queue_pair == element,
            ffi::EVENT_CQ_ERR => watched.completion_queue == element,
            ffi::EVENT_SRQ_ERR => watched.shared_receives == element,
            ffi::EVENT_DEVICE_FATAL => true,
            // Ports and addresses: the connection manager reports what becomes of a connection.
            _ => false,
        };
        if event == ffi::EVENT_QP_LAST_WQE_REACHED {
            let watched = self.watched();
            if let Some(watched) = watched.iter().find(|watched| watched.queue_pair == element) {
                watched.has_last_receive.store(true, Ordering::Release);
            }
            return false;
        }
        let mut faults = false;
        for watched in self.watched().iter().filter(|watched| concerned(watched)) {
            let _first_stays = watched.fault.compare_exchange(0, event + 1, Ordering::Release, Ordering::Relaxed);
            faults = true;
        }
        faults
    }
}

impl Device {
    /// The device of an identifier is being removed, the connection manager says.
    pub(super) fn was_removed(id: &Id) {
        let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        let same = devices.iter().filter_map(Weak::upgrade).filter(|device| Some(device.context) == id.context());
        let same: Vec<_> = same.collect();
        // The last reference of a device is not to be dropped under the lock.
        drop(devices);
        for device in &same {
            device.set_removed();
            device.close_if_removed();
        }
        // Nothing of it is left but what librdmacm has opened.
        if same.is_empty()
            && let Some(context) = id.context()
        {
            close_files(context);
        }
    }

    /// Closes the files of devices whose removal was not reported, since nothing of them was in
    /// use but memory.
    pub(super) fn close_removed() {
        let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = devices.iter().filter_map(Weak::upgrade).collect();
        drop(devices);
        all.iter().for_each(|device| device.close_if_removed());
    }

    /// Closes the files of a removed device if it has no queue pairs any more. librdmacm keeps them
    /// open until it looks for devices again, and registered regions need the device as long as
    /// they live; but the kernel waits for all programs before it removes a device whose driver
    /// cannot do without them, such as soft-RoCE and soft-iWARP.
    pub(super) fn close_if_removed(&self) {
        if !self.watched().is_empty() {
            return;
        }
        while let Ok(Some(event)) = self.open.channel().next() {
            if event.kind == ffi::CM_DEVICE_REMOVAL {
                self.set_removed();
            }
        }
        if self.removed.load(Ordering::Relaxed) && !self.closed.swap(true, Ordering::Relaxed) {
            // What is mapped keeps the files open.
            self.free_spacer();
            close_files(self.context);
        }
    }

    fn free_spacer(&self) {
        let spacer = self.spacer.swap(ptr::null_mut(), Ordering::Relaxed);
        if !spacer.is_null() {
            // SAFETY: nothing uses it, and it is destroyed once.
            // JUSTIFICATION: the library is in C.
            unsafe { (self.functions.ibv_destroy_cq)(spacer) };
        }
    }
}

/// The kernel destroys what is left of the device's objects. What anybody does with the device
/// fails from now on. The numbers of the files stay librdmacm's, which closes them. `context` is
/// that of an identifier, which the caller has.
fn close_files(context: NonNull<ffi::Context>) {
    let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") else { return };
    // SAFETY: the context is alive as long as something is bound to it. The files are its own, and
    // commands to another one fail; memory that it has mapped stays mapped.
    // JUSTIFICATION: files that are a library's can be closed by their numbers only.
    unsafe {
        let context = context.as_ref();
        for file in [context.cmd_fd, context.async_fd] {
            libc::dup3(null.as_raw_fd(), file, libc::O_CLOEXEC);
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.close_if_removed();
        self.free_spacer();
        // SAFETY: everything in the domain holds the device, and is gone.
        // JUSTIFICATION: the library is in C.
        let returned = unsafe { (self.functions.ibv_dealloc_pd)(self.domain.as_ptr()) };
        let is_freed = check("ibv_dealloc_pd", returned).is_ok() || *self.closed.get_mut();
        debug_assert!(is_freed, "something is left in a protection domain");
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.attributes.name).finish()
    }
}

/// A completion queue for nothing, as the first thing on soft-iWARP. The kernel names memory of
/// queues by where it would be in the device's file, page after page, and libsiw takes one of these
/// names for a failure: that of page 144, which is reached with a dozen of queue pairs. This one
/// has all pages up to there.
fn spacer(functions: &Functions, context: NonNull<ffi::Context>) -> *mut ffi::Cq {
    // Of 32 bytes each.
    const ENTRIES: i32 = 145 * 4096 / 32;
    // SAFETY: the device is open.
    // JUSTIFICATION: the library is in C.
    unsafe { (functions.ibv_create_cq)(context.as_ptr(), ENTRIES, ptr::null_mut(), ptr::null_mut(), 0) }
}

/// The address with another port.
pub(super) fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}
