//! A box that has something of everything: accounts of each role, sessions, a subscription, tasks,
//! events, a certificate; and what of it a request may not have changed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ebof_access::{Access, AccessSettings, Account, AccountReach, Keep, NewAccount, Role, User};
use ebof_clock::Clock;
use ebof_manage::Config;
use ebof_manage::api::{KeyStatus, Revision};
use ebof_manage::events::{EventKind, NewEvent};
use ebof_redfish::{Body, Caller, CertificateSubject, Certificates, Parts, Service, ShownCertificate, Subscriptions};
use http::Request;
use serde_json::Value;

use crate::fixture::{Answer, Fake, Fixture};

pub(super) const PASSWORD: &str = "correct horse";

/// Texts that are kept, by how often that was done.
#[derive(Default)]
struct Kept {
    count: AtomicUsize,
    text: Mutex<String>,
    is_full: AtomicBool,
}

struct Keeps(Arc<Kept>);

impl Keep for Keeps {
    fn keep(&self, text: &str) -> Result<(), ebof_access::KeepError> {
        if self.0.is_full.load(Ordering::Relaxed) {
            return Err(std::io::Error::from(std::io::ErrorKind::StorageFull).into());
        }
        self.0.count.fetch_add(1, Ordering::Relaxed);
        text.clone_into(&mut self.0.text.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }
}

/// The accounts, made once: hashing passwords is slow.
fn accounts() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let kept = Arc::new(Kept::default());
        let access = Access::new(None, Clock::simulated(1), Box::new(Keeps(Arc::clone(&kept)))).unwrap();
        for role in Role::ALL {
            let (name, password) = (role.name().to_lowercase(), PASSWORD.to_owned());
            let reach = AccountReach::Everything;
            let new = NewAccount { name, password, role, reach, enabled: true, must_change_password: false };
            access.add_account(&new).unwrap();
        }
        kept.text.lock().unwrap().clone()
    })
}

struct OneCertificate(Arc<Kept>);

impl Certificates for OneCertificate {
    fn shown(&self) -> Option<ShownCertificate> {
        Some(ShownCertificate {
            subject: "CN=box".to_owned(),
            issuer: "CN=box".to_owned(),
            serial_number: "01".to_owned(),
            valid_from: 0,
            valid_to: 86_400,
            fingerprint: "AB:CD".to_owned(),
            pem: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".to_owned(),
        })
    }

    fn replace(&self, chain: &str, _key: Option<&str>) -> Result<(), String> {
        if !chain.starts_with("-----BEGIN CERTIFICATE-----") {
            return Err("there is no certificate in the text".to_owned());
        }
        if self.0.is_full.load(Ordering::Relaxed) {
            return Err("there is no storage space".to_owned());
        }
        self.0.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn request(&self, subject: &CertificateSubject) -> Result<String, String> {
        if subject.common_name.is_empty() { Err("the name is empty".to_owned()) } else { Ok("CSR".to_owned()) }
    }
}

/// A service over such a box.
pub(super) struct Populated {
    pub(super) service: Service,
    fake: Arc<Fake>,
    users: Vec<User>,
    kept: [Arc<Kept>; 3],
}

/// What a refused request leaves as it was.
#[derive(Debug, PartialEq)]
pub(super) struct Unchanged {
    config: Config,
    keys: Vec<KeyStatus>,
    begun: usize,
    kept: [usize; 3],
    accounts: Vec<Account>,
    settings: AccessSettings,
    sessions: usize,
}

impl Unchanged {
    /// How often each of accounts, subscriptions and certificates was stored.
    pub(super) const fn kept(&self) -> [usize; 3] {
        self.kept
    }
}

impl Populated {
    pub(super) fn new() -> Self {
        let fixture = Fixture::new();
        let fake = Arc::clone(&fixture.fake);
        let kept = [(); 3].map(|()| Arc::new(Kept::default()));
        let access = Access::new(Some(accounts()), Clock::simulated(2), Box::new(Keeps(Arc::clone(&kept[0]))));
        let access = Arc::new(access.unwrap());
        let users: Vec<User> = access.accounts().iter().map(|account| opened(&access, account)).collect();
        let parts = Parts {
            access,
            subscriptions: Arc::new(Subscriptions::new(None, Some(Box::new(Keeps(Arc::clone(&kept[1]))))).unwrap()),
            certificates: Arc::new(OneCertificate(Arc::clone(&kept[2]))),
            ..fixture.service.parts().clone()
        };
        parts.events.report(NewEvent::new(EventKind::TaskBegan, "d0/vf1", "a task began"));
        let made = Self { service: Service::new(parts), fake, users, kept };
        let subscription = br#"{"Destination": "https://192.0.2.1/", "Protocol": "Redfish"}"#;
        let subscribed = made.admin("POST", "/redfish/v1/EventService/Subscriptions", subscription, &[]);
        assert_eq!(subscribed.status, 201, "{}", subscribed.body);
        let reset = made.admin("POST", "/redfish/v1/Storage/d1/Actions/Oem/EbofStorage.ResetDrive", b"", &[]);
        assert_eq!(reset.status, 202, "{}", reset.body);
        made
    }

    /// The user with a role, in a session.
    pub(super) fn user(&self, role: Role) -> &User {
        self.users.iter().find(|user| user.role == role).unwrap()
    }

    pub(super) fn admin(&self, method: &str, uri: &str, body: &[u8], headers: &[(&str, &[u8])]) -> Answer {
        self.ask(Some(self.user(Role::Administrator)), method, uri, body, headers)
    }

    /// What a user, or a stranger, is answered.
    pub(super) fn ask(
        &self,
        user: Option<&User>,
        method: &str,
        uri: &str,
        body: &[u8],
        headers: &[(&str, &[u8])],
    ) -> Answer {
        let caller = Caller { user: user.cloned(), refused: false, peer: "127.0.0.1:1".parse().unwrap() };
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, body) = self.service.answer(&request.body(body).unwrap(), &caller).into_parts();
        let body = match body {
            Body::Text(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            _ => Value::Null,
        };
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// From now on nothing can be stored.
    pub(super) fn fill(&self) {
        self.kept.iter().for_each(|kept| kept.is_full.store(true, Ordering::Relaxed));
        self.fake.state().is_full = true;
    }

    /// The revision of the configuration in force.
    pub(super) fn revision(&self) -> String {
        Revision::from_config(&self.fake.state().config).to_string()
    }

    /// What is stored, begun or in force.
    pub(super) fn now(&self) -> Unchanged {
        let (state, access) = (self.fake.state(), &self.service.parts().access);
        Unchanged {
            config: state.config.clone(),
            keys: state.keys.clone(),
            begun: state.begun.len(),
            kept: self.kept.each_ref().map(|kept| kept.count.load(Ordering::Relaxed)),
            accounts: access.accounts(),
            settings: access.settings(),
            sessions: access.sessions().len(),
        }
    }
}

fn opened(access: &Access, account: &Account) -> User {
    let new = User {
        account: account.id,
        // Whom the box expects.
        name: "x".to_owned(),
        role: account.role,
        reach: account.reach.clone(),
        session: None,
        must_change_password: false,
        credential: account.credential,
    };
    let (session, _token) = access.open_session(&new, [127, 0, 0, 1].into()).unwrap();
    User { session: Some(session.id), ..new }
}
