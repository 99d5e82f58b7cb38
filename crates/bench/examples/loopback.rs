//! The raw limit of this machine's loopback beside 4 KiB random reads of a namespace:
//! `cargo run --release -p ebof-bench --example loopback [nvme+tcp://HOST:PORT/NQN/NSID] [SECONDS]`.
#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::ops::ControlFlow;
use std::time::Duration;

use ebof_bench::{Job, Mix, Source, raw, run};
use ebof_initiator::Options;
use ebof_nvme::Nsid;
use ebof_nvme::uri::Uri;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().map(|text| Uri::parse(&text)).transpose()?;
    let time = Duration::from_secs_f64(arguments.next().map_or(Ok(2.0), |text| text.parse())?);
    println!(
        "{:>6} {:>14} {:>14} {:>7} {:>9} {:>9} {:>9}",
        "depth", "raw/s", "IOPS", "ratio", "mean us", "p99 us", "CPU us"
    );
    for depth in raw::DEPTHS {
        let limit = raw::read_4k(depth, time, [0, 1])?;
        let Some(uri) = &uri else {
            println!("{depth:>6} {:>14.0}", limit.requests_per_s);
            continue;
        };
        let source = Source::Fabric(Box::new(Options::from_uri(uri)), uri.nsid.unwrap_or(Nsid(1)));
        let job = Job {
            depth,
            runtime: Some(time),
            ramp: Duration::from_millis(200),
            processors: vec![1],
            ..Job::new(Mix::RandRead)
        };
        let report = run(&source, &job, |_| ControlFlow::Continue(()))?;
        if let Some(error) = report.first_error {
            return Err(error.into());
        }
        println!(
            "{depth:>6} {:>14.0} {:>14.0} {:>7.2} {:>9.1} {:>9.1} {:>9.2}",
            limit.requests_per_s,
            report.total.iops,
            report.total.iops / limit.requests_per_s,
            report.total.latency.mean_us,
            report.total.latency.percentile_us(99.0).unwrap_or_default(),
            report.cpu_us_per_operation
        );
    }
    Ok(())
}
