//! `list`, `list-subsys` and `show-topology`: the connections of this machine.

use std::process::ExitCode;

use ebof_attach::state::{Record, State, StateDir};
use ebof_nvme::Nsid;
use ebof_nvme::Sqe;
use ebof_nvme::identify::{Cns, IdentifyNamespace};
use ebof_nvme::opcode::admin;
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::Outcome;
use crate::global::Global;
use crate::output::attached::{Connected, DevicesView, Ranking, SubsystemsView, TopologyView};
use crate::output::{say, show, show_list};

/// Lists block devices.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct List {}

impl List {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let (controllers, given_up) = connected(None)?;
        show(global, &DevicesView { controllers, given_up })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Lists subsystems and their controllers.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ListSubsys {
    /// Only the subsystem of this device
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
    /// Only this subsystem
    #[arg(short = 'n', long, value_name = "NQN")]
    nqn: Option<String>,
}

impl ListSubsys {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let of_device = match &self.device {
            Some(device) => Some(subsystem_of(device)?),
            None => None,
        };
        let (mut controllers, given_up) = connected(self.nqn.as_deref())?;
        controllers.extend(given_up.into_iter().map(|state| Connected { state, used_blocks: Vec::new() }));
        controllers.retain(|controller| of_device.as_ref().is_none_or(|nqn| controller.state.subnqn == *nqn));
        show_list(global, &SubsystemsView { controllers })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Shows the topology of all subsystems.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ShowTopology {
    /// The order
    #[arg(short, long, value_enum, value_name = "ORDER", default_value_t = Ranking::Namespace)]
    ranking: Ranking,
}

impl ShowTopology {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let (mut controllers, given_up) = connected(None)?;
        controllers.extend(given_up.into_iter().map(|state| Connected { state, used_blocks: Vec::new() }));
        show_list(global, &TopologyView { controllers, ranking: self.ranking })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The subsystem of a device, also of one that was given up.
fn subsystem_of(device: &str) -> anyhow::Result<String> {
    match ebof_attach::open(device) {
        Ok(client) => Ok(client.info().subnqn.clone()),
        Err(ebof_attach::Error::GivenUp { name, .. }) => {
            let records = ebof_attach::list()?.into_iter().filter(|record| record.name == name);
            Ok(records.filter_map(|record| record.state).map(|state| state.subnqn).next().unwrap_or_default())
        }
        Err(error) => Err(error.into()),
    }
}

/// The connected controllers, and those that were given up. First cleans up after killed attach
/// daemons, and reports it.
fn connected(nqn: Option<&str>) -> anyhow::Result<(Vec<Connected>, Vec<State>)> {
    for repaired in ebof_attach::repair(&StateDir::standard())? {
        for action in &repaired.actions {
            say(&format!("{}: {action}", repaired.name));
        }
    }
    let wanted = |state: &State| nqn.is_none_or(|nqn| state.subnqn == nqn);
    let (live, dead): (Vec<Record>, Vec<Record>) = ebof_attach::list()?.into_iter().partition(|record| record.live);
    let given_up = dead.into_iter().filter(|record| record.given_up().is_some()).filter_map(|record| record.state);
    let given_up = given_up.filter(wanted).collect();
    let mut connected: Vec<Connected> =
        live.into_iter().filter_map(|record| record.state).filter(wanted).map(ask).collect();
    connected.extend(of_root().into_iter().filter(|other| wanted(&other.state)));
    Ok((connected, given_up))
}

/// Root's controllers, for other users.
fn of_root() -> Vec<Connected> {
    let Some(root) = StateDir::of_root_for_others() else { return Vec::new() };
    let others = others(&root);
    if !others.is_empty() {
        let names = others.iter().map(|other| other.state.name.as_str()).collect::<Vec<_>>().join(", ");
        say(&format!("{names}: connected by the superuser; commands to it need root (sudo ebof ...)"));
    }
    others
}

/// The states in another user's state directory, without contacting the attach daemons or cleaning
/// up.
fn others(states: &StateDir) -> Vec<Connected> {
    let records = states.records().unwrap_or_default().into_iter().filter(|record| record.live);
    records.filter_map(|record| record.state).map(|state| Connected { state, used_blocks: Vec::new() }).collect()
}

/// Queries the attach daemon for its state and the usage of its namespaces. If it does not answer,
/// the state in its file is used, so that the list does not fail because of one controller.
fn ask(mut state: State) -> Connected {
    let mut used_blocks = Vec::new();
    match ebof_attach::open(&state.name) {
        Ok(mut client) => {
            if let Ok(now) = client.status() {
                state = now.clone();
            }
            let live = state.state == "live";
            used_blocks = state
                .devices
                .iter()
                .map(|device| live.then(|| used(&mut client, Nsid(device.nsid))).flatten())
                .collect();
        }
        Err(error) => say(&format!("{}: {error}", state.name)),
    }
    Connected { state, used_blocks }
}

fn used(client: &mut ebof_attach::Client, nsid: Nsid) -> Option<u64> {
    let mut data = IdentifyNamespace::new_zeroed();
    let sqe = Sqe::new(admin::IDENTIFY).with_nsid(nsid).with_cdw(10, u32::from(Cns::NAMESPACE.0));
    let timeout = Some(std::time::Duration::from_secs(1));
    let cqe = client.admin(&sqe, ebof_initiator::AdminData::ToHost(data.as_mut_bytes()), timeout).ok()?;
    cqe.status().is_success().then(|| data.nuse.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_attach::Request;

    #[test]
    fn connections_of_another_user_are_listed_and_not_changed() {
        let directory = tempfile::tempdir().unwrap();
        let states = StateDir::at(directory.path());
        assert!(others(&states).is_empty());
        let guard = states.lock().unwrap();
        let (record, lock) = states.create(&guard, &Request::default()).unwrap();
        assert!(others(&states).is_empty(), "it is not ready");
        let state = crate::output::example_state(&record.name);
        std::fs::write(record.directory.join("state.json"), serde_json::to_vec(&state).unwrap()).unwrap();
        assert_eq!(others(&states)[0].state.name, record.name);
        drop(lock);
        assert!(others(&states).is_empty(), "its daemon is dead");
        assert!(record.directory.exists(), "who cleans up is its owner");
    }
}
