//! The options of a TCP socket that users can set: type of service, priority, busy polling,
//! zero-copy send. They are the same for a target's listening sockets and a host's connections.
//! Owns their order, and reports which one was refused. Options of all sockets, and the names in
//! messages, are up to the caller.
//!
//! Also the [`Stream`] that both ends send and receive on: a socket, or a simulated one. It is the
//! only door to the bytes of a connection.

#![forbid(unsafe_code)]

mod stream;

pub use stream::{Layer, Readiness, SimulatedStream, Stream, Wire};

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use socket2::SockRef;

/// The requested options; absent ones keep the system's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// IP type of service.
    pub tos: Option<u8>,
    /// `SO_PRIORITY`; more than 6 needs `CAP_NET_ADMIN`.
    pub so_priority: Option<u32>,
    /// `SO_BUSY_POLL`, microseconds; more than `net.core.busy_read` needs `CAP_NET_ADMIN`.
    pub busy_poll_us: Option<u32>,
    /// `SO_ZEROCOPY`: payloads of this many bytes or more will be sent without a copy.
    pub zerocopy_send: Option<u32>,
    /// `SO_PREFER_BUSY_POLL`; needs `CAP_NET_ADMIN`.
    pub prefer_busy_poll: bool,
    /// `SO_BUSY_POLL_BUDGET`, packets; more than 8 needs `CAP_NET_ADMIN`.
    pub busy_poll_budget: Option<u16>,
}

/// The option that the system refused.
#[derive(Debug)]
pub struct Refused {
    /// The name of the field.
    pub option: &'static str,
    /// The value; 1 for a flag.
    pub value: u32,
    /// The system's error.
    pub error: io::Error,
}

impl SocketOptions {
    /// Sets them on `socket`, of IPv4 or of IPv6.
    ///
    /// # Errors
    /// The first one that is refused: an option must not be ignored silently.
    pub fn set(&self, socket: &impl AsFd, ipv4: bool) -> Result<(), Refused> {
        let options = SockRef::from(socket);
        let done = |option, value, set: io::Result<()>| set.map_err(|error| Refused { option, value, error });
        if let Some(tos) = self.tos.map(u32::from) {
            done("tos", tos, if ipv4 { options.set_tos_v4(tos) } else { options.set_tclass_v6(tos) })?;
        }
        // After the type of service, which sets a priority as well.
        if let Some(priority) = self.so_priority {
            done("so_priority", priority, options.set_priority(priority))?;
        }
        if let Some(time) = self.busy_poll_us {
            done("busy_poll_us", time, options.set_busy_poll(time))?;
        }
        if let Some(least) = self.zerocopy_send {
            done("zerocopy_send", least, ebof_pinned::enable(socket))?;
        }
        if self.prefer_busy_poll {
            done("prefer_busy_poll", 1, setsockopt(socket, PreferBusyPoll, &1).map_err(io::Error::from))?;
        }
        if let Some(budget) = self.busy_poll_budget {
            let set = setsockopt(socket, BusyPollBudget, &budget.into()).map_err(io::Error::from);
            done("busy_poll_budget", budget.into(), set)?;
        }
        Ok(())
    }
}

/// Congestion controls that pace: they send a segment when a timer says so. Those of the kernel.
const PACING: &[u8] = b"bbr";
/// The one that every system has, and every process may choose.
const NOT_PACING: &[u8] = b"reno";

/// For a socket that is not connected yet and will be at `address`, its own or its peer's: if that
/// is of this machine, and the system's congestion control paces, chooses one that does not. There
/// is no network to pace for, and a timer for each segment of 64 KiB costs a fifth of the
/// processor time of large batches. Whether it was chosen.
pub fn unpace_loopback(socket: &impl AsFd, address: IpAddr) -> bool {
    if !address.to_canonical().is_loopback() {
        return false;
    }
    let socket = SockRef::from(socket);
    let paces = socket.tcp_congestion().is_ok_and(|name| name.starts_with(PACING));
    // Where it is refused, it is slower only.
    paces && socket.set_tcp_congestion(NOT_PACING).is_ok()
}

sockopt_impl!(
    /// Polling instead of interrupts.
    PreferBusyPoll,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_PREFER_BUSY_POLL,
    libc::c_int
);

sockopt_impl!(
    /// Packets of one poll.
    BusyPollBudget,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_BUSY_POLL_BUDGET,
    libc::c_int
);

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn only_connections_within_the_machine_are_not_paced() {
        let loopback = [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            Ipv6Addr::LOCALHOST.into(),
            Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
        ];
        let others = [
            IpAddr::from(Ipv4Addr::UNSPECIFIED),
            Ipv4Addr::new(192, 168, 13, 147).into(),
            Ipv6Addr::UNSPECIFIED.into(),
        ];
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let name = |socket: &Socket| String::from_utf8(socket.tcp_congestion().unwrap()).unwrap();
        let usual = name(&socket());
        for address in others {
            let socket = socket();
            assert!(!unpace_loopback(&socket, address));
            assert_eq!(name(&socket), usual);
        }
        for address in loopback {
            let socket = socket();
            assert_eq!(unpace_loopback(&socket, address), usual.starts_with("bbr"));
            assert!(!name(&socket).starts_with("bbr"));
            // Whoever may not have one that paces has nothing to be changed.
            if socket.set_tcp_congestion(b"bbr").is_ok() {
                assert!(unpace_loopback(&socket, address));
                assert!(name(&socket).starts_with("reno"));
            }
        }
    }
}
