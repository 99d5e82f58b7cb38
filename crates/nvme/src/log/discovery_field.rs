//! The fields of a discovery log page entry and their words; texts are those nvme-cli prints.
//! Unknown values are kept.
//!
//! NVMe Base 2.1, "Discovery Log Page Entry".

use crate::table::{flags, numbers};

/// Text for a value that no specification names.
const UNRECOGNIZED: &str = "unrecognized";

/// Transport Type (TRTYPE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TrType(pub u8);

impl TrType {
    /// PCI Express: a controller whose queues are in the host's memory. No discovery log has it.
    pub const PCIE: Self = Self(0);
}

numbers! { TrType, else UNRECOGNIZED:
    RDMA = 1, "rdma";
    /// Fibre Channel.
    FIBRE_CHANNEL = 2, "fc";
    TCP = 3, "tcp";
    /// Intra-host transport.
    LOOP = 254, "loop";
}

/// Address Family (ADRFAM): how to read TRADDR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressFamily(pub u8);

numbers! { AddressFamily, else UNRECOGNIZED:
    PCI = 0, "pci";
    /// IPv4, in dotted decimal.
    IPV4 = 1, "ipv4";
    IPV6 = 2, "ipv6";
    INFINIBAND = 3, "infiniband";
    FIBRE_CHANNEL = 4, "fibre-channel";
    /// Intra-host transport.
    LOOP = 254, "loop";
}

/// Subsystem Type (SUBTYPE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubsystemType(pub u8);

numbers! { SubsystemType, else UNRECOGNIZED:
    /// A discovery subsystem to ask on.
    REFERRAL = 1, "discovery subsystem referral";
    /// An NVM subsystem.
    NVM = 2, "nvme subsystem";
    /// The discovery subsystem that answers.
    CURRENT_DISCOVERY = 3, "current discovery subsystem";
}

/// Transport Requirements (TREQ).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Treq(pub u8);

flags!(Treq);

impl Treq {
    /// Bits 1:0: a fabric secure channel is required.
    pub const SECURE_CHANNEL_REQUIRED: Self = Self(1);
    /// Bits 1:0: a fabric secure channel is not required.
    pub const SECURE_CHANNEL_NOT_REQUIRED: Self = Self(2);
    /// Bit 2: the controller can do without SQ flow control.
    pub const SQ_FLOW_CONTROL_DISABLE: Self = Self(4);
    /// Zero Host ID Support (ZHIDS): Connect may say a host identifier of zeros.
    pub const ZERO_HOST_ID: Self = Self(8);

    /// Whether a secure channel is required; `None` where it is not said.
    #[must_use]
    pub const fn secure_channel_required(self) -> Option<bool> {
        match self.0 & 3 {
            1 => Some(true),
            2 => Some(false),
            _ => None,
        }
    }

    /// Whether the controller can do without SQ flow control.
    #[must_use]
    pub const fn sq_flow_control_disable(self) -> bool {
        self.contains(Self::SQ_FLOW_CONTROL_DISABLE)
    }

    /// In words, as for a person.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => "not specified",
            1 => "required",
            2 => "not required",
            4 => "not specified, sq flow control disable supported",
            5 => "required, sq flow control disable supported",
            6 => "not required, sq flow control disable supported",
            8 => "not specified, zero host id supported",
            9 => "required, zero host id supported",
            10 => "not required, zero host id supported",
            12 => "not specified, sq flow control disable supported, zero host id supported",
            13 => "required, sq flow control disable supported, zero host id supported",
            14 => "not required, sq flow control disable supported, zero host id supported",
            _ => UNRECOGNIZED,
        }
    }
}

/// Entry Flags (EFLAGS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EntryFlags(pub u16);

flags!(EntryFlags);

impl EntryFlags {
    /// Duplicate Returned Information (DUPRETINFO): another entry leads to the same discovery
    /// information.
    pub const DUPRETINFO: Self = Self(1 << 0);
    /// Explicit Persistent Connection Support for Discovery (EPCSD).
    pub const EPCSD: Self = Self(1 << 1);
    /// No CDC Connectivity (NCC).
    pub const NCC: Self = Self(1 << 2);

    /// In words, as for a person.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => "none",
            1 => "duplicate discovery information",
            2 => "explicit discovery connections",
            3 => "explicit discovery connections, duplicate discovery information",
            4 => "no cdc connectivity",
            5 => "duplicate discovery information, no cdc connectivity",
            6 => "explicit discovery connections, no cdc connectivity",
            7 => "explicit discovery connections, duplicate discovery information, no cdc connectivity",
            _ => UNRECOGNIZED,
        }
    }
}

/// Security Type (SECTYPE) of the TCP transport. NVMe/TCP, "Transport Specific Address Subtype".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SecType(pub u8);

numbers! { SecType, else UNRECOGNIZED:
    /// No security.
    NONE = 0, "none";
    /// TLS 1.2, obsolete.
    TLS = 1, "tls";
    TLS_1_3 = 2, "tls13";
}

/// RDMA QP Service Type (RDMA_QPTYPE). NVMe/RDMA, "Transport Specific Address Subtype".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RdmaQueuePair(pub u8);

numbers! { RdmaQueuePair, else UNRECOGNIZED:
    /// Reliable connected.
    CONNECTED = 1, "connected";
    /// Reliable datagram.
    DATAGRAM = 2, "datagram";
}

/// RDMA Provider Type (RDMA_PRTYPE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RdmaProvider(pub u8);

numbers! { RdmaProvider, else UNRECOGNIZED:
    /// No provider specified.
    NOT_SPECIFIED = 1, "not specified";
    INFINIBAND = 2, "infiniband";
    /// RoCE version 1.
    ROCE = 3, "roce";
    /// RoCE version 2.
    ROCE_V2 = 4, "roce-v2";
    IWARP = 5, "iwarp";
}
