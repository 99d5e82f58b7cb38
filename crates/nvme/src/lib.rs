//! The words of NVMe on the wire
