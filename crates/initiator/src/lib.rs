//! The host's I/O: connect, queue pairs, reconnect
