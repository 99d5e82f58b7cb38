//! How lives of a target begin and end, and what hosts find then.

use std::time::Duration;

use super::super::life::Life;
use super::{GRACE, World};
use crate::disk::Loss;
use crate::random::Random;
use crate::story::Failure;

impl World {
    pub(super) fn open(&mut self) -> Result<(), Failure> {
        let nsids: Vec<u32> = self.spaces.keys().copied().collect();
        nsids.into_iter().for_each(|nsid| _ = self.unregister(nsid, None));
        self.life = Some(Life::open(&self.disk, &self.clock, self.setting)?);
        self.manage.doubt(self.clock.now());
        if !self.until("hosts that are connected", |world| {
            world.manage.is_idle() && world.hosts.iter().all(super::Host::is_live)
        })? {
            return Ok(());
        }
        self.compare()
    }

    /// All that is under way comes to its end, the disk works, and everything is compared.
    pub(super) fn rest(&mut self) -> Result<(), Failure> {
        self.disk.heal();
        if let Some(failed) = self.failed {
            let calm = (failed + GRACE).saturating_duration_since(self.clock.now());
            self.sleep(calm)?;
        }
        self.until("all that is under way", |world| {
            world.flights.is_empty() && world.manage.is_idle() && world.hosts.iter().all(super::Host::is_live)
        })?;
        self.settle(|_| true);
        self.compare()
    }

    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        self.rest()?;
        self.close()?;
        self.open()
    }

    /// Ends a life in order: what was acknowledged is flushed.
    fn close(&mut self) -> Result<(), Failure> {
        if let Some(life) = self.life.take() {
            life.close(&self.disk, &self.clock)?;
        }
        self.drop_hosts()?;
        let now = self.now();
        self.spaces.values_mut().for_each(|space| space.blocks.flushed(now, now));
        Ok(())
    }

    fn drop_hosts(&mut self) -> Result<(), Failure> {
        let now = self.clock.now();
        for host in 0..self.hosts.len() {
            let lost = self.hosts[host].drop_all(now, Duration::from_millis(1));
            lost.into_iter().try_for_each(|event| self.told(host, event))?;
        }
        self.settle(|_| true);
        Ok(())
    }

    /// Ends a life when the disk has done so many more things: by a kill, or with the power.
    pub(super) fn crash(&mut self, after: u64, loss: Option<Loss>) -> Result<(), Failure> {
        self.disk.cut_after(after);
        for _ in 0..self.chances.below(200) {
            if self.disk.is_off() {
                break;
            }
            self.step()?;
        }
        self.count(if loss.is_some() { "power cuts" } else { "kills" });
        self.disk.cut();
        if let Some(life) = self.life.take() {
            life.abandon();
        }
        self.drop_hosts()?;
        self.disk.end(loss);
        self.failed = None;
        let now = self.now();
        for space in self.spaces.values_mut() {
            match loss {
                Some(_) => space.blocks.lost_power(now),
                None => space.blocks.killed(now),
            }
        }
        self.open()
    }

    pub(in crate::target) fn finish(&mut self) -> Result<(), Failure> {
        self.chances = Random::of(self.seed, 3);
        self.restart()?;
        self.close()
    }
}
