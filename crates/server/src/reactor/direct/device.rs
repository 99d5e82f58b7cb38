//! A function and its client: what the client's socket says, and what it waits for.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ebof_nvme::property::Version;
use ebof_region::MapError;
use ebof_vfio::function::{Action, Event};
use ebof_vfio::message::{Call, Command, Decoder, DmaUnmap};
use ebof_vfio::pci::ConfigEffect;
use ebof_vfio::registers::Effect;
use rustix::event::epoll;

use super::controller::{DirectController, RETRY_MS};
use crate::direct::{DirectClient, DirectFunction, Left, SharedFunction, Unmapped, lock};
use crate::observe::log_limit::{Kind, LogSubject};
use crate::ports::peer::Peer;
use crate::ports::port::PortState;
use crate::reactor::connections::Connections;
use crate::reactor::stalls::Stopwatch;
use crate::shared::Shared;

/// Messages of one client in a turn.
const MESSAGES_MAX: usize = 128;

/// Why there is a client: its messages are looked at while it is there, and it is left when that is
/// through.
const CLIENT: &str = "a client is left only when its message is dealt with";

/// A function and its client.
pub(super) struct DirectDevice {
    pub(super) controller: DirectController,
    client: Option<DirectClient>,
    /// Its place among the functions, by which the client's events are told.
    at: usize,
    /// Whether its doorbells are memory.
    polls: Arc<AtomicBool>,
    /// A message that is answered when the function has come so far; others wait.
    waiting: Option<Wait>,
    /// Messages were received that are not looked at.
    has_messages: bool,
    /// Memory of a client that is gone.
    unmapped: Unmapped,
    /// A client that came before the last one was gone.
    next: Option<(UnixStream, Peer)>,
    /// Which events of its client are watched: messages, and room for answers.
    watched: (bool, bool),
}

/// What a client waits for.
enum Wait {
    /// The end of a controller's queues, after a reset of the function, for instance.
    Reset(Option<Call>),
    /// The end of I/O in memory that it has unmapped.
    Unmap(Call, DmaUnmap, Unmapped),
}

impl DirectDevice {
    /// The function of `port` for a client that has come; `None` if it cannot be served.
    pub(super) fn open(socket: UnixStream, port: Arc<PortState>, at: usize, connections: &Connections) -> Option<Self> {
        let shared = &connections.shared;
        let cap = shared.registry().capabilities(port.id);
        let (Some(cap), Some(host)) = (cap, port.config.direct_host()) else {
            // The port is being removed.
            port.reaper.hang_up(socket);
            shared.connection_gone(&port);
            return None;
        };
        let mut function = DirectFunction::new(cap, Version::V2_1, port.max_io_queues());
        if port.maps_doorbells() {
            note_doorbells(shared, &port, function.map_doorbells());
        }
        let client = DirectClient::new(socket);
        if let Err(error) = connections.source.add_client(&client, at) {
            if let Some(more) = shared.may_log(LogSubject::Target, Kind::Unwatched) {
                tracing::error!(port = port.name, "the client cannot be watched: {error}{more}");
            }
            client.hang_up();
            port.reaper.close(client);
            shared.connection_gone(&port);
            return None;
        }
        if let Some(more) = shared.may_log(LogSubject::Target, Kind::Connected) {
            tracing::info!(port = port.name, "a client of vfio-user has come{more}");
        }
        let polls = function.polls();
        Some(Self {
            controller: DirectController::new(port, host, Arc::new(Mutex::new(function))),
            client: Some(client),
            at,
            polls,
            waiting: None,
            has_messages: false,
            unmapped: Unmapped::default(),
            next: None,
            watched: (true, false),
        })
    }

    pub(super) fn port(&self) -> &Arc<PortState> {
        &self.controller.port
    }

    pub(super) fn function(&self) -> &SharedFunction {
        &self.controller.function
    }

    // ---- what there is to do

    /// Whether the client's next message can be looked at: nothing is to be answered before, there
    /// is room for the answer, and what it has sent to be closed is closed.
    fn takes_messages(&self) -> bool {
        self.waiting.is_none()
            && self.client.as_ref().is_some_and(DirectClient::has_room)
            && self.port().reaper.has_room()
    }

    /// Whether messages can be looked at that were received before.
    pub(super) fn has_messages_to_take(&self) -> bool {
        self.has_messages && self.takes_messages()
    }

    /// Which events of its client are of interest.
    fn interest(&self) -> (bool, bool) {
        let is_blocked = self.client.as_ref().is_some_and(DirectClient::is_blocked);
        (self.takes_messages(), self.waiting.is_none() && is_blocked)
    }

    /// Whether it has to be looked at although nothing happens.
    pub(super) fn waits(&self) -> bool {
        let is_unwatched = self.client.is_some() && self.watched != self.interest();
        self.waiting.is_some() || self.controller.retry_ms().is_some() || is_unwatched
    }

    /// Whether its doorbells are memory.
    pub(super) fn is_polled(&self) -> bool {
        self.polls.load(Ordering::Relaxed)
    }

    /// Whether doorbells of a controller are mapped, and wake nobody.
    pub(super) fn has_mapped_doorbells(&self) -> bool {
        self.controller.admin().is_some() && lock(self.function()).has_mapped_doorbells()
    }

    /// When it has something to do although nothing happens, milliseconds.
    pub(super) fn due_ms(&self, now_ms: u64) -> Option<u64> {
        let waits_for_room = || self.client.is_some() && !self.port().reaper.has_room();
        self.controller.retry_ms().or_else(|| waits_for_room().then_some(now_ms + RETRY_MS))
    }

    // ---- the client

    /// Another client has come; it is served when nothing is left of the last one.
    pub(super) fn replace_client(
        &mut self,
        socket: UnixStream,
        peer: Peer,
        connections: &mut Connections,
        now_us: u64,
    ) {
        if self.client.as_ref().is_some_and(|client| !client.is_gone()) || self.next.is_some() {
            if let Some(more) = connections.shared.may_log(peer.address.about(), Kind::Unconnected) {
                tracing::warn!(port = peer.port.name, "a second client is refused: there can be one at a time{more}");
            }
            peer.port.counts.refused.fetch_add(1, Ordering::Relaxed);
            connections.shared.connection_gone(&peer.port);
            peer.port.reaper.hang_up(socket);
        } else {
            self.next = Some((socket, peer));
            self.leave(&Left::Closed, connections, now_us);
        }
    }

    /// The client has sent something, takes answers again, or is gone.
    pub(super) fn on_client(&mut self, flags: epoll::EventFlags, connections: &mut Connections, now_us: u64) {
        // Where nothing is read, nothing else would find that it is gone, and epoll would tell of
        // it in every turn.
        if flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR) && !self.takes_messages() {
            self.leave(&Left::Closed, connections, now_us);
        }
        let watch = connections.stalls.watch(self.function(), now_us);
        if let Err(left) = self.serve_client(connections, now_us) {
            self.leave(&left, connections, now_us);
        }
        let stalled_us = watch.map_or(0, Stopwatch::end);
        connections.charge(self.function(), self.port(), stalled_us);
    }

    /// Does what the client asks for, as far as it has come. What is left of a turn's share, or has
    /// to wait, stays in the decoder: nothing is received before that is done, and
    /// [`DirectHosts::look_at_devices`](super::DirectHosts::look_at_devices) goes on with it,
    /// because no event tells of it.
    fn serve_client(&mut self, connections: &mut Connections, now_us: u64) -> Result<(), Left> {
        let mut left = MESSAGES_MAX;
        loop {
            while self.takes_messages() {
                self.has_messages = left > 0 && self.next_message(connections, now_us)?;
                if !self.has_messages {
                    break;
                }
                left -= 1;
            }
            self.has_messages |= left == 0;
            if self.waiting.is_some() {
                return Ok(());
            }
            // It was left in this turn.
            let Some(client) = &mut self.client else { return Ok(()) };
            client.flush()?;
            // What cannot be taken is not received, either: it would only be kept.
            if left == 0 || !self.takes_messages() {
                return Ok(());
            }
            if !self.has_messages {
                let client = self.client.as_mut().expect(CLIENT);
                // Whoever may not look at it now comes back to it.
                self.has_messages = client.receive()?;
                if !self.has_messages {
                    return Ok(());
                }
            }
        }
    }

    /// Does what the next message asks for. `false`: there is none.
    fn next_message(&mut self, connections: &mut Connections, now_us: u64) -> Result<bool, Left> {
        let client = self.client.as_mut().expect(CLIENT);
        let mut decoder = std::mem::take(&mut client.decoder);
        let result = self.obey(&mut decoder, connections, now_us);
        self.client.as_mut().expect(CLIENT).decoder = decoder;
        result
    }

    fn obey(&mut self, decoder: &mut Decoder, connections: &mut Connections, now_us: u64) -> Result<bool, Left> {
        let Some(message) = decoder.poll()? else { return Ok(false) };
        let client = self.client.as_mut().expect(CLIENT);
        let mut descriptors = client.take_descriptors(message.descriptors);
        match message.command {
            Ok(command) => self.carry_out(message.call, command, &mut descriptors, connections, now_us),
            Err(errno) => message.call.refuse(errno, &mut client.out),
        }
        if !descriptors.is_empty() {
            self.port().reaper.close(descriptors);
        }
        // What nothing uses is answered at once.
        if matches!(self.waiting, Some(Wait::Unmap(..))) {
            self.answer_waiting();
        }
        Ok(true)
    }

    /// Carries out a command, and takes those of its descriptors that are used.
    fn carry_out(
        &mut self,
        call: Call,
        command: Command<'_>,
        descriptors: &mut VecDeque<OwnedFd>,
        connections: &mut Connections,
        now_us: u64,
    ) {
        self.controller.look_at_port(connections);
        let shared = &connections.shared;
        let port = &self.controller.port;
        let client = self.client.as_mut().expect(CLIENT);
        let mut function = lock(&self.controller.function);
        function.set_status(self.controller.status(connections));
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
                    note_doorbells(shared, port, mapped);
                }
            }
            Action::SendDoorbells => {
                if let Some(page) = function.doorbells() {
                    client.attach(answer_begins, page);
                }
            }
            Action::Map(call, map) => match function.memory.map(&map, descriptors.front().map(OwnedFd::as_fd)) {
                Ok(is_first) => {
                    if is_first && let Some(more) = shared.may_log(LogSubject::Target, Kind::Tolerated) {
                        tracing::warn!(
                            port = port.name,
                            "the client's memory could be shortened (no F_SEAL_SHRINK, or huge pages): its data go through \
                             buffers of the target, which is slower{more}"
                        );
                    }
                    // It is a file in memory, which is mapped: closing it is quick.
                    descriptors.pop_front();
                    call.succeed(&mut client.out);
                }
                Err(error) => {
                    if let Some(more) = shared.may_log(LogSubject::Target, Kind::ClientRefused) {
                        let port = &port.name;
                        tracing::warn!(port, address = map.address, "memory is refused: {error}{more}");
                    }
                    call.refuse(error.errno(), &mut client.out);
                }
            },
            Action::Unmap(call, unmap) => match function.memory.unmap(&unmap) {
                Ok(unmapped) => self.waiting = Some(Wait::Unmap(call, unmap, unmapped)),
                Err(errno) => call.refuse(errno, &mut client.out),
            },
            Action::SetInterrupts(call, set) => match function.set_interrupts(&set, descriptors) {
                Ok(()) => call.succeed(&mut client.out),
                Err(errno) => {
                    if let Some(more) = shared.may_log(LogSubject::Target, Kind::ClientRefused) {
                        tracing::warn!(port = port.name, "interrupts are refused: {errno}{more}");
                    }
                    call.refuse(errno, &mut client.out);
                }
            },
            Action::Reset(call) => {
                drop(function);
                self.reset(Some(call), connections, now_us);
            }
            Action::Event(event) => {
                drop(function);
                if matches!(event, Event::Register(Effect::SubmissionTail { .. })) {
                    // The client goes on while its commands run. If it is gone, the next flush says
                    // so.
                    let _ = client.flush();
                }
                self.on_event(event, connections, now_us);
            }
        }
    }

    fn on_event(&mut self, event: Event, connections: &mut Connections, now_us: u64) {
        match event {
            Event::Register(effect) => self.controller.on_register(effect, connections, now_us),
            // Its answer is in the buffer, and is sent when the reset is over.
            Event::Config(ConfigEffect::FunctionReset) => self.reset(None, connections, now_us),
            Event::Config(ConfigEffect::BusMaster(true)) => self.controller.resume(connections, now_us),
            Event::Config(ConfigEffect::BusMaster(false)) => {
                if self.controller.silence(connections, now_us) {
                    self.waiting = Some(Wait::Reset(None));
                }
            }
            Event::Config(ConfigEffect::Found) => {
                if self.controller.on_found(connections) {
                    self.waiting = Some(Wait::Reset(None));
                }
            }
        }
    }

    /// The function is reset. The client waits.
    fn reset(&mut self, call: Option<Call>, connections: &mut Connections, now_us: u64) {
        self.waiting = Some(Wait::Reset(call));
        self.controller.reset(connections, now_us);
    }

    fn answer_waiting(&mut self) -> bool {
        let Some(client) = &mut self.client else { return false };
        let is_over = match &self.waiting {
            None => return false,
            Some(Wait::Reset(_)) => !self.controller.is_resetting(),
            Some(Wait::Unmap(_, _, unmapped)) => unmapped.is_unused(),
        };
        if !is_over {
            return false;
        }
        match self.waiting.take() {
            Some(Wait::Reset(Some(call))) => call.succeed(&mut client.out),
            Some(Wait::Unmap(call, unmap, unmapped)) => {
                call.unmapped(&unmap, &mut client.out);
                if unmapped.is_large() {
                    self.controller.port.reaper.close(unmapped);
                }
            }
            Some(Wait::Reset(None)) | None => {}
        }
        true
    }

    // ---- it goes on

    /// Goes on with what the function waits for. Returns whether anything did.
    pub(super) fn go_on(&mut self, connections: &mut Connections, now_us: u64) -> bool {
        let mut worked = self.controller.forget_ended(connections, now_us);
        worked |= self.answer_waiting();
        worked |= self.controller.try_again(connections, now_us);
        if worked && let Err(left) = self.serve_client(connections, now_us) {
            self.leave(&left, connections, now_us);
        }
        if let Some(client) = &self.client {
            let watched = self.interest();
            if watched != self.watched
                && let Err(error) = connections.source.watch_client(client, self.at, watched)
            {
                tracing::error!(port = self.port().name, "the client cannot be watched: {error}");
            }
            self.watched = watched;
        }
        worked
    }

    /// A function that was left alone, since its memory kept the thread, goes on if its time has
    /// come. Returns whether it does.
    pub(super) fn end_rest(&mut self, connections: &mut Connections, now_us: u64) -> bool {
        if !connections.stalls.end_rest(self.function(), now_us) {
            return false;
        }
        let watch = Stopwatch::begin();
        self.controller.resume(connections, now_us);
        let cost_us = watch.end();
        connections.charge(self.function(), self.port(), cost_us);
        true
    }

    // ---- the end

    /// The client is left, or gone.
    pub(super) fn leave(&mut self, left: &Left, connections: &mut Connections, now_us: u64) {
        let Some(client) = self.client.take() else { return };
        connections.source.remove_client(&client);
        client.hang_up();
        self.port().reaper.close(client);
        let port = &self.port().name;
        match (left, connections.shared.may_log(LogSubject::Target, Kind::Ended)) {
            (_, None) => {}
            (Left::Closed, Some(more)) => tracing::info!(port, "the client of vfio-user is gone{more}"),
            (_, Some(more)) => tracing::warn!(port, "the client of vfio-user is left: {left}{more}"),
        }
        if let Some(Wait::Unmap(_, _, unmapped)) = self.waiting.take() {
            self.unmapped.append(unmapped);
        }
        self.has_messages = false;
        self.controller.abandon(connections, now_us);
        let unmapped = lock(self.function()).memory.clear();
        self.unmapped.append(unmapped);
    }

    /// Whether its client is gone, and nothing of it is left.
    pub(super) fn is_over(&self) -> bool {
        self.client.is_none() && !self.controller.has_queues()
    }

    /// Nothing is left of it. Returns the client that has come since.
    pub(super) fn close(self, connections: &mut Connections) -> Option<(UnixStream, Peer)> {
        let Self { controller, unmapped, next, .. } = self;
        connections.stalls.forget(&controller.function);
        connections.shared.registry().forget_hosts_at(controller.port.id);
        controller.port.reaper.close(unmapped);
        connections.shared.connection_gone(&controller.port);
        next
    }

    /// Leaves the client at the end of the target.
    pub(super) fn hang_up(self) {
        let Self { client: Some(client), controller, unmapped, .. } = self else { return };
        client.hang_up();
        controller.port.reaper.close((client, unmapped, controller.function));
    }
}

fn note_doorbells(shared: &Shared, port: &PortState, mapped: Result<(), MapError>) {
    if let Err(error) = mapped
        && let Some(more) = shared.may_log(LogSubject::Target, Kind::Unwatched)
    {
        tracing::warn!(port = port.name, "doorbells are not mapped: {error}{more}");
    }
}
