//! A target with one drive, from when it is started to when it is stopped, killed or cut off.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ebof_backend::{Device, OpenError, Spec};
use ebof_clock::Clock;
use ebof_drive::{Answer, Refusal, Request};
use ebof_loopback::HostEnd;
use ebof_manage::api::{ControllerStatus, Target as _};
use ebof_manage::config::{Attach, DhchapGroup, DriveProfile, ManagedDrive, Port, Security, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::Nqn;
use ebof_server::{Environment, KeyPlaces, RdmaNetwork, Settings, SteppedTarget, Storage, TextStore};

use crate::disk::Disk;
use crate::host::secrets::SecretStore;
use crate::rig;
use crate::rig::drive;
use crate::story::Failure;
use crate::transport::fabric::{Fabric, TARGET};
use crate::transport::stream::End;

/// The subsystem of the drive.
pub(crate) const SUBSYSTEM: &str = "nqn.2014-08.org.example:drive";
/// What the configuration calls the disk.
const PATH: &str = "/simulated/disk";

/// How the target and its drive are set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// New and formatted namespaces are encrypted.
    pub(crate) encrypts: bool,
    /// They keep a checksum with each block.
    pub(crate) checks: bool,
    /// Threads that own queue pairs.
    pub(crate) reactors: usize,
    /// What it has room for.
    pub(crate) capacity_bytes: u64,
    /// Whom new namespaces are attached to.
    pub(crate) attach: Attach,
    /// Its limits.
    pub(crate) profile: DriveProfile,
    /// Namespaces at most; `None` is what the profile says.
    pub(crate) namespaces: Option<u32>,
    /// They may promise more than it has room for.
    pub(crate) overcommit: bool,
    /// Functions; where there are some, there is a second port.
    pub(crate) functions: u16,
    /// Hosts without a secret are refused.
    pub(crate) authenticates: bool,
}

impl Setting {
    /// A drive of this size, whose namespaces keep blocks as they are and are for everyone.
    pub(crate) fn with_capacity(capacity_bytes: u64) -> Self {
        Self {
            encrypts: false,
            checks: false,
            reactors: 1,
            capacity_bytes,
            attach: Attach::Everyone,
            profile: DriveProfile::Default,
            namespaces: None,
            overcommit: false,
            functions: 0,
            authenticates: false,
        }
    }
}

pub(crate) struct Life {
    target: SteppedTarget,
    config: Config,
    /// The ports over TCP.
    loopbacks: Vec<ebof_loopback::Port>,
    /// Their names.
    ports: Vec<String>,
    clock: Clock,
    /// Where it has a port over RDMA.
    fabric: Option<Fabric>,
    connections: u16,
    /// The latest event that was taken.
    last_event: u64,
    /// Reactors that did something in their last turn.
    is_busy: Vec<bool>,
}

/// The one disk that there is.
struct Shelf(Arc<Disk>);

impl Storage for Shelf {
    fn open(&self, _spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        Ok(Arc::clone(&self.0) as Arc<dyn Device>)
    }

    fn is_missing(&self, _path: &Path) -> bool {
        self.0.image().pages() == 0
    }

    fn remove(&self, _path: &Path) {}
}

/// What the target remembers beside that.
struct Notes(Arc<Disk>);

impl TextStore for Notes {
    fn load(&self) -> Option<String> {
        self.0.note.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn store(&self, text: &str) -> io::Result<()> {
        if self.0.is_off() {
            return Err(io::Error::other("the power is gone"));
        }
        *self.0.note.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.to_owned());
        Ok(())
    }
}

impl Life {
    /// Starts a target that gets so many `Io`s of the system, or as many as it asks for. With a
    /// network it has a port over RDMA, too; with keys, some hosts have to prove who they are.
    pub(crate) fn open(
        disk: &Arc<Disk>,
        clock: &Clock,
        setting: Setting,
        ios_max: Option<usize>,
        (fabric, keys): (Option<&Fabric>, Option<&Arc<SecretStore>>),
    ) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure(format!("the target does not start: {error:#}"));
        let mut drive = ManagedDrive::new("d0", PATH.parse().map_err(|error| failed(&error))?);
        (drive.size_bytes, drive.attach) = (Some(setting.capacity_bytes), setting.attach);
        (drive.encryption, drive.checksums) = (setting.encrypts, setting.checks);
        (drive.profile, drive.namespaces) = (setting.profile, setting.namespaces);
        (drive.overcommit, drive.functions) = (setting.overcommit, setting.functions);
        let port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 4420));
        let second = Port::new(3, Listen::new([127, 0, 0, 1].into(), 4421));
        let over_tcp: Vec<_> = [port].into_iter().chain((setting.functions > 0).then_some(second)).collect();
        let names: Vec<_> = over_tcp.iter().map(|port| port.name.clone()).collect();
        let nqn = Nqn::parse(SUBSYSTEM).map_err(|error| failed(&error))?;
        let mut subsystem = Subsystem::of_drive(nqn, &drive);
        subsystem.allow_any_host = true;
        let over_rdma = Port::new(2, Listen::rdma(TARGET.ip(), TARGET.port()));
        let ports: Vec<_> = over_tcp.into_iter().chain(fabric.map(|_| over_rdma)).collect();
        subsystem.ports = ports.iter().map(|port| port.name.clone()).collect();
        if setting.authenticates {
            subsystem.security = Security::Authenticated;
        }
        let mut config = Config { ports, subsystems: vec![subsystem], drives: vec![drive], ..Config::default() };
        if let Some(keys) = keys {
            config.hosts = keys.hosts();
            // The others take milliseconds each.
            config.target.dhchap_groups = vec![DhchapGroup::Null];
        }
        let rdma = fabric.map_or(RdmaNetwork::System, |fabric| RdmaNetwork::Other(fabric.network()));
        let mut environment = Environment {
            clock: clock.clone(),
            io: disk.io_factory(ios_max),
            storage: Arc::new(Shelf(Arc::clone(disk))),
            rdma,
            objects: Arc::new(Notes(Arc::clone(disk))),
            ..Environment::default()
        };
        if let Some(keys) = keys {
            environment.key_places = Arc::clone(keys) as Arc<dyn KeyPlaces>;
        }
        let settings =
            Settings { threads: Some(setting.reactors), pin: false, spin_us: 0, environment, ..Settings::of(&config) };
        let target = SteppedTarget::start(config.clone(), settings).map_err(|error| failed(&error))?;
        let loopbacks: Vec<_> = names.iter().filter_map(|name| target.loopback(name)).collect();
        if loopbacks.len() != names.len() {
            return Err(Failure("there is no such port".to_owned()));
        }
        let is_busy = vec![false; target.reactors()];
        let fabric = fabric.cloned();
        Ok(Self {
            target,
            config,
            loopbacks,
            ports: names,
            clock: clock.clone(),
            fabric,
            connections: 0,
            last_event: 0,
            is_busy,
        })
    }

    /// Where hosts reach it over the in-memory transport.
    pub(crate) fn port(&self) -> ebof_loopback::Port {
        self.loopbacks[0].clone()
    }

    /// A connection over the in-memory transport.
    pub(crate) fn connect(&self, entries: usize) -> Option<HostEnd> {
        self.connect_at(0, entries)
    }

    /// The same at another port.
    pub(crate) fn connect_at(&self, port: usize, entries: usize) -> Option<HostEnd> {
        self.loopbacks.get(port)?.connect(entries, Arc::new(|| {})).ok()
    }

    /// Names of the ports.
    pub(crate) fn port_name(&self, port: usize) -> Option<&str> {
        self.ports.get(port).map(String::as_str)
    }

    /// Has the box ask the drive for something.
    pub(crate) fn ask(&self, request: Request) -> Option<Receiver<Result<Answer, Refusal>>> {
        self.target.target().submit_to_drive("d0", request)
    }

    /// A connection over TCP, whose other end this is.
    pub(crate) fn accept(&mut self, stream: End) -> bool {
        self.accept_at(0, stream)
    }

    /// The same at another port.
    pub(crate) fn accept_at(&mut self, port: usize, stream: End) -> bool {
        self.accept_from(port, IpAddr::from([127, 0, 0, 1]), stream)
    }

    /// The same from another address.
    pub(crate) fn accept_from(&mut self, port: usize, address: IpAddr, stream: End) -> bool {
        let Some(name) = self.ports.get(port) else { return false };
        self.connections = self.connections.wrapping_add(1);
        let remote = SocketAddr::from((address, self.connections));
        self.target.connect(name, remote, Box::new(stream)).is_ok()
    }

    /// Has it read the keys of hosts again.
    pub(crate) fn reread_keys(&self) -> Result<(), Failure> {
        let applied = self.target.target().apply(self.config.clone());
        applied.map(|_| ()).map_err(|error| Failure(format!("keys cannot be changed: {error:#}")))
    }

    /// The controllers that it tells of.
    pub(crate) fn controllers(&self) -> Vec<ControllerStatus> {
        self.target.target().status().controllers
    }

    /// What it has reported since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<ebof_manage::events::Event> {
        let since = self.target.target().events().since(self.last_event, usize::MAX);
        self.last_event = since.latest;
        since.events
    }

    /// Asks it to stop.
    pub(crate) fn shut_down(&mut self) {
        self.target.shut_down(Duration::from_secs(5));
    }

    /// Ends it when it has stopped.
    pub(crate) fn close(self) {
        self.target.close();
    }
}

impl rig::Life for Life {
    fn parts(&self) -> usize {
        self.target.reactors() + drive::PARTS + 1 + usize::from(self.fabric.is_some())
    }

    fn turn(&mut self, part: usize) {
        let now = self.clock.now();
        if let Some(is_busy) = self.is_busy.get_mut(part) {
            *is_busy = self.target.step(part);
            return;
        }
        let part = part - self.target.reactors();
        if part < drive::PARTS {
            self.target.drives().for_each(|stepper| drive::turn(stepper, part, now));
        } else if part == drive::PARTS {
            self.target.keep_time();
        } else {
            self.fabric.iter().for_each(Fabric::turn);
        }
    }

    fn due(&mut self) -> Option<Instant> {
        let is_busy = self.is_busy.contains(&true) || self.target.drives().any(drive::is_busy);
        let of_fabric = self.fabric.as_ref().and_then(Fabric::due);
        if is_busy { Some(self.clock.now()) } else { self.target.due().into_iter().chain(of_fabric).min() }
    }

    fn is_over(&self) -> bool {
        self.target.is_shut_down()
    }
}
