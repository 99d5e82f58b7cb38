//! Explanations of statuses, for the commands that returned them.

mod drive;

pub(crate) use drive::SANITIZE_NAMESPACE;

use ebof_nvme::feature::Fid;
use ebof_nvme::identify::{Cns, NvmController};
use ebof_nvme::io::BlockRange;
use ebof_nvme::log::Lid;
use ebof_nvme::opcode::{admin as opcode, nvm};
use ebof_nvme::{Nsid, Sqe, Status};

use crate::device::Device;
use crate::device::query::{self, Identify};

/// Facts about the namespace and the controller that explain why an I/O command was refused.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// Size of the namespace in blocks.
    pub(crate) blocks: Option<u64>,
    /// The maximum transfer size in bytes.
    pub(crate) max_transfer_bytes: Option<u64>,
    /// The maximum number of blocks, if the command has a limit of its own.
    pub(crate) max_blocks: Option<u64>,
    /// Bytes that the command transferred.
    pub(crate) bytes: usize,
}

impl Facts {
    /// Queries the controller for the facts that are relevant for the status.
    pub(crate) fn gather(device: &mut dyn Device, sqe: &Sqe, status: Status, bytes: usize) -> Self {
        let mut facts = Self { bytes, ..Self::default() };
        if status.is(Status::LBA_OUT_OF_RANGE) || status.is(Status::CAPACITY_EXCEEDED) {
            facts.blocks = query::namespace(device, sqe.nsid()).map(|data| data.nsze.get());
        }
        if status.is(Status::INVALID_FIELD) {
            facts.max_transfer_bytes = query::max_transfer_bytes(device);
            facts.max_blocks = max_blocks(device, sqe);
        }
        facts
    }
}

/// The maximum number of blocks of a Verify, Write Zeroes or Write Uncorrectable (VSL, WZSL, WUSL).
fn max_blocks(device: &mut dyn Device, sqe: &Sqe) -> Option<u64> {
    if !matches!(sqe.opcode, nvm::VERIFY | nvm::WRITE_ZEROES | nvm::WRITE_UNCORRECTABLE) {
        return None;
    }
    let limits: Box<NvmController> = query::identify(device, Identify::new(Cns::IOCS_CONTROLLER))?;
    let power = match sqe.opcode {
        nvm::VERIFY => limits.vsl,
        nvm::WRITE_ZEROES => limits.wzsl,
        _ => limits.wusl,
    };
    let unit = query::page_min_bytes(device)?;
    let block_bytes = query::namespace(device, sqe.nsid())?.format().block_bytes()?;
    (power != 0).then(|| unit.checked_shl(power.into()).unwrap_or(u64::MAX) / u64::from(block_bytes))
}

/// Explains `status` of an admin command to `device`.
pub(crate) fn admin_command(device: &mut dyn Device, sqe: &Sqe, status: Status) -> Option<String> {
    drive::admin(device, sqe, status).or_else(|| admin(device.name(), sqe, status))
}

/// Explains `status` of an admin command, without querying the controller.
fn admin(device: &str, sqe: &Sqe, status: Status) -> Option<String> {
    let [low, ..] = sqe.cdw10.to_bytes();
    let known = |list: &[Status]| list.iter().any(|&other| status.is(other));
    if status.is(Status::INVALID_LOG_PAGE) || (sqe.opcode == opcode::GET_LOG_PAGE && status.is(Status::INVALID_FIELD)) {
        let name = Lid(low).name().map(|name| format!(" ({name})")).unwrap_or_default();
        return Some(format!(
            "the controller has no log page {low:#04x}{name}, or not with these parameters; \
             `ebof supported-log-pages {device}` lists those it has"
        ));
    }
    if known(&[Status::FEATURE_NOT_CHANGEABLE]) {
        return Some(format!("{} cannot be changed on this controller", feature(low)));
    }
    if known(&[Status::FEATURE_NOT_SAVEABLE]) {
        return Some(format!("{} cannot be saved: leave --save away to change it until the next reset", feature(low)));
    }
    if known(&[Status::FEATURE_NOT_NAMESPACE_SPECIFIC]) {
        return Some(format!("{} is the controller's, not a namespace's: leave --namespace-id away", feature(low)));
    }
    if matches!(sqe.opcode, opcode::GET_FEATURES | opcode::SET_FEATURES) && known(&[Status::INVALID_FIELD]) {
        return Some(format!("the controller does not have {}, or does not take this value", feature(low)));
    }
    if sqe.opcode == opcode::IDENTIFY && known(&[Status::INVALID_FIELD]) {
        return Some(format!("the controller does not have this data structure (CNS {low:02x}h)"));
    }
    if sqe.opcode == opcode::CROSS_CONTROLLER_RESET
        && let Some(sentence) = other_reset(device, status)
    {
        return Some(sentence);
    }
    general(device, sqe, status)
}

/// Explains `status` of Cross-Controller Reset.
fn other_reset(device: &str, status: Status) -> Option<String> {
    let list = [
        (
            Status::CROSS_CONTROLLER_RESET_IN_PROGRESS,
            format!("that controller is being reset already: `ebof cross-ctrl-reset-log {device}` shows how far"),
        ),
        (
            Status::CROSS_CONTROLLER_RESET_LOG_FULL,
            format!("entries of earlier resets fill the log: `ebof cross-ctrl-reset-log {device} -R` removes them"),
        ),
        (
            Status::CROSS_CONTROLLER_RESET_LIMIT_EXCEEDED,
            format!(
                "as many resets are under way as {device} has at a time (ccrl in `ebof id-ctrl {device}`): wait for one of \
                 them to end"
            ),
        ),
        (
            Status::INVALID_FIELD,
            "no controller of this subsystem that is known is this instance, or it is the one that was asked: CNTLID, \
             CIU and CIRN have to be those of its `ebof id-ctrl`"
                .to_owned(),
        ),
        (
            Status::OPERATION_DENIED,
            "that controller is another host's: hosts have their own controllers reset only".to_owned(),
        ),
        (
            Status::INVALID_OPCODE,
            format!("{device} does not reset other controllers: ccrl in `ebof id-ctrl {device}` is 0"),
        ),
    ];
    list.iter().find(|(other, _)| status.is(*other)).map(|(_, sentence)| sentence.clone())
}

/// Explains `status` of an I/O command.
pub(crate) fn io(device: &str, sqe: &Sqe, status: Status, facts: &Facts) -> Option<String> {
    let range = BlockRange::decode(sqe);
    let nsid = sqe.nsid();
    if status.is(Status::LBA_OUT_OF_RANGE) && sqe.opcode != nvm::DATASET_MANAGEMENT {
        let last = range.slba.saturating_add(u64::from(range.blocks) - 1);
        let asked = format!("blocks {} to {last} were asked for", range.slba);
        return Some(match facts.blocks {
            Some(blocks) => {
                format!("{asked}; namespace {nsid} has {blocks} blocks, 0 to {}", blocks.saturating_sub(1))
            }
            None => asked,
        });
    }
    if status.is(Status::LBA_OUT_OF_RANGE) {
        let blocks = facts.blocks.map(|blocks| format!(": it has {blocks} blocks")).unwrap_or_default();
        return Some(format!("a range goes beyond namespace {nsid}{blocks}"));
    }
    if let (true, Some(limit)) = (status.is(Status::INVALID_FIELD), facts.max_transfer_bytes)
        && facts.bytes as u64 > limit
    {
        let bytes = facts.bytes;
        return Some(format!("{bytes} bytes are more than one command may carry: at most {limit}; use several"));
    }
    if let (true, Some(limit)) = (status.is(Status::INVALID_FIELD), facts.max_blocks)
        && u64::from(range.blocks) > limit
    {
        let blocks = range.blocks;
        return Some(format!(
            "{blocks} blocks are more than one such command may name: at most {limit} (`ebof nvm-id-ctrl {device}`); use several"
        ));
    }
    if status.is(Status::COMPARE_FAILURE) {
        let last = range.slba.saturating_add(u64::from(range.blocks) - 1);
        return Some(format!("blocks {} to {last} of namespace {nsid} differ from the data", range.slba));
    }
    if status.is(Status::NAMESPACE_WRITE_PROTECTED) {
        return Some(format!(
            "namespace {nsid} may not be written now; `ebof get-feature {device} -n {nsid} -f 0x84 -H` shows its protection"
        ));
    }
    drive::io(device, sqe, status).or_else(|| general(device, sqe, status))
}

/// Explains that a namespace is not there, with advice.
pub(crate) fn no_namespace(device: &str, nsid: Nsid) -> String {
    if nsid == Nsid::ALL {
        return format!(
            "{device} does not do this to all namespaces at once (NSID FFFFFFFFh): name one with --namespace-id"
        );
    }
    format!("there is no namespace {nsid} for this host; `ebof list-ns {device}` lists those there are")
}

fn feature(fid: u8) -> String {
    match Fid(fid).name() {
        Some(name) => format!("feature {fid:#04x} ({name})"),
        None => format!("feature {fid:#04x}"),
    }
}

fn general(device: &str, sqe: &Sqe, status: Status) -> Option<String> {
    let sentences: [(Status, &str); 12] = [
        (Status::INVALID_FIELD, "a field of the command has a value that this controller does not take"),
        (Status::DATA_SGL_LENGTH_INVALID, "the length of the data does not fit the command"),
        (Status::NAMESPACE_NOT_READY, "the namespace is not ready yet: try again in a moment"),
        (Status::ACCESS_DENIED, "this host may not do that"),
        (
            Status::CAPACITY_EXCEEDED,
            "the drive behind the namespace is full, or what is below it (the target's log says which): have hosts \
             deallocate what they do not need (`fstrim`), or its administrator make space there",
        ),
        (Status::WRITE_FAULT, "the drive behind the namespace could not write: see the target's log and error-log"),
        (
            Status::UNRECOVERED_READ_ERROR,
            "the drive behind the namespace could not read: see the target's log and error-log",
        ),
        (Status::INTERNAL_ERROR, "the target failed: see its log"),
        (Status::TRANSIENT_TRANSPORT_ERROR, "the data were damaged on their way (digest error): try again"),
        (
            Status::ANA_INACCESSIBLE,
            "the namespace cannot be reached through this path: use another port of the subsystem",
        ),
        (Status::ANA_TRANSITION, "the path is changing its state: try again in a moment"),
        (Status::ABORT_REQUESTED, "the command was aborted: it took too long, or the target ends"),
    ];
    if status.is(Status::INVALID_NAMESPACE) {
        return Some(no_namespace(device, sqe.nsid()));
    }
    if status.is(Status::INVALID_OPCODE) {
        return Some(format!(
            "the controller does not have this command; `ebof effects-log {device}` lists those it has"
        ));
    }
    let sentence = sentences.iter().find(|(other, _)| status.is(*other)).map(|(_, sentence)| (*sentence).to_owned());
    let retry = (!status.is_dnr()).then(|| "trying again may help".to_owned());
    sentence.or(retry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_beyond_the_end_is_reported_with_the_size() {
        let sqe = BlockRange::new(6, 4).encode(nvm::READ, Nsid(1));
        let facts = Facts { blocks: Some(8), ..Facts::default() };
        assert_eq!(
            io("nvme0n1", &sqe, Status::LBA_OUT_OF_RANGE, &facts).unwrap(),
            "blocks 6 to 9 were asked for; namespace 1 has 8 blocks, 0 to 7"
        );
    }

    #[test]
    fn a_transfer_beyond_the_limit_is_reported_with_the_limit() {
        let sqe = BlockRange::new(0, 256).encode(nvm::READ, Nsid(1));
        let facts = Facts { max_transfer_bytes: Some(65_536), bytes: 131_072, ..Facts::default() };
        let text = io("nvme0n1", &sqe, Status::INVALID_FIELD, &facts).unwrap();
        assert_eq!(text, "131072 bytes are more than one command may carry: at most 65536; use several");
    }

    #[test]
    fn unknown_log_pages_and_features_are_reported() {
        let sqe = Sqe::new(opcode::GET_LOG_PAGE).with_cdw(10, 0x0d);
        let text = admin("nvme0", &sqe, Status::INVALID_LOG_PAGE).unwrap();
        assert!(text.contains("0x0d (Persistent Event Log)") && text.contains("supported-log-pages nvme0"), "{text}");
        let sqe = Sqe::new(opcode::SET_FEATURES).with_cdw(10, 0x01);
        let text = admin("nvme0", &sqe, Status::FEATURE_NOT_CHANGEABLE).unwrap();
        assert_eq!(text, "feature 0x01 (Arbitration) cannot be changed on this controller");
    }
}
