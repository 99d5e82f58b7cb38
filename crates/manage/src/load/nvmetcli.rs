//! The JSON that `nvmetcli save` writes: the state of the Linux kernel's target.
//!
//! Owns the mapping of its keys; `docs/config.md` has the table. What is understood and has no
//! counterpart here is a warning or a note, and never silently served with less protection than the
//! file asks for: a port that requires a secure channel which there is not, and a host that must
//! authenticate, whose key has no place in a configuration, are left out. nvmetcli writes most
//! values as strings; numbers and booleans are taken as well, as people edit such files.

use std::collections::HashSet;

use crate::config::{Config, limits};
use crate::diagnostic::Collector;
use crate::load::read::native::Known;
use crate::load::read::table::{Table, beginning};
use crate::load::read::tree::{Node, Value};
use crate::load::read::values::{self, as_string};

mod port;
mod subsystem;

/// Whether a JSON text has the Linux target's keys and not ebof's own. The default is yes.
pub(crate) fn looks_like(root: &Node) -> bool {
    let any = |list: &str, test: &dyn Fn(&Node) -> bool| {
        root.entry(list).is_some_and(|entry| entry.node.elements().iter().any(test))
    };
    let own_namespace = |node: &Node| node.entry("drive").is_some() || matches!(node.value, Value::String(_));
    let own_subsystem = |node: &Node| {
        ["serial", "model", "firmware", "allow_any_host", "ports", "drive"].iter().any(|key| node.entry(key).is_some())
            || node.entry("namespaces").is_some_and(|entry| entry.node.elements().iter().any(own_namespace))
    };
    let own = root.entry("target").is_some()
        || root.entry("drives").is_some()
        || any("ports", &|port| port.entry("listen").is_some())
        || any("subsystems", &own_subsystem);
    !own
}

/// State that the readers of the file share.
struct Import {
    known: Known,
    /// The subsystems of ports: the port's name, if it is served, and the NQN.
    links: Vec<(Option<String>, String)>,
    /// Hosts that must authenticate.
    authenticated: HashSet<String>,
    ports_left_out: usize,
}

/// Reads a whole file.
pub(crate) fn read(root: &Node, out: &mut Collector<'_>) -> Config {
    let mut config = Config::default();
    let Some(mut table) = Table::open("an nvmetcli configuration", root, out) else { return config };
    let mut import =
        Import { known: Known::default(), links: Vec::new(), authenticated: HashSet::new(), ports_left_out: 0 };
    let hosts = table.bounded("hosts", limits::HOSTS_MAX, out).unwrap_or_default();
    config.hosts = hosts.iter().filter_map(|node| import.host(node, out)).collect();
    let ports = table.bounded("ports", limits::PORTS_MAX, out).unwrap_or_default();
    config.ports = ports.iter().filter_map(|node| port::read(&mut import, node, out)).collect();
    let subsystems = table.bounded("subsystems", limits::SUBSYSTEMS_MAX, out).unwrap_or_default();
    config.subsystems = subsystems.iter().filter_map(|node| subsystem::read(&mut import, node, out)).collect();
    ignore_unknown(&table, out);
    if config.ports.is_empty() && !out.has_errors() {
        let message = match import.ports_left_out {
            0 => "the file describes no port".to_owned(),
            _ => "no port is left that this build can serve".to_owned(),
        };
        let span = ports.first().map_or_else(|| table.place(), |node| beginning(&node.span));
        out.error(span, message, "accepted: at least one port with \"trtype\": \"tcp\"");
    }
    config
}

/// Notes that unknown keys, which newer kernels and other tools add, have no effect.
fn ignore_unknown(table: &Table<'_>, out: &mut Collector<'_>) {
    for (entry, message, help) in table.unknown() {
        out.warning(entry.key_span.clone(), format!("{message}: it has no effect"), help);
    }
}

impl Import {
    fn host(&mut self, node: &Node, out: &mut Collector<'_>) -> Option<crate::config::Host> {
        let mut table = Table::open("a host", node, out)?;
        let named = table.required("nqn", "\"nqn.2014-08.org.nvmexpress:uuid:...\"", out)?;
        let text = as_string("nqn", named, out)?;
        let mut secret = None;
        for key in ["dhchap_key", "dhchap_ctrl_key", "dhchap_hash", "dhchap_dhgroup", "attr", "dhchap"] {
            secret = secret.or(table.entry(key).filter(|entry| names_a_secret(entry.key.as_str(), &entry.node)));
        }
        ignore_unknown(&table, out);
        self.known.hosts.insert(text.to_owned());
        let nqn = values::check_nqn(text, &named.span, out)?;
        self.known.unique.claim("the host NQN", text, &named.span, out);
        if let Some(entry) = secret {
            let message = "this host must authenticate, and its key has to be in a file of its own: it is left out";
            let help = "write the key into a file that nobody else may read, and add a host with dhchap_key = { file = \"...\" } \
                        to the configuration; or remove its keys here, to let it connect without them";
            out.warning(entry.key_span.clone(), message, help);
            self.authenticated.insert(text.to_owned());
            return None;
        }
        Some(crate::config::Host::new(nqn))
    }
}

/// Whether an entry of a host holds a key; a hash or a group alone does not make it authenticate.
fn names_a_secret(key: &str, node: &Node) -> bool {
    match &node.value {
        Value::Table(entries) => entries.iter().any(|entry| names_a_secret(&entry.key, &entry.node)),
        Value::String(text) => key.ends_with("key") && !text.trim().is_empty(),
        _ => false,
    }
}

/// A number, possibly in a string; `None`, with an error, if it is not a number.
fn loose_integer(key: &str, node: &Node, out: &mut Collector<'_>) -> Option<i64> {
    let number = match &node.value {
        Value::Integer(number) => Some(*number),
        Value::Boolean(truth) => Some(i64::from(*truth)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    if number.is_none() {
        let shown = match &node.value {
            Value::String(text) => format!("\"{}\"", text.chars().take(40).collect::<String>()),
            other => other.kind().to_owned(),
        };
        out.error(node.span.clone(), format!("`{key}` is {shown}"), "accepted: an integer, also as a string");
    }
    number
}

/// A boolean as the kernel writes it: `1` or `0`, as string or number.
fn loose_boolean(key: &str, node: &Node, out: &mut Collector<'_>) -> Option<bool> {
    let truth = match &node.value {
        Value::Boolean(truth) => Some(*truth),
        Value::Integer(0) => Some(false),
        Value::Integer(1) => Some(true),
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "1" | "y" | "yes" | "true" | "on" => Some(true),
            "0" | "n" | "no" | "false" | "off" => Some(false),
            _ => None,
        },
        _ => None,
    };
    if truth.is_none() {
        out.error(node.span.clone(), format!("`{key}` is neither true nor false"), "accepted: \"1\" or \"0\"");
    }
    truth
}

/// A text that may be written as a number (`"trsvcid": 4420`).
fn loose_string(key: &str, node: &Node, out: &mut Collector<'_>) -> Option<String> {
    match &node.value {
        Value::Integer(number) => Some(number.to_string()),
        _ => as_string(key, node, out).map(|text| text.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests;
