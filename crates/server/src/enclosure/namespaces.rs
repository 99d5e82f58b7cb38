//! How a task creates, deletes, attaches, protects and formats namespaces.

use std::sync::Arc;
use std::time::Duration;

use ebof_drive::{Answer, Attachments, FORMATS, FunctionId, NewNamespace, Ordered, Protection, Request, VolumeId};
use ebof_manage::enclosure::{
    Attachee, CreateNamespace, Erase, FormatNamespace, NamespaceName, Phase, ProtectionObject,
};
use ebof_nvme::Nsid;
use ebof_nvme::identify::ProtectionType;
use ebof_nvme::media::{Format, SecureErase};

use super::step::{Failed, Step};
use crate::drives::DriveActor;

/// How often a drive is asked how far it is.
const LOOK: Duration = Duration::from_millis(100);

/// A namespace that a task has created.
pub(super) struct Created {
    /// Its name.
    pub(super) name: NamespaceName,
    /// Its name on the medium.
    volume: VolumeId,
}

/// Creates a namespace.
pub(super) fn create(step: &Step<'_>, new: &CreateNamespace) -> Result<(), Failed> {
    let (_, actor) = step.drive(&new.drive)?;
    let format = format_index(new.block_size_bytes, new.metadata_bytes)?;
    let blocks = |bytes: u64| bytes.div_ceil(new.block_size_bytes.max(1).into());
    let namespace = NewNamespace {
        blocks: blocks(new.size_bytes),
        capacity_blocks: blocks(new.capacity_bytes.unwrap_or(new.size_bytes)),
        format,
        metadata_extended: new.metadata_bytes > 0,
        protection: protection_of(new.protection),
        shared: new.shared,
        ana_group: 1,
    };
    let attachments = (!new.attach_to.is_empty()).then(|| attachments_of(&new.attach_to));
    let is_added = step.added.contains(&new.drive.as_str());
    let transaction = step.transaction.filter(|_| !is_added).map(str::to_owned);
    let ordered = Ordered { namespace, nsid: new.nsid, attachments, transaction };
    step.at(Phase::Storing, 50, None);
    let answer = step.ask(&actor, Request::CreateOrdered(ordered))?;
    let Answer::Done(nsid) = answer else { return Err(unexpected()) };
    let nsid = u32::try_from(nsid).map_err(|_| unexpected())?;
    let name = NamespaceName { drive: new.drive.clone(), nsid };
    let view = actor.view();
    if let Some((_, namespace)) = view.namespaces.iter().find(|(there, _)| there.0 == nsid) {
        step.created.borrow_mut().push(Created { name: name.clone(), volume: namespace.volume });
    }
    step.add_made(name.to_string());
    Ok(())
}

/// Deletes a namespace that this task has created.
pub(super) fn withdraw(step: &Step<'_>, created: &Created) -> Result<(), Failed> {
    let (_, actor) = step.drive(&created.name.drive)?;
    step.ask(&actor, Request::Withdraw(created.volume)).map(drop)
}

pub(super) fn delete(step: &Step<'_>, name: &NamespaceName) -> Result<(), Failed> {
    ask_about(step, name, Request::Delete)
}

pub(super) fn attach(step: &Step<'_>, name: &NamespaceName, to: &Attachee) -> Result<(), Failed> {
    ask_about(step, name, |nsid| Request::AttachMore(nsid, attachments_of([to])))
}

pub(super) fn detach(step: &Step<'_>, name: &NamespaceName, from: &Attachee) -> Result<(), Failed> {
    ask_about(step, name, |nsid| Request::DetachFrom(nsid, attachments_of([from])))
}

pub(super) fn protect(step: &Step<'_>, name: &NamespaceName, on: bool) -> Result<(), Failed> {
    ask_about(step, name, |nsid| Request::Protect(nsid, on))
}

pub(super) fn group(step: &Step<'_>, name: &NamespaceName, group: u32) -> Result<(), Failed> {
    ask_about(step, name, |nsid| Request::Group(nsid, group))
}

fn ask_about(step: &Step<'_>, name: &NamespaceName, request: impl FnOnce(Nsid) -> Request) -> Result<(), Failed> {
    let (_, actor) = step.drive(&name.drive)?;
    step.at(Phase::Storing, 50, None);
    step.ask(&actor, request(Nsid(name.nsid))).map(drop)
}

/// Formats a namespace, and waits until its old data are erased, if they are to be.
pub(super) fn format(step: &Step<'_>, wanted: &FormatNamespace) -> Result<(), Failed> {
    let name = &wanted.namespace;
    let (_, actor) = step.drive(&name.drive)?;
    let format = format_of(&actor, wanted)?;
    step.at(Phase::Storing, 10, None);
    let nsid = name.nsid;
    let progress = |actor: &Arc<DriveActor>| {
        let left = actor.view().erasing.get(&nsid).copied();
        left.map(|left| (100 - left.min(100), "its old data are being erased".to_owned()))
    };
    step.ask_watching(&actor, Request::Format(Nsid(nsid), format), LOOK, progress).map(drop)
}

/// The Format NVM command for what is wanted of a namespace; the rest is as it is.
fn format_of(actor: &DriveActor, wanted: &FormatNamespace) -> Result<Format, Failed> {
    let view = actor.view();
    let found = view.namespaces.iter().find(|(nsid, _)| nsid.0 == wanted.namespace.nsid);
    let (_, namespace) = found.ok_or_else(|| Failed::new("the namespace is gone", "it was deleted meanwhile"))?;
    let shape = &namespace.shape;
    let now = shape.format();
    let block_size = wanted.block_size_bytes.unwrap_or(1 << now.block_shift);
    let metadata = wanted.metadata_bytes.unwrap_or(now.metadata_bytes);
    let protection = match wanted.protection {
        Some(protection) => protection_of(protection),
        None if metadata == 0 => Protection::default(),
        None => shape.protection,
    };
    Ok(Format {
        lba_format: format_index(block_size, metadata)?,
        metadata_extended: metadata > 0,
        protection: ProtectionType::decode(protection.kind),
        protection_first: protection.first,
        erase: match wanted.erase {
            Erase::None => SecureErase::None,
            Erase::UserData => SecureErase::UserData,
            Erase::Cryptographic => SecureErase::Cryptographic,
        },
    })
}

fn format_index(block_size: u32, metadata: u16) -> Result<u8, Failed> {
    let is_it = |format: &ebof_drive::Format| {
        1_u32.checked_shl(format.block_shift.into()) == Some(block_size) && format.metadata_bytes == metadata
    };
    let index = FORMATS.iter().position(is_it).and_then(|index| u8::try_from(index).ok());
    index.ok_or_else(|| Failed::new("the drive has no such format", "`ebof target show DRIVE` lists its formats"))
}

fn protection_of(protection: ProtectionObject) -> Protection {
    Protection { kind: protection.kind, first: protection.first }
}

fn attachments_of<'a>(who: impl IntoIterator<Item = &'a Attachee>) -> Attachments {
    let mut attachments = Attachments::default();
    for who in who {
        match who {
            Attachee::Function(function) => drop(attachments.functions.insert(FunctionId(function.number).0)),
            Attachee::Host(host) => drop(attachments.hosts.insert(host.to_string())),
            Attachee::Everyone => attachments.for_everyone = true,
        }
    }
    attachments
}

fn unexpected() -> Failed {
    Failed::new("the drive has answered something else than an NSID", "report this: it is a defect")
}
