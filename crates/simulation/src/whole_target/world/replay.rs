//! Hosts that repeat what waited as soon as they are connected again, as Linux does, and look at
//! the namespaces afterwards: another one may have come under the number.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nsid, Status};

use super::super::acts::{BLOCKS, HOSTS};
use super::{Flight, Kind, World, command};
use crate::host::Host;
use crate::model::{Blocks, Op, Tick, serial};
use crate::random::Random;
use crate::rig::System as _;
use crate::story::{Failure, fail};

/// How often a host repeats a write.
const TRIES: u8 = 5;

/// How long it waits between that.
const DELAY: Duration = Duration::from_secs(1);

/// A write that a host repeats.
#[derive(Clone, Debug)]
pub(super) struct RepeatedWrite {
    host: usize,
    nsid: u32,
    /// The namespace that it is meant for, and since when that has this format.
    identity: u32,
    born: Tick,
    /// Whose blocks are written.
    owner: u16,
    block_bytes: usize,
    range: Range<u64>,
    tries: u8,
    at: Instant,
}

/// Writes of lost connections that hosts repeat.
pub(super) struct Replays {
    /// Hosts that do so.
    hosts: BTreeSet<usize>,
    /// What they would repeat of what is under way.
    repeatable: BTreeMap<Op, RepeatedWrite>,
    /// What waits for that.
    waiting: Vec<RepeatedWrite>,
}

impl Replays {
    /// Some of these hosts are such ones.
    pub(super) fn choose(hosts: &[Host], random: &mut Random) -> Self {
        let raw = (0..hosts.len()).filter(|&host| !hosts[host].is_initiator());
        let hosts = raw.filter(|_| random.percent(60)).collect();
        Self { hosts, repeatable: BTreeMap::new(), waiting: Vec::new() }
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl World {
    /// A write that is under way is one to this namespace, if its host may repeat it.
    pub(super) fn note_write(&mut self, op: Op, flight: &Flight) {
        if !flight.is_write() || !self.replays.hosts.contains(&flight.host) || self.rig.is_comparing {
            return;
        }
        if let Some(waiting) = self.repeated_write(flight.host, flight.nsid, flight.range.clone()) {
            self.replays.repeatable.insert(op, waiting);
        }
    }

    /// A write to what this number names now.
    fn repeated_write(&self, host: usize, nsid: u32, range: Range<u64>) -> Option<RepeatedWrite> {
        let space = self.spaces.get(&nsid)?;
        let (owner, block_bytes) = (space.blocks.owner, space.blocks.block_bytes);
        let (identity, born, at) = (space.identity, space.born, self.rig.clock.now());
        Some(RepeatedWrite { host, nsid, identity, born, owner, block_bytes, range, tries: 0, at })
    }

    /// A host is away, with writes that wait, while another one deletes the namespace that they are
    /// meant for and makes another one, mostly under its number.
    pub(super) fn swap(&mut self, host: usize, slot: usize, block: u64, pause: Duration) -> Result<(), Failure> {
        let Some(nsid) = self.nsid(slot) else { return Ok(()) };
        let space = &self.spaces[&nsid];
        let knows = |host: &usize| self.hosts[*host].is_live() && !space.strangers.contains(host);
        let mut hosts = (0..HOSTS).map(|at| (host + at) % HOSTS).filter(|host| self.replays.hosts.contains(host));
        let Some(away) = hosts.find(knows).filter(|_| !space.is_unsure) else { return Ok(()) };
        let (format, now) = (space.format, self.rig.clock.now());
        let lost = self.hosts[away].drop_all(now, pause);
        lost.into_iter().try_for_each(|event| self.on_event(away, event))?;
        for block in block..block + 3 {
            let first = self.lba(nsid, block % BLOCKS);
            if let Some(waiting) = self.repeated_write(away, nsid, first..first + 1) {
                self.replays.waiting.push(waiting);
            }
        }
        let by = (away + 1) % HOSTS;
        self.delete(by, slot)?;
        if self.until("a namespace that is deleted", |world| world.manage.is_idle())? {
            self.create(by, format)?;
        }
        Ok(())
    }

    /// A command has ended: there is nothing to repeat.
    pub(super) fn forget_repeatable(&mut self, op: Op, flight: &Flight) {
        if !matches!(flight.kind, Kind::Replay(_)) {
            self.replays.repeatable.remove(&op);
        }
    }

    /// The connections of these commands are gone.
    pub(super) fn keep_waiting(&mut self, ops: &[Op]) {
        let now = self.rig.clock.now();
        self.replays.waiting.extend(
            ops.iter().filter_map(|op| self.replays.repeatable.remove(op)).map(|waiting| RepeatedWrite {
                at: now,
                tries: 0,
                ..waiting
            }),
        );
    }

    /// Whether the host holds another namespace under this number, and has not given it up.
    pub(super) fn holds_another(&self, host: usize, nsid: u32) -> bool {
        let is_one = |one: &&RepeatedWrite| one.host == host && one.nsid == nsid;
        let mut waiting = self.replays.waiting.iter().chain(self.replays.repeatable.values()).filter(is_one);
        waiting.any(|one| !self.is_meant(one))
    }

    fn is_meant(&self, waiting: &RepeatedWrite) -> bool {
        let space = self.spaces.get(&waiting.nsid);
        space.is_some_and(|space| (space.identity, space.born) == (waiting.identity, waiting.born))
    }

    /// A host has found what is under this number: what waits for another one is tried once more.
    pub(super) fn found(&mut self, host: usize, nsid: u32) {
        let space = self.spaces.get(&nsid).map(|space| (space.identity, space.born));
        let waits = |one: &&mut RepeatedWrite| one.host == host && one.nsid == nsid;
        for waiting in self.replays.waiting.iter_mut().filter(waits) {
            if space != Some((waiting.identity, waiting.born)) {
                waiting.tries = waiting.tries.max(TRIES - 1);
            }
        }
    }

    /// A host has found that these are gone: what waits for them ends.
    pub(super) fn forget_waiting(&mut self, host: usize, is_gone: impl Fn(u32) -> bool) {
        let ends = |one: &RepeatedWrite| one.host == host && is_gone(one.nsid);
        self.replays.waiting.retain(|one| !ends(one));
        self.replays.repeatable.values_mut().filter(|one| ends(one)).for_each(|one| one.tries = TRIES);
    }

    /// When a write is to be repeated.
    pub(super) fn replay_due(&self) -> Option<Instant> {
        self.replays.waiting.iter().filter(|one| self.hosts[one.host].is_live()).map(|one| one.at).min()
    }

    /// A host repeats what it is time for.
    pub(super) fn replay(&mut self, host: usize) {
        let now = self.rig.clock.now();
        if !self.hosts[host].is_live() {
            return;
        }
        let is_due = |one: &RepeatedWrite| one.host == host && one.at <= now;
        let (due, rest): (Vec<RepeatedWrite>, Vec<RepeatedWrite>) =
            std::mem::take(&mut self.replays.waiting).into_iter().partition(is_due);
        self.replays.waiting = rest;
        for waiting in due {
            self.send_again(waiting);
        }
    }

    fn send_again(&mut self, waiting: RepeatedWrite) {
        let RepeatedWrite { host, nsid, owner, block_bytes, ref range, .. } = waiting;
        let is_meant = self.is_meant(&waiting);
        let is_formatted = self.spaces.get(&nsid).is_some_and(|space| space.identity == waiting.identity) && !is_meant;
        let is_unsure = self.spaces.get(&nsid).is_some_and(|space| space.is_unsure);
        if is_formatted || is_unsure || !self.manage.is_idle() {
            self.rig.count("replays given up");
            return;
        }
        let op = self.rig.number();
        let (begun, at) = (self.rig.now(), self.rig.clock.now());
        let data = Blocks::new(owner, block_bytes, true).bytes(range, serial(op));
        let blocks = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        let sqe = BlockRange::new(range.start, blocks).encode(nvm::WRITE, Nsid(nsid));
        let flight = Flight { range: range.clone(), ..Flight::new(host, nsid, Kind::Replay(is_meant), begun, at) };
        if !self.submit(op, host, 1, flight, command(sqe, Some(Arc::from(data)), 0)) {
            let at = at + DELAY;
            self.replays.waiting.push(RepeatedWrite { at, ..waiting });
            return;
        }
        if is_meant {
            self.begin_write(op, nsid, range.clone(), begun);
        }
        self.replays.repeatable.insert(op, waiting);
    }

    pub(super) fn replay_ended(&mut self, op: Op, flight: &Flight, status: Status) -> Result<(), Failure> {
        let Some(waiting) = self.replays.repeatable.remove(&op) else { return Ok(()) };
        let Kind::Replay(is_meant) = flight.kind else { return Ok(()) };
        let RepeatedWrite { host, nsid, ref range, tries, .. } = waiting;
        let now = self.rig.now();
        self.rig.count(if is_meant { "replays" } else { "replays that another namespace is behind" });
        if status.is_success() && !is_meant {
            return fail(format!(
                "{op}: what waited of host {host} for a namespace {nsid} of before is written to another one"
            ));
        }
        let is_gated = status.is(Status::NAMESPACE_NOT_READY);
        let is_still = self.is_meant(&waiting);
        if let Some(space) = self.spaces.get_mut(&nsid).filter(|_| is_meant && is_still) {
            match status.ok() {
                Ok(()) => space.blocks.end(op, range.clone(), false, now),
                Err(_) if is_gated => space.blocks.refuse(op, range.clone()),
                Err(_) => space.blocks.end_unknown(op, range.clone(), now),
            }
        }
        if is_gated && tries < TRIES {
            self.rig.count("replays told to wait");
            self.replays.waiting.push(RepeatedWrite { tries: tries + 1, at: self.rig.clock.now() + DELAY, ..waiting });
        }
        Ok(())
    }
}
