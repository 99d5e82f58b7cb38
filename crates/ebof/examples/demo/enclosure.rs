//! `--box`: the demonstration of `make run-box`, after pages 9 to 11 of "NVMe Over Fabric and
//! Direct Attached Host with NVMe SSD SR-IOV": a namespace is created, mapped to a virtual function
//! and given to a port, measured there, moved to another port and measured again.
//!
//! Owns the order of the steps and the table. Every step is a command that a user could type.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets};
use ebof::manage::enclosure::{Inventory, PortObject};
use ebof_bench::direct::{self, DirectLoad, Doorbells};
use ebof_cli::output::json::Object;
use serde::Serialize;
use serde_json::Value;

use super::stage::Stage;

const NQN: &str = "nqn.2014-08.org.example:ebof-box:d0";

/// The control socket, in the directory of the stage.
const CONTROL: &str = "--control control.sock";

/// The document's figures: throughput in MB/s, mean latency in microseconds.
const DOCUMENT: [(&str, f64, f64); 2] = [("directly attached", 2853.5, 345.03), ("over the fabric", 2588.9, 380.49)];

/// The result.
pub(super) struct Shown {
    measured: Vec<Measured>,
}

/// A load on the function at a port.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    /// Whether the load was in a virtual machine, by its kernel's driver.
    in_guest: bool,
    port: String,
    load: &'static str,
    mb_per_s: f64,
    iops: f64,
    mean_us: f64,
    p99_us: f64,
}

/// A load of the demonstration: its name, and the arguments of `ebof bench`.
const LOADS: [(&str, &str); 2] = [
    // What the document has in flight (throughput times latency) is 985 kB.
    ("128K reads, depth 8", "--rw read --bs 128K --iodepth 8"),
    ("4K random reads, depth 32", "--rw randread --bs 4K --iodepth 32"),
];

/// Plays the demonstration.
pub(super) fn play(stage: &mut Stage, quick: bool, guest: Option<&Path>) -> anyhow::Result<Shown> {
    stage.step("A box: a drive with five functions, two fabric ports, a direct port");
    std::fs::write(stage.path("box.toml"), configuration(quick)).context("box.toml")?;
    stage.shell("cat box.toml")?;
    stage.serve_configuration("box.toml", &["--control", "control.sock", "--create"])?;

    stage.step("A namespace is created (page 9), by the host of the drive's primary controller");
    let fabric0 = address(stage, "fabric0")?;
    let size = if quick { "64Mi" } else { "512Mi" };
    stage.shell(&format!("ebof create-ns nvme+tcp://{fabric0}/{NQN} -S {size}"))?;

    stage.step("It is mapped to a virtual function (page 10), which is given to a fabric port (page 11)");
    stage.shell(&format!("ebof target map d0/ns1 --vf d0/vf1 {CONTROL}"))?;
    stage.shell(&format!("ebof target assign d0/vf1 --port fabric0 {CONTROL}"))?;
    stage.shell(&format!("ebof discover -t tcp -a {}", with_service(&fabric0)))?;
    stage.shell(&format!("ebof target show {CONTROL}"))?;

    stage.step("Measured at the port fabric0");
    fill(stage, &fabric0)?;
    let mut measured = measure(stage, "fabric0", &fabric0, quick)?;

    stage.step("Moved to the other fabric port while the target runs, and measured there");
    stage.shell(&format!("ebof target move d0/vf1 --to fabric1 --yes {CONTROL}"))?;
    let fabric1 = address(stage, "fabric1")?;
    measured.extend(measure(stage, "fabric1", &fabric1, quick)?);
    if let Some(guest) = guest {
        let (_, service) = fabric1.rsplit_once(':').context("fabric1 has no port number")?;
        measured.extend(measure_in_guest(stage, guest, "fabric1", &format!("tcp {service} {NQN}:vf1"), quick)?);
    }

    stage.step("Moved to a direct port, and measured there by a client without a guest");
    stage.shell(&format!("ebof target move d0/vf1 --to {DIRECT} --yes {CONTROL}"))?;
    stage.shell(&format!("ebof target show {CONTROL}"))?;
    measured.extend(measure_direct(stage, quick)?);
    let device = r#"{"driver":"vfio-user-pci","socket":{"path":"direct1.sock","type":"unix"}}"#;
    stage.tell(&format!("a guest has it by: qemu-system-x86_64 ... -device '{device}'"));
    match guest {
        Some(guest) => measured.extend(measure_in_guest(stage, guest, DIRECT, "direct direct1.sock", quick)?),
        None => stage.tell("measured in one, too, with: make run-box GUEST=1 (it downloads QEMU and a guest, 400 MB)"),
    }

    stage.step("A weight, a limit, and the tasks so far");
    stage.shell(&format!("ebof target weight d0/vf1 4 {CONTROL}"))?;
    stage.shell(&format!("ebof target limit d0/vf1 --iops 20k {CONTROL}"))?;
    stage.shell(&format!("ebof target tasks {CONTROL}"))?;

    stage.step("Beside the document's table");
    let shown = Shown { measured };
    stage.tell(&shown.table());
    Ok(shown)
}

fn configuration(quick: bool) -> String {
    let size = if quick { "256Mi" } else { "2Gi" };
    let ports =
        ["fabric0", "fabric1"].map(|name| format!("[[ports]]\nname = \"{name}\"\nlisten = \"tcp://127.0.0.1:0\"\n"));
    let direct =
        format!("[[ports]]\nname = \"{DIRECT}\"\nlisten = \"vfio-user:direct1.sock\"\nprefer_busy_poll = true\n");
    format!(
        "{}{direct}[[drives]]\nname = \"d0\"\nbacking = \"d0.img\"\nsize = \"{size}\"\nfunctions = 5\n\
         [[subsystems]]\nnqn = \"{NQN}\"\ndrive = \"d0\"\nports = [\"fabric0\"]\nallow_any_host = true\n",
        ports.concat()
    )
}

/// The name of the direct port.
const DIRECT: &str = "direct1";

/// The loads, at the socket of the direct port.
fn measure_direct(stage: &Stage, quick: bool) -> anyhow::Result<Vec<Measured>> {
    let mut all = Vec::new();
    for (load, block_bytes, depth, random) in [(LOADS[0].0, 128 << 10, 8, false), (LOADS[1].0, 4096, 32, true)] {
        stage.check()?;
        let report = until_measured(stage, quick, |runtime, ramp| {
            let doorbells = Doorbells::Shadow;
            let wanted = DirectLoad { doorbells, write: false, block_bytes, depth, random, runtime, ramp };
            let report = direct::run(&stage.path("direct1.sock"), &wanted);
            let report = report.with_context(|| format!("{load} at {DIRECT}"))?;
            Ok((report.iops > 0.0, report))
        })?;
        let measured = Measured {
            in_guest: false,
            port: DIRECT.to_owned(),
            load,
            mb_per_s: report.bytes_per_s / 1e6,
            iops: report.iops,
            mean_us: report.mean_us,
            p99_us: report.p99_us,
        };
        stage.tell(&measured.line());
        all.push(measured);
    }
    Ok(all)
}

/// Measures, and for longer as long as nothing was done: a busy machine may not run one of both
/// sides at all for a while.
fn until_measured<T>(
    stage: &Stage,
    quick: bool,
    measure: impl Fn(Duration, Duration) -> anyhow::Result<(bool, T)>,
) -> anyhow::Result<T> {
    let (mut runtime_ms, ramp_ms) = if quick { (200, 50) } else { (4000, 1000) };
    loop {
        stage.check()?;
        let (is_something, measured) = measure(Duration::from_millis(runtime_ms), Duration::from_millis(ramp_ms))?;
        if is_something || runtime_ms >= LONGEST_MS {
            return Ok(measured);
        }
        stage.tell("  nothing was read in that time: once more, for longer");
        runtime_ms *= 4;
    }
}

/// What has done nothing in that time is not waited for any more, milliseconds.
const LONGEST_MS: u64 = 12_000;

/// Address and port number of a port.
fn address(stage: &Stage, name: &str) -> anyhow::Result<String> {
    let text = stage.quietly(&format!("ebof target show -o json {CONTROL}"))?;
    let document: Value = serde_json::from_str(&text).context("the output of `ebof target show`")?;
    let inventory: Inventory = serde_json::from_value(document["inventory"].clone()).context("the inventory")?;
    let port = inventory.port(name).map(|port: &PortObject| port.listen.clone());
    let listen = port.with_context(|| format!("there is no port {name}"))?;
    Ok(listen.trim_start_matches("tcp://").to_owned())
}

/// `127.0.0.1 -s 4420`
fn with_service(address: &str) -> String {
    address.rsplit_once(':').map_or(address.to_owned(), |(host, port)| format!("{host} -s {port}"))
}

/// Writes the namespace: reads of what was never written would not reach the drive.
fn fill(stage: &Stage, address: &str) -> anyhow::Result<()> {
    let uri = format!("nvme+tcp://{address}/{NQN}:vf1/1");
    stage.tell("writing the namespace once");
    stage.quietly(&format!("ebof bench {uri} --rw write --bs 128K --iodepth 32 --runtime 0 --overwrite")).map(drop)
}

fn measure(stage: &Stage, port: &str, address: &str, quick: bool) -> anyhow::Result<Vec<Measured>> {
    let mut all = Vec::new();
    for (load, arguments) in LOADS {
        stage.check()?;
        let line = format!("ebof bench nvme+tcp://{address}/{NQN}:vf1/1 {arguments}");
        let document = until_measured(stage, quick, |runtime, ramp| {
            let line = format!("{line} --runtime {} --ramp-time {}", runtime.as_secs_f64(), ramp.as_secs_f64());
            stage.tell(&format!("$ {line}"));
            let document: Value = serde_json::from_str(&stage.quietly(&format!("{line} -o json"))?)?;
            Ok((document["reports"][0]["total"]["operations"].as_u64() > Some(0), document))
        })?;
        let report = &document["reports"][0];
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        let latency = &report["total"]["latency"];
        let p99 = latency["percentiles"].as_array().into_iter().flatten().find(|pair| pair[0] == 99.0);
        let measured = Measured {
            in_guest: false,
            port: port.to_owned(),
            load,
            mb_per_s: number(&report["total"]["bytes_per_s"]) / 1e6,
            iops: number(&report["total"]["iops"]),
            mean_us: number(&latency["mean_us"]),
            p99_us: p99.map_or(0.0, |pair| number(&pair[1])),
        };
        stage.tell(&measured.line());
        all.push(measured);
    }
    Ok(all)
}

/// The loads in a virtual machine, which has the function as `place` says: by fio and its kernel.
fn measure_in_guest(
    stage: &Stage,
    guest: &Path,
    port: &str,
    place: &str,
    quick: bool,
) -> anyhow::Result<Vec<Measured>> {
    stage.check()?;
    stage.tell("in a virtual machine whose processor is emulated, by its kernel's driver and fio:");
    let line = format!("'{}' {place} {}", guest.display(), if quick { 1 } else { 4 });
    let printed = stage.quietly(&line)?;
    let mut reports = printed.lines();
    let mut all = Vec::new();
    for (load, _) in LOADS {
        let report = reports.next().with_context(|| format!("`{line}` reports no {load}"))?;
        let measured = of_fio(port, load, report).with_context(|| format!("`{line}`: {load}"))?;
        stage.tell(&measured.line());
        all.push(measured);
    }
    Ok(all)
}

/// What fio reports in JSON about reads.
fn of_fio(port: &str, load: &'static str, report: &str) -> anyhow::Result<Measured> {
    let report: Value = serde_json::from_str(report)?;
    let read = &report["jobs"][0]["read"];
    let number = |value: &Value| value.as_f64().context("fio's report has other fields");
    Ok(Measured {
        in_guest: true,
        port: port.to_owned(),
        load,
        mb_per_s: number(&read["bw_bytes"])? / 1e6,
        iops: number(&read["iops"])?,
        mean_us: number(&read["lat_ns"]["mean"])? / 1e3,
        p99_us: number(&read["clat_ns"]["percentile"]["99.000000"])? / 1e3,
    })
}

impl Measured {
    fn line(&self) -> String {
        let Self { mb_per_s, iops, mean_us, .. } = self;
        format!("  {mb_per_s:.1} MB/s, {iops:.0} IOPS, mean {mean_us:.1} us")
    }
}

impl Shown {
    /// The document's rows, and ours.
    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header(["", "load", "throughput", "mean latency", "of direct: throughput", "latency"]);
        let [(_, direct_mb, direct_us), _] = DOCUMENT;
        for (name, mb, us) in DOCUMENT {
            let ratios = [format!("{:.3}", mb / direct_mb), format!("{:.2}", us / direct_us)];
            let [throughput, latency] = ratios;
            let name = format!("the document, {name}");
            table.add_row([
                name,
                "fio".to_owned(),
                format!("{mb:.1} MB/s"),
                format!("{us:.0} us"),
                throughput,
                latency,
            ]);
        }
        for measured in &self.measured {
            let same = |other: &&Measured| (other.in_guest, other.load) == (measured.in_guest, measured.load);
            let direct = self.measured.iter().filter(same).find(|other| other.port == DIRECT);
            let of_direct = |ours: f64, direct: Option<f64>, digits: usize| match direct {
                Some(direct) if direct > 0.0 => format!("{:.digits$}", ours / direct),
                _ => "-".to_owned(),
            };
            table.add_row([
                format!("{}, {}", if measured.in_guest { "in a guest" } else { "here" }, measured.port),
                measured.load.to_owned(),
                format!("{:.1} MB/s", measured.mb_per_s),
                format!("{:.0} us", measured.mean_us),
                of_direct(measured.mb_per_s, direct.map(|direct| direct.mb_per_s), 3),
                of_direct(measured.mean_us, direct.map(|direct| direct.mean_us), 2),
            ]);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut notes = "here, the fabric is TCP over the loopback of this machine".to_owned();
        if self.measured.iter().any(|measured| measured.in_guest) {
            notes += "; a guest's processor and network card are emulated, so only its ratios say something";
        }
        format!("{table}\n{notes}")
    }

    pub(super) fn json(&self) -> Object {
        let measured = serde_json::to_value(&self.measured).unwrap_or_default();
        Object::document("demo-box", 1).with("measured", measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_ratios_are_beside_ours() {
        let measured = |port: &str, mb_per_s, mean_us| Measured {
            in_guest: false,
            port: port.to_owned(),
            load: LOADS[0].0,
            mb_per_s,
            iops: 9876.0,
            mean_us,
            p99_us: 400.0,
        };
        let shown = Shown { measured: vec![measured("fabric0", 1234.5, 330.0), measured(DIRECT, 2469.0, 110.0)] };
        let table = shown.table();
        for expected in ["2853.5 MB/s", "2588.9 MB/s", "0.907", "1.10", "1234.5 MB/s", "330 us", "0.500", "3.00"] {
            assert!(table.contains(expected), "{expected}: {table}");
        }
    }

    #[test]
    fn a_guests_direct_port_is_compared_with_its_fabric_port() {
        let report = |bytes: u64, mean: u64| {
            let read = format!(r#"{{"bw_bytes": {bytes}, "iops": 100.5, "lat_ns": {{"mean": {mean}}}"#);
            format!(r#"{{"jobs": [{{"read": {read}, "clat_ns": {{"percentile": {{"99.000000": 900000}}}}}}}}]}}"#)
        };
        let of = |port: &str, bytes, mean| of_fio(port, LOADS[0].0, &report(bytes, mean)).unwrap();
        let here = Measured { in_guest: false, ..of(DIRECT, 8_000_000, 1000) };
        let fabric = of("fabric1", 1_000_000, 600_000);
        assert_eq!((fabric.mb_per_s, fabric.mean_us, fabric.p99_us), (1.0, 600.0, 900.0));
        let table = Shown { measured: vec![here, fabric, of(DIRECT, 4_000_000, 200_000)] }.table();
        for expected in ["in a guest, fabric1", "in a guest, direct1", "0.250", "3.00"] {
            assert!(table.contains(expected), "{expected}: {table}");
        }
        assert!(of_fio("fabric1", LOADS[0].0, r#"{"jobs": []}"#).is_err());
    }

    #[test]
    fn the_configuration_is_legal() {
        let loaded = ebof::manage::load("box.toml", &configuration(true)).unwrap();
        assert_eq!(loaded.config.drives[0].functions, 5);
    }
}
