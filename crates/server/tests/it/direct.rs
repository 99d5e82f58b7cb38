//! A target with a direct port: what a virtual machine sees.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use ebof_manage::Target as _;
use ebof_manage::config::Port;
use ebof_nvme::identify::IdentifyController;
use ebof_nvme::{Nsid, Sqe, Status};
use ebof_region::SharedMapping;
use ebof_server::{Settings, Target};
use zerocopy::{FromBytes, IntoBytes};

use crate::direct_rig::{DATA, Guest, RAM, RAM_BYTES, Rings, prp, transfer, with_direct_port};

pub(crate) const READ: u8 = 0x02;
pub(crate) const WRITE: u8 = 0x01;
const COMPARE: u8 = 0x05;

/// A target with a direct port.
pub(crate) struct Rig {
    _folder: tempfile::TempDir,
    pub(crate) socket: std::path::PathBuf,
    pub(crate) target: Target,
}

impl Rig {
    pub(crate) fn new(drive: &str) -> Self {
        Self::with(drive, |_| {})
    }

    /// The same with other options of the port.
    fn with(drive: &str, set: impl FnOnce(&mut Port)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("direct.sock");
        let file = folder.path().join("disk.img");
        let drive = if drive == "FILE" { format!("{}:8M", file.display()) } else { drive.to_owned() };
        let settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
        let mut config = with_direct_port(&socket, [drive.as_str()]);
        set(&mut config.ports[1]);
        let target = Target::start(config, settings).unwrap();
        Self { _folder: folder, socket, target }
    }
}

#[test]
fn a_controller_is_enabled_and_identified() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::enabled(&rig.socket);
    let identify = prp(Sqe::new(0x06).with_cdw(10, 1), DATA, 0);
    assert_eq!(guest.admin(identify).status(), Status::SUCCESS);
    assert!(guest.interrupted(0));
    let data = guest.get(DATA, 4096);
    let controller = IdentifyController::ref_from_bytes(&data).unwrap();
    assert_eq!((controller.ioccsz.get(), controller.cntrltype), (0, 1));
    assert_ne!(controller.oacs.get() & 1 << 8, 0, "Doorbell Buffer Config");
    let mut io = guest.create(1, 64);
    guest.put(DATA, &[0xa5; 8192]);
    assert_eq!(guest.call(&mut io, transfer(WRITE, 8, 16, DATA, DATA + 4096)).status(), Status::SUCCESS);
    assert_eq!(guest.call(&mut io, transfer(READ, 8, 16, DATA + 0x4000, DATA + 0x6000)).status(), Status::SUCCESS);
    assert_eq!(guest.get(DATA + 0x4000, 4096), [0xa5; 4096]);
    assert_eq!(guest.get(DATA + 0x6000, 4096), [0xa5; 4096]);
    let flush = Sqe::new(0).with_nsid(Nsid(1));
    assert_eq!(guest.call(&mut io, prp(flush, 0, 0)).status(), Status::SUCCESS);
    assert!(guest.interrupted(1));
    drop(guest);
    drop(rig.target);
}

#[test]
fn data_are_where_prps_and_sgls_say() {
    for drive in ["mem:8M", "FILE"] {
        let rig = Rig::new(drive);
        let mut guest = Guest::enabled(&rig.socket);
        let mut io = guest.create(1, 64);
        // Nine pages that are not next to each other, the first with an offset, by a list that goes
        // on in a second one.
        let pages: Vec<u64> = (0..9).map(|at| DATA + 0x2_0000 + at * 0x3000).collect();
        let (first_list, second_list) = (DATA + 0xff0, DATA + 0x2000);
        guest.put64(first_list, &[pages[1], second_list]);
        guest.put64(second_list, &pages[2..]);
        guest.put(pages[0] + 512, &[1; 3584]);
        for (at, page) in (2..).zip(&pages[1..]) {
            guest.put(*page, &[at; 4096]);
        }
        let blocks = 7 + 8 * 8;
        let write = transfer(WRITE, 100, blocks, pages[0] + 512, first_list);
        assert_eq!(guest.call(&mut io, write).status(), Status::SUCCESS, "{drive}");
        // Back by an SGL: one block, a segment with the rest.
        let (rest, segment) = (DATA + 0x10_0000, DATA + 0x8000);
        let bytes = blocks * 512;
        guest.put(segment, &sgl(DATA + 0x4000, 512, 0x00));
        guest.put(segment + 16, &sgl(rest, bytes - 512, 0x00));
        let mut read = transfer(READ, 100, blocks, segment, 0);
        read.flags |= Sqe::PSDT_SGL;
        read.dptr.as_mut_bytes().copy_from_slice(&sgl(segment, 32, 0x30));
        assert_eq!(guest.call(&mut io, read).status(), Status::SUCCESS, "{drive}");
        let mut expected = vec![1; 3584];
        (2..10).for_each(|at| expected.extend_from_slice(&[at; 4096]));
        assert_eq!(guest.get(DATA + 0x4000, 512), expected[..512]);
        assert!(guest.get(rest, bytes as usize - 512) == expected[512..], "{drive}");
        // Compare looks at a copy.
        let compare = transfer(COMPARE, 100, blocks, pages[0] + 512, first_list);
        assert_eq!(guest.call(&mut io, compare).status(), Status::SUCCESS, "{drive}");
        guest.put(pages[8] + 4095, &[0]);
        assert!(guest.call(&mut io, compare).status().is(Status::COMPARE_FAILURE), "{drive}");
    }
}

#[test]
fn bad_pointers_are_the_commands_fault() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::enabled(&rig.socket);
    let mut io = guest.create(1, 64);
    let beyond = RAM + RAM_BYTES;
    // A list whose entries are the list itself, for ever.
    let circle = DATA + 0x3000;
    guest.put64(circle, &[circle; 512]);
    for (sqe, status) in [
        (transfer(READ, 0, 8, 0, 0), Status::DATA_TRANSFER_ERROR),
        (transfer(READ, 0, 8, beyond, 0), Status::DATA_TRANSFER_ERROR),
        (transfer(READ, 0, 8, beyond - 512, beyond), Status::DATA_TRANSFER_ERROR),
        (transfer(WRITE, 0, 8, u64::MAX - 4095, 0), Status::DATA_TRANSFER_ERROR),
        (transfer(READ, 0, 8, DATA + 2, DATA + 4096), Status::PRP_OFFSET_INVALID),
        (transfer(WRITE, 0, 16, DATA, DATA + 512), Status::PRP_OFFSET_INVALID),
        (transfer(COMPARE, 0, 8, beyond, 0), Status::DATA_TRANSFER_ERROR),
        (transfer(READ, 0, 24, DATA, beyond), Status::DATA_TRANSFER_ERROR),
    ] {
        let cqe = guest.call(&mut io, sqe);
        assert!(cqe.status().is(status), "{sqe:?}: {}", cqe.status());
    }
    // 1 MiB: every page is the list, whose bytes are read and written by it.
    assert_eq!(guest.call(&mut io, transfer(WRITE, 0, 2048, circle, circle)).status(), Status::SUCCESS);
    let identify = |prp1| prp(Sqe::new(0x06).with_cdw(10, 1), prp1, 0);
    assert!(guest.admin(identify(beyond)).status().is(Status::DATA_TRANSFER_ERROR));
    let mut by_sgl = identify(DATA);
    by_sgl.flags |= Sqe::PSDT_SGL;
    assert!(guest.admin(by_sgl).status().is(Status::INVALID_FIELD));
    // Fabrics commands, and the identifier of register writes.
    assert!(guest.admin(prp(Sqe::new(0x7f), 0, 0)).status().is(Status::INVALID_OPCODE));
    let mut forged = ebof_nvme::connect::Property::set(0x14, 0);
    forged.cid = 0xffff.into();
    let mut admin = std::mem::replace(&mut guest.admin, Rings::new(9, 2, 0));
    guest.put_entry(&mut admin, &forged);
    let before = admin.tail.wrapping_sub(1);
    guest.ring(&admin, before);
    let cqe = guest.take(&mut admin);
    guest.admin = admin;
    assert_eq!((cqe.cid().0, cqe.status().is(Status::INVALID_FIELD)), (0xffff, true));
    assert_eq!(guest.read32(0x1c), 1);
    assert_eq!(guest.call(&mut io, transfer(READ, 0, 8, DATA, 0)).status(), Status::SUCCESS);
}

#[test]
fn queues_are_created_and_deleted_as_the_specification_says() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::enabled(&rig.socket);
    let queues = guest.admin(prp(Sqe::new(0x09).with_cdw(10, 7).with_cdw(11, 0xffff_fffe & 0x00ff_00ff), 0, 0));
    assert_eq!((queues.status(), queues.dw0.get()), (Status::SUCCESS, 0x0007_0007));
    let cq = |id: u32, entries: u32, flags: u32, at| {
        prp(Sqe::new(0x05).with_cdw(10, (entries - 1) << 16 | id).with_cdw(11, flags), at, 0)
    };
    let sq = |id: u32, entries: u32, flags: u32, at| {
        prp(Sqe::new(0x01).with_cdw(10, (entries - 1) << 16 | id).with_cdw(11, flags), at, 0)
    };
    let delete = |opcode, id: u32| prp(Sqe::new(opcode).with_cdw(10, id), 0, 0);
    for (sqe, status) in [
        (cq(0, 16, 3, DATA), Status::INVALID_QUEUE_ID),
        (cq(9, 16, 3, DATA), Status::INVALID_QUEUE_ID),
        (cq(1, 1, 3, DATA), Status::INVALID_QUEUE_SIZE),
        (cq(1, 0x1_0000, 3, DATA), Status::INVALID_QUEUE_SIZE),
        (cq(1, 16, 2, DATA), Status::INVALID_FIELD),
        (cq(1, 16, 9 << 16 | 3, DATA), Status::INVALID_INTERRUPT_VECTOR),
        (cq(1, 16, 3, DATA + 16), Status::PRP_OFFSET_INVALID),
        (sq(1, 16, 1 << 16 | 1, DATA), Status::COMPLETION_QUEUE_INVALID),
        (sq(1, 16, 1, DATA), Status::INVALID_QUEUE_ID),
        (cq(1, 16, 3, DATA), Status::SUCCESS),
        (cq(1, 16, 3, DATA), Status::INVALID_QUEUE_ID),
        (sq(2, 16, 1 << 16 | 1, DATA + 4096), Status::SUCCESS),
        (sq(2, 16, 1 << 16 | 1, DATA + 4096), Status::INVALID_QUEUE_ID),
        (delete(0x04, 1), Status::INVALID_QUEUE_DELETION),
        (delete(0x00, 1), Status::INVALID_QUEUE_ID),
        (prp(Sqe::new(0x09).with_cdw(10, 7).with_cdw(11, 0x0001_0001), 0, 0), Status::COMMAND_SEQUENCE_ERROR),
        (delete(0x00, 2), Status::SUCCESS),
        (delete(0x00, 2), Status::INVALID_QUEUE_ID),
        (delete(0x04, 1), Status::SUCCESS),
        (delete(0x04, 1), Status::INVALID_QUEUE_ID),
        (cq(1, 16, 3, DATA), Status::SUCCESS),
        (sq(1, 16, 1 << 16 | 1, DATA + 4096), Status::SUCCESS),
    ] {
        let cqe = guest.admin(sqe);
        assert!(cqe.status().is(status), "{sqe:?}: {}", cqe.status());
    }
}

#[test]
fn a_controller_has_as_many_queues_as_doorbells() {
    let rig = Rig::with("mem:4M", |port| port.max_io_queues = 1024);
    let mut guest = Guest::enabled(&rig.socket);
    let queues = |opcode| prp(Sqe::new(opcode).with_cdw(10, 7).with_cdw(11, 0x03ff_03ff), 0, 0);
    // Both numbers are 0's based: 511 of each.
    for opcode in [0x09, 0x0a] {
        let cqe = guest.admin(queues(opcode));
        assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, 0x01fe_01fe));
    }
    let cq = |id: u32| prp(Sqe::new(0x05).with_cdw(10, 15 << 16 | id).with_cdw(11, 1), DATA, 0);
    let sq = |id: u32| prp(Sqe::new(0x01).with_cdw(10, 15 << 16 | id).with_cdw(11, 511 << 16 | 1), DATA + 4096, 0);
    assert!(guest.admin(cq(512)).status().is(Status::INVALID_QUEUE_ID));
    assert_eq!(guest.admin(cq(511)).status(), Status::SUCCESS);
    assert!(guest.admin(sq(512)).status().is(Status::INVALID_QUEUE_ID));
    assert_eq!(guest.admin(sq(511)).status(), Status::SUCCESS);
}

#[test]
fn shadow_doorbells_replace_registers() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::enabled(&rig.socket);
    let mut io = guest.create(1, 64);
    let (doorbells, events) = (DATA + 0x10_0000, DATA + 0x10_1000);
    let config = |events| prp(Sqe::new(0x7c), doorbells, events);
    assert!(guest.admin(config(events + 4)).status().is(Status::PRP_OFFSET_INVALID));
    assert!(guest.admin(config(RAM + RAM_BYTES)).status().is(Status::DATA_TRANSFER_ERROR));
    assert_eq!(guest.admin(config(events)).status(), Status::SUCCESS);
    guest.shadow = Some((doorbells, events));
    let mut other = guest.create(2, 8);
    let mut written = 0;
    // Beside programs that compute the target sleeps after nearly every command, and wants to be
    // told of the next one.
    let patience = Instant::now() + Duration::from_secs(30);
    let mut turns = 0;
    for turn in 0_u64.. {
        if turn >= 500 && (u64::from(written) < turn || Instant::now() > patience) {
            break;
        }
        turns = turn + 1;
        let queue = if turn % 3 == 0 { &mut other } else { &mut io };
        let before = queue.tail;
        let cid = guest.push(queue, transfer(READ, turn % 64, 8, DATA, 0));
        written += u32::from(guest.ring(queue, before));
        let cqe = guest.take(queue);
        assert_eq!((cqe.cid().0, cqe.status()), (cid, Status::SUCCESS));
    }
    assert!(u64::from(written) < turns, "{written} registers were written for {turns} commands");
}

#[test]
fn doorbells_that_are_mapped_are_looked_at() {
    let rig = Rig::with("mem:4M", |port| port.busy_poll_us = Some(200));
    let mut guest = Guest::enabled(&rig.socket);
    let region = guest.client.region(0).unwrap();
    let area = region.sparse_areas[0];
    assert_eq!((area.offset, area.size), (0x1000, 0x1000));
    let file = region.file_offset.as_ref().unwrap().file();
    let page = SharedMapping::map(file, 0x1000, 0x1000, ebof_region::MappingAccess::ALL).unwrap();
    for life in 0..2 {
        let mut io = guest.create(1, 64);
        assert_eq!(page.load(8).unwrap(), 0);
        for turn in 0..100_u64 {
            let cid = guest.push(&mut io, transfer(READ, turn % 64, 8, DATA, 0));
            page.store(8, io.tail.into()).unwrap();
            let cqe = loop {
                if let Some(cqe) = guest.try_take(&mut io) {
                    break cqe;
                }
                if turn % 50 == 49 {
                    // The thread is asleep meanwhile, and nothing wakes it.
                    std::thread::sleep(Duration::from_millis(5));
                }
            };
            assert_eq!((cqe.cid().0, cqe.status()), (cid, Status::SUCCESS), "{life}");
            page.store(12, io.head.into()).unwrap();
        }
        guest.disable();
        guest.enable();
    }
}

#[test]
fn completions_wait_for_free_entries() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::enabled(&rig.socket);
    // Two submission queues with 63 commands each share a completion queue of four entries.
    let four = guest.create(1, 4);
    guest.create(2, 64);
    for id in [2_u32, 3] {
        if id == 2 {
            assert_eq!(guest.admin(prp(Sqe::new(0x00).with_cdw(10, 2), 0, 0)).status(), Status::SUCCESS);
        }
        let at = DATA + 0x10_0000 + u64::from(id) * 0x1_0000;
        let create = Sqe::new(0x01).with_cdw(10, 63 << 16 | id).with_cdw(11, 1 << 16 | 1);
        assert_eq!(guest.admin(prp(create, at, 0)).status(), Status::SUCCESS);
        for slot in 0..63 {
            let mut sqe = transfer(READ, 0, 8, DATA, 0);
            sqe.cid = ((id as u16) << 8 | slot).into();
            guest.put(at + 64 * u64::from(slot), sqe.as_bytes());
        }
    }
    guest.write32(0x1000 + 16, 63);
    guest.write32(0x1000 + 24, 63);
    let mut completions = four;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..126 {
        let cqe = guest.take(&mut completions);
        assert_eq!(cqe.status(), Status::SUCCESS);
        assert!(seen.insert((cqe.sqid.get(), cqe.cid().0)));
    }
    assert!(guest.try_take(&mut completions).is_none());
}

#[test]
fn completions_wait_for_free_entries_that_shadow_doorbells_tell_of() {
    for polls in [false, true] {
        let rig = Rig::with("mem:4M", |port| port.prefer_busy_poll = polls);
        let mut guest = Guest::enabled(&rig.socket);
        let (doorbells, events) = (DATA + 0x10_0000, DATA + 0x10_1000);
        assert_eq!(guest.admin(prp(Sqe::new(0x7c), doorbells, events)).status(), Status::SUCCESS);
        guest.shadow = Some((doorbells, events));
        let mut completions = guest.create(1, 4);
        let mut commands = Rings::new(2, 64, 2);
        let create = Sqe::new(0x01).with_cdw(10, 63 << 16 | 2).with_cdw(11, 1 << 16 | 1);
        assert_eq!(guest.admin(prp(create, RAM + 2 * 0x2_0000, 0)).status(), Status::SUCCESS);
        for burst in 0..4 {
            let before = commands.tail;
            for _ in 0..63 {
                guest.push(&mut commands, transfer(READ, 0, 8, DATA, 0));
            }
            guest.ring(&commands, before);
            for taken in 0..63 {
                if taken % 16 == burst {
                    // The thread falls asleep meanwhile.
                    std::thread::sleep(Duration::from_millis(10));
                }
                assert_eq!(guest.take(&mut completions).status(), Status::SUCCESS);
            }
        }
    }
}

#[test]
fn resets_of_all_kinds_begin_anew() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::enabled(&rig.socket);
    for kind in ["controller", "function", "device", "shutdown"] {
        let mut io = guest.create(1, 64);
        guest.put(DATA, &[7; 4096]);
        assert_eq!(guest.call(&mut io, transfer(WRITE, 0, 8, DATA, 0)).status(), Status::SUCCESS);
        // Events are waited for, and commands are under way.
        let mut admin = std::mem::replace(&mut guest.admin, Rings::new(9, 2, 0));
        let before = admin.tail;
        guest.push(&mut admin, prp(Sqe::new(0x0c), 0, 0));
        guest.ring(&admin, before);
        let before = io.tail;
        for _ in 0..32 {
            guest.push(&mut io, transfer(READ, 0, 8, DATA, 0));
        }
        guest.ring(&io, before);
        match kind {
            "controller" => guest.disable(),
            "function" => {
                guest.write_config(0x68, &0x8000_u16.to_le_bytes());
                assert_eq!((guest.read32(0x14), guest.read32(0x1c)), (0, 0), "{kind}");
                guest.write_config(4, &6_u16.to_le_bytes());
            }
            "device" => {
                guest.client.reset().unwrap();
                assert_eq!((guest.read32(0x14), guest.read32(0x1c)), (0, 0), "{kind}");
                guest.write_config(4, &6_u16.to_le_bytes());
            }
            _ => {
                guest.write32(0x14, 0x0046_4001);
                guest.await_status(0xc, 8);
                guest.disable();
            }
        }
        guest.enable();
        let mut io = guest.create(1, 64);
        assert_eq!(guest.call(&mut io, transfer(READ, 0, 8, DATA + 4096, 0)).status(), Status::SUCCESS, "{kind}");
        assert_eq!(guest.get(DATA + 4096, 4096), [7; 4096], "{kind}");
        for id in [0, 4] {
            let delete = prp(Sqe::new(id).with_cdw(10, 1), 0, 0);
            assert_eq!(guest.admin(delete).status(), Status::SUCCESS, "{kind}");
        }
    }
}

#[test]
fn a_client_comes_back_and_a_second_one_is_refused() {
    let rig = Rig::new("mem:4M");
    for turn in 0..20 {
        let mut guest = Guest::enabled(&rig.socket);
        if turn == 0 {
            let second = std::os::unix::net::UnixStream::connect(&rig.socket).unwrap();
            let mut byte = [0];
            assert_eq!(std::io::Read::read(&mut &second, &mut byte).unwrap(), 0, "it is closed");
        }
        let mut io = guest.create(1, 64);
        let before = io.tail;
        for _ in 0..40 {
            guest.push(&mut io, transfer(READ, 0, 8, DATA, 0));
        }
        guest.ring(&io, before);
        // It dies in the middle of commands.
        drop(guest);
    }
    let mut guest = Guest::enabled(&rig.socket);
    let mut io = guest.create(1, 64);
    assert_eq!(guest.call(&mut io, transfer(READ, 0, 8, DATA, 0)).status(), Status::SUCCESS);
    assert_eq!(rig.target.status().ports[1].connections, 3, "a client and two queues");
    // The end of the target is that of the client's connection, whatever waits.
    let mut admin = std::mem::replace(&mut guest.admin, Rings::new(9, 2, 0));
    let before = admin.tail;
    guest.push(&mut admin, prp(Sqe::new(0x0c), 0, 0));
    guest.ring(&admin, before);
    drop(rig.target);
    assert!(guest.client.region_read(0, 0, &mut [0; 4]).is_err());
    assert!(!rig.socket.exists());
}

#[test]
fn a_direct_port_comes_and_goes() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("direct.sock");
    let with = with_direct_port(&socket, ["mem:4M"]);
    let mut without = with.clone();
    let port = without.ports.pop().unwrap();
    without.subsystems[0].ports.retain(|name| *name != port.name);
    let settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
    let target = Target::start(without.clone(), settings).unwrap();
    for _ in 0..3 {
        target.apply(with.clone()).unwrap();
        let mut guest = Guest::enabled(&socket);
        let mut io = guest.create(1, 64);
        assert_eq!(guest.call(&mut io, transfer(READ, 0, 8, DATA, 0)).status(), Status::SUCCESS);
        // The subsystem alone leaves the port, and comes back.
        let mut elsewhere = with.clone();
        elsewhere.subsystems[0].ports.retain(|name| *name != port.name);
        target.apply(elsewhere).unwrap();
        guest.await_status(2, 2);
        target.apply(with.clone()).unwrap();
        guest.disable();
        guest.enable();
        let mut io = guest.create(1, 64);
        assert_eq!(guest.call(&mut io, transfer(READ, 0, 8, DATA, 0)).status(), Status::SUCCESS);
        target.apply(without.clone()).unwrap();
        let mut bytes = [0; 4];
        while guest.client.region_read(0, 0x1c, &mut bytes).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!socket.exists());
    }
}

#[test]
fn memory_is_unmapped_when_no_io_uses_it() {
    let rig = Rig::new("FILE");
    let mut guest = Guest::enabled(&rig.socket);
    let mut io = guest.create(1, 64);
    let more = RAM + RAM_BYTES;
    let (file, memory) = SharedMapping::create("more", 1 << 20).unwrap();
    for _ in 0..20 {
        guest.client.dma_map(0, more, 1 << 20, file.as_raw_fd()).unwrap();
        let before = io.tail;
        for at in 0..16 {
            guest.push(&mut io, transfer(READ, 0, 8, more + at * 4096, 0));
        }
        guest.ring(&io, before);
        guest.client.dma_unmap(more, 1 << 20).unwrap();
        memory.clear(0, 1 << 20).unwrap();
        for _ in 0..16 {
            let status = guest.take(&mut io).status();
            assert!(status.is_success() || status.is(Status::DATA_TRANSFER_ERROR), "{status}");
        }
        let mut bytes = vec![0; 1 << 20];
        memory.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0), "nothing is written after the answer");
    }
    // What is no memory is not accessed at all: a file system could make an access last for ever.
    let device = std::fs::File::options().read(true).write(true).open("/dev/zero").unwrap();
    guest.client.dma_map(0, more, 1 << 20, device.as_raw_fd()).unwrap();
    assert!(guest.call(&mut io, transfer(READ, 0, 8, more, 0)).status().is(Status::DATA_TRANSFER_ERROR));
}

// @test limits.lost-memory
#[test]
fn memory_that_can_be_shortened_is_served_and_harms_its_owner_only() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    for drive in ["mem:4M", "FILE"] {
        let rig = Rig::new(drive);
        let mut guest = Guest::enabled(&rig.socket);
        let mut io = guest.create(1, 64);
        let more = RAM + RAM_BYTES;
        let file = memfd_create(c"unsealed", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 1 << 20).unwrap();
        guest.client.dma_map(0, more, 1 << 20, file.as_raw_fd()).unwrap();
        let data: Vec<u8> = (0..8192_u32).map(|at| (at / 7) as u8).collect();
        rustix::io::pwrite(&file, &data, 4096).unwrap();
        let (first, second) = (more + 4096, more + 8192);
        assert_eq!(guest.call(&mut io, transfer(WRITE, 16, 16, first, second)).status(), Status::SUCCESS, "{drive}");
        assert_eq!(guest.call(&mut io, transfer(READ, 16, 16, first + 8192, second + 8192)).status(), Status::SUCCESS);
        let mut back = vec![0; 8192];
        rustix::io::pread(&file, &mut back[..], 3 * 4096).unwrap();
        assert!(back == data, "{drive}");
        // Other queues may be in it, too.
        ftruncate(&file, 4096).unwrap();
        for opcode in [READ, WRITE] {
            let before = io.tail;
            guest.push(&mut io, transfer(opcode, 16, 16, first, second));
            guest.ring(&io, before);
            let start = Instant::now();
            // The command fails, or its controller does.
            while guest.try_take(&mut io).is_none_or(|cqe| cqe.status().is_success()) && guest.read32(0x1c) & 2 == 0 {
                assert!(start.elapsed() < Duration::from_secs(20), "{drive} {opcode}");
            }
        }
        drop(guest);
        let mut other = Guest::enabled(&rig.socket);
        let mut io = other.create(1, 64);
        assert_eq!(other.call(&mut io, transfer(READ, 16, 16, DATA, DATA + 4096)).status(), Status::SUCCESS);
        assert!(other.get(DATA, 8192) == data, "{drive}: nothing else was written");
    }
}

#[test]
fn the_host_identifier_is_the_guests() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::enabled(&rig.socket);
    let set = |exhid| prp(Sqe::new(0x09).with_cdw(10, 0x81).with_cdw(11, exhid), DATA, 0);
    let get = |exhid| prp(Sqe::new(0x0a).with_cdw(10, 0x81).with_cdw(11, exhid), DATA + 4096, 0);
    assert_eq!(guest.admin(get(1)).status(), Status::SUCCESS);
    assert_eq!(guest.get(DATA + 4096, 16), [0; 16]);
    guest.put(DATA, b"0123456789abcdef");
    assert_eq!(guest.admin(set(1)).status(), Status::SUCCESS);
    assert_eq!(guest.admin(get(1)).status(), Status::SUCCESS);
    assert_eq!(guest.get(DATA + 4096, 16), b"0123456789abcdef");
    guest.put(DATA, b"another identity");
    assert!(guest.admin(set(1)).status().is(Status::COMMAND_SEQUENCE_ERROR));
    guest.disable();
    guest.enable();
    guest.put(DATA, b"8 bytes.");
    assert_eq!(guest.admin(set(0)).status(), Status::SUCCESS);
    assert_eq!(guest.admin(get(0)).status(), Status::SUCCESS);
    assert_eq!(guest.get(DATA + 4096, 8), b"8 bytes.");
}

fn sgl(address: u64, length: u32, identifier: u8) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[15] = identifier;
    bytes
}
