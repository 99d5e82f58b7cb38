//! The Discovery log page (70h): what a host may connect to, described so that it can reach it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use ebof_nvme::log::{
    AddressFamily, DiscoveryEntry, DiscoveryHeader, EntryFlags, RdmaAddress, RdmaProvider, RdmaQueuePair, SecType,
    SubsystemType, TrType, Treq, lsp,
};
use ebof_nvme::{ControllerId, Nqn};
use zerocopy::IntoBytes;

use crate::model::function;
use crate::model::{Model, Port, PortId, Referral, Subsystem, TlsUse};

/// The host that asks, and the port where it does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// `None` for a host without a name.
    pub(crate) host: Option<&'a Nqn>,
    pub(crate) port: PortId,
    /// The local address that the host reached.
    pub(crate) local: &'a str,
}

impl View<'_> {
    fn may_use(&self, subsystem: &Subsystem) -> bool {
        self.host.map_or(subsystem.allow_any_host, |host| subsystem.allows(host))
    }
}

/// Entries of an Admin Queue that an entry announces (ASQSZ); the least that the specification
/// allows.
pub(crate) const ADMIN_QUEUE_ENTRIES: u16 = 32;

/// What a Discovery log page is made of.
pub(crate) trait Entries {
    /// A number that changes with the entries (GENCTR).
    fn generation(&self) -> u64;

    /// The entries that `view` may see; with `port_local` only those of ports at the address where
    /// the host asks.
    fn entries(&self, view: View<'_>, port_local: bool) -> Vec<DiscoveryEntry>;
}

/// The log page. `parameter` is the Log Specific Field: only Port Local Entries is known.
pub(crate) fn page(source: &dyn Entries, view: View<'_>, parameter: u8) -> Vec<u8> {
    let entries = source.entries(view, parameter & lsp::PORT_LOCAL != 0);
    let mut header = DiscoveryHeader::default();
    header.genctr.set(source.generation());
    header.numrec.set(entries.len() as u64);
    let mut page = header.as_bytes().to_vec();
    page.extend_from_slice(entries.as_bytes());
    page
}

impl Entries for Model {
    fn generation(&self) -> u64 {
        self.generation
    }

    /// First the discovery subsystem itself, then the subsystems in the model's order, then what
    /// the port refers to.
    fn entries(&self, view: View<'_>, port_local: bool) -> Vec<DiscoveryEntry> {
        let mut entries = Vec::new();
        if let Some(port) = self.port(view.port) {
            let mut own = DiscoveryEntry { subtype: SubsystemType::CURRENT_DISCOVERY.0, ..DiscoveryEntry::default() };
            if fill(&mut own, &self.discovery.nqn, false, port, view) {
                own.eflags.set(EntryFlags::EPCSD.0);
                entries.push(own);
            }
        }
        for subsystem in self.subsystems.iter().filter(|subsystem| view.may_use(subsystem)) {
            let ports = subsystem
                .ports
                .iter()
                .filter(|&&id| function::is_offered_at(subsystem, id))
                .filter_map(|&id| self.port(id));
            // Nobody is admitted to a subsystem that wants TLS where there is none.
            let ports = ports.filter(|port| !subsystem.tls_only || port.tls != TlsUse::Off);
            for port in ports.filter(|port| !port.discovery_only && (!port_local || is_local(self, port, view))) {
                let nqn = function::known_as(subsystem);
                let is_found = |found: &Arc<Subsystem>| found.nqn == subsystem.nqn;
                if *nqn != subsystem.nqn && !function::at_port(self, nqn, port.id).is_some_and(is_found) {
                    continue;
                }
                let mut entry = DiscoveryEntry { subtype: SubsystemType::NVM.0, ..DiscoveryEntry::default() };
                if fill(&mut entry, nqn, subsystem.tls_only, port, view) {
                    entries.push(entry);
                }
            }
        }
        entries.extend(self.port(view.port).into_iter().flat_map(|port| &port.referrals).map(refer));
        entries
    }
}

/// Describes another discovery controller. Which port of its subsystem it is (PORTID) nobody here
/// knows.
fn refer(referral: &Referral) -> DiscoveryEntry {
    let mut entry = DiscoveryEntry { subtype: SubsystemType::REFERRAL.0, ..DiscoveryEntry::default() };
    entry.trtype = referral.trtype.0;
    entry.adrfam = referral.adrfam.0;
    entry.cntlid.set(ControllerId::DYNAMIC.0);
    entry.asqsz.set(ADMIN_QUEUE_ENTRIES);
    entry.set_service_id(&referral.trsvcid);
    entry.set_subsystem_nqn(&Nqn::discovery());
    entry.set_address(&referral.traddr);
    let (security, channel) = secured(referral.tls, false);
    entry.treq = channel.0;
    match referral.trtype {
        TrType::TCP => entry.set_security(security),
        TrType::RDMA => entry.set_rdma_address(rdma_address(RdmaProvider::NOT_SPECIFIED)),
        _ => {}
    }
    entry
}

/// What an entry says of TLS.
fn secured(tls: TlsUse, tls_only: bool) -> (SecType, Treq) {
    match tls {
        // Not "not required": libnvme 1.3 (Debian 12) takes that for a reason to use TLS.
        TlsUse::Off => (SecType::NONE, Treq::default()),
        TlsUse::Allowed if !tls_only => (SecType::TLS_1_3, Treq::SECURE_CHANNEL_NOT_REQUIRED),
        TlsUse::Allowed | TlsUse::Required => (SecType::TLS_1_3, Treq::SECURE_CHANNEL_REQUIRED),
    }
}

fn rdma_address(provider: RdmaProvider) -> RdmaAddress {
    RdmaAddress { queue_pair: RdmaQueuePair::CONNECTED, provider, connection_management: 1, partition_key: 0 }
}

/// Whether `port` is where the host asks (Port Local Entries Only).
///
/// Deviation: the specification means the one NVM subsystem port. nvme-stas (2.4) asks for port
/// local entries by default, and would find nothing behind a port for discovery only: whatever is
/// at the same transport address counts, on any service id.
fn is_local(model: &Model, port: &Port, view: View<'_>) -> bool {
    let Some(asked) = model.port(view.port) else { return false };
    port.id == asked.id
        || port.trtype == asked.trtype
            && matches!((address(port, view), address(asked, view)), (Some((_, a)), Some((_, b))) if is_same(a, b))
}

/// Whether two texts are one address, however they are written.
fn is_same(one: &str, other: &str) -> bool {
    match (one.parse::<IpAddr>(), other.parse::<IpAddr>()) {
        (Ok(one), Ok(other)) => one.to_canonical() == other.to_canonical(),
        _ => one == other,
    }
}

/// Describes `nqn`, which may want TLS, on `port`; `false` if there is no address to give to the
/// host.
fn fill(entry: &mut DiscoveryEntry, nqn: &Nqn, tls_only: bool, port: &Port, view: View<'_>) -> bool {
    let Some((family, address)) = address(port, view) else { return false };
    entry.trtype = port.trtype.0;
    entry.adrfam = family.0;
    let (security, channel) = secured(port.tls, tls_only);
    entry.treq = channel.with(Treq::SQ_FLOW_CONTROL_DISABLE).with(Treq::ZERO_HOST_ID).0;
    entry.portid.set(port.id.0);
    entry.cntlid.set(ControllerId::DYNAMIC.0);
    entry.asqsz.set(ADMIN_QUEUE_ENTRIES);
    entry.set_service_id(&port.trsvcid);
    entry.set_subsystem_nqn(nqn);
    entry.set_address(address);
    match port.trtype {
        TrType::TCP => entry.set_security(security),
        TrType::RDMA => entry.set_rdma_address(rdma_address(port.provider)),
        _ => {}
    }
    true
}

/// Where the host finds `port`. A wildcard is described by the address that the host itself has
/// just reached, if the listener covers its family.
fn address<'a>(port: &'a Port, view: View<'a>) -> Option<(AddressFamily, &'a str)> {
    if port.is_memory_based() {
        // No host of a network gets there.
        return None;
    }
    if !port.is_wildcard() {
        return Some((port.adrfam, &port.traddr));
    }
    let family = if view.local.contains(':') { AddressFamily::IPV6 } else { AddressFamily::IPV4 };
    let covered = port.adrfam == family || port.id == view.port;
    (covered && !view.local.is_empty()).then_some((family, view.local))
}
