//! The configuration that most tests of the target serve: one subsystem for any host, at a free
//! port of the loopback.

use ebof_manage::config::{Namespace, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::Nqn;

/// The subsystem.
pub(crate) const NQN: &str = "nqn.2014-08.org.example:drive0";

/// The drives are its namespaces, numbered from 1.
pub(crate) fn one_subsystem<'a>(drives: impl IntoIterator<Item = &'a str>) -> Config {
    let nqn = Nqn::parse(NQN).expect("a legal NQN");
    let port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
    let mut subsystem = Subsystem::new(nqn.clone());
    subsystem.allow_any_host = true;
    subsystem.ports = vec![port.name.clone()];
    for (nsid, drive) in (1..).zip(drives) {
        subsystem.namespaces.push(Namespace::new(nsid, drive.parse().expect("a drive as on the command line")));
    }
    Config { ports: vec![port], subsystems: vec![subsystem], ..Config::default() }
}
