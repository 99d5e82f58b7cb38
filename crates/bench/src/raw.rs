//! The raw limit of the loopback: a minimal program that exchanges messages of the sizes of
//! NVMe/TCP commands (72 bytes there and 4120 back for a read of 4 KiB). Nothing is parsed and the
//! payload stays in the cache, so that it is an upper limit.
//!
//! Both ends spin on non-blocking sockets, receive everything that a socket holds in one read, and
//! answer a batch with one send. Several pairs can run in parallel, each on its own processors.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::report::float;

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
    run(&Load { writes: false, block_bytes: 4096, depth, ramp: time / 8, time, processors: vec![processors] })
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
    let start = &Barrier::new(pairs.len());
    let counted = std::thread::scope(|scope| {
        let threads: Vec<_> = std::iter::zip(&pairs, &load.processors)
            .map(|((server, client), &[serving, asking])| {
                let end = |stream, takes, sends| End::new(stream, takes, sends, usize::from(depth));
                let server = end(server, request, answer);
                let client = end(client, answer, request);
                let answering = scope.spawn(move || {
                    stay_on(serving);
                    server.answer(stop)
                });
                let asking = scope.spawn(move || {
                    stay_on(asking);
                    start.wait();
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
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
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
        while !stop.load(Ordering::Relaxed) {
            let taken = self.take().map(drop).and_then(|()| self.flush());
            match taken {
                Err(error) if has_left(&error) => return Ok(()),
                taken => taken?,
            }
        }
        Ok(())
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
            let load = Load { writes: false, block_bytes: 4096, depth, ramp: time / 8, time, processors: vec![[0, 1]] };
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
            ramp: Duration::from_millis(10),
            time: Duration::from_millis(50),
            processors: vec![[0, 0], [1, 1]],
        };
        let raw = answered(load);
        assert_eq!(raw.connections, 2);
        assert!((raw.bytes_per_s / raw.requests_per_s - 131_072.0).abs() < 1e-3, "{raw:?}");
        assert!((raw.mean_us * raw.requests_per_s / 1e6 - 128.0).abs() < 1e-6, "{raw:?}");
    }
}
