//! Commands to the admin queue.

use ebof_nvme::connect::Property;
use ebof_nvme::feature::Fid;
use ebof_nvme::log::Lid;
use ebof_nvme::opcode::{FABRICS, admin};
use ebof_nvme::{Nsid, Sqe, Status};

use super::Becomes::{Ignored, Refused};
use super::Data::{Drive, Host};
use super::To::Admin;
use super::{CDW10, CDW11, CDW12, CDW13, Case, Data, NSID, OPCODE, SGL_LENGTH, all, at, cmd};

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
