//! What a host finds out about a namespace before it uses it, as hosts do: one that came in the
//! place of another is not shown, and its commands are refused, until the host has identified it.

use std::collections::BTreeSet;
use std::time::Duration;

use ebof_nvme::identify::{Cns, IdentifyNamespace, NamespaceList};
use ebof_nvme::io::BlockRange;
use ebof_nvme::log::{GetLogPage, Lid};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::FromBytes;

use super::{Flight, Kind, World, command};
use crate::host::Host;
use crate::model::Op;
use crate::rig::System as _;
use crate::story::{Failure, fail};
use crate::transport::wire::CompletedCommand;

/// After a change of a namespace, for so long an initiator may take it for another one, or for
/// gone.
const HEARD: Duration = Duration::from_secs(5);

/// An initiator asks by itself. The target may have answered before the namespace was made, and the
/// answer may be on its way for so long: then the target takes the host for one that knows.
const ASKED: Duration = Duration::from_secs(1);

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
        // It queries again when it has given up what it held.
        if self.holds_another(host, nsid) {
            return false;
        }
        // The initiator leaves blocks with metadata alone.
        if space.format > 1 && self.hosts[host].is_initiator() {
            return false;
        }
        let is_asking =
            |flight: &Flight| flight.host == host && matches!(flight.kind, Kind::Learn | Kind::Prepare | Kind::Sight);
        if !self.flights.values().any(is_asking) {
            self.learn(host, nsid);
        }
        false
    }

    /// A host has asked, or is another one to the controller: it knows what is where.
    pub(super) fn forget_stale(&mut self, host: usize) {
        self.asked.insert(host, self.rig.clock.now());
        self.stale.values_mut().for_each(|hosts| _ = hosts.remove(&host));
    }

    /// A namespace is gone; `by` is who had it deleted, where that is known.
    pub(super) fn remove_space(&mut self, nsid: u32, by: Option<usize>) {
        let Some(space) = self.spaces.remove(&nsid) else { return };
        if let Some(by) = by {
            let is_raw = |host: &usize| !self.hosts[*host].is_initiator();
            let hosts = (0..self.hosts.len()).filter(is_raw);
            // Who has asked since the command was sent may have received it.
            let has_asked = |host: &usize| self.asked.get(host).is_some_and(|asked| self.manage.is_begun_by(*asked));
            let knew = hosts.filter(|host| *host != by && !space.strangers.contains(host) && !has_asked(host));
            self.stale.entry(nsid).or_default().extend(knew);
        } else {
            self.stale.remove(&nsid);
        }
    }

    /// Has a host use a number for what it was, where that is another namespace now.
    pub(super) fn read_stale(&mut self, host: usize, queue: usize, nsid: u32) -> bool {
        // Of an initiator that holds at any time; others may have received nothing yet.
        let is_known = self.hosts[host].is_initiator() || self.manage.is_idle();
        if !self.is_stale(host, nsid) || !is_known || !self.hosts[host].is_live() || self.rig.chances.percent(40) {
            return false;
        }
        let op = self.rig.number();
        let (begun, at) = (self.rig.now(), self.rig.clock.now());
        let flight = Flight { range: 0..1, ..Flight::new(host, nsid, Kind::Stale, begun, at) };
        let known = self.handles.get(&(host, nsid)).map(|(_, format)| self.coding(*format).block_bytes());
        let bytes =
            known.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(self.spaces[&nsid].blocks.block_bytes);
        let sqe = BlockRange::new(0, 1).encode(nvm::READ, Nsid(nsid));
        self.submit(op, host, queue, flight, command(sqe, None, bytes))
    }

    /// Whether a host that uses a number as it knows it must not reach what is there now.
    fn is_stale(&self, host: usize, nsid: u32) -> bool {
        // An initiator keeps to what it has opened, whatever it has asked since.
        let is_other =
            |&(identity, _): &(u32, usize)| self.spaces.get(&nsid).is_some_and(|space| space.identity != identity);
        self.handles.get(&(host, nsid)).is_some_and(is_other)
            || self.stale.get(&nsid).is_some_and(|hosts| hosts.contains(&host)) && !self.is_asking(host)
    }

    /// Whether a host waits for what it has asked: that may have been answered already.
    fn is_asking(&self, host: usize) -> bool {
        let asks =
            |flight: &Flight| flight.host == host && matches!(flight.kind, Kind::Learn | Kind::Prepare | Kind::Sight);
        self.flights.values().any(asks)
    }

    /// An initiator does not send a command, for what it knows of the namespace.
    pub(super) fn refused(&mut self, op: Op, why: &str) -> Result<(), Failure> {
        let Some(flight) = self.flights.remove(&op) else { return fail(format!("{op} has ended twice")) };
        self.rig.note(|| format!("{op}: {:?} of host {} is not sent: {why}", flight.kind, flight.host));
        self.rig.count("not sent");
        let (tick, now) = (self.rig.now(), self.rig.clock.now());
        self.forget_compared(op);
        let Flight { host, nsid, kind, ref range, .. } = flight;
        let handle = self.handles.get(&(host, nsid)).copied();
        let is_changing = !self.manage.is_idle();
        let Some(space) = self.spaces.get_mut(&nsid) else { return Ok(()) };
        space.blocks.end_read(op);
        // What is repeated may have been done before.
        space.blocks.end_unknown(op, range.clone(), tick);
        space.strangers.insert(host);
        let is_other = handle != Some((space.identity, space.format));
        let is_explained = is_changing || is_other || space.is_unsure || now < space.changed + HEARD;
        if is_explained || matches!(kind, Kind::Stale | Kind::Learn) {
            return Ok(());
        }
        fail(format!("{op}: {kind:?} {range:?} of namespace {nsid} by host {host} is not sent without a reason: {why}"))
    }

    pub(super) fn stale_ended(&mut self, flight: &Flight, status: Status) -> Result<(), Failure> {
        // It may have asked meanwhile.
        let is_stale = self.is_stale(flight.host, flight.nsid);
        let is_new = self.spaces.get(&flight.nsid).is_none_or(|space| flight.at < space.changed + ASKED);
        let may_have_asked = self.hosts[flight.host].is_initiator() && is_new;
        if status.is_success() && is_stale && !may_have_asked {
            let Flight { host, nsid, .. } = flight;
            return fail(format!("host {host} reads another namespace under the number {nsid} of one that it knew"));
        }
        self.rig.count("stale reads");
        Ok(())
    }

    /// The same; a host that does not know it mostly waits for what it asks.
    pub(super) fn comes_to_use(&mut self, host: usize, nsid: u32) -> Result<bool, Failure> {
        for _ in 0..self.rig.chances.below(100) {
            if self.may_use(host, nsid) {
                return Ok(true);
            }
            if !self.is_asking(host) {
                break;
            }
            self.step()?;
        }
        Ok(self.may_use(host, nsid))
    }

    /// A host queries what there is, as hosts do when they are connected.
    pub(super) fn scan(&mut self, host: usize) {
        let nsids: Vec<u32> = self.spaces.keys().copied().collect();
        self.ask(host, &nsids);
    }

    /// Reads which namespaces have changed, which there are, and what this one is.
    fn learn(&mut self, host: usize, nsid: u32) {
        self.ask(host, &[nsid]);
    }

    fn ask(&mut self, host: usize, nsids: &[u32]) {
        self.forget_stale(host);
        if let Host::Initiator(initiator) = &mut self.hosts[host] {
            for &nsid in nsids {
                let op = self.rig.number();
                if initiator.open(op, Nsid(nsid)) {
                    let flight = Flight::new(host, nsid, Kind::Learn, self.rig.now(), self.rig.clock.now());
                    self.flights.insert(op, flight);
                }
            }
            return;
        }
        let Some(&first) = nsids.first() else { return };
        let log = GetLogPage::new(Lid::CHANGED_NAMESPACES, 4096).encode(Nsid::ALL);
        self.query_step(host, Kind::Prepare, first, log);
        if let Some(op) = self.query_step(host, Kind::Prepare, first, identify(Cns::ACTIVE_NAMESPACE_LIST, 0)) {
            self.scans.insert(op, nsids.to_vec());
        }
    }

    /// Sends a command of a scan.
    fn query_step(&mut self, host: usize, kind: Kind, nsid: u32, sqe: Sqe) -> Option<Op> {
        let op = self.rig.number();
        let flight = Flight::new(host, nsid, kind, self.rig.now(), self.rig.clock.now());
        self.submit(op, host, 0, flight, command(sqe, None, 4096)).then_some(op)
    }

    /// A host has listed its namespaces: of these it looks at those that are in the list, and what
    /// is not there is gone for it.
    fn listed_by(&mut self, host: usize, wanted: &[u32], data: &[u8]) -> Result<(), Failure> {
        let list = NamespaceList::read_from_bytes(data).map_err(|error| Failure(error.to_string()))?;
        let there: BTreeSet<u32> = list.iter().map(|nsid| nsid.0).collect();
        self.forget_waiting(host, |nsid| !there.contains(&nsid));
        for &nsid in wanted.iter().filter(|nsid| there.contains(nsid)) {
            // As Linux does: it identifies once more only what it keeps.
            self.query_step(host, Kind::Sight, nsid, identify(Cns::NAMESPACE_ID_DESCRIPTORS, nsid));
            self.query_step(host, Kind::Sight, nsid, identify(Cns::INDEPENDENT_NAMESPACE, nsid));
            if !self.holds_another(host, nsid) {
                self.query_step(host, Kind::Learn, nsid, identify(Cns::NAMESPACE, nsid));
            }
        }
        Ok(())
    }

    pub(super) fn learn_ended(&mut self, op: Op, flight: &Flight, ended: &CompletedCommand) -> Result<(), Failure> {
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
        if let Some(wanted) = self.scans.remove(&op) {
            return self.listed_by(flight.host, &wanted, &ended.data);
        }
        if flight.kind == Kind::Sight {
            self.found(flight.host, flight.nsid);
        }
        if flight.kind == Kind::Learn {
            // Which one an initiator has opened now is not known yet.
            self.handles.remove(&(flight.host, flight.nsid));
            let shape = IdentifyNamespace::read_from_bytes(&ended.data).map_err(|error| Failure(error.to_string()))?;
            if let Some(space) = self.spaces.get_mut(&flight.nsid)
                && (usize::from(shape.flbas & 0xf), shape.nsze.get()) == (space.format, space.count)
                && flight.begun > space.born
            {
                space.strangers.remove(&flight.host);
                if self.hosts[flight.host].is_initiator() {
                    self.handles.insert((flight.host, flight.nsid), (space.identity, space.format));
                }
                self.join(flight.host, flight.nsid);
            }
        }
        Ok(())
    }
}

fn identify(cns: Cns, nsid: u32) -> Sqe {
    Sqe::new(admin::IDENTIFY).with_nsid(Nsid(nsid)).with_cdw(10, u32::from(cns.0))
}
