//! Loads as their users see them, against local devices and over NVMe/TCP.

mod fabric;
mod local;
