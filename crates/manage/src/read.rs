//! From a text to a configuration, with every complaint at its place.
//!
//! [`tree`] turns TOML and JSON into the same tree of values with positions, [`table`] takes typed
//! values out of it, [`native`] reads ebof's own keys. serde's derive is not used for reading: it
//! stops at the first mistake and loses the positions of all that was right, which checks between
//! keys need.

pub(crate) mod native;
pub(crate) mod table;
pub(crate) mod tree;
pub(crate) mod values;
