//! What functions and hosts lose is drained before anybody else has it.
//!
//! ```text
//!   journaled       queues have nothing left     shown to the new owner,
//!   and shown       at devices                   answered
//! ------------> draining ----------------------> (forgotten)
//!               |  the new owner is not shown it    ^ shown to the new owner
//!               | DRAIN_MS: requests are cancelled  |
//!               +--- ABORT_MS: answered with an error, overdue
//! ```
//! One request at a time: others that take away, or give, wait meanwhile, and are then executed in
//! their order. What is overdue keeps nobody else waiting; requests about it are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ebof_drive::{FunctionId, Origin, Refusal, Request, State, View};
use ebof_medium::{Job, Progress, Store};
use ebof_nvme::{Nsid, Status};

use super::actor::DriveActor;
use super::request::{BegunRequest, DriveReply, QueuedRequest};
use crate::drives::drain::DrainToken;

/// Namespaces that functions lose, or (`None`) the hosts of the drive's own subsystem;
/// [`Nsid::ALL`] for all of theirs.
pub(crate) type Lost = [(Nsid, Option<FunctionId>)];

/// Has queues end their commands to what they have lost, and hold the token until then.
pub(super) type Drain = Box<dyn Fn(&Lost, &DrainToken) + Send>;

/// Has what these queues have at devices of what they have lost cancelled.
pub(super) type Cancel = Box<dyn Fn(&Lost) + Send>;

/// How long commands to what was lost may take to end, and those that were cancelled then,
/// milliseconds.
const DRAIN_MS: u64 = 10_000;
const ABORT_MS: u64 = 10_000;

/// What is being handed over at a drive.
#[derive(Default)]
pub(super) struct Handover {
    /// The number of the last one.
    number: u64,
    draining: Option<Draining>,
    /// By number: what queues have not let go of in time.
    overdue: BTreeMap<u64, Withheld>,
    /// Requests that wait for the end of `draining`.
    waiting: Vec<Waiting>,
    /// There is a [`Deadline`].
    is_watched: bool,
}

/// A handover that is waited for.
struct Draining {
    number: u64,
    withheld: Withheld,
    lost: Vec<(Nsid, Option<FunctionId>)>,
    began: Instant,
    is_cancelled: bool,
    /// The request that it is a part of, once it has nothing else to wait for.
    request: Option<(BegunRequest, DriveReply)>,
}

/// What new owners are not shown yet.
#[derive(Default)]
struct Withheld {
    /// The functions that have gained a namespace, by its NSID.
    namespaces: BTreeMap<u32, BTreeSet<u16>>,
    /// Functions that were taken from their ports.
    functions: BTreeSet<u16>,
}

/// A request that waits.
struct Waiting {
    request: Request,
    origin: Origin,
    queued: QueuedRequest,
}

/// Ends handovers that take too long. One for each drive, while there is one to watch.
struct Deadline(Weak<DriveActor>);

impl Withheld {
    /// Of a change from `before` to `after`.
    fn new(lost: &Lost, before: &BTreeMap<u32, BTreeSet<u16>>, after: &State) -> Self {
        let mut withheld = Self::default();
        for (nsid, function) in lost {
            if *nsid == Nsid::ALL {
                withheld.functions.extend(function.map(|id| id.0));
            } else if let Some(namespace) = after.namespaces.get(&nsid.0) {
                let had = before.get(&nsid.0);
                let gained = namespace.functions.iter().filter(|id| had.is_none_or(|had| !had.contains(id)));
                withheld.namespaces.entry(nsid.0).or_default().extend(gained);
            }
        }
        withheld
    }

    /// Whether a request gives or takes something of it.
    fn concerns(&self, request: &Request) -> bool {
        let namespace = |nsid: &Nsid| match *nsid {
            Nsid::ALL => !self.namespaces.is_empty(),
            nsid => self.namespaces.contains_key(&nsid.0),
        };
        match request {
            Request::Attach(nsid, _)
            | Request::Detach(nsid, _)
            | Request::Delete(nsid)
            | Request::Map(nsid, _)
            | Request::AttachMore(nsid, _)
            | Request::DetachFrom(nsid, _)
            | Request::AttachExactly(nsid, _) => namespace(nsid),
            Request::GiveTo(id, _) | Request::Place(id, _) => self.functions.contains(&id.0),
            Request::Virtualize(command) => self.functions.contains(&command.cntlid.0),
            Request::ResetPrimary => !self.functions.is_empty(),
            // Whatever it was about: it is taken back when all is let go.
            Request::Undo(_) | Request::Withdraw(_) => true,
            _ => false,
        }
    }

    fn hide(&self, view: &mut View) {
        for (nsid, namespace) in &mut view.namespaces {
            if let Some(hidden) = self.namespaces.get(&nsid.0) {
                namespace.functions.retain(|id| !hidden.contains(id));
            }
        }
        for (id, function) in &mut view.functions {
            if self.functions.contains(id) {
                function.port = None;
            }
        }
    }
}

impl Handover {
    fn withheld(&self) -> impl Iterator<Item = &Withheld> {
        self.draining.iter().map(|draining| &draining.withheld).chain(self.overdue.values())
    }

    /// Keeps what was lost in a change from `before` to `after` from its new owners.
    pub(super) fn begin(&mut self, lost: &Lost, before: &BTreeMap<u32, BTreeSet<u16>>, after: &State, now: Instant) {
        if lost.is_empty() {
            return;
        }
        self.number += 1;
        self.draining = Some(Draining {
            number: self.number,
            withheld: Withheld::new(lost, before, after),
            lost: lost.to_vec(),
            began: now,
            is_cancelled: false,
            request: None,
        });
    }
}

impl DriveActor {
    /// The drive as hosts are shown it.
    pub(crate) fn shown(&self) -> Arc<View> {
        // In this order: a change and what is withheld of it come together.
        let mut view = self.view();
        for withheld in self.handover().withheld() {
            withheld.hide(Arc::make_mut(&mut view));
        }
        view
    }

    pub(super) fn handover(&self) -> MutexGuard<'_, Handover> {
        self.handover.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The functions of all namespaces, before a change.
    pub(super) fn attached_functions(&self) -> BTreeMap<u32, BTreeSet<u16>> {
        let drive = self.drive();
        let namespaces = drive.state().namespaces.iter();
        namespaces.map(|(&nsid, namespace)| (nsid, namespace.functions.clone())).collect()
    }

    /// Keeps a request until what is being handed over has its new owner; gives it back if there is
    /// nothing to wait for.
    pub(super) fn wait_for_handover(
        &self,
        request: Request,
        origin: Origin,
        queued: QueuedRequest,
    ) -> Option<(Request, Origin, QueuedRequest)> {
        let mut handover = self.handover();
        if handover.draining.is_none() || !hands_over(&request) {
            return Some((request, origin, queued));
        }
        // However often a host withdraws what it asks: as many wait as have somebody who waits.
        handover.waiting.retain(|waiting| waiting.queued.is_wanted());
        handover.waiting.push(Waiting { request, origin, queued });
        None
    }

    /// Refuses a request about something that queues have not let go of in time.
    pub(super) fn check_overdue(&self, request: &Request) -> Result<(), Refusal> {
        let is_overdue = self.handover().overdue.values().any(|withheld| withheld.concerns(request));
        if is_overdue { Err(Refusal::transient(Status::COMMAND_INTERRUPTED)) } else { Ok(()) }
    }

    /// Has the queues of those who lost something end their commands to it, and then answers.
    pub(super) fn drain(self: &Arc<Self>, store: &mut Store, begun: BegunRequest, reply: DriveReply) {
        let (number, lost) = {
            let mut handover = self.handover();
            let Some(draining) = &mut handover.draining else { return begun.reply(Ok(reply)) };
            draining.request = Some((begun, reply));
            let begun = (draining.number, draining.lost.clone());
            if !std::mem::replace(&mut handover.is_watched, true) {
                store.start(Box::new(Deadline(Arc::downgrade(self))));
            }
            begun
        };
        let own = Arc::clone(self);
        let token = DrainToken::new(move || {
            let actor = Arc::clone(&own);
            own.medium().run(Box::new(move |store| actor.drained(number, store)));
        });
        self.send_drain(&lost, &token);
    }

    /// Queues have nothing left of what they lost: the new owners are shown it.
    fn drained(self: &Arc<Self>, number: u64, store: &mut Store) {
        let draining = {
            let mut handover = self.handover();
            if handover.overdue.remove(&number).is_some() {
                tracing::info!(drive = self.name(), "commands to what was taken away have ended at last");
            }
            handover.draining.take_if(|draining| draining.number == number)
        };
        self.show(None, &[], &[]);
        let Some(draining) = draining else { return };
        if let Some((begun, reply)) = draining.request {
            begun.reply(Ok(reply));
        }
        self.resume(store);
    }

    /// What becomes of the handover that is waited for as time goes by: cancels, then gives up.
    fn hurry(self: &Arc<Self>, store: &mut Store) -> Progress {
        let mut handover = self.handover();
        let Some(draining) = &mut handover.draining else {
            handover.is_watched = false;
            return Progress::Done;
        };
        let limit_ms = if draining.is_cancelled { DRAIN_MS + ABORT_MS } else { DRAIN_MS };
        let left = (draining.began + Duration::from_millis(limit_ms)).saturating_duration_since(self.clock.now());
        if !left.is_zero() {
            return Progress::Later(u64::try_from(left.as_millis()).unwrap_or(limit_ms) + 1);
        }
        let drive = self.name();
        if !std::mem::replace(&mut draining.is_cancelled, true) {
            let lost = draining.lost.clone();
            drop(handover);
            tracing::warn!(
                drive,
                lost = names(&lost),
                "commands to what was taken away have not ended in time, and are cancelled"
            );
            self.send_cancel(&lost);
            return Progress::Again;
        }
        let given_up = handover.draining.take();
        if let Some(Draining { number, withheld, lost, request, .. }) = given_up {
            handover.overdue.insert(number, withheld);
            drop(handover);
            tracing::error!(
                drive,
                lost = names(&lost),
                "the device below does not end commands to what was taken away: nobody else gets it before that"
            );
            if let Some((begun, _)) = request {
                begun.reply(Err(Refusal::transient(Status::COMMAND_INTERRUPTED)));
            }
            self.resume(store);
        }
        Progress::Again
    }

    fn resume(self: &Arc<Self>, store: &mut Store) {
        let waiting = std::mem::take(&mut self.handover().waiting);
        for Waiting { request, origin, queued } in waiting {
            self.process(store, request, origin, queued);
        }
    }

    /// Refuses what waits: the drive is about to be closed.
    pub(super) fn forget_waiting(&self) {
        let (waiting, request) = {
            let mut handover = self.handover();
            let request = handover.draining.as_mut().and_then(|draining| draining.request.take());
            (std::mem::take(&mut handover.waiting), request)
        };
        drop((waiting, request));
    }
}

impl Job for Deadline {
    fn step(&mut self, store: &mut Store) -> Progress {
        self.0.upgrade().map_or(Progress::Done, |actor| actor.hurry(store))
    }
}

/// Whether a request takes something from functions or hosts, or gives it to them.
fn hands_over(request: &Request) -> bool {
    matches!(
        request,
        Request::Attach(..)
            | Request::Detach(..)
            | Request::Delete(_)
            | Request::Virtualize(_)
            | Request::GiveTo(..)
            | Request::Map(..)
            | Request::Place(..)
            | Request::AttachExactly(..)
            | Request::AttachMore(..)
            | Request::DetachFrom(..)
            | Request::Withdraw(_)
            | Request::Undo(_)
            | Request::ResetPrimary
    )
}

/// The namespaces, and the functions that they were taken from, for people.
fn names(lost: &[(Nsid, Option<FunctionId>)]) -> String {
    let name = |(nsid, function): &(Nsid, Option<FunctionId>)| match function {
        Some(function) => format!("namespace {nsid} of function {}", function.0),
        None => format!("namespace {nsid}"),
    };
    lost.iter().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
