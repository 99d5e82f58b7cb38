//! Loads against local devices and over NVMe/TCP.

mod fabric;
mod local;
