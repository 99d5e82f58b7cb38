//! The address of a target for hosts in the same process.

use std::fmt;
use std::sync::Arc;

use crate::{Attachment, Bell, HostEnd, TargetEnd, pair};

/// The target's function for new connections.
type Accept = dyn Fn(TargetEnd) -> Result<(), ConnectError> + Send + Sync;

/// A target's address for hosts in its process. Clones refer to the same target.
#[derive(Clone)]
pub struct Port(Arc<Accept>);

/// Why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The port is not served any more.
    NotListening,
    /// The target has reached its limit of connections.
    TooMany,
}

impl Port {
    /// A port that passes its connections to `accept`, on the thread of the host that connects.
    pub fn new(accept: impl Fn(TargetEnd) -> Result<(), ConnectError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(accept))
    }

    /// Creates a connection for a queue with room for `entries` commands. `bell` rings when
    /// completions arrive.
    ///
    /// # Errors
    /// The target refuses it.
    pub fn connect(&self, entries: usize, bell: Bell) -> Result<HostEnd, ConnectError> {
        self.hand_over(entries, bell, None)
    }

    /// Creates a queue of a controller without a Connect, for a host that is attached directly. If
    /// the target refuses it, the connection ends, and the reason is in the target's connection
    /// log.
    ///
    /// # Errors
    /// The target refuses the connection.
    pub fn attach(&self, attachment: Attachment, entries: usize, bell: Bell) -> Result<HostEnd, ConnectError> {
        self.hand_over(entries, bell, Some(attachment))
    }

    /// Accepts a connection that was made to another port.
    ///
    /// # Errors
    /// The target refuses it.
    pub fn accept(&self, end: TargetEnd) -> Result<(), ConnectError> {
        (self.0)(end)
    }

    fn hand_over(&self, entries: usize, bell: Bell, attachment: Option<Attachment>) -> Result<HostEnd, ConnectError> {
        let (host, mut target) = pair(entries);
        target.set_attachment(attachment);
        self.accept(target)?;
        // Nothing has arrived yet: the target completes only what the host sends.
        host.set_bell(bell);
        Ok(host)
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").finish_non_exhaustive()
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotListening => "no target serves the port any more",
            Self::TooMany => "the target has as many connections as it may have",
        })
    }
}

impl std::error::Error for ConnectError {}
