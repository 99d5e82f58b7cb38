//! The target around a drive: what a drive wants of it, as long as it is a part of one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ebof_manage::events::NewEvent;
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::log::ReservationEvent;
use ebof_nvme::{ControllerId, HostId, Nqn, Nsid};

use super::handover::{Cancel, Drain, Lost};
use super::monitor::Observed;
use crate::drives::drain::DrainToken;

type Publish = Box<dyn Fn(Option<&Nqn>, &[Event], &[AsyncEvent]) + Send>;

/// What an actor wants of the target; called on the drive's thread.
pub(crate) struct DriveCallbacks {
    /// Shows hosts what the drive has become, by a command of this host if it was one, and
    /// notifies them of events and of changes to their reservations.
    pub(crate) publish: Publish,
    /// Sends an event to one controller.
    pub(crate) send_event: Box<dyn Fn(ControllerId, AsyncEvent) + Send>,
    /// Has queues end their commands to what they have lost, and hold the token until then.
    pub(crate) drain: Drain,
    /// Cancels what queues have at devices of what they have lost.
    pub(crate) cancel: Cancel,
    /// Reports an event.
    pub(crate) report: Box<dyn Fn(NewEvent) + Send>,
    /// What hosts did so far, and errors behind a number.
    pub(crate) observe: Box<dyn Fn(u64) -> Observed + Send>,
}

/// What became of a host's registration or reservation.
pub(crate) type Event = (Nsid, HostId, ReservationEvent);

/// The way from a drive to the target around it. Before it has joined one, and after that is over,
/// nothing that it says is heard.
#[derive(Default)]
pub(super) struct TargetLink {
    callbacks: Mutex<Option<DriveCallbacks>>,
}

impl TargetLink {
    pub(super) fn join(&self, callbacks: DriveCallbacks) {
        *self.callbacks() = Some(callbacks);
    }

    pub(super) fn leave(&self) {
        *self.callbacks() = None;
    }

    fn callbacks(&self) -> MutexGuard<'_, Option<DriveCallbacks>> {
        self.callbacks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What hosts did so far, with the errors behind a number.
    pub(super) fn observe(&self, after: u64) -> Observed {
        self.callbacks().as_ref().map(|callbacks| (callbacks.observe)(after)).unwrap_or_default()
    }

    /// Shows hosts what the drive has become, by a command of host `by` if it was one.
    pub(super) fn show(&self, by: Option<&Nqn>, reservations: &[Event], events: &[AsyncEvent]) {
        if let Some(callbacks) = &*self.callbacks() {
            (callbacks.publish)(by, reservations, events);
        }
    }

    /// Has queues end their commands to what they have lost.
    pub(super) fn drain(&self, lost: &Lost, token: &DrainToken) {
        if let Some(callbacks) = &*self.callbacks() {
            (callbacks.drain)(lost, token);
        }
    }

    /// Has what queues have at devices of what they have lost cancelled.
    pub(super) fn cancel(&self, lost: &Lost) {
        if let Some(callbacks) = &*self.callbacks() {
            (callbacks.cancel)(lost);
        }
    }

    /// Sends an event to one controller.
    pub(super) fn send_event(&self, controller: ControllerId, event: AsyncEvent) {
        if let Some(callbacks) = &*self.callbacks() {
            (callbacks.send_event)(controller, event);
        }
    }

    /// Reports an event.
    pub(super) fn report(&self, event: NewEvent) {
        if let Some(callbacks) = &*self.callbacks() {
            (callbacks.report)(event);
        }
    }
}
