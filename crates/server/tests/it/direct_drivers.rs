//! What drivers do with a controller on their bus, in their order: EDK2 and SeaBIOS, Linux,
//! Windows, SPDK.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use ebof_nvme::{Nsid, Sqe, Status};
use ebof_region::{MappingAccess, SharedMapping};
use ebof_vfio::pci::{PENDING_BITS, VECTOR_TABLE};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use zerocopy::IntoBytes;

use crate::direct::{READ, Rig, WRITE};
use crate::direct_registers::{ENABLE, Pipeline};
use crate::direct_rig::{DATA, Guest, RAM, RAM_BYTES, Rings, prp, transfer};

fn delete(guest: &mut Guest, id: u32) {
    for opcode in [0x00, 0x04] {
        assert_eq!(guest.admin(prp(Sqe::new(opcode).with_cdw(10, id), 0, 0)).status(), Status::SUCCESS);
    }
}

/// The completion of a write and a read with so many queue entries, by polling.
fn transfers(guest: &mut Guest, io: &mut Rings) {
    for turn in 0..9 {
        guest.put(DATA, &[turn; 512]);
        assert_eq!(guest.call(io, transfer(WRITE, turn.into(), 1, DATA, 0)).status(), Status::SUCCESS);
        assert_eq!(guest.call(io, transfer(READ, turn.into(), 1, DATA + 4096, 0)).status(), Status::SUCCESS);
        assert_eq!(guest.get(DATA + 4096, 512), [turn; 512]);
    }
}

#[test]
fn firmware_has_queues_of_two_entries_and_hands_over_to_a_system() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::new(&rig.socket);
    for _ in 0..3 {
        // EDK2: disabled whatever it is, no Number of Queues, two queue pairs, no interrupts.
        guest.disable();
        guest.enable_with(2);
        assert_eq!(guest.admin(prp(Sqe::new(0x06).with_cdw(10, 1), DATA, 0)).status(), Status::SUCCESS);
        let mut first = guest.create(1, 2);
        let mut second = guest.create(2, 64);
        transfers(&mut guest, &mut first);
        transfers(&mut guest, &mut second);
        // At ExitBootServices it shuts down; the system finds CC.EN and SHST as they are.
        guest.write32(0x14, 0x0046_4001);
        guest.await_status(0xc, 8);
        // Linux: off and on the bus, disabled, enabled with queues as large as they may be.
        guest.write_config(4, &2_u16.to_le_bytes());
        guest.write_config(4, &6_u16.to_le_bytes());
        guest.write32(0x14, 0x0046_4000);
        guest.await_status(0xf, 8);
        guest.write32(0x14, 0x0046_0000);
        guest.await_status(0xf, 0);
        guest.enable();
        let mut io = guest.create(1, 128);
        transfers(&mut guest, &mut io);
        // It deletes its queues, with an event request under way, before it shuts down.
        let mut admin = std::mem::replace(&mut guest.admin, Rings::new(9, 2, 0));
        let before = admin.tail;
        guest.push(&mut admin, prp(Sqe::new(0x0c), 0, 0));
        guest.ring(&admin, before);
        guest.admin = admin;
        delete(&mut guest, 1);
        guest.write32(0x14, 0x0046_4001);
        guest.await_status(0xc, 8);
        // Nothing but a reset brings it back.
        let mut admin = std::mem::replace(&mut guest.admin, Rings::new(9, 2, 0));
        let identify = guest.call(&mut admin, prp(Sqe::new(0x06).with_cdw(10, 1), DATA, 0));
        assert!(identify.status().is(Status::COMMAND_SEQUENCE_ERROR), "{}", identify.status());
    }
}

#[test]
fn registers_are_accessed_in_any_size_that_drivers_use() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::new(&rig.socket);
    // 64-bit accesses, as 64-bit Linux and Windows may: CAP, ASQ, ACQ.
    let mut cap = [0; 8];
    guest.client.region_read(0, 0, &mut cap).unwrap();
    let (low, high) = (guest.read32(0), guest.read32(4));
    assert_eq!(u64::from_le_bytes(cap), u64::from(high) << 32 | u64::from(low));
    assert_eq!((low >> 16 & 1, high & 0xf, high >> 5 & 1), (1, 0, 1), "CQR, DSTRD, CSS");
    for at in [0x28, 0x30] {
        guest.client.region_write(0, at, &0x1_2345_6000_u64.to_le_bytes()).unwrap();
        assert_eq!((guest.read32(at), guest.read32(at + 4)), (0x2345_6000, 1));
    }
    // Reserved registers, and those of what it does not have.
    for at in [0x38, 0x3c, 0x40, 0x44, 0x48, 0x50, 0x58, 0xe00, 0xffc] {
        guest.write32(at, u32::MAX);
        assert_eq!(guest.read32(at), 0, "{at:#x}");
    }
    // NSSR: CAP.NSSRS is 0.
    guest.write32(0x20, 0x4e56_4d65);
    assert_eq!((guest.read32(0x20), guest.read32(0x1c)), (0, 0));
    guest.enable();
    assert_eq!(guest.read32(0x1c), 1);
}

#[test]
fn interrupts_of_masked_vectors_are_pending_until_they_are_not() {
    const MASK: u32 = 1 << 3 | 1;
    const UNMASK: u32 = 1 << 4 | 1;
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::enabled(&rig.socket);
    let mut io = guest.create(2, 16);
    guest.client.set_irqs(2, MASK, 2, 1, &[]).unwrap();
    assert_eq!(guest.call(&mut io, transfer(READ, 0, 1, DATA, 0)).status(), Status::SUCCESS);
    assert!(rustix::io::read(&guest.interrupts[2], &mut [0; 8]).is_err(), "it is masked");
    assert_eq!(guest.read32(PENDING_BITS), 1 << 2);
    // Pending bits cannot be written, and the table can.
    guest.write32(PENDING_BITS, 0);
    assert_eq!(guest.read32(PENDING_BITS), 1 << 2);
    guest.write32(VECTOR_TABLE + 2 * 16 + 12, 1);
    assert_eq!(guest.read32(VECTOR_TABLE + 2 * 16 + 12), 1);
    guest.client.set_irqs(2, UNMASK, 2, 1, &[]).unwrap();
    assert!(guest.interrupted(2));
    assert_eq!(guest.read32(PENDING_BITS), 0);
    // The masks of interrupts by pin mean nothing to vectors.
    guest.write32(0xc, u32::MAX);
    let flush = Sqe::new(0).with_nsid(Nsid(1));
    assert_eq!(guest.call(&mut io, prp(flush, 0, 0)).status(), Status::SUCCESS);
    assert!(guest.interrupted(2));
}

/// Takes the answer to a question about a region, and the descriptor that comes with it.
fn region_info(client: &mut Pipeline) -> (Vec<u8>, Option<OwnedFd>) {
    // As SPDK asks: with as many bytes as it has room for.
    let mut body = vec![0; 4064];
    body[..4].copy_from_slice(&4064_u32.to_le_bytes());
    client.flush();
    client.put(5, &body);
    client.send();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut first = [0; 1];
    recvmsg(&client.stream, &mut [std::io::IoSliceMut::new(&mut first)], &mut control, RecvFlags::PEEK).unwrap();
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    (client.take(), descriptor)
}

// @test limits.vfio-doorbells
#[test]
fn a_client_that_announces_nothing_rings_doorbells_in_memory_only() {
    const BYTES: u64 = 1 << 20;
    let rig = Rig::new("mem:4M");
    let mut client = Pipeline::new(&rig.socket);
    let (info, file) = region_info(&mut client);
    assert_eq!(info[4..8], 0xf_u32.to_le_bytes(), "it can be read, written and mapped, in part");
    assert_eq!((&info[48..56], &info[56..64]), (&0x1000_u64.to_le_bytes()[..], &0x1000_u64.to_le_bytes()[..]));
    let page = SharedMapping::map(file.expect("the doorbells"), 0x1000, 0x1000, MappingAccess::ALL).unwrap();
    let (memory_file, memory) = SharedMapping::create("host", BYTES).unwrap();
    let mut map = [32_u32, 3].map(u32::to_le_bytes).as_flattened().to_vec();
    map.extend([0, 0, BYTES].map(u64::to_le_bytes).as_flattened());
    client.put(2, &map);
    client.send_with(memory_file);
    // A bus master.
    client.write_config(4, 0x404);
    client.write32(0x14, ENABLE);
    client.flush();
    client.await_status(1);
    for turn in 0..3_u32 {
        let mut identify = prp(Sqe::new(0x06).with_cdw(10, 1), 0x8000, 0);
        identify.cid = (turn as u16).into();
        memory.write(0x1000 + 64 * turn as usize, identify.as_bytes()).unwrap();
        page.store(0, turn + 1).unwrap();
        let start = Instant::now();
        while memory.load(0x2000 + 16 * turn as usize + 12).unwrap() != turn | 0x1_0000 {
            assert!(start.elapsed() < Duration::from_secs(20), "no completion of command {turn}");
            std::thread::yield_now();
        }
        page.store(4, turn + 1).unwrap();
    }
    let mut model = [0; 4];
    memory.read(0x8000 + 24, &mut model).unwrap();
    assert_eq!(&model, b"ebof");
    drop(client);
    // Who says what it can do gets messages, which wake the target.
    let mut guest = Guest::enabled(&rig.socket);
    assert!(guest.client.region(0).unwrap().sparse_areas.is_empty());
    let _ = guest.identify();
}

// @test limits.vfio-doorbells
#[test]
fn memory_may_come_in_thousands_of_pieces() {
    const PIECES: u64 = 3000;
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::enabled(&rig.socket);
    let mut io = guest.create(1, 64);
    let (file, memory) = SharedMapping::create("pieces", PIECES * 4096).unwrap();
    let more = RAM + RAM_BYTES;
    // In the other order in the file: none of them goes on with its neighbour.
    for at in 0..PIECES {
        let offset = (PIECES - 1 - at) * 4096;
        guest.client.dma_map(offset, more + at * 4096, 4096, file.as_raw_fd()).unwrap();
    }
    guest.put(DATA, &[7; 4096]);
    assert_eq!(guest.call(&mut io, transfer(WRITE, 0, 8, DATA, 0)).status(), Status::SUCCESS);
    let last = more + (PIECES - 1) * 4096;
    assert_eq!(guest.call(&mut io, transfer(READ, 0, 8, last, 0)).status(), Status::SUCCESS);
    let mut bytes = [0; 4096];
    memory.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 4096]);
}
