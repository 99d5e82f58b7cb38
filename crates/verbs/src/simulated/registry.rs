//! The memory that is registered with a simulated device, and the keys for it.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use ebof_region::{Region, Registration};

use super::memory::Span;
use super::pair::EndName;
use crate::{DeviceAttributes, Error, Remote, WindowAccess};

/// The registrations of one network.
#[derive(Debug)]
pub(crate) struct MemoryRegistry {
    /// Of its registrations: unique in the process.
    owner: u64,
    regions_max: u32,
    region_bytes_max: u64,
    /// Peers can invalidate keys of regions.
    region_invalidation: bool,
    /// and those of memory windows.
    window_invalidation: bool,
    regions: AtomicU32,
    bytes: AtomicU64,
    keys: RwLock<Keys>,
}

/// Key `index << 8 | generation` is that of entry `index - 1`.
#[derive(Debug, Default)]
struct Keys {
    entries: Vec<Key>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Key {
    generation: u8,
    /// Nothing if it is not valid.
    region: Weak<Region>,
    valid: bool,
    /// It is that of a memory window, which keeps its entry.
    window: Option<Scope>,
}

/// What a memory window is for, once it was bound.
#[derive(Debug, Default)]
struct Scope {
    range: Range<usize>,
    access: Option<WindowAccess>,
    owner: Option<EndName>,
}

/// What a region keeps.
#[derive(Debug)]
struct Registered {
    registry: Arc<MemoryRegistry>,
    bytes: u64,
    /// For peers; 0: none was needed yet.
    key: AtomicU32,
}

impl Registration for Registered {
    fn owner(&self) -> u64 {
        self.registry.owner
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.forget(self.key.load(Ordering::Acquire));
        self.registry.regions.fetch_sub(1, Ordering::Relaxed);
        self.registry.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl MemoryRegistry {
    pub(crate) fn new(owner: u64, device: &DeviceAttributes) -> Arc<Self> {
        Arc::new(Self {
            owner,
            regions_max: device.regions,
            region_bytes_max: device.region_bytes,
            region_invalidation: device.region_invalidation,
            window_invalidation: device.window_invalidation,
            regions: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            keys: RwLock::default(),
        })
    }

    /// Bytes of all registered regions.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Registers a region, unless it is registered.
    pub(crate) fn register(self: &Arc<Self>, region: &Region) -> Result<(), Error> {
        if region.registration::<Registered>(self.owner).is_some() { Ok(()) } else { self.register_new(region) }
    }

    #[cold]
    fn register_new(self: &Arc<Self>, region: &Region) -> Result<(), Error> {
        let bytes = region.capacity() as u64;
        if bytes > self.region_bytes_max {
            let (what, max) = ("bytes of a registered region", self.region_bytes_max);
            return Err(Error::Limit { what, wanted: bytes, max });
        }
        let regions = self.regions.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let registered = Registered { registry: Arc::clone(self), bytes, key: AtomicU32::new(0) };
        if regions >= self.regions_max {
            let (wanted, max) = (u64::from(regions) + 1, u64::from(self.regions_max));
            return Err(Error::Limit { what: "registered regions", wanted, max });
        }
        // If another thread has registered it meanwhile, that one stays.
        drop(region.register(registered));
        Ok(())
    }

    /// The key of a region, which gets one if it has none that is valid.
    pub(crate) fn key(self: &Arc<Self>, region: &Arc<Region>) -> Result<u32, Error> {
        self.register(region)?;
        let registered = region.registration::<Registered>(self.owner).ok_or(Error::DeviceRemoved)?;
        let key = registered.key.load(Ordering::Acquire);
        if self.is_valid(key) {
            return Ok(key);
        }
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let key = registered.key.load(Ordering::Acquire);
        if keys.find(key).is_some() {
            return Ok(key);
        }
        let key = keys.add(Arc::downgrade(region));
        registered.key.store(key, Ordering::Release);
        Ok(key)
    }

    /// The memory that the peer of `owner` names, if it may access it like that.
    pub(crate) fn find(&self, remote: Remote, length: usize, access: WindowAccess, owner: EndName) -> Option<Span> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let key = keys.find(remote.key)?;
        let region = key.region.upgrade()?;
        let offset = usize::try_from(remote.address).ok()?.checked_sub(region.address().addr())?;
        if let Some(scope) = &key.window {
            let is_within = scope.range.start <= offset && offset.checked_add(length)? <= scope.range.end;
            if !is_within || scope.access != Some(access) || scope.owner != Some(owner) {
                return None;
            }
        }
        drop(keys);
        Span::new(region, offset, length)
    }

    /// Keys for memory windows, which are not valid before they are bound. They are given back by
    /// [`MemoryRegistry::remove_window`].
    pub(crate) fn add_windows(&self, count: u32) -> Vec<u32> {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let mut add = || {
            let key = keys.add(Weak::new());
            let entry = keys.entry(key);
            (entry.valid, entry.window) = (false, Some(Scope::default()));
            key
        };
        (0..count).map(|_| add()).collect()
    }

    /// Binds a window, which gets another key. `false` if it is bound.
    pub(crate) fn bind(&self, key: u32, to: &Span, access: WindowAccess, owner: EndName) -> bool {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let entry = keys.entry(key);
        if entry.valid {
            return false;
        }
        entry.generation = generation(key);
        (entry.region, entry.valid) = (Arc::downgrade(to.region()), true);
        entry.window = Some(Scope { range: to.range(), access: Some(access), owner: Some(owner) });
        true
    }

    /// Invalidates the key of a window. `false` if it is not valid, or another end's.
    pub(crate) fn unbind(&self, key: u32, owner: EndName) -> bool {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let window = keys.find(key).and_then(|key| key.window.as_ref());
        if window.is_none_or(|scope| scope.owner != Some(owner)) {
            return false;
        }
        let entry = keys.entry(key);
        (entry.region, entry.valid) = (Weak::new(), false);
        true
    }

    /// A window is not valid any more, whichever of its keys is meant.
    pub(crate) fn disable_window(&self, key: u32) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let entry = keys.entry(key);
        (entry.region, entry.valid) = (Weak::new(), false);
    }

    /// Takes a window away, whichever of its keys is meant.
    pub(crate) fn remove_window(&self, key: u32) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let entry = keys.entry(key);
        (entry.region, entry.valid) = (Weak::new(), false);
        if entry.window.take().is_some() {
            keys.free.push((key >> 8) - 1);
        }
    }

    fn is_valid(&self, key: u32) -> bool {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).find(key).is_some()
    }

    /// The peer of `owner` invalidates a key. `false` if there is none that it may invalidate.
    pub(crate) fn invalidate(&self, key: u32, owner: EndName) -> bool {
        self.window_invalidation && self.unbind(key, owner) || self.region_invalidation && self.forget(key)
    }

    fn forget(&self, key: u32) -> bool {
        key != 0 && self.keys.write().unwrap_or_else(PoisonError::into_inner).remove(key)
    }
}

impl Keys {
    fn find(&self, key: u32) -> Option<&Key> {
        let entry = self.entries.get(((key >> 8) as usize).checked_sub(1)?)?;
        (entry.valid && entry.generation == generation(key)).then_some(entry)
    }

    /// The entry of a key that was given.
    fn entry(&mut self, key: u32) -> &mut Key {
        &mut self.entries[(key >> 8) as usize - 1]
    }

    fn add(&mut self, region: Weak<Region>) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Key { generation: 0, region: Weak::new(), valid: false, window: None });
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        (entry.region, entry.valid) = (region, true);
        (index + 1) << 8 | u32::from(entry.generation)
    }

    fn remove(&mut self, key: u32) -> bool {
        if self.find(key).is_none_or(|key| key.window.is_some()) {
            return false;
        }
        let index = (key >> 8) - 1;
        let entry = &mut self.entries[index as usize];
        (entry.region, entry.valid) = (Weak::new(), false);
        self.free.push(index);
        true
    }
}

fn generation(key: u32) -> u8 {
    key.to_le_bytes()[0]
}
