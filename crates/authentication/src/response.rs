//! The formulas of DH-HMAC-CHAP (Base, DH-HMAC-CHAP Reply, DH-HMAC-CHAP Success1).

use ebof_nvme::Nqn;

use crate::group::Group;
use crate::hash::Hash;
use crate::key::KeyMaterial;
use crate::message::SecureChannel;
use crate::secret::Secret;

/// Who takes part in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The host.
    pub host: Nqn,
    /// The subsystem.
    pub subsystem: Nqn,
}

/// What a transaction has agreed on.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) t_id: u16,
    pub(crate) hash: Hash,
    pub(crate) group: Group,
    pub(crate) secure_channel: SecureChannel,
}

/// A challenge: C1 or C2, and its sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) value: KeyMaterial,
    pub(crate) sequence: u32,
}

impl Terms {
    /// Ks, the hash of what both ends of a Diffie-Hellman exchange know.
    pub(crate) fn session_key(&self, shared: &KeyMaterial) -> KeyMaterial {
        self.hash.digest(shared.bytes())
    }

    /// R1, which proves that the host knows its secret.
    pub(crate) fn of_host(
        &self,
        names: &Names,
        secret: &Secret,
        challenge: &Challenge,
        session_key: Option<&KeyMaterial>,
    ) -> KeyMaterial {
        let key = secret.transformed(&names.host);
        self.response(&key, challenge, session_key, b"HostHost", [&names.host, &names.subsystem])
    }

    /// R2, which proves that the controller knows its subsystem's secret.
    pub(crate) fn of_controller(
        &self,
        names: &Names,
        secret: &Secret,
        challenge: &Challenge,
        session_key: Option<&KeyMaterial>,
    ) -> KeyMaterial {
        let key = secret.transformed(&names.subsystem);
        self.response(&key, challenge, session_key, b"Controller", [&names.subsystem, &names.host])
    }

    /// The PSK that both ends make of the session (Base, Secure channel).
    pub(crate) fn generated_psk(&self, session_key: &KeyMaterial, c1: &KeyMaterial, c2: &KeyMaterial) -> KeyMaterial {
        self.hash.mac(session_key.bytes(), &[c1.bytes(), c2.bytes()])
    }

    fn response(
        &self,
        key: &KeyMaterial,
        challenge: &Challenge,
        session_key: Option<&KeyMaterial>,
        role: &[u8],
        [own, other]: [&Nqn; 2],
    ) -> KeyMaterial {
        // The challenge augmented by the session key; without a Diffie-Hellman exchange, itself.
        let augmented = session_key.map(|session_key| self.hash.mac(session_key.bytes(), &[challenge.value.bytes()]));
        let augmented = augmented.as_ref().unwrap_or(&challenge.value);
        self.hash.mac(
            key.bytes(),
            &[
                augmented.bytes(),
                &challenge.sequence.to_le_bytes(),
                &self.t_id.to_le_bytes(),
                &[self.secure_channel.id()],
                role,
                own.as_str().as_bytes(),
                &[0],
                other.as_str().as_bytes(),
            ],
        )
    }
}
