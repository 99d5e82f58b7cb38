//! The tables of what objects do, as snapshots.

use ebof_manage::history::live::LIVE_SCHEMA;
use ebof_manage::history::{HISTORY_SCHEMA, ObjectSample};

use super::*;

const TIME: u64 = 1_795_000_001_000;

fn sample(scale: u16) -> Sample {
    let scale = f32::from(scale);
    let flow = |part: f32| Flow {
        commands_per_s: 1000.0 * scale * part,
        bytes_per_s: 4_096_000.0 * scale * part,
        errors_per_s: 0.0,
        mean_us: Some(150.0),
        p50_us: Some(120),
        p99_us: Some(4_850),
        p999_us: Some(1_200_000),
    };
    let (all, read, write) = (flow(1.0), flow(0.75), flow(0.25));
    Sample { time_unix_ms: TIME, all, read, write, other: Flow::default(), waiting: 3 }
}

fn object(name: &str, scale: u16) -> ObjectSample {
    ObjectSample { object: name.parse().unwrap(), share: Some(f32::from(scale) / 4.0), sample: sample(scale) }
}

fn shown(measured: Measurement, kind: Kind, sort: Sort) -> ShownTop {
    ShownTop { measured, kind, sort, rows_max: 10, columns_max: usize::MAX, remarks: Vec::new() }
}

fn overview(sort: Sort) -> ShownTop {
    let objects = vec![object("target", 4), object("function:d3/vf1", 1), object("function:d3/vf2", 3)];
    let overview = Overview {
        history_schema: HISTORY_SCHEMA,
        time_unix_ms: TIME,
        series_max: 256,
        dropped: 0,
        left_out: 1,
        objects,
    };
    shown(Measurement::Overview(overview), Kind::Functions, sort)
}

fn row(object: &str, sample: Sample, in_flight: Option<u64>, labels: &[(&str, &str)]) -> LiveRow {
    let labels = labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    LiveRow { object: object.parse().unwrap(), share: Some(0.25), in_flight, labels, sample }
}

fn live(rows: Vec<LiveRow>) -> LiveTable {
    LiveTable { live_schema: LIVE_SCHEMA, time_unix_ms: TIME, rows_max: 256, left_out: 0, rows }
}

/// A host with an attached namespace whose target is away, and one of the kernel's host.
fn host(kind: Kind, sort: Sort) -> ShownTop {
    let mut of_kernel = sample(2);
    for flow in [&mut of_kernel.all, &mut of_kernel.read, &mut of_kernel.write] {
        (flow.p50_us, flow.p99_us, flow.p999_us) = (None, None, None);
    }
    let nqn = ("subsystem", "nqn.2014-08.org.example:d3:vf2\x1b[31m");
    let device = ("controller", "nvme0");
    let of_path = |state, address, access| {
        [device, ("state", state), ("address", address), ("access", access), ("failovers", "12"), ("fenced_ms", "1503")]
    };
    let rows = vec![
        row(
            "controller:nvme0",
            Sample::default(),
            Some(32),
            &[("state", "connecting"), ("address", "tcp://a:1"), nqn, device],
        ),
        row("namespace:nvme0n1", Sample::default(), Some(32), &[("state", "connecting"), ("path", "/dev/loop0"), nqn]),
        row("namespace:nvme1n1", of_kernel, Some(0), &[("state", "live"), ("path", "/dev/nvme1n1")]),
        row(
            "path:nvme0c0",
            Sample::default(),
            Some(32),
            &of_path("connecting", "tcp://192.0.2.1:4420", "inaccessible"),
        ),
        row("path:nvme0c1", sample(1), Some(4), &of_path("live", "tcp://192.0.2.2:4420", "optimized")),
        row("queue:nvme0/q1", Sample::default(), Some(32), &[("state", "connecting")]),
    ];
    shown(Measurement::Host(live(rows)), kind, sort)
}

fn names(shown: &ShownTop) -> Vec<&str> {
    shown.sorted().iter().map(|row| row.name).collect()
}

#[test]
fn objects_are_sorted() {
    insta::assert_snapshot!("top", overview(Sort::Iops).text(false));
    assert_eq!(names(&overview(Sort::Bandwidth)), ["d3/vf2", "d3/vf1"]);
    assert_eq!(names(&overview(Sort::Depth)), ["d3/vf2", "d3/vf1"]);
    assert_eq!(names(&overview(Sort::Name)), ["d3/vf1", "d3/vf2"]);
    let one = ShownTop { rows_max: 1, ..overview(Sort::Iops) };
    let json = one.json(false).to_line().unwrap();
    assert!(!one.text(false).contains("vf1") && json.contains("vf1"));
    assert!(json.find("d3/vf2") < json.find("d3/vf1") && !json.contains("\"target\""), "{json}");
    let whole = ShownTop { kind: Kind::Target, ..overview(Sort::Iops) };
    assert!(whole.text(false).ends_with(" all\n"), "{}", whole.text(false));
}

#[test]
fn queues_have_ports_and_hosts() {
    let labels = [("host", "nqn.2014-08.org.example:host"), ("port", "fabric0"), ("controller", "1"), ("queue", "2")];
    let rows =
        vec![row("queue:d3/vf2/c1/q2", sample(1), None, &labels), row("queue:d3/vf2/c1/q3", sample(2), None, &labels)];
    let shown = shown(Measurement::Queues(live(rows)), Kind::Queues, Sort::Iops);
    insta::assert_snapshot!("queues", shown.text(false));
    insta::assert_snapshot!("queues_json", shown.json(false).to_text().unwrap());
}

// @test output.path-metrics
#[test]
fn a_host_has_its_devices_and_the_kernels() {
    insta::assert_snapshot!("namespaces", host(Kind::Namespaces, Sort::Iops).text(false));
    insta::assert_snapshot!("controllers", host(Kind::Controllers, Sort::Iops).text(false));
    assert_eq!(names(&host(Kind::Namespaces, Sort::Depth)), ["nvme0n1", "nvme1n1"], "what waits is under way");
    assert_eq!(
        names(&host(Kind::Namespaces, Sort::Latency)),
        ["nvme1n1", "nvme0n1"],
        "by the mean without percentiles"
    );
    assert_eq!(names(&host(Kind::Queues, Sort::Iops)), ["nvme0/q1"]);
    insta::assert_snapshot!("paths", host(Kind::Paths, Sort::Iops).text(false));
    assert_eq!(names(&host(Kind::Paths, Sort::Name)), ["nvme0", "nvme0c0", "nvme0c1"]);
    let json = host(Kind::Paths, Sort::Iops).json(false).to_line().unwrap();
    assert!(json.find("path:nvme0c1") < json.find("path:nvme0c0") && json.contains("controller:nvme0"), "{json}");
    let told = ShownTop { remarks: vec!["nvme2: \x1b]0;x".to_owned()], ..host(Kind::Queues, Sort::Iops) };
    assert!(!told.text(false).contains('\x1b') && told.text(false).contains("nvme2: "), "{}", told.text(false));
    assert!(told.json(false).to_line().unwrap().starts_with(r#"{"schema":"ebof/host-top/1","live":{"#));
    let nothing = LiveTable { time_unix_ms: 0, ..live(Vec::new()) };
    let nothing = shown(Measurement::Host(nothing), Kind::Namespaces, Sort::Iops);
    assert!(nothing.text(false).starts_with("nothing measured yet  this host:  0 commands/s"));
}

#[test]
fn names_can_be_read_on_narrow_terminals() {
    let lines = |shown: ShownTop, columns_max| {
        let text = ShownTop { columns_max, ..shown }.text(false);
        text.lines().skip(1).map(|line| line.chars().take(columns_max).collect::<String>()).collect::<Vec<_>>()
    };
    for columns_max in [80, 120] {
        let of_target = lines(overview(Sort::Iops), columns_max);
        assert!(of_target.last().unwrap().contains("d3/vf1"), "{of_target:#?}");
        let of_host = lines(host(Kind::Namespaces, Sort::Iops), columns_max);
        assert!(of_host.last().unwrap().contains("nvme0n1"), "{of_host:#?}");
        assert!(of_host[0].contains("P99") && of_host[0].contains("NOW"), "{of_host:#?}");
    }
    assert!(!lines(overview(Sort::Iops), 3).is_empty());
}
