//! A namespace with calls that block, over whichever path is best for each.
//!
//! A call takes a queue pair of the path's controller, as those of [`Namespace`] do, and goes on
//! over another path when that one is lost or refuses the command. A command whose fate is unknown
//! then is repeated as its [`Fate`] says.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebof_nvme::identify::{IdentifyNamespace, ProtectionType};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::IntoBytes;

use super::access::Rank;
use super::path::{Path, PathId};
use super::policy::{Candidate, Chooser, PathPolicy};
use super::{AddPathError, Inner, Subsystem, bind, node};
use crate::command::data::AdminData;
use crate::command::fate::Fate;
use crate::command::retry::Retry;
use crate::command::troubles::Trouble;
use crate::controller::namespace::{FailedAttempt, Namespace, split, with_information};
use crate::error::state::State;
use crate::error::{Error, PathsDiffer};
use crate::options::Options;
use crate::queue::TransferPiece;
use crate::requeue::recovery::{NextAttempt, Recovery};
use crate::shared::fence::Fence;
use crate::shared::opened::NamespaceHead;
use crate::wait::lock::lock;
use crate::wait::{Waiter, run};

/// A namespace over all paths of its subsystem, for any number of threads. Cheap to clone. It keeps
/// the paths connected, until [`Subsystem::disconnect`].
///
/// Calls are those of [`Namespace`], and wait, split and retry as those do. Each takes the path
/// that is best by its access (ANA) and the policy ([`Subsystem::set_policy`]), and another one
/// when that is lost, or refuses the command. What was sent and has no answer is repeated: reads,
/// compares and flushes at once; writes, and what else changes blocks, when the lost controller
/// executes nothing any more ([`Fence`]); a copy is not repeated.
#[derive(Clone)]
pub struct PathNamespace(Arc<Opened>);

struct Opened {
    subsystem: Subsystem,
    /// Over the path that it was opened over first: what it is.
    namespace: Namespace,
    choice: Mutex<Choice>,
}

/// What was chosen so far.
#[derive(Default)]
struct Choice {
    chooser: Chooser,
    candidates: Vec<Candidate>,
    /// Of the subsystem, when the last path refused a command.
    version: u64,
    /// Paths that have refused commands since.
    refused: Vec<PathId>,
}

/// Result of [`PathNamespace::choose`].
enum Chosen {
    Path(Arc<Path>, Namespace),
    /// None but those that have failed just now.
    FailedOnly,
    /// None has a connection.
    Nothing,
}

/// A call, and what it has been through.
struct Call<'n> {
    namespace: &'n PathNamespace,
    command: &'static str,
    fate: Fate,
    recovery: Recovery,
    /// Paths over which it failed since the last pause.
    failed: Vec<PathId>,
    /// Since when no path has a connection.
    lost_since: Option<Instant>,
    /// Since when controllers that are live let it have no queue.
    refused_since: Option<Instant>,
    last: Option<Error>,
}

/// How long a longest pause is, while something is waited for that may not be announced.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

impl PathNamespace {
    /// See [`Subsystem::namespace`].
    pub(super) async fn open(subsystem: &Subsystem, nsid: Nsid, waiter: &Waiter) -> Result<Self, Error> {
        let (mut first, mut last): (Option<Namespace>, _) = (None, None);
        let mut seen = Vec::new();
        while let Some(path) = subsystem.inner().next_path(&mut seen) {
            if path.controller.state() != State::Live {
                continue;
            }
            let Some(first) = &first else {
                match Namespace::open(path.controller.clone(), nsid, waiter).await {
                    Ok(namespace) => {
                        path.bind(namespace.clone());
                        first = Some(namespace);
                    }
                    Err(error) => last = Some(error),
                }
                continue;
            };
            match bind(&path, first, waiter).await {
                Err(AddPathError::Namespace { nsid, what, here, there }) => {
                    let address = path.controller.options().address().into();
                    let differ = PathsDiffer { nsid, address, what, here: here.into(), there: there.into() };
                    return Err(Error::PathsDiffer(differ.into()));
                }
                // It may have been lost meanwhile.
                Err(error) => tracing::warn!(%error, nsid = nsid.0, "a path is not used for a namespace"),
                Ok(()) => {}
            }
        }
        subsystem.inner().announce();
        let lost = || last.unwrap_or_else(|| subsystem.controller().shared().not_connected());
        let namespace = first.ok_or_else(lost)?;
        Ok(Self(Arc::new(Opened { subsystem: subsystem.clone(), namespace, choice: Mutex::default() })))
    }

    /// The subsystem, with the paths.
    #[must_use]
    pub fn subsystem(&self) -> &Subsystem {
        &self.0.subsystem
    }

    /// Its identifier.
    #[must_use]
    pub fn nsid(&self) -> Nsid {
        self.0.namespace.nsid()
    }

    /// What it is, whichever path leads to it.
    #[must_use]
    pub fn head(&self) -> NamespaceHead {
        self.0.namespace.head()
    }

    /// As [`Namespace::identifiers`].
    #[must_use]
    pub fn identifiers(&self) -> String {
        self.0.namespace.identifiers()
    }

    /// Its Identify data, as last read over any path.
    #[must_use]
    pub fn identify(&self) -> Arc<IdentifyNamespace> {
        self.0.namespace.identify()
    }

    /// Bytes of a logical block.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.0.namespace.block_bytes()
    }

    /// Size in logical blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.0.namespace.blocks()
    }

    /// Size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u128 {
        self.0.namespace.size_bytes()
    }

    /// As [`Namespace::protection`].
    #[must_use]
    pub fn protection(&self) -> ProtectionType {
        self.0.namespace.protection()
    }

    /// Whether it is write-protected (`NSATTR`, bit 0).
    #[must_use]
    pub fn is_write_protected(&self) -> bool {
        self.0.namespace.is_write_protected()
    }

    /// The most blocks that one command may transfer over any of the paths.
    #[must_use]
    pub fn max_transfer_blocks(&self) -> u32 {
        let paths = self.inner().paths();
        let handles = paths.iter().filter_map(|path| path.handle(self.head()));
        let least = handles.map(|handle| handle.max_transfer_blocks()).min();
        least.unwrap_or_else(|| self.0.namespace.max_transfer_blocks())
    }

    /// Whether it is still there, over one of the paths.
    ///
    /// # Errors
    /// As [`Subsystem::check`].
    pub fn check(&self) -> Result<(), Error> {
        self.subsystem().check(self.head())
    }

    /// Reads whole blocks from `lba` on; `data` is a multiple of the block size.
    ///
    /// # Errors
    /// [`Error::Unaligned`], [`Error::OutOfRange`], [`Error::Status`], and what ends the last path
    /// for good, or for longer than [`Options::fast_io_fail_tmo`].
    pub fn read(&self, lba: u64, data: &mut [u8]) -> Result<(), Error> {
        let blocks = self.0.namespace.block_count(lba, data.len())?;
        self.transfer("Read", nvm::READ, BlockRange::new(lba, 1), blocks, &mut AdminData::ToHost(data))
    }

    /// Writes whole blocks from `lba` on. With `fua` they are durable when the call returns.
    ///
    /// # Errors
    /// As [`PathNamespace::read`].
    pub fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), Error> {
        let blocks = self.0.namespace.block_count(lba, data.len())?;
        let range = BlockRange { fua, ..BlockRange::new(lba, 1) };
        self.transfer("Write", nvm::WRITE, range, blocks, &mut AdminData::FromHost(data))
    }

    /// Compares whole blocks with `data`; `false` where they differ.
    ///
    /// # Errors
    /// As [`PathNamespace::read`].
    pub fn compare(&self, lba: u64, data: &[u8]) -> Result<bool, Error> {
        let blocks = self.0.namespace.block_count(lba, data.len())?;
        let range = BlockRange::new(lba, 1);
        let compared = if self.protection() == ProtectionType::None {
            self.transfer("Compare", nvm::COMPARE, range, blocks, &mut AdminData::FromHost(data))
        } else {
            self.compare_protected(range, blocks, data)
        };
        match compared {
            Err(Error::Status { status, .. }) if status.is(Status::COMPARE_FAILURE) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// As the same of [`Namespace`].
    fn compare_protected(&self, range: BlockRange, blocks: u64, data: &[u8]) -> Result<(), Error> {
        let block_bytes = self.block_bytes() as usize;
        let step = self.0.namespace.max_compare_blocks();
        let parts = data.chunks((block_bytes as u64 * step).try_into().unwrap_or(block_bytes));
        for (part, data) in split(range, blocks, step).zip(parts) {
            let extended = with_information(data, block_bytes);
            self.one("Compare", part.encode(nvm::COMPARE, self.nsid()), &extended)?;
        }
        Ok(())
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// As [`PathNamespace::read`].
    pub fn flush(&self) -> Result<(), Error> {
        self.one("Flush", Sqe::new(nvm::FLUSH).with_nsid(self.nsid()), &[])
    }

    /// Writes zeros without sending them; with `deallocate` the blocks may be unmapped.
    ///
    /// # Errors
    /// As [`PathNamespace::read`].
    pub fn write_zeroes(&self, lba: u64, blocks: u64, deallocate: bool) -> Result<(), Error> {
        let range = BlockRange { deallocate, ..BlockRange::new(lba, 1) };
        self.without_data("Write Zeroes", nvm::WRITE_ZEROES, range, blocks)
    }

    /// Has a controller read and check blocks without sending them.
    ///
    /// # Errors
    /// As [`PathNamespace::read`].
    pub fn verify(&self, lba: u64, blocks: u64) -> Result<(), Error> {
        self.without_data("Verify", nvm::VERIFY, BlockRange::new(lba, 1), blocks)
    }

    /// Deallocates (trims) ranges of (lba, blocks).
    ///
    /// # Errors
    /// As [`PathNamespace::read`].
    pub fn deallocate(&self, ranges: &[(u64, u64)]) -> Result<(), Error> {
        let mut rest = self.0.namespace.ranges_left(ranges)?;
        while let Some((sqe, list)) = self.0.namespace.next_deallocation(&mut rest) {
            self.one("Dataset Management", sqe, list.as_bytes())?;
        }
        Ok(())
    }

    /// As [`Namespace::copy`]. A copy whose connection was lost is not repeated: the second one
    /// might read what the first one has written.
    ///
    /// # Errors
    /// As [`Namespace::copy`]; [`Error::Lost`]: it may or may not have been executed.
    pub fn copy(&self, ranges: &[(u64, u64)], to: u64) -> Result<(), Error> {
        let mut copies = self.0.namespace.copies(ranges, to)?;
        while let Some((sqe, list)) = self.0.namespace.next_copy(&mut copies) {
            self.one("Copy", sqe, &list)?;
        }
        Ok(())
    }

    fn transfer(
        &self,
        command: &'static str,
        opcode: u8,
        range: BlockRange,
        blocks: u64,
        data: &mut AdminData<'_>,
    ) -> Result<(), Error> {
        self.execute(command, opcode, |path| path.transfer_pieces(opcode, range, blocks), data)
    }

    fn without_data(&self, command: &'static str, opcode: u8, range: BlockRange, blocks: u64) -> Result<(), Error> {
        self.0.namespace.check_range(range.slba, blocks)?;
        let pieces = |path: &Namespace| path.pieces_without_data(opcode, range, blocks);
        self.execute(command, opcode, pieces, &mut AdminData::None)
    }

    /// One command.
    fn one(&self, command: &'static str, sqe: Sqe, data: &[u8]) -> Result<(), Error> {
        let length = u32::try_from(data.len()).map_err(|_| Error::TooLarge { bytes: data.len() })?;
        let piece =
            |path: &Namespace| std::iter::once(TransferPiece { sqe: sqe.with_nsid(path.nsid()), start: 0, length });
        let data = &mut if length == 0 { AdminData::None } else { AdminData::FromHost(data) };
        self.execute(command, sqe.opcode, piece, data)
    }

    /// Runs all pieces, which `pieces` makes for a path, over one path after the other until one
    /// has done it.
    fn execute<I: Iterator<Item = TransferPiece>>(
        &self,
        command: &'static str,
        opcode: u8,
        pieces: impl Fn(&Namespace) -> I,
        data: &mut AdminData<'_>,
    ) -> Result<(), Error> {
        let mut call = Call::new(self, command, Fate::of(opcode, false));
        loop {
            let seen = self.inner().bell.rung();
            match self.choose(&call.failed) {
                Chosen::Path(path, handle) => {
                    call.lost_since = None;
                    let Err(failed) = self.attempt(&path, &handle, command, pieces(&handle), data) else {
                        return Ok(());
                    };
                    call.after(&path, failed, seen)?;
                }
                Chosen::FailedOnly => call.pause(seen),
                Chosen::Nothing => call.wait_for_path(seen)?,
            }
        }
    }

    fn attempt(
        &self,
        path: &Path,
        handle: &Namespace,
        command: &'static str,
        pieces: impl Iterator<Item = TransferPiece>,
        data: &mut AdminData<'_>,
    ) -> Result<(), FailedAttempt> {
        let waiter = &handle.controller().shared().waiter;
        let began = (self.subsystem().policy() == PathPolicy::Latency).then(|| waiter.time.now());
        path.begin_call();
        let done = run(handle.attempt(waiter, command, pieces, data));
        let took = began.map(|began| waiter.time.now().saturating_duration_since(began).as_micros());
        path.end_call(took.map(|took| u32::try_from(took).unwrap_or(u32::MAX)));
        done
    }

    fn inner(&self) -> &Inner {
        self.subsystem().inner()
    }

    fn options(&self) -> &Options {
        self.0.namespace.controller().options()
    }

    /// The namespace over a path that can be used for it.
    fn usable(&self, path: &Path) -> Option<Namespace> {
        let is_there = path.is_enabled() && path.controller.state() == State::Live;
        if is_there { path.handle(self.head()) } else { None }
    }

    /// The path for a command, but none of `failed`.
    fn choose(&self, failed: &[PathId]) -> Chosen {
        let paths = self.inner().paths();
        if let [only] = paths.as_slice() {
            return match self.usable(only) {
                Some(_) if failed.contains(&only.id) => Chosen::FailedOnly,
                Some(handle) => Chosen::Path(Arc::clone(only), handle),
                None => Chosen::Nothing,
            };
        }
        let policy = self.subsystem().policy();
        let here = paths.iter().any(|path| path.node.is_some()).then(node::of_thread_lately).flatten();
        let (head, nsid, version) = (self.head(), self.nsid().0, self.inner().version());
        let mut choice = lock(&self.0.choice);
        let Choice { chooser, candidates, version: of_refusals, refused } = &mut *choice;
        if std::mem::replace(of_refusals, version) != version {
            refused.clear();
        }
        candidates.clear();
        let mut has_failed = false;
        for (number, path) in paths.iter().enumerate() {
            let is_there = path.is_enabled() && path.controller.state() == State::Live;
            if !is_there || !path.bindings().contains_key(&head) {
                continue;
            }
            if failed.contains(&path.id) || refused.contains(&path.id) {
                has_failed = true;
                continue;
            }
            candidates.push(Candidate {
                lane: number,
                rank: path.access().rank(nsid),
                is_preferred: path.is_preferred(),
                is_remote: path.node.is_some() && here.is_some() && path.node != here,
                in_flight: path.totals().0,
                latency_us: path.latency_us(),
            });
        }
        let chosen = chooser.choose(policy, candidates).and_then(|number| {
            let path = &paths[number];
            Some((Arc::clone(path), path.handle(head)?))
        });
        match chosen {
            Some((path, handle)) => Chosen::Path(path, handle),
            None if has_failed => {
                // Those that have refused it may take it after a pause.
                refused.clear();
                Chosen::FailedOnly
            }
            None => Chosen::Nothing,
        }
    }

    /// A path refuses commands, or has lost the namespace. Returns whether another one may take
    /// them: until something changes, this one is not asked again.
    fn refuse(&self, id: PathId) -> bool {
        let (paths, nsid) = (self.inner().paths(), self.nsid().0);
        let mut choice = lock(&self.0.choice);
        let takes = |path: &Path| {
            let is_asked = path.id != id && !choice.refused.contains(&path.id);
            is_asked && self.usable(path).is_some() && path.access().rank(nsid) <= Rank::NonOptimized
        };
        let may_go = paths.iter().any(|path| takes(path));
        if may_go && !choice.refused.contains(&id) {
            choice.refused.push(id);
        }
        may_go
    }

    /// Whether another path than this one, which has lost the namespace for good, may still give
    /// access to it.
    fn may_come_back(&self, id: PathId) -> bool {
        let (paths, nsid) = (self.inner().paths(), self.nsid().0);
        let mut others = paths.iter().filter(|path| path.id != id && path.is_enabled());
        others.any(|path| path.access().rank(nsid) != Rank::Lost)
    }

    /// The best state of the paths that lead to it.
    fn state(&self) -> State {
        let (paths, head) = (self.inner().paths(), self.head());
        let leads = |path: &&Arc<Path>| path.is_enabled() && path.bindings().contains_key(&head);
        let states: Vec<State> = paths.iter().filter(leads).map(|path| path.controller.state()).collect();
        let order = [State::Live, State::Reconnecting, State::Dead];
        order.into_iter().find(|state| states.contains(state)).unwrap_or(State::Disconnected)
    }
}

impl<'n> Call<'n> {
    fn new(namespace: &'n PathNamespace, command: &'static str, fate: Fate) -> Self {
        Self {
            namespace,
            command,
            fate,
            recovery: Recovery::default(),
            failed: Vec::new(),
            lost_since: None,
            refused_since: None,
            last: None,
        }
    }

    fn now(&self) -> Instant {
        self.namespace.options().clock.now()
    }

    /// Waits until another attempt may be made, after one that has failed over `path`. `seen` is
    /// what the bell had said before.
    ///
    /// # Errors
    /// The call has failed.
    fn after(&mut self, path: &Path, failed: FailedAttempt, seen: u64) -> Result<(), Error> {
        let FailedAttempt { error, fence } = failed;
        if self.recovery.is_to_be_split(&error) {
            return Ok(());
        }
        let troubles = &path.controller.shared().troubles;
        if error.is_connection() {
            troubles.note(Trouble::Repeated);
            self.failed.push(path.id);
            return self.after_loss(error, fence);
        }
        self.refused_since = None;
        if is_about_path(&error) && self.namespace.refuse(path.id) {
            troubles.note(Trouble::Repeated);
            return Ok(());
        }
        // The others may refuse it now, and give access later.
        let is_lost_here = error.status().is_some_and(|status| status.is(Status::ANA_PERSISTENT_LOSS));
        let error = if is_lost_here && self.namespace.may_come_back(path.id) {
            Error::Status { command: self.command, status: Status::ANA_INACCESSIBLE }
        } else {
            error
        };
        match self.recovery.after(&error, self.now(), self.namespace.options()) {
            NextAttempt::After(pause) => {
                troubles.note(Trouble::Repeated);
                let is_on_path = error.status().map(Retry::from_status) == Some(Retry::Path);
                if is_on_path {
                    self.namespace.inner().bell.wait(seen, Some(pause));
                } else {
                    std::thread::sleep(pause);
                }
                self.last = Some(error);
                Ok(())
            }
            NextAttempt::OnceLive { .. } | NextAttempt::Never => Err(error),
        }
    }

    fn after_loss(&mut self, error: Error, fence: Option<Arc<Fence>>) -> Result<(), Error> {
        let now = self.now();
        let fence = fence.filter(|_| error.is_fate_unknown());
        let is_refused = matches!(error, Error::Connect(_));
        let refused_since = self.refused_since.filter(|_| is_refused).unwrap_or(now);
        self.refused_since = is_refused.then_some(refused_since);
        let limit = self.namespace.options().ctrl_loss_tmo;
        if limit.is_some_and(|limit| is_refused && now.saturating_duration_since(refused_since) >= limit) {
            return Err(error);
        }
        match (fence, self.fate) {
            (None, _) | (_, Fate::Repeat) => {
                self.last = Some(error);
                Ok(())
            }
            (Some(_), Fate::Fail) => Err(error),
            (Some(fence), Fate::Wait) => {
                self.last = Some(error);
                self.wait_for(&fence)
            }
        }
    }

    /// Waits until the lost controller executes nothing any more.
    fn wait_for(&mut self, fence: &Fence) -> Result<(), Error> {
        loop {
            let seen = self.namespace.inner().bell.rung();
            let now = self.now();
            if fence.is_over(now) {
                return Ok(());
            }
            self.check_state()?;
            let until_end = fence.ends_at().map(|end| end.saturating_duration_since(now));
            let pause = self.recovery.next_loss_pause().min(until_end.unwrap_or(LOOK_INTERVAL));
            self.namespace.inner().bell.wait(seen, Some(pause));
        }
    }

    /// Each path that is there has failed just now.
    fn pause(&mut self, seen: u64) {
        self.failed.clear();
        let pause = self.recovery.next_loss_pause();
        self.namespace.inner().bell.wait(seen, Some(pause));
    }

    /// No path has a connection: waits for one.
    fn wait_for_path(&mut self, seen: u64) -> Result<(), Error> {
        self.check_state()?;
        self.pause(seen);
        Ok(())
    }

    /// Whether it is worth waiting for a path.
    fn check_state(&mut self) -> Result<(), Error> {
        let now = self.now();
        let is_over = match self.namespace.state() {
            State::Live => {
                self.lost_since = None;
                false
            }
            State::Reconnecting => {
                let lost_for = now.saturating_duration_since(*self.lost_since.get_or_insert(now));
                self.namespace.options().fast_io_fail_tmo.is_some_and(|limit| lost_for >= limit)
            }
            State::Disconnected | State::Dead => true,
        };
        if !is_over {
            return Ok(());
        }
        let not_connected = || self.namespace.subsystem().controller().shared().not_connected();
        Err(self.last.take().unwrap_or_else(not_connected))
    }
}

/// Whether another path may have another answer.
fn is_about_path(error: &Error) -> bool {
    match error {
        Error::Status { status, .. } => Retry::is_about_path(*status),
        Error::NoSuchNamespace(_) | Error::Replaced { .. } | Error::Format { .. } | Error::NoFreeQueue { .. } => true,
        _ => false,
    }
}

impl std::fmt::Debug for PathNamespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PathNamespace")
            .field("namespace", &self.0.namespace)
            .field("subsystem", &self.0.subsystem)
            .finish_non_exhaustive()
    }
}
