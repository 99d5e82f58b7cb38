//! Discovery services: the one that is named, or those of nvme-cli's file, and asking them for
//! their logs, several side by side.

use std::collections::HashSet;
use std::path::Path;

use clap::Parser;
use ebof_initiator::{ConnectError, ConnectErrorKind, DiscoveryLog};
use ebof_nvme::Nqn;
use ebof_nvme::log::{DiscoveryEntry, SubsystemType};

use super::fabric::{DISCOVERY_PORT, FabricArgs, IO_PORT, same_host, set_timeout};
use super::reach::side_by_side;
use crate::failure::{Failure, FailurePlace};
use crate::file;
use crate::global::Global;
use crate::output::say;

/// nvme-cli's list of discovery services, which is used if none is named.
pub(crate) const DISCOVERY_CONF: &str = "/etc/nvme/discovery.conf";

/// Its maximum size.
const CONF_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of services of a file.
const SERVICES_MAX: usize = 256;

/// A discovery service.
#[derive(Clone, Debug)]
pub(crate) struct DiscoveryService {
    /// Where it is, and the options of its connections.
    pub(crate) fabric: FabricArgs,
    /// File and line that name it, if a file does.
    pub(crate) place: Option<String>,
}

/// Ports that discovery services which have answered have themselves: what one of them would say is
/// known, even if it does not answer.
#[derive(Debug, Default)]
pub(super) struct OwnPorts(HashSet<(String, String, u16)>);

impl OwnPorts {
    /// Adds what a log says of its own service.
    pub(super) fn add(&mut self, entries: &[DiscoveryEntry]) {
        for entry in entries.iter().filter(|entry| entry.subsystem_type() == SubsystemType::CURRENT_DISCOVERY) {
            let port = entry.service_id().as_str().and_then(|port| port.parse().ok());
            if let (Some(traddr), Some(port)) = (entry.address().as_str(), port) {
                self.0.insert((entry.transport().name().to_owned(), same_host(traddr), port));
            }
        }
    }

    /// Whether a service is one of these ports.
    pub(super) fn has(&self, service: &FabricArgs) -> bool {
        let ports = service.trsvcid.map_or(vec![DISCOVERY_PORT, IO_PORT], |port| vec![port]);
        let traddr = same_host(service.traddr.as_deref().unwrap_or_default());
        ports.into_iter().any(|port| self.0.contains(&(service.transport.clone(), traddr.clone(), port)))
    }
}

/// The discovery services to query: the one that is named, otherwise those of nvme-cli's file.
///
/// # Errors
/// An option is not supported; or none is named, and the file is missing or invalid.
pub(super) fn services(fabric: &FabricArgs) -> anyhow::Result<Vec<DiscoveryService>> {
    fabric.check()?;
    if fabric.traddr.is_some() {
        return Ok(vec![DiscoveryService { fabric: fabric.clone(), place: None }]);
    }
    let services = services_of_conf(Path::new(DISCOVERY_CONF))?;
    if services.is_empty() {
        let message = format!("no discovery service is named, and {DISCOVERY_CONF} names none");
        return Err(Failure::usage(message, "say where one is: -t tcp -a ADDRESS [-s PORT]").into());
    }
    Ok(services)
}

/// The discovery services of nvme-cli's file, each once; none if there is no file. Lines that
/// cannot be used are told and passed over, as nvme-cli does: one mistake must not keep a machine
/// from its disks.
///
/// # Errors
/// It cannot be read, or no line can be used.
pub(crate) fn services_of_conf(path: &Path) -> anyhow::Result<Vec<DiscoveryService>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = file::read_text(path, "the discovery services", CONF_BYTES_MAX, file::Kind::Regular)?;
    let mut lines = parse_conf(path, &text);
    if !lines.is_empty() && lines.iter().all(Result::is_err) {
        return lines.remove(0).map(|service| vec![service]).map_err(Into::into);
    }
    let mut services: Vec<DiscoveryService> = Vec::new();
    for line in lines {
        match line {
            Err(error) => say(&format!("{error}; passed over")),
            Ok(service) if services.iter().any(|other| other.fabric.is_service_of(&service.fabric)) => {}
            Ok(service) if services.len() == SERVICES_MAX => {
                let place = service.place.unwrap_or_default();
                say(&format!("{place}: more than {SERVICES_MAX} services: this one and the rest are passed over"));
                break;
            }
            Ok(service) => services.push(service),
        }
    }
    Ok(services)
}

/// Parses nvme-cli's `discovery.conf`, which has the options of one discovery service in each line.
/// Errors name file and line.
pub(super) fn parse_conf(path: &Path, text: &str) -> Vec<Result<DiscoveryService, Failure>> {
    #[derive(Parser)]
    #[command(no_binary_name = true, disable_help_flag = true)]
    struct Line {
        #[command(flatten)]
        fabric: FabricArgs,
    }
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let path = path.display();
    lines
        .map(|(number, line)| {
            // nvme-cli treats white space and `=` alike.
            let words = line.split([' ', '\t', '=']).filter(|word| !word.is_empty());
            let parsed = Line::try_parse_from(words).map_err(|error| {
                let reason = error.to_string();
                let reason = reason.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
                Failure::new(
                    "config",
                    format!("{path}:{number}: {reason}"),
                    "correct the line, or name a service with -a",
                )
            })?;
            let (place, fabric) = (format!("{path}:{number}"), parsed.fabric);
            if fabric.traddr.is_none() {
                return Err(Failure::new(
                    "config",
                    format!("{place}: the line names no address"),
                    "write the options of one discovery service to a line: -t tcp -a ADDRESS -s PORT",
                ));
            }
            fabric.check().map_err(|error| error.at(&place))?;
            Ok(DiscoveryService { fabric, place: Some(place) })
        })
        .collect()
}

/// Says that services are asked without TLS by whoever wants it elsewhere: authentication, of which
/// `--concat` makes keys, is not for them.
pub(super) fn warn_of_plain_services(services: &[DiscoveryService]) {
    if services.iter().any(|service| service.fabric.overrides.concat) {
        say(
            "warning: the discovery log is read without TLS, which --concat makes with subsystems only: somebody on the way \
             can change what it lists (--tls --tls-key-file FILE reads it over TLS)",
        );
    }
}

/// Reads the discovery logs of services, side by side: one that does not answer costs a time-out.
/// The answers are in the order of the services; errors name the place of theirs.
pub(super) fn ask_all(services: &[DiscoveryService], global: &Global) -> Vec<anyhow::Result<DiscoveryLog>> {
    side_by_side(services, |DiscoveryService { fabric, place }| {
        ask(fabric, global).map_err(|error| match place {
            Some(place) => anyhow::Error::new(error).context(FailurePlace(place.clone())),
            None => error.into(),
        })
    })
}

/// Reads the discovery log of a service. Without a port, both usual ones are tried.
///
/// # Errors
/// Connecting or reading fails.
fn ask(service: &FabricArgs, global: &Global) -> Result<DiscoveryLog, ConnectError> {
    let traddr = service.traddr.as_deref().unwrap_or_default();
    let nqn = service.nqn.clone().unwrap_or_else(Nqn::discovery);
    let at = |port: u16| {
        let mut options = service.options(traddr, port, nqn.clone());
        set_timeout(&mut options, global.timeout());
        ebof_initiator::discover(&options)
    };
    match service.trsvcid {
        Some(port) => at(port),
        None => {
            let [first, second] = match service.transport.as_str() {
                // nvme-cli's port for it: 8009 is assigned to TCP only.
                "rdma" => [IO_PORT, DISCOVERY_PORT],
                _ => [DISCOVERY_PORT, IO_PORT],
            };
            match at(first) {
                Err(error) if *error.kind() == ConnectErrorKind::Refused => at(second),
                answer => answer,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_conf_has_the_options_of_a_service_on_each_line() {
        let text =
            "# comment\n\n-t tcp -a 192.168.1.4 -s 8009\n--transport=tcp --traddr=10.0.0.1 --host-traddr 10.0.0.2\n";
        let services: Vec<_> = parse_conf(Path::new("a.conf"), text).into_iter().map(Result::unwrap).collect();
        let found: Vec<_> =
            services.iter().map(|it| (it.fabric.traddr.as_deref().unwrap(), it.fabric.trsvcid)).collect();
        assert_eq!(found, [("192.168.1.4", Some(8009)), ("10.0.0.1", None)]);
        assert_eq!(services[1].fabric.overrides.host_traddr.as_deref(), Some("10.0.0.2"));
        let places: Vec<_> = services.iter().map(|it| it.place.as_deref().unwrap()).collect();
        assert_eq!(places, ["a.conf:3", "a.conf:4"]);
    }

    #[test]
    fn lines_that_cannot_be_used_are_named_and_passed_over() {
        let text =
            "-t tcp -a 127.0.0.1\n--NONSENSE 1\n-t tcp\n-t tcp -a 127.0.0.2 --dhchap-secret DHHC-1:x\n-t fc -a x\n";
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("discovery.conf");
        std::fs::write(&path, text).unwrap();
        let errors: Vec<String> =
            parse_conf(&path, text).into_iter().filter_map(|line| Some(line.err()?.to_string())).collect();
        for (error, (line, what)) in
            errors.iter().zip([(2, "NONSENSE"), (3, "names no address"), (4, "--dhchap-secret"), (5, "fc")])
        {
            assert!(error.starts_with(&format!("{}:{line}: ", path.display())) && error.contains(what), "{error}");
        }
        assert_eq!((errors.len(), services_of_conf(&path).unwrap().len()), (4, 1));
        std::fs::write(&path, "--NONSENSE 1\n").unwrap();
        assert!(services_of_conf(&path).is_err(), "nothing is left");
        assert!(services_of_conf(&directory.path().join("none")).unwrap().is_empty());
    }

    // @test host.discovery-conf
    #[test]
    fn the_same_service_is_asked_once_and_there_are_not_too_many() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("discovery.conf");
        let found = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let lines = services_of_conf(&path).unwrap().into_iter();
            let line = |it: DiscoveryService| it.place.unwrap().rsplit(':').next().unwrap().parse::<usize>().unwrap();
            lines.map(line).collect::<Vec<_>>()
        };
        let host = "--hostnqn nqn.2014-08.org.example:other";
        let text = format!(
            "-a 192.0.2.1 -i 4\n-a 192.0.2.1\n-a 192.0.2.1 -s 8009\n-a 192.0.2.1 {host}\n-a ::ffff:192.0.2.1\n-t rdma -a 192.0.2.1\n\
             -a Box.example\n-a box.example\n-a fd00::1\n-a fd00:0::1\n"
        );
        assert_eq!(found(&text), [1, 3, 4, 6, 7, 9]);
        let many: String = (0..=SERVICES_MAX).map(|n| format!("-a 192.0.2.1 -s {}\n", 1000 + n)).collect();
        assert_eq!(found(&many).len(), SERVICES_MAX);
    }
}
