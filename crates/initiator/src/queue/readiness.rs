//! The descriptor of a queue pair.

use std::os::fd::OwnedFd;

use rustix::event::epoll;

use crate::error::Error;
use crate::queue::doorbell::Doorbell;
use crate::wait::{Waker, Watch};

/// An epoll descriptor that is readable when a queue pair has something to do. It watches the link,
/// the waker and the doorbell's timer.
pub(super) struct Readiness {
    pub(super) epoll: OwnedFd,
    /// Whether it also waits until the link is writable.
    pub(super) blocked: bool,
}

impl Readiness {
    pub(super) fn new(waker: &Waker, doorbell: Option<&Doorbell>) -> Result<Self, Error> {
        let system = |action| move |errno| Error::System { action, errno };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("making an epoll descriptor"))?;
        let others = [(0, waker.descriptor()), (2, doorbell.and_then(Doorbell::descriptor))];
        for (number, descriptor) in others {
            if let Some(descriptor) = descriptor {
                epoll::add(&epoll, descriptor, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
                    .map_err(system("watching an event descriptor"))?;
            }
        }
        Ok(Self { epoll, blocked: false })
    }

    /// Watches another waker, too.
    pub(super) fn add_waker(&self, waker: &Waker) -> Result<(), Error> {
        let Some(descriptor) = waker.descriptor() else { return Ok(()) };
        epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(3), epoll::EventFlags::IN)
            .map_err(|errno| Error::System { action: "watching an event descriptor", errno })
    }

    /// Adds a new link. The descriptor of the previous one is closed by now, which removes it.
    pub(super) fn add(&mut self, watch: Watch<'_>) -> Result<(), Error> {
        self.blocked = false;
        let Some(descriptor) = watch.descriptor else { return Ok(()) };
        epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(1), epoll::EventFlags::IN)
            .map_err(|errno| Error::System { action: "watching a connection", errno })
    }

    pub(super) fn change(&mut self, watch: Watch<'_>) -> Result<(), Error> {
        self.blocked = watch.blocked;
        let Some(descriptor) = watch.descriptor else { return Ok(()) };
        let room = if watch.blocked { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        epoll::modify(&self.epoll, descriptor, epoll::EventData::new_u64(1), epoll::EventFlags::IN | room)
            .map_err(|errno| Error::System { action: "watching a connection", errno })
    }
}
