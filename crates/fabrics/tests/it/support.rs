//! A target without sockets and devices: it executes steps immediately and delivers notices, so
//! that a test behaves like a host.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use ebof_authentication::Entropy;
use ebof_drive::reservation::Right;
use ebof_drive::{Capacity, DecisionInput, Drive, Identity, Managers, Request, Settings, State, View};
use ebof_fabrics::{
    Arrival, Authenticate, Backing, Channel, CloseReason, DataId, DeviceId, DiscoveryIdentity, Executing, Extent,
    FusedHalf, Handle, IoTask, Limits, Metadata, Model, Namespace, NamespaceTable, Notice, Notices, Port, PortId,
    Queue, Refusal, Registry, Step, Subsystem, Task, TlsUse, Transfer, TransferKind, Usage, adopt_drive,
};
use ebof_nvme::connect::{Connect, ConnectData, Property};
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::log::{AddressFamily, RdmaProvider, TrType};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cid, ControllerId, Cqe, HostId, Nqn, Nsid, QueueId, Sgl, Sqe, Status, Uuid};
use zerocopy::IntoBytes;

pub(crate) const DRIVE: &str = "nqn.2014-08.org.example:drive0";
/// A subsystem with a drive of 1 GiB in extents of 1 MiB, which Alice may manage.
pub(crate) const MANAGED: &str = "nqn.2014-08.org.example:managed";
pub(crate) const OTHER: &str = "nqn.2014-08.org.example:other";
pub(crate) const OWN_DISCOVERY: &str = "nqn.2014-08.org.nvmexpress:uuid:00112233-4455-6677-8899-aabbccddeeff";
pub(crate) const ALICE: &str = "nqn.2014-08.org.example:alice";
pub(crate) const BOB: &str = "nqn.2014-08.org.example:bob";

pub(crate) fn nqn(text: &str) -> Nqn {
    Nqn::parse(text).unwrap()
}

/// Namespace `nsid`: 1024 blocks of 512 bytes on device `nsid`, from byte 4096 on.
pub(crate) fn namespace(nsid: u32) -> Namespace {
    let byte = u8::try_from(nsid & 0xff).unwrap();
    Namespace {
        nsid: Nsid(nsid),
        device: DeviceId(nsid),
        object: DataId([byte; 16]),
        offset_bytes: 4096,
        blocks: 1024,
        block_shift: 9,
        metadata: Metadata::default(),
        read_only: false,
        write_protected: false,
        deallocates: true,
        volatile_cache: true,
        nguid: [byte; 16],
        eui64: [byte; 8],
        uuid: Uuid([byte; 16]),
        ana_group: 1,
        right: Right::Free,
        provision: None,
    }
}

pub(crate) fn port(id: u16, traddr: &str, trsvcid: &str) -> Port {
    let family = if traddr.contains(':') { AddressFamily::IPV6 } else { AddressFamily::IPV4 };
    Port {
        id: PortId(id),
        trtype: TrType::TCP,
        adrfam: family,
        traddr: traddr.to_string(),
        trsvcid: trsvcid.to_string(),
        tls: TlsUse::Off,
        provider: RdmaProvider::NOT_SPECIFIED,
        discovery_only: false,
        referrals: Vec::new(),
        states: ebof_fabrics::GroupStates::default(),
        in_capsule_bytes: 8192,
        max_queue_entries: 128,
        max_io_queues: 8,
    }
}

/// Two subsystems on port 1 (a wildcard), the second for Alice only; port 2 is for discovery only.
///
/// Namespaces of the first: 1 plain, 2 of 4 KiB blocks, 3 write protected, 5 read only and without
/// deallocation.
pub(crate) fn model() -> Model {
    let identity = DiscoveryIdentity {
        nqn: nqn(OWN_DISCOVERY),
        serial: "D0".to_string(),
        model: "ebof discovery".to_string(),
        firmware: "1".to_string(),
    };
    let big = Namespace { block_shift: 12, blocks: 1 << 20, ..namespace(2) };
    let protected = Namespace { write_protected: true, ..namespace(3) };
    let read_only = Namespace { read_only: true, deallocates: false, volatile_cache: false, ..namespace(5) };
    let mut drive = Subsystem::new(nqn(DRIVE), "S0001".to_string());
    drive.firmware = "0.1".to_string();
    drive.allow_any_host = true;
    drive.ports = vec![PortId(1)];
    drive.namespaces = NamespaceTable::new(vec![read_only, protected, big, namespace(1)]).unwrap();
    let mut other = Subsystem::new(nqn(OTHER), "S0002".to_string());
    other.firmware = "0.1".to_string();
    other.allowed_hosts = vec![nqn(ALICE)];
    other.ports = vec![PortId(1)];
    other.namespaces = NamespaceTable::new(vec![namespace(1)]).unwrap();
    let mut model = Model::new(identity);
    model.generation = 7;
    model.subsystems = vec![Arc::new(drive), Arc::new(other)];
    model.ports = vec![port(1, "0.0.0.0", "4420"), Port { discovery_only: true, ..port(2, "192.0.2.1", "8009") }];
    model
}

/// The drive of the managed subsystem in its initial state.
pub(crate) fn drive_of_model() -> Drive {
    drive_managed_by(&[ALICE])
}

fn drive_managed_by(managers: &[&str]) -> Drive {
    let identity = Identity { serial: "S0003".to_string(), model: "ebof drive".to_string(), uuid: [3; 16] };
    let managers = Managers::Only(managers.iter().map(|name| (*name).to_string()).collect());
    let revision = "1.0".to_string();
    let subsystem = MANAGED.to_string();
    let settings = Settings { managers, revision, subsystem, error_entries: 64, ..Settings::default() };
    let capacity = Capacity { total_bytes: 1 << 30, extent_bytes: 1 << 20 };
    Drive::new(State { identity, ..State::default() }, settings, capacity)
}

/// The device of every namespace: 1000 + volume.
fn adopt(subsystem: &mut Subsystem, view: Arc<View>) {
    let backing = |namespace: &ebof_drive::Namespace| {
        let device = DeviceId(1000 + u32::try_from(namespace.volume.0).unwrap());
        let used = Usage::new(|| 4096);
        Some(Backing { device, used, deallocates: true, volatile_cache: true, read_only: false })
    };
    adopt_drive(subsystem, view, backing).unwrap();
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Done {
    /// The completion, if there was one.
    pub(crate) cqe: Option<Cqe>,
    /// Data sent to the host.
    pub(crate) data: Vec<u8>,
    /// The step that the target would have executed on a device, as text without its ticket.
    pub(crate) step: String,
}

impl Done {
    pub(crate) fn status(&self) -> Status {
        self.cqe.expect("a completion").status()
    }

    pub(crate) fn result(&self) -> u64 {
        self.cqe.expect("a completion").result()
    }
}

pub(crate) struct World {
    pub(crate) registry: Registry,
    pub(crate) queues: BTreeMap<u64, Queue>,
    pub(crate) closes: Vec<(u64, CloseReason)>,
    pub(crate) events: Vec<(u64, Cqe)>,
    /// Those of them that are about Asymmetric Namespace Access: each namespace that is added
    /// brings one.
    pub(crate) ana_events: Vec<(u64, Cqe)>,
    /// Connections whose Connect is to be tried again.
    pub(crate) retries: Vec<u64>,
    pub(crate) now_ms: u64,
    pub(crate) port: PortId,
    /// The address that hosts connect to.
    pub(crate) local: String,
    /// Where they come from.
    pub(crate) network: String,
    /// What they connect through.
    pub(crate) channel: Channel,
    /// The status that devices return.
    pub(crate) device_status: Status,
    pub(crate) drive: Drive,
    /// First halves of Compare and Write, by queue and identifier.
    halves: BTreeMap<(u64, Cid), (Executing, Extent)>,
    /// Completions of first halves.
    pub(crate) ended: Vec<Cqe>,
    next_handle: u64,
    next_cid: u16,
    next_sequence: u32,
    moments: u8,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default(), model())
    }

    /// Includes the managed subsystem.
    pub(crate) fn managed() -> Self {
        Self::managed_by(&[ALICE])
    }

    /// With a drive that these hosts manage.
    pub(crate) fn managed_by(managers: &[&str]) -> Self {
        let drive = drive_managed_by(managers);
        let mut managed = Subsystem::new(nqn(MANAGED), "S0003".to_string());
        managed.allow_any_host = true;
        managed.cntlid_min = ControllerId(0);
        managed.ports = vec![PortId(1)];
        adopt(&mut managed, drive.view());
        let mut model = model();
        model.subsystems.push(Arc::new(managed));
        Self { drive, ..Self::with(Limits::default(), model) }
    }

    pub(crate) fn with(limits: Limits, model: Model) -> Self {
        Self {
            registry: Registry::new(limits, Arc::new(model), 41),
            queues: BTreeMap::new(),
            closes: Vec::new(),
            events: Vec::new(),
            ana_events: Vec::new(),
            retries: Vec::new(),
            now_ms: 1000,
            port: PortId(1),
            local: "198.51.100.7".to_string(),
            network: "203.0.113.9".to_string(),
            channel: Channel::Plain,
            device_status: Status::SUCCESS,
            drive: drive_of_model(),
            halves: BTreeMap::new(),
            ended: Vec::new(),
            next_handle: 0,
            next_cid: 0,
            next_sequence: 0,
            moments: 0,
        }
    }

    /// A new connection; its handle.
    pub(crate) fn open(&mut self) -> u64 {
        self.next_handle += 1;
        self.queues.insert(self.next_handle, Queue::new());
        self.next_handle
    }

    /// The connection ends.
    pub(crate) fn close(&mut self, at: u64) {
        self.queues.remove(&at);
        let notices = self.registry.closed(Handle(at));
        self.deliver(notices);
    }

    pub(crate) fn deliver(&mut self, notices: Notices) {
        for (Handle(at), notice) in notices {
            match &notice {
                Notice::Close(reason) => self.closes.push((at, *reason)),
                Notice::Connect => self.retries.push(at),
                _ => {}
            }
            if let Some(queue) = self.queues.get_mut(&at) {
                let event = queue.notify(notice, self.now_ms);
                event.into_iter().for_each(|cqe| self.note(at, cqe));
            }
            self.poll(at);
        }
    }

    fn poll(&mut self, at: u64) {
        while let Some(cqe) = self.queues.get_mut(&at).and_then(Queue::poll_event) {
            self.note(at, cqe);
        }
    }

    fn note(&mut self, at: u64, cqe: Cqe) {
        let is_ana = cqe.result() == u64::from(AsyncEvent::ANA_CHANGE.encode());
        if is_ana { &mut self.ana_events } else { &mut self.events }.push((at, cqe));
    }

    pub(crate) fn replace_model(&mut self, change: impl FnOnce(&mut Model)) {
        let mut model = Model::clone(self.registry.model());
        model.generation += 1;
        change(&mut model);
        let notices = self.registry.replace_model(Arc::new(model));
        self.deliver(notices);
    }

    pub(crate) fn expire_at(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        let notices = self.registry.expire(now_ms);
        self.deliver(notices);
    }

    /// Executes a request to the drive, and applies the result; `None` if the queue has ended.
    pub(crate) fn ask_drive(&mut self, at: u64, executing: Executing, request: &Request) -> Option<Step> {
        let origin = self.queues.get(&at)?.association().expect("a connected queue").origin();
        let input = self.decision_input();
        let by = origin.host.clone();
        let answer = self.drive.decide(request, &origin, &input).map(|decision| {
            decision.changes.into_iter().for_each(|change| self.drive.apply(change));
            (decision.answer, decision.notices)
        });
        let told = answer.as_ref().map(|(_, notices)| notices.clone()).unwrap_or_default();
        let answer = answer.map(|(answer, _)| answer);
        self.show_drive(Some(&by));
        let notices = self.registry.reservation_notices(&nqn(MANAGED), &told);
        self.deliver(notices);
        Some(self.queues.get_mut(&at)?.answer(executing, answer))
    }

    /// Executes a request to the drive that is not a command's own step.
    pub(crate) fn tell_drive(&mut self, at: u64, request: &Request) {
        let origin = self.queues[&at].association().unwrap().origin();
        let input = self.decision_input();
        let decision = self.drive.decide(request, &origin, &input).unwrap();
        decision.changes.into_iter().for_each(|change| self.drive.apply(change));
        self.publish_drive();
    }

    /// A different one each time.
    fn decision_input(&mut self) -> DecisionInput {
        self.moments = self.moments.wrapping_add(1);
        DecisionInput { unix_ms: self.now_ms, uptime_ms: self.now_ms, entropy: [self.moments; 32] }
    }

    /// Applies changes of the drive that no host has caused.
    pub(crate) fn publish_drive(&mut self) {
        self.show_drive(None);
    }

    fn show_drive(&mut self, by: Option<&Nqn>) {
        let subsystem = self.registry.model().subsystem(&nqn(MANAGED)).expect("it is never removed");
        let mut next = Subsystem::clone(subsystem);
        adopt(&mut next, self.drive.view());
        let notices = self.registry.replace_subsystems(vec![next], by);
        self.deliver(notices);
    }

    /// Sends a command with a new CID, and executes its steps; `data` are the host's data.
    pub(crate) fn run_with(&mut self, at: u64, sqe: Sqe, data: &[u8]) -> Done {
        self.next_cid = self.next_cid.wrapping_add(1);
        let mut sqe = sqe;
        sqe.cid = self.next_cid.into();
        let step = self.queues.get_mut(&at).expect("an open connection").submit(&sqe, self.now_ms);
        let done = self.carry_out(at, step, data);
        if let Some(cqe) = done.cqe {
            assert_eq!(cqe.cid(), sqe.cid());
        }
        self.poll(at);
        done
    }

    /// Sends a command with a new CID that the link refuses with `status`.
    pub(crate) fn refuse(&mut self, at: u64, sqe: Sqe, status: Status) -> Done {
        self.next_cid = self.next_cid.wrapping_add(1);
        let sqe = Sqe { cid: self.next_cid.into(), ..sqe };
        let step = self.queues.get_mut(&at).expect("an open connection").refuse(&sqe, status, self.now_ms);
        self.carry_out(at, step, &[])
    }

    pub(crate) fn run(&mut self, at: u64, sqe: Sqe) -> Done {
        self.run_with(at, sqe, &[])
    }

    /// Executes a step as a target would, with a device that always succeeds.
    #[expect(clippy::too_many_lines, reason = "an arm for each step")]
    pub(crate) fn carry_out(&mut self, at: u64, step: Step, data: &[u8]) -> Done {
        let status = self.device_status;
        let mut step = step;
        loop {
            let queue = self.queues.get_mut(&at).expect("an open connection");
            let (executing, task) = match step {
                Step::Complete(cqe) => return Done { cqe: Some(cqe), data: Vec::new(), step: String::new() },
                Step::Disconnect(cqe) => {
                    return Done { cqe: Some(cqe), data: Vec::new(), step: "disconnect".to_string() };
                }
                Step::Held => return Done { cqe: None, data: Vec::new(), step: "held".to_string() },
                Step::Withdrawn(next) => {
                    step = *next;
                    continue;
                }
                Step::Unpaired(first, status, next) => {
                    let (executing, _) = self.halves.remove(&(at, first)).expect("a first half that waits");
                    let cqe = queue.complete(executing, status);
                    self.ended.push(cqe);
                    step = *next;
                    continue;
                }
                Step::Execute(executing, task) => (executing, task),
            };
            let text = match task {
                Task::Reply(reply) => {
                    assert!(reply.len() <= executing.length() as usize, "more than the host has room for");
                    let cqe = queue.complete(executing, Status::SUCCESS);
                    return Done { cqe: Some(cqe), data: reply, step: String::new() };
                }
                Task::Receive => {
                    let mut data = data.to_vec();
                    data.resize(executing.length() as usize, 0);
                    step = queue.resume(executing, &data, self.now_ms);
                    continue;
                }
                Task::Connect => {
                    (step, _) = self.ask_registry(at, executing, data);
                    continue;
                }
                Task::DeferConnect(_) => panic!("a Connect that is held"),
                Task::Rings(task) => format!("{task:?}"),
                Task::Authenticate(what) => {
                    step = match *what {
                        Authenticate::Message(message) => {
                            self.next_sequence += 1;
                            queue.authenticate(executing, &message, &entropy(self.next_sequence))
                        }
                        Authenticate::Compute(work) => queue.computed(executing, work.unwrap().run()),
                    };
                    continue;
                }
                Task::Shared => {
                    let (next, notices) = self.registry.execute(queue, executing, self.now_ms);
                    self.deliver(notices);
                    step = next;
                    continue;
                }
                Task::Drive(mut drive) => {
                    let request = drive.take_request().unwrap();
                    step = self.ask_drive(at, executing, &request).expect("an open connection");
                    continue;
                }
                Task::Io(IoTask::Transfer(transfer)) => match transfer.fused {
                    Some(FusedHalf::First { .. }) => {
                        let text = described(&transfer);
                        self.halves.insert((at, executing.cid()), (executing, transfer.extent));
                        return Done { cqe: None, data: Vec::new(), step: text };
                    }
                    Some(FusedHalf::Second { first }) => {
                        let (first, of_first) = self.halves.remove(&(at, first)).expect("a first half that waits");
                        let place = |extent: &Extent| (extent.device, extent.offset_bytes, extent.length_bytes);
                        assert_eq!(place(&of_first), place(&transfer.extent));
                        self.ended.push(queue.complete(first, status));
                        let failed = if status.is_success() { status } else { Status::ABORTED_FAILED_FUSED };
                        let cqe = queue.complete(executing, failed);
                        return Done { cqe: Some(cqe), data: Vec::new(), step: described(&transfer) };
                    }
                    None => described(&transfer),
                },
                Task::Reset(quiesce) => {
                    for &Handle(io) in &quiesce.close {
                        self.close(io);
                    }
                    let queue = self.queues.get_mut(&at).expect("an open connection");
                    let cqe = queue.complete(executing, Status::SUCCESS);
                    return Done { cqe: Some(cqe), data: Vec::new(), step: format!("{quiesce:?}") };
                }
                Task::Abort(handle, cid) => {
                    let there = self.queues.get(&handle.0).is_some_and(|queue| queue.is_outstanding(cid));
                    let queue = self.queues.get_mut(&at).expect("an open connection");
                    let cqe = queue.complete_with(executing, Status::SUCCESS, 1);
                    return Done { cqe: Some(cqe), data: Vec::new(), step: format!("abort {cid} there: {there}") };
                }
                Task::Io(IoTask::Copy(copy)) => format!("copy {:?}", copy.plan()),
                Task::LbaStatus(query) => {
                    // Two ranges within the requested one.
                    let ranges = [(query.range.start, 1), (query.range.start + 2, 1 << 33)];
                    step = queue.lba_status(executing, &ranges, !query.allocated);
                    continue;
                }
                Task::Io(IoTask::Flush(device)) => format!("flush {device:?}"),
                Task::Io(IoTask::Deallocate(device, ranges)) => format!("deallocate {device:?} {ranges:?}"),
            };
            let cqe = queue.complete(executing, status);
            return Done { cqe: Some(cqe), data: Vec::new(), step: text };
        }
    }

    /// Connects `at`; the completion and the refusal.
    pub(crate) fn connect(&mut self, at: u64, connect: Connect, data: &ConnectData) -> (Cqe, Option<Refusal>) {
        let sqe = with_data(connect.encode(), 1024);
        let queue = self.queues.get_mut(&at).expect("an open connection");
        let Step::Execute(executing, Task::Connect) = queue.submit(&sqe, self.now_ms) else { panic!("no Connect") };
        let (step, refusal) = self.ask_registry(at, executing, data.as_bytes());
        let Step::Complete(cqe) = step else { panic!("Connect does not complete: {step:?}") };
        (cqe, refusal)
    }

    /// Why a connection was closed; `None` if it was not.
    pub(crate) fn closed(&self, at: u64) -> Option<CloseReason> {
        self.closes.iter().find(|(closed, _)| *closed == at).map(|(_, reason)| *reason)
    }

    /// Has the registry decide a Connect; the Admin Queues that it wants to be checked are alive.
    pub(crate) fn ask_registry(&mut self, at: u64, executing: Executing, data: &[u8]) -> (Step, Option<Refusal>) {
        let mut executing = executing;
        loop {
            let queue = self.queues.get_mut(&at).expect("an open connection");
            let arrival = Arrival {
                channel: self.channel.clone(),
                network: self.network.clone(),
                ..arrival(at, self.port, &self.local)
            };
            let decided = self.registry.connect(queue, executing, data, &arrival, self.now_ms);
            let notices = self.registry.take_notices();
            self.deliver(notices);
            match decided {
                (Step::Execute(kept, Task::DeferConnect(looks)), _) if !looks.is_empty() => {
                    executing = kept;
                    for _ in looks {
                        let notices = self.registry.acknowledge_check(Handle(at));
                        self.deliver(notices);
                    }
                }
                decided => return decided,
            }
        }
    }

    /// An enabled controller of `subsystem` for `host`; its Admin Queue and its identifier.
    pub(crate) fn controller(&mut self, subsystem: &str, host: &str) -> (u64, ControllerId) {
        let at = self.open();
        let (cqe, refusal) = self.connect(at, admin_connect(), &connect_data(subsystem, host, ControllerId::DYNAMIC));
        assert_eq!(refusal, None);
        let set = self.run(at, Property::set(offset::CC, Cc::ENABLE.0));
        assert!(set.status().is_success());
        if subsystem == MANAGED {
            self.tell_drive(at, &Request::AssignCntlid);
        }
        (at, ebof_nvme::connect::ConnectResult::connected(cqe.result()).0)
    }

    /// An I/O queue of that controller.
    pub(crate) fn io_queue(&mut self, subsystem: &str, host: &str, cntlid: ControllerId, qid: u16) -> u64 {
        let at = self.open();
        let connect = Connect { qid: QueueId(qid), entries: 64, ..admin_connect() };
        let (_, refusal) = self.connect(at, connect, &connect_data(subsystem, host, cntlid));
        assert_eq!(refusal, None);
        at
    }
}

/// Bytes that differ with the seed, which is not 0.
pub(crate) fn entropy(seed: u32) -> Entropy {
    let mut next = seed.to_le_bytes()[0];
    Entropy::new(NonZeroU32::new(seed).unwrap(), |bytes| {
        for byte in bytes {
            next = next.wrapping_mul(73).wrapping_add(31);
            *byte = next;
        }
    })
}

pub(crate) fn arrival(at: u64, port: PortId, local: &str) -> Arrival {
    Arrival {
        handle: Handle(at),
        port,
        local: local.to_string(),
        peer: format!("203.0.113.9:{at}"),
        network: "203.0.113.9".to_string(),
        channel: Channel::Plain,
        random: 0x1000 + at,
    }
}

pub(crate) fn admin_connect() -> Connect {
    Connect { recfmt: 0, qid: QueueId::ADMIN, entries: 32, cattr: 0, kato_ms: 0 }
}

/// The host's identifier is derived from its NQN.
pub(crate) fn host_id(host: &str) -> HostId {
    let mut id = [0x5a; 16];
    let tail = host.as_bytes().iter().rev().take(16);
    id.iter_mut().zip(tail).for_each(|(to, from)| *to = *from);
    HostId(id)
}

pub(crate) fn connect_data(subsystem: &str, host: &str, cntlid: ControllerId) -> ConnectData {
    let mut data = ConnectData::zeroed();
    data.hostid = host_id(host).0;
    data.cntlid = cntlid.0.into();
    data.subnqn = nqn(subsystem).to_field();
    data.hostnqn = nqn(host).to_field();
    data
}

/// The command with a data pointer of `length` bytes that the transport moves.
pub(crate) fn with_data(mut sqe: Sqe, length: u32) -> Sqe {
    sqe.dptr = SglDescriptor::encode(Sgl::Transport { length });
    sqe
}

/// The lines of `bytes` that are not all zeros, as hexadecimal dump.
pub(crate) fn dump(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (at, line) in bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|&byte| byte != 0)) {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = line.iter().map(|&b| if (0x20..0x7f).contains(&b) { char::from(b) } else { '.' }).collect();
        out += &format!("{:04x}  {}  {text}\n", at * 16, hex.join(" "));
    }
    out
}

/// A transfer, preceded by its checks of protection information.
fn described(transfer: &Transfer) -> String {
    let Transfer { kind, extent, fused, checks } = transfer;
    let verb = match (kind, fused) {
        (TransferKind::Read, _) => "read",
        (TransferKind::Write, None) => "write",
        (TransferKind::Write, Some(_)) => "write second",
        (TransferKind::Compare, None) => "compare",
        (TransferKind::Compare, Some(_)) => "compare first",
        (TransferKind::Verify, _) => "verify",
        (TransferKind::WriteZeroes, _) => "write zeroes",
        (TransferKind::WriteUncorrectable, _) => "uncorrectable",
    };
    let text = format!("{verb} {extent:?}");
    match checks {
        Some(checks) if fused.is_none() => {
            format!("checked {} of {}: {text}", checks.transfer_bytes, checks.device_bytes)
        }
        _ => text,
    }
}
