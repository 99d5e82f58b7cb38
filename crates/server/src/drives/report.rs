//! Events of a drive: its health, its faults, damage, and what was changed on it.

use std::sync::Arc;

use ebof_drive::{Answer, Drive, Origin, Request, View, VolumeId, error_log};
use ebof_manage::events::{EventKind, EventSeverity, NewEvent};
use ebof_medium::{BackingFault, Damage, Notice};
use ebof_nvme::log::AnaState;
use ebof_nvme::{Cid, Nsid, QueueId, Status};

/// The bits of Critical Warning, and what to do about each.
const WARNINGS: [(&str, &str); 6] = [
    ("the available spare is below its threshold", "free space, or replace what is below the drive"),
    ("a temperature is beyond its threshold", "cool the drive"),
    ("it is not reliable any more", "copy the data elsewhere, and look at the device below the drive"),
    ("it is read only", "copy the data elsewhere, and look at the device below the drive"),
    ("the backup of its volatile memory failed", "flush, and look at the device below the drive"),
    ("its persistent memory is read only", "look at the device below the drive"),
];

/// That Critical Warning has changed.
pub(super) fn health_event(drive: String, critical_warning: u8) -> NewEvent {
    let is_set = |bit: usize| critical_warning & (1 << bit) != 0;
    let bits = || WARNINGS.iter().enumerate().filter(|(bit, _)| is_set(*bit)).map(|(_, warning)| warning);
    let texts: Vec<&str> = bits().map(|(text, _)| *text).collect();
    match bits().next() {
        Some((_, advice)) => NewEvent::new(EventKind::HealthWarning, drive, texts.join("; ")).advice(*advice),
        None => NewEvent::new(EventKind::HealthRestored, drive, "no critical warning any more"),
    }
}

/// That no path to the drive is better than `best`, or that all are again as their ports say.
pub(super) fn ana_event(drive: String, best: AnaState) -> NewEvent {
    if best == AnaState::OPTIMIZED {
        return NewEvent::new(EventKind::HealthRestored, drive, "its paths are in the states of their ports again");
    }
    let message = format!("it fails, and all paths to it are {} (`ana_on_failure`)", best.name());
    NewEvent::new(EventKind::HealthWarning, drive, message).advice("look at the device below the drive")
}

/// What the medium says of the drive; `None` for what is reported where it is logged.
pub(super) fn notice_event(drive: &str, view: impl FnOnce() -> Arc<View>, notice: Notice) -> Option<NewEvent> {
    let event = |kind, message: &str| NewEvent::new(kind, drive, message);
    let event = match notice {
        Notice::Full(_) => event(EventKind::HealthWarning, "the drive is full: writes that need space are refused")
            .advice(
                "have hosts deallocate what they do not need (`fstrim`), or move data to another drive; or delete \
                     a namespace whose data may be lost",
            ),
        Notice::Room => event(EventKind::HealthRestored, "there is space on the drive again"),
        Notice::JournalFailed(class) => {
            event(EventKind::DriveFailed, &format!("the journal cannot be written ({class:?}): changes are refused"))
                .advice("look at the device below the drive")
        }
        Notice::JournalRecovered => event(EventKind::DriveRecovered, "the journal is written again"),
        Notice::Corrupt { volume, block } => NewEvent::new(
            EventKind::DamageFound,
            namespace_name(drive, &view(), volume),
            format!("block {block} is damaged, its checksum does not fit: it cannot be read"),
        )
        .advice("write the block again, from a copy; look at the device below the drive"),
        Notice::Mended { volume, block } => NewEvent::new(
            EventKind::DamageFound,
            namespace_name(drive, &view(), volume),
            format!("block {block} was written and not flushed when the drive ended: it is taken as it is"),
        )
        .severity(EventSeverity::Warning),
        Notice::QuotaReached(volume) => NewEvent::new(
            EventKind::HealthWarning,
            namespace_name(drive, &view(), volume),
            "the namespace has all that it may have: writes are refused",
        )
        .severity(EventSeverity::Warning)
        .advice("deallocate what is not needed, or create a larger namespace"),
        // Reported where they are logged.
        Notice::Fails(_) | Notice::Works(_) => return None,
    };
    Some(event)
}

/// That a fault below the drive begins or ends.
pub(super) fn fault_event(drive: String, fault: BackingFault, fails: bool) -> NewEvent {
    let (failing, working, advice) = match fault {
        BackingFault::Space => (
            "there is no space below the drive: writes that need some are refused",
            "there is space below the drive again",
            "free space on the file system that holds it",
        ),
        BackingFault::Read => (
            "reading fails below the drive",
            "what could not be read below the drive can be read again",
            "see the kernel's log, and whether the file has become shorter",
        ),
        BackingFault::Write => {
            ("writing fails below the drive", "writing below the drive works again", "see the kernel's log")
        }
    };
    if fails {
        NewEvent::new(EventKind::DriveFailed, drive, failing).advice(advice)
    } else {
        NewEvent::new(EventKind::DriveRecovered, drive, working)
    }
}

/// What a request has changed that was carried out.
pub(super) fn request_event(drive: String, request: &Request, origin: &Origin, answer: &Answer) -> Option<NewEvent> {
    let (kind, nsid, message) = match request {
        Request::Create(_) => {
            let nsid = if let Answer::Done(dword) = answer {
                Nsid(u32::try_from(*dword).unwrap_or_default())
            } else {
                Nsid::NONE
            };
            (EventKind::NamespaceAdded, nsid, "created")
        }
        Request::Delete(nsid) => (EventKind::NamespaceRemoved, *nsid, "deleted"),
        Request::Attach(nsid, _) => (EventKind::NamespaceChanged, *nsid, "attached to other controllers"),
        Request::Detach(nsid, _) => (EventKind::NamespaceChanged, *nsid, "detached from controllers"),
        Request::AttachExactly(nsid, _) => (EventKind::NamespaceChanged, *nsid, "attached to others"),
        Request::Map(nsid, _) => (EventKind::NamespaceChanged, *nsid, "moved to another function"),
        Request::Protect(nsid, true) => (EventKind::NamespaceChanged, *nsid, "protected against writing"),
        Request::Protect(nsid, false) => (EventKind::NamespaceChanged, *nsid, "not protected against writing"),
        Request::Group(nsid, _) => (EventKind::NamespaceChanged, *nsid, "put into another ANA group"),
        Request::Format(nsid, _) => (EventKind::NamespaceChanged, *nsid, "formatted"),
        Request::Sanitize(_) => (EventKind::NamespaceChanged, Nsid::ALL, "being sanitized"),
        Request::Commit(_) => (EventKind::FirmwareChanged, Nsid::NONE, "firmware was committed"),
        Request::Virtualize(_) if !origin.is_box => {
            (EventKind::FunctionChanged, Nsid::NONE, "resources or states of functions were changed")
        }
        // The box has its own words for what it asks of functions.
        _ => return None,
    };
    let object = match nsid {
        Nsid::NONE => drive,
        Nsid::ALL => format!("{drive}/ns*"),
        Nsid(nsid) => format!("{drive}/ns{nsid}"),
    };
    let event = NewEvent::new(kind, object, message);
    Some(if origin.is_box { event } else { event.who(origin.host.to_string()) })
}

/// The name of the namespace on a volume.
fn namespace_name(drive: &str, view: &View, volume: VolumeId) -> String {
    let found = view.namespaces.iter().find(|(_, namespace)| namespace.volume == volume);
    found.map_or_else(|| drive.to_owned(), |(nsid, _)| format!("{drive}/ns{}", nsid.0))
}

/// A damaged drive is open for reading only: says so in the log, and in the drive's own.
pub(super) fn note_damage(drive: &mut Drive, name: &str, device: &str, damage: &Damage) {
    tracing::error!(
        drive = name,
        device,
        "the drive is damaged and open for reading only: {damage}. Nothing is written to it, what its hosts change is \
         refused, and what is not known any more cannot be read"
    );
    let queue = QueueId(u16::MAX);
    let cid = Cid(u16::MAX);
    let status = Status::UNRECOVERED_READ_ERROR;
    let location = None;
    let nsid = Nsid::NONE;
    let error = error_log::Error { queue, cid, status, location, nsid, lba: 0, opcode: 0, information: 0 };
    drive.record_errors(0, &[error]);
}
