//! One direction's key, and its sequence numbers.

use aws_lc_rs::aead::{Aad, Nonce};
use aws_lc_rs::error::Unspecified;
use ebof_authentication::KeyMaterial;

use super::error::RecordError;
use super::{HEADER_BYTES, TAG_BYTES, content};
use crate::schedule::{self, NONCE_BYTES, Suite, TrafficKey};

/// The key of one direction.
pub(super) struct Half {
    suite: Suite,
    secret: KeyMaterial,
    traffic: TrafficKey,
    /// The number of the next record.
    sequence: u64,
}

impl Half {
    pub(super) fn new(suite: Suite, secret: KeyMaterial) -> Result<Self, Unspecified> {
        let traffic = schedule::traffic_key(suite, &secret)?;
        Ok(Self { suite, secret, traffic, sequence: 0 })
    }

    /// The next key (RFC 8446, 7.2).
    pub(super) fn update(&mut self) -> Result<(), RecordError> {
        let secret = schedule::next_secret(self.suite, &self.secret);
        *self = Self::new(self.suite, secret).map_err(|Unspecified| RecordError::Library)?;
        Ok(())
    }

    /// Only the last sequence number is left, which is not used.
    #[cfg(test)]
    pub(super) fn exhaust(&mut self) {
        self.sequence = u64::MAX;
    }

    /// Appends one record to `out`, of what `write` appends.
    pub(super) fn seal(
        &mut self,
        out: &mut Vec<u8>,
        kind: u8,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), RecordError> {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        write(out);
        out.push(kind);
        let record = &mut out[start..];
        // RFC 8446, 5.2: the header is authenticated, too.
        let length = u16::try_from(record.len() - HEADER_BYTES + TAG_BYTES).expect("at most 2^14 + 17");
        let [high, low] = length.to_be_bytes();
        let header = [content::APPLICATION_DATA, 3, 3, high, low];
        record[..HEADER_BYTES].copy_from_slice(&header);
        let nonce = self.nonce()?;
        let key = &self.traffic.key;
        let tag = key
            .seal_in_place_separate_tag(nonce, Aad::from(header), &mut record[HEADER_BYTES..])
            .map_err(|Unspecified| RecordError::Library)?;
        out.extend_from_slice(tag.as_ref());
        Ok(())
    }

    /// Decrypts what is behind a record's header where it is, and returns that without its tag.
    pub(super) fn open<'a>(
        &mut self,
        header: [u8; HEADER_BYTES],
        body: &'a mut [u8],
    ) -> Result<&'a mut [u8], RecordError> {
        let nonce = self.nonce()?;
        self.traffic.key.open_in_place(nonce, Aad::from(header), body).map_err(|Unspecified| RecordError::Decrypt)
    }

    /// Decrypts what is behind a record's header into `into`, which is as long without the tag.
    pub(super) fn open_into(
        &mut self,
        header: [u8; HEADER_BYTES],
        body: &[u8],
        into: &mut [u8],
    ) -> Result<(), RecordError> {
        let nonce = self.nonce()?;
        let (ciphertext, tag) = body.split_at_checked(into.len()).ok_or(RecordError::Decrypt)?;
        let key = &self.traffic.key;
        key.open_separate_gather(nonce, Aad::from(header), ciphertext, tag, into)
            .map_err(|Unspecified| RecordError::Decrypt)
    }

    /// RFC 8446, 5.3.
    fn nonce(&mut self) -> Result<Nonce, RecordError> {
        let mut nonce = *self.traffic.iv;
        for (byte, number) in nonce[NONCE_BYTES - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence = self.sequence.checked_add(1).ok_or(RecordError::Exhausted)?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}
