//! The pending sends, and the payloads that they belong to: numbers only, no socket.
//!
//! The kernel numbers the successful sends of a socket from 0 on, and reports ranges of numbers,
//! not always in order: retransmitted or discarded data may be reported late. A payload takes one
//! or several consecutive sends.

use std::collections::VecDeque;

/// The most pending sends; further ones are copied. More than enough to fill the buffer of a fast
/// connection with payloads of a page.
const SENDS_MAX: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Sends<T> {
    /// The number of the first of `sends`.
    first_send: u32,
    sends: VecDeque<Send>,
    /// The number of the first of `payloads`.
    first_payload: u32,
    payloads: VecDeque<Payload<T>>,
    /// Whether the last of `payloads` is the current one: more sends of it may follow.
    is_open: bool,
    /// Pending sends.
    waiting: usize,
}

#[derive(Debug)]
struct Send {
    /// Number of the payload.
    payload: u32,
    is_over: bool,
}

#[derive(Debug)]
struct Payload<T> {
    /// Its pending sends.
    waiting: u32,
    /// `None` while it is the current one, and after it was returned.
    kept: Option<T>,
}

impl<T> Default for Sends<T> {
    fn default() -> Self {
        let sends = VecDeque::new();
        let payloads = VecDeque::new();
        Self { first_send: 0, sends, first_payload: 0, payloads, is_open: false, waiting: 0 }
    }
}

impl<T> Sends<T> {
    /// Whether there may be no more sends now.
    pub(crate) fn is_full(&self) -> bool {
        self.sends.len() >= SENDS_MAX
    }

    /// Whether any is pending.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// One more send, of the current payload.
    pub(crate) fn note(&mut self) {
        if !self.is_open {
            self.is_open = true;
            self.payloads.push_back(Payload { waiting: 0, kept: None });
        }
        if let Some(payload) = self.payloads.back_mut() {
            payload.waiting += 1;
        }
        // Bounded by `is_full`: payloads have at least one send each, except for the current one.
        #[expect(clippy::cast_possible_truncation, reason = "at most SENDS_MAX + 1")]
        let behind_first = (self.payloads.len() - 1) as u32;
        self.sends.push_back(Send { payload: self.first_payload.wrapping_add(behind_first), is_over: false });
        self.waiting += 1;
    }

    /// The current payload is sent completely, or abandoned. Returns it if none of its sends is
    /// pending.
    pub(crate) fn finish(&mut self, payload: T) -> Option<T> {
        if !std::mem::take(&mut self.is_open) {
            return Some(payload);
        }
        match self.payloads.back_mut() {
            Some(last) if last.waiting > 0 => {
                last.kept = Some(payload);
                None
            }
            _ => {
                self.forget_over();
                Some(payload)
            }
        }
    }

    /// The kernel has completed the sends `first` to `last`, modulo 2^32. Returns how many of them
    /// were pending.
    pub(crate) fn over(&mut self, first: u32, last: u32, mut released: impl FnMut(T)) -> u32 {
        let mut over = 0;
        // Relative to the first known one: a range may begin before it, and numbers after the last
        // one were never sent.
        let relative = |number: u32| i64::from(number.wrapping_sub(self.first_send).cast_signed());
        let start = relative(first).max(0);
        let end = relative(last);
        let known = i64::try_from(self.sends.len()).unwrap_or(i64::MAX);
        for at in start..known.min(end + 1) {
            let Some(send) = usize::try_from(at).ok().and_then(|at| self.sends.get_mut(at)) else { break };
            if send.is_over {
                continue;
            }
            send.is_over = true;
            over += 1;
            self.waiting -= 1;
            let place = send.payload.wrapping_sub(self.first_payload) as usize;
            let Some(payload) = self.payloads.get_mut(place) else { continue };
            payload.waiting -= 1;
            if payload.waiting == 0
                && let Some(kept) = payload.kept.take()
            {
                released(kept);
            }
        }
        self.forget_over();
        over
    }

    /// Removes completed entries at the front.
    fn forget_over(&mut self) {
        while self.sends.front().is_some_and(|send| send.is_over) {
            self.sends.pop_front();
            self.first_send = self.first_send.wrapping_add(1);
        }
        while self.payloads.len() > usize::from(self.is_open)
            && self.payloads.front().is_some_and(|payload| payload.waiting == 0 && payload.kept.is_none())
        {
            self.payloads.pop_front();
            self.first_payload = self.first_payload.wrapping_add(1);
        }
    }

    /// The payloads that are kept.
    pub(crate) fn into_payloads(self) -> impl Iterator<Item = T> {
        self.payloads.into_iter().filter_map(|payload| payload.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl<T> Sends<T> {
        /// Like a connection that has sent for a long time.
        fn from(number: u32) -> Self {
            Self { first_send: number, first_payload: number, ..Self::default() }
        }
    }

    proptest! {
        #[test]
        fn every_payload_is_returned_once_after_its_last_send(
            payloads in proptest::collection::vec((0u32..5, any::<bool>()), 1..60),
            order in proptest::collection::vec((any::<u16>(), 1u32..9), 1..80),
            begin in prop_oneof![Just(0u32), Just(u32::MAX - 20), any::<u32>()],
        ) {
            let mut sends = Sends::from(begin);
            // By payload: the numbers of its sends. By number: whether it has completed.
            let mut of = Vec::new();
            let mut over: Vec<bool> = Vec::new();
            let mut back: Vec<usize> = Vec::new();
            let mut orders = order.iter().cycle();
            for (payload, (count, tell)) in payloads.iter().enumerate() {
                let mine: Vec<usize> = (over.len()..over.len() + *count as usize).collect();
                of.push(mine.clone());
                mine.iter().for_each(|_| sends.note());
                over.resize(over.len() + mine.len(), false);
                let mut told = Vec::new();
                if *tell && !over.is_empty() {
                    let (at, length) = orders.next().unwrap();
                    let first = usize::from(*at) % over.len();
                    let last = (first + *length as usize - 1).min(over.len() - 1);
                    let number = |at: usize| begin.wrapping_add(u32::try_from(at).unwrap());
                    let fresh = over[first..=last].iter().filter(|is_over| !**is_over).count();
                    over[first..=last].fill(true);
                    let count = sends.over(number(first), number(last), |payload| told.push(payload));
                    prop_assert_eq!(count as usize, fresh);
                }
                told.extend(sends.finish(payload));
                for payload in &told {
                    prop_assert!(of[*payload].iter().all(|send| over[*send]), "payload {} came back early", payload);
                }
                back.extend(told);
                for (payload, mine) in of.iter().enumerate() {
                    prop_assert_eq!(back.contains(&payload), mine.iter().all(|send| over[*send]));
                }
                prop_assert_eq!(sends.is_waiting(), over.iter().any(|is_over| !is_over));
            }
            if !over.is_empty() {
                let last = begin.wrapping_add(u32::try_from(over.len() - 1).unwrap());
                sends.over(begin, last, |payload| back.push(payload));
            }
            back.sort_unstable();
            prop_assert_eq!(back, (0..payloads.len()).collect::<Vec<_>>());
            prop_assert!(sends.sends.is_empty() && sends.payloads.is_empty() && !sends.is_waiting());
        }
    }

    #[test]
    fn ranges_that_were_never_sent_are_ignored() {
        let mut sends = Sends::default();
        sends.note();
        assert_eq!(sends.finish(7), None);
        for (first, last) in [(1, 9), (5, 4), (u32::MAX - 3, u32::MAX)] {
            assert_eq!(sends.over(first, last, |_| panic!("{first} to {last}")), 0);
        }
        let mut back = None;
        assert_eq!(sends.over(u32::MAX - 3, 4, |payload| back = Some(payload)), 1);
        assert_eq!(back, Some(7));
    }

    #[test]
    fn pending_sends_are_limited() {
        let mut sends = Sends::default();
        let mut made = 0;
        while !sends.is_full() {
            sends.note();
            assert_eq!(sends.finish(made), None);
            made += 1;
        }
        assert_eq!(made, SENDS_MAX);
        assert_eq!(sends.into_payloads().count(), SENDS_MAX);
    }
}
