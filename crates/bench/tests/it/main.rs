//! Loads against local devices and over NVMe/TCP.

mod fabric;
mod fair;
mod local;
