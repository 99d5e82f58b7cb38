//! What commands and features do: Commands Supported and Effects (05h) and Feature Identifiers
//! Supported and Effects (12h).

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::feature::Fid;
use crate::table::{flags, values};

/// Commands Supported and Effects (05h). NVMe Base 2.1, section of that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommandsSupportedAndEffects {
    /// Admin Command Supported, by opcode.
    pub acs: [U32; 256],
    /// I/O Command Supported, by opcode.
    pub iocs: [U32; 256],
    /// Reserved.
    pub rsvd2048: [u8; 2048],
}

const _: () = assert!(size_of::<CommandsSupportedAndEffects>() == 4096);

impl CommandsSupportedAndEffects {
    /// What the admin command with this opcode does.
    #[must_use]
    pub fn admin(&self, opcode: u8) -> CommandEffects {
        CommandEffects(self.acs[usize::from(opcode)].get())
    }

    /// What the I/O command with this opcode does.
    #[must_use]
    pub fn io(&self, opcode: u8) -> CommandEffects {
        CommandEffects(self.iocs[usize::from(opcode)].get())
    }

    /// Says what the admin command with this opcode does.
    pub fn set_admin(&mut self, opcode: u8, effects: CommandEffects) {
        self.acs[usize::from(opcode)].set(effects.0);
    }

    /// Says what the I/O command with this opcode does.
    pub fn set_io(&mut self, opcode: u8, effects: CommandEffects) {
        self.iocs[usize::from(opcode)].set(effects.0);
    }
}

impl Default for CommandsSupportedAndEffects {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Commands Supported and Effects data structure, 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandEffects(pub u32);

flags!(CommandEffects);

impl CommandEffects {
    /// Command Supported (CSUPP).
    pub const CSUPP: Self = Self(1 << 0);
    /// Logical Block Content Change (LBCC).
    pub const LBCC: Self = Self(1 << 1);
    /// Namespace Capability Change (NCC).
    pub const NCC: Self = Self(1 << 2);
    /// Namespace Inventory Change (NIC).
    pub const NIC: Self = Self(1 << 3);
    /// Controller Capability Change (CCC).
    pub const CCC: Self = Self(1 << 4);
    /// UUID Selection Supported (USS).
    pub const USS: Self = Self(1 << 19);

    /// These effects, and no others at the same time as Command Submission and Execution (CSE)
    /// says.
    #[must_use]
    pub const fn with_submission(self, submission: Submission) -> Self {
        Self(self.0 & !(7 << 16) | u32::from_le_bytes([0, 0, submission.encode(), 0]))
    }

    /// These effects, within Command Scope (CSP) `scope`.
    #[must_use]
    pub const fn with_scope(self, scope: u32) -> Self {
        Self(self.0 & !(0xfff << 20) | scope << 20)
    }

    /// Command Submission and Execution (CSE).
    #[must_use]
    pub const fn submission(self) -> Submission {
        let [_, _, bits, _] = self.0.to_le_bytes();
        Submission::decode(bits)
    }

    /// Command Submission and Execution Relaxations (CSER), two bits.
    #[must_use]
    pub const fn relaxations(self) -> u32 {
        self.0 >> 14 & 3
    }

    /// Command Scope (CSP): bits of `scope`.
    #[must_use]
    pub const fn scope(self) -> u32 {
        self.0 >> 20
    }
}

values! {
    /// Command Submission and Execution (CSE): what must not run at the same time.
    pub enum Submission, 3 bits {
        /// No restriction.
        Free = 0;
        /// No other command for the same namespace.
        AloneInNamespace = 1;
        /// No other command for any namespace.
        Alone = 2;
    }
}

/// The bits of Command Scope (CSP) and Feature Identifier Scope (FSP): what the effects reach.
pub mod scope {
    /// Namespace.
    pub const NAMESPACE: u32 = 1 << 0;
    /// Controller.
    pub const CONTROLLER: u32 = 1 << 1;
    /// NVM set.
    pub const NVM_SET: u32 = 1 << 2;
    /// Endurance group.
    pub const ENDURANCE_GROUP: u32 = 1 << 3;
    /// Domain.
    pub const DOMAIN: u32 = 1 << 4;
    /// NVM subsystem.
    pub const SUBSYSTEM: u32 = 1 << 5;
    /// Controller data queue.
    pub const CONTROLLER_DATA_QUEUE: u32 = 1 << 6;
}

/// Feature Identifiers Supported and Effects (12h). NVMe Base 2.1, section of that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FeaturesSupportedAndEffects {
    /// FID Supported and Effects, by FID.
    pub fids: [U32; 256],
}

const _: () = assert!(size_of::<FeaturesSupportedAndEffects>() == 1024);

impl FeaturesSupportedAndEffects {
    /// What setting `fid` does.
    #[must_use]
    pub fn feature(&self, fid: Fid) -> FeatureEffects {
        FeatureEffects(self.fids[usize::from(fid.0)].get())
    }

    /// Says what setting `fid` does.
    pub fn set(&mut self, fid: Fid, effects: FeatureEffects) {
        self.fids[usize::from(fid.0)].set(effects.0);
    }
}

impl Default for FeaturesSupportedAndEffects {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// FID Supported and Effects data structure, 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureEffects(pub u32);

flags!(FeatureEffects);

impl FeatureEffects {
    /// FID Supported (FSUPP).
    pub const FSUPP: Self = Self(1 << 0);
    /// User Data Content Change (UDCC).
    pub const UDCC: Self = Self(1 << 1);
    /// Namespace Capability Change (NCC).
    pub const NCC: Self = Self(1 << 2);
    /// Namespace Inventory Change (NIC).
    pub const NIC: Self = Self(1 << 3);
    /// Controller Capability Change (CCC).
    pub const CCC: Self = Self(1 << 4);
    /// UUID Selection Supported (USS).
    pub const USS: Self = Self(1 << 19);

    /// These effects, within FID Scope (FSP) `scope`.
    #[must_use]
    pub const fn with_scope(self, scope: u32) -> Self {
        Self(self.0 & !(0xfff << 20) | scope << 20)
    }

    /// FID Scope (FSP): bits of `scope`.
    #[must_use]
    pub const fn scope(self) -> u32 {
        self.0 >> 20
    }
}
