//! Connections that break, commands without a response, and namespaces that are added and removed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::peer::{Action, BLOCK, Peer};
use ebof_initiator::{AdminData, Controller, Data, Error, Event, QueuePair, State, Trouble};
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::identify::Cns;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{Nsid, Sqe, Status};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LONG: Duration = Duration::from_secs(20);

fn await_event(events: &Receiver<Event>, wanted: impl Fn(&Event) -> bool) -> Event {
    let deadline = Instant::now() + LONG;
    loop {
        let event = events.recv_timeout(deadline - Instant::now()).expect("the event");
        if wanted(&event) {
            return event;
        }
    }
}

fn read() -> Sqe {
    BlockRange::new(1, 1).encode(nvm::READ, Nsid(1))
}

#[test]
fn commands_are_reported_as_lost_and_the_queue_recovers() {
    let peer = Peer::new();
    peer.state().on_io = Box::new(|_| Action::Ignore);
    let controller = Controller::connect(&peer.options()).unwrap();
    let events = controller.events();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    for user in 0..3 {
        queue.submit(read(), Data::ToHost(vec![0; BLOCK]), user).unwrap();
    }
    queue.flush().unwrap();
    peer.hang_up();
    peer.state().on_io = Box::new(|_| Action::Serve);
    for user in 0..3 {
        let completion = queue.wait(Some(Instant::now() + LONG)).unwrap().unwrap();
        assert_eq!(completion.user, user);
        assert!(matches!(completion.result, Err(Error::Lost(_))), "{:?}", completion.result);
        assert_eq!(completion.data.into_buffer().unwrap().len(), BLOCK);
    }
    assert!(matches!(await_event(&events, |_| true), Event::ConnectionLost(_)));
    assert!(controller.wait_live(Some(Instant::now() + LONG)));
    await_event(&events, |event| *event == Event::Reconnected);
    let mut block = [7; BLOCK];
    assert!(queue.execute(read(), AdminData::ToHost(&mut block)).unwrap().status().is_success());
}

#[test]
fn a_target_that_violates_the_protocol_is_disconnected_and_reconnected() {
    for (action, violation) in
        [(Action::Garbage, "PDU type"), (Action::Twice, "a response to a command that is not outstanding")]
    {
        let peer = Peer::new();
        peer.state().on_io = Box::new(move |_| action);
        let controller = Controller::connect(&peer.options()).unwrap();
        let events = controller.events();
        let mut queue: QueuePair = controller.queue_pair().unwrap();
        for user in 0..3 {
            queue.submit(read(), Data::ToHost(vec![0; BLOCK]), user).unwrap();
        }
        let results: Vec<_> =
            (0..3).map(|_| queue.wait(Some(Instant::now() + LONG)).unwrap().unwrap().result).collect();
        let lost = results.iter().filter(|result| matches!(result, Err(Error::Lost(_)))).count();
        assert!(lost >= 2, "{results:?}");
        let Event::ConnectionLost(why) = await_event(&events, |_| true) else { panic!() };
        assert!(why.starts_with("the target broke the protocol: ") && why.contains(violation), "{why}");
        let trouble = await_event(&events, |event| matches!(event, Event::Trouble { .. }));
        assert_eq!(trouble, Event::Trouble { trouble: Trouble::Protocol, count: 1 });
        await_event(&events, |event| *event == Event::Reconnected);
    }
}

/// Of commands that are repeated until they succeed, nobody would know.
// @test redfish.repeated-trouble
#[test]
fn digest_errors_and_refusals_are_counted_and_told() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.data_digest = true;
    let controller = Controller::connect(&options).unwrap();
    let events = controller.events();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    let count = |trouble| controller.troubles().into_iter().find(|(it, _)| *it == trouble).unwrap().1;
    assert_eq!([Trouble::DataDigest, Trouble::Repeated].map(count), [0, 0]);
    let refused = count(Trouble::Refused);
    peer.state().wrong_digests = 3;
    let mut block = vec![0; BLOCK];
    namespace.read(1, &mut block).unwrap();
    assert_eq!([Trouble::DataDigest, Trouble::Repeated].map(count), [3, 3]);
    let told = await_event(&events, |event| matches!(event, Event::Trouble { trouble: Trouble::DataDigest, .. }));
    assert!(told.to_string().contains("data digest errors: data were changed on the way"), "{told}");
    peer.state().no_descriptors = true;
    controller.identify_bytes(Cns::NAMESPACE_ID_DESCRIPTORS, Nsid(1)).unwrap_err();
    assert_eq!(count(Trouble::Refused), refused + 1);
    await_event(&events, |event| matches!(event, Event::Trouble { trouble: Trouble::Refused, .. }));
    // The next ones of this minute are told when it is over.
    peer.state().wrong_digests = 1;
    namespace.read(1, &mut block).unwrap();
    assert_eq!(count(Trouble::DataDigest), 4);
    assert!(events.try_iter().all(|event| !matches!(event, Event::Trouble { trouble: Trouble::DataDigest, .. })));
}

#[test]
fn a_waiting_queue_notices_the_reconnect() {
    let peer = Peer::new();
    let controller = Controller::connect(&peer.options()).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    peer.state().closed = true;
    peer.hang_up();
    // Submitted to a broken connection, or refused: both are correct if it ends.
    let waited = match queue.submit(read(), Data::ToHost(vec![0; BLOCK]), 1) {
        Ok(()) => queue.wait(Some(Instant::now() + LONG)).unwrap().unwrap().result.unwrap_err(),
        Err(refused) => refused.reason,
    };
    assert!(waited.is_connection(), "{waited}");
    let error = queue.wait(Some(Instant::now() + Duration::from_millis(50))).unwrap_err();
    assert!(matches!(&error, Error::NotConnected(why) if why.state == State::Reconnecting), "{error}");
    let address = peer.address;
    assert!(error.to_string().starts_with(&format!("not connected: the connection to {address} was lost ")), "{error}");
    assert!(error.to_string().ends_with(" s more"), "{error}");
    peer.state().closed = false;
    assert!(queue.wait(Some(Instant::now() + LONG)).unwrap().is_none(), "connected, and nothing is outstanding");
    assert!(queue.execute(read(), AdminData::ToHost(&mut [0; BLOCK])).unwrap().status().is_success());
}

/// Executes a command that is answered as soon as the queue is connected.
fn await_connected(queue: &mut QueuePair) {
    let began = Instant::now();
    while queue.execute(Sqe::new(nvm::FLUSH).with_nsid(Nsid(1)), AdminData::None).is_err() {
        assert!(began.elapsed() < LONG);
        drop(queue.wait(Some(Instant::now() + Duration::from_millis(20))));
    }
}

#[test]
fn a_controller_that_returns_with_smaller_queues_gets_fewer_commands() {
    let peer = Peer::new();
    peer.state().on_io = Box::new(|sqe| if sqe.opcode == nvm::FLUSH { Action::Serve } else { Action::Ignore });
    peer.state().entries = 16;
    let controller = Controller::connect(&peer.options()).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    for entries in [16, 8, 12] {
        if entries != 16 {
            peer.state().entries = entries;
            peer.hang_up();
            while queue.in_flight() > 0 {
                queue.wait(Some(Instant::now() + LONG)).unwrap().unwrap().result.unwrap_err();
            }
            await_connected(&mut queue);
        }
        assert_eq!(controller.queue_entries(), u16::try_from(entries).unwrap());
        let mut taken = 0;
        while queue.submit(read(), Data::ToHost(vec![0; BLOCK]), 1).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, entries - 1, "of {entries} one is left free");
    }
}

/// The buffer returns to the caller while its answer is still to come.
#[test]
fn a_system_call_that_fails_ends_the_connection_with_a_lent_buffer() {
    const CHILD: &str = "EBOF_WITHOUT_DESCRIPTORS";
    if std::env::var_os(CHILD).is_none() {
        // The limit is the whole program's.
        let test = "loss::a_system_call_that_fails_ends_the_connection_with_a_lent_buffer";
        let mut program = std::process::Command::new(std::env::current_exe().unwrap());
        let output = program.args(["--exact", test]).env(CHILD, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("test result: ok. 1 passed"), "{text}");
        return;
    }
    let peer = Peer::new();
    peer.state().on_io = Box::new(|sqe| if sqe.opcode == nvm::FLUSH { Action::Serve } else { Action::Ignore });
    let controller = Controller::connect(&peer.options()).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    let limit = getrlimit(Resource::Nofile);
    let began = Instant::now();
    let before = loop {
        await_connected(&mut queue);
        let before = peer.state().connects.len();
        // poll(2) takes no more descriptors than a process may have.
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
        let result = queue.execute(read(), AdminData::ToHost(&mut [0; BLOCK]));
        setrlimit(Resource::Nofile, limit).unwrap();
        match result {
            Err(Error::System { .. }) => break before,
            // The call of another thread failed first.
            Err(Error::Lost(_)) => assert!(began.elapsed() < LONG),
            other => panic!("{other:?}"),
        }
    };

    assert_eq!(queue.in_flight(), 0);
    await_connected(&mut queue);
    assert!(peer.state().connects.len() > before, "over a new connection");
}

// @test host.lost-connection
#[test]
fn reads_and_writes_of_a_namespace_survive_losses() {
    let peer = Peer::new();
    let mut commands = 0;
    peer.state().on_io = Box::new(move |_| {
        commands += 1;
        if commands % 7 == 3 { Action::Hangup } else { Action::Serve }
    });
    let namespace = Controller::connect(&peer.options()).unwrap().namespace(Nsid(1)).unwrap();
    for round in 0..10u8 {
        namespace.write(u64::from(round) * 3, &[round; 3 * BLOCK], false).unwrap();
        let mut back = [0; 3 * BLOCK];
        namespace.read(u64::from(round) * 3, &mut back).unwrap();
        assert_eq!(back, [round; 3 * BLOCK]);
    }
}

// @test host.time-outs
#[test]
fn a_controller_that_does_not_return_is_given_up() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.ctrl_loss_tmo = Some(Duration::from_millis(300));
    let controller = Controller::connect(&options).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    namespace.flush().unwrap();
    let events = controller.events();
    peer.state().closed = true;
    peer.hang_up();
    let error = namespace.flush().unwrap_err();
    assert!(error.is_connection(), "{error}");
    let Event::GaveUp(why) = await_event(&events, |event| matches!(event, Event::GaveUp(_))) else { panic!() };
    assert!(why.contains("closed the connection before it said a word of NVMe/TCP"), "{why}");
    assert_eq!(controller.state(), State::Dead);
    assert!(!controller.wait_live(None));
    let error = controller.namespaces().unwrap_err();
    let told = format!("not connected: {} did not come back in time and was given up", peer.address);
    assert_eq!(error.to_string(), told);
    assert!(events.recv_timeout(LONG).is_err(), "no more events will come");
    assert!(controller.events().recv_timeout(LONG).is_err(), "nor to those who ask now");
    controller.disconnect();
}

// @test host.time-outs
#[test]
fn fast_io_fail_ends_commands_before_the_controller_is_given_up() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.fast_io_fail_tmo = Some(Duration::from_millis(200));
    let controller = Controller::connect(&options).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    namespace.flush().unwrap();
    peer.state().closed = true;
    peer.hang_up();
    assert!(namespace.flush().unwrap_err().is_connection());
    assert_eq!(controller.state(), State::Reconnecting);
    peer.state().closed = false;
    namespace.flush().unwrap();
}

#[test]
fn a_command_that_times_out_is_aborted_and_then_the_connection_is_reset() {
    let peer = Peer::new();
    peer.state().on_io = Box::new(|_| Action::Ignore);
    let mut options = peer.options();
    options.command_timeout_ms = 150;
    let controller = Controller::connect(&options).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    let error = queue.execute(read(), AdminData::ToHost(&mut [0; BLOCK])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the connection was lost: the target did not answer a command in time, nor its abort"
    );
    let aborts = peer.state().aborts.clone();
    assert_eq!((aborts.len(), aborts[0].0), (1, queue.id().0), "one abort for this queue");
    peer.state().on_io = Box::new(|_| Action::Serve);
    assert!(controller.wait_live(Some(Instant::now() + LONG)));
    assert!(queue.wait(Some(Instant::now() + LONG)).unwrap().is_none());
    assert!(queue.execute(read(), AdminData::ToHost(&mut [0; BLOCK])).unwrap().status().is_success());
}

#[test]
fn an_unanswered_admin_command_times_out() {
    let peer = Peer::new();
    let controller = Controller::connect(&peer.options()).unwrap();
    let error = controller.admin(Sqe::new(0xc0), AdminData::None, Some(Duration::from_millis(100))).unwrap_err();
    assert!(matches!(error, Error::Timeout { after_ms: 100 }), "{error}");
    let deadline = Instant::now() + LONG;
    while peer.state().aborts.is_empty() {
        assert!(Instant::now() < deadline, "an abort of the admin command");
        std::thread::yield_now();
    }
    assert_eq!(peer.state().aborts[0].0, 0);
    assert_eq!(controller.state(), State::Live, "others go on");
    assert_eq!(controller.namespaces().unwrap(), [Nsid(1)]);
}

#[test]
fn all_commands_that_time_out_at_once_are_aborted() {
    let peer = Peer::new();
    // As long as no Abort is answered, only a few are outstanding.
    peer.state().held = Some(admin::ABORT);
    let controller = Controller::connect(&peer.options()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..7 {
            scope.spawn(|| {
                let timeout = Some(Duration::from_millis(100));
                let error = controller.admin(Sqe::new(0xc0), AdminData::None, timeout).unwrap_err();
                assert!(matches!(error, Error::Timeout { .. }), "{error}");
            });
        }
    });
    assert!(peer.state().aborts.is_empty());
    peer.state().held = None;
    let deadline = Instant::now() + LONG;
    while peer.state().aborts.len() < 7 {
        assert!(Instant::now() < deadline, "{:?}", peer.state().aborts);
        std::thread::yield_now();
    }
    assert_eq!(controller.state(), State::Live);
}

#[test]
fn keep_alive_goes_on_while_the_log_pages_of_many_events_are_not_sent() {
    let peer = Peer::new();
    peer.state().held = Some(admin::GET_LOG_PAGE);
    let mut options = peer.options();
    options.keep_alive_ms = 400;
    let controller = Controller::connect(&options).unwrap();
    // More than the Admin Queue has entries. The controller is not to send the second before the
    // first is cleared, but this one does.
    peer.state().events.extend([AsyncEvent::SPARE_BELOW_THRESHOLD.encode(); 60]);
    let deadline = Instant::now() + LONG;
    while !peer.state().events.is_empty() {
        assert!(Instant::now() < deadline, "{} events are left", peer.state().events.len());
        std::thread::yield_now();
    }
    let before = peer.state().keep_alives;
    while peer.state().keep_alives < before + 3 {
        assert!(Instant::now() < deadline, "no more Keep Alive");
        std::thread::yield_now();
    }
    // The queue has room for callers, too.
    assert!(controller.admin(Sqe::new(0xc1), AdminData::None, None).unwrap().status().is_success());
    assert_eq!(controller.state(), State::Live);
}

#[test]
fn keep_alive_is_sent_and_a_missing_response_is_a_loss() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.keep_alive_ms = 100;
    let controller = Controller::connect(&options).unwrap();
    let events = controller.events();
    let deadline = Instant::now() + LONG;
    while peer.state().keep_alives < 3 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    peer.state().on_keep_alive = Action::Ignore;
    let lost = await_event(&events, |event| matches!(event, Event::ConnectionLost(_)));
    assert_eq!(lost, Event::ConnectionLost("the target did not answer Keep Alive".to_owned()));
}

#[test]
fn added_removed_and_changed_namespaces_are_reported() {
    let peer = Peer::new();
    peer.state().namespaces = vec![1, 2];
    let controller = Controller::connect(&peer.options()).unwrap();
    let events = controller.events();
    assert_eq!(controller.namespaces().unwrap(), [Nsid(1), Nsid(2)]);
    {
        let mut state = peer.state();
        state.namespaces = vec![2, 3];
        state.changed = vec![1, 2, 3];
        state.events.push(AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED.encode());
    }
    let mut told: Vec<Event> = (0..3).map(|_| await_event(&events, |_| true)).collect();
    told.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(
        told,
        [Event::NamespaceAdded(Nsid(3)), Event::NamespaceChanged(Nsid(2)), Event::NamespaceRemoved(Nsid(1))]
    );
    peer.state().events.push(AsyncEvent::DISCOVERY_LOG_CHANGE.encode());
    peer.state().events.push(AsyncEvent::SPARE_BELOW_THRESHOLD.encode());
    assert_eq!(await_event(&events, |_| true), Event::DiscoveryChanged);
    assert_eq!(await_event(&events, |_| true), Event::Asynchronous { kind: 1, info: 2, log_page: 2 });
    peer.state().namespaces = vec![3];
    peer.hang_up();
    assert_eq!(
        await_event(&events, |event| matches!(event, Event::NamespaceRemoved(_))),
        Event::NamespaceRemoved(Nsid(2))
    );
}

#[test]
fn a_reset_reconnects_and_dropping_everything_disconnects() {
    let peer = Peer::new();
    let controller = Controller::connect(&peer.options()).unwrap();
    let events = controller.events();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    namespace.flush().unwrap();
    controller.reset();
    await_event(&events, |event| *event == Event::Reconnected);
    namespace.flush().unwrap();
    assert!(controller.downgrade().upgrade().is_some());
    drop((controller, namespace));
    // The thread ends, and with it the receiver.
    while events.recv_timeout(LONG).is_ok() {}
    assert_eq!(peer.state().shutdowns, 1);
}

/// Unsent data of an abandoned connection must not arrive after data of the next one: the
/// connection is reset, which discards them. A connection without outstanding commands is closed
/// normally.
#[test]
fn abandoned_connections_are_reset_and_others_are_closed() {
    let peer = Peer::new();
    let ends = |wanted: (usize, usize)| {
        let deadline = Instant::now() + LONG;
        while peer.state().ends != wanted {
            assert!(Instant::now() < deadline, "{:?}, not {wanted:?}", peer.state().ends);
            std::thread::yield_now();
        }
    };
    let controller = Controller::connect(&peer.options()).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    assert!(queue.execute(read(), AdminData::ToHost(&mut [0; BLOCK])).unwrap().status().is_success());
    drop(queue);
    ends((1, 0));
    controller.disconnect();
    ends((2, 0));
    let controller = Controller::connect(&peer.options()).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    peer.state().on_io = Box::new(|_| Action::Ignore);
    queue.submit(read(), Data::ToHost(vec![0; BLOCK]), 1).unwrap();
    queue.flush().unwrap();
    drop(queue);
    ends((2, 1));
    controller.disconnect();
    ends((3, 1));
}

/// A further queue is an advantage, not a need.
#[test]
fn calls_share_the_queues_that_there_are_while_no_other_can_be_connected() {
    let peer = Peer::new();
    let mut options = peer.options();
    options.nr_io_queues = 4;
    options.reconnect_delay_ms = 10_000;
    let controller = Controller::connect(&options).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    namespace.read(0, &mut [0; BLOCK]).unwrap();
    {
        let mut state = peer.state();
        state.connect = Some((Status::CONNECT_INVALID_HOST.dnr(), 0));
        state.connects.clear();
    }
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5000).for_each(|at| namespace.read(at % 8, &mut [0; BLOCK]).unwrap()));
        }
    });
    assert!(began.elapsed() < LONG && controller.state() == State::Live);
    let attempts = peer.state().connects.len();
    // Three at once, and then one by one after pauses that are doubled from 50 ms on.
    assert!(attempts < 15, "{attempts} attempts");
}
