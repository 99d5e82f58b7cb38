//! The control thread: accepts connections, hands each to the reactor on the processor where its
//! packets arrive, and runs the registry's timers.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ebof_backend::Vital;
use ebof_fabrics::Drain;
use ebof_fabrics::registry::SLOW_DRAIN_MS;
use rustix::event::epoll;
use socket2::SockRef;

use crate::direct::DirectListener;
use crate::observe::log_limit::{Kind, LogSubject};
use crate::ports::listener::{Bound, RdmaListener};
use crate::ports::peer::{Peer, PeerAddress};
use crate::ports::port::PortState;
use crate::ports::sockets;
use crate::reactor::admission;
use crate::reactor::handshakes::{Arrived, Counted, Handshakes, Origin};
use crate::reactor::rdma_admission::{self, Accepting};
use crate::reactor::timespec;
use crate::shared::mailbox::{Incoming, Mailbox, Message};
use crate::shared::{Shared, reports};

/// Connections accepted from one listener before the others are looked at.
const ACCEPT_BATCH: usize = 64;

/// How long accepting pauses after the system ran out of descriptors or memory.
const REST: Duration = Duration::from_millis(100);

/// How often a port over RDMA tries to listen again after its device has gone, milliseconds.
const REBIND_MS: u64 = 1_000;

/// Deadlines of controllers are handled at most this much later, milliseconds, so that the Keep
/// Alive Timers of many controllers are checked at once.
const TICK_MS: u64 = 50;

const BELL: u64 = u64::MAX;

/// A message to the control thread.
pub(crate) enum Order {
    /// Accept connections there.
    Listen(Listening),
    /// Accept no more at this port; the sender is notified when that is so. Its connections
    /// stay.
    Release(Arc<PortState>, mpsc::Sender<()>),
    /// What is accepted at the first port from now on belongs to the second.
    Renew(Arc<PortState>, Arc<PortState>),
    /// Accept no more at this port, and end its connections; the sender is notified when the
    /// address is free.
    Unlisten(Arc<PortState>, mpsc::Sender<()>),
    /// Give a sign of life.
    Beat,
    /// Accept no more at all, and end.
    Stop,
    /// A mistake of ours.
    #[cfg(test)]
    Panic,
}

/// A port with what it listens with, which keeps the address in use.
#[derive(Clone, Debug)]
pub(crate) struct Listening {
    pub(crate) port: Arc<PortState>,
    /// `None` while it is being bound again.
    pub(crate) bound: Option<Bound>,
}

/// Sends messages to the control thread.
#[derive(Clone)]
pub(crate) struct Orders {
    sender: mpsc::Sender<Order>,
    bell: Mailbox,
}

impl Orders {
    pub(crate) fn new(bell: Mailbox) -> (Self, Receiver<Order>) {
        let (sender, receiver) = mpsc::channel();
        (Self { sender, bell }, receiver)
    }

    pub(crate) fn give(&self, order: Order) {
        // Fails only when the control thread has ended, and then nothing is accepted any more.
        let _ = self.sender.send(order);
        self.bell.ring();
    }
}

/// The control thread's state.
pub(crate) struct Control {
    shared: Arc<Shared>,
    bell: Mailbox,
    orders: Receiver<Order>,
    epoll: OwnedFd,
    listeners: HashMap<u64, (Bound, Arc<PortState>)>,
    next_key: u64,
    /// Reactor by processor.
    placement: Placement,
    handshakes: Handshakes,
    resting: bool,
    /// Direct ports that accept nobody for a while, because much of former clients is not closed.
    paused: Vec<u64>,
    /// When ports over RDMA that have lost their address try to listen again, milliseconds of the
    /// target's clock.
    rebind_ms: Option<u64>,
}

/// Which reactor serves a connection that arrives on a processor.
pub(crate) struct Placement {
    by_processor: HashMap<usize, usize>,
    /// By queue of a network card.
    by_queue: HashMap<u32, usize>,
    reactors: usize,
    next: usize,
}

/// The most queues of network cards that are known; connections of others are placed by processor.
const QUEUES_MAX: usize = 4096;

impl Placement {
    /// `processors[i]` is where reactor `i` runs, if it stays in one place.
    pub(crate) fn new(processors: &[Option<usize>]) -> Self {
        let mut by_processor = HashMap::new();
        for (reactor, processor) in processors.iter().enumerate() {
            if let Some(processor) = processor {
                by_processor.entry(*processor).or_insert(reactor);
            }
        }
        Self { by_processor, by_queue: HashMap::new(), reactors: processors.len().max(1), next: 0 }
    }

    fn choose(&mut self, processor: Option<usize>) -> usize {
        if let Some(reactor) = processor.and_then(|processor| self.by_processor.get(&processor)) {
            return *reactor;
        }
        self.next = (self.next + 1) % self.reactors;
        self.next
    }

    /// As `choose`, but connections of one queue of a network card stay together: one thread polls
    /// it. A queue's first connection goes to the reactor of its processor, or to one with fewer
    /// queues.
    fn choose_grouped(&mut self, queue: Option<u32>, processor: Option<usize>) -> usize {
        let Some(queue) = queue else { return self.choose(processor) };
        if let Some(reactor) = self.by_queue.get(&queue) {
            return *reactor;
        }
        let near = self.choose(processor);
        let mut queues = vec![0usize; self.reactors];
        for &reactor in self.by_queue.values() {
            queues[reactor] += 1;
        }
        let fewest = (0..self.reactors).min_by_key(|&reactor| (queues[reactor], reactor != near)).unwrap_or(near);
        let chosen = if queues[near] == queues[fewest] { near } else { fewest };
        if self.by_queue.len() < QUEUES_MAX {
            self.by_queue.insert(queue, chosen);
        }
        chosen
    }
}

impl Control {
    pub(crate) fn new(
        shared: Arc<Shared>,
        bell: Mailbox,
        orders: Receiver<Order>,
        placement: Placement,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let descriptor = bell.descriptor().ok_or(io::ErrorKind::Unsupported)?;
        epoll::add(&epoll, descriptor, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        let handshakes = Handshakes::new(Arc::clone(&shared));
        Ok(Self {
            shared,
            bell,
            orders,
            epoll,
            listeners: HashMap::new(),
            next_key: 0,
            placement,
            handshakes,
            resting: false,
            paused: Vec::new(),
            rebind_ms: None,
        })
    }

    pub(crate) fn run(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(16);
        let _vital = Vital::new();
        loop {
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timespec(timeout).as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!("waiting for connections failed: {error}");
                    std::thread::sleep(REST);
                }
            }
            if std::mem::take(&mut self.resting) {
                self.watch_listeners(true);
            }
            for key in std::mem::take(&mut self.paused) {
                self.watch_listener(key, true);
            }
            for event in &events {
                match event.data.u64() {
                    BELL => self.bell.silence(),
                    key => self.accept_some(key),
                }
            }
            self.look_at_rdma();
            self.shared.bury();
            while let Ok(order) = self.orders.try_recv() {
                if !self.obey(order) {
                    return;
                }
            }
            keep_time(&self.shared);
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if self.resting || !self.paused.is_empty() {
            return Some(REST);
        }
        let deadline_ms = next_deadline_ms(&self.shared).into_iter().chain(self.rebind_ms).min()?;
        // One millisecond more than the rest, so that the clock has passed the deadline on waking.
        Some(Duration::from_millis(deadline_ms.saturating_sub(self.shared.clock.now_ms()) + 1))
    }

    /// Returns false when it is time to end.
    fn obey(&mut self, order: Order) -> bool {
        match order {
            Order::Listen(Listening { port, bound: Some(bound) }) => {
                let key = self.next_key;
                self.next_key += 1;
                self.watch(key, &bound, &port);
                reports::port(&self.shared, &port, Ok(()));
                self.listeners.insert(key, (bound, port));
            }
            Order::Listen(Listening { bound: None, .. }) => {}
            Order::Release(port, done) => {
                self.release(&port);
                // The receiver has given up.
                let _ = done.send(());
            }
            Order::Renew(old, new) => {
                for (_, port) in self.listeners.values_mut().filter(|(_, port)| Arc::ptr_eq(port, &old)) {
                    *port = Arc::clone(&new);
                }
            }
            Order::Unlisten(port, done) => {
                self.release(&port);
                // The receiver has given up.
                let _ = done.send(());
                reports::port(&self.shared, &port, Err("it was removed"));
                self.shared.post_all(|| Message::PortGone(Arc::clone(&port)));
            }
            // Its place is behind those of the reactors.
            Order::Beat => self.shared.heartbeats.beat(self.shared.reactors().len()),
            Order::Stop => {
                for (bound, _) in self.listeners.values() {
                    if let Bound::Direct(listener) = bound {
                        listener.remove();
                    }
                }
                return false;
            }
            #[cfg(test)]
            Order::Panic => panic!("a test wants it"),
        }
        true
    }

    /// From now on has events of a listener.
    fn watch(&self, key: u64, bound: &Bound, port: &PortState) {
        let data = epoll::EventData::new_u64(key);
        let added =
            bound.with_descriptor(|descriptor| epoll::add(&self.epoll, descriptor, data, epoll::EventFlags::IN));
        if let Some(Err(error)) = added {
            tracing::error!(port = port.name, "the port cannot be watched: {error}");
        }
        if let Bound::Rdma(listener) = bound {
            // One without a descriptor is looked at whenever the bell has rung.
            let bell = self.bell.clone();
            listener.set_bell(Arc::new(move || bell.ring()));
            // It does not ring for what was there before.
            self.bell.ring();
        }
    }

    fn release(&mut self, port: &Arc<PortState>) {
        for (_, (bound, _)) in self.listeners.extract_if(|_, (_, listening)| Arc::ptr_eq(listening, port)) {
            // Others may have the socket still: an epoll set forgets only what is closed.
            let deleted = bound.with_descriptor(|descriptor| epoll::delete(&self.epoll, descriptor));
            if let Some(Err(error)) = deleted {
                tracing::error!(port = port.name, "the port is still watched: {error}");
            }
            bound.close();
        }
    }

    fn watch_listeners(&self, watch: bool) {
        self.listeners.keys().for_each(|key| self.watch_listener(*key, watch));
    }

    fn watch_listener(&self, key: u64, watch: bool) {
        let Some((bound, port)) = self.listeners.get(&key) else { return };
        let flags = if watch { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(key);
        let modified = bound.with_descriptor(|descriptor| epoll::modify(&self.epoll, descriptor, data, flags));
        if let Some(Err(error)) = modified {
            tracing::error!(port = port.name, "the port cannot be watched: {error}");
        }
    }

    /// Accepting pauses.
    fn rest(&mut self, port: &PortState, error: &dyn fmt::Display) {
        if let Some(more) = self.shared.may_log(LogSubject::Target, Kind::AcceptPaused) {
            tracing::error!(port = port.name, "accepting connections rests for {REST:?}: {error}{more}");
        }
        self.resting = true;
        self.watch_listeners(false);
    }

    fn accept_some(&mut self, key: u64) {
        let Some((bound, port)) = self.listeners.get(&key) else { return };
        let port = Arc::clone(port);
        match bound.clone() {
            Bound::Tcp(listener) => self.accept_tcp(&listener, &port),
            Bound::Rdma(listener) => self.accept_rdma(&listener, &port),
            Bound::Direct(listener) => self.accept_direct(key, &listener, &port),
        }
    }

    /// Clients of a direct port, which go all to one reactor: there is one at a time.
    fn accept_direct(&mut self, key: u64, listener: &DirectListener, port: &Arc<PortState>) {
        for _ in 0..ACCEPT_BATCH {
            if !port.reaper.has_room() {
                self.watch_listener(key, false);
                return self.paused.push(key);
            }
            match listener.accept() {
                Ok(Some(client)) => {
                    let peer = Peer::new(Arc::clone(port), PeerAddress::Direct);
                    let Ok(waiting) = admission::room_for(&self.shared, peer.address, port) else {
                        port.reaper.hang_up(client);
                        continue;
                    };
                    let reactor = *port.reactor.get_or_init(|| self.shared.next_reactor());
                    admission::hand_over(&self.shared, reactor, Incoming::Direct(client), peer, waiting);
                }
                Ok(None) => return,
                Err(error) => return self.rest(port, &error),
            }
        }
    }

    fn accept_rdma(&mut self, listener: &RdmaListener, port: &Arc<PortState>) {
        match rdma_admission::accept_some(&self.shared, listener, port) {
            Ok(Accepting::Goes) => {}
            Ok(Accepting::Lost) => {
                reports::port(&self.shared, port, Err("its RDMA device has gone"));
                self.rebind_ms = Some(self.shared.clock.now_ms());
            }
            Err(error) => self.rest(port, &error),
        }
    }

    /// Looks at the listeners of RDMA that no descriptor tells of, and has those listen again that
    /// have lost their address.
    fn look_at_rdma(&mut self) {
        let simulated = |(key, (bound, _)): (&u64, &(Bound, Arc<PortState>))| {
            (matches!(bound, Bound::Rdma(_)) && bound.with_descriptor(|_| ()).is_none()).then_some(*key)
        };
        let keys: Vec<u64> = self.listeners.iter().filter_map(simulated).collect();
        keys.into_iter().for_each(|key| self.accept_some(key));
        let now_ms = self.shared.clock.now_ms();
        if self.rebind_ms.is_some_and(|at| at <= now_ms) {
            let is_left = self.listeners.iter().filter(|(key, (bound, port))| !self.listens_again(**key, bound, port));
            self.rebind_ms = (is_left.count() > 0).then_some(now_ms + REBIND_MS);
        }
    }

    /// Has a listener listen again if it has lost its address. Returns whether it listens.
    fn listens_again(&self, key: u64, bound: &Bound, port: &PortState) -> bool {
        let Bound::Rdma(listener) = bound else { return true };
        if listener.is_bound() {
            return true;
        }
        if let Err(error) = listener.bind_again() {
            tracing::debug!(port = port.name, "not listening again yet: {error}");
            return false;
        }
        self.watch(key, bound, port);
        tracing::info!(port = port.name, "listening again");
        reports::port(&self.shared, port, Ok(()));
        true
    }

    fn accept_tcp(&mut self, listener: &TcpListener, port: &Arc<PortState>) {
        for _ in 0..ACCEPT_BATCH {
            match listener.accept() {
                Ok((socket, peer)) => {
                    let processor = SockRef::from(&socket).cpu_affinity().ok();
                    let queue = if sockets::groups(&port.config) { sockets::incoming_queue(&socket) } else { None };
                    let reactor = self.placement.choose_grouped(queue, processor);
                    self.admit(reactor, socket, peer, port);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // A connection that was reset before it was accepted says nothing about the next.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {
                }
                Err(error) => return self.rest(port, &error),
            }
        }
    }

    /// Admits a connection, or refuses it.
    fn admit(&self, reactor: usize, socket: TcpStream, peer: SocketAddr, port: &Arc<PortState>) {
        let shared = &self.shared;
        let remote = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let admitted = socket.local_addr().and_then(|local| {
            let address = PeerAddress::Network { remote, local };
            let Ok(waiting) = admission::room_for(shared, address, port) else { return Ok(()) };
            sockets::accepted(&socket, &port.config)?;
            let peer = Peer::new(Arc::clone(port), address);
            if !port.config.tls.is_off() {
                let origin = Origin { peer, waiting, reactor, counted: Counted::new(shared) };
                return self.handshakes.begin(Arrived { socket, origin });
            }
            admission::hand_over(shared, reactor, Incoming::Tcp(socket.into()), peer, waiting);
            Ok(())
        });
        if let Err(error) = admitted
            && let Some(more) = shared.may_log(remote.ip().into(), Kind::NotAccepted)
        {
            tracing::warn!(peer = %remote, port = port.name, "a connection ended before it was accepted: {error}{more}");
        }
    }
}

/// Handles the deadlines of the registry and of the log that have passed.
pub(crate) fn keep_time(shared: &Shared) {
    shared.log_limit.log_left_out(shared.clock.now_us());
    let now_ms = shared.clock.now_ms();
    let mut registry = shared.registry();
    let notices = registry.expire(now_ms);
    shared.deliver(notices);
    let slow = registry.take_slow_drains();
    drop(registry);
    slow.iter().for_each(report_slow_drain);
}

/// When there is something for [`keep_time`] to do, milliseconds of the target's clock.
pub(crate) fn next_deadline_ms(shared: &Shared) -> Option<u64> {
    let of_registry = shared.registry().next_deadline();
    let of_log = shared.log_limit.next_us().map(|us| us / 1000);
    Some(of_registry.into_iter().chain(of_log).min()?.next_multiple_of(TICK_MS))
}

/// Logs that a device does not complete what a queue that has ended left with it.
fn report_slow_drain(drain: &Drain) {
    let Drain { host, subsystem, queue, peer } = drain;
    tracing::error!(
        %host,
        %subsystem,
        queue = queue.0,
        peer,
        "the queue ended {} s ago, and commands of it are still at a device: new I/O queues of this host are refused until \
         they end, so that no old write lands behind a newer one; look at the device behind the subsystem",
        SLOW_DRAIN_MS / 1000
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_go_to_the_reactor_of_their_processor_or_round_robin() {
        let mut placement = Placement::new(&[Some(4), Some(6)]);
        assert_eq!(placement.choose(Some(6)), 1);
        assert_eq!(placement.choose(Some(4)), 0);
        let others: Vec<_> = (0..4).map(|_| placement.choose(Some(9))).collect();
        assert_eq!(others, [1, 0, 1, 0]);
    }

    #[test]
    fn connections_of_one_receive_queue_stay_together_and_queues_are_spread() {
        let mut placement = Placement::new(&[Some(0), Some(1)]);
        // Without a queue, by processor.
        assert_eq!(placement.choose_grouped(None, Some(1)), 1);
        assert_eq!(placement.choose_grouped(Some(700), Some(1)), 1);
        assert_eq!(placement.choose_grouped(Some(700), Some(0)), 1, "wherever its interrupt went");
        // Another queue on the same processor goes where there is none yet.
        assert_eq!(placement.choose_grouped(Some(701), Some(1)), 0);
        assert_eq!(placement.choose_grouped(Some(702), Some(1)), 1);
        assert_eq!(placement.choose_grouped(Some(701), Some(1)), 0);
        // No end of queues is no end of memory.
        for queue in 0..10_000 {
            assert!(placement.choose_grouped(Some(queue), None) < 2);
        }
        assert_eq!(placement.by_queue.len(), QUEUES_MAX);
    }
}
