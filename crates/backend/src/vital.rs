//! Threads that others wait for: when one of them panics, the process ends.
//!
//! A panic means that a promise of this program does not hold. A process that goes on without the
//! thread would leave hosts waiting for answers that nobody gives, and on a drive's thread it could
//! write down what is not true. A process that ends is started again by its supervisor, and its
//! drives are opened as after a kill.

/// Ends the process when it is dropped by a panic.
///
/// Make it the *last* local variable of the function that a thread runs: then it goes first, before
/// what waits as it is dropped (an [`Io`](crate::Io) waits for its requests).
#[derive(Debug)]
#[must_use = "it guards as long as it lives"]
pub struct Vital(());

impl Vital {
    /// From now on a panic of this thread ends the process.
    #[expect(clippy::new_without_default, reason = "it is made for what its end does")]
    pub fn new() -> Self {
        Self(())
    }
}

impl Drop for Vital {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("without a name");
            // The panic itself has been told on standard error.
            tracing::error!("the thread {name} has panicked, and nothing goes on without it: the process ends");
            std::process::abort();
        }
    }
}
