//! Network interfaces: which are looked at, and their own settings: coalescing, queues, steering,
//! MTU.

use super::{Goal, Interrupts, Survey, SurveyError, missing, order};
use crate::apply::explain;
use crate::cores::Cores;
use crate::knob::Knob;
use crate::name::Name;
use crate::report::State;
use crate::tunable::Tunable;
use crate::whose::Whose;

const CLASS: &str = "/sys/class/net";
/// Queues of one direction that are looked at.
const QUEUES_MAX: usize = 4096;
/// Larger packets than Ethernet's own, which most switches carry.
const JUMBO: u32 = 9000;
/// `ARPHRD_ETHER`.
const ETHERNET: &str = "1";

/// A network interface with its card.
pub(super) struct Card {
    pub(super) name: Name,
    /// RDMA devices of the card.
    pub(super) rdma: Vec<String>,
    /// The online cores of the card's node; all, if that is not known.
    pub(super) near: Cores,
    /// Whether one core serves all interrupts.
    pub(super) one_core: bool,
}

/// The interfaces that were named, or all with a card and a link.
pub(super) fn chosen(survey: &Survey<'_>) -> Result<Vec<Card>, SurveyError> {
    let known = survey.machine.names(CLASS).unwrap_or_default();
    let named = &survey.options.interfaces;
    if let Some(name) = named.iter().find(|name| !known.iter().any(|known| known == name.as_str())) {
        return Err(SurveyError::NoInterface { name: name.clone(), known });
    }
    let names: Vec<Name> = if named.is_empty() {
        let names = known.into_iter().filter_map(|name| Name::try_from(name).ok());
        names.filter(|name| has_card_and_link(survey, name)).collect()
    } else {
        named.clone()
    };
    Ok(names.into_iter().map(|name| card(survey, name)).collect())
}

fn has_card_and_link(survey: &Survey<'_>, name: &Name) -> bool {
    let is_there = |part: &str| survey.machine.names(&format!("{CLASS}/{name}/{part}")).is_ok();
    let state = survey.machine.read(&format!("{CLASS}/{name}/operstate")).unwrap_or_default();
    is_there("device") && !is_there("wireless") && !is_there("phy80211") && state.trim() != "down"
}

fn card(survey: &Survey<'_>, name: Name) -> Card {
    let online = survey.online.clone().unwrap_or_default();
    // The device of a paravirtual card is below the PCI device.
    let lists = ["device", "device/.."].map(|device| format!("{CLASS}/{name}/{device}/local_cpulist"));
    let near = lists.iter().find_map(|list| Cores::from_list(&survey.machine.read(list).ok()?));
    let near = near.map(|near| near.and(&online)).filter(|near| !near.is_empty()).unwrap_or(online);
    let rdma = survey.machine.names(&format!("{CLASS}/{name}/device/infiniband")).unwrap_or_default();
    let rdma: Vec<String> = rdma.into_iter().filter(|device| Name::try_from(device.as_str()).is_ok()).collect();
    let one_core = match survey.options.interrupts {
        Interrupts::ByCard => !rdma.is_empty(),
        Interrupts::OneCore => true,
        Interrupts::Spread => false,
    };
    Card { name, rdma, near, one_core }
}

/// Looks at the settings of an interface.
pub(super) fn inspect(survey: &mut Survey<'_>, card: &Card) {
    let adaptive = if survey.options.goal == Goal::Throughput { "on" } else { "off" };
    survey.expect(&Knob::AdaptiveRx { interface: card.name.clone() }, adaptive);
    let receiving = queues(survey, card, "rx-");
    nic_queues(survey, card, receiving.len());
    receive_steering(survey, card, &receiving);
    transmit_steering(survey, card);
    mtu(survey, card);
}

/// The numbers of an interface's queues, in order.
fn queues(survey: &Survey<'_>, card: &Card, prefix: &str) -> Vec<u32> {
    let names = survey.machine.names(&format!("{CLASS}/{}/queues", card.name)).unwrap_or_default();
    let numbers = names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok());
    let mut numbers: Vec<u32> = numbers.take(QUEUES_MAX).collect();
    numbers.sort_unstable();
    numbers
}

fn nic_queues(survey: &mut Survey<'_>, card: &Card, seen: usize) {
    let whose = Whose::named(card.name.as_str());
    let Some(cores) = survey.online.as_ref().map(Cores::len) else {
        return survey.unseen(Tunable::NicQueues, whose, "the number of cores cannot be seen");
    };
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    let state = match survey.machine.channels(card.name.as_str()) {
        Ok(channels) if channels.receiving() >= cores.min(channels.receiving_max()) => {
            let (current, max) = (channels.receiving(), channels.receiving_max());
            let current = if current < cores { format!("{current}, of {max}") } else { current.to_string() };
            State::Right { current }
        }
        Ok(channels) => {
            let recommended = cores.min(channels.receiving_max());
            let kind = if channels.combined_max > 0 { "combined" } else { "rx" };
            State::ByHand {
                current: channels.receiving().to_string(),
                recommended: recommended.to_string(),
                reason: "the link is down for a moment, and interrupts change: run `ebof tune` again afterwards".into(),
                command: format!("ethtool -L {} {kind} {recommended}", card.name),
            }
        }
        Err(_) if seen > 0 && u32::try_from(seen).is_ok_and(|seen| seen >= cores) => {
            State::Right { current: seen.to_string() }
        }
        Err(error) => match missing(&error) {
            // A card whose driver has one queue and no choice.
            State::NotApplicable { .. } if seen > 0 => State::Right { current: format!("{seen}, of {seen}") },
            State::Unseen { reason } if seen > 0 => {
                State::Unseen { reason: format!("it has {seen}, and how many it could have is not known: {reason}") }
            }
            state => state,
        },
    };
    survey.push(Tunable::NicQueues, whose, state);
}

fn receive_steering(survey: &mut Survey<'_>, card: &Card, queues: &[u32]) {
    let Some(online) = survey.online.clone() else {
        let whose = Whose::named(card.name.as_str());
        return survey.unseen(Tunable::Rps, whose, "the machine's cores cannot be seen");
    };
    // Documentation/networking/scaling.rst, RPS: Suggested Configuration.
    let helps = queues.len() < online.len() && !card.one_core && survey.options.goal == Goal::Throughput;
    let recommended = if helps { card.near.to_mask() } else { Cores::default().to_mask() };
    for &queue in queues {
        survey.expect(&Knob::Rps { interface: card.name.clone(), queue }, &recommended);
    }
}

fn transmit_steering(survey: &mut Survey<'_>, card: &Card) {
    let whose = Whose::named(card.name.as_str());
    let queues = queues(survey, card, "tx-");
    let Some(online) = survey.online.clone() else {
        return survey.unseen(Tunable::Xps, whose, "the machine's cores cannot be seen");
    };
    if queues.len() < 2 {
        return survey.not_applicable(Tunable::Xps, whose, "the card has one queue to send through");
    }
    if card.one_core {
        return survey.not_applicable(Tunable::Xps, whose, "one core serves all interrupts");
    }
    let order = order(&online, card);
    // With more queues than cores, those without a core are left as they are.
    for (index, &queue) in queues.iter().enumerate().take(order.len()) {
        let cores: Cores = order.iter().copied().skip(index).step_by(queues.len()).collect();
        survey.expect(&Knob::Xps { interface: card.name.clone(), queue }, &cores.to_mask());
    }
}

fn mtu(survey: &mut Survey<'_>, card: &Card) {
    let knob = Knob::Mtu { interface: card.name.clone() };
    let kind = survey.machine.read(&format!("{CLASS}/{}/type", card.name)).unwrap_or_default();
    if kind.trim() != ETHERNET {
        return survey.not_applicable(Tunable::Mtu, knob.whose(), "it is no Ethernet");
    }
    if let Some(mtu) = survey.options.mtu {
        return survey.expect(&knob, &mtu.to_string());
    }
    let state = match knob.read(survey.machine) {
        Ok(current) if current.parse().is_ok_and(|current: u32| current >= JUMBO) => State::Right { current },
        Ok(current) => State::ByHand {
            current,
            recommended: JUMBO.to_string(),
            reason: format!("every switch and host on the link has to carry it; `--mtu {JUMBO}` sets it here"),
            command: knob.command(&JUMBO.to_string()),
        },
        Err(error) => State::Unseen { reason: explain(&error) },
    };
    survey.push(Tunable::Mtu, knob.whose(), state);
}
