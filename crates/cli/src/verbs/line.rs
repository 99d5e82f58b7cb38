//! Parses the arguments of a verb from a line of text, for tests.

use clap::{Args, Parser};

use crate::device::DeviceArgs;

#[derive(Parser)]
struct Line<T: Args> {
    #[command(flatten)]
    verb: T,
}

#[derive(Parser)]
struct DeviceLine<T: Args> {
    #[command(flatten)]
    _device: DeviceArgs,
    #[command(flatten)]
    verb: T,
}

/// The arguments in `line`, whose first word is the program.
pub(crate) fn try_parse<T: Args>(line: &str) -> Result<T, clap::Error> {
    Line::try_parse_from(line.split_whitespace()).map(|line| line.verb)
}

/// As [`try_parse`], for a valid line.
pub(crate) fn parse<T: Args>(line: &str) -> T {
    try_parse(line).unwrap()
}

/// The arguments beside DEVICE in `line`, whose first word is the program.
pub(crate) fn try_parse_on<T: Args>(line: &str) -> Result<T, clap::Error> {
    DeviceLine::try_parse_from(line.split_whitespace()).map(|line| line.verb)
}

/// As [`try_parse_on`], for a valid line.
pub(crate) fn parse_on<T: Args>(line: &str) -> T {
    try_parse_on(line).unwrap()
}
