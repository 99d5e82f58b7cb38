//! The controller of a function: how it is enabled and reset, and how its queues become connections
//! and end.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ebof_fabrics::queue::REGISTER_WRITE;
use ebof_fabrics::{Attachment, Handle, RefusalReason, RingTask};
use ebof_nvme::property::Cc;
use ebof_nvme::{ControllerId, HostId, QueueId, Status};
use ebof_vfio::message::Call;
use ebof_vfio::registers::AdminQueues;

use super::super::Reactor;
use super::{DirectDevice, PendingCc, RETRY_MS, Wait};
use crate::direct::lock;
use crate::link::{AnyTransport, End, InMemory, Link, Ring, State};
use crate::observe::log_limit::{Kind, LogSubject};
use crate::ports::peer::{Peer, PeerAddress};
use crate::reactor::admission;
use crate::reactor::connection::Connection;
use crate::shared::handle::{handle, index_of};
use crate::shared::mailbox::CommandRef;

impl Reactor {
    /// CC.EN was set: the Admin Queue becomes a connection, and the controller is enabled.
    pub(super) fn enable(&mut self, device: &mut DirectDevice, cc: Cc, admin: Option<&AdminQueues>, now_us: u64) {
        let mut function = lock(&device.function);
        function.forget_queues();
        // A target that stops takes no new connections.
        let Some(admin) = admin.filter(|_| self.shutdown_ms.is_none()) else { return function.is_fatal = true };
        function.open_admin(admin);
        drop(function);
        let Some(given) = self.given_to(device) else {
            if let Some(more) = self.shared.may_log(LogSubject::Target, Kind::ClientRefused) {
                let what = if device.known.is_some() { "the one that its guest knows" } else { "a subsystem" };
                tracing::warn!(port = device.port.name, "a controller is enabled at a port without {what}{more}");
            }
            return lock(&device.function).is_fatal = true;
        };
        let subsystem = given.subsystem.clone();
        let attachment = Attachment {
            queue: QueueId(0),
            entries: admin.submission_entries,
            controller: ControllerId::DYNAMIC,
            subsystem: subsystem.clone(),
            host: device.host.clone(),
            host_id: HostId::default(),
        };
        match self.attach_queue(device, &attachment, now_us) {
            Ok(handle) => {
                device.admin = Some(handle);
                device.known = Some(given);
                self.write_cc(handle, cc, now_us);
                let controller = self.connection(handle).and_then(|connection| connection.commands.queue.association());
                device.controller = controller.map(|association| (subsystem, association.cntlid));
                let mut function = lock(&device.function);
                if !function.register_written.take().is_some_and(Status::is_success) {
                    function.is_fatal = true;
                }
            }
            Err(reason) => {
                if let Some(more) = self.shared.may_log(LogSubject::Target, Kind::ClientRefused) {
                    tracing::warn!(port = device.port.name, "the controller cannot be enabled: {reason}{more}");
                }
                lock(&device.function).is_fatal = true;
            }
        }
    }

    fn write_cc(&mut self, admin: Handle, cc: Cc, now_us: u64) {
        self.with_handle(admin, now_us, |connection, context| {
            connection.commands.write_cc(cc.0, &mut connection.link, context);
            Ok(())
        });
    }

    /// Whether the Admin Queue has not come to the end of the last write of CC.
    fn is_writing_cc(&self, device: &DirectDevice) -> bool {
        let admin = device.admin.and_then(|admin| self.connection(admin));
        admin.is_some_and(|connection| connection.commands.queue.is_outstanding(REGISTER_WRITE))
    }

    /// CC.EN was cleared.
    pub(super) fn disable(&mut self, device: &mut DirectDevice, cc: Cc, now_us: u64) {
        device.pending = PendingCc::default();
        let busy = device.is_resetting || self.is_writing_cc(device);
        let mut function = lock(&device.function);
        function.is_quiet = true;
        function.register_written = None;
        drop(function);
        device.is_resetting = true;
        device.has_failed = false;
        match device.admin {
            // The drive learns of a reset by it.
            Some(admin) if !busy => self.write_cc(admin, cc, now_us),
            _ => self.end_queues(device, &End::Reset, now_us),
        }
    }

    /// CC was changed otherwise: a shutdown. What the controller does not take now is kept, or
    /// means nothing to it: registers say what was written last.
    pub(super) fn configure(&mut self, device: &mut DirectDevice, cc: Cc, now_us: u64) {
        if device.is_resetting {
            device.pending.configure = device.pending.enable.map(|_| cc);
        } else if self.is_writing_cc(device) {
            device.pending.configure = Some(cc);
        } else if let Some(admin) = device.admin {
            self.write_cc(admin, cc, now_us);
        }
    }

    /// The function is reset, whatever was to come of its registers. The client waits.
    pub(super) fn reset_function(&mut self, device: &mut DirectDevice, call: Option<Call>, now_us: u64) {
        device.waiting = Some(Wait::Reset(call));
        device.pending = PendingCc::default();
        device.has_failed = false;
        self.end_queues(device, &End::Reset, now_us);
    }

    /// The controller cannot go on: its queues end, and it has failed until it is reset.
    fn fail(&mut self, device: &mut DirectDevice, now_us: u64) {
        device.has_failed = true;
        lock(&device.function).is_fatal = true;
        self.end_queues(device, &End::Reset, now_us);
    }

    /// The function may access memory again: it fetches commands, and writes completions of what
    /// happened meanwhile.
    pub(super) fn resume_function(&mut self, device: &mut DirectDevice, now_us: u64) {
        lock(&device.function).flush_all();
        for (_, handle) in device.queues.clone() {
            self.arrived(handle, now_us);
        }
    }

    /// The function may not access memory any more. What it executes cannot be completed without:
    /// the client waits until that has left the devices, and the controller has failed. One that
    /// executes nothing only waits to be a bus master again.
    pub(super) fn silence_function(&mut self, device: &mut DirectDevice, now_us: u64) {
        let is_busy = |connection: &Connection| !connection.is_idle();
        let is_busy = device.queues.iter().any(|(_, handle)| self.connection(*handle).is_some_and(is_busy));
        if device.is_resetting || is_busy {
            device.waiting = Some(Wait::Reset(None));
            if device.is_resetting {
                self.end_queues(device, &End::Reset, now_us);
            } else {
                self.fail(device, now_us);
            }
        }
    }

    /// A queue of the function becomes a connection.
    fn attach_queue(
        &mut self,
        device: &mut DirectDevice,
        attachment: &Attachment,
        now_us: u64,
    ) -> Result<Handle, RefusalReason> {
        let queue = attachment.queue;
        let peer = Peer { port: Arc::clone(&device.port), address: PeerAddress::Direct };
        if admission::room_for(&self.shared, peer.address, &peer.port).is_err() {
            return Err(RefusalReason::HostShare);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            u32::try_from(self.connections.len() - 1).expect("connections are limited to far less than 2^32")
        });
        self.serial += 1;
        let handle = handle(self.index, self.serial, index);
        let transport =
            AnyTransport::InMemory(InMemory::Ring(Box::new(Ring::new(Arc::clone(&device.function), queue))));
        self.shared.connections.fetch_add(1, Relaxed);
        peer.port.counts.connections.fetch_add(1, Relaxed);
        let deadline_ms = now_us / 1000 + self.shared.settings.handshake_ms;
        let link = Link::new(handle, transport, peer, deadline_ms, None);
        let mut connection = Connection::new(handle, link);
        connection.armed_ms = Some(deadline_ms);
        self.connections[index as usize] = Some(Box::new(connection));
        self.busy_poll.is_outdated = true;
        self.deadlines.push(Reverse((deadline_ms, handle)));
        let mut refused = None;
        self.with(index, now_us, |connection, context| {
            connection.attach(attachment, context).inspect_err(|end| {
                refused = Some(if let End::NotAttached(reason) = end { *reason } else { RefusalReason::NotReady });
            })
        });
        if let Some(reason) = refused {
            return Err(reason);
        }
        device.queues.push((queue, handle));
        lock(&device.function).set_handle(queue, handle);
        // The host may have rung before.
        self.arrived(handle, now_us);
        Ok(handle)
    }

    /// A command of an Admin Queue creates an I/O queue.
    pub(in super::super) fn create_queue(&mut self, reply: CommandRef, task: RingTask, now_us: u64) {
        let at = self
            .direct
            .iter()
            .position(|device| device.as_ref().is_some_and(|device| device.admin == Some(reply.handle)));
        let Some(at) = at else { return };
        let Some(mut device) = self.direct[at].take() else { return };
        self.create_queue_of(&mut device, reply, task, now_us);
        self.direct[at] = Some(device);
    }

    pub(super) fn create_queue_of(
        &mut self,
        device: &mut DirectDevice,
        reply: CommandRef,
        task: RingTask,
        now_us: u64,
    ) {
        let RingTask::CreateSubmissionQueue { id, entries, .. } = task else { return };
        let Some((subsystem, controller)) = device.controller.clone() else { return };
        if device.is_resetting {
            // The command is forgotten with its queue.
            return;
        }
        let attachment = Attachment {
            queue: id,
            entries: entries.into(),
            controller,
            subsystem,
            host: device.host.clone(),
            host_id: HostId::default(),
        };
        // The Admin Queue is not drained before the command is completed.
        let attached = if self.shutdown_ms.is_some() {
            Err(RefusalReason::NotReady)
        } else {
            self.attach_queue(device, &attachment, now_us)
        };
        let status = match attached {
            Ok(_) => Status::SUCCESS,
            Err(RefusalReason::Draining) => {
                device.retries.push((reply, task));
                device.retry_ms = now_us / 1000 + RETRY_MS;
                return;
            }
            Err(reason) => {
                if let Some(more) = self.shared.may_log(LogSubject::Target, Kind::ClientRefused) {
                    tracing::warn!(port = device.port.name, queue = id.0, "a queue cannot be created: {reason}{more}");
                }
                lock(&device.function).withdraw_submission(id);
                Status::INTERNAL_ERROR
            }
        };
        self.with_handle(reply.handle, now_us, |connection, context| {
            connection.commands.on_created(reply.slot, status, &mut connection.link, context);
            Ok(())
        });
    }

    pub(super) fn connection(&self, handle: Handle) -> Option<&Connection> {
        let known = self.connections.get(index_of(handle) as usize).and_then(Option::as_ref);
        known.filter(|connection| connection.handle == handle).map(|connection| &**connection)
    }

    /// All queues of a function end.
    pub(super) fn end_queues(&mut self, device: &mut DirectDevice, end: &End, now_us: u64) {
        lock(&device.function).is_quiet = true;
        device.is_resetting = true;
        device.retries.clear();
        for (_, handle) in &device.queues {
            let end = match end {
                End::PeerClosed => End::PeerClosed,
                End::PortGone => End::PortGone,
                _ => End::Reset,
            };
            self.with_handle(*handle, now_us, |_, _| Err(end));
        }
    }

    /// Forgets connections of which nothing is left, and the controller with the last of them.
    pub(super) fn settle_queues(&mut self, device: &mut DirectDevice, now_us: u64) -> bool {
        self.settle_cc(device, now_us);
        self.tell_of_doorbells(device, now_us);
        let before = device.queues.len();
        let connections = &self.connections;
        let is_there = |handle: &Handle| {
            let known = connections.get(index_of(*handle) as usize).and_then(Option::as_ref);
            known.is_some_and(|connection| connection.handle == *handle)
        };
        device.queues.retain(|(queue, handle)| {
            let stays = is_there(handle);
            if !stays {
                lock(&device.function).close_submission(*queue, *handle);
            }
            stays
        });
        let admin_is_gone = device.admin.is_some_and(|admin| {
            let known = connections.get(index_of(admin) as usize).and_then(Option::as_ref);
            known.is_none_or(|connection| connection.handle != admin || connection.link.state == State::Gone)
        });
        // When the target stops, the Admin Queue is drained first: the others complete what they
        // have.
        let waits = self.shutdown_ms.is_some() && !device.queues.is_empty();
        if admin_is_gone && !device.is_resetting && !waits {
            // The association has ended: by a change of the configuration, for instance.
            self.fail(device, now_us);
        }
        if device.is_resetting && device.queues.is_empty() {
            device.is_resetting = false;
            device.admin = None;
            device.controller = None;
            let mut function = lock(&device.function);
            function.forget_queues();
            function.pci.registers.reset_controller();
            function.is_fatal = std::mem::take(&mut device.has_failed);
            drop(function);
            self.look_at_port(device);
            let pending = std::mem::take(&mut device.pending);
            if let Some((cc, admin)) = pending.enable {
                self.enable(device, cc, admin.as_ref(), now_us);
            }
            if let Some(cc) = pending.configure {
                self.configure(device, cc, now_us);
            }
            return true;
        }
        before != device.queues.len()
    }

    /// Goes on when a write of CC is through.
    fn settle_cc(&mut self, device: &mut DirectDevice, now_us: u64) {
        if device.admin.is_none() {
            return;
        }
        let written = lock(&device.function).register_written.take();
        match written {
            None => {}
            // A reset that was begun by CC is over when its command is.
            Some(_) if device.is_resetting => self.end_queues(device, &End::Reset, now_us),
            Some(status) if !status.is_success() => {
                if let Some(more) = self.shared.may_log(LogSubject::Target, Kind::ClientRefused) {
                    tracing::warn!(port = device.port.name, %status, "the controller cannot be configured so{more}");
                }
                lock(&device.function).is_fatal = true;
            }
            Some(_) => {
                if let Some(cc) = device.pending.configure.take() {
                    self.configure(device, cc, now_us);
                }
            }
        }
    }
}
