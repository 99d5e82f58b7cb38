//! Direct ports have one subsystem each: who has which, where several are given to one.
//!
//! Tasks give a port to one only ([0062](../../../../docs/adr/0062-management-of-the-box.md)). A
//! drive that comes from elsewhere may remember a port that is taken here, and a configuration may
//! name one that a function has: then the subsystem of the configuration has it, or else who had it
//! before. The others are on no port until it is free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebof_fabrics::{Model, PortId, Subsystem};
use ebof_nvme::Nqn;
use ebof_nvme::log::TrType;

/// Who has which direct port.
#[derive(Clone, Debug, Default)]
pub(super) struct DirectPorts {
    holders: BTreeMap<PortId, Nqn>,
    direct: BTreeSet<PortId>,
}

impl DirectPorts {
    /// Takes the direct ports of a whole model from all but those who have them.
    pub(super) fn settle_model(&mut self, model: &mut Model) {
        let direct = model.ports.iter().filter(|port| port.trtype == TrType::PCIE).map(|port| port.id);
        self.direct = direct.collect();
        self.holders.clone_from(&self.chosen(model.subsystems.iter().map(Arc::as_ref), |_| true));
        for subsystem in &mut model.subsystems {
            if self.loses(subsystem) {
                self.take(Arc::make_mut(subsystem));
            }
        }
    }

    /// The same with all subsystems of one drive. Gives the ports that are free now.
    pub(super) fn settle_drive(&mut self, subsystems: &mut [Subsystem]) -> Vec<PortId> {
        let is_theirs = |nqn: &Nqn| subsystems.iter().any(|subsystem| subsystem.nqn == *nqn);
        let chosen = self.chosen(subsystems.iter(), is_theirs);
        let had: Vec<PortId> =
            self.holders.iter().filter(|(_, holder)| is_theirs(holder)).map(|(&port, _)| port).collect();
        self.holders.retain(|_, holder| !is_theirs(holder));
        for (port, nqn) in chosen {
            self.holders.entry(port).or_insert(nqn);
        }
        subsystems.iter_mut().for_each(|subsystem| self.take(subsystem));
        had.into_iter().filter(|port| !self.holders.contains_key(port)).collect()
    }

    /// Who is to have each port, of these. Who had it before is asked for only if it is one of
    /// them.
    fn chosen<'s>(
        &self,
        subsystems: impl Iterator<Item = &'s Subsystem>,
        is_one: impl Fn(&Nqn) -> bool,
    ) -> BTreeMap<PortId, Nqn> {
        let mut chosen: BTreeMap<PortId, &Subsystem> = BTreeMap::new();
        for subsystem in subsystems {
            for port in subsystem.ports.iter().filter(|port| self.direct.contains(port)) {
                let had = |nqn: &Nqn| is_one(nqn) && self.holders.get(port) == Some(nqn);
                let rank = |subsystem: &Subsystem| (subsystem.function.is_none(), had(&subsystem.nqn));
                let best = chosen.entry(*port).or_insert(subsystem);
                if rank(subsystem) > rank(best) {
                    *best = subsystem;
                }
            }
        }
        chosen.into_iter().map(|(port, subsystem)| (port, subsystem.nqn.clone())).collect()
    }

    fn loses(&self, subsystem: &Subsystem) -> bool {
        subsystem.ports.iter().any(|port| self.is_of_another(*port, &subsystem.nqn))
    }

    fn is_of_another(&self, port: PortId, nqn: &Nqn) -> bool {
        self.direct.contains(&port) && self.holders.get(&port).is_some_and(|holder| holder != nqn)
    }

    /// Takes the ports that others have.
    fn take(&self, subsystem: &mut Subsystem) {
        let nqn = &subsystem.nqn;
        subsystem.ports.retain(|port| !self.is_of_another(*port, nqn));
    }

    /// Whether a port could be shown for a subsystem: it is not a direct one that another one has.
    pub(super) fn is_free_for(&self, port: PortId, nqn: &Nqn) -> bool {
        !self.is_of_another(port, nqn)
    }
}

#[cfg(test)]
mod tests {
    use ebof_fabrics::{DiscoveryIdentity, Port, TlsUse};
    use ebof_nvme::log::{AddressFamily, RdmaProvider};

    use super::*;

    fn subsystem(name: &str, function: Option<u16>, ports: &[u16]) -> Subsystem {
        let nqn = |name: &str| Nqn::parse(&format!("nqn.2014-08.org.example:{name}")).unwrap();
        let config = ebof_manage::config::Subsystem::new(nqn(name));
        let function = function.map(|id| ebof_fabrics::Function {
            drive: nqn("d0"),
            id: ebof_drive::FunctionId(id),
            online: true,
            queues: 2,
            interrupts: 2,
            share: ebof_drive::Share::default(),
            is_of_drive: false,
            leaving: BTreeSet::default(),
        });
        Subsystem {
            nqn: config.nqn,
            serial: config.serial,
            model: config.model,
            firmware: config.firmware,
            allow_any_host: true,
            allowed_hosts: Vec::new(),
            authenticated_only: false,
            tls_only: false,
            ports: ports.iter().map(|&port| PortId(port)).collect(),
            cntlid_min: ebof_nvme::ControllerId(1),
            cntlid_max: ebof_nvme::ControllerId(100),
            namespaces: ebof_fabrics::NamespaceTable::new(Vec::new()).unwrap(),
            allocated: None,
            pending: BTreeSet::default(),
            states: ebof_fabrics::GroupStates::default(),
            drive: None,
            function,
            health: ebof_fabrics::Health::default(),
        }
    }

    fn port(id: u16, trtype: TrType) -> Port {
        Port {
            id: PortId(id),
            trtype,
            adrfam: AddressFamily::IPV4,
            traddr: "127.0.0.1".into(),
            trsvcid: "0".into(),
            tls: TlsUse::Off,
            provider: RdmaProvider::NOT_SPECIFIED,
            discovery_only: false,
            referrals: Vec::new(),
            states: ebof_fabrics::GroupStates::default(),
            in_capsule_bytes: 4096,
            max_queue_entries: 32,
            max_io_queues: 4,
        }
    }

    fn model(subsystems: Vec<Subsystem>) -> Model {
        let nqn = Nqn::discovery();
        let mut model =
            Model::new(DiscoveryIdentity { serial: "1".into(), nqn, model: "m".into(), firmware: "1".into() });
        model.ports = vec![port(1, TrType::TCP), port(2, TrType::PCIE)];
        model.subsystems = subsystems.into_iter().map(Arc::new).collect();
        model
    }

    fn at(model: &Model, port: u16) -> Vec<&str> {
        let there = model.subsystems.iter().filter(|subsystem| subsystem.ports.contains(&PortId(port)));
        there.map(|subsystem| subsystem.nqn.as_str().rsplit(':').next().unwrap()).collect()
    }

    #[test]
    fn a_direct_port_stays_with_who_has_it_unless_the_configuration_names_another() {
        let mut ports = DirectPorts::default();
        let b = || subsystem("b", Some(2), &[2]);
        let mut one = model(vec![b()]);
        ports.settle_model(&mut one);
        assert_eq!(at(&one, 2), ["b"]);
        let mut both = model(vec![subsystem("a", Some(1), &[1, 2]), b()]);
        ports.settle_model(&mut both);
        assert_eq!((at(&both, 2), at(&both, 1)), (vec!["b"], vec!["a"]), "b came first");
        let mut all = model(vec![b(), subsystem("plain", None, &[1, 2])]);
        ports.settle_model(&mut all);
        assert_eq!(at(&all, 2), ["plain"]);
        ports.settle_model(&mut both);
        let mut none = model(Vec::new());
        ports.settle_model(&mut none);
        assert!(ports.is_free_for(PortId(2), &b().nqn));
    }

    #[test]
    fn functions_of_one_drive_wait_for_the_port_of_another() {
        let mut ports = DirectPorts::default();
        ports.settle_model(&mut model(vec![subsystem("b", Some(2), &[2])]));
        let mut drive = [subsystem("a", Some(1), &[2]), subsystem("c", Some(3), &[2])];
        assert!(ports.settle_drive(&mut drive).is_empty());
        assert!(drive.iter().all(|subsystem| subsystem.ports.is_empty()));
        assert!(!ports.is_free_for(PortId(2), &drive[0].nqn));
        assert_eq!(ports.settle_drive(&mut [subsystem("b", Some(2), &[1])]), [PortId(2)]);
        let mut drive = [subsystem("a", Some(1), &[2]), subsystem("c", Some(3), &[2])];
        assert!(ports.settle_drive(&mut drive).is_empty());
        assert_eq!(drive.map(|subsystem| subsystem.ports.len()), [1, 0]);
    }
}
