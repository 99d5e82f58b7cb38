//! What is in force, as whoever manages the target sees it: ports, subsystems with their counters,
//! controllers.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use ebof_manage::api::{
    self, ControllerStatus, IoCounters, MissingObject, NamespaceStatus, PROVING_MAX, Peer, PortStatus, ProvingHost,
    QueueStatus, Status, SubsystemStatus,
};
use ebof_manage::config::{Namespace, Security, Subsystem};
use ebof_nvme::{Nsid, Uuid};

use crate::life::control::Listening;
use crate::life::in_force::InForce;
use crate::life::object::known_uuid;
use crate::observe::stats::{Kind, Totals};
use crate::ports::port::PortState;
use crate::shared::handle::reactor_of;
use crate::shared::{Agreed, Shared};

/// The status of what is in force.
pub(crate) struct InForceStatus<'a> {
    shared: &'a Shared,
    in_force: &'a InForce,
}

impl<'a> InForceStatus<'a> {
    pub(crate) fn new(shared: &'a Shared, in_force: &'a InForce) -> Self {
        Self { shared, in_force }
    }

    /// All of it; `missing` is what cannot be had, of the configuration and beside it.
    pub(crate) fn status(&self, missing: Vec<MissingObject>) -> Status {
        let Self { shared, in_force } = *self;
        let totals = shared.totals();
        let config = &in_force.config;
        Status {
            schema: api::STATUS_SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: shared.clock.now_ms() / 1000,
            generation: in_force.generation,
            connections: shared.connections.load(Relaxed),
            connections_max: shared.settings.connections_max,
            ana_group_max: ebof_fabrics::GROUPS_MAX,
            confinement: shared.settings.confinement.clone(),
            keys_unprotected: ebof_vault::unprotected().map(|why| why.to_string()),
            ports: in_force.ports.iter().map(|listening| port_status(&listening.port)).collect(),
            disabled_ports: config.ports.iter().filter(|it| !it.enabled).map(|it| it.name.clone()).collect(),
            missing,
            subsystems: config.subsystems.iter().map(|config| subsystem_status(config, in_force, &totals)).collect(),
            drives: in_force.devices.drive_status(),
            controllers: self.controllers(),
            proving: self.proving(),
        }
    }

    /// The hosts that have still to prove who they are.
    fn proving(&self) -> Vec<ProvingHost> {
        let names = self.port_names();
        let proving = |info: ebof_fabrics::ControllerInfo| ProvingHost {
            host_nqn: info.host.to_string(),
            subsystem_nqn: info.subsystem.to_string(),
            port: names.get(&info.port.0).copied().unwrap_or_default().to_owned(),
            peer: info.peer.parse().unwrap_or(Peer::SameProcess),
            connected_since_unix_ms: self.shared.clock.unix_ms_at(info.connected_ms),
        };
        self.shared.registry().proving().take(PROVING_MAX).map(proving).collect()
    }

    /// The ports by number.
    fn port_names(&self) -> HashMap<u16, &'a str> {
        self.in_force.ports.iter().map(|Listening { port, .. }| (port.id.0, port.name.as_str())).collect()
    }

    /// The controllers that hosts have.
    pub(crate) fn controllers(&self) -> Vec<ControllerStatus> {
        let names = self.port_names();
        let registry = self.shared.registry();
        let status = |info: ebof_fabrics::ControllerInfo| ControllerStatus {
            cntlid: info.cntlid.0,
            subsystem_nqn: info.subsystem.to_string(),
            host_nqn: info.host.to_string(),
            host_id: info.host_id.to_string(),
            port: names.get(&info.port.0).copied().unwrap_or_default().to_owned(),
            // The text of a `PeerAddress`.
            peer: info.peer.parse().unwrap_or(Peer::SameProcess),
            discovery: info.discovery,
            proof: Security::proven(info.association.proves, info.association.is_secured()),
            connected_since_unix_ms: self.shared.clock.unix_ms_at(info.connected_ms),
            keep_alive_ms: u64::from(info.keep_alive_ms),
            queues: info.queues.iter().map(|queue| self.queue_status(queue)).collect(),
        };
        registry.controllers().map(status).collect()
    }

    fn queue_status(&self, info: &ebof_fabrics::QueueInfo) -> QueueStatus {
        let Agreed { header_digest, data_digest, tls_records } = self.shared.agreed(info.handle);
        QueueStatus {
            id: info.id.0,
            entries: info.entries,
            thread: u16::try_from(reactor_of(info.handle)).unwrap_or(u16::MAX),
            header_digest,
            data_digest,
            tls_records: tls_records.map(str::to_owned),
            commands: info.counts.read_commands + info.counts.write_commands + info.counts.other_commands,
        }
    }
}

fn port_status(port: &PortState) -> PortStatus {
    PortStatus {
        name: port.name.clone(),
        id: port.id.0,
        transport: port.config.listen.transport.scheme().to_owned(),
        address: port.address,
        socket: port.config.listen.socket.as_ref().map(|socket| socket.display().to_string()),
        discovery_only: port.config.discovery_only,
        ana: port.config.ana.clone(),
        tls: port.config.tls,
        connections: port.counts.connections.load(Relaxed),
        accepted: port.counts.accepted.load(Relaxed),
        refused: port.counts.refused.load(Relaxed),
    }
}

fn subsystem_status(config: &Subsystem, state: &InForce, totals: &Totals) -> SubsystemStatus {
    let identified = state.devices.identified(config);
    let uuid = |namespace: &Namespace| {
        let open = identified.iter().find(|(open, ..)| open.nsid == namespace.nsid);
        open.map(|(.., identifiers)| identifiers.uuid).or_else(|| known_uuid(config, namespace))
    };
    let namespace_status = |namespace: &Namespace| {
        let geometry = state.devices.device(config, namespace).map(|plain| plain.device.geometry());
        NamespaceStatus {
            nsid: namespace.nsid,
            enabled: namespace.enabled,
            drive: namespace.drive.to_string(),
            size_bytes: geometry.map_or(0, |geometry| geometry.capacity_bytes),
            block_size_bytes: geometry.map_or(0, |geometry| geometry.logical_block_bytes),
            uuid: uuid(namespace).map(|uuid| uuid.to_string()),
            write_protect: namespace.write_protect,
            ana_group: namespace.ana_group,
            io: counters(totals, config.nqn.as_str(), namespace.nsid),
        }
    };
    SubsystemStatus {
        nqn: config.nqn.to_string(),
        enabled: config.enabled,
        serial: config.serial.clone(),
        model: config.model.clone(),
        allow_any_host: config.allow_any_host,
        security: config.security,
        allowed_hosts: config.allowed_hosts.iter().map(ToString::to_string).collect(),
        ports: config.ports.clone(),
        namespaces: match state.devices.drive_of(&config.nqn) {
            Some((name, view)) => of_drive(config, name, &view, totals),
            None => config.namespaces.iter().map(namespace_status).collect(),
        },
    }
}

/// The namespaces that hosts have cut from a drive.
fn of_drive(config: &Subsystem, name: &str, view: &ebof_drive::View, totals: &Totals) -> Vec<NamespaceStatus> {
    let status = |(nsid, namespace): &(Nsid, ebof_drive::Namespace)| NamespaceStatus {
        nsid: nsid.0,
        enabled: true,
        drive: name.to_owned(),
        size_bytes: namespace.shape.bytes(),
        block_size_bytes: 1 << namespace.shape.format().block_shift,
        uuid: Some(Uuid(namespace.uuid).to_string()),
        write_protect: namespace.write_protected,
        ana_group: namespace.ana_group,
        io: counters(totals, config.nqn.as_str(), nsid.0),
    };
    view.namespaces.iter().map(status).collect()
}

fn counters(totals: &Totals, subsystem: &str, nsid: u32) -> IoCounters {
    let mut sum = IoCounters::default();
    for (_, kinds) in totals.iter().filter(|(series, _)| series.subsystem == subsystem && series.nsid == nsid) {
        let of = |kind: Kind| &kinds[kind as usize];
        sum.read_commands += of(Kind::Read).commands;
        sum.read_bytes += of(Kind::Read).bytes;
        sum.write_commands += of(Kind::Write).commands;
        sum.write_bytes += of(Kind::Write).bytes;
        sum.other_commands += of(Kind::Other).commands;
        sum.errors += kinds.iter().map(|kind| kind.errors).sum::<u64>();
    }
    sum
}
