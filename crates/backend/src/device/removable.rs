//! A device that can be pulled out: from then on every request fails as if it had been unplugged.
//!
//! Requests that the device has begun end as they end there: nobody can take them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Class, Device, Error, FileDevice, Geometry, Io, Persistent, Request, Resident, Segments, Submitted};

/// A device that can be pulled out by its [`Remover`].
#[derive(Debug)]
pub struct Removable {
    inner: Arc<dyn Device>,
    is_gone: Arc<AtomicBool>,
}

/// Pulls a device out.
#[derive(Clone, Debug)]
pub struct Remover(Arc<AtomicBool>);

impl Removable {
    /// Makes a device removable.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> (Self, Remover) {
        let is_gone = Arc::new(AtomicBool::new(false));
        (Self { inner, is_gone: Arc::clone(&is_gone) }, Remover(is_gone))
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

impl Remover {
    /// Pulls the device out: requests that are submitted from now on fail with [`Class::Gone`].
    pub fn remove(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Device for Removable {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        if self.is_gone() {
            let action = request.operation.action();
            let error = Error::Refused { action, offset: 0, len: 0, class: Class::Gone, reason: "it was removed" };
            return Submitted::Done(request.complete(Err(error)));
        }
        self.inner.submit(io, request)
    }

    fn uses(&self, memory: &Segments) -> bool {
        self.inner.uses(memory)
    }

    fn resident(&self) -> Option<&dyn Resident> {
        self.inner.resident().filter(|_| !self.is_gone())
    }

    fn file(&self) -> Option<&FileDevice> {
        self.inner.file()
    }

    fn persistent(&self) -> Option<&dyn Persistent> {
        self.inner.persistent()
    }

    fn next_data(&self, from: u64) -> Option<u64> {
        self.inner.next_data(from)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Memory, Operation};

    #[test]
    fn requests_fail_once_the_device_is_removed() {
        let (device, remover) = Removable::new(Arc::new(Memory::new(1 << 20, 512, false)));
        let mut io = Io::new(8).unwrap();
        let mut read = || {
            let operation = Operation::Read { offset: 0, len: 512, data: Buffer::zeroed(512).into() };
            match device.submit(&mut io, Request::new(1, operation)) {
                Submitted::Done(completion) => completion.result,
                other => panic!("{other:?}"),
            }
        };
        read().unwrap();
        assert!(device.resident().is_some());
        remover.remove();
        assert_eq!(read().unwrap_err().class(), Class::Gone);
        assert!(device.resident().is_none());
    }
}
