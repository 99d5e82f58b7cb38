//! What a port asks of its sockets beside what all have: type of service, priority, busy polling,
//! sending without a copy. They are set on the listening socket; connections have them from there,
//! save the priority, which Linux clears. Also asks a connection which queue of the network card it
//! comes from.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use ebof_manage::config::Port;
use ebof_manage::listen::Transport;
use ebof_sockets::{Refused, SocketOptions, unpace_loopback};
use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, sockopt_impl};
use socket2::{SockRef, TcpKeepalive};

/// A silent peer is probed after this time, then every tenth of it, and given up after three
/// probes.
const PROBE_AFTER: Duration = Duration::from_secs(30);

/// Sets what the port asks for.
///
/// # Errors
/// The option that the system refuses, and its answer.
pub(crate) fn prepare(listener: &TcpListener, port: &Port, ipv4: bool) -> Result<(), Refused> {
    if let Ok(address) = listener.local_addr() {
        unpace_loopback(listener, address.ip());
    }
    options(port).set(listener, ipv4)
}

fn options(port: &Port) -> SocketOptions {
    SocketOptions {
        tos: port.tos,
        so_priority: port.so_priority,
        busy_poll_us: port.busy_poll_us,
        zerocopy_send: port.zerocopy_send_bytes,
        prefer_busy_poll: port.prefer_busy_poll,
        busy_poll_budget: None,
    }
}

/// Whether a listening socket that was prepared for one port is as the other one asks for.
pub(crate) fn is_same(one: &Port, other: &Port) -> bool {
    if one.listen.transport != Transport::Tcp {
        return true;
    }
    // From how many bytes on is not the socket's matter.
    let of_socket = |port: &Port| SocketOptions { zerocopy_send: port.zerocopy_send_bytes.map(|_| 0), ..options(port) };
    of_socket(one) == of_socket(other)
}

/// Sets what all connections have, and what one does not have from the listening socket.
///
/// # Errors
/// The system's answer: it took the same from the listening socket, or the connection has ended.
pub(crate) fn accepted(socket: &TcpStream, port: &Port) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // Answers are gathered before they are sent; Nagle would only hold the last of a batch back.
    socket.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_AFTER / 10).with_retries(3);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
    if port.zerocopy_send_bytes.is_some() {
        // They have it from the listening socket. Without it the kernel would tell nothing, and
        // buffers would never come back: be sure.
        ebof_pinned::enable(socket)?;
    }
    port.so_priority.map_or(Ok(()), |priority| SockRef::from(socket).set_priority(priority))
}

/// Whether connections of the port shall be grouped by the queue of the network card that they come
/// from.
pub(crate) fn groups(port: &Port) -> bool {
    port.prefer_busy_poll || port.busy_poll_us.is_some_and(|time| time > 0)
}

/// The queue of the network card (NAPI id) that the connection's last packet came from; `None`
/// where it has none, as on loopback.
pub(crate) fn incoming_queue(socket: &TcpStream) -> Option<u32> {
    // Linux answers 0 for everything that is not a card's queue.
    getsockopt(socket, IncomingNapiId).ok().filter(|&id| id != 0)
}

sockopt_impl!(
    /// Where the last packet came from.
    IncomingNapiId,
    GetOnly,
    libc::SOL_SOCKET,
    libc::SO_INCOMING_NAPI_ID,
    u32
);

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_manage::listen::Listen;

    #[test]
    fn connections_have_the_ports_socket_options() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut port = Port::new(1, Listen::loopback());
        port.tos = Some(0x10);
        port.so_priority = Some(4);
        port.busy_poll_us = Some(0);
        prepare(&listener, &port, true).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        accepted(&socket, &port).unwrap();
        let accepted = SockRef::from(&socket);
        assert_eq!((accepted.tos_v4().unwrap(), accepted.priority().unwrap()), (0x10, 4));
        assert_eq!(incoming_queue(&client), None, "loopback has no queues");
        assert!(!groups(&port));
    }

    #[test]
    fn a_refused_socket_option_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut port = Port::new(1, Listen::loopback());
        port.busy_poll_us = Some(u32::MAX);
        let refused = prepare(&listener, &port, true).unwrap_err();
        assert_eq!(
            (refused.option, refused.value, refused.error.kind()),
            ("busy_poll_us", u32::MAX, io::ErrorKind::InvalidInput)
        );
    }
}
