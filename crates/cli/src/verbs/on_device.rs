//! What most verbs share: the device is opened, commands are sent to it, and the result is printed.
//! Which commands, and what is printed, is the verb's.

use std::process::ExitCode;

use ebof_nvme::Nsid;

use super::Outcome;
use super::number;
use crate::device::{Device, DeviceArgs, Needs, namespace_of};
use crate::failure::Failure;
use crate::global::{Global, OutputFormat};
use crate::output::{View, show};

/// Opens the device, calls `verb` with it, and prints the view that it returns.
///
/// # Errors
/// Of opening, of `verb`, and of printing.
pub(super) fn on_device<V: View>(
    args: &DeviceArgs,
    needs: Needs,
    global: &Global,
    verb: impl FnOnce(&mut dyn Device) -> anyhow::Result<V>,
) -> Outcome {
    let mut device = args.open(needs, global)?;
    show(global, &verb(&mut *device)?)?;
    Ok(ExitCode::SUCCESS)
}

/// DEVICE, and the namespace that a verb is about.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct NamespaceArgs {
    #[command(flatten)]
    pub(super) device: DeviceArgs,
    /// The namespace, if DEVICE does not name one
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    pub(super) namespace_id: Option<u32>,
}

impl NamespaceArgs {
    /// The namespace: that of the option, otherwise the one in the device's name.
    ///
    /// # Errors
    /// Neither names one.
    pub(super) fn nsid(&self, device: &dyn Device) -> Result<Nsid, Failure> {
        namespace_of(device, self.namespace_id)
    }

    /// As [`on_device`], for a verb about one namespace.
    ///
    /// # Errors
    /// As [`on_device`], and as [`Self::nsid`].
    pub(super) fn on_namespace<V: View>(
        &self,
        needs: Needs,
        global: &Global,
        verb: impl FnOnce(&mut dyn Device, Nsid) -> anyhow::Result<V>,
    ) -> Outcome {
        on_device(&self.device, needs, global, |device| {
            let nsid = self.nsid(device)?;
            verb(device, nsid)
        })
    }
}

/// `-b` of verbs that print a data structure.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RawBinary {
    /// The bytes as the controller returned them, as -o binary
    #[arg(short = 'b', long)]
    raw_binary: bool,
}

impl RawBinary {
    /// The global options with this one.
    pub(super) fn apply(&self, global: &Global) -> Global {
        let mut global = global.clone();
        if self.raw_binary {
            global.format = OutputFormat::Binary;
        }
        global
    }
}

/// How much of a data structure is shown.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Shown {
    #[command(flatten)]
    raw: RawBinary,
    /// Explain each bit, as -v
    #[arg(short = 'H', long)]
    human_readable: bool,
}

impl Shown {
    /// The global options with these.
    pub(super) fn apply(&self, global: &Global) -> Global {
        let mut global = self.raw.apply(global);
        global.verbose = global.verbose.max(u8::from(self.human_readable));
        global
    }
}
