//! A function of a drive at a direct port: the secondary controller itself, and what is left of it
//! when the function is given to another port.

use std::path::Path;

use ebof_drive::{FunctionId, PortNames, Request};
use ebof_initiator::{AdminData, Controller, Options};
use ebof_manage::config::{Attach, ManagedDrive, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::identify::{Csi, IdentifyController};
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::virtualization::{ResourceType, VirtualizationAction, VirtualizationManagement};
use ebof_nvme::{ControllerId, Nqn, Nsid, Sqe, Status};
use ebof_server::{Settings, Target};
use zerocopy::{FromBytes, IntoBytes};

use crate::direct::{READ, WRITE};
use crate::direct_rig::{DATA, Guest, prp, transfer};
use crate::drive_rig::{ALICE, NQN};

fn connect(target: &Target, nqn: &str) -> Controller {
    let address = target.addresses().into_iter().find(|(name, _)| name.starts_with("tcp")).unwrap().1;
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(nqn).unwrap());
    options.set_host_nqn(Nqn::parse(ALICE).unwrap());
    options.nr_io_queues = 1;
    Controller::connect(&options).unwrap()
}

fn ask(target: &Target, request: Request) {
    target.ask_drive("d0", request).unwrap().unwrap();
}

fn give_to(port: &str) -> Request {
    Request::GiveTo(FunctionId(1), PortNames::new([port]).unwrap())
}

/// A target with a drive of two functions, a fabric port (by name) and a direct port.
fn start(folder: &Path) -> (Target, String) {
    let socket = folder.join("direct.sock");
    let backing = folder.join("drive.img");
    let mut drive = ManagedDrive::new("d0", backing.to_str().unwrap().parse().unwrap());
    drive.size_bytes = Some(64 << 20);
    drive.attach = Attach::Nobody;
    drive.functions = 2;
    drive.managers = Some(vec![Nqn::parse(ALICE).unwrap()]);
    let tcp = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
    let direct = Port { name: "direct1".into(), ..Port::new(2, Listen::vfio_user(&socket)) };
    let mut subsystem = Subsystem::of_drive(Nqn::parse(NQN).unwrap(), &drive);
    // Who is behind the direct port need not be named.
    subsystem.allowed_hosts = vec![Nqn::parse(ALICE).unwrap()];
    subsystem.ports = vec![tcp.name.clone()];
    let fabric = tcp.name.clone();
    let ports = vec![tcp, direct];
    let config = Config { ports, subsystems: vec![subsystem], drives: vec![drive], ..Config::default() };
    let settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
    (Target::start(config, settings).unwrap(), fabric)
}

#[test]
fn a_function_moves_between_a_direct_port_and_a_fabric_port() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("direct.sock");
    let (target, fabric) = start(folder.path());
    let alice = connect(&target, NQN);
    let virt = |action, resource, count| {
        let command = VirtualizationManagement { cntlid: ControllerId(1), resource, action, count };
        let status = alice.admin(command.encode(), AdminData::None, None).unwrap().status();
        assert!(status.is_success(), "{status}");
    };
    virt(VirtualizationAction::Assign, ResourceType::Queues, 3);
    virt(VirtualizationAction::Assign, ResourceType::Interrupts, 2);
    virt(VirtualizationAction::Online, ResourceType::Queues, 0);
    let create = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM };
    let wanted = NewNamespace::new(16 << 11);
    let made = alice.admin(create.encode(Nsid::NONE), AdminData::FromHost(wanted.as_bytes()), None).unwrap();
    assert!(made.status().is_success(), "{}", made.status());
    let nsid = Nsid(made.dw0.get());
    assert_eq!(nsid, Nsid(1));

    // Nothing is there yet: the controller cannot be enabled.
    let mut guest = Guest::new(&socket);
    guest.write32(0x24, 31 << 16 | 31);
    guest.write32(0x14, 0x0046_0001);
    guest.await_status(2, 2);
    guest.disable();
    ask(&target, give_to("direct1"));
    ask(&target, Request::Map(nsid, Some(FunctionId(1))));
    guest.enable();
    let identify = prp(Sqe::new(0x06).with_cdw(10, 1), DATA, 0);
    assert_eq!(guest.admin(identify).status(), Status::SUCCESS);
    let data = guest.get(DATA, 4096);
    let controller = IdentifyController::ref_from_bytes(&data).unwrap();
    assert_eq!(controller.cntlid.get(), 1, "the secondary controller itself");
    assert!(controller.subnqn.starts_with(format!("{NQN}:vf1").as_bytes()));
    let queues = guest.admin(prp(Sqe::new(0x0a).with_cdw(10, 7), 0, 0));
    assert_eq!(queues.dw0.get(), 0x0001_0001, "two I/O queues");
    // Its interrupts are two.
    let cq = |vector: u32| prp(Sqe::new(0x05).with_cdw(10, 7 << 16 | 2).with_cdw(11, vector << 16 | 3), DATA, 0);
    assert!(guest.admin(cq(2)).status().is(Status::INVALID_INTERRUPT_VECTOR));
    assert_eq!(guest.admin(cq(1)).status(), Status::SUCCESS);
    let mut io = guest.create(1, 64);
    guest.put(DATA, &[0x5a; 4096]);
    assert_eq!(guest.call(&mut io, transfer(WRITE, 0, 8, DATA, 0)).status(), Status::SUCCESS);

    // Taken away under commands: the controller has failed, as far as the guest sees.
    let before = io.tail;
    for _ in 0..20 {
        guest.push(&mut io, transfer(READ, 0, 8, DATA, 0));
    }
    guest.ring(&io, before);
    ask(&target, Request::GiveTo(FunctionId(1), PortNames::default()));
    guest.await_status(2, 2);
    ask(&target, give_to(&fabric));
    let host = connect(&target, &format!("{NQN}:vf1"));
    let mut bytes = [0; 4096];
    host.namespace(nsid).unwrap().read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0x5a; 4096]);
    host.namespace(nsid).unwrap().write(0, &[0xc3; 4096], false).unwrap();
    drop(host);
    // And back.
    ask(&target, give_to("direct1"));
    guest.disable();
    guest.enable();
    let mut io = guest.create(1, 64);
    assert_eq!(guest.call(&mut io, transfer(READ, 0, 8, DATA, 0)).status(), Status::SUCCESS);
    assert_eq!(guest.get(DATA, 4096), [0xc3; 4096]);
}

#[test]
fn log_pages_that_the_drive_keeps_are_in_the_memory_of_a_directly_attached_host() {
    let folder = tempfile::tempdir().unwrap();
    let (target, _fabric) = start(folder.path());
    ask(&target, give_to("direct1"));
    let alice = connect(&target, NQN);
    for (action, resource, count) in [
        (VirtualizationAction::Assign, ResourceType::Queues, 3),
        (VirtualizationAction::Assign, ResourceType::Interrupts, 2),
        (VirtualizationAction::Online, ResourceType::Queues, 0),
    ] {
        let command = VirtualizationManagement { cntlid: ControllerId(1), resource, action, count };
        let status = alice.admin(command.encode(), AdminData::None, None).unwrap().status();
        assert!(status.is_success(), "{status}");
    }
    let mut guest = Guest::new(&folder.path().join("direct.sock"));
    guest.enable();
    let page = |lid: u32| prp(Sqe::new(0x02).with_nsid(Nsid::ALL).with_cdw(10, 127 << 16 | lid), DATA, 0);
    guest.put(DATA, &[0xff; 512]);
    assert_eq!(guest.admin(page(2)).status(), Status::SUCCESS, "SMART / Health Information");
    let health = guest.get(DATA, 512);
    assert_eq!((health[0], health[3], &health[112..116]), (0, 100, &[1, 0, 0, 0][..]), "spare, power cycles");
    for lid in [1, 3, 5] {
        assert_eq!(guest.admin(page(lid)).status(), Status::SUCCESS, "log page {lid}");
    }
}
