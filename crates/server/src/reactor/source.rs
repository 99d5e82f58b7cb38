//! How a reactor learns what is ready: epoll reports it, or simulated connections are asked
//! itself.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ebof_backend::Io;
use rustix::event::{PollFd, PollFlags, epoll, poll};

use crate::direct::DirectClient;
use crate::link::{Link, Notifier, State};
use crate::reactor::connection::Connection;
use crate::shared::handle::index_of;
use crate::shared::mailbox::Mailbox;

pub(super) const MAILBOX: u64 = u64::MAX;
pub(super) const DEVICES: u64 = u64::MAX - 1;
/// The first number of clients of vfio-user; those of connections are below.
pub(super) const DIRECT: u64 = 1 << 32;

/// Where a reactor's events come from.
pub(super) enum Source {
    /// Sockets, the `Io`'s descriptor and the mailbox's.
    Epoll(OwnedFd),
    /// Nothing is waited for: the caller that steps the reactor decides when it looks.
    Stepped,
}

impl Source {
    /// The kernel's, with a mailbox and an `Io` in it.
    pub(super) fn epoll(mailbox: &Mailbox, io: &Io) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = mailbox.descriptor().ok_or(io::ErrorKind::Unsupported)?;
        epoll::add(&epoll, bell, epoll::EventData::new_u64(MAILBOX), epoll::EventFlags::IN)?;
        if let Some(completions) = io.descriptor() {
            epoll::add(&epoll, completions, epoll::EventData::new_u64(DEVICES), epoll::EventFlags::IN)?;
        }
        Ok(Self::Epoll(epoll))
    }

    /// From now on reports when there is something to receive on `link`, for the connection at
    /// `index`. One without a descriptor rings a bell, or is looked at.
    pub(super) fn add(&self, link: &Link, index: u32) -> io::Result<()> {
        if let (Self::Epoll(epoll), Notifier::Descriptor(descriptor)) = (self, link.notifier()) {
            epoll::add(epoll, descriptor, epoll::EventData::new_u64(u64::from(index)), epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// From now on reports what the client of the function at `at` sends.
    pub(super) fn add_client(&self, client: &DirectClient, at: usize) -> io::Result<()> {
        let Self::Epoll(epoll) = self else { return Err(io::ErrorKind::Unsupported.into()) };
        let data = epoll::EventData::new_u64(DIRECT + at as u64);
        Ok(epoll::add(epoll, client.descriptor(), data, epoll::EventFlags::IN)?)
    }

    /// Reports nothing more of the client: its socket may be closed later.
    pub(super) fn remove_client(&self, client: &DirectClient) {
        if let Self::Epoll(epoll) = self {
            let deleted = epoll::delete(epoll, client.descriptor());
            debug_assert!(deleted.is_ok(), "a client is watched until it is left");
        }
    }

    /// Sets whether it is of interest that the client sends something, or takes answers.
    pub(super) fn watch_client(
        &self,
        client: &DirectClient,
        at: usize,
        (reads, writes): (bool, bool),
    ) -> io::Result<()> {
        let Self::Epoll(epoll) = self else { return Ok(()) };
        let data = epoll::EventData::new_u64(DIRECT + at as u64);
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, reads);
        flags.set(epoll::EventFlags::OUT, writes);
        Ok(epoll::modify(epoll, client.descriptor(), data, flags)?)
    }

    /// Sets the events that are of interest now, see [`interest`].
    pub(super) fn watch(&self, connection: &Connection) -> io::Result<()> {
        let (Self::Epoll(epoll), Notifier::Descriptor(descriptor)) = (self, connection.link.notifier()) else {
            return Ok(());
        };
        let Some(flags) = interest(&connection.link) else {
            // Its end would be reported again and again. It may be out of the set already.
            let _ = epoll::delete(epoll, descriptor);
            return Ok(());
        };
        let data = epoll::EventData::new_u64(u64::from(index_of(connection.handle)));
        Ok(epoll::modify(epoll, descriptor, data, flags)?)
    }

    /// Waits up to `timeout` for events.
    pub(super) fn wait(&self, events: &mut Vec<epoll::Event>, timeout: Option<Duration>) -> io::Result<()> {
        let Self::Epoll(epoll) = self else { return Ok(()) };
        let mut timeout = timespec(timeout);
        if let Some(short) = timeout.filter(|time| time.tv_sec == 0 && (1..1_000_000).contains(&time.tv_nsec)) {
            // epoll's own times are whole milliseconds.
            let mut set = [PollFd::new(epoll, PollFlags::IN)];
            // Whatever it says: the sources are asked next.
            let _ = ebof_idle::precisely(|| poll(&mut set, Some(&short)));
            timeout = timespec(Some(Duration::ZERO));
        }
        match epoll::wait(epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Which events of a connection are of interest: none where it is gone. An end of the stream is an
/// input event; errors are always reported.
fn interest(link: &Link) -> Option<epoll::EventFlags> {
    match link.state {
        State::Gone => None,
        State::Closing { .. } => Some(epoll::EventFlags::IN),
        State::Handshake { .. } | State::Open | State::Draining => {
            let mut flags = epoll::EventFlags::empty();
            flags.set(epoll::EventFlags::IN, !link.is_shut());
            flags.set(epoll::EventFlags::OUT, link.is_blocked());
            Some(flags)
        }
    }
}

/// What is ready of a simulated connection and of interest.
pub(super) fn simulated_event(connection: &Connection) -> Option<epoll::Event> {
    let link = &connection.link;
    let Notifier::Simulated(readiness) = link.notifier() else { return None };
    let interest = interest(link)?;
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, readiness.readable && interest.contains(epoll::EventFlags::IN));
    flags.set(epoll::EventFlags::OUT, readiness.writable && interest.contains(epoll::EventFlags::OUT));
    flags.set(epoll::EventFlags::HUP, readiness.closed && link.is_shut());
    let data = epoll::EventData::new_u64(u64::from(index_of(connection.handle)));
    (!flags.is_empty()).then_some(epoll::Event { flags, data })
}

pub(crate) fn timespec(timeout: Option<Duration>) -> Option<rustix::event::Timespec> {
    timeout.map(|timeout| rustix::event::Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    })
}
