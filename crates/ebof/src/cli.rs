//! The command line: which verbs there are, how they are grouped in the help, and how a run ends. What a verb does is
//! in `verbs`.
//!
//! A verb is added in four places here: `Command`, `GROUPS`, `Command::run`, and where it logs more than warnings
//! `Command::log_level`. Larger ones are a module of their own with `pub(crate) struct Args` and
//! `pub(crate) fn run(args: Args, global: &Global) -> Outcome`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use ebof_attach::holder;
use tracing_subscriber::filter::LevelFilter;

use crate::device::dry_run::NotSent;
use crate::failure::{self, Failure};
use crate::global::{Format, Global, LogFormat, start_logging};
use crate::output::{print, say, show};
use crate::verbs::{self, Outcome};

mod letters;

/// Drives over NVMe/TCP, served and attached from user space.
#[derive(Debug, Parser)]
#[command(name = "ebof", version, disable_help_subcommand = true, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// The verbs, by nvme-cli's names where it has them.
#[derive(Debug, Subcommand)]
enum Command {
    /// Serve drives to hosts
    Serve(Box<crate::serve::Args>),
    /// List what a discovery service offers
    Discover(Box<verbs::discover::Discover>),
    /// Connect a subsystem: its namespaces become block devices
    Connect(Box<verbs::connect::Connect>),
    /// Connect everything that a discovery service offers
    ConnectAll(Box<verbs::connect::ConnectAll>),
    /// Disconnect controllers
    Disconnect(verbs::connect::Disconnect),
    /// Disconnect everything
    DisconnectAll(verbs::connect::DisconnectAll),
    /// List the block devices of connected namespaces
    List(verbs::list::List),
    /// List connected subsystems and the ways to them
    ListSubsys(verbs::list::ListSubsys),

    /// Show subsystems, namespaces and the ways to them
    ShowTopology(verbs::list::ShowTopology),

    /// Show Identify Controller
    IdCtrl(verbs::identify::IdCtrl),
    /// Show Identify Namespace
    IdNs(verbs::identify::IdNs),
    /// List the namespaces of a controller
    ListNs(verbs::identify::ListNs),
    /// List the controllers of a subsystem
    ListCtrl(verbs::identify::ListCtrl),
    /// Show a namespace's identifiers
    NsDescs(verbs::identify::NsDescs),
    /// Show Identify Controller of the NVM command set
    NvmIdCtrl(verbs::identify_more::OfController),
    /// Show Identify Namespace of the NVM command set
    NvmIdNs(verbs::identify_more::OfNamespace),
    /// Show Identify Namespace without regard to I/O command sets
    CmdsetIndIdNs(verbs::identify_more::OfNamespace),
    /// Show which sizes of namespaces waste nothing
    IdNsGranularity(verbs::identify_more::OfController),
    /// List the endurance groups
    ListEndgrp(verbs::identify_more::OfController),
    /// Show which namespace a device is
    GetNsId(verbs::controller::GetNsId),
    /// Show the controller's properties
    ShowRegs(verbs::controller::ShowRegs),
    /// Show a property of the controller
    GetProperty(verbs::property::GetProperty),
    /// Read any log page
    GetLog(Box<verbs::logs::GetLog>),
    /// Show the SMART / Health Information log
    SmartLog(verbs::logs::SmartLog),
    /// Show the Error Information log
    ErrorLog(verbs::logs::ErrorLog),
    /// Show the Firmware Slot Information log
    FwLog(verbs::logs::PlainLog),
    /// Show the Commands Supported and Effects log
    EffectsLog(verbs::logs::EffectsLog),
    /// Show the Changed Namespace List log
    ChangedNsListLog(verbs::logs::PlainLog),
    /// Show the Changed Allocated Namespace List log
    ChangedAllocNsListLog(verbs::drive_logs::ChangedAllocNsListLog),
    /// Show the Device Self-test log
    SelfTestLog(verbs::self_test::SelfTestLogVerb),
    /// Show the Persistent Event Log
    PersistentEventLog(verbs::drive_logs::PersistentEventLog),
    /// Write telemetry data to a file
    TelemetryLog(verbs::drive_logs::TelemetryLog),
    /// Show the Sanitize Status log
    SanitizeLog(verbs::drive_logs::SanitizeLogVerb),
    /// Show the Endurance Group Information log
    EnduranceLog(verbs::drive_logs::EnduranceLog),
    /// Show the Reservation Notification log
    ResvNotifLog(verbs::drive_logs::ResvNotifLog),
    /// Show the Asymmetric Namespace Access log
    AnaLog(verbs::ana::AnaLog),
    /// Show the Supported Log Pages log
    SupportedLogPages(verbs::logs::PlainLog),
    /// Show a feature
    GetFeature(verbs::features::GetFeature),

    /// Change a feature
    SetFeature(verbs::features::SetFeature),
    /// Write a property of the controller
    SetProperty(verbs::property::SetProperty),
    /// Drop a controller's connections and make new ones
    Reset(verbs::controller::Plain),
    /// Reset the whole NVM subsystem
    SubsystemReset(verbs::property::SubsystemReset),
    /// Have the block devices follow the namespaces, or a target what lies below its own
    NsRescan(verbs::controller::NsRescan),

    /// Create a namespace
    CreateNs(Box<verbs::namespaces::CreateNs>),
    /// Delete a namespace
    DeleteNs(verbs::namespaces::DeleteNs),
    /// Attach a namespace to controllers
    AttachNs(verbs::namespaces::AttachNs),
    /// Detach a namespace from controllers
    DetachNs(verbs::namespaces::DetachNs),

    /// Register, unregister or replace this host's reservation key
    ResvRegister(verbs::reservations::ResvRegister),
    /// Acquire a reservation, or take it from others
    ResvAcquire(verbs::reservations::ResvAcquire),
    /// Release a reservation, or clear it and all registrants
    ResvRelease(verbs::reservations::ResvRelease),
    /// Show a namespace's registrants and reservation
    ResvReport(verbs::reservations::ResvReport),

    /// Format namespaces: all their data goes
    Format(Box<verbs::media::FormatNvm>),
    /// Sanitize the drive: all data goes
    Sanitize(verbs::media::SanitizeNvm),
    /// Have the drive test itself
    DeviceSelfTest(verbs::self_test::DeviceSelfTest),
    /// Make a firmware image for a drive of ebof
    FwImage(verbs::firmware_image::FwImage),
    /// Send a firmware image
    FwDownload(Box<verbs::firmware::FwDownload>),
    /// Put a firmware image into a slot, and activate it
    FwCommit(verbs::firmware::FwCommit),
    /// Send data of a security protocol
    SecuritySend(Box<verbs::security::SecuritySend>),
    /// Receive data of a security protocol
    SecurityRecv(Box<verbs::security::SecurityRecv>),

    /// Read blocks
    Read(Box<verbs::io::Transfer>),
    /// Write blocks
    Write(Box<verbs::io::Transfer>),
    /// Compare blocks with data
    Compare(Box<verbs::io::Transfer>),
    /// Write zeros without sending them
    WriteZeroes(verbs::blocks::WriteZeroes),
    /// Mark blocks as unreadable
    WriteUncor(verbs::blocks::WriteUncor),
    /// Have the controller read blocks without sending them
    Verify(verbs::blocks::Verify),
    /// Have the controller copy blocks
    Copy(Box<verbs::copy::CopyBlocks>),
    /// Show which blocks are allocated, or may be unrecoverable
    GetLbaStatus(verbs::lba_status::GetLbaStatusVerb),
    /// Dataset Management: deallocate blocks
    Dsm(verbs::blocks::Dsm),
    /// Bring everything written to the medium
    Flush(verbs::blocks::Flush),

    /// Send any admin command
    AdminPassthru(Box<verbs::passthru::Passthru>),
    /// Send any I/O command
    IoPassthru(Box<verbs::passthru::Passthru>),

    /// Measure a load on namespaces, files and devices
    Bench(Box<crate::bench::Args>),
    /// Show the whole line on this machine: serve, attach, mount, compare, measure (`make run`)
    #[command(hide = true)]
    Demo(crate::demo::Args),

    /// Check a target's configuration
    Config(verbs::config::Args),

    /// Make a new host NQN
    GenHostnqn(verbs::host::Plain),
    /// Show this host's NQN
    ShowHostnqn(verbs::host::Plain),
    /// Print completions for a shell
    Completions(verbs::generate::Completions),
    /// Print or write man pages
    Man(verbs::generate::Man),
    /// Show help, of a verb too
    Help(verbs::generate::Help),
    /// Show the version
    Version(verbs::generate::Version),
}

/// How the help groups the verbs.
const GROUPS: [(&str, &[&str]); 11] = [
    ("Serve", &["serve", "config"]),
    (
        "Connect",
        &["discover", "connect", "connect-all", "disconnect", "disconnect-all", "list", "list-subsys", "show-topology"],
    ),
    (
        "Inspect",
        &[
            "id-ctrl",
            "id-ns",
            "list-ns",
            "list-ctrl",
            "ns-descs",
            "nvm-id-ctrl",
            "nvm-id-ns",
            "cmdset-ind-id-ns",
            "id-ns-granularity",
            "list-endgrp",
            "get-ns-id",
            "show-regs",
            "get-property",
            "get-feature",
            "get-log",
            "smart-log",
            "error-log",
            "fw-log",
            "effects-log",
            "changed-ns-list-log",
            "changed-alloc-ns-list-log",
            "supported-log-pages",
            "ana-log",
            "self-test-log",
            "persistent-event-log",
            "telemetry-log",
            "sanitize-log",
            "endurance-log",
            "resv-notif-log",
        ],
    ),
    ("Change", &["set-feature", "set-property", "reset", "subsystem-reset", "ns-rescan"]),
    ("Namespaces", &["create-ns", "delete-ns", "attach-ns", "detach-ns"]),
    ("Reservations", &["resv-register", "resv-acquire", "resv-release", "resv-report"]),
    (
        "Media and firmware",
        &[
            "format",
            "sanitize",
            "device-self-test",
            "fw-image",
            "fw-download",
            "fw-commit",
            "security-send",
            "security-recv",
        ],
    ),
    (
        "I/O",
        &[
            "read",
            "write",
            "compare",
            "write-zeroes",
            "write-uncor",
            "verify",
            "copy",
            "dsm",
            "flush",
            "get-lba-status",
        ],
    ),
    ("Any command", &["admin-passthru", "io-passthru"]),
    ("Measure", &["bench"]),
    ("This machine", &["gen-hostnqn", "show-hostnqn", "completions", "man", "help", "version"]),
];

const EXAMPLES: &str = "\
Examples:
  ebof discover -t tcp -a 192.168.13.147
  ebof connect -t tcp -a 192.168.13.147 -n nqn.2014-08.org.example:drive0
  ebof list
  ebof id-ctrl nvme0
  ebof id-ns nvme+tcp://192.168.13.147:4420/nqn.2014-08.org.example:drive0/1
  ebof disconnect -d nvme0

DEVICE is a connected device (nvme0, nvme0n1) or a URI, which needs no connection.
`ebof VERB --help` tells more. The manual is docs/cli.md, the JSON output docs/json.md.";

impl Command {
    #[expect(clippy::too_many_lines, reason = "a line for each verb")]
    fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Serve(args) => crate::serve::run(&args, global),
            Self::Discover(verb) => verb.run(global),
            Self::Connect(verb) => verb.run(global),
            Self::ConnectAll(verb) => verb.run(global),
            Self::Disconnect(verb) => verb.run(global),
            Self::DisconnectAll(verb) => verb.run(global),
            Self::List(verb) => verb.run(global),
            Self::ListSubsys(verb) => verb.run(global),
            Self::ShowTopology(verb) => verb.run(global),
            Self::IdCtrl(verb) => verb.run(global),
            Self::IdNs(verb) => verb.run(global),
            Self::ListNs(verb) => verb.run(global),
            Self::ListCtrl(verb) => verb.run(global),
            Self::NsDescs(verb) => verb.run(global),
            Self::NvmIdCtrl(verb) => verb.nvm(global),
            Self::NvmIdNs(verb) => verb.nvm(global),
            Self::CmdsetIndIdNs(verb) => verb.independent(global),
            Self::IdNsGranularity(verb) => verb.granularity(global),
            Self::ListEndgrp(verb) => verb.endurance_groups(global),
            Self::GetNsId(verb) => verb.run(global),
            Self::ShowRegs(verb) => verb.run(global),
            Self::GetProperty(verb) => verb.run(global),
            Self::GetLog(verb) => verb.run(global),
            Self::SmartLog(verb) => verb.run(global),
            Self::ErrorLog(verb) => verb.run(global),
            Self::FwLog(verb) => verb.firmware(global),
            Self::EffectsLog(verb) => verb.run(global),
            Self::ChangedNsListLog(verb) => verb.changed_namespaces(global),
            Self::ChangedAllocNsListLog(verb) => verb.run(global),
            Self::SelfTestLog(verb) => verb.run(global),
            Self::PersistentEventLog(verb) => verb.run(global),
            Self::TelemetryLog(verb) => verb.run(global),
            Self::SanitizeLog(verb) => verb.run(global),
            Self::EnduranceLog(verb) => verb.run(global),
            Self::ResvNotifLog(verb) => verb.run(global),
            Self::AnaLog(verb) => verb.run(global),
            Self::SupportedLogPages(verb) => verb.supported(global),
            Self::GetFeature(verb) => verb.run(global),
            Self::SetFeature(verb) => verb.run(global),
            Self::SetProperty(verb) => verb.run(global),
            Self::Reset(verb) => verb.reset(global),
            Self::SubsystemReset(verb) => verb.run(global),
            Self::NsRescan(verb) => verb.run(global),
            Self::CreateNs(verb) => verb.run(global),
            Self::DeleteNs(verb) => verb.run(global),
            Self::AttachNs(verb) => verb.run(global),
            Self::DetachNs(verb) => verb.run(global),
            Self::ResvRegister(verb) => verb.run(global),
            Self::ResvAcquire(verb) => verb.run(global),
            Self::ResvRelease(verb) => verb.run(global),
            Self::ResvReport(verb) => verb.run(global),
            Self::Format(verb) => verb.run(global),
            Self::Sanitize(verb) => verb.run(global),
            Self::DeviceSelfTest(verb) => verb.run(global),
            Self::FwImage(verb) => verb.run(global),
            Self::FwDownload(verb) => verb.run(global),
            Self::FwCommit(verb) => verb.run(global),
            Self::SecuritySend(verb) => verb.run(global),
            Self::SecurityRecv(verb) => verb.run(global),
            Self::Read(verb) => verb.read(global),
            Self::Write(verb) => verb.write(global),
            Self::Compare(verb) => verb.compare(global),
            Self::WriteZeroes(verb) => verb.run(global),
            Self::WriteUncor(verb) => verb.run(global),
            Self::Verify(verb) => verb.run(global),
            Self::Copy(verb) => verb.run(global),
            Self::GetLbaStatus(verb) => verb.run(global),
            Self::Dsm(verb) => verb.run(global),
            Self::Flush(verb) => verb.run(global),
            Self::AdminPassthru(verb) => verb.admin(global),
            Self::IoPassthru(verb) => verb.io(global),
            Self::Bench(args) => crate::bench::run(&args, global),
            Self::Demo(args) => crate::demo::run(&args, global),
            Self::Config(args) => verbs::config::run(args, global),
            Self::GenHostnqn(verb) => verb.generate(global),
            Self::ShowHostnqn(verb) => verb.show(global),
            Self::Completions(verb) => verb.run(),
            Self::Man(verb) => verb.run(),
            Self::Help(verb) => Ok(verb.run()),
            Self::Version(verb) => Ok(verb.run()),
        }
    }

    /// What is logged where nobody says more.
    fn log_level(&self) -> LevelFilter {
        match self {
            Self::Serve(_) => LevelFilter::INFO,
            _ => LevelFilter::WARN,
        }
    }
}

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let [_, argument, directory] = args.as_slice()
        && argument == holder::ARGUMENT
    {
        start_logging(LogFormat::Human, LevelFilter::INFO);
        return holder::run(Path::new(directory));
    }
    let cli = match parse(&args) {
        Ok(cli) => cli,
        Err(mut error) => {
            letters::hint(&mut error, &args);
            return refuse(&error, &args);
        }
    };
    cli.global.start_logging(cli.command.log_level());
    let format = cli.global.format;
    match cli.command.run(&cli.global) {
        Ok(code) => code,
        Err(error) => match error.downcast::<NotSent>() {
            Ok(shown) => {
                say("dry run: nothing was sent");
                show(&cli.global, &shown).map_or_else(|error| fail(&error, format), |()| ExitCode::SUCCESS)
            }
            Err(error) => fail(&error, format),
        },
    }
}

/// What the program says to a command line that asks for help or for the version, and nothing else.
pub(crate) fn asked(words: &[&str]) -> ExitCode {
    let args: Vec<OsString> = std::iter::once("ebof").chain(words.iter().copied()).map(OsString::from).collect();
    parse(&args).map_or_else(|error| refuse(&error, &args), |_no_help| ExitCode::SUCCESS)
}

fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = described();
    let matches = command.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The command line: what the arguments' types say, and the letters of each verb.
pub(crate) fn command() -> clap::Command {
    letters::add(Cli::command())
}

/// The command line with its grouped help.
fn described() -> clap::Command {
    let command = command();
    let groups = grouped(&command);
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\nOptions:\n{{options}}\n\n{EXAMPLES}\n"
    );
    command.help_template(template)
}

/// The verbs in their groups, each with its line.
fn grouped(command: &clap::Command) -> String {
    let mut text = String::new();
    for (title, verbs) in GROUPS {
        let _infallible = writeln!(text, "{title}:");
        for verb in verbs {
            let about = command.find_subcommand(verb).and_then(clap::Command::get_about);
            let _infallible = writeln!(text, "  {verb:<20} {}", about.cloned().unwrap_or_default());
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

/// Help and version go to standard output; everything else is a mistake on the command line, and ends with 2.
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
        let _code = fail(&Failure::usage(message, advice).into(), Format::Json);
    } else {
        let _printed = error.print();
    }
    ExitCode::from(2)
}

/// Whether `-o json` stands somewhere on a command line that was not understood.
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

/// Tells an error, to programs on standard output, to people on standard error.
fn fail(error: &anyhow::Error, format: Format) -> ExitCode {
    if failure::is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let told = match format {
        Format::Json => failure::json(error).to_text().map_err(Into::into).and_then(|text| print(text.as_bytes())),
        Format::Normal | Format::Binary => Err(anyhow::anyhow!("for people")),
    };
    if told.is_err() {
        // A list of mistakes says of each what it is.
        let prefix = if error.is::<ebof_manage::Diagnostics>() { "" } else { "error: " };
        say(&format!("{prefix}{}", failure::text(error)));
    }
    // As clap ends what it does not understand: a script can tell a mistake of its own from a failure.
    if failure::is_usage(error) { ExitCode::from(2) } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod advice;
#[cfg(test)]
mod nvme_cli;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        described().debug_assert();
    }

    #[test]
    fn no_verb_has_an_argument_by_the_name_of_a_global_one() {
        // clap would hand the verb's value to the global option, or the other way round, and panic.
        let command = super::command();
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
    fn every_verb_that_is_shown_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        let command = super::command();
        let mut verbs: Vec<&str> =
            command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(clap::Command::get_name).collect();
        grouped.sort_unstable();
        verbs.sort_unstable();
        assert_eq!(grouped, verbs);
    }

    #[test]
    fn every_verb_is_in_the_manual() {
        let read = |name| std::fs::read_to_string(format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let (manual, json) = (read("cli.md"), read("json.md"));
        // Without a document of their own: they print text for a shell.
        let without = ["completions", "man", "help", "version"];
        for verb in GROUPS.iter().flat_map(|(_, verbs)| verbs.iter()) {
            assert!(
                manual.contains(&format!("`{verb}")) || manual.contains(&format!("ebof {verb}")),
                "docs/cli.md: {verb}"
            );
            let schema = [format!("ebof/{verb}/"), format!("ebof/{verb}-")];
            assert!(
                without.contains(verb) || schema.iter().any(|schema| json.contains(schema)),
                "docs/json.md: {verb}"
            );
        }
    }

    #[test]
    fn no_verb_has_the_name_of_the_holder() {
        assert!(super::command().find_subcommand(holder::ARGUMENT).is_none());
    }

    #[test]
    fn json_is_wanted_however_it_is_written() {
        let wants = |words: &[&str]| wants_json(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(wants(&["ebof", "list", "-o", "json"]) && wants(&["ebof", "list", "--output-format=json"]));
        assert!(wants(&["ebof", "-ojson", "x"]) && !wants(&["ebof", "list", "json"]));
    }
}
