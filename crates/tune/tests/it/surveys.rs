//! What is recommended for the recorded machines.

use std::fmt::Write as _;

use ebof_tune::{Goal, Interrupts, Name, Report, State, SurveyError, SurveyOptions, survey};

use crate::recorded::Recorded;

/// A line for each setting.
fn lines(report: &Report) -> String {
    let mut text = String::new();
    for setting in &report.settings {
        let _infallible = write!(text, "{} {}: {}: ", setting.tunable.name(), setting.whose, setting.state.name());
        let _infallible = match &setting.state {
            State::Right { current } => writeln!(text, "{current}"),
            State::Differs { current, recommended, knob } => {
                writeln!(text, "{current} -> {recommended}\n    # {}", knob.command(recommended))
            }
            State::ByHand { current, recommended, reason, command } => {
                writeln!(text, "{current} -> {recommended}: {reason}\n    # {command}")
            }
            State::Unseen { reason } | State::NotApplicable { reason } => writeln!(text, "{reason}"),
        };
    }
    text
}

fn of(tree: &str, options: &SurveyOptions) -> String {
    lines(&survey(&Recorded::load(tree), options).unwrap())
}

fn name(text: &str) -> Name {
    Name::try_from(text).unwrap()
}

#[test]
fn a_server_with_rdma() {
    insta::assert_snapshot!(of("server.tree", &SurveyOptions::default()));
}

#[test]
fn a_virtual_machine() {
    insta::assert_snapshot!(of("virtual.tree", &SurveyOptions::default()));
}

#[test]
fn an_empty_container() {
    insta::assert_snapshot!(of("container.tree", &SurveyOptions::default()));
}

#[test]
fn latency_wants_other_values_than_throughput() {
    let fast = of(
        "server.tree",
        &SurveyOptions { goal: Goal::Latency, interfaces: vec![name("eno1")], ..SurveyOptions::default() },
    );
    for expected in [
        "adaptive-rx eno1: differs: on -> off\n",
        "busy-poll net.core.busy_poll: differs: 0 -> 50\n",
        "rps eno1 rx-0: right: 0\n",
    ] {
        assert!(fast.contains(expected), "{expected}{fast}");
    }
}

#[test]
fn interrupts_are_placed_as_asked_for() {
    let options = SurveyOptions { interfaces: vec![name("enp1s0f1")], ..SurveyOptions::default() };
    let spread = of("server.tree", &SurveyOptions { interrupts: Interrupts::Spread, ..options.clone() });
    for expected in [
        "interrupts irq 61: right: 4\n",
        "interrupts irq 64: right: 7\n",
        // Eight cores, four queues, those near the card first.
        "    # echo 11 >/sys/class/net/enp1s0f1/queues/tx-0/xps_cpus\n",
        "    # echo 88 >/sys/class/net/enp1s0f1/queues/tx-3/xps_cpus\n",
    ] {
        assert!(spread.contains(expected), "{expected}{spread}");
    }
    assert!(!spread.contains("eno1"), "{spread}");
    let one = of("server.tree", &SurveyOptions { interrupts: Interrupts::OneCore, core: Some(6), ..options });
    assert!(one.contains("irq 61: differs: 4 -> 6\n") && one.contains("irq 63: right: 6\n"), "{one}");
}

#[test]
fn whether_irqbalance_runs_is_not_known_without_the_machines_processes() {
    let machine = Recorded::load("server.tree");
    machine.put("/proc/2/comm", "bash");
    let text = lines(&survey(&machine, &SurveyOptions::default()).unwrap());
    let expected = "irqbalance irqbalance: unseen: the machine's processes are not shown here, as in a container\n";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn an_mtu_is_changed_only_if_it_is_asked_for() {
    let asked = SurveyOptions { mtu: Some(4200), interfaces: vec![name("eno1")], ..SurveyOptions::default() };
    let text = of("server.tree", &asked);
    assert!(text.contains("mtu eno1: differs: 1500 -> 4200\n    # ip link set dev eno1 mtu 4200\n"), "{text}");
}

#[test]
fn names_that_do_not_exist_are_errors() {
    let machine = Recorded::load("server.tree");
    let error = |options: SurveyOptions| survey(&machine, &options).unwrap_err();
    let known = ["eno1", "enp1s0f0", "enp1s0f1", "lo"].map(str::to_owned).to_vec();
    let missing = error(SurveyOptions { interfaces: vec![name("eth7")], ..SurveyOptions::default() });
    assert_eq!(missing, SurveyError::NoInterface { name: name("eth7"), known });
    let missing = error(SurveyOptions { devices: vec![name("nvme0n1p1")], ..SurveyOptions::default() });
    assert!(matches!(missing, SurveyError::NoDevice { .. }), "{missing}");
    let missing = error(SurveyOptions { core: Some(8), ..SurveyOptions::default() });
    assert_eq!(missing, SurveyError::NoCore { core: 8, online: "0-7".to_owned() });
    let named = of("server.tree", &SurveyOptions { devices: vec![name("sda")], ..SurveyOptions::default() });
    assert!(named.contains("scheduler sda: differs") && !named.contains("scheduler nvme"), "{named}");
}

#[test]
fn odd_texts_of_the_kernel_are_told_and_do_no_harm() {
    let long = "7".repeat(70_000);
    for odd in ["", "\u{1b}[2J", "-1", "99999999999999999999", "0-4294967295", "$(reboot)", &long] {
        let machine = Recorded::load("server.tree");
        let paths: Vec<String> = machine.everything().into_keys().filter(|path| path.starts_with('/')).collect();
        for path in paths {
            machine.put(&path, odd);
        }
        let report = survey(&machine, &SurveyOptions::default()).unwrap();
        let text = lines(&report);
        assert!(!text.contains('\u{1b}') && !text.contains("$(reboot) ->"), "{text}");
    }
}
