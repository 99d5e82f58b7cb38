//! Memory windows: keys for a part of a buffer, for one connection, until they are invalidated.

use std::sync::Arc;

use ebof_region::Buffer;
use ebof_verbs::{Attributes, QueuePair, Remote, Window, WindowAccess, WorkCompletion, WorkRequest, WorkStatus};

use crate::ends::{
    Ends, attributes, completion, connect, event, filled, handshake, network, receive, send, until, until_placed,
};

/// A host's attributes, if the device has windows.
fn with_windows(windows: u32) -> Option<Attributes> {
    let device = network().devices().unwrap().remove(0).attributes;
    if device.memory_windows == 0 {
        println!("skipped: {} has no memory windows", device.name);
        return None;
    }
    Some(Attributes { windows, ..attributes() })
}

fn is_soft_roce() -> bool {
    network().devices().unwrap()[0].attributes.name.starts_with("rxe")
}

/// 64 KiB of the host, and their address.
fn memory() -> (Buffer, u64) {
    let buffer = filled(64 << 10, 1);
    assert_eq!(buffer.offset(), 0);
    let address = buffer.region().address() as u64;
    (buffer, address)
}

/// Binds, and has the peer know it.
fn bind(ends: &mut Ends, memory: &Buffer, (offset, length): (usize, u32), access: WindowAccess) -> Window {
    let window = ends.host.post_bind(memory.region(), offset, length, access).unwrap().expect("a free window");
    send(&mut ends.host, &[1]);
    assert_eq!(receive(&mut ends.target), [1]);
    assert!(matches!(completion(&mut ends.host), WorkCompletion::Sent { .. }));
    window
}

fn write(target: &mut QueuePair, remote: Remote, length: u32) -> WorkCompletion {
    let from = target.hold(filled(4096, 9)).unwrap();
    target.post_write(from, 0, length, remote, Some(5));
    target.flush().unwrap();
    let completion = completion(target);
    assert!(target.release(from).is_some());
    completion
}

const DONE: WorkCompletion = WorkCompletion::Done { id: 5 };
const REFUSED: WorkCompletion =
    WorkCompletion::Failed { what: WorkRequest::Operation(5), status: WorkStatus::RemoteAccess };

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_window_ends_with_its_invalidation() {
    let Some(host) = with_windows(2) else { return };
    let mut ends = Ends::with(&host, &attributes(), &handshake(&[]));
    let (buffer, address) = memory();
    let window = bind(&mut ends, &buffer, (8192, 4096), WindowAccess::Write);
    let remote = Remote { address: address + 8192, key: window.key() };
    assert_eq!(write(&mut ends.target, remote, 4096), DONE);
    until_placed(&mut ends.target, &mut ends.host);
    assert!(ends.host.is_bound(window));
    ends.host.post_invalidate(window, 7);
    ends.host.flush().unwrap();
    assert_eq!(completion(&mut ends.host), WorkCompletion::Done { id: 7 });
    assert_eq!(&buffer.as_slice()[8192..12_288], filled(4096, 9).as_slice());
    assert_eq!(&buffer.as_slice()[..8192], &filled(64 << 10, 1).as_slice()[..8192]);
    assert_eq!(&buffer.as_slice()[12_288..], &filled(64 << 10, 1).as_slice()[12_288..]);
    // The region is still registered.
    assert_eq!(write(&mut ends.target, remote, 1), REFUSED);
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn nothing_is_reached_beyond_a_window() {
    let Some(host) = with_windows(1) else { return };
    for (at, length) in [(8191, 1), (8192 + 4095, 2), (12_288, 1), (0, 1)] {
        let mut ends = Ends::with(&host, &attributes(), &handshake(&[]));
        let (buffer, address) = memory();
        let window = bind(&mut ends, &buffer, (8192, 4096), WindowAccess::Write);
        let remote = Remote { address: address + at, key: window.key() };
        let completion = write(&mut ends.target, remote, length);
        // Soft-RoCE compares with the region that the window is in.
        assert!(completion == REFUSED || is_soft_roce(), "{at}");
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn a_window_is_for_one_access_and_one_connection() {
    let Some(host) = with_windows(2) else { return };
    let mut ends = Ends::with(&host, &attributes(), &handshake(&[]));
    let (mut other_host, mut other) = connect(&mut ends.listener, &host, &attributes(), &handshake(&[]));
    let (buffer, address) = memory();
    let window = bind(&mut ends, &buffer, (0, 4096), WindowAccess::Read);
    let remote = Remote { address, key: window.key() };
    let into = other.hold(Buffer::zeroed(4096)).unwrap();
    other.post_read(into, 0, 1, remote, 5);
    other.flush().unwrap();
    assert_eq!(completion(&mut other), REFUSED, "of another connection");
    other_host.disconnect();
    let into = ends.target.hold(Buffer::zeroed(4096)).unwrap();
    ends.target.post_read(into, 0, 4096, remote, 5);
    ends.target.flush().unwrap();
    assert_eq!(completion(&mut ends.target), DONE);
    assert_eq!(ends.target.release(into).unwrap().as_slice(), &filled(64 << 10, 1).as_slice()[..4096]);
    assert_eq!(write(&mut ends.target, remote, 1), REFUSED, "it is for reading");
}

/// More often than there are keys for a window.
#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn windows_are_bound_again_and_again() {
    let Some(host) = with_windows(2) else { return };
    let mut ends = Ends::with(&host, &attributes(), &handshake(&[]));
    let (buffer, address) = memory();
    let mut last = None;
    for id in 0..300 {
        let window = bind(&mut ends, &buffer, (0, 4096), WindowAccess::Write);
        assert_ne!(last.replace(window.key()), Some(window.key()));
        assert_eq!(write(&mut ends.target, Remote { address, key: window.key() }, 8), DONE);
        until_placed(&mut ends.target, &mut ends.host);
        ends.host.post_invalidate(window, id);
        ends.host.flush().unwrap();
        assert_eq!(completion(&mut ends.host), WorkCompletion::Done { id });
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn the_peer_invalidates_windows() {
    let Some(host) = with_windows(2) else { return };
    if !network().devices().unwrap()[0].attributes.window_invalidation {
        println!("skipped: the device does not tell when a peer has invalidated a window");
        return;
    }
    let mut ends = Ends::with(&host, &attributes(), &handshake(&[]));
    let (buffer, address) = memory();
    for _ in 0..300 {
        let window = bind(&mut ends, &buffer, (0, 4096), WindowAccess::Read);
        let into = ends.target.hold(Buffer::zeroed(4096)).unwrap();
        ends.target.post_read(into, 0, 8, Remote { address, key: window.key() }, 5);
        ends.target.flush().unwrap();
        assert_eq!(completion(&mut ends.target), DONE);
        assert!(ends.target.release(into).is_some());
        let slot = ends.target.take_send_slot().unwrap();
        ends.target.post_send(slot, 1, Some(window.key()));
        ends.target.flush().unwrap();
        match completion(&mut ends.host) {
            WorkCompletion::Received { slot, invalidated, .. } => {
                assert_eq!(invalidated, Some(window.key()));
                ends.host.post_receive(slot);
                ends.host.flush().unwrap();
            }
            other => panic!("{other:?}"),
        }
        assert!(!ends.host.is_bound(window));
        assert!(matches!(completion(&mut ends.target), WorkCompletion::Sent { .. }));
    }
}

#[test]
#[ignore = "needs an RDMA device: tests/vm"]
fn regions_of_windows_go_after_a_broken_connection() {
    let Some(host) = with_windows(3) else { return };
    let mut ends = Ends::with(&host, &attributes(), &handshake(&[]));
    let (buffer, _) = memory();
    let bound = [(); 2].map(|()| bind(&mut ends, &buffer, (0, 4096), WindowAccess::Write));
    // This one is never bound.
    let mut post = || ends.host.post_bind(buffer.region(), 0, 4096, WindowAccess::Write).unwrap();
    let late = post().unwrap();
    assert!(post().is_none(), "all are in use");
    let region = Arc::downgrade(buffer.region());
    drop(buffer);
    ends.target.disconnect();
    while event(&mut ends.host) != ebof_verbs::Event::Disconnected {}
    ends.host.disconnect();
    for (window, id) in bound.into_iter().chain([late]).zip(0..) {
        ends.host.post_invalidate(window, id);
    }
    println!("flush: {:?}", ends.host.flush());
    assert!(region.upgrade().is_some(), "windows keep it");
    until(
        || {
            while let Some(completion) = ends.host.poll().unwrap() {
                println!("{completion:?}");
            }
            region.upgrade().is_none().then_some(())
        },
        "an end of the windows",
    );
    drop(ends);
    // Nothing is left that would keep the device busy: with its windows, a queue pair may be
    // dropped.
    let mut ends = Ends::with(&host, &attributes(), &handshake(&[]));
    let (buffer, _) = memory();
    bind(&mut ends, &buffer, (0, 4096), WindowAccess::Write);
    drop(ends);
}
