//! The namespaces that handles are open for: what each was when it was opened, and whether it still
//! is that. Decides which commands a queue pair may send; asks the controller nothing itself
//! (`establish` and `rescan` do).
//!
//! An NSID is only a number. A target may delete namespace 1 and create another one under the same
//! number, or come back with another configuration: commands that were meant for the first must
//! never reach the second. So whatever is found at a reconnect is compared here before the first
//! I/O queue is connected, and at every rescan while connected.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ebof_nvme::identify::{Descriptors, IdentifyNamespace, NamespaceIdDescriptor, ProtectionType};
use ebof_nvme::{Nsid, Status};

use crate::error::Error;
use crate::lock::lock;

/// Names one namespace as it was opened, in place of its NSID alone: commands that are submitted
/// with it are refused once the NSID means another namespace, also after that one was opened too.
/// See [`crate::Namespace::binding`].
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

/// What tells a namespace from all others, as its controller tells it. All zeros: not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    nguid: [u8; 16],
    eui64: [u8; 8],
    uuid: [u8; 16],
    csi: u8,
    /// Whether the controller gave the list of descriptors, which alone has UUID and command set.
    has_list: bool,
}

impl Identity {
    /// From Identify Namespace and the list of descriptors, where the controller has one.
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

    /// In words that two controllers of one namespace tell alike; empty where nothing was told.
    fn text(&self) -> String {
        let ids: [(&str, &[u8]); 3] = [("nguid", &self.nguid), ("eui64", &self.eui64), ("uuid", &self.uuid)];
        let told = ids.into_iter().filter(|(_, id)| id.iter().any(|&byte| byte != 0));
        let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        told.map(|(name, id)| format!("{name}.{}", hex(id))).collect::<Vec<_>>().join(" ")
    }

    /// Whether both are the same namespace, as far as the controller lets one know. As on Linux an
    /// identifier that is new, or missing, makes another namespace. Only where the list of
    /// descriptors was refused one of the two times is the rest enough, if there is a rest.
    fn is_same_as(&self, before: &Self) -> bool {
        let named = self.nguid == before.nguid && self.eui64 == before.eui64;
        match (before.has_list, self.has_list) {
            (true, false) if before.uuid != [0; 16] => named && (self.nguid != [0; 16] || self.eui64 != [0; 8]),
            (true, true) => named && self.uuid == before.uuid && self.csi == before.csi,
            _ => named,
        }
    }
}

/// What a command's blocks depend on: with another format the same LBA is another place.
type Format = (Option<u32>, u16, ProtectionType);

fn format_of(identify: &IdentifyNamespace) -> Format {
    (identify.format().block_bytes(), identify.format().ms.get(), identify.protection())
}

/// What a look at a namespace found.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) nsid: Nsid,
    /// Its Identify data and who it is; `None` where it is not active.
    pub(crate) found: Option<(Box<IdentifyNamespace>, Identity)>,
}

impl Looked {
    pub(crate) const fn absent(nsid: Nsid) -> Self {
        Self { nsid, found: None }
    }

    pub(crate) fn found(nsid: Nsid, identify: Box<IdentifyNamespace>, descriptors: Option<&[u8]>) -> Self {
        // An inactive namespace is all zeros.
        if identify.nsze.get() == 0 {
            return Self::absent(nsid);
        }
        let identity = Identity::new(&identify, descriptors);
        Self { nsid, found: Some((identify, identity)) }
    }
}

/// What the status of Identify Namespace, or of its descriptors, says when it is no success.
pub(crate) enum Refusal {
    /// There is no such namespace, or no such list.
    No,
    /// It may be told later.
    Later,
}

pub(crate) fn refusal(status: Status) -> Refusal {
    let known = [Status::INVALID_NAMESPACE, Status::INVALID_FIELD, Status::INVALID_OPCODE];
    if status.is_dnr() || known.iter().any(|&one| status.is(one)) { Refusal::No } else { Refusal::Later }
}

/// A namespace as it was opened; what all handles of it share.
#[derive(Debug)]
pub(crate) struct Opened {
    binding: Binding,
    identity: Identity,
    format: Format,
    /// As last read.
    identify: Mutex<Arc<IdentifyNamespace>>,
}

impl Opened {
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

/// Why a handle cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Replaced,
    Reformatted,
}

impl Ended {
    const fn error(self, nsid: Nsid) -> Error {
        match self {
            Self::Replaced => Error::Replaced { nsid },
            Self::Reformatted => {
                Error::Format { nsid, reason: "it was formatted with other blocks while it was in use" }
            }
        }
    }
}

/// What is refused for one NSID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Restriction {
    /// Bindings with smaller numbers are dead.
    ended_below: u64,
    why: Ended,
    /// Nobody has opened what is there now: commands that only name the NSID are refused too.
    unopened: bool,
    /// The namespace is not there.
    absent: bool,
}

/// What a queue pair looks at for every command: what is refused, by NSID. Nearly always empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restrictions(BTreeMap<u32, Restriction>);

impl Restrictions {
    /// Whether a command for `nsid` may be sent; with a binding, a command for just that namespace.
    pub(crate) fn check(&self, nsid: Nsid, binding: Option<Binding>) -> Result<(), Error> {
        let Some(restriction) = self.0.get(&nsid.0) else { return Ok(()) };
        let ended = match binding {
            Some(binding) => binding.number < restriction.ended_below,
            None => restriction.unopened,
        };
        if ended {
            return Err(restriction.why.error(nsid));
        }
        if restriction.absent { Err(Error::NoSuchNamespace(nsid)) } else { Ok(()) }
    }
}

/// What became of an NSID's handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reconciled {
    /// They go on, or there are none.
    Unchanged,
    /// They are dead.
    Replaced,
}

/// The open namespaces of a controller.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    inner: Mutex<Inner>,
    /// Moves when `Inner::restrictions` does.
    version: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// By NSID, with the number of its binding; at most as many as were ever opened.
    opened: BTreeMap<u32, (u64, Weak<Opened>)>,
    restrictions: Arc<Restrictions>,
    number: u64,
    /// Moves with every look at all of them.
    looks: u64,
}

impl Namespaces {
    /// Moves whenever something else is refused: see [`Namespaces::restrictions`].
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn restrictions(&self) -> Arc<Restrictions> {
        Arc::clone(&lock(&self.inner).restrictions)
    }

    /// To be given to [`Namespaces::open`] with what was read after this call.
    pub(crate) fn looks(&self) -> u64 {
        lock(&self.inner).looks
    }

    /// Those that somebody has open, for a look at all of them. What is opened from here on is read
    /// anew.
    pub(crate) fn begin_look(&self) -> Vec<Nsid> {
        let mut inner = lock(&self.inner);
        inner.looks += 1;
        let mut open = Vec::new();
        let mut closed = Vec::new();
        for (&nsid, (number, opened)) in &inner.opened {
            if opened.strong_count() > 0 { open.push(Nsid(nsid)) } else { closed.push((Nsid(nsid), *number)) }
        }
        // Nobody compares these from now on, so their bindings end: commands may still be queued
        // with them.
        for (nsid, number) in closed {
            inner.opened.remove(&nsid.0);
            let restriction =
                Restriction { ended_below: number + 1, why: Ended::Replaced, unopened: false, absent: false };
            self.restrict(&mut inner, nsid, restriction);
        }
        open.sort_unstable_by_key(|nsid| nsid.0);
        open
    }

    /// Opens a namespace that was found so; `None` when all were looked at since
    /// [`Namespaces::looks`]: read it again.
    pub(crate) fn open(&self, looked: Looked, looks: u64) -> Option<Result<Arc<Opened>, Error>> {
        let mut inner = lock(&self.inner);
        if inner.looks != looks {
            return None;
        }
        let nsid = looked.nsid;
        self.reconcile_locked(&mut inner, &looked);
        let Some((identify, identity)) = looked.found else { return Some(Err(Error::NoSuchNamespace(nsid))) };
        let ended_below = inner.restrictions.0.get(&nsid.0).map_or(0, |restriction| restriction.ended_below);
        let known = inner.opened.get(&nsid.0).and_then(|(_, opened)| opened.upgrade());
        if let Some(opened) = known.filter(|opened| opened.binding.number >= ended_below) {
            return Some(Ok(opened));
        }
        let was_open = inner.opened.contains_key(&nsid.0) || ended_below > 0;
        inner.number += 1;
        let binding = Binding { nsid, number: inner.number };
        let format = format_of(&identify);
        let opened = Arc::new(Opened { binding, identity, format, identify: Mutex::new(Arc::from(identify)) });
        inner.opened.insert(nsid.0, (binding.number, Arc::downgrade(&opened)));
        if was_open {
            let why = inner.restrictions.0.get(&nsid.0).map_or(Ended::Replaced, |restriction| restriction.why);
            self.restrict(
                &mut inner,
                nsid,
                Restriction { ended_below: binding.number, why, unopened: false, absent: false },
            );
        }
        Some(Ok(opened))
    }

    /// Compares what was found with what was opened, and refuses from now on what must not be sent
    /// any more.
    pub(crate) fn reconcile(&self, looked: &Looked) -> Reconciled {
        self.reconcile_locked(&mut lock(&self.inner), looked)
    }

    fn reconcile_locked(&self, inner: &mut Inner, looked: &Looked) -> Reconciled {
        let nsid = looked.nsid;
        let Some(opened) = inner.opened.get(&nsid.0).and_then(|(_, opened)| opened.upgrade()) else {
            return Reconciled::Unchanged;
        };
        let number = opened.binding.number;
        let restriction = inner.restrictions.0.get(&nsid.0).copied();
        let restriction =
            restriction.unwrap_or(Restriction { ended_below: 0, why: Ended::Replaced, unopened: false, absent: false });
        let Some((identify, identity)) = &looked.found else {
            self.restrict(inner, nsid, Restriction { absent: true, ..restriction });
            return Reconciled::Unchanged;
        };
        let why = if !identity.is_same_as(&opened.identity) {
            Some(Ended::Replaced)
        } else {
            (format_of(identify) != opened.format).then_some(Ended::Reformatted)
        };
        match why {
            Some(why) if number >= restriction.ended_below => {
                self.restrict(inner, nsid, Restriction { ended_below: number + 1, why, unopened: true, absent: false });
                Reconciled::Replaced
            }
            // Known already.
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

    /// Whether commands with this binding would be sent.
    pub(crate) fn check(&self, binding: Binding) -> Result<(), Error> {
        self.restrictions().check(binding.nsid, Some(binding))
    }

    fn restrict(&self, inner: &mut Inner, nsid: Nsid, restriction: Restriction) {
        let nothing = restriction.ended_below == 0 && !restriction.absent;
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

    fn looked(id: u8, lbads: u8) -> Looked {
        let mut identify = IdentifyNamespace { nsze: 10.into(), nguid: [id; 16], ..IdentifyNamespace::default() };
        identify.lbaf[0] = LbaFormat::data_only(lbads);
        Looked::found(Nsid(1), Box::new(identify), Some(&[]))
    }

    fn open(namespaces: &Namespaces, looked: Looked) -> Arc<Opened> {
        namespaces.open(looked, namespaces.looks()).expect("no look meanwhile").unwrap()
    }

    #[test]
    fn handles_of_one_namespace_share_its_fate_and_later_ones_have_their_own() {
        let namespaces = Namespaces::default();
        let first = open(&namespaces, looked(1, 9));
        assert_eq!(open(&namespaces, looked(1, 9)).binding(), first.binding());
        assert_eq!(namespaces.reconcile(&looked(1, 9)), Reconciled::Unchanged);
        assert_eq!((namespaces.version(), namespaces.check(first.binding()).is_ok()), (0, true));
        assert_eq!(namespaces.reconcile(&looked(2, 9)), Reconciled::Replaced);
        assert_eq!(namespaces.reconcile(&looked(2, 9)), Reconciled::Unchanged, "told once");
        let error = |binding| namespaces.restrictions().check(Nsid(1), binding).unwrap_err().kind();
        assert_eq!((error(Some(first.binding())), error(None)), ("namespace-replaced", "namespace-replaced"));
        let second = open(&namespaces, looked(2, 9));
        assert!(namespaces.restrictions().check(Nsid(1), None).is_ok() && namespaces.check(second.binding()).is_ok());
        assert_eq!(error(Some(first.binding())), "namespace-replaced");
        // Not even when the first comes back: its commands were failed meanwhile.
        assert_eq!(namespaces.reconcile(&looked(1, 9)), Reconciled::Replaced);
        assert_eq!(error(Some(first.binding())), "namespace-replaced");
        assert_eq!(namespaces.reconcile(&looked(2, 12)), Reconciled::Unchanged);
    }

    #[test]
    fn what_is_away_is_refused_until_it_is_back_and_compared_then() {
        let namespaces = Namespaces::default();
        let first = open(&namespaces, looked(1, 9));
        namespaces.reconcile(&Looked::absent(Nsid(1)));
        assert!(matches!(namespaces.check(first.binding()), Err(Error::NoSuchNamespace(_))));
        assert_eq!(namespaces.reconcile(&looked(1, 9)), Reconciled::Unchanged);
        assert!(namespaces.check(first.binding()).is_ok());
        namespaces.reconcile(&Looked::absent(Nsid(1)));
        assert_eq!(namespaces.reconcile(&looked(1, 12)), Reconciled::Replaced);
        assert_eq!(namespaces.check(first.binding()).unwrap_err().kind(), "unusable-format");
    }

    #[test]
    fn what_was_read_before_a_look_is_read_again() {
        let namespaces = Namespaces::default();
        let looks = namespaces.looks();
        assert!(namespaces.begin_look().is_empty());
        assert!(namespaces.open(looked(1, 9), looks).is_none());
        let opened = open(&namespaces, looked(1, 9));
        assert_eq!(namespaces.begin_look(), [Nsid(1)]);
        let binding = opened.binding();
        drop(opened);
        assert!(namespaces.begin_look().is_empty(), "nobody has it open");
        assert!(namespaces.check(binding).is_err(), "nobody compares it any more");
        assert!(namespaces.restrictions().check(Nsid(1), None).is_ok());
    }

    #[test]
    fn identifiers_are_compared_as_far_as_they_are_told() {
        let identity = |id: u8, list: Option<&[u8]>| {
            Identity::new(&IdentifyNamespace { nguid: [id; 16], ..IdentifyNamespace::default() }, list)
        };
        let mut uuid = vec![3, 16, 0, 0];
        uuid.extend([7; 16]);
        let with = |id| identity(id, Some(&uuid));
        assert!(with(1).is_same_as(&with(1)) && !with(2).is_same_as(&with(1)));
        assert!(!identity(1, Some(&[])).is_same_as(&with(1)) && !with(1).is_same_as(&identity(1, Some(&[]))));
        // The list is refused one of the two times.
        assert!(identity(1, None).is_same_as(&with(1)) && with(1).is_same_as(&identity(1, None)));
        assert!(!identity(0, None).is_same_as(&with(0)), "nothing is left to tell it by");
    }
}
