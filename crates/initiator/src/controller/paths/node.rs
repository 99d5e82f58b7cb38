//! On which NUMA node a path leaves the machine, and on which a thread runs.

use std::cell::Cell;
use std::net::IpAddr;
use std::path::Path;

/// After how many calls a thread looks at its node again.
const CALLS: u32 = 1024;

/// The node of the network interface that has the route to `peer`; `None` for the loopback
/// interface, for virtual ones, and where it cannot be told.
pub(super) fn of_address(peer: IpAddr) -> Option<u32> {
    if peer.is_loopback() || peer.is_unspecified() {
        return None;
    }
    // Connecting a datagram socket sends nothing: the kernel chooses the route and the address.
    let socket = std::net::UdpSocket::bind(if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).ok()?;
    socket.connect((peer, 9)).ok()?;
    let local = socket.local_addr().ok()?.ip();
    of_interface(Path::new("/sys/class/net"), &interface_of(local)?)
}

/// The interface with this address.
fn interface_of(local: IpAddr) -> Option<String> {
    let IpAddr::V4(local) = local else { return interface_of_v6(local) };
    // The table of routes names the interface of the network that the address is in.
    let table = std::fs::read_to_string("/proc/net/route").ok()?;
    let local = u32::from_ne_bytes(local.octets());
    let networks = table.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, network) = (words.next()?, u32::from_str_radix(words.next()?, 16).ok()?);
        let mask = u32::from_str_radix(words.nth(5)?, 16).ok()?;
        (mask != 0 && local & mask == network).then(|| (mask.count_ones(), name.to_owned()))
    });
    networks.max_by_key(|(bits, _)| *bits).map(|(_, name)| name)
}

fn interface_of_v6(local: IpAddr) -> Option<String> {
    let IpAddr::V6(local) = local else { return None };
    let wanted: String = local.octets().iter().map(|byte| format!("{byte:02x}")).collect();
    let table = std::fs::read_to_string("/proc/net/if_inet6").ok()?;
    let line = table.lines().find(|line| line.starts_with(&wanted))?;
    line.split_whitespace().nth(5).map(str::to_owned)
}

fn of_interface(class: &Path, name: &str) -> Option<u32> {
    let node = std::fs::read_to_string(class.join(name).join("device/numa_node")).ok()?;
    // -1: the machine has one node, or the firmware does not say.
    node.trim().parse::<i64>().ok().and_then(|node| u32::try_from(node).ok())
}

/// The node whose processor this thread runs on.
pub(super) fn of_thread() -> Option<u32> {
    let processor = rustix::thread::sched_getcpu();
    let nodes = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{processor}")).ok()?;
    nodes.filter_map(Result::ok).find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
}

/// As [`of_thread`], as it was within the last calls of this thread: for those that ask often.
pub(super) fn of_thread_lately() -> Option<u32> {
    thread_local! {
        static LAST: Cell<(u32, Option<u32>)> = const { Cell::new((0, None)) };
    }
    LAST.with(|last| {
        let (calls, node) = last.get();
        let node = if calls.is_multiple_of(CALLS) { of_thread() } else { node };
        last.set((calls.wrapping_add(1), node));
        node
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_of_an_interface_is_read_where_there_is_one() {
        let class = tempfile::tempdir().unwrap();
        let device = |name: &str, node: Option<&str>| {
            let directory = class.path().join(name).join("device");
            std::fs::create_dir_all(&directory).unwrap();
            node.into_iter().for_each(|node| std::fs::write(directory.join("numa_node"), node).unwrap());
        };
        device("ens1", Some("1\n"));
        device("ens2", Some("-1\n"));
        device("veth0", None);
        let nodes = ["ens1", "ens2", "veth0", "none"].map(|name| of_interface(class.path(), name));
        assert_eq!(nodes, [Some(1), None, None, None]);
        assert_eq!(of_address("127.0.0.1".parse().unwrap()), None);
    }
}
