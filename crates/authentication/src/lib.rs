//! Who is at the other end of a connection: in-band authentication by DH-HMAC-CHAP (NVMe Base,
//! In-band Authentication), and the pre-shared keys of TLS on NVMe/TCP (NVMe/TCP, TLS PSK).
//!
//! [`ControllerEnd`] and [`HostEnd`] are the two ends of an authentication transaction. Messages
//! come in and go out; the random bytes that they need are a parameter ([`Entropy`]), and the
//! exponentiations of a Diffie-Hellman exchange are steps for the caller ([`Work`]), because they
//! take milliseconds. This crate deliberately owns no socket, no clock, no randomness, and no place
//! where keys are kept.
//!
//! Key material is in memory that is neither swapped nor dumped (`ebof-vault`), erased when it is
//! dropped, compared in constant time, and never formatted ([`KeyMaterial`]).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod controller;
pub mod entropy;
pub mod group;
pub mod hash;
pub mod host;
mod interchange;
pub mod key;
pub mod message;
pub mod psk;
pub mod response;
pub mod secret;

pub use controller::ControllerEnd;
pub use entropy::{Entropy, SequenceNumbers};
pub use group::{Computed, Group, Work};
pub use hash::Hash;
pub use host::HostEnd;
pub use key::KeyMaterial;
pub use message::Explanation;
pub use psk::{ConfiguredPsk, Derivation, HostPsk, Identity, Psk};
pub use secret::Secret;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod vectors;
