//! What a peer may send and what not, record by record: one end is [`Records`], the other one seals
//! whatever the test wants.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};

use ebof_authentication::Hash;
use rustix::event::{PollFd, PollFlags, poll};

use super::*;

/// The end that is tested, and a peer.
struct World {
    records: Records,
    socket: TcpStream,
    peer: TcpStream,
    /// The peer's keys.
    sealing: Half,
    opening: Half,
}

const SUITE: Suite = Suite::Aes128GcmSha256;

fn secret(byte: u8) -> KeyMaterial {
    KeyMaterial::new(vec![byte; Hash::Sha256.bytes()])
}

fn half(byte: u8) -> Half {
    Half::new(SUITE, secret(byte)).unwrap()
}

impl World {
    fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    fn with_limits(limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().0;
        socket.set_nonblocking(true).unwrap();
        peer.set_nodelay(true).unwrap();
        peer.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let records = Records::new(SUITE, secret(1), secret(2), Vec::new(), limits).unwrap();
        Self { records, socket, peer, sealing: half(2), opening: half(1) }
    }

    fn seal(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        self.sealing.seal(&mut record, kind, |out| out.extend_from_slice(content)).unwrap();
        record
    }

    fn seal_and_write(&mut self, kind: u8, content: &[u8]) {
        let record = self.seal(kind, content);
        self.write(&record);
    }

    /// The peer writes bytes, which have arrived then.
    fn write(&mut self, bytes: &[u8]) {
        self.peer.write_all(bytes).unwrap();
        self.wait();
    }

    fn wait(&self) {
        poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], None).unwrap();
    }

    /// What comes next; for bytes that were written, which need not be there at once.
    fn receive(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        loop {
            match self.receive_now(bytes_max) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(),
                other => return other,
            }
        }
    }

    fn receive_now(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; bytes_max];
        let count = self.records.receive(&self.socket, &mut [IoSliceMut::new(&mut bytes)])?;
        bytes.truncate(count);
        Ok(bytes)
    }

    fn is_blocked(&mut self) -> bool {
        self.receive_now(10).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.records.send(&self.socket, &[IoSlice::new(bytes)], false)
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

    /// The fault that the end finds now, and the alert that the peer gets.
    fn fault(&mut self) -> (RecordError, Option<Alert>) {
        let error = self.receive(100).unwrap_err();
        let fault = *error.get_ref().unwrap().downcast_ref::<RecordError>().unwrap();
        // It stays so, and is told once by alert.
        assert_eq!(self.receive(100).unwrap_err().to_string(), error.to_string());
        assert!(!self.records.has_received());
        self.records.end(&self.socket);
        self.socket.shutdown(Shutdown::Write).unwrap();
        let alert = fault.alert().map(|_| {
            let (kind, content) = self.next();
            assert_eq!((kind, content.len(), content[0]), (content::ALERT, 2, 2));
            Alert(content[1])
        });
        if alert.is_none() && matches!(fault, RecordError::Alert(_)) {
            assert_eq!(self.next(), (content::ALERT, vec![1, 0]), "it is closed as usual");
        }
        assert_eq!(self.peer.read(&mut [0; 1]).unwrap(), 0, "nothing behind the alert");
        (fault, alert)
    }
}

#[test]
fn data_are_received_whatever_the_records_and_the_memory_are() {
    let content: Vec<u8> = (0..=255).cycle().take(40_000).collect();
    for record_bytes in [1, 100, 1023, 1024, 5000, PLAINTEXT_BYTES_MAX] {
        for memory_bytes in [1000, 1023, 1024, 1025, 16_384, 16_385, 50_000] {
            let mut world = World::new();
            let mut wire = Vec::new();
            for piece in content.chunks(record_bytes) {
                wire.extend(world.seal(content::APPLICATION_DATA, piece));
            }
            let mut peer = world.peer.try_clone().unwrap();
            let writer = std::thread::spawn(move || peer.write_all(&wire).unwrap());
            let mut received = Vec::new();
            while received.len() < content.len() {
                match world.receive_now(memory_bytes) {
                    Ok(bytes) => received.extend(bytes),
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                        assert!(!world.records.has_received());
                        world.wait();
                    }
                }
            }
            writer.join().unwrap();
            assert!(received == content, "records of {record_bytes} into {memory_bytes}");
        }
    }
}

#[test]
fn what_the_descriptor_does_not_tell_of_is_told() {
    let mut world = World::new();
    let mut wire = world.seal(content::APPLICATION_DATA, b"abcdef");
    wire.extend(world.seal(content::APPLICATION_DATA, b"gh"));
    let third = world.seal(content::APPLICATION_DATA, b"ij");
    wire.extend_from_slice(&third[..10]);
    world.write(&wire);
    assert!(!world.records.has_received());
    assert_eq!(world.receive(4).unwrap(), b"abcd");
    assert!(world.records.has_received(), "a half of a record");
    assert_eq!(world.receive(2).unwrap(), b"ef");
    assert!(world.records.has_received(), "a record");
    assert_eq!(world.receive(9).unwrap(), b"gh");
    assert!(!world.records.has_received(), "a part of a record is none");
    world.write(&third[10..]);
    assert_eq!(world.receive(1).unwrap(), b"i");
    assert!(world.records.has_received(), "a half of a record, and nothing behind it");
    assert_eq!(world.receive(9).unwrap(), b"j");
    assert!(!world.records.has_received());
    assert!(world.is_blocked());
}

#[test]
fn an_idle_connection_has_no_memory_for_bytes() {
    let mut world = World::new();
    world.seal_and_write(content::APPLICATION_DATA, &[7; 10_000]);
    let partial = world.seal(content::APPLICATION_DATA, &[8; 10_000]);
    assert_eq!(world.receive(20_000).unwrap(), [7; 10_000]);
    assert_eq!(world.records.receiver.capacity(), 0);
    world.write(&partial[..100]);
    assert!(world.is_blocked());
    assert_eq!(world.records.receiver.capacity(), 100);
    world.write(&partial[100..]);
    assert_eq!(world.receive(20_000).unwrap(), [8; 10_000]);
    assert_eq!(world.records.receiver.capacity(), 0);
    assert_eq!(world.send(&[9; 1000]).unwrap(), 1000);
    assert_eq!(world.records.sender.kept_capacity(), 0);
}

/// So that a peer that sends as much as it can, with little in it, does not keep others waiting.
#[test]
fn one_call_opens_a_bounded_number_of_records() {
    let mut world = World::new();
    let records: Vec<u8> = (0..600).flat_map(|_| world.seal(content::APPLICATION_DATA, &[7])).collect();
    world.write(&records);
    let mut got = 0;
    while got < 600 {
        let before = got;
        got += world.receive(4096).unwrap().len();
        assert!(got - before <= 256 && (got == 600 || world.records.has_received()), "{before} {got}");
    }
}

#[test]
fn a_peer_that_has_closed_is_told_nothing() {
    let mut world = World::new();
    world.records.end(&world.socket);
    assert_eq!(world.next(), (content::ALERT, vec![1, Alert::CLOSE_NOTIFY.0]));
    let mut world = World::new();
    world.peer.shutdown(Shutdown::Write).unwrap();
    world.wait();
    assert_eq!(world.receive(1).unwrap(), []);
    world.records.end(&world.socket);
    world.socket.shutdown(Shutdown::Write).unwrap();
    let mut told = Vec::new();
    world.peer.read_to_end(&mut told).unwrap();
    assert_eq!(told, []);
}

#[test]
fn padding_is_stripped() {
    let mut world = World::new();
    let mut record = Vec::new();
    // The type is behind the data, and zeros behind the type.
    let inner = [b"data".as_slice(), &[content::APPLICATION_DATA, 0, 0, 0, 0]].concat();
    world.sealing.seal(&mut record, 0, |out| out.extend_from_slice(&inner)).unwrap();
    let inner = [[5; 2000].as_slice(), &[content::APPLICATION_DATA], &[0; 3000]].concat();
    world.sealing.seal(&mut record, 0, |out| out.extend_from_slice(&inner)).unwrap();
    world.write(&record);
    assert_eq!(world.receive(10_000).unwrap(), [b"data".as_slice(), &[5; 2000]].concat());
}

#[test]
fn a_record_with_nothing_in_it_is_refused() {
    for zeros in [0, 10, 5000] {
        let mut world = World::new();
        world.seal_and_write(0, &vec![0; zeros]);
        assert_eq!(world.fault(), (RecordError::NoType, Some(Alert::UNEXPECTED_MESSAGE)));
    }
}

#[test]
fn records_that_are_too_long_are_refused() {
    // The longest that there may be.
    let mut world = World::new();
    world.seal_and_write(content::APPLICATION_DATA, &[1; PLAINTEXT_BYTES_MAX]);
    assert_eq!(world.receive(20_000).unwrap().len(), PLAINTEXT_BYTES_MAX);
    // One byte of data more, which fits into the longest ciphertext.
    for memory in [100, 20_000] {
        let mut world = World::new();
        world.seal_and_write(content::APPLICATION_DATA, &[1; PLAINTEXT_BYTES_MAX + 1]);
        let error = world.receive(memory).unwrap_err();
        assert!(error.to_string().contains("16385 bytes"), "{error}");
    }
    // A header of one that is never read.
    let mut world = World::new();
    let [high, low] = u16::try_from(CIPHERTEXT_BYTES_MAX + 1).unwrap().to_be_bytes();
    world.write(&[content::APPLICATION_DATA, 3, 3, high, low]);
    let bytes = CIPHERTEXT_BYTES_MAX + 1;
    assert_eq!(world.fault(), (RecordError::TooLong { bytes }, Some(Alert::RECORD_OVERFLOW)));
}

#[test]
fn a_changed_byte_is_detected_wherever_it_is() {
    for bytes in [3, 3000] {
        for at in [0, 3, 4, 5, 7, HEADER_BYTES + bytes, HEADER_BYTES + bytes + TAG_BYTES] {
            let mut world = World::new();
            let mut record = world.seal(content::APPLICATION_DATA, &vec![1; bytes]);
            record[at] ^= 1;
            if at == 3 || at == 4 {
                // Another length: enough bytes for it.
                record.extend([0; 300]);
            }
            world.write(&record);
            let (fault, alert) = world.fault();
            match at {
                0 => assert_eq!(fault, RecordError::Record { kind: 22 }),
                _ => assert_eq!((fault, alert), (RecordError::Decrypt, Some(Alert::BAD_RECORD_MAC)), "{at}"),
            }
        }
    }
}

#[test]
fn a_record_that_is_repeated_or_left_out_is_detected() {
    for order in [[0, 0], [1, 0]] {
        let mut world = World::new();
        let records = [b"one", b"two"].map(|text| world.seal(content::APPLICATION_DATA, text));
        for at in order {
            world.write(&records[at]);
        }
        if order[0] == 0 {
            assert_eq!(world.receive(10).unwrap(), b"one");
        }
        assert_eq!(world.fault().0, RecordError::Decrypt);
    }
}

#[test]
fn what_came_before_a_fault_is_given_out_first() {
    let mut world = World::new();
    let mut wire = world.seal(content::APPLICATION_DATA, b"good");
    wire.extend([0; 100]);
    world.write(&wire);
    assert_eq!(world.receive(100).unwrap(), b"good");
    assert!(world.records.has_received());
    assert_eq!(world.fault().0, RecordError::Record { kind: 0 });
}

#[test]
fn only_data_alerts_and_two_messages_belong_behind_a_handshake() {
    for kind in [content::HANDSHAKE, content::ALERT, 20, 24, 0, 255] {
        let mut world = World::new();
        world.write(&[kind, 3, 3, 0, 2, 1, 0]);
        assert_eq!(world.fault(), (RecordError::Record { kind }, Some(Alert::UNEXPECTED_MESSAGE)), "in the clear");
    }
    for kind in [1, 20, 24, 99] {
        let mut world = World::new();
        world.seal_and_write(kind, &[1]);
        assert_eq!(world.fault(), (RecordError::Record { kind }, Some(Alert::UNEXPECTED_MESSAGE)));
    }
    for kind in [0, 1, 2, 5, 8, 11, 13, 20] {
        let mut world = World::new();
        world.seal_and_write(content::HANDSHAKE, &[kind, 0, 0, 1, 0]);
        assert_eq!(world.fault(), (RecordError::Message { kind }, Some(Alert::UNEXPECTED_MESSAGE)));
    }
    let mut world = World::new();
    world.seal_and_write(content::HANDSHAKE, &[]);
    assert_eq!(world.fault().0, RecordError::Message { kind: 0 });
}

#[test]
fn tickets_are_ignored_even_in_pieces() {
    let mut world = World::new();
    let ticket = [[NEW_SESSION_TICKET, 0, 0, 200].as_slice(), &[9; 200]].concat();
    world.seal_and_write(content::HANDSHAKE, &[&ticket[..], &ticket[..50]].concat());
    assert!(world.is_blocked());
    world.seal_and_write(content::HANDSHAKE, &ticket[50..]);
    world.seal_and_write(content::APPLICATION_DATA, b"data");
    assert_eq!(world.receive(10).unwrap(), b"data");
    // A large one, which is decrypted where data would be.
    world.seal_and_write(content::HANDSHAKE, &[[NEW_SESSION_TICKET, 0, 0x10, 0].as_slice(), &[9; 4096]].concat());
    world.seal_and_write(content::APPLICATION_DATA, b"data");
    assert_eq!(world.receive(10_000).unwrap(), b"data");
}

const NEW_SESSION_TICKET: u8 = 4;

#[test]
fn messages_have_a_maximum_and_are_not_interleaved() {
    let mut world = World::new();
    world.seal_and_write(content::HANDSHAKE, &[NEW_SESSION_TICKET, 1, 0, 0, 5]);
    let malformed = RecordError::Malformed { kind: NEW_SESSION_TICKET };
    assert_eq!(world.fault(), (malformed, Some(Alert::DECODE_ERROR)));

    let mut world = World::new();
    world.seal_and_write(content::HANDSHAKE, &[NEW_SESSION_TICKET, 0, 0, 10, 5]);
    world.seal_and_write(content::APPLICATION_DATA, b"data");
    assert_eq!(world.fault(), (RecordError::Interleaved, Some(Alert::UNEXPECTED_MESSAGE)));
}

#[test]
fn records_without_data_have_a_maximum_in_a_row() {
    let key_update = [KEY_UPDATE, 0, 0, 1, 1];
    let kinds: [(u8, &[u8]); 3] =
        [(content::APPLICATION_DATA, &[]), (content::HANDSHAKE, &key_update), (content::ALERT, &[1, 90])];
    for (kind, content) in kinds {
        let mut world = World::new();
        let send = |world: &mut World, count| {
            for _ in 0..count {
                world.seal_and_write(kind, content);
                if kind == content::HANDSHAKE {
                    world.sealing.update().unwrap();
                }
            }
        };
        send(&mut world, 32);
        world.seal_and_write(content::APPLICATION_DATA, b"data");
        assert_eq!(world.receive(4).unwrap(), b"data");
        send(&mut world, 33);
        let error = world.receive(10).unwrap_err();
        assert!(error.to_string().contains("more than 32"), "{error}");
    }
}

#[test]
fn a_change_of_key_is_followed_and_answered_before_the_next_data() {
    for requested in [0, 1] {
        let mut world = World::new();
        world.seal_and_write(content::HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, requested]);
        world.sealing.update().unwrap();
        world.seal_and_write(content::APPLICATION_DATA, b"with the new key");
        assert_eq!(world.receive(100).unwrap(), b"with the new key");
        assert_eq!(world.send(b"answer").unwrap(), 6);
        if requested == 1 {
            assert_eq!(world.next(), (content::HANDSHAKE, vec![KEY_UPDATE, 0, 0, 1, 0]));
            world.opening.update().unwrap();
        }
        assert_eq!(world.next(), (content::APPLICATION_DATA, b"answer".to_vec()));
        // Once.
        assert_eq!(world.send(b"again").unwrap(), 5);
        assert_eq!(world.next(), (content::APPLICATION_DATA, b"again".to_vec()));
    }
}

#[test]
fn a_key_update_that_is_malformed_is_refused() {
    let wrong: [&[u8]; 5] = [
        &[KEY_UPDATE, 0, 0, 1, 2],
        &[KEY_UPDATE, 0, 0, 0],
        &[KEY_UPDATE, 0, 0, 2, 0, 0],
        // What is behind it would have the old key.
        &[KEY_UPDATE, 0, 0, 1, 0, 4],
        &[KEY_UPDATE, 0, 0, 1, 0, KEY_UPDATE, 0, 0, 1, 0],
    ];
    for content in wrong {
        let mut world = World::new();
        world.seal_and_write(content::HANDSHAKE, content);
        let fault = RecordError::Malformed { kind: KEY_UPDATE };
        assert_eq!(world.fault(), (fault, Some(Alert::DECODE_ERROR)), "{content:?}");
    }
}

#[test]
fn an_own_key_is_changed_after_its_blocks() {
    // 160 bytes of data are a record of 182: 11 blocks and 2 more.
    let mut world = World::with_limits(Limits { key_blocks: 26 });
    for round in 0..4 {
        for _ in 0..2 {
            assert_eq!(world.send(&[1; 160]).unwrap(), 160);
        }
        if round > 0 {
            assert_eq!(world.next(), (content::HANDSHAKE, vec![KEY_UPDATE, 0, 0, 1, 0]));
            world.opening.update().unwrap();
        }
        for _ in 0..2 {
            assert_eq!(world.next(), (content::APPLICATION_DATA, vec![1; 160]));
        }
    }
}

#[test]
fn alerts_are_the_end_or_an_error_in_words() {
    let mut world = World::new();
    let wire = [(content::APPLICATION_DATA, &b"last"[..]), (content::ALERT, &[1, 0])];
    let wire = wire.map(|(kind, content)| world.seal(kind, content)).concat();
    world.write(&wire);
    assert_eq!(world.receive(100).unwrap(), b"last");
    assert!(world.records.has_received(), "the end, which was taken from the socket");
    assert_eq!(world.receive(100).unwrap(), b"");
    assert!(!world.records.has_received());

    let mut world = World::new();
    world.seal_and_write(content::ALERT, &[2, 20]);
    let error = world.receive(100).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    assert!(error.to_string().contains("bad_record_mac"), "{error}");
    assert_eq!(world.fault().0, RecordError::Alert(Alert::BAD_RECORD_MAC));

    for malformed in [&[1][..], &[1, 0, 0], &[]] {
        let mut world = World::new();
        world.seal_and_write(content::ALERT, malformed);
        assert_eq!(world.fault().0, RecordError::Malformed { kind: content::ALERT });
    }
}

#[test]
fn a_peer_that_only_closes_has_ended_the_stream() {
    for partial in [0, 3, 20] {
        let mut world = World::new();
        world.seal_and_write(content::APPLICATION_DATA, b"last");
        let record = world.seal(content::APPLICATION_DATA, b"never complete");
        world.peer.write_all(&record[..partial]).unwrap();
        world.peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(world.receive(100).unwrap(), b"last");
        assert_eq!(world.receive(100).unwrap(), b"");
    }
}

#[test]
fn sequence_numbers_do_not_wrap() {
    let mut half = half(1);
    half.exhaust();
    let mut out = Vec::new();
    assert_eq!(half.seal(&mut out, content::APPLICATION_DATA, |_| {}), Err(RecordError::Exhausted));
    let header = [content::APPLICATION_DATA, 3, 3, 0, 17];
    assert_eq!(half.open(header, &mut [0; 17]).map(|_| ()), Err(RecordError::Exhausted));
    half.update().unwrap();
    half.seal(&mut out, content::APPLICATION_DATA, |_| {}).unwrap();
}

#[test]
fn parts_are_gathered_into_records_and_sent_at_once() {
    let mut world = World::new();
    let large = vec![3; PLAINTEXT_BYTES_MAX];
    let parts = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(&large), IoSlice::new(b"c")];
    let all = 2 + large.len() + 1;
    assert_eq!(world.records.send(&world.socket, &parts, false).unwrap(), all);
    let (kind, first) = world.next();
    assert_eq!((kind, first.len(), &first[..3]), (content::APPLICATION_DATA, PLAINTEXT_BYTES_MAX, &b"ab\x03"[..]));
    assert_eq!(world.next(), (content::APPLICATION_DATA, b"\x03\x03c".to_vec()));
    // Nothing at all is no record.
    assert_eq!(world.send(b"").unwrap(), 0);
    assert_eq!(world.send(b"x").unwrap(), 1);
    assert_eq!(world.next(), (content::APPLICATION_DATA, b"x".to_vec()));
}

/// The types of all records that are complete, and whether there is a part of another one behind.
fn opened(world: &mut World, wire: &mut [u8]) -> (Vec<u8>, bool) {
    let mut kinds = Vec::new();
    let mut at = 0;
    while let Some(header) = wire[at..].first_chunk::<HEADER_BYTES>().copied() {
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        let Some(body) = wire.get_mut(at + HEADER_BYTES..at + HEADER_BYTES + length) else { break };
        kinds.push(*world.opening.open(header, body).unwrap().last().unwrap());
        at += HEADER_BYTES + length;
    }
    (kinds, at < wire.len())
}

#[test]
fn an_end_does_not_wait_and_is_behind_what_was_kept() {
    for has_room in [false, true] {
        let mut world = World::new();
        let data = vec![1; 1 << 20];
        while world.send(&data).is_ok() {}
        let mut wire = Vec::new();
        if has_room {
            // All that is on its way, and then what was kept has room.
            let mut bytes = vec![0; 1 << 20];
            world.peer.set_nonblocking(true).unwrap();
            while rustix::event::poll(
                &mut [PollFd::new(&world.socket, PollFlags::OUT)],
                Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }),
            )
            .unwrap()
                == 0
                || world.peer.peek(&mut bytes).is_ok()
            {
                if let Ok(count) = world.peer.read(&mut bytes) {
                    wire.extend_from_slice(&bytes[..count]);
                }
            }
            world.peer.set_nonblocking(false).unwrap();
        }
        world.records.end(&world.socket);
        world.socket.shutdown(Shutdown::Write).unwrap();
        world.peer.read_to_end(&mut wire).unwrap();
        let (kinds, is_cut) = opened(&mut world, &mut wire);
        assert!(kinds.len() > 10);
        assert_eq!((kinds.last() == Some(&content::ALERT), is_cut), (has_room, !has_room));
    }
}
