//! A target either serves with all its threads or does not start. The limit of open files belongs
//! to the process.

use std::time::{Duration, Instant};

use ebof_server::{Settings, StartError, Target};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::one_subsystem;
use crate::is_alone;
use crate::raw::Raw;

/// Threads that serve queues.
const THREADS: usize = 2;

// @test data.threads
#[test]
fn a_target_that_cannot_serve_with_every_thread_does_not_start() {
    if !is_alone("start::a_target_that_cannot_serve_with_every_thread_does_not_start") {
        return;
    }
    let before = getrlimit(Resource::Nofile);
    let open = descriptors();
    let mut reactor_errors = 0;
    // The limit is for descriptor numbers, and low ones may be free.
    for current in 3.. {
        assert!(current < 512, "a target needs no more descriptors than that");
        setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..before }).unwrap();
        let settings = Settings { threads: Some(THREADS), pin: false, ..Settings::default() };
        let started = Target::start(one_subsystem(["mem:1Mi"]), settings);
        setrlimit(Resource::Nofile, before).unwrap();
        match started {
            Ok(target) => {
                let address = target.addresses()[0].1;
                // Threads that are not pinned get connections round robin.
                for _ in 0..2 * THREADS {
                    drop(Raw::admin(address));
                }
                break;
            }
            Err(StartError::Reactor { index, error, .. }) => {
                assert!(index < THREADS, "{error}");
                reactor_errors += 1;
            }
            Err(StartError::Thread(_) | StartError::Listen { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        // Neither threads nor descriptors are left.
        assert_eq!(descriptors(), open);
        // The system lists a thread for a moment after it was joined.
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let names = thread_names();
            if !names.iter().any(|name| name.starts_with("ebof-")) {
                break;
            }
            assert!(Instant::now() < end, "{names:?}");
            std::thread::yield_now();
        }
    }
    assert!(reactor_errors >= THREADS, "each of them was short of descriptors once");
}

/// The number of threads, including this one.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn thread_names() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok()).collect()
}
