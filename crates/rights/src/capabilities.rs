//! The capabilities that a process keeps. Those of one thread: to be called before there are
//! others.

use std::io;

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities};

/// What a target may need while it runs, if it has it: ports below 1024 that are added, options of
/// sockets, memory that is registered, priorities, and files of other users where it runs as root.
pub const TARGET_CAPABILITIES: CapabilitySet = CapabilitySet::NET_BIND_SERVICE
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER);

/// What an attach daemon may need: block devices are made and taken away with `SYS_ADMIN`, and who
/// has one open is seen with `SYS_PTRACE`.
pub const ATTACH_CAPABILITIES: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::DAC_OVERRIDE);

/// Gives up every capability but those of `kept` that the process has.
///
/// # Errors
/// Of capset(2) and prctl(2).
pub(crate) fn keep(kept: CapabilitySet) -> io::Result<()> {
    let now = capabilities(None)?;
    let kept = now.permitted & kept;
    // What a program that is started could get. It takes SETPCAP, without which no more can be got
    // than there is.
    if now.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..u64::BITS {
            let one = CapabilitySet::from_bits_retain(1 << number);
            if kept.contains(one) {
                continue;
            }
            match rustix::thread::remove_capability_from_bounding_set(one) {
                // The kernel has no more.
                Err(Errno::INVAL) => break,
                removed => removed?,
            }
        }
    }
    match clear_ambient_capability_set() {
        Err(Errno::INVAL) | Ok(()) => {}
        Err(error) => return Err(error.into()),
    }
    // Nothing to give up, as in a service that has none: a filter around it may not have capset(2).
    if now.permitted == kept && kept.contains(now.inheritable) {
        return Ok(());
    }
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}

/// The names of those that the process has now, in the order of their numbers.
pub(crate) fn names() -> Vec<String> {
    let Ok(sets) = capabilities(None) else { return Vec::new() };
    sets.permitted.iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}
