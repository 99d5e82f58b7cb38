//! What a queue is after Connect, and who takes its commands.

use alloc::boxed::Box;
use alloc::sync::Arc;

use ebof_nvme::Sqe;

use super::gate;
use crate::admin;
use crate::association::Association;
use crate::controller::Controller;
use crate::model::Subsystem;
use crate::task::outcome::Outcome;

/// What a queue is.
#[derive(Debug)]
pub(crate) enum Role {
    /// Connect has succeeded, and the gate is shut: what the queue is once it opens.
    Gated(Box<Role>),
    Admin(Box<Controller>),
    Io(Arc<Subsystem>),
}

impl Role {
    /// Takes a command of an Admin Queue, or at a gate that is shut.
    #[inline(never)]
    pub(super) fn submit(&mut self, association: &Association, sqe: &Sqe) -> Outcome {
        match self {
            Self::Admin(controller) => admin::submit(controller, sqe),
            Self::Gated(behind) => gate::submit(behind, association, sqe),
            Self::Io(_) => unreachable!("`Queue::submit_one` takes the commands of I/O queues"),
        }
    }
}
