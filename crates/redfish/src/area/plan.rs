//! What a request would change, and whom it would disturb: the action `EbofManager.PlanChanges`.
//! Nothing is changed.

use ebof_manage::api::{ControllerStatus, DISTURBED_MAX, KeyStatus, KeysChange, Planned};
use ebof_manage::enclosure::{Change, ChangePlan, DisturbedHost, Transaction, check};
use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::area::carry_out::checked;
use crate::area::demand::{Demand, Preview, Restart, What};
use crate::area::{Area, ChangeRequest, Done};
use crate::managed::view::View;
use crate::place::{Place, PlanPlace};
use crate::request::input::Input;
use crate::response::etag;
use crate::response::head::json;
use crate::response::message::{Message, Problem, Severity};

impl Area for PlanPlace {
    fn read(&self, _view: &View<'_>) -> Result<Value, Problem> {
        Err(self.missing())
    }

    fn change(&self, _method: &Method, input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        let (method, place, body) = planned_request(input)?;
        let refused = |problem: Problem| Planning { refused: problem.messages, ..Planning::default() };
        let planned = plan(&method, &place, Input::from_properties(body), request).transpose();
        let planned = planned.ok_or_else(|| nothing_to_plan(&method, &place))?.unwrap_or_else(refused);
        Ok(Done::Answer(json(&planned)))
    }
}

/// The plan of a request; `None` if there is nothing to plan. Who may not make it learns no more
/// than that: a plan may tell of files.
fn plan(method: &Method, place: &Place, body: Input, request: &ChangeRequest<'_>) -> Result<Option<Planning>, Problem> {
    let user = request.caller.user.as_ref().ok_or_else(Problem::forbidden)?;
    if !place.permits(method, user) {
        return Err(Problem::forbidden());
    }
    match (request.area)(place).preview(method, body, request.view)? {
        Preview::Nothing => Ok(None),
        Preview::Demand(demand) if demand.privilege(user).is_some_and(|needed| !user.may(needed)) => {
            Err(Problem::forbidden())
        }
        Preview::Demand(demand) => Planning::new(&demand, request.view).map(Some),
        Preview::Configuration(planned) => Ok(Some(Planning::of_configuration(*planned))),
        Preview::Keys(planned) => Ok(Some(Planning::of_keys(*planned))),
        Preview::Restart(restart) => Ok(Some(Planning::of_restart(*restart))),
    }
}

/// The revision of the plan of a request; `None` if there is nothing to plan.
pub(crate) fn revision(
    method: &Method,
    place: &Place,
    body: Input,
    request: &ChangeRequest<'_>,
) -> Result<Option<String>, Problem> {
    Ok(plan(method, place, body, request)?.and_then(|planned| planned.revision))
}

/// That a request changes nothing that is planned, and what can be.
fn nothing_to_plan(method: &Method, place: &Place) -> Problem {
    let message = format!("{method} {place} changes neither the box nor its configuration: there is nothing to plan.");
    let advice = "Send the request itself. What can be planned: requests that create, change, format, attach or delete \
                  volumes; that change controllers, zones, connections and endpoints; that add, remove, erase, reset or \
                  test drives; that add and remove keys of hosts; UpdateService.Activate, EbofConfiguration.Apply, EbofConfiguration.Edit, \
                  ManagerNetworkProtocol and Manager.Reset.";
    let message = Message::own("NothingToPlan", Severity::Warning, message, advice).about("/Target");
    Problem::new(StatusCode::NOT_IMPLEMENTED, message)
}

/// The action.
const ACTION: &str = "EbofManager.PlanChanges";

/// The request that is planned.
fn planned_request(mut input: Input) -> Result<(Method, Place, Map<String, Value>), Problem> {
    let methods = [("POST", &Method::POST), ("PATCH", &Method::PATCH), ("DELETE", &Method::DELETE)];
    let method = input.one_of("Method", &methods);
    let method = input.parameter(ACTION, "Method", method);
    let target = input.text("Target");
    let target = input.parameter(ACTION, "Target", target);
    let place = target.as_deref().and_then(Place::parse);
    if let (Some(target), None) = (&target, &place) {
        input.mistake("Target", Message::resource_missing(target));
    }
    let body = match input.value("Body") {
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
    // A missing method or target is a mistake: `finish` has failed then.
    let (method, place) = found.ok_or_else(|| Problem::bad_request(Message::no_operation()))?;
    Ok((method.clone(), place, body))
}

/// The answer.
#[derive(Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Planning {
    /// To be sent with the request, as its header `Ebof-Plan`: it is refused if the plan is another
    /// one by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
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

impl From<DisturbedHost> for Disturbed {
    fn from(one: DisturbedHost) -> Self {
        let DisturbedHost { host_nqn, subsystem_nqn, cntlid, port, why } = one;
        Self { host_nqn, subsystem_nqn, controller_id: cntlid, port, why }
    }
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

    fn of_keys(planned: KeysChange) -> Self {
        let KeysChange { revision, added, removed, disturbed, disturbed_left_out, notes, .. } = planned;
        let told = |what: &str, KeyStatus { id, host, kind, .. }: &KeyStatus| {
            let id = id.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
            format!("{what} key{id} ({kind}) of host {host}")
        };
        let changes = added.iter().map(|key| told("add", key)).chain(removed.iter().map(|key| told("remove", key)));
        Self {
            revision: Some(revision.to_string()),
            changes: changes.chain(notes).collect(),
            disturbed: disturbed.into_iter().map(Disturbed::from).collect(),
            disturbed_left_out,
            ..Self::default()
        }
    }

    fn of_restart(restart: Restart) -> Self {
        let Restart { changes, disturbed, destroys_data, refused } = restart;
        let shown = |(controller, why): (ControllerStatus, String)| Disturbed {
            host_nqn: controller.host_nqn,
            subsystem_nqn: controller.subsystem_nqn,
            controller_id: controller.cntlid,
            port: controller.port,
            why,
        };
        let disturbed_left_out = disturbed.len().saturating_sub(DISTURBED_MAX);
        let disturbed: Vec<Disturbed> = disturbed.into_iter().map(shown).collect();
        // The revision covers all hosts, also those that are left out of the answer.
        let tag = etag::compute(&json(&(&changes, &disturbed)));
        let disturbed = disturbed.into_iter().take(DISTURBED_MAX).collect();
        let revision = Some(tag.trim_matches('"').to_owned());
        Self { revision, changes, disturbed, disturbed_left_out, destroys_data, refused }
    }

    fn of_configuration(planned: Planned) -> Self {
        let obstacles = planned.plan.iter().filter_map(|change| {
            let advice = "Change the file, and start the target again.";
            let message = format!("{}: {}", change.text, change.obstacle.as_ref()?);
            Some(Message::own("ConfigurationRefused", Severity::Warning, message, advice))
        });
        Self {
            revision: Some(planned.answer_revision().to_string()),
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
        let transaction = Transaction { changes: changes.to_vec(), ..Transaction::default() };
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
        let ChangePlan { revision, changes, disturbed, disturbed_left_out, destroys_data, .. } =
            ChangePlan::new(inventory, changes);
        Self {
            revision: Some(revision.to_string()),
            changes,
            disturbed: disturbed.into_iter().map(Disturbed::from).collect(),
            disturbed_left_out,
            destroys_data,
            refused,
        }
    }
}
