//! Telling the network of discovery services by multicast DNS: ports whose configuration says so,
//! as it is in force. A thread of its own compares, so that nothing waits for the network.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use ebof_manage::api::PortStatus;
use ebof_manage::config::Port;
use ebof_manage::{Config, Target as _};
use ebof_mdns::{Announcement, Announcer};
use ebof_nvme::Nqn;
use ebof_server::Target;

/// How often the configuration is looked at.
const INTERVAL: Duration = Duration::from_secs(2);

/// What is told, until it is dropped: then the network is told of the end.
#[derive(Debug)]
pub(crate) struct Announcing {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

/// Begins to tell of the ports that are to be told of.
pub(crate) fn start(target: &Arc<Target>) -> anyhow::Result<Announcing> {
    let (end, ended) = channel();
    let target = Arc::clone(target);
    let host = crate::https::host_name();
    let run = move || {
        let mut announcer: Option<Announcer> = None;
        loop {
            let wanted = wanted(&target.config(), &target.status().ports, &host);
            tell(&mut announcer, &wanted);
            if ended.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("ebof-mdns".to_owned());
    let thread = thread.spawn(run).context("starting the thread for multicast DNS")?;
    Ok(Announcing { thread: Some((end, thread)) })
}

impl Drop for Announcing {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            // A panic ends the process anyway.
            let _ended = thread.join();
        }
    }
}

/// Nothing is opened before something is to be told.
fn tell(announcer: &mut Option<Announcer>, wanted: &[Announcement]) {
    if wanted.is_empty() {
        *announcer = None;
        return;
    }
    if announcer.as_ref().is_some_and(|announcer| !announcer.is_alive()) {
        tracing::error!("the thread for multicast DNS has ended: it is begun again");
        *announcer = None;
    }
    if announcer.is_none() {
        match Announcer::new() {
            Ok(new) => *announcer = Some(new),
            Err(error) => tracing::warn!(%error, "the network is not told of discovery services: it is tried again"),
        }
    }
    if let Some(announcer) = announcer {
        announcer.set(wanted);
    }
}

/// What the network is told: of ports that listen.
fn wanted(config: &Config, listening: &[PortStatus], host: &str) -> Vec<Announcement> {
    let nqn = config.target.discovery_nqn.clone().unwrap_or_else(Nqn::discovery);
    let told = config.ports.iter().filter(|port| port.mdns && port.enabled);
    let announcement = |port: &Port| {
        let status = listening.iter().find(|status| status.name == port.name)?;
        let address = port.advertise.unwrap_or_else(|| status.address.ip());
        Some(Announcement {
            name: format!("{host} {}", port.name),
            transport: status.transport.clone(),
            address: Some(address).filter(|address: &IpAddr| !address.is_unspecified()),
            port: status.address.port(),
            nqn: nqn.clone(),
        })
    };
    told.filter_map(announcement).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_told_of_that_ask_for_it_and_listen() {
        let text = "
            [target]
            discovery_nqn = \"nqn.2014-08.org.example:discovery\"
            [[ports]]
            name = \"one\"
            listen = \"tcp://192.0.2.1:8009\"
            mdns = true
            [[ports]]
            name = \"all\"
            listen = \"tcp://[::]:8010\"
            mdns = true
            [[ports]]
            name = \"other\"
            listen = \"tcp://10.0.0.1:8009\"
            advertise = \"192.0.2.9\"
            mdns = true
            [[ports]]
            name = \"quiet\"
            listen = \"tcp://192.0.2.1:4420\"
            [[ports]]
            name = \"missing\"
            listen = \"tcp://192.0.2.1:4421\"
            mdns = true
            ";
        let config = ebof_manage::load("ebof.toml", text).unwrap().config;
        let status = |port: &Port| PortStatus {
            name: port.name.clone(),
            id: port.id,
            transport: "tcp".to_owned(),
            address: (port.listen.address, port.listen.port).into(),
            socket: None,
            discovery_only: false,
            ana: Default::default(),
            tls: Default::default(),
            connections: 0,
            accepted: 0,
            refused: 0,
        };
        let listening: Vec<PortStatus> =
            config.ports.iter().filter(|port| port.name != "missing").map(status).collect();
        let told = wanted(&config, &listening, "box7");
        let seen: Vec<_> = told.iter().map(|it| (it.name.as_str(), it.address, it.port)).collect();
        let address = |text: &str| Some(text.parse().unwrap());
        assert_eq!(
            seen,
            [
                ("box7 one", address("192.0.2.1"), 8009),
                ("box7 all", None, 8010),
                ("box7 other", address("192.0.2.9"), 8009)
            ]
        );
        assert!(told.iter().all(|it| it.nqn.as_str() == "nqn.2014-08.org.example:discovery"));
    }
}
