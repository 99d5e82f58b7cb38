//! Functions at ports: one that leaves a port, and several that are controllers of one subsystem.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebof_fabrics::{CloseReason, Function, PortId, RefusalReason};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{ControllerId, Nsid, Sqe, Status};

use crate::support::{ALICE, DRIVE, OTHER, World, admin_connect, connect_data, nqn, port, with_data};

/// The subsystem at `DRIVE` has a function at ports 1 and 3; that at `OTHER` is another one of the
/// same drive, at port 4.
fn world(is_of_drive: bool) -> World {
    let mut world = World::new();
    world.replace_model(|model| {
        model.ports.extend([port(3, "192.0.2.3", "4420"), port(4, "192.0.2.4", "4420")]);
        for (at, id, ports) in [(0, 1, &[1, 3][..]), (1, 2, &[4])] {
            let subsystem = Arc::make_mut(&mut model.subsystems[at]);
            subsystem.allow_any_host = true;
            subsystem.ports = ports.iter().map(|&id| PortId(id)).collect();
            subsystem.function = Some(Function {
                drive: nqn("nqn.2014-08.org.example:box"),
                id: ebof_drive::FunctionId(id),
                online: true,
                queues: 4,
                interrupts: 4,
                share: ebof_drive::Share::default(),
                is_of_drive,
                leaving: BTreeSet::new(),
            });
        }
    });
    world
}

fn leave(world: &mut World, ports: &[u16]) {
    world.replace_model(|model| {
        let function = Arc::make_mut(&mut model.subsystems[0]).function.as_mut().unwrap();
        function.leaving = ports.iter().map(|&id| PortId(id)).collect();
    });
}

/// Why a host is refused at a port; `None` if it is not.
fn refusal(world: &mut World, at: u16, subsystem: &str) -> Option<RefusalReason> {
    world.port = PortId(at);
    let queue = world.open();
    let data = connect_data(subsystem, ALICE, ControllerId::DYNAMIC);
    world.connect(queue, admin_connect(), &data).1.map(|refusal| refusal.reason)
}

#[test]
fn a_port_that_a_function_leaves_is_inaccessible_and_takes_no_new_hosts() {
    let mut world = world(false);
    let [leaving, staying] = [1, 3].map(|at| {
        world.port = PortId(at);
        let (_, cntlid) = world.controller(DRIVE, ALICE);
        world.io_queue(DRIVE, ALICE, cntlid, 1)
    });
    let read = |world: &mut World, at| world.run(at, with_data(Sqe::new(nvm::READ).with_nsid(Nsid(1)), 512)).status();
    leave(&mut world, &[1]);
    assert!(read(&mut world, leaving).is(Status::ANA_INACCESSIBLE));
    assert!(read(&mut world, staying).is_success());
    assert_eq!(refusal(&mut world, 1, DRIVE), Some(RefusalReason::UnknownSubsystem));
    assert_eq!(refusal(&mut world, 3, DRIVE), None);
    assert_eq!((world.closed(leaving), world.closed(staying)), (None, None));
    leave(&mut world, &[]);
    assert!(read(&mut world, leaving).is_success());
    world.replace_model(|model| Arc::make_mut(&mut model.subsystems[0]).ports = vec![PortId(3)]);
    assert_eq!((world.closed(leaving), world.closed(staying)), (Some(CloseReason::FunctionTaken), None));
}

#[test]
fn functions_of_one_subsystem_are_found_by_its_name_at_their_ports() {
    const BOX: &str = "nqn.2014-08.org.example:box";
    let mut world = world(true);
    for at in [1, 3, 4] {
        world.port = PortId(at);
        let (queue, cntlid) = world.controller(BOX, ALICE);
        world.io_queue(BOX, ALICE, cntlid, 1);
        let identify = with_data(Sqe::new(admin::IDENTIFY).with_cdw(10, 1), 4096);
        let data = world.run(queue, identify).data;
        assert_eq!(data[768..][..BOX.len()], *BOX.as_bytes(), "SUBNQN at port {at}");
        assert_eq!(data[768 + BOX.len()], 0);
    }
    for (at, subsystem) in [(1, DRIVE), (4, OTHER), (4, DRIVE)] {
        assert_eq!(refusal(&mut world, at, subsystem), Some(RefusalReason::UnknownSubsystem));
    }
}
