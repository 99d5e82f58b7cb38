//! Zero-copy send (`MSG_ZEROCOPY`, Linux `Documentation/networking/msg_zerocopy.rst`) for both ends
//! of a connection: tracks the sends whose memory the kernel still uses, and its notifications.
//!
//! Owns the socket option, the numbers of the sends and the error queue. It does not send, does not
//! decide which payloads are sent this way, and knows neither PDUs nor commands: what is pinned is
//! the caller's `T`, a buffer or a reference to one.
#![forbid(unsafe_code)]

mod sends;

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, getsockopt, recvmsg, setsockopt};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use rustix::net::SendFlags;

use sends::Sends;

/// The smallest payload that may be sent without a copy, bytes: a page. Below this size, pinning
/// the page and reading the notification cost more than the copy, with any network card.
pub const SEND_MIN: u32 = 4096;

/// The largest value that can be configured for the smallest payload, bytes.
pub const SEND_MIN_MAX: u32 = 16 << 20;

/// What to do if [`enable`] fails.
pub const ADVICE: &str = "leave the option away: zero-copy send needs SO_ZEROCOPY, of Linux 4.14 or later and for TCP";

/// After this many notifications in a row that report a copy by the kernel it can be expected to
/// copy always on this path (loopback, a pair of virtual interfaces, a card without
/// scatter-gather), so pinning is useless.
pub const COPIED_MAX: u32 = 16;

/// The most notifications read at a time, so that one connection does not delay the others.
const COLLECT_MAX: usize = 64;

/// The flag of a send from memory that is pinned.
pub const FLAG: SendFlags = SendFlags::from_bits_retain(libc::MSG_ZEROCOPY.cast_unsigned());

/// Enables zero-copy send on a TCP socket. Connections inherit it from their listening socket.
///
/// # Errors
/// That of the system call: see [`ADVICE`].
pub fn enable(socket: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(socket, Zerocopy, &1)?)
}

/// Aborts the connection, so that the kernel releases everything that the peer has not
/// acknowledged: nothing is retransmitted, and the peer gets a reset. The socket stays open, with
/// its error queue.
pub fn abort(socket: &impl AsFd) {
    if rustix::net::connect_unspec(socket).is_err() {
        // Then closing it does the same. Fails only if this is not a socket.
        let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
    }
}

/// Bytes that the peer has acknowledged since the connection was established. Consecutive sends are
/// reported together, so notifications alone do not show whether a slow peer makes progress.
///
/// # Errors
/// That of the system call: this needs Linux 4.2, and TCP.
pub fn acknowledged(socket: &impl AsFd) -> io::Result<u64> {
    Ok(getsockopt(socket, TcpInfo)?[TCPI_BYTES_ACKED])
}

/// The kernel's notifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Completed sends.
    pub sends: u32,
    /// Those of them that the kernel copied.
    pub copied: u32,
    /// The limit is reached: the connection copies from now on.
    pub fell_back: bool,
}

/// Payloads of one connection that the kernel may still read, and the sends that it has not
/// finished with.
#[derive(Debug)]
pub struct Pinned<T> {
    /// Payloads from this size on are sent without a copy, bytes.
    least: usize,
    is_on: bool,
    copied_in_row: u32,
    /// The number of copies in a row after which the connection copies.
    copied_max: u32,
    sends: Sends<T>,
    /// The buffer for control messages.
    control: Vec<u8>,
}

impl<T> Pinned<T> {
    /// For a connection whose payloads of `least` bytes or more (at least [`SEND_MIN`]) are sent
    /// without a copy, until the kernel has copied `copied_max` times in a row ([`COPIED_MAX`]).
    #[must_use]
    pub fn new(least: u32, copied_max: u32) -> Self {
        let least = usize::try_from(least.max(SEND_MIN)).unwrap_or(usize::MAX);
        let control = nix::cmsg_space!([u8; 128]);
        Self { least, is_on: true, copied_in_row: 0, copied_max, sends: Sends::default(), control }
    }

    /// Whether a payload of this many bytes is to be sent without a copy now. Not if too many sends
    /// are pending: a peer that acknowledges slowly could cause very many.
    #[must_use]
    pub fn wants(&self, bytes: usize) -> bool {
        bytes >= self.least && self.may_send()
    }

    /// Whether there may be one more send without a copy, of any size.
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.is_on && !self.sends.is_full()
    }

    /// A send with [`FLAG`] accepted a part of the current payload, or all of it.
    pub fn note_send(&mut self) {
        self.sends.note();
    }

    /// Nothing more of the current payload will be sent. Returns the payload if the kernel does not
    /// use it any more, or never did; otherwise it is kept until then.
    pub fn finish(&mut self, payload: T) -> Option<T> {
        self.sends.finish(payload)
    }

    /// Whether there are pending sends.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.sends.is_waiting()
    }

    /// Reads the notifications of the socket's error queue, without waiting; payloads that the
    /// kernel does not use any more are passed to `released`.
    ///
    /// # Errors
    /// Reading the queue failed. Errors of the connection itself are returned by receives, not
    /// here.
    pub fn collect(&mut self, socket: &impl AsFd, mut released: impl FnMut(T)) -> io::Result<Collected> {
        let mut collected = Collected::default();
        for _ in 0..COLLECT_MAX {
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let descriptor = socket.as_fd().as_raw_fd();
            let message = match recvmsg::<()>(descriptor, &mut [], Some(&mut self.control), flags) {
                Ok(message) => message,
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            for control in message.cmsgs()? {
                let (ControlMessageOwned::Ipv4RecvErr(told, _) | ControlMessageOwned::Ipv6RecvErr(told, _)) = control
                else {
                    continue;
                };
                if told.ee_origin != ORIGIN_ZEROCOPY || told.ee_errno != 0 {
                    continue;
                }
                let sends = self.sends.over(told.ee_info, told.ee_data, &mut released);
                collected.sends += sends;
                if u32::from(told.ee_code) & CODE_COPIED == 0 {
                    self.copied_in_row = 0;
                } else {
                    collected.copied += sends;
                    self.copied_in_row = self.copied_in_row.saturating_add(1);
                }
            }
        }
        if self.is_on && self.copied_in_row >= self.copied_max {
            self.is_on = false;
            collected.fell_back = true;
        }
        Ok(collected)
    }

    /// Aborts the connection if sends are pending, and waits for their notifications, at most for
    /// `limit`: the network card may still read what it was given before. Released payloads are
    /// passed to `released`. Returns whether all of them were released.
    pub fn abort_and_wait(&mut self, socket: &impl AsFd, limit: Duration, mut released: impl FnMut(T)) -> bool {
        let started = Instant::now();
        // If the peer has acknowledged everything, no reset is needed.
        let _ = self.collect(socket, &mut released);
        if self.is_waiting() {
            abort(socket);
        }
        while self.is_waiting() {
            if self.collect(socket, &mut released).is_err() || (self.is_waiting() && started.elapsed() >= limit) {
                return false;
            }
            if self.is_waiting() {
                std::thread::sleep(PAUSE);
            }
        }
        true
    }

    /// Leaks the payloads that the kernel still uses: their memory is never used for anything else.
    /// For a network card that does not release them, not even after [`abort`].
    pub fn leak(&mut self) {
        std::mem::take(&mut self.sends).into_payloads().for_each(std::mem::forget);
    }
}

impl<T> Drop for Pinned<T> {
    /// Memory that the kernel may still read is never freed.
    fn drop(&mut self) {
        self.leak();
    }
}

/// The interval of checks for sends that a network card has not finished.
const PAUSE: Duration = Duration::from_micros(200);

/// `SO_EE_ORIGIN_ZEROCOPY` (linux/errqueue.h): a notification of zero-copy sends.
const ORIGIN_ZEROCOPY: u8 = 5;

/// `SO_EE_CODE_ZEROCOPY_COPIED` (linux/errqueue.h): the kernel has copied the bytes.
const CODE_COPIED: u32 = 1;

sockopt_impl!(
    /// Sends without a copy.
    Zerocopy,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_ZEROCOPY,
    libc::c_int
);

/// `struct tcp_info` (linux/tcp.h) up to the field that is needed.
type Info = [u64; TCPI_BYTES_ACKED + 1];

/// Index of `tcpi_bytes_acked`, in units of eight bytes.
const TCPI_BYTES_ACKED: usize = 120 / 8;

sockopt_impl!(
    /// What there is to know about a connection.
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    Info
);

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests;
