//! The resource that an event is about.

use ebof_manage::events::Event;

use crate::place::{AccountPlace, ChassisPlace, ManagerPlace, Place, SessionPlace, TaskPlace};
use crate::view::View;

/// The resource that an event is about: that of its object, or of its kind.
pub(super) fn origin(event: &Event, view: &View<'_>) -> Place {
    let name = event.kind.name();
    let of = |prefix: &str| name.starts_with(prefix);
    if of("task") {
        return TaskPlace::Tasks.into();
    }
    if of("session") {
        return SessionPlace::Sessions.into();
    }
    if of("account") {
        return AccountPlace::Accounts.into();
    }
    if of("configuration") {
        return ManagerPlace::Configuration.into();
    }
    let drive = event.object.split('/').next().unwrap_or_default();
    if view.drive(drive).is_some() {
        return ChassisPlace::Drive(drive.to_owned()).into();
    }
    ManagerPlace::Manager.into()
}
