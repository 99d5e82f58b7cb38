//! What a running target has, and who has it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use ebof_drive::function::{self, Share};
use ebof_drive::{FORMATS, Format, View};
use ebof_manage::config::Subsystem;
use ebof_manage::enclosure::{
    DriveObject, FormatObject, FunctionName, FunctionObject, HostObject, INVENTORY_SCHEMA, Inventory, NamespaceName,
    NamespaceObject, PortKind, PortObject, Resources, ShareObject, SubsystemObject,
};
use ebof_nvme::Nsid;
use ebof_nvme::virtualization::ResourceType;

use super::sensors;
use super::tasks::Tasks;
use crate::life::contradictions::contradictions;
use crate::life::in_force::InForce;
use crate::life::serve::Target;
use crate::life::startup::OpenDrive;
use crate::life::status::InForceStatus;
use crate::ports::port::PortState;

/// What `target` has, and which of `tasks` is changing it.
pub(super) fn collect(target: &Target, tasks: &Tasks) -> Inventory {
    let in_force = target.in_force().clone();
    let hosts = hosts(target, &in_force);
    let of = |nqn: &str| hosts.get(nqn).cloned().unwrap_or_default();
    let ports: Vec<&str> = in_force.ports.iter().map(|listening| listening.port.name.as_str()).collect();
    let added = target.added().clone();
    let drive = |opened: &OpenDrive| {
        let added = added.contains(&opened.config.name);
        DriveObject { added, ..drive_of(opened, &ports, &of, tasks) }
    };
    let drives: Vec<DriveObject> = in_force.devices.actors.iter().map(drive).collect();
    let given = |port: &str| {
        let functions = drives.iter().flat_map(|drive| &drive.functions);
        functions.filter(|function| function.ports.contains(port)).map(|it| it.name.clone()).collect()
    };
    let ports = in_force.ports.iter().map(|listening| port_of(&listening.port, given(&listening.port.name))).collect();
    let subsystems = in_force.config.subsystems.iter().filter(|subsystem| subsystem.drive.is_none());
    let contradictions = contradictions(&in_force.devices, &in_force.ports, &in_force.config);
    Inventory {
        inventory_schema: INVENTORY_SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_s: target.shared.clock.now_ms() / 1000,
        subsystems: subsystems.map(|config| subsystem_of(config, of(config.nqn.as_str()))).collect(),
        ports,
        drives,
        sensors: sensors::read(),
        contradictions,
    }
}

/// The controllers that hosts have, by the NQN of the subsystem.
fn hosts(target: &Target, in_force: &InForce) -> BTreeMap<String, Vec<HostObject>> {
    let mut hosts: BTreeMap<String, Vec<HostObject>> = BTreeMap::new();
    let controllers = InForceStatus::new(&target.shared, in_force).controllers();
    for controller in controllers.into_iter().filter(|controller| !controller.discovery) {
        let queues = controller.queues.iter().filter(|queue| queue.id != 0).count();
        hosts.entry(controller.subsystem_nqn).or_default().push(HostObject {
            nqn: controller.host_nqn,
            peer: controller.peer.to_string(),
            cntlid: controller.cntlid,
            port: controller.port,
            io_queues: u32::try_from(queues).unwrap_or(u32::MAX),
            connected_since_unix_ms: controller.connected_since_unix_ms,
        });
    }
    hosts
}

fn drive_of(
    opened: &OpenDrive,
    ports: &[&str],
    hosts: &impl Fn(&str) -> Vec<HostObject>,
    tasks: &Tasks,
) -> DriveObject {
    let name = &opened.config.name;
    let view = opened.actor.view();
    let nqn = opened.subsystem.nqn.as_str();
    let function = |(&number, function): (&u16, &function::Function)| {
        let name = FunctionName { drive: name.clone(), number };
        let nqn = format!("{nqn}:vf{number}");
        let attached = view.namespaces.iter().filter(|(_, namespace)| namespace.functions.contains(&number));
        FunctionObject {
            online: function.online,
            queues: function.queues,
            interrupts: function.interrupts,
            ports: function.ports.iter().map(str::to_owned).collect(),
            port_exists: !function.ports.is_empty() && function.ports.iter().all(|port| ports.contains(&port)),
            share: share_of(&function.share),
            namespaces: attached.map(|(nsid, _)| named(&name.drive, *nsid)).collect(),
            hosts: hosts(&nqn),
            task: tasks.changing(&name.to_string()),
            known_as: view.one_subsystem.then(|| opened.subsystem.nqn.to_string()),
            nqn,
            name,
        }
    };
    DriveObject {
        name: name.clone(),
        nqn: nqn.to_owned(),
        serial: opened.subsystem.serial.clone(),
        backing: opened.config.backing.to_string(),
        capacity_bytes: view.capacity.total_bytes,
        unallocated_bytes: view.unallocated_bytes,
        temperature_kelvin: opened.actor.kelvin(),
        critical_warning: opened.actor.health().critical_warning,
        resources: (!view.functions.is_empty()).then(|| resources_of(&view)),
        functions: view.functions.iter().map(function).collect(),
        namespaces: view
            .namespaces
            .iter()
            .map(|(nsid, namespace)| namespace_of(name, *nsid, namespace, &view))
            .collect(),
        ports: opened.subsystem.ports.clone(),
        hosts: hosts(nqn),
        namespaces_max: view.profile.namespaces,
        formats: formats(),
        encrypts: opened.actor.with_drive(|drive| drive.settings().encrypted),
        sanitize_percent: opened.actor.sanitize_percent(),
        self_test_percent: opened.actor.self_test_percent(),
        added: false,
        task: tasks.changing(name),
    }
}

fn named(drive: &str, nsid: Nsid) -> NamespaceName {
    NamespaceName { drive: drive.to_owned(), nsid: nsid.0 }
}

fn namespace_of(drive: &str, nsid: Nsid, namespace: &ebof_drive::Namespace, view: &View) -> NamespaceObject {
    let function = |&number: &u16| FunctionName { drive: drive.to_owned(), number };
    NamespaceObject {
        name: named(drive, nsid),
        size_bytes: namespace.shape.bytes(),
        block_size_bytes: 1 << namespace.shape.format().block_shift,
        metadata_bytes: namespace.shape.format().metadata_bytes,
        write_protected: namespace.write_protected,
        ana_group: namespace.ana_group,
        format_percent: view.erasing.get(&nsid.0).map(|left| 100 - left.clamp(&1, &100)),
        uuid: ebof_nvme::Uuid(namespace.uuid).to_string(),
        shared: namespace.shared,
        functions: namespace.functions.iter().map(function).collect(),
        hosts: match namespace.for_everyone {
            true => vec!["*".to_owned()],
            false => namespace.hosts.iter().cloned().collect(),
        },
    }
}

/// The formats that namespaces can have.
pub(super) fn formats() -> Vec<FormatObject> {
    (0..).zip(&FORMATS).map(|(index, format)| format_of(index, *format)).collect()
}

/// A format with its index.
pub(super) fn format_of(index: u8, format: Format) -> FormatObject {
    let Format { block_shift, metadata_bytes } = format;
    FormatObject { index, block_size_bytes: 1 << block_shift, metadata_bytes }
}

fn resources_of(view: &View) -> Resources {
    let total = |resource| function::flexible_total(&view.primary, &view.functions, resource);
    let assigned =
        |resource| function::assigned(&view.functions, resource) + u32::from(view.primary.resources(resource));
    Resources {
        queues_total: total(ResourceType::Queues),
        queues_assigned: assigned(ResourceType::Queues),
        interrupts_total: total(ResourceType::Interrupts),
        interrupts_assigned: assigned(ResourceType::Interrupts),
    }
}

/// A share, as the management API has it.
pub(super) fn share_of(share: &Share) -> ShareObject {
    let Share { weight, iops, bytes_per_second, minimum_iops } = *share;
    ShareObject { weight, iops, bytes_per_second, minimum_iops }
}

fn subsystem_of(config: &Subsystem, hosts: Vec<HostObject>) -> SubsystemObject {
    SubsystemObject {
        nqn: config.nqn.to_string(),
        namespaces: u32::try_from(config.namespaces.len()).unwrap_or(u32::MAX),
        ports: config.ports.clone(),
        hosts,
    }
}

fn port_of(port: &PortState, functions: Vec<FunctionName>) -> PortObject {
    let listen = &port.config.listen;
    let is_network = listen.is_network();
    PortObject {
        name: port.name.clone(),
        kind: if is_network { PortKind::Fabric } else { PortKind::Direct },
        listen: if is_network {
            format!("{}://{}", listen.transport.scheme(), port.address)
        } else {
            listen.to_string()
        },
        discovery_only: port.config.discovery_only,
        functions,
        connections: port.counts.connections.load(Relaxed),
    }
}
