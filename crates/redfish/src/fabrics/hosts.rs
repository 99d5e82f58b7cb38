//! Hosts of the configuration: endpoints that are initiators.

use ebof_manage::config::Host;
use ebof_manage::enclosure::Attachee;

use super::endpoint::Party;
use crate::area::demand::{Creates, Demand};
use crate::managed::view::View;
use crate::place::FabricKind;
use crate::request::input::Input;
use crate::response::message::{Message, Problem, Severity};

/// A host is described, so that subsystems can allow it: an endpoint with its NQN.
pub(super) fn add(mut input: Input, view: &View<'_>) -> Result<Demand, Problem> {
    input.one_of("EndpointProtocol", &[(FabricKind::Nvmeof.protocol(), ())]);
    let own = identifiers(&mut input);
    let entities = input.objects("ConnectedEntities", |entity| {
        entity.one_of("EntityType", &[("StorageInitiator", ())]);
        let role = entity.one_of("EntityRole", &[("Initiator", ())]);
        entity.required("EntityRole", role);
        identifiers(entity)
    });
    let given: Vec<String> = own.into_iter().chain(entities.into_iter().flatten().flatten()).flatten().collect();
    let nqn = match given.as_slice() {
        [first, rest @ ..] if rest.iter().all(|other| other == first) => Some(first.clone()),
        [] => input.required("Identifiers", None),
        _ => {
            let why = "an endpoint is one host";
            input.mistake("Identifiers", Message::property_error("Identifiers", why, "Send one NQN"));
            None
        }
    };
    let parsed = nqn.as_deref().and_then(described);
    if let (Some(nqn), None) = (&nqn, &parsed) {
        let accepted = "an NQN: nqn.2014-08.org.example:host";
        input.mistake("Identifiers", Message::property_value("DurableName", &nqn.as_str().into(), accepted));
    }
    input.finish(None)?;
    let nqn = nqn.unwrap_or_default();
    let mut config = view.config().clone();
    if config.hosts.iter().any(|host| host.nqn.as_str() == nqn) {
        return Err(Problem::bad_request(Message::resource_exists("Endpoint", "Identifiers", &nqn)));
    }
    config.hosts.extend(parsed);
    Ok(Demand::configuration(config, Some(Creates::Host(nqn))))
}

/// A host as the configuration describes it; `None` if a text is no NQN.
pub(super) fn described(nqn: &str) -> Option<Host> {
    match nqn.parse() {
        Ok(Attachee::Host(nqn)) => Some(Host::new(nqn)),
        _ => None,
    }
}

/// The NQNs among identifiers.
fn identifiers(input: &mut Input) -> Option<Vec<String>> {
    let all = input.objects("Identifiers", |identifier| {
        identifier.one_of("DurableNameFormat", &[("NQN", ())]);
        let name = identifier.text("DurableName");
        identifier.required("DurableName", name)
    });
    all.map(|all| all.into_iter().flatten().collect())
}

/// A host is not described any more. One that a subsystem allows has to lose its connections first.
pub(super) fn remove(party: &Party<'_>, input: Input, view: &View<'_>) -> Result<Demand, Problem> {
    input.finish(None)?;
    let Party::Host(at) = party else { return Err(Problem::cannot_be_deleted()) };
    let nqn = view.names().hosts.get(*at).map_or("", String::as_str);
    let mut config = view.config().clone();
    if !config.hosts.iter().any(|host| host.nqn.as_str() == nqn) {
        let message =
            format!("{nqn} is not in the configuration: it is shown because it is connected, or has a namespace");
        let advice = "Delete the connections that let it in, or detach its namespaces.";
        return Err(Problem::bad_request(Message::own("ChangeRefused", Severity::Warning, message, advice)));
    }
    let used: Vec<&str> = config
        .subsystems
        .iter()
        .filter(|subsystem| subsystem.allowed_hosts.iter().any(|host| host.as_str() == nqn))
        .map(|subsystem| subsystem.nqn.as_str())
        .collect();
    if !used.is_empty() {
        let message = format!("{nqn} may connect to {}", used.join(", "));
        let advice = "Delete those connections first.";
        return Err(Problem::bad_request(Message::own("ChangeConflicts", Severity::Warning, message, advice)));
    }
    config.hosts.retain(|host| host.nqn.as_str() != nqn);
    Ok(Demand::configuration(config, None))
}
