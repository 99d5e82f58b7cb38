//! Golden bytes, builders and a model disk for tests. Never part of the program.
extern crate alloc;

pub mod hex;
