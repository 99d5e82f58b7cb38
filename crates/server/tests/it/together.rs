//! A host and a target in one thread and in virtual time, over simulated streams and over loopback:
//! nothing calls the kernel, and two runs are the same.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebof_clock::Clock;
use ebof_initiator::{Controller, Data, Dialer, Options, State, Transport, stepped};
use ebof_manage::Config;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nqn, Nsid};
use ebof_server::SteppedTarget;
use ebof_sockets::{Readiness, SimulatedStream, Stream};

use crate::config::{NQN, one_subsystem};
use crate::stepped::{End, Shelf, environment, remote, settle, start, streams};

const BLOCK: usize = 512;

struct World {
    target: SteppedTarget,
    clock: Clock,
    port: String,
    /// The target's ends of streams that the host has connected.
    dialled: Arc<Mutex<Vec<Box<dyn SimulatedStream>>>>,
    admin_queue: Option<stepped::AdminQueue>,
}

impl World {
    fn new() -> Self {
        Self::serving(one_subsystem(["disk:16M"]))
    }

    fn serving(config: Config) -> Self {
        let environment = environment(3, &Arc::new(Shelf::default()));
        let clock = environment.clock.clone();
        let target = start(config, environment);
        let port = target.target().addresses()[0].0.clone();
        Self { target, clock, port, dialled: Arc::default(), admin_queue: None }
    }

    fn options(&self, loopback: bool) -> Options {
        let nqn = Nqn::parse(NQN).unwrap();
        let mut options = Options::loopback(self.target.loopback(&self.port).unwrap(), nqn);
        if !loopback {
            let dialled = Arc::clone(&self.dialled);
            options.transport = Transport::Streams(Dialer::new(move || {
                let (ours, theirs) = streams();
                dialled.lock().unwrap().push(Box::new(theirs));
                Ok(Stream::simulated(Box::new(ours)))
            }));
        }
        options.clock = self.clock.clone();
        options.nr_io_queues = 1;
        options
    }

    /// Steps until everything waits for `due`, then advances time.
    fn step(&mut self, due: Option<Instant>) {
        for theirs in self.dialled.lock().unwrap().drain(..) {
            self.target.connect(&self.port, remote(), theirs).unwrap();
        }
        settle(&mut self.target, &self.clock);
        let admin_due = self.admin_queue.as_mut().and_then(|queue| {
            queue.step();
            queue.due()
        });
        let all = [due, admin_due, self.target.due()];
        // In small steps: not every step waits for the clock.
        let soon = self.clock.now() + Duration::from_millis(1);
        self.clock.advance_to(all.into_iter().flatten().min().map_or(soon, |due| due.min(soon)));
    }

    fn finish<T>(&mut self, sequence: &mut stepped::Sequence<T>) -> T {
        for _ in 0..100_000 {
            if let Some(result) = sequence.step() {
                return result;
            }
            self.step(sequence.due());
        }
        panic!("it does not end")
    }

    fn run(&mut self, queue: &mut stepped::QueuePair, opcode: u8, data: Data) -> Vec<u8> {
        queue.submit(BlockRange::new(4, 32).encode(opcode, Nsid(1)), data, 0).unwrap();
        for _ in 0..100_000 {
            if let Some(completion) = queue.poll().unwrap() {
                assert!(completion.result.unwrap().status().is_success());
                return completion.data.into_buffer().unwrap();
            }
            self.step(queue.due());
        }
        panic!("no answer")
    }

    fn write_and_read(&mut self, queue: &mut stepped::QueuePair, byte: u8) {
        self.run(queue, nvm::WRITE, Data::FromHost(vec![byte; 32 * BLOCK]));
        assert!(self.run(queue, nvm::READ, Data::ToHost(vec![0; 32 * BLOCK])) == vec![byte; 32 * BLOCK]);
    }
}

/// Connects, writes and reads, idles for a minute, resets, reconnects, disconnects. Returns how
/// long that took.
fn play(loopback: bool) -> Duration {
    let mut world = World::new();
    let began = world.clock.now();
    let options = world.options(loopback);
    let (controller, admin_queue) = world.finish(&mut stepped::connect(&options)).unwrap();
    world.admin_queue = Some(admin_queue);
    let mut queue = world.finish(&mut stepped::queue_pair::<Vec<u8>>(&controller)).unwrap();
    world.write_and_read(&mut queue, 1);
    let idle = world.clock.now() + Duration::from_secs(60);
    while world.clock.now() < idle {
        world.step(None);
    }
    assert_eq!(controller.state(), State::Live, "Keep Alive is kept up");
    world.write_and_read(&mut queue, 2);
    controller.reset();
    come_back(&mut world, &controller, &mut queue);
    world.write_and_read(&mut queue, 3);
    drop(queue);
    controller.disconnect();
    let mut admin_queue = world.admin_queue.take().unwrap();
    world.finish(&mut admin_queue);
    settle(&mut world.target, &world.clock);
    assert!(ebof_manage::api::Target::status(world.target.target()).controllers.is_empty());
    world.clock.now() - began
}

fn come_back(world: &mut World, controller: &Controller, queue: &mut stepped::QueuePair) {
    for _ in 0..100_000 {
        if queue.poll().is_ok() && controller.state() == State::Live {
            return;
        }
        world.step(queue.due());
    }
    panic!("it does not come back");
}

#[test]
fn host_and_target_share_a_thread_and_a_clock_over_every_link() {
    for loopback in [false, true] {
        assert_eq!(play(loopback), play(loopback), "two runs differ");
    }
}

/// Reads and writes by a namespace handle, across a reset, with more concurrent calls than queues.
fn use_namespace(loopback: bool) -> Duration {
    let mut world = World::new();
    let began = world.clock.now();
    let (controller, admin_queue) = world.finish(&mut stepped::connect(&world.options(loopback))).unwrap();
    world.admin_queue = Some(admin_queue);
    let namespace = world.finish(&mut stepped::namespace(&controller, Nsid(1))).unwrap();
    assert_eq!(namespace.block_bytes() as usize, BLOCK);
    for byte in 1..4 {
        world.finish(&mut stepped::write(&namespace, 8, vec![byte; 3000 * BLOCK], false)).unwrap();
        let mut reads = [stepped::read(&namespace, 8, vec![0; BLOCK]), stepped::read(&namespace, 3007, vec![0; BLOCK])];
        assert!(reads.each_mut().map(|read| read.step().is_none()) == [true; 2]);
        // Outstanding commands are retried after the reconnect.
        controller.reset();
        for read in &mut reads {
            let (data, done) = world.finish(read);
            assert!(done.is_ok() && data == [byte; BLOCK], "{done:?}");
        }
    }
    // A dropped call releases its queue, the only one.
    let mut given_up = stepped::flush(&namespace);
    assert!(given_up.step().is_none());
    drop(given_up);
    world.finish(&mut stepped::write_zeroes(&namespace, 8, 100, true)).unwrap();
    world.finish(&mut stepped::deallocate(&namespace, vec![(200, 100), (400, 100)])).unwrap();
    world.finish(&mut stepped::flush(&namespace)).unwrap();
    let (data, done) = world.finish(&mut stepped::read(&namespace, 8, vec![1; 100 * BLOCK]));
    assert!(done.is_ok() && data == [0; 100 * BLOCK]);
    world.clock.now() - began
}

#[test]
fn a_namespace_is_used_without_a_thread_over_every_link() {
    for loopback in [false, true] {
        assert_eq!(use_namespace(loopback), use_namespace(loopback), "two runs differ");
    }
}

/// Changes every byte on its way, so that nothing may pass it: not what is sent without a copy, nor
/// what goes straight into a buffer or comes straight from the memory of a device.
struct Sealed(End);

impl SimulatedStream for Sealed {
    fn receive(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let received = self.0.receive(parts)?;
        let bytes = parts.iter_mut().flat_map(|part| part.iter_mut());
        bytes.take(received).for_each(|byte| *byte = !*byte);
        Ok(received)
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let sealed: Vec<u8> = parts.iter().flat_map(|part| part.iter().map(|byte| !byte)).collect();
        self.0.send(&[IoSlice::new(&sealed)])
    }

    fn shutdown(&mut self, how: Shutdown) {
        self.0.shutdown(how);
    }

    fn readiness(&self) -> Readiness {
        self.0.readiness()
    }
}

#[test]
fn data_arrive_over_streams_that_may_not_be_passed() {
    let mut config = one_subsystem(["disk:16M"]);
    config.ports[0].zerocopy_send_bytes = Some(4096);
    let mut world = World::serving(config);
    let mut options = world.options(false);
    let dialled = Arc::clone(&world.dialled);
    options.transport = Transport::Streams(Dialer::new(move || {
        let (ours, theirs) = streams();
        dialled.lock().unwrap().push(Box::new(Sealed(theirs)));
        Ok(Stream::simulated(Box::new(Sealed(ours))))
    }));
    options.zerocopy_send = Some(4096);
    let (controller, admin_queue) = world.finish(&mut stepped::connect(&options)).unwrap();
    world.admin_queue = Some(admin_queue);
    let mut queue = world.finish(&mut stepped::queue_pair::<Vec<u8>>(&controller)).unwrap();
    for byte in 1..4 {
        world.write_and_read(&mut queue, byte);
    }
    drop(queue);
    controller.disconnect();
}
