//! `target add`, `remove`, `set`, `resize`, `enable`, `disable` and `drain`: changes of objects of
//! a running target's configuration. The plan is shown and, where it disturbs hosts, asked about;
//! it is made again if somebody else was faster.
//!
//! Owns the words and which edits they mean. What becomes of a configuration is in
//! `ebof_manage::edit`.

use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ebof_manage::Drive;
use ebof_manage::api::Planned;
use ebof_manage::edit::{Edit, Edits, Keys, Kind, Object, Words, words};
use serde_json::{Value, json};

use super::Outcome;
use super::running::confirmed;
use crate::control::ControlClient;
use crate::failure::Failure;
use crate::global::{Global, OutputFormat};
use crate::output::configuration::ShownApplied;
use crate::output::text::safe;
use crate::output::{say, show};

/// Keys of the configuration, behind the options of a verb.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MoreKeys {
    /// More keys, as the configuration file has them (`ebof man ebof.toml`)
    #[arg(value_name = "KEY=VALUE")]
    keys: Vec<String>,
}

/// `target add port`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AddPort {
    /// Where it listens: tcp://ADDRESS:PORT, rdma://ADDRESS:PORT or vfio-user:PATH
    listen: String,
    /// What subsystems call it [default: its address]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Reach this subsystem through it; several times for several [default: those that are reached
    /// through every other port of a network]
    #[arg(long, value_name = "NQN")]
    subsystem: Vec<String>,
    #[command(flatten)]
    more: MoreKeys,
}

/// `target add host`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AddHost {
    /// Its NQN
    nqn: String,
    /// Let it connect to this subsystem; several times for several
    #[arg(long, value_name = "NQN")]
    subsystem: Vec<String>,
    #[command(flatten)]
    more: MoreKeys,
}

/// `target add subsystem`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AddSubsystem {
    /// Its NQN
    nqn: String,
    /// A drive that is a namespace of it: FILE, FILE:SIZE (made when missing), a block device,
    /// mem:SIZE or null:SIZE; several times for several
    #[arg(long, value_name = "DRIVE")]
    drive: Vec<String>,
    /// Reach it through this port; several times for several [default: all ports of networks]
    #[arg(long, value_name = "PORT")]
    port: Vec<String>,
    /// Let this host connect; several times for several
    #[arg(long, value_name = "NQN")]
    host: Vec<String>,
    /// Let any host connect
    #[arg(long, conflicts_with = "host")]
    allow_any_host: bool,
    /// Its serial number, at most 20 characters
    #[arg(long, value_name = "TEXT")]
    serial: Option<String>,
    /// Its model number, at most 40 characters
    #[arg(long, value_name = "TEXT")]
    model: Option<String>,
    #[command(flatten)]
    more: MoreKeys,
}

/// `target add namespace` of a subsystem.
pub(super) struct NamespaceOfSubsystem {
    /// The NQN of the subsystem.
    pub(super) subsystem: String,
    /// Where its data are stored, in words.
    pub(super) backing: String,
    /// Its NSID.
    pub(super) nsid: Option<u32>,
    /// Its size, if the backing does not have it.
    pub(super) size: Option<String>,
    /// Size of a logical block, bytes.
    pub(super) block_size: Option<u32>,
    /// Whether hosts cannot write.
    pub(super) read_only: bool,
    pub(super) more: MoreKeys,
}

/// An object of a running target.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Disabled {
    /// A port: it does not listen
    Port {
        /// Its name
        name: String,
    },
    /// A subsystem, with its namespaces
    Subsystem {
        /// Its NQN
        nqn: String,
    },
    /// A namespace
    Namespace {
        /// It, as SUBSYSTEM/NSID
        namespace: NamespaceArgument,
    },
}

/// `target resize`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Resize {
    /// The namespace, as SUBSYSTEM/NSID
    namespace: NamespaceArgument,
    /// Its new size, such as 20G: larger than it is
    size: String,
}

/// `target drain`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DrainPort {
    /// The name of the port
    port: String,
    /// How long to wait until its hosts have left
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = super::target::duration)]
    wait: Duration,
}

/// `SUBSYSTEM/NSID`.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceArgument {
    subsystem: String,
    nsid: u32,
}

impl FromStr for NamespaceArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('/').and_then(|(subsystem, nsid)| Some((subsystem, nsid.parse().ok()?)));
        let (subsystem, nsid) =
            parts.ok_or("want SUBSYSTEM/NSID, such as nqn.2014-08.org.example:disks/1".to_owned())?;
        Ok(Self { subsystem: subsystem.to_owned(), nsid })
    }
}

/// A kind of objects, by its name.
pub(super) fn kind(text: &str) -> Result<Kind, String> {
    let names = || Kind::ALL.map(Kind::name).join(", ");
    Kind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| format!("accepted: {}", names()))
}

impl MoreKeys {
    pub(super) const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl NamespaceArgument {
    pub(crate) fn object(self) -> Object {
        Object::Namespace { subsystem: self.subsystem, nsid: self.nsid }
    }
}

impl Disabled {
    pub(crate) fn object(self) -> Object {
        match self {
            Self::Port { name } => Object::Port(name),
            Self::Subsystem { nqn } => Object::Subsystem(nqn),
            Self::Namespace { namespace } => namespace.object(),
        }
    }
}

impl AddPort {
    pub(crate) fn edit(self) -> Result<Edit, Failure> {
        let mut keys = Keys::new();
        put(&mut keys, "listen", Some(self.listen));
        put(&mut keys, "name", self.name);
        let subsystems = (!self.subsystem.is_empty()).then_some(self.subsystem);
        Ok(Edit::AddPort { keys: with_more(Kind::Port, keys, &self.more)?, subsystems })
    }
}

impl AddHost {
    pub(crate) fn edit(self) -> Result<Edit, Failure> {
        let mut keys = Keys::new();
        put(&mut keys, "nqn", Some(self.nqn));
        Ok(Edit::AddHost { keys: with_more(Kind::Host, keys, &self.more)?, subsystems: self.subsystem })
    }
}

impl AddSubsystem {
    pub(crate) fn edit(self) -> Result<Edit, Failure> {
        let mut keys = Keys::new();
        put(&mut keys, "nqn", Some(self.nqn));
        put(&mut keys, "serial", self.serial);
        put(&mut keys, "model", self.model);
        let drives = self.drive.iter().map(|text| backing(text)).collect::<Result<Vec<_>, _>>()?;
        let namespaces: Vec<Value> = drives.into_iter().map(|drive| json!({ "drive": drive })).collect();
        keys.insert("namespaces".to_owned(), json!(namespaces));
        if !self.port.is_empty() {
            keys.insert("ports".to_owned(), json!(self.port));
        }
        if !self.host.is_empty() {
            keys.insert("allowed_hosts".to_owned(), json!(self.host));
        }
        if self.allow_any_host {
            keys.insert("allow_any_host".to_owned(), json!(true));
        }
        Ok(Edit::AddSubsystem { keys: with_more(Kind::Subsystem, keys, &self.more)? })
    }
}

impl NamespaceOfSubsystem {
    /// For a subsystem. Namespaces on a drive are changes of the drive, by its name.
    pub(crate) fn edit(self) -> Result<Edit, Failure> {
        let mut keys = Keys::new();
        let text = match &self.size {
            Some(size) if matches!(self.backing.as_str(), "mem" | "null") => format!("{}:{size}", self.backing),
            Some(size) => format!("{},size={size}", self.backing),
            None => self.backing,
        };
        keys.insert("drive".to_owned(), backing(&text)?);
        put(&mut keys, "nsid", self.nsid);
        put(&mut keys, "block_size", self.block_size);
        put(&mut keys, "write_protect", self.read_only.then_some(true));
        Ok(Edit::AddNamespace { subsystem: self.subsystem, keys: with_more(Kind::Namespace, keys, &self.more)? })
    }
}

/// `target set`: the name of the object, and keys with their values.
pub(super) fn set(kind: Kind, all: &[String]) -> Result<Edit, Failure> {
    let (object, rest) = match (kind, all.split_first()) {
        (Kind::Target, _) => (Object::Target, all),
        (_, Some((name, rest))) => (object(kind, name)?, rest),
        (_, None) => return Err(Failure::usage("there is no name", format!("want the name of a {kind}"))),
    };
    if rest.is_empty() {
        return Err(Failure::usage("there is no key to set", "want KEY=VALUE behind the name"));
    }
    let Words { keys, add, remove } = read(kind, rest)?;
    Ok(Edit::Set { object, keys, add, remove })
}

impl Resize {
    pub(crate) fn edit(self) -> Edit {
        let NamespaceArgument { subsystem, nsid } = self.namespace;
        Edit::Resize { subsystem, nsid, size: json!(self.size) }
    }
}

fn object(kind: Kind, name: &str) -> Result<Object, Failure> {
    Ok(match kind {
        Kind::Target => Object::Target,
        Kind::Port => Object::Port(name.to_owned()),
        Kind::Host => Object::Host(name.to_owned()),
        Kind::Drive => Object::Drive(name.to_owned()),
        Kind::Subsystem => Object::Subsystem(name.to_owned()),
        Kind::Namespace => {
            let parsed = name.parse::<NamespaceArgument>();
            parsed.map_err(|error| Failure::usage(format!("{}: no namespace", safe(name)), error))?.object()
        }
    })
}

fn put(keys: &mut Keys, key: &str, value: Option<impl Into<Value>>) {
    value.into_iter().for_each(|value| drop(keys.insert(key.to_owned(), value.into())));
}

/// A drive in words, as the configuration writes it.
fn backing(text: &str) -> Result<Value, Failure> {
    let drive = text.parse::<Drive>();
    let drive = drive.map_err(|error| Failure::usage(format!("the drive {}: {error}", safe(text)), error.advice()))?;
    Ok(serde_json::to_value(drive).unwrap_or_default())
}

fn read(kind: Kind, all: &[String]) -> Result<Words, Failure> {
    words(kind, all).map_err(|error| Failure::usage(safe(&error.to_string()), error.advice()))
}

/// The keys with those behind them, which are no others.
fn with_more(kind: Kind, mut keys: Keys, more: &MoreKeys) -> Result<Keys, Failure> {
    let Words { keys: named, add, remove } = read(kind, &more.keys)?;
    if !add.is_empty() || !remove.is_empty() {
        return Err(Failure::usage("+= and -= change lists that are there", "write KEY=VALUE for something new"));
    }
    for (key, value) in named {
        if keys.insert(key.clone(), value).is_some() {
            return Err(Failure::usage(format!("`{key}` is given twice"), "write it once"));
        }
    }
    Ok(keys)
}

/// How often a plan is made again that disturbs nobody: each time, a change of somebody else was
/// made that it has to do with.
const PLANS_MAX: usize = 256;

/// How often one is made again that somebody is asked about.
const ASKED_MAX: usize = 5;

/// Has an edit made, after a look at what it does.
pub(super) fn carry_out(control: &ControlClient, edit: Edit, yes: bool, global: &Global) -> Outcome {
    let (applied, planned) = make_edit(control, edit, yes)?;
    show(global, &ShownApplied::applied("target-edit", applied, planned))?;
    Ok(ExitCode::SUCCESS)
}

fn make_edit(control: &ControlClient, edit: Edit, yes: bool) -> anyhow::Result<(ebof_manage::api::Applied, Planned)> {
    let directory = std::env::current_dir().context("the working directory")?;
    let base = directory.to_str().with_context(|| format!("{}: this path is not UTF-8", directory.display()))?;
    let edits = Edits { base: Some(base.to_owned()), ..Edits::one(edit) };
    let mut plans = 0;
    loop {
        plans += 1;
        let planned = control.plan_edits(&edits)?;
        confirmed(&planned, &safe(&format!("This ({edits})")), yes || planned.disturbed.is_empty())?;
        let promised = Edits { promise: Some(planned.promise.clone()), ..edits.clone() };
        match control.edit(&promised, &planned.revision) {
            Err(error) if error.downcast_ref().is_some_and(Failure::is_outdated) => {
                let most = if planned.disturbed.is_empty() { PLANS_MAX } else { ASKED_MAX };
                if plans >= most {
                    return Err(error);
                }
                if plans == 1 {
                    say("somebody else has changed the configuration meanwhile: the plan is made again");
                }
            }
            made => return Ok((made?, planned)),
        }
    }
}

/// How often it is looked whether hosts have left.
const LOOK: Duration = Duration::from_millis(200);

/// Closes a port, and waits until the controllers that hosts have through it have ended.
pub(super) fn drain(control: &ControlClient, drain: &DrainPort, yes: bool, global: &Global) -> Outcome {
    let before = control.status()?;
    let of_port = before.controllers.iter().filter(|it| it.port == drain.port);
    let mut left: Vec<(String, u16, u64)> =
        of_port.map(|it| (it.subsystem_nqn.clone(), it.cntlid, it.connected_since_unix_ms)).collect();
    let (applied, planned) = make_edit(control, Edit::Disable { object: Object::Port(drain.port.clone()) }, yes)?;
    let end = Instant::now() + drain.wait;
    let mut told = usize::MAX;
    loop {
        let status = control.status()?;
        left.retain(|(nqn, cntlid, since)| {
            // To the second: the time is computed from two clocks.
            let is_it = |other: u64| other.abs_diff(*since) < 1000;
            let same = |it: &&ebof_manage::api::ControllerStatus| it.subsystem_nqn == *nqn && it.cntlid == *cntlid;
            status.controllers.iter().find(same).is_some_and(|it| is_it(it.connected_since_unix_ms))
        });
        if left.is_empty() {
            break;
        }
        if left.len() != std::mem::replace(&mut told, left.len()) && global.format == OutputFormat::Normal {
            say(&format!("port {}: {} still to leave", safe(&drain.port), controllers(left.len())));
        }
        if Instant::now() >= end {
            let message = format!("port {} is disabled, and {} not left", safe(&drain.port), controllers(left.len()));
            let advice =
                "their commands have not ended: see `ebof target status`, and the devices below the namespaces";
            return Err(Failure::new("timeout", message, advice).into());
        }
        std::thread::sleep(LOOK);
    }
    show(global, &ShownApplied::applied("target-drain", applied, planned))?;
    Ok(ExitCode::SUCCESS)
}

fn controllers(count: usize) -> String {
    format!("{count} controller{}", if count == 1 { " has" } else { "s have" })
}
