//! Reservations: the dwords and the data of Register, Acquire, Release and Report. Who holds what
//! is decided elsewhere.
//!
//! NVMe Base 2.1, "Reservation Register command" and the three that follow it.

use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::Sqe;
use crate::command::opcode::nvm;
use crate::identify::field::rescap;
use crate::name::id::{ControllerId, Nsid};
use crate::table::values;

/// Reservation Type (RTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReservationType {
    /// 1: Write Exclusive.
    WriteExclusive,
    /// 2: Exclusive Access.
    ExclusiveAccess,
    /// 3: Write Exclusive - Registrants Only.
    WriteExclusiveRegistrants,
    /// 4: Exclusive Access - Registrants Only.
    ExclusiveAccessRegistrants,
    /// 5: Write Exclusive - All Registrants.
    WriteExclusiveAll,
    /// 6: Exclusive Access - All Registrants.
    ExclusiveAccessAll,
}

impl ReservationType {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrants,
        Self::ExclusiveAccessRegistrants,
        Self::WriteExclusiveAll,
        Self::ExclusiveAccessAll,
    ];

    /// From RTYPE; `None` for 0, which is no reservation, and for what no specification names.
    #[must_use]
    pub const fn decode(rtype: u8) -> Option<Self> {
        Some(match rtype {
            1 => Self::WriteExclusive,
            2 => Self::ExclusiveAccess,
            3 => Self::WriteExclusiveRegistrants,
            4 => Self::ExclusiveAccessRegistrants,
            5 => Self::WriteExclusiveAll,
            6 => Self::ExclusiveAccessAll,
            _ => return None,
        })
    }

    /// To RTYPE.
    #[must_use]
    pub const fn encode(self) -> u8 {
        match self {
            Self::WriteExclusive => 1,
            Self::ExclusiveAccess => 2,
            Self::WriteExclusiveRegistrants => 3,
            Self::ExclusiveAccessRegistrants => 4,
            Self::WriteExclusiveAll => 5,
            Self::ExclusiveAccessAll => 6,
        }
    }

    /// Whether hosts without access may not even read.
    #[must_use]
    pub const fn is_exclusive_access(self) -> bool {
        matches!(self, Self::ExclusiveAccess | Self::ExclusiveAccessRegistrants | Self::ExclusiveAccessAll)
    }

    /// Whether every registrant has the holder's access.
    #[must_use]
    pub const fn admits_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Whether every registrant is a holder.
    #[must_use]
    pub const fn all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    /// The bit of RESCAP that announces the type.
    #[must_use]
    pub const fn capability(self) -> u8 {
        match self {
            Self::WriteExclusive => rescap::WRITE_EXCLUSIVE,
            Self::ExclusiveAccess => rescap::EXCLUSIVE_ACCESS,
            Self::WriteExclusiveRegistrants => rescap::WRITE_EXCLUSIVE_REGISTRANTS,
            Self::ExclusiveAccessRegistrants => rescap::EXCLUSIVE_ACCESS_REGISTRANTS,
            Self::WriteExclusiveAll => rescap::WRITE_EXCLUSIVE_ALL,
            Self::ExclusiveAccessAll => rescap::EXCLUSIVE_ACCESS_ALL,
        }
    }

    /// In words, as for a person.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteExclusive => "write exclusive",
            Self::ExclusiveAccess => "exclusive access",
            Self::WriteExclusiveRegistrants => "write exclusive, registrants only",
            Self::ExclusiveAccessRegistrants => "exclusive access, registrants only",
            Self::WriteExclusiveAll => "write exclusive, all registrants",
            Self::ExclusiveAccessAll => "exclusive access, all registrants",
        }
    }
}

/// Reservation Register, dword 10. The data is `RegisterKeys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Reservation Register Action (RREGA).
    pub action: RegisterAction,
    /// Ignore Existing Key (IEKEY): CRKEY is not compared.
    pub ignore_existing_key: bool,
    /// Change Persist Through Power Loss State (CPTPL).
    pub persistence: PersistenceChange,
}

impl Register {
    /// From dword 10; reserved bits are ignored.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let cdw10 = sqe.cdw10.get();
        let [low, _, _, high] = cdw10.to_le_bytes();
        Self {
            action: RegisterAction::decode(low),
            ignore_existing_key: cdw10 & IEKEY != 0,
            persistence: PersistenceChange::decode(high >> 6),
        }
    }

    /// The command for `nsid`.
    #[must_use]
    pub fn encode(self, nsid: Nsid) -> Sqe {
        let cdw10 = u32::from(self.action.encode())
            | u32::from(self.ignore_existing_key) << 3
            | u32::from(self.persistence.encode()) << 30;
        Sqe::new(nvm::RESERVATION_REGISTER).with_nsid(nsid).with_cdw(10, cdw10)
    }
}

values! {
    /// Reservation Register Action (RREGA).
    pub enum RegisterAction, 3 bits {
        /// Register NRKEY.
        Register = 0;
        /// Unregister.
        Unregister = 1;
        /// Replace CRKEY with NRKEY.
        Replace = 2;
    }
}

/// Change Persist Through Power Loss State (CPTPL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersistenceChange {
    /// 0: no change.
    None,
    /// 1: what no specification names yet.
    Reserved,
    /// 2: reservations are released and registrants cleared at power on.
    Clear,
    /// 3: both persist.
    Set,
}

impl PersistenceChange {
    const fn decode(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::None,
            1 => Self::Reserved,
            2 => Self::Clear,
            _ => Self::Set,
        }
    }

    const fn encode(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Reserved => 1,
            Self::Clear => 2,
            Self::Set => 3,
        }
    }
}

/// Data of Reservation Register, 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RegisterKeys {
    /// Current Reservation Key.
    pub crkey: U64,
    /// New Reservation Key.
    pub nrkey: U64,
}

const _: () = assert!(size_of::<RegisterKeys>() == 16);

/// Reservation Acquire, dword 10. The data is `AcquireKeys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// Reservation Acquire Action (RACQA).
    pub action: AcquireAction,
    /// Ignore Existing Key (IEKEY): since NVMe 1.3 it is refused.
    pub ignore_existing_key: bool,
    /// Reservation Type (RTYPE): `ReservationType::decode`.
    pub rtype: u8,
}

impl Acquire {
    /// From dword 10; reserved bits are ignored.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let [low, rtype, ..] = sqe.cdw10.to_bytes();
        Self { action: AcquireAction::decode(low), ignore_existing_key: low & 8 != 0, rtype }
    }

    /// The command for `nsid`.
    #[must_use]
    pub fn encode(self, nsid: Nsid) -> Sqe {
        let low = self.action.encode() | u8::from(self.ignore_existing_key) << 3;
        Sqe::new(nvm::RESERVATION_ACQUIRE).with_nsid(nsid).with_cdw(10, u32::from_le_bytes([low, self.rtype, 0, 0]))
    }
}

values! {
    /// Reservation Acquire Action (RACQA).
    pub enum AcquireAction, 3 bits {
        /// Acquire.
        Acquire = 0;
        /// Preempt the registrants with PRKEY.
        Preempt = 1;
        /// Preempt, and abort their commands.
        PreemptAndAbort = 2;
    }
}

/// Data of Reservation Acquire, 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AcquireKeys {
    /// Current Reservation Key.
    pub crkey: U64,
    /// Preempt Reservation Key.
    pub prkey: U64,
}

const _: () = assert!(size_of::<AcquireKeys>() == 16);

/// Reservation Release, dword 10. The data is `ReleaseKey`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Reservation Release Action (RRELA).
    pub action: ReleaseAction,
    /// Ignore Existing Key (IEKEY): since NVMe 1.3 it is refused.
    pub ignore_existing_key: bool,
    /// Reservation Type (RTYPE) that is held, for release: `ReservationType::decode`.
    pub rtype: u8,
}

impl Release {
    /// From dword 10; reserved bits are ignored.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let [low, rtype, ..] = sqe.cdw10.to_bytes();
        Self { action: ReleaseAction::decode(low), ignore_existing_key: low & 8 != 0, rtype }
    }

    /// The command for `nsid`.
    #[must_use]
    pub fn encode(self, nsid: Nsid) -> Sqe {
        let low = self.action.encode() | u8::from(self.ignore_existing_key) << 3;
        Sqe::new(nvm::RESERVATION_RELEASE).with_nsid(nsid).with_cdw(10, u32::from_le_bytes([low, self.rtype, 0, 0]))
    }
}

values! {
    /// Reservation Release Action (RRELA).
    pub enum ReleaseAction, 3 bits {
        /// Release.
        Release = 0;
        /// Clear the reservation and all registrants.
        Clear = 1;
    }
}

/// Data of Reservation Release, 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReleaseKey {
    /// Current Reservation Key.
    pub crkey: U64,
}

const _: () = assert!(size_of::<ReleaseKey>() == 8);

/// Reservation Report, dwords 10 and 11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Length of the host's buffer in bytes (NUMD), 4 to 2^34.
    pub bytes: u64,
    /// Extended Data Structure (EDS): host identifiers of 128 bits. Hosts with such an identifier,
    /// which are all hosts over fabrics, have to ask for it.
    pub extended: bool,
}

impl Report {
    /// From dwords 10 and 11; reserved bits are ignored.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        Self { bytes: (u64::from(sqe.cdw10.get()) + 1) * 4, extended: sqe.cdw11.get() & 1 != 0 }
    }

    /// The command for `nsid`; `bytes` is rounded down to dwords and cut to what the field holds.
    #[must_use]
    pub fn encode(self, nsid: Nsid) -> Sqe {
        let numd = u32::try_from((self.bytes / 4).saturating_sub(1)).unwrap_or(u32::MAX);
        Sqe::new(nvm::RESERVATION_REPORT).with_nsid(nsid).with_cdw(10, numd).with_cdw(11, u32::from(self.extended))
    }
}

/// Reservation Status Header, 24 bytes; registrants follow, in the extended structure after 40
/// reserved bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReservationStatus {
    /// Generation: counts Register, Clear and Preempt that succeeded; not what Acquire and Release
    /// do.
    pub r#gen: U32,
    /// Reservation Type; 0 for none.
    pub rtype: u8,
    /// Number of Registrants.
    pub regstrnt: U16,
    /// Reserved.
    pub rsvd7: [u8; 2],
    /// Persist Through Power Loss State, 0 or 1.
    pub ptpls: u8,
    /// Reserved.
    pub rsvd10: [u8; 14],
}

const _: () = assert!(size_of::<ReservationStatus>() == 24);

/// Registrant Data Structure, 24 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Registrant {
    /// Controller ID the host registered through; FFFFh where it is not connected.
    pub cntlid: U16,
    /// Reservation Status: bit 0, the host holds the reservation.
    pub rcsts: u8,
    /// Reserved.
    pub rsvd3: [u8; 5],
    /// Host Identifier of 64 bits.
    pub hostid: [u8; 8],
    /// Reservation Key.
    pub rkey: U64,
}

const _: () = assert!(size_of::<Registrant>() == 24);

/// Registrant Extended Data Structure, 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RegistrantExtended {
    /// Controller ID the host registered through; FFFFh where it is not connected.
    pub cntlid: U16,
    /// Reservation Status: bit 0, the host holds the reservation.
    pub rcsts: u8,
    /// Reserved.
    pub rsvd3: [u8; 5],
    /// Reservation Key.
    pub rkey: U64,
    /// Host Identifier of 128 bits.
    pub hostid: [u8; 16],
    /// Reserved.
    pub rsvd32: [u8; 32],
}

const _: () = assert!(size_of::<RegistrantExtended>() == 64);

impl Default for RegistrantExtended {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// A registrant of a report, in either structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedRegistrant {
    /// Controller the host is connected to; `ControllerId::DYNAMIC` (FFFFh) for none in particular.
    pub controller: ControllerId,
    /// Whether the host holds the reservation.
    pub holder: bool,
    /// Reservation key.
    pub key: u64,
    /// Host Identifier; of a structure that is not extended only the first 8 bytes are its own, the
    /// rest zeros.
    pub host_id: [u8; 16],
}

/// Bytes of the header in the extended structure.
const EXTENDED_HEADER: usize = 64;

/// The Reservation Status data structure that Report returns, whole; the caller cuts it to the
/// host's buffer. Registrants beyond 65535 are counted as that and left out.
#[must_use]
pub fn report(
    generation: u32,
    held: Option<ReservationType>,
    persist: bool,
    registrants: &[ReportedRegistrant],
    extended: bool,
) -> Vec<u8> {
    let count = u16::try_from(registrants.len()).unwrap_or(u16::MAX);
    let header = ReservationStatus {
        r#gen: generation.into(),
        rtype: held.map_or(0, ReservationType::encode),
        regstrnt: count.into(),
        ptpls: u8::from(persist),
        ..ReservationStatus::default()
    };
    let mut out = header.as_bytes().to_vec();
    if extended {
        out.resize(EXTENDED_HEADER, 0);
    }
    for one in registrants.iter().take(usize::from(count)) {
        let cntlid = one.controller.0.into();
        let rcsts = u8::from(one.holder);
        if extended {
            let entry = RegistrantExtended {
                cntlid,
                rcsts,
                rkey: one.key.into(),
                hostid: one.host_id,
                ..RegistrantExtended::default()
            };
            out.extend_from_slice(entry.as_bytes());
        } else {
            let [a, b, c, d, e, f, g, h, ..] = one.host_id;
            let hostid = [a, b, c, d, e, f, g, h];
            let entry = Registrant { cntlid, rcsts, hostid, rkey: one.key.into(), ..Registrant::default() };
            out.extend_from_slice(entry.as_bytes());
        }
    }
    out
}

/// Reads what Report returned: the header and the registrants that are in `data`, which may be
/// fewer than the header counts. `None` where `data` is shorter than the header.
#[must_use]
pub fn read_report(data: &[u8], extended: bool) -> Option<(ReservationStatus, Vec<ReportedRegistrant>)> {
    let (status, rest) = ReservationStatus::read_from_prefix(data).ok()?;
    let count = usize::from(status.regstrnt.get());
    let registrants = if extended {
        let entries = data.get(EXTENDED_HEADER..).unwrap_or_default().chunks_exact(size_of::<RegistrantExtended>());
        entries
            .filter_map(|entry| RegistrantExtended::read_from_bytes(entry).ok())
            .take(count)
            .map(of_extended)
            .collect()
    } else {
        let entries = rest.chunks_exact(size_of::<Registrant>());
        entries.filter_map(|entry| Registrant::read_from_bytes(entry).ok()).take(count).map(of_plain).collect()
    };
    Some((status, registrants))
}

fn of_extended(entry: RegistrantExtended) -> ReportedRegistrant {
    ReportedRegistrant {
        controller: ControllerId(entry.cntlid.get()),
        holder: entry.rcsts & 1 != 0,
        key: entry.rkey.get(),
        host_id: entry.hostid,
    }
}

fn of_plain(entry: Registrant) -> ReportedRegistrant {
    let mut host_id = [0; 16];
    host_id[..8].copy_from_slice(&entry.hostid);
    ReportedRegistrant {
        controller: ControllerId(entry.cntlid.get()),
        holder: entry.rcsts & 1 != 0,
        key: entry.rkey.get(),
        host_id,
    }
}

/// Ignore Existing Key, bit 3 of dword 10 of all three.
const IEKEY: u32 = 1 << 3;

#[cfg(test)]
mod tests;
