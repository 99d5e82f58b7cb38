//! The raw limit of the loopback: a minimal program that exchanges messages of the sizes of
//! NVMe/TCP commands (72 bytes there and 4120 back for a read of 4 KiB). Nothing is parsed, so that
//! it is an upper limit. The payload is one buffer that stays in the cache, or is at random places
//! of a memory as large as a drive ([`Load::memory_bytes`]).
//!
//! Both ends spin on non-blocking sockets, receive everything that a socket holds in one read, and
//! answer a batch with one send. Several pairs can run in parallel, each on its own processors.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ebof_region::{Arena, Pages};
use ebof_sockets::unpace_loopback;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use crate::pattern::mix;
use crate::process::float;

/// A command capsule without data: 8 bytes of PDU header and 64 of entry.
const COMMAND_BYTES: usize = 72;
/// A C2HData PDU with the SUCCESS flag, without its data; a response capsule is as long.
const ANSWER_BYTES: usize = 24;
/// The depths at which the data path is measured.
pub const DEPTHS: [u16; 3] = [1, 32, 128];
/// Requests outstanding on one connection at most.
pub const DEPTH_MAX: u16 = 1024;
/// The largest operation: both ends hold a buffer for every request outstanding.
pub const BLOCK_BYTES_MAX: u32 = 1 << 20;
/// Empty reads between two calls of sched_yield: a peer on the same core must be able to run.
const IDLE_READS_PER_YIELD: u32 = 8;
/// Iterations between two readings of the clock, which may be a system call.
const TURNS_PER_CLOCK: u32 = 16;
/// Messages handed to one send, where each has a payload of its own: two gather elements each, of
/// which the kernel takes 1024 at once.
const GATHER_MAX: usize = 512;
/// A huge page: what the memory of the payloads is made of.
const PIECE_BYTES: usize = 2 << 20;
/// Minimum size of the receive buffer. Smaller ones cost a tenth at depth 128.
const RECEIVE_BYTES: usize = 1 << 20;

/// The load of a raw measurement.
#[derive(Clone, Debug)]
pub struct Load {
    /// Data travel with the request instead of with the answer.
    pub writes: bool,
    /// Data of one operation, up to [`BLOCK_BYTES_MAX`].
    pub block_bytes: u32,
    /// Requests outstanding on each connection, 1 to [`DEPTH_MAX`].
    pub depth: u16,
    /// The payloads of the answering end are at random places of so much memory, in huge pages
    /// where the system has them: what is sent is there, and what is received is copied there. 0:
    /// one buffer that stays in the cache.
    pub memory_bytes: u64,
    /// Time before counting begins.
    pub ramp: Duration,
    /// Time of counting.
    pub time: Duration,
    /// For each connection the processors of the answering and of the asking end, where the system
    /// allows it.
    pub processors: Vec<[usize; 2]>,
}

/// The result of a raw measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Raw {
    /// Requests outstanding on each connection.
    pub depth: u16,
    /// Connections.
    pub connections: u64,
    /// Requests answered per second, all connections together.
    pub requests_per_s: f64,
    /// Data bytes per second, all connections together.
    pub bytes_per_s: f64,
    /// Mean time from request to answer, in microseconds.
    pub mean_us: f64,
}

/// Measures 4 KiB reads with `depth` requests outstanding on one connection for `time`.
///
/// # Errors
/// As [`run`].
pub fn read_4k(depth: u16, time: Duration, processors: [usize; 2]) -> io::Result<Raw> {
    let ramp = time / 8;
    run(&Load { writes: false, block_bytes: 4096, depth, memory_bytes: 0, ramp, time, processors: vec![processors] })
}

/// Measures one load: two threads for each connection.
///
/// # Errors
/// The loopback cannot be used.
pub fn run(load: &Load) -> io::Result<Raw> {
    let data = load.block_bytes.clamp(1, BLOCK_BYTES_MAX) as usize;
    let (request, answer) =
        if load.writes { (COMMAND_BYTES + data, ANSWER_BYTES) } else { (COMMAND_BYTES, ANSWER_BYTES + data) };
    let depth = load.depth.clamp(1, DEPTH_MAX);
    let pairs = load.processors.iter().map(|_| pair()).collect::<io::Result<Vec<_>>>()?;
    let stop = &AtomicBool::new(false);
    // Of both ends: the memory is written before.
    let ready = &Barrier::new(pairs.len() * 2);
    let counted = std::thread::scope(|scope| {
        let threads: Vec<_> = std::iter::zip(&pairs, &load.processors)
            .map(|((server, client), &[serving, asking])| {
                let end = |stream, takes, sends| End::new(stream, takes, sends, usize::from(depth));
                let server = end(server, request, answer);
                let client = end(client, answer, request);
                let answering = scope.spawn(move || {
                    stay_on(serving);
                    let memory = (load.memory_bytes > 0).then(|| Memory::new(load.memory_bytes, data));
                    ready.wait();
                    match memory {
                        Some(memory) => Scattered { end: server, memory, begun: 0 }.answer(load.writes, stop),
                        None => server.answer(stop),
                    }
                });
                let asking = scope.spawn(move || {
                    stay_on(asking);
                    ready.wait();
                    let counted = client.ask(load.ramp, load.time, stop);
                    stop.store(true, Ordering::Relaxed);
                    counted
                });
                (answering, asking)
            })
            .collect();
        let ends = threads.into_iter().map(|(answering, asking)| {
            let counted = asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            answering.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            counted
        });
        ends.collect::<io::Result<Vec<(u64, Duration)>>>()
    })?;
    let each = counted.iter().map(|&(requests, elapsed)| float(requests) / elapsed.as_secs_f64().max(1e-9));
    let requests_per_s: f64 = each.sum();
    let connections = counted.len() as u64;
    Ok(Raw {
        depth,
        connections,
        requests_per_s,
        bytes_per_s: requests_per_s * float(data as u64),
        mean_us: f64::from(depth) * float(connections) * 1e6 / requests_per_s.max(1e-9),
    })
}

/// Both ends of a connection, the one that accepted first.
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = || -> io::Result<Socket> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None)?;
        // As the target's and the host's.
        unpace_loopback(&socket, loopback.ip());
        Ok(socket)
    };
    let listener = socket()?;
    listener.bind(&loopback.into())?;
    listener.listen(1)?;
    let client = socket()?;
    client.connect(&listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    let (client, server) = (TcpStream::from(client), TcpStream::from(server));
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    Ok((server, client))
}

/// Binds the calling thread to one processor, if it exists and the system permits that.
fn stay_on(processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor.min(rustix::thread::CpuSet::MAX_CPU - 1));
    let _refused_is_slower_only = rustix::thread::sched_setaffinity(None, &set);
}

/// One end of a connection: it receives messages of one size and sends a message of another size
/// for each.
struct End<'a> {
    stream: &'a TcpStream,
    /// Bytes of a received message, and of a sent one.
    takes: usize,
    sends: usize,
    /// Bytes of the next message that were received already.
    partial: usize,
    /// Bytes to be sent. Their content does not matter, so that each send begins at the start of
    /// `outgoing`.
    owed: usize,
    /// Bytes that the requesting end sends first: a message for each outstanding request.
    first: usize,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    idle: u32,
}

impl<'a> End<'a> {
    fn new(stream: &'a TcpStream, takes: usize, sends: usize, depth: usize) -> Self {
        // Written here, so that there are no page faults while time is measured. Larger buffers
        // would only not fit into the cache.
        let incoming = vec![0xa5; RECEIVE_BYTES.max(takes)];
        let outgoing = vec![0x5a; (sends * depth).min(RECEIVE_BYTES.max(sends))];
        Self { stream, takes, sends, partial: 0, owed: 0, first: sends * depth, incoming, outgoing, idle: 0 }
    }

    /// Sends all pending messages, in one call if the socket takes them.
    fn flush(&mut self) -> io::Result<()> {
        while self.owed > 0 {
            match self.stream.write(&self.outgoing[..self.owed.min(self.outgoing.len())]) {
                Ok(sent) => self.owed -= sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives what is available and queues an answer for each message; returns their number.
    fn take(&mut self) -> io::Result<u64> {
        match self.stream.read(&mut self.incoming) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.idle = 0;
                self.partial += read;
                let messages = self.partial / self.takes;
                self.partial %= self.takes;
                self.owed += messages * self.sends;
                Ok(messages as u64)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.idle += 1;
                if self.idle.is_multiple_of(IDLE_READS_PER_YIELD) {
                    std::thread::yield_now();
                }
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Answers requests until `stop` is set or the other end disconnects.
    fn answer(mut self, stop: &AtomicBool) -> io::Result<()> {
        answer_all(stop, || self.take().and_then(|_| self.flush()))
    }

    /// Keeps requests outstanding; returns how many were answered after `ramp`, and the elapsed
    /// time. Ends early if `stop` is set.
    fn ask(mut self, ramp: Duration, time: Duration, stop: &AtomicBool) -> io::Result<(u64, Duration)> {
        self.owed = self.first;
        let mut from = Instant::now() + ramp;
        let mut answered = 0;
        let mut turns = 0u32;
        let mut counting = false;
        loop {
            self.flush()?;
            answered += self.take()?;
            turns = turns.wrapping_add(1);
            if !turns.is_multiple_of(TURNS_PER_CLOCK) {
                continue;
            }
            let now = Instant::now();
            if !counting && now >= from {
                counting = true;
                from = now;
                answered = 0;
            }
            if counting && (now - from >= time || stop.load(Ordering::Relaxed)) {
                return Ok((answered, now - from));
            }
        }
    }
}

/// The memory of payloads: as large as a drive, in huge pages.
struct Memory {
    pieces: Vec<Pages>,
    block_bytes: usize,
    /// Blocks of a piece.
    blocks: usize,
}

impl Memory {
    fn new(bytes: u64, block_bytes: usize) -> Memory {
        let arena = Arena::new(PIECE_BYTES);
        let count = bytes.div_ceil(PIECE_BYTES as u64);
        let pieces = (0..count).map(|_| {
            let mut piece = arena.piece();
            piece.as_mut_bytes().fill(0x5a);
            piece
        });
        Memory { pieces: pieces.collect(), block_bytes, blocks: PIECE_BYTES / block_bytes }
    }

    /// Where the payload of message number `message` is: piece, and first byte in it. A function of
    /// the number, so that a message that was sent in part need not be remembered.
    fn place(&self, message: u64) -> (usize, usize) {
        let block = usize::try_from(mix(message)).unwrap_or(usize::MAX) % (self.pieces.len() * self.blocks);
        (block / self.blocks, block % self.blocks * self.block_bytes)
    }

    fn payload(&self, message: u64) -> &[u8] {
        let (piece, at) = self.place(message);
        &self.pieces[piece].as_bytes()[at..at + self.block_bytes]
    }

    fn store(&mut self, message: u64, offset: usize, bytes: &[u8]) {
        let (piece, at) = self.place(message);
        self.pieces[piece].as_mut_bytes()[at + offset..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// The answering end whose payloads are in a memory.
struct Scattered<'a> {
    end: End<'a>,
    memory: Memory,
    /// Messages with a payload that were sent, or received, in full.
    begun: u64,
}

impl Scattered<'_> {
    /// As [`End::answer`].
    fn answer(mut self, writes: bool, stop: &AtomicBool) -> io::Result<()> {
        answer_all(stop, || {
            if writes {
                self.take().and_then(|()| self.end.flush())
            } else {
                self.end.take().and_then(|_| self.flush())
            }
        })
    }

    /// Receives what is available, and copies each payload to its place.
    fn take(&mut self) -> io::Result<()> {
        let mut within = self.end.partial;
        let owed = self.end.owed;
        self.end.take()?;
        let messages = (self.end.owed - owed) / self.end.sends;
        let header = self.end.takes - self.memory.block_bytes;
        let received = messages * self.end.takes + self.end.partial - within;
        let mut bytes = &self.end.incoming[..received];
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at((self.end.takes - within).min(bytes.len()));
            let payload = &piece[header.saturating_sub(within).min(piece.len())..];
            if !payload.is_empty() {
                self.memory.store(self.begun, within.saturating_sub(header), payload);
            }
            within += piece.len();
            if within == self.end.takes {
                (within, self.begun) = (0, self.begun + 1);
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Sends all pending messages, header and payload of many in one call.
    fn flush(&mut self) -> io::Result<()> {
        let End { stream, sends, owed, outgoing, .. } = &mut self.end;
        let header = *sends - self.memory.block_bytes;
        while *owed > 0 {
            // Of the first one the rest.
            let sent = owed.next_multiple_of(*sends) - *owed;
            let count = owed.div_ceil(*sends).min(GATHER_MAX);
            let mut parts = Vec::with_capacity(count * 2);
            for (message, skip) in (self.begun..).take(count).zip(std::iter::once(sent).chain(std::iter::repeat(0))) {
                if skip < header {
                    parts.push(IoSlice::new(&outgoing[skip..header]));
                }
                parts.push(IoSlice::new(&self.memory.payload(message)[skip.saturating_sub(header)..]));
            }
            match (&mut &**stream).write_vectored(&parts) {
                Ok(more) => {
                    *owed -= more;
                    self.begun += ((sent + more) / *sends) as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Calls `turn` until `stop` is set or the other end disconnects.
fn answer_all(stop: &AtomicBool, mut turn: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        match turn() {
            Err(error) if has_left(&error) => return Ok(()),
            done => done?,
        }
    }
    Ok(())
}

fn has_left(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures for longer and longer until something was answered: on a busy machine an end may
    /// get its processor late.
    fn answered(mut load: Load) -> Raw {
        loop {
            let raw = run(&load).unwrap();
            if raw.requests_per_s > 0.0 {
                return raw;
            }
            load.time *= 2;
            assert!(load.time < Duration::from_secs(120), "nothing is answered");
        }
    }

    #[test]
    fn requests_are_answered_at_every_depth() {
        for depth in DEPTHS {
            let time = Duration::from_millis(30);
            let load = Load {
                writes: false,
                block_bytes: 4096,
                depth,
                memory_bytes: 0,
                ramp: time / 8,
                time,
                processors: vec![[0, 1]],
            };
            let raw = answered(load);
            assert_eq!((raw.depth, raw.connections), (depth, 1));
            assert!((raw.bytes_per_s / raw.requests_per_s - 4096.0).abs() < 1e-3, "{raw:?}");
        }
    }

    #[test]
    fn large_writes_and_parallel_pairs_are_counted_in_full() {
        let load = Load {
            writes: true,
            block_bytes: 128 << 10,
            depth: 64,
            memory_bytes: 0,
            ramp: Duration::from_millis(10),
            time: Duration::from_millis(50),
            processors: vec![[0, 0], [1, 1]],
        };
        let raw = answered(load);
        assert_eq!(raw.connections, 2);
        assert!((raw.bytes_per_s / raw.requests_per_s - 131_072.0).abs() < 1e-3, "{raw:?}");
        assert!((raw.mean_us * raw.requests_per_s / 1e6 - 128.0).abs() < 1e-6, "{raw:?}");
    }

    #[test]
    fn payloads_are_sent_from_all_of_a_memory_and_stored_in_it() {
        for writes in [false, true] {
            for (block_bytes, depth) in [(4096, 128), (128 << 10, 16)] {
                let time = Duration::from_millis(30);
                let memory_bytes = 8 << 20;
                let processors = vec![[0, 1]];
                let load = Load { writes, block_bytes, depth, memory_bytes, ramp: time / 8, time, processors };
                answered(load);
            }
        }
        let memory = Memory::new(8 << 20, 4096);
        let mut used = vec![0; 2048];
        for (piece, at) in (0..20_000).map(|message| memory.place(message)) {
            used[piece * 512 + at / 4096] += 1;
        }
        assert!(
            used.iter().all(|count| (0..40).contains(count)) && used.iter().filter(|count| **count > 0).count() > 2000
        );
    }

    /// Whatever the sizes of what is received, each byte of a payload comes to its place.
    #[test]
    fn messages_in_pieces_are_stored_whole() {
        let (ours, mut theirs) = pair().unwrap();
        let end = End::new(&ours, 72 + 4096, 24, 1);
        let mut scattered = Scattered { end, memory: Memory::new(2 << 20, 4096), begun: 0 };
        let message = |byte| [vec![0xff; 72], vec![byte; 4096]].concat();
        let stream: Vec<u8> = (1..=5).flat_map(message).collect();
        for piece in stream.chunks(1111) {
            theirs.write_all(piece).unwrap();
            let before = (scattered.begun, scattered.end.partial);
            while (scattered.begun, scattered.end.partial) == before {
                scattered.take().unwrap();
            }
        }
        assert_eq!((scattered.begun, scattered.end.partial, scattered.end.owed), (5, 0, 5 * 24));
        assert!((1..=5).zip(0..).all(|(byte, at)| scattered.memory.payload(at) == [byte; 4096]));
    }
}
