//! Taking locks whose critical sections cannot leave a broken value behind.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also when a thread died with the lock held: every critical section leaves a consistent
/// value.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
