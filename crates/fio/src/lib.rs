//! An I/O engine for the stock fio:
//! `fio --ioengine=external:/path/libebof_fio.so --filename=URI ...` loads namespaces of NVMe/TCP
//! targets, without a kernel module and without a block device.
//!
//! `layout` knows how fio's structures lie in memory, `trampoline` is what fio calls, `memory` is
//! what it lends: these two are the unsafe part (docs/adr). What a job is (`job`), what a file name
//! means (`place`) and how the engine's options are read (`settings`) is safe code that knows
//! nothing of fio's structures. How to use it: docs/fio.md.

mod address;
mod failure;
mod geometry;
mod job;
mod layout;
mod memory;
mod settings;
mod trampoline;
mod version;
