//! Reports about a backing device that fails, and works again.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebof_backend::{Class, Io};
use ebof_medium::{BackingFault, Notice, Notify, Options, medium_bytes};

use crate::rig::{Recorder, create, read, write};

const CAPACITY: u64 = 16 << 20;

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
