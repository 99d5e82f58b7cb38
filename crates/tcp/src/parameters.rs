//! What the two ends agree on when a connection is initialized, and small types that both ends
//! share.

/// Whether one end wants a digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Digest {
    /// Never: not offered, and not confirmed when the other end offers it.
    Refused,
    /// Used when the other end wants it. A host with this value does not ask for it.
    #[default]
    Allowed,
    /// The connection ends when the other end does not agree. A host with this value asks for it.
    Required,
}

/// What holds for the connection after ICReq and ICResp (NVMe/TCP, Initialize Connection).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// CRC32C behind every PDU header.
    pub header_digest: bool,
    /// CRC32C behind the data of every PDU that carries some.
    pub data_digest: bool,
    /// Alignment in bytes of the data in PDUs to the host (HPDA), 4 to 128.
    pub host_alignment: u32,
    /// Alignment in bytes of the data in PDUs to the controller (CPDA), 4 to 128.
    pub controller_alignment: u32,
    /// R2Ts that may be outstanding per command, at least 1 (MAXR2T, here a plain count).
    pub r2t_max: u32,
    /// Data bytes that one H2CData PDU may carry (MAXH2CDATA), at least 4096.
    pub h2c_data_max: u32,
}

/// The data digest that the caller sends directly behind a PDU's data; `None` where none was
/// negotiated.
pub type Trailer = Option<[u8; 4]>;
