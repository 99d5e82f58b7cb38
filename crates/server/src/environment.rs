//! What a target has from the system below it, or from a simulation: time, chance, what its
//! namespaces and drives are stored in, what it remembers of them, the keys of hosts, and the RDMA
//! network.

pub(crate) mod fence;
pub(crate) mod keys;
pub(crate) mod making;
pub(crate) mod remembered;
pub(crate) mod settings;
pub(crate) mod stored_keys;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ebof_backend::{BackingId, Device, IoFactory, Kinds, OpenError, Spec};
use ebof_clock::Clock;
use ebof_verbs::{LoadError, Network};

use crate::environment::fence::{Fence, Fenced};
use crate::environment::keys::{KeyPlaces, SystemKeys};
use crate::environment::making::Making;
use crate::environment::remembered::{Forgotten, TextStore};
use crate::environment::stored_keys::StoredKeys;

/// What a target uses of the system, or of a simulation of it. The default is the system's.
#[derive(Clone)]
pub struct Environment {
    /// Time and random bytes.
    pub clock: Clock,
    /// What reactors and drives do their device I/O with.
    pub io: IoFactory,
    /// Where devices are.
    pub storage: Arc<dyn Storage>,
    /// Where ports over RDMA listen.
    pub rdma: RdmaNetwork,
    /// What tells this machine from all others: it is part of the identity of data that nothing
    /// names beyond the machine. The default is one of this process.
    pub machine: [u8; 16],
    /// Which files are made that are missing when the target starts.
    pub making: Making,
    /// What is remembered of namespaces that were served, beyond the life of the process. The
    /// default remembers nothing. While it cannot be stored, no change of the running target that
    /// needs it is made; what is lost makes every NSID one that may have named another object.
    pub objects: Arc<dyn TextStore>,
    /// Where it is remembered which hosts have proven which host identifiers, beyond the life of
    /// the process. It is stored within a second. The default remembers nothing.
    pub host_ids: Option<Arc<dyn TextStore>>,
    /// The keys of hosts that the target was given beside those of its configuration. The default
    /// keeps them as long as the process lives.
    pub stored_keys: Arc<StoredKeys>,
    /// Where the keys of hosts are that the configuration names. Keyrings with PSKs are the
    /// kernel's in any case.
    pub key_places: Arc<dyn KeyPlaces>,
}

impl Environment {
    /// Has files and devices refused that `refuses` gives a reason for.
    pub fn fence(&mut self, refuses: Fence) {
        self.storage = Arc::new(Fenced::new(Arc::clone(&self.storage), refuses));
    }
}

/// Where connections over RDMA come from.
#[derive(Clone, Debug, Default)]
pub enum RdmaNetwork {
    /// The devices of this machine, through rdma-core, which is loaded for the first port over RDMA
    /// and not needed without one.
    #[default]
    System,
    /// Another network.
    Other(Network),
}

impl RdmaNetwork {
    /// The network itself.
    ///
    /// # Errors
    /// rdma-core cannot be used.
    pub(crate) fn open(&self) -> Result<Network, LoadError> {
        match self {
            Self::System => Network::system(),
            Self::Other(network) => Ok(network.clone()),
        }
    }
}

/// Opens what namespaces and drives are stored in.
pub trait Storage: Send + Sync {
    /// Opens a device.
    ///
    /// # Errors
    /// It is not there, is in use, or is not what was asked for.
    fn open(&self, spec: &Spec) -> Result<Arc<dyn Device>, OpenError>;

    /// What tells the backing that `spec` names from others, without opening it; `None` if it is
    /// not there, or its data end with the device.
    fn id(&self, spec: &Spec) -> Option<BackingId> {
        ebof_backend::id(spec)
    }

    /// Whether nothing is at `path`: what is opened there is made, and reads as zeros.
    fn is_missing(&self, path: &Path) -> bool;

    /// Removes what was made at `path` a moment ago, and holds nothing.
    fn remove(&self, path: &Path);
}

/// Files, block devices and memory of this machine, and what else the program has registered.
impl Storage for Kinds {
    fn open(&self, spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        Kinds::open(self, spec)
    }

    fn id(&self, spec: &Spec) -> Option<BackingId> {
        Kinds::id(self, spec)
    }

    fn is_missing(&self, path: &Path) -> bool {
        !path.exists()
    }

    fn remove(&self, path: &Path) {
        // What was to be made has failed, and that is the message to give.
        let _ = std::fs::remove_file(path);
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            io: IoFactory::default(),
            storage: Arc::new(Kinds::system()),
            rdma: RdmaNetwork::System,
            machine: machine_of_process(),
            making: Making::default(),
            objects: Arc::new(Forgotten),
            host_ids: None,
            stored_keys: Arc::default(),
            key_places: Arc::new(SystemKeys),
        }
    }
}

/// Chosen at random when it is first asked for.
fn machine_of_process() -> [u8; 16] {
    static MACHINE: OnceLock<[u8; 16]> = OnceLock::new();
    *MACHINE.get_or_init(|| {
        let mut bytes = [0; 16];
        // Without randomness no drive can be made either, which says so.
        let _filled = Clock::system().fill(&mut bytes);
        bytes
    })
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("clock", &self.clock).finish_non_exhaustive()
    }
}
