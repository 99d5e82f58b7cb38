//! What happens to hosts: commands that end, are lost or can do nothing any more, and connections
//! that are new.

use std::collections::{BTreeMap, BTreeSet};

use super::{Flight, Kind, World, io};
use crate::host::{Event, Host};
use crate::model::{Op, serial};
use crate::story::{Failure, fail};

impl World {
    /// Handles an event of a host.
    pub(super) fn on_event(&mut self, host: usize, event: Event) -> Result<(), Failure> {
        match event {
            Event::Ended(op, ended) => self.ended(op, &ended),
            Event::Lost(ops) => {
                self.rig.note(|| format!("host {host} has lost its connections, with {ops:?}"));
                let is_leaving = matches!(&self.hosts[host], Host::Raw(raw) if raw.is_leaving());
                self.keep_waiting(&ops);
                for op in ops {
                    let Some(flight) = self.flights.remove(&op) else { continue };
                    let flight = Flight { is_cut_off: is_leaving, ..flight };
                    if let Some(space) = self.spaces.get_mut(&flight.nsid) {
                        space.blocks.end_read(op);
                    }
                    self.forget_compared(op);
                    if self.rig.is_comparing && flight.kind == Kind::Read {
                        let (nsid, range) = (flight.nsid, flight.range.clone());
                        self.unread.push(io::Unread { nsid, range, conflicts: false });
                    }
                    self.lost_manage(op, &flight);
                    self.scans.remove(&op);
                    // Its time-out has passed: whether it is done yet is known when the controller
                    // was reset.
                    if flight.kind == Kind::Manage && self.hosts[host].is_live() {
                        self.hosts[host].leave(false, true, self.rig.clock.now());
                    }
                    self.ghosts.insert(op, flight);
                }
                Ok(())
            }
            Event::Refused(op, why) => self.refused(op, &why),
            Event::Settled => {
                self.confirm_ended("was told that its queues are closed", host, |_, flight| flight.host == host)
            }
            Event::Proven(begun) => self.proven(host, begun),
            Event::Denied(begun) => self.denied(host, begun),
            Event::SettledOnly(ops) => {
                self.threats.connected(host);
                self.rig.count("reconnects");
                self.confirm_ended("has connected again", host, |op, _| ops.contains(&op))?;
                self.join_all(host);
                Ok(())
            }
            Event::Live => {
                self.rig.note(|| format!("host {host} is connected"));
                self.threats.connected(host);
                self.spaces.values_mut().for_each(|space| _ = space.strangers.insert(host));
                self.handles.retain(|(of, _), _| *of != host);
                self.replay(host);
                self.scan(host);
                self.rig.count("associations");
                if self.is_over_rdma(host) {
                    self.rig.count("associations over RDMA");
                }
                Ok(())
            }
        }
    }

    /// These of the commands whose connections are gone can do nothing any more.
    pub(super) fn end_unknown(&mut self, which: impl Fn(Op, &Flight) -> bool) {
        let now = self.rig.now();
        let spaces = &mut self.spaces;
        let mut unregistered = Vec::new();
        self.ghosts.retain(|&op, flight| {
            let is_over = which(op, flight);
            if is_over && let Some(space) = spaces.get_mut(&flight.nsid) {
                space.blocks.end_unknown(op, flight.range.clone(), now);
            }
            unregistered.extend(flight.kind.unregisters().filter(|_| is_over).map(|host| (flight.nsid, host)));
            !is_over
        });
        unregistered.into_iter().for_each(|(nsid, host)| _ = self.unregister(nsid, host));
    }

    /// The same, as a host has it from the target: then no write of them is at the disk, nor comes
    /// there.
    pub(super) fn confirm_ended(
        &mut self,
        why: &str,
        host: usize,
        which: impl Fn(Op, &Flight) -> bool,
    ) -> Result<(), Failure> {
        let writes = self.ghosts.iter().filter(|(op, flight)| flight.is_write() && which(**op, flight));
        let mut serials: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (&op, flight) in writes {
            serials.entry(flight.nsid).or_default().insert(serial(op));
        }
        self.end_unknown(which);
        for (nsid, serials) in serials {
            if let Some(space) = self.spaces.get(&nsid) {
                self.rig.disk.bar(serials.iter().map(|&serial| space.blocks.mark(serial)));
            }
            if !self.at_disk(nsid, &serials).is_empty() {
                return fail(format!(
                    "host {host} {why}, and a write of before to namespace {nsid} is still at the disk"
                ));
            }
        }
        Ok(())
    }

    /// Which of these writes to a namespace are at the disk, as far as that can be seen: where
    /// blocks are encrypted it cannot.
    pub(super) fn at_disk(&self, nsid: u32, serials: &BTreeSet<u32>) -> BTreeSet<u32> {
        let Some(space) = self.spaces.get(&nsid) else { return BTreeSet::new() };
        self.rig.disk.writes_under_way(|word| space.blocks.serial_in(word)).intersection(serials).copied().collect()
    }
}
