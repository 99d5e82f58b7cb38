//! What a request would change, and whom it would disturb: the action `EbofManager.PlanChanges`.
//! Nothing is changed.

use std::collections::BTreeSet;

use ebof_manage::api::Planned;
use ebof_manage::enclosure::{Attachee, Change, FunctionName, HostObject, Inventory, Transaction, check};
use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::area::{Area, Change as Request, Done};
use crate::demand::{Demand, Preview, What};
use crate::head::json;
use crate::input::Input;
use crate::message::{Message, Problem, Severity};
use crate::place::{Place, PlanPlace};
use crate::view::View;
use crate::wanted::checked;

/// The most hosts of an answer.
const DISTURBED_MAX: usize = 1000;

impl Area for PlanPlace {
    fn read(&self, _view: &View<'_>) -> Result<Value, Problem> {
        Err(self.missing())
    }

    fn change(&self, _method: &Method, input: Input, request: &Request<'_>) -> Result<Done, Problem> {
        let (method, place, body) = asked(input)?;
        let refused = |problem: Problem| Planning { refused: problem.messages, ..Planning::default() };
        let planned = plan(&method, &place, Input::of(body), request).transpose();
        let planned = planned.ok_or_else(|| nothing(&method, &place))?.unwrap_or_else(refused);
        Ok(Done::Answer(json(&planned)))
    }
}

/// The plan of a request; `None` if there is nothing to plan. Who may not make it learns no more
/// than that: a plan may tell of files.
fn plan(method: &Method, place: &Place, body: Input, request: &Request<'_>) -> Result<Option<Planning>, Problem> {
    let user = request.caller.user.as_ref().ok_or_else(Problem::forbidden)?;
    if !place.permits(method, user) {
        return Err(Problem::forbidden());
    }
    match (request.area)(place).preview(method, body, request.view)? {
        Preview::Nothing => Ok(None),
        Preview::Demand(demand) if demand.privilege().is_some_and(|needed| !user.may(needed)) => {
            Err(Problem::forbidden())
        }
        Preview::Demand(demand) => Planning::new(&demand, request.view).map(Some),
        Preview::Configuration(planned) => Ok(Some(Planning::of_configuration(*planned))),
    }
}

/// That a request changes nothing that is planned, and what can be.
fn nothing(method: &Method, place: &Place) -> Problem {
    let message = format!("{method} {place} changes neither the box nor its configuration: there is nothing to plan.");
    let advice = "Send the request itself. What can be planned: requests that create, change, format, attach or delete \
                  volumes; that change controllers, zones, connections and endpoints; that add, remove, erase, reset or \
                  test drives; UpdateService.Activate and EbofConfiguration.Apply.";
    let message = Message::own("NothingToPlan", Severity::Warning, message, advice).about("/Target");
    Problem::new(StatusCode::NOT_IMPLEMENTED, message)
}

/// The request that is planned.
fn asked(mut input: Input) -> Result<(Method, Place, Map<String, Value>), Problem> {
    let methods = [("POST", &Method::POST), ("PATCH", &Method::PATCH), ("DELETE", &Method::DELETE)];
    let method = input.one_of("Method", &methods);
    let method = input.parameter(PlanPlace::NAME, "Method", method);
    let target = input.text("Target");
    let target = input.parameter(PlanPlace::NAME, "Target", target);
    let place = target.as_deref().and_then(Place::parse);
    if let (Some(target), None) = (&target, &place) {
        input.mistake("Target", Message::resource_missing(target));
    }
    let body = match input.any("Body") {
        None => Map::new(),
        Some(Value::Object(body)) => body,
        Some(other) => {
            input.mistake("Body", Message::property_type("Body", &other, "an object: the body of the request"));
            Map::new()
        }
    };
    let found = method.zip(place);
    if let Some((method, place)) = &found
        && !place.methods().contains(method)
    {
        input.mistake("Method", Message::operation_not_allowed(method.as_str()));
    }
    input.finish(None)?;
    // Whatever is missing has been reported.
    let (method, place) = found.ok_or_else(|| Problem::bad_request(Message::no_operation()))?;
    Ok((method.clone(), place, body))
}

/// The answer.
#[derive(Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Planning {
    changes: Vec<String>,
    disturbed: Vec<Disturbed>,
    disturbed_left_out: usize,
    destroys_data: bool,
    refused: Vec<Message>,
}

/// A connected host that notices.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Disturbed {
    #[serde(rename = "HostNQN")]
    host_nqn: String,
    #[serde(rename = "SubsystemNQN")]
    subsystem_nqn: String,
    controller_id: u16,
    port: String,
    why: String,
}

impl Planning {
    fn new(wanted: &Demand, view: &View<'_>) -> Result<Self, Problem> {
        match &wanted.what {
            What::Changes(changes) => Ok(Self::of_box(changes, view)),
            What::Configuration(config) => {
                checked(config)?;
                let planned = Planned::new(
                    view.config(),
                    config.as_ref().clone(),
                    view.status(),
                    ebof_manage::Diagnostics::default(),
                );
                Ok(Self::of_configuration(planned))
            }
        }
    }

    fn of_configuration(planned: Planned) -> Self {
        let obstacles = planned.plan.iter().filter_map(|change| {
            let advice = "Change the file, and start the target again.";
            let message = format!("{}: {}", change.text, change.obstacle.as_ref()?);
            Some(Message::own("ConfigurationRefused", Severity::Warning, message, advice))
        });
        Self {
            refused: obstacles.collect(),
            changes: planned.plan.iter().map(|change| change.text.clone()).collect(),
            disturbed: planned
                .disturbed
                .into_iter()
                .map(|one| Disturbed {
                    host_nqn: one.host_nqn,
                    subsystem_nqn: one.subsystem_nqn,
                    controller_id: one.cntlid,
                    port: one.port,
                    why: one.why,
                })
                .collect(),
            disturbed_left_out: planned.disturbed_left_out,
            destroys_data: false,
        }
    }

    fn of_box(changes: &[Change], view: &View<'_>) -> Self {
        let inventory = view.inventory();
        let transaction = Transaction { changes: changes.to_vec(), drain_ms: None };
        let mut refused = match check(inventory, &transaction) {
            Ok(()) => Vec::new(),
            Err(refused) => Problem::from(refused).messages,
        };
        for change in changes {
            if let Change::AddDrive(new) = change
                && let Err(mistakes) = new.add_to(view.config())
            {
                refused.extend(Problem::from(ebof_manage::enclosure::Refused { mistakes }).messages);
            }
        }
        let mut found = Found::default();
        changes.iter().for_each(|change| found.note(inventory, change));
        let left_out = found.all.len().saturating_sub(DISTURBED_MAX);
        found.all.truncate(DISTURBED_MAX);
        Self {
            changes: changes.iter().map(ToString::to_string).collect(),
            disturbed: found.all,
            disturbed_left_out: left_out,
            destroys_data: changes.iter().any(Change::destroys_data),
            refused,
        }
    }
}

/// Whom changes disturb, each controller once.
#[derive(Default)]
struct Found {
    all: Vec<Disturbed>,
    known: BTreeSet<(String, u16)>,
}

impl Found {
    fn add(&mut self, subsystem: &str, host: &HostObject, why: &str) {
        if self.known.insert((subsystem.to_owned(), host.cntlid)) {
            self.all.push(Disturbed {
                host_nqn: host.nqn.clone(),
                subsystem_nqn: subsystem.to_owned(),
                controller_id: host.cntlid,
                port: host.port.clone(),
                why: why.to_owned(),
            });
        }
    }

    fn function(&mut self, inventory: &Inventory, name: &FunctionName, why: &str) {
        if let Some(function) = inventory.function(name) {
            function.hosts.iter().for_each(|host| self.add(&function.nqn, host, why));
        }
    }

    /// All hosts of a drive, or only those of its functions.
    fn drive(&mut self, inventory: &Inventory, name: &str, why: &str, functions_only: bool) {
        let Some(drive) = inventory.drive(name) else { return };
        if !functions_only {
            drive.hosts.iter().for_each(|host| self.add(&drive.nqn, host, why));
        }
        drive.functions.iter().for_each(|function| self.function(inventory, &function.name, why));
    }

    fn note(&mut self, inventory: &Inventory, change: &Change) {
        match change {
            Change::Assign { function, port: None } => {
                self.function(inventory, function, "its connection ends: the function is at no port any more");
            }
            Change::Assign { .. } => {}
            Change::Move { function, to } => {
                let why = format!("its connection ends: the function goes to port {to}, where it can connect again");
                self.function(inventory, function, &why);
            }
            Change::ResetDrive { drive } => {
                self.drive(inventory, drive, "its connection ends: the function goes offline", true);
            }
            Change::RemoveDrive { drive, .. } => {
                self.drive(inventory, drive, "its connection ends: the drive is removed", false);
            }
            Change::SanitizeDrive(sanitize) => {
                self.drive(inventory, &sanitize.drive, "all data of the drive are lost", false);
            }
            Change::DetachNamespace { namespace, from } => {
                let why = format!("it loses {namespace}");
                match from {
                    Attachee::Function(function) => self.function(inventory, function, &why),
                    Attachee::Host(nqn) => self.hosts(inventory, &namespace.drive, Some(nqn.as_str()), &why),
                    Attachee::Everyone => self.hosts(inventory, &namespace.drive, None, &why),
                }
            }
            Change::Map { namespace, function } => {
                let kept = function.as_ref();
                self.holders(inventory, namespace, kept, &format!("it loses {namespace}"));
            }
            Change::DeleteNamespace { namespace } => {
                self.holders(inventory, namespace, None, &format!("{namespace} and its data are gone"));
            }
            Change::FormatNamespace(format) => {
                let why = format!("the data of {} are lost", format.namespace);
                self.holders(inventory, &format.namespace, None, &why);
            }
            Change::WriteProtect { namespace, on: true } => {
                self.holders(inventory, namespace, None, &format!("it cannot write to {namespace} any more"));
            }
            _ => {}
        }
    }

    /// Hosts of a drive's own subsystem.
    fn hosts(&mut self, inventory: &Inventory, drive: &str, nqn: Option<&str>, why: &str) {
        let Some(drive) = inventory.drive(drive) else { return };
        let hosts = drive.hosts.iter().filter(|host| nqn.is_none_or(|nqn| host.nqn == nqn));
        hosts.for_each(|host| self.add(&drive.nqn, host, why));
    }

    /// Everybody who has a namespace, except for one function.
    fn holders(
        &mut self,
        inventory: &Inventory,
        namespace: &ebof_manage::enclosure::NamespaceName,
        kept: Option<&FunctionName>,
        why: &str,
    ) {
        let Some(drive) = inventory.drive(&namespace.drive) else { return };
        let Some(own) = drive.namespaces.iter().find(|one| one.name == *namespace) else { return };
        let functions = own.functions.iter().filter(|function| Some(*function) != kept);
        functions.for_each(|function| self.function(inventory, function, why));
        let all = own.hosts.iter().any(|host| host == "*");
        let has = |host: &&HostObject| all || own.hosts.contains(&host.nqn);
        drive.hosts.iter().filter(has).for_each(|host| self.add(&drive.nqn, host, why));
    }
}
