//! The views of commands that were given by their fields: what came back, and what would be sent.

use std::fmt::Write as _;

use ebof_nvme::Sqe;

use super::View;
use super::json::Object;
use super::text::{digits, dump};

/// The result of a passthrough command.
#[derive(Debug)]
pub(crate) struct PassthruView {
    /// `admin-passthru` or `io-passthru`.
    pub(crate) verb: &'static str,
    /// The device's name.
    pub(crate) device: String,
    /// Opcode.
    pub(crate) opcode: u8,
    /// The command's name, where it has one.
    pub(crate) name: Option<&'static str>,
    /// Dwords 0 and 1 of the completion.
    pub(crate) result: u64,
    /// The data that the controller sent.
    pub(crate) data: Vec<u8>,
}

impl PassthruView {
    /// The line that reports success.
    pub(crate) fn line(&self) -> String {
        let name = self.name.map(|name| format!("{name} ")).unwrap_or_default();
        format!("{}: {name}Success, result: {:#x}\n", self.verb, self.result)
    }
}

impl View for PassthruView {
    fn text(&self, _verbose: bool) -> String {
        if self.data.is_empty() { self.line() } else { dump(&self.data) }
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document(self.verb, 1)
            .with("device", self.device.as_str())
            .with("opcode", self.opcode)
            .with("name", self.name)
            .with("result", self.result)
            .with("data_size", self.data.len() as u64)
            .with("data", digits(&self.data))
    }

    fn binary(&self) -> Option<&[u8]> {
        Some(&self.data)
    }
}

/// A command's fields, a line each, in nvme-cli's words.
pub(crate) fn command_text(sqe: &Sqe, data_bytes: usize) -> String {
    let mut text = String::new();
    let _infallible = writeln!(text, "opcode       : {:02x}", sqe.opcode);
    // PSDT is not shown: the transport sets it, not the user.
    let _infallible = writeln!(text, "flags        : {:02x}", sqe.flags & 0x3f);
    for (name, value) in [("nsid", sqe.nsid().0), ("cdw2", sqe.cdw2.get()), ("cdw3", sqe.cdw3.get())] {
        let _infallible = writeln!(text, "{name:<13}: {value:08x}");
    }
    let _infallible = writeln!(text, "data_len     : {data_bytes:08x}");
    let dwords = [sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15];
    for (number, value) in (10..).zip(dwords) {
        let _infallible = writeln!(text, "{:<13}: {:08x}", format!("cdw{number}"), value.get());
    }
    text.trim_end().to_owned()
}

/// A command's fields as keys.
pub(crate) fn command_json(sqe: &Sqe, data_bytes: usize) -> Object {
    let object = Object::new()
        .with("opcode", sqe.opcode)
        .with("flags", sqe.flags & 0x3f)
        .with("nsid", sqe.nsid().0)
        .with("cdw2", sqe.cdw2.get())
        .with("cdw3", sqe.cdw3.get())
        .with("data_len", data_bytes as u64);
    let dwords = [sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15];
    (10..).zip(dwords).fold(object, |object, (number, value)| object.with(format!("cdw{number}"), value.get()))
}
