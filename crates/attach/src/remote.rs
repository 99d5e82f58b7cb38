//! Blocks at the other end of a queue pair: what a front asks becomes an NVMe command, and what
//! became of it an errno.
//!
//! It owns patience: commands that a lost connection took along are sent again when it is back
//! (reads and writes of blocks may be repeated), for as long as the connection's options allow;
//! then they fail. Making connections is the initiator's.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use ebof_initiator::{Binding, Completion, Controller, Data, Error, State};
use ebof_nvme::io::{BlockRange, Dsm, DsmRange};
use ebof_nvme::opcode::nvm;
use ebof_nvme::protection::left_to_controller;
use ebof_nvme::{Nsid, Sqe, Status};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::blocks::{Blocks, Done, Io, Op};
use crate::thread_queues::ThreadQueues;

/// How often a command is sent again when the controller says that it may work later: what the
/// Linux host does.
const RETRIES_MAX: u8 = 5;
/// How long after such an answer, times the number of attempts.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// How often a lost connection is looked at while commands wait for it.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How often it is looked whether a command's time is over.
const LOOK_FOR_TIMEOUTS: Duration = Duration::from_secs(1);

/// A thread's queue pairs with the commands that wait for them.
pub(crate) struct Remote {
    controller: Controller,
    queues: ThreadQueues,
    fast_io_fail: Option<Duration>,
    capacity: usize,
    slots: Vec<Option<Command>>,
    free: Vec<usize>,
    /// In order: sent as soon as there is a connection.
    waiting: VecDeque<Command>,
    /// To be sent again later.
    delayed: Vec<(Instant, Command)>,
    /// Over without having been sent.
    over: Vec<Done>,
    /// The last namespace of which it was said that its commands are not sent any more.
    told: Option<Binding>,
    lost_since: Option<Instant>,
}

/// A command, and how far it is.
struct Command {
    io: Io,
    /// How often it was answered with "later".
    retries: u8,
    /// It is more than the controller takes at once, by now: one part after the other.
    parts: Option<Parts>,
}

/// How a command is cut.
#[derive(Clone, Copy, Debug)]
struct Parts {
    /// Blocks of a part, at most.
    step: u32,
    /// Blocks that are done.
    done: u32,
}

impl Command {
    fn new(io: Io) -> Self {
        Self { io, retries: 0, parts: None }
    }

    /// The blocks that go next: where, how many, and which of the data.
    fn next(&self) -> (u64, u32, std::ops::Range<usize>) {
        let Io { slba, blocks, reference, .. } = &self.io;
        let (from, count) = match self.parts {
            None => (0, *blocks),
            Some(Parts { step, done }) => (done, step.min(blocks - done)),
        };
        let bytes = |blocks: u32| blocks as usize * reference.block_bytes as usize;
        (slba + u64::from(from), count, bytes(from)..bytes(from) + bytes(count))
    }

    /// A part succeeded; whether there is another.
    fn advance(&mut self) -> bool {
        let (_, count, _) = self.next();
        match &mut self.parts {
            None => false,
            Some(parts) => {
                parts.done += count;
                self.retries = 0;
                parts.done < self.io.blocks
            }
        }
    }
}

impl Remote {
    /// With `reads_apart`, reads have a queue pair of the controller's read map.
    pub(crate) fn new(controller: &Controller, reads_apart: bool) -> Result<Self, Error> {
        let queues = ThreadQueues::new(controller, reads_apart)?;
        let capacity = queues.capacity();
        Ok(Self {
            fast_io_fail: controller.options().fast_io_fail_tmo,
            controller: controller.clone(),
            queues,
            capacity,
            slots: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            delayed: Vec::new(),
            over: Vec::new(),
            told: None,
            lost_since: None,
        })
    }

    fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len() + self.waiting.len() + self.delayed.len()
    }

    /// Hands a command to the queue pair, or lets it wait.
    fn send(&mut self, mut command: Command) {
        if !self.fits(&mut command) {
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
        match self.queues.submit(command.io.reference.binding, sqe, data, slot as u64) {
            Ok(()) => self.slots[slot] = Some(command),
            Err(refused) => {
                self.free.push(slot);
                restore(&mut command, refused.data);
                self.not_sent(command, refused.reason);
            }
        }
    }

    fn not_sent(&mut self, mut command: Command, reason: Error) {
        match reason {
            Error::QueueFull => self.waiting.push_front(command),
            reason if reason.is_connection() => {
                self.lost_since.get_or_insert_with(Instant::now);
                self.waiting.push_front(command);
            }
            // The controller came back with a smaller limit than the device was made with.
            Error::TooLarge { .. } => {
                let step = self.controller.limits().transfer_bytes.unwrap_or(u64::MAX);
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
                // Once for each namespace that is gone, not for each command that was meant for it.
                if reference.binding.is_none() || self.told != reference.binding {
                    tracing::error!(%reason, nsid = reference.nsid, op = ?command.io.op, "a command was not sent");
                    self.told = reference.binding;
                }
                let error = if matches!(reason, Error::NoSuchNamespace(_)) { Errno::NODEV } else { Errno::IO };
                self.fail(command, error);
            }
        }
    }

    /// Cuts what has no data to what the controller takes now. `false` when there is nothing to
    /// send: the command is over.
    fn fits(&mut self, command: &mut Command) -> bool {
        let io = &command.io;
        if matches!(io.op, Op::Read | Op::Write { .. }) || command.parts.is_some() {
            return true;
        }
        let limits = self.controller.limits();
        let most = match io.op {
            // No connect has announced a cache: what was acknowledged is safe.
            Op::Flush if !limits.volatile_cache => {
                let data = std::mem::take(&mut command.io.data);
                self.over.push(Done { user: command.io.user, result: Ok(()), data });
                return false;
            }
            Op::WriteZeroes { .. } => match limits.write_zeroes_bytes {
                Some(bytes) => (bytes / u64::from(io.reference.block_bytes.max(1))).clamp(1, 65_536),
                None => 65_536,
            },
            Op::Deallocate => u64::from(limits.dsm_range_blocks).min(limits.dsm_blocks),
            Op::Read | Op::Write { .. } | Op::Flush => return true,
        };
        let step = u32::try_from(most).unwrap_or(u32::MAX);
        if io.blocks > step {
            command.parts = Some(Parts { step, done: 0 });
        }
        true
    }

    fn fail(&mut self, command: Command, error: Errno) {
        self.over.push(Done { user: command.io.user, result: Err(error), data: command.io.data });
    }

    fn complete(&mut self, completion: Completion<Vec<u8>>, done: &mut Vec<Done>) {
        let index = usize::try_from(completion.user).unwrap_or(usize::MAX);
        let Some(mut command) = self.slots.get_mut(index).and_then(Option::take) else {
            tracing::error!(user = completion.user, "a completion that nobody waits for");
            return;
        };
        self.free.push(index);
        // A network card that does not give the data back after the loss of the connection has
        // them: they cannot be sent again.
        let is_lost = matches!((&command.io.op, &completion.data), (Op::Write { .. }, Data::None));
        restore(&mut command, completion.data);
        match completion.result {
            Ok(cqe) if cqe.status().is_success() => {
                if command.advance() {
                    self.waiting.push_back(command);
                    return;
                }
                done.push(Done { user: command.io.user, result: Ok(()), data: command.io.data });
            }
            Ok(cqe) => self.refused(command, cqe.status()),
            Err(error) if error.is_connection() && !is_lost => {
                self.lost_since.get_or_insert_with(Instant::now);
                self.waiting.push_back(command);
            }
            Err(error) => {
                tracing::error!(%error, op = ?command.io.op, "a command failed");
                self.fail(command, Errno::IO);
            }
        }
    }

    fn refused(&mut self, mut command: Command, status: Status) {
        if !status.is_dnr() && may_work_later(status) && command.retries < RETRIES_MAX {
            command.retries += 1;
            self.delayed.push((Instant::now() + RETRY_AFTER * u32::from(command.retries), command));
            return;
        }
        let io = &command.io;
        tracing::warn!(%status, nsid = io.reference.nsid, op = ?io.op, slba = io.slba, blocks = io.blocks, "I/O error");
        self.fail(command, errno(status));
    }

    /// Whether commands fail at once: the controller is gone, or has been away for too long.
    fn given_up(&mut self) -> bool {
        let Some(since) = self.lost_since else { return false };
        match self.controller.state() {
            State::Live => {
                self.lost_since = None;
                false
            }
            State::Reconnecting => self.fast_io_fail.is_some_and(|limit| since.elapsed() >= limit),
            State::Disconnected | State::Dead => true,
        }
    }

    fn wake_delayed(&mut self) {
        if self.delayed.is_empty() {
            return;
        }
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.delayed).into_iter().partition::<Vec<_>, _>(|(at, _)| *at <= now);
        self.delayed = later;
        self.waiting.extend(due.into_iter().map(|(_, command)| command));
    }

    /// Does with the waiting commands what the state of the connection allows.
    fn settle(&mut self) {
        self.wake_delayed();
        if self.given_up() {
            while let Some(command) = self.waiting.pop_front() {
                self.fail(command, Errno::IO);
            }
            for (_, command) in std::mem::take(&mut self.delayed) {
                self.fail(command, Errno::IO);
            }
            return;
        }
        if self.lost_since.is_some() {
            return;
        }
        let mut sent = false;
        while let Some(command) = self.waiting.pop_front() {
            let before = self.waiting.len();
            self.send(command);
            if self.waiting.len() > before {
                break;
            }
            sent = true;
        }
        if sent {
            self.flush();
        }
    }
}

impl Blocks for Remote {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.outstanding() >= self.capacity {
            return Err(io);
        }
        let command = Command::new(io);
        if self.lost_since.is_some() && self.given_up() {
            self.fail(command, Errno::IO);
        } else if self.waiting.is_empty() {
            self.send(command);
        } else {
            self.waiting.push_back(command);
        }
        Ok(())
    }

    fn flush(&mut self) {
        if let Err(error) = self.queues.flush() {
            // What was under way comes back from poll.
            tracing::debug!(%error, "flushing a queue pair");
        }
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> Option<Duration> {
        loop {
            match self.queues.poll() {
                Ok(Some(completion)) => self.complete(completion, done),
                Ok(None) => break,
                Err(_not_connected) => {
                    self.lost_since.get_or_insert_with(Instant::now);
                    break;
                }
            }
        }
        if self.lost_since.is_some() || !self.waiting.is_empty() || !self.delayed.is_empty() {
            self.settle();
        }
        done.append(&mut self.over);
        if !self.waiting.is_empty() || !self.delayed.is_empty() {
            return Some(LOOK_AGAIN);
        }
        // The queue pair looks for commands whose time is over when it is polled.
        (self.slots.len() > self.free.len()).then_some(LOOK_FOR_TIMEOUTS)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.queues.as_fd()
    }
}

/// The command for what goes next, with its buffer moved out of it. `EINVAL` for what no command
/// can say.
fn encode(command: &mut Command) -> Result<(Sqe, Data<Vec<u8>>), Errno> {
    let (slba, blocks, part) = command.next();
    let io = &mut command.io;
    let whole = command.parts.is_none();
    let nsid = Nsid(io.reference.nsid);
    let range = BlockRange::new(slba, blocks);
    let transfer = matches!(io.op, Op::Read | Op::Write { .. } | Op::WriteZeroes { .. });
    if transfer && !(1..=65_536).contains(&blocks) {
        return Err(Errno::INVAL);
    }
    let (sqe, data) = match io.op {
        Op::Read => {
            let room = if whole { std::mem::take(&mut io.data) } else { vec![0; part.len()] };
            (range.encode(nvm::READ, nsid), Data::ToHost(room))
        }
        Op::Write { fua } => {
            let sqe = BlockRange { fua, ..range }.encode(nvm::WRITE, nsid);
            let bytes = match whole {
                true => std::mem::take(&mut io.data),
                false => io.data.get(part).ok_or(Errno::INVAL)?.to_vec(),
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
            (dsm.encode(nsid), Data::FromHost(range.as_bytes().to_vec()))
        }
    };
    Ok((left_to_controller(io.reference.protection, sqe), data))
}

/// Puts the buffer back where it came from.
fn restore(command: &mut Command, data: Data<Vec<u8>>) {
    let (_, _, part) = command.next();
    let io = &mut command.io;
    match (data, command.parts.is_some()) {
        (Data::ToHost(buffer), true) => {
            if let Some(room) = io.data.get_mut(part).filter(|room| room.len() == buffer.len()) {
                room.copy_from_slice(&buffer);
            }
        }
        (Data::ToHost(buffer) | Data::FromHost(buffer), false) if io.op != Op::Deallocate => io.data = buffer,
        _ => {}
    }
}

/// Whether the same command may succeed in a moment.
fn may_work_later(status: Status) -> bool {
    let path_related = status.code_type() == 3;
    let known = [
        Status::NAMESPACE_NOT_READY,
        Status::TRANSIENT_TRANSPORT_ERROR,
        Status::COMMAND_INTERRUPTED,
        Status::ABORT_REQUESTED,
        Status::ABORTED_SQ_DELETION,
        Status::FORMAT_IN_PROGRESS,
        Status::SANITIZE_IN_PROGRESS,
        Status::INTERNAL_ERROR,
    ];
    path_related || known.iter().any(|&other| status.is(other))
}

/// The error that the block layer gets for a status.
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
    use crate::blocks::NamespaceRef;
    use ebof_nvme::identify::ProtectionType;

    #[test]
    fn commands_carry_what_was_asked() {
        let reference = NamespaceRef { nsid: 3, binding: None, block_bytes: 512, protection: ProtectionType::Type1 };
        let io = |op, blocks, data| Command::new(Io { reference, op, slba: 1 << 40, blocks, data, user: 0 });
        let (sqe, data) = encode(&mut io(Op::Write { fua: true }, 8, vec![1; 4096])).unwrap();
        let range = BlockRange::decode(&sqe);
        assert_eq!((sqe.opcode, sqe.nsid().0, range.slba, range.blocks, range.fua), (nvm::WRITE, 3, 1 << 40, 8, true));
        // Protection information is the controller's business (PRACT).
        assert_eq!(range.prinfo, 8);
        assert!(matches!(data, Data::FromHost(buffer) if buffer.len() == 4096));
        let (sqe, data) = encode(&mut io(Op::WriteZeroes { deallocate: true }, 65_536, Vec::new())).unwrap();
        assert!(BlockRange::decode(&sqe).deallocate && matches!(data, Data::None));
        let (sqe, data) = encode(&mut io(Op::Deallocate, u32::MAX, Vec::new())).unwrap();
        assert_eq!(BlockRange::decode(&sqe).prinfo, 0);
        assert!(Dsm::decode(&sqe).deallocate && matches!(data, Data::FromHost(buffer) if buffer.len() == 16));
        assert!(encode(&mut io(Op::Read, 0, Vec::new())).is_err());
        assert!(encode(&mut io(Op::WriteZeroes { deallocate: false }, 65_537, Vec::new())).is_err());
    }

    #[test]
    fn what_is_too_much_goes_in_parts_that_are_put_together() {
        let reference = NamespaceRef { nsid: 3, binding: None, block_bytes: 512, protection: ProtectionType::None };
        let data: Vec<u8> = (0..5u8).flat_map(|block| [block; 512]).collect();
        for op in [Op::Write { fua: false }, Op::Read] {
            let data = if op == Op::Read { vec![0xff; data.len()] } else { data.clone() };
            let mut command = Command::new(Io { reference, op, slba: 7, blocks: 5, data, user: 0 });
            command.parts = Some(Parts { step: 2, done: 0 });
            let mut sent = Vec::new();
            loop {
                let (sqe, part) = encode(&mut command).unwrap();
                let range = BlockRange::decode(&sqe);
                sent.push((range.slba, range.blocks));
                let mut buffer = part.into_buffer().unwrap();
                let blocks = buffer.chunks_mut(512).zip(range.slba - 7..);
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
            assert!(command.io.data.chunks(512).zip(0u8..).all(|(bytes, block)| bytes == [block; 512]));
        }
    }

    #[test]
    fn only_what_may_change_is_tried_again() {
        assert!(may_work_later(Status::ANA_TRANSITION) && may_work_later(Status::NAMESPACE_NOT_READY));
        assert!(!may_work_later(Status::LBA_OUT_OF_RANGE) && !may_work_later(Status::UNRECOVERED_READ_ERROR));
        assert_eq!(errno(Status::CAPACITY_EXCEEDED.dnr()), Errno::NOSPC);
        assert_eq!(errno(Status::WRITE_FAULT), Errno::IO);
    }
}
