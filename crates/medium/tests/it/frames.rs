//! Frames of the journal: that many of them are read again, and that those do not count which a
//! failed write has left behind its end.

use std::sync::{Arc, mpsc};

use ebof_backend::{Device, Geometry, Io, Memory, Operation, Request, Submitted};
use ebof_drive::layout::Layout;
use ebof_medium::{BlockFormat, Error, OpenError, Opened, Options, Store, VolumeId, medium_bytes};

use crate::journal::{flipped, raw};
use crate::rig::{Event, Faults, Recorder, create, drive, flush, kill, kill_when_clean, on, open, read, write};

const EXTENT: u64 = 256 << 10;

/// A drive whose device has what is on this one now.
fn after_a_kill(base: &Arc<Recorder>, capacity: u64) -> Opened {
    let events = base.events.lock().unwrap().clone();
    open(&Arc::new(Recorder::with(capacity, &events)), None)
}

/// Changes a bit of the byte at `at`.
fn flip(base: &Arc<Recorder>, at: u64) {
    let (begin, bytes) = flipped(base, at);
    write(&(Arc::clone(base) as Arc<dyn Device>), &mut Io::new(1).unwrap(), begin, &bytes).unwrap();
}

/// More frames than are read at a time.
#[test]
fn a_journal_of_many_frames_is_read_as_a_whole() {
    const CAPACITY: u64 = 600 * EXTENT;
    let (base, opened) = drive(CAPACITY);
    let device = create(&opened.medium, 1, CAPACITY);
    let mut io = Io::new(1).unwrap();
    for index in 0..600_u64 {
        write(&device, &mut io, index * EXTENT, &[index.to_le_bytes()[0]; 4096]).unwrap();
    }
    flush(&device, &mut io).unwrap();
    on(&opened.medium, Store::check).unwrap();
    drop(device);
    kill(opened.medium);
    let again = after_a_kill(&base, CAPACITY);
    let device = again.medium.device(VolumeId(1)).unwrap();
    for index in 0..600_u64 {
        let expected = vec![index.to_le_bytes()[0]; 4096];
        assert_eq!(read(&device, &mut io, index * EXTENT, 4096), Ok(expected), "extent {index}");
    }
}

/// The journal goes on over the first frame of a group that could not be written; what was written
/// of the others all the same is of another incarnation, and no continuation.
#[test]
fn frames_that_a_failed_write_leaves_do_not_count() {
    const CAPACITY: u64 = 512 * EXTENT;
    let (base, opened) = drive(CAPACITY);
    let device = create(&opened.medium, 1, CAPACITY);
    let mut io = Io::new(256).unwrap();
    // Apart, so that each is unmapped by a record of its own: more than a frame has room for.
    let offsets = || (0..256).map(|index| 2 * index * EXTENT);
    for offset in offsets() {
        write(&device, &mut io, offset, &[0x11; 4096]).unwrap();
    }
    flush(&device, &mut io).unwrap();

    // All in one batch: the thread of the drive is busy while they come.
    let ((is_busy, arrived), (go_on, waits)) = (mpsc::channel(), mpsc::channel());
    opened.medium.run(Box::new(move |_| {
        is_busy.send(()).unwrap();
        waits.recv().unwrap();
    }));
    arrived.recv().unwrap();
    for offset in offsets() {
        let operation = Operation::Deallocate { ranges: std::iter::once(offset..offset + EXTENT).collect() };
        assert!(matches!(device.submit(&mut io, Request::new(offset, operation)), Submitted::Pending));
    }
    base.plan(Faults { after: 0, count: 1, done: true });
    let events = base.events.lock().unwrap().len();
    go_on.send(()).unwrap();
    for _ in offsets() {
        io.wait(None).unwrap().unwrap().result.unwrap_err();
    }
    let is_group =
        |event: &Event| matches!(event, Event::Write(_, bytes) if bytes.starts_with(b"EBOFJRN1") && bytes.len() > 4096);
    assert!(base.events.lock().unwrap()[events..].iter().any(is_group), "it has one frame only");

    // No write to a mapped extent completes before the drive has settled its journal; a flush, and
    // what is asked of an idle drive, do. Then it is killed.
    write(&device, &mut io, 0, &[0x11; 4096]).unwrap();
    flush(&device, &mut io).unwrap();
    drop(device);
    kill_when_clean(opened.medium);
    let again = after_a_kill(&base, CAPACITY);
    let device = again.medium.device(VolumeId(1)).unwrap();
    for offset in offsets() {
        assert_eq!(read(&device, &mut io, offset, 4096), Ok(vec![0x11; 4096]), "at {offset}");
    }
}

/// What an open drive has written of its own state is read and compared.
#[test]
fn the_state_of_an_open_drive_is_checked() {
    const CAPACITY: u64 = 4 << 20;
    let (base, opened) = drive(CAPACITY);
    let device = create(&opened.medium, 1, 1 << 20);
    let mut io = Io::new(1).unwrap();
    write(&device, &mut io, 0, &[0x11; 4096]).unwrap();
    write(&device, &mut io, EXTENT, &[0x11; 4096]).unwrap();
    flush(&device, &mut io).unwrap();
    let check = || on(&opened.medium, Store::check);
    check().unwrap();

    let layout = Layout::new(CAPACITY, [0; 16]).unwrap();
    let (journal, checkpoint) = (layout.journal(1), layout.checkpoint(1));
    let frames = (0..9).take_while(|at| raw(&base, journal + at * 4096, 8) == b"EBOFJRN1").count() as u64;
    assert!(frames >= 2);
    for at in [journal + 70, journal + (frames - 1) * 4096 + 70, checkpoint + 33, checkpoint + 4096] {
        flip(&base, at);
        assert!(matches!(check(), Err(OpenError::Lost { .. })), "{at}");
        flip(&base, at);
        check().unwrap();
    }
    // One superblock is enough.
    flip(&base, 20);
    check().unwrap();
    flip(&base, 4096 + 20);
    assert!(matches!(check(), Err(OpenError::Damaged { .. })));
    flip(&base, 4096 + 20);
    check().unwrap();
}

/// A device with physical blocks of this size.
#[derive(Debug)]
struct Physical(Memory, u32);

impl Device for Physical {
    fn geometry(&self) -> Geometry {
        Geometry { block_bytes: self.1, ..self.0.geometry() }
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        self.0.submit(io, request)
    }

    fn describe(&self) -> String {
        "a device with physical blocks".to_owned()
    }
}

#[test]
fn blocks_are_no_smaller_than_those_of_the_device() {
    for (device_bytes, bits, fits) in [(512, 9, true), (512, 12, true), (4096, 9, false), (4096, 12, true)] {
        let memory = Memory::new(medium_bytes(4 << 20).unwrap(), 512, false);
        let base: Arc<dyn Device> = Arc::new(Physical(memory, device_bytes));
        let options = Options { create: Some(4 << 20), zeroed: true, ..Options::default() };
        let medium = ebof_medium::open(base, options).unwrap().medium;
        let created = on(&medium, move |store| store.create(VolumeId(1), 64, 64, BlockFormat::plain(bits)).map(|_| ()));
        match created {
            Ok(()) => assert!(fits, "{bits} on {device_bytes}"),
            Err(Error::BlockSize { bytes: 512, bytes_min: 4096 }) => assert!(!fits, "{bits} on {device_bytes}"),
            Err(error) => panic!("{error}"),
        }
    }
}
