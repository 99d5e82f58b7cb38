//! Making a TCP connection: name lookup, local address and interface, time-out.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use ebof_sockets::{Refused, SocketOptions, unpace_loopback};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::errno;
use crate::error::connect_error::{ConnectErrorKind as Kind, Step, Tried};
use crate::link::address::{local_address, local_error, resolve};
use crate::options::Options;
use crate::wait::{Cancel, Time, wait};

/// Connects to the first address of the name that answers. Records its progress in `tried`.
pub(super) fn connect(
    options: &Options,
    tried: &mut Tried,
    time: &Time,
    cancel: &Cancel,
) -> Result<(TcpStream, SocketAddr), Kind> {
    let local = local_address(options)?;
    tried.step = Step::Resolve;
    let addresses = resolve(options, local)?;
    tried.step = Step::Tcp;
    let mut last = Kind::NameNotResolved { reason: "no address of the family of --host-traddr".to_owned() };
    for address in addresses {
        tried.address = Some(address);
        match connect_to(options, address, local, time, cancel) {
            Ok(socket) => return Ok((socket.into(), address)),
            Err(Kind::Cancelled) => return Err(Kind::Cancelled),
            Err(kind) => last = kind,
        }
    }
    Err(last)
}

fn connect_to(
    options: &Options,
    address: SocketAddr,
    local: Option<IpAddr>,
    time: &Time,
    cancel: &Cancel,
) -> Result<Socket, Kind> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))
        .map_err(|error| system("making a socket", &error))?;
    if let Some(interface) = &options.host_iface {
        socket.bind_device(Some(interface.as_bytes())).map_err(|error| Kind::LocalAddress {
            option: format!("--host-iface {interface}"),
            errno: errno(&error),
        })?;
    }
    if let Some(local) = local {
        let local = SockAddr::from(SocketAddr::new(local, 0));
        socket.bind(&local).map_err(|error| local_error(options, errno(&error)))?;
    }
    // Commands are sent in batches; Nagle's algorithm would only delay the last of a batch.
    socket.set_tcp_nodelay(true).map_err(|error| system("setting TCP_NODELAY", &error))?;
    // Closing resets the connection: unsent commands must not arrive once the network is back,
    // because by then they have been repeated on another connection. Undone by
    // `allow_graceful_close` when nothing is outstanding.
    socket.set_linger(Some(Duration::ZERO)).map_err(|error| system("setting SO_LINGER", &error))?;
    set_options(options, &socket, address.is_ipv4())?;
    unpace_loopback(&socket, address.ip());
    match socket.connect(&SockAddr::from(address)) {
        Ok(()) => {}
        Err(error) if errno(&error) == Errno::INPROGRESS => await_connect(options, &socket, time, cancel)?,
        Err(error) => return Err(connect_kind(options, errno(&error))),
    }
    // Connecting to a free ephemeral port of the same machine may connect the socket to itself (TCP
    // simultaneous open).
    if socket.local_addr().ok().and_then(|local| local.as_socket()) == Some(address) {
        return Err(Kind::Refused);
    }
    Ok(socket)
}

/// Sets the socket options. One that is refused fails the connection, so that nobody measures
/// without it.
fn set_options(options: &Options, socket: &Socket, ipv4: bool) -> Result<(), Kind> {
    let asked = SocketOptions {
        tos: options.tos,
        so_priority: options.so_priority,
        busy_poll_us: options.busy_poll_us,
        zerocopy_send: options.zerocopy_send,
        prefer_busy_poll: options.prefer_busy_poll,
        busy_poll_budget: options.busy_poll_budget,
    };
    asked.set(socket, ipv4).map_err(|Refused { option, value, error }| {
        // The name of the argument.
        let name = option.trim_end_matches("_us").replace('_', "-");
        Kind::SocketOption { option: format!("--{name} {value}"), errno: errno(&error) }
    })
}

fn await_connect(options: &Options, socket: &Socket, time: &Time, cancel: &Cancel) -> Result<(), Kind> {
    let end = time.now() + Duration::from_millis(u64::from(options.connect_timeout_ms));
    loop {
        let rest = end.saturating_duration_since(time.now());
        if rest.is_zero() {
            return Err(Kind::TimedOut { after_ms: u64::from(options.connect_timeout_ms) });
        }
        let mut fds = vec![PollFd::new(socket, PollFlags::OUT)];
        let stop = cancel.waker().descriptor();
        fds.extend(stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::IN)));
        wait(&mut fds, Some(rest)).map_err(|errno| Kind::System { action: "waiting for the connection", errno })?;
        let ready = !fds[0].revents().is_empty();
        if cancel.is_set() {
            return Err(Kind::Cancelled);
        }
        if ready {
            return match socket.take_error() {
                Ok(None) => Ok(()),
                Ok(Some(error)) | Err(error) => Err(connect_kind(options, errno(&error))),
            };
        }
    }
}

pub(super) fn connect_kind(options: &Options, errno: Errno) -> Kind {
    match errno {
        Errno::CONNREFUSED => Kind::Refused,
        Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN => {
            Kind::Unreachable { errno }
        }
        Errno::ADDRNOTAVAIL if options.host_traddr.is_some() => local_error(options, errno),
        errno => Kind::System { action: "connect", errno },
    }
}

fn system(action: &'static str, error: &io::Error) -> Kind {
    Kind::System { action, errno: errno(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_nvme::Nqn;

    #[test]
    fn options_are_set_as_asked_or_refused_by_name() {
        let mut options = Options::new("127.0.0.1", 4420, Nqn::parse("nqn.2014-08.org.example:a").unwrap());
        options.tos = Some(0x10);
        options.so_priority = Some(5);
        options.busy_poll_us = Some(0);
        options.busy_poll_budget = Some(4);
        options.prefer_busy_poll = false;
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        let one = socket();
        set_options(&options, &one, true).unwrap();
        assert_eq!((one.tos_v4().unwrap(), one.priority().unwrap(), one.busy_poll().unwrap()), (0x10, 5, 0));
        options.prefer_busy_poll = true;
        options.busy_poll_us = Some(20);
        let two = socket();
        match set_options(&options, &two, true) {
            Ok(()) => assert_eq!(two.busy_poll().unwrap(), 20),
            Err(Kind::SocketOption { option, errno: Errno::PERM }) => assert_eq!(option, "--busy-poll 20"),
            Err(other) => panic!("{other:?}"),
        }
        // More than the default is a matter of rights.
        options = Options { busy_poll_us: None, prefer_busy_poll: false, busy_poll_budget: Some(u16::MAX), ..options };
        match set_options(&options, &socket(), true) {
            Ok(()) => {}
            Err(Kind::SocketOption { option, .. }) => assert_eq!(option, "--busy-poll-budget 65535"),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn unsent_data_of_an_aborted_connection_are_discarded() {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        listener.set_recv_buffer_size(4096).unwrap();
        listener.bind(&SockAddr::from(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
        listener.listen(1).unwrap();
        let port = listener.local_addr().unwrap().as_socket().unwrap().port();
        let options = Options::new("127.0.0.1", port, Nqn::parse("nqn.2014-08.org.example:a").unwrap());
        let (socket, _) = {
            let waiter = crate::wait::Waiter::on_thread(&ebof_clock::Clock::system());
            connect(&options, &mut options.tried(0), &waiter.time, &waiter.cancel().unwrap()).unwrap()
        };
        let (mut peer, _) = listener.accept().unwrap();
        // As much as both ends take: the peer does not read.
        let mut sent = 0;
        while let Ok(more) = rustix::io::write(&socket, &[7; 4096]) {
            sent += more;
        }
        drop(socket);
        let mut arrived = Vec::new();
        let end = std::io::Read::read_to_end(&mut peer, &mut arrived);
        assert!(end.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset));
        assert!(arrived.len() < sent, "all {sent} bytes arrived");
    }
}
