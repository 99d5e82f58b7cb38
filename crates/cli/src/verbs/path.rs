//! `path`: the paths of a device, and how they are used. Which path a command takes is decided by
//! the attach daemon.

use std::process::ExitCode;

use clap::ValueEnum;
use ebof_attach::{PathSettings, state::State};

use super::Outcome;
use crate::failure::Failure;
use crate::global::Global;
use crate::output::paths::PathsView;
use crate::output::show;

/// How commands are divided between paths that are equally good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PolicyWord {
    /// The nearest path
    Numa,
    /// One after the other
    RoundRobin,
    /// The one with the fewest outstanding commands
    QueueDepth,
    /// The one where a command is expected to complete first
    Latency,
}

/// Shows the paths of a device, and changes how they are used.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Path {
    /// The device (nvme0, nvme0n1), or what to do with a path of any device
    #[arg(value_name = "DEVICE|enable|disable")]
    what: String,
    /// The path to enable or disable, by its name (nvme0c1) or address
    #[arg(value_name = "PATH")]
    path: Option<String>,
    /// How commands are divided between paths that are equally good
    #[arg(long, value_enum, value_name = "POLICY")]
    policy: Option<PolicyWord>,
    /// The path that is preferred among its equals, by its name or address
    #[arg(long, value_name = "PATH|none")]
    prefer: Option<String>,
}

impl Path {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let (device, settings) = match (self.what.as_str(), self.path) {
            (word @ ("enable" | "disable"), Some(path)) => {
                if self.policy.is_some() || self.prefer.is_some() {
                    let advice = "say that in a call of its own: ebof path DEVICE --policy round-robin";
                    return Err(Failure::usage(format!("path {word} has no other options"), advice).into());
                }
                let device = device_of(&path)?;
                let settings = if word == "enable" {
                    PathSettings { enable: Some(path), ..PathSettings::default() }
                } else {
                    PathSettings { disable: Some(path), ..PathSettings::default() }
                };
                (device, settings)
            }
            (word @ ("enable" | "disable"), None) => {
                let advice = "say which path, by its name or address: `ebof list-subsys` shows them";
                return Err(Failure::usage(format!("path {word} needs a path"), advice).into());
            }
            (device, Some(other)) => {
                let message = format!("{other:?} is more than the device {device}");
                return Err(Failure::usage(message, "path DEVICE [--policy POLICY] [--prefer PATH]").into());
            }
            (device, None) => {
                let policy = self.policy.and_then(|policy| policy.to_possible_value());
                let policy = policy.map(|value| value.get_name().to_owned());
                (device.to_owned(), PathSettings { policy, prefer: self.prefer, ..PathSettings::default() })
            }
        };
        let mut client = ebof_attach::open(&device)?;
        if settings != PathSettings::default() {
            client.set_paths(&settings)?;
        }
        show(global, &PathsView { state: client.status()?.clone() })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The device with the path of this name or address.
fn device_of(path: &str) -> anyhow::Result<String> {
    let states: Vec<State> =
        ebof_attach::list()?.into_iter().filter(|record| record.live).filter_map(|record| record.state).collect();
    let has = |state: &&State| state.paths.iter().any(|known| known.is_called(path));
    let found: Vec<&str> = states.iter().filter(has).map(|state| state.name.as_str()).collect();
    match found.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => {
            let known: Vec<&str> =
                states.iter().flat_map(|state| &state.paths).map(|known| known.name.as_str()).collect();
            let there = if known.is_empty() { "nothing is connected".to_owned() } else { known.join(", ") };
            Err(Failure::usage(format!("no path is called {path}"), format!("there are: {there}")).into())
        }
        several => {
            let message = format!("paths of {} are called {path}", several.join(" and "));
            Err(Failure::usage(message, "name one of them: `ebof list-subsys` shows the names").into())
        }
    }
}
