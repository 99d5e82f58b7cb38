//! Clears a log: `LogService.ClearLog`.

use ebof_manage::events::{EventKind, NewEvent};
use http::StatusCode;

use crate::area::{Area as _, ChangeRequest, Done};
use crate::place::{Log, ManagerPlace};
use crate::request::input::Input;
use crate::response::etag;
use crate::response::message::{Message, Problem};

/// Forgets the entries of a log. What somebody did with the management stays in any case, and so
/// does that the log was cleared, and by whom.
pub(super) fn clear(log: Log, mut input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
    let expected = input.text("LogEntriesETag");
    input.finish(None)?;
    if let Some(expected) = expected {
        let entries = etag::compute(&ManagerPlace::Entries(log).read(request.view)?);
        if !etag::matches(&expected, &entries) {
            return Err(Problem::new(StatusCode::PRECONDITION_REQUIRED, Message::precondition_failed()));
        }
    }
    let parts = request.parts;
    let (count, kept) = match log {
        Log::Events => (parts.events.clear(), "; what accounts did stays"),
        Log::ConnectionsRefused => (parts.target.forget_refused(), ""),
        Log::SlowCommands => (parts.measured.forget_slow(), ""),
        Log::Audit => return Err(ManagerPlace::ClearLog(log).missing()),
    };
    let entries = if count == 1 { "entry" } else { "entries" };
    let message = format!("log {} was cleared: {count} {entries}{kept}", log.id());
    parts.events.report(NewEvent::new(EventKind::LogCleared, log.id(), message).by(&request.asker()));
    Ok(Done::Made)
}
