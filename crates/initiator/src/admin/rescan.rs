//! Scans the namespaces: which are active, which have changed, and what the open ones are. A state
//! machine over the answers to Get Log Page (Changed Namespace List) and Identify; it sends nothing
//! itself.

use std::collections::{BTreeSet, VecDeque};

use ebof_nvme::identify::{Cns, IdentifyNamespace, NamespaceList};
use ebof_nvme::log::{ChangedNamespaces, GetLogPage, Lid};
use ebof_nvme::opcode::admin;
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::FromBytes;

use crate::shared::bindings::{IdentifyRefusal, Inspection, NAMESPACES_MAX};
use crate::shared::event::Event;

/// A scan and the namespaces that it found.
#[derive(Debug, Default)]
pub(crate) struct Rescan {
    /// The namespaces as last reported to subscribers; `None` before the first scan.
    known: Option<BTreeSet<u32>>,
    state: State,
    /// Another scan was requested during this one.
    again: bool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    /// Reading the Changed Namespace List; `sent`: its command is outstanding.
    Changed { sent: bool },
    /// Reading the active namespaces after NSID `after`.
    List { after: u32, found: BTreeSet<u32>, changed: BTreeSet<u32>, sent: bool },
    /// Inspecting the first of `open`: its Identify data, then (with `identify`) its descriptors.
    Inspect(Box<Inspect>),
}

#[derive(Debug)]
struct Inspect {
    found: BTreeSet<u32>,
    changed: BTreeSet<u32>,
    open: VecDeque<Nsid>,
    identify: Option<Box<IdentifyNamespace>>,
    sent: bool,
    /// Namespaces that were removed meanwhile: answers about them may be older than that.
    outdated: Vec<Nsid>,
}

impl Inspect {
    /// The namespace that is inspected.
    fn first(&self) -> Nsid {
        *self.open.front().expect("a scan without further namespaces to inspect has ended")
    }
}

/// Result of an answer.
#[derive(Debug, Default)]
pub(crate) struct RescanProgress {
    /// Open namespaces as they were found.
    pub(crate) inspected: Vec<Inspection>,
    /// The scan is complete, with these changes.
    pub(crate) done: Option<Vec<Event>>,
    /// A command was refused for now: scan again later.
    pub(crate) retry_later: bool,
}

impl Rescan {
    /// Begins with the namespaces of a new connection; `None` if the controller did not list them.
    /// Ends a scan in progress. Returns the differences to the previous connection, without changes
    /// within namespaces.
    pub(crate) fn restart(&mut self, found: Option<BTreeSet<u32>>) -> Vec<Event> {
        self.state = State::Idle;
        self.again = false;
        match found {
            Some(found) => self.differences(found, &BTreeSet::new()),
            None => Vec::new(),
        }
    }

    /// Requests a scan.
    pub(crate) fn request(&mut self) {
        match self.state {
            State::Idle => self.state = State::Changed { sent: false },
            _ => self.again = true,
        }
    }

    /// A namespace was deleted or detached, or all of them ([`Nsid::ALL`]). Requests a scan; the
    /// present one says nothing about it any more.
    pub(crate) fn removed(&mut self, nsid: Nsid) {
        if let State::Inspect(inspect) = &mut self.state {
            let outdated = inspect.open.iter().filter(|&&open| open == nsid || nsid == Nsid::ALL);
            inspect.outdated.extend(outdated);
        }
        self.request();
    }

    /// The last command could not be sent (the queue is full): `next_command` returns it again. The
    /// event that requested the scan does not come twice.
    pub(crate) fn not_sent(&mut self) {
        match &mut self.state {
            State::Idle => {}
            State::Changed { sent } | State::List { sent, .. } => *sent = false,
            State::Inspect(inspect) => inspect.sent = false,
        }
    }

    /// The next command to send, if there is one, with 4096 bytes of data to the host.
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
            State::Inspect(inspect) if !inspect.sent => {
                inspect.sent = true;
                let cns = if inspect.identify.is_some() { Cns::NAMESPACE_ID_DESCRIPTORS } else { Cns::NAMESPACE };
                let nsid = inspect.first();
                Some(Sqe::new(admin::IDENTIFY).with_nsid(nsid).with_cdw(10, u32::from(cns.0)))
            }
            _ => None,
        }
    }

    /// Takes the status and data of the last command; `None` if it was lost. `open` gives the open
    /// namespaces.
    pub(crate) fn answer(
        &mut self,
        answer: Option<(Status, &[u8])>,
        open: impl FnOnce() -> Vec<Nsid>,
    ) -> RescanProgress {
        let bytes = answer.filter(|(status, _)| status.is_success()).map(|(_, bytes)| bytes);
        match std::mem::take(&mut self.state) {
            // A new connection, with which a scan begins anew, has no answers to the last one.
            State::Idle => unreachable!("an answer to no command of a scan"),
            State::Changed { .. } => {
                // Controllers without this log page are scanned too.
                let changed = bytes.and_then(|bytes| ChangedNamespaces::read_from_bytes(bytes).ok());
                let changed = changed.map(|list| changed_set(&list)).unwrap_or_default();
                self.state = State::List { after: 0, found: BTreeSet::new(), changed, sent: false };
                RescanProgress::default()
            }
            State::List { after, mut found, changed, .. } => {
                let Some(list) = bytes.and_then(|bytes| NamespaceList::read_from_bytes(bytes).ok()) else {
                    return self.without_list(answer.map(|(status, _)| status), changed, open());
                };
                found.extend(list.iter().map(|nsid| nsid.0));
                match list.next_after(Nsid(after)).filter(|_| found.len() < NAMESPACES_MAX) {
                    Some(Nsid(after)) => {
                        self.state = State::List { after, found, changed, sent: false };
                        RescanProgress::default()
                    }
                    None => self.begin_inspecting(found, changed, open()),
                }
            }
            State::Inspect(inspect) => self.on_inspection(inspect, answer),
        }
    }

    /// Without the list of active namespaces. The open ones are inspected anyway: they may have
    /// been replaced.
    fn without_list(&mut self, status: Option<Status>, changed: BTreeSet<u32>, open: Vec<Nsid>) -> RescanProgress {
        let known = self.known.clone().unwrap_or_default();
        let found = known.into_iter().chain(open.iter().map(|nsid| nsid.0)).collect();
        let later =
            status.is_none_or(|status| matches!(IdentifyRefusal::from_status(status), IdentifyRefusal::Transient));
        let progress = self.begin_inspecting(found, changed, open);
        RescanProgress { retry_later: later, ..progress }
    }

    fn begin_inspecting(&mut self, found: BTreeSet<u32>, changed: BTreeSet<u32>, open: Vec<Nsid>) -> RescanProgress {
        let (there, gone): (Vec<Nsid>, Vec<Nsid>) = open.into_iter().partition(|nsid| found.contains(&nsid.0));
        let inspected = gone.into_iter().map(Inspection::absent).collect();
        let inspect = Inspect { found, changed, open: there.into(), identify: None, sent: false, outdated: Vec::new() };
        self.go_on(Box::new(inspect), RescanProgress { inspected, ..RescanProgress::default() })
    }

    fn on_inspection(&mut self, mut inspect: Box<Inspect>, answer: Option<(Status, &[u8])>) -> RescanProgress {
        let nsid = inspect.first();
        inspect.sent = false;
        let mut progress = RescanProgress::default();
        let result = answer.map(|(status, bytes)| match IdentifyRefusal::from_status(status) {
            _ if status.is_success() => Ok(Some(bytes)),
            IdentifyRefusal::Permanent => Ok(None),
            IdentifyRefusal::Transient => Err(()),
        });
        match (result, inspect.identify.take()) {
            (Some(Ok(Some(bytes))), None) => {
                inspect.identify = IdentifyNamespace::read_from_bytes(bytes).ok().map(Box::new);
                if inspect.identify.is_some() {
                    return self.go_on(inspect, progress);
                }
            }
            (Some(Ok(None)), None) => progress.inspected.push(Inspection::absent(nsid)),
            (Some(Ok(descriptors)), Some(identify)) => {
                progress.inspected.push(Inspection::found(nsid, identify, descriptors));
            }
            // It is taken as unchanged until it can be read.
            (None | Some(Err(())), _) => progress.retry_later = true,
        }
        if inspect.outdated.contains(&nsid) {
            progress.inspected.clear();
        }
        inspect.open.pop_front();
        self.go_on(inspect, progress)
    }

    fn go_on(&mut self, inspect: Box<Inspect>, mut progress: RescanProgress) -> RescanProgress {
        if !inspect.open.is_empty() {
            self.state = State::Inspect(inspect);
            return progress;
        }
        progress.done = Some(self.differences(inspect.found, &inspect.changed));
        if std::mem::take(&mut self.again) {
            self.state = State::Changed { sent: false };
        }
        progress
    }

    fn differences(&mut self, found: BTreeSet<u32>, changed: &BTreeSet<u32>) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(known) = &self.known {
            events.extend(found.difference(known).map(|&nsid| Event::NamespaceAdded(Nsid(nsid))));
            events.extend(known.difference(&found).map(|&nsid| Event::NamespaceRemoved(Nsid(nsid))));
            let stayed = found.intersection(known);
            // FFFFFFFFh in the changed list: it has overflowed, so all may have changed.
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
    fn what_was_added_removed_and_changed_is_reported_once() {
        let mut rescan = Rescan::default();
        assert_eq!(scan(&mut rescan, &[], &[1, 2, 3]), [], "the first scan reports nothing");
        assert_eq!(
            scan(&mut rescan, &[3, 4, 2], &[1, 3, 4]),
            [Event::NamespaceAdded(Nsid(4)), Event::NamespaceRemoved(Nsid(2)), Event::NamespaceChanged(Nsid(3))]
        );
        assert_eq!(scan(&mut rescan, &[u32::MAX], &[1, 3]).len(), 3, "one removed, two changed");
    }

    #[test]
    fn lists_longer_than_one_page_are_read_completely() {
        let mut rescan = Rescan::default();
        let many: Vec<u32> = (1..=2500).collect();
        assert_eq!(scan(&mut rescan, &[], &many), []);
        assert_eq!(scan(&mut rescan, &[], &many[..2499]), [Event::NamespaceRemoved(Nsid(2500))]);
    }

    #[test]
    fn a_failed_command_changes_nothing_and_a_concurrent_request_is_kept() {
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
    fn a_command_that_could_not_be_sent_is_returned_again() {
        let mut rescan = Rescan::default();
        scan(&mut rescan, &[], &[1]);
        rescan.request();
        let list = NamespaceList::after(Nsid(0), [Nsid(1)]);
        let identify = IdentifyNamespace { nsze: 1.into(), ..IdentifyNamespace::default() };
        for bytes in [list.as_bytes(), list.as_bytes(), identify.as_bytes()] {
            let sqe = rescan.next_command().unwrap();
            rescan.not_sent();
            assert_eq!(rescan.next_command(), Some(sqe));
            let progress = rescan.answer(Some((Status::SUCCESS, bytes)), || vec![Nsid(1)]);
            assert!(progress.done.is_none());
        }
        assert!(rescan.next_command().is_some(), "the descriptors");
        rescan.answer(None, Vec::new);
        rescan.not_sent();
        assert_eq!(rescan.next_command(), None, "nothing is left to ask");
    }

    #[test]
    fn open_namespaces_are_inspected_without_the_list_too() {
        for (status, later) in [(Status::INVALID_FIELD.dnr(), false), (Status::INTERNAL_ERROR, true)] {
            let mut rescan = Rescan::default();
            scan(&mut rescan, &[], &[1, 2]);
            rescan.request();
            rescan.next_command();
            rescan.answer(None, Vec::new);
            rescan.next_command();
            let progress = rescan.answer(Some((status, &[])), || vec![Nsid(2)]);
            assert_eq!(
                (progress.retry_later, progress.done.is_none(), progress.inspected.is_empty()),
                (later, true, true)
            );
            let sqe = rescan.next_command().unwrap();
            assert_eq!((sqe.opcode, sqe.nsid(), sqe.cdw10.get()), (admin::IDENTIFY, Nsid(2), 0));
            let progress = rescan.answer(Some((Status::INVALID_NAMESPACE.dnr(), &[])), Vec::new);
            assert_eq!((progress.inspected[0].nsid, progress.inspected[0].found.is_none()), (Nsid(2), true));
            assert_eq!(progress.done, Some(vec![]), "which there are is not known");
        }
    }

    #[test]
    fn a_namespace_removed_during_a_scan_is_not_reported() {
        let mut rescan = Rescan::default();
        scan(&mut rescan, &[], &[1, 2]);
        rescan.request();
        rescan.next_command();
        assert!(answer(&mut rescan, NamespaceList::default().as_bytes()).is_none());
        rescan.next_command();
        let list = NamespaceList::after(Nsid(0), [1, 2].map(Nsid));
        rescan.answer(Some((Status::SUCCESS, list.as_bytes())), || [1, 2].map(Nsid).to_vec());
        let identify = IdentifyNamespace { nsze: 1.into(), ..IdentifyNamespace::default() };
        let mut found = Vec::new();
        while let Some(sqe) = rescan.next_command() {
            if sqe.opcode != admin::IDENTIFY {
                break;
            }
            if (sqe.nsid(), sqe.cdw10.get()) == (Nsid(1), 3) {
                rescan.removed(Nsid(1));
            }
            let progress = rescan.answer(Some((Status::SUCCESS, identify.as_bytes())), Vec::new);
            found.extend(progress.inspected.iter().map(|inspected| inspected.nsid.0));
        }
        assert_eq!(found, [2], "and there is another scan");
    }

    #[test]
    fn open_namespaces_are_inspected_one_after_the_other() {
        let mut rescan = Rescan::default();
        scan(&mut rescan, &[], &[1, 2, 3]);
        rescan.request();
        rescan.next_command();
        assert!(answer(&mut rescan, NamespaceList::default().as_bytes()).is_none());
        rescan.next_command();
        let list = NamespaceList::after(Nsid(0), [1, 2, 3].map(Nsid));
        let open = || [1, 2, 3, 4].map(Nsid).to_vec();
        let progress = rescan.answer(Some((Status::SUCCESS, list.as_bytes())), open);
        assert!(
            progress.done.is_none() && progress.inspected.len() == 1 && progress.inspected[0].nsid == Nsid(4),
            "{progress:?}"
        );
        let none = || -> Vec<Nsid> { panic!("asked once") };
        let mut asked = Vec::new();
        let mut found = Vec::new();
        loop {
            let sqe = rescan.next_command().unwrap();
            asked.push((sqe.nsid().0, sqe.cdw10.get()));
            let identify = IdentifyNamespace { nsze: 1.into(), ..IdentifyNamespace::default() };
            let answer = match (sqe.nsid().0, sqe.cdw10.get()) {
                (1, 0) => (Status::INVALID_NAMESPACE.dnr(), [].as_slice()),
                (2, 3) => (Status::COMMAND_INTERRUPTED, [].as_slice()),
                _ => (Status::SUCCESS, identify.as_bytes()),
            };
            let progress = rescan.answer(Some(answer), none);
            assert_eq!(progress.retry_later, asked.last() == Some(&(2, 3)), "a transient refusal is retried");
            found.extend(progress.inspected.iter().map(|inspected| (inspected.nsid.0, inspected.found.is_some())));
            if let Some(events) = progress.done {
                assert_eq!(events, []);
                break;
            }
        }
        assert_eq!((asked, found), (vec![(1, 0), (2, 0), (2, 3), (3, 0), (3, 3)], vec![(1, false), (3, true)]));
        assert!(rescan.next_command().is_none());
    }
}
