//! Command processing: four queues of two associations, with any commands in any order, slow
//! devices, time-outs and lost connections.
//!
//! An input is a sequence of actions. A first byte below 80h submits a command: bits 1:0 choose the
//! queue, bits 6:2 a template; the next byte is the number of (offset, value) pairs that follow and
//! overwrite the command's bytes. From 80h on the byte chooses another action.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebof_fabrics::{
    Arrival, Channel, DataId, DeviceId, DiscoveryIdentity, Executing, Extent, Handle, IoTask, Limits, Metadata, Model,
    Namespace, NamespaceTable, Notices, Port, PortId, Queue, Registry, Step, Subsystem, Task, TlsUse, Transfer,
};
use ebof_nvme::connect::{Connect, ConnectData, Property, disconnect};
use ebof_nvme::identify::ProtectionType;
use ebof_nvme::io::{BlockRange, Dsm};
use ebof_nvme::log::{AddressFamily, GetLogPage, Lid, RdmaProvider, TrType};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::property::offset;
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{ControllerId, Cqe, Nqn, Nsid, QueueId, Sgl, Sqe, Status, Uuid};
use zerocopy::{FromBytes, IntoBytes};

const DRIVE: &str = "nqn.2014-08.org.example:drive0";
const HOST: &str = "nqn.2014-08.org.example:host0";

/// Blocks of every namespace: 512 bytes each, from [`BASE`] on.
const BLOCKS: u64 = 1000;
/// The namespace whose blocks have 8 bytes of protection information.
const PROTECTED: u32 = 4;
/// Where namespaces begin on their devices, bytes.
const BASE: u64 = 8192;
/// The most steps that wait for a device.
const WAITING_MAX: usize = 64;

/// Runs any commands in any order.
///
/// # Panics
/// An invariant is violated.
pub fn fabrics_submit(input: &[u8]) {
    let mut world = World::new();
    let mut input = Input(input);
    while let Some(act) = input.next() {
        match act {
            0..0x80 => world.submit(act, &mut input),
            0x80..0xc0 => world.finish(usize::from(act & 0x3f), &mut input),
            0xc0..0xe0 => world.pass_time(1_u64 << (act & 0x1f)),
            0xe0..0xf0 => world.reopen(u64::from(act & 3)),
            _ => world.change_model(act),
        }
        world.check();
    }
    world.end();
}

/// A connected I/O queue and its registry. Namespace 1 takes reads and writes of 4 KiB up to block
/// 992.
///
/// # Panics
/// Never: it connects as the fuzz target does.
#[must_use]
pub fn connected_queue() -> (Registry, Queue) {
    let mut world = World::new();
    let queue = world.queues.remove(&world.handles[1]).expect("it was just connected");
    (world.registry, queue)
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Overwrites bytes of `target` by pairs of offset and value.
    fn patch(&mut self, target: &mut [u8]) {
        let pairs = self.next().unwrap_or(0) & 0x0f;
        for _ in 0..pairs {
            let (Some(at), Some(value)) = (self.next(), self.next()) else { return };
            let length = target.len().max(1);
            if let Some(byte) = target.get_mut(usize::from(at) % length) {
                *byte = value;
            }
        }
    }
}

struct World {
    registry: Registry,
    queues: BTreeMap<u64, Queue>,
    /// Steps that wait for a device, with their queue's handle.
    waiting: Vec<(u64, Executing)>,
    /// Handle of each of the four queues; handles are never used twice.
    handles: [u64; 4],
    next_handle: u64,
    now_ms: u64,
}

impl World {
    fn new() -> Self {
        let registry = Registry::new(Limits::default(), Arc::new(model(2)), 7);
        let mut world = Self {
            registry,
            queues: BTreeMap::new(),
            waiting: Vec::new(),
            handles: [0; 4],
            next_handle: 0,
            now_ms: 1000,
        };
        for index in 0..4 {
            world.reopen(index);
        }
        world.connect(0, 0, DRIVE);
        world.run(0, Property::set(offset::CC, 0x0046_0001), &[]);
        world.connect(1, 1, DRIVE);
        world.connect(3, 0, "nqn.2014-08.org.nvmexpress.discovery");
        world.run(3, Property::set(offset::CC, 0x0046_0001), &[]);
        world
    }

    /// Connects a queue, which has to succeed.
    fn connect(&mut self, index: usize, qid: u16, subsystem: &str) {
        let connect = Connect { recfmt: 0, qid: QueueId(qid), entries: 32, cattr: 0, kato_ms: 10_000 };
        let cntlid = match qid {
            0 => ControllerId::DYNAMIC,
            _ => self.registry.controllers().next().expect("the Admin Queue is connected").cntlid,
        };
        self.run(index, with_data(connect.encode(), 1024), connect_data(subsystem, cntlid).as_bytes());
        assert!(self.queues[&self.handles[index]].is_connected());
    }

    fn run(&mut self, index: usize, mut sqe: Sqe, data: &[u8]) {
        sqe.cid = 0x7fff.into();
        let handle = self.handles[index];
        let step = self.queue(handle).submit(&sqe, 0);
        self.apply(handle, step, data);
        while !self.waiting.is_empty() {
            self.finish(0, &mut Input(&[]));
        }
    }

    fn queue(&mut self, handle: u64) -> &mut Queue {
        self.queues.get_mut(&handle).expect("an open connection")
    }

    fn submit(&mut self, act: u8, input: &mut Input<'_>) {
        let handle = self.handles[usize::from(act & 3)];
        let mut sqe = template(act >> 2 & 0x1f);
        input.patch(sqe.as_mut_bytes());
        let now_ms = self.now_ms;
        let queue = self.queue(handle);
        if queue.is_closing() {
            return;
        }
        let was_outstanding = queue.is_outstanding(sqe.cid());
        let step = queue.submit(&sqe, now_ms);
        if let Step::Complete(cqe) = &step {
            assert_eq!(cqe.cid(), sqe.cid());
            // On the Admin Queue a waiting Asynchronous Event Request gives way to a command with
            // its identifier.
            let gave_way = was_outstanding && queue.is_admin();
            let is_outstanding = queue.is_outstanding(sqe.cid());
            assert!(is_outstanding == was_outstanding || gave_way, "a completed command is not outstanding");
        }
        let mut data = connect_data(DRIVE, ControllerId::DYNAMIC).as_bytes().to_vec();
        if matches!(step, Step::Execute(_, Task::Connect | Task::Receive)) {
            input.patch(&mut data);
        }
        self.apply(handle, step, &data);
    }

    /// Handles a step as a target does; what needs a device waits.
    fn apply(&mut self, handle: u64, step: Step, data: &[u8]) {
        let mut step = step;
        loop {
            let now_ms = self.now_ms;
            let queue = self.queues.get_mut(&handle).expect("an open connection");
            match step {
                Step::Complete(_) | Step::Held => break,
                Step::Disconnect(_) => {
                    assert!(queue.is_closing());
                    break;
                }
                Step::Withdrawn(next) => step = *next,
                Step::Unpaired(first, status, next) => {
                    assert!(!status.is_success());
                    // The device may have ended it already.
                    let is_it = |(of, executing): &(u64, Executing)| *of == handle && executing.cid() == first;
                    if let Some(at) = self.waiting.iter().position(is_it) {
                        let (_, executing) = self.waiting.remove(at);
                        let _cqe: Cqe = queue.complete(executing, status);
                    }
                    step = *next;
                }
                Step::Execute(executing, Task::Receive) => {
                    let bytes = executing.length();
                    assert!(bytes > 0 && bytes <= 1 << 20);
                    let bytes = usize::try_from(bytes).expect("small");
                    let sent: Vec<u8> = data.iter().copied().cycle().take(bytes).collect();
                    step = queue.resume(executing, &sent, now_ms);
                }
                Step::Execute(executing, Task::Connect) => {
                    let arrival = arrival(handle);
                    step = self.registry.connect(queue, executing, data, &arrival, now_ms).0;
                    let notices = self.registry.take_notices();
                    self.deliver(notices);
                }
                // Those that it wants to be looked at are alive.
                Step::Execute(executing, Task::DeferConnect(looks)) if !looks.is_empty() => {
                    for _ in looks {
                        let notices = self.registry.acknowledge_check(Handle(handle));
                        self.deliver(notices);
                    }
                    step = Step::Execute(executing, Task::Connect);
                }
                Step::Execute(executing, Task::Shared) => {
                    let (next, notices) = self.registry.execute(queue, executing, now_ms);
                    self.deliver(notices);
                    step = next;
                }
                Step::Execute(executing, task) => {
                    check_bounds(&executing, &task);
                    self.waiting.push((handle, executing));
                    break;
                }
            }
        }
        self.poll(handle);
        while self.waiting.len() > WAITING_MAX {
            self.finish(0, &mut Input(&[]));
        }
    }

    /// A device completes a step.
    fn finish(&mut self, which: usize, input: &mut Input<'_>) {
        if self.waiting.is_empty() {
            return;
        }
        let (handle, executing) = self.waiting.remove(which % self.waiting.len());
        let cid = executing.cid();
        let status = if input.next().unwrap_or(0) < 0xf0 { Status::SUCCESS } else { Status::WRITE_FAULT };
        let queue = self.queue(handle);
        assert!(queue.is_outstanding(cid));
        let cqe = queue.complete(executing, status);
        assert_eq!(cqe.cid(), cid);
        assert!(!queue.is_outstanding(cid));
        self.poll(handle);
    }

    fn pass_time(&mut self, ms: u64) {
        self.now_ms += ms;
        let notices = self.registry.expire(self.now_ms);
        self.deliver(notices);
        assert!(self.registry.next_deadline().is_none_or(|at| at > self.now_ms), "a time-out that does not fire");
    }

    /// Closes the connection with this index and opens another one.
    fn reopen(&mut self, index: u64) {
        let index = usize::try_from(index).expect("small") % 4;
        self.close(self.handles[index]);
        self.next_handle += 1;
        self.handles[index] = self.next_handle;
        self.queues.insert(self.next_handle, Queue::new());
    }

    fn close(&mut self, handle: u64) {
        let Some(mut queue) = self.queues.remove(&handle) else { return };
        let (gone, left) = std::mem::take(&mut self.waiting).into_iter().partition(|(of, _)| *of == handle);
        self.waiting = left;
        let gone: Vec<(u64, Executing)> = gone;
        gone.into_iter().for_each(|(_, executing)| queue.abandon(executing));
        assert_eq!(queue.executing(), 0, "every ticket was given back");
        let notices = self.registry.closed(Handle(handle));
        self.deliver(notices);
    }

    fn change_model(&mut self, act: u8) {
        let mut next = model(u32::from(act & 7));
        next.generation = self.registry.model().generation + 1;
        if act & 8 != 0 {
            next.ports.clear();
        }
        let notices = self.registry.replace_model(Arc::new(next));
        self.deliver(notices);
    }

    fn deliver(&mut self, notices: Notices) {
        for (Handle(handle), notice) in notices {
            let now_ms = self.now_ms;
            if let Some(queue) = self.queues.get_mut(&handle) {
                let _event: Option<Cqe> = queue.notify(notice, now_ms);
                self.poll(handle);
            }
        }
    }

    fn poll(&mut self, handle: u64) {
        let mut events = 0;
        while self.queue(handle).poll_event().is_some() {
            events += 1;
            assert!(events < 1000, "events without end");
        }
    }

    fn check(&self) {
        for (handle, queue) in &self.queues {
            assert!(queue.outstanding() <= queue.commands_max().max(1));
            let waiting = self.waiting.iter().filter(|(of, _)| of == handle).count();
            assert_eq!(queue.executing(), waiting, "tickets are those that wait");
        }
    }

    fn end(mut self) {
        for handle in self.queues.keys().copied().collect::<Vec<_>>() {
            self.close(handle);
        }
        assert_eq!(self.registry.controllers().count(), 0, "nothing is left of connections that ended");
    }
}

/// Checks the bounds of a task that waits for a device.
fn check_bounds(executing: &Executing, task: &Task) {
    match task {
        Task::Io(IoTask::Transfer(transfer)) => check_transfer(executing, transfer),
        Task::Io(IoTask::Copy(copy)) => {
            let plan = copy.plan();
            assert!((1..=128).contains(&plan.sources.len()));
            for range in plan.sources.iter().chain([&plan.target]) {
                let length_bytes = u32::try_from(range.length_bytes).expect("no more than the namespace");
                let device = range.device;
                let nsid = range.nsid;
                let offset_bytes = range.offset_bytes;
                within(&Extent { device, nsid, offset_bytes, length_bytes, fua: false, deallocate: false });
            }
            assert_eq!(plan.sources.iter().map(|source| source.length_bytes).sum::<u64>(), plan.target.length_bytes);
        }
        Task::Io(IoTask::Deallocate(device, ranges)) => {
            assert!(ranges.len() <= 256);
            for range in ranges {
                let length_bytes = u32::try_from(range.length_bytes).expect("no more than the namespace");
                let device = *device;
                let nsid = Nsid(device.0);
                let offset_bytes = range.offset_bytes;
                within(&Extent { device, nsid, offset_bytes, length_bytes, fua: false, deallocate: false });
            }
        }
        Task::Reply(data) => {
            assert!(data.len() <= 1 << 20 && u32::try_from(data.len()).is_ok_and(|bytes| bytes <= executing.length()));
        }
        Task::Rings(_) => unreachable!("no port is a direct one"),
        Task::Authenticate(_) => unreachable!("no host has a secret"),
        Task::Drive(_) | Task::DeferConnect(_) | Task::Io(IoTask::Flush(_)) | Task::Abort(..) | Task::Reset(_) => {}
        Task::Receive | Task::Connect | Task::Shared | Task::LbaStatus(_) => {
            unreachable!("{task:?} is carried out at once")
        }
    }
}

fn check_transfer(executing: &Executing, transfer: &Transfer) {
    let Transfer { kind, extent, fused, checks } = transfer;
    within(extent);
    if let Some(checks) = checks {
        assert!(checks.device_bytes >= checks.transfer_bytes && checks.data_bytes == 512);
        assert_eq!(extent.length_bytes, checks.device_bytes);
        assert_eq!(executing.length() / 512 * 520, extent.length_bytes);
    } else if kind.moves_data() {
        assert_eq!(executing.length(), extent.length_bytes);
        assert!(extent.length_bytes <= if fused.is_some() { 512 } else { 1 << 20 });
    }
}

/// Checks that an extent is within its namespace.
fn within(extent: &Extent) {
    assert_eq!(extent.device, DeviceId(extent.nsid.0));
    let block = if extent.nsid.0 == PROTECTED { 520 } else { 512 };
    let end = extent.offset_bytes + u64::from(extent.length_bytes);
    assert!(extent.length_bytes > 0 && extent.offset_bytes >= BASE && end <= BASE + BLOCKS * block);
    assert!((extent.offset_bytes - BASE).is_multiple_of(block) && u64::from(extent.length_bytes).is_multiple_of(block));
}

/// Templates of commands.
fn template(number: u8) -> Sqe {
    let block =
        |opcode: u8, slba, blocks: u32| with_data(BlockRange::new(slba, blocks).encode(opcode, Nsid(1)), blocks * 512);
    let bare = |opcode: u8| Sqe::new(opcode).with_nsid(Nsid(1));
    let identify = |cns: u32| with_data(Sqe::new(admin::IDENTIFY).with_nsid(Nsid(1)).with_cdw(10, cns), 4096);
    let log = |lid: Lid| with_data(GetLogPage::new(lid, 512).encode(Nsid::NONE), 512);
    let feature = |opcode: u8, fid: u32| Sqe::new(opcode).with_nsid(Nsid(1)).with_cdw(10, fid);
    let connect = |qid: u16| {
        let connect = Connect { recfmt: 0, qid: QueueId(qid), entries: 16, cattr: 0, kato_ms: 5000 };
        with_data(connect.encode(), 1024)
    };
    let dsm = Dsm { ranges: 2, deallocate: true, integral_read: false, integral_write: false };
    match number {
        0 => block(nvm::READ, 0, 8),
        1 => block(nvm::WRITE, 992, 8),
        2 => bare(nvm::FLUSH),
        3 => block(nvm::COMPARE, 0, 1),
        4 => BlockRange::new(0, 16).encode(nvm::WRITE_ZEROES, Nsid(1)),
        5 => with_data(dsm.encode(Nsid(1)), 32),
        6 => BlockRange::new(0, 16).encode(nvm::VERIFY, Nsid(1)),
        7..=12 => identify(u32::from(number - 7)),
        13 => identify(0x1c),
        14..=17 => log(Lid(number - 14)),
        18 => log(Lid::DISCOVERY),
        19 => feature(admin::GET_FEATURES, 7),
        20 => feature(admin::SET_FEATURES, 7).with_cdw(11, 0x0007_0007),
        21 => feature(admin::SET_FEATURES, 0x0b).with_cdw(11, 0xffff_ffff),
        22 => feature(admin::SET_FEATURES, 0x84).with_cdw(11, 1),
        23 => Sqe::new(admin::ASYNC_EVENT_REQUEST),
        24 => Sqe::new(admin::KEEP_ALIVE),
        25 => Sqe::new(admin::ABORT).with_cdw(10, 1),
        26 => Property::get(offset::CSTS, 4),
        27 => Property::set(offset::CC, 0x0046_0000),
        28 => Property::set(offset::CC, 0x0046_4001),
        29 => disconnect(),
        30 => connect(0),
        _ => connect(2),
    }
}

fn with_data(mut sqe: Sqe, length: u32) -> Sqe {
    sqe.dptr = SglDescriptor::encode(Sgl::Transport { length });
    sqe
}

fn connect_data(subsystem: &str, cntlid: ControllerId) -> ConnectData {
    let mut data = ConnectData::zeroed();
    data.hostid = [0x11; 16];
    data.cntlid = cntlid.0.into();
    data.subnqn = Nqn::parse(subsystem).expect("an NQN").to_field();
    data.hostnqn = Nqn::parse(HOST).expect("an NQN").to_field();
    let again = ConnectData::read_from_bytes(data.as_bytes()).expect("1024 bytes");
    assert_eq!(again, data);
    data
}

fn arrival(handle: u64) -> Arrival {
    let local = "127.0.0.1".to_string();
    let peer = "127.0.0.1:40000".to_string();
    let network = "127.0.0.1".to_string();
    Arrival { handle: Handle(handle), port: PortId(1), local, peer, network, channel: Channel::Plain, random: handle }
}

/// One subsystem with `namespaces` namespaces on one port.
fn model(namespaces: u32) -> Model {
    let nqn = Nqn::parse(DRIVE).expect("an NQN");
    let mut drive = Subsystem::new(nqn, "S0001".to_string());
    drive.allow_any_host = true;
    drive.ports = vec![PortId(1)];
    let namespace = |nsid: u32| Namespace {
        nsid: Nsid(nsid),
        device: DeviceId(nsid),
        object: DataId::default(),
        offset_bytes: BASE,
        blocks: BLOCKS,
        block_shift: 9,
        metadata: if nsid == PROTECTED {
            Metadata { bytes: 8, protection: ProtectionType::Type1, first: false }
        } else {
            Metadata::default()
        },
        read_only: nsid == 3,
        write_protected: nsid == 2,
        deallocates: true,
        volatile_cache: true,
        nguid: [1; 16],
        eui64: [0; 8],
        uuid: Uuid([2; 16]),
        ana_group: 1,
        right: ebof_fabrics::Right::Free,
        provision: None,
    };
    drive.namespaces = NamespaceTable::new((1..=namespaces).map(namespace).collect()).expect("a legal table");
    let identity = DiscoveryIdentity {
        nqn: Nqn::discovery(),
        serial: "D0001".to_string(),
        model: "ebof".to_string(),
        firmware: "0".to_string(),
    };
    let mut model = Model::new(identity);
    model.subsystems = vec![Arc::new(drive)];
    model.ports = vec![Port {
        id: PortId(1),
        trtype: TrType::TCP,
        adrfam: AddressFamily::IPV4,
        traddr: "0.0.0.0".to_string(),
        trsvcid: "4420".to_string(),
        tls: TlsUse::Off,
        provider: RdmaProvider::NOT_SPECIFIED,
        discovery_only: false,
        referrals: Vec::new(),
        states: ebof_fabrics::GroupStates::default(),
        in_capsule_bytes: 8192,
        max_queue_entries: 64,
        max_io_queues: 4,
    }];
    model
}
