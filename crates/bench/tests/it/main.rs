//! Loads against local devices and over NVMe/TCP.

mod accuracy;
mod fabric;
mod local;
