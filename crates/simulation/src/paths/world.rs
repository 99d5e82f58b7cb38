//! Targets, their disk, and hosts with several paths.

mod io;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use ebof_initiator::{Options, Transport};
use ebof_manage::config::AnaState;
use ebof_nvme::{HostId, Nsid};

use super::acts::{HOSTS, IoKind, What};
use super::target::{BLOCK_BYTES, NSID, PathTarget, SUBSYSTEM, Setting};
use crate::host::nqn;
use crate::host::paths::{PathHost, Way};
use crate::model::{Blocks, Op, Tick};
use crate::random::Random;
use crate::rig::acts::SystemAct;
use crate::rig::{Life as _, Rig, System};
use crate::story::{Failure, fail};
use crate::transport::fabric::Fabric;
use crate::transport::reach::Reach;
use crate::transport::stream::Carriage;
use crate::transport::wire::RdmaRoute;

/// Bytes of the disk.
const CAPACITY: u64 = 16 << 20;
/// The longest request where there are two targets: less than the Command Quiesce Time, which a
/// target cannot keep for another one if a device takes longer.
const LONGEST: Duration = Duration::from_secs(4);

/// A target, or its place.
struct Place {
    setting: Setting,
    life: Option<PathTarget>,
    /// As whom its process has the disk open.
    holder: u32,
    /// It is not started before.
    from: Instant,
    /// The access that each port gives.
    states: Vec<AnaState>,
}

/// A command that is under way.
#[derive(Clone, Debug)]
struct Flight {
    host: usize,
    kind: IoKind,
    range: Range<u64>,
    begun: Tick,
    at: Instant,
}

/// A path that is silent.
struct Silence {
    host: usize,
    path: usize,
    until: Instant,
}

pub(super) struct World {
    rig: Rig,
    places: Vec<Place>,
    /// For each path the target, and its port.
    routes: Vec<(usize, usize)>,
    hosts: Vec<PathHost>,
    blocks: Blocks,
    flights: BTreeMap<Op, Flight>,
    /// Writes that were acknowledged: when they began and ended.
    written: BTreeMap<u32, (Tick, Tick)>,
    silences: Vec<Silence>,
    /// When all ports last refused for good.
    was_lost: Option<Instant>,
    holders: u32,
}

impl World {
    pub(super) fn new(seed: u64) -> Result<Self, Failure> {
        let mut random = Random::for_part(seed, 6);
        let rig = Rig::over(seed, CAPACITY, 0);
        let (targets, ports) = random.weighted(&[(4, (1, 2)), (3, (2, 1)), (1, (2, 2))]);
        let now = rig.clock.now();
        let identifiers = random.weighted(&[(2, Some(100)), (2, Some(12)), (1, None)]);
        let place = |number| Place {
            setting: Setting {
                number,
                ports,
                reactors: 1 + number,
                identifiers: if targets > 1 { identifiers.or(Some(100)) } else { identifiers },
            },
            life: None,
            holder: 0,
            from: now,
            states: vec![AnaState::OPTIMIZED; ports],
        };
        if targets > 1 {
            rig.disk.set_longest(LONGEST);
        }
        rig.disk.take_replaced();
        let routes: Vec<(usize, usize)> = (0..ports).flat_map(|port| (0..targets).map(move |at| (at, port))).collect();
        let hosts = (0..HOSTS).map(|host| new_host(host, routes.len(), &rig, &mut random));
        Ok(Self {
            hosts: hosts.collect::<Result<_, Failure>>()?,
            places: (0..targets).map(place).collect(),
            routes,
            blocks: Blocks::new(1, BLOCK_BYTES as usize, false),
            flights: BTreeMap::new(),
            written: BTreeMap::new(),
            silences: Vec::new(),
            was_lost: None,
            holders: 0,
            rig,
        })
    }

    /// Starts the targets that are to be there.
    fn start_targets(&mut self) -> Result<(), Failure> {
        let now = self.rig.clock.now();
        for at in 0..self.places.len() {
            let place = &mut self.places[at];
            // The disk is locked as long as requests of the process before are under way.
            if place.life.is_some() || now < place.from || self.rig.disk.is_held_by(place.holder) {
                continue;
            }
            self.holders += 1;
            place.holder = self.holders;
            let target =
                PathTarget::start(place.setting, &place.states, &self.rig.disk, place.holder, &self.rig.clock)?;
            let loopback = target.loopback();
            place.life = Some(target);
            self.rig.note(|| format!("target {at} is there"));
            self.each_reach(at, |reach| reach.set_target(Some(loopback.clone())));
        }
        Ok(())
    }

    /// The ways of all hosts to a target.
    fn each_reach(&self, target: usize, of: impl Fn(&Reach)) {
        let paths = self.routes.iter().enumerate().filter(|(_, route)| route.0 == target);
        for (path, _) in paths {
            self.hosts.iter().for_each(|host| of(host.reach(path)));
        }
    }

    /// A target is gone from one moment to the next.
    fn kill_target(&mut self, at: usize, pause: Duration) {
        let now = self.rig.clock.now();
        self.each_reach(at, |reach| {
            reach.set_target(None);
            drop(reach.take_arriving());
        });
        let place = &mut self.places[at];
        if place.life.take().is_some() {
            self.rig.count("kills");
        }
        place.from = now + pause;
    }

    fn set_access(&mut self, path: usize, state: AnaState) -> Result<(), Failure> {
        let (target, port) = self.routes[path];
        let was_lost = self.is_lost();
        let place = &mut self.places[target];
        if std::mem::replace(&mut place.states[port], state) == state {
            return Ok(());
        }
        if let Some(life) = &mut place.life {
            life.set_access(port, state)?;
        }
        if was_lost || self.is_lost() {
            self.was_lost = Some(self.rig.clock.now());
        }
        Ok(())
    }

    /// Whether some port refuses for good: on all that a host has, commands may fail.
    fn is_lost(&self) -> bool {
        self.places.iter().any(|place| place.states.contains(&AnaState::PERSISTENT_LOSS))
    }

    fn silence(&mut self, host: usize, path: usize, silent: [bool; 2], time: Duration) {
        self.hosts[host].reach(path).silence(silent);
        let until = self.rig.clock.now() + time;
        self.silences.retain(|silence| (silence.host, silence.path) != (host, path));
        self.silences.push(Silence { host, path, until });
    }

    fn end_silences(&mut self, all: bool) {
        let now = self.rig.clock.now();
        let hosts = &self.hosts;
        self.silences.retain(|&Silence { host, path, until }| {
            let is_over = all || until <= now;
            if is_over {
                hosts[host].reach(path).silence([false; 2]);
            }
            !is_over
        });
    }

    /// Everything works again.
    fn heal(&mut self) -> Result<(), Failure> {
        self.end_silences(true);
        let now = self.rig.clock.now();
        for path in 0..self.routes.len() {
            self.set_access(path, AnaState::OPTIMIZED)?;
        }
        self.places.iter_mut().for_each(|place| place.from = place.from.min(now));
        self.hosts.iter().for_each(PathHost::enable_all);
        Ok(())
    }

    /// For as long as that takes, commands have this path alone, which is as good as any.
    fn be_alone(&mut self, path: usize) -> Result<(), Failure> {
        self.heal()?;
        self.rig.disk.heal();
        let others = (0..self.routes.len()).filter(|other| *other != path);
        for (host, other) in others.flat_map(|other| (0..HOSTS).map(move |host| (host, other))) {
            let silent = self.rig.chances.weighted(&[(2, [true, true]), (1, [false, true]), (1, [true, false])]);
            self.silence(host, other, silent, Duration::from_secs(3600));
        }
        self.until("what is under way, over one path alone", |world| world.flights.is_empty())?;
        io::compare(self)?;
        self.end_silences(true);
        Ok(())
    }

    fn step_host(&mut self, host: usize) -> Result<(), Failure> {
        for (path, &(target, port)) in self.routes.iter().enumerate() {
            for stream in self.hosts[host].reach(path).take_arriving() {
                if let Some(life) = &mut self.places[target].life {
                    life.accept(port, stream);
                }
            }
        }
        let now = self.rig.clock.now();
        for end in self.hosts[host].step(now)? {
            io::ended(self, end)?;
        }
        Ok(())
    }
}

/// A host with a way to each port.
fn new_host(host: usize, paths: usize, rig: &Rig, random: &mut Random) -> Result<PathHost, Failure> {
    let carriage = Carriage {
        latency: Duration::from_micros(1 << random.below(12)),
        window_bytes: 1 << (12 + random.below(6)),
        piece_bytes: 1 << (6 + random.below(11)),
    };
    let clock = &rig.clock;
    let keep_alive_ms = random.weighted(&[(2, 1000), (2, 5000), (1, 2500)]);
    let name = nqn(&format!("nqn.2014-08.org.example:host{host}"))?;
    let subsystem = nqn(SUBSYSTEM)?;
    let digests = random.percent(30);
    let ways = (0..paths).map(|_| {
        let fabric = Fabric::new(clock, random.number());
        let route = RdmaRoute { fabric, from: Fabric::address(host) };
        let reach = Reach::new(clock, carriage, route, random.number());
        let mut options = Options::loopback(reach.port(), subsystem.clone());
        options.transport = Transport::Streams(reach.dialer());
        (options.host_nqn, options.host_id) = (name.clone(), HostId([u8::try_from(host + 1).unwrap_or(0); 16]));
        options.clock = clock.clone();
        options.nr_io_queues = 3;
        options.queue_size = 16;
        options.keep_alive_ms = keep_alive_ms;
        (options.hdr_digest, options.data_digest) = (digests, digests);
        options.reconnect_delay_ms = 1000;
        options.connect_timeout_ms = 3000;
        options.command_timeout_ms = 120_000;
        options.ctrl_loss_tmo = None;
        options.path_loss_tmo = None;
        Way { options, reach }
    });
    let ways = ways.collect();
    let opening = (1 + random.index(2), Duration::from_micros(1 << random.below(18)));
    Ok(PathHost::new(ways, Nsid(NSID), opening, clock.now()))
}

impl System for World {
    type What = What;

    fn rig(&mut self) -> &mut Rig {
        &mut self.rig
    }

    fn act(&mut self, what: What) -> Result<(), Failure> {
        let paths = self.routes.len();
        match what {
            What::Io { host, block, count, kind, times } => {
                (0..times).for_each(|time| io::send(self, host, kind, block + time, count));
            }
            What::Cut { host, path, connection, bytes } => {
                self.hosts[host].reach(path % paths).break_after(connection, bytes);
            }
            What::CutAll { host, path } => self.hosts[host].reach(path % paths).cut(),
            What::Silence { host, path, silent, time } => {
                self.rig.count("silences");
                let hosts = host.map_or(0..HOSTS, |host| host..host + 1);
                hosts.for_each(|host| self.silence(host, path % paths, silent, time));
            }
            What::Ana { path, state } => return self.set_access(path % paths, state),
            What::Kill { path, pause } => self.kill_target(self.routes[path % paths].0, pause),
            What::Alone { path } => return self.be_alone(path % paths),
            What::Policy { host, policy } => self.hosts[host].set_policy(policy),
            What::Enable { host, path, is_enabled } => self.hosts[host].set_enabled(path % paths, is_enabled),
            // A rest of the disk alone.
            What::System(SystemAct::Rest) => {
                self.heal()?;
                return self.system_act(SystemAct::Rest);
            }
            What::System(act) => return self.system_act(act),
        }
        Ok(())
    }

    fn parts(&self) -> usize {
        let lives = self.places.iter().filter_map(|place| place.life.as_ref());
        HOSTS + lives.map(|life| life.parts()).sum::<usize>()
    }

    fn turn(&mut self, part: usize) -> Result<(), Failure> {
        let Some(mut part) = part.checked_sub(HOSTS) else { return self.step_host(part) };
        for life in self.places.iter_mut().filter_map(|place| place.life.as_mut()) {
            match part.checked_sub(life.parts()) {
                None => {
                    life.turn(part);
                    break;
                }
                Some(rest) => part = rest,
            }
        }
        Ok(())
    }

    fn after_turns(&mut self) -> Result<(), Failure> {
        io::check_replaced(self)?;
        self.end_silences(false);
        self.start_targets()
    }

    fn due(&mut self) -> Option<Instant> {
        let now = self.rig.clock.now();
        let hosts = self.hosts.iter_mut().filter_map(|host| host.due(now)).min();
        let lives = self.places.iter_mut().filter_map(|place| place.life.as_mut());
        let lives = lives.filter_map(|life| life.due()).min();
        let silences = self.silences.iter().map(|silence| silence.until).min();
        let starts = self.places.iter().filter(|place| place.life.is_none()).map(|place| place.from);
        let starts = starts.filter(|from| *from > now).min();
        [hosts, lives, silences, starts].into_iter().flatten().min()
    }

    fn under_way(&self) -> String {
        let few: Vec<String> = self.flights.iter().take(8).map(|(op, flight)| format!("{op}: {flight:?}")).collect();
        let hosts: Vec<String> = self.hosts.iter().map(PathHost::describe).collect();
        format!("{}; paths: {hosts:?}", few.join(", "))
    }

    fn each_blocks(&mut self, mut change: impl FnMut(&mut Blocks)) {
        change(&mut self.blocks);
    }

    fn start(&mut self) -> Result<(), Failure> {
        let now = self.rig.clock.now();
        self.places.iter_mut().for_each(|place| place.from = now);
        self.drain()
    }

    fn stop(&mut self) -> Result<(), Failure> {
        for at in 0..self.places.len() {
            self.each_reach(at, |reach| {
                reach.set_target(None);
                drop(reach.take_arriving());
            });
            if let Some(mut life) = self.places[at].life.take() {
                life.shut_down();
                self.rig.wind_up(&mut life)?;
                life.close();
            }
        }
        Ok(())
    }

    fn kill(&mut self) -> Result<(), Failure> {
        fail("targets are killed one by one")
    }

    fn drain(&mut self) -> Result<(), Failure> {
        self.heal()?;
        self.until("all that is under way", |world| {
            world.flights.is_empty() && world.hosts.iter().all(|host| host.is_ready())
        })?;
        io::compare(self)
    }
}
