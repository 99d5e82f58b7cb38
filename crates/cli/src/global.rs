//! The options that every verb has.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;

/// The options that every verb has.
#[derive(Clone, Debug, clap::Args)]
pub struct Global {
    /// Format of the results
    #[arg(
        short = 'o',
        long = "output-format",
        visible_alias = "output",
        global = true,
        value_enum,
        default_value_t = OutputFormat::Normal,
        value_name = "FORMAT",
        help_heading = "Global options"
    )]
    pub format: OutputFormat,
    /// More details; twice also logs actions, three times everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    pub(crate) verbose: u8,
    /// Time limit of a command, in milliseconds
    #[arg(long, global = true, value_name = "MS", help_heading = "Global options")]
    timeout: Option<u64>,
    /// The directory of connected devices and of the control socket
    /// [default: $EBOF_RUNTIME_DIR; /run/ebof (root), $XDG_RUNTIME_DIR/ebof]
    #[arg(long, global = true, value_name = "DIRECTORY", help_heading = "Global options")]
    runtime_dir: Option<PathBuf>,
    /// Format of the logs on standard error; EBOF_LOG sets the level, as in EBOF_LOG=debug
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Human, value_name = "FORMAT", help_heading = "Global options")]
    pub(crate) log_format: LogFormat,
}

/// The format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Text
    #[value(alias = "tabular")]
    Normal,
    /// JSON with a versioned schema
    Json,
    /// The bytes that the controller returned
    Binary,
}

/// The format of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines of text
    Human,
    /// One JSON object to a line
    Json,
}

impl Global {
    /// Whether `-v` is given.
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// The time limit of a command, if the user has set one.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.map(Duration::from_millis)
    }

    /// The runtime directory, if an option names it.
    pub(crate) fn runtime_dir(&self) -> Option<&Path> {
        self.runtime_dir.as_deref()
    }

    /// The log level: `level`, or more with `-vv`.
    pub(crate) fn log_level(&self, level: LevelFilter) -> LevelFilter {
        level.max(match self.verbose {
            0 | 1 => LevelFilter::OFF,
            2 => LevelFilter::INFO,
            _ => LevelFilter::DEBUG,
        })
    }
}
