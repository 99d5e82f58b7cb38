//! A running target as a host sees it: the initiator against the target over loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ebof_initiator::{AdminData, Controller, Data, Event, Options, QueuePair};
use ebof_manage::Config;
use ebof_manage::api::{RefusalReason, Target as _};
use ebof_manage::config::{BlockSize, Host};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nqn, Nsid, Status};
use ebof_server::{Exposition, MetricsDetail, Settings, Target};

use crate::config::{NQN, one_subsystem};
use crate::heard::next_event;
use crate::waiting::until;

fn log() {
    use tracing_subscriber::EnvFilter;
    let _ = tracing_subscriber::fmt().with_env_filter(EnvFilter::from_env("EBOF_LOG")).with_test_writer().try_init();
}

fn config(drives: &[&str]) -> Config {
    one_subsystem(drives.iter().copied())
}

fn settings() -> Settings {
    Settings { threads: Some(2), pin: false, ..Settings::default() }
}

fn start(config: Config) -> (Target, SocketAddr) {
    log();
    let target = Target::start(config, settings()).unwrap();
    let address = target.addresses()[0].1;
    (target, address)
}

fn options(address: SocketAddr) -> Options {
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    options.nr_io_queues = 2;
    options
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed).collect()
}

#[test]
fn data_written_are_read_back_at_every_size_with_and_without_digests() {
    let (_target, address) = start(config(&["mem:64Mi"]));
    for digests in [false, true] {
        let mut options = options(address);
        options.hdr_digest = digests;
        options.data_digest = digests;
        let controller = Controller::connect(&options).unwrap();
        let namespace = controller.namespace(Nsid(1)).unwrap();
        assert_eq!((namespace.block_bytes(), namespace.blocks()), (512, 131_072));
        for (seed, blocks) in [1_usize, 2, 8, 16, 17, 255, 256, 2048, 4096].into_iter().enumerate() {
            let data = pattern(blocks * 512, seed as u8);
            let lba = seed as u64 * 4096;
            namespace.write(lba, &data, seed % 2 == 0).unwrap();
            let mut back = vec![0; data.len()];
            namespace.read(lba, &mut back).unwrap();
            assert!(back == data, "{blocks} blocks, digests {digests}");
            assert!(namespace.compare(lba, &data).unwrap());
            back[0] ^= 1;
            assert!(!namespace.compare(lba, &back).unwrap());
        }
        namespace.flush().unwrap();
        controller.disconnect();
    }
}

#[test]
fn zeroed_deallocated_and_verified_blocks() {
    let (_target, address) = start(config(&["mem:16Mi"]));
    let controller = Controller::connect(&options(address)).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    namespace.write(0, &pattern(1 << 20, 1), false).unwrap();
    namespace.write_zeroes(8, 16, false).unwrap();
    namespace.deallocate(&[(64, 64), (256, 256)]).unwrap();
    namespace.verify(0, 2048).unwrap();
    let mut back = vec![0; 1 << 20];
    namespace.read(0, &mut back).unwrap();
    let mut expected = pattern(1 << 20, 1);
    for (lba, blocks) in [(8, 16), (64, 64), (256, 256)] {
        expected[lba * 512..(lba + blocks) * 512].fill(0);
    }
    assert!(back == expected);
}

#[test]
fn a_file_namespace_keeps_its_data() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let drive = format!("{}:8Mi", path.display());
    let mut config = config(&[&drive]);
    config.subsystems[0].namespaces[0].block_size = Some(BlockSize::B4096);
    let data = pattern(1 << 20, 9);
    {
        let (target, address) = start(config.clone());
        let controller = Controller::connect(&options(address)).unwrap();
        let namespace = controller.namespace(Nsid(1)).unwrap();
        assert_eq!((namespace.block_bytes(), namespace.blocks()), (4096, 2048));
        namespace.write(16, &data, false).unwrap();
        namespace.flush().unwrap();
        controller.disconnect();
        target.stop(Duration::from_secs(5));
    }
    assert!(std::fs::read(&path).unwrap()[16 * 4096..][..data.len()] == data);
    let (_target, address) = start(config);
    let controller = Controller::connect(&options(address)).unwrap();
    let mut back = vec![0; data.len()];
    controller.namespace(Nsid(1)).unwrap().read(16, &mut back).unwrap();
    assert!(back == data);
}

// @test data.completed-once
#[test]
fn a_deep_queue_completes_every_command_once_with_its_own_data() {
    let (_target, address) = start(config(&["mem:64Mi"]));
    let controller = Controller::connect(&options(address)).unwrap();
    let mut queue: QueuePair<Vec<u8>> = controller.queue_pair().unwrap();
    let sizes = [8_u32, 1, 64, 256, 2048, 16, 3];
    let mut lba = 0_u64;
    let mut written = Vec::new();
    for round in 0..200_usize {
        let blocks = sizes[round % sizes.len()];
        let data = pattern(blocks as usize * 512, round as u8);
        let sqe = BlockRange::new(lba, blocks).encode(nvm::WRITE, Nsid(1));
        while queue.in_flight() == queue.capacity() {
            assert!(queue.wait(None).unwrap().unwrap().result.is_ok());
        }
        queue.submit(sqe, Data::FromHost(data.clone()), 0).unwrap();
        written.push((lba, blocks, data));
        lba += u64::from(blocks);
    }
    while queue.in_flight() > 0 {
        assert!(queue.wait(None).unwrap().unwrap().result.is_ok());
    }
    let mut seen = vec![0; written.len()];
    let mut next = 0;
    while seen.iter().sum::<i32>() < written.len() as i32 {
        while next < written.len() && queue.in_flight() < queue.capacity() {
            let (lba, blocks, data) = &written[next];
            let sqe = BlockRange::new(*lba, *blocks).encode(nvm::READ, Nsid(1));
            queue.submit(sqe, Data::ToHost(vec![0; data.len()]), next as u64).unwrap();
            next += 1;
        }
        let completion = queue.wait(None).unwrap().unwrap();
        let at = completion.user as usize;
        assert!(completion.result.is_ok());
        assert!(completion.data.into_buffer().unwrap() == written[at].2, "command {at}");
        seen[at] += 1;
    }
    assert!(seen.iter().all(|&times| times == 1));
}

#[test]
fn write_protection_and_the_end_of_the_namespace_have_their_status() {
    let mut config = config(&["mem:1Mi", "mem:1Mi"]);
    config.subsystems[0].namespaces[1].write_protect = true;
    let (_target, address) = start(config);
    let controller = Controller::connect(&options(address)).unwrap();
    let mut queue: QueuePair<Vec<u8>> = controller.queue_pair().unwrap();
    let mut block = vec![1; 512];
    let beyond = BlockRange::new(2048, 1).encode(nvm::READ, Nsid(1));
    let cqe = queue.execute(beyond, AdminData::ToHost(&mut block)).unwrap();
    assert!(cqe.status().is(Status::LBA_OUT_OF_RANGE), "{}", cqe.status());
    let protected = BlockRange::new(0, 1).encode(nvm::WRITE, Nsid(2));
    let cqe = queue.execute(protected, AdminData::FromHost(&block)).unwrap();
    assert!(cqe.status().is(Status::NAMESPACE_WRITE_PROTECTED), "{}", cqe.status());
    let unknown = BlockRange::new(0, 1).encode(nvm::READ, Nsid(7));
    let cqe = queue.execute(unknown, AdminData::ToHost(&mut block)).unwrap();
    assert!(cqe.status().is(Status::INVALID_NAMESPACE), "{}", cqe.status());
}

#[test]
fn hosts_that_are_not_allowed_are_refused_and_logged() {
    let mut config = config(&["mem:1Mi"]);
    config.subsystems[0].allow_any_host = false;
    let allowed = Nqn::parse("nqn.2014-08.org.example:friend").unwrap();
    config.hosts.push(Host::new(allowed.clone()));
    config.subsystems[0].allowed_hosts.push(allowed.clone());
    let (target, address) = start(config);
    let mut options = options(address);
    options.host_nqn = Nqn::parse("nqn.2014-08.org.example:stranger").unwrap();
    let error = Controller::connect(&options).unwrap_err();
    assert!(format!("{error:#}").contains("Connect Invalid Host"), "{error:#}");
    let refused = target.refused();
    assert_eq!((refused.len(), refused[0].reason), (1, RefusalReason::HostNotAllowed));
    assert_eq!(refused[0].host_nqn.as_deref(), Some("nqn.2014-08.org.example:stranger"));
    options.host_nqn = allowed;
    Controller::connect(&options).unwrap().disconnect();
}

// @test data.add-namespace
#[test]
fn namespaces_are_added_and_removed_while_a_host_is_connected() {
    let (target, address) = start(config(&["mem:1Mi"]));
    let controller = Controller::connect(&options(address)).unwrap();
    let events = controller.events();
    assert_eq!(controller.namespaces().unwrap(), [Nsid(1)]);
    target.apply(config(&["mem:1Mi", "mem:2Mi"])).unwrap();
    let event = next_event(&events);
    assert!(matches!(event, Event::NamespaceAdded(Nsid(2))), "{event:?}");
    let namespace = controller.namespace(Nsid(2)).unwrap();
    namespace.write(0, &[7; 512], false).unwrap();
    target.apply(config(&["mem:1Mi"])).unwrap();
    let event = next_event(&events);
    assert!(matches!(event, Event::NamespaceRemoved(Nsid(2))), "{event:?}");
    assert!(namespace.read(0, &mut [0; 512]).is_err());
}

// @test hostile.floods
// @test limits.connections
#[test]
fn garbage_silence_and_floods_of_connections_do_not_affect_others() {
    let mut settings = settings();
    settings.handshake_ms = 300;
    settings.connections_max = 300;
    // Another test checks the limit of one address.
    settings.address_share_percent = 100;
    let target = Target::start(config(&["mem:1Mi"]), settings).unwrap();
    let address = target.addresses()[0].1;
    let controller = Controller::connect(&options(address)).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    let mut garbage = TcpStream::connect(address).unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    garbage.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.first(), Some(&3), "a C2HTermReq: {answer:?}");
    let silent: Vec<_> = (0..400).filter_map(|_| TcpStream::connect(address).ok()).collect();
    namespace.write(0, &[1; 4096], false).unwrap();
    until("the closed connections are gone", || target.status().connections <= 3);
    drop(silent);
    namespace.read(0, &mut [0; 4096]).unwrap();
    let reasons: Vec<_> = target.refused().iter().map(|refusal| refusal.reason).collect();
    assert!(reasons.contains(&RefusalReason::NotNvme), "{reasons:?}");
    assert!(reasons.contains(&RefusalReason::HandshakeTimeout), "{reasons:?}");
    assert!(reasons.contains(&RefusalReason::TooManyConnections), "{reasons:?}");
}

// @test data.shutdown
#[test]
fn a_shutdown_completes_accepted_commands() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let (target, address) = start(config(&[&format!("{}:64Mi", path.display())]));
    let controller = Controller::connect(&options(address)).unwrap();
    let mut queue: QueuePair<Vec<u8>> = controller.queue_pair().unwrap();
    for at in 0..32 {
        let sqe = BlockRange::new(at * 256, 256).encode(nvm::WRITE, Nsid(1));
        queue.submit(sqe, Data::FromHost(vec![at as u8 + 1; 256 * 512]), at).unwrap();
    }
    queue.flush().unwrap();
    let mut acknowledged = vec![queue.wait(None).unwrap().unwrap().user];
    let begun = Instant::now();
    let stopper = std::thread::spawn(move || target.stop(Duration::from_secs(10)));
    while queue.in_flight() > 0 {
        let completion = queue.wait(Some(Instant::now() + Duration::from_secs(10))).unwrap().expect("no command hangs");
        match completion.result {
            Ok(cqe) => {
                assert!(cqe.status().is_success(), "{}", cqe.status());
                acknowledged.push(completion.user);
            }
            // Not accepted any more: the connection was closed.
            Err(error) => assert_eq!(error.kind(), "connection-lost", "{error}"),
        }
    }
    stopper.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "the target waited for its deadline");
    let content = std::fs::read(&path).unwrap();
    for at in acknowledged {
        let written = &content[at as usize * 256 * 512..][..256 * 512];
        assert!(written.iter().all(|&byte| byte == at as u8 + 1), "command {at} was acknowledged and is not there");
    }
}

// @test output.metrics
#[test]
fn metrics_count_by_host_namespace_and_queue() {
    let (target, address) = start(config(&["mem:1Mi"]));
    let controller = Controller::connect(&options(address)).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    for _ in 0..10 {
        namespace.read(0, &mut [0; 4096]).unwrap();
    }
    let text = target.metrics(Exposition::OpenMetrics, MetricsDetail::Queue);
    let line = text.lines().find(|line| line.starts_with("ebof_commands_total") && line.contains("kind=\"read\""));
    let line = line.unwrap_or_else(|| panic!("no reads in\n{text}"));
    assert!(line.ends_with(" 10"), "{line}");
    assert!(
        line.contains("namespace=\"1\"") && line.contains("subsystem=\"nqn.2014-08.org.example:drive0\""),
        "{line}"
    );
    assert!(text.ends_with("# EOF\n"));
    // Commands that are completed at once have taken some time, too. It is known when they were
    // sent.
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let text = target.metrics(Exposition::OpenMetrics, MetricsDetail::Queue);
        let value = |name: &str| {
            let is_it = |line: &&str| line.starts_with(name) && line.contains("kind=\"read\"");
            let line = text.lines().find(is_it).unwrap_or_else(|| panic!("no {name} in\n{text}"));
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
        };
        let (count, sum) = (value("ebof_command_latency_seconds_count"), value("ebof_command_latency_seconds_sum"));
        if (count - 10.0).abs() < 0.5 && sum > 0.0 {
            break;
        }
        assert!(Instant::now() < end, "{count} commands in {sum} s");
        std::thread::yield_now();
    }
    assert!(line.contains("queue=\""), "{line}");
    // Queues only on request: otherwise one line for all of a host's.
    let second = controller.namespace(Nsid(1)).unwrap();
    second.read(0, &mut [0; 4096]).unwrap();
    let text = target.metrics(Exposition::Text, MetricsDetail::Namespace);
    assert!(!text.contains("queue="), "{text}");
    let reads = text.lines().filter(|line| line.starts_with("ebof_commands_total") && line.contains("kind=\"read\""));
    assert_eq!(reads.collect::<Vec<_>>().len(), 1, "{text}");
}

/// A program that polls would take the processor from a thread that is bound to it.
#[test]
fn threads_of_a_target_are_not_pinned_by_default() {
    let allowed = |status: String| {
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(|list| list.trim().to_owned())
    };
    let own = allowed(std::fs::read_to_string("/proc/thread-self/status").unwrap());
    let _target = Target::start(one_subsystem(["mem:1Mi"]), Settings::default()).unwrap();
    let mut seen = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        // Threads of other tests may end meanwhile.
        let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        if read("comm").starts_with("ebof-reactor") {
            let threads = allowed(read("status"));
            assert!(threads.is_none() || threads == own, "{threads:?} of {own:?}");
            seen += usize::from(threads.is_some());
        }
    }
    assert!(seen > 0);
}
