//! Requests of one namespace to the drive's thread, and how long others wait because of them.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use ebof_backend::{Buffer, Class, Device, Geometry, Io, Memory, Operation, Request, Submitted};
use ebof_medium::{BlockFormat, Medium, Options, VolumeId, medium_bytes};

use crate::rig::{create, create_coded, drive, on, read, run, write};

const EXTENT: u64 = 256 << 10;

/// The drive's thread does nothing until the sender is dropped. It has begun to when this returns:
/// before, it could take a request of the test's first, and what follows would not need it.
fn busy(medium: &Medium) -> mpsc::Sender<()> {
    let (open, gate) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel();
    medium.run(Box::new(move |_| {
        begin.send(()).unwrap();
        _ = gate.recv();
    }));
    begun.recv().unwrap();
    open
}

fn submit(device: &Arc<dyn Device>, io: &mut Io, tag: u64, operation: Operation) {
    assert!(
        matches!(device.submit(io, Request::new(tag, operation)), Submitted::Pending),
        "it is the drive's thread's"
    );
}

fn block(byte: u8) -> Operation {
    let mut buffer = Buffer::zeroed(4096);
    buffer.as_mut_slice().fill(byte);
    Operation::Write { offset: 0, len: 4096, data: buffer.into(), fua: false }
}

/// Every second extent, from the first on.
fn every_second(count: u64) -> Vec<Range<u64>> {
    (0..count).map(|at| at * 2 * EXTENT..(at * 2 + 1) * EXTENT).collect()
}

/// The tags of the completions, in order.
fn order(io: &mut Io, count: usize) -> Vec<u64> {
    let mut order = Vec::new();
    while order.len() < count {
        let done = io.wait(None).expect("an engine").expect("there are more");
        done.result.expect("it goes well");
        order.push(done.tag);
    }
    order
}

// @test data.fair-turns
#[test]
fn a_write_to_another_namespace_does_not_wait_for_earlier_long_requests() {
    let (_base, opened) = drive(1 << 30);
    let medium = &opened.medium;
    let tenants: Vec<_> = (1..=3).map(|number| create(medium, number, 256 << 20)).collect();
    let neighbour = create(medium, 9, 1 << 20);
    let mut io = Io::new(256).unwrap();
    for (device, range) in
        tenants.iter().flat_map(|device| every_second(200).into_iter().map(move |range| (device, range)))
    {
        write(device, &mut io, range.start, &[7; 4096]).unwrap();
    }
    // Everything is queued when the thread begins, the other namespace's request last.
    let gate = busy(medium);
    for (tag, device) in (0..24).zip(tenants.iter().cycle()) {
        submit(device, &mut io, tag, Operation::Deallocate { ranges: every_second(256) });
    }
    submit(&neighbour, &mut io, 100, block(1));
    drop(gate);
    let order = order(&mut io, 25);
    assert_eq!(order[0], 100, "{order:?}");
    assert_eq!(read(&tenants[0], &mut io, 0, 4096).unwrap(), [0; 4096]);
    assert!(tenants.iter().zip(1..).all(|(_, number)| medium.thin(VolumeId(number)).unwrap().allocated_extents() == 0));
}

// @test data.fair-turns
#[test]
fn a_write_to_the_same_namespace_does_not_wait_for_long_requests() {
    let (_base, opened) = drive(1 << 30);
    let device = create(&opened.medium, 1, 512 << 20);
    let mut io = Io::new(64).unwrap();
    let gate = busy(&opened.medium);
    for tag in 0..8 {
        submit(&device, &mut io, tag, Operation::Deallocate { ranges: every_second(256) });
    }
    // Into the extent after the first range.
    let Operation::Write { data, .. } = block(3) else { unreachable!() };
    submit(&device, &mut io, 100, Operation::Write { offset: EXTENT, len: 4096, data, fua: false });
    drop(gate);
    assert_eq!(order(&mut io, 9)[0], 100);
    assert_eq!(read(&device, &mut io, EXTENT, 4096).unwrap(), [3; 4096]);
}

// @test data.fair-turns
#[test]
fn long_requests_of_several_namespaces_take_turns() {
    let (_base, opened) = drive(1 << 30);
    let medium = &opened.medium;
    let (one, other) = (create(medium, 1, 256 << 20), create(medium, 2, 256 << 20));
    let mut io = Io::new(64).unwrap();
    let gate = busy(medium);
    for tag in 0..8 {
        submit(&one, &mut io, tag, Operation::Deallocate { ranges: every_second(256) });
    }
    submit(&other, &mut io, 100, Operation::Deallocate { ranges: every_second(256) });
    drop(gate);
    let order = order(&mut io, 9);
    let at = order.iter().position(|&tag| tag == 100).unwrap();
    assert!(at <= 1, "as soon as the first of the other's: {order:?}");
}

/// Ranges of bytes that overlap, touch, share extents and leave gaps.
fn odd_ranges(size: u64) -> Vec<Range<u64>> {
    let places = (0..250_u64).map(|at| {
        let start = at * 7_919 % (size / 4096) * 4096;
        let len = (1 + at * 31 % 300) * 4096;
        start..(start + len).min(size)
    });
    places.collect()
}

// @test data.long-requests
#[test]
fn long_requests_have_the_same_result_as_short_ones() {
    for (block_format, name) in
        [(BlockFormat::plain(12), "plain"), (BlockFormat { checked: true, ..BlockFormat::plain(12) }, "checksums")]
    {
        let (_base, opened) = drive(256 << 20);
        let size = 48_u64 << 20;
        let device = create_coded(&opened.medium, 1, size / 4096, block_format);
        let mut io = Io::new(64).unwrap();
        let fill = |io: &mut Io| {
            for at in 0..size / (1 << 20) {
                write(&device, io, at << 20, &vec![u8::try_from(at + 1).unwrap(); 1 << 20]).unwrap();
            }
        };
        let check = |io: &mut Io, what: &str, is_zero: &dyn Fn(u64) -> bool| {
            for at in 0..size >> 20 {
                let bytes = read(&device, io, at << 20, 1 << 20).unwrap();
                for (block, bytes) in (at << 8..).zip(bytes.chunks(4096)) {
                    let expected = if is_zero(block * 4096) { 0 } else { u8::try_from(at + 1).unwrap() };
                    assert!(bytes.iter().all(|byte| *byte == expected), "{name}, {what}: block {block}");
                }
            }
        };
        fill(&mut io);
        let ranges = odd_ranges(size);
        run(&device, &mut io, Operation::Deallocate { ranges: ranges.clone() }).result.unwrap();
        check(&mut io, "deallocate", &|at| ranges.iter().any(|range| range.contains(&at)));
        for deallocate in [true, false] {
            fill(&mut io);
            let (offset, len) = (3 * 4096, size - 9 * 4096);
            run(&device, &mut io, Operation::WriteZeroes { offset, len, deallocate, fua: true }).result.unwrap();
            check(&mut io, "write zeroes", &|at| (offset..offset + len).contains(&at));
        }
        // A range may start and end within the namespace's last extent.
        fill(&mut io);
        run(&device, &mut io, Operation::Deallocate { ranges: vec![0..size; 256] }).result.unwrap();
        check(&mut io, "all of it", &|_| true);
        assert_eq!(opened.medium.thin(VolumeId(1)).unwrap().allocated_extents(), 0, "{name}");
    }
}

#[test]
fn a_namespace_is_removed_and_the_thread_stopped_during_a_long_request() {
    let (base, opened) = drive(256 << 20);
    let device = create(&opened.medium, 1, 128 << 20);
    let mut io = Io::new(8).unwrap();
    let gate = busy(&opened.medium);
    submit(&device, &mut io, 1, Operation::Deallocate { ranges: every_second(256) });
    opened.medium.run(Box::new(|store| store.remove(VolumeId(1)).unwrap()));
    drop(gate);
    let done = io.wait(None).unwrap().expect("it ends");
    assert_eq!((done.tag, done.result.unwrap_err().class()), (1, Class::Gone));
    let device = create(&opened.medium, 2, 128 << 20);
    write(&device, &mut io, 0, &[7; 4096]).unwrap();
    let gate = busy(&opened.medium);
    submit(&device, &mut io, 2, Operation::Deallocate { ranges: every_second(256) });
    let medium = opened.medium.clone();
    let ending = std::thread::spawn(move || medium.stop());
    drop(gate);
    let done = io.wait(None).unwrap().expect("it ends");
    // Requests that were queued before the stop are executed.
    assert!(done.result.is_ok());
    ending.join().unwrap();
    drop(base);
}

/// How long another namespace's first write waits for eight requests of 256 ranges, each of the
/// whole namespace of 1 TiB.
// @test data.fair-turns
#[test]
fn discards_of_a_tebibyte_do_not_delay_another_namespace() {
    let capacity = 2_u64 << 40;
    let directory = tempfile::tempdir().unwrap();
    let spec = format!("{}/large.img,size={}", directory.path().display(), medium_bytes(capacity).unwrap());
    let base = match ebof_backend::open(&spec.parse().unwrap()) {
        Ok(base) => base,
        Err(error) => return println!("SKIPPED: no file of 2 TiB here: {error}"),
    };
    let options = Options { create: Some(capacity), zeroed: true, ..Options::default() };
    let opened = ebof_medium::open(base, options).unwrap();
    let (tenant, neighbour) = (create(&opened.medium, 1, 1 << 40), create(&opened.medium, 2, 1 << 30));
    let mut io = Io::new(64).unwrap();
    for extent in 0..64 {
        write(&tenant, &mut io, extent << 34, &[7; 4096]).unwrap();
    }
    let gate = busy(&opened.medium);
    for tag in 0..8 {
        submit(&tenant, &mut io, tag, Operation::Deallocate { ranges: vec![0..1 << 40; 256] });
    }
    submit(&neighbour, &mut io, 100, block(1));
    drop(gate);
    let begin = Instant::now();
    let mut waited = None;
    for _ in 0..9 {
        let done = io.wait(None).unwrap().expect("there are more");
        done.result.unwrap();
        if done.tag == 100 {
            waited = Some(begin.elapsed());
        }
    }
    let waited = waited.unwrap();
    println!("the neighbour waited {waited:?}, all took {:?}", begin.elapsed());
    // Tests are built without most optimization, and share the machine.
    assert!(waited.as_secs() < 3, "{waited:?}");
    assert_eq!(opened.medium.thin(VolumeId(1)).unwrap().allocated_extents(), 0);
    opened.medium.stop();
}

/// A device in memory that does not store data.
#[derive(Debug)]
struct Forgetful {
    below: Memory,
    data_from: u64,
}

impl Device for Forgetful {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        match &request.operation {
            Operation::Write { offset, .. } | Operation::WriteZeroes { offset, .. } if *offset >= self.data_from => {
                Submitted::Done(request.complete(Ok(())))
            }
            _ => self.below.submit(io, request),
        }
    }

    fn describe(&self) -> String {
        "a forgetful device".to_owned()
    }
}

/// A removed namespace loses its extents in parts, with turns of others in between.
#[test]
fn removing_a_large_namespace_in_parts_delays_others_little() {
    let (capacity, extents) = (16_u64 << 30, 60_000);
    let bytes = medium_bytes(capacity).unwrap();
    let base = Forgetful { below: Memory::new(bytes, 512, false), data_from: bytes - capacity };
    let options = Options { create: Some(capacity), zeroed: true, ..Options::default() };
    let opened = ebof_medium::open(Arc::new(base), options).unwrap();
    let medium = &opened.medium;
    let used = |medium: &Medium| medium.capacity().used_bytes / EXTENT;
    let device = create(medium, 1, capacity);
    let mut io = Io::new(256).unwrap();
    // Each of these writes lies in two extents.
    for some in (0..extents / 2).collect::<Vec<u64>>().chunks(200) {
        for &at in some {
            let offset = (at * 2 + 1) * EXTENT - 2048;
            let write = Operation::Write { offset, len: 4096, data: Buffer::zeroed(4096).into(), fua: false };
            submit(&device, &mut io, at, write);
        }
        order(&mut io, some.len());
    }
    assert_eq!(used(medium), extents);
    // Requests queued before the thread begins are executed in turns. First a slice of a request.
    let thin = medium.thin(VolumeId(1)).unwrap();
    let (gate, (sender, slices)) = (busy(medium), mpsc::channel());
    let zero = Operation::WriteZeroes { offset: 0, len: 10_000 * EXTENT, deallocate: true, fua: false };
    submit(&device, &mut io, 1, zero);
    for _ in 0..10 {
        let (sender, thin) = (sender.clone(), Arc::clone(&thin));
        medium.run(Box::new(move |_| sender.send(thin.allocated_extents()).unwrap()));
    }
    drop(gate);
    let slices: Vec<u32> = std::iter::once(60_000).chain(slices.iter().take(10)).collect();
    // The first may be done before the thread waits.
    assert!(slices.windows(2).all(|pair| pair[0] - pair[1] <= 2 * 1024), "{slices:?}");
    order(&mut io, 1);
    assert_eq!(u64::from(thin.allocated_extents()), extents - 10_000);
    while on(medium, |store| store.unclean()) > 0 {}
    let extents = extents - 10_000;
    let gate = busy(medium);
    let (sender, turns) = mpsc::channel();
    medium.run(Box::new(|store| store.remove(VolumeId(1)).unwrap()));
    for _ in 0..20 {
        let (sender, medium) = (sender.clone(), medium.clone());
        medium.clone().run(Box::new(move |store| sender.send((used(&medium), store.unclean())).unwrap()));
    }
    drop(gate);
    let turns: Vec<(u64, u32)> = turns.iter().take(20).collect();
    for pair in turns.windows(2) {
        assert!(pair[0].0 - pair[1].0 <= 10_000, "{turns:?}");
    }
    assert!(turns[0].0 > extents - 20_000 && turns[19].0 == 0, "{turns:?}");
    // Until everything is zeroed, the work is remembered.
    assert!(turns[0].1 > 40_000, "{turns:?}");
    // Removed data are not on the medium, even if the removal was the last event.
    let again = create(medium, 1, capacity);
    submit(&again, &mut io, 1, block(1));
    order(&mut io, 1);
    medium.run(Box::new(|store| store.remove(VolumeId(1)).unwrap()));
    medium.stop();
}

/// A device whose driver panics.
#[derive(Debug)]
struct Broken {
    below: Arc<dyn Device>,
    is_armed: AtomicBool,
}

impl Device for Broken {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        assert!(!self.is_armed.load(Ordering::SeqCst), "a test wants it");
        self.below.submit(io, request)
    }

    fn describe(&self) -> String {
        "a broken device".to_owned()
    }
}

/// Tells the test that it is the process that is to end.
const CHILD: &str = "EBOF_TEST_CHILD";

/// The state in memory may differ from the journal after a panic, and callers would wait for ever:
/// a supervisor restarts the process.
#[test]
fn a_panic_of_the_drives_thread_in_the_middle_of_requests_ends_the_process() {
    if std::env::var_os(CHILD).is_none() {
        let name = "neighbours::a_panic_of_the_drives_thread_in_the_middle_of_requests_ends_the_process";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
        let abort = rustix::process::Signal::ABORT.as_raw();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(abort), "{told}");
        return;
    }
    let below: Arc<dyn Device> = Arc::new(Memory::new(medium_bytes(64 << 20).unwrap(), 512, false));
    let base = Arc::new(Broken { below, is_armed: AtomicBool::new(false) });
    let options = Options { create: Some(64 << 20), zeroed: true, ..Options::default() };
    let opened = ebof_medium::open(Arc::clone(&base) as Arc<dyn Device>, options).unwrap();
    let device = create(&opened.medium, 1, 32 << 20);
    let mut io = Io::new(64).unwrap();
    let gate = busy(&opened.medium);
    for tag in 0..4 {
        submit(&device, &mut io, tag, block(1));
    }
    submit(&device, &mut io, 4, Operation::Deallocate { ranges: every_second(32) });
    base.is_armed.store(true, Ordering::SeqCst);
    drop(gate);
    // A time limit, in case nothing ends the process: the parent notices that.
    std::thread::sleep(std::time::Duration::from_secs(20));
}
