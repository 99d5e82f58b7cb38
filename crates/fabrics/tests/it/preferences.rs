//! The hashes and groups that a target allows, in its order: what hosts prove themselves by.

use std::sync::Arc;

use ebof_authentication::controller::Policy;
use ebof_authentication::host::{Credentials, Offer, Proof, Refusal};
use ebof_authentication::message::SecureChannel;
use ebof_authentication::response::Names;
use ebof_authentication::{Explanation, Group, Hash, HostEnd};
use ebof_fabrics::{Channel, CloseReason, HostSecrets, PskSource, TlsPeer, TlsUse};
use ebof_nvme::ControllerId;

use crate::authentication::{authenticate_with, secret};
use crate::support::{ALICE, DRIVE, World, admin_connect, connect_data, nqn};

/// Alice has a secret, and TLS is there for who wants it.
fn world(hashes: &[Hash], groups: &[Group]) -> World {
    let mut world = World::new();
    let secrets = HostSecrets { host: vec![secret(1)], controller: None };
    world.replace_model(|model| {
        model.secrets.insert(nqn(ALICE), Arc::new(secrets));
        model.tls_psks.insert(nqn(ALICE), Arc::default());
        model.ports.iter_mut().for_each(|port| port.tls = TlsUse::Allowed);
        model.authentication = Policy { hashes: hashes.to_vec(), groups: groups.to_vec(), ..Policy::default() };
    });
    world
}

fn names() -> Names {
    Names { host: nqn(ALICE), subsystem: nqn(DRIVE) }
}

/// How Alice's Admin Queue is proven by somebody who offers all.
fn prove(world: &mut World, channel: Channel, wanted: SecureChannel) -> Result<Proof, Refusal> {
    world.channel = channel;
    let at = world.open();
    let data = connect_data(DRIVE, ALICE, ControllerId::DYNAMIC);
    assert_eq!(world.connect(at, admin_connect(), &data).1, None);
    let credentials = Credentials { names: names(), host: secret(1), controller: None };
    let proof = authenticate_with(world, at, &mut HostEnd::new(credentials, Offer::everything(wanted)), 200);
    if let Err(Refusal::ByController { explanation }) = proof {
        assert_eq!(world.closed(at), Some(CloseReason::NotAuthenticated(explanation)));
    }
    proof
}

fn over_tls() -> Channel {
    Channel::Tls(Box::new(TlsPeer { names: names(), psk: PskSource::Configured }))
}

#[test]
fn the_first_of_the_targets_list_is_taken() {
    for (hashes, groups) in [
        ([Hash::Sha256, Hash::Sha512], [Group::Ffdhe2048, Group::Null]),
        ([Hash::Sha384, Hash::Sha256], [Group::Null, Group::Ffdhe2048]),
    ] {
        let proof = prove(&mut world(&hashes, &groups), Channel::Plain, SecureChannel::None).unwrap();
        assert_eq!((proof.hash, proof.group), (hashes[0], groups[0]));
    }
}

#[test]
fn over_tls_the_null_group_comes_first_if_it_is_allowed() {
    for (groups, chosen) in
        [(&[Group::Ffdhe2048, Group::Null][..], Group::Null), (&[Group::Ffdhe2048], Group::Ffdhe2048)]
    {
        let proof = prove(&mut world(&[Hash::Sha256], groups), over_tls(), SecureChannel::None).unwrap();
        assert_eq!(proof.group, chosen);
    }
}

#[test]
fn a_key_is_made_with_sha_256_if_that_is_allowed_and_with_an_exchange() {
    for (hashes, chosen) in
        [(&[Hash::Sha512, Hash::Sha384, Hash::Sha256][..], Hash::Sha256), (&[Hash::Sha512, Hash::Sha384], Hash::Sha384)]
    {
        let mut world = world(hashes, &[Group::Null, Group::Ffdhe2048]);
        let proof = prove(&mut world, Channel::Plain, SecureChannel::New).unwrap();
        assert_eq!((proof.hash, proof.group), (chosen, Group::Ffdhe2048));
        assert!(proof.psk.is_some());
    }
}

/// Those without a key for TLS still prove who they are.
#[test]
fn where_no_key_can_be_made_a_host_that_wants_one_is_told() {
    for (hash, group, explanation) in [
        (Hash::Sha512, Group::Ffdhe2048, Explanation::HashNotUsable),
        (Hash::Sha256, Group::Null, Explanation::GroupNotUsable),
    ] {
        let mut world = world(&[hash], &[group]);
        let refused = prove(&mut world, Channel::Plain, SecureChannel::New);
        assert_eq!(refused, Err(Refusal::ByController { explanation }));
        let proof = prove(&mut world, Channel::Plain, SecureChannel::None).unwrap();
        assert_eq!((proof.hash, proof.group), (hash, group));
    }
}
