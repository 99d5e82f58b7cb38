//! The Discovery log page (70h): header and entries, and reading a log that anybody may have sent.
//! Which subsystems a host is shown is decided elsewhere.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::discovery_field::{
    AddressFamily, EntryFlags, RdmaProvider, RdmaQueuePair, SecType, SubsystemType, TrType, Treq,
};
use crate::identify::{Text, set_ascii};
use crate::name::nqn::Nqn;

/// Header of the Discovery log page. NVMe Base 2.1, "Discovery log page".
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// Generation Counter: changes with every change of the log; read again if it changed while
    /// reading.
    pub genctr: U64,
    /// Number of Records.
    pub numrec: U64,
    /// Record Format, 0.
    pub recfmt: U16,
    /// Reserved.
    pub rsvd18: [u8; 1006],
}

const _: () = assert!(size_of::<DiscoveryHeader>() == 1024);

impl Default for DiscoveryHeader {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Discovery Log Page Entry. NVMe Base 2.1, section of that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// Transport Type: `TrType`.
    pub trtype: u8,
    /// Address Family: `AddressFamily`.
    pub adrfam: u8,
    /// Subsystem Type: `SubsystemType`.
    pub subtype: u8,
    /// Transport Requirements: `Treq`.
    pub treq: u8,
    /// Port ID.
    pub portid: U16,
    /// Controller ID: `ControllerId::DYNAMIC`, `ControllerId::ANY_STATIC`, or one in particular.
    pub cntlid: U16,
    /// Admin Max SQ Size, entries; 32 or more.
    pub asqsz: U16,
    /// Entry Flags: `EntryFlags`.
    pub eflags: U16,
    /// Reserved.
    pub rsvd12: [u8; 20],
    /// Transport Service Identifier, ASCII: `service_id`.
    pub trsvcid: [u8; 32],
    /// Reserved.
    pub rsvd64: [u8; 192],
    /// NVM Subsystem Qualified Name, UTF-8: `subsystem_nqn`.
    pub subnqn: [u8; 256],
    /// Transport Address, ASCII: `address`.
    pub traddr: [u8; 256],
    /// Transport Specific Address Subtype: `security`, `rdma_address`.
    pub tsas: [u8; 256],
}

const _: () = assert!(size_of::<DiscoveryEntry>() == 1024);

impl DiscoveryEntry {
    /// TRTYPE.
    #[must_use]
    pub const fn transport(&self) -> TrType {
        TrType(self.trtype)
    }

    /// ADRFAM.
    #[must_use]
    pub const fn address_family(&self) -> AddressFamily {
        AddressFamily(self.adrfam)
    }

    /// SUBTYPE.
    #[must_use]
    pub const fn subsystem_type(&self) -> SubsystemType {
        SubsystemType(self.subtype)
    }

    /// TREQ.
    #[must_use]
    pub const fn requirements(&self) -> Treq {
        Treq(self.treq)
    }

    /// EFLAGS.
    #[must_use]
    pub fn flags(&self) -> EntryFlags {
        EntryFlags(self.eflags.get())
    }

    /// TRSVCID without its padding: the port, for TCP and RDMA.
    #[must_use]
    pub fn service_id(&self) -> Text<'_> {
        Text::new(&self.trsvcid)
    }

    /// Sets TRSVCID: 32 characters of printable ASCII, the rest is cut.
    pub fn set_service_id(&mut self, text: &str) {
        set_ascii(&mut self.trsvcid, text);
    }

    /// SUBNQN up to its NUL, for showing; `Nqn::from_field` judges it.
    #[must_use]
    pub fn subsystem_nqn(&self) -> Text<'_> {
        Text::new(&self.subnqn)
    }

    /// Sets SUBNQN.
    pub fn set_subsystem_nqn(&mut self, nqn: &Nqn) {
        self.subnqn = nqn.to_field();
    }

    /// TRADDR without its padding.
    #[must_use]
    pub fn address(&self) -> Text<'_> {
        Text::new(&self.traddr)
    }

    /// Sets TRADDR: 256 characters of printable ASCII, the rest is cut.
    pub fn set_address(&mut self, text: &str) {
        set_ascii(&mut self.traddr, text);
    }

    /// SECTYPE of TSAS; `None` unless the transport is TCP.
    #[must_use]
    pub fn security(&self) -> Option<SecType> {
        (self.transport() == TrType::TCP).then_some(SecType(self.tsas[0]))
    }

    /// Sets TSAS for TCP.
    pub fn set_security(&mut self, security: SecType) {
        self.tsas = [0; 256];
        self.tsas[0] = security.0;
    }

    /// TSAS; `None` unless the transport is RDMA.
    #[must_use]
    pub fn rdma_address(&self) -> Option<RdmaAddress> {
        let [qptype, prtype, cms, _, _, _, _, _, low, high, ..] = self.tsas;
        (self.transport() == TrType::RDMA).then_some(RdmaAddress {
            queue_pair: RdmaQueuePair(qptype),
            provider: RdmaProvider(prtype),
            connection_management: cms,
            partition_key: u16::from_le_bytes([low, high]),
        })
    }

    /// Sets TSAS for RDMA.
    pub fn set_rdma_address(&mut self, address: RdmaAddress) {
        self.tsas = [0; 256];
        self.tsas[..3].copy_from_slice(&[address.queue_pair.0, address.provider.0, address.connection_management]);
        self.tsas[8..10].copy_from_slice(&address.partition_key.to_le_bytes());
    }
}

impl Default for DiscoveryEntry {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Transport Specific Address Subtype of the RDMA transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaAddress {
    /// RDMA_QPTYPE.
    pub queue_pair: RdmaQueuePair,
    /// RDMA_PRTYPE.
    pub provider: RdmaProvider,
    /// RDMA_CMS; 1 is the RDMA connection manager.
    pub connection_management: u8,
    /// RDMA_PKEY, for InfiniBand.
    pub partition_key: u16,
}

/// The bits of LSP in Get Log Page for 70h; LIDSP of the Supported Log Pages log has the same.
pub mod lsp {
    /// Extended entries (EXTDLPE).
    pub const EXTENDED: u8 = 1 << 0;
    /// Port Local Entries Only (PLEO): those of the port that the host asked.
    pub const PORT_LOCAL: u8 = 1 << 1;
    /// All NVM Subsystem Entries (ALLSUBE).
    pub const ALL_SUBSYSTEMS: u8 = 1 << 2;
}

/// Reads a Discovery log page of any length and content: as many whole entries as NUMREC says and
/// the bytes hold.
#[derive(Clone, Debug)]
pub struct DiscoveryEntries<'a> {
    entries: core::slice::Iter<'a, DiscoveryEntry>,
}

impl<'a> DiscoveryEntries<'a> {
    /// The header and the entries of `log`, which begins at offset 0 of the log page; `None` where
    /// the header is cut short.
    #[must_use]
    pub fn new(log: &'a [u8]) -> Option<(&'a DiscoveryHeader, Self)> {
        let (header, rest) = DiscoveryHeader::ref_from_prefix(log).ok()?;
        let whole = &rest[..rest.len() - rest.len() % size_of::<DiscoveryEntry>()];
        let held = <[DiscoveryEntry]>::ref_from_bytes(whole).ok()?;
        let records = usize::try_from(header.numrec.get()).unwrap_or(usize::MAX);
        Some((header, Self { entries: held[..held.len().min(records)].iter() }))
    }
}

impl<'a> Iterator for DiscoveryEntries<'a> {
    type Item = &'a DiscoveryEntry;

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for DiscoveryEntries<'_> {}
