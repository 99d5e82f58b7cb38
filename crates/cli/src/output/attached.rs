//! Views of what this machine is connected to: `list`, `list-subsys`, `connect`.

use std::fmt::Write as _;

use ebof_attach::state::{Ended, GivenUp, State};
use ebof_attach::time::utc;
use ebof_attach::{Attached, Device};

use super::json::Object;
use super::paths::{PathRow, paths};
use super::text::{binary_column, safe, si, si_column, table};
use super::{ListView, View};

/// A connected controller.
pub(crate) struct Connected {
    /// The state that its attach daemon wrote.
    pub(crate) state: State,
    /// Blocks in use, for each of its devices; `None` if the controller does not answer.
    pub(crate) used_blocks: Vec<Option<u64>>,
}

impl Connected {
    fn devices(&self) -> impl Iterator<Item = (&Device, u64)> {
        let used = self.used_blocks.iter().copied().chain(std::iter::repeat(None));
        self.state.devices.iter().zip(used).map(|(device, used)| (device, used.unwrap_or(device.blocks)))
    }

    /// Its paths. An only one has the name of the whole.
    fn paths(&self) -> Vec<PathRow<'_>> {
        paths(&self.state)
    }
}

fn bytes(blocks: u64, device: &Device) -> u128 {
    u128::from(blocks) * u128::from(device.block_bytes)
}

fn node(device: &Device) -> String {
    device.path.as_ref().map_or_else(|| "-".to_owned(), |path| path.display().to_string())
}

fn usage(device: &Device, used: u64) -> String {
    format!("{} / {}", si_column(bytes(used, device)), si_column(bytes(device.blocks, device)))
}

fn format(device: &Device) -> String {
    format!("{} + {:2} B", binary_column(device.block_bytes), device.metadata_bytes)
}

/// `list`.
pub(crate) struct DevicesView {
    /// The controllers in order.
    pub(crate) controllers: Vec<Connected>,
    /// Controllers that were given up and not acknowledged yet.
    pub(crate) given_up: Vec<State>,
}

impl View for DevicesView {
    fn text(&self, verbose: bool) -> String {
        if verbose {
            return self.details();
        }
        let columns = [
            ("Node", 21),
            ("Generic", 21),
            ("SN", 20),
            ("Model", 40),
            ("Namespace", 10),
            ("Usage", 26),
            ("Format", 16),
            ("FW Rev", 8),
        ];
        let rows = self.controllers.iter().flat_map(|controller| {
            let state = &controller.state;
            controller.devices().map(move |(device, used)| {
                vec![
                    node(device),
                    device.name.clone(),
                    safe(&state.serial),
                    safe(&state.model),
                    format!("{:#x}", device.nsid),
                    usage(device, used),
                    format(device),
                    safe(&state.firmware),
                ]
            })
        });
        let mut text = table(&columns, &rows.collect::<Vec<_>>());
        text += &self.notes();
        text
    }

    fn json(&self, verbose: bool) -> Object {
        let document = if verbose {
            // nvme-cli's list is one of hosts then.
            Object::document("list-verbose", 1).with("Devices", of_hosts(&self.controllers, detailed_subsystem_json))
        } else {
            let devices = self.controllers.iter().flat_map(|controller| {
                controller.devices().map(move |(device, used)| device_json(&controller.state, device, used))
            });
            Object::document("list", 1).with("Devices", devices.collect::<Vec<_>>())
        };
        let ended = self.ended().map(|ended| {
            Object::new()
                .with("GenericPath", ended.name.as_str())
                .with("NameSpace", ended.nsid)
                .with("DevicePath", ended.path.as_ref().map(|path| path.display().to_string()))
                .with("Reason", safe(&ended.reason))
                .with("Time", ended.at)
        });
        let given_up = self.given_up.iter().filter_map(|state| {
            let named = Object::new().with("Controller", state.name.as_str()).with("SubsystemNQN", safe(&state.subnqn));
            Some(named.extend(given_up_json(state)?))
        });
        document.with("Ended", ended.collect::<Vec<_>>()).with("GivenUp", given_up.collect::<Vec<_>>())
    }
}

fn device_json(state: &State, device: &Device, used: u64) -> Object {
    Object::new()
        .with("NameSpace", device.nsid)
        .with("DevicePath", device.path.as_ref().map(|path| path.display().to_string()))
        .with("GenericPath", device.name.as_str())
        .with("Firmware", safe(&state.firmware))
        .with("ModelNumber", safe(&state.model))
        .with("SerialNumber", safe(&state.serial))
        .with("UsedBytes", bytes(used, device))
        .with("MaximumLBA", device.blocks)
        .with("PhysicalSize", bytes(device.blocks, device))
        .with("SectorSize", device.block_bytes)
        .with("ReadOnly", device.read_only)
        .with("Problem", device.problem.clone())
        .with("Controller", state.name.as_str())
        .with("State", state.state.as_str())
        .with("SubsystemNQN", safe(&state.subnqn))
        .with("Front", state.front.as_str())
}

impl DevicesView {
    fn problems(&self) -> impl Iterator<Item = (&Device, &str)> {
        let devices = self.controllers.iter().flat_map(|controller| &controller.state.devices);
        devices.filter_map(|device| Some((device, device.problem.as_deref()?)))
    }

    fn details(&self) -> String {
        let subsystems = subsystems(&self.controllers).into_iter().map(|subsystem| {
            let names = subsystem.controllers.iter().map(|controller| controller.state.name.clone());
            vec![subsystem.name(), safe(subsystem.nqn), names.collect::<Vec<_>>().join(", ")]
        });
        let mut text =
            table(&[("Subsystem", 16), ("Subsystem-NQN", 96), ("Controllers", 16)], &subsystems.collect::<Vec<_>>());
        let controllers = self.controllers.iter().flat_map(|controller| {
            let state = &controller.state;
            let namespaces = state.devices.iter().map(|device| device.name.clone()).collect::<Vec<_>>();
            controller.paths().into_iter().map(move |path| {
                vec![
                    path.name.to_owned(),
                    path.cntlid.to_string(),
                    safe(&state.serial),
                    safe(&state.model),
                    safe(&state.firmware),
                    path.transport.to_owned(),
                    path.address.clone(),
                    path.state.to_owned(),
                    state.front.clone(),
                    namespaces.join(", "),
                ]
            })
        });
        let columns = [
            ("Device", 8),
            ("Cntlid", 6),
            ("SN", 20),
            ("MN", 40),
            ("FR", 8),
            ("TxPort", 6),
            ("Address", 14),
            ("State", 10),
            ("Front", 5),
            ("Namespaces", 16),
        ];
        text += "\n";
        text += &table(&columns, &controllers.collect::<Vec<_>>());
        let namespaces = self.controllers.iter().flat_map(|controller| {
            controller.devices().map(|(device, used)| {
                let nsid = format!("{:#x}", device.nsid);
                let name = controller.state.name.clone();
                vec![device.name.clone(), node(device), nsid, usage(device, used), format(device), name]
            })
        });
        let columns = [("Device", 17), ("Node", 20), ("NSID", 10), ("Usage", 26), ("Format", 16), ("Controllers", 16)];
        text += "\n";
        text += &table(&columns, &namespaces.collect::<Vec<_>>());
        text += &self.notes();
        text
    }

    /// Problems: devices without a block device, devices that ended, controllers that were given
    /// up.
    fn notes(&self) -> String {
        let mut text = String::new();
        for (device, problem) in self.problems() {
            let _infallible = writeln!(text, "{} has no block device: {}", device.name, safe(problem));
        }
        for ended in self.ended() {
            let path = ended.path.as_ref().map(|path| format!(" ({})", path.display())).unwrap_or_default();
            let name = &ended.name;
            let at = utc(ended.at);
            let _infallible = writeln!(text, "{name}{path} ended at {at}: {}", safe(&ended.reason));
        }
        for state in &self.given_up {
            let Some(GivenUp { reason, at }) = &state.given_up else { continue };
            let name = &state.name;
            let nqn = safe(&state.subnqn);
            let at = utc(*at);
            let reason = safe(reason);
            let _infallible = writeln!(
                text,
                "{name} ({nqn}) was given up at {at}: {reason}; `ebof disconnect -d {name}` acknowledges that"
            );
        }
        text
    }

    fn ended(&self) -> impl Iterator<Item = &Ended> {
        self.controllers.iter().flat_map(|controller| &controller.state.ended)
    }
}

fn given_up_json(state: &State) -> Option<Object> {
    let GivenUp { reason, at } = state.given_up.as_ref()?;
    Some(Object::new().with("Reason", safe(reason)).with("Time", *at))
}

/// Controllers of one subsystem, seen as one host.
struct Subsystem<'a> {
    nqn: &'a str,
    hostnqn: &'a str,
    hostid: &'a str,
    controllers: Vec<&'a Connected>,
}

impl Subsystem<'_> {
    /// Named after its first controller's number.
    fn name(&self) -> String {
        let first = self.controllers.first().map_or("", |controller| controller.state.name.as_str());
        format!("nvme-subsys{}", first.trim_start_matches("nvme"))
    }

    /// The first lines about it: name, NQN and host.
    fn heading(&self) -> String {
        let nqn = safe(self.nqn);
        let hostnqn = safe(self.hostnqn);
        format!("{} - NQN={nqn}\n{}hostnqn={hostnqn}\n", self.name(), self.indent())
    }

    /// How commands are divided between paths, as its daemon tells.
    fn policy(&self) -> Option<&str> {
        self.controllers.iter().find_map(|controller| controller.state.policy.as_deref())
    }

    /// The prefix of further lines about it.
    fn indent(&self) -> String {
        " ".repeat(self.name().len() + " - ".len())
    }
}

fn subsystems(controllers: &[Connected]) -> Vec<Subsystem<'_>> {
    let mut subsystems: Vec<Subsystem<'_>> = Vec::new();
    for controller in controllers {
        let State { subnqn, hostnqn, hostid, .. } = &controller.state;
        match subsystems.iter_mut().find(|other| other.nqn == subnqn && other.hostnqn == hostnqn) {
            Some(subsystem) => subsystem.controllers.push(controller),
            None => subsystems.push(Subsystem { nqn: subnqn, hostnqn, hostid, controllers: vec![controller] }),
        }
    }
    subsystems
}

/// `list-subsys`.
pub(crate) struct SubsystemsView {
    /// The controllers in order.
    pub(crate) controllers: Vec<Connected>,
}

impl ListView for SubsystemsView {
    fn text(&self, verbose: bool) -> String {
        let mut text = String::new();
        for subsystem in subsystems(&self.controllers) {
            if !text.is_empty() {
                text.push('\n');
            }
            text += &subsystem.heading();
            if let (true, Some(first)) = (verbose, subsystem.controllers.first()) {
                let indent = subsystem.indent();
                let State { model, serial, firmware, .. } = &first.state;
                for (name, value) in [("model", model), ("serial", serial), ("firmware", firmware)] {
                    let _infallible = writeln!(text, "{indent}{name}={}", safe(value));
                }
                let _infallible = writeln!(text, "{indent}type=nvm");
            }
            text += "\\\n";
            if let (true, Some(policy)) = (verbose, subsystem.policy()) {
                let _infallible = writeln!(text, "{}iopolicy={}", subsystem.indent(), safe(policy));
            }
            for controller in subsystem.controllers {
                for path in controller.paths() {
                    let access = path.access().map(|access| format!(" {access}")).unwrap_or_default();
                    let _infallible = writeln!(text, " +- {}{access}", path.line());
                }
                if let Some(GivenUp { reason, at }) = &controller.state.given_up {
                    let _infallible = writeln!(text, "    given up at {}: {}", utc(*at), safe(reason));
                }
            }
        }
        text
    }

    fn json(&self, _verbose: bool) -> Vec<Object> {
        let hosts = of_hosts(&self.controllers, subsystem_json).into_iter();
        hosts.map(|host| Object::document("list-subsys", 2).extend(host)).collect()
    }
}

/// The order of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Ranking {
    /// Each namespace with its controllers.
    Namespace,
    /// Each controller with its namespaces.
    Ctrl,
}

/// `show-topology`.
pub(crate) struct TopologyView {
    /// The controllers in order.
    pub(crate) controllers: Vec<Connected>,
    /// The order of the text; the JSON is by namespace.
    pub(crate) ranking: Ranking,
}

/// The namespaces of a subsystem, each with its controllers and block devices on this machine.
fn namespaces<'a>(subsystem: &Subsystem<'a>) -> Vec<(u32, Vec<(&'a Connected, &'a Device)>)> {
    let mut found = std::collections::BTreeMap::<u32, Vec<_>>::new();
    for &controller in &subsystem.controllers {
        for device in &controller.state.devices {
            found.entry(device.nsid).or_default().push((controller, device));
        }
    }
    found.into_iter().collect()
}

impl ListView for TopologyView {
    fn text(&self, _verbose: bool) -> String {
        let mut text = String::new();
        for subsystem in subsystems(&self.controllers) {
            if !text.is_empty() {
                text.push('\n');
            }
            text += &subsystem.heading();
            text += "\\\n";
            if self.ranking == Ranking::Namespace {
                for (nsid, paths) in namespaces(&subsystem) {
                    let _infallible = writeln!(text, " +- ns {nsid}\n \\");
                    for (controller, device) in paths {
                        for path in controller.paths() {
                            let access = path.access_to(device).map(|access| format!(" {access}")).unwrap_or_default();
                            let _infallible = writeln!(text, "  +- {}{access} {}", path.line(), node(device));
                        }
                    }
                }
                continue;
            }
            for controller in &subsystem.controllers {
                for path in controller.paths() {
                    let _infallible = writeln!(text, " +- {} {} {}\n \\", path.name, path.transport, path.address);
                    for device in &controller.state.devices {
                        let access = path.access_to(device).map(|access| format!(" {access}")).unwrap_or_default();
                        let _infallible =
                            writeln!(text, "  +- ns {} {}{access} {}", device.nsid, path.state, node(device));
                    }
                }
            }
        }
        text
    }

    fn json(&self, _verbose: bool) -> Vec<Object> {
        let hosts = of_hosts(&self.controllers, topology_json).into_iter();
        hosts.map(|host| Object::document("show-topology", 2).extend(host)).collect()
    }
}

/// The hosts that the controllers belong to, each with what `json` has about its subsystems.
fn of_hosts(controllers: &[Connected], json: impl Fn(&Subsystem<'_>) -> Object) -> Vec<Object> {
    let mut hosts: Vec<(&str, &str, Vec<Object>)> = Vec::new();
    for subsystem in subsystems(controllers) {
        let object = json(&subsystem);
        match hosts.iter_mut().find(|(nqn, ..)| *nqn == subsystem.hostnqn) {
            Some((.., subsystems)) => subsystems.push(object),
            None => hosts.push((subsystem.hostnqn, subsystem.hostid, vec![object])),
        }
    }
    let host = |(nqn, id, subsystems): (&str, &str, Vec<Object>)| {
        Object::new().with("HostNQN", safe(nqn)).with("HostID", id).with("Subsystems", subsystems)
    };
    hosts.into_iter().map(host).collect()
}

/// The keys that name a subsystem and its kind, in `list-subsys` and `show-topology`.
fn named_json(subsystem: &Subsystem<'_>) -> Object {
    let state = subsystem.controllers.first().map(|controller| &controller.state);
    Object::new()
        .with("Name", subsystem.name())
        .with("NQN", safe(subsystem.nqn))
        .with("Model", state.map(|state| safe(&state.model)))
        .with("Serial", state.map(|state| safe(&state.serial)))
        .with("Firmware", state.map(|state| safe(&state.firmware)))
        .with("Type", "nvm")
}

fn topology_json(subsystem: &Subsystem<'_>) -> Object {
    let path = |(controller, device): &(&Connected, &Device)| {
        let device_path = device.path.as_ref().map(|path| path.display().to_string());
        let json = |path: PathRow<'_>| {
            path.json().with("ANAState", path.access_to(device)).with("DevicePath", device_path.clone())
        };
        controller.paths().into_iter().map(json).collect::<Vec<_>>()
    };
    let namespace = |(nsid, paths): (u32, Vec<(&Connected, &Device)>)| {
        Object::new().with("NSID", nsid).with("Paths", paths.iter().flat_map(path).collect::<Vec<_>>())
    };
    named_json(subsystem).with("Namespaces", namespaces(subsystem).into_iter().map(namespace).collect::<Vec<_>>())
}

/// A subsystem in `list -v`: namespaces belong to their controller, as in nvme-cli where the kernel
/// does no multipathing, or to the subsystem if there are several paths to them.
fn detailed_subsystem_json(subsystem: &Subsystem<'_>) -> Object {
    let controllers = subsystem.controllers.iter().flat_map(|controller| detailed_controller_json(controller));
    let shared = subsystem.controllers.iter().filter(|controller| controller.paths().len() > 1);
    let namespaces = shared.flat_map(|controller| detailed_namespaces_json(controller));
    Object::new()
        .with("Subsystem", subsystem.name())
        .with("SubsystemNQN", safe(subsystem.nqn))
        .with("IOPolicy", subsystem.policy().map(safe))
        .with("Controllers", controllers.collect::<Vec<_>>())
        .with("Namespaces", namespaces.collect::<Vec<_>>())
}

fn detailed_namespaces_json(controller: &Connected) -> Vec<Object> {
    let namespace = |(device, used): (&Device, u64)| {
        Object::new()
            .with("NameSpace", device.name.as_str())
            .with("Generic", device.name.as_str())
            .with("NSID", device.nsid)
            .with("UsedBytes", bytes(used, device))
            .with("MaximumLBA", device.blocks)
            .with("PhysicalSize", bytes(device.blocks, device))
            .with("SectorSize", device.block_bytes)
            .with("DevicePath", device.path.as_ref().map(|path| path.display().to_string()))
            .with("ReadOnly", device.read_only)
            .with("Problem", device.problem.clone())
    };
    controller.devices().map(namespace).collect()
}

fn detailed_controller_json(controller: &Connected) -> Vec<Object> {
    let state = &controller.state;
    let rows = controller.paths();
    let is_only = rows.len() == 1;
    let to_namespace = |path: &PathRow<'_>, device: &Device| {
        let name = format!("{}n{}", path.name, device.nsid);
        Object::new().with("Path", name).with("ANAState", path.access_to(device))
    };
    let of_path = |path: PathRow<'_>| {
        let namespaces = if is_only { detailed_namespaces_json(controller) } else { Vec::new() };
        let others = state.devices.iter().filter(|_| !is_only).map(|device| to_namespace(&path, device));
        Object::new()
            .with("Controller", path.name)
            .with("Cntlid", path.cntlid.to_string())
            .with("SerialNumber", safe(&state.serial))
            .with("ModelNumber", safe(&state.model))
            .with("Firmware", safe(&state.firmware))
            .with("Transport", path.transport)
            .with("Address", path.address.as_str())
            .with("Slot", "")
            .with("State", path.state)
            .with("Front", state.front.as_str())
            .with("Namespaces", namespaces)
            .with("Paths", others.collect::<Vec<_>>())
    };
    rows.into_iter().map(of_path).collect()
}

fn subsystem_json(subsystem: &Subsystem<'_>) -> Object {
    let paths = |controller: &&Connected| {
        let given_up = given_up_json(&controller.state);
        let json = |path: PathRow<'_>| path.detailed_json().with("GivenUp", given_up.clone());
        controller.paths().into_iter().map(json).collect::<Vec<_>>()
    };
    named_json(subsystem)
        .with("IOPolicy", subsystem.policy().map(safe))
        .with("Paths", subsystem.controllers.iter().flat_map(paths).collect::<Vec<_>>())
}

/// The result of `connect`.
pub(crate) struct ConnectView {
    /// The subsystem.
    pub(crate) nqn: String,
    /// The controller and its devices.
    pub(crate) attached: Attached,
}

impl View for ConnectView {
    fn text(&self, _verbose: bool) -> String {
        let attached = &self.attached;
        let mut text = match &attached.path {
            Some(path) => format!("connecting to device: {path}, a path of {}\n", attached.name),
            None => format!("connecting to device: {}\n", attached.name),
        };
        for device in &self.attached.devices {
            let name = &device.name;
            let _infallible = match &device.problem {
                Some(problem) => writeln!(text, "{name}: no block device: {problem}"),
                None => writeln!(text, "{name}: {} ({})", node(device), si(bytes(device.blocks, device))),
            };
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("connect", 1).extend(self.object())
    }
}

impl ConnectView {
    /// The keys without the schema.
    pub(crate) fn object(&self) -> Object {
        let namespace = |device: &Device| {
            Object::new()
                .with("name", device.name.as_str())
                .with("nsid", device.nsid)
                .with("path", device.path.as_ref().map(|path| path.display().to_string()))
                .with("problem", device.problem.clone())
                .with("block_bytes", device.block_bytes)
                .with("blocks", device.blocks)
                .with("read_only", device.read_only)
        };
        Object::new()
            .with("device", self.attached.name.as_str())
            .with("path", self.attached.path.clone())
            .with("nqn", self.nqn.as_str())
            .with("namespaces", self.attached.devices.iter().map(namespace).collect::<Vec<_>>())
    }
}
