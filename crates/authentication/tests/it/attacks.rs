//! Ends that lie, repeat, reflect and stop in the middle.

use ebof_authentication::controller::{Nothing, TransactionOutcome};
use ebof_authentication::host::{self, Offer, Refusal};
use ebof_authentication::message::{self, FromController, FromHost, Negotiate, ReplyMessage, SecureChannel};
use ebof_authentication::{ControllerEnd, Explanation, Group, Hash, HostEnd};

use crate::conversation::{Setting, entropy, send, settled, transact};

/// The messages of a transaction without a mistake: Negotiate, Challenge, Reply, Success1,
/// Success2.
fn recorded(setting: &Setting) -> Vec<Vec<u8>> {
    let (mut host, mut controller) = setting.ends();
    let mut messages = Vec::new();
    transact((&mut host, &mut controller), 7, [1, 2], |_, message| messages.push(message.clone())).host.unwrap();
    messages
}

/// The AUTH_Failure1 that the controller has for the host.
fn failure(controller: &mut ControllerEnd) -> Explanation {
    let (message, outcome) = controller.transmit(4096).unwrap();
    let Some(TransactionOutcome::Refused(explanation)) = outcome else { panic!("{outcome:?}") };
    let Ok(FromController::Failure1 { explanation: Some(told), .. }) = FromController::decode(&message) else {
        panic!("{message:?}")
    };
    assert_eq!(told, explanation);
    explanation
}

/// A controller that waits for a Reply, and its challenge.
fn challenged(setting: &Setting, seed: u8) -> (ControllerEnd, message::Challenge) {
    let (_, mut controller) = setting.ends();
    let Offer { hashes, groups, secure_channel } = setting.offer.clone();
    let negotiate = Negotiate { t_id: 7, secure_channel, hashes, groups }.encode();
    assert_eq!(send(&mut controller, &negotiate, &entropy(seed)), None);
    let (message, outcome) = controller.transmit(4096).unwrap();
    assert_eq!(outcome, None);
    let Ok(FromController::Challenge(challenge)) = FromController::decode(&message) else { panic!("{message:?}") };
    (controller, challenge)
}

#[test]
fn a_transaction_that_was_recorded_is_not_good_again() {
    let setting = Setting::mutual();
    let messages = recorded(&setting);
    // Another challenge.
    let (mut controller, _) = challenged(&setting, 3);
    assert_eq!(send(&mut controller, &messages[2], &entropy(3)), None);
    assert_eq!(failure(&mut controller), Explanation::AuthenticationFailed);
    // And a host that is asked with the same one refuses it.
    let (mut host, mut controller) = setting.ends();
    transact((&mut host, &mut controller), 7, [1, 2], |_, _| {}).host.unwrap();
    let host::Next::Exchange(_) = host.begin(7, entropy(4)) else { panic!("no message") };
    let next = host.receive(&messages[1]);
    let host::Next::Over { message: Some(_), result } = next else { panic!("{next:?}") };
    assert_eq!(result, Err(Refusal::RepeatedChallenge));
}

/// Who does not know the subsystem's secret sends our own challenge back, to have us answer it.
#[test]
fn our_own_challenge_is_refused() {
    for group in [Group::Null, Group::Ffdhe2048] {
        let mut setting = Setting::mutual();
        setting.offer.groups = vec![group];
        let (mut host, mut controller) = setting.ends();
        let mut ours = Vec::new();
        let ended = transact((&mut host, &mut controller), 7, [1, 2], |number, message| match number {
            1 => ours = message[16..48].to_vec(),
            2 => message[48..80].copy_from_slice(&ours),
            _ => {}
        });
        assert_eq!(ended.controller, Some(TransactionOutcome::Refused(Explanation::AuthenticationFailed)));
    }
}

#[test]
fn our_own_diffie_hellman_value_and_those_that_give_the_session_away_are_refused() {
    let mut setting = Setting::new();
    setting.offer.groups = vec![Group::Ffdhe2048];
    let bytes = Group::Ffdhe2048.value_bytes();
    let small = |value: u8| [vec![0; bytes - 1], vec![value]].concat();
    // p - 1 and p: 2 to the power of (p - 1) is 1, and all of p's lowest bits are set.
    let (_, challenge) = challenged(&setting, 3);
    for value in [challenge.value.clone(), small(0), small(1), vec![0xff; bytes], vec![0; bytes - 4]] {
        let (mut controller, challenge) = challenged(&setting, 3);
        let response = vec![0; challenge.hash.bytes()];
        let reply = ReplyMessage { t_id: 7, sequence: 1, response, challenge: None, value }.encode();
        assert_eq!(send(&mut controller, &reply, &entropy(3)), None);
        assert_eq!(failure(&mut controller), Explanation::IncorrectPayload);
    }
    for value in [small(0), small(1), vec![0xff; bytes]] {
        let (mut host, mut controller) = setting.ends();
        let ended = transact((&mut host, &mut controller), 7, [1, 2], |number, message| {
            if number == 1 {
                let at = message.len() - bytes;
                message[at..].copy_from_slice(&value);
            }
        });
        assert_eq!(ended.host, Err(Refusal::Value));
        assert_eq!(ended.controller, Some(TransactionOutcome::GaveUp(Some(Explanation::IncorrectPayload))));
    }
}

#[test]
fn a_response_for_another_transaction_is_refused() {
    let setting = Setting::new();
    // Everything of the Reply is right, but for its T_ID.
    let (mut host, mut controller) = setting.ends();
    let ended = transact((&mut host, &mut controller), 7, [1, 2], |number, message| {
        if number == 2 {
            message[4] = 8;
        }
    });
    assert_eq!(ended.controller, Some(TransactionOutcome::Refused(Explanation::IncorrectPayload)));
    // The response is right for another T_ID, and the Reply says the one that is under way.
    let (mut host, mut controller) = setting.ends();
    let ended = transact((&mut host, &mut controller), 7, [1, 2], |number, message| match number {
        0 => message[4] = 8,
        1 => message[4] = 7,
        2 => message[4] = 8,
        _ => {}
    });
    assert_eq!(ended.controller, Some(TransactionOutcome::Refused(Explanation::AuthenticationFailed)));
}

/// Whoever is in between takes away what the ends would have agreed on.
#[test]
fn secure_channel_concatenation_cannot_be_taken_out() {
    let offer = Offer::everything(SecureChannel::New);
    let policy = ebof_authentication::controller::Policy {
        secure_channel: ebof_authentication::controller::Demand::Allowed { over_tls: false },
        ..crate::conversation::everything()
    };
    let (mut host, mut controller) = Setting { offer, policy, ..Setting::new() }.ends();
    let ended = transact((&mut host, &mut controller), 7, [1, 2], |number, message| {
        if number == 0 {
            message[6] = 0;
        }
    });
    ended.host.unwrap_err();
    assert!(matches!(ended.controller, Some(TransactionOutcome::Refused(_))));
}

#[test]
fn a_host_takes_nothing_that_it_did_not_offer() {
    let mut setting = Setting::mutual();
    setting.offer =
        Offer { hashes: vec![Hash::Sha384], groups: vec![Group::Ffdhe2048], secure_channel: SecureChannel::None };
    let challenge = |hash: Hash, group: Group| {
        let (challenge, value) = (vec![1; hash.bytes()], vec![2; group.value_bytes()]);
        message::Challenge { t_id: 7, hash, group, sequence: 1, challenge, value }.encode()
    };
    let answer = |message: &[u8]| {
        let (mut host, _) = setting.ends();
        let host::Next::Exchange(_) = host.begin(7, entropy(1)) else { panic!("no message") };
        match host.receive(message) {
            host::Next::Over { message: Some(message), result } => {
                let Ok(FromHost::Failure2 { explanation: Some(told), .. }) = FromHost::decode(&message) else {
                    panic!("{message:?}")
                };
                (told, result.unwrap_err())
            }
            next => panic!("{next:?}"),
        }
    };
    let (hash, group) = (Hash::Sha256, Group::Null);
    let told = answer(&challenge(hash, Group::Ffdhe2048));
    assert_eq!(told, (Explanation::HashNotUsable, Refusal::HashNotOffered { hash }));
    let told = answer(&challenge(Hash::Sha384, group));
    assert_eq!(told, (Explanation::GroupNotUsable, Refusal::GroupNotOffered { group }));
    // Success without a question, and a challenge of another transaction.
    let success = message::Success1 { t_id: 7, hash, response: None }.encode();
    let told = answer(&success);
    assert_eq!(told.0, Explanation::IncorrectProtocolMessage);
    let mut other = challenge(Hash::Sha384, Group::Ffdhe2048);
    other[4] = 9;
    assert_eq!(answer(&other).0, Explanation::IncorrectPayload);
    // A sequence number of 0 is none.
    let mut none = challenge(Hash::Sha384, Group::Ffdhe2048);
    none[12] = 0;
    assert_eq!(answer(&none).0, Explanation::IncorrectPayload);
}

/// Linux before 7.3 accepted this.
#[test]
fn a_host_that_asked_for_a_proof_takes_no_success_without_one() {
    let (mut host, mut controller) = Setting::mutual().ends();
    let ended = transact((&mut host, &mut controller), 7, [1, 2], |number, message| {
        if number == 3 {
            message[8] = 0;
            message.truncate(16);
        }
    });
    assert_eq!(ended.host, Err(Refusal::NoResponse));
    assert_eq!(ended.controller, Some(TransactionOutcome::GaveUp(Some(Explanation::AuthenticationFailed))));
}

/// Any bit of a message that means something.
#[test]
fn a_transaction_with_one_wrong_bit_does_not_succeed_at_both_ends() {
    let mut setting = Setting::mutual();
    setting.offer =
        Offer { hashes: vec![Hash::Sha256], groups: vec![Group::Null], secure_channel: SecureChannel::None };
    let messages = recorded(&setting);
    for (wrong, message) in messages.iter().enumerate() {
        // Of Success2, only its T_ID means something; reserved bytes of all messages do not.
        let meaning: Vec<usize> = match wrong {
            // One group and one hash: the others in the lists are not there.
            0 => vec![0, 1, 4, 5, 6, 7, 8, 10, 11, 12, 42],
            1 => (0..message.len()).filter(|at| ![2, 3, 7].contains(at)).collect(),
            2 => (0..message.len()).filter(|at| ![2, 3, 7, 9].contains(at)).collect(),
            3 => (0..message.len()).filter(|at| ![2, 3, 7].contains(at) && !(9..16).contains(at)).collect(),
            _ => vec![0, 1, 4, 5],
        };
        for at in meaning {
            for bit in 0..8 {
                // A list that is shorter has the same one hash.
                let (mut host, mut controller) = setting.ends();
                let ended = transact((&mut host, &mut controller), 7, [1, 2], |number, message| {
                    if number == wrong {
                        message[at] ^= 1 << bit;
                    }
                });
                let both = ended.host.is_ok() && matches!(ended.controller, Some(TransactionOutcome::Authenticated(_)));
                // A host that offers more than one hash or group, of which the one is known.
                let is_more = wrong == 0 && [10, 11].contains(&at) && message[at] ^ 1 << bit > 0;
                let is_more = is_more && message[at] ^ 1 << bit <= 30;
                assert!(!both || is_more, "message {wrong}, byte {at}, bit {bit}");
            }
        }
    }
}

#[test]
fn messages_in_another_order_are_refused() {
    let setting = Setting::mutual();
    let messages = recorded(&setting);
    let [negotiate, _, reply, _, success2] = &messages[..] else { panic!("five messages") };
    let orders: [&[&Vec<u8>]; 6] = [
        &[reply],
        &[success2],
        &[negotiate, success2],
        &[negotiate, negotiate],
        &[negotiate, reply, reply],
        &[negotiate, reply, negotiate],
    ];
    for (index, order) in orders.into_iter().enumerate() {
        let (_, mut controller) = setting.ends();
        for (at, message) in order.iter().enumerate() {
            assert_eq!(send(&mut controller, message, &entropy(2)), None);
            if at + 1 < order.len() {
                let (_, outcome) = controller.transmit(4096).unwrap();
                assert_eq!(outcome, None, "order {index}");
            }
        }
        assert_eq!(failure(&mut controller), Explanation::IncorrectProtocolMessage, "order {index}");
        // That was final.
        assert_eq!(send(&mut controller, negotiate, &entropy(2)), None);
        assert_eq!(controller.transmit(4096), Err(Nothing::ToReceive), "order {index}");
    }
}

/// A Reply before anybody has read the challenge.
#[test]
fn a_reply_to_an_unread_challenge_is_refused() {
    let setting = Setting::new();
    let messages = recorded(&setting);
    let (_, mut controller) = setting.ends();
    assert_eq!(send(&mut controller, &messages[0], &entropy(2)), None);
    assert_eq!(send(&mut controller, &messages[2], &entropy(2)), None);
    assert_eq!(failure(&mut controller), Explanation::IncorrectProtocolMessage);
}

/// The second message comes while the first one's value is being computed.
#[test]
fn messages_during_a_computation_are_refused() {
    let mut setting = Setting::new();
    setting.offer.groups = vec![Group::Ffdhe2048];
    let messages = recorded(&setting);
    let (_, mut controller) = setting.ends();
    let ebof_authentication::controller::Next::Compute(work) = controller.receive(&messages[0], &entropy(2)) else {
        panic!("nothing to compute")
    };
    assert_eq!(send(&mut controller, &messages[0], &entropy(2)), None);
    controller.forget();
    let next = controller.computed(work.run());
    assert!(matches!(next, ebof_authentication::controller::Next::Complete(None)), "{next:?}");
    assert_eq!(failure(&mut controller), Explanation::IncorrectProtocolMessage);
}

/// A host may stop at every message, and begin again after the deadline of the transaction.
#[test]
fn a_transaction_that_is_forgotten_may_begin_again() {
    let setting = Setting::mutual();
    let messages = recorded(&setting);
    for stop in [1, 2, 3] {
        let (mut host, mut controller) = setting.ends();
        assert_eq!(send(&mut controller, &messages[0], &entropy(2)), None);
        if stop > 1 {
            controller.transmit(4096).unwrap();
        }
        if stop > 2 {
            assert_eq!(send(&mut controller, &messages[2], &entropy(2)), None);
            controller.transmit(4096).unwrap();
        }
        assert!(controller.is_under_way());
        controller.forget();
        assert!(!controller.is_under_way());
        transact((&mut host, &mut controller), 9, [5, 6], |_, _| {}).host.unwrap();
    }
}

/// Two hosts' challenges, crossed: each answers the other's.
#[test]
fn two_transactions_at_once_do_not_help_each_other() {
    let setting = Setting::new();
    let (mut first, mut controller) = challenged(&setting, 3);
    let (mut host, mut second) = setting.ends();
    let host::Next::Exchange(negotiate) = host.begin(7, entropy(1)) else { panic!("no message") };
    assert_eq!(send(&mut second, &negotiate, &entropy(4)), None);
    let (challenge, _) = second.transmit(4096).unwrap();
    let next = host.receive(&challenge);
    let host::Next::Exchange(reply) = settled(&mut host, next) else { panic!("no reply") };
    assert_eq!(send(&mut first, &reply, &entropy(3)), None);
    assert_eq!(failure(&mut first), Explanation::AuthenticationFailed);
    controller.challenge.clear();
    // It was right where it belongs.
    assert_eq!(send(&mut second, &reply, &entropy(4)), None);
    assert!(matches!(second.transmit(4096), Ok((_, Some(TransactionOutcome::Authenticated(_))))));
}

/// Nothing can be asked of a host that has not begun.
#[test]
fn a_host_answers_nothing_unasked() {
    let messages = recorded(&Setting::mutual());
    for message in &messages {
        let (mut host, _): (HostEnd, _) = Setting::mutual().ends();
        let next = host.receive(message);
        assert!(matches!(next, host::Next::Over { result: Err(_), .. }), "{next:?}");
    }
}
