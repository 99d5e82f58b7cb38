//! What the commands of one connection ask of the drive of their subsystem, and what has become of
//! that. What is done with a command when the drive has answered is not known here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ebof_drive::{Answer, Refusal, Request};
use ebof_fabrics::{Association, DriveTask, Extent, Handle, LbaStatusQuery, Queue};
use ebof_medium::Thin;

use crate::drives::{DriveActor, DriveReply, SubmittedRequest};
use crate::shared::mailbox::{CommandRef, CommandReply, Message};
use crate::shared::reactor_context::ReactorContext;

/// The requests of one connection to the drive of its subsystem.
#[derive(Debug)]
pub(crate) struct DriveAccess {
    handle: Handle,
    /// Those without an answer, by the slots of their commands.
    waiting: BTreeMap<u32, SubmittedRequest>,
    /// Those that were withdrawn and that the drive's thread has still to skip.
    withdrawn: Vec<SubmittedRequest>,
    /// The connection has ended, and the drive's thread has not said yet that it is done with what
    /// it was asked before.
    awaits_end: bool,
    /// The drive was asked to remember the controller. Until it has done that the controller stays,
    /// as one that drains: there are no more of them, however long the drive's thread takes.
    asked_for_cntlid: bool,
}

/// Requests that may be withdrawn and not skipped yet: a host that aborts what it has just sent,
/// again and again, does not fill the queue of a drive's thread that is busy.
const WITHDRAWN_MAX: usize = 32;

/// Ranges of blocks: first block, blocks.
pub(crate) type BlockRanges = Vec<(u64, u64)>;

impl DriveAccess {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle, waiting: BTreeMap::new(), withdrawn: Vec::new(), awaits_end: false, asked_for_cntlid: false }
    }

    // ---- asking

    /// Asks the drive for the command in `slot`; the answer comes as [`CommandReply::Drive`].
    /// `false` if there is no drive.
    pub(crate) fn ask(&mut self, slot: u32, request: Request, queue: &Queue, context: &ReactorContext<'_>) -> bool {
        let Some((association, actor)) = drive_of(queue, context) else { return false };
        let request = actor.submit(request, association.origin(), self.answer_to(slot, context));
        self.waiting.insert(slot, request);
        true
    }

    /// The controller was reset: the drive may make something of it before the command in `slot`
    /// completes, and says so by [`CommandReply::Drive`]. Not withdrawn: the reset has begun.
    /// `false` if there is no drive.
    pub(crate) fn tell_reset(&self, slot: u32, queue: &Queue, context: &ReactorContext<'_>) -> bool {
        let Some((association, actor)) = drive_of(queue, context) else { return false };
        actor.submit(Request::Reset, association.origin(), self.answer_to(slot, context));
        true
    }

    /// Has the drive remember that blocks cannot be read; it answers as to [`ask`](Self::ask).
    /// `false` if there is no such namespace.
    pub(crate) fn mark_bad(
        &mut self,
        slot: u32,
        extent: Extent,
        queue: &Queue,
        context: &mut ReactorContext<'_>,
    ) -> bool {
        let kept = queue.association().and_then(|of| context.shared.drives.thin(&of.drive, extent.device));
        let devices = context.devices;
        let (Some((actor, thin)), Some(device)) = (kept, devices.device(extent.device)) else { return false };
        let block = u64::from(device.geometry().logical_block_bytes.max(1));
        let first = extent.offset_bytes / block;
        let blocks = first..first + u64::from(extent.length_bytes) / block;
        let request = actor.mark_bad(thin.volume(), blocks, self.answer_to(slot, context));
        self.waiting.insert(slot, request);
        true
    }

    /// Has the drive remember which host has which controller.
    pub(crate) fn assign_cntlid(&mut self, queue: &Queue, context: &ReactorContext<'_>) {
        if let Some((association, actor)) = drive_of(queue, context)
            && !association.is_secondary()
        {
            // Not withdrawn when the association ends, but waited for.
            actor.submit(Request::AssignCntlid, association.origin(), |_| {});
            self.asked_for_cntlid = true;
        }
    }

    /// Posts the drive's answer to the command in `slot` to this connection's reactor.
    fn answer_to(
        &self,
        slot: u32,
        context: &ReactorContext<'_>,
    ) -> impl FnOnce(Result<DriveReply, Refusal>) + Send + use<> {
        let reply = CommandRef { handle: self.handle, slot };
        let mailbox = context.shared.mailbox_of(self.handle).clone();
        move |answer| mailbox.post(Message::Reply { to: reply, reply: CommandReply::Drive(answer) })
    }

    // ---- answers

    /// The drive has answered the command in `slot`.
    pub(crate) fn note_answer(&mut self, slot: u32) {
        self.waiting.remove(&slot);
    }

    /// What the drive has answered to `task`, the command in `slot`; `None` while commands of other
    /// hosts, which are preempted, are awaited: each of their queues answers by
    /// [`CommandReply::Preempted`].
    pub(crate) fn take_answer(
        &self,
        (slot, task): (u32, &mut DriveTask),
        reply: DriveReply,
        queue: &Queue,
        context: &ReactorContext<'_>,
    ) -> Option<Answer> {
        let DriveReply { answer, abort } = reply;
        let drive = queue.association().map(|association| &association.drive);
        let mut preempted = Vec::new();
        for (nsid, host) in abort {
            let registry = context.shared.registry();
            let queues = drive.map(|nqn| registry.queues_of(nqn, host)).unwrap_or_default();
            preempted.extend(queues.into_iter().map(|handle| (handle, nsid)));
        }
        if preempted.is_empty() {
            return Some(answer);
        }
        task.await_preempted(answer, preempted.len());
        let reply = CommandRef { handle: self.handle, slot };
        for (handle, nsid) in preempted {
            context.shared.post(handle, Message::Preempt { handle, nsid, reply });
        }
        None
    }

    // ---- withdrawing

    /// Withdraws the request of the command in `slot`, which gets no answer then. `false` if the
    /// drive's thread has begun it, if there is none, or if too many were withdrawn already.
    pub(crate) fn withdraw(&mut self, slot: u32) -> bool {
        self.withdrawn.retain(SubmittedRequest::is_queued);
        if self.withdrawn.len() >= WITHDRAWN_MAX {
            return false;
        }
        let Some(request) = self.waiting.remove(&slot) else { return false };
        if request.withdraw() {
            self.withdrawn.push(request);
            return true;
        }
        self.waiting.insert(slot, request);
        false
    }

    /// The connection ends: withdraws all that the drive's thread has not begun. What that thread
    /// has still to do or to skip is awaited; it is done in order: when the thread comes to what it
    /// is asked now ([`Message::DriveDone`]), nothing of this connection is left there.
    pub(crate) fn end(&mut self, queue: &Queue, context: &ReactorContext<'_>) {
        self.withdrawn.retain(SubmittedRequest::is_queued);
        for request in self.waiting.values() {
            request.withdraw();
        }
        let asked_for_cntlid = std::mem::take(&mut self.asked_for_cntlid);
        let is_left = !(self.waiting.is_empty() && self.withdrawn.is_empty()) || asked_for_cntlid;
        self.waiting.clear();
        self.withdrawn.clear();
        if is_left {
            self.awaits_end = self.post_after_all(Message::DriveDone { handle: self.handle }, queue, context);
        }
    }

    /// Nothing of the connection is left at the drive's thread.
    pub(crate) fn note_end(&mut self) {
        self.awaits_end = false;
    }

    /// Whether the connection has ended, and something of it may be left at the drive's thread.
    #[inline]
    pub(crate) fn awaits_end(&self) -> bool {
        self.awaits_end
    }

    /// Has [`Message::DriveReached`] with `reply` posted when the drive's thread has begun all that
    /// it was asked. `false` if there is nothing.
    pub(crate) fn await_reached(&self, reply: CommandRef, queue: &Queue, context: &ReactorContext<'_>) -> bool {
        let message = Message::DriveReached { handle: self.handle, reply };
        !self.waiting.is_empty() && self.post_after_all(message, queue, context)
    }

    /// Has `message` posted to this connection's reactor when the drive's thread has come to the
    /// end of what it was asked before. `false` if there is no such thread.
    fn post_after_all(&self, message: Message, queue: &Queue, context: &ReactorContext<'_>) -> bool {
        let mailbox = context.shared.mailbox_of(self.handle).clone();
        let Some((_, actor)) = drive_of(queue, context) else { return false };
        actor.after_all(move || mailbox.post(message));
        true
    }
}

/// Has the drive save a severe error at once.
pub(crate) fn save_errors(queue: &Queue, context: &ReactorContext<'_>) {
    if let Some((_, actor)) = drive_of(queue, context) {
        actor.collect_soon();
    }
}

/// Which blocks are allocated, or cannot be read, and whether all were looked at that the query is
/// about; `None` if the namespace is gone.
pub(crate) fn lba_status(
    query: &LbaStatusQuery,
    queue: &Queue,
    context: &ReactorContext<'_>,
) -> Option<(BlockRanges, bool)> {
    let (_, thin) = queue.association().and_then(|of| context.shared.drives.thin(&of.drive, query.device))?;
    let device = context.devices.device(query.device)?;
    if query.allocated {
        return Some(allocated(&thin, query, u64::from(device.geometry().logical_block_bytes)));
    }
    Some((bad(&thin, query), true))
}

/// The association of a queue, and the drive of its subsystem, if there are both.
fn drive_of(queue: &Queue, context: &ReactorContext<'_>) -> Option<(Arc<Association>, Arc<DriveActor>)> {
    let association = queue.association()?;
    let actor = context.shared.drives.actor(&association.drive)?;
    Some((Arc::clone(association), actor))
}

/// Ranges of blocks that cannot be read, one more than there is room for; they are all that there
/// are otherwise.
fn bad(thin: &Thin, query: &LbaStatusQuery) -> BlockRanges {
    let Range { start: first, end } = query.range;
    let ranges = thin.bad_ranges(&query.range, query.ranges_max.saturating_add(1)).into_iter();
    let within = ranges.map(|range| (range.start.max(first), range.end.min(end)));
    within.map(|(start, end)| (start, end - start)).collect()
}

/// Ranges of blocks of `block` bytes that are allocated, and whether all of what was asked for was
/// looked at.
fn allocated(thin: &Thin, query: &LbaStatusQuery, block: u64) -> (BlockRanges, bool) {
    let Range { start: first, end } = query.range;
    // What is looked at is bounded, so that the others on the thread do not wait: the host asks on
    // where it ends.
    let bytes = first * block..end * block;
    let runs_max = query.ranges_max.saturating_add(1).saturating_mul(2);
    let runs = thin.allocated(bytes.clone(), runs_max);
    let seen = runs.last().map_or(bytes.start, |run| run.range.end);
    let allocated = runs.iter().filter(|run| run.allocated).map(|run| &run.range);
    // The unit of allocation may end within a block: it is in the range of what is allocated then.
    let blocks = allocated.map(|range| (range.start / block, range.end.div_ceil(block)));
    (blocks.map(|(start, end)| (start, end - start)).collect(), seen >= end * block)
}
