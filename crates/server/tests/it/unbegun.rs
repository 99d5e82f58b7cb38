//! Commands that wait for the drive's thread when their association ends, is reset or falls silent,
//! and when they are aborted: what that thread has not begun does not reach what the host does
//! next.

use std::sync::Arc;
use std::time::Duration;

use ebof_clock::Clock;
use ebof_loopback::{Capsule, CompletionMessage, HostEnd};
use ebof_medium::Stepper;
use ebof_nvme::connect::Property;
use ebof_nvme::feature::Fid;
use ebof_nvme::identify::{Cns, Csi, NamespaceList};
use ebof_nvme::media::{Format, Sanitize, SanitizeAction, SecureErase};
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::reservation::{PersistenceChange, Register, RegisterAction, Report, read_report};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Nsid, Sgl, Sqe, Status};
use ebof_server::SteppedTarget;
use zerocopy::{FromBytes, IntoBytes};

use crate::raw;
use crate::stepped::{Shelf, environment, settle, start, with_drive};

const ONE: Nsid = Nsid(1);
/// What the host has written to the first blocks of the namespace.
const WRITTEN: [u8; 4096] = [3; 4096];

/// A target with a drive, whose thread does nothing before it is told to, and one host.
struct Rig {
    target: SteppedTarget,
    clock: Clock,
}

/// A queue of the host.
struct Queue(HostEnd);

/// An association with one I/O queue.
struct Host {
    admin: Queue,
    io: Queue,
    controller: u16,
}

/// A command, its data, and what it is called.
type Request = (&'static str, Sqe, Option<Vec<u8>>);

impl Queue {
    fn send(&mut self, cid: u16, mut sqe: Sqe, length: usize, data: Option<&[u8]>) {
        sqe.cid = cid.into();
        if length > 0 {
            sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: length as u32 });
        }
        self.0.submit(Capsule { sqe, data: data.map(Arc::from) }).unwrap();
    }

    fn answer(&mut self) -> Option<CompletionMessage> {
        self.0.poll().unwrap()
    }

    fn request(&mut self, cid: u16, (_, sqe, data): &Request) {
        self.send(cid, *sqe, data.as_ref().map_or(0, Vec::len), data.as_deref());
    }
}

impl Host {
    fn queue(&mut self, id: u16) -> &mut Queue {
        if id == 0 { &mut self.admin } else { &mut self.io }
    }
}

impl Rig {
    fn new() -> Self {
        let environment = environment(1, &Arc::new(Shelf::default()));
        let clock = environment.clock.clone();
        Self { target: start(with_drive(), environment), clock }
    }

    /// Everything but the drive's thread goes on.
    fn turn(&mut self) {
        while (0..self.target.reactors()).fold(false, |worked, reactor| self.target.step(reactor) | worked) {}
        self.target.keep_time();
    }

    /// Everything goes on until nothing is due soon.
    fn settle(&mut self) {
        settle(&mut self.target, &self.clock);
        let end = self.clock.now() + Duration::from_secs(1);
        while let Some(due) = self.target.due().filter(|&due| due < end) {
            self.clock.advance_to(due);
            settle(&mut self.target, &self.clock);
        }
    }

    /// A queue whose Connect is not answered yet.
    fn asking(&mut self, id: u16, controller: u16) -> Queue {
        let port = self.target.target().addresses()[0].0.clone();
        let mut queue = Queue(self.target.loopback(&port).unwrap().connect(32, Arc::new(|| {})).unwrap());
        queue.send(0, raw::connect(id, 32), 1024, Some(raw::connect_data(controller).as_bytes()));
        self.turn();
        queue
    }

    /// The Admin Queue of a new controller, which is enabled, and its identifier.
    fn admin(&mut self) -> (Queue, u16) {
        let mut queue = self.asking(0, 0xffff);
        let connected = done(queue.answer());
        queue.send(1, Property::set(offset::CC, Cc::ENABLE.0), 0, None);
        self.turn();
        done(queue.answer());
        (queue, connected.cqe.dw0.get() as u16)
    }

    fn call(&mut self, queue: &mut Queue, sqe: Sqe, length: usize, data: Option<&[u8]>) -> CompletionMessage {
        queue.send(9, sqe, length, data);
        self.settle();
        done(queue.answer())
    }

    /// A host that has written to the one namespace.
    fn host(&mut self) -> Host {
        let (mut admin, controller) = self.admin();
        let wanted = NewNamespace::new(2048);
        self.call(&mut admin, create(), 4096, Some(wanted.as_bytes()));
        let mut io = self.asking(1, controller);
        done(io.answer());
        self.call(&mut io, blocks(nvm::WRITE), 4096, Some(&WRITTEN));
        Host { admin, io, controller }
    }

    /// Finds the drive as the host has left it before it sent what is called `what`.
    fn finds_all_unchanged(&mut self, Host { admin, io, .. }: &mut Host, what: &str) {
        let list = Sqe::new(admin::IDENTIFY).with_cdw(10, u32::from(Cns::ALLOCATED_NAMESPACE_LIST.0));
        let list = NamespaceList::read_from_bytes(&self.call(admin, list, 4096, None).data).unwrap();
        assert_eq!(list.iter().collect::<Vec<_>>(), [ONE], "{what}");
        assert_eq!(self.call(io, blocks(nvm::READ), 4096, None).data, WRITTEN, "{what}");
        self.call(io, blocks(nvm::WRITE), 4096, Some(&WRITTEN));
        let report = self.call(io, Report { bytes: 4096, extended: true }.encode(ONE), 4096, None).data;
        assert_eq!(read_report(&report, true).unwrap().1.len(), 0, "{what}");
    }

    /// Writes a block of 4096 bytes, and finds it when everything is at rest.
    fn finds_what_it_writes(&mut self, io: &mut Queue) {
        let command = |opcode| Sqe::new(opcode).with_nsid(ONE);
        self.call(io, command(nvm::WRITE), 4096, Some(&WRITTEN));
        self.settle();
        assert_eq!(self.call(io, command(nvm::READ), 4096, None).data, WRITTEN);
    }
}

fn done(completion: Option<CompletionMessage>) -> CompletionMessage {
    let completion = completion.expect("an answer");
    assert!(completion.cqe.status().is_success(), "{}", completion.cqe.status());
    completion
}

fn blocks(opcode: u8) -> Sqe {
    Sqe::new(opcode).with_nsid(ONE).with_cdw(12, 7)
}

fn create() -> Sqe {
    NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM }.encode(Nsid::NONE)
}

fn format() -> Request {
    ("Format NVM", Format { erase: SecureErase::UserData, ..Format::new(1) }.encode(ONE), None)
}

/// Admin commands that the drive's thread does.
fn admin_requests() -> Vec<Request> {
    let delete = NamespaceManagement { select: ManagementSelect::Delete, csi: Csi::NVM };
    let protect = Sqe::new(admin::SET_FEATURES).with_nsid(ONE).with_cdw(10, Fid::WRITE_PROTECTION.0.into());
    vec![
        format(),
        ("Sanitize", Sanitize::new(SanitizeAction::BlockErase).encode(), None),
        ("Namespace Management, delete", delete.encode(ONE), None),
        ("Namespace Management, create", create(), Some(NewNamespace::new(2048).as_bytes().to_vec())),
        ("Namespace Write Protection", protect.with_cdw(11, 1), None),
    ]
}

/// I/O commands that the drive's thread does.
fn io_requests() -> Vec<Request> {
    let action = RegisterAction::Register;
    let register = Register { action, ignore_existing_key: false, persistence: PersistenceChange::None };
    let keys = [0_u64.to_le_bytes(), 7_u64.to_le_bytes()].concat();
    vec![
        ("Write Uncorrectable", blocks(nvm::WRITE_UNCORRECTABLE), None),
        ("Reservation Register", register.encode(ONE), Some(keys)),
    ]
}

/// Every one of these commands, sent to its queue, while the drive's thread does nothing.
fn each(queue: u16, requests: Vec<Request>, mut go_on: impl FnMut(&mut Rig, Host, &str)) {
    for request in requests {
        let mut rig = Rig::new();
        let mut host = rig.host();
        host.queue(queue).request(2, &request);
        rig.turn();
        assert!(host.queue(queue).answer().is_none(), "{}", request.0);
        go_on(&mut rig, host, request.0);
    }
}

/// The host is gone, and comes back.
fn comes_back(rig: &mut Rig, what: &str) {
    let (admin, controller) = rig.admin();
    let mut io = rig.asking(1, controller);
    assert!(io.answer().is_none(), "{what}: the drive's thread may have begun it");
    rig.settle();
    done(io.answer());
    rig.finds_all_unchanged(&mut Host { admin, io, controller }, what);
}

#[test]
fn what_the_drives_thread_has_not_begun_goes_with_the_connections_of_its_host() {
    let is_lost = |rig: &mut Rig, host: Host, what: &str| {
        drop(host);
        comes_back(rig, what);
    };
    each(0, admin_requests(), is_lost);
    each(1, io_requests(), is_lost);
}

#[test]
fn what_the_drives_thread_has_not_begun_goes_when_keep_alive_times_out() {
    let falls_silent = |rig: &mut Rig, mut host: Host, what: &str| {
        while host.admin.0.poll().is_ok() {
            rig.clock.advance(Duration::from_secs(10));
            rig.turn();
        }
        comes_back(rig, what);
    };
    each(0, admin_requests(), falls_silent);
    each(1, io_requests(), falls_silent);
}

#[test]
fn what_the_drives_thread_has_not_begun_goes_with_its_io_queue() {
    each(1, io_requests(), |rig, Host { admin, io, controller }, what| {
        drop(io);
        rig.turn();
        let mut io = rig.asking(1, controller);
        assert!(io.answer().is_none(), "{what}: the drive's thread may have begun it");
        rig.settle();
        done(io.answer());
        rig.finds_all_unchanged(&mut Host { admin, io, controller }, what);
    });
}

/// The end of the old connections is on its way still, or lost.
#[test]
fn what_an_older_association_has_asked_the_drive_for_begins_before_io_of_a_newer_one() {
    each(0, vec![format()], |rig, mut old, _| {
        let (_admin, controller) = rig.admin();
        let mut io = rig.asking(1, controller);
        assert!(io.answer().is_none(), "the drive's thread has not begun it");
        rig.settle();
        done(io.answer());
        done(old.admin.answer());
        rig.finds_what_it_writes(&mut io);
    });
}

/// A reset (CC.EN), and a shutdown (CC.SHN).
#[test]
fn what_was_asked_of_the_drive_before_a_reset_is_over_with_it() {
    for cc in [Cc(0), Cc::ENABLE.with_shutdown(1)] {
        each(0, vec![format()], |rig, mut host, _| {
            host.admin.send(3, Property::set(offset::CC, cc.0), 0, None);
            rig.turn();
            assert!(host.admin.answer().is_none(), "the drive's thread has not begun what came before");
            rig.settle();
            for _ in 0..2 {
                done(host.admin.answer());
            }
            drop(host);
            let (_admin, controller) = rig.admin();
            let mut io = rig.asking(1, controller);
            rig.settle();
            done(io.answer());
            rig.finds_what_it_writes(&mut io);
        });
    }
}

/// Abort of command 2 of a queue.
fn abort(queue: u16) -> Sqe {
    Sqe::new(admin::ABORT).with_cdw(10, u32::from(queue) | 2 << 16)
}

/// Has command 2 of a queue aborted before the drive's thread does anything. Whether it was.
fn is_aborted(rig: &mut Rig, host: &mut Host, queue: u16) -> bool {
    host.admin.send(3, abort(queue), 0, None);
    rig.turn();
    // On the Admin Queue, the command that is aborted completes first.
    let answer = host.queue(queue).answer().expect("an answer").cqe;
    let (aborted, abort) = if answer.cid().0 == 2 { (Some(answer), host.admin.answer()) } else { (None, None) };
    if let Some(cqe) = aborted {
        assert!(cqe.status().is(Status::ABORT_REQUESTED), "{}", cqe.status());
    }
    let abort = abort.map_or(answer, |abort| abort.cqe);
    assert!(abort.status().is_success());
    assert_eq!(abort.dw0.get() & 1 == 0, aborted.is_some(), "dword 0 says whether it was aborted");
    aborted.is_some()
}

#[test]
fn what_the_drives_thread_has_not_begun_is_aborted_at_once() {
    for (queue, requests) in [(0, admin_requests()), (1, io_requests())] {
        each(queue, requests, |rig, mut host, what| {
            assert!(is_aborted(rig, &mut host, queue), "{what}");
            rig.finds_all_unchanged(&mut host, what);
        });
    }
}

#[test]
fn what_the_drives_thread_has_begun_is_not_aborted() {
    each(0, vec![format()], |rig, mut host, _| {
        rig.target.drives().for_each(Stepper::turn);
        rig.turn();
        assert!(host.admin.answer().is_none(), "it still erases");
        assert!(!is_aborted(rig, &mut host, 0));
        rig.settle();
        done(host.admin.answer());
        rig.finds_what_it_writes(&mut host.io);
    });
}

#[test]
fn a_host_that_aborts_what_it_sends_does_not_fill_the_queue_of_the_drives_thread() {
    each(0, vec![format()], |rig, mut host, _| {
        let mut aborted = 0;
        while is_aborted(rig, &mut host, 0) {
            aborted += 1;
            assert!(aborted < 1000, "there is no limit");
            host.admin.request(2, &format());
            rig.turn();
        }
        rig.settle();
        done(host.admin.answer());
        host.admin.request(2, &format());
        rig.turn();
        assert!(is_aborted(rig, &mut host, 0), "the drive's thread has skipped them");
    });
}
