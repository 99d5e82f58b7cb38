//! VERSION: what both ends can do, as a text in JSON behind two numbers.

use alloc::format;
use alloc::string::String;

use serde::Deserialize;

use super::command::Fields;
use super::{DATA_BYTES_MAX, DESCRIPTORS_MAX, DMA_MAPS_MAX, DMA_PAGE_BYTES};
use crate::errno::Errno;

/// The major version that this server speaks.
pub(super) const MAJOR: u16 = 0;
/// The highest minor version. No message that this server knows differs between 0.0 and 0.1.
pub(super) const MINOR_MAX: u16 = 1;

/// What a client proposes. Its major version is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Minor version.
    pub minor: u16,
    /// Descriptors that it takes with one message.
    pub descriptors_max: u32,
    /// Bytes of data that it takes with one message.
    pub data_bytes_max: u64,
    /// It says what it can do. SPDK's host (26.09) does not.
    pub names_capabilities: bool,
}

#[derive(Deserialize)]
#[serde(default)]
struct Capabilities {
    max_msg_fds: u32,
    max_data_xfer_size: u64,
}

impl Default for Capabilities {
    /// What the protocol says where a client says nothing.
    fn default() -> Self {
        Self { max_msg_fds: 1, max_data_xfer_size: 1 << 20 }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Text {
    capabilities: Capabilities,
}

impl Proposal {
    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, Errno> {
        let (major, minor) = (fields.u16()?, fields.u16()?);
        if major != MAJOR {
            return Err(Errno::NOT_SUPPORTED);
        }
        // The text ends with a zero byte; there may be none, nor a text.
        let text = fields.rest().split(|byte| *byte == 0).next().filter(|text| !text.is_empty());
        let names_capabilities = text.is_some();
        let text = match text {
            None => Text::default(),
            Some(text) => serde_json::from_slice(text).map_err(|_malformed| Errno::INVALID)?,
        };
        let Capabilities { max_msg_fds, max_data_xfer_size } = text.capabilities;
        Ok(Self { minor, descriptors_max: max_msg_fds, data_bytes_max: max_data_xfer_size, names_capabilities })
    }
}

/// The text of the answer, without the zero byte at its end.
pub(super) fn answer() -> String {
    format!(
        "{{\"capabilities\":{{\"max_msg_fds\":{DESCRIPTORS_MAX},\"max_data_xfer_size\":{DATA_BYTES_MAX},\
         \"pgsizes\":{DMA_PAGE_BYTES},\"max_dma_maps\":{DMA_MAPS_MAX}}}}}"
    )
}
