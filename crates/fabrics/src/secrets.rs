//! What hosts and subsystems prove themselves by.

use alloc::vec::Vec;

use ebof_authentication::Secret;

/// The secrets of a host for DH-HMAC-CHAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSecrets {
    /// Its own: more than one while one replaces another.
    pub host: Vec<Secret>,
    /// That with which subsystems prove themselves to it.
    pub controller: Option<Secret>,
}
