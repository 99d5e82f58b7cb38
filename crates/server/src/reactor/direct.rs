//! Directly attached hosts: a client's socket, the registers that it writes, and the connections
//! that serve the queues of the controller.
//!
//! ```text
//!              CC.EN 0->1              CC.EN 1->0, resets
//! no controller ---------> Admin Queue -----------------> its queues end ---> no controller
//! ```
//! All queues of a function are connections of the reactor that has its client. A client that is
//! gone leaves its function until nothing of it is at a device any more.

mod given;
mod queues;
mod stalls;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebof_fabrics::{Handle, RingTask};
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::property::{Cc, Csts, Version};
use ebof_nvme::{ControllerId, Nqn, QueueId};
use ebof_region::MapError;
use ebof_vfio::function::{Action, Event};
use ebof_vfio::message::{Call, Command, DmaUnmap};
use ebof_vfio::registers::{AdminQueues, Effect};
use rustix::event::epoll;

use self::given::Given;
pub(super) use self::stalls::{Stalls, Stopwatch, WATCHED_SHARE};
use super::Reactor;
use crate::direct::{DirectClient, DirectFunction, Left, Look, SharedFunction, Unmapped, lock};
use crate::link::End;
use crate::observe::log_limit::{Kind, LogSubject};
use crate::ports::peer::Peer;
use crate::ports::port::PortState;
use crate::reactor::connection::Connection;
use crate::shared::handle::index_of;
use crate::shared::mailbox::CommandRef;

/// How long after it was refused a queue is asked for again, while the host's earlier ones drain,
/// milliseconds.
const RETRY_MS: u64 = 5;

/// How often mapped doorbells are looked at while nobody rings.
const DOORBELL_INTERVAL: Duration = Duration::from_millis(1);

/// Messages of one client in a turn.
const MESSAGES_MAX: usize = 128;

/// A function and its client.
pub(crate) struct DirectDevice {
    port: Arc<PortState>,
    host: Nqn,
    client: Option<DirectClient>,
    function: SharedFunction,
    /// Whether its doorbells are memory.
    polls: Arc<AtomicBool>,
    /// The connection of the Admin Queue.
    admin: Option<Handle>,
    /// All connections of the function: they stay until nothing of them is left.
    queues: Vec<(QueueId, Handle)>,
    /// The controller that its I/O queues belong to.
    controller: Option<(Nqn, ControllerId)>,
    /// What the guest's driver knows: nothing else may be enabled by it.
    known: Option<Given>,
    /// A message that is answered when the function has come so far; others wait.
    waiting: Option<Wait>,
    /// Messages were received that are not looked at.
    has_messages: bool,
    /// Memory of a client that is gone.
    unmapped: Unmapped,
    /// The host resets the controller.
    is_resetting: bool,
    /// That is because it has failed, and CSTS.CFS is what is left of it.
    has_failed: bool,
    /// What it has written to CC since.
    pending: PendingCc,
    /// Queues to be asked for again.
    retries: Vec<(CommandRef, RingTask)>,
    retry_ms: u64,
    /// A client that came before the last one was gone.
    next: Option<(UnixStream, Peer)>,
    /// Its memory kept the thread waiting: it is left alone until then, microseconds of the
    /// target's clock.
    rests_until_us: Option<u64>,
    /// Which events of its client are watched: messages, and room for answers.
    watched: (bool, bool),
}

impl DirectDevice {
    /// Whether the client's next message can be looked at: nothing is to be answered before, there
    /// is room for the answer, and what it has sent to be closed is closed.
    fn takes_messages(&self) -> bool {
        self.waiting.is_none()
            && self.client.as_ref().is_some_and(DirectClient::has_room)
            && self.port.reaper.has_room()
    }

    /// Which events of its client are of interest.
    fn interest(&self) -> (bool, bool) {
        let is_blocked = self.client.as_ref().is_some_and(DirectClient::is_blocked);
        (self.takes_messages(), self.waiting.is_none() && is_blocked)
    }

    /// Whether it has to be looked at although nothing happens.
    pub(super) fn waits(&self) -> bool {
        let has_client = self.client.is_some();
        self.waiting.is_some() || !self.retries.is_empty() || has_client && self.watched != self.interest()
    }
}

/// Writes of CC that wait for an earlier one to be through. Later ones take their place.
#[derive(Default)]
struct PendingCc {
    /// The controller is enabled again when its reset is over.
    enable: Option<(Cc, Option<AdminQueues>)>,
    /// CC is changed otherwise, after that.
    configure: Option<Cc>,
}

/// What a client waits for.
enum Wait {
    /// The end of a controller's queues, after a reset of the function, for instance.
    Reset(Option<Call>),
    /// The end of I/O in memory that it has unmapped.
    Unmap(Call, DmaUnmap, Unmapped),
}

impl Reactor {
    /// A client has come.
    pub(super) fn accept_client(&mut self, socket: UnixStream, peer: Peer, now_us: u64) {
        let existing =
            self.direct.iter().position(|device| device.as_ref().is_some_and(|device| device.port.is_same(&peer.port)));
        let Some(at) = existing else { return self.new_device(socket, peer.port) };
        let Some(mut device) = self.direct[at].take() else { return peer.port.reaper.hang_up(socket) };
        if device.client.as_ref().is_some_and(|client| !client.is_gone()) || device.next.is_some() {
            let about = peer.address.about();
            if let Some(more) = self.shared.may_log(about, Kind::Unconnected) {
                tracing::warn!(port = peer.port.name, "a second client is refused: there can be one at a time{more}");
            }
            peer.port.counts.refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.shared.connection_gone(&peer.port);
            peer.port.reaper.hang_up(socket);
        } else {
            device.next = Some((socket, peer));
            self.leave(&mut device, &Left::Closed, now_us);
        }
        self.direct[at] = Some(device);
        self.look_at_device(at, now_us);
    }

    fn new_device(&mut self, socket: UnixStream, port: Arc<PortState>) {
        let registry = self.shared.registry();
        let cap = registry.capabilities(port.id);
        drop(registry);
        let (Some(cap), Some(host)) = (cap, port.config.direct_host()) else {
            // The port is being removed.
            port.reaper.hang_up(socket);
            return self.shared.connection_gone(&port);
        };
        let mut function = DirectFunction::new(cap, Version::V2_1, port.max_io_queues());
        if port.maps_doorbells() {
            self.note_doorbells(&port, function.map_doorbells());
        }
        let at = self.direct.iter().position(Option::is_none).unwrap_or_else(|| {
            self.direct.push(None);
            self.direct.len() - 1
        });
        let client = DirectClient::new(socket);
        if let Err(error) = self.source.add_client(&client, at) {
            if let Some(more) = self.shared.may_log(LogSubject::Target, Kind::Unwatched) {
                tracing::error!(port = port.name, "the client cannot be watched: {error}{more}");
            }
            client.hang_up();
            port.reaper.close(client);
            return self.shared.connection_gone(&port);
        }
        if let Some(more) = self.shared.may_log(LogSubject::Target, Kind::Connected) {
            tracing::info!(port = port.name, "a client of vfio-user has come{more}");
        }
        self.direct[at] = Some(Box::new(DirectDevice {
            port,
            host,
            client: Some(client),
            polls: function.polls(),
            function: Arc::new(std::sync::Mutex::new(function)),
            admin: None,
            queues: Vec::new(),
            controller: None,
            known: None,
            waiting: None,
            has_messages: false,
            unmapped: Unmapped::default(),
            is_resetting: false,
            has_failed: false,
            pending: PendingCc::default(),
            retries: Vec::new(),
            retry_ms: 0,
            next: None,
            rests_until_us: None,
            watched: (true, false),
        }));
    }

    fn note_doorbells(&self, port: &PortState, mapped: Result<(), MapError>) {
        if let Err(error) = mapped
            && let Some(more) = self.shared.may_log(LogSubject::Target, Kind::Unwatched)
        {
            tracing::warn!(port = port.name, "doorbells are not mapped: {error}{more}");
        }
    }

    /// A client has sent something, takes answers again, or is gone.
    pub(super) fn on_client(&mut self, at: usize, flags: epoll::EventFlags, now_us: u64) -> bool {
        let Some(mut device) = self.direct.get_mut(at).and_then(Option::take) else { return false };
        // Where nothing is read, nothing else would find that it is gone, and epoll would tell of
        // it in every turn.
        if flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR) && !device.takes_messages() {
            self.leave(&mut device, &Left::Closed, now_us);
        }
        let watch = self.stalls.watch(&device.function, now_us);
        if let Err(left) = self.serve_client(&mut device, now_us) {
            self.leave(&mut device, &left, now_us);
        }
        let stalled_us = watch.map_or(0, Stopwatch::end);
        self.charge(&mut device, stalled_us);
        self.direct[at] = Some(device);
        self.look_at_device(at, now_us);
        true
    }

    /// Does what the client asks for, as far as it has come. What is left of a turn's share, or has
    /// to wait, stays in the decoder: nothing is received before that is done, and
    /// [`Reactor::look_at_devices`] goes on with it, because no event tells of it.
    fn serve_client(&mut self, device: &mut DirectDevice, now_us: u64) -> Result<(), Left> {
        let mut left = MESSAGES_MAX;
        loop {
            while device.takes_messages() {
                device.has_messages = left > 0 && self.next_message(device, now_us)?;
                if !device.has_messages {
                    break;
                }
                left -= 1;
            }
            device.has_messages |= left == 0;
            if device.waiting.is_some() {
                return Ok(());
            }
            let Some(client) = &mut device.client else { return Ok(()) };
            client.flush()?;
            // What cannot be taken is not received, either: it would only be kept.
            if left == 0 || !device.takes_messages() {
                return Ok(());
            }
            if !device.has_messages {
                let Some(client) = &mut device.client else { return Ok(()) };
                // Whoever may not look at it now comes back to it.
                device.has_messages = client.receive()?;
                if !device.has_messages {
                    return Ok(());
                }
            }
        }
    }

    /// Does what the next message asks for. `false`: there is none.
    fn next_message(&mut self, device: &mut DirectDevice, now_us: u64) -> Result<bool, Left> {
        let Some(client) = &mut device.client else { return Ok(false) };
        let mut decoder = std::mem::take(&mut client.decoder);
        let result = self.obey(device, &mut decoder, now_us);
        if let Some(client) = &mut device.client {
            client.decoder = decoder;
        }
        result
    }

    fn obey(
        &mut self,
        device: &mut DirectDevice,
        decoder: &mut ebof_vfio::message::Decoder,
        now_us: u64,
    ) -> Result<bool, Left> {
        let Some(message) = decoder.poll()? else { return Ok(false) };
        let Some(client) = &mut device.client else { return Ok(false) };
        let mut descriptors = client.take_descriptors(message.descriptors);
        match message.command {
            Ok(command) => self.carry_out(device, message.call, command, &mut descriptors, now_us),
            Err(errno) => message.call.refuse(errno, &mut client.out),
        }
        if !descriptors.is_empty() {
            device.port.reaper.close(descriptors);
        }
        // What nothing uses is answered at once.
        if matches!(device.waiting, Some(Wait::Unmap(..))) {
            self.answer_waiting(device);
        }
        Ok(true)
    }

    /// Carries out a command, and takes those of its descriptors that are used.
    fn carry_out(
        &mut self,
        device: &mut DirectDevice,
        call: Call,
        command: Command<'_>,
        descriptors: &mut VecDeque<OwnedFd>,
        now_us: u64,
    ) {
        self.look_at_port(device);
        let Some(client) = &mut device.client else { return };
        let mut function = lock(&device.function);
        function.set_status(status_of(device.admin, device.is_resetting, &self.connections));
        let answer_begins = client.out.len();
        let maps = function.has_mapped_doorbells();
        let action = function.pci.handle(call, command, maps, &mut client.out);
        match action {
            Action::Answered => {}
            Action::Opened(proposal) => {
                // Deviation: SPDK's host (26.09) announces nothing, and rings doorbells in memory
                // only.
                if !proposal.names_capabilities && !maps {
                    let mapped = function.map_doorbells();
                    drop(function);
                    self.note_doorbells(&device.port, mapped);
                }
            }
            Action::SendDoorbells => {
                if let Some(page) = function.doorbells() {
                    client.attach(answer_begins, page);
                }
            }
            Action::Map(call, map) => match function.memory.map(&map, descriptors.front().map(OwnedFd::as_fd)) {
                Ok(is_first) => {
                    if is_first && let Some(more) = self.shared.may_log(LogSubject::Target, Kind::Tolerated) {
                        tracing::warn!(
                            port = device.port.name,
                            "the client's memory could be shortened (no F_SEAL_SHRINK, or huge pages): its data go through \
                             buffers of the target, which is slower{more}"
                        );
                    }
                    // It is a file in memory, which is mapped: closing it is quick.
                    descriptors.pop_front();
                    call.succeed(&mut client.out);
                }
                Err(error) => {
                    if let Some(more) = self.shared.may_log(LogSubject::Target, Kind::ClientRefused) {
                        let port = &device.port.name;
                        tracing::warn!(port, address = map.address, "memory is refused: {error}{more}");
                    }
                    call.refuse(error.errno(), &mut client.out);
                }
            },
            Action::Unmap(call, unmap) => match function.memory.unmap(&unmap) {
                Ok(unmapped) => device.waiting = Some(Wait::Unmap(call, unmap, unmapped)),
                Err(errno) => call.refuse(errno, &mut client.out),
            },
            Action::SetInterrupts(call, set) => match function.set_interrupts(&set, descriptors) {
                Ok(()) => call.succeed(&mut client.out),
                Err(errno) => {
                    if let Some(more) = self.shared.may_log(LogSubject::Target, Kind::ClientRefused) {
                        tracing::warn!(port = device.port.name, "interrupts are refused: {errno}{more}");
                    }
                    call.refuse(errno, &mut client.out);
                }
            },
            Action::Reset(call) => {
                drop(function);
                self.reset_function(device, Some(call), now_us);
            }
            Action::Event(event) => {
                drop(function);
                if matches!(event, Event::Register(Effect::SubmissionTail { .. })) {
                    // The client goes on while its commands run. If it is gone, the next flush says
                    // so.
                    let _ = client.flush();
                }
                self.on_event(device, event, now_us);
            }
        }
    }

    fn on_event(&mut self, device: &mut DirectDevice, event: Event, now_us: u64) {
        match event {
            Event::Register(Effect::SubmissionTail { queue, tail }) => {
                let look = lock(&device.function).on_tail(queue, tail);
                self.look_at_queues(device, look, now_us);
            }
            Event::Register(Effect::CompletionHead { queue, head }) => {
                let look = lock(&device.function).on_head(queue, head);
                self.look_at_queues(device, look, now_us);
            }
            Event::Register(Effect::Enable { cc, admin }) => {
                if device.is_resetting || device.admin.is_some() || !device.queues.is_empty() {
                    device.pending = PendingCc { enable: Some((cc, admin)), configure: None };
                } else {
                    self.enable(device, cc, admin.as_ref(), now_us);
                }
            }
            Event::Register(Effect::Disable { cc }) => self.disable(device, cc, now_us),
            Event::Register(Effect::Configure { cc }) => self.configure(device, cc, now_us),
            Event::Register(Effect::InvalidDoorbell) => {
                self.raise(device, AsyncEvent::INVALID_DOORBELL_REGISTER, now_us);
            }
            Event::Register(Effect::InvalidDoorbellValue) => {
                self.raise(device, AsyncEvent::INVALID_DOORBELL_VALUE, now_us);
            }
            Event::Config(effect) => self.on_config(device, effect, now_us),
        }
    }

    fn look_at_queues(&mut self, device: &mut DirectDevice, look: Option<Look>, now_us: u64) {
        match look {
            None => {}
            Some(Look::One(handle)) => self.arrived(handle, now_us),
            Some(Look::All(queue)) => {
                let handles = lock(&device.function).handles_of(queue);
                handles.into_iter().for_each(|handle| self.arrived(handle, now_us));
            }
        }
        self.tell_of_doorbells(device, now_us);
    }

    /// Tells the host of doorbells whose values its queues refuse.
    fn tell_of_doorbells(&mut self, device: &DirectDevice, now_us: u64) {
        let is_invalid = lock(&device.function).take_invalid_doorbell();
        if is_invalid {
            self.raise(device, AsyncEvent::INVALID_DOORBELL_VALUE, now_us);
        }
    }

    fn raise(&mut self, device: &DirectDevice, event: AsyncEvent, now_us: u64) {
        if let Some(admin) = device.admin {
            let notice = ebof_fabrics::Notice::Event(event);
            self.with_handle(admin, now_us, |connection, context| connection.on_notice(notice, context));
        }
    }

    /// The client is left, or gone.
    fn leave(&mut self, device: &mut DirectDevice, left: &Left, now_us: u64) {
        let Some(client) = device.client.take() else { return };
        self.source.remove_client(&client);
        client.hang_up();
        device.port.reaper.close(client);
        let port = &device.port.name;
        match (left, self.shared.may_log(LogSubject::Target, Kind::Ended)) {
            (_, None) => {}
            (Left::Closed, Some(more)) => tracing::info!(port, "the client of vfio-user is gone{more}"),
            (_, Some(more)) => tracing::warn!(port, "the client of vfio-user is left: {left}{more}"),
        }
        if let Some(Wait::Unmap(_, _, unmapped)) = device.waiting.take() {
            device.unmapped.append(unmapped);
        }
        device.has_messages = false;
        device.pending = PendingCc::default();
        self.end_queues(device, &End::PeerClosed, now_us);
        device.unmapped.append(lock(&device.function).memory.clear());
    }

    /// The clients of a port end.
    pub(super) fn end_clients(&mut self, port: &PortState, now_us: u64) {
        for at in 0..self.direct.len() {
            let Some(mut device) = self.direct[at].take() else { continue };
            if device.port.is_same(port) {
                self.leave(&mut device, &Left::PortGone, now_us);
            }
            self.direct[at] = Some(device);
            self.look_at_device(at, now_us);
        }
    }

    /// Leaves all clients, at the end: closing what they have sent does not delay it.
    pub(super) fn hang_up(&mut self) {
        for device in self.direct.drain(..).flatten() {
            let Some(client) = device.client else { continue };
            client.hang_up();
            device.port.reaper.close((client, device.unmapped, device.function));
        }
    }

    /// Goes on with what functions wait for. Returns whether anything did.
    pub(super) fn look_at_devices(&mut self, now_us: u64) -> bool {
        let all = std::mem::take(&mut self.look_at_direct);
        (0..self.direct.len()).fold(false, |worked, at| {
            let worked = worked | self.end_rest(at, now_us);
            let Some(device) = &self.direct[at] else { return worked };
            if device.has_messages && device.takes_messages() {
                return self.on_client(at, epoll::EventFlags::empty(), now_us);
            }
            let wanted = all || device.waits();
            worked | (wanted && self.look_at_device(at, now_us))
        })
    }

    fn look_at_device(&mut self, at: usize, now_us: u64) -> bool {
        let Some(mut device) = self.direct.get_mut(at).and_then(Option::take) else { return false };
        let mut worked = self.settle_queues(&mut device, now_us);
        worked |= self.answer_waiting(&mut device);
        worked |= self.try_again(&mut device, now_us);
        if worked && let Err(left) = self.serve_client(&mut device, now_us) {
            self.leave(&mut device, &left, now_us);
        }
        if let Some(client) = &device.client {
            let watched = device.interest();
            if watched != device.watched
                && let Err(error) = self.source.watch_client(client, at, watched)
            {
                tracing::error!(port = device.port.name, "the client cannot be watched: {error}");
            }
            device.watched = watched;
            self.direct[at] = Some(device);
            return worked;
        }
        if device.queues.is_empty() {
            self.shared.registry().forget_hosts_at(device.port.id);
            device.port.reaper.close(std::mem::take(&mut device.unmapped));
            self.shared.connection_gone(&device.port);
            if let Some((socket, peer)) = device.next.take() {
                self.new_device(socket, peer.port);
            }
            return true;
        }
        self.direct[at] = Some(device);
        worked
    }

    fn answer_waiting(&mut self, device: &mut DirectDevice) -> bool {
        let Some(client) = &mut device.client else { return false };
        let is_over = match &device.waiting {
            None => return false,
            Some(Wait::Reset(_)) => !device.is_resetting,
            Some(Wait::Unmap(_, _, unmapped)) => unmapped.is_unused(),
        };
        if !is_over {
            return false;
        }
        match device.waiting.take() {
            Some(Wait::Reset(Some(call))) => call.succeed(&mut client.out),
            Some(Wait::Unmap(call, unmap, unmapped)) => {
                call.unmapped(&unmap, &mut client.out);
                if unmapped.is_large() {
                    device.port.reaper.close(unmapped);
                }
            }
            Some(Wait::Reset(None)) | None => {}
        }
        true
    }

    fn try_again(&mut self, device: &mut DirectDevice, now_us: u64) -> bool {
        if device.retries.is_empty() || now_us / 1000 < device.retry_ms {
            return false;
        }
        for (reply, task) in std::mem::take(&mut device.retries) {
            self.create_queue_of(device, reply, task, now_us);
        }
        true
    }

    /// Whether what hosts ring is in memory, and their clients' sockets matter little.
    pub(super) fn direct_is_polled(&self) -> bool {
        self.direct.iter().flatten().all(|device| device.polls.load(Ordering::Relaxed))
    }

    /// The longest time to sleep: doorbells that are mapped wake nobody.
    pub(super) fn doorbell_interval(&self) -> Option<Duration> {
        let mut devices = self.direct.iter().flatten();
        let any = devices.any(|device| device.admin.is_some() && lock(&device.function).has_mapped_doorbells());
        any.then_some(DOORBELL_INTERVAL)
    }

    /// When a function has something to do although nothing happens, milliseconds.
    pub(super) fn direct_deadline_ms(&self, now_ms: u64) -> Option<u64> {
        let due_ms = |device: &DirectDevice| {
            let again_ms = match device.retries.is_empty() {
                false => Some(device.retry_ms),
                true => (device.client.is_some() && !device.port.reaper.has_room()).then_some(now_ms + RETRY_MS),
            };
            let rests_until_ms = device.rests_until_us.map(|until_us| until_us.div_ceil(1000));
            again_ms.into_iter().chain(rests_until_ms).min()
        };
        self.direct.iter().flatten().filter_map(|device| due_ms(device)).min()
    }
}

/// CSTS as the Admin Queue of a controller has it. While the controller is reset it is ready until
/// nothing of it is left.
fn status_of(admin: Option<Handle>, is_resetting: bool, connections: &[Option<Box<Connection>>]) -> Option<Csts> {
    if is_resetting {
        return Some(Csts(Csts::READY));
    }
    let connection = connections.get(index_of(admin?) as usize).and_then(Option::as_ref)?;
    connection.commands.queue.csts()
}
