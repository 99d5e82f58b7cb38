//! Regions that a ring has registered: the kernel looks up their pages and pins them once, not for
//! each request.
//!
//! Owns the indices of the ring's table of buffers, and decides which regions get one. The calls
//! that change the table are the ring's (`io/uring.rs`).
//!
//! A region is registered when it has been in some transfers already (for memory that is used once
//! or twice it would not pay), with one ring only, and for as long as it lives. It may end on
//! any thread: its index is then left for the ring, which clears the entry before another region
//! gets it. An entry that is not cleared yet keeps pages pinned, but no request names it; nothing
//! more is registered until all of them are cleared. So never more is pinned than is in use.

use ebof_region::{EntryTable, TableEntry};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Entries of a ring's table: of the smallest regions of a pool, 256 MiB. Regions beyond that are
/// used as if there were no table.
pub(crate) const ENTRIES: u16 = 1024;
/// Transfers of a region before it is registered: to register it and to clear its entry takes as
/// long as the kernel needs for the pages of a few requests.
const USES_MIN: u32 = 8;

/// Entries that are cleared at a time: it takes a system call for each, on the thread that serves
/// requests.
pub(crate) const CLEARED_MAX: usize = 8;

/// The table of one ring.
#[derive(Debug)]
pub(crate) struct Registered {
    table: EntryTable,
    /// Entries without a region.
    free: Vec<u16>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was registered yet: the kernel has no table.
    New,
    On,
    /// The kernel has refused, or memory may not be pinned.
    Off,
}

/// What to do about the region of a transfer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// It has this entry.
    Entry(u16),
    /// Nothing: the transfer names its memory by address.
    Address,
    /// To be registered.
    Register,
}

impl Registered {
    pub(crate) fn new() -> Registered {
        let state = if may_pin() { State::New } else { State::Off };
        Registered { table: EntryTable::default(), free: Vec::new(), state }
    }

    /// For a region with this entry; `uses` counts the transfers that it was in before.
    #[inline]
    pub(crate) fn choose(&self, entry: Option<&TableEntry>, uses: impl FnOnce() -> u32) -> Choice {
        match entry {
            Some(entry) => entry.index_in(&self.table).map_or(Choice::Address, Choice::Entry),
            None if self.state != State::Off && uses() >= USES_MIN => Choice::Register,
            None => Choice::Address,
        }
    }

    /// Whether the kernel has to make the table first.
    pub(crate) fn needs_table(&self) -> bool {
        self.state == State::New
    }

    /// The kernel has made the table.
    pub(crate) fn table_made(&mut self) {
        self.free = (0..ENTRIES).rev().collect();
        self.state = State::On;
    }

    /// The kernel refuses: nothing more is registered.
    pub(crate) fn refused(&mut self) {
        self.state = State::Off;
    }

    /// An entry without a region.
    pub(crate) fn take_free(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// The entry has been cleared, or nothing was put there.
    pub(crate) fn put_free(&mut self, index: u16) {
        // An entry is free, on its way back, or a region's. One that is free twice would be given
        // to two regions, and transfers of one would use the memory of the other.
        assert!(index < ENTRIES && self.free.len() < usize::from(ENTRIES), "an entry that the table does not have");
        debug_assert!(!self.free.contains(&index), "the entry {index} is free already");
        self.free.push(index);
    }

    /// Entries: which have come back, and those that regions have.
    #[inline]
    pub(crate) fn table(&self) -> &EntryTable {
        &self.table
    }
}

/// Whether the process may pin as much memory as it likes. Where `RLIMIT_MEMLOCK` counts, what it
/// allows is left to sends without a copy, which need it more.
fn may_pin() -> bool {
    let is_capable = || {
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
            && std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|uid_map| is_initial_namespace(&uid_map))
    };
    getrlimit(Resource::Memlock).current.is_none() || is_capable()
}

/// Whether a process with this `uid_map` is in the initial user namespace: the kernel asks for the
/// capability there, and one of a container's own namespace does not count.
fn is_initial_namespace(uid_map: &str) -> bool {
    uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Registered {
        let mut registered = Registered { table: EntryTable::default(), free: Vec::new(), state: State::New };
        assert!(registered.needs_table());
        registered.table_made();
        registered
    }

    #[test]
    fn a_region_is_registered_after_several_uses_and_with_one_ring_only() {
        let (mut here, there) = (table(), table());
        assert_eq!(here.choose(None, || USES_MIN - 1), Choice::Address);
        assert_eq!(here.choose(None, || USES_MIN), Choice::Register);
        let index = here.take_free().unwrap();
        let entry = here.table().entry(index);
        assert_eq!(here.choose(Some(&entry), || USES_MIN), Choice::Entry(index));
        assert_eq!(there.choose(Some(&entry), || USES_MIN), Choice::Address);
    }

    #[test]
    fn the_entry_of_a_freed_region_returns_to_its_ring() {
        let (mut here, there) = (table(), table());
        let index = here.take_free().unwrap();
        let entry = here.table().entry(index);
        assert!(!here.table().has_returned());
        std::thread::spawn(|| drop(entry)).join().unwrap();
        assert!(here.table().has_returned() && !there.table().has_returned());
        assert_eq!(here.table().take_returned(CLEARED_MAX), [index]);
        assert!(!here.table().has_returned());
    }

    #[test]
    fn entries_come_back_a_few_at_a_time() {
        let mut table = table();
        let indices: Vec<u16> = (0..20).map(|_| table.take_free().unwrap()).collect();
        indices.iter().for_each(|&index| drop(table.table().entry(index)));
        let mut returned = Vec::new();
        while table.table().has_returned() {
            let some = table.table().take_returned(CLEARED_MAX);
            assert!(!some.is_empty() && some.len() <= CLEARED_MAX);
            returned.extend(some);
        }
        returned.sort_unstable();
        assert!(returned.iter().eq(indices.iter()));
    }

    #[test]
    fn after_a_refusal_nothing_more_is_registered() {
        let mut registered = table();
        let index = registered.take_free().unwrap();
        let entry = registered.table().entry(index);
        registered.refused();
        assert_eq!(registered.choose(Some(&entry), || USES_MIN), Choice::Entry(index), "what is there stays");
        assert_eq!(registered.choose(None, || USES_MIN), Choice::Address);
    }

    #[test]
    fn a_capability_counts_in_the_initial_user_namespace_only() {
        assert!(is_initial_namespace("         0          0 4294967295\n"));
        // Of `unshare -r`, and of a container with identifiers of its own.
        assert!(!is_initial_namespace("         0       1000          1\n"));
        assert!(!is_initial_namespace("         0          0          1\n         1     100000      65536\n"));
        assert!(!is_initial_namespace(""));
    }
}
