//! The paths of attached devices, as `list-subsys`, `show-topology` and `list -v` show them.

use std::fmt::Write as _;

use ebof_attach::Device;
use ebof_attach::state::{PathState, State};

use super::View;
use super::json::Object;
use super::text::{safe, table};

/// A path: a controller of a subsystem.
#[derive(Clone, Debug)]
pub(crate) struct PathRow<'a> {
    /// Its name: `nvme0c1`, or `nvme0` of an only one.
    pub(crate) name: &'a str,
    /// Transport.
    pub(crate) transport: &'a str,
    /// The address it is connected to, as in sysfs.
    pub(crate) address: String,
    /// The state of its connection.
    pub(crate) state: &'a str,
    /// The controller identifier.
    pub(crate) cntlid: u16,
    /// What is told of it, if there are several, or if it tells of the access.
    known: Option<&'a PathState>,
}

/// The paths of an attached device. An only one has the device's name.
pub(crate) fn paths(state: &State) -> Vec<PathRow<'_>> {
    if let [_, _, ..] = state.paths.as_slice() {
        return state.paths.iter().map(row).collect();
    }
    let request = &state.request;
    let overrides = &request.overrides;
    let only = state.paths.first();
    // It need not be the first that was asked for.
    let first = || address(&request.traddr, request.trsvcid, &overrides.host_traddr, &overrides.host_iface);
    vec![PathRow {
        name: &state.name,
        transport: only.map_or(&request.transport, |path| &path.transport),
        address: only.map_or_else(first, of_path),
        state: &state.state,
        cntlid: state.cntlid,
        known: only,
    }]
}

fn row(path: &PathState) -> PathRow<'_> {
    PathRow {
        name: &path.name,
        transport: &path.transport,
        address: of_path(path),
        state: &path.state,
        cntlid: path.cntlid,
        known: Some(path),
    }
}

fn of_path(path: &PathState) -> String {
    address(&path.traddr, path.trsvcid, &path.host_traddr, &path.host_iface)
}

fn address(traddr: &str, trsvcid: u16, host_traddr: &Option<String>, host_iface: &Option<String>) -> String {
    let mut address = format!("traddr={},trsvcid={trsvcid}", safe(traddr));
    for (name, value) in [("host_traddr", host_traddr), ("host_iface", host_iface)] {
        if let Some(value) = value {
            let _infallible = write!(address, ",{name}={}", safe(value));
        }
    }
    address
}

/// `path`.
pub(crate) struct PathsView {
    /// The state of the device's daemon.
    pub(crate) state: State,
}

impl View for PathsView {
    fn text(&self, _verbose: bool) -> String {
        let policy = self.state.policy.as_deref().unwrap_or("numa");
        let mut text = format!("{} - NQN={}\niopolicy={}\n", self.state.name, safe(&self.state.subnqn), safe(policy));
        let columns = [
            ("Path", 9),
            ("Transport", 9),
            ("Address", 40),
            ("State", 10),
            ("Access", 13),
            ("Outstanding", 11),
            ("Completed", 12),
        ];
        let rows = self.state.paths.iter().map(row).map(|path| {
            let known = path.known.expect("it is a row of the state's");
            vec![
                path.name.to_owned(),
                path.transport.to_owned(),
                path.address.clone(),
                path.state.to_owned(),
                path.access().unwrap_or_else(|| "-".to_owned()),
                known.in_flight.to_string(),
                known.completed.to_string(),
            ]
        });
        text += &table(&columns, &rows.collect::<Vec<_>>());
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let paths = self.state.paths.iter().map(|path| row(path).detailed_json());
        Object::document("path", 1)
            .with("Device", self.state.name.as_str())
            .with("NQN", safe(&self.state.subnqn))
            .with("IOPolicy", self.state.policy.clone())
            .with("Paths", paths.collect::<Vec<_>>())
    }
}

impl PathRow<'_> {
    /// What is told of it in a line.
    pub(crate) fn line(&self) -> String {
        let Self { name, transport, address, state, .. } = self;
        format!("{name} {transport} {address} {state}")
    }

    /// The access that it gives to a namespace, where it tells.
    pub(crate) fn access_to(&self, device: &Device) -> Option<String> {
        self.known?.access.get(&device.nsid.to_string()).map(|access| safe(access))
    }

    /// The access that it gives to all namespaces alike, and what the user says of it.
    pub(crate) fn access(&self) -> Option<String> {
        let known = self.known?;
        let mut words: Vec<String> = Vec::new();
        let mut states = known.access.values();
        if let Some(first) = states.next() {
            words.push(if states.all(|other| other == first) { safe(first) } else { "mixed".to_owned() });
        }
        words.extend((!known.enabled).then(|| "disabled".to_owned()));
        words.extend(known.preferred.then(|| "preferred".to_owned()));
        (!words.is_empty()).then(|| words.join(" "))
    }

    /// The keys that every path has.
    pub(crate) fn json(&self) -> Object {
        Object::new()
            .with("Name", self.name)
            .with("Transport", self.transport)
            .with("Address", self.address.as_str())
            .with("State", self.state)
            .with("ControllerID", self.cntlid)
    }

    /// The same, and what only several paths have.
    pub(crate) fn detailed_json(&self) -> Object {
        let Some(known) = self.known else { return self.json() };
        let access = known.access.iter().map(|(nsid, access)| {
            Object::new().with("NSID", nsid.parse::<u32>().unwrap_or_default()).with("ANAState", safe(access))
        });
        self.json()
            .with("Enabled", known.enabled)
            .with("Preferred", known.preferred)
            .with("Outstanding", known.in_flight)
            .with("Completed", known.completed)
            .with("Access", access.collect::<Vec<_>>())
    }
}
