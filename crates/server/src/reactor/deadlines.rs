//! When connections are looked at although nothing happens.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ebof_fabrics::Handle;

/// Times of connections, milliseconds of the target's clock. One that is not valid any more stays
/// until it has passed: whoever takes it asks the connection.
#[derive(Debug, Default)]
pub(super) struct Deadlines(BinaryHeap<Reverse<(u64, Handle)>>);

impl Deadlines {
    pub(super) fn push(&mut self, at_ms: u64, handle: Handle) {
        self.0.push(Reverse((at_ms, handle)));
    }

    /// The next one.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.0.peek().map(|Reverse((at_ms, _))| *at_ms)
    }

    /// Takes the earliest of those that have passed.
    pub(super) fn pop_passed(&mut self, now_ms: u64) -> Option<(u64, Handle)> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.0.pop().map(|Reverse(earliest)| earliest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_have_passed_come_in_order() {
        let mut deadlines = Deadlines::default();
        assert_eq!((deadlines.next_ms(), deadlines.pop_passed(u64::MAX)), (None, None));
        for (at_ms, handle) in [(30, 1), (10, 2), (20, 3)] {
            deadlines.push(at_ms, Handle(handle));
        }
        assert_eq!((deadlines.next_ms(), deadlines.pop_passed(9)), (Some(10), None));
        assert_eq!(deadlines.pop_passed(20), Some((10, Handle(2))));
        assert_eq!(deadlines.pop_passed(20), Some((20, Handle(3))));
        assert_eq!((deadlines.pop_passed(20), deadlines.next_ms()), (None, Some(30)));
    }
}
