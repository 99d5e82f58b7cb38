//! A virtual machine and a client that break the rules: they get a status, or are left, and nothing
//! else is disturbed.

use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Options};
use ebof_manage::api::Target as _;
use ebof_nvme::{Nqn, Sqe, Status};
use ebof_region::SharedMapping;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::config::NQN;
use crate::direct::{READ, Rig, WRITE};
use crate::direct_rig::{DATA, Guest, RAM, RAM_BYTES, Rings, prp, transfer};

/// A stream of numbers that looks random and is always the same.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn header(command: u16, size: u32, flags: u32) -> Vec<u8> {
    let mut bytes = vec![7, 0];
    bytes.extend(command.to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend([0; 4]);
    bytes
}

/// Whether the target ends the connection.
fn is_left(mut stream: &UnixStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
            Err(_) => return false,
        }
    }
}

fn works(rig: &Rig) {
    let mut guest = Guest::enabled(&rig.socket);
    let mut io = guest.create(1, 64);
    assert_eq!(guest.call(&mut io, transfer(READ, 0, 8, DATA, 0)).status(), Status::SUCCESS);
}

#[test]
fn messages_that_cannot_be_followed_end_the_client() {
    let rig = Rig::new("mem:4M");
    let oversized = header(1, 1 << 20, 0);
    let short = header(1, 8, 0);
    let reply = header(1, 16, 1);
    for bytes in [oversized, short, reply, vec![0xff; 4096], vec![0; 64]] {
        let mut stream = UnixStream::connect(&rig.socket).unwrap();
        stream.write_all(&bytes).unwrap();
        assert!(is_left(&stream), "{:?}", &bytes[..16]);
        works(&rig);
    }
    // Half a message, and nothing more.
    let mut stream = UnixStream::connect(&rig.socket).unwrap();
    stream.write_all(&header(1, 64, 0)[..9]).unwrap();
    drop(stream);
    works(&rig);
}

#[test]
fn descriptors_without_messages_are_not_kept() {
    let rig = Rig::new("mem:4M");
    let stream = UnixStream::connect(&rig.socket).unwrap();
    let message = header(1, 4096, 0);
    let file = tempfile::tempfile().unwrap();
    let mut is_over = false;
    for at in 0..4000 {
        let byte = [std::io::IoSlice::new(&message[at.min(15)..=at.min(15)])];
        let descriptors = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        if sendmsg(&stream, &byte, &mut control, SendFlags::NOSIGNAL).is_err() {
            is_over = true;
            break;
        }
    }
    assert!(is_over, "as many descriptors as it likes");
    works(&rig);
}

#[test]
fn a_flood_is_read_as_fast_as_it_is_answered() {
    let rig = Rig::new("mem:4M");
    drop(Guest::new(&rig.socket));
    let mut stream = UnixStream::connect(&rig.socket).unwrap();
    let mut version = header(1, 20, 0);
    version.extend([0, 0, 1, 0]);
    stream.write_all(&version).unwrap();
    // Reads whose answers nobody takes.
    let mut read = header(9, 32, 0);
    read.extend(0_u64.to_le_bytes());
    read.extend(7_u32.to_le_bytes());
    read.extend(256_u32.to_le_bytes());
    stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut taken = 0;
    let blocked = loop {
        match stream.write(&read) {
            Ok(bytes) => taken += bytes,
            Err(error) => break error,
        }
        assert!(taken < 64 << 20, "it is not held back");
    };
    assert_eq!(blocked.kind(), ErrorKind::WouldBlock);
    drop(stream);
    works(&rig);
}

/// A client that has said its version, and sends messages of its own making.
fn greeted(rig: &Rig) -> UnixStream {
    let mut stream = UnixStream::connect(&rig.socket).unwrap();
    let mut version = header(1, 20, 0);
    version.extend([0, 0, 1, 0]);
    stream.write_all(&version).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(answer(&stream), 0);
    stream
}

/// Takes an answer: its error.
fn answer(mut stream: &UnixStream) -> u32 {
    let mut header = [0; 16];
    stream.read_exact(&mut header).unwrap();
    let field = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
    stream.read_exact(&mut vec![0; field(4) as usize - 16]).unwrap();
    field(12)
}

/// A message that maps memory.
fn map_message(address: u64, size: u64) -> Vec<u8> {
    let mut map = header(2, 48, 0);
    map.extend([32_u32, 3].map(u32::to_le_bytes).as_flattened());
    map.extend([0, address, size].map(u64::to_le_bytes).as_flattened());
    map
}

/// A message that connects an interrupt.
fn interrupt_message() -> Vec<u8> {
    let mut interrupts = header(8, 36, 0);
    interrupts.extend([20_u32, 0x24, 2, 1, 1].map(u32::to_le_bytes).as_flattened());
    interrupts
}

/// A message that reads registers.
fn read_message(count: u32) -> Vec<u8> {
    let mut read = header(9, 32, 0);
    read.extend(0_u64.to_le_bytes());
    read.extend([0_u32, count].map(u32::to_le_bytes).as_flattened());
    read
}

#[test]
fn all_messages_of_a_burst_are_answered() {
    let rig = Rig::new("mem:4M");
    // More than a turn's share, received at once, and then nothing more.
    for count in [1, 127, 128, 129, 400, 511] {
        let mut stream = greeted(&rig);
        stream.write_all(&read_message(4).repeat(count)).unwrap();
        let mut answers = vec![0; count * 36];
        stream.read_exact(&mut answers).unwrap_or_else(|error| panic!("{count} messages: {error}"));
        // Answers that are larger than what is kept of them, read slowly.
        let sent = stream.try_clone().unwrap();
        let sender = std::thread::spawn(move || (&sent).write_all(&read_message(4096).repeat(count)));
        let mut answers = vec![0; count * (32 + 4096)];
        stream.read_exact(&mut answers).unwrap_or_else(|error| panic!("{count} large answers: {error}"));
        sender.join().unwrap().unwrap();
    }
    works(&rig);
}

#[test]
fn an_eventfd_that_is_full_delays_nobody() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::enabled(&rig.socket);
    let mut io = guest.create(1, 64);
    // Writing to it waits for ever from now on.
    rustix::fs::fcntl_setfl(&guest.interrupts[1], rustix::fs::OFlags::empty()).unwrap();
    rustix::io::write(&guest.interrupts[1], &(u64::MAX - 1).to_ne_bytes()).unwrap();
    for _ in 0..200 {
        assert_eq!(guest.call(&mut io, transfer(READ, 0, 8, DATA, 0)).status(), Status::SUCCESS);
    }
    drop(guest);
    works(&rig);
}

#[test]
fn descriptors_that_are_no_eventfds_are_refused() {
    let rig = Rig::new("mem:4M");
    let stream = greeted(&rig);
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    let (socket, _other) = UnixStream::pair().unwrap();
    let file = tempfile::tempfile().unwrap();
    let eventfd = eventfd(0, EventfdFlags::empty()).unwrap();
    for (descriptor, errno) in [(pipe, 22), (socket.into(), 22), (file.into(), 22), (eventfd, 0)] {
        send_with(&stream, &interrupt_message(), descriptor);
        assert_eq!(answer(&stream), errno);
    }
}

/// A socket whose last close takes a minute, and its other end.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let other = listener.accept().unwrap().0;
    // Little is enough to fill it.
    rustix::net::sockopt::set_socket_send_buffer_size(&stream, 4096).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&other, 4096).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::from_secs(60))).unwrap();
    (stream.into(), other)
}

pub(crate) fn send_with(stream: &UnixStream, bytes: &[u8], descriptor: OwnedFd) {
    assert_eq!(try_send_with(stream, bytes, descriptor).unwrap(), bytes.len());
}

fn try_send_with(stream: &UnixStream, bytes: &[u8], descriptor: OwnedFd) -> Result<usize, rustix::io::Errno> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = sendmsg(stream, &[std::io::IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    if sent.is_ok() {
        // From now on it is in the message only.
        drop(descriptor);
    } else {
        // Nobody has it but this thread, which would wait for its close.
        std::mem::forget(descriptor);
    }
    sent
}

#[test]
fn descriptors_that_close_slowly_hold_up_nobody() {
    let rig = Rig::new("mem:4M");
    let mut others = Vec::new();
    let mut descriptor = || {
        let (descriptor, other) = lingering();
        others.push(other);
        descriptor
    };
    let start = Instant::now();
    // Memory, an interrupt, a message that takes none, and an unknown one.
    let mut stream = greeted(&rig);
    for message in [map_message(RAM, 4096), interrupt_message(), read_message(4), header(99, 16, 0)] {
        send_with(&stream, &message, descriptor());
        stream.write_all(&read_message(4)).unwrap();
        assert_ne!(answer(&stream), 0);
        assert_eq!(answer(&stream), 0);
    }
    // Half a message, and more descriptors than a client may send.
    send_with(&stream, &header(1, 64, 0), descriptor());
    drop(stream);
    works(&rig);
    let stream = greeted(&rig);
    for byte in [header(1, 64, 0), vec![0]].concat() {
        send_with(&stream, &[byte], descriptor());
    }
    assert!(is_left(&stream));
    // A client that is refused, with a descriptor that nobody looks at.
    let stream = greeted(&rig);
    let second = UnixStream::connect(&rig.socket).unwrap();
    // It may be refused before that.
    let _sent = try_send_with(&second, &[0], descriptor());
    assert!(is_left(&second));
    drop(stream);
    works(&rig);
    assert!(start.elapsed() < Duration::from_secs(50), "a thread waited for a close");
}

#[test]
fn a_client_with_more_descriptors_to_close_than_are_closed_is_not_waited_for() {
    let rig = Rig::new("mem:4M");
    let stream = greeted(&rig);
    let mut others = Vec::new();
    for _ in 0..70 {
        let (descriptor, other) = lingering();
        others.push(other);
        send_with(&stream, &header(99, 16, 0), descriptor);
    }
    // Other hosts of the thread are served, and its client is left as soon as it is gone, although
    // not all that it has sent was taken.
    let address = rig.target.addresses()[0].1;
    let (sender, served) = std::sync::mpsc::channel();
    let host = std::thread::spawn(move || {
        let nqn = Nqn::parse(NQN).unwrap();
        let controller = Controller::connect(&Options::new(address.ip().to_string(), address.port(), nqn));
        sender.send(controller.is_ok()).unwrap();
    });
    assert_eq!(served.recv_timeout(Duration::from_secs(10)), Ok(true), "the thread does nothing else");
    host.join().unwrap();
    let clients = || rig.target.status().ports[1].connections;
    assert_eq!(clients(), 1);
    drop(stream);
    let start = Instant::now();
    while clients() > 0 {
        assert!(start.elapsed() < Duration::from_secs(10), "nobody sees that the client is gone");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(others);
    works(&rig);
}

#[test]
fn messages_that_wait_for_closes_are_answered_after_them() {
    let rig = Rig::new("mem:4M");
    let mut stream = greeted(&rig);
    let mut others = Vec::new();
    for _ in 0..70 {
        let (descriptor, other) = lingering();
        others.push(other);
        send_with(&stream, &header(99, 16, 0), descriptor);
    }
    stream.write_all(&read_message(4)).unwrap();
    for _ in 0..64 {
        assert_ne!(answer(&stream), 0);
    }
    drop(others);
    for _ in 64..70 {
        assert_ne!(answer(&stream), 0);
    }
    assert_eq!(answer(&stream), 0);
    drop(stream);
    works(&rig);
}

#[test]
fn more_memory_than_a_machine_may_have_is_refused() {
    let rig = Rig::new("mem:4M");
    let mut stream = greeted(&rig);
    let (file, mapping) = SharedMapping::create("large", 1 << 40).unwrap();
    drop(mapping);
    let (at, most) = (1 << 44, (1_u64 << 40) - 4096);
    let mut unmap = header(3, 40, 0);
    unmap.extend([24_u32, 0].map(u32::to_le_bytes).as_flattened());
    unmap.extend([at, most].map(u64::to_le_bytes).as_flattened());
    for _ in 0..3 {
        for (address, size, errno) in [(at, most, 0), (RAM, 8192, 28), (RAM, 4096, 0), (RAM + 4096, 4096, 28)] {
            send_with(&stream, &map_message(address, size), file.try_clone().unwrap());
            assert_eq!(answer(&stream), errno, "{size} bytes at {address:#x}");
        }
        stream.write_all(&unmap).unwrap();
        assert_eq!(answer(&stream), 0);
        let mut rest = unmap.clone();
        rest[24..32].copy_from_slice(&RAM.to_le_bytes());
        rest[32..].copy_from_slice(&4096_u64.to_le_bytes());
        stream.write_all(&rest).unwrap();
        assert_eq!(answer(&stream), 0);
    }
    drop(stream);
    works(&rig);
}

#[test]
fn doorbells_out_of_range_raise_events() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::enabled(&rig.socket);
    let mut io = guest.create(1, 8);
    let mut admin = std::mem::replace(&mut guest.admin, Rings::new(9, 2, 0));
    for (offset, value, event) in
        [(0x1008, 8, 0x0001_0100), (0x100c, 3, 0x0001_0100), (0x1000 + 8 * 5, 1, 0x0001_0000), (0x1ff8, 0, 0x0001_0000)]
    {
        let before = admin.tail;
        guest.push(&mut admin, prp(Sqe::new(0x0c), 0, 0));
        guest.ring(&admin, before);
        guest.write32(offset, value);
        let cqe = guest.take(&mut admin);
        assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, event), "{offset:#x}");
        // Reading the log lets the event be raised again.
        let log = prp(Sqe::new(0x02).with_cdw(10, 15 << 16 | 1), DATA, 0);
        assert_eq!(guest.call(&mut admin, log).status(), Status::SUCCESS);
    }
    guest.admin = admin;
    assert_eq!(guest.call(&mut io, transfer(READ, 0, 8, DATA, 0)).status(), Status::SUCCESS);
}

#[test]
fn shadow_doorbells_out_of_range_raise_events_once() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::enabled(&rig.socket);
    let mut io = guest.create(1, 8);
    let (doorbells, events) = (DATA + 0x10_0000, DATA + 0x10_1000);
    assert_eq!(guest.admin(prp(Sqe::new(0x7c), doorbells, events)).status(), Status::SUCCESS);
    guest.shadow = Some((doorbells, events));
    let mut admin = std::mem::replace(&mut guest.admin, Rings::new(9, 2, 0));
    let request = |guest: &mut Guest, admin: &mut Rings| {
        let before = admin.tail;
        guest.push(admin, prp(Sqe::new(0x0c), 0, 0));
        guest.ring(admin, before);
    };
    request(&mut guest, &mut admin);
    // A tail, and the register that wakes; then another, which is found without it, if the thread
    // is not asleep yet.
    for tail in [8, 0x1_0000, 77] {
        guest.memory.store((doorbells - RAM) as usize + 8, tail).unwrap();
        guest.write32(0x1008, 1);
        let cqe = guest.take(&mut admin);
        assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, 0x0001_0100), "{tail:#x}");
        let log = prp(Sqe::new(0x02).with_cdw(10, 15 << 16 | 1), DATA, 0);
        assert_eq!(guest.call(&mut admin, log).status(), Status::SUCCESS);
        // The same value is no news.
        request(&mut guest, &mut admin);
        for _ in 0..20 {
            guest.write32(0x1008, 1);
            assert!(guest.try_take(&mut admin).is_none(), "{tail:#x}");
        }
    }
    // The queue works on with a tail that it has.
    assert_eq!(guest.call(&mut io, transfer(READ, 0, 8, DATA, 0)).status(), Status::SUCCESS);
    // A head that is past the last completion is looked at when the queue is full.
    let before = io.tail;
    for _ in 0..7 {
        guest.push(&mut io, transfer(READ, 0, 8, DATA, 0));
    }
    guest.ring(&io, before);
    for _ in 0..7 {
        while guest.try_take(&mut io).is_none() {
            std::thread::yield_now();
        }
    }
    guest.memory.store((doorbells - RAM) as usize + 12, 9).unwrap();
    let before = io.tail;
    guest.push(&mut io, transfer(READ, 0, 8, DATA, 0));
    guest.ring(&io, before);
    let cqe = guest.take(&mut admin);
    assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, 0x0001_0100));
}

#[test]
fn queues_that_are_no_memory_fail_the_controller() {
    let rig = Rig::new("mem:4M");
    let mut guest = Guest::new(&rig.socket);
    // Admin queues beyond the memory.
    guest.write32(0x24, 31 << 16 | 31);
    for at in [0x28, 0x30] {
        guest.write32(at, 0);
        guest.write32(at + 4, 0x7fff);
    }
    guest.write32(0x14, 0x0046_0001);
    guest.write32(0x1000, 1);
    guest.await_status(2, 2);
    guest.disable();
    // A configuration that the controller does not have.
    guest.write32(0x14, 0x0046_0081);
    guest.await_status(2, 2);
    guest.disable();
    guest.enable();
    // An I/O queue that goes away under way, and one that never was.
    guest.client.dma_map(0, RAM + RAM_BYTES, 1 << 20, guest.file.as_raw_fd()).unwrap();
    let sq = |at| prp(Sqe::new(0x01).with_cdw(10, 15 << 16 | 1).with_cdw(11, 1 << 16 | 1), at, 0);
    let cq = prp(Sqe::new(0x05).with_cdw(10, 15 << 16 | 1).with_cdw(11, 3), DATA, 0);
    assert_eq!(guest.admin(cq).status(), Status::SUCCESS);
    assert_eq!(guest.admin(sq(RAM + RAM_BYTES)).status(), Status::SUCCESS);
    guest.client.dma_unmap(RAM + RAM_BYTES, 1 << 20).unwrap();
    guest.write32(0x1008, 1);
    guest.await_status(2, 2);
    guest.disable();
    guest.enable();
    let mut io = guest.create(1, 16);
    assert_eq!(guest.call(&mut io, transfer(READ, 0, 8, DATA, 0)).status(), Status::SUCCESS);
}

#[test]
fn noise_in_registers_queues_and_lists_disturbs_nobody_else() {
    let rig = Rig::new("mem:4M");
    let mut noise = Noise(0x1234_5678_9abc_def1);
    for _ in 0..6 {
        let mut guest = Guest::enabled(&rig.socket);
        let mut io = guest.create(1, 64);
        for _ in 0..300 {
            match noise.next() % 6 {
                0 => {
                    let offset = noise.next() % 0x4000;
                    let value = noise.next();
                    // Not CC, which would end this.
                    if !(0x10..0x18).contains(&offset) {
                        let length = [1, 2, 4, 8][(noise.next() % 4) as usize].min((0x4000 - offset) as usize);
                        let _ = guest.client.region_write(0, offset, &value.to_le_bytes()[..length]);
                    }
                }
                1 => {
                    let mut bytes = [0; 8];
                    let _ = guest.client.region_read(0, noise.next() % 0x3ff8, &mut bytes);
                }
                2 => {
                    // Commands of all kinds.
                    let mut sqe = Sqe::new((noise.next() % 32) as u8).with_nsid(ebof_nvme::Nsid(1));
                    sqe.flags = (noise.next() as u8) & 0xc3;
                    for at in 10..16 {
                        sqe = sqe.with_cdw(at, (noise.next() % 64) as u32);
                    }
                    let sqe = prp(sqe, DATA + noise.next() % 0x10000, DATA + noise.next() % 0x10000);
                    let before = io.tail;
                    guest.push(&mut io, sqe);
                    guest.ring(&io, before);
                    while guest.try_take(&mut io).is_some() {}
                    guest.write32(0x100c, io.head.into());
                }
                3 => guest.put64(DATA + noise.next() % 0x8000 / 8 * 8, &[DATA + noise.next() % 0x20_0000; 64]),
                4 => {
                    let before = io.tail;
                    guest.push(&mut io, transfer(WRITE, noise.next() % 64, 32, DATA, DATA + noise.next() % 0x8000));
                    guest.ring(&io, before);
                }
                _ => {
                    let _ = guest.client.region_write(7, noise.next() % 0xf8, &noise.next().to_le_bytes()[..4]);
                }
            }
        }
        drop(guest);
    }
    works(&rig);
}

// @test limits.slow-guest-memory
#[test]
fn memory_that_is_taken_back_all_the_time_costs_others_little() {
    const BIG: u64 = 0x10_0000_0000;
    const BIG_BYTES: u64 = 512 << 20;
    let rig = Rig::new("null:1G");
    let nqn = Nqn::parse(NQN).unwrap();
    let address = rig.target.addresses()[0].1;
    let host = Controller::connect(&Options::new(address.ip().to_string(), address.port(), nqn)).unwrap();
    let namespace = host.namespace(ebof_nvme::Nsid(1)).unwrap();

    let mut guest = Guest::enabled(&rig.socket);
    let (file, _mapping) = SharedMapping::create("big", BIG_BYTES).unwrap();
    guest.client.dma_map(0, BIG, BIG_BYTES, file.as_raw_fd()).unwrap();
    let mut io = guest.create(1, 64);
    let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let goes_on = |is_over: &std::sync::atomic::AtomicBool| !is_over.load(std::sync::atomic::Ordering::Relaxed);
    // The kernel makes whoever accesses a page wait until all of its hole is there.
    let puncher = std::thread::spawn({
        let is_over = std::sync::Arc::clone(&is_over);
        move || {
            use rustix::fs::{FallocateFlags, fallocate};
            while goes_on(&is_over) {
                fallocate(&file, FallocateFlags::empty(), 0, BIG_BYTES).unwrap();
                fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, BIG_BYTES).unwrap();
            }
        }
    });
    let reader = std::thread::spawn({
        let is_over = std::sync::Arc::clone(&is_over);
        move || {
            let mut noise = Noise(0x2545_f491_4f6c_dd1d);
            let mut longest = Duration::ZERO;
            while goes_on(&is_over) {
                let began = Instant::now();
                let before = io.tail;
                for _ in 0..32 {
                    let page = BIG + noise.next() % (BIG_BYTES / 4096) * 4096;
                    guest.push(&mut io, transfer(READ, 0, 8, page, 0));
                }
                guest.ring(&io, before);
                for _ in 0..32 {
                    assert_eq!(guest.take(&mut io).status(), Status::SUCCESS);
                }
                longest = longest.max(began.elapsed());
            }
            longest
        }
    });
    let start = Instant::now();
    let mut longest = Duration::ZERO;
    let mut into = [0; 4096];
    while start.elapsed() < Duration::from_secs(4) {
        let began = Instant::now();
        namespace.read(0, &mut into).unwrap();
        longest = longest.max(began.elapsed());
    }
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    puncher.join().unwrap();
    // It has waited for itself, and for nine times that since others did, too.
    let guests = reader.join().unwrap();
    assert!(guests > 4 * longest, "others have waited for {longest:?}, it has for {guests:?}");
}
