//! Invalid commands, over real connections to a drive: each has the status of the specification,
//! and an entry in the Error Information log with the command and the location of the error.
//!
//! In NVMe Base 2.1 a controller ignores reserved fields of a command, except for reserved values
//! of a coded field (an action, a format, an identifier), which are Invalid Field in Command. The
//! first kind is `Ignored` in the table.
#![expect(clippy::too_many_lines, reason = "tables are long")]

mod admin_commands;
mod io_commands;
mod namespaces;
mod sanitizing;

use std::cell::RefCell;

use ebof_initiator::{AdminData, Controller, QueuePair};
use ebof_nvme::log::ErrorInformation;
use ebof_nvme::opcode::{FABRICS, admin};
use ebof_nvme::{Cqe, Nsid, Sqe, Status};

use crate::drive_rig::{connect, create, errors, start};

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
