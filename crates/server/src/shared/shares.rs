//! Fair shares of drives between their functions: one scheduler for each drive that has functions,
//! over all connections and threads.
//!
//! Owns the schedulers, who is told when a command may go, and the figures of functions. The order
//! is decided in `ebof_shares`; where commands wait is `held.rs`, what a thread remembers until its
//! turn ends is `local.rs`.

mod held;
mod local;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebof_backend::Operation;
use ebof_fabrics::Model;
use ebof_nvme::Nqn;
use ebof_shares::{Depth, Figures, Flow, Kind, Request, Scheduler, Share, Verdict};

use crate::observe::uptime::Uptime;
use crate::shared::mailbox::{CommandRef, CommandReply, Mailbox, Message, mailbox_of};

pub(crate) use held::{HeldCommands, HeldRequest};
pub(crate) use local::LocalShares;

/// A request of a scheduler.
pub(crate) type TicketId = ebof_shares::Ticket;

/// The schedulers of a target's drives.
pub(crate) struct Shares {
    /// Of the lanes: a queue that knows those of another generation asks again.
    generation: AtomicU64,
    state: Mutex<State>,
    reactors: Vec<Mailbox>,
    clock: Uptime,
}

#[derive(Default)]
struct State {
    /// By the drives' own subsystems.
    drives: BTreeMap<Nqn, Arc<DriveShares>>,
    /// By subsystem: those of drives, and those of functions.
    lanes: HashMap<Nqn, Lane>,
}

/// A function, or the primary controller, of a drive with functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Configured {
    /// The subsystem by which hosts reach it.
    pub(crate) subsystem: Nqn,
    /// The drive's own subsystem.
    pub(crate) drive: Nqn,
    /// Its number; 0 is the primary controller.
    pub(crate) number: u16,
    pub(crate) share: Share,
}

/// The scheduler of a drive.
pub(crate) struct DriveShares {
    /// The flow that need not ask, or [`NOBODY`].
    sole: AtomicU32,
    state: Mutex<Scheduler<CommandRef>>,
    reactors: Vec<Mailbox>,
    clock: Uptime,
}

/// No flow.
const NOBODY: u32 = u32::MAX;

/// By which commands of a queue reach their drive.
#[derive(Clone)]
pub(crate) struct Lane {
    drive: Arc<DriveShares>,
    flow: Flow,
}

/// A request that waits or is at the device; it is settled when it is dropped.
pub(crate) struct Ticket {
    drive: Arc<DriveShares>,
    /// `None` once it is settled.
    id: Option<TicketId>,
}

/// What a queue knows of its lane.
pub(crate) struct KnownLane {
    generation: u64,
    lane: Option<Lane>,
}

/// What a function, or the primary controller, has had of its drive.
#[derive(Clone, Debug)]
pub(crate) struct FunctionFigures {
    pub(crate) subsystem: Nqn,
    pub(crate) drive: Nqn,
    pub(crate) number: u16,
    pub(crate) share: Share,
    pub(crate) figures: Figures,
}

/// Admitted requests, each with its owner.
type Admitted<'a> = &'a mut dyn FnMut(TicketId, CommandRef);

impl Shares {
    pub(crate) fn new(reactors: Vec<Mailbox>, clock: Uptime) -> Self {
        Self { generation: AtomicU64::new(1), state: Mutex::default(), reactors, clock }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the drives' functions share as the model says.
    pub(crate) fn follow(&self, model: &Model) {
        let functions = model.subsystems.iter().filter_map(|subsystem| {
            let function = subsystem.function.as_ref()?;
            Some((&subsystem.nqn, &function.drive, function.id.0, share_of(&function.share)))
        });
        let mut configured: Vec<Configured> = Vec::new();
        let mut drives = HashSet::new();
        for (subsystem, drive, number, share) in functions {
            if drives.insert(drive) {
                let share = Share::default();
                configured.push(Configured { subsystem: drive.clone(), drive: drive.clone(), number: 0, share });
            }
            configured.push(Configured { subsystem: subsystem.clone(), drive: drive.clone(), number, share });
        }
        self.configure(&configured, self.clock.now_us());
    }

    /// Has the drives' functions share as `configured` says, from now on. A drive that none of it
    /// is about has no scheduler.
    pub(crate) fn configure(&self, configured: &[Configured], now_us: u64) {
        let mut state = self.state();
        let drives: HashSet<&Nqn> = configured.iter().map(|configured| &configured.drive).collect();
        state.drives.retain(|drive, _| drives.contains(drive));
        let mut lanes = HashMap::new();
        for Configured { subsystem, drive, number, share } in configured {
            let Some(flow) = Flow::new(*number) else { continue };
            let State { drives, lanes: known } = &mut *state;
            let new = || Arc::new(DriveShares::new(self.reactors.clone(), self.clock.clone()));
            let drive = drives.entry(drive.clone()).or_insert_with(new);
            let is_new = known.get(subsystem).is_none_or(|lane| !Arc::ptr_eq(&lane.drive, drive));
            drive.set_share(flow, *share, is_new, now_us);
            lanes.insert(subsystem.clone(), Lane { drive: Arc::clone(drive), flow });
        }
        if lanes.is_empty() && state.lanes.is_empty() {
            return;
        }
        // What still waits there ends, whatever the function's limits were.
        for (_, lane) in state.lanes.iter().filter(|(subsystem, _)| !lanes.contains_key(*subsystem)) {
            lane.drive.set_share(lane.flow, Share::default(), false, now_us);
        }
        state.lanes = lanes;
        self.generation.fetch_add(1, Relaxed);
    }

    #[cold]
    fn lane(&self, subsystem: Option<&Nqn>) -> KnownLane {
        // Before the lanes: those that are found may be newer, and are then asked for once more.
        let generation = self.generation.load(Relaxed);
        let lane = subsystem.and_then(|subsystem| self.state().lanes.get(subsystem).cloned());
        KnownLane { generation, lane }
    }

    /// The figures of all functions.
    pub(crate) fn figures(&self, now_us: u64) -> Vec<FunctionFigures> {
        let state = self.state();
        let of_lane = |(subsystem, lane): (&Nqn, &Lane)| {
            let (drive, _) = state.drives.iter().find(|(_, drive)| Arc::ptr_eq(drive, &lane.drive))?;
            let scheduler = lane.drive.scheduler();
            Some(FunctionFigures {
                subsystem: subsystem.clone(),
                drive: drive.clone(),
                number: lane.flow.number(),
                share: scheduler.share(lane.flow),
                figures: scheduler.figures(lane.flow, now_us),
            })
        };
        let mut figures: Vec<_> = state.lanes.iter().filter_map(of_lane).collect();
        figures.sort_by(|one, other| (&one.drive, one.number).cmp(&(&other.drive, other.number)));
        figures
    }
}

impl KnownLane {
    /// Nothing is known yet.
    pub(crate) const fn unknown() -> Self {
        Self { generation: 0, lane: None }
    }

    /// The lane of a queue of `subsystem`, if its commands have to ask.
    #[inline]
    pub(crate) fn ask(&mut self, shares: &Shares, subsystem: impl FnOnce() -> Option<Nqn>) -> Option<&Lane> {
        if self.generation != shares.generation.load(Relaxed) {
            *self = shares.lane(subsystem().as_ref());
        }
        self.lane.as_ref().filter(|lane| lane.drive.sole.load(Relaxed) != u32::from(lane.flow.number()))
    }
}

impl Lane {
    /// A request of `owner`: its ticket, and whether it may go. `None` if it need not ask.
    pub(crate) fn submit(
        &self,
        request: Request,
        owner: CommandRef,
        now_us: u64,
        local: &mut LocalShares,
    ) -> Option<(Ticket, bool)> {
        let drive = &self.drive;
        let mut scheduler = drive.scheduler();
        let before = drive.sole.load(Relaxed);
        if let Some(sole) = u16::try_from(before).ok().and_then(Flow::new) {
            if sole == self.flow {
                return None;
            }
            scheduler.note_use(sole, now_us);
            drive.sole.store(NOBODY, Relaxed);
        }
        let verdict = scheduler.submit(self.flow, request, owner, now_us);
        let may_go = matches!(verdict, Verdict::Go(_));
        drive.note_sole(&mut scheduler, now_us);
        if !may_go {
            drive.admit(&mut scheduler, now_us, &mut |id, owner| local.admit(id, owner, drive));
        }
        local.note_due(drive, scheduler.due_us());
        Some((Ticket { drive: Arc::clone(drive), id: Some(verdict.ticket()) }, may_go))
    }
}

impl DriveShares {
    fn new(reactors: Vec<Mailbox>, clock: Uptime) -> Self {
        let state = Mutex::new(Scheduler::new(Depth::adaptive()));
        Self { sole: AtomicU32::new(NOBODY), state, reactors, clock }
    }

    fn scheduler(&self) -> MutexGuard<'_, Scheduler<CommandRef>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_share(self: &Arc<Self>, flow: Flow, share: Share, is_new: bool, now_us: u64) {
        let mut scheduler = self.scheduler();
        if !is_new && scheduler.share(flow) == share {
            return;
        }
        scheduler.set_share(flow, share, now_us);
        // It may have a limit now.
        self.sole.store(NOBODY, Relaxed);
        self.admit(&mut scheduler, now_us, &mut |id, owner| self.post(id, owner));
        self.post_due(&scheduler);
    }

    /// A limit keeps something back, and reactors may know of another time, or of none: has one
    /// look when it lets it through.
    fn post_due(self: &Arc<Self>, scheduler: &Scheduler<CommandRef>) {
        if let (Some(_), Some(reactor)) = (scheduler.due_us(), self.reactors.first()) {
            reactor.post(Message::ShareDue(Arc::clone(self)));
        }
    }

    /// From now on the flow that is alone, if one is, need not ask.
    fn note_sole(&self, scheduler: &mut Scheduler<CommandRef>, now_us: u64) {
        if let Some(sole) = scheduler.sole(now_us) {
            self.sole.store(sole.number().into(), Relaxed);
        }
    }

    /// Admits what may go.
    fn admit(&self, scheduler: &mut Scheduler<CommandRef>, now_us: u64, admitted: Admitted<'_>) {
        while let Some((id, owner)) = scheduler.next(now_us) {
            admitted(id, owner);
        }
    }

    /// Tells the thread of a command that it may go.
    fn post(&self, ticket: TicketId, reply: CommandRef) {
        let message = Message::Reply { to: reply, reply: CommandReply::Admitted(ticket) };
        mailbox_of(&self.reactors, reply.handle).post(message);
    }
}

impl Ticket {
    /// Whether it is this request's.
    pub(crate) fn is(&self, id: TicketId) -> bool {
        self.id == Some(id)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let now_us = self.drive.clock.now_us();
            let mut scheduler = self.drive.scheduler();
            scheduler.release(id, now_us);
            self.drive.admit(&mut scheduler, now_us, &mut |id, owner| self.drive.post(id, owner));
            self.drive.post_due(&scheduler);
        }
    }
}

impl std::fmt::Debug for DriveShares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DriveShares").field("sole", &self.sole).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("id", &self.id).finish_non_exhaustive()
    }
}

fn share_of(share: &ebof_drive::Share) -> Share {
    let &ebof_drive::Share { weight, iops, bytes_per_second, minimum_iops } = share;
    Share { weight, iops, bytes_per_second, minimum_iops }
}

/// What a device is asked for, as its scheduler sees it.
pub(crate) fn request_of(operation: &Operation) -> Request {
    let (kind, bytes) = match operation {
        Operation::Read { len, .. } => (Kind::Read, *len as u64),
        Operation::Write { len, .. } => (Kind::Write, *len as u64),
        Operation::Flush => (Kind::Other, 0),
        Operation::WriteZeroes { len, .. } => (Kind::Other, *len),
        Operation::Deallocate { ranges } => {
            (Kind::Other, ranges.iter().map(|range| range.end.saturating_sub(range.start)).fold(0, u64::saturating_add))
        }
    };
    Request { kind, bytes }
}
