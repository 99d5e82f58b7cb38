//! The controller of a function: how it is enabled and reset, and how its queues become connections
//! and end.
//!
//! What its client waits for is `device.rs`' matter: what takes its time returns whether it does.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ebof_fabrics::queue::REGISTER_WRITE;
use ebof_fabrics::{Attachment, Handle, Notice, RefusalReason, RingTask};
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::property::{Cc, Csts};
use ebof_nvme::{ControllerId, HostId, Nqn, QueueId, Status};
use ebof_vfio::registers::{AdminQueues, Effect};

use super::guest_driver::{Given, GuestDriver};
use crate::direct::{Look, SharedFunction, lock};
use crate::link::{AnyTransport, End, InMemory, Link, Ring, State};
use crate::observe::log_limit::{Kind, LogSubject};
use crate::ports::peer::{Peer, PeerAddress};
use crate::ports::port::PortState;
use crate::reactor::admission;
use crate::reactor::connection::Connection;
use crate::reactor::connections::Connections;
use crate::shared::mailbox::{CommandRef, CommandReply};

/// How long after it was refused a queue is asked for again, while the host's earlier ones drain,
/// milliseconds.
pub(super) const RETRY_MS: u64 = 5;

/// A controller in the memory of a guest, or what is left of it.
pub(super) struct DirectController {
    pub(super) port: Arc<PortState>,
    pub(super) function: SharedFunction,
    host: Nqn,
    /// The connection of the Admin Queue.
    admin: Option<Handle>,
    /// All connections of the function: they stay until nothing of them is left.
    queues: Vec<(QueueId, Handle)>,
    /// The controller that its I/O queues belong to.
    association: Option<(Nqn, ControllerId)>,
    driver: GuestDriver,
    /// The host resets the controller.
    is_resetting: bool,
    /// That is because it has failed, and CSTS.CFS is what is left of it.
    has_failed: bool,
    /// What the host has written to CC since.
    pending: PendingCc,
    /// Queues to be asked for again.
    retries: Vec<(CommandRef, RingTask)>,
    retry_ms: u64,
}

/// Writes of CC that wait for an earlier one to be through. Later ones take their place.
#[derive(Default)]
struct PendingCc {
    /// The controller is enabled again when its reset is over.
    enable: Option<(Cc, Option<AdminQueues>)>,
    /// CC is changed otherwise, after that.
    configure: Option<Cc>,
}

impl DirectController {
    /// The function of a port, whose controller is not enabled.
    pub(super) fn new(port: Arc<PortState>, host: Nqn, function: SharedFunction) -> Self {
        Self {
            port,
            function,
            host,
            admin: None,
            queues: Vec::new(),
            association: None,
            driver: GuestDriver::default(),
            is_resetting: false,
            has_failed: false,
            pending: PendingCc::default(),
            retries: Vec::new(),
            retry_ms: 0,
        }
    }

    /// The connection of its Admin Queue.
    pub(super) fn admin(&self) -> Option<Handle> {
        self.admin
    }

    /// Whether its host resets it, or it fails, and something of it is left.
    pub(super) fn is_resetting(&self) -> bool {
        self.is_resetting
    }

    /// Whether connections of it are left.
    pub(super) fn has_queues(&self) -> bool {
        !self.queues.is_empty()
    }

    /// When a queue is asked for again, milliseconds.
    pub(super) fn retry_ms(&self) -> Option<u64> {
        (!self.retries.is_empty()).then_some(self.retry_ms)
    }

    /// Nothing is left of a controller, and none is about to be.
    fn is_idle(&self) -> bool {
        self.admin.is_none() && !self.is_resetting && self.queues.is_empty()
    }

    /// CSTS as the Admin Queue has it. While the controller is reset it is ready until nothing of
    /// it is left.
    pub(super) fn status(&self, connections: &Connections) -> Option<Csts> {
        if self.is_resetting {
            return Some(Csts(Csts::READY));
        }
        connections.table.get(self.admin?)?.commands.execution.queue.csts()
    }

    // ---- registers

    /// The host has rung a doorbell, or written to CC.
    pub(super) fn on_register(&mut self, effect: Effect, connections: &mut Connections, now_us: u64) {
        match effect {
            Effect::SubmissionTail { queue, tail } => {
                let look = lock(&self.function).on_tail(queue, tail);
                self.look_at_queues(look, connections, now_us);
            }
            Effect::CompletionHead { queue, head } => {
                let look = lock(&self.function).on_head(queue, head);
                self.look_at_queues(look, connections, now_us);
            }
            Effect::Enable { cc, admin } => {
                if self.is_idle() {
                    self.enable(cc, admin.as_ref(), connections, now_us);
                } else {
                    self.pending = PendingCc { enable: Some((cc, admin)), configure: None };
                }
            }
            Effect::Disable { cc } => self.disable(cc, connections, now_us),
            Effect::Configure { cc } => self.configure(cc, connections, now_us),
            Effect::InvalidDoorbell => self.raise(AsyncEvent::INVALID_DOORBELL_REGISTER, connections, now_us),
            Effect::InvalidDoorbellValue => self.raise(AsyncEvent::INVALID_DOORBELL_VALUE, connections, now_us),
        }
    }

    fn look_at_queues(&self, look: Option<Look>, connections: &mut Connections, now_us: u64) {
        match look {
            None => {}
            Some(Look::One(handle)) => connections.arrived(handle, now_us),
            Some(Look::All(queue)) => {
                let handles = lock(&self.function).handles_of(queue);
                handles.into_iter().for_each(|handle| connections.arrived(handle, now_us));
            }
        }
        self.tell_of_doorbells(connections, now_us);
    }

    /// Tells the host of doorbells whose values its queues refuse.
    fn tell_of_doorbells(&self, connections: &mut Connections, now_us: u64) {
        let is_invalid = lock(&self.function).take_invalid_doorbell();
        if is_invalid {
            self.raise(AsyncEvent::INVALID_DOORBELL_VALUE, connections, now_us);
        }
    }

    fn raise(&self, event: AsyncEvent, connections: &mut Connections, now_us: u64) {
        if let Some(admin) = self.admin {
            let notice = Notice::Event(event);
            connections.with_open(admin, now_us, |connection, context| connection.on_notice(notice, context));
        }
    }

    /// CC.EN was set: the Admin Queue becomes a connection, and the controller is enabled.
    fn enable(&mut self, cc: Cc, admin: Option<&AdminQueues>, connections: &mut Connections, now_us: u64) {
        let mut function = lock(&self.function);
        function.forget_queues();
        // A target that stops takes no new connections.
        let Some(admin) = admin.filter(|_| !connections.is_stopping()) else { return function.is_fatal = true };
        function.open_admin(admin);
        drop(function);
        let given = Given::at(&connections.shared.registry(), self.port.id);
        let Some(given) = given.filter(|given| self.driver.may_enable(given)) else {
            if let Some(more) = connections.shared.may_log(LogSubject::Target, Kind::ClientRefused) {
                let is_known = self.driver.subsystem().is_some();
                let what = if is_known { "the one that its guest knows" } else { "a subsystem" };
                tracing::warn!(port = self.port.name, "a controller is enabled at a port without {what}{more}");
            }
            return lock(&self.function).is_fatal = true;
        };
        let subsystem = given.subsystem.clone();
        let attachment = Attachment {
            queue: QueueId(0),
            entries: admin.submission_entries,
            controller: ControllerId::DYNAMIC,
            subsystem: subsystem.clone(),
            host: self.host.clone(),
            host_id: HostId::default(),
        };
        match self.attach_queue(&attachment, connections, now_us) {
            Ok(handle) => {
                self.admin = Some(handle);
                self.driver.learn(given);
                write_cc(handle, cc, connections, now_us);
                let queue = connections.table.get(handle).map(|connection| &connection.commands.execution.queue);
                let association = queue.and_then(|queue| queue.association());
                self.association = association.map(|association| (subsystem, association.cntlid));
                let mut function = lock(&self.function);
                if !function.register_written.take().is_some_and(Status::is_success) {
                    function.is_fatal = true;
                }
            }
            Err(reason) => {
                if let Some(more) = connections.shared.may_log(LogSubject::Target, Kind::ClientRefused) {
                    tracing::warn!(port = self.port.name, "the controller cannot be enabled: {reason}{more}");
                }
                lock(&self.function).is_fatal = true;
            }
        }
    }

    /// Whether the Admin Queue has not come to the end of the last write of CC.
    fn is_writing_cc(&self, connections: &Connections) -> bool {
        let admin = self.admin.and_then(|admin| connections.table.get(admin));
        admin.is_some_and(|connection| connection.commands.execution.queue.is_outstanding(REGISTER_WRITE))
    }

    /// CC.EN was cleared.
    fn disable(&mut self, cc: Cc, connections: &mut Connections, now_us: u64) {
        self.pending = PendingCc::default();
        let busy = self.is_resetting || self.is_writing_cc(connections);
        let mut function = lock(&self.function);
        function.is_quiet = true;
        function.register_written = None;
        drop(function);
        self.is_resetting = true;
        self.has_failed = false;
        match self.admin {
            // The drive learns of a reset by it.
            Some(admin) if !busy => write_cc(admin, cc, connections, now_us),
            _ => self.end_queues(&End::Reset, connections, now_us),
        }
    }

    /// CC was changed otherwise: a shutdown. What the controller does not take now is kept, or
    /// means nothing to it: registers say what was written last.
    fn configure(&mut self, cc: Cc, connections: &mut Connections, now_us: u64) {
        if self.is_resetting {
            self.pending.configure = self.pending.enable.map(|_| cc);
        } else if self.is_writing_cc(connections) {
            self.pending.configure = Some(cc);
        } else if let Some(admin) = self.admin {
            write_cc(admin, cc, connections, now_us);
        }
    }

    // ---- the configuration space

    /// The function is reset, whatever was to come of its registers.
    pub(super) fn reset(&mut self, connections: &mut Connections, now_us: u64) {
        self.pending = PendingCc::default();
        self.has_failed = false;
        self.end_queues(&End::Reset, connections, now_us);
    }

    /// The function may access memory again: it fetches commands, and writes completions of what
    /// happened meanwhile.
    pub(super) fn resume(&mut self, connections: &mut Connections, now_us: u64) {
        lock(&self.function).flush_all();
        for (_, handle) in &self.queues {
            connections.arrived(*handle, now_us);
        }
    }

    /// The function may not access memory any more. What it executes cannot be completed without:
    /// the controller fails, and the client waits until that has left the devices. Returns whether
    /// it does. A controller that executes nothing only waits to be a bus master again.
    pub(super) fn silence(&mut self, connections: &mut Connections, now_us: u64) -> bool {
        let is_busy = |handle| connections.table.get(handle).is_some_and(|connection| !connection.is_idle());
        let is_busy = self.queues.iter().any(|(_, handle)| is_busy(*handle));
        if self.is_resetting {
            self.end_queues(&End::Reset, connections, now_us);
        } else if is_busy {
            self.fail(connections, now_us);
        }
        self.is_resetting || is_busy
    }

    /// The guest's bus driver has found the function. Returns whether its client waits until
    /// nothing of the last controller is left.
    pub(super) fn on_found(&mut self, connections: &Connections) -> bool {
        if self.admin.is_some() && !self.is_resetting {
            // A controller that is enabled is the one that is found.
            return false;
        }
        self.pending = PendingCc::default();
        self.driver.forget();
        connections.shared.registry().forget_hosts_at(self.port.id);
        let mut function = lock(&self.function);
        if std::mem::take(&mut function.pci.is_absent) {
            // Another one takes its place, as after power-on.
            function.pci.registers.reset();
            function.is_fatal = false;
        }
        drop(function);
        self.look_at_port(connections);
        self.is_resetting
    }

    /// While there is no controller, the registers are those of what the port has.
    pub(super) fn look_at_port(&self, connections: &Connections) {
        if !self.is_idle() {
            return;
        }
        let registry = connections.shared.registry();
        // A driver that knows no function misses none.
        let given = self.driver.subsystem().and_then(|_| Given::at(&registry, self.port.id));
        let returning = |subsystem: &Nqn| registry.model().returning.contains(subsystem);
        let is_absent = self.driver.is_unplugged(given.as_ref(), returning);
        let cap = registry.capabilities(self.port.id);
        drop(registry);
        let mut function = lock(&self.function);
        if let Some(cap) = cap {
            function.pci.registers.set_capabilities(cap);
        }
        let was_absent = std::mem::replace(&mut function.pci.is_absent, is_absent);
        drop(function);
        let (Some(known), true) = (self.driver.subsystem(), was_absent != is_absent) else { return };
        if let Some(more) = connections.shared.may_log(LogSubject::Target, Kind::Ended) {
            let (port, function) = (&self.port.name, known);
            if is_absent {
                tracing::warn!(
                    port,
                    %function,
                    "the function was taken from its guest, which sees an unplugged device until it removes that, \
                     and scans its PCI bus again, or starts again{more}"
                );
            } else {
                tracing::info!(port, %function, "the function is back: its guest may go on{more}");
            }
        }
    }

    // ---- queues

    /// A queue of the function becomes a connection.
    fn attach_queue(
        &mut self,
        attachment: &Attachment,
        connections: &mut Connections,
        now_us: u64,
    ) -> Result<Handle, RefusalReason> {
        let queue = attachment.queue;
        let peer = Peer::new(Arc::clone(&self.port), PeerAddress::Direct);
        if admission::room_for(&connections.shared, peer.address, &peer.port).is_err() {
            return Err(RefusalReason::HostShare);
        }
        let (index, handle) = connections.table.reserve();
        let transport = AnyTransport::InMemory(InMemory::Ring(Box::new(Ring::new(Arc::clone(&self.function), queue))));
        connections.shared.connections.fetch_add(1, Relaxed);
        peer.port.counts.connections.fetch_add(1, Relaxed);
        let deadline_ms = connections.handshake_deadline_ms(now_us);
        let link = Link::new(handle, transport, peer, deadline_ms, None);
        connections.insert(index, Connection::new(handle, link), deadline_ms);
        let mut refused = None;
        connections.with(index, now_us, |connection, context| {
            connection.attach(attachment, context).inspect_err(|end| {
                refused = Some(if let End::NotAttached(reason) = end { *reason } else { RefusalReason::NotReady });
            })
        });
        if let Some(reason) = refused {
            return Err(reason);
        }
        self.queues.push((queue, handle));
        lock(&self.function).set_handle(queue, handle);
        // The host may have rung before.
        connections.arrived(handle, now_us);
        Ok(handle)
    }

    /// A command of the Admin Queue creates an I/O queue.
    pub(super) fn create_queue(
        &mut self,
        reply: CommandRef,
        task: RingTask,
        connections: &mut Connections,
        now_us: u64,
    ) {
        let RingTask::CreateSubmissionQueue { id, entries, .. } = task else {
            unreachable!("{task:?} needs no connection, see `Elsewhere::begin`")
        };
        // Its Admin Queue ended at once when it was enabled, and the command with it.
        let Some((subsystem, controller)) = self.association.clone() else { return };
        if self.is_resetting {
            // The command is forgotten with its queue.
            return;
        }
        let attachment = Attachment {
            queue: id,
            entries: entries.into(),
            controller,
            subsystem,
            host: self.host.clone(),
            host_id: HostId::default(),
        };
        // The Admin Queue is not drained before the command is completed.
        let attached = if connections.is_stopping() {
            Err(RefusalReason::NotReady)
        } else {
            self.attach_queue(&attachment, connections, now_us)
        };
        let status = match attached {
            Ok(_) => Status::SUCCESS,
            Err(RefusalReason::Draining) => {
                self.retries.push((reply, task));
                self.retry_ms = now_us / 1000 + RETRY_MS;
                return;
            }
            Err(reason) => {
                if let Some(more) = connections.shared.may_log(LogSubject::Target, Kind::ClientRefused) {
                    tracing::warn!(port = self.port.name, queue = id.0, "a queue cannot be created: {reason}{more}");
                }
                lock(&self.function).withdraw_submission(id);
                Status::INTERNAL_ERROR
            }
        };
        connections.tell(reply.handle, now_us, |commands, link, context| {
            commands.on_reply(reply.slot, CommandReply::Created(status), link, context);
        });
    }

    /// Asks again for queues that were refused. Returns whether it was time to.
    pub(super) fn try_again(&mut self, connections: &mut Connections, now_us: u64) -> bool {
        if self.retry_ms().is_none_or(|at_ms| now_us / 1000 < at_ms) {
            return false;
        }
        for (reply, task) in std::mem::take(&mut self.retries) {
            self.create_queue(reply, task, connections, now_us);
        }
        true
    }

    /// Its client is gone: its queues end, and nothing comes of what was written to CC.
    pub(super) fn abandon(&mut self, connections: &mut Connections, now_us: u64) {
        self.pending = PendingCc::default();
        self.end_queues(&End::PeerClosed, connections, now_us);
    }

    /// The controller cannot go on: its queues end, and it has failed until it is reset.
    fn fail(&mut self, connections: &mut Connections, now_us: u64) {
        self.has_failed = true;
        lock(&self.function).is_fatal = true;
        self.end_queues(&End::Reset, connections, now_us);
    }

    /// All queues end.
    fn end_queues(&mut self, end: &End, connections: &mut Connections, now_us: u64) {
        lock(&self.function).is_quiet = true;
        self.is_resetting = true;
        self.retries.clear();
        for (_, handle) in &self.queues {
            let end = if matches!(end, End::PeerClosed) { End::PeerClosed } else { End::Reset };
            connections.with_open(*handle, now_us, |_, _| Err(end));
        }
    }

    /// Forgets connections of which nothing is left, and the controller with the last of them.
    /// Returns whether there were any.
    pub(super) fn forget_ended(&mut self, connections: &mut Connections, now_us: u64) -> bool {
        self.settle_cc(connections, now_us);
        self.tell_of_doorbells(connections, now_us);
        let before = self.queues.len();
        let table = &connections.table;
        self.queues.retain(|(queue, handle)| {
            let stays = table.get(*handle).is_some();
            if !stays {
                lock(&self.function).close_submission(*queue, *handle);
            }
            stays
        });
        let is_gone = |admin| table.get(admin).is_none_or(|connection| connection.link.state == State::Gone);
        let admin_is_gone = self.admin.is_some_and(is_gone);
        // When the target stops, the Admin Queue is drained first: the others complete what they
        // have.
        let waits = connections.is_stopping() && !self.queues.is_empty();
        if admin_is_gone && !self.is_resetting && !waits {
            // The association has ended: by a change of the configuration, for instance.
            self.fail(connections, now_us);
        }
        if self.is_resetting && self.queues.is_empty() {
            self.end_reset(connections, now_us);
            return true;
        }
        before != self.queues.len()
    }

    /// Nothing is left of the controller: goes on with what was written to CC since.
    fn end_reset(&mut self, connections: &mut Connections, now_us: u64) {
        self.is_resetting = false;
        self.admin = None;
        self.association = None;
        let mut function = lock(&self.function);
        function.forget_queues();
        function.pci.registers.reset_controller();
        function.is_fatal = std::mem::take(&mut self.has_failed);
        drop(function);
        self.look_at_port(connections);
        let pending = std::mem::take(&mut self.pending);
        if let Some((cc, admin)) = pending.enable {
            self.enable(cc, admin.as_ref(), connections, now_us);
        }
        if let Some(cc) = pending.configure {
            self.configure(cc, connections, now_us);
        }
    }

    /// Goes on when a write of CC is through.
    fn settle_cc(&mut self, connections: &mut Connections, now_us: u64) {
        if self.admin.is_none() {
            return;
        }
        let written = lock(&self.function).register_written.take();
        match written {
            None => {}
            // A reset that was begun by CC is over when its command is.
            Some(_) if self.is_resetting => self.end_queues(&End::Reset, connections, now_us),
            Some(status) if !status.is_success() => {
                if let Some(more) = connections.shared.may_log(LogSubject::Target, Kind::ClientRefused) {
                    tracing::warn!(port = self.port.name, %status, "the controller cannot be configured so{more}");
                }
                lock(&self.function).is_fatal = true;
            }
            Some(_) => {
                if let Some(cc) = self.pending.configure.take() {
                    self.configure(cc, connections, now_us);
                }
            }
        }
    }
}

fn write_cc(admin: Handle, cc: Cc, connections: &mut Connections, now_us: u64) {
    connections.tell(admin, now_us, |commands, link, context| commands.write_cc(cc.0, link, context));
}
