//! Device self-test: the running test, its steps, and the results of the last twenty.
//!
//! The drive has one self-test at a time, for all controllers (SDSO). The owner of the medium
//! executes its steps: [`SelfTest::step`] is the next one, [`SelfTest::advance`] takes its result.
//!
//! NVMe Base 2.1, "Device Self-test command", "Device Self-test Operations", "Device Self-test" log
//! page (06h).

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt;

use ebof_nvme::log::{SelfTestCode, SelfTestEntry, SelfTestLog, SelfTestResult};
use ebof_nvme::{ControllerId, Nsid, Status};
use serde::{Deserialize, Serialize};

use crate::request::{Origin, Refusal};

/// Bytes of data that a short self-test reads at most, in addition to an extent of each namespace:
/// a slow disk reads as much within the two minutes that the test may take.
pub const SHORT_BYTES_MAX: u64 = 1 << 30;

/// The running self-test, and the results of earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SelfTest {
    running: Option<Running>,
    /// Newest first.
    results: Vec<Outcome>,
}

/// The running test. It is durable: an extended test is resumed after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Running {
    code: u8,
    nsid: u32,
    cntlid: u16,
    /// What is to be read of which namespaces.
    namespaces: Vec<Part>,
    /// Steps that are done.
    done: u64,
    failure: Option<Failed>,
}

/// What a test reads of a namespace: `steps` of its `extents` allocated extents, evenly spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Part {
    nsid: u32,
    extents: u64,
    steps: u64,
}

/// The first failure of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Failed {
    segment: u8,
    /// Namespace, block and status, if data could not be read.
    #[serde(rename = "place")]
    location: Option<(u32, u64, u16)>,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Outcome {
    code: u8,
    result: u8,
    power_on_hours: u64,
    failure: Option<Failed>,
}

/// The next step. The number of its segment is SNUM of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfTestStep {
    /// Segment 1: no bit of SMART's Critical Warning may be set.
    Health,
    /// Segment 2: superblocks, checkpoint and journal are read, and their checksums verified.
    Metadata,
    /// Segment 3: an allocated extent is read, and its checksums are verified. If the namespace has
    /// fewer extents by now, there is nothing to do.
    Extent {
        /// The namespace.
        nsid: Nsid,
        /// Which of its allocated extents, in the order of their addresses, from 0.
        ordinal: u64,
    },
    /// Segment 4: Percentage Used must be below 255.
    Life,
}

/// Why a step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The check of the segment failed.
    Segment,
    /// Data cannot be read.
    Data {
        /// Namespace.
        nsid: Nsid,
        /// Its first block that cannot be read.
        lba: u64,
        /// The status for a host that reads it.
        status: Status,
    },
    /// The test cannot go on.
    Fatal,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Segment => f.write_str("the check of a segment failed"),
            Self::Data { nsid, lba, status } => write!(f, "block {lba} of namespace {nsid} cannot be read: {status}"),
            Self::Fatal => f.write_str("the test cannot go on"),
        }
    }
}

/// What ends a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A Controller Level Reset of a controller.
    Reset(ControllerId),
    /// The drive was opened again: all controllers were reset.
    Restart,
    /// A namespace was deleted.
    Removed(Nsid),
    /// Format NVM of a namespace, or of all.
    Format(Nsid),
    /// A sanitize operation started.
    Sanitize,
}

/// The namespaces that can be tested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Namespaces that are attached to the controller, with the number of their allocated extents.
    pub active: Vec<(Nsid, u64)>,
    /// Namespaces that exist and are not attached to it.
    pub inactive: Vec<Nsid>,
    /// Bytes of an extent.
    pub extent_bytes: u64,
}

impl SelfTest {
    /// Decides on a Device Self-test command with Self-test Code `code` for `nsid`. Returns the new
    /// state; `None` if it does not change.
    ///
    /// # Errors
    /// Device Self-test In Progress, Invalid Field in Command, Invalid Namespace or Format.
    pub fn execute(
        &self,
        origin: &Origin,
        code: SelfTestCode,
        nsid: Nsid,
        inventory: &Inventory,
        power_on_hours: u64,
    ) -> Result<Option<Self>, Refusal> {
        match code {
            SelfTestCode::ABORT => Ok(self.ended(SelfTestResult::ABORTED_BY_COMMAND, power_on_hours)),
            SelfTestCode::SHORT | SelfTestCode::EXTENDED if self.running.is_some() => {
                Err(Refusal::transient(Status::SELF_TEST_IN_PROGRESS))
            }
            SelfTestCode::SHORT | SelfTestCode::EXTENDED => {
                let running = Running::new(origin.cntlid, code, nsid, inventory)?;
                Ok(Some(Self { running: Some(running), ..self.clone() }))
            }
            _ => Err(Refusal::at(Status::INVALID_FIELD, CODE_BYTE)),
        }
    }

    /// The next step of the running test.
    #[must_use]
    pub fn step(&self) -> Option<SelfTestStep> {
        self.running.as_ref().and_then(Running::step)
    }

    /// The new state when the step is done. The end of a test has to become durable; before that,
    /// steps since the last durable state are repeated after a restart.
    #[must_use]
    pub fn advance(&self, result: Result<(), Failure>, power_on_hours: u64) -> Self {
        let Some(mut running) = self.running.clone() else { return self.clone() };
        let segment = running.step().map_or(0, SelfTestStep::segment);
        if let Err(failure) = result {
            running.failure.get_or_insert(Failed::new(segment, failure));
        }
        // A medium may say that more is done than there is.
        running.done = running.done.saturating_add(1);
        let over = running.step().is_none() || result == Err(Failure::Fatal);
        let next = Self { running: Some(running), ..self.clone() };
        if !over {
            return next;
        }
        let result = match (result, next.running.as_ref().and_then(|running| running.failure)) {
            (Err(Failure::Fatal), _) => SelfTestResult::FATAL,
            (_, Some(_)) => SelfTestResult::FAILED_SEGMENT,
            (_, None) => SelfTestResult::PASSED,
        };
        next.ended(result, power_on_hours).expect("a test is running, whose end this is")
    }

    /// The new state if `cause` ends the running test; `None` if it does not.
    #[must_use]
    pub fn interrupted(&self, cause: Cause, power_on_hours: u64) -> Option<Self> {
        let running = self.running.as_ref()?;
        let short = running.code == SelfTestCode::SHORT.0;
        let tested = Nsid(running.nsid);
        let result = match cause {
            // An extended test goes on after resets and power losses.
            Cause::Reset(controller) if short && controller.0 == running.cntlid => SelfTestResult::ABORTED_BY_RESET,
            Cause::Restart if short => SelfTestResult::ABORTED_BY_RESET,
            Cause::Removed(nsid) if tested == nsid => SelfTestResult::ABORTED_NAMESPACE_REMOVED,
            // If all namespaces are tested and one is formatted, the specification leaves it to the
            // controller. Here the test ends, because its data are gone.
            Cause::Format(nsid) if tested.0 != 0 && (nsid == Nsid::ALL || tested == nsid || tested == Nsid::ALL) => {
                SelfTestResult::ABORTED_BY_FORMAT
            }
            Cause::Sanitize => SelfTestResult::ABORTED_BY_SANITIZE,
            _ => return None,
        };
        self.ended(result, power_on_hours)
    }

    /// The log page.
    #[must_use]
    pub fn page(&self) -> SelfTestLog {
        let mut page = SelfTestLog::new();
        page.set_current(self.running.as_ref().map(|running| (SelfTestCode(running.code), running.percent())));
        for (to, outcome) in page.results.iter_mut().zip(&self.results) {
            *to = outcome.encode();
        }
        page
    }

    fn ended(&self, result: SelfTestResult, power_on_hours: u64) -> Option<Self> {
        let running = self.running.as_ref()?;
        let failure = running.failure;
        let mut results = Vec::with_capacity(SelfTestLog::RESULTS_MAX);
        results.push(Outcome { code: running.code, result: result.0, power_on_hours, failure });
        results.extend_from_slice(&self.results[..self.results.len().min(SelfTestLog::RESULTS_MAX - 1)]);
        Some(Self { running: None, results })
    }
}

impl Running {
    fn new(controller: ControllerId, code: SelfTestCode, nsid: Nsid, inventory: &Inventory) -> Result<Self, Refusal> {
        let tested: Vec<(Nsid, u64)> = match nsid {
            Nsid::NONE => Vec::new(),
            Nsid::ALL => inventory.active.clone(),
            one => match inventory.active.iter().find(|(nsid, _)| *nsid == one) {
                Some(&namespace) => [namespace].into(),
                None if inventory.inactive.contains(&one) => {
                    return Err(Refusal::at(Status::INVALID_FIELD, NSID_BYTE));
                }
                None => return Err(Refusal::at(Status::INVALID_NAMESPACE, NSID_BYTE)),
            },
        };
        let all = tested.iter().fold(0_u64, |all, (_, extents)| all.saturating_add(*extents));
        let budget = if code == SelfTestCode::SHORT {
            (SHORT_BYTES_MAX / inventory.extent_bytes.max(1)).max(1)
        } else {
            u64::MAX
        };
        let steps = |extents: u64| {
            // At least one of each namespace that has any.
            let share = (u128::from(extents) * u128::from(budget.min(all))).div_ceil(all.max(1).into());
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        let namespaces = tested.iter().map(|&(Nsid(nsid), extents)| Part { nsid, extents, steps: steps(extents) });
        let namespaces = namespaces.collect();
        Ok(Self { code: code.0, nsid: nsid.0, cntlid: controller.0, namespaces, done: 0, failure: None })
    }

    fn step(&self) -> Option<SelfTestStep> {
        let mut at = match self.done {
            0 => return Some(SelfTestStep::Health),
            1 => return Some(SelfTestStep::Metadata),
            done => done - 2,
        };
        for part in &self.namespaces {
            if at < part.steps {
                let ordinal = u128::from(at) * u128::from(part.extents) / u128::from(part.steps);
                return Some(SelfTestStep::Extent { nsid: Nsid(part.nsid), ordinal: u64::try_from(ordinal).ok()? });
            }
            at -= part.steps;
        }
        (at == 0).then_some(SelfTestStep::Life)
    }

    fn percent(&self) -> u8 {
        let steps = self.namespaces.iter().fold(3_u64, |steps, part| steps.saturating_add(part.steps));
        let percent = u128::from(self.done) * 100 / u128::from(steps);
        u8::try_from(percent.min(99)).unwrap_or(99)
    }
}

impl SelfTestStep {
    fn segment(self) -> u8 {
        match self {
            Self::Health => 1,
            Self::Metadata => 2,
            Self::Extent { .. } => 3,
            Self::Life => 4,
        }
    }
}

impl Failed {
    fn new(segment: u8, failure: Failure) -> Self {
        let location = match failure {
            Failure::Data { nsid, lba, status } => Some((nsid.0, lba, status.0)),
            Failure::Segment | Failure::Fatal => None,
        };
        Self { segment, location }
    }
}

impl Outcome {
    fn encode(&self) -> SelfTestEntry {
        let mut entry = SelfTestEntry::new(SelfTestCode(self.code), SelfTestResult(self.result), self.power_on_hours);
        if let Some(failed) = self.failure {
            entry.snum = failed.segment;
            if let Some((nsid, lba, status)) = failed.location {
                entry.set_failure(Nsid(nsid), lba, Status(status));
            }
        }
        entry
    }
}

/// Offsets in the command: the NSID, and dword 10.
const NSID_BYTE: u8 = 4;
const CODE_BYTE: u8 = 40;
