//! Notices the moment at which nothing is left of what many queues had at devices.

use std::fmt;
use std::sync::Arc;

/// Held by everybody who is waited for; when the last clone is dropped, the end is noticed. A
/// connection that goes away counts as one that has nothing left.
#[derive(Clone)]
pub(crate) struct DrainToken(Arc<Finally>);

/// What is called when it is dropped.
struct Finally(Option<Box<dyn FnOnce() + Send + Sync>>);

impl DrainToken {
    /// Has `done` called on the thread that drops the last clone.
    pub(crate) fn new(done: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Finally(Some(Box::new(done)))))
    }
}

impl fmt::Debug for DrainToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DrainToken({} holders)", Arc::strong_count(&self.0))
    }
}

impl Drop for Finally {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn the_end_is_noticed_once() {
        let ends = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&ends);
        let token = DrainToken::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let other = token.clone();
        drop(token);
        assert_eq!(ends.load(Ordering::Relaxed), 0);
        drop(other);
        assert_eq!(ends.load(Ordering::Relaxed), 1);
    }
}
