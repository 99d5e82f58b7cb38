//! What the loopback of this machine can carry at all: the smallest program that exchanges messages of the sizes of NVMe/TCP reads,
//! 72 bytes there and 4120 back. Nothing is parsed and the payload stays in the cache, so it is a limit, not a rival.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A command capsule without data: 8 bytes of PDU header and 64 of entry.
const REQUEST_BYTES: usize = 72;
/// A C2HData PDU with 4096 bytes and the SUCCESS flag: 24 bytes of header.
const RESPONSE_BYTES: usize = 4120;
/// The depths that DESIGN figures are given for.
pub const DEPTHS: [u16; 3] = [1, 32, 128];
/// Reads that found nothing between two calls of sched_yield: a peer on the same core must get its turn.
const IDLE_READS_PER_YIELD: u32 = 8;

/// What the loopback carried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Raw {
    /// Requests outstanding.
    pub depth: u16,
    /// Requests answered per second.
    pub requests_per_s: f64,
    /// Mean time from request to answer, in microseconds.
    pub mean_us: f64,
}

/// Measures with `depth` (1 to 1024) requests outstanding on one connection for `time`: two threads, one for each end, on the
/// processors named (where the system allows it); non-blocking reads, one send for each batch.
///
/// # Errors
/// The loopback cannot be used.
pub fn read_4k(depth: u16, time: Duration, processors: [usize; 2]) -> io::Result<Raw> {
    let depth = depth.clamp(1, 1024);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let answering = scope.spawn(move || {
            crate::run::stay_on(processors[0]);
            answer(&server, usize::from(depth), stop)
        });
        let asking = scope.spawn(move || {
            crate::run::stay_on(processors[1]);
            let asked = ask(&client, usize::from(depth), time);
            stop.store(true, Ordering::Relaxed);
            asked
        });
        let asked = asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        answering.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let (requests, elapsed) = asked?;
        let requests_per_s = crate::report::float(requests) / elapsed.as_secs_f64().max(1e-9);
        Ok(Raw { depth, requests_per_s, mean_us: f64::from(depth) * 1e6 / requests_per_s.max(1e-9) })
    })
}

/// Bytes to be sent of a buffer that is the same for every message, and how many are owed.
struct Sender {
    bytes: Vec<u8>,
    owed: usize,
}

impl Sender {
    fn new(message: usize, depth: usize) -> Self {
        Self { bytes: vec![0x5a; message * depth], owed: 0 }
    }

    /// Sends what is owed, in one call where the socket takes it. The content does not matter, so neither does where in the buffer it
    /// begins.
    fn flush(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        while self.owed > 0 {
            match stream.write(&self.bytes[..self.owed.min(self.bytes.len())]) {
                Ok(sent) => self.owed -= sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Takes requests and answers each batch with one send, until `stop`.
fn answer(mut stream: &TcpStream, depth: usize, stop: &AtomicBool) -> io::Result<()> {
    let mut sender = Sender::new(RESPONSE_BYTES, depth);
    let mut buffer = vec![0; REQUEST_BYTES * depth];
    let mut partial = 0;
    let mut idle = 0;
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                partial += read;
                sender.owed += partial / REQUEST_BYTES * RESPONSE_BYTES;
                partial %= REQUEST_BYTES;
                idle = 0;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => rest(&mut idle),
            // The other end has what it wanted, and left.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        }
        match sender.flush(stream) {
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => return Ok(()),
            flushed => flushed?,
        }
    }
    Ok(())
}

/// Keeps `depth` requests outstanding for `time`; gives how many were answered, and in what time.
fn ask(mut stream: &TcpStream, depth: usize, time: Duration) -> io::Result<(u64, Duration)> {
    let mut sender = Sender::new(REQUEST_BYTES, depth);
    let mut buffer = vec![0; 256 << 10];
    sender.owed = REQUEST_BYTES * depth;
    let started = Instant::now();
    let (mut answered, mut partial, mut idle) = (0u64, 0, 0);
    loop {
        sender.flush(stream)?;
        match stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                partial += read;
                answered += (partial / RESPONSE_BYTES) as u64;
                sender.owed += partial / RESPONSE_BYTES * REQUEST_BYTES;
                partial %= RESPONSE_BYTES;
                idle = 0;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                rest(&mut idle);
            }
            Err(error) => return Err(error),
        }
        let elapsed = started.elapsed();
        if elapsed >= time {
            return Ok((answered, elapsed));
        }
    }
}

fn rest(idle: &mut u32) {
    *idle += 1;
    if idle.is_multiple_of(IDLE_READS_PER_YIELD) {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_at_every_depth() {
        for depth in DEPTHS {
            let raw = read_4k(depth, Duration::from_millis(30), [0, 1]).unwrap();
            assert_eq!(raw.depth, depth);
            assert!(raw.requests_per_s > 100.0, "{raw:?}");
        }
    }
}
