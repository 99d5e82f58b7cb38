//! Damage of a drive's own state by the medium: frames of the journal, checkpoints and superblocks
//! that change or are lost. Either no acknowledged data are missing, or the drive is refused.
//! Opened read-only, it returns correct data or errors, and is never written.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebof_backend::{Class, Device, Io};
use ebof_drive::frame::{FRAME_BYTES, frame_header};
use ebof_drive::layout::Layout;
use ebof_medium::{BlockFormat, Damage, OpenError, Opened, Options, Proof, Store, VolumeId, medium_bytes};

use crate::rig::{Event, Recorder, create, create_coded, deallocate, drive, flush, kill_when_clean, on, read, write};

const CAPACITY: u64 = 4 << 20;
const EXTENT: u64 = 256 << 10;
const CHECKED: BlockFormat = BlockFormat { checked: true, ..BlockFormat::plain(12) };

/// Acknowledged and flushed data: blocks of 4 KiB and their byte, by namespace; and the changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    namespaces: BTreeMap<u64, BTreeMap<u64, u8>>,
    changes: Vec<Vec<u8>>,
}

/// A drive, killed after this.
struct Story {
    events: Vec<Event>,
    known: Known,
    /// The frames in the journal.
    frames: u64,
    generation: u64,
}

fn layout() -> Layout {
    Layout::new(CAPACITY, [0; 16]).unwrap()
}

pub(crate) fn raw(base: &Arc<Recorder>, at: u64, len: usize) -> Vec<u8> {
    read(&(Arc::clone(base) as Arc<dyn Device>), &mut Io::new(1).unwrap(), at, len).unwrap()
}

/// A bit of everything; `restarts` is how often the drive is closed and opened in between.
fn story(restarts: u64) -> Story {
    let (base, mut opened) = drive(CAPACITY);
    let mut io = Io::new(4).unwrap();
    for _ in 0..restarts {
        on(&opened.medium, |store| store.commit(&[b"restart"])).unwrap();
        opened.medium.stop();
        opened = crate::rig::open(&base, None);
    }
    let medium = opened.medium;
    on(&medium, |store| store.commit(&[b"one"])).unwrap();
    let plain = create(&medium, 1, 1 << 20);
    let tagged = create_coded(&medium, 2, 63 * 4, CHECKED);
    let gone = create(&medium, 3, 512 << 10);
    write(&gone, &mut io, 0, &[0x31; 8192]).unwrap();
    for block in [0, 1, 64, 130] {
        write(&plain, &mut io, block * 4096, &[0x11; 4096]).unwrap();
        write(&tagged, &mut io, block * 4096, &[0x21; 4096]).unwrap();
    }
    flush(&plain, &mut io).unwrap();
    drop(gone);
    on(&medium, |store| store.remove(VolumeId(3))).unwrap();
    while !on(&medium, Store::clean).unwrap() {}
    let next = create(&medium, 4, 1 << 20);
    for block in [0, 65, 129] {
        write(&next, &mut io, block * 4096, &[0x41; 4096]).unwrap();
    }
    // A change of many frames.
    on(&medium, |store| store.commit(&[&[7; 9000], b"two"])).unwrap();
    for block in [1, 130] {
        write(&tagged, &mut io, block * 4096, &[0x22; 4096]).unwrap();
    }
    deallocate(&plain, &mut io, 2 * EXTENT, EXTENT).unwrap();
    write(&next, &mut io, 64 * 3 * 4096, &[0x42; 4096]).unwrap();
    flush(&next, &mut io).unwrap();
    create(&medium, 5, 512 << 10);
    drop((plain, tagged, next));
    kill_when_clean(medium);
    let events = base.events.lock().unwrap().clone();
    let mut changes = vec![b"restart".to_vec(); usize::try_from(restarts).unwrap()];
    changes.extend([b"one".to_vec(), vec![7; 9000], b"two".to_vec()]);
    let known = Known {
        namespaces: BTreeMap::from([
            (1, BTreeMap::from([(0, 0x11), (1, 0x11), (64, 0x11)])),
            (2, BTreeMap::from([(0, 0x21), (1, 0x22), (64, 0x21), (130, 0x22)])),
            (4, BTreeMap::from([(0, 0x41), (65, 0x41), (129, 0x41), (192, 0x42)])),
            (5, BTreeMap::new()),
        ]),
        changes,
    };
    let generation = 1 + restarts;
    let image = Arc::new(Recorder::with(CAPACITY, &events));
    let is_frame = |at: &u64| raw(&image, layout().journal(generation) + at * 4096, 8) == b"EBOFJRN1";
    let frames = (0..4096).take_while(is_frame).count() as u64;
    Story { events, known, frames, generation }
}

/// The drive after these bytes were put there.
fn image(story: &Story, puts: &[(u64, Vec<u8>)]) -> Arc<Recorder> {
    let puts = puts.iter().map(|(at, bytes)| Event::Write(*at, bytes.clone()));
    Arc::new(Recorder::with(CAPACITY, &story.events.iter().cloned().chain(puts).collect::<Vec<_>>()))
}

/// The 4 KiB that hold byte `at`, with that changed.
pub(crate) fn flipped(base: &Arc<Recorder>, at: u64) -> (u64, Vec<u8>) {
    let begin = at / 4096 * 4096;
    let mut bytes = raw(base, begin, FRAME_BYTES);
    bytes[usize::try_from(at - begin).unwrap()] ^= 0x10;
    (begin, bytes)
}

fn try_open(base: &Arc<Recorder>, read_only_if_damaged: bool) -> Result<Opened, OpenError> {
    let options = Options { read_only_if_damaged, ..Options::default() };
    ebof_medium::open(Arc::clone(base) as Arc<dyn Device>, options)
}

/// Everything is there, and nothing else.
fn assert_whole(opened: &Opened, known: &Known, what: &str) {
    let names: Vec<u64> = opened.medium.volumes().iter().map(|volume| volume.0).collect();
    assert_eq!(names, known.namespaces.keys().copied().collect::<Vec<_>>(), "{what}");
    assert!(opened.changes == known.changes, "{what}: {} changes", opened.changes.len());
    assert_eq!(opened.damage, None, "{what}");
    let mut io = Io::new(4).unwrap();
    for (name, blocks) in &known.namespaces {
        let device = opened.medium.device(VolumeId(*name)).unwrap();
        for block in 0..device.geometry().capacity_bytes / 4096 {
            let expected = vec![blocks.get(&block).copied().unwrap_or(0); 4096];
            assert!(read(&device, &mut io, block * 4096, 4096) == Ok(expected), "{what}: block {block} of {name}");
        }
    }
}

/// Readable data are correct, and the drive is not written. Returns how many of the known blocks
/// can be read.
fn assert_safe(base: &Arc<Recorder>, opened: &Opened, known: &Known, what: &str) -> usize {
    let before = base.events.lock().unwrap().len();
    let (mut io, mut count) = (Io::new(4).unwrap(), 0);
    assert!(opened.damage.is_some() && opened.medium.is_read_only(), "{what}");
    for name in opened.medium.volumes() {
        let device = opened.medium.device(name).unwrap();
        assert!(device.geometry().read_only);
        let blocks = known.namespaces.get(&name.0).cloned().unwrap_or_default();
        for block in 0..device.geometry().capacity_bytes / 4096 {
            match (read(&device, &mut io, block * 4096, 4096), blocks.get(&block)) {
                (Err(class), _) => assert_eq!(class, Class::MediumRead, "{what}"),
                (Ok(bytes), Some(byte)) => {
                    assert!(bytes == [*byte; 4096], "{what}: block {block} of {}: {}", name.0, bytes[0]);
                    count += 1;
                }
                // If a deallocation was lost, the block has its own old data, and never those of
                // another namespace.
                (Ok(bytes), None) => {
                    assert!([0, name.0].contains(&u64::from(bytes[0] >> 4)), "{what}: block {block} of {}", name.0);
                }
            }
        }
        assert_eq!(write(&device, &mut io, 0, &[9; 4096]), Err(Class::ReadOnly));
        flush(&device, &mut io).unwrap();
    }
    let refused = on(&opened.medium, |store| {
        let created = store.create(VolumeId(9), 64, 64, BlockFormat::plain(12)).map(|_device| ());
        [created, store.remove(VolumeId(1)), store.commit(&[b"x"]), store.sync()].map(|result| result.is_err())
    });
    assert_eq!(refused[..3], [true; 3], "{what}");
    opened.medium.stop();
    let after: Vec<Event> = base.events.lock().unwrap()[before..].to_vec();
    assert!(after.iter().all(|event| matches!(event, Event::Flush)), "{what}: it was written");
    count
}

// @test drive.read-only-rest
// @test drive.damaged-record
#[test]
fn every_missing_flushed_frame_is_detected_and_readable_data_are_correct() {
    let story = story(0);
    let whole = image(&story, &[]);
    assert_whole(&try_open(&image(&story, &[]), false).unwrap(), &story.known, "undamaged");
    assert!(story.frames > 20, "{}", story.frames);
    let (mut most, journal) = (0, layout().journal(story.generation));
    for frame in 0..story.frames {
        let at = journal + frame * 4096;
        let stale = raw(&whole, journal + (frame + 7) % story.frames * 4096, FRAME_BYTES);
        for (kind, put) in [
            ("magic", flipped(&whole, at)),
            ("sequence", flipped(&whole, at + 32)),
            ("payload", flipped(&whole, at + 70)),
            ("end", flipped(&whole, at + 4095)),
            ("zeros", (at, vec![0; FRAME_BYTES])),
            ("another frame", (at, stale)),
        ] {
            let what = format!("{kind} of frame {frame} of {}", story.frames);
            let base = image(&story, &[put]);
            let before = base.events.lock().unwrap().len();
            let error = try_open(&base, false).map(|_| ()).expect_err(&what);
            let OpenError::Lost { damage: Damage::Frame { frame: found, at: place, proof, .. }, .. } = &error else {
                panic!("{what}: {error}")
            };
            assert_eq!((*found, *place), (frame, at), "{what}");
            let last = frame + 1 == story.frames;
            assert!(last == matches!(proof, Proof::Mark(_)) || !last, "{what}: {proof}");
            assert!(error.to_string().contains(&at.to_string()) && error.to_string().contains("read-only-if-damaged"));
            assert_eq!(base.events.lock().unwrap().len(), before, "{what}: it was written");
            let opened = try_open(&base, true).unwrap();
            most = most.max(assert_safe(&base, &opened, &story.known, &what));
        }
    }
    assert!(most >= 10, "{most} blocks can be read at best");
}

/// Even without marks, a missing frame is detected if a later one says that it was flushed.
#[test]
fn without_marks_frames_prove_the_frames_before_them() {
    let story = story(0);
    let (layout, whole) = (layout(), image(&story, &[]));
    let journal = layout.journal(story.generation);
    let marks = [0, 1].map(|which| (layout.mark(which), vec![0; 512]));
    let last = raw(&whole, journal + (story.frames - 1) * 4096, FRAME_BYTES);
    let known = u64::from(frame_header([0; 16], &last).unwrap().flushed.frames);
    assert!(known > 15, "{known} of {}", story.frames);
    assert_whole(&try_open(&image(&story, &marks), false).unwrap(), &story.known, "no mark");
    for frame in 0..known {
        let damage = [flipped(&whole, journal + frame * 4096 + 70), marks[0].clone(), marks[1].clone()];
        let what = format!("frame {frame} of {known}");
        let error = try_open(&image(&story, &damage), false).map(|_| ()).expect_err(&what);
        let OpenError::Lost { damage: Damage::Frame { frame: found, proof, .. }, .. } = &error else {
            panic!("{what}: {error}")
        };
        assert!(*found == frame && matches!(proof, Proof::Frame(later) if *later > frame), "{what}: {proof}");
        let base = image(&story, &damage);
        assert_safe(&base, &try_open(&base, true).unwrap(), &story.known, &what);
    }
}

/// Any combination of losses, including one of the marks.
// @test drive.damaged-record
#[test]
fn with_any_damage_to_the_journal_the_drive_is_correct_or_refused() {
    let story = story(1);
    let journal = layout().journal(story.generation);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let (mut refused, mut whole) = (0, 0);
    for round in 0..150 {
        let clean = image(&story, &[]);
        let mut puts: Vec<(u64, Vec<u8>)> = Vec::new();
        for _ in 0..=random(4) {
            let begin = journal + random(story.frames) * 4096;
            match random(3) {
                0 => puts.push((begin, vec![0; FRAME_BYTES * usize::try_from(1 + random(5)).unwrap()])),
                1 => puts.push((begin, raw(&clean, journal + random(story.frames) * 4096, FRAME_BYTES))),
                _ => puts.push(flipped(&clean, begin + random(4096))),
            }
        }
        // Only the newer mark proves the last frame: the loss of both is not detected.
        let last = journal + (story.frames - 1) * 4096;
        let has_last = !puts.iter().any(|(at, bytes)| at + bytes.len() as u64 > last);
        if has_last && random(2) == 0 {
            puts.push(flipped(&clean, layout().mark(random(2)) + random(512)));
        }
        let (what, base) = (format!("round {round}"), image(&story, &puts));
        match try_open(&base, false) {
            Ok(opened) => {
                assert_whole(&opened, &story.known, &what);
                whole += 1;
            }
            Err(OpenError::Lost { .. }) => {
                assert_safe(&base, &try_open(&base, true).unwrap(), &story.known, &what);
                refused += 1;
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
    assert!(refused > 100, "{refused} were refused, {whole} were whole after all");
}

// @test drive.damaged-checkpoint
#[test]
fn a_damaged_checkpoint_is_replaced_by_the_previous_one_or_the_drive_is_refused() {
    for restarts in [0, 1, 2] {
        let story = story(restarts);
        let (layout, generation) = (layout(), story.generation);
        let clean = image(&story, &[]);
        let (header, body) = (layout.checkpoint(generation), layout.checkpoint(generation) + 4096);
        let older = layout.checkpoint(generation + 1);
        let journal = layout.journal(generation + 1);
        for (kind, put) in [
            ("header", flipped(&clean, header + 33)),
            ("end of the header", flipped(&clean, header + 4095)),
            ("no header", (header, vec![0; FRAME_BYTES])),
            ("body", flipped(&clean, body)),
            ("no body", (body, vec![0xAA; FRAME_BYTES])),
        ] {
            let what = format!("{kind} after {restarts} restarts");
            let base = image(&story, std::slice::from_ref(&put));
            if restarts > 0 {
                assert_whole(&try_open(&base, false).unwrap(), &story.known, &what);
                // This was a close; a kill leaves a complete drive, too.
                assert_whole(&try_open(&base, false).unwrap(), &story.known, &what);
                let killed = image(&story, std::slice::from_ref(&put));
                kill_when_clean(try_open(&killed, false).unwrap().medium);
                assert_whole(&try_open(&killed, false).unwrap(), &story.known, &what);
            }
            // Without what would replace it, the drive is refused.
            let first = raw(&clean, journal, 8) == b"EBOFJRN1";
            for lost in [(older, vec![0; FRAME_BYTES]), (journal, vec![0; FRAME_BYTES])] {
                if restarts == 0 && lost.0 == journal && !first {
                    continue;
                }
                let base = image(&story, &[put.clone(), lost]);
                let error = try_open(&base, false).map(|_| ()).expect_err(&what);
                assert!(matches!(&error, OpenError::Lost { damage: Damage::Checkpoint { .. }, .. }), "{what}: {error}");
            }
        }
        // The older one is not needed.
        let base = image(&story, &[flipped(&clean, older), flipped(&clean, journal)]);
        assert_whole(&try_open(&base, false).unwrap(), &story.known, "an older checkpoint");
    }
}

// @test drive.damaged-checkpoint
#[test]
fn a_damaged_superblock_is_restored_from_its_copy() {
    let story = story(0);
    for at in [0, 4096] {
        let clean = image(&story, &[]);
        let base = image(&story, &[flipped(&clean, at + 20)]);
        assert_whole(&try_open(&base, false).unwrap(), &story.known, "one superblock");
        assert_eq!(raw(&base, at, FRAME_BYTES), raw(&clean, at, FRAME_BYTES), "it is whole again");
        // The data may be needed: they are not overwritten.
        let base = image(&story, &[(at, vec![0x55; FRAME_BYTES])]);
        assert_whole(&try_open(&base, false).unwrap(), &story.known, "one superblock");
        assert_eq!(raw(&base, at, FRAME_BYTES), vec![0x55; FRAME_BYTES]);
    }
    let clean = image(&story, &[]);
    assert!(try_open(&image(&story, &[flipped(&clean, 20), flipped(&clean, 4196)]), false).is_err());
}

/// An intact frame of a later version is not the end of the journal.
#[test]
fn a_frame_with_unknown_records_is_refused() {
    let story = story(0);
    let clean = image(&story, &[]);
    let at = layout().journal(story.generation) + (story.frames - 1) * 4096;
    let mut frame = raw(&clean, at, FRAME_BYTES);
    frame[64] = 200;
    let sum = ebof_drive::frame::crc(&frame[..4092]);
    frame[4092..].copy_from_slice(&sum.to_le_bytes());
    let base = image(&story, &[(at, frame)]);
    for read_only in [false, true] {
        let error = try_open(&base, read_only).map(|_| ()).unwrap_err();
        assert!(matches!(error, OpenError::Lost { damage: Damage::Unknown { .. }, .. }), "{error}");
    }
}

/// A frame that leaves no number for the next incarnation was not written by a drive.
#[test]
fn numbers_that_cannot_grow_any_more_are_damage() {
    let story = story(0);
    let clean = image(&story, &[]);
    let at = layout().journal(story.generation) + (story.frames - 1) * 4096;
    let mut frame = raw(&clean, at, FRAME_BYTES);
    assert_eq!(frame_header([0; 16], &frame).unwrap().left, 0);
    frame[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
    let sum = ebof_drive::frame::crc(&frame[..4092]);
    frame[4092..].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(frame_header([0; 16], &frame).unwrap().incarnation, u64::MAX);
    let error = try_open(&image(&story, &[(at, frame)]), false).map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}

/// A medium of an earlier version, as text: offset, repetitions, and bytes.
fn old(text: &str) -> Arc<Recorder> {
    let mut events = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (at, count): (u64, usize) = (words[0].parse().unwrap(), words[1].parse().unwrap());
        let bytes: Vec<u8> =
            (0..words[2].len() / 2).map(|at| u8::from_str_radix(&words[2][2 * at..2 * at + 2], 16).unwrap()).collect();
        events.push((at, bytes.repeat(count)));
    }
    let base = Arc::new(Recorder::with(2 << 20, &[]));
    let device = Arc::clone(&base) as Arc<dyn Device>;
    let mut io = Io::new(1).unwrap();
    for (at, bytes) in events {
        write(&device, &mut io, at, &bytes).unwrap();
    }
    base
}

/// Drives that were created, used, and killed or closed by the version before frames recorded what
/// was flushed.
// @test drive.earlier-versions
#[test]
fn drives_of_the_version_without_marks_open_and_get_marks() {
    let mut io = Io::new(4).unwrap();
    for (text, state) in [(include_str!("old/killed.txt"), None), (include_str!("old/clean.txt"), Some(&b"state"[..]))]
    {
        let base = old(text);
        let opened = try_open(&base, false).unwrap();
        assert_eq!((opened.snapshot.as_deref(), opened.was_clean), (state, state.is_some()));
        let changes: &[&[u8]] = if state.is_some() { &[] } else { &[b"first", b"second", b"third"] };
        assert_eq!(opened.changes, changes);
        let check = |opened: &Opened, io: &mut Io| {
            assert_eq!(opened.medium.volumes(), [VolumeId(1), VolumeId(2)]);
            let (plain, tagged) =
                (opened.medium.device(VolumeId(1)).unwrap(), opened.medium.device(VolumeId(2)).unwrap());
            for (device, at, byte) in [
                (&plain, 0, 0x11),
                (&plain, 512 << 10, 0),
                (&plain, 768 << 10, 0x13),
                (&tagged, 0, 0x21),
                (&tagged, 4096, 0x23),
                (&tagged, 8192, 0),
            ] {
                assert!(read(device, io, at, 4096) == Ok(vec![byte; 4096]), "byte {at}");
            }
        };
        check(&opened, &mut io);
        // Killed immediately, and after a flush, which covers everything.
        on(&opened.medium, |store| store.commit(&[b"fourth"])).unwrap();
        kill_when_clean(opened.medium);
        let medium = medium_bytes(2 << 20).unwrap();
        let layout = Layout::new(2 << 20, [0; 16]).unwrap();
        let used: Vec<u64> = (0..2)
            .flat_map(|which| (0..20).map(move |frame| layout.journal(which) + frame * 4096))
            .filter(|&at| raw(&base, at, 8) == b"EBOFJRN1")
            .collect();
        let copy = |puts: &[(u64, Vec<u8>)]| {
            let copy = Arc::new(Recorder::with(2 << 20, &[]));
            let (from, to) = (Arc::clone(&base) as Arc<dyn Device>, Arc::clone(&copy) as Arc<dyn Device>);
            let mut io = Io::new(1).unwrap();
            for at in (0..medium).step_by(64 << 10) {
                let len = usize::try_from((medium - at).min(64 << 10)).unwrap();
                let bytes = read(&from, &mut io, at, len).unwrap();
                if bytes.iter().any(|byte| *byte != 0) {
                    write(&to, &mut io, at, &bytes).unwrap();
                }
            }
            puts.iter().for_each(|(at, bytes)| write(&to, &mut io, *at, bytes).unwrap());
            copy
        };
        let again = try_open(&copy(&[]), false).unwrap();
        assert_eq!(again.changes.last().map(Vec::as_slice), Some(&b"fourth"[..]));
        check(&again, &mut io);
        let mut refused = 0;
        for &at in &used {
            refused += usize::from(try_open(&copy(&[flipped(&base, at + 100)]), false).is_err());
        }
        // The others are of the journal before the last checkpoint.
        assert!(refused >= 2 && (state.is_some() || refused == used.len()), "{refused} of {}", used.len());
    }
}
