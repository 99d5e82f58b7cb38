//! Whether a disconnect that waits for the daemon's main thread is still wanted: a client that was
//! told that nothing is done, or that has gone, must not lose its devices later.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{RecvFlags, recv};

/// A client's wish.
#[derive(Debug)]
pub(super) struct PendingDisconnect {
    settled: AtomicBool,
    client: UnixStream,
}

impl PendingDisconnect {
    /// A wish of the client at the other end of `stream`.
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        Ok(Self { settled: AtomicBool::new(false), client: stream.try_clone()? })
    }

    /// Begins what is wanted; `false` if it was given up.
    pub(super) fn begin(&self) -> bool {
        !self.is_gone() && self.settle()
    }

    /// Gives it up; `false` if it has begun.
    pub(super) fn give_up(&self) -> bool {
        self.settle()
    }

    /// Whether this was first.
    fn settle(&self) -> bool {
        !self.settled.swap(true, Ordering::AcqRel)
    }

    /// Whether the client has closed its end.
    fn is_gone(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = recv(&self.client, &mut [0_u8; 1], flags);
        !matches!(peeked, Err(rustix::io::Errno::AGAIN) | Ok((1.., _)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_or_is_given_up() {
        let (here, there) = UnixStream::pair().unwrap();
        let wanted = PendingDisconnect::of(&here).unwrap();
        assert!(wanted.begin() && !wanted.give_up());
        let wanted = PendingDisconnect::of(&here).unwrap();
        assert!(wanted.give_up() && !wanted.begin());
        let wanted = PendingDisconnect::of(&here).unwrap();
        drop(there);
        assert!(!wanted.begin(), "the client is gone");
    }
}
