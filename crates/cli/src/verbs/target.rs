//! `target`: shows and changes a running target through its control socket.
//!
//! Owns the arguments and which changes they mean. The socket is in `crate::control`, the output in
//! `output::target`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use ebof_manage::Config;
use ebof_manage::config::ManagedDrive;
use ebof_manage::edit::{Edit, Object};
use ebof_manage::enclosure::{
    Change, ChangePlan, DisturbedHost, FunctionName, NamespaceName, NewDrive, Rate, Task, TaskState, Transaction,
};
use ebof_manage::units::{DURATION_FORM, parse_duration, parse_size};
use serde_json::Value;

use super::any_namespace::{AddNamespace, Meaning, RemoveNamespace, Set};
use super::remote::{AccountAction, CertificateAction};
use super::target_drives::{DriveAction, Means};
use super::target_keys::{KeyAction, NewKey, RemoveKeys, Rotated};
use super::{Outcome, edit, question, watch};
use crate::control::{ControlClient, Reach};
use crate::failure::Failure;
use crate::file::Kind;
use crate::global::{Global, OutputFormat};
use crate::output::configuration::ShownApplied;
use crate::output::drive::ShownDrive;
use crate::output::status::{ShownHosts, ShownStatus};
use crate::output::target::{ShownInventory, ShownTask, ShownTasks};
use crate::output::text::safe;
use crate::output::{say, show};

/// A running target.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TargetVerb {
    #[command(flatten)]
    reach: Reach,
    /// How long commands of hosts may take to end before they are aborted, such as 30s
    #[arg(long, value_name = "DURATION", global = true, value_parser = duration)]
    drain: Option<Duration>,
    /// Return when the change has begun; `ebof target tasks` shows how far it is
    #[arg(long, global = true)]
    no_wait: bool,
    /// Do not ask where connected hosts notice a change
    #[arg(short, long, global = true)]
    yes: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Show drives, functions, namespaces, ports and hosts: who has what
    Show {
        /// Show only this drive, with its firmware, formats, health, logs and controllers; `hosts`:
        /// the connected hosts, and how each has proven who it is; `keys`: which keys hosts have
        drive: Option<String>,
    },
    /// Show ports, subsystems, controllers and what was transferred
    Status,
    /// Show what has happened: hosts, refusals, changes, tasks, health
    Events(watch::ShowEvents),
    /// Show who has changed what and what was refused, and whether that log was changed
    Audit(super::audit::ShowAudit),
    /// Show what functions, drives, ports, namespaces, hosts and queues do, second by second
    Top(super::top::TargetTop),
    /// Show slow commands, and where their time went
    Slow(watch::Slow),
    /// Say what contradicts where two targets serve one subsystem, running or by their
    /// configurations
    Compare(super::compare_targets::CompareTargets),
    /// Read the configuration file again, as SIGHUP does, and fail if it is refused
    Reload,
    /// Give a function to a port or several, or take it from those that it has
    #[command(group = clap::ArgGroup::new("place").required(true).args(["port", "none"]))]
    Assign {
        /// The function, such as d3/vf2
        function: FunctionName,
        /// All ports that it is to have, separated by commas
        #[arg(long, value_name = "PORT", value_delimiter = ',')]
        port: Vec<String>,
        /// Take it from the ports that it has
        #[arg(long)]
        none: bool,
    },
    /// Move a function to another port, or others, without stopping anything else
    Move {
        /// The function, such as d3/vf2
        function: FunctionName,
        /// All ports that it is to have, separated by commas; what it has of them, it keeps
        #[arg(long, value_name = "PORT", value_delimiter = ',', required = true)]
        to: Vec<String>,
    },
    /// Attach a namespace to one function, and detach it from all others and from hosts
    Map {
        /// The namespace, such as d3/ns4
        namespace: NamespaceName,
        /// The function, such as d3/vf2
        #[arg(long, value_name = "FUNCTION")]
        vf: FunctionName,
    },
    /// Detach a namespace from all functions and, if it is private, from hosts
    Unmap {
        /// The namespace, such as d3/ns4
        namespace: NamespaceName,
    },
    /// Set the weight of a function among those of its drive
    Weight {
        /// The function, such as d3/vf2
        function: FunctionName,
        /// 1 to 1000; functions begin with 1: one of weight 4 gets four times as much
        weight: u16,
    },
    /// Limit a function; what is not named stays as it is
    #[command(group = clap::ArgGroup::new("limit").required(true).multiple(true).args(["iops", "bandwidth", "minimum_iops"]))]
    Limit {
        /// The function, such as d3/vf2
        function: FunctionName,
        /// Operations in a second at most, such as 50k, or none
        #[arg(long, value_name = "N|none", value_parser = rate)]
        iops: Option<Rate>,
        /// Bytes in a second at most, such as 1G, or none
        #[arg(long, value_name = "SIZE|none", value_parser = rate)]
        bandwidth: Option<Rate>,
        /// Operations in a second that it gets at least, such as 5k, or none
        #[arg(long, value_name = "N|none", value_parser = rate)]
        minimum_iops: Option<Rate>,
    },
    /// Reset the primary controller of a drive: all its functions go offline
    Reset {
        /// The drive, such as d3
        drive: String,
    },
    /// Make the changes of a file together: all of them, or none
    Change {
        /// A transaction in JSON (`ebof man ebof-json`, Target)
        file: PathBuf,
    },
    /// Show what is being changed, and what was
    Tasks {
        /// One task
        id: Option<u64>,
        /// Wait for its end
        #[arg(long, requires = "id")]
        wait: bool,
    },
    #[command(flatten)]
    Drive(DriveAction),
    /// The accounts of those who manage the target over the network
    #[command(subcommand)]
    Account(AccountAction),
    /// The certificate that the target shows over the network
    #[command(subcommand)]
    Certificate(CertificateAction),
    /// Add something while the target runs
    #[command(subcommand)]
    Add(Added),
    /// Replace something without an interruption
    #[command(subcommand)]
    Rotate(Rotated),
    /// Remove something while the target runs
    #[command(subcommand)]
    Remove(Removed),
    /// Set a property of a namespace of a drive, or keys of an object's configuration
    Set(Set),
    /// Make a namespace larger that stores its data in a file
    Resize(edit::Resize),
    /// Have something there for hosts again
    #[command(subcommand)]
    Enable(edit::Disabled),
    /// Keep hosts from something, which stays in the configuration
    #[command(subcommand)]
    Disable(edit::Disabled),
    /// Disable a port, and wait until its hosts have left
    Drain(edit::DrainPort),
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Added {
    /// A drive, with a subsystem of its own
    Drive {
        /// The drive, as for `ebof serve --drive`: name=NAME,backing=PATH,size=SIZE and more
        #[arg(value_name = "KEY=VALUE,...")]
        drive: String,
        /// Its subsystem's NQN [default: that of the last drive with this one's name]
        #[arg(long, value_name = "NQN")]
        nqn: Option<String>,
        /// Reach its own subsystem through this port; several times for several ports [default:
        /// those of the last drive]
        #[arg(long, value_name = "PORT")]
        port: Vec<String>,
        /// Let this host connect; several times for several hosts
        /// [default: those of the last drive]
        #[arg(long, value_name = "NQN")]
        host: Vec<String>,
        /// Let any host connect
        #[arg(long, conflicts_with = "host")]
        allow_any_host: bool,
    },
    /// A namespace of a drive or of a subsystem
    Namespace(AddNamespace),
    /// A subsystem, with its namespaces
    Subsystem(edit::AddSubsystem),
    /// A host
    Host(edit::AddHost),
    /// A port
    Port(edit::AddPort),
    /// A key of a host, by which it proves who it is
    Key(NewKey),
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Removed {
    /// A drive; its data stay where they are
    Drive {
        /// The drive, such as d3
        drive: String,
        /// At once, as if it were pulled out: commands fail, and it is not closed in order
        #[arg(long)]
        surprise: bool,
    },
    /// A namespace of a drive (ALL ITS DATA ARE LOST) or of a subsystem
    Namespace(RemoveNamespace),
    /// A subsystem, with its namespaces; their data stay where they are
    Subsystem {
        /// Its NQN
        nqn: String,
    },
    /// A host
    Host {
        /// Its NQN
        nqn: String,
    },
    /// A port
    Port {
        /// Its name
        name: String,
    },
    /// Keys of a host
    Key(RemoveKeys),
}

impl TargetVerb {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        match &self.action {
            Action::Audit(audit) if !audit.asks_target() => {
                // A log that is intact in one place says nothing of the other.
                if self.reach.is_given_at_all() {
                    let message = "--directory reads files here, and a target is named, too";
                    return Err(Failure::usage(message, "leave one of them out").into());
                }
                audit.clone().run_on_files(global)
            }
            Action::Compare(compare) => compare.clone().run(&self.reach, global),
            _ => self.run_at_target(global),
        }
    }

    fn run_at_target(self, global: &Global) -> Outcome {
        let control = ControlClient::new(self.reach)?;
        let action = match self.action.meaning()? {
            Ok(Meaning::Edit(edit)) => return edit::carry_out(&control, edit, self.yes, global),
            Ok(Meaning::Keys(keys)) => return keys.run(&control, self.yes, global),
            Ok(Meaning::Change(change, loss)) => {
                let drain_ms = self.drain.map(milliseconds);
                let (no_wait, yes) = (self.no_wait, self.yes);
                let means = Means { control: &control, drain_ms, no_wait, yes, global };
                return means.make(&change, loss.as_ref());
            }
            Err(action) => action,
        };
        let change = match action {
            Action::Drain(drain) => return edit::drain(&control, &drain, self.yes, global),
            Action::Show { drive: Some(hosts) } if hosts == "hosts" => {
                show(global, &ShownHosts(control.status()?))?;
                return Ok(ExitCode::SUCCESS);
            }
            Action::Show { drive: Some(drive) } => {
                show(global, &ShownDrive(control.drive(&drive)?))?;
                return Ok(ExitCode::SUCCESS);
            }
            Action::Show { drive: None } => {
                show(global, &ShownInventory(control.inventory()?))?;
                return Ok(ExitCode::SUCCESS);
            }
            Action::Status => {
                let (status, configuration) = (control.status()?, control.configuration()?);
                show(global, &ShownStatus { status, configuration })?;
                return Ok(ExitCode::SUCCESS);
            }
            Action::Events(events) => return events.run(&control, global),
            Action::Audit(audit) => return audit.run(&control, global),
            Action::Top(top) => return top.run(control, global),
            Action::Slow(slow) => return slow.run(&control, global),
            Action::Reload => {
                show(global, &ShownApplied::reloaded(control.reload()?))?;
                return Ok(ExitCode::SUCCESS);
            }
            Action::Account(action) => return action.run(&control, global),
            Action::Certificate(action) => return action.run(&control, global),
            Action::Tasks { id: None, .. } => {
                show(global, &ShownTasks(control.tasks()?))?;
                return Ok(ExitCode::SUCCESS);
            }
            Action::Tasks { id: Some(id), wait } => {
                let task = control.task(id)?;
                let task = if wait { follow(&control, task, global)? } else { task };
                return end(task, global);
            }
            Action::Change { file } => {
                let text = crate::file::read_text(&file, "the transaction", FILE_BYTES_MAX, Kind::Any)?;
                let mut transaction: Transaction = serde_json::from_str(&text)
                    .with_context(|| format!("{}: this is no transaction", file.display()))?;
                transaction.drain_ms = self.drain.map(milliseconds).or(transaction.drain_ms);
                return carry_out(&control, &transaction, (self.no_wait, self.yes), global);
            }
            Action::Drive(action) => {
                let drain_ms = self.drain.map(milliseconds);
                let (no_wait, yes) = (self.no_wait, self.yes);
                let means = Means { control: &control, drain_ms, no_wait, yes, global };
                return action.run(&means);
            }
            other => other.change()?,
        };
        let drain_ms = self.drain.map(milliseconds);
        let transaction = Transaction { changes: vec![change], drain_ms, revision: None };
        carry_out(&control, &transaction, (self.no_wait, self.yes), global)
    }
}

impl Action {
    /// The edit of the configuration that it means, the change of a drive that its words may mean
    /// as well, or what it does with keys; otherwise itself.
    fn meaning(self) -> Result<Result<Meaning, Self>, Failure> {
        let removed = |object| Edit::Remove { object };
        let edit = match self {
            Self::Add(Added::Namespace(add)) => return Ok(Ok(add.meaning()?)),
            Self::Remove(Removed::Namespace(removed)) => return Ok(Ok(removed.meaning())),
            Self::Set(set) => return Ok(Ok(set.meaning()?)),
            Self::Show { drive: Some(what) } if what == "keys" => return Ok(Ok(Meaning::Keys(KeyAction::Show))),
            Self::Add(Added::Key(new)) => return Ok(Ok(Meaning::Keys(KeyAction::Add(new)))),
            Self::Rotate(Rotated::Key(new)) => return Ok(Ok(Meaning::Keys(KeyAction::Rotate(new)))),
            Self::Remove(Removed::Key(keys)) => return Ok(Ok(Meaning::Keys(KeyAction::Remove(keys)))),
            Self::Add(Added::Subsystem(add)) => add.edit()?,
            Self::Add(Added::Host(add)) => add.edit()?,
            Self::Add(Added::Port(add)) => add.edit()?,
            Self::Remove(Removed::Subsystem { nqn }) => removed(Object::Subsystem(nqn)),
            Self::Remove(Removed::Host { nqn }) => removed(Object::Host(nqn)),
            Self::Remove(Removed::Port { name }) => removed(Object::Port(name)),
            Self::Resize(resize) => resize.edit(),
            Self::Enable(object) => Edit::Enable { object: object.object() },
            Self::Disable(object) => Edit::Disable { object: object.object() },
            other => return Ok(Err(other)),
        };
        Ok(Ok(Meaning::Edit(edit)))
    }

    /// The change that it means.
    fn change(self) -> anyhow::Result<Change> {
        Ok(match self {
            Self::Assign { function, port, .. } => Change::Assign { function, ports: port.into_iter().collect() },
            Self::Move { function, to } => Change::Move { function, to: to.into_iter().collect() },
            Self::Map { namespace, vf } => Change::Map { namespace, function: Some(vf) },
            Self::Unmap { namespace } => Change::Map { namespace, function: None },
            Self::Weight { function, weight } => Change::Weight { function, weight },
            Self::Limit { function, iops, bandwidth, minimum_iops } => {
                Change::Limit { function, iops, bytes_per_second: bandwidth, minimum_iops }
            }
            Self::Reset { drive } => Change::ResetDrive { drive },
            Self::Add(Added::Drive { drive, nqn, port, host, allow_any_host }) => {
                let drive = new_drive(&drive, &std::env::current_dir().context("the working directory")?)?;
                let ports = (!port.is_empty()).then_some(port);
                Change::AddDrive(NewDrive { drive, nqn, ports, allowed_hosts: host, allow_any_host })
            }
            Self::Remove(Removed::Drive { drive, surprise }) => Change::RemoveDrive { drive, surprise },
            Self::Drive(action) => action.change()?.0,
            _ => {
                return Err(Failure::usage("this changes nothing", "see `ebof target --help`").into());
            }
        })
    }
}

/// A drive in words, with the keys of a configuration. Its paths are relative to `base`: the
/// target's working directory is another one.
fn new_drive(words: &str, base: &Path) -> anyhow::Result<serde_json::Map<String, Value>> {
    let drive: ManagedDrive = words.parse().map_err(|error: ebof_manage::config::WordsError| {
        Failure::usage(format!("the drive `{words}`: {error}"), error.advice())
    })?;
    let mut config = Config { drives: vec![drive], ..Config::default() };
    config.rebase(base);
    match serde_json::to_value(config.drives.first())? {
        Value::Object(keys) => Ok(keys),
        _ => Ok(serde_json::Map::new()),
    }
}

/// How often hosts are looked at again.
const PLANS_MAX: usize = 5;

/// Begins changes, after a look at the hosts that notice them, and a question where there are any.
/// What was looked at is sent along: if it has changed by then, it is looked at again.
pub(super) fn begin(control: &ControlClient, transaction: &Transaction, yes: bool) -> anyhow::Result<Task> {
    let mut plans = 0;
    loop {
        plans += 1;
        let plan = ChangePlan::new(&control.inventory()?, &transaction.changes);
        let mut lines: Vec<String> = plan.disturbed.iter().map(disturbed).collect();
        if plan.disturbed_left_out > 0 {
            lines.push(format!("and {} more", plan.disturbed_left_out));
        }
        if yes {
            lines.iter().for_each(|line| say(line));
        } else if !lines.is_empty() {
            let first = plan.changes.first().map(|change| safe(change)).unwrap_or_default();
            let more = match plan.changes.len() {
                0 | 1 => String::new(),
                several => format!(", and {} more", several - 1),
            };
            question::ask(&format!("This ({first}{more}) is noticed by connected hosts."), &lines, "--yes")?;
        }
        let revision = transaction.revision.clone().or_else(|| (!yes).then_some(plan.revision));
        let asked = Transaction { revision, ..transaction.clone() };
        match control.begin(&asked) {
            Err(error) if plans < PLANS_MAX && transaction.revision.is_none() && error.is_outdated() => {
                say("hosts have come or gone meanwhile: they are looked at again");
            }
            begun => return Ok(begun?),
        }
    }
}

fn disturbed(host: &DisturbedHost) -> String {
    let DisturbedHost { host_nqn, port, cntlid, why, .. } = host;
    safe(&format!("{host_nqn} (controller {cntlid} through {port}): {why}"))
}

pub(super) fn carry_out(
    control: &ControlClient,
    transaction: &Transaction,
    (no_wait, yes): (bool, bool),
    global: &Global,
) -> Outcome {
    let task = begin(control, transaction, yes)?;
    if no_wait {
        show(global, &ShownTask(task))?;
        return Ok(ExitCode::SUCCESS);
    }
    let task = follow(control, task, global)?;
    end(task, global)
}

/// Waits for the end of a task, and tells what takes long.
pub(super) fn follow(control: &ControlClient, task: Task, global: &Global) -> anyhow::Result<Task> {
    let tells = global.format == OutputFormat::Normal;
    Ok(control.wait(task, |task| {
        let is_long = task.elapsed_ms >= TOLD_AFTER_MS || global.is_verbose();
        if tells && is_long && !task.is_over() {
            let detail = task.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
            say(&format!("task {}: {} ({} %){detail}", task.id, task.phase, task.percent));
        }
    })?)
}

/// The outcome of a task.
pub(super) fn end(task: Task, global: &Global) -> Outcome {
    if let (TaskState::Failed, Some(error)) = (task.state, &task.error) {
        let left = error.remains.iter().map(|left| format!("\n  NOT taken back: {left}")).collect::<String>();
        let message = format!("task {}: {} ({})", task.id, error.message, error.phase);
        return Err(Failure::new("task-failed", message, format!("{}{left}", error.advice)).into());
    }
    show(global, &ShownTask(task))?;
    Ok(ExitCode::SUCCESS)
}

/// What takes longer is told step by step.
const TOLD_AFTER_MS: u64 = 300;

/// More than a transaction that the target takes.
const FILE_BYTES_MAX: u64 = 1 << 20;

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| format!("it {error}: accepted is {DURATION_FORM}"))
}

fn rate(text: &str) -> Result<Rate, String> {
    if text == "none" {
        return Ok(Rate(None));
    }
    let number = parse_size(text).map_err(|error| format!("it {error}: accepted is a number such as 50k, or none"))?;
    Ok(Rate(Some(number)))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        target: TargetVerb,
    }

    fn change(line: &str) -> Result<Change, String> {
        let words = std::iter::once("target").chain(line.split(' '));
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let text = |error: Failure| format!("{error}; {}", error.advice().unwrap_or_default());
        match line.target.action.meaning().map_err(text)? {
            Ok(Meaning::Change(change, _)) => Ok(change),
            Ok(Meaning::Edit(edit)) => Err(format!("an edit: {edit:?}")),
            Ok(Meaning::Keys(_)) => Err("keys".to_owned()),
            Err(action) => action.change().map_err(|error| error.to_string()),
        }
    }

    #[test]
    fn words_become_changes() {
        let lines = [
            "assign d3/vf2 --port fabric0",
            "assign d3/vf2 --port fabric0,fabric1",
            "assign d3/vf2 --none",
            "move d3/vf2 --to direct1",
            "map d3/ns4 --vf d3/vf2",
            "unmap d3/ns4",
            "weight d3/vf2 4",
            "limit d3/vf2 --iops 50k --bandwidth 1G",
            "limit d3/vf2 --minimum-iops none",
            "reset d3",
            "add drive name=d5,backing=mem:1G --port fabric0 --allow-any-host",
            "remove drive d5 --surprise",
            "add namespace d3 100G",
            "add namespace d3 1Gi --capacity 1M --block-size 512 --metadata 8 --protection 1 --shared --nsid 9 --attach d3/vf2 \
             --attach nqn.2014-08.org.example:host --attach *",
            "remove namespace d3/ns4 --yes-destroy-data d3/ns4",
            "attach d3/ns4 d3/vf2",
            "detach d3/ns4 nqn.2014-08.org.example:host",
            "format d3/ns4",
            "format d3/ns4 --block-size 512 --erase user-data",
            "sanitize d3",
            "sanitize d3 --action overwrite --passes 3 --pattern 0xff --invert",
            "self-test d3",
            "self-test d3 --extended",
            "self-test d3 --abort",
            "firmware d3 --slot 2 --activate",
            "firmware d3 --slot 2 --activate at-reset",
            "set d3/ns4 write-protect=on",
            "set d3/ns4 ana-group=2",
        ];
        let changes: Vec<String> = lines.iter().map(|line| change(line).unwrap().to_string()).collect();
        insta::assert_snapshot!(changes.join("\n"));
    }

    #[test]
    fn what_is_no_change_is_refused_with_what_is_accepted() {
        for (line, told) in [
            ("assign d3/vf2", "--port <PORT>|--none"),
            ("assign d3/vf2 --none --port a", "cannot be used with"),
            ("assign d3 --none", "such as d3/vf2"),
            ("map d3/vf4 --vf d3/vf2", "such as d3/ns4"),
            ("limit d3/vf2", "--iops"),
            ("limit d3/vf2 --iops many", "such as 50k"),
            ("add drive name=d5", "there is no `backing`"),
            ("tasks --wait", "<ID>"),
            ("add namespace d3", "<SIZE|BACKING>"),
            ("add namespace d3 many", "such as 100G"),
            ("add namespace d3 1G --attach d3", "such as d3/vf2"),
            ("format d3/ns4 --erase all", "none, user-data, cryptographic"),
            ("sanitize d3 --action shred", "block-erase, overwrite, crypto-erase, exit-failure"),
            ("self-test d3 --extended --abort", "cannot be used with"),
            ("firmware d3", "--file <FILE>|--activate"),
            ("firmware d3 --activate", "--slot <SLOT>"),
            ("set d3/ns4 read-only=on", "write-protect=on, write-protect=off"),
            ("set drives d3 size=1G", "such as d3/ns4"),
            ("add namespace d3 1G --read-only", "--read-only is for namespaces of a subsystem"),
            ("add namespace nqn.2014-08.org.example:a mem:1G --shared", "--shared is for namespaces of a drive"),
            ("add namespace nqn.2014-08.org.example:a mem:1G", "an edit: AddNamespace"),
            ("remove namespace nqn.2014-08.org.example:a/1", "an edit: Remove"),
            ("remove namespace d3", "such as d3/ns4"),
        ] {
            let refused = change(line).unwrap_err();
            assert!(refused.contains(told), "{line}: {refused}");
        }
    }

    #[test]
    fn a_new_drives_path_is_relative_to_the_users_directory() {
        let keys = new_drive("name=d5,backing=d5.img,size=1G", Path::new("/srv")).unwrap();
        assert!(keys["backing"].to_string().contains("/srv/d5.img"), "{keys:?}");
    }
}
