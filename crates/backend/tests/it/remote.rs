//! Requests that another thread completes, on both engines, those that the same thread completes
//! without an engine, and companions of requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{LIMIT, engines, open_text, write_of};
use ebof_backend::{Buffer, Class, Completion, CompletionHook, Io, Operation, Remote, Request, Segments, Submitted};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

fn completion(tag: u64) -> Completion {
    Completion { tag, result: Ok(()), data: None }
}

/// Completes requests from another thread, after `pause`.
fn deliver(remotes: Vec<(u64, Remote)>, pause: Duration) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for (tag, remote) in remotes {
            std::thread::sleep(pause);
            remote.deliver(completion(tag));
        }
    })
}

/// Sleeps on the descriptor alone, as a reactor does.
fn sleep_on(io: &Io) {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll set");
    epoll::add(&set, io.descriptor().expect("one of the system"), epoll::EventData::new_u64(0), epoll::EventFlags::IN)
        .expect("a descriptor that can be watched");
    let timeout = Timespec { tv_sec: 60, tv_nsec: 0 };
    let woken = epoll::wait(&set, spare_capacity(&mut Vec::with_capacity(1)), Some(&timeout));
    assert!(matches!(woken, Ok(1..) | Err(Errno::INTR)), "{:?}: nobody woke the sleeper: {woken:?}", io.engine());
}

#[test]
fn a_thread_that_sleeps_on_the_descriptor_is_woken_each_time() {
    for mut io in engines(8) {
        // Several times: the watch has to be renewed, with requests in flight and without.
        for round in 0..50 {
            let remotes = (0..=round % 3).map(|tag| (tag, io.remote().unwrap())).collect::<Vec<_>>();
            let count = remotes.len();
            assert_eq!(io.in_flight(), count);
            io.kick().unwrap();
            assert!(io.poll().is_none());
            let thread = deliver(remotes, Duration::from_millis(1));
            let mut tags = Vec::new();
            while tags.len() < count {
                while let Some(completion) = io.poll() {
                    tags.push(completion.tag);
                }
                if tags.len() < count {
                    io.kick().unwrap();
                    sleep_on(&io);
                }
            }
            assert_eq!(tags, (0..=round % 3).collect::<Vec<_>>());
            assert_eq!((io.in_flight(), io.poll().is_none()), (0, true));
            thread.join().unwrap();
        }
    }
}

#[test]
fn waiting_returns_completions_of_other_threads_and_of_the_device() {
    for mut io in engines(8) {
        let directory = tempfile::tempdir().unwrap();
        let device = open_text(&format!("{}/disk.img:1Mi", directory.path().display()));
        for _ in 0..20 {
            let remotes = vec![(100, io.remote().unwrap()), (101, io.remote().unwrap())];
            for tag in 0..3 {
                let submitted = device.submit(&mut io, Request::new(tag, write_of(tag * 4096, &[1; 4096], false)));
                assert!(matches!(submitted, Submitted::Pending));
            }
            let thread = deliver(remotes, Duration::from_millis(1));
            let mut tags = Vec::new();
            while let Some(completion) = io.wait(LIMIT).unwrap() {
                completion.result.unwrap();
                tags.push(completion.tag);
            }
            tags.sort_unstable();
            assert_eq!(tags, [0, 1, 2, 100, 101]);
            thread.join().unwrap();
        }
    }
}

#[test]
fn requests_in_flight_are_limited_and_a_remote_outlives_the_io() {
    for mut io in engines(2) {
        let (first, second) = (io.remote().unwrap(), io.remote().unwrap());
        assert!(io.remote().is_none());
        assert!(!io.cancel(1), "only its device could stop it");
        assert!(io.wait(Some(Duration::from_millis(1))).unwrap().is_none());
        first.deliver(completion(1));
        assert_eq!(io.wait(LIMIT).unwrap().unwrap().tag, 1);
        let third = io.remote().unwrap();
        drop(io);
        second.deliver(completion(2));
        third.deliver(completion(3));
    }
}

#[test]
fn without_an_engine_waiting_calls_advance() {
    let pending: Arc<Mutex<Vec<(u64, Remote)>>> = Arc::default();
    let model = Arc::clone(&pending);
    let advance = move || {
        // In reverse order, as a disk might.
        let next = model.lock().expect("nobody panicked with it").pop();
        next.map(|(tag, remote)| remote.deliver(completion(tag))).is_some()
    };
    let mut io = Io::external(3, Box::new(advance));
    assert!(io.descriptor().is_none() && io.engine().is_none());
    assert!(io.wait(None).unwrap().is_none(), "nothing is in flight");
    for tag in 0..3 {
        let remote = io.remote().unwrap();
        pending.lock().unwrap().push((tag, remote));
    }
    assert!(io.remote().is_none() && io.poll().is_none());
    let order: Vec<u64> = std::iter::from_fn(|| io.wait(None).unwrap()).map(|completion| completion.tag).collect();
    assert_eq!(order, [2, 1, 0]);
    assert_eq!((io.in_flight(), io.stats().completed), (0, 3));
    // A request that has not completed: a wait with a time-out ends, and the request does not.
    let remote = io.remote().unwrap();
    assert!(io.wait(LIMIT).unwrap().is_none());
    remote.deliver(completion(7));
    assert_eq!(io.poll().unwrap().tag, 7);
    // Requests to a file need an engine.
    let directory = tempfile::tempdir().unwrap();
    let file = open_text(&format!("{}/disk.img:1Mi", directory.path().display()));
    assert!(matches!(file.submit(&mut io, Request::new(8, write_of(0, &[1; 4096], false))), Submitted::Pending));
    let refused = io.wait(None).unwrap().unwrap();
    assert_eq!((refused.tag, refused.result.unwrap_err().class()), (8, Class::Unsupported));
}

#[derive(Debug, Default)]
struct Spoiler {
    seen: Mutex<Vec<u64>>,
    held: AtomicU64,
}

impl CompletionHook for Spoiler {
    fn finish(&self, completion: &mut Completion) {
        self.seen.lock().expect("nobody panicked with it").push(completion.tag);
        self.held.fetch_add(1, Ordering::SeqCst);
        if let Some(buffer) = completion.data.as_mut().and_then(Segments::as_mut_buffer) {
            buffer.as_mut_slice()[0] ^= 0xff;
        }
    }
}

#[test]
fn a_requests_companion_sees_the_completion_first_and_is_dropped_with_it() {
    for mut io in engines(8) {
        let directory = tempfile::tempdir().unwrap();
        for drive in
            [format!("{}/disk.img:1Mi", directory.path().display()), "mem:1Mi".to_owned(), "null:1Mi".to_owned()]
        {
            let device = open_text(&drive);
            let after = Arc::new(Spoiler::default());
            for tag in 0..4 {
                let operation = Operation::Read { offset: 0, len: 4096, data: Buffer::zeroed(4096).into() };
                let request = Request {
                    hook: Some(Arc::clone(&after) as Arc<dyn CompletionHook>),
                    ..Request::new(tag, operation)
                };
                let done = match device.submit(&mut io, request) {
                    Submitted::Done(completion) => completion,
                    Submitted::Pending => {
                        assert_eq!(Arc::strong_count(&after), 2, "held while the request is under way");
                        io.wait(LIMIT).unwrap().unwrap()
                    }
                    Submitted::Busy(_) => panic!("nothing else is in flight"),
                };
                assert_eq!(done.data.unwrap().into_buffer().unwrap().as_slice()[0], 0xff, "{drive}");
                assert_eq!(Arc::strong_count(&after), 1);
            }
            assert_eq!(*after.seen.lock().unwrap(), [0, 1, 2, 3]);
        }
    }
}
