//! NVMe/TCP without sockets
