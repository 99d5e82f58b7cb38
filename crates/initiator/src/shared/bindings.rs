//! What the NSIDs of a controller refer to: which of the open namespaces each is, and whether it
//! still is that. Decides which commands a queue pair may send. Sends nothing itself (`establish`
//! and `rescan` do). What a namespace is, is in `shared/identity.rs`.
//!
//! An NSID is only a number. A target may delete namespace 1 and create another one with the same
//! number, or restart with another configuration: commands for the first must never reach the
//! second. So namespaces are compared at a reconnect before the first I/O queue is connected, and
//! at every rescan while connected.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ebof_nvme::identify::IdentifyNamespace;
use ebof_nvme::{Nqn, Nsid, Status};

use crate::error::Error;
use crate::shared::identity::{Identifiers, Mismatch, NamespaceIdentity};
use crate::shared::opened::{NamespaceHead, OpenedNamespace, OpenedNamespaces};
use crate::wait::lock::lock;

/// The most namespaces that are tracked; further ones are ignored. Far more than any subsystem has.
pub(crate) const NAMESPACES_MAX: usize = 1 << 16;

/// Identifies a namespace as it was opened, unlike its NSID alone: commands submitted with it are
/// refused once the NSID refers to another namespace, even after that one was opened too. See
/// [`crate::Namespace::binding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    nsid: Nsid,
    /// Unique within the controller; later openings have greater numbers.
    number: u64,
}

impl Binding {
    /// The namespace's number.
    #[must_use]
    pub const fn nsid(self) -> Nsid {
        self.nsid
    }
}

/// A namespace as it was found.
#[derive(Debug)]
pub(crate) struct Inspection {
    pub(crate) nsid: Nsid,
    /// Its Identify data and identifiers; `None` if it is not active.
    pub(crate) found: Option<(Box<IdentifyNamespace>, Identifiers)>,
}

impl Inspection {
    pub(crate) const fn absent(nsid: Nsid) -> Self {
        Self { nsid, found: None }
    }

    pub(crate) fn found(nsid: Nsid, identify: Box<IdentifyNamespace>, descriptors: Option<&[u8]>) -> Self {
        // An inactive namespace is all zeros.
        if identify.nsze.get() == 0 {
            return Self::absent(nsid);
        }
        let identifiers = Identifiers::new(&identify, descriptors);
        Self { nsid, found: Some((identify, identifiers)) }
    }
}

/// How Identify Namespace, or Identify of its descriptors, was refused.
pub(crate) enum IdentifyRefusal {
    /// There is no such namespace, or no such list.
    Permanent,
    /// A retry may succeed.
    Transient,
}

impl IdentifyRefusal {
    pub(crate) fn from_status(status: Status) -> Self {
        let known = [Status::INVALID_NAMESPACE, Status::INVALID_FIELD, Status::INVALID_OPCODE];
        if status.is_dnr() || known.iter().any(|&one| status.is(one)) { Self::Permanent } else { Self::Transient }
    }
}

/// An open namespace as one controller leads to it: what all handles of it share.
#[derive(Debug)]
pub(crate) struct BoundNamespace {
    binding: Binding,
    opened: Arc<OpenedNamespace>,
}

impl BoundNamespace {
    pub(crate) const fn binding(&self) -> Binding {
        self.binding
    }

    pub(crate) fn head(&self) -> NamespaceHead {
        self.opened.head()
    }

    pub(crate) fn identifiers(&self) -> String {
        self.opened.identifiers()
    }

    pub(crate) fn identify(&self) -> Arc<IdentifyNamespace> {
        self.opened.identify()
    }
}

/// Which commands to an NSID are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Restriction {
    /// Bindings with smaller numbers are stale.
    stale_below: u64,
    why: Mismatch,
    /// The present namespace was not opened: commands without a binding are refused too.
    unopened: bool,
    /// The namespace is not active.
    absent: bool,
}

/// What is refused, by NSID. Checked for every command; nearly always empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restrictions(BTreeMap<u32, Restriction>);

impl Restrictions {
    /// Whether a command to `nsid` may be sent; with a binding, a command to that namespace only.
    pub(crate) fn check(&self, nsid: Nsid, binding: Option<Binding>) -> Result<(), Error> {
        let Some(restriction) = self.0.get(&nsid.0) else { return Ok(()) };
        let is_stale = match binding {
            Some(binding) => binding.number < restriction.stale_below,
            None => restriction.unopened,
        };
        if is_stale {
            return Err(restriction.why.error(nsid));
        }
        if restriction.absent { Err(Error::NoSuchNamespace(nsid)) } else { Ok(()) }
    }
}

/// Result of [`Bindings::reconcile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reconciled {
    /// The handles stay valid, or there are none.
    Unchanged,
    /// The handles are stale.
    Replaced,
}

/// What the NSIDs of a controller refer to.
#[derive(Debug)]
pub(crate) struct Bindings {
    /// The controller's.
    subsystem: Arc<Nqn>,
    /// The open namespaces; controllers that lead to the same have one.
    opened: Arc<OpenedNamespaces>,
    inner: Mutex<Inner>,
    /// Counts changes of `Inner::restrictions`.
    version: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// By NSID, with the number of its binding.
    bound: BTreeMap<u32, (u64, Weak<BoundNamespace>)>,
    restrictions: Arc<Restrictions>,
    number: u64,
    /// Counts scans of all open namespaces.
    scans: u64,
}

impl Inner {
    /// What was opened with `nsid`, if somebody still has it open.
    fn bound(&self, nsid: Nsid) -> Option<Arc<BoundNamespace>> {
        self.bound.get(&nsid.0).and_then(|(_, bound)| bound.upgrade())
    }

    /// Whether `opened` is open with another NSID. A target that reports the same identifiers for
    /// two of its namespaces has two nevertheless.
    fn is_elsewhere(&self, nsid: Nsid, opened: &Arc<OpenedNamespace>) -> bool {
        let mut others = self.bound.iter().filter(|&(&other, _)| other != nsid.0);
        others.any(|(_, (_, bound))| bound.upgrade().is_some_and(|bound| Arc::ptr_eq(&bound.opened, opened)))
    }
}

impl Bindings {
    /// Nothing is open yet by a controller of `subsystem`.
    pub(crate) fn new(subsystem: Nqn, opened: Arc<OpenedNamespaces>) -> Self {
        Self { subsystem: Arc::new(subsystem), opened, inner: Mutex::default(), version: AtomicU64::new(0) }
    }

    /// The open namespaces, for other controllers that lead to the same.
    pub(crate) fn all_opened(&self) -> &Arc<OpenedNamespaces> {
        &self.opened
    }

    /// Changes with [`Bindings::restrictions`].
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn restrictions(&self) -> Arc<Restrictions> {
        Arc::clone(&lock(&self.inner).restrictions)
    }

    /// The number of scans, for [`Bindings::open`]. Read it before the namespace is inspected.
    pub(crate) fn scans(&self) -> u64 {
        lock(&self.inner).scans
    }

    /// Begins a scan: returns the open namespaces. Namespaces that are inspected for
    /// [`Bindings::open`] at the same time are inspected again.
    pub(crate) fn begin_scan(&self) -> Vec<Nsid> {
        let mut inner = lock(&self.inner);
        inner.scans += 1;
        let mut open = Vec::new();
        let mut closed = Vec::new();
        for (&nsid, (number, bound)) in &inner.bound {
            if bound.strong_count() > 0 { open.push(Nsid(nsid)) } else { closed.push((Nsid(nsid), *number)) }
        }
        // Without handles these are not compared any more, so their bindings become stale: commands
        // with them may still be queued.
        for (nsid, number) in closed {
            inner.bound.remove(&nsid.0);
            let restriction =
                Restriction { stale_below: number + 1, why: Mismatch::Identity, unopened: false, absent: false };
            self.restrict(&mut inner, nsid, restriction);
        }
        open.sort_unstable_by_key(|nsid| nsid.0);
        open
    }

    /// Opens a namespace as it was found. `None` if a scan has begun since `scans` was read:
    /// inspect it again.
    pub(crate) fn open(&self, inspected: Inspection, scans: u64) -> Option<Result<Arc<BoundNamespace>, Error>> {
        let mut inner = lock(&self.inner);
        if inner.scans != scans {
            return None;
        }
        let nsid = inspected.nsid;
        self.reconcile_locked(&mut inner, &inspected);
        let Some((identify, identifiers)) = inspected.found else { return Some(Err(Error::NoSuchNamespace(nsid))) };
        let stale_below = inner.restrictions.0.get(&nsid.0).map_or(0, |restriction| restriction.stale_below);
        if let Some(bound) = inner.bound(nsid).filter(|bound| bound.binding.number >= stale_below) {
            return Some(Ok(bound));
        }
        let was_open = inner.bound.contains_key(&nsid.0) || stale_below > 0;
        inner.number += 1;
        let binding = Binding { nsid, number: inner.number };
        let identity = NamespaceIdentity::new(&self.subsystem, nsid, identifiers);
        let opened = self.opened.open(identity, identify, |opened| !inner.is_elsewhere(nsid, opened));
        let bound = Arc::new(BoundNamespace { binding, opened });
        inner.bound.insert(nsid.0, (binding.number, Arc::downgrade(&bound)));
        if was_open {
            let why = inner.restrictions.0.get(&nsid.0).map_or(Mismatch::Identity, |restriction| restriction.why);
            self.restrict(
                &mut inner,
                nsid,
                Restriction { stale_below: binding.number, why, unopened: false, absent: false },
            );
        }
        Some(Ok(bound))
    }

    /// Compares a namespace with what was opened, and updates the restrictions.
    pub(crate) fn reconcile(&self, inspected: &Inspection) -> Reconciled {
        self.reconcile_locked(&mut lock(&self.inner), inspected)
    }

    fn reconcile_locked(&self, inner: &mut Inner, inspected: &Inspection) -> Reconciled {
        let nsid = inspected.nsid;
        let Some(bound) = inner.bound(nsid) else { return Reconciled::Unchanged };
        let number = bound.binding.number;
        let restriction = inner.restrictions.0.get(&nsid.0).copied();
        let restriction = restriction.unwrap_or(Restriction {
            stale_below: 0,
            why: Mismatch::Identity,
            unopened: false,
            absent: false,
        });
        let Some((identify, identifiers)) = &inspected.found else {
            self.restrict(inner, nsid, Restriction { absent: true, ..restriction });
            return Reconciled::Unchanged;
        };
        let identity = NamespaceIdentity::new(&self.subsystem, nsid, *identifiers);
        match bound.opened.check(&identity, identify) {
            Err(why) if number >= restriction.stale_below => {
                self.restrict(inner, nsid, Restriction { stale_below: number + 1, why, unopened: true, absent: false });
                Reconciled::Replaced
            }
            // The handles are stale already.
            Err(_) => {
                self.restrict(inner, nsid, Restriction { absent: false, ..restriction });
                Reconciled::Unchanged
            }
            Ok(()) => {
                bound.opened.set_identify(identify.clone());
                self.restrict(inner, nsid, Restriction { absent: false, ..restriction });
                Reconciled::Unchanged
            }
        }
    }

    /// Whoever finds the namespace through another controller finds this one, if it is still what
    /// it was when it was opened.
    pub(crate) fn keep(&self, bound: &BoundNamespace) {
        if self.check(bound.binding).is_ok() {
            self.opened.keep(&bound.opened);
        }
    }

    /// Whether commands with this binding are sent.
    pub(crate) fn check(&self, binding: Binding) -> Result<(), Error> {
        self.restrictions().check(binding.nsid, Some(binding))
    }

    fn restrict(&self, inner: &mut Inner, nsid: Nsid, restriction: Restriction) {
        let nothing = restriction.stale_below == 0 && !restriction.absent;
        if inner.restrictions.0.get(&nsid.0).copied() == (!nothing).then_some(restriction) {
            return;
        }
        let restrictions = Arc::make_mut(&mut inner.restrictions);
        if nothing {
            restrictions.0.remove(&nsid.0);
        } else {
            restrictions.0.insert(nsid.0, restriction);
        }
        self.version.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_nvme::identify::LbaFormat;

    fn inspected(id: u8, lbads: u8) -> Inspection {
        let mut identify = IdentifyNamespace { nsze: 10.into(), nguid: [id; 16], ..IdentifyNamespace::default() };
        identify.lbaf[0] = LbaFormat::data_only(lbads);
        Inspection::found(Nsid(1), Box::new(identify), Some(&[]))
    }

    fn subsystem() -> Nqn {
        Nqn::parse("nqn.2014-08.org.example:a").unwrap()
    }

    fn bindings() -> Bindings {
        Bindings::new(subsystem(), Arc::default())
    }

    fn open(bindings: &Bindings, inspected: Inspection) -> Arc<BoundNamespace> {
        bindings.open(inspected, bindings.scans()).expect("no scan meanwhile").unwrap()
    }

    #[test]
    fn handles_of_a_replaced_namespace_become_stale_and_later_ones_stay_valid() {
        let bindings = bindings();
        let first = open(&bindings, inspected(1, 9));
        assert_eq!(open(&bindings, inspected(1, 9)).binding(), first.binding());
        assert_eq!(bindings.reconcile(&inspected(1, 9)), Reconciled::Unchanged);
        assert_eq!((bindings.version(), bindings.check(first.binding()).is_ok()), (0, true));
        assert_eq!(bindings.reconcile(&inspected(2, 9)), Reconciled::Replaced);
        assert_eq!(bindings.reconcile(&inspected(2, 9)), Reconciled::Unchanged, "reported once");
        let error = |binding| bindings.restrictions().check(Nsid(1), binding).unwrap_err().kind();
        assert_eq!((error(Some(first.binding())), error(None)), ("namespace-replaced", "namespace-replaced"));
        let second = open(&bindings, inspected(2, 9));
        assert!(bindings.restrictions().check(Nsid(1), None).is_ok() && bindings.check(second.binding()).is_ok());
        assert_eq!(error(Some(first.binding())), "namespace-replaced");
        // Not even when the first comes back: its commands were failed meanwhile.
        assert_eq!(bindings.reconcile(&inspected(1, 9)), Reconciled::Replaced);
        assert_eq!(error(Some(first.binding())), "namespace-replaced");
        assert_eq!(bindings.reconcile(&inspected(2, 12)), Reconciled::Unchanged);
    }

    #[test]
    fn a_missing_namespace_is_refused_until_it_is_back_and_compared() {
        let bindings = bindings();
        let first = open(&bindings, inspected(1, 9));
        bindings.reconcile(&Inspection::absent(Nsid(1)));
        assert!(matches!(bindings.check(first.binding()), Err(Error::NoSuchNamespace(_))));
        assert_eq!(bindings.reconcile(&inspected(1, 9)), Reconciled::Unchanged);
        assert!(bindings.check(first.binding()).is_ok());
        bindings.reconcile(&Inspection::absent(Nsid(1)));
        assert_eq!(bindings.reconcile(&inspected(1, 12)), Reconciled::Replaced);
        assert_eq!(bindings.check(first.binding()).unwrap_err().kind(), "unusable-format");
    }

    #[test]
    fn what_was_read_before_a_scan_is_read_again() {
        let bindings = bindings();
        let scans = bindings.scans();
        assert!(bindings.begin_scan().is_empty());
        assert!(bindings.open(inspected(1, 9), scans).is_none());
        let opened = open(&bindings, inspected(1, 9));
        assert_eq!(bindings.begin_scan(), [Nsid(1)]);
        let binding = opened.binding();
        drop(opened);
        assert!(bindings.begin_scan().is_empty(), "nobody has it open");
        assert!(bindings.check(binding).is_err(), "nobody compares it any more");
        assert!(bindings.restrictions().check(Nsid(1), None).is_ok());
    }

    #[test]
    fn a_namespace_that_comes_back_or_moves_is_the_one_that_is_open_with_a_binding_of_its_own() {
        let bindings = bindings();
        let first = open(&bindings, inspected(1, 9));
        bindings.reconcile(&inspected(2, 9));
        let second = open(&bindings, inspected(2, 9));
        bindings.reconcile(&inspected(1, 9));
        let back = open(&bindings, inspected(1, 9));
        assert!(Arc::ptr_eq(&back.opened, &first.opened) && !Arc::ptr_eq(&back.opened, &second.opened));
        assert!(bindings.check(back.binding()).is_ok() && bindings.check(first.binding()).is_err());
        drop(back);
        let moved = open(&bindings, Inspection { nsid: Nsid(7), ..inspected(1, 9) });
        assert!(Arc::ptr_eq(&moved.opened, &first.opened) && moved.binding().nsid() == Nsid(7));
    }

    #[test]
    fn namespaces_with_the_same_identifiers_at_one_controller_stay_two() {
        let bindings = bindings();
        let one = open(&bindings, inspected(1, 9));
        let mut other = Inspection { nsid: Nsid(2), ..inspected(1, 9) };
        other.found.as_mut().unwrap().0.nsze = 20.into();
        let other = open(&bindings, other);
        assert_eq!((one.identify().nsze.get(), other.identify().nsze.get()), (10, 20));
        assert_eq!(bindings.reconcile(&inspected(1, 9)), Reconciled::Unchanged);
        assert_eq!((one.identify().nsze.get(), other.identify().nsze.get()), (10, 20));
        assert!(bindings.check(one.binding()).is_ok() && bindings.check(other.binding()).is_ok());
    }

    #[test]
    fn controllers_that_know_the_same_open_namespaces_agree_on_them() {
        let opened = Arc::new(OpenedNamespaces::default());
        let [one, other] = [(); 2].map(|()| Bindings::new(subsystem(), Arc::clone(&opened)));
        let elsewhere = Bindings::new(Nqn::parse("nqn.2014-08.org.example:b").unwrap(), opened);
        let through_one = open(&one, inspected(1, 9));
        let through_other = open(&other, Inspection { nsid: Nsid(5), ..inspected(1, 9) });
        assert!(Arc::ptr_eq(&through_one.opened, &through_other.opened));
        // What happens at one of them does not concern the other.
        assert_eq!(one.reconcile(&inspected(2, 9)), Reconciled::Replaced);
        assert!(one.check(through_one.binding()).is_err() && other.check(through_other.binding()).is_ok());
        // Without identifiers, the subsystem decides.
        let [here, there, far] =
            [&one, &other, &elsewhere].map(|bindings| open(bindings, Inspection { nsid: Nsid(3), ..inspected(0, 9) }));
        assert!(Arc::ptr_eq(&here.opened, &there.opened) && !Arc::ptr_eq(&here.opened, &far.opened));
    }
}
