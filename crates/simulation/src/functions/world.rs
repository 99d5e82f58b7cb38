//! A target, its disk, its hosts and its box.

mod boxed;
mod io;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use ebof_manage::config::Attach;

use super::acts::{FUNCTIONS, HOSTS_EACH, NAMESPACES, PORTS, What};
use crate::host::{Event, RawHost, nqn};
use crate::model::{Blocks, Op, Tick, serial};
use crate::random::Random;
use crate::rig::{EXTENT, Life as _, Rig, System};
use crate::story::{Failure, fail};
use crate::target_life::{Life, SUBSYSTEM, Setting};
use crate::transport::stream::{self, Carriage};
use crate::transport::wire::Wire;
use boxed::{BoxChange, OpenChange};

/// Bytes of the drive.
const CAPACITY: u64 = 40 * EXTENT;
/// Bytes of a block: as many as any disk has in a sector at most.
const BLOCK_BYTES: u32 = 4096;
/// Blocks of a namespace.
const COUNT: u64 = 4 * EXTENT / BLOCK_BYTES as u64;
/// All hosts.
const HOSTS: usize = HOSTS_EACH * FUNCTIONS as usize;

/// A namespace.
struct Space {
    blocks: Blocks,
    /// The function that has it, as last reported to the box.
    owner: Option<u16>,
    /// When it was reported, and
    since: Tick,
    /// whether it has asked for something else, and does not know what has come of it.
    is_moving: bool,
    reservation: Reservation,
}

/// Who may write to a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reservation {
    /// Everybody whose function has it.
    Free { since: Tick },
    /// This host alone.
    Held { host: usize, since: Tick },
    /// Nobody knows.
    Unsure,
}

/// A function, as last reported to the box.
#[derive(Clone, Copy, Debug, Default)]
struct Function {
    port: Option<usize>,
    is_online: bool,
    queues: u16,
    interrupts: u16,
    since: Tick,
    is_changing: bool,
}

/// A command that is under way, or was when its connection went.
#[derive(Clone, Debug)]
struct Flight {
    host: usize,
    /// The port of its controller.
    port: usize,
    nsid: u32,
    kind: Kind,
    range: Range<u64>,
    begun: Tick,
    at: Instant,
    /// It was reported to the box that it has ended.
    is_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Flush,
    Register,
    Acquire,
    Clear,
}

pub(super) struct World {
    rig: Rig,
    setting: Setting,
    carriage: Carriage,
    life: Option<Life>,
    hosts: Vec<RawHost>,
    /// The ports of their controllers.
    at_port: [usize; HOSTS],
    spaces: BTreeMap<u32, Space>,
    functions: BTreeMap<u16, Function>,
    /// What the box will ask for.
    changes: VecDeque<BoxChange>,
    asked: Option<OpenChange>,
    flights: BTreeMap<Op, Flight>,
    /// Those whose connections are gone, until their hosts have others.
    ghosts: BTreeMap<Op, Flight>,
    /// What is to be read again, at rest.
    unread: Vec<(u32, u64)>,
}

fn function_of(host: usize) -> u16 {
    1 + u16::try_from(host / HOSTS_EACH).unwrap_or(0)
}

impl World {
    pub(super) fn new(seed: u64) -> Result<Self, Failure> {
        let mut random = Random::for_part(seed, 5);
        let rig = Rig::new(seed, CAPACITY)?;
        let setting = Setting {
            reactors: 1 + random.index(3),
            attach: Attach::Nobody,
            functions: FUNCTIONS,
            ..Setting::with_capacity(CAPACITY)
        };
        let carriage = Carriage {
            latency: Duration::from_micros(1 << random.below(12)),
            window_bytes: 1 << (9 + random.below(9)),
            piece_bytes: 1 << (6 + random.below(11)),
        };
        let now = rig.clock.now();
        let host = |host: usize| {
            let (name, function) = (nqn(&format!("nqn.2014-08.org.example:host{host}"))?, function_of(host));
            let id = [u8::try_from(host + 1).unwrap_or(0); 16];
            Ok(RawHost::new(name, id, nqn(&format!("{SUBSYSTEM}:vf{function}"))?, 1, 16, now).patient())
        };
        Ok(Self {
            rig,
            setting,
            carriage,
            life: None,
            hosts: (0..HOSTS).map(host).collect::<Result<_, Failure>>()?,
            at_port: [0; HOSTS],
            spaces: BTreeMap::new(),
            functions: (1..=FUNCTIONS).map(|id| (id, Function::default())).collect(),
            changes: VecDeque::new(),
            asked: None,
            flights: BTreeMap::new(),
            ghosts: BTreeMap::new(),
            unread: Vec::new(),
        })
    }

    fn step_host(&mut self, host: usize) -> Result<(), Failure> {
        let (now, clock, carriage) = (self.rig.clock.now(), &self.rig.clock, self.carriage);
        let (life, chances, at_port) = (&mut self.life, &mut self.rig.chances, &mut self.at_port[host]);
        let function = self.functions[&function_of(host)];
        let mut connect = |queue: u16, entries: usize| -> Option<Wire> {
            let life = life.as_mut()?;
            if queue == 0 {
                // Where it is, or anywhere.
                *at_port = function.port.filter(|_| chances.percent(80)).unwrap_or(chances.index(PORTS));
            }
            if chances.percent(40) {
                return life.connect_at(*at_port, entries).map(Wire::loopback);
            }
            let (end, far, watch) = stream::pair(clock, carriage, chances.number());
            let (digests, in_capsule) = (chances.percent(30), if chances.percent(50) { 4096 } else { 0 });
            life.accept_at(*at_port, far).then(|| Wire::tcp(end, watch, digests, in_capsule, entries))
        };
        let events = self.hosts[host].step(now, &mut connect)?;
        let is_off = self.rig.disk.is_off();
        for event in events {
            // Where the machine has stopped, what it seems to say is not said.
            match event {
                Event::Ended(op, _) if is_off => self.lost(&[op]),
                Event::Ended(op, ended) => io::ended(self, op, &ended)?,
                Event::Lost(ops) => self.lost(&ops),
                Event::Settled if !is_off => self.on_reconnected(host)?,
                Event::Live if !is_off => {
                    self.rig.count("associations");
                    self.rig.note(|| format!("host {host} is connected"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn lost(&mut self, ops: &[Op]) {
        for op in ops {
            let Some(flight) = self.flights.remove(op) else { continue };
            if let Some(space) = self.spaces.get_mut(&flight.nsid) {
                space.blocks.end_read(*op);
            }
            if self.rig.is_comparing && flight.kind == Kind::Read {
                self.unread.push((flight.nsid, flight.range.start));
            }
            self.ghosts.insert(*op, flight);
        }
    }

    /// A host has a controller again.
    fn on_reconnected(&mut self, host: usize) -> Result<(), Failure> {
        self.bar(&format!("host {host} is connected again"), |flight, is_ghost| is_ghost && flight.host == host)?;
        self.ghosts.retain(|_, flight| flight.host != host);
        Ok(())
    }

    /// These commands can do nothing any more: none of their writes is at the disk, nor comes
    /// there.
    fn bar(&mut self, why: &str, which: impl Fn(&Flight, bool) -> bool) -> Result<(), Failure> {
        let now = self.rig.now();
        let mut writes: Vec<(u32, u32)> = Vec::new();
        let (flights, ghosts) = (&mut self.flights, &mut self.ghosts);
        let live = flights.iter_mut().map(|(op, flight)| (*op, flight, false));
        let all = live.chain(ghosts.iter_mut().map(|(op, flight)| (*op, flight, true)));
        for (op, flight, is_ghost) in all {
            let Some(space) = self.spaces.get_mut(&flight.nsid) else { continue };
            if flight.is_over || !which(flight, is_ghost) {
                continue;
            }
            flight.is_over = true;
            if flight.kind == Kind::Write {
                space.blocks.end_unknown(op, flight.range.clone(), now);
                writes.push((flight.nsid, serial(op)));
            }
        }
        let mark = |(nsid, serial): &(u32, u32)| self.spaces[nsid].blocks.mark(*serial);
        self.rig.disk.bar(writes.iter().map(mark));
        for (nsid, serial) in writes {
            let blocks = &self.spaces[&nsid].blocks;
            if self.rig.disk.writes_under_way(|word| blocks.serial_in(word)).contains(&serial) {
                return fail(format!("{why}, and write #{serial} to namespace {nsid} is still at the disk"));
            }
        }
        Ok(())
    }

    /// The target is gone, and all connections with it.
    fn drop_hosts(&mut self) {
        let now = self.rig.clock.now();
        for host in 0..HOSTS {
            if let Some(Event::Lost(ops)) = self.hosts[host].drop_all(now, Duration::from_millis(1)) {
                self.lost(&ops);
            }
        }
        let now = self.rig.now();
        for (op, flight) in std::mem::take(&mut self.ghosts) {
            if let Some(space) = self.spaces.get_mut(&flight.nsid).filter(|_| !flight.is_over) {
                space.blocks.end_unknown(op, flight.range, now);
            }
        }
    }

    /// A host that can use the function now.
    fn host_at(&self, function: u16, from: usize) -> Option<usize> {
        let hosts = (0..HOSTS).map(|at| (at + from) % HOSTS).filter(|&host| function_of(host) == function);
        hosts.into_iter().find(|&host| self.hosts[host].is_live())
    }

    /// Whether hosts can reach the function.
    fn is_there(&self, function: u16) -> bool {
        let function = &self.functions[&function];
        function.is_online && function.port.is_some()
    }

    fn set_up(&mut self) -> Result<(), Failure> {
        for nsid in 1..=NAMESPACES {
            self.changes.push_back(BoxChange::Create { nsid });
        }
        for id in 1..=FUNCTIONS {
            boxed::bring_online(self, id, 2);
            self.changes.push_back(BoxChange::GiveTo { function: id, port: Some(0) });
        }
        for nsid in 1..=NAMESPACES {
            self.changes.push_back(BoxChange::Map { nsid, function: u16::try_from(nsid).ok() });
        }
        self.until("the first functions", |world| world.changes.is_empty() && world.asked.is_none()).map(drop)
    }
}

impl System for World {
    type What = What;

    fn rig(&mut self) -> &mut Rig {
        &mut self.rig
    }

    fn act(&mut self, what: What) -> Result<(), Failure> {
        match what {
            What::Io { stranger, host, nsid, block, count, writes, times } => {
                let Some(host) = io::user(self, stranger, host, nsid) else { return Ok(()) };
                (0..times).for_each(|at| io::transfer(self, host, nsid, block + at, count, writes));
            }
            What::Flush { host, nsid } => {
                if let Some(host) = io::user(self, false, host, nsid) {
                    io::flush(self, host, nsid);
                }
            }
            What::Reserve { host, nsid, clears } => {
                if let Some(host) = io::user(self, false, host, nsid) {
                    io::reserve(self, host, nsid, clears);
                }
            }
            What::Vanish { host, pause } => {
                let now = self.rig.clock.now();
                if let Some(Event::Lost(ops)) = self.hosts[host].drop_all(now, pause) {
                    self.lost(&ops);
                }
            }
            What::System(act) => return self.system_act(act),
            what => boxed::change(self, what),
        }
        Ok(())
    }

    fn parts(&self) -> usize {
        self.life.as_ref().map_or(0, |life| life.parts()) + HOSTS
    }

    fn turn(&mut self, part: usize) -> Result<(), Failure> {
        match part.checked_sub(HOSTS) {
            None => self.step_host(part),
            Some(part) => {
                self.life.iter_mut().for_each(|life| life.turn(part));
                Ok(())
            }
        }
    }

    fn after_turns(&mut self) -> Result<(), Failure> {
        if let Some(word) = self.rig.disk.late() {
            let (owner, serial) = (word >> 48, word & 0xffff_ffff);
            return fail(format!("write #{serial} of namespace {owner} begins after it was taken from its host"));
        }
        boxed::step_box(self)
    }

    fn due(&mut self) -> Option<Instant> {
        let now = self.rig.clock.now();
        let hosts = self.hosts.iter().filter_map(|host| host.due(now)).min();
        hosts.into_iter().chain(self.life.as_mut().and_then(|life| life.due())).min()
    }

    fn under_way(&self) -> String {
        let few: Vec<String> = self.flights.iter().take(8).map(|(op, flight)| format!("{op}: {flight:?}")).collect();
        let asked = self.asked.as_ref().map(|asked| asked.change);
        let missing: Vec<usize> = (0..HOSTS).filter(|&host| !self.hosts[host].is_live()).collect();
        format!("{asked:?}, {:?}, without hosts {missing:?}: {}", self.changes, few.join(", "))
    }

    fn each_blocks(&mut self, change: impl FnMut(&mut Blocks)) {
        self.spaces.values_mut().map(|space| &mut space.blocks).for_each(change);
    }

    fn start(&mut self) -> Result<(), Failure> {
        self.life = Some(Life::open(&self.rig.disk, &self.rig.clock, self.setting, None, (None, None))?);
        if self.spaces.is_empty() {
            return self.set_up();
        }
        self.until("what the box had asked for", |world| world.changes.is_empty() && world.asked.is_none())?;
        io::compare(self)
    }

    fn stop(&mut self) -> Result<(), Failure> {
        boxed::forget_answer(self);
        if let Some(mut life) = self.life.take() {
            life.shut_down();
            self.rig.wind_up(&mut life)?;
            life.close();
        }
        self.drop_hosts();
        Ok(())
    }

    fn kill(&mut self) -> Result<(), Failure> {
        boxed::forget_answer(self);
        self.life = None;
        self.drop_hosts();
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Failure> {
        self.until("all that is under way", |world| {
            world.flights.is_empty() && world.changes.is_empty() && world.asked.is_none()
        })?;
        io::compare(self)
    }
}
