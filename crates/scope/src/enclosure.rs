//! The box as those see it who have a scope, and the changes that they may make: of what functions
//! and namespaces of their drives are and have. Whatever else a change names is not there for them.

use std::time::Duration;

use crate::Limited;
use crate::own::Own;
use ebof_manage::api::Asker;
use ebof_manage::enclosure::{
    Change, DriveDetails, DriveObject, Enclosure, HostObject, Inventory, Mistake, MistakeKind, PortObject, Refused,
    StoredImage, SubsystemObject, Task, Transaction, check,
};

impl Enclosure for Limited {
    fn inventory(&self) -> Inventory {
        let whole = self.whole.enclosure.inventory();
        let own = Own::from_scope(&self.scope, &self.whole.target.config(), &whole);
        limited(whole, &own)
    }

    fn begin_for(&self, transaction: Transaction, by: &Asker) -> Result<Task, Refused> {
        let beyond: Vec<Mistake> = transaction.changes.iter().enumerate().filter_map(not_for_a_part).collect();
        if !beyond.is_empty() {
            return Err(Refused { mistakes: beyond });
        }
        // What is not theirs is refused as what does not exist; the target checks it all again.
        check(&self.inventory(), &transaction)?;
        self.whole.enclosure.begin_for(transaction, by)
    }

    fn tasks(&self) -> Vec<Task> {
        let own = self.own();
        let mut tasks = self.whole.enclosure.tasks();
        tasks.retain(|task| own.has_all_of(&task.changes));
        tasks
    }

    fn task(&self, id: u64, known: Option<u64>, wait: Duration) -> Option<Task> {
        // Not theirs: nobody waits for it, which would tell that there is one.
        let now = self.whole.enclosure.task(id, None, Duration::ZERO)?;
        if !self.own().has_all_of(&now.changes) {
            return None;
        }
        self.whole.enclosure.task(id, known, wait)
    }

    fn drive_details(&self, drive: &str) -> Option<DriveDetails> {
        self.own().has_drive(drive).then(|| self.whole.enclosure.drive_details(drive))?
    }

    fn store_image(&self, _bytes: &[u8]) -> Result<StoredImage, Refused> {
        Err(Refused::because(MistakeKind::NotAllowed, "firmware images are for the whole box", ADVICE))
    }
}

/// What to do about a change that is not theirs to make.
const ADVICE: &str = "ask an Administrator: this account is limited to some drives and subsystems";

/// That a change is about the box, and not about what a drive has.
fn not_for_a_part((at, change): (usize, &Change)) -> Option<Mistake> {
    let message = match change {
        Change::AddDrive(_) => "drives are added to the whole box",
        Change::RemoveDrive { .. } => "drives are taken from the whole box",
        Change::StageFirmware { .. } | Change::ActivateFirmware { .. } => "firmware is for the whole box",
        Change::Assign { .. }
        | Change::Move { .. }
        | Change::Map { .. }
        | Change::Weight { .. }
        | Change::Limit { .. }
        | Change::ResetDrive { .. }
        | Change::CreateNamespace(_)
        | Change::DeleteNamespace { .. }
        | Change::AttachNamespace { .. }
        | Change::DetachNamespace { .. }
        | Change::WriteProtect { .. }
        | Change::SetAnaGroup { .. }
        | Change::FormatNamespace(_)
        | Change::SanitizeDrive(_)
        | Change::SelfTest { .. } => return None,
    };
    // Without the name of a drive, which may be somebody else's.
    let (object, message, advice) = (String::new(), message.to_owned(), ADVICE.to_owned());
    Some(Mistake { kind: MistakeKind::NotAllowed, change: Some(at), object, message, advice })
}

/// What is in a scope of what there is.
pub(crate) fn limited(whole: Inventory, own: &Own) -> Inventory {
    let Inventory { inventory_schema, version, pid, uptime_s, mut drives, mut subsystems, mut ports, sensors, .. } =
        whole;
    drives.retain(|drive| own.has_drive(&drive.name));
    subsystems.retain(|subsystem| own.has_subsystem(&subsystem.nqn));
    ports.retain(|port| own.has_port(&port.name));
    for port in &mut ports {
        limit_port(port, own, &drives, &subsystems);
    }
    // They name drives in words.
    let contradictions = Vec::new();
    Inventory { inventory_schema, version, pid, uptime_s, drives, subsystems, ports, sensors, contradictions }
}

/// A port that others may be at, too.
fn limit_port(port: &mut PortObject, own: &Own, drives: &[DriveObject], subsystems: &[SubsystemObject]) {
    port.functions.retain(|function| own.has_drive(&function.drive));
    let of_functions = drives.iter().flat_map(|drive| &drive.functions).flat_map(|function| &function.hosts);
    let of_drives = drives.iter().flat_map(|drive| &drive.hosts);
    let hosts = of_functions.chain(of_drives).chain(subsystems.iter().flat_map(|subsystem| &subsystem.hosts));
    // A controller has a connection for each queue; that of the Admin Queue is no I/O queue.
    let connections = |host: &HostObject| host.io_queues.saturating_add(1);
    port.connections = hosts.filter(|host| host.port == port.name).map(connections).sum();
}
