//! What is known of sanitizing until the drive is closed: what hosts have written, how far a pass
//! is, and how fast they are. The operation itself is in `drive/maintenance/sanitize.rs`.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::ControllerId;
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::media::Sanitize as Command;

use super::settings::{Capacity, Settings};
use crate::change::{Change, State};
use crate::logs::event_log::Event;
use crate::maintenance::sanitize::{Capabilities, Ended, Method, Preconditions, Sanitize, SanitizeSpeed, Work};
use crate::request::{DecisionInput, Origin};

/// What a sanitize operation that ended means to others.
#[derive(Debug, PartialEq)]
pub struct Sanitized {
    /// To be made durable.
    pub changes: Vec<Change>,
    /// The event for this controller, and no other.
    pub event: (ControllerId, AsyncEvent),
}

/// Progress and estimates of sanitize operations.
#[derive(Debug, Default)]
pub(super) struct SanitizeProgress {
    /// Hosts have written since the last sanitize, and the state does not say so yet.
    written: bool,
    /// Progress of the current pass.
    pub(super) bytes: u64,
    /// Measured speed of passes.
    pub(super) speed: SanitizeSpeed,
    /// Feature 17h.
    pub(super) no_deallocate_warns: bool,
}

impl SanitizeProgress {
    /// The operations that the drive supports.
    pub(super) fn capabilities(&self, state: &State, settings: &Settings, capacity: Capacity) -> Capabilities {
        Capabilities {
            crypto_erase: settings.encrypted,
            crypto_erases_all: !state.plaintext,
            block_erase: true,
            overwrite: true,
            no_deallocate_inhibited: true,
            total_bytes: capacity.total_bytes,
            speed: self.speed,
        }
    }

    /// What may keep an operation from beginning.
    pub(super) fn preconditions(&self, state: &State) -> Preconditions {
        Preconditions {
            write_protected: state.namespaces.values().any(|namespace| namespace.write_protected),
            firmware_pending: state.firmware.pending_slot().is_some(),
            warn_about_deallocation: self.no_deallocate_warns,
        }
    }

    /// The state says whether hosts have written.
    pub(super) fn stored(&mut self) {
        self.written = false;
    }

    /// Hosts have written by now, or not. The change is repeated until it is in the state: it may
    /// fail to become durable.
    pub(super) fn note_written(&mut self, has_written: bool, sanitize: &Sanitize) -> Option<Change> {
        self.written |= has_written;
        let written = if self.written { sanitize.written() } else { None };
        self.written = written.is_some();
        written.map(sanitized)
    }

    /// What the end of an operation means; `None` if none is in progress.
    pub(super) fn ended(
        &self,
        Ended { next, event }: Ended,
        capabilities: &Capabilities,
        origin: &Origin,
        input: &DecisionInput,
    ) -> Sanitized {
        let page = next.page(capabilities, self.bytes);
        let completed = Event::sanitize_completion(origin, input, page.sprog.get(), page.sstat.get());
        Sanitized { changes: vec![sanitized(next), Change::Happened { event: completed }], event }
    }
}

/// The event that an operation begins.
pub(super) fn started(
    command: &Command,
    capabilities: &Capabilities,
    origin: &Origin,
    input: &DecisionInput,
) -> Change {
    let sqe = command.encode();
    let event = Event::sanitize_start(origin, input, capabilities.sanicap(), sqe.cdw10.get(), sqe.cdw11.get());
    Change::Happened { event }
}

/// What is to be done on the medium for the operation; `None` if none is in progress.
pub(super) fn work(state: &State, capabilities: &Capabilities) -> Option<Work> {
    let work = state.sanitize.work(capabilities)?;
    // Data that were not encrypted have to be erased.
    let method = if work.method == Method::NewKeys && state.plaintext { Method::Erase } else { work.method };
    Some(Work { method, ..work })
}

/// The state of the operation changes.
pub(super) fn sanitized(next: Sanitize) -> Change {
    Change::Sanitized { sanitize: Box::new(next) }
}
