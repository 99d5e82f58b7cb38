//! The management of a target as a Redfish service (DSP0266, with Swordfish's resources of an
//! Ethernet-attached bunch of flash).
//!
//! Owns resources, their addresses ([`Place`]), queries, changes, privileges and error messages. A
//! request goes in, a response comes out: sockets, TLS and authentication are its caller's, and
//! what a change does is `ebof_manage`'s, which this crate only translates
//! ([0074](../../../docs/adr/0074-redfish.md)).
//!
//! The tree is divided into areas, each in a folder or file of its own: an area parses and writes
//! its addresses, reads its resources, says who may change them, and changes them ([`area::Area`]).
//! Resources are structs that are made from a [`View`], the state of the target at one moment.
#![forbid(unsafe_code)]

mod accounts;
mod area;
mod caller;
mod certificates;
mod chassis;
mod etag;
mod events;
mod fabrics;
mod head;
mod id;
mod input;
mod manager;
mod message;
mod names;
mod place;
mod plan;
mod query;
mod registries;
mod root;
mod schemas;
mod service;
mod sessions;
mod storage;
mod tasks;
mod telemetry;
mod time;
mod update;
mod view;
mod wanted;

pub use caller::Caller;
pub use certificates::{CertificateSubject, Certificates, NoCertificates, ShownCertificate};
pub use events::{Delivery, Feed, Outcome, Piece, Subscriptions};
pub use manager::Configurations;
pub use place::Place;
pub use service::{Body, Parts, Service};
pub use view::View;

/// The box of the integration tests is walked by those of the schemas, too.
#[cfg(test)]
#[allow(dead_code, reason = "what the integration tests need")]
#[path = "../tests/it/fixture.rs"]
mod fixture;

#[cfg(test)]
extern crate self as ebof_redfish;
