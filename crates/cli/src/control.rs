//! The API of a running target, from the client's side: what it can be asked, over its control
//! socket or over the network. How requests and answers travel is in `control/http.rs`.

mod http;
mod known;
pub(crate) mod password;
mod proven;
mod reach;
mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ebof_attach::state::StateDir;
use ebof_manage::api::{
    AccountStatus, Accounts, AddAccount, AddKey, Applied, CertificateRequest, CertificateStatus, ChangeAccount,
    Configuration, Desired, History, Keys, KeysChange, Planned, RefusedConfiguration, ReplaceCertificate,
    RequestCertificate, Revision, Status,
};
use ebof_manage::edit::Edits;
use ebof_manage::enclosure::{DriveDetails, Inventory, StoredImage, Task, Transaction};
use ebof_manage::events::EventsSince;
use ebof_manage::history::Overview;
use ebof_manage::history::live::LiveTable;
use ebof_manage::slow::SlowCommands;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use http::HttpClient;
pub use proven::Proven;
pub(crate) use reach::Reach;

/// The name of the default control socket in the runtime directory.
pub const CONTROL_SOCKET: &str = "control.sock";

/// The control socket of the target that is the machine's service, which has a user of its own.
pub(crate) const SERVICE_SOCKET: &str = "/run/ebof/target/control.sock";

/// How long looking for what is wrong with an audit log may take beside that.
const AUDIT: Duration = Duration::from_secs(40);

/// How long one request for a task waits for news of it.
const WAIT: Duration = Duration::from_secs(10);

/// How long a change of the configuration may take beside that: requests of hosts have to end, and
/// other changes before it.
const CHANGE: Duration = Duration::from_secs(40);

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

/// A target that runs.
#[derive(Debug)]
pub(crate) struct ControlClient {
    http: HttpClient,
}

impl ControlClient {
    /// The one that arguments name.
    pub(crate) fn new(reach: Reach) -> Result<Self, Failure> {
        Ok(Self { http: HttpClient::new(reach.place()?) })
    }

    /// All accounts.
    pub(crate) fn accounts(&self) -> Result<Accounts, Failure> {
        self.http.get("/v1/accounts", Duration::ZERO)
    }

    /// Its audit log, as a query says.
    pub(crate) fn audit(&self, query: &str) -> Result<ebof_audit::AuditAnswer, Failure> {
        self.http.get(&format!("/v1/audit?{query}"), AUDIT)
    }

    /// Adds an account.
    pub(crate) fn add_account(&self, new: &AddAccount) -> Result<AccountStatus, Failure> {
        self.http.send("POST", "/v1/accounts", new)
    }

    /// Changes an account.
    pub(crate) fn change_account(&self, name: &str, change: &ChangeAccount) -> Result<AccountStatus, Failure> {
        self.http.send("PATCH", &account_path(name)?, change)
    }

    /// Removes an account.
    pub(crate) fn remove_account(&self, name: &str) -> Result<AccountStatus, Failure> {
        self.http.request(("DELETE", &account_path(name)?), "", &[], Duration::ZERO)
    }

    /// All keys of hosts.
    pub(crate) fn keys(&self) -> Result<Keys, Failure> {
        self.http.get("/v1/keys", Duration::ZERO)
    }

    /// What adding a key would do.
    pub(crate) fn plan_key(&self, key: &AddKey) -> Result<KeysChange, Failure> {
        self.http.send("POST", "/v1/keys?plan=1", key)
    }

    /// Adds a key, if that does what was planned.
    pub(crate) fn add_key(&self, key: &AddKey, planned: &Revision) -> Result<KeysChange, Failure> {
        self.http.request(("POST", "/v1/keys"), &if_match(planned), &self.http.body_of(key)?, CHANGE)
    }

    /// What removing keys would do.
    pub(crate) fn plan_without_keys(&self, ids: &[String]) -> Result<KeysChange, Failure> {
        self.http.request(("DELETE", &format!("{}?plan=1", keys_path(ids)?)), "", &[], Duration::ZERO)
    }

    /// Removes keys, if that does what was planned.
    pub(crate) fn remove_keys(&self, ids: &[String], planned: &Revision) -> Result<KeysChange, Failure> {
        self.http.request(("DELETE", &keys_path(ids)?), &if_match(planned), &[], CHANGE)
    }

    /// The certificate of HTTPS.
    pub(crate) fn certificate(&self) -> Result<CertificateStatus, Failure> {
        self.http.get("/v1/certificate", Duration::ZERO)
    }

    /// Replaces it.
    pub(crate) fn replace_certificate(&self, new: &ReplaceCertificate) -> Result<CertificateStatus, Failure> {
        self.http.send("PUT", "/v1/certificate", new)
    }

    /// Has a request for one made.
    pub(crate) fn request_certificate(&self, request: &RequestCertificate) -> Result<CertificateRequest, Failure> {
        self.http.send("POST", "/v1/certificate/request", request)
    }

    /// What there is, and who has it.
    pub(crate) fn inventory(&self) -> Result<Inventory, Failure> {
        self.http.get("/v1/inventory", Duration::ZERO)
    }

    /// All tasks.
    pub(crate) fn tasks(&self) -> Result<Vec<Task>, Failure> {
        self.http.get("/v1/tasks", Duration::ZERO)
    }

    /// A task.
    pub(crate) fn task(&self, id: u64) -> Result<Task, Failure> {
        self.http.get(&format!("/v1/tasks/{id}"), Duration::ZERO)
    }

    /// A drive in detail.
    pub(crate) fn drive(&self, name: &str) -> Result<DriveDetails, Failure> {
        // What is no drive's name needs no escaping, because it is told before.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || !name.bytes().all(is_plain) {
            return Err(Failure::usage("this is no drive's name", "`ebof target show` shows which drives there are"));
        }
        self.http.get(&format!("/v1/drives/{name}"), Duration::ZERO)
    }

    /// Hands a firmware image over.
    pub(crate) fn store_image(&self, bytes: &[u8]) -> Result<StoredImage, Failure> {
        self.http.request(("POST", "/v1/images"), "", bytes, Duration::ZERO)
    }

    /// Begins a task.
    pub(crate) fn begin(&self, transaction: &Transaction) -> Result<Task, Failure> {
        self.http.send("POST", "/v1/changes", transaction)
    }

    /// The state of its ports, subsystems and controllers.
    pub(crate) fn status(&self) -> Result<Status, Failure> {
        self.http.get("/v1/status", Duration::ZERO)
    }

    /// The events after number `since`; if there are none, those that come in time.
    pub(crate) fn events(&self, since: u64, wait: Duration) -> Result<EventsSince, Failure> {
        self.http.get(&format!("/v1/events?since={since}&wait_ms={}", wait.as_millis()), wait)
    }

    /// What its objects did in the latest second.
    pub(crate) fn overview(&self) -> Result<Overview, Failure> {
        self.http.get("/v1/history", Duration::ZERO)
    }

    /// What its queues did in the latest second.
    pub(crate) fn queues(&self) -> Result<LiveTable, Failure> {
        self.http.get("/v1/queues", Duration::ZERO)
    }

    /// The slow commands after number `since`.
    pub(crate) fn slow(&self, since: u64) -> Result<SlowCommands, Failure> {
        self.http.get(&format!("/v1/slow?since={since}"), Duration::ZERO)
    }

    /// The configuration in force.
    pub(crate) fn configuration(&self) -> anyhow::Result<Configuration> {
        self.configure("GET", "/v1/configuration", "", None::<&Desired>, Duration::ZERO)
    }

    /// The configurations that are and were in force.
    pub(crate) fn history(&self) -> Result<History, Failure> {
        self.http.get("/v1/configuration/history", Duration::ZERO)
    }

    /// What a configuration would change.
    pub(crate) fn plan(&self, desired: &Desired) -> anyhow::Result<Planned> {
        self.configure("POST", "/v1/configuration/plan", "", Some(desired), Duration::ZERO)
    }

    /// Puts a configuration in force, if it still does what was planned, and to whom.
    pub(crate) fn apply(&self, desired: &Desired, planned: &Planned) -> anyhow::Result<Applied> {
        // A target of before tells none.
        let promise = Some(planned.promise.clone()).filter(|promise| !promise.is_empty());
        let desired = Desired { promise, ..desired.clone() };
        self.configure("PUT", "/v1/configuration", &if_match(&planned.revision), Some(&desired), CHANGE)
    }

    /// What edits would change.
    pub(crate) fn plan_edits(&self, edits: &Edits) -> anyhow::Result<Planned> {
        self.configure("POST", "/v1/edits?plan=1", "", Some(edits), Duration::ZERO)
    }

    /// Makes edits, if `planned` still is the revision that they were planned from.
    pub(crate) fn edit(&self, edits: &Edits, planned: &Revision) -> anyhow::Result<Applied> {
        self.configure("POST", "/v1/edits", &if_match(planned), Some(edits), CHANGE)
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
        let (status, answer) = self.http.answer((method, path), lines, &body, waits)?;
        if (200..300).contains(&status) {
            return Ok(self.http.understood(&answer)?);
        }
        match serde_json::from_slice::<RefusedConfiguration>(&answer) {
            Ok(RefusedConfiguration { diagnostics: Some(diagnostics), .. }) => Err(diagnostics.into()),
            _ => Err(self.http.refusal(status, &answer).into()),
        }
    }

    /// Waits for the end of a task; `tell` is called with each step of it.
    pub(crate) fn wait(&self, mut task: Task, mut tell: impl FnMut(&Task)) -> Result<Task, Failure> {
        tell(&task);
        while !task.is_over() {
            let ms = WAIT.as_millis();
            let path = format!("/v1/tasks/{}?revision={}&wait_ms={ms}", task.id, task.revision);
            let next: Task = self.http.get(&path, WAIT)?;
            if next.revision != task.revision {
                tell(&next);
            }
            task = next;
        }
        Ok(task)
    }
}

/// The line of a head by which a change is made only if that revision is still in force.
fn if_match(planned: &Revision) -> String {
    format!("If-Match: \"{planned}\"\r\n")
}

fn keys_path(ids: &[String]) -> Result<String, Failure> {
    let is_id = |id: &String| !id.is_empty() && id.len() <= 24 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !ids.iter().all(is_id) {
        return Err(Failure::usage("this is no key's id", "`ebof target show keys` shows them, such as k3"));
    }
    Ok(format!("/v1/keys/{}", ids.join(",")))
}

fn account_path(name: &str) -> Result<String, Failure> {
    // No accepted name has other characters.
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte)) {
        let message = format!("`{}` is no user name", name.escape_debug());
        return Err(Failure::usage(message, "it has letters and digits of ASCII, and . _ - @"));
    }
    Ok(format!("/v1/accounts/{name}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

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
}
