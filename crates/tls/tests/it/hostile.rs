//! Peers that break the rules of a handshake.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;

use ebof_authentication::Hash;
use ebof_tls::{ClientHandshake, HandshakeError, Progress, ServerHandshake};
use proptest::prelude::*;
use rustix::event::PollFlags;

use crate::support::{pair, psk, wait};

/// What a host of ours sends first.
fn hello(hash: Hash) -> Vec<u8> {
    let (client, mut target) = pair();
    let mut handshake = ClientHandshake::new(client, psk(hash, 7));
    assert!(matches!(handshake.advance(), Ok(Progress::Readable)));
    wait(&[(target.as_fd(), PollFlags::IN)]);
    let mut bytes = vec![0; 4096];
    let count = target.read(&mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

/// What comes of these bytes, and of the connection's end behind them.
fn outcome_at_server(bytes: &[u8]) -> Result<Progress, HandshakeError> {
    let (mut client, server) = pair();
    client.write_all(bytes).unwrap();
    let mut handshake = ServerHandshake::new(server);
    if !bytes.is_empty() {
        wait(&[(handshake.socket().unwrap().as_fd(), PollFlags::IN)]);
    }
    let mut find = |_: &str| vec![psk(Hash::Sha256, 7)];
    handshake.advance(&mut find)?;
    client.shutdown(std::net::Shutdown::Write).unwrap();
    if let Some(socket) = handshake.socket() {
        wait(&[(socket.as_fd(), PollFlags::IN)]);
    }
    handshake.advance(&mut find)
}

/// What a target sends to a host of ours.
fn outcome_at_client(answer: &[u8]) -> Result<Progress, HandshakeError> {
    let (client, mut target) = pair();
    let mut handshake = ClientHandshake::new(client, psk(Hash::Sha256, 7));
    handshake.advance()?;
    wait(&[(target.as_fd(), PollFlags::IN)]);
    // All of the ClientHello, or closing would reset the connection.
    let _ = target.read(&mut vec![0; 4096]).unwrap();
    target.write_all(answer).unwrap();
    drop(target);
    loop {
        wait(&[(handshake.socket().unwrap().as_fd(), PollFlags::IN)]);
        match handshake.advance() {
            Ok(Progress::Done(_)) => panic!("nobody knows the key"),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn a_hello_that_has_no_end_is_given_up() {
    let (mut client, server) = pair();
    let mut handshake = ServerHandshake::new(server);
    // Records of one byte: a message of 16 KiB that never gets there.
    let mut written = 0;
    let error = loop {
        let bytes: &[u8] = match written {
            0 => &[22, 3, 1, 0, 4, 1, 0, 0x3f, 0xf0],
            _ => &[22, 3, 1, 0, 1, 0],
        };
        client.write_all(bytes).unwrap();
        written += bytes.len();
        wait(&[(handshake.socket().unwrap().as_fd(), PollFlags::IN)]);
        match handshake.advance(&mut |_| Vec::new()) {
            Ok(Progress::Readable) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("more than 16384 bytes"), "{error}");
    assert!(written < 40_000);
}

#[test]
fn a_hello_that_is_repeated_or_followed_by_garbage_leads_nowhere() {
    let hello = hello(Hash::Sha256);
    for behind in [&hello[..], &[0; 100], &[23, 3, 3, 0, 20, 1, 2, 3], &[22, 3, 3, 0, 4, 20, 0, 0, 0]] {
        let bytes = [&hello[..], behind].concat();
        let outcome = outcome_at_server(&bytes);
        assert!(outcome.is_err(), "{outcome:?}");
    }
    // A change_cipher_spec is allowed there.
    let outcome = outcome_at_server(&[&hello[..], &[20, 3, 3, 0, 1, 1]].concat());
    assert!(matches!(outcome, Err(HandshakeError::Closed { .. })), "{outcome:?}");
}

#[test]
fn a_replayed_conversation_proves_nothing() {
    // The host's first message is accepted; without the key, nobody completes the handshake.
    let outcome = outcome_at_server(&hello(Hash::Sha256));
    assert!(matches!(outcome, Err(HandshakeError::Closed { .. })), "{outcome:?}");
}

#[test]
fn the_binder_covers_every_byte_before_it() {
    let hello = hello(Hash::Sha256);
    // The random, in which every value is legal.
    for at in 11..43 {
        let mut changed = hello.clone();
        changed[at] ^= 1;
        let error = outcome_at_server(&changed).unwrap_err();
        assert!(matches!(error, HandshakeError::WrongKey { .. }), "{at}: {error}");
    }
}

/// The alert that a host gets.
fn alert_for(bytes: &[u8]) -> Vec<u8> {
    let (mut client, server) = pair();
    client.write_all(bytes).unwrap();
    let mut handshake = ServerHandshake::new(server);
    wait(&[(handshake.socket().unwrap().as_fd(), PollFlags::IN)]);
    handshake.advance(&mut |_| Vec::new()).unwrap_err();
    client.set_nonblocking(false).unwrap();
    let mut told = Vec::new();
    client.read_to_end(&mut told).unwrap();
    told
}

#[test]
fn a_host_is_told_in_the_clear_why_it_is_refused() {
    assert_eq!(alert_for(&hello(Hash::Sha256)), [21, 3, 3, 0, 2, 2, 51]);
    let mut malformed = hello(Hash::Sha256);
    malformed[43] = 200;
    assert_eq!(alert_for(&malformed), [21, 3, 3, 0, 2, 2, 50]);
    // A host that begins without TLS can tell by the alert what is wanted of it.
    let ic_req = [&[0, 0, 128, 0, 128, 0, 0, 0][..], &[0; 120]].concat();
    assert_eq!(alert_for(&ic_req), [21, 3, 3, 0, 2, 2, 10]);
    // Who speaks something else is told nothing.
    assert_eq!(alert_for(b"GET / HTTP/1.1\r\n\r\n"), b"");
}

fn hostile(outcome: &Result<Progress, HandshakeError>) {
    if let Err(error) = outcome {
        assert!(!error.to_string().is_empty() && !format!("{error:?}").is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_bytes_at_a_target_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 1..300)) {
        hostile(&outcome_at_server(&bytes));
        hostile(&outcome_at_server(&[&[22, 3, 1, 0, 250, 1, 0, 0, 246], &bytes[..]].concat()));
    }

    #[test]
    fn no_change_of_a_hello_causes_a_panic(
        changes in prop::collection::vec((0_usize..400, any::<u8>()), 1..4),
        behind in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut bytes = hello(Hash::Sha256);
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.extend(behind);
        hostile(&outcome_at_server(&bytes));
    }

    #[test]
    fn no_bytes_at_a_host_cause_a_panic(
        kind in prop::sample::select(vec![20_u8, 21, 22, 23, 0, 255]),
        message in prop::sample::select(vec![2_u8, 1, 4, 20]),
        bytes in prop::collection::vec(any::<u8>(), 6..300),
    ) {
        hostile(&outcome_at_client(&bytes));
        let mut message = [&[message, 0, 0, u8::try_from((bytes.len() - 4).min(255)).unwrap()], &bytes[4..]].concat();
        let [high, low] = u16::try_from(message.len()).unwrap().to_be_bytes();
        message.splice(0..0, [kind, 3, 3, high, low]);
        hostile(&outcome_at_client(&message));
    }
}

/// A socket that is reset in the middle.
#[test]
fn a_reset_is_an_error_and_no_panic() {
    let reset = |socket: TcpStream| {
        socket2::SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(socket);
    };
    let (client, server) = pair();
    let mut handshake = ServerHandshake::new(server);
    assert!(matches!(handshake.advance(&mut |_| Vec::new()), Ok(Progress::Readable)));
    reset(client);
    wait(&[(handshake.socket().unwrap().as_fd(), PollFlags::IN)]);
    assert!(matches!(handshake.advance(&mut |_| Vec::new()), Err(HandshakeError::Io(_))));

    let (client, target) = pair();
    let mut handshake = ClientHandshake::new(client, psk(Hash::Sha256, 7));
    assert!(matches!(handshake.advance(), Ok(Progress::Readable)));
    reset(target);
    wait(&[(handshake.socket().unwrap().as_fd(), PollFlags::IN)]);
    let error = handshake.advance().unwrap_err();
    assert!(matches!(error, HandshakeError::Io(_)), "{error}");
}
