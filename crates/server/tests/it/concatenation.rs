//! Secure channel concatenation: the initiator authenticates, and goes on over TLS with the key
//! that this has generated.

use std::time::Duration;

use ebof_authentication::{Group, Hash};
use ebof_initiator::{ConnectErrorKind, Controller, KeySource, Options, State};
use ebof_manage::api::{RefusalReason, Target as _};
use ebof_manage::config::{DhchapGroup, DhchapHash, PortTls, Security, TargetOptions};
use ebof_nvme::Nsid;

use crate::authentication::{Rig, secret, with_key, works};
use crate::tls::Wire;
use crate::waiting::until;

const MARK: &[u8] = b"the text that nobody else may read";

/// A host with a secret, and a port that has TLS and goes without it.
fn rig(security: Security) -> Rig {
    let mut rig = Rig::new();
    rig.config.ports[0].tls = PortTls::Allowed;
    rig.config.subsystems[0].security = security;
    rig
}

fn concatenated(address: std::net::SocketAddr) -> Options {
    let mut options = with_key(address, secret(1));
    options.concat = true;
    options
}

// @test wire.secure-channel
#[test]
fn a_host_authenticates_and_goes_on_over_tls() {
    for security in [Security::Anyone, Security::AuthenticatedTls] {
        let rig = rig(security);
        let (target, address) = rig.start();
        let wire = Wire::to(address);
        for mutual in [None, Some(KeySource::Secret(secret(100)))] {
            let mut options = concatenated(wire.address);
            options.dhchap_ctrl_key = mutual;
            let controller = Controller::connect(&options).unwrap();
            let namespace = controller.namespace(Nsid(1)).unwrap();
            let data: Vec<u8> = MARK.iter().copied().cycle().take(64 << 10).collect();
            namespace.write(0, &data, false).unwrap();
            let mut back = vec![0; data.len()];
            namespace.read(0, &mut back).unwrap();
            assert!(back == data);
            let proofs: Vec<_> = target.status().controllers.iter().map(|controller| controller.proof).collect();
            assert_eq!(proofs, [Security::AuthenticatedTls]);
            controller.disconnect();
            until("it is gone", || target.status().controllers.is_empty());
        }
        assert!(!wire.has_seen(MARK));
        assert!(target.refused().is_empty(), "{:?}", target.refused());
    }
}

/// What the target must not have to be told twice: who is there by a key of before, and what
/// becomes of it.
#[test]
fn a_host_comes_back_with_another_key() {
    let mut rig = rig(Security::AuthenticatedTls);
    let (target, address) = rig.start();
    let mut options = concatenated(address);
    options.reconnect_delay_ms = 50;
    let controller = Controller::connect(&options).unwrap();
    works(&controller);
    for round in 1..=2 {
        controller.reset();
        until("it is back", || controller.state() == State::Live);
        works(&controller);
        assert_eq!(target.status().controllers.len(), 1, "round {round}");
    }
    // Another secret: who is there stays.
    rig.put("host", &[secret(2)]);
    rig.config.target.slow_threshold = Duration::from_millis(1234);
    target.apply(rig.config.clone()).unwrap();
    works(&controller);
    rig.config.hosts.clear();
    target.apply(rig.config.clone()).unwrap();
    until("its controller is gone", || target.status().controllers.is_empty());
}

/// Without a pause of its I/O, with the secret that counts now; and the key of later queues is
/// another one.
#[test]
fn a_live_controller_authenticates_again() {
    for concat in [false, true] {
        let rig = rig(Security::Authenticated);
        let (target, address) = rig.start();
        let mut options = with_key(address, secret(1));
        options.concat = concat;
        options.dhchap_ctrl_key = Some(KeySource::Secret(secret(100)));
        let controller = Controller::connect(&options).unwrap();
        let namespace = controller.namespace(Nsid(1)).unwrap();
        let id = controller.id();
        // Its queue is there before.
        namespace.read(0, &mut vec![0; 4096]).unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut back = vec![0; 4096];
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    namespace.read(0, &mut back).unwrap();
                }
            });
            for _ in 0..3 {
                let done = controller.reauthenticate().unwrap();
                assert!(done.is_mutual);
                assert_eq!(done.has_replaced_psk, concat);
                // A queue of its own: with the key of now.
                drop(controller.queue_pair::<Vec<u8>>().unwrap());
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(controller.id(), id, "no connection was lost");
        assert!(target.refused().is_empty(), "{:?}", target.refused());
        // It has another secret than the host by now.
        rig.put("host", &[secret(2)]);
        let mut config = rig.config.clone();
        config.target.slow_threshold = Duration::from_millis(1234);
        target.apply(config).unwrap();
        let error = controller.reauthenticate().unwrap_err();
        assert!(error.summary().contains("does not take this host for"), "{error:#}");
    }
}

/// For a moment the two ends do not have the same key.
#[test]
fn queues_are_connected_while_their_key_is_replaced() {
    let rig = rig(Security::Authenticated);
    let (_target, address) = rig.start();
    let controller = Controller::connect(&concatenated(address)).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                drop(controller.queue_pair::<Vec<u8>>().unwrap());
                count += 1;
            }
            count
        });
        for _ in 0..20 {
            assert!(controller.reauthenticate().unwrap().has_replaced_psk);
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(connecting.join().unwrap() > 0);
    });
}

/// Without a restart, and for those that connect then.
#[test]
fn the_target_takes_the_hashes_and_groups_that_it_is_told() {
    let mut rig = rig(Security::Authenticated);
    rig.config.target.dhchap_hashes = vec![DhchapHash::Sha384, DhchapHash::Sha512];
    rig.config.target.dhchap_groups = vec![DhchapGroup::Null];
    let (target, address) = rig.start();
    let first = Controller::connect(&with_key(address, secret(1))).unwrap();
    let by = |controller: &Controller| controller.reauthenticate().map(|done| (done.hash, done.group)).unwrap();
    assert_eq!(by(&first), (Hash::Sha384, Group::Null));
    // Without an exchange there is no key for TLS.
    let error = Controller::connect(&concatenated(address)).unwrap_err();
    assert!(matches!(error.kind(), ConnectErrorKind::Authentication(_)), "{error:#}");

    rig.config.target.dhchap_hashes = TargetOptions::default().dhchap_hashes;
    rig.config.target.dhchap_groups = vec![DhchapGroup::Null, DhchapGroup::Ffdhe2048];
    target.apply(rig.config.clone()).unwrap();
    let second = Controller::connect(&concatenated(address)).unwrap();
    assert_eq!(by(&second), (Hash::Sha256, Group::Ffdhe2048));
    let third = Controller::connect(&with_key(address, secret(1))).unwrap();
    assert_eq!(by(&third), (Hash::Sha512, Group::Null));
    works(&first);
}

#[test]
fn who_does_not_take_part_is_told_what_is_missing() {
    let mut rig = rig(Security::Tls);
    let (target, address) = rig.start();
    let error = Controller::connect(&with_key(address, secret(1))).unwrap_err();
    assert_eq!(*error.kind(), ConnectErrorKind::SecureChannelRequired);
    assert!(error.to_do().contains("--concat"), "{error:#}");
    // No secret at the target: nothing that a key could be made of.
    let mut stranger = concatenated(address);
    stranger.host_nqn = ebof_nvme::Nqn::parse("nqn.2014-08.org.example:other").unwrap();
    Controller::connect(&stranger).unwrap_err();
    until("it is noted", || target.refused().iter().any(|refusal| refusal.reason == RefusalReason::TlsRequired));

    rig.config.subsystems[0].security = Security::Anyone;
    rig.config.ports[0].tls = PortTls::Off;
    let (_target, address) = rig.start();
    let error = Controller::connect(&concatenated(address)).unwrap_err();
    assert!(matches!(error.kind(), ConnectErrorKind::Authentication(_)), "{error:#}");
    assert!(error.to_do().contains("whether the port has TLS"), "{error:#}");
    let mut stranger = concatenated(address);
    stranger.host_nqn = ebof_nvme::Nqn::parse("nqn.2014-08.org.example:other").unwrap();
    let error = Controller::connect(&stranger).unwrap_err();
    assert_eq!(*error.kind(), ConnectErrorKind::AuthenticationNotOffered);
}
