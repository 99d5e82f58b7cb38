//! Drives in real files: a full file system, a truncated file. Errors are correct, and everything
//! works again when the cause is gone.

use std::sync::{Arc, Mutex};

use ebof_backend::{Class, Io};
use ebof_medium::{BackingFault, Notice, Notify, Opened, Options, VolumeId, medium_bytes};

use crate::rig::{create, deallocate, on, read, write};

const EXTENT: u64 = 256 << 10;
const CAPACITY: u64 = 256 << 20;

fn open(path: &std::path::Path, told: &Arc<Mutex<Vec<Notice>>>) -> Opened {
    let spec = format!("{},size={}", path.display(), medium_bytes(CAPACITY).unwrap()).parse().unwrap();
    let notices = Arc::clone(told);
    let notify = Notify(Arc::new(move |notice| notices.lock().unwrap().push(notice)));
    let options = Options { create: Some(CAPACITY), zeroed: true, notify: Some(notify), ..Options::default() };
    // A process that another test starts has the lock of every file for the moment between fork and
    // exec.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let backing = loop {
        match ebof_backend::open(&spec) {
            Err(ebof_backend::OpenError::Locked { .. }) if std::time::Instant::now() < end => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    ebof_medium::open(backing, options).unwrap()
}

#[test]
fn a_full_file_system_stops_writes_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"])
        .arg(directory.path())
        .stderr(std::process::Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("SKIPPED: no permission to mount a small file system");
        return;
    }
    let result = std::panic::catch_unwind(|| {
        let told = Arc::default();
        let opened = open(&directory.path().join("drive.img"), &told);
        let mut io = Io::new(8).unwrap();
        let device = create(&opened.medium, 1, CAPACITY);
        let mut written = 0;
        while write(&device, &mut io, written * EXTENT, &vec![7; 256 << 10]).is_ok() {
            written += 1;
        }
        assert_eq!(write(&device, &mut io, written * EXTENT, &vec![7; 256 << 10]), Err(Class::OutOfSpace));
        assert!(written > 40, "{written} extents found room");
        // Changes, reads, and writes to mapped extents still work.
        on(&opened.medium, |store| store.commit(&[&[1; 100_000]])).unwrap();
        assert_eq!(read(&device, &mut io, 0, 4096), Ok(vec![7; 4096]));
        assert_eq!(write(&device, &mut io, 4096, &[8; 4096]), Ok(()));
        // Freed space can be used when the thread has processed it.
        deallocate(&device, &mut io, 0, 20 * EXTENT).unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while let Err(class) = write(&device, &mut io, (written + 5) * EXTENT, &vec![9; 256 << 10]) {
            assert_eq!(class, Class::OutOfSpace);
            assert!(std::time::Instant::now() < end, "no room after 5 MiB were given back");
            std::thread::yield_now();
        }
        assert_eq!(read(&device, &mut io, (written - 1) * EXTENT, 4096), Ok(vec![7; 4096]));
        opened.medium.stop();
        let told = told.lock().unwrap();
        assert_eq!(told.first(), Some(&Notice::Fails(BackingFault::Space)));
        assert!(!told.iter().any(|notice| matches!(notice, Notice::Full(_))), "the drive itself has room: {told:?}");
    });
    let unmounted = std::process::Command::new("umount").arg("-l").arg(directory.path()).status();
    assert!(unmounted.unwrap().success());
    result.unwrap();
}

#[test]
fn a_truncated_file_is_an_error_until_it_is_restored() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.img");
    let told = Arc::default();
    let opened = open(&path, &told);
    let mut io = Io::new(8).unwrap();
    let device = create(&opened.medium, 1, CAPACITY);
    write(&device, &mut io, 0, &vec![7; 1 << 20]).unwrap();
    let whole = std::fs::metadata(&path).unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(whole - CAPACITY + EXTENT).unwrap();
    assert_eq!(read(&device, &mut io, 0, 4096), Ok(vec![7; 4096]));
    assert_eq!(read(&device, &mut io, EXTENT, 4096), Err(Class::MediumRead));
    // Requests across extents go to the drive's thread.
    assert_eq!(read(&device, &mut io, EXTENT - 4096, 8192), Err(Class::MediumRead));
    on(&opened.medium, |store| store.commit(&[b"still there"])).unwrap();
    file.set_len(whole).unwrap();
    assert_eq!(
        read(&device, &mut io, EXTENT, 4096),
        Ok(vec![0; 4096]),
        "what was cut off is gone, and no error any more"
    );
    write(&device, &mut io, EXTENT, &[8; 4096]).unwrap();
    assert_eq!(read(&device, &mut io, EXTENT, 4096), Ok(vec![8; 4096]));
    opened.medium.stop();
    // The handles of namespaces and of the drive keep the file open.
    drop((device, opened));
    assert_eq!(open(&path, &told).medium.volumes(), [VolumeId(1)]);
}
