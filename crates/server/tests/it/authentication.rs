//! Hosts that prove who they are to a running target, and that have it prove itself: the initiator
//! against the target over loopback, with keys in files.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebof_authentication::{Hash, KeyMaterial, Secret};
use ebof_initiator::{ConnectErrorKind, Controller, KeySource, Options, Step};
use ebof_manage::Config;
use ebof_manage::api::{RefusalReason, Target as _};
use ebof_manage::config::{Host, KeyPlace, Security};
use ebof_nvme::{HostId, Nqn, Nsid};
use ebof_server::{Environment, Settings, Target, TextStore};
use tempfile::TempDir;

use crate::config::{NQN, one_subsystem};
use crate::raw::Raw;
use crate::waiting::until;

const HOST: &str = "nqn.2014-08.org.example:blade1";

/// A directory with keys, and a configuration that has them.
pub(crate) struct Rig {
    directory: TempDir,
    pub(crate) config: Config,
}

impl Rig {
    /// With a subsystem for any host, and one host that has a key.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let rig = Self { directory, config: one_subsystem(["mem:16Mi"]) };
        rig.put("host", &[secret(1)]);
        rig.put("subsystem", &[secret(100)]);
        let mut host = Host::new(Nqn::parse(HOST).unwrap());
        host.dhchap_key = Some(rig.place("host"));
        host.dhchap_ctrl_key = Some(rig.place("subsystem"));
        let config = Config { hosts: vec![host], ..rig.config.clone() };
        Self { config, ..rig }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn place(&self, name: &str) -> KeyPlace {
        KeyPlace::File(self.path(name).display().to_string())
    }

    /// Writes a file with keys.
    pub(crate) fn put(&self, name: &str, secrets: &[Secret]) {
        let lines: Vec<String> = secrets.iter().map(|secret| format!("{}\n", *secret.to_text())).collect();
        fs::write(self.path(name), lines.concat()).unwrap();
        fs::set_permissions(self.path(name), Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn start(&self) -> (Target, SocketAddr) {
        self.start_with(Environment::default())
    }

    fn start_with(&self, environment: Environment) -> (Target, SocketAddr) {
        let settings = Settings { threads: Some(2), pin: false, environment, ..Settings::default() };
        let target = Target::start(self.config.clone(), settings).unwrap();
        let address = target.addresses()[0].1;
        (target, address)
    }
}

pub(crate) fn secret(seed: u8) -> Secret {
    Secret::new(KeyMaterial::new(vec![seed; 32]), Some(Hash::Sha256)).unwrap()
}

fn options(address: SocketAddr) -> Options {
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    options.nr_io_queues = 2;
    options.host_nqn = Nqn::parse(HOST).unwrap();
    options
}

pub(crate) fn with_key(address: SocketAddr, key: Secret) -> Options {
    let mut options = options(address);
    options.dhchap_key = Some(KeySource::Secret(key));
    options
}

pub(crate) fn works(controller: &Controller) {
    let namespace = controller.namespace(Nsid(1)).unwrap();
    namespace.write(0, &[7; 4096], false).unwrap();
    let mut back = vec![0; 4096];
    namespace.read(0, &mut back).unwrap();
    assert_eq!(back, [7; 4096]);
}

#[test]
fn a_host_with_the_key_connects_on_all_of_its_queues() {
    let rig = Rig::new();
    let (target, address) = rig.start();
    let mut options = with_key(address, secret(1));
    works(&Controller::connect(&options).unwrap());
    // From a file, and with the target's proof.
    options.dhchap_key = Some(KeySource::File(rig.path("host")));
    options.dhchap_ctrl_key = Some(KeySource::File(rig.path("subsystem")));
    works(&Controller::connect(&options).unwrap());
    assert!(target.refused().is_empty());
}

#[test]
fn without_a_key_or_with_another_one_nobody_connects_by_that_name() {
    let rig = Rig::new();
    let (target, address) = rig.start();
    let error = Controller::connect(&options(address)).unwrap_err();
    assert_eq!(*error.kind(), ConnectErrorKind::AuthenticationRequired);
    assert!(error.to_do().contains("--dhchap-secret-file"), "{error:#}");
    let gave_up = || target.refused().iter().any(|it| it.detail.contains("before it had proven who it is"));
    until("it is noted that the host gave up", gave_up);
    let error = Controller::connect(&with_key(address, secret(2))).unwrap_err();
    assert!(matches!(error.kind(), ConnectErrorKind::Authentication(_)), "{error:#}");
    assert!(error.summary().contains("does not take this host for"), "{error:#}");
    let mut mutual = with_key(address, secret(1));
    mutual.dhchap_ctrl_key = Some(KeySource::Secret(secret(101)));
    let error = Controller::connect(&mutual).unwrap_err();
    assert!(error.answer().contains("the controller's response is wrong"), "{error:#}");
    until("nothing is left of them", || target.status().controllers.is_empty());
    // Who it was is noted.
    let refused = target.refused();
    let reasons: Vec<_> = refused.iter().map(|refusal| (refusal.reason, refusal.host_nqn.as_deref())).collect();
    assert!(reasons.contains(&(RefusalReason::NotAuthenticated, Some(HOST))), "{reasons:?}");
    // Other hosts are as before.
    let mut other = options(address);
    other.host_nqn = Nqn::parse("nqn.2014-08.org.example:other").unwrap();
    works(&Controller::connect(&other).unwrap());
}

/// Somebody else's target says that there is no need for a proof.
#[test]
fn a_target_that_does_not_ask_is_none_for_a_host_that_wants_its_proof() {
    let rig = Rig::new();
    let (_target, address) = rig.start();
    let mut options = with_key(address, secret(1));
    options.host_nqn = Nqn::parse("nqn.2014-08.org.example:other").unwrap();
    options.dhchap_ctrl_key = Some(KeySource::Secret(secret(100)));
    let error = Controller::connect(&options).unwrap_err();
    assert_eq!((error.kind(), error.tried().step), (&ConnectErrorKind::NotProven, Step::Authenticate), "{error:#}");
}

/// What a target remembers, for the next one.
#[derive(Default)]
struct Remembered(Mutex<Option<String>>);

impl TextStore for Remembered {
    fn load(&self) -> Option<String> {
        self.0.lock().unwrap().clone()
    }

    fn store(&self, text: &str) -> io::Result<()> {
        *self.0.lock().unwrap() = Some(text.to_owned());
        Ok(())
    }
}

// @test wire.unproven-hosts
#[test]
fn a_host_identifier_stays_its_owners_when_the_target_is_started_again() {
    let mut rig = Rig::new();
    let bob = Host { nqn: Nqn::parse("nqn.2014-08.org.example:bob").unwrap(), ..rig.config.hosts[0].clone() };
    rig.config.hosts.push(bob.clone());
    let remembered = Arc::new(Remembered::default());
    let start =
        |rig: &Rig| rig.start_with(Environment { host_ids: Some(remembered.clone()), ..Environment::default() });
    let by = |host: &Nqn, address| {
        let mut options = with_key(address, secret(1));
        (options.host_nqn, options.host_id) = (host.clone(), HostId([7; 16]));
        options
    };
    let (alice, bob) = (rig.config.hosts[0].nqn.clone(), bob.nqn);
    let (target, address) = start(&rig);
    works(&Controller::connect(&by(&alice, address)).unwrap());
    target.stop(Duration::from_secs(5));
    // Others cannot be faster than the owner, whether they prove their own name or none.
    let (target, address) = start(&rig);
    let mut nobody = by(&Nqn::parse("nqn.2014-08.org.example:carol").unwrap(), address);
    nobody.dhchap_key = None;
    for others in [&by(&bob, address), &nobody] {
        Controller::connect(others).unwrap_err();
        assert_eq!(target.refused().last().unwrap().reason, RefusalReason::HostIdConflict);
    }
    works(&Controller::connect(&by(&alice, address)).unwrap());
    target.stop(Duration::from_secs(5));
    // Without a key it can prove nothing any more, and its identifier is nobody's.
    rig.config.hosts.remove(0);
    let (_target, address) = start(&rig);
    works(&Controller::connect(&by(&bob, address)).unwrap());
}

#[test]
fn a_subsystem_may_want_a_proof_of_everybody() {
    let mut rig = Rig::new();
    rig.config.subsystems[0].security = Security::Authenticated;
    let (target, address) = rig.start();
    let mut other = options(address);
    other.host_nqn = Nqn::parse("nqn.2014-08.org.example:other").unwrap();
    let error = Controller::connect(&other).unwrap_err();
    assert_eq!(*error.kind(), ConnectErrorKind::HostNotAllowed);
    assert_eq!(target.refused()[0].reason, RefusalReason::NoSecret);
    works(&Controller::connect(&with_key(address, secret(1))).unwrap());
}

#[test]
fn keys_change_while_hosts_are_connected() {
    let mut rig = Rig::new();
    let (target, address) = rig.start();
    let old = Controller::connect(&with_key(address, secret(1))).unwrap();
    let namespace = old.namespace(Nsid(1)).unwrap();
    namespace.write(0, &[1; 512], false).unwrap();
    // Both are good while the new one takes the old one's place.
    rig.put("host", &[secret(1), secret(2)]);
    rig.config.target.slow_threshold = Duration::from_millis(1234);
    target.apply(rig.config.clone()).unwrap();
    works(&Controller::connect(&with_key(address, secret(2))).unwrap());
    works(&Controller::connect(&with_key(address, secret(1))).unwrap());
    rig.put("host", &[secret(2)]);
    rig.config.target.slow_threshold = Duration::from_millis(1235);
    target.apply(rig.config.clone()).unwrap();
    works(&Controller::connect(&with_key(address, secret(2))).unwrap());
    Controller::connect(&with_key(address, secret(1))).unwrap_err();
    // A file that cannot be used changes nothing, and the message names the host.
    fs::set_permissions(rig.path("host"), Permissions::from_mode(0o640)).unwrap();
    let refused = target.apply(rig.config.clone()).unwrap_err();
    let refused = format!("{refused}: {}", std::error::Error::source(&refused).unwrap());
    assert!(refused.contains(&format!("look at the keys of host {HOST}")) && refused.contains("640"), "{refused}");
    works(&Controller::connect(&with_key(address, secret(2))).unwrap());
    // Its queues were proven when they came.
    namespace.write(0, &[2; 512], false).unwrap();
}

#[test]
fn a_host_that_has_a_key_from_now_on_comes_back_with_it() {
    let rig = Rig::new();
    let with_keys = rig.config.clone();
    let without = Config { hosts: vec![Host::new(Nqn::parse(HOST).unwrap())], ..with_keys.clone() };
    let rig = Rig { config: without, ..rig };
    let (target, address) = rig.start();
    let mut options = with_key(address, secret(1));
    options.reconnect_delay_ms = 50;
    let controller = Controller::connect(&options).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    namespace.write(0, &[1; 512], false).unwrap();
    target.apply(with_keys).unwrap();
    // It waits until the connection is back.
    namespace.write(0, &[2; 512], false).unwrap();
    until("it is there, proven", || target.status().controllers.len() == 1);
}

#[test]
fn keys_that_others_could_read_or_that_are_none_keep_a_target_from_starting() {
    let rig = Rig::new();
    let start = || {
        let settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
        Target::start(rig.config.clone(), settings).unwrap_err().to_string()
    };
    let path = rig.path("host");
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let error = start();
    assert!(error.contains(HOST) && error.contains("chmod 600") && error.contains("644"), "{error}");
    for (content, part) in [
        ("", "there is no key in it"),
        ("DHHC-1:00:AAAA:\n", "line 1: the key has 3 bytes"),
        ("# a comment\n\nNVMeTLSkey-1:01:AAAA:", "line 3: this is a key for TLS"),
    ] {
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let error = start();
        assert!(error.contains(part), "{error}");
    }
    let nine: Vec<Secret> = (1..=9).map(secret).collect();
    rig.put("host", &nine);
    assert!(start().contains("more than 8 keys"));
    fs::remove_file(&path).unwrap();
    assert!(start().contains("it cannot be read"));
}

/// A thousand connections that begin and do not go on: others do not wait for them.
#[test]
fn half_finished_proofs_cost_others_nothing() {
    let rig = Rig::new();
    let settings = Settings {
        threads: Some(2),
        pin: false,
        handshake_ms: 1500,
        address_share_percent: 100,
        ..Settings::default()
    };
    let target = Target::start(rig.config.clone(), settings).unwrap();
    let address = target.addresses()[0].1;
    let proven = Controller::connect(&with_key(address, secret(1))).unwrap();
    let mut half: Vec<_> = (0..200).map(|_| Raw::connected_as(address, HOST)).collect();
    works(&proven);
    works(&Controller::connect(&with_key(address, secret(1))).unwrap());
    let status = target.status();
    assert!(status.controllers.len() <= 2, "what proves itself is not there yet");
    assert!(
        !status.proving.is_empty() && status.proving.iter().all(|it| it.host_nqn == HOST && it.subsystem_nqn == NQN)
    );
    let made_room = || target.refused().into_iter().find(|it| it.reason == RefusalReason::TooManyUnproven);
    until("it is noted who had to make room", || made_room().is_some());
    assert_eq!(made_room().unwrap().host_nqn.as_deref(), Some(HOST));
    until("they have had their time", || target.status().connections <= 6);
    half.clear();
    works(&proven);
}
