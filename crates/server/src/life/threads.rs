//! The threads of a target: where they run, how they start, and that they have ended.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::drives::device::DeviceTable;
use crate::environment::settings::Settings;
use crate::life::startup::StartError;
use crate::reactor::Reactor;
use crate::shared::Shared;
use crate::shared::mailbox::Mailbox;

/// Those that were started.
#[derive(Default)]
pub(crate) struct Threads {
    started: Mutex<Vec<JoinHandle<()>>>,
    ended: Arc<Ended>,
}

/// How many threads have ended.
#[derive(Default)]
struct Ended {
    count: Mutex<usize>,
    changed: Condvar,
}

/// The end of a thread.
struct Ending(Arc<Ended>);

impl Threads {
    /// Starts the threads that serve queues. Returns when each has what it needs.
    pub(crate) fn start_reactors(
        &self,
        shared: &Arc<Shared>,
        mailboxes: Vec<Mailbox>,
        processors: &[Option<usize>],
        table: &Arc<DeviceTable>,
    ) -> Result<(), StartError> {
        let (ready, started) = mpsc::channel();
        for (index, (mailbox, processor)) in mailboxes.into_iter().zip(processors).enumerate() {
            let shared = Arc::clone(shared);
            let table = Arc::clone(table);
            let ready = ready.clone();
            // The ring of a reactor belongs to the thread that makes it.
            let serve = move || match Reactor::new(index, shared, mailbox, table, false) {
                Ok(reactor) => {
                    let _told = ready.send((index, Ok(())));
                    // The receiver has to notice a reactor that panics here.
                    drop(ready);
                    reactor.run();
                }
                Err(error) => drop(ready.send((index, Err(error)))),
            };
            self.spawn(format!("ebof-reactor{index}"), *processor, serve)?;
        }
        drop(ready);
        let mut waiting = processors.len();
        for (index, result) in started {
            let advice = "each needs a few descriptors: see `ulimit -n` and the memory left";
            result.map_err(|error| StartError::Reactor { index, error, advice })?;
            waiting -= 1;
        }
        assert!(waiting == 0, "a thread that serves queues has neither started nor said why");
        Ok(())
    }

    /// Starts a thread, on one processor or on any.
    pub(crate) fn spawn(
        &self,
        name: String,
        processor: Option<usize>,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), StartError> {
        let ending = Ending(Arc::clone(&self.ended));
        let run = move || {
            let _ending = ending;
            if let Some(processor) = processor {
                let mut set = rustix::thread::CpuSet::new();
                set.set(processor);
                if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
                    tracing::warn!(processor, "a thread cannot stay on its processor: {error}");
                }
            }
            run();
        };
        let thread = std::thread::Builder::new().name(name).spawn(run)?;
        self.started.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Whether there are any that nobody has waited for.
    pub(crate) fn is_empty(&self) -> bool {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Waits until all have ended, or until `end`; the names of those that have not.
    pub(crate) fn join(&self, end: Instant) -> Vec<String> {
        let started = std::mem::take(&mut *self.started.lock().unwrap_or_else(PoisonError::into_inner));
        let mut count = self.ended.count();
        while *count < started.len() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.ended.changed.wait_timeout(count, left);
            count = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let all_ended = *count >= started.len();
        drop(count);
        let mut hanging = Vec::new();
        for thread in started {
            if all_ended || thread.is_finished() {
                // It cannot have panicked while it served: that ends the process.
                let _ended = thread.join();
            } else {
                hanging.push(thread.thread().name().unwrap_or_default().to_owned());
            }
        }
        hanging
    }
}

impl Ended {
    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        *self.0.count() += 1;
        self.0.changed.notify_all();
    }
}

/// The processor of each reactor, or `None` where it may move.
pub(crate) fn place_reactors(settings: &Settings) -> Vec<Option<usize>> {
    let allowed: Vec<usize> = rustix::thread::sched_getaffinity(None)
        .map(|set| (0..rustix::thread::CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
        .unwrap_or_default();
    let count = settings.threads.unwrap_or(allowed.len()).max(1);
    // More threads than processors would queue up on some of them: then the system places them.
    let pin = settings.pin && count <= allowed.len();
    (0..count).map(|index| if pin { allowed.get(index).copied() } else { None }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn threads_are_waited_for_once_and_reactors_have_their_processors() {
        let threads = Threads::default();
        let (sender, receiver) = mpsc::channel();
        threads.spawn("ebof-test".to_owned(), None, move || sender.send(5).unwrap()).unwrap();
        assert_eq!(receiver.recv(), Ok(5));
        let (go_on, held) = mpsc::channel::<()>();
        threads.spawn("ebof-held".to_owned(), None, move || held.recv().unwrap_or_default()).unwrap();
        assert!(!threads.is_empty());
        assert_eq!(threads.join(Instant::now() + Duration::from_millis(20)), ["ebof-held"]);
        drop(go_on);
        assert!(threads.is_empty() && threads.join(Instant::now()).is_empty(), "they are waited for once");

        let settings = Settings { threads: Some(2), pin: false, ..Settings::default() };
        assert_eq!(place_reactors(&settings), [None, None]);
        let [Some(_)] = place_reactors(&Settings { threads: Some(1), pin: true, ..settings })[..] else {
            panic!("one thread has a processor")
        };
    }
}
