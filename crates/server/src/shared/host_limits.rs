//! Limits for one host on what all hosts share: connections, controllers, buffers.
//!
//! An admitted host is identified by its NQN, a connection that is not admitted yet by the network
//! that it comes from. Controllers and queues are counted by the registry; connections before that,
//! and buffers, here.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebof_nvme::Nqn;

use crate::observe::log_limit::Network;

/// So many percent of `all`, rounded up: of a small number, all of it.
pub(crate) fn percent_of(all: u32, percent: u8) -> u32 {
    let part = (u64::from(all) * u64::from(percent.clamp(1, 100))).div_ceil(100);
    u32::try_from(part).unwrap_or(all)
}

/// Connections that are not admitted yet, by the network that they come from. At most as many
/// entries as connections.
#[derive(Debug, Default)]
pub(crate) struct Unadmitted(Mutex<HashMap<Network, u32>>);

/// One of these connections, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    all: Arc<Unadmitted>,
    network: Network,
}

impl Unadmitted {
    /// Counts one more, if there are fewer than `max` of that network.
    pub(crate) fn enter(self: &Arc<Self>, network: Network, max: u32) -> Option<Waiting> {
        let mut counts = self.lock();
        let count = counts.entry(network).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(Waiting { all: Arc::clone(self), network })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Network, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut counts = self.all.lock();
        let count = counts.get_mut(&self.network).expect("an entry is there as long as somebody is counted in it");
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.network);
        }
    }
}

/// Bytes of one reactor's buffers that hosts use.
#[derive(Debug, Default)]
pub(crate) struct HostBuffers(HashMap<Nqn, Weak<Cell<usize>>>);

impl HostBuffers {
    /// The count of a host.
    fn count_of(&mut self, host: &Nqn) -> Rc<Cell<usize>> {
        if let Some(count) = self.0.get(host).and_then(Weak::upgrade) {
            return count;
        }
        // Hosts that are gone are forgotten here: there are never more entries than connections,
        // but for the last few.
        self.0.retain(|_, count| count.strong_count() > 0);
        let count = Rc::new(Cell::new(0));
        self.0.insert(host.clone(), Rc::downgrade(&count));
        count
    }
}

/// Bytes of buffers that a connection uses. They count for its host, too.
#[derive(Debug, Default)]
pub(crate) struct BufferUse {
    own: usize,
    of_host: Rc<Cell<usize>>,
}

impl BufferUse {
    /// The connection is a queue of `host` from now on.
    pub(crate) fn join(&mut self, host: &Nqn, hosts: &mut HostBuffers) {
        let of_host = hosts.count_of(host);
        of_host.set(of_host.get() + self.own);
        take_off(&self.of_host, self.own);
        self.of_host = of_host;
    }

    /// Bytes that this connection has.
    #[inline]
    pub(crate) fn own(&self) -> usize {
        self.own
    }

    /// Whether its host may have so many bytes more, within `share`. One that has nothing may
    /// always have what one command needs.
    #[inline]
    pub(crate) fn has_share(&self, more: usize, share: usize) -> bool {
        self.of_host.get() == 0 || self.of_host.get() + more <= share
    }

    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) {
        self.own += bytes;
        self.of_host.set(self.of_host.get() + bytes);
    }

    #[inline]
    pub(crate) fn give(&mut self, bytes: usize) {
        self.own = self.own.checked_sub(bytes).expect("a connection gives back what it has");
        take_off(&self.of_host, bytes);
    }
}

/// A connection's bytes count for its host no more. The host's count is the sum of what its
/// connections have.
#[inline]
fn take_off(of_host: &Cell<usize>, bytes: usize) {
    of_host.set(of_host.get().checked_sub(bytes).expect("the bytes of a connection are counted for its host"));
}

impl Drop for BufferUse {
    fn drop(&mut self) {
        self.give(self.own);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn a_share_is_rounded_up() {
        assert_eq!([1, 4, 16, 100, 16_384].map(|all| percent_of(all, 85)), [1, 4, 14, 85, 13_927]);
        assert_eq!((percent_of(u32::MAX, 100), percent_of(10, 0)), (u32::MAX, 1));
    }

    #[test]
    fn waiting_connections_are_counted_by_network() {
        let all = Arc::new(Unadmitted::default());
        let at = |text: &str| Network::from_address(text.parse::<IpAddr>().unwrap());
        let held: Vec<_> = (0..3).map(|_| all.enter(at("192.0.2.1"), 3).unwrap()).collect();
        assert!(all.enter(at("192.0.2.1"), 3).is_none());
        let other = all.enter(at("192.0.2.2"), 3).unwrap();
        drop(held);
        assert!(all.enter(at("192.0.2.1"), 3).is_some());
        drop(other);
        assert!(all.lock().is_empty());
    }

    // @test hostile.shares
    #[test]
    fn buffers_of_a_host_are_counted_over_its_connections() {
        let one = Nqn::parse("nqn.one").unwrap();
        let other = Nqn::parse("nqn.other").unwrap();
        let mut hosts = HostBuffers::default();
        let mut uses: [BufferUse; 3] = Default::default();
        uses[0].add(100);
        for (at, host) in [&one, &one, &other].into_iter().enumerate() {
            uses[at].join(host, &mut hosts);
        }
        uses[1].add(50);
        assert!(uses[1].has_share(50, 200) && !uses[1].has_share(51, 200) && !uses[0].has_share(51, 200));
        assert!(uses[2].has_share(1000, 200), "who has nothing may have one command");
        uses[0].give(40);
        assert!(uses[1].has_share(90, 200) && !uses[1].has_share(91, 200));
        let [first, second, _third] = uses;
        drop(first);
        assert!(second.has_share(150, 200) && !second.has_share(151, 200));
        assert_eq!((second.own(), hosts.count_of(&one).get()), (50, 50));
        drop(second);
        assert_eq!(hosts.count_of(&one).get(), 0);
    }
}
