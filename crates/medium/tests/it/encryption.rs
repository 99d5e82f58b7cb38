//! Encrypted namespaces: their bytes on the medium, and their keys.

use std::sync::Arc;

use ebof_backend::{Device, Io, Memory, Operation};
use ebof_medium::{BlockFormat, DriveKey, Medium, OpenError, Opened, Options, VolumeId, medium_bytes};

use crate::rig::{Recorder, deallocate, kill, on, read, run, write};

const EXTENT: u64 = 256 << 10;
const CAPACITY: u64 = 4 << 20;
/// The area of the tables of keys in the layout.
const KEYS: std::ops::Range<usize> = 64 << 10..1 << 20;

fn encrypted(shift: u8) -> BlockFormat {
    BlockFormat { encrypted: true, ..BlockFormat::plain(shift) }
}

fn open(base: &Arc<dyn Device>, key: Option<[u8; 32]>) -> Result<Opened, OpenError> {
    let key = key.as_ref().map(DriveKey::copy_of);
    ebof_medium::open(Arc::clone(base), Options { create: Some(CAPACITY), zeroed: true, key, ..Options::default() })
}

fn memory() -> Arc<dyn Device> {
    Arc::new(Memory::new(medium_bytes(CAPACITY).unwrap(), 512, false))
}

fn create(medium: &Medium, volume: u64, shift: u8) -> Arc<dyn Device> {
    on(medium, move |store| store.create(VolumeId(volume), 1 << (20 - shift), 1 << (20 - shift), encrypted(shift)))
        .unwrap()
}

fn everything(base: &Arc<dyn Device>) -> Vec<u8> {
    let mut io = Io::new(4).unwrap();
    let len = usize::try_from(base.geometry().capacity_bytes).unwrap();
    read(base, &mut io, 0, len).unwrap()
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// The key of the only namespace, from a table that is not wrapped: the header has 64 bytes, the
/// name 8.
fn bare_key(base: &Arc<dyn Device>) -> [u8; 64] {
    everything(base)[KEYS][72..136].try_into().unwrap()
}

#[test]
fn encrypted_data_are_read_back_and_not_visible_on_the_medium() {
    for shift in [9, 12] {
        let base = memory();
        let opened = open(&base, None).unwrap();
        let device = create(&opened.medium, 1, shift);
        let mut io = Io::new(4).unwrap();
        let block = 1_usize << shift;
        let text: Vec<u8> = b"nobody should read this".iter().copied().cycle().take(6 * block).collect();
        // A first write, one more in the same extent, and one across two extents.
        for offset in [0, 8 * block as u64, EXTENT - 2 * block as u64, EXTENT - 3 * block as u64] {
            write(&device, &mut io, offset, &text).unwrap();
            assert_eq!(read(&device, &mut io, offset, text.len()).unwrap(), text, "{shift} {offset}");
        }
        let untouched = read(&device, &mut io, 20 * block as u64, 4 * block).unwrap();
        assert!(untouched.iter().all(|byte| *byte == 0), "what was never written is zeros");
        deallocate(&device, &mut io, block as u64, 2 * block as u64).unwrap();
        let zeroes =
            Operation::WriteZeroes { offset: 8 * block as u64, len: block as u64, deallocate: false, fua: false };
        run(&device, &mut io, zeroes).result.unwrap();
        let mut expected = text.clone();
        expected[block..3 * block].fill(0);
        let check = |device: &Arc<dyn Device>, io: &mut Io| {
            assert_eq!(read(device, io, 0, text.len()).unwrap(), expected);
            assert!(read(device, io, 8 * block as u64, block).unwrap().iter().all(|byte| *byte == 0));
        };
        check(&device, &mut io);
        let all = everything(&base);
        assert!(!has(&all, b"nobody should"), "the medium has the text as it is");
        // Equal blocks are not equal on the medium.
        let data = &all[all.len() - usize::try_from(CAPACITY).unwrap()..];
        let used: Vec<&[u8]> = data.chunks_exact(block).filter(|block| block.iter().any(|byte| *byte != 0)).collect();
        assert!(used.iter().collect::<std::collections::BTreeSet<_>>().len() == used.len() && used.len() >= 12);
        drop(device);
        opened.medium.stop();
        let again = open(&base, None).unwrap();
        check(&again.medium.device(VolumeId(1)).unwrap(), &mut io);
    }
}

#[test]
fn the_key_of_a_deleted_namespace_is_nowhere_on_the_medium() {
    let base = memory();
    let opened = open(&base, None).unwrap();
    create(&opened.medium, 1, 12);
    let key = bare_key(&base);
    assert!(key.iter().any(|byte| *byte != 0));
    create(&opened.medium, 2, 12);
    assert!(has(&everything(&base), &key));
    on(&opened.medium, |store| store.remove(VolumeId(1))).unwrap();
    assert!(!has(&everything(&base), &key), "the key of a removed namespace is still on the medium");
    opened.medium.stop();
    let again = open(&base, None).unwrap();
    assert!(again.medium.device(VolumeId(2)).is_some());
}

#[test]
fn a_drive_with_a_key_file_cannot_be_opened_without_it() {
    let base = memory();
    let mut io = Io::new(4).unwrap();
    let opened = open(&base, None).unwrap();
    let device = create(&opened.medium, 1, 12);
    write(&device, &mut io, 0, &[0x5a; 4096]).unwrap();
    drop(device);
    let key = bare_key(&base);
    opened.medium.stop();
    // From here on the keys are wrapped.
    let opened = open(&base, Some([1; 32])).unwrap();
    let _second = create(&opened.medium, 2, 12);
    opened.medium.stop();
    assert!(!has(&everything(&base), &key));
    assert!(matches!(open(&base, None), Err(OpenError::KeyMissing { .. })));
    assert!(matches!(open(&base, Some([2; 32])), Err(OpenError::KeyWrong { .. })));
    let opened = open(&base, Some([1; 32])).unwrap();
    let device = opened.medium.device(VolumeId(1)).unwrap();
    assert_eq!(read(&device, &mut io, 0, 4096).unwrap(), [0x5a; 4096]);
}

/// After a power loss at any write every namespace has its key and its data.
#[test]
fn a_drive_opens_after_a_power_loss_at_any_write_of_its_keys() {
    let base = Arc::new(Recorder::new(medium_bytes(CAPACITY).unwrap()));
    let device: Arc<dyn Device> = base.clone();
    let opened = open(&device, None).unwrap();
    let mut io = Io::new(4).unwrap();
    for name in 1..=3 {
        let device = create(&opened.medium, name, 12);
        write(&device, &mut io, 0, &[u8::try_from(name).unwrap(); 8192]).unwrap();
        if name == 2 {
            on(&opened.medium, |store| store.remove(VolumeId(1))).unwrap();
        }
    }
    kill(opened.medium);
    let events = base.events.lock().unwrap().clone();
    let mut found = std::collections::BTreeSet::new();
    for cut in 0..=events.len() {
        let device: Arc<dyn Device> = Arc::new(Recorder::with(medium_bytes(CAPACITY).unwrap(), &events[..cut]));
        let opened = open(&device, None).unwrap();
        let there = opened.medium.volumes();
        for &name in &there {
            let device = opened.medium.device(name).unwrap();
            let bytes = read(&device, &mut io, 0, 8192).unwrap();
            let whole = bytes.iter().all(|&byte| byte == 0 || u64::from(byte) == name.0);
            assert!(whole, "cut {cut}: namespace {} has other bytes", name.0);
        }
        found.insert(there);
    }
    assert!(found.len() >= 5, "{found:?}");
}
