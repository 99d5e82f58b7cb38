//! TLS 1.3 with external pre-shared keys for NVMe/TCP (NVMe/TCP, Transport Layer Security): the
//! handshakes of both ends, and the records behind them as a [`Layer`](ebof_sockets::Layer) of a
//! stream.
//!
//! | | |
//! |---|---|
//! | [`first_bytes`] | whether a connection begins with TLS or in the clear |
//! | [`ServerHandshake`] | the target's end: a binder decides which key the peer means |
//! | [`ClientHandshake`] | the host's end: one key |
//! | `s2n` | the handshake itself, by s2n-tls; its unsafe code |
//! | `records` | what follows: data, KeyUpdate, alerts; made here or by the kernel ([`RecordsBy`]) |
//! | `kernel` | the system calls of the kernel's TLS; their unsafe code |
//!
//! Nothing waits and there is no thread: sockets do not block, and [`Progress`] says what to wait
//! for. It deliberately owns no time-outs, which are the caller's, and no keys: which ones there
//! are, and who may use them, is asked for. There are no certificates.

#![deny(unsafe_code)]

mod alert;
mod client;
mod client_hello;
mod error;
mod first_bytes;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod handshake;
#[expect(unsafe_code, reason = "system calls with control messages that no library has")]
mod kernel;
mod psk;
mod records;
#[expect(unsafe_code, reason = "s2n-tls calls back from C; see the rule at the top of the file")]
mod s2n;
mod schedule;
mod server;

pub use alert::Alert;
pub use client::ClientHandshake;
pub use client_hello::HelloError;
pub use error::{HandshakeError, LibraryError, OfferedIdentity};
pub use first_bytes::{FIRST_BYTES, FirstBytes, first_bytes};
pub use handshake::{Progress, Secured};
pub use kernel::NotInKernel;
pub use psk::{PskError, TlsPsk};
pub use records::{Limits, RecordError, RecordsBy};
pub use schedule::Suite;
pub use server::ServerHandshake;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
