//! Protection information between transfer and device: what is inserted, checked and stripped, and
//! how devices keep it. Nothing of this is on the way of namespaces without it.
//!
//! On the device every block is followed by its protection information with all bits inverted. What
//! was never written, or was deallocated, is zeros there, and its protection information so reads
//! as FFh in all bytes, which is what the specification wants and what has nothing checked; no
//! block that a host writes can be taken for such a one (docs/adr/0020-protection-information.md).
#![deny(clippy::wildcard_enum_match_arm)]

use ebof_fabrics::{Copy, IoTask, ProtectionChecks, Task, Transfer, TransferKind};
use ebof_nvme::Status;
use ebof_nvme::protection::blocks::{same_data, spread, strip};
use ebof_nvme::protection::{Bad, INFORMATION_BYTES};

use crate::commands::command::Command;
use crate::observe::log_limit::{Kind, LogSubject};
use crate::shared::Shared;

/// The host's data become what the device gets; what only zeroes gets it from here. Does
/// nothing where blocks have no protection information.
///
/// # Errors
/// The protection information that the host sent is wrong.
#[inline]
pub(crate) fn check_outbound(command: &mut Command, shared: &Shared) -> Result<(), Status> {
    if let Task::Io(IoTask::Transfer(Transfer { kind, checks: Some(checks), .. })) = &command.task {
        let kind = *kind;
        let checks = **checks;
        return check_sent(command, kind, checks, shared);
    }
    Ok(())
}

/// Why there is a buffer: a command with protection information has one whatever it does
/// ([`Transfer::buffer_bytes`]), it is never mapped ([`Command::mapped_way`]), and its device gives
/// the buffer back.
const HAS_BUFFER: &str = "a command with protection information has a buffer";

#[cold]
fn check_sent(
    command: &mut Command,
    kind: TransferKind,
    checks: ProtectionChecks,
    shared: &Shared,
) -> Result<(), Status> {
    let ProtectionChecks { rules, device_bytes, .. } = checks;
    let data_bytes = checks.data_bytes as usize;
    let length = device_bytes as usize;
    let bytes = command.buffer.as_mut().expect(HAS_BUFFER).as_mut_slice();
    // The host's data of a Compare stand behind the place of the device's.
    let target = if kind == TransferKind::Compare { length..2 * length } else { 0..length };
    let Some(blocks) = bytes.get_mut(target) else { return Err(Status::INTERNAL_ERROR) };
    let checked = match kind {
        TransferKind::Write if rules.acts() => {
            spread(blocks, data_bytes);
            rules.insert(blocks, data_bytes);
            Ok(())
        }
        TransferKind::Write => rules.check(blocks, data_bytes),
        TransferKind::WriteZeroes => {
            rules.write_zeroes(blocks, data_bytes);
            Ok(())
        }
        // Both sides of the comparison are checked; this one goes nowhere.
        TransferKind::Compare => {
            return rules.check(blocks, data_bytes).map_err(|bad| found(command, bad, "sent", shared));
        }
        TransferKind::Read | TransferKind::Verify | TransferKind::WriteUncorrectable => return Ok(()),
    };
    invert(blocks, data_bytes);
    checked.map_err(|bad| found(command, bad, "sent", shared))
}

/// What the device gave becomes what the host gets, or is compared with what it sent. What is
/// kept wrong on the device is a `severe` error. `None` where blocks have no protection
/// information.
#[inline]
pub(crate) fn check_inbound(command: &mut Command, severe: &mut bool, shared: &Shared) -> Option<Status> {
    if let Task::Io(IoTask::Transfer(Transfer { kind, checks: Some(checks), .. })) = &command.task {
        let kind = *kind;
        let checks = **checks;
        return Some(check_read(command, kind, checks, severe, shared));
    }
    None
}

#[cold]
fn check_read(
    command: &mut Command,
    kind: TransferKind,
    checks: ProtectionChecks,
    severe: &mut bool,
    shared: &Shared,
) -> Status {
    let ProtectionChecks { rules, device_bytes, .. } = checks;
    let data_bytes = checks.data_bytes as usize;
    let length = device_bytes as usize;
    match kind {
        TransferKind::Read | TransferKind::Verify | TransferKind::Compare => {}
        TransferKind::Write | TransferKind::WriteZeroes | TransferKind::WriteUncorrectable => {
            return Status::SUCCESS;
        }
    }
    let buffer = command.buffer.as_mut().expect(HAS_BUFFER);
    let Some((blocks, rest)) = buffer.as_mut_slice().split_at_mut_checked(length) else {
        return Status::INTERNAL_ERROR;
    };
    invert(blocks, data_bytes);
    if let Err(bad) = rules.check(blocks, data_bytes) {
        *severe = true;
        return found(command, bad, "read", shared);
    }
    if kind == TransferKind::Read && rules.acts() {
        strip(blocks, data_bytes);
    }
    // NVM Command Set, Compare: protection information is checked, and not compared.
    if kind == TransferKind::Compare && !rest.get(..length).is_some_and(|sent| same_data(blocks, sent, data_bytes)) {
        return Status::COMPARE_FAILURE;
    }
    Status::SUCCESS
}

/// Logs a block that is wrong.
fn found(command: &mut Command, Bad { block, mismatch }: Bad, what: &str, shared: &Shared) -> Status {
    let status = mismatch.status();
    if let Some(more) = shared.may_log(LogSubject::Device(command.device()), Kind::Protection) {
        let nsid = command.nsid.0;
        let work = command.task.io().map(tracing::field::display);
        tracing::warn!(nsid, work, block, %status, "protection information {what}: {mismatch}{more}");
    }
    command.failed_lba = Some(command.executing.starting_lba().wrapping_add(block));
    status
}

/// A piece has been read into `bytes`: what its source says of protection information is
/// checked, and what the destination says of it is done.
///
/// # Errors
/// It is not what was expected.
pub(crate) fn check_piece(copy: &Copy, bytes: &mut [u8], shared: &Shared) -> Result<(), Status> {
    let Some((read, write, data_bytes)) = copy.rules() else { return Ok(()) };
    invert(bytes, data_bytes);
    let checked = read.check(bytes, data_bytes).and_then(|()| {
        if write.acts() {
            write.insert(bytes, data_bytes);
            return Ok(());
        }
        write.check(bytes, data_bytes)
    });
    invert(bytes, data_bytes);
    checked.map_err(|Bad { block, mismatch }| {
        let status = mismatch.status();
        if let Some(more) = shared.may_log(LogSubject::Device(Some(copy.target_device())), Kind::Protection) {
            let source = copy.source();
            tracing::warn!(source, block, %status, "protection information copied: {mismatch}{more}");
        }
        status
    })
}

/// Protection information as hosts know it becomes that of the device, and the other way round.
fn invert(blocks: &mut [u8], data_bytes: usize) {
    for block in blocks.chunks_exact_mut(data_bytes + INFORMATION_BYTES) {
        block[data_bytes..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}
