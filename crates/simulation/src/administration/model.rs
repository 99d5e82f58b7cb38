//! The model: what the drive has to remember, and what it may refuse.

use std::collections::{BTreeMap, BTreeSet};

use ebof_drive::budget::ATTACHMENTS_BYTES_MAX;
use ebof_nvme::Status;
use ebof_nvme::reservation::{PersistenceChange, ReservationType};

use crate::rig::EXTENT;

/// The namespaces of the drive, each of one extent. Hosts are named by their number.
pub(super) type Namespaces = BTreeMap<u32, ModelNamespace>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ModelNamespace {
    pub(super) is_shared: bool,
    pub(super) is_protected: bool,
    /// The hosts that it is attached to.
    pub(super) hosts: BTreeSet<usize>,
    pub(super) reservation: Reservation,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reservation {
    /// Through power loss.
    pub(super) persists: bool,
    /// Each with the key of its host.
    pub(super) registrants: BTreeSet<usize>,
    /// The type, and its holder; `None` where all registrants are.
    pub(super) held: Option<(ReservationType, Option<usize>)>,
}

/// A command of one host, about one namespace.
#[derive(Clone, Debug)]
pub(super) struct ModelRequest {
    pub(super) by: usize,
    /// 0 where it is to be made.
    pub(super) nsid: u32,
    pub(super) edit: Edit,
}

/// What it does to the namespace.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    Create { shared: bool },
    Delete,
    Attach(BTreeSet<usize>),
    Detach(BTreeSet<usize>),
    Protect(bool),
    Register(PersistenceChange),
    Unregister,
    Acquire(ReservationType),
    Release(ReservationType),
    Clear,
    Persist(bool),
}

/// How a request may end.
#[derive(Debug, Default)]
pub(super) struct AllowedStatuses {
    /// It may be refused with these, and with nothing else.
    pub(super) refusals: Vec<Status>,
    /// It must be refused.
    pub(super) is_refused: bool,
}

/// What the drive is configured and documented to take.
#[derive(Clone, Debug)]
pub(super) struct ModelLimits {
    pub(super) capacity_bytes: u64,
    pub(super) overcommit: bool,
    pub(super) namespaces: usize,
    /// Namespaces with registrants at a time.
    pub(super) reserved: usize,
    /// Bytes of the hosts' NQNs.
    pub(super) names: Vec<usize>,
}

/// The limit counts NQNs as they are stored: so many bytes more than the documents say, at most.
const AROUND_NAME: usize = 3;

impl AllowedStatuses {
    fn refuse(&mut self, when: bool, status: Status) {
        if when {
            self.refusals.push(status);
            self.is_refused = true;
        }
    }
}

impl ModelLimits {
    pub(super) fn verdict(&self, namespaces: &Namespaces, request: &ModelRequest) -> AllowedStatuses {
        let ModelRequest { by, nsid, edit } = request;
        let mut verdict = AllowedStatuses::default();
        if let Edit::Create { .. } = edit {
            let is_full = (namespaces.len() as u64 + 1) * EXTENT > self.capacity_bytes && !self.overcommit;
            verdict.refuse(is_full, Status::NAMESPACE_INSUFFICIENT_CAPACITY);
            verdict.refuse(namespaces.len() >= self.namespaces, Status::NAMESPACE_ID_UNAVAILABLE);
        }
        let Some(namespace) = namespaces.get(nsid) else { return verdict };
        let reservation = &namespace.reservation;
        if let Edit::Delete | Edit::Attach(_) | Edit::Detach(_) = edit {
            verdict.refuse(reservation.shuts_out(*by), Status::RESERVATION_CONFLICT);
        }
        match edit {
            Edit::Delete => verdict.refuse(namespace.is_protected, Status::NAMESPACE_WRITE_PROTECTED),
            Edit::Attach(hosts) => {
                let is_private = !namespace.is_shared && (hosts.len() > 1 || !namespace.hosts.is_empty());
                verdict.refuse(is_private, Status::NAMESPACE_IS_PRIVATE);
                self.check_attachments(namespaces, hosts, &mut verdict);
            }
            Edit::Register(_) | Edit::Unregister | Edit::Acquire(_) | Edit::Release(_) | Edit::Clear => {
                let reserved = namespaces.values().filter(|one| !one.reservation.registrants.is_empty()).count();
                let is_limit = reservation.registrants.is_empty() && reserved >= self.reserved;
                verdict.refuse(is_limit, Status::INSUFFICIENT_RESOURCES);
                let is_registrant = reservation.registrants.contains(by);
                let conflicts = match edit {
                    Edit::Register(_) => false,
                    Edit::Acquire(kind) => {
                        let is_other = |(held, _): (ReservationType, _)| held != *kind || !reservation.is_held_by(*by);
                        !is_registrant || reservation.held.is_some_and(is_other)
                    }
                    _ => !is_registrant,
                };
                verdict.refuse(conflicts, Status::RESERVATION_CONFLICT);
            }
            Edit::Create { .. } | Edit::Detach(_) | Edit::Protect(_) | Edit::Persist(_) => {}
        }
        verdict
    }

    fn check_attachments(&self, namespaces: &Namespaces, more: &BTreeSet<usize>, verdict: &mut AllowedStatuses) {
        let attached = namespaces.values().flat_map(|namespace| &namespace.hosts).chain(more);
        let (mut bytes, mut count) = (0, 0);
        attached.for_each(|&host| (bytes, count) = (bytes + self.names[host], count + 1));
        verdict.is_refused |= bytes > ATTACHMENTS_BYTES_MAX;
        if bytes + count * AROUND_NAME > ATTACHMENTS_BYTES_MAX {
            verdict.refusals.push(Status::NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED);
        }
    }
}

impl ModelRequest {
    /// What the namespace is when it is done; `None` where it is gone.
    pub(super) fn done(&self, namespaces: &Namespaces) -> Option<ModelNamespace> {
        let mut namespace = namespaces.get(&self.nsid).cloned().unwrap_or_default();
        let reservation = &mut namespace.reservation;
        match &self.edit {
            Edit::Create { shared } => return Some(ModelNamespace { is_shared: *shared, ..ModelNamespace::default() }),
            Edit::Delete => return None,
            Edit::Attach(hosts) => namespace.hosts.extend(hosts),
            Edit::Detach(hosts) => namespace.hosts.retain(|host| !hosts.contains(host)),
            Edit::Protect(protected) => namespace.is_protected = *protected,
            Edit::Register(persistence) => {
                reservation.registrants.insert(self.by);
                match persistence {
                    PersistenceChange::Set => reservation.persists = true,
                    PersistenceChange::Clear => reservation.persists = false,
                    PersistenceChange::None | PersistenceChange::Reserved => {}
                }
            }
            Edit::Unregister => {
                reservation.registrants.remove(&self.by);
                let is_over = |(_, holder): (_, Option<usize>)| match holder {
                    Some(holder) => holder == self.by,
                    None => reservation.registrants.is_empty(),
                };
                if reservation.held.is_some_and(is_over) {
                    reservation.held = None;
                }
            }
            Edit::Acquire(kind) => {
                reservation.held.get_or_insert((*kind, (!kind.all_registrants()).then_some(self.by)));
            }
            Edit::Release(_) if reservation.is_held_by(self.by) => reservation.held = None,
            Edit::Release(_) => {}
            Edit::Clear => (reservation.registrants, reservation.held) = (BTreeSet::new(), None),
            Edit::Persist(persists) => reservation.persists = *persists,
        }
        Some(namespace)
    }
}

impl Edit {
    /// Whether hosts see other namespaces afterwards.
    pub(super) fn is_of_namespaces(&self) -> bool {
        matches!(self, Self::Create { .. } | Self::Delete | Self::Attach(_) | Self::Detach(_))
    }
}

impl ModelNamespace {
    /// The drive was without power, or its process ended.
    pub(super) fn lost_power(&mut self) {
        if !self.reservation.persists {
            self.reservation = Reservation::default();
        }
    }
}

impl Reservation {
    pub(super) fn is_held_by(&self, host: usize) -> bool {
        self.held.is_some_and(|(_, holder)| match holder {
            Some(holder) => holder == host,
            None => self.registrants.contains(&host),
        })
    }

    /// Whether the namespace may not be written or managed by a host.
    pub(super) fn shuts_out(&self, host: usize) -> bool {
        let admits = |kind: ReservationType| kind.admits_registrants() && self.registrants.contains(&host);
        self.held.is_some_and(|(kind, _)| !self.is_held_by(host) && !admits(kind))
    }
}
