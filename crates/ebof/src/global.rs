//! The options that every verb has, and the logs.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The options that every verb has.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Global {
    /// How results are printed
    #[arg(
        short = 'o',
        long = "output-format",
        visible_alias = "output",
        global = true,
        value_enum,
        default_value_t = Format::Normal,
        value_name = "FORMAT",
        help_heading = "Global options"
    )]
    pub(crate) format: Format,
    /// Say more; twice also logs what is done, three times everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    pub(crate) verbose: u8,
    /// How long a command may take, in milliseconds
    #[arg(long, global = true, value_name = "MS", help_heading = "Global options")]
    timeout: Option<u64>,
    /// How logs on standard error are written; EBOF_LOG says which, as in EBOF_LOG=debug
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Human, value_name = "FORMAT", help_heading = "Global options")]
    log_format: LogFormat,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people
    #[value(alias = "tabular")]
    Normal,
    /// JSON with a versioned schema
    Json,
    /// The bytes that the controller returned
    Binary,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Human,
    /// One JSON object to a line
    Json,
}

impl Global {
    /// Whether more than usual is to be said.
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// How long a command may take, where the user said so.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.map(Duration::from_millis)
    }

    /// Sends logs to standard error from now on, those of `level` and worse unless EBOF_LOG or `-vv` say otherwise. To
    /// be called once.
    pub(crate) fn start_logging(&self, level: LevelFilter) {
        start_logging(
            self.log_format,
            level.max(match self.verbose {
                0 | 1 => LevelFilter::OFF,
                2 => LevelFilter::INFO,
                _ => LevelFilter::DEBUG,
            }),
        );
    }
}

/// As [`Global::start_logging`], for those who have no command line.
pub(crate) fn start_logging(format: LogFormat, level: LevelFilter) {
    let filter = EnvFilter::builder().with_default_directive(level.into()).with_env_var("EBOF_LOG").from_env_lossy();
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Human => subscriber.with_ansi(colours).with_target(false).try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    };
    if let Err(error) = started {
        crate::output::say(&format!("logs cannot be written: {error}"));
    }
}
