//! What RoCE needs of a link: flow control and congestion control. Switch and card have to agree,
//! so nothing of it is changed here.

use std::collections::BTreeMap;

use super::interface::Card;
use super::{Survey, missing};
use crate::report::State;
use crate::tunable::Tunable;
use crate::whose::Whose;

/// Counters of RDMA adapters that grow when a frame was lost.
const LOSSES: &[&str] = &["out_of_sequence", "packet_seq_err", "local_ack_timeout_err"];
/// Ports of a device that are looked at.
const PORTS_MAX: usize = 64;
/// The priority that RoCE has in most manuals.
const PRIORITY: &str = "3";

/// Looks at the cards with RDMA.
pub(super) fn inspect(survey: &mut Survey<'_>, cards: &[Card]) {
    for card in cards.iter().filter(|card| !card.rdma.is_empty()) {
        pause(survey, card);
        let name = card.name.as_str();
        let reason = format!("`dcb pfc show dev {name}` shows it, of Mellanox cards `mlnx_qos -i {name}`, too");
        survey.unseen(Tunable::Pfc, Whose::named(name), reason);
        congestion(survey, card);
        for device in &card.rdma {
            losses(survey, device);
        }
    }
    register_always(survey);
}

fn pause(survey: &mut Survey<'_>, card: &Card) {
    let word = |on| if on { "on" } else { "off" };
    let text = |rx, tx| format!("rx {} tx {}", word(rx), word(tx));
    let state = match survey.machine.pause(card.name.as_str()) {
        Ok(pause) if pause.rx && pause.tx => State::Right { current: text(true, true) },
        Ok(pause) => State::ByHand {
            current: text(pause.rx, pause.tx),
            recommended: text(true, true),
            reason: "the switch has to send and obey them, too; leave them off where RoCE has priority flow control"
                .into(),
            command: format!("ethtool -A {} {}", card.name, text(true, true)),
        },
        Err(error) => missing(&error),
    };
    survey.push(Tunable::Pause, Whose::named(card.name.as_str()), state);
}

/// ECN of RoCE: of the notification point, which reports congestion, and the reaction point, which
/// slows down. Only Mellanox's own driver package shows it in files.
fn congestion(survey: &mut Survey<'_>, card: &Card) {
    let whose = Whose::named(card.name.as_str());
    let directory = |point: &str| format!("/sys/class/net/{}/ecn/roce_{point}/enable", card.name);
    let mut enabled = BTreeMap::new();
    for point in ["np", "rp"] {
        let Ok(priorities) = survey.machine.names(&directory(point)) else {
            let reason = "the driver shows it in no file; Mellanox's own package has /sys/class/net/*/ecn";
            return survey.unseen(Tunable::RoceEcn, whose, reason);
        };
        let is_on = |priority: &&String| {
            priority.len() == 1
                && survey.machine.read(&format!("{}/{priority}", directory(point))).is_ok_and(|on| on.trim() == "1")
        };
        let on: Vec<&str> = priorities.iter().filter(is_on).map(String::as_str).collect();
        enabled.insert(point, on.join(","));
    }
    let text: Vec<String> = enabled.iter().map(|(point, on)| format!("{point} {}", or_off(on))).collect();
    let current = text.join(" ");
    let state = if enabled.values().all(|on| !on.is_empty()) {
        State::Right { current }
    } else {
        let commands = ["np", "rp"].map(|point| format!("echo 1 >{}/{PRIORITY}", directory(point)));
        State::ByHand {
            current,
            recommended: format!("np {PRIORITY} rp {PRIORITY}"),
            reason: format!("the switch has to mark packets; RoCE's priority may be another one than {PRIORITY}"),
            command: commands.join("; "),
        }
    };
    survey.push(Tunable::RoceEcn, whose, state);
}

fn or_off(text: &str) -> &str {
    if text.is_empty() { "off" } else { text }
}

fn losses(survey: &mut Survey<'_>, device: &str) {
    let class = format!("/sys/class/infiniband/{device}/ports");
    let ports = survey.machine.names(&class).unwrap_or_default();
    let numbers = ports.iter().filter_map(|port| port.parse::<u8>().ok()).take(PORTS_MAX);
    let mut seen = false;
    let mut lost = Vec::new();
    for port in numbers {
        for counter in LOSSES {
            let text = survey.machine.read(&format!("{class}/{port}/hw_counters/{counter}"));
            let Some(count) = text.ok().and_then(|text| text.trim().parse::<u64>().ok()) else { continue };
            seen = true;
            if count > 0 {
                lost.push(format!("{counter} {count}"));
            }
        }
    }
    let state = if !seen {
        State::Unseen { reason: "the adapter has no counters of lost frames".into() }
    } else if lost.is_empty() {
        State::Right { current: "0".into() }
    } else {
        State::ByHand {
            current: lost.join(", "),
            recommended: "0".into(),
            reason:
                "frames were lost since the driver was loaded: look at flow control and ECN, here and at the switch"
                    .into(),
            command: format!("grep . {class}/*/hw_counters/*"),
        }
    };
    survey.push(Tunable::RoceLoss, Whose::named(device), state);
}

/// A parameter of the kernel's host for RDMA.
fn register_always(survey: &mut Survey<'_>) {
    let whose = Whose::named("nvme_rdma");
    let state = match survey.machine.read("/sys/module/nvme_rdma/parameters/register_always") {
        Ok(value) if value.trim() == "N" => State::Right { current: "N".into() },
        Ok(_) => State::ByHand {
            current: "Y".into(),
            recommended: "N".into(),
            reason: "only with targets that may read and write all of this machine's memory; it takes a new connection"
                .into(),
            command: "modprobe -r nvme_rdma; modprobe nvme_rdma register_always=0".into(),
        },
        Err(_) => State::NotApplicable { reason: "the kernel's host for RDMA is not loaded".into() },
    };
    survey.push(Tunable::RegisterAlways, whose, state);
}
