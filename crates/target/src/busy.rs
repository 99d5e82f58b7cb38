//! The connections that a reactor looks at without being told: one that has just brought something is likely to bring more,
//! and a read that finds nothing costs no more than asking which sockets are readable. With more than a few busy
//! connections asking is cheaper.

use arrayvec::ArrayVec;

/// Busy connections that are looked at directly.
const FEW: usize = 2;

/// The places of busy connections.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    /// Place, and when it last brought something.
    recent: ArrayVec<(u32, u64), FEW>,
    /// Until when there are more busy connections than there is room for.
    crowd_until_us: u64,
    now_us: u64,
    /// For how long a connection counts as busy, microseconds.
    window_us: u64,
}

impl Busy {
    /// To be told the time at the start of every turn, and for how long a connection counts as busy.
    pub(crate) fn start_turn(&mut self, now_us: u64, window_us: u64) {
        self.now_us = now_us;
        self.window_us = window_us;
        self.recent.retain(|&mut (_, at_us)| now_us.saturating_sub(at_us) < window_us);
    }

    /// The connection at `place` has brought something in this turn.
    pub(crate) fn note(&mut self, place: u32) {
        let now_us = self.now_us;
        if let Some((_, at_us)) = self.recent.iter_mut().find(|(known, _)| *known == place) {
            *at_us = now_us;
        } else if self.recent.try_push((place, now_us)).is_err() {
            self.crowd_until_us = now_us + self.window_us;
            // Whoever stays busy shall be known when the crowd has gone.
            if let Some(oldest) = self.recent.iter_mut().min_by_key(|(_, at_us)| *at_us) {
                *oldest = (place, now_us);
            }
        }
    }

    /// Whether looking at [`Busy::places`] is worth it.
    pub(crate) fn are_few(&self) -> bool {
        !self.recent.is_empty() && self.now_us >= self.crowd_until_us
    }

    /// The places of busy connections.
    pub(crate) fn places(&self) -> ArrayVec<u32, FEW> {
        self.recent.iter().map(|&(place, _)| place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_looked_at_directly_and_a_crowd_is_not() {
        let mut busy = Busy::default();
        busy.start_turn(1000, 50);
        assert!(!busy.are_few());
        busy.note(7);
        busy.note(8);
        busy.note(7);
        assert!(busy.are_few());
        assert_eq!(busy.places().as_slice(), [7, 8]);
        busy.note(9);
        assert!(!busy.are_few());
        busy.start_turn(1049, 50);
        busy.note(9);
        assert!(!busy.are_few());
        busy.start_turn(1050, 50);
        assert!(busy.are_few());
        assert_eq!(busy.places().as_slice(), [9]);
        busy.start_turn(1100, 50);
        assert!(!busy.are_few());
    }
}
