//! The two ends in one thread, and what goes wrong in no way.

use std::num::NonZeroU32;

use ebof_authentication::controller::{self, Demand, Policy, TransactionOutcome};
use ebof_authentication::host::{self, Offer};
use ebof_authentication::message::SecureChannel;
use ebof_authentication::response::Names;
use ebof_authentication::{ControllerEnd, Entropy, Group, Hash, HostEnd, KeyMaterial, Secret};
use ebof_nvme::Nqn;

/// What both ends made of a transaction.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) host: Result<host::Proof, host::Refusal>,
    /// `None` if it was not told anything that ends the transaction.
    pub(crate) controller: Option<TransactionOutcome>,
}

pub(crate) fn names() -> Names {
    Names {
        host: Nqn::parse("nqn.2014-08.org.example:host").unwrap(),
        subsystem: Nqn::parse("nqn.2014-08.org.example:sub").unwrap(),
    }
}

pub(crate) fn secret(seed: u8, bytes: usize, transform: Option<Hash>) -> Secret {
    Secret::new(KeyMaterial::new(vec![seed; bytes]), transform).unwrap()
}

/// Bytes that differ with the seed.
pub(crate) fn entropy(seed: u8) -> Entropy {
    let mut next = seed;
    Entropy::new(NonZeroU32::new(u32::from(seed) + 1).unwrap(), |bytes| {
        for byte in bytes {
            next = next.wrapping_mul(73).wrapping_add(31);
            *byte = next;
        }
    })
}

pub(crate) fn everything() -> Policy {
    Policy { hashes: Hash::ALL.to_vec(), groups: Group::ALL.to_vec(), secure_channel: Demand::Refused }
}

/// What an end of a test has.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) host: Secret,
    /// The subsystem's secret, as the host and as the controller have it.
    pub(crate) of_subsystem: [Option<Secret>; 2],
    pub(crate) offer: Offer,
    pub(crate) policy: Policy,
}

impl Setting {
    pub(crate) fn new() -> Self {
        Self {
            host: secret(1, 32, Some(Hash::Sha256)),
            of_subsystem: [None, None],
            offer: Offer { groups: vec![Group::Null], ..Offer::everything(SecureChannel::None) },
            policy: everything(),
        }
    }

    /// With proofs in both directions.
    pub(crate) fn mutual() -> Self {
        let of_subsystem = Some(secret(2, 48, Some(Hash::Sha384)));
        Self { of_subsystem: [of_subsystem.clone(), of_subsystem], ..Self::new() }
    }

    pub(crate) fn ends(&self) -> (HostEnd, ControllerEnd) {
        let [of_host, of_controller] = self.of_subsystem.clone();
        let credentials = host::Credentials { names: names(), host: self.host.clone(), controller: of_host };
        let host = HostEnd::new(credentials, self.offer.clone());
        let credentials =
            controller::Credentials { names: names(), host: vec![self.host.clone()], controller: of_controller };
        (host, ControllerEnd::new(credentials, self.policy.clone()))
    }
}

/// Gives a message to the controller, computes what it wants, and returns what it makes of it.
pub(crate) fn send(controller: &mut ControllerEnd, message: &[u8], entropy: &Entropy) -> Option<TransactionOutcome> {
    let mut next = controller.receive(message, entropy);
    loop {
        match next {
            controller::Next::Complete(outcome) => return outcome,
            controller::Next::Compute(work) => next = controller.computed(work.run()),
        }
    }
}

/// Has the host compute what it wants.
pub(crate) fn settled(host: &mut HostEnd, mut next: host::Next) -> host::Next {
    while let host::Next::Compute(work) = next {
        next = host.computed(work.run());
    }
    next
}

/// A whole transaction; `change` may change each message, with its number, on its way.
pub(crate) fn transact(
    (host, controller): (&mut HostEnd, &mut ControllerEnd),
    t_id: u16,
    seeds: [u8; 2],
    mut change: impl FnMut(usize, &mut Vec<u8>),
) -> Ended {
    let of_controller = entropy(seeds[1]);
    let mut next = host.begin(t_id, entropy(seeds[0]));
    let mut outcome = None;
    let mut number = 0;
    let mut changed = |mut message: Vec<u8>| {
        change(number, &mut message);
        number += 1;
        message
    };
    loop {
        match settled(host, next) {
            host::Next::Compute(_) => unreachable!("it was computed"),
            host::Next::Exchange(message) => {
                outcome = send(controller, &changed(message), &of_controller).or(outcome);
                // A controller that has nothing to say: the queue would end by its deadline.
                let Ok((answer, more)) = controller.transmit(4096) else {
                    let explanation = ebof_authentication::Explanation::IncorrectProtocolMessage;
                    return Ended { host: Err(host::Refusal::Message { explanation }), controller: outcome };
                };
                outcome = more.or(outcome);
                next = host.receive(&changed(answer));
            }
            host::Next::Over { message, result } => {
                if let Some(message) = message {
                    outcome = send(controller, &changed(message), &of_controller).or(outcome);
                    outcome = controller.transmit(4096).ok().and_then(|(_, outcome)| outcome).or(outcome);
                }
                return Ended { host: result, controller: outcome };
            }
        }
    }
}

pub(crate) fn run(setting: &Setting) -> Ended {
    let (mut host, mut controller) = setting.ends();
    transact((&mut host, &mut controller), 7, [1, 2], |_, _| {})
}

/// Every cell of hash, group, direction and kind of key.
#[test]
fn every_combination_authenticates() {
    let keys = [(None, 32), (Some(Hash::Sha256), 64), (Some(Hash::Sha384), 48), (Some(Hash::Sha512), 32)];
    for hash in Hash::ALL {
        for group in Group::ALL {
            for mutual in [false, true] {
                // The large groups take their time: the kind of key has nothing to do with them.
                let keys = if group <= Group::Ffdhe2048 { &keys[..] } else { &keys[..1] };
                for &(transform, bytes) in keys {
                    let of_subsystem = mutual.then(|| secret(2, bytes, transform));
                    let setting = Setting {
                        host: secret(1, bytes, transform),
                        of_subsystem: [of_subsystem.clone(), of_subsystem],
                        offer: Offer { hashes: vec![hash], groups: vec![group], secure_channel: SecureChannel::None },
                        policy: everything(),
                    };
                    let ended = run(&setting);
                    let proof = ended.host.unwrap();
                    assert_eq!((proof.hash, proof.group, proof.is_mutual), (hash, group, mutual));
                    let Some(TransactionOutcome::Authenticated(of_controller)) = ended.controller else {
                        panic!("{hash}, {group}")
                    };
                    assert_eq!((of_controller.hash, of_controller.group), (hash, group));
                    assert_eq!((of_controller.is_mutual, of_controller.psk), (mutual, None));
                }
            }
        }
    }
}

#[test]
fn the_controller_chooses_by_its_own_preference() {
    let policy = Policy {
        hashes: vec![Hash::Sha384, Hash::Sha256],
        groups: vec![Group::Ffdhe8192, Group::Ffdhe2048, Group::Null],
        ..everything()
    };
    let offer = Offer {
        hashes: vec![Hash::Sha256, Hash::Sha384],
        groups: vec![Group::Null, Group::Ffdhe2048],
        secure_channel: SecureChannel::None,
    };
    let proof = run(&Setting { policy, offer, ..Setting::new() }).host.unwrap();
    assert_eq!((proof.hash, proof.group), (Hash::Sha384, Group::Ffdhe2048));
}

#[test]
fn a_host_proves_itself_again_on_the_same_queue() {
    let (mut host, mut controller) = Setting::mutual().ends();
    for round in 0..3 {
        let ended = transact((&mut host, &mut controller), round.into(), [round, 100 + round], |_, _| {});
        ended.host.unwrap();
        assert!(matches!(ended.controller, Some(TransactionOutcome::Authenticated(_))));
        assert!(!controller.is_under_way());
    }
}

#[test]
fn while_a_secret_is_replaced_both_are_good() {
    let setting = Setting::new();
    let (_, mut controller) = setting.ends();
    let [old, new, other] = [1, 5, 6].map(|seed| secret(seed, 32, Some(Hash::Sha256)));
    controller.replace(vec![old.clone(), new.clone()], None);
    for (index, one) in [(0, old), (1, new)] {
        let (mut host, _) = Setting { host: one, ..setting.clone() }.ends();
        let ended = transact((&mut host, &mut controller), 1, [3, 50 + index], |_, _| {});
        let Some(TransactionOutcome::Authenticated(proof)) = ended.controller else { panic!("secret {index}") };
        assert_eq!(proof.secret, usize::from(index));
    }
    let (mut host, _) = Setting { host: other, ..setting }.ends();
    let ended = transact((&mut host, &mut controller), 1, [3, 60], |_, _| {});
    assert!(matches!(ended.controller, Some(TransactionOutcome::Refused(_))));
}

#[test]
fn secure_channel_concatenation_gives_both_the_same_psk() {
    for (secure_channel, demand) in [
        (SecureChannel::New, Demand::Allowed { over_tls: false }),
        (SecureChannel::New, Demand::Required),
        (SecureChannel::Replace, Demand::Allowed { over_tls: true }),
    ] {
        for hash in [Hash::Sha256, Hash::Sha384] {
            let offer = Offer { hashes: vec![hash], ..Offer::everything(secure_channel) };
            let policy = Policy { secure_channel: demand, ..everything() };
            let ended = run(&Setting { offer, policy, ..Setting::new() });
            let proof = ended.host.unwrap();
            let Some(TransactionOutcome::Authenticated(of_controller)) = ended.controller else { panic!("{hash}") };
            assert_eq!(proof.psk.as_ref().map(|psk| psk.hash()), Some(hash));
            assert_eq!(proof.psk, of_controller.psk);
            assert!(!proof.is_mutual && !of_controller.is_mutual);
        }
    }
}

/// A PSK is as good as the exchange that it comes from: who is in the middle of that has one with
/// each end. A host that has the subsystem's secret therefore asks for a proof, too.
#[test]
fn with_secure_channel_concatenation_a_controller_proves_itself_where_it_is_asked_to() {
    let policy = Policy { secure_channel: Demand::Allowed { over_tls: false }, ..everything() };
    let offer = Offer::everything(SecureChannel::New);
    let setting = Setting { offer, policy, ..Setting::mutual() };
    let ended = run(&setting);
    let Some(TransactionOutcome::Authenticated(of_controller)) = ended.controller else { panic!("it is refused") };
    let proof = ended.host.unwrap();
    assert!(proof.is_mutual && of_controller.is_mutual);
    assert_eq!((proof.psk.is_some(), &proof.psk), (true, &of_controller.psk));

    let (mut host, mut controller) = setting.ends();
    controller.replace(vec![secret(1, 32, Some(Hash::Sha256))], Some(secret(77, 32, None)));
    let ended = transact((&mut host, &mut controller), 1, [3, 60], |_, _| {});
    assert_eq!(ended.host, Err(ebof_authentication::host::Refusal::WrongResponse));
}

/// Whatever else is preferred; but not what is not allowed.
#[test]
fn of_hashes_that_seal_sha_256_comes_first() {
    for (hashes, chosen) in [
        (vec![Hash::Sha512, Hash::Sha384, Hash::Sha256], Hash::Sha256),
        (vec![Hash::Sha512, Hash::Sha384], Hash::Sha384),
    ] {
        let policy = Policy { secure_channel: Demand::Allowed { over_tls: false }, hashes, ..everything() };
        let ended = run(&Setting { policy, offer: Offer::everything(SecureChannel::New), ..Setting::new() });
        assert_eq!(ended.host.unwrap().hash, chosen);
    }
}

#[test]
fn nothing_without_a_cipher_suite_or_an_exchange_is_concatenated() {
    for secure_channel in [SecureChannel::New, SecureChannel::Replace] {
        let offer = Offer::everything(secure_channel);
        assert!(!offer.hashes.contains(&Hash::Sha512) && !offer.groups.contains(&Group::Null));
    }
    // A host that offers it all the same.
    let policy = Policy { secure_channel: Demand::Allowed { over_tls: false }, ..everything() };
    let offer = Offer { hashes: vec![Hash::Sha512], ..Offer::everything(SecureChannel::New) };
    let ended = run(&Setting { policy: policy.clone(), offer, ..Setting::new() });
    let refused = |explanation| Some(TransactionOutcome::Refused(explanation));
    assert_eq!(ended.controller, refused(ebof_authentication::Explanation::HashNotUsable));
    let offer = Offer { groups: vec![Group::Null], ..Offer::everything(SecureChannel::New) };
    let ended = run(&Setting { policy, offer, ..Setting::new() });
    assert_eq!(ended.controller, refused(ebof_authentication::Explanation::GroupNotUsable));
}
