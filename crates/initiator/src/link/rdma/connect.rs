//! Connecting an RDMA link: address and route, the queue pair, then the connection manager's
//! handshake, whose private data are NVMe/RDMA's. Each step has a time-out.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ebof_nvme::Cid;
use ebof_rdma::capsule::COMMAND_BYTES;
use ebof_rdma::host::{Connection, ConnectionConfig};
use ebof_rdma::private_data::ConnectReject;
use ebof_verbs::{Attributes, Bell, ConnectOptions, Connecting, Error, Event, Handshake, Network, QueuePair};
use rustix::io::Errno;

use super::{ADMIN_BOUNCE_BYTES, Bounce, IN_CAPSULE_MAX, IO_BOUNCE_BYTES, Rdma, RemoteKeys};
use crate::error::Loss;
use crate::error::connect_error::{ConnectErrorKind as Kind, Step, Tried};
use crate::link::Wanted;
use crate::link::address::{local_address, resolve};
use crate::link::stop::await_ready;
use crate::options::Options;
use crate::options::transport::Transport;
use crate::wait::{Cancel, Waiter, Waker, Watch};

/// How often the adapter sends again what was not acknowledged: as often as it can.
const RETRIES: u8 = 7;
/// How often a command is sent again for which the controller had no receive: until it has one.
const RNR_RETRIES: u8 = 7;
/// The connection manager's reject reason "invalid service ID": nobody listens.
const NOBODY_LISTENS: i32 = 8;

/// Connects a queue to the first address of the name that answers. Records its progress in `tried`.
/// Also returns the target's address.
pub(in crate::link) async fn connect(
    options: &Options,
    wanted: &Wanted,
    tried: &mut Tried,
    waiter: &Waiter,
    cancel: &Cancel,
) -> Result<(Rdma, SocketAddr), Kind> {
    let network = network(&options.transport)?;
    tried.step = Step::Resolve;
    let local = local_address(options)?;
    let addresses = resolve(options, local)?;
    let mut attempt = Attempt { options, wanted, waiter, cancel, bell: None };
    let mut last = Kind::NameNotResolved { reason: "no address of the family of --host-traddr".to_owned() };
    for address in addresses {
        tried.address = Some(address);
        match attempt.connect(&network, address, local, tried).await {
            Ok(link) => return Ok((link, address)),
            Err(Kind::Cancelled) => return Err(Kind::Cancelled),
            Err(kind) => last = kind,
        }
    }
    Err(last)
}

/// The network of a transport; that of the system is the same for the whole process, so that memory
/// is registered once.
fn network(transport: &Transport) -> Result<Network, Kind> {
    static SYSTEM: OnceLock<Network> = OnceLock::new();
    if let Transport::QueuePairs(network) = transport {
        return Ok(network.clone());
    }
    if let Some(network) = SYSTEM.get() {
        return Ok(network.clone());
    }
    // Not kept if it fails: the libraries may be installed meanwhile.
    let network = Network::system().map_err(|error| Kind::NoRdma { reason: error.to_string() })?;
    Ok(SYSTEM.get_or_init(|| network).clone())
}

struct Attempt<'a> {
    options: &'a Options,
    wanted: &'a Wanted,
    waiter: &'a Waiter,
    cancel: &'a Cancel,
    /// For handles without a descriptor.
    bell: Option<Arc<Waker>>,
}

impl Attempt<'_> {
    async fn connect(
        &mut self,
        network: &Network,
        to: SocketAddr,
        from: Option<IpAddr>,
        tried: &mut Tried,
    ) -> Result<Rdma, Kind> {
        tried.step = Step::Address;
        let timeout = Duration::from_millis(u64::from(self.options.connect_timeout_ms.max(1)));
        let options = ConnectOptions { tos: self.options.tos, timeout };
        let mut connecting = network.connect(to, from, &options).map_err(|error| kind(&error))?;
        self.resolve(&mut connecting).await?;
        tried.step = Step::QueuePair;
        let in_capsule = self.wanted.in_capsule.min(IN_CAPSULE_MAX);
        let config =
            ConnectionConfig { queue: self.wanted.queue, entries: self.wanted.entries, cntlid: self.wanted.controller };
        let connection = Connection::new(config);
        let sends = u32::from(self.wanted.entries);
        let keys = RemoteKeys::new(self.options.memory_windows, connecting.device());
        let attributes = Attributes {
            receives: connection.receives(),
            receive_bytes: Connection::RECEIVE_BYTES,
            sends,
            send_bytes: COMMAND_BYTES + u32::try_from(in_capsule).unwrap_or(0),
            operations: sends * keys.operations(),
            windows: if keys.operations() > 0 { sends } else { 0 },
            ..Attributes::default()
        };
        let reads = connecting.device().map_or(1, |device| device.responder_resources);
        let mut pair = connecting.open(&attributes).map_err(|error| kind(&error))?;
        tried.step = Step::Rdma;
        let bounce_bytes = if self.wanted.queue.is_admin() { ADMIN_BOUNCE_BYTES } else { IO_BOUNCE_BYTES };
        let accepted = self.handshake(&mut pair, &connection, reads).await?;
        let mut link = Rdma {
            pair,
            connection,
            bell: self.bell.take(),
            in_capsule,
            commands_max: 0,
            commands: 0,
            waiting: VecDeque::new(),
            bounce: Bounce::new(bounce_bytes),
            keys,
            copies: Box::default(),
            sent: vec![Cid(0); sends as usize].into_boxed_slice(),
            next: None,
            idle_reads: 0,
            ended: None,
        };
        let accepted = link.connection.on_accepted(&accepted);
        let accepted = accepted.map_err(|malformed| Kind::Protocol { violation: malformed.to_string() })?;
        link.commands_max = usize::from(accepted.commands);
        Ok(link)
    }

    /// Waits until address and route are resolved.
    async fn resolve(&mut self, connecting: &mut Connecting) -> Result<(), Kind> {
        if connecting.descriptor().is_none() {
            connecting.set_bell(self.bell()?);
        }
        let deadline = self.deadline();
        loop {
            self.clear_bell();
            if connecting.poll().map_err(|error| kind(&error))? {
                return Ok(());
            }
            self.wait(connecting.descriptor(), deadline).await?;
        }
    }

    /// Sends the request and waits for the answer: the private data of the acceptance.
    async fn handshake(&mut self, pair: &mut QueuePair, connection: &Connection, reads: u8) -> Result<Vec<u8>, Kind> {
        if pair.descriptor().is_none() {
            pair.set_bell(self.bell()?);
        }
        let request = connection.request();
        let handshake = Handshake {
            private_data: &request,
            // The controller reads the data of writes, and this end reads nothing.
            responder_resources: reads,
            initiator_depth: 0,
            retry_count: RETRIES,
            rnr_retry_count: RNR_RETRIES,
        };
        pair.connect(&handshake).map_err(|error| kind(&error))?;
        let deadline = self.deadline();
        loop {
            self.clear_bell();
            match pair.poll_event().map_err(|error| kind(&error))? {
                Some(Event::Established { private_data, .. }) => return Ok(private_data),
                Some(event) => return Err(refused(&event)),
                None => self.wait(pair.descriptor(), deadline).await?,
            }
        }
    }

    async fn wait(&self, descriptor: Option<BorrowedFd<'_>>, deadline: Instant) -> Result<(), Kind> {
        let of_bell = || self.bell.as_ref().and_then(|bell| bell.descriptor());
        let watch = Watch { descriptor: descriptor.or_else(of_bell), blocked: false };
        await_ready(watch, deadline, self.waiter, Some(self.cancel)).await.map_err(|stop| stop.into_kind(self.options))
    }

    /// A bell that wakes this sequence, and later the link.
    fn bell(&mut self) -> Result<Bell, Kind> {
        let bell = match &self.bell {
            Some(bell) => bell,
            None => {
                let waker = self.waiter.waker();
                let system = |errno| Kind::System { action: "making an event descriptor", errno };
                self.bell.insert(Arc::new(waker.map_err(system)?))
            }
        };
        // Weak: the network may keep its end after this one is dropped.
        let weak = Arc::downgrade(bell);
        Ok(Arc::new(move || {
            if let Some(bell) = weak.upgrade() {
                bell.wake();
            }
        }))
    }

    fn clear_bell(&self) {
        if let Some(bell) = &self.bell {
            bell.clear();
        }
    }

    fn deadline(&self) -> Instant {
        self.waiter.time.now() + Duration::from_millis(u64::from(self.options.connect_timeout_ms.max(1)))
    }
}

/// Why there is no connection, by the event that came instead.
fn refused(event: &Event) -> Kind {
    match event {
        Event::Rejected { reason: Event::BY_CONSUMER, private_data } => match ConnectReject::decode(private_data) {
            Ok(reject) => Kind::Rejected { status: reject.status },
            Err(_) => Kind::RejectedByManager { reason: Event::BY_CONSUMER },
        },
        Event::Rejected { reason: NOBODY_LISTENS, .. } => Kind::Refused,
        Event::Rejected { reason, private_data } => match (errno_of(*reason, Errno::IO), private_data.as_slice()) {
            // iWARP has no reasons: nobody listens, or a program that has said why.
            (Errno::CONNREFUSED, said) => match ConnectReject::decode(said) {
                Ok(reject) if reject.status.name().is_some() => Kind::Rejected { status: reject.status },
                _ => Kind::Refused,
            },
            _ => Kind::RejectedByManager { reason: *reason },
        },
        Event::Unreachable(status) => Kind::Unreachable { errno: errno_of(*status, Errno::HOSTUNREACH) },
        Event::Established { .. } | Event::Disconnected => Kind::Closed { errno: None },
        Event::DeviceRemoved => Kind::NoRdmaDevice { reason: "the RDMA device was removed".to_owned() },
        Event::AddressChanged => {
            Kind::NoRdmaDevice { reason: "the address has moved to another network interface".to_owned() }
        }
        Event::Fatal(reason) => Kind::NoRdmaDevice { reason: (*reason).to_owned() },
    }
}

/// The kind of an error of a call.
fn kind(error: &Error) -> Kind {
    match error {
        Error::Address { source, .. } | Error::Route { source, .. } => match Errno::from_io_error(source) {
            Some(Errno::NODEV | Errno::XDEV) => Kind::NoRdmaDevice { reason: error.to_string() },
            errno => Kind::Unreachable { errno: errno.unwrap_or(Errno::HOSTUNREACH) },
        },
        Error::NoDevice(_) | Error::DeviceRemoved => Kind::NoRdmaDevice { reason: error.to_string() },
        Error::Refused(_) => Kind::Refused,
        Error::Limit { .. } | Error::QueuePair { .. } | Error::Register { .. } => {
            Kind::RdmaLimit { reason: error.to_string() }
        }
        Error::ConnectionManager(_) => Kind::NoRdma { reason: error.to_string() },
        Error::Call { call, source } => {
            Kind::System { action: call, errno: Errno::from_io_error(source).unwrap_or(Errno::IO) }
        }
        Error::AddressInUse(_) | Error::PrivateData { .. } | Error::State(_) => {
            Kind::Protocol { violation: error.to_string() }
        }
    }
}

/// How the error of a call ends a connection.
pub(super) fn loss(error: &Error) -> Loss {
    match error {
        Error::Call { call, source } => {
            Loss::RdmaCall { call, errno: Errno::from_io_error(source).unwrap_or(Errno::IO) }
        }
        Error::Address { source, .. } | Error::Route { source, .. } => {
            Loss::Network(Errno::from_io_error(source).unwrap_or(Errno::IO))
        }
        Error::Refused(_) => Loss::Network(Errno::CONNREFUSED),
        Error::DeviceRemoved => Loss::RdmaEvent("the RDMA device was removed"),
        Error::State(state) => Loss::RdmaEvent(state),
        Error::Limit { .. } | Error::QueuePair { .. } => Loss::RdmaEvent("the RDMA device has not enough resources"),
        Error::Register { .. } => Loss::RdmaEvent("memory could not be registered with the RDMA device"),
        Error::ConnectionManager(_) => Loss::RdmaEvent("the kernel's RDMA connection manager is not available"),
        Error::NoDevice(_) | Error::AddressInUse(_) | Error::PrivateData { .. } => Loss::Network(Errno::IO),
    }
}

/// The errno of a negative status of the connection manager.
pub(super) fn errno_of(status: i32, other: Errno) -> Errno {
    if status < 0 { Errno::from_raw_os_error(status.saturating_neg()) } else { other }
}
