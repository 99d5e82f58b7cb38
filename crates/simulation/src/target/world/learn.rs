//! What a host finds out about a namespace before it uses it, as hosts do: one that came in the
//! place of another is not shown, and its commands are refused, until the host has looked.

use ebof_nvme::identify::{Cns, IdentifyNamespace};
use ebof_nvme::io::BlockRange;
use ebof_nvme::log::{GetLogPage, Lid};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::FromBytes;

use super::{Flight, Kind, World, command};
use crate::model::Op;
use crate::story::{Failure, fail};
use crate::wire::Outcome;

impl World {
    /// Whether a host may use a namespace now; has it ask what that is where it does not know.
    pub(super) fn may_use(&mut self, host: usize, nsid: u32) -> bool {
        let Some(space) = self.spaces.get(&nsid) else { return false };
        if space.is_unsure || !self.hosts[host].is_live() || self.manage.is_sanitizing() {
            return false;
        }
        if !space.strangers.contains(&host) {
            return true;
        }
        let is_asking = |flight: &Flight| flight.host == host && matches!(flight.kind, Kind::Learn | Kind::Prepare);
        if !self.flights.values().any(is_asking) {
            self.learn(host, nsid);
        }
        false
    }

    /// A host has asked, or is another one to the controller: it knows what is where.
    pub(super) fn forget_stale(&mut self, host: usize) {
        self.stale.values_mut().for_each(|hosts| _ = hosts.remove(&host));
    }

    /// A namespace is gone; `by` is who had it deleted, where that is known.
    pub(super) fn remove_space(&mut self, nsid: u32, by: Option<usize>) {
        let Some(space) = self.spaces.remove(&nsid) else { return };
        if let Some(by) = by {
            let knew = (0..self.hosts.len()).filter(|host| *host != by && !space.strangers.contains(host));
            self.stale.entry(nsid).or_default().extend(knew);
        } else {
            self.stale.remove(&nsid);
        }
    }

    /// Has a host use a number for what it was, where that is another namespace now.
    pub(super) fn read_stale(&mut self, host: usize, queue: usize, nsid: u32) -> bool {
        let is_stale = self.stale.get(&nsid).is_some_and(|hosts| hosts.contains(&host));
        if !is_stale || !self.manage.is_idle() || !self.hosts[host].is_live() || self.rig.chances.percent(40) {
            return false;
        }
        let op = self.rig.number();
        let (begun, at) = (self.rig.now(), self.rig.clock.now());
        let flight = Flight { host, nsid, kind: Kind::Stale, range: 0..1, begun, at };
        let bytes = self.spaces[&nsid].blocks.block_bytes;
        let sqe = BlockRange::new(0, 1).encode(nvm::READ, Nsid(nsid));
        self.submit(op, host, queue, flight, command(sqe, None, bytes))
    }

    pub(super) fn stale_ended(&mut self, flight: &Flight, status: Status) -> Result<(), Failure> {
        // It may have asked meanwhile.
        let is_stale = self.stale.get(&flight.nsid).is_some_and(|hosts| hosts.contains(&flight.host));
        if status.is_success() && is_stale {
            let Flight { host, nsid, .. } = flight;
            return fail(format!("host {host} reads another namespace under the number {nsid} of one that it knew"));
        }
        self.rig.count("stale reads");
        Ok(())
    }

    /// Reads which namespaces have changed, which there are, and what this one is.
    fn learn(&mut self, host: usize, nsid: u32) {
        self.forget_stale(host);
        let log = GetLogPage::new(Lid::CHANGED_NAMESPACES, 4096).encode(Nsid::ALL);
        let identify =
            |cns: Cns, nsid: u32| Sqe::new(admin::IDENTIFY).with_nsid(Nsid(nsid)).with_cdw(10, u32::from(cns.0));
        let steps = [
            (Kind::Prepare, log),
            (Kind::Prepare, identify(Cns::ACTIVE_NAMESPACE_LIST, 0)),
            (Kind::Learn, identify(Cns::NAMESPACE, nsid)),
        ];
        for (kind, sqe) in steps {
            let op = self.rig.number();
            let (begun, at) = (self.rig.now(), self.rig.clock.now());
            let flight = Flight { host, nsid, kind, range: 0..0, begun, at };
            self.submit(op, host, 0, flight, command(sqe, None, 4096));
        }
    }

    pub(super) fn learn_ended(&mut self, op: Op, flight: &Flight, ended: &Outcome) -> Result<(), Failure> {
        let status = ended.cqe.status();
        // What went while it asked may have been gone when it was answered.
        self.forget_stale(flight.host);
        if !status.is_success() {
            // It may be gone, or not be shown yet.
            let is_there = self.spaces.contains_key(&flight.nsid) && flight.kind == Kind::Prepare;
            let may_fail = self.rig.may_fail(flight.at) || self.may_be_aborted(flight, status);
            if !is_there || may_fail || self.manage.is_sanitizing() {
                return Ok(());
            }
            return Err(self.unexplained(op, flight, status));
        }
        if flight.kind == Kind::Learn {
            let shape = IdentifyNamespace::read_from_bytes(&ended.data).map_err(|error| Failure(error.to_string()))?;
            if let Some(space) = self.spaces.get_mut(&flight.nsid)
                && (usize::from(shape.flbas & 0xf), shape.nsze.get()) == (space.format, space.count)
                && flight.begun > space.born
            {
                space.strangers.remove(&flight.host);
            }
        }
        Ok(())
    }
}
