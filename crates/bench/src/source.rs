//! What a load runs against, opened: a namespace of a target, or a local device.

use std::sync::Arc;

use ebof_backend::{Device, Spec};
use ebof_initiator::{ConnectError, Controller, Namespace, Options};
use ebof_nvme::Nsid;

use crate::job::Job;

/// What a load runs against.
#[derive(Clone, Debug)]
pub enum Source {
    /// A namespace, over NVMe/TCP. Number and size of the queues follow the job.
    Fabric(Box<Options>, Nsid),
    /// A file, a block device, memory or null, on this machine. Files and devices are used past the page cache where
    /// that is possible, unless the specification says otherwise.
    Local(Spec),
}

/// Why it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Connecting failed.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The controller or the namespace cannot be used.
    #[error(transparent)]
    Fabric(#[from] ebof_initiator::Error),
    /// The local device cannot be opened.
    #[error(transparent)]
    Open(#[from] ebof_backend::OpenError),
    /// The local device fails.
    #[error(transparent)]
    Device(#[from] ebof_backend::Error),
}

/// A source that is open.
pub(crate) enum Opened {
    Fabric(Controller, Namespace),
    Local(Arc<dyn Device>),
}

impl Source {
    pub(crate) fn open(&self, job: &Job) -> Result<Opened, SourceError> {
        match self {
            Self::Fabric(options, nsid) => {
                let mut options = (**options).clone();
                (options.nr_io_queues, options.nr_write_queues, options.nr_poll_queues) = (job.threads, 0, 0);
                options.queue_size = job.depth.saturating_add(1);
                let controller = Controller::connect(&options)?;
                let namespace = controller.namespace(*nsid)?;
                Ok(Opened::Fabric(controller, namespace))
            }
            Self::Local(spec) => Ok(Opened::Local(open_direct(spec)?)),
        }
    }

    /// For reports: `nvme+tcp://...` or the device's own words.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Fabric(options, nsid) => format!("nvme+tcp://{}/{}/{nsid}", options.address(), options.nqn),
            Self::Local(spec) => match &spec.source {
                ebof_backend::Source::Memory { .. } => "mem".to_owned(),
                ebof_backend::Source::Null { .. } => "null".to_owned(),
                ebof_backend::Source::Path { path, .. } => path.display().to_string(),
            },
        }
    }
}

/// Past the page cache, or through it where the file system cannot.
fn open_direct(spec: &Spec) -> Result<Arc<dyn Device>, ebof_backend::OpenError> {
    let ebof_backend::Source::Path { path, size_bytes, direct: None } = &spec.source else {
        return ebof_backend::open(spec);
    };
    let source = ebof_backend::Source::Path { path: path.clone(), size_bytes: *size_bytes, direct: Some(true) };
    ebof_backend::open(&Spec { source, ..spec.clone() }).or_else(|_| ebof_backend::open(spec))
}

impl Opened {
    /// Size in bytes, block in bytes, and the largest transfer in bytes.
    pub(crate) fn geometry(&self) -> (u64, u32, u64) {
        match self {
            Self::Fabric(_, namespace) => {
                let size = u64::try_from(namespace.size_bytes()).unwrap_or(u64::MAX);
                let block = namespace.block_bytes();
                (size, block, u64::from(namespace.max_transfer_blocks()) * u64::from(block))
            }
            Self::Local(device) => {
                let geometry = device.geometry();
                // Verification and reports think in 512 bytes at least.
                (geometry.capacity_bytes, geometry.block_bytes.max(512), u64::MAX)
            }
        }
    }
}
