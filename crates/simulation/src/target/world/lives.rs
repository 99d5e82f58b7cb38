//! How lives of a target begin and end, and what hosts find then.

use std::time::Duration;

use super::super::life::Life;
use super::World;
use crate::rig::System as _;
use crate::story::Failure;

impl World {
    pub(super) fn open(&mut self) -> Result<(), Failure> {
        let nsids: Vec<u32> = self.spaces.keys().copied().collect();
        nsids.into_iter().for_each(|nsid| _ = self.unregister(nsid, None));
        self.life = Some(Life::open(&self.rig.disk, &self.rig.clock, self.setting)?);
        self.manage.doubt(self.rig.clock.now());
        if !self.until("hosts that are connected", |world| {
            world.manage.is_idle() && world.hosts.iter().all(super::Host::is_live)
        })? {
            return Ok(());
        }
        self.compare()
    }

    /// All connections are gone.
    pub(super) fn drop_hosts(&mut self) -> Result<(), Failure> {
        let now = self.rig.clock.now();
        for host in 0..self.hosts.len() {
            let lost = self.hosts[host].drop_all(now, Duration::from_millis(1));
            lost.into_iter().try_for_each(|event| self.told(host, event))?;
        }
        self.settle(|_| true);
        Ok(())
    }
}
