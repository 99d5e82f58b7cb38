//! PSKs for TLS that authentication has generated (Base, Secure Channel Concatenation).
//!
//! A host that has authenticated without TLS comes again with the PSK. One that was not used within
//! [`UNUSED_MS`] is forgotten; one that was used is good for the queues of its secure channel, as
//! long as the controller is there.

use alloc::vec::Vec;

use ebof_authentication::psk::IdentityVersion;
use ebof_authentication::response::Names;
use ebof_authentication::{Derivation, Identity, KeyMaterial, Psk};
use ebof_nvme::Nqn;

use crate::model::secrets::SecureChannelId;

/// How long a PSK waits for its host, milliseconds; as Linux keeps it.
const UNUSED_MS: u64 = 3_600_000;
/// The most PSKs of a host at a subsystem that wait for it. A host needs one for a controller that
/// it is about to connect; the newest are kept.
const UNUSED_MAX: usize = 16;

/// The PSKs that are good, by the order in which they were generated.
#[derive(Debug, Default)]
pub(super) struct GeneratedPsks {
    all: Vec<Generated>,
    /// How many secure channels there were.
    channels: u64,
}

#[derive(Debug)]
struct Generated {
    names: Names,
    identity: Identity,
    key: KeyMaterial,
    channel: SecureChannelId,
    /// Until when its host has to have used it, milliseconds; `None` once it has.
    unused_until_ms: Option<u64>,
}

impl Generated {
    fn is_good(&self, is_live: impl Fn(SecureChannelId) -> bool, now_ms: u64) -> bool {
        self.unused_until_ms.is_some_and(|until_ms| now_ms < until_ms) || is_live(self.channel)
    }
}

impl GeneratedPsks {
    /// Keeps a PSK: of a new secure channel, or in place of that with which the host has come
    /// through `replaced`. `is_live` tells which channels have controllers.
    pub(super) fn add(
        &mut self,
        names: Names,
        psk: &Psk,
        replaced: Option<SecureChannelId>,
        is_live: impl Fn(SecureChannelId) -> bool,
        now_ms: u64,
    ) {
        let identity = psk.identity(&names, IdentityVersion::V1);
        let key = psk.for_tls(&names, IdentityVersion::V1, Derivation::Specification);
        let key = key.expect("a digest is shorter than the 255 bytes that a context may have");
        self.all.retain(|one| Some(one.channel) != replaced && one.is_good(&is_live, now_ms));
        let waits = |one: &Generated| one.names == names && !is_live(one.channel);
        if self.all.iter().filter(|one| waits(one)).count() >= UNUSED_MAX
            && let Some(oldest) = self.all.iter().position(waits)
        {
            self.all.remove(oldest);
        }
        let channel = replaced.unwrap_or_else(|| {
            self.channels += 1;
            SecureChannelId(self.channels)
        });
        let unused_until_ms = Some(now_ms.saturating_add(UNUSED_MS));
        self.all.push(Generated { names, identity, key, channel, unused_until_ms });
    }

    /// The key of this identity as TLS uses it, and the secure channel that it is of.
    pub(super) fn find(
        &self,
        identity: &Identity,
        is_live: impl Fn(SecureChannelId) -> bool,
        now_ms: u64,
    ) -> Option<(KeyMaterial, SecureChannelId)> {
        let found = self.all.iter().find(|one| one.identity == *identity && one.is_good(&is_live, now_ms))?;
        Some((found.key.clone(), found.channel))
    }

    /// Whether one of this secure channel waits for its host, or is in use.
    pub(super) fn has(&self, channel: SecureChannelId, is_live: impl Fn(SecureChannelId) -> bool, now_ms: u64) -> bool {
        self.all.iter().any(|one| one.channel == channel && one.is_good(&is_live, now_ms))
    }

    /// A host has come with a PSK of this secure channel, if with any.
    pub(super) fn note_use(&mut self, channel: Option<SecureChannelId>) {
        for one in self.all.iter_mut().filter(|one| Some(one.channel) == channel) {
            one.unused_until_ms = None;
        }
    }

    /// Forgets those of hosts that may not authenticate any more. Of one that has lost a secret,
    /// whoever had that may have generated some: those without a controller are forgotten, too, and
    /// the others end with their controller.
    pub(super) fn follow_secrets(
        &mut self,
        may_authenticate: impl Fn(&Nqn) -> bool,
        has_lost_one: impl Fn(&Nqn) -> bool,
        is_live: impl Fn(SecureChannelId) -> bool,
    ) {
        self.all.retain_mut(|one| {
            let host = &one.names.host;
            if !has_lost_one(host) {
                return may_authenticate(host);
            }
            one.unused_until_ms = None;
            may_authenticate(host) && is_live(one.channel)
        });
    }
}
