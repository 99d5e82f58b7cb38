//! The options that every verb has.

use std::time::Duration;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;

/// The options that every verb has.
#[derive(Clone, Debug, clap::Args)]
pub struct Global {
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
    pub format: Format,
    /// Say more; twice also logs what is done, three times everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    pub(crate) verbose: u8,
    /// How long a command may take, in milliseconds
    #[arg(long, global = true, value_name = "MS", help_heading = "Global options")]
    timeout: Option<u64>,
    /// How logs on standard error are written; EBOF_LOG says which, as in EBOF_LOG=debug
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Human, value_name = "FORMAT", help_heading = "Global options")]
    pub(crate) log_format: LogFormat,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
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
pub enum LogFormat {
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

    /// What is logged: `level` and worse, unless `-vv` says more.
    pub(crate) fn log_level(&self, level: LevelFilter) -> LevelFilter {
        level.max(match self.verbose {
            0 | 1 => LevelFilter::OFF,
            2 => LevelFilter::INFO,
            _ => LevelFilter::DEBUG,
        })
    }
}
