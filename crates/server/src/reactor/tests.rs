//! Fairness among the connections of one reactor: the parts of a turn that floods and other hosts
//! get. Work is counted turn by turn, without a thread and with a virtual clock, so the result is
//! the same on every machine.

mod busy_poll;
#[path = "../../tests/it/config.rs"]
mod config;
mod direct;
#[path = "../../tests/it/direct_rig.rs"]
#[expect(dead_code, clippy::cast_possible_truncation, reason = "the tests of targets use more of it; sizes are small")]
mod direct_rig;
mod drains;
mod hosts;
mod instructions;
mod rdma_buffers;
mod rdma_host;
mod rules;
mod shared_drive;
mod zerocopy;

use std::sync::Arc;
use std::time::Duration;

use ebof_backend::Device;
use ebof_fabrics::{Limits, Registry};
use ebof_manage::{Config, Listen};
use rustix::event::epoll;
use socket2::{Domain, Socket, Type};

use self::config::{NQN, one_subsystem};
use self::hosts::{Host, Load};
use super::connection::Connection;
use super::{ASK_EVERY, Reactor};
use crate::drives::device::DeviceTable;
use crate::drives::{DriveThreads, Drives};
use crate::environment::Environment;
use crate::environment::settings::Settings;
use crate::life::control::Listening;
use crate::life::startup::Devices;
use crate::observe::log_limit::Network;
use crate::ports::peer::{Peer, PeerAddress};
use crate::ports::port::PortState;
use crate::shared::Shared;
use crate::shared::mailbox::{Accepted, Incoming, Mailbox, Message};

/// Well-behaved hosts.
const BEHAVED: usize = 32;

/// The most that one of many connections may get of a turn, bytes: its share, and a loan of the
/// device's memory beyond it.
const FLOOD_MAX: u64 = 2 * (128 << 10);

/// The fraction of their rate with 34 well-behaved hosts that well-behaved hosts must keep.
const KEPT: f64 = 0.8;

/// A reactor without its thread.
struct Rig {
    reactor: Reactor,
    /// Admin Queues, which are idle.
    admin: Vec<Host>,
    port: Arc<PortState>,
    /// The one that hosts connect to.
    subsystem: String,
    now_us: u64,
    events: Vec<epoll::Event>,
    messages: Vec<Message>,
}

impl Reactor {
    /// The connection in a place.
    fn connection_at(&self, index: usize) -> Option<&Connection> {
        self.connections.table.at(u32::try_from(index).unwrap())
    }
}

impl Rig {
    fn new() -> Self {
        Self::sending(None)
    }

    /// With a port that uses zero-copy send for payloads of `zerocopy` bytes or more.
    fn sending(zerocopy: Option<u32>) -> Self {
        Self::with(zerocopy, |device| device)
    }

    /// With devices derived from the configured ones.
    fn with(zerocopy: Option<u32>, wrap: impl Fn(Arc<dyn Device>) -> Arc<dyn Device>) -> Self {
        let mut config = one_subsystem(["mem:64Mi"]);
        config.ports[0].zerocopy_send_bytes = zerocopy;
        Self::with_devices(&config, wrap)
    }

    /// With a port over RDMA.
    fn over_rdma() -> Self {
        let mut config = one_subsystem(["mem:64Mi"]);
        config.ports[0].listen = Listen::rdma([127, 0, 0, 1].into(), 4420);
        Self::with_devices(&config, |device| device)
    }

    fn with_devices(config: &Config, wrap: impl Fn(Arc<dyn Device>) -> Arc<dyn Device>) -> Self {
        // With a direct port, that is the last one.
        let port = config.ports.last().cloned().unwrap();
        let devices =
            Devices::open(config, &Environment::default(), &mut DriveThreads::Own, |_, error| Err(error)).unwrap();
        let port = Arc::new(PortState::new(port, ([127, 0, 0, 1], 4420).into()));
        let listening = Listening { port: Arc::clone(&port), bound: None };
        let model = devices.model(config, &[listening], 1).unwrap();
        let registry = Registry::new(Limits::default(), Arc::new(model), 1);
        let mailbox = Mailbox::new().unwrap();
        let settings = Settings::default();
        let control = Mailbox::new().unwrap();
        let shared =
            Arc::new(Shared::new(settings, registry, Drives::new(devices.ids()), vec![mailbox.clone()], control));
        let table = DeviceTable::new(devices.plain().into_iter().map(|(id, device)| (id, wrap(device))));
        let reactor = Reactor::new(0, shared, mailbox, Arc::new(table), false).unwrap();
        Self {
            reactor,
            admin: Vec::new(),
            port,
            subsystem: NQN.to_owned(),
            now_us: 1_000_000,
            events: Vec::with_capacity(256),
            messages: Vec::new(),
        }
    }

    /// One turn of a reactor that has work, `took_us` after the one before.
    fn turn(&mut self, took_us: u64) -> bool {
        let reactor = &mut self.reactor;
        self.now_us += took_us;
        self.events.clear();
        reactor.turns = reactor.turns.wrapping_add(1);
        let reads_sockets = reactor.reads_sockets_itself();
        if !reads_sockets {
            reactor.wait(&mut self.events, Some(Duration::ZERO));
        }
        reactor.turn(self.now_us, reads_sockets, &self.events, &mut self.messages)
    }

    /// A socket of a new connection.
    fn socket(&mut self) -> Socket {
        let zerocopy = self.port.config.zerocopy_send_bytes.is_some();
        let (ours, theirs) =
            if zerocopy { zerocopy::pair() } else { Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap() };
        for socket in [&ours, &theirs] {
            socket.set_nonblocking(true).unwrap();
            // The size that every system allows.
            socket.set_send_buffer_size(212_992).unwrap();
        }
        let nobody: std::net::SocketAddr = ([127, 0, 0, 1], 1).into();
        self.reactor.mailbox.post(Message::Accept(Accepted {
            incoming: Incoming::Tcp(std::net::TcpStream::from(std::os::fd::OwnedFd::from(theirs)).into()),
            peer: Peer::new(Arc::clone(&self.port), PeerAddress::Network { remote: nobody, local: nobody }),
            waiting: self.reactor.shared.unadmitted.enter(Network::from_address(nobody.ip()), u32::MAX),
        }));
        ours
    }

    fn host(&mut self, load: Load) -> Host {
        let (admin, queue) = Host::connect(self, load);
        self.admin.push(admin);
        queue
    }

    fn hosts(&mut self, loads: &[Load]) -> Vec<Host> {
        loads.iter().map(|load| self.host(*load)).collect()
    }
}

/// The work of a reactor in some turns.
#[derive(Debug, Default)]
struct Served {
    /// The smallest fraction of its requests that a well-behaved host got, from 0 to 1.
    least: f64,
    /// Bytes of the well-behaved hosts.
    behaved: u64,
    /// Bytes of the others.
    bad: u64,
    /// The most that one of the others got of one turn, bytes.
    bad_turn_max: u64,
}

/// Turns of warming up: the responses to the host that never reads have filled its socket.
const START: u64 = 100;

/// Runs `turns` turns of `took_us` each. All hosts continue with what they receive.
fn serve(rig: &mut Rig, behaved: &mut [Host], bad: &mut [Host], turns: u64, took_us: u64) -> Served {
    let moved = |hosts: &[Host], rig: &Rig| hosts.iter().map(|host| host.moved(rig)).collect::<Vec<_>>();
    let sum = |bytes: &[u64]| bytes.iter().sum::<u64>();
    let mut served = Served::default();
    let mut start = 0;
    for turn in 0..START + turns {
        // The floods are first in epoll's queue, and so first in the turn.
        bad.iter_mut().chain(behaved.iter_mut()).for_each(Host::go_on);
        if turn == START {
            behaved.iter_mut().for_each(|host| host.count.commands = 0);
            start = sum(&moved(behaved, rig));
        }
        let before = moved(bad, rig);
        rig.turn(took_us);
        if turn >= START {
            let now = moved(bad, rig);
            served.bad += sum(&now) - sum(&before);
            let most = now.iter().zip(&before).map(|(now, before)| now - before).max();
            served.bad_turn_max = served.bad_turn_max.max(most.unwrap_or_default());
        }
    }
    served.behaved = sum(&moved(behaved, rig)) - start;
    for host in behaved.iter_mut() {
        host.take();
    }
    let part = |host: &Host| host.count.commands as f64 / (turns * host.load.depth as u64) as f64;
    served.least = behaved.iter().map(part).fold(f64::INFINITY, f64::min);
    served
}

/// All kinds of floods, each with a host that never reads, and with 32 well-behaved hosts with the
/// load `behaved`. In every turn each of these must get everything that it requests, and the floods
/// may get little more than two well-behaved hosts would.
fn floods_take_little(behaved: impl Fn(usize) -> Load) {
    let floods = [
        Load::reads(4096, hosts::DEPTH),
        Load::reads(1 << 20, hosts::DEPTH),
        Load::writes_by_r2t(1 << 20, hosts::DEPTH),
        // Beyond the queue's depth: reads of memory take no slot, writes do and are refused.
        Load::reads(4096, 8 * hosts::DEPTH),
        Load::writes_by_r2t(4096, 8 * hosts::DEPTH),
    ];
    for flood in floods {
        // A long turn must not cause further long turns.
        for took_us in [20, 3000] {
            let mut rig = Rig::new();
            let mut bad = rig.hosts(&[flood, Load::mute(1 << 20)]);
            let loads: Vec<Load> = (0..BEHAVED).map(&behaved).collect();
            let mut behaved = rig.hosts(&loads);
            let served = serve(&mut rig, &mut behaved, &mut bad, 100, took_us);
            let work = served.behaved as f64 / (served.behaved + served.bad) as f64;
            let kept = work / (BEHAVED as f64 / (BEHAVED + 2) as f64);
            println!("{flood:?}, {took_us} us: {served:?}, {kept:.3} of the fair share");
            assert!(served.least >= 1.0, "somebody waits for a second turn");
            assert!(served.bad_turn_max <= FLOOD_MAX);
            assert!(kept >= KEPT);
            assert!(bad[0].count.commands > 0, "the flood did not happen");
        }
    }
}

// @test hostile.fair-thread
#[test]
fn floods_take_little_from_hosts_with_a_few_commands() {
    floods_take_little(|i| if i % 8 < 6 { Load::reads(4096, 1 + i % 4) } else { Load::writes(4096, 1 + i % 4) });
}

// @test hostile.fair-thread
#[test]
fn floods_take_little_from_hosts_with_one_command() {
    floods_take_little(|i| if i % 2 == 0 { Load::reads(4096, 1) } else { Load::writes(4096, 1) });
}

// @test hostile.fair-thread
#[test]
fn occasional_commands_are_answered_soon() {
    // For some turns the flood is read without asking epoll, and the others are not.
    let mut rig = Rig::new();
    let mut flood = rig.host(Load::reads(4096, hosts::DEPTH));
    let mut host = rig.host(Load { depth: 0, ..Load::reads(4096, 1) });
    for round in 0..200 {
        for _ in 0..round % 13 {
            flood.go_on();
            rig.turn(10);
        }
        host.load.depth = 1;
        host.go_on();
        let asked = host.moved(&rig);
        host.load.depth = 0;
        for waited in 1.. {
            assert!(waited <= ASK_EVERY, "nobody looked");
            flood.go_on();
            rig.turn(10);
            if host.moved(&rig) - asked > 4096 {
                break;
            }
        }
        host.take();
        assert_eq!(host.outstanding, 0);
    }
}

#[test]
fn floods_share_the_reactor_and_all_of_them_complete() {
    let mut rig = Rig::new();
    let kinds =
        [Load::reads(4096, 128), Load::reads(1 << 20, 64), Load::writes(4096, 128), Load::writes_by_r2t(1 << 20, 64)];
    let mut floods: Vec<Host> = (0..12).map(|i| rig.host(kinds[i % kinds.len()])).collect();
    for _ in 0..START {
        floods.iter_mut().for_each(Host::go_on);
        rig.turn(100);
    }
    let before: Vec<u64> = floods.iter().map(|host| host.moved(&rig)).collect();
    for _ in 0..300 {
        floods.iter_mut().for_each(Host::go_on);
        rig.turn(100);
    }
    let bytes: Vec<u64> = floods.iter().zip(before).map(|(host, before)| host.moved(&rig) - before).collect();
    let mean = bytes.iter().sum::<u64>() / 12;
    println!("{bytes:?}");
    assert!(bytes.iter().all(|bytes| *bytes > mean / 2), "{bytes:?}");
    // No more requests. As long as the reactor has work it must say so, or it would sleep.
    for turn in 0.. {
        assert!(turn < 100_000, "there is no end to it");
        let under_way = floods.iter_mut().fold(false, |any, host| host.take() | any);
        let worked = rig.turn(100);
        let left: usize = floods.iter().map(|host| host.outstanding).sum();
        if left == 0 {
            break;
        }
        let answered = floods.iter().any(|host| host.has_input());
        assert!(worked || under_way || answered, "the reactor would sleep, and {left} commands wait");
    }
    assert!(floods.iter().all(|host| host.count.failed == 0));
}
