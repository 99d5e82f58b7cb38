//! `connect-all`: connects what discovery services list, or what a file names.

use std::path::PathBuf;
use std::process::ExitCode;

use super::Outcome;
use super::connect::Front;
use super::connect_file::FromFile;
use super::everything::Everything;
use super::fabric::FabricArgs;
use super::persistent::{HeldService, Persistent};
use super::services::{DiscoveryService, NamedSubsystem, Places, Rules, Wrong, sources};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::show;

/// Connects everything that a discovery service lists.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectAll {
    #[command(flatten)]
    fabric: FabricArgs,
    /// The kind of block device
    #[arg(long, value_enum, default_value_t = Front::Auto, value_name = "KIND")]
    front: Front,
    /// Connect what this file names instead: /etc/ebof/connections.toml at boot
    #[arg(long, value_name = "FILE", conflicts_with_all = ["traddr", "trsvcid", "nqn"])]
    connections: Option<PathBuf>,
    /// Of the file, only the connection with this name; several times for several
    #[arg(long, value_name = "NAME", requires = "connections")]
    only: Vec<String>,
    /// Try again until everything in the file is connected
    #[arg(long, requires = "connections")]
    retry: bool,
}

impl ConnectAll {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        if let Some(path) = self.connections {
            // Somebody may believe that they are in effect: `--tls`, say.
            if self.fabric.says_something() || self.front != Front::Auto {
                let message = "with --connections, options of connections have no effect";
                return Err(
                    Failure::usage(message, "write them into the file, to the connections that they are for").into()
                );
            }
            let owner = self.fabric.owner;
            return FromFile { path, only: self.only, retry: self.retry, owner }.run(global);
        }
        let places = Places::default();
        if self.fabric.mdns && self.fabric.is_persistent() {
            self.fabric.check()?;
            let service = DiscoveryService::new(self.fabric);
            let held = HeldService { service, front: self.front.into(), first_log: None };
            match Persistent::new(global).run(vec![held], 0)? {}
        }
        let sources = sources(&self.fabric, &places)?;
        let (rules, excluded_wrong) = Rules::read(&places);
        let mut wrong = sources.wrong;
        wrong.0.extend(excluded_wrong.0);
        wrong.tell();
        let mut run = Everything::new(self.front.into(), rules, global);
        if self.fabric.is_persistent() {
            return self.hold(run, sources.services, &sources.subsystems, wrong, global);
        }
        run.follow_services(sources.services, &sources.subsystems, global)?;
        let view = run.into_view().with_wrong(wrong.0);
        show(global, &view)?;
        Ok(if view.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Connects what files name, and holds the services.
    fn hold(
        self,
        mut run: Everything,
        services: Vec<DiscoveryService>,
        subsystems: &[NamedSubsystem],
        wrong: Wrong,
        global: &Global,
    ) -> Outcome {
        let services = run.without_excluded(services);
        let (once, held): (Vec<_>, Vec<_>) = services.into_iter().partition(|it| it.fabric.is_asked_once());
        let only = once.first().and_then(|service| service.fabric.traddr.clone()).unwrap_or_default();
        let asked = if once.is_empty() && subsystems.is_empty() {
            Ok(())
        } else {
            run.follow_services(once, subsystems, global)
        };
        let mut view = run.into_view();
        match asked {
            // The others are held all the same.
            Err(error) if !held.is_empty() => view.failed.push((only, error)),
            asked => asked?,
        }
        let is_empty = view.is_empty();
        let view = view.with_wrong(wrong.0);
        if !is_empty || held.is_empty() {
            show(global, &view)?;
        }
        if held.is_empty() {
            return Ok(if view.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        let held = held.into_iter().map(|mut service| {
            // That the command line says counts for all.
            service.fabric.vanished = service.fabric.vanished.or(self.fabric.vanished);
            HeldService { service, front: self.front.into(), first_log: None }
        });
        match Persistent::new(global).run(held.collect(), i32::from(!view.is_success()))? {}
    }
}
