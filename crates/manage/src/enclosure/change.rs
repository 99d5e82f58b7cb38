//! Changes of who has what, as values.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use super::attachee::Attachee;
use super::drive_change::{Activation, CreateNamespace, FormatNamespace, SanitizeDrive, SelfTestKind};
use super::drives::NewDrive;
use super::given_ports;
use super::name::{FunctionName, NamespaceName};
use crate::api::Revision;

/// The most changes of a transaction.
pub const CHANGES_MAX: usize = 256;

/// Changes that are made together: all of them, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transaction {
    /// The changes, in the order in which they are made.
    pub changes: Vec<Change>,
    /// How long commands of hosts may take to end before they are aborted, milliseconds; `None` is
    /// the target's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
    /// The revision of the [`ChangePlan`](super::ChangePlan) that was looked at: the changes are
    /// refused if they would do something else, or disturb others. `None` is for whoever means them
    /// in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Change {
    /// A function is given to ports, to more than it has, or is taken from those that it has.
    Assign {
        /// The function.
        function: FunctionName,
        /// The names of all its ports: one, a list, or `null` for none.
        #[serde(default, rename = "port", with = "given_ports")]
        ports: BTreeSet<String>,
    },
    /// A function goes from the ports that it has to others. What it has of them, it keeps.
    Move {
        /// The function.
        function: FunctionName,
        /// The names of all ports that it has then: one, or a list.
        #[serde(with = "given_ports")]
        to: BTreeSet<String>,
    },
    /// A namespace is attached to one function, and detached from all others and from hosts.
    Map {
        /// The namespace.
        namespace: NamespaceName,
        /// The function; `None` detaches it from all.
        function: Option<FunctionName>,
    },
    /// The weight of a function among those of its drive.
    Weight {
        /// The function.
        function: FunctionName,
        /// 1 to 1000.
        weight: u16,
    },
    /// Limits of a function. What is not named stays.
    Limit {
        /// The function.
        function: FunctionName,
        /// Operations in a second at most.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "named")]
        iops: Option<Rate>,
        /// Bytes in a second at most.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "named")]
        bytes_per_second: Option<Rate>,
        /// Operations in a second that it gets at least.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "named")]
        minimum_iops: Option<Rate>,
    },
    /// The primary controller of a drive is reset: all its functions go offline.
    ResetDrive {
        /// The drive's name.
        drive: String,
    },
    /// A drive is added.
    AddDrive(NewDrive),
    /// A drive is taken away; what is on its backing stays.
    RemoveDrive {
        /// The drive's name.
        drive: String,
        /// At once, as if it were pulled out: commands fail, and it is not closed in order.
        #[serde(default)]
        surprise: bool,
    },
    /// A namespace is created. The task says which ([`Task::made`](super::Task::made)).
    CreateNamespace(CreateNamespace),
    /// A namespace is deleted with its data.
    DeleteNamespace {
        /// The namespace.
        namespace: NamespaceName,
    },
    /// A namespace is attached to somebody, beside whom it is attached to already.
    AttachNamespace {
        /// The namespace.
        namespace: NamespaceName,
        /// To whom.
        to: Attachee,
    },
    /// A namespace is detached from somebody.
    DetachNamespace {
        /// The namespace.
        namespace: NamespaceName,
        /// From whom. A host: if the namespace is attached to every one, it is attached to those
        /// that were there so far, without this one.
        from: Attachee,
    },
    /// A namespace is write protected, or the protection is removed.
    WriteProtect {
        /// The namespace.
        namespace: NamespaceName,
        /// Whether it is to be protected.
        on: bool,
    },
    /// A namespace is put into an ANA group, whose state each port has.
    SetAnaGroup {
        /// The namespace.
        namespace: NamespaceName,
        /// The group, 1 to 128.
        group: u32,
    },
    /// A namespace is formatted: its data are lost.
    FormatNamespace(FormatNamespace),
    /// A drive is sanitized: all its data are lost. The operation goes on if the task ends with the
    /// target; `sanitize_percent` of the drive says how far it is.
    SanitizeDrive(SanitizeDrive),
    /// A drive tests itself, or ends that. The task fails if the test does.
    SelfTest {
        /// The drive's name.
        drive: String,
        /// What it does.
        kind: SelfTestKind,
    },
    /// A firmware image is put into a slot. It does not run yet.
    StageFirmware {
        /// The drive's name.
        drive: String,
        /// The slot, 1 to 7; `None`: the drive chooses. The task says which
        /// ([`Task::made`](super::Task::made)).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slot: Option<u8>,
        /// The image: [`StoredImage::id`](super::StoredImage::id) of one that was handed over.
        image: String,
    },
    /// The image of a firmware slot is to run.
    ActivateFirmware {
        /// The drive's name.
        drive: String,
        /// The slot, 1 to 7.
        slot: u8,
        /// Whether it runs at once or from a reset of a controller on.
        when: Activation,
    },
}

/// A limit: a number, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub Option<u64>);

/// A key that is there, be it `null`.
fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Rate>, D::Error> {
    Rate::deserialize(deserializer).map(Some)
}

impl Change {
    /// Whether it can be taken back when a later change of its transaction fails.
    #[must_use]
    pub const fn is_reversible(&self) -> bool {
        !matches!(
            self,
            Self::ResetDrive { .. }
                | Self::RemoveDrive { .. }
                | Self::DeleteNamespace { .. }
                | Self::FormatNamespace(_)
                | Self::SanitizeDrive(_)
                | Self::SelfTest { .. }
                | Self::StageFirmware { .. }
                | Self::ActivateFirmware { .. }
        )
    }

    /// Whether it is about a drive's firmware: several of these may be in one transaction, though
    /// what was made of them stays if a later one fails.
    #[must_use]
    pub const fn is_of_firmware(&self) -> bool {
        matches!(self, Self::StageFirmware { .. } | Self::ActivateFirmware { .. })
    }

    /// Whether data of a drive are lost by it.
    #[must_use]
    pub const fn destroys_data(&self) -> bool {
        matches!(self, Self::DeleteNamespace { .. } | Self::FormatNamespace(_) | Self::SanitizeDrive(_))
    }

    /// The function whose port or share it changes.
    #[must_use]
    pub const fn function(&self) -> Option<&FunctionName> {
        match self {
            Self::Assign { function, .. }
            | Self::Move { function, .. }
            | Self::Weight { function, .. }
            | Self::Limit { function, .. } => Some(function),
            _ => None,
        }
    }

    /// The namespace that it is about, if that exists already.
    #[must_use]
    pub const fn namespace(&self) -> Option<&NamespaceName> {
        match self {
            Self::Map { namespace, .. }
            | Self::DeleteNamespace { namespace }
            | Self::AttachNamespace { namespace, .. }
            | Self::DetachNamespace { namespace, .. }
            | Self::WriteProtect { namespace, .. }
            | Self::SetAnaGroup { namespace, .. }
            | Self::FormatNamespace(FormatNamespace { namespace, .. }) => Some(namespace),
            _ => None,
        }
    }

    /// The drive that it is about; `None` where it adds one.
    #[must_use]
    pub fn drive(&self) -> Option<&str> {
        match self {
            Self::Assign { function, .. }
            | Self::Move { function, .. }
            | Self::Weight { function, .. }
            | Self::Limit { function, .. } => Some(&function.drive),
            Self::Map { namespace, .. }
            | Self::DeleteNamespace { namespace }
            | Self::AttachNamespace { namespace, .. }
            | Self::DetachNamespace { namespace, .. }
            | Self::WriteProtect { namespace, .. }
            | Self::SetAnaGroup { namespace, .. }
            | Self::FormatNamespace(FormatNamespace { namespace, .. }) => Some(&namespace.drive),
            Self::ResetDrive { drive }
            | Self::RemoveDrive { drive, .. }
            | Self::CreateNamespace(CreateNamespace { drive, .. })
            | Self::SanitizeDrive(SanitizeDrive { drive, .. })
            | Self::SelfTest { drive, .. }
            | Self::StageFirmware { drive, .. }
            | Self::ActivateFirmware { drive, .. } => Some(drive),
            Self::AddDrive(_) => None,
        }
    }
}

/// As an imperative: `give d3/vf2 to port fabric0`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Assign { function, ports } if ports.is_empty() => write!(f, "take {function} from its port"),
            Self::Assign { function, ports } => write!(f, "give {function} to {}", given_ports::named(ports)),
            Self::Move { function, to } => write!(f, "move {function} to {}", given_ports::named(to)),
            Self::Map { namespace, function: Some(function) } => write!(f, "map {namespace} to {function}"),
            Self::Map { namespace, function: None } => write!(f, "unmap {namespace}"),
            Self::Weight { function, weight } => write!(f, "give {function} the weight {weight}"),
            Self::Limit { function, iops, bytes_per_second, minimum_iops } => {
                write!(f, "limit {function}:")?;
                let all = [("iops", iops), ("bytes/s", bytes_per_second), ("minimum iops", minimum_iops)];
                for (at, (name, Rate(rate))) in
                    all.iter().filter_map(|(name, rate)| Some((name, (**rate)?))).enumerate()
                {
                    let comma = if at > 0 { "," } else { "" };
                    match rate {
                        Some(rate) => write!(f, "{comma} {name} {rate}")?,
                        None => write!(f, "{comma} {name} none")?,
                    }
                }
                Ok(())
            }
            Self::ResetDrive { drive } => write!(f, "reset the primary controller of drive {drive}"),
            Self::AddDrive(new) => write!(f, "add drive {}", new.name()),
            Self::RemoveDrive { drive, surprise: false } => write!(f, "remove drive {drive}"),
            Self::RemoveDrive { drive, surprise: true } => write!(f, "remove drive {drive} at once"),
            Self::CreateNamespace(new) => new.fmt(f),
            Self::DeleteNamespace { namespace } => write!(f, "delete {namespace}"),
            Self::AttachNamespace { namespace, to: Attachee::Everyone } => {
                write!(f, "attach {namespace} to every host")
            }
            Self::AttachNamespace { namespace, to } => write!(f, "attach {namespace} to {to}"),
            Self::DetachNamespace { namespace, from: Attachee::Everyone } => {
                write!(f, "attach {namespace} no longer to every host")
            }
            Self::DetachNamespace { namespace, from } => write!(f, "detach {namespace} from {from}"),
            Self::WriteProtect { namespace, on: true } => write!(f, "write protect {namespace}"),
            Self::WriteProtect { namespace, on: false } => write!(f, "remove the write protection of {namespace}"),
            Self::SetAnaGroup { namespace, group } => write!(f, "put {namespace} into ANA group {group}"),
            Self::FormatNamespace(format) => format.fmt(f),
            Self::SanitizeDrive(sanitize) => sanitize.fmt(f),
            Self::SelfTest { drive, kind: SelfTestKind::Abort } => write!(f, "end the self-test of drive {drive}"),
            Self::SelfTest { drive, kind } => write!(f, "test drive {drive} ({})", kind.name()),
            Self::StageFirmware { drive, slot: Some(slot), image } => {
                write!(f, "put image {image} into slot {slot} of drive {drive}")
            }
            Self::StageFirmware { drive, slot: None, image } => {
                write!(f, "put image {image} into a slot of drive {drive}")
            }
            Self::ActivateFirmware { drive, slot, when: Activation::Now } => {
                write!(f, "activate firmware slot {slot} of drive {drive}")
            }
            Self::ActivateFirmware { drive, slot, when: Activation::AtReset } => {
                write!(f, "activate firmware slot {slot} of drive {drive} with its next reset")
            }
        }
    }
}
