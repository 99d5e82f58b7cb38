//! Queues at a gate that is shut: Connect has succeeded, and nothing else does.

use alloc::format;
use alloc::string::ToString as _;

use ebof_nvme::connect::{Connect, ConnectData, Property};
use ebof_nvme::feature::{Fid, SetFeature};
use ebof_nvme::identify::Cns;
use ebof_nvme::log::{AddressFamily, RdmaProvider, TrType};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cqe, QueueId, Sgl, Sqe, Status};
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::*;
use crate::model::secrets::Channel;
use crate::model::{DiscoveryIdentity, Limits, Model, PortId, TlsUse};
use crate::notice::Notice;

const DRIVE: &str = "nqn.2014-08.org.example:drive";
const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress:uuid:00112233-4455-6677-8899-aabbccddeeff";
const ALICE: &str = "nqn.2014-08.org.example:alice";
const BOB: &str = "nqn.2014-08.org.example:bob";
const ONE_ID: HostId = HostId([7; 16]);
const OTHER_ID: HostId = HostId([8; 16]);

fn registry(limits: Limits) -> Registry {
    let nqn = |text| Nqn::parse(text).unwrap();
    let identity = DiscoveryIdentity {
        nqn: nqn(DISCOVERY),
        serial: "D0".to_string(),
        model: "ebof discovery".to_string(),
        firmware: "1".to_string(),
    };
    let mut drive = Subsystem::new(nqn(DRIVE), "S0001".to_string());
    drive.allow_any_host = true;
    drive.ports = vec![PortId(1)];
    let mut model = Model::new(identity);
    model.subsystems = vec![Arc::new(drive)];
    model.ports = vec![Port {
        id: PortId(1),
        trtype: TrType::TCP,
        adrfam: AddressFamily::IPV4,
        traddr: "192.0.2.1".to_string(),
        trsvcid: "4420".to_string(),
        tls: TlsUse::Off,
        provider: RdmaProvider::NOT_SPECIFIED,
        discovery_only: false,
        referrals: Vec::new(),
        states: crate::GroupStates::default(),
        in_capsule_bytes: 8192,
        max_queue_entries: 128,
        max_io_queues: 8,
    }];
    Registry::new(limits, Arc::new(model), 41)
}

/// A queue, the handle of its connection, and who connects it.
struct Caller {
    queue: Queue,
    handle: u64,
}

impl Caller {
    fn new(handle: u64) -> Self {
        Self { queue: Queue::new(), handle }
    }

    /// Connects, as far as the gate.
    fn admit(&mut self, registry: &mut Registry, host: &str, id: HostId, qid: u16, cntlid: ControllerId) -> Cqe {
        let (executing, data) = self.begin(host, id, qid, cntlid);
        let arrival = arrival(self.handle);
        let (step, refusal) = registry.admit(&mut self.queue, executing, data.as_bytes(), &arrival, 1000);
        let Step::Complete(cqe) = step else { panic!("Connect does not complete: {step:?}, {refusal:?}") };
        cqe
    }

    /// Connects.
    fn connect(&mut self, registry: &mut Registry, host: &str, id: HostId) -> Result<(), RefusalReason> {
        let (executing, data) = self.begin(host, id, 0, ControllerId::DYNAMIC);
        let arrival = arrival(self.handle);
        let (_, refusal) = registry.connect(&mut self.queue, executing, data.as_bytes(), &arrival, 1000);
        refusal.map_or(Ok(()), |refusal| Err(refusal.reason))
    }

    fn begin(&mut self, host: &str, id: HostId, qid: u16, cntlid: ControllerId) -> (Executing, ConnectData) {
        let mut sqe = Connect { recfmt: 0, qid: QueueId(qid), entries: 32, cattr: 0, kato_ms: 0 }.encode();
        sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: 1024 });
        let mut data = ConnectData::new_zeroed();
        data.hostid = id.0;
        data.cntlid = cntlid.0.into();
        data.subnqn = Nqn::parse(DRIVE).unwrap().to_field();
        data.hostnqn = Nqn::parse(host).unwrap().to_field();
        let Step::Execute(executing, Task::Connect) = self.queue.submit(&sqe, 1000) else { panic!("no Connect") };
        (executing, data)
    }

    /// The status of a command, which has to complete at once.
    fn status_of(&mut self, sqe: &Sqe) -> Status {
        match self.queue.submit(sqe, 1000) {
            Step::Complete(cqe) => cqe.status(),
            step => panic!("{step:?}"),
        }
    }
}

fn arrival(handle: u64) -> Arrival {
    let peer = format!("203.0.113.9:{handle}");
    let (local, network) = ("192.0.2.1".to_string(), "203.0.113.9".to_string());
    Arrival { handle: Handle(handle), port: PortId(1), local, peer, network, channel: Channel::Plain, random: handle }
}

/// A command with data of one page, where it has any.
fn command(opcode: u8) -> Sqe {
    let mut sqe = Sqe::new(opcode);
    sqe.nsid = 1.into();
    sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: 4096 });
    sqe
}

#[test]
fn behind_a_shut_gate_a_host_reads_properties_and_does_nothing_else() {
    let mut registry = registry(Limits::default());
    let mut alice = Caller::new(1);
    let connected = alice.admit(&mut registry, ALICE, ONE_ID, 0, ControllerId::DYNAMIC);
    assert!(connected.status().is_success());
    assert!(alice.queue.is_connected() && alice.queue.is_admin() && !alice.queue.is_open());

    assert!(alice.status_of(&Property::get(offset::CAP, 8)).is_success());
    assert!(alice.status_of(&Property::get(offset::CSTS, 4)).is_success());
    let mut timer = command(admin::SET_FEATURES);
    timer.cdw10 = SetFeature { fid: Fid::KEEP_ALIVE_TIMER, save: false }.encode().into();
    timer.cdw11 = 60_000.into();
    let admin_commands =
        [admin::IDENTIFY, admin::KEEP_ALIVE, admin::ASYNC_EVENT_REQUEST, admin::ABORT, admin::GET_LOG_PAGE];
    let refused = admin_commands.map(command).into_iter().chain([Property::set(offset::CC, Cc::ENABLE.0), timer]);
    for sqe in refused {
        assert_eq!(alice.status_of(&sqe), Status::AUTHENTICATION_REQUIRED.dnr(), "{sqe:?}");
    }
    assert_eq!(alice.queue.outstanding(), 0);

    registry.open(&mut alice.queue, 1000);
    assert!(alice.queue.is_open());
    let enable = alice.queue.submit(&Property::set(offset::CC, Cc::ENABLE.0), 1000);
    assert!(matches!(&enable, Step::Complete(cqe) if cqe.status().is_success()), "{enable:?}");
    assert!(matches!(alice.queue.submit(&command(admin::ASYNC_EVENT_REQUEST), 1000), Step::Held));
}

#[test]
fn an_io_queue_behind_a_shut_gate_gives_nothing_to_a_device() {
    let mut registry = registry(Limits::default());
    let mut alice = Caller::new(1);
    alice.connect(&mut registry, ALICE, ONE_ID).unwrap();
    assert!(alice.status_of(&Property::set(offset::CC, Cc::ENABLE.0)).is_success());
    let cntlid = alice.queue.association().unwrap().cntlid;

    let mut io = Caller::new(2);
    let connected = io.admit(&mut registry, ALICE, ONE_ID, 1, cntlid);
    assert!(connected.status().is_success());
    for opcode in [nvm::READ, nvm::WRITE, nvm::FLUSH, nvm::COMPARE, nvm::WRITE_ZEROES] {
        assert_eq!(io.status_of(&command(opcode)), Status::AUTHENTICATION_REQUIRED.dnr());
    }
    let mut first = command(nvm::COMPARE);
    first.flags |= 1;
    assert_eq!(io.status_of(&first), Status::AUTHENTICATION_REQUIRED.dnr());
    assert_eq!(io.queue.executing(), 0);

    registry.open(&mut io.queue, 1000);
    // There is no namespace 1.
    assert_eq!(io.status_of(&command(nvm::READ)), Status::INVALID_NAMESPACE.dnr().more());
}

#[test]
fn whoever_has_proven_nothing_is_in_nobodys_way() {
    let mut registry = registry(Limits { host_controllers: 1, host_queues: 1, ..Limits::default() });
    let mut stranger = Caller::new(1);
    stranger.admit(&mut registry, BOB, ONE_ID, 0, ControllerId::DYNAMIC);

    // It says the same host identifier, and has the only place that its name has.
    let mut alice = Caller::new(2);
    alice.connect(&mut registry, ALICE, ONE_ID).unwrap();
    let mut bob = Caller::new(3);
    bob.connect(&mut registry, BOB, OTHER_ID).unwrap();

    // Others do not see it.
    assert!(alice.status_of(&Property::set(offset::CC, Cc::ENABLE.0)).is_success());
    let mut list = command(admin::IDENTIFY);
    list.nsid = 0.into();
    list.cdw10 = u32::from(Cns::CONTROLLER_LIST.0).into();
    let step = alice.queue.submit(&list, 1000);
    let Step::Execute(executing, Task::Shared) = step else { panic!("{step:?}") };
    let (step, _) = registry.execute(&mut alice.queue, executing, 1000);
    let Step::Execute(_, Task::Reply(seen)) = step else { panic!("{step:?}") };
    assert_eq!(seen[..2], [2, 0], "controllers of alice and bob");

    // Events are not for it, and its end is waited for by nobody.
    assert_eq!(
        stranger.queue.notify(Notice::Event(ebof_nvme::event::AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED), 1000),
        None
    );
    let _ = registry.ending(Handle(1));
    let key = registry.controllers.of_handle(Handle(2)).unwrap();
    assert!(!registry.controllers.is_draining(key));
    assert!(!registry.controllers.drains_too_much(&Nqn::parse(DRIVE).unwrap(), &Nqn::parse(BOB).unwrap()));
    let _ = registry.expire(1_000_000);
    assert_eq!(registry.take_slow_drains(), []);
}

#[test]
fn once_the_gate_is_open_a_host_identifier_belongs_to_its_host() {
    let mut registry = registry(Limits::default());
    let mut alice = Caller::new(1);
    alice.connect(&mut registry, ALICE, ONE_ID).unwrap();
    assert_eq!(Caller::new(2).connect(&mut registry, BOB, ONE_ID), Err(RefusalReason::HostIdInUse));
}
