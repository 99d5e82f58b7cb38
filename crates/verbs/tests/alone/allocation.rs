//! The I/O path does not allocate: over a device, and over a simulated network.

use std::alloc::System;
use std::time::Duration;

use ebof_region::Buffer;
use ebof_verbs::{
    Attributes, ConnectOptions, Event, Listener, ListenerEvent, Network, QueuePair, Remote, WindowAccess,
    WorkCompletion, simulated,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::ends::{Ends, attributes, handshake, network};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The next completion.
fn next(pair: &mut QueuePair) -> WorkCompletion {
    loop {
        if let Some(completion) = pair.poll().unwrap() {
            return completion;
        }
        std::thread::yield_now();
    }
}

/// A command and its response, as target and host do them: a message, an RDMA READ, an RDMA WRITE
/// and a message; with a window for the data if there are any.
fn exchange(host: &mut QueuePair, target: &mut QueuePair, memory: &Buffer, key: u32, buffer: Buffer) -> Buffer {
    let window = host.post_bind(memory.region(), 0, 4096, WindowAccess::Read).unwrap();
    let slot = host.take_send_slot().unwrap();
    host.send_slot(slot)[..4].copy_from_slice(b"read");
    host.post_send(slot, 64, None);
    host.flush().unwrap();
    target.arm().unwrap();
    let WorkCompletion::Received { slot, .. } = next(target) else { panic!("no message") };
    target.post_receive(slot);
    let held = target.hold(buffer).unwrap();
    let remote = Remote { address: memory.region().address() as u64, key };
    let from = Remote { key: window.map_or(key, |window| window.key()), ..remote };
    target.post_read(held, 0, 4096, from, 1);
    target.flush().unwrap();
    assert_eq!(next(target), WorkCompletion::Done { id: 1 });
    target.post_write(held, 0, 4096, remote, None);
    let slot = target.take_send_slot().unwrap();
    target.post_send(slot, 16, None);
    target.flush().unwrap();
    // The message of the host is sent, and that of the target received, in either order.
    let mut over = 0;
    while over < 2 {
        match next(host) {
            WorkCompletion::Sent { .. } => over += 1,
            WorkCompletion::Received { slot, .. } => {
                host.post_receive(slot);
                if let Some(window) = window {
                    host.post_invalidate(window, 2);
                }
                over += 1;
            }
            other => panic!("{other:?}"),
        }
        host.flush().unwrap();
    }
    if window.is_some() {
        assert_eq!(next(host), WorkCompletion::Done { id: 2 });
    }
    assert!(matches!(next(target), WorkCompletion::Sent { .. }));
    target.release(held).unwrap()
}

/// Rounds at most, and what is between two.
const ROUNDS_MAX: usize = 100;
const PAUSE: Duration = Duration::from_millis(5);

/// Allocations of some exchanges, once everything is as large as it gets: the least of many rounds,
/// since the allocator counts the test harness' own thread, too, which may begin late on a busy
/// machine. What an exchange allocates is in every round.
fn allocations(host: &mut QueuePair, target: &mut QueuePair) -> usize {
    let memory = Buffer::zeroed(4096);
    let key = host.remote_key(memory.region()).unwrap();
    let mut buffer = Some(Buffer::zeroed(4096));
    let mut rounds = |count| {
        for _ in 0..count {
            buffer = buffer.take().map(|buffer| exchange(host, target, &memory, key, buffer));
        }
    };
    rounds(10);
    let mut least = usize::MAX;
    for _ in 0..ROUNDS_MAX {
        let region = Region::new(ALLOCATOR);
        rounds(30);
        let change = region.change();
        least = least.min(change.allocations + change.reallocations);
        if least == 0 {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    least
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn nothing_is_allocated_for_io() {
    let windows = network().devices().unwrap()[0].attributes.memory_windows.min(2);
    let with_windows = Attributes { windows, ..attributes() };
    for of_host in [attributes(), with_windows] {
        let Ends { mut host, mut target, .. } = Ends::with(&of_host, &attributes(), &handshake(&[]));
        assert_eq!(allocations(&mut host, &mut target), 0);
    }
}

#[test]
fn nothing_is_allocated_for_io_over_a_simulated_network() {
    let network = Network::from(simulated::Network::new());
    let to = "127.0.0.1:4420".parse().unwrap();
    let mut listener: Listener = network.listen(to, 1).unwrap();
    for windows in [0, 2] {
        let mut connecting = network.connect(to, None, &ConnectOptions::default()).unwrap();
        assert!(connecting.poll().unwrap());
        let mut host = connecting.open(&Attributes { windows, ..attributes() }).unwrap();
        host.connect(&handshake(&[])).unwrap();
        let Some(ListenerEvent::Request(request)) = listener.poll().unwrap() else { panic!("no request") };
        let mut target = request.open(&attributes()).unwrap();
        target.accept(&handshake(&[])).unwrap();
        assert!(matches!(host.poll_event().unwrap(), Some(Event::Established { .. })));
        assert_eq!(allocations(&mut host, &mut target), 0);
    }
}
