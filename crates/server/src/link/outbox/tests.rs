//! The outbox over a pair of loopback sockets.
#![expect(clippy::cast_possible_truncation, reason = "patterns count modulo 256, and sizes are small")]

use super::*;
use std::io::{IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use ebof_sockets::{Readiness, SimulatedStream};

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (a, listener.accept().unwrap().0)
}

fn flush(outbox: &mut Outbox, socket: &impl AsFd, pool: &mut Pool) -> Flushed {
    let socket = TcpStream::from(socket.as_fd().try_clone_to_owned().unwrap());
    outbox.flush(&mut Stream::from(socket), usize::MAX, pool).unwrap()
}

#[test]
fn lent_blocks_arrive_whole_while_others_write() {
    let (a, mut b) = pair();
    a.set_nonblocking(true).unwrap();
    let device: Arc<dyn Device> = Arc::new(ebof_backend::Memory::new(4 << 20, 512, false));
    let blocks = (4 << 20) / 4096;
    let fill = |byte: u8, block: u64| device.resident().unwrap().store(block * 4096, &[byte; 4096]).unwrap();
    (0..blocks).for_each(|block| fill(1, block));
    let mut pool = Pool::new(1 << 20);
    let mut outbox = Outbox::default();
    let mut shape = Vec::new();
    let mut total = 0;
    for i in 0..400_usize {
        outbox.arena().extend_from_slice(&[9; 24]);
        let len = [4096, 512, 300 << 10, 8192][i % 4];
        let offset = (i * 7919 * 4096) % ((4 << 20) - len);
        outbox.push_lent(&device, (offset - offset % 4096) as u64, len);
        shape.push(len);
        total += 24 + len;
    }
    assert_eq!(outbox.len(), total);
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; total];
        b.read_exact(&mut got).unwrap();
        got
    });
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut cuts = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in (0..8_u8).cycle() {
                (0..blocks).for_each(|block| fill(round, block));
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
            }
        });
        while flush(&mut outbox, &a, &mut pool) == Flushed::Blocked {
            cuts += usize::from(matches!(outbox.segments.front(), Some(Segment::Cut { .. })));
            let mut fds = [rustix::event::PollFd::new(&a, rustix::event::PollFlags::OUT)];
            rustix::event::poll(&mut fds, None).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(cuts > 0, "no send ended inside a block: what this test is about did not happen");
    let got = reader.join().unwrap();
    let mut at = 0;
    for len in shape {
        assert_eq!(got[at..at + 24], [9; 24]);
        at += 24;
        for block in got[at..at + len].chunks(4096) {
            assert!(block.iter().all(|byte| *byte == block[0]), "a block is of two writes");
        }
        at += len;
    }
    assert!(outbox.is_empty() && outbox.lenders.is_empty());
}

#[test]
fn headers_and_payloads_arrive_in_order_through_short_sends() {
    let (a, mut b) = pair();
    a.set_nonblocking(true).unwrap();
    let mut pool = Pool::new(64 << 20);
    let mut outbox = Outbox::default();
    let mut expected = Vec::new();
    for i in 0..3000_u32 {
        let head = i.to_le_bytes();
        outbox.arena().extend_from_slice(&head);
        expected.extend_from_slice(&head);
        let len = (i as usize * 37) % 9000;
        let mut buffer = pool.take(len.max(1)).unwrap();
        let byte = head[0];
        buffer.as_mut_slice()[..len].fill(byte);
        expected.extend(std::iter::repeat_n(byte, len));
        outbox.push_payload(buffer, len, &mut pool);
    }
    assert_eq!(outbox.len(), expected.len());
    let mut got = Vec::with_capacity(expected.len());
    let mut piece = vec![0; 300_001];
    let mut blocked = 0;
    // What the socket has taken is read only when it takes no more: it fills again and again,
    // whoever gets the processor when.
    while flush(&mut outbox, &a, &mut pool) == Flushed::Blocked {
        blocked += 1;
        let taken = expected.len() - outbox.len();
        while got.len() < taken {
            let read = b.read(&mut piece).unwrap();
            got.extend_from_slice(&piece[..read]);
        }
        let mut fds = [rustix::event::PollFd::new(&a, rustix::event::PollFlags::OUT)];
        rustix::event::poll(&mut fds, None).unwrap();
    }
    let sent = got.len();
    got.resize(expected.len(), 0);
    b.read_exact(&mut got[sent..]).unwrap();
    assert!(got == expected, "bytes differ");
    assert!(blocked > 0, "the socket never filled: short sends were not tested");
    assert_eq!(pool.outstanding_bytes(), 0);
}

// @test speed.bounded-memory
#[test]
fn the_arena_stays_small_if_the_socket_is_never_drained() {
    let (a, mut b) = pair();
    a.set_nonblocking(true).unwrap();
    let mut pool = Pool::new(1 << 20);
    let mut outbox = Outbox::default();
    while flush(&mut outbox, &a, &mut pool) != Flushed::Blocked {
        outbox.arena().extend_from_slice(&[7; 64 << 10]);
    }
    // The system's buffers grow for some time.
    outbox.arena().extend_from_slice(&vec![7; 16 << 20]);
    let mut piece = vec![0; 64 << 10];
    let mut unsent_max = 0;
    for _ in 0..2000 {
        outbox.arena().extend_from_slice(&[7; 64 << 10]);
        unsent_max = unsent_max.max(outbox.len());
        b.read_exact(&mut piece).unwrap();
        flush(&mut outbox, &a, &mut pool);
        assert!(!outbox.is_empty(), "what this test is about did not happen");
    }
    let kept = outbox.arena.capacity();
    // Half of it may be sent, and a vector grows to twice its size.
    assert!(kept <= 4 * unsent_max + (1 << 20), "{kept} bytes for at most {unsent_max} unsent");
}

/// A pair whose first end can use zero-copy send, and an outbox that does.
fn pinning(copied_max: u32) -> (TcpStream, TcpStream, Outbox) {
    let (a, b) = pair();
    a.set_nonblocking(true).unwrap();
    ebof_pinned::enable(&a).unwrap();
    let mut outbox = Outbox::default();
    outbox.pin_from(ebof_pinned::SEND_MIN, copied_max);
    (a, b, outbox)
}

/// Waits until the socket is writable, if requested, or there is a notification of the kernel.
fn await_socket(socket: &TcpStream, room: bool) {
    let events = if room { rustix::event::PollFlags::OUT } else { rustix::event::PollFlags::empty() };
    rustix::event::poll(&mut [rustix::event::PollFd::new(socket, events)], None).unwrap();
}

fn filled(pool: &mut Pool, len: usize, byte: u8) -> Buffer {
    let mut buffer = pool.take(len).unwrap();
    buffer.as_mut_slice().fill(byte);
    buffer
}

#[test]
fn zero_copy_payloads_arrive_in_order_although_returned_buffers_are_reused() {
    let (a, mut b, mut outbox) = pinning(u32::MAX);
    socket2::SockRef::from(&a).set_send_buffer_size(200 << 10).unwrap();
    let device: Arc<dyn Device> = Arc::new(ebof_backend::Memory::new(1 << 20, 512, false));
    (0..256).for_each(|block| device.resident().unwrap().store(block * 4096, &[block as u8; 4096]).unwrap());
    let mut pool = Pool::new(8 << 20);
    let mut expected = Vec::new();
    let mut at = 0;
    let sizes = [4096, 100, 300 << 10, 2000, 128 << 10, 4095, 16 << 10];
    for i in 0..600 {
        let len = sizes[i % sizes.len()];
        expected.extend(std::iter::repeat_n(i as u8, len));
        expected.extend((i as u32).to_le_bytes());
        expected.extend(std::iter::repeat_n((i % 256) as u8, if i % 3 == 0 { 4096 } else { 0 }));
    }
    let total = expected.len();
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; total];
        // In small steps: most of the data wait in the sender's queue.
        got.chunks_mut(50_000).for_each(|chunk| b.read_exact(chunk).unwrap());
        (got, b)
    });
    let mut short = 0;
    while at < 600 || !outbox.is_empty() || outbox.is_pinning() {
        while at < 600 && pool.has_room(sizes[at % sizes.len()]) {
            let len = sizes[at % sizes.len()];
            let buffer = filled(&mut pool, len, at as u8);
            outbox.push_payload(buffer, len, &mut pool);
            outbox.arena().extend_from_slice(&(at as u32).to_le_bytes());
            if at % 3 == 0 {
                outbox.push_lent(&device, (at % 256 * 4096) as u64, 4096);
            }
            at += 1;
        }
        let blocked = flush(&mut outbox, &a, &mut pool) == Flushed::Blocked;
        short += usize::from(matches!(outbox.segments.front(), Some(Segment::Payload { start: 1.., .. })));
        if blocked || outbox.is_pinning() {
            await_socket(&a, blocked);
        }
        let outstanding = pool.outstanding_bytes();
        outbox.collect(&a, &mut pool).unwrap();
        if pool.outstanding_bytes() < outstanding {
            // Returned buffers are reused immediately.
            let spare: Vec<_> = sizes.iter().filter_map(|&size| pool.take(size)).collect();
            spare.into_iter().for_each(|mut buffer| {
                buffer.as_mut_slice().fill(0xee);
                pool.put(buffer);
            });
        }
    }
    let (got, _b) = reader.join().unwrap();
    assert!(got == expected, "bytes differ");
    assert!(short > 0, "no payload took more than one send: what this test is about did not happen");
    assert_eq!(pool.outstanding_bytes(), 0);
    let fresh = outbox.take_fresh().unwrap();
    assert!(fresh.sends + fresh.refused >= 340, "{fresh:?}");
    assert!(fresh.sends > 100, "{fresh:?}");
}

#[test]
fn buffers_stay_until_the_peer_has_acknowledged_them() {
    let (a, mut b, mut outbox) = pinning(u32::MAX);
    let mut pool = Pool::new(64 << 20);
    let mut total = 0;
    while flush(&mut outbox, &a, &mut pool) == Flushed::All {
        let buffer = filled(&mut pool, 256 << 10, 5);
        outbox.push_payload(buffer, 256 << 10, &mut pool);
        total += 256 << 10;
    }
    outbox.collect(&a, &mut pool).unwrap();
    let sent = total - outbox.len();
    assert!(sent > 256 << 10);
    assert!(pool.outstanding_bytes() > outbox.len() + (256 << 10), "buffers came back that were not acknowledged");
    // The first of them are returned as the peer reads, the others stay.
    let mut got = vec![0; total];
    let (first, rest) = got.split_at_mut(sent);
    b.read_exact(first).unwrap();
    let reader = std::thread::spawn({
        let length = rest.len();
        move || {
            let mut rest = vec![0; length];
            b.read_exact(&mut rest).unwrap();
            (rest, b)
        }
    });
    while flush(&mut outbox, &a, &mut pool) == Flushed::Blocked || outbox.is_pinning() {
        await_socket(&a, !outbox.is_empty());
        outbox.collect(&a, &mut pool).unwrap();
    }
    let (read, _b) = reader.join().unwrap();
    rest.copy_from_slice(&read);
    assert!(got.iter().all(|&byte| byte == 5));
    assert_eq!(pool.outstanding_bytes(), 0);
}

#[test]
fn dropping_returns_unsent_buffers_and_those_in_the_kernel_after_the_abort() {
    let (a, mut b, mut outbox) = pinning(u32::MAX);
    let mut pool = Pool::new(64 << 20);
    for byte in 0..48 {
        let buffer = filled(&mut pool, 1 << 20, byte);
        outbox.push_payload(buffer, 1 << 20, &mut pool);
    }
    assert_eq!(flush(&mut outbox, &a, &mut pool), Flushed::Blocked);
    assert!(matches!(outbox.segments.front(), Some(Segment::Payload { start: 1.., .. })), "none was sent in part");
    let sent = (48 << 20) - outbox.len();
    outbox.clear(&mut pool);
    assert_eq!(pool.outstanding_bytes(), sent.next_multiple_of(1 << 20), "unsent buffers come back, others do not");
    outbox.collect(&a, &mut pool).unwrap();
    assert!(outbox.is_pinning() && pool.outstanding_bytes() > 0);
    ebof_pinned::abort(&a);
    while outbox.is_pinning() {
        outbox.collect(&a, &mut pool).unwrap();
    }
    assert_eq!(pool.outstanding_bytes(), 0);
    std::io::copy(&mut b, &mut std::io::sink()).unwrap_err();
}

#[test]
fn a_connection_falls_back_to_copying_if_the_kernel_copies() {
    let (a, mut b, mut outbox) = pinning(16);
    let mut pool = Pool::new(64 << 20);
    let mut fell_back = 0;
    for byte in 0..40 {
        let buffer = filled(&mut pool, 8192, byte);
        outbox.push_payload(buffer, 8192, &mut pool);
        assert_eq!(flush(&mut outbox, &a, &mut pool), Flushed::All);
        let mut got = [0; 8192];
        b.read_exact(&mut got).unwrap();
        assert_eq!(got, [byte; 8192]);
        while outbox.is_pinning() {
            await_socket(&a, false);
            fell_back += u32::from(outbox.collect(&a, &mut pool).unwrap().fell_back);
        }
        assert_eq!(pool.outstanding_bytes(), 0);
    }
    assert_eq!((fell_back, outbox.take_fresh()), (1, Some(Fresh { sends: 16, refused: 0 })));
}

/// Changes every byte on its way, so that nothing may pass it; takes little at a time.
struct Sealed(TcpStream);

impl SimulatedStream for Sealed {
    fn receive(&mut self, _parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        unreachable!("nothing is received")
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let sealed: Vec<u8> = parts.iter().flat_map(|part| part.iter().map(|byte| !byte)).take(10_000).collect();
        self.0.write(&sealed)
    }

    fn shutdown(&mut self, how: Shutdown) {
        self.0.shutdown(how).unwrap();
    }

    fn readiness(&self) -> Readiness {
        Readiness { readable: false, writable: true, closed: false }
    }
}

#[test]
fn a_stream_that_may_not_be_passed_is_sent_everything_itself() {
    let (a, mut b, mut outbox) = pinning(u32::MAX);
    a.set_nonblocking(false).unwrap();
    let mut stream = Stream::simulated(Box::new(Sealed(a)));
    let mut pool = Pool::new(64 << 20);
    let device: Arc<dyn Device> = Arc::new(ebof_backend::Memory::new(1 << 20, 512, false));
    device.resident().unwrap().store(8192, &[0x44; 100 << 10]).unwrap();
    outbox.arena().extend_from_slice(&[0x11; 24]);
    let buffer = filled(&mut pool, 64 << 10, 0x22);
    outbox.push_payload(buffer, 64 << 10, &mut pool);
    outbox.arena().extend_from_slice(&[0x33; 24]);
    outbox.push_lent(&device, 8192, 100 << 10);
    let expected = [vec![0x11; 24], vec![0x22; 64 << 10], vec![0x33; 24], vec![0x44; 100 << 10]].concat();
    let total = expected.len();
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; total];
        b.read_exact(&mut got).unwrap();
        got
    });
    assert_eq!(outbox.flush(&mut stream, usize::MAX, &mut pool).unwrap(), Flushed::All);
    let got: Vec<u8> = reader.join().unwrap().iter().map(|byte| !byte).collect();
    assert!(got == expected, "bytes differ");
    assert!(!outbox.is_pinning() && pool.outstanding_bytes() == 0, "the kernel has none of its buffers");
    assert!(outbox.take_fresh().is_some_and(|fresh| fresh.sends == 0));
}
