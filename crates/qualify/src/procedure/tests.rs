//! Plans of all procedures: what they run, on what, and what they leave out.

use super::*;
use ebof_initiator::Options;

fn subject(name: &str) -> DeviceUnderTest {
    let device = Device::parse(name, Options::from_uri).unwrap();
    let seen = match device.kind {
        Kind::Namespace(..) => {
            let mut identity = Device::parse("mem:1Gi", Options::from_uri).unwrap().inspect().unwrap();
            identity.identity.kind = device.kind_name().to_owned();
            identity.transfer_bytes_max = Some(128 << 10);
            identity.io_queues_max = Some(16);
            identity
        }
        _ => device.inspect().unwrap(),
    };
    DeviceUnderTest { device, seen }
}

const REMOTE: &str = "nvme+tcp://192.0.2.1/nqn.2014-08.org.example:drive0/1";

fn wish(procedure: Procedure, devices: &[&str]) -> Wish {
    Wish {
        procedure,
        devices: devices.iter().map(|name| subject(name)).collect(),
        against: false,
        engines: vec![EngineName::Ebof],
        rounds: 3,
        quick: None,
        reads_only: false,
        size_bytes: None,
        with_writes: false,
        repeats: 2,
    }
}

#[test]
fn the_white_papers_procedure_is_as_in_the_paper() {
    let plan = Wish { against: true, ..wish(Procedure::Odcc, &[REMOTE, "mem:1Gi"]) }.plan().unwrap();
    let ids: Vec<&str> = plan.phases.iter().map(|phase| phase.id.as_str()).collect();
    assert_eq!(
        ids,
        ["precondition-seq", "seq-write-128k", "seq-read-128k", "precondition-rand", "rand-write-4k", "rand-read-4k"]
    );
    let job = |index: usize| &plan.phases[index].jobs[0];
    assert_eq!((job(0).block_bytes, job(0).depth, job(0).runtime, plan.phases[0].rounds), (128 << 10, 8, None, 2));
    assert_eq!((job(3).threads, job(3).depth, job(3).runtime), (8, 256, Some(Duration::from_secs(14_400))));
    assert_eq!(plan.phases[3].until_bytes, Some(2 << 30));
    assert_eq!((job(5).threads, job(5).depth), (1, 64));
    // The namespace is compared with the local device.
    let bases: Vec<_> = plan.columns.iter().map(|column| column.column.base).collect();
    assert_eq!(bases, [Some(1), None]);
    assert_eq!(plan.columns[0].column.label, "NVMe/TCP drive0/1");
}

#[test]
fn quick_divides_times_and_sizes_and_says_so() {
    let plan = Wish { quick: Some(100), ..wish(Procedure::Odcc, &["null:100Gi"]) }.plan().unwrap();
    assert_eq!(plan.phases[1].jobs[0].runtime, Some(Duration::from_secs(3)));
    assert_eq!(plan.phases[1].jobs[0].size_bytes, Some(1 << 30));
    assert_eq!(plan.phases[3].jobs[0].runtime, Some(Duration::from_secs(144)));
    assert!(plan.notes.iter().any(|note| note.contains("divided by 100")));
    let most = Wish { quick: Some(1_000_000), ..wish(Procedure::Cdm, &["mem:256Mi"]) }.plan().unwrap();
    let pattern = most.phases.iter().find(|phase| phase.id == "seq-read").unwrap();
    assert_eq!(pattern.jobs[0].runtime, Some(Duration::from_millis(500)));
    assert_eq!(pattern.jobs[0].size_bytes, Some(64 << 20));
}

#[test]
fn phases_that_do_not_fit_a_device_are_left_out_with_the_reason() {
    let plan = wish(Procedure::Cdm, &[REMOTE]).plan().unwrap();
    let skipped = plan.phases.iter().find(|phase| phase.id == "seq-read").unwrap().skipped.clone().unwrap();
    assert!(skipped.contains("more than one command to this target may carry (131072 bytes)"), "{skipped}");
    assert!(plan.phases.iter().any(|phase| phase.id == "rand-read-4k" && phase.skipped.is_none()));
    let small = wish(Procedure::Mixed, &["mem:1Mi"]).plan().unwrap_err().to_string();
    assert!(small.contains("nothing is left to be measured") && small.contains("mem:1Mi"), "{small}");
    let reads = Wish { reads_only: true, ..wish(Procedure::Odcc, &["mem:64Mi"]) }.plan().unwrap();
    let left: Vec<_> = reads.phases.iter().filter(|phase| phase.skipped.is_none()).map(|phase| &phase.id).collect();
    assert_eq!(left, ["seq-read-128k", "rand-read-4k"]);
}

#[test]
fn corners_are_measured_raw_and_on_a_file_system_where_one_is_possible() {
    let plan = wish(Procedure::Corners, &["mem:1Gi"]).plan().unwrap();
    assert_eq!(plan.phases.len(), 10);
    let on_ext4: Vec<_> = plan.phases.iter().filter(|phase| phase.file_system.is_some()).collect();
    assert!(on_ext4.iter().all(|phase| phase.skipped.as_deref().unwrap().contains("cannot have a file system")));
    let job = &plan.phases[1].jobs[0];
    assert_eq!((job.depth, job.threads, job.runtime), (128, 4, Some(Duration::from_secs(1200))));
}

#[test]
fn the_article_on_tcp_is_measured_with_its_programs_and_its_file_system() {
    let plan = wish(Procedure::Cdm, &[REMOTE]).plan().unwrap();
    let tools: Vec<_> =
        plan.phases.iter().filter(|phase| phase.tool.is_some()).map(|phase| phase.id.as_str()).collect();
    assert_eq!(tools, ["hdparm-cached", "hdparm-disk", "dd-write"]);
    let dd = plan.phases.iter().find(|phase| phase.id == "dd-write").unwrap();
    assert_eq!((dd.jobs[0].size_bytes, dd.skipped.clone(), dd.references.len()), (Some(1 << 30), None, 2));
    let on_xfs: Vec<_> = plan.phases.iter().filter(|phase| phase.file_system.as_deref() == Some("xfs")).collect();
    assert!(on_xfs.len() == 8 && on_xfs.iter().all(|phase| phase.skipped.is_none() && phase.id.ends_with("-xfs")));
    // Their times are their own, and memory is no block device.
    for (wish, why) in [
        (Wish { quick: Some(100), ..wish(Procedure::Cdm, &[REMOTE]) }, "left out of quick runs"),
        (wish(Procedure::Cdm, &["mem:1Gi"]), "cannot be a block device"),
        (Wish { reads_only: true, ..wish(Procedure::Cdm, &[REMOTE]) }, "--reads-only"),
    ] {
        let plan = wish.plan().unwrap();
        let dd = plan.phases.iter().find(|phase| phase.id == "dd-write").unwrap();
        assert!(dd.skipped.as_deref().unwrap().contains(why), "{:?}", dd.skipped);
    }
}

#[test]
fn throughput_is_measured_by_size_over_16_queues() {
    let plan = wish(Procedure::Curve, &["mem:1Gi"]).plan().unwrap();
    let sizes: Vec<_> = plan.phases.iter().filter(|phase| phase.unit == Unit::MegabytesPerSecond).collect();
    let jobs: Vec<_> = sizes.iter().map(|phase| (phase.jobs[0].block_bytes, phase.jobs[0].threads)).collect();
    assert_eq!((jobs.first(), jobs.last(), jobs.len()), (Some(&(4096, 16)), Some(&(1 << 20, 16)), 9));
    // A target that grants fewer queues, and one that takes smaller commands.
    let mut few = wish(Procedure::Curve, &[REMOTE]);
    few.devices[0].seen.io_queues_max = Some(8);
    let skipped =
        |wish: &Wish, id: &str| wish.plan().unwrap().phases.into_iter().find(|phase| phase.id == id).unwrap().skipped;
    assert!(skipped(&few, "q16-4k").unwrap().contains("grants 8 I/O queues of 16"));
    assert_eq!(skipped(&few, "t1-qd128"), None);
    assert!(skipped(&wish(Procedure::Curve, &[REMOTE]), "q16-512k").unwrap().contains("131072 bytes"));
}

#[test]
fn queue_maps_and_batches_are_variants_of_a_connection() {
    let plan = wish(Procedure::Mixed, &[REMOTE]).plan().unwrap();
    let maps: Vec<_> = plan.columns.iter().map(|column| column.options.as_ref().unwrap()).collect();
    let maps: Vec<_> =
        maps.iter().map(|options| (options.nr_io_queues, options.nr_write_queues, options.bulk_bytes)).collect();
    assert_eq!(maps, [(1, 0, None), (1, 0, Some(512 << 10)), (1, 1, Some(512 << 10))]);
    let beside = plan.phases.iter().find(|phase| phase.id == "beside").unwrap();
    // The writer's blocks are more than this target takes.
    assert!(beside.skipped.is_some());
    let local = wish(Procedure::Mixed, &["mem:1Gi"]).plan().unwrap();
    assert_eq!(local.columns.len(), 1);
    assert_eq!(local.phases[2].jobs.iter().map(|job| job.threads).collect::<Vec<_>>(), [16, 1]);
    let curve = wish(Procedure::Curve, &[REMOTE]).plan().unwrap();
    assert_eq!(
        curve.columns.iter().map(|column| column.column.variant.as_deref().unwrap()).collect::<Vec<_>>(),
        ["sent at once", "batched"]
    );
    assert!(curve.phases.iter().any(|phase| phase.depth_total == 128));
}

#[test]
fn hosts_run_alone_and_together() {
    let plan = wish(Procedure::Fairness, &[REMOTE, REMOTE, REMOTE]).plan().unwrap();
    assert_eq!(plan.columns.iter().map(|column| column.column.id.as_str()).collect::<Vec<_>>(), ["A", "B", "C"]);
    assert_eq!(plan.phases.iter().filter(|phase| phase.together).count(), 2);
    let few = wish(Procedure::Fairness, &[REMOTE]).plan().unwrap_err().to_string();
    assert!(few.contains("at least two"), "{few}");
}

#[test]
fn protocols_that_only_other_programs_speak_are_measured_by_them() {
    let devices = [REMOTE, "mem:1Gi", "iscsi://127.0.0.1/iqn.2014-08.org.example:a/1", "nbd://127.0.0.1/a"];
    let plan = Wish { engines: vec![EngineName::Fio], ..wish(Procedure::Compare, &devices) }.plan().unwrap();
    assert!(plan.columns.iter().all(|column| column.column.engine == EngineName::Fio));
    assert_eq!(
        plan.columns.iter().map(|column| column.column.base).collect::<Vec<_>>(),
        [Some(1), None, Some(1), Some(1)]
    );
    // They do not tell their sizes: those of the others count.
    assert!(plan.phases.iter().all(|phase| phase.jobs[0].size_bytes == Some(1 << 30)));
    let alone = Wish { engines: vec![EngineName::Fio], ..wish(Procedure::Cdm, &["nbd://127.0.0.1/a"]) };
    let refused = alone.plan().unwrap_err().to_string();
    assert!(refused.contains("--size"), "{refused}");
    assert!(Wish { size_bytes: Some(64 << 20), ..alone }.plan().is_ok());
    let both =
        Wish { engines: vec![EngineName::Ebof, EngineName::Fio], ..wish(Procedure::Cdm, &["mem:1Gi"]) }.plan().unwrap();
    assert_eq!(both.columns.iter().map(|column| column.column.base).collect::<Vec<_>>(), [None, Some(0)]);
}

#[test]
fn names_are_short_and_tell_devices_apart() {
    assert_eq!(tail("/dev/nvme0n1"), "nvme0n1");
    assert_eq!(tail("iscsi://127.0.0.1/iqn.2014-08.org.example:a/1"), "a/1");
    assert_eq!(tail("nbd://127.0.0.1:99/export"), "export");
    assert_eq!(tail("nbd://127.0.0.1:99/"), "127.0.0.1:99");
    assert_eq!(tail(&format!("/tmp/{}", "x".repeat(100))).len(), 24);
}
