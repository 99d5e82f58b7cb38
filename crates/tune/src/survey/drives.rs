//! Block devices, and the queues of the kernel's NVMe host.

use super::{Survey, SurveyError};
use crate::cores::Cores;
use crate::knob::Knob;
use crate::name::Name;
use crate::report::State;
use crate::tunable::Tunable;
use crate::whose::Whose;

const BLOCK: &str = "/sys/block";
const CONTROLLERS: &str = "/sys/class/nvme";

/// The devices that were named, or all NVMe drives.
pub(super) fn chosen(survey: &Survey<'_>) -> Result<Vec<Name>, SurveyError> {
    let known = survey.machine.names(BLOCK).unwrap_or_default();
    let named = &survey.options.devices;
    if let Some(name) = named.iter().find(|name| !known.iter().any(|known| known == name.as_str())) {
        return Err(SurveyError::NoDevice { name: name.clone(), known });
    }
    if !named.is_empty() {
        return Ok(named.clone());
    }
    Ok(known.into_iter().filter(|name| is_namespace(name)).filter_map(|name| Name::try_from(name).ok()).collect())
}

/// Whether a device is a namespace, `nvme0n1`, and not one path to it, `nvme0c1n1`.
fn is_namespace(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.strip_prefix("nvme").and_then(|rest| rest.split_once('n'));
    parts.is_some_and(|(instance, namespace)| is_number(instance) && is_number(namespace))
}

/// Looks at connected controllers and at the devices.
pub(super) fn inspect(survey: &mut Survey<'_>, devices: &[Name]) {
    let controllers = survey.machine.names(CONTROLLERS).unwrap_or_default();
    let mut controllers: Vec<Name> = controllers.into_iter().filter_map(|name| Name::try_from(name).ok()).collect();
    let attribute = |name: &Name, attribute: &str| survey.machine.read(&format!("{CONTROLLERS}/{name}/{attribute}"));
    controllers.retain(|name| attribute(name, "transport").is_ok_and(|transport| is_fabric(transport.trim())));
    if controllers.is_empty() {
        let reason = "the kernel's host is not connected to a controller over a fabric";
        survey.not_applicable(Tunable::NvmeQueues, Whose::named("nvme"), reason);
    }
    for controller in controllers {
        nvme_queues(survey, &controller);
    }
    for device in devices {
        scheduler(survey, device);
    }
}

fn is_fabric(transport: &str) -> bool {
    ["tcp", "rdma", "fc"].contains(&transport)
}

fn nvme_queues(survey: &mut Survey<'_>, controller: &Name) {
    let count = survey.machine.read(&format!("{CONTROLLERS}/{controller}/queue_count"));
    let count = count.ok().and_then(|text| text.trim().parse::<usize>().ok());
    let whose = Whose::named(controller.as_str());
    // The Admin Queue is counted, too.
    let (Some(queues), Some(cores)) =
        (count.map(|count| count.saturating_sub(1)), survey.online.as_ref().map(Cores::len))
    else {
        return survey.unseen(
            Tunable::NvmeQueues,
            whose,
            "the kernel does not show the controller's queues, or its cores",
        );
    };
    let state = if queues >= cores {
        State::Right { current: queues.to_string() }
    } else {
        State::ByHand {
            current: queues.to_string(),
            recommended: cores.to_string(),
            reason: "the number is chosen when it is connected, and the target has to allow it".into(),
            command: format!("nvme disconnect -d {controller}; nvme connect ... -i {cores}"),
        }
    };
    survey.push(Tunable::NvmeQueues, whose, state);
}

fn scheduler(survey: &mut Survey<'_>, device: &Name) {
    let knob = Knob::Scheduler { device: device.clone() };
    let offered = survey.machine.read(&format!("{BLOCK}/{device}/queue/scheduler")).unwrap_or_default();
    let offers_none = offered.split_whitespace().any(|name| name.trim_matches(['[', ']']) == "none");
    // A device above others has no scheduler, which is shown as the only one without brackets.
    if offered.trim() == "none" || (!offered.is_empty() && !offers_none) {
        return survey.not_applicable(Tunable::Scheduler, knob.whose(), "it offers no choice");
    }
    survey.expect(&knob, "none");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_partitions_are_no_namespaces() {
        assert!(is_namespace("nvme0n1") && is_namespace("nvme12n34"));
        for name in ["nvme0", "nvme0c0n1", "nvme0n1p1", "nvmen1", "sda", "nvme0n"] {
            assert!(!is_namespace(name), "{name}");
        }
    }
}
