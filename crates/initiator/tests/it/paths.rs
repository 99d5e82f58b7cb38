//! Several paths to peers that do not behave: of other subsystems and hosts, with access that
//! changes without end or makes no sense, and with resets of lost controllers that are none.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::time::{Duration, Instant};

use crate::peer::{Action, BLOCK, Ids, Peer};
use ebof_initiator::{AddPathError, Data, Options, PathQueue, State, Subsystem};
use ebof_nvme::identify::IdentifyController;
use ebof_nvme::identify::field::{cmic, nmic};
use ebof_nvme::io::BlockRange;
use ebof_nvme::log::{AnaState, AnaWriter, CrossControllerResetEntry, Lid, cross_controller_reset_log};
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nqn, Nsid, Sqe, Status};

/// The event of a change of the access, with its log page.
const ACCESS_CHANGED: u32 = 0x000c_0302;
/// Keep Alive Timeout and Command Quiesce Time.
const KATO_MS: u32 = 1000;
const CQT_MS: u16 = 500;

/// A controller of the subsystem whose namespace others may have, too.
fn peer(id: u16) -> Peer {
    let peer = Peer::new();
    {
        let mut state = peer.state();
        state.id = id;
        state.nmic = nmic::SHARED;
        state.ids.insert(1, Ids { nguid: [9; 16], ..Ids::default() });
        state.on_identify = Box::new(|data| data.cmic = cmic::MULTIPLE_CONTROLLERS);
    }
    peer
}

fn options(peer: &Peer) -> Options {
    let mut options = peer.options();
    options.keep_alive_ms = KATO_MS;
    options
}

// @test hostile.paths
#[test]
fn what_is_no_path_is_refused_with_both_values_and_changes_nothing() {
    let first = peer(1);
    let subsystem = Subsystem::connect(&[options(&first)]).unwrap();
    let namespace = subsystem.namespace(Nsid(1)).unwrap();
    let other_host = |options: &mut Options| options.set_host_nqn(Nqn::parse("nqn.2014-08.org.example:h2").unwrap());
    let as_it_is = |_: &mut Options| ();
    let nothing = |_: &Peer| ();
    let identify = |peer: &Peer, change: fn(&mut IdentifyController)| peer.state().on_identify = Box::new(change);
    type Case<'a> = (&'a str, &'a dyn Fn(&Peer), &'a dyn Fn(&mut Options), [&'a str; 2]);
    let cases: [Case<'_>; 9] = [
        ("host NQN", &nothing, &other_host, ["example:host", "example:h2"]),
        (
            "serial number",
            &|it| identify(it, |data| data.sn = *b"another             "),
            &as_it_is,
            ["\"\"", "another"],
        ),
        ("model number", &|it| identify(it, |data| data.mn[0] = b'm'), &as_it_is, ["\"\"", "\"m"]),
        ("identifier", &|it| it.state().id = 1, &as_it_is, ["is \"1\"", "1, too"]),
        ("size in blocks", &|it| it.state().disk.truncate(100 * BLOCK), &as_it_is, ["4096", "100"]),
        ("block size", &|it| it.state().lbads = 12, &as_it_is, ["512", "4096"]),
        ("protection information", &|it| it.state().protected = true, &as_it_is, ["None", "Type1"]),
        ("identifiers", &|it| it.state().ids.get_mut(&1).unwrap().nguid = [8; 16], &as_it_is, ["0909", "0808"]),
        ("NMIC", &|it| it.state().nmic = 0, &as_it_is, ["private", "its controller"]),
    ];
    for (what, change, choose, values) in cases {
        let second = peer(2);
        change(&second);
        let mut options = options(&second);
        choose(&mut options);
        let error = subsystem.add(&options).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("not a path") && text.contains(what), "{what}: {text}");
        assert!(values.iter().all(|value| text.contains(value)), "{what}: {text}");
        let is_told = matches!(
            error,
            AddPathError::Names { .. }
                | AddPathError::Controller { .. }
                | AddPathError::Namespace { .. }
                | AddPathError::Private { .. }
        );
        assert!(is_told, "{error:?}");
        assert_eq!(subsystem.paths().len(), 1, "{what}");
        namespace.write(0, &[3; BLOCK], false).unwrap();
        let mut back = [0; BLOCK];
        namespace.read(0, &mut back).unwrap();
        assert_eq!((back, namespace.blocks(), namespace.block_bytes()), ([3; BLOCK], 4096, 512), "{what}");
    }
    let last = peer(3);
    subsystem.add(&options(&last)).unwrap_or_else(|error| panic!("it is a path: {error}"));
    subsystem.disconnect();
}

/// A controller with the log page of the access.
fn reporting(id: u16, page: Vec<u8>) -> Peer {
    let peer = peer(id);
    {
        let mut state = peer.state();
        state.on_identify = Box::new(|data| {
            data.cmic = cmic::MULTIPLE_CONTROLLERS | cmic::ANA;
            data.anacap = 0x1f;
            data.anagrpmax = 4.into();
            data.nanagrpid = 4.into();
        });
        state.pages.insert(Lid::ANA.0, page);
    }
    peer
}

fn access(groups: &[(u32, AnaState, &[u32])]) -> Vec<u8> {
    let mut log = AnaWriter::new(1);
    for (group, state, nsids) in groups {
        log.push(*group, 1, *state, nsids.iter().copied().map(Nsid));
    }
    log.finish()
}

// @test hostile.paths
#[test]
fn access_that_changes_without_end_is_read_so_often_and_no_more() {
    let optimized = access(&[(1, AnaState::OPTIMIZED, &[1])]);
    let (first, second) = (reporting(1, optimized.clone()), reporting(2, optimized));
    first.state().endless_event = Some(ACCESS_CHANGED);
    let subsystem = Subsystem::connect(&[options(&first), options(&second)]).unwrap();
    let namespace = subsystem.namespace(Nsid(1)).unwrap();
    let (began, mut writes, mut longest) = (Instant::now(), 0, Duration::ZERO);
    while began.elapsed() < Duration::from_secs(3) {
        let of_one = Instant::now();
        namespace.write(0, &[1; BLOCK], false).unwrap();
        longest = longest.max(of_one.elapsed());
        writes += 1;
    }
    let read = first.state().pages_read[&Lid::ANA.0];
    // At most 32 events a second are asked for; each has the page read twice, to clear it and
    // whole.
    assert!((10..=4 * 64 + 8).contains(&read), "{read}");
    assert!(writes > 100 && longest < Duration::from_secs(1), "{writes} writes, the longest {longest:?}");
    assert!(first.state().keep_alives >= 2 && second.state().pages_read[&Lid::ANA.0] < 10);
    assert!(subsystem.paths().iter().all(|path| path.controller.state() == State::Live));
    subsystem.disconnect();
}

// @test hostile.paths
#[test]
fn access_that_makes_no_sense_loses_no_path() {
    let optimized = || access(&[(1, AnaState::OPTIMIZED, &[1])]);
    let mut endless = optimized();
    endless[8..10].fill(0xff); // groups
    let mut large = optimized();
    large[20..24].fill(0xff); // namespaces
    for (text, page) in [
        ("groups 0 and FFFFFFFFh", access(&[(0, AnaState::OPTIMIZED, &[1]), (u32::MAX, AnaState::CHANGE, &[2])])),
        ("a state that there is not", access(&[(1, AnaState(7), &[1])])),
        ("two states", access(&[(1, AnaState::OPTIMIZED, &[1]), (2, AnaState::INACCESSIBLE, &[1])])),
        ("a namespace that there is not", access(&[(1, AnaState::PERSISTENT_LOSS, &[0, 77, u32::MAX])])),
        ("fewer groups than it says", endless),
        ("fewer namespaces than it says", large),
        ("no group", access(&[])),
        ("nothing", Vec::new()),
    ] {
        // Both say so: nothing better is there.
        let (first, second) = (reporting(1, page.clone()), reporting(2, page));
        let subsystem = Subsystem::connect(&[options(&first), options(&second)]).unwrap();
        let namespace = subsystem.namespace(Nsid(1)).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        for block in 0..8 {
            namespace.write(block, &[5; BLOCK], false).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        assert!(first.state().pages_read[&Lid::ANA.0] < 10, "{text}");
        subsystem.disconnect();
    }
}

// @test paths.fate
#[test]
fn a_queue_that_is_deleted_says_nothing_of_its_commands() {
    let (first, second) = (peer(1), peer(2));
    let subsystem = Subsystem::connect(&[options(&first), options(&second)]).unwrap();
    let namespace = subsystem.namespace(Nsid(1)).unwrap();
    let mut queue: PathQueue<Vec<u8>> = PathQueue::new(&namespace).unwrap();
    // As a target does that is about to close the connection.
    first.state().closed = true;
    first.state().on_io = Box::new(|_| Action::Fail(Status::ABORTED_SQ_DELETION));
    let write = BlockRange::new(0, 1).encode(nvm::WRITE, Nsid(1));
    queue.submit(write, Data::FromHost(vec![4; BLOCK]), 1).unwrap();
    // What reads what it may have overwritten is not repeated.
    queue.submit(Sqe::new(nvm::COPY).with_nsid(Nsid(1)), Data::None, 2).unwrap();
    queue.flush().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let failed = queue.wait(Some(deadline)).unwrap().unwrap();
    assert_eq!(failed.user, 2);
    assert!(failed.result.unwrap().status().is(Status::ABORTED_SQ_DELETION));
    first.hang_up();
    let written = queue.wait(Some(deadline)).unwrap().unwrap();
    assert_eq!((written.user, written.result.unwrap().status()), (1, Status::SUCCESS));
    assert_eq!((first.state().disk[0], second.state().disk[0]), (0, 4));
    subsystem.disconnect();
}

/// How long a write took whose path fell silent, and how often the other controller was asked for
/// a reset, which it answers so, and with this log page.
fn write_over_the_other(reset: (Status, u64), entries: &[(u16, u8, u8)]) -> (Duration, usize) {
    let (first, second) = (peer(1), peer(2));
    for peer in [&first, &second] {
        peer.state().on_identify = Box::new(|data| {
            data.cmic = cmic::MULTIPLE_CONTROLLERS;
            data.ccrl = 4;
            data.cqt = CQT_MS.into();
            (data.ciu, data.cirn) = (5, 77.into());
        });
    }
    let entries = entries.iter().map(|&(id, ciu, ccrs)| {
        let acid = CrossControllerResetEntry::NO_ALTERNATE.0.into();
        CrossControllerResetEntry { icid: id.into(), ciu, rsvd3: 0, acid, ccrs, ccrf: 3 }
    });
    second.state().pages.insert(Lid::CROSS_CONTROLLER_RESET.0, cross_controller_reset_log(entries));
    second.state().reset = reset;
    let subsystem = Subsystem::connect(&[options(&first), options(&second)]).unwrap();
    let namespace = subsystem.namespace(Nsid(1)).unwrap();
    namespace.write(0, &[1; BLOCK], false).unwrap();
    assert_eq!((first.state().disk[0], second.state().disk[0]), (1, 0), "the first path is the one to use");
    {
        let mut state = first.state();
        state.on_io = Box::new(|_| Action::Ignore);
        state.on_keep_alive = Action::Ignore;
        state.closed = true;
    }
    let began = Instant::now();
    namespace.write(0, &[2; BLOCK], false).unwrap();
    let took = began.elapsed();
    assert_eq!((first.state().disk[0], second.state().disk[0]), (1, 2));
    // Nobody waits for what is over.
    namespace.write(1, &[3; BLOCK], false).unwrap();
    let mut back = [0; BLOCK];
    namespace.read(0, &mut back).unwrap();
    assert_eq!((back, second.state().disk[BLOCK]), ([2; BLOCK], 3));
    subsystem.disconnect();
    (took, second.state().resets)
}

// @test hostile.paths
#[test]
fn a_reset_that_is_none_is_not_taken_for_one_and_waited_for_no_longer_than_the_quiesce_time() {
    const IN_PROGRESS: u8 = 0;
    const SUCCESSFUL: u8 = 1;
    const FAILED: u8 = 2;
    let limit = Status::CROSS_CONTROLLER_RESET_LIMIT_EXCEEDED;
    type Case<'a> = (&'a str, (Status, u64), &'a [(u16, u8, u8)], bool);
    let cases: [Case<'_>; 11] = [
        ("at once", (Status::SUCCESS, 1), &[], true),
        ("the page says so", (Status::SUCCESS, 0), &[(1, 5, SUCCESSFUL)], true),
        ("the last entry says so", (Status::SUCCESS, 0), &[(1, 5, IN_PROGRESS), (1, 5, SUCCESSFUL)], true),
        ("it never ends", (Status::SUCCESS, 0), &[(1, 5, IN_PROGRESS)], false),
        ("no page says what became of it", (Status::SUCCESS, 0), &[], false),
        ("another controller's", (Status::SUCCESS, 0), &[(2, 5, SUCCESSFUL), (3, 5, SUCCESSFUL)], false),
        ("another instance's", (Status::SUCCESS, 0), &[(1, 4, SUCCESSFUL)], false),
        ("a state that there is not", (Status::SUCCESS, 0), &[(1, 5, 9)], false),
        ("it failed", (Status::SUCCESS, 0), &[(1, 5, FAILED)], false),
        ("never now", (limit, 0), &[(1, 5, SUCCESSFUL)], false),
        ("refused", (Status::INVALID_FIELD.dnr(), 0), &[(1, 5, SUCCESSFUL)], false),
    ];
    std::thread::scope(|scope| {
        for (text, reset, entries, is_one) in cases {
            scope.spawn(move || {
                let (took, resets) = write_over_the_other(reset, entries);
                // The loss is noticed after half of KATO at the earliest, and then it is waited.
                let fence = Duration::from_millis(u64::from(KATO_MS) + u64::from(CQT_MS));
                if !is_one {
                    assert!(took > fence, "{text}: {took:?}");
                }
                assert!(took < fence + Duration::from_secs(5), "{text}: {took:?}");
                assert!((1..=16).contains(&resets), "{text}: {resets}");
            });
        }
    });
}
