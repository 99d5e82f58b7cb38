//! Limits of the drive's state, so that every state that hosts can bring about fits into a
//! checkpoint.
//!
//! Namespaces, controller identifiers, firmware slots and logs have limits where they are defined.
//! The limits here are for the whole drive: registrants and attachments grow with hosts times
//! namespaces. A drive of an earlier version may exceed them; it then takes no more, and works
//! otherwise.

#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::namespace::Namespace;
use crate::reservation::Reservations;

/// Bytes of the state in a checkpoint at most; there is room for namespaces, bad blocks and tags
/// besides.
pub const STATE_BYTES_MAX: usize = 23 << 19;

/// Registrants of all namespaces of a drive together; more are refused with Insufficient Resources.
pub const REGISTRANTS_MAX: usize = 65_536;

/// Bytes of the NQNs of attached hosts in the state, each once for each of its namespaces; more are
/// refused with Namespace Attachment Limit Exceeded.
pub const ATTACHMENTS_BYTES_MAX: usize = 2 << 20;

/// Bytes that the number of a function takes in a list of the state, with a comma.
pub(crate) const FUNCTION_BYTES: usize = 4;

/// Bytes that an NQN takes in a list of the state: with quotation marks, a comma, and what has to
/// be escaped.
pub(crate) fn nqn_bytes(nqn: &str) -> usize {
    nqn.len() + nqn.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count() + 3
}

/// Registrants of all namespaces.
pub(crate) fn registrants(by_nsid: &BTreeMap<u32, Arc<Reservations>>) -> usize {
    by_nsid.values().map(|reservations| reservations.registrants()).sum()
}

/// Bytes that the NQNs of attached hosts and the numbers of attached functions take.
pub(crate) fn attachment_bytes(namespaces: &BTreeMap<u32, Namespace>) -> usize {
    let functions: usize = namespaces.values().map(|namespace| namespace.functions.len()).sum();
    let hosts = namespaces.values().flat_map(|namespace| &namespace.hosts);
    hosts.map(|host| nqn_bytes(host)).sum::<usize>() + functions * FUNCTION_BYTES
}
