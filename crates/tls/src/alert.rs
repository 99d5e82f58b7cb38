//! Alerts of TLS (RFC 8446, 6): their numbers, names, and what they mean for whoever configures
//! pre-shared keys.

use std::fmt;
use std::io::Write as _;
use std::net::TcpStream;

/// What one end of a connection tells the other when it ends it. Of TLS 1.3's numbers; others may
/// come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert(pub u8);

impl Alert {
    /// Nothing more is sent.
    pub const CLOSE_NOTIFY: Self = Self(0);
    /// A message or record that does not belong there.
    pub const UNEXPECTED_MESSAGE: Self = Self(10);
    /// A record that cannot be decrypted.
    pub const BAD_RECORD_MAC: Self = Self(20);
    /// A record that is too long.
    pub const RECORD_OVERFLOW: Self = Self(22);
    /// There is nothing that both ends can do.
    pub const HANDSHAKE_FAILURE: Self = Self(40);
    /// A field is not legal.
    pub const ILLEGAL_PARAMETER: Self = Self(47);
    /// A message cannot be decoded.
    pub const DECODE_ERROR: Self = Self(50);
    /// A binder or Finished is wrong.
    pub const DECRYPT_ERROR: Self = Self(51);
    /// No common version.
    pub const PROTOCOL_VERSION: Self = Self(70);
    /// Something else went wrong.
    pub const INTERNAL_ERROR: Self = Self(80);
    /// An extension that is needed is not there.
    pub const MISSING_EXTENSION: Self = Self(109);
    /// No key of this name.
    pub const UNKNOWN_PSK_IDENTITY: Self = Self(115);
    pub(crate) const USER_CANCELED: Self = Self(90);

    /// What is in its record (RFC 8446, 6): close_notify is a warning, all others are fatal.
    pub(crate) fn record(self) -> [u8; 2] {
        [if self == Self::CLOSE_NOTIFY { 1 } else { 2 }, self.0]
    }

    /// Its name in RFC 8446.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        TABLE.iter().find(|(number, ..)| *number == self.0).map(|(_, name, _)| *name)
    }

    /// Tells a peer why there is no connection before there are keys, if there is room for that.
    pub fn send_in_the_clear(self, mut socket: &TcpStream) {
        // RFC 8446, 5.1 and 6: alert, legacy version, length; fatal.
        let _ = socket.write(&[21, 3, 3, 0, 2, 2, self.0]);
    }

    /// What to look at when a peer refuses a handshake with it.
    pub(crate) fn advice(self) -> &'static str {
        TABLE.iter().find(|(number, ..)| *number == self.0).map_or(OTHER, |(.., advice)| *advice)
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (alert {})", self.name().unwrap_or("an unknown alert"), self.0)
    }
}

const OTHER: &str = "its log tells why";
const KEY: &str = "it has no key for this identity, or another one: compare the configured keys of both ends, and \
                   remember that nvme-cli 2.x derives the key for TLS in its own way";
const IDENTITY: &str = "it has no key for this identity: configure the key of this host and subsystem there, with the \
                        same hash and version of the identity";
const NOTHING_COMMON: &str = "it accepts none of what was offered: it has no key for this identity, its key has \
                              another hash (SHA-256 goes with TLS_AES_128_GCM_SHA256, SHA-384 with \
                              TLS_AES_256_GCM_SHA384), or it wants certificates";
const CERTIFICATES: &str = "it wants certificates, and NVMe/TCP uses pre-shared keys: configure one there";

/// RFC 8446, 6: number, name, and what it means for pre-shared keys.
const TABLE: [(u8, &str, &str); 27] = [
    (0, "close_notify", "it does not want this connection; its log tells why"),
    (10, "unexpected_message", OTHER),
    (20, "bad_record_mac", KEY),
    (22, "record_overflow", OTHER),
    (40, "handshake_failure", NOTHING_COMMON),
    (42, "bad_certificate", CERTIFICATES),
    (43, "unsupported_certificate", CERTIFICATES),
    (44, "certificate_revoked", CERTIFICATES),
    (45, "certificate_expired", CERTIFICATES),
    (46, "certificate_unknown", CERTIFICATES),
    // Deviation: OpenSSL 3 sends this for a wrong binder.
    (47, "illegal_parameter", KEY),
    (48, "unknown_ca", CERTIFICATES),
    (49, "access_denied", "it does not allow this host"),
    (50, "decode_error", OTHER),
    (51, "decrypt_error", KEY),
    (70, "protocol_version", "it does not speak TLS 1.3"),
    (71, "insufficient_security", "it accepts neither of NVMe/TCP's cipher suites"),
    (80, "internal_error", OTHER),
    (86, "inappropriate_fallback", OTHER),
    (90, "user_canceled", OTHER),
    (109, "missing_extension", "it does not use pre-shared keys with (EC)DHE"),
    (110, "unsupported_extension", OTHER),
    (112, "unrecognized_name", OTHER),
    (113, "bad_certificate_status_response", CERTIFICATES),
    (115, "unknown_psk_identity", IDENTITY),
    (116, "certificate_required", CERTIFICATES),
    (120, "no_application_protocol", OTHER),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_have_names_and_the_table_is_in_order() {
        assert!(TABLE.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(Alert::DECRYPT_ERROR.to_string(), "decrypt_error (alert 51)");
        assert_eq!(Alert(200).to_string(), "an unknown alert (alert 200)");
        assert_eq!(Alert::UNKNOWN_PSK_IDENTITY.advice(), IDENTITY);
        assert_eq!(Alert(200).advice(), OTHER);
    }
}
