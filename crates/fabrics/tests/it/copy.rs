//! Copy as a host sends it: the copied ranges, and all refusals.

use ebof_nvme::copy::{Copy, CopyFormat, CopySource};
use ebof_nvme::feature::HostBehaviorSupport;
use ebof_nvme::identify::field::oncs;
use ebof_nvme::identify::{Cns, IdentifyController, IdentifyNamespace};
use ebof_nvme::log::SmartHealth;
use ebof_nvme::opcode::admin;
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use crate::support::{ALICE, DRIVE, Done, World, with_data};

fn world() -> (World, u64, u64) {
    let mut world = World::new();
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    (world, admin, io)
}

pub(crate) fn of(nsid: u32, slba: u64, blocks: u32) -> CopySource {
    CopySource { nsid: Nsid(nsid), ..CopySource::new(slba, blocks) }
}

pub(crate) fn copy(world: &mut World, io: u64, nsid: u32, command: Copy, sources: &[CopySource]) -> Done {
    let format = CopyFormat::decode(command.format).unwrap_or(CopyFormat::Format0);
    let mut data = Vec::new();
    sources.iter().for_each(|source| source.encode(format, &mut data));
    let ranges = u16::try_from(sources.len()).unwrap();
    let sqe = Copy { ranges, ..command }.encode(Nsid(nsid));
    world.run_with(io, with_data(sqe, u32::try_from(data.len()).unwrap()), &data)
}

pub(crate) fn to(slba: u64) -> Copy {
    Copy { slba, ..Copy::default() }
}

/// Enables formats that name namespaces.
pub(crate) fn enable(world: &mut World, admin: u64, formats: u16) {
    let behavior = HostBehaviorSupport { cdfe: formats.into(), ..HostBehaviorSupport::default() };
    let set = Sqe::new(admin::SET_FEATURES).with_cdw(10, 0x16);
    assert!(world.run_with(admin, with_data(set, 512), behavior.as_bytes()).status().is_success());
}

#[test]
fn ranges_are_converted_to_bytes_of_devices() {
    let (mut world, admin, io) = world();
    enable(&mut world, admin, 1 << 2 | 1 << 3);
    for format in 0..4 {
        let sources = [of(1, 100, 2), of(1, 200, 1), of(1, 200, 1)];
        let done = copy(&mut world, io, 1, Copy { format, ..to(8) }, &sources);
        assert_eq!((done.status(), done.result()), (Status::SUCCESS, 0));
        let range = |slba: u64, blocks: u64| {
            let offset = 4096 + slba * 512;
            let length = blocks * 512;
            format!(
                "CopyRange {{ device: DeviceId(1), nsid: Nsid(1), offset_bytes: {offset}, length_bytes: {length} }}"
            )
        };
        let (target, [a, b, c]) = (range(8, 4), [range(100, 2), range(200, 1), range(200, 1)]);
        let blocks = "data_bytes: 512, metadata_bytes: 0, checks: None";
        let copying = format!("CopyPlan {{ target: {target}, {blocks}, sources: [{a}, {b}, {c}], fua: false }}");
        assert_eq!(done.step, format!("copy {copying}"));
    }
    let fua = copy(&mut world, io, 1, Copy { fua: true, ..to(8) }, &[of(0, 100, 2)]);
    assert!(fua.step.ends_with("fua: true }"));
    // From a namespace that is write protected, to one that is not.
    let other = copy(&mut world, io, 1, Copy { format: 2, ..to(0) }, &[of(3, 0, 8)]);
    assert!(other.status().is_success() && other.step.contains("sources: [CopyRange { device: DeviceId(3)"));
}

/// Refused commands, and their statuses.
#[test]
fn refusals() {
    let (mut world, admin, io) = world();
    enable(&mut world, admin, 1 << 2);
    let refused = |status: Status| status.dnr().more();
    let field = refused(Status::INVALID_FIELD);
    let limit = refused(Status::COMMAND_SIZE_LIMIT_EXCEEDED);
    let range = refused(Status::LBA_OUT_OF_RANGE);
    let overlap = refused(Status::OVERLAPPING_IO_RANGE);
    let information = refused(Status::INVALID_PROTECTION_INFORMATION);
    let format = |format: u8, slba: u64| Copy { format, ..to(slba) };
    let fast = CopySource { fast_only: true, ..of(1, 100, 1) };
    let many = vec![of(0, 500, 1); 129];
    let rows: &[(&str, u32, Copy, &[CopySource], Status)] = &[
        ("no such namespace", 4, to(0), &[of(0, 8, 1)], refused(Status::INVALID_NAMESPACE)),
        ("write protected", 3, to(0), &[of(0, 8, 1)], refused(Status::NAMESPACE_WRITE_PROTECTED)),
        ("format 4h", 1, format(4, 0), &[of(0, 8, 1)], field),
        ("format 3h, not enabled", 1, format(3, 0), &[of(1, 8, 1)], field),
        ("a directive", 1, Copy { directive: 1, ..to(0) }, &[of(0, 8, 1)], field),
        ("PRACT", 1, Copy { write_protection: 8, ..to(0) }, &[of(0, 8, 1)], information),
        ("PRCHK of the sources", 1, Copy { read_protection: 4, ..to(0) }, &[of(0, 8, 1)], information),
        ("storage tags", 1, Copy { storage_tag_check_read: true, ..to(0) }, &[of(0, 8, 1)], information),
        ("more than MSRC", 1, to(0), &many, limit),
        ("as many as MSRC", 1, to(0), &many[..128], Status::SUCCESS),
        ("more than MSSRL", 2, to(0), &[of(0, 8192, 4097)], limit),
        ("as many as MSSRL", 2, to(0), &[of(0, 8192, 4096)], Status::SUCCESS),
        ("more than MCL", 2, to(0), &[of(0, 65_536, 4096); 5], limit),
        ("as many as MCL", 2, to(0), &[of(0, 65_536, 4096); 4], Status::SUCCESS),
        ("a source beyond the end", 1, to(0), &[of(0, 8, 1), of(0, 1020, 5)], range),
        ("a source that overflows", 1, to(0), &[of(0, u64::MAX, 2)], range),
        ("a destination beyond the end", 1, to(1020), &[of(0, 8, 5)], range),
        ("a destination that overflows", 1, to(u64::MAX), &[of(0, 8, 2)], range),
        ("the same blocks", 1, to(8), &[of(0, 8, 1)], overlap),
        ("the last block of the destination", 1, to(0), &[of(0, 100, 7), of(0, 7, 1)], overlap),
        ("blocks behind it", 1, to(0), &[of(0, 100, 7), of(0, 8, 1)], Status::SUCCESS),
        ("blocks before it", 1, to(8), &[of(0, 0, 8)], Status::SUCCESS),
        ("the first block of the destination", 1, to(8), &[of(0, 0, 9)], overlap),
        ("the same blocks of another namespace", 1, format(2, 8), &[of(3, 8, 1)], Status::SUCCESS),
        ("larger blocks", 1, format(2, 8), &[of(2, 8, 1)], refused(Status::INCOMPATIBLE_NAMESPACE)),
        ("a source that is not there", 1, format(2, 8), &[of(4, 8, 1)], refused(Status::INVALID_NAMESPACE)),
        ("a source of no namespace", 1, format(2, 8), &[of(0, 8, 1)], refused(Status::INVALID_NAMESPACE)),
        ("a fast one", 1, format(2, 8), &[fast], refused(Status::FAST_COPY_NOT_POSSIBLE)),
    ];
    for (name, nsid, command, sources, status) in rows {
        let done = copy(&mut world, io, *nsid, *command, sources);
        assert_eq!((done.status(), done.result()), (*status, 0), "{name}");
        assert_eq!((world.queues[&io].outstanding(), world.queues[&io].executing()), (0, 0), "{name}");
    }
    let short = with_data(Copy { ranges: 2, ..to(0) }.encode(Nsid(1)), 32);
    assert_eq!(world.run(io, short).status(), refused(Status::DATA_SGL_LENGTH_INVALID));
    // A reset disables what the host had enabled.
    enable(&mut world, admin, 0);
    assert_eq!(copy(&mut world, io, 1, format(2, 8), &[of(1, 8, 1)]).status(), field);
}

#[test]
fn announced_limits_and_counters() {
    let (mut world, admin, io) = world();
    let mut identify = |cns: Cns, nsid: u32| {
        let sqe = Sqe::new(admin::IDENTIFY).with_nsid(Nsid(nsid)).with_cdw(10, cns.0.into());
        world.run(admin, with_data(sqe, 4096)).data
    };
    let data = identify(Cns::CONTROLLER, 0);
    let controller = IdentifyController::ref_from_bytes(&data).unwrap();
    assert_eq!((controller.oncs.get() & oncs::COPY, controller.cdfs.get()), (oncs::COPY, 0x0f));
    for (nsid, mssrl, mcl) in [(1, 32_768, 131_072), (2, 4096, 16_384)] {
        let data = identify(Cns::NAMESPACE, nsid);
        let namespace = IdentifyNamespace::ref_from_bytes(&data).unwrap();
        assert_eq!((namespace.mssrl.get(), namespace.mcl.get(), namespace.msrc), (mssrl, mcl, 127));
    }
    for _ in 0..10 {
        assert!(copy(&mut world, io, 2, to(0), &[of(0, 1000, 125)]).status().is_success());
    }
    let smart = Sqe::new(admin::GET_LOG_PAGE).with_nsid(Nsid::ALL).with_cdw(10, 2 | 127 << 16);
    let data = world.run(admin, with_data(smart, 512)).data;
    let smart = SmartHealth::ref_from_bytes(&data).unwrap();
    // 5 120 000 bytes in units of 512 000.
    assert_eq!((smart.dur.get(), smart.duw.get()), (10, 10));
    assert_eq!((smart.hrc.get(), smart.hwc.get()), (10, 10));
}
