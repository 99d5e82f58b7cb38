//! What the kernel's scheduler reports of, and is asked for, the calling thread: how often others
//! ran in its place, and a short slice.
#![allow(unsafe_code, reason = "no safe crate has sched_setattr; each block says why")]

use std::cell::Cell;
use std::time::Duration;

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

/// The time that the calling thread has had on a processor since it began.
#[must_use]
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanoseconds)
}

/// What a thread has used, and waited for, since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Time on a processor, microseconds.
    pub cpu_us: u64,
    /// How often it had to wait for something, and others ran.
    pub waits: u64,
    /// Pages that were not there when it accessed them.
    pub page_faults: u64,
}

impl Account {
    /// Of the calling thread. What the system does not tell is 0.
    #[must_use]
    pub fn of_thread() -> Self {
        let count = |number| u64::try_from(number).unwrap_or(0);
        let usage = getrusage(UsageWho::RUSAGE_THREAD).ok();
        Self {
            cpu_us: u64::try_from(cpu_time().as_micros()).unwrap_or(u64::MAX),
            waits: usage.map_or(0, |usage| count(usage.voluntary_context_switches())),
            page_faults: usage
                .map_or(0, |usage| count(usage.minor_page_faults()).saturating_add(count(usage.major_page_faults()))),
        }
    }
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

    #[test]
    fn an_account_has_what_a_thread_did() {
        std::thread::spawn(|| {
            let before = Account::of_thread();
            let pages = vec![1_u8; 8 << 20];
            std::hint::black_box(&pages);
            std::thread::sleep(std::time::Duration::from_millis(2));
            let after = Account::of_thread();
            assert!(after.cpu_us > before.cpu_us, "{before:?} {after:?}");
            assert!(after.waits > before.waits, "{before:?} {after:?}");
            assert!(after.page_faults > before.page_faults, "{before:?} {after:?}");
        })
        .join()
        .unwrap();
    }

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
