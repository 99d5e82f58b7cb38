//! Both ends of a connection on one thread, and how the tests wait for them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use ebof_region::Buffer;
use ebof_verbs::{
    Attributes, ConnectOptions, Connecting, Event, Handshake, Listener, ListenerEvent, Network, PortState, Protocol,
    QueuePair, Request, WorkCompletion,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn network() -> Network {
    Network::system().expect("rdma-core is installed")
}

/// The address that the tests use, and what is spoken there.
pub(crate) fn address() -> IpAddr {
    if let Ok(address) = std::env::var("EBOF_RDMA_ADDRESS") {
        return address.parse().unwrap();
    }
    let devices = network().devices().unwrap();
    let ports = devices.iter().flat_map(|device| &device.ports).filter(|port| port.state == PortState::Active);
    let mapped = |gid: &ebof_verbs::Gid| Ipv6Addr::from(gid.address).to_ipv4_mapped();
    let mut addresses = ports.flat_map(|port| &port.gids).filter_map(mapped);
    // iWARP devices have no addresses in their table.
    addresses.next().map_or_else(|| "10.0.2.15".parse().unwrap(), IpAddr::V4)
}

pub(crate) fn is_iwarp() -> bool {
    network().devices().unwrap().iter().any(|device| device.attributes.protocol == Protocol::Iwarp)
}

/// Room for 8 messages of 4 KiB in both directions.
pub(crate) fn attributes() -> Attributes {
    Attributes { receives: 8, receive_bytes: 4096, sends: 8, send_bytes: 4096, operations: 32, ..Attributes::default() }
}

pub(crate) fn handshake(private_data: &[u8]) -> Handshake<'_> {
    Handshake { private_data, responder_resources: 8, initiator_depth: 8, retry_count: 4, rnr_retry_count: 7 }
}

/// A host and a target that are connected.
pub(crate) struct Ends {
    pub(crate) host: QueuePair,
    pub(crate) target: QueuePair,
    pub(crate) listener: Listener,
}

impl Ends {
    pub(crate) fn connected() -> Ends {
        Ends::with(&attributes(), &attributes(), &handshake(&[]))
    }

    pub(crate) fn with(host: &Attributes, target: &Attributes, handshake: &Handshake<'_>) -> Ends {
        let mut listener = network().listen(SocketAddr::new(address(), 0), 8).unwrap();
        let (host, target) = connect(&mut listener, host, target, handshake);
        Ends { host, target, listener }
    }
}

/// Another connection to a listener.
pub(crate) fn connect(
    listener: &mut Listener,
    host: &Attributes,
    target: &Attributes,
    handshake: &Handshake<'_>,
) -> (QueuePair, QueuePair) {
    let to = SocketAddr::new(address(), listener.local_address().port());
    let mut host = resolve(to).open(host).unwrap();
    host.connect(handshake).unwrap();
    let mut target = request(listener).open(target).unwrap();
    target.accept(handshake).unwrap();
    assert!(matches!(event(&mut host), Event::Established { .. }));
    assert!(matches!(event(&mut target), Event::Established { .. }));
    (host, target)
}

/// A connection to `to`, up to the queue pair.
pub(crate) fn resolve(to: SocketAddr) -> Connecting {
    let mut connecting = network().connect(to, None, &ConnectOptions::default()).unwrap();
    until(|| connecting.poll().unwrap().then_some(()), "address and route");
    connecting
}

pub(crate) fn request(listener: &mut Listener) -> Request {
    until(
        || match listener.poll().unwrap() {
            Some(ListenerEvent::Request(request)) => Some(request),
            None => None,
            Some(other) => panic!("{other:?}"),
        },
        "a request",
    )
}

pub(crate) fn event(pair: &mut QueuePair) -> Event {
    until(|| pair.poll_event().unwrap(), "an event")
}

/// The next completion, waiting as a thread does that has nothing else.
pub(crate) fn completion(pair: &mut QueuePair) -> WorkCompletion {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(completion) = pair.poll().unwrap() {
            return completion;
        }
        pair.arm().unwrap();
        if let Some(completion) = pair.poll().unwrap() {
            return completion;
        }
        assert!(Instant::now() < end, "no completion of {pair:?}");
        readable(pair, 100);
    }
}

/// Waits for the descriptor.
pub(crate) fn readable(pair: &QueuePair, timeout_ms: i64) -> bool {
    let descriptor = pair.descriptor().expect("of the system");
    let timeout = Timespec { tv_sec: timeout_ms / 1000, tv_nsec: timeout_ms % 1000 * 1_000_000 };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

pub(crate) fn until<T>(mut poll: impl FnMut() -> Option<T>, what: &str) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < end, "there is never {what}");
        std::thread::yield_now();
    }
}

/// Sends a message.
pub(crate) fn send(pair: &mut QueuePair, message: &[u8]) -> u32 {
    let slot = pair.take_send_slot().expect("a free slot");
    pair.send_slot(slot)[..message.len()].copy_from_slice(message);
    pair.post_send(slot, u32::try_from(message.len()).unwrap(), None);
    pair.flush().unwrap();
    slot
}

/// Receives a message, and gives its slot back.
pub(crate) fn receive(pair: &mut QueuePair) -> Vec<u8> {
    match completion(pair) {
        WorkCompletion::Received { slot, length, .. } => {
            let message = pair.received(slot)[..length as usize].to_vec();
            pair.post_receive(slot);
            pair.flush().unwrap();
            message
        }
        other => panic!("{other:?}"),
    }
}

/// Waits until everything that `from` has written is in the memory of `to`: a message that follows
/// is received. With iWARP the completion of an RDMA WRITE says less, only that its data are on
/// their way (RFC 5040, section 5.5).
pub(crate) fn until_placed(from: &mut QueuePair, to: &mut QueuePair) {
    send(from, b"placed");
    assert_eq!(receive(to), b"placed");
    assert!(matches!(completion(from), WorkCompletion::Sent { .. }));
}

/// A buffer whose bytes differ from those of other seeds.
pub(crate) fn filled(bytes: usize, seed: u8) -> Buffer {
    let mut buffer = Buffer::zeroed(bytes);
    for (index, byte) in buffer.as_mut_slice().iter_mut().enumerate() {
        *byte = seed.wrapping_mul(31).wrapping_add(u8::try_from(index % 251).unwrap());
    }
    buffer
}
