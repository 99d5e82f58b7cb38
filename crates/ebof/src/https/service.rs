//! One request over HTTPS: its limits, who sends it, which part of the program answers it, and what
//! every answer carries.
//!
//! Who may do what is decided by the parts: `redfish` for its resources, `https/control.rs` for the
//! API of the control socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Body;
use ebof_access::{Access, AccountId, Denied, DeniedFor, HASHES_MAX, SessionId, User};
use ebof_redfish::Login;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::control::Control;
use super::credentials::{Credentials, has_one_host, is_cross_site, is_for_this_machine};
use super::rates::{Rates, network};
use super::redfish::Redfish;
use super::refusal::{Realm, Refusal};
use super::stream::WhileAllowed;
use crate::managed::Managed;
use crate::managed::audit::{self, RecordedRequest, without_key};

/// The largest body of a user's request, bytes.
const BODY_BYTES_MAX: usize = 256 << 10;

/// The largest body without a user: a name and a password.
const STRANGER_BODY_BYTES_MAX: usize = 16 << 10;

/// The largest body where a firmware image or a configuration is sent.
const LARGE_BODY_BYTES_MAX: usize = 3 << 20;

/// The most large bodies at a time.
const LARGE_BODIES_MAX: usize = 4;

/// The most requests of one connection: the client may make another one.
const REQUESTS_MAX: u32 = 1000;

/// Requests of an address, and of a session: at once, and in a second.
const ADDRESS_RATE: (u32, f64) = (1000, 400.0);
const SESSION_RATE: (u32, f64) = (600, 200.0);

/// Time of processors for the requests of an account, and of an address, in milliseconds: at once,
/// and in a second. Whoever has used it up waits, at most [`PACE_MAX`].
const ACCOUNT_TIME: (u32, f64) = (20_000, 500.0);
const ADDRESS_TIME: (u32, f64) = (20_000, 1000.0);

/// How long a request waits for what earlier ones have used.
const PACE_MAX: Duration = Duration::from_secs(10);

/// Requests that expand others into their answer, at a time: they take longest.
const EXPANDS_MAX: usize = 1;

/// Log lines about one address: at once, and in a second.
const LOG_RATE: (u32, f64) = (5, 1.0 / 12.0);

/// How long a password waits to be hashed.
const HASH_WAIT: Duration = Duration::from_secs(10);

/// Who has sent a request, as far as that is known.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// `None`: there are no credentials, or wrong ones.
    pub(crate) user: Option<User>,
    pub(crate) peer: SocketAddr,
    /// Whether there were credentials that are wrong.
    pub(crate) refused: bool,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Visitor {
    pub(super) address: SocketAddr,
    pub(super) secure: bool,
    /// To be set once a user is known.
    pub(super) known: Arc<AtomicBool>,
    pub(super) requests: AtomicU32,
}

/// Answers requests.
pub(super) struct Service {
    access: Arc<Access>,
    managed: Arc<Managed>,
    redfish: Redfish,
    control: Control,
    by_address: Rates<std::net::IpAddr>,
    by_session: Rates<SessionId>,
    logged: Rates<std::net::IpAddr>,
    time_of_account: Rates<AccountId>,
    time_of_address: Rates<std::net::IpAddr>,
    expands: Semaphore,
    hashes: Semaphore,
    large_bodies: Semaphore,
    body_time: Duration,
}

impl Service {
    pub(super) fn new(access: Arc<Access>, managed: &Arc<Managed>, redfish: Redfish, body_time: Duration) -> Arc<Self> {
        let rates = |(burst, per_second)| Rates::new(burst, per_second);
        let (burst, per_second) = SESSION_RATE;
        Arc::new(Self {
            access,
            managed: Arc::clone(managed),
            redfish,
            control: Control::new(Arc::clone(managed)),
            by_address: rates(ADDRESS_RATE),
            by_session: Rates::new(burst, per_second),
            logged: rates(LOG_RATE),
            time_of_account: Rates::new(ACCOUNT_TIME.0, ACCOUNT_TIME.1),
            time_of_address: rates(ADDRESS_TIME),
            expands: Semaphore::new(EXPANDS_MAX),
            hashes: Semaphore::new(HASHES_MAX),
            large_bodies: Semaphore::new(LARGE_BODIES_MAX),
            body_time,
        })
    }

    /// Answers a request, whatever it is.
    pub(super) async fn answer(self: &Arc<Self>, peer: &Visitor, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let realm = Realm::from_path(parts.uri.path());
        let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
        let mut response = match self.handle(realm, peer, parts, body).await {
            Ok(response) => response,
            Err(refusal) => {
                let response = refusal.into_response(realm);
                if realm.is_api() {
                    // Before it was looked who asks, or for what.
                    let asked = RecordedRequest::over_network(&method, &shortened(&path), None, peer.address);
                    audit::request(self.managed.audit(), &asked, &response).await;
                }
                response
            }
        };
        if peer.requests.fetch_add(1, Ordering::Relaxed) >= REQUESTS_MAX {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if !method.is_safe() && realm.is_api() && response.status() == StatusCode::FORBIDDEN {
            self.warn(peer, &format!("{method} {} is not allowed", shortened(&path)));
        }
        add_headers(&mut response, realm);
        response
    }

    async fn handle(
        self: &Arc<Self>,
        realm: Realm,
        peer: &Visitor,
        parts: Parts,
        body: Incoming,
    ) -> Result<Response<Body>, Refusal> {
        let now = Instant::now().into_std();
        self.by_address.take(&network(peer.address.ip()), 1, now).map_err(Refusal::too_fast)?;
        if !has_one_host(parts.version, &parts.headers) {
            return Err(Refusal::NO_HOST);
        }
        if !peer.secure && !is_for_this_machine(&parts.uri, &parts.headers) {
            return Err(Refusal::HOST);
        }
        if is_cross_site(&parts.method, &parts.headers) {
            return Err(Refusal::CROSS_SITE);
        }
        if !realm.is_api() {
            return Ok(realm.static_answer(&parts));
        }
        let caller = self.caller(peer, &parts).await?;
        if let Some(session) = caller.user.as_ref().and_then(|user| user.session.as_ref()) {
            self.by_session.take(session, 1, now).map_err(Refusal::too_fast)?;
        }
        let body = self.body(&parts, body, caller.user.as_ref()).await?;
        // What takes a password waits for its turn, as checking one does; whoever is slow to send
        // one takes no turn.
        let _turn = if hashes(&parts) { Some(self.turn().await?) } else { None };
        let account = caller.user.as_ref().map(|user| user.account);
        self.pace(account, peer).await?;
        let _expand = match parts.uri.query().is_some_and(|query| query.contains("expand")) {
            true => self.expands.acquire().await.ok(),
            false => None,
        };
        let request = Request::from_parts(parts, body);
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let user = caller.user.as_ref();
        let asked = RecordedRequest::over_network(&method, &shortened(&path), user, caller.peer)
            .with(request.uri().query(), request.body());
        let response = match realm {
            Realm::Control => match self.control.answer(request, &caller).await {
                Ok(response) => response,
                Err(refusal) => refusal.into_response(realm),
            },
            _ => {
                let (response, used) =
                    self.redfish.answer(request, caller.user.clone(), caller.peer, caller.refused).await?;
                self.charge(account, peer, used);
                response
            }
        };
        if let Some(login) = response.extensions().get::<Login>() {
            self.log_login(peer, &login.name, login.denied);
        }
        if !method.is_safe() {
            log_change(&method, &path, &caller, response.status());
        }
        audit::request(self.managed.audit(), &asked, &response).await;
        Ok(self.while_allowed(response, caller.user))
    }

    /// Waits until the account and the address have what their earlier requests have used.
    async fn pace(&self, account: Option<AccountId>, peer: &Visitor) -> Result<(), Refusal> {
        let now = Instant::now().into_std();
        let of_account = account.map(|account| self.time_of_account.wait(&account, now)).unwrap_or_default();
        let wait = of_account.max(self.time_of_address.wait(&network(peer.address.ip()), now));
        if wait > PACE_MAX {
            return Err(Refusal::too_fast(wait));
        }
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    fn charge(&self, account: Option<AccountId>, peer: &Visitor, used: Duration) {
        let (now, ms) = (Instant::now().into_std(), u32::try_from(used.as_millis()).unwrap_or(u32::MAX));
        if let Some(account) = account {
            self.time_of_account.charge(&account, ms, now);
        }
        self.time_of_address.charge(&network(peer.address.ip()), ms, now);
    }

    /// An answer that goes on ends with the session.
    fn while_allowed(&self, response: Response<Body>, user: Option<User>) -> Response<Body> {
        let is_stream = hyper::body::Body::size_hint(response.body()).exact().is_none();
        match user {
            Some(user) if is_stream => {
                let access = Arc::clone(&self.access);
                response.map(|body| Body::new(WhileAllowed::new(body, move || access.still_holds(&user))))
            }
            _ => response,
        }
    }

    /// Who sends a request. Wrong credentials are left to who answers it, those that were not
    /// looked at are refused.
    async fn caller(self: &Arc<Self>, peer: &Visitor, parts: &Parts) -> Result<Caller, Refusal> {
        let address = peer.address.ip().to_canonical();
        let credentials = Credentials::from_headers(&parts.headers);
        let presented = credentials != Credentials::None;
        let outcome = match credentials {
            Credentials::None | Credentials::Malformed => Ok(None),
            Credentials::Token(token) => self.access.by_token(&token, address).map(Some),
            Credentials::Basic { name, password } => {
                let _turn = self.turn().await?;
                let service = Arc::clone(self);
                let tried = name.clone();
                let checked = move || service.access.basic(address, &tried, &password);
                let checked = tokio::task::spawn_blocking(checked).await.map_err(|_panicked| Refusal::BUSY)?;
                if let Err(denied) = &checked {
                    self.redfish.report_denied(address, &name, *denied);
                    self.log_login(peer, &name, Some(*denied));
                }
                checked.map(Some)
            }
        };
        let user = match outcome {
            Ok(user) => user,
            Err(denied) => {
                if denied.reason == DeniedFor::OtherAddress {
                    self.warn(peer, &format!("a request is denied: {denied}"));
                }
                if is_unchecked(denied) {
                    return Err(Refusal::denied(denied));
                }
                None
            }
        };
        if user.is_some() {
            peer.known.store(true, Ordering::Relaxed);
        }
        Ok(Caller { refused: presented && user.is_none(), user, peer: peer.address })
    }

    async fn turn(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Refusal> {
        match timeout(HASH_WAIT, self.hashes.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(Refusal::BUSY),
        }
    }

    /// Reads a body, as far as its sender may send one.
    async fn body(&self, parts: &Parts, body: Incoming, user: Option<&User>) -> Result<Bytes, Refusal> {
        let is_large = user.is_some() && takes_large_body(&parts.method, parts.uri.path());
        let most = match user {
            None => STRANGER_BODY_BYTES_MAX,
            Some(_) if is_large => LARGE_BODY_BYTES_MAX,
            Some(_) => BODY_BYTES_MAX,
        };
        let announced = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|bytes| bytes > most as u64) {
            return Err(Refusal::too_large(most));
        }
        let reading = async {
            let _place = if is_large { Some(self.large_bodies.acquire().await) } else { None };
            Limited::new(body, most).collect().await
        };
        match timeout(self.body_time, reading).await {
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(Refusal::too_large(most)),
            Ok(Err(_broken)) => Err(Refusal::BROKEN),
            Err(_elapsed) => Err(Refusal::SLOW),
        }
    }

    /// A login, and whether an account was locked by it, are in the log.
    fn log_login(&self, peer: &Visitor, name: &str, denied: Option<Denied>) {
        let name: String = name.chars().filter(|c| !c.is_control()).take(32).collect();
        let Some(denied) = denied else {
            tracing::info!("{} over HTTPS: {name} has logged in", peer.address);
            return;
        };
        audit::login(self.managed.audit(), peer.address, &name, denied);
        self.warn(peer, &format!("a login as {name:?} is denied: {denied}"));
        if denied.has_locked {
            // Rare by itself: it takes many failures, and lasts.
            tracing::warn!("{} over HTTPS: account {name} is locked after too many failed logins", peer.address);
        }
    }

    fn warn(&self, peer: &Visitor, message: &str) {
        if self.logged.take(&network(peer.address.ip()), 1, Instant::now().into_std()).is_ok() {
            tracing::warn!("{} over HTTPS: {message}", peer.address);
        }
    }
}

/// Whether the password was not even looked at: others than who answers have to say so.
fn is_unchecked(denied: Denied) -> bool {
    matches!(denied.reason, DeniedFor::Throttled | DeniedFor::Locked | DeniedFor::Busy)
}

/// Whether a request brings a password that is checked or set where it is answered.
fn hashes(parts: &Parts) -> bool {
    let path = parts.uri.path();
    let places = ["/redfish/v1/SessionService/Sessions", "/redfish/v1/AccountService", "/ebof/v1/accounts"];
    !parts.method.is_safe() && parts.method != Method::DELETE && places.iter().any(|place| path.starts_with(place))
}

fn takes_large_body(method: &Method, path: &str) -> bool {
    let places = [
        "/redfish/v1/UpdateService",
        "/redfish/v1/Managers/ebof/Oem/Ebof/Configuration",
        "/ebof/v1/configuration",
        "/ebof/v1/images",
    ];
    !method.is_safe() && places.iter().any(|place| path.starts_with(place))
}

fn log_change(method: &Method, path: &str, caller: &Caller, status: StatusCode) {
    let Caller { user: Some(user), peer, .. } = caller else { return };
    tracing::info!("{method} {} by {} ({}) at {peer}: {}", shortened(path), user.name, user.role, status.as_u16());
}

/// For the log: what a peer sends is neither long nor full of other characters there.
fn shortened(path: &str) -> String {
    without_key(path).chars().take(200).map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect()
}

fn add_headers(response: &mut Response<Body>, realm: Realm) {
    let headers = response.headers_mut();
    let fixed = [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ];
    for (name, value) in fixed {
        // The page has a policy of its own.
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    if realm.is_api() || response.status().is_client_error() {
        let no_store = HeaderValue::from_static("no-store");
        response.headers_mut().entry(CACHE_CONTROL).or_insert(no_store);
    }
}

/// The value of Retry-After: whole seconds, at least one.
pub(super) fn retry_after(wait: Duration) -> (hyper::header::HeaderName, HeaderValue) {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    (RETRY_AFTER, HeaderValue::from(seconds.max(1)))
}
