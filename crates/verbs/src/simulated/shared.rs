//! What all handles of a simulated network share: its device, who listens, and its connections.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::pair::{Asked, Pair, Side, UNREACHABLE};
use super::registry::MemoryRegistry;
use crate::{Bell, DeviceAttributes, Error, Event, Protocol};

/// A network.
#[derive(Debug)]
pub(crate) struct NetworkState {
    pub(crate) device: DeviceAttributes,
    /// Nothing happens but by a step.
    pub(crate) stepped: bool,
    pub(crate) registry: Arc<MemoryRegistry>,
    pub(crate) queue_pairs: AtomicU32,
    /// Of connections that are made from now on.
    pub(crate) overtakes_reads: AtomicBool,
    parts: Mutex<Parts>,
}

/// What changes.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) listeners: BTreeMap<SocketAddr, Arc<Backlog>>,
    pub(crate) pairs: Vec<Weak<Pair>>,
    pub(crate) resolutions: Vec<Weak<Resolution>>,
    /// When there are so many pairs or resolutions, those that are gone are forgotten.
    tidy_at: usize,
    next_port: u16,
    /// The device is gone.
    pub(crate) removed: bool,
    pub(crate) unreachable: BTreeSet<IpAddr>,
    /// State of the generator that chooses what happens next.
    pub(crate) random: u64,
}

/// The requests at an address.
#[derive(Debug)]
pub(crate) struct Backlog {
    pub(crate) address: SocketAddr,
    requests_max: usize,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<(Arc<Pair>, Asked)>,
    /// Nobody polls any more.
    closed: bool,
    /// Told before the requests.
    ended: Option<Stopped>,
    bell: Option<Bell>,
}

/// Why a listener does nothing any more.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stopped {
    AddressChanged,
    DeviceRemoved,
}

/// An address and a route that are being resolved.
#[derive(Debug, Default)]
pub(crate) struct Resolution {
    state: Mutex<Resolving>,
}

#[derive(Default)]
struct Resolving {
    stage: Stage,
    bell: Option<Bell>,
}

/// How far a resolution is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    #[default]
    Begun,
    Address,
    Route,
}

impl NetworkState {
    pub(crate) fn new(device: DeviceAttributes, stepped: bool, seed: u64) -> Arc<Self> {
        static NEXT_OWNER: AtomicU64 = AtomicU64::new(SIMULATED_OWNERS);
        let registry = MemoryRegistry::new(NEXT_OWNER.fetch_add(1, Ordering::Relaxed), &device);
        let parts = Parts {
            listeners: BTreeMap::new(),
            pairs: Vec::new(),
            resolutions: Vec::new(),
            tidy_at: 64,
            next_port: FIRST_PORT,
            removed: false,
            unreachable: BTreeSet::new(),
            random: seed,
        };
        Arc::new(Self {
            device,
            stepped,
            registry,
            queue_pairs: AtomicU32::new(0),
            overtakes_reads: AtomicBool::new(false),
            parts: Mutex::new(parts),
        })
    }

    pub(crate) fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the device speaks with private data of a fixed length.
    pub(crate) fn pads(&self) -> bool {
        self.device.protocol != Protocol::Iwarp
    }

    /// Gives the request of a host to who listens, or answers it.
    pub(crate) fn deliver(&self, pair: &Arc<Pair>) {
        let Some(asked) = pair.with(|state| state.request.take()) else { return };
        let to = pair.addresses[Side::Target as usize];
        let backlog = self.parts().listening(to).cloned();
        let pushed = match backlog {
            Some(backlog) => backlog.push(Arc::clone(pair), asked),
            None => Err(nobody_listens()),
        };
        let Err(refused) = pushed else { return };
        pair.with(|state| {
            state.ended = true;
            state.tell(Side::Host, refused);
            state.fail(Side::Host);
        });
    }

    /// Counts a queue pair, if the device has room for it.
    pub(crate) fn add_queue_pair(&self) -> Result<(), Error> {
        if self.parts().removed {
            return Err(Error::DeviceRemoved);
        }
        let max = self.device.queue_pairs;
        let more = |count: u32| (count < max).then_some(count + 1);
        match self.queue_pairs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(()),
            Err(count) => Err(Error::Limit { what: "queue pairs", wanted: u64::from(count) + 1, max: u64::from(max) }),
        }
    }

    /// Makes a connection that nothing has been sent over.
    pub(crate) fn pair(&self, host: SocketAddr, target: SocketAddr) -> Arc<Pair> {
        let pair = Pair::new(Arc::clone(&self.registry), [host, target], self.stepped);
        if self.overtakes_reads.load(Ordering::Relaxed) {
            pair.with(|state| state.ends.iter_mut().for_each(|end| end.overtakes_reads = true));
        }
        let mut parts = self.parts();
        parts.pairs.push(Arc::downgrade(&pair));
        parts.tidy();
        pair
    }

    /// All connections that there are, in the order in which they began.
    pub(crate) fn pairs(&self) -> Vec<Arc<Pair>> {
        self.parts().pairs.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Parts {
    /// Who listens at an address, or at all addresses with its port.
    pub(crate) fn listening(&self, address: SocketAddr) -> Option<&Arc<Backlog>> {
        let any = match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let any = SocketAddr::new(any, address.port());
        self.listeners.get(&address).or_else(|| self.listeners.get(&any))
    }

    pub(crate) fn unused_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(FIRST_PORT);
        port
    }

    pub(crate) fn tidy(&mut self) {
        if self.pairs.len() + self.resolutions.len() >= self.tidy_at {
            self.pairs.retain(|pair| pair.strong_count() != 0);
            self.resolutions.retain(|resolution| resolution.strong_count() != 0);
            self.tidy_at = (2 * (self.pairs.len() + self.resolutions.len())).max(64);
        }
    }

    /// A number below `bound`, which is not 0 (SplitMix64).
    pub(crate) fn choose(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % bound as u64).unwrap_or(0)
    }
}

impl Backlog {
    pub(crate) fn new(address: SocketAddr, requests_max: u32) -> Arc<Self> {
        Arc::new(Self { address, requests_max: requests_max.max(1) as usize, queue: Mutex::default() })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request, or returns the event for its host.
    fn push(&self, pair: Arc<Pair>, asked: Asked) -> Result<(), Event> {
        let mut queue = self.queue();
        if queue.closed {
            return Err(nobody_listens());
        }
        if queue.requests.len() >= self.requests_max {
            return Err(Event::Unreachable(UNREACHABLE));
        }
        queue.requests.push_back((pair, asked));
        let bell = queue.bell.clone();
        drop(queue);
        bell.inspect(|bell| bell());
        Ok(())
    }

    /// Nobody polls any more. Returns the requests that nobody has polled.
    pub(crate) fn close(&self) -> VecDeque<(Arc<Pair>, Asked)> {
        let mut queue = self.queue();
        queue.closed = true;
        std::mem::take(&mut queue.requests)
    }

    pub(crate) fn pop(&self) -> Option<(Arc<Pair>, Asked)> {
        self.queue().requests.pop_front()
    }

    pub(crate) fn take_ended(&self) -> Option<Stopped> {
        self.queue().ended.take()
    }

    pub(crate) fn set_bell(&self, bell: Bell) {
        self.queue().bell = Some(bell);
    }

    pub(crate) fn end(&self, ended: Stopped) {
        let mut queue = self.queue();
        queue.ended = Some(ended);
        let bell = queue.bell.clone();
        drop(queue);
        bell.inspect(|bell| bell());
    }
}

impl Resolution {
    fn state(&self) -> MutexGuard<'_, Resolving> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stage(&self) -> Stage {
        self.state().stage
    }

    pub(crate) fn set_bell(&self, bell: Bell) {
        self.state().bell = Some(bell);
    }

    /// One stage further.
    pub(crate) fn advance(&self) {
        let mut state = self.state();
        state.stage = if state.stage == Stage::Begun { Stage::Address } else { Stage::Route };
        self.ring(state);
    }

    /// Lets those who wait check again.
    pub(crate) fn wake(&self) {
        self.ring(self.state());
    }

    fn ring(&self, state: MutexGuard<'_, Resolving>) {
        let bell = state.bell.clone();
        drop(state);
        bell.inspect(|bell| bell());
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("requests", &self.requests).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Resolving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolving").field("stage", &self.stage).finish_non_exhaustive()
    }
}

fn nobody_listens() -> Event {
    Event::Rejected { reason: Event::NOBODY_LISTENS, private_data: Vec::new() }
}

/// The first port that is chosen where none is given.
const FIRST_PORT: u16 = 49_152;
/// Owners of registrations (`Registration::owner`) of simulated networks count from here.
const SIMULATED_OWNERS: u64 = 1 << 32;
