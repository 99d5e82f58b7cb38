//! Blocks that are marked bad, and a power loss while they are written again.

use std::sync::Arc;

use ebof_backend::{Class, Io};
use ebof_medium::{BlockFormat, Store, VolumeId, medium_bytes};

use crate::rig::{Event, Recorder, create_coded, drive, flush, on, open, read, write};

const CAPACITY: u64 = 2 << 20;

#[test]
fn a_bad_block_whose_rewrite_was_lost_does_not_return_old_data() {
    for block_format in [BlockFormat::plain(12), BlockFormat { checked: true, ..BlockFormat::plain(12) }] {
        let (base, opened) = drive(CAPACITY);
        let mut io = Io::new(16).unwrap();
        let device = create_coded(&opened.medium, 1, 64, block_format);
        write(&device, &mut io, 0, &[1; 4096]).unwrap();
        on(&opened.medium, |store| store.mark_bad(VolumeId(1), 0..1)).unwrap();
        flush(&device, &mut io).unwrap();
        let begin = base.events.lock().unwrap().len();
        write(&device, &mut io, 0, &[2; 4096]).unwrap();
        on(&opened.medium, Store::sync).unwrap();
        let events = base.events.lock().unwrap().clone();
        opened.medium.stop();
        // Of what was not flushed the journal is kept, and the blocks' data are lost.
        let extents = medium_bytes(CAPACITY).unwrap() - CAPACITY;
        for cut in begin..=events.len() {
            let flushed = events[..cut].iter().rposition(|event| matches!(event, Event::Flush)).unwrap_or_default();
            let is_kept = |(at, event): &(usize, &Event)| match event {
                Event::Write(offset, _) | Event::Zero(offset, _) => *at < flushed || *offset < extents,
                Event::Durable(..) | Event::Flush => true,
            };
            let left: Vec<Event> =
                events[..cut].iter().enumerate().filter(is_kept).map(|(_, event)| event.clone()).collect();
            let opened = open(&Arc::new(Recorder::with(CAPACITY, &left)), None);
            let device = opened.medium.device(VolumeId(1)).unwrap();
            let found = read(&device, &mut io, 0, 4096);
            assert!(
                found == Err(Class::MediumRead) || found == Ok(vec![2; 4096]),
                "{block_format:?}, {cut} of {}",
                events.len()
            );
            opened.medium.stop();
        }
    }
}
