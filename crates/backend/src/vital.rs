//! Aborts the process when a vital thread panics.
//!
//! A panic means that an invariant does not hold. Without the thread, hosts would wait for answers
//! for ever, and a drive's thread could journal a wrong state. A supervisor starts the process
//! again, and its drives are recovered.

/// Aborts the process when it is dropped by a panic.
///
/// Make it the *last* local variable of the thread's function, so that it is dropped before others
/// whose drop may wait (an [`Io`](crate::Io) waits for its requests).
#[derive(Debug)]
#[must_use = "it guards as long as it lives"]
pub struct Vital(());

impl Vital {
    /// Aborts the process if this thread panics from now on.
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
            // The panic handler has written the message to standard error.
            tracing::error!("the thread {name} has panicked, and nothing goes on without it: the process ends");
            std::process::abort();
        }
    }
}
