//! Drives in ebof's own keys.

use std::collections::BTreeMap;

use ebof_nvme::Nqn;

use super::backing;
use super::known::{Known, KnownDrive};
use crate::config::{Attach, FORGETFUL, ManagedDrive, READ_ONLY, WITHOUT_SIZE, is_drive_name, limits};
use crate::diagnostic::{Collector, Span};
use crate::drive::{Drive, FileDrive};
use crate::load::read::table::Table;
use crate::load::read::tree::{Node, Value};
use crate::load::read::values::{self, as_string, mismatch};
use crate::units::format_size;

/// Reads a drive.
pub(super) fn read(node: &Node, known: &mut Known, out: &mut Collector<'_>) -> Option<ManagedDrive> {
    let mut table = Table::open("a drive", node, out)?.with(ManagedDrive::KEYS);
    let mut entry = KnownDrive::default();
    let name = table.required("name", "\"d0\"", out).and_then(|node| read_name(node, &mut entry, known, out));
    let backing_node = table.required("backing", "\"disk.img\"", out);
    let backing = backing_node.and_then(|node| backing::read("backing", BACKING_FORM, node, out));
    if let (Some(backing), Some(node)) = (&backing, backing_node) {
        check_backing(backing, &node.span, out);
        known.claim_drive(backing, &node.span, out);
    }
    let placeholder = Drive::Memory { size_bytes: 0 };
    let usable = name.is_some() && backing.is_some();
    let mut drive = ManagedDrive::new(name.unwrap_or_default(), backing.unwrap_or(placeholder));
    table.take(ManagedDrive::KEYS, &mut drive, out);
    if let Some(node) = table.node("size").filter(|_| usable && matches!(drive.backing, Drive::Memory { .. })) {
        out.error(node.span.clone(), "memory has the size that its backing says", "leave out `size`");
    }
    entry.serial.clone_from(&drive.serial);
    entry.model.clone_from(&drive.model);
    entry.least_cntlid = drive.least_cntlid();
    entry.functions = drive.functions;
    if drive.exclusive && drive.attach == Attach::Everyone {
        let span = table.node("attach").map_or_else(|| table.place(), |node| node.span.clone());
        let help = "with exclusive a namespace has one host at a time: leave out one of the two";
        out.error(span, "`attach` is \"everyone\" and `exclusive` is true", help);
    }
    drive.managers = read_managers(&mut table, &mut entry, out);
    drive.quotas = read_quotas(&mut table, &drive, &mut entry, out);
    table.finish(out);
    // Nothing can refer to a drive without a name, but to one with an invalid name.
    if table.node("name").is_some_and(|node| matches!(node.value, Value::String(_))) {
        known.drives.push(entry);
    }
    usable.then_some(drive)
}

const BACKING_FORM: &str = "\"PATH\", \"mem:SIZE\" or { path = \"PATH\" }";

fn read_name(node: &Node, entry: &mut KnownDrive, known: &mut Known, out: &mut Collector<'_>) -> Option<String> {
    let name = as_string("name", node, out)?;
    name.clone_into(&mut entry.name);
    entry.span = node.span.clone();
    if !is_drive_name(name) {
        let help = format!("accepted: 1 to {} letters, digits, `.`, `_` and `-`", limits::DRIVE_NAME_CHARS_MAX);
        out.error(node.span.clone(), format!("`{name}` cannot name a drive"), help);
        return None;
    }
    known.unique.claim("the drive name", name, &node.span, out);
    Some(name.to_owned())
}

fn check_backing(backing: &Drive, span: &Span, out: &mut Collector<'_>) {
    let range = limits::DRIVE_SIZE_BYTES;
    match backing {
        Drive::Null { .. } => out.error(span.clone(), "a drive cannot be kept in null:", FORGETFUL),
        Drive::Memory { size_bytes } if !range.contains(size_bytes) => {
            let help = format!("accepted: {} to {}", format_size(*range.start()), format_size(*range.end()));
            out.error(span.clone(), format!("a drive of {size_bytes} bytes"), help);
        }
        Drive::Memory { .. } => {}
        Drive::File(FileDrive { path, size_bytes: Some(size), .. }) => {
            // In the short form commas of a path are written twice.
            let backing = out.assignment("backing", &format!("\"{}\"", path.replace(',', ",,")));
            let help =
                format!("write {backing} and {}", out.assignment("size", &format!("\"{}\"", format_size(*size))));
            out.error(span.clone(), WITHOUT_SIZE, help);
        }
        Drive::File(FileDrive { read_only: true, .. }) => {
            out.error(span.clone(), "a drive cannot be read-only", READ_ONLY);
        }
        Drive::File(FileDrive { nested: true, .. }) => {
            out.error(span.clone(), "`nested` is for plain namespaces", "leave it out");
        }
        Drive::File(_) => {}
    }
}

fn read_managers(table: &mut Table<'_>, entry: &mut KnownDrive, out: &mut Collector<'_>) -> Option<Vec<Nqn>> {
    let nodes = table.bounded("managers", limits::DRIVE_HOSTS_MAX, out)?;
    let mut managers = Vec::new();
    for node in nodes {
        let Some(nqn) = values::nqn("managers", node, out) else { continue };
        if managers.contains(&nqn) {
            out.error(node.span.clone(), "the manager is named twice", "write it once");
            continue;
        }
        entry.mentions.push((nqn.clone(), "manager", node.span.clone()));
        managers.push(nqn);
    }
    if nodes.is_empty() {
        let place = table.node("managers").map_or_else(|| table.place(), |node| node.span.clone());
        out.note(place, "no host may manage this drive", "leave out `managers` to let every host that may connect");
    }
    Some(managers)
}

fn read_quotas(
    table: &mut Table<'_>,
    drive: &ManagedDrive,
    entry: &mut KnownDrive,
    out: &mut Collector<'_>,
) -> BTreeMap<String, u64> {
    let mut quotas = BTreeMap::new();
    let Some(node) = table.node("quotas") else { return quotas };
    let Value::Table(entries) = &node.value else {
        mismatch("quotas", node, "a table of sizes by host NQN", out);
        return quotas;
    };
    if let Some(surplus) = entries.get(limits::DRIVE_HOSTS_MAX) {
        let help = format!("accepted: at most {}", limits::DRIVE_HOSTS_MAX);
        out.error(surplus.key_span.clone(), format!("there are {} quotas", entries.len()), help);
    }
    for quota in entries.iter().take(limits::DRIVE_HOSTS_MAX) {
        let nqn = values::check_nqn(&quota.key, &quota.key_span, out);
        let size = values::size("quotas", &quota.node, &limits::QUOTA_BYTES, 1, out);
        let (Some(nqn), Some(size)) = (nqn, size) else { continue };
        let within = drive.size_bytes.is_none_or(|capacity| size <= capacity) || drive.overcommit;
        if !within {
            let message = "the quota is larger than the drive";
            out.warning(quota.node.span.clone(), message, "it limits nothing unless `overcommit` is true");
        }
        if drive.managers.as_ref().is_some_and(|managers| !managers.contains(&nqn)) {
            let message = "the quota has no effect: the host is not one of `managers`";
            out.warning(quota.key_span.clone(), message, "only a manager creates namespaces");
        } else {
            entry.mentions.push((nqn.clone(), "host", quota.key_span.clone()));
        }
        quotas.insert(nqn.to_string(), size);
    }
    quotas
}
