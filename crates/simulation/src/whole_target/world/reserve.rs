//! Reservations. The model knows who is preempted: with Preempt and Abort nothing of him happens
//! once that is answered.

use std::sync::Arc;

use ebof_nvme::reservation::{
    Acquire, AcquireAction, AcquireKeys, PersistenceChange, Register, RegisterAction, RegisterKeys, Release,
    ReleaseAction, ReleaseKey,
};
use ebof_nvme::{Nsid, Status};
use zerocopy::IntoBytes;

use super::super::acts::Reserve;
use super::{Flight, Kind, World, command};
use crate::model::Op;
use crate::story::Failure;

impl World {
    pub(super) fn reserve(&mut self, host: usize, queue: usize, slot: usize, reserve: Reserve) -> Result<(), Failure> {
        let Some(nsid) = self.nsid(slot) else { return Ok(()) };
        if !self.comes_to_use(host, nsid)? {
            return Ok(());
        }
        let (own, id) = (key(host), Nsid(nsid));
        let acquire = |action, kind| Acquire { action, ignore_existing_key: false, rtype: kind }.encode(id);
        let (kind, sqe, data) = match reserve {
            Reserve::Register => {
                let persistence = PersistenceChange::None;
                let sqe = Register { action: RegisterAction::Register, ignore_existing_key: true, persistence };
                let keys = RegisterKeys { crkey: 0.into(), nrkey: own.into() };
                (Kind::Register, sqe.encode(id), keys.as_bytes().to_vec())
            }
            Reserve::Acquire { kind } => {
                let keys = AcquireKeys { crkey: own.into(), prkey: 0.into() };
                (Kind::Reserve, acquire(AcquireAction::Acquire, kind), keys.as_bytes().to_vec())
            }
            Reserve::Preempt { victim, kind, abort } => {
                let victim = self.preempted_host(victim, host, nsid);
                let keys = AcquireKeys { crkey: own.into(), prkey: key(victim).into() };
                let action = if abort { AcquireAction::PreemptAndAbort } else { AcquireAction::Preempt };
                let is_registered = self.unregister(nsid, Some(victim));
                let what = if abort && victim != host && is_registered { Kind::Preempt(victim) } else { Kind::Reserve };
                (what, acquire(action, kind), keys.as_bytes().to_vec())
            }
            Reserve::Release { kind } => {
                let release = Release { action: ReleaseAction::Release, ignore_existing_key: false, rtype: kind };
                (Kind::Reserve, release.encode(id), ReleaseKey { crkey: own.into() }.as_bytes().to_vec())
            }
            Reserve::Clear => {
                self.unregister(nsid, None);
                let release = Release { action: ReleaseAction::Clear, ignore_existing_key: false, rtype: 0 };
                (Kind::Reserve, release.encode(id), ReleaseKey { crkey: own.into() }.as_bytes().to_vec())
            }
        };
        let op = self.rig.number();
        let (begun, at) = (self.rig.now(), self.rig.clock.now());
        let flight = Flight::new(host, nsid, kind, begun, at);
        self.submit(op, host, queue, flight, command(sqe, Some(Arc::from(data)), 0));
        if let Some(space) = self.spaces.get_mut(&nsid) {
            space.is_reserved = true;
        }
        Ok(())
    }

    /// This host, or the other one that has the most commands that may still be done.
    fn preempted_host(&mut self, victim: usize, by: usize, nsid: u32) -> usize {
        if self.rig.chances.percent(50) {
            return victim;
        }
        let all = || self.flights.values().chain(self.ghosts.values());
        let under_way = |host: usize| all().filter(|flight| flight.host == host && flight.nsid == nsid).count();
        let others = (0..self.hosts.len()).filter(|&host| host != by);
        others.max_by_key(|&one| (under_way(one), one == victim)).unwrap_or(victim)
    }

    /// Registrations of a namespace may be taken away from now on: of one host, or of all. Whether
    /// that one was registered.
    pub(super) fn unregister(&mut self, nsid: u32, host: Option<usize>) -> bool {
        let now = self.rig.now();
        self.unregistered.insert(nsid, now);
        let was = host.is_some_and(|host| self.registered.contains(&(nsid, host)));
        self.registered.retain(|(of, whose)| *of != nsid || host.is_some_and(|host| host != *whose));
        was
    }

    pub(super) fn reserve_ended(&mut self, op: Op, flight: &Flight, status: Status) -> Result<(), Failure> {
        if status.is_success() {
            self.rig.count("reservations");
            let since = self.unregistered.get(&flight.nsid).copied().unwrap_or_default();
            if flight.kind == Kind::Register && flight.begun > since {
                self.registered.insert((flight.nsid, flight.host));
            }
            if let Kind::Preempt(victim) = flight.kind {
                let begun = flight.begun;
                return self.preempted(victim, flight.nsid, begun);
            }
            return Ok(());
        }
        let refused = status.is(Status::RESERVATION_CONFLICT) || status.is(Status::INVALID_FIELD);
        let is_unsure = self.spaces.get(&flight.nsid).is_none_or(|space| space.is_unsure);
        let may_fail = self.rig.may_fail(flight.at) || self.may_be_aborted(flight, status);
        if refused || may_fail || is_unsure || self.manage.is_sanitizing() {
            return Ok(());
        }
        Err(self.unexplained(op, flight, status))
    }

    /// A host's registration was taken away: its commands to the namespace whose connections had
    /// gone before are over. What still travels may arrive behind the preemption.
    fn preempted(&mut self, victim: usize, nsid: u32, begun: u64) -> Result<(), Failure> {
        self.rig.note(|| format!("host {victim} was preempted, and its lost commands to namespace {nsid} are over"));
        let is_over = |_, flight: &Flight| flight.host == victim && flight.nsid == nsid && flight.begun < begun;
        self.settled("was preempted", victim, is_over)
    }
}

/// The key of a host.
fn key(host: usize) -> u64 {
    0x100 + host as u64
}
