//! Log pages that are read, one after the other, to clear the events that named them: only then may
//! the controller send the next of the kind. Sends nothing itself.

use std::collections::BTreeSet;

use ebof_nvme::log::{AnaGroups, GetLogPage, Lid};
use ebof_nvme::{Nsid, Sqe};

/// The pages that wait, and the one that is being read.
#[derive(Debug, Default)]
pub(super) struct Clearing {
    pages: BTreeSet<u8>,
    reading: Option<Lid>,
}

impl Clearing {
    /// Bytes that are read: all groups of an ANA log of up to 15.
    pub(super) const BYTES: usize = 512;

    /// An event has named a page.
    pub(super) fn add(&mut self, page: Lid) {
        self.pages.insert(page.0);
    }

    /// The command that reads the next page, unless one is being read.
    pub(super) fn next(&mut self) -> Option<Sqe> {
        if self.reading.is_some() {
            return None;
        }
        let page = Lid(self.pages.pop_first()?);
        self.reading = Some(page);
        // Of the namespaces only their groups: Return Groups Only (RGO).
        let lsp = u8::from(page == Lid::ANA);
        Some(GetLogPage { lsp, ..GetLogPage::new(page, Self::BYTES as u64) }.encode(Nsid::ALL))
    }

    /// The last command could not be sent.
    pub(super) fn not_sent(&mut self) {
        let page = self.reading.take().expect("a command that was not sent was the last of `next`");
        self.pages.insert(page.0);
    }

    /// The page was read, or not (`log` is empty). Returns the states of its groups, for people, if
    /// it was the ANA log.
    pub(super) fn answered(&mut self, log: &[u8]) -> Option<String> {
        if self.reading.take() != Some(Lid::ANA) {
            return None;
        }
        let groups = AnaGroups::new(log).into_iter().flat_map(|(_, groups)| groups);
        let states = groups.map(|group| format!("{} {}", group.header.agid, group.header.state().name()));
        Some(states.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use ebof_nvme::log::{AnaState, AnaWriter};

    use super::*;

    #[test]
    fn pages_are_read_one_after_the_other_and_groups_are_told() {
        let mut clearing = Clearing::default();
        clearing.add(Lid::ANA);
        clearing.add(Lid::ERROR_INFORMATION);
        let page = |sqe: Option<Sqe>| sqe.map(|sqe| GetLogPage::decode(&sqe)).map(|get| (get.lid, get.lsp));
        assert_eq!(page(clearing.next()), Some((Lid::ERROR_INFORMATION, 0)));
        assert_eq!(page(clearing.next()), None);
        clearing.not_sent();
        assert_eq!(page(clearing.next()), Some((Lid::ERROR_INFORMATION, 0)), "again");
        assert_eq!(clearing.answered(&[0; 512]), None);
        assert_eq!(page(clearing.next()), Some((Lid::ANA, 1)));
        let mut log = AnaWriter::new(1);
        log.push(1, 1, AnaState::INACCESSIBLE, []);
        log.push(7, 1, AnaState::OPTIMIZED, []);
        assert_eq!(clearing.answered(&log.finish()).as_deref(), Some("1 inaccessible, 7 optimized"));
        assert_eq!(page(clearing.next()), None);
    }
}
