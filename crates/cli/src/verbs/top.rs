//! `top`: what a target or this host does, second by second. The loop is in `crate::top`.

use super::Outcome;
use crate::control::{ControlClient, Reach};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::top::Kind;
use crate::top::{self, Sources, TableOptions, ThisHost, Whose};

/// `top`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TopVerb {
    /// Only this device of the host: nvme0, nvme0n1 or a block device [default: the target that
    /// runs on this machine, or else all that this host has attached]
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
    /// Show a target
    #[arg(long, conflicts_with_all = ["device", "host"])]
    target: bool,
    /// Show what this host has attached
    #[arg(long)]
    host: bool,
    /// The kind of object [default: namespaces of a host; functions of a target, drives where no
    /// drive has functions, and so on]
    #[arg(long, value_enum, value_name = "KIND")]
    kind: Option<Kind>,
    #[command(flatten)]
    look: TableOptions,
    #[command(flatten)]
    reach: Reach,
}

/// `target top`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TargetTop {
    /// The kind of object [default: functions; drives where no drive has functions, and so on]
    #[arg(value_enum)]
    kind: Option<Kind>,
    #[command(flatten)]
    look: TableOptions,
}

impl TopVerb {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let Self { device, target, host, kind, look, reach } = self;
        let is_reached = reach.is_given();
        if is_reached && (device.is_some() || host) {
            let message = "a device or --host is of this machine, and --control or --server of a target";
            return Err(Failure::usage(message, "leave one of them out").into());
        }
        let is_of_host = device.is_some() || host;
        let sources = Sources { target: ControlClient::new(reach)?, host: ThisHost::new(device) };
        let whose = if is_of_host {
            Whose::Host
        } else if target || is_reached {
            Whose::Target
        } else {
            chosen(&sources.target, kind)
        };
        top::run(sources, whose, kind, &look, global)
    }
}

/// Who is shown where nobody has said it: who alone has such objects, otherwise the target of this
/// machine if it answers.
fn chosen(target: &ControlClient, kind: Option<Kind>) -> Whose {
    let has = |whose: Whose| kind.is_none_or(|kind| whose.has(kind));
    match (has(Whose::Target), has(Whose::Host)) {
        (true, true) if target.overview().is_err() => Whose::Host,
        (false, _) => Whose::Host,
        _ => Whose::Target,
    }
}

impl TargetTop {
    pub(super) fn run(self, target: ControlClient, global: &Global) -> Outcome {
        top::run(Sources { target, host: ThisHost::new(None) }, Whose::Target, self.kind, &self.look, global)
    }
}
