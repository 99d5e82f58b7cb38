//! A target whose drive's thread is kept busy: what a host is told while work of its last association is left there.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test fails by panicking; sizes are small")]

#[allow(dead_code, reason = "not every test uses all of it")]
#[path = "../../tests/raw/mod.rs"]
mod raw;

use std::sync::mpsc;
use std::time::Instant;

use ebof_manage::Listen;
use ebof_manage::config::{Attach, ManagedDrive, Port, Subsystem};
use ebof_nvme::identify::Csi;
use ebof_nvme::io::BlockRange;
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nqn, Nsid};
use zerocopy::IntoBytes;

use self::raw::{Raw, connect, connect_data};
use super::*;

fn start(directory: &std::path::Path) -> (Target, SocketAddr) {
    let file = directory.join("drive.img");
    let mut drive = ManagedDrive::new("d0", file.to_str().unwrap().parse().unwrap());
    (drive.size_bytes, drive.attach) = (Some(64 << 20), Attach::Everyone);
    let port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
    let nqn = Nqn::parse("nqn.2014-08.org.example:drive0").unwrap();
    let mut subsystem = Subsystem::of_drive(nqn, &drive);
    subsystem.allow_any_host = true;
    subsystem.ports = vec![port.name.clone()];
    let config = Config { ports: vec![port], subsystems: vec![subsystem], drives: vec![drive], ..Config::default() };
    let target = Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() }).unwrap();
    let address = target.addresses()[0].1;
    (target, address)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "{what} takes longer than a minute");
        std::thread::yield_now();
    }
}

#[test]
fn what_the_drives_thread_has_of_an_old_queue_ends_before_the_next_one_begins() {
    let directory = tempfile::tempdir().unwrap();
    let (target, address) = start(directory.path());
    let (mut admin, controller) = Raw::admin_and_controller(address);
    let create = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM }.encode(Nsid::NONE);
    admin.send(create, 3, NewNamespace::new(16 << 11).as_bytes());
    assert!(admin.completion().status().is_success());
    let mut io = Raw::initialized(address);
    io.send(connect(1, 32), 1, connect_data(controller).as_bytes());
    assert!(io.completion().status().is_success());
    // From here on the drive's thread does nothing.
    let (open, gate) = mpsc::channel::<()>();
    let (_, keeper) = target.shared.drives.keepers().remove(0);
    keeper.medium().run(Box::new(move |_| _ = gate.recv()));
    io.send(BlockRange::new(0, 8).encode(nvm::WRITE_UNCORRECTABLE, Nsid(1)), 2, &[]);
    drop((admin, io));
    let (_admin, controller) = Raw::admin_and_controller(address);
    let mut io = Raw::initialized(address);
    io.send(connect(1, 32), 1, connect_data(controller).as_bytes());
    until("holding the Connect", || target.shared.registry().held_connects() == 1);
    open.send(()).unwrap();
    assert!(io.completion().status().is_success());
    // The mark was there before: what is written now stays.
    io.send(BlockRange::new(0, 1).encode(nvm::WRITE, Nsid(1)), 2, &[7; 512]);
    assert!(io.completion().status().is_success());
    io.send(BlockRange::new(0, 1).encode(nvm::VERIFY, Nsid(1)), 3, &[]);
    assert!(io.completion().status().is_success());
}
