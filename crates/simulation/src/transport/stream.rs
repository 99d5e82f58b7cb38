//! Byte streams between two ends in memory: bytes take their time, come in pieces of any length,
//! and the stream can break at any of them.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ebof_clock::Clock;
use ebof_sockets::{Readiness, SimulatedStream};

use crate::random::Random;

/// How a stream carries its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Carriage {
    /// Bytes take at most so long.
    pub latency: Duration,
    /// So many may be on their way in one direction.
    pub window_bytes: usize,
    /// At most so many are taken or given at a time; by chance fewer.
    pub piece_bytes: usize,
}

/// Bytes on their way in one direction.
#[derive(Debug, Default)]
struct Direction {
    pieces: VecDeque<(Instant, VecDeque<u8>)>,
    bytes: usize,
    /// Nothing comes behind what is on its way.
    is_ended: bool,
}

#[derive(Debug)]
struct State {
    random: Random,
    carriage: Carriage,
    /// By the end that sends.
    directions: [Direction; 2],
    is_gone: [bool; 2],
    /// Nothing arrives of what this end sends, and nobody is notified.
    is_silent: [bool; 2],
    is_broken: bool,
    /// The stream breaks when so many more bytes have been sent.
    left: Option<u64>,
}

/// One end of a stream. Dropping it closes the stream.
#[derive(Debug)]
pub struct End {
    clock: Clock,
    side: usize,
    state: Arc<Mutex<State>>,
}

/// Looks at a stream and breaks it, from outside.
#[derive(Clone, Debug)]
pub struct Watch {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

/// Both ends of a stream.
#[must_use]
pub fn pair(clock: &Clock, carriage: Carriage, seed: u64) -> (End, End, Watch) {
    let state = Arc::new(Mutex::new(State {
        random: Random::new(seed),
        carriage,
        directions: [Direction::default(), Direction::default()],
        is_gone: [false; 2],
        is_silent: [false; 2],
        is_broken: false,
        left: None,
    }));
    let end = |side| End { clock: clock.clone(), side, state: Arc::clone(&state) };
    (end(0), end(1), Watch { clock: clock.clone(), state })
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// The stream breaks when so many more bytes have been sent, in either direction; at once
    /// for 0.
    pub fn break_after(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.left = Some(bytes);
        if bytes == 0 {
            state.shatter();
        }
    }

    /// From now on nothing arrives that an end sends, its closing neither: of the one that has
    /// connected, and of the other. What was sent meanwhile arrives when that is over.
    pub fn silence(&self, is_silent: [bool; 2]) {
        lock(&self.state).is_silent = is_silent;
    }

    /// Whether it is broken, or neither end is there any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.is_broken || state.is_gone == [true; 2]
    }

    /// When bytes arrive that are on their way; `None` where none are that somebody could still
    /// take.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let state = lock(&self.state);
        let is_taken = |side: usize| !state.is_gone[1 - side] && !state.is_silent[side];
        let waiting = |side: usize| state.directions[side].pieces.front().filter(|_| is_taken(side));
        let now = self.clock.now();
        [0, 1].into_iter().filter_map(waiting).map(|(due, _)| *due).filter(|due| *due > now).min()
    }
}

impl State {
    fn shatter(&mut self) {
        self.is_broken = true;
        self.directions = [Direction::default(), Direction::default()];
    }

    /// Whether an end can know that the other one is gone: what that has sent before has arrived.
    fn hears_of_end(&self, side: usize, now: Instant) -> bool {
        let is_there = |(due, _): &(Instant, _)| *due <= now;
        self.is_gone[1 - side] && !self.is_silent[1 - side] && self.directions[1 - side].pieces.iter().all(is_there)
    }

    /// How much of `len` bytes goes through at a time.
    fn piece(&mut self, len: usize) -> usize {
        let most = len.min(self.carriage.piece_bytes);
        if self.random.percent(60) { most } else { 1 + self.random.index(most.max(1)) }.min(len)
    }
}

impl End {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl SimulatedStream for End {
    fn receive(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let now = self.clock.now();
        let mut state = self.state();
        if state.is_broken {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if state.is_silent[1 - self.side] {
            return Err(ErrorKind::WouldBlock.into());
        }
        let len = parts.iter().map(|part| part.len()).sum();
        let mut room = state.piece(len);
        let direction = &mut state.directions[1 - self.side];
        let mut into = parts.iter_mut().flat_map(|part| part.iter_mut());
        let mut taken = 0;
        while room > 0
            && let Some((due, bytes)) = direction.pieces.front_mut()
            && *due <= now
        {
            while room > 0
                && let Some(byte) = bytes.pop_front()
                && let Some(to) = into.next()
            {
                *to = byte;
                (room, taken) = (room - 1, taken + 1);
            }
            if bytes.is_empty() {
                direction.pieces.pop_front();
            }
        }
        direction.bytes -= taken;
        let is_over = direction.is_ended && direction.pieces.is_empty();
        if taken > 0 || is_over || len == 0 { Ok(taken) } else { Err(ErrorKind::WouldBlock.into()) }
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let now = self.clock.now();
        let mut state = self.state();
        if state.is_broken || state.hears_of_end(self.side, now) || state.directions[self.side].is_ended {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let room = state.carriage.window_bytes.saturating_sub(state.directions[self.side].bytes).min(len);
        if room == 0 && len > 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut taken = state.piece(room);
        let mut breaks = false;
        if let Some(left) = &mut state.left {
            taken = taken.min(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= taken as u64;
            breaks = *left == 0;
        }
        let bytes: VecDeque<u8> = parts.iter().flat_map(|part| part.iter().copied()).take(taken).collect();
        let nanos = u64::try_from(state.carriage.latency.as_nanos()).unwrap_or(u64::MAX);
        let mut due = now + Duration::from_nanos(state.random.below(nanos + 1));
        let direction = &mut state.directions[self.side];
        if let Some((last, _)) = direction.pieces.back() {
            // A stream keeps its order.
            due = due.max(*last);
        }
        if taken > 0 {
            direction.bytes += taken;
            direction.pieces.push_back((due, bytes));
        }
        if breaks {
            state.shatter();
        }
        Ok(taken)
    }

    fn shutdown(&mut self, how: Shutdown) {
        let side = self.side;
        let mut state = self.state();
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            state.directions[side].is_ended = true;
        }
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            state.is_gone[side] = true;
        }
    }

    fn readiness(&self) -> Readiness {
        let now = self.clock.now();
        let state = self.state();
        if state.is_broken {
            return Readiness { readable: true, writable: true, closed: true };
        }
        let (coming, going) = (&state.directions[1 - self.side], &state.directions[self.side]);
        let is_silent = state.is_silent[1 - self.side];
        let is_over = coming.is_ended && coming.pieces.is_empty();
        Readiness {
            readable: !is_silent && (is_over || coming.pieces.front().is_some_and(|(due, _)| *due <= now)),
            writable: going.bytes < state.carriage.window_bytes || state.hears_of_end(self.side, now),
            closed: coming.is_ended && !is_silent,
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARRIAGE: Carriage = Carriage { latency: Duration::from_micros(50), window_bytes: 1000, piece_bytes: 300 };

    fn carry(from: &mut End, to: &mut End, clock: &Clock, bytes: &[u8]) -> Vec<u8> {
        let (mut sent, mut arrived) = (0, Vec::new());
        while arrived.len() < bytes.len() {
            sent += from.send(&[IoSlice::new(&bytes[sent..])]).unwrap_or_default();
            let mut piece = [0; 77];
            match to.receive(&mut [IoSliceMut::new(&mut piece)]) {
                Ok(0) => break,
                Ok(taken) => arrived.extend(&piece[..taken]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => clock.advance(Duration::from_micros(10)),
                Err(_) => break,
            }
        }
        arrived
    }

    #[test]
    fn bytes_arrive_in_their_order_and_the_end_behind_them() {
        let clock = Clock::simulated(1);
        let (mut host, mut target, _watch) = pair(&clock, CARRIAGE, 7);
        let bytes: Vec<u8> = (0..10_000_u32).map(|number| u8::try_from(number % 251).unwrap()).collect();
        assert_eq!(carry(&mut host, &mut target, &clock, &bytes), bytes);
        assert!(!target.readiness().readable && target.readiness().writable);
        host.send(&[IoSlice::new(b"last")]).unwrap();
        drop(host);
        assert!(target.readiness().closed);
        clock.advance(Duration::from_secs(1));
        let mut rest = Vec::new();
        let mut piece = [0; 9];
        while let Ok(taken @ 1..) = target.receive(&mut [IoSliceMut::new(&mut piece)]) {
            rest.extend(&piece[..taken]);
        }
        assert!(b"last".starts_with(&rest) && !rest.is_empty());
        assert!(target.send(&[IoSlice::new(b"x")]).is_err());
    }

    #[test]
    fn a_stream_breaks_at_the_byte_it_is_told() {
        let clock = Clock::simulated(1);
        let (mut host, mut target, watch) = pair(&clock, CARRIAGE, 7);
        watch.break_after(333);
        let arrived = carry(&mut host, &mut target, &clock, &[9; 2000]);
        assert!(arrived.len() <= 333, "{}", arrived.len());
        assert!(target.readiness().closed && host.receive(&mut []).is_err());
    }
}
