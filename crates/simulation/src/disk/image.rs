//! What a disk holds: sparse pages, cheap to copy as a whole. It knows nothing of what is durable.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
/// The same, as a position.
const PAGE_SPAN: u64 = 4096;

/// Bytes at offsets; what was never written reads as zeros.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pages: BTreeMap<u64, Arc<[u8; PAGE_BYTES]>>,
}

impl Image {
    /// Fills `into` from `offset` on.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        into.fill(0);
        let end = offset + into.len() as u64;
        for (page, bytes) in self.pages.range(offset / PAGE_SPAN..end.div_ceil(PAGE_SPAN)) {
            let at = page * PAGE_SPAN;
            let (from, to) = (at.max(offset), (at + PAGE_SPAN).min(end));
            let (within, target) = (index(from - at)..index(to - at), index(from - offset)..index(to - offset));
            into[target].copy_from_slice(&bytes[within]);
        }
    }

    /// Stores `bytes` at `offset`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let position = offset + done as u64;
            let within = index(position % PAGE_SPAN);
            let count = (PAGE_BYTES - within).min(bytes.len() - done);
            let page = self.pages.entry(position / PAGE_SPAN).or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[within..within + count].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
    }

    /// Makes a range read as zeros.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset + len;
        let (first, last) = (offset.div_ceil(PAGE_SPAN), end / PAGE_SPAN);
        if first < last {
            let inside: Vec<u64> = self.pages.range(first..last).map(|(&page, _)| page).collect();
            inside.iter().for_each(|page| drop(self.pages.remove(page)));
        }
        let edges = if first > last {
            [(offset, end), (end, end)]
        } else {
            [(offset, (first * PAGE_SPAN).min(end)), ((last * PAGE_SPAN).max(offset), end)]
        };
        for (from, to) in edges.into_iter().filter(|(from, to)| from < to) {
            if self.pages.contains_key(&(from / PAGE_SPAN)) {
                self.write(from, &vec![0; index(to - from)]);
            }
        }
    }

    /// Where a page begins that was written, from `from` on.
    #[must_use]
    pub fn next_data(&self, from: u64) -> Option<u64> {
        self.pages.range(from / PAGE_SPAN..).next().map(|(page, _)| (page * PAGE_SPAN).max(from))
    }

    /// Pages that hold something.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// A number that two images share only if they hold the same, in practice.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut digest = 0;
        for (page, bytes) in self.pages.iter().filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)) {
            digest = crate::random::mix(digest ^ page);
            for word in bytes.chunks_exact(8) {
                let word = word.iter().fold(0_u64, |word, &byte| word << 8 | u64::from(byte));
                digest = (digest ^ word).wrapping_mul(0x100_0000_01b3);
            }
        }
        digest
    }
}

/// A position within something that is in memory.
fn index(position: u64) -> usize {
    usize::try_from(position).expect("within a buffer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn an_image_is_what_a_plain_array_would_be() {
        let (mut image, mut plain) = (Image::default(), vec![0_u8; 64 << 10]);
        let mut random = Random::new(5);
        for round in 0..2000_u64 {
            let offset = random.below(60 << 10);
            let len = random.below(4 << 10) + random.below(2) * 8192;
            let (from, to) = (index(offset), index(offset + len).min(plain.len()));
            match random.below(3) {
                0 => {
                    image.zero(offset, (to - from) as u64);
                    plain[from..to].fill(0);
                }
                1 => {
                    let byte = u8::try_from(round % 251).unwrap();
                    image.write(offset, &vec![byte; to - from]);
                    plain[from..to].fill(byte);
                }
                _ => {
                    let mut read = vec![0xEE; to - from];
                    image.read(offset, &mut read);
                    assert_eq!(read, plain[from..to]);
                }
            }
        }
        let mut copy = Image::default();
        copy.write(0, &plain);
        assert_eq!(copy.digest(), image.digest());
        copy.write(77, &[plain[77] ^ 1]);
        assert_ne!(copy.digest(), image.digest());
    }
}
