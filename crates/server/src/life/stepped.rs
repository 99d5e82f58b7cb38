//! A target without threads: the caller runs its parts, in the order that it chooses. For
//! simulations, and for embedders with an event loop of their own.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use ebof_loopback::ConnectError;
use ebof_manage::listen::Transport;
use ebof_manage::{Config, config};
use ebof_medium::Stepper;
use ebof_sockets::{SimulatedStream, Stream};

use crate::drives::{DriveThreads, SteppedDrive};
use crate::environment::settings::Settings;
use crate::environment::{Environment, RdmaNetwork};
use crate::life::control::{self, Listening};
use crate::life::serve::{Assembled, Target};
use crate::life::startup::{self, Devices, StartError};
use crate::ports::listener::{Bound, RdmaListener};
use crate::ports::peer::{Peer, PeerAddress};
use crate::ports::port::PortState;
use crate::reactor::Reactor;
use crate::reactor::admission;
use crate::reactor::rdma_admission;
use crate::shared::mailbox::{Incoming, Mailbox, Message};

/// A target that does its work when its caller steps it.
///
/// It asks nothing of the system but what its [`Environment`](crate::Environment) has from there:
/// time, chance, and storage. Ports are names here: nobody listens. Call [`step`](Self::step),
/// [`keep_time`](Self::keep_time) and the drives' steps in any order; when none of them does
/// anything, nothing happens before [`due`](Self::due), or before something comes from outside:
/// from a host, or from a device that has ended a request.
///
/// Dropping it is what a kill is to a process: nothing more is written, and connections end.
pub struct SteppedTarget {
    /// Before what it is made of: a drive that is killed refuses what was asked for.
    drives: Vec<SteppedDrive>,
    reactors: Vec<Reactor>,
    target: Target,
    requests: Requests,
}

/// Requests of hosts for connections over RDMA, where its network is not the system's.
struct Requests {
    /// By the names of their ports.
    listeners: Vec<(String, Arc<RdmaListener>)>,
    /// Whether there may be some.
    has_rung: Arc<AtomicBool>,
}

impl Requests {
    fn for_ports(ports: &[Listening]) -> Self {
        let has_rung = Arc::new(AtomicBool::new(false));
        let listeners = ports.iter().filter_map(|listening| match &listening.bound {
            Some(Bound::Rdma(listener)) => Some((listening.port.name.clone(), Arc::clone(listener))),
            _ => None,
        });
        let requests = Self { listeners: listeners.collect(), has_rung };
        requests.listeners.iter().for_each(|(_, listener)| requests.hear(listener));
        requests
    }

    fn hear(&self, listener: &RdmaListener) {
        let has_rung = Arc::clone(&self.has_rung);
        listener.set_bell(Arc::new(move || has_rung.store(true, SeqCst)));
    }

    fn take(&self, target: &Target) {
        // Those that have lost their address listen again as soon as a device has it.
        for (_, listener) in self.listeners.iter().filter(|(_, listener)| !listener.is_bound()) {
            if listener.bind_again().is_ok() {
                self.hear(listener);
            }
        }
        if !self.has_rung.swap(false, SeqCst) || target.shared.stopping.load(Relaxed) {
            return;
        }
        for (name, listener) in &self.listeners {
            let Some(port) = target.port(name) else { continue };
            if let Err(error) = rdma_admission::accept_some(&target.shared, listener, &port) {
                tracing::error!(port = name, "requests for connections cannot be taken: {error}");
            }
        }
    }
}

impl SteppedTarget {
    /// Opens the drives of `config`. There are as many reactors as the settings have threads, or
    /// one.
    ///
    /// # Errors
    /// A drive that cannot be opened; nothing is left of it then.
    pub fn start(config: Config, settings: Settings) -> Result<Self, StartError> {
        let mut drives = Vec::new();
        let devices =
            Devices::open(&config, &settings.environment, &mut DriveThreads::Stepped(&mut drives), |_, error| {
                Err(error)
            })?;
        let ports =
            config.enabled_ports().map(|port| open(port, &settings.environment)).collect::<Result<Vec<_>, _>>()?;
        let requests = Requests::for_ports(&ports);
        let count = settings.threads.unwrap_or(1).max(1);
        let mailboxes: Vec<_> = (0..count).map(|_| Mailbox::without_bell()).collect();
        let bell = Mailbox::without_bell();
        let Assembled { target, table, .. } =
            Target::assemble(config, settings, devices, ports, Vec::new(), &mailboxes, &bell)?;
        let reactor = |(index, mailbox)| {
            let shared = Arc::clone(&target.shared);
            let table = Arc::clone(&table);
            let advice = "the factory of the settings' environment has no more of them";
            Reactor::new(index, shared, mailbox, table, true).map_err(|error| StartError::Reactor {
                index,
                error,
                advice,
            })
        };
        let reactors = mailboxes.into_iter().enumerate().map(reactor).collect::<Result<_, _>>()?;
        Ok(Self { drives, reactors, target, requests })
    }

    /// A host at `remote` connects to a port over TCP: `stream` is this end of it.
    ///
    /// # Errors
    /// There is no such port, or no room for a connection.
    pub fn connect(
        &mut self,
        port: &str,
        remote: SocketAddr,
        stream: Box<dyn SimulatedStream>,
    ) -> Result<(), ConnectError> {
        let shared = &self.target.shared;
        let port = self.target.port(port).filter(|_| !shared.stopping.load(Relaxed));
        let port = port.ok_or(ConnectError::NotListening)?;
        let address = PeerAddress::Network { remote, local: port.address };
        let waiting = admission::room_for(shared, address, &port).map_err(|admission::NoRoom| ConnectError::TooMany)?;
        let reactor = shared.next_reactor();
        let incoming = Incoming::Tcp(Stream::simulated(stream));
        admission::hand_over(shared, reactor, incoming, Peer::new(port, address), waiting);
        Ok(())
    }

    /// Where hosts in this process reach it, as [`Target::loopback`].
    #[must_use]
    pub fn loopback(&self, port: &str) -> Option<ebof_loopback::Port> {
        self.target.loopback(port)
    }

    /// The target, to ask for its state.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// How many reactors there are.
    #[must_use]
    pub fn reactors(&self) -> usize {
        self.reactors.len()
    }

    /// One turn of a reactor. Returns whether it did anything; one that did may have more to do.
    ///
    /// # Panics
    /// There is no such reactor.
    pub fn step(&mut self, reactor: usize) -> bool {
        self.reactors[reactor].step()
    }

    /// What the control thread does: deadlines of controllers that have passed, and requests for
    /// connections over an RDMA network that is not the system's.
    pub fn keep_time(&mut self) {
        self.requests.take(&self.target);
        self.target.shared.bury();
        control::keep_time(&self.target.shared);
    }

    /// What the drives' threads would do, by the names of the drives' subsystems in their order.
    pub fn drives(&mut self) -> impl Iterator<Item = &mut Stepper> {
        self.drives.iter_mut().map(|drive| &mut drive.stepper)
    }

    /// When a reactor, the control's deadlines or a drive have something to do, as far as is known
    /// now: a moment that is not in the future where that is at once, `None` where nothing will be
    /// before something comes from outside.
    pub fn due(&mut self) -> Option<Instant> {
        let clock = &self.target.shared.clock;
        let reactors = self.reactors.iter().filter(|reactor| !reactor.is_shut_down()).filter_map(Reactor::due_ms);
        let of_control = control::next_deadline_ms(&self.target.shared);
        let of_requests = self.requests.has_rung.load(SeqCst).then_some(0);
        let of_target = reactors.chain(of_control).chain(of_requests).min().map(|ms| clock.moment(ms));
        self.drives.iter_mut().filter_map(|drive| drive.stepper.due()).chain(of_target).min()
    }

    /// Accepts nothing more, completes the commands that were accepted, and ends its connections,
    /// within `grace`; [`is_shut_down`](Self::is_shut_down) says when that is done.
    pub fn shut_down(&mut self, grace: Duration) {
        let shared = &self.target.shared;
        shared.stopping.store(true, Relaxed);
        let deadline_ms = shared.clock.now_ms() + u64::try_from(grace.as_millis()).unwrap_or(u64::MAX / 2);
        shared.post_all(|| Message::Shutdown { deadline_ms });
    }

    /// Whether [`shut_down`](Self::shut_down) was called and nothing of a connection is left.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.reactors.iter().all(Reactor::is_shut_down)
    }

    /// Closes the drives in order, as at the end of a process that is asked to end.
    pub fn close(mut self) {
        for SteppedDrive { actor, stepper } in &mut self.drives {
            actor.stop_stepped(stepper);
        }
    }
}

/// A port at which nobody listens, unless it is one of an RDMA network that is not the system's.
fn open(port: &config::Port, environment: &Environment) -> Result<Listening, StartError> {
    if port.listen.transport == Transport::Rdma && matches!(environment.rdma, RdmaNetwork::Other(_)) {
        return startup::listen(port, environment);
    }
    let address = SocketAddr::new(port.listen.address, port.listen.port);
    Ok(Listening { port: Arc::new(PortState::new(port.clone(), address)), bound: None })
}

impl fmt::Debug for SteppedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteppedTarget").field("reactors", &self.reactors.len()).finish_non_exhaustive()
    }
}
