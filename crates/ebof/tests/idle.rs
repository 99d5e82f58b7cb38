//! A target with 64 connections and nothing to do: little memory, no processor.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ebof_initiator::{Controller, Options, QueuePair};
use ebof_nvme::Nqn;

const NQN: &str = "nqn.2014-08.org.example:idle";

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processor time of a process so far, in clock ticks of 10 ms: utime and stime, fields 14 and 15 of proc(5)'s stat.
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

#[test]
fn an_idle_target_with_64_connections_uses_no_processor_and_little_memory() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ebof"))
        .args(["serve", "--listen", "tcp://127.0.0.1:0", "--nqn", NQN, "-o", "json", "mem:64M"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let server = Server(child);
    let started: serde_json::Value = serde_json::from_str(&line).unwrap();
    let port = started["listening"][0].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    let mut held: Vec<(Controller, Vec<QueuePair<Vec<u8>>>)> = Vec::new();
    for _ in 0..16 {
        let mut options = Options::new("127.0.0.1", port, Nqn::parse(NQN).unwrap());
        options.nr_io_queues = 3;
        let controller = Controller::connect(&options).unwrap();
        let queues = (0..3).map(|_| controller.queue_pair().unwrap()).collect();
        held.push((controller, queues));
    }
    // What connecting cost is over after a moment; then the passing of time itself is what is measured.
    std::thread::sleep(Duration::from_secs(2));
    let before = ticks(server.0.id());
    std::thread::sleep(Duration::from_secs(5));
    let used = ticks(server.0.id()) - before;
    let resident = resident_bytes(server.0.id());
    println!("{used} ticks of 500, {} MiB resident", resident >> 20);
    assert!(used <= 2, "{used} ticks of processor time in 5 s");
    assert!(resident < 50_000_000, "{resident} bytes resident");
    assert_eq!(held.len(), 16);
}
