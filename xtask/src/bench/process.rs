//! Measured processes: started on their processor and with their priority, sampled for CPU time,
//! and always stopped.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use super::load::{Schedule, Shared};

/// Time limit of a process after SIGTERM; then it is killed. tgtd does not end as long as it has
/// targets.
const END: Duration = Duration::from_secs(3);

/// A running process and its children. Dropping it ends the process group.
pub(crate) struct Process {
    child: Child,
    name: String,
    /// Standard output and standard error.
    output: [File; 2],
}

impl Process {
    /// Starts `command` with `schedule`, on these processors if it is pinned.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(command: &[OsString], schedule: Schedule, processors: &[usize]) -> Result<Self> {
        let name = command.first().context("an empty command")?.to_string_lossy().into_owned();
        let words = [prefix(schedule, processors), command.to_vec()].concat();
        let output = [temporary()?, temporary()?];
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(output[0].try_clone()?)
            .stderr(output[1].try_clone()?)
            // A terminal's Ctrl-C must not reach it: this program stops the processes in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Self { child, name, output })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Its standard output so far.
    pub(crate) fn printed(&self) -> String {
        text(&self.output[0])
    }

    /// The last lines of its output, as the reason of a failure.
    pub(crate) fn last_output(&self) -> String {
        let mut words = text(&self.output[0]) + "\n" + &text(&self.output[1]);
        words.truncate(words.trim_end().len());
        let last: Vec<&str> = words.lines().rev().take(4).collect();
        format!("{}: {}", self.name, last.into_iter().rev().collect::<Vec<_>>().join(" | "))
    }

    /// Waits until something listens on `port`.
    ///
    /// # Errors
    /// It ended before, or took too long.
    pub(crate) fn wait_listening(&mut self, port: u16, interrupted: &dyn Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !listens(&fs::read_to_string("/proc/net/tcp").context("looking for listeners")?, port) {
            if self.ended()?.is_some() || Instant::now() > deadline || interrupted() {
                bail!("it does not listen: {}", self.last_output());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        let _gone = kill_process_group(group, Signal::TERM);
        let deadline = Instant::now() + END;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        // Also ends processes that it started and left running.
        let _gone = kill_process_group(group, Signal::KILL);
        let _status = self.child.wait();
    }
}

/// A file without a name.
fn temporary() -> Result<File> {
    tempfile::tempfile().context("a temporary file")
}

/// The content of a file, without moving the offset that is shared with the writing process.
fn text(file: &File) -> String {
    let length = file.metadata().map_or(0, |metadata| usize::try_from(metadata.len()).unwrap_or(0));
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

/// The programs that set processor and priority of a command; each executes what follows.
fn prefix(schedule: Schedule, processors: &[usize]) -> Vec<OsString> {
    let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
    let share = || if runs("nice -n -20 true") { words("nice -n -20") } else { Vec::new() };
    let list = processors.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let pinned = words(&format!("taskset -c {list}"));
    match schedule {
        Schedule::Pinned if is_real_time() => [words("chrt -r 1"), pinned].concat(),
        Schedule::Pinned | Schedule::PinnedShare => [share(), pinned].concat(),
        Schedule::Free => share(),
        Schedule::Shared(Shared { ends: Some(_), .. }) => pinned,
        Schedule::Plain | Schedule::Shared(_) => Vec::new(),
    }
}

/// Starts the programs that compute beside what is measured.
///
/// # Errors
/// One cannot be started.
pub(super) fn start_computing(schedule: Schedule) -> Result<Vec<Process>> {
    let Schedule::Shared(Shared { ends, programs, nice }) = schedule else { return Ok(Vec::new()) };
    let command = |at: usize| {
        let mut command: Vec<OsString> = ["nice", "-n", &nice.to_string()].map(OsString::from).to_vec();
        if let Some(ends) = ends {
            command.extend(["taskset", "-c", &ends[at % 2].to_string()].map(OsString::from));
        }
        command.extend(["sh", "-c", "while :; do :; done"].map(OsString::from));
        command
    };
    (0..programs).map(|at| Process::start(&command(at), Schedule::Plain, &[])).collect()
}

static REAL_TIME: OnceLock<bool> = OnceLock::new();

/// Whether pinned processes have real-time priority. Valid after [`raise_own_priority`].
pub(crate) fn is_real_time() -> bool {
    REAL_TIME.get().copied().unwrap_or(false)
}

/// Gives this process a higher priority than those that it measures, so that it samples them in
/// time; it sleeps nearly always. Real-time priorities are used if they are `wanted` and permitted.
/// Must be called once, before anything is measured.
pub(crate) fn raise_own_priority(wanted: bool) {
    let allowed = wanted && runs(&format!("chrt -r -p 2 {}", std::process::id()));
    let _called_twice = REAL_TIME.set(allowed);
    if !allowed {
        let _slower_only = runs(&format!("renice -n -20 -p {}", std::process::id()));
    }
}

/// What a command begins with that runs before others, where that is permitted. Its threads take
/// turns.
pub(crate) fn real_time_prefix() -> &'static [&'static str] {
    if runs("chrt -r 1 true") { &["chrt", "-r", "1"] } else { &[] }
}

fn runs(command: &str) -> bool {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    let ran =
        Command::new(program).args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    ran.is_ok_and(|status| status.success())
}

/// Whether /proc/net/tcp has a listener on `port`: state 0A.
fn listens(table: &str, port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().is_some_and(|local| local.ends_with(&suffix)) && fields.nth(1) == Some("0A")
    })
}

/// CPU time of all current threads of a process, in nanoseconds; `None` once it has ended.
pub(crate) fn processor_ns(pid: u32) -> Option<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        // The time of ended threads is lost, but the host's threads live as long as the load.
        if let Ok(text) = fs::read_to_string(task.path().join("schedstat")) {
            sum += text.split_whitespace().next()?.parse::<u64>().ok()?;
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_process_is_killed_on_drop_and_reports_its_failure() {
        let sleeping = Process::start(&words("sleep 100"), Schedule::Plain, &[0]).unwrap();
        let pid = sleeping.id();
        assert!(processor_ns(pid).is_some());
        drop(sleeping);
        assert_eq!(processor_ns(pid), None);
        let mut failing = Process::start(&words("ls /nonexistent-file"), Schedule::Plain, &[0]).unwrap();
        while failing.ended().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(failing.last_output().contains("nonexistent-file"));
        assert!(failing.wait_listening(1, &|| false).is_err());
        assert!(Process::start(&words("/nonexistent-program"), Schedule::Plain, &[0]).is_err());
    }

    #[test]
    fn a_listener_is_one_in_state_0a() {
        let table = "sl local rem st\n 0: 0100007F:1144 00000000:0000 0A 0\n 1: 0100007F:1145 0100007F:1144 01 0\n";
        assert!(listens(table, 0x1144));
        assert!(!listens(table, 0x1145) && !listens(table, 0x114));
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(listens(&fs::read_to_string("/proc/net/tcp").unwrap(), port));
    }
}
