//! Subsystems and namespaces of the Linux target.

use std::collections::HashSet;

use ebof_nvme::Uuid;

use super::{Import, ignore_unknown, loose_boolean, loose_integer, loose_string};
use crate::config::{BlockSize, Namespace, Subsystem, limits};
use crate::diagnostic::Collector;
use crate::drive::Drive;
use crate::load::read::table::{Table, beginning};
use crate::load::read::tree::{Node, Value};
use crate::load::read::values::{self, Unique, as_string};
use ebof_grammar::backing::checked_path;

/// Reads a subsystem.
pub(super) fn read(import: &mut Import, node: &Node, out: &mut Collector<'_>) -> Option<Subsystem> {
    let mut table = Table::open("a subsystem", node, out)?;
    let named = table.required("nqn", "\"nqn.2014-08.org.example:drive0\"", out)?;
    let nqn = values::nqn("nqn", named, out)?;
    import.known.unique.claim("the subsystem NQN", nqn.as_str(), &named.span, out);
    let mut subsystem = Subsystem::new(nqn);
    if let Some(node) = table.node("attr") {
        read_attributes(node, &mut subsystem, out);
    }
    read_allowed_hosts(import, &mut table, &mut subsystem, out);
    let max = usize::try_from(limits::NAMESPACES_MAX).unwrap_or(usize::MAX);
    let namespaces = table.bounded("namespaces", max, out).unwrap_or_default();
    let mut numbers = Unique::default();
    let read = namespaces.iter().filter_map(|node| read_namespace(import, node, &mut numbers, out));
    subsystem.namespaces = read.collect();
    subsystem.namespaces.sort_by_key(|namespace| namespace.nsid);
    if let Some(first) = table.array("passthru", out).and_then(<[Node]>::first) {
        let message = "a controller cannot be passed through: it is left out";
        out.warning(beginning(&first.span), message, "name its block device in `namespaces`");
    }
    ignore_unknown(&table, out);
    let links: Vec<&Option<String>> =
        import.links.iter().filter(|(_, linked)| linked == subsystem.nqn.as_str()).map(|(port, _)| port).collect();
    subsystem.ports = links.iter().filter_map(|port| (*port).clone()).collect();
    if subsystem.ports.is_empty() {
        let message = match links.is_empty() {
            true => "no port has this subsystem: no host can reach it",
            false => "every port that has this subsystem is left out: no host can reach it",
        };
        out.warning(named.span.clone(), message, "add its NQN to the `subsystems` of a tcp port");
    }
    Some(subsystem)
}

fn read_attributes(node: &Node, subsystem: &mut Subsystem, out: &mut Collector<'_>) {
    let Some(mut table) = Table::open("`attr`", node, out) else { return };
    if let Some(node) = table.node("allow_any_host") {
        subsystem.allow_any_host = loose_boolean("allow_any_host", node, out).unwrap_or(false);
    }
    let mut text = |key, chars_max, field: &mut String| {
        let Some(node) = table.node(key) else { return };
        let given = loose_string(key, node, out).filter(|text| !text.is_empty());
        if let Some(text) = given.and_then(|text| values::printable(key, &text, chars_max, &node.span, out)) {
            *field = text;
        }
    };
    text("serial", limits::SERIAL_CHARS_MAX, &mut subsystem.serial);
    text("model", limits::MODEL_CHARS_MAX, &mut subsystem.model);
    text("firmware", limits::FIRMWARE_CHARS_MAX, &mut subsystem.firmware);
    for key in ["cntlid_min", "cntlid_max"] {
        let Some(node) = table.node(key) else { continue };
        let Some(number) = loose_integer(key, node, out) else { continue };
        let legal = u16::try_from(number).ok().filter(|id| (limits::CNTLID_MIN..=limits::CNTLID_MAX).contains(id));
        match (legal, key) {
            (Some(id), "cntlid_min") => subsystem.cntlid_min = id,
            (Some(id), _) => subsystem.cntlid_max = id,
            (None, _) => {
                let help = format!("accepted: {} to {}", limits::CNTLID_MIN, limits::CNTLID_MAX);
                out.error(node.span.clone(), format!("`{key}` is {number}"), help);
            }
        }
    }
    if subsystem.cntlid_min > subsystem.cntlid_max {
        let message = format!("cntlid_min {} is above cntlid_max {}", subsystem.cntlid_min, subsystem.cntlid_max);
        let span = table.node("cntlid_max").map_or_else(|| table.place(), |node| node.span.clone());
        out.error(span, message, "no controller id is left to give out");
    }
    read_ignored_attributes(&mut table, out);
    ignore_unknown(&table, out);
}

fn read_ignored_attributes(table: &mut Table<'_>, out: &mut Collector<'_>) {
    if let Some(node) = table.node("version") {
        out.note(node.span.clone(), "`version` has no effect: ebof announces the version it implements", "");
    }
    if let Some(node) = table.node("pi_enable")
        && loose_boolean("pi_enable", node, out) == Some(true)
    {
        out.warning(node.span.clone(), "protection information is not served: `pi_enable` has no effect", "");
    }
    if let Some(node) = table.node("qid_max") {
        out.note(node.span.clone(), "`qid_max` has no effect: a port's max_io_queues limits queues here", "");
    }
    if let Some(node) = table.node("ieee_oui")
        && !matches!(&node.value, Value::String(text) if text.trim_start_matches("0x").bytes().all(|b| b == b'0'))
    {
        out.note(node.span.clone(), "`ieee_oui` has no effect", "");
    }
}

fn read_allowed_hosts(import: &Import, table: &mut Table<'_>, subsystem: &mut Subsystem, out: &mut Collector<'_>) {
    let mut allowed = HashSet::new();
    for node in table.array("allowed_hosts", out).unwrap_or_default() {
        let Some(text) = as_string("allowed_hosts", node, out) else { continue };
        if !import.authenticated.contains(text) && allowed.insert(text) {
            subsystem.allowed_hosts.extend(import.known.host(node, out));
        }
    }
}

fn read_namespace(
    import: &mut Import,
    node: &Node,
    numbers: &mut Unique,
    out: &mut Collector<'_>,
) -> Option<Namespace> {
    let mut table = Table::open("a namespace", node, out)?;
    let nsid_node = table.required("nsid", "1", out);
    let enable = table.node("enable");
    let group = table.node("ana_grpid");
    let resv = table.node("resv");
    let device = table.required("device", "{ \"path\": \"/dev/nvme0n1\" }", out);
    // Older versions of nvmetcli write the group here, always empty.
    table.entry("ana");
    ignore_unknown(&table, out);
    let nsid_node = nsid_node?;
    let number = loose_integer("nsid", nsid_node, out)?;
    let Some(nsid) = u32::try_from(number).ok().filter(|nsid| (1..=limits::NSID_MAX).contains(nsid)) else {
        let help = format!("accepted: 1 to {}", limits::NSID_MAX);
        out.error(nsid_node.span.clone(), format!("`nsid` is {number}"), help);
        return None;
    };
    numbers.claim("the NSID", &nsid.to_string(), &nsid_node.span, out);
    let enabled = enable.map(|node| loose_boolean("enable", node, out).unwrap_or(false));
    if enabled != Some(true) {
        let span = enable.unwrap_or(nsid_node).span.clone();
        out.warning(span, "the namespace is not enabled: it is left out", "write \"enable\": 1 to serve it");
        return None;
    }
    if let Some(node) = resv
        && names_true(node)
    {
        out.warning(node.span.clone(), "reservations are not served: `resv` has no effect", "");
    }
    let mut namespace = read_device(import, device?, nsid, out)?;
    if let Some(node) = group {
        let number = loose_integer("ana_grpid", node, out)?;
        // 0 is what nvmetcli writes for a kernel without ANA.
        match u32::try_from(number).ok().filter(|group| *group <= limits::ANA_GROUP_MAX) {
            Some(group) => namespace.ana_group = group.max(1),
            None => {
                let help = format!("accepted: 1 to {}", limits::ANA_GROUP_MAX);
                out.error(node.span.clone(), format!("`ana_grpid` is {number}"), help);
            }
        }
    }
    Some(namespace)
}

fn names_true(node: &Node) -> bool {
    match &node.value {
        Value::Table(entries) => entries.iter().any(|entry| names_true(&entry.node)),
        Value::String(text) => matches!(text.trim(), "1" | "y" | "Y"),
        Value::Integer(number) => *number != 0,
        Value::Boolean(truth) => *truth,
        _ => false,
    }
}

fn read_device(import: &mut Import, node: &Node, nsid: u32, out: &mut Collector<'_>) -> Option<Namespace> {
    let mut table = Table::open("`device`", node, out)?;
    let path_node = table.required("path", "\"/dev/nvme0n1\"", out);
    let uuid = table.node("uuid");
    let nguid = table.node("nguid");
    ignore_unknown(&table, out);
    let path_node = path_node?;
    let path = as_string("path", path_node, out)?;
    if let Err(error) = checked_path(path) {
        out.error(path_node.span.clone(), error.to_string(), "accepted: a block device or a file");
        return None;
    }
    // The path is taken as it is: a colon in it does not begin a size.
    let drive = Drive::file(path);
    import.known.claim_drive(&drive, &path_node.span, out);
    let mut namespace = Namespace::new(nsid, drive);
    // The kernel serves a file in blocks of 4096, as its file system has them, a block device in
    // its own: data written through the one must stay readable through the other.
    if !path.starts_with("/dev/") {
        namespace.block_size = Some(BlockSize::B4096);
    }
    let uuid = uuid.and_then(|node| Some((as_string("uuid", node, out)?, &node.span)));
    if let Some((text, span)) = uuid.filter(|(text, _)| Uuid::parse(text) != Some(Uuid::NIL)) {
        namespace.uuid = Some(values::uuid(text, span, out)?);
        import.known.unique.claim("the UUID", text, span, out);
    }
    // All zero is the kernel's "not set".
    let nguid = nguid.and_then(|node| Some((as_string("nguid", node, out)?, &node.span)));
    if let Some((text, span)) = nguid.filter(|(text, _)| text.bytes().any(|byte| !matches!(byte, b'0' | b'-'))) {
        namespace.nguid = Some(values::nguid(text, span, out)?);
        import.known.unique.claim("the NGUID", text, span, out);
    }
    Some(namespace)
}
