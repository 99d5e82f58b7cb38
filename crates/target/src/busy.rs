//! Which connections were busy a moment ago, and what follows from it.
//!
//! A connection that has just brought something is likely to bring more, and a read that finds nothing costs no more than
//! asking which sockets are readable: a few busy connections are looked at without being told. And who has company gets less
//! done at a time: a share of every turn, so that one that asks for very much delays the others by little.

use arrayvec::ArrayVec;

/// Busy connections that are looked at directly; with more, asking is cheaper.
const FEW: usize = 2;

/// For how long a connection is company to the others, microseconds: longer than a turn.
const COMPANY_US: u64 = 1_000;

/// What a connection may do in one turn, in bytes received and bytes to be sent, when it is alone; when there is one other; and in
/// a crowd. Larger shares make larger batches, which is worth 12 % from 128 KiB to no limit; smaller ones make the others wait less.
const SHARES: [usize; 3] = [4 << 20, 256 << 10, 128 << 10];

/// Connections that brought something lately.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    /// Place, and when it last brought something: the latest, of which one more than a few are kept.
    recent: ArrayVec<(u32, u64), { FEW + 1 }>,
    now_us: u64,
    /// For how long a connection is likely to bring more, microseconds.
    window_us: u64,
}

impl Busy {
    /// To be told the time at the start of every turn, and for how long a connection is likely to bring more.
    pub(crate) fn start_turn(&mut self, now_us: u64, window_us: u64) {
        self.now_us = now_us;
        self.window_us = window_us;
    }

    /// The connection at `place` has brought something in this turn.
    pub(crate) fn note(&mut self, place: u32) {
        let noted = (place, self.now_us);
        if let Some(known) = self.recent.iter_mut().find(|(known, _)| *known == place) {
            *known = noted;
        } else if self.recent.try_push(noted).is_err()
            && let Some(oldest) = self.recent.iter_mut().min_by_key(|(_, at_us)| *at_us)
        {
            *oldest = noted;
        }
    }

    fn since(&self, age_us: u64) -> impl Iterator<Item = u32> {
        let now_us = self.now_us;
        self.recent.iter().filter(move |(_, at_us)| now_us.saturating_sub(*at_us) < age_us).map(|(place, _)| *place)
    }

    /// Whether looking at [`Busy::places`] is worth it.
    pub(crate) fn are_few(&self) -> bool {
        (1..=FEW).contains(&self.since(self.window_us).count())
    }

    /// The places of busy connections.
    pub(crate) fn places(&self) -> ArrayVec<u32, { FEW + 1 }> {
        self.since(self.window_us).collect()
    }

    /// What the connection at `place` may do in this turn: bytes received and bytes to be sent.
    pub(crate) fn share(&self, place: u32) -> usize {
        let others = self.since(COMPANY_US).filter(|other| *other != place).count();
        SHARES[others.min(SHARES.len() - 1)]
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

    #[test]
    fn who_has_company_gets_a_share() {
        let mut busy = Busy::default();
        busy.start_turn(5000, 50);
        busy.note(1);
        assert_eq!(busy.share(1), SHARES[0]);
        assert_eq!(busy.share(2), SHARES[1]);
        for place in 2..40 {
            busy.note(place);
        }
        assert_eq!((busy.share(1), busy.share(39)), (SHARES[2], SHARES[2]));
        busy.start_turn(5999, 50);
        assert_eq!(busy.share(1), SHARES[2]);
        busy.start_turn(6000, 50);
        assert_eq!(busy.share(1), SHARES[0]);
    }
}
