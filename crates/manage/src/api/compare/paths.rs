//! What tells the paths of both targets apart, and whether they leave one: controller identifiers,
//! port identifiers, states of ANA groups.

use std::collections::BTreeSet;

use super::namespaces::groups;
use super::{Grade, Pair, Served};
use crate::config::AnaState;

pub(super) fn compare(pair: &mut Pair<'_>) {
    compare_cntlids(pair);
    compare_port_ids(pair);
    compare_states(pair);
}

fn compare_cntlids(pair: &mut Pair<'_>) {
    let range = |served: &Served<'_>| (served.subsystem.cntlid_min, served.subsystem.cntlid_max);
    let [(a_min, a_max), (b_min, b_max)] = [range(&pair.a), range(&pair.b)];
    if a_min.max(b_min) > a_max.min(b_max) {
        return;
    }
    let values = [(a_min, a_max), (b_min, b_max)].map(|(min, max)| Some(format!("{min} to {max}")));
    let message = format!("both may give out the controller identifiers {} to {}", a_min.max(b_min), a_max.min(b_max));
    let advice = "set `cntlid_min` and `cntlid_max` to ranges that do not overlap, such as 1 to 1000 and 1001 to 2000: \
                  hosts refuse a second controller with the same identifier, and each target answers for its own lost \
                  controllers by their identifiers";
    pair.add(Grade::Contradiction, "", ("cntlid", &message, advice), values);
}

fn compare_port_ids(pair: &mut Pair<'_>) {
    let ports: Vec<_> = pair.a.ports().collect();
    let others: Vec<_> = pair.b.ports().collect();
    for port in &ports {
        for other in others.iter().filter(|other| other.id == port.id) {
            let object = format!("port {}", port.id);
            let words = (
                "port-id",
                "both targets have a port of the subsystem with this PORTID",
                "give ports an `id` that no port of the other target has",
            );
            let values = [port, other].map(|it| Some(format!("{} ({})", it.name, it.listen)));
            pair.add(Grade::Contradiction, &object, words, values);
        }
    }
    let is_reached = [!ports.is_empty(), !others.is_empty()];
    if is_reached.contains(&false) {
        let values = is_reached.map(|is| Some(if is { "reached" } else { "not reached" }.to_owned()));
        let words = ("no-port", "hosts reach it at one target at most", "name ports in its `ports` at both targets");
        pair.add(Grade::Note, "", words, values);
    }
}

fn compare_states(pair: &mut Pair<'_>) {
    let [of_a, of_b] = [groups(&pair.a), groups(&pair.b)];
    let all: BTreeSet<u32> = of_a.union(&of_b).copied().collect();
    for group in all {
        let states = |served: &Served<'_>, of: &BTreeSet<u32>| -> Vec<(String, AnaState)> {
            let ports = served.ports().filter(|_| of.contains(&group));
            ports.map(|port| (port.name.clone(), port.ana.of(group))).collect()
        };
        let both = [states(&pair.a, &of_a), states(&pair.b, &of_b)];
        let has = |wanted: AnaState| both.iter().flatten().any(|(_, state)| *state == wanted);
        if has(AnaState::OPTIMIZED) || both.iter().all(Vec::is_empty) {
            continue;
        }
        let (grade, words) = if has(AnaState::NON_OPTIMIZED) {
            let message =
                "no port of either target is optimized: hosts take the others, and which is better is not said";
            (Grade::Note, ("ana-state", message, "have it optimized at the ports of one target"))
        } else {
            let message = "no port of either target has it in a state in which commands are executed";
            let advice = "`ebof target set port PORT ana.GROUP=optimized` at one of them";
            (Grade::Contradiction, ("ana-state", message, advice))
        };
        let told = |states: &Vec<(String, AnaState)>| {
            let words: Vec<_> = states.iter().map(|(port, state)| format!("{port} {}", state.name())).collect();
            (!words.is_empty()).then(|| words.join(", "))
        };
        let [a, b] = &both;
        pair.add(grade, &format!("ANA group {group}"), words, [told(a), told(b)]);
    }
}
