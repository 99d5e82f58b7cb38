//! A target with one namespace on a disk that others may have open, too, from when it is started to
//! when it is stopped or killed. What it had at the disk when it was killed is executed all the
//! same.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_backend::{Device, Geometry, Io, OpenError, Request, Spec, Submitted};
use ebof_clock::Clock;
use ebof_manage::api::Target as _;
use ebof_manage::config::{AnaState, BlockSize, Namespace, Nguid, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_server::{Environment, RdmaNetwork, Settings, SteppedTarget, Storage};

use crate::disk::Disk;
use crate::host::nqn;
use crate::rig;
use crate::story::Failure;
use crate::transport::stream::End;

/// The subsystem.
pub(super) const SUBSYSTEM: &str = "nqn.2014-08.org.example:paths";
/// Its namespace.
pub(super) const NSID: u32 = 1;
/// Bytes of a block of it.
pub(super) const BLOCK_BYTES: u32 = 4096;
/// What the configuration calls the disk.
const PATH: &str = "/simulated/disk";

/// How a target is set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Its number.
    pub(super) number: usize,
    pub(super) ports: usize,
    pub(super) reactors: usize,
    /// Controller identifiers that it gives: its own ones if there are so many.
    pub(super) identifiers: Option<u16>,
}

pub(super) struct PathTarget {
    target: SteppedTarget,
    config: Config,
    ports: Vec<String>,
    /// Reached by nobody, but says that it is there.
    loopback: ebof_loopback::Port,
    clock: Clock,
    connections: u16,
    /// Reactors that did something in their last turn.
    is_busy: Vec<bool>,
}

/// The disk, as one process has it open.
struct Open {
    disk: Arc<Disk>,
    holder: u32,
}

impl Device for Open {
    fn geometry(&self) -> Geometry {
        Geometry { logical_block_bytes: BLOCK_BYTES, ..self.disk.geometry() }
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        self.disk.submit_of(self.holder, io, request)
    }

    fn next_data(&self, from: u64) -> Option<u64> {
        self.disk.next_data(from)
    }

    fn describe(&self) -> String {
        self.disk.describe()
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("holder", &self.holder).finish_non_exhaustive()
    }
}

/// The one disk that there is.
struct Shelf {
    disk: Arc<Disk>,
    holder: u32,
}

impl Storage for Shelf {
    fn open(&self, _spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        Ok(Arc::new(Open { disk: Arc::clone(&self.disk), holder: self.holder }))
    }

    fn is_missing(&self, _path: &Path) -> bool {
        false
    }

    fn remove(&self, _path: &Path) {}
}

impl PathTarget {
    /// Starts one that has the disk open as `holder`.
    pub(super) fn start(
        setting: Setting,
        states: &[AnaState],
        disk: &Arc<Disk>,
        holder: u32,
        clock: &Clock,
    ) -> Result<Self, Failure> {
        let failed = |error: &dyn fmt::Display| Failure(format!("the target does not start: {error:#}"));
        let config = configuration(setting, states)?;
        let environment = Environment {
            clock: clock.clone(),
            io: disk.io_factory(None),
            storage: Arc::new(Shelf { disk: Arc::clone(disk), holder }),
            rdma: RdmaNetwork::System,
            machine: [7; 16],
            ..Environment::default()
        };
        let settings =
            Settings { threads: Some(setting.reactors), pin: false, spin_us: 0, environment, ..Settings::of(&config) };
        let target = SteppedTarget::start(config.clone(), settings).map_err(|error| failed(&error))?;
        let ports: Vec<String> = config.ports.iter().map(|port| port.name.clone()).collect();
        let loopback = target.loopback(&ports[0]).ok_or(Failure("there is no such port".to_owned()))?;
        let is_busy = vec![false; target.reactors()];
        Ok(Self { target, config, ports, loopback, clock: clock.clone(), connections: 0, is_busy })
    }

    /// Something that says that it is there.
    pub(super) fn loopback(&self) -> ebof_loopback::Port {
        self.loopback.clone()
    }

    /// A connection to a port over TCP, whose other end this is.
    pub(super) fn accept(&mut self, port: usize, stream: End) {
        self.connections = self.connections.wrapping_add(1);
        let remote = SocketAddr::from((IpAddr::from([127, 0, 0, 1]), self.connections));
        // A stream that is not taken is closed.
        let _taken = self.target.connect(&self.ports[port], remote, Box::new(stream));
    }

    /// A port gives another access.
    pub(super) fn set_access(&mut self, port: usize, state: AnaState) -> Result<(), Failure> {
        self.config.ports[port].ana.set(1, state);
        let applied = self.target.target().apply(self.config.clone());
        applied.map(drop).map_err(|error| Failure(format!("the access cannot be changed: {error:#}")))
    }

    /// Asks it to stop.
    pub(super) fn shut_down(&mut self) {
        self.target.shut_down(Duration::from_secs(5));
    }

    /// Ends it when it has stopped.
    pub(super) fn close(self) {
        self.target.close();
    }
}

fn configuration(setting: Setting, states: &[AnaState]) -> Result<Config, Failure> {
    let failed = |error: &dyn fmt::Display| Failure(format!("the target does not start: {error:#}"));
    let port = |at: usize| {
        let id = u16::try_from(1 + setting.number * 8 + at).unwrap_or(u16::MAX);
        let mut port = Port::new(id, Listen::new([127, 0, 0, 1].into(), 4420 + id));
        port.ana.set(1, states[at]);
        port
    };
    let ports: Vec<Port> = (0..setting.ports).map(port).collect();
    let mut namespace = Namespace::new(NSID, PATH.parse().map_err(|error| failed(&error))?);
    namespace.nguid = Some(Nguid([0x11; 16]));
    namespace.block_size = Some(BlockSize::B4096);
    let mut subsystem = Subsystem::new(nqn(SUBSYSTEM)?);
    subsystem.allow_any_host = true;
    subsystem.serial = "SIMULATED".into();
    subsystem.ports = ports.iter().map(|port| port.name.clone()).collect();
    subsystem.namespaces = vec![namespace];
    if let Some(count) = setting.identifiers {
        let first = 1 + u16::try_from(setting.number).unwrap_or(0) * 1000;
        (subsystem.cntlid_min, subsystem.cntlid_max) = (first, first + count - 1);
    }
    Ok(Config { ports, subsystems: vec![subsystem], ..Config::default() })
}

impl rig::Life for PathTarget {
    fn parts(&self) -> usize {
        self.target.reactors() + 1
    }

    fn turn(&mut self, part: usize) {
        match self.is_busy.get_mut(part) {
            Some(is_busy) => *is_busy = self.target.step(part),
            None => self.target.keep_time(),
        }
    }

    fn due(&mut self) -> Option<Instant> {
        if self.is_busy.contains(&true) { Some(self.clock.now()) } else { self.target.due() }
    }

    fn is_over(&self) -> bool {
        self.target.is_shut_down()
    }
}
