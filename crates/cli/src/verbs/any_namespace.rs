//! `target add namespace`, `target remove namespace` and `target set`: words that mean a change of
//! a drive, or an edit of the configuration, by the object that they name.
//!
//! A namespace `d3/ns4` is in the journal of drive `d3`; one of a subsystem, `NQN/1`, is in the
//! configuration.

use std::str::FromStr;

use ebof_manage::edit::Edit;
use ebof_manage::enclosure::{Change, NamespaceName};

use super::edit::{self, MoreKeys, NamespaceArgument};
use super::target_drives::{self, Blocks, DataLoss};
use super::target_keys::KeyAction;
use crate::failure::Failure;

/// What words mean.
pub(super) enum Meaning {
    /// An edit of the configuration.
    Edit(Edit),
    /// A change of a drive, with the confirmation that it may need.
    Change(Change, Option<DataLoss>),
    /// Something with keys of hosts.
    Keys(KeyAction),
}

/// A namespace to be added.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AddNamespace {
    /// The drive, such as d3, or the NQN of a subsystem
    #[arg(value_name = "DRIVE|SUBSYSTEM")]
    of: String,
    /// On a drive its size, such as 100G; in a subsystem where its data are stored: FILE, FILE:SIZE
    /// (made when missing), a block device, mem:SIZE or null:SIZE
    #[arg(value_name = "SIZE|BACKING")]
    what: String,
    /// Its NSID [default: the lowest that is free]
    #[arg(long, value_name = "N")]
    nsid: Option<u32>,
    #[command(flatten)]
    blocks: Blocks,
    /// On a drive: bytes that may be allocated for it: less than its size makes a thin namespace
    #[arg(long, value_name = "SIZE", value_parser = target_drives::size)]
    capacity: Option<u64>,
    /// On a drive: let it be attached to several functions and hosts
    #[arg(long)]
    shared: bool,
    /// On a drive: attach it to a function such as d3/vf2, to a host's NQN, or to * (every host of
    /// the drive's own subsystem); several times for several
    #[arg(long, value_name = "FUNCTION|NQN|*")]
    attach: Vec<ebof_manage::enclosure::Attachee>,
    /// In a subsystem: its size, if the backing does not have it, such as 10G
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    /// In a subsystem: keep hosts from writing
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    more: MoreKeys,
}

/// A namespace to be removed.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RemoveNamespace {
    /// The namespace: of a drive, such as d3/ns4 (ALL ITS DATA ARE LOST), or of a subsystem, as
    /// SUBSYSTEM/NSID (its data stay where they are)
    #[arg(value_name = "NAMESPACE")]
    namespace: AnyNamespace,
    #[command(flatten)]
    loss: DataLoss,
}

/// A namespace of a drive, or of a subsystem.
#[derive(Clone, Debug)]
enum AnyNamespace {
    OfDrive(NamespaceName),
    OfSubsystem(NamespaceArgument),
}

impl FromStr for AnyNamespace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if is_nqn(text) {
            return text.parse().map(Self::OfSubsystem);
        }
        text.parse().map(Self::OfDrive).map_err(|_| {
            "want a namespace of a drive, such as d3/ns4, or SUBSYSTEM/NSID, such as nqn.2014-08.org.example:disks/1"
                .to_owned()
        })
    }
}

/// The start of every NQN tells it from the name of a drive.
fn is_nqn(text: &str) -> bool {
    text.starts_with("nqn.")
}

impl AddNamespace {
    pub(super) fn meaning(self) -> Result<Meaning, Failure> {
        if is_nqn(&self.of) {
            self.edit().map(Meaning::Edit)
        } else {
            self.change().map(|it| Meaning::Change(it, None))
        }
    }

    fn edit(self) -> Result<Edit, Failure> {
        let of_drives = [
            ("--capacity", self.capacity.is_some()),
            ("--shared", self.shared),
            ("--attach", !self.attach.is_empty()),
            ("--metadata", self.blocks.metadata.is_some()),
            ("--protection", self.blocks.protection.is_some()),
        ];
        refuse(&of_drives, "namespaces of a drive", "name a drive, such as d3")?;
        let Self { of: subsystem, what: backing, nsid, size, read_only, more, blocks, .. } = self;
        edit::NamespaceOfSubsystem { subsystem, backing, nsid, size, block_size: blocks.block_size, read_only, more }
            .edit()
    }

    fn change(self) -> Result<Change, Failure> {
        let of_subsystems =
            [("--size", self.size.is_some()), ("--read-only", self.read_only), ("KEY=VALUE", !self.more.is_empty())];
        refuse(&of_subsystems, "namespaces of a subsystem", "name a subsystem by its NQN")?;
        let size = target_drives::size(&self.what)
            .map_err(|error| Failure::usage(format!("the size `{}`: {error}", self.what), "such as 100G"))?;
        let Self { of: drive, nsid, blocks, capacity, shared, attach, .. } = self;
        Ok(target_drives::NamespaceOfDrive { drive, size, capacity, blocks, shared, nsid, attach }.change())
    }
}

/// Refuses options that are for others.
fn refuse(options: &[(&str, bool)], others: &str, advice: &str) -> Result<(), Failure> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(Failure::usage(format!("{name} is for {others}"), format!("leave it out, or {advice}"))),
        None => Ok(()),
    }
}

impl RemoveNamespace {
    pub(super) fn meaning(self) -> Meaning {
        match self.namespace {
            AnyNamespace::OfDrive(namespace) => Meaning::Change(Change::DeleteNamespace { namespace }, Some(self.loss)),
            AnyNamespace::OfSubsystem(namespace) => Meaning::Edit(Edit::Remove { object: namespace.object() }),
        }
    }
}

/// `target set`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Set {
    /// A namespace of a drive, such as d3/ns4, or what sort of object: target, port, host, drive,
    /// subsystem or namespace
    #[arg(value_name = "NAMESPACE|KIND", value_parser = changed)]
    what: Changed,
    /// The object's name (none for the target and after d3/ns4; the NQN of a subsystem or host;
    /// SUBSYSTEM/NSID of a namespace), and keys as the configuration file has them; KEY= is the
    /// default, KEY+=VALUE and KEY-=VALUE change a list. Of a namespace of a drive:
    /// write-protect=on, write-protect=off or ana-group=N
    #[arg(value_name = "NAME KEY=VALUE", required = true)]
    words: Vec<String>,
}

/// What is changed.
#[derive(Clone, Debug)]
enum Changed {
    OfDrive(NamespaceName),
    Kind(ebof_manage::edit::Kind),
}

fn changed(text: &str) -> Result<Changed, String> {
    if let Ok(name) = text.parse() {
        return Ok(Changed::OfDrive(name));
    }
    let kind = edit::kind(text).map_err(|accepted| format!("{accepted}, or a namespace of a drive such as d3/ns4"))?;
    Ok(Changed::Kind(kind))
}

impl Set {
    pub(super) fn meaning(self) -> Result<Meaning, Failure> {
        match self.what {
            Changed::Kind(kind) => edit::set(kind, &self.words).map(Meaning::Edit),
            Changed::OfDrive(namespace) => {
                let [word] = self.words.as_slice() else {
                    return Err(Failure::usage("one property of a drive's namespace at a time", PROPERTIES));
                };
                if let Some(group) = word.strip_prefix("ana-group=") {
                    let wrong = || Failure::usage(format!("the ANA group `{group}`"), "accepted: 1 to 128");
                    let group = group.parse().map_err(|_no_number| wrong())?;
                    return Ok(Meaning::Change(Change::SetAnaGroup { namespace, group }, None));
                }
                let on = match word.as_str() {
                    "write-protect=on" => true,
                    "write-protect=off" => false,
                    other => return Err(Failure::usage(format!("the property `{other}`"), PROPERTIES)),
                };
                Ok(Meaning::Change(Change::WriteProtect { namespace, on }, None))
            }
        }
    }
}

/// What is accepted of a namespace of a drive.
const PROPERTIES: &str = "accepted: write-protect=on, write-protect=off, ana-group=N";
