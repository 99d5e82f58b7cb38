//! What most verbs share: the device is opened, commands are sent to it, and the result is printed.
//! Which commands, and what is printed, is the verb's.

use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, FromArgMatches as _};
use ebof_nvme::Nsid;

use super::Outcome;
use super::number;
use crate::device::{Device, DeviceArgs, Needs, namespace_of};
use crate::failure::Failure;
use crate::global::{Global, OutputFormat};
use crate::output::{View, show};
use crate::program::Program;
use crate::program::verb::{Run, Takes};

/// A verb that takes DEVICE and arguments of type `T`: the queues that it needs, how its result may
/// be printed, and the function that sends its commands.
pub(super) struct OnDevice<T, V>(
    pub(super) Needs,
    pub(super) Results,
    pub(super) fn(&T, &mut dyn Device) -> anyhow::Result<V>,
);

/// The options of a verb about how its result is printed.
#[derive(Clone, Copy)]
pub(super) enum Results {
    /// None.
    Plain,
    /// Those of [`RawBinary`].
    Raw,
    /// Those of [`Shown`].
    Structure,
}

impl<T: Args + 'static, V: View + 'static> Takes for OnDevice<T, V> {
    fn describe(&self, command: Command) -> Command {
        let command = T::augment_args(DeviceArgs::augment_args(command));
        match self.1 {
            Results::Plain => command,
            Results::Raw => RawBinary::augment_args(command),
            Results::Structure => Shown::augment_args(command),
        }
    }

    fn read<'a>(&self, mut matches: ArgMatches, _program: &'a Program) -> Result<Run<'a>, clap::Error> {
        let &Self(needs, results, on) = self;
        let device = DeviceArgs::from_arg_matches_mut(&mut matches)?;
        let args = T::from_arg_matches_mut(&mut matches)?;
        let shown = match results {
            Results::Plain => Shown::default(),
            Results::Raw => Shown { raw: RawBinary::from_arg_matches_mut(&mut matches)?, human_readable: false },
            Results::Structure => Shown::from_arg_matches_mut(&mut matches)?,
        };
        Ok(Box::new(move |global| on_device(&device, needs, &shown.apply(global), |device| on(&args, device))))
    }
}

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

/// The namespace that a verb is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct NamespaceOption {
    /// The namespace, if DEVICE does not name one
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    pub(super) namespace_id: Option<u32>,
}

impl NamespaceOption {
    /// The namespace: that of the option, otherwise the one in the device's name.
    ///
    /// # Errors
    /// Neither names one.
    pub(super) fn nsid(&self, device: &dyn Device) -> Result<Nsid, Failure> {
        namespace_of(device, self.namespace_id)
    }
}

/// DEVICE, and the namespace that a verb is about.
#[derive(Clone, Debug, Args)]
pub(super) struct NamespaceArgs {
    #[command(flatten)]
    pub(super) device: DeviceArgs,
    #[command(flatten)]
    namespace: NamespaceOption,
}

impl NamespaceArgs {
    /// As [`NamespaceOption::nsid`].
    ///
    /// # Errors
    /// As there.
    pub(super) fn nsid(&self, device: &dyn Device) -> Result<Nsid, Failure> {
        self.namespace.nsid(device)
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
#[derive(Clone, Debug, Default, Args)]
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
#[derive(Clone, Debug, Default, Args)]
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
