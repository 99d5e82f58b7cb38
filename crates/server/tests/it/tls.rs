//! Connections over TLS: the initiator against a running target over loopback, with keys in files,
//! and with somebody between both who reads along.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebof_authentication::{ConfiguredPsk, Hash, KeyMaterial};
use ebof_initiator::{ConnectErrorKind, Controller, KeySource, Options, PskSource, RecordsBy, Tls};
use ebof_manage::Config;
use ebof_manage::api::{RefusalReason, Target as _};
use ebof_manage::config::{Host, KeyPlace, PortTls, Security, TlsRecords};
use ebof_nvme::{HostId, Nqn, Nsid};
use ebof_server::{Settings, Target};
use tempfile::TempDir;

use crate::authentication::secret;
use crate::config::{NQN, one_subsystem};
use crate::waiting::until;

const HOST: &str = "nqn.2014-08.org.example:blade1";
const OTHER: &str = "nqn.2014-08.org.example:other";

struct Rig {
    directory: TempDir,
    config: Config,
}

impl Rig {
    /// With a subsystem for any host, and one host that has these keys.
    fn new(tls: PortTls, psks: &[ConfiguredPsk]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut rig = Self { directory, config: one_subsystem(["mem:16Mi"]) };
        rig.put(psks);
        let mut host = Host::new(Nqn::parse(HOST).unwrap());
        host.tls_psk = Some(KeyPlace::File(rig.directory.path().join("keys").display().to_string()));
        rig.config.hosts = vec![host];
        rig.config.ports[0].tls = tls;
        rig.config.ports[0].zerocopy_send_bytes = Some(4096);
        rig
    }

    fn put(&self, psks: &[ConfiguredPsk]) {
        let path = self.directory.path().join("keys");
        let lines: Vec<String> = psks.iter().map(|psk| format!("{}\n", *psk.to_text())).collect();
        fs::write(&path, lines.concat()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }

    fn start(&self) -> (Target, SocketAddr) {
        let settings = Settings { threads: Some(2), pin: false, ..Settings::default() };
        let target = Target::start(self.config.clone(), settings).unwrap();
        let address = target.addresses()[0].1;
        (target, address)
    }
}

fn psk(seed: u8, hash: Hash) -> ConfiguredPsk {
    ConfiguredPsk::new(KeyMaterial::new(vec![seed; hash.bytes()]), Some(hash)).unwrap()
}

fn plain(address: SocketAddr) -> Options {
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    options.nr_io_queues = 2;
    options.host_nqn = Nqn::parse(HOST).unwrap();
    options
}

fn secured(address: SocketAddr, psk: ConfiguredPsk) -> Options {
    let mut options = plain(address);
    options.tls = Some(Tls::new(PskSource::Psk(psk)));
    options
}

/// Writes and reads back: little, and more than a record.
fn works(controller: &Controller) {
    let namespace = controller.namespace(Nsid(1)).unwrap();
    for bytes in [512, 4096, 1 << 20] {
        let data: Vec<u8> = (0..bytes).map(|at: usize| (at / 7 + bytes) as u8).collect();
        namespace.write(0, &data, false).unwrap();
        let mut back = vec![0; bytes];
        namespace.read(0, &mut back).unwrap();
        assert!(back == data, "{bytes} bytes");
    }
}

fn reasons(target: &Target) -> Vec<RefusalReason> {
    target.refused().iter().map(|refusal| refusal.reason).collect()
}

#[test]
fn a_host_with_a_key_connects_on_all_of_its_queues() {
    for hash in [Hash::Sha256, Hash::Sha384] {
        let rig = Rig::new(PortTls::Required, &[psk(1, hash), psk(2, hash)]);
        let (target, address) = rig.start();
        for seed in [1, 2] {
            let controller = Controller::connect(&secured(address, psk(seed, hash))).unwrap();
            works(&controller);
            let proofs: Vec<_> = target.status().controllers.iter().map(|controller| controller.proof).collect();
            assert_eq!(proofs, [Security::Tls]);
            drop(controller);
            until("it is gone", || target.status().controllers.is_empty());
        }
        assert!(target.refused().is_empty());
    }
}

/// Where the kernel has no TLS, or no module is loaded, both ends make the records themselves.
#[test]
fn records_of_the_kernel_are_used_where_there_are_any_and_own_ones_elsewhere() {
    let mut rig = Rig::new(PortTls::Required, &[psk(1, Hash::Sha256)]);
    for (target_by, host_by) in [
        (TlsRecords::Own, RecordsBy::Kernel),
        (TlsRecords::Kernel, RecordsBy::Own),
        (TlsRecords::Kernel, RecordsBy::Kernel),
    ] {
        rig.config.ports[0].tls_records = target_by;
        let (target, address) = rig.start();
        let mut options = secured(address, psk(1, Hash::Sha256));
        options.tls_records = host_by;
        let controller = Controller::connect(&options).unwrap();
        works(&controller);
        for queue in &target.status().controllers[0].queues {
            let records = queue.tls_records.as_deref();
            match target_by {
                TlsRecords::Own => assert_eq!(records, Some("own")),
                TlsRecords::Kernel if records == Some("own") => println!("SKIPPED: this kernel has no TLS"),
                TlsRecords::Kernel => assert_eq!(records, Some("kernel")),
            }
        }
    }
}

#[test]
fn who_has_no_key_or_another_one_is_told_apart() {
    let rig = Rig::new(PortTls::Required, &[psk(1, Hash::Sha256)]);
    let (target, address) = rig.start();
    let error = Controller::connect(&secured(address, psk(2, Hash::Sha256))).unwrap_err();
    assert!(matches!(error.kind(), ConnectErrorKind::Tls { .. }), "{error:#}");
    let detail = target.refused().iter().map(|refusal| refusal.detail.clone()).collect::<String>();
    assert!(detail.contains("its binder fits none"), "{detail}");
    let mut stranger = secured(address, psk(1, Hash::Sha256));
    stranger.host_nqn = Nqn::parse(OTHER).unwrap();
    let error = Controller::connect(&stranger).unwrap_err();
    assert!(error.answer().contains("decrypt_error"), "{error:#}");
    assert!(target.refused().iter().any(|refusal| refusal.host_nqn.as_deref() == Some(OTHER)));
    assert!(reasons(&target).iter().all(|reason| *reason == RefusalReason::TlsFailed));
    Controller::connect(&plain(address)).unwrap_err();
    until("it is noted", || reasons(&target).contains(&RefusalReason::TlsRequired));
    until("nothing is left of them", || target.status().connections == 0);
}

/// The first PDU of a host without TLS.
fn ic_req() -> Vec<u8> {
    [&[0, 0, 128, 0, 128, 0, 0, 0][..], &[0; 120]].concat()
}

/// A reset would destroy the alert on its way, so that what the host has sent is read away. That
/// has an end.
#[test]
fn a_host_without_tls_gets_an_alert_and_no_reset() {
    const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 10];
    let rig = Rig::new(PortTls::Required, &[psk(1, Hash::Sha256)]);
    let settings = Settings { threads: Some(1), pin: false, handshake_ms: 2000, ..Settings::default() };
    let target = Target::start(rig.config.clone(), settings).unwrap();
    let address = target.addresses()[0].1;
    for behind in [0, 1, 20_000] {
        let mut host = TcpStream::connect(address).unwrap();
        host.write_all(&[ic_req(), vec![7; behind]].concat()).unwrap();
        let mut told = Vec::new();
        host.read_to_end(&mut told).unwrap();
        assert_eq!(told, ALERT, "{behind} bytes behind it");
        // More of it that comes late is read away, too.
        host.write_all(&[7; 100]).unwrap();
        drop(host);
        until("the connection is gone", || target.status().connections == 0);
    }
    let refused = target.refused();
    assert!(refused.iter().all(|refusal| refusal.reason == RefusalReason::TlsRequired), "{refused:?}");
    assert_eq!(refused.iter().map(|refusal| refusal.count).sum::<u64>(), 3, "each is told once: {refused:?}");
    // Nobody keeps a connection by sending on, or by not leaving.
    let mut endless = TcpStream::connect(address).unwrap();
    endless.write_all(&ic_req()).unwrap();
    let sent = (0..1000).take_while(|_| endless.write_all(&[7; 64 << 10]).is_ok()).count();
    assert!(sent < 1000, "64 MiB were taken");
    let mut staying = TcpStream::connect(address).unwrap();
    staying.write_all(&ic_req()).unwrap();
    until("they are let go", || target.status().connections == 0);
    assert!(reasons(&target).iter().all(|reason| *reason == RefusalReason::TlsRequired));
    drop(staying);
}

#[test]
fn a_host_learns_that_a_port_demands_tls() {
    let rig = Rig::new(PortTls::Required, &[psk(1, Hash::Sha256)]);
    let (_target, address) = rig.start();
    let mut options = plain(address);
    let error = Controller::connect(&options).unwrap_err();
    assert_eq!(error.kind().name(), "tls-required", "{error:#}");
    assert!(error.to_do().contains("--tls --tls-key-file FILE"), "{error:#}");
    options.concat = true;
    options.dhchap_key = Some(KeySource::Secret(secret(1)));
    let error = Controller::connect(&options).unwrap_err();
    assert!(error.to_do().contains("tls = \"allowed\""), "{error:#}");
}

/// The first answer says it: no other name or derivation of the key is tried.
#[test]
fn a_host_with_tls_learns_that_a_port_has_none() {
    let rig = Rig::new(PortTls::Off, &[psk(1, Hash::Sha256)]);
    let (target, address) = rig.start();
    for records in [RecordsBy::Own, RecordsBy::Kernel] {
        let mut options = secured(address, psk(1, Hash::Sha256));
        options.tls_records = records;
        let error = Controller::connect(&options).unwrap_err();
        assert_eq!(error.kind(), &ConnectErrorKind::NoTls, "{error:#}");
    }
    until("both are noted", || target.refused().iter().map(|refusal| refusal.count).sum::<u64>() == 2);
    assert!(reasons(&target).iter().all(|reason| *reason == RefusalReason::Tls));
    let detail = target.refused()[0].detail.clone();
    assert_eq!(detail, "the host speaks TLS (it begins with a ClientHello), and the port has `tls = \"off\"`");
}

#[test]
fn a_port_may_have_both_and_a_subsystem_may_want_tls() {
    let mut rig = Rig::new(PortTls::Allowed, &[psk(1, Hash::Sha256)]);
    let (target, address) = rig.start();
    let mut other = plain(address);
    other.host_nqn = Nqn::parse(OTHER).unwrap();
    other.host_id = HostId([9; 16]);
    let both = [plain(address), secured(address, psk(1, Hash::Sha256)), other];
    let controllers: Vec<_> = both.iter().map(|options| Controller::connect(options).unwrap()).collect();
    controllers.iter().for_each(works);
    assert!(target.refused().is_empty());
    rig.config.subsystems[0].security = Security::Tls;
    target.apply(rig.config.clone()).unwrap();
    until("those without TLS are gone", || target.status().controllers.len() == 1);
    works(&controllers[1]);
    Controller::connect(&plain(address)).unwrap_err();
    assert_eq!(reasons(&target), [RefusalReason::TlsRequired]);
}

#[test]
fn connections_of_a_host_whose_keys_are_gone_end() {
    let mut rig = Rig::new(PortTls::Required, &[psk(1, Hash::Sha256)]);
    let (target, address) = rig.start();
    let controller = Controller::connect(&secured(address, psk(1, Hash::Sha256))).unwrap();
    works(&controller);
    // Another key: who is there stays, and who comes needs it.
    rig.put(&[psk(2, Hash::Sha256)]);
    rig.config.target.slow_threshold = Duration::from_millis(1234);
    target.apply(rig.config.clone()).unwrap();
    works(&controller);
    works(&Controller::connect(&secured(address, psk(2, Hash::Sha256))).unwrap());
    Controller::connect(&secured(address, psk(1, Hash::Sha256))).unwrap_err();
    rig.config.hosts[0].tls_psk = None;
    target.apply(rig.config.clone()).unwrap();
    until("its controller is gone", || target.status().controllers.is_empty());
}

/// Who connects and says nothing, or half a ClientHello, costs others nothing and is let go.
#[test]
fn handshakes_that_do_not_go_on_hold_up_nobody() {
    let rig = Rig::new(PortTls::Allowed, &[psk(1, Hash::Sha256)]);
    let settings = Settings { threads: Some(1), pin: false, handshake_ms: 2000, ..Settings::default() };
    let target = Target::start(rig.config.clone(), settings).unwrap();
    let address = target.addresses()[0].1;
    let beginnings: [&[u8]; 4] = [b"", &[22, 3], &[22, 3, 1, 2, 0, 1], &[0, 0, 128]];
    let silent: Vec<TcpStream> = (0..40)
        .map(|at| {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(beginnings[at % 4]).unwrap();
            socket
        })
        .collect();
    works(&Controller::connect(&secured(address, psk(1, Hash::Sha256))).unwrap());
    works(&Controller::connect(&plain(address)).unwrap());
    until("all are let go", || target.status().connections == 0);
    assert!(reasons(&target).contains(&RefusalReason::HandshakeTimeout));
    drop(silent);
}

/// The thread of handshakes sleeps while a peer that has sent a byte sends no more.
#[test]
fn a_byte_keeps_no_processor_busy() {
    let rig = Rig::new(PortTls::Allowed, &[psk(1, Hash::Sha256)]);
    let (_target, address) = rig.start();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(&[22]).unwrap();
    let task = |task: std::path::PathBuf| {
        let is_ours = fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "ebof-tls");
        is_ours.then(|| fs::read_to_string(task.join("stat")).unwrap())
    };
    let busy = || {
        let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(|entry| task(entry.unwrap().path()));
        // utime and stime, hundredths of a second.
        tasks
            .map(|stat| stat.split(' ').skip(13).take(2).map(|field| field.parse::<u64>().unwrap()).sum::<u64>())
            .sum::<u64>()
    };
    std::thread::sleep(Duration::from_millis(200));
    let before = busy();
    std::thread::sleep(Duration::from_millis(600));
    assert!(busy() - before < 30, "the thread was busy for {} ms", (busy() - before) * 10);
}

/// Passes connections on, and keeps what they carry.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Wire {
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let all = Arc::clone(&seen);
        std::thread::spawn(move || {
            for host in listener.incoming().map_while(Result::ok) {
                let there = TcpStream::connect(target).unwrap();
                for (mut from, mut to) in [(host.try_clone().unwrap(), there.try_clone().unwrap()), (there, host)] {
                    let seen = Arc::clone(&all);
                    std::thread::spawn(move || {
                        let mut bytes = vec![0; 64 << 10];
                        while let Ok(count) = from.read(&mut bytes) {
                            if count == 0 || to.write_all(&bytes[..count]).is_err() {
                                break;
                            }
                            seen.lock().unwrap().extend_from_slice(&bytes[..count]);
                        }
                        let _ended = to.shutdown(std::net::Shutdown::Write);
                    });
                }
            }
        });
        Self { address, seen }
    }

    /// Whether it has carried the text, in any direction.
    pub(crate) fn has_seen(&self, text: &[u8]) -> bool {
        let seen = self.seen.lock().unwrap();
        assert!(!seen.is_empty());
        seen.windows(text.len()).any(|window| window == text)
    }
}

/// All ways by which data leave: a copy, a resident drive's lent memory, sending without a copy, in
/// a capsule, requested, received into their buffer.
#[test]
fn nothing_is_on_the_wire_in_the_clear() {
    const MARK: &[u8] = b"the text that nobody else may read";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("drive.img");
    fs::write(&file, vec![0; 16 << 20]).unwrap();
    for (is_secured, drive) in [(false, "mem:16Mi"), (true, "mem:16Mi"), (true, file.to_str().unwrap())] {
        let mut rig = Rig::new(PortTls::Allowed, &[psk(1, Hash::Sha256)]);
        rig.config.subsystems = one_subsystem([drive]).subsystems;
        let (_target, address) = rig.start();
        let wire = Wire::to(address);
        let mut options = if is_secured { secured(wire.address, psk(1, Hash::Sha256)) } else { plain(wire.address) };
        options.zerocopy_send = Some(4096);
        let controller = Controller::connect(&options).unwrap();
        let namespace = controller.namespace(Nsid(1)).unwrap();
        for bytes in [512, 4096, 64 << 10, 512 << 10] {
            let data: Vec<u8> = MARK.iter().copied().cycle().take(bytes).collect();
            namespace.write(0, &data, false).unwrap();
            let mut back = vec![0; bytes];
            namespace.read(0, &mut back).unwrap();
            assert!(back == data);
        }
        drop(controller);
        assert_eq!(wire.has_seen(MARK), !is_secured, "{drive}");
        // The identity of a key has the names of its host and subsystem.
        assert!(wire.has_seen(HOST.as_bytes()));
    }
}
