//! A remote namespace as a local block device
