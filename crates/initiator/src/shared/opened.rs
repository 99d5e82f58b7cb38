//! The open namespaces: what each was when it was opened, and whether its NSID still refers to it.
//! Decides which commands a queue pair may send. Sends nothing itself (`establish` and `rescan`
//! do).
//!
//! An NSID is only a number. A target may delete namespace 1 and create another one with the same
//! number, or restart with another configuration: commands for the first must never reach the
//! second. So namespaces are compared at a reconnect before the first I/O queue is connected, and
//! at every rescan while connected.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ebof_nvme::identify::{Descriptors, IdentifyNamespace, NamespaceIdDescriptor, ProtectionType};
use ebof_nvme::{Nsid, Status};

use crate::error::Error;
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

/// The identifiers of a namespace, as its controller reports them. All zeros: not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceIdentity {
    nguid: [u8; 16],
    eui64: [u8; 8],
    uuid: [u8; 16],
    csi: u8,
    /// Whether the controller has the list of descriptors; only that has UUID and command set.
    has_list: bool,
}

impl NamespaceIdentity {
    /// From Identify Namespace and the list of descriptors, if the controller has one.
    pub(crate) fn new(identify: &IdentifyNamespace, descriptors: Option<&[u8]>) -> Self {
        let mut identity = Self {
            nguid: identify.nguid,
            eui64: identify.eui64,
            uuid: [0; 16],
            csi: 0,
            has_list: descriptors.is_some(),
        };
        for descriptor in Descriptors::new(descriptors.unwrap_or_default()).flatten() {
            match descriptor {
                NamespaceIdDescriptor::Nguid(id) => identity.nguid = id,
                NamespaceIdDescriptor::Eui64(id) => identity.eui64 = id,
                NamespaceIdDescriptor::Uuid(id) => identity.uuid = id.0,
                NamespaceIdDescriptor::Csi(csi) => identity.csi = csi.0,
                NamespaceIdDescriptor::Other { .. } => {}
            }
        }
        identity
    }

    /// As text, the same through all controllers of a namespace; empty without identifiers.
    fn text(&self) -> String {
        let ids: [(&str, &[u8]); 3] = [("nguid", &self.nguid), ("eui64", &self.eui64), ("uuid", &self.uuid)];
        let reported = ids.into_iter().filter(|(_, id)| id.iter().any(|&byte| byte != 0));
        let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        reported.map(|(name, id)| format!("{name}.{}", hex(id))).collect::<Vec<_>>().join(" ")
    }

    /// Whether both are the same namespace. As on Linux, an added or missing identifier makes it
    /// another one. If the list of descriptors was refused one of the two times, the identifiers in
    /// Identify Namespace decide, if there are any.
    fn is_same_as(&self, before: &Self) -> bool {
        let named = self.nguid == before.nguid && self.eui64 == before.eui64;
        match (before.has_list, self.has_list) {
            (true, false) if before.uuid != [0; 16] => named && (self.nguid != [0; 16] || self.eui64 != [0; 8]),
            (true, true) => named && self.uuid == before.uuid && self.csi == before.csi,
            _ => named,
        }
    }
}

/// Block size, metadata size and protection: if one changes, LBAs refer to other data.
type Format = (Option<u32>, u16, ProtectionType);

fn format_of(identify: &IdentifyNamespace) -> Format {
    (identify.format().block_bytes(), identify.format().ms.get(), identify.protection())
}

/// A namespace as it was found.
#[derive(Debug)]
pub(crate) struct Inspection {
    pub(crate) nsid: Nsid,
    /// Its Identify data and identifiers; `None` if it is not active.
    pub(crate) found: Option<(Box<IdentifyNamespace>, NamespaceIdentity)>,
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
        let identity = NamespaceIdentity::new(&identify, descriptors);
        Self { nsid, found: Some((identify, identity)) }
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

/// A namespace as it was opened, shared by all handles of it.
#[derive(Debug)]
pub(crate) struct OpenedNamespace {
    binding: Binding,
    identity: NamespaceIdentity,
    format: Format,
    /// As last read.
    identify: Mutex<Arc<IdentifyNamespace>>,
}

impl OpenedNamespace {
    pub(crate) const fn binding(&self) -> Binding {
        self.binding
    }

    pub(crate) fn identifiers(&self) -> String {
        self.identity.text()
    }

    pub(crate) fn identify(&self) -> Arc<IdentifyNamespace> {
        Arc::clone(&lock(&self.identify))
    }
}

/// Why handles of a namespace cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stale {
    Replaced,
    Reformatted,
}

impl Stale {
    const fn error(self, nsid: Nsid) -> Error {
        match self {
            Self::Replaced => Error::Replaced { nsid },
            Self::Reformatted => {
                Error::Format { nsid, reason: "it was formatted with other blocks while it was in use" }
            }
        }
    }
}

/// Which commands to an NSID are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Restriction {
    /// Bindings with smaller numbers are stale.
    stale_below: u64,
    why: Stale,
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

/// Result of [`Namespaces::reconcile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reconciled {
    /// The handles stay valid, or there are none.
    Unchanged,
    /// The handles are stale.
    Replaced,
}

/// The open namespaces of a controller.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    inner: Mutex<Inner>,
    /// Counts changes of `Inner::restrictions`.
    version: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// By NSID, with the number of its binding.
    opened: BTreeMap<u32, (u64, Weak<OpenedNamespace>)>,
    restrictions: Arc<Restrictions>,
    number: u64,
    /// Counts scans of all open namespaces.
    scans: u64,
}

impl Namespaces {
    /// Changes with [`Namespaces::restrictions`].
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn restrictions(&self) -> Arc<Restrictions> {
        Arc::clone(&lock(&self.inner).restrictions)
    }

    /// The number of scans, for [`Namespaces::open`]. Read it before the namespace is inspected.
    pub(crate) fn scans(&self) -> u64 {
        lock(&self.inner).scans
    }

    /// Begins a scan: returns the open namespaces. Namespaces that are inspected for
    /// [`Namespaces::open`] at the same time are inspected again.
    pub(crate) fn begin_scan(&self) -> Vec<Nsid> {
        let mut inner = lock(&self.inner);
        inner.scans += 1;
        let mut open = Vec::new();
        let mut closed = Vec::new();
        for (&nsid, (number, opened)) in &inner.opened {
            if opened.strong_count() > 0 { open.push(Nsid(nsid)) } else { closed.push((Nsid(nsid), *number)) }
        }
        // Without handles these are not compared any more, so their bindings become stale: commands
        // with them may still be queued.
        for (nsid, number) in closed {
            inner.opened.remove(&nsid.0);
            let restriction =
                Restriction { stale_below: number + 1, why: Stale::Replaced, unopened: false, absent: false };
            self.restrict(&mut inner, nsid, restriction);
        }
        open.sort_unstable_by_key(|nsid| nsid.0);
        open
    }

    /// Opens a namespace as it was found. `None` if a scan has begun since `scans` was read:
    /// inspect it again.
    pub(crate) fn open(&self, inspected: Inspection, scans: u64) -> Option<Result<Arc<OpenedNamespace>, Error>> {
        let mut inner = lock(&self.inner);
        if inner.scans != scans {
            return None;
        }
        let nsid = inspected.nsid;
        self.reconcile_locked(&mut inner, &inspected);
        let Some((identify, identity)) = inspected.found else { return Some(Err(Error::NoSuchNamespace(nsid))) };
        let stale_below = inner.restrictions.0.get(&nsid.0).map_or(0, |restriction| restriction.stale_below);
        let known = inner.opened.get(&nsid.0).and_then(|(_, opened)| opened.upgrade());
        if let Some(opened) = known.filter(|opened| opened.binding.number >= stale_below) {
            return Some(Ok(opened));
        }
        let was_open = inner.opened.contains_key(&nsid.0) || stale_below > 0;
        inner.number += 1;
        let binding = Binding { nsid, number: inner.number };
        let format = format_of(&identify);
        let opened = Arc::new(OpenedNamespace { binding, identity, format, identify: Mutex::new(Arc::from(identify)) });
        inner.opened.insert(nsid.0, (binding.number, Arc::downgrade(&opened)));
        if was_open {
            let why = inner.restrictions.0.get(&nsid.0).map_or(Stale::Replaced, |restriction| restriction.why);
            self.restrict(
                &mut inner,
                nsid,
                Restriction { stale_below: binding.number, why, unopened: false, absent: false },
            );
        }
        Some(Ok(opened))
    }

    /// Compares a namespace with what was opened, and updates the restrictions.
    pub(crate) fn reconcile(&self, inspected: &Inspection) -> Reconciled {
        self.reconcile_locked(&mut lock(&self.inner), inspected)
    }

    fn reconcile_locked(&self, inner: &mut Inner, inspected: &Inspection) -> Reconciled {
        let nsid = inspected.nsid;
        let Some(opened) = inner.opened.get(&nsid.0).and_then(|(_, opened)| opened.upgrade()) else {
            return Reconciled::Unchanged;
        };
        let number = opened.binding.number;
        let restriction = inner.restrictions.0.get(&nsid.0).copied();
        let restriction =
            restriction.unwrap_or(Restriction { stale_below: 0, why: Stale::Replaced, unopened: false, absent: false });
        let Some((identify, identity)) = &inspected.found else {
            self.restrict(inner, nsid, Restriction { absent: true, ..restriction });
            return Reconciled::Unchanged;
        };
        let why = if !identity.is_same_as(&opened.identity) {
            Some(Stale::Replaced)
        } else {
            (format_of(identify) != opened.format).then_some(Stale::Reformatted)
        };
        match why {
            Some(why) if number >= restriction.stale_below => {
                self.restrict(inner, nsid, Restriction { stale_below: number + 1, why, unopened: true, absent: false });
                Reconciled::Replaced
            }
            // The handles are stale already.
            Some(_) => {
                self.restrict(inner, nsid, Restriction { absent: false, ..restriction });
                Reconciled::Unchanged
            }
            None => {
                *lock(&opened.identify) = Arc::from(identify.clone());
                self.restrict(inner, nsid, Restriction { absent: false, ..restriction });
                Reconciled::Unchanged
            }
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

    fn open(namespaces: &Namespaces, inspected: Inspection) -> Arc<OpenedNamespace> {
        namespaces.open(inspected, namespaces.scans()).expect("no scan meanwhile").unwrap()
    }

    #[test]
    fn handles_of_a_replaced_namespace_become_stale_and_later_ones_stay_valid() {
        let namespaces = Namespaces::default();
        let first = open(&namespaces, inspected(1, 9));
        assert_eq!(open(&namespaces, inspected(1, 9)).binding(), first.binding());
        assert_eq!(namespaces.reconcile(&inspected(1, 9)), Reconciled::Unchanged);
        assert_eq!((namespaces.version(), namespaces.check(first.binding()).is_ok()), (0, true));
        assert_eq!(namespaces.reconcile(&inspected(2, 9)), Reconciled::Replaced);
        assert_eq!(namespaces.reconcile(&inspected(2, 9)), Reconciled::Unchanged, "reported once");
        let error = |binding| namespaces.restrictions().check(Nsid(1), binding).unwrap_err().kind();
        assert_eq!((error(Some(first.binding())), error(None)), ("namespace-replaced", "namespace-replaced"));
        let second = open(&namespaces, inspected(2, 9));
        assert!(namespaces.restrictions().check(Nsid(1), None).is_ok() && namespaces.check(second.binding()).is_ok());
        assert_eq!(error(Some(first.binding())), "namespace-replaced");
        // Not even when the first comes back: its commands were failed meanwhile.
        assert_eq!(namespaces.reconcile(&inspected(1, 9)), Reconciled::Replaced);
        assert_eq!(error(Some(first.binding())), "namespace-replaced");
        assert_eq!(namespaces.reconcile(&inspected(2, 12)), Reconciled::Unchanged);
    }

    #[test]
    fn a_missing_namespace_is_refused_until_it_is_back_and_compared() {
        let namespaces = Namespaces::default();
        let first = open(&namespaces, inspected(1, 9));
        namespaces.reconcile(&Inspection::absent(Nsid(1)));
        assert!(matches!(namespaces.check(first.binding()), Err(Error::NoSuchNamespace(_))));
        assert_eq!(namespaces.reconcile(&inspected(1, 9)), Reconciled::Unchanged);
        assert!(namespaces.check(first.binding()).is_ok());
        namespaces.reconcile(&Inspection::absent(Nsid(1)));
        assert_eq!(namespaces.reconcile(&inspected(1, 12)), Reconciled::Replaced);
        assert_eq!(namespaces.check(first.binding()).unwrap_err().kind(), "unusable-format");
    }

    #[test]
    fn what_was_read_before_a_scan_is_read_again() {
        let namespaces = Namespaces::default();
        let scans = namespaces.scans();
        assert!(namespaces.begin_scan().is_empty());
        assert!(namespaces.open(inspected(1, 9), scans).is_none());
        let opened = open(&namespaces, inspected(1, 9));
        assert_eq!(namespaces.begin_scan(), [Nsid(1)]);
        let binding = opened.binding();
        drop(opened);
        assert!(namespaces.begin_scan().is_empty(), "nobody has it open");
        assert!(namespaces.check(binding).is_err(), "nobody compares it any more");
        assert!(namespaces.restrictions().check(Nsid(1), None).is_ok());
    }

    #[test]
    fn identifiers_are_compared_as_far_as_they_are_reported() {
        let identity = |id: u8, list: Option<&[u8]>| {
            NamespaceIdentity::new(&IdentifyNamespace { nguid: [id; 16], ..IdentifyNamespace::default() }, list)
        };
        let mut uuid = vec![3, 16, 0, 0];
        uuid.extend([7; 16]);
        let with = |id| identity(id, Some(&uuid));
        assert!(with(1).is_same_as(&with(1)) && !with(2).is_same_as(&with(1)));
        assert!(!identity(1, Some(&[])).is_same_as(&with(1)) && !with(1).is_same_as(&identity(1, Some(&[]))));
        // The list is refused one of the two times.
        assert!(identity(1, None).is_same_as(&with(1)) && with(1).is_same_as(&identity(1, None)));
        assert!(!identity(0, None).is_same_as(&with(0)), "no identifier is left to compare");
    }
}
