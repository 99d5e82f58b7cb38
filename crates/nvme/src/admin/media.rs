//! Admin commands that change or test a drive's media: Format NVM, Sanitize, Device Self-test.
//! Their dwords only.
//!
//! NVMe Base 2.1, "Format NVM command", "Sanitize command", "Device Self-test command"; NVM Command
//! Set 1.1, "Format NVM command".

use crate::command::Sqe;
use crate::command::opcode::admin;
use crate::identify::ProtectionType;
use crate::log::SelfTestCode;
use crate::name::id::Nsid;
use crate::table::values;

/// Format NVM, dword 10. NSID FFFFFFFFh is every namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// LBA Format (LBAFU and LBAFL): index into LBAF of Identify Namespace, 0 to 63.
    pub lba_format: u8,
    /// Metadata Settings (MSET): metadata at the end of each block.
    pub metadata_extended: bool,
    /// Protection Information (PI).
    pub protection: ProtectionType,
    /// Protection Information Location (PIL): in the first bytes of the metadata, else in the last.
    pub protection_first: bool,
    /// Secure Erase Settings (SES).
    pub erase: SecureErase,
}

impl Format {
    /// Format `lba_format` without metadata settings, protection information and secure erase.
    #[must_use]
    pub const fn new(lba_format: u8) -> Self {
        Self {
            lba_format,
            metadata_extended: false,
            protection: ProtectionType::None,
            protection_first: false,
            erase: SecureErase::None,
        }
    }

    /// From dword 10; reserved bits are ignored.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        Self::of_dword(sqe.cdw10.get())
    }

    /// From a dword 10 that was kept elsewhere, as in the Persistent Event Log.
    #[must_use]
    pub fn of_dword(cdw10: u32) -> Self {
        let [low, high, ..] = cdw10.to_le_bytes();
        Self {
            lba_format: low & 0x0f | (high & 0x30),
            metadata_extended: low & 0x10 != 0,
            protection: ProtectionType::decode(low >> 5),
            protection_first: high & 1 != 0,
            erase: SecureErase::decode(high >> 1),
        }
    }

    /// The command for `nsid`; `lba_format` is taken modulo 64.
    #[must_use]
    pub fn encode(self, nsid: Nsid) -> Sqe {
        let low = self.lba_format & 0x0f | u8::from(self.metadata_extended) << 4 | self.protection.encode() << 5;
        let high = u8::from(self.protection_first) | self.erase.encode() << 1 | (self.lba_format & 0x30);
        Sqe::new(admin::FORMAT_NVM).with_nsid(nsid).with_cdw(10, u32::from_le_bytes([low, high, 0, 0]))
    }
}

values! {
    /// Secure Erase Settings (SES).
    pub enum SecureErase, 3 bits {
        /// None.
        None = 0;
        /// User data erase.
        UserData = 1;
        /// Cryptographic erase.
        Cryptographic = 2;
    }
}

/// Sanitize, dwords 10 and 11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sanitize {
    /// Sanitize Action (SANACT).
    pub action: SanitizeAction,
    /// Allow Unrestricted Sanitize Exit (AUSE): a failure may be left by Exit Failure Mode.
    pub allow_unrestricted_exit: bool,
    /// Overwrite Pass Count (OWPASS), 1 to 16; 16 is 0 on the wire.
    pub overwrite_passes: u8,
    /// Overwrite Invert Pattern Between Passes (OIPBP).
    pub invert_pattern: bool,
    /// No-Deallocate After Sanitize (NDAS).
    pub no_deallocate: bool,
    /// Enter Media Verification State (EMVS).
    pub enter_verification: bool,
    /// Overwrite Pattern (OVRPAT).
    pub pattern: u32,
}

impl Sanitize {
    /// `action` with one pass of zeros and nothing else asked for.
    #[must_use]
    pub const fn new(action: SanitizeAction) -> Self {
        Self {
            action,
            allow_unrestricted_exit: false,
            overwrite_passes: 1,
            invert_pattern: false,
            no_deallocate: false,
            enter_verification: false,
            pattern: 0,
        }
    }

    /// From dwords 10 and 11; reserved bits are ignored.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        Self::of_dwords(sqe.cdw10.get(), sqe.cdw11.get())
    }

    /// From dwords that were kept elsewhere, as in the Sanitize Status log page.
    #[must_use]
    pub fn of_dwords(cdw10: u32, pattern: u32) -> Self {
        let [low, high, ..] = cdw10.to_le_bytes();
        Self {
            action: SanitizeAction::decode(low),
            allow_unrestricted_exit: low & 8 != 0,
            overwrite_passes: if low >> 4 == 0 { 16 } else { low >> 4 },
            invert_pattern: high & 1 != 0,
            no_deallocate: high & 2 != 0,
            enter_verification: high & 4 != 0,
            pattern,
        }
    }

    /// The command. `overwrite_passes` is taken modulo 16.
    #[must_use]
    pub fn encode(self) -> Sqe {
        let low =
            self.action.encode() | u8::from(self.allow_unrestricted_exit) << 3 | (self.overwrite_passes & 0x0f) << 4;
        let high =
            u8::from(self.invert_pattern) | u8::from(self.no_deallocate) << 1 | u8::from(self.enter_verification) << 2;
        Sqe::new(admin::SANITIZE).with_cdw(10, u32::from_le_bytes([low, high, 0, 0])).with_cdw(11, self.pattern)
    }
}

values! {
    /// Sanitize Action (SANACT).
    pub enum SanitizeAction, 3 bits {
        /// Exit Failure Mode.
        ExitFailure = 1, "exit failure mode";
        /// Start a Block Erase.
        BlockErase = 2, "block erase";
        /// Start an Overwrite.
        Overwrite = 3, "overwrite";
        /// Start a Crypto Erase.
        CryptoErase = 4, "crypto erase";
        /// Exit Media Verification State.
        ExitVerification = 5, "exit media verification state";
    }
}

/// Device Self-test, dword 10 bits 3:0. NSID 0 tests the controller without namespaces, FFFFFFFFh
/// with all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelfTest {
    /// Self-test Code (STC).
    pub code: SelfTestCode,
}

impl SelfTest {
    /// From dword 10; reserved bits are ignored.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        Self { code: SelfTestCode(sqe.cdw10.to_bytes()[0] & 0x0f) }
    }

    /// The command for `nsid`.
    #[must_use]
    pub fn encode(self, nsid: Nsid) -> Sqe {
        Sqe::new(admin::DEVICE_SELF_TEST).with_nsid(nsid).with_cdw(10, u32::from(self.code.0 & 0x0f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_commands_have_the_layout_of_the_specification() {
        let format = Format {
            lba_format: 0x12,
            metadata_extended: true,
            protection: ProtectionType::Type3,
            protection_first: true,
            erase: SecureErase::Cryptographic,
        };
        let sqe = format.encode(Nsid(7));
        assert_eq!((sqe.opcode, sqe.nsid(), sqe.cdw10.get()), (0x80, Nsid(7), 0x1572));
        assert_eq!(Format::decode(&sqe), format);
        let sanitize = Sanitize {
            allow_unrestricted_exit: true,
            overwrite_passes: 16,
            invert_pattern: true,
            no_deallocate: true,
            pattern: 0xdead_beef,
            ..Sanitize::new(SanitizeAction::Overwrite)
        };
        let sqe = sanitize.encode();
        assert_eq!((sqe.opcode, sqe.cdw10.get(), sqe.cdw11.get()), (0x84, 0x30b, 0xdead_beef));
        assert_eq!(Sanitize::decode(&sqe), sanitize);
        assert_eq!(Sanitize::new(SanitizeAction::CryptoErase).encode().cdw10.get(), 0x14);
        let test = SelfTest { code: SelfTestCode::EXTENDED }.encode(Nsid::ALL);
        assert_eq!((test.opcode, test.cdw10.get()), (0x14, 2));
    }

    proptest! {
        #[test]
        fn any_dword_decodes_and_its_defined_bits_round_trip(cdw10 in any::<u32>(), cdw11 in any::<u32>()) {
            let sqe = Sqe::new(0).with_cdw(10, cdw10).with_cdw(11, cdw11);
            prop_assert_eq!(Format::decode(&sqe).encode(Nsid(1)).cdw10.get(), cdw10 & 0x3fff);
            let again = Sanitize::decode(&sqe).encode();
            prop_assert_eq!((again.cdw10.get(), again.cdw11.get()), (cdw10 & 0x7ff, cdw11));
            prop_assert_eq!(SelfTest::decode(&sqe).encode(Nsid(1)).cdw10.get(), cdw10 & 0x0f);
        }
    }
}
