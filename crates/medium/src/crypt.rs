//! Encryption at rest: XTS-AES-256 (IEEE 1619), a data unit per block, numbered by its LBA.
//!
//! A block that was never written, or was deallocated, is zeros on the medium and reads as zeros:
//! the cipher text of a block of 512 bytes is all zeros with a probability of 2^-4096. Which blocks
//! are empty is no secret, as in every thin namespace.

use std::fmt;
use std::sync::Arc;

use aes::Aes256;
use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};
use ebof_backend::{Completion, CompletionHook, Segments};

/// Bytes of a key: one for the data, one for the tweaks.
pub(crate) const KEY_BYTES: usize = 64;
/// Bytes of an AES block.
const AES_BYTES: usize = 16;
/// AES blocks that are processed together, so that the processor can overlap their instructions.
const PARALLEL: usize = 32;

/// Added to the number of a block for the data unit of its tag.
const TAG_UNITS: u128 = 1 << 64;

type AesBlock = GenericArray<u8, aes::cipher::consts::U16>;

/// Encrypts and decrypts the blocks of a namespace.
pub(crate) struct Cipher {
    data: Aes256,
    tweaks: Aes256,
}

#[derive(Clone, Copy)]
enum Direction {
    Encrypt,
    Decrypt,
}

impl Cipher {
    pub(crate) fn new(key: &[u8; KEY_BYTES]) -> Self {
        let (data, tweaks) = key.split_at(KEY_BYTES / 2);
        Self {
            data: Aes256::new(GenericArray::from_slice(data)),
            tweaks: Aes256::new(GenericArray::from_slice(tweaks)),
        }
    }

    /// Encrypts whole blocks of `block_bytes` each in place; the LBA of the first is `first`.
    pub(crate) fn encrypt(&self, first: u64, block_bytes: usize, blocks: &mut [u8]) {
        for (number, block) in (first..).zip(blocks.chunks_exact_mut(block_bytes)) {
            self.data_unit(number.into(), block, Direction::Encrypt);
        }
    }

    /// Undoes [`encrypt`](Self::encrypt). Blocks that are all zeros stay as they are.
    pub(crate) fn decrypt(&self, first: u64, block_bytes: usize, blocks: &mut [u8]) {
        for (number, block) in (first..).zip(blocks.chunks_exact_mut(block_bytes)) {
            if block.iter().any(|byte| *byte != 0) {
                self.data_unit(number.into(), block, Direction::Decrypt);
            }
        }
    }

    /// Encrypts the tag of a block in place: a data unit of its own, with a number that no block
    /// has.
    pub(crate) fn encrypt_tag(&self, block: u64, tag: &mut [u8; 16]) {
        self.data_unit(TAG_UNITS | u128::from(block), tag, Direction::Encrypt);
    }

    /// Undoes [`encrypt_tag`](Self::encrypt_tag).
    pub(crate) fn decrypt_tag(&self, block: u64, tag: &mut [u8; 16]) {
        self.data_unit(TAG_UNITS | u128::from(block), tag, Direction::Decrypt);
    }

    /// One data unit, a multiple of 16 bytes.
    fn data_unit(&self, number: u128, unit: &mut [u8], direction: Direction) {
        let mut tweak = GenericArray::from(number.to_le_bytes());
        self.tweaks.encrypt_block(&mut tweak);
        let mut tweak = u128::from_le_bytes(tweak.into());
        let mut tweaks = [0_u128; PARALLEL];
        let mut blocks = [AesBlock::default(); PARALLEL];
        for part in unit.chunks_mut(PARALLEL * AES_BYTES) {
            let count = part.len() / AES_BYTES;
            for (at, bytes) in part.as_chunks::<AES_BYTES>().0.iter().enumerate() {
                tweaks[at] = tweak;
                blocks[at] = (u128::from_le_bytes(*bytes) ^ tweak).to_le_bytes().into();
                // Times x in GF(2^128), modulo x^128 + x^7 + x^2 + x + 1.
                tweak = tweak << 1 ^ if tweak >> 127 == 1 { 0x87 } else { 0 };
            }
            match direction {
                Direction::Encrypt => self.data.encrypt_blocks(&mut blocks[..count]),
                Direction::Decrypt => self.data.decrypt_blocks(&mut blocks[..count]),
            }
            for (at, bytes) in part.as_chunks_mut::<AES_BYTES>().0.iter_mut().enumerate() {
                *bytes = (u128::from_le_bytes(blocks[at].into()) ^ tweaks[at]).to_le_bytes();
            }
        }
    }
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cipher")
    }
}

/// The hook of a read that decrypts its data, on the thread that completes it.
#[derive(Debug)]
pub(crate) struct Decrypt {
    pub(crate) cipher: Arc<Cipher>,
    /// LBA of the first block.
    pub(crate) first: u64,
    pub(crate) block_bytes: usize,
    /// Bytes of the read.
    pub(crate) len: usize,
    /// The hook that the request had before.
    pub(crate) above: Arc<dyn CompletionHook>,
}

impl CompletionHook for Decrypt {
    fn finish(&self, completion: &mut Completion) {
        // Requests with several segments go to the drive's thread.
        let buffer = completion.data.as_mut().and_then(Segments::as_mut_buffer);
        if let (Ok(()), Some(buffer)) = (&completion.result, buffer) {
            self.cipher.decrypt(self.first, self.block_bytes, &mut buffer.as_mut_slice()[..self.len]);
        }
        self.above.finish(completion);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
    }

    /// IEEE 1619-2018, annex B, vector 10: XTS-AES-256, data unit 255 of 512 bytes that count from
    /// 0 on.
    #[test]
    fn the_test_vectors_of_the_standard_match() {
        let key = bytes::<64>(
            "27182818284590452353602874713526624977572470936999595749669676273141592653589793238462643383279502884197169399375105820974944592",
        );
        let plain: Vec<u8> = (0..512).map(|at| u8::try_from(at % 256).unwrap()).collect();
        let mut unit = plain.clone();
        let cipher = Cipher::new(&key);
        cipher.encrypt(255, 512, &mut unit);
        assert_eq!(unit[..32], bytes::<32>("1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b"));
        assert_eq!(unit[496..], bytes::<16>("c4f36ffda9fcea70b9c6e693e148c151"));
        cipher.decrypt(255, 512, &mut unit);
        assert_eq!(unit, plain);
    }

    proptest! {
        #[test]
        fn another_implementation_gives_the_same_result(key: [[u8; 32]; 2], first: u64, shift in prop_oneof![Just(9), Just(12)], seed: u8) {
            let first = first >> 8;
            let all: [u8; KEY_BYTES] = std::array::from_fn(|at| key[at / 32][at % 32]);
            let plain: Vec<u8> = (0..3_usize << shift).map(|at| u8::try_from(at * 7 % 251).unwrap() ^ seed).collect();
            let (mut ours, mut theirs) = (plain.clone(), plain.clone());
            Cipher::new(&all).encrypt(first, 1 << shift, &mut ours);
            let [data, tweaks] = key.map(|half| Aes256::new(GenericArray::from_slice(&half)));
            let other = xts_mode::Xts128::new(data, tweaks);
            other.encrypt_area(&mut theirs, 1 << shift, first.into(), xts_mode::get_tweak_default);
            prop_assert_eq!(&ours, &theirs);
            Cipher::new(&all).decrypt(first, 1 << shift, &mut ours);
            prop_assert_eq!(ours, plain);
        }
    }

    #[test]
    fn a_tag_is_encrypted_with_its_own_block() {
        let cipher = Cipher::new(&[3; 64]);
        let (mut tag, mut other, mut unit) = ([7; 16], [7; 16], [7; 16]);
        cipher.encrypt_tag(5, &mut tag);
        cipher.encrypt_tag(6, &mut other);
        cipher.encrypt(5, 16, &mut unit);
        assert!(tag != [7; 16] && tag != other && tag != unit);
        cipher.decrypt_tag(5, &mut tag);
        assert_eq!(tag, [7; 16]);
    }

    #[test]
    fn blocks_of_zeros_are_not_decrypted_and_others_are() {
        let cipher = Cipher::new(&[3; 64]);
        let mut blocks = vec![0; 3 * 512];
        blocks[512..1024].fill(9);
        let plain = blocks.clone();
        cipher.encrypt(7, 512, &mut blocks[512..1024]);
        cipher.decrypt(6, 512, &mut blocks);
        assert!(blocks[..512] == plain[..512] && blocks[1024..] == plain[1024..]);
    }
}
