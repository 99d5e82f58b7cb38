//! `--job KEY=VALUE,...`: a group of threads, like a section of fio's job file; and values in fio's
//! syntax.

use ebof_bench::{Job, Rate};

use super::bytes;
use crate::failure::Failure;

/// Parses group number `index`; `outer` has the defaults.
pub(super) fn parse(text: &str, index: usize, outer: &Job) -> Result<Job, Failure> {
    let mut job = Job { name: format!("job{}", index + 1), ..outer.clone() };
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        // fio's switches need no value.
        let (key, value) = word.split_once('=').unwrap_or((word, "1"));
        set(&mut job, key.trim(), value.trim()).map_err(|why| {
            let known =
                "name rw bs iodepth numjobs rwmixread offset size rate rate_iops verify randseed cpus_allowed hipri";
            Failure::usage(
                format!("--job {text}: {word}: {why}"),
                format!("the keys are {known}; runtime and ramp time are for all"),
            )
        })?;
    }
    Ok(job)
}

fn set(job: &mut Job, key: &str, value: &str) -> Result<(), String> {
    match key {
        "name" => job.name = value.to_owned(),
        "rw" | "readwrite" => job.rw = value.parse().map_err(|error: ebof_bench::JobError| error.to_string())?,
        "bs" => job.block_bytes = u32::try_from(bytes(value)?).map_err(|_| "too large".to_owned())?,
        "iodepth" => job.depth = number(value)?,
        "numjobs" => job.threads = number(value)?,
        "rwmixread" => job.read_percent = number(value)?,
        "offset" => job.offset_bytes = bytes(value)?,
        "size" => job.size_bytes = Some(bytes(value)?),
        "rate" => job.rate = rate(&value.replace(':', ","))?,
        "rate_iops" | "rate-iops" => job.rate_iops = Some(number(value)?),
        "verify" => job.verify = switch(value)?,
        "randseed" => job.seed = number(value)?,
        "hipri" => job.hipri = switch(value)?,
        "cpus_allowed" | "cpus-allowed" => {
            job.processors = value.split(':').map(number).collect::<Result<_, _>>()?;
        }
        "runtime" | "ramp_time" | "ramp-time" | "time_based" => {
            return Err("all groups run for the same time".to_owned());
        }
        _ => return Err("this key is not known".to_owned()),
    }
    Ok(())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "want a number that is not too large".to_owned())
}

/// `100M` for reads and for writes, or `100M,50M`; an empty value is unlimited.
pub(super) fn rate(text: &str) -> Result<Rate, String> {
    let side = |text: &str| if text.is_empty() { Ok(None) } else { bytes(text).map(Some) };
    match text.split_once(',') {
        Some((read, write)) => Ok(Rate { read: side(read)?, write: side(write)? }),
        None => side(text).map(|rate| Rate { read: rate, write: rate }),
    }
}

/// fio's booleans.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err("want 0 or 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use ebof_bench::Mix;

    use super::*;

    #[test]
    fn a_group_overrides_only_its_own_options() {
        let outer = Job { depth: 7, ..Job::new(Mix::RandRead) };
        let readers = parse("name=readers,rw=randread,bs=4k,numjobs=16,iodepth=1", 0, &outer).unwrap();
        assert_eq!(
            (readers.name.as_str(), readers.rw, readers.threads, readers.depth),
            ("readers", Mix::RandRead, 16, 1)
        );
        let writer = parse("rw=write, bs=1M, rate=10M:5M, hipri, cpus_allowed=1:0", 1, &outer).unwrap();
        assert_eq!((writer.name.as_str(), writer.block_bytes, writer.depth, writer.hipri), ("job2", 1 << 20, 7, true));
        assert_eq!(writer.rate, Rate { read: Some(10 << 20), write: Some(5 << 20) });
        assert_eq!((writer.processors, writer.runtime), (vec![1, 0], outer.runtime));
        for wrong in ["rw=trim", "iodepth=70000", "what=ever", "runtime=3", "verify=yes", "bs=8G"] {
            let error = parse(wrong, 0, &outer).unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong}:")) && error.contains("the keys are"), "{error}");
        }
    }

    #[test]
    fn rates_are_written_as_in_fio() {
        assert_eq!(rate("1M").unwrap(), Rate { read: Some(1 << 20), write: Some(1 << 20) });
        assert_eq!(rate("1M,500K").unwrap(), Rate { read: Some(1 << 20), write: Some(500 << 10) });
        assert_eq!(rate(",500K").unwrap(), Rate { read: None, write: Some(500 << 10) });
        assert!(rate("fast").is_err());
    }
}
