//! A namespace with calls that block, over whichever path is best for each.
//!
//! A call takes a queue pair of the path's controller, as those of [`Namespace`] do, and goes on
//! over another path when that one is lost or refuses the command. A command whose fate is unknown
//! then is repeated as its [`Fate`] says.

use std::sync::{Arc, Mutex};

use ebof_nvme::identify::{IdentifyNamespace, ProtectionType};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::IntoBytes;

use super::access::Rank;
use super::call::PathCall;
use super::path::{Path, PathId, outage};
use super::policy::{Candidate, Chooser, PathPolicy};
use super::reservations::PathReservations;
use super::sameness::{AddPathError, bind};
use super::{Inner, Subsystem, node};
use crate::command::data::AdminData;
use crate::command::fate::Fate;
use crate::controller::namespace::{FailedAttempt, Namespace, split, with_information};
use crate::error::state::State;
use crate::error::{Error, PathsDiffer};
use crate::options::Options;
use crate::queue::TransferPiece;
use crate::requeue::Outage;
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
/// executes nothing any more (its fence); a copy is not repeated.
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

impl PathNamespace {
    /// See [`Subsystem::namespace`].
    pub(super) async fn open(subsystem: &Subsystem, nsid: Nsid, waiter: &Waiter) -> Result<Self, Error> {
        let (mut first, mut last): (Option<Namespace>, _) = (None, None);
        // Those that are away are bound when they are back.
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
            if path.bindings().contains_key(&first.head()) {
                continue;
            }
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
        let lost = || last.unwrap_or_else(|| subsystem.controller().shared().not_connected());
        let first = first.ok_or_else(lost)?;
        subsystem.inner().announce();
        Ok(Self(Arc::new(Opened { subsystem: subsystem.clone(), namespace: first, choice: Mutex::default() })))
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
        self.least(Namespace::max_transfer_blocks)
    }

    /// The least of what the namespace has over its paths.
    pub(crate) fn least<T: Ord>(&self, of: impl Fn(&Namespace) -> T) -> T {
        let paths = self.inner().paths();
        let handles = paths.iter().filter_map(|path| path.handle(self.head()));
        handles.map(|handle| of(&handle)).min().unwrap_or_else(|| of(&self.0.namespace))
    }

    /// The namespace over the path that it was opened over first.
    pub(crate) fn first(&self) -> &Namespace {
        &self.0.namespace
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

    /// The reservations of this host, and the others', whichever path leads there.
    #[must_use]
    pub fn reservations(&self) -> PathReservations {
        PathReservations::new(self.clone())
    }

    fn transfer(
        &self,
        command: &'static str,
        opcode: u8,
        range: BlockRange,
        blocks: u64,
        data: &mut AdminData<'_>,
    ) -> Result<(), Error> {
        let call = PathCall::new(self, command, Fate::of(opcode, false));
        self.execute(call, |path| path.transfer_pieces(opcode, range, blocks), data, || Ok(false))
    }

    fn without_data(&self, command: &'static str, opcode: u8, range: BlockRange, blocks: u64) -> Result<(), Error> {
        self.0.namespace.check_range(range.slba, blocks)?;
        let pieces = |path: &Namespace| path.pieces_without_data(opcode, range, blocks);
        let call = PathCall::new(self, command, Fate::of(opcode, false));
        self.execute(call, pieces, &mut AdminData::None, || Ok(false))
    }

    /// One command.
    fn one(&self, command: &'static str, sqe: Sqe, data: &[u8]) -> Result<(), Error> {
        let data = &mut if data.is_empty() { AdminData::None } else { AdminData::FromHost(data) };
        self.execute_one(command, sqe, data, Fate::of(sqe.opcode, false), || Ok(false))
    }

    /// One command. `is_done` is asked when its connection was lost, and the controller that had it
    /// executes it no more: whether it has been executed. If not, it is repeated.
    ///
    /// # Errors
    /// As [`PathNamespace::read`].
    pub(super) fn execute_one(
        &self,
        command: &'static str,
        sqe: Sqe,
        data: &mut AdminData<'_>,
        fate: Fate,
        is_done: impl FnMut() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let bytes = match data {
            AdminData::None => 0,
            AdminData::ToHost(buffer) => buffer.len(),
            AdminData::FromHost(bytes) => bytes.len(),
        };
        let length = u32::try_from(bytes).map_err(|_| Error::TooLarge { bytes })?;
        let piece =
            |path: &Namespace| std::iter::once(TransferPiece { sqe: sqe.with_nsid(path.nsid()), start: 0, length });
        self.execute(PathCall::new(self, command, fate), piece, data, is_done)
    }

    /// Runs all pieces, which `pieces` makes for a path, over one path after the other until one
    /// has done it.
    fn execute<I: Iterator<Item = TransferPiece>>(
        &self,
        mut call: PathCall<'_>,
        pieces: impl Fn(&Namespace) -> I,
        data: &mut AdminData<'_>,
        mut is_done: impl FnMut() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        loop {
            let seen = self.inner().bell.rung();
            match self.choose(call.failed()) {
                Chosen::Path(path, handle) => {
                    let Err(failed) = self.attempt(&path, &handle, call.command(), pieces(&handle), data) else {
                        return Ok(());
                    };
                    let may_be_done = call.after(&path, failed, seen)?;
                    if may_be_done && is_done()? {
                        return Ok(());
                    }
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

    pub(super) fn inner(&self) -> &Inner {
        self.subsystem().inner()
    }

    pub(super) fn options(&self) -> &Options {
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
    pub(super) fn refuse(&self, id: PathId) -> bool {
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
    pub(super) fn may_come_back(&self, id: PathId) -> bool {
        let (paths, nsid) = (self.inner().paths(), self.nsid().0);
        let mut others = paths.iter().filter(|path| path.id != id && path.is_enabled());
        others.any(|path| path.access().rank(nsid) != Rank::Lost)
    }

    /// Why none of the paths that lead to it takes commands.
    pub(super) fn outage(&self) -> Outage {
        let (paths, head) = (self.inner().paths(), self.head());
        outage(paths.iter().map(|path| &**path).filter(|path| path.is_enabled() && path.bindings().contains_key(&head)))
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
