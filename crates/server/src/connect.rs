//! Connect: how a connection becomes a queue.

use ebof_backend::Buffer;
use ebof_fabrics::registry::CONNECT_HOLD_MS;
use ebof_fabrics::{Arrival, Executing, Handle, Step};
use ebof_nvme::Status;

use crate::command::{Phase, Work};
use crate::connection::{Connection, State};
use crate::execute::{CONNECT_BYTES, Origin, text};
use crate::log_limit::Kind;
use crate::mailbox::{Asker, Message};
use crate::port::PortState;
use crate::turn::Turn;

impl Connection {
    /// Has the registry decide about Connect, and becomes the queue that it grants.
    pub(crate) fn connect(&mut self, executing: Executing, data: &[u8], turn: &mut Turn<'_>) -> Step {
        let arrival = Arrival {
            handle: self.handle,
            port: self.port.id,
            local: self.local.ip().to_canonical().to_string(),
            peer: self.peer.to_string(),
        };
        let (step, refusal) = turn.shared.registry().connect(&mut self.queue, executing, data, &arrival, turn.now_ms);
        if let Some(refusal) = refusal {
            turn.shared.refuse_connect(self.peer, &self.port, &refusal);
        } else if let Step::Hold(..) = step {
            tracing::debug!(peer = %self.peer, "Connect waits for the host's earlier queues");
        } else if let Some(id) = self.queue.id() {
            let entries = self.queue.entries();
            if let Some(association) = self.queue.association() {
                // The port may have got another limit since the controller was told its own.
                let bytes = association.port.in_capsule_bytes;
                self.transport.set_in_capsule_bytes(bytes);
                self.in_capsule_bytes = PortState::in_capsule_bytes(bytes);
            }
            self.transport.set_queue(id, entries);
            self.transport.set_sq_flow_disabled(self.queue.sq_flow_disabled());
            self.commands.set_max(entries);
            if matches!(self.state, State::Handshake { .. }) {
                self.state = State::Open;
                self.waiting = None;
            }
            if let Some(host) = self.queue.host() {
                self.buffers.join(host, turn.host_buffers);
            }
            if id.is_admin() {
                self.take_seat(turn);
            }
            turn.shared.wake_control();
            if let Some(parameters) = self.transport.initialized() {
                turn.shared.set_digests(self.handle, parameters.header_digest, parameters.data_digest);
            }
            let (host, subsystem) = (text(self.queue.host()), text(self.queue.subsystem()));
            if let Some(more) = turn.shared.may_log(self.peer.ip().into(), Kind::Connected) {
                tracing::info!(peer = %self.peer, host, subsystem, queue = id.0, entries, "connected{more}");
            }
            if let Some(tolerated) = self.queue.tolerated()
                && let Some(more) = turn.shared.may_log(self.peer.ip().into(), Kind::Tolerated)
            {
                tracing::info!(peer = %self.peer, host, subsystem, queue = id.0, "accepted although {tolerated}{more}");
            }
        }
        step
    }

    /// Keeps a Connect, with its data, until [`ebof_fabrics::Notice::Connect`].
    pub(crate) fn hold_connect(
        &mut self,
        executing: Executing,
        buffer: Option<Buffer>,
        looks: &[Handle],
        origin: Origin,
        turn: &mut Turn<'_>,
    ) {
        if let State::Handshake { deadline_ms } = &mut self.state {
            // Waiting is not the host's fault.
            *deadline_ms = (*deadline_ms).max(turn.now_ms + 2 * CONNECT_HOLD_MS);
        }
        let mut command = self.command(origin, executing, Work::Connect, CONNECT_BYTES, turn);
        (command.phase, command.buffer) = (Phase::Waiting, buffer);
        let reply = Asker { handle: self.handle, slot: self.commands.insert(command) };
        for &handle in looks {
            turn.shared.post(handle, Message::Look { handle, reply });
        }
        // The control thread keeps the time of it.
        turn.shared.wake_control();
    }

    /// The Connect that waits, if one does.
    pub(crate) fn held_connect(&self) -> Option<u32> {
        let held = |(_, command): &(u32, &crate::command::Command)| {
            matches!(command.work, Work::Connect) && command.phase == Phase::Waiting
        };
        self.commands.iter().find(held).map(|(slot, _)| slot)
    }

    /// The target shuts down: no Connect waits any more.
    pub(crate) fn give_up_connect(&mut self, turn: &mut Turn<'_>) {
        if let Some(slot) = self.held_connect() {
            self.stop(slot, Status::CONNECT_CONTROLLER_BUSY, turn);
        }
    }
}
