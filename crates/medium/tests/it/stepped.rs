//! A drive without threads, on a simulated disk with a simulated clock: the same seed gives the
//! same result.

use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::Duration;

use ebof_backend::{
    Buffer, Class, Completion, Device, Geometry, Io, IoFactory, Memory, Operation, Remote, Request, Submitted,
};
use ebof_clock::Clock;
use ebof_medium::{
    BlockFormat, Job, Medium, Opened, Options, Progress, Stepper, Store, VolumeId, medium_bytes, open_stepped,
};

const CAPACITY: u64 = 16 << 20;
const BLOCK: usize = 4096;

/// A disk that completes requests in an order that follows from its clock's seed.
#[derive(Debug)]
struct Disk {
    memory: Memory,
    clock: Clock,
    pending: Mutex<Vec<(Request, Remote)>>,
}

impl Disk {
    fn new(clock: &Clock) -> Arc<Self> {
        let memory = Memory::new(medium_bytes(CAPACITY).unwrap(), 512, false);
        Arc::new(Self { memory, clock: clock.clone(), pending: Mutex::default() })
    }

    fn pending(&self) -> MutexGuard<'_, Vec<(Request, Remote)>> {
        self.pending.lock().unwrap()
    }

    /// Completes one request, if there is any.
    fn advance(&self) -> bool {
        let mut pending = self.pending();
        if pending.is_empty() {
            return false;
        }
        let at = usize::try_from(self.clock.jitter() % pending.len() as u64).unwrap();
        let (request, remote) = pending.swap_remove(at);
        self.clock.advance(Duration::from_micros(self.clock.jitter() % 100));
        drop(pending);
        let mut unused = Io::external(1, Box::new(|| false));
        let Submitted::Done(completion) = self.memory.submit(&mut unused, request) else { unreachable!() };
        remote.deliver(completion);
        true
    }

    /// All its bytes.
    fn bytes(&self) -> Vec<u8> {
        let mut unused = Io::external(1, Box::new(|| false));
        let len = usize::try_from(self.memory.geometry().capacity_bytes).unwrap();
        let operation = Operation::Read { offset: 0, len, data: Buffer::zeroed(len).into() };
        let Submitted::Done(done) = self.memory.submit(&mut unused, Request::new(0, operation)) else { unreachable!() };
        done.data.unwrap().into_buffer().unwrap().as_slice()[..len].to_vec()
    }
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        Geometry { volatile_cache: true, ..self.memory.geometry() }
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        let Some(remote) = io.remote() else { return Submitted::Busy(request) };
        self.pending().push((request, remote));
        Submitted::Pending
    }

    fn describe(&self) -> String {
        "a simulated disk".to_owned()
    }
}

/// A drive, the disk below it, and a host's I/O, in one thread.
struct World {
    clock: Clock,
    disk: Arc<Disk>,
    io: Io,
    medium: Medium,
    stepper: Stepper,
}

impl World {
    fn open(clock: &Clock, disk: &Arc<Disk>) -> (Self, Opened) {
        let below = Arc::clone(disk);
        let io = IoFactory::new(move |entries| {
            let below = Arc::clone(&below);
            Ok(Io::external(entries, Box::new(move || below.advance())))
        });
        let options = Options {
            create: Some(CAPACITY),
            zeroed: true,
            io: io.clone(),
            clock: clock.clone(),
            ..Options::default()
        };
        let (opened, stepper) = open_stepped(Arc::clone(disk) as Arc<dyn Device>, &options).unwrap();
        let (io, medium) = (io.make(16).unwrap(), opened.medium.clone());
        (Self { clock: clock.clone(), disk: Arc::clone(disk), io, medium, stepper }, opened)
    }

    /// One randomly chosen part of the work; `false` if there is none until time advances.
    fn step(&mut self) -> bool {
        let is_due = self.stepper.due().is_some_and(|due| due <= self.clock.now());
        let can = [is_due, self.stepper.has_flushes(), self.stepper.has_zeroing(), !self.disk.pending().is_empty()];
        let can: Vec<usize> = (0..can.len()).filter(|&at| can[at]).collect();
        let Some(&what) = can.get(usize::try_from(self.clock.jitter() % can.len().max(1) as u64).unwrap()) else {
            return false;
        };
        match what {
            0 => self.stepper.turn(),
            1 => assert!(self.stepper.flush()),
            2 => assert!(self.stepper.zero()),
            _ => assert!(self.disk.advance()),
        }
        true
    }

    /// The same, and advances time if there is nothing to do now; `false` if there never is.
    fn go_on(&mut self) -> bool {
        if self.step() {
            return true;
        }
        let due = self.stepper.due();
        due.map(|due| self.clock.advance_to(due)).is_some()
    }

    /// Runs a closure on the drive's thread.
    fn on<T: Send + 'static>(&mut self, work: impl FnOnce(&mut Store) -> T + Send + 'static) -> T {
        let done: Arc<Mutex<Option<T>>> = Arc::default();
        let answer = Arc::clone(&done);
        self.medium.run(Box::new(move |store| *answer.lock().unwrap() = Some(work(store))));
        loop {
            if let Some(done) = done.lock().unwrap().take() {
                return done;
            }
            assert!(self.go_on(), "it is never done");
        }
    }

    /// Executes all of these concurrently.
    fn run(&mut self, device: &Arc<dyn Device>, operations: Vec<Operation>) -> Vec<Completion> {
        let mut done = Vec::new();
        for (tag, operation) in (0..).zip(operations) {
            match device.submit(&mut self.io, Request::new(tag, operation)) {
                Submitted::Done(completion) => done.push(completion),
                Submitted::Pending => {}
                Submitted::Busy(_) => panic!("there is room for it"),
            }
        }
        while self.io.in_flight() > 0 {
            match self.io.poll() {
                Some(completion) => done.push(completion),
                None => assert!(self.go_on(), "requests are never done"),
            }
        }
        done.sort_by_key(|completion| completion.tag);
        done
    }

    fn stop(mut self) {
        self.medium.stop();
        while !self.stepper.is_over() {
            assert!(self.go_on(), "it is never over");
        }
        assert!(self.stepper.due().is_none() && !self.step());
    }
}

fn filled(byte: u8) -> Buffer {
    let mut buffer = Buffer::zeroed(BLOCK);
    buffer.as_mut_slice().fill(byte);
    buffer
}

const KINDS: [(u64, bool, bool); 3] = [(1, false, false), (2, true, false), (3, false, true)];

/// Uses a new drive, opens it again, and returns the bytes of its disk.
fn story(seed: u64) -> Vec<u8> {
    let clock = Clock::simulated(seed);
    let disk = Disk::new(&clock);
    let (mut world, opened) = World::open(&clock, &disk);
    assert!(opened.created);
    let mut expected = Vec::new();
    for (volume, encrypted, checked) in KINDS {
        let block_format = BlockFormat { encrypted, checked, ..BlockFormat::plain(12) };
        let device = world.on(move |store| store.create(VolumeId(volume), 512, 512, block_format)).unwrap();
        let mut bytes = vec![0_u8; 512];
        for _ in 0..20 {
            let blocks: Vec<usize> = (0..8).map(|at| (clock.jitter() % 64) as usize * 8 + at).collect();
            let byte = clock.jitter().to_le_bytes()[0];
            let write = |&block: &usize| {
                let offset = (block * BLOCK) as u64;
                Operation::Write { offset, len: BLOCK, data: filled(byte).into(), fua: block.is_multiple_of(5) }
            };
            for done in world.run(&device, blocks.iter().map(write).collect()) {
                done.result.unwrap();
            }
            blocks.iter().for_each(|&block| bytes[block] = byte);
        }
        let everything = Operation::Deallocate { ranges: std::iter::once(0..1 << 20).collect() };
        for operation in [Operation::Flush, everything, Operation::Flush] {
            for done in world.run(&device, vec![operation]) {
                done.result.unwrap();
            }
        }
        bytes[..256].fill(0);
        expected.push(bytes);
    }
    // Freed extents are zeroed while there are no requests, and then the drive is idle.
    let parts = (0..10_000).take_while(|_| world.go_on()).count();
    assert!(parts < 10_000, "{parts}");
    assert_eq!(world.on(|store| store.unclean()), 0);
    world.stop();
    let (mut world, opened) = World::open(&clock, &disk);
    assert!(opened.was_clean && !opened.created);
    for ((volume, ..), bytes) in KINDS.iter().zip(expected) {
        let device = world.medium.device(VolumeId(*volume)).unwrap();
        for (block, byte) in bytes.into_iter().enumerate() {
            let read = Operation::Read { offset: (block * BLOCK) as u64, len: BLOCK, data: filled(0xEE).into() };
            let done = world.run(&device, vec![read]).pop().unwrap();
            done.result.unwrap();
            assert!(
                done.data.unwrap().into_buffer().unwrap().as_slice().iter().all(|found| *found == byte),
                "{volume} {block}"
            );
        }
    }
    // A drive that is dropped without a stop is killed: nothing more is written.
    let before = disk.bytes();
    drop(world);
    assert!(!disk.advance() && disk.bytes() == before);
    before
}

#[test]
fn the_same_seed_writes_the_same_bytes_to_the_disk() {
    let first = story(7);
    assert!(story(7) == first, "the same seed did something else");
    assert!(story(8) != first, "another seed did the same");
}

#[test]
fn pending_requests_of_a_dropped_drive_are_refused() {
    let clock = Clock::simulated(1);
    let disk = Disk::new(&clock);
    let (mut world, _) = World::open(&clock, &disk);
    let device = world.on(|store| store.create(VolumeId(1), 512, 512, BlockFormat::plain(12))).unwrap();
    let write = || Operation::Write { offset: 0, len: BLOCK, data: filled(1).into(), fua: false };
    for (tag, operation) in [write(), Operation::Flush].into_iter().enumerate() {
        assert!(matches!(device.submit(&mut world.io, Request::new(tag as u64, operation)), Submitted::Pending));
    }
    let World { mut io, stepper, medium, .. } = world;
    assert!(stepper.has_flushes());
    drop(stepper);
    for _ in 0..2 {
        assert_eq!(io.poll().unwrap().result.unwrap_err().class(), ebof_backend::Class::Gone);
    }
    assert!(matches!(device.submit(&mut io, Request::new(3, write())), Submitted::Pending));
    assert_eq!(io.poll().unwrap().result.unwrap_err().class(), ebof_backend::Class::Gone);
    assert!(medium.device(VolumeId(1)).is_none());
    medium.stop();
}

/// A block of a drive that was killed while it was in flux: flushed with 1, then 5 without a
/// record of its checksum.
fn killed_in_flux() -> (Clock, Arc<Disk>) {
    let clock = Clock::simulated(3);
    let disk = Disk::new(&clock);
    let (mut world, _) = World::open(&clock, &disk);
    let block_format = BlockFormat { checked: true, ..BlockFormat::plain(12) };
    let device = world.on(move |store| store.create(VolumeId(1), 512, 512, block_format)).unwrap();
    for (byte, flushes) in [(1, true), (2, false), (5, false)] {
        world.run(&device, vec![write_block(byte)]).remove(0).result.unwrap();
        if flushes {
            world.run(&device, vec![Operation::Flush]).remove(0).result.unwrap();
        }
    }
    drop((device, world));
    (clock, disk)
}

fn write_block(byte: u8) -> Operation {
    Operation::Write { offset: 3 * BLOCK as u64, len: BLOCK, data: filled(byte).into(), fua: false }
}

fn read_block() -> Operation {
    Operation::Read { offset: 3 * BLOCK as u64, len: BLOCK, data: filled(0xEE).into() }
}

impl World {
    fn submit(&mut self, device: &Arc<dyn Device>, tag: u64, operation: Operation) {
        assert!(matches!(device.submit(&mut self.io, Request::new(tag, operation)), Submitted::Pending));
    }

    /// Works, but flushes nothing for hosts, until that request is done, or until there is a flush.
    fn without_flushes(&mut self, tag: Option<u64>) -> Option<Completion> {
        for _ in 0..10_000 {
            if let Some(done) = self.io.poll() {
                assert_eq!(Some(done.tag), tag);
                return Some(done);
            }
            if tag.is_none() && self.stepper.has_flushes() {
                return None;
            }
            if !self.disk.advance() {
                let due = self.stepper.due().expect("there is something to do");
                self.clock.advance_to(due);
                self.stepper.turn();
            }
        }
        panic!("it is never done");
    }

    /// Does an operation after a host's flush has begun, and before it ends.
    fn during_a_flush(&mut self, device: &Arc<dyn Device>, operation: Operation) {
        self.submit(device, 1, Operation::Flush);
        assert!(self.without_flushes(None).is_none());
        self.submit(device, 2, operation);
        self.without_flushes(Some(2)).unwrap().result.unwrap();
        assert!(self.stepper.flush());
        self.without_flushes(Some(1)).unwrap().result.unwrap();
    }

    /// What the block has, after a kill and another start.
    fn byte_after_kill(self, clock: &Clock, disk: &Arc<Disk>) -> u8 {
        drop(self);
        let (mut world, _) = World::open(clock, disk);
        let device = world.medium.device(VolumeId(1)).unwrap();
        let done = world.run(&device, vec![read_block()]).remove(0);
        done.result.unwrap();
        done.data.unwrap().into_buffer().unwrap().as_slice()[0]
    }
}

/// The checksum that such a block gets when it is read is not forgotten by a flush that began
/// before.
#[test]
fn a_block_that_is_mended_during_a_flush_stays_readable() {
    let (clock, disk) = killed_in_flux();
    let (mut world, opened) = World::open(&clock, &disk);
    assert!(opened.in_flux > 0);
    let device = world.medium.device(VolumeId(1)).unwrap();
    world.during_a_flush(&device, read_block());
    drop(device);
    assert_eq!(world.byte_after_kill(&clock, &disk), 5);
}

/// A write to such a block, which power loss may undo, does not make what was there damage.
#[test]
fn a_block_in_flux_that_is_written_during_a_flush_may_be_what_it_was() {
    let (clock, disk) = killed_in_flux();
    let (mut world, _) = World::open(&clock, &disk);
    let device = world.medium.device(VolumeId(1)).unwrap();
    world.during_a_flush(&device, write_block(7));
    drop(device);
    // The data of the write are lost, not those of the journal.
    let lost = disk.bytes().chunks(BLOCK).position(|block| block == [7; BLOCK]).unwrap();
    let operation = Operation::Write { offset: (lost * BLOCK) as u64, len: BLOCK, data: filled(5).into(), fua: false };
    let mut unused = Io::external(1, Box::new(|| false));
    assert!(matches!(disk.memory.submit(&mut unused, Request::new(0, operation)), Submitted::Done(_)));
    assert_eq!(world.byte_after_kill(&clock, &disk), 5);
}

/// A flush that waits for another one begins when that one ends, without another message.
#[test]
fn a_flush_that_waits_begins_at_once_when_it_can() {
    let (clock, disk) = killed_in_flux();
    let (mut world, _) = World::open(&clock, &disk);
    let device = world.medium.device(VolumeId(1)).unwrap();
    world.submit(&device, 1, Operation::Flush);
    assert!(world.without_flushes(None).is_none());
    world.submit(&device, 2, Operation::Flush);
    while world.stepper.due().is_some_and(|due| due <= clock.now()) || !disk.pending().is_empty() {
        world.stepper.turn();
        disk.advance();
    }
    let mut done = 0;
    while done < 2 {
        match world.io.poll() {
            Some(completion) => completion.result.map(|()| done += 1).unwrap(),
            None => assert!(world.step(), "{done} flushes are done, and nothing goes on"),
        }
    }
}

/// A drive with a namespace, and two writes to it that wait for the disk: of blocks 2 and 5, which
/// are in flux with those between and beside them.
fn two_writes(seed: u64) -> (Arc<Disk>, World, Arc<dyn Device>) {
    let clock = Clock::simulated(seed);
    let disk = Disk::new(&clock);
    let (mut world, _) = World::open(&clock, &disk);
    let block_format = BlockFormat { checked: true, ..BlockFormat::plain(12) };
    let device = world.on(move |store| store.create(VolumeId(1), 512, 512, block_format)).unwrap();
    for _ in 0..3 {
        world.run(&device, vec![write_blocks(0, 8)]).remove(0).result.unwrap();
    }
    [2, 5].into_iter().for_each(|block| world.submit(&device, block, write_blocks(block, 1)));
    assert_eq!(disk.pending().len(), 2, "they are done without the drive's thread");
    (disk, world, device)
}

fn write_blocks(block: u64, blocks: usize) -> Operation {
    let data = Buffer::zeroed(blocks * BLOCK).into();
    Operation::Write { offset: block * BLOCK as u64, len: blocks * BLOCK, data, fua: false }
}

/// A write of several blocks is done, although others write single ones of them all the time.
#[test]
fn a_write_of_many_blocks_is_not_overtaken_for_ever() {
    let (disk, mut world, device) = two_writes(5);
    world.submit(&device, 100, write_blocks(0, 8));
    for _ in 0..200 {
        world.stepper.turn();
        disk.advance();
        while let Some(done) = world.io.poll() {
            done.result.unwrap();
            if done.tag == 100 {
                return;
            }
            world.submit(&device, done.tag, write_blocks(done.tag, 1));
        }
    }
    panic!("others overtake it all the time");
}

/// Nobody waits for blocks that a job was refused if it does not ask for them any more, whether it
/// has ended or was no job; and another job's success is its own.
#[test]
fn only_who_asks_again_keeps_its_place() {
    fn read(store: &mut Store, first: u64, blocks: usize) -> Result<(), Class> {
        let len = blocks * BLOCK;
        let operation = Operation::Read { offset: first * BLOCK as u64, len, data: Buffer::zeroed(len).into() };
        store.execute(VolumeId(1), operation).result.map_err(|error| error.class())
    }
    /// Asks for the blocks that are written, and ends.
    struct GivesUp;
    impl Job for GivesUp {
        fn step(&mut self, store: &mut Store) -> Progress {
            assert_eq!(read(store, 0, 8), Err(Class::Busy));
            Progress::Done
        }
    }
    /// The same, and waits.
    struct Waits(bool);
    impl Job for Waits {
        fn step(&mut self, store: &mut Store) -> Progress {
            if !std::mem::replace(&mut self.0, true) {
                assert_eq!(read(store, 0, 8), Err(Class::Busy));
            }
            Progress::Later(1_000_000)
        }
    }
    /// Reads others.
    struct Other;
    impl Job for Other {
        fn step(&mut self, store: &mut Store) -> Progress {
            assert_eq!(read(store, 16, 1), Ok(()));
            Progress::Done
        }
    }

    // Whether a new write beside those that are under way begins without the drive's thread.
    let begins = |world: &mut World, device: &Arc<dyn Device>, disk: &Disk| {
        let before = disk.pending().len();
        world.submit(device, 3, write_blocks(3, 1));
        disk.pending().len() > before
    };
    for (work, waits) in [(0, false), (1, false), (2, true)] {
        let (disk, mut world, device) = two_writes(7);
        world.medium.run(Box::new(move |store| match work {
            0 => store.start(Box::new(GivesUp)),
            1 => assert_eq!(read(store, 0, 8), Err(Class::Busy)),
            _ => {
                store.start(Box::new(Waits(false)));
                store.start(Box::new(Other));
            }
        }));
        for _ in 0..10 {
            world.stepper.turn();
        }
        assert_eq!(begins(&mut world, &device, &disk), !waits, "{work}");
    }
}

/// The same for a job that reads them, as a self-test does, and tries again while they are written.
#[test]
fn a_job_is_not_overtaken_for_ever() {
    struct Reader(mpsc::Sender<()>);
    impl Job for Reader {
        fn step(&mut self, store: &mut Store) -> Progress {
            let operation = Operation::Read { offset: 0, len: 8 * BLOCK, data: Buffer::zeroed(8 * BLOCK).into() };
            match store.execute(VolumeId(1), operation).result.map_err(|error| error.class()) {
                Err(Class::Busy) => return Progress::Later(1),
                result => result.unwrap(),
            }
            self.0.send(()).unwrap();
            Progress::Done
        }
    }

    let (disk, mut world, device) = two_writes(6);
    let (sender, done) = mpsc::channel();
    world.medium.run(Box::new(|store| store.start(Box::new(Reader(sender)))));
    for _ in 0..200 {
        world.stepper.turn();
        if done.try_recv().is_ok() {
            // Whoever has waited for it comes next, and then nobody waits.
            while world.io.in_flight() > 0 {
                assert!(world.io.poll().is_some() || world.go_on(), "requests are never done");
            }
            world.submit(&device, 5, write_blocks(5, 1));
            assert_eq!(disk.pending().len(), 1, "it is done without the drive's thread");
            return;
        }
        disk.advance();
        while let Some(done) = world.io.poll() {
            done.result.unwrap();
            world.submit(&device, done.tag, write_blocks(done.tag, 1));
        }
        world.clock.advance(Duration::from_millis(1));
    }
    panic!("others overtake it all the time");
}
