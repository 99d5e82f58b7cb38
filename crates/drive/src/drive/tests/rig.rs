//! A drive with functions, and its journal, for the tests of functions and of what the box asks.

use alloc::format;
use alloc::vec::Vec;

use ebof_nvme::{ControllerId, HostId, Nqn};

use super::super::*;
use crate::function::FunctionId;

/// A host of the drive's own subsystem.
pub(super) fn host(number: u16) -> Origin {
    let host = Nqn::parse(&format!("nqn.2014-08.org.example:{number}")).unwrap();
    Origin::host(ControllerId(128 + number), host, HostId([u8::try_from(number + 1).unwrap(); 16]))
}

/// A drive, and the changes that it was asked for.
pub(super) struct Bench {
    pub(super) drive: Drive,
    pub(super) journal: Vec<Vec<u8>>,
}

impl Bench {
    /// A drive of 1 TiB with so many hosts.
    pub(super) fn new(state: State, settings: Settings, hosts: u16) -> Self {
        let capacity = Capacity { total_bytes: 1 << 40, extent_bytes: 256 << 10 };
        let mut bench = Self { drive: Drive::new(state, settings, capacity), journal: Vec::new() };
        for number in 0..hosts {
            bench.ask(&host(number), &Request::AssignCntlid).unwrap();
        }
        bench
    }

    pub(super) fn ask(&mut self, origin: &Origin, request: &Request) -> Result<Decision, Status> {
        let before = self.drive.state().clone();
        let decision = self.drive.decide(request, origin, &DecisionInput::default());
        assert_eq!(*self.drive.state(), before, "deciding changes nothing durable");
        let decision = decision.map_err(|refusal| refusal.status)?;
        for change in &decision.changes {
            self.journal.push(change.to_bytes());
            self.drive.apply(change.clone());
        }
        // Its hosts are gone from the ports that it loses.
        let is_empty = matches!(request, Request::Shift(..));
        check_lost(&decision, &before, self.drive.state(), is_empty);
        Ok(decision)
    }

    /// By the box.
    pub(super) fn made(&mut self, request: &Request) -> Decision {
        self.ask(&Origin::box_(), request).unwrap()
    }

    /// By the box.
    pub(super) fn refused(&mut self, request: &Request) -> Status {
        self.ask(&Origin::box_(), request).unwrap_err()
    }
}

/// What a function loses is said, so that it is drained, and what hosts of the drive's own
/// subsystem lose.
fn check_lost(decision: &Decision, before: &State, after: &State, has_emptied_ports: bool) {
    for (nsid, namespace) in &before.namespaces {
        let Some(now) = after.namespaces.get(nsid) else { continue };
        let mut hosts = before.assigned_cntlids.values().map(|assignment| &assignment.host).chain(&namespace.hosts);
        if hosts.any(|host| namespace.is_attached(host) && !now.is_attached(host)) {
            assert!(decision.lost.contains(&(Nsid(*nsid), None)), "namespace {nsid} of hosts");
        }
        for &id in namespace.functions.difference(&now.functions) {
            assert!(decision.lost.contains(&(Nsid(*nsid), Some(FunctionId(id)))), "namespace {nsid} of vf{id}");
        }
    }
    for (&id, function) in before.functions.iter().filter(|(_, function)| function.online) {
        let now = &after.functions[&id];
        let resources = |function: &Function| (function.queues, function.interrupts);
        let is_smaller = resources(function) != resources(now);
        let keeps_ports = has_emptied_ports || function.ports.is_subset(&now.ports);
        if !now.online || is_smaller || !keeps_ports {
            assert!(decision.lost.contains(&(Nsid::ALL, Some(FunctionId(id)))), "vf{id}");
        }
    }
}
