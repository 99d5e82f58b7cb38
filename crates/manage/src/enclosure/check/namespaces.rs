//! The checks of changes of namespaces: who may have them, their formats, their data.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::drives::{CheckedDrives, check_encrypts};
use super::mistakes::Mistakes;
use crate::config::limits::ANA_GROUP_MAX;
use crate::enclosure::attachee::Attachee;
use crate::enclosure::details::FormatObject;
use crate::enclosure::drive_change::{ATTACHEES_MAX, CreateNamespace, Erase, FormatNamespace, ProtectionObject};
use crate::enclosure::inventory::{DriveObject, Inventory, NamespaceObject};
use crate::enclosure::name::{FunctionName, NamespaceName};
use crate::enclosure::refusal::MistakeKind;

/// The namespaces after the changes so far. Those that are created without an NSID on a drive whose
/// namespaces are not known are not in it.
pub(super) struct CheckedNamespaces {
    known: BTreeMap<NamespaceName, Known>,
}

/// A namespace after the changes so far.
struct Known {
    shared: bool,
    write_protected: bool,
    who: BTreeSet<Attachee>,
}

impl From<&NamespaceObject> for Known {
    fn from(namespace: &NamespaceObject) -> Self {
        let functions = namespace.functions.iter().cloned().map(Attachee::Function);
        // What is not read as the name of a host is none that a change could name.
        let hosts = namespace.hosts.iter().filter_map(|host| host.parse().ok());
        let NamespaceObject { shared, write_protected, .. } = *namespace;
        Self { shared, write_protected, who: functions.chain(hosts).collect() }
    }
}

impl CheckedNamespaces {
    pub(super) fn new(inventory: &Inventory) -> Self {
        let namespaces = inventory.drives.iter().flat_map(|drive| &drive.namespaces);
        Self { known: namespaces.map(|namespace| (namespace.name.clone(), Known::from(namespace))).collect() }
    }

    pub(super) fn map(
        &mut self,
        namespace: &NamespaceName,
        function: Option<&FunctionName>,
        drives: &CheckedDrives<'_>,
        out: &mut Mistakes,
    ) {
        let exists = self.namespace(namespace, drives, out);
        let before = out.count();
        if let Some(function) = function {
            is_attachable(namespace, &namespace.drive, &Attachee::Function(function.clone()), drives, out);
        }
        if exists
            && out.count() == before
            && let Some(known) = self.known.get_mut(namespace)
        {
            let stays = known.shared;
            known.who.retain(|who| stays && !matches!(who, Attachee::Function(_)));
            known.who.extend(function.cloned().map(Attachee::Function));
        }
    }

    /// Whether there is such a namespace, now or by an earlier change; what is wrong otherwise is
    /// noted.
    fn namespace(&self, name: &NamespaceName, drives: &CheckedDrives<'_>, out: &mut Mistakes) -> bool {
        let before = out.count();
        let Some(drive) = drives.drive(&name.drive, out) else { return self.new_namespace(name, drives, out) };
        if !self.known.contains_key(name) {
            let names: Vec<String> = drive.namespaces.iter().map(|there| format!("ns{}", there.name.nsid)).collect();
            let advice = match names.is_empty() {
                true => {
                    format!("drive {0} has no namespace: `ebof target add namespace {0} SIZE` makes one", drive.name)
                }
                false => format!("drive {} has {}", drive.name, names.join(", ")),
            };
            out.note(MistakeKind::NotFound, name, "there is no such namespace", advice);
        }
        out.count() == before
    }

    /// The same of a drive that an earlier change adds: what is on one that has data is found out
    /// when it is there.
    fn new_namespace(&self, name: &NamespaceName, drives: &CheckedDrives<'_>, out: &mut Mistakes) -> bool {
        let Some(is_empty) = drives.is_added_empty(&name.drive) else { return false };
        if !is_empty || self.known.contains_key(name) {
            return true;
        }
        let advice = format!("create it by an earlier change (`create-namespace` on drive {})", name.drive);
        out.note(MistakeKind::NotFound, name, "there will be no such namespace", advice);
        false
    }

    /// The same for a change that a drive refuses while it is being sanitized.
    fn usable_namespace(&self, name: &NamespaceName, drives: &CheckedDrives<'_>, out: &mut Mistakes) -> bool {
        self.namespace(name, drives, out) && drives.is_usable(&name.drive, out)
    }

    pub(super) fn attach(
        &mut self,
        name: &NamespaceName,
        to: &Attachee,
        drives: &CheckedDrives<'_>,
        out: &mut Mistakes,
    ) {
        let exists = self.usable_namespace(name, drives, out);
        is_attachable(name, &name.drive, to, drives, out);
        let Some(known) = self.known.get_mut(name).filter(|_| exists) else { return };
        let other = known.who.iter().find(|&who| who != to).filter(|_| !known.shared).cloned();
        known.who.insert(to.clone());
        if let Some(other) = other {
            let message = format!("it is private, and attached to {other}");
            let advice = match to {
                Attachee::Function(function) => format!("`ebof target map {name} --vf {function}` moves it"),
                _ => format!("`ebof target detach {name} {other}` first"),
            };
            out.note(MistakeKind::Conflict, name, message, advice);
        }
    }

    pub(super) fn detach(
        &mut self,
        name: &NamespaceName,
        from: &Attachee,
        drives: &CheckedDrives<'_>,
        out: &mut Mistakes,
    ) {
        if !self.usable_namespace(name, drives, out) {
            return;
        }
        let Some(known) = self.known.get_mut(name) else { return };
        let is_one_of_all = matches!(from, Attachee::Host(_)) && known.who.contains(&Attachee::Everyone);
        if known.who.remove(from) || is_one_of_all {
            return;
        }
        let who: Vec<String> = known.who.iter().map(ToString::to_string).collect();
        let advice = match who.is_empty() {
            true => "it is attached to nobody".to_owned(),
            false => format!("it is attached to {}", who.join(", ")),
        };
        out.note(MistakeKind::Conflict, name, format!("it is not attached to {from}"), advice);
    }

    pub(super) fn protect(&mut self, name: &NamespaceName, on: bool, drives: &CheckedDrives<'_>, out: &mut Mistakes) {
        if self.usable_namespace(name, drives, out)
            && let Some(known) = self.known.get_mut(name)
        {
            known.write_protected = on;
        }
    }

    pub(super) fn group(&self, name: &NamespaceName, group: u32, drives: &CheckedDrives<'_>, out: &mut Mistakes) {
        if self.usable_namespace(name, drives, out) && !(1..=ANA_GROUP_MAX).contains(&group) {
            let advice = format!("accepted: 1 to {ANA_GROUP_MAX}");
            out.note(MistakeKind::Value, name, format!("the ANA group is {group}"), advice);
        }
    }

    pub(super) fn delete(&mut self, name: &NamespaceName, drives: &CheckedDrives<'_>, out: &mut Mistakes) {
        if self.usable_namespace(name, drives, out) {
            self.may_lose_data(name, out);
            self.known.remove(name);
        }
    }

    fn may_lose_data(&self, name: &NamespaceName, out: &mut Mistakes) {
        if self.known.get(name).is_some_and(|known| known.write_protected) {
            let advice = format!("`ebof target set {name} write-protect=off` removes the protection");
            out.note(MistakeKind::Conflict, name, "it is write protected", advice);
        }
    }

    pub(super) fn create(&mut self, new: &CreateNamespace, drives: &CheckedDrives<'_>, out: &mut Mistakes) {
        let is_usable = drives.is_usable(&new.drive, out);
        let drive = drives.before(&new.drive).filter(|_| is_usable);
        let object = match new.nsid {
            Some(nsid) => format!("{}/ns{nsid}", new.drive),
            None => new.drive.clone(),
        };
        if new.size_bytes == 0 {
            out.note(MistakeKind::Value, &object, "a size of 0 bytes", "accepted: 1 byte or more");
        }
        if let Some(capacity) = new.capacity_bytes.filter(|capacity| !(1..=new.size_bytes).contains(capacity)) {
            let advice = format!("accepted: 1 byte to its size of {}", new.size_bytes);
            out.note(MistakeKind::Value, &object, format!("a capacity of {capacity} bytes"), advice);
        }
        if let Some(drive) = drive {
            block_format(&object, drive, new.block_size_bytes, new.metadata_bytes, new.protection, out);
            self.new_nsid(&object, drive, new.nsid, out);
        }
        if is_usable {
            new.attach_to
                .iter()
                .take(ATTACHEES_MAX)
                .for_each(|who| is_attachable(&object, &new.drive, who, drives, out));
        }
        let who: BTreeSet<Attachee> = new.attach_to.iter().take(ATTACHEES_MAX + 1).cloned().collect();
        if who.len() > ATTACHEES_MAX {
            let advice = format!("accepted: at most {ATTACHEES_MAX}; `attach-namespace` attaches it to more");
            out.note(MistakeKind::Value, &object, "it would be attached to too many", advice);
        }
        if who.len() > 1 && !new.shared {
            let message = format!("it would be private, and attached to {} at once", who.len());
            out.note(MistakeKind::Conflict, &object, message, "make it shared, or attach it to one");
        }
        // A drive chooses the lowest NSID that is free. Of one that is added and has data it is not
        // known which that is.
        let is_known = drive.is_some() || drives.is_added_empty(&new.drive) == Some(true);
        let name = |nsid| NamespaceName { drive: new.drive.clone(), nsid };
        let lowest = || (1..).map(name).find(|name| !self.known.contains_key(name)).filter(|_| is_known);
        if let Some(name) = new.nsid.map(name).or_else(lowest) {
            self.known.insert(name, Known { shared: new.shared, write_protected: false, who });
        }
    }

    fn new_nsid(&self, object: &str, drive: &DriveObject, wanted: Option<u32>, out: &mut Mistakes) {
        let max = drive.namespaces_max;
        let there = self.known.keys().filter(|there| there.drive == drive.name).count();
        if there >= usize::try_from(max).unwrap_or(usize::MAX) {
            let advice =
                "use another drive; or delete one whose data may be lost (`ebof target remove namespace NAMESPACE`)";
            out.note(MistakeKind::Conflict, &object, format!("the drive has {max} namespaces, and no more"), advice);
        }
        let Some(nsid) = wanted else { return };
        if !(1..=max).contains(&nsid) {
            out.note(MistakeKind::Value, &object, format!("an NSID of {nsid}"), format!("accepted: 1 to {max}"));
        }
        if self.known.contains_key(&NamespaceName { drive: drive.name.clone(), nsid }) {
            let advice = "choose another NSID, or let the drive choose";
            out.note(MistakeKind::Conflict, &object, "there is such a namespace already", advice);
        }
    }

    pub(super) fn format(&self, wanted: &FormatNamespace, drives: &CheckedDrives<'_>, out: &mut Mistakes) {
        let name = &wanted.namespace;
        if !self.usable_namespace(name, drives, out) {
            return;
        }
        self.may_lose_data(name, out);
        let Some(drive) = drives.before(&name.drive) else { return };
        let Some(now) = drive.namespaces.iter().find(|namespace| namespace.name == *name) else { return };
        if now.format_percent.is_some() {
            let advice = "wait for the end of that; `ebof target show` says how far it is";
            out.note(MistakeKind::Busy, name, "it is being formatted", advice);
        }
        if wanted.erase == Erase::Cryptographic {
            check_encrypts(name, drive, out);
        }
        let block_size = wanted.block_size_bytes.unwrap_or(now.block_size_bytes);
        let metadata = wanted.metadata_bytes.unwrap_or(now.metadata_bytes);
        block_format(&name.to_string(), drive, block_size, metadata, wanted.protection.unwrap_or_default(), out);
    }
}

/// Whether a namespace of this drive could be attached to somebody.
fn is_attachable(
    object: &dyn fmt::Display,
    drive: &str,
    who: &Attachee,
    drives: &CheckedDrives<'_>,
    out: &mut Mistakes,
) {
    let Attachee::Function(function) = who else { return };
    if function.drive != drive {
        let message = format!("{function} is a function of another drive");
        return out.note(MistakeKind::Conflict, object, message, format!("choose one of drive {drive}"));
    }
    let is_added = drives.is_added_empty(&function.drive).is_some();
    if is_added || drives.before(&function.drive).is_some_and(|drive| drive.task.is_none()) {
        drives.function(function, out);
    }
}

/// Whether a drive has blocks like that.
fn block_format(
    object: &str,
    drive: &DriveObject,
    block_size: u32,
    metadata: u16,
    protection: ProtectionObject,
    out: &mut Mistakes,
) {
    let is_it = |format: &&FormatObject| format.block_size_bytes == block_size && format.metadata_bytes == metadata;
    if drive.formats.iter().find(is_it).is_none() {
        let words = |format: &FormatObject| match format.metadata_bytes {
            0 => format.block_size_bytes.to_string(),
            metadata => format!("{} with {metadata} of metadata", format.block_size_bytes),
        };
        let accepted: Vec<String> = drive.formats.iter().map(words).collect();
        let message = format!("blocks of {block_size} bytes with {metadata} bytes of metadata");
        out.note(MistakeKind::Value, &object, message, format!("accepted: {}", accepted.join(", ")));
    }
    if protection.kind > 3 {
        let message = format!("protection information of type {}", protection.kind);
        out.note(MistakeKind::Value, &object, message, "accepted: 0 for none, 1 to 3");
    } else if protection.kind > 0 && metadata == 0 {
        let advice = "choose a format with metadata";
        out.note(MistakeKind::Conflict, &object, "protection information needs metadata", advice);
    }
}
