//! How other threads reach a reactor: a list of messages, bounded by what their senders may have
//! outstanding, and an eventfd that is written only while the reactor sleeps.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ebof_authentication::Computed;
use ebof_drive::Refusal;
use ebof_fabrics::{DeviceId, Handle, Notice, RingTask};
use ebof_loopback::TargetEnd;
use ebof_nvme::{Cid, Nsid, Status};
use ebof_shares::Ticket;
use ebof_sockets::Stream;
use rustix::event::{EventfdFlags, eventfd};

use crate::drives::DriveReply;
use crate::drives::device::DeviceTable;
use crate::drives::drain::DrainToken;
use crate::ports::peer::Peer;
use crate::ports::port::PortState;
use crate::ports::rdma_connection::RdmaConnection;
use crate::shared::handle::reactor_of;
use crate::shared::host_limits::Waiting;
use crate::shared::shares::DriveShares;

/// A message to a reactor.
pub(crate) enum Message {
    /// A connection to serve from now on.
    Accept(Accepted),
    /// The connection `handle`, which has no descriptor, has something to receive or has ended.
    Arrived { handle: Handle },
    /// Something for the queue of one connection.
    Notice { handle: Handle, notice: Notice },
    /// The devices changed.
    Devices(Arc<DeviceTable>),
    /// Abort `cid` of the queue `handle`; the answer goes to `reply`.
    Abort { handle: Handle, cid: Cid, reply: CommandRef },
    /// A command has what it waited for.
    Reply { to: CommandRef, reply: CommandReply },
    /// End the commands of the queue `handle` to a namespace; `reply` is notified when nothing of
    /// them is left at a device.
    Preempt { handle: Handle, nsid: Nsid, reply: CommandRef },
    /// End the commands of the queue `handle` to a namespace that its host has lost, all for
    /// [`Nsid::ALL`]; the token is dropped when nothing of them is left at a device.
    Drain { handle: Handle, nsid: Nsid, token: DrainToken },
    /// End the connection `handle`; `reply` is notified when nothing of it is left at a device.
    Close { handle: Handle, reply: CommandRef },
    /// Cancel what the connection `handle` has at devices of a namespace, or of all for
    /// [`Nsid::ALL`].
    Cancel { handle: Handle, nsid: Nsid },
    /// The drive's thread has nothing left of the connection `handle`, which has ended.
    DriveDone { handle: Handle },
    /// The drive's thread has begun what the connection `handle` had asked of it when the Connect
    /// `reply` looked at it.
    DriveReached { handle: Handle, reply: CommandRef },
    /// Look whether the connection `handle` has ended; the registry is notified that the Connect
    /// `reply` need not wait for that any more, nor for what the connection has at a device or has
    /// asked of the drive's thread now.
    Look { handle: Handle, reply: CommandRef },
    /// A fused pair asks when no older change of its bytes is left at a device.
    Barrier(Barrier),
    /// A queue in the memory of a host that is attached directly needs a connection; `reply` is the
    /// command of its Admin Queue that waits.
    CreateQueue { reply: CommandRef, task: RingTask },
    /// Something waits for a limit of a drive's function, and no reactor may know until when.
    ShareDue(Arc<DriveShares>),
    /// A port was removed: its connections end.
    PortGone(Arc<PortState>),
    /// Complete what was accepted, then end; whatever is left at the deadline (milliseconds of the
    /// target's clock) is cut off.
    Shutdown { deadline_ms: u64 },
    /// Give a sign of life.
    Beat,
    /// A mistake of ours.
    #[cfg(test)]
    Panic,
    /// Another one: does nothing until the sender is gone.
    #[cfg(test)]
    Hang(std::sync::mpsc::Receiver<()>),
}

/// What a command has waited for.
pub(crate) enum CommandReply {
    /// The queue that was asked by `Abort` has aborted the command, or not.
    Aborted(bool),
    /// The drive has answered a request.
    Drive(Result<DriveReply, Refusal>),
    /// Nothing of the commands that were to end by `Preempt` is left at a device.
    Preempted,
    /// Nothing of the connection that was to end by `Close` is left at a device.
    Closed,
    /// The lock with this number on the wait list is its own.
    LockGranted(u64),
    /// The queue in the host's memory that it creates is there, or not.
    Created(Status),
    /// It may go to its drive, with this ticket.
    Admitted(Ticket),
    /// What an authentication had to have computed.
    Computed(Computed),
}

/// A connection that was admitted.
pub(crate) struct Accepted {
    pub(crate) incoming: Incoming,
    pub(crate) peer: Peer,
    /// Where connections that are not admitted yet are counted.
    pub(crate) waiting: Option<Waiting>,
}

/// The transport of a new connection.
pub(crate) enum Incoming {
    Tcp(Stream),
    Rdma(Box<RdmaConnection>),
    Loopback(TargetEnd),
    /// A client of vfio-user.
    Direct(UnixStream),
}

/// A command that waits for an answer, by its connection and slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommandRef {
    pub(crate) handle: Handle,
    pub(crate) slot: u32,
}

/// A question to all reactors, which each answers when it has no older change of these bytes at a
/// device.
#[derive(Clone, Debug)]
pub(crate) struct Barrier {
    pub(crate) device: DeviceId,
    pub(crate) range: Range<u64>,
    pub(crate) number: u64,
}

/// The sending side, shared.
#[derive(Clone)]
pub(crate) struct Mailbox(Arc<Inner>);

struct Inner {
    messages: Mutex<Vec<Message>>,
    /// Whether there may be messages: without any, a turn takes no lock.
    pending: AtomicBool,
    asleep: AtomicBool,
    /// `None` if the target is stepped: then no thread sleeps.
    bell: Option<OwnedFd>,
}

/// The mailbox of the reactor that serves `handle`, of all that there are.
pub(crate) fn mailbox_of(reactors: &[Mailbox], handle: Handle) -> &Mailbox {
    reactors.get(reactor_of(handle)).expect("reactors alone make handles, each with its own number")
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self::with(Some(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)))
    }

    /// For a reactor that does not sleep.
    pub(crate) fn without_bell() -> Self {
        Self::with(None)
    }

    fn with(bell: Option<OwnedFd>) -> Self {
        let pending = AtomicBool::new(false);
        let asleep = AtomicBool::new(false);
        Self(Arc::new(Inner { messages: Mutex::new(Vec::new()), pending, asleep, bell }))
    }

    /// Adds `message` and wakes the reactor if it sleeps.
    pub(crate) fn post(&self, message: Message) {
        self.0.messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        self.0.pending.store(true, Ordering::SeqCst);
        if self.0.asleep.swap(false, Ordering::SeqCst) {
            self.ring();
        }
    }

    /// Rings the bell without a message.
    pub(crate) fn ring(&self) {
        if let Some(bell) = &self.0.bell {
            // The counter of an eventfd overflows only after 2^64 - 1 unread rings; nothing else
            // can fail.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }

    /// Whether there may be messages.
    pub(crate) fn has_messages(&self) -> bool {
        self.0.pending.load(Ordering::Relaxed)
    }

    /// Takes all messages into `into`, which is empty. The lock is held for a pointer swap.
    pub(crate) fn take(&self, into: &mut Vec<Message>) {
        if !self.0.pending.load(Ordering::Relaxed) {
            return;
        }
        self.0.pending.store(false, Ordering::SeqCst);
        let mut messages = self.0.messages.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *messages, into);
    }

    /// Announces that the reactor is about to sleep. Returns false when messages arrived meanwhile:
    /// then it must not.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.0.asleep.store(true, Ordering::SeqCst);
        let pending = self.0.pending.load(Ordering::SeqCst);
        if pending {
            self.0.asleep.store(false, Ordering::SeqCst);
        }
        !pending
    }

    /// The reactor is awake again.
    pub(crate) fn wake_up(&self) {
        self.0.asleep.store(false, Ordering::SeqCst);
    }

    /// Empties the bell.
    pub(crate) fn silence(&self) {
        if let Some(bell) = &self.0.bell {
            let mut count = [0; 8];
            // EAGAIN means that it was silent already.
            let _ = rustix::io::read(bell, &mut count);
        }
    }

    /// Readable when the bell was rung.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.bell.as_ref().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_before_sleep_keeps_the_reactor_awake() {
        let mailbox = Mailbox::new().unwrap();
        mailbox.post(Message::Shutdown { deadline_ms: 1 });
        assert!(!mailbox.fall_asleep());
        let mut messages = Vec::new();
        mailbox.take(&mut messages);
        assert_eq!(messages.len(), 1);
        assert!(mailbox.fall_asleep());
        mailbox.post(Message::Shutdown { deadline_ms: 2 });
        let mut fds =
            [rustix::event::PollFd::from_borrowed_fd(mailbox.descriptor().unwrap(), rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut fds, None).unwrap(), 1);
        mailbox.silence();
    }
}
