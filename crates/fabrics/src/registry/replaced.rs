//! Namespaces that are removed, and others that get their NSIDs, as one controller is shown them.
//!
//! A controller that is there when it happens:
//!
//! ```text
//!   it is removed, or        the host has looked and          the host has
//!   replaced                 has not found it                 identified the NSID
//! ------------------> Gone -----------------------> Announced -------------------> (forgotten)
//!                     not shown                     shown, second event; I/O
//!                                                   commands wait
//! ```
//! Deviation: in the specification one event and one entry in the Changed Namespace List are
//! enough. All versions of Linux so far remove a disk whose identifiers have changed, and look for
//! the new one only at the next event. What they write until then is meant for the old namespace.
//!
//! A controller that comes later, of a host that may have been there before, at an NSID that has
//! named another object:
//! ```text
//!             the host has identified    event; and once more, or
//!             the NSID twice             the time is over
//! Unproven --------------------------> reads -------------------> (forgotten)
//! shown; I/O commands wait             are executed, if none
//!                                      waited before
//! ```
//! Deviation: hosts are thought to look before they use a namespace. All versions of Linux so far
//! repeat what waited as soon as they are connected, and look afterwards: first at the descriptors
//! (CNS 03h), then at one of the other structures. If it is another object, they remove the disk
//! before they look again at all; what waits for its repetition is sent in the meantime. If it is
//! the same, or a new one, most read one structure more. The event makes the others do so. A host
//! that begins with another structure, before it has sent anything, knows what it does.
//!
//! SPDK's driver (26.09) looks first, and its block devices go on with whatever there is, without
//! comparing. They end where the namespace is gone. So a host that lists namespaces as SPDK does,
//! listening to events before it has I/O queues, is shown first that what it may hold is gone:
//! ```text
//!             lists, and may hold another
//! Unproven ------------------------------> Gone, with an event
//!
//!      has looked and not found it            the time is over
//! Gone ----------------------------> Hidden -------------------> Announced, second event
//! ```
//! What waits in such a block device is sent once more although the device is going. One that
//! retries without an end keeps it for as long as the NSID is away.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry as Slot;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use ebof_drive::reservation::{Access, Right};
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::identify::Cns;
use ebof_nvme::{Nsid, Status, Uuid};

use super::objects::ObjectRecord;
use crate::controller::Controller;
use crate::identify::Look;
use crate::model::{DataId, DeviceId, Namespace, Subsystem};

/// The NSIDs whose namespaces have changed since the host last looked. At most one entry for each
/// NSID that it was ever shown.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    nsids: BTreeMap<Nsid, Stage>,
}

#[derive(Debug)]
enum Stage {
    /// The namespace was removed or replaced: the host is shown none. The flag says whether it has
    /// looked without having read the event's log.
    Gone { was: Was, looked: bool },
    /// The host knows that it is gone, and is shown none until then, milliseconds.
    Hidden { until_ms: u64 },
    /// The host knows that there was a change.
    Announced,
    /// The host may hold another object than this one.
    Unproven(Proof),
}

/// The identity of a namespace, as its host is told it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Identity {
    Named { nguid: [u8; 16], eui64: [u8; 8], uuid: Uuid },
    Device(DeviceId),
}

impl Identity {
    pub(super) fn of(namespace: &Namespace) -> Self {
        let Namespace { nguid, eui64, uuid, device, .. } = *namespace;
        if nguid == [0; 16] && eui64 == [0; 8] && uuid == Uuid::NIL {
            return Self::Device(device);
        }
        Self::Named { nguid, eui64, uuid }
    }
}

/// A namespace that is gone.
#[derive(Debug)]
enum Was {
    /// One that the host was shown.
    Shown(Identity),
    /// One that was there before the host came.
    Before(DataId),
    /// One that nobody knows any more.
    Unknown,
}

impl Was {
    fn is(&self, namespace: &Namespace) -> bool {
        match self {
            Self::Shown(identity) => *identity == Identity::of(namespace),
            Self::Before(object) => *object == namespace.object,
            Self::Unknown => false,
        }
    }
}

/// What a host has done about an NSID that it may hold another object of.
#[derive(Clone, Copy, Debug, Default)]
struct Proof {
    /// How often it has identified it.
    reads: u8,
    /// It had sent nothing before.
    is_quiet: bool,
    /// When it first did so.
    since_ms: u64,
    /// It was here when the NSID named another object, or may have been.
    may_hold_another: bool,
}

impl Proof {
    /// The host identifies the namespace. Whether this is what it means.
    fn read(&mut self, cns: Cns, has_refused: bool, now_ms: u64) -> bool {
        if self.reads == 0 {
            (self.is_quiet, self.since_ms) = (!has_refused, now_ms);
            if self.is_quiet && cns != Cns::NAMESPACE_ID_DESCRIPTORS {
                return true;
            }
        }
        self.reads += 1;
        self.reads >= 3
    }

    /// Whether what it reads may be what it means.
    fn may_read(self) -> bool {
        self.is_quiet && self.reads >= 2
    }
}

/// How long a host that has identified a namespace is thought to hold another one, where it does
/// not do so again, milliseconds: longer than Linux repeats a command five times, each of which may
/// take as long as its time-out, 30 s, on a link that is slow.
const PROOF_MS: u64 = 180_000;

/// How long a namespace stays away for a host that compares nothing, milliseconds: longer than what
/// waited for the one before is repeated.
const HIDDEN_MS: u64 = 30_000;

impl Replaced {
    /// For a controller that comes now: `known` is what its subsystem's NSIDs have named, `shown`
    /// what it is shown, and of the NSIDs in `missed` the host may hold another object.
    pub(super) fn of(
        known: impl Iterator<Item = (Nsid, ObjectRecord)>,
        shown: &Subsystem,
        missed: impl Fn(Nsid) -> bool,
    ) -> Self {
        let stage = |(nsid, known): (Nsid, ObjectRecord)| {
            let is_there = shown.namespaces.find(nsid).is_some();
            Some(match (known.has_changed, is_there) {
                (true, _) => (nsid, Stage::Unproven(Proof { may_hold_another: missed(nsid), ..Proof::default() })),
                (false, true) => return None,
                // The host may hold it, and another one may take its place before the host looks.
                (false, false) => (nsid, Stage::Gone { was: Was::Before(known.object), looked: false }),
            })
        };
        Self { nsids: known.filter_map(stage).collect() }
    }

    /// The host was shown `before`, and the subsystem is `now`. `own` says that a command of the
    /// host itself caused the change, which it therefore knows.
    pub(super) fn note(&mut self, before: &Subsystem, now: &Subsystem, own: bool) {
        let was = |nsid: Nsid| before.namespaces.find(nsid).map(Identity::of);
        let is = |nsid: Nsid| now.namespaces.find(nsid).map(Identity::of);
        if own {
            self.nsids.retain(|&nsid, _| was(nsid) == is(nsid));
            return;
        }
        for namespace in before.namespaces.iter() {
            let was = Identity::of(namespace);
            if is(namespace.nsid).as_ref() == Some(&was) {
                continue;
            }
            match self.nsids.entry(namespace.nsid) {
                Slot::Vacant(slot) => {
                    slot.insert(Stage::Gone { was: Was::Shown(was), looked: false });
                }
                // What it has looked at is gone.
                Slot::Occupied(mut slot) if matches!(slot.get(), Stage::Unproven(_)) => {
                    slot.insert(Stage::Unproven(Proof { may_hold_another: true, ..Proof::default() }));
                }
                Slot::Occupied(_) => {}
            }
        }
        // If a namespace is back unchanged, there is nothing to tell.
        let is_back = |nsid, was: &Was| now.namespaces.find(nsid).is_some_and(|namespace| was.is(namespace));
        self.nsids.retain(|&nsid, stage| !matches!(stage, Stage::Gone { was, .. } if is_back(nsid, was)));
    }

    /// Whether the host knows of all changes.
    pub(super) fn is_empty(&self) -> bool {
        self.nsids.is_empty()
    }

    /// A host without I/O queues looks at the namespaces as SPDK does: what it may hold another
    /// object of is gone for it. Returns whether there is any such namespace.
    pub(super) fn hide(&mut self, look: Look, controller: &mut Controller) -> bool {
        let Look::List(after) = look else { return false };
        if !controller.hears_of_namespaces() || controller.association.has_refused.load(Ordering::Relaxed) {
            return false;
        }
        let mut any = false;
        for (&nsid, stage) in self.nsids.iter_mut().filter(|(nsid, _)| **nsid > after) {
            if matches!(stage, Stage::Unproven(Proof { reads: 0, may_hold_another: true, .. })) {
                *stage = Stage::Gone { was: Was::Unknown, looked: false };
                controller.call_to(nsid);
                any = true;
            }
        }
        any
    }

    /// The host looks at the namespaces, which are those of `now`. Returns whether it is to be
    /// shown more from now on.
    pub(super) fn look(&mut self, look: Look, controller: &mut Controller, now: &Subsystem, now_ms: u64) -> bool {
        // If the host was sent an event and has not read its log yet, it will look again.
        let unread = controller.events.is_unread(AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED);
        let has_refused = controller.association.has_refused.load(Ordering::Relaxed);
        let mut more = false;
        self.nsids.retain(|&nsid, stage| match (stage, look) {
            (Stage::Announced, Look::One(at, _)) if at == nsid => {
                more = true;
                false
            }
            (Stage::Unproven(proof), Look::One(at, cns)) if at == nsid && now.namespaces.find(nsid).is_some() => {
                let is_proven = proof.read(cns, has_refused, now_ms);
                more |= is_proven || proof.may_read();
                if !is_proven && proof.reads == 2 {
                    controller.call_to(nsid);
                }
                !is_proven
            }
            // It has seen that there is none.
            (Stage::Unproven(_), Look::List(after)) if nsid > after => unread || now.namespaces.find(nsid).is_some(),
            (stage @ Stage::Gone { .. }, Look::List(after)) if nsid > after => {
                seen(stage, unread, now.namespaces.find(nsid).is_some(), now_ms, &mut more)
            }
            (stage @ Stage::Gone { .. }, Look::One(at, _)) if at == nsid => {
                seen(stage, unread, now.namespaces.find(nsid).is_some(), now_ms, &mut more)
            }
            _ => true,
        });
        more
    }

    /// The parts of `shown`, all namespaces of the host, that the Admin Queue and the I/O queues
    /// may see.
    pub(super) fn views(&self, shown: Arc<Subsystem>) -> (Arc<Subsystem>, Arc<Subsystem>) {
        if self.nsids.is_empty() {
            return (Arc::clone(&shown), shown);
        }
        let mut admin = Subsystem::clone(&shown);
        let hidden = |nsid| matches!(self.nsids.get(&nsid), Some(Stage::Gone { .. } | Stage::Hidden { .. }));
        if shown.drive.is_some() && admin.allocated.is_none() {
            admin.allocated = Some(Arc::new(shown.namespaces.clone()));
        }
        admin.namespaces = shown.namespaces.retaining(|namespace| !hidden(namespace.nsid));
        admin.pending = self.nsids.keys().copied().collect();
        let mut io = admin.clone();
        io.namespaces = io.namespaces.changing(|namespace| {
            namespace.right = match self.nsids.get(&namespace.nsid) {
                Some(Stage::Unproven(proof)) if proof.may_read() => match namespace.right {
                    right if right.allows(Access::Read) => Right::ReadForNow(Status::NAMESPACE_NOT_READY),
                    right => right,
                },
                Some(Stage::Announced | Stage::Unproven(_)) => Right::Barred(Status::NAMESPACE_NOT_READY),
                _ => namespace.right,
            };
        });
        (Arc::new(admin), Arc::new(io))
    }

    /// When [`expire`](Self::expire) is to be called.
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        self.nsids.values().filter_map(Stage::deadline_ms).min()
    }

    /// Hosts that have not looked again have had the time to do so, and what waited has been
    /// repeated. Returns whether the host is to be shown more from now on.
    pub(super) fn expire(&mut self, now_ms: u64) -> bool {
        let mut more = false;
        self.nsids.retain(|_, stage| {
            if stage.deadline_ms().is_none_or(|deadline| deadline > now_ms) {
                return true;
            }
            more = true;
            let stays = matches!(stage, Stage::Hidden { .. });
            *stage = Stage::Announced;
            stays
        });
        more
    }
}

impl Stage {
    fn deadline_ms(&self) -> Option<u64> {
        match self {
            Self::Unproven(proof) if proof.reads > 0 => Some(proof.since_ms.saturating_add(PROOF_MS)),
            Self::Hidden { until_ms } => Some(*until_ms),
            _ => None,
        }
    }
}

/// The host has not found a namespace that is `Gone`. Returns whether its entry is still needed.
fn seen(stage: &mut Stage, unread: bool, is_there: bool, now_ms: u64, more: &mut bool) -> bool {
    match stage {
        // Another program on the host may have looked. After a second look it is assumed that the
        // log will not be read.
        Stage::Gone { looked, .. } if unread && !*looked => {
            *looked = true;
            true
        }
        Stage::Gone { was: Was::Unknown, .. } if is_there => {
            *stage = Stage::Hidden { until_ms: now_ms.saturating_add(HIDDEN_MS) };
            true
        }
        _ => {
            *stage = Stage::Announced;
            *more = true;
            is_there
        }
    }
}
