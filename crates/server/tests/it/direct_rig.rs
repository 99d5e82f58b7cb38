//! A virtual machine without a processor: memory that is shared with the target, a client of
//! vfio-user, and the queues of a driver.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_manage::config::Port;
use ebof_manage::{Config, Listen};
use ebof_nvme::{Cqe, Sqe, Status};
use ebof_region::SharedMapping;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use vfio_user::Client;
use zerocopy::{FromBytes, IntoBytes};

// The tests of a reactor have it in another place.
use super::config::one_subsystem;

/// Where the virtual machine's memory begins, and its bytes.
pub(crate) const RAM: u64 = 0x1_0000_0000;
pub(crate) const RAM_BYTES: u64 = 4 << 20;
/// Where tests have their data.
pub(crate) const DATA: u64 = RAM + (1 << 20);

const BAR0: u32 = 0;
const CONFIG_SPACE: u32 = 7;
const MSIX: u32 = 2;

/// The subsystem of [`one_subsystem`], at a direct port, too.
pub(crate) fn with_direct_port<'a>(socket: &Path, drives: impl IntoIterator<Item = &'a str>) -> Config {
    let mut config = one_subsystem(drives);
    let port = Port { max_io_queues: 8, ..Port::new(2, Listen::vfio_user(socket)) };
    config.subsystems[0].ports.push(port.name.clone());
    config.ports.push(port);
    config
}

/// A queue pair as a driver has it.
pub(crate) struct Rings {
    pub(crate) id: u16,
    pub(crate) entries: u16,
    submission: u64,
    completion: u64,
    pub(crate) tail: u16,
    pub(crate) head: u16,
    phase: u16,
    /// The submission queue's head, as completions say it.
    pub(crate) sqhd: u16,
}

/// The virtual machine.
pub(crate) struct Guest {
    pub(crate) client: Client,
    pub(crate) memory: Arc<SharedMapping>,
    pub(crate) file: OwnedFd,
    pub(crate) admin: Rings,
    pub(crate) interrupts: Vec<OwnedFd>,
    /// Where shadow doorbells and event indexes are.
    pub(crate) shadow: Option<(u64, u64)>,
    next_cid: u16,
}

impl Guest {
    /// A client with memory, interrupts and bus mastering, before its driver does anything.
    pub(crate) fn new(socket: &Path) -> Self {
        let (file, memory) = SharedMapping::create("guest", RAM_BYTES).unwrap();
        let mut client = Client::new(socket).unwrap();
        client.dma_map(0, RAM, RAM_BYTES, file.as_raw_fd()).unwrap();
        let count = client.get_irq_info(MSIX).unwrap().count.min(4);
        let interrupts: Vec<OwnedFd> =
            (0..count).map(|_| eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap()).collect();
        let descriptors: Vec<_> = interrupts.iter().map(AsRawFd::as_raw_fd).collect();
        client.set_irqs(MSIX, 0x24, 0, count, &descriptors).unwrap();
        client.region_write(CONFIG_SPACE, 4, &6_u16.to_le_bytes()).unwrap();
        let admin = Rings::new(0, 32, 0);
        Self { client, memory, file, admin, interrupts, shadow: None, next_cid: 0 }
    }

    /// The same with a controller that is enabled.
    pub(crate) fn enabled(socket: &Path) -> Self {
        let mut guest = Self::new(socket);
        guest.enable();
        guest
    }

    pub(crate) fn read32(&mut self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.client.region_read(BAR0, offset, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    pub(crate) fn write32(&mut self, offset: u64, value: u32) {
        self.client.region_write(BAR0, offset, &value.to_le_bytes()).unwrap();
    }

    pub(crate) fn write_config(&mut self, offset: u64, bytes: &[u8]) {
        self.client.region_write(CONFIG_SPACE, offset, bytes).unwrap();
    }

    /// Waits until CSTS has this value in these bits.
    pub(crate) fn await_status(&mut self, mask: u32, value: u32) {
        let start = Instant::now();
        loop {
            let csts = self.read32(0x1c);
            if csts & mask == value {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "CSTS stays {csts:#x}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn enable(&mut self) {
        self.enable_with(32);
    }

    /// The same with Admin Queues of so many entries.
    pub(crate) fn enable_with(&mut self, entries: u16) {
        self.admin = Rings::new(0, entries, 0);
        self.memory.clear(0, 1 << 20).unwrap();
        let size = u32::from(entries - 1);
        self.write32(0x24, size << 16 | size);
        let (submission, completion) = (self.admin.submission, self.admin.completion);
        for (at, value) in [(0x28, submission), (0x30, completion)] {
            self.write32(at, value as u32);
            self.write32(at + 4, (value >> 32) as u32);
        }
        self.write32(0x14, 0x0046_0001);
        self.await_status(3, 1);
    }

    pub(crate) fn disable(&mut self) {
        self.write32(0x14, 0x0046_0000);
        self.await_status(1, 0);
        self.shadow = None;
    }

    pub(crate) fn put(&self, address: u64, bytes: &[u8]) {
        self.memory.write((address - RAM) as usize, bytes).unwrap();
    }

    pub(crate) fn get(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read((address - RAM) as usize, &mut bytes).unwrap();
        bytes
    }

    pub(crate) fn put64(&self, address: u64, entries: &[u64]) {
        for (at, entry) in entries.iter().enumerate() {
            self.put(address + 8 * at as u64, &entry.to_le_bytes());
        }
    }

    /// Puts a command into a queue, with the next identifier.
    pub(crate) fn push(&mut self, rings: &mut Rings, mut sqe: Sqe) -> u16 {
        self.next_cid = (self.next_cid + 1) % 0x7fff;
        sqe.cid = self.next_cid.into();
        self.put_entry(rings, &sqe);
        self.next_cid
    }

    /// The same with the identifier that it has.
    pub(crate) fn put_entry(&mut self, rings: &mut Rings, sqe: &Sqe) {
        self.put(rings.submission + 64 * u64::from(rings.tail), sqe.as_bytes());
        rings.tail = (rings.tail + 1) % rings.entries;
    }

    /// Rings a queue's doorbell, or its shadow; whether the register was written.
    pub(crate) fn ring(&mut self, rings: &Rings, before: u16) -> bool {
        self.ring_at(u64::from(rings.id) * 8, rings.tail, before)
    }

    /// The same of a doorbell, whose value was `before`.
    pub(crate) fn ring_at(&mut self, offset: u64, value: u16, before: u16) -> bool {
        if let (Some((doorbells, events)), true) = (self.shadow, offset >= 8) {
            self.memory.store((doorbells - RAM + offset) as usize, value.into()).unwrap();
            let event = self.memory.load((events - RAM + offset) as usize).unwrap() as u16;
            // As Linux decides it.
            if value.wrapping_sub(event).wrapping_sub(1) >= value.wrapping_sub(before) {
                return false;
            }
        }
        self.write32(0x1000 + offset, value.into());
        true
    }

    /// The next completion, if it is there.
    pub(crate) fn try_take(&mut self, rings: &mut Rings) -> Option<Cqe> {
        let at = rings.completion + 16 * u64::from(rings.head);
        let last = self.memory.load((at - RAM) as usize + 12).unwrap();
        if (last >> 16) as u16 & 1 != rings.phase {
            return None;
        }
        let cqe = Cqe::read_from_bytes(&self.get(at, 16)).unwrap();
        rings.sqhd = cqe.sqhd.get();
        rings.head = (rings.head + 1) % rings.entries;
        rings.phase ^= u16::from(rings.head == 0);
        Some(cqe)
    }

    /// The next completion; its head doorbell is rung.
    pub(crate) fn take(&mut self, rings: &mut Rings) -> Cqe {
        let start = Instant::now();
        loop {
            if let Some(cqe) = self.try_take(rings) {
                let before = if rings.head == 0 { rings.entries } else { rings.head } - 1;
                self.ring_at(u64::from(rings.id) * 8 + 4, rings.head, before);
                return cqe;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no completion in queue {}", rings.id);
            std::thread::yield_now();
        }
    }

    /// Has a command executed.
    pub(crate) fn call(&mut self, rings: &mut Rings, sqe: Sqe) -> Cqe {
        let before = rings.tail;
        let cid = self.push(rings, sqe);
        self.ring(rings, before);
        let cqe = self.take(rings);
        assert_eq!(cqe.cid().0, cid);
        cqe
    }

    pub(crate) fn admin(&mut self, sqe: Sqe) -> Cqe {
        let mut admin = std::mem::replace(&mut self.admin, Rings::new(0, 2, 0));
        let cqe = self.call(&mut admin, sqe);
        self.admin = admin;
        cqe
    }

    /// The NQN of its controller's subsystem.
    pub(crate) fn identify(&mut self) -> String {
        let identify = prp(Sqe::new(0x06).with_cdw(10, 1), DATA, 0);
        assert_eq!(self.admin(identify).status(), Status::SUCCESS);
        let nqn = self.get(DATA + 768, 256);
        String::from_utf8(nqn.into_iter().take_while(|&byte| byte != 0).collect()).unwrap()
    }

    /// Creates a queue pair.
    pub(crate) fn create(&mut self, id: u16, entries: u16) -> Rings {
        let (rings, commands) = Rings::to_create(id, entries);
        let zeros = vec![0; usize::from(entries) * 64];
        self.put(rings.submission, &zeros);
        self.put(rings.completion, &zeros[..usize::from(entries) * 16]);
        for command in commands {
            assert_eq!(self.admin(command).status(), Status::SUCCESS);
        }
        rings
    }

    /// Waits for an interrupt of a vector.
    pub(crate) fn interrupted(&self, vector: usize) -> bool {
        let mut set = [PollFd::new(&self.interrupts[vector], PollFlags::IN)];
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        let there = poll(&mut set, Some(&limit)).unwrap() == 1;
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.interrupts[vector], &mut count);
        there
    }
}

impl Rings {
    /// `place` says which part of the memory they are in.
    pub(crate) fn new(id: u16, entries: u16, place: u64) -> Self {
        let submission = RAM + place * 0x2_0000;
        Self { id, entries, submission, completion: submission + 0x1_0000, tail: 0, head: 0, phase: 1, sqhd: 0 }
    }

    /// I/O queues, and the commands that create them.
    pub(crate) fn to_create(id: u16, entries: u16) -> (Self, [Sqe; 2]) {
        let rings = Self::new(id, entries, u64::from(id));
        let size = u32::from(entries - 1) << 16 | u32::from(id);
        let vector = u32::from(id % 4) << 16;
        let completion = Sqe::new(0x05).with_cdw(10, size).with_cdw(11, vector | 3);
        let submission = Sqe::new(0x01).with_cdw(10, size).with_cdw(11, u32::from(id) << 16 | 1);
        let commands = [prp(completion, rings.completion, 0), prp(submission, rings.submission, 0)];
        (rings, commands)
    }
}

/// The command with PRP entries.
pub(crate) fn prp(mut sqe: Sqe, first: u64, second: u64) -> Sqe {
    sqe.flags &= 0x3f;
    sqe.dptr.as_mut_bytes()[..8].copy_from_slice(&first.to_le_bytes());
    sqe.dptr.as_mut_bytes()[8..].copy_from_slice(&second.to_le_bytes());
    sqe
}

/// A read or write of so many blocks of 512 bytes.
pub(crate) fn transfer(opcode: u8, lba: u64, blocks: u32, first: u64, second: u64) -> Sqe {
    let sqe = Sqe::new(opcode).with_nsid(ebof_nvme::Nsid(1)).with_cdw(10, lba as u32).with_cdw(12, blocks - 1);
    prp(sqe, first, second)
}
