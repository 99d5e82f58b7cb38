//! What is lost and gained, and when: with an actor whose queues are the test's.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ebof_backend::Memory;
use ebof_clock::Clock;
use ebof_drive::{Answer, Attachments, Identity, NewNamespace, Placement, PortNames, Refusal, Settings};
use ebof_medium::{Options, Stepper};
use ebof_nvme::virtualization::{ResourceType, VirtualizationAction, VirtualizationManagement};
use ebof_nvme::{ControllerId, HostId, Nqn, Status};

use super::*;
use crate::drives::SubmittedRequest;
use crate::drives::monitor::Observed;
use crate::drives::start::{Plan, start, start_stepped};
use crate::drives::target::DriveCallbacks;

type Reply = Result<DriveReply, Refusal>;

type Drained = (Vec<(Nsid, Option<FunctionId>)>, DrainToken);

/// A drive of three functions.
fn plan(clock: Clock) -> Plan {
    let backing = Arc::new(Memory::new(ebof_medium::medium_bytes(16 << 20).unwrap(), 512, false));
    let identity = Identity { serial: "S1".to_owned(), model: "ebof".to_owned(), uuid: [7; 16] };
    Plan {
        name: "d0".to_owned(),
        backing,
        options: Options { create: Some(16 << 20), zeroed: true, clock: clock.clone(), ..Options::default() },
        settings: Settings { functions: 3, ..Settings::default() },
        identity,
        sensor: None,
        clock,
    }
}

struct Bench {
    actor: Arc<DriveActor>,
    /// What queues have to drain.
    drains: Receiver<Drained>,
}

impl Bench {
    fn new() -> Self {
        let actor = start(plan(Clock::system())).unwrap();
        let (sender, drains) = channel();
        actor.join(DriveCallbacks {
            publish: Box::new(|_, _, _| {}),
            send_event: Box::new(|_, _| {}),
            drain: Box::new(move |lost, token| sender.send((lost.to_vec(), token.clone())).unwrap()),
            cancel: Box::new(|_| panic!("nothing takes that long")),
            report: Box::new(|_| ()),
            observe: Box::new(|_| Observed::default()),
        });
        Self { actor, drains }
    }

    fn submit(&self, request: Request) -> Receiver<Reply> {
        let (sender, receiver) = channel();
        self.actor.submit(request, Origin::box_(), move |reply| {
            let _gone = sender.send(reply);
        });
        receiver
    }

    fn ask(&self, request: Request) -> Answer {
        self.submit(request).recv_timeout(LIMIT).unwrap().unwrap().answer
    }

    /// What was submitted is done, as far as it does not wait.
    fn settle(&self) {
        let (sender, receiver) = channel();
        self.actor.after_all(move || sender.send(()).unwrap());
        receiver.recv_timeout(LIMIT).unwrap();
    }

    fn shown_at(&self) -> BTreeSet<u16> {
        self.actor.shown().namespaces[0].1.functions.clone()
    }

    fn ports(&self, id: u16) -> PortNames {
        self.actor.shown().functions[&id].ports.clone()
    }

    fn bring_online(&self, id: u16) {
        let ask = |action, resource| {
            let command = VirtualizationManagement { cntlid: ControllerId(id), resource, action, count: 2 };
            self.ask(Request::Virtualize(command));
        };
        ask(VirtualizationAction::Assign, ResourceType::Queues);
        ask(VirtualizationAction::Assign, ResourceType::Interrupts);
        ask(VirtualizationAction::Online, ResourceType::Queues);
    }
}

const LIMIT: Duration = Duration::from_secs(60);

fn map(function: u16) -> Request {
    Request::Map(Nsid(1), Some(FunctionId(function)))
}

fn ports(name: &str) -> PortNames {
    PortNames::new([name]).unwrap()
}

fn with_namespace() -> Bench {
    let bench = Bench::new();
    let wanted = NewNamespace { blocks: 256, capacity_blocks: 256, ..NewNamespace::default() };
    assert_eq!(bench.ask(Request::Create(wanted)), Answer::Done(1));
    bench.ask(map(1));
    bench
}

#[test]
fn a_namespace_is_shown_to_its_new_function_when_the_old_one_has_drained() {
    let bench = with_namespace();
    let moved = bench.submit(map(2));
    let (lost, token) = bench.drains.recv_timeout(LIMIT).unwrap();
    assert_eq!(lost, [(Nsid(1), Some(FunctionId(1)))]);
    bench.settle();
    assert!(moved.try_recv().is_err(), "it is not answered yet");
    assert_eq!(bench.actor.view().namespaces[0].1.functions, [2].into(), "but journaled");
    assert_eq!(bench.shown_at(), [].into(), "and shown to nobody");
    // What gives or takes waits, too; what does not is done.
    let next = bench.submit(map(3));
    let refused = bench.submit(Request::GiveTo(FunctionId(9), PortNames::default()));
    bench.settle();
    bench.ask(Request::AssignCntlid);
    assert!(next.try_recv().is_err() && refused.try_recv().is_err());
    drop(token);
    assert!(moved.recv_timeout(LIMIT).unwrap().is_ok());
    // The next move begins: the function that has just got it loses it.
    let (lost, token) = bench.drains.recv_timeout(LIMIT).unwrap();
    assert_eq!((lost, bench.shown_at()), (vec![(Nsid(1), Some(FunctionId(2)))], [].into()));
    drop(token);
    assert!(next.recv_timeout(LIMIT).unwrap().is_ok());
    assert!(refused.recv_timeout(LIMIT).unwrap().unwrap_err().status.is(Status::INVALID_CONTROLLER_ID));
    assert_eq!(bench.shown_at(), [3].into());
    bench.actor.stop();
}

#[test]
fn a_function_comes_to_its_new_port_when_the_old_one_has_drained() {
    let bench = with_namespace();
    bench.bring_online(1);
    let port = |name: &str| Request::GiveTo(FunctionId(1), ports(name));
    bench.ask(port("a"));
    let moved = bench.submit(port("b"));
    let (lost, token) = bench.drains.recv_timeout(LIMIT).unwrap();
    assert_eq!((lost, bench.ports(1)), (vec![(Nsid::ALL, Some(FunctionId(1)))], PortNames::default()));
    bench.settle();
    assert!(moved.try_recv().is_err());
    drop(token);
    assert!(moved.recv_timeout(LIMIT).unwrap().is_ok());
    assert_eq!(bench.ports(1), ports("b"));
    bench.actor.stop();
}

#[test]
fn a_drive_that_is_stopped_meanwhile_answers_what_waits() {
    let bench = with_namespace();
    let moved = bench.submit(map(2));
    let (_, token) = bench.drains.recv_timeout(LIMIT).unwrap();
    let waiting = bench.submit(map(3));
    bench.settle();
    bench.actor.stop();
    assert!(waiting.recv_timeout(LIMIT).unwrap().is_err());
    drop(token);
    assert!(moved.recv_timeout(LIMIT).unwrap().is_err());
}

/// The same without threads, and with a time of its own.
struct SteppedBench {
    actor: Arc<DriveActor>,
    stepper: Stepper,
    clock: Clock,
    drains: Receiver<Drained>,
    cancels: Receiver<Vec<(Nsid, Option<FunctionId>)>>,
}

impl SteppedBench {
    /// With namespaces 1 and 2, of function 1.
    fn new() -> Self {
        let clock = Clock::simulated(1);
        let (actor, stepper) = start_stepped(plan(clock.clone())).unwrap();
        let (sender, drains) = channel();
        let (cancel, cancels) = channel();
        actor.join(DriveCallbacks {
            publish: Box::new(|_, _, _| {}),
            send_event: Box::new(|_, _| {}),
            drain: Box::new(move |lost, token| sender.send((lost.to_vec(), token.clone())).unwrap()),
            cancel: Box::new(move |lost| cancel.send(lost.to_vec()).unwrap()),
            report: Box::new(|_| ()),
            observe: Box::new(|_| Observed::default()),
        });
        let mut bench = Self { actor, stepper, clock, drains, cancels };
        for nsid in [1, 2_u32] {
            let wanted = NewNamespace { blocks: 256, capacity_blocks: 256, ..NewNamespace::default() };
            assert_eq!(bench.ask(Request::Create(wanted)).unwrap(), Answer::Done(nsid.into()));
            bench.ask(Request::Map(Nsid(nsid), Some(FunctionId(1)))).unwrap();
        }
        bench
    }

    fn submit(&mut self, request: Request) -> (Receiver<Reply>, SubmittedRequest) {
        let (sender, receiver) = channel();
        let submitted = self.actor.submit(request, Origin::box_(), move |reply| {
            let _gone = sender.send(reply);
        });
        self.pass(0);
        (receiver, submitted)
    }

    fn ask(&mut self, request: Request) -> Result<Answer, Status> {
        let reply = self.submit(request).0.try_recv().expect("an answer");
        reply.map(|reply| reply.answer).map_err(|refusal| refusal.status)
    }

    /// Lets so many milliseconds pass.
    fn pass(&mut self, ms: u64) {
        let end = self.clock.now() + Duration::from_millis(ms);
        loop {
            let due = self.stepper.due().filter(|due| *due <= end);
            let Some(due) = due else { break };
            self.clock.advance_to(due);
            self.stepper.turn();
            while self.stepper.flush() || self.stepper.zero() {}
        }
        self.clock.advance_to(end);
    }

    fn owners(&self, nsid: usize) -> BTreeSet<u16> {
        self.actor.shown().namespaces[nsid - 1].1.functions.clone()
    }
}

fn map_of(nsid: u32, function: u16) -> Request {
    Request::Map(Nsid(nsid), Some(FunctionId(function)))
}

#[test]
fn commands_that_take_too_long_are_cancelled() {
    let mut bench = SteppedBench::new();
    let (moved, _) = bench.submit(map(2));
    let (lost, token) = bench.drains.try_recv().unwrap();
    bench.pass(DRAIN_MS - 1);
    assert!(bench.cancels.try_recv().is_err(), "they may take their time");
    bench.pass(10);
    assert_eq!(bench.cancels.try_recv().unwrap(), lost);
    assert!(moved.try_recv().is_err());
    // The device was slow.
    drop(token);
    bench.pass(0);
    assert!(moved.try_recv().unwrap().is_ok());
    assert_eq!(bench.owners(1), [2].into());
    // The next one has as much time as that.
    let (moved, _) = bench.submit(map(1));
    let (_, token) = bench.drains.try_recv().unwrap();
    bench.pass(DRAIN_MS - 1);
    assert!(bench.cancels.try_recv().is_err());
    drop(token);
    bench.pass(2 * DRAIN_MS);
    assert!(moved.try_recv().unwrap().is_ok() && bench.cancels.try_recv().is_err());
}

#[test]
fn a_device_that_never_answers_keeps_what_it_has_and_nothing_else() {
    let mut bench = SteppedBench::new();
    let (moved, _) = bench.submit(map(2));
    let (_, token) = bench.drains.try_recv().unwrap();
    let (other, _) = bench.submit(map_of(2, 3));
    bench.pass(DRAIN_MS + ABORT_MS - 1);
    assert!(moved.try_recv().is_err() && other.try_recv().is_err());
    bench.pass(10);
    let status = moved.try_recv().unwrap().unwrap_err().status;
    assert!(status.is(Status::COMMAND_INTERRUPTED) && !status.is_dnr());
    assert_eq!(bench.owners(1), [].into(), "nobody has it");
    // The others go on.
    let (lost, of_other) = bench.drains.try_recv().unwrap();
    assert_eq!(lost, [(Nsid(2), Some(FunctionId(1)))]);
    drop(of_other);
    bench.pass(0);
    assert!(other.try_recv().unwrap().is_ok());
    assert_eq!(bench.owners(2), [3].into());
    bench.ask(Request::GiveTo(FunctionId(2), ports("a"))).unwrap();
    let exactly = Request::AttachExactly(Nsid(1), Attachments { functions: [3].into(), ..Attachments::default() });
    for request in [map(2), map(1), exactly, Request::Delete(Nsid(1)), Request::Delete(Nsid::ALL)] {
        let name = request.name();
        assert!(bench.ask(request).unwrap_err().is(Status::COMMAND_INTERRUPTED), "{name}");
    }
    // It has answered after all: the function has the namespace that it was given.
    drop(token);
    bench.pass(0);
    assert_eq!(bench.owners(1), [2].into());
    assert_eq!(bench.ask(map(2)), Ok(Answer::Done(0)));
}

#[test]
fn a_function_that_a_device_does_not_let_go_of_is_not_placed_elsewhere() {
    let mut bench = SteppedBench::new();
    let give = |port: &str| Request::GiveTo(FunctionId(1), ports(port));
    let online = Placement { queues: 2, interrupts: 1, online: true, ports: ports("a") };
    bench.ask(Request::Place(FunctionId(1), online)).unwrap();
    let (moved, _) = bench.submit(give("b"));
    let (lost, token) = bench.drains.try_recv().unwrap();
    assert_eq!(lost, [(Nsid::ALL, Some(FunctionId(1)))]);
    bench.pass(DRAIN_MS + ABORT_MS + 10);
    assert!(moved.try_recv().unwrap().unwrap_err().status.is(Status::COMMAND_INTERRUPTED));
    let port = |bench: &SteppedBench| bench.actor.shown().functions[&1].ports.clone();
    assert_eq!(port(&bench), PortNames::default(), "no port has it");
    for request in [give("c"), Request::GiveTo(FunctionId(1), PortNames::default()), Request::ResetPrimary] {
        let name = request.name();
        assert!(bench.ask(request).unwrap_err().is(Status::COMMAND_INTERRUPTED), "{name}");
    }
    bench.ask(Request::GiveTo(FunctionId(2), ports("c"))).unwrap();
    drop(token);
    bench.pass(0);
    assert_eq!(port(&bench), ports("b"), "the port that it was given to");
    let (moved, _) = bench.submit(give("c"));
    drop(bench.drains.try_recv().unwrap());
    bench.pass(0);
    assert!(moved.try_recv().unwrap().is_ok());
}

#[test]
fn requests_that_were_withdrawn_do_not_wait() {
    let mut bench = SteppedBench::new();
    let (_moved, _) = bench.submit(map(2));
    for _ in 0..1000 {
        let (_, submitted) = bench.submit(map(3));
        assert!(submitted.withdraw());
    }
    assert_eq!(bench.actor.handover().waiting.len(), 1);
}

#[test]
fn hosts_that_lose_a_namespace_are_drained_before_a_function_gets_it() {
    let mut bench = SteppedBench::new();
    let host = Origin::host(ControllerId(130), Nqn::parse("nqn.2014-08.org.example:a").unwrap(), HostId([1; 16]));
    let _assigned = bench.actor.submit(Request::AssignCntlid, host, |_| {});
    let detached = bench.submit(Request::Detach(Nsid(1), vec![ControllerId(1)])).0;
    drop(bench.drains.try_recv().unwrap());
    bench.pass(0);
    assert!(detached.try_recv().unwrap().is_ok());
    bench.ask(Request::Attach(Nsid(1), vec![ControllerId(130)])).unwrap();
    let detached = bench.submit(Request::Detach(Nsid(1), vec![ControllerId(130)])).0;
    let (lost, token) = bench.drains.try_recv().unwrap();
    assert_eq!(lost, [(Nsid(1), None)]);
    let attached = bench.submit(Request::Attach(Nsid(1), vec![ControllerId(2)])).0;
    assert!(detached.try_recv().is_err() && attached.try_recv().is_err());
    assert_eq!(bench.owners(1), [].into());
    drop(token);
    bench.pass(0);
    assert!(detached.try_recv().unwrap().is_ok() && attached.try_recv().unwrap().is_ok());
    assert_eq!(bench.owners(1), [2].into());
}
