//! `cross-ctrl-reset-log`: resets of other controllers that a controller was asked for.

use ebof_nvme::Nsid;
use ebof_nvme::log::{GetLogPage, Lid, cross_controller_reset_lsp};

use crate::command;
use crate::device::Device;
use crate::output::cross_controller_reset::CrossControllerResetView;

/// Bytes of the page: a header and as many entries as there can be.
const BYTES: usize = 4096;

/// The Cross-Controller Reset log.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CrossCtrlResetLog {
    /// Remove the entries of resets that are over
    #[arg(short = 'R', long)]
    remove_completed: bool,
    /// Retain the asynchronous event that pointed to the log page
    #[arg(short = 'r', long)]
    rae: bool,
}

impl CrossCtrlResetLog {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<CrossControllerResetView> {
        let lsp = if self.remove_completed { cross_controller_reset_lsp::REMOVE_COMPLETED } else { 0 };
        let page = GetLogPage { lsp, retain_event: self.rae, ..command::log_page(Lid::CROSS_CONTROLLER_RESET) };
        let mut data = vec![0; BYTES];
        command::read_log(device, Nsid::ALL, page, &mut data)?;
        Ok(CrossControllerResetView::new(device.name(), data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::output::View as _;

    fn verb(line: &str) -> CrossCtrlResetLog {
        crate::verbs::line::parse_on(line)
    }

    #[test]
    fn the_log_is_shown() {
        let mut log = vec![0; BYTES];
        log[..24]
            .copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 2, 1, 7, 0, 0xff, 0xff, 0, 3, 3, 0, 255, 0, 0xff, 0xff, 1, 3]);
        let mut fake = Fake::controller([FakeAnswer::data(&log)]);
        let view = verb("x nvme0 -R").run_on(&mut fake).unwrap();
        assert_eq!(fake.last().sqe.cdw10.get() & 0xffff, 0x011e);
        insta::assert_snapshot!(view.text(true));
        insta::assert_snapshot!(view.json(false).to_text().unwrap());
        let mut fake = Fake::controller([FakeAnswer::data(&log)]);
        verb("x nvme0 --rae").run_on(&mut fake).unwrap();
        assert_eq!(fake.last().sqe.cdw10.get() & 0xffff, 0x801e);
    }
}
