//! What TLS costs: handshakes, and data through two sockets of this machine. Both ends are in one
//! thread, whose processor time is measured, so that a figure is that of both, whatever else runs.
//! `cargo run --release -p ebof-tls --example tls_speed`, and behind it `-- BYTES...` for other
//! sends. Where the kernel has TLS (`modprobe tls`; guests of tests/vm), its records are measured,
//! too.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "an example shows what it does")]

use std::io::{IoSlice, IoSliceMut};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use ebof_authentication::{Hash, KeyMaterial};
use ebof_sockets::Stream;
use ebof_tls::{ClientHandshake, Progress, RecordsBy, ServerHandshake, TlsPsk};
use rustix::time::{ClockId, clock_gettime};

fn psk(hash: Hash) -> TlsPsk {
    TlsPsk::new("NVMe1R01 host subsystem digest".into(), hash, KeyMaterial::new(vec![7; hash.bytes()])).unwrap()
}

/// The processor time of this thread.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    for socket in [&client, &server] {
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
        // One that does not pace, as for all connections within a machine.
        socket2::SockRef::from(socket).set_tcp_congestion(b"reno").unwrap();
    }
    (client, server)
}

/// `None`: the records are not those that were asked for.
fn handshake(hash: Hash, by: RecordsBy) -> Option<[Stream; 2]> {
    let (client, server) = pair();
    let mut client = ClientHandshake::new(client, psk(hash)).with_records(by);
    let mut server = ServerHandshake::new(server).with_records(by);
    let mut ends = [None, None];
    while ends.iter().any(Option::is_none) {
        if ends[0].is_none()
            && let Progress::Done(secured) = client.advance().unwrap()
        {
            ends[0] = Some(secured);
        }
        if ends[1].is_none()
            && let Progress::Done(secured) = server.advance(&mut |_| vec![psk(hash)]).unwrap()
        {
            ends[1] = Some(secured);
        }
    }
    let ends = ends.map(Option::unwrap);
    ends.iter().all(|secured| secured.records == by).then(|| ends.map(|secured| secured.stream))
}

/// Bytes per second in sends of so many.
fn speed(mut ends: [Stream; 2], bytes: usize) -> f64 {
    let data = vec![5; bytes];
    let mut memory = vec![0; bytes];
    let started = now();
    let mut all = 0_u64;
    while now() - started < Duration::from_secs(1) {
        let (mut sent, mut received) = (0, 0);
        while received < bytes {
            if sent < bytes {
                sent += ends[0].send(&[IoSlice::new(&data[sent..])], false).unwrap_or(0);
            }
            received += ends[1].receive_parts(&mut [IoSliceMut::new(&mut memory[received..])]).unwrap_or(0);
        }
        all += bytes as u64;
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let all = all as f64;
    all / (now() - started).as_secs_f64()
}

fn main() {
    for hash in [Hash::Sha256, Hash::Sha384] {
        handshake(hash, RecordsBy::Own);
        let started = now();
        let mut count = 0_u32;
        while now() - started < Duration::from_secs(1) {
            handshake(hash, RecordsBy::Own);
            count += 1;
        }
        let each = (now() - started) / count;
        println!("{}: a handshake takes {each:.2?} of both ends", psk(hash).suite());
    }
    let arguments: Vec<usize> = std::env::args().skip(1).map(|bytes| bytes.parse().unwrap()).collect();
    let sizes = if arguments.is_empty() { vec![72, 4096, 16 << 10, 128 << 10] } else { arguments };
    for bytes in sizes {
        let (client, server) = pair();
        let plain = speed([Stream::from(client), Stream::from(server)], bytes);
        println!("sends of {bytes} bytes: {:.3} GB/s in the clear", plain / 1e9);
        for hash in [Hash::Sha256, Hash::Sha384] {
            for by in [RecordsBy::Own, RecordsBy::Kernel] {
                match handshake(hash, by) {
                    Some(ends) => {
                        let speed = speed(ends, bytes) / 1e9;
                        println!("    {speed:.3} with {} by {}", psk(hash).suite(), by.name());
                    }
                    None => println!("    - with {} by {}: the kernel has no TLS", psk(hash).suite(), by.name()),
                }
            }
        }
    }
}
