//! What both ends of a measurement do with their queue pair: wait for the connection, and take
//! completions.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ebof_verbs::{Event, Handshake, QueuePair, WorkCompletion, WorkStatus};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Error, Operation, Refusal};

/// How long the other end may be silent.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Polls of the completion queue before events and time are checked.
const LOOKS: u32 = 256;
/// How long to sleep at most before looking again.
const NAP: Duration = Duration::from_millis(10);

/// One end of a connection.
pub(super) struct PairEnd {
    pub(super) pair: QueuePair,
    operation: Operation,
    /// When the last completion came.
    heard: Instant,
}

impl PairEnd {
    pub(super) fn new(pair: QueuePair, operation: Operation) -> Self {
        Self { pair, operation, heard: Instant::now() }
    }

    /// Waits until the connection is made. Returns the private data of a server.
    pub(super) fn established(&mut self) -> Result<Vec<u8>, Error> {
        let deadline = Instant::now() + SILENCE_MAX;
        while Instant::now() < deadline {
            match self.pair.poll_event()? {
                Some(Event::Established { private_data, .. }) => return Ok(private_data),
                Some(event) => return Err(ended(&event)),
                None => nap(self.pair.descriptor()),
            }
        }
        Err(Error::NoAnswer)
    }

    /// The next completion, polled for until there is one.
    pub(super) fn next(&mut self) -> Result<WorkCompletion, Error> {
        loop {
            for look in 1..=LOOKS {
                if let Some(completion) = self.take()? {
                    self.heard = Instant::now();
                    return Ok(completion);
                }
                if look.is_multiple_of(16) {
                    // The adapter may be a thread of the kernel.
                    std::thread::yield_now();
                }
            }
            self.check_events()?;
        }
    }

    /// A completion, if there is one.
    pub(super) fn take(&mut self) -> Result<Option<WorkCompletion>, Error> {
        match self.pair.poll()? {
            Some(WorkCompletion::Failed { status, .. }) => {
                // The end of the connection is the reason, where it is one, and may be seen first.
                self.check_events()?;
                Err(match status {
                    WorkStatus::Flushed => Error::Closed,
                    status => Error::Work { operation: self.operation.name(), status },
                })
            }
            completion => Ok(completion),
        }
    }

    /// Waits until the other end has closed the connection, which it uses without this end.
    pub(super) fn closed(&mut self) -> Result<(), Error> {
        while self.heard.elapsed() < SILENCE_MAX + SILENCE_MAX {
            match self.check_events() {
                Ok(()) => nap(self.pair.descriptor()),
                Err(Error::Closed) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoAnswer)
    }

    fn check_events(&mut self) -> Result<(), Error> {
        match self.pair.poll_event()? {
            Some(Event::Established { .. } | Event::AddressChanged) => Ok(()),
            Some(event) => Err(ended(&event)),
            None if self.heard.elapsed() > SILENCE_MAX + SILENCE_MAX => Err(Error::NoAnswer),
            None => Ok(()),
        }
    }
}

/// Whatever is lost is sent again, and messages wait for a slot.
pub(super) fn patient() -> Handshake<'static> {
    Handshake { retry_count: 7, rnr_retry_count: 7, ..Handshake::default() }
}

/// What an event means that ends the connection.
fn ended(event: &Event) -> Error {
    match event {
        Event::Rejected { reason: Event::NOBODY_LISTENS, .. } => Error::Rejected(Refusal::NobodyListens),
        Event::Rejected { reason: Event::BY_CONSUMER, private_data } => Error::Rejected(Refusal::decode(private_data)),
        Event::Rejected { reason, .. } if -*reason == rustix::io::Errno::CONNREFUSED.raw_os_error() => {
            // iWARP: refused by TCP, so nobody is there to refuse it by name.
            Error::Rejected(Refusal::NobodyListens)
        }
        Event::Rejected { reason, .. } => Error::Rejected(Refusal::Other(*reason)),
        Event::Unreachable(_) => Error::NoAnswer,
        Event::DeviceRemoved => Error::Verbs(ebof_verbs::Error::DeviceRemoved),
        Event::Established { .. } | Event::Disconnected | Event::AddressChanged | Event::Fatal(_) => Error::Closed,
    }
}

/// Sleeps until there may be an event, for a short time at most.
pub(super) fn nap(descriptor: Option<BorrowedFd<'_>>) {
    let Some(descriptor) = descriptor else {
        return std::thread::sleep(NAP / 10);
    };
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(NAP.subsec_nanos()) };
    // Events are checked next in any case.
    let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&time));
}
