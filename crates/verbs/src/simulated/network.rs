//! The network as its owner sees it: what is in it, what happens next, and what goes wrong.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::connecting::Connecting;
use super::listener::Listener;
use super::pair::{Activity, Pair, Side};
use super::shared::{Backlog, NetworkState, Resolution, Stage, Stopped};
use crate::{
    ConnectOptions, DeviceAttributes, DeviceInfo, Error, Event, Gid, LinkLayer, PortInfo, PortState, Protocol,
    WorkStatus,
};

/// A network within this process. It has one device, `sim0`, which has every address. Clones are
/// the same network; `Network::from` makes it what links use.
#[derive(Clone, Debug)]
pub struct Network(Arc<NetworkState>);

/// A connection of a simulated network, for faults. It does not keep the connection.
#[derive(Clone, Debug)]
pub struct Connection {
    pair: Weak<Pair>,
    addresses: [SocketAddr; 2],
}

/// What can happen next.
enum Next {
    Resolution(Arc<Resolution>),
    Pair(Arc<Pair>, Activity),
}

impl Network {
    /// A network where everything happens at once, on the thread that causes it. A message without
    /// a receive waits for one, or fails if its sender retries less than forever.
    #[must_use]
    pub fn new() -> Self {
        Self::with_device(device())
    }

    /// As [`Network::new`], with a device that has other limits, or speaks another protocol: with
    /// iWARP, private data are not padded.
    #[must_use]
    pub fn with_device(device: DeviceAttributes) -> Self {
        Self(NetworkState::new(device, false, 0))
    }

    /// A network where nothing happens but by [`Network::step`], in an order that follows from
    /// `seed`.
    #[must_use]
    pub fn stepped(seed: u64) -> Self {
        Self::stepped_with_device(device(), seed)
    }

    /// As [`Network::stepped`], with another device.
    #[must_use]
    pub fn stepped_with_device(device: DeviceAttributes, seed: u64) -> Self {
        Self(NetworkState::new(device, true, seed))
    }

    /// Lets one thing happen: a message, an RDMA READ or WRITE is done, a completion or an event is
    /// seen, a connection proceeds. What belongs together keeps its order: the work of an end, its
    /// messages, its events. `false` if there is nothing, as always if the network is not stepped.
    #[must_use = "says whether there was something"]
    pub fn step(&self) -> bool {
        let all = self.possibilities();
        if all.is_empty() {
            return false;
        }
        let chosen = self.0.parts().choose(all.len());
        match &all[chosen] {
            Next::Resolution(resolution) => resolution.advance(),
            Next::Pair(pair, Activity::Request) => self.0.deliver(pair),
            Next::Pair(pair, activity) => pair.perform(*activity),
        }
        true
    }

    /// Whether [`Network::step`] would do nothing.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.possibilities().is_empty()
    }

    fn possibilities(&self) -> Vec<Next> {
        let mut all = Vec::new();
        let resolutions: Vec<_> = self.0.parts().resolutions.iter().filter_map(Weak::upgrade).collect();
        let unfinished = resolutions.into_iter().filter(|resolution| resolution.stage() != Stage::Route);
        all.extend(unfinished.map(Next::Resolution));
        if self.0.stepped {
            for pair in self.0.pairs() {
                pair.activities(|activity| all.push(Next::Pair(Arc::clone(&pair), activity)));
            }
        }
        all
    }

    /// All connections that have a queue pair, or had one and are still seen by the other end, in
    /// the order in which they began.
    #[must_use]
    pub fn connections(&self) -> Vec<Connection> {
        let connection = |pair: Arc<Pair>| Connection { pair: Arc::downgrade(&pair), addresses: pair.addresses };
        self.0.pairs().into_iter().map(connection).collect()
    }

    /// Open queue pairs.
    #[must_use]
    pub fn queue_pairs(&self) -> u32 {
        self.0.queue_pairs.load(Ordering::Relaxed)
    }

    /// Bytes of all registered regions.
    #[must_use]
    pub fn registered_bytes(&self) -> u64 {
        self.0.registry.bytes()
    }

    /// Nothing reaches `address` from now on, or everything does: for connections that are made
    /// later.
    pub fn set_reachable(&self, address: IpAddr, reachable: bool) {
        let mut parts = self.0.parts();
        if reachable {
            parts.unreachable.remove(&address)
        } else {
            parts.unreachable.insert(address)
        };
    }

    /// In connections that are made later, work overtakes RDMA READs that were posted before: it is
    /// done, and reported, while they are under way. Soft-iWARP does that.
    pub fn overtake_reads(&self) {
        self.0.overtakes_reads.store(true, Ordering::Relaxed);
    }

    /// The device goes away, with its listeners and connections. Nothing works before
    /// [`Network::restore_device`].
    pub fn remove_device(&self) {
        let (listeners, resolutions) = {
            let mut parts = self.0.parts();
            parts.removed = true;
            let resolutions: Vec<_> = parts.resolutions.iter().filter_map(Weak::upgrade).collect();
            (std::mem::take(&mut parts.listeners), resolutions)
        };
        listeners.into_values().for_each(|listener| listener.end(Stopped::DeviceRemoved));
        resolutions.iter().for_each(|resolution| resolution.wake());
        for pair in self.0.pairs() {
            pair.with(|state| {
                state.cut = true;
                for side in Side::BOTH {
                    state.tell(side, Event::DeviceRemoved);
                    state.fail(side);
                }
            });
        }
    }

    /// The device is back: listeners and connections can be made.
    pub fn restore_device(&self) {
        self.0.parts().removed = false;
    }

    /// `address` moves to another interface: its listeners are notified, and do nothing any more.
    /// Its connections are notified, and continue.
    pub fn change_address(&self, address: IpAddr) {
        let mut ended = Vec::new();
        self.0.parts().listeners.retain(|at, listener| {
            if at.ip() == address {
                ended.push(Arc::clone(listener));
            }
            at.ip() != address
        });
        ended.into_iter().for_each(|listener| listener.end(Stopped::AddressChanged));
        for pair in self.0.pairs() {
            for side in Side::BOTH {
                if pair.addresses[side as usize].ip() == address {
                    pair.with(|state| state.tell(side, Event::AddressChanged));
                }
            }
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "its counterpart of the system can fail")]
    pub(crate) fn devices(&self) -> Result<Vec<DeviceInfo>, Error> {
        if self.0.parts().removed {
            return Ok(Vec::new());
        }
        let attributes = self.0.device.clone();
        let address = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        let gid = Gid { index: 0, address, protocol: attributes.protocol, interface: None };
        let port = PortInfo {
            number: 1,
            state: PortState::Active,
            link_layer: LinkLayer::Ethernet,
            active_mtu: 4096,
            max_mtu: 4096,
            gids: vec![gid],
        };
        Ok(vec![DeviceInfo { attributes, firmware: String::new(), ports: vec![port] }])
    }

    pub(crate) fn listen(&self, address: SocketAddr, backlog: u32) -> Result<Listener, Error> {
        let mut parts = self.0.parts();
        if parts.removed {
            return Err(Error::NoDevice(address.ip()));
        }
        let mut address = address;
        if address.port() == 0 {
            address.set_port(parts.unused_port());
        }
        if parts.listeners.contains_key(&address) {
            return Err(Error::AddressInUse(address));
        }
        let backlog = Backlog::new(address, backlog);
        parts.listeners.insert(address, Arc::clone(&backlog));
        Ok(Listener { shared: Arc::clone(&self.0), backlog })
    }

    pub(crate) fn connect(
        &self,
        to: SocketAddr,
        from: Option<IpAddr>,
        _options: &ConnectOptions,
    ) -> Result<Connecting, Error> {
        Connecting::new(&self.0, to, from)
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

impl Connection {
    /// The host's address.
    #[must_use]
    pub fn host(&self) -> SocketAddr {
        self.addresses[Side::Host as usize]
    }

    /// The target's address.
    #[must_use]
    pub fn target(&self) -> SocketAddr {
        self.addresses[Side::Target as usize]
    }

    /// Nothing gets through any more, and nobody is notified. What is under way, and what is posted
    /// later, is not over before [`Connection::time_out`], or before its end gives up.
    pub fn lose(&self) {
        self.with(|_, state| state.cut = true);
    }

    /// The adapters give up what they retry: an end of a lost connection that has something under
    /// way is in error.
    pub fn time_out(&self) {
        self.with(|_, state| {
            for side in Side::BOTH.into_iter().filter(|_| state.cut).collect::<Vec<_>>() {
                state.fail_first(side, WorkStatus::RetryExceeded);
            }
        });
    }

    /// The connection ends, and both ends are notified.
    pub fn sever(&self) {
        self.with(|_, state| {
            if !std::mem::replace(&mut state.ended, true) {
                Side::BOTH.into_iter().for_each(|side| state.tell(side, Event::Disconnected));
            }
            state.cut = true;
        });
    }

    /// The machine at the other side of `side` has stopped: nothing gets through any more, and what
    /// has come to `side` and was not polled is lost. It is notified that the connection has ended.
    pub fn break_off(&self, side: Side) {
        self.with(|_, state| {
            state.cut = true;
            state.forget_received(side);
            if !std::mem::replace(&mut state.ended, true) {
                state.tell(side, Event::Disconnected);
            }
            state.fail(side);
        });
    }

    /// Whether nothing gets through any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let mut is_over = true;
        self.with(|_, state| is_over = state.cut || state.ended);
        is_over
    }

    /// An end's queue pair fails: everything of it is flushed.
    pub fn fail(&self, side: Side) {
        self.with(|_, state| {
            state.tell(side, Event::Fatal("the adapter has a fatal error"));
            state.fail(side);
        });
    }

    /// Holds back what an end has posted, or lets it go.
    pub fn hold_work(&self, side: Side, hold: bool) {
        self.with(|pair, state| {
            state.both(side)[0].work_held = hold;
            pair.run(state);
        });
    }

    /// Holds back the completions of an end, or lets them go.
    pub fn hold_completions(&self, side: Side, hold: bool) {
        self.with(|_, state| state.hold_completions(side, hold));
    }

    fn with(&self, change: impl FnOnce(&Pair, &mut super::pair::PairState)) {
        if let Some(pair) = self.pair.upgrade() {
            pair.with(|state| change(&pair, state));
        }
    }
}

/// The device of a network that nothing was said about.
#[must_use]
pub fn device() -> DeviceAttributes {
    DeviceAttributes {
        name: "sim0".to_owned(),
        protocol: Protocol::RoceV2,
        queue_pairs: 65_536,
        queue_entries: 16_384,
        completion_entries: 65_536,
        shared_receive_queues: 65_536,
        shared_receive_entries: 16_384,
        responder_resources: 128,
        initiator_depth: 128,
        regions: 1 << 20,
        region_bytes: 1 << 40,
        send_with_invalidate: true,
        region_invalidation: true,
        memory_windows: 1 << 20,
        window_invalidation: true,
    }
}
