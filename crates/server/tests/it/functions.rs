//! Functions of a drive: their resources, subsystems and namespaces, and what is taken from them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use ebof_drive::{FunctionId, PortNames, Request};
use ebof_initiator::{AdminData, Controller, Event, Options};
use ebof_manage::config::{Attach, ManagedDrive, Port};
use ebof_manage::{Listen, Target as _};
use ebof_nvme::connect::Property;
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::identify::field::oacs;
use ebof_nvme::identify::{Cns, ControllerList, Csi};
use ebof_nvme::io::BlockRange;
use ebof_nvme::namespace::{AttachmentSelect, ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::opcode::nvm;
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::virtualization::{
    PrimaryCapabilities, ResourceType, SecondaryController, SecondaryControllerList, VirtualizationAction,
    VirtualizationManagement,
};
use ebof_nvme::{ControllerId, Nqn, Nsid, Sgl, Sqe, Status};
use ebof_server::Target;
use zerocopy::{FromBytes, IntoBytes};

use crate::drive_rig::{ALICE, BOB, NQN, admin, connect_as, connect_with, serve, status, wait};
use crate::heard::next_event;
use crate::raw::{self, Raw, connect_data};

const FUNCTIONS: u16 = 3;

/// A host that sends what the test says.
const RUDE: &str = "nqn.2014-08.org.example:rude";

/// A drive with functions, which Alice manages.
fn drive(backing: &Path) -> ManagedDrive {
    let mut drive = ManagedDrive::new("d0", backing.to_str().unwrap().parse().unwrap());
    drive.size_bytes = Some(64 << 20);
    drive.attach = Attach::Nobody;
    drive.functions = FUNCTIONS;
    drive.managers = Some(vec![Nqn::parse(ALICE).unwrap()]);
    drive
}

fn virt(
    controller: &Controller,
    action: VirtualizationAction,
    cntlid: u16,
    resource: ResourceType,
    count: u16,
) -> Status {
    let command = VirtualizationManagement { cntlid: ControllerId(cntlid), resource, action, count };
    let cqe = controller.admin(command.encode(), AdminData::None, None).unwrap();
    if cqe.status().is_success() && matches!(action, VirtualizationAction::Assign) {
        assert_eq!(cqe.result() & 0xffff, u64::from(count), "NRM");
    }
    cqe.status()
}

fn set_state(controller: &Controller, action: VirtualizationAction, function: u16) -> Status {
    virt(controller, action, function, ResourceType::Queues, 0)
}

/// Gives a function `queues` queues and takes it online.
fn bring_online(controller: &Controller, function: u16, queues: u16) {
    for resource in [ResourceType::Queues, ResourceType::Interrupts] {
        let assigned = virt(controller, VirtualizationAction::Assign, function, resource, queues);
        assert!(assigned.is_success(), "{assigned}");
    }
    let online = set_state(controller, VirtualizationAction::Online, function);
    assert!(online.is_success(), "{online}");
}

fn give(target: &Target, function: u16, port: Option<&str>) {
    let request = Request::GiveTo(FunctionId(function), PortNames::new(port).unwrap());
    target.ask_drive("d0", request).unwrap().unwrap();
}

/// The name of the port of `serve`.
fn port(target: &Target) -> String {
    target.addresses()[0].0.clone()
}

fn map(target: &Target, nsid: Nsid, function: u16) {
    target.ask_drive("d0", Request::Map(nsid, Some(FunctionId(function)))).unwrap().unwrap();
}

fn nqn_of(function: u16) -> Nqn {
    Nqn::parse(&format!("{NQN}:vf{function}")).unwrap()
}

/// A controller of a function.
fn connect_to(address: SocketAddr, host: &str, function: u16) -> Controller {
    connect_with(address, |options| {
        options.set_host_nqn(Nqn::parse(host).unwrap());
        options.nqn = nqn_of(function);
        options.nr_io_queues = 64;
    })
}

fn try_connect(address: SocketAddr, function: u16) -> Result<Controller, String> {
    let options = Options::new(address.ip().to_string(), address.port(), nqn_of(function));
    Controller::connect(&options).map_err(|error| error.to_string())
}

/// The status of a Connect.
fn connect_raw(address: SocketAddr, function: u16) -> Status {
    let mut data = connect_data(0xffff);
    data.subnqn = nqn_of(function).to_field();
    let mut admin = Raw::initialized(address);
    admin.send(raw::connect(0, 32), 1, data.as_bytes());
    admin.completion().status()
}

/// Creates a namespace that nobody has yet.
fn create(controller: &Controller, shared: bool) -> Nsid {
    let command = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM };
    let mut wanted = NewNamespace::new(16 << 11);
    wanted.nmic = shared.into();
    let cqe = controller.admin(command.encode(Nsid::NONE), AdminData::FromHost(wanted.as_bytes()), None).unwrap();
    assert!(cqe.status().is_success(), "{}", cqe.status());
    Nsid(u32::try_from(cqe.result() & 0xffff_ffff).unwrap())
}

fn attachment(controller: &Controller, select: AttachmentSelect, nsid: Nsid, controllers: &[u16]) -> Status {
    let list = ControllerList::starting_at(ControllerId(0), controllers.iter().map(|&id| ControllerId(id)));
    let sqe = select.encode(nsid);
    controller.admin(sqe, AdminData::FromHost(list.as_bytes()), None).unwrap().status()
}

fn controllers(controller: &Controller, cns: Cns, nsid: Nsid) -> Vec<u16> {
    let bytes = controller.identify_bytes(cns, nsid).unwrap();
    let list = ControllerList::ref_from_bytes(&bytes).unwrap();
    list.legal().unwrap().map(|id| id.0).collect()
}

fn secondaries(controller: &Controller) -> Vec<SecondaryController> {
    let bytes = controller.identify_bytes(Cns::SECONDARY_CONTROLLER_LIST, Nsid::NONE).unwrap();
    SecondaryControllerList::ref_from_bytes(&bytes).unwrap().used().to_vec()
}

/// A controller that has its functions online on the port of the target.
fn rig(backing: &Path) -> (Target, SocketAddr, Controller) {
    let (target, address) = serve(&drive(backing));
    let alice = connect_as(address, ALICE);
    for function in 1..=FUNCTIONS {
        bring_online(&alice, function, 5);
        give(&target, function, Some(&port(&target)));
    }
    (target, address, alice)
}

/// The drive on this file, without a target.
fn open_medium(backing: &Path) -> ebof_medium::Opened {
    let spec = backing.to_str().unwrap().parse().unwrap();
    let device = wait("the lock of the file", || ebof_backend::open(&spec).ok());
    ebof_medium::open(device, ebof_medium::Options::default()).unwrap()
}

/// Earlier versions had one port in the record of a function.
// @test drive.earlier-versions
#[test]
fn a_function_of_an_earlier_version_is_at_its_port_and_stays_there() {
    let directory = tempfile::tempdir().unwrap();
    let backing = directory.path().join("drive.img");
    let (target, _) = serve(&drive(&backing));
    let port = port(&target);
    target.stop(Duration::ZERO);
    drop(target);
    let function = format!(r#"{{"queues":3,"interrupts":3,"online":true,"port":"{port}","share":{{"weight":1}}}}"#);
    let change = format!(r#"{{"functions":{{"change":{{"changed":{{"id":1,"function":{function}}}}}}}}}"#);
    let opened = open_medium(&backing);
    let (sender, stored) = mpsc::channel();
    opened.medium.run(Box::new(move |store| sender.send(store.commit(&[change.as_bytes()])).unwrap()));
    stored.recv().unwrap().unwrap();
    opened.medium.stop();
    drop(opened);
    // From the first end of a target on, its record has the form of today.
    for _ in 0..2 {
        let (target, address) = serve(&drive(&backing));
        let host = connect_to(address, BOB, 1);
        assert_eq!(host.io_queues(), 2);
        drop(host);
        target.stop(Duration::ZERO);
    }
    let state = String::from_utf8(open_medium(&backing).snapshot.unwrap()).unwrap();
    assert!(state.contains(&format!(r#""port":["{port}"]"#)), "{state}");
}

#[test]
fn resources_are_assigned_and_a_function_comes_and_goes_with_its_state() {
    let directory = tempfile::tempdir().unwrap();
    let backing = directory.path().join("drive.img");
    let (target, address) = serve(&drive(&backing));
    let alice = connect_as(address, ALICE);
    let bob = connect_as(address, BOB);
    assert_eq!((alice.id().0, bob.id().0), (128, 129), "0 is the primary, 1 to 127 are secondaries");
    let bit = |controller: &Controller| controller.identify().oacs.get() & oacs::VIRTUALIZATION_MANAGEMENT != 0;
    assert!(bit(&alice) && !bit(&bob));
    let assign = VirtualizationAction::Assign;
    assert!(virt(&bob, assign, 1, ResourceType::Queues, 5).is(Status::OPERATION_DENIED));
    // The statuses of the specification.
    assert!(virt(&alice, assign, 4, ResourceType::Queues, 5).is(Status::INVALID_CONTROLLER_ID));
    assert!(virt(&alice, assign, 1, ResourceType::Queues, 130).is(Status::INVALID_CONTROLLER_RESOURCES));
    assert!(virt(&alice, assign, 1, ResourceType::Reserved(5), 1).is(Status::INVALID_RESOURCE_ID));
    assert!(set_state(&alice, VirtualizationAction::Online, 1).is(Status::INVALID_SECONDARY_STATE));
    assert!(set_state(&alice, VirtualizationAction::Reserved(2), 1).is(Status::INVALID_FIELD));
    bring_online(&alice, 1, 5);
    assert!(virt(&alice, assign, 1, ResourceType::Queues, 6).is(Status::INVALID_SECONDARY_STATE));
    let bytes = alice.identify_bytes(Cns::PRIMARY_CONTROLLER_CAPABILITIES, Nsid::NONE).unwrap();
    let capabilities = PrimaryCapabilities::ref_from_bytes(&bytes).unwrap();
    assert_eq!((capabilities.queues.frt.get(), capabilities.queues.rfa.get()), (195, 5));
    let listed = secondaries(&alice);
    assert_eq!(listed.iter().map(|entry| (entry.scs, entry.nvq.get())).collect::<Vec<_>>(), [(1, 5), (0, 0), (0, 0)]);
    // Online, but given to nobody.
    assert!(try_connect(address, 1).is_err());
    give(&target, 1, Some(&port(&target)));
    let host = connect_to(address, BOB, 1);
    assert_eq!((host.id().0, host.io_queues()), (130, 4), "an Admin Queue and four");
    let manages = oacs::NAMESPACE_MANAGEMENT | oacs::FORMAT_NVM | oacs::FIRMWARE | oacs::VIRTUALIZATION_MANAGEMENT;
    assert_eq!(host.identify().oacs.get() & manages, 0);
    assert_eq!(controllers(&alice, Cns::CONTROLLER_LIST, Nsid::NONE), [1, 2, 3, 128, 129]);
    // Offline: the association ends, and the resources are free.
    let events = host.events();
    assert!(set_state(&alice, VirtualizationAction::Offline, 1).is_success());
    wait("the end", || match next_event(&events) {
        Event::ConnectionLost(_) | Event::GaveUp(_) => Some(()),
        _ => None,
    });
    assert_eq!(secondaries(&alice)[0].nvq.get(), 0);
    // A host that tries again comes back when the function does.
    let offline = connect_raw(address, 1);
    assert_eq!(offline, Status::CONNECT_INVALID_PARAMETERS, "no DNR");
    assert_eq!(connect_raw(address, 4), Status::CONNECT_INVALID_PARAMETERS.dnr());
    assert!(try_connect(address, 1).is_err());
    host.disconnect();
    bring_online(&alice, 1, 3);
    assert_eq!(connect_to(address, BOB, 1).io_queues(), 2, "it is still given to the port");
    // All of it is durable.
    drop((alice, bob, target));
    let (target, address) = serve(&drive(&backing));
    assert_eq!(connect_to(address, BOB, 1).io_queues(), 2);
    // The reset of the primary.
    target.ask_drive("d0", Request::ResetPrimary).unwrap().unwrap();
    assert!(try_connect(address, 1).is_err());
    assert!(secondaries(&connect_as(address, ALICE)).iter().all(|entry| entry.scs == 0 && entry.nvq.get() == 0));
}

#[test]
fn a_namespace_of_a_function_is_shown_to_its_hosts_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, address, alice) = rig(&directory.path().join("drive.img"));
    let (first, second) = (connect_to(address, ALICE, 1), connect_to(address, BOB, 2));
    let (told_first, told_second) = (first.events(), second.events());
    let nsid = create(&alice, false);
    assert!(attachment(&alice, AttachmentSelect::Attach, nsid, &[0]).is(Status::CONTROLLER_LIST_INVALID));
    assert!(attachment(&alice, AttachmentSelect::Attach, nsid, &[4]).is(Status::CONTROLLER_LIST_INVALID));
    assert!(attachment(&alice, AttachmentSelect::Attach, nsid, &[1, 2]).is(Status::NAMESPACE_IS_PRIVATE));
    assert!(attachment(&first, AttachmentSelect::Attach, nsid, &[1]).is(Status::OPERATION_DENIED));
    assert!(attachment(&alice, AttachmentSelect::Attach, nsid, &[1]).is_success());
    assert!(attachment(&alice, AttachmentSelect::Attach, nsid, &[1]).is(Status::NAMESPACE_ALREADY_ATTACHED));
    assert!(attachment(&alice, AttachmentSelect::Attach, nsid, &[128]).is(Status::NAMESPACE_IS_PRIVATE));
    assert_eq!(next_event(&told_first), Event::NamespaceAdded(nsid), "also to the host that manages the drive");
    assert_eq!(controllers(&alice, Cns::NAMESPACE_CONTROLLER_LIST, nsid), [1]);
    assert_eq!((first.namespaces().unwrap(), second.namespaces().unwrap()), (vec![nsid], vec![]));
    first.namespace(nsid).unwrap().write(0, &[7; 4096], false).unwrap();
    assert!(alice.namespaces().unwrap().is_empty());
    // A second one for the other: each hears of its own.
    let other = create(&alice, true);
    assert!(attachment(&alice, AttachmentSelect::Attach, other, &[2, 3]).is_success());
    assert_eq!(next_event(&told_second), Event::NamespaceAdded(other));
    assert!(attachment(&alice, AttachmentSelect::Detach, nsid, &[2]).is(Status::NAMESPACE_NOT_ATTACHED));
    assert!(attachment(&alice, AttachmentSelect::Detach, nsid, &[1]).is_success());
    assert_eq!(next_event(&told_first), Event::NamespaceRemoved(nsid));
    assert!(told_first.try_recv().is_err() && told_second.try_recv().is_err(), "nothing of what others have");
    // Deleted while it is attached.
    assert!(
        admin(&alice, NamespaceManagement { select: ManagementSelect::Delete, csi: Csi::NVM }.encode(other))
            .is_success()
    );
    assert_eq!(next_event(&told_second), Event::NamespaceRemoved(other));
}

/// Queues of a host that sends what the test says.
struct Rude {
    _admin: Raw,
    io: Raw,
    controller: u16,
}

impl Rude {
    fn new(address: SocketAddr, subsystem: &Nqn, host: &str) -> Self {
        let connected = |controller| {
            let mut data = connect_data(controller);
            data.subnqn = subsystem.to_field();
            data.hostnqn = Nqn::parse(host).unwrap().to_field();
            data.hostid[..16].copy_from_slice(&host.as_bytes()[host.len() - 16..]);
            data
        };
        let mut admin = Raw::initialized(address);
        admin.send(raw::connect(0, 32), 1, connected(0xffff).as_bytes());
        let controller = admin.completion();
        assert!(controller.status().is_success());
        let enable = Property::set(offset::CC, Cc::ENABLE.0);
        admin.send(enable, 2, &[]);
        assert!(admin.completion().status().is_success());
        let controller = controller.dw0.get() as u16;
        let mut io = Raw::initialized(address);
        io.send(raw::connect(1, 32), 1, connected(controller).as_bytes());
        assert!(io.completion().status().is_success());
        Self { _admin: admin, io, controller }
    }

    /// Sends a write, but not the data that the target requests. Returns the R2T.
    fn write(&mut self, nsid: Nsid) -> Vec<u8> {
        let mut write = BlockRange::new(0, 128).encode(nvm::WRITE, nsid);
        write.dptr = SglDescriptor::encode(Sgl::Transport { length: 128 * 512 });
        self.io.send(write, 4, &[]);
        let r2t = self.io.pdu();
        assert_eq!(r2t[0], 9, "an R2T");
        r2t
    }
}

#[test]
fn what_a_function_had_under_way_ends_before_another_has_the_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let (target, address, alice) = rig(&directory.path().join("drive.img"));
    let nsid = create(&alice, false);
    map(&target, nsid, 1);
    let second = connect_to(address, BOB, 2);
    let told = second.events();
    let mut first = Rude::new(address, &nqn_of(1), RUDE);
    let r2t = first.write(nsid);
    let mut io = first.io;
    map(&target, nsid, 2);
    assert_eq!(next_event(&told), Event::NamespaceAdded(nsid));
    let namespace = second.namespace(nsid).unwrap();
    namespace.write(0, &[8; 4096], false).unwrap();
    // What the old owner sends now is ignored, and its command has ended.
    io.send_data(&r2t, &[9; 128 * 512]);
    let ended = io.completion();
    assert!(ended.status().is(Status::INVALID_NAMESPACE), "{}", ended.status());
    io.send(BlockRange::new(0, 8).encode(nvm::READ, nsid), 5, &[]);
    assert!(io.completion().status().is(Status::INVALID_NAMESPACE));
    let mut data = [0; 4096];
    namespace.read(0, &mut data).unwrap();
    assert_eq!(data, [8; 4096]);
    // Several moves at once, and each ends.
    let (done, finished) = mpsc::channel();
    std::thread::scope(|scope| {
        for function in [1, 3, 2, 1, 3] {
            let (target, done) = (&target, done.clone());
            scope.spawn(move || {
                map(target, nsid, function);
                done.send(()).unwrap();
            });
        }
    });
    drop(done);
    assert_eq!(finished.iter().count(), 5);
    assert_eq!(controllers(&alice, Cns::NAMESPACE_CONTROLLER_LIST, nsid).len(), 1);
}

#[test]
fn what_a_host_had_under_way_ends_when_it_is_detached_and_that_of_others_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, address, alice) = rig(&directory.path().join("drive.img"));
    let own = Nqn::parse(NQN).unwrap();
    let [mut detached, mut other] = [RUDE, BOB].map(|host| Rude::new(address, &own, host));
    let nsid = create(&alice, true);
    let ids = [detached.controller, other.controller];
    assert!(attachment(&alice, AttachmentSelect::Attach, nsid, &ids).is_success());
    // Who was shown it before it may write.
    let [lost, kept] = [&mut detached, &mut other].map(|host| host.write(nsid));
    assert!(attachment(&alice, AttachmentSelect::Detach, nsid, &ids[..1]).is_success());
    assert!(attachment(&alice, AttachmentSelect::Attach, nsid, &[2]).is_success());
    let namespace = wait("the namespace", || connect_to(address, BOB, 2).namespace(nsid).ok());
    detached.io.send_data(&lost, &[9; 128 * 512]);
    let ended = detached.io.completion().status();
    assert!(ended.is(Status::INVALID_NAMESPACE), "{ended}");
    let mut data = [1; 4096];
    namespace.read(0, &mut data).unwrap();
    assert_eq!(data, [0; 4096]);
    other.io.send_data(&kept, &[8; 128 * 512]);
    let ended = other.io.completion().status();
    assert!(ended.is_success(), "{ended}");
    namespace.read(0, &mut data).unwrap();
    assert_eq!(data, [8; 4096]);
}

#[test]
fn reservations_and_data_go_with_a_namespace_and_bind_hosts_at_its_new_function() {
    let directory = tempfile::tempdir().unwrap();
    let (target, address, alice) = rig(&directory.path().join("drive.img"));
    let nsid = create(&alice, false);
    map(&target, nsid, 1);
    let keys = |first: u64, second: u64| [first.to_le_bytes(), second.to_le_bytes()].concat();
    let reserve = |controller: &Controller, opcode, cdw10, data: &[u8]| {
        let mut queue = controller.queue_pair::<Vec<u8>>().unwrap();
        let sqe = Sqe::new(opcode).with_nsid(nsid).with_cdw(10, cdw10);
        queue.execute(sqe, AdminData::FromHost(data)).unwrap().status()
    };
    let holder = connect_to(address, BOB, 1);
    wait("the namespace", || holder.namespace(nsid).ok()).write(0, &[7; 512], false).unwrap();
    assert!(reserve(&holder, nvm::RESERVATION_REGISTER, 0, &keys(0, 0xb0b)).is_success());
    // Exclusive Access.
    assert!(reserve(&holder, nvm::RESERVATION_ACQUIRE, 2 << 8, &keys(0xb0b, 0)).is_success());
    map(&target, nsid, 2);
    let (own, strange) = (connect_to(address, BOB, 2), connect_to(address, ALICE, 2));
    let mut data = [0; 512];
    own.namespace(nsid).unwrap().read(0, &mut data).unwrap();
    assert_eq!(data, [7; 512]);
    assert!(status(strange.namespace(nsid).unwrap().read(0, &mut data)).is(Status::RESERVATION_CONFLICT));
    // A notice reaches the registrant through whichever function it is connected.
    assert!(reserve(&strange, nvm::RESERVATION_REGISTER, 0, &keys(0, 0xa11ce)).is_success());
    let told = own.events();
    // RACQA 1h: Preempt.
    assert!(reserve(&strange, nvm::RESERVATION_ACQUIRE, 2 << 8 | 1, &keys(0xa11ce, 0xb0b)).is_success());
    let log_page = AsyncEvent::RESERVATION_LOG_AVAILABLE.log_page.0;
    wait("the notice", || match next_event(&told) {
        Event::Asynchronous { log_page: said, .. } if said == log_page => Some(()),
        _ => None,
    });
    assert!(status(own.namespace(nsid).unwrap().read(0, &mut data)).is(Status::RESERVATION_CONFLICT));
}

#[test]
fn a_reload_leaves_functions_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let (target, address, alice) = rig(&directory.path().join("drive.img"));
    let nsid = create(&alice, false);
    map(&target, nsid, 1);
    let host = connect_to(address, BOB, 1);
    let events = host.events();
    let namespace = wait("the namespace", || host.namespace(nsid).ok());
    namespace.write(0, &[7; 512], false).unwrap();
    // Another port, and other managers.
    let mut config = target.config();
    let listen = Listen::new([127, 0, 0, 1].into(), 0);
    config.ports.push(Port { name: "second".to_owned(), ..Port::new(2, listen) });
    config.drives[0].managers = None;
    target.apply(config.clone()).unwrap();
    let mut data = [0; 512];
    namespace.read(0, &mut data).unwrap();
    assert_eq!(data, [7; 512]);
    assert!(events.try_recv().is_err(), "nothing has happened to it");
    // A function that is given to the new port comes there, and goes with it.
    give(&target, 2, Some("second"));
    let second = target.addresses().iter().find(|(name, _)| name == "second").unwrap().1;
    let other = connect_to(second, BOB, 2);
    assert!(try_connect(address, 2).is_err(), "it is at one port");
    config.ports.pop();
    // What is told before somebody listens is not kept.
    let gone = other.events();
    target.apply(config).unwrap();
    wait("the end", || matches!(next_event(&gone), Event::ConnectionLost(_) | Event::GaveUp(_)).then_some(()));
    namespace.read(0, &mut data).unwrap();
    assert!(try_connect(address, 2).is_err());
    // The name of a port that there is not: nobody reaches the function.
    give(&target, 3, Some("nowhere"));
    assert!(try_connect(address, 3).is_err());
    other.disconnect();
}
