//! Protection against data loss, for verbs that destroy data or write behind a file system's back:
//! lists the affected namespaces, checks whether this machine uses them, and asks for confirmation.
//! `--force` skips all of it, as in nvme-cli.

use ebof_nvme::Nsid;
use ebof_nvme::identify::{Cns, ControllerList, IdentifyNamespace, NamespaceList};

use super::question::confirm;
use crate::command;
use crate::device::Device;
use crate::device::query::Identify;
use crate::failure::Failure;
use crate::output::text::si;

/// What `--force` means where somebody uses the device, or may.
const FORCE: &str = "--force does it all the same, and whoever uses it loses data";
/// Maximum number of namespaces that a warning lists; of the others it gives the number.
const LISTED_MAX: usize = 16;

/// Checks that this machine does not use namespace `nsid` of `device` (FFFFFFFFh: any of them),
/// which a verb is about to remove or change.
///
/// # Errors
/// A block device of it is mounted, swap space, part of another device or open, or that cannot be
/// told, and `force` is not set.
pub(super) fn refuse_in_use(verb: &str, device: &dyn Device, nsid: Nsid, force: bool) -> anyhow::Result<()> {
    if force {
        return Ok(());
    }
    let local = device.local_devices().map_err(|error| {
        let message = format!("{verb}: whether this machine uses {} cannot be told. Nothing was done", device.name());
        Failure::new(
            "in-use",
            message,
            format!("{error:#}\n  look whether a program uses it, and close that first; {FORCE}"),
        )
    })?;
    let uses: Vec<String> = local
        .into_iter()
        .filter(|local| [nsid, Nsid(local.nsid)].contains(&Nsid::ALL) || nsid == Nsid(local.nsid))
        .filter_map(|local| Some(format!("namespace {} ({}): {}", local.nsid, local.name, local.used_by?)))
        .collect();
    if uses.is_empty() {
        return Ok(());
    }
    let message = format!("{verb}: {} is in use on this machine. Nothing was done", device.name());
    let advice = format!("{}\n  unmount or close it first; {FORCE}", uses.join("\n  "));
    Err(Failure::new("in-use", message, advice).into())
}

/// As [`refuse_in_use`], and asks for confirmation that the data of these namespaces are destroyed;
/// `warning` is the question's text.
///
/// # Errors
/// As [`refuse_in_use`]; the answer is not yes, or there is no terminal.
pub(super) fn confirm_loss(
    verb: &str,
    warning: &str,
    device: &mut dyn Device,
    nsid: Nsid,
    force: bool,
) -> anyhow::Result<()> {
    refuse_in_use(verb, device, nsid, force)?;
    if force || device.is_dry_run() {
        return Ok(());
    }
    Ok(confirm(warning, &concerned(device, nsid), force)?)
}

/// A line for each namespace with its size and controllers, as far as the controller reports them.
fn concerned(device: &mut dyn Device, nsid: Nsid) -> Vec<String> {
    let nsids = if nsid == Nsid::ALL { every(device) } else { vec![nsid] };
    let mut lines: Vec<String> = nsids.iter().take(LISTED_MAX).map(|&nsid| describe(device, nsid)).collect();
    if nsids.len() > LISTED_MAX {
        lines.push(format!("and {} more", nsids.len() - LISTED_MAX));
    }
    lines
}

/// All namespaces of the subsystem if the controller supports namespace management, otherwise the
/// active ones.
fn every(device: &mut dyn Device) -> Vec<Nsid> {
    let mut list = |cns| command::identify::<NamespaceList>(device, Identify::for_namespace(cns, Nsid::NONE));
    let list = list(Cns::ALLOCATED_NAMESPACE_LIST).or_else(|_no_management| list(Cns::ACTIVE_NAMESPACE_LIST));
    list.map(|list| list.iter().collect()).unwrap_or_default()
}

fn describe(device: &mut dyn Device, nsid: Nsid) -> String {
    let mut identify = |cns| command::identify::<IdentifyNamespace>(device, Identify::for_namespace(cns, nsid)).ok();
    let data = identify(Cns::ALLOCATED_NAMESPACE).or_else(|| identify(Cns::NAMESPACE));
    let size = data.filter(|data| data.nsze.get() > 0).and_then(|data| {
        let block_bytes = data.format().block_bytes()?;
        Some(format!(", {}", si(u128::from(data.nsze.get()) * u128::from(block_bytes))))
    });
    let controllers =
        command::identify::<ControllerList>(device, Identify::for_namespace(Cns::NAMESPACE_CONTROLLER_LIST, nsid));
    let attached = controllers.ok().map(|list| match list.iter().map(|id| id.0.to_string()).collect::<Vec<_>>() {
        none if none.is_empty() => ", attached to no controller".to_owned(),
        one if one.len() == 1 => format!(", attached to controller {}", one.join("")),
        several => format!(", attached to controllers {}", several.join(", ")),
    });
    format!("namespace {nsid}{}{}", size.unwrap_or_default(), attached.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::Fake;

    #[test]
    fn mounted_devices_are_refused_unless_forced() {
        let device = Fake::controller([]).with_local_device(1, None).with_local_device(2, Some("/mnt/data"));
        assert!(refuse_in_use("detach-ns", &device, Nsid(1), false).is_ok());
        let error = refuse_in_use("detach-ns", &device, Nsid(2), false).unwrap_err().to_string();
        let expected = "detach-ns: nvme0 is in use on this machine. Nothing was done\n  \
                        namespace 2 (nvme0n2): /dev/loop2 is mounted at /mnt/data\n  \
                        unmount or close it first; --force does it all the same, and whoever uses it loses data";
        assert_eq!(error, expected);
        assert!(refuse_in_use("delete-ns", &device, Nsid::ALL, false).is_err());
        assert!(refuse_in_use("delete-ns", &device, Nsid::ALL, true).is_ok());
    }
}
