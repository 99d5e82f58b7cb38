//! Where the configuration of a target is stored, and what is noted of changes that are under way.
//!
//! Owns what a target asks of a store; not where that is, and not the configurations of before,
//! which are in [`history`](super::History).

use std::error::Error;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Cause, Revision};
use crate::config::Config;
use crate::plan::Plan;

/// Where the configuration of a target is stored, so that it is in force again after the next
/// start.
pub trait ConfigStore: Send + Sync {
    /// The revision of the configuration that is stored; `None` if there never was one.
    fn revision(&self) -> Option<Revision>;

    /// Stores that `config` is in force from now on, if the revision that is stored is still
    /// `seen`. It is called when everything that the configuration needs is there, and before hosts
    /// or whoever asked are shown anything of it.
    ///
    /// # Errors
    /// It is not stored (another one is, which [`Outdated`] tells, or it cannot be), or that is not
    /// known: then the change is taken back.
    fn replace(
        &self,
        seen: Option<&Revision>,
        config: &Config,
        plan: &Plan,
        cause: &Cause,
    ) -> Result<(), ConfigStoreError>;

    /// Notes changes of files that are about to be made for a configuration that is not stored yet,
    /// so that the next start finishes or takes back what it finds of them.
    ///
    /// # Errors
    /// They are not noted: then they are not made.
    fn intend(&self, changes: &[FileChange]) -> Result<(), ConfigStoreError>;

    /// Forgets them: they were made and the configuration is stored, or they were taken back.
    fn forget(&self);

    /// Whether the next start goes by what is stored, and not by a file or arguments.
    fn is_source(&self) -> bool;

    /// All configurations that are stored, as far as they can be read.
    fn stored(&self) -> Vec<Config>;
}

/// A change of a file that belongs to a change of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FileChange {
    /// A file is made larger.
    Extend {
        /// The file.
        path: String,
        /// What it has.
        from_bytes: u64,
        /// What it is to have, before it is rounded up to whole blocks.
        to_bytes: u64,
    },
    /// A file is made.
    Make {
        /// The file.
        path: String,
        /// What it is to have, before it is rounded up to whole blocks.
        size_bytes: u64,
    },
}

/// Why a configuration is not stored, as far as is known.
#[derive(Debug, Error)]
pub enum ConfigStoreError {
    /// What was stored before is still there, and stays.
    #[error(transparent)]
    NotStored(Box<dyn Error + Send + Sync>),
    /// It may be stored, and be in force after the next start.
    #[error(transparent)]
    Unknown(Box<dyn Error + Send + Sync>),
}

/// Another configuration is stored than the one that a change begins at.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("revision {} is stored, and the change begins at {}", named(.stored.as_ref()), named(.seen.as_ref()))]
pub struct Outdated {
    /// What is stored.
    pub stored: Option<Revision>,
    /// What the change begins at.
    pub seen: Option<Revision>,
}

fn named(revision: Option<&Revision>) -> &str {
    revision.map_or("none", Revision::as_str)
}
