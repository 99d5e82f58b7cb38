//! Which errors of devices are logged: a device that fails every command must not fill the log.

use std::sync::{Mutex, PoisonError};

use ebof_backend::Class;
use ebof_fabrics::DeviceId;

/// Between two lines about the same device and the same kind of error, microseconds.
const EVERY_US: u64 = 60_000_000;
/// Devices and kinds of errors that are told apart; beyond that the oldest line is forgotten.
const KINDS: usize = 256;

/// What was logged last.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<Vec<Complaint>>);

#[derive(Debug)]
struct Complaint {
    device: Option<DeviceId>,
    class: Class,
    told_us: u64,
    left_out: u64,
}

impl Complaints {
    /// Whether an error is to be logged; then with how many like it were left out since the last line.
    pub(crate) fn admit(&self, device: Option<DeviceId>, class: Class, now_us: u64) -> Option<u64> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter_mut().find(|complaint| complaint.device == device && complaint.class == class);
        if let Some(complaint) = found {
            if now_us.saturating_sub(complaint.told_us) < EVERY_US {
                complaint.left_out += 1;
                return None;
            }
            complaint.told_us = now_us;
            return Some(std::mem::take(&mut complaint.left_out));
        }
        if known.len() == KINDS {
            known.remove(0);
        }
        known.push(Complaint { device, class, told_us: now_us, left_out: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_kind_is_logged_and_the_others_are_counted() {
        let complaints = Complaints::default();
        let (one, other) = (Some(DeviceId(1)), Some(DeviceId(2)));
        assert_eq!(complaints.admit(one, Class::OutOfSpace, 5), Some(0));
        for now_us in 6..106 {
            assert_eq!(complaints.admit(one, Class::OutOfSpace, now_us), None);
        }
        assert_eq!(complaints.admit(one, Class::MediumRead, 106), Some(0));
        assert_eq!(complaints.admit(other, Class::OutOfSpace, 106), Some(0));
        assert_eq!(complaints.admit(one, Class::OutOfSpace, 5 + EVERY_US), Some(100));
        assert_eq!(complaints.admit(one, Class::OutOfSpace, 6 + EVERY_US), None);
        for device in 3..1000 {
            assert_eq!(complaints.admit(Some(DeviceId(device)), Class::Gone, 7), Some(0));
        }
        assert!(complaints.0.lock().unwrap().len() <= KINDS);
    }
}
