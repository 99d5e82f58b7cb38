//! Errors as text and as JSON: what was tried, what the answer was, what to do. Extracts these from
//! every error that a verb may return.

use std::fmt;
use std::io;

use ebof_bench::{BenchError, SourceError};
use ebof_initiator::ConnectError;
use ebof_manage::Diagnostics;
use ebof_manage::written_keys::without_keys;
use ebof_nvme::Status;
use ebof_nvme::status::NvmStatus;

use crate::output::json::Object;

/// The error of a verb.
#[derive(Debug)]
pub struct Failure {
    kind: &'static str,
    message: String,
    advice: Option<String>,
    /// The status and its name, which depends on the command.
    status: Option<(Status, Option<&'static str>)>,
}

impl Failure {
    /// A failure with advice. `kind` is for programs, in kebab-case, and stable.
    pub fn new(kind: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { kind, message: message.into(), advice: Some(advice.into()), status: None }
    }

    /// The command line is invalid, or cannot be used with the device.
    pub fn usage(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new("usage", message, advice)
    }

    /// Something that is not supported.
    pub(crate) fn unsupported(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new("unsupported", message, advice)
    }

    /// The controller refused an admin or Fabrics command.
    pub(crate) fn refused(command: &str, status: Status, meaning: Option<String>) -> Self {
        let message = format!("{command}: the controller answered {status}");
        Self { kind: "status", message, advice: meaning, status: Some((status, status.name())) }
    }

    /// The controller refused a command of the NVM command set.
    pub(crate) fn refused_io(command: &str, status: Status, meaning: Option<String>) -> Self {
        let message = format!("{command}: the controller answered {}", NvmStatus(status));
        Self { kind: "status", message, advice: meaning, status: Some((status, status.nvm_name())) }
    }

    /// What is wrong.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// What to do.
    pub(crate) fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// Whether what was asked for may have been done: no answer came, or one that says so.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        matches!(self.kind, "io" | "malformed-answer" | "outcome-unknown")
    }

    /// With more to do.
    pub(crate) fn with_more_advice(self, more: &str) -> Self {
        let advice = self.advice.map_or_else(|| more.to_owned(), |advice| format!("{advice}; {more}"));
        Self { advice: Some(advice), ..self }
    }

    /// Whether something was planned from what is not there any more.
    pub(crate) fn is_outdated(&self) -> bool {
        self.kind == "outdated"
    }

    /// The status, if the controller refused a command.
    pub(crate) fn status(&self) -> Option<Status> {
        self.status.map(|(status, _)| status)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.advice {
            Some(advice) => write!(f, "\n  {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// The context of an error about something that a file names: path and line.
#[derive(Debug)]
pub(crate) struct FailurePlace(pub(crate) String);

impl fmt::Display for FailurePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `path:line: ` in front of an error that has a [`FailurePlace`].
fn place(error: &anyhow::Error) -> String {
    error.downcast_ref::<FailurePlace>().map(|place| format!("{place}: ")).unwrap_or_default()
}

/// The error as text, without the prefix `error:`, and without keys: it may repeat an argument.
pub(crate) fn text(error: &anyhow::Error) -> String {
    without_keys(&whole_text(error)).into_owned()
}

fn whole_text(error: &anyhow::Error) -> String {
    if let Some(diagnostics) = error.downcast_ref::<Diagnostics>() {
        return format!("{diagnostics:#}");
    }
    if let Some(connect) = connect_error(error) {
        return format!("{}{connect:#}", place(error));
    }
    let line = chain(error);
    match no_right(error) {
        Some(advice) => format!("{line}\n  {advice}"),
        None => line,
    }
}

/// The chain in one line: `opening x: permission denied`. A cause that was told is not repeated.
fn chain(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// What to do if the system did not permit a plain operation on a file. Errors that have a type
/// bring their own advice.
fn no_right(error: &anyhow::Error) -> Option<String> {
    let refused = error.downcast_ref::<io::Error>()?;
    if refused.kind() != io::ErrorKind::PermissionDenied {
        return None;
    }
    let user = rustix::process::geteuid();
    Some(if user.is_root() {
        "root may not do that here, either: see how the file system is mounted, and what confines this process \
         (a container, a unit of systemd, AppArmor, SELinux)"
            .to_owned()
    } else {
        format!(
            "this runs as the user {user}, who has no right to that: give it to them, or run this as a user who has it, such as root"
        )
    })
}

/// The error as a JSON document.
pub(crate) fn json(error: &anyhow::Error) -> Object {
    Object::document("error", 1).with("error", details(error))
}

/// The error as JSON, without the schema.
pub(crate) fn details(error: &anyhow::Error) -> Object {
    let mut details = Object::new().with("kind", kind(error));
    if let Some(connect) = connect_error(error) {
        details = details
            .with("message", shown(&format!("{}{}", place(error), connect.summary())))
            .with("tried", shown(&connect.tried_text()))
            .with("answer", shown(&connect.answer()))
            .with("advice", shown(&connect.to_do()));
    } else if let Some(parts) = daemons_connect_error(error) {
        for (key, part) in ["message", "tried", "answer", "advice"].into_iter().zip(parts) {
            details.push(key, shown(part));
        }
    } else if let Some(diagnostics) = error.downcast_ref::<Diagnostics>() {
        details = details.with("message", diagnostics.to_string()).with("advice", None::<String>);
        details.push("diagnostics", self::diagnostics(diagnostics));
    } else if let Some(failure) = error.downcast_ref::<Failure>() {
        details = details.with("message", shown(&failure.message)).with("advice", failure.advice.as_deref().map(shown));
    } else {
        details = details.with("message", shown(&chain(error))).with("advice", no_right(error));
    }
    if let Some((status, name)) = status(error) {
        let object = Object::new().with("name", name).with("sct", status.code_type()).with("sc", status.code());
        details.push("status", object.with("dnr", status.is_dnr()));
    }
    details
}

fn shown(text: &str) -> String {
    without_keys(text).into_owned()
}

/// Whether the command line is invalid.
pub(crate) fn is_usage(error: &anyhow::Error) -> bool {
    kind(error) == "usage"
}

/// Whether the reader of the output has closed it, which is not an error.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
}

fn kind(error: &anyhow::Error) -> &str {
    if let Some(connect) = connect_error(error) {
        connect.kind().name()
    } else if let Some(failure) = error.downcast_ref::<Failure>() {
        failure.kind
    } else if let Some(error) = initiator_error(error) {
        error.kind()
    } else if let Some(error) = error.downcast_ref::<ebof_attach::Error>() {
        attach_error_kind(error)
    } else if error.is::<Diagnostics>() {
        "config"
    } else if error.is::<io::Error>() {
        "io"
    } else {
        "failed"
    }
}

/// The kind of an error of the attach crate, in kebab-case, for output that programs read. Stable.
fn attach_error_kind(error: &ebof_attach::Error) -> &str {
    use ebof_attach::Error;
    match error {
        Error::NoFuse(_) | Error::NoLosetup | Error::NoLoop(_) | Error::NoDevice { .. } => "no-block-device",
        Error::Ublk(_) | Error::Mount { .. } | Error::Losetup { .. } => "no-block-device",
        Error::AlreadyConnected(_) => "already-connected",
        Error::NotConnected { .. } | Error::OfRoot { .. } => "not-connected",
        Error::GivenUp { .. } => "given-up",
        Error::Unresponsive { .. } => "holder-unresponsive",
        Error::Daemon { kind: Some(kind), .. } => kind,
        Error::Daemon { .. } | Error::DaemonDied { .. } => "holder",
        Error::InUse { .. } | Error::MayBeInUse { .. } => "in-use",
        Error::State { .. } | Error::Directory(_) | Error::Store(_) => "state",
        Error::Io { .. } => "io",
        Error::Connect(error) => error.kind().name(),
        Error::Initiator(error) => error.kind(),
    }
}

/// The connect error in it, also of a queue that could not be connected later.
fn connect_error(error: &anyhow::Error) -> Option<&ConnectError> {
    if let Some(connect) = error.downcast_ref::<ConnectError>() {
        return Some(connect);
    }
    if let Some(SourceError::Connect(connect)) = source_error(error) {
        return Some(connect);
    }
    if let Some(ebof_attach::Error::Connect(connect)) = error.downcast_ref() {
        return Some(connect);
    }
    match initiator_error(error) {
        Some(ebof_initiator::Error::Connect(connect)) => Some(connect),
        _ => None,
    }
}

/// The error of the library for hosts in it.
fn initiator_error(error: &anyhow::Error) -> Option<&ebof_initiator::Error> {
    if let Some(SourceError::Fabric(initiator)) = source_error(error) {
        return Some(initiator);
    }
    match error.downcast_ref::<ebof_attach::Error>() {
        Some(ebof_attach::Error::Initiator(initiator)) => Some(initiator),
        _ => error.downcast_ref::<ebof_initiator::Error>(),
    }
}

/// The error of what a measurement reads and writes.
fn source_error(error: &anyhow::Error) -> Option<&SourceError> {
    match error.downcast_ref::<BenchError>() {
        Some(BenchError::Source(source)) => Some(source),
        _ => error.downcast_ref::<SourceError>(),
    }
}

/// The four parts of a connect error that came from an attach daemon, as text: [`ConnectError`]'s
/// own form.
fn daemons_connect_error(error: &anyhow::Error) -> Option<[&str; 4]> {
    let Some(ebof_attach::Error::Daemon { message, kind: Some(_) }) = error.downcast_ref() else { return None };
    let (summary, rest) = message.split_once("\n  tried:  ")?;
    let (tried, rest) = rest.split_once("\n  answer: ")?;
    let (answer, advice) = rest.split_once("\n  to do:  ")?;
    Some([summary, tried, answer, advice])
}

fn status(error: &anyhow::Error) -> Option<(Status, Option<&'static str>)> {
    let failure = error.downcast_ref::<Failure>().and_then(|failure| failure.status);
    let initiator = || initiator_error(error).and_then(ebof_initiator::Error::status);
    failure.or_else(|| initiator().map(|status| (status, status.name())))
}

/// Diagnostics of a configuration, as JSON.
pub(crate) fn diagnostics(diagnostics: &Diagnostics) -> Vec<Object> {
    diagnostics.items.iter().map(diagnostic).collect()
}

fn diagnostic(item: &ebof_manage::Diagnostic) -> Object {
    Object::new()
        .with("severity", item.severity.to_string())
        .with("file", item.file.as_str())
        .with("line", item.line as u64)
        .with("column", item.column as u64)
        .with("message", item.message.as_str())
        .with("help", item.help.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_is_reported_with_status_code_and_meaning() {
        let failure = Failure::refused("Read", Status::LBA_OUT_OF_RANGE.dnr(), Some("nvme0n1 has 8 blocks".to_owned()));
        let error = anyhow::Error::new(failure);
        let expected = "Read: the controller answered LBA Out of Range (SCT 0h, SC 80h, DNR)\n  nvme0n1 has 8 blocks";
        assert_eq!(text(&error), expected);
        insta::assert_snapshot!(json(&error).to_text().unwrap());
    }

    #[test]
    fn an_error_repeats_no_key() {
        let failure = Failure::usage("`DHHC-1:01:AAEC:` is no path", "not DHHC-1:01:AAEC:");
        for error in [failure.into(), anyhow::anyhow!("opening x").context("DHHC-1:01:AAEC:")] {
            let told = format!("{}{}", text(&error), json(&error).to_text().unwrap());
            assert!(told.contains("DHHC-1:***") && !told.contains("AAEC"), "{told}");
        }
    }

    #[test]
    fn a_config_error_points_at_line_and_column() {
        let error = anyhow::Error::new(ebof_manage::load("ebof.toml", "[[port]]\nlisten = 7\n").unwrap_err());
        assert!(text(&error).contains("--> ebof.toml:1:3"), "{}", text(&error));
        let json = json(&error).to_text().unwrap();
        assert!(json.contains("\"line\": ") && json.contains("\"kind\": \"config\""), "{json}");
    }

    #[test]
    fn a_failed_connect_of_a_daemon_is_reported_in_parts() {
        let message = "cannot connect\n  tried:  this\n  answer: that\n  to do:  something else".to_owned();
        let error = anyhow::Error::new(ebof_attach::Error::Daemon { message, kind: Some("wrong-nqn".to_owned()) });
        let expected = r#"{"kind":"wrong-nqn","message":"cannot connect","tried":"this","answer":"that","advice":"something else"}"#;
        assert_eq!(serde_json::to_string(&details(&error)).unwrap(), expected);
    }

    #[test]
    fn a_measurement_that_cannot_connect_is_reported_in_parts() {
        // Port 1 is tcpmux, which nobody runs.
        let options = ebof_initiator::Options::new("127.0.0.1", 1, ebof_nvme::Nqn::discovery());
        let source = ebof_bench::Source::Fabric(Box::new(options), ebof_nvme::Nsid(1));
        let run = ebof_bench::run(&source, &ebof_bench::Job::new(ebof_bench::Mix::RandRead), |_| {
            std::ops::ControlFlow::Continue(())
        });
        let error = anyhow::Error::new(run.unwrap_err());
        let text = text(&error);
        assert!(text.contains("\n  tried:  ") && text.contains("\n  to do:  "), "{text}");
        assert_eq!(kind(&error), "refused");
    }

    #[test]
    fn a_closed_pipe_is_not_an_error() {
        let error = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("printing");
        assert!(is_broken_pipe(&error));
    }
}
