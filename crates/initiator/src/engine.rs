//! The commands of one connection: their slots, buffers, times and ends. How they travel is the
//! link's; nothing here waits, knows what a controller is, or reconnects.

#[cfg(test)]
mod counted;
mod least;
#[cfg(test)]
pub(crate) mod pair;

use ebof_nvme::{Sqe, Status};

use crate::data::{AdminData, Completion, Data};
use crate::error::{Error, Loss};
use crate::link::{DataDirection, Finished, Link, Received, Transport, either};
use crate::slots::{Payload, Slots};
use crate::wait::Time;

/// A connection with its commands.
pub(crate) struct Engine<B> {
    link: Option<Link>,
    slots: Slots<B>,
    time: Time,
    /// Whether success with fewer data than asked for is an error for nearly every command (I/O
    /// queues): see [`least::least`].
    strict: bool,
    /// A command was answered with Invalid Namespace: what is known of the namespaces is out of
    /// date.
    namespace_missed: bool,
}

/// Reads of the link in one call of `receive`: another connection of the same thread shall get its
/// turn.
const ROUNDS_MAX: usize = 64;

impl<B: AsRef<[u8]> + AsMut<[u8]>> Engine<B> {
    /// An engine without a connection, for `limit` commands at once. `strict`: see the field.
    pub(crate) fn new(limit: u16, strict: bool, time: Time) -> Self {
        Self { link: None, slots: Slots::new(limit), time, strict, namespace_missed: false }
    }

    /// Goes on over a fresh link.
    pub(crate) fn attach(&mut self, mut link: Link) {
        self.let_go();
        either!(&mut link, link => link.set_slots(self.slots.table()));
        self.link = Some(link);
    }

    /// Data bytes that a command capsule may carry from now on.
    pub(crate) fn set_in_capsule(&mut self, bytes: usize) {
        if let Some(link) = &mut self.link {
            either!(link, link => link.set_in_capsule(bytes));
        }
    }

    /// The link, while there is one.
    pub(crate) fn link(&self) -> Option<&Link> {
        self.link.as_ref()
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

    /// Takes the link away, with nothing outstanding on it.
    pub(crate) fn detach(&mut self) -> Option<Link> {
        self.link.take()
    }

    /// Whether the link has to become writable before everything queued can be sent.
    pub(crate) fn is_blocked(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.watch().blocked)
    }

    /// Whether something is queued that the link would take: flush before sleeping.
    pub(crate) fn has_unsent(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.watch().blocked && link.is_unsent())
    }

    /// Queues a command with data of its own.
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
        let Ok(length) = u32::try_from(length) else { return Err((Error::TooLarge { bytes: length }, data)) };
        let payload = match data {
            Data::None => Payload::None,
            Data::ToHost(buffer) => Payload::ToHost(buffer),
            Data::FromHost(buffer) => Payload::FromHost(buffer),
        };
        self.enqueue(sqe, payload, length, user, timeout_ms, &AdminData::None).map_err(|payload| {
            let data = match payload {
                Payload::ToHost(buffer) => Data::ToHost(buffer),
                Payload::FromHost(buffer) => Data::FromHost(buffer),
                Payload::None | Payload::Lent { .. } => Data::None,
            };
            (Error::QueueFull, data)
        })
    }

    /// Queues a command whose data are `lent[start..start + length]`. The same buffer has to be
    /// lent to every call until the command is over.
    pub(crate) fn submit_lent(
        &mut self,
        sqe: Sqe,
        (start, length): (usize, u32),
        lent: &AdminData<'_>,
        user: u64,
        timeout_ms: u64,
    ) -> Result<(), Error> {
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let payload = Payload::Lent { start, length: bytes };
        self.enqueue(sqe, payload, length, user, timeout_ms, lent).map_err(|_| Error::QueueFull)
    }

    /// On failure (the queue is full) the payload comes back.
    fn enqueue(
        &mut self,
        mut sqe: Sqe,
        payload: Payload<B>,
        length: u32,
        user: u64,
        timeout_ms: u64,
        lent: &AdminData<'_>,
    ) -> Result<(), Payload<B>> {
        let Some(link) = &mut self.link else { return Err(payload) };
        let now_ms = self.time.now_ms();
        let index = self.slots.take(payload, user, timeout_ms, now_ms)?;
        let slot = self.slots.at(index);
        sqe.cid = slot.cid.0.into();
        slot.expected = length;
        let direction = match (&slot.payload, lent) {
            _ if length == 0 => DataDirection::None,
            (Payload::ToHost(_), _) | (Payload::Lent { .. }, AdminData::ToHost(_)) => DataDirection::ToHost,
            (Payload::FromHost(_), _) | (Payload::Lent { .. }, AdminData::FromHost(_)) => DataDirection::FromHost,
            (Payload::None, _) | (Payload::Lent { .. }, AdminData::None) => DataDirection::None,
        };
        slot.least = least::least(self.strict, &sqe, length, direction == DataDirection::ToHost);
        either!(link, link => link.submit(&mut sqe, index, direction, now_ms, &mut self.slots, lent));
        Ok(())
    }

    /// Sends what is queued, as far as that goes without waiting.
    pub(crate) fn flush(&mut self, lent: &AdminData<'_>) -> Result<(), Loss> {
        let Some(link) = &mut self.link else { return Ok(()) };
        either!(link, link => link.flush(&mut self.slots, lent, &self.time))
    }

    /// Takes everything that has come, and sends the data that were asked for in it: the caller may
    /// sleep afterwards.
    pub(crate) fn receive(&mut self, lent: &mut AdminData<'_>) -> Result<(), Loss> {
        let Some(link) = &mut self.link else { return Ok(()) };
        either!(link, link => receive(link, &mut self.slots, lent, &self.time, &mut self.namespace_missed))
    }

    /// Whether a command was answered with Invalid Namespace since the last call.
    pub(crate) fn take_namespace_missed(&mut self) -> bool {
        std::mem::take(&mut self.namespace_missed)
    }

    /// The next command that is over.
    pub(crate) fn pop(&mut self) -> Option<Completion<B>> {
        self.slots.pop()
    }

    /// Gives the connection up: every command that is not over ends with `loss`.
    pub(crate) fn lose(&mut self, loss: &Loss) {
        self.let_go();
        self.slots.finish_all(&Error::Lost(loss.clone()));
    }
}

impl<B> Engine<B> {
    /// The peer has all that was sent: see [`Transport::end_in_order`].
    pub(crate) fn end_in_order(&mut self) {
        if let Some(link) = &mut self.link {
            link.end_in_order();
        }
    }

    /// Takes the connection away. Buffers go back to their owners next: nothing may be read from
    /// them any more.
    fn let_go(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        if self.slots.in_flight() == 0 && !link.is_unsent() {
            link.end_in_order();
        }
        either!(link, link => link.close(&mut self.slots));
    }
}

impl<B> Drop for Engine<B> {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// See [`Engine::receive`].
fn receive<B: AsRef<[u8]> + AsMut<[u8]>>(
    link: &mut impl Transport,
    slots: &mut Slots<B>,
    lent: &mut AdminData<'_>,
    time: &Time,
    namespace_missed: &mut bool,
) -> Result<(), Loss> {
    link.reclaim(slots)?;
    for _ in 0..ROUNDS_MAX {
        let received = link.receive(slots, lent)?;
        if received == Received::Nothing {
            break;
        }
        link.poll(slots, lent, |slots, Finished { index, cqe, transferred }| {
            let result = if !cqe.status().is_success() {
                *namespace_missed |= cqe.status().is(Status::INVALID_NAMESPACE);
                Ok(cqe)
            } else if transferred < slots.at(index).least {
                Err(Error::Malformed("success although not all data were transferred"))
            } else {
                Ok(cqe)
            };
            slots.finish(index, result);
        })?;
        if received == Received::All {
            break;
        }
    }
    if link.owes_data() { link.flush(slots, lent, time) } else { Ok(()) }
}
