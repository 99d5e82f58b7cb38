//! What a controller said of itself when it was last connected, and what it granted. Sends nothing:
//! whoever connects asks.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ebof_nvme::ControllerId;
use ebof_nvme::identify::IdentifyController;
use ebof_nvme::property::Cap;
use ebof_tls::TlsPsk;

use crate::command::limits::Limits;
use crate::shared::bindings::Inspection;
use crate::shared::fence::Fence;

/// Properties of a connected controller.
#[derive(Debug)]
pub(crate) struct Info {
    pub(crate) id: ControllerId,
    pub(crate) cap: Cap,
    pub(crate) identify: Arc<IdentifyController>,
    pub(crate) io_queues: u16,
    pub(crate) io_entries: u16,
    pub(crate) peer: SocketAddr,
    /// The active namespaces at the time of connecting; `None` if the controller did not list them.
    pub(crate) namespaces: Option<BTreeSet<u32>>,
    pub(crate) limits: Limits,
    /// The open namespaces as found at a reconnect.
    pub(crate) inspected: Vec<Inspection>,
    /// For TLS of its I/O queues.
    pub(crate) psk: GeneratedPsk,
    /// For commands that were lost with this association.
    pub(crate) fence: Arc<Fence>,
}

/// The key for TLS that authentication has generated, if it has; it is replaced while the
/// controller is live.
#[derive(Debug, Default)]
pub(crate) struct GeneratedPsk {
    psk: Mutex<Option<Arc<TlsPsk>>>,
    /// Replacements that are under way: the controller may have the next key already.
    replacements: AtomicUsize,
}

/// A replacement that is under way.
pub(crate) struct Replacement<'k>(&'k GeneratedPsk);

impl GeneratedPsk {
    pub(crate) fn new(psk: Option<Arc<TlsPsk>>) -> Self {
        Self { psk: Mutex::new(psk), replacements: AtomicUsize::new(0) }
    }

    pub(crate) fn get(&self) -> Option<Arc<TlsPsk>> {
        self.psk.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The controller is asked for another key.
    pub(crate) fn begin_replacement(&self) -> Replacement<'_> {
        self.replacements.fetch_add(1, Ordering::SeqCst);
        Replacement(self)
    }

    /// Whether the controller may have another key by now than this one.
    pub(crate) fn is_outdated(&self, psk: &Arc<TlsPsk>) -> bool {
        // In this order: a replacement that ends in between has stored its key.
        self.is_being_replaced() || self.get().is_some_and(|now| !Arc::ptr_eq(&now, psk))
    }

    pub(crate) fn is_being_replaced(&self) -> bool {
        self.replacements.load(Ordering::SeqCst) > 0
    }
}

impl Replacement<'_> {
    /// Both ends have the next key.
    pub(crate) fn finish(self, psk: Arc<TlsPsk>) {
        *self.0.psk.lock().unwrap_or_else(PoisonError::into_inner) = Some(psk);
    }
}

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        self.0.replacements.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Info {
    /// The in-capsule data size of I/O commands, bytes.
    pub(crate) fn in_capsule_bytes(&self) -> usize {
        // ICDOFF is 0 in NVMe/TCP; without a defined meaning, nothing is sent in capsules.
        if self.identify.icdoff.get() != 0 {
            return 0;
        }
        usize::try_from(self.identify.in_capsule_data_bytes()).unwrap_or(usize::MAX)
    }
}
