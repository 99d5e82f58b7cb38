//! A row of the table of verbs. The rows are in `verbs`.

use std::process::ExitCode;

use clap::{ArgMatches, Args, Command};
use tracing::level_filters::LevelFilter;

use crate::global::Global;
use crate::program::Program;

/// The groups of verbs in the help and in the manual, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// A target and its configuration.
    Serve,
    /// Discovery and connections.
    Connect,
    /// Reading from a controller, without changing anything.
    Inspect,
    /// Changes of a controller.
    Change,
    /// Namespaces of drives whose hosts manage them.
    Namespaces,
    /// Reservations.
    Reservations,
    /// Media, firmware, security protocols.
    Media,
    /// I/O commands.
    Io,
    /// Commands by their dwords.
    AnyCommand,
    /// Loads and their measurement.
    Measure,
    /// This machine and the program itself.
    ThisMachine,
}

impl Group {
    /// Its heading in the help.
    pub const fn title(self) -> &'static str {
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

    /// The section of the manual (docs/cli.md).
    pub const fn section(self) -> &'static str {
        match self {
            Self::Namespaces => "Namespaces of a drive",
            Self::Media => "Media, firmware, security",
            other => other.title(),
        }
    }
}

/// A verb: the source of parser, help, man pages, completions and the manual's list.
pub struct Verb {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its group.
    pub group: Group,
    /// Its line in the help.
    pub about: &'static str,
    takes: &'static dyn Takes,
    /// An example, as a complete command line.
    pub example: &'static str,
    letters: &'static [(&'static str, char)],
    /// Other names that it is known by.
    aliases: &'static [&'static str],
    /// The default log level.
    pub(crate) log_level: LevelFilter,
}

impl Verb {
    /// A verb; its line in the help and its example are added by [`Self::about`] and
    /// [`Self::example`].
    pub const fn new(group: Group, name: &'static str, takes: &'static dyn Takes) -> Self {
        let log_level = LevelFilter::WARN;
        Self { name, group, about: "", takes, example: "", letters: &[], aliases: &[], log_level }
    }

    /// Sets its line in the help.
    pub const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// Sets its example, a complete command line.
    pub const fn example(self, example: &'static str) -> Self {
        Self { example, ..self }
    }

    /// Sets short options of arguments that several verbs share, but with different letters in
    /// nvme-cli: argument, letter.
    pub(crate) const fn letters(self, letters: &'static [(&'static str, char)]) -> Self {
        Self { letters, ..self }
    }

    /// Sets names that earlier releases of nvme-cli had for it.
    pub(crate) const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// Sets the default log level, which is warnings otherwise.
    pub const fn logs(self, log_level: LevelFilter) -> Self {
        Self { log_level, ..self }
    }

    /// Its part of the command line.
    pub(crate) fn command(&self) -> Command {
        let command = self.takes.describe(Command::new(self.name));
        let command = command.about(self.about).long_about(None).visible_aliases(self.aliases);
        let command = command.after_help(format!(
            "Example: {}\n\nManual: `ebof man {}`, `ebof man ebof-manual`: {}",
            self.example,
            self.name,
            self.group.section()
        ));
        self.letters
            .iter()
            .fold(command, |command, &(argument, letter)| command.mut_arg(argument, |argument| argument.short(letter)))
    }

    /// Parses its arguments; the result runs it.
    ///
    /// # Errors
    /// As [`clap::FromArgMatches::from_arg_matches`].
    pub(crate) fn read<'a>(&self, matches: ArgMatches, program: &'a Program) -> Result<Run<'a>, clap::Error> {
        self.takes.read(matches, program)
    }
}

/// The result of a verb: its exit code, or an error.
pub type Outcome = anyhow::Result<ExitCode>;

/// A verb with its arguments.
pub type Run<'a> = Box<dyn FnOnce(&Global) -> Outcome + 'a>;

/// The arguments of a verb, and the function that runs it.
pub trait Takes: Sync {
    /// Adds the arguments.
    fn describe(&self, command: Command) -> Command;

    /// Reads them.
    fn read<'a>(&self, matches: ArgMatches, program: &'a Program) -> Result<Run<'a>, clap::Error>;
}

/// Arguments of type `T`, and the function for them.
pub struct Of<T>(pub fn(T, &Global) -> Outcome);

impl<T: Args + 'static> Takes for Of<T> {
    fn describe(&self, command: Command) -> Command {
        T::augment_args(command)
    }

    fn read<'a>(&self, mut matches: ArgMatches, _program: &'a Program) -> Result<Run<'a>, clap::Error> {
        let args = T::from_arg_matches_mut(&mut matches)?;
        let run = self.0;
        Ok(Box::new(move |global| run(args, global)))
    }
}

/// As [`Of`], for verbs about the command line itself.
pub(crate) struct OfProgram<T>(pub(crate) fn(T, &Program) -> Outcome);

impl<T: Args + 'static> Takes for OfProgram<T> {
    fn describe(&self, command: Command) -> Command {
        T::augment_args(command)
    }

    fn read<'a>(&self, mut matches: ArgMatches, program: &'a Program) -> Result<Run<'a>, clap::Error> {
        let args = T::from_arg_matches_mut(&mut matches)?;
        let run = self.0;
        Ok(Box::new(move |_global| run(args, program)))
    }
}
