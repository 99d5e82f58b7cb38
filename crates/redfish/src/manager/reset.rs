//! `Manager.Reset`: the service is started again, and with it the target. Nothing of the box is
//! reset: hosts lose their connections, and come back.

use ebof_manage::api::{ControllerStatus, Peer};
use http::StatusCode;

use crate::area::demand::Restart;
use crate::area::{ChangeRequest, Done};
use crate::managed::view::View;
use crate::request::input::Input;
use crate::response::message::{Message, Problem, Severity};

/// How it is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// If nothing is lost by that.
    Graceful,
    /// In any case, though as gracefully.
    Force,
}

/// The accepted values of `ResetType`.
pub(super) const KINDS: [&str; 2] = ["GracefulRestart", "ForceRestart"];

/// What says that something would be lost.
const FORCE: &str = "The reset type ForceRestart does it all the same.";

/// What a restart does, and why it is refused.
pub(super) fn preview(mut input: Input, view: &View<'_>) -> Result<Restart, Problem> {
    let kind = reset_kind(&mut input);
    input.finish(None)?;
    let (memory, forgets) = (in_memory(view), view.parts.program.forgets());
    let mut changes = vec!["start the service again".to_owned()];
    changes.extend(forgets.clone());
    changes.extend(memory.iter().map(|object| format!("lose the data of {object}, which are in memory")));
    let refused = if kind == Kind::Force { Vec::new() } else { refusals(&memory, forgets, view) };
    let controllers = view.status().controllers.iter().filter(|controller| !controller.discovery);
    let disturbed = controllers.map(|controller| (controller.clone(), why(controller))).collect();
    Ok(Restart { changes, disturbed, destroys_data: !memory.is_empty(), refused })
}

/// Starts the service again.
pub(super) fn reset(input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
    let restart = preview(input, request.view)?;
    if !restart.refused.is_empty() {
        return Err(Problem::with_messages(StatusCode::CONFLICT, restart.refused));
    }
    request.parts.program.restart(&request.asker().to_string()).map_err(|why| {
        let advice = "Start it again as it was started: `systemctl restart ebof`.";
        Problem::new(StatusCode::CONFLICT, Message::own("NotRestarted", Severity::Warning, why, advice))
    })?;
    Ok(Done::Made)
}

fn reset_kind(input: &mut Input) -> Kind {
    let kinds = [(KINDS[0], Kind::Graceful), (KINDS[1], Kind::Force)];
    input.one_of("ResetType", &kinds).unwrap_or(Kind::Graceful)
}

/// What would be lost, each with what to do.
fn refusals(memory: &[String], forgets: Option<String>, view: &View<'_>) -> Vec<Message> {
    let refused = |message: String, advice: &str| {
        Message::own("NotRestarted", Severity::Warning, message, format!("{advice} {FORCE}"))
    };
    let mut all: Vec<Message> = memory
        .iter()
        .map(|object| refused(format!("The data of {object} are in memory, and would be lost."), "Copy them."))
        .collect();
    let direct = view.status().controllers.iter().filter(|controller| controller.peer == Peer::Direct);
    all.extend(direct.map(|controller| {
        let (host, port) = (&controller.host_nqn, &controller.port);
        let message = format!("The virtual machine at port {port} ({host}) would lose its device.");
        refused(message, "It gets the device again when it is started anew: stop it first.")
    }));
    all.extend(forgets.map(|why| refused(why, "Store the configuration, or go by a state directory.")));
    let running = view.parts.enclosure.tasks().into_iter().filter(|task| !task.is_over());
    all.extend(
        running.map(|task| refused(format!("Task {} is running: {}.", task.id, task.what), "Wait until it has ended.")),
    );
    all
}

/// The objects whose data only this process has.
fn in_memory(view: &View<'_>) -> Vec<String> {
    let is_memory = |backing: &str| backing.starts_with("mem:");
    let drives = view.inventory().drives.iter().filter(|drive| is_memory(&drive.backing));
    let drives = drives.map(|drive| format!("drive {}", drive.name));
    let plain = view.status().subsystems.iter().flat_map(|subsystem| {
        let own = subsystem.namespaces.iter().filter(|namespace| is_memory(&namespace.drive));
        own.map(|namespace| format!("namespace {} of {}", namespace.nsid, subsystem.nqn))
    });
    drives.chain(plain).collect()
}

/// What a host notices.
fn why(controller: &ControllerStatus) -> String {
    match controller.peer {
        Peer::Direct => "its virtual machine loses the device, until it is started anew".to_owned(),
        _ => "its connection ends, and its commands wait until it has connected again".to_owned(),
    }
}
