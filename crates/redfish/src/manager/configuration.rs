//! The configuration in force: what it is, what another one would change, and putting that in
//! force.

use ebof_manage::Diagnostics;
use ebof_manage::api::{Desired, Disturbed, Generation, Planned, PlannedChange, Revision, SENT_TEXT_BYTES_MAX, Source};
use ebof_manage::config::Port;
use ebof_manage::edit::{Edit, Edits};
use ebof_manage::plan::Effect;
use http::StatusCode;
use serde::{Deserialize as _, Serialize};

use crate::area::demand::{Demand, Preview};
use crate::area::{ChangeRequest, Done};
use crate::managed::view::View;
use crate::place::ManagerPlace;
use crate::request::input::Input;
use crate::response::head::{Head, ResourceAction, json};
use crate::response::message::{Message, Problem, Severity};
use crate::response::time::date_time;

/// `EbofConfiguration`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ConfigurationResource {
    #[serde(flatten)]
    head: Head,
    revision: String,
    /// `Arguments`, `File`.
    source: &'static str,
    file: Option<String>,
    /// Whether the file says something else than what is in force.
    differs: Option<bool>,
    problem: Option<String>,
    #[serde(rename = "TOML")]
    toml: String,
    /// Also those that hosts cannot reach: disabled ones, and those that are missing.
    ports: Vec<PortResource>,
    /// The latest first, and the one in force before all.
    generations: Vec<GenerationResource>,
    actions: Actions,
}

/// `EbofConfiguration.Generation`: a configuration that is or was in force, and can be again.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct GenerationResource {
    /// As the actions take it.
    generation: String,
    revision: String,
    created: String,
    /// Who asked for it, and by what.
    cause: String,
    changes: Vec<String>,
    changes_left_out: usize,
}

impl GenerationResource {
    fn new(of: Generation) -> Self {
        Self {
            generation: of.generation.to_string(),
            revision: of.revision.to_string(),
            created: date_time(of.at_unix_ms),
            cause: of.cause.to_string(),
            changes: of.changes,
            changes_left_out: of.changes_left_out,
        }
    }
}

/// `EbofConfiguration.Port`: a port of the configuration.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PortResource {
    name: String,
    listen: String,
    enabled: bool,
    /// Those that are not optimized.
    ana_groups: Vec<AnaGroup>,
}

/// `EbofConfiguration.AnaGroup`: the state of an ANA group at a port.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct AnaGroup {
    group: u32,
    state: &'static str,
}

impl PortResource {
    fn new(of: &Port) -> Self {
        let ana_groups = of.ana.iter().map(|(group, state)| AnaGroup { group, state: state.name() }).collect();
        Self { name: of.name.clone(), listen: of.listen.to_string(), enabled: of.enabled, ana_groups }
    }
}

#[derive(Serialize)]
struct Actions {
    #[serde(rename = "#EbofConfiguration.Plan")]
    plan: ResourceAction,
    #[serde(rename = "#EbofConfiguration.Apply")]
    apply: ResourceAction,
    #[serde(rename = "#EbofConfiguration.Edit")]
    edit: ResourceAction,
}

impl ConfigurationResource {
    pub(super) fn new(view: &View<'_>) -> Result<Self, Problem> {
        let configurations = &view.parts.configurations;
        let configuration = configurations.configuration()?;
        let (source, file, differs, problem) = match configuration.source {
            Source::Arguments => ("Arguments", None, None, None),
            Source::State { path } => ("State", Some(path), Some(false), None),
            Source::File { path, differs, problem } => ("File", Some(path), differs, problem),
        };
        Ok(Self {
            head: Head::new(
                ManagerPlace::Configuration,
                "#EbofConfiguration.v1_0_0.EbofConfiguration",
                "Configuration",
                "What the target serves, as its configuration file says it",
            ),
            revision: configuration.revision.to_string(),
            source,
            file,
            differs,
            problem,
            toml: configuration.toml,
            ports: view.config().ports.iter().map(PortResource::new).collect(),
            generations: configurations.generations().into_iter().rev().map(GenerationResource::new).collect(),
            actions: Actions {
                plan: ResourceAction::new(ManagerPlace::Plan),
                apply: ResourceAction::new(ManagerPlace::Apply),
                edit: ResourceAction::new(ManagerPlace::Edit),
            },
        })
    }
}

/// Takes the configuration that a body has, as text.
fn desired(input: &mut Input, action: &str) -> Desired {
    let toml = input.long_text("TOML", SENT_TEXT_BYTES_MAX);
    let text = input.long_text("JSON", SENT_TEXT_BYTES_MAX);
    let generation = input.text("Generation");
    let forms = [("TOML", toml.is_some()), ("JSON", text.is_some()), ("Generation", generation.is_some())];
    let sent: Vec<&str> = forms.into_iter().filter_map(|(name, is_sent)| is_sent.then_some(name)).collect();
    match sent.as_slice() {
        [_] => {}
        [] => drop(input.parameter::<()>(action, "TOML", None)),
        [one, other, ..] => input.mistake(other, Message::parameter_conflict(one, other)),
    }
    let (base, name) = (input.text("Base"), input.text("FileName"));
    Desired { toml, json: text, generation, base, name, promise: None }
}

/// What a plan would do.
pub(super) fn plan(mut input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
    let desired = desired(&mut input, "EbofConfiguration.Plan");
    input.finish(None)?;
    let planned = request.parts.configurations.plan(desired)?;
    Ok(Done::Answer(json(&PlanResponse::new(&planned))))
}

/// What `EbofConfiguration.Apply` takes: a configuration, and the revision that it was planned
/// from.
fn applied(mut input: Input) -> Result<(Desired, Revision), Problem> {
    const ACTION: &str = "EbofConfiguration.Apply";
    let desired = desired(&mut input, ACTION);
    let revision = input.text("Revision");
    let revision = input.parameter(ACTION, "Revision", revision).unwrap_or_default();
    input.finish(None)?;
    Ok((desired, Revision::named(revision)))
}

/// What applying one would change.
pub(super) fn preview(input: Input, view: &View<'_>) -> Result<Preview, Problem> {
    let (desired, revision) = applied(input)?;
    let planned = view.parts.configurations.plan(desired)?;
    if planned.revision != revision {
        let why = "another configuration is in force than the one of this revision";
        let advice = "Read the configuration again, and plan from its Revision.";
        let message = Message::own("ChangeOutdated", Severity::Warning, why, advice);
        return Err(Problem::new(StatusCode::CONFLICT, message.about("/Revision")));
    }
    Ok(Preview::Configuration(Box::new(planned)))
}

/// `EbofConfiguration.Edit`: what the configuration in force becomes by edits of its objects, in
/// the form that they have on the control socket.
pub(super) fn edited(mut input: Input, view: &View<'_>) -> Result<Demand, Problem> {
    let base = input.text("Base");
    let listed = input.list("Edits");
    let listed = input.parameter("EbofConfiguration.Edit", "Edits", listed).unwrap_or_default();
    let mut edits = Vec::new();
    for (at, value) in listed.iter().enumerate() {
        match Edit::deserialize(value) {
            Ok(edit) => edits.push(edit),
            Err(error) => {
                let advice = "Send what the description of the action has, such as {\"edit\": \"disable\", \"object\": \
                              {\"port\": \"fabric0\"}}.";
                let message = Message::own("ConfigurationRefused", Severity::Warning, error.to_string(), advice);
                input.mistake(&format!("Edits/{at}"), message);
            }
        }
    }
    input.finish(None)?;
    let edits = Edits { edits, base, promise: None };
    let loaded = edits.made_to(view.config()).map_err(|refused| {
        let places: Vec<Option<usize>> = refused.mistakes.iter().map(|mistake| mistake.change).collect();
        let mut problem = Problem::from(refused);
        for (message, place) in problem.messages.iter_mut().zip(places) {
            if let Some(at) = place {
                *message = message.clone().about(&format!("/Edits/{at}"));
            }
        }
        problem
    })?;
    Ok(Demand::configuration(loaded.config, None))
}

pub(super) fn apply(input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
    let (desired, revision) = applied(input)?;
    let user = request.caller.user.as_ref().ok_or_else(Problem::forbidden)?;
    let from = request.caller.peer.ip().to_canonical();
    let applied = request.parts.configurations.apply(&revision, desired, user, from);
    let applied = applied?;
    Ok(Done::Answer(json(&ApplyResponse {
        kind: "#EbofConfiguration.v1_0_0.ApplyResponse",
        revision: applied.revision.to_string(),
        changes: applied.plan.iter().map(PlanChange::new).collect(),
        remarks: remarks(&applied.remarks),
    })))
}

/// `EbofConfiguration.PlanResponse`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PlanResponse {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    /// What the plan starts from.
    revision: String,
    /// To be sent with `Apply`, as its header `Ebof-Plan`.
    plan_revision: String,
    changes: Vec<PlanChange>,
    disturbed: Vec<PlanDisturbed>,
    disturbed_left_out: usize,
    remarks: Vec<String>,
}

/// `EbofConfiguration.ApplyResponse`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ApplyResponse {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    revision: String,
    changes: Vec<PlanChange>,
    remarks: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PlanChange {
    text: String,
    effect: &'static str,
    obstacle: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PlanDisturbed {
    change: usize,
    #[serde(rename = "HostNQN")]
    host_nqn: String,
    #[serde(rename = "SubsystemNQN")]
    subsystem_nqn: String,
    controller_id: u16,
    port: String,
    why: String,
}

impl PlanResponse {
    fn new(planned: &Planned) -> Self {
        let disturbed = |one: &Disturbed| PlanDisturbed {
            change: one.change,
            host_nqn: one.host_nqn.clone(),
            subsystem_nqn: one.subsystem_nqn.clone(),
            controller_id: one.cntlid,
            port: one.port.clone(),
            why: one.why.clone(),
        };
        Self {
            kind: "#EbofConfiguration.v1_0_0.PlanResponse",
            revision: planned.revision.to_string(),
            plan_revision: planned.answer_revision().to_string(),
            changes: planned.plan.iter().map(PlanChange::new).collect(),
            disturbed: planned.disturbed.iter().map(disturbed).collect(),
            disturbed_left_out: planned.disturbed_left_out,
            remarks: remarks(&planned.remarks),
        }
    }
}

impl PlanChange {
    fn new(change: &PlannedChange) -> Self {
        Self { text: change.text.clone(), effect: effect(change.effect), obstacle: change.obstacle.clone() }
    }
}

/// As a member of `EbofConfiguration.Effect`.
const fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Live => "Live",
        Effect::NewConnections => "NewConnections",
        Effect::Disruptive => "Disruptive",
        Effect::Restart => "Restart",
        Effect::Impossible => "Impossible",
    }
}

fn remarks(diagnostics: &Diagnostics) -> Vec<String> {
    if diagnostics.is_empty() { Vec::new() } else { vec![diagnostics.to_string()] }
}
