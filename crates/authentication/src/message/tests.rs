//! Layouts of the specification, and bytes that break them.

use alloc::vec;

use proptest::prelude::*;

use super::*;

fn negotiate() -> Negotiate {
    Negotiate {
        t_id: 0x1122,
        secure_channel: SecureChannel::None,
        hashes: Hash::ALL.to_vec(),
        groups: Group::ALL.to_vec(),
    }
}

#[test]
fn negotiate_has_the_layout_of_the_specification() {
    let mut expected = vec![0, 0, 0, 0, 0x22, 0x11, 0, 1, 1, 0, 3, 6];
    let mut list = vec![1, 2, 3];
    list.resize(30, 0);
    expected.extend(list);
    let mut list = vec![0, 1, 2, 3, 4, 5];
    list.resize(30, 0);
    expected.extend(list);
    assert_eq!(expected.len(), 72);
    assert_eq!(negotiate().encode(), expected);
    assert_eq!(FromHost::decode(&expected), Ok(FromHost::Negotiate(negotiate())));
}

#[test]
fn a_descriptor_of_another_protocol_is_skipped() {
    let ours = negotiate().encode();
    let mut other = [0; 64];
    other[0] = 2;
    let mut message = ours[..8].to_vec();
    message[7] = 2;
    message.extend(other);
    message.extend_from_slice(&ours[8..]);
    assert_eq!(FromHost::decode(&message), Ok(FromHost::Negotiate(negotiate())));
    message[7] = 1;
    assert_eq!(FromHost::decode(&message), Err(Explanation::ProtocolNotUsable));
    message[7] = 0;
    assert_eq!(FromHost::decode(&message), Err(Explanation::ProtocolNotUsable));
    message[7] = 3;
    message[8 + 64] = 2;
    assert_eq!(FromHost::decode(&message), Err(Explanation::IncorrectPayload));
}

#[test]
fn what_is_unknown_in_the_lists_is_left_out() {
    let mut message = negotiate().encode();
    message[12] = 9;
    message[42 + 1] = 7;
    let Ok(FromHost::Negotiate(read)) = FromHost::decode(&message) else { panic!("no Negotiate") };
    assert_eq!(read.hashes, [Hash::Sha384, Hash::Sha512]);
    assert_eq!(read.groups[..2], [Group::Null, Group::Ffdhe3072]);
    for at in [10, 11] {
        let mut message = negotiate().encode();
        message[at] = 31;
        assert_eq!(FromHost::decode(&message), Err(Explanation::IncorrectPayload));
    }
}

#[test]
fn a_challenge_has_the_layout_of_the_specification() {
    let challenge = Challenge {
        t_id: 7,
        hash: Hash::Sha384,
        group: Group::Ffdhe2048,
        sequence: 0x0102_0304,
        challenge: vec![0xc1; 48],
        value: vec![0xd0; 256],
    };
    let message = challenge.encode();
    assert_eq!(message[..16], [1, 1, 0, 0, 7, 0, 48, 0, 2, 1, 0, 1, 4, 3, 2, 1]);
    assert_eq!(message[16..64], [0xc1; 48]);
    assert_eq!(message[64..], [0xd0; 256]);
    assert_eq!(FromController::decode(&message), Ok(FromController::Challenge(challenge)));
    for (at, value, explanation) in [
        (6, 32, Explanation::IncorrectPayload),
        (8, 4, Explanation::HashNotUsable),
        (9, 6, Explanation::GroupNotUsable),
        (10, 4, Explanation::IncorrectPayload),
        (1, 9, Explanation::IncorrectProtocolMessage),
    ] {
        let mut wrong = message.clone();
        wrong[at] = value;
        assert_eq!(FromController::decode(&wrong), Err(explanation), "byte {at}");
    }
}

#[test]
fn a_reply_has_the_layout_of_the_specification() {
    let mut reply = ReplyMessage {
        t_id: 7,
        sequence: 0x0102_0304,
        response: vec![0xaa; 32],
        challenge: Some(vec![0xc2; 32]),
        value: vec![5; 256],
    };
    let message = reply.encode();
    assert_eq!(message[..16], [1, 2, 0, 0, 7, 0, 32, 0, 1, 0, 0, 1, 4, 3, 2, 1]);
    assert_eq!((&message[16..48], &message[48..80], &message[80..]), (&[0xaa; 32][..], &[0xc2; 32][..], &[5; 256][..]));
    assert_eq!(FromHost::decode(&message), Ok(FromHost::Reply(reply.clone())));
    reply.challenge = None;
    let message = reply.encode();
    assert_eq!((message[8], &message[48..80]), (0, &[0; 32][..]));
    assert_eq!(FromHost::decode(&message), Ok(FromHost::Reply(reply)));
}

#[test]
fn both_successes_have_the_layout_of_the_specification() {
    let mut success = Success1 { t_id: 0x0201, hash: Hash::Sha256, response: Some(vec![0xbb; 32]) };
    let message = success.encode();
    assert_eq!(message[..16], [1, 3, 0, 0, 1, 2, 32, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(message[16..], [0xbb; 32]);
    assert_eq!(FromController::decode(&message), Ok(FromController::Success1(success.clone())));
    success.response = None;
    // Its length is there all the same: Linux looks at it.
    assert_eq!(success.encode(), [1, 3, 0, 0, 1, 2, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(success2(0x0201), [1, 4, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(FromHost::decode(&success2(3)), Ok(FromHost::Success2 { t_id: 3 }));
}

#[test]
fn both_failures_have_the_layout_of_the_specification() {
    for explanation in Explanation::ALL {
        let message = failure1(0x0304, explanation);
        assert_eq!(message, [0, 0xf1, 0, 0, 4, 3, 1, explanation as u8]);
        let read = FromController::decode(&message);
        assert_eq!(read, Ok(FromController::Failure1 { t_id: 0x0304, explanation: Some(explanation) }));
        let message = failure2(0x0304, explanation);
        assert_eq!(message, [0, 0xf0, 0, 0, 4, 3, 1, explanation as u8]);
        let read = FromHost::decode(&message);
        assert_eq!(read, Ok(FromHost::Failure2 { t_id: 0x0304, explanation: Some(explanation) }));
    }
    let unknown = FromHost::decode(&[0, 0xf0, 0, 0, 4, 3, 1, 99]);
    assert_eq!(unknown, Ok(FromHost::Failure2 { t_id: 0x0304, explanation: None }));
}

/// Every legal message of both directions.
fn messages() -> [Vec<u8>; 7] {
    let (hash, group) = (Hash::Sha512, Group::Ffdhe8192);
    let value = vec![4; group.value_bytes()];
    [
        negotiate().encode(),
        ReplyMessage {
            t_id: 1,
            sequence: 2,
            response: vec![3; 64],
            challenge: Some(vec![4; 64]),
            value: value.clone(),
        }
        .encode(),
        success2(1),
        failure2(1, Explanation::AuthenticationFailed),
        Challenge { t_id: 1, hash, group, sequence: 2, challenge: vec![3; 64], value }.encode(),
        Success1 { t_id: 1, hash, response: Some(vec![1; 64]) }.encode(),
        failure1(1, Explanation::AuthenticationFailed),
    ]
}

#[test]
fn a_message_that_is_cut_anywhere_is_refused() {
    for (index, message) in messages().iter().enumerate() {
        assert!(message.len() <= BYTES_MAX);
        let (whole, rest): (fn(&[u8]) -> bool, _) = if index < 4 {
            (|message| FromHost::decode(message).is_ok(), message.len())
        } else {
            (|message| FromController::decode(message).is_ok(), message.len())
        };
        assert!(whole(message));
        // Of Success2 only the identifier counts.
        let least = if index == 2 { 6 } else { rest };
        for length in 0..least {
            assert!(!whole(&message[..length]), "message {index}, {length} of {rest} bytes");
        }
        // Controllers fill the host's buffer.
        let mut filled = message.clone();
        filled.resize(4096, 0);
        assert!(whole(&filled));
    }
}

proptest! {
    #[test]
    fn no_message_causes_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..7, change in any::<(u16, u8)>()) {
        let _ = FromHost::decode(&bytes);
        let _ = FromController::decode(&bytes);
        let mut message = messages()[at].clone();
        let place = usize::from(change.0) % message.len();
        message[place] = change.1;
        let _ = FromHost::decode(&message);
        let _ = FromController::decode(&message);
    }
}
