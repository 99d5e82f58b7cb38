//! What an attach daemon counts of what its devices do.

use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use ebof_attach::stats::{Counted, Stats};
use ebof_attach::{Kind, connect_in, open_in};
use ebof_manage::history::ObjectCounters;

use crate::front::Aligned;
use crate::line::{Line, direct, eventually};

fn sum(counted: &[Counted]) -> ObjectCounters {
    let mut sum = ObjectCounters::default();
    for counters in counted.iter().map(Counted::counters) {
        sum.kinds.iter_mut().zip(&counters.kinds).for_each(|(sum, kind)| sum.add(kind));
    }
    sum
}

fn in_flight(stats: &Stats) -> u64 {
    stats.queues.iter().map(|queue| queue.in_flight).sum()
}

pub(crate) fn what_devices_do_is_counted(kind: Kind) {
    let mut line = Line::new(kind, &["mem:16Mi", "mem:16Mi"]);
    let request = line.request_with(|options| options.ctrl_loss_tmo = Some(-1));
    let attached = connect_in(&line.states, &request).unwrap_or_else(|error| panic!("{error}"));
    let mut client = open_in(&line.states, &attached.name).unwrap();
    client.limit(Some(Duration::from_secs(10))).unwrap();
    let second = direct(attached.devices[1].path.as_deref().unwrap());
    let before = client.stats().unwrap();
    let mut block = Aligned::new(&[1; 4096]);
    for at in 0..20 {
        second.write_all_at(block.bytes(), at * 4096).unwrap();
    }
    (0..10).for_each(|at| second.read_exact_at(block.bytes_mut(), at * 4096).unwrap());
    let after = client.stats().unwrap();
    // The kernel reads a device itself when it appears, and may do so between.
    let of_second = |stats: &Stats| {
        let found = stats.namespaces.iter().find(|namespace| namespace.id == 2);
        found.map(Counted::counters).unwrap_or_default()
    };
    let (then, now) = (of_second(&before), of_second(&after));
    let [read, write, _] = [0, 1, 2].map(|kind| now.kinds[kind].bytes - then.kinds[kind].bytes);
    assert!(read >= 10 * 4096 && write == 20 * 4096, "{read} {write}");
    assert_eq!(now.kinds[1].commands - then.kinds[1].commands, 20);
    assert_eq!(now.kinds[1].latency.count(), now.kinds[1].commands);
    assert!(now.kinds[1].latency_sum_us > 0);
    // What is counted by queue and by namespace is the same.
    let quiet = eventually(|| Some(client.stats().unwrap()).filter(|stats| in_flight(stats) == 0)).unwrap();
    assert_eq!(sum(&quiet.queues), sum(&quiet.namespaces));
    assert!(!quiet.queues.is_empty() && quiet.queues.iter().all(|queue| queue.id > 0), "{:?}", quiet.queues);
    // Requests that wait for the target are under way.
    line.stop();
    let writer = std::thread::spawn(move || second.write_all_at(block.bytes(), 0));
    let waiting = eventually(|| (in_flight(&client.stats().unwrap()) == 1).then_some(()));
    assert!(waiting.is_some(), "{:?}", client.stats());
    assert!(eventually(|| (client.status().unwrap().state != "live").then_some(())).is_some());
    line.start();
    writer.join().unwrap().unwrap();
    let stats = client.stats().unwrap();
    assert_eq!(in_flight(&stats), 0);
    // Whether the write had been sent before the loss, and is repeated, depends on the moment.
    assert!(stats.troubles.get("lost").is_some_and(|count| *count > 0), "{:?}", stats.troubles);
    assert!(!stats.troubles.contains_key("data-digest"), "{:?}", stats.troubles);
}
