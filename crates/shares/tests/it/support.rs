//! A simulated device, and hosts that keep so many requests under way. Everything happens in
//! virtual time, from a seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use ebof_shares::{Depth, Flow, Kind, Request, Scheduler, Share, Ticket, Verdict};

/// How long a device takes for a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Service {
    /// 100 us and 2 us for each further page.
    Constant,
    /// The same, times 0.5 to 3.
    Jittery,
    /// Writes take five times as long.
    SlowWrites,
}

/// A device that works on so many requests at a time, in the order in which they come.
pub(crate) struct Device {
    pub(crate) service: Service,
    pub(crate) parallel: usize,
    busy: usize,
    queue: VecDeque<(Ticket, Request)>,
}

impl Device {
    fn takes_us(&self, request: Request, random: u64) -> u64 {
        let base = 100 + 2 * request.bytes.div_ceil(4096).saturating_sub(1);
        match self.service {
            Service::Constant => base,
            Service::Jittery => base * (128 + random % 640) / 256,
            Service::SlowWrites if request.kind == Kind::Write => 5 * base,
            Service::SlowWrites => base,
        }
    }
}

/// A function's hosts: `queues` of them with `depth` requests each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    pub(crate) share: Share,
    pub(crate) request: Request,
    pub(crate) queues: usize,
    pub(crate) depth: usize,
    /// Between a completion and the next request of it, microseconds.
    pub(crate) think_us: u64,
    /// When it begins and when it ends.
    pub(crate) active_us: (u64, u64),
}

impl Host {
    /// Random reads of 4 KiB at this depth, all the time.
    pub(crate) fn reader(depth: usize) -> Self {
        Self {
            share: Share::default(),
            request: Request { kind: Kind::Read, bytes: 4096 },
            queues: 1,
            depth,
            think_us: 10,
            active_us: (0, u64::MAX),
        }
    }

    pub(crate) fn with(self, share: Share) -> Self {
        Self { share, ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Done { ticket: (u64, usize) },
    Arrives { flow: usize },
    Look,
}

/// Everything.
pub(crate) struct World {
    pub(crate) scheduler: Scheduler<usize>,
    pub(crate) device: Device,
    pub(crate) hosts: Vec<Host>,
    pub(crate) now_us: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    serial: u64,
    random: u64,
    /// At the device, by serial number: the request, when it came.
    under_way: BTreeMap<u64, (Ticket, usize, u64)>,
    arrived_us: Vec<VecDeque<u64>>,
    /// Completed requests of each flow, their bytes, and the sum of their cost.
    pub(crate) done: Vec<u64>,
    pub(crate) bytes: Vec<u64>,
    /// Latencies, from arrival.
    pub(crate) latencies: Vec<Vec<u64>>,
    pub(crate) at_device: usize,
    look_us: Option<u64>,
}

impl World {
    pub(crate) fn new(depth: Depth, service: Service, parallel: usize, hosts: Vec<Host>) -> Self {
        let mut scheduler = Scheduler::new(depth);
        for (number, host) in (1..).zip(&hosts) {
            scheduler.set_share(Flow::new(number).unwrap(), host.share, 0);
        }
        let device = Device { service, parallel, busy: 0, queue: VecDeque::new() };
        let count = hosts.len();
        let mut world = Self {
            scheduler,
            device,
            hosts,
            now_us: 0,
            events: BinaryHeap::new(),
            serial: 0,
            random: 1,
            under_way: BTreeMap::new(),
            arrived_us: vec![VecDeque::new(); count],
            done: vec![0; count],
            bytes: vec![0; count],
            latencies: vec![Vec::new(); count],
            at_device: 0,
            look_us: None,
        };
        for flow in 0..count {
            let host = world.hosts[flow];
            for at in 0..host.depth * host.queues {
                world.push(host.active_us.0 + at as u64 % 7, Event::Arrives { flow });
            }
        }
        world
    }

    pub(crate) fn flow(index: usize) -> Flow {
        Flow::new(u16::try_from(index + 1).unwrap()).unwrap()
    }

    fn push(&mut self, at_us: u64, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((at_us, self.serial, event)));
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Runs until `until_us`; `look` is called after each event.
    pub(crate) fn run_with(&mut self, until_us: u64, mut look: impl FnMut(&mut Self)) {
        while let Some(&Reverse((at_us, _, event))) = self.events.peek()
            && at_us <= until_us
        {
            self.events.pop();
            self.now_us = at_us;
            self.on(event);
            look(self);
        }
        self.now_us = until_us;
    }

    pub(crate) fn run(&mut self, until_us: u64) {
        self.run_with(until_us, |_| ());
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Arrives { flow } => {
                let host = self.hosts[flow];
                if self.now_us >= host.active_us.1 {
                    return;
                }
                self.arrived_us[flow].push_back(self.now_us);
                let verdict = self.scheduler.submit(Self::flow(flow), host.request, flow, self.now_us);
                if let Verdict::Go(ticket) = verdict {
                    self.send(ticket, flow);
                }
            }
            Event::Done { ticket: (serial, flow) } => {
                let (ticket, _, arrived_us) = self.under_way.remove(&serial).unwrap();
                self.scheduler.release(ticket, self.now_us);
                self.at_device -= 1;
                self.done[flow] += 1;
                self.bytes[flow] += self.hosts[flow].request.bytes;
                self.latencies[flow].push(self.now_us - arrived_us);
                self.device.busy -= 1;
                self.serve();
                self.push(self.now_us + self.hosts[flow].think_us, Event::Arrives { flow });
            }
            Event::Look => {}
        }
        while let Some((ticket, flow)) = self.scheduler.next(self.now_us) {
            self.send(ticket, flow);
        }
        if let Some(due_us) = self.scheduler.due_us() {
            assert!(due_us > self.now_us, "due, and not picked");
            if self.look_us != Some(due_us) {
                self.look_us = Some(due_us);
                self.push(due_us, Event::Look);
            }
        }
    }

    fn send(&mut self, ticket: Ticket, flow: usize) {
        self.at_device += 1;
        self.device.queue.push_back((ticket, self.hosts[flow].request));
        let arrived_us = self.arrived_us[flow].pop_front().unwrap();
        self.serial += 1;
        self.under_way.insert(self.serial, (ticket, flow, arrived_us));
        self.serve();
    }

    fn serve(&mut self) {
        while self.device.busy < self.device.parallel
            && let Some((ticket, request)) = self.device.queue.pop_front()
        {
            self.device.busy += 1;
            let random = self.random();
            let takes_us = self.device.takes_us(request, random);
            let (&serial, &(_, flow, _)) =
                self.under_way.iter().find(|(_, (known, ..))| *known == ticket).expect("it is under way");
            self.push(self.now_us + takes_us, Event::Done { ticket: (serial, flow) });
        }
    }

    /// What each flow got done while `run` ran until `until_us`.
    pub(crate) fn measure(&mut self, until_us: u64) -> Vec<u64> {
        let before = self.done.clone();
        self.run(until_us);
        self.done.iter().zip(before).map(|(now, before)| now - before).collect()
    }
}

/// The shares of hosts on a device after a second of warming up, as requests in a second.
pub(crate) fn second(service: Service, parallel: usize, hosts: Vec<Host>) -> Vec<u64> {
    let mut world = World::new(Depth::adaptive(), service, parallel, hosts);
    world.run(1_000_000);
    world.measure(2_000_000)
}

/// Whether all of `values` are within `percent` of their mean.
pub(crate) fn assert_equal(values: &[u64], percent: u64) {
    let mean = values.iter().sum::<u64>() / values.len() as u64;
    let spread = values.iter().max().unwrap() - values.iter().min().unwrap();
    assert!(spread * 100 <= mean * percent, "{values:?}: a spread of {spread} of {mean}");
}

/// Whether `value` is within `percent` of `wanted`.
pub(crate) fn assert_near(value: u64, wanted: u64, percent: u64) {
    assert!(value.abs_diff(wanted) * 100 <= wanted * percent, "{value}, wanted {wanted}");
}
