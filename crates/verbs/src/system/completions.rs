//! The completion queue of a queue pair, and the channel that announces completions. What they are
//! completions of, it does not know.

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::device::Device;
use super::{check, cm, ffi, last_error};
use crate::{Error, WorkStatus};

/// How many completions are taken at a time.
const BATCH: usize = 32;
/// How many events are acknowledged at a time, since each time takes a lock.
const ACKNOWLEDGED: u32 = 64;

/// One completion queue, for both queues of a queue pair. The queue pair has to be destroyed
/// before.
pub(super) struct Completions {
    device: Arc<Device>,
    pointer: NonNull<ffi::Cq>,
    channel: Option<NonNull<ffi::CompChannel>>,
    /// The batch, and which of its completions come next.
    batch: [ffi::Wc; BATCH],
    next: usize,
    taken: usize,
    /// Asked for an event that has not come.
    armed: bool,
    /// Events that came and were not acknowledged.
    events: u32,
}

// SAFETY: the library's objects belong to no thread.
// JUSTIFICATION: handles of a library are pointers.
unsafe impl Send for Completions {}

impl Completions {
    /// One that never overflows with `entries` pieces of work. `polled`: without a channel.
    pub(super) fn new(device: &Arc<Device>, entries: u32, polled: bool) -> Result<Completions, Error> {
        let max = device.attributes().completion_entries;
        let refused =
            || Error::Limit { what: "entries of a completion queue", wanted: u64::from(entries), max: u64::from(max) };
        let count = i32::try_from(entries).ok().filter(|_| entries <= max).ok_or_else(refused)?;
        let channel = if polled { None } else { Some(create_channel(device)?) };
        let channel_pointer = channel.map_or(ptr::null_mut(), NonNull::as_ptr);
        // SAFETY: device and channel are alive, and stay so longer than the queue; the vector is
        // one of the device.
        // JUSTIFICATION: the library is in C.
        let pointer = unsafe {
            (device.functions().ibv_create_cq)(
                device.context().as_ptr(),
                count,
                ptr::null_mut(),
                channel_pointer,
                device.next_vector(),
            )
        };
        let Some(pointer) = NonNull::new(pointer) else {
            let error = last_error("ibv_create_cq");
            destroy_channel(device, channel);
            return Err(error);
        };
        Ok(Completions {
            device: Arc::clone(device),
            pointer,
            channel,
            batch: [ffi::Wc::default(); BATCH],
            next: 0,
            taken: 0,
            armed: false,
            events: 0,
        })
    }

    pub(super) fn pointer(&self) -> NonNull<ffi::Cq> {
        self.pointer
    }

    /// Readable when an event has come, unless it is polled.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the channel is alive, and so is its descriptor.
        // JUSTIFICATION: the library is in C.
        self.channel.map(|channel| unsafe { BorrowedFd::borrow_raw(channel.as_ref().fd) })
    }

    /// The next completion.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<ffi::Wc>, Error> {
        if self.next == self.taken && !self.take()? {
            return Ok(None);
        }
        let completion = self.batch[self.next];
        self.next += 1;
        Ok(Some(completion))
    }

    /// `false`: there are none.
    #[inline]
    fn take(&mut self) -> Result<bool, Error> {
        // SAFETY: the queue is alive, and the batch has as many entries as it says.
        // JUSTIFICATION: the header of the library does the same.
        let taken = unsafe {
            let poll = self.pointer.as_ref().context.as_ref().and_then(|context| context.ops.poll_cq);
            poll.map_or(-1, |poll| poll(self.pointer.as_ptr(), 32, self.batch.as_mut_ptr()))
        };
        match usize::try_from(taken) {
            Ok(taken) => {
                self.next = 0;
                self.taken = taken.min(BATCH);
                Ok(taken > 0)
            }
            Err(_) => Err(Error::State("in error: its completion queue cannot be read")),
        }
    }

    /// Asks for an event when there is a completion that was not there before.
    pub(super) fn arm(&mut self) -> Result<(), Error> {
        let Some(channel) = self.channel else { return Ok(()) };
        if self.armed {
            self.take_event(channel)?;
        }
        if self.armed {
            return Ok(());
        }
        // SAFETY: the queue is alive.
        // JUSTIFICATION: the header of the library does the same.
        let returned = unsafe {
            let notify = self.pointer.as_ref().context.as_ref().and_then(|context| context.ops.req_notify_cq);
            notify.map_or(libc::ENOSYS, |notify| notify(self.pointer.as_ptr(), 0))
        };
        check("ibv_req_notify_cq", returned)?;
        self.armed = true;
        Ok(())
    }

    /// Takes the event that was asked for, if it has come. There is one at most.
    fn take_event(&mut self, channel: NonNull<ffi::CompChannel>) -> Result<(), Error> {
        let mut queue: *mut ffi::Cq = ptr::null_mut();
        let mut context: *mut c_void = ptr::null_mut();
        // SAFETY: the channel is alive and does not block; it is that of this queue only.
        // JUSTIFICATION: the library is in C.
        let returned =
            unsafe { (self.device.functions().ibv_get_cq_event)(channel.as_ptr(), &raw mut queue, &raw mut context) };
        if returned != 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
                _ => Err(Error::Call { call: "ibv_get_cq_event", source: error }),
            };
        }
        self.armed = false;
        self.events += 1;
        if self.events == ACKNOWLEDGED {
            self.acknowledge();
        }
        Ok(())
    }

    fn acknowledge(&mut self) {
        // SAFETY: as many events came and were not acknowledged.
        // JUSTIFICATION: the library is in C.
        unsafe { (self.device.functions().ibv_ack_cq_events)(self.pointer.as_ptr(), self.events) };
        self.events = 0;
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.acknowledge();
        // SAFETY: its queue pair was destroyed, and all events are acknowledged. If it fails, it is
        // left to the end of the process; nobody uses it.
        // JUSTIFICATION: the library is in C.
        unsafe { (self.device.functions().ibv_destroy_cq)(self.pointer.as_ptr()) };
        destroy_channel(&self.device, self.channel);
    }
}

fn create_channel(device: &Device) -> Result<NonNull<ffi::CompChannel>, Error> {
    // SAFETY: the device is open.
    // JUSTIFICATION: the library is in C.
    let channel = unsafe { (device.functions().ibv_create_comp_channel)(device.context().as_ptr()) };
    let channel = NonNull::new(channel).ok_or_else(|| last_error("ibv_create_comp_channel"))?;
    // SAFETY: the channel is alive, and so is its descriptor.
    // JUSTIFICATION: the library is in C.
    let nonblocking = cm::set_nonblocking(unsafe { BorrowedFd::borrow_raw(channel.as_ref().fd) });
    if let Err(error) = nonblocking {
        destroy_channel(device, Some(channel));
        return Err(error);
    }
    Ok(channel)
}

fn destroy_channel(device: &Device, channel: Option<NonNull<ffi::CompChannel>>) {
    if let Some(channel) = channel {
        // SAFETY: the channel is alive, and its completion queue was destroyed.
        // JUSTIFICATION: the library is in C.
        unsafe { (device.functions().ibv_destroy_comp_channel)(channel.as_ptr()) };
    }
}

/// Why work has failed.
pub(super) fn status(status: i32) -> WorkStatus {
    match status {
        1 => WorkStatus::LocalLength,
        4 | 8 => WorkStatus::LocalProtection,
        5 => WorkStatus::Flushed,
        9 => WorkStatus::RemoteInvalidRequest,
        10 => WorkStatus::RemoteAccess,
        11 => WorkStatus::RemoteOperation,
        12 => WorkStatus::RetryExceeded,
        13 => WorkStatus::RnrRetryExceeded,
        other => WorkStatus::Other(other.cast_unsigned()),
    }
}
