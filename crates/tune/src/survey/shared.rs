//! Settings of the whole machine: governors, busy polling, buffers of sockets.

use std::io;

use super::{Goal, Survey};
use crate::knob::{Knob, Sysctl};
use crate::tunable::Tunable;
use crate::whose::Whose;

/// What a connection's buffers have to hold at 100 Gbit/s and a round trip of a millisecond, and
/// some more.
const BUFFER_BYTES: u64 = 16 << 20;
/// Documentation/admin-guide/sysctl/net.rst, for several sockets.
const BUSY_POLL_US: &str = "50";

/// Looks at the governor of each core.
pub(super) fn governors(survey: &mut Survey<'_>) {
    let whose = Whose::named("cpu");
    let Some(online) = survey.online.clone() else {
        return survey.unseen(Tunable::Governor, whose, "the machine's cores cannot be seen");
    };
    let is_missing =
        |knob: &Knob| knob.read(survey.machine).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let knobs: Vec<(u32, Knob)> = online.iter().map(|core| (core, Knob::Governor { core })).collect();
    if knobs.iter().all(|(_, knob)| is_missing(knob)) {
        let reason = "no frequency is controlled here: a virtual machine, or the firmware does it";
        return survey.not_applicable(Tunable::Governor, whose, reason);
    }
    for (core, knob) in knobs {
        let offered = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_available_governors");
        let offered = survey.machine.read(&offered);
        if offered.is_ok_and(|offered| !offered.split_whitespace().any(|name| name == "performance")) {
            survey.not_applicable(Tunable::Governor, knob.whose(), "its driver has no governor `performance`");
        } else {
            survey.expect(&knob, "performance");
        }
    }
}

/// Looks at busy polling: a core for a shorter latency.
pub(super) fn busy_polling(survey: &mut Survey<'_>) {
    let recommended = if survey.options.goal == Goal::Latency { BUSY_POLL_US } else { "0" };
    for variable in [Sysctl::BusyPoll, Sysctl::BusyRead] {
        sysctl(survey, variable, |_| recommended.to_owned());
    }
}

/// Looks at the limits of socket buffers. Larger ones are right, too.
pub(super) fn socket_buffers(survey: &mut Survey<'_>) {
    for variable in [Sysctl::ReceiveMax, Sysctl::SendMax] {
        sysctl(survey, variable, |current| at_least(current).to_owned());
    }
    for variable in [Sysctl::TcpReceive, Sysctl::TcpSend] {
        sysctl(survey, variable, |current| match current.rsplit_once(' ') {
            Some((others, most)) => format!("{others} {}", at_least(most)),
            None => current.to_owned(),
        });
    }
}

/// The value, or the size that a buffer should have.
fn at_least(current: &str) -> String {
    match current.parse::<u64>() {
        Ok(bytes) if bytes < BUFFER_BYTES => BUFFER_BYTES.to_string(),
        _ => current.to_owned(),
    }
}

fn sysctl(survey: &mut Survey<'_>, variable: Sysctl, recommend: impl FnOnce(&str) -> String) {
    let knob = Knob::Sysctl { variable };
    let is_missing = knob.read(survey.machine).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    if is_missing {
        let reason = "this kernel does not have it, or shows it only outside of this network namespace";
        return survey.unseen(knob.tunable(), knob.whose(), reason);
    }
    survey.check(&knob, recommend);
}
