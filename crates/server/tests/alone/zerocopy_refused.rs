//! Zero-copy send if a process may pin very little memory: the rest is copied, and nothing fails.
//! The limit belongs to the process.

use ebof_initiator::{Controller, Data, Options, QueuePair};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{Settings, Target};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::config::{NQN, one_subsystem};
use crate::is_alone;

const BYTES: u32 = 256 << 10;

/// Limits as for a user who is not root, and may pin four pages.
fn limit_pinning() {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None).unwrap();
    let effective = effective - CapabilitySet::IPC_LOCK;
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable }).unwrap();
    let limit = Rlimit { current: Some(16 << 10), maximum: getrlimit(Resource::Memlock).maximum };
    setrlimit(Resource::Memlock, limit).unwrap();
}

#[test]
fn memory_that_the_kernel_cannot_pin_is_copied() {
    if !is_alone("zerocopy_refused::memory_that_the_kernel_cannot_pin_is_copied") {
        return;
    }
    // Before threads are started: they inherit it.
    limit_pinning();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive");
    std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let mut config = one_subsystem([path.to_str().unwrap()]);
    config.ports[0].zerocopy_send_bytes = Some(4096);
    let settings = Settings { threads: Some(1), pin: false, zerocopy_copied_max: u32::MAX, ..Settings::default() };
    let target = Target::start(config, settings).unwrap();
    let address = target.addresses()[0].1;
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    options.zerocopy_send = Some(4096);
    options.zerocopy_copied_max = u32::MAX;
    let controller = Controller::connect(&options).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    let fill = |place: u64| vec![u8::try_from(place).unwrap() ^ 0x5a; BYTES as usize];
    for opcode in [nvm::WRITE, nvm::READ] {
        for place in 0..64 {
            let sqe = BlockRange::new(place * u64::from(BYTES / 512), BYTES / 512).encode(opcode, Nsid(1));
            let data =
                if opcode == nvm::WRITE { Data::FromHost(fill(place)) } else { Data::ToHost(vec![0; 256 << 10]) };
            queue.submit(sqe, data, place).unwrap();
        }
        while queue.in_flight() > 0 {
            let completion = queue.wait(None).unwrap().unwrap();
            assert!(completion.result.unwrap().status().is_success());
            assert!(completion.data.into_buffer().unwrap() == fill(completion.user), "place {}", completion.user);
        }
    }
    let metrics = target.metrics(ebof_server::Exposition::OpenMetrics, ebof_server::MetricsDetail::Queue);
    let refused = metrics.lines().find_map(|line| line.strip_prefix("ebof_zerocopy_refused_total ")).unwrap();
    assert!(refused.parse::<u64>().unwrap() > 0, "{metrics}");
}
