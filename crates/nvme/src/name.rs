//! What things are called: numbers, NQNs, and the words that people name remote ones by.

pub mod id;
pub mod nqn;
pub mod uri;
