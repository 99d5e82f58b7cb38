//! A target, its disk and its hosts, each with one controller. Few of them are connected at a time.

mod ask;
mod look;
mod visits;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ebof_drive::Profile;
use ebof_manage::config::{Attach, DriveProfile};

use super::acts::What;
use super::model::{ModelLimits, ModelNamespace, Namespaces};
use crate::disk::Loss;
use crate::host::{Event, RawHost, nqn};
use crate::model::{Blocks, Op};
use crate::random::Random;
use crate::rig::acts::SystemAct;
use crate::rig::{EXTENT, Life as _, Rig, System};
use crate::story::Failure;
use crate::target_life::{Life, SUBSYSTEM, Setting};
use crate::transport::wire::{CompletedCommand, Wire};

/// Bytes of the largest drive: more extents than it takes namespaces by default.
const CAPACITY: u64 = 140 * EXTENT;
/// The longest NQN.
const NAME_BYTES: usize = 223;
/// Bytes that distinguish a host's NQN.
const NAME_BYTES_MIN: usize = 40;

pub(super) struct World {
    rig: Rig,
    setting: Setting,
    limits: ModelLimits,
    life: Option<Life>,
    hosts: Vec<RawHost>,
    /// Hosts that are connected, or connecting.
    present: BTreeSet<usize>,
    /// Controller identifiers that were given to hosts in this life.
    met: BTreeMap<u16, usize>,
    /// Controller identifiers whose assignment to a host is durable.
    cntlids: BTreeMap<u16, usize>,
    /// What the drive has to remember.
    namespaces: Namespaces,
    /// The result of a request that was not answered, if it was executed.
    unsure: Option<Unsure>,
    /// Hosts that have identified their namespaces since these have changed.
    informed: BTreeSet<usize>,
    /// The command under way, the host that has sent it, and its answer.
    asked: Option<(Op, usize)>,
    answer: Option<CompletedCommand>,
    /// A power cut (with its loss) or a kill (`None`) that is about to come.
    ends: Option<Option<Loss>>,
}

/// A namespace after a request that may have been executed.
struct Unsure {
    /// 0 for a new one.
    nsid: u32,
    /// `None`: it is gone.
    namespace: Option<ModelNamespace>,
}

impl World {
    pub(super) fn new(seed: u64) -> Result<Self, Failure> {
        let mut random = Random::for_part(seed, 4);
        let capacity_bytes = random.weighted(&[(3, CAPACITY), (1, 16 * EXTENT)]);
        let rig = Rig::new(seed, capacity_bytes)?;
        let encrypts = random.percent(30);
        let setting = Setting {
            encrypts,
            checks: random.percent(25) || encrypts && rig.profile.sector_bytes == 512,
            reactors: 1 + random.index(2),
            attach: Attach::Nobody,
            profile: random.weighted(&[(2, DriveProfile::Default), (1, DriveProfile::EthernetSsd)]),
            namespaces: random.weighted(&[(3, None), (1, Some(8)), (1, Some(32))]),
            overcommit: random.percent(30),
            ..Setting::with_capacity(capacity_bytes)
        };
        let profile = match setting.profile {
            DriveProfile::Default => Profile::unlimited(),
            DriveProfile::EthernetSsd => Profile::ethernet_ssd(),
        };
        let hosts = hosts(&mut random, rig.clock.now())?;
        let limits = ModelLimits {
            capacity_bytes,
            overcommit: setting.overcommit,
            namespaces: number(setting.namespaces.unwrap_or(profile.namespaces)),
            reserved: number(profile.reserved_namespaces),
            names: hosts.iter().map(|host| host.nqn.as_str().len()).collect(),
        };
        Ok(Self {
            rig,
            setting,
            limits,
            life: None,
            present: BTreeSet::new(),
            met: BTreeMap::new(),
            cntlids: BTreeMap::new(),
            hosts,
            namespaces: Namespaces::new(),
            unsure: None,
            informed: BTreeSet::new(),
            asked: None,
            answer: None,
            ends: None,
        })
    }

    fn on_event(&mut self, host: usize, event: Event) {
        match event {
            // Where the machine has stopped, what it seems to say is not said.
            Event::Ended(op, ended) if self.asked == Some((op, host)) && !self.rig.disk.is_off() => {
                self.answer = Some(ended);
            }
            Event::Lost(ops) if self.asked.is_some_and(|(asked, _)| ops.contains(&asked)) => {
                self.rig.count("lost commands");
                self.asked = None;
            }
            Event::Ended(..)
            | Event::Refused(..)
            | Event::Lost(_)
            | Event::Settled
            | Event::SettledOnly(_)
            | Event::Proven(_)
            | Event::Denied(_)
            | Event::Live => {}
        }
    }

    fn drop_hosts(&mut self) {
        let now = self.rig.clock.now();
        for &host in &self.present {
            self.hosts[host].drop_all(now, Duration::from_millis(1));
        }
        self.asked = None;
        self.met.clear();
        self.informed.clear();
    }

    /// Replaces or removes a namespace of the model.
    fn set(&mut self, nsid: u32, namespace: Option<ModelNamespace>) {
        match namespace {
            Some(namespace) => _ = self.namespaces.insert(nsid, namespace),
            None => _ = self.namespaces.remove(&nsid),
        }
    }

    /// Ends the life if the power is off, or if it is to be ended `now`, and begins the next one.
    fn end_if_it_is_time(&mut self, now: bool) -> Result<(), Failure> {
        if let Some(loss) = self.ends
            && (now || self.rig.disk.is_off())
        {
            self.ends = None;
            self.end(loss)?;
            self.start()?;
        }
        Ok(())
    }

    fn lose_power(&mut self) {
        self.namespaces.values_mut().for_each(ModelNamespace::lost_power);
        let unsure = self.unsure.as_mut().and_then(|unsure| unsure.namespace.as_mut());
        unsure.into_iter().for_each(ModelNamespace::lost_power);
    }
}

/// The hosts of a story, none of them connected.
fn hosts(random: &mut Random, now: Instant) -> Result<Vec<RawHost>, Failure> {
    let subsystem = nqn(SUBSYSTEM)?;
    let count = 2_u64 << random.below(9);
    let name_bytes = NAME_BYTES_MIN + random.index(NAME_BYTES - NAME_BYTES_MIN + 1);
    let host = |number: u64| {
        let mut name = format!("nqn.2014-08.org.example:host{number}:");
        name.extend(std::iter::repeat_n('x', name_bytes.saturating_sub(name.len())));
        let mut id = [1; 16];
        id[..8].copy_from_slice(&(number + 1).to_le_bytes());
        Ok(RawHost::new(nqn(&name)?, id, subsystem.clone(), 1, 4, now))
    };
    (0..count).map(host).collect()
}

fn number(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl System for World {
    type What = What;

    fn rig(&mut self) -> &mut Rig {
        &mut self.rig
    }

    fn act(&mut self, what: What) -> Result<(), Failure> {
        match what {
            What::Ask { ask, namespaces, percent } => ask::ask_for(self, ask, namespaces, percent)?,
            What::ChangeHosts { percent } => visits::change_hosts(self, percent)?,
            What::System(SystemAct::Kill { after }) => {
                self.rig.disk.cut_after(after);
                self.ends = Some(None);
            }
            What::System(SystemAct::PowerCut { after, loss }) => {
                self.rig.disk.cut_after(after);
                self.ends = Some(Some(loss));
            }
            What::System(act) => self.system_act(act)?,
        }
        self.end_if_it_is_time(false)
    }

    /// The hosts are one part: most of them have nothing to do.
    fn parts(&self) -> usize {
        self.life.as_ref().map_or(0, |life| life.parts()) + 1
    }

    fn turn(&mut self, part: usize) -> Result<(), Failure> {
        if let Some(part) = part.checked_sub(1) {
            self.life.iter_mut().for_each(|life| life.turn(part));
            return Ok(());
        }
        let now = self.rig.clock.now();
        for host in self.present.clone() {
            let is_asked = self.asked.is_some_and(|(_, asked)| asked == host);
            let one = &mut self.hosts[host];
            if one.is_live() && !is_asked && one.due(now).is_none_or(|due| due > now) {
                continue;
            }
            let life = &self.life;
            let mut connect = |_queue, entries: usize| life.as_ref()?.connect(entries).map(Wire::loopback);
            let had = one.cntlid();
            let events = one.step(now, &mut connect)?;
            if let (None, Some(cntlid), false) = (had, one.cntlid(), self.rig.disk.is_off()) {
                visits::has_controller(self, host, cntlid)?;
            }
            events.into_iter().for_each(|event| self.on_event(host, event));
        }
        Ok(())
    }

    fn after_turns(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn due(&mut self) -> Option<Instant> {
        let now = self.rig.clock.now();
        let hosts = self.present.iter().filter_map(|&host| self.hosts[host].due(now)).min();
        hosts.into_iter().chain(self.life.as_mut().and_then(|life| life.due())).min()
    }

    fn under_way(&self) -> String {
        let missing: Vec<usize> = self.present.iter().copied().filter(|&host| !self.hosts[host].is_live()).collect();
        format!("{:?}; not connected are {missing:?}", self.asked)
    }

    fn each_blocks(&mut self, _change: impl FnMut(&mut Blocks)) {}

    fn start(&mut self) -> Result<(), Failure> {
        self.life = Some(Life::open(&self.rig.disk, &self.rig.clock, self.setting, None, (None, None))?);
        if self.present.is_empty() {
            visits::introduce(self)?;
        }
        look::compare(self)
    }

    fn stop(&mut self) -> Result<(), Failure> {
        if let Some(mut life) = self.life.take() {
            life.shut_down();
            self.rig.wind_up(&mut life)?;
            life.close();
        }
        self.drop_hosts();
        self.lose_power();
        Ok(())
    }

    fn kill(&mut self) -> Result<(), Failure> {
        self.life = None;
        self.drop_hosts();
        self.lose_power();
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Failure> {
        self.end_if_it_is_time(true)?;
        look::compare(self)
    }
}
