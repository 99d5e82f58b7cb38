//! Memory windows.

use super::*;
use crate::{HeldMemory, Window, WindowAccess};

struct Ends {
    network: crate::simulated::Network,
    host: QueuePair,
    target: QueuePair,
    buffer: Buffer,
    address: u64,
    from: HeldMemory,
}

impl Ends {
    fn new(device: DeviceAttributes) -> Self {
        let network = super::super::Network::with_device(device);
        let attributes = Attributes { windows: 2, ..attributes() };
        // The host is opened with its own attributes.
        let all = Network::from(network.clone());
        let mut listener = all.listen(address(), 8).unwrap();
        let mut connecting = all.connect(address(), None, &ConnectOptions::default()).unwrap();
        assert!(connecting.poll().unwrap());
        let mut host = connecting.open(&attributes).unwrap();
        host.connect(&HANDSHAKE).unwrap();
        let mut target = request(&mut listener).open(&super::attributes()).unwrap();
        target.accept(&HANDSHAKE).unwrap();
        assert_eq!(events(&mut host).len() + events(&mut target).len(), 2);
        let buffer = Buffer::zeroed(16 << 10);
        let address = buffer.region().address() as u64;
        let mut from = Buffer::zeroed(4096);
        from.as_mut_slice().fill(9);
        let from = target.hold(from).unwrap();
        Self { network, host, target, buffer, address, from }
    }

    fn bind(&mut self, access: WindowAccess) -> Window {
        let window = self.host.post_bind(self.buffer.region(), 4096, 4096, access).unwrap().unwrap();
        self.host.flush().unwrap();
        window
    }

    fn write(&mut self, offset: u64, length: u32, key: u32) -> WorkCompletion {
        let to = Remote { address: self.address + offset, key };
        self.target.post_write(self.from, 0, length, to, Some(5));
        self.target.flush().unwrap();
        all(&mut self.target).remove(0)
    }
}

const DONE: WorkCompletion = WorkCompletion::Done { id: 5 };
const REFUSED: WorkCompletion =
    WorkCompletion::Failed { what: WorkRequest::Operation(5), status: WorkStatus::RemoteAccess };

#[test]
fn a_window_ends_with_its_invalidation() {
    let mut ends = Ends::new(super::super::device());
    let window = ends.bind(WindowAccess::Write);
    assert_eq!(ends.write(4096, 4096, window.key()), DONE);
    assert!(ends.host.is_bound(window));
    ends.host.post_invalidate(window, 7);
    ends.host.flush().unwrap();
    assert_eq!(all(&mut ends.host), [WorkCompletion::Done { id: 7 }]);
    assert!(!ends.host.is_bound(window));
    let written: Vec<_> = ends.buffer.as_slice().chunks(4096).map(|page| page.iter().all(|byte| *byte == 9)).collect();
    assert_eq!(written, [false, true, false, false]);
    assert_eq!(ends.write(4096, 1, window.key()), REFUSED);
    assert_eq!(ends.host.room(), 12);
}

#[test]
fn nothing_is_reached_beyond_a_window_or_through_another_connection() {
    for (offset, length) in [(4095, 1), (8191, 2), (8192, 1), (0, 1)] {
        let mut ends = Ends::new(super::super::device());
        let window = ends.bind(WindowAccess::Write);
        assert_eq!(ends.write(offset, length, window.key()), REFUSED);
    }
    let mut ends = Ends::new(super::super::device());
    let window = ends.bind(WindowAccess::Read);
    let (_host, mut other) = connected(&ends.network, &HANDSHAKE);
    let into = other.hold(Buffer::zeroed(4096)).unwrap();
    let remote = Remote { address: ends.address + 4096, key: window.key() };
    other.post_read(into, 0, 1, remote, 5);
    other.flush().unwrap();
    assert_eq!(all(&mut other)[0], REFUSED);
    ends.target.post_read(ends.from, 0, 4, remote, 5);
    ends.target.flush().unwrap();
    assert_eq!(all(&mut ends.target), [DONE]);
    assert_eq!(ends.write(4096, 1, window.key()), REFUSED, "it is for reading");
}

#[test]
fn a_peer_invalidates_windows_where_it_cannot_invalidate_regions() {
    let device = DeviceAttributes { region_invalidation: false, ..super::super::device() };
    let mut ends = Ends::new(device);
    let mut last = 0;
    for _ in 0..600 {
        let window = ends.bind(WindowAccess::Write);
        assert_ne!(std::mem::replace(&mut last, window.key()), window.key());
        assert_eq!(ends.write(4096, 8, window.key()), DONE);
        send(&mut ends.target, b"x", Some(window.key()));
        ends.target.flush().unwrap();
        match all(&mut ends.host)[..] {
            [WorkCompletion::Received { slot, invalidated, .. }] => {
                assert_eq!(invalidated, Some(window.key()));
                ends.host.post_receive(slot);
                ends.host.flush().unwrap();
            }
            ref other => panic!("{other:?}"),
        }
        assert!(!ends.host.is_bound(window));
        assert_eq!(all(&mut ends.target).len(), 1);
    }
    // Once more.
    send(&mut ends.target, b"x", Some(last));
    ends.target.flush().unwrap();
    assert!(matches!(all(&mut ends.target)[0], WorkCompletion::Failed { status: WorkStatus::RemoteAccess, .. }));
}

#[test]
fn regions_of_windows_go_after_a_broken_connection() {
    let mut ends = Ends::new(super::super::device());
    let window = ends.bind(WindowAccess::Write);
    let late = ends.host.post_bind(ends.buffer.region(), 0, 1, WindowAccess::Read).unwrap().unwrap();
    assert_eq!(ends.host.post_bind(ends.buffer.region(), 0, 1, WindowAccess::Read).unwrap(), None);
    let region = Arc::downgrade(ends.buffer.region());
    ends.buffer = Buffer::zeroed(4096);
    assert!(region.upgrade().is_some(), "windows keep it");
    ends.target.disconnect();
    ends.host.disconnect();
    ends.host.post_invalidate(window, 1);
    ends.host.post_invalidate(late, 2);
    ends.host.flush().unwrap();
    let completions = all(&mut ends.host);
    assert!(completions.ends_with(&[1, 2].map(|id| flushed(WorkRequest::Operation(id)))), "{completions:?}");
    assert!(region.upgrade().is_none());
}

#[test]
fn a_device_without_windows_refuses_queue_pairs_that_want_them() {
    let network = super::super::Network::with_device(DeviceAttributes { memory_windows: 0, ..super::super::device() });
    let network = Network::from(network);
    let mut connecting = network.connect(address(), None, &ConnectOptions::default()).unwrap();
    assert!(connecting.poll().unwrap());
    let refused = connecting.open(&Attributes { windows: 1, ..attributes() }).unwrap_err();
    assert!(matches!(refused, Error::Limit { what: "memory windows", wanted: 1, max: 0 }));
}
