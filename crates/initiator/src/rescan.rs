//! Which namespaces there are, which have changed, and what those are that somebody has open, as a
//! state machine over the answers to Get Log Page (Changed Namespace List) and Identify. Sends
//! nothing itself.

use std::collections::{BTreeSet, VecDeque};

use ebof_nvme::identify::{Cns, IdentifyNamespace, NamespaceList};
use ebof_nvme::log::{ChangedNamespaces, GetLogPage, Lid};
use ebof_nvme::opcode::admin;
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::FromBytes;

use crate::event::Event;
use crate::opened::{Looked, Refusal, refusal};

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
    /// The first of `open` is to be looked at: what it is, and with `identify`, who it is.
    Look(Box<Look>),
}

#[derive(Debug)]
struct Look {
    found: BTreeSet<u32>,
    changed: BTreeSet<u32>,
    open: VecDeque<Nsid>,
    identify: Option<Box<IdentifyNamespace>>,
    sent: bool,
}

/// What an answer led to.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// What open namespaces were found to be.
    pub(crate) looked: Vec<Looked>,
    /// The scan is over; these are the differences.
    pub(crate) done: Option<Vec<Event>>,
    /// Something could not be told now: ask for another scan in a while.
    pub(crate) again_later: bool,
}

impl Rescan {
    /// What there is on a fresh connection; `None` when the controller did not say. Ends a scan
    /// that was going on, and gives the differences to the connection before, if there was one.
    /// What changed within a namespace is not known.
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

    /// The command that was just given could not be sent: it is given again, as soon as there is
    /// room for it. Nothing else would say once more that something has changed.
    pub(crate) fn not_sent(&mut self) {
        match &mut self.state {
            State::Idle => {}
            State::Changed { sent } | State::List { sent, .. } => *sent = false,
            State::Look(look) => look.sent = false,
        }
    }

    /// The command to send now, if there is one. Its data are 4096 bytes.
    pub(crate) fn next_command(&mut self) -> Option<Sqe> {
        match &mut self.state {
            State::Changed { sent } if !*sent => {
                *sent = true;
                // Read without RAE: it clears the event.
                Some(GetLogPage::new(Lid::CHANGED_NAMESPACES, 4096).encode(Nsid::ALL))
            }
            State::List { after, sent, .. } if !*sent => {
                *sent = true;
                let cns = u32::from(Cns::ACTIVE_NAMESPACE_LIST.0);
                Some(Sqe::new(admin::IDENTIFY).with_nsid(Nsid(*after)).with_cdw(10, cns))
            }
            State::Look(look) if !look.sent => {
                look.sent = true;
                let cns = if look.identify.is_some() { Cns::NAMESPACE_ID_DESCRIPTORS } else { Cns::NAMESPACE };
                let nsid = *look.open.front()?;
                Some(Sqe::new(admin::IDENTIFY).with_nsid(nsid).with_cdw(10, u32::from(cns.0)))
            }
            _ => None,
        }
    }

    /// The answer to the last command: its status and its data; `None` when there was none. `open`
    /// gives the namespaces that somebody has open.
    pub(crate) fn answer(&mut self, answer: Option<(Status, &[u8])>, open: impl FnOnce() -> Vec<Nsid>) -> Step {
        let bytes = answer.filter(|(status, _)| status.is_success()).map(|(_, bytes)| bytes);
        match std::mem::take(&mut self.state) {
            State::Idle => Step { done: Some(Vec::new()), ..Step::default() },
            State::Changed { .. } => {
                // A controller without this log page is scanned all the same.
                let changed = bytes.and_then(|bytes| ChangedNamespaces::read_from_bytes(bytes).ok());
                let changed = changed.map(|list| changed_set(&list)).unwrap_or_default();
                self.state = State::List { after: 0, found: BTreeSet::new(), changed, sent: false };
                Step::default()
            }
            State::List { after, mut found, changed, .. } => {
                let Some(list) = bytes.and_then(|bytes| NamespaceList::read_from_bytes(bytes).ok()) else {
                    return self.without_list(answer.map(|(status, _)| status), changed, open());
                };
                found.extend(list.iter().map(|nsid| nsid.0));
                match list.next_after(Nsid(after)).filter(|_| found.len() < NAMESPACES_MAX) {
                    Some(Nsid(after)) => {
                        self.state = State::List { after, found, changed, sent: false };
                        Step::default()
                    }
                    None => self.begin_looks(found, changed, open()),
                }
            }
            State::Look(look) => self.on_look(look, answer),
        }
    }

    /// The active list was not told. What is open is looked at all the same: it may be another
    /// namespace by now.
    fn without_list(&mut self, status: Option<Status>, changed: BTreeSet<u32>, open: Vec<Nsid>) -> Step {
        let known = self.known.clone().unwrap_or_default();
        let found = known.into_iter().chain(open.iter().map(|nsid| nsid.0)).collect();
        let later = status.is_none_or(|status| matches!(refusal(status), Refusal::Later));
        let step = self.begin_looks(found, changed, open);
        Step { again_later: later, ..step }
    }

    fn begin_looks(&mut self, found: BTreeSet<u32>, changed: BTreeSet<u32>, open: Vec<Nsid>) -> Step {
        let (there, gone): (Vec<Nsid>, Vec<Nsid>) = open.into_iter().partition(|nsid| found.contains(&nsid.0));
        let looked = gone.into_iter().map(Looked::absent).collect();
        let look = Look { found, changed, open: there.into(), identify: None, sent: false };
        self.go_on(Box::new(look), Step { looked, ..Step::default() })
    }

    fn on_look(&mut self, mut look: Box<Look>, answer: Option<(Status, &[u8])>) -> Step {
        let Some(&nsid) = look.open.front() else { return self.go_on(look, Step::default()) };
        look.sent = false;
        let mut step = Step::default();
        let told = answer.map(|(status, bytes)| match refusal(status) {
            _ if status.is_success() => Ok(Some(bytes)),
            Refusal::No => Ok(None),
            Refusal::Later => Err(()),
        });
        match (told, look.identify.take()) {
            (Some(Ok(Some(bytes))), None) => {
                look.identify = IdentifyNamespace::read_from_bytes(bytes).ok().map(Box::new);
                if look.identify.is_some() {
                    return self.go_on(look, step);
                }
            }
            (Some(Ok(None)), None) => step.looked.push(Looked::absent(nsid)),
            (Some(Ok(descriptors)), Some(identify)) => step.looked.push(Looked::found(nsid, identify, descriptors)),
            // It stays as it is until it can be told.
            (None | Some(Err(())), _) => step.again_later = true,
        }
        look.open.pop_front();
        self.go_on(look, step)
    }

    fn go_on(&mut self, look: Box<Look>, mut step: Step) -> Step {
        if !look.open.is_empty() {
            self.state = State::Look(look);
            return step;
        }
        step.done = Some(self.differences(look.found, &look.changed));
        if std::mem::take(&mut self.again) {
            self.state = State::Changed { sent: false };
        }
        step
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

    fn answer(rescan: &mut Rescan, bytes: &[u8]) -> Option<Vec<Event>> {
        rescan.answer(Some((Status::SUCCESS, bytes)), Vec::new).done
    }

    fn scan(rescan: &mut Rescan, changed: &[u32], active: &[u32]) -> Vec<Event> {
        rescan.request();
        assert_eq!(rescan.next_command().map(|sqe| sqe.opcode), Some(admin::GET_LOG_PAGE));
        assert_eq!(rescan.next_command(), None, "one command at a time");
        let mut log = NamespaceList::default();
        for (slot, nsid) in log.identifier.iter_mut().zip(changed) {
            slot.set(*nsid);
        }
        assert!(answer(rescan, log.as_bytes()).is_none());
        let mut after = 0;
        loop {
            let sqe = rescan.next_command().unwrap();
            assert_eq!((sqe.opcode, sqe.nsid()), (admin::IDENTIFY, Nsid(after)));
            let list = NamespaceList::after(Nsid(after), active.iter().copied().map(Nsid));
            after = list.next_after(Nsid(after)).map_or(0, |nsid| nsid.0);
            if let Some(events) = answer(rescan, list.as_bytes()) {
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
        rescan.answer(None, Vec::new);
        rescan.next_command();
        rescan.request();
        assert_eq!(answer(&mut rescan, NamespaceList::after(Nsid(0), [Nsid(1)]).as_bytes()), Some(vec![]));
        assert!(rescan.next_command().is_some(), "asked for again");
    }

    #[test]
    fn a_command_for_which_there_was_no_room_is_given_again() {
        let mut rescan = Rescan::default();
        scan(&mut rescan, &[], &[1]);
        rescan.request();
        let list = NamespaceList::after(Nsid(0), [Nsid(1)]);
        let identify = IdentifyNamespace { nsze: 1.into(), ..IdentifyNamespace::default() };
        for bytes in [list.as_bytes(), list.as_bytes(), identify.as_bytes()] {
            let sqe = rescan.next_command().unwrap();
            rescan.not_sent();
            assert_eq!(rescan.next_command(), Some(sqe));
            let step = rescan.answer(Some((Status::SUCCESS, bytes)), || vec![Nsid(1)]);
            assert!(step.done.is_none());
        }
        assert!(rescan.next_command().is_some(), "the descriptors");
        rescan.answer(None, Vec::new);
        rescan.not_sent();
        assert_eq!(rescan.next_command(), None, "nothing is left to ask");
    }

    #[test]
    fn what_is_open_is_looked_at_without_the_list_too() {
        for (status, later) in [(Status::INVALID_FIELD.dnr(), false), (Status::INTERNAL_ERROR, true)] {
            let mut rescan = Rescan::default();
            scan(&mut rescan, &[], &[1, 2]);
            rescan.request();
            rescan.next_command();
            rescan.answer(None, Vec::new);
            rescan.next_command();
            let step = rescan.answer(Some((status, &[])), || vec![Nsid(2)]);
            assert_eq!((step.again_later, step.done.is_none(), step.looked.is_empty()), (later, true, true));
            let sqe = rescan.next_command().unwrap();
            assert_eq!((sqe.opcode, sqe.nsid(), sqe.cdw10.get()), (admin::IDENTIFY, Nsid(2), 0));
            let step = rescan.answer(Some((Status::INVALID_NAMESPACE.dnr(), &[])), Vec::new);
            assert_eq!((step.looked[0].nsid, step.looked[0].found.is_none()), (Nsid(2), true));
            assert_eq!(step.done, Some(vec![]), "which there are is not known");
        }
    }

    #[test]
    fn open_namespaces_are_looked_at_one_after_the_other() {
        let mut rescan = Rescan::default();
        scan(&mut rescan, &[], &[1, 2, 3]);
        rescan.request();
        rescan.next_command();
        assert!(answer(&mut rescan, NamespaceList::default().as_bytes()).is_none());
        rescan.next_command();
        let list = NamespaceList::after(Nsid(0), [1, 2, 3].map(Nsid));
        let open = || [1, 2, 3, 4].map(Nsid).to_vec();
        let step = rescan.answer(Some((Status::SUCCESS, list.as_bytes())), open);
        assert!(step.done.is_none() && step.looked.len() == 1 && step.looked[0].nsid == Nsid(4), "{step:?}");
        let none = || -> Vec<Nsid> { panic!("asked once") };
        let mut asked = Vec::new();
        let mut told = Vec::new();
        loop {
            let sqe = rescan.next_command().unwrap();
            asked.push((sqe.nsid().0, sqe.cdw10.get()));
            let identify = IdentifyNamespace { nsze: 1.into(), ..IdentifyNamespace::default() };
            let answer = match (sqe.nsid().0, sqe.cdw10.get()) {
                (1, 0) => (Status::INVALID_NAMESPACE.dnr(), [].as_slice()),
                (2, 3) => (Status::COMMAND_INTERRUPTED, [].as_slice()),
                _ => (Status::SUCCESS, identify.as_bytes()),
            };
            let step = rescan.answer(Some(answer), none);
            assert_eq!(step.again_later, asked.last() == Some(&(2, 3)), "what may be told later is asked later");
            told.extend(step.looked.iter().map(|looked| (looked.nsid.0, looked.found.is_some())));
            if let Some(events) = step.done {
                assert_eq!(events, []);
                break;
            }
        }
        assert_eq!((asked, told), (vec![(1, 0), (2, 0), (2, 3), (3, 0), (3, 3)], vec![(1, false), (3, true)]));
        assert!(rescan.next_command().is_none());
    }
}
