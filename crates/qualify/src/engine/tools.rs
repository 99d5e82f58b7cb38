//! `hdparm` and `dd`, as "NVMe over TCP" (2021) used them on block devices: programs that everybody
//! has, with figures that everybody knows. They tell a rate, and no latencies.

use std::path::Path;
use std::process::{Command, Stdio};

use ebof_bench::{Job, Mix, Report};

use super::{EngineError, LoadResult, report_of_rate};
use crate::document::Tool;

/// Bytes of what hdparm calls a MB.
const HDPARM_MB: f64 = 1_048_576.0;

impl Tool {
    /// The program.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::HdparmCached | Self::HdparmDisk => "hdparm",
            Self::Dd => "dd",
        }
    }

    /// What it does, as a job.
    #[must_use]
    pub fn job(self, size_bytes: Option<u64>) -> Job {
        let rw = if self == Self::Dd { Mix::Write } else { Mix::Read };
        Job { name: self.program().to_owned(), block_bytes: 1 << 20, depth: 1, threads: 1, size_bytes, ..Job::new(rw) }
    }

    fn command(self, device: &Path, bytes: u64) -> Vec<String> {
        let device = device.display().to_string();
        match self {
            Self::HdparmCached => vec!["hdparm".to_owned(), "-T".to_owned(), "--direct".to_owned(), device],
            Self::HdparmDisk => vec!["hdparm".to_owned(), "-t".to_owned(), "--direct".to_owned(), device],
            Self::Dd => {
                let words = ["dd", "if=/dev/zero", &format!("of={device}"), "ibs=1M", "obs=1M"].map(str::to_owned);
                let end = [format!("count={}", bytes >> 20), "conv=notrunc,fsync".to_owned()];
                words.into_iter().chain(end).collect()
            }
        }
    }

    /// Bytes and seconds, of what it printed.
    fn measured(self, text: &str) -> Option<(f64, f64)> {
        let line = |of: &str| text.lines().find(|line| line.contains(of));
        let number = |word: &str| word.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
        match self {
            // ` Timing O_DIRECT disk reads: 8026 MB in  3.00 seconds = 2674.93 MB/sec`
            Self::HdparmCached | Self::HdparmDisk => {
                let words: Vec<&str> = line(" MB in ")?.split(':').nth(1)?.split_whitespace().collect();
                let mb = number(words.first()?)?;
                // Of the time it prints two digits only, which are zeros for a small, fast device.
                let seconds = match words.get(6..8)? {
                    [rate, "MB/sec"] => mb / number(rate)?,
                    _ => number(words.get(3)?)?,
                };
                Some((mb * HDPARM_MB, seconds))
            }
            // `1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.808906 s, 1.3 GB/s`
            Self::Dd => {
                let line = line(" copied, ")?;
                let seconds = line.split(" copied, ").nth(1)?.split_whitespace().next()?;
                Some((number(line.split_whitespace().next()?)?, number(seconds)?))
            }
        }
    }
}

/// Runs a tool on a block device, of which it uses `job.size_bytes` at most.
///
/// # Errors
/// It is not installed, or failed, or said nothing that can be understood.
pub fn run(tool: Tool, device: &Path, job: &Job) -> Result<LoadResult, EngineError> {
    let words = tool.command(device, job.size_bytes.unwrap_or(0));
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(&words[0])
        .env("PATH", path)
        .env("LC_ALL", "C")
        .args(&words[1..])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                EngineError::Unsupported(format!("there is no {0}: apt install {0}", words[0]))
            }
            _ => EngineError::Run { program: words[0].clone(), error },
        })?;
    let said = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let Some((bytes, seconds)) = tool.measured(&said).filter(|_| output.status.success()) else {
        let said = said.split_whitespace().take(64).collect::<Vec<_>>().join(" ");
        let todo = "run the command by hand";
        return Err(EngineError::Failed { what: tool.program().to_owned(), tried: words.join(" "), said, todo });
    };
    Ok(LoadResult { reports: vec![report(job, device, bytes, seconds)], series: Vec::new(), command: words })
}

fn report(job: &Job, device: &Path, bytes: f64, seconds: f64) -> Report {
    let iops = bytes / f64::from(job.block_bytes) / seconds;
    // One after the other.
    let mean_us = 1e6 / iops.max(f64::MIN_POSITIVE);
    report_of_rate(device.display().to_string(), job, seconds, iops, mean_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_they_print_is_understood() {
        let hdparm = "\n/dev/nvme0n1:\n Timing O_DIRECT cached reads:   4278 MB in  2.00 seconds = 2140.39 MB/sec\n";
        assert_eq!(Tool::HdparmCached.measured(hdparm), Some((4278.0 * HDPARM_MB, 4278.0 / 2140.39)));
        let fast = "/dev/loop0:\n Timing O_DIRECT disk reads: 64 MB in  0.00 seconds = 14247.55 MB/sec";
        assert_eq!(Tool::HdparmDisk.measured(fast), Some((64.0 * HDPARM_MB, 64.0 / 14247.55)));
        let slow = "/dev/sda:\n Timing O_DIRECT disk reads:   2 MB in  4.00 seconds = 512.00 kB/sec";
        assert_eq!(Tool::HdparmDisk.measured(slow), Some((2.0 * HDPARM_MB, 4.0)));
        let dd =
            "1024+0 records in\n1024+0 records out\n1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.808906 s, 1.3 GB/s\n";
        assert_eq!(Tool::Dd.measured(dd), Some((1_073_741_824.0, 0.808906)));
        for nonsense in ["", " MB in ", "x:  MB in  2.00", " copied, ", "0 bytes copied, 0 s"] {
            assert_eq!((Tool::HdparmDisk.measured(nonsense), Tool::Dd.measured(nonsense)), (None, None), "{nonsense}");
        }
        assert!(Tool::Dd.job(None).rw.writes() && !Tool::HdparmDisk.job(None).rw.writes());
    }
}
