//! What there is in the box, and who has it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::details::FormatObject;
use super::given_ports;
use super::name::{FunctionName, NamespaceName};

/// The version of the JSON shape of [`Inventory`].
pub const INVENTORY_SCHEMA: u32 = 1;

/// What there is, and who has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// [`INVENTORY_SCHEMA`].
    pub inventory_schema: u32,
    /// ebof's version.
    pub version: String,
    /// The target's process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Its drives.
    pub drives: Vec<DriveObject>,
    /// Its subsystems that are no drive's.
    pub subsystems: Vec<SubsystemObject>,
    /// Its ports.
    pub ports: Vec<PortObject>,
    /// What sensors the machine has.
    pub sensors: Sensors,
    /// What drives remember and the configuration contradicts: for people.
    pub contradictions: Vec<String>,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveObject {
    /// Its name: `d3`.
    pub name: String,
    /// The NQN of its own subsystem, where its primary controller is.
    pub nqn: String,
    /// Serial number.
    pub serial: String,
    /// Where its data are stored, as in the configuration.
    pub backing: String,
    /// Usable capacity in bytes.
    pub capacity_bytes: u64,
    /// Capacity that no namespace has claimed, in bytes.
    pub unallocated_bytes: u64,
    /// Its temperature; `None` where it has no sensor.
    pub temperature_kelvin: Option<u16>,
    /// Critical Warning: the bits of SMART / Health Information, 0 if all is well.
    pub critical_warning: u8,
    /// The resources for its functions; `None` for a drive without functions.
    pub resources: Option<Resources>,
    /// Its functions.
    pub functions: Vec<FunctionObject>,
    /// Its namespaces.
    pub namespaces: Vec<NamespaceObject>,
    /// Names of the ports that its own subsystem is reached through.
    pub ports: Vec<String>,
    /// Controllers of its own subsystem.
    pub hosts: Vec<HostObject>,
    /// Namespaces that it can have at most; NSIDs are from 1 to that.
    #[serde(default)]
    pub namespaces_max: u32,
    /// The formats that its namespaces can have.
    #[serde(default)]
    pub formats: Vec<FormatObject>,
    /// Whether new and formatted namespaces are encrypted: only then keys can be destroyed.
    #[serde(default)]
    pub encrypts: bool,
    /// How much of a sanitize operation that is going on is done, 0 to 99; `None` if none is.
    #[serde(default)]
    pub sanitize_percent: Option<u8>,
    /// How much of a self-test that is going on is done, 0 to 99; `None` if none is.
    #[serde(default)]
    pub self_test_percent: Option<u8>,
    /// Whether it was added while the target runs, and goes with its next start or reload.
    pub added: bool,
    /// The task that is changing it.
    pub task: Option<u64>,
}

/// Flexible resources of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Queue pairs (VQ) that can be distributed.
    pub queues_total: u32,
    /// Of those, what functions and the primary controller have.
    pub queues_assigned: u32,
    /// Interrupt vectors (VI) that can be distributed.
    pub interrupts_total: u32,
    /// Of those, what functions and the primary controller have.
    pub interrupts_assigned: u32,
}

/// A function: a secondary controller of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionObject {
    /// Its name: `d3/vf2`.
    pub name: FunctionName,
    /// Its NQN: that of the subsystem that it is on fabric ports, unless hosts know it by another.
    pub nqn: String,
    /// The NQN that hosts know it by, where it is a controller of its drive's own subsystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_as: Option<String>,
    /// Whether it is online.
    pub online: bool,
    /// Queue pairs assigned to it.
    pub queues: u16,
    /// Interrupt vectors assigned to it.
    pub interrupts: u16,
    /// The ports that it is given to.
    #[serde(rename = "port", with = "given_ports")]
    pub ports: BTreeSet<String>,
    /// Whether the target has these ports; `false` if there are none.
    pub port_exists: bool,
    /// Its share of the drive.
    pub share: ShareObject,
    /// The namespaces that are attached to it.
    pub namespaces: Vec<NamespaceName>,
    /// The controllers that hosts have of it.
    pub hosts: Vec<HostObject>,
    /// The task that is changing it.
    pub task: Option<u64>,
}

/// The share of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareObject {
    /// Its weight, 1 to 1000.
    pub weight: u16,
    /// Operations in a second at most.
    pub iops: Option<u64>,
    /// Bytes in a second at most.
    pub bytes_per_second: Option<u64>,
    /// Operations in a second that it gets at least.
    pub minimum_iops: Option<u64>,
}

/// A namespace of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceObject {
    /// Its name: `d3/ns4`.
    pub name: NamespaceName,
    /// Capacity in bytes.
    pub size_bytes: u64,
    /// Size of a logical block in bytes.
    pub block_size_bytes: u32,
    /// Metadata at the end of each block, in bytes.
    #[serde(default)]
    pub metadata_bytes: u16,
    /// Its UUID.
    pub uuid: String,
    /// Whether it is write protected.
    #[serde(default)]
    pub write_protected: bool,
    /// Its ANA group.
    #[serde(default = "first_group")]
    pub ana_group: u32,
    /// How much of erasing its old data after a format is done, 0 to 99; `None` if nothing is being
    /// erased. Commands to it wait meanwhile.
    #[serde(default)]
    pub format_percent: Option<u8>,
    /// Whether it may be attached to several.
    pub shared: bool,
    /// The functions that it is attached to.
    pub functions: Vec<FunctionName>,
    /// Hosts of the drive's own subsystem that it is attached to; `*` for every one.
    pub hosts: Vec<String>,
}

/// The group of a namespace whose target does not say it.
const fn first_group() -> u32 {
    1
}

/// A subsystem that is no drive's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubsystemObject {
    /// Its NQN.
    pub nqn: String,
    /// Namespaces that it has.
    pub namespaces: u32,
    /// Names of its ports.
    pub ports: Vec<String>,
    /// The controllers that hosts have of it.
    pub hosts: Vec<HostObject>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortObject {
    /// Its name.
    pub name: String,
    /// Whether a network or one machine reaches it.
    pub kind: PortKind,
    /// Where it listens: `tcp://192.0.2.1:4420`.
    pub listen: String,
    /// Whether it serves discovery only: functions cannot be given to it.
    pub discovery_only: bool,
    /// The functions that are given to it.
    pub functions: Vec<FunctionName>,
    /// Connections open now.
    pub connections: u32,
}

/// Who reaches a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortKind {
    /// Hosts on a network.
    Fabric,
    /// A virtual machine or a process of the same machine, by a socket.
    Direct,
}

/// A controller that a host has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostObject {
    /// The host's NQN.
    pub nqn: String,
    /// Where it is connected from.
    pub peer: String,
    /// Its controller identifier.
    pub cntlid: u16,
    /// The name of the port.
    pub port: String,
    /// Its I/O queues.
    pub io_queues: u32,
    /// When it connected, in milliseconds since 1970-01-01T00:00:00Z.
    pub connected_since_unix_ms: u64,
}

/// What the machine's sensors say. A list is empty where there is no sensor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sensors {
    /// Temperatures.
    pub temperatures: Vec<Temperature>,
    /// Fans.
    pub fans: Vec<Fan>,
}

/// A temperature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Temperature {
    /// The sensor, as the kernel names it.
    pub name: String,
    /// Thousandths of a degree Celsius.
    pub millidegrees_celsius: i64,
}

/// A fan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fan {
    /// The sensor, as the kernel names it.
    pub name: String,
    /// Revolutions in a minute.
    pub rpm: u64,
}

impl FunctionObject {
    /// The NQN that hosts connect to.
    #[must_use]
    pub fn known_as(&self) -> &str {
        self.known_as.as_deref().unwrap_or(&self.nqn)
    }

    /// The port that it is given to, for who shows one: the first by name of several.
    #[must_use]
    pub fn port(&self) -> Option<&str> {
        self.ports.first().map(String::as_str)
    }
}

impl Inventory {
    /// The drive of this name.
    #[must_use]
    pub fn drive(&self, name: &str) -> Option<&DriveObject> {
        self.drives.iter().find(|drive| drive.name == name)
    }

    /// The function of this name.
    #[must_use]
    pub fn function(&self, name: &FunctionName) -> Option<&FunctionObject> {
        self.drive(&name.drive)?.functions.iter().find(|function| function.name == *name)
    }

    /// The port of this name.
    #[must_use]
    pub fn port(&self, name: &str) -> Option<&PortObject> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// Whether there is a direct port of this name.
    #[must_use]
    pub fn is_direct(&self, port: &str) -> bool {
        self.port(port).is_some_and(|port| port.kind == PortKind::Direct)
    }
}
