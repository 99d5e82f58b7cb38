//! Reservation Notification (80h).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::name::id::Nsid;

/// Reservation Notification log page: one notification, which reading takes. NVMe Base 2.1, section
/// of that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReservationNotification {
    /// Log Page Count: counts notifications, skips 0 when it wraps; 0 in an empty page.
    pub lpc: U64,
    /// Reservation Notification Log Page Type: `kind`.
    pub rnlpt: u8,
    /// Number of Available Log Pages behind this one, 255 for more.
    pub nalp: u8,
    /// Reserved.
    pub rsvd10: [u8; 2],
    /// Namespace.
    pub nsid: U32,
    /// Reserved.
    pub rsvd16: [u8; 48],
}

const _: () = assert!(size_of::<ReservationNotification>() == 64);

impl ReservationNotification {
    /// Notification `count` of `kind` about `nsid`, with `more` behind it.
    #[must_use]
    pub fn new(count: u64, kind: ReservationEvent, nsid: Nsid, more: usize) -> Self {
        Self {
            lpc: count.into(),
            rnlpt: kind.encode(),
            nalp: u8::try_from(more).unwrap_or(u8::MAX),
            nsid: nsid.0.into(),
            ..Self::new_zeroed()
        }
    }

    /// What happened; `None` in an empty page and for what no specification names.
    #[must_use]
    pub const fn kind(&self) -> Option<ReservationEvent> {
        ReservationEvent::decode(self.rnlpt)
    }
}

/// The empty page.
impl Default for ReservationNotification {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// What a reservation notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReservationEvent {
    /// 1: the host's registration was preempted.
    RegistrationPreempted,
    /// 2: a reservation was released.
    ReservationReleased,
    /// 3: the host's reservation was preempted.
    ReservationPreempted,
}

impl ReservationEvent {
    const fn decode(rnlpt: u8) -> Option<Self> {
        Some(match rnlpt {
            1 => Self::RegistrationPreempted,
            2 => Self::ReservationReleased,
            3 => Self::ReservationPreempted,
            _ => return None,
        })
    }

    const fn encode(self) -> u8 {
        match self {
            Self::RegistrationPreempted => 1,
            Self::ReservationReleased => 2,
            Self::ReservationPreempted => 3,
        }
    }

    /// The bit of the Reservation Notification Mask that keeps the notification away: bit 1, 2
    /// or 3.
    #[must_use]
    pub fn mask_bit(self) -> u32 {
        1 << self.encode()
    }

    /// In words, as for a person.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RegistrationPreempted => "registration preempted",
            Self::ReservationReleased => "reservation released",
            Self::ReservationPreempted => "reservation preempted",
        }
    }
}
