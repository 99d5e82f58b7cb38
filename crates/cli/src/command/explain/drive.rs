//! Explanations of statuses for commands that manage, change and test a drive, and for reservations
//! and copies.

use ebof_nvme::identify::field::oacs;
use ebof_nvme::log::{GetLogPage, Lid, persistent_event_lsp};
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement};
use ebof_nvme::opcode::{admin as opcode, nvm};
use ebof_nvme::{Nsid, Sqe, Status};

use crate::device::{Device, query};
use crate::output::text::si;

/// Sanitize Namespace (NVMe Base 2.2), which no controller of ebof has.
pub(crate) const SANITIZE_NAMESPACE: u8 = 0x8c;

/// Explains `status` of an admin command; queries the controller for details.
pub(crate) fn admin(device: &mut dyn Device, sqe: &Sqe, status: Status) -> Option<String> {
    let name = device.name().to_owned();
    if status.is(Status::INVALID_OPCODE) {
        return unsupported(&name, sqe.opcode);
    }
    let own = match sqe.opcode {
        opcode::NAMESPACE_MANAGEMENT => management(device, sqe, status),
        opcode::NAMESPACE_ATTACHMENT => attachment(&name, sqe.nsid(), status),
        opcode::VIRTUALIZATION_MANAGEMENT => virtualization(&name, status),
        opcode::FORMAT_NVM => format(&name, sqe.nsid(), status),
        opcode::SANITIZE => sanitize(&name, status),
        opcode::DEVICE_SELF_TEST => self_test(&name, sqe.nsid(), status),
        opcode::FIRMWARE_DOWNLOAD | opcode::FIRMWARE_COMMIT => firmware(&name, status),
        opcode::GET_LOG_PAGE => log_page(&name, sqe, status),
        _ => None,
    };
    own.or_else(|| busy(&name, status))
}

/// An optional command that the controller does not have.
fn unsupported(device: &str, command: u8) -> Option<String> {
    let (bit, what) = match command {
        opcode::NAMESPACE_MANAGEMENT | opcode::NAMESPACE_ATTACHMENT => {
            (oacs::NAMESPACE_MANAGEMENT, "its namespaces are not managed by hosts")
        }
        opcode::VIRTUALIZATION_MANAGEMENT => {
            (oacs::VIRTUALIZATION_MANAGEMENT, "it has no functions, or this host does not manage them")
        }
        opcode::FORMAT_NVM => (oacs::FORMAT_NVM, "it does not format"),
        opcode::FIRMWARE_DOWNLOAD | opcode::FIRMWARE_COMMIT => (oacs::FIRMWARE, "it takes no firmware"),
        opcode::DEVICE_SELF_TEST => return Some(no_self_test(device)),
        opcode::SECURITY_SEND | opcode::SECURITY_RECEIVE => (oacs::SECURITY, "it has no security protocols"),
        opcode::DIRECTIVE_SEND | opcode::DIRECTIVE_RECEIVE => (oacs::DIRECTIVES, "it has no directives"),
        SANITIZE_NAMESPACE => {
            return Some(format!(
                "{device} does not sanitize single namespaces; `ebof format {device} -s 2` erases one, `ebof sanitize` all \
                 of the drive: their data are lost"
            ));
        }
        opcode::GET_LBA_STATUS => (oacs::GET_LBA_STATUS, "it does not track the status of blocks"),
        opcode::SANITIZE => {
            return Some(format!("{device} does not sanitize: see sanicap in `ebof id-ctrl {device}`"));
        }
        _ => return None,
    };
    Some(format!(
        "{device} does not have this command, {what}: see bit {} of oacs in `ebof id-ctrl {device} -H`",
        bit.trailing_zeros()
    ))
}

/// A controller without self-tests, such as that of plain namespaces.
fn no_self_test(device: &str) -> String {
    format!(
        "{device} does not test itself (bit 4 of oacs in `ebof id-ctrl {device} -H`): a drive does, plain namespaces do \
         not; test what is below them where it is, or have blocks of a namespace read with `ebof verify`"
    )
}

/// What to do if there is not as much capacity as was asked for.
const TOO_LARGE: &str =
    "ask for less; the target may have a quota for this host; or delete a namespace whose data may be lost";

fn management(device: &mut dyn Device, sqe: &Sqe, status: Status) -> Option<String> {
    let name = device.name().to_owned();
    let nsid = sqe.nsid();
    Some(match status.0 & 0x7ff {
        code if code == Status::OPERATION_DENIED.0 => format!(
            "this host may not manage the namespaces of {name}: the target's configuration says which host NQNs may"
        ),
        code if code == Status::NAMESPACE_INSUFFICIENT_CAPACITY.0 => match query::controller(device) {
            Some(data) => {
                let free = data.unvmcap.get();
                let all = data.tnvmcap.get();
                format!("UNVMCAP is {free} bytes ({}) of {all} ({}): {TOO_LARGE}", si(free), si(all))
            }
            None => TOO_LARGE.to_owned(),
        },
        code if code == Status::NAMESPACE_ID_UNAVAILABLE.0 => {
            let most = query::controller(device).map(|data| data.namespaces_max());
            let most = most.map(|most| format!(" ({most})")).unwrap_or_default();
            format!(
                "the drive holds as many namespaces as it can{most}: use another drive, or delete one whose data may be lost"
            )
        }
        code if code == Status::THIN_PROVISIONING_NOT_SUPPORTED.0 => {
            "the drive has no thin namespaces: give --ncap the same number as --nsze, or leave it away".to_owned()
        }
        code if code == Status::INVALID_FORMAT.0 => format!(
            "the drive has no such format (--flbas, --dps): `ebof id-ns {name} -n 0xffffffff` shows those it has; over a fabric \
             metadata is at the end of each block (0x10 of --flbas), and only metadata can be protection information"
        ),
        code if code == Status::COMMAND_SET_NOT_SUPPORTED.0 || code == Status::INVALID_COMMAND_SET.0 => {
            "the drive does not have that I/O command set: leave --csi away".to_owned()
        }
        code if code == Status::ANA_GROUP_INVALID.0 => "there is no such ANA group: leave --anagrp-id away".to_owned(),
        code if code == Status::INVALID_NAMESPACE.0 => allocated(&name, nsid),
        // Without a namespace: the whole drive is read-only.
        code if code == Status::NAMESPACE_WRITE_PROTECTED.0 && nsid == Nsid::NONE => format!(
            "the drive is open for reading only: see critical_warning in `ebof smart-log {name}`, and the target's log for why"
        ),
        code if code == Status::NAMESPACE_WRITE_PROTECTED.0 => {
            format!("namespace {nsid} is write protected: `ebof set-feature {name} -n {nsid} -f 0x84 -V 0` lifts it")
        }
        code if code == Status::INVALID_FIELD.0 => match NamespaceManagement::decode(sqe).select {
            ManagementSelect::Create => format!(
                "a size of 0, a capacity beyond the size, or an option that the drive does not know; `ebof id-ctrl {name}` \
                 and `ebof error-log {name} -e 1` tell more"
            ),
            _ => return None,
        },
        _ => return None,
    })
}

fn virtualization(device: &str, status: Status) -> Option<String> {
    let sentences = [
        (
            Status::OPERATION_DENIED,
            format!("this host may not manage {device}: the target's configuration says which host NQNs may"),
        ),
        (
            Status::INVALID_CONTROLLER_ID,
            format!(
                "there is no such controller: `ebof list-secondary {device}` lists the secondary ones; 0 is the primary"
            ),
        ),
        (
            Status::INVALID_SECONDARY_STATE,
            format!(
                "resources are assigned while a controller is offline (-a 7), and it needs 2 queues and an interrupt to go online: `ebof list-secondary {device}`"
            ),
        ),
        (
            Status::INVALID_CONTROLLER_RESOURCES,
            format!(
                "`ebof primary-ctrl-caps {device}` shows the most that one controller may have, as vqfrsm and vifrsm"
            ),
        ),
        (
            Status::INVALID_RESOURCE_ID,
            format!(
                "fewer are left, or there is no such type: `ebof primary-ctrl-caps {device}` shows how many there are (vqfrt, vifrt), and how many of them are assigned (vqrfa, vqrfap, virfa, virfap)"
            ),
        ),
    ];
    sentences.into_iter().find(|(other, _)| status.is(*other)).map(|(_, sentence)| sentence)
}

fn attachment(device: &str, nsid: Nsid, status: Status) -> Option<String> {
    let sentence = |list: &[(Status, String)]| {
        list.iter().find(|(other, _)| status.is(*other)).map(|(_, sentence)| sentence.clone())
    };
    sentence(&[
        (
            Status::OPERATION_DENIED,
            format!(
                "this host may not manage the namespaces of {device}: the target's configuration says which host NQNs may"
            ),
        ),
        (
            Status::NAMESPACE_ALREADY_ATTACHED,
            format!("`ebof list-ctrl {device} -n {nsid}` lists the controllers that have it"),
        ),
        (
            Status::NAMESPACE_NOT_ATTACHED,
            format!("`ebof list-ctrl {device} -n {nsid}` lists the controllers that have it"),
        ),
        (
            Status::NAMESPACE_IS_PRIVATE,
            format!(
                "namespace {nsid} may be attached to one controller at a time: detach it there, or create it with --nmic 1"
            ),
        ),
        (
            Status::CONTROLLER_LIST_INVALID,
            format!("there is no such controller: `ebof list-ctrl {device}` lists those there are"),
        ),
        (
            Status::NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED,
            "a controller has as many namespaces as it can: detach one".to_owned(),
        ),
        (Status::INVALID_NAMESPACE, allocated(device, nsid)),
    ])
}

/// Explains that a namespace, attached or not, does not exist, with advice.
fn allocated(device: &str, nsid: Nsid) -> String {
    format!("there is no namespace {nsid}: `ebof list-ns {device} --all` lists those there are")
}

fn format(device: &str, nsid: Nsid, status: Status) -> Option<String> {
    let list = [
        (
            Status::INVALID_FORMAT,
            format!(
                "the drive has no such format, or not with this protection information: `ebof id-ns {device} -n {nsid}`; over a \
                 fabric metadata is at the end of each block (--ms 1)"
            ),
        ),
        (
            Status::FORMAT_IN_PROGRESS,
            format!("another format is under way: fpi in `ebof id-ns {device} -n {nsid}` shows how far"),
        ),
        (
            Status::OPERATION_DENIED,
            format!(
                "this host may not format namespaces of {device}: the target's configuration says which host NQNs may"
            ),
        ),
        (
            Status::INVALID_FIELD,
            format!(
                "the drive does not take these settings: see fna in `ebof id-ctrl {device} -H` and dpc, mc in `ebof id-ns`"
            ),
        ),
        (Status::NAMESPACE_WRITE_PROTECTED, format!("namespace {nsid} is write protected")),
    ];
    list.iter().find(|(other, _)| status.is(*other)).map(|(_, sentence)| sentence.clone())
}

fn sanitize(device: &str, status: Status) -> Option<String> {
    let list = [
        (
            Status::INVALID_FIELD,
            format!("the drive does not have this action, or not so: see sanicap in `ebof id-ctrl {device} -H`"),
        ),
        (
            Status::OPERATION_DENIED,
            format!("this host may not sanitize {device}: the target's configuration says which host NQNs may"),
        ),
        (
            Status::SANITIZE_FAILED,
            format!(
                "the operation before failed (the target's log says why), and cannot be left, since it was started without \
                 --ause: sanitize the drive again, without --ause, too; all data are lost. `ebof sanitize-log {device}` \
                 shows how it goes"
            ),
        ),
    ];
    list.iter().find(|(other, _)| status.is(*other)).map(|(_, sentence)| sentence.clone())
}

fn self_test(device: &str, nsid: Nsid, status: Status) -> Option<String> {
    let list = [
        (Status::INVALID_FIELD, "the drive does not have this test".to_owned()),
        (Status::INVALID_NAMESPACE, format!("namespace {nsid} is not attached: `ebof list-ns {device}`")),
    ];
    list.iter().find(|(other, _)| status.is(*other)).map(|(_, sentence)| sentence.clone())
}

fn firmware(device: &str, status: Status) -> Option<String> {
    let list = [
        (Status::INVALID_FIRMWARE_IMAGE, format!("the image is damaged, not whole, or of another product: send it again with `ebof fw-download {device} -f FILE`; the firmware that runs is as it was")),
        (Status::INVALID_FIRMWARE_SLOT, format!("there is no such slot, it is read only, or nothing is in it: `ebof fw-log {device}` and frmw in `ebof id-ctrl {device} -H`")),
        (Status::OVERLAPPING_RANGE, "pieces of the image overlap, or another host sends one: send it again from the beginning, or with --ignore-ovr".to_owned()),
        (Status::FIRMWARE_ACTIVATION_PROHIBITED, "the drive does not go back to this revision".to_owned()),
        (Status::FIRMWARE_NEEDS_MAXIMUM_TIME, format!("activating it at once takes longer than announced (mtfa): use --action 1 and `ebof reset {device}`")),
        (Status::OPERATION_DENIED, format!("this host may not update {device}: the target's configuration says which host NQNs may")),
    ];
    list.iter().find(|(other, _)| status.is(*other)).map(|(_, sentence)| sentence.clone())
}

fn log_page(device: &str, sqe: &Sqe, status: Status) -> Option<String> {
    let GetLogPage { lid, lsp, .. } = GetLogPage::decode(sqe);
    if lid == Lid::DEVICE_SELF_TEST && status.is(Status::INVALID_LOG_PAGE) {
        return Some(no_self_test(device));
    }
    if lid != Lid::PERSISTENT_EVENT || !status.is(Status::COMMAND_SEQUENCE_ERROR) {
        return None;
    }
    Some(if lsp & persistent_event_lsp::ACTION_MASK == persistent_event_lsp::READ {
        format!("no reporting context is established: `ebof persistent-event-log {device}` establishes one")
    } else {
        format!(
            "a reporting context is there already: read it with --action 0, or release it with `ebof persistent-event-log {device} -a 2`"
        )
    })
}

/// Explains operations that block nearly every other command.
fn busy(device: &str, status: Status) -> Option<String> {
    let list = [
        (
            Status::SANITIZE_IN_PROGRESS,
            format!("a sanitize operation is under way: `ebof sanitize-log {device}` shows how far"),
        ),
        (
            Status::SANITIZE_FAILED,
            format!(
                "a sanitize operation failed (`ebof sanitize-log {device}`; the target's log says why): leave that state \
                 with `ebof sanitize {device} -a exit-failure`, if it was started with --ause; or sanitize the drive again: all \
                 data are lost"
            ),
        ),
        (
            Status::SELF_TEST_IN_PROGRESS,
            format!("a self-test is under way: `ebof device-self-test {device}` shows how far, -s abort ends it"),
        ),
        (Status::FORMAT_IN_PROGRESS, format!("a format is under way: fpi in `ebof id-ns {device}` shows how far")),
    ];
    list.iter().find(|(other, _)| status.is(*other)).map(|(_, sentence)| sentence.clone())
}

/// Explains `status` of an I/O command.
pub(crate) fn io(device: &str, sqe: &Sqe, status: Status) -> Option<String> {
    let nsid = sqe.nsid();
    let reservation = matches!(
        sqe.opcode,
        nvm::RESERVATION_REGISTER | nvm::RESERVATION_ACQUIRE | nvm::RESERVATION_RELEASE | nvm::RESERVATION_REPORT
    );
    if status.is(Status::RESERVATION_CONFLICT) {
        let what = if reservation {
            "the key is not the one that this host registered, or another host holds the reservation"
        } else {
            "another host holds a reservation on the namespace"
        };
        return Some(format!("{what}: `ebof resv-report {device} -n {nsid}` shows who"));
    }
    if status.is(Status::INVALID_OPCODE) && reservation {
        return Some(format!("{device} has no reservations: see bit 5 of oncs in `ebof id-ctrl {device} -H`"));
    }
    if status.is(Status::INVALID_FIELD) && reservation {
        return Some(format!(
            "the drive does not take these settings: see rescap in `ebof id-ns {device} -n {nsid} -H`"
        ));
    }
    let copy = sqe.opcode == nvm::COPY;
    let list = [
        (Status::COMMAND_SIZE_LIMIT_EXCEEDED, if copy {
            format!("more than one Copy may have: see mssrl, mcl and msrc in `ebof id-ns {device} -n {nsid}`")
        } else {
            "more blocks than one such command may have: use several".to_owned()
        }),
        (Status::INCOMPATIBLE_NAMESPACE, "source and destination are formatted in ways that do not go together".to_owned()),
        (Status::FAST_COPY_NOT_POSSIBLE, "the drive cannot copy this fast: leave --sopts away".to_owned()),
        (Status::OVERLAPPING_IO_RANGE, "a source range and the destination overlap".to_owned()),
        (Status::READ_ONLY_RANGE, format!("these blocks of namespace {nsid} may not be written")),
        (Status::INVALID_PROTECTION_INFORMATION, format!(
            "the namespace is not formatted for these protection settings: see dps in `ebof id-ns {device} -n {nsid}`; type 1 has \
             its first block's address for --ref-tag, type 3 no reference tag that is checked, and compare and verify insert nothing"
        )),
        (Status::GUARD_CHECK_ERROR, "the data do not fit their guard: they were damaged, or written without protection information".to_owned()),
        (Status::APPLICATION_TAG_CHECK_ERROR, "the application tag is another: see --app-tag and --app-tag-mask".to_owned()),
        (Status::REFERENCE_TAG_CHECK_ERROR, "the reference tag is another: see --ref-tag".to_owned()),
        (Status::DEALLOCATED_BLOCK, "the blocks were never written, or were deallocated, and the namespace reports that as an error (feature 0x05)".to_owned()),
    ];
    let sentence = list.iter().find(|(other, _)| status.is(*other)).map(|(_, sentence)| sentence.clone());
    sentence.or_else(|| busy(device, status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use ebof_nvme::identify::{Csi, IdentifyController};
    use ebof_nvme::namespace::AttachmentSelect;
    use zerocopy::IntoBytes as _;

    #[test]
    fn insufficient_capacity_is_reported_with_the_free_capacity() {
        let data = IdentifyController {
            tnvmcap: 100_000_000_000_u128.into(),
            unvmcap: 5_000_000_u128.into(),
            ..IdentifyController::default()
        };
        let sqe = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM }.encode(Nsid::NONE);
        let mut fake = Fake::controller([FakeAnswer::data(data.as_bytes())]);
        assert_eq!(
            admin(&mut fake, &sqe, Status::NAMESPACE_INSUFFICIENT_CAPACITY.dnr()).unwrap(),
            "UNVMCAP is 5000000 bytes (5.00 MB) of 100000000000 (100.00 GB): ask for less; the target may have a \
             quota for this host; or delete a namespace whose data may be lost"
        );
    }

    #[test]
    fn an_unsupported_command_is_explained_with_a_hint() {
        let sqe = AttachmentSelect::Attach.encode(Nsid(1));
        let text = admin(&mut Fake::controller([]), &sqe, Status::INVALID_OPCODE).unwrap();
        assert!(text.contains("bit 3 of oacs in `ebof id-ctrl nvme0 -H`"), "{text}");
        assert!(admin(&mut Fake::controller([]), &Sqe::new(opcode::IDENTIFY), Status::INVALID_OPCODE).is_none());
    }

    #[test]
    fn every_refusal_of_management_has_an_explanation() {
        for status in [
            Status::OPERATION_DENIED,
            Status::NAMESPACE_ALREADY_ATTACHED,
            Status::NAMESPACE_NOT_ATTACHED,
            Status::NAMESPACE_IS_PRIVATE,
            Status::CONTROLLER_LIST_INVALID,
            Status::NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED,
            Status::INVALID_NAMESPACE,
            Status::SANITIZE_IN_PROGRESS,
        ] {
            let sqe = AttachmentSelect::Attach.encode(Nsid(1));
            assert!(admin(&mut Fake::controller([]), &sqe, status.dnr()).is_some(), "{status}");
        }
    }
}
