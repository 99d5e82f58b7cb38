//! Entry points for fuzzing: what a peer sends before and behind its handshake. Each takes any
//! bytes, and checks invariants.

use std::cell::OnceCell;
use std::io::{self, IoSliceMut};
use std::net::{Shutdown, TcpListener, TcpStream};

use ebof_authentication::{Hash, KeyMaterial};

use crate::client_hello::{ClientHello, OFFERS_MAX, RECORDS_BYTES_MAX};
use crate::records::{Receiving, Sealing};

/// Any bytes as the first ones of a connection.
///
/// # Panics
/// An invariant is violated.
pub fn client_hello(input: &[u8]) {
    let read = ClientHello::read(input);
    if let Ok(Some(hello)) = &read {
        assert!(hello.truncated().len() <= input.len());
        assert!(hello.offers.len() <= OFFERS_MAX);
        assert!(hello.offers.iter().all(|offer| offer.identity.len() <= input.len()));
    }
    // More bytes change nothing of what was read or refused, and what has no end is refused.
    let more = ClientHello::read(&[input, &[0x16, 3, 3, 0, 1, 0]].concat());
    match read {
        Ok(Some(hello)) => {
            let same = more.ok().flatten().map(|same| same.offers);
            assert_eq!(same, Some(hello.offers), "it is another one with more bytes");
        }
        Ok(None) => assert!(input.len() < RECORDS_BYTES_MAX + 5, "it has no end"),
        Err(_) => assert!(more.is_err(), "it is right with more bytes"),
    }
}

/// Records of a peer that has the keys, some of which it or somebody on the way has changed.
///
/// An input is a sequence of actions, whose first byte chooses one: data of a length, a message of
/// any bytes, a key update, a record with one byte changed, any bytes. The first two bytes say how
/// much is received at a time.
///
/// # Panics
/// Something was received that the peer did not send, or that comes behind what was changed.
pub fn records(input: &[u8]) {
    let mut input = input;
    let part = usize::from(take(&mut input)) * 64 + usize::from(take(&mut input)) + 1;
    let mut peer = Sealing::new(KeyMaterial::new(vec![2; Hash::Sha256.bytes()]));
    let mut wire = Vec::new();
    let mut sent = Vec::new();
    let mut is_intact = true;
    while !input.is_empty() && wire.len() < 256 << 10 {
        let act = take(&mut input);
        let count = usize::from(act >> 3) << (take(&mut input) % 10);
        match act % 8 {
            0..=2 => {
                let data: Vec<u8> = (0..count.min(1 << 14)).map(|at| (at + sent.len()).to_le_bytes()[0]).collect();
                peer.seal(&mut wire, 23, &data, usize::from(act >> 6));
                if is_intact {
                    sent.extend(data);
                }
            }
            3 => {
                let kind = take(&mut input);
                let (content, rest) = input.split_at(count.min(64).min(input.len()));
                input = rest;
                peer.seal(&mut wire, kind, content, 0);
                // It may end the stream, or be the beginning of something.
                is_intact = false;
            }
            4 | 5 => peer.update(&mut wire, act % 2),
            6 => {
                let start = wire.len();
                peer.seal(&mut wire, 23, &[7; 100], 0);
                let at = start + usize::from(take(&mut input)) % (wire.len() - start);
                wire[at] ^= take(&mut input).max(1);
                is_intact = false;
            }
            _ => {
                let (bytes, rest) = input.split_at(count.min(64).min(input.len()));
                input = rest;
                wire.extend_from_slice(bytes);
                is_intact &= bytes.is_empty();
            }
        }
    }
    let received = receive(wire, part);
    assert!(sent.starts_with(&received) || !is_intact, "what was received is not what was sent");
    assert!(!is_intact || received.len() == sent.len(), "data were lost");
}

/// All that can be received of these bytes, so much at a time.
fn receive(wire: Vec<u8>, part: usize) -> Vec<u8> {
    thread_local! {
        /// A socket whose peer is gone: everything was read from it before.
        static CLOSED: OnceCell<TcpStream> = const { OnceCell::new() };
    }
    let bound = wire.len();
    let mut receiving = Receiving::new(KeyMaterial::new(vec![2; Hash::Sha256.bytes()]), wire);
    let mut received = Vec::new();
    let mut buffer = vec![0; part];
    CLOSED.with(|closed| {
        let socket = closed.get_or_init(|| closed_socket().expect("a socket over loopback"));
        loop {
            match receiving.receive(socket, &mut [IoSliceMut::new(&mut buffer)]) {
                Ok(0) => break,
                Ok(count) => received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && receiving.has_received() => {}
                Err(_) => break,
            }
            assert!(received.len() <= bound, "more than there was");
        }
    });
    received
}

fn closed_socket() -> io::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let socket = TcpStream::connect(listener.local_addr()?)?;
    let (peer, _) = listener.accept()?;
    peer.shutdown(Shutdown::Write)?;
    // What is sent to it is thrown away.
    std::mem::forget(peer);
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn take(input: &mut &[u8]) -> u8 {
    let Some((&first, rest)) = input.split_first() else { return 0 };
    *input = rest;
    first
}
