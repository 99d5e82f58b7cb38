//! Keys that hosts are given while the target runs: the initiator against the target over loopback,
//! with keys that no file has.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ebof_authentication::{ConfiguredPsk, Hash, KeyMaterial, Secret};
use ebof_initiator::{ConnectErrorKind, Controller, Options, PskSource, Tls};
use ebof_manage::Config;
use ebof_manage::api::{AddKey, Asker, HOST_KEYS_MAX, KeyKeeper as _, KeyKind, KeyText, KeysChange, Target as _};
use ebof_manage::config::{PortTls, Security};
use ebof_manage::enclosure::{MistakeKind, Refused};
use ebof_manage::events::EventKind;
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{Settings, Target};

use crate::authentication::{self, secret, with_key, works};
use crate::config::{NQN, one_subsystem};
use crate::waiting::until;

const HOST: &str = "nqn.2014-08.org.example:blade1";

fn start(config: Config) -> (Target, SocketAddr) {
    let settings = Settings { threads: Some(2), pin: false, ..Settings::default() };
    let target = Target::start(config, settings).unwrap();
    let address = target.addresses()[0].1;
    (target, address)
}

/// A subsystem that wants a proof of any host, and nobody has a key.
fn demanding() -> Config {
    let mut config = one_subsystem(["mem:16Mi"]);
    config.subsystems[0].security = Security::Authenticated;
    config
}

fn unproven(address: SocketAddr) -> Options {
    let mut options = with_key(address, secret(0));
    options.dhchap_key = None;
    options
}

fn key(kind: KeyKind, secret: &Secret) -> AddKey {
    let key = KeyText::new(secret.to_text());
    AddKey { host: HOST.to_owned(), kind, key, replace: false }
}

fn add(target: &Target, seed: u8) -> Result<KeysChange, Refused> {
    target.add(&key(KeyKind::Dhchap, &secret(seed)), None, &Asker::Library)
}

fn remove(target: &Target, ids: &[&str]) -> Result<KeysChange, Refused> {
    let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    target.remove(&ids, None, &Asker::Library)
}

fn refusal(refused: Result<KeysChange, Refused>) -> (MistakeKind, String) {
    let refused = refused.unwrap_err();
    (refused.mistakes[0].kind, refused.to_string())
}

fn ids(target: &Target) -> Vec<String> {
    target.keys().keys.into_iter().filter_map(|key| key.id).collect()
}

// @test keys.rotated
#[test]
fn a_host_connects_with_a_key_that_it_was_given_until_that_is_removed() {
    let (target, address) = start(demanding());
    let refused = |options: &Options| Controller::connect(options).unwrap_err();
    refused(&with_key(address, secret(1)));
    let added = add(&target, 1).unwrap();
    assert_eq!(added.added.unwrap().id.as_deref(), Some("k1"));
    assert!(!added.durable && added.notes.iter().any(|note| note.contains("in its memory")), "{:?}", added.notes);
    let connected = Controller::connect(&with_key(address, secret(1))).unwrap();
    works(&connected);
    assert_eq!(*refused(&unproven(address)).kind(), ConnectErrorKind::AuthenticationRequired);
    assert!(matches!(refused(&with_key(address, secret(2))).kind(), ConnectErrorKind::Authentication(_)));
    // Rotated: both are good, and who is connected stays.
    let rotated = add(&target, 2).unwrap();
    assert!(rotated.disturbed.is_empty(), "{rotated:?}");
    works(&Controller::connect(&with_key(address, secret(1))).unwrap());
    works(&Controller::connect(&with_key(address, secret(2))).unwrap());
    let removed = remove(&target, &["k1"]).unwrap();
    assert!(removed.disturbed.is_empty() && removed.notes.is_empty(), "{removed:?}");
    refused(&with_key(address, secret(1)));
    works(&Controller::connect(&with_key(address, secret(2))).unwrap());
    works(&connected);
    // The last one.
    let before = target.keys().keys;
    assert_eq!((before.len(), before[0].kind, before[0].bits), (1, KeyKind::Dhchap, 256));
    assert_eq!((before[0].connected.unwrap_or(0) > 0, before[0].hash.as_deref()), (true, Some("SHA-256")));
    let removed = remove(&target, &["k2"]).unwrap();
    assert!(removed.disturbed.iter().all(|host| host.host_nqn == HOST) && !removed.disturbed.is_empty());
    assert!(removed.notes[0].contains("cannot connect to"), "{:?}", removed.notes);
    until("it has to leave", || target.status().controllers.is_empty());
    refused(&with_key(address, secret(2)));
    // What has happened is told without a key.
    let events = target.events().since(0, 1000).events;
    let of = |kind| events.iter().filter(|event| event.kind == kind && event.object == HOST).count();
    assert_eq!((of(EventKind::KeyAdded), of(EventKind::KeyRemoved)), (2, 2));
    assert!(events.iter().all(|event| !event.message.contains("DHHC")));
    // A number is not given again.
    assert_eq!(add(&target, 3).unwrap().added.unwrap().id.as_deref(), Some("k3"));
}

// @test keys.rotated
#[test]
fn data_go_on_while_keys_are_rotated() {
    let (target, address) = start(demanding());
    add(&target, 1).unwrap();
    let controller = Controller::connect(&with_key(address, secret(1))).unwrap();
    let (rounds, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let namespace = controller.namespace(Nsid(1)).unwrap();
            while !ends.load(Relaxed) {
                let round = rounds.load(Relaxed);
                let data = vec![round as u8; 8192];
                namespace.write(16 * (round % 64), &data, false).unwrap();
                let mut back = vec![0; 8192];
                namespace.read(16 * (round % 64), &mut back).unwrap();
                assert!(back == data, "round {round}");
                rounds.fetch_add(1, Relaxed);
            }
        });
        let goes_on = || {
            let before = rounds.load(Relaxed);
            until("data go on", || rounds.load(Relaxed) > before + 10);
        };
        for seed in 2..6 {
            goes_on();
            add(&target, seed).unwrap();
            goes_on();
            remove(&target, &[&ids(&target)[0]]).unwrap();
        }
        goes_on();
        ends.store(true, Relaxed);
    });
    works(&Controller::connect(&with_key(address, secret(5))).unwrap());
    assert!(Controller::connect(&with_key(address, secret(4))).is_err());
}

// @test keys.disturbed
#[test]
fn whom_a_first_key_disturbs_is_told_before_and_binds() {
    let (target, address) = start(one_subsystem(["mem:16Mi"]));
    let first = key(KeyKind::Dhchap, &secret(1));
    let nobody = target.plan_add(&first).unwrap();
    assert!(nobody.disturbed.is_empty() && target.keys().keys.is_empty(), "a plan changes nothing");
    let controller = Controller::connect(&unproven(address)).unwrap();
    let planned = target.plan_add(&first).unwrap();
    assert_eq!(planned.disturbed.len(), 1, "{planned:?}");
    assert!(planned.disturbed[0].why.contains("has to prove who it is"), "{planned:?}");
    let (kind, told) = refusal(target.add(&first, Some(&nobody.revision), &Asker::Library));
    assert_eq!(kind, MistakeKind::Outdated, "{told}");
    assert!(target.keys().keys.is_empty());
    target.add(&first, Some(&planned.revision), &Asker::Library).unwrap();
    until("it comes again with a proof", || target.status().controllers.is_empty());
    drop(controller);
    assert!(Controller::connect(&unproven(address)).is_err());
    works(&Controller::connect(&with_key(address, secret(1))).unwrap());
    // Without it, the name is a claim again.
    let removed = target.plan_remove(&["k1".to_owned()]).unwrap();
    assert!(removed.notes[0].contains("whoever gives its name"), "{removed:?}");
}

#[test]
fn what_a_host_may_have_is_limited() {
    let (target, _) = start(one_subsystem(["mem:16Mi"]));
    let ctrl = |seed: u8| key(KeyKind::DhchapCtrl, &secret(seed));
    let conflict = |refused| {
        let (kind, told) = refusal(refused);
        assert_eq!(kind, MistakeKind::Conflict, "{told}");
        told
    };
    let put = |key: &AddKey| target.add(key, None, &Asker::Library);
    assert!(conflict(put(&ctrl(100))).contains("it has no dhchap key"));
    for seed in 0..HOST_KEYS_MAX as u8 {
        add(&target, seed).unwrap();
    }
    assert!(conflict(add(&target, 99)).contains("8 dhchap keys, as many as it may have"));
    assert!(conflict(add(&target, 3)).contains("it has this key already: k4"));
    put(&ctrl(100)).unwrap();
    assert!(conflict(put(&ctrl(101))).contains("there can be one only"));
    let replaced = put(&AddKey { replace: true, ..ctrl(101) }).unwrap();
    assert_eq!(replaced.removed[0].id.as_deref(), Some("k9"));
    // All or none.
    assert_eq!(refusal(remove(&target, &["k1", "k99"])).0, MistakeKind::NotFound);
    assert_eq!(ids(&target).len(), 9);
    for (host, text) in [
        ("DHHC-1:00:MARKED:", "x"),
        ("not an nqn\n", "DHHC-1:00:MARKED:"),
        (HOST, "DHHC-1:00:MARKED:"),
        (HOST, "MARKED"),
    ] {
        let wrong = AddKey { host: host.to_owned(), key: KeyText::new(text.to_owned()), ..ctrl(1) };
        let (kind, told) = refusal(put(&wrong));
        assert!(kind == MistakeKind::Value && !told.contains("MARKED"), "{told}");
    }
    assert!(!refusal(remove(&target, &["DHHC-1:00:MARKED:"])).1.contains("MARKED"));
    let replaced = put(&AddKey { replace: true, ..key(KeyKind::Dhchap, &secret(50)) }).unwrap();
    assert_eq!((replaced.removed.len(), ids(&target)), (8, vec!["k11".to_owned(), "k10".to_owned()]));
}

#[test]
fn keys_of_the_configuration_and_stored_ones_are_good_side_by_side() {
    let rig = authentication::Rig::new();
    let (target, address) = rig.start();
    add(&target, 2).unwrap();
    works(&Controller::connect(&with_key(address, secret(1))).unwrap());
    works(&Controller::connect(&with_key(address, secret(2))).unwrap());
    let keys = target.keys().keys;
    let shown: Vec<_> = keys.iter().map(|key| (key.kind, key.id.as_deref(), key.place.is_some())).collect();
    let configured = [(KeyKind::Dhchap, None, true), (KeyKind::DhchapCtrl, None, true)];
    assert_eq!(shown, [configured[0], (KeyKind::Dhchap, Some("k1"), false), configured[1]]);
    let told = refusal(add(&target, 1)).1;
    assert!(told.contains("its configuration has this key already"), "{told}");
    let told = refusal(target.add(&key(KeyKind::DhchapCtrl, &secret(101)), None, &Asker::Library)).1;
    assert!(told.contains("that of the configuration") && told.contains("ebof target reload"), "{told}");
    // A change of the configuration leaves stored keys alone.
    let mut config = rig.config.clone();
    config.hosts[0].dhchap_ctrl_key = None;
    config.hosts[0].dhchap_key = None;
    target.apply(config).unwrap();
    assert!(Controller::connect(&with_key(address, secret(1))).is_err());
    works(&Controller::connect(&with_key(address, secret(2))).unwrap());
    assert!(Controller::connect(&unproven(address)).is_err());
}

#[test]
fn a_host_connects_over_tls_with_a_key_that_it_was_given() {
    let mut config = one_subsystem(["mem:16Mi"]);
    config.ports[0].tls = PortTls::Required;
    let (target, address) = start(config);
    let psk = ConfiguredPsk::new(KeyMaterial::new(vec![5; 48]), Some(Hash::Sha384)).unwrap();
    let mut options = unproven(address);
    options.host_nqn = Nqn::parse(HOST).unwrap();
    options.tls = Some(Tls::new(PskSource::Psk(psk.clone())));
    assert!(Controller::connect(&options).is_err());
    let add = AddKey { host: HOST.to_owned(), kind: KeyKind::Tls, key: KeyText::new(psk.to_text()), replace: false };
    let added = target.add(&add, None, &Asker::Library).unwrap();
    assert_eq!(added.added.map(|key| (key.bits, key.hash)), Some((384, Some("SHA-384".to_owned()))));
    let controller = Controller::connect(&options).unwrap();
    works(&controller);
    assert_eq!(target.keys().keys[0].connected, Some(1));
    let planned = target.plan_remove(&["k1".to_owned()]).unwrap();
    assert_eq!((planned.disturbed.len(), &*planned.disturbed[0].subsystem_nqn), (1, NQN));
    remove(&target, &["k1"]).unwrap();
    until("it has to leave", || target.status().controllers.is_empty());
    drop(controller);
    assert!(Controller::connect(&options).is_err());
}
