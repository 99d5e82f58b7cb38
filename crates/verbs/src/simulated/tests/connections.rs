//! How connections are made, refused and ended.

use super::super::{Network as Simulated, Side, device};
use super::*;
use crate::{ACCEPT_PRIVATE_DATA_MAX, DeviceAttributes, REJECT_PRIVATE_DATA_MAX, REQUEST_PRIVATE_DATA_MAX};

#[test]
fn both_ends_learn_what_the_other_one_says() {
    for protocol in [Protocol::RoceV2, Protocol::Iwarp] {
        let network = Network::from(Simulated::with_device(DeviceAttributes { protocol, ..device() }));
        let pads = protocol == Protocol::RoceV2;
        let mut listener = network.listen(address(), 8).unwrap();
        let asked = Handshake { private_data: b"question", responder_resources: 3, initiator_depth: 0, ..HANDSHAKE };
        let mut host = asking(&network, &asked);
        let request = request(&mut listener);
        let length = if pads { REQUEST_PRIVATE_DATA_MAX } else { 8 };
        assert_eq!((&request.private_data()[..8], request.private_data().len()), (&b"question"[..], length));
        assert_eq!((request.responder_resources(), request.initiator_depth()), (0, 3));
        assert_eq!((request.local(), request.remote().ip()), (address(), address().ip()));
        assert_eq!(request.device().protocol, protocol);

        let mut target = request.open(&attributes()).unwrap();
        assert!(host.poll_event().unwrap().is_none());
        let slot = send(&mut target, b"early", None);
        assert!(matches!(target.flush(), Err(Error::State(_))), "nothing was accepted");
        target.accept(&Handshake { private_data: b"answer", initiator_depth: 2, ..asked }).unwrap();
        target.flush().unwrap();
        assert!(all(&mut target).is_empty(), "the host has not seen the acceptance");
        match host.poll_event().unwrap() {
            Some(Event::Established { private_data, responder_resources: 2, initiator_depth: 0 }) => {
                let length = if pads { ACCEPT_PRIVATE_DATA_MAX } else { 6 };
                assert_eq!((&private_data[..6], private_data.len()), (&b"answer"[..], length));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(all(&mut target), [WorkCompletion::Sent { slot }]);
        let established = Event::Established { private_data: Vec::new(), responder_resources: 3, initiator_depth: 2 };
        assert_eq!(events(&mut target), [established]);
    }
}

#[test]
fn a_request_is_rejected_or_dropped_or_nobody_listens() {
    let network = Network::from(Simulated::new());
    let mut listener = network.listen(address(), 2).unwrap();
    let mut host = asking(&network, &HANDSHAKE);
    request(&mut listener).reject(b"\x01\x02").unwrap();
    let rejected = |private_data: &[u8]| {
        let mut padded = private_data.to_vec();
        padded.resize(REJECT_PRIVATE_DATA_MAX, 0);
        [Event::Rejected { reason: Event::BY_CONSUMER, private_data: padded }]
    };
    assert_eq!(events(&mut host), rejected(b"\x01\x02"));
    assert_eq!(all(&mut host).len(), 4, "its receives come back");

    let mut host = asking(&network, &HANDSHAKE);
    drop(request(&mut listener));
    assert_eq!(events(&mut host), rejected(b""));

    let mut host = asking(&network, &HANDSHAKE);
    let too_long = [7; REJECT_PRIVATE_DATA_MAX + 1];
    assert!(matches!(request(&mut listener).reject(&too_long), Err(Error::PrivateData { length: 149, max: 148 })));
    assert_eq!(events(&mut host), rejected(&too_long[..REJECT_PRIVATE_DATA_MAX]));

    let mut waiting: Vec<_> = (0..3).map(|_| asking(&network, &HANDSHAKE)).collect();
    assert!(matches!(events(&mut waiting[2])[..], [Event::Unreachable(_)]), "beyond the backlog");
    drop(listener);
    assert_eq!(events(&mut waiting[1]), rejected(b""));
    let mut host = asking(&network, &HANDSHAKE);
    let refused = Event::Rejected { reason: Event::NOBODY_LISTENS, private_data: Vec::new() };
    assert_eq!(events(&mut host), [refused]);
}

#[test]
fn a_target_that_is_dropped_before_it_accepts_has_rejected() {
    let network = Network::from(Simulated::new());
    let mut listener = network.listen(address(), 2).unwrap();
    let mut host = asking(&network, &HANDSHAKE);
    drop(request(&mut listener).open(&attributes()).unwrap());
    assert!(matches!(events(&mut host)[..], [Event::Rejected { reason: Event::BY_CONSUMER, .. }]));
}

#[test]
fn a_host_gives_up_before_or_after_it_was_accepted() {
    let network = Network::from(Simulated::new());
    let mut listener = network.listen(address(), 2).unwrap();
    drop(asking(&network, &HANDSHAKE));
    let mut target = request(&mut listener).open(&attributes()).unwrap();
    target.accept(&HANDSHAKE).unwrap();
    assert!(matches!(events(&mut target)[..], [Event::Unreachable(_)]));
    assert_eq!(all(&mut target).len(), 4);

    let host = asking(&network, &HANDSHAKE);
    let mut target = request(&mut listener).open(&attributes()).unwrap();
    target.accept(&HANDSHAKE).unwrap();
    drop(host);
    assert!(matches!(events(&mut target)[..], [Event::Unreachable(_)]));
}

#[test]
fn calls_out_of_place_are_refused() {
    let network = Network::from(Simulated::new());
    let mut listener = network.listen(address(), 2).unwrap();
    assert!(matches!(network.listen(address(), 2), Err(Error::AddressInUse(_))));
    let mut host = asking(&network, &HANDSHAKE);
    assert!(matches!(host.connect(&HANDSHAKE), Err(Error::State(_))));
    assert!(matches!(host.accept(&HANDSHAKE), Err(Error::State(_))));
    let mut target = request(&mut listener).open(&attributes()).unwrap();
    assert!(matches!(target.connect(&HANDSHAKE), Err(Error::State(_))));
    let long = [0; ACCEPT_PRIVATE_DATA_MAX + 1];
    let too_long = Handshake { private_data: &long, ..HANDSHAKE };
    assert!(matches!(target.accept(&too_long), Err(Error::PrivateData { .. })));
    target.accept(&HANDSHAKE).unwrap();
    assert!(matches!(target.accept(&HANDSHAKE), Err(Error::State(_))));
}

#[test]
fn what_a_device_cannot_do_is_refused_with_the_limit() {
    let small = DeviceAttributes {
        queue_pairs: 1,
        queue_entries: 12,
        completion_entries: 16,
        regions: 2,
        region_bytes: 4096,
        ..device()
    };
    let simulated = Simulated::with_device(small);
    let network = Network::from(simulated.clone());
    let listener = network.listen(address(), 2).unwrap();
    let mut host = asking(&network, &HANDSHAKE);
    let open = |attributes: &Attributes| {
        let mut connecting = network.connect(address(), None, &ConnectOptions::default()).unwrap();
        assert!(connecting.poll().unwrap());
        match connecting.open(attributes) {
            Err(Error::Limit { wanted, max, .. }) => (wanted, max),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(open(&attributes()), (2, 1));
    assert_eq!(open(&Attributes { operations: 9, ..attributes() }), (13, 12));
    assert_eq!(open(&Attributes { receives: 13, ..attributes() }), (13, 12));
    assert_eq!(open(&Attributes { receives: 5, ..attributes() }), (17, 16));
    assert_eq!(simulated.queue_pairs(), 1);

    assert!(matches!(host.hold(Buffer::zeroed(8192)), Err((_, Error::Limit { wanted: 8192, max: 4096, .. }))));
    let buffers = [0; 3].map(|_| Buffer::zeroed(4096));
    assert!(host.remote_key(buffers[0].region()).is_ok() && host.remote_key(buffers[1].region()).is_ok());
    assert!(matches!(host.remote_key(buffers[2].region()), Err(Error::Limit { wanted: 3, max: 2, .. })));
    assert_eq!(simulated.registered_bytes(), 8192);
    drop((buffers, listener));
    assert_eq!(simulated.registered_bytes(), 0);
    assert!(host.hold(Buffer::zeroed(4096)).is_ok());
}

#[test]
fn an_end_that_disconnects_gets_its_work_back_and_the_other_end_is_told() {
    let network = Simulated::new();
    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    network.connections()[0].hold_work(Side::Target, true);
    let held = target.hold(Buffer::zeroed(4096)).unwrap();
    target.post_write(held, 0, 8, Remote { address: 0, key: 0 }, None);
    let slot = send(&mut target, b"x", None);
    target.flush().unwrap();
    host.disconnect();
    host.disconnect();
    assert_eq!(events(&mut host), [Event::Disconnected]);
    assert_eq!(events(&mut target), [Event::Disconnected]);
    assert!(all(&mut target).is_empty() && target.release(held).is_none());
    target.disconnect();
    let completions = all(&mut target);
    assert_eq!(completions[..2], [flushed(WorkRequest::Unsignalled), flushed(WorkRequest::Send(slot))]);
    assert_eq!(completions.len(), 6);
    assert!(target.release(held).is_some() && events(&mut target).is_empty());
    assert_eq!(all(&mut host).len(), 4);
}

#[test]
fn a_lost_connection_is_noticed_by_who_has_something_under_way() {
    let network = Simulated::new();
    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    let connection = network.connections().remove(0);
    connection.lose();
    let slot = send(&mut host, b"x", None);
    host.flush().unwrap();
    assert!(all(&mut host).is_empty());
    connection.time_out();
    let status = WorkStatus::RetryExceeded;
    assert_eq!(all(&mut host)[0], WorkCompletion::Failed { what: WorkRequest::Send(slot), status });
    drop(host);
    assert!(all(&mut target).is_empty() && events(&mut target).is_empty());
    target.disconnect();
    assert_eq!(all(&mut target).len(), 4);
}

#[test]
fn what_a_machine_that_stops_has_sent_does_not_arrive() {
    let network = Simulated::new();
    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    let connection = network.connections().remove(0);
    assert!(!connection.is_over());
    send(&mut target, b"x", None);
    target.flush().unwrap();
    connection.break_off(Side::Host);
    let is_flushed = |completion: &WorkCompletion| {
        matches!(completion, WorkCompletion::Failed { what: WorkRequest::Receive(_), status: WorkStatus::Flushed })
    };
    assert!(all(&mut host).iter().all(is_flushed) && connection.is_over());
    assert_eq!(events(&mut host), [Event::Disconnected]);
    assert!(events(&mut target).is_empty(), "it has stopped");
}

#[test]
fn faults_are_told_to_those_they_concern() {
    let network = Simulated::new();
    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    network.connections()[0].sever();
    assert_eq!((events(&mut host), events(&mut target)), (vec![Event::Disconnected], vec![Event::Disconnected]));

    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    let connection = network.connections().pop().unwrap();
    assert_eq!((connection.host().ip(), connection.target()), (address().ip(), address()));
    connection.fail(Side::Host);
    assert!(matches!(events(&mut host)[..], [Event::Fatal(_)]) && events(&mut target).is_empty());
    assert_eq!((all(&mut host).len(), all(&mut target).len()), (4, 0));

    let (mut host, mut target) = connected(&network, &HANDSHAKE);
    let connection = network.connections().pop().unwrap();
    connection.hold_completions(Side::Target, true);
    send(&mut host, b"x", None);
    host.flush().unwrap();
    assert_eq!((all(&mut host).len(), all(&mut target).len()), (1, 0));
    connection.hold_completions(Side::Target, false);
    assert_eq!(all(&mut target).len(), 1);

    let listening = Network::from(network.clone());
    let mut listener = listening.listen(address(), 2).unwrap();
    network.change_address(address().ip());
    assert!(matches!(listener.poll().unwrap(), Some(ListenerEvent::AddressChanged)));
    assert_eq!((events(&mut host), events(&mut target)), (vec![Event::AddressChanged], vec![Event::AddressChanged]));
    let mut again = listening.listen(address(), 2).unwrap();
    drop(listener);
    assert!(matches!(listening.listen(address(), 2), Err(Error::AddressInUse(_))), "the later one listens on");

    network.remove_device();
    assert!(matches!(again.poll().unwrap(), Some(ListenerEvent::DeviceRemoved)));
    assert_eq!((events(&mut host), events(&mut target)), (vec![Event::DeviceRemoved], vec![Event::DeviceRemoved]));
    assert_eq!(all(&mut host).len(), 4);
    assert!(matches!(listening.listen(address(), 2), Err(Error::NoDevice(_))));
    assert!(listening.connect(address(), None, &ConnectOptions::default()).is_err());
    assert!(listening.devices().unwrap().is_empty());
    network.restore_device();
    drop(again);
    connected(&network, &HANDSHAKE);
    assert_eq!(listening.devices().unwrap()[0].attributes, device());

    network.set_reachable(address().ip(), false);
    let mut connecting = listening.connect(address(), None, &ConnectOptions::default()).unwrap();
    assert!(matches!(connecting.poll(), Err(Error::Address { .. })));
}

#[test]
fn queue_pairs_share_receives() {
    let network = Simulated::new();
    let shared = SharedReceives::new(2, 64);
    let attributes = Attributes { shared_receives: Some(shared.clone()), ..attributes() };
    let (mut first_host, mut first) = connected_with(&network, &HANDSHAKE, &attributes);
    let (mut second_host, mut second) = connected_with(&network, &HANDSHAKE, &attributes);
    for host in [&mut first_host, &mut second_host] {
        send(host, b"1", None);
        send(host, b"2", None);
        host.flush().unwrap();
    }
    let received = |slot| WorkCompletion::Received { slot, length: 1, invalidated: None };
    assert_eq!((all(&mut first), all(&mut second)), (vec![received(0), received(1)], vec![]));
    assert_eq!(first.received(1)[0], b'2');
    first.post_receive(1);
    first.flush().unwrap();
    assert_eq!((all(&mut second), second.received(1)[0]), (vec![received(1)], b'1'));
    // One that ends gives back what it has: a message that nobody has received, too.
    drop(first);
    assert_eq!((all(&mut second), second.received(0)[0]), (vec![received(0)], b'2'));
    second.disconnect();
    assert!(all(&mut second).is_empty(), "shared receives are not flushed");
    drop(second);
    let (mut host, mut target) = connected_with(&network, &HANDSHAKE, &attributes);
    send(&mut host, b"3", None);
    send(&mut host, b"4", None);
    host.flush().unwrap();
    assert_eq!((all(&mut target).len(), shared.count(), shared.bytes()), (2, 2, 64));
    assert_ne!(SharedReceives::new(1, 1).id(), shared.id());
}
