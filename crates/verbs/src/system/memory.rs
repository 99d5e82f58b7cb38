//! Registered memory: regions with a device, and the slots of messages.

use std::fmt;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use ebof_region::{Buffer, Region, Registration};

use super::device::Device;
use super::ffi;
use crate::Error;

/// Who accesses a region that is registered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RegistrationAccess {
    /// The adapter, for work of this end.
    Local,
    /// Peers, through memory windows.
    Windows,
    /// Peers as well, with the key.
    Remote,
}

/// A region as a device knows it. The region keeps it.
struct MemoryRegion {
    device: Arc<Device>,
    owner: u64,
    pointer: NonNull<ffi::Mr>,
    keys: Keys,
}

/// What work and peers name a region by.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    pub(super) local: u32,
    pub(super) remote: u32,
    registration: NonNull<ffi::Mr>,
}

// SAFETY: the library's objects belong to no thread; the pointer is used once, by `drop`.
// JUSTIFICATION: a handle of a library is a pointer.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
// JUSTIFICATION: as above.
unsafe impl Sync for MemoryRegion {}

/// The keys of a region, which is registered if it was not.
#[inline]
pub(super) fn keys(device: &Arc<Device>, region: &Region, access: RegistrationAccess) -> Result<Keys, Error> {
    let owner = match access {
        RegistrationAccess::Local => device.local_owner,
        RegistrationAccess::Windows => device.windows_owner,
        RegistrationAccess::Remote => device.remote_owner,
    };
    match region.registration::<MemoryRegion>(owner) {
        Some(registered) => Ok(registered.keys),
        None => register(device, region, access, owner),
    }
}

/// The registration of a region for memory windows.
#[inline]
pub(super) fn for_windows(device: &Arc<Device>, region: &Region) -> Result<NonNull<ffi::Mr>, Error> {
    keys(device, region, RegistrationAccess::Windows).map(|keys| keys.registration)
}

#[cold]
fn register(device: &Arc<Device>, region: &Region, access: RegistrationAccess, owner: u64) -> Result<Keys, Error> {
    let flags = match access {
        // With iWARP, the target of an RDMA READ is tagged memory that the peer writes to.
        RegistrationAccess::Local if device.is_iwarp() => ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_REMOTE_WRITE,
        RegistrationAccess::Local => ffi::ACCESS_LOCAL_WRITE,
        RegistrationAccess::Windows => ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_MW_BIND,
        RegistrationAccess::Remote => ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_REMOTE_READ | ffi::ACCESS_REMOTE_WRITE,
    };
    // SAFETY: the pages are the region's, which keeps the registration until it frees them. The
    // adapter accesses them for work, whose buffers are held meanwhile, and for peers that were
    // given the key of memory that they were to access.
    // JUSTIFICATION: the library is in C.
    let pointer = unsafe {
        (device.functions().ibv_reg_mr)(device.domain().as_ptr(), region.address().cast(), region.capacity(), flags)
    };
    let Some(pointer) = NonNull::new(pointer) else {
        return Err(Error::Register { bytes: region.capacity(), source: std::io::Error::last_os_error() });
    };
    // SAFETY: the library has returned a registration, which is alive.
    // JUSTIFICATION: the library is in C.
    let keys = unsafe { Keys { local: pointer.as_ref().lkey, remote: pointer.as_ref().rkey, registration: pointer } };
    // Another thread may have been faster; then this one is undone, and the other one's are the
    // region's.
    let refused = region.register(MemoryRegion { device: Arc::clone(device), owner, pointer, keys });
    drop(refused);
    Ok(region.registration::<MemoryRegion>(owner).map_or(keys, |registered| registered.keys))
}

impl Registration for MemoryRegion {
    fn owner(&self) -> u64 {
        self.owner
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: it is alive, and neither work nor a memory window refers to it: they keep its
        // region. If it fails, the device keeps the pages, or is gone.
        // JUSTIFICATION: the library is in C.
        unsafe { (self.device.functions().ibv_dereg_mr)(self.pointer.as_ptr()) };
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion").field("device", &self.device).finish_non_exhaustive()
    }
}

/// MessageSlots of equal size for messages, in one registered region. It does not know whose they
/// are.
pub(super) struct MessageSlots {
    /// Accessed through its region's address only: the adapter writes to some slots while others
    /// are read.
    buffer: Buffer,
    bytes: u32,
    count: u32,
    key: u32,
}

/// Distance of slots: a line of the cache.
const SLOT_ALIGNMENT: u32 = 64;

impl MessageSlots {
    /// `count` slots of `bytes`, all zero.
    pub(super) fn new(device: &Arc<Device>, count: u32, bytes: u32) -> Result<MessageSlots, Error> {
        let total = u64::from(count) * u64::from(stride(bytes));
        let max = device.attributes().region_bytes.min(1 << 40);
        if total > max {
            return Err(Error::Limit { what: "bytes for messages", wanted: total, max });
        }
        let total = usize::try_from(total).expect("at most 2^40, on 64-bit machines");
        let buffer = Buffer::zeroed(total.max(1));
        let key = keys(device, buffer.region(), RegistrationAccess::Local)?.local;
        Ok(MessageSlots { buffer, bytes, count, key })
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// For the adapter: the first `length` bytes of a slot.
    #[inline]
    pub(super) fn entry(&self, slot: u32, length: u32) -> ffi::Sge {
        debug_assert!(length <= self.bytes);
        ffi::Sge { addr: self.address(slot) as u64, length, lkey: self.key }
    }

    #[inline]
    fn address(&self, slot: u32) -> *mut u8 {
        assert!(slot < self.count, "there is no slot {slot}");
        let offset = self.buffer.offset() + slot as usize * stride(self.bytes) as usize;
        self.buffer.region().address().wrapping_add(offset)
    }

    /// The bytes of a slot.
    ///
    /// # Safety
    /// The adapter does not access the slot as long as the bytes are borrowed, and nobody changes
    /// them.
    // SAFETY: as above.
    // JUSTIFICATION: who has a slot is known to the caller.
    #[inline]
    pub(super) unsafe fn slice(&self, slot: u32) -> &[u8] {
        // SAFETY: the slot is within the buffer, which is as large as all slots; its bytes are
        // initialised, and, as the caller promises, do not change meanwhile.
        // JUSTIFICATION: other slots change meanwhile, so that the buffer cannot be borrowed.
        unsafe { slice::from_raw_parts(self.address(slot), self.bytes as usize) }
    }

    /// The bytes of a slot, to be written.
    ///
    /// # Safety
    /// Nobody else accesses the slot as long as the bytes are borrowed.
    // SAFETY: as above.
    // JUSTIFICATION: as for `slice`.
    #[inline]
    pub(super) unsafe fn slice_mut(&mut self, slot: u32) -> &mut [u8] {
        // SAFETY: as in `slice`.
        // JUSTIFICATION: as in `slice`.
        unsafe { slice::from_raw_parts_mut(self.address(slot), self.bytes as usize) }
    }
}

fn stride(bytes: u32) -> u32 {
    // Only for sizes that are refused does it not fit.
    bytes.checked_next_multiple_of(SLOT_ALIGNMENT).unwrap_or(bytes).max(SLOT_ALIGNMENT)
}
