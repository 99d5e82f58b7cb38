//! A controller without threads, over simulated streams, with a clock that stands still until the
//! test advances it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ebof_clock::Clock;
use ebof_initiator::{ConnectErrorKind, Data, Dialer, Error, Event, Options, Queues, State, Transport, stepped};
use ebof_nvme::Nsid;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_sockets::{Readiness, SimulatedStream, Stream};

use crate::peer::{Action, BLOCK, Peer};

const LONG: Duration = Duration::from_secs(20);

/// The connection to a peer, as in a simulation.
struct Wire(TcpStream);

impl SimulatedStream for Wire {
    fn receive(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read_vectored(parts)
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(parts)
    }

    fn shutdown(&mut self, how: Shutdown) {
        drop(self.0.shutdown(how));
    }

    fn readiness(&self) -> Readiness {
        Readiness { readable: true, writable: true, closed: false }
    }
}

/// The other end never responds.
struct Silence;

impl SimulatedStream for Silence {
    fn receive(&mut self, _parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(parts.iter().map(|part| part.len()).sum())
    }

    fn shutdown(&mut self, _how: Shutdown) {}

    fn readiness(&self) -> Readiness {
        Readiness { readable: false, writable: true, closed: false }
    }
}

/// The connections that are asked for, from when they are refused on.
#[derive(Default)]
struct Door {
    is_closed: AtomicBool,
    refused: AtomicUsize,
}

/// Options with a separate clock. As long as the door is closed, connections are refused.
fn options(peer: &Peer) -> (Options, Arc<Door>) {
    let mut options = peer.options();
    let door = Arc::new(Door::default());
    let address = peer.address;
    let of_dialer = Arc::clone(&door);
    options.clock = Clock::simulated(7);
    options.transport = Transport::Streams(Dialer::new(move || {
        if of_dialer.is_closed.load(Ordering::Relaxed) {
            of_dialer.refused.fetch_add(1, Ordering::Relaxed);
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let stream = TcpStream::connect(address)?;
        stream.set_nonblocking(true)?;
        Ok(Stream::simulated(Box::new(Wire(stream))))
    }));
    (options, door)
}

/// Steps until the end. The peer has a thread, so real time passes; the clock stands still.
fn finish<T>(sequence: &mut stepped::Sequence<T>, mut meanwhile: impl FnMut()) -> T {
    let began = Instant::now();
    loop {
        if let Some(result) = sequence.step() {
            return result;
        }
        assert!(began.elapsed() < LONG, "it does not end");
        meanwhile();
        std::thread::yield_now();
    }
}

#[test]
fn a_silent_target_times_out_by_the_simulated_clock() {
    let peer = Peer::new();
    let (mut options, _) = options(&peer);
    options.transport = Transport::Streams(Dialer::new(|| Ok(Stream::simulated(Box::new(Silence)))));
    let mut connecting = stepped::connect(&options);
    for _ in 0..100 {
        assert!(connecting.step().is_none());
    }
    let due = connecting.due().unwrap();
    assert_eq!(due - options.clock.now(), Duration::from_millis(2000));
    options.clock.advance_to(due);
    let error = connecting.step().unwrap().unwrap_err();
    assert_eq!(*error.kind(), ConnectErrorKind::TimedOut { after_ms: 2000 });
    assert!(connecting.is_over() && connecting.step().is_none());
}

#[test]
fn ten_minutes_of_reconnecting_take_no_real_time() {
    let peer = Peer::new();
    let (mut options, door) = options(&peer);
    options.ctrl_loss_tmo = Some(Duration::from_secs(600));
    options.reconnect_delay_ms = 10_000;
    let (controller, mut admin_queue) = finish(&mut stepped::connect(&options), || {}).unwrap();
    let events = controller.events();
    door.is_closed.store(true, Ordering::Relaxed);
    peer.hang_up();
    let began = options.clock.now();
    let real = Instant::now();
    let mut steps = 0;
    while admin_queue.step().is_none() {
        if controller.state() != State::Live {
            steps += 1;
            options.clock.advance_to(admin_queue.due().unwrap());
        }
        assert!(real.elapsed() < LONG, "{:?}", controller.state());
    }
    assert_eq!((options.clock.now() - began, controller.state()), (Duration::from_secs(600), State::Dead));
    assert!((60..200).contains(&steps), "{steps} attempts, 10 s apart after the first");
    let all: Vec<Event> = events.iter().collect();
    assert!(matches!(&all[..], [Event::ConnectionLost(_), Event::GaveUp(_)]), "{all:?}");
}

#[test]
fn a_queue_is_re_created_in_steps_after_a_loss() {
    let peer = Peer::new();
    let (options, _) = options(&peer);
    let (controller, mut admin_queue) = finish(&mut stepped::connect(&options), || {}).unwrap();
    let mut opening = stepped::queue_pair::<Vec<u8>>(&controller);
    let mut queue = finish(&mut opening, || _ = admin_queue.step()).unwrap();
    // The peer is a thread and needs real time to respond, so the clock advances at that rate.
    let start = options.clock.now();
    let began = Instant::now();
    let mut step = || {
        options.clock.advance_to(start + began.elapsed());
        admin_queue.step();
        std::thread::yield_now();
    };
    for round in 0..3 {
        let sqe = |opcode| BlockRange::new(round, 1).encode(opcode, Nsid(1));
        for (opcode, data) in [(nvm::WRITE, Data::FromHost(vec![3; BLOCK])), (nvm::READ, Data::ToHost(vec![0; BLOCK]))]
        {
            queue.submit(sqe(opcode), data, round).unwrap();
            let began = Instant::now();
            let completion = loop {
                if let Some(completion) = queue.poll().unwrap() {
                    break completion;
                }
                assert!(began.elapsed() < LONG);
                step();
            };
            assert!(completion.result.unwrap().status().is_success());
            assert_eq!(completion.data.into_buffer().unwrap(), [3; BLOCK]);
        }
        peer.hang_up();
        let began = Instant::now();
        let mut was_lost = false;
        while !was_lost || queue.poll().is_err() {
            was_lost |= queue.poll().is_err();
            assert!(began.elapsed() < LONG, "it does not come back");
            step();
        }
    }
}

#[test]
fn calls_that_would_wait_for_ever_return_an_error() {
    let peer = Peer::new();
    let (options, _) = options(&peer);
    let (controller, mut admin_queue) = finish(&mut stepped::connect(&options), || {}).unwrap();
    let mut opening = stepped::namespace(&controller, Nsid(1));
    let namespace = finish(&mut opening, || _ = admin_queue.step()).unwrap();
    let errors = [
        controller.namespaces().map(drop),
        controller.namespace(Nsid(1)).map(drop),
        controller.identify_namespace(Nsid(1)).map(drop),
        controller.queue_pair::<Vec<u8>>().map(drop),
        Queues::<Vec<u8>>::new(&controller).map(drop),
        namespace.refresh(),
        namespace.read(0, &mut [0; BLOCK]),
        namespace.write(0, &[0; BLOCK], false),
        namespace.compare(0, &[0; BLOCK]).map(drop),
        namespace.flush(),
        namespace.verify(0, 1),
        namespace.deallocate(&[(0, 1)]),
        namespace.copy(&[(0, 1)], 8),
    ];
    for (index, result) in errors.into_iter().enumerate() {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), "stepped", "{index}: {error}");
    }
    assert!(controller.wait_live(None));
    peer.hang_up();
    while controller.state() == State::Live {
        admin_queue.step();
    }
    assert!(!controller.wait_live(None), "not yet again, and nobody else would step it");
}

/// Without a pause each call would cost the target hundreds of connections a second, and without a
/// limit it would never return: the controller is there, so nobody gives it up.
#[test]
fn calls_wait_for_a_queue_that_a_live_controller_refuses_and_not_for_ever() {
    const CALLS: usize = 4;
    let peer = Peer::new();
    let (mut options, door) = options(&peer);
    options.ctrl_loss_tmo = Some(Duration::from_secs(600));
    options.reconnect_delay_ms = 10_000;
    options.keep_alive_ms = 0;
    let (controller, mut admin_queue) = finish(&mut stepped::connect(&options), || {}).unwrap();
    let mut opening = stepped::namespace(&controller, Nsid(1));
    let namespace = finish(&mut opening, || _ = admin_queue.step()).unwrap();
    door.is_closed.store(true, Ordering::Relaxed);
    let began = options.clock.now();
    let mut calls: Vec<_> = (0..CALLS).map(|_| stepped::write(&namespace, 0, vec![5; BLOCK], false)).collect();
    let mut ended = Vec::new();
    while !calls.is_empty() {
        let passed = options.clock.now() - began;
        assert!(passed < Duration::from_secs(700), "{} attempts", door.refused.load(Ordering::Relaxed));
        calls.retain_mut(|call| match call.step() {
            Some(result) => {
                ended.push((result.unwrap_err(), passed));
                false
            }
            None => true,
        });
        admin_queue.step();
        if let Some(due) = calls.iter().filter_map(stepped::Sequence::due).min() {
            options.clock.advance_to(due);
        }
    }
    for (error, after) in &ended {
        assert!(matches!(error, Error::Connect(_)), "{error}");
        assert!((600..=601).contains(&after.as_secs()), "{after:?}");
    }
    let attempts = door.refused.load(Ordering::Relaxed);
    assert!((60..100).contains(&attempts), "{attempts} attempts of all calls, 10 s apart after the first");
    assert_eq!((ended.len(), controller.state()), (CALLS, State::Live));

    // One that waits succeeds once the target takes connections again.
    let mut call = stepped::write(&namespace, 0, vec![5; BLOCK], false);
    assert!(call.step().is_none());
    door.is_closed.store(false, Ordering::Relaxed);
    options.clock.advance(Duration::from_secs(13));
    finish(&mut call, || {
        admin_queue.step();
        options.clock.advance(Duration::from_micros(10));
    })
    .unwrap();
}

#[test]
fn a_call_that_waits_for_a_queue_ends_when_the_controller_is_disconnected() {
    let peer = Peer::new();
    let (options, door) = options(&peer);
    let (controller, mut admin_queue) = finish(&mut stepped::connect(&options), || {}).unwrap();
    let mut opening = stepped::namespace(&controller, Nsid(1));
    let namespace = finish(&mut opening, || _ = admin_queue.step()).unwrap();
    door.is_closed.store(true, Ordering::Relaxed);
    let mut call = stepped::write(&namespace, 0, vec![5; BLOCK], false);
    assert!(call.step().is_none());
    controller.clone().disconnect();
    // It is still live until the Admin Queue has its next turn.
    for _ in 0..3 {
        options.clock.advance_to(call.due().unwrap());
        assert!(call.step().is_none() && controller.state() == State::Live);
    }
    finish(&mut admin_queue, || options.clock.advance(Duration::from_micros(10)));
    let error = finish(&mut call, || options.clock.advance(Duration::from_millis(10))).unwrap_err();
    assert!(matches!(&error, Error::NotConnected(why) if why.state == State::Disconnected), "{error}");
}

/// Data that are in the sockets cannot be taken back, and the other end spends its time on them.
#[test]
fn large_writes_make_room_for_small_commands_of_another_queue() {
    const BYTES: usize = 384 << 10;
    const WRITES: usize = 4;
    let peer = Peer::new();
    let arrived = Arc::new(AtomicUsize::new(0));
    {
        let mut state = peer.state();
        state.mdts = 0;
        state.config.h2c_data_max = 1 << 20;
        state.config.r2t_bytes = 1 << 20;
        let arrived = Arc::clone(&arrived);
        // Called when all data of a write have arrived.
        state.on_io = Box::new(move |sqe| {
            if sqe.opcode != nvm::WRITE {
                return Action::Serve;
            }
            arrived.fetch_add(1, Ordering::Relaxed);
            Action::Ignore
        });
    }
    let (options, _) = options(&peer);
    assert_eq!(options.bulk_bytes, Some(512 << 10), "a write and a half");
    let (controller, mut admin_queue) = finish(&mut stepped::connect(&options), || {}).unwrap();
    let mut queues: Vec<stepped::QueuePair<Vec<u8>>> = Vec::new();
    for _ in 0..2 {
        let mut opening = stepped::queue_pair(&controller);
        queues.push(finish(&mut opening, || _ = admin_queue.step()).unwrap());
    }
    let [small, large] = &mut queues[..] else { panic!("two queues") };
    // Connect was a small command of each.
    options.clock.advance(Duration::from_millis(10));
    let sqe = |opcode, bytes: usize| BlockRange::new(0, u32::try_from(bytes / BLOCK).unwrap()).encode(opcode, Nsid(1));
    for _ in 0..WRITES {
        large.submit(sqe(nvm::WRITE, BYTES), Data::FromHost(vec![1; BYTES]), 0).unwrap();
    }
    // From now on the clock stands still. While many small commands are served, the peer gets what
    // it may get.
    let mut since_first = 0;
    while since_first < 2000 {
        small.submit(sqe(nvm::READ, BLOCK), Data::ToHost(vec![0; BLOCK]), 0).unwrap();
        let began = Instant::now();
        while small.poll().unwrap().is_none() {
            assert!(large.poll().unwrap().is_none() && began.elapsed() < LONG);
            std::thread::yield_now();
        }
        since_first += arrived.load(Ordering::Relaxed).min(1);
    }
    assert_eq!(arrived.load(Ordering::Relaxed), 1);
    options.clock.advance(Duration::from_millis(10));
    let began = Instant::now();
    while arrived.load(Ordering::Relaxed) < WRITES {
        assert!(large.poll().unwrap().is_none() && began.elapsed() < LONG);
        std::thread::yield_now();
    }
}
