//! Invalid commands, over real connections to a drive: each has the status of the specification,
//! and an entry in the Error Information log with the command and the location of the error.
//!
//! In NVMe Base 2.1 a controller ignores reserved fields of a command, except for reserved values
//! of a coded field (an action, a format, an identifier), which are Invalid Field in Command. The
//! first kind is `Ignored` in the table.
#![expect(clippy::too_many_lines, reason = "tables are long")]

use std::cell::RefCell;

use ebof_initiator::{AdminData, Controller, QueuePair};
use ebof_nvme::connect::Property;
use ebof_nvme::feature::Fid;
use ebof_nvme::log::{ErrorInformation, Lid, SanitizeLog, SanitizeState};
use ebof_nvme::media::{Sanitize, SanitizeAction};
use ebof_nvme::opcode::{FABRICS, admin, nvm};
use ebof_nvme::{Cqe, Nsid, Sqe, Status};
use zerocopy::FromBytes;

use crate::drive_rig::{connect, create, errors, start, wait};

/// The queue of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Admin,
    Io,
}

/// The data of a command.
#[derive(Clone, Debug)]
enum Data {
    None,
    /// This many bytes for the host.
    Host(usize),
    /// These bytes for the controller.
    Drive(Vec<u8>),
}

/// The expected result of a command.
#[derive(Clone, Copy, Debug)]
enum Becomes {
    /// This status, with the location of the error if there is one, and with Do Not Retry.
    Refused(Status, Option<u8>),
    /// The same without Do Not Retry.
    Later(Status, Option<u8>),
    /// A status that is not an error of the drive or the command: there is no entry.
    Said(Status),
    /// The field is ignored.
    Ignored,
}

use Becomes::{Ignored, Later, Refused, Said};
use Data::{Drive, Host};
use To::{Admin, Io};

type Case = (&'static str, To, Sqe, Data, Becomes);

const BLOCKS: u64 = 32 << 11;
/// Bytes of a command, by field.
const OPCODE: Option<u8> = Some(0);
const NSID: Option<u8> = Some(4);
const CDW10: Option<u8> = Some(40);
const CDW11: Option<u8> = Some(44);
const CDW12: Option<u8> = Some(48);
const CDW13: Option<u8> = Some(52);
const SGL_LENGTH: Option<u8> = Some(32);

fn at(cdw: Option<u8>, byte: u8) -> Option<u8> {
    cdw.map(|cdw| cdw + byte)
}

/// A command to namespace `nsid` with dwords from 10 on.
fn cmd(opcode: u8, nsid: u32, dwords: &[u32]) -> Sqe {
    let sqe = Sqe::new(opcode).with_nsid(Nsid(nsid));
    (10..).zip(dwords).fold(sqe, |sqe, (at, &dword)| sqe.with_cdw(at, dword))
}

/// A command about `blocks` blocks from `slba` on.
fn blocks(opcode: u8, nsid: u32, slba: u64, blocks: u32) -> Sqe {
    let low = u32::try_from(slba & 0xffff_ffff).unwrap();
    let high = u32::try_from(slba >> 32).unwrap();
    cmd(opcode, nsid, &[low, high, blocks - 1])
}

fn words(words: &[u32]) -> Data {
    Drive(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

/// A controller, and an I/O queue of it.
struct Line {
    host: Controller,
    queue: RefCell<QueuePair<Vec<u8>>>,
}

fn run(line: &Line, to: To, sqe: Sqe, data: &Data) -> Cqe {
    let mut room = match data {
        Host(bytes) => vec![0; *bytes],
        _ => Vec::new(),
    };
    let data = match data {
        Data::None => AdminData::None,
        Host(_) => AdminData::ToHost(&mut room),
        Drive(bytes) => AdminData::FromHost(bytes),
    };
    match to {
        Admin => line.host.admin(sqe, data, None).unwrap(),
        Io => line.queue.borrow_mut().execute(sqe, data).unwrap(),
    }
}

/// Runs a case, and compares its result with the expected one.
fn check(line: &Line, (what, to, sqe, data, becomes): &Case) {
    let before = errors(&line.host, 1)[0].ec.get();
    let cqe = run(line, *to, *sqe, data);
    let (status, location) = match *becomes {
        Refused(status, location) => (status.dnr().more(), location),
        Later(status, location) => (status.more(), location),
        Said(status) => (status, None),
        Ignored => (Status::SUCCESS, None),
    };
    assert_eq!(cqe.status(), status, "{what}");
    let entry = errors(&line.host, 1)[0];
    if let Said(_) | Ignored = becomes {
        assert_eq!(entry.ec.get(), before, "{what}: {entry:?}");
        return;
    }
    let lba = u64::from(sqe.cdw10.get()) | u64::from(sqe.cdw11.get()) << 32;
    let mut wanted = ErrorInformation {
        ec: (before + 1).into(),
        sqid: if *to == Io { line.queue.borrow().id().0 } else { 0 }.into(),
        cid: cqe.cid().0.into(),
        nsid: if sqe.opcode == FABRICS { 0 } else { sqe.nsid().0 }.into(),
        lba: if *to == Io { lba } else { 0 }.into(),
        opc: sqe.opcode,
        trtype: 3,
        lpver: 1,
        csinfo: entry.csinfo,
        ..ErrorInformation::default()
    };
    wanted.set_status(cqe.status());
    wanted.set_parameter_error_location(location.map(|byte| ebof_nvme::log::ParameterErrorLocation { byte, bit: 0 }));
    assert_eq!(entry, wanted, "{what}");
}

/// A drive whose namespace 1 is attached to this host, and namespace 2 to none.
fn drive(directory: &std::path::Path) -> (ebof_server::Target, Line) {
    let (target, address) = start(&directory.join("drive.img"), Some(64 << 20));
    let host = connect(address);
    create(&host, BLOCKS);
    create(&host, 8);
    let mut list = vec![0; 4096];
    list[..4].copy_from_slice(&[1, 0, u8::try_from(host.id().0).unwrap(), 0]);
    let line = Line { queue: RefCell::new(host.queue_pair().unwrap()), host };
    let detached = run(&line, Admin, cmd(admin::NAMESPACE_ATTACHMENT, 2, &[1]), &Drive(list));
    assert!(detached.status().is_success(), "{}", detached.status());
    (target, line)
}

fn all(cases: &[Case]) {
    let directory = tempfile::tempdir().unwrap();
    let (_target, line) = drive(directory.path());
    // Report all errors, not only the first.
    let wrong = cases.iter().filter(|case| {
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&line, case)));
        checked.is_err()
    });
    assert_eq!(wrong.map(|case| case.0).collect::<Vec<_>>(), [""; 0]);
    // The drive still works.
    let namespace = line.host.namespace(Nsid(1)).unwrap();
    namespace.write(0, &[7; 512], false).unwrap();
    assert!(namespace.compare(0, &[7; 512]).unwrap());
}

#[test]
fn blocks_and_namespaces_that_do_not_exist() {
    let sector = || Drive(vec![1; 512]);
    let mut cases: Vec<Case> = Vec::new();
    for nsid in [0, 2, 129, u32::MAX] {
        // Deviation: an NSID that is valid but not allocated (2) is Invalid Field in Command in the
        // specification; hosts interpret that as "not supported", and other targets respond as
        // here.
        let refused = Refused(Status::INVALID_NAMESPACE, NSID);
        cases.push(("read", Io, blocks(nvm::READ, nsid, 0, 1), Host(512), refused));
        cases.push(("write", Io, blocks(nvm::WRITE, nsid, 0, 1), sector(), refused));
        cases.push(("flush", Io, cmd(nvm::FLUSH, nsid, &[]), Data::None, refused));
        cases.push(("verify", Io, blocks(nvm::VERIFY, nsid, 0, 1), Data::None, refused));
        cases.push(("deallocate", Io, cmd(nvm::DATASET_MANAGEMENT, nsid, &[0, 4]), words(&[0, 1, 0, 0]), refused));
        cases.push(("reservation report", Io, cmd(nvm::RESERVATION_REPORT, nsid, &[15, 1]), Host(64), refused));
        cases.push(("copy", Io, cmd(nvm::COPY, nsid, &[0, 0, 0]), Drive(vec![0; 32]), refused));
    }
    for (slba, count) in [(BLOCKS, 1), (BLOCKS - 1, 2), (u64::MAX, 1), (u64::MAX, 65536), (1 << 55, 8)] {
        let refused = Refused(Status::LBA_OUT_OF_RANGE, CDW10);
        for opcode in [nvm::VERIFY, nvm::WRITE_ZEROES, nvm::WRITE_UNCORRECTABLE] {
            if count < 65536 {
                cases.push(("no data, out of range", Io, blocks(opcode, 1, slba, count), Data::None, refused));
            }
        }
        if count < 65536 {
            let bytes = 512 * count as usize;
            cases.push(("read out of range", Io, blocks(nvm::READ, 1, slba, count), Host(bytes), refused));
            for opcode in [nvm::WRITE, nvm::COMPARE] {
                cases.push(("data out of range", Io, blocks(opcode, 1, slba, count), Drive(vec![0; bytes]), refused));
            }
        }
    }
    let far = words(&[0, 2, u32::try_from(BLOCKS - 1).unwrap(), 0]);
    cases.push((
        "deallocation out of range",
        Io,
        cmd(nvm::DATASET_MANAGEMENT, 1, &[0, 4]),
        far,
        Refused(Status::LBA_OUT_OF_RANGE, CDW10),
    ));
    all(&cases);
}

#[test]
fn io_commands_with_invalid_fields() {
    let key = |current: u32, new: u32| words(&[current, 0, new, 0]);
    let mdts = 1 << 20;
    let cases: Vec<Case> = vec![
        ("no such opcode", Io, cmd(0x7e, 1, &[]), Data::None, Refused(Status::INVALID_OPCODE, OPCODE)),
        ("vendor specific", Io, cmd(0x80, 1, &[]), Data::None, Refused(Status::INVALID_OPCODE, OPCODE)),
        ("zone management", Io, cmd(0x79, 1, &[]), Data::None, Refused(Status::INVALID_OPCODE, OPCODE)),
        (
            "too little room",
            Io,
            blocks(nvm::READ, 1, 0, 2),
            Host(512),
            Refused(Status::DATA_SGL_LENGTH_INVALID, SGL_LENGTH),
        ),
        (
            "too much room",
            Io,
            blocks(nvm::READ, 1, 0, 1),
            Host(1024),
            Refused(Status::DATA_SGL_LENGTH_INVALID, SGL_LENGTH),
        ),
        ("no data", Io, blocks(nvm::WRITE, 1, 0, 1), Data::None, Refused(Status::DATA_SGL_LENGTH_INVALID, SGL_LENGTH)),
        ("above MDTS", Io, blocks(nvm::READ, 1, 0, 4096), Host(4096 * 512), Refused(Status::INVALID_FIELD, CDW12)),
        (
            "above WZSL",
            Io,
            blocks(nvm::WRITE_ZEROES, 1, 0, 0x1_0000),
            Data::None,
            Refused(Status::INVALID_FIELD, CDW12),
        ),
        (
            "above WUSL",
            Io,
            blocks(nvm::WRITE_UNCORRECTABLE, 1, 0, 0x1_0000),
            Data::None,
            Refused(Status::INVALID_FIELD, CDW12),
        ),
        ("above VSL", Io, blocks(nvm::VERIFY, 1, 0, 0x1_0000), Data::None, Refused(Status::INVALID_FIELD, CDW12)),
        (
            "a directive",
            Io,
            cmd(nvm::WRITE, 1, &[0, 0, 1 << 20]),
            Drive(vec![0; 512]),
            Refused(Status::INVALID_FIELD, at(CDW12, 2)),
        ),
        ("reserved dwords", Io, blocks(nvm::READ, 1, 0, 1).with_cdw(2, u32::MAX).with_cdw(3, 1), Host(512), Ignored),
        ("reserved bits of NLB", Io, cmd(nvm::READ, 1, &[0, 0, 0x000f_0000]), Host(512), Ignored),
        ("reserved bits of Flush", Io, cmd(nvm::FLUSH, 1, &[u32::MAX; 6]), Data::None, Ignored),
        ("other bytes", Io, blocks(nvm::COMPARE, 1, 0, 1), Drive(vec![9; 512]), Said(Status::COMPARE_FAILURE)),
        (
            "too few ranges",
            Io,
            cmd(nvm::DATASET_MANAGEMENT, 1, &[1, 4]),
            words(&[0, 1, 0, 0]),
            Refused(Status::DATA_SGL_LENGTH_INVALID, SGL_LENGTH),
        ),
        ("nothing to be done with ranges", Io, cmd(nvm::DATASET_MANAGEMENT, 1, &[0, 0]), words(&[0, 1, 0, 0]), Ignored),
        (
            "reserved bits of ranges",
            Io,
            cmd(nvm::DATASET_MANAGEMENT, 1, &[0xffff_ff00, 0xffff_fff8]),
            words(&[0, 1, 0, 0]),
            Ignored,
        ),
        (
            "no such copy format",
            Io,
            cmd(nvm::COPY, 1, &[0, 0, 0x0400]),
            Drive(vec![0; 32]),
            Refused(Status::INVALID_FIELD, at(CDW12, 1)),
        ),
        (
            "a copy format that was not switched on",
            Io,
            cmd(nvm::COPY, 1, &[0, 0, 0x0200]),
            Drive(vec![0; 32]),
            Refused(Status::INVALID_FIELD, at(CDW12, 1)),
        ),
        (
            "copy with a directive",
            Io,
            cmd(nvm::COPY, 1, &[0, 0, 1 << 20]),
            Drive(vec![0; 32]),
            Refused(Status::INVALID_FIELD, at(CDW12, 2)),
        ),
        (
            "copy of too few ranges",
            Io,
            cmd(nvm::COPY, 1, &[0, 0, 1]),
            Drive(vec![0; 32]),
            Refused(Status::DATA_SGL_LENGTH_INVALID, SGL_LENGTH),
        ),
        (
            "copy to out of range",
            Io,
            cmd(nvm::COPY, 1, &[u32::MAX, 0, 0]),
            Drive(vec![0; 32]),
            Refused(Status::LBA_OUT_OF_RANGE, CDW10),
        ),
        (
            "copy from out of range",
            Io,
            cmd(nvm::COPY, 1, &[0, 0, 0]),
            words(&[0, 0, u32::MAX, 0, 0, 0, 0, 0]),
            Refused(Status::LBA_OUT_OF_RANGE, None),
        ),
        (
            "no such register action",
            Io,
            cmd(nvm::RESERVATION_REGISTER, 1, &[3]),
            key(0, 1),
            Refused(Status::INVALID_FIELD, CDW10),
        ),
        (
            "no such persistence",
            Io,
            cmd(nvm::RESERVATION_REGISTER, 1, &[1 << 30]),
            key(0, 1),
            Refused(Status::INVALID_FIELD, at(CDW10, 3)),
        ),
        (
            "keys cut short",
            Io,
            cmd(nvm::RESERVATION_REGISTER, 1, &[0]),
            words(&[0, 0]),
            Refused(Status::DATA_SGL_LENGTH_INVALID, SGL_LENGTH),
        ),
        (
            "not registered",
            Io,
            cmd(nvm::RESERVATION_ACQUIRE, 1, &[0x100]),
            key(1, 0),
            Refused(Status::RESERVATION_CONFLICT, None),
        ),
        ("registered", Io, cmd(nvm::RESERVATION_REGISTER, 1, &[0]), key(0, 1), Ignored),
        (
            "no such acquire action",
            Io,
            cmd(nvm::RESERVATION_ACQUIRE, 1, &[0x103]),
            key(1, 0),
            Refused(Status::INVALID_FIELD, CDW10),
        ),
        (
            "IEKEY, which is not for acquiring",
            Io,
            cmd(nvm::RESERVATION_ACQUIRE, 1, &[0x108]),
            key(1, 0),
            Refused(Status::INVALID_FIELD, CDW10),
        ),
        (
            "no such type",
            Io,
            cmd(nvm::RESERVATION_ACQUIRE, 1, &[0x700]),
            key(1, 0),
            Refused(Status::INVALID_FIELD, at(CDW10, 1)),
        ),
        (
            "another key",
            Io,
            cmd(nvm::RESERVATION_ACQUIRE, 1, &[0x100]),
            key(2, 0),
            Refused(Status::RESERVATION_CONFLICT, None),
        ),
        (
            "no such release action",
            Io,
            cmd(nvm::RESERVATION_RELEASE, 1, &[2]),
            words(&[1, 0]),
            Refused(Status::INVALID_FIELD, CDW10),
        ),
        ("unregistered", Io, cmd(nvm::RESERVATION_REGISTER, 1, &[1]), key(1, 0), Ignored),
        (
            "a report without extended data",
            Io,
            cmd(nvm::RESERVATION_REPORT, 1, &[15, 0]),
            Host(64),
            Refused(Status::HOST_ID_INCONSISTENT, CDW11),
        ),
        (
            "a report above MDTS",
            Io,
            cmd(nvm::RESERVATION_REPORT, 1, &[mdts, 1]),
            Host(64),
            Refused(Status::INVALID_FIELD, CDW10),
        ),
    ];
    all(&cases);
}

#[test]
fn admin_commands_with_invalid_fields() {
    let page = |lid: Lid, bytes: u32| (bytes / 4 - 1) << 16 | u32::from(lid.0);
    let fid = |fid: Fid| u32::from(fid.0);
    let length = Refused(Status::DATA_SGL_LENGTH_INVALID, SGL_LENGTH);
    let field = |byte| Refused(Status::INVALID_FIELD, byte);
    let log = |dwords: &[u32]| cmd(admin::GET_LOG_PAGE, 0, dwords);
    let get = |nsid, dwords: &[u32]| cmd(admin::GET_FEATURES, nsid, dwords);
    let set = |nsid, dwords: &[u32]| cmd(admin::SET_FEATURES, nsid, dwords);
    let identify = |nsid, dwords: &[u32]| cmd(admin::IDENTIFY, nsid, dwords);
    let invalid = Refused(Status::INVALID_NAMESPACE, NSID);
    let no = Data::None;
    let mut behavior = vec![0; 512];
    behavior[0] = 2;
    let cases: Vec<Case> = vec![
        ("no such opcode", Admin, cmd(0x7e, 0, &[]), no.clone(), Refused(Status::INVALID_OPCODE, OPCODE)),
        ("vendor specific", Admin, cmd(0xc0, 0, &[]), no.clone(), Refused(Status::INVALID_OPCODE, OPCODE)),
        ("a queue as over PCI", Admin, cmd(0x01, 0, &[1, 1]), no.clone(), Refused(Status::INVALID_OPCODE, OPCODE)),
        ("security", Admin, cmd(admin::SECURITY_SEND, 0, &[]), no.clone(), Refused(Status::INVALID_OPCODE, OPCODE)),
        ("no such data structure", Admin, identify(0, &[0xff]), Host(4096), field(CDW10)),
        ("no such command set", Admin, identify(1, &[5, 2 << 24]), Host(4096), field(at(CDW11, 3))),
        ("identify beyond the last", Admin, identify(129, &[0]), Host(4096), invalid),
        ("identify an inactive one", Admin, identify(2, &[0]), Host(4096), Ignored),
        ("a list after the last there can be", Admin, identify(u32::MAX, &[2]), Host(4096), invalid),
        ("identify into too little", Admin, identify(0, &[1]), Host(512), length),
        ("reserved bits of CNS", Admin, identify(0, &[0xff01]), Host(4096), Ignored),
        ("no such log", Admin, log(&[0x7f]), Host(4), Refused(Status::INVALID_LOG_PAGE, CDW10)),
        ("behind the end of a log", Admin, log(&[page(Lid::SMART_HEALTH, 512), 0, 516]), Host(512), field(CDW12)),
        (
            "behind the end of another",
            Admin,
            log(&[page(Lid::SUPPORTED_LOG_PAGES, 4), 0, 1 << 20]),
            Host(4),
            field(CDW12),
        ),
        ("at 2^63 of a log", Admin, log(&[page(Lid::ERROR_INFORMATION, 64), 0, 0, 1 << 31]), Host(64), field(CDW12)),
        ("at the very end of a log", Admin, log(&[page(Lid::SMART_HEALTH, 4), 0, 512]), Host(4), Ignored),
        ("between two dwords", Admin, log(&[page(Lid::SMART_HEALTH, 4), 0, 2]), Host(4), field(CDW12)),
        ("an index offset", Admin, log(&[page(Lid::SMART_HEALTH, 4), 0, 0, 0, 1 << 23]), Host(4), field(Some(58))),
        (
            "more than MDTS of a log",
            Admin,
            log(&[page(Lid::ERROR_INFORMATION, 64), 1 << 8]),
            Host(64),
            field(at(CDW10, 2)),
        ),
        ("too little room for a log", Admin, log(&[page(Lid::SMART_HEALTH, 512)]), Host(508), length),
        (
            "a log of a namespace that has none",
            Admin,
            cmd(admin::GET_LOG_PAGE, 1, &[page(Lid::FIRMWARE_SLOTS, 512)]),
            Host(512),
            field(NSID),
        ),
        (
            "health of a namespace beyond",
            Admin,
            cmd(admin::GET_LOG_PAGE, 129, &[page(Lid::SMART_HEALTH, 512)]),
            Host(512),
            invalid,
        ),
        (
            "no such endurance group",
            Admin,
            log(&[page(Lid::ENDURANCE_GROUP, 512), 2 << 16]),
            Host(512),
            field(at(CDW11, 2)),
        ),
        (
            "events without a context",
            Admin,
            log(&[page(Lid::PERSISTENT_EVENT, 512)]),
            Host(512),
            Refused(Status::COMMAND_SEQUENCE_ERROR, None),
        ),
        (
            "half a block of telemetry",
            Admin,
            log(&[page(Lid::TELEMETRY_CONTROLLER, 512), 0, 256]),
            Host(512),
            field(CDW12),
        ),
        ("no such feature", Admin, get(0, &[0x7f]), no.clone(), field(CDW10)),
        ("no such selection", Admin, get(0, &[fid(Fid::ARBITRATION) | 4 << 8]), no.clone(), field(at(CDW10, 1))),
        ("reserved bits of a selection", Admin, get(0, &[fid(Fid::ARBITRATION) | 1 << 11]), no.clone(), Ignored),
        ("a feature of a namespace beyond", Admin, get(129, &[fid(Fid::WRITE_PROTECTION)]), no.clone(), invalid),
        ("a feature of an inactive one", Admin, get(2, &[fid(Fid::WRITE_PROTECTION)]), no.clone(), field(NSID)),
        ("the host identifier of 64 bits", Admin, get(0, &[fid(Fid::HOST_IDENTIFIER), 0]), Host(8), field(CDW11)),
        ("to set no such feature", Admin, set(0, &[0x7f]), no.clone(), field(CDW10)),
        (
            "to save",
            Admin,
            set(0, &[fid(Fid::ARBITRATION) | 1 << 31]),
            no.clone(),
            Refused(Status::FEATURE_NOT_SAVEABLE, at(CDW10, 3)),
        ),
        (
            "a namespace for a feature that has none",
            Admin,
            set(1, &[fid(Fid::ARBITRATION)]),
            no.clone(),
            Refused(Status::FEATURE_NOT_NAMESPACE_SPECIFIC, NSID),
        ),
        ("such a namespace beyond", Admin, set(129, &[fid(Fid::ARBITRATION)]), no.clone(), invalid),
        (
            "events that there are not",
            Admin,
            set(0, &[fid(Fid::ASYNC_EVENT_CONFIG), 1 << 27]),
            no.clone(),
            field(CDW11),
        ),
        ("reserved bits of sanitize config", Admin, set(0, &[fid(Fid::SANITIZE_CONFIG), 2]), no.clone(), field(CDW11)),
        (
            "reserved bits of persistence",
            Admin,
            set(1, &[fid(Fid::RESERVATION_PERSISTENCE), 2]),
            no.clone(),
            field(CDW11),
        ),
        ("events of no such group", Admin, set(0, &[fid(Fid::ENDURANCE_GROUP_EVENT), 2]), no.clone(), field(CDW11)),
        (
            "warnings that no group has",
            Admin,
            set(0, &[fid(Fid::ENDURANCE_GROUP_EVENT), 1 | 2 << 16]),
            no.clone(),
            field(at(CDW11, 2)),
        ),
        ("reserved bits of arbitration", Admin, set(0, &[fid(Fid::ARBITRATION), 0xf8]), no.clone(), Ignored),
        ("no such power state", Admin, set(0, &[fid(Fid::POWER_MANAGEMENT), 1]), no.clone(), field(CDW11)),
        ("no such sensor", Admin, set(0, &[fid(Fid::TEMPERATURE_THRESHOLD), 1 << 16]), no.clone(), field(at(CDW11, 2))),
        (
            "no such threshold",
            Admin,
            set(0, &[fid(Fid::TEMPERATURE_THRESHOLD), 2 << 20]),
            no.clone(),
            field(at(CDW11, 2)),
        ),
        (
            "errors for deallocated blocks",
            Admin,
            set(1, &[fid(Fid::ERROR_RECOVERY), 1 << 16]),
            no.clone(),
            field(at(CDW11, 2)),
        ),
        ("no such write protection", Admin, set(1, &[fid(Fid::WRITE_PROTECTION), 5]), no.clone(), field(CDW11)),
        ("write protection of all", Admin, set(u32::MAX, &[fid(Fid::WRITE_PROTECTION), 1]), no.clone(), invalid),
        (
            "queues when there are some",
            Admin,
            set(0, &[fid(Fid::NUMBER_OF_QUEUES), 0]),
            no.clone(),
            Refused(Status::COMMAND_SEQUENCE_ERROR, None),
        ),
        ("too many queues", Admin, set(0, &[fid(Fid::NUMBER_OF_QUEUES), 0xffff]), no.clone(), field(CDW11)),
        (
            "a host identifier after Connect",
            Admin,
            set(0, &[fid(Fid::HOST_IDENTIFIER), 1]),
            Drive(vec![1; 16]),
            Refused(Status::COMMAND_SEQUENCE_ERROR, None),
        ),
        (
            "a switch that is neither on nor off",
            Admin,
            set(0, &[fid(Fid::HOST_BEHAVIOR_SUPPORT)]),
            Drive(behavior),
            Refused(Status::INVALID_FIELD, None),
        ),
        (
            "blocks of a namespace beyond",
            Admin,
            cmd(admin::GET_LBA_STATUS, 129, &[0, 0, 5, 0x1100_0000]),
            Host(24),
            invalid,
        ),
        (
            "no such LBA status",
            Admin,
            cmd(admin::GET_LBA_STATUS, 1, &[0, 0, 5, 0x0300_0000]),
            Host(24),
            field(at(CDW13, 3)),
        ),
        (
            "LBA status out of range",
            Admin,
            cmd(admin::GET_LBA_STATUS, 1, &[u32::MAX, 0, 5, 0x1100_0000]),
            Host(24),
            Refused(Status::LBA_OUT_OF_RANGE, CDW10),
        ),
        ("no such self-test", Admin, cmd(admin::DEVICE_SELF_TEST, 0, &[5]), no.clone(), field(CDW10)),
        ("a self-test of a namespace beyond", Admin, cmd(admin::DEVICE_SELF_TEST, 129, &[1]), no.clone(), invalid),
        ("a self-test of an inactive one", Admin, cmd(admin::DEVICE_SELF_TEST, 2, &[1]), no.clone(), field(NSID)),
        ("to abort nothing", Admin, cmd(admin::ABORT, 0, &[0x0007_0001]), no.clone(), Ignored),
        ("no such property", Admin, Property::get(0x2000, 4), no.clone(), field(CDW11)),
        ("half a property", Admin, Property::get(0x04, 4), no.clone(), field(CDW11)),
        (
            "Connect on a queue that is",
            Admin,
            Sqe::new(FABRICS).with_nsid(Nsid(1)),
            Drive(vec![0; 1024]),
            Refused(Status::COMMAND_SEQUENCE_ERROR, None),
        ),
        (
            "no such Fabrics command",
            Admin,
            Sqe::new(FABRICS).with_nsid(Nsid(0x7f)),
            no.clone(),
            Refused(Status::INVALID_OPCODE, NSID),
        ),
        (
            "to disconnect the admin queue",
            Admin,
            Sqe::new(FABRICS).with_nsid(Nsid(8)),
            no.clone(),
            Refused(Status::INVALID_QUEUE_TYPE, None),
        ),
    ];
    all(&cases);
}

#[test]
fn namespaces_formats_and_firmware_with_invalid_fields() {
    let new = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut new = vec![0; 4096];
        new[0] = 8;
        new[8] = 8;
        change(&mut new);
        Drive(new)
    };
    let list = |words: &[u16]| {
        let mut list: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        list.resize(4096, 0);
        Drive(list)
    };
    let manage = |nsid, dwords: &[u32]| cmd(admin::NAMESPACE_MANAGEMENT, nsid, dwords);
    let attach = |nsid, dwords: &[u32]| cmd(admin::NAMESPACE_ATTACHMENT, nsid, dwords);
    let format = |nsid, dword| cmd(admin::FORMAT_NVM, nsid, &[dword]);
    let sanitize = |dword| cmd(admin::SANITIZE, 0, &[dword]);
    let piece = |offset: u32, bytes: u32| cmd(admin::FIRMWARE_DOWNLOAD, 0, &[bytes / 4 - 1, offset / 4]);
    let zeros = |bytes| Drive(vec![0; bytes]);
    let commit = |dword| cmd(admin::FIRMWARE_COMMIT, 0, &[dword]);
    let field = |byte| Refused(Status::INVALID_FIELD, byte);
    let invalid = Refused(Status::INVALID_NAMESPACE, NSID);
    let lists = Refused(Status::CONTROLLER_LIST_INVALID, None);
    let image = Refused(Status::INVALID_FIRMWARE_IMAGE, None);
    let no = Data::None;
    let cases: Vec<Case> = vec![
        ("no such management", Admin, manage(0, &[2]), new(&|_| {}), field(CDW10)),
        ("a number for a new one", Admin, manage(1, &[0]), new(&|_| {}), field(NSID)),
        (
            "another command set",
            Admin,
            manage(0, &[0, 2 << 24]),
            new(&|_| {}),
            Refused(Status::COMMAND_SET_NOT_SUPPORTED, at(CDW11, 3)),
        ),
        ("of no blocks", Admin, manage(0, &[0]), new(&|new| new[0] = 0), Refused(Status::INVALID_FIELD, None)),
        (
            "of more capacity than blocks",
            Admin,
            manage(0, &[0]),
            new(&|new| new[8] = 9),
            Refused(Status::INVALID_FIELD, None),
        ),
        (
            "of too much",
            Admin,
            manage(0, &[0]),
            new(&|new| (new[4], new[12]) = (1, 1)),
            Refused(Status::NAMESPACE_INSUFFICIENT_CAPACITY, None),
        ),
        (
            "reserved bits of NMIC",
            Admin,
            manage(0, &[0]),
            new(&|new| new[30] = 4),
            Refused(Status::INVALID_FIELD, None),
        ),
        ("no such format", Admin, manage(0, &[0]), new(&|new| new[26] = 15), Refused(Status::INVALID_FORMAT, None)),
        (
            "no such ANA group",
            Admin,
            manage(0, &[0]),
            new(&|new| new[92] = 9),
            Refused(Status::ANA_GROUP_INVALID, None),
        ),
        (
            "no such endurance group",
            Admin,
            manage(0, &[0]),
            new(&|new| new[102] = 9),
            Refused(Status::INVALID_FIELD, None),
        ),
        ("half the data", Admin, manage(0, &[0]), zeros(2048), Refused(Status::DATA_SGL_LENGTH_INVALID, SGL_LENGTH)),
        ("to delete number 0", Admin, manage(0, &[1]), no.clone(), invalid),
        ("to delete one beyond", Admin, manage(129, &[1]), no.clone(), invalid),
        ("to delete one that is not", Admin, manage(7, &[1]), no.clone(), invalid),
        ("no such attachment", Admin, attach(1, &[2]), list(&[1, 0]), field(CDW10)),
        ("to attach all", Admin, attach(u32::MAX, &[0]), list(&[1, 0]), field(NSID)),
        ("to attach one that is not", Admin, attach(7, &[0]), list(&[1, 0]), invalid),
        ("an empty list", Admin, attach(2, &[0]), list(&[0]), lists),
        ("a list that is too long", Admin, attach(2, &[0]), list(&[2048, 0]), lists),
        ("a list in the wrong order", Admin, attach(2, &[0]), list(&[2, 1, 0]), lists),
        ("a controller twice", Admin, attach(2, &[0]), list(&[2, 0, 0]), lists),
        ("a controller that nobody has", Admin, attach(2, &[0]), list(&[1, 0x777]), lists),
        ("a controller that cannot be", Admin, attach(2, &[0]), list(&[1, 0xfff0]), lists),
        ("attached already", Admin, attach(1, &[0]), list(&[1, 0]), Refused(Status::NAMESPACE_ALREADY_ATTACHED, None)),
        ("not attached", Admin, attach(2, &[1]), list(&[1, 0]), Refused(Status::NAMESPACE_NOT_ATTACHED, None)),
        ("to format number 0", Admin, format(0, 0), no.clone(), invalid),
        ("to format one beyond", Admin, format(129, 0), no.clone(), invalid),
        ("to no such format", Admin, format(1, 15), no.clone(), Refused(Status::INVALID_FORMAT, CDW10)),
        ("to erase as there is no way", Admin, format(1, 5 << 9), no.clone(), field(at(CDW10, 1))),
        ("no such sanitize action", Admin, sanitize(0), no.clone(), field(CDW10)),
        ("no such sanitize action", Admin, sanitize(7), no.clone(), field(CDW10)),
        ("crypto erase without keys", Admin, sanitize(4), no.clone(), field(CDW10)),
        ("media verification", Admin, sanitize(2 | 1 << 10), no.clone(), field(at(CDW10, 1))),
        ("to keep what is allocated", Admin, sanitize(2 | 1 << 9), no.clone(), field(at(CDW10, 1))),
        ("to commit nothing", Admin, commit(1 << 3 | 2), no.clone(), image),
        ("a piece between pages", Admin, piece(512, 4096), zeros(4096), field(CDW11)),
        ("half a page", Admin, piece(0, 512), zeros(512), field(CDW10)),
        (
            "more than there is data",
            Admin,
            piece(0, 8192),
            zeros(4096),
            Refused(Status::DATA_SGL_LENGTH_INVALID, SGL_LENGTH),
        ),
        ("beyond every image", Admin, piece(1 << 30, 4096), zeros(4096), field(CDW11)),
        ("the second piece first", Admin, piece(4096, 4096), zeros(4096), Ignored),
        ("the second piece again", Admin, piece(4096, 4096), zeros(4096), Refused(Status::OVERLAPPING_RANGE, None)),
        ("one over it", Admin, piece(0, 8192), zeros(8192), Refused(Status::OVERLAPPING_RANGE, None)),
        ("to commit without the first piece", Admin, commit(1 << 3 | 2), no.clone(), image),
        ("no such slot", Admin, commit(2 << 3 | 7), no.clone(), Refused(Status::INVALID_FIRMWARE_SLOT, CDW10)),
        (
            "a slot with nothing in it",
            Admin,
            commit(2 << 3 | 4),
            no.clone(),
            Refused(Status::INVALID_FIRMWARE_IMAGE, None),
        ),
        ("no such commit action", Admin, commit(4 << 3 | 2), no, field(CDW10)),
    ];
    all(&cases);
}

#[test]
fn commands_while_the_drive_is_sanitized() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, line) = drive(directory.path());
    line.host.namespace(Nsid(1)).unwrap().write(0, &[7; 1 << 20], false).unwrap();
    let overwrite = Sanitize { overwrite_passes: 16, ..Sanitize::new(SanitizeAction::Overwrite) };
    assert!(run(&line, Admin, overwrite.encode(), &Data::None).status().is_success());
    let page = |lid: Lid, bytes: u32| (bytes / 4 - 1) << 16 | u32::from(lid.0);
    let later = Later(Status::SANITIZE_IN_PROGRESS, None);
    let cases: Vec<Case> = vec![
        ("read", Io, blocks(nvm::READ, 1, 9, 1), Host(512), later),
        ("write", Io, blocks(nvm::WRITE, 1, 0, 1), Drive(vec![1; 512]), later),
        ("flush", Io, cmd(nvm::FLUSH, 1, &[]), Data::None, Ignored),
        ("verify", Io, blocks(nvm::VERIFY, 1, 0, 1), Data::None, later),
        ("write uncorrectable", Io, blocks(nvm::WRITE_UNCORRECTABLE, 1, 0, 1), Data::None, later),
        ("deallocate", Io, cmd(nvm::DATASET_MANAGEMENT, 1, &[0, 4]), words(&[0, 1, 0, 0]), later),
        ("reservation report", Io, cmd(nvm::RESERVATION_REPORT, 1, &[15, 1]), Host(64), later),
        ("sanitize", Admin, overwrite.encode(), Data::None, later),
        ("format", Admin, cmd(admin::FORMAT_NVM, 1, &[0]), Data::None, later),
        ("create", Admin, cmd(admin::NAMESPACE_MANAGEMENT, 0, &[0]), Drive(vec![0; 4096]), later),
        ("attach", Admin, cmd(admin::NAMESPACE_ATTACHMENT, 2, &[0]), Drive(vec![0; 4096]), later),
        ("self-test", Admin, cmd(admin::DEVICE_SELF_TEST, 0, &[1]), Data::None, later),
        ("LBA status", Admin, cmd(admin::GET_LBA_STATUS, 1, &[0, 0, 5, 0x1100_0000]), Host(24), later),
        ("firmware", Admin, cmd(admin::FIRMWARE_DOWNLOAD, 0, &[1023, 0]), Drive(vec![0; 4096]), later),
        ("commit", Admin, cmd(admin::FIRMWARE_COMMIT, 0, &[2 << 3 | 1]), Data::None, later),
        (
            "write protection",
            Admin,
            cmd(admin::SET_FEATURES, 1, &[u32::from(Fid::WRITE_PROTECTION.0), 1]),
            Data::None,
            later,
        ),
        (
            "persistent events",
            Admin,
            cmd(admin::GET_LOG_PAGE, 0, &[page(Lid::PERSISTENT_EVENT, 512)]),
            Host(512),
            later,
        ),
        ("telemetry", Admin, cmd(admin::GET_LOG_PAGE, 0, &[page(Lid::TELEMETRY_CONTROLLER, 512)]), Host(512), later),
        ("identify", Admin, cmd(admin::IDENTIFY, 0, &[1]), Host(4096), Ignored),
        ("health", Admin, cmd(admin::GET_LOG_PAGE, 0, &[page(Lid::SMART_HEALTH, 512)]), Host(512), Ignored),
    ];
    let state = || {
        SanitizeLog::read_from_bytes(&{
            let mut page = vec![0; 512];
            line.host.log_page(Nsid::ALL, Lid::SANITIZE_STATUS.0, 0, &mut page).unwrap();
            page
        })
        .unwrap()
        .state()
    };
    for case in &cases {
        // During a sanitize the log does not reveal LBAs.
        check_without_blocks(&line, case);
    }
    assert_eq!(state(), SanitizeState::InProgress, "16 passes over 64 MiB take longer than these commands");
    wait("sanitizing", || (state() == SanitizeState::Succeeded).then_some(()));
    for case in cases.iter().filter(|case| case.1 == Io && case.0 != "flush").take(2) {
        assert!(run(&line, case.1, case.2, &case.3).status().is_success(), "{} when it is over", case.0);
    }
}

fn check_without_blocks(line: &Line, case: &Case) {
    match case.1 {
        Io if !matches!(case.4, Ignored) => {
            let cqe = run(line, Io, case.2, &case.3);
            assert_eq!(cqe.status(), Status::SANITIZE_IN_PROGRESS.more(), "{}", case.0);
            let entry = errors(&line.host, 1)[0];
            assert_eq!((entry.cid.get(), entry.lba.get(), entry.nsid.get()), (cqe.cid().0, 0, 1), "{}", case.0);
            assert_eq!(entry.status(), cqe.status(), "{}", case.0);
        }
        _ => check(line, case),
    }
}
