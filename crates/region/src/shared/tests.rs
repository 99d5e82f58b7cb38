//! Which files are mapped, and what another process sees.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

use super::*;

const PAGE: u64 = PAGE_BYTES as u64;

fn memory_file(seals: SealFlags, bytes: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

fn refusal(file: impl AsFd, offset: u64, length: u64) -> MapError {
    SharedMapping::map(file, offset, length, MappingAccess::ALL).unwrap_err()
}

// @test limits.lost-memory
#[test]
fn only_files_that_cannot_become_shorter_are_mapped() {
    let sealed = memory_file(SealFlags::SHRINK, 4 * PAGE);
    assert_eq!(SharedMapping::map(&sealed, PAGE, 3 * PAGE, MappingAccess::ALL).unwrap().length(), 3 * PAGE_BYTES);
    for seals in [SealFlags::empty(), SealFlags::GROW | SealFlags::SEAL] {
        let error = refusal(memory_file(seals, PAGE), 0, PAGE);
        assert!(matches!(error, MapError::NotSealed), "{error}");
        assert!(error.to_string().contains("memory-backend-memfd,share=on"), "it tells what to do");
    }
    // What is no memory is never mapped, and its size says nothing.
    let access = MappingAccess { readable: true, writable: false };
    for path in ["/dev/zero", "/proc/self/status"] {
        let error = SharedMapping::map_any(File::open(path).unwrap(), 0, PAGE, access, &Arc::default()).unwrap_err();
        assert!(matches!(error, MapError::NotMemory | MapError::System(_)), "{path}: {error}");
    }
    let pipe = rustix::pipe::pipe().unwrap();
    assert!(matches!(refusal(&pipe.0, 0, PAGE), MapError::NotMemory | MapError::System(_)));
    // A client cannot take the seal back.
    assert!(rustix::fs::ftruncate(&sealed, PAGE).is_err());
}

#[test]
fn ranges_are_whole_pages_within_the_file() {
    let file = memory_file(SealFlags::SHRINK, 4 * PAGE);
    for (offset, length) in [(0, 5 * PAGE), (4 * PAGE, PAGE), (0, 1 << 60), (1 << 63, 1 << 62), (!(PAGE - 1), PAGE)] {
        assert!(matches!(refusal(&file, offset, length), MapError::TooShort { size: 16384, .. }), "{offset} {length}");
    }
    for (offset, length) in [(0, 0), (1, PAGE), (0, 100), (512, 512)] {
        assert!(matches!(refusal(&file, offset, length), MapError::Misaligned { .. }), "{offset} {length}");
    }
    // A file that must not be written is not mapped for that.
    let read_only = memory_file(SealFlags::SHRINK | SealFlags::WRITE, PAGE);
    assert!(matches!(refusal(&read_only, 0, PAGE), MapError::System(_)));
    let access = MappingAccess { readable: true, writable: false };
    let mapping = SharedMapping::map(&read_only, 0, PAGE, access).unwrap();
    assert_eq!((mapping.read(0, &mut [0; 8]), mapping.access()), (Some(()), access));
    let denied = [mapping.write(0, &[1]), mapping.clear(0, 1), mapping.store(0, 1), mapping.write_tagged(0, &[0; 16])];
    assert_eq!(denied, [None; 4]);
    let piece = mapping.piece(0, 512).unwrap();
    assert!(!piece.is_writable());
    let zero = File::open("/dev/zero").unwrap();
    let error = read_at(zero.as_fd(), &[piece.io_slice(0, 512)], 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
}

// @test limits.lost-memory
#[test]
fn huge_pages_may_be_lost_and_are_mapped_in_parts() {
    const HUGE: u64 = 2 << 20;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let Ok(file) = rustix::fs::memfd_create(c"test", flags) else {
        println!("SKIPPED: the system has no huge pages of 2 MiB");
        return;
    };
    rustix::fs::ftruncate(&file, 2 * HUGE).unwrap();
    let whole = match SharedMapping::map_any(&file, 0, 2 * HUGE, MappingAccess::ALL, &Arc::default()) {
        Ok(mapping) => mapping,
        Err(error) => {
            assert!(matches!(error, MapError::System(_)), "{error}");
            println!("SKIPPED: no huge pages are reserved (sysctl vm.nr_hugepages)");
            return;
        }
    };
    assert!(whole.may_be_lost());
    // As virtual machines have it: a hole of small pages between two ranges.
    let part = SharedMapping::map_any(&file, HUGE - PAGE, 3 * PAGE, MappingAccess::ALL, &Arc::default()).unwrap();
    part.write(PAGE_BYTES - 2, b"huge").unwrap();
    let mut bytes = [0; 4];
    whole.read(usize::try_from(HUGE).unwrap() - 2, &mut bytes).unwrap();
    assert_eq!(&bytes, b"huge");
    assert_eq!((part.length(), part.read(3 * PAGE_BYTES, &mut bytes)), (3 * PAGE_BYTES, None));
    assert_eq!((whole.mapped_bytes(), part.mapped_bytes()), (2 * HUGE, 2 * HUGE));
    rustix::fs::ftruncate(&file, HUGE).unwrap();
    assert_eq!((part.write(PAGE_BYTES - 2, b"huge"), part.read(0, &mut bytes)), (None, None));
    assert_eq!(whole.write(0, b"huge"), Some(()));
}

#[test]
fn what_is_written_is_seen_by_the_other_end_and_back() {
    let (file, mapping) = SharedMapping::create("test", 2 * PAGE).unwrap();
    let mut file = File::from(file);
    let at_zero = |file: &mut File| {
        let mut bytes = vec![0; 2 * PAGE_BYTES];
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_exact(&mut bytes).unwrap();
        bytes
    };
    // Short and long, aligned and not.
    for (offset, length) in [(0, 8), (3, 5), (16, 64), (17, 64), (100, 3000), (8192 - 7, 7)] {
        let bytes: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251 + 1).unwrap()).collect();
        mapping.write(offset, &bytes).unwrap();
        assert_eq!(at_zero(&mut file)[offset..offset + length], bytes, "{offset} {length}");
        let mut back = vec![0; length];
        mapping.read(offset, &mut back).unwrap();
        assert_eq!(back, bytes);
    }
    file.seek(SeekFrom::Start(4096)).unwrap();
    file.write_all(&0x0102_0304_u32.to_le_bytes()).unwrap();
    assert_eq!(mapping.load(4096), Some(0x0102_0304));
    mapping.store(4100, 0xa0b0_c0d0).unwrap();
    mapping.write_tagged(4112, &std::array::from_fn(|at| u8::try_from(at).unwrap())).unwrap();
    let bytes = at_zero(&mut file);
    assert_eq!(bytes[4100..4104], [0xd0, 0xc0, 0xb0, 0xa0]);
    assert!(bytes[4112..4128].iter().zip(0_u8..).all(|(byte, at)| *byte == at));
    mapping.clear(4096, 64).unwrap();
    assert!(at_zero(&mut file)[4096..4160].iter().all(|byte| *byte == 0));
}

#[test]
fn nothing_beyond_the_end_is_accessed() {
    let (_file, mapping) = SharedMapping::create("test", PAGE).unwrap();
    for (offset, length) in [(4096, 1), (4095, 2), (0, 4097), (usize::MAX, 1), (usize::MAX, usize::MAX)] {
        assert!(mapping.piece(offset, length).is_none());
        assert!(mapping.clear(offset, length).is_none());
        if length < 5000 {
            assert!(mapping.read(offset, &mut vec![0; length]).is_none());
            assert!(mapping.write(offset, &vec![0; length]).is_none());
        }
    }
    assert_eq!(
        (mapping.load(4096), mapping.load(4094), mapping.load(1), mapping.load(usize::MAX)),
        (None, None, None, None)
    );
    assert_eq!([mapping.store(4096, 0), mapping.store(2, 0)], [None; 2]);
    assert_eq!([mapping.write_tagged(4096, &[0; 16]), mapping.write_tagged(8, &[0; 16])], [None; 2]);
    assert!(mapping.piece(4096, 0).is_some_and(|piece| piece.length() == 0));
    let piece = mapping.piece(4000, 96).unwrap();
    assert_eq!(
        (piece.io_slice(90, 100).length(), piece.io_slice(96, 1).length(), piece.io_slice(500, 1).length()),
        (6, 0, 0)
    );
}

/// One thread stores numbers in order, as a host does, and the other never sees a later one before
/// what was written ahead of it.
#[test]
fn a_number_is_seen_after_what_was_written_before_it() {
    let (_file, mapping) = SharedMapping::create("test", PAGE).unwrap();
    std::thread::scope(|scope| {
        let writer = Arc::clone(&mapping);
        scope.spawn(move || {
            for number in 1..=20_000_u32 {
                writer.write(512, &[number.to_le_bytes(); 8].concat()).unwrap();
                writer.store(0, number).unwrap();
                // The next one only when this one was looked at.
                while writer.load(64) != Some(number) {
                    std::hint::spin_loop();
                }
            }
        });
        let mut seen = 0;
        while seen < 20_000 {
            let number = mapping.load(0).unwrap();
            if number == seen {
                std::thread::yield_now();
                continue;
            }
            seen = number;
            let mut bytes = [0; 32];
            mapping.read(512, &mut bytes).unwrap();
            assert_eq!(bytes.to_vec(), [number.to_le_bytes(); 8].concat());
            mapping.store(64, number).unwrap();
        }
    });
}

#[test]
fn a_mapping_ends_with_its_last_piece() {
    // By its name: others may get its address.
    let is_mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains("/memfd:ends");
    let (_file, mapping) = SharedMapping::create("ends", PAGE).unwrap();
    let piece = mapping.piece(0, 10).unwrap();
    drop(mapping);
    assert!(is_mapped());
    drop(piece);
    assert!(!is_mapped());
}

// @test limits.lost-memory
#[test]
fn accesses_to_memory_that_has_become_shorter_fail() {
    let mut file = File::from(memory_file(SealFlags::empty(), 4 * PAGE));
    let has_failed = Arc::default();
    let mapping = SharedMapping::map_any(&file, PAGE, 3 * PAGE, MappingAccess::ALL, &has_failed).unwrap();
    assert!(mapping.may_be_lost());
    mapping.write(0, b"hello").unwrap();
    mapping.write_tagged(16, b"0123456789abcdef").unwrap();
    mapping.store(32, 0x0403_0201).unwrap();
    let mut bytes = [0; 36];
    file.seek(SeekFrom::Start(PAGE)).unwrap();
    file.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello\0\0\0\0\0\0\0\0\0\0\x000123456789abcdef\x01\x02\x03\x04");
    assert_eq!(mapping.load(32), Some(0x0403_0201));
    mapping.clear(0, 2 * PAGE_BYTES + 5).unwrap();
    assert_eq!(mapping.load(32), Some(0));
    // The middle of a piece goes. Nothing is known before it is accessed.
    mapping.write(0, &[7; PAGE_BYTES]).unwrap();
    let piece = mapping.piece(PAGE_BYTES - 8, PAGE_BYTES).unwrap();
    let other = mapping.piece(2 * PAGE_BYTES, 512).unwrap();
    file.set_len(2 * PAGE).unwrap();
    assert!(!has_failed.load(Ordering::Relaxed));
    // The kernel's own accesses end with an error.
    let zero = File::open("/dev/zero").unwrap();
    let error = read_at(zero.as_fd(), &[other.io_slice(0, 512)], 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    let mut into = [0xff; PAGE_BYTES];
    piece.read(0, &mut into);
    assert_eq!(into, [0; PAGE_BYTES], "nothing of what was there before");
    assert!(has_failed.swap(false, Ordering::Relaxed));
    piece.write(0, &[1; PAGE_BYTES]);
    piece.clear(0, PAGE_BYTES);
    assert!(has_failed.load(Ordering::Relaxed), "it is told again");
    for at in [0, 2 * PAGE_BYTES] {
        assert_eq!((mapping.read(at, &mut [0; 8]), mapping.load(at)), (None, None));
        let written = [mapping.write(at, &[1]), mapping.store(at, 1), mapping.write_tagged(at, &[0; 16])];
        assert_eq!(written, [None; 3]);
        assert!(mapping.piece(at, 8).is_none());
    }
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 2 * PAGE as i64, "what was written went nowhere");
}

/// Each kind of access is the one that finds it out.
// @test limits.lost-memory
#[test]
fn whichever_access_is_the_first_one_fails() {
    type AnyAccess = fn(&SharedMapping) -> Option<()>;
    let accesses: [AnyAccess; 7] = [
        |mapping| mapping.read(PAGE_BYTES, &mut [0; 8]),
        |mapping| mapping.read(PAGE_BYTES - 3, &mut [0; 4096]),
        |mapping| mapping.write(PAGE_BYTES - 3, &[1; 4096]),
        |mapping| mapping.clear(PAGE_BYTES, 1),
        |mapping| mapping.load(PAGE_BYTES).map(|_| ()),
        |mapping| mapping.store(PAGE_BYTES, 1),
        |mapping| mapping.write_tagged(PAGE_BYTES, &[1; 16]),
    ];
    for (index, access) in accesses.into_iter().enumerate() {
        let file = memory_file(SealFlags::empty(), 2 * PAGE);
        let has_failed = Arc::default();
        let lost = SharedMapping::map_any(&file, 0, 2 * PAGE, MappingAccess::ALL, &has_failed).unwrap();
        let same = SharedMapping::map_any(&file, 0, PAGE, MappingAccess::ALL, &Arc::default()).unwrap();
        assert_eq!(access(&lost), Some(()), "{index}");
        rustix::fs::ftruncate(&file, PAGE).unwrap();
        assert_eq!((access(&lost), has_failed.load(Ordering::Relaxed)), (None, true), "{index}");
        assert_eq!(same.write(0, &[1]), Some(()), "others are as they were");
        // Memory that comes back is another one.
        rustix::fs::ftruncate(&file, 2 * PAGE).unwrap();
        assert_eq!(access(&lost), None, "{index}");
    }
}

/// Two threads copy while the file becomes shorter, and nobody takes zeros for data.
#[test]
fn zeros_in_place_of_what_is_gone_are_never_data() {
    const PAGES: usize = 64;
    for _ in 0..20 {
        let file = memory_file(SealFlags::empty(), PAGES as u64 * PAGE);
        let mapping =
            SharedMapping::map_any(&file, 0, PAGES as u64 * PAGE, MappingAccess::ALL, &Arc::default()).unwrap();
        mapping.write(0, &[7; PAGES * PAGE_BYTES]).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut into = [0; PAGES * PAGE_BYTES];
                    while mapping.read(0, &mut into).is_some() {
                        assert!(into.iter().all(|byte| *byte == 7));
                    }
                    assert!(into.iter().all(|byte| *byte == 0));
                });
            }
            rustix::fs::ftruncate(&file, PAGE).unwrap();
        });
    }
}

#[test]
fn pages_that_nobody_has_used_are_not_present() {
    const PAGES: usize = 200;
    let file = memory_file(SealFlags::SHRINK, PAGES as u64 * PAGE);
    let mapping = SharedMapping::map(&file, 0, PAGES as u64 * PAGE, MappingAccess::ALL).unwrap();
    assert!(!mapping.is_present(0, 1) && !mapping.is_present(150 * PAGE_BYTES, 1));
    // The other process uses some.
    let used = vec![1; 140 * PAGE_BYTES];
    rustix::io::pwrite(&file, &used, 10 * PAGE).unwrap();
    for (offset, length, is_present) in [
        (10 * PAGE_BYTES, 140 * PAGE_BYTES, true),
        (149 * PAGE_BYTES + 100, PAGE_BYTES - 100, true),
        (149 * PAGE_BYTES + 100, PAGE_BYTES, false),
        (10 * PAGE_BYTES - 1, 2, false),
        (PAGES * PAGE_BYTES - 1, 2, false),
    ] {
        assert_eq!(mapping.is_present(offset, length), is_present, "{offset} {length}");
    }
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_blocks, 140 * 8, "looking makes no pages");
}
