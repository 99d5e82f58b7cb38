//! A reactor's requests at devices: those under way, and those that there was no room for.
//!
//! What a completion means is the command's matter (`server/commands.rs`).

use std::collections::VecDeque;
use std::sync::Arc;

use ebof_backend::{BATCH_MAX, Completion, Device, Io, Request, Submitted};

use crate::drives::device::DeviceTable;

/// The devices, and the requests at them.
pub(super) struct DeviceRequests {
    pub(super) io: Io,
    pub(super) table: Arc<DeviceTable>,
    /// What the `Io` had no room for, in its order.
    pub(super) retry: VecDeque<(Arc<dyn Device>, Request)>,
    /// Completions that were taken in this turn.
    taken: usize,
    /// Requests wait because the kernel took none.
    kick_failed: bool,
}

/// What has become of a request that was submitted again.
#[derive(Debug)]
pub(super) enum Retried {
    /// There is none, or still no room for it.
    Nothing,
    Pending,
    Done(Completion),
}

impl DeviceRequests {
    pub(super) fn new(io: Io, table: Arc<DeviceTable>) -> Self {
        Self { io, table, retry: VecDeque::new(), taken: 0, kick_failed: false }
    }

    pub(super) fn start_turn(&mut self) {
        self.taken = 0;
    }

    /// The next completion, up to as many as a turn takes.
    #[inline]
    pub(super) fn poll(&mut self) -> Option<Completion> {
        if self.taken == BATCH_MAX {
            return None;
        }
        let completion = self.io.poll()?;
        self.taken += 1;
        Some(completion)
    }

    /// Whether there may be more completions than this turn has taken.
    pub(super) fn has_more(&self) -> bool {
        self.taken == BATCH_MAX
    }

    /// How many requests wait for room.
    pub(super) fn waiting(&self) -> usize {
        self.retry.len()
    }

    /// Submits the first of them again.
    pub(super) fn retry_first(&mut self) -> Retried {
        let Some((device, request)) = self.retry.pop_front() else { return Retried::Nothing };
        match device.submit(&mut self.io, request) {
            Submitted::Pending => Retried::Pending,
            Submitted::Done(completion) => Retried::Done(completion),
            Submitted::Busy(request) => {
                self.retry.push_front((device, request));
                Retried::Nothing
            }
        }
    }

    /// Starts what was submitted. What cannot be started is tried again with the next call.
    ///
    /// # Errors
    /// The kernel takes no requests.
    pub(super) fn kick(&mut self) -> Result<(), ebof_backend::Error> {
        let kicked = self.io.kick();
        self.kick_failed = kicked.is_err();
        kicked
    }

    /// Whether requests wait for the kernel, which nothing tells when it takes them.
    pub(super) fn kick_failed(&self) -> bool {
        self.kick_failed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use ebof_backend::{Geometry, Memory, Operation};

    use super::*;

    /// A device that has no room for as many submissions.
    #[derive(Debug)]
    struct Full {
        memory: Memory,
        refuses: AtomicU64,
    }

    impl Device for Full {
        fn geometry(&self) -> Geometry {
            self.memory.geometry()
        }

        fn submit(&self, io: &mut Io, request: Request) -> Submitted {
            let refuses = self.refuses.load(Relaxed);
            if refuses == 0 {
                return self.memory.submit(io, request);
            }
            self.refuses.store(refuses - 1, Relaxed);
            Submitted::Busy(request)
        }

        fn describe(&self) -> String {
            "full".to_owned()
        }
    }

    #[test]
    fn requests_without_room_are_tried_again_in_their_order() {
        let io = crate::environment::Environment::default().io.make(8).unwrap();
        let mut devices = DeviceRequests::new(io, Arc::new(DeviceTable::new([])));
        let full = Full { memory: Memory::new(1 << 20, 512, false), refuses: AtomicU64::new(2) };
        let device: Arc<dyn Device> = Arc::new(full);
        for tag in [5, 6] {
            devices.retry.push_back((Arc::clone(&device), Request::new(tag, Operation::Flush)));
        }
        for _ in 0..2 {
            assert!(matches!(devices.retry_first(), Retried::Nothing));
            assert_eq!(devices.waiting(), 2);
        }
        for tag in [5, 6] {
            let Retried::Done(completion) = devices.retry_first() else { panic!("memory flushes at once") };
            assert_eq!((completion.tag, completion.result.is_ok()), (tag, true));
        }
        assert!(matches!(devices.retry_first(), Retried::Nothing) && devices.waiting() == 0);
        assert!(devices.kick().is_ok() && !devices.kick_failed() && !devices.has_more());
    }
}
