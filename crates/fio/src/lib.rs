//! An I/O engine for the stock fio:
//! `fio --ioengine=external:/path/libebof_fio.so --filename=URI ...` loads namespaces of NVMe/TCP
//! targets, without a kernel module and without a block device.
//!
//! `layout` has the layouts of fio's structures, `trampoline` the functions that fio calls,
//! `memory` the access to fio's memory; the latter two have the unsafe code (docs/adr). Jobs
//! (`job`), file names (`address`) and the engine's options (`settings`) are safe code without
//! fio's structures. The manual is docs/fio.md.

mod address;
mod failure;
mod geometry;
mod job;
mod layout;
mod memory;
mod queue;
mod settings;
mod trampoline;
mod version;
