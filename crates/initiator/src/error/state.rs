//! The state of a controller.

/// The state of a controller.
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
    /// Its name, as nvme-cli shows it.
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
