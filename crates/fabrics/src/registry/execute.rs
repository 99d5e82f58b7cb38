//! Commands that need the state that queues share: [`Task::Shared`].

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_drive::FunctionId;
use ebof_nvme::feature::{Fid, SetFeature, WriteProtection};
use ebof_nvme::identify::{Cns, ControllerList};
use ebof_nvme::log::{Lid, ReservationEvent};
use ebof_nvme::opcode::{FABRICS, admin};
use ebof_nvme::{ControllerId, HostId, Nqn, Nsid, QueueId, Status};
use zerocopy::IntoBytes;

use super::replaced::Identity;
use super::{Entry, Handle, Key, Notice, Notices, ProtectionChange, Registry};
use crate::association::Association;
use crate::controller::{Controller, Kind};
use crate::executing::Executing;
use crate::identify::Look;
use crate::log;
use crate::model::{Namespace, NamespaceTable, Subsystem};
use crate::outcome::{Decision, Fault, Outcome};
use crate::property::Phase;
use crate::queue::Queue;
use crate::step::Step;
use crate::task::{Quiesce, Task};
use crate::{admin as admin_commands, discovery, identify, memory, reservation};

impl Registry {
    /// Executes a [`Task::Shared`] command of `queue`. The caller delivers the notices before it
    /// sends the completion, even if the step is a refusal.
    pub fn execute(&mut self, queue: &mut Queue, executing: Executing, now_ms: u64) -> (Step, Notices) {
        let mut notices = Notices::new();
        let key = queue.live().and_then(|live| self.handles.get(&live.handle)).copied();
        if let (Some(_), Some(subsystem)) = (key, queue.io_subsystem().cloned()) {
            let outcome = self.report(&subsystem, &executing);
            return (queue.conclude(executing, outcome), notices);
        }
        let outcome = match (key, queue.controller_mut()) {
            (Some(key), Some(controller)) => self.decide(key, controller, &executing, now_ms, &mut notices),
            _ => Err(Fault::transient(Status::ABORTED_SQ_DELETION)),
        };
        (queue.conclude(executing, outcome), notices)
    }

    fn decide(
        &mut self,
        key: Key,
        controller: &mut Controller,
        executing: &Executing,
        now_ms: u64,
        notices: &mut Notices,
    ) -> Outcome {
        match executing.opcode() {
            FABRICS => self.quiesce(key, controller),
            admin::ABORT => self.abort(key, executing),
            admin::DELETE_IO_SQ => self.delete_queue(key, executing),
            admin::GET_LOG_PAGE => self.log_page(key, controller, executing),
            admin::IDENTIFY => match Look::of(&executing.sqe()) {
                Some(look) => self.look(key, controller, executing, look, now_ms, notices),
                None => Ok(self.controller_list(controller, executing)),
            },
            admin::SET_FEATURES => match SetFeature::decode(executing.cdw10()).fid {
                Fid::WRITE_PROTECTION => self.protect(controller, executing, notices),
                Fid::HOST_IDENTIFIER => self.identify_host(key, controller, notices),
                _ => self.set_keep_alive(key, controller, executing, now_ms),
            },
            _ => Err(Fault::new(Status::INTERNAL_ERROR)),
        }
    }

    /// Reset or shutdown: the I/O queues end; a normal shutdown flushes caches.
    fn quiesce(&mut self, key: Key, controller: &Controller) -> Outcome {
        let mut quiesce = Quiesce::reset();
        if let Some(entry) = self.entries.get_mut(&key) {
            // Including those that drain already: a reset may begin while a shutdown closes them.
            for queue in entry.queues.iter_mut().filter(|queue| !queue.id.is_admin()) {
                queue.detached = true;
                quiesce.close.push(queue.handle);
            }
            entry.count_io_queues();
        }
        let normal = controller.registers.phase == Phase::ShuttingDown && controller.registers.cc.shutdown() == 1;
        if let (true, Some(subsystem)) = (normal, controller.subsystem()) {
            let cached = subsystem.namespaces.iter().filter(|namespace| namespace.volatile_cache);
            let devices: BTreeSet<_> = cached.map(|namespace| namespace.device).collect();
            quiesce.flush.extend(devices);
        }
        Ok(Decision::Go(Task::Reset(Box::new(quiesce)), 0))
    }

    /// Delete I/O Submission Queue: what it has at devices is awaited.
    fn delete_queue(&mut self, key: Key, executing: &Executing) -> Outcome {
        let id = QueueId(memory::queue_id(&executing.sqe()));
        let mut quiesce = Quiesce::default();
        if let Some(entry) = self.entries.get_mut(&key) {
            for queue in entry.queues.iter_mut().filter(|queue| queue.id == id) {
                queue.detached = true;
                quiesce.close.push(queue.handle);
            }
            entry.count_io_queues();
        }
        Ok(Decision::Go(Task::Reset(Box::new(quiesce)), 0))
    }

    /// The host has said who it is: its rights are those of that host from now on.
    fn identify_host(&mut self, key: Key, controller: &mut Controller, notices: &mut Notices) -> Outcome {
        let Some(host_id) = controller.features.new_host_id.take() else {
            return Err(Fault::new(Status::INTERNAL_ERROR));
        };
        let association = &controller.association;
        association.set_host_id(host_id);
        let now = self.effective.get(&association.subsystem);
        if let (Some(entry), Some(now)) = (self.entries.get(&key), now) {
            entry.notify(now, notices);
        }
        Ok(Decision::Done(0))
    }

    fn abort(&self, key: Key, executing: &Executing) -> Outcome {
        let (id, cid) = admin_commands::abort_target(executing.cdw10());
        let entry = self.entries.get(&key);
        let queue = entry.and_then(|entry| entry.queues.iter().find(|queue| queue.id == id && !queue.detached));
        Ok(match queue {
            Some(queue) => Decision::Go(Task::Abort(queue.handle, cid), 0),
            // Dword 0, bit 0: not aborted.
            None => Decision::Done(1),
        })
    }

    fn log_page(&self, key: Key, controller: &mut Controller, executing: &Executing) -> Outcome {
        let log = log::command_of(executing);
        let association = &controller.association;
        let page = match &controller.kind {
            Kind::Io(subsystem) => {
                let counts = self.subsystem_counts(&subsystem.nqn);
                log::smart(subsystem, counts, association.errors.count(), controller.critical_warnings())
            }
            Kind::Discovery(_) => {
                let local = self.entries.get(&key).map_or("", |entry| entry.local.as_str());
                let view = discovery::View { host: association.named_host(), port: association.port.id, local };
                discovery::page(&*self.model, view, log.lsp)
            }
        };
        let answer = Decision::Go(Task::Reply(log::part(&log, page)?), executing.length());
        if !log.retain_event {
            controller.events.log_read(log.lid);
        }
        debug_assert!(matches!(log.lid, Lid::SMART_HEALTH | Lid::DISCOVERY), "other pages need no view of the whole");
        Ok(answer)
    }

    /// Reservation Report, the only command of I/O queues that needs the shared state.
    fn report(&self, subsystem: &Subsystem, executing: &Executing) -> Outcome {
        let entries = || self.entries.values().filter(|entry| entry.is_open).map(|entry| &entry.association);
        let here = |association: &&Arc<Association>| {
            association.drive == *subsystem.drive_nqn() && !association.discovery && !association.is_closing()
        };
        reservation::report(subsystem, executing, |host| {
            entries()
                .filter(here)
                .find(|association| association.host_id() == host)
                .map(|association| association.cntlid)
        })
    }

    /// Notifies the controllers of hosts of changes of their registrations and reservations. The
    /// caller delivers the notices.
    pub fn reservation_notices(&self, drive: &Nqn, events: &[(Nsid, HostId, ReservationEvent)]) -> Notices {
        let of_subsystem = |entry: &&Entry| entry.association.drive == *drive && !entry.association.is_closing();
        let mut notices = Notices::new();
        for entry in self.entries.values().filter(of_subsystem) {
            let own = events.iter().filter(|(_, host, _)| *host == entry.association.host_id());
            let admin = entry.queues.first().filter(|queue| queue.id.is_admin());
            notices
                .extend(own.filter_map(|(nsid, _, event)| Some((admin?.handle, Notice::Reservation(*nsid, *event)))));
        }
        notices
    }

    /// The I/O queues of those who have lost a namespace of a drive ([`Nsid::ALL`]: all of them),
    /// as far as they are ending, too: a function's, or (`None`) those of hosts of the drive's own
    /// subsystem that are not attached to it now.
    pub fn queues_that_lost(&self, drive: &Nqn, nsid: Nsid, function: Option<FunctionId>) -> Vec<Handle> {
        let own = self.effective.get(drive).filter(|_| function.is_none());
        let namespace = own.and_then(|subsystem| subsystem.allocated().find(nsid));
        let has_lost = |entry: &&Entry| {
            let association = &entry.association;
            let is_there = association.drive == *drive && association.function == function;
            is_there && !namespace.is_some_and(|namespace| namespace.is_attached(&association.host))
        };
        let queues = self.entries.values().filter(has_lost).flat_map(|entry| &entry.queues);
        queues.filter(|queue| !queue.id.is_admin()).map(|queue| queue.handle).collect()
    }

    /// The I/O queues of a host's controllers at a drive, including those that are ending: their
    /// commands may still reach the medium.
    pub fn queues_of(&self, drive: &Nqn, host: HostId) -> Vec<Handle> {
        let of_host = |entry: &&Entry| {
            entry.association.drive == *drive && entry.association.host_id() == host && host != HostId::default()
        };
        let queues = self.entries.values().filter(of_host).flat_map(|entry| &entry.queues);
        queues.filter(|queue| !queue.id.is_admin()).map(|queue| queue.handle).collect()
    }

    /// Identify of a host that does not know of all changes yet: after the response it may be shown
    /// more of them.
    fn look(
        &mut self,
        key: Key,
        controller: &mut Controller,
        executing: &Executing,
        look: Look,
        now_ms: u64,
        notices: &mut Notices,
    ) -> Outcome {
        let Some(subsystem) = controller.subsystem() else { return Err(Fault::new(Status::INTERNAL_ERROR)) };
        let answer = identify::structure(&controller.association, subsystem, &executing.sqe());
        let looked_at = identities(&subsystem.namespaces, look);
        let entry = self.entries.get_mut(&key);
        if let (Some(entry), Some(now)) = (entry, self.effective.get(&controller.association.subsystem)) {
            let shown = now.shown_to(&controller.association.host, controller.association.host_id());
            if entry.replaced.hide(look, controller, &shown) {
                entry.notify(now, notices);
                let (admin, _) = entry.replaced.views(shown);
                let answer = identify::structure(&controller.association, &admin, &executing.sqe());
                return Ok(Decision::Go(Task::Reply(answer?), executing.length()));
            }
            // A look at what was there before a change that the Admin Queue has not heard of yet is
            // none at what is there now.
            let (admin, _) = entry.replaced.views(Arc::clone(&shown));
            let is_up_to_date = looked_at == identities(&admin.namespaces, look);
            if is_up_to_date && entry.replaced.look(look, controller, &shown, now_ms) {
                entry.notify(now, notices);
                entry.note_holder(&mut self.holders, &self.objects);
            }
        }
        Ok(Decision::Go(Task::Reply(answer?), executing.length()))
    }

    /// CNS 12h and 13h: the controllers that a namespace is attached to, and all of the subsystem.
    fn controller_list(&self, controller: &Controller, executing: &Executing) -> Decision {
        let [_, _, low, high] = executing.cdw10().to_le_bytes();
        let from = ControllerId(u16::from_le_bytes([low, high]));
        let nqn = &controller.association.subsystem;
        let cns = Cns(executing.cdw10().to_le_bytes()[0]);
        let allocated = self.effective.get(nqn).map(|subsystem| subsystem.allocated());
        let namespace = allocated.and_then(|table| table.find(executing.nsid()));
        let sees = |key: &Key| match (cns, namespace, self.entries.get(key)) {
            (Cns::NAMESPACE_CONTROLLER_LIST, Some(namespace), Some(entry)) => {
                namespace.is_attached(&entry.association.host)
            }
            (Cns::NAMESPACE_CONTROLLER_LIST, ..) => false,
            (_, _, entry) => entry.is_some_and(|entry| entry.is_open),
        };
        let names = self.names.iter().filter(|((subsystem, _), key)| subsystem == nqn && sees(key));
        let functions = functions_of(controller, cns, namespace);
        let list = ControllerList::starting_at(from, functions.chain(names.map(|(&(_, cntlid), _)| cntlid)));
        debug_assert!(
            matches!(cns, Cns::NAMESPACE_CONTROLLER_LIST | Cns::CONTROLLER_LIST),
            "other structures need no view of the whole"
        );
        Decision::Go(Task::Reply(list.as_bytes().to_vec()), executing.length())
    }

    fn set_keep_alive(&mut self, key: Key, controller: &Controller, executing: &Executing, now_ms: u64) -> Outcome {
        let timeout_ms = self.keep_alive_ms(controller.association.discovery, executing.cdw11());
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.set_keep_alive(timeout_ms, now_ms);
        }
        Ok(Decision::Done(0))
    }

    /// Namespace Write Protection Config.
    fn protect(&mut self, controller: &Controller, executing: &Executing, notices: &mut Notices) -> Outcome {
        let nqn = controller.association.subsystem.clone();
        let nsid = executing.nsid();
        let protected = WriteProtection::decode(executing.cdw11()) == WriteProtection::Protected;
        let namespace = self.effective.get(&nqn).and_then(|subsystem| subsystem.namespaces.find(nsid));
        let namespace = namespace.ok_or(Fault::new(Status::INVALID_NAMESPACE))?;
        if namespace.read_only {
            // The device itself is read-only.
            return if protected { Ok(Decision::Done(0)) } else { Err(Fault::new(Status::FEATURE_NOT_CHANGEABLE)) };
        }
        if namespace.write_protected != protected {
            self.change_protection(nqn, nsid, protected, notices);
        }
        Ok(Decision::Done(0))
    }

    fn change_protection(&mut self, nqn: Nqn, nsid: Nsid, protected: bool, notices: &mut Notices) {
        self.protection.insert((nqn.clone(), nsid), protected);
        // The owner of the model needs only the last change of each namespace.
        self.protection_changes.retain(|change| (&change.subsystem, change.nsid) != (&nqn, nsid));
        self.protection_changes.push(ProtectionChange { subsystem: nqn.clone(), nsid, protected });
        let Some(subsystem) = self.model.subsystem(&nqn).map(|subsystem| self.with_protection(subsystem)) else {
            return;
        };
        let entries = self.entries.values().filter(|entry| !entry.association.is_closing());
        for entry in entries.filter(|entry| !entry.association.discovery && entry.association.subsystem == nqn) {
            entry.notify(&subsystem, notices);
        }
        self.effective.insert(nqn, Arc::clone(&subsystem));
    }
}

/// What a host sees that looks at namespaces.
fn identities(namespaces: &NamespaceTable, look: Look) -> Vec<(Nsid, Identity)> {
    let seen = namespaces.iter().filter(|namespace| look.is_at(namespace.nsid));
    seen.map(|namespace| (namespace.nsid, Identity::of(namespace))).collect()
}

/// The secondary controllers in a list of controllers: those that a namespace is attached to, or
/// all; and the primary. In ascending order, and below those of hosts.
fn functions_of<'a>(
    controller: &'a Controller,
    cns: Cns,
    namespace: Option<&'a Namespace>,
) -> impl Iterator<Item = ControllerId> + use<'a> {
    let subsystem = controller.subsystem().filter(|subsystem| subsystem.has_functions());
    let drive = subsystem.and_then(|subsystem| subsystem.drive.as_deref());
    let attached = namespace.and_then(|namespace| namespace.provision.as_deref()).map(|provision| &provision.functions);
    let all = cns == Cns::CONTROLLER_LIST;
    let functions = drive.filter(|_| all).into_iter().flat_map(|drive| drive.functions.keys());
    // Those included that the configuration has no more: the namespace can be detached from them.
    let attached = attached.filter(|_| !all && drive.is_some()).into_iter().flatten();
    let ids = functions.chain(attached).copied();
    let primary = (all && drive.is_some()).then_some(0);
    primary.into_iter().chain(ids).map(ControllerId)
}
