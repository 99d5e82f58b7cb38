//! A target without threads, in virtual time: over simulated streams and over the in-memory
//! transport.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{Shutdown, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebof_backend::{Device, Io, IoFactory, Memory, OpenError, Source, Spec};
use ebof_clock::Clock;
use ebof_loopback::{Capsule, CompletionMessage, HostEnd};
use ebof_manage::Config;
use ebof_manage::config::{Attach, ManagedDrive, Subsystem};
use ebof_nvme::connect::Property;
use ebof_nvme::identify::Csi;
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cqe, Nqn, Nsid, Sgl, Sqe};
use ebof_server::{Environment, Settings, SteppedTarget, Storage};
use ebof_sockets::{Readiness, SimulatedStream};
use zerocopy::{FromBytes, IntoBytes};

use crate::config::{NQN, one_subsystem};
use crate::raw::{self, Raw};

/// Memory devices by path, which outlive targets.
#[derive(Default)]
pub(crate) struct Shelf(Mutex<BTreeMap<PathBuf, Arc<dyn Device>>>);

impl Shelf {
    /// A device for a path.
    pub(crate) fn put(&self, path: &str, device: Arc<dyn Device>) {
        self.0.lock().unwrap().insert(path.into(), device);
    }
}

impl Storage for Shelf {
    fn open(&self, spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        let Source::Path { path, size_bytes, .. } = &spec.source else { panic!("a path is expected") };
        let bytes = size_bytes.unwrap_or(64 << 20);
        let mut shelf = self.0.lock().unwrap();
        let device = shelf.entry(path.clone()).or_insert_with(|| Arc::new(Memory::new(bytes, 512, false)));
        Ok(Arc::clone(device))
    }

    fn is_missing(&self, path: &Path) -> bool {
        !self.0.lock().unwrap().contains_key(path)
    }

    fn remove(&self, path: &Path) {
        self.0.lock().unwrap().remove(path);
    }
}

/// Bytes in transit, and whether more will follow.
#[derive(Default)]
struct Wire {
    bytes: VecDeque<u8>,
    closed: bool,
}

/// One end of a simulated connection: it sends and receives a few bytes at a time.
pub(crate) struct End {
    input: Arc<Mutex<Wire>>,
    output: Arc<Mutex<Wire>>,
}

/// Larger sends are shortened.
const SEND_MAX: usize = 1000;

pub(crate) fn streams() -> (End, End) {
    let wires: [Arc<Mutex<Wire>>; 2] = Default::default();
    let [there, back] = &wires;
    let end = |input: &Arc<_>, output: &Arc<_>| End { input: Arc::clone(input), output: Arc::clone(output) };
    (end(back, there), end(there, back))
}

impl SimulatedStream for End {
    fn receive(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut wire = self.input.lock().unwrap();
        if wire.bytes.is_empty() && !wire.closed {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        wire.bytes.make_contiguous();
        wire.bytes.read_vectored(parts)
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut wire = self.output.lock().unwrap();
        if wire.closed {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let before = wire.bytes.len();
        wire.bytes.extend(parts.iter().flat_map(|part| part.iter().copied()).take(SEND_MAX));
        Ok(wire.bytes.len() - before)
    }

    fn shutdown(&mut self, how: Shutdown) {
        if how != Shutdown::Write {
            self.input.lock().unwrap().closed = true;
        }
        self.output.lock().unwrap().closed = true;
    }

    fn readiness(&self) -> Readiness {
        let input = self.input.lock().unwrap();
        Readiness { readable: !input.bytes.is_empty() || input.closed, writable: true, closed: input.closed }
    }
}

pub(crate) fn environment(seed: u64, shelf: &Arc<Shelf>) -> Environment {
    let storage: Arc<dyn Storage> = Arc::clone(shelf) as Arc<dyn Storage>;
    let io = IoFactory::new(|entries| Ok(Io::external(entries, Box::new(|| false))));
    Environment { clock: Clock::simulated(seed), io, storage, ..Environment::default() }
}

pub(crate) fn start(config: Config, environment: Environment) -> SteppedTarget {
    let settings = Settings { threads: Some(2), environment, ..Settings::default() };
    SteppedTarget::start(config, settings).unwrap()
}

/// Steps everything until nothing makes progress.
pub(crate) fn settle(target: &mut SteppedTarget, clock: &Clock) {
    loop {
        let mut worked = (0..target.reactors()).fold(false, |worked, reactor| target.step(reactor) | worked);
        target.keep_time();
        for drive in target.drives() {
            if drive.due().is_some_and(|due| due <= clock.now()) {
                drive.turn();
                worked = true;
            }
            worked |= drive.flush() | drive.zero();
        }
        if !worked {
            return;
        }
    }
}

pub(crate) fn remote() -> SocketAddr {
    ([192, 0, 2, 7], 40_000).into()
}

/// Sends `pdu` and returns all that is received.
pub(crate) fn exchange(target: &mut SteppedTarget, clock: &Clock, host: &mut End, pdu: &[u8]) -> Vec<u8> {
    let mut sent = 0;
    let mut got = Vec::new();
    while sent < pdu.len() {
        sent += host.send(&[IoSlice::new(&pdu[sent..])]).unwrap();
        settle(target, clock);
    }
    let mut piece = [0; 4096];
    while let Ok(length @ 1..) = host.receive(&mut [IoSliceMut::new(&mut piece)]) {
        got.extend_from_slice(&piece[..length]);
    }
    got
}

/// A queue over TCP: the end of it, after its Connect.
fn tcp_queue(target: &mut SteppedTarget, clock: &Clock, id: u16, controller: u16) -> (End, Cqe) {
    let (mut host, theirs) = streams();
    let port = target.target().addresses()[0].0.clone();
    target.connect(&port, remote(), Box::new(theirs)).unwrap();
    let mut request = [0; 128];
    (request[0], request[2], request[4]) = (0, 128, 128);
    assert_eq!(exchange(target, clock, &mut host, &request)[0], 1, "an ICResp");
    let connect = Raw::capsule(raw::connect(id, 32), 1, raw::connect_data(controller).as_bytes());
    let cqe = completion(&exchange(target, clock, &mut host, &connect));
    (host, cqe)
}

/// The Admin Queue of an enabled controller, and an I/O queue.
pub(crate) fn tcp_queues(target: &mut SteppedTarget, clock: &Clock) -> (End, End) {
    let (mut admin, connected) = tcp_queue(target, clock, 0, 0xffff);
    let enable = Raw::capsule(Property::set(offset::CC, Cc::ENABLE.0), 2, &[]);
    completion(&exchange(target, clock, &mut admin, &enable));
    let (queue, _) = tcp_queue(target, clock, 1, connected.dw0.get() as u16);
    (admin, queue)
}

pub(crate) fn completion(pdu: &[u8]) -> Cqe {
    assert_eq!(pdu[0], 5, "a response");
    let cqe = Cqe::read_from_bytes(&pdu[8..24]).unwrap();
    assert!(cqe.status().is_success(), "{}", cqe.status());
    cqe
}

pub(crate) fn transfer(opcode: u8, block: u32, blocks: u32) -> Sqe {
    Sqe::new(opcode).with_nsid(Nsid(1)).with_cdw(10, block).with_cdw(12, blocks - 1)
}

#[test]
fn a_host_over_a_simulated_stream_is_served_without_a_thread() {
    let shelf = Arc::new(Shelf::default());
    let environment = environment(1, &shelf);
    let clock = environment.clock.clone();
    let mut target = start(one_subsystem(["disk:16M"]), environment);
    let (_admin, mut queue) = tcp_queues(&mut target, &clock);
    let write = Raw::capsule(transfer(0x01, 8, 8), 3, &[5; 4096]);
    completion(&exchange(&mut target, &clock, &mut queue, &write));
    let mut read = transfer(0x02, 8, 8);
    read.dptr = SglDescriptor::encode(Sgl::Transport { length: 4096 });
    let got = exchange(&mut target, &clock, &mut queue, &Raw::capsule(read, 4, &[]));
    assert_eq!((got[0], &got[24..24 + 4096]), (7, &[5; 4096][..]), "data");

    // Without Keep Alive the controller ends when its time-out has expired, and not before.
    let status = |target: &SteppedTarget| ebof_manage::api::Target::status(target.target()).controllers.len();
    assert_eq!(status(&target), 1);
    let begin = clock.now();
    while status(&target) == 1 {
        let due = target.due().expect("the Keep Alive Timer runs");
        assert!(due > clock.now() || due - clock.now() == Duration::ZERO);
        clock.advance_to(due);
        clock.advance(Duration::from_millis(1));
        settle(&mut target, &clock);
    }
    // Commands in the first interval count for it: the timer expires in the second.
    assert!((60..=121).contains(&(clock.now() - begin).as_secs()), "{:?}", clock.now() - begin);
    target.close();
}

/// A host over the in-memory transport.
pub(crate) struct Host(pub(crate) HostEnd);

impl Host {
    pub(crate) fn connect(target: &mut SteppedTarget, clock: &Clock, id: u16, controller: u16) -> (Self, Cqe) {
        let port = target.target().addresses()[0].0.clone();
        let mut host = Self(target.loopback(&port).unwrap().connect(32, Arc::new(|| {})).unwrap());
        let data = raw::connect_data(controller);
        let connected = host.call(target, clock, raw::connect(id, 32), 1024, Some(data.as_bytes()));
        (host, connected.cqe)
    }

    pub(crate) fn call(
        &mut self,
        target: &mut SteppedTarget,
        clock: &Clock,
        mut sqe: Sqe,
        length: u32,
        data: Option<&[u8]>,
    ) -> CompletionMessage {
        sqe.cid = 9.into();
        if length > 0 {
            sqe.dptr = SglDescriptor::encode(Sgl::Transport { length });
        }
        self.0.submit(Capsule { sqe, data: data.map(Arc::from) }).unwrap();
        settle(target, clock);
        let completion = self.0.poll().unwrap().expect("nothing else is to happen");
        assert!(completion.cqe.status().is_success(), "{}", completion.cqe.status());
        completion
    }
}

pub(crate) fn with_drive() -> Config {
    let mut drive = ManagedDrive::new("d0", "drive".parse().unwrap());
    drive.size_bytes = Some(32 << 20);
    drive.attach = Attach::Everyone;
    let mut config = one_subsystem([]);
    let mut subsystem = Subsystem::of_drive(Nqn::parse(NQN).unwrap(), &drive);
    subsystem.allow_any_host = true;
    subsystem.ports = config.subsystems[0].ports.clone();
    config.subsystems = vec![subsystem];
    config.drives = vec![drive];
    config
}

/// A host creates a namespace on a drive and writes to it; its data after a restart.
fn story(seed: u64, killed: bool) -> Vec<u8> {
    let shelf = Arc::new(Shelf::default());
    let mut seen = Vec::new();
    for run in 0..2 {
        let environment = environment(seed + run, &shelf);
        let clock = environment.clock.clone();
        let mut target = start(with_drive(), environment);
        let (mut admin, connected) = Host::connect(&mut target, &clock, 0, 0xffff);
        let enable = Property::set(offset::CC, Cc::ENABLE.0);
        admin.call(&mut target, &clock, enable, 0, None);
        if run == 0 {
            let select = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM };
            let wanted = NewNamespace::new(2048);
            admin.call(&mut target, &clock, select.encode(Nsid::NONE), 4096, Some(wanted.as_bytes()));
        }
        let identify = Sqe::new(0x06).with_nsid(Nsid(1));
        seen.extend(admin.call(&mut target, &clock, identify, 4096, None).data);
        let controller = connected.dw0.get() as u16;
        let (mut queue, _) = Host::connect(&mut target, &clock, 1, controller);
        if run == 0 {
            queue.call(&mut target, &clock, transfer(0x01, 0, 8), 4096, Some(&[3; 4096]));
            queue.call(&mut target, &clock, Sqe::new(0x00).with_nsid(Nsid(1)), 0, None);
        }
        let read = queue.call(&mut target, &clock, transfer(0x02, 0, 8), 4096, None);
        assert_eq!(read.data, [3; 4096]);
        if killed {
            drop(target);
        } else {
            target.shut_down(Duration::from_secs(1));
            settle(&mut target, &clock);
            assert!(target.is_shut_down());
            target.close();
        }
        assert!(queue.0.poll().is_err(), "the host sees the end");
    }
    seen
}

#[test]
fn a_drive_is_served_without_a_thread_and_the_same_seed_gives_the_same_identifiers() {
    let seen = story(5, false);
    // Identify Namespace: NGUID. NUSE has changed meanwhile.
    assert_eq!(seen[104..120], seen[4096 + 104..4096 + 120], "the namespace is another one after the restart");
    assert!(seen == story(5, false), "the same seed has shown something else");
    assert!(seen != story(6, false), "nothing of what is shown depends on the seed");
}

#[test]
fn dropping_a_target_is_a_kill_and_flushed_data_are_kept() {
    story(7, true);
}

/// The bell of a loopback queue rings once. A queue that had used up its share of this turn and of
/// later ones was not served any more.
#[test]
fn a_loopback_queue_that_used_up_its_share_is_served_in_a_later_turn() {
    let environment = environment(8, &Arc::new(Shelf::default()));
    let clock = environment.clock.clone();
    let settings = Settings { threads: Some(1), environment, ..Settings::default() };
    let mut target = SteppedTarget::start(one_subsystem(["disk:16M"]), settings).unwrap();
    let (mut admin, connected) = Host::connect(&mut target, &clock, 0, 0xffff);
    admin.call(&mut target, &clock, Property::set(offset::CC, Cc::ENABLE.0), 0, None);
    let controller = connected.dw0.get() as u16;
    let mut queues: Vec<Host> = (1..4).map(|id| Host::connect(&mut target, &clock, id, controller).0).collect();
    let read = |queue: &mut Host, cid: u16, bytes: u32| {
        let mut sqe = transfer(0x02, 0, bytes / 512);
        sqe.cid = cid.into();
        sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: bytes });
        queue.0.submit(Capsule { sqe, data: None }).unwrap();
    };
    // A connection that is not alone has a small share.
    queues[1..].iter_mut().for_each(|queue| read(queue, 1, 512));
    target.step(0);
    read(&mut queues[0], 1, 1 << 20);
    target.step(0);
    read(&mut queues[0], 2, 512);
    settle(&mut target, &clock);
    for cid in [1, 2] {
        let completion = queues[0].0.poll().unwrap().expect("it is served");
        assert_eq!((completion.cqe.cid().0, completion.cqe.status().is_success()), (cid, true));
    }
}
