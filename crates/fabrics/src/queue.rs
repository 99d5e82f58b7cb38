//! One queue of a controller: takes commands in, gives completions out, and knows what is outstanding.

use ebof_nvme::{Cid, Cqe, Nqn, QueueId, Sqe, Status};

use crate::registry::Notice;
use crate::step::{Executing, Step};

/// The queue of one connection, owned by the thread that serves it.
#[derive(Debug)]
pub struct Queue {}

impl Queue {
    /// The queue of a new connection: until Connect has succeeded every other command is a Command Sequence Error.
    #[must_use]
    pub fn new() -> Self {
        Self {}
    }

    /// Takes a command. Never fails: what cannot be executed is completed with the status that says so.
    pub fn submit(&mut self, sqe: &Sqe, now_ms: u64) -> Step {
        let _ = (sqe, now_ms);
        todo!()
    }

    /// Goes on with a command whose parameter data ([`Step::Receive`]) has come.
    pub fn resume(&mut self, executing: Executing, data: &[u8], now_ms: u64) -> Step {
        let _ = (executing, data, now_ms);
        todo!()
    }

    /// Completes a command without a result.
    #[must_use]
    pub fn complete(&mut self, executing: Executing, status: Status) -> Cqe {
        self.complete_with(executing, status, 0)
    }

    /// Completes a command; `result` is dwords 0 and 1 of the completion.
    #[must_use]
    pub fn complete_with(&mut self, executing: Executing, status: Status, result: u64) -> Cqe {
        let _ = (executing, status, result);
        todo!()
    }

    /// Forgets a command without a completion, because the connection ends.
    pub fn abandon(&mut self, executing: Executing) {
        let _ = executing;
        todo!()
    }

    /// Takes a notice from the registry; the completion, if there is one, is an event. Ask
    /// [`poll_event`](Self::poll_event) for more.
    #[must_use]
    pub fn notify(&mut self, notice: Notice, now_ms: u64) -> Option<Cqe> {
        let _ = (notice, now_ms);
        todo!()
    }

    /// The next completion that no command's own step brings: an event, or an aborted Asynchronous Event Request. To be
    /// called until `None` after every turn in which the Admin Queue took or completed a command or a notice.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Cqe> {
        todo!()
    }

    /// Whether the command `cid` is outstanding.
    #[must_use]
    pub fn is_outstanding(&self, cid: Cid) -> bool {
        let _ = cid;
        todo!()
    }

    /// Commands taken and not completed, held Asynchronous Event Requests included: at most `entries`.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        todo!()
    }

    /// Tickets given out and not given back.
    #[must_use]
    pub fn executing(&self) -> usize {
        todo!()
    }

    /// Bytes of [`Step::Reply`] that are not completed yet.
    #[must_use]
    pub fn reply_bytes(&self) -> usize {
        todo!()
    }

    /// Entries of the queue; before Connect, as many commands as may come: one.
    #[must_use]
    pub fn entries(&self) -> usize {
        todo!()
    }

    /// Whether the host may submit without regard to SQHD.
    #[must_use]
    pub fn sq_flow_disabled(&self) -> bool {
        todo!()
    }

    /// Whether Connect has succeeded.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        todo!()
    }

    /// Whether the association has ended: close the connection.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        todo!()
    }

    /// Which queue it is; `None` before Connect.
    #[must_use]
    pub fn id(&self) -> Option<QueueId> {
        todo!()
    }

    /// Whether it is an Admin Queue.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        todo!()
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> Option<&Nqn> {
        todo!()
    }

    /// The subsystem.
    #[must_use]
    pub fn subsystem(&self) -> Option<&Nqn> {
        todo!()
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}
