//! Figures as others see them: metrics as text, what objects did second by second, what functions
//! have had.
//!
//! Counts nothing itself: that is [`crate::observe`]'s matter.

pub(crate) mod function_load;
pub(crate) mod metrics;
pub(crate) mod sampling;
