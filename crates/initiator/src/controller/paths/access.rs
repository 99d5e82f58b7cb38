//! The access that a controller gives to namespaces, from its ANA log page (0Ch). Whatever a
//! target sends, a table is bounded; it sends nothing itself.

use std::collections::BTreeMap;

use ebof_nvme::identify::IdentifyController;
use ebof_nvme::identify::field::cmic;
use ebof_nvme::log::{AnaGroups, AnaHeader, AnaState};

/// The longest log page that is read, bytes: sixty thousand namespaces in a thousand groups fit.
pub(super) const LOG_BYTES_MAX: usize = 1 << 18;

/// The access to each namespace through one controller.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PathAccess {
    /// By NSID.
    states: BTreeMap<u32, AnaState>,
}

/// How good a path is for a namespace; a lesser one is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// It is the one to use. Also where the controller says nothing of it.
    Optimized,
    /// It works, with a detour.
    NonOptimized,
    /// Commands are refused now; they may be accepted later.
    Refused,
    /// Commands are refused, and will be.
    Lost,
}

impl Rank {
    const fn of(state: AnaState) -> Self {
        match state {
            AnaState::OPTIMIZED => Self::Optimized,
            AnaState::NON_OPTIMIZED => Self::NonOptimized,
            AnaState::PERSISTENT_LOSS => Self::Lost,
            _ => Self::Refused,
        }
    }
}

impl PathAccess {
    /// Whether the controller has the log page.
    pub(super) fn is_reported(identify: &IdentifyController) -> bool {
        identify.cmic & cmic::ANA != 0
    }

    /// Bytes of the page at its header's word, as far as they are read.
    pub(super) fn page_bytes(identify: &IdentifyController) -> usize {
        let groups = usize::try_from(identify.nanagrpid.get()).unwrap_or(usize::MAX);
        let namespaces = usize::try_from(identify.namespaces_max()).unwrap_or(usize::MAX);
        let bytes = groups.saturating_mul(32).saturating_add(namespaces.saturating_mul(4));
        bytes.saturating_add(size_of::<AnaHeader>()).next_multiple_of(4).min(LOG_BYTES_MAX)
    }

    /// The page as it was read, and how many of its groups are missing; `None` where even its
    /// header is.
    pub(super) fn parse(log: &[u8]) -> Option<(Self, u16)> {
        let (_, mut groups) = AnaGroups::new(log)?;
        let mut access = Self::default();
        for group in groups.by_ref() {
            let state = group.header.state();
            access.states.extend(group.nsids.iter().map(|nsid| (nsid.get(), state)));
        }
        Some((access, groups.missing()))
    }

    /// The state of a namespace; `None` if nothing is said of it.
    pub(super) fn state(&self, nsid: u32) -> Option<AnaState> {
        self.states.get(&nsid).copied()
    }

    /// How good the path is for a namespace.
    pub(super) fn rank(&self, nsid: u32) -> Rank {
        self.state(nsid).map_or(Rank::Optimized, Rank::of)
    }
}

#[cfg(test)]
mod tests {
    use ebof_nvme::Nsid;
    use ebof_nvme::log::AnaWriter;

    use super::*;

    #[test]
    fn a_log_page_says_how_good_a_path_is() {
        let mut log = AnaWriter::new(7);
        log.push(1, 1, AnaState::OPTIMIZED, [Nsid(1), Nsid(5)]);
        log.push(2, 1, AnaState::NON_OPTIMIZED, [Nsid(2)]);
        log.push(3, 1, AnaState::INACCESSIBLE, [Nsid(3)]);
        log.push(4, 1, AnaState::PERSISTENT_LOSS, [Nsid(4)]);
        log.push(5, 1, AnaState::CHANGE, [Nsid(6)]);
        let log = log.finish();
        let (access, missing) = PathAccess::parse(&log).unwrap();
        let ranks: Vec<Rank> = (1..=7).map(|nsid| access.rank(nsid)).collect();
        use Rank::{Lost, NonOptimized, Optimized, Refused};
        assert_eq!(ranks, [Optimized, NonOptimized, Refused, Lost, Optimized, Refused, Optimized]);
        assert_eq!((missing, access.state(7)), (0, None));
        // @test hostile.target
        for cut in 0..log.len() {
            assert!(PathAccess::parse(&log[..cut]).is_none_or(|(cut, missing)| cut.states.len() < 6 && missing > 0));
        }
    }

    #[test]
    fn the_size_of_a_page_is_bounded() {
        let identify = |groups: u32, mnan: u32, nn: u32| IdentifyController {
            nanagrpid: groups.into(),
            mnan: mnan.into(),
            nn: nn.into(),
            ..IdentifyController::default()
        };
        assert_eq!(PathAccess::page_bytes(&identify(2, 8, 0xffff_ffff)), 16 + 64 + 32);
        assert_eq!(PathAccess::page_bytes(&identify(2, 0, 4)), 16 + 64 + 16);
        assert_eq!(PathAccess::page_bytes(&identify(u32::MAX, u32::MAX, u32::MAX)), LOG_BYTES_MAX);
    }
}
