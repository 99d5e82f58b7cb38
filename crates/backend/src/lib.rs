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
//!
//! # Modules
//!
//! A folder imports from those on lower layers only. `cargo xtask tidy` compares this table with
//! the code.
//!
//! | layer | folder | what is in it |
//! |---|---|---|
//! | 8 | `backend/lib.rs` | what the crate offers |
//! | 7 | `kinds` | which kinds of backings there are, and how they are opened; memory and the null device |
//! | 6 | `device` | what a device is; one that can be pulled out |
//! | 6 | `file` | files and block devices: opening, checks, where their data came from, interrupted changes of size |
//! | 5 | `io` | the I/O of a thread, and its engines: io_uring, threads, the caller itself, none |
//! | 4 | `job` | the steps of a request to an open file |
//! | 3 | `geometry` | size and abilities of a device, and the checks of requests |
//! | 2 | `identity` | what of a device outlives the process |
//! | 2 | `request` | requests, completions, and their memory |
//! | 2 | `resident` | devices whose bytes are in this process |
//! | 1 | `error` | errors, names of devices in them, sizes that are possible |
//! | 1 | `signal` | signals to other processes by eventfds |
//! | 1 | `vital` | aborts the process when a vital thread panics |

mod device;
mod error;
mod file;
mod geometry;
mod identity;
mod io;
mod job;
mod kinds;
mod request;
mod resident;
#[expect(unsafe_code, reason = "system calls that no safe interface has; see the rule at the top of the file")]
mod signal;
mod vital;

pub use ebof_grammar::backing::{BackingError, BlockBytes, Source, Spec};
pub use ebof_grammar::units::format_size;
pub use ebof_region::{Buffer, PAGE_BYTES, Region, SharedPiece};

pub use device::removable::{Removable, Remover};
pub use device::{Device, Submitted};
pub use error::name::Name;
pub use error::{Action, Class, Error, Holder, OpenError};
pub use file::FileDevice;
pub use file::interrupted::{Interrupted, finish_extension, finish_file, take_back_extension, take_back_file};
pub use geometry::Geometry;
pub use identity::{BackingId, DataOrigin, Persistent};
pub use io::remote::Remote;
pub use io::stats::IoStats;
pub use io::{Engine, Io, IoFactory};
pub use job::BATCH_MAX;
pub use kinds::memory::Memory;
pub use kinds::null::Null;
pub use kinds::{BackingKind, Kinds, SchemeTaken, id, open};
pub use request::segments::{Segment, Segments};
pub use request::{Completion, CompletionHook, Operation, Request};
pub use resident::{Lent, Resident};
pub use signal::{prepare_signals, signal};
pub use vital::Vital;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
