//! A target, its disk and its hosts, one step after the other, and what the hosts may see.

mod compare;
mod events;
mod io;
mod learn;
mod liar;
mod lives;
mod manage;
mod proofs;
mod replay;
mod reserve;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_drive::BlockFormat;
use ebof_nvme::{Nqn, Status};

use super::acts::{BLOCKS, HOSTS, SLOTS, What};
use super::is_proven;
use crate::host::liar::Liar;
use crate::host::{Event, Host, InitiatorHost, RawHost, nqn};
use crate::model::{Blocks, InFlux, Op, Tick, serial};
use crate::random::Random;
use crate::rig::{Life as _, Rig, System};
use crate::story::{Failure, fail};
use crate::target_life::{Life, SUBSYSTEM, Setting};
use crate::transport::fabric::Fabric;
use crate::transport::reach::Reach;
use crate::transport::stream::{self, Carriage};
use crate::transport::wire::{Command, CompletedCommand, RdmaRoute, Wire};

/// Bytes of a drive: sixteen extents.
const CAPACITY: u64 = 4 << 20;
/// Extents of a namespace.
const EXTENTS: u64 = 3;

/// What commands end with that their host's leaving interrupts.
const ABORTED_STATUSES: [Status; 4] = [
    Status::ABORT_REQUESTED,
    Status::ABORTED_SQ_DELETION,
    Status::ABORTED_MISSING_FUSED,
    Status::COMMAND_SEQUENCE_ERROR,
];

/// An initiator's command time-out, as its options have it by default.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// A namespace.
struct Space {
    blocks: Blocks,
    /// Index of its LBA format.
    format: usize,
    /// How its blocks are kept.
    coding: BlockFormat,
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
    /// Which one it is, however often it is formatted.
    identity: u32,
    /// When it was last changed as a whole.
    changed: Instant,
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
    /// The host repeats it when it is lost, until it has ended.
    repeats: bool,
    /// The target has closed its connection: nothing of it is on its way.
    is_cut_off: bool,
    /// Of a Preempt and Abort: writes of the preempted host that were at the disk when it was sent.
    preempts: BTreeSet<u32>,
}

impl Flight {
    fn new(host: usize, nsid: u32, kind: Kind, begun: Tick, at: Instant) -> Self {
        let preempts = BTreeSet::new();
        Self { host, nsid, kind, range: 0..0, begun, at, repeats: false, is_cut_off: false, preempts }
    }

    fn is_write(&self) -> bool {
        matches!(self.kind, Kind::Write { .. })
    }
}

/// What a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Compare,
    Verify,
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
    /// Who it is, and what it is like in general, before that.
    Sight,
    /// A write that is repeated; whether what it is meant for is there.
    Replay(bool),
    /// A read by a host that has not asked since another namespace came under the number of one
    /// that it knew.
    Stale,
    /// Who is preempted, and has his commands aborted.
    Preempt(usize),
    /// Clear, and other preemptions; of which host, `None` for all.
    Unregister(Option<usize>),
    Register,
    Reserve,
}

pub(super) struct World {
    rig: Rig,
    setting: Setting,
    carriage: Carriage,
    fabric: Fabric,
    /// Which of the simulation's own hosts have connected over RDMA.
    over_rdma: [bool; HOSTS],
    life: Option<Life>,
    hosts: Vec<Host>,
    spaces: BTreeMap<u32, Space>,
    /// Hosts that knew a namespace that is gone, by its number, and have not asked since.
    stale: BTreeMap<u32, BTreeSet<usize>>,
    flights: BTreeMap<Op, Flight>,
    /// When hosts have last asked which namespaces there are.
    asked: BTreeMap<usize, Instant>,
    /// What initiators have open, by host and number: the identity and the format.
    handles: BTreeMap<(usize, u32), (u32, usize)>,
    /// Commands whose connections are gone: they may be done still.
    ghosts: BTreeMap<Op, Flight>,
    manage: manage::Manage,
    failed_change: Option<manage::FailedChange>,
    /// While everything is compared: what is still to be read.
    unread: Vec<io::Unread>,
    /// What commands compare blocks with.
    compared: BTreeMap<Op, Vec<u8>>,
    pairs: compare::Pairs,
    /// Serial numbers of commands that their host may repeat.
    repeated: BTreeSet<u32>,
    /// Hosts that are surely registered with a namespace.
    registered: BTreeSet<(u32, usize)>,
    /// When somebody may last have taken the registration of a host away.
    unregistered: BTreeMap<(u32, usize), Tick>,
    /// Hosts register with what they come to know.
    is_cluster: bool,
    owners: u16,
    identities: u32,
    replays: replay::Replays,
    /// By serial number, what was written where.
    written: BTreeMap<u32, (u16, Range<u64>)>,
    /// Of the hosts.
    names: Vec<Nqn>,
    /// Lists of namespaces that hosts wait for, and what they look for in them.
    scans: BTreeMap<Op, Vec<u32>>,
    /// Where hosts prove who they are.
    proofs: Option<proofs::Proofs>,
    liar: Liar,
    threats: liar::Threats,
}

/// The identifier of a host.
fn host_id(host: usize) -> [u8; 16] {
    [u8::try_from(host + 1).unwrap_or(u8::MAX); 16]
}

impl World {
    pub(super) fn new(seed: u64) -> Result<Self, Failure> {
        let mut rig = Rig::new(seed, CAPACITY)?;
        let clock = rig.clock.clone();
        let random = &mut rig.chances;
        let encrypts = random.percent(40);
        // A block that is encrypted and has no checksum is a mixture when it is torn: of sectors
        // that nobody wrote.
        let checks = random.percent(25) || encrypts && rig.profile.sector_bytes == 512;
        let setting = Setting { encrypts, checks, reactors: 1 + random.index(2), ..Setting::with_capacity(CAPACITY) };
        let carriage = Carriage {
            latency: Duration::from_micros(1 << random.below(12)),
            window_bytes: 1 << (10 + random.below(8)),
            piece_bytes: 1 << (4 + random.below(13)),
        };
        let fabric = Fabric::new(&clock, random.number());
        let subsystem = nqn(SUBSYSTEM)?;
        let (mut hosts, mut names) = (Vec::new(), Vec::new());
        for number in 0..HOSTS {
            let name = nqn(&format!("nqn.2014-08.org.example:host{number}"))?;
            let id = host_id(number);
            names.push(name.clone());
            // One at least can use every format: the initiator leaves those with metadata alone.
            hosts.push(if number > 0 && random.percent(60) {
                let way = RdmaRoute { fabric: fabric.clone(), from: Fabric::address(number) };
                let reach = Reach::new(&clock, carriage, way, random.number());
                Host::Initiator(Box::new(InitiatorHost::new(name, id, subsystem.clone(), reach, &clock, random)))
            } else {
                let (queues, entries) = (1 + u16::try_from(random.below(3)).unwrap_or(0), 4 << random.below(4));
                Host::Raw(Box::new(RawHost::new(name, id, subsystem.clone(), queues, entries, clock.now())))
            });
        }
        let proofs =
            is_proven(seed).then(|| proofs::Proofs::choose(&mut Random::for_part(seed, 6), &names, clock.now()));
        for (host, secret) in proofs.iter().flat_map(proofs::Proofs::secrets) {
            hosts[host].set_secret(secret, &clock, clock.now());
        }
        let authenticates = proofs.as_ref().is_some_and(|proofs| proofs.are_demanded);
        let setting = Setting { authenticates, ..setting };
        Ok(Self {
            liar: Liar::new(subsystem),
            names,
            scans: BTreeMap::new(),
            proofs,
            threats: liar::Threats::new(clock.now()),
            replays: replay::Replays::choose(&hosts, &mut rig.chances),
            rig,
            setting,
            carriage,
            fabric,
            over_rdma: [false; HOSTS],
            life: None,
            hosts,
            spaces: BTreeMap::new(),
            stale: BTreeMap::new(),
            asked: BTreeMap::new(),
            handles: BTreeMap::new(),
            flights: BTreeMap::new(),
            ghosts: BTreeMap::new(),
            manage: manage::Manage::default(),
            failed_change: None,
            unread: Vec::new(),
            compared: BTreeMap::new(),
            pairs: compare::Pairs::default(),
            repeated: BTreeSet::new(),
            registered: BTreeSet::new(),
            unregistered: BTreeMap::new(),
            is_cluster: false,
            owners: 0,
            identities: 0,
            written: BTreeMap::new(),
        })
    }

    /// The namespace that an act means.
    fn nsid(&self, slot: usize) -> Option<u32> {
        let count = self.spaces.len().min(SLOTS);
        self.spaces.keys().copied().nth(slot % count.max(1))
    }

    /// This host, or the one that has the most commands under way: more depends on what it does.
    fn busier(&mut self, host: usize) -> usize {
        if self.rig.chances.percent(40) {
            return host;
        }
        let under_way = |host: usize| self.flights.values().filter(|flight| flight.host == host).count();
        (0..HOSTS).max_by_key(|&one| (under_way(one), one == host)).unwrap_or(host)
    }

    /// How the blocks of a namespace are kept that is made with this format now.
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
        if self.rig.profile.sector_bytes == 512 { format % 4 } else { (format % 4) | 1 }
    }

    /// A namespace of this format that reads as zeros.
    fn space(&mut self, format: usize, coding: BlockFormat, count: u64) -> Space {
        let born = self.rig.now();
        self.owners += 1;
        let bytes = usize::try_from(coding.block_bytes()).expect("few");
        let in_flux = InFlux::for_format(coding, self.rig.profile.sector_bytes);
        let blocks = Blocks { in_flux, ..Blocks::new(self.owners, bytes, coding.is_tagged()) };
        self.identities += 1;
        Space {
            blocks,
            format,
            coding,
            count,
            born,
            is_unsure: false,
            strangers: (0..HOSTS).collect(),
            is_reserved: false,
            identity: self.identities,
            changed: self.rig.clock.now(),
        }
    }

    fn submit(&mut self, op: Op, host: usize, queue: usize, flight: Flight, command: Command) -> bool {
        let name = command.sqe.opcode;
        let is_sent = self.hosts[host].submit(queue, op, command, self.rig.clock.now());
        if is_sent {
            self.submitted(op, queue, flight, name);
        }
        is_sent
    }

    /// A command is on its way.
    fn submitted(&mut self, op: Op, queue: usize, flight: Flight, name: u8) {
        let host = flight.host;
        if !self.rig.is_comparing {
            let (kind, nsid, range) = (flight.kind, flight.nsid, &flight.range);
            self.rig.note(|| format!("{op}: host {host}, queue {queue}: {name:02x}h, {kind:?} {range:?} of {nsid}"));
        }
        self.rig.count("commands");
        let repeats = self.hosts[host].repeats(op);
        if repeats {
            self.repeated.insert(serial(op));
        }
        replay::note_write(self, op, &flight);
        self.flights.insert(op, Flight { repeats, ..flight });
    }

    fn step_host(&mut self, host: usize) -> Result<(), Failure> {
        let (now, clock, carriage) = (self.rig.clock.now(), &self.rig.clock, self.carriage);
        let (life, chances) = (&mut self.life, &mut self.rig.chances);
        if let Host::Initiator(initiator) = &self.hosts[host] {
            // Where the machine has stopped, what it seems to say is not said.
            if self.rig.disk.is_off() {
                return Ok(());
            }
            for end in initiator.reach().take_arriving() {
                // Where there is no target, the connection is refused by dropping its end.
                let _is_taken = life.as_mut().is_some_and(|life| life.accept(end));
            }
        }
        let is_over_rdma = &mut self.over_rdma[host];
        let way = RdmaRoute { fabric: self.fabric.clone(), from: Fabric::address(host) };
        let mut connect = |queue: u16, entries: usize| -> Option<Wire> {
            let life = life.as_mut()?;
            // The queues of a controller are connected through one port: RDMA has its own.
            if queue == 0 {
                *is_over_rdma = chances.percent(35);
            }
            if *is_over_rdma {
                return Wire::rdma(&way, queue, entries, chances.number());
            }
            if chances.percent(40) {
                return life.connect(entries).map(Wire::loopback);
            }
            let (end, far, watch) = stream::pair(clock, carriage, chances.number());
            let (digests, in_capsule) = (chances.percent(30), if chances.percent(50) { 4096 } else { 1024 });
            life.accept(far).then(|| Wire::tcp(end, watch, digests, in_capsule, entries))
        };
        let events = self.hosts[host].step(now, &mut connect)?;
        let is_off = self.rig.disk.is_off();
        for event in events {
            // Where the machine has stopped, what it seems to say is not said.
            let event = match event {
                Event::Ended(op, _) if is_off => Event::Lost(vec![op]),
                Event::Settled | Event::Live if is_off => continue,
                event => event,
            };
            events::on_event(self, host, event)?;
        }
        replay::replay(self, host);
        Ok(())
    }

    fn ended(&mut self, op: Op, ended: &CompletedCommand) -> Result<(), Failure> {
        let Some(flight) = self.flights.remove(&op) else { return fail(format!("{op} has ended twice")) };
        let status = ended.cqe.status();
        replay::forget_repeatable(self, op, &flight);
        self.rig.digest(op, u64::from(status.0));
        if !self.rig.is_comparing || !status.is_success() {
            let Flight { host, kind, .. } = flight;
            self.rig.note(|| format!("{op}: {kind:?} of host {host} has ended: {status}"));
        }
        match flight.kind {
            Kind::Read | Kind::Compare | Kind::Verify | Kind::Write { .. } | Kind::Zero | Kind::Bad | Kind::Flush => {
                io::ended(self, op, &flight, ended)
            }
            Kind::Manage | Kind::List | Kind::Shape | Kind::Sanitizing => manage::ended(self, op, &flight, ended),
            Kind::Preempt(_) | Kind::Unregister(_) | Kind::Register | Kind::Reserve => {
                reserve::ended(self, op, &flight, status)
            }
            Kind::Learn | Kind::Prepare | Kind::Sight => learn::ended(self, op, &flight, ended),
            Kind::Replay(_) => replay::ended(self, op, &flight, status),
            Kind::Stale => learn::stale_ended(self, &flight, status),
        }
    }
}

impl System for World {
    type What = What;

    fn rig(&mut self) -> &mut Rig {
        &mut self.rig
    }

    fn act(&mut self, what: What) -> Result<(), Failure> {
        let now = self.rig.clock.now();
        match what {
            What::Io { host, queue, slot, block, count, io, times } => {
                (0..times).try_for_each(|at| io::transfer(self, host, queue, slot, (block + at) % BLOCKS, count, io))
            }
            What::Create { host, format } => manage::create(self, host, format),
            What::Delete { host, slot } => manage::delete(self, host, slot),
            What::Format { host, slot, format, erase } => manage::format(self, host, slot, format, erase),
            What::Sanitize { host, overwrite } => manage::sanitize(self, host, overwrite),
            What::Reserve { host, queue, slot, reserve } => reserve::reserve(self, host, queue, slot, reserve),
            What::Fence { host, queue, kind, abort } => reserve::fence(self, host, queue, kind, abort),
            What::Break { host, queue, bytes } => {
                liar::threaten(self, host);
                self.hosts[host].break_after(queue, bytes);
                Ok(())
            }
            What::Vanish { host, pause } => {
                let host = self.busier(host);
                liar::threaten(self, host);
                let lost = self.hosts[host].drop_all(now, pause);
                lost.into_iter().try_for_each(|event| events::on_event(self, host, event))
            }
            What::Leave { host, shutdown, reset } => {
                let host = self.busier(host);
                liar::threaten(self, host);
                self.hosts[host].leave(shutdown, reset, now);
                Ok(())
            }
            What::Unplug { time } => {
                liar::threaten_all(self);
                self.fabric.remove_device(time);
                Ok(())
            }
            What::Swap { host, slot, block, pause } => replay::swap(self, host, slot, block, pause),
            What::Cluster => {
                self.is_cluster = true;
                Ok(())
            }
            What::Prove { host } => proofs::prove(self, host),
            What::Rekey { host, is_mistake, pause } => proofs::rekey(self, host, is_mistake, pause),
            What::Lie { victim, lie, linger } => liar::lie(self, victim, lie, linger),
            What::System(act) => self.system_act(act),
        }
    }

    fn parts(&self) -> usize {
        // He who lies comes last, where there is one.
        let liars = usize::from(self.proofs.is_some());
        self.life.as_ref().map_or(0, Life::parts) + HOSTS + liars
    }

    fn turn(&mut self, part: usize) -> Result<(), Failure> {
        if part < HOSTS {
            return self.step_host(part);
        }
        match &mut self.life {
            Some(life) if part - HOSTS < life.parts() => {
                life.turn(part - HOSTS);
                Ok(())
            }
            _ => liar::step(self),
        }
    }

    fn after_turns(&mut self) -> Result<(), Failure> {
        if let Some(word) = self.rig.disk.late() {
            let (owner, serial) = (word >> 48, word & 0xffff_ffff);
            return fail(format!("write #{serial} of namespace {owner} begins after it was said to be over"));
        }
        proofs::step(self)?;
        manage::step(self)
    }

    fn due(&mut self) -> Option<Instant> {
        let now = self.rig.clock.now();
        let hosts = self.hosts.iter_mut().filter_map(|host| host.due(now)).min();
        let replays = replay::due(self);
        let proofs = self.proofs.as_ref().and_then(proofs::Proofs::due);
        let replays = replays.into_iter().chain(proofs).chain(liar::due(self, now));
        hosts.into_iter().chain(replays).chain(self.life.as_mut().and_then(Life::due)).min()
    }

    fn under_way(&self) -> String {
        let few: Vec<String> = self.flights.iter().take(8).map(|(op, flight)| format!("{op}: {flight:?}")).collect();
        few.join(", ")
    }

    fn each_blocks(&mut self, change: impl FnMut(&mut Blocks)) {
        self.spaces.values_mut().map(|space| &mut space.blocks).for_each(change);
    }

    fn start(&mut self) -> Result<(), Failure> {
        lives::open(self)
    }

    fn stop(&mut self) -> Result<(), Failure> {
        if let Some(mut life) = self.life.take() {
            life.shut_down();
            self.rig.wind_up(&mut life)?;
            life.close();
        }
        lives::drop_hosts(self, false)?;
        let (queue_pairs, bytes) = self.fabric.in_use();
        if !lives::initiators(self).any(InitiatorHost::is_over_rdma) && (queue_pairs, bytes) != (0, 0) {
            return fail(format!("{queue_pairs} queue pairs and {bytes} bytes of registered memory are left"));
        }
        Ok(())
    }

    fn kill(&mut self) -> Result<(), Failure> {
        self.life = None;
        self.pairs.forget_replaced();
        lives::drop_hosts(self, true)
    }

    fn drain(&mut self) -> Result<(), Failure> {
        self.until("all that is under way", |world| {
            let is_idle = world.flights.is_empty() && world.replays.is_empty() && world.manage.is_idle();
            is_idle && world.hosts.iter().all(Host::is_live)
        })?;
        events::end_unknown(self, |_, _| true);
        io::compare(self)
    }
}

/// The command set's opcodes that name blocks, and their data.
fn command(sqe: ebof_nvme::Sqe, data: Option<Arc<[u8]>>, read_bytes: usize) -> Command {
    Command { sqe, data, read_bytes: u32::try_from(read_bytes).unwrap_or(u32::MAX) }
}
