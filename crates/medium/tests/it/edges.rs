//! Edge cases: crashes, failures in the middle of operations, and unusual requests of hosts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use ebof_backend::{
    Buffer, Class, Completion, CompletionHook, Device, Error, Geometry, Io, Memory, Null, Operation, Request, Submitted,
};
use ebof_medium::{BlockFormat, Options, VolumeId, medium_bytes};

use crate::rig::{Event, Recorder, create, deallocate, drive, kill, on, open, read, run, write};

const EXTENT: u64 = 256 << 10;

fn options() -> Options {
    Options { zeroed: true, ..Options::default() }
}

/// A device on which the kept ones of these events have happened.
fn device(capacity: u64, events: &[Event], keep: impl Fn(usize, &Event) -> bool) -> Arc<dyn Device> {
    let kept = events.iter().enumerate().filter(|(at, event)| keep(*at, event));
    Arc::new(Recorder::with(capacity, &kept.map(|(_, event)| event.clone()).collect::<Vec<_>>()))
}

fn is_frame(event: &Event) -> bool {
    matches!(event, Event::Write(_, bytes) if bytes.starts_with(b"EBOFJRN1"))
}

/// A program that opens a drive and stops before `set_snapshot` must not lose the stored state.
#[test]
fn the_state_survives_a_stop_before_a_snapshot_is_set() {
    let (base, opened) = drive(2 << 20);
    on(&opened.medium, |store| store.commit(&[b"one"])).unwrap();
    on(&opened.medium, |store| store.set_snapshot(Box::new(|| b"state".to_vec())));
    opened.medium.stop();
    open(&base, None).medium.stop();
    let again = open(&base, None);
    assert_eq!(again.snapshot.as_deref(), Some(&b"state"[..]));
}

#[test]
fn changes_survive_a_stop_before_a_snapshot_is_set() {
    let (base, opened) = drive(2 << 20);
    on(&opened.medium, |store| store.commit(&[b"one"])).unwrap();
    kill(opened.medium);
    open(&base, None).medium.stop();
    assert_eq!(open(&base, None).changes, [b"one"]);
}

/// Old frames after the end of the journal, left by a power loss, are not replayed.
#[test]
fn frames_of_an_earlier_incarnation_are_not_replayed() {
    let (base, opened) = drive(2 << 20);
    let mut io = Io::new(4).unwrap();
    let first = create(&opened.medium, 1, 2 << 20);
    create(&opened.medium, 2, 2 << 20);
    for index in 0..3 {
        write(&first, &mut io, index * EXTENT, &[1; 4096]).unwrap();
    }
    kill(opened.medium);
    let events = base.events.lock().unwrap().clone();
    // Power loss: of three unflushed journal frames the first is lost, the others are not.
    let flushed = events.iter().rposition(|event| matches!(event, Event::Flush)).unwrap();
    let lost = (flushed..events.len()).find(|&at| is_frame(&events[at])).unwrap();
    assert_eq!(events[lost..].iter().filter(|event| is_frame(event)).count(), 3);
    let memory = device(2 << 20, &events, |at, _| at != lost);
    let second_life = ebof_medium::open(Arc::clone(&memory), options()).unwrap();
    let second = second_life.medium.device(VolumeId(2)).unwrap();
    // One request, one frame: the last old frame follows it.
    write(&second, &mut io, 0, &vec![2; 768 << 10]).unwrap();
    kill(second_life.medium);
    let third_life = ebof_medium::open(memory, options()).expect("a healthy drive opens");
    let first = third_life.medium.device(VolumeId(1)).unwrap();
    for index in 0..3 {
        assert!(read(&first, &mut io, index * EXTENT, 4096).unwrap()[0] != 2, "another namespace's bytes");
    }
}

/// A deallocation over many pieces takes time in proportion to their number, not to its square.
#[test]
fn a_deallocation_of_a_fragmented_namespace_is_fast() {
    let base = Arc::new(Null::new(medium_bytes(64 << 30).unwrap(), 512, false));
    let medium = ebof_medium::open(base, Options { create: Some(64 << 30), ..options() }).unwrap().medium;
    create(&medium, 1, 64 << 30);
    let pieces = 40_000_u64;
    on(&medium, move |store| {
        for at in 0..pieces {
            let operation =
                Operation::Write { offset: at * 2 * EXTENT, len: 4096, data: Buffer::zeroed(4096).into(), fua: false };
            store.execute(VolumeId(1), operation).result.unwrap();
        }
    });
    let start = Instant::now();
    deallocate(&medium.device(VolumeId(1)).unwrap(), &mut Io::new(4).unwrap(), 0, 64 << 30).unwrap();
    assert!(start.elapsed() < Duration::from_millis(500), "{:?} for {pieces} pieces", start.elapsed());
}

/// A device whose reads wait until they are released.
#[derive(Debug)]
struct Slow {
    memory: Memory,
    held: std::sync::Mutex<Vec<(Request, ebof_backend::Remote)>>,
    hold: AtomicBool,
}

impl Device for Slow {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        if self.hold.load(Ordering::SeqCst) && matches!(request.operation, Operation::Read { .. }) {
            let remote = io.remote().unwrap();
            self.held.lock().unwrap().push((request, remote));
            return Submitted::Pending;
        }
        self.memory.submit(io, request)
    }

    fn describe(&self) -> String {
        "slow".to_owned()
    }
}

fn slow() -> (Arc<Slow>, ebof_medium::Opened) {
    let memory = Memory::new(medium_bytes(1 << 20).unwrap(), 512, false);
    let base = Arc::new(Slow { memory, held: Default::default(), hold: AtomicBool::new(false) });
    let opened = ebof_medium::open(Arc::clone(&base) as _, Options { create: Some(1 << 20), ..options() }).unwrap();
    (base, opened)
}

/// Deallocated space can be reused although an earlier request is still in progress for a moment.
#[test]
fn a_full_namespace_can_rewrite_deallocated_blocks() {
    let (base, opened) = slow();
    let mut io = Io::new(4).unwrap();
    let device = create(&opened.medium, 1, 1 << 20);
    write(&device, &mut io, 0, &vec![1; 1 << 20]).unwrap();
    let mut other = Io::new(4).unwrap();
    base.hold.store(true, Ordering::SeqCst);
    let operation = Operation::Read { offset: 0, len: 4096, data: Buffer::zeroed(4096).into() };
    assert!(matches!(device.submit(&mut other, Request::new(9, operation)), Submitted::Pending));
    base.hold.store(false, Ordering::SeqCst);
    deallocate(&device, &mut io, EXTENT, EXTENT).unwrap();
    let holder = Arc::clone(&base);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        for (request, remote) in holder.held.lock().unwrap().drain(..) {
            remote.deliver(request.complete(Ok(())));
        }
    });
    assert_eq!(write(&device, &mut io, EXTENT, &[2; 4096]), Ok(()));
    thread.join().unwrap();
}

/// It takes what is free, although other space is still being read.
#[test]
fn a_write_that_waits_takes_the_first_space_that_is_free() {
    let (base, opened) = slow();
    let mut io = Io::new(4).unwrap();
    let device = create(&opened.medium, 1, 1 << 20);
    write(&device, &mut io, 0, &vec![1; 1 << 20]).unwrap();
    let mut others = [Io::new(4).unwrap(), Io::new(4).unwrap()];
    for (other, index) in others.iter_mut().zip(1..) {
        base.hold.store(true, Ordering::SeqCst);
        let operation = Operation::Read { offset: 0, len: 4096, data: Buffer::zeroed(4096).into() };
        assert!(matches!(device.submit(other, Request::new(9, operation)), Submitted::Pending));
        base.hold.store(false, Ordering::SeqCst);
        deallocate(&device, &mut io, index * EXTENT, EXTENT).unwrap();
    }
    let operation = Operation::Write { offset: EXTENT, len: 4096, data: Buffer::zeroed(4096).into(), fua: false };
    assert!(matches!(device.submit(&mut io, Request::new(1, operation)), Submitted::Pending));
    // It waits by now.
    on(&opened.medium, |_| ());
    let (request, remote) = base.held.lock().unwrap().remove(0);
    remote.deliver(request.complete(Ok(())));
    assert!(io.wait(None).unwrap().unwrap().result.is_ok());
}

/// A write that waits for freed space does not delay others, and is completed after a time limit.
#[test]
fn a_write_that_waits_for_space_does_not_delay_others() {
    let (base, opened) = slow();
    let mut io = Io::new(4).unwrap();
    let (first, second) = (create(&opened.medium, 1, 1 << 20), create(&opened.medium, 2, 1 << 20));
    write(&first, &mut io, 0, &vec![1; 1 << 20]).unwrap();
    let mut other = Io::new(4).unwrap();
    base.hold.store(true, Ordering::SeqCst);
    let operation = Operation::Read { offset: 0, len: 4096, data: Buffer::zeroed(4096).into() };
    assert!(matches!(first.submit(&mut other, Request::new(9, operation)), Submitted::Pending));
    base.hold.store(false, Ordering::SeqCst);
    deallocate(&first, &mut io, 0, EXTENT).unwrap();
    let block = |offset| Operation::Write { offset, len: 4096, data: Buffer::zeroed(4096).into(), fua: false };
    // A write to the same namespace that needs space, and one that does not: the thread executes it
    // because it spans extents.
    assert!(matches!(second.submit(&mut io, Request::new(1, block(0))), Submitted::Pending));
    let spans =
        Operation::Write { offset: 3 * EXTENT - 2048, len: 4096, data: Buffer::zeroed(4096).into(), fua: false };
    let begin = Instant::now();
    assert!(matches!(first.submit(&mut other, Request::new(2, spans)), Submitted::Pending | Submitted::Done(_)));
    let before = on(&opened.medium, |_| Instant::now());
    let done = io.wait(None).unwrap().unwrap();
    assert_eq!((done.tag, done.result.unwrap_err().class()), (1, Class::Busy), "it was still being read");
    assert!(before - begin < begin.elapsed() / 2, "{:?} of {:?}", before - begin, begin.elapsed());
    // A write that waits when the drive is closed is completed, too.
    assert!(matches!(second.submit(&mut io, Request::new(3, block(0))), Submitted::Pending));
    opened.medium.stop();
    let done = io.wait(None).unwrap().unwrap();
    assert_eq!((done.tag, done.result.unwrap_err().class()), (3, Class::Busy));
}

/// A device that is slow to release storage.
#[derive(Debug)]
struct Reluctant {
    memory: Memory,
    is_armed: AtomicBool,
    waiting: AtomicBool,
    gate: std::sync::Mutex<mpsc::Receiver<()>>,
}

impl Device for Reluctant {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        if self.is_armed.load(Ordering::SeqCst) && matches!(request.operation, Operation::WriteZeroes { .. }) {
            self.waiting.store(true, Ordering::SeqCst);
            let _opened = self.gate.lock().unwrap().recv_timeout(Duration::from_secs(10));
            self.is_armed.store(false, Ordering::SeqCst);
        }
        self.memory.submit(io, request)
    }

    fn describe(&self) -> String {
        "reluctant".to_owned()
    }
}

/// Freed extents are zeroed while others continue, and can be reused when they are needed.
#[test]
fn zeroing_freed_extents_does_not_delay_others() {
    let (open, gate) = mpsc::channel();
    let memory = Memory::new(medium_bytes(2 << 20).unwrap(), 512, false);
    let (is_armed, waiting) = (AtomicBool::new(false), AtomicBool::new(false));
    let base = Arc::new(Reluctant { memory, is_armed, waiting, gate: std::sync::Mutex::new(gate) });
    let opened = ebof_medium::open(Arc::clone(&base) as _, Options { create: Some(2 << 20), ..options() }).unwrap();
    let medium = &opened.medium;
    let (first, second) = (create(medium, 1, 2 << 20), create(medium, 2, 2 << 20));
    let mut io = Io::new(4).unwrap();
    write(&first, &mut io, 0, &vec![1; 1 << 20]).unwrap();
    base.is_armed.store(true, Ordering::SeqCst);
    deallocate(&first, &mut io, 0, 1 << 20).unwrap();
    while !base.waiting.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    // Extents that are being zeroed belong to no namespace, and are still counted.
    assert_eq!(on(medium, |store| (store.unclean(), store.is_reclaimed(), store.clean().unwrap())), (4, false, false));
    write(&second, &mut io, 0, &vec![2; 1 << 20]).unwrap();
    assert!(base.is_armed.load(Ordering::SeqCst), "it waited until the storage was taken back");
    // Only extents that are being zeroed are left: a write that needs them waits, and gets them.
    let more = Operation::Write { offset: 1 << 20, len: 4096, data: Buffer::zeroed(4096).into(), fua: false };
    assert!(matches!(second.submit(&mut io, Request::new(7, more)), Submitted::Pending));
    on(medium, |_| ());
    open.send(()).unwrap();
    assert!(io.wait(None).unwrap().unwrap().result.is_ok());
    while !on(medium, |store| store.clean().unwrap()) {}
    assert_eq!(on(medium, |store| store.unclean()), 0);
    assert_eq!(read(&second, &mut io, 1 << 20, 1 << 20).unwrap(), vec![0; 1 << 20]);
    // After a close nothing is zeroed any more.
    base.waiting.store(false, Ordering::SeqCst);
    base.is_armed.store(true, Ordering::SeqCst);
    deallocate(&second, &mut io, 0, 1 << 20).unwrap();
    while !base.waiting.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let medium = medium.clone();
    let ending = std::thread::spawn(move || medium.stop());
    open.send(()).unwrap();
    ending.join().unwrap();
    assert!(!base.is_armed.load(Ordering::SeqCst));
}

/// Extents that a request may still read are not reused.
#[test]
fn a_slow_request_never_reads_data_of_reused_extents() {
    let (base, opened) = slow();
    let mut io = Io::new(4).unwrap();
    let first = create(&opened.medium, 1, 1 << 20);
    let second = create(&opened.medium, 2, 1 << 20);
    write(&first, &mut io, 0, &vec![1; 1 << 20]).unwrap();
    let mut other = Io::new(4).unwrap();
    base.hold.store(true, Ordering::SeqCst);
    let operation = Operation::Read { offset: 0, len: 4096, data: Buffer::zeroed(4096).into() };
    assert!(matches!(first.submit(&mut other, Request::new(9, operation)), Submitted::Pending));
    base.hold.store(false, Ordering::SeqCst);
    deallocate(&first, &mut io, 0, EXTENT).unwrap();
    assert_eq!(write(&second, &mut io, 0, &[2; 4096]), Err(Class::Busy), "the only extent is still being read");
    for (request, remote) in base.held.lock().unwrap().drain(..) {
        let Submitted::Done(done) = base.memory.submit(&mut io, request) else { panic!("memory is quick") };
        remote.deliver(done);
    }
    let done = other.wait(None).unwrap().unwrap();
    assert_eq!(done.data.unwrap().into_buffer().unwrap().as_slice()[0], 1, "what was there when it began");
    assert_eq!(write(&second, &mut io, 0, &[2; 4096]), Ok(()));
}

/// A request whose caller does not wait does not prevent the close.
#[test]
fn a_stop_does_not_wait_for_uncollected_requests() {
    let (base, opened) = slow();
    let mut io = Io::new(4).unwrap();
    let device = create(&opened.medium, 1, 1 << 20);
    write(&device, &mut io, 0, &vec![1; 1 << 20]).unwrap();
    base.hold.store(true, Ordering::SeqCst);
    let operation = Operation::Read { offset: 0, len: 4096, data: Buffer::zeroed(4096).into() };
    assert!(matches!(device.submit(&mut io, Request::new(9, operation)), Submitted::Pending));
    base.hold.store(false, Ordering::SeqCst);
    on(&opened.medium, |store| store.remove(VolumeId(1))).unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        opened.medium.stop();
        sender.send(()).unwrap();
    });
    assert!(receiver.recv_timeout(Duration::from_secs(5)).is_ok(), "it still stops");
}

/// Every namespace that can be created can be opened again.
#[test]
fn a_created_namespace_is_kept_over_a_restart() {
    for block in
        [BlockFormat::plain(0), BlockFormat::plain(13), BlockFormat { metadata_bytes: 64, ..BlockFormat::plain(12) }]
    {
        let (base, opened) = drive(2 << 20);
        let made = on(&opened.medium, move |store| store.create(VolumeId(1), 256, 256, block).is_ok());
        opened.medium.stop();
        let again = ebof_medium::open(base, options());
        assert!(again.is_ok_and(|again| again.medium.volumes().len() == usize::from(made)), "{block:?}");
    }
}

/// A write with FUA is durable, even if the extent's record in the journal is not durable yet.
#[test]
fn a_write_with_fua_survives_a_power_loss() {
    let (base, opened) = drive(2 << 20);
    let mut io = Io::new(4).unwrap();
    let first = create(&opened.medium, 1, 2 << 20);
    write(&first, &mut io, 0, &[1; 4096]).unwrap();
    let mut buffer = Buffer::zeroed(4096);
    buffer.as_mut_slice().fill(2);
    run(&first, &mut io, Operation::Write { offset: 4096, len: 4096, data: buffer.into(), fua: true }).result.unwrap();
    kill(opened.medium);
    let events = base.events.lock().unwrap().clone();
    let flushed = events.iter().rposition(|event| matches!(event, Event::Flush)).unwrap();
    // Data written with FUA are kept, other unflushed data are not.
    let fua = |event: &Event| matches!(event, Event::Durable(..));
    let memory = device(2 << 20, &events, |at, event| at < flushed || fua(event));
    let again = ebof_medium::open(memory, options()).unwrap();
    let first = again.medium.device(VolumeId(1)).unwrap();
    assert!(read(&first, &mut io, 4096, 4096) == Ok(vec![2; 4096]), "the bytes that FUA has acknowledged");
}

/// A device whose flushes fail on demand.
#[derive(Debug)]
struct NoFlush {
    memory: Memory,
    /// The number of flushes that succeed before one fails.
    good: AtomicU64,
    /// Writes before this are refused.
    bad_below: AtomicU64,
    /// The number of those that are executed all the same.
    done: AtomicU64,
}

impl Device for NoFlush {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        if matches!(request.operation, Operation::Flush) {
            let left = self.good.fetch_sub(1, Ordering::SeqCst);
            if left == 0 {
                let action = request.operation.action();
                let reason = "as the test wants";
                let error = Error::Refused { action, offset: 0, len: 0, class: Class::MediumWrite, reason };
                return Submitted::Done(request.complete(Err(error)));
            }
        }
        let refused = matches!(&request.operation, Operation::Write { offset, .. } if *offset < self.bad_below.load(Ordering::SeqCst));
        if !refused {
            return self.memory.submit(io, request);
        }
        let is_done = self.done.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        let mut done = match if is_done { self.memory.submit(io, request) } else { Submitted::Busy(request) } {
            Submitted::Busy(request) => request.complete(Ok(())),
            Submitted::Done(done) => done,
            Submitted::Pending => unreachable!("memory is quick"),
        };
        let (action, class) = (ebof_backend::Action::Write, Class::MediumWrite);
        done.result = Err(Error::Refused { action, offset: 0, len: 0, class, reason: "as the test wants" });
        Submitted::Done(done)
    }

    fn describe(&self) -> String {
        "no flush".to_owned()
    }
}

fn no_flush() -> (Arc<NoFlush>, ebof_medium::Opened) {
    let memory = Memory::new(medium_bytes(2 << 20).unwrap(), 512, false);
    let base = Arc::new(NoFlush {
        memory,
        good: AtomicU64::new(u64::MAX),
        bad_below: AtomicU64::new(0),
        done: AtomicU64::new(0),
    });
    let opened = ebof_medium::open(Arc::clone(&base) as _, Options { create: Some(2 << 20), ..options() }).unwrap();
    (base, opened)
}

/// A checkpoint whose last flush failed may be on the medium; what is acknowledged afterwards must
/// not be lost because of it.
#[test]
fn a_checkpoint_that_failed_at_its_end_does_not_hide_later_changes() {
    for fails in 0..2 {
        let (base, opened) = no_flush();
        on(&opened.medium, |store| store.set_snapshot(Box::new(|| b"state".to_vec())));
        let mut small = 0;
        for _ in 0..15 {
            on(&opened.medium, |store| store.commit(&[&vec![0; 1 << 20]])).unwrap();
        }
        // The next one needs a checkpoint.
        base.good.store(fails, Ordering::SeqCst);
        assert!(on(&opened.medium, |store| store.commit(&[&vec![0; 1 << 20]])).is_err());
        base.good.store(u64::MAX, Ordering::SeqCst);
        // A small one does not.
        if on(&opened.medium, |store| store.commit(&[b"small"])).is_ok() {
            small += 1;
        }
        kill(opened.medium);
        let again = ebof_medium::open(base, options()).unwrap();
        let found = again.changes.iter().filter(|change| *change == b"small").count();
        assert_eq!(found, small, "flush {fails} of the checkpoint failed");
    }
}

/// Changes that were refused because they could not be made durable do not appear later.
#[test]
fn a_commit_that_could_not_be_flushed_has_not_happened() {
    let (base, opened) = no_flush();
    on(&opened.medium, |store| store.commit(&[b"before"])).unwrap();
    base.good.store(0, Ordering::SeqCst);
    assert!(on(&opened.medium, |store| store.commit(&[b"refused"])).is_err());
    base.good.store(u64::MAX, Ordering::SeqCst);
    on(&opened.medium, |store| store.commit(&[b"next"])).unwrap();
    kill(opened.medium);
    assert_eq!(ebof_medium::open(base, options()).unwrap().changes, [b"before".to_vec(), b"next".to_vec()]);
}

/// A commit is atomic.
#[test]
fn the_changes_of_a_commit_are_atomic() {
    let (base, opened) = drive(2 << 20);
    let before = base.events.lock().unwrap().len();
    on(&opened.medium, |store| store.commit(&[&[1; 3000], &[2; 3000], &[3; 3000]])).unwrap();
    kill(opened.medium);
    let mut events = base.events.lock().unwrap().clone();
    let at = (before..events.len()).find(|&at| is_frame(&events[at])).unwrap();
    for torn in 1..24 {
        let Event::Write(offset, bytes) = base.events.lock().unwrap()[at].clone() else { panic!("it is a write") };
        events[at] = Event::Write(offset, bytes[..bytes.len().min(torn * 512)].to_vec());
        let again = ebof_medium::open(device(2 << 20, &events[..=at], |_, _| true), options()).unwrap();
        assert!([0, 3].contains(&again.changes.len()), "{} of 3 changes", again.changes.len());
    }
}

#[derive(Debug, Default)]
struct Seen(AtomicU64);

impl CompletionHook for Seen {
    fn finish(&self, _: &mut Completion) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The companion that an upper device has attached to a request is kept.
#[test]
fn companions_of_requests_are_kept() {
    let (_, opened) = drive(2 << 20);
    let mut io = Io::new(4).unwrap();
    let device = create(&opened.medium, 1, 2 << 20);
    let seen = Arc::new(Seen::default());
    for (at, offset) in [0, 0, EXTENT - 4096].into_iter().enumerate() {
        let operation = Operation::Write { offset, len: 8192, data: Buffer::zeroed(8192).into(), fua: false };
        let request = Request { hook: Some(Arc::clone(&seen) as _), ..Request::new(1, operation) };
        match device.submit(&mut io, request) {
            Submitted::Pending => io.wait(None).unwrap().unwrap().result.unwrap(),
            Submitted::Done(completion) => completion.result.unwrap(),
            Submitted::Busy(_) => panic!("there is room"),
        }
        assert_eq!(seen.0.load(Ordering::SeqCst), at as u64 + 1, "request {at}");
    }
}

/// The backing device is closed with the drive: it can be opened again immediately, even in the
/// same process.
#[test]
fn a_closed_drive_releases_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let size = medium_bytes(1 << 20).unwrap();
    let spec = format!("{}/disk.img,size={size}", directory.path().display()).parse().unwrap();
    for round in 0..3 {
        let base = ebof_backend::open(&spec).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let opened = ebof_medium::open(base, Options { create: Some(1 << 20), ..options() }).unwrap();
        let device = opened.medium.device(VolumeId(1)).unwrap_or_else(|| create(&opened.medium, 1, 1 << 20));
        let mut io = Io::new(4).unwrap();
        assert_eq!(read(&device, &mut io, 0, 4096), Ok(vec![round; 4096]));
        write(&device, &mut io, 0, &[round + 1; 4096]).unwrap();
        if round == 1 {
            opened.medium.stop();
        }
    }
}

/// A failed deallocation may be in the journal all the same, and later writes to its extent would
/// be lost. So they are acknowledged only when this is resolved. When the journal can be written,
/// everything works again without a restart.
#[test]
fn nothing_is_acknowledged_after_a_failed_record_until_the_journal_recovers() {
    let (base, opened) = no_flush();
    let mut io = Io::new(4).unwrap();
    let device = create(&opened.medium, 1, 2 << 20);
    write(&device, &mut io, 0, &[1; 8192]).unwrap();
    // The first of them is the deallocation's record.
    base.done.store(1, Ordering::SeqCst);
    base.bad_below.store(medium_bytes(2 << 20).unwrap() - (2 << 20), Ordering::SeqCst);
    assert_eq!(deallocate(&device, &mut io, 0, EXTENT), Err(Class::MediumWrite));
    assert_eq!(read(&device, &mut io, 0, 8192), Ok(vec![1; 8192]), "it has not happened");
    let acknowledged = write(&device, &mut io, 4096, &[2; 4096]).is_ok();
    // Killed during the failures: the next incarnation finds this state.
    let killed = copy(&base.memory);
    base.bad_below.store(0, Ordering::SeqCst);
    let again = ebof_medium::open(killed, options()).unwrap().medium;
    let found = read(&again.device(VolumeId(1)).unwrap(), &mut io, 4096, 4096).unwrap();
    assert!(!acknowledged || found == [2; 4096], "acknowledged, and lost");
    assert_eq!(write(&device, &mut io, 4096, &[3; 4096]), Ok(()));
    assert_eq!(deallocate(&device, &mut io, 0, EXTENT), Ok(()));
    assert_eq!(read(&device, &mut io, 4096, 4096), Ok(vec![0; 4096]));
}

/// A separate device with the same bytes.
fn copy(memory: &Memory) -> Arc<dyn Device> {
    let bytes = memory.geometry().capacity_bytes;
    let copy = Memory::new(bytes, 512, false);
    let mut io = Io::new(1).unwrap();
    for offset in (0..bytes).step_by(128 << 10) {
        let read = Operation::Read { offset, len: 128 << 10, data: Buffer::zeroed(128 << 10).into() };
        let Submitted::Done(done) = memory.submit(&mut io, Request::new(0, read)) else { panic!("memory is quick") };
        let write = Operation::Write {
            offset,
            len: 128 << 10,
            data: done.data.unwrap().into_buffer().unwrap().into(),
            fua: false,
        };
        assert!(matches!(copy.submit(&mut io, Request::new(0, write)), Submitted::Done(_)));
    }
    Arc::new(copy)
}
