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
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ebof_drive::{FunctionId, Origin, PortNames, Refusal, Request, State, View};
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
pub(super) struct Waiting {
    pub(super) request: Request,
    pub(super) origin: Origin,
    pub(super) queued: QueuedRequest,
}

/// What queues are asked to end.
pub(super) struct DrainRequest {
    /// The number of the handover.
    pub(super) number: u64,
    pub(super) lost: Vec<(Nsid, Option<FunctionId>)>,
    /// Nobody watches how long it takes yet.
    pub(super) is_first: bool,
}

/// What was handed over, with the request that is answered now.
pub(super) struct HandedOver {
    pub(super) request: Option<(BegunRequest, DriveReply)>,
}

/// What is to be done about a handover.
pub(super) enum Hurry {
    /// There is none.
    Nothing,
    /// It has so many milliseconds left.
    Wait(u64),
    /// Requests at devices are to be cancelled.
    Cancel(Vec<(Nsid, Option<FunctionId>)>),
    /// The device below does not end them: the request is refused.
    GiveUp {
        /// What is not let go of.
        lost: Vec<(Nsid, Option<FunctionId>)>,
        request: Option<BegunRequest>,
    },
}

/// Ends handovers that take too long. One for each drive, while there is one to watch.
pub(super) struct Deadline(pub(super) Weak<DriveActor>);

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
            Request::GiveTo(id, _) | Request::Place(id, _) | Request::Shift(id, _) => self.functions.contains(&id.0),
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
                function.ports = PortNames::default();
            }
        }
    }
}

impl Handover {
    fn withheld(&self) -> impl Iterator<Item = &Withheld> {
        self.draining.iter().map(|draining| &draining.withheld).chain(self.overdue.values())
    }

    /// Hides from a drive's new owners what they do not have yet.
    pub(super) fn hide(&self, view: &mut Arc<View>) {
        for withheld in self.withheld() {
            withheld.hide(Arc::make_mut(view));
        }
    }

    /// Keeps a request until what is being handed over has its new owner; gives it back if there is
    /// nothing to wait for.
    pub(super) fn wait(&mut self, waiting: Waiting) -> Option<Waiting> {
        if self.draining.is_none() || !hands_over(&waiting.request) {
            return Some(waiting);
        }
        // However often a host withdraws what it asks: as many wait as have somebody who waits.
        self.waiting.retain(|waiting| waiting.queued.is_wanted());
        self.waiting.push(waiting);
        None
    }

    /// Refuses a request about something that queues have not let go of in time.
    pub(super) fn check_overdue(&self, request: &Request) -> Result<(), Refusal> {
        let is_overdue = self.overdue.values().any(|withheld| withheld.concerns(request));
        if is_overdue { Err(Refusal::transient(Status::COMMAND_INTERRUPTED)) } else { Ok(()) }
    }

    /// The request that has begun the handover has nothing else to wait for: what queues have to
    /// end. Gives the request back if there is no handover.
    pub(super) fn ask(
        &mut self,
        begun: BegunRequest,
        reply: DriveReply,
    ) -> Result<DrainRequest, (BegunRequest, DriveReply)> {
        let Some(draining) = &mut self.draining else { return Err((begun, reply)) };
        draining.request = Some((begun, reply));
        let (number, lost) = (draining.number, draining.lost.clone());
        let is_first = !std::mem::replace(&mut self.is_watched, true);
        Ok(DrainRequest { number, lost, is_first })
    }

    /// Queues have nothing left of what they lost. Returns whether that was overdue, and the
    /// handover if it is the one that is waited for.
    pub(super) fn drained(&mut self, number: u64) -> (bool, Option<HandedOver>) {
        let was_overdue = self.overdue.remove(&number).is_some();
        let drained = self.draining.take_if(|draining| draining.number == number);
        (was_overdue, drained.map(|draining| HandedOver { request: draining.request }))
    }

    /// What becomes of the handover that is waited for as time goes by.
    pub(super) fn hurry(&mut self, now: Instant) -> Hurry {
        let Some(draining) = &mut self.draining else {
            self.is_watched = false;
            return Hurry::Nothing;
        };
        let limit_ms = if draining.is_cancelled { DRAIN_MS + ABORT_MS } else { DRAIN_MS };
        let left = (draining.began + Duration::from_millis(limit_ms)).saturating_duration_since(now);
        if !left.is_zero() {
            return Hurry::Wait(u64::try_from(left.as_millis()).unwrap_or(limit_ms) + 1);
        }
        if !std::mem::replace(&mut draining.is_cancelled, true) {
            return Hurry::Cancel(draining.lost.clone());
        }
        let Draining { number, withheld, lost, request, .. } = self.draining.take().expect("it was there above");
        self.overdue.insert(number, withheld);
        Hurry::GiveUp { lost, request: request.map(|(begun, _)| begun) }
    }

    /// The requests that have waited.
    pub(super) fn take_waiting(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// What waits is refused when it is dropped: the drive is about to be closed.
    pub(super) fn forget_waiting(&mut self) -> (Vec<Waiting>, Option<(BegunRequest, DriveReply)>) {
        let request = self.draining.as_mut().and_then(|draining| draining.request.take());
        (self.take_waiting(), request)
    }

    /// Keeps what was lost in a change from `before` to `after` from its new owners.
    pub(super) fn begin(&mut self, lost: &Lost, before: &BTreeMap<u32, BTreeSet<u16>>, after: &State, now: Instant) {
        if lost.is_empty() {
            return;
        }
        self.number += 1;
        // Requests that hand something over wait while another one is being handed over.
        assert!(self.draining.is_none(), "one handover begins after the other");
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
            | Request::Shift(..)
            | Request::AttachExactly(..)
            | Request::AttachMore(..)
            | Request::DetachFrom(..)
            | Request::Withdraw(_)
            | Request::Undo(_)
            | Request::ResetPrimary
    )
}

/// The functions of all namespaces, before a change.
pub(super) fn attached_functions(state: &State) -> BTreeMap<u32, BTreeSet<u16>> {
    state.namespaces.iter().map(|(&nsid, namespace)| (nsid, namespace.functions.clone())).collect()
}

/// The namespaces, and the functions that they were taken from, for people.
pub(super) fn names(lost: &[(Nsid, Option<FunctionId>)]) -> String {
    let name = |(nsid, function): &(Nsid, Option<FunctionId>)| match function {
        Some(function) => format!("namespace {nsid} of function {}", function.0),
        None => format!("namespace {nsid}"),
    };
    lost.iter().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
