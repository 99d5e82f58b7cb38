//! The places of a reactor's connections.
//!
//! Owns which place is taken, and the handles: a place is used again, a handle never. What is done
//! with a connection is decided in `connections.rs`.

use std::ops::Range;

use ebof_fabrics::Handle;

use crate::reactor::connection::Connection;
use crate::shared::handle::{handle, index_of};

/// Connections by their index, which is a part of their handle.
pub(super) struct ConnectionTable {
    /// The number of the reactor, which is another part of it.
    reactor: usize,
    places: Vec<Option<Box<Connection>>>,
    free: Vec<u32>,
    serial: u64,
}

impl ConnectionTable {
    pub(super) fn new(reactor: usize) -> Self {
        Self { reactor, places: Vec::new(), free: Vec::new(), serial: 0 }
    }

    /// An empty place for a new connection, and the handle that it will have.
    pub(super) fn reserve(&mut self) -> (u32, Handle) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).expect("connections are limited to far less than 2^32")
        });
        self.serial += 1;
        (index, handle(self.reactor, self.serial, index))
    }

    /// Gives a place back that is empty for good.
    pub(super) fn release(&mut self, index: u32) {
        debug_assert!(self.at(index).is_none() && !self.free.contains(&index), "its connection was taken out before");
        self.free.push(index);
    }

    /// Puts a connection into its place.
    pub(super) fn put(&mut self, index: u32, connection: Box<Connection>) {
        let before = self.places[index as usize].replace(connection);
        debug_assert!(before.is_none(), "another connection was there");
    }

    /// Takes a connection out of its place, for as long as it is worked on or for good.
    pub(super) fn take(&mut self, index: u32) -> Option<Box<Connection>> {
        self.places.get_mut(index as usize).and_then(Option::take)
    }

    /// The connection in a place.
    pub(super) fn at(&self, index: u32) -> Option<&Connection> {
        self.places.get(index as usize)?.as_deref()
    }

    /// The connection in a place.
    pub(super) fn at_mut(&mut self, index: u32) -> Option<&mut Connection> {
        self.places.get_mut(index as usize)?.as_deref_mut()
    }

    /// The connection with this handle, if it is still there.
    pub(super) fn get(&self, handle: Handle) -> Option<&Connection> {
        self.at(index_of(handle)).filter(|connection| connection.handle == handle)
    }

    /// The connection with this handle, if it is still there.
    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut Connection> {
        self.at_mut(index_of(handle)).filter(|connection| connection.handle == handle)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.places.iter().flatten().map(|connection| &**connection)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.places.iter_mut().flatten().map(|connection| &mut **connection)
    }

    /// The indices of all places, whether they are empty or not.
    pub(super) fn indices(&self) -> Range<u32> {
        0..u32::try_from(self.places.len()).expect("connections are limited to far less than 2^32")
    }

    /// Whether no connection is there.
    pub(super) fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::handle::reactor_of;

    #[test]
    fn a_place_is_used_again_and_a_handle_is_not() {
        let mut table = ConnectionTable::new(3);
        let (first, one) = table.reserve();
        let (second, _) = table.reserve();
        assert_eq!((first, second, table.indices()), (0, 1, 0..2));
        table.release(first);
        let (again, other) = table.reserve();
        assert_eq!((again, index_of(other), reactor_of(other)), (first, first, 3));
        assert_ne!(one, other);
        assert!(table.is_empty() && table.get(one).is_none() && table.take(7).is_none());
    }
}
