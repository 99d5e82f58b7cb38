//! Handshakes of both ends: which keys lead to a connection, and what is said where none does.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;

use ebof_authentication::psk::IdentityVersion;
use ebof_authentication::response::Names;
use ebof_authentication::{ConfiguredPsk, Derivation, Hash, KeyMaterial};
use ebof_nvme::Nqn;
use ebof_tls::{Alert, ClientHandshake, HandshakeError, Progress, ServerHandshake, Suite, TlsPsk};
use rustix::event::PollFlags;

use crate::support::{self, End, IDENTITY, connect, drive, pair, psk, receive, send, wait};

#[test]
fn both_suites_lead_to_a_connection() {
    for (hash, suite) in [(Hash::Sha256, Suite::Aes128GcmSha256), (Hash::Sha384, Suite::Aes256GcmSha384)] {
        let mut asked = Vec::new();
        let outcomes = connect(pair(), psk(hash, 7), &mut |identity| {
            asked.push(identity.to_owned());
            vec![psk(hash, 7)]
        });
        let [mut client, mut server] = outcomes.map(Result::unwrap);
        assert_eq!(asked, [IDENTITY]);
        for secured in [&client, &server] {
            assert_eq!((secured.suite, secured.candidate, &secured.identity[..]), (suite, 0, IDENTITY));
            assert!(!secured.stream.has_received());
        }
        send(&mut client.stream, b"a command");
        assert_eq!(receive(&mut server.stream, 9), b"a command");
        send(&mut server.stream, b"a completion");
        assert_eq!(receive(&mut client.stream, 12), b"a completion");
        client.stream.close();
        assert_eq!(receive(&mut server.stream, 1), b"");
    }
}

/// The keys of both derivations for one identity.
fn derived(hash: Option<Hash>, bytes: usize, version: IdentityVersion) -> Vec<TlsPsk> {
    let [host, subsystem] = ["host", "sub"].map(|name| Nqn::parse(&format!("nqn.2014-08.org.example:{name}")).unwrap());
    let names = Names { host, subsystem };
    let configured = ConfiguredPsk::new(KeyMaterial::new(vec![9; bytes]), hash).unwrap();
    [Derivation::Specification, Derivation::Libnvme1]
        .map(|derivation| {
            let retained = configured.retained(&names.host, derivation);
            let key = retained.for_tls(&names, version, derivation).unwrap();
            TlsPsk::new(retained.identity(&names, version).to_string(), retained.hash(), key).unwrap()
        })
        .into()
}

#[test]
fn the_binder_decides_between_the_derivations_of_one_identity() {
    let kinds = [
        (None, 32, IdentityVersion::V1),
        (None, 48, IdentityVersion::V1),
        (None, 32, IdentityVersion::V0),
        (Some(Hash::Sha256), 32, IdentityVersion::V0),
        (Some(Hash::Sha384), 48, IdentityVersion::V0),
    ];
    for (hash, bytes, version) in kinds {
        let keys = derived(hash, bytes, version);
        assert_eq!(keys[0].identity(), keys[1].identity());
        for (index, key) in keys.iter().enumerate() {
            let [client, server] = connect(pair(), key.clone(), &mut |_| keys.clone()).map(Result::unwrap);
            assert_eq!((client.candidate, server.candidate), (0, index));
            assert_eq!(server.identity, keys[0].identity());
        }
    }
}

#[test]
fn a_key_that_is_rotated_is_found_by_its_binder_whatever_its_hash() {
    let keys = [psk(Hash::Sha256, 1), psk(Hash::Sha384, 2), psk(Hash::Sha256, 3)];
    for (index, key) in keys.iter().enumerate() {
        let [client, server] = connect(pair(), key.clone(), &mut |_| keys.to_vec()).map(Result::unwrap);
        assert_eq!(server.candidate, index);
        assert_eq!((client.suite, server.suite), (key.suite(), key.suite()));
    }
}

#[test]
fn a_wrong_key_is_named_at_both_ends() {
    for hash in [Hash::Sha256, Hash::Sha384] {
        let [client, server] = connect(pair(), psk(hash, 7), &mut |_| vec![psk(hash, 8), psk(hash, 9)]);
        let server = server.unwrap_err();
        assert!(matches!(server, HandshakeError::WrongKey { candidates: 2, .. }), "{server}");
        assert!(server.to_string().contains(IDENTITY), "{server}");
        let client = client.unwrap_err();
        assert!(matches!(client, HandshakeError::Alert { alert: Alert::DECRYPT_ERROR }), "{client}");
        assert!(client.to_string().contains("no key for this identity, or another one"), "{client}");
    }
}

#[test]
fn an_unknown_identity_is_named_at_both_ends() {
    let [client, server] = connect(pair(), psk(Hash::Sha256, 7), &mut |_| Vec::new());
    let server = server.unwrap_err();
    assert!(matches!(server, HandshakeError::UnknownIdentity { others: 0, .. }), "{server}");
    assert!(server.to_string().contains(IDENTITY), "{server}");
    let client = client.unwrap_err();
    assert!(matches!(client, HandshakeError::Alert { alert: Alert::DECRYPT_ERROR }), "{client}");
    assert!(client.to_string().contains("no key for this identity"), "{client}");
}

#[test]
fn a_handshake_that_is_over_says_so() {
    let (client, server) = pair();
    let mut end = ServerHandshake::new(server);
    drop(client);
    assert!(matches!(end.advance(&mut |_| Vec::new()), Err(HandshakeError::Closed { received: 0 })));
    assert!(end.socket().is_none());
    assert!(matches!(end.advance(&mut |_| Vec::new()), Err(HandshakeError::Over)));
}

#[test]
fn nvme_in_the_clear_is_told_from_tls() {
    let mut ic_req = [0; 128];
    (ic_req[2], ic_req[4]) = (128, 128);
    let cases: [(&[u8], &str); 3] = [
        (&ic_req, "without TLS"),
        (b"GET / HTTP/1.1\r\n", "47, 45, 54"),
        (&[22, 3, 1, 0, 5, 2, 0, 0, 1, 0], "neither"),
    ];
    for (bytes, said) in cases {
        let (mut client, server) = pair();
        client.write_all(bytes).unwrap();
        let mut end = ServerHandshake::new(server);
        wait(&[(end.socket().unwrap().as_fd(), PollFlags::IN)]);
        let error = end.advance(&mut |_| panic!("there is no identity")).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
}

/// Forwards bytes between two connections, some at a time, until both ends are done.
fn relay(from: &mut TcpStream, to: &mut TcpStream, bytes_max: usize) -> Vec<u8> {
    let mut bytes = vec![0; bytes_max];
    let Ok(count) = from.read(&mut bytes) else { return Vec::new() };
    bytes.truncate(count);
    to.write_all(&bytes).unwrap();
    bytes
}

/// A handshake whose bytes arrive `bytes_max` at a time, and each end is asked after every piece.
fn through_a_straw(hash: Hash, bytes_max: usize) -> [Vec<u8>; 2] {
    let ((client, mut near), (mut far, server)) = (pair(), pair());
    let mut client = ClientHandshake::new(client, psk(hash, 7));
    let mut server = ServerHandshake::new(server);
    let mut done = [None, None];
    let mut seen = [Vec::new(), Vec::new()];
    while done.iter().any(Option::is_none) {
        if done[0].is_none()
            && let Progress::Done(secured) = client.advance().unwrap()
        {
            done[0] = Some(secured);
        }
        if done[1].is_none()
            && let Progress::Done(secured) = server.advance(&mut |_| vec![psk(hash, 7)]).unwrap()
        {
            done[1] = Some(secured);
        }
        seen[0].extend(relay(&mut near, &mut far, bytes_max));
        seen[1].extend(relay(&mut far, &mut near, bytes_max));
    }
    let [client, server] = done.map(Option::unwrap);
    let (mut client, mut server) = (client.stream, server.stream);
    send(&mut client, b"ping");
    wait(&[(near.as_fd(), PollFlags::IN)]);
    relay(&mut near, &mut far, 100);
    assert_eq!(receive(&mut server, 4), b"ping");
    seen
}

#[test]
fn a_handshake_may_arrive_byte_by_byte() {
    for hash in [Hash::Sha256, Hash::Sha384] {
        for bytes_max in [1, 2, 3, 7, 100] {
            through_a_straw(hash, bytes_max);
        }
    }
}

#[test]
fn a_client_hello_that_ends_at_any_byte_is_waited_for_and_then_reported() {
    let [hello, _] = through_a_straw(Hash::Sha256, 1);
    let length = 5 + usize::from(u16::from_be_bytes([hello[3], hello[4]]));
    for end in 0..length {
        let (mut client, server) = pair();
        client.write_all(&hello[..end]).unwrap();
        let mut handshake = ServerHandshake::new(server);
        if end > 0 {
            wait(&[(handshake.socket().unwrap().as_fd(), PollFlags::IN)]);
        }
        let mut find = |_: &str| panic!("the identity is not complete");
        assert!(matches!(handshake.advance(&mut find), Ok(Progress::Readable)), "{end}");
        drop(client);
        wait(&[(handshake.socket().unwrap().as_fd(), PollFlags::IN)]);
        let error = handshake.advance(&mut find).unwrap_err();
        assert!(matches!(error, HandshakeError::Closed { received } if received == end as u64), "{end}: {error}");
    }
}

/// Bytes of the host behind its Finished, in one segment with it, are the first that are received.
#[test]
fn data_in_the_segment_of_the_finished_are_not_lost() {
    for hash in [Hash::Sha256, Hash::Sha384] {
        let ((client, mut near), (mut far, server)) = (pair(), pair());
        let mut client = ClientHandshake::new(client, psk(hash, 7));
        let mut server = ServerHandshake::new(server);
        assert!(matches!(client.advance(), Ok(Progress::Readable)));
        wait(&[(near.as_fd(), PollFlags::IN)]);
        relay(&mut near, &mut far, 4096);
        wait(&[(server.socket().unwrap().as_fd(), PollFlags::IN)]);
        let mut find = |_: &str| vec![psk(hash, 7)];
        assert!(matches!(server.advance(&mut find), Ok(Progress::Readable)));
        wait(&[(far.as_fd(), PollFlags::IN)]);
        relay(&mut far, &mut near, 4096);
        wait(&[(client.socket().unwrap().as_fd(), PollFlags::IN)]);
        let Ok(Progress::Done(mut host)) = client.advance() else { panic!("it has all that it needs") };
        send(&mut host.stream, b"first");
        send(&mut host.stream, b"second");

        // All of it at once: Finished, and both records of data.
        let mut bytes = vec![0; 4096];
        let mut count = 0;
        while bytes[..count].windows(5).filter(|header| header[..3] == [23, 3, 3]).count() < 3 {
            wait(&[(near.as_fd(), PollFlags::IN)]);
            count += near.read(&mut bytes[count..]).unwrap();
        }
        far.write_all(&bytes[..count]).unwrap();
        wait(&[(server.socket().unwrap().as_fd(), PollFlags::IN)]);
        let Ok(Progress::Done(mut target)) = server.advance(&mut find) else { panic!("it has all that it needs") };
        assert!(target.stream.has_received());
        let mut received = [0; 64];
        assert_eq!(target.stream.receive(&mut received).unwrap(), 11);
        assert_eq!(&received[..11], b"firstsecond");
        assert!(support::is_blocked(&target.stream.receive(&mut received)));
    }
}

#[test]
fn the_host_hears_what_ended_a_handshake() {
    // A target that refuses in the clear, one that closes, and one that speaks NVMe/TCP without
    // TLS.
    let cases: [(&[u8], &str); 3] = [
        (&[21, 3, 3, 0, 2, 2, 40], "accepts none of what was offered"),
        (&[], "closed the connection in the TLS handshake"),
        (&[21, 3, 3, 0, 2, 2, 250], "alert 250"),
    ];
    for (answer, said) in cases {
        let (client, mut target) = pair();
        let mut handshake = ClientHandshake::new(client, psk(Hash::Sha256, 7));
        assert!(matches!(handshake.advance(), Ok(Progress::Readable)));
        wait(&[(target.as_fd(), PollFlags::IN)]);
        let mut hello = vec![0; 4096];
        assert!(target.read(&mut hello).unwrap() > 100);
        target.write_all(answer).unwrap();
        drop(target);
        wait(&[(handshake.socket().unwrap().as_fd(), PollFlags::IN)]);
        let error = handshake.advance().unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        assert!(handshake.socket().is_none());
    }
}

#[test]
fn many_handshakes_at_once_in_one_thread_keep_their_secrets_apart() {
    let mut ends = Vec::new();
    for byte in 1..=20 {
        let (client, server) = pair();
        let hash = if byte % 2 == 0 { Hash::Sha256 } else { Hash::Sha384 };
        ends.push((ClientHandshake::new(client, psk(hash, byte)), ServerHandshake::new(server), psk(hash, byte)));
    }
    let mut streams: Vec<[Option<ebof_sockets::Stream>; 2]> = ends.iter().map(|_| [None, None]).collect();
    while streams.iter().flatten().any(Option::is_none) {
        for ((client, server, key), streams) in ends.iter_mut().zip(&mut streams) {
            if streams[0].is_none()
                && let Progress::Done(secured) = client.advance().unwrap()
            {
                streams[0] = Some(secured.stream);
            }
            if streams[1].is_none()
                && let Progress::Done(secured) = server.advance(&mut |_| vec![key.clone()]).unwrap()
            {
                streams[1] = Some(secured.stream);
            }
        }
    }
    for (number, [client, server]) in streams.iter_mut().enumerate() {
        let text = format!("connection {number}");
        send(client.as_mut().unwrap(), text.as_bytes());
        assert_eq!(receive(server.as_mut().unwrap(), text.len()), text.as_bytes());
    }
}

#[test]
fn ends_in_different_threads_work_alike() {
    let (client, server) = pair();
    let target = std::thread::spawn(move || {
        let mut end = ServerHandshake::new(server);
        loop {
            match end.advance(&mut |_| vec![psk(Hash::Sha384, 7)]).unwrap() {
                Progress::Readable => wait(&[(end.socket().unwrap().as_fd(), PollFlags::IN)]),
                Progress::Writable => wait(&[(end.socket().unwrap().as_fd(), PollFlags::OUT)]),
                Progress::Done(secured) => return secured.stream,
            }
        }
    });
    let (_, spare) = pair();
    let mut none = |_: &str| Vec::new();
    // The second end of this call only fills its place: its peer is gone.
    let [host, _] = drive([
        End::Client(ClientHandshake::new(client, psk(Hash::Sha384, 7))),
        End::Server(ServerHandshake::new(spare), &mut none),
    ]);
    let (mut host, mut target) = (host.unwrap().stream, target.join().unwrap());
    send(&mut host, b"hello");
    assert_eq!(receive(&mut target, 5), b"hello");
}
