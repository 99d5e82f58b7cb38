//! What adapters know of a region: a list that only grows, read without a lock.
//!
//! Owns the list of one region. What a registration stands for is its adapter's matter.

use std::any::Any;
use std::fmt::Debug;
use std::sync::OnceLock;

/// What somebody who moves the bytes of a region has made to be able to do so, such as a memory
/// region of an RDMA adapter. The region keeps it, and drops it before its pages are freed: by then
/// nobody may access them any more.
pub trait Registration: Any + Send + Sync + Debug {
    /// Who made it: a number that is unique in the process.
    fn owner(&self) -> u64;
}

/// The registrations of one region.
#[derive(Debug, Default)]
pub(crate) struct Registrations(OnceLock<Box<Node>>);

#[derive(Debug)]
struct Node {
    registration: Box<dyn Registration>,
    next: Registrations,
}

impl Registrations {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    /// The registration of `owner`, if it is a `T`. As fast as the list is short: it has one entry
    /// for each adapter.
    #[inline]
    pub(crate) fn find<T: Registration>(&self, owner: u64) -> Option<&T> {
        let mut node = self.0.get();
        while let Some(at) = node {
            if at.registration.owner() == owner {
                return (&*at.registration as &dyn Any).downcast_ref();
            }
            node = at.next.0.get();
        }
        None
    }

    /// Appends `registration`, unless its owner has one already: then it is given back.
    pub(crate) fn add<T: Registration>(&self, registration: T) -> Result<(), T> {
        let owner = registration.owner();
        let mut list = self;
        let mut new = Some(registration);
        loop {
            let node = list.0.get_or_init(|| {
                // Taken once at most: later lists are reached only if this was not called.
                let registration = new.take().map(|registration| Box::new(registration) as Box<dyn Registration>);
                let registration = registration.expect("a list is made by the first that needs it");
                Box::new(Node { registration, next: Self::default() })
            });
            match new.take() {
                None => return Ok(()),
                Some(registration) if node.registration.owner() == owner => return Err(registration),
                Some(registration) => new = Some(registration),
            }
            list = &node.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Debug)]
    struct Key(u64, u32, Arc<AtomicUsize>);

    impl Registration for Key {
        fn owner(&self) -> u64 {
            self.0
        }
    }

    impl Drop for Key {
        fn drop(&mut self) {
            self.2.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_owner_has_one_registration_and_the_first_stays() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let key = |owner, key| Key(owner, key, Arc::clone(&dropped));
        let list = Registrations::default();
        assert!(list.is_empty() && list.find::<Key>(1).is_none());
        assert!(list.add(key(1, 10)).is_ok() && list.add(key(2, 20)).is_ok());
        assert_eq!(list.add(key(1, 11)).unwrap_err().1, 11);
        assert_eq!([1, 2].map(|owner| list.find::<Key>(owner).unwrap().1), [10, 20]);
        assert!(list.find::<Key>(3).is_none() && !list.is_empty());
        assert_eq!(dropped.load(Ordering::Relaxed), 1, "the refused one");
        drop(list);
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn of_several_threads_one_registers() {
        let list = Registrations::default();
        let dropped = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (list, dropped) = (&list, &dropped);
                scope.spawn(move || {
                    for owner in 0..4 {
                        let _ = list.add(Key(owner, thread, Arc::clone(dropped)));
                        assert!(list.find::<Key>(owner).is_some());
                    }
                });
            }
        });
        assert_eq!(dropped.load(Ordering::Relaxed), 8 * 4 - 4);
    }
}
