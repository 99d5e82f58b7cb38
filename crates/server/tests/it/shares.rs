//! No host can use up what all share.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ebof_initiator::{Controller, Options};
use ebof_manage::Target as _;
use ebof_manage::api::RefusalReason;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Nqn, Nsid, Sgl};
use ebof_server::{Settings, Target};
use zerocopy::IntoBytes;

use crate::config::{NQN, one_subsystem};
use crate::raw::{Raw, connect, connect_data};

fn serve(connections_max: u32, controllers_max: u32) -> (Target, SocketAddr) {
    let settings = Settings { threads: Some(1), pin: false, connections_max, controllers_max, ..Settings::default() };
    let target = Target::start(one_subsystem(["mem:1Mi"]), settings).unwrap();
    let address = target.addresses()[0].1;
    (target, address)
}

/// Another host, which reads a block.
fn other_host_works(address: SocketAddr) {
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    options.set_host_nqn(Nqn::parse("nqn.2014-08.org.example:modest").unwrap());
    options.nr_io_queues = 1;
    let controller = Controller::connect(&options).unwrap();
    controller.namespace(Nsid(1)).unwrap().read(0, &mut [0; 512]).unwrap();
}

fn reasons(target: &Target) -> Vec<RefusalReason> {
    target.refused().into_iter().map(|refusal| refusal.reason).collect()
}

// @test hostile.shares
#[test]
fn a_host_cannot_use_all_controllers() {
    let (target, address) = serve(1000, 20);
    let mut held = Vec::new();
    loop {
        let mut raw = Raw::initialized(address);
        raw.send(connect(0, 32), 1, connect_data(0xffff).as_bytes());
        let granted = raw.completion().status().is_success();
        held.push(raw);
        if !granted {
            break;
        }
        assert!(held.len() <= 20);
    }
    assert_eq!(held.len(), 17 + 1, "85 % of 20, and the one that was refused");
    assert_eq!(reasons(&target), [RefusalReason::HostShare]);
    other_host_works(address);
}

// @test hostile.shares
#[test]
fn a_host_cannot_use_all_connections() {
    let (target, address) = serve(40, 1000);
    let (admin, controller) = Raw::admin_and_controller(address);
    let mut admin = admin;
    // Feature 07h: the number of I/O queues.
    let queues = ebof_nvme::Sqe { opcode: 0x09, cdw10: 7.into(), cdw11: 0x00ff_00ff.into(), ..Default::default() };
    admin.send(queues, 3, &[]);
    assert!(admin.completion().status().is_success());
    let mut held = Vec::new();
    loop {
        let mut raw = Raw::initialized(address);
        let id = u16::try_from(held.len() + 1).unwrap();
        raw.send(connect(id, 32), 1, connect_data(controller).as_bytes());
        if !raw.completion().status().is_success() {
            break;
        }
        held.push(raw);
        assert!(held.len() < 40);
    }
    assert_eq!(held.len() + 1, 34, "85 % of 40");
    assert_eq!(reasons(&target), [RefusalReason::HostShare]);
    other_host_works(address);
}

// @test hostile.shares
#[test]
fn silent_connections_cannot_use_all_connections() {
    let (target, address) = serve(100, 1000);
    let mut silent: Vec<TcpStream> = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(address).unwrap());
    }
    // The flood comes from another loopback address than the host.
    let mut stranger = connect_from([127, 0, 0, 2].into(), address);
    stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut request = [0; 128];
    (request[0], request[2], request[4]) = (0, 128, 128);
    std::io::Write::write_all(&mut stranger, &request).unwrap();
    std::io::Read::read_exact(&mut stranger, &mut [0; 128]).unwrap();
    let status = target.status();
    assert!(status.connections <= 11, "10 of one address, one of the other: {}", status.connections);
    assert_eq!(reasons(&target), [RefusalReason::AddressShare]);
    // When they have ended, there is room for the same address again.
    drop(silent);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while target.status().connections > 5 {
        assert!(std::time::Instant::now() < deadline, "connections that ended still count");
        std::thread::yield_now();
    }
    other_host_works(address);
}

// @test hostile.shares
#[test]
fn a_host_cannot_use_all_buffers() {
    let directory = tempfile::tempdir().unwrap();
    let drive = format!("{}:4Mi", directory.path().join("disk.img").display());
    let settings = Settings { threads: Some(1), pin: false, reactor_buffer_bytes: 16 << 20, ..Settings::default() };
    let target = Target::start(one_subsystem([drive.as_str()]), settings).unwrap();
    let address = target.addresses()[0].1;
    let (mut admin, controller) = Raw::admin_and_controller(address);
    let queues = ebof_nvme::Sqe { opcode: 0x09, cdw10: 7.into(), ..Default::default() };
    admin.send(queues, 3, &[]);
    assert!(admin.completion().status().is_success());
    let mut greedy = Raw::initialized(address);
    greedy.send(connect(1, 64), 1, connect_data(controller).as_bytes());
    assert!(greedy.completion().status().is_success());
    // Writes of 1 MiB whose data never arrive: an R2T is sent for each that has a buffer.
    let mut write = BlockRange::new(0, 2048).encode(nvm::WRITE, Nsid(1));
    write.dptr = SglDescriptor::encode(Sgl::Transport { length: 1 << 20 });
    for cid in 0..20 {
        greedy.send(write, cid, &[]);
    }
    greedy.send(ebof_nvme::Sqe::new(nvm::FLUSH).with_nsid(Nsid(1)), 100, &[]);
    let kinds = std::iter::from_fn(|| Some(greedy.pdu()[0]).filter(|&kind| kind != 5));
    assert_eq!(kinds.collect::<Vec<_>>(), [9; 13], "R2Ts for 85 % of 16 MiB");
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    options.set_host_nqn(Nqn::parse("nqn.2014-08.org.example:modest").unwrap());
    let modest = Controller::connect(&options).unwrap().namespace(Nsid(1)).unwrap();
    modest.write(0, &vec![7; 1 << 20], false).unwrap();
}

fn connect_from(local: std::net::IpAddr, address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(local, 0).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    socket.into()
}
