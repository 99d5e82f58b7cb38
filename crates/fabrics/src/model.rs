//! What is served: ports, subsystems, namespaces, limits. A model is immutable; a change is a whole
//! new model (`Registry::replace_model`). It owns no state of a connection and does not know what a
//! device is.

mod ana;
pub(crate) mod discovery;
pub(crate) mod function;
pub(crate) mod provision;
pub(crate) mod secrets;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use ebof_authentication::HostPsk;
use ebof_authentication::controller::Policy;
use ebof_drive::View;
use ebof_drive::reservation::{Reservations, Right};
use ebof_nvme::identify::ProtectionType;
use ebof_nvme::log::{AddressFamily, RdmaProvider, TrType};
use ebof_nvme::{ControllerId, HostId, Nqn, Nsid, Status, Uuid};

pub use ana::{GROUPS_MAX, GroupStates, refusal};

use function::Function;
use secrets::HostSecrets;
use secrets::PskSource;

/// The target's name for a backend device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

/// The identity of data: equal where the data are the same object, whatever is announced to hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataId(pub [u8; 16]);

/// A port of the target (Discovery Log Page Entry: PORTID).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// Everything that is served at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Generation Counter of the Discovery Log Page: larger in every new model that a host can tell
    /// from the last.
    pub generation: u64,
    /// The identity of the discovery subsystem. It always answers to the well-known NQN as well.
    pub discovery: DiscoveryIdentity,
    /// The NVM subsystems, their NQNs different from one another and from the discovery
    /// subsystem's.
    pub subsystems: Vec<Arc<Subsystem>>,
    /// The ports, their ids different from one another.
    pub ports: Vec<Port>,
    /// Subsystems that are missing for a moment, while the configuration changes: a host that asks
    /// for them may try again.
    pub returning: Vec<Nqn>,
    /// Subsystems that are disabled: a host that asks for them may try again, and is told apart in
    /// what is noted of refused hosts.
    pub disabled: Vec<Nqn>,
    /// Hosts that have secrets: each proves who it is wherever it goes, but at the discovery
    /// subsystem.
    pub secrets: BTreeMap<Nqn, Arc<HostSecrets>>,
    /// The PSKs for TLS of hosts that have some: connections over TLS of others end.
    pub tls_psks: BTreeMap<Nqn, Arc<Vec<HostPsk>>>,
    /// Which hashes and groups are acceptable in such a proof.
    pub authentication: Policy,
}

impl Model {
    /// The same, where hosts have other keys.
    #[must_use]
    pub fn with_keys(
        &self,
        secrets: BTreeMap<Nqn, Arc<HostSecrets>>,
        tls_psks: BTreeMap<Nqn, Arc<Vec<HostPsk>>>,
    ) -> Self {
        Self { secrets, tls_psks, ..self.clone() }
    }

    /// Whether a host has a key, by which it can prove who it is.
    pub(crate) fn can_prove(&self, host: &Nqn) -> bool {
        self.secrets.contains_key(host) || self.tls_psks.contains_key(host)
    }

    /// Whether a host has a secret here that it does not have in `other`.
    pub(crate) fn has_more_secrets(&self, other: &Self, host: &Nqn) -> bool {
        let of_other = other.secrets.get(host);
        let is_there = |secret| of_other.is_some_and(|secrets| secrets.host.contains(secret));
        self.secrets.get(host).is_some_and(|secrets| !secrets.host.iter().all(is_there))
    }

    /// Whether a host may have a PSK from there.
    pub(crate) fn has_key(&self, host: &Nqn, source: PskSource) -> bool {
        match source {
            PskSource::Configured => self.tls_psks.contains_key(host),
            PskSource::Generated(_) => self.secrets.contains_key(host),
        }
    }
}

/// Identity of the discovery subsystem.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoveryIdentity {
    /// Its unique NQN, or the well-known one.
    pub nqn: Nqn,
    /// Serial Number, at most 20 characters of ASCII.
    pub serial: String,
    /// Model Number, at most 40 characters of ASCII.
    pub model: String,
    /// Firmware Revision, at most 8 characters of ASCII.
    pub firmware: String,
}

/// An NVM subsystem: a set of namespaces with a name, its hosts and its ports.
#[derive(Clone, Debug, PartialEq)]
pub struct Subsystem {
    /// Its NQN.
    pub nqn: Nqn,
    /// Serial Number, at most 20 characters of ASCII; the same on every controller and after every
    /// start.
    pub serial: String,
    /// Model Number, at most 40 characters of ASCII.
    pub model: String,
    /// Firmware Revision, at most 8 characters of ASCII.
    pub firmware: String,
    /// Whether any host may connect; otherwise only `allowed_hosts`.
    pub allow_any_host: bool,
    /// Hosts that may connect.
    pub allowed_hosts: Vec<Nqn>,
    /// Whether hosts without a secret are refused.
    pub authenticated_only: bool,
    /// Whether hosts that come without TLS are refused.
    pub tls_only: bool,
    /// Ports on which it is reached.
    pub ports: Vec<PortId>,
    /// Lowest controller ID to give out, at least 1 by custom.
    pub cntlid_min: ControllerId,
    /// Highest controller ID to give out, at most FFEFh.
    pub cntlid_max: ControllerId,
    /// The namespaces: all of them in a model, those that are attached to its host in what a
    /// controller knows.
    pub namespaces: NamespaceTable,
    /// In what a controller knows: all of them, where some are not attached to its host.
    pub allocated: Option<Arc<NamespaceTable>>,
    /// In what a controller knows: NSIDs of which the host has still to learn that they name
    /// nothing, or another namespace, now.
    pub pending: BTreeSet<Nsid>,
    /// The best that ANA groups have at any port; in what a controller knows, their states at its
    /// port.
    pub states: GroupStates,
    /// The drive behind the subsystem, which its hosts may manage.
    pub drive: Option<Arc<View>>,
    /// The function of the drive that this is the subsystem of.
    pub function: Option<Function>,
    /// What the SMART log says about the medium.
    pub health: Health,
}

/// The part of the SMART / Health log that only the drive knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Composite temperature in kelvin; 0 where there is no sensor.
    pub temperature_kelvin: u16,
    /// Available spare in percent.
    pub available_spare: u8,
    /// Available spare threshold in percent.
    pub available_spare_threshold: u8,
    /// Percentage of the device's life that is used, up to 255.
    pub percentage_used: u8,
    /// The medium has become read only.
    pub read_only: bool,
    /// The device is no longer reliable.
    pub degraded: bool,
    /// Power cycles.
    pub power_cycles: u64,
    /// Power on hours.
    pub power_on_hours: u64,
    /// Shutdowns without notice.
    pub unsafe_shutdowns: u64,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Namespace {
    /// Its identifier.
    pub nsid: Nsid,
    /// The device that holds its blocks, from byte `offset_bytes` on.
    pub device: DeviceId,
    /// The data that the device has now. What is announced follows it, or was set.
    pub object: DataId,
    /// Where on the device it begins, in bytes.
    pub offset_bytes: u64,
    /// Size in logical blocks, at least 1.
    pub blocks: u64,
    /// Logical block size as a power of two, without metadata: 9 or 12.
    pub block_shift: u8,
    /// What goes with the data of each block.
    pub metadata: Metadata,
    /// The device cannot be written; a host cannot change that.
    pub read_only: bool,
    /// Write protected; a host may change that (feature 84h).
    pub write_protected: bool,
    /// Whether deallocation does something: blocks then read as zeros.
    pub deallocates: bool,
    /// Whether the device has a volatile write cache, so that Flush and FUA matter.
    pub volatile_cache: bool,
    /// NGUID; all zeros for none.
    pub nguid: [u8; 16],
    /// EUI-64; all zeros for none.
    pub eui64: [u8; 8],
    /// UUID; nil for none.
    pub uuid: Uuid,
    /// ANA group, 1 to [`GROUPS_MAX`].
    pub ana_group: u32,
    /// What a reservation leaves to the host: everything in a model, the host's own right in what
    /// its controller knows.
    pub right: Right,
    /// What only a namespace of a drive has. Without it a namespace is attached to every
    /// controller, and shared.
    pub provision: Option<Arc<Provision>>,
}

/// What goes with the data of a block, at its end: blocks with metadata are extended blocks, to
/// hosts as on devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Bytes of metadata: 0 for none, or [`Metadata::BYTES`].
    pub bytes: u16,
    /// Whether it is protection information, and of which type.
    pub protection: ProtectionType,
    /// Protection information is in the first bytes of the metadata: the same place, of so few.
    pub first: bool,
}

/// What only a namespace of a drive has.
#[derive(Clone, Debug, PartialEq)]
pub struct Provision {
    /// Blocks that may be allocated (NCAP).
    pub capacity_blocks: u64,
    /// Bytes that it takes from the drive's capacity (NVMCAP).
    pub claimed_bytes: u64,
    /// Bytes that are allocated now (NUSE).
    pub used: Usage,
    /// Bytes that are allocated at a time.
    pub extent_bytes: u64,
    /// Blocks that are kept in so many bytes.
    pub extent_blocks: u64,
    /// Index of its LBA format.
    pub format: u8,
    /// Whether several hosts may be attached to it (NMIC).
    pub shared: bool,
    /// NQNs of the hosts that are attached to it; `None` is every host.
    pub hosts: Option<BTreeSet<String>>,
    /// The functions that it is attached to.
    pub functions: BTreeSet<u16>,
    /// Registrants and the reservation; `None` where there never were any.
    pub reservations: Option<Arc<Reservations>>,
    /// The status that commands of all hosts to it are refused with for now.
    pub barred: Option<Status>,
    /// How much of a format is still to be done, in percent (FPI).
    pub format_percent_left: u8,
}

/// Bytes of a namespace that are allocated, as their owner counts them. All are equal: a
/// namespace is the same, and no host has to be notified, when more of it is allocated.
#[derive(Clone)]
pub struct Usage(Arc<Count>);

type Count = dyn Fn() -> u64 + Send + Sync;

/// Namespaces in ascending order of NSID.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceTable {
    sorted: Vec<Namespace>,
}

/// Why namespaces do not make a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// An NSID that cannot name a namespace.
    #[error("NSID {0} cannot name a namespace")]
    BadNsid(Nsid),
    /// Two namespaces of one NSID.
    #[error("NSID {0} is used twice")]
    Duplicate(Nsid),
    /// A size of zero, a block size other than 512 and 4096, metadata that is not possible, or an
    /// end beyond 2^64 bytes.
    #[error("the size of namespace {0} is not legal")]
    BadSize(Nsid),
    /// More than [`NamespaceTable::MAX`].
    #[error("a subsystem holds at most {max} namespaces", max = NamespaceTable::MAX)]
    TooMany,
}

/// Where hosts reach the target.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its id.
    pub id: PortId,
    /// Transport.
    pub trtype: TrType,
    /// Address family of `traddr`.
    pub adrfam: AddressFamily,
    /// Address to listen on; `0.0.0.0` or `::` are described by the address that the host reached.
    pub traddr: String,
    /// Port number as text.
    pub trsvcid: String,
    /// Whether it has TLS, over TCP.
    pub tls: TlsUse,
    /// Provider type, for the discovery log's TSAS over RDMA.
    pub provider: RdmaProvider,
    /// Only the discovery subsystem answers here.
    pub discovery_only: bool,
    /// Other discovery controllers that hosts are referred to.
    pub referrals: Vec<Referral>,
    /// The states of ANA groups here.
    pub states: GroupStates,
    /// Data bytes that an I/O command capsule may carry (IOCCSZ less 64), a multiple of 16.
    pub in_capsule_bytes: u32,
    /// Largest queue in entries (CAP.MQES), 2 to [`Limits::queue_entries`].
    pub max_queue_entries: u16,
    /// I/O queues that a controller may have here, 1 to [`Limits::io_queues`].
    pub max_io_queues: u16,
}

/// Another discovery controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    /// Transport.
    pub trtype: TrType,
    /// Address family of `traddr`.
    pub adrfam: AddressFamily,
    /// Its address.
    pub traddr: String,
    /// Port number as text.
    pub trsvcid: String,
    /// Whether it has TLS, over TCP.
    pub tls: TlsUse,
}

/// Whether connections at a port are TLS connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsUse {
    /// Never.
    #[default]
    Off,
    /// As the host begins.
    Allowed,
    /// All.
    Required,
}

/// Limits of the whole target. What is announced to hosts follows from them and is enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// I/O queue pairs per controller, 1 to 65535.
    pub io_queues: u16,
    /// Entries of a queue (CAP.MQES), 2 to 65535.
    pub queue_entries: u16,
    /// Data of one command (MDTS) in bytes: a power of two of 4096 at least.
    pub transfer_bytes: u32,
    /// Largest Write Zeroes and Write Uncorrectable (WZSL, WUSL) in bytes: a power of two of 4096
    /// at least.
    pub write_zeroes_bytes: u32,
    /// Largest Verify (VSL) in bytes: a power of two of 4096 at least.
    pub verify_bytes: u32,
    /// Ranges of one Dataset Management command (DMRL), 1 to 256.
    pub dsm_ranges: u16,
    /// Blocks of one range of Dataset Management (DMRSL); 0 for any number.
    pub dsm_range_blocks: u32,
    /// Blocks of all ranges of one Dataset Management command together (DMSL); 0 for any number.
    pub dsm_blocks: u64,
    /// Bytes of one source range of Copy (MSSRL).
    pub copy_range_bytes: u32,
    /// Bytes of all source ranges of one Copy (MCL).
    pub copy_bytes: u32,
    /// Source ranges of one Copy (MSRC), 1 to 256.
    pub copy_ranges: u16,
    /// Controllers, those of discovery included.
    pub controllers: u32,
    /// Of these, one host's at most.
    pub host_controllers: u32,
    /// Queues of one host, those of all its controllers together: each is a connection.
    pub host_queues: u32,
    /// Asynchronous Event Requests that a controller holds (AERL), 1 to 256.
    pub async_events: u16,
    /// Abort commands that a controller executes at a time (ACL), 1 to 256.
    pub aborts: u16,
    /// How long CSTS.RDY may take to follow CC.EN (CAP.TO), in milliseconds.
    pub ready_timeout_ms: u32,
    /// How long a host may leave a controller disabled after Connect, in milliseconds.
    pub enable_timeout_ms: u32,
    /// Keep alive time-out of a discovery controller whose host names none, in milliseconds.
    pub discovery_keep_alive_ms: u32,
}

impl Model {
    /// A model of nothing but the discovery subsystem, without a port.
    #[must_use]
    pub fn new(discovery: DiscoveryIdentity) -> Self {
        Self {
            generation: 1,
            discovery,
            subsystems: Vec::new(),
            ports: Vec::new(),
            returning: Vec::new(),
            disabled: Vec::new(),
            secrets: BTreeMap::new(),
            tls_psks: BTreeMap::new(),
            authentication: Policy::default(),
        }
    }

    /// The subsystem named `nqn`.
    #[must_use]
    pub fn subsystem(&self, nqn: &Nqn) -> Option<&Arc<Subsystem>> {
        self.subsystems.iter().find(|subsystem| subsystem.nqn == *nqn)
    }

    /// The port `id`.
    #[must_use]
    pub fn port(&self, id: PortId) -> Option<&Port> {
        self.ports.iter().find(|port| port.id == id)
    }

    /// Whether `nqn` names the discovery subsystem, by the well-known or its own name.
    #[must_use]
    pub fn is_discovery(&self, nqn: &Nqn) -> bool {
        nqn.is_discovery() || *nqn == self.discovery.nqn
    }
}

impl Subsystem {
    /// A subsystem without namespaces, hosts and ports, with controller IDs 1 to FFEFh.
    #[must_use]
    pub fn new(nqn: Nqn, serial: String) -> Self {
        Self {
            nqn,
            serial,
            model: String::from("ebof"),
            firmware: String::from(env!("CARGO_PKG_VERSION")),
            allow_any_host: false,
            allowed_hosts: Vec::new(),
            authenticated_only: false,
            tls_only: false,
            ports: Vec::new(),
            cntlid_min: ControllerId(1),
            cntlid_max: ControllerId::MAX,
            namespaces: NamespaceTable::default(),
            allocated: None,
            pending: BTreeSet::new(),
            states: GroupStates::default(),
            drive: None,
            function: None,
            health: Health::default(),
        }
    }

    /// Whether `host` may connect.
    #[must_use]
    pub fn allows(&self, host: &Nqn) -> bool {
        self.allow_any_host || self.allowed_hosts.contains(host)
    }

    /// What a controller of `host` at a port with these `states` knows of it: only the namespaces
    /// that are attached to that host, with its rights to them.
    ///
    /// Deviation: attachment is a host's. All controllers of a host have its namespaces, private
    /// ones too: a host that comes back before its old controller is given up would find none
    /// otherwise.
    #[must_use]
    pub fn shown_to(self: &Arc<Self>, host: &Nqn, host_id: HostId, states: &GroupStates) -> Arc<Self> {
        let everything = self.namespaces.iter().all(|namespace| namespace.is_attached(host));
        let is_free = |namespace: &Namespace| namespace.right_of(host_id) == Right::Free;
        let states = states.limited_by(&self.states);
        if everything && states.is_uniform() && self.namespaces.iter().all(is_free) {
            return Arc::clone(self);
        }
        let mut shown = Self { states, ..Self::clone(self) };
        shown.namespaces.sorted.retain(|namespace| namespace.is_attached(host));
        for namespace in &mut shown.namespaces.sorted {
            namespace.right = ana::right(&shown.states, namespace, namespace.right_of(host_id));
        }
        if !everything {
            shown.allocated = Some(Arc::new(self.namespaces.clone()));
        }
        Arc::new(shown)
    }

    /// All namespaces, those included that are not attached.
    #[must_use]
    pub fn allocated(&self) -> &NamespaceTable {
        self.allocated.as_deref().unwrap_or(&self.namespaces)
    }

    /// Namespaces at most (MNAN).
    #[must_use]
    pub fn namespaces_max(&self) -> u32 {
        let most = u32::try_from(NamespaceTable::MAX).expect("1024 fits");
        self.drive.as_ref().map_or(most, |drive| drive.profile.namespaces.min(most))
    }

    /// The highest NSID that may be used (NN).
    #[must_use]
    pub fn nsid_max(&self) -> Nsid {
        let last = self.allocated().sorted.last().map_or(0, |last| last.nsid.0);
        Nsid(last.max(self.namespaces_max()))
    }

    /// Whether this is the own subsystem of a drive with functions, whose managers act for the
    /// primary controller.
    #[must_use]
    pub fn has_functions(&self) -> bool {
        self.function.is_none() && self.drive.as_ref().is_some_and(|drive| !drive.functions.is_empty())
    }

    /// The drive's own subsystem, if this is one of a drive or of a function of it; otherwise its
    /// own name.
    #[must_use]
    pub fn drive_nqn(&self) -> &Nqn {
        self.function.as_ref().map_or(&self.nqn, |function| &function.drive)
    }
}

impl Namespace {
    /// Whether `host` sees it.
    #[must_use]
    pub fn is_attached(&self, host: &Nqn) -> bool {
        let hosts = self.provision.as_ref().and_then(|provision| provision.hosts.as_ref());
        hosts.is_none_or(|hosts| hosts.contains(host.as_str()))
    }

    /// The namespace as Identify shows it: who else is attached and what is reserved are no
    /// attributes of it.
    pub(crate) fn attributes(&self) -> Self {
        let provision = self.provision.as_deref().map(|provision| {
            let bare = Provision {
                hosts: None,
                functions: BTreeSet::new(),
                reservations: None,
                barred: None,
                format_percent_left: 0,
                used: provision.used.clone(),
                ..*provision
            };
            Arc::new(bare)
        });
        Self { right: Right::Free, provision, ..self.clone() }
    }

    /// What reservations leave to `host`.
    fn right_of(&self, host: HostId) -> Right {
        if let Some(status) = self.provision.as_ref().and_then(|provision| provision.barred) {
            return Right::Barred(status);
        }
        let reservations = self.provision.as_ref().and_then(|provision| provision.reservations.as_ref());
        reservations.map_or(Right::Free, |reservations| reservations.right_of(host))
    }

    /// Size in bytes, without metadata; a table holds only namespaces for which this does not
    /// overflow.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks << self.block_shift
    }

    /// Bytes of a block on its device, with metadata.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        (1 << self.block_shift) + u64::from(self.metadata.bytes)
    }

    /// Whether commands that change data are refused.
    #[must_use]
    pub const fn is_protected(&self) -> bool {
        self.read_only || self.write_protected
    }
}

impl Metadata {
    /// Bytes of metadata where there are any.
    pub const BYTES: u16 = 8;

    /// Whether there is protection information.
    #[inline]
    #[must_use]
    pub fn is_protected(self) -> bool {
        self.protection != ProtectionType::None
    }

    fn is_legal(self) -> bool {
        match self.protection {
            ProtectionType::None => matches!(self.bytes, 0 | Self::BYTES),
            ProtectionType::Type1 | ProtectionType::Type2 | ProtectionType::Type3 => self.bytes == Self::BYTES,
            ProtectionType::Reserved(_) => false,
        }
    }
}

impl NamespaceTable {
    /// Namespaces of a subsystem at most.
    pub const MAX: usize = 1024;

    /// A table of `namespaces` in any order.
    ///
    /// # Errors
    /// What is wrong with which namespace.
    pub fn new(mut namespaces: Vec<Namespace>) -> Result<Self, TableError> {
        if namespaces.len() > Self::MAX {
            return Err(TableError::TooMany);
        }
        namespaces.sort_by_key(|namespace| namespace.nsid);
        for (at, namespace) in namespaces.iter().enumerate() {
            let nsid = namespace.nsid;
            // FFFFFFFEh is reserved.
            if !nsid.names_one() || nsid.0 == 0xffff_fffe {
                return Err(TableError::BadNsid(nsid));
            }
            if at > 0 && namespaces[at - 1].nsid == nsid {
                return Err(TableError::Duplicate(nsid));
            }
            let block_bytes = (1 << (namespace.block_shift & 31)) + u64::from(namespace.metadata.bytes);
            let bytes = namespace.blocks.checked_mul(block_bytes);
            let end = bytes.and_then(|bytes| bytes.checked_add(namespace.offset_bytes));
            let shape = matches!(namespace.block_shift, 9 | 12) && namespace.metadata.is_legal();
            if namespace.blocks == 0 || !shape || end.is_none() {
                return Err(TableError::BadSize(nsid));
            }
        }
        Ok(Self { sorted: namespaces })
    }

    /// The namespace `nsid`.
    #[must_use]
    pub fn find(&self, nsid: Nsid) -> Option<&Namespace> {
        // Almost always NSIDs run from 1 without a gap, and the NSID is the index.
        let guess = usize::try_from(nsid.0.wrapping_sub(1)).ok().and_then(|at| self.sorted.get(at));
        if let Some(namespace) = guess
            && namespace.nsid == nsid
        {
            return guess;
        }
        let at = self.sorted.binary_search_by_key(&nsid, |namespace| namespace.nsid).ok()?;
        self.sorted.get(at)
    }

    /// The namespaces in ascending order of NSID.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Namespace> {
        self.sorted.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The same table with the namespace `nsid` write protected or not.
    pub(crate) fn with_write_protection(&self, nsid: Nsid, protected: bool) -> Self {
        self.changing(|namespace| {
            if namespace.nsid == nsid {
                namespace.write_protected = protected;
            }
        })
    }

    /// The same table after a change of each namespace, which leaves its NSID and its place.
    pub(crate) fn changing(&self, change: impl FnMut(&mut Namespace)) -> Self {
        let mut table = self.clone();
        table.sorted.iter_mut().for_each(change);
        table
    }

    /// Some of the namespaces.
    pub(crate) fn retaining(&self, keep: impl Fn(&Namespace) -> bool) -> Self {
        Self { sorted: self.sorted.iter().filter(|&namespace| keep(namespace)).cloned().collect() }
    }
}

impl Usage {
    /// Asks `count` whenever it is wanted to be known; from any thread.
    pub fn new(count: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(count))
    }

    /// Bytes that are allocated now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Usage").field(&self.bytes()).finish()
    }
}

impl PartialEq for Usage {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Port {
    /// Whether its hosts have their queues in memory, and are attached without a Connect: their
    /// controllers are those of a PCI function. Discovery does not list it.
    #[must_use]
    pub fn is_memory_based(&self) -> bool {
        self.trtype == TrType::PCIE
    }

    /// Whether `traddr` is a wildcard that no host can connect to.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        matches!(self.traddr.as_str(), "0.0.0.0" | "::" | "")
    }
}

impl Default for Health {
    /// A sound medium without sensors.
    fn default() -> Self {
        Self {
            temperature_kelvin: 0,
            available_spare: 100,
            available_spare_threshold: 10,
            percentage_used: 0,
            read_only: false,
            degraded: false,
            power_cycles: 0,
            power_on_hours: 0,
            unsafe_shutdowns: 0,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            io_queues: 1024,
            queue_entries: 1024,
            transfer_bytes: 1 << 20,
            write_zeroes_bytes: 16 << 20,
            verify_bytes: 16 << 20,
            dsm_ranges: 256,
            dsm_range_blocks: u32::MAX,
            // What Linux and SPDK ask for in one command at most: the size of a discard is below
            // 2^32 sectors there.
            dsm_blocks: 1 << 32,
            copy_range_bytes: 16 << 20,
            copy_bytes: 64 << 20,
            copy_ranges: 128,
            controllers: 4096,
            host_controllers: 4096,
            host_queues: u32::MAX,
            async_events: 16,
            aborts: 4,
            ready_timeout_ms: 15_000,
            enable_timeout_ms: 120_000,
            discovery_keep_alive_ms: 120_000,
        }
    }
}
