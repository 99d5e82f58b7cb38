//! Passwords: which are accepted, and their hashes.
//!
//! Hashes are made by argon2id (RFC 9106). One takes tens of milliseconds and [`MEMORY_KIB`] of
//! memory, so that trying words against a stolen file is slow; the caller limits how many are
//! computed at a time.

use std::fmt;

use argon2::{Algorithm, Argon2, Params, Version};
use ebof_clock::{Clock, NoRandomness};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::hex;

/// The shortest password, characters.
pub const PASSWORD_LENGTH_MIN: usize = 8;

/// The longest password, characters.
pub const PASSWORD_LENGTH_MAX: usize = 128;

/// Memory of a hash. With [`PASSES`] and one lane, what OWASP's Password Storage Cheat Sheet
/// recommends first.
const MEMORY_KIB: u32 = 19 << 10;

/// Passes over the memory.
const PASSES: u32 = 2;

/// What a stored hash may demand at most: a damaged file must not take all memory.
const MEMORY_KIB_MAX: u32 = 64 << 10;

/// The same for its passes.
const PASSES_MAX: u32 = 16;

/// Characters of generated passwords: none that is mistaken for another one.
const ALPHABET: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz23456789-";

/// The length of generated passwords: five bits a character.
const GENERATED_LENGTH: usize = 20;

/// The hash of a password, with what it takes to compute it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub(crate) struct PasswordHash {
    memory_kib: u32,
    passes: u32,
    salt: [u8; 16],
    hash: [u8; 32],
}

/// Its form in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    algorithm: String,
    memory_kib: u32,
    passes: u32,
    salt: String,
    hash: String,
}

const ALGORITHM: &str = "argon2id";

impl From<PasswordHash> for Written {
    fn from(hash: PasswordHash) -> Self {
        let PasswordHash { memory_kib, passes, salt, hash } = hash;
        Self { algorithm: ALGORITHM.to_owned(), memory_kib, passes, salt: hex::encode(&salt), hash: hex::encode(&hash) }
    }
}

impl TryFrom<Written> for PasswordHash {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, &'static str> {
        let Written { algorithm, memory_kib, passes, salt, hash } = written;
        if algorithm != ALGORITHM {
            return Err("the algorithm of a password's hash is not argon2id");
        }
        if !(8..=MEMORY_KIB_MAX).contains(&memory_kib) || !(1..=PASSES_MAX).contains(&passes) {
            return Err("a password's hash takes 8 to 65536 KiB of memory and 1 to 16 passes");
        }
        let salt = hex::decode(&salt).ok_or("the salt of a password's hash is not 16 bytes in hexadecimal")?;
        let hash = hex::decode(&hash).ok_or("a password's hash is not 32 bytes in hexadecimal")?;
        Ok(Self { memory_kib, passes, salt, hash })
    }
}

impl PasswordHash {
    /// Hashes a password with a new salt. Slow.
    pub(crate) fn new(password: &str, clock: &Clock) -> Result<Self, NoRandomness> {
        let mut salt = [0; 16];
        clock.fill(&mut salt)?;
        let mut made = Self { memory_kib: MEMORY_KIB, passes: PASSES, salt, hash: [0; 32] };
        made.hash = made.derive(password);
        Ok(made)
    }

    /// A hash that no password has, for users that do not exist: finding that out takes as long as
    /// finding that a password is wrong.
    pub(crate) const fn of_nobody() -> Self {
        Self { memory_kib: MEMORY_KIB, passes: PASSES, salt: [0; 16], hash: [0; 32] }
    }

    /// Whether this is the password. Slow.
    pub(crate) fn verifies(&self, password: &str) -> bool {
        self.derive(password).ct_eq(&self.hash).into()
    }

    /// The first bytes that depend on the password and its salt, which change with it.
    pub(crate) fn identity(&self) -> &[u8; 32] {
        &self.hash
    }

    fn derive(&self, password: &str) -> [u8; 32] {
        argon2id(self.memory_kib, self.passes, password, &self.salt)
    }
}

fn argon2id(memory_kib: u32, passes: u32, password: &str, salt: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    let parameters = Params::new(memory_kib, passes, 1, Some(hash.len()));
    let parameters = parameters.expect("both numbers are within argon2's limits, as try_from checks");
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters);
    argon2
        .hash_password_into(password.as_bytes(), salt, &mut hash)
        .expect("salts have 16 bytes, and no password is as long as 4 GiB");
    hash
}

/// Why a password is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsuitable {
    /// It is too short or too long.
    Length,
    /// It has characters that cannot be typed everywhere.
    Characters,
    /// It is the user name.
    IsName,
}

/// Checks a password that is to be set for the user `name`.
pub(crate) fn check(password: &str, name: &str) -> Result<(), Unsuitable> {
    let length = password.chars().take(PASSWORD_LENGTH_MAX + 1).count();
    if !(PASSWORD_LENGTH_MIN..=PASSWORD_LENGTH_MAX).contains(&length) {
        return Err(Unsuitable::Length);
    }
    if password.chars().any(char::is_control) {
        return Err(Unsuitable::Characters);
    }
    if password.eq_ignore_ascii_case(name) {
        return Err(Unsuitable::IsName);
    }
    Ok(())
}

/// A random password.
pub(crate) fn generate(clock: &Clock) -> Result<String, NoRandomness> {
    let mut bytes = [0; GENERATED_LENGTH];
    clock.fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
}

/// Which password of an account it is: it changes with the password, and tells nothing of it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Credential([u8; 8]);

impl Credential {
    pub(crate) fn from_hash(password: &PasswordHash) -> Self {
        let digest: [u8; 32] = Sha256::digest(password.identity()).into();
        let mut short = [0; 8];
        short.copy_from_slice(&digest[..8]);
        Self(short)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_knows_its_password_and_survives_storage() {
        let clock = Clock::simulated(1);
        let hash = PasswordHash::new("correct horse", &clock).unwrap();
        assert!(hash.verifies("correct horse") && !hash.verifies("correct horsf") && !hash.verifies(""));
        let text = serde_json::to_string(&hash).unwrap();
        assert!(!text.contains("horse"), "{text}");
        assert_eq!(serde_json::from_str::<PasswordHash>(&text).unwrap(), hash);
        assert_ne!(PasswordHash::new("correct horse", &clock).unwrap(), hash, "another salt");
        assert!(!PasswordHash::of_nobody().verifies(""));
    }

    /// A vector of the reference implementation's own tests: version 19, one lane.
    #[test]
    fn hashes_are_argon2id() {
        let hash = argon2id(256, 2, "password", b"somesalt");
        assert_eq!(hex::encode(&hash), "9dfeb910e80bad0311fee20f9c0e2b12c17987b4cac90c2ef54d5b3021c68bfe");
    }

    #[test]
    fn damaged_hashes_are_refused() {
        let text = serde_json::to_string(&PasswordHash::of_nobody()).unwrap();
        for (from, to) in [
            ("argon2id", "md5"),
            ("\"memory_kib\":19456", "\"memory_kib\":4294967295"),
            ("\"memory_kib\":19456", "\"memory_kib\":0"),
            ("\"passes\":2", "\"passes\":0"),
            ("\"passes\":2", "\"passes\":4000000000"),
            ("\"salt\":\"0", "\"salt\":\""),
            ("\"hash\":\"0", "\"hash\":\"x"),
            ("{", "{\"more\":1,"),
        ] {
            let damaged = text.replacen(from, to, 1);
            assert_ne!(damaged, text);
            assert!(serde_json::from_str::<PasswordHash>(&damaged).is_err(), "{damaged}");
        }
    }

    #[test]
    fn only_some_passwords_are_accepted() {
        for good in ["12345678", "pässwörd", &"x".repeat(128), &"ü".repeat(128), "with space"] {
            assert_eq!(check(good, "admin"), Ok(()));
        }
        for bad in ["", "1234567", "äöüäöüä", &"x".repeat(129)] {
            assert_eq!(check(bad, "admin"), Err(Unsuitable::Length), "{bad}");
        }
        assert_eq!(check("12345678\n", "admin"), Err(Unsuitable::Characters));
        assert_eq!(check("Operator1", "operator1"), Err(Unsuitable::IsName));
    }

    #[test]
    fn generated_passwords_are_acceptable_and_different() {
        let clock = Clock::simulated(3);
        let (first, second) = (generate(&clock).unwrap(), generate(&clock).unwrap());
        assert_ne!(first, second);
        assert_eq!(check(&first, "admin"), Ok(()));
        assert_eq!(ALPHABET.iter().collect::<std::collections::HashSet<_>>().len(), 32, "five bits a character");
    }
}
