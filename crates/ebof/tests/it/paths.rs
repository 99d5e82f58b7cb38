//! Paths of the library in rarer cases: a namespace behind one of them, paths that are away when a
//! namespace is opened, that come while a queue is made, or that go at the same time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ebof::initiator::{Event, PathQueue};
use ebof::nvme::io::BlockRange;
use ebof::nvme::opcode::nvm;
use ebof::{AsyncNamespace, Data, Error, Nsid, Options, PathPolicy, Subsystem, Target};

use crate::library::{CLOSED, Load, NQN, PASSES, Relay, SILENT, await_live, options, target};

/// Two targets with one subsystem: namespace 1 is at both, namespace 2 at the second.
fn two_targets() -> ([Target; 2], [SocketAddr; 2]) {
    let start = |first: u16, namespaces: &str| {
        let text = format!(
            "[[ports]]\nname = \"a\"\nlisten = \"tcp://127.0.0.1:0\"\n\
             [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\nserial = \"TWO\"\ncntlid_min = {first}\n\
             cntlid_max = {}\nnamespaces = [{namespaces}]\n",
            first + 999
        );
        Target::start_text(&text).unwrap_or_else(|error| panic!("{error:#}"))
    };
    let of = |nsid: u32| {
        let uuid = format!("00000000-0000-4000-8000-00000000000{nsid}");
        format!("{{ nsid = {nsid}, drive = \"mem:16Mi\", uuid = \"{uuid}\" }}")
    };
    let targets = [start(1, &of(1)), start(1001, &format!("{}, {}", of(1), of(2)))];
    let addresses = targets.each_ref().map(|target| target.addresses()[0].1);
    (targets, addresses)
}

fn with(relay: &Relay, change: impl FnOnce(&mut Options)) -> Options {
    let mut options = relay.options();
    options.nr_io_queues = 4;
    change(&mut options);
    options
}

fn stop(targets: [Target; 2]) {
    for target in targets {
        target.stop(Duration::from_secs(5));
    }
}

fn read(queue: &mut PathQueue<Vec<u8>>, nsid: Nsid) -> Result<(), Error> {
    let sqe = BlockRange::new(0, 1).encode(nvm::READ, nsid);
    queue.submit(sqe, Data::ToHost(vec![0; 512]), 7).unwrap();
    let completion = queue.wait(Some(Instant::now() + Duration::from_secs(20))).unwrap();
    let completion = completion.expect("the command ends");
    completion.result.map(|cqe| assert!(cqe.status().is_success(), "{}", cqe.status()))
}

// @test paths.fast-io-fail
#[test]
fn a_namespace_without_a_path_fails_in_time_while_others_have_one() {
    let (targets, addresses) = two_targets();
    let relays = addresses.map(Relay::new);
    let with_limit = |relay: &Relay| with(relay, |options| options.fast_io_fail_tmo = Some(Duration::from_secs(1)));
    let subsystem = Subsystem::connect(&relays.each_ref().map(with_limit)).unwrap();
    let [first, second] = [1, 2].map(|nsid| subsystem.namespace(Nsid(nsid)).unwrap());
    let [mut here, mut there] = [&first, &second].map(|namespace| PathQueue::new(namespace).unwrap());
    read(&mut there, Nsid(2)).unwrap();
    relays[1].set(CLOSED);
    let began = Instant::now();
    let failed = read(&mut there, Nsid(2)).unwrap_err();
    let took = began.elapsed();
    assert!(failed.is_connection() && took > Duration::from_millis(900), "{failed} after {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    // What comes later has waited long enough.
    let began = Instant::now();
    assert!(read(&mut there, Nsid(2)).is_err() && second.read(0, &mut [0; 512]).is_err());
    assert!(began.elapsed() < Duration::from_millis(800), "{:?}", began.elapsed());
    read(&mut here, Nsid(1)).unwrap();
    first.read(0, &mut [0; 512]).unwrap();
    relays[1].set(PASSES);
    await_live(&subsystem, 2);
    let end = Instant::now() + Duration::from_secs(10);
    while read(&mut there, Nsid(2)).is_err() {
        assert!(Instant::now() < end, "it is there again");
    }
    second.read(0, &mut [0; 512]).unwrap();
    drop((here, there));
    subsystem.disconnect();
    stop(targets);
}

#[test]
fn what_is_behind_a_path_that_is_away_is_not_deleted() {
    let (targets, addresses) = two_targets();
    let relays = addresses.map(Relay::new);
    let subsystem = Subsystem::connect(&relays.each_ref().map(Relay::options)).unwrap();
    let all = [Nsid(1), Nsid(2)];
    assert_eq!(subsystem.namespaces().unwrap(), all);
    let namespace = subsystem.namespace(Nsid(2)).unwrap();
    relays[1].set(CLOSED);
    await_live(&subsystem, 1);
    assert_eq!(subsystem.namespaces().unwrap(), all);
    namespace.check().unwrap();
    let away = subsystem.open(Nsid(2)).unwrap_err();
    assert!(matches!(away, Error::NotConnected(_)), "{away}");
    // Nor is it another one when it is back.
    relays[1].set(PASSES);
    await_live(&subsystem, 2);
    namespace.read(0, &mut [0; 512]).unwrap();
    assert_eq!(subsystem.open(Nsid(2)).unwrap().head(), namespace.head());
    subsystem.disconnect();
    stop(targets);
}

// @test paths.library
#[test]
fn a_path_that_is_away_when_a_namespace_is_opened_is_used_once_it_is_back() {
    let (target, addresses) = target();
    let relays = addresses.map(Relay::new);
    let patient = |relay: &Relay| with(relay, |options| options.fast_io_fail_tmo = Some(Duration::from_secs(8)));
    for away in [1, 0] {
        let subsystem = Subsystem::connect(&relays.each_ref().map(patient)).unwrap();
        relays[away].set(CLOSED);
        await_live(&subsystem, 1);
        let namespace = subsystem.namespace(Nsid(1)).unwrap();
        namespace.write(0, &[3; 512], false).unwrap();
        relays[away].set(PASSES);
        await_live(&subsystem, 2);
        relays[1 - away].set(CLOSED);
        let mut block = [0; 512];
        namespace.read(0, &mut block).unwrap();
        assert_eq!(block, [3; 512]);
        relays[1 - away].set(PASSES);
        subsystem.disconnect();
    }
    target.stop(Duration::from_secs(5));
}

#[test]
fn a_path_that_is_added_while_a_queue_is_made_is_used_by_it() {
    let (target, addresses) = target();
    for round in 0..24 {
        let subsystem = Subsystem::connect(&[options(addresses[0])]).unwrap();
        let namespace = subsystem.namespace(Nsid(1)).unwrap();
        let mut queue = std::thread::scope(|scope| {
            let added = scope.spawn(|| subsystem.add(&options(addresses[1])).unwrap());
            // At another moment of its way each time.
            std::thread::sleep(Duration::from_micros(round * 250));
            let queue = PathQueue::<Vec<u8>>::new(&namespace).unwrap();
            added.join().unwrap();
            queue
        });
        assert!(subsystem.remove(subsystem.paths()[0].id));
        let sqe = BlockRange::new(0, 1).encode(nvm::READ, Nsid(1));
        queue.submit(sqe, Data::ToHost(vec![0; 512]), 7).unwrap();
        let done = queue.wait(Some(Instant::now() + Duration::from_secs(5))).unwrap();
        assert!(done.is_some_and(|done| done.result.is_ok()), "round {round}: {queue:?}");
        drop(queue);
        subsystem.disconnect();
    }
    target.stop(Duration::from_secs(5));
}

#[test]
fn of_paths_that_go_at_the_same_time_one_stays() {
    let (target, addresses) = target();
    for round in 0..12 {
        let subsystem = Subsystem::connect(&addresses.map(options)).unwrap();
        let namespace = subsystem.namespace(Nsid(1)).unwrap();
        let [first, second] = [0, 1].map(|number| subsystem.paths()[number].id);
        // One is taken away, and the other one, too, or given up.
        let gone = std::thread::scope(|scope| {
            let removed = scope.spawn(|| subsystem.remove(first));
            let other = if round % 2 == 0 { subsystem.remove(second) } else { subsystem.give_up(second) };
            [removed.join().unwrap(), other]
        });
        assert_eq!(gone.iter().filter(|gone| **gone).count(), 1, "{gone:?}");
        let left = subsystem.paths();
        assert_eq!(left.iter().map(|path| path.id).collect::<Vec<_>>(), [if gone[0] { second } else { first }]);
        // It was taken away already: it is not given up again, nor does the other one go for it.
        let away = if gone[0] { first } else { second };
        assert!(!subsystem.give_up(away) && !subsystem.remove(away) && subsystem.paths().len() == 1);
        namespace.write(0, &[1; 512], false).unwrap();
        subsystem.disconnect();
    }
    target.stop(Duration::from_secs(5));
}

#[test]
fn paths_that_were_switched_off_are_used_again_when_the_last_one_is_given_up() {
    let (target, addresses) = target();
    let relays = addresses.map(Relay::new);
    let impatient = |relay: &Relay| with(relay, |options| options.ctrl_loss_tmo = Some(Duration::from_millis(300)));
    let subsystem = Subsystem::connect(&relays.each_ref().map(impatient)).unwrap();
    let namespace = subsystem.namespace(Nsid(1)).unwrap();
    let [first, second] = [0, 1].map(|number| subsystem.paths()[number].id);
    assert!(subsystem.set_enabled(second, false));
    let events = subsystem.paths()[0].controller.events();
    relays[0].set(CLOSED);
    while !matches!(events.recv_timeout(Duration::from_secs(20)).unwrap(), Event::GaveUp(_)) {}
    assert!(subsystem.give_up(first));
    assert!(subsystem.paths().len() == 1 && subsystem.paths()[0].is_enabled, "{:?}", subsystem.paths());
    namespace.write(0, &[1; 512], false).unwrap();
    subsystem.disconnect();
    target.stop(Duration::from_secs(5));
}

#[test]
fn a_target_that_stands_still_as_a_whole_loses_no_path() {
    let (target, addresses) = target();
    let relays = addresses.map(Relay::new);
    // Longer than a probe, shorter than Keep Alive.
    let steady = |relay: &Relay| with(relay, |options| options.keep_alive_ms = 30_000);
    let subsystem = Subsystem::connect(&relays.each_ref().map(steady)).unwrap();
    subsystem.set_policy(PathPolicy::RoundRobin);
    let events = subsystem.paths().iter().map(|path| path.controller.events()).collect::<Vec<_>>();
    let load = Load::start(&subsystem.namespace(Nsid(1)).unwrap());
    load.goes_on();
    relays.iter().for_each(|relay| relay.set(SILENT));
    std::thread::sleep(Duration::from_secs(4));
    relays.iter().for_each(Relay::go_on);
    load.goes_on();
    let longest = load.end();
    assert!(longest >= Duration::from_secs(3), "it stood still: {longest:?}");
    for event in events.iter().flat_map(|events| events.try_iter()) {
        assert!(!matches!(event, Event::ConnectionLost(_)), "{event}");
    }
    subsystem.disconnect();
    target.stop(Duration::from_secs(5));
}

#[test]
fn a_service_that_lets_hosts_in_and_ends_them_is_asked_less_and_less() {
    let (target, addresses) = target();
    let relay = Relay::new(addresses[0]);
    let slow = with(&relay, |options| options.reconnect_delay_ms = 10_000);
    let subsystem = Subsystem::connect(&[slow]).unwrap();
    let controller = subsystem.controller();
    let events = controller.events();
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        if controller.state().name() == "live" {
            relay.set(PASSES);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let reconnects = events.try_iter().filter(|event| matches!(event, Event::Reconnected)).count();
    assert!((2..=8).contains(&reconnects), "{reconnects}");
    subsystem.disconnect();
    target.stop(Duration::from_secs(5));
}

/// As `await_live`, for a task: others go on.
async fn until_live(subsystem: &Subsystem, count: usize) {
    let live = || subsystem.paths().iter().filter(|path| path.controller.state().name() == "live").count();
    let end = Instant::now() + Duration::from_secs(20);
    while live() != count {
        assert!(Instant::now() < end, "{} of {count} are live", live());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

// @test paths.async
#[test]
fn tasks_go_on_over_another_path_when_one_is_cut() {
    let (target, addresses) = target();
    let relays = addresses.map(Relay::new);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let ends = std::sync::Arc::new(AtomicBool::new(false));
    runtime.block_on(async {
        let subsystem = Subsystem::connect_async(&relays.each_ref().map(Relay::options)).await.unwrap();
        subsystem.set_policy(PathPolicy::RoundRobin);
        let namespace = AsyncNamespace::open_paths(&subsystem, Nsid(1)).await.unwrap();
        assert_eq!(namespace.paths().unwrap().blocks(), namespace.info().blocks());
        // More tasks than a queue has room for.
        let tasks: Vec<_> = (0..200_u64)
            .map(|task| {
                let (namespace, ends) = (namespace.clone(), std::sync::Arc::clone(&ends));
                tokio::spawn(async move {
                    let bytes = if task == 0 { 1 << 20 } else { 512 };
                    let lba = if task == 0 { 16_384 } else { task };
                    let mut buffer = vec![0; bytes];
                    let mut rounds = 0_u64;
                    while !ends.load(Ordering::Relaxed) {
                        rounds += 1;
                        let data = (rounds * 1000 + task).to_le_bytes().repeat(bytes / 8);
                        buffer.copy_from_slice(&data);
                        buffer = namespace.write(lba, buffer, false).await.unwrap();
                        buffer.fill(0);
                        buffer = namespace.read(lba, buffer).await.unwrap();
                        assert!(buffer == data, "task {task}, round {rounds}");
                    }
                    rounds
                })
            })
            .collect();
        for number in [0, 1, 0] {
            tokio::time::sleep(Duration::from_millis(300)).await;
            relays[number].set(CLOSED);
            until_live(&subsystem, 1).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            relays[number].set(PASSES);
            until_live(&subsystem, 2).await;
        }
        ends.store(true, Ordering::Relaxed);
        for task in tasks {
            assert!(task.await.unwrap() > 0);
        }
        assert!(subsystem.paths().iter().all(|path| path.completed > 100), "{:?}", subsystem.paths());
        namespace.flush().await.unwrap();
        namespace.write_zeroes(0, 100_000.min(namespace.info().blocks()), true).await.unwrap();
        assert_eq!(namespace.read(7, vec![1; 512]).await.unwrap(), [0; 512]);
        assert!(namespace.compare(7, vec![0; 512]).await.unwrap().0);
        subsystem.disconnect();
        let error = namespace.read(0, vec![0; 512]).await.unwrap_err();
        assert!(error.reason.is_connection() && error.buffer.is_some(), "{}", error.reason);
    });
    target.stop(Duration::from_secs(5));
}
