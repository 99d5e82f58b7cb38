//! Parses a text into a configuration; every diagnostic has its position.
//!
//! [`tree`] turns TOML and JSON into the same tree of values with positions, [`table`] takes typed
//! values out of it, [`native`] reads ebof's own keys. serde's derive is not used for reading: it
//! stops at the first mistake and loses the positions of valid values, which checks between keys
//! need.

pub(crate) mod native;
pub(crate) mod table;
pub(crate) mod tree;
pub(crate) mod values;
