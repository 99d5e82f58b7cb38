//! Limits of one command and the optional commands of a controller. Read at every connect, because
//! they may change with a reconnect. No limit is 0, whatever the target reports, so callers can
//! divide by them and loop.

use ebof_nvme::identify::field::{oncs, vwc};
use ebof_nvme::identify::{IdentifyController, NvmController};

/// Limits of a controller, as of the last (re)connect. See [`crate::Controller::limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Data of one command, bytes: MDTS, or the transport's limit (8 MiB over RDMA) if that is
    /// less. At least a memory page. `None` for no limit.
    pub transfer_bytes: Option<u64>,
    /// Write Zeroes is supported (ONCS).
    pub write_zeroes: bool,
    /// Size of one Write Zeroes, bytes: WZSL if the controller reports one, else `transfer_bytes`,
    /// which older controllers apply and the Linux host respects.
    pub write_zeroes_bytes: Option<u64>,
    /// Size of one Verify, bytes: VSL, else `transfer_bytes`.
    pub verify_bytes: Option<u64>,
    /// Dataset Management is supported (ONCS).
    pub dataset_management: bool,
    /// Ranges of one Dataset Management (DMRL), 1 to 256.
    pub dsm_ranges: u16,
    /// Blocks of one of its ranges (DMRSL), 1 and up.
    pub dsm_range_blocks: u32,
    /// Blocks of all its ranges together (DMSL), 1 and up.
    pub dsm_blocks: u64,
    /// The controller has, or had at an earlier connect of the same [`crate::Controller`], a
    /// volatile write cache (VWC): writes are durable only after Flush or with FUA. Earlier
    /// connects count because their writes may still be in that cache.
    pub volatile_cache: bool,
}

impl Limits {
    /// From Identify Controller and CAP's smallest page in bytes; `nvm` is Identify of the NVM
    /// command set's controller, which controllers before version 2.0 don't have.
    #[must_use]
    pub fn new(identify: &IdentifyController, nvm: Option<&NvmController>, page_bytes: u64) -> Self {
        let transfer_bytes = identify.max_transfer_bytes(page_bytes);
        let pages = |value: u8| match value {
            0 => transfer_bytes,
            // An exponent that does not fit means no limit.
            value => page_bytes.checked_shl(u32::from(value)).filter(|&bytes| bytes >= page_bytes),
        };
        let or_unlimited = |value: u64, none: u64| if value == 0 { none } else { value };
        let (dmrl, dmrsl, dmsl) = nvm.map_or((0, 0, 0), |nvm| (nvm.dmrl, nvm.dmrsl.get(), nvm.dmsl.get()));
        Self {
            transfer_bytes,
            write_zeroes: identify.oncs.get() & oncs::WRITE_ZEROES != 0,
            write_zeroes_bytes: pages(nvm.map_or(0, |nvm| nvm.wzsl)),
            verify_bytes: pages(nvm.map_or(0, |nvm| nvm.vsl)),
            dataset_management: identify.oncs.get() & oncs::DATASET_MANAGEMENT != 0,
            dsm_ranges: if dmrl == 0 { 256 } else { u16::from(dmrl) },
            dsm_range_blocks: u32::try_from(or_unlimited(u64::from(dmrsl), u64::from(u32::MAX))).unwrap_or(u32::MAX),
            dsm_blocks: or_unlimited(dmsl, u64::MAX),
            volatile_cache: identify.vwc & vwc::PRESENT != 0,
        }
    }
}

impl Limits {
    /// These limits over a transport that has one, bytes.
    pub(crate) fn within(self, transport: Option<u32>) -> Self {
        let transport = transport.map(u64::from);
        let transfer_bytes = self.transfer_bytes.into_iter().chain(transport).min();
        Self { transfer_bytes, ..self }
    }

    /// These limits after a reconnect, where `before` held until then.
    pub(crate) fn after(self, before: Self) -> Self {
        Self { volatile_cache: self.volatile_cache || before.volatile_cache, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // @test hostile.target
    #[test]
    fn limits_are_the_controllers_and_always_usable() {
        let identify = IdentifyController { mdts: 5, vwc: 1, ..IdentifyController::default() };
        let limits = Limits::new(&identify, None, 4096);
        assert_eq!((limits.transfer_bytes, limits.write_zeroes_bytes), (Some(128 << 10), Some(128 << 10)));
        assert_eq!((limits.dsm_ranges, limits.dsm_range_blocks, limits.dsm_blocks), (256, u32::MAX, u64::MAX));
        assert!(limits.volatile_cache && !limits.write_zeroes && !limits.dataset_management);
        let nvm =
            NvmController { wzsl: 3, vsl: 255, dmrl: 1, dmrsl: 7.into(), dmsl: 9.into(), ..NvmController::default() };
        let limits = Limits::new(&identify, Some(&nvm), 4096);
        assert_eq!((limits.write_zeroes_bytes, limits.verify_bytes), (Some(32 << 10), None));
        assert_eq!((limits.dsm_ranges, limits.dsm_range_blocks, limits.dsm_blocks), (1, 7, 9));
        // The transport's limit is one of data.
        let least = |transport| (limits.within(transport).transfer_bytes, limits.within(transport).write_zeroes_bytes);
        assert_eq!(least(Some(64 << 10)), (Some(64 << 10), Some(32 << 10)));
        assert_eq!(least(Some(8 << 20)), (Some(128 << 10), Some(32 << 10)));
        let unlimited = Limits::new(&IdentifyController::default(), None, 4096);
        assert_eq!((unlimited.within(None).transfer_bytes, unlimited.within(Some(7)).transfer_bytes), (None, Some(7)));
        let most = NvmController { wzsl: 63, ..NvmController::default() };
        assert_eq!(Limits::new(&identify, Some(&most), 4096).write_zeroes_bytes, None);
    }
}
