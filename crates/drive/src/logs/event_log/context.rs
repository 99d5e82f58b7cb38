//! Reading the log: a controller establishes a reporting context, reads the page in pieces, and
//! releases it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_nvme::log::{PersistentEventHeader, persistent_event_lsp};
use ebof_nvme::{ControllerId, Nqn, Status};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::{EventLog, SUPPORTED, timestamp};
use crate::request::{DecisionInput, Refusal};

/// Contexts at most; a new one then ends the oldest, whose host sees another generation number.
pub const CONTEXTS_MAX: usize = 64;

/// The reporting contexts of all controllers. A restart ends them.
#[derive(Debug, Default)]
pub struct Contexts {
    by_controller: BTreeMap<ControllerId, Context>,
    /// The body that was reported last, and the number of events then: if there are no new ones, it
    /// is reported again.
    last: Option<(u64, Arc<[u8]>)>,
    /// GNUM of the last context.
    generation: u16,
    /// The number of events at that time.
    reported: Option<u64>,
    /// How many contexts were established.
    established: u64,
}

/// What the header of the log page contains about the drive.
#[derive(Clone, Copy, Debug)]
pub struct Subsystem<'a> {
    /// Serial Number.
    pub serial: &'a str,
    /// Model Number.
    pub model: &'a str,
    /// NQN of the subsystem.
    pub nqn: &'a Nqn,
    /// Power-on hours.
    pub power_on_hours: u128,
    /// Times it was opened.
    pub power_cycles: u64,
}

/// The result of Get Log Page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No data: the context was released.
    Nothing,
    /// The 512 bytes of the header, independent of the offset and length of the command.
    Header(Vec<u8>),
    /// The page.
    Page(Page),
}

/// The log page of a context. It is large, and read in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    header: Vec<u8>,
    body: Arc<[u8]>,
}

#[derive(Debug)]
struct Context {
    page: Page,
    established: u64,
}

impl Contexts {
    /// Executes Get Log Page with the Log Specific Parameter `lsp`, of `controller`.
    ///
    /// # Errors
    /// Command Sequence Error: there is no context to read, or there is one already.
    pub fn execute(
        &mut self,
        log: &EventLog,
        lsp: u8,
        controller: ControllerId,
        subsystem: &Subsystem<'_>,
        input: &DecisionInput,
    ) -> Result<Reply, Refusal> {
        let existing = self.by_controller.get(&controller).map(|context| context.page.clone());
        match (lsp & persistent_event_lsp::ACTION_MASK, existing) {
            (persistent_event_lsp::READ, Some(page)) => Ok(Reply::Page(page)),
            (persistent_event_lsp::ESTABLISH, None) => {
                Ok(Reply::Page(self.establish(log, controller, subsystem, input)))
            }
            (persistent_event_lsp::READ | persistent_event_lsp::ESTABLISH, _) => {
                Err(Refusal::new(Status::COMMAND_SEQUENCE_ERROR))
            }
            (persistent_event_lsp::RELEASE, _) => {
                self.release(controller);
                Ok(Reply::Nothing)
            }
            (_, None) => Ok(Reply::Header(self.establish(log, controller, subsystem, input).header)),
            (_, Some(mut page)) => {
                // RCI: a context exists, established over a port of the subsystem.
                page.header[RCI_KIND_BYTE] |= 1 << 2 | 1;
                Ok(Reply::Header(page.header))
            }
        }
    }

    /// The controller was reset, is gone, or releases its context.
    pub fn release(&mut self, controller: ControllerId) {
        self.by_controller.remove(&controller);
        if self.by_controller.is_empty() {
            self.last = None;
        }
    }

    fn establish(
        &mut self,
        log: &EventLog,
        controller: ControllerId,
        subsystem: &Subsystem<'_>,
        input: &DecisionInput,
    ) -> Page {
        if self.by_controller.len() >= CONTEXTS_MAX {
            let oldest = self.by_controller.iter().min_by_key(|(_, context)| context.established);
            if let Some(oldest) = oldest.map(|(&controller, _)| controller) {
                self.by_controller.remove(&oldest);
            }
        }
        if self.reported != Some(log.total) {
            self.reported = Some(log.total);
            self.generation = self.generation.wrapping_add(1);
        }
        self.established += 1;
        let body = match &self.last {
            Some((total, body)) if *total == log.total => Arc::clone(body),
            _ => Arc::from(log.body()),
        };
        self.last = Some((log.total, Arc::clone(&body)));
        let events = u32::try_from(log.events.len()).unwrap_or(u32::MAX);
        let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let mut header = PersistentEventHeader::new(events, bytes);
        header.tstmp = U64::from_bytes(timestamp(input.unix_ms));
        header.poh.set(subsystem.power_on_hours);
        header.pcc.set(subsystem.power_cycles);
        header.gnum.set(self.generation);
        header.set_subsystem(subsystem.serial, subsystem.model, subsystem.nqn);
        header.set_supported(SUPPORTED);
        let page = Page { header: header.as_bytes().to_vec(), body };
        self.by_controller.insert(controller, Context { page: page.clone(), established: self.established });
        page
    }
}

impl Page {
    /// Bytes of the page.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header.len() + self.body.len()
    }

    /// Never: the header is always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// `bytes` of the page from `offset` on, fewer where it ends.
    #[must_use]
    pub fn read(&self, offset: usize, bytes: usize) -> Vec<u8> {
        let end = offset.saturating_add(bytes).min(self.len());
        let mut out = Vec::with_capacity(end.saturating_sub(offset));
        let split = self.header.len();
        out.extend_from_slice(self.header.get(offset..end.min(split)).unwrap_or_default());
        let from = offset.saturating_sub(split);
        let to = end.saturating_sub(split);
        out.extend_from_slice(self.body.get(from..to).unwrap_or_default());
        out
    }
}

/// Byte 2 of RCI (374 to 377): bits 17:16 the kind of port, bit 18 whether there was a context.
const RCI_KIND_BYTE: usize = 376;
