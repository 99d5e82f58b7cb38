//! The program, as the Redfish service sees it: where it listens, how it is started again, its
//! machine.

use std::path::Path;
use std::sync::Arc;

use ebof_manage::api::Source;
use ebof_redfish::{Doors, MachineSize, NetworkInterface, Program};

use super::machine;
use crate::managed::Managed;
use crate::rights::restart;

/// The program around a target.
pub(super) struct Around(pub(super) Arc<Managed>);

impl Program for Around {
    fn doors(&self) -> Doors {
        self.0.reloads.doors().shown()
    }

    fn forgets(&self) -> Option<String> {
        let (reloads, target) = (&self.0.reloads, &self.0.target);
        match reloads.started_with().compared(target) {
            Source::State { .. } | Source::File { differs: Some(false), .. } => None,
            Source::File { path, differs: None, problem } => {
                let problem = problem.unwrap_or_default();
                Some(format!("A new start cannot read the configuration in {path}: {problem}."))
            }
            Source::File { path, .. } => Some(format!(
                "What was changed since the start is in force and not in {path}, so that a new start would not serve it."
            )),
            Source::Arguments if reloads.is_as_started() => None,
            Source::Arguments => Some(
                "What was changed since the start is in force and not on the command line, so that a new start would not \
                 serve it."
                    .to_owned(),
            ),
        }
    }

    fn restart(&self, by: &str) -> Result<(), String> {
        restart::ask(by)
    }

    fn interfaces(&self) -> Vec<NetworkInterface> {
        machine::interfaces(Path::new("/"))
    }

    fn machine(&self) -> MachineSize {
        machine::size(Path::new("/"))
    }
}
