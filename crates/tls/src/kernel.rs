//! The kernel's TLS (Linux, `Documentation/networking/tls.rst`): the calls that give it keys, and
//! those that send and receive records with their types.
//!
//! Owns the form of these calls, and all unsafe code for them: no library has the control message
//! by which the type of a record is set. When they are made, and what a record means, is in
//! `records/kernel.rs`. It keeps no keys, and erases what it has passed on.

use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::ptr;

use ebof_authentication::KeyMaterial;
use nix::errno::Errno;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::schedule::{self, RecordKey, Suite};

/// Why the kernel does not encrypt a connection. This process does it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotInKernel {
    /// It has no TLS, or the module is not loaded.
    #[error(
        "the kernel has no TLS, or has not loaded it: `modprobe tls` does that, as root, where there is the module"
    )]
    NoModule,
    /// It does not take keys for this suite.
    #[error("the kernel's TLS takes no keys for {suite} ({error})")]
    Suite {
        /// The suite.
        suite: Suite,
        /// Its error.
        error: Errno,
    },
    /// Something else is in the way.
    #[error("the kernel does not begin with TLS on this connection ({error})")]
    Refused {
        /// Its error.
        error: Errno,
    },
    /// What the peer sent with its last message of the handshake was read already.
    #[error("the peer sends data together with its handshake")]
    Early,
}

/// Which direction's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyDirection {
    Receive = libc::TLS_RX as isize,
    Send = libc::TLS_TX as isize,
}

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Bytes of it, all of records of the same type. None without a type are the end.
    pub(crate) bytes: usize,
    /// The type of the records.
    pub(crate) kind: Option<u8>,
    /// The last of them is complete.
    pub(crate) is_whole: bool,
}

/// Prepares a socket for keys. As long as it has none, nothing else changes.
pub(crate) fn attach(socket: &TcpStream) -> Result<(), NotInKernel> {
    set_option(socket, libc::SOL_TCP, libc::TCP_ULP, b"tls").map_err(|error| match error {
        Errno::ENOENT => NotInKernel::NoModule,
        error => NotInKernel::Refused { error },
    })
}

/// Gives the kernel a key. The next record of this direction has the number 0.
///
/// # Errors
/// `EBUSY`: there is one already, which this kernel does not change (before Linux 6.14).
pub(crate) fn set_key(
    socket: &TcpStream,
    direction: KeyDirection,
    suite: Suite,
    secret: &KeyMaterial,
) -> Result<(), Errno> {
    let RecordKey { key, iv } = schedule::record_key(suite, secret);
    // `struct tls12_crypto_info_aes_gcm_128` or `..._256`: version, cipher, iv, key, salt, rec_seq.
    let (salt, rest_of_iv) = iv.split_at(libc::TLS_CIPHER_AES_GCM_128_SALT_SIZE);
    let mut info = Zeroizing::new(Vec::with_capacity(64));
    info.extend_from_slice(&head(suite));
    for field in [rest_of_iv, key.bytes(), salt, &[0; libc::TLS_CIPHER_AES_GCM_128_REC_SEQ_SIZE]] {
        info.extend_from_slice(field);
    }
    set_option(socket, libc::SOL_TLS, direction as c_int, &info)
}

/// Whether the kernel can change the key of a socket that has one for this suite, when the protocol
/// is at that point. Changes nothing.
pub(crate) fn can_change_keys(socket: &TcpStream, suite: Suite) -> bool {
    let other = match suite {
        Suite::Aes128GcmSha256 => Suite::Aes256GcmSha384,
        Suite::Aes256GcmSha384 => Suite::Aes128GcmSha256,
    };
    // One that can refuses to change the suite; one that cannot does not look at that.
    let mut info = [0; size_of::<libc::tls12_crypto_info_aes_gcm_256>()];
    info[..4].copy_from_slice(&head(other));
    set_option(socket, libc::SOL_TLS, libc::TLS_TX, &info) == Err(Errno::EINVAL)
}

/// Tells the kernel that records are rarely padded, so that it decrypts them where they belong. It
/// repeats that where one is. Kernels before 6.0 do not know this.
pub(crate) fn expect_no_padding(socket: &TcpStream) {
    let _ = set_option(socket, libc::SOL_TLS, libc::TLS_RX_EXPECT_NO_PAD, &1_u32.to_ne_bytes());
}

/// `struct tls_crypto_info`.
fn head(suite: Suite) -> [u8; 4] {
    let cipher = match suite {
        Suite::Aes128GcmSha256 => libc::TLS_CIPHER_AES_GCM_128,
        Suite::Aes256GcmSha384 => libc::TLS_CIPHER_AES_GCM_256,
    };
    let [a, b] = libc::TLS_1_3_VERSION.to_ne_bytes();
    let [c, d] = cipher.to_ne_bytes();
    [a, b, c, d]
}

/// The control message with the type of a record, and its padding.
#[repr(C)]
struct RecordType {
    header: libc::cmsghdr,
    kind: u8,
}

// SAFETY: it computes a number.
// JUSTIFICATION: these are macros in C.
const _: () = assert!(unsafe { libc::CMSG_SPACE(1) } as usize == size_of::<RecordType>());

/// Bytes of the control message without padding.
const RECORD_TYPE_BYTES: usize = size_of::<libc::cmsghdr>() + 1;

/// The kernel takes no more parts in one call.
const PARTS_MAX: usize = 1024;

/// Receives what is there, of records of one type.
#[inline]
pub(crate) fn receive(socket: &TcpStream, parts: &mut [IoSliceMut<'_>]) -> Result<Piece, Errno> {
    let mut control = RecordType { header: header(0), kind: 0 };
    let mut message = message(&mut control);
    // `IoSliceMut` has the form of `iovec`.
    message.msg_iov = parts.as_mut_ptr().cast();
    message.msg_iovlen = parts.len().min(PARTS_MAX) as _;
    // SAFETY: the pointers are those of `parts`, which the kernel may write to, and of `control`,
    // with its size. Both outlive the call.
    // JUSTIFICATION: it takes pointers, and rustix knows no control messages of TLS.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let bytes = usize::try_from(Errno::result(received)?).unwrap_or(0);
    let is_type = message.msg_controllen >= RECORD_TYPE_BYTES
        && control.header.cmsg_level == libc::SOL_TLS
        && control.header.cmsg_type == libc::TLS_GET_RECORD_TYPE;
    let kind = is_type.then_some(control.kind);
    Ok(Piece { bytes, kind, is_whole: message.msg_flags & libc::MSG_EOR != 0 })
}

/// Sends a record of a type other than data.
pub(crate) fn send(socket: &TcpStream, kind: u8, content: &[u8]) -> Result<(), Errno> {
    let mut control = RecordType { header: header(RECORD_TYPE_BYTES), kind };
    control.header.cmsg_level = libc::SOL_TLS;
    control.header.cmsg_type = libc::TLS_SET_RECORD_TYPE;
    let parts = [IoSlice::new(content)];
    let mut message = message(&mut control);
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: the pointers are those of `parts`, which the kernel only reads, and of `control`,
    // with its size. Both outlive the call.
    // JUSTIFICATION: it takes pointers, and neither rustix nor nix has this control message.
    let sent =
        unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    // A record that is not taken as a whole is none.
    if Errno::result(sent)? == parts[0].len().try_into().unwrap_or(-1) { Ok(()) } else { Err(Errno::EAGAIN) }
}

fn header(bytes: usize) -> libc::cmsghdr {
    libc::cmsghdr { cmsg_len: bytes as _, cmsg_level: 0, cmsg_type: 0 }
}

/// Without address and parts.
fn message(control: &mut RecordType) -> libc::msghdr {
    // SAFETY: it is a structure of C with numbers and pointers, for which zero is valid.
    // JUSTIFICATION: it has private padding with some C libraries, and cannot be written out.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = ptr::from_mut(control).cast();
    message.msg_controllen = size_of::<RecordType>() as _;
    message
}

fn set_option(socket: &TcpStream, level: c_int, name: c_int, value: &[u8]) -> Result<(), Errno> {
    let length = value.len().try_into().map_err(|_| Errno::EINVAL)?;
    // SAFETY: the kernel reads `value`, with its length.
    // JUSTIFICATION: it takes a pointer. nix has these options, for structures whose copies it does
    // not erase.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    Errno::result(set).map(drop)
}
