//! The keys with which a controller accesses the memory of commands.

use std::sync::Arc;

use ebof_nvme::Cqe;
use ebof_region::Region;
use ebof_verbs::{DeviceAttributes, Error, QueuePair, Window, WindowAccess};

use crate::link::DataDirection;

/// Where keys come from.
pub(super) enum RemoteKeys {
    /// A region has one, for as long as there is the region.
    OfRegions,
    /// Each command has one of its own, which is invalid when the command is over.
    OfCommands {
        /// The controller may invalidate it.
        by_peer: bool,
        /// By slot of the engine.
        windows: Box<[KeyState]>,
    },
}

/// The key of a command.
#[derive(Clone, Copy)]
pub(super) enum KeyState {
    None,
    Bound(Window),
    /// It is being invalidated; the command has this completion.
    Ending(Cqe),
}

impl RemoteKeys {
    /// `windows`: whether each command has a key of its own.
    pub(super) fn new(windows: bool, device: Option<&DeviceAttributes>) -> Self {
        if !windows {
            return Self::OfRegions;
        }
        let by_peer = device.is_some_and(|device| device.window_invalidation);
        Self::OfCommands { by_peer, windows: Box::default() }
    }

    pub(super) fn set_slots(&mut self, slots: usize) {
        if let Self::OfCommands { windows, .. } = self {
            *windows = vec![KeyState::None; slots].into_boxed_slice();
        }
    }

    /// Operations of the send queue that a command takes: a binding, and later an invalidation.
    pub(super) const fn operations(&self) -> u32 {
        match self {
            Self::OfRegions => 0,
            Self::OfCommands { .. } => 2,
        }
    }

    /// Whether the controller may invalidate a command's key.
    pub(super) fn may_be_invalidated(&self) -> bool {
        matches!(self, Self::OfCommands { by_peer: true, .. })
    }

    /// Whether commands are over only after work of this end.
    pub(super) fn are_invalidated(&self) -> bool {
        matches!(self, Self::OfCommands { .. })
    }

    /// A key for the command in slot `index`, whose data are `length` bytes of the region, from
    /// `offset` on. `None`: there is none before others are invalid.
    #[inline(always)]
    pub(super) fn key(
        &mut self,
        pair: &mut QueuePair,
        index: u16,
        (region, offset, length): (&Arc<Region>, usize, u32),
        direction: DataDirection,
    ) -> Result<Option<u32>, Error> {
        match self {
            Self::OfRegions => pair.remote_key(region).map(Some),
            Self::OfCommands { windows, .. } => Self::bind(windows, pair, index, (region, offset, length), direction),
        }
    }

    fn bind(
        windows: &mut [KeyState],
        pair: &mut QueuePair,
        index: u16,
        (region, offset, length): (&Arc<Region>, usize, u32),
        direction: DataDirection,
    ) -> Result<Option<u32>, Error> {
        let access = match direction {
            DataDirection::FromHost => WindowAccess::Read,
            DataDirection::ToHost | DataDirection::None => WindowAccess::Write,
        };
        let Some(window) = pair.post_bind(region, offset, length, access)? else { return Ok(None) };
        windows[usize::from(index)] = KeyState::Bound(window);
        Ok(Some(window.key()))
    }

    /// The command in slot `index` has its completion. `false` if its key is still valid: its
    /// invalidation was posted, and [`RemoteKeys::ended`] returns the completion later.
    pub(super) fn end(&mut self, pair: &mut QueuePair, index: u16, cqe: Cqe) -> bool {
        let Self::OfCommands { windows, .. } = self else { return true };
        let state = &mut windows[usize::from(index)];
        match std::mem::replace(state, KeyState::None) {
            KeyState::Bound(window) if pair.is_bound(window) => {
                *state = KeyState::Ending(cqe);
                pair.post_invalidate(window, index.into());
                false
            }
            _ => true,
        }
    }

    /// The invalidation of a key is done: the slot of its command, and the completion.
    pub(super) fn ended(&mut self, id: u64) -> Option<(u16, Cqe)> {
        let Self::OfCommands { windows, .. } = self else { return None };
        let index = u16::try_from(id).ok()?;
        let state = windows.get_mut(usize::from(index))?;
        match std::mem::replace(state, KeyState::None) {
            KeyState::Ending(cqe) => Some((index, cqe)),
            other => {
                *state = other;
                None
            }
        }
    }
}
