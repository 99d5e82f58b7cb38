//! The settings of this machine that the speed of NVMe over Fabrics depends on: what they are, what
//! is recommended and why ([`survey`]), how they are changed, and how that is undone
//! ([0079](../../../docs/adr/0079-tune.md)).
//!
//! Everything goes through a [`Machine`]: `/proc` and `/sys` below a directory, and the kernel's
//! interface for network cards. What is read there is text of unknown origin: it is bounded, and
//! nothing in it causes a panic.
//!
//! No printing, no arguments, no clock.

#![forbid(unsafe_code)]

mod apply;
mod cores;
mod files;
mod knob;
mod machine;
mod name;
mod netlink;
mod record;
mod report;
mod survey;
mod system;
mod tunable;
mod whose;

pub use apply::{SettingStep, StepOutcome, apply, undo};
pub use cores::Cores;
pub use files::Files;
pub use knob::{Knob, Sysctl};
pub use machine::{Channels, Coalescing, Machine, Pause};
pub use name::{Name, NotAName};
pub use record::{CHANGES_MAX, ChangeRecord, RecordError, Recorded};
pub use report::{Report, Setting, State};
pub use survey::{Goal, Interrupts, MTU_MAX, MTU_MIN, SurveyError, SurveyOptions, survey};
pub use system::System;
pub use tunable::Tunable;
pub use whose::Whose;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
