//! RDMA devices as the kernel's sysfs describes them: also on a machine without rdma-core, and for
//! users who may not open a device.
//!
//! Reads only. What cannot be read is left out.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Where the kernel lists RDMA devices.
const CLASS: &str = "sys/class/infiniband";
/// The kernel's type of node for iWARP adapters; RoCE's is `CA`.
const RNIC: &str = "RNIC";
/// Entries of a GID table that are read; adapters have 16 to 256.
const GIDS_MAX: u32 = 1024;
/// Ports of a device that are read.
const PORTS_MAX: usize = 64;

/// An RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysDevice {
    /// Its name, such as `mlx5_0` or `rxe0`.
    pub name: String,
    /// Whether it is an iWARP adapter, whose connections are TCP's: they need no GIDs.
    pub is_iwarp: bool,
    /// Its ports, by number.
    pub ports: Vec<SysPort>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysPort {
    /// Its number, from 1 on.
    pub number: u8,
    /// Its logical state in the kernel's words, such as `ACTIVE`.
    pub state: String,
    /// Its physical state, such as `LinkUp`.
    pub physical_state: String,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: String,
    /// Its rate, such as `25 Gb/sec (1X EDR)`.
    pub rate: String,
    /// The network interfaces that its GIDs belong to.
    pub interfaces: Vec<String>,
    /// The entries of its GID table that are set.
    pub gids: Vec<SysGid>,
}

/// An entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysGid {
    /// Its index.
    pub index: u32,
    /// The GID; with RoCE an IP address, IPv4 as `::ffff:a.b.c.d`.
    pub gid: Ipv6Addr,
    /// Its type in the kernel's words: `IB/RoCE v1` or `RoCE v2`; empty where the device has no
    /// types (iWARP).
    pub kind: String,
    /// The network interface that it belongs to.
    pub interface: Option<String>,
}

impl SysPort {
    /// Whether packets can be sent.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }
}

/// The RDMA devices below `root` (`/`), in the order of their names.
///
/// # Errors
/// The kernel has no RDMA subsystem, or it is not loaded ([`io::ErrorKind::NotFound`]).
pub fn devices(root: &Path) -> io::Result<Vec<SysDevice>> {
    let class = root.join(CLASS);
    let device = |name: String| {
        let path = class.join(&name);
        SysDevice { is_iwarp: behind_colon(line(path.join("node_type"))) == RNIC, ports: ports(&path), name }
    };
    let mut devices: Vec<SysDevice> = names(&class)?.into_iter().map(device).collect();
    devices.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(devices)
}

fn ports(device: &Path) -> Vec<SysPort> {
    let numbers = names(&device.join("ports")).unwrap_or_default();
    let mut numbers: Vec<u8> = numbers.iter().filter_map(|number| number.parse().ok()).take(PORTS_MAX).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|number| port(&device.join("ports").join(number.to_string()), device, number)).collect()
}

fn port(path: &Path, device: &Path, number: u8) -> SysPort {
    let gids: Vec<SysGid> = gid_indices(path).into_iter().filter_map(|index| gid(path, index)).collect();
    let mut interfaces: Vec<String> = gids.iter().filter_map(|gid| gid.interface.clone()).collect();
    // iWARP devices without types name their interface through their parent.
    interfaces.extend(names(&device.join("device/net")).unwrap_or_default());
    // Soft-RoCE and soft-iWARP.
    interfaces.extend(line(device.join("parent")));
    interfaces.sort();
    interfaces.dedup();
    SysPort {
        number,
        state: behind_colon(line(path.join("state"))),
        physical_state: behind_colon(line(path.join("phys_state"))),
        link_layer: line(path.join("link_layer")).unwrap_or_default(),
        rate: line(path.join("rate")).unwrap_or_default(),
        interfaces,
        gids,
    }
}

fn gid_indices(port: &Path) -> Vec<u32> {
    let names = names(&port.join("gids")).unwrap_or_default();
    let mut indices: Vec<u32> =
        names.iter().filter_map(|name| name.parse().ok()).filter(|&index| index < GIDS_MAX).collect();
    indices.sort_unstable();
    indices
}

/// An entry that is set: the kernel shows the others as zeros, or refuses to show them.
fn gid(port: &Path, index: u32) -> Option<SysGid> {
    let gid: Ipv6Addr = line(port.join(format!("gids/{index}")))?.parse().ok()?;
    let kind = line(port.join(format!("gid_attrs/types/{index}"))).unwrap_or_default();
    let interface = line(port.join(format!("gid_attrs/ndevs/{index}")));
    // An InfiniBand port without a subnet has fe80::, and nothing else is unset.
    (!gid.is_unspecified()).then_some(SysGid { index, gid, kind, interface })
}

/// `4: ACTIVE` without the number.
fn behind_colon(text: Option<String>) -> String {
    let text = text.unwrap_or_default();
    text.split_once(": ").map_or(text.as_str(), |(_, word)| word).to_owned()
}

/// The first line of a file, if there is one that is not empty.
fn line(path: PathBuf) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join("sys/class/infiniband").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn devices_are_read_as_the_kernel_shows_them() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(devices(root.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
        let files = [
            ("rxe0/parent", "eth0\n"),
            ("rxe0/node_type", "1: CA\n"),
            ("siw0/node_type", "4: RNIC\n"),
            ("rxe0/ports/1/state", "4: ACTIVE\n"),
            ("rxe0/ports/1/phys_state", "5: LinkUp\n"),
            ("rxe0/ports/1/link_layer", "Ethernet\n"),
            ("rxe0/ports/1/rate", "2.5 Gb/sec (1X SDR)\n"),
            ("rxe0/ports/1/gids/0", "fe80:0000:0000:0000:5054:00ff:fe12:3456\n"),
            ("rxe0/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:020f\n"),
            ("rxe0/ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
            ("rxe0/ports/1/gid_attrs/types/1", "RoCE v2\n"),
            ("rxe0/ports/1/gid_attrs/ndevs/1", "eth0\n"),
            ("rxe0/ports/x/state", "no port\n"),
            ("mlx5_0/ports/2/state", "1: DOWN\n"),
            ("mlx5_0/ports/1/state", "garbage"),
        ];
        files.iter().for_each(|(path, text)| put(root.path(), path, text));
        let found = devices(root.path()).unwrap();
        assert_eq!(found.iter().map(|device| &device.name).collect::<Vec<_>>(), ["mlx5_0", "rxe0", "siw0"]);
        assert_eq!(found.iter().map(|device| device.is_iwarp).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(found[0].ports.iter().map(|port| port.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((found[0].ports[0].state.as_str(), found[0].ports[1].state.as_str()), ("garbage", "DOWN"));
        let port = &found[1].ports[0];
        assert!(port.is_active() && port.physical_state == "LinkUp" && port.link_layer == "Ethernet");
        assert_eq!((port.rate.as_str(), port.interfaces.as_slice()), ("2.5 Gb/sec (1X SDR)", &["eth0".to_owned()][..]));
        assert_eq!(port.gids.len(), 2, "the third is not set");
        let gid = &port.gids[1];
        assert_eq!((gid.index, gid.kind.as_str(), gid.interface.as_deref()), (1, "RoCE v2", Some("eth0")));
        assert_eq!(gid.gid.to_ipv4_mapped().unwrap().to_string(), "10.0.2.15");
    }
}
