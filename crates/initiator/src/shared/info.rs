//! What a controller said of itself when it was last connected, and what it granted. Sends nothing:
//! whoever connects asks.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ebof_nvme::ControllerId;
use ebof_nvme::identify::IdentifyController;
use ebof_nvme::property::Cap;
use ebof_tls::TlsPsk;

use crate::command::limits::Limits;
use crate::shared::bindings::Inspection;

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
}

/// The key for TLS that authentication has generated, if it has; it is replaced while the
/// controller is live.
#[derive(Debug, Default)]
pub(crate) struct GeneratedPsk(Mutex<Option<Arc<TlsPsk>>>);

impl GeneratedPsk {
    pub(crate) fn new(psk: Option<Arc<TlsPsk>>) -> Self {
        Self(Mutex::new(psk))
    }

    pub(crate) fn get(&self) -> Option<Arc<TlsPsk>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn replace(&self, psk: Arc<TlsPsk>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(psk);
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
