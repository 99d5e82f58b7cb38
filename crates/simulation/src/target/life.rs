//! A target from when it is started to when it is stopped, killed or cut off.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_backend::{Device, Io, IoFactory, OpenError, Spec};
use ebof_clock::Clock;
use ebof_loopback::HostEnd;
use ebof_manage::config::{Attach, ManagedDrive, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::Nqn;
use ebof_server::{Environment, Settings, SteppedTarget, Storage};

use super::PATIENCE;
use super::world::CAPACITY;
use crate::disk::Disk;
use crate::story::{Failure, fail};
use crate::stream::End;

/// The subsystem of the drive.
pub(super) const SUBSYSTEM: &str = "nqn.2014-08.org.example:drive";
/// What the configuration calls the disk.
const PATH: &str = "/simulated/disk";

/// How the target and its drive are set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// New and formatted namespaces are encrypted.
    pub(super) encrypts: bool,
    /// They keep a checksum with each block.
    pub(super) checks: bool,
    /// Threads that own queue pairs.
    pub(super) reactors: usize,
}

pub(super) struct Life {
    target: SteppedTarget,
    loopback: ebof_loopback::Port,
    port: String,
    clock: Clock,
    connections: u16,
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

impl Life {
    pub(super) fn open(disk: &Arc<Disk>, clock: &Clock, setting: Setting) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure(format!("the target does not start: {error:#}"));
        let mut drive = ManagedDrive::new("d0", PATH.parse().map_err(|error| failed(&error))?);
        (drive.size_bytes, drive.attach) = (Some(CAPACITY), Attach::Everyone);
        (drive.encryption, drive.checksums) = (setting.encrypts, setting.checks);
        let port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 4420));
        let name = port.name.clone();
        let nqn = Nqn::parse(SUBSYSTEM).map_err(|error| failed(&error))?;
        let mut subsystem = Subsystem::of_drive(nqn, &drive);
        subsystem.allow_any_host = true;
        subsystem.ports = vec![name.clone()];
        let config =
            Config { ports: vec![port], subsystems: vec![subsystem], drives: vec![drive], ..Config::default() };
        let io = Arc::clone(disk);
        let io = IoFactory::new(move |entries| {
            let disk = Arc::clone(&io);
            Ok(Io::external(entries, Box::new(move || disk.advance())))
        });
        let environment = Environment { clock: clock.clone(), io, storage: Arc::new(Shelf(Arc::clone(disk))) };
        let settings =
            Settings { threads: Some(setting.reactors), pin: false, spin_us: 0, environment, ..Settings::of(&config) };
        let target = SteppedTarget::start(config, settings).map_err(|error| failed(&error))?;
        let loopback = target.loopback(&name).ok_or_else(|| Failure("there is no such port".to_owned()))?;
        let is_busy = vec![false; target.reactors()];
        Ok(Self { target, loopback, port: name, clock: clock.clone(), connections: 0, is_busy })
    }

    /// A connection over the in-memory transport.
    pub(super) fn connect(&self, entries: usize) -> Option<HostEnd> {
        self.loopback.connect(entries, Arc::new(|| {})).ok()
    }

    /// A connection over TCP, whose other end this is.
    pub(super) fn accept(&mut self, stream: End) -> bool {
        self.connections = self.connections.wrapping_add(1);
        let remote = SocketAddr::from(([127, 0, 0, 1], self.connections));
        self.target.connect(&self.port, remote, Box::new(stream)).is_ok()
    }

    /// Into how many parts it falls that have their turns.
    pub(super) fn parts(&self) -> usize {
        self.target.reactors() + DRIVE_PARTS + 1
    }

    /// One of them has a turn.
    pub(super) fn step(&mut self, part: usize) {
        let now = self.clock.now();
        if let Some(is_busy) = self.is_busy.get_mut(part) {
            *is_busy = self.target.step(part);
            return;
        }
        let part = part - self.target.reactors();
        if part == DRIVE_PARTS {
            self.target.keep_time();
            return;
        }
        for stepper in self.target.drives() {
            match part {
                0 if stepper.due().is_some_and(|due| due <= now) => stepper.turn(),
                1 => _ = stepper.flush(),
                2 => _ = stepper.zero(),
                _ => {}
            }
        }
    }

    /// When there is something to do.
    pub(super) fn due(&mut self) -> Option<Instant> {
        let now = self.clock.now();
        let mut is_busy = self.is_busy.contains(&true);
        for stepper in self.target.drives() {
            is_busy |= stepper.has_flushes() || stepper.has_zeroing();
        }
        if is_busy { Some(now) } else { self.target.due() }
    }

    /// Ends it in order.
    pub(super) fn close(mut self, disk: &Disk, clock: &Clock) -> Result<(), Failure> {
        self.target.shut_down(Duration::from_secs(5));
        let end = clock.now() + PATIENCE;
        while !self.target.is_shut_down() {
            if clock.now() > end {
                return fail("the target does not come to its end");
            }
            disk.complete_due();
            (0..self.parts()).for_each(|part| self.step(part));
            let next = self.due().into_iter().chain(disk.due()).min();
            let most = clock.now() + Duration::from_millis(10);
            clock.advance_to(next.map_or(most, |next| next.clamp(clock.now() + Duration::from_nanos(200), most)));
        }
        self.target.close();
        Ok(())
    }

    /// Ends it as a kill does.
    pub(super) fn abandon(self) {
        drop(self);
    }
}

/// What the three threads of the drive do.
const DRIVE_PARTS: usize = 3;
