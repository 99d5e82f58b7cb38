//! Any commands of hosts and any order of completions: every command completes once, no ticket is
//! lost, nothing panics.

use std::collections::{BTreeSet, VecDeque};

use ebof_fabrics::{Executing, FusedHalf, Handle, IoTask, Queue, Step, Task, Transfer};
use ebof_nvme::connect::{Connect, Property, disconnect};
use ebof_nvme::copy::Copy;
use ebof_nvme::io::{BlockRange, Dsm};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::{Cid, ControllerId, Cqe, Nqn, Nsid, QueueId, Sqe, Status};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use crate::support::{ALICE, BOB, DRIVE, OTHER, World, arrival, connect_data, model, namespace, with_data};

#[derive(Clone, Copy, Debug)]
enum Act {
    Open,
    Connect {
        at: usize,
        qid: u16,
        entries: u16,
        discovery: bool,
        host: bool,
    },
    Send {
        at: usize,
        sqe: [u8; 64],
    },
    /// Continues a waiting step.
    Work {
        which: usize,
        status: bool,
    },
    Close {
        at: usize,
    },
    Time {
        ms: u64,
    },
    Model {
        namespaces: u32,
        second: bool,
    },
}

fn commands() -> impl Strategy<Value = Sqe> {
    let io = (0u8..16, 0u32..7, 0u64..1100, 1u32..20, any::<bool>()).prop_map(|(opcode, nsid, slba, blocks, fit)| {
        let sqe = BlockRange::new(slba, blocks).encode(opcode, Nsid(nsid));
        with_data(sqe, if fit { blocks * 512 } else { 4096 })
    });
    let fused = (0u8..4, any::<bool>(), 0u64..2).prop_map(|(fuse, write, slba)| {
        let opcode = if write { nvm::WRITE } else { nvm::COMPARE };
        let mut sqe = with_data(BlockRange::new(slba, 1).encode(opcode, Nsid(1)), 512);
        sqe.flags |= fuse;
        sqe
    });
    // The data are ranges of one block, at block 0 and 1025 blocks later.
    let copy = (1u16..4, 0u8..5, 0u64..4).prop_map(|(ranges, format, slba)| {
        let sqe = Copy { ranges, format, slba, ..Copy::default() }.encode(Nsid(1));
        with_data(sqe, u32::from(ranges) * if format % 2 == 0 { 32 } else { 40 })
    });
    let dsm = (1u16..4).prop_map(|ranges| {
        let dsm = Dsm { ranges, deallocate: true, integral_read: false, integral_write: false };
        with_data(dsm.encode(Nsid(1)), u32::from(ranges) * 16)
    });
    let log = (prop::sample::select(vec![0u32, 1, 2, 3, 4, 5, 0x12, 0x70]), 0u32..8, any::<bool>()).prop_map(
        |(lid, offset, retain)| {
            let sqe = Sqe::new(admin::GET_LOG_PAGE).with_cdw(10, lid | 127 << 16 | u32::from(retain) << 15);
            with_data(sqe.with_cdw(12, offset * 256), 512)
        },
    );
    let feature = (any::<bool>(), 0u32..0x90, any::<u32>(), 0u32..6).prop_map(|(set, fid, value, nsid)| {
        let opcode = if set { admin::SET_FEATURES } else { admin::GET_FEATURES };
        with_data(Sqe::new(opcode).with_cdw(10, fid).with_cdw(11, value & 0xff).with_nsid(Nsid(nsid)), 512)
    });
    let identify = (0u32..0x20, 0u32..7)
        .prop_map(|(cns, nsid)| with_data(Sqe::new(admin::IDENTIFY).with_cdw(10, cns).with_nsid(Nsid(nsid)), 4096));
    let abort = (0u32..3, 0u32..40).prop_map(|(qid, cid)| Sqe::new(admin::ABORT).with_cdw(10, qid | cid << 16));
    let cc = prop::sample::select(vec![0, Cc::ENABLE.0, Cc::ENABLE.with_shutdown(1).0, Cc::ENABLE.with_shutdown(2).0]);
    prop_oneof![
        4 => io,
        2 => fused,
        2 => copy,
        1 => dsm,
        1 => log,
        2 => feature,
        1 => identify,
        1 => abort,
        1 => Just(Sqe::new(admin::ASYNC_EVENT_REQUEST)),
        1 => Just(Sqe::new(admin::KEEP_ALIVE)),
        2 => cc.prop_map(|cc| Property::set(offset::CC, cc)),
        1 => (0u32..0x70).prop_map(|at| Property::get(at, 4)),
        1 => Just(disconnect()),
        1 => any::<[u8; 32]>().prop_map(|half| {
            let mut bytes = [0; 64];
            bytes[..32].copy_from_slice(&half);
            bytes[32..].copy_from_slice(&half);
            Sqe::read_from_bytes(&bytes).unwrap()
        }),
    ]
}

fn acts() -> impl Strategy<Value = Act> {
    let connect =
        (0usize..6, 0u16..4, 0u16..40, any::<bool>(), any::<bool>()).prop_map(|(at, qid, entries, discovery, host)| {
            Act::Connect { at, qid, entries, discovery: discovery && qid == 0, host }
        });
    let send = (0usize..6, commands(), 0u16..40).prop_map(|(at, mut sqe, cid)| {
        sqe.cid = cid.into();
        Act::Send { at, sqe: sqe.as_bytes().try_into().unwrap() }
    });
    prop_oneof![
        2 => Just(Act::Open),
        6 => connect,
        20 => send,
        16 => (any::<usize>(), any::<bool>()).prop_map(|(which, status)| Act::Work { which, status }),
        1 => (0usize..6).prop_map(|at| Act::Close { at }),
        1 => (0u64..200_000).prop_map(|ms| Act::Time { ms }),
        1 => (1u32..9, any::<bool>()).prop_map(|(namespaces, second)| Act::Model { namespaces, second }),
    ]
}

/// The world, and the state of every connection as its host knows it.
struct Run {
    world: World,
    waiting: VecDeque<(u64, Step)>,
    /// Outstanding commands.
    open: std::collections::BTreeMap<u64, BTreeSet<u16>>,
    /// Those that wait for an event, and are withdrawn for a command with their identifier.
    held: BTreeSet<(u64, u16)>,
    last_cntlid: ControllerId,
}

impl Run {
    fn new() -> Self {
        let last_cntlid = ControllerId(1);
        let waiting = VecDeque::new();
        let open = Default::default();
        let held = BTreeSet::new();
        Self { world: World::new(), waiting, open, held, last_cntlid }
    }

    fn connection(&self, at: usize) -> Option<u64> {
        self.open.keys().nth(at % self.open.len().max(1)).copied()
    }

    /// A completion of an outstanding command.
    fn answered(&mut self, at: u64, cqe: Cqe) {
        self.held.remove(&(at, cqe.cid().0));
        assert!(self.open.get_mut(&at).unwrap().remove(&cqe.cid().0), "completed twice or never sent: {cqe:?}");
    }

    /// A first half without a second one completes.
    fn end_unpaired(&mut self, at: u64, step: Step) -> Step {
        let Step::Unpaired(first, status, next) = step else { return step };
        let executing = self.take_half(at, first);
        let cqe = self.world.queues.get_mut(&at).unwrap().complete(executing, status);
        self.answered(at, cqe);
        *next
    }

    fn take_half(&mut self, at: u64, first: Cid) -> Executing {
        let is_it = |(of, step): &(u64, Step)| *of == at && half(step) == Some(first);
        let found = self.waiting.iter().position(is_it).expect("a first half that waits");
        ticket(self.waiting.remove(found).unwrap().1)
    }

    /// Whether the second half of a pair waits as well.
    fn has_second(&self, at: u64, first: Cid) -> bool {
        self.waiting.iter().any(|(of, step)| *of == at && second_of(step) == Some(first))
    }

    fn settle(&mut self, at: u64, step: Step) {
        let step = self.end_unpaired(at, step);
        match step {
            Step::Complete(cqe) => self.answered(at, cqe),
            Step::Disconnect(cqe) => {
                self.answered(at, cqe);
                assert!(self.world.queues[&at].is_closing());
            }
            Step::Held => {}
            waiting => self.waiting.push_back((at, waiting)),
        }
        self.events();
    }

    fn events(&mut self) {
        let ats: Vec<u64> = self.open.keys().copied().collect();
        for at in ats {
            while let Some(cqe) = self.world.queues.get_mut(&at).and_then(Queue::poll_event) {
                self.answered(at, cqe);
            }
        }
        let [events, of_ana] = [&mut self.world.events, &mut self.world.ana_events].map(std::mem::take);
        for (at, cqe) in events.into_iter().chain(of_ana) {
            self.answered(at, cqe);
        }
    }

    fn send(&mut self, at: u64, sqe: &Sqe) {
        let cid = sqe.cid();
        let now_ms = self.world.now_ms;
        let known = self.open[&at].contains(&cid.0);
        let queue = self.world.queues.get_mut(&at).unwrap();
        assert_eq!(queue.is_outstanding(cid), known);
        let full = queue.outstanding() == queue.commands_max();
        let (step, withdrawn) = match queue.submit(sqe, now_ms) {
            Step::Withdrawn(next) => (*next, true),
            step => (step, false),
        };
        let gives_way = self.held.remove(&(at, cid.0));
        assert_eq!(withdrawn, gives_way);
        if (known || full) && !gives_way {
            // Refused without effect: the command that has this identifier continues.
            let step = self.end_unpaired(at, step);
            let Step::Complete(cqe) = step else { panic!("taken twice or too many: {step:?}") };
            assert!(!cqe.status().is_success());
            return;
        }
        self.open.get_mut(&at).unwrap().insert(cid.0);
        if step == Step::Held {
            self.held.insert((at, cid.0));
        }
        self.settle(at, step);
    }

    fn connect(&mut self, at: u64, connect: Connect, discovery: bool, host: bool) {
        let subsystem = if discovery { Nqn::DISCOVERY } else { DRIVE };
        let cntlid = if connect.qid.is_admin() { ControllerId::DYNAMIC } else { self.last_cntlid };
        let data = connect_data(subsystem, if host { ALICE } else { BOB }, cntlid);
        let now_ms = self.world.now_ms;
        let queue = self.world.queues.get_mut(&at).unwrap();
        if queue.is_connected() || queue.outstanding() > 0 {
            return;
        }
        let step = queue.submit(&with_data(connect.encode(), 1024), now_ms);
        let Step::Execute(executing, Task::Connect) = step else { return };
        let (step, refusal) = self.world.ask_registry(at, executing, data.as_bytes());
        let cqe = match step {
            Step::Complete(cqe) => cqe,
            Step::Execute(executing, Task::DeferConnect(_)) => {
                // The host abandons it.
                self.world.queues.get_mut(&at).unwrap().abandon(executing);
                return;
            }
            step => panic!("{step:?}"),
        };
        assert_eq!(cqe.status().is_success(), refusal.is_none());
        if connect.qid.is_admin() && refusal.is_none() {
            self.last_cntlid = ebof_nvme::connect::ConnectResult::connected(cqe.result()).0;
        }
    }

    /// Executes the step; devices succeed if `good`.
    fn work(&mut self, at: u64, step: Step, good: bool) {
        let status = if good { Status::SUCCESS } else { Status::INTERNAL_ERROR };
        let now_ms = self.world.now_ms;
        if !self.world.queues.contains_key(&at) {
            return;
        }
        // A target lets neither half of a pair end before the other.
        let has_second = half(&step).is_some_and(|first| self.has_second(at, first));
        // Without its second half a first half can only fail.
        if half(&step).is_some() && (good || has_second) {
            return self.waiting.push_back((at, step));
        }
        let Step::Execute(executing, task) = step else { unreachable!("{step:?} does not wait") };
        let queue = self.world.queues.get_mut(&at).unwrap();
        let next = match task {
            Task::Rings(_) => unreachable!("no port is a direct one"),
            Task::DeferConnect(_) => Step::Complete(queue.complete(executing, status)),
            Task::Receive => {
                let data: Vec<u8> = (0..executing.length()).map(|at| u8::from(at % 16 == 4)).collect();
                queue.resume(executing, &data, now_ms)
            }
            Task::Connect => {
                let arrival = arrival(at, self.world.port, &self.world.local);
                self.world.registry.connect(queue, executing, &[0; 1024], &arrival, now_ms).0
            }
            Task::Shared => {
                let (step, notices) = self.world.registry.execute(queue, executing, now_ms);
                self.world.deliver(notices);
                step
            }
            Task::Reset(quiesce) => {
                quiesce.close.iter().for_each(|&Handle(io)| self.close(io));
                Step::Complete(self.world.queues.get_mut(&at).unwrap().complete(executing, Status::SUCCESS))
            }
            Task::Drive(mut drive) => {
                let request = drive.take_request().unwrap();
                return self.world.ask_drive(at, executing, &request).map_or((), |next| self.settle(at, next));
            }
            Task::Abort(..) => Step::Complete(queue.complete_with(executing, Status::SUCCESS, 1)),
            Task::Reply(data) => {
                assert!(!data.is_empty() && data.len() <= executing.length() as usize);
                Step::Complete(queue.complete(executing, Status::SUCCESS))
            }
            Task::Io(IoTask::Transfer(Transfer { extent, fused: Some(FusedHalf::Second { first }), .. })) => {
                // A queue does not name a first half that has already failed.
                let first = self.take_half(at, first);
                assert_eq!((first.length(), executing.length()), (extent.length_bytes, extent.length_bytes));
                let queue = self.world.queues.get_mut(&at).unwrap();
                let cqe = queue.complete(first, status);
                let second = queue.complete(executing, status);
                self.answered(at, cqe);
                Step::Complete(second)
            }
            Task::Io(IoTask::Transfer(Transfer { extent, .. })) => {
                // Within the namespace, which begins at byte 4096.
                assert!(extent.offset_bytes >= 4096 && extent.length_bytes >= 512);
                assert!(extent.offset_bytes + u64::from(extent.length_bytes) <= 4096 + (4 << 30));
                Step::Complete(queue.complete(executing, status))
            }
            Task::Io(IoTask::Copy(copy)) => {
                let plan = copy.plan();
                assert!(plan.sources.iter().all(|source| !source.overlaps(&plan.target)));
                assert_eq!(plan.sources.iter().map(|s| s.length_bytes).sum::<u64>(), plan.target.length_bytes);
                Step::Complete(queue.complete(executing, status))
            }
            Task::LbaStatus(query) => queue.lba_status(executing, &[(query.range.start, 1)], good),
            Task::Io(IoTask::Flush(_) | IoTask::Deallocate(..)) => Step::Complete(queue.complete(executing, status)),
            Task::Authenticate(_) => panic!("no host has a secret"),
        };
        self.settle(at, next);
    }

    fn close(&mut self, at: u64) {
        let (gone, kept): (VecDeque<_>, VecDeque<_>) = self.waiting.drain(..).partition(|(of, _)| *of == at);
        self.waiting = kept;
        if let Some(queue) = self.world.queues.get_mut(&at) {
            for (_, step) in gone {
                queue.abandon(ticket(step));
            }
            assert_eq!(queue.executing(), 0);
        }
        self.world.close(at);
        self.open.remove(&at);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Open if self.open.len() < 6 => {
                let at = self.world.open();
                self.open.insert(at, BTreeSet::new());
            }
            Act::Open => {}
            Act::Connect { at, qid, entries, discovery, host } => {
                if let Some(at) = self.connection(at) {
                    let entries = u32::from(entries) + 1;
                    let connect = Connect { recfmt: 0, qid: QueueId(qid), entries, cattr: 0, kato_ms: 5000 };
                    self.connect(at, connect, discovery, host);
                }
            }
            Act::Send { at, sqe } => {
                if let Some(at) = self.connection(at) {
                    self.send(at, &Sqe::read_from_bytes(&sqe).unwrap());
                }
            }
            Act::Work { which, status } => {
                let which = which % self.waiting.len().max(1);
                if let Some((at, step)) = self.waiting.remove(which) {
                    self.work(at, step, status);
                }
            }
            Act::Close { at } => {
                if let Some(at) = self.connection(at) {
                    self.close(at);
                }
            }
            Act::Time { ms } => {
                let now_ms = self.world.now_ms + ms;
                self.world.expire_at(now_ms);
            }
            Act::Model { namespaces, second } => self.world.replace_model(|next| {
                let table = (1..namespaces).map(namespace).collect();
                let drive = std::sync::Arc::make_mut(&mut next.subsystems[0]);
                drive.namespaces = ebof_fabrics::NamespaceTable::new(table).unwrap();
                next.subsystems.retain(|subsystem| subsystem.nqn.as_str() != OTHER);
                if second {
                    next.subsystems.push(std::sync::Arc::clone(&model().subsystems[1]));
                }
            }),
        }
        self.events();
    }

    /// Completes everything that waits; only Asynchronous Event Requests stay outstanding.
    fn finish(&mut self) {
        while let Some((at, step)) = self.waiting.pop_front() {
            let lone =
                |(of, other): &(u64, Step)| *of == at && half(&step).is_some() && second_of(other) == half(&step);
            let good = half(&step).is_none() || self.waiting.iter().any(lone);
            self.work(at, step, good);
        }
        for (at, commands) in &self.open {
            let queue = &self.world.queues[at];
            assert_eq!(queue.executing(), 0);
            assert_eq!(queue.outstanding(), commands.len());
        }
        let ats: Vec<u64> = self.open.keys().copied().collect();
        ats.into_iter().for_each(|at| self.close(at));
        assert_eq!(self.world.registry.controllers().count(), 0);
        assert_eq!(self.world.registry.next_deadline(), None);
    }
}

/// The identifier of a first half.
fn half(step: &Step) -> Option<Cid> {
    match step {
        Step::Execute(executing, Task::Io(IoTask::Transfer(transfer))) if transfer.is_first_half() => {
            Some(executing.cid())
        }
        _ => None,
    }
}

/// The identifier of the first half that belongs to a second.
fn second_of(step: &Step) -> Option<Cid> {
    match step {
        Step::Execute(_, Task::Io(IoTask::Transfer(Transfer { fused: Some(FusedHalf::Second { first }), .. }))) => {
            Some(*first)
        }
        _ => None,
    }
}

fn ticket(step: Step) -> Executing {
    match step {
        Step::Execute(executing, _) => executing,
        step => unreachable!("{step:?} has none"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    // @test data.completed-once
    #[test]
    fn every_command_completes_once(acts in prop::collection::vec(acts(), 1..200)) {
        let mut run = Run::new();
        // Begins with a controller that has an I/O queue: most sequences would not get that far.
        let (admin, cntlid) = run.world.controller(DRIVE, ALICE);
        let io = run.world.io_queue(DRIVE, ALICE, cntlid, 1);
        run.last_cntlid = cntlid;
        run.open.insert(admin, BTreeSet::new());
        run.open.insert(io, BTreeSet::new());
        for act in acts {
            run.act(act);
        }
        run.finish();
    }

    // @test hostile.no-crash
    #[test]
    fn no_command_panics_in_any_state(bytes: [u8; 64], opcode in 0u8..0x20, state in 0u8..5, wild: bool) {
        let mut sqe = Sqe::read_from_bytes(&bytes).unwrap();
        if !wild {
            sqe.opcode = opcode;
            sqe.flags = 0x40;
            sqe = with_data(sqe, 512).with_nsid(Nsid(1));
        }
        let mut world = World::new();
        let at = match state {
            0 => world.open(),
            1 => {
                let at = world.open();
                let connect = crate::support::admin_connect();
                world.connect(at, connect, &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
                at
            }
            2 => world.controller(DRIVE, ALICE).0,
            3 => world.controller(Nqn::DISCOVERY, ALICE).0,
            _ => {
                let (_, cntlid) = world.controller(DRIVE, ALICE);
                world.io_queue(DRIVE, ALICE, cntlid, 1)
            }
        };
        let done = world.run(at, sqe);
        let queue = &world.queues[&at];
        prop_assert_eq!(queue.executing(), 0);
        prop_assert_eq!(queue.outstanding(), usize::from(done.cqe.is_none()));
    }
}
