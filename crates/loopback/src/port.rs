//! Where hosts find a target of the same process.

use std::fmt;
use std::sync::Arc;

use crate::{Attachment, Bell, HostEnd, TargetEnd, pair};

/// What a target does with a connection that arrives.
type Accept = dyn Fn(TargetEnd) -> Result<(), ConnectError> + Send + Sync;

/// A target's address for hosts in its process. Clones lead to the same target.
#[derive(Clone)]
pub struct Port(Arc<Accept>);

/// Why a connection was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// Nobody serves the port any more.
    NotListening,
    /// The target has as many connections as it may have.
    TooMany,
}

impl Port {
    /// A port whose connections are given to `accept`, on the thread of the host that connects.
    pub fn new(accept: impl Fn(TargetEnd) -> Result<(), ConnectError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(accept))
    }

    /// Makes a connection for a queue with room for `entries` commands. `bell` rings when
    /// completions have come.
    ///
    /// # Errors
    /// The target does not take it.
    pub fn connect(&self, entries: usize, bell: Bell) -> Result<HostEnd, ConnectError> {
        self.hand_over(entries, bell, None)
    }

    /// Makes a queue of a controller without a Connect, as a host has that is attached to a target
    /// directly. Where the target refuses it, the connection ends, and the target's connection log
    /// says why.
    ///
    /// # Errors
    /// The target does not take the connection.
    pub fn attach(&self, attachment: Attachment, entries: usize, bell: Bell) -> Result<HostEnd, ConnectError> {
        self.hand_over(entries, bell, Some(attachment))
    }

    /// Takes a connection that came to another port, which leads here.
    ///
    /// # Errors
    /// The target does not take it.
    pub fn accept(&self, end: TargetEnd) -> Result<(), ConnectError> {
        (self.0)(end)
    }

    fn hand_over(&self, entries: usize, bell: Bell, attachment: Option<Attachment>) -> Result<HostEnd, ConnectError> {
        let (host, mut target) = pair(entries);
        target.set_attachment(attachment);
        self.accept(target)?;
        // Nothing has come yet: the target completes only what the host sends.
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
