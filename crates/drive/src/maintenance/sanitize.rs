//! Sanitize: the state of the operation, what is to be done for it, and which commands it
//! restricts.
//!
//! The operation goes over the whole medium, in passes; the owner of the medium does the [`Work`].
//! All of the state is in the journal: after a power loss the current pass is started again.
//!
//! NVMe Base 2.1, "Sanitize command", "Sanitize Operations", "Sanitize Status" log page (81h).

mod restriction;
#[cfg(test)]
mod tests;

use ebof_nvme::event::AsyncEvent;
use ebof_nvme::identify::field::sanicap;
use ebof_nvme::log::{SanitizeLog, SanitizeState};
use ebof_nvme::media::{Sanitize as Command, SanitizeAction};
use ebof_nvme::{ControllerId, Status};
use serde::{Deserialize, Serialize};

pub use restriction::Restriction;

use crate::request::{Origin, Refusal};

/// The sanitize operation of a drive.
///
/// ```text
///                  Sanitize                     failed
///          Idle ────────────> Processing ─────────────────────> Failed
///            ^ ^                  │  ^                             │ │
///            │ └──── completed ───┘  └────────── Sanitize ─────────┘ │
///            └──────────── Exit Failure Mode, if unrestricted ───────┘
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sanitize {
    state: State,
    /// SOS of the last operation.
    last: Last,
    /// Dword 10 of the command that started it.
    cdw10: u32,
    /// Dword 11 of that command.
    cdw11: u32,
    /// The controller that received it: only that one gets the event.
    cntlid: u16,
    /// Passes that are done.
    passes: u8,
    /// Nothing was written since the drive was created or sanitized.
    erased: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    #[default]
    Idle,
    Processing,
    Failed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Last {
    #[default]
    Never,
    Succeeded,
    /// No-Deallocate was requested, and is not possible.
    SucceededDeallocated,
    Failed,
}

/// The sanitize operations that a drive supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Crypto Erase: data are encrypted at rest.
    pub crypto_erase: bool,
    /// No data were written without encryption: Crypto Erase only has to replace keys.
    pub crypto_erases_all: bool,
    /// Block Erase.
    pub block_erase: bool,
    /// Overwrite.
    pub overwrite: bool,
    /// Media is always deallocated (NDI).
    pub no_deallocate_inhibited: bool,
    /// Bytes of the medium.
    pub total_bytes: u64,
    /// For the estimates of times.
    pub speed: SanitizeSpeed,
}

/// Measured speed of passes since the drive was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SanitizeSpeed {
    erase: Measurement,
    overwrite: Measurement,
}

/// How much was done in how much time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Measurement {
    bytes: u64,
    micros: u64,
}

/// The state of the drive that decides whether an operation can start, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// A namespace is write protected.
    pub write_protected: bool,
    /// A firmware image waits for a reset.
    pub firmware_pending: bool,
    /// Feature 17h, No-Deallocate Response Mode: where No-Deallocate is inhibited, it is
    /// disregarded instead of refused.
    pub warn_about_deallocation: bool,
}

/// The result of a Sanitize command that is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The new state; `None` if it does not change.
    pub next: Option<Sanitize>,
    /// An operation starts: commands are restricted ([`Restriction`]), events of earlier operations
    /// are cleared, and self-tests end.
    pub started: bool,
}

/// What is to be done in a pass, over the whole medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// How.
    pub method: Method,
    /// Passes that are done.
    pub pass: u8,
    /// Passes in all.
    pub passes: u8,
    /// After the last pass all blocks of namespaces are deallocated.
    pub deallocate: bool,
}

/// How data are made unreadable in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Every extent that is or was allocated is zeroed.
    Erase,
    /// Every such extent is filled with this pattern, least significant byte first.
    Overwrite(u32),
    /// All keys are replaced. They were when the operation began: nothing is left to do.
    NewKeys,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The new state.
    pub next: Sanitize,
    /// The event, and the only controller that gets it.
    pub event: (ControllerId, AsyncEvent),
}

impl Sanitize {
    /// The restriction that is in force; `None` if there is none.
    #[must_use]
    pub fn restriction(&self) -> Option<Restriction> {
        match self.state {
            State::Idle => None,
            State::Processing => Some(Restriction::new(Status::SANITIZE_IN_PROGRESS)),
            State::Failed => Some(Restriction::new(Status::SANITIZE_FAILED)),
        }
    }

    /// Decides on a Sanitize command.
    ///
    /// # Errors
    /// Invalid Field in Command, Sanitize In Progress, Sanitize Failed, Namespace is Write
    /// Protected, Firmware Activation Requires Controller Level Reset.
    pub fn execute(
        &self,
        origin: &Origin,
        command: &Command,
        capabilities: &Capabilities,
        preconditions: &Preconditions,
    ) -> Result<Done, Refusal> {
        if self.state == State::Processing {
            return Err(Refusal::transient(Status::SANITIZE_IN_PROGRESS));
        }
        let able = match command.action {
            SanitizeAction::ExitFailure => return self.exit_failure(),
            SanitizeAction::BlockErase => capabilities.block_erase,
            SanitizeAction::Overwrite => capabilities.overwrite,
            SanitizeAction::CryptoErase => capabilities.crypto_erase,
            // There is no Media Verification state to be left.
            SanitizeAction::ExitVerification | SanitizeAction::Reserved(_) => false,
        };
        if !able {
            return Err(Refusal::at(Status::INVALID_FIELD, ACTION_BYTE));
        }
        let inhibited = command.no_deallocate && capabilities.no_deallocate_inhibited;
        if command.enter_verification || inhibited && !preconditions.warn_about_deallocation {
            return Err(Refusal::at(Status::INVALID_FIELD, OPTIONS_BYTE));
        }
        if self.is_failed_restricted() && command.allow_unrestricted_exit {
            return Err(Refusal::new(Status::SANITIZE_FAILED));
        }
        if preconditions.write_protected {
            return Err(Refusal::new(Status::NAMESPACE_WRITE_PROTECTED));
        }
        if preconditions.firmware_pending {
            return Err(Refusal::new(Status::FIRMWARE_NEEDS_RESET));
        }
        let sqe = command.encode();
        let next = Self {
            state: State::Processing,
            cdw10: sqe.cdw10.get(),
            cdw11: sqe.cdw11.get(),
            cntlid: origin.cntlid.0,
            passes: 0,
            ..self.clone()
        };
        Ok(Done { next: Some(next), started: true })
    }

    /// What is to be done now; `None` if no operation is in progress.
    #[must_use]
    pub fn work(&self, capabilities: &Capabilities) -> Option<Work> {
        if self.state != State::Processing {
            return None;
        }
        let command = self.command();
        let passes = self.pass_count();
        let method = match command.action {
            SanitizeAction::Overwrite => Method::Overwrite(pattern(&command, self.passes)),
            SanitizeAction::CryptoErase => Method::NewKeys,
            _ => Method::Erase,
        };
        let deallocate = !command.no_deallocate || capabilities.no_deallocate_inhibited;
        Some(Work { method, pass: self.passes, passes, deallocate })
    }

    /// The new state when a pass is done; `None` if it was the last one ([`Sanitize::complete`]),
    /// or no operation is in progress.
    #[must_use]
    pub fn pass_done(&self) -> Option<Self> {
        // A medium may say that more are done than there are.
        let passes = self.passes.saturating_add(1);
        (self.state == State::Processing && passes < self.pass_count()).then(|| Self { passes, ..self.clone() })
    }

    /// Ends the operation successfully; `None` if none is in progress.
    #[must_use]
    pub fn complete(&self, capabilities: &Capabilities) -> Option<Ended> {
        let unexpected = self.command().no_deallocate && capabilities.no_deallocate_inhibited;
        let (last, event) = if unexpected {
            (Last::SucceededDeallocated, AsyncEvent::SANITIZE_COMPLETED_DEALLOCATED)
        } else {
            (Last::Succeeded, AsyncEvent::SANITIZE_COMPLETED)
        };
        let next = Self { state: State::Idle, last, passes: self.pass_count(), erased: true, ..self.clone() };
        (self.state == State::Processing).then_some(Ended { next, event: (ControllerId(self.cntlid), event) })
    }

    /// Ends the operation as failed; `None` if none is in progress.
    #[must_use]
    pub fn fail(&self) -> Option<Ended> {
        let next = Self { state: State::Failed, last: Last::Failed, ..self.clone() };
        let event = (ControllerId(self.cntlid), AsyncEvent::SANITIZE_COMPLETED);
        (self.state == State::Processing).then_some(Ended { next, event })
    }

    /// The new state when a host has written; `None` if it does not change.
    #[must_use]
    pub fn written(&self) -> Option<Self> {
        self.erased.then(|| Self { erased: false, ..self.clone() })
    }

    /// Whether nothing was written since the drive was created or sanitized.
    #[must_use]
    pub fn is_erased(&self) -> bool {
        self.erased
    }

    /// Whether an operation is in progress.
    #[must_use]
    pub fn is_processing(&self) -> bool {
        self.state == State::Processing
    }

    /// The log page. `done_bytes`: progress of the current pass.
    #[must_use]
    pub fn page(&self, capabilities: &Capabilities, done_bytes: u64) -> SanitizeLog {
        let mut page = SanitizeLog::new();
        let state = match (self.state, self.last) {
            (State::Processing, _) => SanitizeState::InProgress,
            (_, Last::Never) => SanitizeState::Never,
            (_, Last::Succeeded) => SanitizeState::Succeeded,
            (_, Last::SucceededDeallocated) => SanitizeState::SucceededDeallocated,
            (_, Last::Failed) => SanitizeState::Failed,
        };
        let overwrite = self.command().action == SanitizeAction::Overwrite;
        page.set_status(state, if overwrite { self.passes } else { 0 }, self.erased);
        page.scdw10.set(self.cdw10);
        if self.state == State::Processing {
            page.sprog.set(self.progress(capabilities.total_bytes, done_bytes));
        }
        let SanitizeSpeed { erase, overwrite } = capabilities.speed;
        let seconds = |measured: Measurement, passes| {
            measured.estimate_seconds(capabilities.total_bytes, passes).unwrap_or(SanitizeLog::UNKNOWN_SECONDS)
        };
        if capabilities.overwrite {
            page.eto.set(seconds(overwrite, 16));
        }
        if capabilities.block_erase {
            page.etbe.set(seconds(erase, 1));
        }
        if capabilities.crypto_erase {
            page.etce.set(if capabilities.crypto_erases_all { 1 } else { seconds(erase, 1) });
        }
        page
    }

    fn exit_failure(&self) -> Result<Done, Refusal> {
        if self.is_failed_restricted() {
            return Err(Refusal::new(Status::SANITIZE_FAILED));
        }
        let next = (self.state == State::Failed).then(|| Self { state: State::Idle, ..self.clone() });
        Ok(Done { next, started: false })
    }

    fn is_failed_restricted(&self) -> bool {
        self.state == State::Failed && !self.command().allow_unrestricted_exit
    }

    fn command(&self) -> Command {
        Command::of_dwords(self.cdw10, self.cdw11)
    }

    fn pass_count(&self) -> u8 {
        let command = self.command();
        if command.action == SanitizeAction::Overwrite { command.overwrite_passes } else { 1 }
    }

    /// SPROG, in 65536ths of all passes. Never FFFFh, which means that no operation is in progress.
    fn progress(&self, total_bytes: u64, done_bytes: u64) -> u16 {
        let total = u128::from(total_bytes.max(1));
        let done = u128::from(self.passes) * total + u128::from(done_bytes).min(total);
        let fraction = (done << 16) / (total * u128::from(self.pass_count()));
        u16::try_from(fraction.min(0xfffe)).unwrap_or(0xfffe)
    }
}

/// The state of a new drive.
impl Default for Sanitize {
    fn default() -> Self {
        Self { state: State::Idle, last: Last::Never, cdw10: 0, cdw11: 0, cntlid: 0, passes: 0, erased: true }
    }
}

impl SanitizeSpeed {
    /// Adds a part of a pass that took so long.
    pub fn add(&mut self, method: Method, bytes: u64, micros: u64) {
        let measured = match method {
            Method::Erase => &mut self.erase,
            Method::Overwrite(_) => &mut self.overwrite,
            Method::NewKeys => return,
        };
        measured.bytes = measured.bytes.saturating_add(bytes);
        measured.micros = measured.micros.saturating_add(micros);
    }
}

impl Measurement {
    /// Seconds for so many passes over `total_bytes`, at least one; `None` if nothing was measured.
    fn estimate_seconds(self, total_bytes: u64, passes: u32) -> Option<u32> {
        let micros = (u128::from(total_bytes) * u128::from(self.micros)).checked_div(self.bytes.into())?;
        let seconds = (micros * u128::from(passes)).div_ceil(1_000_000).max(1);
        // FFFFFFFFh means "not known".
        Some(u32::try_from(seconds).unwrap_or(u32::MAX - 1).min(u32::MAX - 1))
    }
}

impl Capabilities {
    /// SANICAP of Identify Controller.
    #[must_use]
    pub fn sanicap(&self) -> u32 {
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        let any = self.crypto_erase || self.block_erase || self.overwrite;
        bit(self.crypto_erase, sanicap::CRYPTO_ERASE)
            | bit(self.block_erase, sanicap::BLOCK_ERASE)
            | bit(self.overwrite, sanicap::OVERWRITE)
            | bit(any && self.no_deallocate_inhibited, sanicap::NO_DEALLOCATE_INHIBITED)
            | bit(any, sanicap::NO_DEALLOCATE_UNMODIFIED)
    }
}

/// The pattern of pass `pass`, from 0. The last pass of an inverting operation always writes the
/// pattern itself.
fn pattern(command: &Command, pass: u8) -> u32 {
    let first_inverted = command.overwrite_passes.is_multiple_of(2);
    let inverted = command.invert_pattern && (first_inverted == pass.is_multiple_of(2));
    if inverted { !command.pattern } else { command.pattern }
}

/// Byte of dword 10 with the action; the options are in the next one.
const ACTION_BYTE: u8 = 40;
const OPTIONS_BYTE: u8 = 41;
