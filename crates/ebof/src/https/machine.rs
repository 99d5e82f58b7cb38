//! What the system says of the machine: network interfaces with their addresses, processors,
//! memory. What it does not say is absent.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ebof_redfish::{MachineSize, NetworkInterface};

/// The most interfaces that are looked at.
const INTERFACES_MAX: usize = 1024;

/// `ARPHRD_ETHER` and `ARPHRD_INFINIBAND`: interfaces with a network behind them.
const NETWORKS: [u32; 2] = [1, 32];

/// The flag of an interface that is in use.
const IFF_UP: u32 = 1;

/// The interfaces below a root that have a network behind them, by name.
pub(super) fn interfaces(root: &Path) -> Vec<NetworkInterface> {
    let class = root.join("sys/class/net");
    let Ok(entries) = fs::read_dir(&class) else { return Vec::new() };
    let names = entries.take(INTERFACES_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: BTreeSet<String> = names.collect();
    let routes = routes(&text(&root.join("proc/net/route")));
    let local = local_addresses(&text(&root.join("proc/net/fib_trie")));
    let ipv6 = text(&root.join("proc/net/if_inet6"));
    let mut all: Vec<NetworkInterface> =
        names.into_iter().filter_map(|name| interface(&class.join(&name), name)).collect();
    for address in local {
        // The system lists addresses without interfaces: that of the narrowest network has it.
        let of = routes.iter().filter(|route| route.has(address)).max_by_key(|route| route.prefix);
        if let Some(route) = of
            && let Some(interface) = all.iter_mut().find(|interface| interface.name == route.interface)
        {
            interface.ipv4.push((address, route.prefix));
        }
    }
    for (name, address, prefix) in ipv6.lines().filter_map(ipv6_address) {
        if let Some(interface) = all.iter_mut().find(|interface| interface.name == name) {
            interface.ipv6.push((address, prefix));
        }
    }
    all
}

/// Processors and memory.
pub(super) fn size(root: &Path) -> MachineSize {
    let processors = std::thread::available_parallelism().ok().and_then(|count| u32::try_from(count.get()).ok());
    let memory = text(&root.join("proc/meminfo"));
    let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    MachineSize { processors, memory_bytes: kib.and_then(|kib: u64| kib.checked_mul(1024)) }
}

fn interface(directory: &Path, name: String) -> Option<NetworkInterface> {
    let read = |file: &str| text(&directory.join(file)).trim().to_owned();
    let kind: u32 = read("type").parse().ok()?;
    if !NETWORKS.contains(&kind) {
        return None;
    }
    let flags = u32::from_str_radix(read("flags").trim_start_matches("0x"), 16).unwrap_or(0);
    Some(NetworkInterface {
        name,
        mac: Some(read("address")).filter(|mac| mac.len() == 17),
        is_up: flags & IFF_UP != 0,
        has_link: read("carrier") == "1",
        // -1 where there is no link, or none that has a speed.
        speed_mbps: read("speed").parse().ok().filter(|speed| *speed > 0),
        full_duplex: match read("duplex").as_str() {
            "full" => Some(true),
            "half" => Some(false),
            _ => None,
        },
        mtu: read("mtu").parse().ok(),
        ipv4: Vec::new(),
        ipv6: Vec::new(),
    })
}

/// A network that an interface leads to directly.
struct Route {
    interface: String,
    network: u32,
    prefix: u8,
}

impl Route {
    fn has(&self, address: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
        u32::from(address) & mask == self.network
    }
}

/// `eth0  000200C0  00000000  0001  0  0  0  00FFFFFF ...`: numbers as the processor has them.
fn routes(table: &str) -> Vec<Route> {
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [interface, network, gateway, .., mask, _mtu, _window, _irtt] = fields.as_slice() else { return None };
        let number =
            |digits: &str| u32::from_str_radix(digits, 16).ok().map(|number| u32::from_be_bytes(number.to_ne_bytes()));
        let mask = number(mask)?;
        let prefix = u8::try_from(mask.leading_ones()).ok()?;
        let is_direct = number(gateway)? == 0 && prefix > 0;
        let network = number(network)?;
        is_direct.then(|| Route { interface: (*interface).to_owned(), network, prefix })
    };
    table.lines().skip(1).filter_map(route).collect()
}

/// The addresses of the machine itself, in order: `|-- 192.0.2.1` before `/32 host LOCAL`.
fn local_addresses(trie: &str) -> BTreeSet<Ipv4Addr> {
    let mut found = BTreeSet::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in trie.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL") {
            found.extend(last.filter(|address| !address.is_loopback()));
        }
    }
    found
}

/// `fe800000000000000000000000000001 02 40 20 80 eth0`
fn ipv6_address(line: &str) -> Option<(&str, Ipv6Addr, u8)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [address, _index, prefix, _scope, _flags, name] = fields.as_slice() else { return None };
    let address = u128::from_str_radix(address, 16).ok().filter(|_| address.len() == 32)?;
    Some((*name, Ipv6Addr::from(address), u8::from_str_radix(prefix, 16).ok()?))
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    // @test redfish.systems
    #[test]
    fn interfaces_have_the_addresses_of_their_networks() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (name, kind, flags) in [("eth1", "1", "0x1003"), ("eth0", "1", "0x1002"), ("lo", "772", "0x9")] {
            write(&format!("sys/class/net/{name}/type"), kind);
            write(&format!("sys/class/net/{name}/flags"), flags);
            write(&format!("sys/class/net/{name}/address"), "02:00:00:00:00:01\n");
            write(&format!("sys/class/net/{name}/mtu"), "9000\n");
        }
        write("sys/class/net/eth1/carrier", "1\n");
        write("sys/class/net/eth1/speed", "100000\n");
        write("sys/class/net/eth0/speed", "-1\n");
        write("sys/class/net/eth1/duplex", "full\n");
        write(
            "proc/net/route",
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
             eth1\t00000000\tFE0200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
             eth1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
             eth0\t000000C0\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n",
        );
        write(
            "proc/net/fib_trie",
            "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 192.0.2.0\n        /24 link \
             UNICAST\n     |-- 192.0.2.1\n        /32 host LOCAL\n     |-- 192.0.7.7\n        /32 host LOCAL\n",
        );
        write("proc/net/if_inet6", "fe800000000000000000000000000001 02 40 20 80     eth1\n");
        let all = interfaces(root.path());
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["eth0", "eth1"], "a loop has no network");
        assert_eq!(all[1].ipv4, [("192.0.2.1".parse().unwrap(), 24)]);
        assert_eq!(all[0].ipv4, [("192.0.7.7".parse().unwrap(), 16)]);
        assert_eq!(all[1].ipv6, [("fe80::1".parse().unwrap(), 64)]);
        assert_eq!((all[1].speed_mbps, all[0].speed_mbps, all[1].full_duplex), (Some(100_000), None, Some(true)));
        assert_eq!((all[1].is_up, all[1].has_link, all[0].is_up, all[0].has_link), (true, true, false, false));
        assert!(interfaces(Path::new("/nowhere")).is_empty());
    }
}
