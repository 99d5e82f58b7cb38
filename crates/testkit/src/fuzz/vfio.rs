//! NVMe over PCI: a client's stream of messages to a function, data pointers in memory that a host
//! filled with anything, and queues whose doorbells say anything.

use ebof_nvme::property::{Cap, Version};
use ebof_nvme::{Cid, Cqe, QueueId, Sqe, Status};
use ebof_vfio::function::Action;
use ebof_vfio::interrupts::VectorChange;
use ebof_vfio::message::{DESCRIPTORS_MAX, Decoder, MESSAGE_BYTES_MAX};
use ebof_vfio::pci::Identity;
use ebof_vfio::pointer::{DESCRIPTORS_MAX as SGL_DESCRIPTORS_MAX, walk};
use ebof_vfio::registers::Effect;
use ebof_vfio::rings::{CompletionRing, Shadow, SubmissionRing};
use ebof_vfio::{Memory, PciFunction};
use zerocopy::{FromBytes, IntoBytes};

use crate::vfio::{HostMemory, message};

/// A stream of messages, in parts: each is preceded by its length, and by how many descriptors come
/// with it. What is answered are whole replies, each to a command that wants one.
pub fn vfio_messages(mut data: &[u8]) {
    let identity = Identity { vendor: 0xeb0f, device: 1, revision: 1 };
    let mut function = PciFunction::new(identity, Cap::new(64, 1), Version::V2_1, 16, 8);
    let mut decoder = Decoder::new();
    let (mut came, mut gone) = (0_usize, 0_usize);
    while let [length, descriptors, rest @ ..] = data {
        let (part, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        data = rest;
        let descriptors = if part.is_empty() { 0 } else { usize::from(descriptors % 20) };
        came += descriptors;
        decoder.push(part, descriptors);
        loop {
            let message = match decoder.poll() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(_broken) => return,
            };
            gone += message.descriptors;
            assert!(gone <= came && message.descriptors <= DESCRIPTORS_MAX, "descriptors that never came");
            let (call, mut out) = (message.call, Vec::new());
            let wants_reply = call.wants_reply();
            match message.command {
                Err(errno) => call.refuse(errno, &mut out),
                Ok(command) => match function.handle(call, command, length % 2 == 0, &mut out) {
                    Action::Answered | Action::Opened(_) | Action::SendDoorbells => {}
                    Action::Event(event) => on_event(&mut function, event),
                    Action::Map(call, map) => {
                        assert!(map.size > 0 && map.address.checked_add(map.size).is_some());
                        call.succeed(&mut out);
                    }
                    Action::Unmap(call, unmap) => call.unmapped(&unmap, &mut out),
                    Action::SetInterrupts(call, set) => {
                        let mut changes = Vec::new();
                        match function.vectors.set(&set, message.descriptors, &mut changes) {
                            Ok(()) => call.succeed(&mut out),
                            Err(errno) => call.refuse(errno, &mut out),
                        }
                        let connected = changes.iter().filter(|change| matches!(change, VectorChange::Connect(_)));
                        assert!(connected.count() <= message.descriptors, "a descriptor that is not there");
                    }
                    Action::Reset(call) => call.succeed(&mut out),
                },
            }
            assert_eq!(out.is_empty(), !wants_reply, "one reply to each command that wants one");
            if wants_reply {
                let size = u32::from_le_bytes([out[4], out[5], out[6], out[7]]);
                assert!(size as usize == out.len() && size <= MESSAGE_BYTES_MAX && out[8] & 0xf == 1);
            }
        }
    }
}

/// Does what follows from a write, as a controller would.
fn on_event(function: &mut PciFunction, event: ebof_vfio::function::Event) {
    let ebof_vfio::function::Event::Register(effect) = event else { return };
    match effect {
        Effect::Enable { admin: Some(admin), .. } => {
            assert!(function.registers.open_submission(QueueId(0), admin.submission_entries));
            assert!(function.registers.open_completion(QueueId(0), admin.completion_entries));
        }
        Effect::Disable { .. } => function.registers.reset_controller(),
        Effect::SubmissionTail { queue, .. } | Effect::CompletionHead { queue, .. } => assert_eq!(queue, QueueId(0)),
        Effect::Enable { admin: None, .. }
        | Effect::Configure { .. }
        | Effect::InvalidDoorbell
        | Effect::InvalidDoorbellValue => {}
    }
}

/// Where the fuzzed bytes are in the host's memory.
const PLACE: u64 = 0x10_0000;

/// A command, the length of its transfer, and memory that its pointer may lead to.
pub fn vfio_pointer(data: &[u8]) {
    let Some((sqe, rest)) = data.split_first_chunk::<64>() else { return };
    let Some((length, content)) = rest.split_first_chunk::<4>() else { return };
    let Ok(sqe) = Sqe::read_from_bytes(sqe) else { return };
    let length = u32::from_le_bytes(*length) % (4 << 20);
    let memory = HostMemory::default();
    memory.map(PLACE, 2);
    memory.write(PLACE, &content[..content.len().min(8192)]).expect("mapped");
    let mut pieces = Vec::new();
    if walk(&sqe.data_pointer(), length, 4096, &memory, &mut pieces).is_ok() {
        let total: u64 = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        assert_eq!(total, u64::from(length), "the pieces are the transfer");
        assert!(
            pieces.iter().all(|piece| piece.length > 0 && piece.address.checked_add(piece.length.into()).is_some())
        );
    }
    let most = u64::from(length / 4096) * 8 + 3 * 4096 + u64::from(SGL_DESCRIPTORS_MAX) * 16;
    assert!(memory.read_bytes.get() <= most, "more was read than the transfer needs");
}

/// A queue pair: each act is three bytes, what happens and a number.
pub fn vfio_rings(data: &[u8]) {
    let [submission, completion, shadow, acts @ ..] = data else { return };
    let (doorbells, events) = (PLACE + 0x2000, PLACE + 0x3000);
    let memory = HostMemory::default();
    memory.map(PLACE, 4);
    let entries = (2 + u32::from(submission % 60), 2 + u32::from(completion % 60));
    let mut submissions = SubmissionRing::new(PLACE, entries.0, QueueId(1));
    let mut completions = CompletionRing::new(PLACE + 0x1000, entries.1, None);
    if shadow % 2 == 1 {
        let shadow = |is_completion| Some(Shadow::for_queue(doorbells, events, QueueId(1), is_completion));
        submissions.set_shadow(shadow(false), &memory).expect("mapped");
        completions.set_shadow(shadow(true), &memory).expect("mapped");
    }
    for act in acts.chunks_exact(3).take(4000) {
        let value = u16::from_le_bytes([act[1], act[2]]);
        let before = (submissions.waiting(), completions.unread());
        let is_bad = match act[0] % 8 {
            0 => submissions.ring(value, &memory).is_err(),
            1 => completions.ring(value, &memory).is_err(),
            2 => memory.store(doorbells + 8, value.into()).is_err(),
            3 => memory.store(doorbells + 12, value.into()).is_err(),
            4 => submissions.arm(&memory).is_err() | completions.arm(&memory).is_err(),
            5 => {
                let cqe = Cqe::new(Cid(value), Status::SUCCESS);
                let pushed = completions.push(&cqe, QueueId(1), submissions.head(), &memory);
                assert!(pushed.is_ok() || shadow % 2 == 1);
                assert!(pushed != Ok(true) || completions.unread() > 0);
                false
            }
            6 => memory.write(PLACE + u64::from(value % 4096), &act[1..]).is_err(),
            _ => {
                let next = submissions.next(&memory).expect("mapped");
                assert_eq!(next.is_some(), before.0 > 0);
                false
            }
        };
        // A doorbell's bad value changes nothing.
        assert!(!is_bad || act[0] % 8 == 4 || before == (submissions.waiting(), completions.unread()));
        assert!(submissions.waiting() < entries.0 && completions.unread() < entries.1);
        assert_eq!(completions.room() + completions.unread() + 1, entries.1);
    }
}

/// Good beginnings for [`vfio_messages`]: what QEMU and a driver send first.
#[must_use]
pub fn vfio_messages_seeds() -> Vec<Vec<u8>> {
    let numbers = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let write = |region: u32, offset: u32, value: u32| message(9, 10, 0, &numbers(&[offset, 0, region, 4, value]));
    let version = message(1, 1, 0, b"\0\0\0\0{\"capabilities\":{\"max_msg_fds\":8}}\0");
    let mut describe = vec![(version.clone(), 0), (message(2, 4, 0, &numbers(&[16, 0, 0, 0])), 0)];
    for index in 0..10 {
        describe.push((message(3, 5, 0, &numbers(&[64, 0, index, 0, 0, 0, 0, 0])), 0));
        describe.push((message(4, 7, 0, &numbers(&[16, 0, index, 0])), 0));
    }
    let map = message(2, 2, 0, &numbers(&[32, 3, 0, 0, 0, 0, 0x1000, 0]));
    let interrupts = message(5, 8, 0, &numbers(&[20, 0x24, 2, 0, 3]));
    let unmap = message(6, 3, 0, &numbers(&[24, 2, 0, 0, 0, 0]));
    let enable = vec![
        (version, 0),
        (map, 1),
        (interrupts, 3),
        (write(7, 4, 6), 0),
        (write(0, 0x24, 0x1f_001f), 0),
        (write(0, 0x14, 0x0046_0001), 0),
        (write(0, 0x1000, 1), 0),
        (write(0, 0x1004, 0xffff), 0),
        (message(7, 9, 0, &numbers(&[0x1c, 0, 0, 4])), 0),
        (write(0, 0x14, 0), 0),
        (write(7, 0x68, 0x8000), 0),
        (unmap, 0),
        (message(8, 13, 0, &[]), 0),
    ];
    let seed = |messages: &[(Vec<u8>, u8)]| {
        let part = |(bytes, descriptors): &(Vec<u8>, u8)| {
            [&[u8::try_from(bytes.len()).unwrap_or(u8::MAX), *descriptors], &bytes[..]].concat()
        };
        messages.iter().flat_map(part).collect::<Vec<u8>>()
    };
    vec![seed(&describe), seed(&enable)]
}

/// Good beginnings for [`vfio_pointer`]: a list, one in a circle, and segments.
#[must_use]
pub fn vfio_pointer_seeds() -> Vec<Vec<u8>> {
    let seed = |sqe: &Sqe, length: u32, content: &[u8]| [sqe.as_bytes(), &length.to_le_bytes(), content].concat();
    let list = |entries: &[u64]| entries.iter().flat_map(|entry| entry.to_le_bytes()).collect::<Vec<u8>>();
    let prps = crate::vfio::with_prps(2, 0x1e00, PLACE);
    let descriptor = crate::vfio::descriptor;
    let segment = crate::vfio::with_sgl(2, descriptor(0x20, PLACE, 48));
    let segments = [
        descriptor(0x00, 0x1000, 512),
        descriptor(0x00, 0x3000, 0),
        descriptor(0x30, PLACE + 48, 16),
        descriptor(0x00, 0x9000, 512),
    ];
    vec![
        seed(&prps, 10_000, &list(&[0x5000, 0x6000, 0x9000])),
        seed(&prps, 3 << 20, &list(&[PLACE; 512])),
        seed(&segment, 1024, segments.as_bytes()),
    ]
}
