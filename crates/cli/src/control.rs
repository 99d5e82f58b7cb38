//! The API of a running target, from the client's side: HTTP/1.1 with JSON bodies, one request to a
//! connection, over its control socket or over the network. What is sent and received is bounded,
//! and a target that is silent is given up.

mod keys;
mod known;
pub(crate) mod password;
mod proven;
mod reach;
mod server;

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ebof_attach::state::StateDir;
use ebof_manage::api::{
    AccountStatus, Accounts, AddAccount, Applied, CertificateRequest, CertificateStatus, ChangeAccount, Configuration,
    Desired, History, Planned, RefusedConfiguration, ReplaceCertificate, RequestCertificate, Revision, Status,
};
use ebof_manage::edit::Edits;
use ebof_manage::enclosure::{DriveDetails, Inventory, MistakeKind, Refused, StoredImage, Task, Transaction};
use ebof_manage::events::EventsSince;
use ebof_manage::history::Overview;
use ebof_manage::history::live::LiveTable;
use ebof_manage::slow::SlowCommands;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::failure::Failure;
pub use proven::Proven;
use reach::ControlAddress;
pub(crate) use reach::Reach;
use server::Connection;

/// The name of the default control socket in the runtime directory.
pub const CONTROL_SOCKET: &str = "control.sock";

/// The control socket of the target that is the machine's service, which has a user of its own.
pub(crate) const SERVICE_SOCKET: &str = "/run/ebof/target/control.sock";

/// The largest answer, bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// How long an answer may take, beside what a request waits for.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How long looking for what is wrong with an audit log may take beside that.
const AUDIT: Duration = Duration::from_secs(40);

/// How long one request for a task waits for news of it.
const WAIT: Duration = Duration::from_secs(10);

/// How long a change of the configuration may take beside that: requests of hosts have to end, and
/// other changes before it.
const CHANGE: Duration = Duration::from_secs(40);

/// Bytes of a body with a key or a password at most.
const SECRET_BODY_BYTES: usize = 4096;

/// The control socket in the runtime directory, or that of the service if there is only that.
pub(crate) fn default_path(states: &StateDir, service: &Path) -> Result<PathBuf, ebof_attach::Error> {
    let own = states.path().join(CONTROL_SOCKET);
    // Whoever may not look gets told why when connecting.
    let is_there = |path: &Path| !matches!(path.try_exists(), Ok(false));
    if !is_there(&own) && is_there(service) {
        return Ok(service.to_owned());
    }
    // Passwords are sent over it: a socket that a stranger has put there is not a target's.
    states.check()?;
    Ok(own)
}

/// Before the paths of a target over the network.
const PREFIX: &str = "/ebof";

/// A target that runs.
#[derive(Debug)]
pub(crate) struct ControlClient {
    place: ControlAddress,
}

impl ControlClient {
    /// The one that arguments name.
    pub(crate) fn new(reach: Reach) -> Result<Self, Failure> {
        Ok(Self { place: reach.place()? })
    }

    /// All accounts.
    pub(crate) fn accounts(&self) -> Result<Accounts, Failure> {
        self.get("/v1/accounts", Duration::ZERO)
    }

    /// Its audit log, as a query says.
    pub(crate) fn audit(&self, query: &str) -> Result<ebof_audit::AuditAnswer, Failure> {
        self.get(&format!("/v1/audit?{query}"), AUDIT)
    }

    /// Adds an account.
    pub(crate) fn add_account(&self, new: &AddAccount) -> Result<AccountStatus, Failure> {
        self.send("POST", "/v1/accounts", new)
    }

    /// Changes an account.
    pub(crate) fn change_account(&self, name: &str, change: &ChangeAccount) -> Result<AccountStatus, Failure> {
        self.send("PATCH", &account_path(name)?, change)
    }

    /// Removes an account.
    pub(crate) fn remove_account(&self, name: &str) -> Result<AccountStatus, Failure> {
        self.request("DELETE", &account_path(name)?, &[], Duration::ZERO)
    }

    /// The certificate of HTTPS.
    pub(crate) fn certificate(&self) -> Result<CertificateStatus, Failure> {
        self.get("/v1/certificate", Duration::ZERO)
    }

    /// Replaces it.
    pub(crate) fn replace_certificate(&self, new: &ReplaceCertificate) -> Result<CertificateStatus, Failure> {
        self.send("PUT", "/v1/certificate", new)
    }

    /// Has a request for one made.
    pub(crate) fn request_certificate(&self, request: &RequestCertificate) -> Result<CertificateRequest, Failure> {
        self.send("POST", "/v1/certificate/request", request)
    }

    /// What there is, and who has it.
    pub(crate) fn inventory(&self) -> Result<Inventory, Failure> {
        self.get("/v1/inventory", Duration::ZERO)
    }

    /// All tasks.
    pub(crate) fn tasks(&self) -> Result<Vec<Task>, Failure> {
        self.get("/v1/tasks", Duration::ZERO)
    }

    /// A task.
    pub(crate) fn task(&self, id: u64) -> Result<Task, Failure> {
        self.get(&format!("/v1/tasks/{id}"), Duration::ZERO)
    }

    /// A drive in detail.
    pub(crate) fn drive(&self, name: &str) -> Result<DriveDetails, Failure> {
        // What is no drive's name needs no escaping, because it is told before.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || !name.bytes().all(is_plain) {
            return Err(Failure::usage("this is no drive's name", "`ebof target show` shows which drives there are"));
        }
        self.get(&format!("/v1/drives/{name}"), Duration::ZERO)
    }

    /// Hands a firmware image over.
    pub(crate) fn store_image(&self, bytes: &[u8]) -> Result<StoredImage, Failure> {
        self.request("POST", "/v1/images", bytes, Duration::ZERO)
    }

    /// Begins a task.
    pub(crate) fn begin(&self, transaction: &Transaction) -> Result<Task, Failure> {
        self.send("POST", "/v1/changes", transaction)
    }

    /// The state of its ports, subsystems and controllers.
    pub(crate) fn status(&self) -> Result<Status, Failure> {
        self.get("/v1/status", Duration::ZERO)
    }

    /// The events after number `since`; if there are none, those that come in time.
    pub(crate) fn events(&self, since: u64, wait: Duration) -> Result<EventsSince, Failure> {
        self.get(&format!("/v1/events?since={since}&wait_ms={}", wait.as_millis()), wait)
    }

    /// What its objects did in the latest second.
    pub(crate) fn overview(&self) -> Result<Overview, Failure> {
        self.get("/v1/history", Duration::ZERO)
    }

    /// What its queues did in the latest second.
    pub(crate) fn queues(&self) -> Result<LiveTable, Failure> {
        self.get("/v1/queues", Duration::ZERO)
    }

    /// The slow commands after number `since`.
    pub(crate) fn slow(&self, since: u64) -> Result<SlowCommands, Failure> {
        self.get(&format!("/v1/slow?since={since}"), Duration::ZERO)
    }

    /// The configuration in force.
    pub(crate) fn configuration(&self) -> anyhow::Result<Configuration> {
        self.configure("GET", "/v1/configuration", "", None::<&Desired>, Duration::ZERO)
    }

    /// The configurations that are and were in force.
    pub(crate) fn history(&self) -> Result<History, Failure> {
        self.get("/v1/configuration/history", Duration::ZERO)
    }

    /// What a configuration would change.
    pub(crate) fn plan(&self, desired: &Desired) -> anyhow::Result<Planned> {
        self.configure("POST", "/v1/configuration/plan", "", Some(desired), Duration::ZERO)
    }

    /// Puts a configuration in force, if it still does what was planned, and to whom.
    pub(crate) fn apply(&self, desired: &Desired, planned: &Planned) -> anyhow::Result<Applied> {
        let condition = format!("If-Match: \"{}\"\r\n", planned.revision);
        // A target of before tells none.
        let promise = Some(planned.promise.clone()).filter(|promise| !promise.is_empty());
        let desired = Desired { promise, ..desired.clone() };
        self.configure("PUT", "/v1/configuration", &condition, Some(&desired), CHANGE)
    }

    /// What edits would change.
    pub(crate) fn plan_edits(&self, edits: &Edits) -> anyhow::Result<Planned> {
        self.configure("POST", "/v1/edits?plan=1", "", Some(edits), Duration::ZERO)
    }

    /// Makes edits, if `planned` still is the revision that they were planned from.
    pub(crate) fn edit(&self, edits: &Edits, planned: &Revision) -> anyhow::Result<Applied> {
        let condition = format!("If-Match: \"{planned}\"\r\n");
        self.configure("POST", "/v1/edits", &condition, Some(edits), CHANGE)
    }

    /// Has the configuration file read again.
    pub(crate) fn reload(&self) -> anyhow::Result<Applied> {
        self.configure("POST", "/v1/reload", "", None::<&Desired>, CHANGE)
    }

    /// A request about the configuration: what is wrong with a text comes back with its places.
    fn configure<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        lines: &str,
        body: Option<&impl Serialize>,
        waits: Duration,
    ) -> anyhow::Result<T> {
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let (status, answer) = self.answer((method, path), lines, &body, waits)?;
        if (200..300).contains(&status) {
            return Ok(self.understood(&answer)?);
        }
        match serde_json::from_slice::<RefusedConfiguration>(&answer) {
            Ok(RefusedConfiguration { diagnostics: Some(diagnostics), .. }) => Err(diagnostics.into()),
            _ => Err(self.refusal(status, &answer).into()),
        }
    }

    /// Waits for the end of a task; `tell` is called with each step of it.
    pub(crate) fn wait(&self, mut task: Task, mut tell: impl FnMut(&Task)) -> Result<Task, Failure> {
        tell(&task);
        while !task.is_over() {
            let ms = WAIT.as_millis();
            let path = format!("/v1/tasks/{}?revision={}&wait_ms={ms}", task.id, task.revision);
            let next: Task = self.get(&path, WAIT)?;
            if next.revision != task.revision {
                tell(&next);
            }
            task = next;
        }
        Ok(task)
    }

    fn get<T: DeserializeOwned>(&self, path: &str, waits: Duration) -> Result<T, Failure> {
        self.request("GET", path, &[], waits)
    }

    fn send<T: DeserializeOwned>(&self, method: &str, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        self.request(method, path, &self.body_of(body)?, Duration::ZERO)
    }

    /// The text of a body, which may have a key or a password in it.
    fn body_of(&self, body: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, Failure> {
        // With room for all that is secret, so that nothing is left behind where it grew.
        let mut text = Zeroizing::new(Vec::with_capacity(SECRET_BODY_BYTES));
        serde_json::to_writer(&mut *text, body).map_err(|error| self.strange(&error.to_string()))?;
        Ok(text)
    }

    fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
        waits: Duration,
    ) -> Result<T, Failure> {
        let (status, answer) = self.answer((method, path), "", body, waits)?;
        if (200..300).contains(&status) { self.understood(&answer) } else { Err(self.refusal(status, &answer)) }
    }

    /// Status code and body of the answer to a request with more `lines` in its head.
    fn answer(
        &self,
        request: (&str, &str),
        lines: &str,
        body: &[u8],
        waits: Duration,
    ) -> Result<(u16, Vec<u8>), Failure> {
        let raw = self.exchange(request, lines, body, TIMEOUT + waits)?;
        let (status, answer) = parse(&raw).ok_or_else(|| self.strange("it is not HTTP"))?;
        Ok((status, answer.to_vec()))
    }

    fn understood<T: DeserializeOwned>(&self, answer: &[u8]) -> Result<T, Failure> {
        serde_json::from_slice(answer).map_err(|error| self.strange(&error.to_string()))
    }

    fn refusal(&self, status: u16, answer: &[u8]) -> Failure {
        match serde_json::from_slice::<Refused>(answer) {
            Ok(refused) if !refused.mistakes.is_empty() => failure(status, &refused),
            _ => self.strange(&format!("HTTP status {status}")),
        }
    }

    /// Sends a request; gives the whole answer.
    fn exchange(
        &self,
        (method, path): (&str, &str),
        lines: &str,
        body: &[u8],
        timeout: Duration,
    ) -> Result<Vec<u8>, Failure> {
        let (mut stream, prefix, own) = match &self.place {
            ControlAddress::Socket(path) => {
                let stream = UnixStream::connect(path).map_err(|error| unreachable(path, &error))?;
                (Connection::Socket(stream), "", "Host: ebof\r\n".to_owned())
            }
            // Who it is, is known before the password is asked for and sent.
            ControlAddress::Server(server) => (server.connect(timeout)?, PREFIX, server.head()?),
        };
        let broken = |error: std::io::Error| {
            let message = format!("{method} {path} at {}: {error}", self.place);
            let advice = match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => "the target does not answer: see its log",
                _ => "the target has ended, or closed the connection: see its log",
            };
            Failure::new("io", message, advice)
        };
        let head = format!(
            "{method} {prefix}{path} HTTP/1.1\r\n{own}Connection: close\r\nContent-Type: application/json\r\n{lines}\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        let end = Instant::now() + timeout;
        stream.limit(timeout).map_err(broken)?;
        let sent =
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).and_then(|()| stream.flush());
        // What is refused early is answered before all of it was taken.
        let unsent = sent.err();
        let mut raw = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(broken(ErrorKind::TimedOut.into()));
            }
            stream.limit(left).map_err(broken)?;
            match stream.read(&mut chunk) {
                Ok(0) => {
                    return if raw.is_empty() { unsent.map_or(Ok(raw), |error| Err(broken(error))) } else { Ok(raw) };
                }
                Ok(read) => raw.extend_from_slice(chunk.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
            if raw.len() as u64 > ANSWER_BYTES_MAX {
                return Err(self.strange("it is too long"));
            }
        }
    }

    fn strange(&self, why: &str) -> Failure {
        let advice = "is this a target of the same version?";
        Failure::new("malformed-answer", format!("the answer of {} is not understood: {why}", self.place), advice)
    }
}

fn unreachable(path: &Path, error: &std::io::Error) -> Failure {
    let path = path.display();
    let advice = match error.kind() {
        ErrorKind::NotFound => {
            "no target has its control socket there: start one with `ebof serve`, or name the socket with --control PATH"
        }
        ErrorKind::ConnectionRefused => "the target that made it has ended: start it again with `ebof serve`",
        ErrorKind::PermissionDenied => {
            "the target's user, the group of the socket and root may connect: for a group, serve with --control PATH in a \
             directory that it may enter"
        }
        _ => "name the socket of a target with --control PATH",
    };
    Failure::new("not-connected", format!("the control socket {path}: {error}"), advice)
}

fn account_path(name: &str) -> Result<String, Failure> {
    // No accepted name has other characters.
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte)) {
        let message = format!("`{}` is no user name", name.escape_debug());
        return Err(Failure::usage(message, "it has letters and digits of ASCII, and . _ - @"));
    }
    Ok(format!("/v1/accounts/{name}"))
}

/// The status code and the body of an answer.
fn parse(raw: &[u8]) -> Option<(u16, &[u8])> {
    let end = raw.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, body) = raw.split_at(end + 4);
    let head = std::str::from_utf8(head).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Some((status, body.get(..length?)?))
}

/// A refusal as an error: the first mistake with its advice, or all of them.
fn failure(status: u16, refused: &Refused) -> Failure {
    let is_outdated = refused.mistakes.iter().all(|mistake| mistake.kind == MistakeKind::Outdated);
    let is_unknown = refused.mistakes.iter().any(|mistake| mistake.kind == MistakeKind::Unknown);
    let kind = match (status, refused.is_busy(), is_outdated) {
        _ if is_unknown => "outcome-unknown",
        (401, ..) => "not-authenticated",
        (403, ..) => "not-allowed",
        (429 | 503, ..) | (_, true, _) => "busy",
        (.., true) => "outdated",
        _ => "refused-change",
    };
    match refused.mistakes.as_slice() {
        [one] if one.object.is_empty() => Failure::new(kind, &*one.message, &*one.advice),
        [one] => Failure::new(kind, format!("{}: {}", one.object, one.message), &*one.advice),
        several => {
            let lines: Vec<String> = several.iter().map(ToString::to_string).collect();
            Failure::new(kind, format!("{} mistakes, and nothing was changed", several.len()), lines.join("\n  "))
        }
    }
}

#[cfg(test)]
mod tests {
    use ebof_manage::enclosure::MistakeKind;

    use super::*;

    #[test]
    fn answers_are_split() {
        let answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\nX: y\r\n\r\n{}";
        assert_eq!(parse(answer), Some((202, &b"{}"[..])));
        for cut in 0..answer.len() {
            assert_eq!(parse(&answer[..cut]), None, "{cut}");
        }
        assert_eq!(parse(b"SSH-2.0\r\n\r\n"), None);
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\n\r\n{}"), None, "of unknown length");
    }

    #[test]
    fn the_services_socket_is_used_where_there_is_no_own_one() {
        let directory = tempfile::tempdir().unwrap();
        let states = StateDir::at(directory.path());
        let own = directory.path().join(CONTROL_SOCKET);
        let service = directory.path().join("service.sock");
        assert_eq!(default_path(&states, &service).unwrap(), own);
        std::fs::write(&service, "").unwrap();
        assert_eq!(default_path(&states, &service).unwrap(), service);
        std::fs::write(&own, "").unwrap();
        assert_eq!(default_path(&states, &service).unwrap(), own);
        // Where all may write, anybody may have put it.
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(directory.path(), all).unwrap();
        assert!(default_path(&states, &service).unwrap_err().to_string().contains("may be written by others"));
    }

    #[test]
    fn a_missing_socket_is_explained() {
        let control = ControlClient::new(Reach::socket("/nonexistent/control.sock")).unwrap();
        let text = control.inventory().unwrap_err().to_string();
        assert!(text.contains("/nonexistent/control.sock") && text.contains("--control PATH"), "{text}");
    }

    /// What the client sends to a target that gives this answer, and what it makes of it.
    fn applied(status: &str, answer: &str) -> (String, anyhow::Error) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
        let target = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = vec![0; 4096];
            let bytes = stream.read(&mut asked).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(asked[..bytes].to_vec()).unwrap()
        });
        let control = ControlClient::new(Reach::socket(path)).unwrap();
        let planned = serde_json::json!({
            "schema": 1, "revision": "r1", "plan": [], "disturbed": [], "disturbed_left_out": 0, "promise": "p1",
            "remarks": { "items": [], "left_out": 0 },
        });
        let planned: Planned = serde_json::from_value(planned).unwrap();
        let error = control.apply(&Desired::default(), &planned).unwrap_err();
        (target.join().unwrap(), error)
    }

    #[test]
    fn a_refused_configuration_is_an_error_with_its_reason() {
        let outdated = r#"{"mistakes": [{"kind": "outdated", "change": null, "object": "", "message": "r2 is in force",
            "advice": "look again"}]}"#;
        let (asked, error) = applied("412 Precondition Failed", outdated);
        assert!(
            asked.starts_with("PUT /v1/configuration HTTP/1.1\r\n") && asked.contains("If-Match: \"r1\"\r\n"),
            "{asked}"
        );
        assert!(asked.contains("\"promise\":\"p1\""), "the hosts that were named are bound: {asked}");
        assert_eq!(error.to_string(), "r2 is in force\n  look again");
        let json = crate::failure::json(&error).to_text().unwrap();
        assert!(json.contains("\"kind\": \"outdated\""), "{json}");
        let diagnostics = ebof_manage::load("a.toml", "[[port]]\n").unwrap_err();
        let refused = RefusedConfiguration::text(diagnostics.clone());
        let (_, error) = applied("422 Unprocessable Content", &serde_json::to_string(&refused).unwrap());
        assert_eq!(error.downcast::<ebof_manage::Diagnostics>().unwrap(), diagnostics);
        for answer in ["", "{}", "{\"mistakes\": []}"] {
            let (_, error) = applied("500 Internal Server Error", answer);
            assert!(error.to_string().contains("HTTP status 500"), "{error}");
        }
        assert!(applied("200 OK", "{}").1.to_string().contains("is not understood"));
    }

    #[test]
    fn all_mistakes_are_in_the_error() {
        let mut refused = Refused::whole(MistakeKind::Value, "one", "do this");
        assert_eq!(failure(422, &refused).to_string(), "one\n  do this");
        refused.mistakes.extend(Refused::whole(MistakeKind::Value, "two", "do that").mistakes);
        assert_eq!(
            failure(422, &refused).to_string(),
            "2 mistakes, and nothing was changed\n  one; do this\n  two; do that"
        );
    }
}
