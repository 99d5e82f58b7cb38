//! `list` and `list-subsys`: what this machine is connected to.

use std::process::ExitCode;

use ebof_attach::state::StateDir;
use ebof_nvme::Nsid;
use ebof_nvme::Sqe;
use ebof_nvme::identify::{Cns, IdentifyNamespace};
use ebof_nvme::opcode::admin;
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::Outcome;
use crate::global::Global;
use crate::output::attached::{Connected, ListView, SubsystemsView};
use crate::output::{say, show};

/// Lists block devices.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct List {}

impl List {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        show(global, &ListView { controllers: connected(None)? })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Lists subsystems and the ways to them.
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
            Some(device) => Some(ebof_attach::open(device)?.info().subnqn.clone()),
            None => None,
        };
        let mut controllers = connected(self.nqn.as_deref())?;
        controllers.retain(|controller| of_device.as_ref().is_none_or(|nqn| controller.state.subnqn == *nqn));
        show(global, &SubsystemsView { controllers })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The connected controllers. First cleans up behind holders that were killed, and says so.
fn connected(nqn: Option<&str>) -> anyhow::Result<Vec<Connected>> {
    for repaired in ebof_attach::repair(&StateDir::standard())? {
        for action in &repaired.actions {
            say(&format!("{}: {action}", repaired.name));
        }
    }
    let records = ebof_attach::list()?.into_iter().filter(|record| record.live);
    let states = records.filter_map(|record| record.state);
    let states = states.filter(|state| nqn.is_none_or(|nqn| state.subnqn == nqn));
    Ok(states.map(ask).collect())
}

/// Asks the holder for its state as of now and for the use of its namespaces; what it wrote last where it does not
/// answer, so that a list is never refused for the sake of one.
fn ask(mut state: ebof_attach::state::State) -> Connected {
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
