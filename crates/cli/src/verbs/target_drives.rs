//! The actions of `target` on drives and their namespaces: what hosts can do by Admin commands, for
//! whoever manages the box.
//!
//! Owns their arguments, which changes they mean, and the confirmation that data are destroyed.

use std::path::PathBuf;

use ebof_manage::enclosure::{
    Activation, Attachee, BLOCK_BYTES_DEFAULT, Change, ChangePlan, CreateNamespace, Erase, FormatNamespace,
    IMAGE_BYTES_MAX, Inventory, NamespaceName, NamespaceObject, ProtectionObject, SanitizeAction, SanitizeDrive,
    SelfTestKind, Task, Transaction,
};
use ebof_manage::units::parse_size;

use super::Outcome;
use super::question::ask_for_name;
use super::target::{begin, carry_out, end, follow};
use crate::control::ControlClient;
use crate::failure::Failure;
use crate::file::{self, Kind};
use crate::global::Global;

/// Actions on drives and namespaces.
#[derive(Clone, Debug, clap::Subcommand)]
pub(super) enum DriveAction {
    /// Attach a namespace of a drive to a function or a host, beside whom it is attached to already
    Attach {
        /// The namespace, such as d3/ns4
        namespace: NamespaceName,
        /// A function such as d3/vf2, the NQN of a host of the drive's own subsystem, or * for each
        /// of those
        to: Attachee,
    },
    /// Detach a namespace of a drive from a function or a host
    Detach {
        /// The namespace, such as d3/ns4
        namespace: NamespaceName,
        /// A function such as d3/vf2, the NQN of a host, or * for all that were not named
        from: Attachee,
    },
    /// Format a namespace of a drive: ALL ITS DATA ARE LOST
    Format {
        /// The namespace, such as d3/ns4
        namespace: NamespaceName,
        #[command(flatten)]
        blocks: Blocks,
        /// What becomes of the old data: none, user-data (overwritten) or cryptographic (their key
        /// is destroyed)
        #[arg(long, value_name = "HOW", default_value = "none", value_parser = erase)]
        erase: Erase,
        #[command(flatten)]
        loss: DataLoss,
    },
    /// Sanitize a drive: ALL ITS DATA ARE LOST, and cannot be recovered
    Sanitize {
        /// The drive, such as d3
        drive: String,
        /// block-erase, overwrite, crypto-erase, or exit-failure to leave a failed operation
        #[arg(long, default_value = "block-erase", value_parser = sanitize_action)]
        action: SanitizeAction,
        /// Passes of an overwrite, 1 to 16
        #[arg(long, value_name = "N")]
        passes: Option<u8>,
        /// What an overwrite writes
        #[arg(long, value_name = "NUMBER", value_parser = super::number::parse::<u32>)]
        pattern: Option<u32>,
        /// Invert the pattern with each pass
        #[arg(long)]
        invert: bool,
        /// Allow that a failed operation is left by --action exit-failure
        #[arg(long)]
        allow_exit_after_failure: bool,
        #[command(flatten)]
        loss: DataLoss,
    },
    /// Have a drive test itself
    SelfTest {
        /// The drive, such as d3
        drive: String,
        /// Read all data, and not only a sample
        #[arg(long, conflicts_with = "abort")]
        extended: bool,
        /// End the test that is running
        #[arg(long)]
        abort: bool,
    },
    /// Put a firmware image into a slot of a drive, or activate a slot, or both
    #[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["file", "activate"]))]
    Firmware {
        /// The drive, such as d3
        drive: String,
        /// The image, as `ebof fw-image` makes it
        #[arg(short, long)]
        file: Option<PathBuf>,
        /// The slot, 1 to 7 [default for an image: the drive chooses]
        #[arg(short, long, required_unless_present = "file")]
        slot: Option<u8>,
        /// Activate the slot: now, or at-reset of a controller of the drive
        #[arg(short, long, value_name = "WHEN", value_parser = activation, num_args = 0..=1, default_missing_value = "now")]
        activate: Option<Activation>,
    },
}

/// A namespace to be added to a drive.
pub(super) struct NamespaceOfDrive {
    pub(super) drive: String,
    pub(super) size: u64,
    pub(super) capacity: Option<u64>,
    pub(super) blocks: Blocks,
    pub(super) shared: bool,
    pub(super) nsid: Option<u32>,
    pub(super) attach: Vec<Attachee>,
}

/// How blocks are to be.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Blocks {
    /// Data bytes of a block: 512 or 4096 [default: 4096 for a new namespace, else as it is]
    #[arg(long, value_name = "BYTES")]
    pub(super) block_size: Option<u32>,
    /// Metadata bytes of a block: 0 or 8 [default: 0 for a new namespace, else as it is]
    #[arg(long, value_name = "BYTES")]
    pub(super) metadata: Option<u16>,
    /// Protection information: 0 for none, or type 1, 2 or 3, which need metadata
    #[arg(long, value_name = "TYPE")]
    pub(super) protection: Option<u8>,
    /// Protection information in the first bytes of the metadata, and not in the last
    #[arg(long, requires = "protection")]
    protection_first: bool,
}

/// The confirmation that data are destroyed.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DataLoss {
    /// Destroy the data without a question: the name of what has them, again
    #[arg(long, value_name = "NAME")]
    yes_destroy_data: Option<String>,
}

/// How a change is made.
pub(super) struct Means<'m> {
    pub(super) control: &'m ControlClient,
    pub(super) drain_ms: Option<u64>,
    pub(super) no_wait: bool,
    /// Whether nobody is asked about hosts.
    pub(super) yes: bool,
    pub(super) global: &'m Global,
}

impl Means<'_> {
    /// Makes a change of its own, after its confirmation.
    pub(super) fn make(&self, change: &Change, loss: Option<&DataLoss>) -> Outcome {
        let mut transaction = self.transaction(change.clone());
        let mut yes = self.yes;
        if let Some(loss) = loss.filter(|_| destroys(change)) {
            // The question names the hosts, too. What comes after it is refused.
            let plan = ChangePlan::new(&self.control.inventory()?, &transaction.changes);
            loss.confirm(change, self.control)?;
            (transaction.revision, yes) = ((!yes).then_some(plan.revision), true);
        }
        carry_out(self.control, &transaction, (self.no_wait, yes), self.global)
    }

    fn transaction(&self, change: Change) -> Transaction {
        Transaction { changes: vec![change], drain_ms: self.drain_ms, revision: None }
    }

    /// Makes a change, to its end.
    fn carry_out(&self, change: Change) -> anyhow::Result<Task> {
        let task = begin(self.control, &self.transaction(change), self.yes)?;
        follow(self.control, task, self.global)
    }
}

/// Whether it destroys data: leaving a failed sanitize operation does not.
fn destroys(change: &Change) -> bool {
    let leaves = matches!(change, Change::SanitizeDrive(SanitizeDrive { action: SanitizeAction::ExitFailure, .. }));
    change.destroys_data() && !leaves
}

impl DriveAction {
    pub(super) fn run(self, means: &Means<'_>) -> Outcome {
        if let Self::Firmware { drive, file: Some(path), slot, activate } = self {
            return firmware(means, drive, &path, slot, activate);
        }
        let (change, loss) = self.change()?;
        means.make(&change, loss.as_ref())
    }

    /// The change that it means; for one that destroys data with its confirmation.
    pub(super) fn change(self) -> Result<(Change, Option<DataLoss>), Failure> {
        Ok(match self {
            Self::Attach { namespace, to } => (Change::AttachNamespace { namespace, to }, None),
            Self::Detach { namespace, from } => (Change::DetachNamespace { namespace, from }, None),
            Self::Format { namespace, blocks, erase, loss } => {
                let format = FormatNamespace {
                    namespace,
                    block_size_bytes: blocks.block_size,
                    metadata_bytes: blocks.metadata,
                    protection: blocks.protection(),
                    erase,
                };
                (Change::FormatNamespace(format), Some(loss))
            }
            Self::Sanitize { drive, action, passes, pattern, invert, allow_exit_after_failure, loss } => {
                let sanitize = SanitizeDrive { drive, action, passes, pattern, invert, allow_exit_after_failure };
                (Change::SanitizeDrive(sanitize), Some(loss))
            }
            Self::SelfTest { drive, extended, abort } => {
                let kind = match (extended, abort) {
                    (_, true) => SelfTestKind::Abort,
                    (true, false) => SelfTestKind::Extended,
                    (false, false) => SelfTestKind::Short,
                };
                (Change::SelfTest { drive, kind }, None)
            }
            Self::Firmware { drive, slot, activate, .. } => {
                let (Some(slot), Some(when)) = (slot, activate) else {
                    return Err(Failure::usage("a slot is needed to activate it", "--slot N --activate"));
                };
                (Change::ActivateFirmware { drive, slot, when }, None)
            }
        })
    }
}

/// Hands an image over, puts it into a slot, and activates that if it is wanted.
fn firmware(
    means: &Means<'_>,
    drive: String,
    path: &std::path::Path,
    slot: Option<u8>,
    activate: Option<Activation>,
) -> Outcome {
    let most = u64::try_from(IMAGE_BYTES_MAX).unwrap_or(u64::MAX);
    let bytes = file::read(path, "the firmware image", most, Kind::Any)?;
    let image = means.control.store_image(&bytes)?.id;
    let stage = Change::StageFirmware { drive: drive.clone(), slot, image };
    let Some(when) = activate else { return means.make(&stage, None) };
    let staged = means.carry_out(stage)?;
    let made = staged.made.first().and_then(|name| name.rsplit_once("/slot")?.1.parse().ok());
    // A failure is told by `end`.
    let Some(slot) = slot.or(made).filter(|_| staged.error.is_none()) else { return end(staged, means.global) };
    means.make(&Change::ActivateFirmware { drive, slot, when }, None)
}

impl NamespaceOfDrive {
    /// The change that it means.
    pub(super) fn change(self) -> Change {
        let Self { drive, size, capacity, blocks, shared, nsid, attach } = self;
        Change::CreateNamespace(CreateNamespace {
            drive,
            size_bytes: size,
            capacity_bytes: capacity,
            block_size_bytes: blocks.block_size.unwrap_or(BLOCK_BYTES_DEFAULT),
            metadata_bytes: blocks.metadata.unwrap_or(0),
            protection: blocks.protection().unwrap_or_default(),
            shared,
            nsid,
            attach_to: attach,
        })
    }
}

impl Blocks {
    fn protection(&self) -> Option<ProtectionObject> {
        self.protection.map(|kind| ProtectionObject { kind, first: self.protection_first })
    }
}

impl DataLoss {
    /// Asks for the name of what loses its data, unless it was given.
    fn confirm(&self, change: &Change, control: &ControlClient) -> anyhow::Result<()> {
        let name = match change.namespace() {
            Some(namespace) => namespace.to_string(),
            None => change.drive().unwrap_or_default().to_owned(),
        };
        let items = lost(&control.inventory()?, change);
        let message = format!("WARNING: this is to {change}: all data of it are lost.");
        Ok(ask_for_name(
            &message,
            &items,
            &format!("--yes-destroy-data {name}"),
            &name,
            self.yes_destroy_data.as_deref(),
        )?)
    }
}

/// Lines about the namespaces whose data a change destroys.
fn lost(inventory: &Inventory, change: &Change) -> Vec<String> {
    const LINES_MAX: usize = 16;
    let drive = change.drive().and_then(|drive| inventory.drive(drive));
    let is_it = |it: &&NamespaceObject| change.namespace().is_none_or(|name| *name == it.name);
    let all: Vec<&NamespaceObject> = drive.into_iter().flat_map(|drive| &drive.namespaces).filter(is_it).collect();
    let mut lines: Vec<String> = all.iter().take(LINES_MAX).map(|namespace| line(inventory, namespace)).collect();
    if all.len() > LINES_MAX {
        lines.push(format!("and {} more", all.len() - LINES_MAX));
    }
    lines
}

/// `d3/ns4, 1.07 GB, attached to d3/vf2, which 1 host has`
fn line(inventory: &Inventory, namespace: &NamespaceObject) -> String {
    use crate::output::text::{safe, si};

    let functions = namespace.functions.iter().map(|name| {
        let hosts = inventory.function(name).map_or(0, |function| function.hosts.len());
        match hosts {
            0 => name.to_string(),
            1 => format!("{name}, which 1 host has"),
            hosts => format!("{name}, which {hosts} hosts have"),
        }
    });
    let hosts = namespace.hosts.iter().map(|host| if host == "*" { "every host".to_owned() } else { safe(host) });
    let who: Vec<String> = functions.chain(hosts).collect();
    let who = if who.is_empty() { "nobody".to_owned() } else { who.join(", ") };
    format!("{}, {}, attached to {who}", namespace.name, si(namespace.size_bytes.into()))
}

pub(super) fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| format!("it {error}: accepted is a size such as 100G"))
}

fn erase(text: &str) -> Result<Erase, String> {
    let all = [Erase::None, Erase::UserData, Erase::Cryptographic];
    one_of(text, &all.map(|one| (one, one.name())))
}

fn sanitize_action(text: &str) -> Result<SanitizeAction, String> {
    let all = [
        SanitizeAction::BlockErase,
        SanitizeAction::Overwrite,
        SanitizeAction::CryptoErase,
        SanitizeAction::ExitFailure,
    ];
    one_of(text, &all.map(|one| (one, one.name())))
}

fn activation(text: &str) -> Result<Activation, String> {
    one_of(text, &[(Activation::Now, "now"), (Activation::AtReset, "at-reset")])
}

fn one_of<T: Copy>(text: &str, all: &[(T, &str)]) -> Result<T, String> {
    let found = all.iter().find(|(_, name)| *name == text).map(|(one, _)| *one);
    let names = || all.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("accepted: {}", names()))
}

#[cfg(test)]
mod tests {
    use ebof_manage::enclosure::{DriveObject, FunctionObject, HostObject};

    use super::*;

    fn inventory() -> Inventory {
        let host = HostObject {
            nqn: "nqn.2014-08.org.example:host".into(),
            peer: "192.0.2.1:50000".into(),
            cntlid: 128,
            port: "a".into(),
            io_queues: 1,
            connected_since_unix_ms: 0,
        };
        let json = r#"{"name": "d3", "nqn": "n", "serial": "s", "backing": "b", "capacity_bytes": 1, "unallocated_bytes": 0,
            "temperature_kelvin": null, "critical_warning": 0, "resources": null, "functions": [], "ports": [], "hosts": [],
            "namespaces": [
                {"name": "d3/ns1", "size_bytes": 1000000000, "block_size_bytes": 512, "uuid": "u", "shared": false,
                 "functions": ["d3/vf1"], "hosts": []},
                {"name": "d3/ns2", "size_bytes": 4096, "block_size_bytes": 512, "uuid": "u", "shared": true,
                 "functions": ["d3/vf2"], "hosts": ["*"]},
                {"name": "d3/ns3", "size_bytes": 4096, "block_size_bytes": 512, "uuid": "u", "shared": true,
                 "functions": [], "hosts": []}],
            "added": false, "task": null}"#;
        // An inventory of a target that does not know the newer keys is read, too.
        let mut drive: DriveObject = serde_json::from_str(json).unwrap();
        drive.functions = vec![FunctionObject {
            known_as: None,
            name: "d3/vf1".parse().unwrap(),
            nqn: "n:vf1".into(),
            online: true,
            queues: 2,
            interrupts: 1,
            ports: std::collections::BTreeSet::new(),
            port_exists: false,
            share: ebof_manage::enclosure::ShareObject {
                weight: 1,
                iops: None,
                bytes_per_second: None,
                minimum_iops: None,
            },
            namespaces: Vec::new(),
            hosts: vec![host],
            task: None,
        }];
        Inventory {
            inventory_schema: 1,
            version: String::new(),
            pid: 1,
            uptime_s: 1,
            drives: vec![drive],
            subsystems: Vec::new(),
            ports: Vec::new(),
            sensors: ebof_manage::enclosure::Sensors::default(),
            contradictions: Vec::new(),
        }
    }

    #[test]
    fn who_loses_data_is_listed() {
        let of = |json: &str| lost(&inventory(), &serde_json::from_str(json).unwrap());
        let all = [
            "d3/ns1, 1.00 GB, attached to d3/vf1, which 1 host has",
            "d3/ns2, 4.10 kB, attached to d3/vf2, every host",
            "d3/ns3, 4.10 kB, attached to nobody",
        ];
        assert_eq!(of(r#"{"change": "sanitize-drive", "drive": "d3", "action": "overwrite"}"#), all);
        assert_eq!(of(r#"{"change": "delete-namespace", "namespace": "d3/ns2"}"#), all[1..2]);
    }

    #[test]
    fn leaving_a_failed_operation_destroys_nothing() {
        let is = |json: &str| destroys(&serde_json::from_str(json).unwrap());
        assert!(is(r#"{"change": "sanitize-drive", "drive": "d3", "action": "crypto-erase"}"#));
        assert!(is(r#"{"change": "format-namespace", "namespace": "d3/ns4"}"#));
        assert!(!is(r#"{"change": "sanitize-drive", "drive": "d3", "action": "exit-failure"}"#));
        assert!(!is(r#"{"change": "self-test", "drive": "d3", "kind": "short"}"#));
    }
}
