//! On which backings a target creates a drive, what is left if that fails, and which files cannot
//! be plain namespaces.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use ebof_manage::config::ManagedDrive;
use ebof_server::{Settings, StartError, Target};

use crate::config;
use crate::drive_rig::{SmallFileSystem, connect, create, drive, serve, try_serve, wait};

const CAPACITY: u64 = 64 << 20;

/// The error of opening the drive, once no other process has the file open.
fn refused(drive: &ManagedDrive) -> String {
    wait("the lock of the file", || {
        let error = try_serve(drive).map(|_| ()).expect_err("it is served").to_string();
        (!error.contains("in use")).then_some(error)
    })
}

fn plain(path: &Path) -> Result<Target, StartError> {
    plain_as(path.to_str().unwrap())
}

fn plain_as(drive: &str) -> Result<Target, StartError> {
    let config = config::one_subsystem([drive]);
    Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() })
}

// @test data.create-over-zeros
#[test]
fn a_drive_that_cannot_be_created_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.img");
    let mut without_key = drive(&path, Some(CAPACITY));
    without_key.encryption = true;
    without_key.key_file = Some("/nowhere/key".to_owned());
    assert!(refused(&without_key).contains("cannot be read"));
    assert!(!path.exists(), "a file is left of a drive whose key is missing");
    let Some(small) = SmallFileSystem::new(16) else {
        println!("SKIPPED: no permission to mount a small file system");
        return;
    };
    let path = small.path().join("drive.img");
    refused(&drive(&path, Some(CAPACITY)));
    assert!(!path.exists(), "a file is left of a drive that found no room");
    // An existing file is unchanged.
    std::fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
    refused(&drive(&path, Some(CAPACITY)));
    let after = std::fs::metadata(&path).unwrap();
    assert!(after.len() == 256 << 20 && after.blocks() <= 64, "{} blocks of it are taken", after.blocks());
    // With enough room it can be created.
    small.resize(128);
    let (target, _) = serve(&drive(&path, Some(CAPACITY)));
    target.stop(Duration::from_secs(5));
}

#[test]
fn a_drive_is_not_created_over_data() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    // Labels of file systems, partition tables, RAIDs and pools; and any other data.
    for at in [510, 1024, 4096, 32768, 65536, 100 << 20, (256 << 20) - 512] {
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(256 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"data of somebody", at).unwrap();
        drop(file);
        let before = std::fs::metadata(&path).unwrap().blocks();
        let error = refused(&drive(&path, Some(CAPACITY)));
        assert!(error.contains(&format!("byte {at} is not zero")) && error.contains("add `overwrite`"), "{error}");
        let mut found = [0; 16];
        let file = std::fs::File::open(&path).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, at).unwrap();
        assert_eq!((&found, std::fs::metadata(&path).unwrap().blocks()), (b"data of somebody", before));
    }
    let mut over = drive(&path, Some(CAPACITY));
    over.overwrite = true;
    let (target, address) = serve(&over);
    let host = connect(address);
    create(&host, 1024);
    host.disconnect();
    target.stop(Duration::from_secs(5));
    drop(target);
    // An option that is still set does not overwrite it.
    let (target, address) = serve(&over);
    assert_eq!(connect(address).namespaces().unwrap().len(), 1);
    target.stop(Duration::from_secs(5));
}

// @test data.drive-file
#[test]
fn the_file_of_a_drive_is_not_a_plain_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d0.img");
    let (target, _) = serve(&drive(&path, Some(CAPACITY)));
    target.stop(Duration::from_secs(5));
    drop(target);
    let error = wait("the lock of the file", || {
        let error = plain(&path).map(|_| ()).expect_err("it is served as it is").to_string();
        (!error.contains("in use")).then_some(error)
    });
    let advice = format!("--drive name=d0,backing={}", path.display());
    assert!(error.contains("holds a drive") && error.contains(&advice), "{error}");
    // As the message says: served as a drive.
    let backing: ManagedDrive = advice["--drive ".len()..].parse().unwrap();
    let (target, _) = serve(&backing);
    target.stop(Duration::from_secs(5));
    drop(target);
    // Or as a namespace in which a host keeps a drive.
    assert!(error.contains("add `nested`"), "{error}");
    let target = wait("the lock of the file", || plain_as(&format!("{},nested", path.display())).ok());
    target.stop(Duration::from_secs(5));
    drop(target);
    // Or overwritten.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![0; 1 << 20], 0).unwrap();
    drop(file);
    let target = wait("the lock of the file", || plain(&path).ok());
    target.stop(Duration::from_secs(5));
}
