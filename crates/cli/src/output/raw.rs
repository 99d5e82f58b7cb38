//! Views of uninterpreted bytes: `get-log`, and the data of `read`.

use ebof_nvme::log::Lid;

use super::View;
use super::json::Object;
use super::text::{digits, dump};

/// Any log page.
pub(crate) struct LogView {
    /// The device's name.
    pub(crate) device: String,
    /// The log page.
    pub(crate) lid: Lid,
    /// Offset of the first byte in the log page.
    pub(crate) offset: u64,
    /// The bytes.
    pub(crate) data: Vec<u8>,
}

impl View for LogView {
    fn text(&self, _verbose: bool) -> String {
        let name = self.lid.name().unwrap_or("Unknown");
        format!("Device:{} log-id:{} ({name})\n{}", self.device, self.lid.0, dump(&self.data))
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("get-log", 1)
            .with("log_id", self.lid.0)
            .with("name", self.lid.name())
            .with("offset", self.offset)
            .with("data_size", self.data.len() as u64)
            .with("data", digits(&self.data))
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(&self.data)
    }
}

/// The result of Security Receive.
pub(crate) struct SecurityView {
    /// The device's name.
    pub(crate) device: String,
    /// Security protocol.
    pub(crate) secp: u8,
    /// Security protocol specific field.
    pub(crate) spsp: u16,
    /// The bytes.
    pub(crate) data: Vec<u8>,
}

impl View for SecurityView {
    fn text(&self, _verbose: bool) -> String {
        format!("NVME Security Receive Command Success\n{}", dump(&self.data))
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("security-recv", 1)
            .with("device", self.device.as_str())
            .with("secp", self.secp)
            .with("spsp", self.spsp)
            .with("data_size", self.data.len() as u64)
            .with("data", digits(&self.data))
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(&self.data)
    }
}
