//! What the service tells of itself: its root, versions and OData documents, schemas and OpenAPI,
//! registries of messages and privileges.
//!
//! All of it follows from addresses, types and messages; nothing here can be changed.

mod registries;
mod root;
mod schemas;
