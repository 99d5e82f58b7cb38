//! Addresses as the connection manager takes and returns them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// A socket address in the C interface's form.
pub(super) struct RawAddress {
    storage: libc::sockaddr_storage,
}

impl RawAddress {
    pub(super) fn new(address: SocketAddr) -> RawAddress {
        // SAFETY: a structure of numbers.
        // JUSTIFICATION: it has private members, and no other way to make one.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let storage_pointer = &raw mut storage;
        match address {
            SocketAddr::V4(address) => {
                let raw = libc::sockaddr_in {
                    sin_family: family(libc::AF_INET),
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is large enough for every kind of address, and aligned.
                // JUSTIFICATION: the C interface has a family of structures with one pointer type.
                unsafe { storage_pointer.cast::<libc::sockaddr_in>().write(raw) };
            }
            SocketAddr::V6(address) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: family(libc::AF_INET6),
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                // SAFETY: as above.
                // JUSTIFICATION: as above.
                unsafe { storage_pointer.cast::<libc::sockaddr_in6>().write(raw) };
            }
        }
        RawAddress { storage }
    }

    /// Valid as long as this is borrowed.
    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.storage).cast()
    }
}

/// The address in `storage`; the unspecified one if there is none.
pub(super) fn decode(storage: &libc::sockaddr_storage) -> SocketAddr {
    let pointer: *const libc::sockaddr_storage = storage;
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which structure is in the storage, which is aligned for all.
            // JUSTIFICATION: as in `RawAddress::new`.
            let raw = unsafe { pointer.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            SocketAddr::new(IpAddr::V4(ip), u16::from_be(raw.sin_port))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            // JUSTIFICATION: as above.
            let raw = unsafe { pointer.cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            SocketAddrV6::new(ip, u16::from_be(raw.sin6_port), raw.sin6_flowinfo, raw.sin6_scope_id).into()
        }
        _ => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    }
}

fn family(family: libc::c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).expect("a small constant")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_there_and_back() {
        for text in ["10.0.2.15:4420", "0.0.0.0:0", "[fe80::1%3]:4420", "[2001:db8::7]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(decode(&RawAddress::new(address).storage), address);
        }
    }

    #[test]
    fn no_address_is_the_unspecified_one() {
        // SAFETY: a structure of numbers.
        // JUSTIFICATION: as in `RawAddress::new`.
        let storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        assert_eq!(decode(&storage), "0.0.0.0:0".parse().unwrap());
    }
}
