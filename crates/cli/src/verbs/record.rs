//! What a record of a discovery log says: where it is, and whether its port has nothing but TLS.

use std::net::{IpAddr, Ipv6Addr};

use ebof_nvme::Nqn;
use ebof_nvme::log::{DiscoveryEntry, SecType};
use ebof_nvme::uri::Transport;

use super::fabric::FabricArgs;
use crate::failure::Failure;

/// What a record says of its port, if that has nothing but TLS.
pub(super) fn wants_tls(entry: &DiscoveryEntry) -> Option<SecType> {
    let tls = entry.security().filter(|security| [SecType::TLS, SecType::TLS_1_3].contains(security));
    tls.filter(|_| entry.requirements().secure_channel_required() != Some(false))
}

/// The same, if connections of this service are without. A subsystem that wants TLS may be at a
/// port where it begins with authentication.
pub(super) fn lacks_tls(service: &FabricArgs, entry: &DiscoveryEntry) -> Option<SecType> {
    let has_tls = service.overrides.tls || service.overrides.concat;
    wants_tls(entry).filter(|security| !has_tls || *security != SecType::TLS_1_3)
}

/// Where a record is, and of which subsystem; `None` if it cannot be used.
pub(super) fn place_of(entry: &DiscoveryEntry, service: &FabricArgs) -> Option<(Transport, Nqn, String, u16)> {
    let traddr = entry.address().as_str().map(|traddr| scoped(traddr, service))?;
    let trsvcid = entry.service_id().as_str().and_then(|port| port.parse::<u16>().ok())?;
    let nqn = Nqn::from_field(&entry.subnqn).ok()?;
    Some((Transport::from_name(entry.transport().name())?, nqn, traddr, trsvcid))
}

/// An address of a discovery log. A link-local one counts on the network that its service was
/// reached through: a log cannot name that, since it is numbered by each machine for itself.
fn scoped(traddr: &str, service: &FabricArgs) -> String {
    let is_link_local = traddr.parse::<Ipv6Addr>().is_ok_and(|address| address.is_unicast_link_local());
    let scope = || {
        let named = service.traddr.as_deref().and_then(|own| own.split_once('%')).map(|(_, scope)| scope);
        named.or(service.overrides.host_iface.as_deref())
    };
    match scope().filter(|_| is_link_local) {
        Some(scope) => format!("{traddr}%{scope}"),
        None => traddr.to_owned(),
    }
}

/// That a record says of a port that it has nothing but TLS, if it is about that port.
pub(super) fn tls_of(entry: &DiscoveryEntry, peer: IpAddr, port: u16, nqn: &Nqn) -> Option<Failure> {
    let address = entry.address().as_str().and_then(|text| text.parse::<IpAddr>().ok());
    let is_it = entry.service_id().as_str() == Some(port.to_string().as_str())
        && address.is_none_or(|address| address == peer)
        && Nqn::from_field(&entry.subnqn).is_ok_and(|known| known == *nqn);
    wants_tls(entry).filter(|_| is_it).map(|security| no_tls(security, port))
}

/// What is said of a port that has nothing but TLS.
pub(super) fn no_tls(security: SecType, port: u16) -> Failure {
    let version = if security == SecType::TLS_1_3 { "TLS 1.3" } else { "TLS" };
    let message = format!(
        "port {port} wants {version} (the discovery log: sectype {}), and this connection was to be without",
        security.name()
    );
    Failure::unsupported(
        message,
        "connect with --tls and --tls-key-file, which names the key that the target has of this host",
    )
}

#[cfg(test)]
pub(super) mod tests {
    use ebof_nvme::log::{SubsystemType, TrType};

    use super::*;
    use crate::verbs::services::conf::options_of;

    /// A record of a subsystem at a port of this machine.
    pub(crate) fn record(port: u16) -> DiscoveryEntry {
        let mut entry =
            DiscoveryEntry { trtype: TrType::TCP.0, subtype: SubsystemType::NVM.0, ..DiscoveryEntry::default() };
        let put = |field: &mut [u8], text: &str| field[..text.len()].copy_from_slice(text.as_bytes());
        put(&mut entry.subnqn, "nqn.2014-08.org.example:x");
        put(&mut entry.traddr, "127.0.0.1");
        entry.trsvcid.fill(b' ');
        put(&mut entry.trsvcid, &port.to_string());
        entry
    }

    #[test]
    fn link_local_addresses_count_where_their_service_was_found() {
        let service = |line: &str| options_of(line).unwrap();
        let (named, bound) = (service("-a fe80::1%eth0"), service("-a 2001:db8::1 -f eth1"));
        assert_eq!(scoped("fe80::2", &named), "fe80::2%eth0");
        assert_eq!(scoped("fe80::2", &bound), "fe80::2%eth1");
        for traddr in ["fe80::2%eth7", "2001:db8::2", "192.0.2.1"] {
            assert_eq!(scoped(traddr, &named), traddr);
        }
        assert_eq!(scoped("fe80::2", &service("-a 192.0.2.1")), "fe80::2");
    }

    // @test host.tls-ports
    #[test]
    fn what_wants_tls_is_known() {
        let with = |security: SecType, treq: u8| {
            let mut entry = DiscoveryEntry { treq, ..record(4420) };
            entry.tsas[0] = security.0;
            entry
        };
        let wants = |security, treq| wants_tls(&with(security, treq)).is_some();
        assert!(wants(SecType::TLS_1_3, 1) && wants(SecType::TLS_1_3, 0) && wants(SecType::TLS, 1));
        assert!(!wants(SecType::TLS_1_3, 2) && !wants(SecType::NONE, 1) && !wants(SecType::NONE, 0));
        let mut with_key = options_of("-t tcp -a 127.0.0.1").unwrap();
        with_key.overrides.tls = true;
        assert!(lacks_tls(&with_key, &with(SecType::TLS_1_3, 1)).is_none());
        assert!(lacks_tls(&with_key, &with(SecType::TLS, 1)).is_some(), "TLS 1.2 is another one");
        // What `connect` finds out about a port that closes its connections.
        let nqn = Nqn::parse("nqn.2014-08.org.example:x").unwrap();
        let says = |peer: &str, port| tls_of(&with(SecType::TLS_1_3, 1), peer.parse().unwrap(), port, &nqn).is_some();
        assert!(says("127.0.0.1", 4420) && !says("127.0.0.1", 4421) && !says("127.0.0.2", 4420));
        assert!(tls_of(&with(SecType::NONE, 1), "127.0.0.1".parse().unwrap(), 4420, &nqn).is_none());
    }
}
