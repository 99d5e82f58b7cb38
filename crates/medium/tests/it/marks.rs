//! Marks: a Flush of a namespace completes only when the journal's records about it are marked as
//! flushed, also if it comes while the drive's thread is still busy with the request that they are
//! of. And the header of a checkpoint, which is a mark of its body.

use std::sync::{Arc, Mutex, mpsc};

use ebof_backend::{Buffer, Device, Geometry, Io, Operation, Request, Submitted};
use ebof_drive::layout::JOURNAL_BYTES;
use ebof_medium::{Options, VolumeId, medium_bytes};

use crate::rig::{Event, MARKS, Recorder, create, drive, flush, kill, read, write};

const CAPACITY: u64 = 4 << 20;
/// Where the journals are.
const JOURNALS: std::ops::Range<u64> = MARKS.end..MARKS.end + 2 * JOURNAL_BYTES;

/// A device on which the first write of these bytes waits.
#[derive(Debug)]
struct Gate {
    base: Arc<Recorder>,
    byte: u8,
    /// Says that it has come, and lets it go on.
    ends: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>,
}

impl Device for Gate {
    fn geometry(&self) -> Geometry {
        self.base.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        if let Operation::Write { data, .. } = &request.operation
            && data.as_buffer().is_some_and(|buffer| buffer.as_slice().iter().all(|byte| *byte == self.byte))
            && let Some((arrived, go_on)) = self.ends.lock().unwrap().take()
        {
            arrived.send(()).unwrap();
            go_on.recv().unwrap();
        }
        self.base.submit(io, request)
    }

    fn describe(&self) -> String {
        "a device with a gate".to_owned()
    }
}

#[test]
fn a_flush_beside_the_first_write_of_an_extent_writes_a_mark() {
    let base = Arc::new(Recorder::new(medium_bytes(CAPACITY).unwrap()));
    let (arrived, at_gate) = mpsc::channel();
    let (open_gate, go_on) = mpsc::channel();
    let gate = Gate { base: Arc::clone(&base), byte: 0x11, ends: Mutex::new(Some((arrived, go_on))) };
    let options = Options { create: Some(CAPACITY), zeroed: true, ..Options::default() };
    let medium = ebof_medium::open(Arc::new(gate), options).unwrap().medium;
    let device = create(&medium, 1, 1 << 20);
    let (mut first, mut second) = (Io::new(1).unwrap(), Io::new(1).unwrap());

    // Everything so far is marked.
    write(&device, &mut first, 512 << 10, &[0x33; 4096]).unwrap();
    flush(&device, &mut first).unwrap();

    // The extent is mapped, and its first data are on their way.
    let mut data = Buffer::zeroed(4096);
    data.as_mut_slice().fill(0x11);
    let operation = Operation::Write { offset: 0, len: 4096, data: data.into(), fua: false };
    assert!(matches!(device.submit(&mut first, Request::new(1, operation)), Submitted::Pending));
    at_gate.recv().unwrap();

    // Another write to the extent, which the drive's thread has no part in, and a Flush.
    write(&device, &mut second, 8192, &[0x22; 4096]).unwrap();
    let flushed = device.submit(&mut second, Request::new(2, Operation::Flush));
    let is_done = matches!(flushed, Submitted::Done(_));
    let events_then = base.events.lock().unwrap().clone();
    open_gate.send(()).unwrap();
    let events = if is_done {
        events_then
    } else {
        second.wait(None).unwrap().unwrap().result.unwrap();
        base.events.lock().unwrap().clone()
    };
    let last = |range: std::ops::Range<u64>| {
        let is_in = |event: &Event| matches!(event, Event::Write(at, _) | Event::Durable(at, _) if range.contains(at));
        events.iter().rposition(is_in)
    };
    let (record, mark) = (last(JOURNALS).unwrap(), last(MARKS).unwrap());
    assert!(record < mark, "the Flush is complete, but the record of the extent has no mark");
    assert!(events[record..mark].iter().any(|event| matches!(event, Event::Flush)));
    first.wait(None).unwrap().unwrap().result.unwrap();
    medium.stop();
}

/// Power loss may leave the header of a checkpoint, and nothing else of what was not flushed before
/// it: neither the end of the journal that it replaces nor, without a flush, its own body.
#[test]
fn a_checkpoint_has_its_body_where_power_loss_leaves_its_header() {
    let (base, opened) = drive(CAPACITY);
    let device = create(&opened.medium, 1, 1 << 20);
    let mut io = Io::new(1).unwrap();
    write(&device, &mut io, 0, &[0x11; 4096]).unwrap();
    flush(&device, &mut io).unwrap();
    // The record of this extent is not flushed.
    write(&device, &mut io, 512 << 10, &[0x22; 4096]).unwrap();
    drop(device);
    opened.medium.stop();

    let events = base.events.lock().unwrap().clone();
    let is_header = |event: &Event| matches!(event, Event::Write(_, bytes) if bytes.starts_with(b"EBOFCHK1"));
    let header = events.iter().rposition(is_header).unwrap();
    let flushed = events[..header].iter().rposition(|event| matches!(event, Event::Flush)).unwrap();
    let left = [&events[..=flushed], &events[header..=header]].concat();
    let base = Arc::new(Recorder::with(CAPACITY, &left));
    let again = ebof_medium::open(base, Options { zeroed: true, ..Options::default() }).unwrap();
    let device = again.medium.device(VolumeId(1)).unwrap();
    assert_eq!(read(&device, &mut io, 0, 4096), Ok(vec![0x11; 4096]));
}

/// What `kill` promises: other tests open the same device again at once.
#[test]
fn nothing_of_a_killed_drive_reaches_its_device() {
    let (base, opened) = drive(CAPACITY);
    let device = create(&opened.medium, 1, 1 << 20);
    write(&device, &mut Io::new(1).unwrap(), 0, &[0x11; 4096]).unwrap();
    drop(device);
    kill(opened.medium);
    let events = base.events.lock().unwrap().len();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(base.events.lock().unwrap().len(), events);
}
