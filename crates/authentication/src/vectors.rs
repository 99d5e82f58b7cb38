//! The formulas against vectors that were computed by another implementation, in Python, which was
//! compared with Linux 7.3's unit tests, nvme-cli 2.13 and OpenSSL's primes.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ebof_nvme::Nqn;
use serde_json::Value;

use crate::group::{Group, Work};
use crate::hash::Hash;
use crate::key::KeyMaterial;
use crate::message::SecureChannel;
use crate::psk::{ConfiguredPsk, Derivation, IdentityVersion, Psk};
use crate::response::{Challenge, Names, Terms};
use crate::secret::Secret;

const VECTORS: &str = include_str!("../testdata/vectors.json");

fn vectors() -> Value {
    serde_json::from_str(VECTORS).unwrap()
}

fn text<'v>(vector: &'v Value, name: &str) -> &'v str {
    vector[name].as_str().unwrap_or_else(|| panic!("{name} of {vector}"))
}

fn number<T: TryFrom<u64>>(vector: &Value, name: &str) -> T {
    vector[name].as_u64().and_then(|number| T::try_from(number).ok()).unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn key(vector: &Value, name: &str) -> KeyMaterial {
    KeyMaterial::new(bytes(text(vector, name)))
}

fn names(vectors: &Value) -> Names {
    let name = |of| Nqn::parse(text(vectors, of)).unwrap();
    Names { host: name("hostnqn"), subsystem: name("subnqn") }
}

/// The private exponents of controller and host: 01h to 20h, and 65h to 84h.
fn exponents() -> [KeyMaterial; 2] {
    [1..=32, 101..=132].map(|range| KeyMaterial::new(range.collect()))
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    Hash::Sha256.digest(bytes).bytes().to_vec()
}

#[test]
fn responses_are_those_of_the_vectors() {
    let vectors = vectors();
    let names = names(&vectors);
    let exchanges = vectors["dhchap"].as_array().unwrap();
    assert_eq!(exchanges.len(), 16);
    for vector in exchanges {
        let hash = Hash::from_id(number(vector, "hash")).unwrap();
        let group = Group::from_id(number(vector, "group")).unwrap();
        let [host, controller] =
            ["host_secret", "controller_secret"].map(|name| Secret::parse(text(vector, name)).unwrap());
        assert_eq!(host.transform(), Hash::from_id(number(vector, "key_hash")));
        assert_eq!(host.transformed(&names.host), key(vector, "transformed_host"));
        assert_eq!(controller.transformed(&names.subsystem), key(vector, "transformed_controller"));
        let terms = Terms { t_id: number(vector, "t_id"), hash, group, secure_channel: SecureChannel::None };
        let session_key = (group != Group::Null).then(|| {
            let [of_controller, of_host] = exponents();
            let ours = Work::public(group, of_controller).run().0.unwrap();
            assert_eq!(sha256(&ours.public), bytes(text(vector, "controller_dh_sha256")), "{group}");
            let theirs = Work::both(group, of_host, ours.public.clone()).run().0.unwrap();
            assert_eq!(sha256(&theirs.public), bytes(text(vector, "host_dh_sha256")), "{group}");
            let again = Work::both(group, ours.exponent, theirs.public).run().0.unwrap();
            assert_eq!(again.shared, theirs.shared);
            let session_key = terms.session_key(&again.shared.unwrap());
            assert_eq!(session_key, key(vector, "session_key"));
            session_key
        });
        let challenge = |value, sequence| Challenge { value: key(vector, value), sequence: number(vector, sequence) };
        let r1 = terms.of_host(&names, &host, &challenge("c1", "s1"), session_key.as_ref());
        assert_eq!(r1, key(vector, "host_response"), "{hash}, {group}");
        let r2 = terms.of_controller(&names, &controller, &challenge("c2", "s2"), session_key.as_ref());
        assert_eq!(r2, key(vector, "controller_response"), "{hash}, {group}");
        // With secure channel concatenation, the host's response is another one.
        let generated = vectors["tls_generated"].as_array().unwrap();
        let same = |of: &&Value| of["hash"] == vector["hash"] && session_key.is_some() && host.transform().is_some();
        if let Some(generated) = generated.iter().find(same) {
            let terms = Terms { secure_channel: SecureChannel::New, ..terms };
            let r1 = terms.of_host(&names, &host, &challenge("c1", "s1"), session_key.as_ref());
            assert_eq!(r1, key(generated, "sc_c2_host_response"));
        }
    }
}

#[test]
fn retained_psks_are_those_of_the_vectors() {
    let vectors = vectors();
    let names = names(&vectors);
    let retained = vectors["tls_retained"].as_array().unwrap();
    assert_eq!(retained.len(), 8);
    for vector in retained {
        let configured = ConfiguredPsk::parse(text(vector, "interchange")).unwrap();
        let version = if number::<u8>(vector, "version") == 0 { IdentityVersion::V0 } else { IdentityVersion::V1 };
        let psk = configured.retained(&names.host, Derivation::Specification);
        assert_eq!(psk.hash().id(), number::<u8>(vector, "hash"));
        assert_eq!(psk.identity(&names, version).to_string(), text(vector, "identity"));
        let derive = |psk: &Psk, derivation| psk.for_tls(&names, version, derivation).unwrap();
        assert_eq!(derive(&psk, Derivation::Specification), key(vector, "tls_psk"));
        let psk = configured.retained(&names.host, Derivation::Libnvme1);
        assert_eq!(derive(&psk, Derivation::Libnvme1), key(vector, "tls_psk_compat"), "{vector}");
        // The vectors have the specification's; this one was seen in nvme-cli 2.13's output.
        assert_eq!(*configured.to_text(), text(vector, "interchange"));
    }
}

#[test]
fn generated_psks_are_those_of_the_vectors() {
    let vectors = vectors();
    let names = names(&vectors);
    let generated = vectors["tls_generated"].as_array().unwrap();
    assert_eq!(generated.len(), 2);
    for vector in generated {
        let hash = Hash::from_id(number(vector, "hash")).unwrap();
        let terms = Terms { t_id: 0, hash, group: Group::Ffdhe2048, secure_channel: SecureChannel::New };
        let psk = terms.generated_psk(&key(vector, "session_key"), &key(vector, "c1"), &key(vector, "c2"));
        assert_eq!(psk, key(vector, "generated_psk"));
        let psk = Psk::generated(psk, hash).unwrap();
        assert_eq!(psk.identity(&names, IdentityVersion::V1).to_string(), text(vector, "identity"));
        let tls = psk.for_tls(&names, IdentityVersion::V1, Derivation::Specification).unwrap();
        assert_eq!(tls, key(vector, "tls_psk"));
    }
}

/// Linux' unit tests (drivers/nvme/common/tests/auth_kunit.c, 7.3) have other inputs.
#[test]
fn digest_and_tls_psk_are_those_of_linux() {
    let names = Names { host: Nqn::parse("hostnqn").unwrap(), subsystem: Nqn::parse("subsysnqn").unwrap() };
    let cases: [(Hash, &str, &str, &str); 2] = [
        (
            Hash::Sha256,
            "1733c59fa7f48fcf37f5f26fc4ff0268ad4f78e030f4f3b0bfd1d47e7bb1447a",
            "OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=",
            "3c17da628474a04d2247c4cab47968c915388193f7c071bd9489cc3666cd7cc8",
        ),
        (
            Hash::Sha384,
            "f14b2dd3234c459694d3bc63f8968bd6b37c2c6de849e22e118749001ce4bbe8640b9e3a748cb11ce4b1d71d359cce39",
            "cffMWk8TSS7HOQebjgYEIkrPrjWPV4JE5cdPB8WhEvY4JBW5YynKyv66XscN4A9n",
            "2774753233537b3fa50eb7d16a8e43457d85f4906c005b2236616c5d80939d0898fff15bb8b77119d2be0aac423e7590",
        ),
    ];
    for (hash, generated, digest, tls) in cases {
        let count = |from: u8, step: fn(u8, u8) -> u8| -> Vec<u8> {
            (0..48).map(|index| step(from, index)).take(hash.bytes()).collect()
        };
        let session_key = KeyMaterial::new(count(0x41, u8::wrapping_add));
        let [c1, c2] = [count(0, u8::wrapping_add), count(255, u8::wrapping_sub)].map(KeyMaterial::new);
        let terms = Terms { t_id: 0, hash, group: Group::Ffdhe2048, secure_channel: SecureChannel::New };
        let psk = terms.generated_psk(&session_key, &c1, &c2);
        assert_eq!(psk, KeyMaterial::new(bytes(generated)));
        let psk = Psk::generated(psk, hash).unwrap();
        let identity = psk.identity(&names, IdentityVersion::V1);
        assert_eq!(identity.digest.as_deref(), Some(digest));
        let context: String = identity.to_string();
        assert!(context.starts_with("NVMe1G0") && context.ends_with(digest));
        assert_eq!(
            psk.for_tls(&names, IdentityVersion::V1, Derivation::Specification).unwrap(),
            KeyMaterial::new(bytes(tls))
        );
    }
}

/// Two secrets as texts, so that a change of the text form shows.
#[test]
fn texts_of_secrets_are_those_of_nvme_cli() {
    let text = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let secret = Secret::parse(text).unwrap();
    assert_eq!(*secret.to_text(), text);
    let decoded = STANDARD.decode(text.split(':').nth(2).unwrap()).unwrap();
    assert_eq!(decoded[..32], (0..32).collect::<Vec<u8>>());
}
