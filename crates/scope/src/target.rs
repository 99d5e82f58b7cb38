//! Status, refused connections and configuration as those see them who have a scope. They put no
//! configuration in force.

use crate::Limited;
use ebof_manage::api::{ApplyError, Cause, ControllerStatus, PortStatus, Refusal, Revision, Status, Target};
use ebof_manage::config::Config;
use ebof_manage::plan::Plan;

impl Target for Limited {
    fn status(&self) -> Status {
        let own = self.own();
        let whole = self.whole.target.status();
        let Status {
            mut ports,
            mut disabled_ports,
            mut missing,
            mut subsystems,
            mut drives,
            mut controllers,
            mut proving,
            ..
        } = whole;
        disabled_ports.retain(|port| own.has_port(port));
        missing.retain(|missing| own.has_missing(missing));
        subsystems.retain(|subsystem| own.has_subsystem(&subsystem.nqn));
        drives.retain(|drive| own.has_drive(&drive.name));
        controllers.retain(|controller| own.has_subsystem(&controller.subsystem_nqn));
        proving.retain(|host| own.has_subsystem(&host.subsystem_nqn));
        ports.retain(|port| own.has_port(&port.name));
        ports.iter_mut().for_each(|port| limit_port(port, &controllers));
        Status {
            schema: whole.schema,
            version: whole.version,
            uptime_s: whole.uptime_s,
            // It counts the changes of others, too.
            generation: 0,
            connections: connections(&controllers, |_| true),
            connections_max: whole.connections_max,
            ana_group_max: whole.ana_group_max,
            // It names the paths of others.
            confinement: None,
            keys_unprotected: None,
            ports,
            disabled_ports,
            missing,
            subsystems,
            drives,
            controllers,
            proving,
        }
    }

    fn refused(&self) -> Vec<Refusal> {
        let own = self.own();
        let is_own = |refusal: &Refusal| refusal.subsystem_nqn.as_deref().is_some_and(|nqn| own.has_subsystem(nqn));
        self.whole.target.refused().into_iter().filter(is_own).collect()
    }

    fn forget_refused(&self) -> usize {
        // They are everybody's.
        0
    }

    fn config(&self) -> Config {
        let Config { target, mut ports, mut hosts, mut drives, mut subsystems } = self.whole.target.config();
        let own = self.own();
        ports.retain(|port| own.has_port(&port.name));
        hosts.retain(|host| own.has_host(host.nqn.as_str()));
        drives.retain(|drive| own.has_drive(&drive.name));
        subsystems.retain(|subsystem| own.has_subsystem(subsystem.nqn.as_str()));
        Config { target, ports, hosts, drives, subsystems }
    }

    fn apply_for(&self, _cause: &Cause, _revision: Option<&Revision>, _desired: Config) -> Result<Plan, ApplyError> {
        Err(ApplyError::NotAllowed)
    }
}

/// A port that others may be at, too: it counts what is connected to the own subsystems now.
fn limit_port(port: &mut PortStatus, controllers: &[ControllerStatus]) {
    port.connections = connections(controllers, |controller| controller.port == port.name);
    (port.accepted, port.refused) = (port.connections.into(), 0);
}

/// A queue has a connection.
fn connections(controllers: &[ControllerStatus], is_counted: impl Fn(&ControllerStatus) -> bool) -> u32 {
    let queues: usize =
        controllers.iter().filter(|controller| is_counted(controller)).map(|one| one.queues.len()).sum();
    u32::try_from(queues).unwrap_or(u32::MAX)
}
