//! A target, its disk and its hosts, one step after the other, and what the hosts may see.

mod io;
mod learn;
mod lives;
mod manage;
mod reserve;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_clock::Clock;
use ebof_drive::BlockFormat;
use ebof_nvme::{Nqn, Status};

use super::PATIENCE;
use super::acts::{Act, HOSTS, SLOTS, What};
use super::life::{Life, Setting};
use crate::disk::{Disk, Profile};
use crate::host::{Event, Host};
use crate::image::Image;
use crate::model::{Blocks, Op, Tick};
use crate::random::{Random, mix};
use crate::story::{Failure, Report, fail, trace};
use crate::stream::{self, Carriage};
use crate::wire::{Command, Outcome, Wire};

/// Bytes of a drive: sixteen extents.
pub(super) const CAPACITY: u64 = 4 << 20;
/// Bytes of an extent.
const EXTENT: u64 = 256 << 10;
/// Extents of a namespace.
const EXTENTS: u64 = 3;
/// After the last failure of the disk, for so long something may fail for that reason.
const GRACE: Duration = Duration::from_secs(3);

/// A namespace.
struct Space {
    blocks: Blocks,
    /// Index of its LBA format.
    format: usize,
    /// Blocks of it.
    count: u64,
    /// When it was made, or formatted.
    born: Tick,
    /// It is changed as a whole, or may have been: nobody uses it.
    is_unsure: bool,
    /// Hosts that have not asked what it is since it is there, or since they are connected.
    strangers: BTreeSet<usize>,
    /// Reservations were asked for.
    is_reserved: bool,
}

/// A command that is under way, or was when its connection went.
#[derive(Clone, Debug)]
struct Flight {
    host: usize,
    nsid: u32,
    kind: Kind,
    range: Range<u64>,
    begun: Tick,
    at: Instant,
}

/// What a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write {
        fua: bool,
    },
    Zero,
    Bad,
    Flush,
    /// One that changes namespaces as a whole.
    Manage,
    /// The list of the namespaces.
    List,
    /// What a namespace is like.
    Shape,
    /// How far sanitizing is.
    Sanitizing,
    /// What a namespace is like, for a host that is about to use it; and what comes before that.
    Learn,
    Prepare,
    /// A read by a host that has not asked since another namespace came under the number of one
    /// that it knew.
    Stale,
    /// Who is preempted, and has his commands aborted.
    Preempt(usize),
    Register,
    Reserve,
}

pub(super) struct World {
    seed: u64,
    clock: Clock,
    begin: Instant,
    chances: Random,
    profile: Profile,
    setting: Setting,
    carriage: Carriage,
    disk: Arc<Disk>,
    life: Option<Life>,
    hosts: Vec<Host>,
    spaces: BTreeMap<u32, Space>,
    /// Hosts that knew a namespace that is gone, by its number, and have not asked since.
    stale: BTreeMap<u32, BTreeSet<usize>>,
    flights: BTreeMap<Op, Flight>,
    /// Commands whose connections are gone: they may be done still.
    ghosts: BTreeMap<Op, Flight>,
    manage: manage::Manage,
    /// Hosts that are surely registered with a namespace.
    registered: BTreeSet<(u32, usize)>,
    /// When somebody may last have taken registrations of it away.
    unregistered: BTreeMap<u32, Tick>,
    tick: Tick,
    next: u64,
    owners: u16,
    /// By serial number, what was written where.
    written: BTreeMap<u32, (u16, Range<u64>)>,
    failed: Option<Instant>,
    is_comparing: bool,
    /// Steps for which there was something due at once.
    hurries: u32,
    digest: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl World {
    pub(super) fn new(seed: u64) -> Result<Self, Failure> {
        let mut random = Random::of(seed, 2);
        let clock = Clock::simulated(random.number());
        let sector_bytes = if random.percent(60) { 512 } else { 4096 };
        let profile = Profile {
            capacity_bytes: ebof_medium::medium_bytes(CAPACITY).map_err(|error| Failure(error.to_string()))?,
            sector_bytes,
            quick: Duration::from_micros(1 << random.below(10)),
            slow: (random.below(8), Duration::from_millis(1 << random.below(9))),
        };
        let encrypts = random.percent(40);
        // A block that is encrypted and has no checksum is a mixture when it is torn: of sectors
        // that nobody wrote.
        let checks = random.percent(40) || encrypts && sector_bytes == 512;
        let setting = Setting { encrypts, checks, reactors: 1 + random.index(2) };
        let carriage = Carriage {
            latency: Duration::from_micros(1 << random.below(12)),
            window_bytes: 1 << (10 + random.below(8)),
            piece_bytes: 1 << (4 + random.below(13)),
        };
        let disk = Disk::new(profile, Image::default(), clock.clone(), random.number());
        let begin = clock.now();
        let subsystem = nqn(super::life::SUBSYSTEM)?;
        let mut hosts = Vec::new();
        for number in 0..HOSTS {
            let name = nqn(&format!("nqn.2014-08.org.example:host{number}"))?;
            let id = [u8::try_from(number + 1).unwrap_or(u8::MAX); 16];
            let (queues, entries) = (1 + u16::try_from(random.below(3)).unwrap_or(0), 4 << random.below(4));
            hosts.push(Host::new(name, id, subsystem.clone(), queues, entries, begin));
        }
        let mut world = Self {
            seed,
            clock,
            begin,
            chances: random,
            profile,
            setting,
            carriage,
            disk,
            life: None,
            hosts,
            spaces: BTreeMap::new(),
            stale: BTreeMap::new(),
            flights: BTreeMap::new(),
            ghosts: BTreeMap::new(),
            manage: manage::Manage::default(),
            registered: BTreeSet::new(),
            unregistered: BTreeMap::new(),
            tick: 1,
            next: 1,
            owners: 0,
            written: BTreeMap::new(),
            failed: None,
            is_comparing: false,
            hurries: 0,
            digest: 0,
            counts: BTreeMap::new(),
        };
        world.open()?;
        Ok(world)
    }

    pub(super) fn report(&self) -> Report {
        let mut counts: BTreeMap<&'static str, u64> = self.counts.clone();
        for (name, count) in self.disk.counts() {
            *counts.entry(name).or_default() += count;
        }
        let time = self.clock.now() - self.begin;
        Report { time, counts: counts.into_iter().collect(), digest: self.digest ^ self.disk.image().digest() }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn now(&mut self) -> Tick {
        self.tick += 2;
        self.tick
    }

    fn note(&self, line: impl FnOnce() -> String) {
        let time = self.clock.now() - self.begin;
        trace(|| format!("{time:?} {}", line()));
    }

    pub(super) fn play(&mut self, act: &Act) -> Result<(), Failure> {
        self.chances = Random::new(act.chances);
        let what = act.what;
        self.note(|| format!("-- {what:?}"));
        self.act(what)?;
        for _ in 0..act.steps {
            self.step()?;
        }
        Ok(())
    }

    fn act(&mut self, what: What) -> Result<(), Failure> {
        let now = self.clock.now();
        match what {
            What::Io { host, queue, slot, block, count, io } => self.io(host, queue, slot, block, count, io),
            What::Create { host, format } => self.create(host, format),
            What::Delete { host, slot } => self.delete(host, slot),
            What::Format { host, slot, format, erase } => self.format(host, slot, format, erase),
            What::Sanitize { host, overwrite } => self.sanitize(host, overwrite),
            What::Reserve { host, queue, slot, reserve } => self.reserve(host, queue, slot, reserve),
            What::Break { host, queue, bytes } => {
                self.hosts[host].break_after(queue, bytes);
                Ok(())
            }
            What::Vanish { host, pause } => {
                let lost = self.hosts[host].drop_all(now, pause);
                lost.into_iter().try_for_each(|event| self.told(host, event))
            }
            What::Leave { host, shutdown, reset } => {
                self.hosts[host].leave(shutdown, reset, now);
                Ok(())
            }
            What::Sleep(time) => self.sleep(time),
            What::Fail(fault) => {
                self.disk.fail(fault);
                Ok(())
            }
            What::Stand(time) => {
                self.disk.stand(time);
                Ok(())
            }
            What::Heal => {
                self.disk.heal();
                Ok(())
            }
            What::Rest => self.rest(),
            What::Restart => self.restart(),
            What::Kill { after } => self.crash(after, None),
            What::PowerCut { after, loss } => self.crash(after, Some(loss)),
        }
    }

    /// The namespace that an act means.
    fn nsid(&self, slot: usize) -> Option<u32> {
        let count = self.spaces.len().min(SLOTS);
        self.spaces.keys().copied().nth(slot % count.max(1))
    }

    /// How the blocks of a format are kept.
    fn coding(&self, format: usize) -> BlockFormat {
        BlockFormat {
            block_shift: if format.is_multiple_of(2) { 9 } else { 12 },
            metadata_bytes: if format < 2 { 0 } else { 8 },
            checked: self.setting.checks,
            encrypted: self.setting.encrypts,
        }
    }

    /// The LBA format that an act means, of those that the disk has sectors for.
    fn format_index(&self, format: usize) -> usize {
        if self.profile.sector_bytes == 512 { format % 4 } else { (format % 4) | 1 }
    }

    /// A namespace of this format that reads as zeros.
    fn space(&mut self, format: usize, count: u64) -> Space {
        let (coding, born) = (self.coding(format), self.now());
        self.owners += 1;
        let bytes = usize::try_from(coding.block_bytes()).expect("few");
        let blocks = Blocks::new(self.owners, bytes, coding.is_tagged());
        Space { blocks, format, count, born, is_unsure: false, strangers: (0..HOSTS).collect(), is_reserved: false }
    }

    /// Whether something that began then may fail for what the disk did.
    fn may_fail(&self, began: Instant) -> bool {
        self.disk.is_faulty() || self.failed.is_some_and(|failed| began <= failed + GRACE)
    }

    // ---- Steps

    fn submit(&mut self, host: usize, queue: usize, flight: Flight, command: Command) -> bool {
        let op = self.next;
        let name = command.sqe.opcode;
        let is_sent = self.hosts[host].submit(queue, op, command, self.clock.now());
        if is_sent {
            if !self.is_comparing {
                let (kind, nsid, range) = (flight.kind, flight.nsid, &flight.range);
                self.note(|| format!("{op}: host {host}, queue {queue}: {name:02x}h, {kind:?} {range:?} of {nsid}"));
            }
            self.count("commands");
            self.flights.insert(op, flight);
        }
        is_sent
    }

    /// A number for the next command; also the serial number of what it writes.
    fn number(&mut self) -> Op {
        self.next += 1;
        self.next
    }

    /// Something happens somewhere.
    fn step(&mut self) -> Result<(), Failure> {
        if self.disk.is_faulty() {
            self.failed = Some(self.clock.now());
        }
        let parts = self.life.as_ref().map_or(0, Life::parts);
        let mut order: Vec<usize> = (0..parts + 1 + HOSTS).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, self.chances.index(at + 1));
        }
        let mut is_late = false;
        for part in order {
            // Not always everybody: who is late is late by a random time.
            if self.chances.percent(20) {
                is_late = true;
                continue;
            }
            if part < parts {
                if let Some(life) = &mut self.life {
                    life.step(part);
                }
            } else if part == parts {
                self.disk.complete_due();
            } else {
                self.step_host(part - parts - 1)?;
            }
        }
        if !is_late {
            self.pass_time();
        }
        if self.disk.is_faulty() {
            self.failed = Some(self.clock.now());
        }
        self.step_manage()
    }

    /// Lets time pass until somebody has something to do.
    fn pass_time(&mut self) {
        let now = self.clock.now();
        let hosts = self.hosts.iter().filter_map(|host| host.due(now));
        let life = self.life.as_mut().and_then(Life::due);
        let due = hosts.chain(life).chain(self.disk.due()).min();
        let most = now + Duration::from_millis(10);
        let is_due = due.is_some_and(|due| due <= now);
        self.hurries = if is_due { (self.hurries + 1).min(120) } else { 0 };
        // What is due at once was looked at: the time still goes on, a little and then more.
        let least = now + Duration::from_nanos(200 << (self.hurries / 8));
        self.clock.advance_to(due.unwrap_or(most).clamp(least, most.max(least)));
    }

    fn step_host(&mut self, host: usize) -> Result<(), Failure> {
        let (now, clock, carriage) = (self.clock.now(), &self.clock, self.carriage);
        let (life, chances) = (&mut self.life, &mut self.chances);
        let mut connect = |entries: usize| -> Option<Wire> {
            let life = life.as_mut()?;
            if chances.percent(40) {
                return life.connect(entries).map(Wire::loopback);
            }
            let (end, far, watch) = stream::pair(clock, carriage, chances.number());
            let (digests, in_capsule) = (chances.percent(30), if chances.percent(50) { 4096 } else { 1024 });
            life.accept(far).then(|| Wire::tcp(end, watch, digests, in_capsule, entries))
        };
        let events = self.hosts[host].step(now, &mut connect)?;
        let is_off = self.disk.is_off();
        for event in events {
            // Where the machine has stopped, what it seems to say is not said.
            let event = match event {
                Event::Ended(op, _) if is_off => Event::Lost(vec![op]),
                Event::Settled | Event::Live if is_off => continue,
                event => event,
            };
            self.told(host, event)?;
        }
        Ok(())
    }

    /// A host was told something.
    fn told(&mut self, host: usize, event: Event) -> Result<(), Failure> {
        match event {
            Event::Ended(op, ended) => self.ended(op, &ended),
            Event::Lost(ops) => {
                self.note(|| format!("host {host} has lost its connections, with {ops:?}"));
                for op in ops {
                    let Some(flight) = self.flights.remove(&op) else { continue };
                    if let Some(space) = self.spaces.get_mut(&flight.nsid) {
                        space.blocks.end_read(op);
                    }
                    self.lost_manage(op, &flight);
                    self.ghosts.insert(op, flight);
                }
                Ok(())
            }
            Event::Settled => {
                self.settle(|flight| flight.host == host);
                Ok(())
            }
            Event::Live => {
                self.note(|| format!("host {host} is connected"));
                self.spaces.values_mut().for_each(|space| _ = space.strangers.insert(host));
                self.forget_stale(host);
                self.count("associations");
                Ok(())
            }
        }
    }

    /// These of the commands whose connections are gone can do nothing any more.
    fn settle(&mut self, which: impl Fn(&Flight) -> bool) {
        let now = self.now();
        let spaces = &mut self.spaces;
        self.ghosts.retain(|&op, flight| {
            let is_over = which(flight);
            if is_over && let Some(space) = spaces.get_mut(&flight.nsid) {
                space.blocks.end_unknown(op, flight.range.clone(), now);
            }
            !is_over
        });
    }

    fn ended(&mut self, op: Op, ended: &Outcome) -> Result<(), Failure> {
        let Some(flight) = self.flights.remove(&op) else { return fail(format!("{op} has ended twice")) };
        let status = ended.cqe.status();
        self.digest = mix(self.digest ^ op ^ u64::from(status.0) << 32);
        if !self.is_comparing || !status.is_success() {
            let Flight { host, kind, .. } = flight;
            self.note(|| format!("{op}: {kind:?} of host {host} has ended: {status}"));
        }
        match flight.kind {
            Kind::Read | Kind::Write { .. } | Kind::Zero | Kind::Bad | Kind::Flush => self.io_ended(op, &flight, ended),
            Kind::Manage | Kind::List | Kind::Shape | Kind::Sanitizing => self.manage_ended(op, &flight, ended),
            Kind::Preempt(_) | Kind::Register | Kind::Reserve => self.reserve_ended(op, &flight, status),
            Kind::Learn | Kind::Prepare => self.learn_ended(op, &flight, ended),
            Kind::Stale => self.stale_ended(&flight, status),
        }
    }

    /// A command has failed in a way that nothing explains.
    fn unexplained(&self, op: Op, flight: &Flight, status: Status) -> Failure {
        let Flight { host, kind, nsid, range, .. } = flight;
        let what = format!("{kind:?} {range:?} of namespace {nsid} by host {host}");
        Failure(format!("{op}: {what} fails without a reason: {status}"))
    }

    /// Whether the host leaves, or somebody takes its commands away: they may end unfinished.
    fn may_be_aborted(&self, flight: &Flight, status: Status) -> bool {
        let space = self.spaces.get(&flight.nsid);
        let leaves = !self.hosts[flight.host].is_live();
        let preempted = status.is(Status::PREEMPT_ABORT) && space.is_none_or(|space| space.is_reserved);
        leaves || preempted
    }

    /// Steps until something holds; `false` where the power goes before that.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) -> Result<bool, Failure> {
        let end = self.clock.now() + PATIENCE;
        let mut steps = 0_u32;
        loop {
            if self.disk.is_off() {
                return Ok(false);
            }
            if holds(self) {
                return Ok(true);
            }
            steps += 1;
            if self.clock.now() > end || steps > 400_000 {
                let flights: Vec<String> =
                    self.flights.iter().take(8).map(|(op, flight)| format!("{op}: {flight:?}")).collect();
                return fail(format!("{what}: this does not come to its end; under way: {}", flights.join(", ")));
            }
            self.step()?;
        }
    }

    fn sleep(&mut self, time: Duration) -> Result<(), Failure> {
        let end = self.clock.now() + time;
        for _ in 0..3000 {
            if self.clock.now() >= end || self.disk.is_off() {
                break;
            }
            self.step()?;
        }
        Ok(())
    }
}

fn nqn(text: &str) -> Result<Nqn, Failure> {
    Nqn::parse(text).map_err(|error| Failure(format!("{text}: {error}")))
}

/// The command set's opcodes that name blocks, and their data.
fn command(sqe: ebof_nvme::Sqe, data: Option<Arc<[u8]>>, read_bytes: usize) -> Command {
    Command { sqe, data, read_bytes: u32::try_from(read_bytes).unwrap_or(u32::MAX) }
}
