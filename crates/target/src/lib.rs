//! The target's I/O: threads, sockets and buffers
