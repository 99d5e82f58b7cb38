//! Namespace management, formats and firmware.

use ebof_nvme::Status;
use ebof_nvme::opcode::admin;

use super::Becomes::{Ignored, Refused};
use super::Data::Drive;
use super::To::Admin;
use super::{CDW10, CDW11, Case, Data, NSID, SGL_LENGTH, all, at, cmd};

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
            new(&|new| new[92] = 129),
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
