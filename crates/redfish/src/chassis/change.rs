//! What drives are made to do: to be added, sanitized, tested and taken away.

use ebof_manage::enclosure::{
    Change, DriveDetails, DriveObject, NewDrive, SanitizeAction, SanitizeDrive, SelfTestKind,
};
use serde_json::Value;

use super::drive::{sanitization, sanitizations};
use crate::area::demand::Demand;
use crate::managed::view::View;
use crate::request::input::Input;
use crate::response::message::{Message, Problem};

/// `EbofChassis.AddDrive`: the keys of `[[drives]]` of a configuration, and of its subsystem.
pub(super) fn add_drive(mut input: Input) -> Result<Demand, Problem> {
    const ACTION: &str = "EbofChassis.AddDrive";
    let name = input.text("DriveName");
    let name = input.parameter(ACTION, "DriveName", name);
    let backing = input.text("Backing");
    let backing = input.parameter(ACTION, "Backing", backing);
    let options = input.value("Options");
    let nqn = input.text("NQN");
    let ports = input.texts("Ports");
    let allowed_hosts = input.texts("AllowedHosts").unwrap_or_default();
    let allow_any_host = input.flag("AllowAnyHost").unwrap_or_default();
    let mut drive = match options {
        None => serde_json::Map::new(),
        Some(Value::Object(options)) => options,
        Some(other) => {
            let accepted = "an object with the keys that [[drives]] of a configuration has";
            input.mistake("Options", Message::property_type("Options", &other, accepted));
            serde_json::Map::new()
        }
    };
    input.finish(None)?;
    for (key, value) in [("name", name), ("backing", backing)] {
        drive.insert(key.to_owned(), value.unwrap_or_default().into());
    }
    Ok(Demand::change(Change::AddDrive(NewDrive { drive, nqn, ports, allowed_hosts, allow_any_host })))
}

/// `Drive.SecureErase`.
pub(super) fn secure_erase(drive: &DriveObject, mut input: Input, view: &View<'_>) -> Result<Demand, Problem> {
    let details = view.details(&drive.name);
    let able: Vec<(&str, SanitizeAction)> =
        [SanitizeAction::CryptoErase, SanitizeAction::BlockErase, SanitizeAction::Overwrite]
            .into_iter()
            .filter_map(|action| Some((sanitization(action)?, action)))
            .filter(|(name, _)| can(details.as_deref(), name))
            .collect();
    let is_named = input.has("SanitizationType");
    let action = input.one_of("SanitizationType", &able);
    let passes = input.number("OverwritePasses", 1..=16);
    // The default is the fastest type after which no data can be read.
    let action = action.or_else(|| able.first().filter(|_| !is_named).map(|(_, action)| *action));
    if action.is_none() && !is_named {
        let message = Message::property_error("SanitizationType", "the drive can do none now", "Look at its health");
        input.mistake("SanitizationType", message);
    }
    input.finish(None)?;
    let action = action.unwrap_or(SanitizeAction::BlockErase);
    Ok(Demand::change(Change::SanitizeDrive(SanitizeDrive {
        drive: drive.name.clone(),
        action,
        passes,
        pattern: None,
        invert: false,
        allow_exit_after_failure: false,
    })))
}

fn can(details: Option<&DriveDetails>, name: &str) -> bool {
    sanitizations(details).contains(&name)
}

/// `EbofDrive.Remove`.
pub(super) fn remove_drive(drive: &DriveObject, mut input: Input) -> Result<Demand, Problem> {
    let surprise = input.flag("Surprise").unwrap_or_default();
    input.finish(None)?;
    Ok(Demand::change(Change::RemoveDrive { drive: drive.name.clone(), surprise }))
}

/// `EbofDrive.SelfTest`.
pub(super) fn self_test(drive: &DriveObject, mut input: Input) -> Result<Demand, Problem> {
    let kinds = [("Short", SelfTestKind::Short), ("Extended", SelfTestKind::Extended), ("Abort", SelfTestKind::Abort)];
    let kind = input.one_of("Kind", &kinds);
    let kind = input.parameter("EbofDrive.SelfTest", "Kind", kind);
    input.finish(None)?;
    let kind = kind.unwrap_or(SelfTestKind::Short);
    Ok(Demand::change(Change::SelfTest { drive: drive.name.clone(), kind }))
}
