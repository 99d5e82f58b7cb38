//! From the configuration in force to another, as one transaction
//! ([0029](../../../../docs/adr/0029-reload.md)).
//!
//! ```text
//! note      what files are about to be made or made larger, for a start after a crash
//! sort      what is the same stays; what is free is taken, beside all that is served
//! release   what has to be released first is hidden from hosts, its requests end, it is closed
//! take      what stood in its way is gone: take it
//! keep      store the configuration, if there is somebody who does
//! commit    show hosts what there is, what goes before what comes; or
//! go back   take what was released again, show hosts what there was
//! ```
//! Nothing that hosts can see has changed before the second step, and nothing at all if nothing has
//! to be released and a step fails.

use std::sync::PoisonError;

use ebof_manage::api::{ApplyError, Cause, ConfigStore, ConfigStoreError, Revision};
use ebof_manage::plan::Effect;
use ebof_manage::{Config, Plan};

use self::transaction::{Purpose, Reload};
use crate::life::contradictions;
use crate::life::in_force::InForce;
use crate::life::interrupted;
use crate::life::serve::Target;
use crate::life::stored::Stored;
use crate::shared::reports;

mod deferred;
mod failure;
mod files;
mod leaving;
mod shown;
mod taken;
mod transaction;

/// Makes the target what `desired` says.
pub(crate) fn apply(target: &Target, cause: &Cause, desired: Config) -> Result<Plan, ApplyError> {
    apply_with(target, cause, |_current| Ok(desired))
}

/// The same if `revision` is in force.
pub(crate) fn apply_to(
    target: &Target,
    cause: &Cause,
    revision: &Revision,
    desired: Config,
) -> Result<Plan, ApplyError> {
    apply_with(target, cause, |current| {
        let current = Revision::from_config(current);
        if current == *revision {
            return Ok(desired);
        }
        Err(ApplyError::Outdated { planned: revision.clone(), current })
    })
}

/// Takes what is missing of the configuration in force, as far as it is there now. Nothing else is
/// touched or looked at.
pub(crate) fn find_missing(target: &Target, cause: &Cause) -> Result<Plan, ApplyError> {
    let _alone = target.changing.lock().unwrap_or_else(PoisonError::into_inner);
    let before = target.in_force().clone();
    let (config, missing) = (before.config.clone(), before.missing.clone());
    let found = change(target, cause, before, config, Purpose::Find);
    target.report_found_since(&missing);
    found
}

/// Makes the target what `desired` makes of the configuration in force, which nothing else changes
/// meanwhile.
pub(crate) fn apply_with<E: From<ApplyError>>(
    target: &Target,
    cause: &Cause,
    desired: impl FnOnce(&Config) -> Result<Config, E>,
) -> Result<Plan, E> {
    let _alone = target.changing.lock().unwrap_or_else(PoisonError::into_inner);
    let before = target.in_force().clone();
    let desired = desired(&before.config)?;
    let missing = before.missing.clone();
    let applied = change(target, cause, before, desired, Purpose::Change);
    reports::applied(&target.shared, &applied, &cause.by);
    target.report_found_since(&missing);
    Ok(applied?)
}

fn change(
    target: &Target,
    cause: &Cause,
    before: InForce,
    mut desired: Config,
    purpose: Purpose,
) -> Result<Plan, ApplyError> {
    desired.keep_numbers(&before.config);
    let mut plan = Plan::between(&before.config, &desired);
    refuse(&plan)?;
    let files = note(target, &before.config, &desired)?;
    let old = before.config.clone();
    let mut reload = Reload::new(target, (&old, &desired), before, purpose);
    let prepared = reload.sort().and_then(|()| reload.release()).and_then(|()| reload.take());
    let outcome = match prepared.and_then(|()| reload.check()) {
        Ok(()) if reload.has_found_nothing() => {
            target.in_force().missing = reload.take_still_missing();
            Ok(plan)
        }
        Ok(()) => {
            if let Err(error) = reload.keep(&plan, cause) {
                let lost = reload.go_back();
                Err(failure::not_stored(error, lost))
            } else {
                let grown = reload.commit(&plan);
                target.shared.slow.set_threshold(desired.target.slow_threshold);
                let state = target.in_force();
                contradictions::log(&state.devices, &state.ports, &state.config);
                drop(state);
                plan.changes.extend(grown);
                Ok(plan)
            }
        }
        Err(error) => {
            let lost = reload.go_back();
            Err(failure::report(&plan, error, lost))
        }
    };
    // Where it is not known what is stored, the next start finds out.
    if let (Some(store), true) = (files, !matches!(outcome, Err(ApplyError::Unknown { .. }))) {
        store.forget();
    }
    outcome
}

/// Notes the changes of files that are about to be made. Gives who has to forget them.
fn note<'t>(target: &'t Target, old: &Config, new: &Config) -> Result<Option<&'t dyn ConfigStore>, ApplyError> {
    let Some(store) = target.store().map(Stored::store) else { return Ok(None) };
    let changes = interrupted::changes(old, new);
    if changes.is_empty() {
        return Ok(None);
    }
    store.intend(&changes).map_err(|error| {
        let (ConfigStoreError::NotStored(source) | ConfigStoreError::Unknown(source)) = error;
        ApplyError::NotStored { source, lost: Vec::new() }
    })?;
    Ok(Some(store))
}

/// What cannot change while the target runs.
fn refuse(plan: &Plan) -> Result<(), ApplyError> {
    let with = |effect| plan.changes.iter().filter(|change| change.effect() == effect).cloned().collect::<Vec<_>>();
    let impossible = with(Effect::Impossible);
    let restart = with(Effect::Restart);
    if !impossible.is_empty() {
        return Err(ApplyError::Impossible { changes: impossible });
    }
    if restart.is_empty() { Ok(()) } else { Err(ApplyError::NeedsRestart { changes: restart }) }
}
