//! The priority of threads that compute for hosts which are not connected yet.

use rustix::process::setpriority_process;

/// How much less such a thread counts than those that serve hosts (`setpriority`): hosts that come
/// must not slow those down that are there.
const NICE: i32 = 10;

/// From now on the calling thread goes after those that serve hosts.
pub(crate) fn go_after_reactors() {
    // Without the right to do that it is as before.
    let _ = setpriority_process(None, NICE);
}
