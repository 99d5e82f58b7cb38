//! Secure channel concatenation: a host authenticates without TLS and comes again with the PSK that
//! this has generated.

use std::sync::Arc;

use ebof_authentication::host::{Credentials, Offer, Proof, Refusal};
use ebof_authentication::message::SecureChannel;
use ebof_authentication::psk::IdentityVersion;
use ebof_authentication::response::Names;
use ebof_authentication::{Derivation, Explanation, Group, HostEnd, Identity, Secret};
use ebof_fabrics::{Channel, CloseReason, HostSecrets, PskSource, RefusalReason, SecureChannelId, TlsPeer, TlsUse};
use ebof_nvme::connect::{Connect, ConnectResult, Property};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::{ControllerId, QueueId, Status};

use crate::authentication::{authenticate_with, secret};
use crate::support::{ALICE, BOB, DRIVE, World, admin_connect, connect_data, nqn};

const HOUR_MS: u64 = 3_600_000;

fn names() -> Names {
    Names { host: nqn(ALICE), subsystem: nqn(DRIVE) }
}

/// Alice has a secret, the port has TLS, and the drive may want it.
fn world(tls_only: bool) -> World {
    let mut world = World::new();
    let secrets = HostSecrets { host: vec![secret(1)], controller: Some(secret(100)) };
    world.replace_model(|model| {
        model.secrets.insert(nqn(ALICE), Arc::new(secrets));
        // The one that costs least, of those that are allowed.
        model.authentication.groups = vec![Group::Ffdhe2048];
        model.ports.iter_mut().for_each(|port| port.tls = TlsUse::Allowed);
        Arc::make_mut(&mut model.subsystems[0]).tls_only = tls_only;
    });
    world
}

fn host(secure_channel: SecureChannel) -> HostEnd {
    let credentials = Credentials { names: names(), host: secret(1), controller: None };
    HostEnd::new(credentials, Offer::everything(secure_channel))
}

fn prove(world: &mut World, at: u64, secure_channel: SecureChannel, seed: u8) -> Result<Proof, Refusal> {
    authenticate_with(world, at, &mut host(secure_channel), seed)
}

/// What Connect of an Admin Queue demands.
fn connect(world: &mut World) -> (u64, ControllerId, u16) {
    let at = world.open();
    let (cqe, refusal) = world.connect(at, admin_connect(), &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
    assert_eq!(refusal, None);
    let (cntlid, authreq) = ConnectResult::connected(cqe.result());
    (at, cntlid, authreq)
}

/// Authenticates on a new Admin Queue without TLS, which ends then; the identity of the PSK.
fn generate(world: &mut World, seed: u8) -> Identity {
    world.channel = Channel::Plain;
    let (at, _, _) = connect(world);
    let identity = identity(&prove(world, at, SecureChannel::New, seed).unwrap());
    world.close(at);
    identity
}

fn identity(proof: &Proof) -> Identity {
    proof.psk.as_ref().unwrap().identity(&names(), IdentityVersion::V1)
}

fn channel_of(world: &World, identity: &Identity) -> Option<SecureChannelId> {
    world.registry.generated_psk(identity, world.now_ms).map(|(_, channel)| channel)
}

fn secured(psk: PskSource) -> Channel {
    Channel::Tls(Box::new(TlsPeer { names: names(), psk }))
}

/// Comes with the PSK of an identity; the Admin Queue, enabled.
fn come(world: &mut World, identity: &Identity) -> (u64, ControllerId, SecureChannelId) {
    let channel = channel_of(world, identity).unwrap();
    world.channel = secured(PskSource::Generated(channel));
    let (at, cntlid, authreq) = connect(world);
    assert_eq!(authreq, 0, "TLS is the proof");
    assert!(world.queues[&at].is_open());
    assert!(world.run(at, Property::set(offset::CC, Cc::ENABLE.0)).status().is_success());
    (at, cntlid, channel)
}

fn io_queue(world: &mut World, cntlid: ControllerId, qid: u16) -> Result<u64, RefusalReason> {
    let at = world.open();
    let connect = Connect { qid: QueueId(qid), entries: 64, ..admin_connect() };
    match world.connect(at, connect, &connect_data(DRIVE, ALICE, cntlid)).1 {
        Some(refusal) => Err(refusal.reason),
        None => Ok(at),
    }
}

// @test wire.secure-channel
#[test]
fn a_host_comes_again_with_the_psk_that_its_proof_has_generated() {
    for tls_only in [false, true] {
        let mut world = world(tls_only);
        let (plain, _, authreq) = connect(&mut world);
        let demanded = if tls_only { ConnectResult::SECURE_CHANNEL_REQUIRED } else { 0 };
        assert_eq!(authreq, ConnectResult::AUTHENTICATION_REQUIRED | demanded);
        let proof = prove(&mut world, plain, SecureChannel::New, 200).unwrap();
        // This queue was for the proof only.
        assert!(!world.queues[&plain].is_open());
        let enable = Property::set(offset::CC, Cc::ENABLE.0);
        assert!(world.run(plain, enable).status().is(Status::AUTHENTICATION_REQUIRED));
        assert_eq!(world.registry.controllers().count(), 0, "nobody is there yet");

        let psk = proof.psk.clone().unwrap();
        let (key, _) = world.registry.generated_psk(&identity(&proof), world.now_ms).unwrap();
        assert_eq!(key, psk.for_tls(&names(), IdentityVersion::V1, Derivation::Specification).unwrap());
        let (_, cntlid, channel) = come(&mut world, &identity(&proof));
        io_queue(&mut world, cntlid, 1).unwrap();
        for other in [
            Channel::Plain,
            secured(PskSource::Configured),
            secured(PskSource::Generated(SecureChannelId(channel.0 + 1))),
        ] {
            world.channel = other;
            io_queue(&mut world, cntlid, 2).unwrap_err();
        }
    }
}

#[test]
fn a_proof_that_generates_no_psk_is_not_enough_where_tls_is_demanded() {
    let mut world = world(true);
    let (at, _, _) = connect(&mut world);
    let explanation = Explanation::SecureChannelMismatch;
    assert_eq!(prove(&mut world, at, SecureChannel::None, 200), Err(Refusal::ByController { explanation }));
    assert_eq!(world.closed(at), Some(CloseReason::NotAuthenticated(explanation)));
    // A host without a secret cannot begin.
    let at = world.open();
    let data = connect_data(DRIVE, BOB, ControllerId::DYNAMIC);
    assert_eq!(world.connect(at, admin_connect(), &data).1.unwrap().reason, RefusalReason::TlsRequired);
}

/// Without TLS there is nothing to generate a PSK for, and only a generated one is replaced.
#[test]
fn secure_channel_concatenation_begins_where_tls_can_follow() {
    for tls in [TlsUse::Off, TlsUse::Allowed] {
        let mut world = world(false);
        world.replace_model(|model| {
            model.ports.iter_mut().for_each(|port| port.tls = tls);
            model.tls_psks.insert(nqn(ALICE), Arc::default());
        });
        let refused = |world: &mut World, secure_channel| {
            let (at, _, _) = connect(world);
            prove(world, at, secure_channel, 200).unwrap_err()
        };
        let explanation = Explanation::SecureChannelMismatch;
        assert_eq!(refused(&mut world, SecureChannel::Replace), Refusal::ByController { explanation });
        if tls == TlsUse::Off {
            assert_eq!(refused(&mut world, SecureChannel::New), Refusal::ByController { explanation });
            continue;
        }
        world.channel = secured(PskSource::Configured);
        for secure_channel in [SecureChannel::New, SecureChannel::Replace] {
            assert_eq!(refused(&mut world, secure_channel), Refusal::ByController { explanation });
        }
    }
}

// @test wire.secure-channel
#[test]
fn a_psk_is_replaced_while_its_controller_lives() {
    let mut world = world(true);
    let first = generate(&mut world, 200);
    let (at, cntlid, channel) = come(&mut world, &first);
    let io = io_queue(&mut world, cntlid, 1).unwrap();
    let second = identity(&prove(&mut world, at, SecureChannel::Replace, 201).unwrap());
    assert_ne!(first, second);
    assert_eq!(channel_of(&world, &first), None);
    assert_eq!(channel_of(&world, &second), Some(channel));
    assert!(!world.queues[&io].is_closing() && !world.queues[&at].is_closing());
    io_queue(&mut world, cntlid, 2).unwrap();
    // A PSK that was not used yet outlives its controller: hosts reset it to use the new one.
    world.close(at);
    assert_eq!(channel_of(&world, &second), Some(channel));
    come(&mut world, &second);
}

#[test]
fn a_psk_ends_with_its_controller_its_time_or_its_hosts_secret() {
    let mut world = world(false);
    let used = generate(&mut world, 200);
    let (at, _, _) = come(&mut world, &used);
    world.now_ms += 2 * HOUR_MS;
    assert!(channel_of(&world, &used).is_some(), "its controller is there");
    world.close(at);
    assert_eq!(channel_of(&world, &used), None);

    let unused = generate(&mut world, 201);
    world.now_ms += HOUR_MS - 1;
    assert!(channel_of(&world, &unused).is_some());
    world.now_ms += 1;
    assert_eq!(channel_of(&world, &unused), None);

    let unused = generate(&mut world, 202);
    let used = generate(&mut world, 203);
    let (at, _, channel) = come(&mut world, &used);
    world.replace_model(|model| model.secrets.clear());
    assert_eq!(world.closed(at), Some(CloseReason::KeyRemoved));
    assert_eq!((channel_of(&world, &unused), channel_of(&world, &used)), (None, None));
    // A handshake of before counts no more.
    world.channel = secured(PskSource::Generated(channel));
    let at = world.open();
    let (_, refusal) = world.connect(at, admin_connect(), &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
    assert_eq!(refusal.unwrap().reason, RefusalReason::TlsIdentity);
}

/// Who has stolen a secret may have generated some, and keep them for later.
#[test]
fn a_psk_that_waits_ends_with_any_secret_of_its_host() {
    let mut world = world(false);
    let unused = generate(&mut world, 204);
    let used = generate(&mut world, 205);
    let (at, _, _) = come(&mut world, &used);
    let set = |world: &mut World, secrets: Vec<Secret>| {
        let secrets = HostSecrets { host: secrets, controller: Some(secret(100)) };
        world.replace_model(|model| drop(model.secrets.insert(nqn(ALICE), Arc::new(secrets))));
    };
    set(&mut world, vec![secret(1), secret(2)]);
    assert!(channel_of(&world, &unused).is_some() && channel_of(&world, &used).is_some(), "both are good");
    set(&mut world, vec![secret(2)]);
    assert!(channel_of(&world, &unused).is_none());
    assert!(channel_of(&world, &used).is_some() && world.closed(at).is_none(), "its controller goes on");
    world.close(at);
    assert!(channel_of(&world, &used).is_none());
}

/// Its last secret goes between the proof's messages.
#[test]
fn a_proof_of_a_host_without_secrets_opens_nothing_and_generates_nothing() {
    let mut world = world(false);
    let (at, _, _) = connect(&mut world);
    let mut host = host(SecureChannel::New);
    let secrets = world.registry.model().secrets.clone();
    world.replace_model(|model| model.secrets.clear());
    let proven = authenticate_with(&mut world, at, &mut host, 206);
    assert_eq!(world.closed(at), Some(CloseReason::ProofDemanded));
    world.replace_model(|model| model.secrets = secrets.clone());
    if let Ok(proof) = proven {
        assert!(channel_of(&world, &identity(&proof)).is_none());
    }
}

/// TLS has had an exchange: another one on each queue would cost milliseconds and add nothing.
#[test]
fn over_tls_no_group_is_preferred() {
    let mut world = world(false);
    world.replace_model(|model| {
        model.authentication.groups = vec![Group::Ffdhe2048, Group::Null];
        model.tls_psks.insert(nqn(ALICE), Arc::default());
    });
    for (channel, group) in [(Channel::Plain, Group::Ffdhe2048), (secured(PskSource::Configured), Group::Null)] {
        world.channel = channel;
        let (at, _, _) = connect(&mut world);
        assert_eq!(prove(&mut world, at, SecureChannel::None, 200).unwrap().group, group);
    }
    // Where a PSK is to be replaced, there has to be one.
    let first = generate(&mut world, 201);
    let (at, _, _) = come(&mut world, &first);
    assert_eq!(prove(&mut world, at, SecureChannel::Replace, 202).unwrap().group, Group::Ffdhe2048);
}

/// A host that authenticates again and again has the target keep the newest of its PSKs.
#[test]
fn psks_that_wait_for_a_host_are_bounded() {
    let mut world = world(false);
    let all: Vec<Identity> = (100..118).map(|seed| generate(&mut world, seed)).collect();
    let good: Vec<bool> = all.iter().map(|identity| channel_of(&world, identity).is_some()).collect();
    assert_eq!(good, [vec![false; 2], vec![true; 16]].concat());
}
