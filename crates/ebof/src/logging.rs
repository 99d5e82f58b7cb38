//! The logs, on standard error.

use std::io::IsTerminal as _;

use ebof_cli::LogFormat;
use ebof_cli::output::say;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

/// Logs `level` and worse to standard error, unless EBOF_LOG sets other levels. Called once.
pub(crate) fn start(format: LogFormat, level: LevelFilter) {
    let filter = EnvFilter::builder().with_default_directive(level.into()).with_env_var("EBOF_LOG").from_env_lossy();
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Human => subscriber.with_ansi(colours).with_target(false).try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    if let Err(error) = started {
        say(&format!("logs cannot be written: {error}"));
    }
}
