//! A verb's arguments as they are read from a line of text, for tests.

use clap::{Args, Parser};

#[derive(Parser)]
struct Line<T: Args> {
    #[command(flatten)]
    verb: T,
}

/// The arguments of `line`, whose first word stands for the program.
pub(crate) fn try_parse<T: Args>(line: &str) -> Result<T, clap::Error> {
    Line::try_parse_from(line.split_whitespace()).map(|line| line.verb)
}

/// The same of a line that is right.
pub(crate) fn parse<T: Args>(line: &str) -> T {
    try_parse(line).unwrap()
}
