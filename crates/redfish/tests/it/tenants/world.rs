//! A box of two tenants: drive d0 is one's, and everything else has the mark of the other one in
//! its name.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebof_access::{Access, AccountReach, NewAccount, Role, User};
use ebof_clock::Clock;
use ebof_manage::api::{Asker, MissingKind, MissingObject, Peer, Refusal, RefusalReason};
use ebof_manage::enclosure::{Change, Enclosure as _, Transaction};
use ebof_manage::events::{EventKind, NewEvent, SharedEvents};
use ebof_manage::history::live::{Live, LiveKind, LiveObject, LiveTable};
use ebof_manage::history::{
    History, Measured, NoSamples, ObjectCounters, Overview, Query, Samples, SeriesKind, SeriesName,
};
use ebof_manage::load;
use ebof_manage::slow::{SLOW_SCHEMA, SlowCommand, SlowCommands, SlowParts};
use ebof_redfish::{Body, Caller, Parts, Service, Subscriptions};
use http::{Request, Response};

use crate::fixture::{ALICE, BOB, Fake, Fixture, Forgets, PLAIN};

/// What is in the names of what is the other tenant's.
pub(super) const MARK: &str = "markb";

/// Events that are told to the tenant, and on what.
pub(super) const KINDS_TOLD: &[(&str, EventKind)] = &[
    ("d0/vf1", EventKind::HostConnected),
    ("d0", EventKind::HostDisconnected),
    ("nqn.2014-08.org.example:d0", EventKind::SubsystemChanged),
    ("d0/ns1", EventKind::NamespaceChanged),
    ("d0", EventKind::HealthWarning),
    ("d0/vf2", EventKind::FunctionMoved),
    ("fabric0", EventKind::PortDown),
    ("task 2", EventKind::TaskEnded),
];

/// An answer as text.
pub(super) struct Told {
    pub(super) status: u16,
    pub(super) headers: String,
    pub(super) text: String,
}

pub(super) struct World {
    pub(super) service: Service,
    fake: Arc<Fake>,
    pub(super) admin: User,
    /// An Operator without limits.
    pub(super) operator: User,
    /// The Operator that has d0.
    pub(super) tenant: User,
}

impl World {
    pub(super) fn new() -> Self {
        let fixture = Fixture::new();
        let fake = Arc::clone(&fixture.fake);
        mark(&fake);
        let access = Access::new(None, Clock::simulated(1), Box::new(Forgets)).unwrap();
        let account = |name: &str, role, reach| added(&access, name, role, reach);
        let admin = account("admin", Role::Administrator, AccountReach::Everything);
        let operator = account(&format!("{MARK}-all"), Role::Operator, AccountReach::Everything);
        let only = |drive: String| AccountReach::only([drive], []);
        account(&format!("{MARK}-operator"), Role::Operator, only(format!("{MARK}1")));
        let tenant = account("tenant", Role::Operator, only("d0".to_owned()));
        let events = SharedEvents::new(4096, || 1_700_000_000_000);
        let parts = Parts {
            access: Arc::new(access),
            subscriptions: Arc::new(Subscriptions::new(None, None).unwrap()),
            measured: Arc::new(Counted::new()),
            events: Arc::new(events),
            ..fixture.service.parts().clone()
        };
        let world = Self { service: Service::new(parts), fake, admin, operator, tenant };
        world.happen();
        world
    }

    /// Has something happen to both.
    fn happen(&self) {
        let events = &self.service.parts().events;
        let theirs = (format!("{MARK}1"), format!("{MARK}-operator"));
        for (drive, name) in [theirs, ("d0".to_owned(), "tenant".to_owned())] {
            let by = Asker::Account { name, address: "192.0.2.66".to_owned() };
            let changes = vec![Change::ResetDrive { drive }];
            self.fake.begin_for(Transaction { changes, ..Transaction::default() }, &by).unwrap();
        }
        let objects = ["", "task 1", "task 99", "fabric0", "removed", "d00", "d0x/vf1"].map(str::to_owned);
        let own = [1, 2].map(|number| format!("{MARK}{number}"));
        let parts =
            [format!("{MARK}1/vf1"), format!("{MARK}1/ns1"), format!("nqn.2014-08.org.example:{MARK}-plain/ns1")];
        for kind in EventKind::ALL {
            let is_silent = |object: &String| match *kind {
                // They name nobody.
                EventKind::TargetStarted | EventKind::TargetStopping => true,
                EventKind::PortUp | EventKind::PortDown => object == "fabric0",
                _ => false,
            };
            for object in objects.iter().chain(&own).chain(&parts).filter(|object| !is_silent(object)) {
                events.report(NewEvent::new(*kind, object, format!("{MARK} {kind}")).who(format!("{MARK}-who")));
            }
        }
        for (object, kind) in KINDS_TOLD {
            events.report(NewEvent::new(*kind, *object, format!("of our own: {kind}")));
        }
        let destination = format!("{{\"Destination\": \"https://{MARK}.example.org/\", \"Protocol\": \"Redfish\"}}");
        let path = "/redfish/v1/EventService/Subscriptions";
        assert_eq!(self.ask(&self.admin, "POST", path, destination.as_bytes()).status, 201);
        let test = format!("{{\"MessageId\": \"Ebof.1.0.HostConnected\", \"Message\": \"{MARK}\"}}");
        let path = "/redfish/v1/EventService/Actions/EventService.SubmitTestEvent";
        assert_eq!(self.ask(&self.admin, "POST", path, test.as_bytes()).status, 204);
    }

    pub(super) fn response(&self, user: &User, method: &str, path: &str, body: &[u8]) -> Response<Body> {
        let caller = Caller { user: Some(user.clone()), refused: false, peer: "127.0.0.1:1".parse().unwrap() };
        // All that was before is read again.
        let request = Request::builder().method(method).uri(path).header("last-event-id", "1").body(body).unwrap();
        self.service.answer(&request, &caller)
    }

    pub(super) fn ask(&self, user: &User, method: &str, path: &str, body: &[u8]) -> Told {
        let (parts, body) = self.response(user, method, path, body).into_parts();
        let text = if let Body::Text(text) = body { text } else { String::new() };
        // Tags of what is not there differ with its name.
        let headers = parts.headers.iter().filter(|(name, _)| *name != "etag");
        let headers = headers.map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap())).collect();
        Told { status: parts.status.as_u16(), headers, text }
    }

    /// What nobody is to have changed.
    pub(super) fn state(&self) -> (ebof_manage::Config, usize, usize) {
        let state = self.fake.state();
        (state.config.clone(), state.begun.len(), state.restarts.len())
    }
}

fn added(access: &Access, name: &str, role: Role, reach: AccountReach) -> User {
    let (name, password) = (name.to_owned(), "correct horse".to_owned());
    let new = NewAccount { name, password, role, reach, enabled: true, must_change_password: false };
    let account = access.add_account(&new).unwrap();
    let user = User {
        account: account.id,
        name: account.name,
        role,
        reach: account.reach,
        session: None,
        must_change_password: false,
        credential: account.credential,
    };
    let (session, _token) = access.open_session(&user, [127, 0, 0, 1].into()).unwrap();
    User { session: Some(session.id), ..user }
}

/// Gives everything but d0 the mark.
fn mark(fake: &Fake) {
    let mut state = fake.state();
    let marked = |mut text: String| {
        for number in 1..5 {
            let new = format!("{MARK}{number}");
            for before in ["\"", "example:", "/srv/"] {
                text = text.replace(&format!("{before}d{number}"), &format!("{before}{new}"));
            }
            text = text.replace(&format!("\"S{number}\""), &format!("\"{new}\""));
        }
        for name in ["plain", "bob", "direct2"] {
            text = text.replace(name, &format!("{MARK}-{name}"));
        }
        text
    };
    let inventory = marked(serde_json::to_string(&state.inventory).unwrap());
    state.inventory = serde_json::from_str(&inventory).unwrap();
    state.inventory.contradictions = vec![format!("drive {MARK}1 remembers something else")];
    state.config = load("marked.toml", &marked(state.config.to_toml().unwrap())).unwrap().config;
    state.keys.iter_mut().for_each(|key| key.host = key.host.replace("alice", &format!("{MARK}-alice")));
    state.keys.iter_mut().for_each(|key| key.host = key.host.replace("bob", &format!("{MARK}-bob")));
    let missing = |kind, name: String| MissingObject { kind, name, reason: MARK.to_owned(), since_unix_ms: 1 };
    state.missing = vec![
        missing(MissingKind::Drive, format!("{MARK}9")),
        missing(MissingKind::Namespace, format!("nqn.2014-08.org.example:{MARK}-plain/1")),
        missing(MissingKind::Port, format!("{MARK}-port")),
        missing(MissingKind::Management, format!("{MARK}-management")),
    ];
    let refusal = |subsystem: Option<String>, detail: &str| Refusal {
        time_unix_ms: 1_700_000_000_000,
        peer: Peer::Network("192.0.2.66:1".parse().unwrap()),
        host_nqn: Some(ALICE.to_owned()),
        subsystem_nqn: subsystem,
        reason: RefusalReason::HostNotAllowed,
        detail: detail.to_owned(),
        advice: "ask".to_owned(),
        count: 3,
    };
    state.refused = vec![
        refusal(Some("nqn.2014-08.org.example:d0".to_owned()), "a host of ours"),
        refusal(Some(PLAIN.replace("plain", &format!("{MARK}-plain"))), MARK),
        refusal(None, MARK),
    ];
}

/// What all have done.
struct Counted(History);

impl Counted {
    fn new() -> Self {
        let mut history = History::new(100);
        let mut counters = ObjectCounters::default();
        for second in 1..=3 {
            counters.kinds[0].commands = 2 * second;
            let names = [
                SeriesName::target(),
                SeriesKind::Drive.named("d0"),
                SeriesKind::Function.named("d0/vf1"),
                SeriesKind::Namespace.named("d0/ns1"),
                SeriesKind::Port.named("fabric0"),
                SeriesKind::Host.named(BOB.replace("bob", &format!("{MARK}-bob"))),
                SeriesKind::Drive.named(format!("{MARK}1")),
                SeriesKind::Function.named(format!("{MARK}1/vf1")),
                SeriesKind::Namespace.named(format!("nqn.2014-08.org.example:{MARK}-plain/ns1")),
            ];
            let objects = names.map(|name| (name, &counters));
            history.record(second * 1000, 1_700_000_000_000 + second * 1000, objects);
        }
        Self(history)
    }
}

impl Measured for Counted {
    fn overview(&self) -> Overview {
        self.0.overview()
    }

    fn samples(&self, query: &Query) -> Result<Samples, NoSamples> {
        self.0.samples(query)
    }

    fn queues(&self) -> LiveTable {
        let mut live = Live::new(10, 10);
        let of = |subsystem: &str| LiveObject {
            object: LiveKind::Queue.named(format!("{subsystem}/c1/q1")),
            counters: ObjectCounters::default(),
            in_flight: None,
            labels: BTreeMap::from([("subsystem".to_owned(), subsystem.to_owned())]),
        };
        live.take(0, 0, [of("nqn.2014-08.org.example:d0"), of(&format!("nqn.2014-08.org.example:{MARK}1"))]);
        live.table().clone()
    }

    fn slow(&self) -> SlowCommands {
        let of = |id: u64, name: &str| SlowCommand {
            id,
            time_unix_ms: 1_700_000_000_000 + id,
            host_nqn: format!("nqn.2014-08.org.example:{name}-host"),
            subsystem_nqn: format!("nqn.2014-08.org.example:{name}"),
            object: name.to_owned(),
            port: "fabric0".to_owned(),
            queue: 1,
            nsid: 1,
            opcode: 2,
            command: "read".to_owned(),
            lba: None,
            bytes: 4096,
            status: "Success".to_owned(),
            total_us: 150_000,
            parts: SlowParts { device_us: 150_000, ..SlowParts::default() },
            unsent_bytes: 0,
        };
        let commands = vec![of(1, "d0"), of(2, &format!("{MARK}1"))];
        SlowCommands { slow_schema: SLOW_SCHEMA, threshold_us: Some(100_000), total: 2, commands }
    }

    fn forget_slow(&self) -> usize {
        0
    }
}
