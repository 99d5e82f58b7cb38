//! The hosts: their command lines, and the parsing of their output.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::load::{Host, Load, Sock, Subject, Target};
use super::parse::{self, HostResult};
use super::resources::Resources;
use super::targets::{IQN, NQN, words};

/// The host NQN of SPDK's host.
const HOSTNQN: &str = "nqn.2014-08.org.example:bench-host";
/// Buffers of SPDK's host, in MiB.
const SPDK_MIB: u64 = 512;

/// Where a host finds its drive, and runs.
pub(super) struct Place<'a> {
    /// The target's.
    pub(super) port: u16,
    /// The block device, if it is connected as one.
    pub(super) device: Option<&'a Path>,
    /// The first of the host's processors, where it is pinned.
    pub(super) processor: usize,
}

/// The command line of a subject's host, which finds its drive at `place`.
///
/// # Errors
/// The program is not installed.
pub(super) fn command(
    subject: &Subject,
    &Place { port, device, processor }: &Place<'_>,
    seconds: f64,
    ramp: f64,
    resources: &Resources,
) -> Result<Vec<OsString>> {
    let (load, whole) = (&subject.load, seconds.ceil());
    Ok(match subject.host {
        Host::Raw(processors) | Host::RawMemory(processors) => {
            let list = processors.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let mut command = ebof(load, seconds, ramp, resources);
            command.extend(words(&format!("--raw --cpus-allowed {list}")));
            if let Host::RawMemory(_) = subject.host {
                command.extend(words(&format!("--size {}M", load.drive_mib)));
            }
            command
        }
        Host::Ebof | Host::EbofOn(_) => {
            let mut command = ebof(load, seconds, ramp, resources);
            command.push(uri(port));
            if load.digests {
                command.extend(words("--hdr-digest --data-digest"));
            }
            command
        }
        Host::EbofOneThread => {
            let mut command = vec![resources.techniques.clone().context("it was not built")?.into_os_string()];
            command.extend(words("connections"));
            command.push(subsystem_uri(port));
            command.extend(words(&format!(
                "json=1 n={} depth={} bytes={} write={} ms={:.0} ramp={:.0}",
                load.connections,
                load.depth,
                load.block_bytes,
                u8::from(load.rw.writes()),
                seconds * 1000.0,
                ramp * 1000.0,
            )));
            command
        }
        Host::Hold(controllers) => {
            let mut command = ebof(load, 3600.0, 0.0, resources);
            command.extend(words(&format!("--hold {controllers}")));
            command.push(uri(port));
            command
        }
        Host::Spdk(sock) => spdk((sock, processor), load, port, whole, resources)?,
        Host::FioNbd => {
            let mut command = fio("nbd", load, whole, ramp);
            command.extend(words(&format!("--uri=nbd://127.0.0.1:{port} --size={}M", load.drive_mib)));
            command
        }
        Host::FioFile(engine) => {
            let mut command = fio(engine, load, whole, ramp);
            command.push("--direct=1".into());
            let mut name = OsString::from("--filename=");
            name.push(&resources.file);
            command.push(name);
            command
        }
        Host::FioDevice => {
            let mut command = fio("libaio", load, whole, ramp);
            command.push("--direct=1".into());
            let mut name = OsString::from("--filename=");
            name.push(device.context("it is not connected")?);
            command.push(name);
            command
        }
        Host::Iscsi => words(&format!(
            "iscsi-perf -m {} -b {} {} -t {} iscsi://127.0.0.1:{port}/{IQN}/1",
            load.depth,
            load.block_bytes / 512,
            if load.rw.is_random() { "-r" } else { "" },
            whole.max(2.0),
        )),
    })
}

/// Parses the output of a host.
///
/// # Errors
/// It has no results.
pub(crate) fn parse(host: Host, printed: &str) -> Result<HostResult> {
    match host {
        Host::Raw(_) | Host::RawMemory(_) => parse::raw(printed),
        Host::Ebof | Host::EbofOn(_) => parse::ebof(printed),
        Host::EbofOneThread => parse::techniques(printed),
        Host::Spdk(_) => parse::spdk(printed),
        Host::FioNbd | Host::FioFile(_) | Host::FioDevice => parse::fio(printed),
        Host::Iscsi => parse::iscsi(printed),
        Host::Hold(_) => Ok(HostResult { iops: 0.0, mean_us: None }),
    }
    .with_context(|| format!("{host:?}"))
}

/// What is missing for measuring a subject; `None` if nothing is.
pub(crate) fn missing(subject: &Subject, resources: &Resources) -> Option<String> {
    let mut programs: Vec<&str> = Vec::new();
    match subject.target {
        Target::Nbdkit => programs.push("nbdkit"),
        Target::QemuNbd => programs.push("qemu-nbd"),
        Target::Tgt => programs.extend(["tgtd", "tgtadm"]),
        Target::None | Target::Ebof { .. } | Target::Spdk { .. } => {}
    }
    match subject.host {
        Host::FioNbd | Host::FioFile(_) | Host::FioDevice => programs.push("fio"),
        Host::Iscsi => programs.push("iscsi-perf"),
        Host::Raw(_) | Host::RawMemory(_) | Host::Ebof | Host::EbofOn(_) | Host::EbofOneThread => {}
        Host::Hold(_) | Host::Spdk(_) => {}
    }
    if let (Host::FioDevice, Some(what)) = (subject.host, super::device::missing()) {
        return Some(what.to_owned());
    }
    let spdk = matches!(subject.target, Target::Spdk { .. }) || matches!(subject.host, Host::Spdk(_));
    if spdk && let Err(error) = resources.spdk("nvmf_tgt").and(resources.spdk("spdk_nvme_perf")) {
        return Some(error.to_string());
    }
    let absent = programs.into_iter().find(|program| !Resources::finds(program))?;
    Some(format!("{absent} is not installed"))
}

/// The memory in MiB that a subject's programs could have in huge pages; `None` if they ask for
/// none.
pub(crate) fn huge_mib(subject: &Subject) -> Option<u64> {
    let target = matches!(subject.target, Target::Spdk { .. }).then_some(subject.load.drive_mib + SPDK_MIB);
    let host = matches!(subject.host, Host::Spdk(_)).then_some(SPDK_MIB);
    Some(target.unwrap_or(0) + host.unwrap_or(0)).filter(|&mib| mib > 0)
}

/// The command line that writes a drive from its beginning, without a ramp.
pub(crate) fn fill(load: &Load, port: u16, seconds: f64, resources: &Resources) -> Vec<OsString> {
    let mut command = ebof(load, seconds, 0.0, resources);
    command.push(uri(port));
    command
}

/// The command line that runs as many operations as the drive has blocks.
pub(crate) fn once(load: &Load, port: u16, resources: &Resources) -> Vec<OsString> {
    fill(load, port, 0.0, resources)
}

fn uri(port: u16) -> OsString {
    format!("nvme+tcp://127.0.0.1:{port}/{NQN}/1").into()
}

/// The same without a namespace.
pub(super) fn subsystem_uri(port: u16) -> OsString {
    format!("nvme+tcp://127.0.0.1:{port}/{NQN}").into()
}

fn ebof(load: &Load, seconds: f64, ramp: f64, resources: &Resources) -> Vec<OsString> {
    let mut command = vec![resources.ebof.clone().into_os_string()];
    command.extend(words(&format!(
        "-o json bench --rw {} --bs {} --iodepth {} --numjobs {} --runtime {seconds} --ramp-time {ramp} --overwrite",
        load.rw.name(),
        load.block_bytes,
        load.depth,
        load.connections,
    )));
    command
}

fn spdk(
    (sock, processor): (Sock, usize),
    load: &Load,
    port: u16,
    seconds: f64,
    resources: &Resources,
) -> Result<Vec<OsString>> {
    let mut command = vec![resources.spdk("spdk_nvme_perf")?.into_os_string()];
    // It finds the file system of huge pages by itself.
    let memory = if resources.has_huge_pages() { "" } else { "--no-huge" };
    command.extend(words(&format!(
        "{memory} -s {SPDK_MIB} -c {:#x} -S {} -q {} -o {} -w {} -t {seconds} -a 1 -P {}",
        1_u64 << processor,
        sock.name(),
        load.depth,
        load.block_bytes,
        load.rw.name(),
        load.connections,
    )));
    if load.digests {
        command.extend(words("-H -I"));
    }
    command.push("-r".into());
    // By default it sends an empty host NQN, which targets may refuse.
    command
        .push(format!("trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:{port} subnqn:{NQN} hostnqn:{HOSTNQN}").into());
    Ok(command)
}

fn fio(engine: &str, load: &Load, seconds: f64, ramp: f64) -> Vec<OsString> {
    let mut command = words(&format!(
        "fio --name=bench --ioengine={engine} --rw={} --bs={} --iodepth={} --numjobs={} --runtime={seconds} --ramp_time={}ms \
         --time_based --norandommap --thread --output-format=json",
        load.rw.name(),
        load.block_bytes,
        load.depth,
        load.connections,
        ramp * 1000.0,
    ));
    if load.connections > 1 {
        command.push("--group_reporting".into());
    }
    command
}
