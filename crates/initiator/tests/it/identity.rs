//! A namespace that is replaced while a handle is open, and limits that change: at a reconnect and
//! while connected.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::peer::{Action, BLOCK, Ids, Peer};
use ebof_initiator::{AdminData, Controller, Data, Error, Event, Namespace, QueuePair, Queues};
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::identify::Csi;
use ebof_nvme::io::BlockRange;
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{Nsid, Sqe};

const LONG: Duration = Duration::from_secs(20);

const FIRST: Ids = Ids { nguid: [1; 16], eui64: [2; 8], uuid: [3; 16] };

fn write() -> Sqe {
    BlockRange::new(1, 1).encode(nvm::WRITE, Nsid(1))
}

/// Repeats `look` until it returns something.
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LONG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A peer that counts I/O commands from the time on at which there must be none.
struct Counted {
    peer: Peer,
    forbidden: Arc<AtomicBool>,
    came: Arc<AtomicUsize>,
}

impl Counted {
    fn new() -> Self {
        let forbidden = Arc::new(AtomicBool::new(false));
        let came = Arc::new(AtomicUsize::new(0));
        let peer = Peer::new();
        peer.state().ids.insert(1, FIRST);
        let flag = Arc::clone(&forbidden);
        let count = Arc::clone(&came);
        peer.state().on_io = Box::new(move |_| {
            count.fetch_add(usize::from(flag.load(Ordering::SeqCst)), Ordering::SeqCst);
            Action::Serve
        });
        Self { peer, forbidden, came }
    }

    fn connect(&self) -> (Controller, Namespace) {
        let controller = Controller::connect(&self.peer.options()).unwrap();
        let namespace = controller.namespace(Nsid(1)).unwrap();
        (controller, namespace)
    }
}

// @test host.replaced-namespace
#[test]
fn a_namespace_replaced_before_a_reconnect_gets_no_command() {
    type Change = (&'static str, fn(&mut Ids));
    let changes: [Change; 4] = [
        ("NGUID", |ids| ids.nguid[15] = 9),
        ("EUI-64", |ids| ids.eui64[7] = 9),
        ("UUID", |ids| ids.uuid[15] = 9),
        ("none any more", |ids| *ids = Ids::default()),
    ];
    for (name, change) in changes {
        let counted = Counted::new();
        let (controller, namespace) = counted.connect();
        namespace.write(1, &[1; BLOCK], false).unwrap();
        let queues: Queues<Vec<u8>> = {
            let mut options = counted.peer.options();
            options.nr_io_queues = 1;
            Queues::new(&Controller::connect(&options).unwrap()).unwrap()
        };
        let drive = queues.namespace(Nsid(1)).unwrap();
        let mut queue: QueuePair = controller.queue_pair().unwrap();
        {
            let mut state = counted.peer.state();
            change(state.ids.get_mut(&1).unwrap());
            state.epoch += 1;
        }
        counted.forbidden.store(true, Ordering::SeqCst);
        let error = namespace.write(1, &[2; BLOCK], false).unwrap_err();
        assert_eq!(error.kind(), "namespace-replaced", "{name}: {error}");
        let error = drive.write(1, vec![2; BLOCK], false).unwrap_err();
        assert_eq!(error.reason.kind(), "namespace-replaced", "{name}: {error}");
        let error = eventually(|| {
            queue
                .submit(write(), Data::FromHost(vec![2; BLOCK]), 1)
                .err()
                .map(Error::from)
                .filter(|error| !error.is_connection())
        });
        assert_eq!(error.kind(), "namespace-replaced", "{name}: {error}");
        let error = queue.execute(write(), AdminData::FromHost(&[2; BLOCK])).unwrap_err();
        assert_eq!(error.kind(), "namespace-replaced", "{name}: {error}");
        assert_eq!(counted.came.load(Ordering::SeqCst), 0, "{name}: no command reaches the other namespace");
        // Opening it again gives the new namespace; the old handle stays invalid.
        let again = controller.namespace(Nsid(1)).unwrap();
        again.write(1, &[3; BLOCK], false).unwrap();
        assert_eq!(namespace.flush().unwrap_err().kind(), "namespace-replaced");
        assert!(queue.execute(write(), AdminData::FromHost(&[2; BLOCK])).unwrap().status().is_success());
    }
}

#[test]
fn the_same_namespace_continues_after_a_reconnect_even_with_few_identifiers() {
    for (ids, no_descriptors) in [(FIRST, false), (Ids::default(), false), (FIRST, true), (Ids::default(), true)] {
        let peer = Peer::new();
        peer.state().ids.insert(1, ids);
        peer.state().no_descriptors = no_descriptors;
        let namespace = Controller::connect(&peer.options()).unwrap().namespace(Nsid(1)).unwrap();
        for round in 0..3 {
            namespace.write(1, &[round; BLOCK], false).unwrap();
            peer.hang_up();
        }
        namespace.write(1, &[7; BLOCK], false).unwrap();
    }
}

// @test host.replaced-while-connected
#[test]
fn a_replacement_is_noticed_by_an_event_and_by_invalid_namespace() {
    for event in [true, false] {
        let counted = Counted::new();
        let (controller, namespace) = counted.connect();
        let events = controller.events();
        namespace.write(1, &[1; BLOCK], false).unwrap();
        if event {
            let mut state = counted.peer.state();
            state.ids.get_mut(&1).unwrap().nguid = [9; 16];
            state.events.push(AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED.encode());
        } else {
            // Deleted without an event; then another one has its NSID.
            counted.peer.state().namespaces.clear();
            assert!(namespace.write(1, &[1; BLOCK], false).is_err());
            eventually(|| (namespace.flush().unwrap_err().kind() == "no-such-namespace").then_some(()));
            let mut state = counted.peer.state();
            state.ids.get_mut(&1).unwrap().nguid = [9; 16];
            state.namespaces = vec![1];
            drop(state);
            counted.forbidden.store(true, Ordering::SeqCst);
            eventually(|| (namespace.flush().unwrap_err().kind() == "namespace-replaced").then_some(()));
            assert_eq!(counted.came.load(Ordering::SeqCst), 0, "nothing reaches the other one");
        }
        eventually(|| namespace.write(1, &[2; BLOCK], false).err());
        assert_eq!(namespace.write(1, &[2; BLOCK], false).unwrap_err().kind(), "namespace-replaced");
        eventually(|| (events.recv_timeout(LONG).unwrap() == Event::NamespaceReplaced(Nsid(1))).then_some(()));
    }
}

#[test]
fn a_namespace_that_was_deleted_through_its_controller_gets_no_command() {
    let counted = Counted::new();
    let (controller, namespace) = counted.connect();
    namespace.write(1, &[1; BLOCK], false).unwrap();
    // The controller sends no event to the host that deleted it; another host creates the next one.
    counted.peer.state().ids.insert(1, Ids { nguid: [9; 16], ..FIRST });
    counted.forbidden.store(true, Ordering::SeqCst);
    let delete = NamespaceManagement { select: ManagementSelect::Delete, csi: Csi::NVM }.encode(Nsid(1));
    assert!(controller.admin(delete, AdminData::None, None).unwrap().status().is_success());
    let error = namespace.write(1, &[2; BLOCK], false).unwrap_err();
    assert!(["no-such-namespace", "namespace-replaced"].contains(&error.kind()), "{error}");
    eventually(|| (namespace.check().unwrap_err().kind() == "namespace-replaced").then_some(()));
    assert_eq!(counted.came.load(Ordering::SeqCst), 0, "nothing reaches the other one");
}

#[test]
fn a_namespace_whose_deletion_timed_out_and_succeeded_later_gets_no_command() {
    let counted = Counted::new();
    let (controller, namespace) = counted.connect();
    namespace.write(1, &[1; BLOCK], false).unwrap();
    counted.peer.state().held = Some(admin::NAMESPACE_MANAGEMENT);
    let delete = NamespaceManagement { select: ManagementSelect::Delete, csi: Csi::NVM }.encode(Nsid(1));
    let error = controller.admin(delete, AdminData::None, Some(Duration::from_millis(50))).unwrap_err();
    assert!(matches!(error, Error::Timeout { after_ms: 50 }), "{error}");
    namespace.check().unwrap();
    // The controller could not abort it, and sends no event. Another host makes the next namespace.
    counted.peer.state().ids.insert(1, Ids { nguid: [9; 16], ..FIRST });
    counted.forbidden.store(true, Ordering::SeqCst);
    counted.peer.state().held = None;
    eventually(|| (namespace.check().err()?.kind() == "namespace-replaced").then_some(()));
    assert_eq!(namespace.write(1, &[2; BLOCK], false).unwrap_err().kind(), "namespace-replaced");
    assert_eq!(counted.came.load(Ordering::SeqCst), 0, "nothing reaches the other one");
}

#[test]
fn a_namespace_that_was_missing_continues_if_it_is_the_same() {
    let peer = Peer::new();
    peer.state().ids.insert(1, FIRST);
    let namespace = Controller::connect(&peer.options()).unwrap().namespace(Nsid(1)).unwrap();
    peer.state().namespaces.clear();
    peer.hang_up();
    eventually(|| (namespace.flush().unwrap_err().kind() == "no-such-namespace").then_some(()));
    // Without an event: some targets do not support it.
    peer.state().namespaces = vec![1];
    eventually(|| namespace.flush().ok());
}

#[test]
fn another_block_size_ends_a_handle_and_another_capacity_does_not() {
    let peer = Peer::new();
    peer.state().ids.insert(1, FIRST);
    let controller = Controller::connect(&peer.options()).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    peer.state().disk.resize(8192 * BLOCK, 0);
    peer.hang_up();
    namespace.flush().unwrap();
    eventually(|| {
        namespace.flush().unwrap();
        (namespace.blocks() == 8192).then_some(())
    });
    namespace.write(8191, &[1; BLOCK], false).unwrap();
    peer.state().lbads = 12;
    peer.hang_up();
    let error = eventually(|| namespace.write(1, &[1; BLOCK], false).err());
    assert_eq!(error.kind(), "unusable-format", "{error}");
    assert_eq!(controller.namespace(Nsid(1)).unwrap().block_bytes(), 4096);
}

// @test host.limits-again
#[test]
fn limits_are_read_again_after_a_reconnect() {
    let peer = Peer::new();
    peer.state().ids.insert(1, FIRST);
    let controller = Controller::connect(&peer.options()).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    let data = vec![5; 128 << 10];
    namespace.write(0, &data, false).unwrap();
    assert!(!controller.limits().volatile_cache);
    {
        let mut state = peer.state();
        state.mdts = 1;
        state.vwc = 1;
        state.nvm.wzsl = 2;
        state.nvm.dmrl = 3;
        state.nvm.dmrsl = 100.into();
        state.nvm.dmsl = 150.into();
        state.epoch += 1;
    }
    // The first command finds the connection broken, and is sent again in smaller pieces.
    namespace.write(0, &data, false).unwrap();
    let limits = controller.limits();
    assert!(limits.volatile_cache);
    assert_eq!((limits.transfer_bytes, limits.write_zeroes_bytes), (Some(8192), Some(16 << 10)));
    assert_eq!((limits.dsm_ranges, limits.dsm_range_blocks, limits.dsm_blocks), (3, 100, 150));
    let zeroed = Arc::new(AtomicUsize::new(0));
    let trimmed = Arc::new(AtomicUsize::new(0));
    let zeroes = Arc::clone(&zeroed);
    let trims = Arc::clone(&trimmed);
    peer.state().on_io = Box::new(move |sqe| {
        match sqe.opcode {
            nvm::WRITE_ZEROES => assert!(BlockRange::decode(sqe).blocks <= 32),
            nvm::DATASET_MANAGEMENT => assert!(sqe.cdw10.get() & 0xff < 3),
            _ => return Action::Serve,
        }
        let count = if sqe.opcode == nvm::WRITE_ZEROES { &zeroes } else { &trims };
        count.fetch_add(1, Ordering::SeqCst);
        Action::Serve
    });
    namespace.write_zeroes(0, 128, false).unwrap();
    assert_eq!(zeroed.load(Ordering::SeqCst), 4, "16 KiB each, more than MDTS would allow");
    namespace.deallocate(&[(100, 50), (200, 350)]).unwrap();
    assert!(trimmed.load(Ordering::SeqCst) >= 3, "150 blocks each");
    let mut back = vec![1; 400 * BLOCK];
    namespace.read(150, &mut back).unwrap();
    assert!(back[50 * BLOCK..].iter().all(|&byte| byte == 0));
}

#[test]
fn data_in_a_cache_are_flushed_even_if_the_controller_returns_without_one() {
    let peer = Peer::new();
    {
        let mut state = peer.state();
        state.ids.insert(1, FIRST);
        state.vwc = 1;
    }
    let controller = Controller::connect(&peer.options()).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    namespace.write(0, &[5; BLOCK], false).unwrap();
    {
        let mut state = peer.state();
        state.vwc = 0;
        state.epoch += 1;
    }
    namespace.read(0, &mut [0; BLOCK]).unwrap();
    assert_eq!(controller.identify().vwc, 0);
    assert!(controller.limits().volatile_cache, "the write may be in the cache of before");
}
