//! A controller and its namespaces for programs with an async runtime of their own: connecting, and
//! every command that [`Namespace`] has, split at the controller's limits and retried as there.
//!
//! The futures need no runtime. What blocks (name resolution, connecting, Identify) runs on a
//! thread of its own that ends with it; pauses before a retry are kept by one thread per
//! [`AsyncNamespace`], which exists while there are any. Over several paths another one has the
//! queues, as long as the namespace is open.

mod over_paths;
mod pause;
mod span;

use std::sync::Arc;

use ebof_nvme::identify::ProtectionType;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::protection::INFORMATION_BYTES;
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::IntoBytes as _;

use self::over_paths::PathTasks;
use self::pause::Pauses;
use self::span::Span;
use crate::command::data::{Completion, Data, IoBuffer};
use crate::command::retry::Retry;
use crate::command::troubles::Trouble;
use crate::controller::Controller;
use crate::controller::namespace::Namespace;
use crate::controller::paths::Subsystem;
use crate::controller::paths::calls::PathNamespace;
use crate::error::Error;
use crate::error::state::State;
use crate::queues::{IoError, Queues, outcome};
use crate::requeue::recovery::{NextAttempt, Recovery};
use crate::wait::on_thread::on_thread;

/// A namespace of a connected controller, as futures. Cheap to clone; for any number of tasks and
/// threads.
///
/// A call takes a buffer of a multiple of the block size and gives it back with the result. It
/// starts when it is first polled. Transfers are split at the controller's limits, one command
/// after another, and continue after a loss of the connection (every command here may be repeated)
/// until the controller is given up or `fast_io_fail_tmo` has passed. Dropping the future abandons
/// the outstanding command, which may or may not be executed; no further command is sent.
///
/// ```no_run
/// use ebof_initiator::{AsyncNamespace, Controller, Options};
/// use ebof_nvme::{Nsid, uri::Uri};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let uri = Uri::parse("nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:drive0")?;
/// let controller = Controller::connect_async(&Options::from_uri(&uri)).await?;
/// let namespace = AsyncNamespace::open(&controller, Nsid(1)).await?;
/// let block = namespace.read(0, vec![0; namespace.info().block_bytes() as usize]).await?;
/// namespace.write(8, block, false).await?;
/// namespace.flush().await?;
/// # Ok(())
/// # }
/// ```
pub struct AsyncNamespace<B: IoBuffer + 'static = Vec<u8>> {
    way: Way<B>,
    namespace: Namespace,
    pauses: Arc<Pauses>,
}

/// How commands get there.
enum Way<B: IoBuffer + 'static> {
    Queues(Queues<Span<B>>),
    Paths(PathTasks<Span<B>>),
}

impl<B: IoBuffer + 'static> Clone for Way<B> {
    fn clone(&self) -> Self {
        match self {
            Self::Queues(queues) => Self::Queues(queues.clone()),
            Self::Paths(paths) => Self::Paths(paths.clone()),
        }
    }
}

impl<B: IoBuffer + 'static> Clone for AsyncNamespace<B> {
    fn clone(&self) -> Self {
        Self { way: self.way.clone(), namespace: self.namespace.clone(), pauses: Arc::clone(&self.pauses) }
    }
}

impl<B: IoBuffer + 'static> std::fmt::Debug for AsyncNamespace<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncNamespace").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl<B: IoBuffer + 'static> AsyncNamespace<B> {
    /// Identifies the namespace and connects every granted queue that is not in use.
    ///
    /// # Errors
    /// As [`Controller::namespace`] and [`Queues::new`].
    pub async fn open(controller: &Controller, nsid: Nsid) -> Result<Self, Error> {
        let controller = controller.clone();
        let opened = on_thread(move || {
            let namespace = controller.namespace(nsid)?;
            let pauses = Arc::new(Pauses::new(controller.options().clock.clone()));
            Ok(Self { way: Way::Queues(Queues::new(&controller)?), namespace, pauses })
        });
        opened.await.unwrap_or_else(|errno| Err(Error::System { action: "starting a thread", errno }))
    }

    /// Opens a namespace over all paths that lead to it: each command takes the path that is best,
    /// and goes on over another one as those of [`PathNamespace`] do. Paths that are added later
    /// are used, too. It connects one queue over each path, which one thread serves.
    ///
    /// ```no_run
    /// use ebof_initiator::{AsyncNamespace, Options, Subsystem};
    /// use ebof_nvme::{Nsid, uri::Uri};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let nqn = "nqn.2014-08.org.example:drive0";
    /// let first = Uri::parse(&format!("nvme+tcp://192.168.1.10:4420/{nqn}"))?;
    /// let second = Uri::parse(&format!("nvme+tcp://192.168.2.10:4420/{nqn}"))?;
    /// let addresses = [Options::from_uri(&first), Options::from_uri(&second)];
    /// let subsystem = Subsystem::connect_async(&addresses).await?;
    /// let namespace = AsyncNamespace::open_paths(&subsystem, Nsid(1)).await?;
    /// let block = namespace.read(0, vec![0; namespace.info().block_bytes() as usize]).await?;
    /// namespace.write(8, block, false).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Subsystem::namespace`] and [`PathQueue::new`](crate::PathQueue::new).
    pub async fn open_paths(subsystem: &Subsystem, nsid: Nsid) -> Result<Self, Error> {
        let subsystem = subsystem.clone();
        let opened = on_thread(move || {
            let paths = subsystem.namespace(nsid)?;
            let namespace = paths.first().clone();
            let pauses = Arc::new(Pauses::new(namespace.controller().options().clock.clone()));
            Ok(Self { way: Way::Paths(PathTasks::new(paths)?), namespace, pauses })
        });
        opened.await.unwrap_or_else(|errno| Err(Error::System { action: "starting a thread", errno }))
    }

    /// The namespace over its paths, if it was opened by [`AsyncNamespace::open_paths`]. Its own
    /// calls block.
    #[must_use]
    pub fn paths(&self) -> Option<&PathNamespace> {
        match &self.way {
            Way::Queues(_) => None,
            Way::Paths(paths) => Some(paths.namespace()),
        }
    }

    /// The namespace: its size, its blocks, its limits. Of several paths, over the one that it was
    /// opened over first. Its own calls block.
    #[must_use]
    pub fn info(&self) -> &Namespace {
        &self.namespace
    }

    /// Fills `buffer` with the blocks from `lba` on.
    ///
    /// # Errors
    /// [`Error::Unaligned`], [`Error::OutOfRange`], [`Error::Status`], and what ends a connection
    /// for good; with the buffer, whose contents are unspecified then.
    pub async fn read(&self, lba: u64, buffer: B) -> Result<B, IoError<B>> {
        self.transfer("Read", nvm::READ, BlockRange::new(lba, 1), buffer, Data::ToHost).await
    }

    /// Writes the bytes of `buffer` from `lba` on; with `fua` they are on the medium when the
    /// future is ready.
    ///
    /// # Errors
    /// As [`AsyncNamespace::read`].
    pub async fn write(&self, lba: u64, buffer: B, fua: bool) -> Result<B, IoError<B>> {
        let range = BlockRange { fua, ..BlockRange::new(lba, 1) };
        self.transfer("Write", nvm::WRITE, range, buffer, Data::FromHost).await
    }

    /// Compares blocks with `buffer`; `false` where they differ.
    ///
    /// # Errors
    /// As [`AsyncNamespace::read`].
    pub async fn compare(&self, lba: u64, buffer: B) -> Result<(bool, B), IoError<B>> {
        let range = BlockRange::new(lba, 1);
        let compared = if self.namespace.protection() == ProtectionType::None {
            self.transfer("Compare", nvm::COMPARE, range, buffer, Data::FromHost).await
        } else {
            self.compare_protected(range, buffer).await
        };
        match compared {
            Ok(buffer) => Ok((true, buffer)),
            Err(IoError { reason: Error::Status { status, .. }, buffer: Some(buffer) })
                if status.is(Status::COMPARE_FAILURE) =>
            {
                Ok((false, buffer))
            }
            Err(error) => Err(error),
        }
    }

    /// Brings everything written before to the medium.
    ///
    /// # Errors
    /// As [`AsyncNamespace::read`].
    pub async fn flush(&self) -> Result<(), Error> {
        self.run("Flush", || (Sqe::new(nvm::FLUSH).with_nsid(self.namespace.nsid()), Data::None)).await
    }

    /// Writes zeros without sending them; with `deallocate` the blocks may be unmapped.
    ///
    /// # Errors
    /// As [`AsyncNamespace::read`].
    pub async fn write_zeroes(&self, lba: u64, blocks: u64, deallocate: bool) -> Result<(), Error> {
        let range = BlockRange { deallocate, ..BlockRange::new(lba, 1) };
        self.without_data("Write Zeroes", nvm::WRITE_ZEROES, range, blocks).await
    }

    /// Has the controller read blocks without sending them.
    ///
    /// # Errors
    /// As [`AsyncNamespace::read`].
    pub async fn verify(&self, lba: u64, blocks: u64) -> Result<(), Error> {
        self.without_data("Verify", nvm::VERIFY, BlockRange::new(lba, 1), blocks).await
    }

    /// Deallocates (trims) ranges of (lba, blocks).
    ///
    /// # Errors
    /// As [`AsyncNamespace::read`].
    pub async fn deallocate(&self, ranges: &[(u64, u64)]) -> Result<(), Error> {
        let mut rest = self.namespace.ranges_left(ranges)?;
        while let Some((sqe, list)) = self.namespace.next_deallocation(&mut rest) {
            self.run("Dataset Management", || (sqe, Data::FromHost(Span::scratch(list.as_bytes().to_vec())))).await?;
        }
        Ok(())
    }

    /// Copies ranges of (lba, blocks), one behind the other, to the blocks from `to` on, without
    /// their data going to the host and back.
    ///
    /// # Errors
    /// As [`Namespace::copy`].
    pub async fn copy(&self, ranges: &[(u64, u64)], to: u64) -> Result<(), Error> {
        let mut copies = self.namespace.copies(ranges, to)?;
        while let Some((sqe, list)) = self.namespace.next_copy(&mut copies) {
            self.run("Copy", || (sqe, Data::FromHost(Span::scratch(list.clone())))).await?;
        }
        Ok(())
    }

    /// Runs one command unchanged except for its NSID, which is set to this namespace's: for
    /// reservations, Write Uncorrectable and the like. It is neither split nor retried, but for
    /// what another path of several can do ([`crate::PathQueue`]): after [`Error::Lost`] it may
    /// have been executed.
    ///
    /// Any status of the controller is returned in the completion, whose `user` is 0.
    pub async fn submit(&self, sqe: Sqe, data: Data<B>) -> Completion<B> {
        let data = match data {
            Data::None => Data::None,
            Data::ToHost(buffer) => Data::ToHost(Span::from_buffer(buffer)),
            Data::FromHost(buffer) => Data::FromHost(Span::from_buffer(buffer)),
        };
        let sqe = sqe.with_nsid(self.namespace.nsid());
        let Completion { user, result, data } = self.send(sqe, data).await;
        let data = match data {
            Data::None => Data::None,
            Data::ToHost(span) => span.into_buffer().map_or(Data::None, Data::ToHost),
            Data::FromHost(span) => span.into_buffer().map_or(Data::None, Data::FromHost),
        };
        Completion { user, result, data }
    }

    async fn without_data(
        &self,
        command: &'static str,
        opcode: u8,
        range: BlockRange,
        blocks: u64,
    ) -> Result<(), Error> {
        self.namespace.check_range(range.slba, blocks)?;
        let mut rest = Rest::new(range, blocks);
        let mut recovery = Recovery::default();
        // Read for every command: the limit may change with a reconnect.
        while let Some(part) = rest.part(self.least(|namespace| namespace.max_blocks_without_data(opcode))) {
            match self.attempt(command, self.namespace.encode(&part, opcode), Data::None).await {
                Ok(_) => rest.done(&part, &mut recovery),
                Err((reason, _)) => self.recover(&mut recovery, reason).await?,
            }
        }
        Ok(())
    }

    async fn transfer(
        &self,
        command: &'static str,
        opcode: u8,
        range: BlockRange,
        mut buffer: B,
        data: fn(Span<B>) -> Data<Span<B>>,
    ) -> Result<B, IoError<B>> {
        let blocks = match self.namespace.block_count(range.slba, buffer.as_ref().len()) {
            Ok(blocks) => blocks,
            Err(reason) => return Err(IoError { reason, buffer: Some(buffer) }),
        };
        let block_bytes = self.namespace.block_bytes() as usize;
        let mut rest = Rest::new(range, blocks);
        let mut recovery = Recovery::default();
        while let Some(part) = rest.part(self.least(|namespace| namespace.max_transfer_blocks().into())) {
            let start = buffer.as_ref().len() - usize::try_from(rest.blocks).unwrap_or(usize::MAX) * block_bytes;
            let span = Span::part(buffer, start, part.blocks as usize * block_bytes);
            match self.attempt(command, self.namespace.encode(&part, opcode), data(span)).await {
                Ok(back) => {
                    buffer = into_buffer(back)?;
                    rest.done(&part, &mut recovery);
                }
                Err((reason, back)) => {
                    let Some(back) = back.into_buffer().and_then(Span::into_buffer) else {
                        // A network card still holds the buffer: it cannot be sent again.
                        return Err(IoError { reason, buffer: None });
                    };
                    buffer = back;
                    if let Err(reason) = self.recover(&mut recovery, reason).await {
                        return Err(IoError { reason, buffer: Some(buffer) });
                    }
                }
            }
        }
        Ok(buffer)
    }

    /// For Compare the controller does not insert or strip protection information, so the data
    /// carries it; it is not compared.
    async fn compare_protected(&self, range: BlockRange, buffer: B) -> Result<B, IoError<B>> {
        match self.compare_extended(range, &buffer).await {
            Ok(()) => Ok(buffer),
            Err(reason) => Err(IoError { reason, buffer: Some(buffer) }),
        }
    }

    async fn compare_extended(&self, range: BlockRange, buffer: &B) -> Result<(), Error> {
        let block_bytes = self.namespace.block_bytes() as usize;
        let blocks = self.namespace.block_count(range.slba, buffer.as_ref().len())?;
        let mut rest = Rest::new(range, blocks);
        let mut recovery = Recovery::default();
        while let Some(part) = rest.part(self.least(Namespace::max_compare_blocks)) {
            let extended = {
                let start = buffer.as_ref().len() - usize::try_from(rest.blocks).unwrap_or(usize::MAX) * block_bytes;
                let data = &buffer.as_ref()[start..][..part.blocks as usize * block_bytes];
                let blocks = data.chunks_exact(block_bytes);
                blocks.flat_map(|block| block.iter().copied().chain([0; INFORMATION_BYTES])).collect::<Vec<u8>>()
            };
            let sqe = part.encode(nvm::COMPARE, self.namespace.nsid());
            match self.attempt("Compare", sqe, Data::FromHost(Span::scratch(extended))).await {
                Ok(_) => rest.done(&part, &mut recovery),
                Err((reason, _)) => self.recover(&mut recovery, reason).await?,
            }
        }
        Ok(())
    }

    /// Runs one command, and retries it after a loss or a transient status.
    async fn run(&self, command: &'static str, make: impl Fn() -> (Sqe, Data<Span<B>>)) -> Result<(), Error> {
        let mut recovery = Recovery::default();
        loop {
            let (sqe, data) = make();
            match self.attempt(command, sqe, data).await {
                Ok(_) => return Ok(()),
                Err((reason, _)) => self.recover(&mut recovery, reason).await?,
            }
        }
    }

    async fn attempt(
        &self,
        command: &'static str,
        sqe: Sqe,
        data: Data<Span<B>>,
    ) -> Result<Data<Span<B>>, (Error, Data<Span<B>>)> {
        outcome(command, self.send(sqe, data).await)
    }

    async fn send(&self, sqe: Sqe, data: Data<Span<B>>) -> Completion<Span<B>> {
        match &self.way {
            Way::Queues(queues) => queues.submit_bound(self.namespace.binding(), sqe, data).await,
            Way::Paths(paths) => paths.submit(sqe, data).await,
        }
    }

    /// A limit of the namespace: the least one of its paths.
    fn least(&self, of: impl Fn(&Namespace) -> u64) -> u64 {
        match &self.way {
            Way::Queues(_) => of(&self.namespace),
            Way::Paths(paths) => paths.namespace().least(of),
        }
    }

    /// Waits until the command can be retried; gives the error back if it cannot. The rules are
    /// those of [`Namespace`].
    async fn recover(&self, recovery: &mut Recovery, reason: Error) -> Result<(), Error> {
        if recovery.is_to_be_split(&reason) {
            return Ok(());
        }
        let controller = self.namespace.controller();
        let clock = &controller.options().clock;
        if let Way::Paths(_) = &self.way {
            // What is about a path, or a connection, the queue has waited for.
            let status = reason.status().filter(|&status| Retry::from_status(status) == Retry::Soon);
            let next = status.map(|_| recovery.after(&reason, clock.now(), controller.options()));
            let Some(NextAttempt::After(pause)) = next else { return Err(reason) };
            controller.note_trouble(Trouble::Repeated);
            self.pauses.pause(pause).await;
            return Ok(());
        }
        let deadline = match recovery.after(&reason, clock.now(), controller.options()) {
            NextAttempt::After(pause) => {
                controller.note_trouble(Trouble::Repeated);
                self.pauses.pause(pause).await;
                return Ok(());
            }
            NextAttempt::OnceLive { deadline } => deadline,
            NextAttempt::Never => return Err(reason),
        };
        // Always pauses: the background thread may not have noticed the loss yet, and the state
        // still be live.
        loop {
            self.pauses.pause(recovery.next_loss_pause()).await;
            let state = controller.state();
            let timed_out = deadline.is_some_and(|deadline| clock.now() >= deadline);
            if timed_out || matches!(state, State::Disconnected | State::Dead) {
                return Err(reason);
            }
            if state == State::Live {
                return Ok(());
            }
        }
    }
}

/// The blocks of a range that are still to be transferred.
struct Rest {
    range: BlockRange,
    blocks: u64,
}

impl Rest {
    fn new(range: BlockRange, blocks: u64) -> Self {
        Self { range, blocks }
    }

    /// The blocks of the next command, at most `max`.
    fn part(&self, max: u64) -> Option<BlockRange> {
        let blocks = u32::try_from(self.blocks.min(max.max(1))).unwrap_or(u32::MAX);
        (blocks > 0).then_some(BlockRange { blocks, ..self.range })
    }

    fn done(&mut self, part: &BlockRange, recovery: &mut Recovery) {
        self.range.slba += u64::from(part.blocks);
        self.blocks -= u64::from(part.blocks);
        *recovery = Recovery::default();
    }
}

fn into_buffer<B: IoBuffer>(data: Data<Span<B>>) -> Result<B, IoError<B>> {
    let buffer = data.into_buffer().and_then(Span::into_buffer);
    buffer.ok_or(IoError { reason: Error::Malformed("a transfer without its buffer"), buffer: None })
}
