//! Protection information between transfer and device: what is inserted, checked and stripped, and how devices keep it. Nothing
//! of this is on the way of namespaces without it.
//!
//! On the device every block is followed by its protection information with all bits inverted. What was never written, or was
//! deallocated, is zeros there, and its protection information so reads as FFh in all bytes, which is what the specification
//! wants and what has nothing checked; no block that a host writes can be taken for such a one
//! (docs/adr/0020-protection-information.md).

use ebof_fabrics::{Guarding, Step};
use ebof_nvme::Status;
use ebof_nvme::protection::blocks::{same_data, spread, strip};
use ebof_nvme::protection::{Bad, INFORMATION_BYTES};

use crate::command::{Command, Work};
use crate::commands::Commands;
use crate::copy::Copy;
use crate::execute::Origin;
use crate::link::Link;
use crate::log_limit::{About, Kind};
use crate::shared::Shared;
use crate::turn::Turn;

impl Commands {
    /// A command for blocks with protection information.
    #[cold]
    pub(crate) fn advance_guarded(
        &mut self,
        guarding: Box<Guarding>,
        step: Step,
        origin: Origin,
        link: &mut Link,
        turn: &mut Turn<'_>,
    ) {
        let (executing, work) = match step {
            Step::Read(executing, extent) => (executing, Work::Read(extent)),
            Step::Write(executing, extent) => (executing, Work::Write(extent)),
            Step::Compare(executing, extent) => (executing, Work::Compare(extent)),
            Step::CompareFirst(executing, extent) => (executing, Work::FusedCompare(extent, None)),
            Step::WriteSecond(executing, extent, first) => {
                self.join_halves(first, executing.cid());
                (executing, Work::FusedWrite(extent, first))
            }
            Step::Verify(executing, extent) => (executing, Work::Verify(extent)),
            Step::WriteZeroes(executing, extent) => (executing, Work::WriteZeroes(extent)),
            other => return self.advance(other, origin, link, turn),
        };
        if matches!(work, Work::Read(_)) {
            link.charge(guarding.transfer_bytes as usize);
        }
        let mut command = self.command(origin, executing, work, guarding.transfer_bytes, turn);
        command.guarding = Some(guarding);
        self.start(command, origin, link, turn);
    }
}

impl Command {
    /// The host's data become what the device gets; what only zeroes gets it from here.
    ///
    /// # Errors
    /// The protection information that the host sent is wrong.
    pub(crate) fn guard_outbound(&mut self, shared: &Shared) -> Result<(), Status> {
        let (Some(guarding), Some(buffer)) = (self.guarding.as_deref(), &mut self.buffer) else { return Ok(()) };
        let Guarding { rules, device_bytes, .. } = *guarding;
        let (data_bytes, length) = (guarding.data_bytes as usize, device_bytes as usize);
        let bytes = buffer.as_mut_slice();
        let place = match self.work {
            // The host's data stand behind the place of the device's.
            Work::Compare(_) | Work::FusedCompare(..) => bytes.get_mut(length..2 * length),
            _ => bytes.get_mut(..length),
        };
        let Some(blocks) = place else { return Err(Status::INTERNAL_ERROR) };
        let checked = match self.work {
            Work::Write(_) | Work::FusedWrite(..) if rules.acts() => {
                spread(blocks, data_bytes);
                rules.insert(blocks, data_bytes);
                Ok(())
            }
            Work::Write(_) | Work::FusedWrite(..) => rules.check(blocks, data_bytes),
            Work::WriteZeroes(_) => {
                rules.write_zeroes(blocks, data_bytes);
                Ok(())
            }
            // Both sides of the comparison are checked; this one goes nowhere.
            Work::Compare(_) | Work::FusedCompare(..) => {
                return rules.check(blocks, data_bytes).map_err(|bad| self.found(bad, "sent", shared));
            }
            _ => return Ok(()),
        };
        invert(blocks, data_bytes);
        checked.map_err(|bad| self.found(bad, "sent", shared))
    }

    /// What the device gave becomes what the host gets, or is compared with what it sent. What is kept wrong on the device is a
    /// `severe` error.
    pub(crate) fn guard_inbound(&mut self, severe: &mut bool, shared: &Shared) -> Status {
        let (Some(guarding), Some(buffer)) = (self.guarding.as_deref(), &mut self.buffer) else {
            return Status::SUCCESS;
        };
        let Guarding { rules, device_bytes, .. } = *guarding;
        let (data_bytes, length) = (guarding.data_bytes as usize, device_bytes as usize);
        if !matches!(self.work, Work::Read(_) | Work::Verify(_) | Work::Compare(_) | Work::FusedCompare(..)) {
            return Status::SUCCESS;
        }
        let Some((blocks, rest)) = buffer.as_mut_slice().split_at_mut_checked(length) else {
            return Status::INTERNAL_ERROR;
        };
        invert(blocks, data_bytes);
        if let Err(bad) = rules.check(blocks, data_bytes) {
            *severe = true;
            return self.found(bad, "read", shared);
        }
        match self.work {
            Work::Read(_) if rules.acts() => {
                strip(blocks, data_bytes);
            }
            // NVM Command Set, Compare: protection information is checked, and not compared.
            Work::Compare(_) | Work::FusedCompare(..) => {
                let same = rest.get(..length).is_some_and(|sent| same_data(blocks, sent, data_bytes));
                return if same { Status::SUCCESS } else { Status::COMPARE_FAILURE };
            }
            _ => {}
        }
        Status::SUCCESS
    }

    /// Tells of a block that is wrong.
    fn found(&mut self, Bad { block, mismatch }: Bad, what: &str, shared: &Shared) -> Status {
        let status = mismatch.status();
        if let Some(more) = shared.may_log(About::Device(self.work.device()), Kind::Protection) {
            let (nsid, work) = (self.nsid.0, &self.work);
            tracing::warn!(nsid, ?work, block, %status, "protection information {what}: {mismatch}{more}");
        }
        self.executing.failed_at(block);
        status
    }
}

impl Copy {
    /// A piece has been read into `bytes`: what its source says of protection information is checked, and what the destination
    /// says of it is done.
    ///
    /// # Errors
    /// It is not what was expected.
    pub(crate) fn guard(&self, bytes: &mut [u8], shared: &Shared) -> Result<(), Status> {
        let Some((read, write, data_bytes)) = self.rules() else { return Ok(()) };
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
            if let Some(more) = shared.may_log(About::Device(Some(self.target_device())), Kind::Protection) {
                let source = self.source();
                tracing::warn!(source, block, %status, "protection information copied: {mismatch}{more}");
            }
            status
        })
    }
}

/// Protection information as hosts know it becomes that of the device, and the other way round.
fn invert(blocks: &mut [u8], data_bytes: usize) {
    for block in blocks.chunks_exact_mut(data_bytes + INFORMATION_BYTES) {
        block[data_bytes..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}
