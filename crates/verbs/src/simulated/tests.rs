//! Two ends of a connection of a simulated network, as links use them.

mod connections;
mod model;
mod windows;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebof_region::Buffer;

use crate::{
    Attributes, Bell, ConnectOptions, DeviceAttributes, Error, Event, Handshake, Listener, ListenerEvent, Network,
    Protocol, QueuePair, Remote, Request, SharedReceives, WorkCompletion, WorkRequest, WorkStatus,
};

const HANDSHAKE: Handshake<'static> =
    Handshake { private_data: b"", responder_resources: 4, initiator_depth: 4, retry_count: 7, rnr_retry_count: 7 };
const FLUSHED: WorkStatus = WorkStatus::Flushed;

fn address() -> SocketAddr {
    "127.0.0.1:4420".parse().unwrap()
}

fn attributes() -> Attributes {
    Attributes { receives: 4, receive_bytes: 64, sends: 4, send_bytes: 64, operations: 8, ..Attributes::default() }
}

fn request(listener: &mut Listener) -> Request {
    match listener.poll().unwrap() {
        Some(ListenerEvent::Request(request)) => request,
        other => panic!("{other:?}"),
    }
}

/// A host's queue pair that has sent its request.
fn asking(network: &Network, handshake: &Handshake<'_>) -> QueuePair {
    let mut connecting = network.connect(address(), None, &ConnectOptions::default()).unwrap();
    assert!(connecting.poll().unwrap());
    let mut host = connecting.open(&attributes()).unwrap();
    host.connect(handshake).unwrap();
    host
}

/// Host and target of a connection on `network`.
fn connected(network: &super::Network, handshake: &Handshake<'_>) -> (QueuePair, QueuePair) {
    connected_with(network, handshake, &attributes())
}

fn connected_with(
    network: &super::Network,
    handshake: &Handshake<'_>,
    attributes: &Attributes,
) -> (QueuePair, QueuePair) {
    let network = Network::from(network.clone());
    let mut listener = network.listen(address(), 8).unwrap();
    let mut host = asking(&network, handshake);
    let mut target = request(&mut listener).open(attributes).unwrap();
    target.accept(handshake).unwrap();
    assert!(matches!(host.poll_event().unwrap(), Some(Event::Established { .. })));
    assert!(matches!(target.poll_event().unwrap(), Some(Event::Established { .. })));
    (host, target)
}

fn send(pair: &mut QueuePair, message: &[u8], invalidate: Option<u32>) -> u32 {
    let slot = pair.take_send_slot().unwrap();
    pair.send_slot(slot)[..message.len()].copy_from_slice(message);
    pair.post_send(slot, u32::try_from(message.len()).unwrap(), invalidate);
    slot
}

fn all(pair: &mut QueuePair) -> Vec<WorkCompletion> {
    std::iter::from_fn(|| pair.poll().unwrap()).collect()
}

fn events(pair: &mut QueuePair) -> Vec<Event> {
    std::iter::from_fn(|| pair.poll_event().unwrap()).collect()
}

fn remote(pair: &mut QueuePair, buffer: &Buffer) -> Remote {
    let key = pair.remote_key(buffer.region()).unwrap();
    Remote { address: buffer.region().address().addr() as u64 + buffer.offset() as u64, key }
}

fn flushed(what: WorkRequest) -> WorkCompletion {
    WorkCompletion::Failed { what, status: FLUSHED }
}

#[test]
fn messages_arrive_in_order_and_slots_come_back() {
    let network = super::Network::new();
    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    assert_eq!((network.queue_pairs(), network.connections().len()), (2, 1));
    let slots = [b"one" as &[u8], b"three"].map(|message| send(&mut host, message, None));
    assert_eq!((host.unflushed(), host.room()), (2, 10));
    assert!(all(&mut target).is_empty());
    host.flush().unwrap();
    assert_eq!(all(&mut host), slots.map(|slot| WorkCompletion::Sent { slot }));
    assert_eq!((host.unflushed(), host.room()), (0, 12));
    let received = all(&mut target);
    let [one, three] =
        [(0, 3), (1, 5)].map(|(slot, length)| WorkCompletion::Received { slot, length, invalidated: None });
    assert_eq!(received, [one, three]);
    assert_eq!((&target.received(0)[..3], &target.received(1)[..5]), (&b"one"[..], &b"three"[..]));
    target.post_receive(0);
    drop((host, target));
    assert_eq!(network.queue_pairs(), 0);
}

#[test]
fn a_target_reads_and_writes_the_memory_of_a_host() {
    let network = super::Network::new();
    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    let mut buffers = Buffer::zeroed_together(4096, 2);
    buffers[1].as_mut_slice()[..4].copy_from_slice(b"data");
    let at = remote(&mut host, &buffers[1]);
    assert_eq!(network.registered_bytes(), 8192);

    let held = target.hold(Buffer::zeroed(4096)).unwrap();
    assert_eq!(network.registered_bytes(), 8192 + 4096);
    target.post_read(held, 100, 4, at, 77);
    assert!(target.release(held).is_none());
    target.flush().unwrap();
    assert!(target.release(held).is_none(), "its completion was not seen");
    assert_eq!(all(&mut target), [WorkCompletion::Done { id: 77 }]);
    let mut buffer = target.release(held).unwrap();
    assert_eq!(&buffer.as_slice()[99..105], b"\0data\0");

    buffer.as_mut_slice()[..4].copy_from_slice(b"DATA");
    let held = target.hold(buffer).unwrap();
    target.post_write(held, 0, 2, Remote { address: at.address + 2, key: at.key }, None);
    let slot = send(&mut target, b"response", Some(at.key));
    target.flush().unwrap();
    assert_eq!(all(&mut target), [WorkCompletion::Sent { slot }]);
    assert!(target.release(held).is_some());
    assert_eq!(all(&mut host), [WorkCompletion::Received { slot: 0, length: 8, invalidated: Some(at.key) }]);
    assert_eq!(&buffers[1].as_slice()[..4], b"daDA");
    assert_ne!(host.remote_key(buffers[1].region()).unwrap(), at.key);
    drop((buffers, held));
    assert_eq!(network.registered_bytes(), 0, "the target's buffer was dropped");
}

fn bell() -> (Arc<AtomicUsize>, Bell) {
    let rung = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&rung);
    (rung, Arc::new(move || _ = counted.fetch_add(1, Ordering::Relaxed)))
}

#[test]
fn a_bell_rings_for_events_and_once_for_completions_after_arming() {
    let network = super::Network::new();
    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    let (rung, bell) = bell();
    target.set_bell(bell);
    let rung = || rung.load(Ordering::Relaxed);
    send(&mut host, b"1", None);
    host.flush().unwrap();
    assert_eq!((rung(), target.is_ready()), (0, true));
    target.arm().unwrap();
    assert_eq!(rung(), 0, "what was there before is not notified");
    send(&mut host, b"2", None);
    send(&mut host, b"3", None);
    host.flush().unwrap();
    assert_eq!((rung(), all(&mut target).len(), target.is_ready()), (1, 3, false));
    host.disconnect();
    assert_eq!((rung(), target.is_ready()), (2, true));
    assert_eq!(events(&mut target), [Event::Disconnected]);
    assert!(!target.is_ready());
}

#[test]
fn one_that_polls_is_told_of_events_only() {
    let network = super::Network::new();
    let (mut host, mut target) = connected_with(&network, &HANDSHAKE, &Attributes { polled: true, ..attributes() });
    let (rung, bell) = bell();
    target.set_bell(bell);
    target.arm().unwrap();
    send(&mut host, b"1", None);
    host.flush().unwrap();
    assert_eq!((rung.load(Ordering::Relaxed), all(&mut target).len()), (0, 1));
    drop(host);
    assert_eq!(rung.load(Ordering::Relaxed), 1);
}

#[test]
fn a_message_without_a_receive_waits_or_fails() {
    let network = super::Network::new();
    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    for _ in 0..4 {
        send(&mut host, b"x", None);
    }
    host.flush().unwrap();
    assert_eq!(all(&mut host).len(), 4);
    let slot = send(&mut host, b"y", None);
    host.flush().unwrap();
    assert!(all(&mut host).is_empty());
    assert_eq!(all(&mut target).len(), 4);
    target.post_receive(2);
    target.flush().unwrap();
    assert_eq!(all(&mut host), [WorkCompletion::Sent { slot }]);
    assert_eq!(all(&mut target), [WorkCompletion::Received { slot: 2, length: 1, invalidated: None }]);

    let impatient = Handshake { rnr_retry_count: 3, ..HANDSHAKE };
    let (mut host, mut target) = connected(&network, &impatient);
    let slots: Vec<_> = (0..4).map(|_| send(&mut host, b"x", None)).collect();
    host.flush().unwrap();
    assert_eq!(all(&mut host).len(), 4);
    let slot = send(&mut host, b"x", None);
    let next = send(&mut host, b"x", None);
    host.flush().unwrap();
    let failed = WorkCompletion::Failed { what: WorkRequest::Send(slot), status: WorkStatus::RnrRetryExceeded };
    let completions = all(&mut host);
    assert_eq!(completions[..2], [failed, flushed(WorkRequest::Send(next))]);
    assert_eq!(completions[2..], [0, 1, 2, 3].map(|slot| flushed(WorkRequest::Receive(slot))));
    assert_eq!((all(&mut target).len(), slots.len()), (4, 4));
}

#[test]
fn a_message_longer_than_its_slot_breaks_both_ends() {
    let network = super::Network::new();
    let (mut host, mut target) =
        connected_with(&network, &HANDSHAKE, &Attributes { receives: 2, receive_bytes: 63, ..attributes() });
    let slot = send(&mut host, &[1; 64], None);
    host.flush().unwrap();
    let what = WorkRequest::Send(slot);
    let failed = WorkCompletion::Failed { what, status: WorkStatus::RemoteInvalidRequest };
    assert_eq!(all(&mut host)[0], failed);
    let failed = WorkCompletion::Failed { what: WorkRequest::Receive(0), status: WorkStatus::LocalLength };
    assert_eq!(all(&mut target), [failed, flushed(WorkRequest::Receive(1))]);
    // Everything that is posted now comes back.
    target.post_receive(1);
    let slot = send(&mut target, b"late", None);
    target.flush().unwrap();
    assert_eq!(all(&mut target), [flushed(WorkRequest::Send(slot)), flushed(WorkRequest::Receive(1))]);
}

#[test]
fn wrong_keys_and_ranges_break_both_ends_and_write_nothing() {
    let other = Buffer::zeroed(4096);
    for wrong in 0..5 {
        let network = super::Network::new();
        let (mut host, mut target) = connected(&network, &HANDSHAKE);
        let buffer = Buffer::zeroed(4096);
        let right = remote(&mut host, &buffer);
        let at = match wrong {
            0 => Remote { key: right.key + 1, ..right },
            1 => Remote { key: 0, ..right },
            2 => Remote { address: right.address + 4093, ..right },
            3 => Remote { address: other.region().address().addr() as u64, ..right },
            _ => Remote { address: u64::MAX, ..right },
        };
        let mut full = Buffer::zeroed(4096);
        full.as_mut_slice().fill(9);
        let held = target.hold(full).unwrap();
        target.post_write(held, 0, 4, at, None);
        target.post_read(held, 0, 4, right, 5);
        target.flush().unwrap();
        let status = WorkStatus::RemoteAccess;
        let completions = all(&mut target);
        let failed = WorkCompletion::Failed { what: WorkRequest::Unsignalled, status };
        assert_eq!(completions[..2], [failed, flushed(WorkRequest::Operation(5))], "{wrong}");
        assert!(target.release(held).is_some());
        assert!(matches!(events(&mut host)[..], [Event::Fatal(_)]));
        assert_eq!(all(&mut host).len(), 4);
        assert!(buffer.as_slice().iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_key_ends_with_its_region() {
    let network = super::Network::new();
    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    let buffer = Buffer::zeroed(4096);
    let at = remote(&mut host, &buffer);
    assert_eq!(remote(&mut host, &buffer), at, "one for each region");
    drop(buffer);
    let held = target.hold(Buffer::zeroed(4096)).unwrap();
    target.post_read(held, 0, 4, at, 1);
    target.flush().unwrap();
    let status = WorkStatus::RemoteAccess;
    assert_eq!(all(&mut target)[0], WorkCompletion::Failed { what: WorkRequest::Operation(1), status });
}

#[test]
fn one_that_serves_no_reads_refuses_them() {
    let network = super::Network::new();
    let (mut host, mut target) = connected(&network, &Handshake { responder_resources: 0, ..HANDSHAKE });
    let buffer = Buffer::zeroed(4096);
    let at = remote(&mut host, &buffer);
    let held = target.hold(Buffer::zeroed(4096)).unwrap();
    target.post_read(held, 0, 4, at, 1);
    target.flush().unwrap();
    let status = WorkStatus::RemoteInvalidRequest;
    assert_eq!(all(&mut target)[0], WorkCompletion::Failed { what: WorkRequest::Operation(1), status });
}

#[test]
fn a_write_without_an_id_is_over_although_nothing_follows() {
    let network = super::Network::new();
    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    let buffer = Buffer::zeroed(4096);
    let at = remote(&mut host, &buffer);
    let held = [(); 3].map(|()| target.hold(Buffer::zeroed(4096)).unwrap());
    held.iter().for_each(|held| target.post_write(*held, 0, 4, at, None));
    target.flush().unwrap();
    assert!(all(&mut target).is_empty());
    assert!(held.into_iter().all(|held| target.release(held).is_some()));
    assert_eq!(target.room(), 12);
}

#[test]
fn a_read_that_is_overtaken_keeps_its_buffer() {
    let network = super::Network::new();
    network.overtake_reads();
    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    let mut buffer = Buffer::zeroed(4096);
    buffer.as_mut_slice()[0] = 7;
    let at = remote(&mut host, &buffer);
    let [read, write] = [(); 2].map(|()| target.hold(Buffer::zeroed(4096)).unwrap());
    target.post_read(read, 0, 1, at, 1);
    target.post_write(write, 0, 1, Remote { address: at.address + 1, ..at }, None);
    let slot = send(&mut target, b"x", None);
    target.flush().unwrap();
    assert_eq!(target.poll().unwrap(), Some(WorkCompletion::Sent { slot }));
    assert!(target.release(write).is_some() && target.release(read).is_none());
    assert_eq!(all(&mut target), [WorkCompletion::Done { id: 1 }]);
    assert_eq!(target.release(read).unwrap().as_slice()[0], 7);
}

#[test]
fn a_device_refuses_invalidations_that_it_cannot_do() {
    let network = super::Network::with_device(DeviceAttributes { send_with_invalidate: false, ..super::device() });
    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    let buffer = Buffer::zeroed(4096);
    let key = remote(&mut host, &buffer).key;
    let slot = send(&mut target, b"x", Some(key));
    assert!(matches!(target.flush(), Err(Error::State(_))));
    assert_eq!(all(&mut target)[0], flushed(WorkRequest::Send(slot)));

    let network = super::Network::with_device(DeviceAttributes { region_invalidation: false, ..super::device() });
    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    let key = remote(&mut host, &buffer).key;
    let slot = send(&mut target, b"x", Some(key));
    target.flush().unwrap();
    let (what, status) = (WorkRequest::Send(slot), WorkStatus::RemoteAccess);
    assert_eq!(all(&mut target)[0], WorkCompletion::Failed { what, status });
    let (what, status) = (WorkRequest::Receive(0), WorkStatus::LocalProtection);
    assert_eq!(all(&mut host)[0], WorkCompletion::Failed { what, status });
    assert_eq!(remote(&mut host, &buffer).key, key, "it is valid");
}
