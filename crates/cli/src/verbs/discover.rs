//! `discover`: the log of a discovery service.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

use super::Outcome;
use super::everything::left_out;
use super::fabric::FabricArgs;
use super::services::{OwnPorts, Places, Sources, ask_all, sources, warn_of_plain_services};
use crate::failure::{self, Failure};
use crate::global::Global;
use crate::output::discovery::DiscoveryView;
use crate::output::{View as _, say, show};

/// Queries a discovery service.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Discover {
    #[command(flatten)]
    fabric: FabricArgs,
    /// Write the log page to a file, as received
    #[arg(short = 'r', long, value_name = "FILE")]
    raw: Option<PathBuf>,
}

impl Discover {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        if self.fabric.overrides.concat {
            let message = "--concat makes keys for TLS with subsystems: discovery services authenticate nobody";
            let advice = "name a key for TLS (--tls --tls-key-file FILE), or leave --concat out: then the log is read \
                          without TLS";
            return Err(Failure::usage(message, advice).into());
        }
        if self.fabric.is_persistent() || self.fabric.vanished.is_some() {
            let message = "--persistent and --vanished are for what connects: `discover` lists what is there now";
            return Err(Failure::usage(message, "use `ebof connect-all --persistent`").into());
        }
        let places = Places::default();
        let Sources { services, wrong, .. } = sources(&self.fabric, &places)?;
        wrong.tell();
        if services.is_empty() {
            let message = "the files name subsystems, but no discovery service";
            return Err(Failure::usage(
                message,
                "connect them with `ebof connect-all`, or say where a service is with -a",
            )
            .into());
        }
        warn_of_plain_services(&services);
        let answers = ask_all(&services, global);
        let mut ports = OwnPorts::default();
        for log in answers.iter().flatten() {
            ports.add(&log.entries);
        }
        let mut status = if wrong.is_error() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        for (service, answer) in services.iter().zip(answers) {
            let log = match answer {
                Ok(log) => log,
                // The others may be there.
                Err(error) if services.len() > 1 => {
                    say(&failure::text(&error));
                    if !ports.has(&service.fabric) {
                        status = ExitCode::FAILURE;
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            if log.left_out > 0 {
                say(&left_out(log.entries.len(), log.left_out).to_string());
                status = ExitCode::FAILURE;
            }
            let view = DiscoveryView::new(log.generation, log.record_format, log.entries);
            match (&self.raw, view.binary()) {
                (Some(path), Some(bytes)) => {
                    std::fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))?;
                    say(&format!("the discovery log is in {}", path.display()));
                }
                _ => show(global, &view)?,
            }
        }
        Ok(status)
    }
}
