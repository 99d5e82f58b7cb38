//! Which hosts have figures of their own.
//!
//! A host chooses its NQN, and with a subsystem that any host may connect to it can have a new one
//! each time. So the figures of those that the configuration does not name have a limit, in all and
//! for each network; those of the others are counted together.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

/// Under which name the hosts beyond the limits are counted. No NQN is like it.
pub(crate) const OTHERS: &str = "others";

/// Hosts that the configuration does not name and that have figures of their own.
const HOSTS_MAX: usize = 64;

/// Those of one address, or of one /64 of IPv6.
const HOSTS_OF_NETWORK_MAX: u32 = 8;

/// The hosts that have figures of their own.
#[derive(Debug, Default)]
pub(crate) struct HostLabels(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    hosts: HashSet<String>,
    by_network: HashMap<Option<IpAddr>, u32>,
}

impl HostLabels {
    /// The name under which a host is counted. `is_named`: the configuration has it. Without an
    /// address it is on this machine.
    pub(crate) fn label(&self, host: &str, is_named: bool, address: Option<IpAddr>) -> String {
        if is_named {
            return host.to_owned();
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.hosts.contains(host) {
            return host.to_owned();
        }
        if known.hosts.len() >= HOSTS_MAX {
            return OTHERS.to_owned();
        }
        // At most one for each of the hosts.
        let of_network = known.by_network.entry(address.map(network)).or_default();
        if *of_network >= HOSTS_OF_NETWORK_MAX {
            return OTHERS.to_owned();
        }
        *of_network += 1;
        known.hosts.insert(host.to_owned());
        host.to_owned()
    }
}

/// A host has a /64 of IPv6 for itself.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // @test redfish.bounded-figures
    #[test]
    fn names_that_nobody_proved_are_bounded() {
        let labels = HostLabels::default();
        let of = |host: usize, address: [u8; 4]| labels.label(&format!("nqn.x:{host}"), false, Some(address.into()));
        let own = (0..1800).filter(|host| of(*host, [192, 0, 2, 1]) != OTHERS).count();
        assert_eq!(own, 8, "one address has eight");
        assert_eq!(of(0, [192, 0, 2, 1]), "nqn.x:0", "and keeps them");
        let own = (2000..4000).filter(|&host| of(host, [198, 51, 100, (host % 250).to_le_bytes()[0]]) != OTHERS);
        assert_eq!(own.count(), HOSTS_MAX - 8);
        assert_eq!(labels.label("nqn.named", true, None), "nqn.named", "who is configured has figures always");
        let v6 = |text: &str| network(text.parse().unwrap());
        assert_eq!(v6("2001:db8::1"), v6("2001:db8::2"));
        assert_eq!(v6("::ffff:192.0.2.1"), IpAddr::from([192, 0, 2, 1]));
    }
}
