//! How lives of a target begin and end, and what hosts find then.

use std::time::Duration;

use super::{Kind, World};
use crate::host::{Host, InitiatorHost};
use crate::model::{BlockValue, serial};
use crate::rig::System as _;
use crate::story::Failure;
use crate::target_life::Life;

impl World {
    pub(super) fn open(&mut self) -> Result<(), Failure> {
        let nsids: Vec<u32> = self.spaces.keys().copied().collect();
        nsids.into_iter().for_each(|nsid| _ = self.unregister(nsid, None));
        self.begin_life()?;
        let port = self.life.as_ref().map(Life::port);
        self.initiators().for_each(|host| host.reach().set_target(port.clone()));
        self.resume();
        self.manage.doubt(self.rig.clock.now());
        if let Some(failed) = &mut self.failed_change {
            failed.is_restarted = true;
        }
        if !self.until("hosts that are connected", |world| {
            world.manage.is_idle() && world.replays.is_empty() && world.hosts.iter().all(Host::is_live)
        })? {
            return Ok(());
        }
        self.compare()
    }

    /// Starts the target, in some cases with another configuration. Sometimes the system has not
    /// all that it needs: then it does not start, and does the next time.
    fn begin_life(&mut self) -> Result<(), Failure> {
        self.fabric.restore_device();
        if self.rig.chances.percent(40) {
            self.setting.encrypts = !self.setting.encrypts;
            self.setting.checks |= self.setting.encrypts && self.rig.profile.sector_bytes == 512;
        }
        if self.rig.chances.percent(10) {
            let ios_max = self.rig.chances.index(6);
            match self.open_life(Some(ios_max)) {
                Ok(life) => {
                    self.life = Some(life);
                    return Ok(());
                }
                Err(Failure(why)) => self.rig.note(|| format!("with {ios_max} of what it asks for: {why}")),
            }
            self.rig.count("failed starts");
            // What it had begun is done, or not.
            self.rig.disk.end(None);
        }
        self.life = Some(self.open_life(None)?);
        Ok(())
    }

    fn open_life(&self, ios_max: Option<usize>) -> Result<Life, Failure> {
        let surroundings = (Some(&self.fabric), self.proofs.as_ref().map(|proofs| &proofs.keys));
        Life::open(&self.rig.disk, &self.rig.clock, self.setting, ios_max, surroundings)
    }

    /// Whether the queues of a host are over RDMA.
    pub(super) fn is_over_rdma(&self, host: usize) -> bool {
        match &self.hosts[host] {
            Host::Raw(_) => self.over_rdma[host],
            Host::Initiator(initiator) => initiator.is_over_rdma(),
        }
    }

    pub(super) fn initiators(&self) -> impl Iterator<Item = &InitiatorHost> {
        self.hosts.iter().filter_map(|host| match host {
            Host::Initiator(host) => Some(&**host),
            Host::Raw(_) => None,
        })
    }

    /// The target is gone, and all connections with it. Initiators come back by themselves.
    pub(super) fn drop_hosts(&mut self, at_once: bool) -> Result<(), Failure> {
        self.threaten_all();
        self.liar.clear();
        if at_once {
            self.fabric.cut();
        }
        for host in self.initiators() {
            host.reach().set_target(None);
            if at_once {
                host.reach().cut();
            }
        }
        let now = self.rig.clock.now();
        for host in 0..self.hosts.len() {
            if self.hosts[host].is_initiator() {
                continue;
            }
            let lost = self.hosts[host].drop_all(now, Duration::from_millis(1));
            lost.into_iter().try_for_each(|event| self.on_event(host, event))?;
        }
        self.end_unknown(|_, _| true);
        Ok(())
    }

    /// What hosts repeat until it has ended is under way in the next life, too.
    fn resume(&mut self) {
        let now = self.rig.now();
        for (&op, flight) in self.flights.iter().filter(|(_, flight)| flight.repeats) {
            self.rig.count("taken over");
            let Some(space) = self.spaces.get_mut(&flight.nsid) else { continue };
            let range = flight.range.clone();
            match flight.kind {
                Kind::Read => space.blocks.begin_read(op, now),
                Kind::Write { .. } => space.blocks.begin(op, range, BlockValue::Write(serial(op)), now),
                Kind::Zero => space.blocks.begin(op, range, BlockValue::Zeros, now),
                _ => {}
            }
        }
    }
}
