//! Connect: how a connection becomes a queue.

use ebof_backend::Buffer;
use ebof_fabrics::registry::CONNECT_HOLD_MS;
use ebof_fabrics::{Arrival, Attachment, Executing, Handle, Step, Task};
use ebof_nvme::Status;

use crate::commands::Commands;
use crate::commands::command::{Phase, Work};
use crate::commands::execute::{CONNECT_BYTES, Origin, text};
use crate::link::{End, Link, Opening};
use crate::observe::log_limit::Kind;
use crate::ports::peer::Peer;
use crate::ports::port::PortState;
use crate::shared::mailbox::{CommandRef, Message};
use crate::shared::reactor_context::ReactorContext;

impl Commands {
    /// Has the registry decide about Connect, and becomes the queue that it grants.
    pub(crate) fn connect(
        &mut self,
        executing: Executing,
        data: &[u8],
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> Step {
        let peer = link.peer().clone();
        let arrival = self.arrival(&peer);
        let (step, refusal) =
            context.shared.registry().connect(&mut self.queue, executing, data, &arrival, context.now_ms);
        if let Some(refusal) = refusal {
            context.shared.refuse_connect(&peer, &refusal);
        } else if let Step::Execute(_, Task::DeferConnect(_)) = &step {
            tracing::debug!(peer = %peer.address, "Connect waits for the host's earlier queues");
        } else {
            self.on_connected(link, context);
        }
        step
    }

    /// Becomes the queue of a host that is attached directly, without a Connect.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn attach(
        &mut self,
        attachment: &Attachment,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> Result<(), End> {
        let peer = link.peer().clone();
        let arrival = self.arrival(&peer);
        let attached = context.shared.registry().attach(&mut self.queue, attachment, &arrival, context.now_ms);
        if let Err(refusal) = attached {
            context.shared.refuse_connect(&peer, &refusal);
            return Err(End::NotAttached(refusal.reason));
        }
        self.on_connected(link, context);
        Ok(())
    }

    fn arrival(&self, peer: &Peer) -> Arrival {
        Arrival { handle: self.handle, port: peer.port.id, local: peer.local(), peer: peer.address.to_string() }
    }

    /// The connection has become a queue.
    fn on_connected(&mut self, link: &mut Link, context: &mut ReactorContext<'_>) {
        if let (Some(id), Some(submission_queue)) = (self.queue.id(), self.queue.submission_queue()) {
            // The port may have got another limit since the controller was created.
            let in_capsule_bytes = self.queue.association().map(|association| association.port.in_capsule_bytes);
            if let Some(bytes) = in_capsule_bytes {
                self.in_capsule_bytes = PortState::in_capsule_bytes(bytes);
            }
            link.open(&Opening { id, submission_queue, in_capsule_bytes }, context);
            self.slots.set_max(self.queue.commands_max());
            if let Some(host) = self.queue.host() {
                self.buffers.join(host, context.host_buffers);
            }
            if let Some(host) = self.queue.host() {
                self.host_label = context.shared.host_label(host, link.peer());
            }
            if id.is_admin() {
                self.assign_cntlid(context);
                if let Some(association) = self.queue.association() {
                    context.shared.report_connected(association, link.peer());
                }
            }
            context.shared.wake_control();
            let host = text(self.queue.host());
            let subsystem = text(self.queue.subsystem());
            let entries = self.queue.submission_queue().map(|queue| queue.entries);
            let about = link.peer().about();
            let peer = link.peer().address;
            if let Some(more) = context.shared.may_log(about.clone(), Kind::Connected) {
                tracing::info!(%peer, host, subsystem, queue = id.0, entries, "connected{more}");
            }
            if let Some(tolerated) = self.queue.tolerated()
                && let Some(more) = context.shared.may_log(about, Kind::Tolerated)
            {
                tracing::info!(%peer, host, subsystem, queue = id.0, "accepted although {tolerated}{more}");
            }
        }
    }

    /// Keeps a Connect, with its data, until [`ebof_fabrics::Notice::Connect`].
    pub(crate) fn defer_connect(
        &mut self,
        executing: Executing,
        buffer: Option<Buffer>,
        looks: &[Handle],
        origin: Origin,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        link.extend_handshake(context.now_ms + 2 * CONNECT_HOLD_MS);
        let mut command = self.command(origin, executing, Work::Connect, CONNECT_BYTES, context);
        command.phase = Phase::Waiting;
        command.buffer = buffer;
        let reply = CommandRef { handle: self.handle, slot: self.slots.insert(command) };
        for &handle in looks {
            context.shared.post(handle, Message::Look { handle, reply });
        }
        // The control thread keeps the time of it.
        context.shared.wake_control();
    }

    /// The Connect that waits, if one does.
    pub(crate) fn held_connect(&self) -> Option<u32> {
        let held = |(_, command): &(u32, &crate::commands::command::Command)| {
            matches!(command.work, Work::Connect) && command.phase == Phase::Waiting
        };
        self.slots.iter().find(held).map(|(slot, _)| slot)
    }

    /// The target shuts down: no Connect waits any more.
    pub(crate) fn give_up_connect(&mut self, link: &mut Link, context: &mut ReactorContext<'_>) {
        if let Some(slot) = self.held_connect() {
            self.stop(slot, Status::CONNECT_CONTROLLER_BUSY, link, context);
        }
    }
}
