//! The Identify command's data structures: which there are (`Cns`) and their layouts. What a
//! controller puts into them is decided elsewhere.
//!
//! NVMe Base 2.1, "Identify command"; NVM Command Set 1.1, "Identify command".

mod command_set;
mod controller;
mod descriptor;
pub mod field;
mod granularity;
mod list;
mod namespace;
mod text;

pub use command_set::{IoCommandSets, NvmController, NvmNamespace, ProtectionFormat};
pub use controller::{ControllerType, IdentifyController, PowerState};
pub use descriptor::{DescriptorError, DescriptorWriter, Descriptors, Full, NamespaceIdDescriptor};
pub use granularity::{Granularity, NamespaceGranularityList};
pub use list::{ControllerList, EnduranceGroupList, NamespaceList};
pub use namespace::{IdentifyNamespace, IndependentNamespace, LbaFormat, ProtectionType};
pub use text::{Text, set_ascii};

/// Length of every Identify data structure, in bytes.
pub const IDENTIFY_BYTES: usize = 4096;

/// Controller or Namespace Structure (CNS), dword 10 bits 7:0 of Identify: which structure is
/// wanted. Unknown values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cns(pub u8);

impl Cns {
    /// 00h: `IdentifyNamespace`.
    pub const NAMESPACE: Self = Self(0x00);
    /// 01h: `IdentifyController`.
    pub const CONTROLLER: Self = Self(0x01);
    /// 02h: active namespaces above CDW1.NSID, a `NamespaceList`.
    pub const ACTIVE_NAMESPACE_LIST: Self = Self(0x02);
    /// 03h: namespace identification descriptors, `Descriptors`.
    pub const NAMESPACE_ID_DESCRIPTORS: Self = Self(0x03);
    /// 04h: NVM sets.
    pub const NVM_SET_LIST: Self = Self(0x04);
    /// 05h: I/O command set specific namespace; `NvmNamespace` for the NVM command set.
    pub const IOCS_NAMESPACE: Self = Self(0x05);
    /// 06h: I/O command set specific controller; `NvmController` for the NVM command set.
    pub const IOCS_CONTROLLER: Self = Self(0x06);
    /// 07h: active namespaces of one I/O command set, a `NamespaceList`.
    pub const IOCS_ACTIVE_NAMESPACE_LIST: Self = Self(0x07);
    /// 08h: `IndependentNamespace`.
    pub const INDEPENDENT_NAMESPACE: Self = Self(0x08);
    /// 09h: namespace by user data format.
    pub const USER_DATA_FORMAT: Self = Self(0x09);
    /// 0Ah: I/O command set specific namespace by user data format.
    pub const IOCS_USER_DATA_FORMAT: Self = Self(0x0a);
    /// 10h: allocated namespaces above CDW1.NSID, a `NamespaceList`.
    pub const ALLOCATED_NAMESPACE_LIST: Self = Self(0x10);
    /// 11h: `IdentifyNamespace` of an allocated namespace.
    pub const ALLOCATED_NAMESPACE: Self = Self(0x11);
    /// 12h: controllers to which the namespace is attached, a `ControllerList`.
    pub const NAMESPACE_CONTROLLER_LIST: Self = Self(0x12);
    /// 13h: controllers of the subsystem, a `ControllerList`.
    pub const CONTROLLER_LIST: Self = Self(0x13);
    /// 14h: primary controller capabilities.
    pub const PRIMARY_CONTROLLER_CAPABILITIES: Self = Self(0x14);
    /// 15h: secondary controllers.
    pub const SECONDARY_CONTROLLER_LIST: Self = Self(0x15);
    /// 16h: `NamespaceGranularityList`.
    pub const NAMESPACE_GRANULARITY_LIST: Self = Self(0x16);
    /// 17h: UUIDs.
    pub const UUID_LIST: Self = Self(0x17);
    /// 18h: domains.
    pub const DOMAIN_LIST: Self = Self(0x18);
    /// 19h: `EnduranceGroupList`.
    pub const ENDURANCE_GROUP_LIST: Self = Self(0x19);
    /// 1Ah: allocated namespaces of one I/O command set, a `NamespaceList`.
    pub const IOCS_ALLOCATED_NAMESPACE_LIST: Self = Self(0x1a);
    /// 1Bh: I/O command set specific structure of an allocated namespace.
    pub const IOCS_ALLOCATED_NAMESPACE: Self = Self(0x1b);
    /// 1Ch: `IoCommandSets`.
    pub const IO_COMMAND_SETS: Self = Self(0x1c);
    /// 1Dh: underlying namespaces.
    pub const UNDERLYING_NAMESPACE_LIST: Self = Self(0x1d);
}

/// Command Set Identifier (CSI): an I/O command set. Unknown values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Csi(pub u8);

impl Csi {
    /// NVM command set.
    pub const NVM: Self = Self(0x00);
    /// Key value command set.
    pub const KEY_VALUE: Self = Self(0x01);
    /// Zoned namespace command set.
    pub const ZONED: Self = Self(0x02);
    /// Subsystem local memory command set.
    pub const LOCAL_MEMORY: Self = Self(0x03);
    /// Computational programs command set.
    pub const PROGRAMS: Self = Self(0x04);
}
