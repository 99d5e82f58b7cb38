//! Where in a text something is that was read, for remarks that come of several parts of it.

use crate::config::Port;
use crate::diagnostic::Span;
use crate::listen::Listen;
use crate::load::read::table::beginning;
use crate::load::read::tree::{KeyEntry, Node, Value};

/// The value of a key.
fn value<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    entry(node, key).map(|entry| &entry.node)
}

fn entry<'n>(node: &'n Node, key: &str) -> Option<&'n KeyEntry> {
    let Value::Table(entries) = &node.value else { return None };
    entries.iter().find(|entry| entry.key == key)
}

fn text<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    match &value(node, key)?.value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// The elements of a list of tables.
fn elements<'n>(root: &'n Node, list: &str) -> impl Iterator<Item = &'n Node> {
    let elements = value(root, list).map(|list| &list.value);
    let elements = elements.and_then(|list| if let Value::Array(nodes) = list { Some(nodes) } else { None });
    elements.into_iter().flatten()
}

/// The value of the first of `keys` that a table has, otherwise its beginning.
fn within(table: Option<&Node>, keys: &[&str]) -> Span {
    let Some(table) = table else { return 0..0 };
    keys.iter().find_map(|key| value(table, key)).map_or_else(|| beginning(&table.span), |node| node.span.clone())
}

/// In `[target]`: the value of the first of `keys` that is there.
pub(super) fn of_target(root: &Node, keys: &[&str]) -> Option<Span> {
    let target = value(root, "target")?;
    keys.iter().find_map(|key| value(target, key)).map(|node| node.span.clone())
}

/// In the table of a port.
pub(super) fn of_port(root: &Node, port: &Port, keys: &[&str]) -> Span {
    let is_it = |node: &&Node| match text(node, "name") {
        Some(name) => name == port.name,
        None => text(node, "listen")
            .and_then(|listen| listen.parse::<Listen>().ok())
            .is_some_and(|listen| listen.to_string() == port.name),
    };
    within(elements(root, "ports").find(is_it), keys)
}

/// In the table of an element of `list` with this NQN.
pub(super) fn of_nqn(root: &Node, list: &str, nqn: &str, keys: &[&str]) -> Span {
    within(elements(root, list).find(|node| text(node, "nqn") == Some(nqn)), keys)
}

/// Where a subsystem allows a host.
pub(super) fn of_allowed(root: &Node, subsystem: &str, host: &str) -> Span {
    let subsystem = elements(root, "subsystems").find(|node| text(node, "nqn") == Some(subsystem));
    let hosts = subsystem.into_iter().flat_map(|subsystem| elements(subsystem, "allowed_hosts"));
    let mut hosts = hosts.filter(|node| matches!(&node.value, Value::String(text) if text == host));
    hosts.next().map_or_else(|| within(subsystem, &["allowed_hosts"]), |node| node.span.clone())
}

/// The name of a list that is there and empty.
pub(super) fn of_list(root: &Node, list: &str) -> Span {
    entry(root, list).map_or(0..0, |entry| entry.key_span.clone())
}
