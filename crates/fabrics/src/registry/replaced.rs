//! Namespaces that are removed, and others that get their NSIDs, as one controller is shown them.
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

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry as Slot;
use alloc::sync::Arc;

use ebof_drive::reservation::Right;
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::{Nsid, Status, Uuid};

use crate::controller::Controller;
use crate::identify::Look;
use crate::model::{DeviceId, Namespace, Subsystem};

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
    Gone { was: Identity, looked: bool },
    /// The host knows that there was a change.
    Announced,
}

/// The identity of a namespace.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    Named { nguid: [u8; 16], eui64: [u8; 8], uuid: Uuid },
    Device(DeviceId),
}

impl Identity {
    fn of(namespace: &Namespace) -> Self {
        let Namespace { nguid, eui64, uuid, device, .. } = *namespace;
        if nguid == [0; 16] && eui64 == [0; 8] && uuid == Uuid::NIL {
            return Self::Device(device);
        }
        Self::Named { nguid, eui64, uuid }
    }
}

impl Replaced {
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
            if let (false, Slot::Vacant(slot)) =
                (is(namespace.nsid).as_ref() == Some(&was), self.nsids.entry(namespace.nsid))
            {
                slot.insert(Stage::Gone { was, looked: false });
            }
        }
        // If a namespace is back unchanged, there is nothing to tell.
        self.nsids.retain(|&nsid, stage| !matches!(stage, Stage::Gone { was, .. } if is(nsid).as_ref() == Some(was)));
    }

    /// The host looks at the namespaces, which are those of `now`. Returns whether it is to be
    /// shown more from now on.
    pub(super) fn look(&mut self, look: Look, controller: &Controller, now: &Subsystem) -> bool {
        // If the host was sent an event and has not read its log yet, it will look again.
        let unread = controller.events.is_unread(AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED);
        let mut more = false;
        self.nsids.retain(|&nsid, stage| match (stage, look) {
            (Stage::Announced, Look::One(at)) if at == nsid => {
                more = true;
                false
            }
            (stage @ Stage::Gone { .. }, Look::List(after)) if nsid > after => {
                seen(stage, unread, now.namespaces.find(nsid).is_some(), &mut more)
            }
            (stage @ Stage::Gone { .. }, Look::One(at)) if at == nsid => {
                seen(stage, unread, now.namespaces.find(nsid).is_some(), &mut more)
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
        let hidden = |nsid| matches!(self.nsids.get(&nsid), Some(Stage::Gone { .. }));
        if shown.drive.is_some() && admin.allocated.is_none() {
            admin.allocated = Some(Arc::new(shown.namespaces.clone()));
        }
        admin.namespaces = shown.namespaces.retaining(|namespace| !hidden(namespace.nsid));
        admin.pending = self.nsids.keys().copied().collect();
        let mut io = admin.clone();
        io.namespaces = io.namespaces.changing(|namespace| {
            if matches!(self.nsids.get(&namespace.nsid), Some(Stage::Announced)) {
                namespace.right = Right::Barred(Status::NAMESPACE_NOT_READY);
            }
        });
        (Arc::new(admin), Arc::new(io))
    }
}

/// The host has not found a namespace that is `Gone`. Returns whether its entry is still needed.
fn seen(stage: &mut Stage, unread: bool, is_there: bool, more: &mut bool) -> bool {
    match stage {
        // Another program on the host may have looked. After a second look it is assumed that the
        // log will not be read.
        Stage::Gone { looked, .. } if unread && !*looked => {
            *looked = true;
            true
        }
        _ => {
            *stage = Stage::Announced;
            *more = true;
            is_there
        }
    }
}
