//! The program starts itself again: it stops as a signal has it, and takes its own place
//! ([0092](../../../../docs/adr/0092-systems-and-restarts.md)).
//!
//! Owns that it was asked for. What a stop does is `serve`'s.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

/// Whether the process is to start again when it has stopped.
static ASKED: AtomicBool = AtomicBool::new(false);

/// How it can start again.
static MEANS: AtomicU8 = AtomicU8::new(Means::Itself as u8);

/// How the process can start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Means {
    /// It takes its own place.
    Itself,
    /// It ends with [`STATUS`], and its supervisor starts it.
    Supervisor,
    /// It has given up its right to start a program, and nobody else does.
    Nobody,
}

/// The exit status that asks the supervisor for another start (`EX_TEMPFAIL` of sysexits.h).
pub(crate) const STATUS: u8 = 75;

/// In the environment of a start that is not the first.
const AGAIN: &str = "EBOF_STARTED_AGAIN";

/// The answer to whoever asks is sent in that time.
const ANSWER: Duration = Duration::from_millis(500);

/// Has the process stop in a moment, as SIGTERM does, and start again.
///
/// # Errors
/// There is no thread for it, or nothing that would start it.
pub(crate) fn ask(by: &str) -> Result<(), String> {
    if means() == Means::Nobody {
        return Err(
            "The target has given up its right to start a program (`--confine`), itself too, and no supervisor \
                    would: end it and start it by hand, or have systemd run it."
                .to_owned(),
        );
    }
    if ASKED.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    tracing::warn!(%by, "the target is started again");
    let stop = || {
        std::thread::sleep(ANSWER);
        // Of this process, which there is.
        let _sent = kill_process(getpid(), Signal::TERM);
    };
    let thread = std::thread::Builder::new().name("ebof-restart".to_owned()).spawn(stop);
    thread.map(drop).map_err(|error| {
        ASKED.store(false, Ordering::SeqCst);
        format!("There is no thread that could start the target again: {error}.")
    })
}

/// Whether it was asked for.
pub(crate) fn is_asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// Sets how it can start again: from the start on, before anybody asks.
pub(crate) fn by(means: Means) {
    MEANS.store(means as u8, Ordering::SeqCst);
}

/// How it can start again.
pub(crate) fn means() -> Means {
    let set = MEANS.load(Ordering::SeqCst);
    [Means::Supervisor, Means::Nobody].into_iter().find(|&means| means as u8 == set).unwrap_or(Means::Itself)
}

/// Whether this is not the first start: who began it may not read any more what it prints.
pub(crate) fn is_again() -> bool {
    std::env::var_os(AGAIN).is_some()
}

/// Takes the place of this process, as it was started. Only comes back with an error.
pub(crate) fn again() -> anyhow::Error {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_else(|| OsString::from("ebof"));
    let error = Command::new(&program).args(arguments(words)).env(AGAIN, "1").exec();
    anyhow::Error::new(error).context(format!("starting {} again", program.display()))
}

/// The arguments of the next start: what `--import` has brought is in the state directory, with all
/// that was changed since.
fn arguments(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut is_value = false;
    for word in words {
        let is_import = word == OsStr::new("--import");
        if !is_value && !is_import && !word.as_bytes().starts_with(b"--import=") {
            kept.push(word);
        }
        is_value = is_import && !is_value;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_imported_is_not_imported_again() {
        let of = |words: &str| {
            let kept = arguments(words.split(' ').map(OsString::from));
            kept.join(OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(of("serve --import a.toml --state d"), "serve --state d");
        assert_eq!(of("serve --state d --import=a.toml"), "serve --state d");
        assert_eq!(of("serve --config a.toml -o json"), "serve --config a.toml -o json");
    }
}
