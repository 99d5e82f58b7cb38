//! A virtual machine that reboots again and again within one client, or whose client is killed in
//! every state and comes back.

use std::os::fd::AsRawFd;

use ebof_manage::Target as _;
use ebof_nvme::{Sqe, Status};

use crate::direct::{READ, Rig, WRITE};
use crate::direct_registers::{ENABLE, Pipeline};
use crate::direct_rig::{DATA, Guest, Rings, prp, transfer};

/// Has events waited for, and reads and the first half of a pair under way.
fn busy(guest: &mut Guest, io: &mut Rings) {
    let mut admin = std::mem::replace(&mut guest.admin, Rings::new(9, 2, 0));
    let before = admin.tail;
    for _ in 0..3 {
        guest.push(&mut admin, prp(Sqe::new(0x0c), 0, 0));
    }
    guest.ring(&admin, before);
    guest.admin = admin;
    let before = io.tail;
    for at in 0..32 {
        guest.push(io, transfer(READ, at, 8, DATA, 0));
    }
    let mut half = transfer(0x05, 0, 1, DATA, 0);
    half.flags |= 1;
    guest.push(io, half);
    guest.ring(io, before);
}

fn works(guest: &mut Guest, turn: u32) {
    let mut io = guest.create(1, 64);
    guest.put(DATA, &[turn as u8; 4096]);
    assert_eq!(guest.call(&mut io, transfer(WRITE, 8, 8, DATA, 0)).status(), Status::SUCCESS, "{turn}");
    assert_eq!(guest.call(&mut io, transfer(READ, 8, 8, DATA + 8192, 0)).status(), Status::SUCCESS, "{turn}");
    assert_eq!(guest.get(DATA + 8192, 4096), [turn as u8; 4096], "{turn}");
    if turn.is_multiple_of(3) {
        let (doorbells, events) = (DATA + 0x10_0000, DATA + 0x10_1000);
        assert_eq!(guest.admin(prp(Sqe::new(0x7c), doorbells, events)).status(), Status::SUCCESS, "{turn}");
        guest.shadow = Some((doorbells, events));
    }
    busy(guest, &mut io);
}

/// As QEMU does it: off the bus, a reset, and what its firmware sets up.
fn reset(guest: &mut Guest, turn: u32) {
    match turn % 5 {
        0 => {
            guest.write_config(4, &0_u16.to_le_bytes());
            guest.client.reset().unwrap();
        }
        1 => guest.client.reset().unwrap(),
        2 => guest.write_config(0x68, &0x8000_u16.to_le_bytes()),
        3 => {
            guest.write32(0x14, 0x0046_4001);
            guest.await_status(0xc, 8);
            guest.write_config(4, &0_u16.to_le_bytes());
        }
        _ => guest.disable(),
    }
    guest.write_config(4, &6_u16.to_le_bytes());
    guest.shadow = None;
    // A driver disables a controller, whatever it finds.
    guest.disable();
}

#[test]
fn a_guest_reboots_hundreds_of_times() {
    for drive in ["mem:4M", "FILE"] {
        let rig = Rig::new(drive);
        let mut guest = Guest::new(&rig.socket);
        for turn in 0..300 {
            guest.enable();
            works(&mut guest, turn);
            reset(&mut guest, turn);
        }
        guest.enable();
        guest.create(1, 64);
        assert_eq!(rig.target.status().ports[1].connections, 3, "a client and two queues");
    }
}

#[test]
fn a_client_that_is_killed_in_any_state_comes_back() {
    for drive in ["mem:4M", "FILE"] {
        let rig = Rig::new(drive);
        for turn in 0..120 {
            // Without an answer to what was sent last.
            let mut raw = Pipeline::new(&rig.socket);
            let writes: [&[u32]; 6] =
                [&[], &[ENABLE], &[ENABLE, 0], &[ENABLE, 0, ENABLE], &[ENABLE, ENABLE | 1 << 14], &[ENABLE, 1]];
            writes[turn as usize % 6].iter().for_each(|cc| raw.write32(0x14, *cc));
            match turn % 4 {
                0 => raw.write_config(0x68, 0x8000),
                1 => raw.reset(),
                2 => raw.write_config(4, 4),
                _ => {}
            }
            raw.send();
            drop(raw);
            let mut guest = Guest::new(&rig.socket);
            if turn % 8 > 0 {
                guest.enable();
            }
            if turn % 8 > 1 {
                works(&mut guest, turn);
            }
            match turn % 8 {
                3 => guest.write32(0x14, 0x0046_4001),
                4 => guest.write32(0x14, 0),
                5 => guest.write_config(4, &0_u16.to_le_bytes()),
                // The memory goes first, as when a process ends.
                6 => guest.client.dma_unmap(crate::direct_rig::RAM, crate::direct_rig::RAM_BYTES).unwrap(),
                7 => {
                    let more = crate::direct_rig::RAM + crate::direct_rig::RAM_BYTES;
                    guest.client.dma_map(0, more, 1 << 20, guest.file.as_raw_fd()).unwrap();
                    guest.write32(0x14, 0x0046_0081);
                }
                _ => {}
            }
            drop(guest);
        }
        let mut guest = Guest::enabled(&rig.socket);
        works(&mut guest, 1);
        assert_eq!(rig.target.status().ports[1].connections, 3, "a client and two queues");
    }
}
