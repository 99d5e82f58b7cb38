//! The threads of a drive, how they start and end: the drive's own, one for flushes that need a
//! mark, and one that zeroes freed extents.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};

use ebof_backend::{Device, Vital};

use crate::event_loop::flusher::Flusher;
use crate::event_loop::work::WorkQueue;
use crate::event_loop::{EventLoop, refuse_all};
use crate::extents::zeroing::Zeroing;
use crate::open::medium::Medium;
use crate::open::{Opened, Ready, ready};
use crate::thin::shared::Shared;
use crate::{OpenError, Options};

/// Starts the threads of a drive; the first opens the drive itself.
pub(crate) fn start(backing: Arc<dyn Device>, options: Options) -> Result<Opened, OpenError> {
    let (sender, receiver) = mpsc::channel();
    let run = move || match ready(backing, &options) {
        Ok((mut store, ready)) => {
            let shared = Arc::clone(&store.order.shared);
            let work = Arc::clone(&ready.work);
            let (zero_requests, zeroing) = mpsc::channel();
            let mut ended = Ended { shared: Arc::clone(&shared), work: Arc::clone(&work), threads: Vec::new() };
            let started = start_flusher(&shared, &options).and_then(|flusher| {
                ended.threads.push(flusher);
                start_zeroing(&shared, &options, zeroing)
            });
            match started {
                Ok(zeroing) => ended.threads.push(zeroing),
                Err(error) => return drop(sender.send(Err(OpenError::Thread(error)))),
            }
            store.order.extents.set_zeroing_thread(zero_requests);
            drop(shared);
            if sender.send(Ok(ready)).is_ok() {
                EventLoop::new(store, work).serve();
            } else {
                // With the sender that the zeroing thread waits for.
                drop(store);
            }
            drop(ended);
        }
        Err(error) => drop(sender.send(Err(error))),
    };
    let thread = Builder::new().name("ebof-drive".to_owned()).spawn(run).map_err(OpenError::Thread)?;
    let gone = || OpenError::Thread(io::Error::other("it ended before the drive was open"));
    let ready: Ready = receiver.recv().map_err(|_| gone())??;
    let medium = Medium::with_thread(Arc::clone(&ready.shared), Arc::clone(&ready.work), thread);
    Ok(ready.opened(medium))
}

/// It ends when no flushes come any more ([`Shared::stop_flushes`]).
fn start_flusher(shared: &Arc<Shared>, options: &Options) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let options = options.clone();
    Builder::new().name("ebof-flush".to_owned()).spawn(move || {
        // Without this thread flushes would never complete.
        let _vital = Vital::new();
        let mut flusher = Flusher::new(&shared, &options);
        while let Some(flushes) = shared.wait_for_flushes() {
            flusher.flush(flushes);
        }
    })
}

/// It ends when the sender is dropped.
fn start_zeroing(
    shared: &Arc<Shared>,
    options: &Options,
    zero_requests: mpsc::Receiver<crate::extents::zeroing::ZeroRequest>,
) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let options = options.clone();
    Builder::new().name("ebof-zero".to_owned()).spawn(move || {
        // Without this thread freed extents would never be usable again.
        let _vital = Vital::new();
        let mut zeroing = Zeroing::new(&shared, &options);
        zero_requests.into_iter().for_each(|request| zeroing.zero(request));
    })
}

/// Refuses what is pending and joins the other threads when the drive's thread ends, however it
/// ends.
struct Ended {
    shared: Arc<Shared>,
    work: Arc<WorkQueue>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        refuse_all(&self.shared, &self.work);
        for thread in self.threads.drain(..) {
            // It cannot have panicked: that ends the process.
            let _ended = thread.join();
        }
        // Namespaces and `shared` hold each other: the backing device is closed with the last
        // namespace that a caller holds.
        self.shared.drop_namespaces();
    }
}
