//! The demonstration of `make run`: a drive in a file is served, discovered, attached, mounted,
//! compared and measured, and everything is cleaned up.
//!
//! Owns the order of the steps and their messages. `stage` tracks what has to be cleaned up,
//! `files` creates the content of the drive, `corners` measures. Every step that a user could take
//! is run as a shell command, with the program `ebof` that is built beside this one; what no
//! command does is done through the library.
#![forbid(unsafe_code)]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the comments of arguments are help texts: brackets mean optional parts"
)]

mod corners;
mod enclosure;
mod files;
mod stage;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use ebof::{Controller, Nsid, Options, Uri};
use ebof_cli::output::json::Object;
use ebof_cli::output::print;
use ebof_cli::output::text::si;
use ebof_cli::{Failure, OutputFormat};
use serde_json::Value;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use files::Checksums;
use stage::Stage;

/// Demonstrates ebof on this machine: serve, attach, mount, compare, measure.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "demo", max_term_width = 100)]
struct Args {
    /// Format of the result
    #[arg(short = 'o', long = "output-format", value_enum, default_value_t = OutputFormat::Normal, value_name = "FORMAT")]
    format: OutputFormat,
    /// Port of 127.0.0.1 to serve on; another one if it is in use
    #[arg(long, value_name = "PORT", default_value_t = 4420)]
    port: u16,
    /// Put the files of this directory onto the drive
    /// [default: ebof's sources, if they are the working directory]
    #[arg(long, value_name = "DIRECTORY")]
    files: Option<PathBuf>,
    /// Create the temporary directory in this one
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// A small drive and short measurements
    #[arg(long)]
    quick: bool,
    /// Demonstrate a box instead: functions of a drive, given to ports and moved (`make run-box`)
    #[arg(long = "box", conflicts_with_all = ["port", "files", "no_mount"])]
    enclosure: bool,
    /// With --box: measure in virtual machines, too, which this program runs
    /// (tests/vm/box-guest.sh)
    #[arg(long, value_name = "PROGRAM", requires = "enclosure")]
    guest: Option<PathBuf>,
    /// Do not attach the drive; read it through the library, as without root or FUSE
    #[arg(long)]
    no_mount: bool,
}

/// The result.
struct Shown {
    /// The block device, if there was one.
    device: Option<String>,
    files: usize,
    bytes: u64,
    differing: Vec<String>,
    comparison: ebof_bench::corner::Comparison,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).with_env_var("EBOF_LOG");
    let filter = filter.from_env_lossy();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ebof_cli::fail(&error, args.format),
    }
}

/// Runs the demonstration.
fn run(args: &Args) -> anyhow::Result<()> {
    let directory = args.directory.clone().unwrap_or_else(std::env::temp_dir);
    let mut stage = Stage::new(&program()?, &directory, args.format == OutputFormat::Json)?;
    if args.enclosure {
        let guest = args.guest.as_deref().map(std::path::absolute).transpose().context("--guest")?;
        let shown = enclosure::play(&mut stage, args.quick, guest.as_deref());
        let shown = put_away(&mut stage, shown)?;
        if args.format == OutputFormat::Json {
            print(shown.json().to_text()?.as_bytes())?;
        }
        return Ok(());
    }
    let shown = play(args, &mut stage);
    let shown = put_away(&mut stage, shown)?;
    if args.format == OutputFormat::Json {
        print(shown.json().to_text()?.as_bytes())?;
    }
    if !shown.differing.is_empty() {
        let message = format!("{} files came back different", shown.differing.len());
        return Err(Failure::new("data", message, shown.differing.join("\n  ")).into());
    }
    Ok(())
}

/// The program `ebof`: cargo puts examples in a directory beside it.
fn program() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("finding this program")?;
    let program = this.parent().and_then(Path::parent).map(|directory| directory.join("ebof"));
    program.filter(|program| program.is_file()).with_context(|| {
        format!(
            "there is no program `ebof` for {}: build it, too (cargo build -p ebof --bins --example demo)",
            this.display()
        )
    })
}

/// Cleans up, and gives the result.
fn put_away<T>(stage: &mut Stage, shown: anyhow::Result<T>) -> anyhow::Result<T> {
    stage.step("Everything is put away");
    let cleared = stage.clear();
    if stage.is_interrupted() {
        return Err(Failure::new("interrupted", "interrupted", "everything has been put away").into());
    }
    let shown = shown?;
    cleared?;
    stage.tell("nothing is left running, mounted or on the disk");
    Ok(shown)
}

impl Shown {
    fn json(&self) -> Object {
        Object::document("demo", 1)
            .with("device", self.device.clone())
            .with("files", self.files as u64)
            .with("bytes", self.bytes)
            .with("differing", self.differing.clone())
            .with("comparison", serde_json::to_value(&self.comparison).unwrap_or_default())
    }
}

fn play(args: &Args, stage: &mut Stage) -> anyhow::Result<Shown> {
    stage.step("A drive in a file");
    let drive = make_drive(args, stage)?;

    stage.step("Served over NVMe/TCP");
    let scratch = corners::prepare(stage, args.quick)?;
    let nqn = format!("nqn.2014-08.org.example:ebof-demo-{}", std::process::id());
    let (address, port) = stage.serve(args.port, &nqn, &["drive.img", &scratch.drive])?;

    stage.step("Discovered");
    stage.shell(&format!("ebof discover -t tcp -a {address} -s {port}"))?;

    let uri = format!("nvme+tcp://{address}:{port}/{nqn}");
    let device = attach_and_compare(args, stage, (&address, port, &nqn), &drive)?;
    let (device, differing) = match device {
        Some((device, differing)) => (Some(device), differing),
        None => (None, read_through_library(stage, &uri, &drive)?),
    };
    let count = drive.checksums.len();
    match differing.len() {
        0 => stage.tell(&format!("all checksums are equal: {count} files, {}", si(drive.bytes.into()))),
        some => stage.tell(&format!("{some} checksums DIFFER: {}", differing.join(", "))),
    }

    stage.step("Measured: the four corners, the local file against the same over the fabric");
    let comparison = corners::measure(stage, &scratch, &uri, args.quick)?;
    stage.tell(&corners::table(&comparison));
    Ok(Shown { device, files: count, bytes: drive.bytes, differing, comparison })
}

/// The content of the drive.
struct Drive {
    checksums: Checksums,
    bytes: u64,
    /// A file system, or an archive if mkfs.ext4 is missing.
    ext4: bool,
}

fn make_drive(args: &Args, stage: &mut Stage) -> anyhow::Result<Drive> {
    let copied = files::collect(args.files.as_deref(), stage.program(), &stage.path("files"))?;
    stage.tell(&format!("{} files, {} of {}", copied.count, si(copied.bytes.into()), copied.from));
    let checksums = files::checksums(stage, "files")?;
    if !stage.has("mkfs.ext4") && stage::is_root() && stage.has("apt-get") {
        stage.tell("mkfs.ext4 is missing: installing the package e2fsprogs");
        // If that fails, an archive is used instead.
        if let Err(error) = stage.shell("apt-get install -q -y --no-install-recommends e2fsprogs") {
            stage.tell(&format!("{error:#}"));
        }
    }
    stage.check()?;
    // Room for a second copy, made over the fabric.
    let mib = (copied.bytes >> 20) * 5 / 2 + if args.quick { 64 } else { 256 };
    stage.shell(&format!("truncate -s {mib}M drive.img"))?;
    let ext4 = stage.has("mkfs.ext4");
    if ext4 {
        // Inodes for many small files: sources are smaller than what mkfs expects.
        stage.shell("mkfs.ext4 -q -F -i 8192 -L ebof-demo -d files drive.img")?;
    } else {
        stage.tell("there is no mkfs.ext4 (Debian: apt install e2fsprogs): the drive holds an archive instead of a file system");
        stage.shell("tar -cf - files | dd of=drive.img bs=1M conv=notrunc status=none")?;
    }
    Ok(Drive { checksums, bytes: copied.bytes, ext4 })
}

/// Attaches the drive as a block device, mounts it and compares. `None` if this is not possible on
/// this machine, which was reported.
fn attach_and_compare(
    args: &Args,
    stage: &mut Stage,
    (address, port, nqn): (&str, u16, &str),
    drive: &Drive,
) -> anyhow::Result<Option<(String, Vec<String>)>> {
    if let Some(reason) = why_not_mount(args, drive) {
        stage.step("Read back through the library");
        stage.tell(&format!("the drive is not attached as a block device here: {reason}"));
        return Ok(None);
    }
    stage.step("Attached as a block device");
    let device = match stage.connect(&format!("ebof connect -t tcp -a {address} -s {port} -n {nqn}"), nqn)? {
        Ok(document) => block_device(&document),
        Err(reason) => Err(reason),
    };
    let device = match device {
        Ok(device) => device,
        Err(reason) => {
            stage.disconnect()?;
            stage.step("Read back through the library");
            stage.tell(&format!("no block device can be made here: {reason}"));
            return Ok(None);
        }
    };
    stage.shell("ebof list")?;

    stage.step("Mounted, and the files compared");
    stage.mount(&device)?;
    stage.shell("df -h --output=source,fstype,size,used,target mnt")?;
    let differing = drive.checksums.differing(&files::checksums(stage, "mnt")?);
    // The other direction, too: what the kernel writes to the device must be in the drive's file.
    stage.shell("cp -r files mnt/written")?;
    stage.unmount()?;
    stage.disconnect()?;
    stage.shell("e2fsck -f -n drive.img 2>&1")?;
    stage.shell("mkdir back && debugfs -R 'rdump /written back' drive.img 2>debugfs.log")?;
    let written = drive.checksums.differing(&files::checksums(stage, "back/written")?);
    let differing = differing.into_iter().chain(written.into_iter().map(|file| format!("written {file}"))).collect();
    Ok(Some((device, differing)))
}

/// The reason why the drive cannot be mounted on this machine, if that is known in advance.
fn why_not_mount(args: &Args, drive: &Drive) -> Option<String> {
    if args.no_mount {
        return Some("--no-mount".to_owned());
    }
    if !drive.ext4 {
        return Some("it holds no file system".to_owned());
    }
    if !stage::is_root() {
        return Some("only root may mount".to_owned());
    }
    let devices = ["/dev/ublk-control", "/dev/fuse"];
    (!devices.iter().any(|path| Path::new(path).exists())).then(|| "there is neither ublk nor FUSE".to_owned())
}

/// The block device of the first namespace in the output of `ebof connect -o json`, or the reason
/// why there is none.
fn block_device(document: &Value) -> Result<String, String> {
    let namespaces = document["namespaces"].as_array().map(Vec::as_slice).unwrap_or_default();
    let first = namespaces.iter().find(|namespace| namespace["nsid"] == 1).unwrap_or(&Value::Null);
    match (first["path"].as_str(), first["problem"].as_str()) {
        (Some(path), _) => Ok(path.to_owned()),
        (None, problem) => Err(problem.unwrap_or("the namespace was not listed").to_owned()),
    }
}

/// Copies the drive over the fabric into a file, and extracts the files from it.
fn read_through_library(stage: &mut Stage, uri: &str, drive: &Drive) -> anyhow::Result<Vec<String>> {
    stage.tell(&format!("reading namespace 1 of {uri} into copy.img"));
    let controller = Controller::connect(&Options::from_uri(&Uri::parse(uri)?))?;
    let namespace = controller.namespace(Nsid(1))?;
    let copied = files::copy_namespace(&namespace, &stage.path("copy.img"), || stage.check());
    drop(namespace);
    controller.disconnect();
    let bytes = copied.context("reading the drive")?;
    stage.tell(&format!("{} read", si(bytes.into())));
    if drive.ext4 {
        // Restoring owners needs root; they are not compared.
        stage.shell("mkdir back && debugfs -R 'rdump / back' copy.img 2>debugfs.log")?;
        files::checksums(stage, "back").map(|found| drive.checksums.differing(&found))
    } else {
        stage.shell("mkdir back && tar -xf copy.img --strip-components=1 -C back")?;
        files::checksums(stage, "back").map(|found| drive.checksums.differing(&found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_of_a_connection_or_its_error_is_found() {
        let document = serde_json::json!({"namespaces": [
            {"nsid": 2, "path": "/dev/loop1", "problem": null},
            {"nsid": 1, "path": "/dev/loop0", "problem": null}]});
        assert_eq!(block_device(&document), Ok("/dev/loop0".to_owned()));
        let document = serde_json::json!({"namespaces": [{"nsid": 1, "path": null, "problem": "no /dev/fuse"}]});
        assert_eq!(block_device(&document), Err("no /dev/fuse".to_owned()));
        assert!(block_device(&Value::Null).is_err());
    }
}
