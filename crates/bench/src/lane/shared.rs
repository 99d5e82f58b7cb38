//! One thread's access to shared queues: each operation uses the queue of its class and processor,
//! as for a block device.

use std::convert::Infallible;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use ebof_idle::{Idle, IdleStep};
use ebof_initiator::queues::Pending;
use ebof_initiator::{Completion, Data, Queues};
use ebof_nvme::Sqe;

use crate::block::Block;

/// Operations of one thread on shared queues. At depth 1 they are blocking calls, otherwise futures
/// that this thread polls.
pub(crate) struct SharedLane {
    queues: Queues<Block>,
    idle: Idle,
    began: Instant,
    depth: usize,
    /// At depth 1: the command that the next wait runs.
    next: Option<(u64, Sqe, Data<Block>)>,
    /// By slot.
    pending: Vec<Option<Pending<Block>>>,
    wakers: Vec<Waker>,
    woken: Arc<Woken>,
    /// Slots taken from `woken`, which are polled next.
    batch: Vec<usize>,
    over: Vec<(u64, Completion<Block>)>,
    /// All operations until now.
    completed: u64,
    /// A command of each kind that was started; selects the queues to poll.
    kinds: [Option<Sqe>; 2],
}

/// The slots whose futures were woken, and the thread that polls them.
struct Woken {
    slots: Mutex<Vec<usize>>,
    thread: Thread,
}

struct SlotWaker {
    woken: Arc<Woken>,
    slot: usize,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.slots.lock().unwrap_or_else(PoisonError::into_inner).push(self.slot);
        self.woken.thread.unpark();
    }
}

impl SharedLane {
    /// Must be called in the thread that will use it.
    pub(crate) fn new(queues: Queues<Block>, depth: u16) -> Self {
        let depth = usize::from(depth);
        let woken =
            Arc::new(Woken { slots: Mutex::new(Vec::with_capacity(2 * depth)), thread: std::thread::current() });
        let wakers = (0..depth).map(|slot| Waker::from(Arc::new(SlotWaker { woken: Arc::clone(&woken), slot })));
        Self {
            idle: Idle::new(u64::from(queues.controller().options().spin_us)),
            began: Instant::now(),
            queues,
            depth,
            next: None,
            pending: (0..depth).map(|_| None).collect(),
            wakers: wakers.collect(),
            woken,
            batch: Vec::with_capacity(2 * depth),
            over: Vec::with_capacity(depth),
            completed: 0,
            kinds: [None; 2],
        }
    }

    /// Starts an operation; at depth 1 the next wait starts it.
    pub(crate) fn submit(&mut self, slot: u64, write: bool, sqe: Sqe, data: Data<Block>) {
        if self.depth == 1 {
            self.next = Some((slot, sqe, data));
            return;
        }
        self.kinds[usize::from(write)] = Some(sqe);
        let index = usize::try_from(slot).unwrap_or(0);
        self.pending[index] = Some(self.queues.submit(sqe, data));
        // A future registers its waker only when it is polled.
        self.poll(index);
    }

    /// Waits for the next completed operation; `None` at the deadline.
    pub(crate) fn wait(&mut self, deadline: Instant) -> Option<(u64, Completion<Block>)> {
        if let Some((slot, sqe, data)) = self.next.take() {
            return Some((slot, self.queues.execute(sqe, data)));
        }
        loop {
            if let Some(over) = self.next_ready() {
                self.idle.found(self.now_us());
                return Some(over);
            }
            let now = Instant::now();
            if now >= deadline || self.pending.iter().all(Option::is_none) {
                self.idle.stop();
                return None;
            }
            let now_us = self.now_us();
            self.idle.set_work(self.completed);
            match self.idle.step(now_us) {
                IdleStep::GiveWay => {
                    for sqe in self.kinds.iter().flatten() {
                        self.queues.poll(sqe);
                    }
                    self.idle.give_way(now_us);
                }
                IdleStep::Sleep(bound_us) => {
                    self.park(deadline - now, bound_us);
                }
            }
        }
    }

    fn park(&mut self, time: Duration, bound_us: Option<u64>) {
        let began = self.began;
        let woken = &self.woken;
        let Ok(_) = self.idle.sleep::<Infallible>(
            bound_us,
            || ebof_idle::micros_since(began),
            |bound| {
                std::thread::park_timeout(bound.map_or(time, |bound| time.min(bound)));
                Ok(!woken.slots.lock().unwrap_or_else(PoisonError::into_inner).is_empty())
            },
        );
    }

    fn now_us(&self) -> u64 {
        ebof_idle::micros_since(self.began)
    }

    /// The next completed operation, without waiting.
    pub(crate) fn next_ready(&mut self) -> Option<(u64, Completion<Block>)> {
        if self.over.is_empty() {
            std::mem::swap(&mut self.batch, &mut *self.woken.slots.lock().unwrap_or_else(PoisonError::into_inner));
            while let Some(index) = self.batch.pop() {
                self.poll(index);
            }
        }
        self.over.pop()
    }

    fn poll(&mut self, index: usize) {
        let Some(pending) = &mut self.pending[index] else { return };
        let mut context = Context::from_waker(&self.wakers[index]);
        if let Poll::Ready(completion) = Pin::new(pending).poll(&mut context) {
            self.pending[index] = None;
            self.completed += 1;
            self.over.push((index as u64, completion));
        }
    }
}
