//! Commands and their statuses; the steps for the target; the error log.

use ebof_fabrics::{Limits, Step};
use ebof_nvme::connect::{Property, disconnect};
use ebof_nvme::io::{BlockRange, Dsm, DsmRange};
use ebof_nvme::log::{ErrorInformation, SmartHealth};
use ebof_nvme::opcode::{FABRICS, admin, nvm};
use ebof_nvme::property::offset;
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Nsid, Sgl, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use crate::support::{ALICE, BOB, DRIVE, Done, World, model, with_data};

fn range(opcode: u8, nsid: u32, slba: u64, blocks: u32) -> Sqe {
    BlockRange::new(slba, blocks).encode(opcode, Nsid(nsid))
}

fn read(nsid: u32, slba: u64, blocks: u32, bytes: u32) -> Sqe {
    with_data(range(nvm::READ, nsid, slba, blocks), bytes)
}

fn write(nsid: u32, slba: u64, blocks: u32, bytes: u32) -> Sqe {
    with_data(range(nvm::WRITE, nsid, slba, blocks), bytes)
}

fn get_log(lid: u8, bytes: u32) -> Sqe {
    with_data(Sqe::new(admin::GET_LOG_PAGE).with_nsid(Nsid::ALL), bytes)
        .with_cdw(10, u32::from(lid) | (bytes / 4 - 1) << 16)
}

fn get_feature(fid: u32) -> Sqe {
    Sqe::new(admin::GET_FEATURES).with_cdw(10, fid)
}

fn set_feature(fid: u32, value: u32) -> Sqe {
    Sqe::new(admin::SET_FEATURES).with_cdw(10, fid).with_cdw(11, value)
}

fn identify(cns: u32, nsid: u32) -> Sqe {
    with_data(Sqe::new(admin::IDENTIFY).with_nsid(Nsid(nsid)), 4096).with_cdw(10, cns)
}

fn world() -> (World, u64, u64) {
    let mut world = World::new();
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    (world, admin, io)
}

fn sgl(mut sqe: Sqe, sgl: Sgl) -> Sqe {
    sqe.dptr = SglDescriptor::encode(sgl);
    sqe
}

fn flags(mut sqe: Sqe, flags: u8) -> Sqe {
    sqe.flags = flags;
    sqe
}

/// Each row: the command, and its status in the specification. Refusals have DNR unless the command
/// may succeed later, and M, since the error log has an entry for each.
fn check(world: &mut World, at: u64, rows: &[(&str, Sqe, Status)]) {
    for (name, sqe, status) in rows {
        let done = world.run(at, *sqe);
        let expected = if status.is_success() { *status } else { status.more() };
        assert_eq!(done.status(), expected, "{name}");
        assert_eq!(world.queues[&at].outstanding(), 0, "{name}");
        assert_eq!(world.queues[&at].executing(), 0, "{name}");
    }
}

const OK: Status = Status::SUCCESS;
const FIELD: Status = Status::INVALID_FIELD.dnr();
const NAMESPACE: Status = Status::INVALID_NAMESPACE.dnr();
const OPCODE: Status = Status::INVALID_OPCODE.dnr();
const LENGTH: Status = Status::DATA_SGL_LENGTH_INVALID.dnr();
const RANGE: Status = Status::LBA_OUT_OF_RANGE.dnr();
const PROTECTED: Status = Status::NAMESPACE_WRITE_PROTECTED.dnr();
const OFFSET: Status = Status::SGL_OFFSET_INVALID.dnr();
const TYPE: Status = Status::SGL_TYPE_INVALID.dnr();
const PROTECTION_INFORMATION: Status = Status(0x181).dnr();

// @test limits.transfer
#[test]
fn io_commands() {
    let (mut world, _, io) = world();
    let dsm = |ranges, bytes| {
        let dsm = Dsm { ranges, deallocate: true, integral_read: false, integral_write: false };
        with_data(dsm.encode(Nsid(1)), bytes)
    };
    let prinfo = BlockRange { prinfo: 8, ..BlockRange::new(0, 1) };
    let rows = [
        ("read", read(1, 0, 8, 4096), OK),
        ("read to the last block", read(1, 1016, 8, 4096), OK),
        ("read beyond the end", read(1, 1017, 8, 4096), RANGE),
        ("read at the end", read(1, 1024, 1, 512), RANGE),
        ("read that overflows", read(1, u64::MAX, 8, 4096), RANGE),
        ("read of MDTS", read(2, 0, 256, 1 << 20), OK),
        ("read above MDTS", read(2, 0, 257, 257 << 12), FIELD),
        ("read of 65536 blocks", read(2, 0, 65_536, 1 << 28), FIELD),
        ("read, SGL too short", read(1, 0, 8, 512), LENGTH),
        ("read, SGL too long", read(1, 0, 8, 8192), LENGTH),
        ("read without SGL", range(nvm::READ, 1, 0, 8), LENGTH),
        ("read, namespace 0", read(0, 0, 8, 4096), NAMESPACE),
        ("read, no such namespace", read(4, 0, 8, 4096), NAMESPACE),
        ("read, namespace above NN", read(5000, 0, 8, 4096), NAMESPACE),
        ("read, all namespaces", read(0xffff_ffff, 0, 8, 4096), NAMESPACE),
        ("read into the capsule", sgl(read(1, 0, 8, 0), Sgl::InCapsule { offset: 0, length: 4096 }), TYPE),
        (
            "read, keyed SGL on TCP",
            sgl(read(1, 0, 8, 0), Sgl::Keyed { address: 0, length: 4096, key: 1, invalidate: false }),
            TYPE,
        ),
        ("read, PRPs", flags(read(1, 0, 8, 4096), 0), FIELD),
        ("read, metadata SGL", flags(read(1, 0, 8, 4096), 0x80), FIELD),
        ("read, fused", flags(read(1, 0, 8, 4096), 0x41), FIELD),
        ("read, PRACT", with_data(prinfo.encode(nvm::READ, Nsid(1)), 512), PROTECTION_INFORMATION),
        ("write", write(1, 0, 8, 4096), OK),
        ("write in the capsule", sgl(write(1, 0, 16, 0), Sgl::InCapsule { offset: 0, length: 8192 }), OK),
        ("write, larger than a capsule", sgl(write(1, 0, 32, 0), Sgl::InCapsule { offset: 0, length: 16384 }), OFFSET),
        ("write, offset in the capsule", sgl(write(1, 0, 8, 0), Sgl::InCapsule { offset: 64, length: 4096 }), OFFSET),
        (
            "write, directive",
            {
                let w = write(1, 0, 8, 4096);
                w.with_cdw(12, w.cdw12.get() | 1 << 20)
            },
            FIELD,
        ),
        ("write, protected", write(3, 0, 8, 4096), PROTECTED),
        ("write, read-only device", write(5, 0, 8, 4096), PROTECTED),
        ("read, protected", read(3, 0, 8, 4096), OK),
        ("compare", with_data(range(nvm::COMPARE, 1, 0, 8), 4096), OK),
        ("compare, protected", with_data(range(nvm::COMPARE, 3, 0, 8), 4096), OK),
        ("verify", range(nvm::VERIFY, 2, 0, 4096), OK),
        ("verify above VSL", range(nvm::VERIFY, 2, 0, 4097), FIELD),
        ("write zeroes of WZSL", range(nvm::WRITE_ZEROES, 2, 0, 4096), OK),
        ("write zeroes above WZSL", range(nvm::WRITE_ZEROES, 2, 0, 4097), FIELD),
        ("write zeroes beyond the end", range(nvm::WRITE_ZEROES, 1, 1000, 25), RANGE),
        ("write zeroes, protected", range(nvm::WRITE_ZEROES, 3, 0, 1), PROTECTED),
        ("flush", Sqe::new(nvm::FLUSH).with_nsid(Nsid(1)), OK),
        ("flush of all namespaces", Sqe::new(nvm::FLUSH).with_nsid(Nsid::ALL), NAMESPACE),
        ("flush, protected", Sqe::new(nvm::FLUSH).with_nsid(Nsid(3)), OK),
        ("deallocate", dsm(1, 16), OK),
        ("deallocate as Linux does, 4096 bytes for one range", dsm(1, 4096), OK),
        ("deallocate, too few bytes", dsm(2, 16), LENGTH),
        ("deallocate, more bytes than any ranges have", dsm(1, 8192), OK),
        ("deallocate, protected", dsm(1, 16).with_nsid(Nsid(3)), PROTECTED),
        ("write uncorrectable", Sqe::new(nvm::WRITE_UNCORRECTABLE).with_nsid(Nsid(1)), OPCODE),
        ("reservation register", Sqe::new(nvm::RESERVATION_REGISTER).with_nsid(Nsid(1)), OPCODE),
        ("property get on an I/O queue", Property::get(offset::CAP, 8), OPCODE),
        ("authentication", Sqe::new(FABRICS).with_nsid(Nsid(5)), OPCODE),
    ];
    check(&mut world, io, &rows);
}

#[test]
fn admin_commands() {
    let (mut world, admin_queue, _) = world();
    let unsaveable = Status::FEATURE_NOT_SAVEABLE.dnr();
    let sequence = Status::COMMAND_SEQUENCE_ERROR.dnr();
    let not_namespace_specific = Status::FEATURE_NOT_NAMESPACE_SPECIFIC.dnr();
    let log = Status::INVALID_LOG_PAGE.dnr();
    let lpo = |offset: u32| get_log(2, 512).with_cdw(12, offset);
    let rows = [
        ("create I/O SQ", Sqe::new(admin::CREATE_IO_SQ), OPCODE),
        ("create I/O CQ", Sqe::new(admin::CREATE_IO_CQ), OPCODE),
        ("delete I/O SQ", Sqe::new(admin::DELETE_IO_SQ), OPCODE),
        ("namespace management", Sqe::new(admin::NAMESPACE_MANAGEMENT), OPCODE),
        ("firmware commit", Sqe::new(admin::FIRMWARE_COMMIT), OPCODE),
        ("vendor specific", Sqe::new(0xc0), OPCODE),
        ("identify, fused", flags(identify(1, 0), 0x41), FIELD),
        ("identify, PRPs", flags(identify(1, 0), 0), FIELD),
        ("identify, 512 bytes", with_data(identify(1, 0), 512), LENGTH),
        ("identify CNS 04h", identify(4, 0), FIELD),
        ("identify namespace 0", identify(0, 0), NAMESPACE),
        ("identify all namespaces", identify(0, 0xffff_ffff), NAMESPACE),
        ("identify an absent namespace", identify(0, 4), OK),
        ("descriptors of an absent namespace", identify(3, 4), NAMESPACE),
        ("namespaces after FFFFFFFEh", identify(2, 0xffff_fffe), NAMESPACE),
        ("zoned namespace", identify(5, 1).with_cdw(11, 2 << 24), FIELD),
        ("command sets of another controller", identify(0x1c | 7 << 16, 0), FIELD),
        ("controllers of an absent namespace", identify(0x12, 4), FIELD),
        ("log 06h", get_log(6, 512), log),
        ("log 70h of an I/O controller", get_log(0x70, 1024), log),
        ("log, NUMD and SGL differ", with_data(get_log(2, 512), 256), LENGTH),
        ("log above MDTS", get_log(2, 512).with_cdw(11, 4), FIELD),
        ("log of a namespace", get_log(2, 512).with_nsid(Nsid(1)), FIELD),
        ("log of a namespace above NN", get_log(2, 512).with_nsid(Nsid(5000)), NAMESPACE),
        ("log, offset not of dwords", lpo(2), FIELD),
        ("log, offset within", lpo(256), OK),
        ("log, offset at the end", lpo(512), OK),
        ("log, offset beyond", lpo(516), FIELD),
        ("log, index offset", get_log(2, 512).with_cdw(14, 1 << 23), FIELD),
        ("effects of zoned commands", get_log(5, 4096).with_cdw(14, 2 << 24), OK),
        ("get feature 03h", get_feature(3), FIELD),
        ("get feature, reserved SEL", get_feature(1 | 4 << 8), FIELD),
        ("get host identifier of 64 bits", with_data(get_feature(0x81), 8), FIELD),
        ("get host identifier, 8 bytes", with_data(get_feature(0x81), 8).with_cdw(11, 1), LENGTH),
        ("get write protection of none", get_feature(0x84), NAMESPACE),
        ("get write protection of an absent one", get_feature(0x84).with_nsid(Nsid(4)), FIELD),
        ("set feature 03h", set_feature(3, 0), FIELD),
        ("set feature with SV", set_feature(1 | 1 << 31, 0), unsaveable),
        ("set feature of a namespace that has none", set_feature(1, 0).with_nsid(Nsid(1)), not_namespace_specific),
        ("set power state 1", set_feature(2, 1), FIELD),
        ("set threshold of sensor 1", set_feature(4, 1 << 16), FIELD),
        ("set DULBE", set_feature(5, 1 << 16).with_nsid(Nsid(1)), FIELD),
        ("set number of queues FFFFh", set_feature(7, 0xffff), FIELD),
        ("set number of queues with queues", set_feature(7, 3 | 3 << 16), sequence),
        ("set an event that is not announced", set_feature(0xb, 1 << 9), FIELD),
        ("set host identifier", set_feature(0x81, 1), sequence),
        ("set permanent write protection", set_feature(0x84, 3).with_nsid(Nsid(1)), FIELD),
        (
            "clear protection of a read-only device",
            set_feature(0x84, 0).with_nsid(Nsid(5)),
            Status::FEATURE_NOT_CHANGEABLE.dnr(),
        ),
        ("set host behavior, short", with_data(set_feature(0x16, 0), 8), LENGTH),
        ("keep alive without time-out", Sqe::new(admin::KEEP_ALIVE), Status::KEEP_ALIVE_INVALID.dnr()),
        ("property get of 4 bytes of CAP", Property::get(offset::CAP, 4), FIELD),
        ("property get of 8 bytes of CC", Property::get(offset::CC, 8), FIELD),
        ("property get of NSSR", Property::get(offset::NSSR, 4), FIELD),
        ("property set of CSTS", Property::set(offset::CSTS, 0), FIELD),
        ("property set of CC, IOSQES changed", Property::set(offset::CC, 0x0040_0001), FIELD),
        ("disconnect", disconnect(), Status::INVALID_QUEUE_TYPE.dnr()),
        ("authentication receive", Sqe::new(FABRICS).with_nsid(Nsid(6)), OPCODE),
    ];
    check(&mut world, admin_queue, &rows);
}

#[test]
fn steps_have_the_byte_ranges_of_the_device() {
    let (mut world, admin_queue, io) = world();
    let fua = BlockRange { fua: true, deallocate: true, ..BlockRange::new(3, 2) };
    let step = |done: Done| done.step;
    assert_eq!(
        step(world.run(io, read(2, 10, 2, 8192))),
        "read Extent { device: DeviceId(2), nsid: Nsid(2), offset_bytes: 45056, length_bytes: 8192, fua: false, deallocate: false }"
    );
    assert_eq!(
        step(world.run(io, with_data(fua.encode(nvm::WRITE, Nsid(1)), 1024))),
        "write Extent { device: DeviceId(1), nsid: Nsid(1), offset_bytes: 5632, length_bytes: 1024, fua: true, deallocate: false }"
    );
    assert!(step(world.run(io, fua.encode(nvm::WRITE_ZEROES, Nsid(1)))).ends_with("fua: true, deallocate: true }"));
    // With the volatile write cache off, every write is a force unit access.
    assert!(step(world.run(io, write(1, 0, 1, 512))).contains("fua: false"));
    assert!(world.run(admin_queue, set_feature(6, 0)).status().is_success());
    assert!(step(world.run(io, write(1, 0, 1, 512))).contains("fua: true"));
    assert_eq!(world.run(admin_queue, get_feature(6)).result(), 0);
    assert_eq!(world.run(admin_queue, get_feature(6 | 1 << 8)).result(), 1);
    assert_eq!(step(world.run(io, Sqe::new(nvm::FLUSH).with_nsid(Nsid(2)))), "flush DeviceId(2)");
}

#[test]
fn deallocation_checks_every_range() {
    let (mut world, _, io) = world();
    let ranges = |of: &[(u64, u32)]| -> Vec<u8> {
        let ranges = of.iter().map(|&(slba, nlb)| DsmRange { cattr: 0.into(), nlb: nlb.into(), slba: slba.into() });
        ranges.flat_map(|range| range.as_bytes().to_vec()).collect()
    };
    let dsm = |count: u16, deallocate| {
        let dsm = Dsm { ranges: count, deallocate, integral_read: false, integral_write: false };
        with_data(dsm.encode(Nsid(1)), u32::from(count) * 16)
    };
    let done = world.run_with(io, dsm(3, true), &ranges(&[(0, 8), (5, 0), (1000, 24)]));
    assert_eq!(
        done.step,
        "deallocate DeviceId(1) [ByteRange { offset_bytes: 4096, length_bytes: 4096 }, \
         ByteRange { offset_bytes: 516096, length_bytes: 12288 }]"
    );
    // Overlapping and adjacent ranges are merged.
    let done = world.run_with(io, dsm(5, true), &ranges(&[(100, 8), (0, 8), (4, 6), (108, 1), (0, 1)]));
    assert_eq!(
        done.step,
        "deallocate DeviceId(1) [ByteRange { offset_bytes: 4096, length_bytes: 5120 }, \
         ByteRange { offset_bytes: 55296, length_bytes: 4608 }]"
    );
    let beyond = world.run_with(io, dsm(2, true), &ranges(&[(0, 8), (1000, 25)]));
    assert_eq!(beyond.status(), Status::LBA_OUT_OF_RANGE.dnr().more());
    let overflow = world.run_with(io, dsm(1, true), &ranges(&[(u64::MAX, 8)]));
    assert_eq!(overflow.status(), Status::LBA_OUT_OF_RANGE.dnr().more());
    // Hints alone change nothing, but are checked.
    let hints = world.run_with(io, dsm(1, false), &ranges(&[(0, 8)]));
    assert_eq!((hints.status(), hints.step.as_str()), (OK, ""));
    // Neither does a namespace that cannot deallocate.
    let mut limited = World::with(Limits { dsm_ranges: 1, dsm_range_blocks: 4, ..Limits::default() }, model());
    let (_, cntlid) = limited.controller(DRIVE, ALICE);
    let io = limited.io_queue(DRIVE, ALICE, cntlid, 1);
    let limit = Status(0x183).dnr().more();
    assert_eq!(limited.run(io, dsm(2, true)).status(), limit);
    assert_eq!(limited.run_with(io, dsm(1, true), &ranges(&[(0, 5)])).status(), limit);
    assert_eq!(limited.run_with(io, dsm(1, true), &ranges(&[(0, 4)])).status(), OK);
    // All ranges together.
    let mut limited = World::with(Limits { dsm_blocks: 20, ..Limits::default() }, model());
    let (_, cntlid) = limited.controller(DRIVE, ALICE);
    let io = limited.io_queue(DRIVE, ALICE, cntlid, 1);
    assert_eq!(limited.run_with(io, dsm(3, true), &ranges(&[(0, 8), (0, 8), (40, 5)])).status(), limit);
    assert_eq!(limited.run_with(io, dsm(3, true), &ranges(&[(0, 8), (0, 8), (40, 4)])).status(), OK);
}

#[test]
fn errors_are_in_the_log_newest_first_with_their_location() {
    let (mut world, admin_queue, io) = world();
    world.run(io, read(1, 2000, 8, 4096));
    world.device_status = Status::UNRECOVERED_READ_ERROR;
    let failed = world.run(io, read(2, 77, 1, 4096));
    assert_eq!(failed.status(), Status::UNRECOVERED_READ_ERROR.more());
    world.device_status = Status::COMPARE_FAILURE;
    // A Compare Failure is not an error of the drive.
    assert_eq!(world.run(io, with_data(range(nvm::COMPARE, 1, 0, 8), 4096)).status(), Status::COMPARE_FAILURE);
    let log = world.run(admin_queue, get_log(1, 64 * 64)).data;
    let entries = <[ErrorInformation]>::ref_from_bytes(&log).unwrap();
    let seen: Vec<_> =
        entries[..3].iter().map(|e| (e.ec.get(), e.sqid.get(), e.nsid.get(), e.lba.get(), e.opc)).collect();
    assert_eq!(seen, [(2, 1, 2, 77, 2), (1, 1, 1, 2000, 2), (0, 0, 0, 0, 0)]);
    assert!(entries[0].status().is(Status::UNRECOVERED_READ_ERROR));
    assert_eq!(entries[0].parameter_error_location(), None);
    assert_eq!(entries[1].parameter_error_location().map(|at| at.byte), Some(40));
    // The SMART log counts media errors separately.
    let smart = world.run(admin_queue, get_log(2, 512)).data;
    let smart = SmartHealth::ref_from_bytes(&smart).unwrap();
    assert_eq!((smart.mdie.get(), smart.neile.get()), (1, 2));
}

#[test]
fn what_a_link_refuses_is_in_the_log_with_the_byte_that_is_wrong() {
    let (mut world, admin_queue, io) = world();
    let list = Sgl::LastSegment { offset: 0, length: 32 };
    let segment = Status::INVALID_SGL_SEGMENT.dnr();
    let keyed = Sgl::Transport { length: 4096 };
    let rows = [
        (sgl(write(1, 5, 8, 0), Sgl::InCapsule { offset: 9000, length: 4096 }), OFFSET, Some(24)),
        (sgl(write(1, 5, 8, 0), list), segment, Some(32)),
        (sgl(write(1, 5, 8, 0), list), TYPE, None),
        (sgl(read(1, 5, 8, 0), keyed), TYPE, Some(39)),
        (read(1, 5, 8, 4096), Status::INTERNAL_ERROR, None),
    ];
    for (count, (sqe, status, byte)) in (1..).zip(rows) {
        let refused = world.refuse(io, sqe, status);
        assert_eq!(refused.status(), status.more());
        assert_eq!((world.queues[&io].outstanding(), world.queues[&io].executing()), (0, 0));
        let log = world.run(admin_queue, get_log(1, 64)).data;
        let entry = ErrorInformation::ref_from_bytes(&log).unwrap();
        assert_eq!((entry.ec.get(), entry.sqid.get(), entry.nsid.get(), entry.lba.get()), (count, 1, 1, 5));
        assert_eq!((entry.cid.get(), entry.opc), (refused.cqe.unwrap().cid().0, sqe.opcode));
        assert!(entry.status().is(status), "{}", entry.status());
        assert_eq!(entry.parameter_error_location().map(|at| at.byte), byte, "{status}");
    }
    // Before Connect every other command comes too early, whatever is wrong with it.
    let early = world.open();
    let sequence = Status::COMMAND_SEQUENCE_ERROR.dnr();
    assert_eq!(world.refuse(early, read(1, 5, 8, 4096), TYPE).status(), sequence);
    // The identifier and the room in the queue are looked at first, as for every command.
    let hold = Sqe { cid: 7_u16.into(), ..Sqe::new(admin::ASYNC_EVENT_REQUEST) };
    let queue = world.queues.get_mut(&admin_queue).unwrap();
    assert!(matches!(queue.submit(&hold, 0), Step::Held));
    let twice = Sqe { cid: 7_u16.into(), ..get_log(1, 64) };
    assert!(matches!(queue.refuse(&twice, TYPE, 0), Step::Withdrawn(_)));
}

#[test]
fn the_smart_log_includes_hosts_that_have_disconnected() {
    let (mut world, admin_queue, io) = world();
    let (bob, cntlid) = world.controller(DRIVE, BOB);
    let bobs = world.io_queue(DRIVE, BOB, cntlid, 1);
    for _ in 0..3 {
        world.run(bobs, write(1, 0, 8, 4096));
    }
    world.run(io, read(2, 0, 256, 1 << 20));
    world.close(bobs);
    world.close(bob);
    let smart = world.run(admin_queue, get_log(2, 512)).data;
    let smart = SmartHealth::ref_from_bytes(&smart).unwrap();
    assert_eq!((smart.hrc.get(), smart.hwc.get(), smart.dur.get(), smart.duw.get()), (1, 3, 3, 1));
    assert_eq!((smart.avsp, smart.ctemp.get(), smart.cw), (100, 0, 0));
}

#[test]
fn features_return_the_values_set() {
    let (mut world, at, _) = world();
    let caps = |fid: u32| get_feature(fid | 3 << 8);
    for (fid, value, nsid) in [(1, 3, 0), (2, 0x20, 0), (5, 9, 1), (0xa, 1, 0), (0xb, 0x11f, 0)] {
        let set = world.run(at, set_feature(fid, value).with_nsid(Nsid(nsid)));
        assert!(set.status().is_success(), "{fid:x}");
        assert_eq!(world.run(at, get_feature(fid).with_nsid(Nsid(nsid))).result(), u64::from(value), "{fid:x}");
        assert_ne!(
            world.run(at, get_feature(fid | 1 << 8).with_nsid(Nsid(nsid))).result(),
            u64::from(value),
            "{fid:x}"
        );
    }
    assert_eq!([1, 5, 0x81, 0x84].map(|fid| world.run(at, caps(fid)).result()), [0b100, 0b110, 0b000, 0b110]);
    // The other namespaces keep their own time limit.
    assert_eq!(world.run(at, get_feature(5).with_nsid(Nsid(2))).result(), 0);
    // Separate over and under temperature thresholds.
    world.run(at, set_feature(4, 350));
    world.run(at, set_feature(4, 260 | 1 << 20));
    assert_eq!(world.run(at, get_feature(4)).result(), 350);
    assert_eq!(world.run(at, get_feature(4).with_cdw(11, 1 << 20)).result(), 260);
    // Data: Host Behavior Support, Host Identifier.
    let mut behavior = vec![0; 512];
    behavior[0] = 1;
    assert!(world.run_with(at, with_data(set_feature(0x16, 0), 512), &behavior).status().is_success());
    assert_eq!(world.run(at, with_data(get_feature(0x16), 512)).data, behavior);
    behavior[0] = 2;
    assert_eq!(world.run_with(at, with_data(set_feature(0x16, 0), 512), &behavior).status(), FIELD.more());
    let id = world.run(at, with_data(get_feature(0x81), 16).with_cdw(11, 1)).data;
    assert_eq!(id, crate::support::host_id(ALICE).0);
}

// @test limits.granted
#[test]
fn queues_are_granted_up_to_the_limit_and_no_more() {
    let mut world = World::new();
    let (at, cntlid) = world.controller(DRIVE, ALICE);
    // 0's based on the wire: wanted 1024, granted 8; then 2.
    assert_eq!(world.run(at, set_feature(7, 1023 | 1023 << 16)).result(), 7 | 7 << 16);
    assert_eq!(world.run(at, set_feature(7, 1 | 9 << 16)).result(), 1 | 1 << 16);
    assert_eq!(world.run(at, get_feature(7)).result(), 1 | 1 << 16);
    world.io_queue(DRIVE, ALICE, cntlid, 2);
    let third = world.open();
    let connect = ebof_nvme::connect::Connect { qid: ebof_nvme::QueueId(3), ..crate::support::admin_connect() };
    let (cqe, _) = world.connect(third, connect, &crate::support::connect_data(DRIVE, ALICE, cntlid));
    assert_eq!(cqe.status(), Status::CONNECT_INVALID_PARAMETERS.dnr());
}

#[test]
fn abort_finds_the_queue_and_respects_its_limit() {
    let (mut world, admin_queue, io) = world();
    let abort = |sqid: u32, cid: u32| Sqe::new(admin::ABORT).with_cdw(10, sqid | cid << 16);
    let mut pending = read(1, 0, 1, 512);
    pending.cid = 77.into();
    let step = world.queues.get_mut(&io).unwrap().submit(&pending, 0);
    assert_eq!(world.run(admin_queue, abort(1, 77)).step, "abort 77 there: true");
    assert_eq!(world.run(admin_queue, abort(1, 78)).step, "abort 78 there: false");
    // The queue does not exist: there is nothing to abort.
    let nowhere = world.run(admin_queue, abort(5, 1));
    assert_eq!((nowhere.status(), nowhere.result()), (OK, 1));
    assert!(world.carry_out(io, step, &[]).status().is_success());
    // Four at a time.
    let queue = world.queues.get_mut(&admin_queue).unwrap();
    let mut held = Vec::new();
    for cid in 100..105_u16 {
        let mut sqe = abort(1, 1);
        sqe.cid = cid.into();
        held.push(queue.submit(&sqe, 0));
    }
    let ebof_fabrics::Step::Complete(cqe) = held.pop().unwrap() else { panic!("a fifth Abort was taken") };
    assert_eq!(cqe.status(), Status::ABORT_LIMIT_EXCEEDED.more());
    for step in held {
        assert!(world.carry_out(admin_queue, step, &[]).status().is_success());
    }
    assert!(world.run(admin_queue, abort(1, 1)).status().is_success());
}

// @test limits.command-identifier
#[test]
fn a_command_identifier_in_use_is_refused() {
    let (mut world, _, io) = world();
    let queue = world.queues.get_mut(&io).unwrap();
    let mut sqe = read(1, 0, 1, 512);
    sqe.cid = 9.into();
    let first = queue.submit(&sqe, 0);
    let ebof_fabrics::Step::Complete(cqe) = queue.submit(&sqe, 0) else { panic!("the second was taken") };
    assert_eq!(cqe.status(), Status::CID_CONFLICT.dnr().more());
    assert_eq!((queue.outstanding(), queue.executing()), (1, 1));
    assert!(world.carry_out(io, first, &[]).status().is_success());
    assert!(world.run(io, sqe).status().is_success());
}
