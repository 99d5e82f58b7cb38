//! Device Self-test log page (06h): the operation that runs and the last twenty results.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::status::Status;
use crate::name::id::Nsid;
use crate::table::numbers;

/// Device Self-test log page. NVMe Base 2.1, section of that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SelfTestLog {
    /// Current Device Self-test Operation, bits 3:0: `SelfTestCode`, or 0 for none.
    pub cdsto: u8,
    /// Current Device Self-test Completion, percent in bits 6:0.
    pub cdstc: u8,
    /// Reserved.
    pub rsvd2: [u8; 2],
    /// Self-test Results, newest first.
    pub results: [SelfTestEntry; 20],
}

const _: () = assert!(size_of::<SelfTestLog>() == 564);

impl SelfTestLog {
    /// Results the log keeps.
    pub const RESULTS_MAX: usize = 20;

    /// A log in which nothing was ever tested.
    #[must_use]
    pub fn new() -> Self {
        Self { cdsto: 0, cdstc: 0, rsvd2: [0; 2], results: [SelfTestEntry::UNUSED; 20] }
    }

    /// The operation under way and how much of it is done, in percent (0 to 127, as it came);
    /// `None` where none is.
    #[must_use]
    pub fn current(&self) -> Option<(SelfTestCode, u8)> {
        let code = self.cdsto & 0x0f;
        (code != 0).then_some((SelfTestCode(code), self.cdstc & 0x7f))
    }

    /// Sets the operation under way and its percentage (0 to 100, the rest is cut).
    pub fn set_current(&mut self, current: Option<(SelfTestCode, u8)>) {
        (self.cdsto, self.cdstc) = current.map_or((0, 0), |(code, percent)| (code.0 & 0x0f, percent.min(100)));
    }

    /// The results, newest first, without the places not in use.
    pub fn results(&self) -> impl Iterator<Item = &SelfTestEntry> {
        self.results.iter().filter(|entry| entry.result() != SelfTestResult::UNUSED)
    }
}

impl Default for SelfTestLog {
    fn default() -> Self {
        Self::new()
    }
}

/// Self-test Result data structure, 28 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SelfTestEntry {
    /// Device Self-test Status: result in bits 3:0, Self-test Code in bits 7:4.
    pub dsts: u8,
    /// Segment Number of the first failure.
    pub snum: u8,
    /// Valid Diagnostic Information: `self_test_valid`.
    pub vdinfo: u8,
    /// Reserved.
    pub rsvd3: u8,
    /// Power On Hours when the test ended.
    pub poh: U64,
    /// Namespace where the failure was.
    pub nsid: U32,
    /// Failing LBA.
    pub flba: U64,
    /// Status Code Type.
    pub stype: u8,
    /// Status Code.
    pub scode: u8,
    /// Vendor Specific.
    pub vs: [u8; 2],
}

const _: () = assert!(size_of::<SelfTestEntry>() == 28);

impl SelfTestEntry {
    /// A place that holds no result.
    pub const UNUSED: Self = Self {
        dsts: SelfTestResult::UNUSED.0,
        snum: 0,
        vdinfo: 0,
        rsvd3: 0,
        poh: U64::ZERO,
        nsid: U32::ZERO,
        flba: U64::ZERO,
        stype: 0,
        scode: 0,
        vs: [0; 2],
    };

    /// A result of `code` without diagnostic information.
    #[must_use]
    pub fn new(code: SelfTestCode, result: SelfTestResult, power_on_hours: u64) -> Self {
        let dsts = (code.0 & 0x0f) << 4 | result.0 & 0x0f;
        Self { dsts, poh: power_on_hours.into(), ..Self::new_zeroed() }
    }

    /// Which test it was.
    #[must_use]
    pub const fn code(&self) -> SelfTestCode {
        SelfTestCode(self.dsts >> 4)
    }

    /// How it ended.
    #[must_use]
    pub const fn result(&self) -> SelfTestResult {
        SelfTestResult(self.dsts & 0x0f)
    }

    /// Says where and how the test failed.
    pub fn set_failure(&mut self, nsid: Nsid, lba: u64, status: Status) {
        self.vdinfo = self_test_valid::NSID
            | self_test_valid::LBA
            | self_test_valid::STATUS_CODE_TYPE
            | self_test_valid::STATUS_CODE;
        self.nsid.set(nsid.0);
        self.flba.set(lba);
        self.stype = status.code_type();
        self.scode = status.code();
    }

    /// The namespace of the failure, where the entry says it.
    #[must_use]
    pub fn failing_nsid(&self) -> Option<Nsid> {
        (self.vdinfo & self_test_valid::NSID != 0).then(|| Nsid(self.nsid.get()))
    }

    /// The LBA of the failure, where the entry says it.
    #[must_use]
    pub fn failing_lba(&self) -> Option<u64> {
        (self.vdinfo & self_test_valid::LBA != 0).then(|| self.flba.get())
    }

    /// The status of the failure, where the entry says it.
    #[must_use]
    pub fn failing_status(&self) -> Option<Status> {
        let both = self_test_valid::STATUS_CODE_TYPE | self_test_valid::STATUS_CODE;
        (self.vdinfo & both == both).then(|| Status(u16::from(self.stype & 7) << 8 | u16::from(self.scode)))
    }
}

/// The bits of Valid Diagnostic Information (VDINFO).
pub mod self_test_valid {
    /// NSID is valid.
    pub const NSID: u8 = 1 << 0;
    /// FLBA is valid.
    pub const LBA: u8 = 1 << 1;
    /// STYPE is valid.
    pub const STATUS_CODE_TYPE: u8 = 1 << 2;
    /// SCODE is valid.
    pub const STATUS_CODE: u8 = 1 << 3;
}

/// Self-test Code (STC), of the command and of the log. Unknown values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SelfTestCode(pub u8);

numbers! { SelfTestCode:
    SHORT = 0x1, "short";
    EXTENDED = 0x2, "extended";
    REFRESH = 0x3, "host-initiated refresh";
    VENDOR = 0xe, "vendor specific";
    /// Of the command only.
    ABORT = 0xf, "abort";
}

/// Result of a self-test, bits 3:0 of DSTS. Unknown values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SelfTestResult(pub u8);

numbers! { SelfTestResult:
    /// Completed without error.
    PASSED = 0x0, "passed";
    ABORTED_BY_COMMAND = 0x1, "aborted by a Device Self-test command";
    /// Aborted by a Controller Level Reset.
    ABORTED_BY_RESET = 0x2, "aborted by a reset of the controller";
    ABORTED_NAMESPACE_REMOVED = 0x3, "aborted because a namespace was removed";
    ABORTED_BY_FORMAT = 0x4, "aborted by Format NVM";
    FATAL = 0x5, "fatal error, not completed";
    FAILED = 0x6, "failed, segment not known";
    /// Segments failed; SNUM is the first.
    FAILED_SEGMENT = 0x7, "failed";
    ABORTED = 0x8, "aborted for an unknown reason";
    ABORTED_BY_SANITIZE = 0x9, "aborted by a sanitize operation";
    /// The entry holds no result.
    UNUSED = 0xf, "not used";
}
