//! How connections are made, refused and ended.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use ebof_region::Buffer;
use ebof_verbs::{
    Attributes, ConnectOptions, Error, Event, Remote, SharedReceives, WindowAccess, WorkCompletion, WorkRequest,
    WorkStatus,
};

use crate::ends::{
    Ends, PATIENCE, address, attributes, completion, connect, event, handshake, is_iwarp, network, receive, request,
    resolve, send, until,
};

/// Soft-iWARP, the only iWARP here, overlooks what comes while it accepts. Each end has the other
/// one look, a host after one second and a target after three, of which nobody sees anything.
#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn ends_on_which_nothing_happens_send_nothing_but_with_soft_iwarp() {
    let Ends { mut host, mut target, .. } = Ends::connected();
    send(&mut host, b"first");
    let before = (host.room(), target.room());
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(3700) {
        assert!(host.poll_event().unwrap().is_none() && target.poll_event().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(50));
    }
    let posted = (before.0 - host.room(), before.1 - target.room());
    assert_eq!(posted, if is_iwarp() { (3, 1) } else { (0, 0) });
    assert_eq!(receive(&mut target), b"first");
    assert!(matches!(completion(&mut host), WorkCompletion::Sent { .. }));
    send(&mut target, b"second");
    assert_eq!(receive(&mut host), b"second");
    assert!(matches!(completion(&mut target), WorkCompletion::Sent { .. }));
    assert_eq!((host.room(), target.room()), (before.0 + 1, before.1));
}

/// On both sides.
#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_device_has_many_queue_pairs() {
    let Ends { host, target, mut listener } = Ends::connected();
    let mut all = vec![(host, target)];
    for _ in 0..40 {
        all.push(connect(&mut listener, &attributes(), &attributes(), &handshake(&[])));
    }
    for (host, target) in &mut all {
        send(host, b"hello");
        assert_eq!(receive(target), b"hello");
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn devices_tell_what_they_are() {
    let devices = network().devices().unwrap();
    println!("{devices:#?}");
    assert!(!devices.is_empty());
    for device in devices {
        assert!(device.attributes.queue_entries > 0 && device.attributes.region_bytes > 0);
        assert!(device.ports.iter().all(|port| port.active_mtu >= 256 && port.active_mtu <= port.max_mtu));
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn both_ends_learn_what_the_other_one_says() {
    let mut listener = network().listen(SocketAddr::new(address(), 0), 8).unwrap();
    let connecting = resolve(listener.local_address());
    assert_eq!(connecting.local().ip(), address());
    println!("{:?}", connecting.device());
    let mut host = connecting.open(&attributes()).unwrap();
    host.connect(&handshake(b"from the host")).unwrap();
    assert!(matches!(host.connect(&handshake(b"")), Err(Error::State(_))));
    let request = request(&mut listener);
    assert!(request.private_data().starts_with(b"from the host"));
    println!("request of {} bytes, {:?}", request.private_data().len(), request.device().protocol);
    assert_eq!((request.local(), request.remote().ip()), (listener.local_address(), address()));
    assert_eq!((request.responder_resources(), request.initiator_depth()), (8, 8));
    let mut target = request.open(&attributes()).unwrap();
    target.accept(&handshake(b"from the target")).unwrap();
    match event(&mut host) {
        Event::Established { private_data, responder_resources, initiator_depth } => {
            assert!(private_data.starts_with(b"from the target"));
            assert_eq!((responder_resources, initiator_depth), (8, 8));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(event(&mut target), Event::Established { initiator_depth: 8, .. }));
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_request_is_refused_with_a_reason() {
    let mut listener = network().listen(SocketAddr::new(address(), 0), 8).unwrap();
    let mut host = resolve(listener.local_address()).open(&attributes()).unwrap();
    host.connect(&handshake(b"x")).unwrap();
    request(&mut listener).reject(b"no").unwrap();
    match event(&mut host) {
        Event::Rejected { reason, private_data } => {
            println!("rejected: {reason}, {} bytes", private_data.len());
            assert!(private_data.starts_with(b"no"));
            assert!(is_iwarp() || reason == Event::BY_CONSUMER);
        }
        other => panic!("{other:?}"),
    }
    // What was posted comes back.
    for _ in 0..attributes().receives {
        let completion = completion(&mut host);
        let flushed = WorkStatus::Flushed;
        assert!(
            matches!(completion, WorkCompletion::Failed { what: WorkRequest::Receive(_), status } if status == flushed)
        );
    }
    // Dropping a request refuses it, too.
    let mut host = resolve(listener.local_address()).open(&attributes()).unwrap();
    host.connect(&handshake(b"x")).unwrap();
    drop(request(&mut listener));
    let event = event(&mut host);
    println!("dropped: {event:?}");
    assert!(matches!(event, Event::Rejected { .. } | Event::Unreachable(_)));
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn what_is_wrong_with_an_address_is_told() {
    let listener = network().listen(SocketAddr::new(address(), 0), 8).unwrap();
    let taken = network().listen(listener.local_address(), 8);
    println!("{taken:?}");
    assert!(matches!(taken, Err(Error::AddressInUse(_))) || is_iwarp());
    let elsewhere = network().listen("192.0.2.1:4420".parse().unwrap(), 8).unwrap_err();
    println!("{elsewhere}");
    assert!(matches!(elsewhere, Error::NoDevice(_)));
    let port = listener.local_address();
    drop(listener);
    let mut host = resolve(port).open(&attributes()).unwrap();
    // Soft-iWARP connects within the call.
    match host.connect(&handshake(&[])) {
        Ok(()) => {
            let event = event(&mut host);
            println!("nobody listens: {event:?}");
            assert!(matches!(event, Event::Rejected { .. } | Event::Unreachable(_)));
        }
        Err(error) => assert!(is_iwarp(), "{error}"),
    }
    let options = ConnectOptions::default();
    let from = network().connect(port, Some("192.0.2.1".parse().unwrap()), &options).map(|mut connecting| {
        until(
            || match connecting.poll() {
                Ok(ready) => ready.then(|| panic!("from an address that is nobody's")),
                Err(error) => Some(error),
            },
            "an error",
        )
    });
    println!("from elsewhere: {from:?}");
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn the_end_is_seen_by_both() {
    let Ends { mut host, mut target, mut listener } = Ends::connected();
    host.disconnect();
    assert_eq!(event(&mut target), Event::Disconnected);
    target.disconnect();
    assert_eq!(event(&mut host), Event::Disconnected);
    for pair in [&mut host, &mut target] {
        for _ in 0..attributes().receives {
            assert!(matches!(completion(pair), WorkCompletion::Failed { status: WorkStatus::Flushed, .. }));
        }
        assert_eq!(pair.poll().unwrap(), None);
    }
    // Dropping one end is enough.
    let (host, mut target) = connect(&mut listener, &attributes(), &attributes(), &handshake(&[]));
    drop(host);
    assert_eq!(event(&mut target), Event::Disconnected);
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_request_outlives_its_listener() {
    let mut listener = network().listen(SocketAddr::new(address(), 0), 8).unwrap();
    let mut host = resolve(listener.local_address()).open(&attributes()).unwrap();
    host.connect(&handshake(&[])).unwrap();
    let request = request(&mut listener);
    drop(listener);
    let mut target = request.open(&attributes()).unwrap();
    target.accept(&handshake(&[])).unwrap();
    assert!(matches!(event(&mut host), Event::Established { .. }));
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn what_a_device_cannot_do_is_refused_and_the_request_remains() {
    let mut listener = network().listen(SocketAddr::new(address(), 0), 8).unwrap();
    let mut host = resolve(listener.local_address()).open(&attributes()).unwrap();
    host.connect(&handshake(&[])).unwrap();
    let mut greedy = attributes();
    greedy.operations = u32::MAX - 8;
    let (request, error) = request(&mut listener).open(&greedy).unwrap_err();
    println!("{error}");
    assert!(matches!(error, Error::Limit { .. }));
    let (request, error) = {
        let mut target = greedy;
        target.operations = 8;
        target.receives = 1 << 30;
        request.open(&target).unwrap_err()
    };
    println!("{error}");
    let mut target = request.open(&attributes()).unwrap();
    target.accept(&handshake(&[])).unwrap();
    assert!(matches!(event(&mut host), Event::Established { .. }));
}

/// What this process has open, and what the kernel has for the device.
fn resources() -> (usize, String) {
    let kernel = Command::new("rdma").args(["resource", "show"]).output().unwrap();
    (std::fs::read_dir("/proc/self/fd").unwrap().count(), String::from_utf8(kernel.stdout).unwrap())
}

/// Connections, and all that can go wrong with them: descriptors and objects of the kernel do not
/// accumulate. `EBOF_RDMA_ROUNDS` says how often.
#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn nothing_is_left_of_connections() {
    let rounds = std::env::var("EBOF_RDMA_ROUNDS").map_or(12, |rounds| rounds.parse().unwrap());
    // What the first one opens stays: the device, and plug-ins. It is open as long as these ends.
    let first = Ends::connected();
    let windows = network().devices().unwrap()[0].attributes.memory_windows.min(2);
    let with_windows = Attributes { windows, ..attributes() };
    let mut greedy = attributes();
    greedy.operations = u32::MAX - 8;
    let before = resources();
    println!("{before:?}");
    for round in 0..rounds {
        let shared = Attributes { shared_receives: Some(SharedReceives::new(4, 64)), ..attributes() };
        let polled = Attributes { polled: true, ..attributes() };
        let of_target = [attributes(), shared, polled][round % 3].clone();
        let Ends { mut host, mut target, mut listener } = Ends::with(&with_windows, &of_target, &handshake(&[]));
        match round % 6 {
            // With work under way, and a window that is bound.
            0 => {
                let memory = Buffer::zeroed(64 << 10);
                let _ = host.post_bind(memory.region(), 0, 1, WindowAccess::Read).unwrap();
                host.flush().unwrap();
                let remote = Remote {
                    address: memory.region().address() as u64,
                    key: host.remote_key(memory.region()).unwrap(),
                };
                let held = target.hold(Buffer::zeroed(64 << 10)).unwrap();
                target.post_read(held, 0, 64 << 10, remote, 1);
                target.flush().unwrap();
            }
            // Broken by a wrong key.
            1 => {
                let held = target.hold(Buffer::zeroed(4096)).unwrap();
                target.post_write(held, 0, 1, Remote { address: 0, key: 0x1234_5678 }, Some(1));
                target.flush().unwrap();
                // With iWARP, it is over when it is sent.
                let completion = completion(&mut target);
                assert!(matches!(completion, WorkCompletion::Failed { .. }) || is_iwarp(), "{completion:?}");
            }
            2 => host.disconnect(),
            _ => {}
        }
        drop((host, target));
        // Given up before the queue pair, with it, and after the request.
        drop(resolve(listener.local_address()));
        drop(resolve(listener.local_address()).open(&attributes()).unwrap());
        drop(resolve(listener.local_address()).open(&greedy).unwrap_err());
        let mut host = resolve(listener.local_address()).open(&attributes()).unwrap();
        host.connect(&handshake(&[])).unwrap();
        let request = request(&mut listener);
        match round % 4 {
            0 => request.reject(b"no").unwrap(),
            1 => drop(request),
            2 => drop(request.open(&greedy).unwrap_err()),
            _ => drop(request.open(&attributes()).unwrap()),
        }
    }
    let end = Instant::now() + PATIENCE;
    while resources() != before {
        assert!(Instant::now() < end, "{:?}, {before:?} before", resources());
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(first);
}
