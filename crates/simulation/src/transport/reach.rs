//! How the product's initiator reaches whichever target is running: over TCP on simulated streams,
//! over RDMA on a simulated network, or over the in-memory transport. Connections can be broken
//! from outside.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ebof_clock::Clock;
use ebof_initiator::Dialer;
use ebof_loopback::{Breaker, ConnectError, Port};
use ebof_sockets::Stream;

use crate::random::Random;
use crate::transport::stream::{self, Carriage, End, Watch};
use crate::transport::wire::RdmaRoute;

/// One host's way to the target. Clones are the same way.
#[derive(Clone, Debug)]
pub struct Reach(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    clock: Clock,
    carriage: Carriage,
    random: Random,
    /// Where the target serves, while there is one.
    target: Option<Port>,
    /// The target's ends of streams that it has not taken yet.
    arriving: Vec<End>,
    streams: Vec<Watch>,
    breakers: Vec<Breaker>,
    way: RdmaRoute,
    /// Nothing arrives from the host, or from the target.
    is_silent: [bool; 2],
}

/// In-memory connections that are remembered, to be broken: more than a host has.
const BREAKERS_MAX: usize = 32;

impl Reach {
    /// A way that leads nowhere yet, but for `way`.
    #[must_use]
    pub fn new(clock: &Clock, carriage: Carriage, way: RdmaRoute, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            clock: clock.clone(),
            carriage,
            random: Random::new(seed),
            target: None,
            arriving: Vec::new(),
            streams: Vec::new(),
            breakers: Vec::new(),
            way,
            is_silent: [false; 2],
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For connections over TCP.
    #[must_use]
    pub fn dialer(&self) -> Dialer {
        let reach = self.clone();
        Dialer::new(move || {
            let mut state = reach.state();
            if state.target.is_none() {
                return Err(ErrorKind::ConnectionRefused.into());
            }
            let seed = state.random.number();
            let (ours, theirs, watch) = stream::pair(&state.clock, state.carriage, seed);
            watch.silence(state.is_silent);
            state.arriving.push(theirs);
            state.streams.retain(|stream| !stream.is_over());
            state.streams.push(watch);
            io::Result::Ok(Stream::simulated(Box::new(ours)))
        })
    }

    /// For connections over RDMA.
    #[must_use]
    pub fn way(&self) -> RdmaRoute {
        self.state().way.clone()
    }

    /// For connections over the in-memory transport.
    #[must_use]
    pub fn port(&self) -> Port {
        let reach = self.clone();
        Port::new(move |end| {
            let target = reach.state().target.clone().ok_or(ConnectError::NotListening)?;
            let breaker = end.breaker();
            target.accept(end)?;
            let mut state = reach.state();
            if state.breakers.len() >= BREAKERS_MAX {
                state.breakers.remove(0);
            }
            state.breakers.push(breaker);
            Ok(())
        })
    }

    /// A target serves here, or none does any more.
    pub fn set_target(&self, port: Option<Port>) {
        self.state().target = port;
    }

    /// Streams that the target has to take.
    #[must_use]
    pub fn take_arriving(&self) -> Vec<End> {
        std::mem::take(&mut self.state().arriving)
    }

    /// Breaks one of the latest connections after so many bytes; at once over the in-memory
    /// transport.
    pub fn break_after(&self, connection: usize, bytes: u64) {
        let state = self.state();
        state.way.break_after(connection, bytes);
        let back = |count: usize| count.checked_sub(1 + connection % count.max(1));
        if let Some(stream) = back(state.streams.len()).and_then(|at| state.streams.get(at)) {
            stream.break_after(bytes);
        } else if let Some(breaker) = back(state.breakers.len().min(5)).and_then(|at| state.breakers.get(at)) {
            breaker.sever();
        }
    }

    /// From now on nothing arrives over TCP from the host, or from the target; also on connections
    /// that are made meanwhile.
    pub(crate) fn silence(&self, is_silent: [bool; 2]) {
        let mut state = self.state();
        state.is_silent = is_silent;
        state.streams.iter().for_each(|stream| stream.silence(is_silent));
    }

    /// Breaks all connections, with what is on its way.
    pub fn cut(&self) {
        let mut state = self.state();
        state.arriving.clear();
        state.streams.drain(..).for_each(|stream| stream.break_after(0));
        state.breakers.drain(..).for_each(|breaker| _ = breaker.sever());
    }

    /// When bytes arrive that are on their way.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.state().streams.iter().filter_map(Watch::due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::fabric::Fabric;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn connections_go_to_the_target_that_is_there_and_are_all_cut() {
        let carriage = Carriage { latency: Duration::from_micros(50), window_bytes: 1000, piece_bytes: 300 };
        let clock = Clock::simulated(1);
        let way = RdmaRoute { fabric: Fabric::new(&clock, 1), from: Fabric::address(1) };
        let reach = Reach::new(&clock, carriage, way, 7);
        let bell = || Arc::new(|| {});
        assert_eq!(reach.port().connect(4, bell()).unwrap_err(), ConnectError::NotListening);
        let (sender, ends) = channel();
        reach.set_target(Some(Port::new(move |end| {
            drop(sender.send(end));
            Ok(())
        })));
        let mut host = reach.port().connect(4, bell()).unwrap();
        let end = ends.try_recv().unwrap();
        assert!(host.poll().unwrap().is_none() && !end.host_is_gone());
        reach.cut();
        assert!(host.poll().is_err() && end.host_is_gone());
        reach.set_target(None);
        assert_eq!(reach.port().connect(4, bell()).unwrap_err(), ConnectError::NotListening);
        assert!(reach.take_arriving().is_empty() && reach.due().is_none());
    }
}
