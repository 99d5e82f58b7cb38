//! Commands that need the state that queues share: [`Task::Shared`].

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_nvme::feature::{Fid, SetFeature, WriteProtection};
use ebof_nvme::identify::{Cns, ControllerList};
use ebof_nvme::log::Lid;
use ebof_nvme::opcode::{FABRICS, admin};
use ebof_nvme::{ControllerId, Nsid, QueueId, Status};
use zerocopy::IntoBytes;

use super::controllers::ControllerKey;
use super::replaced::Identity;
use super::reset::OtherReset;
use super::{Notices, Registry};
use crate::admin::identify::Look;
use crate::admin::log;
use crate::admin::{self as admin_commands, identify, memory};
use crate::controller::property::EnablingPhase;
use crate::controller::{Controller, Kind};
use crate::model::discovery;
use crate::model::{Namespace, NamespaceTable};
use crate::task::executing::Executing;
use crate::task::outcome::{Decision, Fault, Outcome};
use crate::task::{Quiesce, Task};

/// A command of an Admin Queue that needs what queues share.
pub(super) struct SharedCommand<'r> {
    pub(super) registry: &'r mut Registry,
    /// Whose it is.
    pub(super) key: ControllerKey,
    pub(super) executing: &'r Executing,
    pub(super) now_ms: u64,
    /// What others are to be told.
    pub(super) notices: &'r mut Notices,
}

impl SharedCommand<'_> {
    /// What becomes of it.
    pub(super) fn decide(&mut self, controller: &mut Controller) -> Outcome {
        match self.executing.opcode() {
            FABRICS => self.quiesce(controller),
            admin::ABORT => self.abort(),
            admin::CROSS_CONTROLLER_RESET => {
                let Self { registry, key, executing, notices, .. } = self;
                OtherReset { registry, key: *key, executing, notices }.decide(controller)
            }
            admin::DELETE_IO_SQ => self.delete_queue(),
            admin::GET_LOG_PAGE => self.log_page(controller),
            admin::IDENTIFY => match Look::from_command(&self.executing.sqe()) {
                Some(look) => self.look(controller, look),
                None => Ok(self.controller_list(controller)),
            },
            admin::SET_FEATURES => match SetFeature::decode(self.executing.cdw10()).fid {
                Fid::WRITE_PROTECTION => self.protect(controller),
                Fid::HOST_IDENTIFIER => self.identify_host(controller),
                _ => self.set_keep_alive(controller),
            },
            opcode => unreachable!("no other command of an Admin Queue is a shared one: {opcode:02x}h"),
        }
    }

    /// Reset or shutdown: the I/O queues end; a normal shutdown flushes caches.
    fn quiesce(&mut self, controller: &Controller) -> Outcome {
        let mut quiesce = Quiesce::reset();
        let entry = self.registry.controllers.entry_mut(self.key);
        // Including those that drain already: a reset may begin while a shutdown closes them.
        for queue in entry.queues.iter_mut().filter(|queue| !queue.id.is_admin()) {
            queue.detached = true;
            quiesce.close.push(queue.handle);
        }
        // Those that prove themselves do not become queues of what comes after the reset.
        for mut queue in entry.proving.drain(..) {
            queue.detached = true;
            quiesce.close.push(queue.handle);
            entry.queues.push(queue);
        }
        entry.count_io_queues();
        let normal =
            controller.registers.phase == EnablingPhase::ShuttingDown && controller.registers.cc.shutdown() == 1;
        if let (true, Some(subsystem)) = (normal, controller.subsystem()) {
            let cached = subsystem.namespaces.iter().filter(|namespace| namespace.volatile_cache);
            let devices: BTreeSet<_> = cached.map(|namespace| namespace.device).collect();
            quiesce.flush.extend(devices);
        }
        Ok(Decision::Go(Task::Reset(Box::new(quiesce)), 0))
    }

    /// Delete I/O Submission Queue: what it has at devices is awaited.
    fn delete_queue(&mut self) -> Outcome {
        let id = QueueId(memory::queue_id(&self.executing.sqe()));
        let mut quiesce = Quiesce::default();
        let entry = self.registry.controllers.entry_mut(self.key);
        for queue in entry.queues.iter_mut().filter(|queue| queue.id == id) {
            queue.detached = true;
            quiesce.close.push(queue.handle);
        }
        entry.count_io_queues();
        Ok(Decision::Go(Task::Reset(Box::new(quiesce)), 0))
    }

    /// The host has said who it is: its rights are those of that host from now on.
    fn identify_host(&mut self, controller: &mut Controller) -> Outcome {
        // A reset or another one of these commands may have come before the registry's turn.
        let Some(host_id) = controller.features.new_host_id.take() else {
            return Err(Fault::new(Status::INTERNAL_ERROR));
        };
        let association = &controller.association;
        association.set_host_id(host_id);
        // The subsystem may have been removed: then the controller is about to end.
        if let Some(now) = self.registry.effective.get(&association.subsystem) {
            self.registry.controllers.entry(self.key).notify(now, self.notices);
        }
        Ok(Decision::Done(0))
    }

    fn abort(&self) -> Outcome {
        let (id, cid) = admin_commands::abort_target(self.executing.cdw10());
        let entry = self.registry.controllers.entry(self.key);
        Ok(match entry.queues.iter().find(|queue| queue.id == id && !queue.detached) {
            Some(queue) => Decision::Go(Task::Abort(queue.handle, cid), 0),
            // Dword 0, bit 0: not aborted.
            None => Decision::Done(1),
        })
    }

    fn log_page(&self, controller: &mut Controller) -> Outcome {
        let log = log::command_of(self.executing);
        let association = &controller.association;
        let page = match &controller.kind {
            Kind::Io(subsystem) => {
                let counts = self.registry.subsystem_counts(&subsystem.nqn);
                log::smart(subsystem, counts, association.errors.count(), controller.critical_warnings())
            }
            Kind::Discovery(_) => {
                let local = self.registry.controllers.entry(self.key).local.as_str();
                let view = discovery::View { host: association.named_host(), port: association.port.id, local };
                discovery::page(&*self.registry.model, view, log.lsp)
            }
        };
        let answer = Decision::Go(Task::Reply(log::part(&log, page)?), self.executing.length());
        if !log.retain_event {
            controller.events.log_read(log.lid);
        }
        debug_assert!(matches!(log.lid, Lid::SMART_HEALTH | Lid::DISCOVERY), "other pages need no view of the whole");
        Ok(answer)
    }

    /// Identify of a host that does not know of all changes yet: after the response it may be shown
    /// more of them.
    fn look(&mut self, controller: &mut Controller, look: Look) -> Outcome {
        let subsystem = controller.subsystem().expect("a discovery controller identifies nothing but itself");
        let answer = identify::structure(&controller.association, subsystem, &self.executing.sqe());
        let looked_at = identities(&subsystem.namespaces, look);
        let entry = self.registry.controllers.entry_mut(self.key);
        // The subsystem may have been removed: then the controller is about to end.
        if let Some(now) = self.registry.effective.get(&controller.association.subsystem) {
            let shown = entry.shown(now);
            if entry.replaced.hide(look, controller, &shown) {
                entry.notify(now, self.notices);
                let (admin, _) = entry.replaced.views(shown);
                let answer = identify::structure(&controller.association, &admin, &self.executing.sqe());
                return Ok(Decision::Go(Task::Reply(answer?), self.executing.length()));
            }
            // A look at what was there before a change that the Admin Queue has not heard of yet is
            // none at what is there now.
            let (admin, _) = entry.replaced.views(Arc::clone(&shown));
            let is_up_to_date = looked_at == identities(&admin.namespaces, look);
            if is_up_to_date && entry.replaced.look(look, controller, &shown, self.now_ms) {
                entry.notify(now, self.notices);
                entry.note_holder(&mut self.registry.holders, &self.registry.objects);
            }
        }
        Ok(Decision::Go(Task::Reply(answer?), self.executing.length()))
    }

    /// CNS 12h and 13h: the controllers that a namespace is attached to, and all of the subsystem.
    fn controller_list(&self, controller: &Controller) -> Decision {
        let [_, _, low, high] = self.executing.cdw10().to_le_bytes();
        let from = ControllerId(u16::from_le_bytes([low, high]));
        let nqn = &controller.association.subsystem;
        let cns = Cns(self.executing.cdw10().to_le_bytes()[0]);
        let allocated = self.registry.effective.get(nqn).map(|subsystem| subsystem.allocated());
        let namespace = allocated.and_then(|table| table.find(self.executing.nsid()));
        let sees = |key: ControllerKey| match (cns, namespace, self.registry.controllers.entry(key)) {
            (Cns::NAMESPACE_CONTROLLER_LIST, Some(namespace), entry) => namespace.is_attached(&entry.association.host),
            (Cns::NAMESPACE_CONTROLLER_LIST, ..) => false,
            (_, _, entry) => entry.is_open,
        };
        let names =
            self.registry.controllers.names.iter().filter(|((subsystem, _), key)| subsystem == nqn && sees(**key));
        let functions = functions_of(controller, cns, namespace);
        let list = ControllerList::starting_at(from, functions.chain(names.map(|(&(_, cntlid), _)| cntlid)));
        debug_assert!(
            matches!(cns, Cns::NAMESPACE_CONTROLLER_LIST | Cns::CONTROLLER_LIST),
            "other structures need no view of the whole"
        );
        Decision::Go(Task::Reply(list.as_bytes().to_vec()), self.executing.length())
    }

    fn set_keep_alive(&mut self, controller: &Controller) -> Outcome {
        let timeout_ms = self.registry.keep_alive_ms(controller.association.discovery, self.executing.cdw11());
        self.registry.controllers.entry_mut(self.key).set_keep_alive(timeout_ms, self.now_ms);
        Ok(Decision::Done(0))
    }

    /// Namespace Write Protection Config.
    fn protect(&mut self, controller: &Controller) -> Outcome {
        let nqn = controller.association.subsystem.clone();
        let nsid = self.executing.nsid();
        let protected = WriteProtection::decode(self.executing.cdw11()) == WriteProtection::Protected;
        let namespace = self.registry.effective.get(&nqn).and_then(|subsystem| subsystem.namespaces.find(nsid));
        let namespace = namespace.ok_or(Fault::new(Status::INVALID_NAMESPACE))?;
        if namespace.read_only {
            // The device itself is read-only.
            return if protected { Ok(Decision::Done(0)) } else { Err(Fault::new(Status::FEATURE_NOT_CHANGEABLE)) };
        }
        if namespace.write_protected != protected {
            self.registry.change_protection(nqn, nsid, protected, self.notices);
        }
        Ok(Decision::Done(0))
    }
}

/// What a host sees that looks at namespaces.
fn identities(namespaces: &NamespaceTable, look: Look) -> Vec<(Nsid, Identity)> {
    let seen = namespaces.iter().filter(|namespace| look.is_at(namespace.nsid));
    seen.map(|namespace| (namespace.nsid, Identity::of(namespace))).collect()
}

/// The secondary controllers in a list of controllers: those that a namespace is attached to, or
/// all. In ascending order, and below those of hosts, of which each manager's own is the primary.
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
    functions.chain(attached).copied().map(ControllerId)
}
