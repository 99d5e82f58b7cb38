//! The values in addresses that are not any text: fabrics, logs, registries, ebof's own schemas.

use ebof_manage::enclosure::PortKind;

use super::kinds::OWN;
use super::route::Parameter;

/// One of the two fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FabricKind {
    /// NVMe over Fabrics.
    Nvmeof,
    /// PCI Express, for virtual machines.
    Pcie,
}

impl FabricKind {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Nvmeof, Self::Pcie];

    /// The fabric that ports of a kind are of.
    pub(crate) const fn of_port(port: PortKind) -> Self {
        match port {
            PortKind::Fabric => Self::Nvmeof,
            PortKind::Direct => Self::Pcie,
        }
    }

    const fn id(self) -> &'static str {
        match self {
            Self::Nvmeof => "NVMeoF",
            Self::Pcie => "PCIe",
        }
    }

    /// `Protocol.Protocol`.
    pub(crate) const fn protocol(self) -> &'static str {
        match self {
            Self::Nvmeof => "NVMeOverFabrics",
            Self::Pcie => "PCIe",
        }
    }
}

impl Parameter for FabricKind {
    const VALUES: &'static [&'static str] = &[Self::Nvmeof.id(), Self::Pcie.id()];

    fn parse(segment: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == segment)
    }

    fn segment(&self) -> &str {
        self.id()
    }
}

/// The logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Log {
    /// What happened.
    Events,
    /// Connections of hosts that were refused, with what to do about them.
    ConnectionsRefused,
    /// Commands that took long, with where their time went.
    SlowCommands,
    /// Who has changed what, and what was refused: for Administrators.
    Audit,
}

impl Log {
    /// All logs.
    pub(crate) const ALL: [Self; 4] = [Self::Events, Self::ConnectionsRefused, Self::SlowCommands, Self::Audit];

    /// Its identifier.
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Events => "Events",
            Self::ConnectionsRefused => "ConnectionsRefused",
            Self::SlowCommands => "SlowCommands",
            Self::Audit => "Audit",
        }
    }

    /// The log of an identifier.
    pub(crate) fn with_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|log| log.id() == id)
    }
}

impl Parameter for Log {
    const VALUES: &'static [&'static str] =
        &[Self::Events.id(), Self::ConnectionsRefused.id(), Self::SlowCommands.id(), Self::Audit.id()];

    fn parse(segment: &str) -> Option<Self> {
        Self::with_id(segment)
    }

    fn segment(&self) -> &str {
        self.id()
    }
}

/// A registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Registry {
    /// DMTF's messages.
    Base,
    /// ebof's messages.
    Ebof,
    /// Who may do what.
    Privileges,
}

impl Registry {
    /// All registries.
    pub(crate) const ALL: [Self; 3] = [Self::Base, Self::Ebof, Self::Privileges];

    /// Its identifier.
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Base => "Base",
            Self::Ebof => "Ebof",
            Self::Privileges => "EbofPrivileges",
        }
    }
}

impl Parameter for Registry {
    const VALUES: &'static [&'static str] = &[Self::Base.id(), Self::Ebof.id(), Self::Privileges.id()];

    fn parse(segment: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|registry| registry.id() == segment)
    }

    fn segment(&self) -> &str {
        self.id()
    }
}

/// A schema of ebof's own, by its index in [`OWN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnSchema(usize);

impl OwnSchema {
    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..OWN.len()).map(Self)
    }

    /// The name of its file: `EbofTask_v1.xml`.
    pub(crate) fn file(self) -> &'static str {
        OWN[self.0].0
    }

    /// Its CSDL.
    pub(crate) fn text(self) -> &'static str {
        OWN[self.0].1
    }
}

impl Parameter for OwnSchema {
    // The OpenAPI document names one of them; `$metadata` refers to all.
    const VALUES: &'static [&'static str] = &["EbofConfiguration_v1.xml"];

    fn parse(segment: &str) -> Option<Self> {
        Self::all().find(|schema| schema.file() == segment)
    }

    fn segment(&self) -> &str {
        self.file()
    }
}
