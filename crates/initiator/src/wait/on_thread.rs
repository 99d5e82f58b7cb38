//! Blocking work for a task: on a thread that ends with it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use rustix::io::Errno;

use super::lock::lock;

/// Runs blocking work on a thread of its own.
///
/// # Errors
/// The system starts no more threads.
pub(crate) async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Errno> {
    let result = Arc::new(Mutex::new(OnThread { result: None, waker: None }));
    let for_thread = Arc::clone(&result);
    let started = std::thread::Builder::new().name("nvme-connect".to_owned()).spawn(move || {
        let done = work();
        let waker = {
            let mut shared = lock(&for_thread);
            shared.result = Some(done);
            shared.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    });
    started.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
    Ok(Waiting(result).await)
}

/// The result of a thread, and the waker of the task that waits for it.
struct OnThread<T> {
    result: Option<T>,
    waker: Option<Waker>,
}

struct Waiting<T>(Arc<Mutex<OnThread<T>>>);

impl<T> Future for Waiting<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut shared = lock(&self.0);
        match shared.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                shared.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
