//! What a request costs: one unit for the operation and one for each page, those of writes times
//! what a write takes longer than a read on this device.

/// What one unit is counted as, so that the factor of writes need not be whole.
const UNIT: u32 = 256;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// The cost of the smallest request: of a read of a page.
pub const COST_MIN: u32 = 2 * UNIT;

/// Pages that are counted of one request.
const PAGES_MAX: u64 = 1 << 16;

/// How much less than a read something else costs of the same length.
const OTHER_DIVISOR: u64 = 64;

/// The most that a write counts as much as so many reads.
const FACTOR_MAX: u32 = 16 * UNIT;

/// What a device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It reads.
    Read = 0,
    /// It writes.
    Write = 1,
    /// It makes data durable, zeroes or deallocates: whatever the length, that takes little of the
    /// device, or nobody knows how much.
    Other = 2,
}

/// A request to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it does.
    pub kind: Kind,
    /// Bytes that it is about.
    pub bytes: u64,
}

impl Request {
    /// Bytes that move.
    pub(crate) fn data_bytes(self) -> u64 {
        if self.kind == Kind::Other { 0 } else { self.bytes }
    }

    /// Its class of sizes, of [`CLASSES`]: latencies of different ones are not compared.
    pub(crate) fn class(self) -> usize {
        match self.bytes {
            0..=8_192 => 0,
            8_193..=32_768 => 1,
            32_769..=131_072 => 2,
            _ => 3,
        }
    }
}

/// Classes of sizes.
pub(crate) const CLASSES: usize = 4;

/// What writes cost on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// A write of a page, where a read costs [`UNIT`].
    write: u32,
}

impl Costs {
    pub(crate) const fn new() -> Self {
        Self { write: UNIT }
    }

    /// The cost of a request.
    pub(crate) fn cost_of(&self, request: Request) -> u32 {
        let (bytes, factor) = match request.kind {
            Kind::Read => (request.bytes, UNIT),
            Kind::Write => (request.bytes, self.write),
            Kind::Other => (request.bytes / OTHER_DIVISOR, UNIT),
        };
        let pages = u32::try_from(bytes.div_ceil(PAGE).clamp(1, PAGES_MAX)).unwrap_or(u32::MAX);
        (1 + pages) * factor
    }

    /// How many reads a write counts as.
    pub(crate) fn write_factor(&self) -> f64 {
        f64::from(self.write) / f64::from(UNIT)
    }

    /// A write was seen to take so long where a read of its size takes `read`.
    pub(crate) fn learn(&mut self, write: u64, read: u64) {
        let seen = write.saturating_mul(UNIT.into()).checked_div(read).unwrap_or(u64::from(UNIT));
        let seen = u32::try_from(seen).unwrap_or(u32::MAX).clamp(UNIT, FACTOR_MAX);
        self.write = u32::midpoint(self.write, seen).min(FACTOR_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_costs_its_pages_and_one() {
        let costs = Costs::new();
        let read = |bytes| costs.cost_of(Request { kind: Kind::Read, bytes });
        assert_eq!([0, 512, 4096].map(read), [COST_MIN; 3]);
        assert_eq!(read(131_072), 33 * UNIT);
        assert_eq!(read(u64::MAX), (1 + 65_536) * UNIT);
        let zeroes = |bytes| costs.cost_of(Request { kind: Kind::Other, bytes });
        assert_eq!([0, 262_144, 1 << 20].map(zeroes), [COST_MIN, COST_MIN, 5 * UNIT]);
    }

    #[test]
    fn writes_cost_what_they_take_longer() {
        let mut costs = Costs::new();
        let write = Request { kind: Kind::Write, bytes: 4096 };
        for _ in 0..40 {
            costs.learn(400, 100);
        }
        assert!((4 * COST_MIN - 8..5 * COST_MIN).contains(&costs.cost_of(write)), "{}", costs.cost_of(write));
        for _ in 0..40 {
            costs.learn(1, 100);
        }
        assert!((COST_MIN - 8..COST_MIN + 8).contains(&costs.cost_of(write)), "a cache is no reason to favour writers");
        for _ in 0..40 {
            costs.learn(u64::MAX / 512, 1);
        }
        assert!(costs.cost_of(Request { kind: Kind::Write, bytes: u64::MAX }) <= (1 + 65_536) * FACTOR_MAX);
    }
}
