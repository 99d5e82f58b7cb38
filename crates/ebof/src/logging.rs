//! The logs: on standard error, or in the journal where that leads there; an attach daemon's in a
//! file that has a maximum.

mod bounded;
mod journal;

use std::io::IsTerminal as _;
use std::path::Path;

use ebof_cli::LogFormat;
use ebof_cli::output::say;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use bounded::BoundedLog;
use journal::Journal;

/// Logs `level` and worse to standard error, unless EBOF_LOG sets other levels. Called once.
pub(crate) fn start(format: LogFormat, level: LevelFilter) {
    let filter = EnvFilter::builder().with_default_directive(level.into()).with_env_var("EBOF_LOG").from_env_lossy();
    // Whoever asks for a format gets it.
    if matches!(format, LogFormat::Human)
        && journal::is_on_standard_error()
        && let Ok(journal) = Journal::at(Path::new(journal::SOCKET))
    {
        let started = tracing_subscriber::registry().with(journal.with_filter(filter)).try_init();
        return report_failure(started);
    }
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Human => subscriber.with_ansi(colours).with_target(false).try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    report_failure(started);
}

/// Logs information and worse to the log file of the attach daemon of the instance at `directory`,
/// unless EBOF_LOG sets other levels. Called once.
pub(crate) fn start_of_daemon(directory: &Path) {
    let level = LevelFilter::INFO;
    let filter = EnvFilter::builder().with_default_directive(level.into()).with_env_var("EBOF_LOG").from_env_lossy();
    match BoundedLog::open(&ebof_attach::state::log(directory)) {
        Ok(log) => {
            let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(log);
            report_failure(subscriber.with_ansi(false).with_target(false).try_init());
        }
        Err(error) => {
            start(LogFormat::Human, level);
            tracing::warn!(%error, "the log file has no maximum");
        }
    }
}

fn report_failure<E: std::fmt::Display>(started: Result<(), E>) {
    if let Err(error) = started {
        say(&format!("logs cannot be written: {error}"));
    }
}
