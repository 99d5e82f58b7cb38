//! The two ends of a connection, and its end.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::pipe::Pipe;
use crate::{Attachment, Bell, Capsule, CompletionMessage};

/// The state that both ends share.
#[derive(Debug)]
struct Shared {
    commands: Pipe<Capsule>,
    completions: Pipe<CompletionMessage>,
    host_gone: AtomicBool,
    target_gone: AtomicBool,
}

/// The host's end. Dropping it ends the connection; the target still receives the commands that
/// were sent.
#[derive(Debug)]
pub struct HostEnd {
    shared: Arc<Shared>,
    entries: usize,
    /// Commands whose completions were not polled yet.
    outstanding: usize,
    /// Received completions that were not polled yet.
    arrived: VecDeque<CompletionMessage>,
}

/// The target's end. Dropping it ends the connection; the host still receives the completions that
/// were sent.
#[derive(Debug)]
pub struct TargetEnd {
    shared: Arc<Shared>,
    entries: usize,
    attachment: Option<Attachment>,
}

/// Breaks a connection from outside, for tests and simulations.
#[derive(Clone, Debug)]
pub struct Breaker(Weak<Shared>);

/// The other end has ended, and everything that it had sent was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// Why a command was refused, with the command.
#[derive(Clone, Debug)]
pub enum SubmitError {
    /// The queue is full: [`HostEnd::poll`] makes room.
    Full(Capsule),
    /// The target has ended the connection.
    Closed(Capsule),
}

/// Both ends of a connection with room for `entries` commands, at least one.
#[must_use]
pub fn pair(entries: usize) -> (HostEnd, TargetEnd) {
    let shared = Arc::new(Shared {
        commands: Pipe::new(),
        completions: Pipe::new(),
        host_gone: AtomicBool::new(false),
        target_gone: AtomicBool::new(false),
    });
    let entries = entries.max(1);
    let host = HostEnd { shared: Arc::clone(&shared), entries, outstanding: 0, arrived: VecDeque::new() };
    (host, TargetEnd { shared, entries, attachment: None })
}

impl HostEnd {
    /// From now on `bell` rings when completions arrive, or the target ends the connection. It does
    /// not ring for earlier ones.
    pub fn set_bell(&self, bell: Bell) {
        self.shared.completions.set_bell(bell);
    }

    /// Sends a command. The data are shared until the target has copied what it needs, or abandoned
    /// the command.
    ///
    /// # Errors
    /// The queue is full, or the target has ended the connection. The command is returned.
    pub fn submit(&mut self, capsule: Capsule) -> Result<(), SubmitError> {
        if self.shared.target_gone.load(Ordering::Acquire) {
            return Err(SubmitError::Closed(capsule));
        }
        if self.outstanding >= self.entries {
            return Err(SubmitError::Full(capsule));
        }
        self.outstanding += 1;
        self.shared.commands.put([capsule]);
        Ok(())
    }

    /// The next completion; `None` if there is none yet.
    ///
    /// # Errors
    /// There will be no more.
    pub fn poll(&mut self) -> Result<Option<CompletionMessage>, Closed> {
        if self.arrived.is_empty() {
            // Checked first: what was sent before the end has then arrived.
            let gone = self.shared.target_gone.load(Ordering::Acquire);
            self.shared.completions.take(&mut self.arrived);
            if gone && self.arrived.is_empty() {
                return Err(Closed);
            }
        }
        let completion = self.arrived.pop_front();
        if completion.is_some() {
            self.outstanding = self.outstanding.saturating_sub(1);
        }
        Ok(completion)
    }

    /// The most outstanding commands.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Commands whose completions were not polled yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// A handle that breaks this connection from outside.
    #[must_use]
    pub fn breaker(&self) -> Breaker {
        Breaker(Arc::downgrade(&self.shared))
    }
}

impl Drop for HostEnd {
    fn drop(&mut self) {
        self.shared.host_gone.store(true, Ordering::Release);
        self.shared.commands.ring();
    }
}

impl TargetEnd {
    /// From now on `bell` rings when commands arrive, or the host ends the connection. It does not
    /// ring for earlier ones.
    pub fn set_bell(&self, bell: Bell) {
        self.shared.commands.set_bell(bell);
    }

    /// The attachment, if the host is attached without a Connect.
    #[must_use]
    pub fn attachment(&self) -> Option<&Attachment> {
        self.attachment.as_ref()
    }

    pub(crate) fn set_attachment(&mut self, attachment: Option<Attachment>) {
        self.attachment = attachment;
    }

    /// Appends all received commands to `into`.
    ///
    /// # Errors
    /// There are none, and there will be no more.
    pub fn take(&self, into: &mut VecDeque<Capsule>) -> Result<(), Closed> {
        let gone = self.host_is_gone();
        let before = into.len();
        self.shared.commands.take(into);
        if gone && into.len() == before { Err(Closed) } else { Ok(()) }
    }

    /// Sends completions, in order. The host has room for them: it counts commands until it has
    /// polled their completions.
    pub fn complete(&self, completions: impl IntoIterator<Item = CompletionMessage>) {
        if !self.host_is_gone() {
            self.shared.completions.put(completions);
        }
    }

    /// The most outstanding commands.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Whether the host has ended the connection, even if earlier commands are still unread.
    #[must_use]
    pub fn host_is_gone(&self) -> bool {
        self.shared.host_gone.load(Ordering::Acquire)
    }

    /// A handle that breaks this connection from outside.
    #[must_use]
    pub fn breaker(&self) -> Breaker {
        Breaker(Arc::downgrade(&self.shared))
    }
}

impl Drop for TargetEnd {
    fn drop(&mut self) {
        self.shared.target_gone.store(true, Ordering::Release);
        self.shared.completions.ring();
    }
}

impl Breaker {
    /// Ends the connection for both ends. Unread messages are lost. Returns whether the connection
    /// still existed.
    pub fn sever(&self) -> bool {
        let Some(shared) = self.0.upgrade() else { return false };
        shared.host_gone.store(true, Ordering::Release);
        shared.target_gone.store(true, Ordering::Release);
        shared.commands.clear();
        shared.completions.clear();
        shared.commands.ring();
        shared.completions.ring();
        true
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other end of the connection is gone")
    }
}

impl std::error::Error for Closed {}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("the queue is full"),
            Self::Closed(_) => Closed.fmt(f),
        }
    }
}

impl std::error::Error for SubmitError {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use ebof_nvme::{Cid, Cqe, Sqe, Status};

    use super::*;
    use crate::{ConnectError, Port};

    fn command() -> Capsule {
        Capsule { sqe: Sqe::default(), data: Some(Arc::from([7; 512])) }
    }

    fn completion(cid: u16) -> CompletionMessage {
        CompletionMessage { cqe: Cqe::new(Cid(cid), Status::SUCCESS), data: vec![9; 8] }
    }

    fn counter() -> (Arc<AtomicUsize>, Bell) {
        let rung = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&rung);
        (rung, Arc::new(move || _ = counted.fetch_add(1, Ordering::Relaxed)))
    }

    #[test]
    fn commands_and_their_data_arrive_and_completions_come_back() {
        let (mut host, target) = pair(4);
        host.submit(command()).unwrap();
        host.submit(command()).unwrap();
        let mut taken = VecDeque::new();
        target.take(&mut taken).unwrap();
        assert_eq!((taken.len(), taken[0].data.as_deref()), (2, Some(&[7; 512][..])));
        target.take(&mut taken).unwrap();
        assert_eq!(taken.len(), 2);
        target.complete([completion(1), completion(2)]);
        let got: Vec<u16> =
            std::iter::from_fn(|| host.poll().unwrap()).map(|completion| completion.cqe.cid().0).collect();
        assert_eq!((got, host.outstanding()), (vec![1, 2], 0));
    }

    #[test]
    fn a_queue_holds_no_more_commands_than_its_size() {
        let (mut host, target) = pair(2);
        host.submit(command()).unwrap();
        host.submit(command()).unwrap();
        assert!(matches!(host.submit(command()), Err(SubmitError::Full(_))));
        target.take(&mut VecDeque::new()).unwrap();
        target.complete([completion(1)]);
        assert!(matches!(host.submit(command()), Err(SubmitError::Full(_))), "its completion was not taken yet");
        host.poll().unwrap().unwrap();
        host.submit(command()).unwrap();
    }

    #[test]
    fn a_bell_rings_once_until_the_queue_is_read() {
        let (mut host, target) = pair(8);
        let (rung, bell) = counter();
        target.set_bell(bell);
        host.submit(command()).unwrap();
        host.submit(command()).unwrap();
        assert_eq!(rung.load(Ordering::Relaxed), 1);
        target.take(&mut VecDeque::new()).unwrap();
        host.submit(command()).unwrap();
        drop(host);
        assert_eq!(rung.load(Ordering::Relaxed), 3, "the end is rung for, too");
    }

    #[test]
    fn messages_sent_before_the_end_still_arrive() {
        let (mut host, target) = pair(2);
        host.submit(command()).unwrap();
        target.complete([completion(1)]);
        let (rung, bell) = counter();
        host.set_bell(bell);
        drop(target);
        assert_eq!(rung.load(Ordering::Relaxed), 1);
        assert!(host.poll().unwrap().is_some());
        assert_eq!(host.poll().unwrap_err(), Closed);
        assert!(matches!(host.submit(command()), Err(SubmitError::Closed(_))));

        let (mut host, target) = pair(2);
        host.submit(command()).unwrap();
        drop(host);
        let mut taken = VecDeque::new();
        target.take(&mut taken).unwrap();
        assert!(target.host_is_gone() && taken.len() == 1);
        assert_eq!(target.take(&mut taken), Err(Closed));
    }

    #[test]
    fn a_broken_connection_loses_unread_messages() {
        let (mut host, target) = pair(2);
        let breaker = host.breaker();
        host.submit(command()).unwrap();
        target.complete([completion(1)]);
        assert!(breaker.sever());
        assert_eq!(host.poll().unwrap_err(), Closed);
        assert_eq!(target.take(&mut VecDeque::new()), Err(Closed));
        drop((host, target));
        assert!(!breaker.sever());
    }

    #[test]
    fn a_port_connects_both_ends_or_reports_why_not() {
        let ends = Arc::new(std::sync::Mutex::new(Vec::new()));
        let accepted = Arc::clone(&ends);
        let port = Port::new(move |end| {
            let mut ends = accepted.lock().unwrap();
            if ends.len() == 1 {
                return Err(ConnectError::TooMany);
            }
            ends.push(end);
            Ok(())
        });
        let (rung, bell) = counter();
        let mut host = port.connect(3, Arc::clone(&bell)).unwrap();
        assert_eq!(port.connect(3, bell).unwrap_err(), ConnectError::TooMany);
        host.submit(command()).unwrap();
        let target = ends.lock().unwrap().pop().unwrap();
        assert_eq!(target.entries(), 3);
        target.complete([completion(1)]);
        assert_eq!(rung.load(Ordering::Relaxed), 1);
        assert!(host.poll().unwrap().is_some());
    }
}
