//! What becomes of a drive whose medium fails in the middle of a request: nothing that outlives the
//! cause.

use std::ops::Range;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use ebof_backend::{Buffer, Class, Device, Error, Geometry, Io, Memory, Operation, Submitted};
use ebof_clock::Clock;
use ebof_drive::{Answer, Identity, NewNamespace, Origin, Refusal, Request, Settings, VolumeId};
use ebof_fabrics::{DiscoveryIdentity, Model};
use ebof_medium::Options;
use ebof_nvme::media::{Format, Sanitize, SanitizeAction, SecureErase};
use ebof_nvme::{ControllerId, HostId, Nqn, Nsid, Status};

use super::actor::DriveActor;
use super::start::{Plan, start};
use super::{DriveReply, Drives};

const CAPACITY: u64 = 16 << 20;
const EVERYWHERE: Range<u64> = 0..u64::MAX;
/// Where the tables of keys are.
const KEYS: Range<u64> = 64 << 10..1 << 20;

/// Where marks of what is flushed are: they are written at times of the drive's own.
const MARKS: Range<u64> = 1016 << 10..1 << 20;

/// Memory that fails on command.
#[derive(Debug)]
struct Faulty {
    memory: Memory,
    fault: Mutex<Option<Fault>>,
}

/// Writes to a place fail, after so many that do not.
#[derive(Debug)]
struct Fault {
    place: Range<u64>,
    after: u32,
}

impl Faulty {
    fn new() -> Arc<Self> {
        let bytes = ebof_medium::medium_bytes(CAPACITY).unwrap();
        Arc::new(Self { memory: Memory::new(bytes, 512, false), fault: Mutex::default() })
    }

    fn fail(&self, place: Range<u64>, after: u32) {
        *self.fault.lock().unwrap() = Some(Fault { place, after });
    }

    fn heal(&self) {
        *self.fault.lock().unwrap() = None;
    }

    fn fails(&self, operation: &Operation) -> bool {
        let (Operation::Write { offset, .. } | Operation::WriteZeroes { offset, .. }) = operation else { return false };
        let mut fault = self.fault.lock().unwrap();
        let Some(fault) = fault.as_mut().filter(|fault| fault.place.contains(offset) && !MARKS.contains(offset)) else {
            return false;
        };
        fault.after.checked_sub(1).map(|left| fault.after = left).is_none()
    }
}

impl Device for Faulty {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, io: &mut Io, request: ebof_backend::Request) -> Submitted {
        if self.fails(&request.operation) {
            let action = request.operation.action();
            let reason = "as the test wants";
            let error = Error::Refused { action, offset: 0, len: 0, class: Class::MediumWrite, reason };
            return Submitted::Done(request.complete(Err(error)));
        }
        self.memory.submit(io, request)
    }

    fn describe(&self) -> String {
        "memory that fails on command".to_owned()
    }
}

fn actor(device: &Arc<Faulty>, settings: Settings) -> Arc<DriveActor> {
    let backing = Arc::clone(device) as Arc<dyn Device>;
    let options = Options { create: Some(CAPACITY), zeroed: true, ..Options::default() };
    let identity = Identity { serial: "S1".to_owned(), model: "ebof".to_owned(), uuid: [7; 16] };
    let plan =
        Plan { name: "d0".to_owned(), backing, options, settings, identity, sensor: None, clock: Clock::system() };
    let actor = start(plan).unwrap();
    ask(&actor, Request::AssignCntlid).unwrap();
    actor
}

fn ask(actor: &Arc<DriveActor>, request: Request) -> Result<DriveReply, Refusal> {
    let host = Nqn::parse("nqn.2014-08.org.example:host").unwrap();
    let origin = Origin::host(ControllerId(1), host, HostId([1; 16]));
    let (sender, receiver) = mpsc::channel();
    actor.submit(request, origin, move |answer| {
        let _gone = sender.send(answer);
    });
    receiver.recv_timeout(Duration::from_secs(120)).unwrap()
}

/// Makes a namespace of 1 MiB that the host has.
fn create(actor: &Arc<DriveActor>) -> Result<u32, Refusal> {
    let wanted = NewNamespace { blocks: 256, capacity_blocks: 256, format: 1, ..NewNamespace::default() };
    let Answer::Done(nsid) = ask(actor, Request::Create(wanted))?.answer else { panic!("an NSID is expected") };
    let nsid = u32::try_from(nsid).unwrap();
    ask(actor, Request::Attach(Nsid(nsid), vec![ControllerId(1)]))?;
    Ok(nsid)
}

/// Shows hosts the drive as it is now; the devices that they reach it by.
fn shown_devices(drives: &Drives, actor: &Arc<DriveActor>) -> Vec<Arc<dyn Device>> {
    let nqn = Nqn::parse("nqn.2014-08.org.example:drive").unwrap();
    let discovery = DiscoveryIdentity {
        nqn: Nqn::discovery(),
        serial: "S0".to_owned(),
        model: "ebof".to_owned(),
        firmware: "1".to_owned(),
    };
    let mut shown = None;
    let actors = [(nqn.clone(), Arc::clone(actor))];
    drives
        .put_in_force(Vec::new(), &actors, std::collections::BTreeMap::new(), Model::new(discovery), |table, _| {
            shown = Some(table);
            Ok(())
        })
        .unwrap();
    let table = shown.unwrap();
    let names = drives.shown().actors[&nqn].names.clone();
    names.values().map(|(id, _)| Arc::clone(table.device(*id).unwrap())).collect()
}

/// Reads the first block of a namespace.
fn read(device: &dyn Device) -> Result<(), Error> {
    let mut io = Io::new(1).unwrap();
    let operation = Operation::Read { offset: 0, len: 4096, data: Buffer::zeroed(4096).into() };
    match device.submit(&mut io, ebof_backend::Request::new(1, operation)) {
        Submitted::Done(completion) => completion.result,
        Submitted::Pending => io.wait(None).unwrap().unwrap().result,
        Submitted::Busy(_) => panic!("nothing else is in flight"),
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

fn failed(answer: Result<DriveReply, Refusal>) {
    assert_eq!(answer.unwrap_err().status, Status::INTERNAL_ERROR);
}

// @test data.medium-failure
#[test]
fn a_namespace_can_be_created_after_that_has_failed_once() {
    // Wherever it fails: nothing that was begun is in the way. The record and the changes are a
    // write each; of a key there are two before them.
    for (encrypted, writes) in [(false, 2), (true, 4)] {
        for after in 0..writes {
            let device = Faulty::new();
            let actor = actor(&device, Settings { encrypted, ..Settings::default() });
            device.fail(EVERYWHERE, after);
            let wanted = NewNamespace { blocks: 256, capacity_blocks: 256, ..NewNamespace::default() };
            failed(ask(&actor, Request::Create(wanted)));
            device.heal();
            assert_eq!(create(&actor).unwrap(), 1, "after {after} writes");
            assert_eq!(create(&actor).unwrap(), 2, "after {after} writes");
            until("what was begun is still there", || actor.medium().volumes().len() == 2);
            actor.stop();
        }
    }
}

#[test]
fn a_namespace_with_the_volume_id_of_a_failed_one_can_be_read() {
    let device = Faulty::new();
    let actor = actor(&device, Settings::default());
    let drives = Drives::default();
    // The record of the volume is written. The changes are not, and the volume cannot be removed.
    device.fail(EVERYWHERE, 1);
    let wanted = NewNamespace { blocks: 256, capacity_blocks: 256, ..NewNamespace::default() };
    failed(ask(&actor, Request::Create(wanted)));
    assert_eq!(actor.medium().volumes(), [VolumeId(0)], "the test fails another write than it means");
    // Hosts are shown the drive meanwhile.
    let _none = shown_devices(&drives, &actor);
    device.heal();
    assert_eq!(create(&actor).unwrap(), 1);
    assert_eq!(actor.medium().volumes(), [VolumeId(0)]);
    let shown = shown_devices(&drives, &actor);
    assert_eq!(shown.len(), 1);
    read(&*shown[0]).unwrap();
    actor.stop();
}

// @test data.medium-failure
#[test]
fn a_failed_removal_is_retried_until_it_succeeds() {
    let device = Faulty::new();
    let actor = actor(&device, Settings { encrypted: true, ..Settings::default() });
    for nsid in 1..=3 {
        assert_eq!(create(&actor).unwrap(), nsid);
    }
    // The state says that it is gone; the medium cannot be changed.
    device.fail(EVERYWHERE, 1);
    ask(&actor, Request::Delete(Nsid(2))).unwrap();
    assert_eq!(actor.medium().volumes().len(), 3);
    device.heal();
    until("a deleted namespace is still on the medium", || actor.medium().volumes() == [VolumeId(0), VolumeId(2)]);
    assert_eq!(create(&actor).unwrap(), 2);
    actor.stop();
}

// @test data.medium-failure
#[test]
fn a_failed_format_of_all_namespaces_does_not_block_later_ones() {
    let device = Faulty::new();
    let plain = Settings::default();
    let actor = actor(&device, plain.clone());
    assert_eq!(create(&actor).unwrap(), 1);
    actor.configure("d0", Settings { encrypted: true, ..plain });
    assert_eq!(create(&actor).unwrap(), 2);
    let format = Format { erase: SecureErase::Cryptographic, ..Format::new(1) };
    // Two keys are made, each in two tables; destroying the old one fails.
    device.fail(KEYS, 4);
    failed(ask(&actor, Request::Format(Nsid::ALL, format)));
    device.heal();
    until("namespaces are barred although nothing is being erased", || actor.view().erasing.is_empty());
    ask(&actor, Request::Format(Nsid::ALL, format)).unwrap();
    assert!(actor.view().erasing.is_empty());
    actor.stop();
}

#[test]
fn a_key_that_was_not_destroyed_is_an_error() {
    let device = Faulty::new();
    let actor = actor(&device, Settings { encrypted: true, ..Settings::default() });
    assert_eq!(create(&actor).unwrap(), 1);
    let format = Format { erase: SecureErase::Cryptographic, ..Format::new(1) };
    // The key of the new namespace, its record, the changes; then the old namespace cannot be
    // removed.
    device.fail(EVERYWHERE, 4);
    failed(ask(&actor, Request::Format(Nsid(1), format)));
    assert_eq!(actor.medium().volumes().len(), 2, "the test fails another write than it means");
    device.heal();
    until("what was formatted is still on the medium", || actor.medium().volumes().len() == 1);
    actor.stop();
}

#[test]
fn a_drive_is_not_sanitized_before_its_old_volumes_are_removed() {
    let device = Faulty::new();
    let actor = actor(&device, Settings { encrypted: true, ..Settings::default() });
    assert_eq!(create(&actor).unwrap(), 1);
    device.fail(EVERYWHERE, 4);
    ask(&actor, Request::Sanitize(Sanitize::new(SanitizeAction::CryptoErase))).unwrap();
    assert!(actor.view().restriction.is_some() && actor.medium().volumes().len() == 2);
    device.heal();
    until("sanitizing takes too long", || {
        let is_over = actor.view().restriction.is_none();
        // It may have failed as long as the medium did: then it is asked for again.
        if !is_over && actor.drive().sanitize_work().is_none() {
            let _asked = ask(&actor, Request::Sanitize(Sanitize::new(SanitizeAction::CryptoErase)));
        }
        is_over
    });
    // What was on the drive is gone with its key; the namespace has a new one.
    let left = actor.medium().volumes();
    assert!(left.len() == 1 && left[0] != VolumeId(0), "{left:?}");
    actor.stop();
}
