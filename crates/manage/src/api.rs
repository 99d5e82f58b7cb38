//! The management API: the status of a running target, and changes of its configuration. Used by
//! the command line and metrics, later by Redfish.
//!
//! Owns the trait and its types; their JSON form is stable (see `docs/config.md`,
//! "What a target reports"), guarded by snapshots. Adding a field is allowed, renaming or removing
//! one needs a new [`STATUS_SCHEMA`].

use std::error::Error;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::limits::ANA_GROUP_MAX;
use crate::config::{AnaStates, Config, PortTls, Security};
use crate::diagnostic::nearest::names;
use crate::plan::{Change, Plan};

mod accounts;
mod certificate;
pub mod compare;
mod configuration;
mod confinement;
mod history;
mod keys;
mod peer;
mod refusal;
mod store;

pub use accounts::{ACCOUNTS_SCHEMA, AccountLimits, AccountStatus, Accounts, AddAccount, ChangeAccount};
pub use certificate::{
    CERTIFICATE_SCHEMA, CertificateRequest, CertificateStatus, ReplaceCertificate, RequestCertificate,
};
pub use configuration::{
    Applied, CONFIGURATION_SCHEMA, Configuration, DISTURBED_MAX, Desired, Disturbed, Planned, PlannedChange,
    RefusedConfiguration, Revision, SENT_TEXT_BYTES_MAX, Source,
};
pub use confinement::{Confinement, MeasureState, MeasureStatus, PathAccess, PathRight};
pub use history::{
    Asker, Cause, GENERATIONS_BYTES_MAX, GENERATIONS_MAX, Generation, HISTORY_SCHEMA, History, LISTED_CHANGES_MAX,
};
pub use keys::{
    AddKey, HOST_KEYS_MAX, KEYS_SCHEMA, KeyKeeper, KeyKind, KeyStatus, KeyText, Keys, KeysChange, NoSuchKeyKind,
    STORED_KEYS_MAX, erase_texts,
};
pub use peer::Peer;
pub use refusal::{ConnectionLog, Refusal, RefusalReason};
pub use store::{ConfigStore, ConfigStoreError, FileChange, Outdated};

/// The version of the JSON shape of [`Status`] and [`Refusal`].
pub const STATUS_SCHEMA: u32 = 1;

/// A running target.
pub trait Target: Send + Sync {
    /// The current status.
    fn status(&self) -> Status;

    /// The connections it refused, the latest last.
    fn refused(&self) -> Vec<Refusal>;

    /// Forgets them, and tells how many there were.
    fn forget_refused(&self) -> usize;

    /// The configuration in force.
    fn config(&self) -> Config;

    /// The changes that [`Target::apply`] would make.
    fn plan(&self, desired: &Config) -> Plan {
        let current = self.config();
        let mut desired = desired.clone();
        desired.keep_numbers(&current);
        Plan::between(&current, &desired)
    }

    /// Applies a configuration. Ids and NSIDs that it does not set stay as they are
    /// ([`Config::keep_numbers`]). Either all changes are made, or none.
    ///
    /// # Errors
    /// The change that failed, with the reason.
    fn apply(&self, desired: Config) -> Result<Plan, ApplyError> {
        self.apply_for(&Cause::library(), None, desired)
    }

    /// As [`Target::apply`], if `revision` is that of the configuration in force: that of the plan
    /// which somebody looked at. Nothing can change it in between.
    ///
    /// # Errors
    /// As [`Target::apply`], and [`ApplyError::Outdated`].
    fn apply_to(&self, revision: &Revision, desired: Config) -> Result<Plan, ApplyError> {
        self.apply_for(&Cause::library(), Some(revision), desired)
    }

    /// As [`Target::apply_to`] where there is a revision, and as [`Target::apply`] where there is
    /// none, for somebody.
    ///
    /// # Errors
    /// As those.
    fn apply_for(&self, cause: &Cause, revision: Option<&Revision>, desired: Config) -> Result<Plan, ApplyError>;
}

/// The error of applying a configuration.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The configuration in force is not the one that was planned from.
    #[error("the plan starts from revision {planned}, and revision {current} is in force now")]
    Outdated {
        /// The revision that the plan starts from.
        planned: Revision,
        /// The one in force.
        current: Revision,
    },
    /// Whoever asks sees a part of the target only.
    #[error("only those who see the whole target may change its configuration")]
    NotAllowed,
    /// Some changes need a restart.
    #[error("only a new start can {}", .changes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NeedsRestart {
        /// Those changes.
        changes: Vec<Change>,
    },
    /// The configuration cannot be stored for the next start; what there was is in force.
    #[error(
        "the new configuration cannot be stored for the next start, and is not in force: {source}{}",
        .lost.iter().map(|lost| format!("; and NOT SERVED any more: {lost}")).collect::<String>()
    )]
    NotStored {
        /// What the store answered.
        source: Box<dyn Error + Send + Sync>,
        /// What was released for the change, could not be restored and is not served any more.
        lost: Vec<String>,
    },
    /// It is not known whether the configuration is stored; what there was is in force.
    #[error(
        "it is not known whether the new configuration is stored: it is not in force, and may be after the next start: {source}{}",
        .lost.iter().map(|lost| format!("; and NOT SERVED any more: {lost}")).collect::<String>()
    )]
    Unknown {
        /// What the store answered.
        source: Box<dyn Error + Send + Sync>,
        /// What was released for the change, could not be restored and is not served any more.
        lost: Vec<String>,
    },
    /// Some changes cannot be made at all.
    #[error("{}", .changes.iter().map(|change| format!("{change}: impossible: {}", change.obstacle().unwrap_or_default()))
        .collect::<Vec<_>>().join("; "))]
    Impossible {
        /// Those changes.
        changes: Vec<Change>,
    },
    /// A change failed; the ones before it were taken back.
    #[error("{change}: {source}")]
    Failed {
        /// The change.
        change: Box<Change>,
        /// The error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A change failed, and not everything that had been released for it could be restored.
    #[error("{change}: {source}; and NOT SERVED any more: {}", .lost.join("; "))]
    Incomplete {
        /// The change.
        change: Box<Change>,
        /// The error.
        source: Box<dyn Error + Send + Sync>,
        /// What is not served any more, with reasons.
        lost: Vec<String>,
    },
}

/// The status of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// [`STATUS_SCHEMA`].
    pub schema: u32,
    /// ebof's version.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// The discovery log's generation counter (GENCTR): grows with every change that hosts can see.
    pub generation: u64,
    /// Connections open now, over all ports, with or without a controller.
    pub connections: u32,
    /// The most connections at a time.
    pub connections_max: u32,
    /// The highest ANA group (ANAGRPMAX).
    #[serde(default = "ana_group_max")]
    pub ana_group_max: u32,
    /// What its process has given up; nothing is told of a target in a program of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
    /// Why keys in its memory may be swapped or dumped, and what to do; nothing if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_unprotected: Option<String>,
    /// Its ports.
    pub ports: Vec<PortStatus>,
    /// The names of ports that are disabled: nothing listens there.
    #[serde(default)]
    pub disabled_ports: Vec<String>,
    /// What is to be served and cannot be had now. It is tried again, and comes in when it is
    /// there.
    #[serde(default)]
    pub missing: Vec<MissingObject>,
    /// Its subsystems, without the discovery subsystem.
    pub subsystems: Vec<SubsystemStatus>,
    /// Its drives.
    #[serde(default)]
    pub drives: Vec<DriveStatus>,
    /// Every controller, those of the discovery subsystem too.
    pub controllers: Vec<ControllerStatus>,
    /// Hosts that have connected and have not proven yet who they are: at most [`PROVING_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proving: Vec<ProvingHost>,
}

/// That of targets that do not say it.
const fn ana_group_max() -> u32 {
    ANA_GROUP_MAX
}

/// The most entries of [`Status::proving`].
pub const PROVING_MAX: usize = 1000;

/// A host that has connected and has not proven yet who it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvingHost {
    /// The host NQN that it claims.
    pub host_nqn: String,
    /// The NQN of the subsystem.
    pub subsystem_nqn: String,
    /// The name of the port that it connected to.
    pub port: String,
    /// Its address.
    pub peer: Peer,
    /// When it connected, in milliseconds since 1970-01-01T00:00:00Z.
    pub connected_since_unix_ms: u64,
}

impl Status {
    /// The subsystems that are there for hosts.
    pub fn enabled_subsystems(&self) -> impl Iterator<Item = &SubsystemStatus> {
        self.subsystems.iter().filter(|subsystem| subsystem.enabled)
    }
}

/// Something that is to be served and cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingObject {
    /// What it is.
    pub kind: MissingKind,
    /// Its name: that of a drive or port, `NQN/NSID` of a namespace, the URI of the others.
    pub name: String,
    /// Why it cannot be had, and what to do.
    pub reason: String,
    /// Since when, in milliseconds since 1970-01-01T00:00:00Z.
    pub since_unix_ms: u64,
}

names! {
    /// What can be missing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    #[non_exhaustive]
    pub enum MissingKind {
        /// A namespace that is not a drive's: what it stores its data in.
        Namespace = "namespace";
        /// A drive that hosts manage. Its subsystem is not there for hosts either.
        Drive = "drive";
        /// A port: its address.
        Port = "port";
        /// The management over the network: its accounts, its certificate or its address.
        Management = "management";
        /// The endpoint of metrics: its address.
        Metrics = "metrics";
    }
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// Its name.
    pub name: String,
    /// Its PORTID.
    pub id: u16,
    /// The transport: `tcp`, `rdma` or `vfio-user`.
    pub transport: String,
    /// The address it listens on; the port is the real one where the configuration said 0. Without
    /// meaning where there is a socket.
    pub address: SocketAddr,
    /// The path of its socket, for vfio-user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Whether it serves the discovery subsystem only.
    pub discovery_only: bool,
    /// The states of ANA groups that are not optimized here.
    #[serde(default, skip_serializing_if = "AnaStates::is_empty")]
    pub ana: AnaStates,
    /// Whether its connections are TLS connections.
    #[serde(default)]
    pub tls: PortTls,
    /// Connections open now.
    pub connections: u32,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections refused since the start.
    pub refused: u64,
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubsystemStatus {
    /// Its NQN.
    pub nqn: String,
    /// Whether it is there for hosts.
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// Serial number.
    pub serial: String,
    /// Model number.
    pub model: String,
    /// Whether any host may connect.
    pub allow_any_host: bool,
    /// The hosts that may connect.
    pub allowed_hosts: Vec<String>,
    /// What it demands of hosts.
    #[serde(default)]
    pub security: Security,
    /// The names of its ports.
    pub ports: Vec<String>,
    /// Its namespaces, by NSID.
    pub namespaces: Vec<NamespaceStatus>,
}

impl SubsystemStatus {
    /// The namespaces that are there for hosts.
    pub fn enabled_namespaces(&self) -> impl Iterator<Item = &NamespaceStatus> {
        self.namespaces.iter().filter(|namespace| namespace.enabled)
    }
}

/// What a target is taken to mean that does not say it.
const fn enabled() -> bool {
    true
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceStatus {
    /// Its NSID.
    pub nsid: u32,
    /// Whether it is there for hosts, if its subsystem is. If not, it has no size here: its device
    /// is not open.
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// Where its data are stored, as in the configuration.
    pub drive: String,
    /// Capacity in bytes.
    pub size_bytes: u64,
    /// Size of a logical block in bytes.
    pub block_size_bytes: u32,
    /// Its UUID; `None` where that is known only when it is open.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Whether hosts cannot write.
    pub write_protect: bool,
    /// Its ANA group.
    pub ana_group: u32,
    /// Commands and bytes since the start.
    pub io: IoCounters,
}

/// Commands and bytes since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounters {
    /// Read commands.
    pub read_commands: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write commands.
    pub write_commands: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Every other I/O command.
    pub other_commands: u64,
    /// I/O commands that ended with an error status.
    pub errors: u64,
}

/// A drive that hosts manage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveStatus {
    /// Its name.
    pub name: String,
    /// The NQN of its subsystem; `None` where no subsystem names it.
    pub subsystem_nqn: Option<String>,
    /// Where its data are stored, as in the configuration.
    pub backing: String,
    /// The name of its profile.
    pub profile: String,
    /// Usable capacity in bytes (TNVMCAP).
    pub capacity_bytes: u64,
    /// Capacity that no namespace has claimed (UNVMCAP), in bytes.
    pub unallocated_bytes: u64,
    /// Namespaces that exist, attached or not.
    pub namespaces: u32,
    /// Maximum number of namespaces.
    pub namespaces_max: u32,
    /// Allocated bytes, in whole extents.
    #[serde(default)]
    pub allocated_bytes: u64,
    /// Its health.
    #[serde(default)]
    pub health: DriveHealth,
    /// The best state that its ANA groups have at any port, while it fails and its `ana_on_failure`
    /// says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ana_limit: Option<String>,
}

/// The health of a drive, as in SMART / Health Information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriveHealth {
    /// Critical Warning: the bits of SMART / Health Information, 0 if all is well.
    pub critical_warning: u8,
    /// Composite temperature in kelvin; `None` where there is no sensor.
    pub temperature_kelvin: Option<u16>,
    /// Available Spare, 0 to 100.
    pub available_spare_percent: u8,
    /// Below which the spare is a critical warning.
    pub available_spare_threshold_percent: u8,
    /// Percentage Used: 255 for more than 254.
    pub percentage_used: u8,
    /// Media and Data Integrity Errors.
    pub media_errors: u64,
    /// Entries that the Error Information log has had.
    pub error_log_entries: u64,
    /// Times the drive was opened.
    pub power_cycles: u64,
    /// Times it was opened without having been closed.
    pub unsafe_shutdowns: u64,
    /// Whole hours it was open.
    pub power_on_hours: u64,
    /// Bytes that hosts read.
    pub host_read_bytes: u64,
    /// Bytes that hosts wrote.
    pub host_written_bytes: u64,
}

/// A controller: one host's association with a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerStatus {
    /// Its controller id, unique within the subsystem.
    pub cntlid: u16,
    /// The subsystem's NQN.
    pub subsystem_nqn: String,
    /// The host's NQN.
    pub host_nqn: String,
    /// The host's identifier, as a UUID.
    pub host_id: String,
    /// The name of the port that it connected to.
    pub port: String,
    /// The host's address, of the admin queue's connection.
    pub peer: Peer,
    /// Whether it is a discovery controller.
    pub discovery: bool,
    /// What the host has proven of who it is.
    #[serde(default)]
    pub proof: Security,
    /// When the admin queue was connected, in milliseconds since 1970-01-01T00:00:00Z.
    pub connected_since_unix_ms: u64,
    /// The keep alive time-out in force in milliseconds; 0 is none.
    pub keep_alive_ms: u64,
    /// Its queues, the admin queue first.
    pub queues: Vec<QueueStatus>,
}

/// A queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Its number; 0 is the admin queue.
    pub id: u16,
    /// Its depth in entries.
    pub entries: u32,
    /// The index of the thread that owns it.
    pub thread: u16,
    /// Whether PDU headers carry checksums.
    pub header_digest: bool,
    /// Whether PDU data carries checksums.
    pub data_digest: bool,
    /// Who makes the records of TLS at this end, `own` or `kernel`; `None` without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_records: Option<String>,
    /// Commands since it was connected.
    pub commands: u64,
}

#[cfg(test)]
mod tests;
