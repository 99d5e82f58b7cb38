//! Commands to I/O queues.

use ebof_nvme::Status;
use ebof_nvme::opcode::nvm;

use super::Becomes::{Ignored, Refused, Said};
use super::Data::{Drive, Host};
use super::To::Io;
use super::{BLOCKS, CDW10, CDW11, CDW12, Case, Data, NSID, OPCODE, SGL_LENGTH, all, at, blocks, cmd, words};

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
