//! Buffers that a peer does not acknowledge.

use std::io::{ErrorKind, Read};
use std::sync::Arc;

use ebof_backend::{Device, Geometry, Io, Memory, Request, Submitted};
use ebof_fabrics::DeviceId;
use socket2::{Domain, Socket, Type};

use super::Rig;
use super::hosts::Load;
use crate::drives::device::DeviceTable;
use crate::link::{AwaitingRelease, State};
use crate::shared::buffer::Pool;

/// Data of a read: two of them are in the sockets at once, most of them in the sender's.
const READ_BYTES: u32 = 8 << 10;

/// A pair of TCP sockets, the first of which takes little; the second may send without a copy.
pub(super) fn pair() -> (Socket, Socket) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    ebof_pinned::enable(&listener).unwrap();
    listener.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(1).unwrap();
    let ours = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    ours.set_recv_buffer_size(4096).unwrap();
    ours.connect(&listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Memory that is not `Resident`: reads use a buffer.
#[derive(Debug)]
pub(super) struct Plain(Memory);

impl Plain {
    /// Has the rig's drive be such a one.
    pub(super) fn replace(rig: &mut Rig) {
        let device: Arc<dyn Device> = Arc::new(Self(Memory::new(64 << 20, 512, false)));
        rig.reactor.connections.devices.table = Arc::new(DeviceTable::new([(DeviceId(1), device)]));
    }
}

impl Device for Plain {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        self.0.submit(io, request)
    }

    fn describe(&self) -> String {
        "plain".to_owned()
    }
}

#[test]
fn a_host_that_acknowledges_nothing_is_ended_and_its_buffers_come_back() {
    let mut rig = Rig::sending(Some(4096));
    Plain::replace(&mut rig);
    let mut host = rig.host(Load { listens: false, ..Load::reads(READ_BYTES, 2) });
    let buffers = 2 * Pool::size_of(READ_BYTES as usize);
    host.go_on();
    rig.turn(100);
    rig.turn(100);
    let index = host.index();
    let connection = rig.reactor.connections.table.at_mut(u32::try_from(index).unwrap()).unwrap();
    assert!(connection.link.tcp().holds_only_sent(), "all is in the socket");
    assert_eq!(
        (rig.reactor.connections.pool.outstanding_bytes(), connection.commands.execution.buffers.used_bytes()),
        (buffers, buffers),
        "and charged"
    );
    // The acknowledged bytes are checked twice, without a change.
    rig.turn(31_000_000);
    rig.turn(28_000_000);
    assert!(rig.reactor.connection_at(index).is_some(), "it has some time");
    assert_eq!(rig.reactor.connections.pool.outstanding_bytes(), buffers);
    rig.turn(4_000_000);
    // Buffers at a network card would be checked again.
    while rig.reactor.connection_at(index).is_some() {
        rig.turn(10_000);
    }
    assert_eq!(rig.reactor.connections.pool.outstanding_bytes(), 0);
    let ended = std::io::copy(&mut host.socket(), &mut std::io::sink()).unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_host_that_goes_on_taking_is_not_ended_however_long_it_takes() {
    let mut rig = Rig::sending(Some(4096));
    Plain::replace(&mut rig);
    let mut host = rig.host(Load { listens: false, ..Load::reads(READ_BYTES, 2) });
    host.go_on();
    let index = host.index();
    let mut taken = 0;
    // With the headers of the PDUs.
    let all = 2 * (24 + READ_BYTES as usize);
    let mut chunk = vec![0; 1 << 10];
    while taken < all {
        rig.turn(10_000_000);
        assert!(rig.reactor.connection_at(index).is_some(), "ended after {taken} bytes");
        let until = (taken + (4 << 10)).min(all);
        while taken < until {
            match host.socket().read(&mut chunk) {
                Ok(length) => taken += length,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    rig.turn(10);
                }
            }
        }
    }
    for _ in 0..10 {
        rig.turn(10_000_000);
    }
    assert!(rig.reactor.connection_at(index).is_some());
    assert_eq!(rig.reactor.connections.pool.outstanding_bytes(), 0);
}

#[test]
fn buffers_of_a_connection_that_is_gone_wake_up_who_waits_for_them() {
    let mut rig = Rig::sending(Some(4096));
    let device: Arc<dyn Device> = Arc::new(Plain(Memory::new(64 << 20, 512, false)));
    rig.reactor.connections.devices.table = Arc::new(DeviceTable::new([(DeviceId(1), device)]));
    let mut gone = rig.host(Load { listens: false, ..Load::reads(READ_BYTES, 2) });
    let mut waits = rig.host(Load::reads(READ_BYTES, 1));
    // Unacknowledged data of the first one use up the budget.
    gone.go_on();
    rig.turn(100);
    rig.turn(100);
    let buffers = 2 * Pool::size_of(READ_BYTES as usize);
    assert_eq!(rig.reactor.connections.pool.outstanding_bytes(), buffers);
    rig.reactor.connections.pool.set_budget(buffers);
    waits.go_on();
    for _ in 0..10 {
        rig.turn(100);
    }
    assert!(!waits.has_input(), "there is no buffer for it");
    // A network card uses its buffers for a while.
    let now_ms = rig.now_us / 1000;
    let connection = rig.reactor.connections.table.at_mut(u32::try_from(gone.index()).unwrap()).unwrap();
    connection.link.state = State::Gone;
    let socket = connection.link.tcp().settle_from(AwaitingRelease::from(now_ms));
    let handle = connection.handle;
    rig.reactor.connections.deadlines.push(now_ms + 5, handle);
    connection.armed_ms = Some(now_ms + 5);
    while rig.turn(10) {}
    ebof_pinned::abort(&socket);
    let mut fds = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::empty())];
    rustix::event::poll(&mut fds, None).unwrap();
    // It sleeps until the deadline, and continues as long as there was work.
    let mut worked = rig.turn(10_000);
    while worked {
        worked = rig.turn(10);
    }
    assert!(waits.has_input(), "the reactor sleeps, and a command waits although there are buffers");
}
