//! The command line: parser, help, man pages and completions are built from the table of verbs
//! (`verbs`), whose rows are in `program/verb.rs`. Runs a verb and reports its result; what a verb
//! does is in `verbs`.

mod directory;
mod letters;
mod tips;
pub(crate) mod verb;

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use ebof_manage::written_keys::without_keys;
use tracing::level_filters::LevelFilter;

use crate::device::dry_run::NotSent;
use crate::failure::{self, Failure};
use crate::global::{Global, LogFormat, OutputFormat};
use crate::output::{print, say, show};

use verb::{Run, Verb};

/// Drives over NVMe/TCP, served and attached from user space.
#[derive(Debug, Parser)]
#[command(name = "ebof", version, disable_help_subcommand = true, max_term_width = 100)]
#[command(arg_required_else_help = true, subcommand_required = true)]
struct Top {
    #[command(flatten)]
    global: Global,
}

/// The verbs whose examples are in the main help.
const SHOWN: [&str; 6] = ["discover", "connect", "list", "id-ctrl", "id-ns", "disconnect"];

const MORE: &str = "\
DEVICE is a connected device (nvme0, nvme0n1) or a URI, which needs no connection.
`ebof VERB --help` tells more; `ebof man` has the manual (`ebof man ebof-manual`, `ebof-json`, ...).";

/// The program: its verbs, by groups.
pub struct Program {
    verbs: Vec<&'static Verb>,
}

/// A parsed command line.
struct Parsed<'a> {
    global: Global,
    verb: &'static Verb,
    run: Run<'a>,
}

impl Program {
    /// A program with these verbs.
    pub(crate) fn new(verbs: impl Iterator<Item = &'static Verb>) -> Self {
        let mut verbs: Vec<&'static Verb> = verbs.collect();
        verbs.sort_by_key(|verb| verb.group);
        Self { verbs }
    }

    /// Runs the command line `args`, whose first word is the program. After parsing, calls
    /// `start_logging` with the format of the logs and the default log level.
    pub fn run(&self, args: &[OsString], start_logging: impl FnOnce(LogFormat, LevelFilter)) -> ExitCode {
        if args.len() <= 1 {
            // As nvme-cli: programs ask in this way whether it is installed, and want status 0.
            return self.asked(&["-h"]);
        }
        let Parsed { global, verb, run } = match self.parse(args) {
            Ok(parsed) => parsed,
            Err(mut error) => {
                letters::hint(&mut error, args);
                tips::add(&mut error, args);
                return refuse(&error, args);
            }
        };
        start_logging(global.log_format, global.log_level(verb.log_level));
        if let Some(path) = global.runtime_dir() {
            ebof_state::set_runtime_directory(path.to_owned());
        }
        ebof_state::runtime_directory_warning().iter().for_each(|warning| say(warning));
        directory::warning(args).into_iter().for_each(say);
        match run(&global) {
            Ok(code) => code,
            Err(error) => match error.downcast::<NotSent>() {
                Ok(shown) => {
                    say("dry run: nothing was sent");
                    show(&global, &shown).map_or_else(|error| fail(&error, global.format), |()| ExitCode::SUCCESS)
                }
                Err(error) => fail(&error, global.format),
            },
        }
    }

    /// Prints the help or the version that a command line requests.
    pub(crate) fn asked(&self, words: &[&str]) -> ExitCode {
        let args: Vec<OsString> = std::iter::once("ebof").chain(words.iter().copied()).map(OsString::from).collect();
        self.parse(&args).err().map_or(ExitCode::SUCCESS, |error| refuse(&error, &args))
    }

    /// Parses a command line with all its rules, without running it.
    ///
    /// # Errors
    /// It is invalid, or asks for the help.
    pub fn matches(&self, args: &[OsString]) -> Result<clap::ArgMatches, clap::Error> {
        self.command().try_get_matches_from(directory::named(args))
    }

    fn parse(&self, args: &[OsString]) -> Result<Parsed<'_>, clap::Error> {
        let mut command = self.described();
        let mut matches = command.try_get_matches_from_mut(directory::named(args))?;
        let formatted = |error: clap::Error, command: &mut clap::Command| error.format(command);
        let top = Top::from_arg_matches_mut(&mut matches).map_err(|error| formatted(error, &mut command))?;
        let (name, matches) = matches.remove_subcommand().expect("the command line requires one");
        let verb = self.verbs.iter().copied().find(|verb| verb.name == name).expect("the names are the table's");
        let run = verb.read(matches, self).map_err(|error| formatted(error, &mut command))?;
        Ok(Parsed { global: top.global, verb, run })
    }

    /// The command line with all verbs.
    pub fn command(&self) -> clap::Command {
        letters::add_timeout(Top::command().subcommands(self.verbs.iter().map(|verb| verb.command())))
    }

    /// The command line with its grouped help.
    fn described(&self) -> clap::Command {
        let groups = self.grouped();
        let examples = self.examples();
        let template = format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\nOptions:\n{{options}}\n\n{examples}\n{MORE}\n"
        );
        self.command().help_template(template)
    }

    /// The lines of the help: the verbs in their groups.
    fn grouped(&self) -> String {
        let mut text = String::new();
        for group in self.verbs.chunk_by(|one, next| one.group == next.group) {
            for (index, verb) in group.iter().enumerate() {
                if index == 0 {
                    let _infallible = writeln!(text, "{}:", verb.group.title());
                }
                let _infallible = writeln!(text, "  {:<20} {}", verb.name, verb.about);
            }
            text.push('\n');
        }
        text.trim_end().to_owned() + "\n"
    }

    fn examples(&self) -> String {
        let mut text = "Examples:\n".to_owned();
        for name in SHOWN {
            for verb in self.verbs().filter(|verb| verb.name == name) {
                let _infallible = writeln!(text, "  {}", verb.example);
            }
        }
        text
    }

    /// Its verbs.
    pub fn verbs(&self) -> impl Iterator<Item = &'static Verb> {
        self.verbs.iter().copied()
    }
}

/// Prints help and version to standard output. Everything else is an error of the command line,
/// with exit code 2.
fn refuse(error: &clap::Error, args: &[OsString]) -> ExitCode {
    if !error.use_stderr() {
        // The reader of a help text may leave early.
        let _printed = error.print();
        return ExitCode::SUCCESS;
    }
    if wants_json(args) {
        let text = error.to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        let advice = letters::hinted(error).unwrap_or_else(|| "see `ebof VERB --help`".to_owned());
        let _code = fail(&Failure::usage(message, advice).into(), OutputFormat::Json);
    } else {
        match without_keys(&error.to_string()) {
            Cow::Owned(shown) => say(shown.trim_end()),
            Cow::Borrowed(_) => drop(error.print()),
        }
    }
    ExitCode::from(2)
}

/// Whether an invalid command line contains `-o json`.
fn wants_json(args: &[OsString]) -> bool {
    let mut words = args.iter().filter_map(|word| word.to_str()).peekable();
    while let Some(word) = words.next() {
        let value = match word {
            "-o" | "--output-format" | "--output" => words.peek().copied(),
            _ => ["--output-format=", "--output=", "-o=", "-o"].iter().find_map(|start| word.strip_prefix(start)),
        };
        if value == Some("json") {
            return true;
        }
    }
    false
}

/// Prints an error: as JSON to standard output, as text to standard error. Gives the status of the
/// program.
pub fn fail(error: &anyhow::Error, format: OutputFormat) -> ExitCode {
    if failure::is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let told = match format {
        OutputFormat::Json => {
            failure::json(error).to_text().map_err(Into::into).and_then(|text| print(text.as_bytes()))
        }
        OutputFormat::Normal | OutputFormat::Binary => Err(anyhow::anyhow!("for people")),
    };
    if told.is_err() {
        // Diagnostics have prefixes of their own.
        let prefix = if error.is::<ebof_manage::Diagnostics>() { "" } else { "error: " };
        say(&format!("{prefix}{}", failure::text(error)));
    }
    // As clap does, so that scripts can distinguish invalid command lines from failures.
    if failure::is_usage(error) { ExitCode::from(2) } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    mod nvme_cli;

    use super::*;
    use crate::verbs::program_with;

    #[test]
    fn the_command_line_is_consistent() {
        program_with(&[]).described().debug_assert();
    }

    #[test]
    fn no_verb_has_an_argument_with_the_name_of_a_global_one() {
        // clap would hand the verb's value to the global option, or the other way round, and panic.
        let command = program_with(&[]).command();
        let globals: Vec<_> = command.get_arguments().filter(|argument| argument.is_global_set()).collect();
        assert!(globals.len() > 2);
        for verb in command.get_subcommands() {
            for argument in verb.get_arguments() {
                // A copy of the global one is itself.
                let own = !argument.is_global_set();
                let taken = own && globals.iter().any(|global| global.get_id() == argument.get_id());
                assert!(!taken, "{}: {}", verb.get_name(), argument.get_id());
            }
        }
    }

    #[test]
    fn every_verb_has_a_text_and_an_example_of_its_own() {
        let program = program_with(&[]);
        let mut names: Vec<&str> = program.verbs.iter().map(|verb| verb.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for verb in &program.verbs {
            assert!(!verb.about.is_empty(), "{}", verb.name);
            let words: Vec<OsString> = verb.example.split(' ').map(OsString::from).collect();
            let parsed = program.parse(&words);
            let named = parsed.as_ref().is_ok_and(|parsed| parsed.verb.name == verb.name);
            assert!(named, "{}: {:?}", verb.example, parsed.err());
        }
        assert!(SHOWN.iter().all(|name| names.contains(name)));
    }

    #[test]
    fn no_verb_has_the_name_of_the_daemon() {
        assert!(program_with(&[]).command().find_subcommand(ebof_attach::daemon::ARGUMENT).is_none());
    }

    #[test]
    fn every_spelling_of_the_json_option_is_recognised() {
        let wants = |words: &[&str]| wants_json(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(wants(&["ebof", "list", "-o", "json"]) && wants(&["ebof", "list", "--output-format=json"]));
        assert!(wants(&["ebof", "-ojson", "x"]) && !wants(&["ebof", "list", "json"]));
    }
}
