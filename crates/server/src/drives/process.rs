//! A request on the drive's thread: when it is begun, what is done between its effect and its
//! answer.

use std::sync::Arc;

use ebof_drive::{Origin, Request, VolumeId};
use ebof_medium::Store;

use super::actor::DriveActor;
use super::request::QueuedRequest;
use crate::observe::log_limit::{Kind, LogSubject};

/// What has to be done before a request is answered.
#[derive(Default)]
pub(super) struct Aftermath {
    /// Namespaces have to be erased.
    pub(super) erased: Vec<VolumeId>,
    /// Commands to what was lost have to end.
    pub(super) hands_over: bool,
}

impl DriveActor {
    /// Does a request, unless it was withdrawn or has to wait.
    pub(super) fn process(
        self: &Arc<Self>,
        store: &mut Store,
        request: Request,
        origin: Origin,
        queued: QueuedRequest,
    ) {
        let Some((request, origin, queued)) = self.wait_for_handover(request, origin, queued) else { return };
        let Some(begun) = queued.begin() else { return };
        let (answer, Aftermath { erased, hands_over }) = match self.check_overdue(&request) {
            Ok(()) => self.carry_out(store, &request, &origin),
            Err(refusal) => (Err(refusal), Aftermath::default()),
        };
        self.start_jobs(store);
        let answer = match answer {
            Ok(reply) if !erased.is_empty() => {
                self.erase(store, erased, Box::new(move || begun.reply(Ok(reply))));
                return;
            }
            Ok(reply) if hands_over => {
                self.drain(store, begun, reply);
                return;
            }
            answer => answer,
        };
        if !erased.is_empty() {
            // The command has failed, but these are empty, and wait for their old data to be erased
            // like others.
            self.erase(store, erased, Box::new(|| {}));
        }
        if let Err(refusal) = &answer {
            let status = refusal.status;
            let name = request.name();
            if let Some(more) = self.may_log(LogSubject::Host(origin.host.clone()), Kind::DriveRefused) {
                tracing::info!(drive = self.name(), host = %origin.host, request = name, %status, "refused{more}");
            }
        }
        begun.reply(answer);
    }
}
