//! `discover`: the log of a discovery service.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use ebof_initiator::{ConnectError, ConnectErrorKind, DiscoveryLog};
use ebof_nvme::Nqn;

use super::Outcome;
use super::fabric::{DISCOVERY_PORT, FabricArgs, IO_PORT, set_timeout};
use crate::failure::Failure;
use crate::file;
use crate::global::Global;
use crate::output::discovery::DiscoveryView;
use crate::output::{View as _, say, show};

/// nvme-cli's list of discovery services, which is used if none is named.
pub(crate) const DISCOVERY_CONF: &str = "/etc/nvme/discovery.conf";

/// Its maximum size.
const CONF_BYTES_MAX: u64 = 1 << 20;

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
        let services = services(&self.fabric)?;
        let several = services.len() > 1;
        let mut status = ExitCode::SUCCESS;
        for service in services {
            let log = match ask(&service, global) {
                Ok(log) => log,
                // The others may be there.
                Err(error) if several => {
                    say(&format!("{error}"));
                    status = ExitCode::FAILURE;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
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

/// The discovery services to query: the one that is named, otherwise those of nvme-cli's file.
///
/// # Errors
/// An option is not supported; or none is named, and the file is missing or invalid.
pub(super) fn services(fabric: &FabricArgs) -> anyhow::Result<Vec<FabricArgs>> {
    fabric.check()?;
    if fabric.traddr.is_some() {
        return Ok(vec![fabric.clone()]);
    }
    let services = services_of_conf(Path::new(DISCOVERY_CONF))?;
    if services.is_empty() {
        let message = format!("no discovery service is named, and {DISCOVERY_CONF} names none");
        return Err(Failure::usage(message, "say where one is: -t tcp -a ADDRESS [-s PORT]").into());
    }
    Ok(services)
}

/// The discovery services of nvme-cli's file; none if there is no file. Lines that cannot be used
/// are told and passed over, as nvme-cli does: one mistake must not keep a machine from its disks.
///
/// # Errors
/// It cannot be read, or no line can be used.
pub(crate) fn services_of_conf(path: &Path) -> anyhow::Result<Vec<FabricArgs>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = file::read_text(path, "the discovery services", CONF_BYTES_MAX, file::Kind::Regular)?;
    let mut lines = parse_conf(path, &text);
    if !lines.is_empty() && lines.iter().all(Result::is_err) {
        return lines.remove(0).map(|service| vec![service]).map_err(Into::into);
    }
    let usable =
        |line: Result<FabricArgs, Failure>| line.inspect_err(|error| say(&format!("{error}; passed over"))).ok();
    Ok(lines.into_iter().filter_map(usable).collect())
}

/// Parses nvme-cli's `discovery.conf`, which has the options of one discovery service in each line.
/// Errors name file and line.
pub(super) fn parse_conf(path: &Path, text: &str) -> Vec<Result<FabricArgs, Failure>> {
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
            match parsed.fabric.traddr {
                Some(_) => {
                    parsed.fabric.check().map_err(|error| error.at(&format!("{path}:{number}"))).map(|()| parsed.fabric)
                }
                None => Err(Failure::new(
                    "config",
                    format!("{path}:{number}: the line names no address"),
                    "write the options of one discovery service to a line: -t tcp -a ADDRESS -s PORT",
                )),
            }
        })
        .collect()
}

/// Reads the discovery log of a service. Without a port, both usual ones are tried.
///
/// # Errors
/// Connecting or reading fails.
pub(super) fn ask(service: &FabricArgs, global: &Global) -> Result<DiscoveryLog, ConnectError> {
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
            services.iter().map(|service| (service.traddr.as_deref().unwrap(), service.trsvcid)).collect();
        assert_eq!(found, [("192.168.1.4", Some(8009)), ("10.0.0.1", None)]);
        assert_eq!(services[1].overrides.host_traddr.as_deref(), Some("10.0.0.2"));
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
}
