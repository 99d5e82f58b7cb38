//! Requests of management, as the audit log has them: who, from where, what, and what became of it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::header::LOCATION;
use axum::http::{Method, Response, StatusCode};
use ebof_access::{Denied, User};
use ebof_audit::{Audit, NewRecord, RecordKind, RecordOutcome};
use ebof_manage::api::{AddKey, Asker, erase_texts};
use ebof_manage::edit::{Edit, Edits};
use ebof_manage::enclosure::{Mistake, MistakeKind, Refused, Transaction};
use ebof_manage::written_keys::mentions_key;
use ebof_redfish::Login;
use serde_json::Value;

/// How long an answer waits for its record. A disk that hangs loses no service.
const WAIT: std::time::Duration = std::time::Duration::from_secs(5);

/// Names of properties that are recorded of a request.
const NAMES_MAX: usize = 16;

/// Behind what the number of a key is expected.
const KEY_PLACES: &[&str] = &["/v1/keys/", "/NVMeoFSecrets/"];

/// The largest body whose properties are looked at, bytes.
const BODY_BYTES_MAX: usize = 256 << 10;

/// A request, before it is carried out.
pub(crate) struct RecordedRequest {
    method: Method,
    path: String,
    who: String,
    from: String,
    /// What its body asks for, in words that have no values.
    words: String,
    /// The same if it is refused: names of properties may be anything then.
    refused_words: String,
    /// Whether it only asks what would be changed.
    is_plan: bool,
}

impl RecordedRequest {
    /// By a user over the network, or by nobody who is known.
    pub(crate) fn over_network(method: &Method, path: &str, user: Option<&User>, peer: SocketAddr) -> Self {
        let who = user.map(|user| format!("{} ({})", user.name, user.role)).unwrap_or_default();
        let from = peer.ip().to_canonical().to_string();
        let (method, path) = (method.clone(), without_key(path).into_owned());
        Self { method, path, who, from, words: String::new(), refused_words: String::new(), is_plan: false }
    }

    /// By a process of this machine.
    pub(crate) fn at_socket(method: &Method, path: &str, asker: &Asker) -> Self {
        let (who, from) = (asker.to_string(), "the control socket".to_owned());
        let (method, path) = (method.clone(), without_key(path).into_owned());
        Self { method, path, who, from, words: String::new(), refused_words: String::new(), is_plan: false }
    }

    /// With what it asks for.
    pub(crate) fn with(self, query: Option<&str>, body: &[u8]) -> Self {
        let ends = ["/configuration/plan", "/changes/plan", "EbofManager.PlanChanges", "EbofConfiguration.Plan"];
        let is_plan = query == Some("plan=1") || ends.iter().any(|end| self.path.ends_with(end));
        let words = words_of(&self.path, body);
        let refused_words = refused_words_of(&self.path, body, &words);
        Self { words, refused_words, is_plan, ..self }
    }

    /// The record of what became of it; `None` for what changes nothing and is not refused.
    fn content<B>(&self, response: &Response<B>) -> Option<NewRecord> {
        let status = response.status();
        let outcome = match status {
            StatusCode::ACCEPTED => RecordOutcome::Began,
            status if status.is_success() => RecordOutcome::Done,
            status if status.is_server_error() => RecordOutcome::Failed,
            _ => RecordOutcome::Refused,
        };
        let is_forbidden = matches!(status, StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS);
        // Without credentials nothing is told: everybody who comes with a browser is asked for
        // some.
        if self.method.is_safe() && !is_forbidden || self.is_plan && outcome == RecordOutcome::Done {
            return None;
        }
        let mut detail = format!("{}", status.as_u16());
        let refused = response.extensions().get::<Refused>().filter(|_| !status.is_success());
        // Whoever was refused before their body was looked at may have sent anything.
        let words = match (outcome, refused) {
            (RecordOutcome::Refused, None) => "",
            (RecordOutcome::Refused, Some(_)) => &self.refused_words,
            _ => &self.words,
        };
        if !words.is_empty() {
            detail += &format!(": {}", without_key_text(words));
        }
        let (object, reason) = refused.map(|refused| self.reason(refused)).unwrap_or_default();
        if !reason.is_empty() {
            detail += &format!(": {reason}");
        }
        if let Some(place) = response.headers().get(LOCATION).and_then(|place| place.to_str().ok()) {
            detail += &format!("; {place}");
        }
        let login = response.extensions().get::<Login>();
        let is_login = login.is_some_and(|login| login.denied.is_none());
        let (kind, who) = match login {
            Some(login) if is_login => (RecordKind::Login, login.name.as_str()),
            // A login that is refused has a record of its own.
            Some(_) => return None,
            None => (RecordKind::Change, self.who.as_str()),
        };
        let what = format!("{} {}", self.method, self.path);
        Some(NewRecord::new(kind, &what, outcome).who(who).from(&self.from).object(&object).detail(&detail))
    }

    /// What a refusal is about, and why. Of a value that is not accepted nothing is repeated.
    fn reason(&self, refused: &Refused) -> (String, String) {
        let is_key_place = KEY_PLACES.iter().any(|place| self.path.contains(place));
        let Some(Mistake { kind, object, message, .. }) = refused.mistakes.first() else { return Default::default() };
        let (object, mut reason) = match kind {
            MistakeKind::Value => (String::new(), "a value is not accepted".to_owned()),
            MistakeKind::NotFound if is_key_place => (String::new(), "there is no such key".to_owned()),
            _ => (without_key_text(object), without_key_text(message)),
        };
        if refused.mistakes.len() > 1 {
            reason += &format!(" (and {} more)", refused.mistakes.len() - 1);
        }
        (object, reason)
    }
}

/// A text, unless somebody has put a key where a name belongs.
fn without_key_text(text: &str) -> String {
    match mentions_key(text) {
        true => "(not told: it has a key in it)".to_owned(),
        false => text.to_owned(),
    }
}

/// Records what became of a request. When the answer is there, the record of a change is on the
/// medium.
pub(crate) fn request<B>(
    audit: Option<&Arc<Audit>>,
    asked: &RecordedRequest,
    response: &Response<B>,
) -> impl Future<Output = ()> + Send + use<B> {
    let recorded = audit.cloned().zip(asked.content(response));
    let is_refused = response.status().is_client_error();
    async move {
        let Some((audit, content)) = recorded else { return };
        if is_refused {
            audit.note(content);
            return;
        }
        let (sender, receiver) = tokio::sync::oneshot::channel();
        audit.change(content, move || {
            let _gone = sender.send(());
        });
        if tokio::time::timeout(WAIT, receiver).await.is_err() {
            let late = "a change is answered before its record is stored";
            tracing::error!("the audit log takes longer than {WAIT:?}: {late}");
        }
    }
}

/// Records that somebody was not let in.
pub(crate) fn login(audit: Option<&Arc<Audit>>, peer: SocketAddr, name: &str, denied: Denied) {
    let Some(audit) = audit else { return };
    let from = peer.ip().to_canonical().to_string();
    let content = NewRecord::new(RecordKind::Login, "log in", RecordOutcome::Refused).who(&shortened(name)).from(&from);
    audit.note(content.detail(&denied.to_string()));
}

/// As much as is told of a name that nobody may have: some type a password there.
fn shortened(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(32).collect()
}

/// A path, for the log. Where the number of a key belongs, somebody may have put a key.
pub(crate) fn without_key(path: &str) -> Cow<'_, str> {
    let Some(at) = KEY_PLACES.iter().find_map(|place| Some(path.find(place)? + place.len())) else {
        return Cow::Borrowed(path);
    };
    let (place, numbers) = path.split_at(at);
    if numbers.chars().all(|c| c == 'k' || c == ',' || c.is_ascii_digit()) {
        return Cow::Borrowed(path);
    }
    let beginning: String = numbers.chars().take(8).collect();
    Cow::Owned(format!("{place}{beginning}..."))
}

/// What a body asks for: changes and edits by what they are called, everything else by the names of
/// the properties that it sets. No value of them is repeated.
fn words_of(path: &str, body: &[u8]) -> String {
    if path.ends_with("/v1/changes") {
        let transaction: Option<Transaction> = serde_json::from_slice(body).ok();
        let changes = transaction.map(|transaction| transaction.changes).unwrap_or_default();
        return changes.iter().take(NAMES_MAX).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    }
    if path.ends_with("/v1/edits") {
        return serde_json::from_slice::<Edits>(body).map(|edits| edits.to_string()).unwrap_or_default();
    }
    if path.ends_with("/v1/keys") {
        // By host and kind; the rest of it is the key.
        let key: Option<AddKey> = serde_json::from_slice(body).ok();
        // What is no name of a host may be the key.
        let host = |key: &AddKey| if key.host.starts_with("nqn.") { key.host.clone() } else { "a host".to_owned() };
        return key.map(|key| format!("{} key of {}", key.kind, host(&key))).unwrap_or_default();
    }
    // What is larger is a text or an image.
    let body = Some(body).filter(|body| body.len() <= BODY_BYTES_MAX).unwrap_or_default();
    let Ok(mut read) = serde_json::from_slice::<Value>(body) else { return String::new() };
    let mut names = Vec::new();
    for (name, value) in read.as_object().into_iter().flatten() {
        match value.get("Ebof").and_then(Value::as_object) {
            Some(own) => names.extend(own.keys().map(|own| format!("{name}/Ebof/{own}"))),
            None => names.push(name.clone()),
        }
    }
    erase_texts(&mut read);
    names.truncate(NAMES_MAX);
    names.join(", ")
}

/// The same of what was refused: only of bodies whose types say what is a name, and without keys
/// that somebody has made up.
fn refused_words_of(path: &str, body: &[u8], words: &str) -> String {
    if path.ends_with("/v1/edits") {
        let edits = serde_json::from_slice::<Edits>(body).map(|edits| edits.edits).unwrap_or_default();
        let Some(first) = edits.first() else { return String::new() };
        let first = match first {
            Edit::Set { object, .. } => format!("set keys of {object}"),
            other => other.to_string(),
        };
        return if edits.len() > 1 { format!("{first} and {} more", edits.len() - 1) } else { first };
    }
    let is_typed = path.ends_with("/v1/changes") || path.ends_with("/v1/keys");
    if is_typed { words.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    }

    fn asked(method: &str, path: &str, body: &str) -> RecordedRequest {
        let asker = Asker::Local { uid: 0, pid: Some(7), program: Some("ebof".to_owned()) };
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        RecordedRequest::at_socket(&method.parse().unwrap(), path, &asker).with(query, body.as_bytes())
    }

    #[test]
    fn a_key_where_its_number_belongs_is_not_recorded() {
        for place in ["/v1/keys/", "/ebof/v1/keys/", "/redfish/v1/KeyService/NVMeoFSecrets/"] {
            for number in ["k3", "k3,k4", ""] {
                assert_eq!(without_key(&format!("{place}{number}")), format!("{place}{number}"));
            }
            assert_eq!(without_key(&format!("{place}DHHC-1:01:AAECAwQF")), format!("{place}DHHC-1:0..."));
        }
        assert_eq!(without_key("/v1/status"), "/v1/status");
    }

    #[test]
    fn what_changes_nothing_is_recorded_only_if_it_is_refused() {
        let is_recorded = |method, path, status| asked(method, path, "{}").content(&answer(status)).is_some();
        for (method, path, status, recorded) in [
            ("GET", "/v1/status", 200, false),
            ("GET", "/v1/status", 404, false),
            ("GET", "/v1/accounts", 403, true),
            ("GET", "/v1/accounts", 401, false),
            ("POST", "/v1/changes", 202, true),
            ("POST", "/v1/changes", 401, true),
            ("POST", "/v1/changes", 404, true),
            ("POST", "/v1/changes/plan", 200, false),
            ("POST", "/v1/changes/plan", 403, true),
            ("POST", "/v1/edits?plan=1", 200, false),
            ("POST", "/v1/edits", 200, true),
            ("DELETE", "/v1/accounts/jo", 200, true),
        ] {
            assert_eq!(is_recorded(method, path, status), recorded, "{method} {path} {status}");
        }
    }

    #[test]
    fn no_value_of_a_body_is_recorded() {
        let account = r#"{"name": "jo", "password": "SECRET", "role": "Operator"}"#;
        let told = asked("POST", "/v1/accounts", account).content(&answer(201)).unwrap();
        let told = format!("{told:?}");
        assert!(told.contains("name, password, role") && !told.contains("SECRET"), "{told}");
        let share = r#"{"Oem": {"Ebof": {"Weight": 7}}}"#;
        assert_eq!(words_of("/redfish/v1/x", share.as_bytes()), "Oem/Ebof/Weight");
        let change = r#"{"changes": [{"change": "weight", "function": "d3/vf2", "weight": 7}]}"#;
        assert_eq!(words_of("/ebof/v1/changes", change.as_bytes()), "give d3/vf2 the weight 7");
        let edit = r#"{"edits": [{"edit": "set", "object": {"host": "nqn.x"}, "keys": {"dhchap_key": "SECRET"}}]}"#;
        assert_eq!(words_of("/v1/edits", edit.as_bytes()), "set dhchap_key of host nqn.x");
        let key = r#"{"host": "nqn.x", "kind": "tls", "key": "SECRET", "replace": true}"#;
        assert_eq!(words_of("/v1/keys", key.as_bytes()), "tls key of nqn.x");
        assert_eq!(words_of("/v1/keys", br#"{"host": "nqn.x", "SECRET": 1}"#), "");
        assert_eq!(words_of("/v1/x", b"\x00SECRET"), "");
        let key = br#"{"host": "SECRET", "kind": "tls", "key": "nqn.x", "replace": true}"#;
        assert_eq!(words_of("/v1/keys", key), "tls key of a host");
        // Who is refused may have sent anything, also as a name.
        let told = asked("PATCH", "/v1/accounts/jo", r#"{"SECRET": 1}"#).content(&answer(400)).unwrap();
        assert!(!format!("{told:?}").contains("SECRET"), "{told:?}");
    }

    #[test]
    fn a_refusal_names_what_it_is_about_and_why_and_no_key() {
        let told = |path: &str, body: &str, mistake: Mistake| {
            let mut response = answer(409);
            response.extensions_mut().insert(Refused { mistakes: vec![mistake] });
            let (record, method) = (asked("POST", path, body), &response);
            format!("{:?}", record.content(method).unwrap())
        };
        let key = r#"{"host": "nqn.x", "kind": "tls", "key": "SECRET", "replace": false}"#;
        let has_one = || Mistake::new(MistakeKind::Conflict, "nqn.x", "it has a tls key already", "replace it");
        let text = told("/v1/keys", key, has_one());
        assert!(text.contains("object: \"nqn.x\"") && !text.contains("SECRET"), "{text}");
        assert!(text.contains("409: tls key of nqn.x: it has a tls key already\""), "{text}");
        let value = || Mistake::new(MistakeKind::Value, "SECRET", "`SECRET` is no key", "");
        let text = told("/v1/keys", key, value());
        assert!(text.contains("409: tls key of nqn.x: a value is not accepted") && !text.contains("SECRET"), "{text}");
        let text = told("/v1/edits", r#"{"SECRET": 1}"#, value());
        assert!(text.contains("409: a value is not accepted") && !text.contains("SECRET"), "{text}");
        let set = r#"{"edits": [{"edit": "set", "object": {"host": "nqn.x"}, "keys": {"SECRET": 1}}]}"#;
        assert!(told("/v1/edits", set, value()).contains("409: set keys of host nqn.x: a value is not accepted"));
        let none = || Mistake::new(MistakeKind::NotFound, "SECRET", "there is no key SECRET", "");
        assert!(!told("/v1/keys/SECRET-and-more", "", none()).contains("no key SECRET"));
        let pasted = Mistake::new(MistakeKind::Conflict, "DHHC-1:01:AAEC", "DHHC-1:01:AAEC is there", "");
        assert!(!told("/v1/edits", "{}", pasted).contains("AAEC"));
        let change = r#"{"changes": [{"change": "weight", "function": "d3/vf2", "weight": 7}]}"#;
        let busy = Mistake::new(MistakeKind::Busy, "d3/vf2", "another task changes it", "");
        assert!(told("/v1/changes", change, busy).contains("409: give d3/vf2 the weight 7: another task changes it"));
    }
}
