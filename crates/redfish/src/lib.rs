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
//! the target at one moment, and refer to each other by addresses only. So no folder needs one that
//! is above it here, and those of areas, `chassis` to `documents`, do not need each other:
//!
//! | folder | what is in it |
//! |---|---|
//! | `service` | a request's way through all checks; the list of areas |
//! | `chassis` | the box, its drives, ports and sensors; its machine as a system |
//! | `storage` | NVM subsystems, their controllers and volumes |
//! | `fabrics` | endpoints, zones and connections: what is offered where, to whom |
//! | `manager` | the service itself: protocols, configuration, logs, restart; tasks; firmware |
//! | `access` | accounts, roles, sessions, the certificate of HTTPS; keys of hosts |
//! | `events` | subscriptions and streams, how they are delivered; metrics |
//! | `documents` | the root, schemas, OpenAPI, registries of messages and privileges |
//! | `area` | what an area is; what a request asks for, carried out or planned |
//! | `managed` | parts of the service, the view of them, names, what is missing, subscriptions |
//! | `request` | who asks, queries, bodies |
//! | `response` | annotations, links, health, messages and problems, times, entity tags |
//! | `place` | addresses, methods, privileges; identifiers, types |
#![forbid(unsafe_code)]

mod access;
mod area;
mod chassis;
mod documents;
mod events;
mod fabrics;
mod managed;
mod manager;
mod place;
mod request;
mod response;
mod service;
mod storage;

pub use access::sessions::report_denied;
pub use events::{Delivery, Feed, Outcome, Piece};
pub use managed::parts::{
    Audited, AuditedRecord, CertificateSubject, Certificates, Configurations, Door, Doors, MachineSize,
    NetworkInterface, NoAudit, NoCertificates, NoKeys, NoProgram, Parts, Program, ShownCertificate,
};
pub use managed::subscriptions::Subscriptions;
pub use managed::view::View;
pub use place::Place;
pub use request::caller::Caller;
pub use response::message::Login;
pub use service::{Body, Service};

/// The box of the integration tests is walked by those of the schemas, too.
#[cfg(test)]
#[allow(dead_code, reason = "what the integration tests need")]
#[path = "../tests/it/fixture.rs"]
mod fixture;

#[cfg(test)]
extern crate self as ebof_redfish;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
