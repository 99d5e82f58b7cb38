//! Changing the recorded machines, and undoing it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebof_state::{Calls, StateDirectory, StoreError, SystemCall};
use ebof_tune::{
    ChangeRecord, Goal, Machine as _, RecordError, SettingStep, StepOutcome, SurveyOptions, apply, survey, undo,
};

use crate::recorded::Recorded;

const GOVERNOR: &str = "/sys/devices/system/cpu/cpu3/cpufreq/scaling_governor";
const RMEM: &str = "/proc/sys/net/core/rmem_max";
const NOW_S: u64 = 1_800_000_000;

fn options() -> SurveyOptions {
    SurveyOptions { mtu: Some(9000), ..SurveyOptions::default() }
}

fn change(machine: &Recorded, options: &SurveyOptions) -> Vec<SettingStep> {
    let mut record = ChangeRecord::open(&machine.state(), machine).unwrap();
    apply(machine, &survey(machine, options).unwrap(), &mut record, NOW_S).unwrap()
}

fn take_back(machine: &Recorded) -> Vec<SettingStep> {
    undo(machine, &mut ChangeRecord::open(&machine.state(), machine).unwrap()).unwrap()
}

fn is_all(steps: &[SettingStep], outcome: &StepOutcome) -> bool {
    !steps.is_empty() && steps.iter().all(|step| step.outcome == *outcome)
}

#[test]
fn what_is_applied_is_right_afterwards_and_undone_in_reverse() {
    for tree in ["server.tree", "virtual.tree"] {
        let machine = Recorded::load(tree);
        let before = machine.everything();
        let steps = change(&machine, &options());
        assert!(is_all(&steps, &StepOutcome::Done), "{steps:?}");
        assert_eq!(survey(&machine, &options()).unwrap().differing().count(), 0);
        assert_eq!(machine.changed_since(&before).len(), steps.len());
        let mut order = machine.written.take();
        let undone = take_back(&machine);
        assert!(is_all(&undone, &StepOutcome::Done), "{undone:?}");
        assert_eq!(machine.changed_since(&before), [""; 0]);
        order.reverse();
        assert_eq!(machine.written.take(), order);
        // Once more does nothing.
        assert_eq!(take_back(&machine), []);
        assert_eq!(machine.changed_since(&before), [""; 0]);
    }
}

#[test]
fn irqbalance_ends_before_interrupts_are_placed() {
    let machine = Recorded::load("server.tree");
    change(&machine, &options());
    let written = machine.written.take();
    assert_eq!(written.first().unwrap(), "irqbalance");
    assert!(machine.read("/proc/812/comm").is_err());
    take_back(&machine);
    assert_eq!(machine.written.take().last().unwrap(), "irqbalance");
    assert_eq!(machine.read("/proc/812/comm").unwrap(), "irqbalance\n");
}

#[test]
fn the_first_values_are_kept_when_it_is_applied_again() {
    let machine = Recorded::load("server.tree");
    let before = machine.everything();
    change(&machine, &options());
    assert_eq!(change(&machine, &options()), []);
    // Somebody changes a value that was set, and it is set again.
    machine.put(RMEM, "100000");
    assert_eq!(change(&machine, &options()).len(), 1);
    // Another goal has other values, and some are the first ones.
    let steps = change(&machine, &SurveyOptions { goal: Goal::Latency, ..options() });
    assert!(is_all(&steps, &StepOutcome::Done), "{steps:?}");
    assert_eq!(machine.coalescing("enp1s0f1").unwrap().adaptive_rx, Some(false));
    let record = ChangeRecord::open(&machine.state(), &machine).unwrap();
    assert!(record.changes().iter().all(|change| !change.set.contains(&change.old)), "{record:?}");
    drop(record);
    take_back(&machine);
    assert_eq!(machine.changed_since(&before), [""; 0]);
}

#[test]
fn values_of_somebody_else_are_left_alone() {
    let machine = Recorded::load("server.tree");
    change(&machine, &options());
    machine.put(RMEM, "100000");
    machine.put(GOVERNOR, "powersave");
    machine.remove("/sys/class/net/eno1");
    machine.put("/sys/kernel/irq/61/actions", "nvme0q1");
    let steps = take_back(&machine);
    let outcome = |whose: &str| &steps.iter().find(|step| step.knob.whose().to_string() == whose).unwrap().outcome;
    assert_eq!(*outcome("net.core.rmem_max"), StepOutcome::Kept { found: "100000".to_owned() });
    assert_eq!(*outcome("cpu3"), StepOutcome::Already);
    assert_eq!(*outcome("eno1"), StepOutcome::Gone);
    assert_eq!(*outcome("irq 61"), StepOutcome::Gone);
    assert_eq!(*outcome("cpu4"), StepOutcome::Done);
    assert_eq!(machine.read(RMEM).unwrap(), "100000\n");
    assert_eq!(take_back(&machine), []);
}

#[test]
fn a_refused_setting_does_not_stop_the_others() {
    let machine = Recorded::load("server.tree");
    let before = machine.everything();
    let denied = "/proc/irq/61/smp_affinity_list";
    let read_only = "/proc/sys/net/ipv4/tcp_rmem";
    let refusing = [(GOVERNOR, 13), (denied, 5), (read_only, 30)].map(|(path, errno)| (path.to_owned(), errno));
    machine.refusing.borrow_mut().extend(refusing);
    machine.deaf.borrow_mut().insert("enp1s0f1 adaptive-rx".to_owned());
    let steps = change(&machine, &options());
    let failed: Vec<String> = steps
        .iter()
        .filter_map(|step| match &step.outcome {
            StepOutcome::Failed { reason } => Some(format!("{}: {reason}", step.knob.whose())),
            _ => None,
        })
        .collect();
    assert_eq!(
        failed,
        [
            "cpu3: Permission denied (os error 13): root may",
            "enp1s0f1: accepted without an effect: still off",
            "net.ipv4.tcp_rmem: Read-only file system (os error 30): a container cannot, its host can"
        ]
    );
    // What the hardware does not have is no failure: it would be one each time.
    let unavailable: Vec<String> = steps
        .iter()
        .filter_map(|step| match &step.outcome {
            StepOutcome::Unavailable { reason } => Some(format!("{}: {reason}", step.knob.whose())),
            _ => None,
        })
        .collect();
    assert_eq!(unavailable[0], "irq 61: the kernel spreads this interrupt itself");
    assert_eq!(machine.read(RMEM).unwrap(), "16777216\n");
    let undone = take_back(&machine);
    assert_eq!(undone.len(), steps.len() - failed.len() - unavailable.len());
    assert_eq!(machine.changed_since(&before), [""; 0]);
}

/// As drivers of virtio answer: they tell the setting, and do not change it.
#[test]
fn what_an_adapter_does_not_have_is_no_failure() {
    for errno in [95, 22] {
        let machine = Recorded::load("server.tree");
        machine.refusing.borrow_mut().insert("enp1s0f1 adaptive-rx".to_owned(), errno);
        let steps = change(&machine, &options());
        let kept: Vec<_> = steps.iter().filter(|step| step.outcome != StepOutcome::Done).collect();
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert!(
            matches!(&kept[0].outcome, StepOutcome::Unavailable { reason } if reason.contains("driver")),
            "{kept:?}"
        );
        assert!(is_all(&take_back(&machine), &StepOutcome::Done), "it is not recorded");
    }
}

#[test]
fn a_value_that_the_kernel_adjusts_is_told_and_undone() {
    let machine = Recorded::load("virtual.tree");
    let before = machine.everything();
    let rps = "/sys/class/net/eth0/queues/rx-0/rps_cpus";
    // Core 0 is isolated.
    machine.adjusting.borrow_mut().insert(rps.to_owned(), "2".to_owned());
    let steps = change(&machine, &options());
    let adjusted: Vec<&StepOutcome> =
        steps.iter().map(|step| &step.outcome).filter(|&outcome| *outcome != StepOutcome::Done).collect();
    assert_eq!(adjusted, [&StepOutcome::Adjusted { found: "2".to_owned() }]);
    machine.adjusting.borrow_mut().clear();
    assert!(is_all(&take_back(&machine), &StepOutcome::Done));
    assert_eq!(machine.changed_since(&before), [""; 0]);
}

#[test]
fn what_cannot_be_undone_stays_in_the_record() {
    let machine = Recorded::load("server.tree");
    let before = machine.everything();
    change(&machine, &options());
    machine.refusing.borrow_mut().insert(GOVERNOR.to_owned(), 1);
    let failed = take_back(&machine).into_iter().filter(|step| step.outcome.name() == "failed").count();
    assert_eq!(failed, 1);
    machine.refusing.borrow_mut().clear();
    assert!(is_all(&take_back(&machine), &StepOutcome::Done));
    assert_eq!(machine.changed_since(&before), [""; 0]);
}

#[test]
fn a_process_that_is_killed_at_any_moment_leaves_what_undoes_it() {
    let count = change(&Recorded::load("virtual.tree"), &options()).len();
    for life in 0..count {
        let machine = Recorded::load("virtual.tree");
        let before = machine.everything();
        machine.life.set(Some(life));
        assert!(catch_unwind(AssertUnwindSafe(|| change(&machine, &options()))).is_err());
        // Undoing is killed, too, and then completed.
        machine.life.set(Some(life / 2));
        let _killed = catch_unwind(AssertUnwindSafe(|| take_back(&machine)));
        machine.life.set(None);
        take_back(&machine);
        assert_eq!(machine.changed_since(&before), [""; 0], "killed after {life} of {count}");
    }
}

#[test]
fn another_boot_has_undone_it() {
    let machine = Recorded::load("virtual.tree");
    change(&machine, &options());
    let count = ChangeRecord::open(&machine.state(), &machine).unwrap().changes().len();
    machine.put("/proc/sys/kernel/random/boot_id", "00000000-0000-4000-8000-000000000000");
    let rebooted = machine.everything();
    let mut record = ChangeRecord::open(&machine.state(), &machine).unwrap();
    assert_eq!((record.changes().len(), record.outdated()), (0, count));
    assert_eq!(undo(&machine, &mut record).unwrap(), []);
    assert_eq!(machine.changed_since(&rebooted), [""; 0]);
    drop(record);
    assert_eq!(ChangeRecord::open(&machine.state(), &machine).unwrap().outdated(), 0);
}

// @test output.destroying-advice
#[test]
fn a_record_that_is_none_is_left_as_it_is() {
    let machine = Recorded::load("virtual.tree");
    change(&machine, &options());
    let open = || ebof_state::StateDirectory::open(&machine.state()).unwrap();
    let text = String::from_utf8(open().read("tuned.json").unwrap().unwrap()).unwrap();
    for odd in [text.replace("\"old\"", "\"new\""), text.replace("\"1500\"", "\"1500\\n\""), "[]".to_owned()] {
        assert_ne!(odd, text);
        open().replace("tuned.json", odd.as_bytes()).unwrap();
        let error = ChangeRecord::open(&machine.state(), &machine).unwrap_err();
        assert!(matches!(error, RecordError::Foreign { .. }) && error.advice().contains("`mv "), "{error}");
        assert_eq!(open().read("tuned.json").unwrap().unwrap(), odd.as_bytes());
        // As the message says; what was there is not lost.
        let advice = error.advice();
        let command = advice.split('`').nth(1).unwrap();
        assert!(std::process::Command::new("sh").args(["-c", command]).status().unwrap().success(), "{command}");
        ChangeRecord::open(&machine.state(), &machine).unwrap();
        assert_eq!(open().read("tuned.json.old").unwrap().unwrap(), odd.as_bytes());
    }
}

#[test]
fn one_process_changes_settings_at_a_time() {
    let machine = Recorded::load("virtual.tree");
    let _first = ChangeRecord::open(&machine.state(), &machine).unwrap();
    let error = ChangeRecord::open(&machine.state(), &machine).unwrap_err();
    assert!(error.advice().contains("another `ebof tune` runs"), "{error}");
}

/// A medium whose calls fail from the one with this number on.
#[derive(Clone, Debug)]
struct Failing {
    calls: Arc<AtomicUsize>,
    from: usize,
}

impl Calls for Failing {
    fn make(&self, _call: SystemCall, _path: &Path, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let is_failing = self.calls.fetch_add(1, Ordering::SeqCst) >= self.from;
        if is_failing { Err(io::Error::from_raw_os_error(5)) } else { work() }
    }
}

/// Wherever the medium fails for good: nothing is changed that is not recorded, and it is told
/// whether that is known.
#[test]
fn what_may_not_be_recorded_is_not_changed() {
    let (mut unchanged, mut unknown) = (0, 0);
    for from in 0.. {
        let machine = Recorded::load("virtual.tree");
        let before = machine.everything();
        let calls = Failing { calls: Arc::default(), from };
        let outcome = StateDirectory::open_with(&machine.state(), Box::new(calls.clone()))
            .map_err(RecordError::from)
            .and_then(|directory| ChangeRecord::open_in(directory, &machine))
            .and_then(|mut record| apply(&machine, &survey(&machine, &options()).unwrap(), &mut record, NOW_S));
        if outcome.is_ok() {
            assert!(from > 4 && machine.changed_since(&before) != [""; 0]);
            break;
        }
        let is_unchanged = machine.changed_since(&before) == [""; 0];
        unchanged += usize::from(is_unchanged);
        unknown += usize::from(matches!(outcome, Err(RecordError::Store(StoreError::Unknown { .. }))));
        // The medium is well again.
        let undone = take_back(&machine);
        assert_eq!(machine.changed_since(&before), [""; 0], "calls fail from {from} on: {undone:?}");
    }
    assert!(unchanged > 4 && unknown > 0, "{unchanged} unchanged, {unknown} unknown");
}
