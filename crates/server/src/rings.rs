//! Commands about the host's memory: data that devices move there themselves, and queues that are
//! created there.

use ebof_fabrics::{Executing, Failure, RingTask, TransferKind};
use ebof_nvme::Status;
use ebof_region::Way;

use crate::command::{Command, Work};
use crate::commands::Commands;
use crate::device::DeviceTable;
use crate::execute::Origin;
use crate::link::{Link, Mapping};
use crate::mailbox::{CommandRef, Message};
use crate::reactor_context::ReactorContext;

/// For a command of a ring: has its device use the host's memory, where the link has it and the
/// device can. Otherwise the command takes a buffer, and waits for one.
///
/// # Errors
/// The command's data are nowhere: the status that it ends with.
pub(crate) fn map(command: &mut Command, link: &mut Link, devices: &DeviceTable) -> Result<(), Status> {
    let length = command.length;
    if command.work.takes_data() {
        // They were not received with the command, as those of other transports.
        link.charge(length as usize);
    }
    let device = command.work.device().and_then(|device| devices.device(device));
    match command.direct_way() {
        Some(way) => match link.map(&command.pointer, length, way) {
            Mapping::None => Ok(()),
            Mapping::Mapped(memory) => {
                command.mapped = device.is_none_or(|device| device.uses(&memory)).then_some(memory);
                Ok(())
            }
            Mapping::Refused(status) => Err(status),
        },
        None if command.work.takes_data() => link.check(&command.pointer, length, Way::FromHost),
        None if command.work.transfer_kind() == Some(TransferKind::Read) => {
            link.check(&command.pointer, length, Way::ToHost)
        }
        None => Ok(()),
    }
}

impl Commands {
    /// Sends parameter data, if they can be where the command says.
    pub(crate) fn reply(
        &mut self,
        origin: Origin,
        executing: Executing,
        data: &[u8],
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if let Err(status) = link.check(&origin.pointer, length, Way::ToHost) {
            let cqe = self.queue.fail(executing, Failure { status, result: 0, lba: None });
            return link.respond(&cqe, context);
        }
        let cqe = self.queue.complete(executing, Status::SUCCESS);
        link.send_bytes(origin.cid, data, &cqe, context);
    }

    /// Changes queues in the host's memory. One that needs a connection waits for the reactor.
    pub(crate) fn change_rings(
        &mut self,
        origin: Origin,
        executing: Executing,
        task: &RingTask,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let changed = link.change_rings(task);
        if changed.is_ok() && matches!(task, RingTask::CreateSubmissionQueue { .. }) {
            let command = self.command(origin, executing, Work::Rings, 0, context);
            let reply = CommandRef { handle: self.handle, slot: self.slots.insert(command) };
            return context.shared.post(self.handle, Message::CreateQueue { reply, task: *task });
        }
        let cqe = match changed {
            Ok(()) => self.queue.complete(executing, Status::SUCCESS),
            Err(status) => self.queue.fail(executing, Failure { status, result: 0, lba: None }),
        };
        link.respond(&cqe, context);
    }

    /// A queue that was to be created is there, or not.
    pub(crate) fn on_created(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        if self.slots.get(slot).is_some_and(|command| matches!(command.work, Work::Rings)) {
            self.finish(slot, status, link, context);
        }
    }

    /// A register of the controller was written.
    pub(crate) fn write_cc(&mut self, value: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let step = self.queue.write_cc(value, context.now_ms);
        let origin = Origin::without_data(ebof_fabrics::queue::REGISTER_WRITE, ebof_nvme::Nsid::NONE);
        self.advance(step, origin, link, context);
    }
}
