//! What honest ends disagree about.

use ebof_authentication::controller::{Demand, Policy, TransactionOutcome};
use ebof_authentication::host::{Offer, Refusal};
use ebof_authentication::message::SecureChannel;
use ebof_authentication::{Explanation, Group, Hash};

use crate::conversation::{Setting, everything, run, secret, transact};

fn by_controller(setting: &Setting) -> Explanation {
    let ended = run(setting);
    let Some(TransactionOutcome::Refused(explanation)) = ended.controller else { panic!("{ended:?}") };
    assert_eq!(ended.host, Err(Refusal::ByController { explanation }));
    explanation
}

#[test]
fn a_wrong_secret_is_refused() {
    let (mut host, _) = Setting { host: secret(9, 32, Some(Hash::Sha256)), ..Setting::new() }.ends();
    let (_, mut controller) = Setting::new().ends();
    let ended = transact((&mut host, &mut controller), 1, [1, 2], |_, _| {});
    assert_eq!(ended.controller, Some(TransactionOutcome::Refused(Explanation::AuthenticationFailed)));
}

/// The same bytes with another hash are another key.
#[test]
fn a_secret_with_another_transformation_is_refused() {
    let (mut host, _) = Setting { host: secret(1, 32, Some(Hash::Sha384)), ..Setting::new() }.ends();
    let (_, mut controller) = Setting::new().ends();
    let ended = transact((&mut host, &mut controller), 1, [1, 2], |_, _| {});
    assert_eq!(ended.controller, Some(TransactionOutcome::Refused(Explanation::AuthenticationFailed)));
}

#[test]
fn nothing_in_common_is_said() {
    let policy = Policy { hashes: vec![Hash::Sha512], ..everything() };
    let offer = Offer { hashes: vec![Hash::Sha256], ..Offer::everything(SecureChannel::None) };
    assert_eq!(by_controller(&Setting { policy, offer, ..Setting::new() }), Explanation::HashNotUsable);
    let policy = Policy { groups: vec![Group::Ffdhe2048], ..everything() };
    assert_eq!(by_controller(&Setting { policy, ..Setting::new() }), Explanation::GroupNotUsable);
}

#[test]
fn secure_channel_concatenation_is_as_the_controller_demands() {
    let cases = [
        (Demand::Refused, SecureChannel::New),
        (Demand::Refused, SecureChannel::Replace),
        (Demand::Allowed { over_tls: false }, SecureChannel::Replace),
        (Demand::Allowed { over_tls: true }, SecureChannel::New),
        (Demand::Required, SecureChannel::None),
        (Demand::Required, SecureChannel::Replace),
    ];
    for (demand, secure_channel) in cases {
        let policy = Policy { secure_channel: demand, ..everything() };
        let offer = Offer::everything(secure_channel);
        let explanation = by_controller(&Setting { policy, offer, ..Setting::new() });
        assert_eq!(explanation, Explanation::SecureChannelMismatch, "{demand:?}, {secure_channel:?}");
    }
}

#[test]
fn a_proof_that_the_controller_cannot_give_is_refused() {
    let setting = Setting { of_subsystem: [Some(secret(2, 32, None)), None], ..Setting::new() };
    assert_eq!(by_controller(&setting), Explanation::AuthenticationFailed);
}

#[test]
fn a_controller_with_another_secret_is_not_accepted() {
    let of_subsystem = [2, 3].map(|seed| Some(secret(seed, 32, None)));
    let ended = run(&Setting { of_subsystem, ..Setting::new() });
    assert_eq!(ended.host, Err(Refusal::WrongResponse));
    assert_eq!(ended.controller, Some(TransactionOutcome::GaveUp(Some(Explanation::AuthenticationFailed))));
}

/// A subsystem may have a secret that this host does not know: it does not ask for a proof.
#[test]
fn a_host_need_not_ask_for_a_proof() {
    let ended = run(&Setting { of_subsystem: [None, Some(secret(2, 32, None))], ..Setting::new() });
    assert!(!ended.host.unwrap().is_mutual);
}
