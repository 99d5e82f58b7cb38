//! What a namespace is like, from what the controller says about it and about itself: limits that a
//! front may rely on, or why the namespace cannot be a block device. Reads only.

use ebof_initiator::{Error, Limits, Namespace as Open, Subsystem};
use ebof_nvme::Nsid;
use ebof_nvme::identify::IdentifyNamespace;
use ebof_nvme::identify::field::{dlfeat, nsattr};

use crate::block_queue::Namespace;
use crate::fuse::TRANSFER_MAX_BYTES;

/// The largest transfer of one command, bytes, limited to what fronts use.
pub(crate) fn transfer_max_bytes(limits: &Limits) -> u32 {
    let limit = limits.transfer_bytes.and_then(|bytes| u32::try_from(bytes).ok());
    limit.unwrap_or(TRANSFER_MAX_BYTES).min(TRANSFER_MAX_BYTES)
}

/// Why a namespace cannot be a block device.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// It could not be identified.
    Unanswered(Error),
    /// Its format is not possible for a block device.
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

/// Opens a namespace over all paths and reads its properties. The front transfers at most
/// `front_max_bytes` at once.
pub(crate) fn describe(subsystem: &Subsystem, front_max_bytes: u32, nsid: Nsid) -> Result<(Namespace, Open), Unusable> {
    let open = match subsystem.open(nsid) {
        Ok(open) => open,
        Err(error @ Error::Format { .. }) => return Err(unusable(subsystem, front_max_bytes, nsid, error)),
        Err(error) => return Err(Unusable::Unanswered(error)),
    };
    let described = from_identify(&open.identify(), &open.controller().limits(), front_max_bytes, nsid);
    match described {
        Ok(described) => Ok((Namespace { head: Some(open.head()), ..described }, open)),
        Err(reason) => {
            subsystem.close(open.head());
            Err(Unusable::Format(reason))
        }
    }
}

/// Why a namespace cannot be opened, in words for block devices.
fn unusable(subsystem: &Subsystem, front_max_bytes: u32, nsid: Nsid, error: Error) -> Unusable {
    let controller = subsystem.controller();
    let identify = controller.identify_namespace(nsid);
    let described = identify.map(|identify| from_identify(&identify, &controller.limits(), front_max_bytes, nsid));
    match described {
        Ok(Err(reason)) => Unusable::Format(reason),
        _ => Unusable::Unanswered(error),
    }
}

fn from_identify(
    identify: &IdentifyNamespace,
    limits: &Limits,
    front_max_bytes: u32,
    nsid: Nsid,
) -> Result<Namespace, &'static str> {
    let transfer_max_bytes = transfer_max_bytes(limits).min(front_max_bytes);
    let format = identify.format();
    let block_bytes = format.block_bytes().ok_or("its logical block size is not legal")?;
    // The controller handles protection information; other metadata is not supported.
    let Some(protection) = identify.protection_by_controller() else {
        return Err(
            "it is formatted with metadata, which a block device has no place for: attach another namespace, or \
                    format it without: all its data are lost",
        );
    };
    if identify.nsze.get() == 0 {
        return Err("it has no blocks");
    }
    if block_bytes > transfer_max_bytes {
        return Err("its logical blocks are larger than one transfer");
    }
    // A limit below one block cannot be kept: one block then.
    let zeroes = limits.write_zeroes_bytes.map_or(65_536, |bytes| (bytes / u64::from(block_bytes)).clamp(1, 65_536));
    let zeroes = if limits.write_zeroes { zeroes } else { 0 };
    let zeros = identify.dlfeat & dlfeat::READS_MASK == dlfeat::READS_ZEROS;
    Ok(Namespace {
        nsid: nsid.0,
        block_bytes,
        blocks: identify.nsze.get(),
        read_only: identify.nsattr & nsattr::WRITE_PROTECTED != 0,
        transfer_max_bytes: transfer_max_bytes / block_bytes * block_bytes,
        write_zeroes_max_blocks: u32::try_from(zeroes).expect("at most 65536"),
        // Only if deallocated blocks read as zeros; otherwise Write Zeroes has to write them.
        zeroes_deallocate: zeros && identify.dlfeat & dlfeat::WRITE_ZEROES_DEALLOCATE != 0,
        deallocate: limits.dataset_management,
        protection,
        head: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_nvme::identify::field::oncs;
    use ebof_nvme::identify::{IdentifyController, LbaFormat, ProtectionType};

    fn limits() -> Limits {
        let oncs = (oncs::WRITE_ZEROES | oncs::DATASET_MANAGEMENT).into();
        Limits::new(&IdentifyController { oncs, mdts: 5, ..IdentifyController::default() }, None, 4096)
    }

    fn described(identify: &IdentifyNamespace) -> Result<Namespace, &'static str> {
        from_identify(identify, &limits(), TRANSFER_MAX_BYTES, Nsid(5))
    }

    #[test]
    fn limits_come_from_the_controller_and_the_front() {
        let mut identify = IdentifyNamespace { nsze: 1000.into(), ..IdentifyNamespace::default() };
        identify.lbaf[0] = LbaFormat::data_only(12);
        identify.dlfeat = 9;
        let namespace = described(&identify).unwrap();
        assert_eq!((namespace.block_bytes, namespace.blocks, namespace.transfer_max_bytes), (4096, 1000, 128 << 10));
        assert_eq!((namespace.write_zeroes_max_blocks, namespace.zeroes_deallocate), (32, true));
        assert!(namespace.deallocate && !namespace.read_only);
        identify.dlfeat = 8;
        identify.nsattr = 1;
        let namespace = from_identify(&identify, &limits(), 64 << 10, Nsid(5)).unwrap();
        assert!(!namespace.zeroes_deallocate && namespace.read_only && namespace.transfer_max_bytes == 64 << 10);
        let identify_controller = IdentifyController { mdts: 5, ..IdentifyController::default() };
        let without = Limits::new(&identify_controller, None, 4096);
        let namespace = from_identify(&identify, &without, TRANSFER_MAX_BYTES, Nsid(5)).unwrap();
        assert!(namespace.write_zeroes_max_blocks == 0 && !namespace.deallocate);
    }

    #[test]
    fn namespaces_that_cannot_be_block_devices_are_refused() {
        let mut identify = IdentifyNamespace { nsze: 1000.into(), ..IdentifyNamespace::default() };
        assert!(described(&identify).is_err());
        identify.lbaf[0] = LbaFormat { ms: 8.into(), ..LbaFormat::data_only(9) };
        assert!(described(&identify).unwrap_err().contains("metadata"));
        identify.dps = 2;
        assert_eq!(described(&identify).unwrap().protection, ProtectionType::Type2);
        identify.lbaf[0].ms = 16.into();
        assert!(described(&identify).unwrap_err().contains("metadata"));
        identify.lbaf[0] = LbaFormat::data_only(18);
        assert!(described(&identify).is_err());
        identify.lbaf[0] = LbaFormat::data_only(9);
        identify.nsze = 0.into();
        assert!(described(&identify).is_err());
    }
}
