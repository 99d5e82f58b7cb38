//! What drives remember and the configuration does not have: shown and logged, and no reason not to
//! serve the rest.

use std::collections::BTreeMap;

use ebof_manage::Config;
use ebof_manage::config::Subsystem;
use ebof_manage::enclosure::FunctionName;
use ebof_nvme::Nqn;

use crate::life::control::Listening;
use crate::life::startup::{Devices, OpenDrive, StartError};

/// Functions that are given to ports which there are not, and direct ports that several have.
pub(crate) fn contradictions(devices: &Devices, ports: &[Listening], config: &Config) -> Vec<String> {
    let mut all = Vec::new();
    let mut at_direct: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let listening = |port: &str| ports.iter().find(|listening| listening.port.name == port);
    let is_direct = |port: &str| listening(port).is_some_and(|there| !there.port.config.listen.is_network());
    for subsystem in &config.subsystems {
        for port in subsystem.ports.iter().filter(|port| is_direct(port)) {
            at_direct.entry(port).or_default().push(subsystem.nqn.to_string());
        }
    }
    for opened in devices.actors.iter().filter(|opened| !opened.actor.owed_ends().is_empty()) {
        let drive = &opened.config.name;
        all.push(format!(
            "drive {drive} could not store yet that a transaction is over, and the next start would take that back: see the \
             target's log, and look at the device below the drive"
        ));
    }
    let views: Vec<_> = devices.actors.iter().map(|opened| (&opened.config.name, opened.actor.view())).collect();
    for (drive, view) in &views {
        for (&number, function) in &view.functions {
            let name = FunctionName { drive: (*drive).clone(), number };
            for port in function.ports.iter() {
                match listening(port) {
                    None => all.push(format!(
                        "{name} is given to port {port}, which the configuration does not have, or which is disabled: hosts do \
                         not reach it; describe or enable the port, or `ebof target assign {name} --none`"
                    )),
                    Some(there) if there.port.config.discovery_only => all.push(format!(
                        "{name} is given to port {port}, which serves discovery only: hosts do not reach it; `ebof target move \
                         {name} --to PORT`"
                    )),
                    Some(_) if is_direct(port) => at_direct.entry(port).or_default().push(name.to_string()),
                    Some(_) => {}
                }
            }
        }
    }
    for (port, several) in at_direct.into_iter().filter(|(_, there)| there.len() > 1) {
        all.push(format!(
            "direct port {port} is given to {}, and serves one of them: take it from the others (`ebof target assign FUNCTION \
             --none`, or `ports` in the configuration)",
            several.join(" and ")
        ));
    }
    all
}

/// Checks that no direct port that a function has becomes that of a subsystem.
///
/// # Errors
/// All that do.
pub(crate) fn check_ports<'d>(
    drives: impl Iterator<Item = &'d OpenDrive>,
    before: &Config,
    config: &Config,
) -> Result<(), StartError> {
    let mut taken = Vec::new();
    let is_direct = |name: &str| config.ports.iter().any(|port| port.name == name && !port.listen.is_network());
    let had = |nqn: &Nqn, name: &str| {
        before.subsystems.iter().any(|it| it.nqn == *nqn && it.ports.iter().any(|own| own == name))
    };
    for opened in drives {
        for (&number, function) in &opened.actor.view().functions {
            let name = FunctionName { drive: opened.config.name.clone(), number };
            for port in function.ports.iter().filter(|port| is_direct(port)) {
                let has = |subsystem: &Subsystem| subsystem.ports.iter().any(|own| own == port);
                let new = config.subsystems.iter().filter(|it| has(it) && !had(&it.nqn, port));
                taken.extend(new.map(|subsystem| (subsystem.nqn.clone(), port.to_owned(), name.clone())));
            }
        }
    }
    let Some((first, ..)) = taken.first().cloned() else { return Ok(()) };
    let lines = taken.iter().map(|(nqn, port, function)| {
        format!(
            "subsystem {nqn} cannot have direct port {port}, which has {function}: take it from one of them (`ebof target assign \
             {function} --none`)"
        )
    });
    Err(StartError::PortsTaken { subsystem: first, text: lines.collect::<Vec<_>>().join("; ") })
}

/// Logs them.
pub(crate) fn log(devices: &Devices, ports: &[Listening], config: &Config) {
    contradictions(devices, ports, config).iter().for_each(|contradiction| tracing::warn!("{contradiction}"));
}
