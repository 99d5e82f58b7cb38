//! A box without a target: five drives, functions at fabric and direct ports, hosts, a plain
//! subsystem. Changes are checked and noted, and configurations are applied.

#[path = "fixture/details.rs"]
mod details;
#[path = "fixture/keys.rs"]
mod keys;
#[path = "fixture/objects.rs"]
mod objects;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebof_access::{Access, AccountReach, Credential, Keep, Role, User};
use ebof_clock::Clock;
use ebof_manage::api::{
    Applied, ApplyError, Asker, CONFIGURATION_SCHEMA, Cause, Configuration, ControllerStatus, Desired, Generation,
    IoCounters, KeyStatus, MissingObject, NamespaceStatus, Peer, Planned, PlannedChange, PortStatus, Refusal,
    RefusedConfiguration, Revision, STATUS_SCHEMA, Source, Status, SubsystemStatus,
};
use ebof_manage::config::Security;
use ebof_manage::enclosure::{
    Change, DriveDetails, Enclosure, Inventory, MistakeKind, Phase, Refused, StoredImage, TASK_SCHEMA, Task, TaskState,
    Transaction, check,
};
use ebof_manage::events::SharedEvents;
use ebof_manage::history::{History, Measured, NoSamples, Overview, Query, Samples};
use ebof_manage::slow::{SLOW_SCHEMA, SlowCommand, SlowCommands, SlowParts};
use ebof_manage::{Config, Plan, Target, load};
use ebof_redfish::{
    Audited, AuditedRecord, Body, Caller, Configurations, Door, Doors, MachineSize, NetworkInterface, NoCertificates,
    Parts, Program, Service, Subscriptions,
};
use http::{HeaderMap, Request};
use serde_json::{Value, json};
use uuid::Uuid;

pub(crate) const ALICE: &str = "nqn.2014-08.org.example:alice";
pub(crate) const BOB: &str = "nqn.2014-08.org.example:bob";
pub(crate) const PLAIN: &str = "nqn.2014-08.org.example:plain";

const CONFIG: &str = r#"
[target]
https = "192.0.2.1:8443"
[[ports]]
name = "fabric0"
listen = "tcp://192.0.2.1:4420"
[[ports]]
name = "tcp://192.0.2.2:4420"
listen = "tcp://192.0.2.2:4420"
[[ports]]
name = "discovery"
listen = "tcp://192.0.2.1:8009"
discovery_only = true
[[ports]]
name = "direct1"
listen = "vfio-user:/run/ebof/direct1.sock"
[[ports]]
name = "direct2"
listen = "vfio-user:/run/ebof/direct2.sock"
[[hosts]]
nqn = "nqn.2014-08.org.example:alice"
[[hosts]]
nqn = "nqn.2014-08.org.example:bob"
[[subsystems]]
nqn = "nqn.2014-08.org.example:plain"
ports = ["fabric0"]
allow_any_host = true
namespaces = [{ nsid = 1, drive = "mem:1Mi", uuid = "a5a48593-4126-5d78-9ec0-899c8a77a729" }]
"#;

/// The state of the box.
pub(crate) struct State {
    pub(crate) inventory: Inventory,
    pub(crate) config: Config,
    pub(crate) keys: Vec<KeyStatus>,
    /// Whether there is no room to store keys.
    pub(crate) is_full: bool,
    /// Transactions that were begun.
    pub(crate) begun: Vec<Vec<Change>>,
    /// Who had them begun.
    pub(crate) askers: Vec<Asker>,
    /// The tasks of those.
    pub(crate) tasks: Vec<Task>,
    /// Whether tasks end at once.
    pub(crate) quick: bool,
    /// What cannot be had.
    pub(crate) missing: Vec<MissingObject>,
    /// Connections that were refused.
    pub(crate) refused: Vec<Refusal>,
    /// Who had the service started again.
    pub(crate) restarts: Vec<String>,
    /// Why a new start would not serve the same.
    pub(crate) forgets: Option<String>,
    /// Whether the command line names the addresses of management.
    pub(crate) by_command_line: bool,
}

/// The box, as a target and an enclosure.
pub(crate) struct Fake(Mutex<State>);

impl Fake {
    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A service over a box.
pub(crate) struct Fixture {
    pub(crate) fake: Arc<Fake>,
    pub(crate) service: Service,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The messages of an error: identifier, property, sentence.
    pub(crate) fn messages(&self) -> Vec<(String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let one = |message: &Value| {
            let id = text(&message["MessageId"]).rsplit('.').next().unwrap_or_default().to_owned();
            (id, text(&message["RelatedProperties"][0]), text(&message["Message"]))
        };
        self.body["error"]["@Message.ExtendedInfo"].as_array().into_iter().flatten().map(one).collect()
    }
}

impl Fixture {
    /// Five drives, of which d0 and d1 have functions.
    pub(crate) fn new() -> Self {
        Self::of(5, 3)
    }

    /// Drives with functions.
    pub(crate) fn of(drives: usize, functions: u16) -> Self {
        let (inventory, text) = objects::inventory(drives, functions);
        let config = load("test.toml", &format!("{CONFIG}{text}")).unwrap().config;
        let fake = Arc::new(Fake(Mutex::new(State {
            inventory,
            config,
            keys: keys::keys(),
            is_full: false,
            begun: Vec::new(),
            askers: Vec::new(),
            tasks: Vec::new(),
            quick: false,
            missing: Vec::new(),
            refused: Vec::new(),
            restarts: Vec::new(),
            forgets: None,
            by_command_line: false,
        })));
        let parts = Parts {
            target: fake.clone(),
            enclosure: fake.clone(),
            access: Arc::new(Access::new(None, Clock::system(), Box::new(Forgets)).unwrap()),
            events: Arc::new(SharedEvents::new(100, || 1_700_000_000_000)),
            subscriptions: Arc::new(Subscriptions::new(None, None).unwrap()),
            measured: Arc::new(Idle),
            certificates: Arc::new(NoCertificates),
            configurations: fake.clone(),
            keys: fake.clone(),
            audit: Arc::new(Told),
            program: fake.clone(),
            uuid: Uuid::from_u128(0x1234_5678_9abc_def0),
            host_name: "box".to_owned(),
            only: None,
        };
        Self { fake, service: Service::new(parts) }
    }

    pub(crate) fn ask_as(&self, role: Role, method: &str, uri: &str, body: &Value) -> Answer {
        self.ask_planned(role, method, uri, body, None)
    }

    /// With the revision of a plan that was looked at.
    pub(crate) fn ask_planned(&self, role: Role, method: &str, uri: &str, body: &Value, plan: Option<&str>) -> Answer {
        let account = serde_json::from_value(json!(1)).unwrap();
        let user = User {
            account,
            name: "x".into(),
            role,
            reach: AccountReach::Everything,
            session: None,
            must_change_password: false,
            credential: Credential::default(),
        };
        let caller = Caller { user: Some(user), refused: false, peer: "127.0.0.1:1".parse().unwrap() };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(plan) = plan {
            request = request.header("ebof-plan", plan);
        }
        let request = request.body(body).unwrap();
        let (parts, body) = self.service.answer(&request, &caller).into_parts();
        let body = match body {
            Body::Text(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            _ => Value::Null,
        };
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(crate) fn ask(&self, method: &str, uri: &str, body: &Value) -> Answer {
        self.ask_as(Role::Administrator, method, uri, body)
    }

    /// A resource that has to be there.
    pub(crate) fn get(&self, uri: &str) -> Value {
        let answer = self.ask("GET", uri, &Value::Null);
        assert_eq!(answer.status, 200, "{uri}: {}", answer.body);
        answer.body
    }

    /// The changes that a request begins, as text.
    pub(crate) fn begun(&self, method: &str, uri: &str, body: &Value) -> Vec<String> {
        self.fake.state().begun.clear();
        let answer = self.ask(method, uri, body);
        assert_eq!(answer.status, 202, "{method} {uri}: {}", answer.body);
        assert!(answer.header("location").starts_with("/redfish/v1/TaskService/TaskMonitors/"));
        self.fake.state().begun.iter().flatten().map(ToString::to_string).collect()
    }
}

impl Target for Fake {
    fn status(&self) -> Status {
        let state = self.state();
        let ports = state.config.ports.iter().map(|port| PortStatus {
            name: port.name.clone(),
            id: port.id,
            transport: port.listen.transport.scheme().to_owned(),
            address: (port.listen.address, port.listen.port).into(),
            socket: None,
            discovery_only: port.discovery_only,
            ana: port.ana.clone(),
            tls: port.tls,
            connections: 2,
            accepted: 10,
            refused: 1,
        });
        let plain = state.config.subsystems.iter().filter(|subsystem| subsystem.drive.is_none());
        let subsystems = plain.map(|subsystem| SubsystemStatus {
            nqn: subsystem.nqn.to_string(),
            enabled: subsystem.enabled,
            serial: subsystem.serial.clone(),
            model: subsystem.model.clone(),
            allow_any_host: subsystem.allow_any_host,
            allowed_hosts: Vec::new(),
            security: Security::Anyone,
            ports: subsystem.ports.clone(),
            namespaces: subsystem.namespaces.iter().map(namespace_status).collect(),
        });
        let of_drives = state.inventory.drives.iter().flat_map(|drive| {
            drive.hosts.iter().map(|host| ControllerStatus {
                cntlid: host.cntlid,
                subsystem_nqn: drive.nqn.clone(),
                host_nqn: host.nqn.clone(),
                host_id: Uuid::nil().to_string(),
                port: host.port.clone(),
                peer: Peer::Network("192.0.2.9:1".parse().unwrap()),
                discovery: false,
                proof: Security::Anyone,
                connected_since_unix_ms: 0,
                keep_alive_ms: 0,
                queues: Vec::new(),
            })
        });
        Status {
            schema: STATUS_SCHEMA,
            version: "0.2.0".into(),
            uptime_s: 60,
            generation: 1,
            connections: 2,
            connections_max: 100,
            ana_group_max: 128,
            confinement: None,
            keys_unprotected: None,
            ports: ports.collect(),
            disabled_ports: Vec::new(),
            missing: state.missing.clone(),
            subsystems: subsystems.collect(),
            drives: Vec::new(),
            controllers: of_drives.collect(),
            proving: Vec::new(),
        }
    }

    fn refused(&self) -> Vec<Refusal> {
        self.state().refused.clone()
    }

    fn forget_refused(&self) -> usize {
        self.refused().len()
    }

    fn config(&self) -> Config {
        self.state().config.clone()
    }

    fn apply_for(&self, _cause: &Cause, revision: Option<&Revision>, desired: Config) -> Result<Plan, ApplyError> {
        let mut state = self.state();
        let current = Revision::from_config(&state.config);
        if let Some(planned) = revision.filter(|revision| **revision != current) {
            return Err(ApplyError::Outdated { planned: planned.clone(), current });
        }
        let plan = Plan::between(&state.config, &desired);
        state.config = desired;
        Ok(plan)
    }
}

impl Program for Fake {
    fn doors(&self) -> Doors {
        let state = self.state();
        let door = |address: Option<std::net::SocketAddr>| Door {
            port: address.map(|address| address.port()),
            by_command_line: state.by_command_line,
        };
        Doors { https: door(state.config.target.https), http: door(state.config.target.http) }
    }

    fn forgets(&self) -> Option<String> {
        self.state().forgets.clone()
    }

    fn restart(&self, by: &str) -> Result<(), String> {
        self.state().restarts.push(by.to_owned());
        Ok(())
    }

    fn interfaces(&self) -> Vec<NetworkInterface> {
        vec![NetworkInterface { name: "eth0".to_owned(), is_up: true, ..NetworkInterface::default() }]
    }

    fn machine(&self) -> MachineSize {
        MachineSize::default()
    }
}

impl Configurations for Fake {
    fn configuration(&self) -> Result<Configuration, RefusedConfiguration> {
        let config = self.config();
        let (revision, source) = (Revision::from_config(&config), Source::Arguments);
        Ok(Configuration {
            schema: CONFIGURATION_SCHEMA,
            revision,
            generation: None,
            source,
            toml: config.to_toml().unwrap(),
        })
    }

    fn generations(&self) -> Vec<Generation> {
        vec![Generation {
            generation: 1,
            revision: Revision::from_config(&self.config()),
            previous: None,
            at_unix_ms: 1_700_000_000_000,
            cause: Cause::new(Asker::Start, "serve"),
            changes: vec!["port fabric0 is added".to_owned()],
            changes_left_out: 0,
            bytes: 100,
        }]
    }

    fn plan(&self, desired: Desired) -> Result<Planned, RefusedConfiguration> {
        let loaded = load("x.toml", &desired.toml.unwrap_or_default()).map_err(RefusedConfiguration::text)?;
        Ok(Planned::new(&self.config(), loaded.config, &self.status(), loaded.remarks))
    }

    fn apply(
        &self,
        planned: &Revision,
        desired: Desired,
        by: &User,
        _from: std::net::IpAddr,
    ) -> Result<Applied, RefusedConfiguration> {
        assert_eq!(by.name, "x", "who it was is passed on");
        let loaded = load("x.toml", &desired.toml.unwrap_or_default()).map_err(RefusedConfiguration::text)?;
        let outdated = |error: ApplyError| Refused::because(MistakeKind::Outdated, error.to_string(), "look again");
        let plan = self.apply_to(planned, loaded.config).map_err(outdated)?;
        let (revision, source) = (Revision::from_config(&self.config()), Source::Arguments);
        let plan = PlannedChange::all(&plan);
        Ok(Applied { schema: CONFIGURATION_SCHEMA, revision, generation: None, plan, source, remarks: loaded.remarks })
    }
}

/// Keeps nothing.
pub(crate) struct Forgets;

impl Keep for Forgets {
    fn keep(&self, _text: &str) -> Result<(), ebof_access::KeepError> {
        Ok(())
    }
}

/// Two records.
struct Told;

impl Audited for Told {
    fn records(&self, most: usize) -> Option<Vec<AuditedRecord>> {
        let record = |n: u64, outcome| AuditedRecord {
            n,
            time_unix_ms: 1_700_000_000_000,
            kind: "change",
            who: "markb-admin (Administrator)".to_owned(),
            from: "192.0.2.7".to_owned(),
            what: "PATCH /redfish/v1/AccountService".to_owned(),
            object: String::new(),
            outcome,
            detail: "200".to_owned(),
            count: 1,
            hash: "0".repeat(64),
        };
        Some([record(1, "done"), record(2, "refused")].into_iter().take(most).collect())
    }

    fn is_on(&self) -> bool {
        true
    }
}

/// Where nobody does anything.
struct Idle;

impl Measured for Idle {
    fn overview(&self) -> Overview {
        History::new(1).overview()
    }

    fn samples(&self, query: &Query) -> Result<Samples, NoSamples> {
        Err(NoSamples(query.object.clone()))
    }

    fn queues(&self) -> ebof_manage::history::live::LiveTable {
        ebof_manage::history::live::Live::new(1, 1).table().clone()
    }

    fn forget_slow(&self) -> usize {
        self.slow().commands.len()
    }

    fn slow(&self) -> SlowCommands {
        let of = |id: u64, object: &str, nsid: u32, parts: SlowParts| SlowCommand {
            id,
            time_unix_ms: 1_700_000_000_000 + id,
            host_nqn: ALICE.to_owned(),
            subsystem_nqn: "nqn.2014-08.org.example:box:d0".to_owned(),
            object: object.to_owned(),
            port: "fabric0".to_owned(),
            queue: 1,
            nsid,
            opcode: 2,
            command: "read".to_owned(),
            lba: Some(2048),
            bytes: 4096,
            status: "Success".to_owned(),
            total_us: parts.named().iter().map(|(_, us)| us).sum(),
            parts,
            unsent_bytes: 0,
        };
        let device = SlowParts { queue_us: 6, device_us: 150_000, ..SlowParts::default() };
        let queue = SlowParts { queue_us: 200_000, device_us: 30, ..SlowParts::default() };
        let commands = vec![of(7, "d0/vf1", 3, device), of(8, PLAIN, 1, queue), of(9, "removed", 1, queue)];
        SlowCommands { slow_schema: SLOW_SCHEMA, threshold_us: Some(100_000), total: 9, commands }
    }
}

fn namespace_status(namespace: &ebof_manage::config::Namespace) -> NamespaceStatus {
    NamespaceStatus {
        nsid: namespace.nsid,
        enabled: namespace.enabled,
        drive: namespace.drive.to_string(),
        size_bytes: if namespace.enabled { 1 << 20 } else { 0 },
        block_size_bytes: if namespace.enabled { 512 } else { 0 },
        uuid: namespace.uuid.map(|uuid| uuid.to_string()),
        write_protect: namespace.write_protect,
        ana_group: namespace.ana_group,
        io: IoCounters { read_commands: 7, read_bytes: 4096, ..IoCounters::default() },
    }
}

impl Enclosure for Fake {
    fn inventory(&self) -> Inventory {
        self.state().inventory.clone()
    }

    fn begin_for(&self, transaction: Transaction, by: &Asker) -> Result<Task, Refused> {
        let mut state = self.state();
        check(&state.inventory, &transaction)?;
        state.begun.push(transaction.changes.clone());
        state.askers.push(by.clone());
        let done = state.quick;
        let made = transaction.changes.iter().filter_map(|change| match change {
            Change::CreateNamespace(new) => Some(format!("{}/ns1", new.drive)),
            _ => None,
        });
        let task = Task {
            task_schema: TASK_SCHEMA,
            id: state.tasks.len() as u64 + 1,
            revision: 1,
            what: "something".into(),
            made: made.collect(),
            changes: transaction.changes,
            by: Some(by.clone()),
            state: if done { TaskState::Done } else { TaskState::Running },
            change: 0,
            phase: Phase::Storing,
            percent: 10,
            detail: None,
            began_unix_ms: 1_700_000_000_000,
            ended_unix_ms: None,
            elapsed_ms: 1,
            remark: None,
            error: None,
        };
        state.tasks.push(task.clone());
        Ok(task)
    }

    fn tasks(&self) -> Vec<Task> {
        self.state().tasks.clone()
    }

    fn task(&self, id: u64, _known: Option<u64>, _wait: Duration) -> Option<Task> {
        self.state().tasks.iter().find(|task| task.id == id).cloned()
    }

    fn drive_details(&self, drive: &str) -> Option<DriveDetails> {
        let state = self.state();
        state.inventory.drive(drive).map(details::details)
    }

    fn store_image(&self, bytes: &[u8]) -> Result<StoredImage, Refused> {
        if !bytes.starts_with(b"EBOF") {
            return Err(Refused::because(MistakeKind::Value, "it is no image", "send another one"));
        }
        let (id, revision, product) = ("i1".to_owned(), "2.0".to_owned(), "ebof".to_owned());
        Ok(StoredImage { id, bytes: bytes.len() as u64, revision, product })
    }
}
