//! The function of a drive that a subsystem belongs to: what its controllers have and may do; and
//! the subsystems of a drive's functions.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_drive::{FunctionId, Share, View};
use ebof_nvme::log::AnaState;
use ebof_nvme::{ControllerId, Nqn};

use crate::model::{GroupStates, Model, Namespace, Port, PortId, Provision, Subsystem};

/// A function of a drive, as its subsystem knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// NQN of the drive's own subsystem.
    pub drive: Nqn,
    /// Which function.
    pub id: FunctionId,
    /// Whether its secondary controller is online: otherwise the subsystem is on no port.
    pub online: bool,
    /// Queue resources of a controller, that of the Admin Queue included.
    pub queues: u16,
    /// Interrupt resources.
    pub interrupts: u16,
    /// Its share of the drive.
    pub share: Share,
    /// Hosts know it as a controller of the drive's own subsystem, by that NQN. Otherwise by the
    /// NQN of its own.
    pub is_of_drive: bool,
    /// Ports that it is about to leave: hosts there find its namespaces inaccessible, and no new
    /// ones come.
    pub leaving: BTreeSet<PortId>,
}

impl Function {
    /// I/O queues of a controller at most.
    #[must_use]
    pub fn io_queues(&self) -> u16 {
        self.queues.saturating_sub(1)
    }

    /// The subsystems of the functions of a drive, if `drive` is its own subsystem. `place` gives
    /// the port with a name. A function whose NQN would be too long is left out; the configuration
    /// refuses such drives.
    pub fn subsystems(drive: &Subsystem, place: impl Fn(&str) -> Option<PortId>) -> Vec<Subsystem> {
        let Some(view) = drive.drive.as_ref().filter(|_| drive.function.is_none()) else { return Vec::new() };
        let subsystem = |(&id, function): (&u16, &ebof_drive::Function)| {
            let nqn = function_nqn(&drive.nqn, FunctionId(id))?;
            let ports = if function.online { function.ports.iter().filter_map(&place).collect() } else { Vec::new() };
            let function = Self {
                drive: drive.nqn.clone(),
                id: FunctionId(id),
                online: function.online,
                queues: function.queues,
                interrupts: function.interrupts,
                share: function.share,
                is_of_drive: view.one_subsystem,
                leaving: BTreeSet::new(),
            };
            Some(function.subsystem(nqn, ports, drive, view))
        };
        view.functions.iter().filter_map(subsystem).collect()
    }

    /// Its subsystem, made from that of its drive.
    fn subsystem(self, nqn: Nqn, ports: Vec<PortId>, drive: &Subsystem, view: &View) -> Subsystem {
        let has = |nsid| {
            let at = view.namespaces.binary_search_by_key(&nsid, |(nsid, _)| *nsid);
            at.is_ok_and(|at| view.namespaces[at].1.functions.contains(&self.id.0))
        };
        let own = drive.namespaces.retaining(|namespace| has(namespace.nsid));
        Subsystem {
            nqn,
            ports,
            cntlid_min: drive.cntlid_min.max(ControllerId(FunctionId::MAX + 1)),
            namespaces: own.changing(for_all_hosts),
            function: Some(self),
            ..drive.clone()
        }
    }
}

/// The NQN by which hosts know a subsystem: that of its drive, if its function is a controller of
/// that one's own subsystem. Its `nqn` is unique in a model in any case.
pub(crate) fn known_as(subsystem: &Subsystem) -> &Nqn {
    let of_drive = subsystem.function.as_ref().filter(|function| function.is_of_drive);
    of_drive.map_or(&subsystem.nqn, |function| &function.drive)
}

/// Whether new hosts find a subsystem at a port: it is there, and not about to leave.
pub(crate) fn is_offered_at(subsystem: &Subsystem, port: PortId) -> bool {
    subsystem.ports.contains(&port) && !leaves(subsystem, port)
}

fn leaves(subsystem: &Subsystem, port: PortId) -> bool {
    subsystem.function.as_ref().is_some_and(|function| function.leaving.contains(&port))
}

/// The states of ANA groups of a subsystem's controllers at a port.
pub(crate) fn states_at(subsystem: &Subsystem, port: &Port) -> GroupStates {
    if leaves(subsystem, port.id) { GroupStates::at_best(AnaState::INACCESSIBLE) } else { port.states.clone() }
}

/// What hosts reach by an NQN at a port. Controllers of a drive's subsystem have a port each, see
/// `ebof_manage::enclosure`; of several the first is reached: the primary controller, which is
/// before its functions, or the function with the lowest number.
pub(crate) fn at_port<'m>(model: &'m Model, nqn: &Nqn, port: PortId) -> Option<&'m Arc<Subsystem>> {
    let mut here = model.subsystems.iter().filter(|subsystem| subsystem.ports.contains(&port));
    here.find(|subsystem| known_as(subsystem) == nqn)
}

/// The NQN of a function's subsystem; `None` if it is too long.
#[must_use]
pub fn function_nqn(drive: &Nqn, id: FunctionId) -> Option<Nqn> {
    Nqn::parse(&alloc::format!("{drive}:{id}")).ok()
}

/// Whether this could be the NQN of a function of a drive, which may not be served now.
pub(crate) fn is_function_of(nqn: &Nqn, drive: &Nqn) -> bool {
    let rest = nqn.as_str().strip_prefix(drive.as_str()).and_then(|rest| rest.strip_prefix(":vf"));
    rest.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The namespaces of a function are attached to all of its hosts.
fn for_all_hosts(namespace: &mut Namespace) {
    if let Some(provision) = &namespace.provision {
        let Provision { used, reservations, .. } = &**provision;
        let (used, reservations) = (used.clone(), reservations.clone());
        let shared =
            Provision { hosts: None, used, reservations, functions: provision.functions.clone(), ..**provision };
        namespace.provision = Some(Arc::new(shared));
    }
}
