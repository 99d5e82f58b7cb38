//! From the configuration to what the threads use: devices opened, ports bound, the model built.
//!
//! Nothing here is visible to a host until all of it has succeeded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{SocketAddr, SocketAddrV6, TcpListener};
use std::sync::Arc;

use ebof_backend::{BlockBytes, Device, IoFactory, Remover, Spec};
use ebof_drive::View;
use ebof_fabrics::{
    self as fabrics, DataId, DeviceId, DiscoveryIdentity, GroupStates, Health, Model, NamespaceTable, PortId, TlsUse,
};
use ebof_manage::api::DriveStatus;
use ebof_manage::config::{BlockSize, Config, ManagedDrive, Namespace, Port, PortTls, Referral, Subsystem};
use ebof_manage::listen::Transport;
use ebof_manage::{Drive, Listen};
use ebof_nvme::log::{AddressFamily, AnaState, TrType};
use ebof_nvme::{ControllerId, Nqn, Nsid};
use ebof_sockets::Refused;
use ebof_verbs::Network;
use ebof_verbs::diagnosis::Facts;
use socket2::{Domain, Protocol, Socket, Type};

use crate::direct::DirectListener;
use crate::drives::device::DeviceIds;
use crate::drives::{self, DriveActor, DriveThreads};
use crate::environment::making::Making;
use crate::environment::{Environment, RdmaNetwork};
use crate::life::control::Listening;
use crate::life::keys::{self, HostKeys};
use crate::life::missing::MissingKey;
use crate::life::object::{Identifiers, identifiers, object_of};
use crate::ports::listener::{Bound, RdmaListener, as_io_error};
use crate::ports::port::PortState;
use crate::ports::sockets;

mod error;

pub use error::StartError;

/// A namespace of the configuration: its subsystem and its NSID.
pub(crate) type NamespaceKey = (Nqn, u32);

/// Open devices, kept from one configuration to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices {
    pub(crate) open: BTreeMap<NamespaceKey, OpenNamespace>,
    pub(crate) actors: Vec<OpenDrive>,
    pub(crate) ids: DeviceIds,
    /// The paths of files that were made at the start, and of what drives were made on.
    pub(crate) made: Vec<String>,
    /// The keys of hosts that the configuration names.
    pub(crate) keys: HostKeys,
    environment: Environment,
}

/// The open device of a namespace that is not a drive's, and what it was opened for.
#[derive(Clone, Debug)]
pub(crate) struct OpenNamespace {
    pub(crate) id: DeviceId,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) drive: Drive,
    /// Which data it has.
    pub(crate) object: DataId,
}

/// A drive that is open, and whose it is.
#[derive(Clone)]
pub(crate) struct OpenDrive {
    pub(crate) config: ManagedDrive,
    pub(crate) subsystem: Subsystem,
    pub(crate) actor: Arc<DriveActor>,
    /// What it lies on.
    pub(crate) backing: Arc<dyn Device>,
    /// Pulls that out.
    pub(crate) remover: Remover,
}

impl fmt::Debug for OpenDrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenDrive").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The drive that a subsystem offers.
pub(crate) fn drive_of<'c>(config: &'c Config, subsystem: &Subsystem) -> Option<&'c ManagedDrive> {
    let name = subsystem.drive.as_ref()?;
    config.drives.iter().find(|drive| drive.name == *name)
}

impl Devices {
    /// Opens the devices of `config`; `missing` decides whether there may be one less.
    pub(crate) fn open(
        config: &Config,
        environment: &Environment,
        threads: &mut DriveThreads<'_>,
        mut missing: impl FnMut(MissingKey, StartError) -> Result<(), StartError>,
    ) -> Result<Self, StartError> {
        let keys = HostKeys::read(config, &*environment.key_places)?;
        let mut devices = Self { keys, environment: environment.clone(), ..Self::default() };
        for subsystem in config.enabled_subsystems() {
            for namespace in subsystem.enabled_namespaces() {
                let key = (subsystem.nqn.clone(), namespace.nsid);
                let is_absent = devices.is_missing(&namespace.drive);
                match devices.open_plain(&subsystem.nqn, namespace) {
                    Ok(plain) => drop(devices.open.insert(key, plain)),
                    Err(error) => {
                        missing(MissingKey::Namespace(key), error)?;
                        continue;
                    }
                }
                if is_absent {
                    devices.note_made(&namespace.drive);
                }
            }
            if let Some(drive) = drive_of(config, subsystem) {
                let is_absent = devices.is_missing(&drive.backing);
                match devices.open_drive(drive, subsystem, threads) {
                    Ok(opened) => {
                        if is_absent || opened.actor.was_made() {
                            devices.note_made(&drive.backing);
                        }
                        devices.actors.push(opened);
                    }
                    Err(error) => missing(MissingKey::Drive(drive.name.clone()), error)?,
                }
            }
        }
        // What is opened later is made if it is new then.
        Ok(devices.not_making([config]))
    }

    /// The same, where what one of `configs` has is not made.
    pub(crate) fn not_making<'c>(mut self, configs: impl IntoIterator<Item = &'c Config>) -> Self {
        self.environment.making = Making::all_but(configs);
        self
    }

    fn is_missing(&self, drive: &Drive) -> bool {
        drive.path().is_some_and(|path| self.environment.storage.is_missing(std::path::Path::new(path)))
    }

    /// Refuses to make a file that was served before.
    fn check_making(&self, drive: &Drive, what: impl FnOnce() -> String) -> Result<(), StartError> {
        let making = &self.environment.making;
        let Some(path) = drive.path().filter(|path| !making.allows(path) && self.is_missing(drive)) else {
            return Ok(());
        };
        Err(StartError::NotMade {
            what: what(),
            path: path.to_owned(),
            is_known: *making != Making::Nothing,
            advice: "mount the file system that it is on, or bring it back; `ebof serve --create` makes a new, empty one",
        })
    }

    fn note_made(&mut self, drive: &Drive) {
        self.made.extend(drive.path().map(str::to_owned));
    }

    /// Opens the device of a namespace; it is not added.
    pub(crate) fn open_plain(&self, subsystem: &Nqn, namespace: &Namespace) -> Result<OpenNamespace, StartError> {
        // Without a size it is not made anyway.
        if namespace.drive.size_bytes().is_some() {
            self.check_making(&namespace.drive, || format!("namespace {} of {subsystem}", namespace.nsid))?;
        }
        let device = self.environment.storage.open(&spec_of(namespace)).map_err(|error| StartError::Drive {
            subsystem: subsystem.clone(),
            nsid: namespace.nsid,
            error,
        })?;
        if let Drive::File(file) = &namespace.drive
            && !file.nested
        {
            let path = &file.path;
            match ebof_medium::has_drive(&device, &self.environment.io) {
                Ok(false) => warn_of_remains(&device, &self.environment.io, path),
                Ok(true) => {
                    let subsystem = subsystem.clone();
                    let path = path.clone();
                    return Err(StartError::HoldsDrive { subsystem, nsid: namespace.nsid, path });
                }
                // It is logged: a disk that fails there can be served all the same.
                Err(error) => tracing::warn!(path, "whether it holds a drive cannot be seen: {error}"),
            }
        }
        let object = object_of(&device, subsystem, namespace, &self.environment)?;
        Ok(OpenNamespace { id: self.ids.next(), device, drive: namespace.drive.clone(), object })
    }

    /// Opens a drive for its subsystem; it is not added.
    pub(crate) fn open_drive(
        &self,
        config: &ManagedDrive,
        subsystem: &Subsystem,
        threads: &mut DriveThreads<'_>,
    ) -> Result<OpenDrive, StartError> {
        if config.size_bytes.or(config.backing.size_bytes()).is_some() {
            self.check_making(&config.backing, || format!("drive {}", config.name))?;
        }
        let drives::Opened { actor, backing, remover } = drives::open(config, subsystem, &self.environment, threads)
            .map_err(|error| StartError::ManagedDrive { name: config.name.clone(), error: Box::new(error) })?;
        Ok(OpenDrive { config: config.clone(), subsystem: subsystem.clone(), actor, backing, remover })
    }

    /// Other devices, named by the same counter and opened in the same environment.
    pub(crate) fn with(&self, open: BTreeMap<NamespaceKey, OpenNamespace>, actors: Vec<OpenDrive>) -> Self {
        let (ids, keys, environment) = (self.ids.clone(), self.keys.clone(), self.environment.clone());
        Self { open, actors, ids, made: Vec::new(), keys, environment }
    }

    /// Names for devices.
    pub(crate) fn ids(&self) -> DeviceIds {
        self.ids.clone()
    }

    /// The devices of namespaces that are not a drive's.
    pub(crate) fn plain(&self) -> Vec<(DeviceId, Arc<dyn Device>)> {
        self.open.values().map(|plain| (plain.id, Arc::clone(&plain.device))).collect()
    }

    /// The open drives, with their subsystems.
    pub(crate) fn actors(&self) -> Vec<(Nqn, Arc<DriveActor>)> {
        self.actors.iter().map(|opened| (opened.subsystem.nqn.clone(), Arc::clone(&opened.actor))).collect()
    }

    /// What there is to report about the drives.
    pub(crate) fn drive_status(&self) -> Vec<DriveStatus> {
        let status = |opened: &OpenDrive| {
            let view = opened.actor.view();
            DriveStatus {
                name: opened.config.name.clone(),
                subsystem_nqn: Some(opened.subsystem.nqn.to_string()),
                backing: opened.config.backing.to_string(),
                profile: opened.config.profile.to_string(),
                capacity_bytes: view.capacity.total_bytes,
                unallocated_bytes: view.unallocated_bytes,
                namespaces: u32::try_from(view.namespaces.len()).unwrap_or(u32::MAX),
                namespaces_max: view.profile.namespaces,
                allocated_bytes: opened.actor.medium().capacity().used_bytes,
                health: opened.actor.health(),
                ana_limit: (view.best_ana_state != AnaState::OPTIMIZED).then(|| view.best_ana_state.name().to_owned()),
            }
        };
        self.actors.iter().map(status).collect()
    }

    /// The drive behind a subsystem: its name, and what it is now.
    pub(crate) fn drive_of(&self, subsystem: &Nqn) -> Option<(&str, Arc<View>)> {
        let opened = self.actors.iter().find(|opened| opened.subsystem.nqn == *subsystem)?;
        Some((&opened.config.name, opened.actor.view()))
    }

    /// Passes the drives their part of the configuration.
    pub(crate) fn configure(&self) {
        for opened in &self.actors {
            opened.actor.configure(&opened.config.name, drives::settings(&opened.config, &opened.subsystem));
        }
    }

    /// The open device of a namespace.
    pub(crate) fn device(&self, subsystem: &Subsystem, namespace: &Namespace) -> Option<&OpenNamespace> {
        self.open.get(&(subsystem.nqn.clone(), namespace.nsid))
    }

    /// The open namespaces of a subsystem, with what hosts are told about which they are.
    pub(crate) fn identified<'s>(&self, subsystem: &'s Subsystem) -> Vec<(&'s Namespace, &OpenNamespace, Identifiers)> {
        let mut found: Vec<(&'s Namespace, &OpenNamespace, Identifiers)> = Vec::new();
        for namespace in &subsystem.namespaces {
            // It is missing.
            let Some(open) = self.device(subsystem, namespace) else { continue };
            let again = found.iter().any(|(_, before, _)| before.object == open.object);
            found.push((namespace, open, identifiers(subsystem, namespace, open.object, again)));
        }
        found
    }

    /// What hosts are shown.
    pub(crate) fn model(&self, config: &Config, ports: &[Listening], generation: u64) -> Result<Model, StartError> {
        let nqn = config.target.discovery_nqn.clone().unwrap_or_else(Nqn::discovery);
        let discovery = DiscoveryIdentity {
            serial: ebof_manage::config::default_serial(&nqn),
            nqn,
            model: "ebof discovery".to_owned(),
            firmware: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let mut model = Model::new(discovery);
        model.generation = generation;
        let HostKeys { secrets, tls_psks } = self.keys.with(&self.environment.stored_keys.list());
        model.secrets = secrets;
        model.tls_psks = tls_psks;
        model.authentication = keys::policy(&config.target);
        model.ports = ports.iter().map(|listening| port_of(&listening.port)).collect();
        model.disabled =
            config.subsystems.iter().filter(|it| !it.enabled).map(|subsystem| subsystem.nqn.clone()).collect();
        for subsystem in config.enabled_subsystems() {
            // Its drive is missing: hosts that come meanwhile are not to give up.
            if subsystem.drive.is_some() && self.drive_of(&subsystem.nqn).is_none() {
                model.returning.push(subsystem.nqn.clone());
                continue;
            }
            model.subsystems.push(Arc::new(self.subsystem(subsystem, ports)?));
        }
        Ok(model)
    }

    fn subsystem(&self, config: &Subsystem, ports: &[Listening]) -> Result<fabrics::Subsystem, StartError> {
        let identified = self.identified(config).into_iter();
        let namespaces =
            identified.map(|(namespace, plain, identifiers)| namespace_of(namespace, plain, identifiers)).collect();
        let namespaces = NamespaceTable::new(namespaces)
            .map_err(|error| StartError::Namespaces { subsystem: config.nqn.clone(), error })?;
        let all = ports.iter().map(|listening| &listening.port);
        let reached = all.filter(|port| config.ports.contains(&port.name) && !port.config.discovery_only);
        Ok(fabrics::Subsystem {
            nqn: config.nqn.clone(),
            serial: config.serial.clone(),
            model: config.model.clone(),
            firmware: config.firmware.clone(),
            allow_any_host: config.allow_any_host,
            allowed_hosts: config.allowed_hosts.clone(),
            authenticated_only: config.security.wants_authentication(),
            tls_only: config.security.wants_tls(),
            ports: reached.map(|port| port.id).collect(),
            cntlid_min: ControllerId(config.cntlid_min),
            cntlid_max: ControllerId(config.cntlid_max),
            namespaces,
            allocated: None,
            pending: BTreeSet::default(),
            states: GroupStates::default(),
            drive: None,
            function: None,
            health: Health { temperature_kelvin: TEMPERATURE_KELVIN, ..Health::default() },
        })
    }
}

/// What SMART reports as the temperature where there is no sensor: 25 degrees Celsius. Zero would
/// be read as -273.
const TEMPERATURE_KELVIN: u16 = 298;

fn spec_of(namespace: &Namespace) -> Spec {
    let block_bytes = namespace.block_size.map(|size| match size {
        BlockSize::B512 => BlockBytes::B512,
        BlockSize::B4096 => BlockBytes::B4096,
    });
    Spec { block_bytes, ..Spec::from(&namespace.drive) }
}

fn namespace_of(config: &Namespace, plain: &OpenNamespace, identifiers: Identifiers) -> fabrics::Namespace {
    let geometry = plain.device.geometry();
    let Identifiers { uuid, nguid, eui64 } = identifiers;
    let block_shift = if geometry.logical_block_bytes == 4096 { 12 } else { 9 };
    fabrics::Namespace {
        nsid: Nsid(config.nsid),
        device: plain.id,
        object: plain.object,
        offset_bytes: 0,
        blocks: geometry.capacity_bytes >> block_shift,
        block_shift,
        metadata: fabrics::Metadata::default(),
        read_only: geometry.read_only,
        write_protected: config.write_protect,
        deallocates: geometry.deallocates,
        volatile_cache: geometry.volatile_cache,
        nguid,
        eui64,
        uuid,
        ana_group: config.ana_group,
        right: fabrics::Right::Free,
        provision: None,
    }
}

/// The ports that functions can be given to.
pub(crate) fn places(ports: &[Listening]) -> BTreeMap<String, PortId> {
    let all = ports.iter().map(|listening| &listening.port).filter(|port| !port.config.discovery_only);
    all.map(|port| (port.name.clone(), port.id)).collect()
}

fn referral_of(referral: &Referral) -> fabrics::Referral {
    let Referral { address, tls } = referral;
    fabrics::Referral {
        trtype: trtype(address.transport),
        adrfam: if address.address.is_ipv4() { AddressFamily::IPV4 } else { AddressFamily::IPV6 },
        traddr: address.address.to_string(),
        trsvcid: address.port.to_string(),
        tls: tls_use(*tls),
    }
}

fn trtype(transport: Transport) -> TrType {
    match transport {
        Transport::Tcp => TrType::TCP,
        Transport::Rdma => TrType::RDMA,
        Transport::VfioUser => TrType::PCIE,
    }
}

fn tls_use(tls: PortTls) -> TlsUse {
    match tls {
        PortTls::Off => TlsUse::Off,
        PortTls::Allowed => TlsUse::Allowed,
        PortTls::Required => TlsUse::Required,
    }
}

fn port_of(port: &PortState) -> fabrics::Port {
    let address = port.config.advertise.unwrap_or(port.address.ip());
    fabrics::Port {
        id: PortId(port.config.id),
        trtype: trtype(port.config.listen.transport),
        adrfam: if address.is_ipv4() { AddressFamily::IPV4 } else { AddressFamily::IPV6 },
        traddr: address.to_string(),
        trsvcid: port.address.port().to_string(),
        tls: tls_use(port.config.tls),
        provider: port.provider,
        discovery_only: port.config.discovery_only,
        referrals: port.config.referrals.iter().map(referral_of).collect(),
        states: GroupStates::new(port.config.ana.iter()),
        in_capsule_bytes: port.config.in_capsule_data_bytes,
        max_queue_entries: port.max_queue_entries(),
        max_io_queues: port.max_io_queues(),
    }
}

/// Opens a port.
pub(crate) fn listen(port: &Port, environment: &Environment) -> Result<Listening, StartError> {
    let (bound, address) = listen_at(port, None, environment)?;
    let mut state = PortState::new(port.clone(), address);
    if let Bound::Rdma(listener) = &bound {
        state.provider = listener.provider();
        state.device_entries = listener.queue_entries();
    }
    Ok(Listening { port: Arc::new(state), bound: Some(bound) })
}

/// Listens where a port does, at `address` if the system has chosen one before.
pub(crate) fn listen_at(
    port: &Port,
    address: Option<SocketAddr>,
    environment: &Environment,
) -> Result<(Bound, SocketAddr), StartError> {
    let address = address.map_or_else(|| socket_address(&port.listen), Ok).map_err(|error| refused(port, error))?;
    match port.listen.transport {
        Transport::Tcp => {
            let (listener, address) = listen_tcp(port, address)?;
            Ok((Bound::Tcp(Arc::new(listener)), address))
        }
        Transport::VfioUser => {
            let path = port.listen.socket.as_deref().unwrap_or(std::path::Path::new(""));
            let listener = DirectListener::bind(path).map_err(|error| refused_socket(port, error))?;
            Ok((Bound::Direct(Arc::new(listener)), address))
        }
        Transport::Rdma => {
            let listener = listen_rdma(port, address, environment)?;
            let address = listener.address();
            Ok((Bound::Rdma(Arc::new(listener)), address))
        }
    }
}

fn refused(port: &Port, error: io::Error) -> StartError {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => "another program listens there: stop it, or choose another port",
        io::ErrorKind::AddrNotAvailable => "this machine has no such address: see `ip addr`",
        io::ErrorKind::PermissionDenied => "ports below 1024 need root, or CAP_NET_BIND_SERVICE",
        _ => "check the address",
    };
    StartError::Listen { listen: Box::new(port.listen.clone()), error, advice: advice.into() }
}

fn refused_socket(port: &Port, error: io::Error) -> StartError {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => "another process listens there: stop it, or choose another path",
        io::ErrorKind::AlreadyExists => "choose another path, or move the file away",
        io::ErrorKind::NotFound => "make the folder first",
        io::ErrorKind::PermissionDenied => "choose a folder that may be written, such as /run/ebof",
        _ => "check the path",
    };
    StartError::Listen { listen: Box::new(port.listen.clone()), error, advice: advice.into() }
}

fn listen_tcp(port: &Port, address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |error| refused(port, error);
    let bound = bind(address).map_err(failed)?;
    sockets::prepare(&bound, port, address.is_ipv4()).map_err(|refused| {
        let Refused { option, value, error } = refused;
        let advice = if option == "zerocopy_send" {
            ebof_pinned::ADVICE
        } else {
            "leave the option away, give it a smaller value, or run with CAP_NET_ADMIN"
        };
        let error = io::Error::new(error.kind(), format!("{option} {value}: {error}"));
        StartError::Listen { listen: Box::new(port.listen.clone()), error, advice: advice.into() }
    })?;
    let address = bound.local_addr().map_err(failed)?;
    Ok((bound, address))
}

fn listen_rdma(port: &Port, address: SocketAddr, environment: &Environment) -> Result<RdmaListener, StartError> {
    let network = environment.rdma.open().map_err(|error| {
        let advice = "RDMA needs rdma-core; ports over TCP do not".into();
        StartError::Listen { listen: Box::new(port.listen.clone()), error: io::Error::other(error), advice }
    })?;
    RdmaListener::bind(network.clone(), address).map_err(|error| {
        let error = as_io_error(error);
        if error.kind() == io::ErrorKind::AddrInUse && has_iwarp(&network) {
            let advice = "with iWARP, RDMA and TCP share port numbers, and a listener of either kind has this one: \
                          choose another port for one of them"
                .into();
            return StartError::Listen { listen: Box::new(port.listen.clone()), error, advice };
        }
        if error.kind() == io::ErrorKind::AddrInUse || !matches!(environment.rdma, RdmaNetwork::System) {
            return refused(port, error);
        }
        // What is missing is often further down: a module, a device, a link.
        let obstacles = Facts::collect(None).obstacles_to(address.ip(), Ok(address.ip()));
        let advice = match obstacles.first() {
            Some(obstacle) => format!("{obstacle}; {}", obstacle.advice()).into(),
            None => "`ebof rdma-check` lists the devices, their ports and the addresses of their interfaces".into(),
        };
        StartError::Listen { listen: Box::new(port.listen.clone()), error, advice }
    })
}

/// Whether a device listens by TCP.
fn has_iwarp(network: &Network) -> bool {
    let devices = network.devices().unwrap_or_default();
    devices.iter().any(|device| device.attributes.protocol == ebof_verbs::Protocol::Iwarp)
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` stands for IPv6 only: for both, a second port is configured.
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

/// A disk that was a drive's once may serve for something else; a drive that has lost its beginning
/// by mistake may not.
fn warn_of_remains(device: &Arc<dyn Device>, io: &IoFactory, path: &str) {
    if let Ok(Some(what)) = ebof_medium::remains(device, io) {
        tracing::warn!(
            path,
            "{what} of a drive is there, whose superblocks are gone; as a plain namespace it is written over, and cannot be restored then"
        );
    }
}
