//! All areas of the tree. What needs another area than its own gets this from the service
//! ([`ChangeRequest::area`](crate::area::ChangeRequest::area)).

use crate::area::Area;
use crate::place::Place;

/// The area that an address is in.
pub(crate) fn area(place: &Place) -> &dyn Area {
    match place {
        Place::Root(place) => place,
        Place::Chassis(place) => place,
        Place::Session(place) => place,
        Place::Account(place) => place,
        Place::Task(place) => place,
        Place::Manager(place) => place,
        Place::Event(place) => place,
        Place::Telemetry(place) => place,
        Place::Certificate(place) => place,
        Place::Key(place) => place,
        Place::Update(place) => place,
        Place::Registry(place) => place,
        Place::Schema(place) => place,
        Place::Storage(place) => place,
        Place::System(place) => place,
        Place::Fabrics(place) => place,
        Place::Plan(place) => place,
    }
}
