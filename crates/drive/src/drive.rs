//! A drive: what its hosts ask of it, decided against what it remembers.
//!
//! Deciding changes nothing. A [`Decision`] names the changes to be made durable, and what has to be done on the medium before
//! and after; only then is the drive told ([`Drive::apply`]) and the host answered.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::log::ReservationEvent;
use ebof_nvme::{ControllerId, HostId, Nqn, Nsid, Status};

use crate::change::{Change, Seat, State};
use crate::namespace::{Instance, Namespace, NewNamespace};
use crate::profile::Profile;
use crate::request::{Answer, Moment, Origin, Refusal};
use crate::reservation::{self, Access, Reservations};
use crate::view::View;

/// What the configuration says about a drive, besides its profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Limits.
    pub profile: Profile,
    /// Namespaces may promise more than the drive holds.
    pub overcommit: bool,
    /// A namespace has one host at a time, shared or not.
    pub exclusive: bool,
    /// New namespaces are attached to every host.
    pub attach_everyone: bool,
    /// Who may create, delete, attach and format.
    pub managers: Managers,
    /// The most that a host's own namespaces may hold together (NCAP), in bytes.
    pub quotas: BTreeMap<String, u64>,
}

/// Which hosts may manage a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Managers {
    /// Every host that may connect.
    #[default]
    Everyone,
    /// Hosts with these NQNs.
    Only(BTreeSet<String>),
}

/// Sizes of a medium, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// What can be allocated (TNVMCAP).
    pub total_bytes: u64,
    /// The unit of allocation: a power of two.
    pub extent_bytes: u64,
}

/// What a host asks of the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Namespace Management, create.
    Create(NewNamespace),
    /// Namespace Management, delete; [`Nsid::ALL`] deletes all of them.
    Delete(Nsid),
    /// Namespace Attachment, attach.
    Attach(Nsid, Vec<ControllerId>),
    /// Namespace Attachment, detach.
    Detach(Nsid, Vec<ControllerId>),
    /// Set Features, Namespace Write Protection Config.
    Protect(Nsid, bool),
    /// Reservation Register, Acquire and Release.
    Reserve(Nsid, reservation::Command),
    /// Set Features, Reservation Persistence; [`Nsid::ALL`] for all namespaces of the host.
    Persist(Nsid, bool),
    /// A controller was made for the host of the request.
    Seat,
}

/// What a request amounts to.
#[derive(Debug, PartialEq)]
pub struct Decision {
    /// What the host is told when all is done.
    pub answer: Answer,
    /// Done on the medium before the changes are written down.
    pub before: Vec<Effect>,
    /// To be made durable.
    pub changes: Vec<Change>,
    /// Done on the medium when the changes are durable.
    pub after: Vec<Effect>,
    /// Told to all controllers of these hosts.
    pub notices: Vec<(Nsid, HostId, ReservationEvent)>,
    /// Commands of these hosts to the namespace are over before the host is answered.
    pub abort: Vec<(Nsid, HostId)>,
}

/// Something to be done on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A name gets a size.
    Create {
        /// Which.
        instance: Instance,
        /// Bytes that can be addressed.
        size_bytes: u64,
        /// Bytes that may be allocated.
        quota_bytes: u64,
        /// Bytes of a block.
        block_bytes: u32,
    },
    /// A name and everything under it is given back.
    Remove(Instance),
}

/// See the module's description.
#[derive(Debug)]
pub struct Drive {
    state: State,
    settings: Settings,
    capacity: Capacity,
}

/// Controller identifiers that are remembered.
const SEATS_MAX: usize = 4096;

impl Drive {
    /// The drive that was in `state`.
    #[must_use]
    pub fn new(state: State, settings: Settings, capacity: Capacity) -> Self {
        Self { state, settings, capacity }
    }

    /// What it remembers.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What the configuration says about it.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Another configuration. What the old one allowed and the new one does not stays as it is.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Makes a change that is durable.
    pub fn apply(&mut self, change: Change) {
        self.state.apply(change);
    }

    /// What everybody may know about it.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::new(View::new(&self.state, &self.settings, self.capacity, self.unallocated_bytes()))
    }

    /// Decides.
    ///
    /// # Errors
    /// The refusal, with the specification's status.
    pub fn decide(&self, request: &Request, origin: &Origin, moment: &Moment) -> Result<Decision, Refusal> {
        match request {
            Request::Create(wanted) => self.create(wanted, origin, moment),
            Request::Delete(nsid) => self.delete(*nsid, origin),
            Request::Attach(nsid, controllers) => self.attach(*nsid, controllers, origin),
            Request::Detach(nsid, controllers) => self.detach(*nsid, controllers, origin),
            Request::Protect(nsid, protected) => self.protect(*nsid, *protected),
            Request::Reserve(nsid, command) => self.reserve(*nsid, command, origin),
            Request::Persist(nsid, persistent) => self.persist(*nsid, *persistent, origin),
            Request::Seat => Ok(self.seat(origin, moment)),
        }
    }

    /// Capacity that no namespace has claimed (UNVMCAP), bytes.
    #[must_use]
    pub fn unallocated_bytes(&self) -> u64 {
        let claimed = self.state.namespaces.values().map(|namespace| self.claim(namespace));
        self.capacity.total_bytes.saturating_sub(claimed.fold(0, u64::saturating_add))
    }

    /// What a namespace takes from the capacity (NVMCAP), bytes.
    #[must_use]
    pub fn claim(&self, namespace: &Namespace) -> u64 {
        self.claimed_bytes(namespace.capacity_blocks, namespace.format().block_shift)
    }

    fn claimed_bytes(&self, blocks: u64, shift: u8) -> u64 {
        let bytes = blocks.checked_shl(shift.into()).filter(|bytes| bytes >> shift == blocks).unwrap_or(u64::MAX);
        bytes.checked_next_multiple_of(self.capacity.extent_bytes).unwrap_or(u64::MAX)
    }

    fn create(&self, wanted: &NewNamespace, origin: &Origin, moment: &Moment) -> Result<Decision, Refusal> {
        self.may_manage(&origin.host)?;
        let format = wanted.check()?;
        let claim = self.claimed_bytes(wanted.capacity_blocks, format.block_shift);
        // The error log entry tells the bytes that would be needed (Base, Namespace Management: Namespace Insufficient Capacity).
        let insufficient = Refusal { information: claim, ..Refusal::new(Status::NAMESPACE_INSUFFICIENT_CAPACITY) };
        if claim > self.unallocated_bytes() && !self.settings.overcommit {
            return Err(insufficient);
        }
        self.check_quota(origin, claim).map_err(|()| insufficient)?;
        let nsid = self.free_nsid().ok_or(Refusal::new(Status::NAMESPACE_ID_UNAVAILABLE))?;
        let instance = Instance(self.state.next_instance);
        let mut namespace = Namespace::new(wanted, instance, origin.host.to_string(), moment);
        namespace.for_everyone = self.settings.attach_everyone;
        let size_bytes = namespace.bytes();
        let quota_bytes = wanted.capacity_blocks << format.block_shift;
        Ok(Decision {
            answer: Answer::Done(nsid.into()),
            before: vec![Effect::Create { instance, size_bytes, quota_bytes, block_bytes: 1 << format.block_shift }],
            changes: vec![Change::Created { nsid, namespace }],
            ..Decision::nothing()
        })
    }

    fn delete(&self, nsid: Nsid, origin: &Origin) -> Result<Decision, Refusal> {
        self.may_manage(&origin.host)?;
        let doomed: Vec<_> = match nsid {
            Nsid::ALL => self.state.namespaces.iter().map(|(&nsid, namespace)| (nsid, namespace)).collect(),
            _ => vec![(nsid.0, self.find(nsid)?)],
        };
        if doomed.iter().any(|(_, namespace)| namespace.write_protected) {
            return Err(Refusal::new(Status::NAMESPACE_WRITE_PROTECTED));
        }
        for (nsid, _) in &doomed {
            self.check_reservation(*nsid, origin)?;
        }
        Ok(Decision {
            changes: doomed.iter().map(|&(nsid, _)| Change::Deleted { nsid }).collect(),
            after: doomed.iter().map(|(_, namespace)| Effect::Remove(namespace.instance)).collect(),
            ..Decision::nothing()
        })
    }

    fn attach(&self, nsid: Nsid, controllers: &[ControllerId], origin: &Origin) -> Result<Decision, Refusal> {
        self.may_manage(&origin.host)?;
        let namespace = self.find(nsid)?;
        self.check_reservation(nsid.0, origin)?;
        let hosts = self.hosts_of(controllers)?;
        if hosts.iter().any(|host| namespace.is_attached(host)) {
            return Err(Refusal::new(Status::NAMESPACE_ALREADY_ATTACHED));
        }
        let alone = !namespace.shared || self.settings.exclusive;
        if alone && (hosts.len() > 1 || !namespace.hosts.is_empty()) {
            return Err(Refusal::new(Status::NAMESPACE_IS_PRIVATE));
        }
        Ok(Decision::change(Change::Attached { nsid: nsid.0, hosts }))
    }

    fn detach(&self, nsid: Nsid, controllers: &[ControllerId], origin: &Origin) -> Result<Decision, Refusal> {
        self.may_manage(&origin.host)?;
        let namespace = self.find(nsid)?;
        self.check_reservation(nsid.0, origin)?;
        let hosts = self.hosts_of(controllers)?;
        if !hosts.iter().all(|host| namespace.is_attached(host)) {
            return Err(Refusal::new(Status::NAMESPACE_NOT_ATTACHED));
        }
        let mut decision = Decision::change(Change::Detached { nsid: nsid.0, hosts: hosts.clone() });
        if namespace.for_everyone {
            // Everyone but those: from now on the hosts are named.
            let others = self.state.seats.values().map(|seat| seat.host.clone()).filter(|host| !hosts.contains(host));
            decision.changes.push(Change::Attached { nsid: nsid.0, hosts: others.collect() });
        }
        Ok(decision)
    }

    fn protect(&self, nsid: Nsid, protected: bool) -> Result<Decision, Refusal> {
        let namespace = self.find(nsid)?;
        if namespace.write_protected == protected {
            return Ok(Decision::nothing());
        }
        Ok(Decision::change(Change::Protected { nsid: nsid.0, protected }))
    }

    fn reserve(&self, nsid: Nsid, command: &reservation::Command, origin: &Origin) -> Result<Decision, Refusal> {
        self.find_attached(nsid, origin)?;
        let now = self.reservations(nsid.0);
        let in_use = self.state.reservations.values().filter(|kept| !kept.is_empty()).count();
        let most = usize::try_from(self.settings.profile.reserved_namespaces).unwrap_or(usize::MAX);
        if now.is_empty() && in_use >= most {
            return Err(Refusal::new(Status::INSUFFICIENT_RESOURCES));
        }
        let done = now.execute(origin.host_id, command)?;
        Ok(Decision {
            changes: done.change.into_iter().map(|change| Change::Reserved { nsid: nsid.0, change }).collect(),
            notices: done.notices.into_iter().map(|(host, event)| (nsid, host, event)).collect(),
            abort: done.abort.into_iter().map(|host| (nsid, host)).collect(),
            ..Decision::nothing()
        })
    }

    fn persist(&self, nsid: Nsid, persistent: bool, origin: &Origin) -> Result<Decision, Refusal> {
        let chosen: Vec<u32> = match nsid {
            Nsid::ALL => {
                let namespaces = self.state.namespaces.iter();
                let attached = namespaces.filter(|(_, namespace)| namespace.is_attached(origin.host.as_str()));
                attached.map(|(&nsid, _)| nsid).collect()
            }
            _ => {
                self.find_attached(nsid, origin)?;
                vec![nsid.0]
            }
        };
        let change =
            |nsid| Some(Change::Reserved { nsid, change: self.reservations(nsid).set_persistent(persistent)? });
        Ok(Decision { changes: chosen.into_iter().filter_map(change).collect(), ..Decision::nothing() })
    }

    /// Who manages a namespace that another host has reserved is refused like one who writes to it.
    fn check_reservation(&self, nsid: u32, origin: &Origin) -> Result<(), Refusal> {
        if self.reservations(nsid).conflicts(origin.host_id, Access::Write) {
            return Err(Refusal::new(Status::RESERVATION_CONFLICT));
        }
        Ok(())
    }

    fn reservations(&self, nsid: u32) -> &Reservations {
        self.state.reservations.get(&nsid).unwrap_or(&NO_RESERVATIONS)
    }

    fn find_attached(&self, nsid: Nsid, origin: &Origin) -> Result<&Namespace, Refusal> {
        let namespace = self.find(nsid)?;
        if namespace.is_attached(origin.host.as_str()) {
            Ok(namespace)
        } else {
            Err(Refusal::at(Status::INVALID_NAMESPACE, NSID))
        }
    }

    fn seat(&self, origin: &Origin, moment: &Moment) -> Decision {
        let seat = Seat { host: origin.host.to_string(), taken_ms: moment.unix_ms };
        let mut decision = Decision::change(Change::Seated { cntlid: origin.cntlid.0, seat });
        if self.state.seats.len() >= SEATS_MAX && !self.state.seats.contains_key(&origin.cntlid.0) {
            let oldest = self.state.seats.iter().min_by_key(|(_, seat)| seat.taken_ms).map(|(&cntlid, _)| cntlid);
            decision.changes.insert(0, Change::Unseated { cntlids: oldest.into_iter().collect() });
        }
        decision
    }

    fn find(&self, nsid: Nsid) -> Result<&Namespace, Refusal> {
        self.state.namespaces.get(&nsid.0).ok_or(Refusal::at(Status::INVALID_NAMESPACE, NSID))
    }

    fn may_manage(&self, host: &Nqn) -> Result<(), Refusal> {
        if self.settings.managers.contains(host.as_str()) {
            Ok(())
        } else {
            Err(Refusal::new(Status::OPERATION_DENIED))
        }
    }

    fn check_quota(&self, origin: &Origin, claim: u64) -> Result<(), ()> {
        let host = origin.host.as_str();
        let Some(&quota) = self.settings.quotas.get(host) else { return Ok(()) };
        let own = self.state.namespaces.values().filter(|namespace| namespace.owner == host);
        let used = own.map(|namespace| self.claim(namespace)).fold(0, u64::saturating_add);
        if used.saturating_add(claim) <= quota { Ok(()) } else { Err(()) }
    }

    fn free_nsid(&self) -> Option<u32> {
        (1..=self.settings.profile.namespaces).find(|nsid| !self.state.namespaces.contains_key(nsid))
    }

    /// The hosts behind a list of controllers. Attachment is a host's: all its controllers share it, those included that
    /// it makes when it comes back.
    fn hosts_of(&self, controllers: &[ControllerId]) -> Result<BTreeSet<String>, Refusal> {
        let hosts = controllers.iter().map(|cntlid| self.state.seats.get(&cntlid.0).map(|seat| seat.host.clone()));
        let hosts = hosts.collect::<Option<BTreeSet<_>>>().filter(|hosts| !hosts.is_empty());
        hosts.ok_or(Refusal::new(Status::CONTROLLER_LIST_INVALID))
    }
}

impl Decision {
    fn nothing() -> Self {
        Self {
            answer: Answer::Done(0),
            before: Vec::new(),
            changes: Vec::new(),
            after: Vec::new(),
            notices: Vec::new(),
            abort: Vec::new(),
        }
    }

    fn change(change: Change) -> Self {
        Self { changes: vec![change], ..Self::nothing() }
    }
}

impl Managers {
    /// Whether the host may manage.
    #[must_use]
    pub fn contains(&self, host: &str) -> bool {
        match self {
            Self::Everyone => true,
            Self::Only(hosts) => hosts.contains(host),
        }
    }
}

/// Of a namespace that never had any.
static NO_RESERVATIONS: Reservations = Reservations::none();

/// Where the NSID stands in a command.
const NSID: u8 = 4;

#[cfg(test)]
mod tests;
