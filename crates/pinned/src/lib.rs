//! Memory that the kernel sends from without a copy (`MSG_ZEROCOPY`, Linux
//! `Documentation/networking/msg_zerocopy.rst`), for both ends of a connection: which sends the
//! kernel has not finished with, and what it says about them.
//!
//! Owns the socket option, the numbers of the sends and the error queue that tells about them. Does
//! not send, does not decide what is sent so, and knows neither PDUs nor commands: what is pinned
//! is the caller's `T`, a buffer or the name of one.
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

/// The least payload that may be sent so, bytes: what a page holds. Below it, pinning the page and
/// reading the notification cost more than the copy, on any network card.
pub const SEND_MIN: u32 = 4096;

/// The most that the least payload may be, bytes.
pub const SEND_MIN_MAX: u32 = 16 << 20;

/// What to do where [`enable`] fails.
pub const ADVICE: &str = "leave the option away: zero-copy send needs SO_ZEROCOPY, of Linux 4.14 or later and for TCP";

/// Notifications in a row that say the kernel copied all the same: then it will go on doing so on
/// this path (loopback, a pair of virtual interfaces, a card without gathering), and pinning was
/// for nothing.
pub const COPIED_MAX: u32 = 16;

/// Notifications read in one go, so that one connection does not keep the others waiting.
const COLLECT_MAX: usize = 64;

/// The flag of a send from memory that is pinned.
pub const FLAG: SendFlags = SendFlags::from_bits_retain(libc::MSG_ZEROCOPY.cast_unsigned());

/// Lets a TCP socket send without a copy. A listening socket hands it on to its connections.
///
/// # Errors
/// The system's answer: see [`ADVICE`].
pub fn enable(socket: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(socket, Zerocopy, &1)?)
}

/// Breaks the connection off, so that the kernel lets go of everything that the peer has not
/// acknowledged: nothing is sent again, and the peer is told by a reset. The socket stays, and with
/// it the queue that brings the notifications.
pub fn abort(socket: &impl AsFd) {
    if rustix::net::connect_unspec(socket).is_err() {
        // Then closing it shall do the same. Fails only on what is no socket.
        let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
    }
}

/// Bytes that the peer has acknowledged since the connection was made. Sends that follow each other
/// are told of together, so notifications alone do not say whether a slow peer takes anything.
///
/// # Errors
/// The system's answer: this needs Linux 4.2, and TCP.
pub fn acknowledged(socket: &impl AsFd) -> io::Result<u64> {
    Ok(getsockopt(socket, TcpInfo)?[TCPI_BYTES_ACKED])
}

/// What the kernel told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Sends that are over.
    pub sends: u32,
    /// Those among them that the kernel made with a copy all the same.
    pub copied: u32,
    /// That was once too often: the connection copies from now on.
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
    /// As many of them are one too many.
    copied_max: u32,
    sends: Sends<T>,
    /// Room for what comes with a notification.
    control: Vec<u8>,
}

impl<T> Pinned<T> {
    /// For a connection whose payloads of `least` bytes or more are to be sent without a copy, at
    /// least [`SEND_MIN`], until the kernel has copied `copied_max` times in a row all the same
    /// ([`COPIED_MAX`]).
    #[must_use]
    pub fn new(least: u32, copied_max: u32) -> Self {
        let least = usize::try_from(least.max(SEND_MIN)).unwrap_or(usize::MAX);
        let control = nix::cmsg_space!([u8; 128]);
        Self { least, is_on: true, copied_in_row: 0, copied_max, sends: Sends::default(), control }
    }

    /// Whether a payload of so many bytes is to be sent without a copy now. Too many sends that the
    /// kernel has not finished with speak against it: a peer that acknowledges a little at a time
    /// could make there be very many.
    #[must_use]
    pub fn wants(&self, bytes: usize) -> bool {
        bytes >= self.least && self.may_send()
    }

    /// Whether there may be one more send without a copy, whatever the size.
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.is_on && !self.sends.is_full()
    }

    /// A send with [`FLAG`] took a part of the payload under way, or all of it.
    pub fn note_send(&mut self) {
        self.sends.note();
    }

    /// Nothing more of the payload under way will be sent. Gives it back when the kernel has
    /// finished with it already, or never had it; otherwise it is kept until then.
    pub fn finish(&mut self, payload: T) -> Option<T> {
        self.sends.finish(payload)
    }

    /// Whether there are sends that the kernel has not finished with.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.sends.is_waiting()
    }

    /// Reads what the kernel tells on the socket's error queue, without waiting; payloads that it
    /// has finished with go to `released`.
    ///
    /// # Errors
    /// What the system answers to reading the queue. The connection's own error is not among them:
    /// whoever receives finds it.
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

    /// Breaks the connection off where the kernel has not finished with everything, and waits until
    /// it has, at most for `limit`: what it handed to the network card before may still be read by
    /// that. Payloads that it has finished with go to `released`. Whether it has finished with all
    /// of them.
    pub fn abort_and_wait(&mut self, socket: &impl AsFd, limit: Duration, mut released: impl FnMut(T)) -> bool {
        let started = Instant::now();
        // What the peer has acknowledged needs no reset.
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

    /// Gives up what the kernel has not finished with, without freeing it: that memory is never
    /// used for anything else. For a network card that does not give back what it was handed, not
    /// even after [`abort`].
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

/// Between two looks at what a network card has still to finish.
const PAUSE: Duration = Duration::from_micros(200);

/// `SO_EE_ORIGIN_ZEROCOPY` (linux/errqueue.h): the notification is about sends without a copy.
const ORIGIN_ZEROCOPY: u8 = 5;

/// `SO_EE_CODE_ZEROCOPY_COPIED` (linux/errqueue.h): the bytes were copied all the same.
const CODE_COPIED: u32 = 1;

sockopt_impl!(
    /// Sends without a copy.
    Zerocopy,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_ZEROCOPY,
    libc::c_int
);

/// `struct tcp_info` (linux/tcp.h) up to the field that is asked for.
type Info = [u64; TCPI_BYTES_ACKED + 1];

/// Place of `tcpi_bytes_acked`, in eight bytes each.
const TCPI_BYTES_ACKED: usize = 120 / 8;

sockopt_impl!(
    /// What there is to know about a connection.
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    Info
);

#[cfg(test)]
mod tests;
