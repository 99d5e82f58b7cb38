//! A request to a drive until it is replied to: whoever made it can withdraw it as long as the
//! drive's thread has not begun it. What is asked and how it is done is not known here.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ebof_drive::{Answer, Refusal};
use ebof_nvme::{HostId, Nsid, Status};

/// The answer of a drive.
#[derive(Debug)]
pub(crate) struct DriveReply {
    pub(crate) answer: Answer,
    /// Commands of these hosts to the namespace are to be ended first.
    pub(crate) abort: Vec<(Nsid, HostId)>,
}

/// Takes the reply.
type Taker = Box<dyn FnOnce(Result<DriveReply, Refusal>) + Send>;

/// A request, for whoever made it.
#[derive(Clone)]
pub(crate) struct SubmittedRequest(Arc<Mutex<Option<Taker>>>);

/// The same request, for the drive's thread, until that begins it. Replied to with an error if it
/// is dropped before.
pub(super) struct QueuedRequest(SubmittedRequest);

/// The same request once it was begun. Replied to with an error if it is dropped without a reply.
pub(super) struct BegunRequest(Option<Taker>);

impl SubmittedRequest {
    /// A request whose reply goes to `taker`, for both sides.
    pub(super) fn new(taker: Taker) -> (Self, QueuedRequest) {
        let submitted = Self(Arc::new(Mutex::new(Some(taker))));
        (submitted.clone(), QueuedRequest(submitted))
    }

    /// Has the drive's thread skip the request, which gets no reply then. `false` if that thread
    /// has begun it.
    pub(crate) fn withdraw(&self) -> bool {
        self.take().is_some()
    }

    /// Whether the drive's thread has still to do the request, or to skip it.
    pub(crate) fn is_queued(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn take(&self) -> Option<Taker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for SubmittedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmittedRequest").finish_non_exhaustive()
    }
}

impl QueuedRequest {
    /// Whether it was not withdrawn.
    pub(super) fn is_wanted(&self) -> bool {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Begins the request, which cannot be withdrawn from then on. `None` if it was.
    pub(super) fn begin(&self) -> Option<BegunRequest> {
        self.0.take().map(|taker| BegunRequest(Some(taker)))
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        // The drive's thread has ended before it came to the request.
        drop(self.begin());
    }
}

impl BegunRequest {
    /// Replies to it.
    pub(super) fn reply(mut self, reply: Result<DriveReply, Refusal>) {
        if let Some(taker) = self.0.take() {
            taker(reply);
        }
    }
}

impl Drop for BegunRequest {
    fn drop(&mut self) {
        if let Some(taker) = self.0.take() {
            // The drive's thread has ended, and the target is about to.
            taker(Err(Refusal::transient(Status::INTERNAL_ERROR)));
        }
    }
}
