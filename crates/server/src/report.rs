//! Figures and events as others see them: metrics as text, what objects did second by second, what
//! functions have had, the words of events.
//!
//! Counts nothing itself: that is [`crate::observe`]'s matter.

mod events;
pub(crate) mod function_load;
pub(crate) mod metrics;
pub(crate) mod sampling;
