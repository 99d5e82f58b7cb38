//! `device-self-test` and `self-test-log`.

use std::time::{Duration, Instant};

use ebof_initiator::AdminData;
use ebof_nvme::Nsid;
use ebof_nvme::log::{Lid, SelfTestCode, SelfTestLog, SelfTestResult};
use ebof_nvme::media::SelfTest;

use super::number;
use crate::command;
use crate::device::Device;
use crate::failure::Failure;
use crate::output::done::Done;
use crate::output::say;
use crate::output::self_test::self_test_view;
use crate::output::structure::StructureView;

/// Interval at which a test is polled with `--wait`.
const LOOK: Duration = Duration::from_secs(1);
/// Time limit without progress, in addition to 1 % of the duration that the controller announces.
const STALLED: Duration = Duration::from_secs(60);

/// Starts or aborts a self-test, or shows its progress.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DeviceSelfTest {
    /// The namespace; 0 is the controller without namespaces [default: all namespaces]
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>, default_value = "0xffffffff")]
    namespace_id: u32,
    /// The action: 0 show the state, 1 short, 2 extended, 3 refresh, 0xe vendor, 0xf abort
    #[arg(short, long, value_name = "CODE", value_parser = self_test_code, default_value = "0")]
    self_test_code: SelfTestCode,
    /// Wait for the end of the test; the exit code shows whether it passed
    #[arg(short, long)]
    wait: bool,
}

/// Parses a self-test code by name or number; 0 is none.
fn self_test_code(text: &str) -> Result<SelfTestCode, String> {
    match text {
        "show" => Ok(SelfTestCode(0)),
        "short" => Ok(SelfTestCode::SHORT),
        "extended" => Ok(SelfTestCode::EXTENDED),
        "refresh" => Ok(SelfTestCode::REFRESH),
        "vendor" => Ok(SelfTestCode::VENDOR),
        "abort" => Ok(SelfTestCode::ABORT),
        _ => match number::parse::<u8>(text) {
            Ok(code @ 0..=0x0f) => Ok(SelfTestCode(code)),
            _ => Err("want 0 show, 1 short, 2 extended, 3 refresh, 0xe vendor or 0xf abort".to_owned()),
        },
    }
}

impl DeviceSelfTest {
    pub(crate) fn run(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        self.run_on(device, LOOK)
    }

    fn run_on(&self, device: &mut dyn Device, look: Duration) -> anyhow::Result<Done> {
        let code = self.self_test_code;
        if code == SelfTestCode(0) {
            return self.state(device, look);
        }
        let earlier = read_log(device);
        // A device that does not test itself has no log of it, either: what was asked for is
        // refused.
        command::admin(device, &SelfTest { code }.encode(Nsid(self.namespace_id)), AdminData::None)?;
        let name = code.name().unwrap_or("unknown");
        let fact =
            |line: &str| Done::new("device-self-test", device.name(), line).with("code", code.0).with("name", name);
        if code == SelfTestCode::ABORT {
            return Ok(fact("Success, the test is aborted"));
        }
        if !self.wait {
            return Ok(fact(&format!("Success, {name} test started")));
        }
        let earlier = earlier?.results[0];
        self.wait(device, look)?;
        let log = read_log(device)?;
        if log.results[0] == earlier {
            let message = "the test ended and left no result".to_owned();
            return Err(Failure::new("self-test", message, "see the target's log").into());
        }
        let result = log.results[0].result();
        let ended = result.name().unwrap_or("an unknown result");
        if result != SelfTestResult::PASSED {
            let advice = format!("`ebof self-test-log {} -v` tells more", device.name());
            return Err(Failure::new("self-test", format!("the {name} test ended: {ended}"), advice).into());
        }
        let done = Done::new("device-self-test", device.name(), &format!("{name} test {ended}"));
        Ok(done.with("code", code.0).with("name", name).with("result", result.0))
    }

    /// The current state.
    fn state(&self, device: &mut dyn Device, look: Duration) -> anyhow::Result<Done> {
        let Some((code, percent)) = read_log(device)?.current() else {
            let done = Done::new("device-self-test", device.name(), "no self-test is running");
            return Ok(done.with("code", 0_u8).with("progress", None::<u8>));
        };
        if self.wait {
            self.wait(device, look)?;
            return Ok(Done::new("device-self-test", device.name(), "the test has ended").with("code", code.0));
        }
        let line = format!("{} test, {percent}% done", code.name().unwrap_or("unknown"));
        Ok(Done::new("device-self-test", device.name(), &line).with("code", code.0).with("progress", percent))
    }

    /// Waits for the end, and reports the progress.
    fn wait(&self, device: &mut dyn Device, look: Duration) -> anyhow::Result<()> {
        let announced = Duration::from_secs(u64::from(command::identify_controller(device)?.edstt.get()) * 60);
        let limit = STALLED + announced / 100;
        let mut seen = (None, Instant::now());
        loop {
            let Some((_, percent)) = read_log(device)?.current() else { return Ok(()) };
            if seen.0 != Some(percent) {
                say(&format!("self-test: {percent}%"));
                seen = (Some(percent), Instant::now());
            }
            if seen.1.elapsed() > limit {
                let message = format!("the self-test has made no progress for {} s", limit.as_secs());
                let advice = format!("`ebof device-self-test {} -s abort` ends it", device.name());
                return Err(Failure::new("self-test", message, advice).into());
            }
            std::thread::sleep(look);
        }
    }
}

fn read_log(device: &mut dyn Device) -> anyhow::Result<Box<SelfTestLog>> {
    command::log(device, Nsid::ALL, command::log_page(Lid::DEVICE_SELF_TEST))
}

/// The Device Self-test log.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SelfTestLogVerb {
    /// Number of results, at most 20
    #[arg(short = 'e', long, value_name = "RESULTS", value_parser = number::parse::<u8>, default_value = "20")]
    dst_entries: u8,
}

impl SelfTestLogVerb {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<StructureView<SelfTestLog>> {
        let data = read_log(device)?;
        let results = usize::from(self.dst_entries).min(SelfTestLog::RESULTS_MAX);
        Ok(self_test_view(device.name(), data, results))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::output::View as _;
    use crate::verbs::line;
    use ebof_nvme::log::SelfTestEntry;
    use zerocopy::IntoBytes as _;

    fn parse(line: &str) -> DeviceSelfTest {
        line::parse_on(line)
    }

    fn log(percent: Option<u8>, result: Option<SelfTestResult>) -> FakeAnswer {
        let mut log = SelfTestLog::new();
        log.set_current(percent.map(|percent| (SelfTestCode::SHORT, percent)));
        if let Some(result) = result {
            log.results[0] = SelfTestEntry::new(SelfTestCode::SHORT, result, 5);
        }
        FakeAnswer::data(log.as_bytes())
    }

    #[test]
    fn a_test_is_started_and_waited_for() {
        let answers = |result| {
            [
                log(None, None),
                FakeAnswer::ok(),
                FakeAnswer::ok(),
                log(Some(10), None),
                log(None, Some(result)),
                log(None, Some(result)),
            ]
        };
        let mut fake = Fake::controller(answers(SelfTestResult::PASSED));
        let view = parse("x nvme0 -s 1 --wait").run_on(&mut fake, Duration::ZERO).unwrap();
        assert_eq!(view.text(false), "device-self-test: short test passed\n");
        let start = &fake.asked[1].sqe;
        assert_eq!((start.opcode, start.nsid(), start.cdw10.get()), (0x14, Nsid::ALL, 1));

        let mut fake = Fake::controller(answers(SelfTestResult::FAILED_SEGMENT));
        let error = parse("x nvme0 -s short -w").run_on(&mut fake, Duration::ZERO).err().unwrap().to_string();
        assert!(error.starts_with("the short test ended: failed") && error.contains("self-test-log nvme0"), "{error}");
    }

    #[test]
    fn without_a_code_the_log_is_shown() {
        let state =
            |answer| parse("x nvme0").run_on(&mut Fake::controller([answer]), Duration::ZERO).unwrap().text(false);
        assert_eq!(state(log(None, None)), "device-self-test: no self-test is running\n");
        assert_eq!(state(log(Some(42), None)), "device-self-test: short test, 42% done\n");
        assert!(line::try_parse_on::<DeviceSelfTest>("x nvme0 -s 0x10").is_err());
    }
}
