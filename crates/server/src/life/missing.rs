//! What the configuration names and cannot be had now: the target serves without it, tells it, and
//! tries again.
//!
//! Owns what is known of it. How a thing is opened is in `startup.rs`, how it comes in while the
//! target runs in `reload.rs`, by the configuration in force once more, and what is told of it in
//! `looking.rs`.

use ebof_manage::api::{MissingKind, MissingObject};
use ebof_nvme::Nqn;

/// An object of the configuration that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MissingKey {
    /// A namespace that is not a drive's.
    Namespace((Nqn, u32)),
    /// A drive, by its name. Its subsystem is away, too: hosts may come back later.
    Drive(String),
    /// A port, by its name.
    Port(String),
}

/// It, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) key: MissingKey,
    pub(crate) reason: String,
    pub(crate) since_unix_ms: u64,
}

impl MissingKey {
    fn kind(&self) -> MissingKind {
        match self {
            Self::Namespace(_) => MissingKind::Namespace,
            Self::Drive(_) => MissingKind::Drive,
            Self::Port(_) => MissingKind::Port,
        }
    }

    /// Its name, as verbs take it.
    fn name(&self) -> String {
        match self {
            Self::Namespace((nqn, nsid)) => format!("{nqn}/{nsid}"),
            Self::Drive(name) | Self::Port(name) => name.clone(),
        }
    }
}

impl Missing {
    pub(crate) fn new(key: MissingKey, reason: String, since_unix_ms: u64) -> Self {
        Self { key, reason, since_unix_ms }
    }

    pub(crate) fn shown(&self) -> MissingObject {
        let Self { key, reason, since_unix_ms } = self;
        MissingObject { kind: key.kind(), name: key.name(), reason: reason.clone(), since_unix_ms: *since_unix_ms }
    }
}
