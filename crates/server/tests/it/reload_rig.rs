//! Targets whose configuration changes, and a host that checks them.

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Namespace, Options};
use ebof_manage::config::Port;
use ebof_manage::{Config, Listen};
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{Settings, Target};

use crate::config::{NQN, one_subsystem};

pub(crate) fn settings() -> Settings {
    Settings { threads: Some(2), pin: false, ..Settings::default() }
}

/// A target with these drives as its namespaces.
pub(crate) fn start(drives: &[&str]) -> (Target, Config, SocketAddr) {
    let config = one_subsystem(drives.iter().copied());
    let target = Target::start(config.clone(), settings()).unwrap();
    let address = target.addresses()[0].1;
    (target, config, address)
}

pub(crate) fn connect(address: SocketAddr) -> Controller {
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    options.nr_io_queues = 2;
    Controller::connect(&options).unwrap()
}

/// The namespace, once the controller shows it.
pub(crate) fn namespace(controller: &Controller, nsid: u32) -> Namespace {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match controller.namespace(Nsid(nsid)) {
            Ok(namespace) => return namespace,
            Err(error) => assert!(Instant::now() < end, "namespace {nsid}: {error}"),
        }
        std::thread::yield_now();
    }
}

pub(crate) fn block(namespace: &Namespace) -> Vec<u8> {
    let mut data = vec![0; namespace.block_bytes() as usize];
    namespace.read(0, &mut data).unwrap();
    data
}

/// A file of this many bytes whose first block is filled with `first`.
pub(crate) fn image(directory: &Path, name: &str, bytes: u64, first: u8) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, [first; 4096]).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(bytes).unwrap();
    path
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A configuration with this address for its port, which another process may use meanwhile.
pub(crate) fn start_at_a_number(drives: &[&str]) -> (Target, Config, SocketAddr) {
    for _ in 0..100 {
        let number = a_number();
        let mut config = one_subsystem(drives.iter().copied());
        config.ports[0] = Port::new(1, Listen::new([127, 0, 0, 1].into(), number));
        config.subsystems[0].ports = vec![config.ports[0].name.clone()];
        if let Ok(target) = Target::start(config.clone(), settings()) {
            let address = target.addresses()[0].1;
            return (target, config, address);
        }
    }
    unreachable!("a hundred free ports were taken at once")
}

/// A port that the system does not assign as an ephemeral one: below `ip_local_port_range`. So no
/// other socket gets it while it is released for a moment.
pub(crate) fn a_number() -> u16 {
    // Each process begins with another number.
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(())));
    let numbers = std::iter::repeat_with(|| 16_384 + NEXT.fetch_add(1, Relaxed) % 16_384);
    let mut numbers = numbers.filter_map(|number| u16::try_from(number).ok()).take(1000);
    numbers.find(|&number| TcpListener::bind(("0.0.0.0", number)).is_ok()).expect("a thousand ports are taken")
}

/// Reports its drop.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
