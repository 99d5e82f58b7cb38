//! Completions that know what there is: devices, NQNs and addresses that were connected or are in
//! files, and a running target's drives, functions, namespaces and ports.
//!
//! A shell calls the program for each (`COMPLETE=bash ebof -- ...`; clap's engine answers). What
//! cannot be found quickly is left out: a shell that waits is worse than one that knows less.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use clap::{Arg, Command};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _,
};
use clap_complete::env::{Bash, CompleteEnv, EnvCompleter, Fish, Zsh};
use clap_complete::{Shell, aot};

use ebof_attach::state::StateDir;

use super::connections;
use super::services::{Places, of_discovery_conf, of_fabrics_conf};
use crate::control::{ControlClient, Reach, SERVICE_SOCKET, default_path};
use crate::program::Program;

/// The variable by which a shell asks.
const ASKED: &str = "COMPLETE";

/// How long values are looked for.
const PATIENCE: Duration = Duration::from_millis(300);

/// The most values that are offered.
const VALUES_MAX: usize = 1000;

/// What is connected at boot.
const CONNECTIONS: &str = "/etc/ebof/connections.toml";

/// The kinds of values that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Device,
    Nqn,
    Address,
    Drive,
    Function,
    Namespace,
    Port,
    /// The control socket of a target.
    Socket,
    /// A subsystem of the running target.
    Served,
}

/// Answers a shell that asks for completions; `false` if none does.
#[must_use]
pub fn answer(program: &Program, args: &[OsString]) -> bool {
    if std::env::var_os(ASKED).is_none() {
        return false;
    }
    let directory = std::env::current_dir().ok();
    named(args, "--runtime-dir").map(PathBuf::from).into_iter().for_each(ebof_state::set_runtime_directory);
    let control = named(args, "--control").map(PathBuf::from);
    let asked = CompleteEnv::with_factory(|| with_values(program.command(), control.as_deref(), false))
        .bin("ebof")
        .completer("ebof");
    // An error is what cannot be completed.
    asked.try_complete(args.iter().cloned(), directory.as_deref()).unwrap_or(true)
}

/// What a shell has to read once.
pub(crate) fn registration(shell: Shell, program: &Program) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let known: &dyn EnvCompleter = match shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
        // Verbs and options only.
        other => {
            aot::generate(other, &mut program.command(), "ebof", &mut text);
            return Ok(text);
        }
    };
    if shell == Shell::Bash {
        // Otherwise bash takes what follows the colon of an NQN for a word of its own.
        text.extend(b"COMP_WORDBREAKS=${COMP_WORDBREAKS//:/}\n");
    }
    known.write_registration(ASKED, "ebof", "ebof", "ebof", &mut text)?;
    if shell == Shell::Zsh {
        // In a directory of $fpath it is read as the body of the function `_ebof` when the first
        // word is to be completed, which would get no answer otherwise.
        text.extend(b"\n[[ $funcstack[1] != _ebof ]] || _clap_dynamic_completer_ebof \"$@\"\n");
    }
    Ok(text)
}

/// The value of an option in the command line that is completed.
fn named<'a>(args: &'a [OsString], option: &str) -> Option<&'a str> {
    let mut words = args.iter().filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        if word == option {
            return words.next();
        }
        if let Some(value) = word.strip_prefix(option).and_then(|rest| rest.strip_prefix('=')) {
            return Some(value);
        }
    }
    None
}

/// The command line with what is known of values; `of_target` within verbs about a running target,
/// which is the one behind the socket `control` if the line names one.
fn with_values(command: Command, control: Option<&Path>, of_target: bool) -> Command {
    let of_target = of_target || ["target", "config"].contains(&command.get_name());
    let command = command.mut_args(|argument| match completion_of(&argument, of_target) {
        Some(Known::Socket) => argument.add(ArgValueCompleter::new(complete_socket)),
        Some(known) => {
            let control = control.map(Path::to_owned);
            argument.add(ArgValueCandidates::new(move || candidates(known, control.clone())))
        }
        None => argument,
    });
    command.mut_subcommands(|verb| with_values(verb, control, of_target))
}

fn completion_of(argument: &Arg, of_target: bool) -> Option<Known> {
    let id = argument.get_id().as_str();
    let name = argument.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    match (name, id) {
        ("DEVICE", _) => Some(Known::Device),
        // Of hosts, which are elsewhere.
        (_, "host" | "hostnqn") => None,
        ("NQN", _) if of_target => Some(Known::Served),
        ("NQN", _) => Some(Known::Nqn),
        (_, "control") => Some(Known::Socket),
        ("ADDRESS", "traddr") => Some(Known::Address),
        ("PORT", "port" | "to") => Some(Known::Port),
        ("FUNCTION", _) | (_, "function") => Some(Known::Function),
        (_, "namespace") => Some(Known::Namespace),
        ("KEY=VALUE,...", _) => None,
        (_, "drive") => Some(Known::Drive),
        _ => None,
    }
}

fn candidates(known: Known, control: Option<PathBuf>) -> Vec<CompletionCandidate> {
    let mut values = within(PATIENCE, move || values(known, control));
    values.sort();
    values.dedup();
    values.truncate(VALUES_MAX);
    values.into_iter().map(CompletionCandidate::new).collect()
}

/// What `find` finds in that time. A thread that is late ends with the process.
fn within(limit: Duration, find: impl FnOnce() -> Vec<String> + Send + 'static) -> Vec<String> {
    let (found, values) = channel();
    let spawned = std::thread::Builder::new().name("ebof-complete".to_owned()).spawn(move || found.send(find()));
    if spawned.is_err() {
        return Vec::new();
    }
    values.recv_timeout(limit).unwrap_or_default()
}

fn values(known: Known, control: Option<PathBuf>) -> Vec<String> {
    match known {
        Known::Device => {
            let records = ebof_attach::list().unwrap_or_default();
            let of_record = |record: ebof_attach::state::Record| {
                let devices = record.state.into_iter().flat_map(|state| state.devices).map(|device| device.name);
                devices.chain([record.name]).collect::<Vec<_>>()
            };
            records.into_iter().flat_map(of_record).collect()
        }
        Known::Nqn => in_files().filter_map(|(_, nqn)| nqn).collect(),
        Known::Address => in_files().map(|(traddr, _)| traddr).collect(),
        Known::Socket => sockets(),
        Known::Drive | Known::Function | Known::Namespace | Known::Port | Known::Served => of_target(known, control),
    }
}

/// Sockets that are known, and paths, since a target's may be anywhere.
fn complete_socket(current: &OsStr) -> Vec<CompletionCandidate> {
    let begins = |one: &CompletionCandidate| one.get_value().as_encoded_bytes().starts_with(current.as_encoded_bytes());
    let known = candidates(Known::Socket, None).into_iter().filter(begins);
    known.chain(PathCompleter::any().complete(current)).collect()
}

/// The control sockets of targets with the usual paths: of the service, and of this user.
fn sockets() -> Vec<String> {
    let own = default_path(&StateDir::standard(), Path::new(SERVICE_SOCKET)).ok();
    let usual = [Some(PathBuf::from(SERVICE_SOCKET)), own];
    let there = usual.into_iter().flatten().filter(|path| path.exists());
    there.map(|path| path.display().to_string()).collect()
}

/// The addresses and subsystems of connections that there are, and of those in files.
fn in_files() -> impl Iterator<Item = (String, Option<String>)> {
    let records = ebof_attach::list().unwrap_or_default().into_iter().filter_map(|record| record.request());
    let connected = records.map(|request| (request.traddr, Some(request.nqn)));
    let places = Places::default();
    let (entries, _) = connections::read(Path::new(CONNECTIONS), &places).unwrap_or_default();
    let sources = [of_discovery_conf(&places), of_fabrics_conf(&places)].into_iter().flat_map(|sources| {
        let services = sources.services.into_iter().map(|service| service.fabric);
        services.chain(sources.subsystems.into_iter().map(|subsystem| subsystem.fabric))
    });
    let named = entries.into_iter().map(|entry| entry.fabric).chain(sources);
    let named = named.filter_map(|fabric| Some((fabric.traddr?, fabric.nqn.map(|nqn| nqn.to_string()))));
    connected.chain(named)
}

/// What the running target has.
fn of_target(known: Known, control: Option<PathBuf>) -> Vec<String> {
    let reach = control.map_or_else(Reach::default, Reach::socket);
    let Ok(inventory) = ControlClient::new(reach).and_then(|control| control.inventory()) else {
        return Vec::new();
    };
    let drives = inventory.drives.into_iter();
    match known {
        Known::Port => inventory.ports.into_iter().map(|port| port.name).collect(),
        Known::Served => {
            let plain = inventory.subsystems.into_iter().map(|subsystem| subsystem.nqn);
            drives.map(|drive| drive.nqn).chain(plain).collect()
        }
        Known::Function => drives.flat_map(|drive| drive.functions).map(|function| function.name.to_string()).collect(),
        Known::Namespace => {
            drives.flat_map(|drive| drive.namespaces).map(|namespace| namespace.name.to_string()).collect()
        }
        _ => drives.map(|drive| drive.name).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::verbs::program_with;

    #[test]
    fn values_that_are_late_are_left_out() {
        let start = Instant::now();
        let late = within(Duration::from_millis(20), || {
            std::thread::sleep(Duration::from_secs(60));
            vec!["late".to_owned()]
        });
        assert!(late.is_empty() && start.elapsed() < Duration::from_secs(30));
        assert_eq!(within(Duration::from_secs(60), || vec!["a".to_owned()]), ["a"]);
    }

    #[test]
    fn arguments_are_known_by_what_they_are() {
        let program = program_with(&[]);
        let command = program.command();
        let of = |path: &[&str], id: &str| {
            let verb = path.iter().fold(&command, |command, name| command.find_subcommand(name).unwrap());
            completion_of(verb.get_arguments().find(|argument| argument.get_id() == id).unwrap(), path[0] == "target")
        };
        assert_eq!(of(&["connect"], "nqn"), Some(Known::Nqn));
        assert_eq!(of(&["connect"], "traddr"), Some(Known::Address));
        assert_eq!(of(&["connect"], "hostnqn"), None);
        assert_eq!(of(&["connect"], "trsvcid"), None);
        assert_eq!(of(&["disconnect"], "device"), Some(Known::Device));
        assert_eq!(of(&["target", "move"], "function"), Some(Known::Function));
        assert_eq!(of(&["target", "move"], "to"), Some(Known::Port));
        assert_eq!(of(&["target", "map"], "namespace"), Some(Known::Namespace));
        assert_eq!(of(&["target", "reset"], "drive"), Some(Known::Drive));
        assert_eq!(of(&["target"], "control"), Some(Known::Socket));
        with_values(command.clone(), None, false).debug_assert();
        let line = ["ebof", "target", "--control=/run/a.sock", "move"].map(OsString::from);
        assert_eq!((named(&line, "--control"), named(&line[..1], "--control")), (Some("/run/a.sock"), None));
    }

    #[test]
    fn shells_are_told_to_ask() {
        let program = program_with(&[]);
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = String::from_utf8(registration(shell, &program).unwrap()).unwrap();
            assert!(text.contains("COMPLETE") && text.contains("ebof"), "{text}");
        }
        assert!(!registration(Shell::Elvish, &program).unwrap().is_empty());
    }
}
