//! What happens to a target, as the audit log has it: what became of changes, whoever asked for
//! them, and which hosts were refused.

use std::sync::Arc;

use ebof_audit::{NewRecord, RecordKind, RecordOutcome};
use ebof_manage::events::{ANSWER_MAX, Event, EventKind, Events};

/// Reads the events of a target.
pub(super) struct Happened {
    events: Arc<dyn Events>,
    seen: u64,
}

impl Happened {
    /// All since the target was started.
    pub(super) fn new(events: Arc<dyn Events>) -> Self {
        Self { events, seen: 0 }
    }

    /// What has happened since the last call.
    pub(super) fn since_last(&mut self) -> Vec<NewRecord> {
        let mut contents = Vec::new();
        // The rest is for the next turn.
        let more = self.events.since(self.seen, ANSWER_MAX);
        if more.lost > 0 && self.seen > 0 {
            let detail = "more has happened at once than is remembered";
            contents
                .push(NewRecord::new(RecordKind::Log, "gap", RecordOutcome::Failed).detail(detail).count(more.lost));
        }
        if let Some(last) = more.events.last() {
            self.seen = last.id;
        }
        contents.extend(more.events.iter().filter_map(content_of));
        contents
    }
}

/// The record of an event; `None` for what nobody has done. Logins are recorded where they are
/// checked, with the address of each.
fn content_of(event: &Event) -> Option<NewRecord> {
    use EventKind as Of;
    let (kind, outcome) = match event.kind {
        Of::ConnectionRefused => (RecordKind::Connection, RecordOutcome::Refused),
        Of::ConfigurationRefused => (RecordKind::Event, RecordOutcome::Refused),
        Of::TaskFailed => (RecordKind::Event, RecordOutcome::Failed),
        Of::AccountLocked => (RecordKind::Login, RecordOutcome::Refused),
        Of::TargetStarted
        | Of::TargetStopping
        | Of::FunctionGiven
        | Of::FunctionTaken
        | Of::FunctionMoved
        | Of::FunctionChanged
        | Of::NamespaceAdded
        | Of::NamespaceRemoved
        | Of::NamespaceChanged
        | Of::SubsystemAdded
        | Of::SubsystemRemoved
        | Of::SubsystemChanged
        | Of::DriveAdded
        | Of::DriveRemoved
        | Of::FirmwareChanged
        | Of::ConfigurationChanged
        | Of::TaskEnded
        | Of::AccountAdded
        | Of::AccountChanged
        | Of::AccountRemoved
        | Of::SessionEnded
        | Of::KeyAdded
        | Of::KeyRemoved
        | Of::CertificateChanged
        | Of::LogCleared => (RecordKind::Event, RecordOutcome::Done),
        _ => return None,
    };
    let content = NewRecord::new(kind, event.kind.name(), outcome).object(&event.object).detail(&event.message);
    let (who, from) = (event.who.as_deref().unwrap_or_default(), event.from.as_deref().unwrap_or_default());
    Some(content.who(who).from(from).count(event.count))
}
