//! The RDMA network of a story: connections are made, and everything on them happens, when it has
//! its turn; and all of them can fail. It knows nothing of NVMe.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ebof_clock::Clock;
use ebof_verbs::simulated::{self, Connection, Side};
use ebof_verbs::{ConnectOptions, Connecting, DeviceAttributes, Network, Protocol};

use crate::random::Random;

/// Where the target listens.
pub const TARGET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4420);
/// Until both ends of a lost connection have been notified, whether they noticed or not: a host
/// that waits for a response has nothing under way that its adapter could give up.
const LOST_MAX: Duration = Duration::from_secs(20);

/// The network. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Fabric(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    clock: Clock,
    network: simulated::Network,
    random: Random,
    /// Most things that happen in one turn.
    pace: u64,
    planned: Vec<Planned>,
    later: Vec<(Instant, Relief)>,
}

/// A failure when so many more things have happened in the network.
#[derive(Debug)]
struct Planned {
    after: u64,
    connection: Connection,
    trouble: Trouble,
}

/// What goes wrong with a connection.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// It ends, and both ends are notified.
    Sever,
    /// Nothing gets through any more, and nobody is notified.
    Lose,
    /// The queue pair of an end fails.
    Fail(Side),
    /// What an end posts is done late.
    DelayWork(Side),
    /// What is done is seen late.
    DelayCompletions(Side),
}

/// What ends a trouble.
#[derive(Debug)]
enum Relief {
    Work(Connection, Side),
    Completions(Connection, Side),
    /// Adapters give up what they repeat.
    TimeOut(Connection),
    /// Both ends find out.
    End(Connection),
    Device,
}

impl Fabric {
    /// A network without connections. What its device can do follows from the seed.
    #[must_use]
    pub fn new(clock: &Clock, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let device = device(&mut random);
        let is_iwarp = device.protocol == Protocol::Iwarp;
        let network = simulated::Network::stepped_with_device(device, random.number());
        if is_iwarp {
            network.overtake_reads();
        }
        let pace = 1 << (2 + random.below(6));
        let (planned, later) = (Vec::new(), Vec::new());
        Self(Arc::new(Mutex::new(State { clock: clock.clone(), network, random, pace, planned, later })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network as links use it.
    #[must_use]
    pub fn network(&self) -> Network {
        self.state().network.clone().into()
    }

    /// The address of a host.
    #[must_use]
    pub fn address(host: usize) -> IpAddr {
        Ipv4Addr::new(127, 0, 1, u8::try_from(host).unwrap_or(u8::MAX)).into()
    }

    /// A connection to the target from the address of a host. `None` where there is no device.
    #[must_use]
    pub fn connect(&self, from: IpAddr) -> Option<Connecting> {
        self.network().connect(TARGET, Some(from), &ConnectOptions::default()).ok()
    }

    /// Some things happen.
    pub fn turn(&self) {
        let mut state = self.state();
        let most = 2 * state.pace;
        for _ in 0..=state.random.below(most) {
            if !state.network.step() {
                break;
            }
            state.happened();
        }
        let now = state.clock.now();
        let (due, later) = std::mem::take(&mut state.later).into_iter().partition(|(at, _)| *at <= now);
        state.later = later;
        let due: Vec<_> = due;
        due.into_iter().for_each(|(_, relief)| state.relieve(relief));
    }

    /// When something happens.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let state = self.state();
        if !state.network.is_quiet() {
            return Some(state.clock.now());
        }
        state.later.iter().map(|(at, _)| *at).min()
    }

    /// One of the latest connections from an address fails when so many more things have happened
    /// in the network, in one way or another; or it is only slow for a time.
    pub fn break_after(&self, from: IpAddr, connection: usize, after: u64) {
        let mut state = self.state();
        let of_host = state.connections_of(from);
        let Some(at) = of_host.len().checked_sub(1 + connection % of_host.len().max(1)) else { return };
        let side = if state.random.percent(50) { Side::Host } else { Side::Target };
        let trouble = state.random.weighted(&[
            (3, Trouble::Sever),
            (2, Trouble::Lose),
            (2, Trouble::Fail(side)),
            (2, Trouble::DelayWork(side)),
            (2, Trouble::DelayCompletions(side)),
        ]);
        let planned = Planned { after, connection: of_host[at].clone(), trouble };
        if after == 0 {
            state.begin(planned);
        } else {
            state.planned.push(planned);
        }
    }

    /// The device is gone for some time, and with it all connections and who listens.
    pub fn remove_device(&self, time: Duration) {
        let mut state = self.state();
        state.network.remove_device();
        let at = state.clock.now() + time;
        state.later.push((at, Relief::Device));
    }

    /// The device is back, if it was gone.
    pub fn restore_device(&self) {
        self.state().network.restore_device();
    }

    /// The target is gone: all connections end, and what is on its way to hosts does not arrive.
    pub fn cut(&self) {
        let mut state = self.state();
        state.planned.clear();
        state.network.connections().iter().for_each(|connection| connection.break_off(Side::Host));
    }

    /// Queue pairs that there are, and bytes of regions that are registered with the device.
    #[must_use]
    pub fn in_use(&self) -> (u32, u64) {
        let state = self.state();
        (state.network.queue_pairs(), state.network.registered_bytes())
    }
}

/// One that can do everything, one like soft-RoCE, or one like soft-iWARP; with long or short
/// queues, and many or few RDMA READs at a time.
fn device(random: &mut Random) -> DeviceAttributes {
    let all = simulated::device();
    let kind = match random.below(3) {
        0 => all.clone(),
        1 => DeviceAttributes { region_invalidation: false, ..all.clone() },
        _ => DeviceAttributes {
            protocol: Protocol::Iwarp,
            send_with_invalidate: false,
            region_invalidation: false,
            ..all.clone()
        },
    };
    let reads = random.weighted(&[(1, 1), (1, 3), (2, 128)]);
    let queue_entries = random.weighted(&[(1, 64), (1, 200), (2, all.queue_entries)]);
    DeviceAttributes { queue_entries, responder_resources: reads, initiator_depth: reads, ..kind }
}

impl State {
    /// The connections of a host that are not over, the oldest first.
    fn connections_of(&self, host: IpAddr) -> Vec<Connection> {
        let mut all = self.network.connections();
        all.retain(|connection| connection.host().ip() == host && !connection.is_over());
        all
    }

    /// Something has happened.
    fn happened(&mut self) {
        let mut begun = Vec::new();
        self.planned.iter_mut().for_each(|planned| planned.after -= 1);
        let mut at = 0;
        while let Some(planned) = self.planned.get(at) {
            if planned.after == 0 { begun.push(self.planned.remove(at)) } else { at += 1 }
        }
        begun.into_iter().for_each(|planned| self.begin(planned));
    }

    fn begin(&mut self, Planned { connection, trouble, .. }: Planned) {
        let now = self.clock.now();
        let short = now + Duration::from_micros(1 << self.random.below(23));
        match trouble {
            Trouble::Sever => connection.sever(),
            Trouble::Fail(side) => connection.fail(side),
            Trouble::Lose => {
                connection.lose();
                self.later.push((short, Relief::TimeOut(connection.clone())));
                let millis = u64::try_from(LOST_MAX.as_millis()).unwrap_or(u64::MAX);
                let told = short + Duration::from_millis(self.random.below(millis));
                self.later.push((told, Relief::End(connection)));
            }
            Trouble::DelayWork(side) => {
                connection.hold_work(side, true);
                self.later.push((short, Relief::Work(connection, side)));
            }
            Trouble::DelayCompletions(side) => {
                connection.hold_completions(side, true);
                self.later.push((short, Relief::Completions(connection, side)));
            }
        }
    }

    fn relieve(&mut self, relief: Relief) {
        match relief {
            Relief::Work(connection, side) => connection.hold_work(side, false),
            Relief::Completions(connection, side) => connection.hold_completions(side, false),
            Relief::TimeOut(connection) => connection.time_out(),
            Relief::End(connection) => [Side::Host, Side::Target].into_iter().for_each(|side| connection.fail(side)),
            Relief::Device => self.network.restore_device(),
        }
    }
}
