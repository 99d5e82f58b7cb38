//! The arguments of `serve` as a configuration: ports, one subsystem for all plain drives, and one
//! for each drive whose hosts create its namespaces.
//!
//! Checks combinations of options; the rest is checked by the configuration's rules.

use std::path::Path;

use ebof_manage::config::{BlockSize, Host, ManagedDrive, Namespace, Port, Security, Subsystem};
use ebof_manage::listen::Transport;
use ebof_manage::{Config, Drive, Listen, Loaded};
use ebof_nvme::{Nqn, Uuid};

use super::Args;
use ebof_cli::Failure;
use ebof_cli::output::say;
use ebof_cli::output::text::safe;
use ebof_cli::strange_name;

/// The configuration of the arguments.
pub(super) fn from_arguments(args: &Args) -> anyhow::Result<Config> {
    let ports = ports(args)?;
    let local = ports.iter().all(|port| !port.listen.is_network() || port.listen.address.is_loopback());
    if !local && !args.allow_any_host && args.host.is_empty() {
        let advice = "name the hosts with --host NQN, or let everyone in with --allow-any-host";
        return Err(
            Failure::usage("others than this machine can reach the ports, and no host is allowed", advice).into()
        );
    }
    let drives = args.drive.iter().map(|text| managed_drive(text)).collect::<Result<Vec<_>, _>>()?;
    let mut subsystems = subsystems(args, &drives)?;
    let hosts = args.host.iter().map(|text| nqn(text, "--host")).collect::<Result<Vec<_>, _>>()?;
    for subsystem in &mut subsystems {
        subsystem.allow_any_host = args.allow_any_host || hosts.is_empty();
        subsystem.allowed_hosts.clone_from(&hosts);
        subsystem.ports = ports.iter().map(|port| port.name.clone()).collect();
        if args.authenticated {
            subsystem.security = Security::Authenticated;
        }
        args.serial.iter().for_each(|serial| subsystem.serial.clone_from(serial));
        args.model.iter().for_each(|model| subsystem.model.clone_from(model));
    }
    let mut config = Config { ports, drives, subsystems, ..Config::default() };
    config.hosts = hosts.into_iter().map(Host::new).collect();
    config.target.metrics = args.metrics;
    config.target.control.clone_from(&args.control);
    config.target.threads = args.threads;
    if let Some(max) = args.max_connections {
        config.target.max_connections = max;
    }
    Ok(config)
}

/// Refuses options that are for drives on the command line, where there are none.
pub(super) fn without_drives(args: &Args) -> Result<(), Failure> {
    let given = [
        ("--listen", !args.listen.is_empty()),
        ("--nqn", args.nqn.is_some()),
        ("--allow-any-host", args.allow_any_host),
        ("--host", !args.host.is_empty()),
        ("--authenticated", args.authenticated),
        ("--serial", args.serial.is_some()),
        ("--model", args.model.is_some()),
        ("--block-size", args.block_size.is_some()),
        ("--write-protect", args.write_protect),
        ("--in-capsule-data", args.in_capsule_data.is_some()),
        ("--no-c2h-success", args.no_c2h_success),
        ("--tos", args.tos.is_some()),
        ("--so-priority", args.so_priority.is_some()),
        ("--busy-poll", args.busy_poll.is_some()),
        ("--prefer-busy-poll", args.prefer_busy_poll),
        ("--zerocopy-send", args.zerocopy_send.is_some()),
    ];
    let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    let advice = "name a drive, such as FILE:SIZE; without one the target goes by its state directory, and `ebof target add --help` and \
                  `ebof target set --help` change it while it runs";
    Err(Failure::usage(format!("{option} is for drives on the command line, and there is none"), advice))
}

/// Checks the arguments by the rules of configuration files. Errors have no line and column,
/// because there is no file.
pub(super) fn checked(config: &Config) -> anyhow::Result<Loaded> {
    ebof_manage::load::check("command line", config).map_err(|mistakes| {
        let messages: Vec<&str> = mistakes.items.iter().map(|item| item.message.as_str()).collect();
        // `...; line 11 has it first` refers to a file, and there is none.
        let help = mistakes.items.iter().filter_map(|item| item.help.as_deref()?.split("; line ").next());
        let help: Vec<&str> = help.collect();
        Failure::usage(messages.join("; "), help.join("\n  ")).into()
    })
}

/// One subsystem with all plain drives as its namespaces, and one for each managed drive.
fn subsystems(args: &Args, drives: &[ManagedDrive]) -> anyhow::Result<Vec<Subsystem>> {
    let several = drives.len() + usize::from(!args.drives.is_empty()) > 1;
    if several && args.serial.is_some() {
        let advice = "serial numbers tell drives apart: write serial=TEXT into each --drive, or leave --serial out";
        return Err(Failure::usage("--serial is for one subsystem, and there are several", advice).into());
    }
    let given = args.nqn.as_ref().map(|text| nqn(text, "--nqn")).transpose()?;
    let mut subsystems = Vec::new();
    if args.drives.is_empty() {
        if args.block_size.is_some() || args.write_protect {
            let option = if args.write_protect { "--write-protect" } else { "--block-size" };
            let advice = "hosts say it when they create a namespace, and for each namespace";
            return Err(Failure::usage(format!("{option} is for drives that are a namespace"), advice).into());
        }
    } else {
        subsystems.push(plain_subsystem(args, given.clone().unwrap_or_else(|| default_nqn(&args.drives)))?);
    }
    for drive in drives {
        let nqn = match &given {
            None => default_drive_nqn(drive),
            Some(nqn) if several => sub_nqn(nqn, drive)?,
            Some(nqn) => nqn.clone(),
        };
        subsystems.push(Subsystem::of_drive(nqn, drive));
    }
    Ok(subsystems)
}

fn plain_subsystem(args: &Args, nqn: Nqn) -> anyhow::Result<Subsystem> {
    let mut subsystem = Subsystem::new(nqn);
    let block_size = block_size(args.block_size)?;
    for (nsid, text) in (1..).zip(&args.drives) {
        let drive = text
            .parse::<Drive>()
            .map_err(|error| Failure::usage(format!("the drive `{text}`: {error}"), error.advice()))?;
        check_size(text, &drive)?;
        let mut namespace = Namespace::new(nsid, drive);
        namespace.block_size = block_size;
        // A drive that is opened for reading only cannot be written by hosts either.
        let read_only = matches!(&namespace.drive, Drive::File(file) if file.read_only);
        namespace.write_protect = args.write_protect || read_only;
        subsystem.namespaces.push(namespace);
    }
    Ok(subsystem)
}

/// The smallest drive whose size is taken without a unit.
const PLAIN_SIZE_MIN: u64 = 4096;

/// Refuses `disk.img:10`: a drive of ten bytes is no use, and a unit is easily forgotten.
fn check_size(text: &str, drive: &Drive) -> Result<(), Failure> {
    let Some(size) = drive.size_bytes().filter(|&size| size < PLAIN_SIZE_MIN) else { return Ok(()) };
    let written = size.to_string();
    let example = text.replacen(&format!(":{written}"), &format!(":{written}G"), 1);
    let example = example.replacen(&format!("size={written}"), &format!("size={written}G"), 1);
    let message = format!("the drive `{text}` has {written} bytes, less than one of 4096: nothing was made");
    Err(Failure::usage(message, format!("a size without a unit is in bytes; did you mean {example}?")))
}

fn managed_drive(text: &str) -> Result<ManagedDrive, Failure> {
    text.parse().map_err(|error: ebof_manage::config::WordsError| {
        Failure::usage(format!("--drive {}: {}", safe(text), safe(&error.to_string())), error.advice())
    })
}

/// `NQN:NAME`.
fn sub_nqn(nqn: &Nqn, drive: &ManagedDrive) -> Result<Nqn, Failure> {
    let text = format!("{nqn}:{}", drive.name);
    Nqn::parse(&text).map_err(|error| {
        let advice = "each drive's subsystem is NQN:NAME here: give a shorter NQN that is not made from a UUID, or leave --nqn out";
        Failure::usage(format!("--nqn {}: {}: {error}", safe(nqn.as_str()), safe(&text)), advice)
    })
}

fn ports(args: &Args) -> anyhow::Result<Vec<Port>> {
    let mut listens = Vec::new();
    for text in &args.listen {
        let listen: Listen = text.parse().map_err(|error: ebof_manage::listen::ListenError| {
            Failure::usage(format!("--listen {text}: {error}"), error.advice())
        })?;
        listens.push(listen);
    }
    if listens.is_empty() {
        listens.push(Listen::loopback());
    }
    let in_capsule = match &args.in_capsule_data {
        Some(text) => {
            let bytes = ebof_manage::units::parse_size(text).ok().and_then(|bytes| u32::try_from(bytes).ok());
            Some(bytes.ok_or_else(|| {
                Failure::usage(
                    format!("--in-capsule-data {text}: not a size"),
                    "accepted: bytes, or 4Ki, 8Ki, 16Ki ...",
                )
            })?)
        }
        None => None,
    };
    let mut ports = Vec::new();
    for (id, listen) in (1..).zip(listens) {
        let mut port = Port::new(id, listen);
        if port.listen.transport == Transport::Tcp {
            port.c2h_success = !args.no_c2h_success;
            port.tos = args.tos;
            port.so_priority = args.so_priority;
            port.zerocopy_send_bytes = args.zerocopy_send;
        }
        port.busy_poll_us = args.busy_poll;
        port.prefer_busy_poll = args.prefer_busy_poll;
        if let Some(bytes) = in_capsule {
            port.in_capsule_data_bytes = bytes;
        }
        ports.push(port);
    }
    Ok(ports)
}

fn block_size(bytes: Option<u32>) -> Result<Option<BlockSize>, Failure> {
    match bytes {
        None => Ok(None),
        Some(512) => Ok(Some(BlockSize::B512)),
        Some(4096) => Ok(Some(BlockSize::B4096)),
        Some(other) => Err(Failure::usage(format!("--block-size {other}"), "accepted: 512 or 4096")),
    }
}

fn nqn(text: &str, option: &str) -> Result<Nqn, Failure> {
    let nqn = Nqn::parse(text).map_err(|error| {
        let advice = "an NQN looks like nqn.2014-08.org.example:drive0";
        Failure::usage(format!("{option} {}: {error}", safe(text)), advice)
    })?;
    if let Some(warning) = strange_name(option, &nqn) {
        say(&warning);
    }
    Ok(nqn)
}

/// A name that stays the same for this machine and drive, however the drive is written.
fn default_nqn(drives: &[String]) -> Nqn {
    let first = drives.first().map_or("", String::as_str);
    let drive = first.parse::<Drive>();
    machine_nqn(&drive.ok().as_ref().and_then(Drive::path).map_or_else(|| first.to_owned(), whole_path))
}

/// The same for a drive, whose name does not depend on whether its file exists.
fn default_drive_nqn(drive: &ManagedDrive) -> Nqn {
    let Some(path) = drive.backing.path() else { return machine_nqn(&format!("mem:{}", drive.name)) };
    machine_nqn(&whole_path(path))
}

/// The same whether there is something or not.
fn whole_path(path: &str) -> String {
    let path = Path::new(path);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let whole = std::fs::canonicalize(path).or_else(|_missing| {
        let parent = std::fs::canonicalize(parent)?;
        Ok::<_, std::io::Error>(parent.join(path.file_name().unwrap_or_default()))
    });
    whole.unwrap_or_else(|_no_such_place| path.to_owned()).display().to_string()
}

fn machine_nqn(name: &str) -> Nqn {
    let machine = ebof_initiator::host::identity().id;
    let space = uuid::Uuid::from_bytes(machine.0);
    Nqn::from_uuid(Uuid(uuid::Uuid::new_v5(&space, name.as_bytes()).into_bytes()))
}

#[cfg(test)]
mod tests;
