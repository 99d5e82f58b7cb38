//! What a namespace is like, from what the controller says about it and about itself: limits that a front may rely on,
//! or why the namespace cannot be a block device. Reads only.

use ebof_initiator::{AdminData, Controller, Error};
use ebof_nvme::identify::field::{dlfeat, nsattr, oncs, vwc};
use ebof_nvme::identify::{IdentifyController, IdentifyNamespace, NvmController};
use ebof_nvme::opcode::admin;
use ebof_nvme::{Nsid, Sqe};
use zerocopy::{FromZeros, IntoBytes};

use crate::blocks::Namespace;
use crate::fuse::TRANSFER_MAX_BYTES;

/// Identify CNS 06h: the I/O command set specific controller data structure. NVMe Base 2.1, "Identify command", CNS.
const CNS_COMMAND_SET_CONTROLLER: u32 = 0x06;

/// Blocks that one command may transfer bytes of, at most: no front asks for more.
fn transfer_max_bytes(controller: &Controller) -> u32 {
    let limit = controller.max_transfer_bytes().and_then(|bytes| u32::try_from(bytes).ok());
    limit.unwrap_or(TRANSFER_MAX_BYTES).min(TRANSFER_MAX_BYTES)
}

/// Limits of a controller that its namespaces share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) transfer_max_bytes: u32,
    write_zeroes_max_bytes: u64,
    oncs: u16,
    vwc: u8,
}

impl Limits {
    /// Asks the controller.
    pub(crate) fn of(controller: &Controller) -> Self {
        let transfer_max_bytes = transfer_max_bytes(controller);
        let identify = controller.identify();
        let write_zeroes_max_bytes = if identify.oncs.get() & oncs::WRITE_ZEROES == 0 {
            0
        } else {
            let wzsl = command_set_controller(controller).map_or(0, |nvm| nvm.wzsl);
            write_zeroes_limit(wzsl, controller.cap().page_min_bytes(), controller.max_transfer_bytes())
        };
        Self::from_identify(&identify, transfer_max_bytes, write_zeroes_max_bytes)
    }

    fn from_identify(identify: &IdentifyController, transfer_max_bytes: u32, write_zeroes_max_bytes: u64) -> Self {
        Self { transfer_max_bytes, write_zeroes_max_bytes, oncs: identify.oncs.get(), vwc: identify.vwc }
    }
}

/// WZSL where the controller gives one, else its transfer limit: older controllers apply MDTS to Write Zeroes, and the
/// Linux host respects that as well.
fn write_zeroes_limit(wzsl: u8, page_bytes: u64, transfer_max: Option<u64>) -> u64 {
    match wzsl {
        0 => transfer_max.unwrap_or(u64::MAX),
        wzsl => page_bytes.checked_shl(u32::from(wzsl)).unwrap_or(u64::MAX),
    }
}

/// Controllers before version 2.0 do not know it.
fn command_set_controller(controller: &Controller) -> Option<NvmController> {
    let mut data = NvmController::new_zeroed();
    let sqe = Sqe::new(admin::IDENTIFY).with_cdw(10, CNS_COMMAND_SET_CONTROLLER);
    let cqe = controller.admin(sqe, AdminData::ToHost(data.as_mut_bytes()), None).ok()?;
    cqe.status().is_success().then_some(data)
}

/// Why a namespace is no block device.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// It could not be asked.
    Unanswered(Error),
    /// It is formatted in a way that a block device cannot have.
    Format(&'static str),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unanswered(error) => error.fmt(f),
            Self::Format(reason) => f.write_str(reason),
        }
    }
}

/// Asks what a namespace is like.
pub(crate) fn describe(controller: &Controller, limits: &Limits, nsid: Nsid) -> Result<Namespace, Unusable> {
    let identify = controller.identify_namespace(nsid).map_err(Unusable::Unanswered)?;
    from_identify(&identify, limits, nsid).map_err(Unusable::Format)
}

fn from_identify(identify: &IdentifyNamespace, limits: &Limits, nsid: Nsid) -> Result<Namespace, &'static str> {
    let format = identify.format();
    let block_bytes = format.block_bytes().ok_or("its logical block size is not legal")?;
    // Protection information without anything else is the controller's business.
    let Some(protection) = identify.protection_by_controller() else {
        return Err("it is formatted with metadata, which a block device has no place for: format it without");
    };
    if identify.nsze.get() == 0 {
        return Err("it has no blocks");
    }
    if block_bytes > limits.transfer_max_bytes {
        return Err("its logical blocks are larger than one transfer");
    }
    let write_zeroes_max_blocks = (limits.write_zeroes_max_bytes / u64::from(block_bytes)).min(65_536);
    let zeros = identify.dlfeat & dlfeat::READS_MASK == dlfeat::READS_ZEROS;
    Ok(Namespace {
        nsid: nsid.0,
        block_bytes,
        blocks: identify.nsze.get(),
        read_only: identify.nsattr & nsattr::WRITE_PROTECTED != 0,
        transfer_max_bytes: limits.transfer_max_bytes / block_bytes * block_bytes,
        write_zeroes_max_blocks: u32::try_from(write_zeroes_max_blocks).expect("at most 65536"),
        // Deallocating must leave zeros behind, else Write Zeroes has to write them.
        zeroes_deallocate: zeros && identify.dlfeat & dlfeat::WRITE_ZEROES_DEALLOCATE != 0,
        deallocate: limits.oncs & oncs::DATASET_MANAGEMENT != 0,
        volatile_cache: limits.vwc & vwc::PRESENT != 0,
        protection,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_nvme::identify::{LbaFormat, ProtectionType};

    fn limits() -> Limits {
        let oncs = (oncs::WRITE_ZEROES | oncs::DATASET_MANAGEMENT).into();
        let identify = IdentifyController { oncs, vwc: vwc::PRESENT, ..IdentifyController::default() };
        Limits::from_identify(&identify, 128 << 10, write_zeroes_limit(0, 4096, Some(128 << 10)))
    }

    #[test]
    fn limits_come_from_the_controller() {
        let mut identify = IdentifyNamespace { nsze: 1000.into(), ..IdentifyNamespace::default() };
        identify.lbaf[0] = LbaFormat::data_only(12);
        identify.dlfeat = 9;
        let namespace = from_identify(&identify, &limits(), Nsid(5)).unwrap();
        assert_eq!((namespace.block_bytes, namespace.blocks, namespace.transfer_max_bytes), (4096, 1000, 128 << 10));
        assert_eq!((namespace.write_zeroes_max_blocks, namespace.zeroes_deallocate), (32, true));
        assert!(namespace.volatile_cache && namespace.deallocate && !namespace.read_only);
        identify.dlfeat = 8;
        identify.nsattr = 1;
        let namespace = from_identify(&identify, &limits(), Nsid(5)).unwrap();
        assert!(!namespace.zeroes_deallocate && namespace.read_only);
        assert_eq!(write_zeroes_limit(3, 4096, Some(1)), 32 << 10);
        assert_eq!(write_zeroes_limit(255, 4096, None), u64::MAX);
    }

    #[test]
    fn what_no_block_device_can_be_is_refused() {
        let mut identify = IdentifyNamespace { nsze: 1000.into(), ..IdentifyNamespace::default() };
        assert!(from_identify(&identify, &limits(), Nsid(1)).is_err());
        identify.lbaf[0] = LbaFormat { ms: 8.into(), ..LbaFormat::data_only(9) };
        assert!(from_identify(&identify, &limits(), Nsid(1)).unwrap_err().contains("metadata"));
        identify.dps = 2;
        assert_eq!(from_identify(&identify, &limits(), Nsid(1)).unwrap().protection, ProtectionType::Type2);
        identify.lbaf[0].ms = 16.into();
        assert!(from_identify(&identify, &limits(), Nsid(1)).unwrap_err().contains("metadata"));
        identify.lbaf[0] = LbaFormat::data_only(18);
        assert!(from_identify(&identify, &limits(), Nsid(1)).is_err());
        identify.lbaf[0] = LbaFormat::data_only(9);
        identify.nsze = 0.into();
        assert!(from_identify(&identify, &limits(), Nsid(1)).is_err());
    }
}
