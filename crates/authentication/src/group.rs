//! Diffie-Hellman groups (Base, DH-HMAC-CHAP, DHgIDs; RFC 7919, Appendix A), and the
//! exponentiations in them, which take between one and some twenty milliseconds.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use ebof_vault::with_clean_stack;
use zeroize::Zeroizing;

use crate::key::KeyMaterial;

/// A group (DHgID).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Group {
    /// No Diffie-Hellman exchange: responses depend on nothing but the secrets and challenges.
    Null = 0,
    /// 2048 bits.
    Ffdhe2048 = 1,
    /// 3072 bits.
    Ffdhe3072 = 2,
    /// 4096 bits.
    Ffdhe4096 = 3,
    /// 6144 bits.
    Ffdhe6144 = 4,
    /// 8192 bits.
    Ffdhe8192 = 5,
}

impl Group {
    /// All, by their numbers.
    pub const ALL: [Self; 6] =
        [Self::Null, Self::Ffdhe2048, Self::Ffdhe3072, Self::Ffdhe4096, Self::Ffdhe6144, Self::Ffdhe8192];
    /// The longest value in bytes.
    pub const VALUE_BYTES_MAX: usize = 1024;

    /// The group with this number.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.id() == id)
    }

    /// Its number.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// Length of its values in bytes; 0 of [`Group::Null`].
    #[must_use]
    pub const fn value_bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 256,
            Self::Ffdhe3072 => 384,
            Self::Ffdhe4096 => 512,
            Self::Ffdhe6144 => 768,
            Self::Ffdhe8192 => 1024,
        }
    }

    /// Length of private exponents in bytes. RFC 7919 (Appendix A) has the least for each group,
    /// 225 to 400 bits; time is proportional to it.
    #[must_use]
    pub const fn exponent_bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 32,
            Self::Ffdhe3072 => 36,
            Self::Ffdhe4096 => 42,
            Self::Ffdhe6144 => 48,
            Self::Ffdhe8192 => 52,
        }
    }

    /// X of the prime's formula (RFC 7919, Appendix A).
    const fn offset(self) -> u64 {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 560_316,
            Self::Ffdhe3072 => 2_625_351,
            Self::Ffdhe4096 => 5_736_041,
            Self::Ffdhe6144 => 15_705_020,
            Self::Ffdhe8192 => 10_965_728,
        }
    }

    const fn bits(self) -> u32 {
        // At most 8192.
        #[expect(clippy::cast_possible_truncation, reason = "at most 1024 bytes")]
        let bytes = self.value_bytes() as u32;
        bytes * 8
    }

    /// p = 2^b - 2^(b-64) + (floor(2^(b-130) e) + X) 2^64 - 1, big endian (RFC 7919, Appendix A).
    fn prime(self) -> Vec<u8> {
        let words = self.value_bytes() / 8;
        let mut prime = vec![u64::MAX; words];
        let mut middle = digits_of_e(words * 64 - 130);
        // The last term, -1, leaves ones in the last word and takes one from here.
        add_small(&mut middle, self.offset() - 1);
        prime[1..words - 1].copy_from_slice(&middle[..words - 2]);
        prime.iter().rev().flat_map(|word| word.to_be_bytes()).collect()
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            group => write!(f, "ffdhe{}", group.bits()),
        }
    }
}

/// floor(2^`bits` e), words with the lowest first: the sum of 1/k!, with 64 bits more than are
/// wanted.
fn digits_of_e(bits: usize) -> Vec<u64> {
    let mut term = vec![0; (bits + 64) / 64 + 1];
    term[(bits + 64) / 64] = 1 << (bits % 64);
    // e is below 4.
    term.push(0);
    let mut sum = term.clone();
    for k in 1.. {
        divide_small(&mut term, k);
        if term.iter().all(|&word| word == 0) {
            break;
        }
        let mut carry = false;
        for (sum, &term) in sum.iter_mut().zip(&term) {
            let (low, first) = sum.overflowing_add(term);
            let (low, second) = low.overflowing_add(carry.into());
            (*sum, carry) = (low, first || second);
        }
    }
    sum.remove(0);
    sum
}

fn divide_small(words: &mut [u64], by: u64) {
    let mut rest = 0_u128;
    for word in words.iter_mut().rev() {
        let dividend = rest << 64 | u128::from(*word);
        // `rest` is below `by`, so that the quotient has 64 bits.
        *word = u64::try_from(dividend / u128::from(by)).unwrap_or(u64::MAX);
        rest = dividend % u128::from(by);
    }
}

fn add_small(words: &mut [u64], more: u64) {
    let mut carry = more;
    for word in words {
        let (sum, overflows) = word.overflowing_add(carry);
        *word = sum;
        carry = overflows.into();
    }
}

/// The generator.
const GENERATOR: u8 = 2;

/// A value of the other end that is none: 0, 1, p - 1 or above, or of another length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the Diffie-Hellman value is not between 2 and p - 2")]
pub struct ValueError;

/// An exponentiation. It takes milliseconds: not for a thread that serves others meanwhile.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Work {
    group: Group,
    exponent: KeyMaterial,
    /// The other end's value, if there is one yet.
    peer: Option<Vec<u8>>,
    /// Whether ours is wanted.
    is_public: bool,
}

/// What an exponentiation brought.
#[derive(Debug)]
pub struct Computed(pub(crate) Result<Powers, ValueError>);

/// Values of a group, of its length.
#[derive(Debug)]
pub(crate) struct Powers {
    /// What the other end gets: the generator to the power of the exponent. Empty if it was not
    /// wanted.
    pub(crate) public: Vec<u8>,
    /// The other end's value to the power of the exponent.
    pub(crate) shared: Option<KeyMaterial>,
    pub(crate) exponent: KeyMaterial,
}

impl Work {
    /// The value that the other end gets.
    pub fn public(group: Group, exponent: KeyMaterial) -> Self {
        Self { group, exponent, peer: None, is_public: true }
    }

    /// The value that the other end gets, and the one that both ends know.
    pub(crate) fn both(group: Group, exponent: KeyMaterial, peer: Vec<u8>) -> Self {
        Self { group, exponent, peer: Some(peer), is_public: true }
    }

    /// The value that both ends know.
    pub(crate) fn shared(group: Group, exponent: KeyMaterial, peer: Vec<u8>) -> Self {
        Self { group, exponent, peer: Some(peer), is_public: false }
    }

    /// Computes.
    #[must_use]
    pub fn run(self) -> Computed {
        Computed(with_clean_stack(|| self.powers()))
    }

    fn powers(self) -> Result<Powers, ValueError> {
        let Self { group, exponent, peer, is_public } = self;
        let bits = group.bits();
        let number = |bytes: &[u8]| BoxedUint::from_be_slice(bytes, bits).map_err(|_| ValueError);
        let prime = number(&group.prime())?;
        let modulus = Odd::new(prime.clone()).into_option().expect("a prime above 2 is odd");
        let parameters = BoxedMontyParams::new_vartime(modulus);
        let exponent_bits = u32::try_from(exponent.bytes().len() * 8).unwrap_or(bits);
        let power = Zeroizing::new(number(exponent.bytes())?);
        let raise = |base: BoxedUint| {
            let result = BoxedMontyForm::new(base, &parameters).pow_bounded_exp(&power, exponent_bits);
            // As long as the modulus, with zeros in front (Base, DH-HMAC-CHAP).
            Zeroizing::new(result.retrieve()).to_be_bytes().into_vec()
        };
        let shared = match peer {
            None => None,
            Some(peer) => {
                let value = number(&peer)?;
                let (least, most) = (number(&[2])?, prime.wrapping_sub(number(&[2])?));
                if peer.len() != group.value_bytes() || value < least || value > most {
                    return Err(ValueError);
                }
                Some(KeyMaterial::new(raise(value)))
            }
        };
        let public = if is_public { raise(number(&[GENERATOR])?) } else { Vec::new() };
        Ok(Powers { public, shared, exponent })
    }
}
