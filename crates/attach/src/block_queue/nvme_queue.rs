//! A [`BlockQueue`] over a queue pair: turns a front's commands into NVMe commands, and their
//! status into an errno.
//!
//! Commands of a lost connection are sent again over another path, or after a reconnect, for as
//! long as the options allow; then they fail. Which path a command takes ([`Lanes`]), which wait,
//! and for how long ([`Requeue`]), is the initiator's, as is reconnecting. Writes are repeated only
//! once the controller that had them executes them no more ([`ebof_initiator::Fence`]).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_initiator::{
    Completion, Data, Error, Fate, Lanes, NamespaceHead, PathVerdict, Requeue, Requeued, Retries, Subsystem, Trouble,
};
use ebof_nvme::io::{BlockRange, Dsm, DsmRange};
use ebof_nvme::opcode::nvm;
use ebof_nvme::protection::left_to_controller;
use ebof_nvme::{Nsid, Sqe, Status};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::block_queue::buffer::Buffer;
use crate::block_queue::counting::{Counting, Ended, QueueTally};
use crate::block_queue::{BlockQueue, Done, Io, NamespaceRef, Op};

/// Interval of checks for commands that timed out.
const TIMEOUT_POLL: Duration = Duration::from_secs(1);

/// A thread's queue pairs and its commands.
pub(crate) struct NvmeQueue {
    lanes: Lanes<Buffer>,
    capacity: usize,
    slots: Vec<Option<Command>>,
    free: Vec<usize>,
    /// Commands that are to be sent, again or for the first time.
    requeue: Requeue<Command>,
    /// Commands that completed without being sent.
    completed: Vec<Done>,
    /// The last namespace for which it was logged that commands are not sent any more.
    reported: Option<NamespaceHead>,
    counting: Counting,
    /// The time of the completions of this turn, once there is one.
    turn: Option<Instant>,
}

/// A command and its progress.
struct Command {
    io: Io,
    /// How often it was retried because of its status.
    retries: Retries,
    /// Set if it exceeds the controller's limits, so that it is sent in parts.
    parts: Option<Parts>,
    /// When it came, and where its namespace is counted.
    began: Instant,
    counted_at: usize,
}

/// A command that is sent in parts.
#[derive(Clone, Copy, Debug)]
struct Parts {
    /// The most blocks of a part.
    step: u32,
    /// Completed blocks.
    done: u32,
}

impl Command {
    fn new(io: Io, counted_at: usize) -> Self {
        Self { io, retries: Retries::default(), parts: None, began: Instant::now(), counted_at }
    }

    /// The next part: first block, number of blocks, and its range in the data.
    fn next(&self) -> (u64, u32, std::ops::Range<usize>) {
        let Io { slba, blocks, reference, .. } = &self.io;
        let (from, count) = match self.parts {
            None => (0, *blocks),
            Some(Parts { step, done }) => (done, step.min(blocks - done)),
        };
        let bytes = |blocks: u32| blocks as usize * reference.block_bytes as usize;
        (slba + u64::from(from), count, bytes(from)..bytes(from) + bytes(count))
    }

    /// A part succeeded. Returns whether there is another.
    fn advance(&mut self) -> bool {
        let (_, count, _) = self.next();
        match &mut self.parts {
            None => false,
            Some(parts) => {
                parts.done += count;
                self.retries = Retries::default();
                parts.done < self.io.blocks
            }
        }
    }
}

impl Requeued for Command {
    fn retries(&mut self) -> &mut Retries {
        &mut self.retries
    }
}

impl NvmeQueue {
    /// With `separate_reads`, reads use queue pairs of the controllers' read maps.
    ///
    /// # Errors
    /// The queues cannot be connected.
    pub(crate) fn new(subsystem: &Subsystem, separate_reads: bool) -> Result<Self, Error> {
        let lanes = Lanes::new(subsystem, separate_reads)?;
        Ok(Self {
            counting: Counting::new(lanes.id()),
            turn: None,
            capacity: lanes.capacity(),
            slots: Vec::new(),
            free: Vec::new(),
            requeue: Requeue::new(subsystem.controller().options(), lanes.path_changes()),
            lanes,
            completed: Vec::new(),
            reported: None,
        })
    }

    /// What it counts.
    pub(crate) fn seen(&self) -> Arc<QueueTally> {
        self.counting.seen()
    }

    fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len() + self.requeue.len()
    }

    /// Submits a command over a path, or queues it for later.
    fn send(&mut self, mut command: Command) {
        let reference = command.io.reference;
        let Some(lane) = self.lanes.choose(reference.head, Nsid(reference.nsid)) else {
            return self.without_path(command);
        };
        if !self.fits(lane, &mut command) {
            return;
        }
        let (sqe, data) = match encode(&mut command) {
            Ok(encoded) => encoded,
            Err(error) => return self.fail(command, error),
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        match self.lanes.submit(lane, reference.head, sqe, data, slot as u64) {
            Ok(()) => self.slots[slot] = Some(command),
            Err(refused) => {
                self.free.push(slot);
                restore(&mut command, refused.data);
                self.not_sent(lane, command, refused.reason);
            }
        }
    }

    /// No path takes a command: it waits for one.
    fn without_path(&mut self, command: Command) {
        match self.lanes.outage(command.io.reference.head) {
            // Paths to other namespaces are there: those need not wait for this one.
            Some(outage) => {
                if let Err(command) = self.requeue.park(command, outage) {
                    let Io { reference, op, .. } = &command.io;
                    self.report_once(*reference, *op, &"no path leads to the namespace any more");
                    self.fail(command, Errno::IO);
                }
            }
            None => {
                self.requeue.note_loss();
                self.requeue.put_back(command);
            }
        }
    }

    fn not_sent(&mut self, lane: usize, mut command: Command, reason: Error) {
        match reason {
            Error::QueueFull => self.requeue.put_back(command),
            // The controller's limit is smaller than when the device was made.
            Error::TooLarge { .. } => {
                let step = self.lanes.limits(lane).transfer_bytes.unwrap_or(u64::MAX);
                let step = step / u64::from(command.io.reference.block_bytes.max(1));
                let before = command.parts.map_or(command.io.blocks, |parts| parts.step);
                let step = u32::try_from(step).unwrap_or(u32::MAX).min(before);
                if step == 0 || step == before {
                    tracing::error!(nsid = command.io.reference.nsid, "a block is more than the controller takes now");
                    return self.fail(command, Errno::IO);
                }
                let done = command.parts.map_or(0, |parts| parts.done);
                command.parts = Some(Parts { step, done });
                self.send(command);
            }
            reason => {
                let reference = command.io.reference;
                let fate = Fate::of(opcode(command.io.op), false);
                let verdict = self.lanes.judge(lane, reference.head, Nsid(reference.nsid), &reason, fate);
                let Err(command) = self.requeue.keep_unsent(command, verdict) else { return };
                self.report_once(reference, command.io.op, &reason);
                let error = if matches!(reason, Error::NoSuchNamespace(_)) { Errno::NODEV } else { Errno::IO };
                self.fail(command, error);
            }
        }
    }

    /// Logged once for each namespace, not for each command.
    fn report_once(&mut self, reference: NamespaceRef, op: Op, reason: &dyn std::fmt::Display) {
        if reference.head.is_none() || self.reported != reference.head {
            tracing::error!(%reason, nsid = reference.nsid, op = op.name(), "a command was not sent");
            self.reported = reference.head;
        }
    }

    /// Splits commands without data at the controller's present limits. `false` if the command has
    /// completed without being sent.
    fn fits(&mut self, lane: usize, command: &mut Command) -> bool {
        let io = &command.io;
        if matches!(io.op, Op::Read | Op::Write { .. }) || command.parts.is_some() {
            return true;
        }
        let limits = self.lanes.limits(lane);
        let max = match io.op {
            // Without a volatile cache acknowledged writes are durable.
            Op::Flush if !limits.volatile_cache => {
                self.count(command, None, false);
                let data = std::mem::take(&mut command.io.data);
                self.completed.push(Done { user: command.io.user, result: Ok(()), data });
                return false;
            }
            Op::WriteZeroes { .. } => match limits.write_zeroes_bytes {
                Some(bytes) => (bytes / u64::from(io.reference.block_bytes.max(1))).clamp(1, 65_536),
                None => 65_536,
            },
            Op::Deallocate => u64::from(limits.dsm_range_blocks).min(limits.dsm_blocks),
            Op::Read | Op::Write { .. } | Op::Flush => return true,
        };
        let step = u32::try_from(max).unwrap_or(u32::MAX);
        if io.blocks > step {
            command.parts = Some(Parts { step, done: 0 });
        }
        true
    }

    /// Counts a command that has ended, over a path unless it was not sent.
    fn count(&mut self, command: &Command, lane: Option<usize>, failed: bool) {
        let now = *self.turn.get_or_insert_with(Instant::now);
        let latency_us = u64::try_from(now.saturating_duration_since(command.began).as_micros()).unwrap_or(u64::MAX);
        let Io { op, blocks, reference, .. } = &command.io;
        let moves = matches!(op, Op::Read | Op::Write { .. }) && !failed;
        let bytes = if moves { u64::from(*blocks) * u64::from(reference.block_bytes) } else { 0 };
        let path = lane.map(|lane| self.lanes.path(lane).0);
        self.counting.end(command.counted_at, path, *op, Ended { bytes, failed, latency_us });
    }

    /// The time of a command that was sent once, and not in parts.
    fn note_latency(&mut self, lane: usize, command: &Command) {
        if self.lanes.wants_latency() && command.parts.is_none() {
            let now = *self.turn.get_or_insert_with(Instant::now);
            self.lanes.note_latency(lane, command.began, now);
        }
    }

    fn fail(&mut self, command: Command, error: Errno) {
        self.count(&command, None, true);
        self.completed.push(Done { user: command.io.user, result: Err(error), data: command.io.data });
    }

    fn complete(&mut self, lane: usize, completion: Completion<Buffer>, done: &mut Vec<Done>) {
        let index = usize::try_from(completion.user).unwrap_or(usize::MAX);
        let Some(mut command) = self.slots.get_mut(index).and_then(Option::take) else {
            tracing::error!(user = completion.user, "a completion that nobody waits for");
            return;
        };
        self.free.push(index);
        // A network card that did not release the data after a loss: they cannot be sent again.
        let is_lost = matches!((&command.io.op, &completion.data), (Op::Write { .. }, Data::None));
        restore(&mut command, completion.data);
        match completion.result {
            Ok(cqe) if cqe.status().is_success() => {
                self.note_latency(lane, &command);
                if command.advance() {
                    self.requeue.push(command);
                    return;
                }
                self.count(&command, Some(lane), false);
                done.push(Done { user: command.io.user, result: Ok(()), data: command.io.data });
            }
            Ok(cqe) => {
                let (status, reference) = (cqe.status(), command.io.reference);
                let verdict = self.lanes.judge_status(lane, reference.head, Nsid(reference.nsid), status);
                let Some(command) = self.keep(lane, command, verdict) else { return };
                let Io { op, slba, blocks, .. } = &command.io;
                tracing::warn!(%status, nsid = reference.nsid, op = op.name(), slba, blocks, "I/O error");
                self.fail(command, errno(status));
            }
            Err(error) => {
                let reference = command.io.reference;
                let verdict = match is_lost {
                    true => PathVerdict::Failed,
                    false => {
                        let fate = Fate::of(opcode(command.io.op), false);
                        self.lanes.judge(lane, reference.head, Nsid(reference.nsid), &error, fate)
                    }
                };
                let Some(command) = self.keep(lane, command, verdict) else { return };
                tracing::error!(%error, op = command.io.op.name(), "a command failed");
                self.fail(command, Errno::IO);
            }
        }
    }

    /// Keeps a command that has come back over a path, as `verdict` says; gives it back if it has
    /// failed.
    fn keep(&mut self, lane: usize, command: Command, verdict: PathVerdict) -> Option<Command> {
        let kept = self.requeue.keep(command, verdict);
        if kept.is_ok() {
            self.lanes.controller(lane).note_trouble(Trouble::Repeated);
        }
        kept.err()
    }

    /// Sends waiting commands if there is a connection; fails them if it was given up.
    fn send_waiting(&mut self) {
        self.requeue.end_pauses(|| self.lanes.path_changes());
        if self.requeue.is_given_up(|| self.lanes.state()) {
            for command in self.requeue.take_all() {
                self.fail(command, Errno::IO);
            }
            return;
        }
        if self.requeue.is_lost() {
            return;
        }
        let mut sent = false;
        while let Some(command) = self.requeue.pop() {
            let before = self.requeue.len();
            self.send(command);
            if self.requeue.len() > before {
                break;
            }
            sent = true;
        }
        if sent {
            self.flush();
        }
    }
}

impl BlockQueue for NvmeQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.outstanding() >= self.capacity {
            return Err(io);
        }
        let counted_at = self.counting.begin(io.reference.nsid);
        let command = Command::new(io, counted_at);
        if self.requeue.is_given_up(|| self.lanes.state()) {
            self.fail(command, Errno::IO);
        } else if self.requeue.has_waiting() {
            self.requeue.push(command);
        } else {
            self.send(command);
        }
        Ok(())
    }

    fn flush(&mut self) {
        if let Err(error) = self.lanes.flush() {
            // Outstanding commands are returned by `poll`.
            tracing::debug!(%error, "flushing a queue pair");
        }
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> Option<Duration> {
        self.turn = None;
        loop {
            match self.lanes.poll() {
                Ok(Some((lane, completion))) => self.complete(lane, completion, done),
                Ok(None) => break,
                Err(_not_connected) => {
                    self.requeue.note_loss();
                    break;
                }
            }
        }
        if self.requeue.is_lost() || !self.requeue.is_empty() {
            self.send_waiting();
        }
        done.append(&mut self.completed);
        self.turn = None;
        // Polling the queue pair checks for commands that timed out.
        let is_outstanding = self.slots.len() > self.free.len();
        self.requeue.check_after().or(is_outstanding.then_some(TIMEOUT_POLL))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.lanes.as_fd()
    }
}

/// The opcode of an operation.
const fn opcode(op: Op) -> u8 {
    match op {
        Op::Read => nvm::READ,
        Op::Write { .. } => nvm::WRITE,
        Op::Flush => nvm::FLUSH,
        Op::WriteZeroes { .. } => nvm::WRITE_ZEROES,
        Op::Deallocate => nvm::DATASET_MANAGEMENT,
    }
}

/// Encodes the next part, and moves its data out of the command. `EINVAL` if no NVMe command can
/// express it, `EIO` if its data are gone: a network card has kept them.
fn encode(command: &mut Command) -> Result<(Sqe, Data<Buffer>), Errno> {
    let (slba, blocks, part) = command.next();
    let io = &mut command.io;
    let whole = command.parts.is_none();
    let nsid = Nsid(io.reference.nsid);
    let range = BlockRange::new(slba, blocks);
    let transfer = matches!(io.op, Op::Read | Op::Write { .. } | Op::WriteZeroes { .. });
    if transfer && !(1..=65_536).contains(&blocks) {
        return Err(Errno::INVAL);
    }
    if whole && matches!(io.op, Op::Read | Op::Write { .. }) && io.data.len() < part.len() {
        return Err(Errno::IO);
    }
    let (sqe, data) = match io.op {
        Op::Read => {
            let room = if whole { std::mem::take(&mut io.data) } else { Buffer::zeroed(part.len()) };
            (range.encode(nvm::READ, nsid), Data::ToHost(room))
        }
        Op::Write { fua } => {
            let sqe = BlockRange { fua, ..range }.encode(nvm::WRITE, nsid);
            let bytes = match whole {
                true => std::mem::take(&mut io.data),
                false => Buffer::copy_of(io.data.get(part).ok_or(Errno::INVAL)?),
            };
            (sqe, Data::FromHost(bytes))
        }
        Op::Flush => (Sqe::new(nvm::FLUSH).with_nsid(nsid), Data::None),
        Op::WriteZeroes { deallocate } => {
            (BlockRange { deallocate, ..range }.encode(nvm::WRITE_ZEROES, nsid), Data::None)
        }
        Op::Deallocate => {
            let dsm = Dsm { ranges: 1, deallocate: true, integral_write: false, integral_read: false };
            let range = DsmRange { cattr: 0.into(), nlb: blocks.into(), slba: slba.into() };
            (dsm.encode(nsid), Data::FromHost(Buffer::copy_of(range.as_bytes())))
        }
    };
    Ok((left_to_controller(io.reference.protection, sqe), data))
}

/// Moves the data back into the command.
fn restore(command: &mut Command, data: Data<Buffer>) {
    let (_, _, part) = command.next();
    let io = &mut command.io;
    match (data, command.parts.is_some()) {
        (Data::ToHost(buffer), true) => {
            // Only a command whose data are there is sent in parts, and `encode` has made the
            // buffer of a part as long as that. Otherwise it would read as whatever was there.
            io.data.get_mut(part).expect("the data of the whole command").copy_from_slice(&buffer);
        }
        (Data::ToHost(buffer) | Data::FromHost(buffer), false) if io.op != Op::Deallocate => io.data = buffer,
        _ => {}
    }
}

/// The block layer's error for a status.
fn errno(status: Status) -> Errno {
    let known = [
        (Status::INVALID_OPCODE, Errno::OPNOTSUPP),
        (Status::LBA_OUT_OF_RANGE, Errno::NOSPC),
        (Status::CAPACITY_EXCEEDED, Errno::NOSPC),
        (Status::NAMESPACE_WRITE_PROTECTED, Errno::ROFS),
        (Status::INVALID_NAMESPACE, Errno::NODEV),
        (Status::RESERVATION_CONFLICT, Errno::BADE),
    ];
    known.iter().find(|(other, _)| status.is(*other)).map_or(Errno::IO, |&(_, errno)| errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_nvme::identify::ProtectionType;

    #[test]
    fn commands_are_encoded() {
        let reference = NamespaceRef { nsid: 3, head: None, block_bytes: 512, protection: ProtectionType::Type1 };
        let io = |op, blocks, data| Command::new(Io { reference, op, slba: 1 << 40, blocks, data, user: 0 }, 0);
        let (sqe, data) = encode(&mut io(Op::Write { fua: true }, 8, Buffer::zeroed(4096))).unwrap();
        let range = BlockRange::decode(&sqe);
        assert_eq!((sqe.opcode, sqe.nsid().0, range.slba, range.blocks, range.fua), (nvm::WRITE, 3, 1 << 40, 8, true));
        // The controller handles protection information (PRACT).
        assert_eq!(range.prinfo, 8);
        assert!(matches!(data, Data::FromHost(buffer) if buffer.len() == 4096));
        let (sqe, data) = encode(&mut io(Op::WriteZeroes { deallocate: true }, 65_536, Buffer::default())).unwrap();
        assert!(BlockRange::decode(&sqe).deallocate && matches!(data, Data::None));
        let (sqe, data) = encode(&mut io(Op::Deallocate, u32::MAX, Buffer::default())).unwrap();
        assert_eq!(BlockRange::decode(&sqe).prinfo, 0);
        assert!(Dsm::decode(&sqe).deallocate && matches!(data, Data::FromHost(buffer) if buffer.len() == 16));
        assert!(encode(&mut io(Op::Read, 0, Buffer::default())).is_err());
        assert!(encode(&mut io(Op::WriteZeroes { deallocate: false }, 65_537, Buffer::default())).is_err());
    }

    #[test]
    fn a_command_whose_data_are_gone_is_not_sent_again() {
        let reference = NamespaceRef { nsid: 3, head: None, block_bytes: 512, protection: ProtectionType::None };
        for op in [Op::Write { fua: false }, Op::Read] {
            let data = Buffer::zeroed(1024);
            let mut command = Command::new(Io { reference, op, slba: 7, blocks: 2, data, user: 0 }, 0);
            assert!(encode(&mut command).is_ok());
            restore(&mut command, Data::None);
            assert_eq!(encode(&mut command).err(), Some(Errno::IO));
        }
    }

    // @test host.limits-again
    #[test]
    fn large_commands_are_sent_in_parts() {
        let reference = NamespaceRef { nsid: 3, head: None, block_bytes: 512, protection: ProtectionType::None };
        let data: Vec<u8> = (1..6u8).flat_map(|block| [block; 512]).collect();
        for op in [Op::Write { fua: false }, Op::Read] {
            let data = if op == Op::Read { Buffer::zeroed(data.len()) } else { Buffer::copy_of(&data) };
            let mut command = Command::new(Io { reference, op, slba: 7, blocks: 5, data, user: 0 }, 0);
            command.parts = Some(Parts { step: 2, done: 0 });
            let mut sent = Vec::new();
            loop {
                let (sqe, part) = encode(&mut command).unwrap();
                let range = BlockRange::decode(&sqe);
                sent.push((range.slba, range.blocks));
                let mut buffer = part.into_buffer().unwrap();
                let blocks = buffer.chunks_mut(512).zip(range.slba - 6..);
                if op == Op::Read {
                    blocks.for_each(|(bytes, block)| bytes.fill(u8::try_from(block).unwrap()));
                    restore(&mut command, Data::ToHost(buffer));
                } else {
                    blocks.for_each(|(bytes, block)| assert_eq!(u64::from(bytes[0]), block));
                    restore(&mut command, Data::FromHost(buffer));
                }
                if !command.advance() {
                    break;
                }
            }
            assert_eq!(sent, [(7, 2), (9, 2), (11, 1)]);
            assert!(command.io.data.chunks(512).zip(1u8..).all(|(bytes, block)| bytes == [block; 512]));
        }
    }

    #[test]
    fn statuses_have_errors_of_the_block_layer() {
        assert_eq!(errno(Status::CAPACITY_EXCEEDED.dnr()), Errno::NOSPC);
        assert_eq!(errno(Status::WRITE_FAULT), Errno::IO);
    }
}
