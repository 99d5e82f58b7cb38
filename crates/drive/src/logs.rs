//! What a drive keeps for its log pages: errors, events, health and telemetry.

pub mod error_log;
pub mod event_log;
pub mod health;
pub mod telemetry;
