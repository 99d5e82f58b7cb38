//! What can go wrong, apart from work that fails.

use std::io;
use std::net::{IpAddr, SocketAddr};

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A function of rdma-core, and what it returned.
    #[error("{call}: {source}")]
    Call {
        /// Its name.
        call: &'static str,
        /// The error number.
        source: io::Error,
    },
    /// The kernel's connection manager cannot be reached by programs.
    #[error("the kernel's RDMA connection manager is not available ({0}): load the module rdma_ucm")]
    ConnectionManager(#[source] io::Error),
    /// Memory could not be registered with the device.
    #[error("cannot register {bytes} bytes with the RDMA device: {source}{}", memory_limit(.source))]
    Register {
        /// Size of the region.
        bytes: usize,
        /// What the kernel says.
        source: io::Error,
    },
    /// No RDMA device belongs to a local address.
    #[error("no RDMA device has the address {0}")]
    NoDevice(IpAddr),
    /// The peer's address could not be resolved: no RDMA device reaches it, or it does not answer.
    #[error("cannot resolve the address {to} over RDMA: {source}")]
    Address {
        /// The peer.
        to: SocketAddr,
        /// What the connection manager reported.
        source: io::Error,
    },
    /// There is no route to the peer.
    #[error("cannot resolve the route to {to} over RDMA: {source}")]
    Route {
        /// The peer.
        to: SocketAddr,
        /// What the connection manager reported.
        source: io::Error,
    },
    /// Nobody listens at the peer's address. iWARP devices that connect at once report it by the
    /// call; otherwise it is [`Event::Rejected`](crate::Event::Rejected).
    #[error("{0} refused the connection: nobody listens there")]
    Refused(SocketAddr),
    /// Somebody listens at the address.
    #[error("the address {0} is in use")]
    AddressInUse(SocketAddr),
    /// More than the device supports.
    #[error("{wanted} {what}, but the RDMA device supports only {max}")]
    Limit {
        /// Of what, in the plural.
        what: &'static str,
        /// As requested.
        wanted: u64,
        /// The limit.
        max: u64,
    },
    /// The device makes no queue pair: too large a one, or one too many.
    #[error("the RDMA device makes no queue pair with {sends} entries to send and {receives} to receive: {source}")]
    QueuePair {
        /// Entries of the send queue.
        sends: u32,
        /// Entries of the receive queue.
        receives: u32,
        /// What the system says.
        source: io::Error,
    },
    /// Private data are too long.
    #[error("{length} bytes of private data, but at most {max} can be sent")]
    PrivateData {
        /// As given.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// Not possible in this state of the connection.
    #[error("the queue pair is {0}")]
    State(&'static str),
    /// The device is gone.
    #[error("the RDMA device was removed")]
    DeviceRemoved,
}

/// Registered memory is locked.
fn memory_limit(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::OutOfMemory => " (the limit of locked memory may be too low: `ulimit -l`)",
        _ => "",
    }
}

/// RDMA cannot be used in this process.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LoadError {
    /// A library is not installed.
    #[error("cannot load {library} ({reason}): install {package}")]
    Library {
        /// Its file name.
        library: &'static str,
        /// What the loader said.
        reason: String,
        /// The package that has it.
        package: &'static str,
    },
    /// A library is too old.
    #[error("{library} has no function {symbol}: install a newer {package}")]
    Symbol {
        /// Its file name.
        library: &'static str,
        /// The function.
        symbol: &'static str,
        /// The package that has it.
        package: &'static str,
    },
}
