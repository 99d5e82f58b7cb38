//! Devices for drives: one that records every write and flush, and fails on demand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use ebof_backend::{
    Action, Buffer, Class, Completion, Device, Error, Geometry, Io, Memory, Operation, Request, Submitted,
};
use ebof_medium::{BlockFormat, Medium, Opened, Options, Store, VolumeId, medium_bytes};

/// The offset of the marks.
pub(crate) const MARKS: std::ops::Range<u64> = 1016 << 10..1 << 20;

/// What happened on the device, in order.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Write(u64, Vec<u8>),
    /// One that is durable when it completes.
    Durable(u64, Vec<u8>),
    Zero(u64, u64),
    Flush,
}

/// A device in memory that records events.
#[derive(Debug)]
pub(crate) struct Recorder {
    memory: Memory,
    pub(crate) events: Mutex<Vec<Event>>,
    /// Writes from this one on fail; `u64::MAX` for none.
    pub(crate) fail_from: AtomicU64,
    faults: Mutex<Faults>,
    writes: AtomicU64,
}

/// The next failures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// The number of writes and flushes that succeed.
    pub(crate) after: u32,
    /// The number that fail after that.
    pub(crate) count: u32,
    /// Whether failed writes are executed all the same.
    pub(crate) done: bool,
}

impl Recorder {
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            memory: Memory::new(bytes, 512, false),
            events: Mutex::default(),
            fail_from: AtomicU64::new(u64::MAX),
            faults: Mutex::default(),
            writes: AtomicU64::new(0),
        }
    }

    /// A device for a drive of `capacity`, on which these events have happened.
    pub(crate) fn with(capacity: u64, events: &[Event]) -> Self {
        let new = Self::new(medium_bytes(capacity).expect("a legal size"));
        let mut io = Io::new(1).expect("an engine");
        for event in events {
            let operation = match event {
                Event::Write(offset, bytes) | Event::Durable(offset, bytes) => {
                    let mut buffer = Buffer::zeroed(bytes.len());
                    buffer.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
                    Operation::Write { offset: *offset, len: bytes.len(), data: buffer.into(), fua: false }
                }
                Event::Zero(offset, len) => {
                    Operation::WriteZeroes { offset: *offset, len: *len, deallocate: true, fua: false }
                }
                Event::Flush => Operation::Flush,
            };
            let Submitted::Done(done) = new.memory.submit(&mut io, Request::new(0, operation)) else { continue };
            done.result.expect("memory does not fail");
        }
        new
    }

    /// From the `next`th write on they fail.
    pub(crate) fn fail_after(&self, next: u64) {
        self.fail_from.store(self.writes.load(Ordering::SeqCst) + next, Ordering::SeqCst);
    }

    pub(crate) fn heal(&self) {
        self.fail_from.store(u64::MAX, Ordering::SeqCst);
        self.plan(Faults::default());
    }

    pub(crate) fn plan(&self, faults: Faults) {
        *self.faults.lock().expect("nobody panicked with it") = faults;
    }

    /// Whether the next write or flush fails, and has happened all the same.
    fn fault(&self) -> Option<bool> {
        let mut faults = self.faults.lock().expect("nobody panicked with it");
        if faults.after > 0 {
            faults.after -= 1;
            return None;
        }
        faults.count = faults.count.checked_sub(1)?;
        Some(faults.done)
    }
}

impl Device for Recorder {
    fn geometry(&self) -> Geometry {
        Geometry { volatile_cache: true, ..self.memory.geometry() }
    }

    fn submit(&self, io: &mut Io, mut request: Request) -> Submitted {
        let event = match &request.operation {
            Operation::Write { offset, len, data, fua } => {
                let event = if *fua { Event::Durable } else { Event::Write };
                Some(event(*offset, data.gather(*len).as_slice()[..*len].to_vec()))
            }
            Operation::WriteZeroes { offset, len, .. } => Some(Event::Zero(*offset, *len)),
            Operation::Flush => Some(Event::Flush),
            Operation::Read { .. } | Operation::Deallocate { .. } => None,
        };
        // Marks are written when the drive is idle: they are not counted.
        let is_mark = matches!(event, Some(Event::Write(offset, _)) if MARKS.contains(&offset));
        if let Some(event) = event.clone().filter(|_| is_mark) {
            self.events.lock().expect("nobody panicked with it").push(event);
        } else if let Some(event) = event {
            let fault = self.fault();
            let is_flush = matches!(event, Event::Flush);
            let fails =
                !is_flush && self.writes.fetch_add(1, Ordering::SeqCst) >= self.fail_from.load(Ordering::SeqCst);
            if fault == Some(true) && !is_flush {
                self.events.lock().expect("nobody panicked with it").push(event);
                let hook = request.hook.take();
                let Submitted::Done(mut done) = self.memory.submit(io, request) else {
                    unreachable!("memory is quick")
                };
                done.result = Err(Error::Refused {
                    action: Action::Write,
                    offset: 0,
                    len: 0,
                    class: Class::MediumWrite,
                    reason: "done, and refused, as the test wants",
                });
                hook.iter().for_each(|hook| hook.finish(&mut done));
                return Submitted::Done(done);
            }
            if fails || fault.is_some() {
                let action = request.operation.action();
                let error = Error::Refused {
                    action,
                    offset: 0,
                    len: 0,
                    class: Class::MediumWrite,
                    reason: "as the test wants",
                };
                return Submitted::Done(request.complete(Err(error)));
            }
            self.events.lock().expect("nobody panicked with it").push(event);
        }
        self.memory.submit(io, request)
    }

    fn describe(&self) -> String {
        "a device that remembers".to_owned()
    }
}

/// A drive with `capacity` bytes on a recording device.
pub(crate) fn drive(capacity: u64) -> (Arc<Recorder>, Opened) {
    let base = Arc::new(Recorder::new(medium_bytes(capacity).expect("a legal size")));
    let opened = open(&base, Some(capacity));
    (base, opened)
}

pub(crate) fn open(base: &Arc<Recorder>, create: Option<u64>) -> Opened {
    let base: Arc<dyn Device> = Arc::clone(base) as Arc<dyn Device>;
    ebof_medium::open(base, Options { create, zeroed: true, ..Options::default() }).expect("a drive")
}

/// Runs a closure on the drive's thread, and waits for it.
pub(crate) fn on<T: Send + 'static>(medium: &Medium, work: impl FnOnce(&mut Store) -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    medium.run(Box::new(move |store| {
        let _gone = sender.send(work(store));
    }));
    receiver.recv().expect("the drive's thread answers")
}

/// Ends a drive as `SIGKILL` does: nothing of it reaches its device any more, also not what its
/// thread would do by itself (settle the journal, mark what is flushed).
pub(crate) fn kill(medium: Medium) {
    let (sender, receiver) = mpsc::channel();
    medium.run(Box::new(move |_store| {
        let _gone = sender.send(());
        loop {
            std::thread::park();
        }
    }));
    receiver.recv().expect("the drive's thread stands still");
    // Dropping it would wait for that thread.
    std::mem::forget(medium);
}

/// The same, when no freed extent has to be zeroed any more: what does that is another thread.
pub(crate) fn kill_when_clean(medium: Medium) {
    while !on(&medium, Store::clean).expect("a device that works") {}
    kill(medium);
}

pub(crate) fn create(medium: &Medium, volume: u64, size: u64) -> Arc<dyn Device> {
    on(medium, move |store| store.create(VolumeId(volume), size / 4096, size / 4096, BlockFormat::plain(12)))
        .expect("room for it")
}

pub(crate) fn create_coded(medium: &Medium, volume: u64, blocks: u64, block_format: BlockFormat) -> Arc<dyn Device> {
    on(medium, move |store| store.create(VolumeId(volume), blocks, blocks, block_format)).expect("room for it")
}

/// Runs one operation.
pub(crate) fn run(device: &Arc<dyn Device>, io: &mut Io, operation: Operation) -> Completion {
    match device.submit(io, Request::new(1, operation)) {
        Submitted::Done(completion) => completion,
        Submitted::Pending => io.wait(None).expect("an engine").expect("its completion"),
        Submitted::Busy(request) => {
            let reason = "one request has room";
            let error =
                Error::Refused { action: request.operation.action(), offset: 0, len: 0, class: Class::Busy, reason };
            request.complete(Err(error))
        }
    }
}

pub(crate) fn write(device: &Arc<dyn Device>, io: &mut Io, offset: u64, bytes: &[u8]) -> Result<(), Class> {
    let mut buffer = Buffer::zeroed(bytes.len());
    buffer.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
    let operation = Operation::Write { offset, len: bytes.len(), data: buffer.into(), fua: false };
    run(device, io, operation).result.map_err(|error| error.class())
}

pub(crate) fn read(device: &Arc<dyn Device>, io: &mut Io, offset: u64, len: usize) -> Result<Vec<u8>, Class> {
    let mut buffer = Buffer::zeroed(len);
    buffer.as_mut_slice().fill(0xEE);
    let completion = run(device, io, Operation::Read { offset, len, data: buffer.into() });
    completion.result.map_err(|error| error.class())?;
    Ok(completion.data.unwrap().into_buffer().expect("a read has one").as_slice()[..len].to_vec())
}

pub(crate) fn deallocate(device: &Arc<dyn Device>, io: &mut Io, offset: u64, len: u64) -> Result<(), Class> {
    let operation = Operation::Deallocate { ranges: std::iter::once(offset..offset + len).collect() };
    run(device, io, operation).result.map_err(|error| error.class())
}

pub(crate) fn flush(device: &Arc<dyn Device>, io: &mut Io) -> Result<(), Class> {
    run(device, io, Operation::Flush).result.map_err(|error| error.class())
}
