//! The JSON format is stable: a changed snapshot breaks programs that parse it.

use super::*;

const START_UNIX_MS: u64 = 1_795_000_000_000;

/// What an object has done: commands of 4 KiB, each of which took as long.
#[derive(Clone, Debug, Default)]
struct Load(ObjectCounters);

impl Load {
    fn reads(&mut self, commands: u64, latency_us: u64) {
        self.commands(0, commands, 4096, latency_us);
    }

    fn commands(&mut self, kind: usize, commands: u64, bytes: u64, latency_us: u64) {
        let kind = &mut self.0.kinds[kind];
        kind.commands += commands;
        kind.bytes += commands * bytes;
        kind.latency_sum_us += commands * latency_us;
        kind.latency.0[latency::bucket(latency_us)] += commands;
    }
}

fn record(history: &mut History, second: u64, objects: &[(&str, &Load)]) {
    let objects = objects.iter().map(|(name, load)| (name.parse().unwrap(), &load.0));
    history.record(second * 1000, START_UNIX_MS + second * 1000, objects);
}

fn samples(history: &History, object: &str, resolution: Resolution) -> Vec<Sample> {
    let object = object.parse().unwrap();
    let query = Query { object, resolution, after_unix_ms: 0, until_unix_ms: u64::MAX };
    history.samples(&query).unwrap().samples
}

fn rates(history: &History, object: &str, resolution: Resolution) -> Vec<f32> {
    samples(history, object, resolution).iter().map(|sample| sample.all.commands_per_s).collect()
}

/// The latency that stands for this one.
fn near(us: u64) -> Option<u32> {
    u32::try_from(latency::middle_us(latency::bucket(us))).ok()
}

#[test]
fn samples_keep_their_json_keys() {
    let mut history = History::new(SERIES_MAX);
    let (mut one, mut other) = (Load::default(), Load::default());
    one.reads(990, 100);
    one.commands(1, 10, 65536, 5000);
    one.0.kinds[1].errors = 2;
    other.reads(385, 100);
    other.0.waiting = 3;
    record(&mut history, 1, &[("function:d3/vf1", &one), ("function:d3/vf2", &other), ("drive:d3", &one)]);
    let object = "function:d3/vf1".parse().unwrap();
    let query = Query { object, resolution: Resolution::Second, after_unix_ms: 0, until_unix_ms: u64::MAX };
    let answer = history.samples(&query).unwrap();
    let json = serde_json::to_string_pretty(&answer).unwrap();
    insta::assert_snapshot!("samples", json);
    assert_eq!(serde_json::from_str::<Samples>(&json).unwrap(), answer);
    let overview = history.overview();
    let json = serde_json::to_string_pretty(&overview).unwrap();
    insta::assert_snapshot!("overview", json);
    assert_eq!(serde_json::from_str::<Overview>(&json).unwrap(), overview);
}

#[test]
fn each_second_is_what_was_counted_in_it() {
    let mut history = History::new(SERIES_MAX);
    let mut load = Load::default();
    for (second, commands) in [(1, 100), (2, 0), (3, 50)] {
        load.reads(commands, 1000 * second);
        record(&mut history, second, &[("port:front", &load)]);
    }
    let seconds = samples(&history, "port:front", Resolution::Second);
    let seen: Vec<_> =
        seconds.iter().map(|s| (s.time_unix_ms - START_UNIX_MS, s.read.commands_per_s, s.read.bytes_per_s)).collect();
    assert_eq!(seen, [(1000, 100.0, 409_600.0), (2000, 0.0, 0.0), (3000, 50.0, 204_800.0)]);
    let latencies: Vec<_> = seconds.iter().map(|s| (s.all.mean_us, s.all.p50_us, s.write.p50_us)).collect();
    assert_eq!(latencies, [(Some(1000.0), near(1000), None), (None, None, None), (Some(3000.0), near(3000), None)]);
    let object: SeriesName = "port:front".parse().unwrap();
    let between = Query {
        object,
        resolution: Resolution::Second,
        after_unix_ms: START_UNIX_MS + 1000,
        until_unix_ms: START_UNIX_MS + 2000,
    };
    assert_eq!(history.samples(&between).unwrap().samples, seconds[1..2]);
    let unknown = Query { object: "port:back".parse().unwrap(), ..between };
    assert!(history.samples(&unknown).unwrap_err().to_string().starts_with("port:back has had no I/O commands"));
}

#[test]
fn a_sample_that_was_told_keeps_its_time() {
    let mut history = History::new(SERIES_MAX);
    let mut load = Load::default();
    let mut told = None;
    // Records are made when there is time for it: nearly a second apart, or more than that.
    for now_ms in [1_000, 2_120, 3_370, 3_960, 5_499] {
        load.reads(100, 100);
        let objects = [("drive:d0".parse().unwrap(), &load.0)];
        history.record(now_ms, START_UNIX_MS + now_ms, objects);
        let time = samples(&history, "drive:d0", Resolution::Second)[0].time_unix_ms;
        assert_eq!(*told.get_or_insert(time), time, "{now_ms}");
    }
}

#[test]
fn longer_intervals_hold_what_all_their_seconds_did() {
    let mut history = History::new(SERIES_MAX);
    let mut load = Load::default();
    for second in 1..=125 {
        if second <= 60 {
            load.reads(if second % 10 == 0 { 1000 } else { 0 }, 200);
            load.reads(10, 50_000);
        }
        record(&mut history, second, &[("target", &load)]);
    }
    let tens = samples(&history, "target", Resolution::TenSeconds);
    assert_eq!(tens.len(), 12);
    assert_eq!(tens[0].all.commands_per_s, 110.0);
    assert_eq!(tens[6], Sample { time_unix_ms: START_UNIX_MS + 70_000, ..Sample::default() });
    assert_eq!(rates(&history, "target", Resolution::Minute), [110.0, 0.0]);
    let depth = tens[0].all.depth();
    assert!((depth - (100.0 * 0.0002 + 10.0 * 0.05)).abs() < 0.001, "{depth}");
    let minute = samples(&history, "target", Resolution::Minute)[0].all;
    assert_eq!((minute.p50_us, minute.p99_us), (near(200), near(50_000)));
}

#[test]
fn rings_reach_back_as_far_as_they_say() {
    let mut history = History::new(SERIES_MAX);
    let mut load = Load::default();
    for second in 1..=90_000 {
        load.reads(1, 100);
        record(&mut history, second, &[("target", &load)]);
    }
    for resolution in Resolution::ALL {
        let rates = rates(&history, "target", resolution);
        assert_eq!(rates.len(), resolution.samples_max(), "{resolution:?}");
        assert!(rates.iter().all(|rate| *rate == 1.0), "{resolution:?}");
    }
    // An hour later nobody has done anything: what is too old is gone, and idle time takes no room.
    (90_001..=90_600).for_each(|second| record(&mut history, second, &[("target", &load)]));
    assert!(rates(&history, "target", Resolution::Second).iter().all(|rate| *rate == 0.0));
}

#[test]
fn a_late_record_is_spread_over_the_seconds_it_covers() {
    let mut history = History::new(SERIES_MAX);
    let mut load = Load::default();
    record(&mut history, 1, &[("target", &load)]);
    load.reads(400, 100);
    // Too early for the second, then too late.
    history.record(1_400, START_UNIX_MS + 1_400, [(SeriesName::target(), &load.0)]);
    record(&mut history, 5, &[("target", &load)]);
    assert_eq!(rates(&history, "target", Resolution::Second), [100.0; 4]);
}

#[test]
fn counters_that_go_back_or_are_gone_are_no_burst() {
    let mut history = History::new(SERIES_MAX);
    let (mut load, mut anew) = (Load::default(), Load::default());
    load.reads(1000, 100);
    record(&mut history, 1, &[("port:front", &load)]);
    anew.reads(300, 100);
    record(&mut history, 2, &[("port:front", &anew)]);
    anew.reads(30, 100);
    record(&mut history, 3, &[("port:front", &anew)]);
    record(&mut history, 4, &[]);
    anew.reads(3, 100);
    record(&mut history, 5, &[("port:front", &anew)]);
    assert_eq!(rates(&history, "port:front", Resolution::Second), [1000.0, 0.0, 30.0, 0.0, 3.0]);
}

#[test]
fn hosts_do_not_drive_out_others_and_idle_ones_make_room() {
    let mut history = History::new(8);
    let (mut busy, mut idle) = (Load::default(), Load::default());
    idle.reads(5, 100);
    busy.reads(5, 100);
    let drives: Vec<String> = (0..6).map(|at| format!("drive:d{at}")).collect();
    let hosts: Vec<String> = (0..100).map(|at| format!("host:nqn.2014-08.org.example:{at}")).collect();
    let all: Vec<(&str, &Load)> = drives.iter().chain(&hosts).map(|name| (name.as_str(), &busy)).collect();
    record(&mut history, 1, &all);
    let overview = history.overview();
    assert_eq!((overview.objects.len(), overview.left_out, overview.dropped), (8, 98, 0));
    // For those without room nothing changes while those with room are busy.
    for second in 2..=70 {
        busy.reads(1, 100);
        let shown = [("drive:d0", &busy), ("drive:d1", &idle), ("drive:new", &busy)];
        record(&mut history, second, &shown);
    }
    let objects: Vec<String> = history.overview().objects.iter().map(|object| object.object.to_string()).collect();
    assert!(objects.contains(&"drive:d0".into()) && objects.contains(&"drive:new".into()), "{objects:?}");
    assert_eq!((objects.len(), history.overview().dropped), (8, 1));
    // What it did before there was room is not shown as one second.
    let rates = rates(&history, "drive:new", Resolution::Second);
    assert!(rates.iter().all(|rate| *rate <= 1.0), "{rates:?}");
}

#[test]
fn an_idle_object_that_made_room_does_not_come_back() {
    let mut history = History::new(1);
    let (mut busy, mut idle) = (Load::default(), Load::default());
    idle.reads(5, 100);
    record(&mut history, 1, &[("drive:idle", &idle)]);
    for second in 2..200 {
        busy.reads(1, 100);
        record(&mut history, second, &[("drive:idle", &idle), ("drive:busy", &busy)]);
    }
    assert_eq!((history.overview().dropped, history.overview().left_out), (1, 0));
    history.record_idle(200_000, START_UNIX_MS + 200_000);
    record(&mut history, 201, &[("drive:idle", &idle)]);
    assert_eq!((history.overview().dropped, history.overview().left_out), (1, 0));
    idle.reads(7, 100);
    record(&mut history, 202, &[("drive:idle", &idle)]);
    assert_eq!((history.overview().dropped, history.overview().left_out), (1, 1));
}

#[test]
fn shares_are_those_of_functions_of_one_drive() {
    let mut history = History::new(SERIES_MAX);
    let (mut one, mut three) = (Load::default(), Load::default());
    one.reads(100, 100);
    three.reads(300, 100);
    record(&mut history, 1, &[("function:d1/vf1", &one), ("function:d1/vf2", &three), ("function:d2/vf1", &one)]);
    let shares: Vec<_> = history.overview().objects.iter().map(|object| object.share).collect();
    assert_eq!(shares, [Some(0.25), Some(0.75), Some(1.0)]);
    record(&mut history, 2, &[]);
    assert!(history.overview().objects.iter().all(|object| object.share.is_none()));
}
