//! For tests: an engine and a controller, connected by a socket in one thread and initialized.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use ebof_clock::Clock;
use ebof_nvme::QueueId;
use ebof_sockets::Stream;
use ebof_tcp::{Digest, controller, host};

use super::Engine;
use crate::command::data::AdminData;
use crate::link::HostLink;
use crate::link::tcp::Tcp;
use crate::wait::Time;

/// The engine's link, which has to be TCP.
pub(crate) fn tcp<B>(engine: &mut Engine<B>) -> &mut Tcp {
    match &mut engine.link {
        Some(HostLink::Tcp(link)) => link,
        _ => panic!("no link over TCP is attached"),
    }
}

/// The engine has room for 127 commands, works by `clock`, and allows `r2t_max` R2Ts of each. The
/// controller asks for up to 1 MiB at once. Neither end of the socket, of which this gives the
/// controller's, blocks.
pub(crate) fn pair(r2t_max: u32, clock: &Clock) -> (Engine<Vec<u8>>, controller::Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    initialize(r2t_max, clock, ours.into(), theirs)
}

/// As [`pair`], over another pair of sockets. Theirs need not be non-blocking.
pub(crate) fn initialize<S: Read + Write>(
    r2t_max: u32,
    clock: &Clock,
    ours: OwnedFd,
    mut theirs: S,
) -> (Engine<Vec<u8>>, controller::Connection, S) {
    let header_digest = Digest::Allowed;
    let data_digest = Digest::Allowed;
    let config = host::ConnectionConfig { alignment: 4, header_digest, data_digest, r2t_max };
    let mut engine = Engine::new(127, true, Time::new(clock));
    engine.attach(HostLink::Tcp(Tcp::new(
        Stream::from(TcpStream::from(ours)),
        host::Connection::new(config),
        256 << 10,
    )));
    let mut controller = controller::Connection::new(controller::ConnectionConfig {
        in_capsule_bytes: 8192,
        h2c_data_max: 1 << 20,
        alignment: 4,
        header_digest,
        data_digest,
        c2h_success: true,
        r2t_bytes: 1 << 20,
    });
    engine.flush(&AdminData::None).unwrap();
    let mut request = [0; 256];
    let length = theirs.read(&mut request).unwrap();
    let event = controller.poll_event(&mut &request[..length]).unwrap();
    assert!(matches!(event, Some(controller::Event::Initialized(_))), "{event:?}");
    let mut response = Vec::new();
    controller.send_ic_response(&mut response);
    theirs.write_all(&response).unwrap();
    while tcp(&mut engine).initialized().is_none() {
        engine.receive(&mut AdminData::None).unwrap();
    }
    controller.set_queue(QueueId(1), 128);
    (engine, controller, theirs)
}
