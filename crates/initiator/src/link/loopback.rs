//! The link to a target in the same process, which passes whole commands, data and completions.

use std::collections::VecDeque;
use std::sync::Arc;

use ebof_loopback::{Capsule, CompletionMessage, ConnectError, HostEnd, Port, SubmitError};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Sgl, Sqe};

use super::{DataDirection, LinkCompletion, Received, Transport};
use crate::command::data::{AdminData, IoBuffer};
use crate::command::slots::Slots;
use crate::error::Loss;
use crate::error::connect_error::{ConnectErrorKind as Kind, Step, Tried};
use crate::wait::{Time, Waiter, Waker, Watch};

/// One connection.
pub(crate) struct Loopback {
    end: HostEnd,
    /// Woken by the target.
    bell: Arc<Waker>,
    /// Commands that are not submitted yet.
    out: VecDeque<Capsule>,
    /// Completions that are received and not processed yet.
    arrived: VecDeque<CompletionMessage>,
}

impl Loopback {
    pub(super) fn connect(port: &Port, entries: u16, tried: &mut Tried, waiter: &Waiter) -> Result<Self, Kind> {
        tried.step = Step::Init;
        let bell = waiter.waker().map_err(|errno| Kind::System { action: "making an event descriptor", errno })?;
        let bell = Arc::new(bell);
        // Weak: the target may keep its end after this one is dropped.
        let weak = Arc::downgrade(&bell);
        let ring = move || {
            if let Some(bell) = weak.upgrade() {
                bell.wake();
            }
        };
        let end = port.connect(usize::from(entries), Arc::new(ring)).map_err(|error| match error {
            ConnectError::NotListening => Kind::Refused,
            ConnectError::TooMany => Kind::ClosedDuringInit { reset: false },
        })?;
        Ok(Self { end, bell, out: VecDeque::new(), arrived: VecDeque::new() })
    }
}

impl Transport for Loopback {
    fn set_slots(&mut self, _slots: usize) {}

    // The target fetches the host's data; none are in capsules.
    fn set_in_capsule(&mut self, _bytes: usize) {}

    fn submit<B: IoBuffer>(
        &mut self,
        sqe: &mut Sqe,
        index: u16,
        direction: DataDirection,
        _now_ms: u64,
        slots: &mut Slots<B>,
        lent: &AdminData<'_>,
    ) {
        let length = slots.at(index).expected;
        sqe.dptr = SglDescriptor::encode(Sgl::Transport { length });
        let data = match direction {
            DataDirection::FromHost => slots.data(index, lent).map(Arc::from),
            DataDirection::None | DataDirection::ToHost => None,
        };
        self.out.push_back(Capsule { sqe: *sqe, data });
    }

    fn flush<B: IoBuffer>(&mut self, _slots: &mut Slots<B>, _lent: &AdminData<'_>, _time: &Time) -> Result<(), Loss> {
        while let Some(capsule) = self.out.pop_front() {
            match self.end.submit(capsule) {
                Ok(()) => {}
                // Completions that arrived before the close are processed first; the next receive
                // reports the end.
                Err(SubmitError::Closed(_)) => {}
                Err(SubmitError::Full(capsule)) => {
                    // Retried after completions have been polled.
                    self.out.push_front(capsule);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn receive<B: IoBuffer>(&mut self, _slots: &mut Slots<B>, _lent: &mut AdminData<'_>) -> Result<Received, Loss> {
        self.bell.clear();
        loop {
            match self.end.poll() {
                Ok(Some(completion)) => self.arrived.push_back(completion),
                Ok(None) if self.arrived.is_empty() => return Ok(Received::Nothing),
                Ok(None) => return Ok(Received::All),
                Err(_) if self.arrived.is_empty() => return Err(Loss::Closed),
                // The next call reports the end.
                Err(_) => return Ok(Received::Full),
            }
        }
    }

    fn poll<B: IoBuffer>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &mut AdminData<'_>,
        mut on_finished: impl FnMut(&mut Slots<B>, LinkCompletion),
    ) -> Result<(), Loss> {
        while let Some(CompletionMessage { cqe, data }) = self.arrived.pop_front() {
            let Some(index) = slots.find(cqe.cid()) else {
                return Err(Loss::Protocol("a completion of a command that is not outstanding".into()));
            };
            let transferred = if data.is_empty() {
                // The target fetched the host's data.
                if slots.data_mut(index, lent).is_some() { 0 } else { slots.at(index).expected }
            } else {
                let Some(room) = slots.data_mut(index, lent).and_then(|room| room.get_mut(..data.len())) else {
                    return Err(Loss::Protocol("more data than the command asked for".into()));
                };
                room.copy_from_slice(&data);
                u32::try_from(data.len()).unwrap_or(u32::MAX)
            };
            on_finished(slots, LinkCompletion { index, cqe, transferred });
        }
        Ok(())
    }

    fn has_unqueued_data(&self) -> bool {
        false
    }

    fn reclaim<B>(&mut self, _slots: &mut Slots<B>) -> Result<(), Loss> {
        Ok(())
    }

    fn watch(&self) -> Watch<'_> {
        Watch { descriptor: self.bell.descriptor(), blocked: false }
    }

    fn has_unsent(&self) -> bool {
        !self.out.is_empty()
    }

    fn allow_graceful_close(&mut self) {}

    // Dropping `end` closes the connection.
    fn close<B>(self, _slots: &mut Slots<B>) {}
}
