//! The stream of messages: cut anywhere, with descriptors anywhere, and broken.

use ebof_testkit::vfio::message;
use ebof_vfio::message::{Broken, Command, DESCRIPTORS_MAX, Decoder, MESSAGE_BYTES_MAX};
use proptest::prelude::*;

/// A conversation: messages, and how many descriptors each has.
fn conversation() -> Vec<(Vec<u8>, usize)> {
    let map = [&32_u32.to_le_bytes()[..], &3_u32.to_le_bytes(), &[0; 8], &[0; 8], &4096_u64.to_le_bytes()].concat();
    let write = |bytes: u32| {
        let fields = [&0x1000_u64.to_le_bytes()[..], &0_u32.to_le_bytes(), &bytes.to_le_bytes()].concat();
        [fields, (0..bytes).map(|at| at.to_le_bytes()[0]).collect()].concat()
    };
    let interrupts: Vec<u8> = [20, 0x24, 2, 0, 2].into_iter().flat_map(u32::to_le_bytes).collect();
    vec![
        (message(1, 1, 0, b"\0\0\0\0{\"capabilities\":{}}\0"), 0),
        (message(2, 2, 0, &map), 1),
        (message(3, 10, 0x10, &write(4)), 0),
        (message(4, 8, 0, &interrupts), 2),
        (message(5, 10, 0, &write(4096)), 0),
        (message(6, 99, 0, &[1, 2, 3]), 0),
        (message(7, 13, 0, &[]), 0),
    ]
}

/// What comes out of a decoder, as text.
fn drain(decoder: &mut Decoder, found: &mut Vec<String>) -> Result<(), Broken> {
    while let Some(message) = decoder.poll()? {
        found.push(format!("{message:?}"));
    }
    Ok(())
}

fn whole() -> Vec<String> {
    let mut decoder = Decoder::new();
    let mut found = Vec::new();
    for (bytes, descriptors) in conversation() {
        decoder.push(&bytes, descriptors);
        drain(&mut decoder, &mut found).unwrap();
    }
    assert_eq!(found.len(), conversation().len());
    found
}

#[test]
fn the_stream_may_be_cut_at_any_byte() {
    let messages = conversation();
    let bytes: Vec<u8> = messages.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
    // Descriptors come with the first byte of their message.
    let starts: Vec<(usize, usize)> = messages
        .iter()
        .scan(0, |at, (bytes, descriptors)| {
            let start = *at;
            *at += bytes.len();
            Some((start, *descriptors))
        })
        .collect();
    for cut in 0..bytes.len() {
        let mut decoder = Decoder::new();
        let mut found = Vec::new();
        for part in [0..cut, cut..bytes.len()] {
            // A call ends behind a message with descriptors, or what has come of it.
            let mut at = part.start;
            while at < part.end {
                let with =
                    starts.iter().find(|(start, descriptors)| *descriptors > 0 && (at..part.end).contains(start));
                let (end, descriptors) = match with {
                    Some(&(start, descriptors)) => {
                        let next = starts.iter().map(|(start, _)| *start).find(|next| *next > start);
                        (next.unwrap_or(bytes.len()).min(part.end), descriptors)
                    }
                    None => (part.end, 0),
                };
                decoder.push(&bytes[at..end], descriptors);
                drain(&mut decoder, &mut found).unwrap();
                at = end;
            }
        }
        assert_eq!(found, whole(), "cut at {cut}");
    }
}

#[test]
fn every_byte_may_come_alone() {
    let mut decoder = Decoder::new();
    let mut found = Vec::new();
    for (bytes, descriptors) in conversation() {
        for (at, byte) in bytes.iter().enumerate() {
            decoder.push(&[*byte], if at == 0 { descriptors } else { 0 });
            drain(&mut decoder, &mut found).unwrap();
        }
    }
    assert_eq!(found, whole());
}

// @test limits.vfio-messages
#[test]
fn a_stream_that_cannot_be_followed_is_broken() {
    let broken = |bytes: &[u8]| {
        let mut decoder = Decoder::new();
        decoder.push(bytes, 0);
        decoder.poll().map(|message| message.is_some())
    };
    let header = |size: u32, flags: u32| {
        let mut bytes = message(1, 1, flags, &[]);
        bytes[4..8].copy_from_slice(&size.to_le_bytes());
        bytes
    };
    for size in [0, 15, MESSAGE_BYTES_MAX + 1, u32::MAX] {
        assert_eq!(broken(&header(size, 0)), Err(Broken::Size { size }));
    }
    // As soon as the header is there; the rest of a long message is awaited.
    assert_eq!(broken(&header(MESSAGE_BYTES_MAX, 0)), Ok(false));
    assert_eq!(broken(&header(u32::MAX, 0)[..15]), Ok(false));
    for kind in 1..16 {
        assert_eq!(broken(&header(16, kind)), Err(Broken::Type { kind: u8::try_from(kind).unwrap() }));
    }
}

// @test limits.vfio-messages
#[test]
fn too_many_descriptors_break_the_stream_and_those_of_others_do_not() {
    let mut decoder = Decoder::new();
    decoder.push(&message(1, 1, 0, &[0; 4]), 0);
    assert!(decoder.poll().unwrap().is_some());
    decoder.push(&message(2, 13, 0, &[]), DESCRIPTORS_MAX);
    let message_of = decoder.poll().unwrap().unwrap();
    assert_eq!(message_of.descriptors, DESCRIPTORS_MAX, "they are to be taken");
    assert!(message_of.command.is_err(), "a reset has none");
    // Two calls, each with as many as allowed: the first is that of a message which is not whole.
    let bytes = message(3, 13, 0, &[]);
    decoder.push(&bytes[..8], DESCRIPTORS_MAX);
    assert!(decoder.poll().unwrap().is_none());
    decoder.push(&bytes[8..], 1);
    assert_eq!(decoder.poll(), Err(Broken::Descriptors { count: DESCRIPTORS_MAX + 1 }));
}

#[test]
fn a_descriptor_with_dma_unmap_is_taken() {
    let mut decoder = Decoder::new();
    decoder.push(&message(1, 1, 0, &[0; 4]), 0);
    assert!(decoder.poll().unwrap().is_some());
    let mut body = Vec::new();
    body.extend([24_u32, 0].map(u32::to_le_bytes).as_flattened());
    body.extend([0x1000_u64, 0x2000].map(u64::to_le_bytes).as_flattened());
    // As SPDK's host sends it; two are too many.
    for (descriptors, is_taken) in [(0, true), (1, true), (2, false)] {
        decoder.push(&message(2, 3, 0, &body), descriptors);
        let message = decoder.poll().unwrap().unwrap();
        assert_eq!((message.descriptors, message.command.is_ok()), (descriptors, is_taken));
    }
}

proptest! {
    /// Whatever comes, in whatever parts: the decoder goes on or says what is broken, and keeps no
    /// more than a message and what was pushed last.
    #[test]
    fn any_bytes_are_decoded_or_refused(
        parts in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..200), 0_usize..4), 0..20),
        headers in proptest::collection::vec((any::<u16>(), 0_u16..17, 0_u32..80, prop_oneof![Just(0_u32), Just(0x10)]), 0..20),
    ) {
        let mut decoder = Decoder::new();
        decoder.push(&message(1, 1, 0, &[0; 4]), 0);
        let mut pushed = 0;
        let mut taken = 0;
        let mut header = headers.into_iter();
        for (bytes, descriptors) in parts {
            let mut all = Vec::new();
            if let Some((id, number, size, flags)) = header.next() {
                let body = bytes.iter().copied().cycle().take(if bytes.is_empty() { 0 } else { size as usize });
                all = message(id, number, flags, &body.collect::<Vec<_>>());
            }
            all.extend(&bytes[..bytes.len() / 2]);
            pushed += if all.is_empty() { 0 } else { descriptors };
            decoder.push(&all, descriptors);
            loop {
                match decoder.poll() {
                    Ok(Some(message)) => {
                        taken += message.descriptors;
                        if let Ok(Command::RegionWrite { data, .. }) = message.command {
                            prop_assert!(data.len() <= 4096);
                        }
                    }
                    Ok(None) => break,
                    Err(_) => return Ok(()),
                }
            }
            prop_assert!(taken <= pushed);
        }
    }
}
