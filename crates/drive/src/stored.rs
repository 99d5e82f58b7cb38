//! Forms of values in the state and its changes, for serde.

pub(crate) mod count;
pub(crate) mod hex;
