//! Reports about a backing device that fails, and works again.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebof_backend::{Action, Class, Device, Error, Geometry, Io, Memory, Operation, Request, Submitted};
use ebof_drive::layout::Layout;
use ebof_medium::{BackingFault, BlockFormat, Medium, Notice, Notify, Options, VolumeId, medium_bytes};

use crate::rig::{Recorder, create, create_coded, on, read, write};

const CAPACITY: u64 = 16 << 20;
const EXTENT: u64 = 256 << 10;

/// A device of which a part can be neither read nor written.
#[derive(Debug)]
struct PartlyDead {
    memory: Memory,
    dead: Mutex<Range<u64>>,
}

impl Device for PartlyDead {
    fn geometry(&self) -> Geometry {
        Geometry { volatile_cache: true, ..self.memory.geometry() }
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        let (action, class) = match &request.operation {
            Operation::Read { .. } => (Action::Read, Class::MediumRead),
            _ => (Action::Write, Class::MediumWrite),
        };
        let (offset, len) = match &request.operation {
            Operation::Read { offset, len, .. } | Operation::Write { offset, len, .. } => (*offset, *len as u64),
            _ => return self.memory.submit(io, request),
        };
        let dead = self.dead.lock().unwrap().clone();
        // The pages of tags at the end of each extent are not: two for blocks of 512 bytes.
        let is_page = offset.saturating_sub(dead.start) % EXTENT >= EXTENT - 2 * 4096;
        if offset < dead.end && dead.start < offset + len && !is_page {
            let error = Error::Refused { action, offset, len, class, reason: "as the test wants" };
            return Submitted::Done(request.complete(Err(error)));
        }
        self.memory.submit(io, request)
    }

    fn describe(&self) -> String {
        "a device with a dead region".to_owned()
    }
}

fn open_partly_dead(base: &Arc<PartlyDead>) -> Medium {
    let options = Options { create: Some(2 * CAPACITY), zeroed: true, ..Options::default() };
    ebof_medium::open(Arc::clone(base) as Arc<dyn Device>, options).unwrap().medium
}

#[test]
fn a_dead_region_that_is_written_again_and_again_does_not_stop_the_drive() {
    let memory = Memory::new(medium_bytes(2 * CAPACITY).unwrap(), 512, false);
    let base = Arc::new(PartlyDead { memory, dead: Mutex::new(0..0) });
    let medium = open_partly_dead(&base);
    let mut io = Io::new(8).unwrap();
    let small = BlockFormat { checked: true, ..BlockFormat::plain(9) };
    let (victim, other) = (create_coded(&medium, 1, 24 << 10, small), create_coded(&medium, 2, 4096, small));
    for mib in 0..12 {
        write(&victim, &mut io, mib << 20, &[1; 1 << 20]).unwrap();
    }
    write(&other, &mut io, 0, &[1; 1 << 20]).unwrap();

    // All of it, in extents one behind the other.
    let layout = Layout::new(2 * CAPACITY, [0; 16]).unwrap();
    let extents = u32::try_from(small.extents(24 << 10, EXTENT)).unwrap();
    *base.dead.lock().unwrap() = layout.data()..layout.extent(extents);
    for byte in 2..9 {
        for mib in 0..12 {
            assert_eq!(write(&victim, &mut io, mib << 20, &[byte; 1 << 20]), Err(Class::MediumWrite));
        }
        write(&other, &mut io, 512 << 10, &[byte; 1 << 20]).unwrap();
        on(&medium, move |store| store.commit(&[&[byte; 100]])).unwrap();
    }
    drop((victim, other));
    medium.stop();

    // It works again: nobody reads what was never written, and a write mends what is damaged.
    *base.dead.lock().unwrap() = 0..0;
    let medium = open_partly_dead(&base);
    let (victim, other) = (medium.device(VolumeId(1)).unwrap(), medium.device(VolumeId(2)).unwrap());
    assert_eq!(read(&other, &mut io, 512 << 10, 1 << 20), Ok(vec![8; 1 << 20]));
    let mut found = [0, 0];
    for block in 0..24 << 10 {
        match read(&victim, &mut io, block * 512, 512) {
            Ok(data) => {
                assert_eq!(data, [1; 512], "block {block}");
                found[0] += 1;
            }
            Err(class) => {
                assert_eq!(class, Class::MediumRead, "block {block}");
                found[1] += 1;
            }
        }
    }
    assert!(found[0] >= 16384 - 2048 && found[1] > 0, "{found:?}");
    for mib in 0..12 {
        write(&victim, &mut io, mib << 20, &[9; 1 << 20]).unwrap();
        assert_eq!(read(&victim, &mut io, mib << 20, 1 << 20), Ok(vec![9; 1 << 20]));
    }
    medium.stop();
}

#[test]
fn a_device_that_cannot_write_is_reported_once_until_it_can() {
    let told: Arc<Mutex<Vec<Notice>>> = Arc::default();
    let notices = Arc::clone(&told);
    let notify = Notify(Arc::new(move |notice| notices.lock().unwrap().push(notice)));
    let options = Options { create: Some(CAPACITY), zeroed: true, notify: Some(notify), ..Options::default() };
    let base = Arc::new(Recorder::new(medium_bytes(CAPACITY).unwrap()));
    let opened = ebof_medium::open(Arc::clone(&base) as Arc<dyn ebof_backend::Device>, options).unwrap();
    let device = create(&opened.medium, 1, CAPACITY);
    let mut io = Io::new(8).unwrap();
    write(&device, &mut io, 0, &[7; 4096]).unwrap();
    let until = |wanted: Notice| {
        let end = Instant::now() + Duration::from_secs(30);
        while !told.lock().unwrap().contains(&wanted) {
            assert!(Instant::now() < end, "{wanted:?}");
            std::thread::yield_now();
        }
    };
    for _ in 0..2 {
        base.fail_after(0);
        for _ in 0..50 {
            // To a mapped extent, without the drive's thread; and to an unmapped one.
            assert_eq!(write(&device, &mut io, 0, &[8; 4096]), Err(Class::MediumWrite));
            assert_eq!(write(&device, &mut io, 1 << 20, &[8; 4096]), Err(Class::MediumWrite));
        }
        assert_eq!(read(&device, &mut io, 0, 4096), Ok(vec![7; 4096]));
        until(Notice::Fails(BackingFault::Write));
        assert!(!told.lock().unwrap().contains(&Notice::Works(BackingFault::Write)));
        base.heal();
        until(Notice::Works(BackingFault::Write));
        assert_eq!(write(&device, &mut io, 1 << 20, &[9; 4096]), Ok(()));
        crate::rig::deallocate(&device, &mut io, 1 << 20, 1 << 20).unwrap();
        let told = std::mem::take(&mut *told.lock().unwrap());
        let count = |wanted: &Notice| told.iter().filter(|notice| *notice == wanted).count();
        assert_eq!(
            (count(&Notice::Fails(BackingFault::Write)), count(&Notice::Works(BackingFault::Write))),
            (1, 1),
            "{told:?}"
        );
    }
    // Failed attempts have left nothing behind.
    assert_eq!(write(&device, &mut io, 0, &[1; 4096]), Ok(()));
    for extent in 0..CAPACITY / (256 << 10) {
        assert_eq!(read(&device, &mut io, extent * (256 << 10) + 4096, 4096), Ok(vec![0; 4096]));
        write(&device, &mut io, extent * (256 << 10), &[3; 4096]).unwrap();
    }
    opened.medium.stop();
}
