//! Buffers that the adapter writes to the host from, until the response behind their data is sent.

use ebof_verbs::Held;

/// Where a buffer comes from, and goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The reactor's pool, whose budget it counts in.
    Pool,
    /// The connection itself.
    Own,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) held: Held,
    /// Its size, and
    pub(super) buffer_bytes: usize,
    /// bytes of data in it.
    length: u32,
    pub(super) origin: Origin,
}

/// All of a connection, by tag.
#[derive(Debug)]
pub(super) struct HeldBuffers {
    table: Vec<Option<Outgoing>>,
    free: Vec<u32>,
}

impl HeldBuffers {
    /// Allocates nothing until there are more than `expected`.
    pub(super) fn new(expected: usize) -> Self {
        Self { table: Vec::with_capacity(expected), free: Vec::with_capacity(expected) }
    }

    /// Its tag.
    #[inline]
    pub(super) fn insert(&mut self, held: Held, buffer_bytes: usize, length: u32, origin: Origin) -> u32 {
        let outgoing = Some(Outgoing { held, buffer_bytes, length, origin });
        if let Some(tag) = self.free.pop() {
            self.table[tag as usize] = outgoing;
            return tag;
        }
        self.table.push(outgoing);
        u32::try_from(self.table.len() - 1).expect("no more than responses that are outstanding")
    }

    #[inline]
    fn get(&self, tag: u32) -> &Outgoing {
        self.table[tag as usize].as_ref().expect("until its response is sent")
    }

    #[inline]
    pub(super) fn held(&self, tag: u32) -> Held {
        self.get(tag).held
    }

    /// Bytes of data.
    #[inline]
    pub(super) fn length(&self, tag: u32) -> u32 {
        self.get(tag).length
    }

    #[inline]
    pub(super) fn remove(&mut self, tag: u32) -> Option<Outgoing> {
        let outgoing = self.table.get_mut(tag as usize)?.take()?;
        self.free.push(tag);
        Some(outgoing)
    }

    /// The tags in use.
    pub(super) fn tags(&self) -> Vec<u32> {
        (0..).zip(&self.table).filter_map(|(tag, outgoing)| outgoing.is_some().then_some(tag)).collect()
    }

    pub(super) fn peek(&self, tag: u32) -> Option<&Outgoing> {
        self.table.get(tag as usize)?.as_ref()
    }
}
