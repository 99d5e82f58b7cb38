//! Controller properties (Base, Controller Properties) that a host reads and writes with Property
//! Get and Set.

/// Byte offsets of the properties that message-based transports have.
pub mod offset {
    /// Controller Capabilities, 8 bytes.
    pub const CAP: u32 = 0x00;
    /// Version, 4 bytes.
    pub const VS: u32 = 0x08;
    /// Controller Configuration, 4 bytes.
    pub const CC: u32 = 0x14;
    /// Controller Status, 4 bytes.
    pub const CSTS: u32 = 0x1c;
    /// NVM Subsystem Reset, 4 bytes.
    pub const NSSR: u32 = 0x20;
    /// Controller Ready Timeouts, 4 bytes.
    pub const CRTO: u32 = 0x68;
}

/// The CAP property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap(pub u64);

impl Cap {
    /// Contiguous queues required, NVM command set, 4 KiB pages; `mqes` entries per queue (2
    /// to 65536) and `timeout_500ms` units of half a second for CSTS.RDY to follow CC.EN.
    #[must_use]
    pub const fn new(mqes: u32, timeout_500ms: u8) -> Self {
        let mqes = if mqes == 0 { 0 } else { (mqes - 1) as u64 & 0xffff };
        // CQR bit 16, TO 31:24, CSS.NVM bit 37.
        Self(mqes | 1 << 16 | (timeout_500ms as u64) << 24 | 1 << 37)
    }

    /// The same with CSS, IOCSS: CC.CSS may select all command sets, those that Identify I/O
    /// Command Set (CNS 1Ch) names.
    #[must_use]
    pub const fn with_all_command_sets(self) -> Self {
        Self(self.0 | 1 << 43)
    }

    /// Maximum entries of a queue (MQES, made 1's based).
    #[must_use]
    pub const fn mqes(self) -> u32 {
        (self.0 & 0xffff) as u32 + 1
    }

    /// Timeout (TO) in milliseconds.
    #[must_use]
    pub const fn timeout_ms(self) -> u32 {
        (self.0 >> 24 & 0xff) as u32 * 500
    }

    /// Memory page size minimum in bytes (MPSMIN): the unit of MDTS.
    #[must_use]
    pub const fn page_min_bytes(self) -> u64 {
        4096 << (self.0 >> 48 & 0xf)
    }
}

/// The VS property: a version of the Base specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32);

impl Version {
    /// NVM Express Base 2.0.
    pub const V2_0: Self = Self::new(2, 0, 0);
    /// NVM Express Base 2.1.
    pub const V2_1: Self = Self::new(2, 1, 0);

    /// A version from its parts.
    #[must_use]
    pub const fn new(major: u16, minor: u8, tertiary: u8) -> Self {
        Self((major as u32) << 16 | (minor as u32) << 8 | tertiary as u32)
    }
}

impl core::fmt::Display for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}.{}", self.0 >> 16, self.0 >> 8 & 0xff, self.0 & 0xff)
    }
}

/// The CC property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cc(pub u32);

impl Cc {
    /// Bits that are defined: EN, CSS, MPS, AMS, SHN, IOSQES, IOCQES, CRIME.
    pub const DEFINED: u32 = 0x01ff_fff1;

    /// What a host writes to enable a controller: NVM command set, 4 KiB pages, round robin, 64-
    /// and 16-byte entries.
    pub const ENABLE: Self = Self(1 | 6 << 16 | 4 << 20);

    /// CSS: the NVM command set.
    pub const COMMAND_SET_NVM: u8 = 0b000;
    /// CSS: all I/O command sets that the controller supports.
    pub const COMMAND_SET_ALL: u8 = 0b110;

    /// EN.
    #[must_use]
    pub const fn enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// CSS: command set selected.
    #[must_use]
    pub const fn command_set(self) -> u8 {
        (self.0 >> 4 & 0x7) as u8
    }

    /// MPS: log2 of the page size less 12.
    #[must_use]
    pub const fn page_shift(self) -> u8 {
        (self.0 >> 7 & 0xf) as u8
    }

    /// AMS: arbitration mechanism.
    #[must_use]
    pub const fn arbitration(self) -> u8 {
        (self.0 >> 11 & 0x7) as u8
    }

    /// SHN: 0 none, 1 normal, 2 abrupt shutdown.
    #[must_use]
    pub const fn shutdown(self) -> u8 {
        (self.0 >> 14 & 0x3) as u8
    }

    /// The value with SHN set.
    #[must_use]
    pub const fn with_shutdown(self, shn: u8) -> Self {
        Self(self.0 & !(0x3 << 14) | (shn as u32 & 0x3) << 14)
    }

    /// IOSQES: log2 of the I/O submission queue entry size.
    #[must_use]
    pub const fn iosqes(self) -> u8 {
        (self.0 >> 16 & 0xf) as u8
    }

    /// IOCQES: log2 of the I/O completion queue entry size.
    #[must_use]
    pub const fn iocqes(self) -> u8 {
        (self.0 >> 20 & 0xf) as u8
    }
}

/// The CSTS property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Csts(pub u32);

impl Csts {
    /// RDY: commands are processed.
    pub const READY: u32 = 1;
    /// CFS: controller fatal status.
    pub const FATAL: u32 = 1 << 1;
    /// SHST: shutdown is going on.
    pub const SHUTDOWN_OCCURRING: u32 = 1 << 2;
    /// SHST: shutdown has completed.
    pub const SHUTDOWN_COMPLETE: u32 = 2 << 2;
    /// The SHST field.
    pub const SHUTDOWN_MASK: u32 = 3 << 2;
    /// NSSRO.
    pub const SUBSYSTEM_RESET: u32 = 1 << 4;

    /// RDY.
    #[must_use]
    pub const fn ready(self) -> bool {
        self.0 & Self::READY != 0
    }

    /// CFS.
    #[must_use]
    pub const fn fatal(self) -> bool {
        self.0 & Self::FATAL != 0
    }

    /// Whether SHST says that shutdown is complete.
    #[must_use]
    pub const fn shutdown_complete(self) -> bool {
        self.0 & Self::SHUTDOWN_MASK == Self::SHUTDOWN_COMPLETE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cc_value_that_linux_writes_is_decoded() {
        let cc = Cc(0x0046_0001);
        assert_eq!(cc, Cc::ENABLE);
        assert_eq!((cc.enabled(), cc.iosqes(), cc.iocqes(), cc.page_shift(), cc.shutdown()), (true, 6, 4, 0, 0));
        assert_eq!(Cc(0x0046_4001), cc.with_shutdown(1));
    }

    #[test]
    fn cap_hides_zero_based_counts() {
        let cap = Cap::new(1024, 30);
        assert_eq!((cap.mqes(), cap.timeout_ms(), cap.page_min_bytes()), (1024, 15_000, 4096));
        assert_eq!(cap.0, 0x20_1e01_03ff);
    }
}
