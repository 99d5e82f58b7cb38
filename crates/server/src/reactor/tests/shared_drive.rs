//! A drive that functions share: what their hosts get of a slow device, over one reactor, in
//! virtual time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use ebof_backend::{Device, Geometry, Io, Remote, Request, Submitted};
use ebof_manage::config::{Namespace, Subsystem};
use ebof_nvme::{Cid, Nqn, Sgl, Sqe, Status, opcode};
use ebof_shares::{Figures, Share};

use super::Rig;
use super::config::{NQN, one_subsystem};
use super::hosts::{Host, Load, capsule};
use crate::drives::device::DeviceTable;
use crate::shared::mailbox::Message;
use crate::shared::shares::Configured;

/// A request, where it came from, and where its data are.
type Waiting = (Remote, Arc<dyn Device>, Request);

/// A device that does so many requests per turn, in the order in which they come.
#[derive(Debug, Default)]
struct Slow {
    queue: Mutex<VecDeque<Waiting>>,
}

/// A namespace on it.
#[derive(Debug)]
struct OfSlow {
    below: Arc<dyn Device>,
    slow: Arc<Slow>,
}

impl Device for OfSlow {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        let Some(remote) = io.remote() else { return Submitted::Busy(request) };
        self.slow.queue.lock().unwrap().push_back((remote, Arc::clone(&self.below), request));
        Submitted::Pending
    }

    fn describe(&self) -> String {
        "a slow device".to_owned()
    }
}

impl Slow {
    fn len(&self) -> usize {
        self.queue.lock().unwrap().len()
    }

    fn serve(&self, count: usize) {
        let mut io = Io::new(4).unwrap();
        let mut queue = self.queue.lock().unwrap();
        for _ in 0..count {
            let Some((remote, below, request)) = queue.pop_front() else { break };
            let Submitted::Done(completion) = below.submit(&mut io, request) else { panic!("memory is quick") };
            remote.deliver(completion);
        }
    }
}

/// Requests that the device does in a turn, and how long that is.
const PER_TURN: usize = 8;
const TURN_US: u64 = 100;

/// A drive with a host on each of its functions.
struct Drive {
    rig: Rig,
    slow: Arc<Slow>,
    configured: Vec<Configured>,
    hosts: Vec<Option<Host>>,
}

impl Drive {
    fn new(loads: &[(Load, Share)]) -> Self {
        let drive = Nqn::parse(NQN).unwrap();
        let mut config = one_subsystem(["mem:64Mi"]);
        let mut configured = Vec::new();
        for (number, (_, share)) in (1..).zip(loads) {
            let nqn = Nqn::parse(&format!("{NQN}:vf{number}")).unwrap();
            let mut subsystem = Subsystem { allow_any_host: true, ..Subsystem::new(nqn.clone()) };
            subsystem.ports.push(config.ports[0].name.clone());
            subsystem.namespaces.push(Namespace::new(1, "mem:64Mi".parse().unwrap()));
            config.subsystems.push(subsystem);
            configured.push(Configured { subsystem: nqn, drive: drive.clone(), number, share: *share });
        }
        let slow = Arc::new(Slow::default());
        let of_devices = Arc::clone(&slow);
        let mut rig =
            Rig::with_devices(&config, move |below| Arc::new(OfSlow { below, slow: Arc::clone(&of_devices) }));
        rig.reactor.shared.shares.configure(&configured, rig.now_us);
        let mut hosts = Vec::new();
        for (function, (load, _)) in configured.iter().zip(loads) {
            rig.subsystem = function.subsystem.to_string();
            hosts.push(Some(rig.host(*load)));
        }
        Self { rig, slow, configured, hosts }
    }

    fn run(&mut self, turns: u64) {
        for _ in 0..turns {
            self.hosts.iter_mut().flatten().for_each(Host::go_on);
            self.rig.turn(TURN_US);
            self.slow.serve(PER_TURN);
        }
    }

    /// What each host gets done in so many turns.
    fn measure(&mut self, turns: u64) -> Vec<u64> {
        let done = |hosts: &[Option<Host>]| -> Vec<u64> {
            hosts.iter().map(|host| host.as_ref().map_or(0, |host| host.count.commands)).collect()
        };
        let before = done(&self.hosts);
        self.run(turns);
        done(&self.hosts).iter().zip(before).map(|(now, before)| now - before).collect()
    }

    fn set_share(&mut self, at: usize, share: Share) {
        self.configured[at].share = share;
        self.rig.reactor.shared.shares.configure(&self.configured, self.rig.now_us);
    }

    fn figures(&self) -> Vec<Figures> {
        self.rig.reactor.shared.shares.figures(self.rig.now_us).into_iter().map(|of| of.figures).collect()
    }

    /// No requests any more: everything is answered, and nothing is left at the device.
    fn end(&mut self) {
        for _ in 0..4000 {
            self.hosts.iter_mut().flatten().for_each(|host| _ = host.take());
            self.rig.turn(TURN_US);
            self.slow.serve(PER_TURN);
        }
        for host in self.hosts.iter().flatten() {
            assert_eq!((host.outstanding, host.count.failed), (0, 0));
        }
        for figures in self.figures() {
            assert_eq!((figures.waiting, figures.at_device), (0, 0), "{figures:?}");
        }
        assert!(!self.rig.reactor.connections.local_shares.has_work());
    }
}

fn reads(depth: usize) -> (Load, Share) {
    (Load::reads(4096, depth), Share::default())
}

/// `percent` is the spread relative to the mean.
fn assert_equal(values: &[u64], percent: u64) {
    let mean = values.iter().sum::<u64>() / values.len() as u64;
    let spread = values.iter().max().unwrap() - values.iter().min().unwrap();
    assert!(spread * 100 <= mean * percent, "{values:?}");
}

#[test]
fn five_functions_get_the_same_whatever_their_depths() {
    let mut drive = Drive::new(&[reads(120), reads(32), reads(32), reads(64), reads(32)]);
    drive.run(2000);
    let got = drive.measure(5000);
    assert_equal(&got, 1);
    assert!(got.iter().sum::<u64>() * 100 >= 5000 * PER_TURN as u64 * 98, "{got:?}");
    let figures = drive.figures();
    assert!(figures.iter().all(|of| of.waited_us > 0 && of.throttled_us == 0), "{figures:?}");
    drive.end();
}

#[test]
fn weights_and_limits_take_effect_while_everything_runs() {
    let mut drive = Drive::new(&[reads(120), reads(120), reads(120)]);
    drive.run(1000);
    drive.set_share(0, Share { weight: 4, ..Share::default() });
    drive.run(1000);
    let got = drive.measure(6000);
    assert_equal(&got[1..], 2);
    assert_equal(&[got[0], 4 * got[1]], 3);
    // 80,000 are done in a second.
    drive.set_share(0, Share { iops: Some(5_000), ..Share::default() });
    drive.run(1000);
    let got = drive.measure(10_000);
    assert_equal(&[got[0], 5_000], 5);
    assert_equal(&[got[1], got[2], 37_500], 2);
    assert!(drive.figures()[0].throttled_us > 800_000);
    drive.set_share(0, Share { bytes_per_second: Some(10 << 20), ..Share::default() });
    drive.run(1000);
    assert_equal(&[drive.measure(10_000)[0], (10 << 20) / 4096], 5);
    drive.set_share(0, Share { minimum_iops: Some(40_000), weight: 1, ..Share::default() });
    drive.run(1000);
    let got = drive.measure(10_000);
    assert_equal(&[got[0], 40_000], 3);
    drive.set_share(0, Share::default());
    drive.end();
}

#[test]
fn a_limit_that_is_alone_is_kept_by_the_reactors_clock() {
    let share = Share { iops: Some(1000), ..Share::default() };
    let mut drive = Drive::new(&[(Load::reads(4096, 16), share)]);
    drive.run(1000);
    assert_equal(&[drive.measure(10_000)[0], 1000], 5);
    // Nothing else happens: the reactor says when it wants to look.
    for _ in 0..20 {
        drive.rig.turn(1);
    }
    let due_us = drive.rig.reactor.connections.local_shares.due_us().unwrap();
    assert!((1..=1000).contains(&due_us.saturating_sub(drive.rig.now_us)), "{due_us} at {}", drive.rig.now_us);
    drive.set_share(0, Share { iops: Some(100_000), ..Share::default() });
    drive.run(10);
    let got = drive.measure(100);
    assert!(got[0] > 300, "{got:?} {:?}", drive.figures());
    drive.set_share(0, Share::default());
    drive.end();
}

#[test]
fn a_host_that_leaves_takes_what_waits_with_it() {
    let mut drive = Drive::new(&[reads(120), reads(120), (Load::writes_by_r2t(65_536, 40), Share::default())]);
    drive.run(1000);
    assert!(drive.figures().iter().all(|of| of.waiting > 0), "{:?}", drive.figures());
    drive.hosts[0] = None;
    drive.hosts[2] = None;
    drive.run(1000);
    let figures = drive.figures();
    assert_eq!([figures[0].waiting, figures[0].at_device, figures[2].waiting, figures[2].at_device], [0; 4]);
    let got = drive.measure(1000);
    assert!(got[1] * 100 >= 1000 * PER_TURN as u64 * 98, "the other one has all of it: {got:?}");
    // It comes back, and has no credit.
    drive.rig.subsystem = drive.configured[0].subsystem.to_string();
    drive.hosts[0] = Some(drive.rig.host(Load::reads(4096, 120)));
    drive.run(100);
    let got = drive.measure(3000);
    assert_equal(&got[..2], 2);
    drive.end();
}

#[test]
fn a_connection_whose_commands_wait_is_not_read() {
    let mut drive = Drive::new(&[reads(120), reads(120)]);
    drive.run(1000);
    let index = drive.hosts[0].as_ref().unwrap().index();
    let commands = &drive.rig.reactor.connection_at(index).unwrap().commands;
    assert!(commands.execution.slots.len() < 100, "{} of 120", commands.execution.slots.len());
    assert!(drive.hosts[0].as_ref().unwrap().outstanding == 120);
    drive.end();
}

#[test]
fn a_command_that_waits_can_be_aborted() {
    let mut drive = Drive::new(&[reads(120), reads(120)]);
    drive.run(1000);
    // Nothing is done from now on.
    for host in drive.hosts.iter_mut().flatten() {
        host.take();
    }
    for _ in 0..10 {
        drive.rig.turn(TURN_US);
    }
    let index = drive.hosts[1].as_ref().unwrap().index();
    let commands = &drive.rig.reactor.connection_at(index).unwrap().commands;
    let held = commands
        .execution
        .slots
        .iter()
        .find(|(_, command)| command.phase == crate::commands::command::CommandPhase::Held);
    let cid: Cid = held.unwrap().1.cid;
    // Abort: SQID and CID.
    let mut abort = Sqe::new(opcode::admin::ABORT);
    abort.cdw10 = (u32::from(cid.0) << 16 | 1).into();
    let mut admin = drive.rig.admin.remove(1);
    let answer = admin.call(&mut drive.rig, &capsule(abort, 9, Sgl::None, &[]));
    assert_eq!(answer.dw0.get() & 1, 0, "aborted");
    let host = drive.hosts[1].as_mut().unwrap();
    let failed = host.count.failed;
    for _ in 0..10 {
        drive.rig.turn(TURN_US);
        host.take();
    }
    assert_eq!((host.count.failed, host.last), (failed + 1, Status::ABORT_REQUESTED));
    host.count.failed = 0;
    drive.end();
    assert_eq!(drive.slow.len(), 0);
}

#[test]
fn one_function_alone_asks_nobody_until_another_one_comes() {
    let mut drive = Drive::new(&[reads(64), (Load { depth: 0, ..Load::reads(4096, 1) }, Share::default())]);
    drive.run(1000);
    let admitted = drive.figures()[0].admitted;
    assert!(admitted < 70, "{admitted} asked");
    drive.hosts[1].as_mut().unwrap().load.depth = 64;
    drive.run(2000);
    assert_equal(&drive.measure(3000), 2);
    // The other one ends: after a while nobody asks again.
    drive.hosts[1].as_mut().unwrap().load.depth = 0;
    drive.run(12_000);
    let before = drive.figures()[0].admitted;
    drive.run(1000);
    assert_eq!(drive.figures()[0].admitted, before);
    drive.end();
}

#[test]
fn a_drive_without_functions_has_no_scheduler() {
    let mut drive = Drive::new(&[reads(64), reads(64)]);
    drive.run(500);
    drive.rig.reactor.shared.shares.configure(&[], 0);
    drive.run(500);
    assert!(drive.figures().is_empty());
    let got = drive.measure(1000);
    assert!(got.iter().sum::<u64>() * 100 >= 1000 * PER_TURN as u64 * 98, "{got:?}");
    drive.end();
}

#[test]
fn what_waits_for_its_share_when_its_namespace_goes_gives_its_buffer_back() {
    let mut drive = Drive::new(&[reads(32), reads(32)]);
    drive.run(100);
    assert!(drive.figures().iter().all(|of| of.waiting > 0), "{:?}", drive.figures());
    drive.rig.reactor.mailbox.post(Message::Devices(Arc::new(DeviceTable::new([]))));
    drive.hosts.iter_mut().flatten().for_each(|host| host.load.depth = 0);
    drive.run(1000);
    for host in drive.hosts.iter().flatten() {
        assert!(host.outstanding == 0 && host.count.failed > 0, "those that waited find no namespace");
    }
    assert!(drive.figures().iter().all(|of| (of.waiting, of.at_device) == (0, 0)), "{:?}", drive.figures());
    assert_eq!(drive.rig.reactor.connections.pool.outstanding_bytes(), 0);
}
