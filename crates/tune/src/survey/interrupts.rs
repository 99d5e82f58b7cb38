//! The interrupts of network cards, and irqbalance, which would move them.

use super::interface::Card;
use super::{Survey, order};
use crate::apply::explain;
use crate::cores::Cores;
use crate::knob::{Knob, interrupt_name};
use crate::tunable::Tunable;
use crate::whose::Whose;

/// Interrupts of a card that are looked at: PCI has 2048 vectors.
const INTERRUPTS_MAX: usize = 2048;
/// What drivers call interrupts of a card that are not its queues'.
const CONTROL: &[&str] = &["async", "cmd", "config", "ctrl", "mgmnt", "misc", "other", "event", "pages", "health"];

/// Looks at the interrupts of all cards.
pub(super) fn inspect(survey: &mut Survey<'_>, cards: &[Card]) {
    if cards.is_empty() {
        let whose = Whose::named("network");
        return survey.unseen(Tunable::Interrupts, whose, "no network interface here has a card and a link");
    }
    let mut knobs = Vec::new();
    for card in cards {
        of_interface(survey, card, &mut knobs);
    }
    if !knobs.is_empty() {
        survey.expect(&Knob::Irqbalance, "stopped");
    }
    for (knob, core) in knobs {
        survey.expect(&knob, &Cores::one(core).to_list());
    }
}

/// Adds an interface's interrupts with the core of each.
fn of_interface(survey: &mut Survey<'_>, card: &Card, knobs: &mut Vec<(Knob, u32)>) {
    let whose = Whose::named(card.name.as_str());
    let Some(online) = survey.online.clone() else {
        return survey.unseen(Tunable::Interrupts, whose, "the machine's cores cannot be seen");
    };
    // The device of a paravirtual card is below the PCI device.
    let lists = ["device", "device/.."].map(|device| format!("/sys/class/net/{}/{device}/msi_irqs", card.name));
    let Some(list) = lists.iter().find_map(|list| survey.machine.names(list).ok()) else {
        return survey.not_applicable(Tunable::Interrupts, whose, "the kernel lists no interrupts of its device");
    };
    let mut irqs: Vec<u32> = list.iter().filter_map(|irq| irq.parse().ok()).take(INTERRUPTS_MAX).collect();
    irqs.sort_unstable();
    let order = order(&online, card);
    let before = knobs.len();
    let is_one = irqs.len() == 1;
    let mut hidden = None;
    for irq in irqs {
        match interrupt_name(survey.machine, irq) {
            Ok(name) => {
                // One that has only the interface's name is that of a card with one, or for events.
                let is_events = !is_one && name == card.name.as_str();
                let Some(queue) = queue_of(&name).filter(|_| !is_events) else { continue };
                let core = if card.one_core { one_core(survey, card) } else { wrapped(&order, queue) };
                knobs.extend(core.map(|core| (Knob::Interrupt { irq, name }, core)));
            }
            Err(error) => hidden = Some(error),
        }
    }
    match hidden {
        Some(error) if knobs.len() == before => survey.unseen(Tunable::Interrupts, whose, explain(&error)),
        None if knobs.len() == before => {
            survey.not_applicable(Tunable::Interrupts, whose, "none of its interrupts is a queue's");
        }
        _ => {}
    }
}

/// The core of a queue.
fn wrapped(order: &[u32], queue: u32) -> Option<u32> {
    let index = usize::try_from(queue).ok()?.checked_rem(order.len())?;
    order.get(index).copied()
}

/// The core for all interrupts: the second one near the card, which is core 1 in the white paper.
/// The first one has the machine's other interrupts.
fn one_core(survey: &Survey<'_>, card: &Card) -> Option<u32> {
    survey.options.core.or_else(|| card.near.iter().nth(1)).or_else(|| card.near.iter().next())
}

/// The number of a queue in the driver's name of its interrupt; `None` for other interrupts:
/// `mlx5_comp3@pci:0000:01:00.0`, `ice-eth0-TxRx-3`, `virtio1-input.3`.
fn queue_of(name: &str) -> Option<u32> {
    let name = name.split('@').next().unwrap_or_default();
    if name.is_empty() || CONTROL.iter().any(|control| name.contains(control)) {
        return None;
    }
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    // A card with one interrupt has no number.
    let digits = name.get(stem.len()..).unwrap_or_default();
    if digits.is_empty() { Some(0) } else { digits.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_known_by_the_names_of_drivers() {
        let queues = [
            ("mlx5_comp3@pci:0000:01:00.0", Some(3)),
            ("mlx5_async0@pci:0000:01:00.0", None),
            ("ice-eth0-TxRx-12", Some(12)),
            ("ice-0000:31:00.0:misc", None),
            ("virtio1-input.0", Some(0)),
            ("virtio1-output.1", Some(1)),
            ("virtio1-config", None),
            ("ena-mgmnt@pci:0000:00:05.0", None),
            ("eth0-Tx-Rx-7", Some(7)),
            ("bnxt_en-eth0-TxRx-2", Some(2)),
            ("", None),
            ("x99999999999", None),
        ];
        for (name, queue) in queues {
            assert_eq!(queue_of(name), queue, "{name}");
        }
    }

    #[test]
    fn queues_wrap_around_the_cores() {
        assert_eq!(wrapped(&[4, 5], 3), Some(5));
        assert_eq!(wrapped(&[], 3), None);
    }
}
