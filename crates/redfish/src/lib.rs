//! The management of a target as a Redfish service (DSP0266, with Swordfish's resources of an
//! Ethernet-attached bunch of flash).
//!
//! Owns resources, their addresses ([`Place`]), queries, changes, privileges and error messages. A
//! request goes in, a response comes out: sockets, TLS and authentication are its caller's, and
//! what a change does is `ebof_manage`'s, which this crate only translates
//! ([0074](../../../docs/adr/0074-redfish.md)).
//!
//! The tree is divided into areas, each with two files or folders: its addresses, with their
//! methods and who may use them, are below [`Place`]; an area itself reads its resources and
//! changes them ([`area::Area`]). Resources are structs that are made from a [`View`], the state of
//! the target at one moment, and refer to each other by addresses only. So the modules depend on
//! each other in one direction: addresses, what all resources have in common, the view, areas, the
//! service.
#![forbid(unsafe_code)]

mod accounts;
mod area;
mod caller;
mod certificates;
mod chassis;
mod demand;
mod etag;
mod events;
mod fabrics;
mod head;
mod health;
mod id;
mod input;
mod kinds;
mod manager;
mod message;
mod missing;
mod names;
mod objects;
mod parts;
mod place;
mod plan;
mod query;
mod registries;
mod root;
mod schemas;
mod service;
mod sessions;
mod site;
mod storage;
mod subscriptions;
mod systems;
mod tasks;
mod telemetry;
mod time;
mod tree;
mod update;
mod view;
mod wanted;

pub use caller::Caller;
pub use events::{Delivery, Feed, Outcome, Piece};
pub use message::Login;
pub use parts::{
    CertificateSubject, Certificates, Configurations, Door, Doors, MachineSize, NetworkInterface, NoCertificates,
    NoProgram, Parts, Program, ShownCertificate,
};
pub use place::Place;
pub use service::{Body, Service};
pub use sessions::report_denied;
pub use subscriptions::Subscriptions;
pub use view::View;

/// The box of the integration tests is walked by those of the schemas, too.
#[cfg(test)]
#[allow(dead_code, reason = "what the integration tests need")]
#[path = "../tests/it/fixture.rs"]
mod fixture;

#[cfg(test)]
extern crate self as ebof_redfish;
