//! Reservations of one namespace: the registrants with their keys, the holder, and what Reservation
//! Register, Acquire and Release change.
//!
//! Knows no controllers, queues or commands in flight: whom to notify and whose commands to abort
//! is returned ([`Done`]). Changes are made durable by the journal ([`ReservationChange`]).
//!
//! NVMe Base 2.1, "Reservations" and the four reservation commands.

mod access;
mod notice;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ebof_nvme::log::ReservationEvent;
use ebof_nvme::reservation::{
    Acquire, AcquireAction, AcquireKeys, PersistenceChange, Register, RegisterAction, RegisterKeys, Release,
    ReleaseAction, ReleaseKey, ReportedRegistrant, ReservationType, report,
};
use ebof_nvme::{ControllerId, HostId, Status};
use serde::{Deserialize, Serialize};

pub use access::{Access, ReservationView, Right};
pub use notice::{NotificationLog, NotificationMask};

use crate::request::Refusal;
use crate::stored::hex;

/// Registrants of one namespace at most; more are refused with Insufficient Resources.
pub const REGISTRANTS_MAX: usize = 4096;

/// The registrants and the reservation of one namespace.
///
/// Every registrant holds a reservation of an all-registrants type; of the others exactly one
/// registrant is the holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reservations {
    /// GEN: how often registrations changed, modulo 2^32.
    generation: u32,
    /// Persist Through Power Loss.
    persistent: bool,
    /// Keys by host.
    registrants: BTreeMap<Host, u64>,
    /// The reservation.
    held: Option<HeldReservation>,
}

/// A reservation command that changes something: its dword 10 and its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reservation Register.
    Register(Register, RegisterKeys),
    /// Reservation Acquire.
    Acquire(Acquire, AcquireKeys),
    /// Reservation Release.
    Release(Release, ReleaseKey),
}

/// The result of a command that is not refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// To be made durable, then [applied](Reservations::apply); `None` if nothing changes.
    pub change: Option<ReservationChange>,
    /// All controllers of these hosts get a notice, unless they mask it.
    pub notices: Vec<(HostId, ReservationEvent)>,
    /// Commands of these hosts to the namespace are to be aborted, or waited for, before the
    /// command completes.
    pub abort: Vec<HostId>,
}

/// A change of the reservations: the new values of the small fields, and the registrants that are
/// new, changed or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReservationChange {
    generation: u32,
    persistent: bool,
    held: Option<HeldReservation>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    registered: BTreeMap<Host, u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unregistered: Vec<Host>,
    /// All registrants are removed, before those of `registered` are added.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    cleared: bool,
}

/// A host identifier, hexadecimal in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
struct Host(#[serde(with = "hex")] [u8; 16]);

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HeldReservation {
    #[serde(with = "rtype")]
    kind: ReservationType,
    /// `None` if all registrants are holders.
    holder: Option<Host>,
}

impl Reservations {
    /// Without registrants.
    #[must_use]
    pub const fn none() -> Self {
        Self { generation: 0, persistent: false, registrants: BTreeMap::new(), held: None }
    }

    /// Whether nothing was ever registered.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        *self == Self::none()
    }

    /// Decides on a `command` of `host`. Changes nothing.
    ///
    /// # Errors
    /// Reservation Conflict, Invalid Field in Command, Host Identifier Not Initialized,
    /// Insufficient Resources.
    pub fn execute(&self, host: HostId, command: &Command) -> Result<Done, Refusal> {
        if host == HostId::default() {
            return Err(Refusal::new(Status::HOST_ID_NOT_INITIALIZED));
        }
        let host = Host(host.0);
        match command {
            Command::Register(register, keys) => self.execute_register(host, register, keys),
            Command::Acquire(acquire, keys) => self.execute_acquire(host, acquire, keys),
            Command::Release(release, key) => self.execute_release(host, release, key),
        }
    }

    /// The change for feature 83h, Reservation Persistence; `None` if it does not change.
    #[must_use]
    pub fn set_persistent(&self, persistent: bool) -> Option<ReservationChange> {
        (self.persistent != persistent).then(|| ReservationChange { persistent, ..self.unchanged() })
    }

    /// Whether registrants and the reservation persist through power loss (PTPLS).
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// The reservations after a power loss.
    #[must_use]
    pub fn after_power_loss(&self) -> Self {
        if self.persistent { self.clone() } else { Self { generation: self.generation, ..Self::default() } }
    }

    /// Applies a change that was decided on this state.
    pub fn apply(&mut self, change: ReservationChange) {
        self.generation = change.generation;
        self.persistent = change.persistent;
        self.held = change.held;
        if change.cleared {
            self.registrants.clear();
        }
        for host in &change.unregistered {
            self.registrants.remove(host);
        }
        self.registrants.extend(change.registered);
    }

    /// How many hosts are registered.
    #[must_use]
    pub fn registrants(&self) -> usize {
        self.registrants.len()
    }

    /// How many new registrants a change adds.
    pub(crate) fn new_registrants(&self, change: &ReservationChange) -> usize {
        change.registered.keys().filter(|host| !self.registrants.contains_key(host)).count()
    }

    /// Whether there are no registrants.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.registrants.is_empty()
    }

    /// The type of the reservation that is held.
    #[must_use]
    pub fn kind(&self) -> Option<ReservationType> {
        self.held.map(|held| held.kind)
    }

    /// GEN.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The key that `host` is registered with.
    #[must_use]
    pub fn key_of(&self, host: HostId) -> Option<u64> {
        self.registrants.get(&Host(host.0)).copied()
    }

    /// Whether `host` holds the reservation, alone or with the other registrants.
    #[must_use]
    pub fn is_holder(&self, host: HostId) -> bool {
        self.holds(Host(host.0))
    }

    /// Whether a command of `host` that does `access` is refused with Reservation Conflict.
    #[must_use]
    pub fn conflicts(&self, host: HostId, access: Access) -> bool {
        let host = Host(host.0);
        match access {
            Access::Read | Access::Write => !self.right(host).allows(access),
            // Whether a holder asks for the type that it has is checked when the command is
            // executed.
            Access::Acquire => self.held.is_some() && !self.holds(host),
            Access::Registrant => self.held.is_some() && !self.registrants.contains_key(&host),
            Access::Other => false,
        }
    }

    /// A snapshot of the rights of all hosts.
    #[must_use]
    pub fn view(&self) -> ReservationView {
        let Some(held) = self.held else { return ReservationView::default() };
        let others = if held.kind.is_exclusive_access() { Right::Nothing } else { Right::ReadOnly };
        let full = self.registrants.keys().filter(|&&host| self.right(host) == Right::Full).map(|host| HostId(host.0));
        ReservationView::new(others, full)
    }

    /// The right of `host`.
    #[must_use]
    pub fn right_of(&self, host: HostId) -> Right {
        self.right(Host(host.0))
    }

    /// The Reservation Status Extended data structure: one Registrant Extended data structure for
    /// each registrant, in the order of their identifiers, with the controller that `controller_of`
    /// names for the host now, or FFFFh.
    ///
    /// # Errors
    /// Host Identifier Inconsistent Format unless `extended`: host identifiers have 128 bits on
    /// every fabric, and the other structure has room for 64.
    pub fn report(
        &self,
        extended: bool,
        controller_of: impl Fn(HostId) -> Option<ControllerId>,
    ) -> Result<Vec<u8>, Refusal> {
        if !extended {
            return Err(Refusal::at(Status::HOST_ID_INCONSISTENT, byte::EDS));
        }
        let registrants: Vec<_> = self
            .registrants
            .iter()
            .map(|(&host, &key)| ReportedRegistrant {
                controller: controller_of(HostId(host.0)).unwrap_or(ControllerId::DYNAMIC),
                holder: self.holds(host),
                key,
                host_id: host.0,
            })
            .collect();
        Ok(report(self.generation, self.kind(), self.persistent, &registrants, extended))
    }

    fn right(&self, host: Host) -> Right {
        let Some(held) = self.held else { return Right::Free };
        if self.holds(host) || held.kind.admits_registrants() && self.registrants.contains_key(&host) {
            Right::Full
        } else if held.kind.is_exclusive_access() {
            Right::Nothing
        } else {
            Right::ReadOnly
        }
    }

    fn execute_register(&self, host: Host, register: &Register, keys: &RegisterKeys) -> Result<Done, Refusal> {
        let persistent = match register.persistence {
            PersistenceChange::None => self.persistent,
            PersistenceChange::Clear => false,
            PersistenceChange::Set => true,
            PersistenceChange::Reserved => return Err(Refusal::at(Status::INVALID_FIELD, byte::CPTPL)),
        };
        let current = (!register.ignore_existing_key).then_some(keys.crkey.get());
        let mut done = match register.action {
            RegisterAction::Register => self.register(host, keys.nrkey.get()),
            RegisterAction::Unregister => self.unregister(host, current),
            RegisterAction::Replace => self.replace(host, current, keys.nrkey.get()),
            RegisterAction::Reserved(_) => Err(Refusal::at(Status::INVALID_FIELD, byte::ACTION)),
        }?;
        if let Some(change) = &mut done.change {
            change.persistent = persistent;
        }
        Ok(done)
    }

    fn execute_acquire(&self, host: Host, acquire: &Acquire, keys: &AcquireKeys) -> Result<Done, Refusal> {
        if acquire.ignore_existing_key || matches!(acquire.action, AcquireAction::Reserved(_)) {
            return Err(Refusal::at(Status::INVALID_FIELD, byte::ACTION));
        }
        let kind = ReservationType::decode(acquire.rtype);
        if kind.is_none() && acquire.rtype != 0 {
            return Err(Refusal::at(Status::INVALID_FIELD, byte::RTYPE));
        }
        // If Preempt only unregisters, it creates no reservation, and needs no type.
        let needed = kind.ok_or(Refusal::at(Status::INVALID_FIELD, byte::RTYPE));
        if acquire.action == AcquireAction::Acquire {
            needed?;
        }
        self.check_key(host, keys.crkey.get())?;
        match acquire.action {
            AcquireAction::Acquire => self.acquire(host, needed?),
            action => self.preempt(host, needed, keys.prkey.get(), action == AcquireAction::PreemptAndAbort),
        }
    }

    fn execute_release(&self, host: Host, release: &Release, key: &ReleaseKey) -> Result<Done, Refusal> {
        if release.ignore_existing_key || matches!(release.action, ReleaseAction::Reserved(_)) {
            return Err(Refusal::at(Status::INVALID_FIELD, byte::ACTION));
        }
        self.check_key(host, key.crkey.get())?;
        if release.action == ReleaseAction::Clear { Ok(self.clear(host)) } else { self.release(host, release.rtype) }
    }

    fn register(&self, host: Host, key: u64) -> Result<Done, Refusal> {
        match self.registrants.get(&host) {
            Some(&registered) if registered != key => Err(CONFLICT),
            Some(_) => Ok(Done::change(self.next_generation())),
            None => self.set_key(host, key),
        }
    }

    /// Adds a registrant, or changes its key.
    fn set_key(&self, host: Host, key: u64) -> Result<Done, Refusal> {
        if self.registrants.len() >= REGISTRANTS_MAX && !self.registrants.contains_key(&host) {
            return Err(Refusal::transient(Status::INSUFFICIENT_RESOURCES));
        }
        Ok(Done::change(ReservationChange { registered: [(host, key)].into(), ..self.next_generation() }))
    }

    /// `current` is `None` if the host's key is to be ignored: then it need not be registered.
    fn replace(&self, host: Host, current: Option<u64>, key: u64) -> Result<Done, Refusal> {
        if let Some(current) = current {
            self.check_key(host, current)?;
        }
        self.set_key(host, key)
    }

    fn unregister(&self, host: Host, current: Option<u64>) -> Result<Done, Refusal> {
        let registered = *self.registrants.get(&host).ok_or(CONFLICT)?;
        if current.is_some_and(|current| current != registered) {
            return Err(CONFLICT);
        }
        let mut change = ReservationChange { unregistered: [host].into(), ..self.next_generation() };
        let mut notices = Vec::new();
        if self.ends_with(&[host]) {
            change.held = None;
            // Of the all-registrants types nobody is left to be notified; those with one holder
            // have shut out nobody who is registered, or everybody, who find out by trying.
            if self.held.is_some_and(|held| held.kind.admits_registrants()) {
                notices = self.notify_others(host, &[], ReservationEvent::ReservationReleased);
            }
        }
        Ok(Done { change: Some(change), notices, abort: Vec::new() })
    }

    fn acquire(&self, host: Host, kind: ReservationType) -> Result<Done, Refusal> {
        match self.held {
            None => {
                Ok(Done::change(ReservationChange { held: Some(HeldReservation::new(kind, host)), ..self.unchanged() }))
            }
            Some(held) if self.holds(host) && held.kind == kind => Ok(Done::default()),
            Some(_) => Err(CONFLICT),
        }
    }

    fn preempt(
        &self,
        host: Host,
        kind: Result<ReservationType, Refusal>,
        key: u64,
        abort: bool,
    ) -> Result<Done, Refusal> {
        let (victims, takes_over) = match self.held {
            None => (self.with_key(key), false),
            Some(held) => match held.holder {
                None if key == 0 => (self.registrants.keys().copied().collect(), true),
                None => {
                    let victims = self.with_key(key);
                    if victims.is_empty() {
                        return Err(CONFLICT);
                    }
                    (victims, false)
                }
                Some(holder) if self.registrants.get(&holder) == Some(&key) => (self.with_key(key), true),
                Some(_) if key == 0 => return Err(Refusal::new(Status::INVALID_FIELD)),
                Some(_) => (self.with_key(key), false),
            },
        };
        // A host may unregister itself by its own key, but not while it becomes the holder.
        let victims: Vec<Host> = victims.into_iter().filter(|&victim| !takes_over || victim != host).collect();
        let held = if takes_over {
            Some(HeldReservation::new(kind?, host))
        } else {
            self.held.filter(|_| !self.ends_with(&victims))
        };
        let mut notices: Vec<_> = victims
            .iter()
            .filter(|&&victim| victim != host)
            .map(|victim| (HostId(victim.0), ReservationEvent::RegistrationPreempted))
            .collect();
        let abort = if abort { notices.iter().map(|&(host, _)| host).collect() } else { Vec::new() };
        if self.held.is_some_and(|old| held.is_some_and(|new| new.kind != old.kind)) {
            notices.extend(self.notify_others(host, &victims, ReservationEvent::ReservationReleased));
        }
        let change = ReservationChange { held, unregistered: victims, ..self.next_generation() };
        Ok(Done { change: Some(change), notices, abort })
    }

    fn release(&self, host: Host, rtype: u8) -> Result<Done, Refusal> {
        let Some(held) = self.held.filter(|_| self.holds(host)) else { return Ok(Done::default()) };
        if ReservationType::decode(rtype) != Some(held.kind) {
            return Err(Refusal::at(Status::INVALID_FIELD, byte::RTYPE));
        }
        let notices = match held.kind {
            ReservationType::WriteExclusive | ReservationType::ExclusiveAccess => Vec::new(),
            _ => self.notify_others(host, &[], ReservationEvent::ReservationReleased),
        };
        let change = ReservationChange { held: None, ..self.unchanged() };
        Ok(Done { change: Some(change), notices, abort: Vec::new() })
    }

    fn clear(&self, host: Host) -> Done {
        let notices = self.notify_others(host, &[], ReservationEvent::ReservationPreempted);
        let change = ReservationChange { held: None, cleared: true, ..self.next_generation() };
        Done { change: Some(change), notices, abort: Vec::new() }
    }

    fn check_key(&self, host: Host, key: u64) -> Result<(), Refusal> {
        if self.registrants.get(&host) == Some(&key) { Ok(()) } else { Err(CONFLICT) }
    }

    fn holds(&self, host: Host) -> bool {
        self.held.is_some_and(|held| match held.holder {
            Some(holder) => holder == host,
            None => self.registrants.contains_key(&host),
        })
    }

    /// Whether the reservation ends when these registrants are removed: its holder, or all of them.
    fn ends_with(&self, removed: &[Host]) -> bool {
        self.held.is_some_and(|held| match held.holder {
            Some(holder) => removed.contains(&holder),
            None => removed.len() == self.registrants.len(),
        })
    }

    fn with_key(&self, key: u64) -> Vec<Host> {
        self.registrants.iter().filter(|&(_, registered)| *registered == key).map(|(&host, _)| host).collect()
    }

    /// A notice for all registrants except `host` and those that are removed.
    fn notify_others(&self, host: Host, removed: &[Host], kind: ReservationEvent) -> Vec<(HostId, ReservationEvent)> {
        let others = self.registrants.keys().filter(|&&other| other != host && removed.binary_search(&other).is_err());
        others.map(|other| (HostId(other.0), kind)).collect()
    }

    fn unchanged(&self) -> ReservationChange {
        ReservationChange {
            generation: self.generation,
            persistent: self.persistent,
            held: self.held,
            ..ReservationChange::default()
        }
    }

    fn next_generation(&self) -> ReservationChange {
        ReservationChange { generation: self.generation.wrapping_add(1), ..self.unchanged() }
    }
}

impl HeldReservation {
    fn new(kind: ReservationType, host: Host) -> Self {
        Self { kind, holder: (!kind.all_registrants()).then_some(host) }
    }
}

impl Done {
    fn change(change: ReservationChange) -> Self {
        Self { change: Some(change), ..Self::default() }
    }
}

const CONFLICT: Refusal = Refusal::new(Status::RESERVATION_CONFLICT);

/// A reservation's type as its number.
mod rtype {
    use ebof_nvme::reservation::ReservationType;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(kind: &ReservationType, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(kind.encode())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ReservationType, D::Error> {
        let rtype = u8::deserialize(deserializer)?;
        ReservationType::decode(rtype).ok_or_else(|| D::Error::custom("there is no such type of reservations"))
    }
}

/// Bytes of a reservation command that may be wrong: dword 10 begins at 40.
mod byte {
    pub(super) const ACTION: u8 = 40;
    pub(super) const RTYPE: u8 = 41;
    pub(super) const CPTPL: u8 = 43;
    /// Dword 11: Extended Data Structure.
    pub(super) const EDS: u8 = 44;
}
