//! NVMe over PCI without I/O: what a directly attached host sees of a controller, and how it talks
//! to it over vfio-user.
//!
//! This crate owns the messages of vfio-user, the configuration space and the registers of the PCI
//! function, its interrupt vectors, the heads and tails of queues in the host's memory, and the way
//! from a command's data pointer to pieces of that memory. It deliberately owns no socket, no
//! descriptor, no mapping, no clock and no opinion about what a command means: bytes come in,
//! commands, effects and bytes come out, and the host's memory is a [`Memory`].
//!
//! The host is not trusted, and its memory changes while it is read: everything is copied once and
//! checked afterwards.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod errno;
pub mod function;
pub mod interrupts;
pub mod memory;
pub mod message;
pub mod pci;
pub mod pointer;
pub mod registers;
pub mod rings;

pub use errno::Errno;
pub use function::PciFunction;
pub use memory::{Fault, Memory};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
