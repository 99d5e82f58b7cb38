//! Several reactors that share drives, in virtual time and without threads: each sleeps until it
//! has a message, something to settle or a time at which it wants to look, and nothing else wakes
//! it. So a command that is forgotten shows.

use std::collections::BTreeMap;
use std::time::Duration;

use ebof_clock::Clock;
use ebof_fabrics::Handle;
use proptest::prelude::*;

use super::*;
use crate::shared::handle::{handle, reactor_of};
use crate::shared::mailbox::CommandReply;

const REACTORS: usize = 3;
const FUNCTIONS: u16 = 3;

/// A command: of the function, on the reactor.
struct Command {
    reactor: usize,
    /// `None` if it need not ask.
    ticket: Option<Ticket>,
}

struct World {
    clock: Clock,
    shares: Shares,
    mailboxes: Vec<Mailbox>,
    locals: Vec<LocalShares>,
    /// What queues know, by reactor and function.
    known: Vec<Vec<KnownLane>>,
    configured: Vec<Configured>,
    held: BTreeMap<u32, Command>,
    at_device: BTreeMap<u32, Command>,
    last: u32,
}

fn drive() -> Nqn {
    Nqn::parse("nqn.2014-08.org.example:drive").unwrap()
}

fn subsystem(number: u16) -> Nqn {
    Nqn::parse(&format!("{}:vf{number}", drive().as_str())).unwrap()
}

fn configured(shares: &[Option<Share>]) -> Vec<Configured> {
    let of = |(number, share): (u16, &Option<Share>)| {
        Some(Configured { subsystem: subsystem(number), drive: drive(), number, share: (*share)? })
    };
    (1..).zip(shares).filter_map(of).collect()
}

fn read(bytes: u64) -> Request {
    Request { kind: Kind::Read, bytes }
}

fn limited(iops: u64) -> Share {
    Share { iops: Some(iops), ..Share::default() }
}

impl World {
    fn new(shares: &[Option<Share>]) -> Self {
        let clock = Clock::simulated(1);
        let mailboxes: Vec<Mailbox> = (0..REACTORS).map(|_| Mailbox::without_bell()).collect();
        let uptime = Uptime::start(clock.clone());
        clock.advance(Duration::from_secs(1));
        let world = Self {
            shares: Shares::new(mailboxes.clone(), uptime),
            clock,
            mailboxes,
            locals: (0..REACTORS).map(LocalShares::new).collect(),
            known: (0..REACTORS).map(|_| (0..=FUNCTIONS).map(|_| KnownLane::unknown()).collect()).collect(),
            configured: configured(shares),
            held: BTreeMap::new(),
            at_device: BTreeMap::new(),
            last: 0,
        };
        world.shares.configure(&world.configured, world.now_us());
        world
    }

    fn now_us(&self) -> u64 {
        self.shares.clock.now_us()
    }

    fn configure(&mut self, configured: Vec<Configured>) {
        self.configured = configured;
        self.shares.configure(&self.configured, self.now_us());
    }

    fn submit(&mut self, reactor: usize, number: u16, request: Request) -> u32 {
        self.last += 1;
        let owner = CommandRef { handle: self.handle(reactor), slot: self.last };
        let now_us = self.now_us();
        let lane = self.known[reactor][usize::from(number)].ask(&self.shares, || Some(subsystem(number))).cloned();
        let asked = lane.and_then(|lane| lane.submit(request, owner, now_us, &mut self.locals[reactor]));
        let (ticket, may_go) = asked.map_or((None, true), |(ticket, may_go)| (Some(ticket), may_go));
        let place = if may_go { &mut self.at_device } else { &mut self.held };
        place.insert(self.last, Command { reactor, ticket });
        self.last
    }

    fn handle(&self, reactor: usize) -> Handle {
        handle(reactor, 1, 0)
    }

    /// The device has done it.
    fn done(&mut self, command: u32) {
        let Command { reactor, ticket } = self.at_device.remove(&command).unwrap();
        self.locals[reactor].note_done(ticket);
    }

    fn admitted(&mut self, id: TicketId, owner: CommandRef) {
        let is_it = |command: &Command| command.ticket.as_ref().is_some_and(|ticket| ticket.is(id));
        if self.held.get(&owner.slot).is_some_and(is_it) {
            let command = self.held.remove(&owner.slot).unwrap();
            assert_eq!(command.reactor, reactor_of(owner.handle));
            self.at_device.insert(owner.slot, command);
        }
    }

    /// A turn of a reactor, if something wakes it. Returns whether it did anything.
    fn turn(&mut self, reactor: usize) -> bool {
        let now_us = self.now_us();
        let local = &self.locals[reactor];
        let is_due = local.due_us().is_some_and(|due_us| due_us <= now_us);
        if !(self.mailboxes[reactor].has_messages() || local.has_work() || is_due) {
            return false;
        }
        let mut messages = Vec::new();
        self.mailboxes[reactor].take(&mut messages);
        for message in messages {
            match message {
                Message::Reply { to, reply: CommandReply::Admitted(ticket) } => self.admitted(ticket, to),
                Message::ShareDue(drive) => self.locals[reactor].look_when_due(&drive),
                _ => panic!("no other messages"),
            }
        }
        self.locals[reactor].finish_done(now_us);
        for _ in 0..self.locals[reactor].admitted() {
            let (id, owner) = self.locals[reactor].next_admitted().unwrap();
            self.admitted(id, owner);
        }
        true
    }

    fn due_us(&self) -> Option<u64> {
        self.locals.iter().filter_map(LocalShares::due_us).min()
    }

    /// The device does everything, and nothing else comes: every command has to end.
    fn end(&mut self) -> Result<(), String> {
        loop {
            let mut worked = false;
            for reactor in 0..REACTORS {
                worked |= self.turn(reactor);
            }
            if let Some((&command, _)) = self.at_device.first_key_value() {
                self.done(command);
                worked = true;
            }
            if worked {
                continue;
            }
            if self.held.is_empty() {
                return Ok(());
            }
            let Some(due_us) = self.due_us() else {
                return Err(format!("{} commands wait, and nobody looks", self.held.len()));
            };
            let left_us = due_us.saturating_sub(self.now_us());
            if left_us > 10_000_000 {
                return Err(format!("{} commands wait for {left_us} us", self.held.len()));
            }
            self.clock.advance(Duration::from_micros(left_us));
        }
    }
}

#[test]
fn what_is_given_up_makes_room_for_one_that_a_limit_keeps() {
    let mut world = World::new(&[Some(limited(10)), Some(Share::default())]);
    // It is not alone then.
    world.submit(1, 1, read(4096));
    while world.held.is_empty() {
        world.submit(1, 2, read(4096));
    }
    let kept = world.submit(1, 1, read(4096));
    assert_eq!(world.due_us(), None, "there is no room at the device, whatever the limit says");
    // Nothing is settled in a turn: they are dropped, and then what went there in their place.
    while !world.at_device.is_empty() {
        world.at_device.clear();
        for reactor in 0..REACTORS {
            world.turn(reactor);
        }
    }
    assert!(world.held.contains_key(&kept), "its limit keeps it");
    assert!(world.due_us().is_some(), "and somebody knows until when");
    world.end().unwrap();
}

#[test]
fn what_waits_for_a_limit_ends_when_the_function_goes() {
    for others in [vec![], vec![None, Some(Share::default())]] {
        let mut world = World::new(&[Some(limited(1)), Some(Share::default())]);
        for _ in 0..30 {
            world.submit(2, 1, read(4096));
        }
        assert!(world.held.len() > 25);
        world.configure(configured(&others));
        let before_us = world.now_us();
        world.end().unwrap();
        assert_eq!(world.now_us(), before_us, "nobody limits it any more");
    }
}

#[test]
fn queues_know_their_lanes_after_each_change() {
    let mut world = World::new(&[Some(Share::default()), Some(Share::default())]);
    for weight in 1..20 {
        let share = Share { weight, ..Share::default() };
        world.configure(configured(&[Some(share), Some(Share::default())]));
        let commands = [1, 2].map(|number| world.submit(0, number, read(4096)));
        let asked = commands.iter().filter(|command| world.at_device[command].ticket.is_some()).count();
        assert_eq!(asked, 2, "both have to ask");
        for command in commands {
            world.done(command);
        }
        world.turn(0);
    }
}

#[derive(Clone, Debug)]
enum Action {
    Submit { reactor: usize, number: u16, bytes: u64, count: usize },
    Done(usize),
    GiveUp(usize),
    Turn(usize),
    Wait(u64),
    Configure(Vec<Option<Share>>),
}

fn share() -> impl Strategy<Value = Share> {
    let rate = |least: u64| prop::option::weighted(0.3, least..100 * least);
    (1..=1000_u16, rate(20), rate(1 << 20), rate(100)).prop_map(|(weight, iops, bytes_per_second, minimum_iops)| {
        Share { weight, iops, bytes_per_second, minimum_iops }
    })
}

fn shares() -> impl Strategy<Value = Vec<Option<Share>>> {
    prop::collection::vec(prop::option::weighted(0.8, share()), 0..=usize::from(FUNCTIONS))
}

fn action() -> impl Strategy<Value = Action> {
    let bytes = prop_oneof![Just(4096), Just(131_072), 0..100_000_u64];
    prop_oneof![
        6 => (0..REACTORS, 1..=FUNCTIONS, bytes, 1..20_usize)
            .prop_map(|(reactor, number, bytes, count)| Action::Submit { reactor, number, bytes, count }),
        6 => any::<usize>().prop_map(Action::Done),
        2 => any::<usize>().prop_map(Action::GiveUp),
        4 => (0..REACTORS).prop_map(Action::Turn),
        3 => prop_oneof![0..200_u64, 0..30_000_u64, Just(1_500_000)].prop_map(Action::Wait),
        1 => shares().prop_map(Action::Configure),
    ]
}

fn nth(commands: &BTreeMap<u32, Command>, at: usize) -> Option<u32> {
    commands.keys().nth(at % commands.len().max(1)).copied()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_command_ends(begin in shares(), actions in prop::collection::vec(action(), 1..200)) {
        let mut world = World::new(&begin);
        for action in actions {
            match action {
                Action::Submit { reactor, number, bytes, count } => {
                    for _ in 0..count {
                        world.submit(reactor, number, read(bytes));
                    }
                }
                Action::Done(at) => {
                    if let Some(command) = nth(&world.at_device, at) {
                        world.done(command);
                    }
                }
                Action::GiveUp(at) => {
                    let place = if at.is_multiple_of(3) { &mut world.at_device } else { &mut world.held };
                    if let Some(command) = nth(place, at / 3) {
                        place.remove(&command);
                    }
                }
                Action::Turn(reactor) => _ = world.turn(reactor),
                Action::Wait(us) => world.clock.advance(Duration::from_micros(us)),
                Action::Configure(shares) => world.configure(configured(&shares)),
            }
        }
        prop_assert_eq!(world.end(), Ok(()));
        for of in world.shares.figures(world.now_us()) {
            prop_assert_eq!((of.figures.waiting, of.figures.at_device), (0, 0), "{:?}", of);
        }
    }
}
