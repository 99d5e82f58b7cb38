//! What the target has to do next with a command.

use alloc::boxed::Box;

use ebof_nvme::{Cid, Cqe, Status};

use crate::task::Task;
use crate::task::executing::Executing;

/// What becomes of a command that a queue has taken or gone on with.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Send this completion.
    Complete(Cqe),
    /// Send this completion, then close the connection (Disconnect).
    Disconnect(Cqe),
    /// Nothing now: an Asynchronous Event Request that waits for its event (`Queue::poll_event`).
    Held,
    /// The first half of this identifier has no second: complete it with this status, then go on
    /// with the other step.
    Unpaired(Cid, Status, Box<Step>),
    /// An Asynchronous Event Request has ended without a completion, to make room for this command:
    /// the host has its entry of the Submission Queue back. Go on with the other step.
    Withdrawn(Box<Step>),
    /// Carry out the task, and give the ticket back to the queue.
    Execute(Executing, Task),
}
