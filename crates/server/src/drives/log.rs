//! What the log says of a drive, and how often: its name, and the limit of lines that hosts can
//! cause.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ebof_clock::Clock;
use ebof_medium::{BackingFault, Notice};
use ebof_nvme::log::AnaState;

use crate::observe::log_limit::{Kind, LogLimit, LogSubject, Suppressed};

/// The log's lines about one drive.
pub(super) struct DriveLog {
    /// What the configuration calls the drive.
    name: Mutex<String>,
    /// What it lies on.
    backing: String,
    clock: Clock,
    opened: Instant,
    /// Of what hosts can cause.
    limit: LogLimit,
}

impl DriveLog {
    /// Of a drive that is opened now.
    pub(super) fn new(name: String, backing: String, clock: Clock) -> Self {
        Self { name: Mutex::new(name), backing, opened: clock.now(), clock, limit: LogLimit::default() }
    }

    pub(super) fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn rename(&self, name: &str) {
        name.clone_into(&mut self.name.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn backing(&self) -> &str {
        &self.backing
    }

    /// How long the drive is open.
    pub(super) fn age(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.opened)
    }

    /// The same, microseconds.
    pub(super) fn age_us(&self) -> u64 {
        u64::try_from(self.age().as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn may_log(&self, about: LogSubject, kind: Kind) -> Option<Suppressed> {
        self.limit.admit(about, kind, self.age_us())
    }

    /// Logs how many lines were left out, where their minute is over.
    pub(super) fn log_left_out(&self) {
        self.limit.log_left_out(self.age_us());
    }

    /// Logs that no path to the drive is better than `best`.
    pub(super) fn ana_limit(&self, best: AnaState) {
        let Some(more) = self.may_log(LogSubject::Target, Kind::AnaLimit) else { return };
        let drive = self.name();
        if best == AnaState::OPTIMIZED {
            tracing::info!(drive, "its paths are in the states of their ports again{more}");
        } else {
            tracing::warn!(drive, "it fails: all paths to it are {} (ana_on_failure){more}", best.name());
        }
    }

    /// Logs a notice, within limits where hosts can cause many.
    pub(super) fn notice(&self, notice: Notice) {
        let drive = self.name();
        match notice {
            Notice::Full(volume) => {
                if let Some(more) = self.may_log(LogSubject::Volume(volume), Kind::Full) {
                    let instance = volume.0;
                    tracing::error!(drive, instance, "the drive is full: writes that need space are refused{more}");
                }
            }
            Notice::QuotaReached(volume) => {
                if let Some(more) = self.may_log(LogSubject::Volume(volume), Kind::QuotaReached) {
                    let instance = volume.0;
                    tracing::warn!(drive, instance, "a namespace has all that it may have: writes are refused{more}");
                }
            }
            Notice::Room => {
                if let Some(more) = self.may_log(LogSubject::Target, Kind::Room) {
                    tracing::info!(drive, "there is space on the drive again{more}");
                }
            }
            Notice::JournalFailed(class) => {
                tracing::error!(drive, %class, "the journal cannot be written: changes are refused until it can");
            }
            Notice::JournalRecovered => tracing::info!(drive, "the journal is written again"),
            Notice::Corrupt { volume, block } => {
                if let Some(more) = self.may_log(LogSubject::Volume(volume), Kind::Damaged) {
                    let instance = volume.0;
                    tracing::error!(
                        drive,
                        instance,
                        block,
                        "a block is damaged, its checksum does not fit: it cannot be read before it is written \
                         again{more}"
                    );
                }
            }
            Notice::Mended { volume, block } => {
                if let Some(more) = self.may_log(LogSubject::Volume(volume), Kind::Mended) {
                    let instance = volume.0;
                    tracing::warn!(
                        drive,
                        instance,
                        block,
                        "a block was written and not flushed when the drive ended, its checksum is not known: it is \
                         taken as it is{more}"
                    );
                }
            }
            // Of these there are at most one a minute each, see `BackingFaults`.
            Notice::Fails(_) | Notice::Works(_) => {}
        }
    }

    /// Logs that a fault of the backing device begins or ends.
    pub(super) fn fault(&self, fault: BackingFault, fails: bool) {
        let drive = self.name();
        let device = self.backing();
        match (fault, fails) {
            (BackingFault::Space, true) => tracing::warn!(
                drive,
                device,
                "there is no space below the drive: writes that need some are refused; free space on the file system that holds it"
            ),
            (BackingFault::Read, true) => tracing::warn!(
                drive,
                device,
                "reading fails below the drive: see the kernel's log, and whether the file has become shorter"
            ),
            (BackingFault::Write, true) => {
                tracing::warn!(drive, device, "writing fails below the drive: see the kernel's log");
            }
            (BackingFault::Space, false) => tracing::info!(drive, device, "there is space below the drive again"),
            (BackingFault::Read, false) => {
                tracing::info!(drive, device, "what could not be read below the drive can be read again");
            }
            (BackingFault::Write, false) => tracing::info!(drive, device, "writing below the drive works again"),
        }
    }
}
