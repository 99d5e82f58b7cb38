//! How a controller is, in one word.

/// How a controller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Connected.
    Live,
    /// The connection is lost and being re-established.
    Reconnecting,
    /// Disconnected on request.
    Disconnected,
    /// Given up after `ctrl_loss_tmo`.
    Dead,
}

impl State {
    /// The word that nvme-cli shows for it, where it has one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Reconnecting => "connecting",
            Self::Disconnected => "deleting",
            Self::Dead => "dead",
        }
    }
}
