//! The desired state of a target: ports, hosts, subsystems, namespaces, and what holds for all of
//! them.
//!
//! Owns the types, their defaults and limits, and the way from a text to them ([`load`]). A
//! [`Config`] that came from [`load`] is consistent: names are unique, references point somewhere,
//! numbers are within limits. Reading and checking is in `read`, the import of the Linux target's
//! files in [`crate::nvmetcli`].

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use ebof_nvme::{Nqn, Uuid};
use serde::{Serialize, Serializer};

use crate::drive::Drive;
use crate::listen::Listen;
use crate::units::{format_duration, format_size};

mod drive;
pub mod limits;
mod numbers;

pub use drive::{Attach, DriveProfile, ManagedDrive, WordsError};
pub(crate) use drive::{FORGETFUL, READ_ONLY, WITHOUT_SIZE, is_drive_name};
pub use numbers::Assigned;

/// What a target should be. Serialised, it is a configuration that [`load`] reads to the same
/// value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Config {
    /// What holds for the whole target.
    pub target: TargetOptions,
    /// Where hosts reach it.
    pub ports: Vec<Port>,
    /// The hosts it knows.
    pub hosts: Vec<Host>,
    /// The drives that subsystems name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drives: Vec<ManagedDrive>,
    /// What hosts connect to.
    pub subsystems: Vec<Subsystem>,
}

/// What holds for the whole target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TargetOptions {
    /// Threads that own queue pairs; `None` is one for each processor it may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u16>,
    /// The most connections at a time, over all ports.
    pub max_connections: u32,
    /// The most controllers at a time, discovery included.
    pub max_controllers: u32,
    /// What one host may use of connections, controllers and buffers, percent.
    pub host_share: u8,
    /// How many of the connections may come from one address and not be admitted yet, percent.
    pub address_share: u8,
    /// How long a connection may take from its first byte to an accepted Connect.
    #[serde(serialize_with = "as_duration")]
    pub handshake_timeout: Duration,
    /// How many refused connections are remembered.
    pub refused_journal: u32,
    /// How many entries the Error Information log of a controller has.
    pub error_log_entries: u16,
    /// Where OpenMetrics are served over HTTP; `None` is nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// The discovery subsystem's own NQN, besides the well-known one, which always answers.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_optional_text")]
    pub discovery_nqn: Option<Nqn>,
}

/// Where hosts reach the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// What subsystems call it; its address where none was given.
    pub name: String,
    /// Its number in the discovery log (PORTID).
    pub id: u16,
    /// Whether the configuration leaves the number to [`load`].
    #[serde(skip)]
    pub assigned: Assigned,
    /// The address it listens on.
    pub listen: Listen,
    /// The IP address that discovery tells hosts to connect to instead of the one they reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<IpAddr>,
    /// Serves the discovery subsystem and nothing else.
    pub discovery_only: bool,
    /// Data that a host may send inside a command capsule of an I/O queue, in bytes.
    #[serde(rename = "in_capsule_data", serialize_with = "as_size")]
    pub in_capsule_data_bytes: u32,
    /// The most data in one H2CData PDU (MAXH2CDATA), in bytes.
    #[serde(rename = "max_h2c_data", serialize_with = "as_size")]
    pub max_h2c_data_bytes: u32,
    /// Whether the last C2HData PDU stands for the response too (SUCCESS flag).
    pub c2h_success: bool,
    /// Checksums over PDU headers.
    pub header_digest: Digest,
    /// Checksums over PDU data.
    pub data_digest: Digest,
    /// The deepest I/O queue in entries.
    pub max_queue_size: u16,
    /// The most I/O queues of a controller.
    pub max_io_queues: u16,
    /// IP type of service of what is sent; `None` is the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tos: Option<u8>,
    /// Priority of what is sent (`SO_PRIORITY`); `None` is the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub so_priority: Option<u32>,
    /// How long a receive may poll the network card's queue, in microseconds (`SO_BUSY_POLL`);
    /// connections of one such queue are then served by one thread. `None` is the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_poll_us: Option<u32>,
    /// Whether polling stands in for the network card's interrupts (`SO_PREFER_BUSY_POLL`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prefer_busy_poll: bool,
    /// Payloads of this size or more are sent without a copy (`MSG_ZEROCOPY`) where they are in
    /// buffers, in bytes; `None` copies all.
    #[serde(rename = "zerocopy_send", skip_serializing_if = "Option::is_none", serialize_with = "as_optional_size")]
    pub zerocopy_send_bytes: Option<u32>,
}

/// Whether a port uses a digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Digest {
    /// Never, also when the host asks for it.
    Off,
    /// When the host asks for it.
    #[default]
    Allowed,
    /// A host that does not ask for it is refused.
    Required,
}

/// A host that subsystems can name. Keys will be added here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Its NQN.
    #[serde(serialize_with = "as_text")]
    pub nqn: Nqn,
}

/// What hosts connect to: a set of namespaces, or a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Subsystem {
    /// Its NQN.
    #[serde(serialize_with = "as_text")]
    pub nqn: Nqn,
    /// Serial number: at most 20 printable ASCII characters.
    pub serial: String,
    /// Model number: at most 40 printable ASCII characters.
    pub model: String,
    /// Firmware revision: at most 8 printable ASCII characters.
    pub firmware: String,
    /// Whether any host may connect.
    pub allow_any_host: bool,
    /// The hosts that may connect.
    #[serde(serialize_with = "as_texts")]
    pub allowed_hosts: Vec<Nqn>,
    /// The names of the ports that it is reached through.
    pub ports: Vec<String>,
    /// The lowest controller id it gives out: at least 1, and 0 is accepted where it has a drive.
    pub cntlid_min: u16,
    /// The highest controller id it gives out.
    pub cntlid_max: u16,
    /// The name of the drive whose namespaces it has; no other subsystem names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drive: Option<String>,
    /// Its namespaces, by NSID; none where it has a drive.
    pub namespaces: Vec<Namespace>,
}

/// A namespace of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// Its number.
    pub nsid: u32,
    /// Whether the configuration leaves the number to [`load`].
    #[serde(skip)]
    pub assigned: Assigned,
    /// What it stores its data in.
    pub drive: Drive,
    /// The size of a logical block; `None` is 512, or the drive's own where that is larger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<BlockSize>,
    /// Its UUID. Without one in the configuration it is derived from the subsystem's NQN and the
    /// NSID, so that it stays the same from start to start.
    #[serde(serialize_with = "as_text")]
    pub uuid: Uuid,
    /// Its Namespace Globally Unique Identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nguid: Option<Nguid>,
    /// Its IEEE Extended Unique Identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eui64: Option<Eui64>,
    /// Whether hosts are kept from writing.
    pub write_protect: bool,
    /// Its ANA group.
    pub ana_group: u32,
}

/// The size of a logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockSize {
    /// 512 bytes.
    B512,
    /// 4096 bytes.
    B4096,
}

/// A Namespace Globally Unique Identifier: 16 bytes, most significant first; not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nguid(pub [u8; 16]);

/// An IEEE Extended Unique Identifier: 8 bytes, most significant first; not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Eui64(pub [u8; 8]);

impl Config {
    /// Puts `base`, usually the configuration file's directory, in front of every relative path. A
    /// path that is not UTF-8 after that stays as it is.
    pub fn rebase(&mut self, base: &Path) {
        let namespaces = self.subsystems.iter_mut().flat_map(|subsystem| &mut subsystem.namespaces);
        namespaces.for_each(|namespace| namespace.drive.rebase(base));
        self.drives.iter_mut().for_each(|drive| drive.rebase(base));
    }

    /// Writes the configuration as TOML that [`load`] reads to the same value.
    ///
    /// # Errors
    /// Never for a value that [`load`] made; a value built by hand can hold what TOML cannot.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self {
            threads: None,
            max_connections: 16384,
            max_controllers: 4096,
            host_share: 85,
            address_share: 10,
            handshake_timeout: Duration::from_secs(30),
            refused_journal: 1024,
            error_log_entries: 64,
            metrics: None,
            discovery_nqn: None,
        }
    }
}

impl Port {
    /// A port with the defaults, named after its address.
    #[must_use]
    pub fn new(id: u16, listen: Listen) -> Self {
        Self {
            name: listen.to_string(),
            id,
            assigned: Assigned(false),
            listen,
            advertise: None,
            discovery_only: false,
            in_capsule_data_bytes: 8192,
            max_h2c_data_bytes: 1 << 20,
            c2h_success: true,
            header_digest: Digest::Allowed,
            data_digest: Digest::Allowed,
            max_queue_size: 1024,
            max_io_queues: 1024,
            tos: None,
            so_priority: None,
            busy_poll_us: None,
            prefer_busy_poll: false,
            zerocopy_send_bytes: None,
        }
    }

    /// Whether both are one listening socket with, perhaps, other options. A port whose number the
    /// system chooses is known by its name.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.listen == other.listen && (self.listen.port != 0 || self.name == other.name)
    }
}

impl Subsystem {
    /// A subsystem with the defaults: no namespaces, no ports, no host allowed.
    #[must_use]
    pub fn new(nqn: Nqn) -> Self {
        Self {
            serial: default_serial(&nqn),
            model: "ebof".into(),
            firmware: env!("CARGO_PKG_VERSION").chars().take(limits::FIRMWARE_CHARS_MAX).collect(),
            nqn,
            allow_any_host: false,
            allowed_hosts: Vec::new(),
            ports: Vec::new(),
            cntlid_min: limits::CNTLID_MIN,
            cntlid_max: limits::CNTLID_MAX,
            drive: None,
            namespaces: Vec::new(),
        }
    }
}

impl Subsystem {
    /// The subsystem of a drive with the defaults: controller ids from 0, the drive's serial and
    /// model number.
    #[must_use]
    pub fn of_drive(nqn: Nqn, drive: &ManagedDrive) -> Self {
        let mut subsystem = Self::new(nqn);
        subsystem.drive = Some(drive.name.clone());
        subsystem.cntlid_min = 0;
        drive.serial.iter().for_each(|serial| subsystem.serial.clone_from(serial));
        drive.model.iter().for_each(|model| subsystem.model.clone_from(model));
        subsystem
    }
}

impl Namespace {
    /// A namespace of the subsystem `nqn` with the defaults.
    #[must_use]
    pub fn new(nqn: &Nqn, nsid: u32, drive: Drive) -> Self {
        Self {
            nsid,
            assigned: Assigned(false),
            drive,
            block_size: None,
            uuid: default_uuid(nqn, nsid),
            nguid: None,
            eui64: None,
            write_protect: false,
            ana_group: 1,
        }
    }
}

/// Twenty characters that stay the same for an NQN: Linux' multipath wants the serial number equal
/// on every path.
#[must_use]
pub fn default_serial(nqn: &Nqn) -> String {
    let hash = uuid::Uuid::new_v5(&EBOF_SPACE, nqn.as_str().as_bytes()).simple().to_string();
    format!("EBOF{}", hash[..16].to_ascii_uppercase())
}

/// A UUID that stays the same for a namespace (RFC 9562, version 5).
#[must_use]
pub fn default_uuid(nqn: &Nqn, nsid: u32) -> Uuid {
    Uuid(uuid::Uuid::new_v5(&EBOF_SPACE, format!("{nqn}/{nsid}").as_bytes()).into_bytes())
}

/// The name space of the derived identifiers. Changing it changes every one of them.
const EBOF_SPACE: uuid::Uuid = uuid::Uuid::from_u128(0x9f0c_4f9e_64f2_5d0b_8f6b_6562_6f66_0001);

impl BlockSize {
    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

impl Serialize for BlockSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.bytes())
    }
}

impl fmt::Display for Nguid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Display for Eui64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl Serialize for Nguid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Eui64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn as_text<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn as_optional_text<T: fmt::Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

fn as_texts<T: fmt::Display, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
fn as_size<S: Serializer>(bytes: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_size(u64::from(*bytes)))
}

fn as_optional_size<S: Serializer>(bytes: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => as_size(bytes, serializer),
        None => serializer.serialize_none(),
    }
}

fn as_optional_size64<S: Serializer>(bytes: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => serializer.serialize_str(&format_size(*bytes)),
        None => serializer.serialize_none(),
    }
}

fn as_duration<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_duration(*duration))
}
