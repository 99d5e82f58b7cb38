//! `ana-log`: the states of ANA groups.

use ebof_nvme::Nsid;
use ebof_nvme::identify::field;
use ebof_nvme::log::{GetLogPage, Lid};

use crate::command;
use crate::device::Device;
use crate::failure::Failure;
use crate::output::ana::AnaView;

/// Bytes of the header (NVM Express Base, "Asymmetric Namespace Access log page").
const HEADER_BYTES: usize = 16;
/// Bytes of a group's descriptor without its namespaces.
const GROUP_BYTES: usize = 32;
/// Maximum size of the log that is read, whatever the controller announces.
const LOG_BYTES_MAX: usize = 1 << 20;
/// Return Groups Only, in Log Specific Parameter.
const GROUPS_ONLY: u8 = 1;

/// The Asymmetric Namespace Access log.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AnaLog {
    /// Only the groups, without their namespaces
    #[arg(short, long)]
    groups: bool,
}

impl AnaLog {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<AnaView> {
        let identify = command::identify_controller(device)?;
        if identify.cmic & field::cmic::ANA == 0 {
            let message = format!("{} reports no Asymmetric Namespace Access: bit 3 of cmic is 0", device.name());
            let advice =
                "each way to its namespaces is as good as the other; `ebof list-subsys` shows those of this machine";
            return Err(Failure::unsupported(message, advice).into());
        }
        let groups = usize::try_from(identify.nanagrpid.get()).unwrap_or(usize::MAX);
        let namespaces = usize::try_from(identify.namespaces_max()).unwrap_or(usize::MAX);
        let namespaces = if self.groups { 0 } else { namespaces.saturating_mul(4) };
        let bytes = groups.saturating_mul(GROUP_BYTES).saturating_add(namespaces).saturating_add(HEADER_BYTES);
        let mut data = vec![0; bytes.min(LOG_BYTES_MAX).next_multiple_of(4)];
        let page = GetLogPage { lsp: if self.groups { GROUPS_ONLY } else { 0 }, ..command::log_page(Lid::ANA) };
        command::read_log(device, Nsid::ALL, page, &mut data)?;
        AnaView::new(device.name(), data).map_err(|truncated| {
            let advice = "read all of it with `ebof get-log DEVICE --log-id 0x0c --log-len BYTES -o binary`";
            Failure::new("log-too-large", truncated, advice).into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::output::View as _;
    use ebof_nvme::identify::IdentifyController;
    use zerocopy::IntoBytes as _;

    fn verb(line: &str) -> AnaLog {
        crate::verbs::line::parse_on(line)
    }

    fn controller(cmic: u8) -> FakeAnswer {
        let data = IdentifyController { cmic, nanagrpid: 2.into(), nn: 8.into(), ..IdentifyController::default() };
        FakeAnswer::data(data.as_bytes())
    }

    /// Two groups, the first with namespaces 1 and 5.
    fn log() -> Vec<u8> {
        let mut log = [9_u64.to_le_bytes().as_slice(), &2_u16.to_le_bytes(), &[0; 6]].concat();
        for (group, nsids, state) in [(1_u32, [1_u32, 5].as_slice(), 1_u8), (2, &[], 3)] {
            log.extend(group.to_le_bytes());
            log.extend(u32::try_from(nsids.len()).unwrap().to_le_bytes());
            log.extend(7_u64.to_le_bytes());
            log.push(state);
            log.extend([0; 15]);
            nsids.iter().for_each(|nsid| log.extend(nsid.to_le_bytes()));
        }
        log
    }

    #[test]
    fn the_log_is_shown_as_nvme_cli_does() {
        let mut fake = Fake::controller([controller(8), FakeAnswer::data(&log())]);
        let view = verb("x nvme0").run_on(&mut fake).unwrap();
        insta::assert_snapshot!(view.text(false));
        insta::assert_snapshot!(view.json(false).to_text().unwrap());
        assert_eq!((fake.last().sqe.cdw10.get() & 0xff, fake.last().room), (0x0c, 16 + 2 * 32 + 8 * 4));
        verb("x nvme0 --groups")
            .run_on(&mut Fake::controller([controller(8), FakeAnswer::data(&log()[..16])]))
            .unwrap();
    }

    #[test]
    fn a_controller_without_the_log_is_reported() {
        let error = verb("x nvme0").run_on(&mut Fake::controller([controller(0)])).err().unwrap().to_string();
        assert!(error.contains("bit 3 of cmic is 0"), "{error}");
    }

    #[test]
    fn a_log_shorter_than_its_header_says_is_refused() {
        let mut endless = log();
        endless[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        let error =
            verb("x nvme0").run_on(&mut Fake::controller([controller(8), FakeAnswer::data(&endless)])).err().unwrap();
        assert!(error.to_string().contains("goes beyond"), "{error}");
    }
}
