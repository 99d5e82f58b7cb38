//! Hosts that come and go, and the controllers that they have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::World;
use crate::rig::System as _;
use crate::story::{Failure, fail};

/// Hosts that are connected at a time, at most, besides visitors.
const PRESENT_MAX: u64 = 8;
/// Hosts that connect together the first time.
const TOGETHER: usize = 64;
/// Hosts that connect only for a comparison.
const VISITORS: usize = 4;
/// How long a host stays away that is not asked to come.
const AWAY: Duration = Duration::from_secs(1 << 30);

impl World {
    /// Every host connects once, so that the drive assigns it a controller identifier; some stay.
    pub(super) fn introduce(&mut self) -> Result<(), Failure> {
        let all: Vec<usize> = (0..self.hosts.len()).collect();
        for some in all.chunks(TOGETHER) {
            self.come(some)?;
            // When the drive's thread has answered, it has recorded all of their controllers.
            self.health(some[0])?;
            self.leave(some);
        }
        let count = usize::try_from(1 + self.rig.chances.below(PRESENT_MAX)).unwrap_or(1);
        let some = self.some_of_those_away(count);
        self.come(&some).map(drop)
    }

    /// Others come instead of some of those that are here.
    pub(super) fn change_hosts(&mut self, percent: u64) -> Result<(), Failure> {
        let present: Vec<usize> = self.present.iter().copied().collect();
        let leaving: Vec<usize> = present.into_iter().filter(|_| self.rig.chances.percent(percent)).collect();
        let coming = self.some_of_those_away(leaving.len());
        if self.come(&coming)? {
            self.leave(&leaving[..coming.len()]);
        }
        Ok(())
    }

    /// Hosts are connected; `false` where the power goes before that.
    pub(super) fn come(&mut self, hosts: &[usize]) -> Result<bool, Failure> {
        let now = self.rig.clock.now();
        for &host in hosts {
            self.present.insert(host);
            self.hosts[host].drop_all(now, Duration::ZERO);
        }
        self.are_here()
    }

    /// Waits until all hosts are connected; `false` where the power goes before that.
    pub(super) fn are_here(&mut self) -> Result<bool, Failure> {
        self.until("hosts that connect", |world| world.present.iter().all(|&host| world.hosts[host].is_live()))
    }

    pub(super) fn leave(&mut self, hosts: &[usize]) {
        let now = self.rig.clock.now();
        for host in hosts {
            self.present.remove(host);
            self.informed.remove(host);
            self.hosts[*host].drop_all(now, AWAY);
        }
    }

    /// The hosts that connect for a comparison: some of these, and some others.
    pub(super) fn visitors(&mut self, some: BTreeSet<usize>) -> Vec<usize> {
        let mut visitors = some;
        visitors.retain(|host| !self.present.contains(host));
        visitors = visitors.into_iter().take(VISITORS).collect();
        visitors.extend(self.some_of_those_away(VISITORS));
        visitors.into_iter().collect()
    }

    fn some_of_those_away(&mut self, count: usize) -> Vec<usize> {
        let away: Vec<usize> = (0..self.hosts.len()).filter(|host| !self.present.contains(host)).collect();
        let from = self.rig.chances.index(away.len());
        let count = count.min(away.len());
        away.into_iter().cycle().skip(from).take(count).collect()
    }

    /// A controller identifier that is assigned to a host, connected or not.
    pub(super) fn cntlid(&self, host: usize) -> Option<u16> {
        let of = |cntlids: &BTreeMap<u16, usize>| cntlids.iter().find_map(|(&one, &its)| (its == host).then_some(one));
        of(&self.met).or_else(|| of(&self.cntlids))
    }

    /// A host has got a controller: its identifier must be one that is assigned to the host, or to
    /// nobody.
    pub(super) fn has_controller(&mut self, host: usize, cntlid: u16) -> Result<(), Failure> {
        if let Some(other) = self.cntlids.get(&cntlid).filter(|other| **other != host) {
            return fail(format!(
                "host {host} has controller {cntlid}, which the drive has to remember as host {other}'s"
            ));
        }
        // In the same life the previous controller may still be there; the host gets another then.
        let is_first = self.met.values().all(|other| *other != host);
        let is_known = self.cntlids.values().any(|other| *other == host);
        if is_first && is_known && !self.cntlids.contains_key(&cntlid) {
            return fail(format!("host {host} has controller {cntlid}, and had another one that is free"));
        }
        // If a host leaves before its assignment is recorded, another may get the identifier.
        self.met.insert(cntlid, host);
        Ok(())
    }
}
