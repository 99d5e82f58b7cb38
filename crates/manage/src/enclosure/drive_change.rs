//! Changes of what a drive has and does: its namespaces, their formats, its firmware, sanitizing
//! and self-tests. Hosts have Admin commands for the same.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::attachee::Attachee;
use super::name::NamespaceName;
use crate::diagnostic::nearest::names;

/// The block size of a namespace for which nothing else is asked, bytes.
pub const BLOCK_BYTES_DEFAULT: u32 = 4096;

/// The most that a new namespace is attached to by the change that creates it.
pub const ATTACHEES_MAX: usize = 256;

/// A namespace to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateNamespace {
    /// The drive's name.
    pub drive: String,
    /// Its size in bytes, 1 or more, rounded up to whole blocks (NSZE).
    pub size_bytes: u64,
    /// Bytes that may be allocated for its blocks, up to its size, rounded up to whole blocks
    /// (NCAP): fewer make a thin namespace. `None`: as many as its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Data bytes of a block: 512 or 4096.
    #[serde(default = "block_bytes_default")]
    pub block_size_bytes: u32,
    /// Metadata bytes at the end of each block: 0 or 8.
    #[serde(default)]
    pub metadata_bytes: u16,
    /// Protection information, which needs metadata.
    #[serde(default, skip_serializing_if = "ProtectionObject::is_none")]
    pub protection: ProtectionObject,
    /// Whether it may be attached to more than one function or host (NMIC bit 0).
    #[serde(default)]
    pub shared: bool,
    /// Its NSID; `None`: the lowest that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// Who has it from the beginning. Empty: nobody, or every host if the drive's configuration
    /// says that of new namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attach_to: Vec<Attachee>,
}

/// Protection information of a namespace (DPS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProtectionObject {
    /// Its type: 0 for none, 1 to 3.
    #[serde(rename = "type")]
    pub kind: u8,
    /// Whether it is in the first bytes of the metadata, and not in the last.
    #[serde(default)]
    pub first: bool,
}

/// A namespace to be formatted: all its data are lost. What is `None` stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormatNamespace {
    /// The namespace.
    pub namespace: NamespaceName,
    /// Data bytes of a block: 512 or 4096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_bytes: Option<u32>,
    /// Metadata bytes at the end of each block: 0 or 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_bytes: Option<u16>,
    /// Protection information, which needs metadata. `None` where there are no metadata after the
    /// format: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protection: Option<ProtectionObject>,
    /// What becomes of the old data.
    #[serde(default)]
    pub erase: Erase,
}

names! {
    /// What becomes of old data when a namespace is formatted (Format NVM, SES).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Erase {
        /// Nobody can read them, and they are overwritten when their place is used again.
        #[default]
        None = "none";
        /// They are overwritten before the task ends; commands to the namespace wait meanwhile.
        UserData = "user-data";
        /// Their key is destroyed. The drive has to be encrypted.
        Cryptographic = "cryptographic";
    }
}

/// A sanitize operation: all data of a drive are lost, and cannot be recovered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SanitizeDrive {
    /// The drive's name.
    pub drive: String,
    /// What erases the data, or leaves a failed operation.
    pub action: SanitizeAction,
    /// Passes of an overwrite, 1 to 16; `None`: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passes: Option<u8>,
    /// What an overwrite writes, least significant byte first; `None`: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<u32>,
    /// Whether each pass of an overwrite inverts the pattern of the one before.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub invert: bool,
    /// Whether a failed operation may be left by `exit-failure` (AUSE).
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub allow_exit_after_failure: bool,
}

names! {
    /// How a drive is sanitized (SANACT).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum SanitizeAction {
        /// Everything that is or was allocated is zeroed.
        BlockErase = "block-erase";
        /// It is overwritten with a pattern.
        Overwrite = "overwrite";
        /// All keys are destroyed. The drive has to be encrypted.
        CryptoErase = "crypto-erase";
        /// Nothing is sanitized: a failed operation is left, if that was allowed with it, and the
        /// drive takes commands again.
        ExitFailure = "exit-failure";
    }
}

names! {
    /// What a self-test does (Device Self-test, STC).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum SelfTestKind {
        /// It reads the drive's own data and a sample of the namespaces', about two minutes at
        /// most.
        Short = "short";
        /// It reads all data.
        Extended = "extended";
        /// Nothing is tested: the running test is ended.
        Abort = "abort";
    }
}

/// When a firmware slot is activated (Firmware Commit, CA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// Now; if the image allows only a reset, then.
    Now,
    /// With the next reset of a controller of the drive.
    AtReset,
}

const fn block_bytes_default() -> u32 {
    BLOCK_BYTES_DEFAULT
}

impl ProtectionObject {
    /// Whether there is no protection information.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.kind == 0
    }
}

/// As an imperative: `create a namespace of 1073741824 bytes on drive d3`.
impl fmt::Display for CreateNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { drive, size_bytes, .. } = self;
        match self.nsid {
            Some(nsid) => write!(f, "create namespace {drive}/ns{nsid} of {size_bytes} bytes")?,
            None => write!(f, "create a namespace of {size_bytes} bytes on drive {drive}")?,
        }
        let mut words = " for";
        self.attach_to.iter().try_for_each(|to| write!(f, "{} {to}", std::mem::replace(&mut words, ",")))
    }
}

/// As an imperative: `format d3/ns4`.
impl fmt::Display for FormatNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "format {}", self.namespace)?;
        if let Some(bytes) = self.block_size_bytes {
            write!(f, " with blocks of {bytes} bytes")?;
        }
        match self.erase {
            Erase::None => Ok(()),
            erase => write!(f, ", erase: {}", erase.name()),
        }
    }
}

/// As an imperative: `sanitize drive d3 by block-erase`.
impl fmt::Display for SanitizeDrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            SanitizeAction::ExitFailure => write!(f, "leave the failed sanitize operation of drive {}", self.drive),
            action => write!(f, "sanitize drive {} by {}", self.drive, action.name()),
        }
    }
}
