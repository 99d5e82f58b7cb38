//! Which namespaces there are and which have changed, as a state machine over the answers to Get Log Page (Changed
//! Namespace List) and Identify (active namespaces). Sends nothing itself.

use std::collections::BTreeSet;

use ebof_nvme::identify::{Cns, NamespaceList};
use ebof_nvme::log::{ChangedNamespaces, Lid};
use ebof_nvme::opcode::admin;
use ebof_nvme::{Nsid, Sqe};
use zerocopy::FromBytes;

use crate::controller::get_log_page;
use crate::event::Event;

/// Namespaces that are kept track of; more are not told apart. Far above what any subsystem has.
pub(crate) const NAMESPACES_MAX: usize = 1 << 16;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Rescan {
    /// The namespaces as last told to the subscribers; `None` before the first time.
    known: Option<BTreeSet<u32>>,
    state: State,
    /// Asked for again while one was going on.
    again: bool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    /// The changed list is to be read; `sent`: its command is outstanding.
    Changed { sent: bool },
    /// The active list is to be read, from behind `after` on.
    List { after: u32, found: BTreeSet<u32>, changed: BTreeSet<u32>, sent: bool },
}

/// What an answer led to.
pub(crate) enum Step {
    /// Another command is needed.
    More,
    /// The scan is over; these are the differences.
    Done(Vec<Event>),
}

impl Rescan {
    /// What there is on a fresh connection; `None` when the controller did not say. Ends a scan that was going on, and gives
    /// the differences to the connection before, if there was one. What changed within a namespace is not known.
    pub(crate) fn restart(&mut self, found: Option<BTreeSet<u32>>) -> Vec<Event> {
        self.state = State::Idle;
        self.again = false;
        match found {
            Some(found) => self.differences(found, &BTreeSet::new()),
            None => Vec::new(),
        }
    }

    /// Something changed: look.
    pub(crate) fn request(&mut self) {
        match self.state {
            State::Idle => self.state = State::Changed { sent: false },
            _ => self.again = true,
        }
    }

    /// A command could not be sent.
    pub(crate) fn give_up(&mut self) {
        self.state = State::Idle;
    }

    /// The command to send now, if there is one. Its data are 4096 bytes.
    pub(crate) fn next_command(&mut self) -> Option<Sqe> {
        match &mut self.state {
            State::Changed { sent } if !*sent => {
                *sent = true;
                // Read without RAE: it clears the event.
                Some(get_log_page(Nsid::ALL, Lid::CHANGED_NAMESPACES.0, 0, 4096, false))
            }
            State::List { after, sent, .. } if !*sent => {
                *sent = true;
                let cns = u32::from(Cns::ACTIVE_NAMESPACE_LIST.0);
                Some(Sqe::new(admin::IDENTIFY).with_nsid(Nsid(*after)).with_cdw(10, cns))
            }
            _ => None,
        }
    }

    /// The answer to the last command; `None` when it failed.
    pub(crate) fn answer(&mut self, bytes: Option<&[u8]>) -> Step {
        match std::mem::take(&mut self.state) {
            State::Idle => Step::Done(Vec::new()),
            State::Changed { .. } => {
                // A controller without this log page is scanned all the same.
                let changed = bytes.and_then(|bytes| ChangedNamespaces::read_from_bytes(bytes).ok());
                let changed = changed.map(|list| changed_set(&list)).unwrap_or_default();
                self.state = State::List { after: 0, found: BTreeSet::new(), changed, sent: false };
                Step::More
            }
            State::List { after, mut found, changed, .. } => {
                let Some(list) = bytes.and_then(|bytes| NamespaceList::read_from_bytes(bytes).ok()) else {
                    return Step::Done(Vec::new());
                };
                found.extend(list.iter().map(|nsid| nsid.0));
                match list.next_after(Nsid(after)).filter(|_| found.len() < NAMESPACES_MAX) {
                    Some(Nsid(after)) => {
                        self.state = State::List { after, found, changed, sent: false };
                        Step::More
                    }
                    None => self.finish(found, &changed),
                }
            }
        }
    }

    fn finish(&mut self, found: BTreeSet<u32>, changed: &BTreeSet<u32>) -> Step {
        let events = self.differences(found, changed);
        if std::mem::take(&mut self.again) {
            self.state = State::Changed { sent: false };
        }
        Step::Done(events)
    }

    fn differences(&mut self, found: BTreeSet<u32>, changed: &BTreeSet<u32>) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(known) = &self.known {
            events.extend(found.difference(known).map(|&nsid| Event::NamespaceAdded(Nsid(nsid))));
            events.extend(known.difference(&found).map(|&nsid| Event::NamespaceRemoved(Nsid(nsid))));
            let stayed = found.intersection(known);
            // FFFFFFFFh in the changed list: more than fit, so all may have changed.
            let all = changed.contains(&u32::MAX);
            events.extend(
                stayed.filter(|nsid| all || changed.contains(nsid)).map(|&nsid| Event::NamespaceChanged(Nsid(nsid))),
            );
        }
        self.known = Some(found);
        events
    }
}

fn changed_set(list: &ChangedNamespaces) -> BTreeSet<u32> {
    if list.is_overflowed() { BTreeSet::from([u32::MAX]) } else { list.iter().map(|nsid| nsid.0).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    fn scan(rescan: &mut Rescan, changed: &[u32], active: &[u32]) -> Vec<Event> {
        rescan.request();
        assert_eq!(rescan.next_command().map(|sqe| sqe.opcode), Some(admin::GET_LOG_PAGE));
        assert_eq!(rescan.next_command(), None, "one command at a time");
        let mut log = NamespaceList::default();
        for (slot, nsid) in log.identifier.iter_mut().zip(changed) {
            slot.set(*nsid);
        }
        assert!(matches!(rescan.answer(Some(log.as_bytes())), Step::More));
        let mut after = 0;
        loop {
            let sqe = rescan.next_command().unwrap();
            assert_eq!((sqe.opcode, sqe.nsid()), (admin::IDENTIFY, Nsid(after)));
            let list = NamespaceList::after(Nsid(after), active.iter().copied().map(Nsid));
            after = list.next_after(Nsid(after)).map_or(0, |nsid| nsid.0);
            if let Step::Done(events) = rescan.answer(Some(list.as_bytes())) {
                return events;
            }
        }
    }

    #[test]
    fn what_came_went_and_changed_is_told_once() {
        let mut rescan = Rescan::default();
        assert_eq!(scan(&mut rescan, &[], &[1, 2, 3]), [], "the first look is no news");
        assert_eq!(
            scan(&mut rescan, &[3, 4, 2], &[1, 3, 4]),
            [Event::NamespaceAdded(Nsid(4)), Event::NamespaceRemoved(Nsid(2)), Event::NamespaceChanged(Nsid(3))]
        );
        assert_eq!(scan(&mut rescan, &[u32::MAX], &[1, 3]).len(), 3, "one removed, two changed");
    }

    #[test]
    fn lists_longer_than_one_page_are_read_on() {
        let mut rescan = Rescan::default();
        let many: Vec<u32> = (1..=2500).collect();
        assert_eq!(scan(&mut rescan, &[], &many), []);
        assert_eq!(scan(&mut rescan, &[], &many[..2499]), [Event::NamespaceRemoved(Nsid(2500))]);
    }

    #[test]
    fn a_failed_answer_changes_nothing_and_a_request_meanwhile_is_not_lost() {
        let mut rescan = Rescan::default();
        scan(&mut rescan, &[], &[1]);
        rescan.request();
        rescan.next_command();
        rescan.answer(None);
        rescan.next_command();
        rescan.request();
        assert!(
            matches!(rescan.answer(Some(NamespaceList::after(Nsid(0), [Nsid(1)]).as_bytes())), Step::Done(events) if events.is_empty())
        );
        assert!(rescan.next_command().is_some(), "asked for again");
    }
}
