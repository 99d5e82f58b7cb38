//! Which connections were busy a moment ago: those are read without asking epoll, and share every
//! turn.
//!
//! A connection that has just sent something is likely to send more, and a read that finds nothing
//! costs no more than asking epoll: if few connections are busy, their sockets are read without
//! asking. If several are busy, each may use a share of every turn only, so that one that asks for
//! very much delays the others by little.

use arrayvec::ArrayVec;

/// The most busy connections that are read without asking epoll; with more, asking it is cheaper.
const FEW: usize = 2;

/// How long a connection counts as busy for the shares of others, microseconds, and
const COMPANY_US: u64 = 1_000;

/// for how many turns, however long those were: one that took too long is no reason to make the
/// next one longer.
const COMPANY_TURNS: u32 = 8;

/// What a connection may do in one turn, in bytes received and bytes to be sent, when it is alone;
/// when there is one other; and in a crowd. Larger shares make larger batches, which is worth 12 %
/// from 128 KiB to no limit; smaller ones make the others wait less.
const SHARES: [usize; 3] = [4 << 20, 256 << 10, 128 << 10];

/// In a crowd no share is more than this many times what its connections use of a turn on average:
/// among many that ask for little, one that asks for much is a small part of the turn, and where
/// all ask for much nothing is lost.
const MORE_THAN_MEAN: usize = 4;

/// The least that such a share is, bytes: less makes for calls of the system that do too little.
const SHARE_MIN: usize = 32 << 10;

/// The mean is over about so many turns.
const MEAN_TURNS: usize = 8;

/// Users are counted in pieces, so that few of them can be forgotten little by little.
const USER: usize = 256;

/// Connections that sent something lately.
#[derive(Debug, Default)]
pub(crate) struct Fairness {
    /// Those that sent something last, one more than [`FEW`].
    recent: ArrayVec<Recent, { FEW + 1 }>,
    now_us: u64,
    turn: u32,
    /// For how long a connection is likely to send more, microseconds.
    window_us: u64,
    /// Bytes that connections used, and how often one did: of this turn and, less and less, of
    /// those before.
    used: (usize, usize),
}

/// When a connection last sent something.
#[derive(Debug)]
struct Recent {
    index: u32,
    at_us: u64,
    turn: u32,
}

impl Fairness {
    /// Has to be called at the start of every turn with the time, and for how long a connection is
    /// likely to bring more.
    pub(crate) fn start_turn(&mut self, now_us: u64, window_us: u64) {
        self.now_us = now_us;
        self.turn = self.turn.wrapping_add(1);
        self.window_us = window_us;
        let (bytes, users) = &mut self.used;
        // Rounded up, so that what is left of a busy time goes away.
        *bytes -= bytes.div_ceil(MEAN_TURNS);
        *users -= users.div_ceil(MEAN_TURNS);
    }

    /// The connection at `index` has sent something in this turn.
    pub(crate) fn note(&mut self, index: u32) {
        let noted = Recent { index, at_us: self.now_us, turn: self.turn };
        if let Some(known) = self.recent.iter_mut().find(|known| known.index == index) {
            *known = noted;
        } else if let Err(full) = self.recent.try_push(noted)
            && let Some(oldest) = self.recent.iter_mut().min_by_key(|known| known.at_us)
        {
            *oldest = full.element();
        }
    }

    /// A connection has used so many bytes of its share of this turn.
    pub(crate) fn note_use(&mut self, bytes: usize) {
        self.used.0 += bytes;
        self.used.1 += USER;
    }

    fn since(&self, age_us: u64) -> impl Iterator<Item = u32> {
        self.recent
            .iter()
            .filter(move |known| self.now_us.saturating_sub(known.at_us) < age_us)
            .map(|known| known.index)
    }

    /// Whether looking at [`Fairness::busy`] is worth it.
    pub(crate) fn are_few(&self) -> bool {
        (1..=FEW).contains(&self.since(self.window_us).count())
    }

    /// The busy connections, by index.
    pub(crate) fn busy(&self) -> ArrayVec<u32, { FEW + 1 }> {
        self.since(self.window_us).collect()
    }

    /// What the connection at `index` may do in this turn: bytes received and bytes to be sent.
    pub(crate) fn share(&self, index: u32) -> usize {
        let company = |known: &&Recent| {
            known.index != index
                && (self.now_us.saturating_sub(known.at_us) < COMPANY_US
                    || self.turn.wrapping_sub(known.turn) <= COMPANY_TURNS)
        };
        let others = self.recent.iter().filter(company).count();
        let share = SHARES[others.min(SHARES.len() - 1)];
        let (bytes, users) = self.used;
        if others + 1 < SHARES.len() || users == 0 {
            return share;
        }
        (bytes / users.div_ceil(USER) * MORE_THAN_MEAN).clamp(SHARE_MIN, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_busy_connections_are_read_without_epoll_and_many_are_not() {
        let mut fairness = Fairness::default();
        fairness.start_turn(1000, 50);
        assert!(!fairness.are_few());
        fairness.note(7);
        fairness.note(8);
        fairness.note(7);
        assert!(fairness.are_few());
        assert_eq!(fairness.busy().as_slice(), [7, 8]);
        fairness.note(9);
        assert!(!fairness.are_few());
        fairness.start_turn(1049, 50);
        fairness.note(9);
        assert!(!fairness.are_few());
        fairness.start_turn(1050, 50);
        assert!(fairness.are_few());
        assert_eq!(fairness.busy().as_slice(), [9]);
        fairness.start_turn(1100, 50);
        assert!(!fairness.are_few());
    }

    #[test]
    fn a_connection_that_is_not_alone_gets_a_share() {
        let mut fairness = Fairness::default();
        fairness.start_turn(5000, 50);
        fairness.note(1);
        assert_eq!(fairness.share(1), SHARES[0]);
        assert_eq!(fairness.share(2), SHARES[1]);
        for index in 2..40 {
            fairness.note(index);
        }
        assert_eq!((fairness.share(1), fairness.share(39)), (SHARES[2], SHARES[2]));
        fairness.start_turn(5999, 50);
        assert_eq!(fairness.share(1), SHARES[2]);
        fairness.start_turn(6000, 50);
        assert_eq!(fairness.share(1), SHARES[2], "a turn that took long is no reason for another");
        for _ in 0..COMPANY_TURNS {
            fairness.start_turn(6000, 50);
        }
        assert_eq!(fairness.share(1), SHARES[0]);
    }

    #[test]
    fn with_many_connections_a_large_one_gets_little_more_than_the_others() {
        let mut fairness = Fairness::default();
        let turn = |fairness: &mut Fairness, uses: &dyn Fn(u32) -> usize| {
            fairness.start_turn(5000, 50);
            for index in 0..33 {
                fairness.note(index);
                let share = fairness.share(index);
                fairness.note_use(uses(index).min(share));
            }
            fairness.share(0)
        };
        for _ in 0..100 {
            turn(&mut fairness, &|index| if index == 0 { 1 << 20 } else { 8 << 10 });
        }
        let share = turn(&mut fairness, &|index| if index == 0 { 1 << 20 } else { 8 << 10 });
        assert!((SHARE_MIN..40 << 10).contains(&share), "{share}");
        for _ in 0..100 {
            turn(&mut fairness, &|_| 1 << 20);
        }
        assert_eq!(fairness.share(0), SHARES[2], "where all ask for much all get much");
    }
}
