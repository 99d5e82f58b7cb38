//! Connections that wait for the next turn.

/// A list of connections, by index, that is gone through once in a turn: those that come on it
/// meanwhile have to wait for the next one.
#[derive(Debug, Default)]
pub(super) struct TurnList {
    next: Vec<u32>,
    /// The memory of the list that was gone through last.
    spare: Vec<u32>,
}

impl TurnList {
    pub(super) fn push(&mut self, index: u32) {
        self.next.push(index);
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        self.next.contains(&index)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    /// Takes those that are on it; [`TurnList::keep`] gets the memory back.
    pub(super) fn take(&mut self) -> Vec<u32> {
        std::mem::replace(&mut self.next, std::mem::take(&mut self.spare))
    }

    /// Keeps the memory of a list that was taken and gone through.
    pub(super) fn keep(&mut self, mut list: Vec<u32>) {
        list.clear();
        self.spare = list;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_on_the_list_while_it_is_gone_through_waits_for_the_next_turn() {
        let mut list = TurnList::default();
        list.push(1);
        list.push(2);
        let current = list.take();
        assert!(list.is_empty());
        list.push(1);
        assert_eq!(current, [1, 2]);
        assert!(list.contains(1) && !list.contains(2));
        list.keep(current);
        assert_eq!(list.take(), [1]);
        assert!(list.take().capacity() >= 2, "the memory is used again");
    }
}
