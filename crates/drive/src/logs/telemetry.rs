//! Telemetry: the state of the drive for a developer, captured when a host asks for it, or by the
//! drive itself after a severe error.
//!
//! A capture is text in three data areas with more and more detail. Here it is divided into blocks,
//! numbered and kept.
//!
//! NVMe Base 2.1, "Telemetry Host-Initiated", "Telemetry Controller-Initiated" log pages (07h,
//! 08h).

#[cfg(test)]
mod tests;

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_nvme::Status;
use ebof_nvme::log::{Lid, TelemetryHeader, telemetry_lsp, telemetry_scope};
use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;

use crate::request::Refusal;

/// Bytes of a host-initiated capture at most; longer ones are truncated.
pub const HOST_BYTES_MAX: usize = 4 << 20;

/// Bytes of a controller-initiated capture at most: it is in the journal.
pub const CONTROLLER_BYTES_MAX: usize = 128 << 10;

/// The controller-initiated capture. It is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Telemetry {
    capture: Option<Capture>,
    /// TCDGN.
    generation: u8,
    /// TCDA: no host has read it.
    available: bool,
}

/// The host-initiated capture. It ends with a reset, a firmware commit, or the next capture.
#[derive(Clone, Debug, Default)]
pub struct HostTelemetry {
    /// The pages for managers and for others, without what the header says of the
    /// controller-initiated capture.
    pages: Option<[Page; 2]>,
    /// THDGN.
    generation: u8,
}

/// A capture: JSON, or any text that a developer understands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capture {
    /// Reason Identifier, at most 128 bytes.
    pub reason: String,
    /// Data Area 1, and what areas 2 and 3 add to it. They contain no names of hosts.
    pub areas: [String; 3],
    /// The names of hosts and their registrations: added to area 3 for managers only. `None` in a
    /// capture of an earlier version of this program, which has names in all areas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private: Option<String>,
}

/// Who reads a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A host that may manage the drive.
    Manager,
    /// Any other host: it must not learn the names of others.
    Other,
}

/// A log page. It may be large, and is read in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    header: TelemetryHeader,
    blocks: Arc<[u8]>,
}

impl Telemetry {
    /// The new state with a capture, which replaces the one before. The event Telemetry Log Changed
    /// is due.
    #[must_use]
    pub fn captured(&self, capture: Capture) -> Self {
        let capture = capture.truncated(CONTROLLER_BYTES_MAX);
        Self { capture: Some(capture), generation: self.generation.wrapping_add(1), available: true }
    }

    /// Drops the capture.
    pub(crate) fn forget(&mut self) {
        self.capture = None;
        self.available = false;
    }

    /// The new state when a host has read the page without retaining the event; `None` if it does
    /// not change.
    #[must_use]
    pub fn acknowledged(&self) -> Option<Self> {
        self.available.then(|| Self { available: false, ..self.clone() })
    }

    /// Whether there is a capture that no host has read (TCDA).
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.available
    }

    /// Telemetry Controller-Initiated.
    #[must_use]
    pub fn page(&self, reader: Reader) -> Page {
        let none = Capture::default();
        let mut page = self.capture.as_ref().unwrap_or(&none).page(Lid::TELEMETRY_CONTROLLER, reader);
        page.header.thdgn_or_tcs = telemetry_scope::SUBSYSTEM;
        self.describe(&mut page.header);
        page
    }

    fn describe(&self, header: &mut TelemetryHeader) {
        header.tcda = self.available.into();
        header.tcdgn = self.generation;
    }
}

impl HostTelemetry {
    /// Executes Get Log Page with the Log Specific Parameter `lsp`: makes a new capture if it asks
    /// for one, and returns the page.
    pub fn execute(
        &mut self,
        lsp: u8,
        reader: Reader,
        telemetry: &Telemetry,
        capture: impl FnOnce() -> Capture,
    ) -> Page {
        if lsp & telemetry_lsp::CREATE != 0 {
            let mut capture = capture().truncated(HOST_BYTES_MAX);
            // Maximum Created Data Area: 0 leaves it to the controller, and larger numbers than
            // there are areas limit nothing.
            let areas = usize::from(lsp >> telemetry_lsp::AREA_SHIFT & 7);
            if areas != 0 {
                capture.areas.iter_mut().skip(areas).for_each(String::clear);
                if areas < capture.areas.len() {
                    capture.private.iter_mut().for_each(String::clear);
                }
            }
            self.generation = self.generation.wrapping_add(1);
            self.pages = Some([Reader::Manager, Reader::Other].map(|it| capture.page(Lid::TELEMETRY_HOST, it)));
        }
        let page = self.pages.as_ref().map(|[manager, other]| if reader == Reader::Manager { manager } else { other });
        let mut page = page.cloned().unwrap_or_else(|| Capture::default().page(Lid::TELEMETRY_HOST, reader));
        page.header.ths = telemetry_scope::SUBSYSTEM;
        page.header.thdgn_or_tcs = self.generation;
        telemetry.describe(&mut page.header);
        page
    }

    /// Drops the capture: the controller was reset, or firmware was committed.
    pub fn clear(&mut self) {
        self.pages = None;
    }
}

impl Capture {
    /// Truncates it to `most` bytes, the last area first.
    fn truncated(mut self, most: usize) -> Self {
        truncate(&mut self.reason, 128);
        let mut left = most;
        for area in &mut self.areas {
            truncate(area, left);
            left = left.saturating_sub(area.len().next_multiple_of(BLOCK));
        }
        if let Some(private) = &mut self.private {
            truncate(private, left);
        }
        self
    }

    /// The areas for this reader.
    fn shown_to(&self, reader: Reader) -> [Cow<'_, str>; 3] {
        let [first, second, third] = self.areas.each_ref().map(|area| Cow::Borrowed(area.as_str()));
        match (&self.private, reader) {
            (None, Reader::Other) => Default::default(),
            (Some(private), Reader::Manager) if !private.is_empty() => [first, second, third + "\n" + private.as_str()],
            _ => [first, second, third],
        }
    }

    fn page(&self, lid: Lid, reader: Reader) -> Page {
        let areas = self.shown_to(reader);
        let mut last = 0;
        let lasts = [0, 1, 2].map(|area: usize| {
            last += areas[area].len().div_ceil(BLOCK);
            u16::try_from(last).unwrap_or(u16::MAX)
        });
        let mut header = TelemetryHeader::new(lid, lasts, 0);
        for (to, byte) in header.rident.iter_mut().zip(self.reason.bytes()) {
            *to = byte;
        }
        // Each area is padded with zeros to whole blocks.
        let mut blocks = Vec::new();
        for area in areas {
            blocks.extend_from_slice(area.as_bytes());
            blocks.resize(blocks.len().next_multiple_of(BLOCK), 0);
        }
        Page { header, blocks: blocks.into() }
    }
}

impl Page {
    /// The header: what the event Telemetry Log Created holds.
    #[must_use]
    pub fn header(&self) -> &TelemetryHeader {
        &self.header
    }

    /// `bytes` of the page from `offset` on; zeros behind the last block.
    ///
    /// # Errors
    /// Invalid Field in Command unless both are multiples of a block of 512 bytes.
    pub fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, Refusal> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX & !(BLOCK - 1));
        if !offset.is_multiple_of(BLOCK) {
            return Err(Refusal::at(Status::INVALID_FIELD, OFFSET_BYTE));
        }
        if !bytes.is_multiple_of(BLOCK) {
            return Err(Refusal::at(Status::INVALID_FIELD, LENGTH_BYTE));
        }
        let end = offset.saturating_add(bytes);
        let mut out = Vec::with_capacity(bytes);
        if offset < BLOCK && bytes > 0 {
            out.extend_from_slice(self.header.as_bytes());
        }
        let from = offset.saturating_sub(BLOCK);
        let to = end.saturating_sub(BLOCK).min(self.blocks.len());
        out.extend_from_slice(self.blocks.get(from..to).unwrap_or_default());
        out.resize(bytes, 0);
        Ok(out)
    }
}

/// Truncates a text to at most `most` bytes, between characters.
fn truncate(text: &mut String, most: usize) {
    let end = (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    text.truncate(end);
}

const BLOCK: usize = 512;

/// Offsets of dwords 10 (length) and 12 (offset) in Get Log Page.
const LENGTH_BYTE: u8 = 40;
const OFFSET_BYTE: u8 = 48;
