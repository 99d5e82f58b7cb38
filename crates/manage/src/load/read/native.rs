//! ebof's own keys.
//!
//! Order matters: ports, hosts and drives are read before the subsystems that refer to them.

use ebof_grammar::keys::is_key;

use crate::config::{AnaStates, Assigned, Config, Host, KeyPlace, Port, PortTls, Referral, TargetOptions, limits};
use crate::diagnostic::Collector;
use crate::listen::{Listen, Transport};
use crate::load::read::table::Table;
use crate::load::read::tree::{KeyEntry, Node, Value};
use crate::load::read::values::{self, as_string, mismatch};

mod backing;
mod drive;
mod known;
mod places;
mod protection;
mod subsystem;

pub(crate) use known::Known;
pub use protection::{KeyFinding, LookAtKey};
pub(crate) use protection::{look_at_keys, remark_on_proofs};

/// Reads a whole configuration.
pub(crate) fn read(root: &Node, out: &mut Collector<'_>) -> Config {
    let mut config = Config::default();
    refuse_keys("", root, out);
    let Some(mut table) = Table::open("a configuration", root, out) else { return config };
    let mut known = Known::default();
    if let Some(node) = table.node("target") {
        config.target = read_target(node, out);
    }
    config.ports = read_ports(&mut table, &mut known, out);
    if let Some(nodes) = table.bounded("hosts", limits::HOSTS_MAX, out) {
        config.hosts = nodes.iter().filter_map(|node| read_host(node, &mut known, out)).collect();
    }
    if let Some(nodes) = table.bounded("drives", limits::DRIVES_MAX, out) {
        config.drives = nodes.iter().filter_map(|node| drive::read(node, &mut known, out)).collect();
    }
    if let Some(nodes) = table.bounded("subsystems", limits::SUBSYSTEMS_MAX, out) {
        let subsystems = nodes.iter().filter_map(|node| subsystem::read(node, &mut known, out));
        config.subsystems = subsystems.collect();
    }
    table.finish(out);
    known.remark_on_drives(&config, out);
    known.remark_on_direct_ports(root, &config, out);
    protection::remark_on_tls(root, &config, out);
    if config.subsystems.is_empty() && !out.has_errors() {
        out.warning(
            places::of_list(root, "subsystems"),
            "the configuration describes no subsystem",
            "hosts can discover and find nothing",
        );
    }
    config
}

/// Reports keys themselves, wherever they are: a configuration is shown, compared and kept. `key`
/// is what has the value.
fn refuse_keys(key: &str, node: &Node, out: &mut Collector<'_>) {
    match &node.value {
        Value::String(text) if is_key(text) => {
            let message = format!("`{key}` is a key itself, and others see what is in a configuration");
            out.error(node.span.clone(), message, KEY_HELP);
        }
        Value::Array(elements) => elements.iter().for_each(|element| refuse_keys(key, element, out)),
        Value::Table(entries) => {
            for KeyEntry { key, key_span, node } in entries {
                if is_key(key) {
                    let message = "a key itself is the name of a value, and others see what is in a configuration";
                    out.error(key_span.clone(), message, KEY_HELP);
                }
                refuse_keys(key, node, out);
            }
        }
        _ => {}
    }
}

fn read_target(node: &Node, out: &mut Collector<'_>) -> TargetOptions {
    let mut options = TargetOptions::default();
    let Some(table) = Table::open("[target]", node, out) else { return options };
    let mut table = table.with(TargetOptions::KEYS);
    table.take(TargetOptions::KEYS, &mut options, out);
    let paths = table.bounded("confine_paths", limits::CONFINE_PATHS_MAX, out).unwrap_or_default();
    for node in paths {
        let Some(path) = values::as_string("confine_paths", node, out) else { continue };
        if path.is_empty() || path.contains('\0') {
            out.error(node.span.clone(), "the path is empty, or has a NUL", "accepted: a path");
        } else {
            options.confine_paths.push(path.to_owned());
        }
    }
    table.finish(out);
    options
}

fn read_ports(table: &mut Table<'_>, known: &mut Known, out: &mut Collector<'_>) -> Vec<Port> {
    let Some(nodes) = table.bounded("ports", limits::PORTS_MAX, out) else {
        // The default serves this machine only.
        let port = Port::new(1, Listen::loopback());
        known.ports.push((port.name.clone(), false));
        return vec![port];
    };
    let mut read: Vec<(Port, bool)> = nodes.iter().filter_map(|node| read_port(node, known, out)).collect();
    if nodes.is_empty() {
        let help = "leave out `ports` to listen on tcp://127.0.0.1:4420";
        out.warning(table.place(), "the configuration describes no port: no host can connect", help);
    }
    // Ports without an id get the lowest unused ones, in order.
    let mut taken: Vec<u16> = read.iter().filter(|(_, given)| *given).map(|(port, _)| port.id).collect();
    for (port, _) in read.iter_mut().filter(|(_, given)| !given) {
        port.assigned = Assigned(true);
        port.id = (1..=u16::MAX).find(|id| !taken.contains(id)).unwrap_or_default();
        taken.push(port.id);
    }
    read.into_iter().map(|(port, _)| port).collect()
}

/// A port, and whether its id is set.
fn read_port(node: &Node, known: &mut Known, out: &mut Collector<'_>) -> Option<(Port, bool)> {
    let mut table = Table::open("a port", node, out)?.with(Port::KEYS);
    let listen = table.required("listen", "\"tcp://127.0.0.1:4420\"", out);
    let listen_text = listen.and_then(|node| as_string("listen", node, out));
    let listen_span = listen.map_or(table.place(), |node| node.span.clone());
    let parsed = listen_text.and_then(|text| match text.parse::<Listen>() {
        Ok(listen) => Some(listen),
        Err(error) => {
            out.error(listen_span.clone(), error.to_string(), error.advice());
            None
        }
    });
    // A port with a mistake is read to its end all the same: its other mistakes are reported, and
    // its name is known.
    let mut port = Port::new(0, parsed.clone().unwrap_or_else(Listen::loopback));
    let id = table.integer("id", &Port::ID, out);
    if let Some((id, entry)) = id.zip(table.entry("id")) {
        port.id = id;
        known.unique.claim("the port id", &id.to_string(), &entry.node.span, out);
    }
    let mut name_span = listen_span.clone();
    if let Some((text, span)) = table.string("name", out) {
        port.name = values::printable("name", text, limits::PORT_NAME_CHARS_MAX, &span, out).unwrap_or(text.into());
        name_span = span;
    }
    table.take(Port::KEYS, &mut port, out);
    read_ana(&mut table, &mut port, out);
    read_referrals(&mut table, &mut port, out);
    for key in port.misplaced_keys() {
        if let Some(entry) = table.entry(key) {
            let this = port.listen.transport;
            let meant = match (key, this) {
                ("host", _) => Transport::VfioUser,
                ("srq_size", _) => Transport::Rdma,
                _ => Transport::Tcp,
            };
            let message = format!("`{key}` is for ports over {}, and this one is over {}", meant.name(), this.name());
            out.error(entry.key_span.clone(), message, "leave it out");
        }
    }
    table.finish(out);
    // The same address twice would fail at bind(2); port 0 is a different one each time.
    if let Some(listen) = parsed.as_ref().filter(|listen| listen.is_fixed()) {
        known.unique.claim("the address", &listen.to_string(), &listen_span, out);
    }
    if listen_text.is_some() {
        let anonymous = port.name == port.listen.to_string();
        if !anonymous || !port.listen.is_fixed() {
            known.unique.claim("the port name", &port.name, &name_span, out);
        }
        known.ports.push((port.name.clone(), port.discovery_only));
        if !port.listen.is_network() {
            known.direct.insert(port.name.clone(), None);
        }
    }
    parsed.map(|_| (port, id.is_some()))
}

/// The discovery controllers that a port refers to.
fn read_referrals(table: &mut Table<'_>, port: &mut Port, out: &mut Collector<'_>) {
    for node in table.bounded("referrals", limits::REFERRALS_MAX, out).unwrap_or_default() {
        let Some(referral) = read_referral(node, out) else { continue };
        if port.referrals.iter().any(|other| other.address == referral.address) {
            out.error(node.span.clone(), "the referral is there twice", "write it once");
            continue;
        }
        if referral.address == port.listen {
            let message = "the port refers hosts to itself";
            out.warning(node.span.clone(), message, "hosts have asked there: leave it out");
        }
        port.referrals.push(referral);
    }
}

fn read_referral(node: &Node, out: &mut Collector<'_>) -> Option<Referral> {
    let mut tls = PortTls::Off;
    let address = match &node.value {
        Value::Table(_) => {
            let mut table = Table::open("a referral", node, out)?;
            let address = table.required("address", "\"tcp://192.0.2.2:8009\"", out);
            if let Some(node) = table.node("tls") {
                tls = values::choice("tls", node, PortTls::NAMES, out).map(PortTls::named)?;
            }
            table.finish(out);
            address?
        }
        _ => node,
    };
    let text = as_string("referrals", address, out)?;
    match Referral::address(text) {
        Ok(address) => Some(Referral { address, tls }),
        Err(error) => {
            out.error(address.span.clone(), error.to_string(), error.advice());
            None
        }
    }
}

/// The states of ANA groups at a port.
fn read_ana(table: &mut Table<'_>, port: &mut Port, out: &mut Collector<'_>) {
    let Some(node) = table.node("ana") else { return };
    let Value::Table(entries) = &node.value else {
        mismatch("ana", node, "a table of states by ANA group, such as { 2 = \"non-optimized\" }", out);
        return;
    };
    // No more than there are groups: a number is named once.
    for entry in entries {
        let number = entry.key.parse().ok().filter(|group| (1..=limits::ANA_GROUP_MAX).contains(group));
        let Some(group) = number.filter(|group| group.to_string() == entry.key) else {
            let message = format!("`{}` is not an ANA group", entry.key.escape_debug());
            out.error(entry.key_span.clone(), message, format!("accepted: 1 to {}", limits::ANA_GROUP_MAX));
            continue;
        };
        let chosen = values::choice("the state", &entry.node, &AnaStates::NAMES, out);
        chosen.and_then(AnaStates::named).into_iter().for_each(|state| port.ana.set(group, state));
    }
}

fn read_host(node: &Node, known: &mut Known, out: &mut Collector<'_>) -> Option<Host> {
    let mut table = Table::open("a host", node, out)?.with(Host::KEYS);
    let named = table.required("nqn", "\"nqn.2014-08.org.nvmexpress:uuid:...\"", out);
    let nqn = named.and_then(|node| values::nqn("nqn", node, out));
    let dhchap_key = table.entry("dhchap_key").and_then(|entry| read_key_place(entry, out));
    let dhchap_ctrl_key = table.entry("dhchap_ctrl_key").and_then(|entry| read_key_place(entry, out));
    let tls_psk = table.entry("tls_psk").and_then(|entry| read_key_place(entry, out));
    table.finish(out);
    if let (Some(_), None, Some(entry)) = (&dhchap_ctrl_key, &dhchap_key, table.entry("dhchap_ctrl_key")) {
        let message = "`dhchap_ctrl_key` without `dhchap_key`: only a host that proves who it is can ask for a proof";
        out.error(entry.key_span.clone(), message, "add `dhchap_key`, or leave it out");
    }
    if let (Some(node), Some(nqn)) = (named, &nqn) {
        known.unique.claim("the host NQN", nqn.as_str(), &node.span, out);
    }
    if let Some(Value::String(text)) = named.map(|node| &node.value) {
        known.hosts.insert(text.clone());
    }
    nqn.map(|nqn| Host { nqn, dhchap_key, dhchap_ctrl_key, tls_psk })
}

/// What to do with a key that somebody wrote into a configuration.
const KEY_HELP: &str = "put it into a file that nobody else may read (`chmod 600`), and say where that is, such as \
                        dhchap_key = { file = \"/etc/ebof/keys/NAME\" }; if others may have read it here, make a new one";

/// Where a key is; a key itself has no place in a configuration, which is shown, compared and kept.
fn read_key_place(entry: &KeyEntry, out: &mut Collector<'_>) -> Option<KeyPlace> {
    const HELP: &str =
        "accepted: { file = \"/etc/ebof/keys/NAME\" }, { credential = \"NAME\" } or { keyring = \"NAME\" }";
    let span = entry.node.span.clone();
    let Value::Table(entries) = &entry.node.value else {
        if let Value::String(text) = &entry.node.value {
            // Without its quotes. It may be a key without its beginning.
            out.hide(span.start + 1..span.end.saturating_sub(1));
            if is_key(text) {
                return None;
            }
        }
        let message = format!("`{}` says where the key is, not which: this is {}", entry.key, entry.node.value.kind());
        out.error(span, message, HELP);
        return None;
    };
    let [place] = &entries[..] else {
        // Other names may be keys themselves.
        let is_there = |name: &str| entries.iter().any(|entry| entry.key == name);
        let places: Vec<_> =
            KeyPlace::NAMES.into_iter().filter(|name| is_there(name)).map(|name| format!("`{name}`")).collect();
        let message = match places.len() {
            0 => format!("`{}` does not say where the key is", entry.key),
            count if count == entries.len() => {
                format!("`{}` says that the key is at {count} places: {}", entry.key, places.join(" and "))
            }
            _ => format!("`{}` has more than a place in it: {}", entry.key, places.join(" and ")),
        };
        out.error(span, message, HELP);
        return None;
    };
    let text = as_string(&place.key, &place.node, out)?;
    if is_key(text) {
        return None;
    }
    let found = KeyPlace::named(&place.key, text);
    let is_legal = match &found {
        Some(KeyPlace::File(path)) => !path.is_empty(),
        // A name of a file in one directory.
        Some(KeyPlace::Credential(name)) => !name.is_empty() && !name.contains('/') && !name.starts_with('.'),
        Some(KeyPlace::Keyring(name)) => !name.is_empty(),
        None => false,
    };
    if !is_legal {
        out.error(place.node.span.clone(), format!("`{}` of `{}` is no place of a key", place.key, entry.key), HELP);
    }
    found.filter(|_| is_legal)
}
