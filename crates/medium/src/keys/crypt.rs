//! Encryption at rest: XTS-AES-256 (IEEE 1619), a data unit per block, numbered by its LBA.
//!
//! A block that was never written, or was deallocated, is zeros on the medium and reads as zeros:
//! the cipher text of a block of 512 bytes is all zeros with a probability of 2^-4096. Which blocks
//! are empty is no secret, as in every thin namespace.
//!
//! The work is done inside the cipher's closures, which are compiled for the instructions that the
//! cipher found at run time: tweaks and exclusive ors then use the same wide registers.

use std::fmt;
use std::sync::Arc;

use aes::Aes256;
use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{
    Block, BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit,
};
use ebof_backend::{Completion, CompletionHook, Segments};
use ebof_vault::KeptValue;

/// Bytes of a key: one for the data, one for the tweaks.
pub(crate) const KEY_BYTES: usize = 64;
/// Bytes of an AES block.
const AES_BYTES: usize = 16;
/// AES blocks whose tweaks are computed together: as many as the widest cipher takes at a time.
const BATCH: usize = 64;
/// AES blocks of the smallest block of a namespace, of which a batch has two.
const HALF: usize = BATCH / 2;
/// Data units whose first tweaks are computed together.
const UNITS: usize = 8;

/// Added to the number of a block for the data unit of its tag.
const TAG_UNITS: u128 = 1 << 64;

/// An element of GF(2^128), the low half first: an array of them is computed several at a time.
type Tweak = [u64; 2];

/// Encrypts and decrypts the blocks of a namespace.
pub(crate) struct Cipher(KeptValue<Schedules>);

/// What the two halves of a key are expanded to, and which has the halves in it.
struct Schedules {
    data: Aes256,
    tweaks: Aes256,
}

#[derive(Clone, Copy)]
enum Direction {
    Encrypt,
    Decrypt,
}

impl Cipher {
    /// With a key of [`KEY_BYTES`].
    pub(crate) fn new(key: &[u8]) -> Self {
        let (data, tweaks) = key.split_at(KEY_BYTES / 2);
        let half = |half| Aes256::new_from_slice(half).expect("keys have 64 bytes");
        Self(KeptValue::new(|| Schedules { data: half(data), tweaks: half(tweaks) }))
    }

    /// Encrypts whole blocks of `block_bytes` each in place; the LBA of the first is `first`.
    pub(crate) fn encrypt(&self, first: u64, block_bytes: usize, blocks: &mut [u8]) {
        self.data_units(first.into(), block_bytes, blocks, Direction::Encrypt);
    }

    /// Undoes [`encrypt`](Self::encrypt). Blocks that are all zeros stay as they are.
    pub(crate) fn decrypt(&self, first: u64, block_bytes: usize, blocks: &mut [u8]) {
        let (mut number, mut rest) = (u128::from(first), blocks);
        while !rest.is_empty() {
            let zeros = rest.chunks_exact(block_bytes).take_while(|block| is_zeros(block)).count();
            rest = &mut rest[zeros * block_bytes..];
            let used = rest.chunks_exact(block_bytes).take_while(|block| !is_zeros(block)).count();
            let (run, behind) = rest.split_at_mut(used * block_bytes);
            number += zeros as u128;
            self.data_units(number, block_bytes, run, Direction::Decrypt);
            number += used as u128;
            rest = behind;
        }
    }

    /// Encrypts the tag of a block in place: a data unit of its own, with a number that no block
    /// has.
    pub(crate) fn encrypt_tag(&self, block: u64, tag: &mut [u8; 16]) {
        self.data_units(TAG_UNITS | u128::from(block), AES_BYTES, tag, Direction::Encrypt);
    }

    /// Undoes [`encrypt_tag`](Self::encrypt_tag).
    pub(crate) fn decrypt_tag(&self, block: u64, tag: &mut [u8; 16]) {
        self.data_units(TAG_UNITS | u128::from(block), AES_BYTES, tag, Direction::Decrypt);
    }

    /// Data units of `unit_bytes` each, a multiple of 16, with numbers from `first` on.
    fn data_units(&self, first: u128, unit_bytes: usize, units: &mut [u8], direction: Direction) {
        for (number, units) in (first..).step_by(UNITS).zip(units.chunks_mut(UNITS * unit_bytes)) {
            let mut numbers: [Block<Aes256>; UNITS] =
                std::array::from_fn(|at| (number + at as u128).to_le_bytes().into());
            let tweaks = &mut numbers[..units.len() / unit_bytes];
            self.0.tweaks.encrypt_blocks(tweaks);
            let blocks = units.as_chunks_mut::<AES_BYTES>().0;
            let units = Units { tweaks, unit_blocks: unit_bytes / AES_BYTES, blocks };
            match direction {
                Direction::Encrypt => self.0.data.encrypt_with_backend(units),
                Direction::Decrypt => self.0.data.decrypt_with_backend(units),
            }
        }
    }
}

/// Whether a block was never written. The first bytes of cipher text already tell that it was.
fn is_zeros(block: &[u8]) -> bool {
    block.as_chunks::<AES_BYTES>().0.iter().all(|bytes| u128::from_ne_bytes(*bytes) == 0)
}

/// Data units, and the encrypted number of each: the tweak of its first AES block.
struct Units<'a> {
    tweaks: &'a [Block<Aes256>],
    /// AES blocks of a unit.
    unit_blocks: usize,
    blocks: &'a mut [[u8; AES_BYTES]],
}

impl BlockSizeUser for Units<'_> {
    type BlockSize = U16;
}

impl Units<'_> {
    /// Calls `batch` with all AES blocks, [`BATCH`] at most at a time, and their tweaks.
    #[inline(always)]
    fn for_each_batch(self, batch: impl Fn(&mut [[u8; AES_BYTES]], &[Tweak; BATCH])) {
        let mut tweaks = [[0; 2]; BATCH];
        if self.unit_blocks == HALF {
            for (pair, blocks) in self.tweaks.chunks(2).zip(self.blocks.chunks_mut(BATCH)) {
                for (tweak, half) in pair.iter().zip(tweaks.as_chunks_mut::<HALF>().0) {
                    expand(tweak, half);
                }
                batch(blocks, &tweaks);
            }
        } else {
            for (tweak, unit) in self.tweaks.iter().zip(self.blocks.chunks_mut(self.unit_blocks)) {
                expand(tweak, &mut tweaks);
                for blocks in unit.chunks_mut(BATCH) {
                    batch(blocks, &tweaks);
                    tweaks.iter_mut().for_each(|tweak| *tweak = times_x64(*tweak));
                }
            }
        }
    }
}

impl BlockCipherEncClosure for Units<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        self.for_each_batch(
            #[inline(always)]
            |blocks, tweaks| {
                add(blocks, tweaks);
                let (together, rest) = Array::slice_as_chunks_mut(Array::cast_slice_from_core_mut(blocks));
                together.iter_mut().for_each(|blocks| backend.encrypt_par_blocks_inplace(blocks));
                rest.iter_mut().for_each(|block| backend.encrypt_block_inplace(block));
                add(blocks, tweaks);
            },
        );
    }
}

impl BlockCipherDecClosure for Units<'_> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        self.for_each_batch(
            #[inline(always)]
            |blocks, tweaks| {
                add(blocks, tweaks);
                let (together, rest) = Array::slice_as_chunks_mut(Array::cast_slice_from_core_mut(blocks));
                together.iter_mut().for_each(|blocks| backend.decrypt_par_blocks_inplace(blocks));
                rest.iter_mut().for_each(|block| backend.decrypt_block_inplace(block));
                add(blocks, tweaks);
            },
        );
    }
}

/// Adds its tweak to each AES block.
#[inline(always)]
fn add(blocks: &mut [[u8; AES_BYTES]], tweaks: &[Tweak; BATCH]) {
    for (block, tweak) in blocks.iter_mut().zip(tweaks) {
        for (half, tweak) in block.as_chunks_mut::<8>().0.iter_mut().zip(tweak) {
            *half = (u64::from_le_bytes(*half) ^ tweak).to_le_bytes();
        }
    }
}

/// The tweaks of a unit's first AES blocks: each is x times the one before. `tweaks` are a power of
/// two; those there are give as many again, which no processor has to compute one by one.
#[inline(always)]
fn expand<const N: usize>(first: &Block<Aes256>, tweaks: &mut [Tweak; N]) {
    let [low, high] = [0, 1].map(|half| u64::from_le_bytes(first.0.as_chunks::<8>().0[half]));
    tweaks[0] = [low, high];
    let mut count = 1;
    while count < N {
        for at in 0..count {
            tweaks[count + at] = times_x(tweaks[at], count);
        }
        count *= 2;
    }
}

/// Times x^`power` in GF(2^128), modulo x^128 + x^7 + x^2 + x + 1. `power` is 1 to 57.
#[inline(always)]
fn times_x([low, high]: Tweak, power: usize) -> Tweak {
    let over = high >> (64 - power);
    [low << power ^ over ^ over << 1 ^ over << 2 ^ over << 7, high << power | low >> (64 - power)]
}

/// Times x^64.
#[inline(always)]
fn times_x64([low, high]: Tweak) -> Tweak {
    [high ^ high << 1 ^ high << 2 ^ high << 7, low ^ high >> 63 ^ high >> 62 ^ high >> 57]
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

    fn plain(len: usize, seed: u8) -> Vec<u8> {
        (0..len).map(|at| u8::try_from(at * 7 % 251).unwrap() ^ seed).collect()
    }

    /// IEEE 1619-2018, annex B, vector 10: XTS-AES-256, data unit 255 of 512 bytes that count from
    /// 0 on.
    #[test]
    fn the_test_vectors_of_the_standard_match() {
        let key = bytes::<64>(
            "27182818284590452353602874713526624977572470936999595749669676273141592653589793238462643383279502884197169399375105820974944592",
        );
        let plain: Vec<u8> = (0..=255).chain(0..=255).collect();
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
        fn another_implementation_gives_the_same_result(
            key: [[u8; 32]; 2],
            first: u64,
            shift in prop_oneof![Just(9), Just(12)],
            count in 1_usize..=3 * UNITS,
            seed: u8,
        ) {
            let first = first >> 8;
            let all: [u8; KEY_BYTES] = std::array::from_fn(|at| key[at / 32][at % 32]);
            let plain = plain(count << shift, seed);
            let (mut ours, mut theirs) = (plain.clone(), plain.clone());
            Cipher::new(&all).encrypt(first, 1 << shift, &mut ours);
            let [data, tweaks] = key.map(|half| Aes256::new(&half.into()));
            let other = xts_mode::Xts128::new(data, tweaks);
            other.encrypt_area(&mut theirs, 1 << shift, first.into(), xts_mode::get_tweak_default);
            prop_assert!(ours == theirs);
            Cipher::new(&all).decrypt(first, 1 << shift, &mut ours);
            prop_assert!(ours == plain);
        }

        #[test]
        fn blocks_of_zeros_are_not_decrypted_and_others_are(
            shift in prop_oneof![Just(9), Just(12)],
            zeros in proptest::collection::vec(any::<bool>(), 1..=3 * UNITS),
        ) {
            let cipher = Cipher::new(&[3; 64]);
            let mut plain = plain(zeros.len() << shift, 7);
            for (block, _) in plain.chunks_mut(1 << shift).zip(&zeros).filter(|(_, zero)| **zero) {
                block.fill(0);
            }
            let mut blocks = plain.clone();
            for ((number, block), zero) in (u64::MAX - 100..).zip(blocks.chunks_mut(1 << shift)).zip(&zeros) {
                if !zero {
                    cipher.encrypt(number, 1 << shift, block);
                }
            }
            cipher.decrypt(u64::MAX - 100, 1 << shift, &mut blocks);
            prop_assert!(blocks == plain);
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
}
