//! The public interface of the crate: every device on every engine.

#[cfg(test)]
mod common;
#[cfg(test)]
mod file;
#[cfg(test)]
mod flight;
#[cfg(test)]
mod model;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod registered;
#[cfg(test)]
mod remote;
