//! A load generator's process: started in a process group of its own, its words kept up to a limit,
//! watched until it ends, and always ended.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Time between two checks of the process.
const LOOK: Duration = Duration::from_millis(20);
/// Time between two calls of the function that hears of progress.
const TICK: Duration = Duration::from_millis(250);
/// How long a process may take to end after SIGINT; then it is killed.
const END: Duration = Duration::from_secs(10);
/// How long a killed process is waited for: one that hangs in the kernel is left to it.
const GONE: Duration = Duration::from_secs(5);
/// Lines that are kept, and bytes of each.
const LINES_MAX: usize = 32;
const LINE_BYTES_MAX: usize = 1024;

/// What a process printed: its last lines, and apart from them the last line of its status, which
/// it prints again and again.
#[derive(Debug, Default)]
pub(super) struct Words {
    lines: VecDeque<String>,
    status: String,
}

impl Words {
    fn add(&mut self, line: &[u8], status: &str) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim();
        if line.starts_with(status) {
            line.clone_into(&mut self.status);
        } else if !line.is_empty() {
            if self.lines.len() == LINES_MAX {
                self.lines.pop_front();
            }
            self.lines.push_back(line.to_owned());
        }
    }

    /// The last line of its status.
    pub(super) fn status(&self) -> &str {
        &self.status
    }

    /// The other lines.
    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// By itself.
    Exited(ExitStatus),
    /// Because it was asked to; `None` if it is still there.
    Asked(Option<ExitStatus>),
    /// It took too long and was asked to end.
    Overdue,
}

impl Finish {
    /// Whether it ended without an error, as far as its status says.
    pub(super) fn is_success(self) -> bool {
        matches!(self, Self::Exited(status) if status.success())
    }

    /// `None` if its own words are to tell.
    pub(super) fn reason(self) -> Option<String> {
        match self {
            Self::Exited(status) => status.signal().map(|signal| format!("it was killed by signal {signal}")),
            Self::Asked(_) => None,
            Self::Overdue => Some("it did not end in time".to_owned()),
        }
    }
}

/// A running load generator.
pub(super) struct Generator {
    child: Child,
    words: Arc<Mutex<Words>>,
    readers: Vec<JoinHandle<()>>,
    is_stopped: bool,
}

impl Generator {
    /// Starts a program; lines of its output that begin with `status` are its status.
    pub(super) fn start(mut command: Command, status: &'static str) -> io::Result<Self> {
        // A terminal's Ctrl-C must not reach it: it is ended in order.
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        // Messages are parsed.
        let mut child = command.env("LC_ALL", "C").spawn()?;
        let words = Arc::new(Mutex::new(Words::default()));
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|output| Box::new(output) as Box<dyn Read + Send>),
            child.stderr.take().map(|output| Box::new(output) as Box<dyn Read + Send>),
        ];
        let mut generator = Self { child, words, readers: Vec::new(), is_stopped: false };
        for output in outputs.into_iter().flatten() {
            let words = Arc::clone(&generator.words);
            let thread = std::thread::Builder::new().name("ebof-words".to_owned());
            generator.readers.push(thread.spawn(move || keep(output, &words, status))?);
        }
        Ok(generator)
    }

    /// Waits for its end; `tick` gets its status about four times a second, and ends it by
    /// `Break`. It is also ended after `limit`.
    pub(super) fn wait(
        &mut self,
        limit: Option<Duration>,
        mut tick: impl FnMut(Duration, &str) -> ControlFlow<()>,
    ) -> io::Result<Finish> {
        let started = Instant::now();
        let mut ticked = started;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Finish::Exited(status));
            }
            if limit.is_some_and(|limit| started.elapsed() > limit) {
                self.end(Signal::INT, END)?;
                return Ok(Finish::Overdue);
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                let status = self.words.lock().unwrap_or_else(PoisonError::into_inner).status.clone();
                if tick(started.elapsed(), &status).is_break() {
                    return Ok(Finish::Asked(self.end(Signal::INT, END)?));
                }
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Asks the process group to end, and kills it if it does not.
    fn end(&mut self, signal: Signal, patience: Duration) -> io::Result<Option<ExitStatus>> {
        for (signal, patience) in [(signal, patience), (Signal::KILL, GONE)] {
            // It may have ended just now.
            let _gone = kill_process_group(Pid::from_child(&self.child), signal);
            let asked = Instant::now();
            while asked.elapsed() < patience {
                if let Some(status) = self.child.try_wait()? {
                    return Ok(Some(status));
                }
                std::thread::sleep(LOOK);
            }
        }
        Ok(None)
    }

    /// What it printed; called after its end.
    pub(super) fn words(mut self) -> Words {
        self.stop();
        for reader in std::mem::take(&mut self.readers) {
            // One that waits for a process in the kernel is left alone.
            if reader.is_finished() || matches!(self.child.try_wait(), Ok(Some(_))) {
                let _ended = reader.join();
            }
        }
        std::mem::take(&mut *self.words.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Also ends what it started and left behind, which could hold its output open.
    fn stop(&mut self) {
        if std::mem::replace(&mut self.is_stopped, true) {
            return;
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _end = self.end(Signal::KILL, GONE);
        }
        let _gone = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reads to the end, whatever is printed; keeps the last lines. A carriage return ends a line, too.
fn keep(mut output: Box<dyn Read + Send>, words: &Mutex<Words>, status: &str) {
    let mut line = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let read = match output.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        for &byte in &bytes[..read] {
            if byte == b'\n' || byte == b'\r' {
                words.lock().unwrap_or_else(PoisonError::into_inner).add(&line, status);
                line.clear();
            } else if line.len() < LINE_BYTES_MAX {
                line.push(byte);
            }
        }
    }
    words.lock().unwrap_or_else(PoisonError::into_inner).add(&line, status);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Generator {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Generator::start(command, "status ").unwrap()
    }

    #[test]
    fn lines_are_kept_up_to_a_limit_and_the_status_apart() {
        let script =
            "printf 'status 1\\rstatus 2\\r'; seq 100; head -c 100000 /dev/zero | tr '\\0' x; echo; echo no >&2";
        let mut generator = shell(script);
        assert!(generator.wait(None, |_, _| ControlFlow::Continue(())).unwrap().is_success());
        let words = generator.words();
        assert_eq!(words.status(), "status 2");
        assert_eq!(words.lines().count(), LINES_MAX);
        assert!(words.lines().any(|line| line == "no") && words.lines().any(|line| line == "100"));
        assert!(words.lines().all(|line| line.len() <= LINE_BYTES_MAX));
    }

    #[test]
    fn a_process_is_asked_to_end_and_its_last_words_are_heard() {
        let mut generator = shell("trap 'echo told; exit 3' INT; echo ready; while :; do sleep 0.01; done");
        let end = generator.wait(None, |_, _| ControlFlow::Break(())).unwrap();
        assert!(matches!(end, Finish::Asked(Some(status)) if status.code() == Some(3)), "{end:?}");
        assert!(generator.words().lines().any(|line| line == "told"));
        let mut slow = shell("sleep 100");
        assert_eq!(
            slow.wait(Some(Duration::from_millis(50)), |_, _| ControlFlow::Continue(())).unwrap(),
            Finish::Overdue
        );
    }

    #[test]
    fn what_a_process_leaves_behind_is_ended() {
        let mut generator = shell("sleep 100 & echo $!");
        assert!(generator.wait(None, |_, _| ControlFlow::Continue(())).unwrap().is_success());
        let started = Instant::now();
        let words = generator.words();
        assert!(started.elapsed() < Duration::from_secs(50));
        let pid = words.lines().next().unwrap().to_owned();
        // A signal takes a moment.
        let is_there = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        while is_there() {
            assert!(started.elapsed() < Duration::from_secs(50));
            std::thread::sleep(LOOK);
        }
    }
}
