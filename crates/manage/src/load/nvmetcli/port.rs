//! Ports of the Linux target.

use super::{Import, ignore_unknown, loose_boolean, loose_integer, loose_string};
use crate::config::{AnaStates, Port, PortTls, Referral, limits};
use crate::diagnostic::{Collector, Span};
use crate::listen::{DEFAULT_PORT, Listen, Transport, parse_address, parse_port};
use crate::load::read::table::{Table, beginning};
use crate::load::read::tree::Node;
use crate::load::read::values::{self, as_string};

/// What nvmet-tcp takes when the file says -1: four pages (Linux, drivers/nvme/target/tcp.c).
const NVMET_TCP_INLINE_BYTES: u32 = 16384;

/// What nvmet-rdma takes when the file says -1: one page (Linux, drivers/nvme/target/rdma.c).
const NVMET_RDMA_INLINE_BYTES: u32 = 4096;

/// Reads a port; `None` where it is left out or wrong.
pub(super) fn read(import: &mut Import, node: &Node, out: &mut Collector<'_>) -> Option<Port> {
    let mut table = Table::open("a port", node, out)?;
    let id_node = table.required("portid", "1", out);
    let id = id_node.and_then(|node| port_id(node, out));
    let address = table.required("addr", "{ \"trtype\": \"tcp\", \"traddr\": \"127.0.0.1\" }", out);
    let links = table.array("subsystems", out).unwrap_or_default();
    let params = table.node("param");
    let ana_groups = table.array("ana_groups", out).unwrap_or_default();
    let referrals = table.array("referrals", out).unwrap_or_default();
    // Written by nvmetcli where the kernel has it; a port is enabled by having subsystems.
    table.entry("enable");
    ignore_unknown(&table, out);
    let id = id?;
    if let Some(node) = id_node {
        import.known.unique.claim("the port id", &id.to_string(), &node.span, out);
    }
    let name = format!("port-{id}");
    let Address { listen, tls, left_out } = read_address(address?, out)?;
    if left_out {
        import.ports_left_out += 1;
    }
    for link in links {
        if let Some(nqn) = as_string("subsystems", link, out) {
            import.links.push(((!left_out).then(|| name.clone()), nqn.to_owned()));
        }
    }
    if left_out {
        return None;
    }
    if listen.port != 0 {
        let span = beginning(&address?.span);
        import.known.unique.claim("the address", &listen.to_string(), &span, out);
    }
    let in_capsule_data_bytes = match listen.transport {
        Transport::Tcp => NVMET_TCP_INLINE_BYTES,
        // nvmetcli has no direct ports: `read_listen` makes none.
        Transport::Rdma | Transport::VfioUser => NVMET_RDMA_INLINE_BYTES,
    };
    let mut port = Port { name, in_capsule_data_bytes, tls, ..Port::new(id, listen) };
    import.known.ports.push((port.name.clone(), false));
    if let Some(node) = params {
        read_params(node, &mut port, out);
    }
    ana_groups.iter().for_each(|group| read_ana_group(group, &mut port, out));
    port.referrals = referrals.iter().filter_map(|node| read_referral(node, out)).collect();
    Some(port)
}

fn port_id(node: &Node, out: &mut Collector<'_>) -> Option<u16> {
    let number = loose_integer("portid", node, out)?;
    let id = u16::try_from(number).ok();
    if id.is_none() {
        out.error(node.span.clone(), format!("`portid` is {number}"), "accepted: 0 to 65535");
    }
    id
}

/// An address, and what else is said there.
struct Address {
    listen: Listen,
    tls: PortTls,
    /// The port, or the referral, is left out for what it says.
    left_out: bool,
}

fn read_address(node: &Node, out: &mut Collector<'_>) -> Option<Address> {
    let mut table = Table::open("`addr`", node, out)?;
    let transport = table.required("trtype", "\"tcp\"", out);
    let traddr = table.node("traddr");
    let trsvcid = table.node("trsvcid");
    let family = table.node("adrfam");
    let treq = table.node("treq");
    let tsas = table.node("tsas");
    // The kernel shows the number here too; `portid` has it.
    table.entry("portid");
    ignore_unknown(&table, out);
    let transport_node = transport?;
    let transport = loose_string("trtype", transport_node, out)?;
    let transport = match transport.as_str() {
        "tcp" => Transport::Tcp,
        "rdma" => Transport::Rdma,
        "fc" | "loop" | "pci" => {
            let message = format!("this build serves tcp and rdma: the {transport} port is left out");
            out.warning(transport_node.span.clone(), message, "hosts cannot reach its subsystems through it");
            return Some(Address { listen: Listen::loopback(), tls: PortTls::Off, left_out: true });
        }
        _ => {
            let message = format!("`{transport}` is not a transport");
            let accepted = "accepted: \"tcp\" or \"rdma\" (known: fc, loop, pci)";
            out.error(transport_node.span.clone(), message, accepted);
            return None;
        }
    };
    let (tls, left_out) = read_security(transport, treq, tsas, out)?;
    let listen = Listen { transport, ..read_listen(traddr, trsvcid, &table.place(), out)? };
    if let Some(node) = family {
        check_family(node, &listen, out);
    }
    Some(Address { listen, tls, left_out })
}

/// Which TLS an address has (TREQ, SECTYPE), and whether it is one that cannot be served.
fn read_security(
    transport: Transport,
    treq: Option<&Node>,
    tsas: Option<&Node>,
    out: &mut Collector<'_>,
) -> Option<(PortTls, bool)> {
    let word = |key, node: Option<&Node>, out: &mut Collector<'_>| match node {
        Some(node) => loose_string(key, node, out),
        None => Some(String::new()),
    };
    let wanted = word("treq", treq, out)?;
    let kind = word("tsas", tsas, out)?;
    // The kernel demands TLS where it has it, unless it is told that it is not required.
    let tls = match (wanted.as_str(), kind.as_str()) {
        ("not required", "tls1.3") => PortTls::Allowed,
        ("required", _) | (_, "tls1.3" | "tls1.2") => PortTls::Required,
        _ => PortTls::Off,
    };
    let (node, lack) = match (transport, kind.as_str()) {
        (_, "tls1.2") => (tsas, "TLS 1.2, and this build has TLS 1.3"),
        (Transport::Rdma, _) if tls != PortTls::Off => (treq.or(tsas), "a secure channel, and there is none over RDMA"),
        _ => return Some((tls, false)),
    };
    if let Some(node) = node {
        let message = format!("the port wants {lack}: it is left out");
        out.warning(node.span.clone(), message, "it would carry the data in the clear");
    }
    Some((tls, true))
}

fn read_listen(traddr: Option<&Node>, trsvcid: Option<&Node>, span: &Span, out: &mut Collector<'_>) -> Option<Listen> {
    let Some(traddr) = traddr else {
        out.error(span.clone(), "`addr` has no `traddr`", "add \"traddr\": \"127.0.0.1\"");
        return None;
    };
    let text = loose_string("traddr", traddr, out)?;
    let address = match parse_address(&text) {
        Ok(address) => Some(address),
        Err(error) => {
            out.error(traddr.span.clone(), error.to_string(), "accepted: an IP address");
            None
        }
    };
    let service = match trsvcid {
        None => Some(DEFAULT_PORT),
        Some(node) => {
            let text = loose_string("trsvcid", node, out)?;
            match parse_port(&text) {
                Ok(port) => Some(port),
                Err(error) => {
                    out.error(node.span.clone(), error.to_string(), error.advice());
                    None
                }
            }
        }
    };
    let ((address, interface), port) = address.zip(service)?;
    Some(Listen { interface, ..Listen::new(address, port) })
}

fn check_family(node: &Node, listen: &Listen, out: &mut Collector<'_>) {
    let Some(family) = loose_string("adrfam", node, out) else { return };
    let real = if listen.address.is_ipv4() { "ipv4" } else { "ipv6" };
    if family != real && !family.is_empty() {
        let message = format!("`adrfam` is \"{family}\", and {} is {real}", listen.address);
        out.error(node.span.clone(), message, format!("write \"{real}\""));
    }
}

fn read_params(node: &Node, port: &mut Port, out: &mut Collector<'_>) {
    let Some(mut table) = Table::open("`param`", node, out) else { return };
    let given = |key, node: Option<&Node>, out: &mut Collector<'_>| {
        let node = node?;
        // -1 is the kernel's "not set".
        let number = loose_integer(key, node, out).filter(|number| *number != -1)?;
        Some((number, node.span.clone()))
    };
    let inline = table.node("inline_data_size");
    if let Some((number, span)) = given("inline_data_size", inline, out) {
        let range = &limits::IN_CAPSULE_DATA_BYTES;
        let legal = u64::try_from(number).ok().filter(|bytes| range.contains(bytes) && bytes % 16 == 0);
        match legal.and_then(|bytes| u32::try_from(bytes).ok()) {
            Some(bytes) => port.in_capsule_data_bytes = bytes,
            None => {
                let help = format!("accepted: 0 to {}, a multiple of 16", range.end());
                out.error(span, format!("`inline_data_size` is {number}"), help);
            }
        }
    }
    let queue_size = table.node("max_queue_size");
    if let Some((number, span)) = given("max_queue_size", queue_size, out) {
        let range = &limits::QUEUE_SIZE;
        let legal = u64::try_from(number).ok().filter(|entries| range.contains(entries));
        match legal.and_then(|entries| u16::try_from(entries).ok()) {
            Some(entries) => port.max_queue_size = entries,
            None => {
                let help = format!("accepted: {} to {}", range.start(), range.end());
                out.error(span, format!("`max_queue_size` is {number}"), help);
            }
        }
    }
    if let Some(node) = table.node("pi_enable")
        && loose_boolean("pi_enable", node, out) == Some(true)
    {
        out.warning(node.span.clone(), "protection information is not served: `pi_enable` has no effect", "");
    }
    let mdts = table.node("mdts");
    if let Some((1.., span)) = given("mdts", mdts, out) {
        out.note(span, "`mdts` has no effect: ebof announces what it takes", "");
    }
    ignore_unknown(&table, out);
}

/// A referral: an address like a port's. One that is not enabled, or that nobody can be referred
/// to, is left out with a remark.
fn read_referral(node: &Node, out: &mut Collector<'_>) -> Option<Referral> {
    let mut table = Table::open("a referral", node, out)?;
    table.entry("name");
    table.entry("portid");
    let enabled = table.node("enable").map(|node| loose_boolean("enable", node, out));
    let address =
        table.required("addr", "{ \"trtype\": \"tcp\", \"traddr\": \"192.0.2.2\", \"trsvcid\": \"8009\" }", out);
    ignore_unknown(&table, out);
    let span = beginning(&address?.span);
    let Address { listen, tls, left_out } = read_address(address?, out)?;
    if left_out {
        return None;
    }
    if enabled == Some(Some(false)) {
        out.warning(span, "the referral is not enabled: it is left out", "");
        return None;
    }
    match Referral::address(&listen.to_string()) {
        Ok(address) => Some(Referral { address, tls }),
        Err(error) => {
            out.warning(span, format!("{error}: the referral is left out"), error.advice());
            None
        }
    }
}

fn read_ana_group(node: &Node, port: &mut Port, out: &mut Collector<'_>) {
    let Some(mut table) = Table::open("an ANA group", node, out) else { return };
    let group = table.node("grpid").and_then(|node| group_id(node, out));
    let Some(ana) = table.node("ana") else { return };
    ignore_unknown(&table, out);
    let Some(mut table) = Table::open("`ana`", ana, out) else { return };
    let Some(state) = table.node("state") else { return };
    let chosen = values::choice("state", state, &AnaStates::NAMES, out);
    if let (Some(group), Some(state)) = (group, chosen.and_then(AnaStates::named)) {
        port.ana.set(group, state);
    }
    ignore_unknown(&table, out);
}

fn group_id(node: &Node, out: &mut Collector<'_>) -> Option<u32> {
    let number = loose_integer("grpid", node, out)?;
    let group = u32::try_from(number).ok().filter(|group| (1..=limits::ANA_GROUP_MAX).contains(group));
    if group.is_none() {
        let help = format!("accepted: 1 to {}", limits::ANA_GROUP_MAX);
        out.error(node.span.clone(), format!("`grpid` is {number}"), help);
    }
    group
}
