//! Connect: how a connection becomes a queue.

use ebof_fabrics::{Arrival, Executing, Step};

use crate::connection::{Connection, State};
use crate::execute::text;
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
            }
            if id.is_admin() {
                self.take_seat(turn);
            }
            turn.shared.wake_control();
            if let Some(parameters) = self.transport.initialized() {
                turn.shared.set_digests(self.handle, parameters.header_digest, parameters.data_digest);
            }
            let (host, subsystem) = (text(self.queue.host()), text(self.queue.subsystem()));
            tracing::info!(peer = %self.peer, host, subsystem, queue = id.0, entries, "connected");
            if let Some(tolerated) = self.queue.tolerated() {
                tracing::info!(peer = %self.peer, host, subsystem, queue = id.0, "accepted although {tolerated}");
            }
        }
        step
    }
}
