//! Block devices: bytes at offsets
