//! A target with 64 connections and nothing to do: little memory, no processor.

use std::time::Duration;

use ebof_initiator::{Controller, Options, QueuePair};
use ebof_nvme::Nqn;

use crate::server::Server;

const NQN: &str = "nqn.2014-08.org.example:idle";

/// Processor time of a process so far, in clock ticks of 10 ms: utime and stime, fields 14 and 15
/// of proc(5)'s stat.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let behind_name = stat.rsplit(')').next().unwrap();
    behind_name.split_ascii_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

fn resident_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

// @test speed.idle-memory
// @test speed.idle
#[test]
fn an_idle_target_with_64_connections_uses_no_processor_and_little_memory() {
    let server = Server::start(NQN, &["mem:64Mi"]);
    let mut held: Vec<(Controller, Vec<QueuePair<Vec<u8>>>)> = Vec::new();
    for _ in 0..16 {
        let mut options = Options::new("127.0.0.1", server.port, Nqn::parse(NQN).unwrap());
        options.nr_io_queues = 3;
        let controller = Controller::connect(&options).unwrap();
        let queues = (0..3).map(|_| controller.queue_pair().unwrap()).collect();
        held.push((controller, queues));
    }
    // The cost of connecting ends after a moment; then only the passing of time is measured.
    std::thread::sleep(Duration::from_secs(2));
    let before = ticks(server.process());
    std::thread::sleep(Duration::from_secs(5));
    let used = ticks(server.process()) - before;
    let resident = resident_bytes(server.process());
    println!("{used} ticks of 500, {} MiB resident", resident >> 20);
    assert!(used <= 2, "{used} ticks of processor time in 5 s");
    assert!(resident < 50_000_000, "{resident} bytes resident");
    assert_eq!(held.len(), 16);
}
