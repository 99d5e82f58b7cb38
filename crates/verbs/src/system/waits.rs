//! What a queue pair waits for.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::time::Timespec;

use super::cm::Id;
use super::completions::Completions;
use super::device::Device;
use crate::Error;

/// An epoll set: events of the connection, the announcement of completions, asynchronous events of
/// the device (whoever is first takes them for all), the device's alarm, by which the others learn
/// of it, and the timer of nudges if there are any.
pub(super) struct Waits(OwnedFd);

/// What is in the epoll set.
const CONNECTION: u64 = 0;
const COMPLETIONS: u64 = 1;
const DEVICE: u64 = 2;
const ALARM: u64 = 3;
const TIMER: u64 = 4;

/// Which sources are ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sources {
    pub(super) connection: bool,
    pub(super) device: bool,
    pub(super) timer: bool,
    /// Completions, or the alarm.
    pub(super) other: bool,
}

impl Waits {
    /// Before anything is posted: `Id::migrate` comes first.
    pub(super) fn new(id: &Id, completions: &Completions, device: &Device) -> Result<Self, Error> {
        let failed = |error: rustix::io::Errno| Error::Call { call: "epoll_ctl", source: error.into() };
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let add = |descriptor: BorrowedFd<'_>, source, flags| {
            epoll::add(&set, descriptor, epoll::EventData::new_u64(source), flags).map_err(failed)
        };
        add(id.channel().descriptor(), CONNECTION, epoll::EventFlags::IN)?;
        if let Some(descriptor) = completions.descriptor() {
            add(descriptor, COMPLETIONS, epoll::EventFlags::IN)?;
        }
        add(device.events(), DEVICE, epoll::EventFlags::IN)?;
        // The edge: it is never read, so that every queue pair sees it.
        add(device.alarm(), ALARM, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(Self(set))
    }

    /// Until it is closed.
    pub(super) fn add_timer(&self, timer: &OwnedFd) -> rustix::io::Result<()> {
        epoll::add(&self.0, timer, epoll::EventData::new_u64(TIMER), epoll::EventFlags::IN)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Does not wait.
    pub(super) fn ready(&self) -> Result<Sources, Error> {
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; 5];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = match epoll::wait(&self.0, &mut events[..], Some(&now)) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(Error::Call { call: "epoll_wait", source: error.into() }),
        };
        let mut ready = Sources::default();
        for event in &events[..count] {
            match event.data.u64() {
                CONNECTION => ready.connection = true,
                DEVICE => ready.device = true,
                TIMER => ready.timer = true,
                _ => ready.other = true,
            }
        }
        Ok(ready)
    }
}
