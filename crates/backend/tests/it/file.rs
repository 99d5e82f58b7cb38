//! Properties of an open file: its identity, whether it has requests in progress, its new size.

use std::fs::File;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

use ebof_backend::{Buffer, Device, Engine, Io, Operation, Request, Spec, Submitted, id, open};

fn file(bytes: u64) -> (tempfile::TempDir, std::path::PathBuf, Arc<dyn Device>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    File::create(&path).unwrap().set_len(bytes).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let device = open(&Spec::path(&path)).unwrap();
    (directory, path, device)
}

fn set_len(path: &std::path::Path, bytes: u64) {
    File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_file_is_recognised_by_any_path() {
    let (directory, path, device) = file(1 << 20);
    let (link, hard, other) = (directory.path().join("l"), directory.path().join("h"), directory.path().join("o"));
    symlink(&path, &link).unwrap();
    std::fs::hard_link(&path, &hard).unwrap();
    File::create(&other).unwrap();
    let own = device.persistent().unwrap().id();
    assert!(own.is_some() && [&path, &link, &hard].iter().all(|path| id(&Spec::path(path)) == own));
    assert!(id(&Spec::path(&other)) != own);
    assert_eq!(id(&Spec::path(directory.path().join("nothing"))), None);
    assert_eq!(id(&Spec::path(directory.path())), None);
    assert!(open(&Spec::memory(1 << 20)).unwrap().persistent().is_none() && id(&Spec::memory(1 << 20)).is_none());
}

#[test]
fn a_file_is_in_use_until_the_last_completion_was_taken() {
    for engine in [Engine::Auto, Engine::Threads, Engine::Caller] {
        let (_directory, _path, device) = file(1 << 20);
        let mut io = Io::with_engine(4, engine).unwrap();
        assert!(device.persistent().unwrap().is_idle());
        let operation = Operation::Read { offset: 0, len: 4096, data: Buffer::zeroed(4096).into() };
        let submitted = device.submit(&mut io, Request::new(1, operation));
        assert!(matches!(submitted, Submitted::Pending));
        assert!(!device.persistent().unwrap().is_idle());
        assert!(io.wait(None).unwrap().unwrap().result.is_ok());
        // A thread releases the file a moment after it has reported the completion.
        while !device.persistent().unwrap().is_idle() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn the_capacity_follows_a_growing_file_and_never_shrinks() {
    let (_directory, path, device) = file(1 << 20);
    let own = device.persistent().unwrap();
    assert_eq!(own.current_bytes(None).unwrap(), 1 << 20);
    set_len(&path, 2 << 20);
    assert_eq!(own.current_bytes(Some(2 << 20)).unwrap(), 2 << 20);
    let error = own.current_bytes(Some(3 << 20)).unwrap_err().to_string();
    assert!(error.contains("has 2097152 bytes (2Mi), but 3145728 bytes (3Mi) were asked for"), "{error}");
    // The new size is not offered before it is requested.
    let read = || Operation::Read { offset: 1 << 20, len: 512, data: Buffer::zeroed(512).into() };
    let mut io = Io::new(4).unwrap();
    let Submitted::Done(refused) = device.submit(&mut io, Request::new(1, read())) else { panic!("behind the end") };
    assert!(refused.result.is_err());
    own.grow(2 << 20);
    assert_eq!(device.geometry().capacity_bytes, 2 << 20);
    assert!(matches!(device.submit(&mut io, Request::new(2, read())), Submitted::Pending));
    assert!(io.wait(None).unwrap().unwrap().result.is_ok());
    own.grow(1 << 20);
    assert_eq!(device.geometry().capacity_bytes, 2 << 20);
    set_len(&path, (2 << 20) - 512);
    let error = own.current_bytes(None).unwrap_err().to_string();
    assert!(error.contains("fewer than the 2097152 (2Mi) that hosts use"), "{error}");
    set_len(&path, (2 << 20) + 100);
    assert!(own.current_bytes(None).unwrap_err().to_string().contains("not a multiple of the block size 512"));
}
