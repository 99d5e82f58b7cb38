//! Data in both directions: what is sent is what is received, however it is cut, and however little
//! room there is.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;

use ebof_authentication::Hash;
use ebof_sockets::Stream;
use ebof_tls::{ClientHandshake, Limits, RecordsBy, ServerHandshake};
use rustix::event::PollFlags;

use crate::support::{self, End, drive, is_blocked, narrow_pair, pair, psk, streams, streams_by, wait};

/// Numbers that look random (xorshift), the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    /// Mostly small, sometimes large.
    fn length(&mut self) -> usize {
        match self.below(10) {
            0 => 0,
            1..=3 => self.below(100),
            4..=6 => self.below(20_000),
            7 | 8 => self.below(200_000),
            _ => self.below(700_000),
        }
    }
}

/// The byte at an offset of the stream. Two streams are different, and no shift of one is the same.
fn byte(stream: u8, offset: usize) -> u8 {
    let mixed = (offset as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    u8::try_from(mixed).unwrap() ^ stream
}

/// One direction: what was sent and received of it.
struct Direction {
    content: Vec<u8>,
    stream: u8,
    sent: usize,
    received: usize,
}

impl Direction {
    fn new(stream: u8, bytes: usize) -> Self {
        // A period that is no multiple of anything else here.
        let content = (0..bytes).map(|offset| byte(stream, offset)).collect();
        Self { content, stream, sent: 0, received: 0 }
    }

    /// Sends some bytes in some parts. Whether the socket had room.
    fn send(&mut self, stream: &mut Stream, random: &mut Random) -> bool {
        let mut rest = &self.content[self.sent..];
        let mut parts = Vec::new();
        for _ in 0..=random.below(5) {
            let part = rest.split_off(..random.length().min(rest.len())).unwrap();
            parts.push(IoSlice::new(part));
        }
        let offered: usize = parts.iter().map(|part| part.len()).sum();
        let sent = stream.send(&parts, random.below(2) == 0);
        if is_blocked(&sent) {
            return false;
        }
        let sent = sent.unwrap();
        assert!(sent <= offered && (sent > 0 || offered == 0), "{sent} of {offered}");
        self.sent += sent;
        true
    }

    /// Receives some bytes into some parts. Whether there were any.
    fn receive(&mut self, stream: &mut Stream, random: &mut Random) -> bool {
        let mut buffers: Vec<Vec<u8>> = (0..=random.below(5)).map(|_| vec![0xee; random.length()]).collect();
        let capacity: usize = buffers.iter().map(Vec::len).sum();
        let mut parts: Vec<IoSliceMut<'_>> = buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
        let received = stream.receive_parts(&mut parts);
        if is_blocked(&received) {
            assert!(!stream.has_received(), "it could have been given out");
            return false;
        }
        let received = received.unwrap();
        assert!(received <= capacity && (received > 0 || capacity == 0), "{received} of {capacity}");
        let bytes = buffers.concat();
        let expected = &self.content[self.received..self.received + received];
        assert!(bytes[..received] == *expected, "stream {} at {}", self.stream, self.received);
        self.received += received;
        true
    }

    fn is_done(&self) -> bool {
        self.received == self.content.len()
    }

    /// All that was received is told to have been sent, too.
    fn is_told(&self) -> bool {
        self.sent == self.content.len()
    }
}

/// `bytes` in each direction at the same time, in one thread.
pub(crate) fn transfer(mut ends: [Stream; 2], bytes: usize, seed: u64) -> [Stream; 2] {
    let mut random = Random(seed);
    let mut directions = [Direction::new(1, bytes), Direction::new(2, bytes)];
    while !directions.iter().all(|direction| direction.is_done() && direction.is_told()) {
        let mut has_moved = false;
        for (at, direction) in directions.iter_mut().enumerate() {
            if !direction.is_told() {
                has_moved |= direction.send(&mut ends[at], &mut random);
            }
            if !direction.is_done() {
                has_moved |= direction.receive(&mut ends[1 - at], &mut random);
            }
        }
        if !has_moved {
            let flags = PollFlags::IN | PollFlags::OUT;
            wait(&[(ends[0].descriptor().unwrap(), flags), (ends[1].descriptor().unwrap(), flags)]);
        }
    }
    ends
}

pub(crate) const MIB: usize = 1 << 20;

#[test]
fn large_transfers_in_parts_of_all_sizes_arrive_as_they_were_sent() {
    transfer(streams(pair(), Hash::Sha256), 64 * MIB, 1);
    transfer(streams(pair(), Hash::Sha384), 16 * MIB, 2);
}

#[test]
fn where_there_is_little_room_nothing_is_lost_or_sent_twice() {
    transfer(streams(narrow_pair(), Hash::Sha256), 64 * MIB, 3);
    transfer(streams(narrow_pair(), Hash::Sha384), 16 * MIB, 4);
}

#[test]
fn keys_are_changed_again_and_again_in_both_directions() {
    for (hash, ends) in [(Hash::Sha256, pair()), (Hash::Sha384, narrow_pair())] {
        let (client, server) = ends;
        // A key for about one record of 16 KiB, and another for about four.
        let limits = |key_blocks| Limits { key_blocks };
        let mut find = |_: &str| vec![psk(hash, 7)];
        let outcomes = drive([
            End::Client(ClientHandshake::with_limits(client, psk(hash, 7), limits(1000))),
            End::Server(ServerHandshake::with_limits(server, limits(5000)), &mut find),
        ]);
        transfer(outcomes.map(|outcome| outcome.unwrap().stream), 8 * MIB, 5);
    }
}

#[test]
fn what_was_not_taken_may_be_offered_in_smaller_pieces() {
    let [mut sender, mut receiver] = streams(narrow_pair(), Hash::Sha256);
    let content: Vec<u8> = (0..4 * MIB).map(|offset| byte(1, offset)).collect();
    let mut sent = 0;
    let mut received = 0;
    let mut buffer = vec![0; 100_000];
    while received < content.len() {
        // All that is left, until the socket is full; then one small piece after the other.
        while sent < content.len() {
            match sender.send(&[IoSlice::new(&content[sent..])], false) {
                Ok(more) => sent += more,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        for piece in [1, 7, 100, 5000] {
            let end = content.len().min(sent + piece);
            match sender.send(&[IoSlice::new(&content[sent..end])], true) {
                Ok(more) => {
                    assert!(more <= end - sent);
                    sent += more;
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        match receiver.receive(&mut buffer) {
            Ok(more) => {
                assert!(buffer[..more] == content[received..received + more], "at {received}");
                received += more;
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                wait(&[(receiver.descriptor().unwrap(), PollFlags::IN)]);
            }
        }
    }
    assert_eq!(sent, content.len());
}

#[test]
fn an_end_is_seen_after_all_that_was_sent_before() {
    for how in [Shutdown::Write, Shutdown::Both] {
        let [mut sender, mut receiver] = streams(pair(), Hash::Sha384);
        support::send(&mut sender, &[5; 100_000]);
        sender.shutdown(how);
        assert_eq!(support::receive(&mut receiver, 200_000), [5; 100_000]);
        assert_eq!(receiver.receive(&mut [0; 10]).unwrap(), 0);
        assert_eq!(receiver.receive(&mut [0; 10]).unwrap(), 0);
        assert!(!receiver.has_received());
        let refused = sender.send(&[IoSlice::new(b"late")], false).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotConnected);
    }
}

#[test]
fn one_direction_goes_on_when_the_other_has_ended() {
    let [mut host, mut target] = streams(pair(), Hash::Sha256);
    host.shutdown(Shutdown::Write);
    assert_eq!(support::receive(&mut target, 1), b"");
    support::send(&mut target, b"a last word");
    assert_eq!(support::receive(&mut host, 11), b"a last word");
}

#[test]
fn nothing_of_the_data_is_on_the_wire() {
    check_wire([RecordsBy::Own; 2]);
}

/// Sends a text in both directions. It is not on the wire in between.
pub(crate) fn check_wire(by: [RecordsBy; 2]) {
    let ((client, near), (far, server)) = (pair(), pair());
    let text = b"attack at dawn, attack at dawn";
    let wire = std::thread::spawn(move || {
        let mut wire = Vec::new();
        let mut sockets = [near, far];
        let mut bytes = [0; 4096];
        let mut open = 2;
        while open > 0 {
            open = 0;
            for at in [0, 1] {
                use io::{Read as _, Write as _};
                match sockets[at].read(&mut bytes) {
                    Ok(0) => continue,
                    Ok(count) => {
                        wire.extend_from_slice(&bytes[..count]);
                        let _ = sockets[1 - at].write_all(&bytes[..count]);
                    }
                    Err(_) => {}
                }
                open += 1;
            }
        }
        wire
    });
    let [mut host, mut target] = streams_by((client, server), Hash::Sha256, by);
    support::send(&mut host, text);
    assert_eq!(support::receive(&mut target, text.len()), text);
    // Whoever wants to send past the stream has no leave.
    assert!(target.wire().is_none());
    assert_eq!(target.send_pinned(&[IoSlice::new(text)], false).unwrap(), None);
    support::send(&mut target, text);
    assert_eq!(support::receive(&mut host, text.len()), text);
    drop((host, target));
    let wire = wire.join().unwrap();
    assert!(wire.len() > 500 && !wire.windows(6).any(|window| window == b"attack"));
    assert!(wire.windows(8).any(|window| window == b"NVMe1R01"), "identities are in the clear, as TLS has them");
}
