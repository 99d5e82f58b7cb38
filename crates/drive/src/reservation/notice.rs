//! The queue of Reservation Notification log pages of a controller: changes of reservations by
//! other hosts.
//!
//! NVMe Base 2.1, "Reservation Notification" log page (80h), "Reservation Notification Mask"
//! feature (82h).

use alloc::collections::VecDeque;

use ebof_nvme::Nsid;
use ebof_nvme::log::{ReservationEvent, ReservationNotification};

/// Feature 82h of one namespace and controller: a set bit suppresses its kind of notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotificationMask(pub u32);

/// The notices that a controller keeps for its host. They end with the controller: a host that
/// reconnects has to use Reservation Report.
#[derive(Clone, Debug, Default)]
pub struct NotificationLog {
    /// Log Page Count of the last notice, kept or lost; 0 before the first.
    pub(super) count: u64,
    queue: VecDeque<Notice>,
}

#[derive(Clone, Copy, Debug)]
struct Notice {
    count: u64,
    kind: ReservationEvent,
    nsid: Nsid,
}

impl NotificationMask {
    /// From dword 11 of Set Features; `None` where a reserved bit is set.
    #[must_use]
    pub const fn decode(cdw11: u32) -> Option<Self> {
        if cdw11 & !0b1110 == 0 { Some(Self(cdw11)) } else { None }
    }

    /// Whether notices of this kind are not made.
    #[must_use]
    pub fn hides(self, kind: ReservationEvent) -> bool {
        self.0 & kind.mask_bit() != 0
    }
}

impl NotificationLog {
    /// Notices that are kept: the one that is read next, and as many more as the page can count.
    pub const NOTICES_MAX: usize = 256;

    /// Adds a notice that is not masked; the event Reservation Log Page Available is due. If there
    /// is no room, the notice is lost; the count of the last one shows it.
    pub fn push(&mut self, nsid: Nsid, kind: ReservationEvent) {
        self.count = self.count.checked_add(1).unwrap_or(1);
        if self.queue.len() < Self::NOTICES_MAX {
            self.queue.push_back(Notice { count: self.count, kind, nsid });
        } else if let Some(last) = self.queue.back_mut() {
            last.count = self.count;
        }
    }

    /// The oldest notice as a log page; the empty page if there is none.
    #[must_use]
    pub fn page(&self) -> ReservationNotification {
        self.queue.front().map_or_else(ReservationNotification::default, |notice| {
            ReservationNotification::new(notice.count, notice.kind, notice.nsid, self.queue.len() - 1)
        })
    }

    /// Removes the oldest notice: the host has read its page.
    pub fn pop(&mut self) {
        self.queue.pop_front();
    }

    /// How many notices were not read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether all were read: the event can be sent again.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Drops everything: the controller was reset.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
