//! Protection information from end to end: the result of every check of every command, over the
//! wire and from a drive's medium.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::drive_rig;
use ebof_initiator::{AdminData, Controller, Data, QueuePair};
use ebof_nvme::copy::{Copy, CopyFormat, CopySource};
use ebof_nvme::feature::HostBehaviorSupport;
use ebof_nvme::identify::Csi;
use ebof_nvme::io::{BlockRange, Dsm, DsmRange};
use ebof_nvme::log::{ErrorInformation, Lid};
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::protection::blocks::guard;
use ebof_nvme::protection::{Guard16, Tags, prinfo};
use ebof_nvme::{Nsid, Sqe, Status};
use ebof_server::Target;
use zerocopy::{FromBytes, IntoBytes};

const BLOCKS: u64 = 8192;
const ACT: u8 = prinfo::ACTION;
const ALL: u8 = prinfo::CHECK_GUARD | prinfo::CHECK_APPLICATION | prinfo::CHECK_REFERENCE;
/// The application tag of all blocks, and what commands expect.
const APPLICATION: u16 = 0x0a0b;
/// Namespaces by type of protection information; the last has metadata that are none.
const BARE: u8 = 4;
/// The state of a block's protection information.
const VARIANTS: [Variant; 6] =
    [Variant::Good, Variant::Guard, Variant::Application, Variant::Reference, Variant::Escape, Variant::EscapeAll];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Variant {
    Good,
    /// One of the three is wrong.
    Guard,
    Application,
    Reference,
    /// Everything is wrong, and the application tag disables checks: FFFFh.
    Escape,
    /// The reference tag disables them, too.
    EscapeAll,
}

impl Variant {
    /// The result of the checks in the specification.
    fn expected(self, kind: u8, checks: u8) -> Status {
        let found = match self {
            Self::Good | Self::EscapeAll => return Status::SUCCESS,
            Self::Escape if kind != 3 => return Status::SUCCESS,
            // For type 3 both tags are needed: guard and application tag are wrong.
            Self::Escape if checks & prinfo::CHECK_GUARD != 0 => return Status::GUARD_CHECK_ERROR,
            Self::Escape => (prinfo::CHECK_APPLICATION, Status::APPLICATION_TAG_CHECK_ERROR),
            Self::Guard => (prinfo::CHECK_GUARD, Status::GUARD_CHECK_ERROR),
            Self::Application => (prinfo::CHECK_APPLICATION, Status::APPLICATION_TAG_CHECK_ERROR),
            Self::Reference => (prinfo::CHECK_REFERENCE, Status::REFERENCE_TAG_CHECK_ERROR),
        };
        if checks & found.0 != 0 { found.1 } else { Status::SUCCESS }
    }

    fn apply(self, information: &mut Guard16) {
        match self {
            Self::Good => {}
            Self::Guard => information.guard.set(information.guard.get() ^ 0x0100),
            Self::Application => information.application_tag.set(APPLICATION ^ 1),
            Self::Reference => information.reference_tag.set(information.reference_tag.get() ^ 0x8000_0000),
            Self::Escape | Self::EscapeAll => {
                information.guard.set(!information.guard.get());
                information.application_tag.set(u16::MAX);
                if self == Self::EscapeAll {
                    information.reference_tag.set(u32::MAX);
                }
            }
        }
    }
}

/// A host with its queue, and namespaces 1 to 4 of one block size.
struct Bench {
    controller: Controller,
    queue: QueuePair<Vec<u8>>,
    data: usize,
}

fn start(directory: &Path) -> (Target, SocketAddr) {
    drive_rig::start(&directory.join("drive.img"), Some(256 << 20))
}

impl Bench {
    fn connect(address: SocketAddr, data: usize, digests: bool) -> Self {
        let controller = drive_rig::connect_with(address, |options| {
            options.hdr_digest = digests;
            options.data_digest = digests;
        });
        let behavior = HostBehaviorSupport { cdfe: (1 << 2).into(), ..HostBehaviorSupport::default() };
        let set = Sqe::new(admin::SET_FEATURES).with_cdw(10, 0x16);
        controller.admin(set, AdminData::FromHost(behavior.as_bytes()), None).unwrap();
        let queue = controller.queue_pair().unwrap();
        Self { controller, queue, data }
    }

    /// Namespaces 1 to 3 with the protection information of their number, and [`BARE`].
    fn create(&mut self) {
        for kind in 1..=BARE {
            let mut wanted = NewNamespace::new(BLOCKS);
            wanted.nmic = 1;
            wanted.set_format(if self.data == 512 { 2 } else { 3 }, true);
            wanted.dps = if kind == BARE { 0 } else { kind };
            let command = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM };
            let data = AdminData::FromHost(wanted.as_bytes());
            let cqe = self.controller.admin(command.encode(Nsid::NONE), data, None).unwrap();
            assert_eq!((cqe.status(), cqe.result()), (Status::SUCCESS, kind.into()));
        }
    }

    fn extended(&self) -> usize {
        self.data + 8
    }

    fn run(&mut self, sqe: Sqe, data: Data) -> (Status, Vec<u8>) {
        self.queue.submit(sqe, data, 0).unwrap();
        let done = self.queue.wait(None).unwrap().unwrap();
        let status = done.result.unwrap().status();
        // Another test checks the error log.
        (Status(status.0 & 0x7ff), done.data.into_buffer().unwrap_or_default())
    }

    /// A command of type `kind` with the tags for blocks from `slba` on.
    fn sqe(&self, opcode: u8, kind: u8, slba: u64, blocks: usize, prinfo: u8) -> Sqe {
        let range = BlockRange { prinfo, ..BlockRange::new(slba, blocks as u32) };
        let sqe = range.encode(opcode, Nsid(kind.into()));
        if kind == BARE { sqe } else { tags(reference(kind, slba, 0)).encode(sqe) }
    }

    fn transfer(&mut self, opcode: u8, kind: u8, slba: u64, prinfo: u8, data: &[u8]) -> Status {
        let block = if prinfo & ACT == 0 { self.extended() } else { self.data };
        let sqe = self.sqe(opcode, kind, slba, data.len() / block, prinfo);
        self.run(sqe, Data::FromHost(data.to_vec())).0
    }

    fn write(&mut self, kind: u8, slba: u64, prinfo: u8, data: &[u8]) -> Status {
        self.transfer(nvm::WRITE, kind, slba, prinfo, data)
    }

    fn read(&mut self, kind: u8, slba: u64, blocks: usize, prinfo: u8) -> (Status, Vec<u8>) {
        let block = if prinfo & ACT == 0 { self.extended() } else { self.data };
        let sqe = self.sqe(nvm::READ, kind, slba, blocks, prinfo);
        self.run(sqe, Data::ToHost(vec![0xee; blocks * block]))
    }

    fn without_data(&mut self, opcode: u8, kind: u8, slba: u64, blocks: usize, prinfo: u8) -> Status {
        let sqe = self.sqe(opcode, kind, slba, blocks, prinfo);
        self.run(sqe, Data::None).0
    }

    /// Copies blocks of a namespace; the tags that are expected are those of the source, the new
    /// ones those of the target.
    fn copy(&mut self, kind: u8, from: u64, to: u64, blocks: usize, read: u8, write: u8) -> Status {
        let mut source = CopySource::new(from, blocks as u32);
        source.set_reference_tag(reference(kind, from, 0));
        source.application_tag = APPLICATION;
        source.application_mask = u16::MAX;
        let mut list = Vec::new();
        source.encode(CopyFormat::Format0, &mut list);
        let copy = Copy {
            slba: to,
            ranges: 1,
            read_protection: read,
            write_protection: write,
            reference_tag: reference(kind, to, 0),
            application_tag: APPLICATION,
            application_mask: u16::MAX,
            ..Copy::default()
        };
        self.run(copy.encode(Nsid(kind.into())), Data::FromHost(list)).0
    }

    /// Blocks with some data and the protection information of `kind`.
    fn blocks(&self, kind: u8, slba: u64, count: usize) -> Vec<u8> {
        let mut blocks: Vec<u8> =
            (0..count * self.extended()).map(|at| (at / 3 + at / 509) as u8 ^ slba as u8).collect();
        for (at, block) in (0..).zip(blocks.chunks_exact_mut(self.data + 8)) {
            let (data, information) = block.split_at_mut(self.data);
            *Guard16::mut_from_bytes(information).unwrap() = Guard16 {
                guard: guard(data).into(),
                application_tag: APPLICATION.into(),
                reference_tag: reference(kind, slba, at).into(),
            };
        }
        blocks
    }

    fn data_of(&self, blocks: &[u8]) -> Vec<u8> {
        blocks.chunks_exact(self.extended()).flat_map(|block| &block[..self.data]).copied().collect()
    }

    /// The newest entry of the error log.
    fn error(&self) -> ErrorInformation {
        let mut page = vec![0; 64];
        self.controller.log_page(Nsid::ALL, Lid::ERROR_INFORMATION.0, 0, &mut page).unwrap();
        ErrorInformation::read_from_bytes(&page).unwrap()
    }
}

fn tags(reference: u32) -> Tags {
    Tags {
        storage_and_reference: reference.into(),
        application: APPLICATION,
        application_mask: u16::MAX,
        check_storage: false,
    }
}

/// The reference tag of the block `at` of a command from `slba` on.
fn reference(kind: u8, slba: u64, at: u32) -> u32 {
    match kind {
        1 => slba as u32 + at,
        2 => 0xffff_fffe_u32.wrapping_add(at),
        _ => 0x5555_aaaa,
    }
}

fn of_kind(kind: u8) -> u8 {
    if kind == 3 { ALL & !prinfo::CHECK_REFERENCE } else { ALL }
}

/// Every subset of the checks that a type has.
fn checks_of(kind: u8) -> impl Iterator<Item = u8> {
    (0..=ALL).filter(move |checks| checks & !of_kind(kind) == 0)
}

fn each_bench(test: impl Fn(&mut Bench)) {
    for (data, digests) in [(512, false), (512, true), (4096, false), (4096, true)] {
        let directory = tempfile::tempdir().unwrap();
        let (_target, address) = start(directory.path());
        let mut bench = Bench::connect(address, data, digests);
        bench.create();
        test(&mut bench);
    }
}

#[test]
fn every_check_of_every_command_detects_exactly_its_errors() {
    each_bench(|bench| {
        for (kind, variant) in (1..=3).flat_map(|kind| VARIANTS.map(|variant| (kind, variant))) {
            // Three blocks of which the middle one is the one in question.
            let slba = 64;
            let at = 1;
            let good = bench.blocks(kind, slba, 3);
            let mut wrong = good.clone();
            let information = at * bench.extended() + bench.data;
            variant.apply(Guard16::mut_from_bytes(&mut wrong[information..information + 8]).unwrap());
            // Without checks everything is taken.
            assert_eq!(bench.write(kind, slba, 0, &wrong), Status::SUCCESS);
            for checks in checks_of(kind) {
                let expected = variant.expected(kind, checks);
                let what = format!("{} bytes, type {kind}, {variant:?}, checks {checks:03b}", bench.data);
                let ok = expected.is_success();
                let (status, data) = bench.read(kind, slba, 3, checks);
                assert_eq!((status, !ok || data == wrong), (expected, true), "read of {what}");
                let (status, data) = bench.read(kind, slba, 3, ACT | checks);
                assert_eq!(
                    (status, !ok || data == bench.data_of(&wrong)),
                    (expected, true),
                    "stripping read of {what}"
                );
                assert_eq!(bench.without_data(nvm::VERIFY, kind, slba, 3, checks), expected, "verify of {what}");
                // Compare: what is stored is checked, and what is sent; but the data are compared
                // alone.
                assert_eq!(bench.transfer(nvm::COMPARE, kind, slba, checks, &good), expected, "compare of {what}");
                let mut other = good.clone();
                other[0] ^= 1;
                let fails =
                    if checks & prinfo::CHECK_GUARD != 0 { Status::GUARD_CHECK_ERROR } else { Status::COMPARE_FAILURE };
                let status = bench.transfer(nvm::COMPARE, kind, slba, checks, &other);
                assert_eq!(
                    status,
                    if ok || fails != Status::COMPARE_FAILURE { fails } else { expected },
                    "other data than {what}"
                );
                // Refused data are not written.
                let target = slba + 100;
                let before = bench.blocks(kind, target, 3);
                assert_eq!(bench.write(kind, target, 0, &before), Status::SUCCESS);
                let mut sent = bench.blocks(kind, target, 3);
                sent.iter_mut().step_by(bench.extended()).for_each(|byte| *byte = !*byte);
                sent = retagged(bench, kind, target, sent, Some((at, variant)));
                assert_eq!(bench.write(kind, target, checks, &sent), expected, "write of {what}");
                let after = if ok { &sent } else { &before };
                assert!(bench.read(kind, target, 3, 0).1 == *after, "after a write of {what}");
                // Copies: checked at the source, then kept or newly generated.
                assert_eq!(bench.copy(kind, slba, 2000, 3, checks, 0), expected, "copy of {what}");
                assert_eq!(bench.copy(kind, slba, 3000, 3, ACT | checks, ACT), expected, "renewing copy of {what}");
                if ok {
                    assert!(bench.read(kind, 2000, 3, 0).1 == wrong, "a copy of {what}");
                    let (status, data) = bench.read(kind, 3000, 3, of_kind(kind));
                    assert_eq!(status, Status::SUCCESS, "a renewed copy of {what}");
                    assert!(bench.data_of(&data) == bench.data_of(&wrong), "a renewed copy of {what}");
                }
            }
        }
    });
}

/// New protection information for blocks whose data have changed, then what is wrong with one of
/// them.
fn retagged(bench: &Bench, kind: u8, slba: u64, mut blocks: Vec<u8>, wrong: Option<(usize, Variant)>) -> Vec<u8> {
    let extended = bench.extended();
    for (at, block) in blocks.chunks_exact_mut(extended).enumerate() {
        let (data, information) = block.split_at_mut(bench.data);
        let information = Guard16::mut_from_bytes(information).unwrap();
        information.guard = guard(data).into();
        information.application_tag = APPLICATION.into();
        information.reference_tag = reference(kind, slba, at as u32).into();
        if let Some((which, variant)) = wrong
            && which == at
        {
            variant.apply(information);
        }
    }
    blocks
}

#[test]
fn a_failed_check_is_in_the_error_log_with_its_block() {
    each_bench(|bench| {
        let mut blocks = bench.blocks(1, 64, 3);
        blocks[2 * bench.extended()] ^= 0x10;
        assert_eq!(bench.write(1, 64, ALL, &blocks), Status::GUARD_CHECK_ERROR);
        let of = |entry: ErrorInformation| (entry.lba.get(), entry.nsid.get());
        assert_eq!(of(bench.error()), (66, 1));
        assert_eq!(bench.write(1, 64, 0, &blocks), Status::SUCCESS);
        assert_eq!(bench.read(1, 65, 2, ALL).0, Status::GUARD_CHECK_ERROR);
        assert_eq!(of(bench.error()), (66, 1));
        assert_eq!(bench.read(1, 66, 1, ACT | prinfo::CHECK_GUARD).0, Status::GUARD_CHECK_ERROR);
        assert_eq!(bench.without_data(nvm::VERIFY, 1, 60, 8, prinfo::CHECK_GUARD), Status::GUARD_CHECK_ERROR);
        assert_eq!(of(bench.error()), (66, 1));
    });
}

#[test]
fn inserted_information_equals_that_of_a_host() {
    each_bench(|bench| {
        for kind in 1..=3 {
            // In the capsule, by R2T, and as much as a command may have.
            for (slba, count) in [(0, 1), (7, 8), (100, 100), (1000, (1 << 20) / bench.data)] {
                let blocks = bench.blocks(kind, slba, count);
                let data = bench.data_of(&blocks);
                assert_eq!(bench.write(kind, slba, ACT, &data), Status::SUCCESS);
                let (status, read) = bench.read(kind, slba, count, of_kind(kind));
                assert!(status.is_success() && read == blocks, "type {kind}, {count} blocks: {status}");
                let (status, read) = bench.read(kind, slba, count, ACT | of_kind(kind));
                assert!(status.is_success() && read == data, "type {kind}, {count} blocks: {status}");
                assert_eq!(bench.write(kind, slba, of_kind(kind), &blocks), Status::SUCCESS);
            }
        }
        // Linux 6.11 to 6.17 writes with PRACT and no reference tag at all; what it has written can
        // be checked all the same.
        let blocks = bench.blocks(1, 500, 4);
        let sqe = BlockRange { prinfo: ACT, ..BlockRange::new(500, 4) }.encode(nvm::WRITE, Nsid(1));
        let data = Data::FromHost(bench.data_of(&blocks));
        assert_eq!(bench.run(sqe, data).0, Status::SUCCESS);
        let checks = prinfo::CHECK_GUARD | prinfo::CHECK_REFERENCE;
        assert_eq!(bench.read(1, 500, 4, checks).0, Status::SUCCESS);
    });
}

#[test]
fn unwritten_blocks_are_not_checked_and_zeros_are_kept() {
    each_bench(|bench| {
        let data = bench.data;
        let extended = bench.extended();
        let is = |blocks: &[u8], information: u8| {
            blocks.chunks_exact(extended).all(|block| {
                block[..data].iter().all(|&byte| byte == 0) && block[data..].iter().all(|&byte| byte == information)
            })
        };
        for kind in 1..=3 {
            let checks = of_kind(kind);
            let (status, blocks) = bench.read(kind, 0, 16, checks);
            assert!(status.is_success() && is(&blocks, 0xff), "type {kind}: {status}");
            assert_eq!(bench.read(kind, 0, 16, ACT | checks), (Status::SUCCESS, vec![0; 16 * data]));
            assert_eq!(bench.without_data(nvm::VERIFY, kind, 0, 4096, checks), Status::SUCCESS);
            // Zeros with protection information of zeros are different.
            assert_eq!(bench.write(kind, 0, 0, &vec![0; extended]), Status::SUCCESS);
            assert!(is(&bench.read(kind, 0, 1, 0).1, 0) && is(&bench.read(kind, 1, 1, 0).1, 0xff));
            assert_eq!(bench.write(kind, 1, 0, &bench.blocks(kind, 1, 1)), Status::SUCCESS);
            // Write Zeroes without PRACT makes them such, and with it protection information of
            // zeros.
            assert_eq!(bench.without_data(nvm::WRITE_ZEROES, kind, 1, 2, 0), Status::SUCCESS);
            assert!(is(&bench.read(kind, 0, 3, 0).1, 0) && is(&bench.read(kind, 3, 13, 0).1, 0xff));
            let count = (1 << 20) / data + 3;
            assert_eq!(bench.without_data(nvm::WRITE_ZEROES, kind, 2, count, ACT), Status::SUCCESS);
            let zeros = retagged(bench, kind, 2, bench.blocks(kind, 2, count), None);
            let zeros = zeroed(bench, zeros);
            let half = count / 2 + 1;
            let (status, read) = bench.read(kind, 2, half, checks);
            assert!(status.is_success() && read == zeros[..half * extended], "type {kind}: {status}");
            assert_eq!(bench.without_data(nvm::VERIFY, kind, 2, count, checks), Status::SUCCESS);
            // Deallocated blocks are like unwritten ones.
            let ranges = [DsmRange { cattr: 0.into(), nlb: 8.into(), slba: 1.into() }];
            let dsm = Dsm { ranges: 1, deallocate: true, integral_write: false, integral_read: false };
            let mut list = ranges.as_bytes().to_vec();
            list.resize(4096, 0);
            assert_eq!(bench.run(dsm.encode(Nsid(kind.into())), Data::FromHost(list)).0, Status::SUCCESS);
            assert!(is(&bench.read(kind, 1, 8, checks).1, 0xff), "type {kind}");
            assert_eq!(bench.read(kind, 9, half - 7, prinfo::CHECK_GUARD).0, Status::SUCCESS);
        }
    });
}

fn zeroed(bench: &Bench, mut blocks: Vec<u8>) -> Vec<u8> {
    for block in blocks.chunks_exact_mut(bench.extended()) {
        block[..bench.data + 2].fill(0);
    }
    blocks
}

#[test]
fn copies_in_many_pieces_have_the_tags_of_their_destination() {
    each_bench(|bench| {
        for kind in 1..=3 {
            let count = 600_000 / bench.data;
            let blocks = bench.blocks(kind, 5, count);
            assert_eq!(bench.write(kind, 5, of_kind(kind), &blocks), Status::SUCCESS);
            let checks = of_kind(kind);
            assert_eq!(bench.copy(kind, 5, 4000, count, ACT | checks, ACT | checks), Status::SUCCESS);
            let (status, copied) = bench.read(kind, 4000, count, checks);
            assert!(
                status.is_success() && copied == retagged(bench, kind, 4000, blocks.clone(), None),
                "{kind}: {status}"
            );
            // Kept: the reference tags of type 1 do not match the destination then.
            let expected = if kind == 1 { Status::REFERENCE_TAG_CHECK_ERROR } else { Status::SUCCESS };
            assert_eq!(bench.copy(kind, 5, 4000, count, checks, checks), expected);
            assert_eq!(bench.copy(kind, 5, 4000, count, checks, 0), Status::SUCCESS);
            assert!(bench.read(kind, 4000, count, 0).1 == blocks);
            // An error at the end of the source is found there.
            let mut last = blocks[(count - 1) * bench.extended()..].to_vec();
            last[0] ^= 1;
            assert_eq!(bench.write(kind, 5 + count as u64 - 1, 0, &last), Status::SUCCESS);
            assert_eq!(bench.copy(kind, 5, 4000, count, checks, 0), Status::GUARD_CHECK_ERROR);
        }
    });
}

#[test]
fn pairs_compare_and_write_with_checks_on_both_halves() {
    each_bench(|bench| {
        let old = bench.blocks(1, 9, 1);
        let new = retagged(bench, 1, 9, old.iter().map(|byte| !byte).collect(), None);
        let mut bad = new.clone();
        bad[3] ^= 1;
        let pair = |bench: &mut Bench, sent: &[u8], checks: u8, written: &[u8], prinfo: u8| {
            let [mut first, mut second] = [nvm::COMPARE, nvm::WRITE].map(|opcode| bench.sqe(opcode, 1, 9, 1, checks));
            second = if prinfo == checks { second } else { bench.sqe(nvm::WRITE, 1, 9, 1, prinfo) };
            first.flags |= 1;
            second.flags |= 2;
            bench.queue.submit(first, Data::FromHost(sent.to_vec()), 1).unwrap();
            bench.queue.submit(second, Data::FromHost(written.to_vec()), 2).unwrap();
            let mut done: Vec<_> = (0..2).map(|_| bench.queue.wait(None).unwrap().unwrap()).collect();
            done.sort_by_key(|done| done.user);
            let status = |at: usize| Status(done[at].result.as_ref().unwrap().status().0 & 0x7ff);
            (status(0), status(1))
        };
        let ok = Status::SUCCESS;
        let failed = Status::ABORTED_FAILED_FUSED;
        assert_eq!(bench.write(1, 9, ALL, &old), ok);
        assert_eq!(pair(bench, &new, ALL, &new, ALL), (Status::COMPARE_FAILURE, failed));
        assert_eq!(pair(bench, &old, ALL, &bad, ALL), (failed, Status::GUARD_CHECK_ERROR));
        assert_eq!(pair(bench, &bad, ALL, &new, ALL), (Status::GUARD_CHECK_ERROR, failed));
        assert!(bench.read(1, 9, 1, ALL).1 == old);
        assert_eq!(pair(bench, &old, ALL, &new, ALL), (ok, ok));
        assert!(bench.read(1, 9, 1, ALL).1 == new);
        let data = bench.data_of(&old);
        assert_eq!(pair(bench, &new, ALL, &data, ACT), (ok, ok));
        assert!(bench.read(1, 9, 1, ALL).1 == old);
        // Stored blocks are checked, too.
        assert_eq!(bench.write(1, 9, 0, &bad), ok);
        assert_eq!(pair(bench, &new, ALL, &new, ALL), (Status::GUARD_CHECK_ERROR, failed));
    });
}

#[test]
fn metadata_without_protection_are_stored_unchanged() {
    each_bench(|bench| {
        for (slba, count) in [(0, 1), (7, 8), (100, 100), (1000, (1 << 20) / bench.data)] {
            let mut blocks: Vec<u8> = (0..count * bench.extended()).map(|at| (at / 5 + at / 1021) as u8).collect();
            assert_eq!(bench.write(BARE, slba, 0, &blocks), Status::SUCCESS);
            let (status, read) = bench.read(BARE, slba, count, 0);
            assert!(status.is_success() && read == blocks, "{count} blocks: {status}");
            assert_eq!(bench.transfer(nvm::COMPARE, BARE, slba, 0, &blocks), Status::SUCCESS);
            // Every bit is compared.
            *blocks.last_mut().unwrap() ^= 1;
            assert_eq!(bench.transfer(nvm::COMPARE, BARE, slba, 0, &blocks), Status::COMPARE_FAILURE);
        }
        assert_eq!(bench.without_data(nvm::WRITE_ZEROES, BARE, 100, 50, 0), Status::SUCCESS);
        assert!(bench.read(BARE, 100, 50, 0).1.iter().all(|&byte| byte == 0));
        assert_eq!(bench.read(BARE, 5000, 2, 0).1, vec![0; 2 * bench.extended()]);
        let sqe = bench.sqe(nvm::READ, BARE, 0, 1, ACT);
        let refused = bench.run(sqe, Data::ToHost(vec![0; bench.data])).0;
        assert_eq!(refused, Status::INVALID_PROTECTION_INFORMATION);
    });
}

#[test]
fn a_host_without_metadata_uses_pract() {
    each_bench(|bench| {
        for kind in 1..=3 {
            let namespace = bench.controller.namespace(Nsid(kind.into())).unwrap();
            let data: Vec<u8> = (0..(3 << 20)).map(|at: usize| (at / 7 + at / 4099) as u8).collect();
            namespace.write(3, &data, true).unwrap();
            let mut read = vec![0; data.len()];
            namespace.read(3, &mut read).unwrap();
            assert!(read == data);
            assert!(namespace.compare(3, &data).unwrap());
            read[1 << 20] ^= 1;
            assert!(!namespace.compare(3, &read).unwrap());
            let blocks = (data.len() / bench.data) as u64;
            namespace.verify(3, blocks).unwrap();
            // Copied blocks have the tags of the destination.
            namespace.copy(&[(10, 300), (500, 200)], 7000).unwrap();
            let mut copied = vec![0; 500 * bench.data];
            namespace.read(7000, &mut copied).unwrap();
            let of = |first: usize, blocks: usize| &data[(first - 3) * bench.data..][..blocks * bench.data];
            assert!(copied == [of(10, 300), of(500, 200)].concat());
            let prinfo = prinfo::CHECK_GUARD | if kind == 3 { 0 } else { prinfo::CHECK_REFERENCE };
            let checked = BlockRange { prinfo, ..BlockRange::new(7000, 500) };
            let checked = checked.encode(nvm::VERIFY, Nsid(kind.into())).with_cdw(14, 7000);
            assert_eq!(bench.run(checked, Data::None).0, Status::SUCCESS);
            namespace.write_zeroes(5, 300, true).unwrap();
            namespace.deallocate(&[(500, 100)]).unwrap();
            namespace.read(3, &mut read).unwrap();
            let zeroed = |block: usize| (2..302).contains(&block) || (497..597).contains(&block);
            for (at, (read, data)) in read.chunks(bench.data).zip(data.chunks(bench.data)).enumerate() {
                assert!(if zeroed(at) { read.iter().all(|&byte| byte == 0) } else { read == data }, "block {at}");
            }
            // Its blocks have the tags that other hosts expect, as far as a host without tags can
            // know them.
            let sqe = BlockRange { prinfo: prinfo::CHECK_GUARD, ..BlockRange::new(3, 2) };
            let sqe = sqe.encode(nvm::VERIFY, Nsid(kind.into()));
            assert_eq!(bench.run(sqe, Data::None).0, Status::SUCCESS);
            // A changed block is detected when it is read.
            let mut wrong = bench.blocks(kind, 4, 1);
            wrong[17] ^= 4;
            assert_eq!(bench.write(kind, 4, 0, &wrong), Status::SUCCESS);
            let error = namespace.read(3, &mut read).unwrap_err();
            assert!(error.status().unwrap().is(Status::GUARD_CHECK_ERROR), "{error}");
        }
        let error = bench.controller.namespace(Nsid(BARE.into())).unwrap_err().to_string();
        assert!(error.contains("metadata"), "{error}");
    });
}

#[test]
fn protection_information_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (target, address) = start(directory.path());
    let mut bench = Bench::connect(address, 4096, false);
    bench.create();
    let blocks = bench.blocks(1, 77, 40);
    assert_eq!(bench.write(1, 77, ALL, &blocks), Status::SUCCESS);
    bench.controller.clone().disconnect();
    target.stop(Duration::from_secs(5));
    drop((bench, target));
    let (_target, address) = start(directory.path());
    let mut bench = Bench::connect(address, 4096, true);
    let (status, read) = bench.read(1, 77, 40, ALL);
    assert!(status.is_success() && read == blocks, "{status}");
    assert_eq!(bench.read(1, 0, 200, ACT | ALL).0, Status::SUCCESS);
}
