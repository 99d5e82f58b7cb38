//! A device that takes as long as a solid state drive: so many requests at a time, each for a time
//! that depends on its kind and length. The data are in memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use ebof_backend::{Device, Geometry, Io, Memory, OpenError, Operation, Remote, Request, Spec, Submitted};
use ebof_server::Storage;

/// Requests that it works on at a time.
const PARALLEL: usize = 8;

/// What a request takes, and what each page beyond the first one adds.
const READ: Duration = Duration::from_micros(100);
const WRITE: Duration = Duration::from_micros(300);
const PAGE: Duration = Duration::from_micros(20);

#[derive(Debug)]
pub(crate) struct Simulated {
    memory: Arc<Memory>,
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// When each of those that work is done.
    workers: BinaryHeap<Reverse<Instant>>,
    under_way: BinaryHeap<UnderWay>,
    serial: u64,
}

#[derive(Debug)]
struct UnderWay {
    due: Instant,
    serial: u64,
    request: Request,
    remote: Remote,
}

impl PartialEq for UnderWay {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}

impl Eq for UnderWay {}

impl PartialOrd for UnderWay {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UnderWay {
    /// The earliest is the greatest: a heap gives that.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.due, other.serial).cmp(&(self.due, self.serial))
    }
}

impl Simulated {
    fn new(bytes: u64) -> Self {
        let memory = Arc::new(Memory::new(bytes, 512, false));
        let queue = Arc::<Queue>::default();
        let of_thread = (Arc::clone(&memory), Arc::clone(&queue));
        std::thread::spawn(move || serve(&of_thread.0, &of_thread.1));
        Self { memory, queue }
    }
}

impl Device for Simulated {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        let (takes, length) = match &request.operation {
            Operation::Read { len, .. } => (READ, *len),
            Operation::Write { len, .. } => (WRITE, *len),
            Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => {
                return self.memory.submit(io, request);
            }
        };
        let Some(remote) = io.remote() else { return Submitted::Busy(request) };
        let takes = takes + PAGE * u32::try_from(length.div_ceil(4096).saturating_sub(1)).unwrap();
        let mut state = self.queue.state.lock().unwrap();
        let now = Instant::now();
        let free = if state.workers.len() < PARALLEL { now } else { state.workers.pop().unwrap().0.max(now) };
        let due = free + takes;
        state.workers.push(Reverse(due));
        state.serial += 1;
        let serial = state.serial;
        state.under_way.push(UnderWay { due, serial, request, remote });
        drop(state);
        self.queue.changed.notify_one();
        Submitted::Pending
    }

    fn describe(&self) -> String {
        "a simulated device".to_owned()
    }
}

/// Completes what is due.
fn serve(memory: &Memory, queue: &Queue) {
    let mut io = Io::new(4).unwrap();
    let mut due = Vec::new();
    loop {
        let mut state = queue.state.lock().unwrap();
        let now = Instant::now();
        while state.under_way.peek().is_some_and(|first| first.due <= now) {
            due.extend(state.under_way.pop());
        }
        if due.is_empty() {
            let wait = state.under_way.peek().map_or(Duration::from_millis(100), |first| first.due - now);
            drop(queue.changed.wait_timeout(state, wait).unwrap());
            continue;
        }
        drop(state);
        for UnderWay { request, remote, .. } in due.drain(..) {
            let Submitted::Done(completion) = memory.submit(&mut io, request) else { unreachable!("it is memory") };
            remote.deliver(completion);
        }
    }
}

/// Devices that are made when they are opened.
pub(crate) struct Made {
    pub(crate) simulated: bool,
    pub(crate) bytes: u64,
}

impl Storage for Made {
    fn open(&self, _spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        if self.simulated {
            Ok(Arc::new(Simulated::new(self.bytes)))
        } else {
            Ok(Arc::new(Memory::new(self.bytes, 512, false)))
        }
    }

    fn is_missing(&self, _path: &Path) -> bool {
        true
    }

    fn remove(&self, _path: &Path) {}
}
