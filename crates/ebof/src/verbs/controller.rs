//! The controller itself: `show-regs`, `reset`, `ns-rescan`.

use std::process::ExitCode;

use super::Outcome;
use super::identify::Shown;
use crate::command;
use crate::device::{DeviceArgs, Needs};
use crate::global::Global;
use crate::output::done::Done;
use crate::output::registers::{PROPERTIES, RegistersView};
use crate::output::show;

/// The controller's properties.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ShowRegs {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    shown: Shown,
}

impl ShowRegs {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let mut device = self.device.open(Needs::Admin, global)?;
        let mut values = Vec::new();
        for (offset, symbol, bytes, _) in PROPERTIES {
            if let Some(value) = command::property(&mut *device, offset, bytes)? {
                values.push((symbol, value));
            }
        }
        show(&self.shown.apply(global), &RegistersView { values })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A verb about a controller without options.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Plain {
    #[command(flatten)]
    device: DeviceArgs,
}

impl Plain {
    /// Drops the connections and makes new ones.
    pub(crate) fn reset(self, global: &Global) -> Outcome {
        self.device.open(Needs::Admin, global)?.reset()?;
        show(global, &Done::new("reset", self.device.name(), "Success"))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Has the block devices follow the namespaces.
    pub(crate) fn rescan(self, global: &Global) -> Outcome {
        self.device.open(Needs::Admin, global)?.rescan()?;
        show(global, &Done::new("ns-rescan", self.device.name(), "Success"))?;
        Ok(ExitCode::SUCCESS)
    }
}
