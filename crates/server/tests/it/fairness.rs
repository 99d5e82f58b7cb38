//! How much of their rate hosts keep while others misbehave, measured in time. The tests in
//! `src/reactor/tests.rs` count work instead; here other programs on the machine can distort the
//! result, so it runs only on request:
//! `cargo test --release -p ebof-server --test it fairness -- --ignored --nocapture`

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Data, Options, QueuePair};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{Settings, Target};

use crate::config::{NQN, one_subsystem};

/// Well-behaved hosts.
const BEHAVED: u16 = 32;

/// One measurement.
const TIME: Duration = Duration::from_millis(700);

/// One queue and what runs on it.
struct Host {
    queue: QueuePair<Vec<u8>>,
    opcode: u8,
    blocks: u32,
    next: u64,
    over: u64,
}

impl Host {
    fn new(controller: &Controller, opcode: u8, blocks: u32, depth: usize) -> Self {
        let mut host = Self { queue: controller.queue_pair().unwrap(), opcode, blocks, next: 0, over: 0 };
        for _ in 0..depth {
            host.submit(vec![0x5a; blocks as usize * 512]);
        }
        host
    }

    fn submit(&mut self, buffer: Vec<u8>) {
        let places = (64 << 20) / (u64::from(self.blocks) * 512);
        let sqe =
            BlockRange::new(self.next % places * u64::from(self.blocks), self.blocks).encode(self.opcode, Nsid(1));
        let data = if self.opcode == nvm::READ { Data::ToHost(buffer) } else { Data::FromHost(buffer) };
        self.queue.submit(sqe, data, 0).unwrap();
        self.next += 1;
    }

    /// Processes completions, and submits as many commands. Returns whether there were any.
    fn go_on(&mut self) -> bool {
        let before = self.over;
        let mut next = self.queue.poll().unwrap();
        while let Some(completion) = next {
            assert!(completion.result.unwrap().status().is_success());
            self.over += 1;
            self.submit(completion.data.into_buffer().unwrap());
            next = self.queue.next_ready();
        }
        self.queue.flush().unwrap();
        self.over > before
    }
}

fn connect(address: SocketAddr, queues: u16) -> Controller {
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    options.nr_io_queues = queues;
    Controller::connect(&options).unwrap()
}

/// Commands per second of the well-behaved hosts, each with one to four commands of 4 KiB, together
/// with `bad` ones: opcode, blocks and depth. One thread polls all of them in turn, so the cost of
/// the bad ones here is the same in every run.
fn rate(address: SocketAddr, bad: &[(u8, u32, usize)], mute: bool) -> f64 {
    let controller = connect(address, BEHAVED + 2);
    let other = connect(address, 2);
    let mut behaved: Vec<Host> =
        (0..BEHAVED).map(|i| Host::new(&controller, nvm::READ, 8, 1 + usize::from(i % 4))).collect();
    let mut bad: Vec<Host> =
        bad.iter().map(|&(opcode, blocks, depth)| Host::new(&other, opcode, blocks, depth)).collect();
    // It requests as much as it can, and is never polled.
    let mut silent = mute.then(|| Host::new(&other, nvm::READ, 2048, 127));
    if let Some(silent) = &mut silent {
        silent.queue.flush().unwrap();
    }
    let mut run = |time: Duration| {
        let began = Instant::now();
        let before = behaved.iter().map(|host| host.over).sum::<u64>();
        while began.elapsed() < time {
            let came = behaved.iter_mut().chain(&mut bad).fold(false, |any, host| host.go_on() | any);
            if !came {
                // The target may have to share this processor.
                std::thread::yield_now();
            }
        }
        let over = behaved.iter().map(|host| host.over).sum::<u64>() - before;
        over as f64 / began.elapsed().as_secs_f64()
    };
    run(TIME / 4);
    run(TIME)
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[test]
#[ignore = "measures time: run it on an idle machine"]
fn well_behaved_hosts_keep_their_rate_with_floods() {
    let config = one_subsystem(["mem:64Mi"]);
    let target = Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() }).unwrap();
    let address = target.addresses()[0].1;
    let floods = [
        ("reads of 4 KiB", (nvm::READ, 8, 127)),
        ("reads of 1 MiB", (nvm::READ, 2048, 64)),
        ("writes of 1 MiB", (nvm::WRITE, 2048, 64)),
    ];
    let mut least = f64::INFINITY;
    for (name, flood) in floods {
        let mut alone = Vec::new();
        let mut beside = Vec::new();
        for _ in 0..5 {
            // Two more well-behaved hosts instead of the bad ones.
            alone.push(rate(address, &[(nvm::READ, 8, 2), (nvm::READ, 8, 3)], false));
            beside.push(rate(address, &[flood], true));
        }
        let alone = median(alone);
        let beside = median(beside);
        println!("{name}: {alone:.0} commands/s among their kind, {beside:.0} beside: {:.2}", beside / alone);
        least = least.min(beside / alone);
    }
    assert!(least >= 0.8, "they keep {least:.2}");
}
