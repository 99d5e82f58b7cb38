//! A device that keeps commands for as long as a test wants.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ebof_backend::{Device, Geometry, Io, Memory, OpenError, Request, Spec, Submitted};
use ebof_server::Storage;

/// A device that begins nothing while it is shut.
#[derive(Debug)]
struct Gate {
    memory: Memory,
    open: Arc<AtomicBool>,
}

impl Device for Gate {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        if self.open.load(Relaxed) { self.memory.submit(io, request) } else { Submitted::Busy(request) }
    }

    fn describe(&self) -> String {
        "a gate".to_owned()
    }
}

/// Has one such device.
pub(crate) struct Gates(pub(crate) Arc<AtomicBool>);

impl Storage for Gates {
    fn open(&self, _spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
        let memory = Memory::new(16 << 20, 512, false);
        Ok(Arc::new(Gate { memory, open: Arc::clone(&self.0) }))
    }

    fn is_missing(&self, _path: &Path) -> bool {
        false
    }

    fn remove(&self, _path: &Path) {}
}
