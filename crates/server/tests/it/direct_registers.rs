//! A driver that does not wait: what it writes to the registers of a direct port's controller takes
//! effect, in order, or the controller fails (CSTS.CFS).

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ebof_nvme::{Sqe, Status};

use crate::direct::{READ, Rig};
use crate::direct_hostile::send_with;
use crate::direct_rig::{DATA, Guest, Rings, prp, transfer};

const REGION_READ: u16 = 9;
const REGION_WRITE: u16 = 10;
const DEVICE_RESET: u16 = 13;
const BAR0: u32 = 0;
const CONFIG_SPACE: u32 = 7;

pub(crate) const ENABLE: u32 = 0x0046_0001;
const READY: u32 = 1;
const FATAL: u32 = 2;

/// A client that sends several messages at once, and has no memory.
pub(crate) struct Pipeline {
    pub(crate) stream: UnixStream,
    out: Vec<u8>,
    sent: u16,
    answers: usize,
}

impl Pipeline {
    pub(crate) fn new(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut client = Self { stream, out: Vec::new(), sent: 0, answers: 0 };
        client.put(1, &[0, 0, 1, 0]);
        client.flush();
        // Admin Queues of 32 entries.
        client.write32(0x24, 31 << 16 | 31);
        client.write32(0x28, 0x1000);
        client.write32(0x30, 0x2000);
        client
    }

    pub(crate) fn put(&mut self, command: u16, body: &[u8]) {
        self.sent += 1;
        self.answers += 1;
        self.out.extend(self.sent.to_le_bytes());
        self.out.extend(command.to_le_bytes());
        self.out.extend((16 + body.len() as u32).to_le_bytes());
        self.out.extend([0; 8]);
        self.out.extend(body);
    }

    fn access(&mut self, command: u16, region: u32, offset: u64, count: u32, data: &[u8]) {
        let mut body = offset.to_le_bytes().to_vec();
        body.extend(region.to_le_bytes());
        body.extend(count.to_le_bytes());
        body.extend(data);
        self.put(command, &body);
    }

    pub(crate) fn write32(&mut self, offset: u64, value: u32) {
        self.access(REGION_WRITE, BAR0, offset, 4, &value.to_le_bytes());
    }

    pub(crate) fn write_config(&mut self, offset: u64, value: u16) {
        self.access(REGION_WRITE, CONFIG_SPACE, offset, 2, &value.to_le_bytes());
    }

    pub(crate) fn reset(&mut self) {
        self.put(DEVICE_RESET, &[]);
    }

    /// Sends what was put with a descriptor, and takes the answer.
    pub(crate) fn send_with(&mut self, descriptor: OwnedFd) {
        let out = std::mem::take(&mut self.out);
        send_with(&self.stream, &out, descriptor);
        self.take();
    }

    /// Sends what was put, in one piece.
    pub(crate) fn send(&mut self) {
        self.stream.write_all(&self.out).unwrap();
        self.out.clear();
    }

    /// The same, and takes the answers; the body of the last one.
    pub(crate) fn flush(&mut self) -> Vec<u8> {
        self.send();
        self.take()
    }

    /// Takes the answers to what was sent.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        for _ in 0..std::mem::take(&mut self.answers) {
            let mut header = [0; 16];
            self.stream.read_exact(&mut header).unwrap();
            assert_eq!(u32::from_le_bytes(header[8..12].try_into().unwrap()), 1, "an answer without an error");
            let size = u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize;
            body.resize(size - 16, 0);
            self.stream.read_exact(&mut body).unwrap();
        }
        body
    }

    fn read32(&mut self, offset: u64) -> u32 {
        self.access(REGION_READ, BAR0, offset, 4, &[]);
        let body = self.flush();
        u32::from_le_bytes(body[body.len() - 4..].try_into().unwrap())
    }

    /// Waits until CSTS has this value.
    pub(crate) fn await_status(&mut self, value: u32) {
        let start = Instant::now();
        loop {
            let csts = self.read32(0x1c);
            if csts == value {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "CSTS stays {csts:#x}, and is not {value:#x}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// CC and CSTS say this, and go on saying it when the reset that is under way is through.
    fn stays(&mut self, cc: u32, csts: u32) {
        for _ in 0..20 {
            assert_eq!((self.read32(0x14), self.read32(0x1c)), (cc, csts));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_controller_that_is_enabled_before_its_reset_is_through_becomes_ready() {
    let rig = Rig::new("mem:4M");
    let mut client = Pipeline::new(&rig.socket);
    for writes in [
        &[ENABLE, 0, ENABLE][..],
        &[0, ENABLE],
        &[0, ENABLE, 0, 0x0046_0000, ENABLE],
        // A controller that failed has no queues, but a reset.
        &[0, ENABLE | 1 << 7, 0, ENABLE],
    ] {
        for cc in writes {
            client.write32(0x14, *cc);
        }
        client.flush();
        client.await_status(READY);
        client.stays(ENABLE, READY);
    }
    // It is disabled again, too.
    for writes in [&[0, ENABLE, 0][..], &[ENABLE, 0, ENABLE, 0]] {
        for cc in writes {
            client.write32(0x14, *cc);
        }
        client.flush();
        client.await_status(0);
        client.stays(0, 0);
    }
    // With Admin Queues that are too small it fails, also when that is seen late only.
    client.write32(0x14, ENABLE);
    client.write32(0x14, 0);
    client.write32(0x24, 0);
    client.write32(0x14, ENABLE);
    client.flush();
    client.await_status(FATAL);
    client.stays(ENABLE, FATAL);
}

#[test]
fn a_reset_of_the_function_forgets_that_the_controller_was_to_be_enabled() {
    let rig = Rig::new("mem:4M");
    for by_client in [false, true] {
        let mut client = Pipeline::new(&rig.socket);
        for cc in [ENABLE, 0, ENABLE] {
            client.write32(0x14, cc);
        }
        if by_client {
            client.reset();
        } else {
            client.write_config(0x68, 0x8000);
        }
        client.flush();
        client.stays(0, 0);
    }
}

#[test]
fn a_configuration_that_cannot_be_taken_fails_the_controller() {
    let rig = Rig::new("FILE");
    let mut client = Pipeline::new(&rig.socket);
    // Another page size, other entry sizes, a reserved kind of shutdown.
    for cc in [ENABLE | 1 << 7, 0x0047_0001, ENABLE | 3 << 14] {
        client.write32(0x14, ENABLE);
        client.flush();
        client.await_status(READY);
        client.write32(0x14, cc);
        client.flush();
        client.await_status(READY | FATAL);
        client.write32(0x14, 0);
        client.flush();
        client.await_status(0);
    }
    // One that comes while a shutdown is under way is taken after it.
    for cc in [ENABLE, ENABLE | 1 << 14, ENABLE | 1 << 14 | 1 << 7] {
        client.write32(0x14, cc);
    }
    client.flush();
    client.await_status(READY | FATAL | 8);
}

#[test]
fn a_controller_that_is_not_there_is_shut_down_at_once() {
    let rig = Rig::new("mem:4M");
    let mut client = Pipeline::new(&rig.socket);
    client.write32(0x14, 1 << 14);
    client.flush();
    client.await_status(8);
    client.write32(0x14, ENABLE);
    client.flush();
    client.await_status(READY);
    // With the reset, as some drivers do.
    client.write32(0x14, 1 << 14);
    client.flush();
    client.await_status(8);
    client.write32(0x14, 0);
    client.flush();
    client.await_status(0);
    drop(client);
    drop(Guest::enabled(&rig.socket));
}

/// Bus Master Enable and Memory Space Enable, or the latter only.
const MASTER: [u8; 2] = [6, 0];
const NO_MASTER: [u8; 2] = [2, 0];

#[test]
fn nothing_is_fetched_written_or_signalled_without_bus_mastering() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::enabled(&rig.socket);
    let mut io = guest.create(1, 64);
    let mut admin = std::mem::replace(&mut guest.admin, Rings::new(9, 2, 0));
    let before = admin.tail;
    guest.push(&mut admin, prp(Sqe::new(0x0c), 0, 0));
    guest.ring(&admin, before);
    for (offset, off, on) in [(4, NO_MASTER, MASTER), (0x44, [3, 0], [0, 0])] {
        guest.write_config(offset, &off);
        assert_eq!(guest.read32(0x1c), READY, "it executes nothing, and waits");
        while guest.interrupts.iter().any(|eventfd| rustix::io::read(eventfd, &mut [0; 8]).is_ok()) {}
        let before = io.tail;
        guest.push(&mut io, transfer(READ, 0, 8, DATA, 0));
        guest.ring(&io, before);
        // An event, too.
        guest.write32(0x1008, 64);
        for _ in 0..20 {
            assert!(guest.try_take(&mut io).is_none() && guest.try_take(&mut admin).is_none());
            guest.read32(0x1c);
        }
        assert!(guest.interrupts.iter().all(|eventfd| rustix::io::read(eventfd, &mut [0; 8]).is_err()));
        guest.write_config(offset, &on);
        assert_eq!(guest.take(&mut io).status(), Status::SUCCESS);
        assert_eq!(guest.take(&mut admin).dw0.get(), 0x0001_0100);
        assert!(guest.interrupted(0) && guest.interrupted(1));
        let log = prp(Sqe::new(0x02).with_cdw(10, 15 << 16 | 1), DATA, 0);
        assert_eq!(guest.call(&mut admin, log).status(), Status::SUCCESS);
        let before = admin.tail;
        guest.push(&mut admin, prp(Sqe::new(0x0c), 0, 0));
        guest.ring(&admin, before);
    }
    // Shadow doorbells are memory, too.
    let (doorbells, events) = (DATA + 0x10_0000, DATA + 0x10_1000);
    assert_eq!(guest.call(&mut admin, prp(Sqe::new(0x7c), doorbells, events)).status(), Status::SUCCESS);
    guest.write_config(4, &NO_MASTER);
    guest.shadow = Some((doorbells, events));
    let before = io.tail;
    guest.push(&mut io, transfer(READ, 0, 8, DATA, 0));
    guest.ring(&io, before);
    guest.write32(0x1008, io.tail.into());
    assert!(guest.try_take(&mut io).is_none());
    guest.write_config(4, &MASTER);
    assert_eq!(guest.take(&mut io).status(), Status::SUCCESS);
}

#[test]
fn a_controller_that_is_enabled_first_fetches_when_it_becomes_a_bus_master() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::new(&rig.socket);
    guest.write_config(4, &NO_MASTER);
    guest.enable();
    let mut admin = std::mem::replace(&mut guest.admin, Rings::new(9, 2, 0));
    let before = admin.tail;
    guest.push(&mut admin, prp(Sqe::new(0x06).with_cdw(10, 1), DATA, 0));
    guest.ring(&admin, before);
    assert_eq!(guest.read32(0x1c), READY);
    assert!(guest.try_take(&mut admin).is_none());
    guest.write_config(4, &MASTER);
    assert_eq!(guest.take(&mut admin).status(), Status::SUCCESS);
}

#[test]
fn what_is_under_way_when_bus_mastering_ends_fails_the_controller() {
    let rig = Rig::new("FILE");
    let mut guest = Guest::enabled(&rig.socket);
    for kind in ["idle", "busy", "resetting"] {
        let mut io = guest.create(1, 64);
        // The first half of a pair waits for its second.
        let mut half = transfer(0x05, 0, 1, DATA, 0);
        half.flags |= 1;
        let before = io.tail;
        guest.push(&mut io, half);
        guest.ring(&io, before);
        if kind == "resetting" {
            guest.write32(0x14, 0);
        }
        if kind == "idle" {
            guest.disable();
        }
        guest.write_config(4, &NO_MASTER);
        if kind == "busy" {
            assert_eq!(guest.read32(0x1c), FATAL, "{kind}");
        } else {
            guest.await_status(3, 0);
        }
        // What a driver does next.
        guest.write_config(4, &MASTER);
        guest.disable();
        guest.enable();
        let mut io = guest.create(1, 64);
        assert_eq!(guest.call(&mut io, transfer(READ, 0, 8, DATA, 0)).status(), Status::SUCCESS, "{kind}");
        guest.disable();
        guest.enable();
    }
}
