//! What was written to the disk and is not durable, and what a power loss leaves of it.

use std::ops::Range;

use super::Loss;
use super::image::Image;
use crate::random::Random;

/// A change that is not durable yet.
pub(super) struct UnflushedChange {
    pub(super) number: u64,
    pub(super) offset: u64,
    pub(super) what: What,
    /// It was completed as durable: what came before it on these bytes cannot come back.
    pub(super) certain: bool,
}

pub(super) enum What {
    Bytes(Vec<u8>),
    Zeros(u64),
}

impl UnflushedChange {
    pub(super) fn new(number: u64, offset: u64, what: What) -> Self {
        Self { number, offset, what, certain: false }
    }

    pub(super) fn len(&self) -> u64 {
        match &self.what {
            What::Bytes(bytes) => bytes.len() as u64,
            What::Zeros(len) => *len,
        }
    }

    pub(super) fn apply(&self, image: &mut Image) {
        self.apply_part(image, 0..self.len());
    }

    pub(super) fn apply_part(&self, image: &mut Image, part: Range<u64>) {
        let within = |position: u64| usize::try_from(position).expect("a request is in memory");
        match &self.what {
            What::Bytes(bytes) => image.write(self.offset + part.start, &bytes[within(part.start)..within(part.end)]),
            What::Zeros(_) => image.zero(self.offset + part.start, part.end - part.start),
        }
    }
}

/// Brings to the medium what a power loss leaves of changes that were not flushed.
pub(super) fn lose(loss: Loss, changes: &[UnflushedChange], durable: &mut Image, sector: u64, random: &mut Random) {
    let end = random.index(changes.len() + 1);
    for (at, change) in changes.iter().enumerate() {
        let kept = match loss {
            _ if change.certain => 100,
            Loss::Everything => 0,
            Loss::Tail if at == end => 50,
            Loss::Tail => {
                if at < end {
                    100
                } else {
                    0
                }
            }
            Loss::Some => 100 * random.below(2),
            Loss::Sectors => 85 * u64::from(random.percent(60)),
        };
        if kept == 100 {
            change.apply(durable);
        } else if kept > 0 {
            for start in (0..change.len()).step_by(usize::try_from(sector).expect("few")) {
                if random.percent(kept) {
                    change.apply_part(durable, start..(start + sector).min(change.len()));
                }
            }
        }
    }
}
