//! The null device: reads return zeros, writes are dropped. For measuring everything but the
//! medium.

use crate::{
    Action, Completion, Device, Error, Geometry, Io, Lent, Operation, Request, Resident, Submitted, format_size,
};

/// A device of any size that stores nothing.
#[derive(Debug)]
pub struct Null {
    geometry: Geometry,
}

impl Null {
    /// A null device of `capacity_bytes`, to be offered in blocks of `logical_block_bytes`.
    #[must_use]
    pub fn new(capacity_bytes: u64, logical_block_bytes: u32, read_only: bool) -> Null {
        let geometry = Geometry {
            capacity_bytes,
            block_bytes: 1,
            logical_block_bytes,
            read_only,
            deallocates: true,
            deallocate_granularity_bytes: logical_block_bytes,
            writes_zeroes: true,
            volatile_cache: false,
        };
        Null { geometry }
    }

    fn run(&self, mut request: Request) -> Completion {
        let result: Result<(), Error> = self.geometry.check(&request.operation);
        if let (Ok(()), Operation::Read { len, data, .. }) = (&result, &mut request.operation) {
            // The memory may contain data of another host.
            data.clear(0..*len);
        }
        request.complete(result)
    }
}

impl Device for Null {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, _io: &mut Io, request: Request) -> Submitted {
        Submitted::Done(self.run(request))
    }

    fn resident(&self) -> Option<&dyn Resident> {
        Some(self)
    }

    fn describe(&self) -> String {
        format!("null, {}, reads zeros and forgets writes", format_size(self.geometry.capacity_bytes))
    }
}

impl Resident for Null {
    fn lend(&self, _offset: u64, len: usize, _may_block: bool) -> Option<Lent<'_>> {
        Some(Lent::zeros(len))
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.geometry.check_transfer(Action::Write, offset, u64::try_from(bytes.len()).unwrap_or(u64::MAX))
    }
}
