//! How much a drive remembers at most: what hosts can make grow has limits of its own, so that
//! every state that they can bring about fits into a checkpoint.
//!
//! Namespaces, controller identifiers, firmware slots and the logs have limits where they are.
//! Registrants and attachments multiply, by hosts and namespaces: they have limits for the whole
//! drive, here. A drive of an earlier version may be beyond them; then it takes no more, and
//! everything else goes on.

#[cfg(test)]
mod tests;

use crate::change::State;

/// Bytes of the state in a checkpoint, which has room for namespaces, bad blocks and tags besides.
pub const STATE_BYTES_MAX: usize = 23 << 19;

/// Registrants of all namespaces of a drive together; one more is told Insufficient Resources.
pub const REGISTRANTS_MAX: usize = 65_536;

/// Bytes that the NQNs of attached hosts take in the state, those of a host once for each of its
/// namespaces; one more is told Namespace Attachment Limit Exceeded.
pub const ATTACHMENTS_BYTES_MAX: usize = 2 << 20;

/// Bytes that an NQN takes in a list of the state: with quotation marks, a comma, and what has to
/// be escaped.
pub(crate) fn nqn_bytes(nqn: &str) -> usize {
    nqn.len() + nqn.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count() + 3
}

impl State {
    /// Registrants of all namespaces.
    pub(crate) fn registrants(&self) -> usize {
        self.reservations.values().map(|kept| kept.registrants()).sum()
    }

    /// Bytes that the NQNs of attached hosts take.
    pub(crate) fn attachment_bytes(&self) -> usize {
        self.namespaces.values().flat_map(|namespace| &namespace.hosts).map(|host| nqn_bytes(host)).sum()
    }

    /// Forgets what is only history (a capture of telemetry, then the oldest events) until it has
    /// at most `bytes_max`, or nothing of that is left: the way out for a drive that an earlier
    /// version let grow too large. Whether anything was forgotten.
    pub fn shrink(&mut self, bytes_max: usize) -> bool {
        let too_large = |state: &Self| state.to_bytes().len() > bytes_max;
        if !too_large(self) {
            return false;
        }
        self.telemetry.forget();
        while too_large(self) && !self.events.is_empty() {
            self.events.forget_half();
        }
        true
    }
}
