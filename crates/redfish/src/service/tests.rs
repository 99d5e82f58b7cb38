//! Requests and responses of the service over a box of two drives.

use std::sync::Arc;
use std::time::Duration;

use ebof_access::{Access, AccountReach, Credential, Keep, Role, User};
use ebof_clock::Clock;
use ebof_manage::api::{
    Applied, ApplyError, Asker, CONFIGURATION_SCHEMA, Cause, Configuration, Desired, Generation, History, Planned,
    Refusal, RefusedConfiguration, Revision, STATUS_SCHEMA, Source, Status,
};
use ebof_manage::enclosure::{
    DriveDetails, Enclosure, Inventory, MistakeKind, Refused, StoredImage, Task, Transaction,
};
use ebof_manage::events::{EventKind, NewEvent, SharedEvents};
use ebof_manage::history::{Measured, NoSamples};
use ebof_manage::slow::{SLOW_SCHEMA, SlowCommands};
use ebof_manage::{Config, Plan, Target};
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::managed::parts::{
    CertificateSubject, Certificates, Configurations, Door, Doors, MachineSize, NetworkInterface, NoCertificates,
    NoKeys, Program, ShownCertificate,
};
use crate::managed::subscriptions::Subscriptions;

#[derive(Default)]
pub(crate) struct Box2 {
    pub(crate) refused: Vec<Refusal>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) details: Vec<DriveDetails>,
    /// What was begun; each is told to be the first task.
    pub(crate) begun: std::sync::Mutex<Vec<Transaction>>,
}

impl Target for Box2 {
    fn status(&self) -> Status {
        serde_json::from_value(json!({
            "schema": STATUS_SCHEMA, "version": "1", "uptime_s": 1, "generation": 1, "connections": 0,
            "connections_max": 10, "ports": [], "subsystems": [], "controllers": [],
        }))
        .unwrap()
    }

    fn refused(&self) -> Vec<Refusal> {
        self.refused.clone()
    }

    fn forget_refused(&self) -> usize {
        self.refused().len()
    }

    fn config(&self) -> Config {
        Config::default()
    }

    fn apply_for(&self, _cause: &Cause, _revision: Option<&Revision>, _desired: Config) -> Result<Plan, ApplyError> {
        Ok(Plan::default())
    }
}

impl Enclosure for Box2 {
    fn inventory(&self) -> Inventory {
        let drive = |name: &str| {
            json!({
                "name": name, "nqn": format!("nqn.2014-08.org.example:{name}"), "serial": "S1", "backing": "mem:1G",
                "capacity_bytes": 1 << 30, "unallocated_bytes": 1 << 30, "temperature_kelvin": 300, "critical_warning": 0,
                "resources": null, "functions": [], "namespaces": [], "ports": [], "hosts": [], "added": false, "task": null,
            })
        };
        serde_json::from_value(json!({
            "inventory_schema": 1, "version": "1", "pid": 1, "uptime_s": 1, "drives": [drive("d0"), drive("d1")],
            "subsystems": [], "ports": [], "sensors": { "temperatures": [], "fans": [] }, "contradictions": [],
        }))
        .unwrap()
    }

    fn begin_for(&self, transaction: Transaction, _by: &Asker) -> Result<Task, Refused> {
        self.begun.lock().unwrap().push(transaction);
        Ok(task(1, "running"))
    }

    fn tasks(&self) -> Vec<Task> {
        let begun = self.begun.lock().unwrap().first().map(|_| task(1, "running"));
        begun.into_iter().chain(self.tasks.clone()).collect()
    }

    fn task(&self, _id: u64, _known: Option<u64>, _wait: Duration) -> Option<Task> {
        None
    }

    fn drive_details(&self, drive: &str) -> Option<DriveDetails> {
        self.details.iter().find(|details| details.name == drive).cloned()
    }

    fn store_image(&self, bytes: &[u8]) -> Result<StoredImage, Refused> {
        if !bytes.starts_with(b"EBOF") {
            return Err(Refused::because(MistakeKind::Value, "it is no image", "send another one"));
        }
        let (id, revision, product) = ("i1".to_owned(), "2.0".to_owned(), "ebof".to_owned());
        Ok(StoredImage { id, bytes: bytes.len() as u64, revision, product })
    }
}

/// Where nobody does anything.
struct Idle;

impl Measured for Idle {
    fn overview(&self) -> ebof_manage::history::Overview {
        ebof_manage::history::History::new(1).overview()
    }

    fn samples(&self, query: &ebof_manage::history::Query) -> Result<ebof_manage::history::Samples, NoSamples> {
        Err(NoSamples(query.object.clone()))
    }

    fn queues(&self) -> ebof_manage::history::live::LiveTable {
        ebof_manage::history::live::Live::new(1, 1).table().clone()
    }

    fn forget_slow(&self) -> usize {
        self.slow().commands.len()
    }

    fn slow(&self) -> SlowCommands {
        no_slow_commands()
    }
}

/// A machine with two network interfaces, one of which is not used.
struct Machine;

impl Program for Machine {
    fn doors(&self) -> Doors {
        Doors { https: Door { port: Some(8443), by_command_line: false }, http: Door::default() }
    }

    fn forgets(&self) -> Option<String> {
        None
    }

    fn restart(&self, _by: &str) -> Result<(), String> {
        Ok(())
    }

    fn interfaces(&self) -> Vec<NetworkInterface> {
        let first = NetworkInterface {
            name: "eth0".to_owned(),
            mac: Some("02:00:00:00:00:01".to_owned()),
            is_up: true,
            has_link: true,
            speed_mbps: Some(100_000),
            full_duplex: Some(true),
            mtu: Some(9000),
            ipv4: vec![([192, 0, 2, 1].into(), 24)],
            ipv6: vec![("fe80::1".parse().unwrap(), 64)],
        };
        vec![first, NetworkInterface { name: "eth0.7@x".to_owned(), ..NetworkInterface::default() }]
    }

    fn machine(&self) -> MachineSize {
        MachineSize { processors: Some(2), memory_bytes: Some(5 << 29) }
    }
}

/// Where no command is slow.
pub(crate) fn no_slow_commands() -> SlowCommands {
    SlowCommands { slow_schema: SLOW_SCHEMA, threshold_us: None, total: 0, commands: Vec::new() }
}

/// Whose configuration is empty. It takes one text.
struct Texts;

impl Configurations for Texts {
    fn configuration(&self) -> Result<Configuration, RefusedConfiguration> {
        let (revision, source) = (Revision::named("r1"), Source::Arguments);
        Ok(Configuration { schema: CONFIGURATION_SCHEMA, revision, generation: None, source, toml: String::new() })
    }

    fn generations(&self) -> Vec<Generation> {
        let cause = Cause::new(Asker::Start, "start");
        let with = |history: &History, revision, at| {
            history.with(Revision::named(revision), 9, at, &Plan::default(), &cause).0
        };
        with(&with(&History::default(), "r0", 1_700_000_000_000), "r1", 1_700_000_060_000).generations
    }

    fn plan(&self, desired: Desired) -> Result<Planned, RefusedConfiguration> {
        if desired.toml.as_deref() != Some("[target]") {
            return Err(RefusedConfiguration::text(ebof_manage::load("x", "[targe]").unwrap_err()));
        }
        let (current, desired) = (Config::default(), Config::default());
        Ok(Planned::new(&current, desired, &Box2::default().status(), ebof_manage::Diagnostics::default()))
    }

    fn apply(
        &self,
        planned: &Revision,
        desired: Desired,
        _by: &User,
        _from: std::net::IpAddr,
    ) -> Result<Applied, RefusedConfiguration> {
        if planned.as_str() != "r1" {
            return Err(
                Refused::because(MistakeKind::Outdated, "another one is in force", "look at the plan again").into()
            );
        }
        let Planned { schema, revision, plan, remarks, .. } = self.plan(desired)?;
        Ok(Applied { schema, revision, generation: None, plan, source: Source::Arguments, remarks })
    }
}

/// Keeps nothing.
struct Forgets;

impl Keep for Forgets {
    fn keep(&self, _text: &str) -> Result<(), ebof_access::KeepError> {
        Ok(())
    }
}

/// The parts of a box of two drives, which has an administrator `admin`.
pub(crate) fn parts() -> Parts {
    Parts {
        target: Arc::new(Box2::default()),
        enclosure: Arc::new(Box2::default()),
        access: Arc::new(Access::new(None, Clock::system(), Box::new(Forgets)).unwrap()),
        events: Arc::new(SharedEvents::new(100, || 1_700_000_000_000)),
        subscriptions: Arc::new(Subscriptions::new(None, None).unwrap()),
        measured: Arc::new(Idle),
        certificates: Arc::new(NoCertificates),
        configurations: Arc::new(Texts),
        keys: Arc::new(NoKeys),
        audit: Arc::new(crate::NoAudit),
        program: Arc::new(Machine),
        uuid: Uuid::from_u128(7),
        host_name: "box".into(),
        only: None,
    }
}

/// What a drive without namespaces says of itself: it runs slot 1, and slot 2 is empty.
pub(crate) fn details(name: &str) -> DriveDetails {
    let slot = |slot: u8, revision: Value| json!({ "slot": slot, "revision": revision, "is_read_only": slot == 1 });
    serde_json::from_value(json!({
        "details_schema": 1, "name": name, "model": "ebof", "serial": "S1", "uuid": "00000000-0000-4000-8000-000000000001",
        "managers": null, "overcommits": false, "is_exclusive": false, "encrypts": false, "checks": false,
        "allocated_bytes": 0, "extent_bytes": 1 << 20, "is_read_only": false,
        "formats": [{ "index": 0, "block_size_bytes": 512, "metadata_bytes": 0 }],
        "firmware": { "running": "1.0", "active_slot": 1, "next_slot": null,
                      "slots": [slot(1, json!("1.0")), slot(2, Value::Null)] },
        "health": {},
        "temperature": { "now_kelvin": 300, "warning_kelvin": 343, "critical_kelvin": 353, "warning_minutes": 0,
                         "critical_minutes": 0 },
        "endurance": { "rated_bytes": null, "written_bytes": 0, "used_percent": 0 },
        "sanitize": { "state": "never", "action": null, "percent": null, "passes": 0, "is_erased": false, "actions": [],
                      "estimates": { "block_erase_s": null, "overwrite_s": null, "crypto_erase_s": null } },
        "self_test": { "running": null, "results": [] }, "errors": [],
        "events": { "count": 0, "total": 0, "latest": [] }, "namespaces": [], "controllers": [],
    }))
    .unwrap()
}

/// A task that gives a function to a port.
fn task(id: u64, state: &str) -> Task {
    let change = json!({ "change": "assign", "function": "d0/vf1", "port": "fabric0" });
    serde_json::from_value(json!({
        "task_schema": 1, "id": id, "revision": 1, "what": "give d0/vf1 to port fabric0", "changes": [change],
        "state": state, "change": 0, "phase": "draining", "percent": 40, "detail": "2 commands of hosts are left",
        "began_unix_ms": 1_700_000_000_000_u64, "ended_unix_ms": null, "elapsed_ms": 5, "remark": null, "error": null,
    }))
    .unwrap()
}

/// A service that has something of everything.
pub(crate) fn full_service() -> Service {
    let refused = serde_json::from_value(json!({
        "time_unix_ms": 1_700_000_000_000_u64, "peer": "192.0.2.1:5000", "host_nqn": "nqn.a", "subsystem_nqn": null,
        "reason": "host-not-allowed", "detail": "the host may not connect", "advice": "allow it", "count": 3,
    }));
    let whole = Arc::new(Box2 {
        tasks: vec![task(1, "running"), task(2, "done")],
        refused: vec![refused.unwrap()],
        details: vec![details("d0"), details("d1")],
        ..Box2::default()
    });
    let parts = Parts {
        target: Arc::clone(&whole) as Arc<_>,
        enclosure: whole,
        certificates: Arc::new(OneCertificate),
        ..parts()
    };
    let mut password = String::new();
    let tell = |generated: &str| {
        generated.clone_into(&mut password);
        Ok::<_, ebof_access::Mistake>(())
    };
    parts.access.ensure_administrator("admin", tell).unwrap();
    let user = parts.access.login([127, 0, 0, 1].into(), "admin", &password).unwrap();
    parts.access.open_session(&user, [127, 0, 0, 1].into()).unwrap();
    parts.events.report(NewEvent::new(EventKind::TaskBegan, "d0/vf1", "a task began"));
    let service = Service::new(parts);
    let subscription = json!({ "Destination": "https://192.0.2.1/", "Protocol": "Redfish", "EventTypes": ["Alert"],
                               "OriginResources": [{ "@odata.id": "/redfish/v1/Chassis" }] });
    let definition = "/redfish/v1/TelemetryService/MetricReportDefinitions/Drives";
    let of_reports = json!({ "Destination": "https://192.0.2.1/", "Protocol": "Redfish", "EventFormatType": "MetricReport",
                             "MetricReportDefinitions": [{ "@odata.id": definition }] });
    let uri = "/redfish/v1/EventService/Subscriptions";
    for body in [subscription, of_reports] {
        assert_eq!(ask_of(&service, "POST", uri, &[], body, &caller(Some(Role::Administrator))).0, 201);
    }
    service
}

struct OneCertificate;

impl Certificates for OneCertificate {
    fn shown(&self) -> Option<ShownCertificate> {
        let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".to_owned();
        let (subject, issuer) = ("CN=box, O=ebof".to_owned(), "CN=root".to_owned());
        let (serial_number, fingerprint) = ("01".to_owned(), "AB:CD".to_owned());
        Some(ShownCertificate { subject, issuer, serial_number, valid_from: 0, valid_to: 86_400, fingerprint, pem })
    }

    fn replace(&self, _chain: &str, _key: Option<&str>) -> Result<(), String> {
        Ok(())
    }

    fn request(&self, _subject: &CertificateSubject) -> Result<String, String> {
        Ok("-----BEGIN CERTIFICATE REQUEST-----".to_owned())
    }
}

/// A service over a box with these tasks.
pub(crate) fn service_with_tasks(tasks: Vec<Task>) -> Service {
    Service::new(Parts { enclosure: Arc::new(Box2 { tasks, ..Box2::default() }), ..parts() })
}

fn service() -> Service {
    Service::new(parts())
}

/// Somebody without an account of the service, with a role.
pub(crate) fn caller(role: Option<Role>) -> Caller {
    let account = serde_json::from_value(json!(1)).unwrap();
    let user = role.map(|role| User {
        account,
        name: "somebody".into(),
        role,
        reach: AccountReach::Everything,
        session: None,
        must_change_password: false,
        credential: Credential::default(),
    });
    Caller { user, refused: false, peer: "127.0.0.1:1".parse().unwrap() }
}

fn ask(method: &str, uri: &str, headers: &[(&str, &str)], by: &Caller) -> (u16, http::HeaderMap, Value) {
    ask_of(&service(), method, uri, headers, Value::Null, by)
}

/// What a service answers: status, headers and body.
#[expect(clippy::needless_pass_by_value, reason = "it is written where it is passed")]
pub(crate) fn ask_of(
    service: &Service,
    method: &str,
    uri: &str,
    headers: &[(&str, &str)],
    body: Value,
    by: &Caller,
) -> (u16, http::HeaderMap, Value) {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let response = service.answer(&request.body(body).unwrap(), by);
    let (parts, body) = response.into_parts();
    let body = match body {
        Body::Text(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        Body::Empty => Value::Null,
        Body::Stream(_) => panic!("a stream"),
    };
    (parts.status.as_u16(), parts.headers, body)
}

/// The message that an error has first.
pub(crate) fn code(body: &Value) -> &str {
    body["error"]["code"].as_str().unwrap_or_default().rsplit('.').next().unwrap()
}

#[test]
fn only_the_root_is_for_everybody() {
    let nobody = caller(None);
    for path in ["/redfish", "/redfish/v1", "/redfish/v1/", "/redfish/v1/odata", "/redfish/v1/$metadata"] {
        assert_eq!(ask("GET", path, &[], &nobody).0, 200, "{path}");
    }
    for path in ["/redfish/v1/Chassis", "/redfish/v1/Chassis/enclosure/Drives/d0", "/redfish/v1/Nowhere", "/other"] {
        let (status, headers, body) = ask("GET", path, &[], &nobody);
        assert_eq!((status, code(&body)), (401, "NoValidSession"), "{path}");
        assert!(headers.contains_key("www-authenticate"));
    }
    let liar = Caller { refused: true, ..nobody };
    assert_eq!(ask("GET", "/redfish/v1/", &[], &liar).0, 401, "wrong credentials are refused everywhere");
}

#[test]
fn a_resource_is_read_with_its_tag() {
    let reader = caller(Some(Role::ReadOnly));
    let path = "/redfish/v1/Chassis/enclosure/Drives/d0";
    let (status, headers, body) = ask("GET", path, &[], &reader);
    assert_eq!((status, body["Id"].as_str(), body["@odata.id"].as_str()), (200, Some("d0"), Some(path)));
    assert_eq!(body["@odata.etag"], headers["etag"].to_str().unwrap());
    assert_eq!(headers["odata-version"], "4.0");
    assert_eq!(headers["link"], "</redfish/v1/JsonSchemas/Drive.v1_22_0>; rel=describedby");
    let (_, own, _) = ask("GET", "/redfish/v1/Managers/ebof/Oem/Ebof/Configuration", &[], &reader);
    assert_eq!(own["link"], "</redfish/v1/schemas/EbofConfiguration_v1.xml>; rel=describedby");
    let tag = headers["etag"].to_str().unwrap().to_owned();
    let (status, _, body) = ask("GET", path, &[("If-None-Match", &tag)], &reader);
    assert_eq!((status, body), (304, Value::Null));
    let (status, headers, body) = ask("HEAD", path, &[], &reader);
    assert_eq!((status, body, headers.contains_key("etag")), (200, Value::Null, true));
    let all = ask("GET", "/redfish/v1/Chassis/enclosure/Drives?$expand=.&$select=Id", &[], &reader).2;
    assert_eq!(all["Members"][1]["Id"], "d1");
}

#[test]
fn what_cannot_be_done_is_refused_in_order() {
    let reader = caller(Some(Role::ReadOnly));
    let admin = caller(Some(Role::Operator));
    let drive = "/redfish/v1/Chassis/enclosure/Drives/d0";
    for (method, path, by, status, id) in [
        ("GET", "/redfish/v1/Chassis/enclosure/Drives/d9", &reader, 404, "ResourceMissingAtURI"),
        ("GET", "/redfish/v1/Nowhere", &reader, 404, "ResourceMissingAtURI"),
        ("PATCH", drive, &reader, 403, "InsufficientPrivilege"),
        ("PATCH", drive, &admin, 405, "OperationNotAllowed"),
        ("DELETE", drive, &admin, 405, "ResourceCannotBeDeleted"),
        ("DELETE", "/redfish/v1/Chassis/enclosure/Drives/d9", &admin, 404, "ResourceMissingAtURI"),
        ("GET", "/redfish/v1/Chassis?$what=1", &reader, 501, "QueryParameterUnsupported"),
    ] {
        let (got, headers, body) = ask(method, path, &[], by);
        assert_eq!((got, code(&body)), (status, id), "{method} {path}");
        if status == 405 {
            assert_eq!(headers["allow"], "GET, HEAD");
        }
    }
    assert_eq!(ask("GET", drive, &[("OData-Version", "4.1")], &reader).0, 412);
    let (status, headers, _) = ask("OPTIONS", drive, &[], &reader);
    assert_eq!((status, headers["allow"].to_str().unwrap()), (204, "GET, HEAD"));
}

#[test]
fn addresses_are_read_as_they_are_written() {
    let parts = service().parts;
    let view = View::new(&parts);
    for path in ["/redfish/v1/", "/redfish/v1/Chassis", "/redfish/v1/Chassis/enclosure/Drives/d0", "/redfish"] {
        let place = Place::parse(path).unwrap();
        assert_eq!(place.to_string(), path);
        tree::area(&place).read(&view).unwrap();
    }
    for path in ["", "/", "redfish/v1", "/redfish/v2", "/redfish/v1//Chassis", &"/redfish/v1/Chassis/x".repeat(100)] {
        assert_eq!(Place::parse(path), None, "{path}");
    }
}
