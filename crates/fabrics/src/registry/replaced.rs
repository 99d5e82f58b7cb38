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
//! comparing. They end where the namespace is gone; but what waits in one that ends is sent once
//! more, as soon as its NSID is in the list again, however long that takes. So a host that begins
//! to list namespaces as SPDK does, listening to events before it has I/O queues, is shown first
//! that what it may hold is gone, then a namespace that executes nothing, until nothing waits any
//! more:
//! ```text
//! Unproven   lists, and may hold another        --> Gone       not shown
//! Gone       has listed, another one is there   --> Refused    shown, I/O commands fail
//!            has listed, there is none          --> Away
//! Away       another one comes                  --> Refused
//! Refused    has listed, and 10 s have passed   --> Withdrawn  not shown
//! Withdrawn  has listed, and 10 s have passed   --> Announced  shown, I/O commands wait
//! ```
//! Each step that shows it more or less is an event.
//! Such a host is treated like this, too, if it was there when the namespace was replaced.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry as Slot;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use ebof_drive::reservation::{Access, Right};
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::identify::Cns;
use ebof_nvme::{Nsid, Status, Uuid};

use super::objects::ObjectRecord;
use crate::admin::identify::Look;
use crate::association::Association;
use crate::controller::Controller;
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
    /// A host that compares nothing knows that it is gone, and there is no other one yet.
    Away { was: Was },
    /// A host that compares nothing knows that it is gone. It is shown the other one, and its I/O
    /// commands fail, until then, milliseconds, if it has looked already.
    Refused { until_ms: Option<u64> },
    /// What it was shown so is gone again, until then, milliseconds, if it has seen that. The flag
    /// is that of `Gone`.
    Withdrawn { looked: bool, until_ms: Option<u64> },
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

/// How long a host that compares nothing is shown a namespace that refuses its I/O commands, and
/// none after that, milliseconds: longer than SPDK waits before it repeats what found no namespace,
/// 1 s; and long enough for those who use a block device to let go of it, which SPDK's driver does
/// not wait for when it makes the next one.
const STEP_MS: u64 = 10_000;

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
            let may_hold_another = known.has_changed && missed(nsid);
            Some(match (known.has_changed, is_there) {
                (false, true) => return None,
                // The host may hold it, and another one may take its place before the host looks.
                (_, false) if !may_hold_another => {
                    (nsid, Stage::Gone { was: Was::Before(known.object), looked: false })
                }
                _ => (nsid, Stage::Unproven(Proof { may_hold_another, ..Proof::default() })),
            })
        };
        Self { nsids: known.filter_map(stage).collect() }
    }

    /// The host was shown `before`, and the subsystem is `now`. `own` says that a command of the
    /// host itself caused the change, which it therefore knows.
    pub(super) fn note(&mut self, before: &Subsystem, now: &Subsystem, own: bool, association: &Association) {
        let was = |nsid: Nsid| before.namespaces.find(nsid).map(Identity::of);
        let is = |nsid: Nsid| now.namespaces.find(nsid).map(Identity::of);
        if own {
            // What others have deleted before, it may still hold, although it makes another one.
            let may_hold = |stage: &Stage| match stage {
                Stage::Gone { .. } | Stage::Away { .. } => true,
                Stage::Unproven(proof) => proof.may_hold_another,
                _ => false,
            };
            let made = |nsid, stage: &Stage| was(nsid).is_none() && may_hold(stage);
            self.nsids.retain(|&nsid, stage| was(nsid) == is(nsid) || made(nsid, stage));
        } else {
            self.note_others(before, now, is_blind(association));
        }
        // If a namespace is back unchanged, there is nothing to tell.
        self.nsids.retain(|&nsid, stage| match (&*stage, now.namespaces.find(nsid)) {
            (Stage::Gone { was, .. } | Stage::Away { was }, Some(namespace)) if was.is(namespace) => false,
            (Stage::Away { .. }, Some(_)) => {
                *stage = Stage::Refused { until_ms: None };
                true
            }
            _ => true,
        });
    }

    /// The host did not cause the change itself.
    fn note_others(&mut self, before: &Subsystem, now: &Subsystem, is_blind: bool) {
        for namespace in before.namespaces.iter() {
            let was = Identity::of(namespace);
            if now.namespaces.find(namespace.nsid).map(Identity::of).as_ref() == Some(&was) {
                continue;
            }
            match self.nsids.entry(namespace.nsid) {
                Slot::Vacant(slot) => {
                    slot.insert(Stage::Gone { was: Was::Shown(was), looked: false });
                }
                Slot::Occupied(mut slot) => slot.get_mut().changed(is_blind),
            }
        }
    }

    /// Whether the host knows of all changes.
    pub(super) fn is_known(&self) -> bool {
        self.nsids.values().all(|stage| matches!(stage, Stage::Away { .. }))
    }

    /// A host that compares nothing looks at the namespaces, which are those of `now`: what it may
    /// hold another object of is gone for it. Returns whether there is any such namespace.
    pub(super) fn hide(&mut self, look: Look, controller: &mut Controller, now: &Subsystem) -> bool {
        let Look::List(after) = look else { return false };
        if !is_blind(&controller.association) {
            return false;
        }
        let mut any = false;
        for (&nsid, stage) in self.nsids.iter_mut().filter(|(nsid, _)| **nsid > after) {
            let Stage::Unproven(proof) = stage else { continue };
            let is_there = now.namespaces.find(nsid).is_some();
            if is_there && !(proof.reads == 0 && proof.may_hold_another) {
                continue;
            }
            *stage = Stage::Gone { was: Was::Unknown, looked: false };
            if is_there {
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
        let is_blind = is_blind(&controller.association);
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
            (stage, look) if look.is_at(nsid) => {
                let is_there = now.namespaces.find(nsid).is_some();
                stage.seen(unread, is_there, is_blind, now_ms, &mut more)
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
        let hidden = |nsid| matches!(self.nsids.get(&nsid), Some(Stage::Gone { .. } | Stage::Withdrawn { .. }));
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
                Some(Stage::Refused { .. }) => Right::Barred(Status::INVALID_NAMESPACE.dnr()),
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
    /// repeated. Returns whether the host is to be shown more, or less, from now on.
    pub(super) fn expire(&mut self, now_ms: u64) -> bool {
        let mut any = false;
        self.nsids.retain(|_, stage| {
            if stage.deadline_ms().is_none_or(|deadline| deadline > now_ms) {
                return true;
            }
            any = true;
            let next = match stage {
                Stage::Refused { .. } => Stage::Withdrawn { looked: false, until_ms: None },
                Stage::Withdrawn { .. } => Stage::Announced,
                Stage::Unproven(_) => return false,
                Stage::Gone { .. } | Stage::Away { .. } | Stage::Announced => unreachable!("it has no deadline"),
            };
            *stage = next;
            true
        });
        any
    }
}

/// Whether the host compares nothing.
fn is_blind(association: &Association) -> bool {
    association.lists_first.load(Ordering::Relaxed)
}

impl Stage {
    fn deadline_ms(&self) -> Option<u64> {
        match self {
            Self::Unproven(proof) if proof.reads > 0 => Some(proof.since_ms.saturating_add(PROOF_MS)),
            Self::Refused { until_ms } | Self::Withdrawn { until_ms, .. } => *until_ms,
            _ => None,
        }
    }

    /// The namespace was replaced or removed once more.
    fn changed(&mut self, is_blind: bool) {
        match self {
            // It may use what it was shown meanwhile.
            Self::Refused { .. } | Self::Withdrawn { .. } | Self::Announced | Self::Unproven(_) if is_blind => {
                *self = Self::Gone { was: Was::Unknown, looked: false };
            }
            // What it has looked at is gone.
            Self::Unproven(_) => {
                *self = Self::Unproven(Proof { may_hold_another: true, ..Proof::default() });
            }
            _ => {}
        }
    }

    /// The host has looked at the namespace as it is shown it. Returns whether there is more to
    /// tell.
    fn seen(&mut self, unread: bool, is_there: bool, is_blind: bool, now_ms: u64, more: &mut bool) -> bool {
        match self {
            // Another program on the host may have looked. After a second look it is assumed that
            // the log will not be read.
            Self::Gone { looked, .. } | Self::Withdrawn { looked, .. } if unread && !*looked => {
                *looked = true;
                true
            }
            Self::Gone { was, .. } if is_blind && !is_there => {
                let was = core::mem::replace(was, Was::Unknown);
                *self = Self::Away { was };
                true
            }
            Self::Gone { .. } if is_blind => {
                *self = Self::Refused { until_ms: None };
                *more = true;
                true
            }
            Self::Gone { .. } => {
                *self = Self::Announced;
                *more = true;
                is_there
            }
            Self::Refused { until_ms } | Self::Withdrawn { until_ms, .. } => {
                until_ms.get_or_insert(now_ms.saturating_add(STEP_MS));
                true
            }
            Self::Away { .. } | Self::Announced | Self::Unproven(_) => true,
        }
    }
}
