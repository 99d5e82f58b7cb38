//! Why no RDMA connection can be made from or to an address of this machine: looks at the kernel's
//! modules, devices, ports and GIDs, one after the other, as a person would.
//!
//! Owns the order of the questions and the advice. It makes no connection.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

use nix::net::if_::InterfaceFlags;

use crate::sysfs::{self, SysDevice, SysPort};

/// The device of the connection manager, which connections are made through.
const CONNECTION_MANAGER: &str = "dev/infiniband/rdma_cm";

/// What was found out about this machine.
#[derive(Debug)]
pub struct Facts {
    /// Why rdma-core cannot be used, if it cannot.
    pub library: Option<String>,
    /// The devices; the error says that the kernel has no RDMA subsystem.
    pub devices: io::Result<Vec<SysDevice>>,
    /// Why connections cannot be made, if the connection manager cannot be opened.
    pub connection_manager: Option<io::Error>,
    /// The network interfaces.
    pub interfaces: Vec<Interface>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Whether it is up and has a carrier.
    pub is_up: bool,
    /// Whether it is a loopback interface.
    pub is_loopback: bool,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// Something that prevents connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// rdma-core is missing or too old.
    Library {
        /// Which part, and what to install.
        reason: String,
    },
    /// The kernel has no RDMA subsystem, or its modules are not loaded.
    Subsystem,
    /// The connection manager cannot be opened.
    ConnectionManager {
        /// What the kernel answered.
        reason: String,
        /// Whether it is there, and the user may not open it.
        is_denied: bool,
    },
    /// There is no RDMA device at all.
    NoDevice {
        /// An interface that a soft device could be made on.
        interface: Option<String>,
    },
    /// No route leads to the address.
    NoRoute {
        /// The address.
        address: IpAddr,
        /// What the kernel answered.
        reason: String,
    },
    /// The way to the address leads through an interface without RDMA device.
    NoDeviceAt {
        /// The address.
        address: IpAddr,
        /// The interface.
        interface: String,
        /// The devices that there are, with the interfaces that they are on.
        devices: Vec<(String, Vec<String>)>,
    },
    /// The port is not active.
    PortDown {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// Its state and physical state.
        states: (String, String),
        /// Its interface.
        interface: String,
    },
    /// The port's GID table lacks the address.
    NoGid {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The address that the table should have.
        address: IpAddr,
        /// Its interface.
        interface: String,
        /// The table has it for RoCE v1 only, which is not routed, and which few hosts use.
        only_v1: bool,
    },
}

impl Facts {
    /// Looks at this machine. `library`: why rdma-core cannot be used, if it cannot.
    #[must_use]
    pub fn collect(library: Option<String>) -> Self {
        let root = Path::new("/");
        let manager = std::fs::OpenOptions::new().read(true).write(true).open(root.join(CONNECTION_MANAGER));
        Self { library, devices: sysfs::devices(root), connection_manager: manager.err(), interfaces: interfaces() }
    }

    /// What prevents all connections, in the order in which it has to be removed.
    #[must_use]
    pub fn obstacles(&self) -> Vec<Obstacle> {
        let mut obstacles = Vec::new();
        obstacles.extend(self.library.clone().map(|reason| Obstacle::Library { reason }));
        let Ok(devices) = &self.devices else {
            obstacles.push(Obstacle::Subsystem);
            return obstacles;
        };
        if let Some(error) = &self.connection_manager {
            let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
            obstacles.push(Obstacle::ConnectionManager { reason: error.to_string(), is_denied });
        }
        if devices.is_empty() {
            let usual = self.interfaces.iter().find(|interface| interface.is_up && !interface.is_loopback);
            obstacles.push(Obstacle::NoDevice { interface: usual.map(|interface| interface.name.clone()) });
        }
        obstacles
    }

    /// What prevents connections to or at `address`: its own if it is one of this machine's,
    /// otherwise that of `source`, the local address of the way there. Empty where nothing was
    /// found.
    #[must_use]
    pub fn obstacles_to(&self, address: IpAddr, source: Result<IpAddr, String>) -> Vec<Obstacle> {
        let mut obstacles = self.obstacles();
        let devices = match &self.devices {
            Ok(devices) if !devices.is_empty() => devices,
            _ => return obstacles,
        };
        let local = match source {
            Ok(local) => local,
            Err(reason) => {
                obstacles.push(Obstacle::NoRoute { address, reason });
                return obstacles;
            }
        };
        if let Some(interface) = self.interface_of(address).or_else(|| self.interface_of(local)) {
            let local = if interface.addresses.contains(&address) { address } else { local };
            obstacles.extend(at_interface(devices, interface, address, local));
        }
        obstacles
    }

    fn interface_of(&self, address: IpAddr) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.addresses.contains(&address))
    }
}

/// The local address of the way to `address`; nothing is sent.
///
/// # Errors
/// There is no way.
pub fn source_for(address: IpAddr) -> Result<IpAddr, String> {
    let any = if address.is_ipv4() { IpAddr::from([0; 4]) } else { Ipv6Addr::UNSPECIFIED.into() };
    let source = || {
        let socket = UdpSocket::bind((any, 0))?;
        // Any port but 0 will do: connecting a UDP socket looks up the route only.
        socket.connect(SocketAddr::new(address, 4420))?;
        socket.local_addr()
    };
    source().map(|local| local.ip()).map_err(|error: io::Error| error.to_string())
}

/// The first thing that prevents connections of `local`, which is an address of `interface`.
fn at_interface(devices: &[SysDevice], interface: &Interface, to: IpAddr, local: IpAddr) -> Option<Obstacle> {
    let at = |port: &&SysPort| port.interfaces.contains(&interface.name);
    let Some((device, port)) = devices.iter().find_map(|device| Some((device, device.ports.iter().find(at)?))) else {
        if devices.iter().flat_map(|device| &device.ports).any(|port| port.interfaces.is_empty()) {
            // It may be this one: soft-iWARP does not tell where it is.
            return None;
        }
        let devices = devices.iter().map(|device| {
            let interfaces = device.ports.iter().flat_map(|port| port.interfaces.iter().cloned());
            (device.name.clone(), interfaces.collect())
        });
        let interface = interface.name.clone();
        return Some(Obstacle::NoDeviceAt { address: to, interface, devices: devices.collect() });
    };
    let (name, number, interface) = (device.name.clone(), port.number, interface.name.clone());
    if !port.is_active() {
        let states = (port.state.clone(), port.physical_state.clone());
        return Some(Obstacle::PortDown { device: name, port: number, states, interface });
    }
    // iWARP has no table of addresses, but the port's MAC address in its place.
    if device.is_iwarp {
        return None;
    }
    let wanted = as_gid(local);
    let mut entries = port.gids.iter().filter(|gid| gid.gid == wanted).peekable();
    let only_v1 = entries.peek().is_some();
    if entries.any(|gid| gid.kind.ends_with("v2")) {
        return None;
    }
    Some(Obstacle::NoGid { device: name, port: number, address: local, interface, only_v1 })
}

/// An address as RoCE's GID tables have it.
fn as_gid(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn interfaces() -> Vec<Interface> {
    let mut interfaces: Vec<Interface> = Vec::new();
    for entry in nix::ifaddrs::getifaddrs().into_iter().flatten() {
        let flags = entry.flags;
        let at = interfaces.iter().position(|interface| interface.name == entry.interface_name);
        let at = at.unwrap_or_else(|| {
            interfaces.push(Interface {
                name: entry.interface_name.clone(),
                is_up: flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING),
                is_loopback: flags.contains(InterfaceFlags::IFF_LOOPBACK),
                addresses: Vec::new(),
            });
            interfaces.len() - 1
        });
        let address = entry.address.as_ref().and_then(|address| {
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
        });
        interfaces[at].addresses.extend(address);
    }
    interfaces
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library { reason } => f.write_str(reason),
            Self::Subsystem => f.write_str("the kernel has no RDMA subsystem, or its modules are not loaded"),
            Self::ConnectionManager { reason, .. } => write!(f, "/{CONNECTION_MANAGER} cannot be opened: {reason}"),
            Self::NoDevice { .. } => f.write_str("this machine has no RDMA device"),
            Self::NoRoute { address, reason } => write!(f, "no route leads to {address}: {reason}"),
            Self::NoDeviceAt { address, interface, devices } => {
                write!(f, "{address} is reached through {interface}, on which there is no RDMA device")?;
                for (name, interfaces) in devices {
                    match interfaces.as_slice() {
                        [] => write!(f, "; {name} is on no network interface")?,
                        some => write!(f, "; {name} is on {}", some.join(", "))?,
                    }
                }
                Ok(())
            }
            Self::PortDown { device, port, states: (state, physical), .. } => {
                write!(f, "port {port} of {device} is down: it is {state}, its link {physical}")
            }
            Self::NoGid { device, port, address, only_v1: true, .. } => {
                write!(f, "port {port} of {device} has a GID for {address} for RoCE v1 only")
            }
            Self::NoGid { device, port, address, interface, only_v1: false } => {
                write!(f, "port {port} of {device}, which is on {interface}, has no GID for {address}")
            }
        }
    }
}

impl Obstacle {
    /// For programs: a stable word in kebab-case.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Library { .. } => "no-library",
            Self::Subsystem => "no-subsystem",
            Self::ConnectionManager { .. } => "no-connection-manager",
            Self::NoDevice { .. } => "no-device",
            Self::NoRoute { .. } => "no-route",
            Self::NoDeviceAt { .. } => "no-device-for-address",
            Self::PortDown { .. } => "port-down",
            Self::NoGid { only_v1: true, .. } => "gid-roce-v1-only",
            Self::NoGid { only_v1: false, .. } => "no-gid",
        }
    }

    /// What to do.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Library { .. } => "install rdma-core: `apt-get install ibverbs-providers librdmacm1` on Debian and \
                Ubuntu, `dnf install libibverbs librdmacm` on Fedora"
                .into(),
            Self::Subsystem => "load the modules: `modprobe rdma_ucm`; if the kernel does not have it (cloud flavours \
                often do not), install one that does"
                .into(),
            Self::ConnectionManager { is_denied: true, .. } => {
                "run it as root, or let the user open /dev/infiniband/rdma_cm and /dev/infiniband/uverbs*".into()
            }
            Self::ConnectionManager { is_denied: false, .. } => {
                "load its module: `modprobe rdma_ucm` (and `modprobe ib_uverbs`)".into()
            }
            Self::NoDevice { interface } => {
                let interface = interface.as_deref().unwrap_or("INTERFACE");
                format!(
                    "load the network card's RDMA driver (mlx5_ib, irdma, bnxt_re, ...); without such a card, soft-RoCE \
                     works on any: `modprobe rdma_rxe && rdma link add rxe0 type rxe netdev {interface}`"
                )
            }
            Self::NoRoute { address, .. } => {
                format!("look at `ip route get {address}`; give an interface an address in its network")
            }
            Self::NoDeviceAt { interface, .. } => format!(
                "use an address that is reached through a device's interface, or make a soft device: \
                 `rdma link add rxe0 type rxe netdev {interface}`"
            ),
            Self::PortDown { interface, .. } => {
                format!("`ip link set {interface} up`; then look at the cable, the other end and `dmesg`")
            }
            Self::NoGid { only_v1: true, device, .. } => format!(
                "let the card use RoCE v2: `cma_roce_mode -d {device} -m 2`, or its driver's settings; old cards \
                 know v1 only"
            ),
            Self::NoGid { address, interface, .. } => format!(
                "the kernel makes GIDs of the interface's addresses: look whether `ip address show {interface}` has \
                 {address}, and set the interface down and up again"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::SysGid;

    fn facts() -> Facts {
        let gid = |index, gid: &str, kind: &str| SysGid {
            index,
            gid: gid.parse().unwrap(),
            kind: kind.into(),
            interface: Some("eth0".into()),
        };
        let port = SysPort {
            number: 1,
            state: "ACTIVE".into(),
            physical_state: "LinkUp".into(),
            link_layer: "Ethernet".into(),
            interfaces: vec!["eth0".into()],
            gids: vec![gid(0, "fe80::1", "RoCE v2"), gid(1, "::ffff:10.0.0.1", "RoCE v2")],
            ..SysPort::default()
        };
        let interface = |name: &str, address: &str| Interface {
            name: name.into(),
            is_up: true,
            is_loopback: name == "lo",
            addresses: vec![address.parse().unwrap()],
        };
        Facts {
            library: None,
            devices: Ok(vec![SysDevice { name: "rxe0".into(), is_iwarp: false, ports: vec![port] }]),
            connection_manager: None,
            interfaces: vec![
                interface("lo", "127.0.0.1"),
                interface("eth0", "10.0.0.1"),
                interface("eth1", "10.1.0.1"),
            ],
        }
    }

    fn port(facts: &mut Facts) -> &mut SysPort {
        &mut facts.devices.as_mut().unwrap()[0].ports[0]
    }

    /// The kinds of what is found for a remote address, reached from `local`.
    fn kinds(facts: &Facts, local: &str) -> Vec<&'static str> {
        let source = local.parse().map_err(|_| local.to_owned());
        facts.obstacles_to("10.0.0.9".parse().unwrap(), source).iter().map(Obstacle::kind).collect()
    }

    #[test]
    fn nothing_is_found_where_all_is_well() {
        assert!(facts().obstacles().is_empty() && kinds(&facts(), "10.0.0.1").is_empty());
        let own = "10.0.0.1".parse().unwrap();
        assert!(facts().obstacles_to(own, Ok("127.0.0.1".parse().unwrap())).is_empty(), "an address of its own");
    }

    // @test rdma.without-rdma-core
    #[test]
    fn what_is_missing_is_told_with_advice_and_from_the_bottom_up() {
        let mut facts = facts();
        facts.library = Some("libibverbs.so.1 is missing".into());
        facts.connection_manager = Some(io::ErrorKind::NotFound.into());
        facts.devices = Ok(Vec::new());
        assert_eq!(kinds(&facts, "10.0.0.1"), ["no-library", "no-connection-manager", "no-device"]);
        let all = facts.obstacles();
        assert!(all[2].advice().contains("netdev eth0"), "{}", all[2].advice());
        facts.devices = Err(io::ErrorKind::NotFound.into());
        assert_eq!(kinds(&facts, "10.0.0.1"), ["no-library", "no-subsystem"]);
        for obstacle in all {
            assert!(!obstacle.to_string().is_empty() && !obstacle.advice().is_empty());
        }
    }

    #[test]
    fn who_may_not_open_the_connection_manager_is_told_so() {
        let mut facts = facts();
        facts.connection_manager = Some(io::ErrorKind::PermissionDenied.into());
        let [obstacle] = &facts.obstacles()[..] else { panic!("one obstacle is expected") };
        assert!(obstacle.advice().contains("as root"));
    }

    #[test]
    fn the_interface_of_an_address_needs_a_device() {
        assert_eq!(kinds(&facts(), "10.1.0.1"), ["no-device-for-address"]);
        assert_eq!(kinds(&facts(), "unreachable"), ["no-route"]);
        let found = facts().obstacles_to("10.1.0.1".parse().unwrap(), Ok("10.1.0.1".parse().unwrap()));
        let text = "10.1.0.1 is reached through eth1, on which there is no RDMA device; rxe0 is on eth0";
        assert_eq!(found[0].to_string(), text);
    }

    #[test]
    fn a_port_has_to_be_active_and_to_have_the_address() {
        let mut facts = facts();
        port(&mut facts).gids[1].kind = "IB/RoCE v1".into();
        assert_eq!(kinds(&facts, "10.0.0.1"), ["gid-roce-v1-only"]);
        port(&mut facts).gids.truncate(1);
        assert_eq!(kinds(&facts, "10.0.0.1"), ["no-gid"]);
        port(&mut facts).state = "DOWN".into();
        assert_eq!(kinds(&facts, "10.0.0.1"), ["port-down"]);
    }

    #[test]
    fn iwarp_needs_no_gid_and_may_hide_its_interface() {
        let mut facts = facts();
        port(&mut facts).gids.truncate(1);
        assert_eq!(kinds(&facts, "10.0.0.1"), ["no-gid"]);
        facts.devices.as_mut().unwrap()[0].is_iwarp = true;
        assert!(kinds(&facts, "10.0.0.1").is_empty());
        port(&mut facts).interfaces.clear();
        assert!(kinds(&facts, "10.1.0.1").is_empty(), "it may be on eth1");
    }

    #[test]
    fn this_machine_has_a_loopback_interface_and_a_way_to_it() {
        let facts = Facts::collect(None);
        assert!(facts.interfaces.iter().any(|interface| interface.is_loopback));
        assert_eq!(source_for("127.0.0.1".parse().unwrap()), Ok("127.0.0.1".parse().unwrap()));
    }
}
