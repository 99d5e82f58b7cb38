//! The source that a load runs against: a namespace of a target, or a local device.

use std::fmt;
use std::sync::Arc;

use ebof_backend::{Device, Spec};
use ebof_initiator::{
    ConnectError, ConnectPathsError, Controller, Namespace, Options, PathNamespace, Queues, Subsystem,
};
use ebof_nvme::Nsid;

use crate::block::Block;
use crate::job::Job;

/// The source of a load.
#[derive(Clone)]
pub enum Source {
    /// A namespace, over NVMe/TCP. Number and size of the queues follow the job, unless
    /// [`QueueUse`] says otherwise.
    Fabric(Box<Options>, Nsid),
    /// The same over several paths: each thread has a queue over each of them. What is about a path
    /// is repeated over another one.
    Paths(Vec<Options>, Nsid),
    /// A file, a block device, memory or null, on this machine. Files and devices bypass the page
    /// cache if possible, unless the specification says otherwise.
    Local(Spec),
    /// A device that is open already, with its name in reports: what is in memory is kept from one
    /// load to the next.
    Device(Arc<dyn Device>, String),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

/// The error of opening a source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Connecting failed.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Connecting the paths failed.
    #[error(transparent)]
    Paths(Box<ConnectPathsError>),
    /// Threads cannot share queues over several paths.
    #[error("threads do not share queues over several paths: leave the numbers of queues away, and each has its own")]
    SharedPaths,
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

impl From<ConnectPathsError> for SourceError {
    fn from(error: ConnectPathsError) -> Self {
        Self::Paths(Box::new(error))
    }
}

/// The queues of a controller that the threads of a load use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueUse {
    /// Whether all threads share the queues that the source's options request: each operation uses
    /// one of its class (read, poll or default) for its processor, as for a block device. Otherwise
    /// each thread has its own queue.
    pub shared: bool,
    /// Entries of a queue; `None` follows the depth.
    pub size: Option<u16>,
}

/// An open source.
pub(crate) enum OpenedSource {
    Fabric { controller: Controller, namespace: Namespace, queues: Option<Queues<Block>> },
    Paths { subsystem: Subsystem, namespace: PathNamespace },
    Local(Arc<dyn Device>),
}

impl Source {
    /// A local device in the syntax of `ebof serve`. `bypass_cache` sets whether to bypass the page
    /// cache, unless `text` does; `None` bypasses it if that is possible.
    ///
    /// # Errors
    /// `text` is invalid.
    pub fn local(text: &str, bypass_cache: Option<bool>) -> Result<Self, ebof_backend::BackingError> {
        let mut spec: Spec = text.parse()?;
        if let ebof_backend::Source::Path { direct: said, .. } = &mut spec.source {
            *said = said.or(bypass_cache);
        }
        Ok(Self::Local(spec))
    }

    /// For jobs that run together.
    pub(crate) fn open(&self, jobs: &[Job], queues: QueueUse) -> Result<OpenedSource, SourceError> {
        match self {
            Self::Fabric(options, nsid) => {
                let mut options = (**options).clone();
                if queues.shared {
                    options.queue_size = queues.size.unwrap_or(options.queue_size);
                } else {
                    one_for_each_thread(&mut options, jobs, queues);
                }
                let controller = Controller::connect(&options)?;
                let opened = controller.namespace(*nsid).and_then(|namespace| {
                    let queues = if queues.shared { Some(Queues::new(&controller)?) } else { None };
                    Ok(OpenedSource::Fabric { controller: controller.clone(), namespace, queues })
                });
                if opened.is_err() {
                    controller.disconnect();
                }
                Ok(opened?)
            }
            Self::Paths(_, _) if queues.shared => Err(SourceError::SharedPaths),
            Self::Paths(paths, nsid) => {
                let mut paths = paths.clone();
                paths.iter_mut().for_each(|options| one_for_each_thread(options, jobs, queues));
                let subsystem = Subsystem::connect(&paths)?;
                // What is measured would be something else.
                if !subsystem.unreachable().is_empty() {
                    subsystem.disconnect();
                    return Err(ConnectPathsError::Unreachable(subsystem.unreachable().to_vec()).into());
                }
                match subsystem.namespace(*nsid) {
                    Ok(namespace) => Ok(OpenedSource::Paths { subsystem, namespace }),
                    Err(error) => {
                        subsystem.disconnect();
                        Err(error.into())
                    }
                }
            }
            Self::Local(spec) => Ok(OpenedSource::Local(open_direct(spec)?)),
            Self::Device(device, _) => Ok(OpenedSource::Local(Arc::clone(device))),
        }
    }

    /// The source in reports: its URI, or the device's specification.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Fabric(options, nsid) => uri(options, *nsid),
            Self::Paths(paths, nsid) => paths.iter().map(|path| uri(path, *nsid)).collect::<Vec<_>>().join(","),
            Self::Local(spec) => match &spec.source {
                ebof_backend::Source::Memory { .. } => "mem".to_owned(),
                ebof_backend::Source::Null { .. } => "null".to_owned(),
                ebof_backend::Source::Path { path, .. } => path.display().to_string(),
                ebof_backend::Source::Named { scheme, name } => format!("{scheme}:{name}"),
            },
            Self::Device(_, name) => name.clone(),
        }
    }
}

/// Each thread of the jobs has a queue of its own.
fn one_for_each_thread(options: &mut Options, jobs: &[Job], queues: QueueUse) {
    let depth = jobs.iter().map(|job| job.depth).max().unwrap_or(1);
    let threads = jobs.iter().fold(0, |sum: u16, job| sum.saturating_add(job.threads));
    (options.nr_io_queues, options.nr_write_queues, options.nr_poll_queues) = (threads, 0, 0);
    options.queue_size = queues.size.unwrap_or(depth.saturating_add(1));
}

fn uri(options: &Options, nsid: Nsid) -> String {
    let transport = options.transport.protocol().name();
    format!("nvme+{transport}://{}/{}/{nsid}", options.address(), options.nqn)
}

/// Opens a local device; bypasses the page cache, or uses it if the file system does not support
/// that, unless `spec` says which.
///
/// # Errors
/// As [`ebof_backend::open`].
pub fn open_direct(spec: &Spec) -> Result<Arc<dyn Device>, ebof_backend::OpenError> {
    let ebof_backend::Source::Path { path, size_bytes, direct: None } = &spec.source else {
        return ebof_backend::open(spec);
    };
    let source = ebof_backend::Source::Path { path: path.clone(), size_bytes: *size_bytes, direct: Some(true) };
    ebof_backend::open(&Spec { source, ..spec.clone() }).or_else(|_| ebof_backend::open(spec))
}

impl Drop for OpenedSource {
    /// Says goodbye: a process that only ends looks to the target like one that crashed.
    fn drop(&mut self) {
        match self {
            Self::Fabric { controller, queues, .. } => {
                *queues = None;
                controller.clone().disconnect();
            }
            Self::Paths { subsystem, .. } => subsystem.disconnect(),
            Self::Local(_) => {}
        }
    }
}

impl OpenedSource {
    /// Size in bytes, block in bytes, and the largest transfer in bytes.
    pub(crate) fn geometry(&self) -> (u64, u32, u64) {
        match self {
            Self::Fabric { namespace, .. } => {
                let size = u64::try_from(namespace.size_bytes()).unwrap_or(u64::MAX);
                let block = namespace.block_bytes();
                (size, block, u64::from(namespace.max_transfer_blocks()) * u64::from(block))
            }
            Self::Paths { namespace, .. } => {
                let size = u64::try_from(namespace.size_bytes()).unwrap_or(u64::MAX);
                let block = namespace.block_bytes();
                (size, block, u64::from(namespace.max_transfer_blocks()) * u64::from(block))
            }
            Self::Local(device) => {
                let geometry = device.geometry();
                // Verification and reports use units of at least 512 bytes.
                (geometry.capacity_bytes, geometry.block_bytes.max(512), u64::MAX)
            }
        }
    }
}
