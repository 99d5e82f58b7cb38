//! Memory windows of a queue pair, of either kind: which are free, and which give the peer access
//! to a part of a region.

use std::sync::Arc;

use ebof_region::Region;

/// A key for a part of a region. It works over one queue pair only, until it is invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub(crate) index: u32,
    pub(crate) key: u32,
}

/// What the peer may do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowAccess {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
}

impl Window {
    /// For the peer.
    #[must_use]
    #[inline]
    pub fn key(&self) -> u32 {
        self.key
    }
}

/// The key of a window before its last binding.
pub(crate) fn before(window: Window) -> u32 {
    with_lower_part(window.key, window.key.wrapping_sub(1))
}

/// The device has chosen the upper part of a key, and its owner chooses the lower one.
fn with_lower_part(key: u32, lower: u32) -> u32 {
    (key & !0xFF) | (lower & 0xFF)
}

/// The windows of one queue pair.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// By index: the key that was valid last, or is.
    keys: Vec<u32>,
    states: Vec<State>,
    free: Vec<u32>,
}

/// The region stays as long as a window may refer to it.
#[derive(Debug)]
enum State {
    Free,
    Bound(Arc<Region>),
    /// Its invalidation was posted.
    Ending(Arc<Region>),
    /// It could not be invalidated.
    Lost,
}

impl Windows {
    /// `keys` are those that are valid last.
    pub(crate) fn new(keys: Vec<u32>) -> Self {
        let count = u32::try_from(keys.len()).expect("an attribute of the queue pair");
        Self { states: keys.iter().map(|_| State::Free).collect(), free: (0..count).rev().collect(), keys }
    }

    /// A free one for a region, with a new key.
    #[inline]
    pub(crate) fn bind(&mut self, region: &Arc<Region>) -> Option<Window> {
        let index = self.free.pop()?;
        let key = &mut self.keys[index as usize];
        *key = with_lower_part(*key, key.wrapping_add(1));
        self.states[index as usize] = State::Bound(Arc::clone(region));
        Some(Window { index, key: *key })
    }

    /// Whether the peer can use it, as far as it is known.
    #[inline]
    pub(crate) fn is_bound(&self, window: Window) -> bool {
        let at = window.index as usize;
        self.keys.get(at) == Some(&window.key) && matches!(self.states[at], State::Bound(_))
    }

    /// Its invalidation is posted.
    ///
    /// # Panics
    /// It is not bound.
    #[inline]
    pub(crate) fn end(&mut self, window: Window) {
        assert!(self.is_bound(window), "the window is not bound");
        let state = &mut self.states[window.index as usize];
        if let State::Bound(region) = std::mem::replace(state, State::Free) {
            *state = State::Ending(region);
        }
    }

    /// The invalidation that was posted is done.
    #[inline]
    pub(crate) fn ended(&mut self, index: u32) {
        if matches!(self.states[index as usize], State::Ending(_)) {
            self.states[index as usize] = State::Free;
            self.free.push(index);
        }
    }

    /// The invalidation that was posted has failed: the window is never used again. Returns its
    /// region, to be kept until the window is taken away.
    pub(crate) fn lost(&mut self, index: u32) -> Option<Arc<Region>> {
        match std::mem::replace(&mut self.states[index as usize], State::Lost) {
            State::Bound(region) | State::Ending(region) => Some(region),
            State::Free | State::Lost => None,
        }
    }

    /// The peer has invalidated a key.
    #[inline]
    pub(crate) fn invalidated(&mut self, key: u32) {
        let Some(index) = self.keys.iter().position(|other| *other == key) else { return };
        // If the invalidation of this end is under way, it says when it is over.
        if matches!(self.states[index], State::Bound(_)) {
            self.states[index] = State::Free;
            self.free.push(u32::try_from(index).expect("as many as an u32 says"));
        }
    }
}

#[cfg(test)]
mod tests {
    use ebof_region::Buffer;

    use super::*;

    #[test]
    fn each_binding_has_another_key_and_keeps_its_region() {
        let buffer = Buffer::zeroed(4096);
        let region = buffer.region();
        let mut windows = Windows::new(vec![0x1FF]);
        let first = windows.bind(region).unwrap();
        assert_eq!((first.key, windows.bind(region)), (0x100, None));
        assert!(windows.is_bound(first) && Arc::strong_count(region) == 2);
        windows.invalidated(0x1FF);
        assert!(windows.is_bound(first));
        windows.invalidated(0x100);
        let second = windows.bind(region).unwrap();
        assert_eq!((second.key, windows.is_bound(first)), (0x101, false));
        windows.end(second);
        windows.invalidated(0x101);
        assert_eq!(windows.bind(region), None, "the invalidation is under way");
        windows.ended(second.index);
        assert_eq!(windows.bind(region).map(|third| third.key), Some(0x102));
    }

    #[test]
    fn one_that_could_not_be_invalidated_is_not_used_again() {
        let buffer = Buffer::zeroed(4096);
        let mut windows = Windows::new(vec![0x100]);
        let window = windows.bind(buffer.region()).unwrap();
        windows.end(window);
        assert!(windows.lost(window.index).is_some() && windows.lost(window.index).is_none());
        assert_eq!(windows.bind(buffer.region()), None);
    }
}
