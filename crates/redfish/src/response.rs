//! What responses have in common: annotations, links, collections and status of resources, health,
//! messages and problems, times, entity tags.
//!
//! Knows addresses, and neither the target nor what is asked. Which messages there are is also
//! written for clients, in [`crate::documents`].

pub(crate) mod etag;
pub(crate) mod head;
pub(crate) mod health;
pub(crate) mod message;
pub(crate) mod time;
