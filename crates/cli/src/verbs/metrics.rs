//! `metrics`: what this host has attached, once, as metrics.

use std::process::ExitCode;

use super::Outcome;
use crate::global::Global;
use crate::output::host_metrics::HostMetrics;
use crate::output::text::safe;
use crate::output::{say, show};
use crate::top::ThisHost;

/// Prints metrics of what this host has attached.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Metrics {}

impl Metrics {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let (objects, remarks) = ThisHost::new(None).counted()?;
        for remark in remarks {
            say(&safe(&remark));
        }
        show(global, &HostMetrics { objects })?;
        Ok(ExitCode::SUCCESS)
    }
}
