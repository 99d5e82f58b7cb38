//! A namespace with calls that split transfers and retry. Sequences of commands are `async fn`s
//! that wait by their [`Waiter`]: blocking, or stepped for [`crate::stepped`].

mod pool;

use std::collections::VecDeque;
use std::sync::Arc;

use ebof_nvme::identify::{IdentifyNamespace, ProtectionType};
use ebof_nvme::io::{BlockRange, Dsm, DsmRange};
use ebof_nvme::opcode::nvm;
use ebof_nvme::protection::{INFORMATION_BYTES, left_to_controller};
use ebof_nvme::{Cqe, Nsid, Sqe, Status};
use zerocopy::IntoBytes;

use crate::command::data::AdminData;
use crate::command::limits::Limits;
use crate::controller::Controller;
use crate::controller::copies::{Copies, CopyLimits};
use crate::error::Error;
use crate::queue::TransferPiece;
use crate::requeue::recovery::Recovery;
use crate::shared::bindings::{Binding, BoundNamespace};
use crate::shared::fence::Fence;
use crate::shared::opened::NamespaceHead;
use crate::wait::Waiter;
pub(crate) use pool::Pool;

/// A namespace of a connected controller, for any number of threads. Each call takes a queue pair
/// from a pool that all namespaces of the controller share; a further one is connected when all are
/// in use and the controller has granted more.
///
/// The controller inserts, checks and strips protection information. Namespaces with other metadata
/// are refused.
///
/// Calls split transfers at the controller's limits, and continue after a loss of the connection
/// (every command here is repeated at once, as by Linux' host: a write that the controller still
/// had may be executed after later ones; those of a [`crate::PathNamespace`] wait, also with one
/// path) until the controller is given up or `fast_io_fail_tmo` has passed. A queue pair that the
/// target refuses is tried again after pauses, which grow as those of a reconnect do and are the
/// same for all calls; meanwhile calls share those that there are. Where there is none, a call
/// fails after `ctrl_loss_tmo`, although the controller is live.
#[derive(Clone)]
pub struct Namespace {
    controller: Controller,
    nsid: Nsid,
    block_bytes: u32,
    bound: Arc<BoundNamespace>,
}

/// The largest transfer if the controller has no limit, bytes.
const TRANSFER_BYTES: u64 = 1 << 20;
/// The most blocks of one command.
const BLOCKS_MAX: u64 = 1 << 16;
impl Namespace {
    pub(crate) async fn open(controller: Controller, nsid: Nsid, waiter: &Waiter) -> Result<Self, Error> {
        let bound = controller.open_namespace(nsid, waiter).await?;
        let identify = bound.identify();
        let format = identify.format();
        let unusable = |reason| Error::Format { nsid, reason };
        let block_bytes = format.block_bytes().ok_or(unusable("its block size is not legal"))?;
        if identify.protection_by_controller().is_none() {
            return Err(unusable("its blocks carry metadata"));
        }
        if block_bytes > 1 << 20 {
            return Err(unusable("its blocks are larger than 1 MiB"));
        }
        if controller.io_queues() == 0 {
            return Err(Error::NoFreeQueue { granted: 0 });
        }
        Ok(Self { controller, nsid, block_bytes, bound })
    }

    /// Its identifier.
    #[must_use]
    pub fn nsid(&self) -> Nsid {
        self.nsid
    }

    /// The controller.
    #[must_use]
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Its Identify data, as last read: when it was opened, at every reconnect and event, and by
    /// [`Namespace::refresh`].
    #[must_use]
    pub fn identify(&self) -> Arc<IdentifyNamespace> {
        self.bound.identify()
    }

    /// Identifies this namespace in commands, so that they cannot reach another one that gets its
    /// NSID later.
    #[must_use]
    pub fn binding(&self) -> Binding {
        self.bound.binding()
    }

    /// What it is, whichever controller of its [`crate::Subsystem`] leads to it.
    #[must_use]
    pub fn head(&self) -> NamespaceHead {
        self.bound.head()
    }

    /// Its NGUID, EUI-64 and UUID in hexadecimal, those that it has: `nguid.0123... uuid.4567...`.
    /// The same through every controller of its subsystem.
    #[must_use]
    pub fn identifiers(&self) -> String {
        self.bound.identifiers()
    }

    /// Whether its NSID still refers to the namespace that was opened, as of the last scan.
    ///
    /// # Errors
    /// [`Error::Replaced`], or [`Error::Format`] if its LBA format changed: open it again.
    /// [`Error::NoSuchNamespace`]: it was removed or detached, and may come back.
    pub fn check(&self) -> Result<(), Error> {
        self.controller.shared().bindings.check(self.binding())
    }

    /// How calls that block wait.
    fn waiter(&self) -> &Waiter {
        &self.controller.shared().waiter
    }

    /// Bytes of a logical block.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// The type of protection information, which the controller inserts and strips. Commands that
    /// callers build have to request that: [`ebof_nvme::protection::left_to_controller`].
    #[must_use]
    pub fn protection(&self) -> ProtectionType {
        // Other metadata were refused when the namespace was opened.
        self.identify().protection_by_controller().unwrap_or_default()
    }

    /// A command for blocks.
    pub(crate) fn encode(&self, range: &BlockRange, opcode: u8) -> Sqe {
        left_to_controller(self.protection(), range.encode(opcode, self.nsid))
    }

    /// Size in logical blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.identify().nsze.get()
    }

    /// Size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u128 {
        u128::from(self.blocks()) * u128::from(self.block_bytes())
    }

    /// Whether it is write-protected (`NSATTR`, bit 0).
    #[must_use]
    pub fn is_write_protected(&self) -> bool {
        self.identify().nsattr & 1 != 0
    }

    /// The most blocks that one command may transfer.
    #[must_use]
    pub fn max_transfer_blocks(&self) -> u32 {
        let bytes = self.controller.max_transfer_bytes().unwrap_or(TRANSFER_BYTES).min(u64::from(u32::MAX));
        let blocks = (bytes / u64::from(self.block_bytes)).clamp(1, BLOCKS_MAX);
        u32::try_from(blocks).unwrap_or(1)
    }

    /// The most blocks of one Write Zeroes.
    pub(crate) fn max_zeroes_blocks(&self) -> u64 {
        self.blocks_in(self.controller.limits().write_zeroes_bytes)
    }

    /// The most blocks of one Write Zeroes or Verify.
    pub(crate) fn max_blocks_without_data(&self, opcode: u8) -> u64 {
        let verify = opcode == nvm::VERIFY;
        if verify { self.blocks_in(self.controller.limits().verify_bytes) } else { self.max_zeroes_blocks() }
    }

    /// The most blocks of one Compare with protection information, which counts for MDTS too.
    pub(crate) fn max_compare_blocks(&self) -> u64 {
        let most = u64::from(self.max_transfer_blocks()) * u64::from(self.block_bytes);
        (most / (u64::from(self.block_bytes) + INFORMATION_BYTES as u64)).max(1)
    }

    fn blocks_in(&self, bytes: Option<u64>) -> u64 {
        (bytes.unwrap_or(u64::MAX) / u64::from(self.block_bytes)).clamp(1, BLOCKS_MAX)
    }

    /// Reads the Identify data and identifiers again.
    ///
    /// # Errors
    /// As [`Controller::identify_namespace`] and [`Namespace::check`].
    pub fn refresh(&self) -> Result<(), Error> {
        drop(self.run(self.controller.open_namespace(self.nsid, self.waiter()))?);
        self.check()
    }

    /// Has it stay what other controllers lead to, although one of them has led to something else
    /// with its identifiers or its number, and is not used for it.
    pub(crate) fn keep(&self) {
        self.controller.shared().bindings.keep(&self.bound);
        // What is known of it was overwritten by what was found there.
        let _refreshed = self.refresh();
    }

    /// Reads whole blocks from `lba` on; `data` is a multiple of the block size.
    ///
    /// # Errors
    /// [`Error::Unaligned`], [`Error::OutOfRange`], [`Error::Status`], and what ends a connection
    /// for good.
    pub fn read(&self, lba: u64, data: &mut [u8]) -> Result<(), Error> {
        self.run(self.read_with(self.waiter(), lba, data))
    }

    pub(crate) async fn read_with(&self, waiter: &Waiter, lba: u64, data: &mut [u8]) -> Result<(), Error> {
        let blocks = self.block_count(lba, data.len())?;
        self.transfer(waiter, "Read", nvm::READ, BlockRange::new(lba, 1), blocks, &mut AdminData::ToHost(data)).await
    }

    /// Writes whole blocks from `lba` on. With `fua` they are durable when the call returns.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn write(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), Error> {
        self.run(self.write_with(self.waiter(), lba, data, fua))
    }

    pub(crate) async fn write_with(&self, waiter: &Waiter, lba: u64, data: &[u8], fua: bool) -> Result<(), Error> {
        let blocks = self.block_count(lba, data.len())?;
        let range = BlockRange { fua, ..BlockRange::new(lba, 1) };
        self.transfer(waiter, "Write", nvm::WRITE, range, blocks, &mut AdminData::FromHost(data)).await
    }

    /// Compares whole blocks with `data`; `false` where they differ.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn compare(&self, lba: u64, data: &[u8]) -> Result<bool, Error> {
        let blocks = self.block_count(lba, data.len())?;
        let range = BlockRange::new(lba, 1);
        let compared = if self.protection() == ProtectionType::None {
            let data = &mut AdminData::FromHost(data);
            self.run(self.transfer(self.waiter(), "Compare", nvm::COMPARE, range, blocks, data))
        } else {
            self.compare_protected(range, blocks, data)
        };
        match compared {
            Err(Error::Status { status, .. }) if status.is(Status::COMPARE_FAILURE) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// For Compare the controller does not insert or strip protection information, so the data
    /// carries it; it is not compared.
    fn compare_protected(&self, range: BlockRange, blocks: u64, data: &[u8]) -> Result<(), Error> {
        let block_bytes = self.block_bytes as usize;
        let step = self.max_compare_blocks();
        let parts = data.chunks((block_bytes as u64 * step).try_into().unwrap_or(block_bytes));
        for (part, data) in split(range, blocks, step).zip(parts) {
            let extended = with_information(data, block_bytes);
            let length = u32::try_from(extended.len()).unwrap_or(u32::MAX);
            let piece =
                || std::iter::once(TransferPiece { sqe: part.encode(nvm::COMPARE, self.nsid), start: 0, length });
            self.run(self.execute(self.waiter(), "Compare", piece, &mut AdminData::FromHost(&extended)))?;
        }
        Ok(())
    }

    fn run<T>(&self, sequence: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.controller.shared().run(sequence)
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn flush(&self) -> Result<(), Error> {
        self.run(self.flush_with(self.waiter()))
    }

    pub(crate) async fn flush_with(&self, waiter: &Waiter) -> Result<(), Error> {
        let sqe = Sqe::new(nvm::FLUSH).with_nsid(self.nsid);
        let piece = || std::iter::once(TransferPiece { sqe, start: 0, length: 0 });
        self.execute(waiter, "Flush", piece, &mut AdminData::None).await
    }

    /// Writes zeros without sending them; with `deallocate` the blocks may be unmapped.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn write_zeroes(&self, lba: u64, blocks: u64, deallocate: bool) -> Result<(), Error> {
        self.run(self.write_zeroes_with(self.waiter(), lba, blocks, deallocate))
    }

    pub(crate) async fn write_zeroes_with(
        &self,
        waiter: &Waiter,
        lba: u64,
        blocks: u64,
        deallocate: bool,
    ) -> Result<(), Error> {
        let range = BlockRange { deallocate, ..BlockRange::new(lba, 1) };
        self.without_data(waiter, "Write Zeroes", nvm::WRITE_ZEROES, range, blocks).await
    }

    /// Has the controller read and check blocks without sending them.
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn verify(&self, lba: u64, blocks: u64) -> Result<(), Error> {
        self.run(self.without_data(self.waiter(), "Verify", nvm::VERIFY, BlockRange::new(lba, 1), blocks))
    }

    /// Deallocates (trims) ranges of (lba, blocks).
    ///
    /// # Errors
    /// As [`Namespace::read`].
    pub fn deallocate(&self, ranges: &[(u64, u64)]) -> Result<(), Error> {
        self.run(self.deallocate_with(self.waiter(), ranges))
    }

    pub(crate) async fn deallocate_with(&self, waiter: &Waiter, ranges: &[(u64, u64)]) -> Result<(), Error> {
        let mut rest = self.ranges_left(ranges)?;
        while let Some((sqe, list)) = self.next_deallocation(&mut rest) {
            let length = u32::try_from(size_of_val(&*list)).unwrap_or(u32::MAX);
            let piece = || std::iter::once(TransferPiece { sqe, start: 0, length });
            self.execute(waiter, "Dataset Management", piece, &mut AdminData::FromHost(list.as_bytes())).await?;
        }
        Ok(())
    }

    /// Copies ranges of (lba, blocks), one after the other, to the blocks from `to` on, within the
    /// controller.
    ///
    /// # Errors
    /// As [`Namespace::read`]; [`Error::Overlap`] if a range overlaps the destination. A controller
    /// without Copy answers Invalid Command Opcode.
    pub fn copy(&self, ranges: &[(u64, u64)], to: u64) -> Result<(), Error> {
        let mut copies = self.copies(ranges, to)?;
        while let Some((sqe, list)) = self.next_copy(&mut copies) {
            let length = u32::try_from(list.len()).unwrap_or(u32::MAX);
            let piece = || std::iter::once(TransferPiece { sqe, start: 0, length });
            self.run(self.execute(self.waiter(), "Copy", piece, &mut AdminData::FromHost(&list)))?;
        }
        Ok(())
    }

    /// A copy of ranges of (lba, blocks), one after the other, to `to`.
    pub(crate) fn copies(&self, ranges: &[(u64, u64)], to: u64) -> Result<Copies, Error> {
        let mut total = 0_u64;
        for &(lba, blocks) in ranges {
            self.check_range(lba, blocks)?;
            total = total.saturating_add(blocks);
        }
        self.check_range(to, total)?;
        Copies::new(ranges, to, total)
    }

    /// The next command of a copy and its data, within the current limits.
    pub(crate) fn next_copy(&self, copies: &mut Copies) -> Option<(Sqe, Vec<u8>)> {
        copies.next(CopyLimits::from_identify(&self.identify()), self.nsid(), self.protection())
    }

    /// Checks ranges of (lba, blocks) that are to be deallocated.
    pub(crate) fn ranges_left(&self, ranges: &[(u64, u64)]) -> Result<VecDeque<(u64, u64)>, Error> {
        for &(lba, blocks) in ranges {
            self.check_range(lba, blocks)?;
        }
        Ok(ranges.iter().copied().filter(|(_, blocks)| *blocks > 0).collect())
    }

    /// The next command that deallocates some of `rest`, and its data, within the current limits.
    pub(crate) fn next_deallocation(&self, rest: &mut VecDeque<(u64, u64)>) -> Option<(Sqe, Vec<DsmRange>)> {
        let list = next_ranges(rest, &self.controller.limits());
        let ranges = u16::try_from(list.len()).unwrap_or(u16::MAX);
        let dsm = Dsm { ranges, deallocate: true, integral_write: false, integral_read: false };
        (ranges > 0).then(|| (dsm.encode(self.nsid), list))
    }

    pub(crate) fn block_count(&self, lba: u64, bytes: usize) -> Result<u64, Error> {
        let bytes64 = bytes as u64;
        let block = u64::from(self.block_bytes);
        if !bytes64.is_multiple_of(block) {
            return Err(Error::Unaligned { bytes, block_bytes: self.block_bytes });
        }
        self.check_range(lba, bytes64 / block)?;
        Ok(bytes64 / block)
    }

    pub(crate) fn check_range(&self, lba: u64, blocks: u64) -> Result<(), Error> {
        let size = self.blocks();
        match lba.checked_add(blocks) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Error::OutOfRange { lba, blocks, size }),
        }
    }

    async fn transfer(
        &self,
        waiter: &Waiter,
        command: &'static str,
        opcode: u8,
        range: BlockRange,
        blocks: u64,
        data: &mut AdminData<'_>,
    ) -> Result<(), Error> {
        self.execute(waiter, command, || self.transfer_pieces(opcode, range, blocks), data).await
    }

    /// The commands that transfer blocks, within the controller's present limit: made anew for
    /// every attempt, because it may change with a reconnect.
    pub(super) fn transfer_pieces(
        &self,
        opcode: u8,
        range: BlockRange,
        blocks: u64,
    ) -> impl Iterator<Item = TransferPiece> + use<> {
        let (nsid, protection, block_bytes) = (self.nsid, self.protection(), u64::from(self.block_bytes));
        split(range, blocks, u64::from(self.max_transfer_blocks())).map(move |part| TransferPiece {
            sqe: left_to_controller(protection, part.encode(opcode, nsid)),
            start: usize::try_from((part.slba - range.slba) * block_bytes).unwrap_or(usize::MAX),
            // At most MDTS, or `TRANSFER_BYTES` without one.
            length: u32::try_from(u64::from(part.blocks) * block_bytes).unwrap_or(u32::MAX),
        })
    }

    async fn without_data(
        &self,
        waiter: &Waiter,
        command: &'static str,
        opcode: u8,
        range: BlockRange,
        blocks: u64,
    ) -> Result<(), Error> {
        self.check_range(range.slba, blocks)?;
        let pieces = || self.pieces_without_data(opcode, range, blocks);
        self.execute(waiter, command, pieces, &mut AdminData::None).await
    }

    /// As [`Namespace::transfer_pieces`], for Write Zeroes and Verify.
    pub(super) fn pieces_without_data(
        &self,
        opcode: u8,
        range: BlockRange,
        blocks: u64,
    ) -> impl Iterator<Item = TransferPiece> + use<> {
        let (nsid, protection) = (self.nsid, self.protection());
        split(range, blocks, self.max_blocks_without_data(opcode)).map(move |part| TransferPiece {
            sqe: left_to_controller(protection, part.encode(opcode, nsid)),
            start: 0,
            length: 0,
        })
    }

    /// Runs all pieces on a free queue pair, and retries after a loss or a transient status.
    async fn execute<I: Iterator<Item = TransferPiece>>(
        &self,
        waiter: &Waiter,
        command: &'static str,
        pieces: impl Fn() -> I,
        data: &mut AdminData<'_>,
    ) -> Result<(), Error> {
        let mut recovery = Recovery::default();
        loop {
            let Err(FailedAttempt { error, .. }) = self.attempt(waiter, command, pieces(), data).await else {
                return Ok(());
            };
            if !recovery.is_to_be_split(&error) {
                recovery.wait(error, self.controller.shared(), waiter).await?;
            }
        }
    }

    /// Runs all pieces on a free queue pair, once.
    pub(super) async fn attempt(
        &self,
        waiter: &Waiter,
        command: &'static str,
        pieces: impl Iterator<Item = TransferPiece>,
        data: &mut AdminData<'_>,
    ) -> Result<(), FailedAttempt> {
        let lease = self.controller.pool().take(&self.controller, waiter).await;
        let mut lease = lease.map_err(|error| FailedAttempt { error, fence: None })?;
        let queue = lease.queue();
        let done = queue.execute_pieces(waiter, Some(self.binding()), pieces, data, |cqe| check(command, &cqe)).await;
        // Before others use the queue, which connects it anew.
        let done = done.map_err(|error| FailedAttempt { error, fence: Some(queue.fence()) });
        lease.give_back();
        done
    }
}

/// Why an attempt failed.
#[derive(Debug)]
pub(super) struct FailedAttempt {
    pub(super) error: Error,
    /// Of the association that had its commands; `None` if none was sent.
    pub(super) fence: Option<Arc<Fence>>,
}

impl std::fmt::Debug for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Namespace")
            .field("nsid", &self.nsid)
            .field("block_bytes", &self.block_bytes)
            .field("blocks", &self.blocks())
            .finish_non_exhaustive()
    }
}

fn check(command: &'static str, cqe: &Cqe) -> Result<(), Error> {
    cqe.status().ok().map_err(|status| Error::Status { command, status })
}

/// Blocks with room for their protection information, which is not compared.
pub(super) fn with_information(data: &[u8], block_bytes: usize) -> Vec<u8> {
    let mut extended = Vec::with_capacity(data.len() / block_bytes * (block_bytes + INFORMATION_BYTES));
    for block in data.chunks_exact(block_bytes) {
        extended.extend_from_slice(block);
        extended.extend_from_slice(&[0; INFORMATION_BYTES]);
    }
    extended
}

/// `blocks` blocks from `range.slba` on in parts of at most `step`, with the flags of `range`.
pub(super) fn split(range: BlockRange, blocks: u64, step: u64) -> impl Iterator<Item = BlockRange> {
    let parts = blocks.div_ceil(step);
    (0..parts).map(move |part| {
        let at = part * step;
        let now = u32::try_from((blocks - at).min(step)).unwrap_or(u32::MAX);
        BlockRange { slba: range.slba + at, blocks: now, ..range }
    })
}

/// Takes as many of the (lba, blocks) in `rest` as one Dataset Management may have, splitting the
/// last one.
fn next_ranges(rest: &mut VecDeque<(u64, u64)>, limits: &Limits) -> Vec<DsmRange> {
    let mut list = Vec::new();
    let mut left = limits.dsm_blocks;
    while list.len() < usize::from(limits.dsm_ranges) && left > 0 {
        let Some((lba, blocks)) = rest.pop_front() else { break };
        let now = blocks.min(u64::from(limits.dsm_range_blocks)).min(left);
        let nlb = u32::try_from(now).unwrap_or(u32::MAX);
        list.push(DsmRange { cattr: 0.into(), nlb: nlb.into(), slba: lba.into() });
        left -= now;
        if now < blocks {
            rest.push_front((lba + now, blocks - now));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_are_split_without_gap_or_overlap() {
        let parts: Vec<(u64, u32)> =
            split(BlockRange::new(10, 1), 700, 256).map(|part| (part.slba, part.blocks)).collect();
        assert_eq!(parts, [(10, 256), (266, 256), (522, 188)]);
        assert_eq!(split(BlockRange::new(10, 1), 0, 256).count(), 0);
    }
}
