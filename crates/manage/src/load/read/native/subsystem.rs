//! Subsystems and namespaces in ebof's own keys.

use std::collections::HashSet;

use ebof_nvme::Nqn;

use super::backing;
use super::known::{Known, KnownDrive};
use crate::config::{Assigned, BlockSize, IdentityRule, Namespace, Subsystem, default_uuid, limits};
use crate::diagnostic::{Collector, Span};
use crate::drive::{Drive, FileDrive};
use crate::load::read::table::{Table, beginning};
use crate::load::read::tree::{Node, Value};
use crate::load::read::values::{self, Unique};

/// Reads a subsystem.
pub(super) fn read(node: &Node, known: &mut Known, out: &mut Collector<'_>) -> Option<Subsystem> {
    let mut table = Table::open("a subsystem", node, out)?.with(Subsystem::KEYS);
    let named = table.required("nqn", "\"nqn.2014-08.org.example:drive0\"", out);
    let nqn = named.and_then(|node| values::nqn("nqn", node, out));
    let mut only_one = false;
    if let (Some(node), Some(nqn)) = (named, &nqn) {
        only_one = known.unique.claim("the subsystem NQN", nqn.as_str(), &node.span, out);
        if nqn.is_discovery() {
            let help = "the discovery subsystem is always there: give this one a name of its own";
            out.error(node.span.clone(), "the well-known discovery NQN cannot name a subsystem", help);
        }
    }
    // Without a valid NQN the rest is read all the same, to report its mistakes.
    let named_well = nqn.is_some();
    let mut subsystem = Subsystem::new(nqn.unwrap_or_else(Nqn::discovery));
    let drive = table.node("drive");
    let described = drive.and_then(|node| known.drive(node, out));
    read_identity(&mut table, &mut subsystem, described, out);
    subsystem.drive = described.map(|drive| drive.name.clone());
    let least = described.map_or(u16::from(drive.is_none()) * limits::CNTLID_MIN, |drive| drive.least_cntlid);
    table.take(Subsystem::KEYS, &mut subsystem, out);
    read_access(&mut table, &mut subsystem, known, out);
    read_controller_ids(&mut table, &mut subsystem, least, out);
    // Two subsystems with the same NQN have the same UUIDs by their names; one error is enough.
    let names = (subsystem.identity == IdentityRule::Name && only_one).then_some(&subsystem.nqn);
    subsystem.namespaces = read_namespaces(&mut table, names, known, out);
    if drive.is_some()
        && let Some(first) = table.array("namespaces", out).and_then(<[Node]>::first)
    {
        let help = "its hosts make them: leave out `namespaces`, or `drive`";
        out.error(beginning(&first.span), "a subsystem with a drive has no namespaces of its own", help);
    }
    table.finish(out);
    named_well.then_some(subsystem)
}

/// Serial and model number are those of the drive, if it has any.
fn read_identity(
    table: &mut Table<'_>,
    subsystem: &mut Subsystem,
    drive: Option<&KnownDrive>,
    out: &mut Collector<'_>,
) {
    let mut text = |key, chars_max, of_drive: Option<&String>, field: &mut String| {
        of_drive.iter().for_each(|text| field.clone_from(text));
        let Some((text, span)) = table.string(key, out) else { return };
        let Some(text) = values::printable(key, text, chars_max, &span, out) else { return };
        if let Some(other) = of_drive.filter(|other| **other != text) {
            let message = format!("`{key}` is \"{text}\", and that of the drive is \"{other}\"");
            out.error(span, message, "write it in one of the two places");
        }
        *field = text;
    };
    let serial = drive.and_then(|drive| drive.serial.as_ref());
    let model = drive.and_then(|drive| drive.model.as_ref());
    text("serial", limits::SERIAL_CHARS_MAX, serial, &mut subsystem.serial);
    text("model", limits::MODEL_CHARS_MAX, model, &mut subsystem.model);
}

fn read_access(table: &mut Table<'_>, subsystem: &mut Subsystem, known: &mut Known, out: &mut Collector<'_>) {
    let hosts = table.array("allowed_hosts", out);
    let mut allowed = HashSet::new();
    for node in hosts.unwrap_or_default() {
        if let Some(nqn) = known.host(node, out) {
            if allowed.insert(nqn.as_str().to_owned()) {
                subsystem.allowed_hosts.push(nqn);
            } else {
                out.error(node.span.clone(), "the host is allowed twice", "write it once");
            }
        }
    }
    if subsystem.allow_any_host {
        if let Some(first) = hosts.and_then(<[Node]>::first) {
            let message = "`allowed_hosts` has no effect: allow_any_host lets every host in";
            out.warning(first.span.clone(), message, "remove one of the two");
        }
    } else if hosts.is_none_or(<[Node]>::is_empty) {
        let help = "add allowed_hosts = [\"NQN\"] with each NQN in `hosts`, or allow_any_host = true";
        out.warning(table.place(), "no host may connect to this subsystem", help);
    }
    match table.array("ports", out) {
        None => {
            let serving = known.ports.iter().filter(|(_, discovery_only)| !discovery_only);
            // A direct port has one subsystem, which names it.
            let of_networks = serving.filter(|(name, _)| !known.direct.contains_key(name));
            subsystem.ports = of_networks.map(|(name, _)| name.clone()).collect();
        }
        Some(nodes) => {
            for node in nodes {
                if let Some(name) = known.port(node, out) {
                    let direct = known.direct.get_mut(&name).map(|there| there.replace(subsystem.nqn.to_string()));
                    if let Some(Some(other)) = direct.filter(|other| *other != Some(subsystem.nqn.to_string())) {
                        let message = format!("`{name}` is a direct port, and has the subsystem {other} already");
                        out.error(node.span.clone(), message, "a virtual machine sees one subsystem: add a port");
                    } else if subsystem.ports.contains(&name) {
                        out.error(node.span.clone(), "the port is named twice", "write it once");
                    } else {
                        subsystem.ports.push(name);
                    }
                }
            }
            if nodes.is_empty() {
                let help = "leave out `ports` to reach it through all";
                out.warning(table.place(), "this subsystem is reached through no port", help);
            }
        }
    }
}

fn read_controller_ids(table: &mut Table<'_>, subsystem: &mut Subsystem, least: u16, out: &mut Collector<'_>) {
    let range = u64::from(least)..=u64::from(limits::CNTLID_MAX);
    subsystem.cntlid_min = table.integer("cntlid_min", &range, out).unwrap_or(least);
    subsystem.cntlid_max = table.integer("cntlid_max", &range, out).unwrap_or(limits::CNTLID_MAX);
    if subsystem.cntlid_min > subsystem.cntlid_max {
        let place = table.node("cntlid_max").or_else(|| table.node("cntlid_min"));
        let span = place.map_or_else(|| table.place(), |node| node.span.clone());
        let message = format!("cntlid_min {} is above cntlid_max {}", subsystem.cntlid_min, subsystem.cntlid_max);
        out.error(span, message, "no controller id is left to give out");
    }
}

/// Reads the namespaces. `names` is the NQN if their identifiers follow that and the NSID.
fn read_namespaces(
    table: &mut Table<'_>,
    names: Option<&Nqn>,
    known: &mut Known,
    out: &mut Collector<'_>,
) -> Vec<Namespace> {
    let max = usize::try_from(limits::NAMESPACES_MAX).unwrap_or(usize::MAX);
    let nodes = table.bounded("namespaces", max, out).unwrap_or_default();
    let mut numbers = Unique::default();
    let mut read: Vec<(Namespace, &Span)> = Vec::new();
    for node in nodes {
        if let Some(namespace) = read_namespace(node, &mut numbers, known, out) {
            read.push((namespace, &node.span));
        }
    }
    // Namespaces without an NSID get the lowest unused ones, in order.
    let taken: HashSet<u32> = read.iter().map(|(namespace, _)| namespace.nsid).collect();
    let mut free = (1..=limits::NAMESPACES_MAX).filter(|nsid| !taken.contains(nsid));
    for (namespace, span) in &mut read {
        if namespace.nsid == 0 {
            namespace.assigned = Assigned(true);
            namespace.nsid = free.next().unwrap_or_default();
        }
        if let (Some(nqn), None) = (names, namespace.uuid) {
            let uuid = default_uuid(nqn, namespace.nsid);
            known.unique.claim("the UUID", &uuid.to_string(), span, out);
        }
    }
    let mut namespaces: Vec<Namespace> = read.into_iter().map(|(namespace, _)| namespace).collect();
    namespaces.sort_by_key(|namespace| namespace.nsid);
    namespaces
}

/// A namespace. Its NSID is 0 if it is not set.
fn read_namespace(node: &Node, numbers: &mut Unique, known: &mut Known, out: &mut Collector<'_>) -> Option<Namespace> {
    // A text is the drive of a namespace with the defaults.
    if let Value::String(text) = &node.value {
        let drive = values::drive(text, &node.span, out)?;
        known.claim_drive(&drive, &node.span, out);
        return Some(Namespace::new(0, drive));
    }
    let mut table = Table::open("a namespace", node, out)?.with(Namespace::KEYS);
    let nsid = table.integer("nsid", &Namespace::NSID, out);
    let mut only_one = true;
    if let (Some(nsid), Some(node)) = (nsid, table.node("nsid")) {
        let nsid: u32 = nsid;
        only_one = numbers.claim("the NSID", &nsid.to_string(), &node.span, out);
    }
    let drive_node = table.required("drive", "\"disk.img\"", out);
    let drive = drive_node.and_then(|node| backing::read("drive", NAMESPACE_FORM, node, out));
    let block_size = read_block_size(&mut table, out);
    if let (Some(drive), Some(node)) = (&drive, drive_node) {
        known.claim_drive(drive, &node.span, out);
    }
    let placeholder = Drive::Null { size_bytes: 0 };
    let mut namespace = Namespace::new(nsid.unwrap_or(0), drive.clone().unwrap_or(placeholder));
    namespace.block_size = block_size;
    read_identifiers(&mut table, &mut namespace, known, out);
    let read_only = matches!(&namespace.drive, Drive::File(FileDrive { read_only: true, .. }));
    namespace.write_protect = table.boolean("write_protect", out).unwrap_or(read_only);
    if read_only && !namespace.write_protect {
        let span = table.node("write_protect").map_or_else(|| table.place(), |node| node.span.clone());
        out.error(span, "the drive is read-only", "leave out write_protect = false, or read_only of the drive");
    }
    table.take(Namespace::KEYS, &mut namespace, out);
    table.finish(out);
    // A second namespace with the same NSID may have the same UUID by its names: one error is
    // enough.
    drive.filter(|_| only_one).map(|_| namespace)
}

fn read_block_size(table: &mut Table<'_>, out: &mut Collector<'_>) -> Option<BlockSize> {
    let node = table.node("block_size")?;
    match values::size("block_size", node, &(0..=u64::MAX), 1, out)? {
        512 => Some(BlockSize::B512),
        4096 => Some(BlockSize::B4096),
        other => {
            out.error(node.span.clone(), format!("`block_size` is {other}"), "accepted: 512 or 4096");
            None
        }
    }
}

/// Reads the identifiers of a namespace.
fn read_identifiers(table: &mut Table<'_>, namespace: &mut Namespace, known: &mut Known, out: &mut Collector<'_>) {
    if let Some((text, span)) = table.string("uuid", out)
        && let Some(uuid) = values::uuid(text, &span, out)
    {
        known.unique.claim("the UUID", &uuid.to_string(), &span, out);
        namespace.uuid = Some(uuid);
    }
    if let Some((text, span)) = table.string("nguid", out)
        && let Some(nguid) = values::nguid(text, &span, out)
    {
        known.unique.claim("the NGUID", &nguid.to_string(), &span, out);
        namespace.nguid = Some(nguid);
    }
    if let Some((text, span)) = table.string("eui64", out)
        && let Some(eui64) = values::eui64(text, &span, out)
    {
        known.unique.claim("the EUI-64", &eui64.to_string(), &span, out);
        namespace.eui64 = Some(eui64);
    }
}

const NAMESPACE_FORM: &str = "a string or a table; PATH, PATH:SIZE (made when missing), mem:SIZE or null:SIZE";
