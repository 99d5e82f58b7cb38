//! The library over several paths: a target in this process with two ports, and a relay before each
//! that can be cut.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ebof::manage::api::Target as _;
use ebof::{
    AddPathError, ConnectPathsError, Error, Nqn, Nsid, Options, PathNamespace, PathPolicy, Subsystem, Target, manage,
};

pub(crate) const NQN: &str = "nqn.2014-08.org.example:drive0";

/// What a relay does with bytes and connections.
pub(crate) const PASSES: usize = 0;
/// They are closed, and new ones are.
pub(crate) const CLOSED: usize = 1;
/// Nothing passes in either direction, and nothing is closed.
pub(crate) const SILENT: usize = 2;
/// What the target sends does not pass, and nothing is closed.
pub(crate) const MUTE: usize = 3;

/// Passes connections on.
pub(crate) struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    to: SocketAddr,
    mode: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
}

impl Relay {
    pub(crate) fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { to, mode: AtomicUsize::new(PASSES), open: Mutex::default() });
        let for_thread = Arc::clone(&shared);
        // It ends with the test.
        std::thread::spawn(move || {
            for host in listener.incoming().map_while(Result::ok) {
                for_thread.pass(&host);
            }
        });
        Self { address, shared }
    }

    pub(crate) fn set(&self, mode: usize) {
        self.shared.mode.store(mode, Ordering::SeqCst);
        if !matches!(mode, SILENT | MUTE) {
            // What was silent is lost: a stream of bytes has no hole.
            for stream in self.shared.open.lock().unwrap().drain(..) {
                let _gone = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// What was silent passes after all, in its order.
    pub(crate) fn go_on(&self) {
        self.shared.mode.store(PASSES, Ordering::SeqCst);
    }

    pub(crate) fn options(&self) -> Options {
        let mut options = options(self.address);
        options.reconnect_delay_ms = 100;
        options
    }
}

impl Shared {
    fn pass(self: &Arc<Self>, host: &TcpStream) {
        if self.mode.load(Ordering::SeqCst) == CLOSED {
            return;
        }
        let Ok(target) = TcpStream::connect(self.to) else { return };
        for stream in [host, &target] {
            stream.set_nodelay(true).unwrap();
            self.open.lock().unwrap().push(stream.try_clone().unwrap());
        }
        for (is_held, from, to) in [([SILENT, SILENT], host, &target), ([SILENT, MUTE], &target, host)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let shared = Arc::clone(self);
            std::thread::spawn(move || {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    while is_held.contains(&shared.mode.load(Ordering::SeqCst)) {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    if to.write_all(&bytes[..count]).is_err() {
                        break;
                    }
                }
                for stream in [from, to] {
                    let _gone = stream.shutdown(Shutdown::Both);
                }
            });
        }
    }
}

pub(crate) fn options(address: SocketAddr) -> Options {
    Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap())
}

/// A target with two ports, the second with a state of access.
fn config(ports: [u16; 2], second: &str) -> String {
    let [a, b] = ports;
    format!(
        "[[ports]]\nname = \"a\"\nlisten = \"tcp://127.0.0.1:{a}\"\n\
         [[ports]]\nname = \"b\"\nlisten = \"tcp://127.0.0.1:{b}\"\nana = {{ 1 = \"{second}\" }}\n\
         [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\nnamespaces = [\"mem:16Mi\"]\n"
    )
}

pub(crate) fn target() -> (Target, [SocketAddr; 2]) {
    let target = Target::start_text(&config([0, 0], "optimized")).unwrap();
    let addresses = target.addresses();
    let of = |name: &str| addresses.iter().find(|(port, _)| port == name).unwrap().1;
    let both = [of("a"), of("b")];
    (target, both)
}

/// Threads that write blocks with numbers that grow, and read them back.
pub(crate) struct Load {
    ends: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Duration>>,
}

const THREADS: u64 = 4;

impl Load {
    pub(crate) fn start(namespace: &PathNamespace) -> Self {
        let (ends, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let run = |thread: u64| {
            let (namespace, ends, rounds) = (namespace.clone(), Arc::clone(&ends), Arc::clone(&rounds));
            std::thread::spawn(move || {
                let mut longest = Duration::ZERO;
                // Large ones are split: several commands of a call are lost at once.
                let bytes = if thread == 0 { 1 << 20 } else { 4096 };
                let mut back = vec![0; bytes];
                for number in 0_u64.. {
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                    let began = Instant::now();
                    let data = (number * THREADS + thread).to_le_bytes().repeat(bytes / 8);
                    let lba = thread * 4096 + number % 8 * 8;
                    namespace.write(lba, &data, false).unwrap();
                    namespace.read(lba, &mut back).unwrap();
                    assert!(back == data, "thread {thread}, round {number}");
                    if number % 16 == 0 {
                        namespace.flush().unwrap();
                    }
                    longest = longest.max(began.elapsed());
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
                longest
            })
        };
        let threads = (0..THREADS).map(run).collect();
        Self { ends, rounds, threads }
    }

    pub(crate) fn goes_on(&self) {
        let before = self.rounds.load(Ordering::Relaxed);
        let end = Instant::now() + Duration::from_secs(20);
        while self.rounds.load(Ordering::Relaxed) < before + 200 {
            assert!(!self.threads.iter().any(JoinHandle::is_finished), "a thread has failed");
            assert!(Instant::now() < end, "I/O stands still");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The longest round of all threads.
    pub(crate) fn end(self) -> Duration {
        self.ends.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    }
}

/// Waits until as many paths are live.
pub(crate) fn await_live(subsystem: &Subsystem, count: usize) {
    let end = Instant::now() + Duration::from_secs(20);
    let live = || subsystem.paths().iter().filter(|path| path.controller.state().name() == "live").count();
    while live() != count {
        assert!(Instant::now() < end, "{} of {count} are live", live());
        std::thread::sleep(Duration::from_millis(10));
    }
}

// @test paths.library
#[test]
fn threads_go_on_over_another_path_when_one_is_cut() {
    let (target, addresses) = target();
    let relays = addresses.map(Relay::new);
    let subsystem = Subsystem::connect(&relays.each_ref().map(Relay::options)).unwrap();
    subsystem.set_policy(PathPolicy::RoundRobin);
    let namespace = subsystem.namespace(Nsid(1)).unwrap();
    assert_eq!((namespace.blocks(), namespace.block_bytes()), (32768, 512));
    let load = Load::start(&namespace);
    load.goes_on();
    assert!(subsystem.paths().iter().all(|path| path.completed > 50), "{:?}", subsystem.paths());
    for number in [0, 1, 0] {
        relays[number].set(CLOSED);
        await_live(&subsystem, 1);
        load.goes_on();
        relays[number].set(PASSES);
        await_live(&subsystem, 2);
        load.goes_on();
    }
    let longest = load.end();
    assert!(longest < Duration::from_secs(3), "a path that is closed is left at once: {longest:?}");
    subsystem.disconnect();
    assert!(matches!(namespace.read(0, &mut [0; 512]), Err(Error::NotConnected(_))));
    target.stop(Duration::from_secs(5));
}

#[test]
fn a_path_that_says_nothing_is_left_before_its_keep_alive_ends() {
    let (target, addresses) = target();
    let relays = addresses.map(Relay::new);
    let subsystem = Subsystem::connect(&relays.each_ref().map(Relay::options)).unwrap();
    let load = Load::start(&subsystem.namespace(Nsid(1)).unwrap());
    load.goes_on();
    relays[0].set(SILENT);
    load.goes_on();
    relays[0].set(PASSES);
    await_live(&subsystem, 2);
    load.goes_on();
    let longest = load.end();
    // The write of a lost controller waits for its reset through the other path, not for its time.
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    subsystem.disconnect();
    target.stop(Duration::from_secs(5));
}

#[test]
fn calls_follow_the_access_and_fail_in_time_without_a_path() {
    let (target, addresses) = target();
    let ports = addresses.map(|address| address.port());
    let relays = addresses.map(Relay::new);
    let with_limit = |relay: &Relay| {
        let mut options = relay.options();
        options.fast_io_fail_tmo = Some(Duration::from_secs(1));
        options
    };
    let subsystem = Subsystem::connect(&relays.each_ref().map(with_limit)).unwrap();
    let namespace = subsystem.namespace(Nsid(1)).unwrap();
    let load = Load::start(&namespace);
    load.goes_on();
    for (state, is_used) in [("inaccessible", false), ("persistent-loss", false), ("optimized", true)] {
        target.apply(manage::load("two.toml", &config(ports, state)).unwrap().config).unwrap();
        // It is asked for, and not used where it refuses.
        subsystem.prefer(Some(subsystem.paths()[1].id));
        load.goes_on();
        let before = subsystem.paths()[1].completed;
        load.goes_on();
        let grew = subsystem.paths()[1].completed - before;
        assert_eq!(grew > 50, is_used, "{state}: {grew}");
    }
    load.end();
    relays.iter().for_each(|relay| relay.set(CLOSED));
    let began = Instant::now();
    let error = namespace.read(0, &mut [0; 512]).unwrap_err();
    assert!(error.is_connection(), "{error}");
    let took = began.elapsed();
    assert!(took > Duration::from_millis(900) && took < Duration::from_secs(5), "{took:?}");
    relays[1].set(PASSES);
    await_live(&subsystem, 1);
    namespace.read(0, &mut [0; 512]).unwrap();
    subsystem.disconnect();
    target.stop(Duration::from_secs(5));
}

#[test]
fn addresses_that_cannot_be_reached_are_told_and_others_refused() {
    let (target, addresses) = target();
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let subsystem = Subsystem::connect(&[dead, addresses[1], addresses[0]].map(options)).unwrap();
    let unreachable: Vec<&str> = subsystem.unreachable().iter().map(|path| path.address.as_str()).collect();
    assert!(unreachable.len() == 1 && unreachable[0].contains(&dead.to_string()), "{unreachable:?}");
    assert_eq!(subsystem.paths().len(), 2);
    let first = subsystem.controller().options().address();
    assert!(first.contains(&addresses[1].to_string()), "{first}");
    // A later one is used for what is open already.
    subsystem.disconnect();
    let subsystem = Subsystem::connect(&[options(addresses[0])]).unwrap();
    let namespace = subsystem.namespace(Nsid(1)).unwrap();
    let second = subsystem.add(&options(addresses[1])).unwrap();
    assert!(subsystem.remove(subsystem.paths()[0].id));
    namespace.write(0, &[1; 512], true).unwrap();
    assert!(subsystem.paths().iter().any(|path| path.id == second && path.completed > 0));
    subsystem.disconnect();

    // Another target that has the same names, and other data.
    let (other, others) = self::target();
    let subsystem = Subsystem::connect(&[addresses[0], others[0]].map(options)).unwrap();
    let error = subsystem.namespace(Nsid(1)).unwrap_err();
    let Error::PathsDiffer(differ) = &error else { panic!("{error}") };
    assert!(differ.what == "identifiers" && differ.here != differ.there, "{error}");
    assert!(differ.address.contains(&others[0].to_string()), "{error}");
    subsystem.disconnect();
    other.stop(Duration::from_secs(5));
    let text = config([0, 0], "optimized").replace("allow_any_host", "serial = \"OTHER\"\nallow_any_host");
    let other = Target::start_text(&text).unwrap();
    let others = [other.addresses()[0].1];
    let error = Subsystem::connect(&[addresses[0], others[0]].map(options)).unwrap_err();
    let ConnectPathsError::Path { address, error: AddPathError::Controller { what, here, there } } = &error else {
        panic!("{error}");
    };
    assert!(address.contains(&others[0].to_string()) && *what == "serial number" && here != there, "{error}");
    assert!(error.to_string().contains(here) && error.to_string().contains(there), "{error}");
    let mut elsewhere = options(addresses[1]);
    elsewhere.nqn = Nqn::parse("nqn.2014-08.org.example:drive1").unwrap();
    let error = Subsystem::connect(&[options(addresses[0]), elsewhere]).unwrap_err().to_string();
    assert!(error.contains("example:drive0") && error.contains("example:drive1"), "{error}");
    let error = Subsystem::connect(&[options(dead)]).unwrap_err();
    assert!(matches!(error, ConnectPathsError::Unreachable(_)), "{error}");
    assert!(matches!(Subsystem::connect(&[]), Err(ConnectPathsError::NoAddress)));
    other.stop(Duration::from_secs(5));
    target.stop(Duration::from_secs(5));
}
