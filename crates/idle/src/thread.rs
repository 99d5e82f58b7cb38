//! What the kernel's scheduler tells and is asked for the calling thread: how often others ran in
//! its place, and a short slice.
#![allow(unsafe_code, reason = "no safe crate has sched_setattr; each block says why")]

use std::cell::Cell;

use nix::sys::resource::{UsageWho, getrusage};

/// The slice that is asked for, nanoseconds: the shortest that Linux grants.
const SLICE_NS: u64 = 100_000;

thread_local! {
    static HAS_ASKED: Cell<bool> = const { Cell::new(false) };
}

/// How often another thread has run in place of this one although it could have gone on.
pub(crate) fn involuntary_switches() -> u64 {
    getrusage(UsageWho::RUSAGE_THREAD)
        .map_or(0, |usage| u64::try_from(usage.involuntary_context_switches()).unwrap_or(0))
}

/// Asks once for a short slice: the thread gets as much of the processor as before, and sooner when
/// it wakes. Linux 6.12 and later; others ignore it or refuse.
pub(crate) fn ask_for_short_slices() {
    if HAS_ASKED.replace(true) {
        return;
    }
    let mut attributes = libc::sched_attr {
        size: 0,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let size = u32::try_from(size_of_val(&attributes)).unwrap_or(0);
    // SAFETY: the call writes at most `size` bytes to the structure, of which it has as many.
    // JUSTIFICATION: rustix and nix do not have the call.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    // A thread of another policy was given it by whoever knows better.
    if read != 0 || !matches!(i32::try_from(attributes.sched_policy), Ok(libc::SCHED_OTHER)) {
        return;
    }
    attributes.size = size;
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: the call reads the structure.
    // JUSTIFICATION: as above.
    let _refused = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the kernel says, nice value and policy stay.
    #[test]
    fn a_short_slice_changes_nothing_else() {
        let attributes = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let fields: Vec<String> = stat.rsplit(") ").next().unwrap().split(' ').map(str::to_owned).collect();
            // Priority, nice value, policy.
            [fields[15].clone(), fields[16].clone(), fields[38].clone()]
        };
        std::thread::spawn(move || {
            let before = attributes();
            ask_for_short_slices();
            assert_eq!(attributes(), before);
        })
        .join()
        .unwrap();
    }
}
