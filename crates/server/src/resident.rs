//! Reads and writes of devices whose bytes are in memory, completed immediately: they need no
//! buffer and no slot. Commands that cannot be completed this way take the usual path in
//! `execute.rs`.

use ebof_backend::{Action, Error};
use ebof_fabrics::{Executing, Step, Task, Transfer};
use ebof_nvme::Status;

use crate::commands::Commands;
use crate::device::status_of;
use crate::execute::Origin;
use crate::link::Link;
use crate::log_limit;
use crate::reactor_context::ReactorContext;
use crate::stats::Kind;

impl Commands {
    /// Answers a read from the device's memory; returns it if that is not possible.
    pub(crate) fn read_resident(
        &mut self,
        executing: Executing,
        transfer: Transfer,
        origin: Origin,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> Option<Step> {
        let devices = context.devices;
        let Some(device) = devices.device(transfer.extent.device).filter(|device| device.resident().is_some()) else {
            return Some(Step::Execute(executing, Task::Transfer(transfer)));
        };
        let offset = transfer.extent.offset_bytes;
        let length = transfer.extent.length_bytes;
        let checked = device.geometry().check_transfer(Action::Read, offset, length.into());
        if let Err(error) = checked {
            self.fail_resident(executing, &error, Kind::Read, origin, link, context);
            return None;
        }
        self.count_resident(Kind::Read, length, false, origin, context);
        let cqe = self.queue.complete(executing, Status::SUCCESS);
        link.lend(origin.cid, device, (offset, length), &cqe, context);
        None
    }

    /// Stores the data of a write that are in its capsule, if all of them have arrived; returns it
    /// if that is not possible.
    pub(crate) fn write_resident(
        &mut self,
        executing: Executing,
        transfer: Transfer,
        origin: Origin,
        input: &mut &[u8],
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> Option<Step> {
        if context.shared.fused_locks.is_any_waiting() {
            return Some(Step::Execute(executing, Task::Transfer(transfer)));
        }
        let devices = context.devices;
        let Some(resident) = devices.device(transfer.extent.device).and_then(|device| device.resident()) else {
            return Some(Step::Execute(executing, Task::Transfer(transfer)));
        };
        let Some(data) = link.take_inline(input) else {
            return Some(Step::Execute(executing, Task::Transfer(transfer)));
        };
        if !data.is_intact {
            self.count_resident(Kind::Write, 0, true, origin, context);
            let cqe = self.queue.complete(executing, Status::TRANSIENT_TRANSPORT_ERROR);
            link.respond(&cqe, context);
            return None;
        }
        match resident.store(transfer.extent.offset_bytes, data.bytes) {
            Ok(()) => {
                self.count_resident(Kind::Write, transfer.extent.length_bytes, false, origin, context);
                let cqe = self.queue.complete(executing, Status::SUCCESS);
                link.respond(&cqe, context);
            }
            Err(error) => self.fail_resident(executing, &error, Kind::Write, origin, link, context),
        }
        None
    }

    fn fail_resident(
        &mut self,
        executing: Executing,
        error: &Error,
        kind: Kind,
        origin: Origin,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let status = status_of(error, kind);
        if let Some(more) = context.shared.may_log(link.peer().about(), log_limit::Kind::Device(error.class())) {
            tracing::error!(nsid = origin.nsid.0, ?kind, %status, "device error: {error}{more}");
        }
        self.count_resident(kind, 0, true, origin, context);
        let cqe = self.queue.complete(executing, status);
        link.respond(&cqe, context);
    }

    /// Latency is counted as zero: the command arrived and completed in the same turn.
    fn count_resident(&mut self, kind: Kind, bytes: u32, failed: bool, origin: Origin, context: &ReactorContext<'_>) {
        if let Some((_, stats)) = self.stats_of(origin.nsid, context).and_then(|at| self.stats.get(at)) {
            stats.count(kind, bytes.into(), failed, 0);
        }
    }
}
