//! The addresses of a connection, as every transport with addresses needs them.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use rustix::io::Errno;

use crate::error::connect_error::ConnectErrorKind as Kind;
use crate::options::Options;

/// The address that `--host-traddr` says.
pub(super) fn local_address(options: &Options) -> Result<Option<IpAddr>, Kind> {
    let Some(text) = &options.host_traddr else { return Ok(None) };
    let address = text.parse().map_err(|_| local_error(options, Errno::INVAL))?;
    Ok(Some(address))
}

/// The addresses of the target, of the family of `local` where there is one.
pub(super) fn resolve(options: &Options, local: Option<IpAddr>) -> Result<Vec<SocketAddr>, Kind> {
    let found = (options.traddr.as_str(), options.trsvcid).to_socket_addrs();
    let found = found.map_err(|error| Kind::NameNotResolved { reason: error.to_string() })?;
    Ok(found.filter(|address| local.is_none_or(|local| local.is_ipv4() == address.is_ipv4())).collect())
}

/// The local address cannot be used.
pub(super) fn local_error(options: &Options, errno: Errno) -> Kind {
    let value = options.host_traddr.as_deref().unwrap_or_default();
    Kind::LocalAddress { option: format!("--host-traddr {value}"), errno }
}
