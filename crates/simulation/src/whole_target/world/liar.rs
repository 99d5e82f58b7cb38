//! Somebody who lies about who he is, in stories whose hosts prove that: nothing of what he sends
//! is executed, and hosts notice nothing of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_manage::api::ControllerStatus;
use ebof_manage::events::{Event, EventKind};
use ebof_nvme::connect::Property;
use ebof_nvme::feature::Fid;
use ebof_nvme::identify::{Cns, Csi};
use ebof_nvme::io::BlockRange;
use ebof_nvme::log::{GetLogPage, Lid};
use ebof_nvme::media::{Format, Sanitize, SanitizeAction};
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::opcode::{FABRICS, admin, fabrics, nvm};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::reservation::{
    Acquire, AcquireAction, AcquireKeys, PersistenceChange, Register, RegisterAction, RegisterKeys, Release,
    ReleaseAction, ReleaseKey,
};
use ebof_nvme::{Nsid, Sqe};
use zerocopy::IntoBytes;

use super::super::acts::{HOSTS, Lie};
use super::{World, command, io};
use crate::host::Host;
use crate::host::liar::{Claim, ENTRIES, Plan, Reflection};
use crate::host::proof::Prover;
use crate::host::secrets;
use crate::rig::System as _;
use crate::story::{Failure, fail};
use crate::transport::fabric::Fabric;
use crate::transport::stream;
use crate::transport::wire::{Command, RdmaRoute, Wire};

/// A host whose commands take longer than this may be about to reset its controller.
const LONG: Duration = Duration::from_secs(20);

/// A step that takes longer than this is one in which the machine was late with everything: a drive
/// waits for its disk. Connections may end for that for some time.
const STALL: Duration = Duration::from_millis(200);
const STALLED: Duration = Duration::from_secs(15);

/// What may end connections of hosts but a lie.
#[derive(Debug)]
pub(super) struct Threats {
    /// How often each host has still to be connected until nothing threatens its connections: what
    /// breaks one may be under way while the host is being connected.
    counts: [u8; HOSTS],
    stepped: Instant,
    stalled: Option<Instant>,
}

impl Threats {
    pub(super) fn new(now: Instant) -> Self {
        Self { counts: [0; HOSTS], stepped: now, stalled: None }
    }

    fn has(&self, host: usize) -> bool {
        self.counts[host] > 0 || self.stalled.is_some_and(|stalled| self.stepped < stalled + STALLED)
    }

    /// All connections of a host are new.
    pub(super) fn connected(&mut self, host: usize) {
        self.counts[host] = self.counts[host].saturating_sub(1);
    }

    fn step(&mut self, now: Instant) {
        if now > self.stepped + STALL {
            self.stalled = Some(now);
        }
        self.stepped = now;
    }
}

/// Connections of a host may end for a reason of its own.
pub(super) fn threaten(world: &mut World, host: usize) {
    world.threats.counts[host] = if world.hosts[host].is_live() { 1 } else { 2 };
}

/// The same, of all hosts.
pub(super) fn threaten_all(world: &mut World) {
    (0..HOSTS).for_each(|host| threaten(world, host));
}

/// Lies about who he is, and waits some time for what comes of it.
pub(super) fn lie(world: &mut World, number: usize, lie: Lie, linger: Duration) -> Result<(), Failure> {
    let Some(victim) = world.proofs.as_ref().and_then(|proofs| proofs.one_of(number)) else { return Ok(()) };
    let before = undisturbed(world);
    let times = if lie == Lie::Flood { 1 + world.rig.chances.below(12) } else { 1 };
    for _ in 0..times {
        begin_lie(world, victim, lie, linger);
    }
    for _ in 0..world.rig.chances.below(400) {
        if world.liar.is_idle() || world.rig.disk.is_off() {
            break;
        }
        world.step()?;
    }
    check(world)?;
    if world.rig.disk.is_off() {
        return Ok(());
    }
    let after = undisturbed(world);
    let lost = before.iter().find(|&&(host, cntlid)| !world.threats.has(host) && !after.contains(&(host, cntlid)));
    match lost {
        Some((host, cntlid)) => fail(format!("host {host} has lost its controller {cntlid} by a lie: {lie:?}")),
        None => Ok(()),
    }
}

/// Hosts that have no reason to lose their controllers, and those.
fn undisturbed(world: &World) -> Vec<(usize, u16)> {
    let now = world.rig.clock.now();
    let is_slow = |host: usize| world.flights.values().any(|flight| flight.host == host && flight.at + LONG < now);
    let all = world.hosts.iter().enumerate().filter(|(host, _)| !world.threats.has(*host) && !is_slow(*host));
    all.filter_map(|(host, state)| Some((host, state.live_cntlid()?))).collect()
}

/// The target shows nothing of him, and reports nothing but that he was refused. He may have
/// been given the number of a controller that is about to end, and is older.
fn check(world: &mut World) -> Result<(), Failure> {
    let Some(life) = &mut world.life else { return Ok(()) };
    let his = format!(" {}:", Fabric::address(HOSTS));
    let is_his = |event: &Event| event.kind != EventKind::ConnectionRefused && event.message.contains(&his);
    if let Some(event) = life.take_events().iter().find(|event| is_his(event)) {
        return fail(format!("an event is about a liar: {}", event.message));
    }
    let (now, today) = (world.rig.clock.now(), world.rig.clock.unix_time());
    let shown = life.controllers();
    let is_his = |controller: &ControllerStatus| {
        let mut given = world.liar.controllers().filter(|(cntlid, _)| *cntlid == controller.cntlid);
        let since = Duration::from_millis(controller.connected_since_unix_ms);
        let is_whole = controller.queues.iter().any(|queue| queue.id == 0);
        is_whole && given.any(|(_, begun)| today - (now - begun) <= since)
    };
    let is_a_hosts = |cntlid| world.hosts.iter().any(|host| host.live_cntlid() == Some(cntlid));
    match shown.iter().find(|controller| is_his(controller) && !is_a_hosts(controller.cntlid)) {
        Some(controller) => fail(format!("what a liar was given is shown: {controller:?}")),
        None => Ok(()),
    }
}

fn begin_lie(world: &mut World, victim: usize, lie: Lie, linger: Duration) {
    let now = world.rig.clock.now();
    let Some(plan) = plan(world, victim, lie) else { return };
    let cntlid = world.hosts[victim].live_cntlid();
    // Some of it is tried on an I/O queue of the host's controller.
    let is_io = lie == Lie::Io || lie != Lie::Admin && cntlid.is_some() && world.rig.chances.percent(40);
    let queue = if is_io { 1 + u16::try_from(world.rig.chances.below(4)).unwrap_or(0) } else { 0 };
    let (host, id) = identity(world, victim);
    let claim = Claim { host, id, queue, cntlid: cntlid.unwrap_or(1) };
    let Some(wire) = wire_of_liar(world, queue) else { return };
    world.rig.note(|| format!("somebody says that he is host {victim}, queue {queue}: {lie:?}"));
    world.rig.count("lies");
    world.liar.begin(wire, &claim, plan, now, linger);
}

fn wire_of_liar(world: &mut World, queue: u16) -> Option<Wire> {
    let (clock, carriage, chances) = (&world.rig.clock, world.carriage, &mut world.rig.chances);
    let from = Fabric::address(HOSTS);
    let life = world.life.as_mut()?;
    match chances.below(3) {
        0 => {
            let way = RdmaRoute { fabric: world.fabric.clone(), from };
            Wire::rdma(&way, queue, usize::from(ENTRIES), chances.number())
        }
        1 => life.connect(usize::from(ENTRIES)).map(Wire::loopback),
        _ => {
            let (end, far, watch) = stream::pair(clock, carriage, chances.number());
            life.accept_from(0, from, far)
                .then(|| Wire::tcp(end, watch, chances.percent(30), 4096, usize::from(ENTRIES)))
        }
    }
}

/// What is tried.
fn plan(world: &mut World, victim: usize, lie: Lie) -> Option<Plan> {
    let now = world.rig.clock.now();
    let clock = world.rig.clock.clone();
    Some(match lie {
        Lie::Admin => Plan::Commands(admin_commands(world)),
        Lie::Io => Plan::Commands(io_commands(world, victim)),
        Lie::Secret => Plan::Prove(Prover { secret: secrets::secret(&mut world.rig.chances), clock }),
        Lie::OldSecret => {
            let secret = world.proofs.as_ref()?.old_secret(victim, now)?;
            Plan::Prove(Prover { secret, clock })
        }
        Lie::Reflect => Plan::Reflect(match world.rig.chances.below(3) {
            0 => Reflection::Challenge,
            1 => Reflection::Another,
            _ => Reflection::Response(overheard(world, victim).pop().unwrap_or_default()),
        }),
        Lie::Replay => Plan::Say(overheard(world, victim).into()),
        Lie::Nonsense => {
            let mut messages: VecDeque<Vec<u8>> = overheard(world, victim).into();
            for _ in 0..1 + world.rig.chances.below(4) {
                let random = &mut world.rig.chances;
                let mut message = vec![0; 1 + random.index(300)];
                random.fill(&mut message);
                // AUTH_TYPE and AUTH_ID that there are.
                message[0] = random.weighted(&[(1, 0), (1, 1), (1, 2)]);
                messages.push_front(message);
            }
            if let Some(message) = messages.back_mut() {
                let at = world.rig.chances.index(message.len().max(1));
                message.truncate(at);
            }
            Plan::Say(messages)
        }
        Lie::Flood => Plan::Wait,
    })
}

/// What a host has said in its proofs, as far as somebody could hear it.
fn overheard(world: &World, victim: usize) -> Vec<Vec<u8>> {
    match &world.hosts[victim] {
        Host::Raw(raw) => raw.said.iter().cloned().collect(),
        Host::Initiator(_) => Vec::new(),
    }
}

fn admin_commands(world: &mut World) -> VecDeque<(String, Command)> {
    let nsid = Nsid(world.spaces.keys().next().copied().unwrap_or(1));
    let identify = |cns: Cns| Sqe::new(admin::IDENTIFY).with_nsid(nsid).with_cdw(10, u32::from(cns.0));
    let feature = |opcode, fid: Fid| Sqe::new(opcode).with_cdw(10, u32::from(fid.0));
    let create = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM }.encode(Nsid::NONE);
    let delete = NamespaceManagement { select: ManagementSelect::Delete, csi: Csi::NVM }.encode(nsid);
    let new: Arc<[u8]> = NewNamespace::new(512).as_bytes().into();
    let plain = |sqe| command(sqe, None, 0);
    let read = |sqe| command(sqe, None, 4096);
    let all = vec![
        ("Property Set of CC.EN", plain(Property::set(offset::CC, Cc::ENABLE.0))),
        ("Property Set of CC.SHN", plain(Property::set(offset::CC, Cc::ENABLE.with_shutdown(1).0))),
        ("Property Set of 0", plain(Property::set(offset::CC, 0))),
        ("Identify Controller", read(identify(Cns::CONTROLLER))),
        ("Identify Namespace", read(identify(Cns::NAMESPACE))),
        ("list of namespaces", read(identify(Cns::ACTIVE_NAMESPACE_LIST))),
        ("Get Log Page", read(GetLogPage::new(Lid::CHANGED_NAMESPACES, 4096).encode(Nsid::ALL))),
        ("notifications", read(GetLogPage::new(Lid::RESERVATION_NOTIFICATION, 64).encode(Nsid::ALL))),
        ("Set Features", plain(feature(admin::SET_FEATURES, Fid::NUMBER_OF_QUEUES).with_cdw(11, 0x0003_0003))),
        ("Keep Alive Timer", plain(feature(admin::SET_FEATURES, Fid::KEEP_ALIVE_TIMER).with_cdw(11, 1000))),
        ("Asynchronous Event Request", plain(Sqe::new(admin::ASYNC_EVENT_REQUEST))),
        ("Keep Alive", plain(Sqe::new(admin::KEEP_ALIVE))),
        ("Abort", plain(Sqe::new(admin::ABORT).with_cdw(10, 1))),
        ("Abort of queue 0", plain(Sqe::new(admin::ABORT).with_cdw(10, 0x0001_0000))),
        ("creation", command(create, Some(new), 0)),
        ("deletion", plain(delete)),
        ("Format", plain(Format::new(0).encode(nsid))),
        ("Format of all", plain(Format::new(0).encode(Nsid::ALL))),
        ("Sanitize", plain(Sanitize::new(SanitizeAction::BlockErase).encode())),
    ];
    some_of(world, all)
}

fn io_commands(world: &mut World, victim: usize) -> VecDeque<(String, Command)> {
    let Some(nsid) = world.spaces.keys().next().copied() else { return VecDeque::new() };
    let (space, id) = (&world.spaces[&nsid], Nsid(nsid));
    let bytes = space.blocks.block_bytes;
    let mark: Arc<[u8]> = vec![0xa5; bytes].into();
    let first = BlockRange::new(io::lba(world, nsid, 0), 1);
    let key = super::reserve::key(victim);
    let register = Register {
        action: RegisterAction::Unregister,
        ignore_existing_key: true,
        persistence: PersistenceChange::None,
    };
    let acquire = |action| Acquire { action, ignore_existing_key: false, rtype: 1 }.encode(id);
    let keys = AcquireKeys { crkey: key.into(), prkey: super::reserve::key((victim + 1) % HOSTS).into() };
    let clear = Release { action: ReleaseAction::Clear, ignore_existing_key: false, rtype: 0 };
    let plain = |sqe| command(sqe, None, 0);
    let with = |sqe, data: &[u8]| command(sqe, Some(data.into()), 0);
    let both = RegisterKeys { crkey: key.into(), nrkey: key.into() };
    let all = vec![
        ("Read", command(first.encode(nvm::READ, id), None, bytes)),
        ("Write", command(first.encode(nvm::WRITE, id), Some(Arc::clone(&mark)), 0)),
        ("Compare", command(first.encode(nvm::COMPARE, id), Some(mark), 0)),
        ("Write Zeroes", plain(first.encode(nvm::WRITE_ZEROES, id))),
        ("Write Uncorrectable", plain(first.encode(nvm::WRITE_UNCORRECTABLE, id))),
        ("Flush", plain(Sqe::new(nvm::FLUSH).with_nsid(Nsid::ALL))),
        ("Reservation Register", with(register.encode(id), both.as_bytes())),
        ("preemption", with(acquire(AcquireAction::PreemptAndAbort), keys.as_bytes())),
        ("Reservation Acquire", with(acquire(AcquireAction::Acquire), keys.as_bytes())),
        ("Clear", with(clear.encode(id), ReleaseKey { crkey: key.into() }.as_bytes())),
        ("Disconnect", plain(Sqe::new(FABRICS).with_nsid(Nsid(fabrics::DISCONNECT.into())))),
    ];
    some_of(world, all)
}

fn some_of(world: &mut World, all: Vec<(&'static str, Command)>) -> VecDeque<(String, Command)> {
    let percent = world.rig.chances.weighted(&[(1, 20), (1, 60), (1, 100)]);
    let some = all.into_iter().filter(|_| world.rig.chances.percent(percent));
    some.map(|(name, command)| (name.to_owned(), command)).collect()
}

/// The name and the identifier of a host.
fn identity(world: &World, host: usize) -> (ebof_nvme::Nqn, [u8; 16]) {
    (world.names[host].clone(), super::host_id(host))
}

/// He does what there is to do.
pub(super) fn step(world: &mut World) -> Result<(), Failure> {
    world.threats.step(world.rig.clock.now());
    if world.rig.disk.is_off() {
        return Ok(());
    }
    for what in world.liar.step(world.rig.clock.now())? {
        world.rig.count(what);
    }
    Ok(())
}

pub(super) fn due(world: &World, now: Instant) -> Option<Instant> {
    world.liar.due(now)
}
