//! From the configuration to what the threads use: devices opened, ports bound, the model built.
//!
//! Nothing here is visible to a host until all of it has succeeded.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, SocketAddrV6, TcpListener};
use std::sync::Arc;

use ebof_backend::{BlockBytes, Device, Source, Spec};
use ebof_drive::View;
use ebof_fabrics::{self as fabrics, DeviceId, DiscoveryIdentity, Health, Model, NamespaceTable, PortId};
use ebof_manage::api::DriveStatus;
use ebof_manage::config::{BlockSize, Config, ManagedDrive, Namespace, Port, Subsystem};
use ebof_manage::{Drive, Listen};
use ebof_nvme::log::{AddressFamily, SecType, TrType};
use ebof_nvme::{ControllerId, Nqn, Nsid};
use socket2::{Domain, Protocol, Socket, Type};

use crate::device::DeviceIds;
use crate::drives::{self, Keeper, KeeperError};
use crate::port::PortState;
use crate::sockets;

/// Why a target does not start, or a configuration cannot be put in force.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A drive was refused.
    #[error("namespace {nsid} of {subsystem}: {error}")]
    Drive {
        /// The subsystem.
        subsystem: Nqn,
        /// The namespace.
        nsid: u32,
        /// Why.
        error: ebof_backend::OpenError,
    },
    /// A drive whose hosts cut namespaces from it.
    #[error("drive {name}: {error}")]
    ManagedDrive {
        /// Its name.
        name: String,
        /// Why.
        error: Box<KeeperError>,
    },
    /// The namespaces of a subsystem do not fit together.
    #[error("subsystem {subsystem}: {error}")]
    Namespaces {
        /// The subsystem.
        subsystem: Nqn,
        /// Why.
        error: fabrics::model::TableError,
    },
    /// A port cannot be opened.
    #[error("listening on {listen}: {error}; {advice}")]
    Listen {
        /// The address.
        listen: Box<Listen>,
        /// The system's answer.
        error: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// A thread or what it needs cannot be had.
    #[error("starting a thread of the target")]
    Thread(#[from] io::Error),
}

/// What makes two namespaces use the same open device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DeviceKey {
    subsystem: Nqn,
    nsid: u32,
    drive: Drive,
    block_size: Option<BlockSize>,
}

/// Open devices, kept from one configuration to the next.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    open: HashMap<DeviceKey, (DeviceId, Arc<dyn Device>)>,
    keepers: Vec<Kept>,
    ids: DeviceIds,
}

/// A drive that is open, and whose it is.
#[derive(Clone)]
struct Kept {
    config: ManagedDrive,
    subsystem: Subsystem,
    keeper: Arc<Keeper>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Devices {
    /// The devices of `config`: those of `self` that it still has, and new ones.
    pub(crate) fn for_config(&self, config: &Config) -> Result<Self, StartError> {
        let mut devices = Self { open: HashMap::new(), keepers: Vec::new(), ids: self.ids.clone() };
        for subsystem in &config.subsystems {
            for namespace in &subsystem.namespaces {
                let key = key_of(subsystem, namespace);
                let entry =
                    match self.open.get(&key) {
                        Some((id, device)) => (*id, Arc::clone(device)),
                        None => {
                            let device = ebof_backend::open(&spec_of(namespace)).map_err(|error| {
                                StartError::Drive { subsystem: subsystem.nqn.clone(), nsid: namespace.nsid, error }
                            })?;
                            (devices.ids.next(), device)
                        }
                    };
                devices.open.insert(key, entry);
            }
            let named = |name: &String| config.drives.iter().find(|drive| drive.name == *name);
            if let Some(drive) = subsystem.drive.as_ref().and_then(named) {
                devices.keepers.push(self.kept(drive, subsystem)?);
            }
        }
        Ok(devices)
    }

    /// The keeper of a drive: the one that has it open already, or a new one.
    fn kept(&self, config: &ManagedDrive, subsystem: &Subsystem) -> Result<Kept, StartError> {
        let same = |kept: &&Kept| {
            kept.config.name == config.name
                && kept.config.backing.path() == config.backing.path()
                && kept.subsystem.nqn == subsystem.nqn
        };
        let keeper = match self.keepers.iter().find(same) {
            Some(kept) => Arc::clone(&kept.keeper),
            None => drives::open(config, subsystem)
                .map_err(|error| StartError::ManagedDrive { name: config.name.clone(), error: Box::new(error) })?,
        };
        Ok(Kept { config: config.clone(), subsystem: subsystem.clone(), keeper })
    }

    /// Names for devices.
    pub(crate) fn ids(&self) -> DeviceIds {
        self.ids.clone()
    }

    /// The devices of namespaces that are not a drive's.
    pub(crate) fn plain(&self) -> Vec<(DeviceId, Arc<dyn Device>)> {
        self.open.values().map(|(id, device)| (*id, Arc::clone(device))).collect()
    }

    /// The open drives, with their subsystems.
    pub(crate) fn keepers(&self) -> Vec<(Nqn, Arc<Keeper>)> {
        self.keepers.iter().map(|kept| (kept.subsystem.nqn.clone(), Arc::clone(&kept.keeper))).collect()
    }

    /// What there is to report about the drives.
    pub(crate) fn drive_status(&self) -> Vec<DriveStatus> {
        let status = |kept: &Kept| {
            let view = kept.keeper.view();
            DriveStatus {
                name: kept.config.name.clone(),
                subsystem_nqn: Some(kept.subsystem.nqn.to_string()),
                backing: kept.config.backing.to_string(),
                profile: kept.config.profile.to_string(),
                capacity_bytes: view.capacity.total_bytes,
                unallocated_bytes: view.unallocated_bytes,
                namespaces: u32::try_from(view.namespaces.len()).unwrap_or(u32::MAX),
                namespaces_max: view.profile.namespaces,
            }
        };
        self.keepers.iter().map(status).collect()
    }

    /// The drive behind a subsystem: its name, and what it is now.
    pub(crate) fn drive_of(&self, subsystem: &Nqn) -> Option<(&str, Arc<View>)> {
        let kept = self.keepers.iter().find(|kept| kept.subsystem.nqn == *subsystem)?;
        Some((&kept.config.name, kept.keeper.view()))
    }

    /// Tells the drives what the configuration now says about them.
    pub(crate) fn configure(&self) {
        self.keepers.iter().for_each(|kept| kept.keeper.configure(drives::settings(&kept.config, &kept.subsystem)));
    }

    /// The open device of a namespace.
    pub(crate) fn device(&self, subsystem: &Subsystem, namespace: &Namespace) -> Option<&(DeviceId, Arc<dyn Device>)> {
        self.open.get(&key_of(subsystem, namespace))
    }

    /// What hosts are shown.
    pub(crate) fn model(
        &self,
        config: &Config,
        ports: &[Arc<PortState>],
        generation: u64,
    ) -> Result<Model, StartError> {
        let nqn = config.target.discovery_nqn.clone().unwrap_or_else(Nqn::discovery);
        let discovery = DiscoveryIdentity {
            serial: ebof_manage::config::default_serial(&nqn),
            nqn,
            model: "ebof discovery".to_owned(),
            firmware: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let mut model = Model::new(discovery);
        model.generation = generation;
        model.ports = ports.iter().map(|port| port_of(port)).collect();
        for subsystem in &config.subsystems {
            model.subsystems.push(Arc::new(self.subsystem(subsystem, ports)?));
        }
        Ok(model)
    }

    fn subsystem(&self, config: &Subsystem, ports: &[Arc<PortState>]) -> Result<fabrics::Subsystem, StartError> {
        let namespaces = config
            .namespaces
            .iter()
            .filter_map(|namespace| {
                self.device(config, namespace).map(|(id, device)| namespace_of(namespace, *id, device.as_ref()))
            })
            .collect();
        let namespaces = NamespaceTable::new(namespaces)
            .map_err(|error| StartError::Namespaces { subsystem: config.nqn.clone(), error })?;
        let reached = |port: &&Arc<PortState>| config.ports.contains(&port.name) && !port.config.discovery_only;
        Ok(fabrics::Subsystem {
            nqn: config.nqn.clone(),
            serial: config.serial.clone(),
            model: config.model.clone(),
            firmware: config.firmware.clone(),
            allow_any_host: config.allow_any_host,
            allowed_hosts: config.allowed_hosts.clone(),
            ports: ports.iter().filter(reached).map(|port| port.id).collect(),
            cntlid_min: ControllerId(config.cntlid_min),
            cntlid_max: ControllerId(config.cntlid_max),
            namespaces,
            allocated: None,
            drive: None,
            health: Health { temperature_kelvin: TEMPERATURE_KELVIN, ..Health::default() },
        })
    }
}

/// What SMART reports as the temperature where there is no sensor: 25 degrees Celsius. Zero would be read as -273.
const TEMPERATURE_KELVIN: u16 = 298;

fn key_of(subsystem: &Subsystem, namespace: &Namespace) -> DeviceKey {
    DeviceKey {
        subsystem: subsystem.nqn.clone(),
        nsid: namespace.nsid,
        drive: namespace.drive.clone(),
        block_size: namespace.block_size,
    }
}

fn spec_of(namespace: &Namespace) -> Spec {
    let block_bytes = namespace.block_size.map(|size| match size {
        BlockSize::B512 => BlockBytes::B512,
        BlockSize::B4096 => BlockBytes::B4096,
    });
    let (source, read_only) = match &namespace.drive {
        Drive::Memory { size_bytes } => (Source::Memory { size_bytes: *size_bytes }, false),
        Drive::Null { size_bytes } => (Source::Null { size_bytes: *size_bytes }, false),
        Drive::File(file) => {
            let source =
                Source::Path { path: file.path.clone().into(), size_bytes: file.size_bytes, direct: file.direct };
            (source, file.read_only)
        }
    };
    Spec { source, read_only, block_bytes }
}

fn namespace_of(config: &Namespace, device_id: DeviceId, device: &dyn Device) -> fabrics::Namespace {
    let geometry = device.geometry();
    let block_shift = if geometry.logical_block_bytes == 4096 { 12 } else { 9 };
    fabrics::Namespace {
        nsid: Nsid(config.nsid),
        device: device_id,
        offset_bytes: 0,
        blocks: geometry.capacity_bytes >> block_shift,
        block_shift,
        metadata: fabrics::Metadata::default(),
        read_only: geometry.read_only,
        write_protected: config.write_protect,
        deallocates: geometry.deallocates,
        volatile_cache: geometry.volatile_cache,
        nguid: config.nguid.map_or(config.uuid.0, |nguid| nguid.0),
        eui64: config.eui64.map_or([0; 8], |eui64| eui64.0),
        uuid: config.uuid,
        ana_group: config.ana_group,
        right: fabrics::Right::Free,
        provision: None,
    }
}

fn port_of(port: &PortState) -> fabrics::Port {
    let address = port.config.advertise.unwrap_or(port.address.ip());
    fabrics::Port {
        id: PortId(port.config.id),
        trtype: TrType::TCP,
        adrfam: if address.is_ipv4() { AddressFamily::IPV4 } else { AddressFamily::IPV6 },
        traddr: address.to_string(),
        trsvcid: port.address.port().to_string(),
        security: SecType::NONE,
        discovery_only: port.config.discovery_only,
        in_capsule_bytes: port.config.in_capsule_data_bytes,
        max_queue_entries: port.config.max_queue_size,
        max_io_queues: port.config.max_io_queues,
    }
}

/// Opens a port.
pub(crate) fn listen(port: &Port) -> Result<(TcpListener, Arc<PortState>), StartError> {
    let failed = |error: io::Error| {
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse => "another program listens there: stop it, or choose another port",
            io::ErrorKind::AddrNotAvailable => "this machine has no such address: see `ip addr`",
            io::ErrorKind::PermissionDenied => "ports below 1024 need root, or CAP_NET_BIND_SERVICE",
            _ => "check the address",
        };
        StartError::Listen { listen: Box::new(port.listen.clone()), error, advice }
    };
    let address = socket_address(&port.listen).map_err(failed)?;
    let bound = bind(address).map_err(failed)?;
    sockets::prepare(&bound, port, address.is_ipv4()).map_err(|(option, error)| {
        let advice = if option.starts_with("zerocopy_send") {
            ebof_pinned::ADVICE
        } else {
            "leave the option away, give it a smaller value, or run with CAP_NET_ADMIN"
        };
        let error = io::Error::new(error.kind(), format!("{option}: {error}"));
        StartError::Listen { listen: Box::new(port.listen.clone()), error, advice }
    })?;
    let address = bound.local_addr().map_err(failed)?;
    Ok((bound, Arc::new(PortState::new(port.clone(), address))))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` stands for IPv6 only: who wants both says so with a second port.
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn socket_address(listen: &Listen) -> io::Result<SocketAddr> {
    let address = SocketAddr::new(listen.address, listen.port);
    match (address, &listen.interface) {
        (SocketAddr::V6(v6), Some(interface)) => {
            let scope = match interface.parse() {
                Ok(index) => index,
                Err(_) => {
                    let path = format!("/sys/class/net/{interface}/ifindex");
                    let text = std::fs::read_to_string(path)?;
                    text.trim().parse().map_err(io::Error::other)?
                }
            };
            Ok(SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope).into())
        }
        (address, _) => Ok(address),
    }
}
