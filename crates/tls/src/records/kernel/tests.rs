//! What a peer may send and what not, where the kernel opens the records: one end is
//! [`KernelRecords`], the other one seals whatever the test wants. Skipped where the kernel has no
//! TLS.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use rustix::event::{PollFd, PollFlags, poll};

use super::super::half::Half;
use super::*;

/// The end that is tested, and a peer.
struct World {
    records: KernelRecords,
    socket: TcpStream,
    peer: TcpStream,
    /// The peer's keys.
    sealing: Half,
    opening: Half,
}

const SUITE: Suite = Suite::Aes256GcmSha384;

fn secret(byte: u8) -> KeyMaterial {
    KeyMaterial::new(vec![byte; SUITE.hash().bytes()])
}

impl World {
    /// `None` where the kernel has no TLS.
    fn new(limits: Limits) -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().0;
        socket.set_nonblocking(true).unwrap();
        peer.set_nodelay(true).unwrap();
        peer.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let half = |byte| Half::new(SUITE, secret(byte)).unwrap();
        match KernelRecords::install(&socket, SUITE, &secret(1), &secret(2), limits) {
            Ok(records) => Some(Self { records: records.unwrap(), socket, peer, sealing: half(2), opening: half(1) }),
            Err(reason) => {
                println!("SKIPPED: {reason}");
                None
            }
        }
    }

    fn seal(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        self.sealing.seal(&mut record, kind, |out| out.extend_from_slice(content)).unwrap();
        record
    }

    fn seal_and_write(&mut self, kind: u8, content: &[u8]) {
        let record = self.seal(kind, content);
        self.peer.write_all(&record).unwrap();
    }

    /// What comes next, into memory in two parts.
    fn receive(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; bytes_max];
        loop {
            let (first, second) = bytes.split_at_mut(bytes_max / 3);
            match self.records.receive(&self.socket, &mut [IoSliceMut::new(first), IoSliceMut::new(second)]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert!(!self.records.has_received());
                    poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], None).unwrap();
                }
                Err(error) => return Err(error),
                Ok(count) => {
                    bytes.truncate(count);
                    return Ok(bytes);
                }
            }
        }
    }

    /// The next record that the peer gets: its type and content.
    fn next(&mut self) -> (u8, Vec<u8>) {
        let mut header = [0; HEADER_BYTES];
        self.peer.read_exact(&mut header).unwrap();
        let mut body = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
        self.peer.read_exact(&mut body).unwrap();
        let inner = self.opening.open(header, &mut body).unwrap();
        let (kind, content) = inner.split_last().unwrap();
        (*kind, content.to_vec())
    }

    /// The fault that the end finds now. The peer gets its alert.
    fn fault(&mut self) -> RecordError {
        let error = self.receive(100).unwrap_err();
        let fault = *error.get_ref().unwrap().downcast_ref::<RecordError>().unwrap();
        assert_eq!(self.receive(100).unwrap_err().to_string(), error.to_string(), "it stays so");
        assert!(!self.records.has_received());
        if let Some(alert) = fault.alert() {
            assert_eq!(self.next(), (content::ALERT, vec![2, alert.0]));
        }
        fault
    }
}

const DEFAULT: Limits = Limits { key_blocks: 1 << 34 };
const NEW_SESSION_TICKET: u8 = 4;

#[test]
fn tickets_between_data_are_ignored_even_in_pieces() {
    let Some(mut world) = World::new(DEFAULT) else { return };
    assert!(world.records.has_received(), "what came before the keys, nobody tells of");
    let ticket = [[NEW_SESSION_TICKET, 0, 0, 200].as_slice(), &[9; 200]].concat();
    for (kind, content) in [
        (content::APPLICATION_DATA, &b"before"[..]),
        (content::HANDSHAKE, &ticket[..50]),
        (content::HANDSHAKE, &[&ticket[50..], &ticket[..]].concat()),
        (content::APPLICATION_DATA, b"between"),
        (content::HANDSHAKE, &[[NEW_SESSION_TICKET, 0, 0x10, 0].as_slice(), &[9; 4096]].concat()),
        (content::APPLICATION_DATA, b"behind"),
    ] {
        world.seal_and_write(kind, content);
    }
    let mut received = Vec::new();
    for memory in [3, 9, 10_000] {
        received.extend(world.receive(memory).unwrap());
    }
    assert_eq!(received, b"beforebetweenbehind");
}

#[test]
fn alerts_are_the_end_or_an_error_in_words() {
    let Some(mut world) = World::new(DEFAULT) else { return };
    world.seal_and_write(content::APPLICATION_DATA, b"last");
    world.seal_and_write(content::ALERT, &[1, 90]);
    world.seal_and_write(content::ALERT, &[1, 0]);
    assert_eq!(world.receive(100).unwrap(), b"last");
    assert_eq!((world.receive(100).unwrap(), world.receive(100).unwrap()), (vec![], vec![]));
    world.records.end(&world.socket);
    assert_eq!(world.next(), (content::ALERT, vec![1, 0]), "it is closed from both ends");

    let mut world = World::new(DEFAULT).unwrap();
    world.seal_and_write(content::ALERT, &[2, 20]);
    let error = world.receive(100).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    assert!(error.to_string().contains("bad_record_mac"), "{error}");

    for malformed in [&[1][..], &[1, 0, 0], &[]] {
        let mut world = World::new(DEFAULT).unwrap();
        world.seal_and_write(content::ALERT, malformed);
        assert_eq!(world.fault(), RecordError::Malformed { kind: content::ALERT });
    }
}

#[test]
fn a_peer_that_only_closes_has_ended_the_stream() {
    let Some(mut world) = World::new(DEFAULT) else { return };
    world.seal_and_write(content::APPLICATION_DATA, b"last");
    let record = world.seal(content::APPLICATION_DATA, b"never complete");
    world.peer.write_all(&record[..20]).unwrap();
    world.peer.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(world.receive(100).unwrap(), b"last");
    assert_eq!(world.receive(100).unwrap(), b"");
}

#[test]
fn what_does_not_belong_there_is_refused() {
    let Some(mut world) = World::new(DEFAULT) else { return };
    let mut record = world.seal(content::APPLICATION_DATA, b"data");
    record[7] ^= 1;
    world.peer.write_all(&record).unwrap();
    assert_eq!(world.fault(), RecordError::Decrypt);

    for (kind, content, expected) in [
        (24, &b"x"[..], RecordError::Record { kind: 24 }),
        (content::HANDSHAKE, &[1, 0, 0, 1, 0], RecordError::Message { kind: 1 }),
        (content::HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 2], RecordError::Malformed { kind: KEY_UPDATE }),
    ] {
        let mut world = World::new(DEFAULT).unwrap();
        world.seal_and_write(kind, content);
        assert_eq!(world.fault(), expected);
    }
    let mut world = World::new(DEFAULT).unwrap();
    world.seal_and_write(content::HANDSHAKE, &[NEW_SESSION_TICKET, 0, 0, 10, 5]);
    world.seal_and_write(content::APPLICATION_DATA, b"data");
    assert_eq!(world.fault(), RecordError::Interleaved);
    let mut world = World::new(DEFAULT).unwrap();
    for _ in 0..33 {
        world.seal_and_write(content::ALERT, &[1, 90]);
    }
    assert_eq!(world.fault(), RecordError::Flood { max: 32 });
}

/// Linux 6.14 and later can, and earlier ones end the connection.
#[test]
fn a_change_of_key_is_followed_or_the_connection_ends_and_says_why() {
    let Some(mut world) = World::new(DEFAULT) else { return };
    let can = kernel::can_change_keys(&world.socket, SUITE);
    world.seal_and_write(content::HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 1]);
    world.sealing.update().unwrap();
    world.seal_and_write(content::APPLICATION_DATA, b"with the new key");
    if !can {
        println!("this kernel cannot change keys");
        assert_eq!(world.fault(), RecordError::KeyIsFixed);
        return;
    }
    assert_eq!(world.receive(100).unwrap(), b"with the new key");
    for round in 0..2 {
        assert_eq!(world.records.send(&world.socket, &[IoSlice::new(b"answer")], false).unwrap(), 6);
        if round == 0 {
            assert_eq!(world.next(), (content::HANDSHAKE, vec![KEY_UPDATE, 0, 0, 1, 0]));
            world.opening.update().unwrap();
        }
        assert_eq!(world.next(), (content::APPLICATION_DATA, b"answer".to_vec()));
    }
}

#[test]
fn a_key_is_not_used_for_more_than_it_may_be() {
    // 160 bytes of data are a record of 182: 11 blocks and 2 more.
    let Some(mut world) = World::new(Limits { key_blocks: 26 }) else { return };
    let can = kernel::can_change_keys(&world.socket, SUITE);
    for at in 0..6 {
        let sent = world.records.send(&world.socket, &[IoSlice::new(&[1; 160])], false);
        if !can && at == 2 {
            let error = sent.unwrap_err();
            assert!(error.to_string().contains("Linux 6.14"), "{error}");
            assert_eq!(world.next(), (content::ALERT, vec![1, 0]), "and it is closed");
            return;
        }
        assert_eq!(sent.unwrap(), 160);
        if at > 0 && at % 2 == 0 {
            assert_eq!(world.next(), (content::HANDSHAKE, vec![KEY_UPDATE, 0, 0, 1, 0]));
            world.opening.update().unwrap();
        }
        assert_eq!(world.next(), (content::APPLICATION_DATA, vec![1; 160]));
    }
}
