//! What a host finds out about a namespace before it uses it, as hosts do: one that came in the
//! place of another is not shown, and its commands are refused, until the host has looked.

use ebof_nvme::identify::{Cns, IdentifyNamespace};
use ebof_nvme::log::{GetLogPage, Lid};
use ebof_nvme::opcode::admin;
use ebof_nvme::{Nsid, Sqe};
use zerocopy::FromBytes;

use super::{Flight, Kind, World, command};
use crate::model::Op;
use crate::story::Failure;
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

    /// Reads which namespaces have changed, which there are, and what this one is.
    fn learn(&mut self, host: usize, nsid: u32) {
        let log = GetLogPage::new(Lid::CHANGED_NAMESPACES, 4096).encode(Nsid::ALL);
        let identify =
            |cns: Cns, nsid: u32| Sqe::new(admin::IDENTIFY).with_nsid(Nsid(nsid)).with_cdw(10, u32::from(cns.0));
        let steps = [
            (Kind::Prepare, log),
            (Kind::Prepare, identify(Cns::ACTIVE_NAMESPACE_LIST, 0)),
            (Kind::Learn, identify(Cns::NAMESPACE, nsid)),
        ];
        for (kind, sqe) in steps {
            self.number();
            let (begun, at) = (self.now(), self.clock.now());
            let flight = Flight { host, nsid, kind, range: 0..0, begun, at };
            self.submit(host, 0, flight, command(sqe, None, 4096));
        }
    }

    pub(super) fn learn_ended(&mut self, op: Op, flight: &Flight, ended: &Outcome) -> Result<(), Failure> {
        let status = ended.cqe.status();
        if !status.is_success() {
            // It may be gone, or not be shown yet.
            let is_there = self.spaces.contains_key(&flight.nsid) && flight.kind == Kind::Prepare;
            let may_fail = self.may_fail(flight.at) || self.may_be_aborted(flight, status);
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
