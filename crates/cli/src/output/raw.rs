//! Views of uninterpreted bytes: `get-log`, `security-recv`.

use ebof_nvme::log::Lid;

use super::done::Done;

/// Any log page, from `offset` on.
pub(crate) fn log_view(device: &str, lid: Lid, offset: u64, data: Vec<u8>) -> Done {
    let name = lid.name().unwrap_or("Unknown");
    Done::with_text("get-log", format!("Device:{device} log-id:{} ({name})\n", lid.0))
        .with("log_id", lid.0)
        .with("name", lid.name())
        .with("offset", offset)
        .with_bytes(data)
}

/// The result of Security Receive, with the protocol and its specific field.
pub(crate) fn security_view(device: &str, secp: u8, spsp: u16, data: Vec<u8>) -> Done {
    Done::with_text("security-recv", "NVME Security Receive Command Success\n".to_owned())
        .with("device", device)
        .with("secp", secp)
        .with("spsp", spsp)
        .with_bytes(data)
}
