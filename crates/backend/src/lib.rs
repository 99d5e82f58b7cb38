//! Block devices: bytes at offsets.
//!
//! Owns everything between "read these bytes of that device" and the kernel: opening drives, the
//! io_uring (or the threads that replace it), and the requests in flight.
//! Knows nothing of NVMe, logical block addresses or sockets: the caller converts blocks to bytes,
//! and [`Class`] to a status.
//!
//! ```no_run
//! use ebof_backend::{Buffer, Device as _, Io, Operation, Request, Spec, Submitted, open};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = open(&"disk.img:10G".parse::<Spec>()?)?;
//! let mut io = Io::new(128)?;
//! let operation = Operation::Read { offset: 0, len: 4096, data: Buffer::zeroed(4096).into() };
//! let completion = match device.submit(&mut io, Request::new(7, operation)) {
//!     Submitted::Done(completion) => Some(completion),
//!     Submitted::Pending => io.wait(None)?, // a reactor calls kick() once per turn, then poll() until None
//!     Submitted::Busy(_request) => None,    // as many in flight as Io allows: submit again after a completion
//! };
//! # drop(completion);
//! # Ok(())
//! # }
//! ```

mod bounce;
mod caller;
mod device;
mod error;
mod external;
mod file;
mod geometry;
mod identity;
mod interrupted;
mod io;
mod job;
mod kinds;
mod memory;
mod name;
mod null;
mod open_file;
mod registered;
mod remote;
mod removable;
mod request;
mod resident;
mod segments;
#[expect(unsafe_code, reason = "system calls that no safe interface has; see the rule at the top of the file")]
mod signal;
mod size;
mod stats;
mod threads;
#[expect(unsafe_code, reason = "io_uring entries point into buffers; see the rule at the top of the file")]
mod uring;
mod vital;

pub use ebof_grammar::backing::{BackingError, BlockBytes, Source, Spec};
pub use ebof_grammar::units::format_size;
pub use ebof_region::{Buffer, PAGE_BYTES, Region, SharedPiece};

pub use device::{Device, Submitted};
pub use error::{Action, Class, Error, Holder, OpenError};
pub use file::FileDevice;
pub use geometry::Geometry;
pub use identity::{BackingId, DataOrigin, Persistent};
pub use interrupted::{Interrupted, finish_extension, finish_file, take_back_extension, take_back_file};
pub use io::{Engine, Io, IoFactory};
pub use job::BATCH_MAX;
pub use kinds::{BackingKind, Kinds, SchemeTaken, id, open};
pub use memory::Memory;
pub use name::Name;
pub use null::Null;
pub use remote::Remote;
pub use removable::{Removable, Remover};
pub use request::{Completion, CompletionHook, Operation, Request};
pub use resident::{Lent, Resident};
pub use segments::{Segment, Segments};
pub use signal::{prepare_signals, signal};
pub use stats::IoStats;
pub use vital::Vital;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
