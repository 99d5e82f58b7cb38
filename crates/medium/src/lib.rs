//! A drive's medium: thin namespaces cut from one backing device, and the journal that keeps them.
//!
//! Owns the order of writes on the backing device, the thread that does what is not on the quick way (allocation, journal,
//! background work), and the devices through which namespaces are read and written. What the records mean is in
//! `ebof-drive`; it knows no command, no queue and no socket.
#![forbid(unsafe_code)]
