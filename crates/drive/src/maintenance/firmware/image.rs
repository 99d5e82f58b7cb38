//! The format of firmware images: docs/firmware.md.

use alloc::string::String;
use alloc::vec::Vec;

use crc_fast::CrcAlgorithm;
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{GRANULARITY_BYTES, IMAGE_BYTES_MAX};

/// An image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The product that it is made for, 1 to 32 characters of printable ASCII without spaces.
    pub product: String,
    /// Firmware Revision, 1 to 8 characters of printable ASCII without spaces.
    pub revision: String,
    /// How the drive behaves while it runs.
    pub personality: Personality,
}

/// What an image changes about the drive. Unknown keys are refused, because they may ask for
/// something that this version cannot do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Personality {
    /// Appended to the model number, at most 8 characters of printable ASCII; empty for none.
    pub model_suffix: String,
    /// It can be activated without a reset.
    pub activates_without_reset: bool,
    /// Compare is announced and executed; likewise those below.
    pub compare: bool,
    /// Copy.
    pub copy: bool,
    /// Dataset Management.
    pub dataset_management: bool,
    /// Verify.
    pub verify: bool,
    /// Write Uncorrectable.
    pub write_uncorrectable: bool,
    /// Write Zeroes.
    pub write_zeroes: bool,
    /// The reservation commands.
    pub reservations: bool,
    /// Device Self-test.
    pub device_self_test: bool,
    /// Format NVM.
    pub format: bool,
    /// Sanitize.
    pub sanitize: bool,
    /// The telemetry log pages.
    pub telemetry: bool,
}

/// Why bytes are no image, or an image cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Shorter than the header, or longer than an image may be.
    #[error("an image has 64 bytes to 1 MiB, this has {0}")]
    Size(usize),
    /// Not an image.
    #[error("this is no firmware image of ebof: the magic number is missing")]
    Magic,
    /// A format of a later version.
    #[error("format {0} of images is not known, only 1")]
    Format(u16),
    /// Damaged.
    #[error("the header's checksum is wrong: {found:08x} instead of {expected:08x}")]
    HeaderChecksum {
        /// What the bytes give.
        expected: u32,
        /// What the image says.
        found: u32,
    },
    /// A field of the header that cannot be.
    #[error("the field {0} of the header cannot be what it is")]
    Header(&'static str),
    /// The payload is incomplete.
    #[error("the payload has {wanted} bytes, of which {found} are there")]
    Truncated {
        /// What the header says.
        wanted: u32,
        /// What is there.
        found: usize,
    },
    /// Damaged.
    #[error("the payload's checksum is wrong: {found:08x} instead of {expected:08x}")]
    PayloadChecksum {
        /// What the bytes give.
        expected: u32,
        /// What the image says.
        found: u32,
    },
    /// Something follows the payload.
    #[error("there is something behind the payload, at byte {0}; only zeros may be")]
    Trailing(usize),
    /// The personality is no JSON, or has keys or values that are not known.
    #[error("the personality cannot be read: {0}")]
    Personality(serde_json::Error),
    /// A text of the image is too long or has characters that may not be.
    #[error("{0} has to be printable ASCII without spaces and of the right length")]
    Text(&'static str),
}

/// The first 64 bytes of an image.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    format: U16,
    /// Bytes of the header.
    header_bytes: U16,
    payload_bytes: U32,
    /// CRC-32C of the payload.
    payload_crc: U32,
    /// Padded with zeros.
    revision: [u8; 8],
    /// Padded with zeros.
    product: [u8; 32],
    /// CRC-32C of the 60 bytes before it.
    header_crc: U32,
}

const HEADER_BYTES: usize = size_of::<Header>();
const _: () = assert!(HEADER_BYTES == 64);

const MAGIC: [u8; 8] = *b"EBOFFW\r\n";
const FORMAT: u16 = 1;

impl Image {
    /// Decodes and checks an image.
    ///
    /// # Errors
    /// It is not an image, damaged, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, ImageError> {
        if bytes.len() > IMAGE_BYTES_MAX {
            return Err(ImageError::Size(bytes.len()));
        }
        let (header, rest) = Header::read_from_prefix(bytes).map_err(|_| ImageError::Size(bytes.len()))?;
        if header.magic != MAGIC {
            return Err(ImageError::Magic);
        }
        // Before the checksum, which may be elsewhere in another format.
        if header.format.get() != FORMAT {
            return Err(ImageError::Format(header.format.get()));
        }
        let expected = crc(&bytes[..HEADER_BYTES - 4]);
        if header.header_crc.get() != expected {
            return Err(ImageError::HeaderChecksum { expected, found: header.header_crc.get() });
        }
        if usize::from(header.header_bytes.get()) != HEADER_BYTES {
            return Err(ImageError::Header("length"));
        }
        let wanted = header.payload_bytes.get();
        let payload = usize::try_from(wanted).ok().and_then(|wanted| rest.split_at_checked(wanted));
        let (payload, padding) = payload.ok_or(ImageError::Truncated { wanted, found: rest.len() })?;
        let expected = crc(payload);
        if header.payload_crc.get() != expected {
            return Err(ImageError::PayloadChecksum { expected, found: header.payload_crc.get() });
        }
        if let Some(at) = padding.iter().position(|&byte| byte != 0) {
            return Err(ImageError::Trailing(HEADER_BYTES + payload.len() + at));
        }
        let image = Self {
            product: text(&header.product).ok_or(ImageError::Header("product"))?,
            revision: text(&header.revision).ok_or(ImageError::Header("revision"))?,
            personality: serde_json::from_slice(payload).map_err(ImageError::Personality)?,
        };
        image.check()?;
        Ok(image)
    }

    /// Encodes the image, padded with zeros to the granularity of downloads.
    ///
    /// # Errors
    /// A text is too long, or not of printable ASCII.
    pub fn encode(&self) -> Result<Vec<u8>, ImageError> {
        self.check()?;
        let payload = serde_json::to_vec(&self.personality).map_err(ImageError::Personality)?;
        let mut header = Header {
            magic: MAGIC,
            format: FORMAT.into(),
            header_bytes: 64.into(),
            payload_bytes: u32::try_from(payload.len()).map_err(|_| ImageError::Size(payload.len()))?.into(),
            payload_crc: crc(&payload).into(),
            revision: [0; 8],
            product: [0; 32],
            header_crc: 0.into(),
        };
        header.revision[..self.revision.len()].copy_from_slice(self.revision.as_bytes());
        header.product[..self.product.len()].copy_from_slice(self.product.as_bytes());
        header.header_crc = crc(&header.as_bytes()[..HEADER_BYTES - 4]).into();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(&payload);
        bytes.resize(bytes.len().next_multiple_of(GRANULARITY_BYTES), 0);
        Ok(bytes)
    }

    fn check(&self) -> Result<(), ImageError> {
        let fits = |text: &str, least, most| {
            (least..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !fits(&self.product, 1, 32) {
            return Err(ImageError::Text("the product"));
        }
        if !fits(&self.revision, 1, 8) {
            return Err(ImageError::Text("the revision"));
        }
        if !fits(&self.personality.model_suffix, 0, 8) {
            return Err(ImageError::Text("the model's suffix"));
        }
        Ok(())
    }
}

impl Personality {
    /// Whether replacing `running` needs a reset: a command that was announced would disappear, or
    /// the model number would change.
    pub(super) fn needs_reset_from(&self, running: &Self) -> bool {
        let pairs = self.commands().into_iter().zip(running.commands());
        let loses = pairs.into_iter().any(|(new, old)| old && !new);
        !self.activates_without_reset || loses || self.model_suffix != running.model_suffix
    }

    const fn commands(&self) -> [bool; 11] {
        [
            self.compare,
            self.copy,
            self.dataset_management,
            self.verify,
            self.write_uncorrectable,
            self.write_zeroes,
            self.reservations,
            self.device_self_test,
            self.format,
            self.sanitize,
            self.telemetry,
        ]
    }
}

/// Everything is enabled.
impl Default for Personality {
    fn default() -> Self {
        Self {
            model_suffix: String::new(),
            activates_without_reset: true,
            compare: true,
            copy: true,
            dataset_management: true,
            verify: true,
            write_uncorrectable: true,
            write_zeroes: true,
            reservations: true,
            device_self_test: true,
            format: true,
            sanitize: true,
            telemetry: true,
        }
    }
}

/// A text that is padded with zeros; `None` if it is not ASCII, or something follows the first
/// zero.
fn text(field: &[u8]) -> Option<String> {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    let (text, padding) = field.split_at(end);
    let clean = text.is_ascii() && padding.iter().all(|&byte| byte == 0);
    clean.then(|| text.iter().map(|&byte| char::from(byte)).collect())
}

fn crc(bytes: &[u8]) -> u32 {
    let crc = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(crc).expect("a CRC-32C has 32 bits")
}
