//! A row of the table of verbs, and what the command line takes from it. The rows are in `verbs`.

use clap::{ArgMatches, Args, Command};
use tracing_subscriber::filter::LevelFilter;

use super::Program;
use crate::global::Global;
use crate::verbs::Outcome;

/// Where a verb stands in the help and in the manual, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    Serve,
    Connect,
    Inspect,
    Change,
    Namespaces,
    Reservations,
    Media,
    Io,
    AnyCommand,
    Measure,
    ThisMachine,
}

impl Group {
    /// Its heading in the help.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Serve => "Serve",
            Self::Connect => "Connect",
            Self::Inspect => "Inspect",
            Self::Change => "Change",
            Self::Namespaces => "Namespaces",
            Self::Reservations => "Reservations",
            Self::Media => "Media and firmware",
            Self::Io => "I/O",
            Self::AnyCommand => "Any command",
            Self::Measure => "Measure",
            Self::ThisMachine => "This machine",
        }
    }

    /// The section of the manual (docs/cli.md) that tells more.
    pub(crate) const fn section(self) -> &'static str {
        match self {
            Self::Namespaces => "Namespaces of a drive",
            Self::Media => "Media, firmware, security",
            other => other.title(),
        }
    }
}

/// One verb: all that the parser, the help, the man pages, the completions and the manual's list know about it.
pub(crate) struct Verb {
    pub(crate) name: &'static str,
    pub(crate) group: Group,
    /// Its line in the help.
    pub(crate) about: &'static str,
    takes: &'static dyn Takes,
    /// A whole command line.
    pub(crate) example: &'static str,
    letters: &'static [(&'static str, char)],
    /// What is logged where nobody says more.
    pub(crate) log_level: LevelFilter,
    /// Left out of the help and the manual.
    pub(crate) hidden: bool,
}

impl Verb {
    /// A verb without a text and an example yet.
    pub(crate) const fn new(group: Group, name: &'static str, takes: &'static dyn Takes) -> Self {
        let log_level = LevelFilter::WARN;
        Self { name, group, about: "", takes, example: "", letters: &[], log_level, hidden: false }
    }

    pub(crate) const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    pub(crate) const fn example(self, example: &'static str) -> Self {
        Self { example, ..self }
    }

    /// Letters of arguments that several verbs share, and that nvme-cli has by another letter in each: argument, letter.
    pub(crate) const fn letters(self, letters: &'static [(&'static str, char)]) -> Self {
        Self { letters, ..self }
    }

    pub(crate) const fn logs(self, log_level: LevelFilter) -> Self {
        Self { log_level, ..self }
    }

    pub(crate) const fn hidden(self) -> Self {
        Self { hidden: true, ..self }
    }

    /// Its part of the command line.
    pub(crate) fn command(&self) -> Command {
        let command = self.takes.describe(Command::new(self.name));
        let command = command.about(self.about).long_about(None).hide(self.hidden);
        let section = self.group.section();
        let command = command.after_help(format!("Example: {}\n\nManual: docs/cli.md, {section}", self.example));
        self.letters
            .iter()
            .fold(command, |command, &(argument, letter)| command.mut_arg(argument, |argument| argument.short(letter)))
    }

    /// What to run with the arguments that were given.
    ///
    /// # Errors
    /// As [`clap::FromArgMatches::from_arg_matches`].
    pub(super) fn read<'a>(&self, matches: ArgMatches, program: &'a Program) -> Result<Run<'a>, clap::Error> {
        self.takes.read(matches, program)
    }
}

/// A verb with its arguments.
pub(super) type Run<'a> = Box<dyn FnOnce(&Global) -> Outcome + 'a>;

/// What a verb takes, and what is called with it.
pub(crate) trait Takes: Sync {
    /// Adds the arguments.
    fn describe(&self, command: Command) -> Command;

    /// Reads them.
    fn read<'a>(&self, matches: ArgMatches, program: &'a Program) -> Result<Run<'a>, clap::Error>;
}

/// Arguments of type `T`, and the function for them.
pub(crate) struct Of<T>(pub(crate) fn(T, &Global) -> Outcome);

impl<T: Args + 'static> Takes for Of<T> {
    fn describe(&self, command: Command) -> Command {
        T::augment_args(command)
    }

    fn read<'a>(&self, mut matches: ArgMatches, _program: &'a Program) -> Result<Run<'a>, clap::Error> {
        let (args, run) = (T::from_arg_matches_mut(&mut matches)?, self.0);
        Ok(Box::new(move |global| run(args, global)))
    }
}

/// As [`Of`], for what is about the command line itself.
pub(crate) struct OfProgram<T>(pub(crate) fn(T, &Program) -> Outcome);

impl<T: Args + 'static> Takes for OfProgram<T> {
    fn describe(&self, command: Command) -> Command {
        T::augment_args(command)
    }

    fn read<'a>(&self, mut matches: ArgMatches, program: &'a Program) -> Result<Run<'a>, clap::Error> {
        let (args, run) = (T::from_arg_matches_mut(&mut matches)?, self.0);
        Ok(Box::new(move |_global| run(args, program)))
    }
}
