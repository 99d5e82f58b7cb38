//! The outstanding commands of one connection: slots, buffers, deadlines, completions. The link
//! transports them; nothing here waits, knows what a controller is, or reconnects.

#[cfg(test)]
mod instructions;
#[cfg(test)]
pub(crate) mod pair;
mod required;

use std::sync::Arc;

use ebof_nvme::{Sqe, Status};

use crate::command::data::{AdminData, Completion, Data, IoBuffer};
use crate::command::slots::{Payload, Slots};
use crate::command::troubles::Troubles;
use crate::error::{Error, Loss};
use crate::link::{DataDirection, HostLink, LinkCompletion, Received, Transport, either};
use crate::wait::Time;

/// A connection with its commands.
pub(crate) struct Engine<B> {
    link: Option<HostLink>,
    /// The most data bytes of one command over the link.
    transfer_max: u32,
    /// The owner polls again and again, and asks for no notifications.
    spins: bool,
    slots: Slots<B>,
    time: Time,
    /// Set for I/O queues, where nearly every command has to transfer all of its data: see
    /// [`required::required_bytes`].
    strict: bool,
    /// A command failed with Invalid Namespace: the list of namespaces is out of date.
    namespace_missed: bool,
}

/// Reads of the link in one call of `receive`, so that other connections of the thread are served
/// too.
const RECEIVES_MAX: usize = 64;

impl<B: IoBuffer> Engine<B> {
    /// An engine without a connection, for up to `limit` outstanding commands.
    pub(crate) fn new(limit: u16, strict: bool, time: Time) -> Self {
        Self {
            link: None,
            transfer_max: u32::MAX,
            spins: false,
            slots: Slots::new(limit),
            time,
            strict,
            namespace_missed: false,
        }
    }

    /// Uses `link` from now on. A previous link is closed.
    pub(crate) fn attach(&mut self, mut link: HostLink) {
        self.close_link();
        either!(&mut link, link => link.set_slots(self.slots.table_size()));
        self.transfer_max = either!(&link, link => link.transfer_max()).unwrap_or(u32::MAX);
        self.link = Some(link);
    }

    /// The most data bytes of one command, if the transport has a limit.
    pub(crate) fn transfer_max(&self) -> Option<u32> {
        self.link.as_ref().and_then(|link| either!(link, link => link.transfer_max()))
    }

    /// Data bytes that a command capsule may carry from now on.
    pub(crate) fn set_in_capsule(&mut self, bytes: usize) {
        if let Some(link) = &mut self.link {
            either!(link, link => link.set_in_capsule(bytes));
        }
    }

    /// The link, while there is one.
    pub(crate) fn link(&self) -> Option<&HostLink> {
        self.link.as_ref()
    }

    /// See [`Transport::share_troubles`].
    pub(crate) fn share_troubles(&mut self, troubles: &Arc<Troubles>) {
        if let Some(link) = &mut self.link {
            link.share_troubles(troubles);
        }
    }

    pub(crate) fn slots(&mut self) -> &mut Slots<B> {
        &mut self.slots
    }

    /// See [`Slots::next_deadline_ms`].
    pub(crate) fn next_deadline_ms(&self) -> u64 {
        self.slots.next_deadline_ms()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    pub(crate) fn limit(&self) -> usize {
        self.slots.limit()
    }

    /// Removes the link. No command may be outstanding.
    pub(crate) fn detach(&mut self) -> Option<HostLink> {
        self.link.take()
    }

    /// Whether the link has to become writable before everything queued can be sent.
    pub(crate) fn is_blocked(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.watch().blocked)
    }

    /// Whether queued data can be sent now: flush before sleeping.
    pub(crate) fn has_unsent(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.watch().blocked && link.has_unsent())
    }

    /// Queues a command that owns its data.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond the transport's limit, 4 GiB over TCP; [`Error::QueueFull`], also
    /// without a link. With the data.
    pub(crate) fn submit(
        &mut self,
        sqe: Sqe,
        data: Data<B>,
        user: u64,
        timeout_ms: u64,
    ) -> Result<(), (Error, Data<B>)> {
        let length = match &data {
            Data::None => 0,
            Data::ToHost(buffer) | Data::FromHost(buffer) => buffer.as_ref().len(),
        };
        if length > self.transfer_max as usize {
            return Err((Error::TooLarge { bytes: length }, data));
        }
        let Ok(length) = u32::try_from(length) else { return Err((Error::TooLarge { bytes: length }, data)) };
        if !self.has_room() {
            return Err((Error::QueueFull, data));
        }
        let payload = match data {
            Data::None => Payload::None,
            Data::ToHost(buffer) => Payload::ToHost(buffer),
            Data::FromHost(buffer) => Payload::FromHost(buffer),
        };
        self.enqueue(sqe, payload, length, user, timeout_ms, &AdminData::None);
        Ok(())
    }

    /// Queues a command whose data are `lent[start..start + length]`. The same buffer has to be
    /// passed to every call until the command completes.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::QueueFull`], also without a link.
    pub(crate) fn submit_lent(
        &mut self,
        sqe: Sqe,
        (start, length): (usize, u32),
        lent: &AdminData<'_>,
        user: u64,
        timeout_ms: u64,
    ) -> Result<(), Error> {
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.transfer_max {
            return Err(Error::TooLarge { bytes });
        }
        if !self.has_room() {
            return Err(Error::QueueFull);
        }
        self.enqueue(sqe, Payload::Lent { start, length: bytes }, length, user, timeout_ms, lent);
        Ok(())
    }

    /// Whether one more command may be queued. Asked first, so that no command has to be taken
    /// back.
    fn has_room(&self) -> bool {
        self.link.is_some() && !self.slots.is_full()
    }

    /// Queues a command that there is room for ([`Engine::has_room`]).
    fn enqueue(
        &mut self,
        mut sqe: Sqe,
        payload: Payload<B>,
        length: u32,
        user: u64,
        timeout_ms: u64,
        lent: &AdminData<'_>,
    ) {
        let link = self.link.as_mut().expect("there is a link where there is room");
        let now_ms = self.time.now_ms();
        let index = self.slots.take(payload, user, timeout_ms, now_ms);
        let slot = self.slots.at(index);
        sqe.cid = slot.cid.0.into();
        slot.expected = length;
        let direction = match (&slot.payload, lent) {
            _ if length == 0 => DataDirection::None,
            (Payload::ToHost(_), _) | (Payload::Lent { .. }, AdminData::ToHost(_)) => DataDirection::ToHost,
            (Payload::FromHost(_), _) | (Payload::Lent { .. }, AdminData::FromHost(_)) => DataDirection::FromHost,
            (Payload::None, _) | (Payload::Lent { .. }, AdminData::None) => DataDirection::None,
        };
        slot.required = required::required_bytes(self.strict, &sqe, length, direction == DataDirection::ToHost);
        either!(link, link => link.submit(&mut sqe, index, direction, now_ms, &mut self.slots, lent));
    }

    /// Sends what is queued, as far as possible without blocking.
    pub(crate) fn flush(&mut self, lent: &AdminData<'_>) -> Result<(), Loss> {
        let Some(link) = &mut self.link else { return Ok(()) };
        either!(link, link => link.flush(&mut self.slots, lent, &self.time))
    }

    /// Processes everything that was received and sends the data that the controller requested. The
    /// caller may sleep afterwards, unless it spins.
    pub(crate) fn receive(&mut self, lent: &mut AdminData<'_>) -> Result<(), Loss> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let ask = !self.spins;
        either!(link, link => receive(link, &mut self.slots, lent, &self.time, &mut self.namespace_missed, ask))
    }

    /// Says whether the caller polls again and again. Before it sleeps, it receives once without
    /// spinning if [`Engine::is_unnotified`]. Returns what was said before.
    pub(crate) fn set_spinning(&mut self, spins: bool) -> bool {
        std::mem::replace(&mut self.spins, spins)
    }

    /// Whether nothing would wake a caller that spins if it slept now.
    pub(crate) fn is_unnotified(&self) -> bool {
        self.spins && self.link.as_ref().is_some_and(|link| either!(link, link => link.is_notified_on_request()))
    }

    /// Whether [`Engine::pop`] has something.
    pub(crate) fn has_completed(&self) -> bool {
        self.slots.has_completed()
    }

    /// Whether a command failed with Invalid Namespace since the last call.
    pub(crate) fn take_namespace_missed(&mut self) -> bool {
        std::mem::take(&mut self.namespace_missed)
    }

    /// The next completed command.
    pub(crate) fn pop(&mut self) -> Option<Completion<B>> {
        self.slots.pop()
    }

    /// Closes the connection; every outstanding command completes with `loss`.
    pub(crate) fn lose(&mut self, loss: &Loss) {
        self.close_link();
        self.slots.fail_all(&Error::Lost(loss.clone()));
    }
}

impl<B> Engine<B> {
    /// See [`Transport::allow_graceful_close`].
    pub(crate) fn allow_graceful_close(&mut self) {
        if let Some(link) = &mut self.link {
            link.allow_graceful_close();
        }
    }

    /// Closes the connection. Buffers return to their owners afterwards, so nothing may access them
    /// any more.
    fn close_link(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        if self.slots.in_flight() == 0 && !link.has_unsent() {
            link.allow_graceful_close();
        }
        either!(link, link => link.close(&mut self.slots));
    }
}

impl<B> Drop for Engine<B> {
    fn drop(&mut self) {
        self.close_link();
    }
}

/// See [`Engine::receive`]. `ask`: asks for a notification of what arrives later.
fn receive<B: IoBuffer>(
    link: &mut impl Transport,
    slots: &mut Slots<B>,
    lent: &mut AdminData<'_>,
    time: &Time,
    namespace_missed: &mut bool,
    mut ask: bool,
) -> Result<(), Loss> {
    link.reclaim(slots)?;
    for _ in 0..RECEIVES_MAX {
        let received = link.receive(slots, lent)?;
        // What a link holds itself, no descriptor tells of.
        let has_more = link.has_received();
        if received == Received::Nothing {
            if has_more {
                continue;
            }
            if std::mem::take(&mut ask) && link.prepare_to_sleep()? {
                continue;
            }
            break;
        }
        link.poll(slots, lent, |slots, LinkCompletion { index, cqe, transferred }| {
            let result = if !cqe.status().is_success() {
                *namespace_missed |= cqe.status().is(Status::INVALID_NAMESPACE);
                Ok(cqe)
            } else if transferred < slots.at(index).required {
                Err(Error::Malformed("success although not all data were transferred"))
            } else {
                Ok(cqe)
            };
            slots.finish(index, result);
        })?;
        if received == Received::All && !has_more {
            break;
        }
    }
    if link.has_unqueued_data() { link.flush(slots, lent, time) } else { Ok(()) }
}
