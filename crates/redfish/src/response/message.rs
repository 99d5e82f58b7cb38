//! Messages of responses and why a request fails: those of the registry `Base` (DSP8011) that ebof
//! uses, and ebof's own.
//!
//! The identifiers, arguments and severities are the registry's, so that programs can look a
//! message up. The sentences are ebof's: they name what is accepted.

mod login;
pub(crate) mod own;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use ebof_manage::api::RefusedConfiguration;
use ebof_manage::enclosure::{Mistake, MistakeKind, Refused};
use ebof_manage::written_keys::without_keys;
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

pub use login::Login;

use crate::place::Place;

/// The prefix of messages of DMTF's registry `Base`.
pub(crate) const BASE: &str = "Base.1.18";

/// The prefix of messages of ebof's own registry.
pub(crate) const OWN: &str = "Ebof.1.0";

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Message {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    pub(crate) message_id: String,
    pub(crate) message: String,
    message_args: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    related_properties: Vec<String>,
    message_severity: Severity,
    resolution: String,
}

/// `Resource.Health`, as messages use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Severity {
    OK,
    Warning,
    Critical,
}

impl Message {
    fn new(id: &str, severity: Severity, args: &[&str], message: String, resolution: impl Into<String>) -> Self {
        let (args, resolution) = (args.iter().map(|&arg| shortened(arg)).collect(), printable(resolution.into()));
        Self {
            kind: "#Message.v1_3_0.Message",
            message_id: if id.contains('.') { id.to_owned() } else { format!("{BASE}.{id}") },
            message: printable(message),
            message_args: args,
            related_properties: Vec::new(),
            message_severity: severity,
            resolution,
        }
    }

    fn warning(id: &str, args: &[&str], message: String, resolution: impl Into<String>) -> Self {
        Self::new(id, Severity::Warning, args, message, resolution)
    }

    fn critical(id: &str, args: &[&str], message: String, resolution: impl Into<String>) -> Self {
        Self::new(id, Severity::Critical, args, message, resolution)
    }

    /// About a property, by its JSON pointer: `/Links/Endpoints`.
    pub(crate) fn about(mut self, pointer: &str) -> Self {
        self.related_properties = vec![format!("#{}", shortened(pointer))];
        self
    }

    /// Whether it is about a property.
    pub(crate) fn is_about(&self, pointer: &str) -> bool {
        self.related_properties.iter().any(|one| one.strip_prefix('#') == Some(&*shortened(pointer)))
    }

    pub(crate) fn resource_missing(path: &str) -> Self {
        let message = format!("There is no resource {}.", shortened(path));
        Self::critical("ResourceMissingAtURI", &[path], message, "Follow the links from /redfish/v1.")
    }

    pub(crate) fn malformed(why: &dyn fmt::Display) -> Self {
        let message = format!("The body is not the JSON object that is expected: {why}.");
        Self::critical("MalformedJSON", &[], message, "Correct the body and send it again.")
    }

    /// Behind the last mistake that is told, if there are more.
    pub(crate) fn too_many_mistakes() -> Self {
        let message = "There are more mistakes than are told at a time.".to_owned();
        Self::critical("MaximumErrorsExceeded", &[], message, "Correct these, and send the request again.")
    }

    /// Two parameters of an action exclude each other.
    pub(crate) fn parameter_conflict(name: &str, other: &str) -> Self {
        let message = format!("The parameters {name} and {other} exclude each other.");
        Self::warning("ActionParameterValueConflict", &[name, other], message, "Send one of them.")
    }

    pub(crate) fn multipart(why: &str) -> Self {
        let resolution = "Send multipart/form-data with the parts UpdateParameters (JSON) and UpdateFile.";
        Self::critical("MissingOrMalformedPart", &[], format!("The body is not understood: {why}."), resolution)
    }

    pub(crate) fn header_invalid(name: &str, value: &str, accepted: &str) -> Self {
        let message = format!("The header {name} has the value {}, which is not accepted.", shortened(value));
        Self::critical("HeaderInvalid", &[name], message, format!("Accepted: {accepted}."))
    }

    pub(crate) fn property_unknown(name: &str) -> Self {
        let message = format!("The property {} is not one of this resource.", shortened(name));
        Self::warning("PropertyUnknown", &[name], message, "Leave the property out, or correct its name.")
    }

    pub(crate) fn property_not_writable(name: &str) -> Self {
        let message = format!("The property {} is read-only.", shortened(name));
        Self::warning("PropertyNotWritable", &[name], message, "Leave the property out.")
    }

    pub(crate) fn property_missing(name: &str) -> Self {
        let message = format!("The property {name} is required and was not sent.");
        Self::warning("PropertyMissing", &[name], message, format!("Send {name}, too."))
    }

    pub(crate) fn property_type(name: &str, value: &Value, accepted: &str) -> Self {
        let value = shortened(&value.to_string());
        let message = format!("The value {value} of the property {name} is of another type than it accepts.");
        Self::warning("PropertyValueTypeError", &[&value, name], message, format!("Accepted: {accepted}."))
    }

    pub(crate) fn property_value(name: &str, value: &Value, accepted: &str) -> Self {
        let value = shortened(&value.to_string());
        let message = format!("The value {value} of the property {name} is not accepted.");
        Self::warning("PropertyValueNotInList", &[&value, name], message, format!("Accepted: {accepted}."))
    }

    pub(crate) fn property_error(name: &str, why: &str, accepted: &str) -> Self {
        let message = format!("The value of the property {name} is not accepted: {why}.");
        Self::warning("PropertyValueError", &[name], message, format!("{accepted}."))
    }

    /// A resource that is to be created is there already.
    pub(crate) fn resource_exists(kind: &str, property: &str, value: &str) -> Self {
        let value = shortened(value);
        let message = format!("There is a resource of the type {kind} already whose {property} has {value}.");
        let resolution = "Use that one, or send another value.";
        Self::critical("ResourceAlreadyExists", &[kind, property, &value], message, resolution)
    }

    /// A reference to a resource of another kind, or of somebody else.
    pub(crate) fn not_this_kind(place: &Place, accepted: &str) -> Self {
        let (place, id) = (shortened(&place.to_string()), "PropertyValueError");
        let message = format!("The reference {place} is to a resource that cannot be used here.");
        Self::warning(id, &[&place], message, format!("Accepted: {accepted}."))
    }

    pub(crate) fn parameter_missing(action: &str, name: &str) -> Self {
        let message = format!("The action {action} needs the parameter {name}, which was not sent.");
        Self::critical("ActionParameterMissing", &[action, name], message, format!("Send {name}, too."))
    }

    pub(crate) fn action_not_supported(action: &str) -> Self {
        let message = format!("There is no action {}.", shortened(action));
        Self::critical(
            "ActionNotSupported",
            &[action],
            message,
            "The property Actions of the resource has its actions.",
        )
    }

    pub(crate) fn query_not_supported(name: &str) -> Self {
        let message = format!("The query parameter {} is not supported here.", shortened(name));
        Self::warning("QueryParameterUnsupported", &[name], message, QUERIES)
    }

    pub(crate) fn query_value(name: &str, value: &str, accepted: &str) -> Self {
        let message = format!("The query parameter {name} has the value {}.", shortened(value));
        let id = "QueryParameterValueFormatError";
        Self::warning(id, &[value, name], message, format!("Accepted: {accepted}."))
    }

    pub(crate) fn query_range(name: &str, value: &str, accepted: &str) -> Self {
        let message = format!("The query parameter {name} has the value {}, which is out of range.", shortened(value));
        Self::warning("QueryParameterOutOfRange", &[value, name, accepted], message, format!("Accepted: {accepted}."))
    }

    pub(crate) fn query_combination(why: &str) -> Self {
        let message = format!("The query parameters cannot be combined: {why}.");
        Self::warning("QueryCombinationInvalid", &[], message, "Send two requests.")
    }

    pub(crate) fn precondition_failed() -> Self {
        let message = "The resource is not the one that If-Match names: it was changed meanwhile.".to_owned();
        let resolution = "Read the resource again, look at what has changed, and send the change with its new ETag.";
        Self::critical("PreconditionFailed", &[], message, resolution)
    }

    pub(crate) fn plan_outdated() -> Self {
        let message = "The request would not do what was planned any more: other hosts notice it, or it changes more.";
        let resolution = "Plan it again, look at what is different, and send the request with the new revision.";
        Self::own("ChangeOutdated", Severity::Warning, message.to_owned(), resolution)
    }

    pub(crate) fn no_session() -> Self {
        let message = "There is no valid session or account with the request.".to_owned();
        let resolution = "POST a UserName and a Password to /redfish/v1/SessionService/Sessions, and send the X-Auth-Token \
                          that comes back, or use HTTP Basic authentication.";
        Self::critical("NoValidSession", &[], message, resolution)
    }

    pub(crate) fn insufficient_privilege() -> Self {
        let message = "The role of the account does not allow this.".to_owned();
        let resolution = "Use an account of a role that does: AccountService/Roles lists them.";
        Self::critical("InsufficientPrivilege", &[], message, resolution)
    }

    /// The account has to get another password first; `account` is its address.
    pub(crate) fn password_change_required(account: &str) -> Self {
        let message = "The password has to be changed before anything else is possible.".to_owned();
        let resolution = format!("PATCH {account} with a new Password.");
        Self::critical("PasswordChangeRequired", &[account], message, resolution)
    }

    /// A login failed, at `path`.
    pub(crate) fn login_refused(path: &str, waits: bool) -> Self {
        let message = "The user name or the password is not accepted, or may not be tried now.".to_owned();
        let resolution = if waits { "Wait as long as Retry-After says, and" } else { "Correct them, and" };
        let args = [path, "the user name or the password is not accepted"];
        Self::critical("ResourceAtUriUnauthorized", &args, message, format!("{resolution} try again."))
    }

    pub(crate) fn exists_already(kind: &str, property: &str, value: &str) -> Self {
        let message = format!("There is a {kind} whose {property} is {} already.", shortened(value));
        Self::critical("ResourceAlreadyExists", &[kind, property, value], message, "Choose another value.")
    }

    pub(crate) fn too_many(what: &str) -> Self {
        let message = format!("There are as many as there can be: {what}.");
        Self::critical("CreateLimitReachedForResource", &[], message, "Delete one that is not needed any more.")
    }

    pub(crate) fn busy(seconds: u64, what: &str) -> Self {
        let message = format!("{what}.");
        let resolution = format!("Try again in {seconds} s.");
        Self::critical("ServiceTemporarilyUnavailable", &[&seconds.to_string()], message, resolution)
    }

    /// Something of the service itself fails.
    pub(crate) fn internal(what: &str) -> Self {
        Self::critical("InternalError", &[], format!("{what}."), "The log of the target has more.")
    }

    pub(crate) fn operation_not_allowed(method: &str) -> Self {
        let message = format!("The method {} is not for this resource.", shortened(method));
        Self::critical("OperationNotAllowed", &[], message, "The header Allow has the methods that are.")
    }

    pub(crate) fn resource_cannot_be_deleted() -> Self {
        let message = "The resource cannot be deleted.".to_owned();
        Self::critical("ResourceCannotBeDeleted", &[], message, "None: it exists as long as what it describes.")
    }

    pub(crate) fn no_operation() -> Self {
        let message = "No property was sent that could be changed.".to_owned();
        Self::warning("NoOperation", &[], message, "Send at least one.")
    }

    /// Of ebof's own registry, with a sentence and what to do.
    pub(crate) fn own(id: &str, severity: Severity, message: impl Into<String>, resolution: impl Into<String>) -> Self {
        debug_assert!(own::is_own(id), "{id} is not in the registry: message/own.rs");
        let (message, resolution) = (message.into(), resolution.into());
        Self::new(&format!("{OWN}.{id}"), severity, &[&message], message.clone(), resolution)
    }

    fn mistake(mistake: &Mistake) -> Self {
        let message = match mistake.object.as_str() {
            "" => mistake.message.clone(),
            object => format!("{object}: {}", mistake.message),
        };
        let id = match mistake.kind {
            MistakeKind::NotStored => return Self::internal(&message),
            MistakeKind::NotFound => "ObjectNotFound",
            MistakeKind::Busy => "ObjectBusy",
            MistakeKind::Conflict => "ChangeConflicts",
            MistakeKind::Outdated => "ChangeOutdated",
            MistakeKind::Unknown => "OutcomeUnknown",
            _ => "ChangeRefused",
        };
        let severity = if mistake.kind == MistakeKind::Unknown { Severity::Critical } else { Severity::Warning };
        Self::own(id, severity, message, mistake.advice.clone())
    }
}

const QUERIES: &str = "Accepted: $select, $expand, $filter, $top, $skip and only, where the service says so.";

/// Why a request fails: a status code and messages.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) messages: Vec<Message>,
    /// When to try again.
    pub(crate) retry_after: Option<Duration>,
    /// The login that was denied.
    pub(crate) login: Option<Box<Login>>,
    /// What ebof refused: an extension of the answer, for the log of whoever serves it.
    pub(crate) refused: Option<Box<Refused>>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, message: Message) -> Self {
        Self::with_messages(status, vec![message])
    }

    /// With several messages.
    pub(crate) const fn with_messages(status: StatusCode, messages: Vec<Message>) -> Self {
        Self { status, messages, retry_after: None, login: None, refused: None }
    }

    /// It may be tried again then.
    pub(crate) fn after(self, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    /// It is about a login.
    pub(crate) fn about(self, login: Login) -> Self {
        Self { login: Some(Box::new(login)), ..self }
    }

    /// 403.
    pub(crate) fn forbidden() -> Self {
        Self::new(StatusCode::FORBIDDEN, Message::insufficient_privilege())
    }

    /// 400.
    pub(crate) fn bad_request(message: Message) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 405: others of its kind can be deleted.
    pub(crate) fn cannot_be_deleted() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, Message::resource_cannot_be_deleted())
    }

    /// 404.
    pub(crate) fn not_found(path: &dyn fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, Message::resource_missing(&path.to_string()))
    }

    /// It is not known whether a change is stored.
    pub(crate) fn unknown(why: impl Into<String>) -> Self {
        let resolution = "Mend the medium of the state directory, and look at what is in force.";
        let message = Message::own("OutcomeUnknown", Severity::Critical, why, resolution);
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// The body: `{"error": {...}}`.
    pub(crate) fn body(&self) -> Value {
        let (code, message) = match self.messages.as_slice() {
            [one] => (one.message_id.clone(), one.message.clone()),
            several => {
                let message = format!("There are {} messages: see @Message.ExtendedInfo.", several.len());
                (format!("{BASE}.GeneralError"), message)
            }
        };
        json!({ "error": { "code": code, "message": message, "@Message.ExtendedInfo": self.messages } })
    }
}

/// What ebof refuses: 409 if it may be possible later, 404 never (the resource was found), 500 if
/// it cannot be stored, or it is not known what has become of it, else 400.
impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        if refused.mistakes.iter().any(|mistake| mistake.kind == MistakeKind::NotAllowed) {
            return Self { refused: Some(Box::new(refused)), ..Self::forbidden() };
        }
        let is_outdated = refused.mistakes.iter().any(|mistake| mistake.kind == MistakeKind::Outdated);
        let is_unknown = refused.mistakes.iter().any(|mistake| mistake.kind == MistakeKind::Unknown);
        let is_not_stored = refused.mistakes.iter().any(|mistake| mistake.kind == MistakeKind::NotStored);
        let status = if is_unknown || is_not_stored {
            StatusCode::INTERNAL_SERVER_ERROR
        } else if refused.is_busy() || is_outdated {
            StatusCode::CONFLICT
        } else {
            StatusCode::BAD_REQUEST
        };
        let messages = refused.mistakes.iter().map(Message::mistake).collect();
        Self { refused: Some(Box::new(refused)), ..Self::with_messages(status, messages) }
    }
}

/// Why a configuration is refused.
impl From<RefusedConfiguration> for Problem {
    fn from(refused: RefusedConfiguration) -> Self {
        let Some(diagnostics) = &refused.diagnostics else { return refused.refused.into() };
        let message = Message::own(
            "ConfigurationRefused",
            Severity::Warning,
            diagnostics.to_string(),
            "Correct the text: the message has its lines.",
        );
        Self::bad_request(message)
    }
}

/// A name as Redfish writes it: `task-began` is `TaskBegan`.
pub(crate) fn camel(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    };
    name.split('-').map(capital).collect()
}

/// A text whose only control characters are ends of lines, whatever of it a client has sent.
fn printable(text: String) -> String {
    let mut text = match without_keys(&text) {
        Cow::Owned(shown) => shown,
        Cow::Borrowed(_) => text,
    };
    text.retain(|c| c == '\n' || !c.is_control());
    text
}

/// As much of a text that a client sent as a message repeats: no key of it.
fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    without_keys(text).chars().filter(|c| !c.is_control()).take(CHARACTERS_MAX).collect()
}
