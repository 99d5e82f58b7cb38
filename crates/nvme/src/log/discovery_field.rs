//! The fields of a discovery log page entry and their words; texts are those nvme-cli prints.
//! Unknown values are kept.
//!
//! NVMe Base 2.1, "Discovery Log Page Entry".

/// Text for a value that no specification names.
const UNRECOGNIZED: &str = "unrecognized";

/// Transport Type (TRTYPE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TrType(pub u8);

impl TrType {
    /// PCI Express: a controller whose queues are in the host's memory. No discovery log has it.
    pub const PCIE: Self = Self(0);
    /// RDMA.
    pub const RDMA: Self = Self(1);
    /// Fibre Channel.
    pub const FIBRE_CHANNEL: Self = Self(2);
    /// TCP.
    pub const TCP: Self = Self(3);
    /// Intra-host transport.
    pub const LOOP: Self = Self(254);

    /// In words, as for a person.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RDMA => "rdma",
            Self::FIBRE_CHANNEL => "fc",
            Self::TCP => "tcp",
            Self::LOOP => "loop",
            Self(_) => UNRECOGNIZED,
        }
    }
}

/// Address Family (ADRFAM): how to read TRADDR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressFamily(pub u8);

impl AddressFamily {
    /// PCI.
    pub const PCI: Self = Self(0);
    /// IPv4, in dotted decimal.
    pub const IPV4: Self = Self(1);
    /// IPv6.
    pub const IPV6: Self = Self(2);
    /// InfiniBand.
    pub const INFINIBAND: Self = Self(3);
    /// Fibre Channel.
    pub const FIBRE_CHANNEL: Self = Self(4);
    /// Intra-host transport.
    pub const LOOP: Self = Self(254);

    /// In words, as for a person.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PCI => "pci",
            Self::IPV4 => "ipv4",
            Self::IPV6 => "ipv6",
            Self::INFINIBAND => "infiniband",
            Self::FIBRE_CHANNEL => "fibre-channel",
            Self::LOOP => "loop",
            Self(_) => UNRECOGNIZED,
        }
    }
}

/// Subsystem Type (SUBTYPE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubsystemType(pub u8);

impl SubsystemType {
    /// A discovery subsystem to ask on.
    pub const REFERRAL: Self = Self(1);
    /// An NVM subsystem.
    pub const NVM: Self = Self(2);
    /// The discovery subsystem that answers.
    pub const CURRENT_DISCOVERY: Self = Self(3);

    /// In words, as for a person.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::REFERRAL => "discovery subsystem referral",
            Self::NVM => "nvme subsystem",
            Self::CURRENT_DISCOVERY => "current discovery subsystem",
            Self(_) => UNRECOGNIZED,
        }
    }
}

/// Transport Requirements (TREQ).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Treq(pub u8);

impl Treq {
    /// Bits 1:0: a fabric secure channel is required.
    pub const SECURE_CHANNEL_REQUIRED: Self = Self(1);
    /// Bits 1:0: a fabric secure channel is not required.
    pub const SECURE_CHANNEL_NOT_REQUIRED: Self = Self(2);
    /// Bit 2: the controller can do without SQ flow control.
    pub const SQ_FLOW_CONTROL_DISABLE: Self = Self(4);
    /// Zero Host ID Support (ZHIDS): Connect may say a host identifier of zeros.
    pub const ZERO_HOST_ID: Self = Self(8);

    /// These requirements and those.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

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
        self.0 & Self::SQ_FLOW_CONTROL_DISABLE.0 != 0
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

impl EntryFlags {
    /// Duplicate Returned Information (DUPRETINFO): another entry leads to the same discovery
    /// information.
    pub const DUPRETINFO: Self = Self(1 << 0);
    /// Explicit Persistent Connection Support for Discovery (EPCSD).
    pub const EPCSD: Self = Self(1 << 1);
    /// No CDC Connectivity (NCC).
    pub const NCC: Self = Self(1 << 2);

    /// These flags and those.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

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

impl SecType {
    /// No security.
    pub const NONE: Self = Self(0);
    /// TLS 1.2, obsolete.
    pub const TLS: Self = Self(1);
    /// TLS 1.3.
    pub const TLS_1_3: Self = Self(2);

    /// In words, as for a person.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NONE => "none",
            Self::TLS => "tls",
            Self::TLS_1_3 => "tls13",
            Self(_) => UNRECOGNIZED,
        }
    }
}

/// RDMA QP Service Type (RDMA_QPTYPE). NVMe/RDMA, "Transport Specific Address Subtype".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RdmaQueuePair(pub u8);

impl RdmaQueuePair {
    /// Reliable connected.
    pub const CONNECTED: Self = Self(1);
    /// Reliable datagram.
    pub const DATAGRAM: Self = Self(2);

    /// In words, as for a person.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CONNECTED => "connected",
            Self::DATAGRAM => "datagram",
            Self(_) => UNRECOGNIZED,
        }
    }
}

/// RDMA Provider Type (RDMA_PRTYPE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RdmaProvider(pub u8);

impl RdmaProvider {
    /// No provider specified.
    pub const NOT_SPECIFIED: Self = Self(1);
    /// InfiniBand.
    pub const INFINIBAND: Self = Self(2);
    /// RoCE version 1.
    pub const ROCE: Self = Self(3);
    /// RoCE version 2.
    pub const ROCE_V2: Self = Self(4);
    /// iWARP.
    pub const IWARP: Self = Self(5);

    /// In words, as for a person.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NOT_SPECIFIED => "not specified",
            Self::INFINIBAND => "infiniband",
            Self::ROCE => "roce",
            Self::ROCE_V2 => "roce-v2",
            Self::IWARP => "iwarp",
            Self(_) => UNRECOGNIZED,
        }
    }
}
