//! A request to the drive: what is asked, and the answer that is kept until the command may
//! complete.

use ebof_drive::{Answer, Request};

/// A request to the drive of the queue's subsystem.
///
/// Reservation Acquire, Preempt and Abort: it completes when the commands that are preempted cannot
/// reach the medium any more. The answer is kept until their queues have said so.
#[derive(Debug, PartialEq, Eq)]
pub struct DriveTask {
    request: Option<Request>,
    /// Queues whose commands are preempted, and that have not said yet that none is left.
    preempting: usize,
    answer: Option<Answer>,
}

impl DriveTask {
    pub(crate) fn new(request: Request) -> Self {
        Self { request: Some(request), preempting: 0, answer: None }
    }

    /// The request, for the drive; `None` if it was taken before.
    #[must_use]
    pub fn take_request(&mut self) -> Option<Request> {
        self.request.take()
    }

    /// Keeps the drive's answer until [`preempted`](Self::preempted) was called for so many queues,
    /// at least one.
    pub fn await_preempted(&mut self, answer: Answer, queues: usize) {
        assert!(queues > 0, "the answer would be kept forever");
        self.preempting = queues;
        self.answer = Some(answer);
    }

    /// One of the queues has nothing left. Returns the answer with the last one.
    #[must_use]
    pub fn preempted(&mut self) -> Option<Answer> {
        self.preempting = self.preempting.checked_sub(1).expect("each queue that was asked answers once");
        self.answer.take_if(|_| self.preempting == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_kept_until_the_last_queue_has_nothing_left() {
        let mut task = DriveTask::new(Request::Reset);
        assert_eq!(task.take_request(), Some(Request::Reset));
        assert_eq!(task.take_request(), None);
        task.await_preempted(Answer::Done(7), 2);
        assert_eq!(task.preempted(), None);
        assert_eq!(task.preempted(), Some(Answer::Done(7)));
    }
}
