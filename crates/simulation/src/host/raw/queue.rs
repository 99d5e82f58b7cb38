//! One queue of a host of the simulation's own: its end of the connection, and what is under way on
//! it.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::host::Event;
use crate::host::proof::Transaction;
use crate::transport::wire::Wire;

/// Why a command is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandPurpose {
    Op(u64),
    Connect,
    Enable,
    Look,
    KeepAlive,
    Leave,
    /// A message of its proof of who it is, and the controller's to it.
    Say,
    Listen,
}

/// A queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) wire: Wire,
    pub(super) id: u16,
    pub(super) entries: usize,
    pub(super) under_way: BTreeMap<u16, (CommandPurpose, Instant)>,
    /// Connect was sent.
    pub(super) is_asked: bool,
    pub(super) is_connected: bool,
    /// It proves who it is.
    pub(super) proof: Option<Transaction>,
    /// The controller has closed it, on its way to the end of a reset or a shutdown.
    pub(super) is_closed: bool,
}

impl Queue {
    pub(super) fn new(wire: Wire, id: u16, entries: usize) -> Self {
        Self {
            wire,
            id,
            entries,
            under_way: BTreeMap::new(),
            is_asked: false,
            is_connected: false,
            proof: None,
            is_closed: false,
        }
    }

    /// Its connection is gone, and with it the answers to what is under way.
    pub(super) fn close(&mut self) -> Option<Event> {
        self.is_closed = true;
        let lost: Vec<u64> = self.ops().collect();
        self.under_way.clear();
        (!lost.is_empty()).then_some(Event::Lost(lost))
    }

    /// Commands of the host's user that are under way.
    pub(super) fn ops(&self) -> impl Iterator<Item = u64> {
        self.under_way.values().filter_map(|(purpose, _)| match purpose {
            CommandPurpose::Op(op) => Some(*op),
            _ => None,
        })
    }
}
